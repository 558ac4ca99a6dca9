"""The graph: immutable nodes, interned so that equal recipes are one object, and walks that never recurse.

A node is *op* applied to *inputs* with static *params*. `apply` makes them: it brings the recipe into canonical form,
looks it up in the intern table and makes a node only if no equal one is alive. The table is keyed by the creation ids
of the inputs and holds weak references; a node removes its own key when it dies, so dropping the last handle on a loop
frees the loop, by reference counting alone.

An input is always made before its consumer, so id order is a topological order. Operators, values and derivatives live
elsewhere; this module must not know about NumPy.
"""

from __future__ import annotations

import heapq
import itertools
import linecache
import os
import sys
import weakref
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import CodeType, FrameType, MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from unspool._dims import Dim, Shape

if TYPE_CHECKING:
    import numpy as np

    from unspool._ops.op import Op
    from unspool._tensor import Tensor

Params: TypeAlias = Mapping[str, Any]

NO_PARAMS: Final[Params] = MappingProxyType({})

# Even numbers: the odd one before a node is left to the call that it may be folded into.
_next_id = itertools.count(0, 2).__next__
_weak = weakref.ref
_new = object.__new__

_table: dict[Any, weakref.ref[Node]] = {}


class Node:
    """One recipe: an op, its inputs and its static parameters, with the shape and dtype that follow from them.

    ``value`` belongs to the engine: the cached value, or the data of a leaf. ``code`` and ``lasti`` are where the
    user's program stood when the node was made; `source_of` decodes them. ``piece`` keeps the record of the evaluation
    that computed the node, for as long as it may still be folded. Once it is folded, ``output`` tells which output of
    its call it is.
    """

    __slots__ = (
        "__weakref__",
        "_name",
        "code",
        "dtype",
        "id",
        "inputs",
        "key",
        "lasti",
        "op",
        "output",
        "params",
        "piece",
        "shape",
        "value",
    )

    op: Op
    inputs: tuple[Node, ...]
    params: Params
    shape: Shape
    dtype: np.dtype[Any]
    id: int
    key: tuple[Any, ...] | None
    output: int
    piece: Any
    value: Any
    _name: str
    code: CodeType
    lasti: int

    def __init__(
        self,
        op: Op,
        inputs: tuple[Node, ...],
        params: Params,
        shape: Any,
        dtype: Any,
        key: tuple[Any, ...] | None,
        code: CodeType,
        lasti: int,
    ) -> None:
        self.op = op
        self.inputs = inputs
        self.params = params
        self.shape = shape
        self.dtype = dtype
        self.id = _next_id()
        self.key = key
        self.value = None
        self.code = code
        self.lasti = lasti

    def __del__(self, _table: Any = _table, _remove: Any = _table.pop) -> None:
        # Bound as defaults because nodes outlive this module's globals when the interpreter shuts down. Another thread
        # may have put an equal node under this key meanwhile: that entry is put back. A reference that is dead already
        # is ours: the garbage collector clears references before it finalises what it found in a cycle.
        try:
            key = self.key
        except AttributeError:
            return  # an interrupt came before the node was complete
        reference = _remove(key, None)
        if reference is not None:
            node = reference()
            if node is not self and node is not None:
                _table.setdefault(key, reference)


class Bundle(Node):
    """The result of an op with several outputs; its ``shape`` and ``dtype`` are tuples with one entry per output.

    Users hold its parts, which are `Tensor` nodes of the op ``part``.
    """

    __slots__ = ()


class SizedParams(dict[str, Any]):
    """Parameters that contain symbolic sizes; the engine replaces them by numbers before it calls a kernel."""

    __slots__ = ()


_tensor_class: type[Node] = Node


def register_tensor_class(cls: type[Node]) -> None:
    """Tell the graph which class users hold (`_tensor` does, once, when it is imported)."""
    global _tensor_class
    _tensor_class = cls


# --- making nodes ----------------------------------------------------------------------------------------------------


