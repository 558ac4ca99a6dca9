"""Draws of counts and of categories. They are whole numbers: nothing is differentiated through them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import DTypeLike

from unspool._dims import Dim, Size, equal
from unspool._dtypes import FLOAT64, as_dtype
from unspool._ops import indexing, layout, reduction
from unspool._ops.broadcasting import broadcast_shapes
from unspool._ops.elementwise import add, astype, ceil, divide, log, log1p, maximum, negative
from unspool._ops.elementwise.build import as_inexact
from unspool._ops.leaf import as_shape, as_tensor
from unspool._ops.random import Key, draw_binomial, draw_permutation, draw_poisson, draw_uniform
from unspool.errors import ArgumentError, DTypeError, ShapeError, UnknownSizeError
from unspool.random._arguments import as_key, draw_level, parameters
from unspool.random._basic import randint
from unspool.random._continuous import gumbel

if TYPE_CHECKING:
    from unspool._tensor import Tensor

Shape = Size | tuple[Size, ...]


def poisson(key: Key, lam: Any, shape: Shape | None = None, dtype: DTypeLike = "int64") -> Tensor:
    """Draw counts from the Poisson distribution with mean ``lam``.

    Examples
    --------
    >>> import unspool as us
    >>> us.random.poisson(us.random.key(0), 3.0, (1000,)).dtype
    dtype('int64')
    """
    sizes, (mean,) = parameters(shape, lam)
    return _as_count(draw_poisson(as_key(key), astype(mean, FLOAT64), sizes), dtype, "poisson")


def binomial(key: Key, n: Any, p: Any, shape: Shape | None = None, dtype: DTypeLike = "int64") -> Tensor:
    """Draw how many of ``n`` trials succeed, each with probability ``p``.

    Examples
    --------
    >>> import unspool as us
    >>> us.random.binomial(us.random.key(0), 10, [0.0, 1.0]).eval()
    array([ 0, 10])
    """
    sizes, (trials, chance) = parameters(shape, n, p)
    drawn = draw_binomial(as_key(key), astype(trials, "int64"), astype(chance, FLOAT64), sizes)
    return _as_count(drawn, dtype, "binomial")


def geometric(key: Key, p: Any, shape: Shape | None = None, dtype: DTypeLike = "int64") -> Tensor:
    """Draw how many trials it takes to succeed once, each with probability ``p``: at least 1.

    Examples
    --------
    >>> import unspool as us
    >>> us.random.geometric(us.random.key(0), 1.0, (3,)).eval()
    array([1, 1, 1])
    """
    sizes, (chance,) = parameters(shape, p)
    trials = ceil(divide(log(draw_level(key, sizes)), log1p(negative(chance))))
    return _as_count(maximum(trials, 1.0), dtype, "geometric")


def categorical(key: Key, logits: Any, axis: int = -1, shape: Shape | None = None) -> Tensor:
    """Draw categories with the probabilities ``softmax(logits)``, as positions along an axis.

    Parameters
    ----------
    key : Key
        Made by `key`, `split` or `fold_in`.
    logits : array_like
        Logarithms of the probabilities, up to a constant; minus infinity is never drawn.
    axis : int
        The axis of the categories.
    shape : int or tuple of int or Dim, optional
        What the other axes are broadcast to, by default what they are.

    Examples
    --------
    >>> import unspool as us
    >>> us.random.categorical(us.random.key(0), [0.0, -us.inf], shape=(4,)).eval()
    array([0, 0, 0, 0])
    """
    scores = as_inexact(logits)
    scores = layout.moveaxis(scores, layout.normalize_axis(axis, scores.ndim), -1)
    leading, count = scores.shape[:-1], scores.shape[-1]
    sizes = leading if shape is None else as_shape(shape)
    if len(leading) > len(sizes):
        raise ShapeError(f"logits with the other axes {leading} do not broadcast to draws of shape {sizes}")
    broadcast_shapes(leading, sizes)
    # The largest of numbers with Gumbel noise is each one with its share of the sum of exponentials.
    return reduction.argmax(add(scores, gumbel(key, (*sizes, count), scores.dtype)), axis=-1)


def choice(key: Key, a: Any, shape: Shape = (), replace: bool = True, p: Any = None, axis: int = 0) -> Tensor:
    """Draw entries of a tensor along an axis, or numbers below a size.

    Parameters
    ----------
    key : Key
        Made by `key`, `split` or `fold_in`.
    a : int or array_like
        What to draw from: the numbers 0 … a-1, or the entries along an axis. It is differentiated through.
    shape : int or tuple of int
        How many, in which shape.
    replace : bool
        Whether an entry may be drawn more than once.
    p : array_like, optional
        The probability of each entry. They add up to 1; nothing is differentiated through them.
    axis : int
        The axis along which entries lie.

    Examples
    --------
    >>> import unspool as us
    >>> sorted(us.random.choice(us.random.key(0), 4, (4,), replace=False).tolist())
    [0, 1, 2, 3]
    >>> us.random.choice(us.random.key(0), [5.0, 7.0], (2,), p=[0.0, 1.0]).eval()
    array([7., 7.])
    """
    is_size = isinstance(a, (int, Dim))
    entries = None if is_size else as_tensor(a)
    if entries is not None and not entries.ndim:
        raise ShapeError("choice takes a size or a tensor with at least one axis, got a tensor with none")
    along = 0 if entries is None else layout.normalize_axis(axis, entries.ndim)
    size: Size = a if entries is None else entries.shape[along]
    if isinstance(size, Dim):
        raise UnknownSizeError(f"choice draws from a known number of entries, got {size}")
    positions = _positions(as_key(key), size, as_shape(shape), replace, p)
    return positions if entries is None else indexing.take(entries, positions, axis=along)


def _positions(key: Key, size: int, shape: tuple[Size, ...], replace: bool, p: Any) -> Tensor:
    chances = None if p is None else as_inexact(p)
    if chances is not None and (chances.ndim != 1 or equal(chances.shape[0], size) is False):
        raise ShapeError(f"choice takes one probability for each of {size} entries, got shape {chances.shape}")
    if size < 1:
        raise ArgumentError("choice needs at least one entry to draw from, got none")
    if replace:
        if chances is None:
            return randint(key, shape, 0, size)
        total = reduction.cumsum(chances)
        level = draw_uniform(key, shape, FLOAT64) * total[-1]
        return indexing.searchsorted(total, level, side="right")
    count = 1
    for length in shape:
        if isinstance(length, Dim):
            raise UnknownSizeError(f"choice without replacement draws a known number of entries, got {length}")
        count *= length
    if count > size:
        raise ArgumentError(f"choice without replacement cannot draw {count} of {size} entries")
    if chances is None:
        order = draw_permutation(key, size)
    else:
        order = indexing.argsort(negative(add(log(chances), gumbel(key, (size,)))))
    return layout.reshape(order[:count], shape)


def _as_count(x: Tensor, dtype: DTypeLike, function: str) -> Tensor:
    wanted = as_dtype(dtype)
    if wanted.kind not in "if":
        raise DTypeError(f"{function} draws whole numbers, it cannot make {wanted}")
    return astype(x, wanted)
