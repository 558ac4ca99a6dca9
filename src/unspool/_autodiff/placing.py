"""The gradient of a loop is a loop: derivative calls that follow each other become one node.

While a sweep walks back through the calls of a loop it would place one derivative call per step. Instead it notes a
`Step`: a derived plan and its inputs, some of which are `Pending`, outputs of earlier steps. Only when a tensor is
needed are the steps made into nodes. Steps of which each reads the one before it are a *chain* (`chain`), if they are
of few kinds and there are many of them; other steps become calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from unspool import _core, _graph
from unspool._autodiff.chain import Chain, StepKind, make_chain
from unspool._core import Pending, Step
from unspool._engine.planning import nbytes
from unspool._fragments.call import make_call, output
from unspool._ops.indexing import getitem
from unspool._ops.op import PART
from unspool._records import NamedTuple

if TYPE_CHECKING:
    from unspool._engine.plan import Plan
    from unspool._graph import Node
    from unspool._tensor import Tensor

# So many steps of each kind, on average, are the fewest that are placed as a chain.
SHORTEST = 4

# More steps than this are placed as several chains, and so are those that stack up more bytes than this, unless they
# are few: what a chain holds stays small beside what the loop took.
LONGEST = 256
_LARGEST_STACK = 1 << 16
_FEW = 16

# Steps of one kind: their plan, and which inputs are which outputs of the step before.
_Wired = tuple[Any, tuple[tuple[int, int], ...]]


def note_step(plan: Plan, inputs: Sequence[Tensor | Pending]) -> Step:
    """Note a derivative call."""
    return _core.step(plan, list(inputs))


class Placed:
    """Where steps have their outputs now: one step at a call, or those of one kind in a chain.

    ``last`` has the outputs of the last step of a chain, ``stacks`` those of all its steps of that kind: for each the
    part it is. ``length`` is how many these are; 0 is for a call.
    """

    __slots__ = ("_parts", "last", "length", "source", "stacks")

    def __init__(self, source: Node, length: int, last: dict[int, int], stacks: dict[int, int]) -> None:
        self.source = source
        self.length = length
        self.last = last
        self.stacks = stacks
        self._parts: dict[int, Tensor] = {}

    def part(self, index: int) -> Tensor:
        """Return a part of a chain."""
        found = self._parts.get(index)
        if found is None:
            found = self._parts[index] = _graph.apply(PART, self.source, index=index)
        return found


def as_tensor(value: Any) -> Tensor:
    """Return a tensor for a contribution: itself, or the output of a step, which is placed if it was not."""
    if type(value) is not Pending:
        return value  # type: ignore[no-any-return]
    step, index = value.step, value.index
    if step.placed is None:
        place_steps(value)
    placed: Any = step.placed
    if not placed.length:
        return output(placed.source, index)
    position = step.position
    if position == placed.length - 1 and index in placed.last:
        return placed.part(placed.last[index])  # type: ignore[no-any-return]
    return getitem(placed.part(placed.stacks[index]), position)


def outputs_of(output: Any) -> Tensor:
    """Return the like of an output of all steps of its kind in a chain, along a new first axis."""
    placed = output.step.placed
    return placed.part(placed.stacks[output.index])  # type: ignore[no-any-return]


def youngest(values: Sequence[Any]) -> Any:
    """Return the output of the latest step among some values; placing it first lets all before it form chains."""
    pending = [v for v in values if type(v) is Pending and v.step.placed is None]
    return max(pending, key=lambda p: p.step.number) if pending else None


def place_steps(last: Pending) -> None:
    """Make nodes of a step and of all it depends on that are not nodes yet."""
    for run, which, kinds in _core.runs(last.step, LONGEST):
        if len(run) >= SHORTEST * len(kinds):
            _place_run(run, which, kinds)
        else:
            _place_apart(run, which, kinds)


def _place_apart(run: list[Step], which: bytes, kinds: tuple[_Wired, ...]) -> None:
    """Place steps of many kinds: those that are alike as chains, the others as calls."""
    first = 0
    while first < len(run):
        # What the first one reads does not have to be wired as what the others do.
        same = which[first + 1 : first + 2]
        stop = first + 1
        if same and kinds[same[0]][0] is run[first].plan:
            stop += len(which) - first - 1 - len(which[first + 1 :].lstrip(same))
        if stop - first >= SHORTEST:
            _place_run(run[first:stop], bytes(stop - first), (kinds[same[0]],))
        else:
            for step in run[first:stop]:
                _place_call(step)
        first = stop


def _place_call(step: Step) -> None:
    inputs = tuple([as_tensor(value) for value in step.inputs])
    _core.settle([step], Placed(make_call(step.plan, inputs, step.plan.fragment.origins), 0, {}, {}))


def _place_run(run: list[Step], which: bytes, kinds: tuple[_Wired, ...]) -> None:
    stacked = [tuple(sorted(found)) for found in _core.needed(run, which, len(kinds))]
    if not _can_begin(run[0], kinds[which[0]][1]):
        _place_call(run[0])
        run, which = run[1:], which[1:]
    length = len(run)
    if length > _FEW:
        largest = max([_nbytes(kinds[i][0], stacked[i]) for i in {*which}])
        length = min(LONGEST, max(_FEW, _LARGEST_STACK // max(1, largest)))
    for first in range(0, len(run), length):
        _place_chain(run[first : first + length], which[first : first + length], kinds, stacked)


def _can_begin(step: Step, wiring: tuple[tuple[int, int], ...]) -> bool:
    """Whether what a step reads can be outputs of one that was before it: what is one output there is one value."""
    values: dict[int, Any] = {}
    return all(values.setdefault(source, step.inputs[position]) is step.inputs[position] for position, source in wiring)


def _nbytes(plan: Plan, outputs: Sequence[int]) -> int:
    return sum([nbytes(plan.output_shapes[i], plan.output_dtypes[i]) for i in outputs])


def _place_chain(run: list[Step], which: bytes, kinds: tuple[_Wired, ...], stacked: Sequence[tuple[int, ...]]) -> None:
    # In an order that does not depend on which of them comes first, so that chains are alike.
    used = sorted({*which}, key=lambda i: (kinds[i][0].id, kinds[i][1]))
    which = which.translate(bytes([used.index(i) if i in used else 0 for i in range(256)]))
    if len(used) == 1:
        each = [run]
    else:
        each = [[step for step, kind in zip(run, which, strict=True) if kind == i] for i in range(len(used))]
    made = run[-1].made
    last = tuple([i for i in range(len(run[-1].plan.output_shapes)) if i in made])
    shared = tuple(map(_core.shared, each))
    design = _design([kinds[i] for i in used], [stacked[i] for i in used], shared, which, last)
    chain = design.chain
    entering = _core.read_by_each(run[:1], tuple([position for position, _ in chain.kind(0).carried]), as_tensor)
    for steps, kind in zip(each, chain.kinds, strict=True):
        entering += _core.read_by_each(steps[:1], kind.constant, as_tensor)
    varying = [
        _core.read_by_each(steps, kind.varying, as_tensor) for steps, kind in zip(each, chain.kinds, strict=True)
    ]
    entering += (
        varying[0] if len(varying) == 1 else _in_turn(varying, which, [len(kind.varying) for kind in chain.kinds])
    )
    node = make_chain(chain, design.key, design.shapes, design.dtypes, tuple(entering))
    for i, steps in enumerate(each):
        _core.settle(steps, Placed(node, len(steps), design.last if i == which[-1] else {}, design.stacks[i]))


def _in_turn(values: Sequence[list[Any]], which: bytes, counts: Sequence[int]) -> Iterator[Any]:
    """Yield values by kind, so many a step, in the order of steps."""
    begins = [0] * len(values)
    for i in which:
        yield from values[i][begins[i] : begins[i] + counts[i]]
        begins[i] += counts[i]


class _Design(NamedTuple):
    """What chains that are alike have in common. ``last`` and, of each kind, ``stacks`` are as in `Placed`."""

    chain: Chain
    key: tuple[Any, ...]
    shapes: tuple[Any, ...]
    dtypes: tuple[Any, ...]
    last: dict[int, int]
    stacks: list[dict[int, int]]


def _design(
    kinds: Sequence[_Wired],
    stacked: Sequence[tuple[int, ...]],
    shared: tuple[tuple[bool, ...], ...],
    which: bytes,
    last: tuple[int, ...],
) -> _Design:
    """Return the design of a chain. Those of one kind are often alike, others hardly ever."""
    if len(kinds) > 1:
        return _make_design(kinds, stacked, shared, which, last)
    plan, wiring = kinds[0]
    known = "chain", len(which), wiring, shared, last, stacked[0]
    found: _Design | None = plan.derivatives.get(known)
    if found is None:
        found = plan.derivatives[known] = _make_design(kinds, stacked, shared, which, last)
    return found


def _make_design(
    kinds: Sequence[_Wired],
    stacked: Sequence[tuple[int, ...]],
    shared: tuple[tuple[bool, ...], ...],
    which: bytes,
    last: tuple[int, ...],
) -> _Design:
    found: list[StepKind] = []
    stacks: list[dict[int, int]] = []
    part = len(last)
    for (plan, wiring), outputs, same in zip(kinds, stacked, shared, strict=True):
        free = sorted({*range(len(same))} - {position for position, _ in wiring})
        constant = tuple([i for i in free if same[i]])
        varying = tuple([i for i in free if not same[i]])
        found.append(StepKind(plan, wiring, constant, varying, outputs))
        stacks.append({index: part + i for i, index in enumerate(outputs)})
        part += len(outputs)
    chain = Chain(tuple(found), which if len(found) > 1 else b"", len(which), last)
    shapes, dtypes = zip(*chain.avals(), strict=True)
    return _Design(chain, (("chain", chain),), shapes, dtypes, {index: i for i, index in enumerate(last)}, stacks)