def apply(op: Op, *inputs: Node, **params: Any) -> Tensor:
    """Return the node for ``op(*inputs, **params)``: the interned one if it is alive, else a new one."""
    if params:
        key: tuple[Any, ...] = (op.code, tuple(params.items()), *[i.id for i in inputs])
    else:
        key = (op.code, *[i.id for i in inputs])
    reference = _table.get(key)
    if reference is not None:
        node = reference()
        if node is not None:
            return node  # type: ignore[return-value]
    if op.canonical is not None:
        canonical: Tensor | None = op.canonical(*inputs, **params)
        if canonical is not None:
            return canonical
    shape, dtype = op.infer(*inputs, **params)
    return intern(op, inputs, params or NO_PARAMS, shape, dtype, key)


def apply_multi(op: Op, *inputs: Node, **params: Any) -> Bundle:
    """Return the node for an op with several outputs; `unspool._ops.op.parts` gives the tensors."""
    key = (op.code, tuple(params.items()), *[i.id for i in inputs])
    reference = _table.get(key)
    node = reference() if reference is not None else None
    if node is not None:
        return node  # type: ignore[return-value]
    avals = op.infer(*inputs, **params)
    shapes, dtypes = tuple(shape for shape, _ in avals), tuple(dtype for _, dtype in avals)
    return intern(op, inputs, params, shapes, dtypes, key, cls=Bundle)  # type: ignore[return-value]


def intern(
    op: Op,
    inputs: tuple[Node, ...],
    params: Params,
    shape: Any,
    dtype: Any,
    key: tuple[Any, ...] | None,
    cls: type[Node] | None = None,
    sizes_are_known: bool = False,
) -> Tensor:
    """Make a node whose shape and dtype are known and enter it under ``key`` (``None``: never shared)."""
    if op.sized and not sizes_are_known and _has_dims(params, op.sized):
        params = SizedParams(params)
    origin = _given_origin()
    if origin is None or (code := origin.code) is None:
        frame: FrameType | None = sys._getframe(2)  # the caller is always one of ours
        while frame is not None and _is_internal[(code := frame.f_code).co_filename]:
            frame = frame.f_back
        lasti = 0 if frame is None else frame.f_lasti
    else:
        lasti = origin.lasti
    # What `Node.__init__` does, without the call.
    node = _new(cls or _tensor_class)
    node.key = key
    node.op = op
    node.inputs = inputs
    node.params = params
    node.shape = shape
    node.dtype = dtype
    node.id = _next_id()
    node.value = None
    node.code = code  # type: ignore[assignment]
    node.lasti = lasti
    if key is not None:
        reference = _weak(node)
        if _table.setdefault(key, reference) is not reference:
            return resolve_race(key, node)  # type: ignore[arg-type]
    return node  # type: ignore[return-value]


def resolve_race(key: tuple[Any, ...], node: Tensor) -> Tensor:
    """Decide which node a key stands for when another one stood there first.

    Either a thread was faster, and its node is the one, or a dying node has not removed its key yet.
    """
    present = _table.get(key)
    other = None if present is None else present()
    if other is not None:
        node.key = None  # the entry is not its own
        return other  # type: ignore[return-value]
    _table[key] = _weak(node)
    return node


def lookup(key: tuple[Any, ...]) -> Tensor | None:
    """Return the live node interned under a key, if any."""
    reference = _table.get(key)
    return None if reference is None else reference()  # type: ignore[return-value]


def live_node_count() -> int:
    """Return how many interned nodes are alive (leaves and placeholders are not interned)."""
    return len(_table)


def _has_dims(params: Params, names: tuple[str, ...]) -> bool:
    for name in names:
        value = params[name]
        if type(value) is Dim or (type(value) is tuple and any(type(size) is Dim for size in value)):
            return True
    return False


# --- where a node was made -------------------------------------------------------------------------------------------


class _InternalFiles(dict[str, bool]):
    """Remembers which source files belong to unspool, so that their frames are skipped."""

    _root = os.path.dirname(os.path.abspath(__file__)) + os.sep

    def __missing__(self, filename: str) -> bool:
        internal = self[filename] = filename.startswith(self._root)
        return internal


