"""Running a long piece of graph that repeats: one plan for the body, one step per repetition.

The repeated sections of a piece (`_fragments.repeats`) are described once, by what their repetitions have in common,
and run by a plan whose inputs are gathered by position. So the time to make plans does not depend on the number of
repetitions. Nodes between the sections run one by one, and so do repetitions that differ from the others in what has to
be kept of them, or in the sizes of what they read.

The outcome is that of a pass node by node (`interpreter.run`): targets, and nodes that are referenced from outside the
piece, keep their values; every other value is freed at its last use; an error names the node that failed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unspool._engine.binding import bind_params
from unspool._engine.failure import failure
from unspool._engine.numpy_values import owned
from unspool._engine.references import IN_A_LIST, count_references
from unspool._fragments.fragment import Fragment, Instruction, fragment_of
from unspool._fragments.repeats import FEWEST, Integers, Repeat, Wiring, find_repeats, wiring_of
from unspool._graph import Node
from unspool._sweeps import is_swept

if TYPE_CHECKING:
    from unspool._engine.plan import Plan

PlanFor = Callable[[Fragment, tuple[Any, ...]], "Plan"]


def run_repeated(order: list[Node], uses: Mapping[int, int], targets: Container[int], plan_for: PlanFor) -> bool:
    """Run pending nodes by repetition, if they repeat; tell whether they did.

    Parameters
    ----------
    order : list of Node
        What has to run, in topological order, without calls. Nothing may refer to these nodes but this list, the graph,
        and those who can ask for their values later.
    uses : mapping of node id to int
        How often each node is used by the others.
    targets : container of node ids
        Nodes whose values are asked for.
    plan_for : callable
        ``plan_for(fragment, shapes)`` returns the plan of a fragment for inputs of the given shapes.
    """
    wiring = wiring_of(order)
    repeats = find_repeats(wiring)
    if not repeats:
        return False
    run = _Run(order, wiring, kept_flags(order, uses, targets))
    done = 0
    for repeat in repeats:
        run.run_nodes(done, repeat.start)
        _Section(run, repeat).run(plan_for)
        done = repeat.stop
    run.run_nodes(done, len(order))
    return True


def kept_flags(order: list[Node], uses: Mapping[int, int], targets: Container[int]) -> Any:
    """Return, per node, whether its value has to be kept: it is a target, or referenced from outside the piece."""
    # Counted without a name for the node, which would be a reference of its own.
    references = np.fromiter(map(count_references, order), np.int64, len(order))
    ids = list(map(attrgetter("id"), order))
    inside = np.fromiter(map(uses.__getitem__, ids), np.int64, len(order))
    wanted = np.fromiter(map(targets.__contains__, ids), np.bool_, len(order))
    return wanted | (references > inside + IN_A_LIST)


# --- one pass --------------------------------------------------------------------------------------------------------


class _Run:
    """A pass over a piece: the values at hand by position, first those of the piece, then those from outside it."""

    def __init__(self, order: list[Node], wiring: Wiring, kept: Any) -> None:
        size = len(order)
        self.order = order
        self.wiring = wiring
        self.kept = kept
        self.values: list[Any] = [None] * size + [node.value for node in wiring.outside]
        owners = np.repeat(np.arange(size), np.diff(wiring.first))
        # The position of the last node that reads a value. Of several numbers for one index the last one stays, and
        # owners rise. Values from outside are not freed.
        self.last = np.full(len(self.values), -1)
        self.last[wiring.sources] = owners
        self.last[size:] = size
        self.dying = self.last[wiring.sources] == owners

    def node_at(self, position: int) -> Node:
        """Return the node that a position stands for."""
        size = len(self.order)
        return self.order[position] if position < size else self.wiring.outside[position - size]

    def run_nodes(self, lo: int, hi: int) -> None:
        """Run the nodes at positions from ``lo`` up to ``hi`` one by one."""
        values, wiring = self.values, self.wiring
        begin, end = int(wiring.first[lo]), int(wiring.first[hi])
        sources, dying = wiring.sources[begin:end].tolist(), self.dying[begin:end].tolist()
        bounds, kept = (wiring.first[lo : hi + 1] - begin).tolist(), self.kept[lo:hi].tolist()
        for i in range(hi - lo):
            node = self.order[lo + i]
            reads = slice(bounds[i], bounds[i + 1])
            try:
                value = _compute(node, [values[position] for position in sources[reads]])
            except Exception as error:
                raise failure(node, error) from error
            if kept[i]:
                node.value = value = owned(value)
            values[lo + i] = value
            for position, dies in zip(sources[reads], dying[reads], strict=True):
                if dies:
                    values[position] = None


def _compute(node: Node, arguments: list[Any]) -> Any:
    return node.op.kernel(*arguments, **bind_params(node.op, node.attributes, {}))


# --- one section -----------------------------------------------------------------------------------------------------


class _Variant(NamedTuple):
    """A plan of the body that returns the values of the nodes at some offsets."""

    run: Callable[..., tuple[Any, ...]]
    offsets: list[int]


class _Section:
    """A repeated section within a pass.

    Attributes
    ----------
    inputs : array of int
        A row per repetition: the positions of what it reads from outside itself.
    operands : list of tuples of int
        What each node of the body reads: the offset of another one, or ``~i`` for input ``i``.
    kept, later : arrays of bool
        A row per repetition, a column per node of the body: whether the value has to be kept, and whether something
        reads it in the pass after the repetition.
    """

    def __init__(self, run: _Run, repeat: Repeat) -> None:
        start, period, count = repeat.start, repeat.period, repeat.count
        self.pass_over = run
        self.repeat = repeat
        self.ends = start + period * np.arange(1, count + 1)[:, None]
        self.inputs, self.operands = _separate(run.wiring, repeat)
        self.kept = run.kept[start : repeat.stop].reshape(count, period)
        self.later = run.last[start : repeat.stop].reshape(count, period) >= self.ends

    def run(self, plan_for: PlanFor) -> None:
        """Run one repetition after the other: by plan where one fits, else node by node."""
        run = self.pass_over
        start, period, count = self.repeat.start, self.repeat.period, self.repeat.count
        values = run.values
        variants, choice, plain = self.choose(plan_for)
        # What a repetition is the last to read is freed after it.
        dead = run.last[self.inputs] < self.ends
        dying, bounds = self.inputs[dead].tolist(), [0, *np.cumsum(dead.sum(axis=1)).tolist()]
        for i in range(count):
            base = start + i * period
            variant = variants[choice[i]]
            results = None
            if variant is not None:
                try:
                    results = variant.run(*[values[position] for position in self.inputs[i].tolist()])
                except Exception:
                    # Its nodes will show which one failed. If none of them does, the plan is not to be used again.
                    variants[choice[i]] = None
            if variant is None or results is None:
                run.run_nodes(base, base + period)
            elif plain[i]:
                for offset, value in zip(variant.offsets, results, strict=True):
                    values[base + offset] = value
            else:
                self.store(i, variant.offsets, results)
            for position in dying[bounds[i] : bounds[i + 1]]:
                values[position] = None

    def store(self, i: int, offsets: list[int], results: tuple[Any, ...]) -> None:
        """Put the values that a repetition returned where they are asked for later, if they are."""
        run = self.pass_over
        base = self.repeat.start + i * self.repeat.period
        for offset, value in zip(offsets, results, strict=True):
            if self.kept[i, offset]:
                value = run.order[base + offset].value = owned(value)
            if self.later[i, offset]:
                run.values[base + offset] = value

    # -- plans --

    def choose(self, plan_for: PlanFor) -> tuple[list[_Variant | None], list[int], list[bool]]:
        """Make the plans and assign one to each repetition.

        There are at most two: one that returns what is needed of most repetitions, one that returns what is needed of
        any other. The last of the variants is ``None``: no plan. Also tells for which repetitions all that the plan
        returns is read later, and nothing is kept: those need no second look.
        """
        kinds = self.pass_over.wiring.kinds[self.inputs]
        sample = self.repeat.count // 2
        fitting = (kinds == kinds[sample]).all(axis=1)
        needed = self.later | self.kept
        common = _most_common_row(needed)
        served = fitting & ~(needed & ~common).any(axis=1)
        others = fitting & ~served
        choice = np.full(self.repeat.count, -1)
        plain = ~self.kept.any(axis=1)
        variants: list[_Variant | None] = []
        for rows, pattern in ((served, common), (others, needed[others].any(axis=0))):
            if rows.sum() >= FEWEST:
                offsets = np.flatnonzero(pattern)
                choice[rows] = len(variants)
                plain[rows] &= self.later[rows][:, offsets].all(axis=1)
                variants.append(self.make_variant(offsets.tolist(), self.inputs[sample].tolist(), plan_for))
        return [*variants, None], choice.tolist(), plain.tolist()

    def make_variant(self, offsets: list[int], sample: list[int], plan_for: PlanFor) -> _Variant | None:
        """Make the plan that returns the nodes at some offsets, for inputs like those at the sample's positions.

        ``None`` if there is no such plan.
        """
        run = self.pass_over
        start = self.repeat.start
        entering = [run.node_at(position) for position in sample]
        nodes = run.order[start : start + self.repeat.period]
        first = len(entering)
        body = tuple(
            Instruction(node.op, tuple([first + o if o >= 0 else ~o for o in operands]), node.attributes)
            for node, operands in zip(nodes, self.operands, strict=True)
        )
        fragment = fragment_of(
            tuple([node.dtype for node in entering]),
            None,
            body,
            tuple([first + offset for offset in offsets]),
            len(offsets),
            tuple([(node.code, node.lasti) for node in nodes]),
        )
        fragment.swept = frozenset([position for position, node in enumerate(nodes) if is_swept(node.id)])
        try:
            return _Variant(plan_for(fragment, tuple([node.shape for node in entering])).run, offsets)
        except Exception:
            # What does not fit, a size that is not known for instance, is reported by the node, when its turn comes.
            return None


def _separate(wiring: Wiring, repeat: Repeat) -> tuple[Integers, list[tuple[int, ...]]]:
    """Tell what the repetitions of a section read of themselves from what they read from outside: see `_Section`.

    Operands that are one and the same node in every repetition are one input.
    """
    start, period, count = repeat.start, repeat.period, repeat.count
    size = len(wiring.tokens)
    begin = int(wiring.first[start])
    bounds = (wiring.first[start : start + period + 1] - begin).tolist()
    reads = wiring.sources[begin : begin + count * bounds[-1]].reshape(count, bounds[-1])
    columns: list[int] = []
    inputs: dict[bytes, int] = {}
    operands: list[int] = []
    for column, source in enumerate(reads[0].tolist()):
        if start <= source < size:
            operands.append(source - start)
            continue
        entry = inputs.setdefault(reads[:, column].tobytes(), len(inputs))
        if entry == len(columns):
            columns.append(column)
        operands.append(~entry)
    return reads[:, columns], [tuple(operands[bounds[i] : bounds[i + 1]]) for i in range(period)]


def _most_common_row(flags: Any) -> Any:
    """Return the row that occurs most often in a table of flags."""
    packed = np.packbits(flags, axis=1)
    data, width = packed.tobytes(), packed.shape[1]
    rows = [data[i : i + width] for i in range(0, len(data), width)]
    return flags[rows.index(Counter(rows).most_common(1)[0][0])]
