"""Gradients inside of loops: what a sweep recorded is recorded again for nodes that look the same.

A training loop asks for the gradient of its loss in each step, and each time the loss is made of the same few ops. The
sweep would walk over them, ask each op for its rule, and the rules would record the same nodes as in the step before.
So what a sweep recorded is kept with the line that made the loss, as a *record* (`sweeps.c`): a table of the nodes
between loss and variables, with which those of a later step are compared, and a table of the nodes that were recorded.
A line is a guess, the comparison decides. It looks at all that rules look at: ops, parameters, shapes and dtypes of the
nodes that are swept over, and the ops of those that they read from outside. What is recorded goes through the intern
table and the canonical forms, so it is what the sweep would have recorded.

Constants have to be the very same at first. A rule may read the value of one, and a number that a rule brings along may
happen to be one of the program's. If a second sweep over other constants records the same, those that differ do not
matter from then on; unless the op says that its rules look at values (`by_value`).

No record is made of folded calls, of ops with several outputs that are no loops, nor of anything that rules of a user
had a part in.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unspool import _core
from unspool._autodiff.sweeps.compared import LARGEST, Compared, has_numbers
from unspool._autodiff.sweeps.derived import rules_of_users
from unspool._autodiff.sweeps.reverse import pullback
from unspool._autodiff.sweeps.variables_inside import Inside
from unspool._dims import is_concrete
from unspool._engine.default import default_engine
from unspool._fragments.call import BOUNDS
from unspool._graph import Node, in_order, next_id
from unspool._locks import Lock
from unspool._ops.identity import ALIAS
from unspool._ops.leaf import CONSTANT, unit_seed
from unspool._ops.op import PART
from unspool._records import NamedTuple
from unspool._tensor import Tensor

if TYPE_CHECKING:
    from unspool._core import SweepRecord
    from unspool._engine.engine import Evaluator

# Lines that are remembered, records of one line, and how often a line may fail to give one.
_MOST_LINES = 1024
_MOST_RECORDS = 8
_MOST_FAILURES = 4

# How often a record is made for one line: losses that always look different (a loop of another length) are swept.
_MOST_MADE = 64


class _Table(NamedTuple):
    """What a sweep saw and recorded; the arguments of `_core.sweep_record`."""

    slots: int
    outputs: tuple[int, ...]
    variables: tuple[int, ...]
    compared: list[tuple[Any, ...]]
    boundary: list[tuple[Any, ...]]
    constants: tuple[Node, ...]
    recorded: list[tuple[Any, ...]]
    results: tuple[int, ...]

    def record(self) -> SweepRecord:
        """Return it as what compares and records."""
        return _core.sweep_record(*self._replace(boundary=[(*e[:-2], e[-1]) for e in self.boundary]), ALIAS)

    def joined(self, other: _Table) -> _Table | None:
        """Return what holds for both, where two sweeps differ in nothing but the constants they read from outside.

        Those that differ may be anything then. ``None`` if the sweeps recorded different things.
        """
        # Nodes are compared by identity: tensors that are equal are no answer but a tensor.
        if self._without_constants() != other._without_constants():
            return None
        if list(map(id, self.constants)) != list(map(id, other.constants)):
            return None
        boundary = []
        for one, two in zip(self.boundary, other.boundary, strict=True):
            exact = one[-1] if one[-1] is two[-1] else None
            boundary.append((*one[:-1], exact))
        return self._replace(boundary=boundary)

    def _without_constants(self) -> _Table:
        return self._replace(boundary=[entry[:-1] for entry in self.boundary], constants=())


class _Line:
    """What is known of the gradients of losses that one line makes."""

    __slots__ = ("code", "failures", "made", "records", "visits")

    def __init__(self, code: Any) -> None:
        self.code = code  # its address must not become that of another one
        self.visits = self.failures = self.made = 0
        self.records: list[tuple[_Table, SweepRecord]] = []

    def add(self, table: _Table) -> None:
        """Add what a sweep recorded; together with one that differs in constants alone, if there is one."""
        self.made += 1
        others = []
        for known, record in self.records:
            joined = known.joined(table)
            if joined is None:
                others.append((known, record))
            else:
                table = joined
        self.records = [(table, table.record()), *others][:_MOST_RECORDS]


class Sweeps:
    """The records of an engine, by the line that makes a loss: bounded, the least recently used lines leave first."""

    def __init__(self) -> None:
        self._lines: OrderedDict[Any, _Line] = OrderedDict()
        self._lock = Lock()

    def line_of(self, loss: Node, variables: int) -> _Line:
        """Return what is known of the line that made a loss, for a number of variables."""
        key = (id(loss.code), loss.line, variables)
        line = self._lines.get(key)
        if line is None:
            with self._lock:
                line = self._lines.setdefault(key, _Line(loss.code))
                while len(self._lines) > _MOST_LINES:
                    self._lines.popitem(last=False)
        return line


def pull_one(loss: Tensor, variables: Sequence[Tensor]) -> list[Tensor | None]:
    """Return the cotangent of each variable from a scalar's own, which is 1; ``None`` where it does not reach."""
    engine = default_engine()
    if engine.levels.is_sweeping or not variables:
        return pullback([loss], [unit_seed(loss.dtype)], variables)
    line = _sweeps_of(engine).line_of(loss, len(variables))
    given = (loss, *variables)
    if line.records:
        engine.queue.settle([loss], variables)
        for entry in line.records:
            found = entry[1].repeat(given, BOUNDS.length, BOUNDS.newest, engine.levels.mark)
            if found is not None:
                if line.records[0] is not entry:
                    line.records = [entry, *[other for other in line.records if other is not entry]]
                return found
    line.visits += 1
    began = next_id()
    with rules_of_users() as read:
        results = pullback([loss], [unit_seed(loss.dtype)], variables)
    # The first time it may be the only one. A record has few nodes. Of what was there before it is not known where
    # levels began.
    may_recur = line.visits > 1 and line.failures < _MOST_FAILURES and line.made < _MOST_MADE
    is_new = all(node is None or node.id > began for node in results)
    # A trace for any sizes says nothing of what the line does elsewhere.
    is_new = is_new and all(is_concrete(variable.shape) for variable in variables)
    if may_recur and is_new and len(given) <= LARGEST:
        made = None if read else _make_table(engine, given, results, began)
        if made is None:
            line.failures += 1
        else:
            line.add(made)
    return results


