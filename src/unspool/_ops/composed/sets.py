"""Sets of elements. How many a set has depends on values, so these functions evaluate what they are given.

What they return is taken from the operands by positions that are constants, so derivatives go to the elements that
stand for each set; of equal ones that is the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unspool._dtypes import BOOL
from unspool._ops import elementwise, layout
from unspool._ops.checks import one_of
from unspool._ops.creation import size_tensor, zeros
from unspool._ops.indexing import searchsorted, sort, take
from unspool._ops.leaf import as_operands, as_tensor, constant

if TYPE_CHECKING:
    from unspool._tensor import Tensor


# --- unique elements -------------------------------------------------------------------------------------------------


def unique(
    x: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    sorted: bool = True,
) -> Any:
    """Return the elements of a tensor, each once, in rising order.

    Parameters
    ----------
    x : array_like
        The tensor. It is evaluated.
    return_index, return_inverse, return_counts : bool
        Return, too: where each element stands first, which of the elements stands where in ``x``, and how often each
        occurs.
    axis : int, optional
        Compare slices along this axis instead of elements.
    equal_nan : bool
        Whether NaNs are one element.
    sorted : bool
        Changes nothing: the result is always sorted.

    Returns
    -------
    Tensor or tuple of Tensor

    Examples
    --------
    >>> import unspool as us
    >>> us.unique([3.0, 1.0, 3.0]).eval()
    array([1., 3.])
    >>> values, counts = us.unique([3.0, 1.0, 3.0], return_counts=True)
    >>> counts.eval()
    array([1, 2])
    """
    x = as_tensor(x)
    along = None if axis is None else layout.normalize_axis(axis, x.ndim)
    first, inverse, counts = _first_places(x, along, bool(equal_nan))
    values = take(x, first, axis=along)
    extras = ((return_index, first), (return_inverse, inverse), (return_counts, counts))
    wanted = [constant(array) for asked, array in extras if asked]
    return (values, *wanted) if wanted else values


def _first_places(x: Tensor, axis: int | None, equal_nan: bool) -> tuple[Any, Any, Any]:
    """Return where unique elements stand first, which of them stands where, and how often each occurs."""
    _, first, inverse, counts = np.unique(
        x.eval(), return_index=True, return_inverse=True, return_counts=True, axis=axis, equal_nan=equal_nan
    )
    return first, inverse.reshape(x.shape) if axis is None else inverse.reshape(-1), counts


class UniqueAllResult(NamedTuple):
    """Unique elements, where each stands first, which stands where, and how often each occurs."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCountsResult(NamedTuple):
    """Unique elements, and how often each occurs."""

    values: Tensor
    counts: Tensor


class UniqueInverseResult(NamedTuple):
    """Unique elements, and which of them stands where."""

    values: Tensor
    inverse_indices: Tensor


def unique_all(x: Any) -> UniqueAllResult:
    """Return unique elements with all that `unique` can tell of them; NaNs are different from each other.

    Examples
    --------
    >>> import unspool as us
    >>> us.unique_all([3.0, 1.0, 3.0]).inverse_indices.eval()
    array([1, 0, 1])
    """
    return UniqueAllResult(*unique(x, True, True, True, equal_nan=False))


def unique_counts(x: Any) -> UniqueCountsResult:
    """Return unique elements and how often each occurs; NaNs are different from each other.

    Examples
    --------
    >>> import unspool as us
    >>> us.unique_counts([3.0, 1.0, 3.0]).counts.eval()
    array([1, 2])
    """
    return UniqueCountsResult(*unique(x, return_counts=True, equal_nan=False))


def unique_inverse(x: Any) -> UniqueInverseResult:
    """Return unique elements and which of them stands where; NaNs are different from each other.

    Examples
    --------
    >>> import unspool as us
    >>> us.unique_inverse([3.0, 1.0, 3.0]).inverse_indices.eval()
    array([1, 0, 1])
    """
    return UniqueInverseResult(*unique(x, return_inverse=True, equal_nan=False))


