"""Choosing between several tensors by conditions or numbers, and writing into one without changing it.

What is not chosen is absent from derivatives, as with `unspool.where`, of which these are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unspool._dims import Size, minimum
from unspool._dtypes import BOOL, INT64, INTEGERS
from unspool._ops import elementwise, layout
from unspool._ops.checks import one_of
from unspool._ops.creation import arange, size_tensor
from unspool._ops.indexing import flatnonzero, take, take_along_axis
from unspool._ops.indexing.access import getitem
from unspool._ops.leaf import as_operands, as_tensor
from unspool.errors import ArgumentError, DTypeError, ShapeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


# --- choosing --------------------------------------------------------------------------------------------------------


def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Tensor:
    """Choose from the tensor of the first condition that holds, element by element.

    Examples
    --------
    >>> import unspool as us
    >>> x = us.arange(4)
    >>> us.select([x < 1, x < 3], [-x, 10 * x], 7).eval()
    array([ 0, 10, 20,  7])
    """
    for given in (condlist, choicelist):
        if not isinstance(given, (list, tuple)):
            raise ArgumentError(f"select takes lists of conditions and of tensors, got {given!r}")
    if len(condlist) != len(choicelist) or not condlist:
        raise ArgumentError(f"select takes a tensor for each condition, got {len(choicelist)} for {len(condlist)}")
    *choices, chosen = as_operands(*choicelist, default)
    for condition, choice in zip(reversed(condlist), reversed(choices), strict=True):
        condition = as_tensor(condition)
        if condition.dtype != BOOL:
            raise DTypeError(f"conditions are bools, got dtype {condition.dtype}")
        chosen = elementwise.where(condition, choice, chosen)
    return chosen


def piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Tensor:
    """Evaluate a function that is defined in pieces.

    Parameters
    ----------
    x : array_like
        Where to evaluate it.
    condlist : sequence of array_like of bool
        Where each piece holds; where several do, the last one counts.
    funclist : sequence of callable or scalar
        The pieces, functions of tensors or numbers; one more than conditions for where none holds, else 0. Other than
        in NumPy a function is called with all of ``x``; what is not chosen counts neither for values nor derivatives.
    *args, **kw
        Passed to the functions.

    Examples
    --------
    >>> import unspool as us
    >>> x = us.tensor([-1.0, 9.0, 4.0])
    >>> us.piecewise(x, [x > 0], [us.sqrt, lambda x: -x]).eval()
    array([1., 3., 2.])
    """
    x = as_tensor(x)
    conditions = _conditions(condlist, x.ndim)
    if not isinstance(funclist, (list, tuple)) or len(funclist) not in (len(conditions), len(conditions) + 1):
        raise ArgumentError(f"piecewise takes a piece for each of {len(conditions)} conditions, or one more")
    pieces = [piece(x, *args, **kw) if callable(piece) else piece for piece in funclist]
    value = as_tensor(pieces[-1] if len(pieces) > len(conditions) else 0)
    for condition, piece in zip(conditions, pieces, strict=False):
        value = elementwise.where(as_tensor(condition), piece, value)
    return layout.broadcast_to(elementwise.astype(value, x.dtype), x.shape)


def _conditions(condlist: Any, rank: int) -> list[Any]:
    """Return conditions one by one; one alone need not be in a list."""
    if isinstance(condlist, (list, tuple)) and (not condlist or as_tensor(condlist[0]).ndim == rank):
        return list(condlist)
    conditions = as_tensor(condlist)
    return list(layout.unstack(conditions)) if conditions.ndim > rank else [conditions]


def choose(x: Any, choices: Any, mode: str = "raise") -> Tensor:
    """Choose, element by element, from the tensor that a number names.

    Parameters
    ----------
    x : array_like of int
        The number of the tensor to choose from.
    choices : sequence of array_like
        The tensors; they and the numbers broadcast.
    mode : {"raise", "wrap", "clip"}
        What numbers that name no tensor are: an error, counted around, or the nearest one.

    Examples
    --------
    >>> import unspool as us
    >>> us.choose([1, 0], [[1.0, 2.0], [10.0, 20.0]]).eval()
    array([10.,  2.])
    """
    number = as_tensor(x)
    if number.dtype not in INTEGERS:
        raise DTypeError(f"choose takes integers to choose by, got dtype {number.dtype}")
    tensors = list(choices) if isinstance(choices, (list, tuple)) else list(layout.unstack(choices))
    if not tensors:
        raise ArgumentError("choose takes at least one tensor to choose from")
    one_of(mode, ("raise", "wrap", "clip"), "mode")
    number, *found = layout.broadcast_arrays(elementwise.astype(number, INT64), *as_operands(*tensors))
    if mode == "wrap":
        number = elementwise.remainder(number, len(tensors))
    elif mode == "clip":
        number = elementwise.clip(number, 0, len(tensors) - 1)
    return getitem(take_along_axis(layout.stack(found), layout.expand_dims(number, 0), axis=0), 0)


# --- writing without changing ----------------------------------------------------------------------------------------


def put(x: Any, ind: Any, v: Any, mode: str = "raise") -> Tensor:
    """Return the tensor with elements replaced by their places in the flattened tensor.

    NumPy's function of this name writes into its argument; this one returns a new tensor. Of values for one element the
    last stays, and values that are too few repeat.

    Examples
    --------
    >>> import unspool as us
    >>> us.put([[1.0, 2.0], [3.0, 4.0]], [0, 3], 9.0).eval()
    array([[9., 2.],
           [3., 9.]])
    """
    x = as_tensor(x)
    places = layout.ravel(ind)
    if places.dtype not in INTEGERS:
        raise DTypeError(f"positions are integers, got dtype {places.dtype}")
    places = elementwise.astype(places, INT64)
    one_of(mode, ("raise", "wrap", "clip"), "mode")
    size = size_tensor(x.size, INT64)
    if mode == "wrap":
        places = elementwise.remainder(places, size)
    elif mode == "clip":
        places = elementwise.clip(places, 0, size - 1)
    return layout.reshape(layout.ravel(x).at[places].set(_repeated(v, places.shape[0])), x.shape)


def place(x: Any, mask: Any, vals: Any) -> Tensor:
    """Return the tensor with the elements where a mask, which is evaluated, holds replaced by values one after another.

    NumPy's function of this name writes into its argument; this one returns a new tensor. Values that are too few
    repeat.

    Examples
    --------
    >>> import unspool as us
    >>> us.place([1.0, 2.0, 3.0], [True, False, True], [7.0, 8.0]).eval()
    array([7., 2., 8.])
    """
    x, mask = as_tensor(x), as_tensor(mask)
    if mask.shape != x.shape:
        raise ShapeError(f"a mask has the shape of the tensor, {x.shape}, got {mask.shape}")
    return put(x, flatnonzero(mask), vals)


def fill_diagonal(x: Any, val: Any, wrap: bool = False) -> Tensor:
    """Return the tensor with its main diagonal replaced.

    NumPy's function of this name writes into its argument; this one returns a new tensor.

    Parameters
    ----------
    x : array_like
        A matrix, or a tensor with more axes of one size.
    val : array_like
        A number, or values one after another, which repeat.
    wrap : bool
        Let the diagonal of a tall matrix begin again below, with a row between.

    Examples
    --------
    >>> import unspool as us
    >>> us.fill_diagonal(us.zeros((2, 2)), [1.0, 2.0]).eval()
    array([[1., 0.],
           [0., 2.]])
    """
    x = as_tensor(x)
    if x.ndim < 2 or (x.ndim > 2 and len(set(x.shape)) > 1):
        raise ShapeError(f"fill_diagonal takes a matrix, or more axes of one size, got shape {x.shape}")
    step: Size = 1
    for size in x.shape[:0:-1]:
        step = step * size + 1
    flat = layout.ravel(x)
    count = (flat.shape[0] + step - 1) // step if wrap else minimum(x.shape[0], x.shape[1])
    places = elementwise.multiply(arange(count), size_tensor(step, INT64))
    return layout.reshape(flat.at[places].set(_repeated(val, count)), x.shape)


def _repeated(values: Any, count: Size) -> Tensor:
    """Return so many values, repeated as often as that takes."""
    flat = layout.ravel(values)
    if flat.shape[0] in (1, count):
        return layout.broadcast_to(flat, (count,))
    if flat.shape[0] == 0:
        raise ArgumentError("there are no values to write")
    return take(flat, elementwise.remainder(arange(count), size_tensor(flat.shape[0], INT64)))
