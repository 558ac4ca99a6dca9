"""The canonical polyadic decomposition (CP) by alternating least squares, for any number of modes.

The model is a sum of R products of vectors, X̂[i, j, k, …] = Σ_r A[i, r]·B[j, r]·C[k, r]·…. Everything but one factor
held fixed, the best factor solves a linear least-squares problem with an R × R matrix, the elementwise product of the
Gram matrices of the others:

    (BᴴB ∘ CᴴC ∘ …) Aᵀ = M,      M = X contracted with all conjugate factors but A

A sweep solves for each factor in turn, so the residual never grows. Nearly all its time goes into the contractions M.
They share most of their work if the modes are halved again and again (a dimension tree): the data are contracted with
all factors of the right half once, which serves every mode on the left, and then with the new ones of the left half. So
a sweep reads the data twice, however many modes there are, and each time as one matrix product without a transposition.

With ``nonnegative=True`` a factor is updated column by column and cut off at zero (HALS). That is a plain loop of
differentiable operations as well.

References: J. D. Carroll and J.-J. Chang, Psychometrika 35, 283 (1970) and R. A. Harshman, UCLA Working Papers in
Phonetics 16 (1970): the loop. T. G. Kolda and B. W. Bader, SIAM Review 51, 455 (2009): conventions. A.-H. Phan,
P. Tichavský and A. Cichocki, IEEE Trans. Signal Process. 61, 4834 (2013): sharing contractions. A. Cichocki and
A.-H. Phan, IEICE Trans. Fundamentals E92-A, 708 (2009): HALS.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

import unspool as us
from unspool.errors import ArgumentError, RankError, ShapeError
from unspool.networks import _checks
from unspool.networks._fitting import (
    OnStep,
    Progress,
    data_tensor,
    fit_of,
    register_state,
    same_kind,
    square_norm,
)
from unspool.networks._progress import shows_progress
from unspool.networks._results import printed_as_table
from unspool.networks._spooling import Spool, run_of

__all__ = ["CP", "CPResult", "cp_als", "random_cp"]

# Terms count as dependent below this many units of rounding; the tolerance for ranks of `us.linalg.tolerances`.
_DEPENDENT = 1024


# --- the decomposition -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class CP:
    """A sum of products of vectors: the columns r of all factors make the term r.

    Parameters
    ----------
    factors : sequence of array_like
        A matrix (size of the mode, rank) for each mode.

    Examples
    --------
    >>> from unspool.networks.als import CP
    >>> cp = CP([[[1.0], [2.0]], [[3.0], [4.0]]])
    >>> cp
    CP(shape=(2, 2), rank=1)
    >>> cp.full().eval()
    array([[3., 4.],
           [6., 8.]])
    """

    factors: tuple[us.Tensor, ...]

    def __post_init__(self) -> None:
        factors = tuple(us.asarray(factor) for factor in self.factors)
        if not factors:
            raise ArgumentError("a CP has one factor or more, but none was given")
        shapes = [factor.shape for factor in factors]
        if any(len(shape) != 2 for shape in shapes) or len({shape[1] for shape in shapes}) != 1:
            raise ShapeError(f"factors must be matrices with the same number of columns, but their shapes are {shapes}")
        object.__setattr__(self, "factors", factors)

    def __repr__(self) -> str:
        return f"CP(shape={self.shape}, rank={self.rank})"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the tensor it stands for."""
        return tuple(int(factor.shape[0]) for factor in self.factors)

    @property
    def rank(self) -> int:
        """The number of terms."""
        return int(self.factors[0].shape[1])

    def full(self) -> us.Tensor:
        """The tensor it stands for."""
        rows = [factor.mT for factor in self.factors]
        half = _balanced(self.shape) if len(rows) > 1 else 1
        left, right = _all_products(rows[:half]), _all_products(rows[half:] or [us.ones_like(rows[0][:, :1])])
        return us.einsum("ra,rb->ab", left, right).reshape(self.shape)

    def normalised(self) -> tuple[us.Tensor, CP]:
        """The sizes of the terms, and the same terms with columns of norm 1; a term that is zero stays zero.

        Examples
        --------
        >>> from unspool.networks.als import CP
        >>> weights, cp = CP([[[3.0], [4.0]], [[0.0], [2.0]]]).normalised()
        >>> weights.eval(), cp.factors[0].eval().ravel()
        (array([10.]), array([0.6, 0.8]))
        """
        norms = [us.linalg.vector_norm(factor, axis=0) for factor in self.factors]
        safe = [us.where(norm > 0, norm, 1.0) for norm in norms]
        unit = tuple(factor / norm for factor, norm in zip(self.factors, safe, strict=True))
        return reduce(us.multiply, norms), CP(unit)


