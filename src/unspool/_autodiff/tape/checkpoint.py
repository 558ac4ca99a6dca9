"""What a tape holds: the values of its nodes, of which those inside checkpoint segments are dropped and rebuilt.

A `DropPlan` says which values are dropped and when. A `ValueStore` follows it: forwards it drops a value after its last
use, backwards it recomputes those of a segment when the sweep arrives there. That runs the same kernels on the same
values in the same order, so it gives the same bits. Recomputed values live beside the store and belong to one sweep: a
sweep that fails leaves nothing behind.
"""

from __future__ import annotations

import weakref
from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from unspool._autodiff.tape.arithmetic import frozen
from unspool._autodiff.tape.interpreter import Interpreter
from unspool._graph import Node
from unspool._ops.hints import is_kept
from unspool._ops.leaf import LEAF_OPS
from unspool.checkpoint.segments import CheckpointConfig, segment_of


@dataclass(frozen=True, slots=True)
class TapeEvent:
    """What a tape tells its watcher after each thing it does.

    Attributes
    ----------
    action : {"forward", "drop", "rebuild", "reverse"}
        A value was computed, was dropped, was recomputed; or the reverse step of a node was done.
    node : int
        The id of the node.
    live_bytes : int
        The bytes of all arrays that have been values of the tape and still exist, whoever holds them. An array and its
        views count once. Cotangents are not values.
    """

    action: str
    node: int
    live_bytes: int


Watcher: TypeAlias = Callable[[TapeEvent], None]


class ByteCounter:
    """Counts the bytes of arrays from the moment they are entered until Python frees them.

    It holds no array: each is entered with a weak reference. So it measures what really happened, and a reference
    that somebody forgot shows up as bytes that stay.
    """

    def __init__(self, watch: Watcher | None) -> None:
        self._watch = watch
        self._entries: dict[int, Any] = {}
        self._live_bytes = 0

    def enter(self, value: Any) -> None:
        """Count the array, or tuple of arrays, of a node."""
        if self._watch is not None:
            for part in value if isinstance(value, tuple) else (value,):
                owner = _owner(part)
                if id(owner) not in self._entries:
                    self._entries[id(owner)] = weakref.ref(owner, self._freed(id(owner), owner.nbytes))
                    self._live_bytes += owner.nbytes

    def tell(self, action: str, node: int) -> None:
        """Report to the watcher, if there is one."""
        if self._watch is not None:
            self._watch(TapeEvent(action, node, self._live_bytes))

    def _freed(self, key: int, size: int) -> Callable[[Any], None]:
        # Weak: arrays may live longer than their tape, and must not keep the counter and its watcher.
        weak_self = weakref.ref(self)

        def callback(_: Any) -> None:
            counter = weak_self()
            if counter is not None:
                del counter._entries[key]
                counter._live_bytes -= size

        return callback


@dataclass(frozen=True, slots=True)
class DropPlan:
    """Which values are dropped, after which node, and with which others they are rebuilt.

    Attributes
    ----------
    segments : list of int or None
        The segment of each node.
    is_dropped : list of bool
        For each node, whether its value is dropped.
    rebuilt : list of list of int
        For each segment, the nodes whose values it drops, in rising order.
    last_used : dict of int to list of int
        By node, the dropped values that no later node uses.
    """

    segments: list[int | None]
    is_dropped: list[bool]
    rebuilt: list[list[int]]
    last_used: dict[int, list[int]]


def plan_drops(
    config: CheckpointConfig, nodes: Sequence[Node], inputs: Sequence[Sequence[int]], pinned: Collection[int]
) -> DropPlan:
    """Return the plan of a configuration.

    In a segment everything is dropped but leaves, pinned nodes, values that `unspool.keep` holds, and what is used
    outside.
    """
    segments = segment_of(config, len(nodes))
    stays = [node.op in LEAF_OPS or is_kept(node) for node in nodes]
    for position in pinned:
        stays[position] = True
    last_use = list(range(len(nodes)))
    for consumer, operands in enumerate(inputs):
        for operand in operands:
            last_use[operand] = consumer
            stays[operand] = stays[operand] or segments[operand] != segments[consumer]
    plan = DropPlan(segments, [False] * len(nodes), [[] for _ in {*segments} - {None}], {})
    for position, segment in enumerate(segments):
        if segment is not None and not stays[position]:
            plan.is_dropped[position] = True
            plan.rebuilt[segment].append(position)
            plan.last_used.setdefault(last_use[position], []).append(position)
    return plan