def unique_values(x: Any) -> Tensor:
    """Return unique elements in rising order; NaNs are different from each other.

    Examples
    --------
    >>> import unspool as us
    >>> us.unique_values([3.0, 1.0, 3.0]).eval()
    array([1., 3.])
    """
    values: Tensor = unique(x, equal_nan=False)
    return values


# --- sets of two tensors ---------------------------------------------------------------------------------------------


def isin(
    element: Any, test_elements: Any, assume_unique: bool = False, *, invert: bool = False, kind: str | None = None
) -> Tensor:
    """Whether each element is one of others; this needs no value.

    Parameters
    ----------
    element : array_like
        What to look for.
    test_elements : array_like
        Where to look.
    assume_unique, kind
        Change nothing; NumPy chooses an algorithm by them.
    invert : bool
        Whether each element is *not* one of the others.

    Examples
    --------
    >>> import unspool as us
    >>> us.isin([1, 2, 3], [3, 1]).eval()
    array([ True, False,  True])
    """
    if kind is not None:
        one_of(kind, ("sort", "table"), "kind")
    x, others = as_operands(element, test_elements)
    found = _is_among(x, layout.ravel(others))
    return elementwise.logical_not(found) if invert else found


def _is_among(x: Tensor, others: Tensor) -> Tensor:
    size = others.shape[0]
    if size == 0:
        return zeros(x.shape, BOOL)
    # NaN equals nothing, and goes last: what stands where it would be inserted is never equal to it.
    ordered = sort(others)
    places = elementwise.minimum(searchsorted(ordered, x), size_tensor(size, "int64") - 1)
    return elementwise.equal(take(ordered, places), x)


def union1d(x1: Any, x2: Any) -> Tensor:
    """Return the elements that are in at least one of two tensors, each once, in rising order.

    Examples
    --------
    >>> import unspool as us
    >>> us.union1d([1.0, 3.0], [2.0, 3.0]).eval()
    array([1., 2., 3.])
    """
    first, second = as_operands(x1, x2)
    united: Tensor = unique(layout.concat([layout.ravel(first), layout.ravel(second)]))
    return united


def intersect1d(x1: Any, x2: Any, assume_unique: bool = False, return_indices: bool = False) -> Any:
    """Return the elements that are in both of two tensors, each once, in rising order.

    Parameters
    ----------
    x1, x2 : array_like
        The tensors. They are evaluated.
    assume_unique : bool
        Changes nothing; NumPy saves time by it.
    return_indices : bool
        Return, too, where these elements stand first in either tensor, flattened.

    Examples
    --------
    >>> import unspool as us
    >>> us.intersect1d([1.0, 3.0, 4.0], [4.0, 3.0]).eval()
    array([3., 4.])
    """
    first, second = (layout.ravel(x) for x in as_operands(x1, x2))
    _, places, others = np.intersect1d(first.eval(), second.eval(), return_indices=True)
    values = take(first, places)
    return (values, constant(places), constant(others)) if return_indices else values


def setdiff1d(x1: Any, x2: Any, assume_unique: bool = False) -> Tensor:
    """Return the elements of the first tensor that are not in the second, each once, in rising order.

    With ``assume_unique`` they stay in the order they have, and repeat if they do.

    Examples
    --------
    >>> import unspool as us
    >>> us.setdiff1d([4.0, 1.0, 3.0], [3.0]).eval()
    array([1., 4.])
    """
    first, second = (layout.ravel(x) for x in as_operands(x1, x2))
    places = np.arange(len(first)) if assume_unique else _first_places(first, None, True)[0]
    elements = take(first, places)
    return take(elements, np.flatnonzero(~np.isin(elements.eval(), second.eval())))


def setxor1d(x1: Any, x2: Any, assume_unique: bool = False) -> Tensor:
    """Return the elements that are in exactly one of two tensors, each once, in rising order.

    Examples
    --------
    >>> import unspool as us
    >>> us.setxor1d([1.0, 3.0], [2.0, 3.0]).eval()
    array([1., 2.])
    """
    first, second = as_operands(x1, x2)
    pieces = [setdiff1d(first, second), setdiff1d(second, first)]
    return sort(layout.concat(pieces))
