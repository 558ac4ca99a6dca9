"""The graph: immutable nodes, interned so that equal recipes are one object, and walks that never recurse.

A node is *op* applied to *inputs* with static *params*. `apply` makes them: it brings the recipe into canonical form,
looks it up in the intern table and makes a node only if no equal one is alive. The table does not keep nodes alive; a
node leaves it when it dies, so dropping the last handle on a loop frees the loop, by reference counting alone. Nodes
and table are in C (`src/core`): recording is what every operation of every step pays for.

An input is always made before its consumer, so id order is a topological order. Operators, values and derivatives live
elsewhere; this module must not know about NumPy.
"""

from __future__ import annotations

import linecache
import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import CodeType, MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from unspool import _core
from unspool._core import Bundle, Node, Origin, apply, apply_multi, current_origin, find, intern, next_id
from unspool._dims import Dim

if TYPE_CHECKING:
    from unspool._ops.op import Op

__all__ = ["Bundle", "Node", "apply", "apply_multi", "current_origin", "find", "intern", "next_id"]

Params: TypeAlias = Mapping[str, Any]

NO_PARAMS: Final[Params] = MappingProxyType({})


class SizedParams(dict[str, Any]):
    """Parameters that contain symbolic sizes; the engine replaces them by numbers before it calls a kernel."""

    __slots__ = ()


def with_sizes(params: Params, names: tuple[str, ...]) -> Params:
    """Return parameters as a node keeps them: marked if one of those that may hold symbolic sizes does."""
    for name in names:
        value = params[name]
        if type(value) is Dim or (type(value) is tuple and any(type(size) is Dim for size in value)):
            return SizedParams(params)
    return params


# --- making nodes ----------------------------------------------------------------------------------------------------


def intern_bundle(
    op: Op, inputs: tuple[Node, ...], params: Params, shapes: Any, dtypes: Any, key: tuple[Any, ...]
) -> Bundle:
    """Make the node of an op with several outputs whose shapes and dtypes are known, and enter it."""
    bundle = _core.new(Bundle, op, inputs, params, shapes, dtypes, key, *current_origin())
    return _core.enter(bundle)


def live_node_count() -> int:
    """Return how many interned nodes are alive (leaves and placeholders are not interned)."""
    return _core.count()


# --- where a node was made -------------------------------------------------------------------------------------------


class _InternalFiles(dict[str, bool]):
    """Remembers which source files belong to unspool, so that their frames are skipped.

    The demonstrations of the command line do not: they are programs as users write them.
    """

    _root = os.path.dirname(os.path.abspath(__file__)) + os.sep
    _programs = os.path.join(_root, "_cli") + os.sep

    def __missing__(self, filename: str) -> bool:
        if filename.startswith("<unspool "):
            return True  # generated; each function has a name of its own, so these are not remembered
        internal = filename.startswith(self._root) and not filename.startswith(self._programs)
        self[filename] = internal
        return internal


_is_internal = _InternalFiles()


def is_internal(filename: str) -> bool:
    """Whether a source file belongs to unspool."""
    return _is_internal[filename]


_origin: ContextVar[Origin | None] = ContextVar("unspool_origin", default=None)

_core.bind(no_params=NO_PARAMS, is_internal=_is_internal, origin=_origin, with_sizes=with_sizes)


@contextmanager
def origin_scope() -> Iterator[Origin]:
    """Let derivative rules place nodes as if the user's line that made the primal node had made them.

    The caller sets ``code`` and ``lasti`` on the object this yields; at the end they are what they were.
    """
    before, origin = _origin.get(), Origin()
    if before is not None:
        origin.code, origin.lasti = before.code, before.lasti
    token = _origin.set(origin)
    try:
        yield origin
    finally:
        _origin.reset(token)


def source_of(node: Node) -> str:
    """Return ``file.py:12: the source line`` for the user's line that made a node."""
    return source_at(node.code, node.lasti)


def source_at(code: CodeType, lasti: int) -> str:
    """Return ``file.py:12: the source line`` for a position in the user's program."""
    place = place_at(code, lasti)
    text = linecache.getline(code.co_filename, _line_at(code, lasti)).strip()
    return f"{place}: {text}" if text else place


def place_at(code: CodeType, lasti: int) -> str:
    """Return ``file.py:12`` for a position in the user's program."""
    return f"{os.path.basename(code.co_filename)}:{_line_at(code, lasti)}"


def _line_at(code: CodeType, lasti: int) -> int:
    for start, end, line in code.co_lines():
        if line is not None and start <= lasti < end:
            return line
    return code.co_firstlineno


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
    import heapq

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