register_state(CP, "factors")


@printed_as_table
class CPResult(NamedTuple):
    """The result of `cp_als`."""

    state: CP
    #: 1 - residual / ‖data‖², a tensor to differentiate.
    fit: us.Tensor
    #: ‖data - state‖², a tensor to differentiate.
    residual: us.Tensor
    steps: int
    converged: bool
    #: The floats "fit", "error" = ‖data - state‖ / ‖data‖ and "change" (of the fit) of each sweep.
    history: tuple[dict[str, float], ...]


def random_cp(
    shape: Sequence[int], rank: int, *, seed: int = 0, nonnegative: bool = False, dtype: DTypeLike = np.float64
) -> CP:
    """Return random factors: normally distributed, or uniform between 0 and 1 if they may not be negative.

    Examples
    --------
    >>> from unspool.networks.als import random_cp
    >>> random_cp((4, 5, 6), rank=2, seed=1)
    CP(shape=(4, 5, 6), rank=2)
    """
    rank, rng, dtype = _checks.count(rank, "rank"), np.random.default_rng(seed), np.dtype(dtype)

    def factor(size: int) -> us.Tensor:
        if nonnegative:
            return us.tensor(rng.random((size, rank)).astype(dtype))
        values = rng.standard_normal((size, rank))
        return us.tensor(
            (values + 1j * rng.standard_normal((size, rank)) if dtype.kind == "c" else values).astype(dtype)
        )

    return CP(tuple(factor(_checks.count(size, "a size")) for size in shape))


# --- the loop --------------------------------------------------------------------------------------------------------


@shows_progress("sweeps")
def cp_als(
    data: Any,
    start: CP | Sequence[Any] | int | None = None,
    *,
    rank: int | None = None,
    tol: float = 1e-8,
    max_steps: int = 200,
    ridge: float | us.Tensor = 0.0,
    nonnegative: bool = False,
    seed: int = 0,
    on_step: OnStep | None = None,
    progress: bool = False,
    spool: Spool | None = None,
) -> CPResult:
    """Fit a CP decomposition, a sum of ``rank`` products of vectors, to data by alternating least squares.

    Parameters
    ----------
    data : array_like
        The tensor to decompose, with two axes or more, real or complex.
    start : CP, sequence of array_like, or int
        The factors to start from, or the rank of a random start. The first factor is not read but for its shape, except
        with ``nonnegative=True``.
    rank : int
        The number of terms, in place of a start: a random one is made.
    tol : float
        Stop when the fit changes by less than this in a sweep.
    max_steps : int
        The most sweeps to make.
    ridge : float or Tensor
        Minimise ‖data - CP‖² + ridge · Σ ‖factor‖² instead of the residual alone. May be differentiated in.
    nonnegative : bool
        Keep all factors ≥ 0, by HALS: one pass over the columns of each factor in a sweep. The start must be ≥ 0.
    seed : int
        Of the random start.
    on_step : callable, optional
        ``on_step(step, state, values)`` is called after each sweep.
    progress : bool
        Whether to show how far it is while it runs; see `unspool.progress`.
    spool : path or us.SpooledRun, optional
        Write the loop as it runs, into a folder or as `unspool.spool` says. A run that is there is gone on with, and
        derivatives go through all its steps.

    Returns
    -------
    CPResult
        The named tuple (state, fit, residual, steps, converged, history). Not to have converged is no error.

    Raises
    ------
    RankError
        With ``ridge=0``, if the terms become linearly dependent. The least-squares problem then has no unique solution,
        and a derivative would be noise. A smaller rank or a ridge help.

    Notes
    -----
    In the loop the residual is taken from what the sweep has anyway, as ‖X‖² - 2 Re⟨X̂, X⟩ + ‖X̂‖². That is right to
    about 1e-16 ‖X‖², so an "error" below about 1e-8 in ``history`` is rounding. The ``residual`` and the ``fit`` of the
    result are taken from X - X̂ itself and have all digits.

    Examples
    --------
    >>> import numpy as np
    >>> import unspool as us
    >>> from unspool.networks.als import cp_als
    >>> X = us.tensor(np.indices((4, 5, 3)).sum(axis=0) + 0.0)       # i + j + k
    >>> found = cp_als(X, rank=1, tol=1e-12)
    >>> found.converged, round(float(found.fit), 6)
    (True, 0.992169)
    >>> gradient = found.residual.grad(X)                            # through every sweep
    >>> bool(us.allclose(gradient, 2 * (X - found.state.full()), atol=1e-4))   # what the envelope theorem says
    True
    """
    data = data_tensor(data)
    state = _starting_point(data, _checks.start_or_rank(start, rank), nonnegative, seed)
    max_steps = _checks.count(max_steps, "max_steps")
    _checks.fraction(ridge, "ridge")
    half = _balanced(data.shape)
    matrix = data.reshape((math.prod(data.shape[:half]), math.prod(data.shape[half:])))
    norm2 = square_norm(data)
    modes = len(state.factors)
    sweep = _sweep_of(modes, half, nonnegative)
    both = [*state.factors, *[_gram(factor.mT) for factor in state.factors]]
    with run_of(spool, max_steps) as run:
        sweeps = Progress(norm2, tol, on_step, run)
        data, matrix, norm2, ridge, both = run.start(
            (data, matrix, norm2, ridge, both), inputs=(data, ridge, state.factors)
        )
        while sweeps.steps < max_steps and not sweeps.converged:
            residual, systems, *both = sweep(matrix, norm2, ridge, *both)
            if not nonnegative:
                _check_systems(systems, sweeps.steps + 1)
            sweeps.note(CP(tuple(both[:modes])), float(residual), (data, matrix, norm2, ridge, both))
    state = CP(tuple(both[:modes]))
    residual = square_norm(data - state.full())
    fit = fit_of(residual, norm2)
    return CPResult(state, fit, residual, sweeps.steps, sweeps.converged, tuple(sweeps.history))


