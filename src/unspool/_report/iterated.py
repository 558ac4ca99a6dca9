"""Loops that are one node (`unspool.iterate`): their steps, run once more, and the cotangents between them.

Inside of such a loop there are no tensors. For cotangents it is cut into stretches, each a loop of its own, so that
there is a tensor for the state at each cut; what arrives at the outputs of the loop is sent back through them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._autodiff.loops.checkpointed_rules import CHECKPOINTED_LOOP
from unspool._autodiff.loops.loop import LOOP, Loop, loop_output, place_loop, signature_of
from unspool._autodiff.sweeps.cotangents import cotangents
from unspool._dtypes import INEXACT
from unspool._engine.costs import nbytes
from unspool._fragments.fragment import Origin
from unspool._graph import Node
from unspool._nan.repetition import repetition_of_loop
from unspool._ops.elementwise import conj, multiply, real
from unspool._ops.op import PART
from unspool._ops.reduction import sum as total
from unspool._report.units import OnOp, Program, run_plan
from unspool.checkpoint._schedule.budget import Sizes

if TYPE_CHECKING:
    from unspool._tensor import Tensor

# Ops that are timed one by one, at most; the steps that are left are run by plan, and counted as the others are.
_MOST_TIMED = 20_000

# Histories of at most so many bytes may be held for cotangents of a loop that was meant to keep few states.
_SMALL = 1 << 26


@dataclass(frozen=True)
class Iterated:
    """A loop that is one node.

    Attributes
    ----------
    number : int
        Which unit of the program it is.
    node : Node
    loop : Loop
    keeps_all : bool
        Whether all its steps are recorded for derivatives.
    """

    number: int
    node: Node
    loop: Loop
    keeps_all: bool

    @property
    def origin(self) -> Origin:
        """Where the program has it."""
        return self.node.code, self.node.lasti

    def sizes(self) -> Sizes:
        """Return the bytes of the state between two steps, and of what else derivatives need of a step."""
        found = signature_of(self.loop, [node.shape for node in self.node.inputs])
        state = sum(nbytes(shape, dtype) for shape, dtype in found.registers if dtype is not None)
        tape = sum(nbytes(shape, dtype) for shape, dtype in self.record())
        return Sizes(max(1, state), max(0, tape - max(1, state)))

    def record(self) -> list[tuple[Any, Any]]:
        """Return shape and dtype of each value that derivatives need of a step."""
        loop = self.loop
        if not self.keeps_all:
            loop = self.node.attributes["checkpoints"].bodies.recorded
        found = signature_of(loop, [node.shape for node in self.node.inputs])
        return found.stacked[len(found.stacked) - loop.recorded :] if loop.recorded else []


def iterated_in(program: Program) -> list[Iterated]:
    """Return the loops of a program that are one node, the longest first."""
    found = []
    for number, unit in enumerate(program.units):
        node: Any = unit.source
        if unit.plan is None and node.op is LOOP:
            found.append(Iterated(number, node, node.attributes["loop"], True))
        elif unit.plan is None and node.op is CHECKPOINTED_LOOP:
            found.append(Iterated(number, node, node.attributes["checkpoints"].loop, False))
    return sorted(found, key=lambda loop: -loop.loop.steps)


def is_loop(op: Any) -> bool:
    """Whether an op is a loop that is one node."""
    return op is LOOP or op is CHECKPOINTED_LOOP


def loop_in(op: Any, params: Any) -> Loop:
    """Return what such an op does."""
    loop: Loop = params["loop"] if op is LOOP else params["checkpoints"].loop
    return loop


# --- running ---------------------------------------------------------------------------------------------------------

# Called with the number of a step, the registers before it and after it, and the rows that it gave.
OnStep = Callable[[int, dict[int, Any], dict[int, Any], Sequence[Any]], None]


def follow(loop: Loop, arrays: Sequence[Any], on_op: OnOp, on_step: OnStep | None = None) -> None:
    """Make the steps of a loop once more; ``on_op`` is told of ops as if all had been timed.

    Of a loop with very many ops only some steps run op by op; what these took stands for the others too.
    """
    repetition = repetition_of_loop(loop, arrays)
    size = max(1, *[len(body.fragment.body) for body in loop.bodies])
    stride = max(1, -(-loop.steps * size // _MOST_TIMED))
    state = repetition.start()

    def scaled(op: Any, params: Any, origin: Origin, inputs: Sequence[Any], value: Any, seconds: float) -> None:
        on_op(op, params, origin, inputs, value, seconds * stride)

    for count, k in enumerate(repetition.order):
        body = repetition.body(k)
        values = repetition.values(k, state)
        if count % stride == 0:
            outputs: Sequence[Any] = run_plan(body.plan, values, body.plan.fragment.origins, scaled)
        else:
            outputs = body.plan.run(*values)
        before = dict(state)
        repetition.assign(k, state, outputs)
        if on_step is not None:
            on_step(k, before, state, outputs)
        elif count // stride > _MOST_TIMED:
            break


class Scalars:
    """What is known of the convergence of a loop: its scalars, the scalar outputs of its steps, and how it moves."""

    def __init__(self, loop: Loop) -> None:
        self.values: dict[str, list[float]] = {}
        self._shown = _shown_rows(loop)

    def note(self, k: int, before: dict[int, Any], after: dict[int, Any], outputs: Sequence[Any]) -> None:
        """Look at a step."""
        moved = 0.0
        for register, value in after.items():
            if np.ndim(value) == 0 and np.asarray(value).dtype in INEXACT:
                self._add(f"carried value {register}", value)
            if register in before and np.shape(before[register]) == np.shape(value) and value.dtype in INEXACT:
                moved += float(np.sum(np.abs(value - before[register]) ** 2))
        for name, index in self._shown:
            if np.ndim(outputs[index]) == 0 and np.asarray(outputs[index]).dtype in INEXACT:
                self._add(name, outputs[index])
        self._add("change of the state, ‖new − old‖", moved**0.5)

    def _add(self, name: str, value: Any) -> None:
        self.values.setdefault(name, []).append(float(np.real(value)))


def _shown_rows(loop: Loop) -> list[tuple[str, int]]:
    """Return the outputs of a step that the user stacks: a name, and which output of the body it is."""
    if len(loop.bodies) != 1:
        return []
    body, last = loop.bodies[0], len(loop.stacked) - loop.recorded
    return [(f"output {i}", len(body.assigns) + at) for at, i in enumerate(body.stacked) if i < last]


# --- cotangents ------------------------------------------------------------------------------------------------------


def cuts_of(steps: int, most: int) -> list[int]:
    """Return after how many steps a loop is cut, evenly: at most so many places, the end among them."""
    count = min(steps, most)
    return sorted({round(steps * (i + 1) / count) for i in range(count)})


def cotangents_inside(
    program: Program, found: Iterated, cuts: Sequence[int], seed: Tensor
) -> tuple[list[list[Tensor | None]], str]:
    """Return the cotangents of the state at each cut, or none and the reason."""
    loop, node = found.loop, found.node
    if len(loop.bodies) != 1 or loop.reverse or loop.sums or loop.entering != loop.leaving:
        return [], "the loop has several kinds of steps"
    if any(extent is not None for extent in (*loop.rows, *loop.stacked)):
        return [], "the loop has values that are absent from some steps"
    record = sum(nbytes(shape, dtype) for shape, dtype in found.record())
    if not found.keeps_all and loop.steps * record > _SMALL:
        return [], "the loop keeps few states on purpose, and its history is large"
    arriving = _arriving(program, found, seed)
    constants = list(node.inputs[: loop.constants])
    state: list[Any] = list(node.inputs[loop.constants : loop.constants + len(loop.entering)])
    rows: list[Any] = list(node.inputs[loop.constants + len(loop.entering) :])
    pairing, states, begin = None, [], 0
    for end in cuts:
        part = place_loop(loop._replace(steps=end - begin), [*constants, *state, *[row[begin:end] for row in rows]])
        state = [loop_output(part, i) for i in range(len(loop.leaving))]
        states.append([x for x in state if x.dtype in INEXACT])
        for i in range(len(loop.leaving), len(_outputs_of(loop))):
            ct = arriving.get(i)
            if ct is not None:
                pairing = _plus(pairing, _paired(ct[begin:end], loop_output(part, i)))
        begin = end
    for i, x in enumerate(state):
        if arriving.get(i) is not None:
            pairing = _plus(pairing, _paired(arriving[i], x))
    if pairing is None:
        return [], "nothing arrives at the loop"
    return cotangents(pairing, states), ""


def _outputs_of(loop: Loop) -> range:
    """Return the outputs of a loop that a loss may be made from: not its record."""
    return range(len(loop.leaving) + len(loop.stacked) - loop.recorded)


def _arriving(program: Program, found: Iterated, seed: Tensor) -> dict[int, Tensor]:
    """Return what arrives at the outputs of a loop, by position; the nodes that are read are those of the program."""
    parts: dict[int, Any] = {}
    for unit in program.units:
        node: Any = unit.source
        if unit.plan is None and node.op is PART and node.inputs[0] is found.node:
            parts[node.attributes["index"]] = node
    loss: Any = program.targets[0]
    arrived = zip(parts, cotangents(loss, list(parts.values()), seed), strict=True)
    return {i: ct.detach() for i, ct in arrived if ct is not None}


def _paired(ct: Any, x: Any) -> Any:
    return real(total(multiply(conj(ct), x)))


def _plus(first: Any, second: Any) -> Any:
    return second if first is None else first + second
