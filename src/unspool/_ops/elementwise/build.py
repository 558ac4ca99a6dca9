"""Building nodes of elementwise ops: operands become tensors, shapes broadcast, equal recipes become one node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unspool import _core, _graph
from unspool._core import are_known, record, record_beside, unary, unary_inexact
from unspool._dtypes import EXACT, FLOAT64
from unspool._graph import Node
from unspool._ops.broadcasting import align
from unspool._ops.elementwise.conversion import astype
from unspool._ops.leaf import as_operands, as_tensor
from unspool._ops.op import Op

if TYPE_CHECKING:
    from unspool._tensor import Tensor


__all__ = ["as_inexact", "binary", "binary_inexact", "coerce", "nary", "unary", "unary_inexact"]


def binary(op: Op, x1: Any, x2: Any) -> Tensor:
    """Return the node for an elementwise op of two operands."""
    found = record_beside(op, x1, x2)
    return record(op, *coerce(x1, x2)) if found is None else found


def nary(op: Op, *operands: Any, **params: Any) -> Tensor:
    """Return the node for an elementwise op of any number of operands, with or without parameters."""
    if are_known(*operands):
        return _graph.apply(op, *operands, **params)
    tensors, _ = align(*as_operands(*operands))
    return _graph.apply(op, *tensors, **params)


def binary_inexact(op: Op, x1: Any, x2: Any) -> Tensor:
    """Return the node for an op of two operands whose result always has a fractional part."""
    if not (isinstance(x1, Node) and isinstance(x2, Node)):
        x1, x2 = coerce(x1, x2)
    if x1.dtype in EXACT and x2.dtype in EXACT:
        # NumPy makes float16 of two bools; unspool has no such type.
        x1, x2 = astype(x1, FLOAT64), astype(x2, FLOAT64)
    return record(op, x1, x2)


def as_inexact(x: Any) -> Tensor:
    """Return a tensor of floats or complex numbers: itself, or a float64 one made of bools or integers."""
    tensor = as_tensor(x)
    return astype(tensor, FLOAT64) if tensor.dtype in EXACT else tensor


def coerce(x1: Any, x2: Any) -> tuple[Node, Node]:
    """Return tensors for two operands that are not both tensors."""
    return as_operands(x1, x2)  # type: ignore[return-value]


_core.bind(align=align, as_tensor=as_tensor, as_inexact=as_inexact)
