"""What functions that draw do with their arguments: keys, integers, data types, and the shape of a draw."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from unspool._dims import Shape, Size, equal
from unspool._dtypes import FLOAT64, REAL, DType, as_dtype
from unspool._ops import elementwise, layout
from unspool._ops.broadcasting import broadcast_shapes
from unspool._ops.elementwise.build import as_inexact
from unspool._ops.leaf import as_shape
from unspool._ops.random import Key, draw_uniform
from unspool.errors import DTypeError, ShapeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def as_key(value: Any) -> Key:
    """Return a key, or raise `DTypeError` that says how to make one."""
    if isinstance(value, Key):
        return value
    hint = int(value) if isinstance(value, (int, np.integer)) else 0
    raise DTypeError(f"expected a random key, got {value!r}; make one with us.random.key({hint})")


def as_integer(value: Any, what: str) -> int:
    """Return an integer, or raise `DTypeError` that says what should be one."""
    try:
        return operator.index(value)
    except TypeError:
        raise DTypeError(f"{what} is an integer, got {value!r}") from None


def dtype_among(dtype: DTypeLike, allowed: frozenset[DType], function: str) -> DType:
    """Return a data type that a function can draw, or raise `DTypeError` that names all of them."""
    wanted = as_dtype(dtype)
    if wanted not in allowed:
        names = ", ".join(sorted(str(d) for d in allowed))
        raise DTypeError(f"{function} draws numbers of dtype {names}; got {wanted}")
    return wanted


def is_number(value: Any, number: float) -> bool:
    """Whether an argument is this Python number."""
    return type(value) in (int, float) and value == number


def parameters(shape: Size | tuple[Size, ...] | None, *values: Any) -> tuple[Shape, list[Tensor]]:
    """Return the shape of a draw, by default that of its parameters, and the parameters broadcast to it."""
    tensors = [as_inexact(value) for value in values]
    together = broadcast_shapes(*[t.shape for t in tensors])
    sizes = together if shape is None else as_shape(shape)
    if len(together) > len(sizes) or any(
        equal(have, 1) is not True and equal(have, want) is False
        for have, want in zip(reversed(together), reversed(sizes), strict=False)
    ):
        raise ShapeError(f"parameters of shape {together} do not broadcast to draws of shape {sizes}")
    return sizes, [layout.broadcast_to(t, sizes) for t in tensors]


def draw_level(key: Any, shape: Shape, dtype: DType = FLOAT64) -> Tensor:
    """Return uniform numbers between 0 and 1, without either: what quantile functions are finite at."""
    half_a_step = 2.0**-54 if dtype == FLOAT64 else 2.0**-25
    return elementwise.maximum(draw_uniform(as_key(key), shape, dtype), half_a_step)


def real_dtype_of(dtype: DTypeLike, function: str) -> DType:
    """Return the floating-point type of a draw."""
    return dtype_among(dtype, REAL, function)
