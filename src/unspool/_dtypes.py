"""The data types unspool has, and NumPy 2's promotion between them.

Python scalars are weak: ``float32_tensor * 2.0`` stays float32. Everything else follows ``numpy.result_type``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from unspool.errors import DTypeError

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

DType: TypeAlias = np.dtype[Any]

BOOL: Final[DType] = np.dtype(np.bool_)
INT8: Final[DType] = np.dtype(np.int8)
INT16: Final[DType] = np.dtype(np.int16)
INT32: Final[DType] = np.dtype(np.int32)
INT64: Final[DType] = np.dtype(np.int64)
UINT8: Final[DType] = np.dtype(np.uint8)
UINT16: Final[DType] = np.dtype(np.uint16)
UINT32: Final[DType] = np.dtype(np.uint32)
UINT64: Final[DType] = np.dtype(np.uint64)
FLOAT32: Final[DType] = np.dtype(np.float32)
FLOAT64: Final[DType] = np.dtype(np.float64)
COMPLEX64: Final[DType] = np.dtype(np.complex64)
COMPLEX128: Final[DType] = np.dtype(np.complex128)

SIGNED: Final = frozenset({INT8, INT16, INT32, INT64})
UNSIGNED: Final = frozenset({UINT8, UINT16, UINT32, UINT64})
INTEGERS: Final = SIGNED | UNSIGNED
EXACT: Final = INTEGERS | {BOOL}
REAL: Final = frozenset({FLOAT32, FLOAT64})
COMPLEX: Final = frozenset({COMPLEX64, COMPLEX128})
INEXACT: Final = REAL | COMPLEX
SUPPORTED: Final = EXACT | INEXACT

# NumPy's own object for each. What is read from a pickle has others, which are equal and slower to compare.
OWN: Final = {dtype: dtype for dtype in SUPPORTED}

_BY_NAME: Final = {str(dtype): dtype for dtype in SUPPORTED}
_REAL_OF: Final = {COMPLEX64: FLOAT32, COMPLEX128: FLOAT64}
_COMPLEX_OF: Final = {FLOAT32: COMPLEX64, FLOAT64: COMPLEX128}


def as_dtype(dtype: DTypeLike | None) -> DType:
    """Return the NumPy dtype meant, float64 for ``None``, or raise `DTypeError` if unspool does not have it."""
    if isinstance(dtype, np.dtype) and dtype in SUPPORTED:
        return OWN[dtype]
    if type(dtype) is str and dtype in _BY_NAME:
        return _BY_NAME[dtype]
    try:
        result = np.dtype(dtype)
    except TypeError as error:
        raise DTypeError(f"{dtype!r} is not a data type") from error
    native = result.newbyteorder("=")
    if native not in SUPPORTED:
        names = ", ".join(sorted(str(d) for d in SUPPORTED))
        raise DTypeError(f"dtype {result} is not supported; unspool has {names}")
    return OWN[native]


@lru_cache(maxsize=256)
def promote(*dtypes: DType) -> DType:
    """Return the dtype that values of these dtypes combine to."""
    return as_dtype(np.result_type(*dtypes))


@lru_cache(maxsize=64)
def scalar_dtype(dtype: DType, scalar_type: type) -> DType:
    """Return the dtype a weak Python scalar takes beside an operand of the given dtype."""
    if scalar_type is bool:
        # A Python bool is weaker than any number, and a bool beside a bool.
        return dtype
    return as_dtype(np.result_type(as_dtype(dtype), scalar_type(1)))


def real_dtype(dtype: DType) -> DType:
    """Return the dtype of the real part."""
    return _REAL_OF.get(dtype, dtype)


def complex_dtype(dtype: DType) -> DType:
    """Return the complex dtype of the same precision."""
    return _COMPLEX_OF.get(dtype, dtype)


def inexact_dtype(dtype: DType) -> DType:
    """Return the dtype itself if it has a fractional part, else float64."""
    return dtype if dtype in INEXACT else FLOAT64
