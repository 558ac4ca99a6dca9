"""Functional updates: ``t.at[index].set(values)`` and its kin return an updated tensor and leave ``t`` as it is.

An element that an index selects several times is updated several times, in row-major order of the selection: sums and
products accumulate, and the last value that is set stays. Derivatives say the same: the cotangent of an element that
was set goes to the value that stayed, that of a minimum or maximum in equal parts to all that attain it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from unspool import _core, _graph
from unspool._core import are_known
from unspool._dims import Shape
from unspool._dtypes import COMPLEX, INEXACT
from unspool._ops import elementwise
from unspool._ops.elementwise import astype
from unspool._ops.indexing.parse import ParsedIndex, Where, parse_any
from unspool._ops.indexing.repeated import multiply_repeatedly
from unspool._ops.indexing.selection import select
from unspool._ops.indexing.update_ops import SCATTER_ADD, SCATTER_MAX, SCATTER_MIN, SCATTER_SET, SLICE_ADD, SLICE_SET
from unspool._ops.layout import broadcast_to, reshape
from unspool._ops.leaf import as_tensor, scalar
from unspool._ops.op import Op
from unspool.errors import DTypeError, ShapeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


Rule: TypeAlias = "Callable[[ParsedIndex, Tensor], Tensor]"


class IndexUpdater(_core.UpdaterBase):
    """What ``t.at`` is: index it to say which elements to update.

    Examples
    --------
    >>> import unspool as us
    >>> us.tensor([1.0, 2.0, 3.0]).at[1:].multiply(10.0).eval()
    array([ 1., 20., 30.])
    """

    __slots__ = ()

    if TYPE_CHECKING:

        def __getitem__(self, index: Any, /) -> IndexedUpdate: ...


class IndexedUpdate(_core.UpdateBase):
    """Updates of the elements that an index selects; every method returns a new tensor.

    Values broadcast to the shape of the selection and take the dtype of the tensor; those that do not fit (complex into
    real, fractions into integers) are refused with `DTypeError`.

    Examples
    --------
    >>> import unspool as us
    >>> x = us.tensor([1.0, 2.0, 3.0])
    >>> x.at[[0, 0]].add([10.0, 20.0]).eval()
    array([31.,  2.,  3.])
    """

    __slots__ = ()

    @property
    def _parsed(self) -> ParsedIndex:
        return ParsedIndex(self._base, Where(self._index, self._lengths, self._at))

    def get(self) -> Tensor:
        """Return the selected elements: ``t[index]``.

        Examples
        --------
        >>> import unspool as us
        >>> us.tensor([1.0, 2.0, 3.0]).at[1:].get().eval()
        array([2., 3.])
        """
        found = _core.selected(self)
        return select(self._parsed) if found is None else found

    def set(self, values: Any) -> Tensor:
        """Replace the selected elements; of values for one element the last stays.

        Examples
        --------
        >>> import unspool as us
        >>> us.tensor([1.0, 2.0, 3.0]).at[[0, 0]].set([5.0, 6.0]).eval()
        array([6., 2., 3.])
        """
        found = _core.update_at(SLICE_SET, SCATTER_SET, self, values)
        return self._update(set_at, values) if found is None else found

    def add(self, values: Any) -> Tensor:
        """Add to the selected elements; values for one element add up.

        Examples
        --------
        >>> import unspool as us
        >>> us.tensor([1.0, 2.0, 3.0]).at[[0, 0]].add([5.0, 6.0]).eval()
        array([12.,  2.,  3.])
        """
        found = _core.update_at(SLICE_ADD, SCATTER_ADD, self, values)
        return self._update(add_at, values) if found is None else found

    def subtract(self, values: Any) -> Tensor:
        """Subtract from the selected elements; values for one element add up.

        Examples
        --------
        >>> import unspool as us
        >>> us.tensor([1.0, 2.0, 3.0]).at[1:].subtract(1.0).eval()
        array([1., 1., 2.])
        """
        return self.add(elementwise.negative(self._fit(values)))

    def multiply(self, values: Any) -> Tensor:
        """Multiply the selected elements; values for one element all multiply it.

        Examples
        --------
        >>> import unspool as us
        >>> us.tensor([1.0, 2.0, 3.0]).at[[1, 1]].multiply([2.0, 3.0]).eval()
        array([ 1., 12.,  3.])
        """
        return self._combine(elementwise.MULTIPLY, multiply_at, values)

    def divide(self, values: Any) -> Tensor:
        """Divide the selected elements; values for one element all divide it.

        Where elements may be selected several times, this multiplies by the reciprocals.

        Examples
        --------
        >>> import unspool as us
        >>> us.tensor([1.0, 2.0, 3.0]).at[1:].divide(2.0).eval()
        array([1. , 1. , 1.5])
        """
        if self._tensor.dtype not in INEXACT:
            raise DTypeError(f"division gives fractions, which do not fit a tensor of dtype {self._tensor.dtype}")
        return self._combine(elementwise.DIVIDE, _divide_at, values)

    def min(self, values: Any) -> Tensor:
        """Take the smaller of the selected elements and the values.

        Examples
        --------
        >>> import unspool as us
        >>> us.tensor([1.0, 2.0, 3.0]).at[1:].min(2.5).eval()
        array([1. , 2. , 2.5])
        """
        return self._extremum(SCATTER_MIN, elementwise.MINIMUM, values)

    def max(self, values: Any) -> Tensor:
        """Take the larger of the selected elements and the values.

        Examples
        --------
        >>> import unspool as us
        >>> us.tensor([1.0, 2.0, 3.0]).at[:2].max(1.5).eval()
        array([1.5, 2. , 3. ])
        """
        return self._extremum(SCATTER_MAX, elementwise.MAXIMUM, values)

    def _extremum(self, scatter: Op, op: Op, values: Any) -> Tensor:
        if self._tensor.dtype in COMPLEX:
            raise DTypeError(f"there is no smaller or larger among numbers of dtype {self._tensor.dtype}")
        return self._combine(op, lambda parsed, v: _extremum_at(scatter, op, parsed, v), values)

    def _combine(self, op: Op, rule: Rule, values: Any) -> Tensor:
        """Put an op of elements and values in their place; the rule does that in general."""
        found = _core.combine_at(op, SLICE_SET, self, values)
        return self._update(rule, values) if found is None else found

    def _fit(self, values: Any) -> Tensor:
        found = _core.fitted(self, values)
        return _fitted(values, self._base.dtype, self._shape) if found is None else found

    def _update(self, rule: Rule, values: Any) -> Tensor:
        parsed = self._parsed
        updated = rule(parsed, self._fit(values))
        if parsed.base is self._tensor:
            return updated
        # A mask without axes gave the tensor one (see `parse`).
        return updated if len(updated.shape) == len(self._tensor.shape) else reshape(updated, self._tensor.shape)


def update_of(tensor: Tensor, parsed: ParsedIndex) -> IndexedUpdate:
    """Return the update of what a parsed index selects."""
    return IndexedUpdate(tensor, parsed.base, *parsed.where, parsed.shape)


def _general_update(tensor: Tensor, index: Any) -> IndexedUpdate:
    return update_of(tensor, parse_any(tensor, index))


_core.bind(update_class=IndexedUpdate, general_update=_general_update)


def _fitted(values: Any, dtype: Any, shape: Shape) -> Tensor:
    """Return the values in the dtype and shape of a selection."""
    fitted = scalar(values, dtype) if type(values) in (bool, int, float, complex) else as_tensor(values)
    if fitted.dtype is dtype and fitted.shape == shape and are_known(fitted):
        return fitted
    if not np.can_cast(fitted.dtype, dtype, "same_kind"):
        raise DTypeError(f"values of dtype {fitted.dtype} do not fit a tensor of dtype {dtype}; convert them first")
    extra = fitted.ndim - len(shape)
    try:
        if extra > 0 and fitted.shape[:extra] == (1,) * extra:  # NumPy lets leading axes of size 1 go
            fitted = reshape(fitted, fitted.shape[extra:])
        return broadcast_to(astype(fitted, dtype), shape)
    except ShapeError:
        raise ShapeError(
            f"values of shape {fitted.shape} cannot be broadcast to the selected elements, of shape {shape}"
        ) from None


# --- the updates -----------------------------------------------------------------------------------------------------


def _apply_at(op: Op, parsed: ParsedIndex, values: Tensor) -> Tensor:
    x, (index, lengths, at) = parsed
    return _graph.apply(op, x, values, *at, index=index, lengths=lengths)


def set_at(parsed: ParsedIndex, values: Tensor) -> Tensor:
    """Return the indexed tensor with its selected elements replaced."""
    return _apply_at(SCATTER_SET if parsed.where.has_arrays else SLICE_SET, parsed, values)


def add_at(parsed: ParsedIndex, values: Tensor) -> Tensor:
    """Return the indexed tensor with values added to its selected elements."""
    return _apply_at(SCATTER_ADD if parsed.where.has_arrays else SLICE_ADD, parsed, values)


def multiply_at(parsed: ParsedIndex, values: Tensor) -> Tensor:
    """Return the indexed tensor with its selected elements multiplied."""
    if parsed.is_repetitive():
        return reshape(set_at(*multiply_repeatedly(parsed, values)), parsed.base.shape)
    return set_at(parsed, elementwise.multiply(select(parsed), values))


def _divide_at(parsed: ParsedIndex, values: Tensor) -> Tensor:
    if parsed.is_repetitive():
        return multiply_at(parsed, elementwise.divide(1, values))
    return set_at(parsed, elementwise.divide(select(parsed), values))


def _extremum_at(scatter: Op, op: Op, parsed: ParsedIndex, values: Tensor) -> Tensor:
    if parsed.is_repetitive():
        return _apply_at(scatter, parsed, values)
    return set_at(parsed, elementwise.binary(op, select(parsed), values))
