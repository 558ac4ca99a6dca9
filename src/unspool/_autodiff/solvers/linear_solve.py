"""The solution of A·x = b for a traced operator, as one node that is differentiated by solving again.

With A a function of parameters p,

    x' = A⁻¹·(b' - A'·x),      b̄ = w,  p̄ = the pullback of p ↦ -A(p)·x along w,  where w = A⁻ᴴ·x̄.

The rules place nodes of the same op, with the same operator or its adjoint, so derivatives of any order follow, and
none of them looks at the iterations that the solver made.

Solvers stop by a residual that they carry along. Here the true residual is computed at the end; a solver whose
own one had drifted away from it starts again from where it is, and so does GMRES whenever its vectors are used up. One
that cannot reach its tolerance, or would not at the pace it has, raises. So does a solution whose last bits already
move A·x by more than half of the digits: a singular operator lets it grow until b is less than its rounding, and then
the residual is zero or of order one by chance.

A right-hand side may come with the size of the noise in it. If the tolerance is out of reach, the solver stops as soon
as the residual is no larger than that: to go on would solve for the noise, which an operator that is nearly singular
multiplies by any number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unspool import _graph
from unspool._autodiff.operators import Applied, Traced, adjoint_of, pull_traced, push_traced, trace
from unspool._autodiff.solvers.conjugate_gradients import conjugate_gradients
from unspool._dtypes import DType
from unspool._engine.quiet import run_quietly
from unspool._fragments.fragment import Fragment
from unspool._graph import Node
from unspool._ops import elementwise
from unspool._ops.batching import one_by_one
from unspool._ops.linalg.gauge import refusal
from unspool._ops.op import INPUTS, OUTPUT, STRUCTURE, JointRule, Op
from unspool.errors import ArgumentError, ConvergenceError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

METHODS = ("cg", "gmres", "bicgstab")

# Vectors that GMRES keeps before it starts again.
RESTART = 50


class Guard(NamedTuple):
    """What a singular operator means, where it means more than a failure: which error is raised for it.

    ``degeneracy`` says what is singular: a solution that is larger than the right-hand side by more than 1/degeneracy
    divided by the size of the operator. ``sizes`` are the places of numbers among the operator's parameters whose
    moduli add up to that size.
    """

    degeneracy: float
    sizes: tuple[int, ...]
    message: str
    indices: tuple[int, ...]


class Equation(NamedTuple):
    """The static part of a solve: a parameter of its node.

    The inputs of the node are the right-hand side, the guess and the size of the noise if there are such, the
    parameters of the operator and those of the preconditioner.
    """

    operator: Fragment
    method: str
    tol: float
    atol: float = 0.0
    maxiter: int | None = None
    restart: int = RESTART
    preconditioner: Fragment | None = None
    has_guess: bool = False
    has_noise: bool = False
    is_checked: bool = False
    guard: Guard | None = None

    @property
    def first(self) -> int:
        """The position of the first parameter of the operator."""
        return 1 + self.has_guess + self.has_noise

    def split(self, inputs: Any) -> tuple[Any, Any, Any, Any]:
        """Return right-hand side, guess, parameters of the operator and of the preconditioner."""
        last = self.first + len(self.operator.dtypes) - 1
        return inputs[0], inputs[1] if self.has_guess else None, inputs[self.first : last], inputs[last:]

    def passes(self) -> list[bool]:
        """Return for each input whether the solution depends on it."""
        extra = 0 if self.preconditioner is None else len(self.preconditioner.dtypes) - 1
        return [True, *[False] * (self.first - 1), *[True] * (len(self.operator.dtypes) - 1), *[False] * extra]


# --- making the node -------------------------------------------------------------------------------------------------


def solve_operator(
    operator: Callable[[Tensor], Tensor],
    b: Tensor,
    *,
    method: str = "gmres",
    tol: float = 1e-10,
    maxiter: int | None = None,
    x0: Tensor | None = None,
    noise: Tensor | None = None,
) -> Tensor:
    """Solve ``operator(x) = b``; differentiable with respect to ``b`` and everything that the operator closes over.

    Parameters
    ----------
    operator : callable
        A linear function of a tensor of the shape and dtype of ``b``.
    b : Tensor
        The right-hand side.
    method : {"gmres", "bicgstab", "cg"}
        The solver: SciPy's, but for conjugate gradients.
    tol : float
        The residual at which it stops, relative to ``b``.
    maxiter : int, optional
        The most iterations; for GMRES, the most restarts.
    x0 : Tensor, optional
        Where to start. The solution does not depend on it.
    noise : Tensor, optional
        A residual of this norm will do if the tolerance is out of reach: ``b`` is not known any better.
    """
    if method not in METHODS:
        raise ArgumentError(f"method is one of {', '.join(map(repr, METHODS))}, got {method!r}")
    traced = trace(operator, b.shape, b.dtype, "the operator")
    equation = Equation(traced.fragment, method, tol, maxiter=maxiter)
    return place(equation, b, traced, x0, noise=noise)


def place(
    equation: Equation,
    b: Tensor,
    traced: Traced,
    x0: Any = None,
    preconditioner: Traced | None = None,
    noise: Tensor | None = None,
) -> Tensor:
    """Return the node of an equation."""
    inputs = [b]
    if x0 is not None:
        inputs.append(x0)
        equation = equation._replace(has_guess=True)
    if noise is not None:
        inputs.append(noise)
        equation = equation._replace(has_noise=True)
    inputs += traced.parameters
    if preconditioner is not None:
        inputs += preconditioner.parameters
        equation = equation._replace(preconditioner=preconditioner.fragment)
    return _graph.apply(LINEAR_SOLVE, *inputs, equation=equation)


def default_tolerance(dtype: DType) -> float:
    """Return the relative residual that solvers stop at if nobody says otherwise."""
    return 1e-10 if np.finfo(dtype).eps < 1e-10 else 1e-5


# --- rules -----------------------------------------------------------------------------------------------------------


def _infer(b: Node, *others: Node, equation: Equation) -> tuple[Any, Any]:
    return b.shape, b.dtype


def _solve_again(equation: Equation, b: Tensor, parameters: Any, extra: Any) -> Tensor:
    """Solve with the same operator and another right-hand side."""
    again = equation._replace(has_guess=False, has_noise=False, is_checked=False, atol=0.0)
    return _graph.apply(LINEAR_SOLVE, b, *parameters, *extra, equation=again)


def _vjp(needed: Any, ct: Tensor, x: Tensor, *inputs: Tensor, equation: Equation) -> list[Tensor | None]:
    b, _, parameters, extra = equation.split(inputs)
    adjoint = equation._replace(operator=adjoint_of(equation.operator, (b, *parameters), x))
    if equation.preconditioner is not None:
        adjoint = adjoint._replace(preconditioner=adjoint_of(equation.preconditioner, (b, *extra), x))
    w = _solve_again(adjoint, ct, parameters, extra)
    first = equation.first
    wanted = [False, *needed[first : first + len(parameters)]]
    pulled: list[Tensor | None] = [None] * len(parameters)
    if any(wanted):
        pulled = pull_traced(equation.operator, (x, *parameters), elementwise.negative(w), wanted)[1:]
    return [w, *[None] * (first - 1), *pulled, *[None] * len(extra)]


def _jvp(tangents: Any, x: Tensor, *inputs: Tensor, equation: Equation) -> Tensor | None:
    right, _, moving, _ = equation.split(tangents)
    _, _, parameters, extra = equation.split(inputs)
    if any(t is not None for t in moving):
        moved = push_traced(equation.operator, (x, *parameters), (None, *moving))
        if moved is not None:
            right = elementwise.negative(moved) if right is None else elementwise.subtract(right, moved)
    return None if right is None else _solve_again(equation, right, parameters, extra)


# --- the kernel ------------------------------------------------------------------------------------------------------

# A residual may be larger than the tolerance by this much: solvers look at one that they have carried along.
_SLACK = 2.0

# Iterations that every solver may make, however few unknowns there are.
_FEWEST = 1000

# How often a solver starts from where it is, because its own residual was not the true one. For GMRES, which starts
# again anyway, it is the number of restarts.
_MOST_STARTS = 4

# How many times faster than it is a solver may have to become to reach its tolerance in the starts that are left.
_HOPE = 2


def _kernel(b: Any, *inputs: Any, equation: Equation) -> Any:
    return run_quietly(_solve, equation, b, inputs)


def _solve(equation: Equation, b: Any, inputs: Any) -> Any:
    _, guess, parameters, extra = equation.split((b, *inputs))
    apply = Applied(equation.operator, b.shape, b.dtype, parameters)
    # To solve for a unit vector keeps squares of small numbers from vanishing, here and in the solver.
    scale = float(np.max(np.abs(b), initial=0.0))
    if scale == 0.0:
        return np.zeros_like(b)
    if not math.isfinite(scale):
        raise _failure(equation, "the right-hand side is not finite", math.nan, 0)
    unit = np.reshape(b, -1) / scale
    norm = float(np.linalg.norm(unit))
    unit, scale = unit / norm, scale * norm
    if equation.is_checked:
        ensure_hermitian(apply)
    precondition = None
    if equation.preconditioner is not None:
        precondition = Applied(equation.preconditioner, b.shape, b.dtype, extra)
    start = None if guess is None else np.reshape(guess, -1) / scale
    tol = max(equation.tol, equation.atol / scale)
    noise = _relative_noise(equation, inputs, scale)
    x = _iterate(equation, apply, precondition, unit, start, tol, noise)
    return (x * scale).reshape(b.shape).astype(b.dtype, copy=False)


def _relative_noise(equation: Equation, inputs: Any, scale: float) -> float:
    """Return how much of the right-hand side is noise; 0 if nobody knows."""
    noise = float(inputs[equation.has_guess]) / scale if equation.has_noise else 0.0
    return noise if math.isfinite(noise) else 0.0


def _iterate(
    equation: Equation, apply: Applied, precondition: Applied | None, b: Any, start: Any, tol: float, noise: float
) -> Any:
    """Solve for a unit vector; to within the noise in it if the tolerance is out of reach."""
    solver = _solver(equation, apply, precondition)
    watch = None if equation.guard is None else _Watch(equation.guard, apply)
    x, residual = _run(equation, solver, apply, b, start, tol, watch)
    if residual <= _SLACK * tol:
        return _confirmed(equation, apply, x, residual, tol)
    if noise >= 1.0:
        return np.zeros_like(b)
    if noise > tol:
        # From the start again: what came of trying for more may consist of amplified noise.
        x, reached = _run(equation, solver, apply, b, start, noise, watch)
        if reached <= _SLACK * noise:
            return _confirmed(equation, apply, x, reached, noise)
    kind = "not positive definite, not linear" if equation.method == "cg" else "not linear"
    reason = f"the operator may be {kind}, singular or nearly so, maxiter too small, or the tolerance below rounding"
    raise _failure(equation, reason, residual, apply.count, tol)


def _confirmed(equation: Equation, apply: Applied, x: Any, residual: float, tol: float) -> Any:
    """Return a solution for a unit vector; raise if its residual is small by chance, as its rounding alone is larger.

    An equation with a guard has said itself which solutions are too large.
    """
    if equation.guard is not None:
        return x
    epsilon = float(np.finfo(x.dtype).eps)
    bits = probes(apply.size, apply.dtype)[0] * (epsilon * math.sqrt(apply.size))
    moved = float(np.linalg.norm(apply(x * bits)))
    if moved <= max(math.sqrt(epsilon), tol):
        return x
    reason = (
        "the operator is singular or nearly so, and the right-hand side is not in its range: the last bits of the "
        f"solution, which has the norm {float(np.linalg.norm(x)):.2e}, move what the operator makes of it by "
        f"{moved:.2e} of the right-hand side"
    )
    raise _failure(equation, reason, max(residual, moved), apply.count, tol)


def _run(
    equation: Equation, solver: Callable[..., tuple[Any, int]], apply: Applied, b: Any, x: Any, tol: float, watch: Any
) -> tuple[Any, float]:
    """Let a solver start again from where it is, as long as it gets on; return where it ends, and the residual."""
    restarts = equation.method == "gmres"
    last = math.inf
    for left in reversed(range(_most_restarts(equation, apply.size) if restarts else _MOST_STARTS)):
        x, info = solver(b, x, tol, watch)
        residual = float(np.linalg.norm(b - apply(x)))
        pace = min(residual / last, 1.0)
        if residual <= _SLACK * tol or (info > 0 and not restarts) or not residual * pace ** (_HOPE * left) <= tol:
            break
        last = residual
    return x, residual


def _most_restarts(equation: Equation, size: int) -> int:
    return equation.maxiter or max(1, max(_FEWEST, 10 * size) // min(equation.restart, size))


def _solver(equation: Equation, apply: Applied, precondition: Applied | None) -> Callable[..., tuple[Any, int]]:
    """Return a solver as a function of right-hand side, start, tolerance and callback."""
    maxiter = equation.maxiter or max(_FEWEST, 10 * apply.size)
    if equation.method == "cg":
        return lambda b, x, tol, watch: conjugate_gradients(
            apply, b, x, rtol=tol, maxiter=maxiter, precondition=precondition, callback=watch
        )
    from scipy.sparse import linalg

    shape = (apply.size, apply.size)
    A = linalg.LinearOperator(shape, matvec=apply, dtype=apply.dtype)
    options: dict[str, Any] = {"maxiter": maxiter, "atol": 0.0}
    if precondition is not None:
        options["M"] = linalg.LinearOperator(shape, matvec=precondition, dtype=apply.dtype)
    if equation.method == "gmres":
        options.update(restart=min(equation.restart, apply.size), maxiter=1)
    run = getattr(linalg, equation.method)
    return lambda b, x, tol, watch: run(A, b, None if x is None else x.copy(), rtol=tol, **options)


def _failure(
    equation: Equation, reason: str, residual: float, count: int, tolerance: float | None = None
) -> ConvergenceError:
    tolerance = equation.tol if tolerance is None else tolerance
    error = ConvergenceError(
        f"{equation.method} did not converge: {reason}. The residual is {residual:.2e} of the right-hand side after "
        f"{count} applications of the operator, the tolerance is {tolerance:.2e}"
    )
    error.residual, error.iterations, error.tolerance = residual, count, tolerance
    return error


# --- checks ----------------------------------------------------------------------------------------------------------

# How far ⟨u, A·v⟩ and ⟨A·u, v⟩ may be apart, relative to the sizes of the vectors in them: far above rounding, so that
# only an operator that was never meant to be Hermitian is refused.
_ASYMMETRY = 1e-4


def probes(size: int, dtype: DType) -> tuple[Any, Any]:
    """Return two unit vectors that have nothing to do with any operator, the same ones every time."""
    # A loop asks for the same ones in every step. Longer ones take less time than an operator applied to them.
    return (_kept_probes if size <= _MOST_KEPT else _drawn_probes)(size, dtype)


def _drawn_probes(size: int, dtype: DType) -> tuple[Any, Any]:
    draw = np.random.default_rng(0).standard_normal
    found = [draw(size) + 1j * draw(size) if dtype.kind == "c" else draw(size) for _ in range(2)]
    u, v = ((x / np.linalg.norm(x)).astype(dtype) for x in found)
    for vector in (u, v):
        vector.flags.writeable = False
    return u, v


# The longest vectors that are kept. All of them together take at most 8 MB.
_MOST_KEPT = 4096
_kept_probes = lru_cache(maxsize=64)(_drawn_probes)


def ensure_hermitian(apply: Applied) -> float:
    """Raise if a pair of vectors shows that an operator is not Hermitian; return its size, as seen on the pair."""
    u, v = probes(apply.size, apply.dtype)
    left, right = apply(u), apply(v)
    size = float(max(np.linalg.norm(left), np.linalg.norm(right)))
    if not math.isfinite(size):
        raise ConvergenceError("the operator maps a vector of finite numbers to one with infinities or NaN")
    apart = float(abs(np.vdot(u, right) - np.vdot(left, v)))
    if apart > _ASYMMETRY * size:
        raise ArgumentError(
            f"the operator is not Hermitian: on a random pair of unit vectors <u, A v> and <A u, v> differ by "
            f"{apart:.2e}, where A u and A v have norms up to {size:.2e}"
        )
    return size


class _Watch:
    """Looks at a solution while it grows, and raises when it shows that the operator is singular."""

    def __init__(self, guard: Guard, apply: Applied) -> None:
        self._guard = guard
        size = sum(abs(float(apply.parameters[place])) for place in guard.sizes)
        self._limit = 1.0 / (guard.degeneracy * size)

    def __call__(self, x: Any) -> None:
        norm = float(np.linalg.norm(x))
        if not norm <= self._limit:
            raise refusal(self._guard.message, self._guard.indices, self._limit / norm)


LINEAR_SOLVE = Op(
    "linear_solve",
    infer=_infer,
    kernel=_kernel,
    vjp=JointRule(_vjp, lambda params: params["equation"].passes()),
    jvp=_jvp,
    params={"equation": STRUCTURE},
    needs=(INPUTS, OUTPUT),
    batch=one_by_one,
)