class ValueStore:
    """The values of a tape's nodes, as far as the last plan keeps them.

    Attributes
    ----------
    shapes : list of tuple
        The shape of each node's value, known whether or not it is held; a tuple of shapes for several outputs.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        inputs: Sequence[Sequence[int]],
        interpreter: Interpreter,
        bound: dict[int, Any],
        counter: ByteCounter,
    ) -> None:
        self.shapes: list[tuple[Any, ...]] = [()] * len(nodes)
        self._nodes = nodes
        self._inputs = inputs
        self._interpreter = interpreter
        self._values = bound
        self._counter = counter
        for position, node in enumerate(nodes):
            if node.id in bound:
                self._enter(position, bound)

    def value(self, position: int) -> Any:
        """Return the value of a node. One that was dropped is computed from those that are held, and not stored."""
        node = self._nodes[position]
        own: dict[int, Any] = {}
        self._interpreter.evaluate([node], self._values, own)
        return own[node.id]

    def settle(self, plan: DropPlan) -> None:
        """Hold what a plan keeps, and nothing else.

        What is missing is computed, and what is to be dropped goes after its last use. On an empty store this is the
        forward pass; on a store that holds everything it only drops.
        """
        is_wanted = self._wanted(plan)
        kept: set[int] = set()
        for position, node in enumerate(self._nodes):
            if is_wanted[position]:
                self._interpreter.run((node,), self._values)
                self._enter(position, self._values)
                self._counter.tell("forward", position)
            if plan.rebuilt and not plan.is_dropped[position]:
                self._let_go_of_larger_arrays(node, kept)
            for dead in plan.last_used.get(position, ()):
                self._drop(dead, self._values)

    def walk_back(self, plan: DropPlan, positions: Iterable[int]) -> Iterator[tuple[int, Mapping[int, Any]]]:
        """Yield positions, which fall, each with the values that its derivative rules may look at.

        The values of a segment are rebuilt when the walk enters it, and dropped when it leaves.
        """
        inside: int | None = None
        rebuilt: dict[int, Any] = {}
        known: ChainMap[int, Any] = ChainMap(rebuilt, self._values)
        for position in positions:
            segment = plan.segments[position]
            if segment != inside:
                if inside is not None:
                    self._leave(plan.rebuilt[inside], rebuilt)
                if segment is not None:
                    self._rebuild(plan.rebuilt[segment], position, known)
                inside = segment
            yield position, known
            self._counter.tell("reverse", position)
        if inside is not None:
            self._leave(plan.rebuilt[inside], rebuilt)

    def _wanted(self, plan: DropPlan) -> list[bool]:
        """Return for each node whether it has to be computed: it is missing, and is kept or leads to one that is."""
        wanted = [not dropped for dropped in plan.is_dropped]
        for position in range(len(wanted) - 1, -1, -1):
            if self._nodes[position].id in self._values:
                wanted[position] = False
            elif wanted[position]:
                for operand in self._inputs[position]:
                    wanted[operand] = True
        return wanted

    def _rebuild(self, positions: Sequence[int], last: int, known: ChainMap[int, Any]) -> None:
        for position in positions:
            if position > last:
                break
            self._interpreter.run((self._nodes[position],), known)
            self._enter(position, known)
            self._counter.tell("rebuild", position)

    def _leave(self, positions: Sequence[int], rebuilt: dict[int, Any]) -> None:
        for position in positions:
            self._drop(position, rebuilt)

    def _drop(self, position: int, values: dict[int, Any]) -> None:
        if values.pop(self._nodes[position].id, None) is not None:
            self._counter.tell("drop", position)

    def _enter(self, position: int, values: Mapping[int, Any]) -> None:
        value = values[self._nodes[position].id]
        self.shapes[position] = tuple(p.shape for p in value) if isinstance(value, tuple) else tuple(value.shape)
        self._counter.enter(value)

    def _let_go_of_larger_arrays(self, node: Node, kept: set[int]) -> None:
        """Copy a kept value that would hold a much larger array alive; ``kept`` has the ids of arrays that stay."""
        value = self._values[node.id]
        if node.op not in LEAF_OPS:
            parts = value if isinstance(value, tuple) else (value,)
            copies = tuple(part if id(_owner(part)) in kept else _compact(part) for part in parts)
            if any(copy is not part for copy, part in zip(copies, parts, strict=True)):
                value = copies if isinstance(value, tuple) else copies[0]
                self._values[node.id] = value
                self._counter.enter(value)
        kept.update(id(_owner(part)) for part in (value if isinstance(value, tuple) else (value,)))


def _compact(array: Any) -> Any:
    """Return a copy of a view that is less than half of the array behind it, else the view itself.

    Kernels may round differently on another layout, so a view that a copy would lay out anew stays as it is.
    """
    if _owner(array).nbytes <= 2 * array.nbytes:
        return array
    copy = array.copy(order="K")
    return frozen(copy) if copy.strides == array.strides else array


def _owner(array: Any) -> Any:
    """Return the array that owns the memory of an array."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
