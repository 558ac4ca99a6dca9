"""The gradient of a loop is a loop: derivative calls that follow each other become one node.

While a sweep walks back through the calls of a loop it would place one derivative call per step. Instead it notes a
`Step`: a derived plan and its inputs, some of which are `Pending`, outputs of earlier steps. Only when a tensor is
needed are the steps made into nodes. Steps that follow each other are a *chain* (`chain`), if they are of few kinds and
there are many of them; other steps become calls.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from unspool import _core, _graph
from unspool._core import Pending, Step
from unspool._engine.costs import nbytes
from unspool._fragments.call import make_call, output
from unspool._ops import indexing
from unspool._ops.op import PART
from unspool._records import NamedTuple

if TYPE_CHECKING:
    from unspool._autodiff.sweeps.chain import Chain, StepKind
    from unspool._engine.plan import Plan
    from unspool._graph import Node
    from unspool._tensor import Tensor

# So many steps of each kind, on average, are the fewest that are placed as a chain.
SHORTEST = 4

# More steps than this are placed as several chains, and so are those that stack up more bytes than this, unless they
# are few: what a chain holds stays small beside what the loop took.
LONGEST = 256
_LARGEST_STACK = 1 << 15
_FEW = 16

# So many designs of chains are kept with a plan.
_MOST_DESIGNS = 64

# Steps of one kind: their plan, pairs of an input and the register that it is read from, and of an output and the
# register that it is written to.
Wired = tuple[Any, tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]


def note_step(plan: Plan, inputs: Sequence[Tensor | Pending]) -> Step:
    """Note a derivative call."""
    return _core.step(plan, list(inputs))


class Placed:
    """Where steps have their outputs now: one step at a call, or those of one kind in a chain.

    ``last`` has outputs of the last step of that kind, ``stacks`` those of all of them: for each the part it is.
    ``length`` is how many steps they are; 0 is for a call.
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
    return indexing.getitem(placed.part(placed.stacks[index]), position)


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
        if len(run) >= SHORTEST * len({*which}):
            _place_run(run, which, kinds)
        else:
            _place_apart(run, which, kinds)


def _place_apart(run: list[Step], which: bytes, kinds: tuple[Wired, ...]) -> None:
    """Place steps of many kinds: those of one kind that follow each other as chains, the others as calls."""
    first = 0
    while first < len(run):
        same = which[first : first + 1]
        stop = len(which) - len(which[first:].lstrip(same))
        if stop - first >= SHORTEST:
            _place_run(run[first:stop], bytes(stop - first), (kinds[same[0]],))
        else:
            for step in run[first:stop]:
                inputs = tuple([as_tensor(value) for value in step.inputs])
                _core.settle([step], Placed(make_call(step.plan, inputs, step.plan.fragment.origins), 0, {}, {}))
        first = stop


