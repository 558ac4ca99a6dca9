"""Tensors made from sizes and numbers: filled ones, the identity, ranges.

A filled tensor is a scalar broadcast to a shape, so all zeros of one shape are one node and take no memory. Sizes may
be symbolic everywhere. Results are differentiable in fill values and ends of intervals that are given as tensors.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._devices import check_device
from unspool._dims import Dim, Shape, Size, maximum
from unspool._dtypes import FLOAT64, INT64, DType, as_dtype
from unspool._graph import Node
from unspool._ops import elementwise, layout
from unspool._ops.leaf import as_operands, as_shape, as_tensor, constant
from unspool._ops.op import SIZE, STRUCTURE, Op, register
from unspool.errors import ArgumentError, DTypeError

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from unspool._tensor import Tensor

_NUMBERS = (int, float, complex, np.generic)


# --- filled ----------------------------------------------------------------------------------------------------------


def full(
    shape: Size | tuple[Size, ...], fill_value: Any, dtype: DTypeLike | None = None, *, device: str | None = None
) -> Tensor:
    """Return a tensor with the same value everywhere; differentiable in that value if it is a tensor.

    Parameters
    ----------
    shape : int or tuple of int or Dim
        Sizes may be symbolic.
    fill_value : array_like
        A scalar, or anything that broadcasts to the shape.
    dtype : dtype_like, optional
        By default that of the value.
    device : {"cpu"}, optional
        Where the value lives; there is one place.

    Examples
    --------
    >>> import unspool as us
    >>> us.full((2, 2), 7.0).eval()
    array([[7., 7.],
           [7., 7.]])
    """
    check_device(device)
    if isinstance(fill_value, Node):
        value = as_tensor(fill_value) if dtype is None else elementwise.astype(fill_value, dtype)
    else:
        value = constant(fill_value, dtype)
    return layout.broadcast_to(value, as_shape(shape))


def zeros(shape: Size | tuple[Size, ...], dtype: DTypeLike | None = "float64", *, device: str | None = None) -> Tensor:
    """Return a tensor of zeros.

    Examples
    --------
    >>> import unspool as us
    >>> us.zeros(3).eval()
    array([0., 0., 0.])
    """
    return full(shape, 0, as_dtype(dtype), device=device)


def ones(shape: Size | tuple[Size, ...], dtype: DTypeLike | None = "float64", *, device: str | None = None) -> Tensor:
    """Return a tensor of ones.

    Examples
    --------
    >>> import unspool as us
    >>> us.ones(3).eval()
    array([1., 1., 1.])
    """
    return full(shape, 1, as_dtype(dtype), device=device)


def empty(shape: Size | tuple[Size, ...], dtype: DTypeLike | None = "float64", *, device: str | None = None) -> Tensor:
    """Return a tensor of zeros: a recipe has a value, so there is no uninitialised memory to hand out.

    Examples
    --------
    >>> import unspool as us
    >>> us.empty(2) is us.zeros(2)
    True
    """
    return zeros(shape, dtype, device=device)


def full_like(
    x: Any,
    fill_value: Any,
    dtype: DTypeLike | None = None,
    *,
    device: str | None = None,
    shape: Size | tuple[Size, ...] | None = None,
) -> Tensor:
    """Return a tensor with the same value everywhere, in the shape and data type of another unless others are given.

    Examples
    --------
    >>> import unspool as us
    >>> us.full_like([1.0, 2.0], 7).eval()
    array([7., 7.])
    """
    its_shape, its_dtype = _shape_and_dtype(x)
    wanted = its_dtype if dtype is None else dtype
    return full(its_shape if shape is None else shape, fill_value, wanted, device=device)


def zeros_like(
    x: Any,
    dtype: DTypeLike | None = None,
    *,
    device: str | None = None,
    shape: Size | tuple[Size, ...] | None = None,
) -> Tensor:
    """Return zeros in the shape and data type of another tensor.

    Examples
    --------
    >>> import unspool as us
    >>> us.zeros_like([1.0, 2.0]).eval()
    array([0., 0.])
    """
    return full_like(x, 0, dtype, device=device, shape=shape)


def ones_like(
    x: Any,
    dtype: DTypeLike | None = None,
    *,
    device: str | None = None,
    shape: Size | tuple[Size, ...] | None = None,
) -> Tensor:
    """Return ones in the shape and data type of another tensor.

    Examples
    --------
    >>> import unspool as us
    >>> us.ones_like([1.0, 2.0]).eval()
    array([1., 1.])
    """
    return full_like(x, 1, dtype, device=device, shape=shape)


def empty_like(
    x: Any,
    dtype: DTypeLike | None = None,
    *,
    device: str | None = None,
    shape: Size | tuple[Size, ...] | None = None,
) -> Tensor:
    """Return zeros in the shape and data type of another tensor; see `empty`.

    Examples
    --------
    >>> import unspool as us
    >>> us.empty_like([1.0, 2.0]).eval()
    array([0., 0.])
    """
    return zeros_like(x, dtype, device=device, shape=shape)


def _shape_and_dtype(x: Any) -> tuple[Shape, DType]:
    if isinstance(x, Node):
        return x.shape, x.dtype
    array = np.asarray(x)
    return array.shape, as_dtype(array.dtype)


# --- the identity ----------------------------------------------------------------------------------------------------


EYE = register(
    Op(
        "eye",
        infer=lambda *, rows, columns, k, dtype: ((rows, columns), dtype),
        kernel=lambda *, rows, columns, k, dtype: np.eye(rows, columns, k, dtype),
        params={"rows": SIZE, "columns": SIZE, "k": STRUCTURE, "dtype": STRUCTURE},
    )
)


def eye(
    n_rows: Size,
    n_cols: Size | None = None,
    k: int = 0,
    dtype: DTypeLike | None = "float64",
    *,
    device: str | None = None,
) -> Tensor:
    """Return a matrix with ones on the k-th diagonal and zeros elsewhere; sizes may be symbolic.

    Examples
    --------
    >>> import unspool as us
    >>> us.eye(2, 3, k=1).eval()
    array([[0., 1., 0.],
           [0., 0., 1.]])
    """
    check_device(device)
    rows, columns = as_shape((n_rows, n_rows if n_cols is None else n_cols))
    return _graph.apply(EYE, rows=rows, columns=columns, k=_integer(k, "the diagonal k"), dtype=as_dtype(dtype))


def identity(n: Size, dtype: DTypeLike | None = "float64") -> Tensor:
    """Return the identity matrix.

    Examples
    --------
    >>> import unspool as us
    >>> us.identity(2).eval()
    array([[1., 0.],
           [0., 1.]])
    """
    return eye(n, dtype=dtype)


# --- ranges ----------------------------------------------------------------------------------------------------------


ARANGE = register(
    Op(
        "arange",
        infer=lambda *, start, step, length, dtype: ((length,), dtype),
        kernel=lambda *, start, step, length, dtype: (start + step * np.arange(length)).astype(dtype),
        params={"start": SIZE, "step": STRUCTURE, "length": SIZE, "dtype": STRUCTURE},
    )
)


def arange(
    start: Any, stop: Any = None, step: Any = 1, dtype: DTypeLike | None = None, *, device: str | None = None
) -> Tensor:
    """Return evenly spaced numbers in ``[start, stop)``; with one argument, from 0.

    Sizes may be symbolic, with an integer step.

    Examples
    --------
    >>> import unspool as us
    >>> us.arange(1, 7, 2).eval()
    array([1, 3, 5])
    >>> n = us.dims("n")
    >>> us.arange(n).shape
    (n,)
    """
    check_device(device)
    if stop is None:
        start, stop = 0, start
    for name, value in (("start", start), ("stop", stop), ("step", step)):
        if not isinstance(value, (int, float, np.integer, np.floating, Dim)):
            raise DTypeError(
                f"arange takes numbers, got {value!r} for {name}: the length must be known when it is built"
            )
    if isinstance(step, Dim) or step == 0:
        raise ArgumentError(f"the step of arange is a number that is not 0, got {step}")
    if isinstance(start, Dim) or isinstance(stop, Dim):
        return _symbolic_arange(start, stop, step, INT64 if dtype is None else as_dtype(dtype))
    wanted: Any = None if dtype is None else as_dtype(dtype)
    try:
        return constant(np.arange(start, stop, step, dtype=wanted))
    except (ValueError, OverflowError, MemoryError) as error:
        raise ArgumentError(f"arange({start}, {stop}, {step}): {error}") from None


def _symbolic_arange(start: Any, stop: Any, step: Any, dtype: DType) -> Tensor:
    first, end = (x if isinstance(x, Dim) else _integer(x, "a bound of a symbolic range") for x in (start, stop))
    stride = _integer(step, "the step of a symbolic range")
    distance = end - first if stride > 0 else first - end
    length = maximum((distance + abs(stride) - 1) // abs(stride), 0)
    return _graph.apply(ARANGE, start=first, step=stride, length=length, dtype=dtype)


def linspace(
    start: Any,
    stop: Any,
    num: Size = 50,
    endpoint: bool = True,
    dtype: DTypeLike | None = None,
    *,
    axis: int = 0,
    device: str | None = None,
) -> Tensor:
    """Return ``num`` evenly spaced numbers from ``start`` to ``stop``, along a new axis, the first by default.

    Differentiable in ``start`` and ``stop`` if these are tensors; ``num`` may be symbolic.

    Examples
    --------
    >>> import unspool as us
    >>> us.linspace(0.0, 1.0, 5).eval()
    array([0.  , 0.25, 0.5 , 0.75, 1.  ])
    """
    check_device(device)
    if isinstance(num, (list, tuple)):
        raise ArgumentError(f"num is how many numbers linspace has, got {num!r}")
    (count,) = as_shape(num)
    wanted: Any = None if dtype is None else as_dtype(dtype)
    if all(isinstance(x, _NUMBERS) for x in (start, stop)) and not isinstance(count, Dim):
        return _spaced(start, stop, count, endpoint, wanted)
    first, last = as_operands(start, stop)
    first, last = (x if x.dtype.kind in "fc" else elementwise.astype(x, FLOAT64) for x in (first, last))
    rank = max(first.ndim, last.ndim)
    numbers, gaps = _numbered(count, endpoint, np.finfo(np.result_type(first.dtype, last.dtype)).dtype)
    numbers = layout.reshape(numbers, (count, *[1] * rank))
    # In NumPy's order of operations: who compares with the numbers, as a histogram does, sees the last bit.
    result = numbers * ((last - first) / gaps) + first
    if endpoint:
        result = elementwise.where(elementwise.equal(numbers, gaps), last, result)
    result = layout.moveaxis(result, 0, axis)
    if wanted is None:
        return result
    return elementwise.astype(elementwise.floor(result) if wanted.kind in "iu" else result, wanted)


def _spaced(start: Any, stop: Any, count: int, endpoint: bool, dtype: DType | None) -> Tensor:
    try:
        return constant(np.linspace(start, stop, count, endpoint=endpoint, dtype=dtype))
    except (ValueError, OverflowError, MemoryError) as error:
        raise ArgumentError(f"linspace({start}, {stop}, {count}): {error}") from None


def _numbered(count: Size, endpoint: bool, dtype: DType) -> tuple[Tensor, Any]:
    """Return the numbers of evenly spaced points, from 0 on, and how many gaps there are between the ends."""
    gaps = maximum(count - 1, 1) if endpoint else count
    if isinstance(count, Dim):
        return arange(count, dtype=dtype), size_tensor(gaps, dtype)
    return constant(np.arange(count, dtype=dtype)), max(1, gaps)


# --- sizes as numbers ------------------------------------------------------------------------------------------------


SIZE_OF = register(
    Op(
        "size_of",
        infer=lambda *, size, dtype: ((), dtype),
        kernel=lambda *, size, dtype: np.asarray(size, dtype),
        params={"size": SIZE, "dtype": STRUCTURE},
    )
)


def size_tensor(size: Size, dtype: DTypeLike = "float64") -> Tensor:
    """Return a size as a scalar to compute with; a symbolic one becomes a number when it is bound.

    Examples
    --------
    >>> import unspool as us
    >>> from unspool._ops.creation import size_tensor
    >>> size_tensor(3)
    Tensor(3.)
    """
    wanted = as_dtype(dtype)
    return _graph.apply(SIZE_OF, size=size, dtype=wanted) if isinstance(size, Dim) else constant(size, wanted)


def _integer(value: Any, what: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise DTypeError(f"{what} is an integer, got {value!r}") from None
