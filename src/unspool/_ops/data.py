"""Tensors made from data: arrays, nested lists, and what other libraries hand over by DLPack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._devices import DLPACK_CPU, check_device
from unspool._dtypes import as_dtype
from unspool._graph import Node
from unspool._ops import elementwise, layout
from unspool._ops.leaf import as_tensor, holds_tensors, stacked, tensor
from unspool.errors import ArgumentError, DTypeError

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from unspool._tensor import Tensor


def asarray(x: Any, dtype: DTypeLike | None = None, *, device: str | None = None, copy: bool | None = None) -> Tensor:
    """Return a tensor for anything: a tensor as it is, other data as a new leaf.

    Nested lists with tensors in them become one tensor that is made from these, as ``np.array`` makes one array of
    nested lists of arrays.

    Parameters
    ----------
    x : array_like
        A tensor, an array, nested lists or a scalar.
    dtype : dtype_like, optional
        Convert to this data type.
    device : {"cpu"}, optional
        Where the value lives; there is one place.
    copy : bool, optional
        ``False`` takes a read-only view of an array instead of a copy, and refuses what cannot be viewed; the caller
        promises not to write to it. Tensors are immutable and never copied.

    Examples
    --------
    >>> import unspool as us
    >>> x = us.asarray([1, 2])
    >>> x
    Tensor([1, 2])
    >>> us.asarray(x) is x
    True
    >>> us.asarray([[x[0], 0], [0, x[1]]]).eval()
    array([[1, 0],
           [0, 2]])
    """
    check_device(device)
    if isinstance(x, (list, tuple)) and holds_tensors(x):
        x = stacked(x)
    if isinstance(x, Node):
        return as_tensor(x) if dtype is None else elementwise.astype(x, dtype)
    if copy is False:
        _refuse_copy(x, dtype)
    return tensor(x, dtype=dtype, copy=copy is not False)


def array(x: Any, dtype: DTypeLike | None = None, *, copy: bool = True, ndmin: int = 0) -> Tensor:
    """Return a tensor for anything, as `asarray` does, with at least ``ndmin`` axes, new ones first.

    Examples
    --------
    >>> import unspool as us
    >>> us.array([1.0, 2.0], ndmin=2).shape
    (1, 2)
    """
    made = asarray(x, dtype, copy=None if copy else False)
    if not isinstance(ndmin, (int, np.integer)):
        raise ArgumentError(f"ndmin is a number of axes, got {ndmin!r}")
    missing = max(int(ndmin) - made.ndim, 0)
    return layout.reshape(made, (1,) * missing + made.shape) if missing else made


def _refuse_copy(x: Any, dtype: DTypeLike | None) -> None:
    """Refuse data that is not an array in memory, or not one of the data type that is asked for."""
    try:
        np.asarray(x, dtype=None if dtype is None else as_dtype(dtype), copy=False)
    except ValueError:
        kind = f"{type(x).__name__} as {np.dtype(dtype)}" if dtype is not None else type(x).__name__
        raise ArgumentError(f"copy=False takes an array as it lies in memory, and {kind} needs a copy") from None


def from_dlpack(x: Any, *, device: str | None = None, copy: bool | None = None) -> Tensor:
    """Return a tensor for an array of another library, by the DLPack protocol.

    Parameters
    ----------
    x : object with __dlpack__ and __dlpack_device__
        An array of NumPy, PyTorch, JAX, CuPy, …, or a tensor, which is returned as it is.
    device : {"cpu"}, optional
        Where the value lives; there is one place.
    copy : bool, optional
        By default, and with ``False``, the memory is shared, and the caller promises not to write to it. ``True`` makes
        a copy.

    Examples
    --------
    >>> import numpy as np
    >>> import unspool as us
    >>> us.from_dlpack(np.array([1.0, 2.0])).eval()
    array([1., 2.])
    """
    check_device(device)
    if isinstance(x, Node):
        return as_tensor(x)
    if not (hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__")):
        raise ArgumentError(
            f"from_dlpack takes an array with __dlpack__, got {type(x).__name__}; us.asarray takes others"
        )
    place = tuple(int(part) for part in x.__dlpack_device__())
    if place[0] != DLPACK_CPU[0]:
        raise ArgumentError(f"from_dlpack takes arrays in the memory of the processor, got DLPack device {place}")
    try:
        return tensor(np.from_dlpack(x), copy=bool(copy))
    except BufferError as error:
        raise DTypeError(f"from_dlpack of {type(x).__name__}: {error}") from None


def export_dlpack(
    array: Any,
    *,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """Return a DLPack capsule of a value, which is read-only: consumers that cannot know that are given a copy."""
    if dl_device is not None and tuple(int(part) for part in dl_device) != DLPACK_CPU:
        raise BufferError(f"the value is in the memory of the processor, DLPack device {DLPACK_CPU}, not {dl_device}")
    if stream is not None:
        raise ArgumentError(f"the processor has no streams, got stream={stream!r}")
    knows_read_only = max_version is not None and max_version[0] >= 1
    if not knows_read_only:
        if copy is False:
            raise BufferError("a value is read-only, and versions of DLPack before 1.0 cannot say so: copy=None copies")
        return np.array(array).__dlpack__()
    return array.__dlpack__(max_version=max_version, copy=copy)
