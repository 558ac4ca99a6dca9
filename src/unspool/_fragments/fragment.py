"""A fragment: a closed piece of graph, described by its structure alone.

The one idea: number the values of a piece of graph. Slots 0…I-1 are its inputs, slot I+j is the result of instruction
j, and an instruction is an op, its parameters and the slots it reads. No node, no id and no value is left in it, so two
iterations of a loop have the same description, and equal descriptions are one `Fragment`. Sizes are not part of it
either, except where they are written as parameters (a reshape to ``(3, 4)``); a traced function has symbolic sizes
there.

Everything here is data. Plans, calls and derivatives are made from it elsewhere.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np

from unspool._dims import Shape, is_concrete
from unspool._fragments.call import Projection, call_of
from unspool._fragments.residuals import residual_nodes
from unspool._graph import Bundle, Node, Params, SizedParams, ancestors
from unspool._ops.leaf import CONSTANT, LEAF_OPS, constant, identify, is_seed, unit_seed
from unspool._ops.op import Op
from unspool._records import NamedTuple
from unspool._statistics import STATISTICS
from unspool._sweeps import is_swept

if TYPE_CHECKING:
    from types import CodeType

    from unspool._tensor import Tensor

Origin = tuple["CodeType", int]


class Literal:
    """A constant array inside a fragment; literals with equal contents are equal.

    The seed of a backward pass is another one than a 1 of a user's, as it is among nodes.
    """

    __slots__ = ("array", "is_seed", "key")

    def __init__(self, array: Any, is_seed: bool = False) -> None:
        self.array = array
        self.is_seed = is_seed
        self.key = (array.dtype, array.shape, identify(array.tobytes()), is_seed)

    def node(self) -> Tensor:
        """Return the constant that it stands for."""
        return unit_seed(self.array.dtype) if self.is_seed else constant(self.array)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return np.array2string(self.array, threshold=8, edgeitems=2).replace("\n", "")


class Instruction(NamedTuple):
    """One step of a fragment: an op applied to slots. A constant is the op ``constant`` with a `Literal`."""

    op: Op
    operands: tuple[int, ...]
    params: Params


class Fragment:
    """A closed piece of graph without sizes, values or identity; made by `fragment_of`, which shares equal ones.

    Attributes
    ----------
    dtypes : tuple of dtype
        Of the inputs.
    shapes : tuple of Shape, or None
        Symbolic shapes of the inputs, if its parameters refer to their sizes (a traced function); else ``None``.
    body : tuple of Instruction
    outputs : tuple of int
        Slots of the results: first the ``results`` that were asked for, then residuals, which are kept for derivatives.
        A result that derivatives need is among the residuals too: nobody may hold it when they are taken.
    results : int
    origins : tuple of (code, offset)
        Where in the user's program each instruction was first recorded.
    swept : frozenset of int
        The instructions that a derivative sweep made, for reports.
    form : tuple or None
        What files have of it, for whoever writes them.
    """

    __slots__ = (
        "__weakref__",
        "body",
        "dtypes",
        "form",
        "id",
        "key",
        "origins",
        "outputs",
        "results",
        "shapes",
        "slab",
        "swept",
    )

    def __init__(
        self,
        dtypes: tuple[Any, ...],
        shapes: tuple[Shape, ...] | None,
        body: tuple[Instruction, ...],
        outputs: tuple[int, ...],
        results: int,
        origins: tuple[Origin, ...],
        key: tuple[Any, ...],
    ) -> None:
        self.id = _next_id()
        self.dtypes = dtypes
        self.shapes = shapes
        self.body = body
        self.outputs = outputs
        self.results = results
        self.origins = origins
        self.key = key
        self.swept: frozenset[int] = frozenset()
        self.form: Any = None
        # Where among the residuals an output is found, by its position; the first output of a slot stands for it.
        self.slab = {outputs.index(slot): i for i, slot in enumerate(outputs[results:])}

    def __len__(self) -> int:
        return len(self.body)

    def __repr__(self) -> str:
        return f"<Fragment {self.id}: {len(self.dtypes)} inputs, {len(self.body)} ops, {self.results} results>"


_next_id = itertools.count().__next__
_fragments: WeakValueDictionary[tuple[Any, ...], Fragment] = WeakValueDictionary()


def fragment_of(
    dtypes: tuple[Any, ...],
    shapes: tuple[Shape, ...] | None,
    body: tuple[Instruction, ...],
    outputs: tuple[int, ...],
    results: int,
    origins: tuple[Origin, ...],
) -> Fragment:
    """Return the fragment with this structure: the one that is alive, or a new one."""
    steps = tuple((i.op.code, i.operands, tuple(i.params.items())) for i in body)
    key = (dtypes, shapes, steps, outputs, results)
    found = _fragments.get(key)
    if found is None:
        STATISTICS.fragments += 1
        found = _fragments.setdefault(key, Fragment(dtypes, shapes, body, outputs, results, origins, key))
    return found


def live_fragment_count() -> int:
    """Return how many fragments are alive."""
    return len(_fragments)


# --- from nodes ------------------------------------------------------------------------------------------------------


class Captured(NamedTuple):
    """A fragment, the nodes that stand at its inputs, and those of all its slots."""

    fragment: Fragment
    inputs: list[Node]
    nodes: list[Node]


def seal(
    order: Sequence[Node],
    outputs: Iterable[Node],
    residuals: Iterable[Node] = (),
    *,
    inputs: Sequence[Node] = (),
    literals: bool = False,
) -> Captured:
    """Describe nodes, given in topological order, as a fragment.

    What they read and is not among them becomes an input, in order of first use; ``inputs`` come before all others,
    used or not. With ``literals``, constants are written into the fragment instead.
    """
    entering = list(inputs)
    slots: dict[int, int] = {node.id: ~i for i, node in enumerate(entering)}
    steps: list[tuple[Op, tuple[int, ...], Params]] = []
    # What is inside a call is made again whenever it is asked for, unless it is alive. So it has to stay.
    made: list[Node] = []

    def enter(node: Node) -> None:
        if node.id in slots:
            return
        if literals and node.op is CONSTANT:
            slots[node.id] = len(steps)
            steps.append((CONSTANT, (), {"literal": Literal(node.value, is_seed(node))}))
            made.append(node)
        else:
            slots[node.id] = ~len(entering)
            entering.append(node)

    for node in order:
        operands = node.inputs
        for operand in operands:
            enter(operand)
        slots[node.id] = len(steps)
        steps.append((node.op, tuple(slots[operand.id] for operand in operands), node.attributes))
        made.append(node)
    # A result that is not among the nodes is passed on as it is.
    results, extra = list(outputs), list(residuals)
    for node in (*results, *extra):
        enter(node)
    first = len(entering)

    def place(slot: int) -> int:
        return ~slot if slot < 0 else first + slot

    body = tuple(Instruction(op, tuple(map(place, read)), params) for op, read, params in steps)
    kept = [place(slots[node.id]) for node in results]
    symbolic = any(type(i.params) is SizedParams for i in body) or not all(is_concrete(n.shape) for n in entering)
    fragment = fragment_of(
        tuple(node.dtype for node in entering),
        tuple(node.shape for node in entering) if symbolic else None,
        body,
        (*kept, *[place(slots[node.id]) for node in extra]),
        len(kept),
        tuple((node.code, node.lasti) for node in made),
    )
    if not fragment.swept:
        fragment.swept = frozenset([position for position, node in enumerate(made) if is_swept(node.id)])
    return Captured(fragment, entering, [*entering, *made])


def capture(
    inputs: Sequence[Node],
    outputs: Sequence[Node],
    boundary: Sequence[Node] = (),
    *,
    keep_residuals: bool = False,
    closed: bool = False,
) -> Captured:
    """Describe how outputs follow from inputs as a fragment.

    Nodes of the ``boundary`` are inputs too, where they are used. So is everything else that does not depend on an
    input or a boundary node: tensors that a function closes over, and what is made from them. Constants, and what is
    made of constants or symbolic sizes alone, belong to the fragment. With ``keep_residuals``, what
    derivatives of the fragment will need is among its outputs, after the results. If it is ``closed``, only leaves are
    taken from outside.
    """
    starts = {node.id for node in inputs} | {node.id for node in boundary}
    order = dependent_nodes(outputs, starts, closed)
    known = {node.id for node in inputs} | {node.id for node in order}
    # What is passed on as it is comes first; constants are part of the fragment.
    passing = [n for n in {n.id: n for n in outputs}.values() if n.id not in known and n.op is not CONSTANT]
    residuals: list[Node] = []
    if keep_residuals:
        residuals = residual_nodes(order, outputs)
        order += [node for node in residuals if node.id not in known]
    return seal(order, outputs, residuals, inputs=[*inputs, *passing], literals=True)


def dependent_nodes(outputs: Sequence[Node], starts: set[int], everything: bool = False) -> list[Node]:
    """Return, in topological order, the nodes that a fragment with these starts and outputs consists of.

    They depend on a start, or on symbolic sizes, or on constants alone. With ``everything``, all nodes on the way are
    returned, except leaves.
    """
    inside: set[int] = set()
    fixed: set[int] = set()
    order = []
    calls = _CallsOnStarts(starts)
    for node in ancestors(outputs, until=starts):
        if node.id in starts:
            continue
        if node.op in LEAF_OPS:
            if node.op is CONSTANT:
                fixed.add(node.id)
        elif everything or any(i.id in inside or i.id in starts for i in node.inputs) or _is_symbolic(node):
            inside.add(node.id)
            order.append(node)
        elif all(i.id in fixed for i in node.inputs):
            fixed.add(node.id)
            order.append(node)
        elif type(node) is Projection and calls.has(node):
            # It does not depend on a start, but there is no value of it without that of the whole call.
            inside.add(node.id)
            order.append(node)
    # What is made of constants alone may have been met on the way to something that is not part of the fragment.
    read = {node.id for node in outputs}
    for node in reversed(order):
        if node.id in read:
            read.update(i.id for i in node.inputs)
    return [node for node in order if node.id in read]


class _CallsOnStarts:
    """Tells which outputs of calls can be computed only with a start: the call reads one, or what depends on one."""

    def __init__(self, starts: set[int]) -> None:
        self._known = dict.fromkeys(starts, True)
        self._first = min(starts) if starts else 0

    def has(self, projection: Node) -> bool:
        """Whether the call of an output reads a start, or what depends on one."""
        stack = [projection] if self._first else []
        while stack:
            node = stack[-1]
            # What a call reads as a whole, whichever of its outputs this is; what is older than a start is without.
            inputs = call_of(node).inputs if type(node) is Projection else node.inputs
            unknown = [i for i in inputs if i.id not in self._known and i.id > self._first]
            if unknown and node.id not in self._known:
                stack += unknown
                continue
            stack.pop()
            self._known[node.id] = any(self._known.get(i.id, False) for i in inputs)
        return self._known.get(projection.id, False)


def _is_symbolic(node: Node) -> bool:
    if type(node.attributes) is SizedParams:
        return True
    shapes: Any = node.shape if type(node) is Bundle else (node.shape,)
    return not all(is_concrete(shape) for shape in shapes)
