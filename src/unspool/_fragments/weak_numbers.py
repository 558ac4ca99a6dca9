"""Python numbers as arguments of a traced function: known at the call only, and as weak as Python numbers are.

The one idea: a `WeakNumber` is a scalar tensor in Python's own precision that takes the dtype of the tensor it meets,
as a number would. Beside other numbers it stays a number. What needs to know the value (``if``, ``range``, an exponent,
a function that makes a constant of it) raises `UnknownSizeError` with its name; the tracer runs the function again with
the value given, and the value is part of the key. So a number does what it does in plain code, or is not abstract.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

import numpy as np

from unspool._dtypes import COMPLEX128, FLOAT64, INT32, INT64, DType, scalar_dtype
from unspool._graph import Node
from unspool._ops import elementwise
from unspool._ops.leaf import as_tensor, constant
from unspool.errors import UnknownSizeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

Number: TypeAlias = int | float | complex

# From the narrowest to the widest, as Python's arithmetic goes.
DTYPES: Final[dict[type, DType]] = {int: INT64, float: FLOAT64, complex: COMPLEX128}
_WIDTH: Final = {kind: i for i, kind in enumerate(DTYPES)}

# Python's integers have no end. Those that fit an int32 are arguments that may change; int64 carries sums and products
# of them, as long as a float can hold the result exactly.
_ARGUMENT_BITS: Final = 31
_MOST_BITS: Final = 53


def is_weak(value: Any) -> bool:
    """Whether an argument is a number whose value need not be known to trace a function."""
    kind = type(value)
    return kind is float or kind is complex or (kind is int and value.bit_length() <= _ARGUMENT_BITS)


class WeakNumber:
    """A Python number that is known when a fragment is called, not when it is traced."""

    __slots__ = ("bits", "kind", "name", "tensor")

    # Makes NumPy's arrays and scalars leave arithmetic with it to this class.
    __array_ufunc__ = None

    def __init__(self, tensor: Tensor, kind: type, name: str, bits: int = _ARGUMENT_BITS) -> None:
        self.tensor = tensor
        self.kind = kind
        self.name = name
        self.bits = bits

    def __repr__(self) -> str:
        return self.name

    def _insist(self, *_: Any, **__: Any) -> NoReturn:
        raise UnknownSizeError(f"the number {self.name} has no value while a fragment is traced")

    __bool__ = __int__ = __float__ = __complex__ = __index__ = __round__ = __array__ = _insist
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __divmod__ = __rdivmod__ = __trunc__ = _insist
    __floor__ = __ceil__ = _insist
    __hash__ = _insist

    def beside(self, dtype: DType) -> Tensor:
        """Return the tensor that the number is beside an operand of the given dtype."""
        wanted = scalar_dtype(dtype, self.kind)
        # Whether a number fits a narrow or an unsigned type, its value alone tells.
        if (wanted is INT32 and self.bits > _ARGUMENT_BITS) or (wanted.kind in "iu" and wanted not in (INT32, INT64)):
            self._insist()
        return elementwise.astype(self.tensor, wanted)

    def _with(self, other: Any, function: Callable[[Any, Any], Tensor], bits: int, reflected: bool) -> Any:
        """Return ``function(self, other)``: a tensor beside a tensor or array, else a number again."""
        if isinstance(other, (Node, np.ndarray, np.generic)):
            there = as_tensor(other)
            here = self.beside(there.dtype)
            return function(there, here) if reflected else function(here, there)
        kind = other.kind if isinstance(other, WeakNumber) else type(other)
        if kind not in _WIDTH:
            return NotImplemented
        kind = max(kind, self.kind, key=_WIDTH.__getitem__)
        if function is elementwise.divide and kind is int:
            kind = float
        if bits > _MOST_BITS and kind is int:
            self._insist()
        dtype = DTYPES[kind]
        here = elementwise.astype(self.tensor, dtype)
        given = isinstance(other, WeakNumber)
        there = elementwise.astype(other.tensor, dtype) if given else constant(other, dtype)
        return WeakNumber(function(there, here) if reflected else function(here, there), kind, self.name, bits)

    def _sum_bits(self, other: Any) -> int:
        return max(self.bits, _bits(other)) + 1

    def _product_bits(self, other: Any) -> int:
        return self.bits + _bits(other)

    def __add__(self, other: Any) -> Any:
        return self._with(other, elementwise.add, self._sum_bits(other), False)

    def __radd__(self, other: Any) -> Any:
        return self._with(other, elementwise.add, self._sum_bits(other), True)

    def __sub__(self, other: Any) -> Any:
        return self._with(other, elementwise.subtract, self._sum_bits(other), False)

    def __rsub__(self, other: Any) -> Any:
        return self._with(other, elementwise.subtract, self._sum_bits(other), True)

    def __mul__(self, other: Any) -> Any:
        return self._with(other, elementwise.multiply, self._product_bits(other), False)

    def __rmul__(self, other: Any) -> Any:
        return self._with(other, elementwise.multiply, self._product_bits(other), True)

    def __truediv__(self, other: Any) -> Any:
        return self._with(other, elementwise.divide, self.bits, False)

    def __rtruediv__(self, other: Any) -> Any:
        return self._with(other, elementwise.divide, self.bits, True)

    def __neg__(self) -> WeakNumber:
        return WeakNumber(elementwise.negative(self.tensor), self.kind, self.name, self.bits)

    def __pos__(self) -> WeakNumber:
        return self

    def __abs__(self) -> WeakNumber:
        kind = float if self.kind is complex else self.kind
        return WeakNumber(elementwise.abs(self.tensor), kind, self.name, self.bits)

    # Which operation a power is depends on the exponent (a square, a root), so an exponent is asked for its value. A
    # positive float to a power that changes (a decay rate to the number of the step) is a number whatever the power is.

    def __pow__(self, other: Any) -> WeakNumber:
        if self.kind is float and type(other) is int and other >= 0:
            return WeakNumber(elementwise.power(self.tensor, other), float, self.name)
        return self._insist()

    def __rpow__(self, other: Any) -> WeakNumber:
        if type(other) is float and other > 0 and self.kind is not complex:
            exponent = elementwise.astype(self.tensor, FLOAT64)
            return WeakNumber(elementwise.power(constant(other), exponent), float, self.name)
        return self._insist()

    def _compared(self, other: Any, function: Callable[[Any, Any], Tensor]) -> Any:
        if isinstance(other, (Node, np.ndarray, np.generic)):
            there = as_tensor(other)
            return function(self.beside(there.dtype), there)
        return self._insist()

    def __lt__(self, other: Any) -> Any:
        return self._compared(other, elementwise.less)

    def __le__(self, other: Any) -> Any:
        return self._compared(other, elementwise.less_equal)

    def __gt__(self, other: Any) -> Any:
        return self._compared(other, elementwise.greater)

    def __ge__(self, other: Any) -> Any:
        return self._compared(other, elementwise.greater_equal)

    def __eq__(self, other: object) -> Any:
        return self._compared(other, elementwise.equal)

    def __ne__(self, other: object) -> Any:
        return self._compared(other, elementwise.not_equal)


def _bits(value: Any) -> int:
    """Return how many bits an integer may take; other operands do not count."""
    if isinstance(value, WeakNumber):
        return value.bits
    return value.bit_length() if type(value) is int else 0
