"""Binding placeholders to arrays, and symbolic sizes to the numbers that follow from them.

Every size of a bound placeholder is an equation between an expression and a number. The equations are solved one
unknown at a time until nothing more follows; the rest are checks, and a check that fails names both sides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from unspool import _dims
from unspool._dims import Dim
from unspool._dtypes import SUPPORTED
from unspool._graph import Node, Params, SizedParams, describe, source_of
from unspool._ops.leaf import PLACEHOLDER, refuse_masked
from unspool._ops.op import Op
from unspool.errors import (
    DTypeMismatchError,
    RankMismatchError,
    ShapeMismatchError,
    SizeContradictionError,
    UnexpectedBindingError,
    UnknownSizeError,
)


def bind_placeholders(bindings: Mapping[Any, Any]) -> tuple[dict[int, Any], dict[str, int]]:
    """Return the bound arrays by node id and the sizes that follow from them, or raise what does not fit."""
    if not isinstance(bindings, Mapping):
        raise UnexpectedBindingError(f"bindings are a dict of placeholders and their values, got {bindings!r}")
    arrays: dict[int, Any] = {}
    shapes: list[tuple[Node, tuple[int, ...]]] = []
    for node, data in bindings.items():
        if not isinstance(node, Node) or node.op is not PLACEHOLDER:
            what = f"{describe(node)}, made at {source_of(node)}" if isinstance(node, Node) else repr(node)
            raise UnexpectedBindingError(f"only placeholders can be bound, got {what}")
        array = as_value(node, data)
        arrays[node.id] = array
        shapes.append((node, array.shape))
    return arrays, solve_sizes(shapes)


def as_value(node: Node, data: Any) -> Any:
    """Return data as an array of a leaf's dtype and rank, or raise what does not fit."""
    if isinstance(data, Node):
        data = data.eval()  # type: ignore[attr-defined]
    refuse_masked(data)
    try:
        array = np.asarray(data)
    except ValueError as error:
        raise ShapeMismatchError(f"the value bound to {_place(node)} is not an array: {error}") from error
    # A private copy: results may be views of it, and must not change when the caller writes into the array.
    if array.dtype.newbyteorder("=") == node.dtype:
        array = array.astype(node.dtype)
    # Python numbers and lists of them take the placeholder's dtype; arrays have made up their mind.
    elif hasattr(data, "dtype") or array.dtype not in SUPPORTED or not _fits(array, node.dtype):
        raise DTypeMismatchError(f"a value of dtype {array.dtype} was bound to {_place(node)}")
    else:
        array = array.astype(node.dtype)
    check_rank(node, array.shape)
    return array


def check_rank(node: Node, shape: tuple[int, ...]) -> None:
    """Raise `RankMismatchError` if a value of the given shape has another number of axes than a leaf."""
    if len(shape) != len(node.shape):
        raise RankMismatchError(f"a value with {len(shape)} axes (shape {shape}) was bound to {_place(node)}")


def solve_sizes(shapes: Iterable[tuple[Node, tuple[int, ...]]]) -> dict[str, int]:
    """Find the number of every named size, given leaves with the shapes of their values.

    A name inside an expression (``2*n``) is solved for where that is possible. Names that no equation determines have
    no entry; that is an error only where such a size is needed.
    """
    sizes: dict[str, int] = {}
    found_at: dict[str, Node] = {}
    waiting = [(node, axis, shape[axis]) for node, shape in shapes for axis in range(len(shape))]
    while waiting:
        later = []
        for node, axis, number in waiting:
            size = node.shape[axis]
            if not isinstance(size, Dim) or size.names() <= sizes.keys():
                _check_size(node, axis, number, sizes, found_at)
                continue
            try:
                solved = _dims.solve(size, number, sizes)
            except UnknownSizeError as error:
                raise ShapeMismatchError(f"{error}, which is the size of axis {axis} of {_place(node)}") from None
            if solved is None:
                later.append((node, axis, number))
            else:
                sizes[solved[0]] = solved[1]
                found_at[solved[0]] = node
        if len(later) == len(waiting):
            break
        waiting = later
    return sizes


def bind_params(op: Op, params: Params, sizes: Mapping[str, int]) -> Params:
    """Return the parameters of an op with every symbolic size replaced by its number."""
    if type(params) is not SizedParams:
        return params
    bound = dict(params)
    for name in op.sized:
        value = bound[name]
        if isinstance(value, Dim):
            bound[name] = value.bind(sizes)
        elif isinstance(value, tuple):
            bound[name] = tuple(v.bind(sizes) if isinstance(v, Dim) else v for v in value)
    return bound


def _fits(array: Any, dtype: np.dtype[Any]) -> bool:
    """Whether Python numbers, seen as an array, may become the dtype without losing their kind."""
    if not np.can_cast(array.dtype, dtype, "same_kind"):
        return False
    if dtype.kind == "i" and array.dtype.kind == "i" and array.size:
        limits = np.iinfo(dtype)
        return bool(limits.min <= array.min() and array.max() <= limits.max)
    return True


def _check_size(node: Node, axis: int, number: int, sizes: Mapping[str, int], found_at: Mapping[str, Node]) -> None:
    size = node.shape[axis]
    expected = _dims.bind(size, sizes)
    if expected == number:
        return
    message = f"axis {axis} of the value bound to {_place(node)}, has size {number}"
    if isinstance(size, Dim):
        known = "; ".join(
            f"{name} = {sizes[name]} follows from {_place(found_at[name])}" for name in sorted(size.names())
        )
        raise SizeContradictionError(f"{message}, but {size} is {expected} ({known})")
    raise ShapeMismatchError(f"{message}, not {expected}")


def _place(node: Node) -> str:
    return f"{describe(node)}, made at {source_of(node)}"