@lru_cache(maxsize=64)
def _sweep_of(modes: int, half: int, nonnegative: bool) -> Any:
    """Return `_sweep` as a fragment. Its tensors come and go side by side, which takes less time than in tuples."""

    @us.fragment
    def sweep(matrix: us.Tensor, norm2: us.Tensor, ridge: Any, *both: us.Tensor) -> tuple[us.Tensor, ...]:
        rows, grams = [factor.mT for factor in both[:modes]], list(both[modes:])
        residual, systems = _sweep(matrix, rows, grams, norm2, ridge, half, nonnegative)
        return residual, us.stack(systems), *[row.mT for row in rows], *grams

    return sweep


def _sweep(
    matrix: us.Tensor,
    rows: list[us.Tensor],
    grams: list[us.Tensor],
    norm2: us.Tensor,
    ridge: Any,
    half: int,
    nonnegative: bool,
) -> tuple[us.Tensor, list[us.Tensor]]:
    """Replace every factor and its Gram matrix once; return the squared residual and the matrices solved with.

    ``matrix`` is the data with the first ``half`` modes along its rows. Factors are given with the rank as their first
    axis: what is done for every term apart then is a stack of plain products, over memory that lies in a row.
    """
    systems: list[us.Tensor] = []
    solver = _hals if nonnegative else _least_squares

    def update(mode: int, moments: us.Tensor) -> us.Tensor:
        """Replace a factor, and return what it makes of the residual."""
        gram = reduce(us.multiply, [other for position, other in enumerate(grams) if position != mode])
        systems.append(gram + ridge * us.eye(gram.shape[0], dtype=gram.dtype))
        rows[mode] = solver(systems[-1], moments, rows[mode])
        grams[mode] = _gram(rows[mode])
        return norm2 + us.sum(us.real(gram * grams[mode])) - 2.0 * us.sum(us.real(us.conj(moments) * rows[mode]))

    def descend(block: us.Tensor, first: int, last: int) -> us.Tensor:
        """Update the modes from first to last; the block has the rank and these modes as its two axes."""
        if last - first == 1:
            return update(first, block)
        middle = (first + last + 1) // 2
        inner = _all_products(rows[middle:last])
        block = block.reshape((block.shape[0], math.prod(row.shape[1] for row in rows[first:middle]), inner.shape[1]))
        descend(us.einsum("rab,rb->ra", block, us.conj(inner)), first, middle)
        outer = _all_products(rows[first:middle])
        return descend(us.einsum("rab,ra->rb", block, us.conj(outer)), middle, last)

    descend(us.einsum("ab,rb->ra", matrix, us.conj(_all_products(rows[half:]))), 0, half)
    residual = descend(us.einsum("ab,ra->rb", matrix, us.conj(_all_products(rows[:half]))), half, len(rows))
    return residual, systems


def _least_squares(system: us.Tensor, moments: us.Tensor, _: us.Tensor) -> us.Tensor:
    """Return the best factor, rank first."""
    return us.linalg.solve(system, moments)