def _place_run(run: list[Step], which: bytes, kinds: tuple[Wired, ...]) -> None:
    which, kinds = _used(which, kinds)
    ends = _core.ends(run, which, kinds)
    length = len(run)
    if length > _FEW:
        sizes = [_nbytes(plan, found) for (plan, *_), found in zip(kinds, ends[2], strict=True)]
        stacked = sum([sizes[i] for i in which])
        length = min(LONGEST, max(_FEW, _LARGEST_STACK * length // max(1, stacked)))
    if length >= len(run):
        _place_chain(run, which, kinds, *ends)
        return
    for first in range(0, len(run), length):
        part = run[first : first + length]
        which_of_part, kinds_of_part = _used(which[first : first + length], kinds)
        _place_chain(part, which_of_part, kinds_of_part, *_core.ends(part, which_of_part, kinds_of_part))


def _used(which: bytes, kinds: tuple[Wired, ...]) -> tuple[bytes, tuple[Wired, ...]]:
    """Leave out kinds that no step is of, and order the others, whichever comes first, so that chains are alike."""
    used = sorted({*which}, key=lambda i: (kinds[i][0].id, *kinds[i][1:]))
    table = bytearray(256)
    for i, number in enumerate(used):
        table[number] = i
    return which.translate(table), tuple([kinds[i] for i in used])


def _nbytes(plan: Plan, outputs: Iterable[int]) -> int:
    return sum([nbytes(plan.output_shapes[i], plan.output_dtypes[i]) for i in outputs])


def _place_chain(
    run: list[Step],
    which: bytes,
    kinds: tuple[Wired, ...],
    entering: dict[int, Any],
    last: Sequence[set[int]],
    stacked: Sequence[set[int]],
) -> None:
    from unspool._autodiff.sweeps.chain import make_chain

    if len(kinds) == 1:
        each = [run]
    else:
        each = [[step for step, kind in zip(run, which, strict=True) if kind == i] for i in range(len(kinds))]
    leaving = tuple([(tuple(sorted(one)), tuple(sorted(all_))) for one, all_ in zip(last, stacked, strict=True)])
    # What one step alone reads is asked for when it runs: constants are held from the beginning of a chain.
    shared = tuple([_core.shared(steps) if len(steps) > 1 else (False,) * len(steps[0].inputs) for steps in each])
    design = _design(kinds, leaving, shared, which, tuple(entering))
    inputs = [as_tensor(value) for value in entering.values()]
    for steps, kind in zip(each, design.chain.kinds, strict=True):
        inputs += _core.read_by_each(steps[:1], kind.constant, as_tensor)
    varying = [
        _core.read_by_each(steps, kind.varying, as_tensor) for steps, kind in zip(each, design.chain.kinds, strict=True)
    ]
    inputs += varying[0] if len(varying) == 1 else _in_turn(varying, which, design.chain.kinds)
    node = make_chain(design.chain, design.key, design.shapes, design.dtypes, tuple(inputs))
    for steps, parts in zip(each, design.parts, strict=True):
        _core.settle(steps, Placed(node, len(steps), *parts))


def _in_turn(values: Sequence[list[Any]], which: bytes, kinds: Sequence[StepKind]) -> Iterator[Any]:
    """Return what varies, of each kind the values of one step after the other, in the order of steps."""
    rows: list[Iterator[tuple[Any, ...]]] = [
        zip(*[iter(each)] * len(kind.varying)) if kind.varying else itertools.repeat(())  # noqa: B905 — one iterator, many times
        for each, kind in zip(values, kinds, strict=True)
    ]
    return itertools.chain.from_iterable(map(next, map(rows.__getitem__, which)))


class _Design(NamedTuple):
    """What chains that are alike have in common; for each kind of steps, which ``parts`` are as in `Placed`."""

    chain: Chain
    key: tuple[Any, ...]
    shapes: tuple[Any, ...]
    dtypes: tuple[Any, ...]
    parts: list[tuple[dict[int, int], dict[int, int]]]


# For each kind of steps: outputs of the last one that leave a chain, and those of all that do.
_Leaving = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]


def _design(
    kinds: tuple[Wired, ...],
    leaving: _Leaving,
    shared: tuple[tuple[bool, ...], ...],
    which: bytes,
    entering: tuple[int, ...],
) -> _Design:
    """Return the design of a chain; the latest are kept, since a gradient that is taken again has the same."""
    from unspool._autodiff.sweeps.chain import Chain, StepKind

    designs: dict[Any, _Design] = kinds[0][0].derivatives.setdefault("chains", {})
    known = kinds, leaving, shared, which, entering
    design = designs.get(known)
    if design is not None:
        return design
    found: list[StepKind] = []
    for (plan, reads, writes), (last, stacked), same in zip(kinds, leaving, shared, strict=True):
        free = sorted({*range(len(same))} - {position for position, _ in reads})
        constant = tuple([i for i in free if same[i]])
        varying = tuple([i for i in free if not same[i]])
        found.append(StepKind(plan, reads, constant, varying, writes, last, stacked))
    chain = Chain(tuple(found), which if len(found) > 1 else b"", len(which), entering)
    shapes, dtypes = zip(*chain.avals(), strict=True)
    part = itertools.count()
    ends = [dict(zip(kind.last, part, strict=False)) for kind in found]
    stacks = [dict(zip(kind.stacked, part, strict=False)) for kind in found]
    while len(designs) >= _MOST_DESIGNS:
        designs.pop(next(iter(designs), None), None)
    design = _Design(chain, (("chain", chain),), shapes, dtypes, list(zip(ends, stacks, strict=True)))
    designs[known] = design
    return design
