"""Keys, and draws that are one op each: normal and uniform numbers, integers, orders, bools and signs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from unspool._dims import Dim, Size
from unspool._dtypes import BOOL, INEXACT, REAL, as_dtype
from unspool._ops import elementwise, indexing, layout
from unspool._ops.leaf import as_operands, as_shape, as_tensor
from unspool._ops.random import Key, draw_integers, draw_normal, draw_permutation, draw_uniform
from unspool.errors import ArgumentError, DTypeError, ShapeError
from unspool.random._arguments import as_integer, as_key, dtype_among, is_number

if TYPE_CHECKING:
    from unspool._tensor import Tensor


# --- keys ------------------------------------------------------------------------------------------------------------


def key(seed: int) -> Key:
    """Make a key from a seed.

    Examples
    --------
    >>> import unspool as us
    >>> us.random.normal(us.random.key(0), (2, 3)).shape
    (2, 3)
    """
    return Key.from_seed(as_integer(seed, "a seed"))


def split(key: Key, num: int = 2) -> tuple[Key, ...]:
    """Make several keys from one. Their streams are independent of each other and of the given key's.

    Examples
    --------
    >>> import unspool as us
    >>> first, second, third = us.random.split(us.random.key(0), 3)
    """
    parent = as_key(key)
    count = as_integer(num, "the number of keys")
    if count < 0:
        raise ArgumentError(f"the number of keys is at least 0, got {num}")
    return tuple(parent.derive("split", i) for i in range(count))


def fold_in(key: Key, data: int) -> Key:
    """Make one key from a key and an integer, such as the step of a loop.

    Examples
    --------
    >>> import unspool as us
    >>> key = us.random.key(0)
    >>> [us.random.fold_in(key, step) == key for step in range(2)]
    [False, False]
    """
    return as_key(key).derive("fold in", as_integer(data, "what is folded into a key"))


# --- draws -----------------------------------------------------------------------------------------------------------


def normal(key: Key, shape: Size | tuple[Size, ...] = (), dtype: DTypeLike = "float64") -> Tensor:
    """Draw from the standard normal distribution.

    Complex numbers have independent real and imaginary parts of variance 1/2 each, so ``mean(abs(z)**2)`` is about 1.

    Parameters
    ----------
    key : Key
        Made by `key`, `split` or `fold_in`.
    shape : int or tuple of int or Dim
        Sizes may be symbolic.
    dtype : dtype_like
        A floating-point or complex data type.

    Examples
    --------
    >>> import unspool as us
    >>> x = us.tensor([1.0, 2.0])
    >>> noisy = x + 0.1 * us.random.normal(us.random.key(0), (2,))
    >>> us.sum(noisy).grad(x).eval()
    array([1., 1.])
    """
    return draw_normal(as_key(key), as_shape(shape), dtype_among(dtype, INEXACT, "normal"))


def uniform(
    key: Key,
    shape: Size | tuple[Size, ...] = (),
    dtype: DTypeLike = "float64",
    low: Any = 0.0,
    high: Any = 1.0,
) -> Tensor:
    """Draw numbers that are spread evenly over ``[low, high)``.

    Parameters
    ----------
    key : Key
        Made by `key`, `split` or `fold_in`.
    shape : int or tuple of int or Dim
        Sizes may be symbolic.
    dtype : dtype_like
        A floating-point data type.
    low, high : array_like
        The ends of the interval, broadcast to the shape. The result is differentiable in both.

    Examples
    --------
    >>> import unspool as us
    >>> u = us.random.uniform(us.random.key(0), (100,), low=-1.0, high=1.0)
    >>> bool(us.all((u >= -1.0) & (u < 1.0)))
    True
    """
    sizes = as_shape(shape)
    unit = draw_uniform(as_key(key), sizes, dtype_among(dtype, REAL, "uniform"))
    if is_number(low, 0) and is_number(high, 1):
        return unit
    _, first, last = as_operands(unit, low, high)
    return layout.broadcast_to(first, sizes) + layout.broadcast_to(last - first, sizes) * unit


def randint(key: Key, shape: Size | tuple[Size, ...], low: int, high: int, dtype: DTypeLike = "int64") -> Tensor:
    """Draw integers that are spread evenly over ``[low, high)``.

    Examples
    --------
    >>> import unspool as us
    >>> dice = us.random.randint(us.random.key(0), (100,), 1, 7)
    >>> int(us.min(dice)), int(us.max(dice))
    (1, 6)
    """
    wanted = as_dtype(dtype)
    if wanted.kind != "i":
        raise DTypeError(f"randint draws integers, it cannot make {wanted}")
    first, end = as_integer(low, "low"), as_integer(high, "high")
    limits = np.iinfo(wanted)
    if not limits.min <= first < end <= limits.max + 1:
        raise ArgumentError(f"randint needs low < high within the range of {wanted}, got low={low} and high={high}")
    return draw_integers(as_key(key), as_shape(shape), first, end, wanted)


def permutation(key: Key, x: Any, axis: int = 0) -> Tensor:
    """Put things in random order: the numbers 0 … n-1 for a size n, else the entries along an axis.

    Examples
    --------
    >>> import unspool as us
    >>> order = us.random.permutation(us.random.key(0), 4)
    >>> sorted(order.tolist())
    [0, 1, 2, 3]
    """
    if isinstance(x, (int, np.integer, Dim)):
        (size,) = as_shape(x)  # type: ignore[arg-type]
        return draw_permutation(as_key(key), size)
    x = as_tensor(x)
    if not x.shape:
        raise ShapeError("permutation takes a size or a tensor with at least one axis, got a tensor with none")
    along = layout.normalize_axis(axis, x.ndim)
    return indexing.take(x, draw_permutation(as_key(key), x.shape[along]), axis=along)


def shuffle(key: Key, x: Any, axis: int = 0) -> Tensor:
    """Put the entries of a tensor along an axis in random order: `permutation` of a tensor, under its other name.

    Examples
    --------
    >>> import unspool as us
    >>> sorted(us.random.shuffle(us.random.key(0), [3.0, 1.0, 2.0]).tolist())
    [1.0, 2.0, 3.0]
    """
    return permutation(key, as_tensor(x), axis)


def bernoulli(key: Key, p: Any = 0.5, shape: Size | tuple[Size, ...] = ()) -> Tensor:
    """Draw bools that are true with probability ``p``, which is broadcast to the shape.

    Examples
    --------
    >>> import unspool as us
    >>> us.random.bernoulli(us.random.key(0), 0.3, (1000,)).dtype
    dtype('bool')
    """
    sizes = as_shape(shape)
    unit = draw_uniform(as_key(key), sizes, as_dtype("float64"))
    return elementwise.less(unit, layout.broadcast_to(as_tensor(p), sizes))


def rademacher(key: Key, shape: Size | tuple[Size, ...] = (), dtype: DTypeLike = "float64") -> Tensor:
    """Draw +1 and -1 with equal probability.

    Examples
    --------
    >>> import unspool as us
    >>> signs = us.random.rademacher(us.random.key(0), (5,))
    >>> (signs * signs).eval()
    array([1., 1., 1., 1., 1.])
    """
    wanted = as_dtype(dtype)
    if wanted == BOOL:
        raise DTypeError("rademacher draws +1 and -1, which bools do not have")
    bits = draw_integers(as_key(key), as_shape(shape), 0, 2, as_dtype("int64"))
    return elementwise.astype(2 * bits - 1, wanted)
