"""`unspool.iterate` and `unspool.fixed_point` inside of a batch that is being recorded: they run, for all members.

What a loop stands on is batched at once, as far as it has been recorded, through all batches around it, until there are
values. The loop runs on these, and the member goes on with its view of what was found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._autodiff.loops.iterate import Adjoint, Run
from unspool._autodiff.loops.recording import Iterated
from unspool._autodiff.loops.run import can_be_evaluated
from unspool._autodiff.loops.trace import Trace, TracedStep
from unspool._autodiff.solvers.implicit import FIXED_POINT, Implicit, Route, fixed_residual
from unspool._autodiff.solvers.packing import Packing
from unspool._batching.images import Image, spread_image
from unspool._batching.member import Outer, Program, view
from unspool._batching.ragged import Ragged
from unspool._batching.searching import search_members
from unspool._engine.default import default_engine
from unspool._engine.quiet import run_quietly
from unspool._ops.leaf import constant, tensor
from unspool.errors import ArgumentError

if TYPE_CHECKING:
    from unspool._batching.members import Batch
    from unspool._tensor import Tensor


def iterate_members(batch: Batch, traced: Trace, strategy: Adjoint, most: int | None) -> Iterated | None:
    """Return the number of steps of a member, as a tensor, and its final state; ``None`` if nothing has to run here."""
    is_implicit = isinstance(strategy, Implicit)
    if traced.step.condition is None and not is_implicit:
        return None
    nest = _Nest(batch, [*traced.constants, *traced.initial])
    if not nest.has_values:
        return None
    if traced.step.outputs:
        raise ArgumentError(
            "members of a batch make different numbers of steps, so their outputs cannot be stacked; give max_steps "
            "without until, or carry what is needed of the steps in the state"
        )
    program = Ragged(traced.step, _Forgetful() if is_implicit else strategy, most, nest.batches)
    finals = nest.place(program)
    if isinstance(strategy, Implicit):
        return _implicit(traced, strategy, nest, finals, program.lengths, 0)
    return nest.steps(program.lengths), nest.view(program, finals)


def fixed_points(
    batch: Batch, traced: Trace, strategy: Adjoint, history: int, tol: float, max_steps: int
) -> Iterated | None:
    """Return how often the map of a member was applied and its fixed point, as tensors; ``None`` outside of a batch."""
    nest = _Nest(batch, [*traced.constants, *traced.initial])
    if not nest.has_values:
        return None
    program = _Search(traced.step, history, tol, max_steps, nest.batches)
    finals = nest.place(program)
    if isinstance(strategy, Implicit):
        return _implicit(traced, strategy, nest, finals, program.lengths, history, program.residual)
    plain = Ragged(traced.step, strategy, None, nest.batches)
    plain.lengths = program.lengths
    return nest.steps(program.lengths), nest.view(plain, nest.place(plain))


class _Nest:
    """What a loop stands on, batched through all batches around it, the innermost first, until it has values.

    Attributes
    ----------
    around : list of Batch
        Those whose members differ in it.
    """

    def __init__(self, innermost: Batch, inputs: Sequence[Tensor]) -> None:
        self.around: list[Batch] = []
        self.inputs = list(inputs)
        self._images: list[list[Image]] = []
        nodes: list[Any] = self.inputs
        batch: Batch | None = innermost
        while batch is not None and not can_be_evaluated(nodes):
            found = batch.images_of(nodes)
            nodes = [image.node for image in found]
            if any(image.batched for image in found):
                self.around.append(batch)
                self._images.append(found)
            batch = batch.outer
        self.has_values = bool(self.around) and can_be_evaluated(nodes)

    @property
    def batches(self) -> tuple[object, ...]:
        """Which batches these are, the innermost first."""
        return tuple([batch.identity for batch in self.around])

    @property
    def is_single(self) -> bool:
        """Whether members of one batch alone differ."""
        return len(self.around) == 1

    def place(self, program: Program) -> list[Image]:
        """Place a program for the members of all batches; return what it gives, with one axis for each batch."""
        for batch, images in zip(self.around[:-1], self._images[:-1], strict=True):
            program = Outer(program, [image.batched for image in images], batch.count)
        return program.place(self._images[-1], self.around[-1].count)

    def whole(self, finals: Sequence[Image]) -> list[Any]:
        """Return what a program gave as arrays, with the members of all batches along one axis."""
        counts = self.counts()
        tensors = [spread_image(image, counts[0]) for image in finals]
        return [x.reshape(-1, *x.shape[len(counts) :]) for x in default_engine().evaluate(tensors)]

    def constants(self, count: int) -> list[list[Any]]:
        """Return the values of what the loop stands on for each member of all batches, in one row."""
        values = [self._row(i, x) for i, x in enumerate(default_engine().evaluate([i.node for i in self._images[-1]]))]
        return [[row[k] for row in values] for k in range(count)]

    def _row(self, position: int, value: Any) -> Any:
        """Return one value for each member of all batches."""
        flags = [images[position].batched for images in reversed(self._images)]
        counts, own = self.counts(), value.shape[sum(flags) :]
        sizes = [count if flag else 1 for count, flag in zip(counts, flags, strict=True)]
        return np.broadcast_to(value.reshape(*sizes, *own), (*counts, *own)).reshape(-1, *own)

    def counts(self) -> list[int]:
        """Return the numbers of members, those of the outermost batch first."""
        return [int(batch.count) for batch in reversed(self.around)]

    def stand_in(self, values: Any) -> Tensor:
        """Return what stands for the value of a member, given those of all in one row."""
        counts = self.counts()
        whole: Any = constant(np.reshape(values, (*counts, *np.shape(values)[1:])))
        for batch in reversed(self.around):
            whole = batch.stand_in(whole)
        return whole  # type: ignore[no-any-return]

    def steps(self, lengths: Any) -> Tensor:
        """Return the number of steps of a member."""
        return self.stand_in(lengths)

    def view(self, program: Program, finals: Sequence[Image]) -> list[Tensor]:
        """Return what a member sees of a program that has been placed."""
        found = view(program, self.inputs)
        if self.is_single and found:
            self.around[0].images[found[0].inputs[0].id] = dict(enumerate(finals))
        return list(found)


# --- fixed points ----------------------------------------------------------------------------------------------------


class _Forgetful(Adjoint):
    """Runs loops of which nothing is needed but where they end."""

    def attach(self, step: TracedStep, constants: list[Tensor], initial: list[Tensor], run: Run) -> list[Tensor]:
        """Return the final state as tensors that stand for themselves."""
        return [tensor(value) for value in run.final]


class _Search(Program):
    """A search for the fixed points of all members."""

    def __init__(self, step: TracedStep, history: int, tol: float, max_steps: int, batches: tuple[object, ...]) -> None:
        self.batches = batches
        self.lengths: Any = None
        self.residual = 0.0
        self._step, self._settings = step, (history, tol, max_steps)

    def place(self, images: Sequence[Image], count: Any) -> list[Image]:
        """Run the search."""
        if not count:
            self.lengths = np.zeros(0, np.int64)
            return [Image(spread_image(image, 0), True) for image in images[self._step.constants :]]
        found = run_quietly(search_members, self._step, images, count, *self._settings)
        self.lengths, self.residual = found.lengths, found.residual
        return [Image(tensor(leaf), True) for leaf in found.state]


def _implicit(
    traced: Trace,
    strategy: Implicit,
    nest: _Nest,
    finals: Sequence[Image],
    lengths: Any,
    history: int,
    residual: float | None = None,
) -> Iterated:
    """Place the fixed point of a member, whose number of steps is an input of its node."""
    step, arrays, steps = traced.step, nest.whole(finals), nest.steps(lengths)
    if residual is None:
        given = nest.constants(len(lengths))
        residuals = [
            fixed_residual(strategy, step, given[k][: step.constants], [x[k] for x in arrays], int(lengths[k]))
            for k in range(len(lengths))
        ]
        residual = max(residuals, default=0.0)
    packing = Packing(traced.initial)
    others: list[Any] = [None if i in packing.positions else nest.stand_in(x) for i, x in enumerate(arrays)]
    counters = [x for x in others if x is not None]
    if not packing.positions:
        return steps, counters
    route = Route(step, strategy, 0, history, residual, traced.constants, traced.initial, is_counted=True)
    node = _graph.apply(FIXED_POINT, *nest.inputs, *counters, steps, route=route)
    if nest.is_single:
        batch = nest.around[0]
        found = batch.images_of([node])[0].node
        if found.value is None:
            rows = [packing.pack([x[k] for x in arrays]) for k in range(len(lengths))]
            found.value = np.stack(rows) if rows else np.empty((0, packing.size), packing.dtype)
            found.inputs[0].value = (found.value,)
    return steps, packing.unpack_tensors(node, others)
