"""Questions about data types and shapes, which need no value: tensors answer them before anything is computed.

Names and answers are those of NumPy and of the array API standard. A data type is a ``numpy.dtype``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from unspool._dims import Shape, Size, product
from unspool._dtypes import BOOL, COMPLEX, EXACT, INTEGERS, REAL, SIGNED, UNSIGNED, DType, as_dtype, real_dtype
from unspool._graph import Node
from unspool._ops.layout import normalize_axes
from unspool._ops.leaf import as_tensor
from unspool.errors import ArgumentError, DTypeError

_KINDS = {
    "bool": frozenset({BOOL}),
    "signed integer": SIGNED,
    "unsigned integer": UNSIGNED,
    "integral": INTEGERS,
    "real floating": REAL,
    "complex floating": COMPLEX,
    "numeric": INTEGERS | REAL | COMPLEX,
}
_CASTINGS = ("no", "equiv", "safe", "same_kind", "unsafe")

# NumPy's name for a data type, and its abstract types, for `issubdtype`.
dtype = np.dtype
complexfloating = np.complexfloating
floating = np.floating
generic = np.generic
inexact = np.inexact
integer = np.integer
number = np.number
signedinteger = np.signedinteger
unsignedinteger = np.unsignedinteger


# --- limits ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class finfo:  # noqa: N801 - NumPy's name
    """Limits of a floating-point data type, as Python numbers; for a complex one, those of its parts.

    Parameters
    ----------
    type : dtype_like or Tensor
        What to tell about.

    Attributes
    ----------
    bits : int
        Bits of a number.
    eps : float
        The distance from 1 to the next larger number.
    max, min : float
        The largest and the smallest finite number.
    smallest_normal : float
        The smallest positive number with full precision.
    dtype : dtype
        The data type.

    Examples
    --------
    >>> import unspool as us
    >>> us.finfo(us.float32).bits
    32
    >>> us.finfo("complex128").eps == 2.0**-52
    True
    """

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType

    def __init__(self, type: Any) -> None:
        dtype = real_dtype(_dtype_of(type))
        if dtype not in REAL:
            raise DTypeError(f"finfo is about floating-point data types, got {dtype}; iinfo is about integers")
        limits = np.finfo(dtype)
        _fill(
            self,
            bits=int(limits.bits),
            eps=float(limits.eps),
            max=float(limits.max),
            min=float(limits.min),
            smallest_normal=float(limits.smallest_normal),
            dtype=dtype,
        )

    @property
    def tiny(self) -> float:
        """NumPy's older name for ``smallest_normal``."""
        return self.smallest_normal

    @property
    def resolution(self) -> float:
        """What NumPy calls the resolution: a power of ten about as large as ``eps``."""
        return float(np.finfo(self.dtype).resolution)


@dataclass(frozen=True, slots=True)
class iinfo:  # noqa: N801 - NumPy's name
    """Limits of an integer data type.

    Parameters
    ----------
    type : dtype_like or Tensor
        What to tell about.

    Attributes
    ----------
    bits : int
        Bits of a number.
    max, min : int
        The largest and the smallest number.
    dtype : dtype
        The data type.

    Examples
    --------
    >>> import unspool as us
    >>> us.iinfo(us.uint8).max
    255
    """

    bits: int
    max: int
    min: int
    dtype: DType

    def __init__(self, type: Any) -> None:
        dtype = _dtype_of(type)
        if dtype not in INTEGERS:
            raise DTypeError(f"iinfo is about integer data types, got {dtype}; finfo is about floating-point ones")
        limits = np.iinfo(dtype)
        _fill(self, bits=int(limits.bits), max=int(limits.max), min=int(limits.min), dtype=dtype)


def _fill(record: Any, **values: Any) -> None:
    for name, value in values.items():
        object.__setattr__(record, name, value)


def _dtype_of(type: Any) -> DType:
    return type.dtype if isinstance(type, (Node, np.ndarray, np.generic)) else as_dtype(type)


# --- data types ------------------------------------------------------------------------------------------------------


