"""The derivative of a fixed point, from the fixed point alone.

If x = f(x, p) then, by the implicit function theorem, the derivative of x with respect to p is

    x' = (I - J)⁻¹ · K      with J = ∂f/∂x and K = ∂f/∂p at the fixed point,

whatever way led there. So nothing of the way is kept: neither time nor memory of a derivative depends on the number of
steps. A fixed point is one node, made from the tensors that f closes over; its derivative rules are a linear solve with
I - J, which is traced, never formed, and one application of K, or of their adjoints.

The rules place f on the node itself. What they build depends on the fixed point, whose derivative is implicit again, so
derivatives of any order follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._autodiff.loops.application import Application, with_tangents
from unspool._autodiff.loops.iterate import Adjoint, Run, TracedStep
from unspool._autodiff.loops.loop import apply_fragment
from unspool._autodiff.solvers.anderson import distances, not_fixed, repeat
from unspool._autodiff.solvers.linear_solve import solve_operator
from unspool._autodiff.solvers.packing import Packing
from unspool._autodiff.sweeps.forward import pushforward
from unspool._autodiff.sweeps.reverse import pullback
from unspool._autodiff.sweeps.walk import active_nodes
from unspool._dtypes import INEXACT
from unspool._engine.default import default_engine
from unspool._engine.quiet import run_quietly
from unspool._fragments.fragment import capture
from unspool._ops.batching import rule_above
from unspool._ops.cancellation import noise_of
from unspool._ops.elementwise import subtract
from unspool._ops.identity import STOP_GRADIENT
from unspool._ops.leaf import constant, placeholder
from unspool._ops.op import INPUTS, OUTPUT, STRUCTURE, JointRule, Op
from unspool.errors import ArgumentError

if TYPE_CHECKING:
    from unspool._graph import Node
    from unspool._tensor import Tensor

SOLVERS = ("gmres", "bicgstab")


@dataclass(frozen=True)
class Implicit(Adjoint):
    """Differentiate an iteration at the fixed point it has reached, without looking at its steps.

    Pass it as ``adjoint`` to `iterate` or `fixed_point`. The step must map the final state to itself; the derivative
    with respect to what the step closes over follows from that alone (implicit function theorem). It takes one linear
    solve, and memory that does not depend on the number of steps.

    No derivative flows to the initial state: which fixed point is found may depend on it, where the fixed point lies
    does not. Integer and boolean leaves of the state, such as a counter, need not be fixed.

    Parameters
    ----------
    solver : {"gmres", "bicgstab"}
        How the linear system is solved.
    tol : float
        The residual of the linear system at which the solver stops, relative to its right-hand side. Never tighter
        than the precision of the state allows. If it is out of reach, a residual will do that is small relative to the
        terms that the right-hand side is the sum of: those of a loss that is stationary at the fixed point cancel, up
        to how well the point is known.
    maxiter : int, optional
        The most iterations of the solver; for GMRES, the most restarts. It gives up earlier if it makes no progress.
    check : float or None
        The final state passes as fixed if ``|f(x) - x| <= check * (1 + |x|)``. ``None`` accepts every state.

    Raises
    ------
    ConvergenceError
        When the iteration ends at a state that is not fixed. When a derivative is evaluated and the solver does not
        reach its tolerance: I - J is singular, or nearly so.

    Examples
    --------
    >>> import unspool as us
    >>> a = us.tensor(2.0)
    >>> root, steps = us.iterate(lambda x: 0.5 * (x + a / x), us.tensor(1.0), max_steps=8, adjoint=us.Implicit())
    >>> round(float(root.grad(a)), 12)
    0.353553390593
    """

    solver: str = "gmres"
    tol: float = 1e-10
    maxiter: int | None = None
    check: float | None = 1e-6

    @property
    def passes_initial(self) -> bool:  # type: ignore[override]
        """Whether derivatives flow to the initial state: where a fixed point lies does not depend on it."""
        return False

    def __post_init__(self) -> None:
        if self.solver not in SOLVERS:
            raise ArgumentError(f"solver must be one of {', '.join(map(repr, SOLVERS))}, got {self.solver!r}")
        if not is_positive(self.tol):
            raise ArgumentError(f"tol must be a positive number, got {self.tol!r}")
        if self.maxiter is not None and not is_positive_integer(self.maxiter):
            raise ArgumentError(f"maxiter must be a positive integer or None, got {self.maxiter!r}")
        if self.check is not None and not is_positive(self.check):
            raise ArgumentError(f"check must be a positive number or None, got {self.check!r}")

    def attach(self, step: TracedStep, constants: list[Tensor], initial: list[Tensor], run: Run) -> list[Tensor]:
        """Return the final state of a run as tensors that are differentiated implicitly."""
        if step.outputs:
            raise ArgumentError(
                "outputs of single steps have no implicit derivative, which is that of the final state: compute them "
                "from it, or differentiate through the steps with adjoint=us.Unrolled()"
            )
        residual = self.ensure_fixed(step, constants, run)
        return place(Route(step, self, run.steps, 0, residual, constants, initial), constants, initial, run.final)

    def ensure_fixed(self, step: TracedStep, constants: Sequence[Tensor], run: Run) -> float:
        """Raise `ConvergenceError` if one more step moves the final state; return by how much it does."""
        if self.check is None:
            return 0.0
        return fixed_residual(self, step, default_engine().evaluate(constants), run.final, run.steps)

    def solve(self, operator: Any, right: Tensor, packing: Packing, residual: float) -> Tensor:
        """Return the solution of a linear system over packed states, as graph.

        Its right-hand side was taken at a point with the given residual, so its terms are no more accurate than that.
        """
        tol = max(self.tol, 4.0 * packing.coarsest)
        noise = noise_of(right, max(residual, 16.0 * packing.coarsest))
        if noise is not None:
            noise = _graph.apply(STOP_GRADIENT, noise)
        return solve_operator(operator, right, method=self.solver, tol=tol, maxiter=self.maxiter, noise=noise)


def is_positive(value: Any) -> bool:
    """Whether something is a positive real number."""
    return isinstance(value, (int, float, np.integer, np.floating)) and bool(value > 0)


def is_positive_integer(value: Any) -> bool:
    """Whether something is a whole number from 1 on."""
    return isinstance(value, (int, np.integer)) and bool(value > 0)


def _residual(step: TracedStep, constants: Sequence[Any], state: Sequence[Any]) -> float:
    """Return how far a step moves a state of arrays, relative to its size."""
    pack = Packing(state).pack
    return distances(pack(state), pack(Application(step, constants, state)(state)))[1]


def fixed_residual(
    strategy: Implicit, step: TracedStep, constants: Sequence[Any], state: Sequence[Any], steps: int
) -> float:
    """Return how far one more step moves a state; raise `ConvergenceError` if that is too far for a fixed point."""
    if strategy.check is None:
        return 0.0
    residual: float = run_quietly(_residual, step, constants, state)
    limit = max(strategy.check, 16.0 * Packing(state).coarsest)
    if not residual <= limit:
        message = (
            f"the state after {steps} steps is no fixed point, and an implicit derivative holds at a fixed "
            "point only: iterate further, or differentiate through the steps with adjoint=us.Unrolled()"
        )
        raise not_fixed(message, residual, steps, limit)
    return residual


# --- the node --------------------------------------------------------------------------------------------------------


class Route:
    """How a fixed point was found and how it is differentiated: the static part of its node.

    Recomputing the value follows the route: it takes the number of steps that was taken and looks at no tolerance.

    Parameters
    ----------
    step : TracedStep
    strategy : Implicit
    steps : int
        How often the step was applied.
    history : int
        That of the acceleration; 0 for plain steps.
    residual : float
        How well the point is fixed: |f(x) - x| / (1 + |x|), or 0 if nobody looked.
    constants, initial : sequence of Tensor
        What the step closes over, and the initial state; neither is kept.
    is_counted : bool
        Whether the number of steps is the last input of the node: members of a batch have one each.
    has_tangent : bool
        Whether the search carried a tangent along, so that its steps are those of both together.
    """

    __slots__ = (
        "_key",
        "closed",
        "has_tangent",
        "history",
        "is_counted",
        "leaves",
        "passes",
        "residual",
        "step",
        "steps",
        "strategy",
    )

    def __init__(
        self,
        step: TracedStep,
        strategy: Implicit,
        steps: int,
        history: int,
        residual: float,
        constants: Sequence[Tensor],
        initial: Sequence[Tensor],
        *,
        is_counted: bool = False,
        has_tangent: bool = False,
    ) -> None:
        self.has_tangent = has_tangent
        self.step = step
        self.strategy = strategy
        self.steps = steps
        self.history = history
        self.residual = residual
        self.closed, self.leaves = len(constants), len(initial)
        counters = sum(leaf.dtype not in INEXACT for leaf in initial)
        self.is_counted = is_counted
        self.passes = [c.dtype in INEXACT for c in constants] + [False] * (self.leaves + counters + is_counted)
        self._key = (id(step.fragment), strategy, steps, history, self.closed, is_counted, has_tangent)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Route) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"<{self.steps} steps>"

    def initial(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Return the initial state from the inputs of the node."""
        return inputs[self.closed : self.closed + self.leaves]

    def counters(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Return the final values of leaves without derivative from the inputs of the node."""
        return inputs[self.closed + self.leaves : len(inputs) - self.is_counted]


def place(route: Route, constants: Sequence[Tensor], initial: Sequence[Tensor], final: Sequence[Any]) -> list[Tensor]:
    """Return a state that was found to be fixed, as tensors: pieces of one node.

    The inputs of the node are the tensors that the step closes over, the initial state, and the final values of the
    leaves that have no derivative, as constants.
    """
    packing = Packing(final)
    others = [leaf if i in packing.positions else constant(leaf) for i, leaf in enumerate(final)]
    counters = [leaf for i, leaf in enumerate(others) if i not in packing.positions]
    if not packing.positions:
        return counters
    node = _graph.apply(FIXED_POINT, *constants, *initial, *counters, route=route)
    if node.value is None:
        node.value = packing.pack(final)
    return packing.unpack_tensors(node, others)


def _infer(*inputs: Node, route: Route) -> tuple[Any, Any]:
    packing = Packing(route.initial(inputs))
    return (packing.size,), packing.dtype


def _kernel(*arrays: Any, route: Route) -> Any:
    start = route.initial(arrays)
    steps = int(arrays[-1]) if route.is_counted else route.steps
    step, begin = Application(route.step, arrays[: route.closed], start), start
    if route.has_tangent:
        step, begin = with_tangents(route.step, arrays[: route.closed], start)
    return Packing(start).pack(repeat(step, begin, route.history, steps)[: route.leaves])


class _Linearisation:
    """The step at a fixed point, as a map between vectors that can be differentiated.

    It is differentiated on stand-ins, and what comes of that is placed on nodes. Stand-ins have nothing to do with each
    other, so derivatives are partial ones: the fixed point itself depends on the other inputs. And placing goes through
    the intern table, so that asking for a derivative twice gives the same nodes.
    """

    def __init__(self, route: Route, point: Tensor, inputs: Sequence[Tensor]) -> None:
        initial = route.initial(inputs)
        self.packing = Packing(initial)
        closed, counters = inputs[: route.closed], route.counters(inputs)
        self._nodes = [*closed, *counters, point]
        self._stand_ins = [placeholder(node.shape, node.dtype) for node in self._nodes]
        self._point = self._stand_ins[-1]
        still = iter(self._stand_ins[route.closed : -1])
        others = [leaf if leaf.dtype in INEXACT else next(still) for leaf in initial]
        carry = self.packing.unpack_tensors(self._point, others)
        image = route.step.apply(self._stand_ins[: route.closed], carry)
        self._image = self.packing.pack_tensors(image[: route.leaves])

    @property
    def is_constant(self) -> bool:
        """Whether the step does not look at its state, so that I - J is I."""
        return not active_nodes([self._image], [self._point])

    def pull(self, w: Tensor) -> Tensor:
        """Return (I - Jᴴ)·w."""
        arriving = placeholder(w.shape, w.dtype)
        found = pullback([self._image], [arriving], [self._point])
        return subtract(w, self._placed(found, [arriving], [w])[0])

    def pull_closed(self, w: Tensor, needed: Sequence[bool]) -> list[Tensor | None]:
        """Return Kᴴ·w for those inputs of the step that are needed."""
        arriving = placeholder(w.shape, w.dtype)
        wanted = [stand_in for stand_in, n in zip(self._stand_ins, needed, strict=False) if n]
        found = iter(self._placed(pullback([self._image], [arriving], wanted), [arriving], [w]))
        return [next(found) if n else None for n in needed]

    def push(self, t: Tensor) -> Tensor:
        """Return (I - J)·t."""
        arriving = placeholder(t.shape, t.dtype)
        found = pushforward([self._image], [self._point], [arriving])
        return subtract(t, self._placed(found, [arriving], [t])[0])

    def push_closed(self, tangents: Sequence[Tensor | None]) -> Tensor | None:
        """Return K·t from the tangents of what the step closes over."""
        moving = [t for t in tangents if t is not None]
        arriving = [placeholder(t.shape, t.dtype) for t in moving]
        variables = [stand_in for stand_in, t in zip(self._stand_ins, tangents, strict=False) if t is not None]
        found: Tensor | None = self._placed(pushforward([self._image], variables, arriving), arriving, moving)[0]
        return found

    def _placed(self, found: Sequence[Any], arriving: Sequence[Tensor], nodes: Sequence[Tensor]) -> list[Any]:
        """Return tensors on stand-ins as the same tensors on the nodes that these stand for."""
        targets = [tensor for tensor in found if tensor is not None]
        fragment, inputs, _ = capture([*self._stand_ins, *arriving], targets)
        # What depends on no stand-in, zeros for instance, is an input as it is.
        fixed = inputs[len(self._stand_ins) + len(arriving) :]
        placed = iter(apply_fragment(fragment, [*self._nodes, *nodes, *fixed]))
        return [None if tensor is None else next(placed) for tensor in found]


def _pull(needed: Sequence[bool], ct: Tensor, out: Tensor, *inputs: Tensor, route: Route) -> list[Tensor | None]:
    """Return the cotangents of what the step closes over: Kᴴ·w, where (I - Jᴴ)·w is the cotangent of the point."""
    at = _Linearisation(route, out, inputs)
    w = ct if at.is_constant else route.strategy.solve(at.pull, ct, at.packing, route.residual)
    return at.pull_closed(w, needed)


def _push(tangents: Sequence[Tensor | None], out: Tensor, *inputs: Tensor, route: Route) -> Tensor | None:
    """Return the tangent t of the point: (I - J)·t is K applied to the tangents of what the step closes over."""
    at = _Linearisation(route, out, inputs)
    right = at.push_closed(tangents[: route.closed])
    if right is None or at.is_constant:
        return right
    return route.strategy.solve(at.push, right, at.packing, route.residual)


def _passes(params: Any) -> list[bool]:
    passes: list[bool] = params["route"].passes
    return passes


# Not registered: it stands for a run that has happened, and nobody applies it by name.
FIXED_POINT = Op(
    "fixed_point",
    infer=_infer,
    kernel=_kernel,
    vjp=JointRule(_pull, _passes),
    jvp=_push,
    params={"route": STRUCTURE},
    needs=(INPUTS, OUTPUT),
    batch=rule_above("fixed_point"),
)
