"""Loops of a batch that stop by a value: all members that are still going make their steps as one batch.

When the condition of one or several members holds, these are taken out, and the others go on as a smaller batch. So no
member makes a step that it would not make alone. A *stretch* of steps between two such points is an ordinary loop; what
the members are made of is these loops and the rows that are taken between them. So derivatives are those of loops, and
a member's are its own.

A value that all members have in common, such as a counter, stays one value as long as they go on together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._autodiff.loops.iterate import Adjoint
from unspool._autodiff.loops.loop import apply_fragment, body_plan, one_body, stand_ins
from unspool._autodiff.loops.trace import Trace, TracedStep
from unspool._batching.images import BatchedFragment, Image, batch_fragment, spread_image
from unspool._batching.loops import batched_body
from unspool._batching.member import Avals, Program
from unspool._batching.reorder import reorder
from unspool._dims import Size
from unspool._engine.default import default_engine
from unspool._engine.quiet import run_quietly
from unspool._fragments.fragment import Fragment, capture
from unspool._ops.layout import concat, split
from unspool._ops.reduction import any as any_
from unspool.errors import UnknownSizeError

if TYPE_CHECKING:
    from unspool._graph import Node


class Ragged(Program):
    """A loop that each member leaves at its own step; its inputs are constants and the initial state.

    Parameters
    ----------
    step : TracedStep
        That of one member.
    strategy : Adjoint
        How a stretch is run and differentiated.
    most : int or None
        The most steps of a member.
    batches : tuple
        Those whose members differ in it, the innermost first.

    Attributes
    ----------
    lengths : ndarray of int, or None
        How many steps each member makes; found when it is first placed, which runs it.
    """

    def __init__(self, step: TracedStep, strategy: Adjoint, most: int | None, batches: tuple[object, ...]) -> None:
        self.batches = batches
        self.lengths: Any = None
        self._step, self._strategy, self._most = step, strategy, most
        self._ran: tuple[list[Image], list[Image]] | None = None

    def avals(self, inputs: Sequence[Node]) -> Avals:
        """Return shapes and dtypes of the state."""
        return [(x.shape, x.dtype) for x in inputs[self._step.constants :]]

    def place(self, images: Sequence[Image], count: Size) -> list[Image]:
        """Return the final states of all members."""
        if not isinstance(count, int):
            raise UnknownSizeError(f"a loop with until has to run, and the number of members is not known: {count}")
        if self._ran is not None and all(a.node is b.node for a, b in zip(images, self._ran[0], strict=True)):
            return self._ran[1]  # what it ran on, met again when the function has returned
        found = self._place(images, count)
        if self._ran is None:
            self._ran = list(images), found
        return found

    def _place(self, images: Sequence[Image], count: int) -> list[Image]:
        going = _Going(images, count)
        lengths = np.zeros(count, np.int64)
        done, finished = 0, _Finished()
        while not finished or len(going.members):
            stretch = _Stretch(self._step, going)
            steps, state, stops = self._advance(stretch, going.members, done)
            done += steps
            lengths[going.members] = done
            finished.take(going, state, stops)
        self.lengths = lengths if self.lengths is None else self.lengths
        return finished.state(count)

    def _advance(self, stretch: _Stretch, members: Any, done: int) -> tuple[int, list[Any], Any]:
        """Make the steps of a stretch; return how many, the state after them and who stops there.

        A batch of nobody makes one, so that what comes of it depends on what steps read.
        """
        if self.lengths is None:
            most = None if self._most is None else self._most - done
            return stretch.run(self._strategy, most if len(members) else 1)
        steps = int(self.lengths[members].min()) - done if len(members) else 1
        state = self._strategy.place(stretch.step, stretch.constants, stretch.initial, steps)
        return steps, state, self.lengths[members] == done + steps


class _Going:
    """The members that are still going, and their values: images of constants and of the state."""

    def __init__(self, images: Sequence[Image], count: int) -> None:
        self.members = np.arange(count)
        self.images = list(images)


class _Stretch:
    """One step of all members that are going: that of a loop whose state has them along a first axis."""

    def __init__(self, step: TracedStep, going: _Going) -> None:
        count, first = len(going.members), step.constants
        loop = one_body(step.fragment, constants=first, carries=step.carries, steps=1)
        flags = [image.batched for image in going.images]
        body, registers = batched_body(loop, count, flags, [image.node for image in going.images])
        self.flags = registers
        going.images[first:] = [
            _spread_with_value(image, count) if flag and not image.batched else image
            for image, flag in zip(going.images[first:], registers, strict=True)
        ]
        nodes = [image.node for image in going.images]
        self.constants, self.initial = nodes[:first], nodes[first:]
        self._shapes = tuple([node.shape for node in nodes])
        self._condition = _condition(step, going.images, count)
        stop = None if self._condition is None else _any_of(self._condition, self._shapes)
        self.step = TracedStep(body, first, step.carries, 0, stop, step.names)
        self._count = count

    def run(self, strategy: Adjoint, most: int | None) -> tuple[int, list[Any], Any]:
        """Make steps until a member stops; return how many, the state after them and who stops there."""
        run = strategy.run(Trace(self.step, self.constants, self.initial, None, None), most)
        state = strategy.attach(self.step, self.constants, self.initial, run)
        if self._condition is None or run.steps == most:
            return run.steps, state, np.ones(self._count, bool)
        values = [*default_engine().evaluate(self.constants), *run.previous]
        plan = default_engine().plans.plan_for(self._condition.fragment, self._shapes)
        held = run_quietly(plan.run, *values)[0]
        return run.steps, state, np.broadcast_to(held, (self._count,))


class _Finished:
    """The states of members that have stopped, in the order in which they did."""

    def __init__(self) -> None:
        self._members: list[Any] = []
        self._states: list[list[Any]] = []

    def __len__(self) -> int:
        return len(self._states)

    def take(self, going: _Going, state: Sequence[Any], stops: Any) -> None:
        """Take the members that stop out of those that are going; ``state`` is that of all."""
        first = len(going.images) - len(state)
        flags = [image.batched for image in going.images[first:]]
        images = [*going.images[:first], *[Image(x, flag) for x, flag in zip(state, flags, strict=True)]]
        self._members.append(going.members[stops])
        rest = int(np.count_nonzero(~stops))
        if not rest:
            self._states.append([spread_image(image, len(stops)) for image in images[first:]])
            going.members = going.members[:0]
            return
        if stops[: len(stops) - rest].all():
            parted = [_cut(image, None, len(stops) - rest)[::-1] for image in images]
        else:
            order = None if stops[rest:].all() else np.concatenate([np.flatnonzero(~stops), np.flatnonzero(stops)])
            parted = [_cut(image, order, rest) for image in images]
        self._states.append([spread_image(stopped, len(stops) - rest) for _, stopped in parted[first:]])
        going.members, going.images = going.members[~stops], [goes for goes, _ in parted]

    def state(self, count: int) -> list[Image]:
        """Return the final state of all members."""
        order = np.argsort(np.concatenate(self._members))
        rows = [concat(list(parts)) if len(parts) > 1 else parts[0] for parts in zip(*self._states, strict=True)]
        return [Image(reorder(x, order), True) for x in rows]


def _cut(image: Image, order: Any, at: int) -> tuple[Image, Image]:
    """Return the first rows of an image and the others, in an order if there is one; twice what all have in common."""
    if not image.batched:
        return image, image
    moved = image.node if order is None else reorder(image.node, order)
    first, second = split(moved, [at])
    if image.node.value is not None:
        rows = image.node.value if order is None else image.node.value[order]
        _take_value(moved, rows)
        _take_value(first.inputs[0], (rows[:at], rows[at:]))
        _take_value(first, rows[:at])
        _take_value(second, rows[at:])
    return Image(first, True), Image(second, True)


def _take_value(node: Any, value: Any) -> None:
    """Give a node a value that is known, so that nobody evaluates it.

    What is evaluated may be folded, and is then not found again when a derivative places the same loop.
    """
    if node.value is None:
        node.value = value


def _spread_with_value(image: Image, count: int) -> Image:
    whole = spread_image(image, count)
    if image.node.value is not None:
        _take_value(whole, np.broadcast_to(image.node.value, whole.shape))
    return Image(whole, True)


# --- the condition ---------------------------------------------------------------------------------------------------


def _condition(step: TracedStep, images: Sequence[Image], count: int) -> BatchedFragment | None:
    """Return the condition of all members."""
    if step.condition is None:
        return None
    shapes = tuple([x.shape[1:] if batched else x.shape for x, batched in images])
    return batch_fragment(step.condition, shapes, [image.batched for image in images], count)


def _any_of(condition: BatchedFragment, shapes: tuple[Any, ...]) -> Fragment:
    """Return whether the condition of a member holds, as a fragment of the same inputs."""
    if not condition.outputs[0]:
        return condition.fragment
    plan = body_plan(condition.fragment, shapes)
    key = "any member"
    if plan is not None and key in plan.derivatives:
        found: Fragment = plan.derivatives[key]
        return found
    inputs = stand_ins(condition.fragment, shapes)
    made = capture(inputs, [any_(apply_fragment(condition.fragment, inputs)[0])]).fragment
    if plan is not None:
        plan.derivatives[key] = made
    return made
