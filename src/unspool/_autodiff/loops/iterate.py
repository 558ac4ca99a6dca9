"""``us.iterate``: a loop whose step is traced once and run by the engine, and strategies to differentiate it.

The one idea: how a loop is run and how it is differentiated are two matters. `iterate` traces the step, runs it until
its condition holds, and hands what it found to an `Adjoint`, which returns tensors that have these values and know
their derivatives. `Unrolled` is the derivative of the program as it ran, through all steps.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import unspool._autodiff.loops.rules  # noqa: F401 - enters the rules of the loops that are made here
from unspool import _trees as trees
from unspool._above import above
from unspool._autodiff.loops.loop import (
    Loop,
    Placing,
    facts_of,
    loop_output,
    one_body,
    place_loop,
    placing_of,
    take_values,
)
from unspool._autodiff.loops.record import joined, recorded
from unspool._autodiff.loops.recording import recorded as recording
from unspool._autodiff.loops.run import can_be_evaluated, run_loop, run_steps, run_until
from unspool._autodiff.loops.tangent_step import StandsStill, random_direction, require_variables, with_tangent
from unspool._autodiff.loops.trace import Trace, TracedStep, trace
from unspool._engine.default import default_engine
from unspool._engine.observe import current_observer, shown
from unspool._engine.quiet import run_quietly
from unspool._fragments.asking import check_callable
from unspool._graph import describe, source_of
from unspool._ops.identity import zeros
from unspool._ops.leaf import tensor
from unspool.errors import ArgumentError, UnboundPlaceholderError

if TYPE_CHECKING:
    from unspool._graph import Bundle
    from unspool._tensor import Tensor

__all__ = ["Adjoint", "Run", "TracedStep", "Unrolled", "iterate"]


def iterate(
    step: Callable[..., Any],
    state: Any,
    until: Callable[..., Any] | None = None,
    max_steps: int | None = None,
    *,
    derivative_tol: float | None = None,
    adjoint: Adjoint | None = None,
    has_outputs: bool = False,
    progress: bool = False,
    spool: Any = None,
) -> Any:
    """Run a loop inside the engine: repeat a step until a condition holds, without Python between steps.

    The functions are called once, on stand-ins for the state, and what they do is recorded; so they compute with
    tensors and cannot look at values. Tensors that they close over are inputs of the loop: derivatives flow to them,
    and to the initial state.

    Parameters
    ----------
    step : callable
        ``step(state)`` returns the next state: the same nesting, shapes and dtypes. With ``has_outputs=True`` it
        returns ``(state, outputs)``.
    state : pytree
        The initial state: tensors, arrays or numbers in any nesting.
    until : callable, optional
        ``until(new)`` or ``until(new, old)`` is asked after each step and returns a truth value, a scalar tensor of
        dtype bool. The loop ends when it is true.
    max_steps : int, optional
        The most steps to make. One of ``until``, ``max_steps`` and ``derivative_tol`` has to be given. With
        ``max_steps`` alone, the state may depend on placeholders; the loop then runs when its value is asked for.
    derivative_tol : float, optional
        Go on until the derivative stands still: ``|t' - t| <= derivative_tol * (1 + |t|)``, where t is the tangent of
        the state along a random direction of all that derivatives flow to, and, if ``until`` is given, until that
        holds. Without ``until`` the state has to stand still by the same tolerance. A derivative lags behind the value.
        The steps are made twice, once with the tangent. Not under `vmap`.
    adjoint : Adjoint, optional
        How to differentiate: `Unrolled`, through all steps, by default; `Checkpointed` does the same with few states.
    has_outputs : bool
        Whether a step also returns outputs, which are stacked along a new first axis.
    progress : bool
        Whether to show how far it is while it runs, as `unspool.progress` does.
    spool : path or SpooledRun, optional
        Write the loop as it runs into a folder, or as `spool` says; if a run of it is there, go on with that. What
        derivatives look at is then computed when one is asked for.

    Returns
    -------
    state : pytree of Tensor
        The state after the last step.
    steps : int
        How many steps were made, which derivatives take as given. It equals ``max_steps`` if the condition never held.
        Under `vmap`, where members stop each at its own step, that of a member: a tensor without axes.
    outputs : pytree of Tensor
        Only with ``has_outputs=True``: the outputs of all steps.

    Examples
    --------
    >>> import unspool as us
    >>> A = us.tensor([[2.0, 1.0], [1.0, 3.0]])
    >>> def step(x):
    ...     y = A @ x
    ...     return y / us.linalg.norm(y)
    >>> x, steps = us.iterate(step, us.tensor([1.0, 0.0]), until=lambda new, old: us.max(abs(new - old)) < 1e-9)
    >>> steps
    23
    >>> eigenvalue = x @ A @ x
    >>> eigenvalue.grad(A).eval().round(6)
    array([[0.276393, 0.447214],
           [0.447214, 0.723607]])
    """
    if progress:
        with above.namespace.progress():
            return iterate(
                step,
                state,
                until,
                max_steps,
                derivative_tol=derivative_tol,
                adjoint=adjoint,
                has_outputs=has_outputs,
            )
    check_callable(step, "us.iterate")
    if until is not None:
        check_callable(until, "us.iterate, for until,")
    most = None if max_steps is None else _as_count(max_steps)
    check_derivative_tol(derivative_tol)
    if until is None and most is None and derivative_tol is None:
        raise ArgumentError("us.iterate needs to know when to stop: give until, max_steps, or both, or derivative_tol")
    strategy = _UNROLLED if adjoint is None else adjoint
    if not isinstance(strategy, Adjoint):
        raise ArgumentError(f"adjoint is a strategy such as us.Unrolled(), got {adjoint!r}")
    traced = trace(step, state, until, has_outputs=has_outputs, what="us.iterate")
    if spool is None or most == 0:
        steps, found = _iterate(traced, strategy, most, derivative_tol)
    elif derivative_tol is not None:
        raise ArgumentError(
            "a loop that is written with spool= cannot stop by its derivative: leave out derivative_tol"
        )
    else:
        steps, found = above.iterate_spooled(traced, strategy, most, spool)
    carries = traced.step.carries
    final = trees.unflatten(traced.state_structure, found[:carries])
    if not has_outputs:
        return final, steps
    return final, steps, trees.unflatten(traced.output_structure, found[carries:])


def _as_count(max_steps: Any) -> int:
    try:
        count = operator.index(max_steps)
    except TypeError:
        raise ArgumentError(f"max_steps is an integer, got {max_steps!r}") from None
    if count < 0:
        raise ArgumentError(f"max_steps is at least 0, got {count}")
    return count


def _iterate(
    traced: Trace, strategy: Adjoint, most: int | None, derivative_tol: float | None
) -> tuple[Any, list[Tensor]]:
    """Return how many steps were made, and the final state and the stacked outputs."""
    step, constants, initial = traced.step, traced.constants, traced.initial
    if most == 0:
        outputs = step.apply(constants, initial)[step.carries :]
        return 0, [*initial, *[zeros((0, *x.shape), x.dtype) for x in outputs]]
    if not can_be_evaluated([*constants, *initial]):
        refuse_derivative_tol(derivative_tol, "us.iterate")
        batch = recording.get()
        members = None if batch is None else batch.iterate(traced, strategy, most)
        if members is not None:
            return members
        if step.condition is not None or most is None:
            raise UnboundPlaceholderError(_cannot_run(constants, initial))
        return most, strategy.place(step, constants, initial, most)
    if derivative_tol is not None:
        # The number of steps is known then, and steps without a tangent are what the strategy differentiates.
        most = _steps_until_still(traced, strategy, most, derivative_tol)
        traced = traced._replace(step=step._replace(condition=None), facts=None)
    return strategy.iterate(traced, most)


def _steps_until_still(traced: Trace, strategy: Adjoint, most: int | None, tol: float) -> int:
    """Return how many steps it takes until the derivative stands still, and the condition holds if there is one."""
    step, constants, initial = traced.step, traced.constants, traced.initial
    directions = _directions(constants)
    starts = _directions(initial) if strategy.passes_initial else [None] * len(initial)
    require_variables([*constants, *(initial if strategy.passes_initial else ())], "us.iterate")
    stop = StandsStill(float(tol), alone=step.condition is None)
    moving = with_tangent(step, constants, initial, directions, starts, stop)
    return run_traced(Trace(moving.step, moving.constants, moving.initial, None, None), most, keep=False).steps


def _directions(tensors: Sequence[Tensor]) -> list[Tensor | None]:
    found = random_direction(default_engine().evaluate(tensors))
    return [None if direction is None else tensor(direction) for direction in found]


def check_derivative_tol(derivative_tol: Any) -> None:
    """Raise for what is no tolerance."""
    if derivative_tol is None:
        return
    if not isinstance(derivative_tol, (int, float, np.integer, np.floating)) or not derivative_tol > 0:
        raise ArgumentError(f"derivative_tol must be a positive number or None, got {derivative_tol!r}")


def refuse_derivative_tol(derivative_tol: float | None, what: str) -> None:
    """Raise if a derivative is to stand still that has no value yet."""
    if derivative_tol is not None:
        raise ArgumentError(
            f"{what} with derivative_tol looks at the derivative while it runs, which it cannot do inside of us.vmap "
            "or on placeholders: find the number of steps outside, and pass max_steps"
        )


def _cannot_run(constants: Sequence[Tensor], initial: Sequence[Tensor]) -> str:
    culprit = next(x for x in (*initial, *constants) if not can_be_evaluated([x]))
    return (
        f"us.iterate with until has to run to know its number of steps, but {describe(culprit)}, made at "
        f"{source_of(culprit)}, depends on a placeholder that has no value; max_steps alone works without values"
    )


# --- running ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Run:
    """What a run of an iteration left behind; nobody writes into these arrays.

    Attributes
    ----------
    steps : int
        How many steps ran, at least 1.
    final : list of ndarray
        The state after the last step.
    previous : list of ndarray
        The state before the last step.
    outputs : list of ndarray
        The outputs of the steps, stacked.
    history : list of ndarray, or None
        The states before each step, stacked, one array per leaf, if the adjoint keeps them.
    kept : list of ndarray
        The whole record of the run, stacked: the history, then what derivative rules look at.
    other : object
        What else a strategy that runs steps in its own way keeps of them.
    loop : Loop or None
        What was run, with its record.
    """

    steps: int
    final: list[Any]
    previous: list[Any]
    outputs: list[Any]
    history: list[Any] | None
    kept: list[Any]
    other: Any = None
    loop: Loop | None = None


def loop_of(step: TracedStep, steps: int, inputs: Sequence[Tensor], *, keep: bool) -> Loop:
    """Return the loop that makes a number of steps on inputs, with a record if it is to be kept."""
    facts, key = facts_of(step), (steps, keep, *[x.shape for x in inputs])
    found: Loop | None = facts.get(key)
    if found is None:
        found = one_body(
            step.fragment, constants=step.constants, carries=step.carries, stacked=step.outputs, steps=steps
        )
        found = facts[key] = recorded(found, inputs) if keep else found
    return found


def run_traced(traced: Trace, most: int | None, *, keep: bool) -> Run:
    """Make the steps of a loop, at least one and at most a number of them, and keep a record if asked to."""
    step = traced.step
    inputs = [*traced.constants, *traced.initial]
    loop = loop_of(step, most or 0, inputs, keep=keep)
    values = default_engine().evaluate(inputs)
    condition, observer = step.condition, current_observer()
    if condition is None:
        runner = run_quietly(shown, observer, run_steps, loop, values)
    else:
        watched = joined(loop.bodies[0].fragment, condition, tuple([x.shape for x in inputs]))
        runner = run_quietly(shown, observer, run_until, loop, watched, values, most)
    stacked = runner.stacked()
    if observer is not None:
        node = place_loop(loop._replace(steps=runner.done), inputs)
        observer.after(node, values, (*runner.state, *stacked))
    kept = stacked[step.outputs :]
    history = kept[: step.carries] if keep else None
    ran = loop if loop.steps == runner.done else loop._replace(steps=runner.done)
    return Run(runner.done, runner.state, runner.previous, stacked[: step.outputs], history, kept, None, ran)


# --- strategies ------------------------------------------------------------------------------------------------------


class Adjoint:
    """How an iteration is differentiated: the base class of the strategies.

    Attributes
    ----------
    keeps_history : bool
        Whether a run has to keep the states before each step.
    passes_initial : bool
        Whether derivatives flow to the initial state.
    """

    keeps_history: bool = False
    passes_initial: bool = True

    def iterate(self, traced: Trace, most: int | None) -> tuple[int, list[Tensor]]:
        """Make the steps and return how many these were, and the final state and the stacked outputs as tensors."""
        run = self.run(traced, most)
        return run.steps, self.attach(traced.step, traced.constants, traced.initial, run)

    def run(self, traced: Trace, most: int | None) -> Run:
        """Make the steps, at least one and at most a number of them."""
        return run_traced(traced, most, keep=self.keeps_history)

    def attach(self, step: TracedStep, constants: list[Tensor], initial: list[Tensor], run: Run) -> list[Tensor]:
        """Return the final state, then the stacked outputs, as tensors that have their values and know derivatives."""
        raise NotImplementedError

    def place(self, step: TracedStep, constants: list[Tensor], initial: list[Tensor], steps: int) -> list[Tensor]:
        """Return the same without a run, for inputs that have no values yet."""
        raise UnboundPlaceholderError(
            f"us.iterate with {type(self).__name__} runs at once, but its inputs depend on a placeholder that has no "
            "value; only us.Unrolled() and us.Checkpointed(), with max_steps and without until, can be placed before "
            "values are known"
        )


class Unrolled(Adjoint):
    """Differentiate through all steps that ran, forward or in reverse, to any order.

    The states before each step are kept, and what derivative rules look at: memory grows with the number of steps.

    Examples
    --------
    >>> import unspool as us
    >>> x = us.tensor(2.0)
    >>> root, steps = us.iterate(lambda r: (r + x / r) / 2, 1.0, max_steps=6, adjoint=us.Unrolled())
    >>> round(float(root.grad(x)), 6)
    0.353553
    """

    keeps_history = True

    def iterate(self, traced: Trace, most: int | None) -> tuple[int, list[Tensor]]:
        """Place a loop of known length and run it there, unless it is there and has run."""
        step, constants, initial = traced.step, traced.constants, traced.initial
        if step.condition is not None or most is None or current_observer() is not None:
            return super().iterate(traced, most)
        inputs = (*constants, *initial)
        loop, node = _placed(traced, most, inputs)
        values = node.value
        if values is None:
            values = node.value = run_quietly(run_loop, loop, _values_of(inputs))
        found = []
        for i in range(step.carries + step.outputs):
            output = loop_output(node, i)
            if output.value is None:
                output.value = values[i]
            found.append(output)
        return most, found

    def attach(self, step: TracedStep, constants: list[Tensor], initial: list[Tensor], run: Run) -> list[Tensor]:
        """Place the loop that ran as one node with known values."""
        inputs = [*constants, *initial]
        node = place_loop(run.loop or loop_of(step, run.steps, inputs, keep=True), inputs)
        values = (*run.final, *run.outputs, *run.kept)
        if node.value is None:
            node.value = values
        found = [loop_output(node, i) for i in range(step.carries + step.outputs)]
        take_values(found)
        return found

    def place(self, step: TracedStep, constants: list[Tensor], initial: list[Tensor], steps: int) -> list[Tensor]:
        """Place the loop as one node, to be run when its value is asked for."""
        inputs = [*constants, *initial]
        node = place_loop(loop_of(step, steps, inputs, keep=True), inputs)
        return [loop_output(node, i) for i in range(step.carries + step.outputs)]

    def __repr__(self) -> str:
        return "us.Unrolled()"


# It has no state.
_UNROLLED = Unrolled()


# Numbers of steps of which it is known how their loop is placed.
_MOST_LENGTHS = 64


def _placed(traced: Trace, steps: int, inputs: tuple[Tensor, ...]) -> tuple[Loop, Bundle]:
    """Return a loop with its record, and its node; of a trace that is known it is known how that is made."""
    known: tuple[Loop, Placing] | None = None if traced.facts is None else traced.facts.get(steps)
    if known is not None:
        return known[0], known[1].place(inputs)
    loop = loop_of(traced.step, steps, inputs, keep=True)
    placing = placing_of(loop, inputs)
    if traced.facts is not None:
        if len(traced.facts) >= _MOST_LENGTHS:
            traced.facts.clear()
        traced.facts[steps] = loop, placing
    return loop, placing.place(inputs)


def _values_of(nodes: Sequence[Tensor]) -> Sequence[Any]:
    """Return the values of nodes, most of which have theirs."""
    values = []
    for node in nodes:
        value = node.value
        if value is None:
            return default_engine().evaluate(nodes)
        values.append(value)
    return values
