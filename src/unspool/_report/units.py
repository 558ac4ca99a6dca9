"""What a value was computed by, unit by unit: the steps of a plain loop as the engine has them.

A *unit* is what ran at once: a call, a piece that was evaluated and waits to be folded, an evaluation that the engine
remembers, or a node by itself. Units know what the program asked for when they ran: their results. That is how a report
finds the numbers that a loop looked at, though nobody has noted them. All of them can be run again, from the leaves to
the loss, and nothing is kept of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from time import perf_counter
from typing import TYPE_CHECKING, Any

from unspool._core import Piece
from unspool._dims import is_concrete
from unspool._engine.interpreter import apply_kernel
from unspool._fragments.call import Call, Projection, link_of, output
from unspool._graph import Node, describe, source_of
from unspool._nan.search import held
from unspool._ops.leaf import CONSTANT, LEAF_OPS
from unspool.errors import UnboundPlaceholderError, UnboundSizeError

if TYPE_CHECKING:
    from unspool._engine.plan import Plan
    from unspool._fragments.fragment import Origin
    from unspool._tensor import Tensor

# Called for each op that ran: its op, parameters and place, what it read and gave, and how many seconds it took.
OnOp = Callable[[Any, Any, "Origin", Sequence[Any], Any, float], None]


class Unit:
    """What ran at once.

    Attributes
    ----------
    key : float
        Where it stands in the program.
    source : Call, Piece or Node
    plan : Plan or None
        What it does, unless it is a single node.
    inputs : tuple of Node
    origins : tuple of (code, offset)
        Where the program recorded each of its ops.
    """

    __slots__ = ("_outputs", "inputs", "key", "origins", "plan", "source")

    def __init__(self, source: Call | Piece | Node) -> None:
        self.source = source
        self.plan: Plan | None = None
        self.inputs: tuple[Node, ...] = source.inputs
        self.origins: tuple[Origin, ...]
        self._outputs: dict[int, Node] = {}
        if isinstance(source, Piece):
            source.site.make_plan()
            self.plan, self.origins, self.key = source.site.plan, source.site.origins, source.newest + 0.5
        elif isinstance(source, Call):
            self.plan, self.origins, self.key = source.plan, source.origins, source.id
        else:
            self.origins, self.key = ((source.code, source.lasti),), source.id

    def has(self, index: int, node: Node) -> None:
        """Note the node that one of its outputs is."""
        self._outputs.setdefault(index, node)
        if isinstance(self.source, Piece):
            self.key = min(self.key if len(self._outputs) > 1 else node.id, node.id)

    @property
    def outputs(self) -> dict[int, Node]:
        """The outputs that something reads, by their positions; a single node is its own."""
        return self._outputs if self.plan is not None else {0: self.source}  # type: ignore[dict-item]

    @property
    def origin(self) -> Origin:
        """Where the program recorded the last of its ops."""
        return self.origins[-1] if self.origins else (self.source.code, self.source.lasti)  # type: ignore[union-attr]

    @property
    def ops(self) -> list[tuple[Any, Origin]]:
        """Its ops and where they were recorded, constants left out."""
        if self.plan is None:
            return [(self.source.op, self.origin)]  # type: ignore[union-attr]
        pairs = zip(self.plan.fragment.body, self.origins, strict=False)
        return [(instruction.op, origin) for instruction, origin in pairs if instruction.op is not CONSTANT]

    def results(self) -> Iterator[tuple[int, int]]:
        """Yield the outputs that the program asked for or had names for: position, and position of the op."""
        if self.plan is None:
            return
        fragment = self.plan.fragment
        seen = set()
        for index, slot in enumerate(fragment.outputs[: fragment.results]):
            position = slot - len(self.inputs)
            if position >= 0 and position not in seen:
                seen.add(position)
                yield index, position

    def tensor(self, index: int) -> Tensor:
        """Return the tensor that an output is."""
        node = self._outputs.get(index)
        if node is None and isinstance(self.source, Call):
            return output(self.source, index)
        return node  # type: ignore[return-value]

    def run(self, arguments: Sequence[Any], on_op: OnOp) -> Any:
        """Run it op by op; return its outputs, or the value of a single node."""
        if self.plan is not None:
            return run_plan(self.plan, arguments, self.origins, on_op)
        node: Any = self.source
        started = perf_counter()
        value = apply_kernel(node, arguments)
        on_op(node.op, node.attributes, self.origin, arguments, value, perf_counter() - started)
        return value


def run_plan(plan: Plan, arguments: Sequence[Any], origins: Sequence[Origin], on_op: OnOp) -> list[Any]:
    """Run a plan op by op and return its outputs."""
    values = list(arguments)
    for position, instruction in enumerate(plan.fragment.body):
        if instruction.op is CONSTANT:
            values.append(instruction.params["literal"].array)
            continue
        inputs = [values[slot] for slot in instruction.operands]
        started = perf_counter()
        value = instruction.op.kernel(*inputs, **plan.params[position])
        elapsed = perf_counter() - started
        on_op(instruction.op, plan.params[position], origins[position], inputs, value, elapsed)
        values.append(value)
    return [values[slot] for slot in plan.fragment.outputs]


class Program:
    """All units that values are computed by, in an order in which they can run.

    Parameters
    ----------
    targets : sequence of Node
    opened : bool
        Whether each op is a unit of its own.
    from_held : bool
        Whether to begin at values that are held, and not at the leaves.

    Attributes
    ----------
    targets : sequence of Node
    is_opened : bool
    units : list of Unit
    leaves : list of Node
        Data, constants; and what is held, if that is where it begins.
    made_by : dict of int to (int, int)
        By the id of a node: the number of the unit that makes it, and which output it is.
    readers : dict of int to list of int
        By the id of a node: the units that read it.
    """

    def __init__(self, targets: Sequence[Node], *, opened: bool = False, from_held: bool = False) -> None:
        self.targets, self.is_opened = targets, opened
        self._held: dict[int, Any] = {}
        self.leaves: list[Node] = []
        found: dict[int, tuple[Any, int]] = {}
        units: dict[int, Unit] = {}
        stack = list({target.id: target for target in targets}.values())
        seen = {target.id for target in targets}
        while stack:
            node = stack.pop()
            value = _known(node) if node.op in LEAF_OPS else held(node) if from_held else None
            if value is not None:
                self.leaves.append(node)
                self._held[node.id] = value
                continue
            source, index = (node, 0) if opened else _source_of(node)
            unit = units.get(id(source))
            if unit is None:
                unit = units[id(source)] = Unit(source)
                for operand in unit.inputs:
                    if operand.id not in seen:
                        seen.add(operand.id)
                        stack.append(operand)
            unit.has(index, node)
            found[node.id] = unit, index
        self.leaves.sort(key=lambda node: node.id)
        self.units = _in_order(list(units.values()), found)
        number = {id(unit): i for i, unit in enumerate(self.units)}
        self.made_by = {key: (number[id(unit)], index) for key, (unit, index) in found.items()}
        self.readers: dict[int, list[int]] = {}
        for i, unit in enumerate(self.units):
            for operand in unit.inputs:
                readers = self.readers.setdefault(operand.id, [])
                if not readers or readers[-1] != i:
                    readers.append(i)

    def run(self, on_op: OnOp, on_unit: Callable[[int, Unit, Any], None]) -> list[Any]:
        """Run all units once more, op by op, and return the values of the targets; others go after their last use."""
        values: dict[int, Any] = dict(self._held)
        targets = {target.id for target in self.targets}
        left = {key: len(readers) for key, readers in self.readers.items()}
        for i, unit in enumerate(self.units):
            results = unit.run([values[operand.id] for operand in unit.inputs], on_op)
            on_unit(i, unit, results)
            for index, node in unit.outputs.items():
                if left.get(node.id) or node.id in targets:
                    values[node.id] = results if unit.plan is None else results[index]
            for operand in {operand.id for operand in unit.inputs}:
                left[operand] -= 1
                if not left[operand] and operand not in targets:
                    del values[operand]
        return [values[target.id] for target in self.targets]


def _source_of(node: Node) -> tuple[Call | Piece | Node, int]:
    """Return what made a node at once, and which of its outputs the node is."""
    if type(node) is Projection:
        return link_of(node)
    piece = getattr(node, "piece", None)
    # What is older than an input of its piece was only met in it, and is made without it.
    if isinstance(piece, Piece) and node.id > piece.newest:
        results = piece.outputs[: piece.site.results]
        for index, reference in enumerate(results):
            if reference() is node and index not in piece.site.apart.results:
                return piece, index
    return node, 0


def _known(leaf: Node) -> Any:
    if leaf.value is None:
        raise UnboundPlaceholderError(
            f"a report is made of values, and {describe(leaf)}, made at {source_of(leaf)}, has none"
        )
    if not is_concrete(leaf.shape):
        raise UnboundSizeError(f"a report needs known sizes, and {describe(leaf)}, made at {source_of(leaf)}, has none")
    return leaf.value


def _in_order(units: list[Unit], found: dict[int, tuple[Unit, int]]) -> list[Unit]:
    """Return units in the order of the program, each after those that it reads."""
    position = {id(unit): i for i, unit in enumerate(units)}
    waiting: list[int] = []
    readers: list[list[int]] = [[] for _ in units]
    for i, unit in enumerate(units):
        sources = {position[id(found[node.id][0])] for node in unit.inputs if node.id in found}
        waiting.append(len(sources))
        for j in sources:
            readers[j].append(i)
    ready = [(units[i].key, i) for i, count in enumerate(waiting) if not count]
    heapify(ready)
    order = []
    while ready:
        i = heappop(ready)[1]
        order.append(units[i])
        for reader in readers[i]:
            waiting[reader] -= 1
            if not waiting[reader]:
                heappush(ready, (units[reader].key, reader))
    return order
