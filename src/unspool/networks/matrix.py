"""Matrix iterations whose limit has a closed form for its derivative: polar factor, sign, dominant eigenvectors.

Newton–Schulz squares the distance to the limit with products of matrices only,

    X ← X (3 − XᴴX)/2    to the unitary U of A = U H,        X ← X (3 − X²)/2    to sign(A) = A (A²)^(−½),

from anywhere inside a spectral norm of √3. Power and subspace iteration multiply by A and normalise; the error falls by
the ratio of neighbouring eigenvalues in each step.

The one idea: these are loops with an answer. At the limit the derivative through all steps equals that of an implicit
rule, a Sylvester equation for polar factor and sign, a linear system for an eigenpair, so each judges the other. A
positive factor of A changes neither U nor sign(A). The scale of the start is therefore a number, no part of the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

import unspool as us
from unspool.errors import ArgumentError, ConvergenceError, RankError, ShapeError
from unspool.networks import _checks
from unspool.networks._progress import shows_progress
from unspool.networks._results import printed_as_table
from unspool.networks._spooling import Spool, run_of

__all__ = [
    "PolarResult",
    "PowerResult",
    "SignResult",
    "SubspaceResult",
    "newton_schulz_polar",
    "newton_schulz_sign",
    "power_iteration",
    "subspace_iteration",
]

OnStep: TypeAlias = Callable[[int, us.Tensor, dict[str, float]], object]
History: TypeAlias = tuple[dict[str, float], ...]


@printed_as_table
class PolarResult(NamedTuple):
    """The result of `newton_schulz_polar`.

    The ``state`` is the factor U of A = U H, with orthonormal columns, and ``positive`` is H = UᴴA; for a wide matrix U
    has orthonormal rows and A = H U. The ``history`` has for each step ``change``, the norm of the change, and
    ``defect``, how far XᴴX was from one before it.
    """

    state: us.Tensor
    positive: us.Tensor
    steps: int
    converged: bool
    history: History


@printed_as_table
class SignResult(NamedTuple):
    """The result of `newton_schulz_sign`; ``state`` is the sign, the rest is as in `PolarResult`."""

    state: us.Tensor
    steps: int
    converged: bool
    history: History


@printed_as_table
class PowerResult(NamedTuple):
    """The result of `power_iteration`.

    The ``state`` is the normalised vector and ``value`` its Rayleigh quotient vᴴAv. The ``history`` has for each step
    ``change``, the distance of old and new vector up to a phase, and ``norm``, that of A v.
    """

    state: us.Tensor
    value: us.Tensor
    steps: int
    converged: bool
    history: History


@printed_as_table
class SubspaceResult(NamedTuple):
    """The result of `subspace_iteration`.

    The ``state`` has orthonormal columns Q that span the space: losses of the projector Q Qᴴ have a meaning, single
    entries do not. The ``values`` are the eigenvalues of QᴴAQ, in ascending order. The ``history`` has for each step
    ``change``, the sine of the largest angle between old and new space.
    """

    state: us.Tensor
    values: us.Tensor
    steps: int
    converged: bool
    history: History


# --- Newton–Schulz ---------------------------------------------------------------------------------------------------


@shows_progress("steps")
def newton_schulz_polar(
    matrix: Any,
    *,
    scale: float | None = None,
    tol: float = 1e-12,
    max_steps: int = 100,
    on_step: OnStep | None = None,
    progress: bool = False,
    spool: Spool | None = None,
) -> PolarResult:
    """Find the polar factor of a matrix by products of matrices only.

    Parameters
    ----------
    matrix : array_like, m by n
        Real or complex, of full rank.
    scale : float, optional
        What to divide the start by: more than 1/√3 of the spectral norm, best the norm itself. By default an estimate.
    tol : float
        Stop when the Frobenius norm of a change is at most this, or what rounding makes of it.
    max_steps : int
        Stop then in any case; see ``converged``. A singular value s, relative to the largest, takes about
        log(1/s)/log(1.5) steps.
    on_step : callable, optional
        ``on_step(step, X, values)`` after each step; values are those of ``history``.
    progress : bool
        Whether to show how far it is while it runs; see `unspool.progress`.
    spool : path or us.SpooledRun, optional
        Write the loop as it runs, into a folder or as `unspool.spool` says. A run that is there is gone on with, and
        derivatives go through all its steps.

    Raises
    ------
    RankError
        If the matrix has not full rank: U is then not unique.

    Examples
    --------
    >>> import numpy as np
    >>> import unspool as us
    >>> A = us.tensor([[1.0, -2.0], [3.0, 4.0]])
    >>> U = us.networks.newton_schulz_polar(A).state             # a rotation by atan2(c - b, a + d)
    >>> np.allclose(U.eval(), np.array([[1, -1], [1, 1]]) / np.sqrt(2), atol=1e-14)
    True
    """
    A = _matrix(matrix)
    tall = A.eval().shape[0] >= A.eval().shape[1]
    take_step = _tall_step if tall else _wide_step
    X, history, converged = _newton_schulz(A, take_step, scale, tol, max_steps, on_step, "singular value", spool)
    return PolarResult(X, X.H @ A if tall else A @ X.H, len(history), converged, history)


@shows_progress("steps")
def newton_schulz_sign(
    matrix: Any,
    *,
    scale: float | None = None,
    tol: float = 1e-12,
    max_steps: int = 100,
    on_step: OnStep | None = None,
    progress: bool = False,
    spool: Spool | None = None,
) -> SignResult:
    """Find the sign of a matrix: the same eigenvectors, with +1 and −1 for eigenvalues right and left of 0.

    Parameters
    ----------
    matrix : array_like, n by n
        Real or complex. Convergence is certain for Hermitian matrices, and where the scaled start has |1 − X²| < 1.
    scale, tol, max_steps, on_step, progress, spool
        As for `newton_schulz_polar`.

    Raises
    ------
    RankError
        If an eigenvalue is 0: it has no sign.
    ConvergenceError
        If the iteration diverges, as it may for eigenvalues near the imaginary axis.

    Examples
    --------
    >>> import unspool as us
    >>> us.networks.newton_schulz_sign([[5.0, 0.0], [0.0, -3.0]]).state.eval().round(12)
    array([[ 1.,  0.],
           [ 0., -1.]])
    """
    A = _matrix(matrix, square=True)
    X, history, converged = _newton_schulz(A, _sign_step, scale, tol, max_steps, on_step, "eigenvalue", spool)
    return SignResult(X, len(history), converged, history)


@us.fragment
def _tall_step(X: us.Tensor) -> tuple[us.Tensor, us.Tensor]:
    square = us.einsum("ki,kj->ij", us.conj(X), X)
    return 1.5 * X - 0.5 * (X @ square), square


@us.fragment
def _wide_step(X: us.Tensor) -> tuple[us.Tensor, us.Tensor]:
    square = us.einsum("ik,jk->ij", X, us.conj(X))
    return 1.5 * X - 0.5 * (square @ X), square


@us.fragment
def _sign_step(X: us.Tensor) -> tuple[us.Tensor, us.Tensor]:
    square = X @ X
    return 1.5 * X - 0.5 * (X @ square), square


def _newton_schulz(
    A: us.Tensor,
    take_step: Callable[[us.Tensor], tuple[us.Tensor, us.Tensor]],
    scale: float | None,
    tol: float,
    max_steps: int,
    on_step: OnStep | None,
    of_what: str,
    spool: Spool | None,
) -> tuple[us.Tensor, History, bool]:
    """Iterate until nothing moves; ``of_what`` is what is driven to one, for messages."""
    tol, max_steps = _checks.fraction(tol, "tol"), _checks.count(max_steps, "max_steps")
    norm = _norm_estimate(A.eval())
    if not norm > 0:
        raise RankError("matrix must have full rank, but is zero")
    if scale is not None and not norm < 3**0.5 * scale < np.inf:
        raise ArgumentError(f"scale must be finite and more than {norm / 3**0.5:.6g}, 1/√3 of the norm, but is {scale}")
    X = A / (norm if scale is None else scale)
    one, epsilon = np.eye(min(A.eval().shape)), float(np.finfo(A.dtype).eps)
    tol = max(tol, 16 * epsilon * len(one) ** 0.5)
    converged = False
    with run_of(spool, max_steps) as run:
        X, converged = run.start((X, converged), inputs=A)
        while len(run.history) < max_steps and not converged:
            step, before = len(run.history) + 1, X.eval()
            X, square = take_step(X)
            now, before_squared = X.eval(), square.eval()
            change, defect = float(np.linalg.norm(now - before)), float(np.linalg.norm(before_squared - one))
            if not defect < 1e8:
                error = ConvergenceError(f"Newton–Schulz diverges: after {step} steps X² is {defect:.3g} away from one")
                error.residual, error.iterations, error.tolerance = defect, step, tol
                raise error
            converged = defect < 0.5 and change <= tol
            run.checkpoint((X, converged), {"change": change, "defect": defect})
            if on_step is not None:
                on_step(step, X, run.history[-1])
            # So much does a value of 1024 ε, at first, change by now.
            if not defect < 0.5 and change <= 0.5 * 1.5**step * 1024 * epsilon:
                rank = round(float(np.trace(before_squared).real))
                raise RankError(f"matrix must have full rank, but only {rank} of {len(one)} {of_what}s differ from 0")
    return X, tuple(run.history), converged


def _norm_estimate(values: Any) -> float:
    """Return the spectral norm to a few per cent, from below. Within a factor √3 of it the iteration converges."""
    largest, vector = np.max(np.abs(values)), np.random.default_rng(0).standard_normal(values.shape[1])
    if not largest > 0:
        return 0.0
    values = values / largest
    for _ in range(12):
        image = values @ (vector / np.linalg.norm(vector))
        vector = values.conj().T @ image
    return float(largest * np.linalg.norm(image))


# --- power and subspace iteration ------------------------------------------------------------------------------------


@shows_progress("steps")
def power_iteration(
    matrix: Any,
    start: Any = None,
    *,
    tol: float = 1e-10,
    max_steps: int = 10_000,
    on_step: OnStep | None = None,
    progress: bool = False,
    spool: Spool | None = None,
) -> PowerResult:
    """Find the eigenvector whose eigenvalue is largest in modulus.

    Parameters
    ----------
    matrix : array_like, n by n
        Real or complex. It need not be Hermitian, but the largest modulus must belong to one eigenvalue.
    start : array_like, n, optional
        Where to begin; by default a vector of normal random numbers that is always the same.
    tol : float
        Stop when the vector moves by less than this, up to a phase.
    max_steps : int
        Stop then in any case; see ``converged``.
    on_step : callable, optional
        ``on_step(step, v, values)`` after each step; values are those of ``history``.
    progress : bool
        Whether to show how far it is while it runs; see `unspool.progress`.
    spool : path or us.SpooledRun, optional
        Write the loop as it runs, into a folder or as `unspool.spool` says. A run that is there is gone on with, and
        derivatives go through all its steps.

    Examples
    --------
    >>> import unspool as us
    >>> A = us.tensor([[2.0, 1.0], [1.0, 3.0]])
    >>> found = us.networks.power_iteration(A)
    >>> round(float(found.value), 10)                            # (5 + √5) / 2
    3.6180339887
    >>> found.value.grad(A).eval().round(6)                      # the projector on the eigenvector
    array([[0.276393, 0.447214],
           [0.447214, 0.723607]])
    """
    A = _matrix(matrix, square=True)
    tol, max_steps = _checks.fraction(tol, "tol"), _checks.count(max_steps, "max_steps")
    v, converged = _start(start, A, ()), False
    with run_of(spool, max_steps) as run:
        A, v, converged = run.start((A, v, converged), inputs=(A, v))
        before = v.eval()
        while len(run.history) < max_steps and not converged:
            step = len(run.history) + 1
            v, norm = _power_step(A, v)
            now, length = v.eval(), float(norm)
            if not length > 0:
                raise ArgumentError(
                    f"matrix maps the vector of step {step} to zero: there is no largest eigenvalue to find"
                )
            values = {"change": _distance(now, before), "norm": length}
            before, converged = now, values["change"] <= tol
            run.checkpoint((A, v, converged), values)
            if on_step is not None:
                on_step(step, v, values)
    return PowerResult(v, us.vdot(v, A @ v), len(run.history), converged, tuple(run.history))


@shows_progress("steps")
def subspace_iteration(
    matrix: Any,
    rank: int,
    start: Any = None,
    *,
    tol: float = 1e-10,
    max_steps: int = 10_000,
    on_step: OnStep | None = None,
    progress: bool = False,
    spool: Spool | None = None,
) -> SubspaceResult:
    """Find the space of the eigenvectors whose eigenvalues are largest in modulus.

    Parameters
    ----------
    matrix : array_like, n by n
        Hermitian.
    rank : int
        How many eigenvectors. Eigenvalues inside the space may be equal; the next one has to be smaller.
    start : array_like, n by rank, optional
    tol : float
        Stop when the space turns by an angle of less than this.
    max_steps, on_step, progress, spool
        These, and the default of ``start``, are as for `power_iteration`; the state is Q.

    Examples
    --------
    >>> import numpy as np
    >>> import unspool as us
    >>> A = us.tensor(np.diag([4.0, 1.0, 4.0, 2.0]))
    >>> found = us.networks.subspace_iteration(A, 2)
    >>> (found.state @ found.state.H).eval().diagonal().round(12)
    array([1., 0., 1., 0.])
    """
    A = _matrix(matrix, square=True)
    values = A.eval()
    if np.max(np.abs(values - values.conj().T)) > 1e3 * np.finfo(values.dtype).eps * np.max(np.abs(values)):
        raise ArgumentError("matrix must be Hermitian, but differs from its conjugate transpose")
    if _checks.count(rank, "rank") > len(values):
        raise ArgumentError(f"rank must be at most {len(values)}, the size of the matrix, but is {rank}")
    tol, max_steps = _checks.fraction(tol, "tol"), _checks.count(max_steps, "max_steps")
    Q, converged = us.linalg.qr(_start(start, A, (rank,)), positive=True).Q, False
    with run_of(spool, max_steps) as run:
        A, Q, converged = run.start((A, Q, converged), inputs=(A, Q))
        before = Q.eval()
        while len(run.history) < max_steps and not converged:
            Q = us.linalg.qr(A @ Q, positive=True).Q
            now = Q.eval()
            change = float(np.linalg.norm(now - before @ (before.conj().T @ now), 2))
            before, converged = now, change <= tol
            run.checkpoint((A, Q, converged), {"change": change})
            if on_step is not None:
                on_step(len(run.history), Q, run.history[-1])
    return SubspaceResult(Q, us.linalg.eigvalsh(Q.H @ A @ Q), len(run.history), converged, tuple(run.history))


@us.fragment
def _power_step(A: us.Tensor, v: us.Tensor) -> tuple[us.Tensor, us.Tensor]:
    y = A @ v
    norm = us.linalg.norm(y)
    return y / norm, norm


def _distance(now: Any, before: Any) -> float:
    """Return how far two unit vectors are apart, once the phase of one is turned to that of the other."""
    overlap = np.vdot(before, now)
    apart = now - (overlap / abs(overlap) if overlap else 1.0) * before
    return float(np.sqrt(np.vdot(apart, apart).real))


# --- arguments -------------------------------------------------------------------------------------------------------


def _matrix(matrix: Any, *, square: bool = False) -> us.Tensor:
    """Return a matrix with entries, floating-point or complex, and square if it has to be."""
    A = _checks.finite_tensor(matrix, "matrix", ndim=2)
    if 0 in A.shape or (square and A.shape[0] != A.shape[1]):
        raise ShapeError(f"matrix must {'be square and ' if square else ''}have entries, but has shape {A.shape}")
    return A if A.dtype.kind in "fc" else A.astype(np.float64)


def _start(start: Any, A: us.Tensor, columns: tuple[int, ...]) -> us.Tensor:
    shape = (A.shape[0], *columns)
    if start is None:
        return us.asarray(np.random.default_rng(0).standard_normal(shape).astype(A.dtype))
    given = _checks.finite_tensor(start, "start")
    if given.shape != shape:
        raise ShapeError(f"start must have shape {shape}, but has {given.shape}")
    return given