def _hals(system: us.Tensor, moments: us.Tensor, rows: us.Tensor) -> us.Tensor:
    """Return a better factor without negative entries, rank first: minimise over one term after the other.

    A term whose other factors vanish has no influence, and is left as it is.
    """
    for term in range(int(rows.shape[0])):
        weight = system[term, term]
        slope = moments[term] - system[term] @ rows
        better = us.relu(rows[term] + slope / us.where(weight > 0, weight, 1.0))
        rows = rows.at[term].set(better)
    return rows


def _gram(rows: us.Tensor) -> us.Tensor:
    """Return the inner products of a factor's columns; the factor is given rank first."""
    return us.einsum("ra,sa->rs", us.conj(rows), rows)


def _all_products(rows: Sequence[us.Tensor]) -> us.Tensor:
    """Return, for every term, the products of one entry from each factor: (rank, product of the sizes)."""
    return reduce(lambda a, b: us.einsum("ra,rb->rab", a, b).reshape((a.shape[0], a.shape[1] * b.shape[1])), rows)


# --- checks ----------------------------------------------------------------------------------------------------------


def _balanced(shape: Sequence[int]) -> int:
    """Return how many modes to put left, so that the larger side is as small as can be."""
    sides = [max(math.prod(shape[:cut]), math.prod(shape[cut:])) for cut in range(1, len(shape))]
    return len(sides) - sides[::-1].index(min(sides))


def _starting_point(data: us.Tensor, start: Any, nonnegative: bool, seed: int) -> CP:
    """Return the factors to start from, checked."""
    if nonnegative and data.dtype.kind == "c":
        raise ArgumentError("nonnegative=True needs real data, but they are complex")
    if not isinstance(start, (CP, Sequence)):
        rank = _checks.count(start, "start, if it is a rank,")
        return random_cp([int(size) for size in data.shape], rank, seed=seed, nonnegative=nonnegative, dtype=data.dtype)
    factors = start.factors if isinstance(start, CP) else start
    state = CP(tuple(_checks.finite_tensor(f, f"start[{mode}]", ndim=2) for mode, f in enumerate(factors)))
    if state.shape != data.shape:
        raise ShapeError(f"the start stands for a tensor of shape {state.shape}, but the data have shape {data.shape}")
    if state.rank < 1:
        raise ArgumentError("the start must have one term or more, but its rank is 0")
    same_kind(state.factors, data, "start")
    for mode, factor in enumerate(state.factors if nonnegative else ()):
        if (smallest := float(us.min(factor))) < 0:
            raise ArgumentError(f"with nonnegative=True the start must be ≥ 0, but start[{mode}] has {smallest:.3g}")
    return state


def _check_systems(systems: us.Tensor, step: int) -> None:
    """Raise if a least-squares problem of a sweep had no unique solution, as far as rounding can tell.

    The matrices are scaled to a diagonal of ones first, so that terms of different size do not count as dependent.
    """
    advice = "the factors are not determined; take a smaller rank or a ridge > 0"
    try:
        matrices = np.asarray(systems)
    except RankError as error:
        raise RankError(f"in sweep {step} of cp_als, the terms are linearly dependent: {advice}") from error
    limit = _DEPENDENT * float(np.finfo(matrices.dtype).eps)
    if _are_clearly_independent(matrices, limit):
        return
    scale = np.sqrt(np.abs(np.diagonal(matrices, axis1=-2, axis2=-1)))
    scale = np.where(scale > 0, scale, 1.0)
    smallest = np.linalg.eigvalsh(matrices / scale[:, :, None] / scale[:, None, :])[:, 0]
    mode = int(np.argmin(smallest))
    if smallest[mode] < limit:
        raise RankError(
            f"in sweep {step} of cp_als, the terms without mode {mode} are linearly dependent (the smallest eigenvalue "
            f"of their correlations is {smallest[mode]:.1e}): {advice}"
        )


def _are_clearly_independent(matrices: Any, limit: float) -> bool:
    """Whether determinants alone tell that no eigenvalue is below a limit, once the diagonals are scaled to ones.

    The eigenvalues then have the mean 1, so the product of all but the smallest is less than e. Determinants take a
    fraction of the time of eigenvalues, and are seldom that small.
    """
    with np.errstate(over="ignore", under="ignore"):
        determinants = np.linalg.det(matrices).real.tolist()
    # Numbers of Python: there are few, and an operation on so small an array takes longer than all of theirs.
    diagonals = np.diagonal(matrices, axis1=-2, axis2=-1).real.tolist()
    return all(
        determinant > math.e * limit * math.prod(diagonal)
        for determinant, diagonal in zip(determinants, diagonals, strict=True)
    )
