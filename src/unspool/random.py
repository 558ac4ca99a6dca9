"""Random tensors from explicit keys.

A key stands for a stream of random numbers. A function given the same key and shape returns the same tensor, with the
same numbers at every evaluation, in every process. For different numbers use different keys: `split` makes several from
one, `fold_in` makes one from a key and a counter, such as the step of a loop.

>>> import unspool as us
>>> key = us.random.key(0)
>>> first, second = us.random.split(key)
>>> noise = us.random.normal(first, (3,))
>>> noise is us.random.normal(first, (3,))
True
>>> noise is us.random.normal(second, (3,))
False

Use a key for one draw only: two draws from one key are made from the same random bits and are not independent.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from unspool._dims import Dim, Size
from unspool._dtypes import BOOL, INEXACT, REAL, DType, as_dtype
from unspool._ops import elementwise, indexing, layout
from unspool._ops.leaf import as_operands, as_shape, as_tensor
from unspool._ops.random import Key, draw_integers, draw_normal, draw_permutation, draw_uniform
from unspool.errors import ArgumentError, DTypeError, ShapeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

__all__ = [
    "Key",
    "bernoulli",
    "fold_in",
    "key",
    "normal",
    "permutation",
    "rademacher",
    "randint",
    "split",
    "uniform",
]


# --- keys ------------------------------------------------------------------------------------------------------------


def key(seed: int) -> Key:
    """Make a key from a seed.

    Examples
    --------
    >>> import unspool as us
    >>> us.random.normal(us.random.key(0), (2, 3)).shape
    (2, 3)
    """
    return Key.from_seed(_integer(seed, "a seed"))


def split(key: Key, num: int = 2) -> tuple[Key, ...]:
    """Make several keys from one. Their streams are independent of each other and of the given key's.

    Examples
    --------
    >>> import unspool as us
    >>> first, second, third = us.random.split(us.random.key(0), 3)
    """
    parent = _key(key)
    count = _integer(num, "the number of keys")
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
    return _key(key).derive("fold in", _integer(data, "what is folded into a key"))


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
    return draw_normal(_key(key), as_shape(shape), _one_of(dtype, INEXACT, "normal"))


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
    unit = draw_uniform(_key(key), sizes, _one_of(dtype, REAL, "uniform"))
    if _is_number(low, 0) and _is_number(high, 1):
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
    first, end = _integer(low, "low"), _integer(high, "high")
    limits = np.iinfo(wanted)
    if not limits.min <= first < end <= limits.max + 1:
        raise ArgumentError(f"randint needs low < high within the range of {wanted}, got low={low} and high={high}")
    return draw_integers(_key(key), as_shape(shape), first, end, wanted)


def permutation(key: Key, x: Any) -> Tensor:
    """Put things in random order: the numbers 0 … n-1 for a size n, else the entries along the first axis.

    Examples
    --------
    >>> import unspool as us
    >>> order = us.random.permutation(us.random.key(0), 4)
    >>> sorted(order.tolist())
    [0, 1, 2, 3]
    """
    if isinstance(x, (int, np.integer, Dim)):
        (size,) = as_shape(x)  # type: ignore[arg-type]
        return draw_permutation(_key(key), size)
    x = as_tensor(x)
    if not x.shape:
        raise ShapeError("permutation takes a size or a tensor with at least one axis, got a tensor with none")
    return indexing.take(x, draw_permutation(_key(key), x.shape[0]), axis=0)


def bernoulli(key: Key, p: Any = 0.5, shape: Size | tuple[Size, ...] = ()) -> Tensor:
    """Draw bools that are true with probability ``p``, which is broadcast to the shape.

    Examples
    --------
    >>> import unspool as us
    >>> us.random.bernoulli(us.random.key(0), 0.3, (1000,)).dtype
    dtype('bool')
    """
    sizes = as_shape(shape)
    unit = draw_uniform(_key(key), sizes, as_dtype("float64"))
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
    bits = draw_integers(_key(key), as_shape(shape), 0, 2, as_dtype("int64"))
    return elementwise.astype(2 * bits - 1, wanted)


# --- arguments -------------------------------------------------------------------------------------------------------


def _key(value: Any) -> Key:
    if isinstance(value, Key):
        return value
    hint = int(value) if isinstance(value, (int, np.integer)) else 0
    raise DTypeError(f"expected a random key, got {value!r}; make one with us.random.key({hint})")


def _integer(value: Any, what: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise DTypeError(f"{what} is an integer, got {value!r}") from None


def _one_of(dtype: DTypeLike, allowed: frozenset[DType], function: str) -> DType:
    wanted = as_dtype(dtype)
    if wanted not in allowed:
        names = ", ".join(sorted(str(d) for d in allowed))
        raise DTypeError(f"{function} draws numbers of dtype {names}; got {wanted}")
    return wanted


def _is_number(value: Any, number: float) -> bool:
    return type(value) in (int, float) and value == number
