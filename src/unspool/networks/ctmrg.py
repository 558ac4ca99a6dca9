"""Corner transfer matrices: all of an infinite square lattice around one site, by a loop that stops when it converged.

The sum over an infinite lattice of equal tensors is replaced by a ring around one site: four corners C and four edges
E, with bonds of size ``rank`` between them. One step lets the ring grow by one site and cuts it back:

- a quarter of the lattice, C, grows by a row, a column and a site, to the symmetric matrix M;
- the eigenvectors of M with the largest eigenvalues, as columns of P, say which part of the space matters;
- C becomes Pᵀ M P, and E, with one more row of sites, is put between Pᵀ and P.

Sites look the same from all four sides and in a mirror (C4v), so one corner and one edge are enough (T. Nishino and K.
Okunishi, J. Phys. Soc. Jpn. 65, 891 (1996); R. Orús and G. Vidal, Phys. Rev. B 80, 094403 (2009)).

The one idea for derivatives: P is used so that only the space it spans matters. C is not the diagonal matrix of the
eigenvalues but Pᵀ M P, so another basis of the same space is another name for the same ring. Then equal eigenvalues do
no harm, as long as the cut does not go through them; the number that is kept is chosen accordingly.

For the derivative through all steps nothing more is needed. For that at the fixed point each entry of the ring has to
stand still, not only the ring up to the names of its basis: see `_at_fixed_point`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import unspool as us
from unspool.errors import ArgumentError, ConvergenceError
from unspool.linalg import SVDResult
from unspool.networks import _checks
from unspool.networks._progress import shows_progress
from unspool.networks._results import printed_as_table
from unspool.networks._spooling import Spool, run_of
from unspool.networks.lattice import Environment, fitting_ring, product_environment, symmetric_site

__all__ = ["CTMRGResult", "ctmrg"]

OnStep = Callable[[int, Environment, dict[str, float]], object]

# Entries that belong to small eigenvalues are known to fewer digits than others: each stands still to about this power
# of the rounding error, 1e-10 in double precision.
STANDSTILL = 0.64


@printed_as_table
class CTMRGResult(NamedTuple):
    """The result of `ctmrg`.

    Attributes
    ----------
    state : Environment
        The corner and the edge, each of norm 1.
    spectrum : Tensor
        The moduli of the eigenvalues of the corner, largest first.
    steps : int
        How many steps were made.
    converged : bool
        Whether the spectrum changed by less than ``tol`` in the last one.
    history : tuple of dict
        For each step of the loop: the ``change`` of the spectrum, the ``truncation`` (the norm of what was cut off,
        relative to that of all) and the ``rank``.
    """

    state: Environment
    spectrum: us.Tensor
    steps: int
    converged: bool
    history: tuple[dict[str, float], ...]


class _Limits(NamedTuple):
    """When to stop, and what to keep."""

    rank: int
    tol: float
    max_steps: int
    cutoff: float


# --- the loop --------------------------------------------------------------------------------------------------------


@shows_progress("steps")
def ctmrg(
    bulk: Any,
    *,
    rank: int,
    tol: float = 1e-10,
    max_steps: int = 500,
    cutoff: float = 1e-8,
    start: Environment | tuple[Any, Any] | None = None,
    adjoint: us.Unrolled | us.Implicit | None = None,
    on_step: OnStep | None = None,
    progress: bool = False,
    spool: Spool | None = None,
) -> CTMRGResult:
    """Surround a site of an infinite square lattice by corners and edges: corner transfer matrix renormalisation.

    Parameters
    ----------
    bulk : array_like
        The tensor on every site: real, with axes (up, left, down, right) of one size, the same from all sides and in a
        mirror. `symmetrise` makes one from any tensor.
    rank : int
        The largest size of the bonds of the ring. Fewer are kept where the cut would go through equal moduli.
    tol : float
        Stop when the normalised spectrum of the corner moves by less, in the Euclidean norm.
    max_steps : int
        The most steps to make. Not converging is no error: see ``converged`` of the result.
    cutoff : float
        Eigenvalues below this much of the largest are cut off as well. What is cut off counts by its square.
    start : Environment, optional
        The ring to begin with; by default a `product_environment` of ones. It may break a symmetry of the sites.
    adjoint : us.Unrolled or us.Implicit, optional
        How to differentiate: through all steps, by default; or at the fixed point, with a cost and a memory that do not
        depend on the number of steps. The latter goes on until each entry of the ring stands still.
    on_step : callable, optional
        Called as ``on_step(step, state, values)`` after every step, with the dict that goes to the history.
    progress : bool
        Whether to show how far it is while it runs; see `unspool.progress`.
    spool : path or us.SpooledRun, optional
        Write the loop as it runs, into a folder or as `unspool.spool` says. A run that is there is gone on with, and
        derivatives go through all its steps.

    Returns
    -------
    CTMRGResult
        The state, and how it was reached.

    Raises
    ------
    ArgumentError
        If an argument makes no sense: a tensor that is not symmetric or not finite, a rank of 0.
    ConvergenceError
        With ``adjoint=us.Implicit()``, if there is no fixed point within ``max_steps``.

    Notes
    -----
    Derivatives through all steps flow to ``start`` as well. To go on from an earlier result without its history, pass
    its values: ``start=us.eval(found.state)``.

    The basis of the bonds of a ring is open. Read off what does not depend on it: rings that are closed, as
    `site_expectation` and `partition_per_site` close them, and the spectrum.

    A ring can be two rings at once, of two phases or of two sublattices; its spectrum is then twice that of one. A
    start that is such a pair remains one, and no fixed point attracts it. Begin with a `product_environment` then.

    Examples
    --------
    The Ising model at β = 0.6 with a boundary far away that points up. The exact magnetisation (C. N. Yang, Phys. Rev.
    85, 808 (1952)) is m = (1 - sinh⁻⁴ 2β)^⅛ = 0.9736086674, with dm/dβ = 0.278634.

    >>> import unspool as us
    >>> from unspool.networks.ctmrg import ctmrg
    >>> from unspool.networks.lattice import ising_site, site_expectation, product_environment
    >>> beta = us.tensor(0.6)
    >>> site = ising_site(beta)
    >>> found = ctmrg(site.bulk, rank=4, start=product_environment(site.up))
    >>> m = site_expectation(site.bulk, site.spin, found.state)
    >>> found.converged, round(float(m), 8)
    (True, 0.97360867)
    >>> round(float(m.grad(beta)), 6)
    0.278634
    """
    bulk = symmetric_site(bulk, "bulk")
    limits = _Limits(
        _checks.count(rank, "rank"),
        _checks.fraction(tol, "tol"),
        _checks.count(max_steps, "max_steps"),
        _checks.fraction(cutoff, "cutoff"),
    )
    state = product_environment(np.ones(bulk.shape[0], bulk.dtype)) if start is None else fitting_ring(start, bulk)
    if adjoint is None or isinstance(adjoint, us.Unrolled):
        return _loop(bulk, state, limits, on_step, spool)
    if isinstance(adjoint, us.Implicit):
        found = _loop(_value(bulk), Environment(*map(_value, state)), limits, on_step, spool)
        return _at_fixed_point(bulk, found, limits, adjoint)
    raise ArgumentError(f"adjoint must be us.Unrolled() or us.Implicit(), but is {adjoint!r}")


def _loop(
    bulk: us.Tensor, state: Environment, limits: _Limits, on_step: OnStep | None, spool: Spool | None
) -> CTMRGResult:
    """Take steps until the spectrum of the corner stands still."""
    change, before = float("inf"), np.zeros(0)
    with run_of(spool, limits.max_steps) as run:
        bulk, ring, change, before = run.start((bulk, tuple(state), change, before), inputs=(bulk, tuple(state)))
        state = Environment(*ring)
        while change >= limits.tol and len(run.history) < limits.max_steps:
            grown, factors = _grow(*state, bulk)
            sizes = factors.S.eval()
            kept = _choice(sizes, limits)
            state = Environment(*_cut(grown, state.edge, bulk, factors, kept=kept))
            spectrum, truncation = _weights(sizes, kept)
            change, before = _distance(spectrum, before), spectrum
            values = {"change": change, "truncation": truncation, "rank": float(kept)}
            run.checkpoint((bulk, tuple(state), change, before), values)
            if on_step is not None:
                on_step(len(run.history), state, values)
    return CTMRGResult(state, _spectrum(state), len(run.history), change < limits.tol, tuple(run.history))


@us.fragment
def _grow(corner: us.Tensor, edge: us.Tensor, bulk: us.Tensor) -> tuple[us.Tensor, SVDResult]:
    """Let a quarter of the lattice grow; return it and its factors: the moduli of its eigenvalues and their vectors."""
    # The site comes last. An edge with a site would be larger by the square of a bond than anything else here.
    ends = us.einsum("ale,aub->uleb", us.einsum("ac,cle->ale", corner, edge), edge)
    quarter = us.einsum("uleb,uldr->bred", ends, bulk)
    size = quarter.shape[0] * quarter.shape[1]
    grown = us.reshape(quarter, (size, size))
    return grown, us.linalg.space_factors(grown, hermitian=True)


@us.fragment(static="kept")
def _cut(
    grown: us.Tensor, edge: us.Tensor, bulk: us.Tensor, factors: SVDResult, kept: int
) -> tuple[us.Tensor, us.Tensor]:
    """Return the corner and the edge in the space of the largest eigenvalues."""
    isometry, rest, _ = us.linalg.leading_space(grown, kept, factors=factors)
    return _project(isometry, rest, edge, bulk)


def _project(isometry: us.Tensor, rest: us.Tensor, edge: us.Tensor, bulk: us.Tensor) -> tuple[us.Tensor, us.Tensor]:
    """Return corner and edge between an isometry and its transpose, which times the grown corner is the rest."""
    corner = rest @ isometry
    sides = us.reshape(isometry, (edge.shape[0], edge.shape[1], isometry.shape[1]))
    with_site = us.einsum("ulbk,uldr->bkdr", us.einsum("aub,alk->ulbk", edge, sides), bulk)
    edge = us.einsum("bkdr,brm->kdm", with_site, sides)
    edge = edge + us.transpose(edge, (2, 1, 0))  # equal but for rounding, which must not grow
    return corner / us.linalg.norm(corner), edge / us.linalg.norm(edge)


def _choice(sizes: Any, limits: _Limits) -> int:
    """Return how many of the falling moduli to keep, such that no two equal ones are torn apart."""
    largest = sizes[0]
    if not 0.0 < largest < np.inf:
        raise ArgumentError(f"from this start the ring around a site becomes {largest}; start from another one")
    wanted = min(limits.rank, max(1, int(np.sum(sizes > limits.cutoff * largest))))
    # Twice the measure of equal values that decompositions have: what passes here is no cut through equals there.
    gaps = np.append(sizes[:-1] - sizes[1:], np.inf) > 2.0 * _closeness(sizes.dtype) * largest
    between = np.flatnonzero(gaps) + 1
    if between[0] > wanted:
        raise ArgumentError(
            f"rank {limits.rank} cuts through {between[0]} equal eigenvalues; make it {between[0]} or more"
        )
    return int(between[between <= wanted][-1])


def _weights(sizes: Any, kept: int) -> tuple[Any, float]:
    """Return the spectrum that is kept, of norm 1, and the norm of the rest beside that of all."""
    spectrum = sizes[:kept]
    rest = np.linalg.norm(sizes[kept:]) / np.linalg.norm(sizes)
    return spectrum / np.linalg.norm(spectrum), float(rest)


def _distance(spectrum: Any, before: Any) -> float:
    """Return how far two spectra are apart; the shorter one goes on with zeros."""
    size = max(len(spectrum), len(before))
    difference = np.zeros(size)
    difference[: len(spectrum)] = spectrum
    difference[: len(before)] -= before
    return float(np.linalg.norm(difference))


def _spectrum(state: Environment) -> us.Tensor:
    sizes = us.abs(us.linalg.eigvalsh(state.corner))
    return sizes[np.argsort(-sizes.eval(), kind="stable")]


def _closeness(dtype: Any) -> float:
    """Return how close eigenvalues that count as equal are, relative to the largest."""
    return float(np.sqrt(np.finfo(dtype).eps))


def _value(tensor: us.Tensor) -> us.Tensor:
    """Return the value as a tensor without a history."""
    return us.tensor(tensor.eval())


# --- the derivative at the fixed point -------------------------------------------------------------------------------


def _at_fixed_point(bulk: us.Tensor, found: CTMRGResult, limits: _Limits, adjoint: us.Implicit) -> CTMRGResult:
    """Go on from a converged spectrum until each entry of the ring stands still, and differentiate there.

    A step that begins in some basis has to end in the same one. Let R be the isometry of a step that does. From the
    space of the eigenvectors V all further steps take the basis that is nearest to R, V times the polar factor of VᵀR.
    That is a smooth function of the space alone, whatever eigenvalues are equal in it. And it attracts: a small
    rotation ω of the ring becomes Rᵀ (ω ⊗ 1) R, which is smaller.
    """
    state = found.state
    grown, factors = _grow(*state, _value(bulk))
    kept = _choice(factors.S.eval(), limits)
    if not found.converged or kept != state.corner.shape[0]:
        raise ConvergenceError(
            f"no fixed point: step {found.steps} changed the spectrum by {found.history[-1]['change']:.1e}, tol is "
            f"{limits.tol:.1e}, and {kept} eigenvalues follow on {state.corner.shape[0]}; raise max_steps or tol, "
            "take another rank, or differentiate through all steps with us.Unrolled()"
        )
    turn = _change_of_basis(state.edge, _cut(grown, state.edge, _value(bulk), factors, kept=kept)[1])
    reference = _value(factors.U[:, :kept] @ turn.mT)

    def step(ring: Environment) -> Environment:
        larger, its_factors = _grow(*ring, bulk)
        space, rest, _ = us.linalg.leading_space(larger, kept, factors=its_factors)
        turned = us.linalg.polar(space.mT @ reference).U
        return Environment(*_project(space @ turned, turned.mT @ rest, ring.edge, bulk))

    tol = max(limits.tol, float(np.finfo(bulk.dtype).eps ** STANDSTILL))
    fixed, steps = us.fixed_point(step, state, tol=tol, max_steps=limits.max_steps, adjoint=adjoint)
    return found._replace(state=fixed, spectrum=_spectrum(fixed), steps=found.steps + steps)


def _change_of_basis(edge: us.Tensor, after: us.Tensor) -> us.Tensor:
    """Return the orthogonal X with edge · X = X · after, for all matrices along the bond: how a step turned the basis.

    It is the leading eigenvector of X → Σ edge · X · after, the transfer matrix between the two edges. That is exact up
    to how far the loop has converged; the search that follows does the rest.
    """
    generic = np.random.default_rng(0).standard_normal((edge.shape[0], after.shape[0])).astype(edge.dtype)
    found = us.linalg.eigsh(lambda x: us.einsum("aib,bc,cid->ad", edge, x, after), generic, which="LA", tol=1e-6)
    return us.linalg.polar(found.eigenvectors[..., 0]).U