def _sweeps_of(engine: Evaluator) -> Sweeps:
    found: Sweeps | None = engine.sweeps
    if found is None:
        found = engine.sweeps = Sweeps()
    return found


# --- making records --------------------------------------------------------------------------------------------------


def _make_table(
    engine: Evaluator, given: tuple[Node, ...], results: Sequence[Node | None], began: int
) -> _Table | None:
    """Return what a sweep from a loss and variables to results recorded, given the id with which it began.

    ``None`` if no record can be made of it.
    """
    marks = [mark for mark in engine.levels.marks if mark > began]
    with engine.queue.nothing_folds():
        swept = _swept(given)
        recorded = _Recorded(given[0], swept, results) if swept.is_fit else None
        if recorded is None or not recorded.is_fit:
            return None
        made = _Table(
            len(swept.slots),
            (swept.slots[given[0].id],),
            tuple([swept.slots[variable.id] for variable in given[1:]]),
            swept.compared,
            swept.boundary,
            tuple(recorded.constants.values()),
            recorded.entries(marks),
            tuple([-1 if node is None else recorded.slots[node.id] for node in results]),
        )
        again = made.record().repeat(given, BOUNDS.length, BOUNDS.newest, _nothing)
    # What it cannot do for these nodes it will not do for others.
    is_right = again is not None and all(one is other for one, other in zip(again, results, strict=True))
    return made if is_right else None


def _nothing() -> None:
    pass


def _swept(given: tuple[Node, ...]) -> Compared:
    """Return the nodes between a loss and variables."""
    loss, variables = given[0], given[1:]
    # What a single variable is made from does not depend on it.
    ends = {variables[0].id} if len(variables) == 1 else set()
    swept = Compared(given[:1], variables, Inside(variables).first, ends)
    swept.is_fit &= type(loss) is Tensor and bool(loss.inputs) and all(v is not loss for v in variables)
    return swept


class _Recorded:
    """The nodes that a sweep recorded, in order, with their slots and the constants that they read."""

    def __init__(self, loss: Node, swept: Compared, results: Sequence[Node | None]) -> None:
        self.constants: dict[int, Node] = {}
        self._swept = swept
        self._origin = (id(loss.code), loss.lasti)
        found: dict[int, Node] = {}
        stack = [node for node in results if node is not None]
        self.is_fit = all(node.op is not CONSTANT for node in stack)
        while stack and self.is_fit:
            node = stack.pop()
            if node.id in swept.slots or node.id in found or node.id in self.constants:
                continue
            if node.op is CONSTANT:
                self.constants[node.id] = node
                continue
            found[node.id] = node
            stack += node.inputs
            self.is_fit = (
                (type(node) is Tensor or node.op.loop)
                and bool(node.inputs)
                and has_numbers(node)
                and ((id(node.code), node.lasti) in swept.origins or _is_constant(node))
                and len(found) <= LARGEST
            )
        self._order = in_order(list(found.values()), lambda node: node.inputs) if self.is_fit else []
        first = len(swept.slots)
        self.slots = swept.slots | {node.id: first + i for i, node in enumerate(self._order)}
        self._position = {key: ~i for i, key in enumerate(self.constants)}

    def entries(self, marks: list[int]) -> list[tuple[Any, ...]]:
        """Return the nodes as a record has them, given the ids at which the sweep began levels."""
        entries = []
        # What is made of constants alone may have been there before, from another place of the program.
        origins = self._swept.origins
        for node in self._order:
            sources = tuple([self.slots.get(i.id, self._position.get(i.id)) for i in node.inputs])
            place = (id(node.code), node.lasti)
            origin = origins[place if place in origins else self._origin]
            begins = bool(marks) and marks[0] < node.id
            marks = [mark for mark in marks if mark > node.id]
            kind = (node.op, type(node), node.attributes, node.shape, node.dtype, node.key)
            entries.append((*kind, sources, origin, begins, _part_of_loop(node)))
        return entries


def _is_constant(node: Node) -> bool:
    """Whether a node is made of constants alone, few of them, so that every program that records it has the same."""
    seen = {node.id}
    stack = [node]
    while stack:
        operands = stack.pop().inputs
        for operand in operands:
            if operand.op is not CONSTANT and operand.id not in seen:
                if not operand.inputs or len(seen) == LARGEST:
                    return False
                seen.add(operand.id)
                stack.append(operand)
    return True


def _part_of_loop(node: Node) -> int:
    """Return which output of a loop a node is, -1 if it is none."""
    is_part = node.op is PART and node.inputs[0].op.loop
    return node.attributes["index"] if is_part else -1