def isdtype(dtype: DTypeLike, kind: Any) -> bool:
    """Whether a data type is of a kind.

    Parameters
    ----------
    dtype : dtype_like
        The data type.
    kind : str, dtype_like or tuple of them
        A data type, or ``"bool"``, ``"signed integer"``, ``"unsigned integer"``, ``"integral"``, ``"real floating"``,
        ``"complex floating"`` or ``"numeric"``; of a tuple any will do.

    Examples
    --------
    >>> import unspool as us
    >>> us.isdtype(us.float32, ("real floating", "complex floating"))
    True
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    if isinstance(kind, str):
        if kind not in _KINDS:
            raise ArgumentError(f"a kind of data type is one of {', '.join(map(repr, _KINDS))}, got {kind!r}")
        return as_dtype(dtype) in _KINDS[kind]
    return as_dtype(dtype) == as_dtype(kind)


def issubdtype(dtype: Any, kind: Any) -> bool:
    """Whether a data type is one of, or below one of, NumPy's abstract types.

    Examples
    --------
    >>> import numpy as np
    >>> import unspool as us
    >>> us.issubdtype(us.float32, np.floating)
    True
    """
    try:
        return bool(np.issubdtype(dtype, kind))
    except TypeError as error:
        raise DTypeError(f"issubdtype of {dtype!r} and {kind!r}: {error}") from None


def result_type(*arrays_and_dtypes: Any) -> DType:
    """Return the data type that operands combine to; Python scalars are weak.

    Examples
    --------
    >>> import unspool as us
    >>> us.result_type(us.zeros(2, dtype="float32"), 1.0)
    dtype('float32')
    >>> us.result_type(us.int32, us.float32)
    dtype('float64')
    """
    if not arrays_and_dtypes:
        raise ArgumentError("result_type takes at least one operand or data type, got none")
    operands = [x.dtype if isinstance(x, Node) else x for x in arrays_and_dtypes]
    try:
        return as_dtype(np.result_type(*operands))
    except DTypeError:
        raise
    except TypeError as error:
        raise DTypeError(f"result_type of {', '.join(map(str, operands))}: {error}") from None


def promote_types(a: DTypeLike, b: DTypeLike) -> DType:
    """Return the data type that two data types combine to.

    Examples
    --------
    >>> import unspool as us
    >>> us.promote_types("int8", "uint8")
    dtype('int16')
    """
    return result_type(as_dtype(a), as_dtype(b))


def can_cast(from_: Any, to: DTypeLike, casting: Any = "safe") -> bool:
    """Whether values of one data type, or of a tensor, can be converted to another by the promotion rules.

    Examples
    --------
    >>> import unspool as us
    >>> us.can_cast(us.int32, us.float64)
    True
    >>> us.can_cast(us.float64, us.int64)
    False
    """
    if casting not in _CASTINGS:
        raise ArgumentError(f"casting is one of {', '.join(map(repr, _CASTINGS))}, got {casting!r}")
    return bool(np.can_cast(_dtype_of(from_), as_dtype(to), casting))


def iscomplexobj(x: Any) -> bool:
    """Whether the data type is complex, whatever the values are.

    Examples
    --------
    >>> import unspool as us
    >>> us.iscomplexobj(us.zeros(2, dtype="complex64"))
    True
    """
    return as_tensor(x).dtype in COMPLEX


def isrealobj(x: Any) -> bool:
    """Whether the data type is not complex, whatever the values are.

    Examples
    --------
    >>> import unspool as us
    >>> us.isrealobj([1.0, 2.0])
    True
    """
    return not iscomplexobj(x)


# --- shapes ----------------------------------------------------------------------------------------------------------


def shape(x: Any) -> Shape:
    """Return the shape of anything that becomes a tensor.

    Examples
    --------
    >>> import unspool as us
    >>> us.shape([[1, 2, 3], [4, 5, 6]])
    (2, 3)
    """
    return as_tensor(x).shape


def ndim(x: Any) -> int:
    """Return the number of axes of anything that becomes a tensor.

    Examples
    --------
    >>> import unspool as us
    >>> us.ndim([[1, 2, 3], [4, 5, 6]])
    2
    """
    return as_tensor(x).ndim


def size(x: Any, axis: int | tuple[int, ...] | None = None) -> Size:
    """Return the number of elements, of the whole or along axes; it may be symbolic.

    Examples
    --------
    >>> import unspool as us
    >>> us.size(us.zeros((us.dims("n"), 3)))
    3*n
    """
    sizes = as_tensor(x).shape
    return product(sizes[place] for place in normalize_axes(axis, len(sizes)))


def isscalar(x: Any) -> bool:
    """Whether it is a number of Python or NumPy, or a tensor without axes.

    Examples
    --------
    >>> import unspool as us
    >>> us.isscalar(us.tensor(3.0)), us.isscalar([3.0])
    (True, False)
    """
    return not x.shape if isinstance(x, Node) else bool(np.isscalar(x))


def default_dtypes() -> dict[str, DType]:
    """Return the data types that values have if none is asked for."""
    kinds = {"real floating": 1.0, "complex floating": 1j, "integral": 1}
    return {name: as_tensor(number).dtype for name, number in kinds.items()} | {"indexing": as_tensor(1).dtype}


def dtypes_of_kind(kind: Any = None) -> dict[str, DType]:
    """Return data types by name, all or those of a kind as for `isdtype`."""
    ordered = sorted(EXACT | REAL | COMPLEX, key=lambda dtype: ("biufc".index(dtype.kind), dtype.itemsize))
    return {dtype.name: dtype for dtype in ordered if kind is None or isdtype(dtype, kind)}