_is_internal = _InternalFiles()


class _Origin:
    """The source position that new nodes inherit; no position: the user's current line."""

    __slots__ = ("code", "lasti")

    code: CodeType | None
    lasti: int


_origin: ContextVar[_Origin | None] = ContextVar("unspool_origin", default=None)
_given_origin = _origin.get


@contextmanager
def origin_scope() -> Iterator[_Origin]:
    """Let derivative rules place nodes as if the user's line that made the primal node had made them.

    The caller sets ``code`` and ``lasti`` on the object this yields; at the end they are what they were.
    """
    before, origin = _given_origin(), _Origin()
    origin.code, origin.lasti = (None, 0) if before is None else (before.code, before.lasti)
    token = _origin.set(origin)
    try:
        yield origin
    finally:
        _origin.reset(token)


def current_origin() -> tuple[CodeType, int]:
    """Return the source position that a new node would get."""
    origin = _given_origin()
    if origin is not None and origin.code is not None:
        return origin.code, origin.lasti
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_internal[frame.f_code.co_filename]:
        frame = frame.f_back
    return frame.f_code, frame.f_lasti


def source_of(node: Node) -> str:
    """Return ``file.py:12: the source line`` for the user's line that made a node."""
    line = node.code.co_firstlineno
    for start, end, number in node.code.co_lines():
        if number is not None and start <= node.lasti < end:
            line = number
    text = linecache.getline(node.code.co_filename, line).strip()
    place = f"{os.path.basename(node.code.co_filename)}:{line}"
    return f"{place}: {text}" if text else place


def describe(node: Node) -> str:
    """Return one line that names a node in error messages: op, shape, dtype, name."""
    name = getattr(node, "_name", None)
    label = f" {name!r}" if name else ""
    return f"{node.op.name}{label} of shape {node.shape} and dtype {node.dtype}"


# --- walks -----------------------------------------------------------------------------------------------------------


def ancestors(nodes: Iterable[Node], *, newer_than: float = -1, until: Container[int] = ()) -> list[Node]:
    """Return the nodes and all they are made from, each once, in topological order.

    Two ways to cut the walk: nodes with the id ``newer_than`` or a smaller one are left out, and so is what the nodes
    with the ids ``until`` are made from.
    """
    seen: set[int] = set()
    found: list[Node] = []
    stack = [node for node in nodes if node.id > newer_than]
    while stack:
        node = stack.pop()
        if node.id not in seen:
            seen.add(node.id)
            found.append(node)
            if node.id not in until:
                for i in node.inputs:
                    if i.id > newer_than and i.id not in seen:
                        stack.append(i)
    return in_order(found)


def inputs_of(node: Node) -> tuple[Node, ...]:
    """Return what a node is made from, calls expanded."""
    return node.inputs


def in_order(nodes: list[Node], inputs: Callable[[Node], Sequence[Node]] = inputs_of) -> list[Node]:
    """Return distinct nodes in topological order: by id, where a node has a larger id than its inputs.

    Nodes that came back from a folded call are younger than what was made from them. With such nodes among them, the
    order is the one by id among those that are possible.
    """
    nodes.sort(key=_by_id)
    if not any(operand.id > node.id for node in nodes for operand in inputs(node)):
        return nodes
    position = {node.id: i for i, node in enumerate(nodes)}
    waiting: dict[int, int] = {}
    consumers: dict[int, list[int]] = {}
    for i, node in enumerate(nodes):
        sources = {position[operand.id] for operand in inputs(node) if operand.id in position}
        waiting[i] = len(sources)
        for j in sources:
            consumers.setdefault(j, []).append(i)
    ready = [i for i, count in waiting.items() if not count]
    order: list[Node] = []
    while ready:
        i = heapq.heappop(ready)
        order.append(nodes[i])
        for consumer in consumers.get(i, ()):
            waiting[consumer] -= 1
            if not waiting[consumer]:
                heapq.heappush(ready, consumer)
    return order


def _by_id(node: Node) -> float:
    return node.id
