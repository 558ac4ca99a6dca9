"""Building nodes of elementwise ops: operands become tensors, shapes broadcast, equal recipes become one node."""

from __future__ import annotations

from sys import _getframe
from typing import TYPE_CHECKING, Any

from unspool import _graph
from unspool._dtypes import EXACT, FLOAT64
from unspool._graph import (
    NO_PARAMS,
    Node,
    _given_origin,
    _is_internal,
    _new,
    _next_id,
    _table,
    _weak,
    intern,
    resolve_race,
)
from unspool._ops.broadcasting import align
from unspool._ops.elementwise.conversion import astype
from unspool._ops.leaf import as_operands, as_tensor, scalar
from unspool._ops.op import Op

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def unary(op: Op, x: Any) -> Tensor:
    """Return the node for an elementwise op of one tensor."""
    return record_one(op, x if isinstance(x, Node) else as_tensor(x))  # type: ignore[arg-type]


def binary(op: Op, x1: Any, x2: Any) -> Tensor:
    """Return the node for an elementwise op of two operands."""
    if not (isinstance(x1, Node) and isinstance(x2, Node)):
        x1, x2 = _coerce(x1, x2)
    return record(op, x1, x2)


def record_one(op: Op, x: Tensor) -> Tensor:
    """Return the node for an elementwise op of one tensor: `_graph.apply` written out."""
    key = (op.code, x.id)
    reference = _table.get(key)
    if reference is not None:
        found = reference()
        if found is not None:
            return found  # type: ignore[return-value]
    if op.canonical is not None:
        canonical: Tensor | None = op.canonical(x)
        if canonical is not None:
            return canonical
    return intern(op, (x,), NO_PARAMS, x.shape, op.result_dtypes[(x.dtype,)], key)


def record(op: Op, x1: Tensor, x2: Tensor) -> Tensor:
    """Return the node for an elementwise op of two tensors: `_graph.apply` written out, the hot path of recording."""
    left = x1.id
    right = x2.id
    if left > right and x1.dtype in op.commuting and x2.dtype in op.commuting:
        x1, x2, left, right = x2, x1, right, left
    key = (op.code, left, right)
    reference = _table.get(key)
    if reference is not None:
        found = reference()
        if found is not None:
            return found  # type: ignore[return-value]
    if op.canonical is not None:
        canonical: Tensor | None = op.canonical(x1, x2)
        if canonical is not None:
            return canonical
    shape = x1.shape
    if shape != x2.shape and x2.shape:
        if not shape:
            shape = x2.shape
        else:
            (x1, x2), shape = align(x1, x2)
            key = (op.code, x1.id, x2.id)
    origin = _given_origin()
    if origin is None or (code := origin.code) is None:
        frame = _getframe(2)  # the caller is always one of ours
        while _is_internal[(code := frame.f_code).co_filename]:
            frame = frame.f_back  # type: ignore[assignment]
        lasti = frame.f_lasti
    else:
        lasti = origin.lasti
    dtype = op.result_dtypes[x1.dtype, x2.dtype]
    # What `Node.__init__` does, without the call.
    node: Any = _new(_graph._tensor_class)
    node.key = key
    node.op = op
    node.inputs = (x1, x2)
    node.params = NO_PARAMS
    node.shape = shape
    node.dtype = dtype
    node.id = _next_id()
    node.value = None
    node.code = code
    node.lasti = lasti
    reference = _weak(node)
    return node if _table.setdefault(key, reference) is reference else resolve_race(key, node)


def nary(op: Op, *operands: Any, **params: Any) -> Tensor:
    """Return the node for an elementwise op of any number of operands, with or without parameters."""
    tensors, _ = align(*as_operands(*operands))
    return _graph.apply(op, *tensors, **params)


def unary_inexact(op: Op, x: Any) -> Tensor:
    """Return the node for an op that always has a fractional part: bools and integers become float64 first."""
    if not isinstance(x, Node) or x.dtype in EXACT:
        x = as_inexact(x)
    return record_one(op, x)


def binary_inexact(op: Op, x1: Any, x2: Any) -> Tensor:
    """Return the node for an op of two operands whose result always has a fractional part."""
    if not (isinstance(x1, Node) and isinstance(x2, Node)):
        x1, x2 = _coerce(x1, x2)
    if x1.dtype in EXACT and x2.dtype in EXACT:
        # NumPy makes float16 of two bools; unspool has no such type.
        x1, x2 = astype(x1, FLOAT64), astype(x2, FLOAT64)
    return record(op, x1, x2)


def as_inexact(x: Any) -> Tensor:
    """Return a tensor of floats or complex numbers: itself, or a float64 one made of bools or integers."""
    tensor = as_tensor(x)
    return astype(tensor, FLOAT64) if tensor.dtype in EXACT else tensor


def _coerce(x1: Any, x2: Any) -> tuple[Node, Node]:
    if isinstance(x1, Node) and type(x2) in (float, int):
        return x1, scalar(x2, x1.dtype)
    if isinstance(x2, Node) and type(x1) in (float, int):
        return scalar(x1, x2.dtype), x2
    return as_operands(x1, x2)  # type: ignore[return-value]
