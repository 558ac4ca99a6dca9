"""Tensor renormalisation of two-dimensional lattices: TRG and HOTRG, and the exact solution of the Ising model.

A partition function is a network of equal tensors, one on each site. A step replaces pairs of tensors by one that
stands for twice as many sites and cuts its legs to a given rank. After n steps one tensor stands for 2ⁿ sites and its
trace is the partition function Z. The logarithm of Z per site is a plain differentiable result of the loop:

    u = -∂(lnZ)/∂β        the energy per site, through every step
    c = β²·∂²(lnZ)/∂β²    the specific heat per site, through the same steps

- `trg` splits each tensor in two along its diagonals and joins the halves around every second plaquette (M. Levin and
  C. P. Nave, Phys. Rev. Lett. 99, 120601, 2007). A step turns the lattice by 45°; the work grows like rank⁶.
- `hotrg` joins two neighbours and cuts the doubled legs, in one direction and then in the other (Z. Y. Xie et al.,
  Phys. Rev. B 86, 045139, 2012). More precise at the same rank; the work grows like rank⁷.

Off criticality the spectra at the cuts become degenerate, where rules for U, S and V divide 0 by 0. What a step takes
from a decomposition are spaces, and these have a derivative: `us.linalg.leading_space`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.integrate import quad
from scipy.special import ellipe, ellipkm1

import unspool as us
from unspool.errors import ArgumentError, DTypeError, ShapeError
from unspool.linalg import LeadingSpaceResult
from unspool.networks import _checks
from unspool.networks._progress import shows_progress
from unspool.networks._results import printed_as_table
from unspool.networks._spooling import Spool, run_of

__all__ = ["Onsager", "TRGResult", "hotrg", "ising_tensor", "onsager", "trg"]

OnStep = Callable[[int, us.Tensor, dict[str, float]], object]


@printed_as_table
class TRGResult(NamedTuple):
    """What a renormalisation came to.

    Attributes
    ----------
    state : Tensor
        The tensor after the last step, of norm 1.
    log_partition : Tensor
        The logarithm of the partition function per site; differentiate this.
    steps : int
        Steps that were taken. The lattice has ``2**steps`` sites.
    converged : bool
        Whether the last step changed the logarithm per site by ``tol`` at most, or by 1e-9 if no ``tol`` was given.
    history : tuple of dict
        What was read after each step: ``log_partition``, its ``change``, the ``truncation`` (the largest dropped share
        of squared singular values in the step) and the ``rank`` (the largest leg).
    """

    state: us.Tensor
    log_partition: us.Tensor
    steps: int
    converged: bool
    history: tuple[dict[str, float], ...]


# --- the loops -------------------------------------------------------------------------------------------------------


@shows_progress("steps", total="steps")
def trg(
    model: Any,
    *,
    rank: int,
    steps: int = 30,
    cutoff: float = 1e-12,
    tol: float | None = None,
    keep_multiplets: bool = False,
    on_step: OnStep | None = None,
    progress: bool = False,
    spool: Spool | None = None,
) -> TRGResult:
    """Renormalise a square lattice by splitting its tensors along diagonals: the tensor renormalisation group.

    Parameters
    ----------
    model : scalar or tensor
        The inverse temperature β of the Ising model, or a tensor with legs (right, up, left, down) for each site, real,
        with as large a leg to the left as to the right and as large a one down as up.
    rank : int
        The largest leg to keep.
    steps : int
        How many steps to take at most; each doubles the number of sites.
    cutoff : float
        Drop singular values below this much of the largest one. What is rounding is dropped in any case.
    tol : float, optional
        Stop when a step changes the logarithm of Z per site by this at most. By default all steps are taken.
    keep_multiplets : bool
        Lower the rank where it would cut through equal singular values. Without it such a cut is accepted if the
        result does not depend on what is kept, as where a symmetry tells the values apart, and a derivative that does
        depend on it raises `GaugeError`.
    on_step : callable, optional
        Called after each step as ``on_step(step, tensor, values)``, with what goes into the history.
    progress : bool
        Whether to show how far it is while it runs; see `unspool.progress`.
    spool : path or us.SpooledRun, optional
        Write the loop as it runs, into a folder or as `unspool.spool` says. A run that is there is gone on with, and
        derivatives go through all its steps.

    Examples
    --------
    >>> import unspool as us
    >>> from unspool.networks.trg import onsager, trg
    >>> beta = us.tensor(0.5)
    >>> log_z = trg(beta, rank=8).log_partition
    >>> energy = -log_z.grad(beta)
    >>> print(f"{float(log_z):.6f} {float(energy):.6f}")
    1.025789 -1.745669
    >>> exact = onsager(0.5)
    >>> print(f"{exact.log_partition:.6f} {exact.energy:.6f}")
    1.025793 -1.745565
    """
    limits = {
        "rank": _checks.count(rank, "rank"),
        "cutoff": _checks.fraction(cutoff, "cutoff"),
        "keep_multiplets": bool(keep_multiplets),
    }
    return _renormalise(_site_tensor(model), lambda site: _split_and_join(site, limits), steps, tol, on_step, spool)


@shows_progress("steps", total="steps")
def hotrg(
    model: Any,
    *,
    rank: int,
    steps: int = 40,
    cutoff: float = 1e-12,
    tol: float | None = None,
    keep_multiplets: bool = False,
    on_step: OnStep | None = None,
    progress: bool = False,
    spool: Spool | None = None,
) -> TRGResult:
    """Renormalise a square lattice by joining neighbours, in one direction and the other in turn.

    Parameters are those of `trg`. The spectra at the cuts are squares here, so values below about 1e-7 of the largest
    singular value drown in rounding and are dropped whatever the ``cutoff``.

    Examples
    --------
    >>> import unspool as us
    >>> from unspool.networks.trg import hotrg, onsager
    >>> beta = us.tensor(0.4)
    >>> log_z = hotrg(beta, rank=6).log_partition
    >>> exact = onsager(0.4)
    >>> abs(float(log_z) - exact.log_partition) < 2e-5, abs(float(-log_z.grad(beta)) - exact.energy) < 1e-3
    (True, True)
    """
    limits = {
        "rank": _checks.count(rank, "rank"),
        "cutoff": _checks.fraction(cutoff, "cutoff") ** 2,
        "keep_multiplets": bool(keep_multiplets),
    }
    return _renormalise(_site_tensor(model), lambda site: _join_neighbours(site, limits), steps, tol, on_step, spool)


def _renormalise(
    site: us.Tensor,
    step: Callable[[us.Tensor], tuple[us.Tensor, float]],
    steps: int,
    tol: float | None,
    on_step: OnStep | None,
    spool: Spool | None,
) -> TRGResult:
    """Take steps until the logarithm per site has settled; a tensor after n of them stands for 2ⁿ sites."""
    steps, enough = _checks.count(steps, "steps"), 1e-9 if tol is None else _checks.fraction(tol, "tol")
    scale = float(us.max(us.abs(site)))
    site, log_partition = site / scale, us.constant(math.log(scale))  # so that no square overflows
    with run_of(spool, steps) as run:
        site, log_partition, total, last, done = run.start((site, log_partition, None, math.inf, False), inputs=site)
        while len(run.history) < steps and not (done and tol is not None):
            n = len(run.history) + 1
            # The norm is a smooth function and the same in every basis. Left out of the derivative, second derivatives
            # would be small differences of numbers that grow like 2ⁿ.
            norm = us.linalg.norm(site)
            log_partition = log_partition + us.log(norm) / 2 ** (n - 1)
            site, truncation = step(site / norm)
            total = log_partition + us.log(_trace(site)) / 2**n
            value = float(total)
            change, last = abs(value - last), value
            done = change <= enough
            rank = float(max(site.shape))
            values = {"log_partition": value, "change": change, "truncation": truncation, "rank": rank}
            run.checkpoint((site, log_partition, total, last, done), values)
            if on_step is not None:
                on_step(n, site, values)
    return TRGResult(site / us.linalg.norm(site), total, len(run.history), done, tuple(run.history))


def _trace(site: us.Tensor) -> us.Tensor:
    """Return the partition function of one tensor on a torus."""
    trace = us.einsum("xyxy->", site)
    if not float(trace) > 0:
        raise ArgumentError(
            f"the partition function must be positive to have a logarithm, but its sign came out otherwise: the trace "
            f"of the tensor is {float(trace):.3e}"
        )
    return trace


# --- one step --------------------------------------------------------------------------------------------------------


def _split_and_join(site: us.Tensor, limits: dict[str, Any]) -> tuple[us.Tensor, float]:
    """Split tensors along both diagonals and join the four halves that face a plaquette."""
    (upper_right, lower_left), loss = _halves(site, (0, 1, 2, 3), limits)  # (right, up) and (left, down)
    (upper_left, lower_right), other = _halves(site, (1, 2, 0, 3), limits)  # (up, left) and (right, down)
    # Around the plaquette, from its top left corner: w and y run along its top and bottom, x and z along its sides.
    joined = us.einsum("wxr,wzu,yzl,xyd->ruld", lower_left, lower_right, upper_right, upper_left)
    return joined, max(loss, other)


def _halves(
    site: us.Tensor, order: tuple[int, int, int, int], limits: dict[str, Any]
) -> tuple[tuple[us.Tensor, us.Tensor], float]:
    """Split a tensor between the second and third leg of an order; each half gets the new leg as its last."""
    legs = us.transpose(site, order)
    first, second, third, fourth = legs.shape
    matrix = us.reshape(legs, (first * second, third * fourth))
    space = _leading(matrix, limits)
    left, right = balanced(space)
    loss = _dropped_share(space, power=2)
    return (us.reshape(left, (first, second, -1)), us.reshape(right, (third, fourth, -1))), loss


def _leading(matrix: us.Tensor, limits: dict[str, Any], hermitian: bool = False) -> LeadingSpaceResult:
    """Return the leading space of a square matrix; what rounding makes of zeros is never kept."""
    noise = 4 * int(matrix.shape[0]) * float(np.finfo(matrix.dtype).eps)
    return us.linalg.leading_space(
        matrix,
        limits["rank"],
        max(limits["cutoff"], noise),
        keep_multiplets=limits["keep_multiplets"],
        protected=True,
        factors=us.linalg.space_factors(matrix, hermitian=hermitian),
    )


def balanced(space: LeadingSpaceResult) -> tuple[us.Tensor, us.Tensor]:
    """Return X and Y with X·Yᵀ the matrix that was cut off, and XᵀX = YᵀY.

    The rest is D·Vᵀ with orthonormal columns V and a positive D, so these are Q·√D and V·√D. Any square root of D would
    do, as a rotation that X and Y have in common does not matter. That of Cholesky has a derivative without gaps.
    """
    right, core = us.linalg.polar(space.rest, side="left", rtol=float(np.finfo(space.rest.dtype).eps))
    root = us.linalg.cholesky(core)
    return space.isometry @ root, right.mT @ root


def _dropped_share(space: LeadingSpaceResult, power: int = 1) -> float:
    """Return the dropped part of the sum of a power of the singular values."""
    values = space.values.eval()
    weights = (values / values[0]) ** power
    return float(np.sum(weights[space.rest.shape[0] :]) / np.sum(weights))


def _join_neighbours(site: us.Tensor, limits: dict[str, Any]) -> tuple[us.Tensor, float]:
    """Join a tensor with the one below it, cut the doubled legs to the sides, and reflect the lattice."""
    right = _leading(_doubled_leg(site), limits, hermitian=True)
    left = _leading(_doubled_leg(us.transpose(site, (2, 1, 0, 3))), limits, hermitian=True)
    best = min(right, left, key=_dropped_share)
    size = site.shape[0]
    isometry = us.reshape(best.isometry, (size, size, -1))
    joined = us.einsum("abr,auly,bymd,lmk->rukd", isometry, site, site, isometry)
    return us.transpose(joined, (1, 0, 3, 2)), _dropped_share(best)


def _doubled_leg(site: us.Tensor) -> us.Tensor:
    """Return M·Mᵀ, with M the tensor of a pair as a matrix from its two legs to the right to all others."""
    size = site.shape[0]
    upper = us.einsum("ruly,sulz->rsyz", site, site)
    lower = us.einsum("ryld,szld->rsyz", site, site)
    return us.reshape(us.einsum("abyz,cdyz->acbd", upper, lower), (size * size, size * size))


# --- the Ising model -------------------------------------------------------------------------------------------------


def ising_tensor(beta: Any) -> us.Tensor:
    """Return the site tensor of the Ising model on the square lattice at an inverse temperature, with J = 1.

    A bond has the weight exp(β·s·s') = cosh β + s·s'·sinh β. Each end takes half of a term, the spin is summed over,
    and what is left is zero unless an even number of the four legs took the second term.

    Examples
    --------
    >>> import numpy as np
    >>> import unspool as us
    >>> from unspool.networks.trg import ising_tensor
    >>> tensor = ising_tensor(0.3)
    >>> z = us.einsum("xyxy->", tensor)  # one site on a torus: two bonds with itself
    >>> bool(us.isclose(z, 2 * np.exp(2 * 0.3), rtol=1e-14))
    True
    """
    beta = _checks.finite_tensor(beta, "beta")
    if beta.ndim or beta.dtype.kind == "c":
        raise ArgumentError(f"beta must be a real number, but has shape {beta.shape} and dtype {beta.dtype}")
    cosh, sinh = us.cosh(beta), us.sinh(beta)
    tensor: us.Tensor = 2.0 * (cosh * cosh * _LEGS[0] + cosh * sinh * _LEGS[1] + sinh * sinh * _LEGS[2])
    return tensor


# Where none, two and four of the legs took the second term; products of whole powers have derivatives at β = 0 too.
_LEGS = tuple((np.sum(np.indices((2, 2, 2, 2)), axis=0) == number).astype(np.float64) for number in (0, 2, 4))


def _site_tensor(model: Any) -> us.Tensor:
    """Return the tensor of a site, from an inverse temperature or as it was given."""
    tensor = us.asarray(model)
    if tensor.ndim == 0:
        return _checks.finite_tensor(ising_tensor(tensor), "the Ising tensor")
    tensor = _checks.finite_tensor(tensor, "the site tensor", ndim=4)
    right, up, left, down = tensor.shape
    if (right, up) != (left, down) or 0 in tensor.shape:
        raise ShapeError(
            f"legs (right, up, left, down) must fit those of the neighbours, but the sizes are {tensor.shape}"
        )
    if tensor.dtype.kind != "f":
        raise DTypeError(f"the site tensor must be real and floating, but is {tensor.dtype}")
    if not np.any(tensor.eval()):
        raise ArgumentError("the site tensor is zero, and so is the partition function, which has no logarithm")
    return tensor


# --- exact values ----------------------------------------------------------------------------------------------------


class Onsager(NamedTuple):
    """Exact values of the infinite square lattice, per site.

    Attributes
    ----------
    log_partition, energy, specific_heat, magnetisation : float
        lnZ, u = -∂(lnZ)/∂β, c = β²·∂²(lnZ)/∂β², and the spontaneous magnetisation.
    """

    log_partition: float
    energy: float
    specific_heat: float
    magnetisation: float


def onsager(beta: float) -> Onsager:
    """Return the exact values of the Ising model on the infinite square lattice, with J = 1.

    Notes
    -----
    From L. Onsager, Phys. Rev. 65, 117 (1944) and, for the magnetisation, C. N. Yang, Phys. Rev. 85, 808 (1952). With
    k = 2·sinh 2β / cosh² 2β, k' = 2·tanh² 2β - 1 and the complete elliptic integrals K and E of modulus k

        lnZ = ln(2·cosh 2β) + (1/2π)·∫₀^π ln[(1 + √(1 - k²·sin² t))/2] dt
        u   = -coth 2β·[1 + (2/π)·k'·K]
        c   = (2/π)·(β·coth 2β)²·[2K - 2E - (1 - k')·(π/2 + k'·K)]
        m   = (1 - sinh⁻⁴ 2β)^(1/8) below the critical temperature

    The specific heat is infinite at the critical point, sinh 2β = 1. The lattice has two sublattices, so a negative β
    has the values of a positive one, apart from the sign of u and the magnetisation, which is staggered.

    Examples
    --------
    >>> from unspool.networks.trg import onsager
    >>> exact = onsager(0.5)
    >>> print(f"{exact.log_partition:.12f} {exact.energy:.12f} {exact.specific_heat:.12f} {exact.magnetisation:.12f}")
    1.025792812695 -1.745564575313 0.724871448602 0.911319377877
    """
    beta = float(beta)
    if not math.isfinite(beta):
        raise ArgumentError(f"beta must be finite, but is {beta}")
    b = abs(beta)
    if b == 0:
        return Onsager(math.log(2), 0.0, 0.0, 0.0)
    tanh = math.tanh(2 * b)
    rest = 2 * tanh * tanh - 1  # k', the complementary modulus: k² + k'² = 1
    integral, _ = quad(_density, 0, math.pi / 2, args=(rest,), epsabs=1e-14, epsrel=1e-14, limit=200)
    log_partition = 2 * b + math.log1p(math.exp(-4 * b)) + integral / math.pi
    sinh4 = math.sinh(2 * min(b, 50.0)) ** 4
    magnetisation = (1 - 1 / sinh4) ** 0.125 if beta > 0 and sinh4 > 1 else 0.0
    if rest == 0:
        return Onsager(log_partition, math.copysign(1 / tanh, -beta), math.inf, magnetisation)
    K, E = float(ellipkm1(rest * rest)), float(ellipe(1 - rest * rest))
    energy = -(1 + 2 / math.pi * rest * K) / tanh
    heat = 2 / math.pi * (b / tanh) ** 2 * (2 * K - 2 * E - (1 - rest) * (math.pi / 2 + rest * K))
    return Onsager(log_partition, math.copysign(energy, -beta), heat, magnetisation)


def _density(t: float, rest: float) -> float:
    """Return the integrand ln[(1 + √(1 - k²·sin² t))/2], given k'."""
    return math.log((1 + math.hypot(math.cos(t), rest * math.sin(t))) / 2)
