"""`Tensor`, the node users hold: operators, methods, conversions and NumPy's protocols.

Nothing here computes or differentiates by itself. An operator records a node; a conversion (``float``, ``np.asarray``,
``bool``, …) asks the engine for the value, which changes nothing about what the tensor means.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np

from unspool import _core
from unspool import _trees as trees
from unspool._above import above
from unspool._core import TensorBase
from unspool._devices import CPU, DLPACK_CPU, check_device
from unspool._dims import Size, product
from unspool._graph import Node, source_of
from unspool._leaving import (
    computes_with_values,
    refuse_masked_operand,
    watch_array,
    watch_number,
    watched,
    with_values,
)
from unspool._ops import contraction, elementwise, indexing, layout, reduction
from unspool._ops.identity import stop_gradient
from unspool._ops.op import Op
from unspool.errors import ArgumentError, DTypeError, MutationError, NoAxesError, ShapeError, UnspoolError

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from unspool.checkpoint.segments import CheckpointConfig

Array = np.ndarray[Any, Any]
_STANDARDS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")
Axis = int | Sequence[int] | None


def _operator(function: Callable[[Any, Any], Tensor], reflected: bool = False) -> Callable[[Tensor, Any], Tensor]:
    """Return the method for a binary operator; foreign types are given the chance to handle it themselves."""

    def forward(self: Tensor, other: Any) -> Tensor:
        return function(self, other) if isinstance(other, _OPERANDS) else NotImplemented

    def backward(self: Tensor, other: Any) -> Tensor:
        return function(other, self) if isinstance(other, _OPERANDS) else NotImplemented

    return backward if reflected else forward


def _later(name: str) -> Callable[[Any, Any], Tensor]:
    """Return an elementwise operation of two operands whose module is loaded when it is first called."""

    def operation(x1: Any, x2: Any) -> Tensor:
        found: Tensor = getattr(elementwise, name)(x1, x2)
        return found

    return operation


def _any_operands(op: Op, left: Any, right: Any) -> Tensor:
    """Record an elementwise operator of operands that are not just tensors and floats."""
    if isinstance(left, _OPERANDS) and isinstance(right, _OPERANDS):
        return elementwise.binary(op, left, right)
    for tensor, other in ((left, right), (right, left)):
        # Python would ask the text to repeat itself so many times.
        if isinstance(other, (str, bytes, bytearray)) and tensor.dtype.kind not in "iu":
            raise DTypeError(f"{op.name} of a tensor of dtype {tensor.dtype} and {type(other).__name__} {other!r}")
    return NotImplemented  # type: ignore[no-any-return]


def _any_product(left: Any, right: Any) -> Tensor:
    """Record the product of operands that are not just tensors and arrays of known shapes."""
    if isinstance(left, _OPERANDS) and isinstance(right, _OPERANDS):
        return contraction.matmul(left, right)
    return NotImplemented  # type: ignore[no-any-return]


class Tensor(TensorBase):
    """An immutable recipe for an array. Made by `unspool.tensor` and by every operation.

    Arithmetic, indexing and methods are NumPy's and return new tensors; nothing is computed until a value is asked for.
    ``eval()`` returns the value as a read-only array and changes nothing else: the tensor can be used, differentiated
    and evaluated as before. Two tensors are the same object if they are the same recipe.

    Examples
    --------
    >>> import unspool as us
    >>> x = us.tensor([1.0, 2.0, 3.0])
    >>> loss = us.sum(x * x)
    >>> loss
    sum () float64
    >>> float(loss)
    14.0
    >>> loss.grad(x).eval()
    array([2., 4., 6.])
    """

    __slots__ = ()

    # -- what it is (never computes) --

    @property
    def name(self) -> str | None:
        """The name given when the tensor was made, if any."""
        return getattr(self, "_name", None)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> Size:
        """Number of elements."""
        return product(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> Size:
        """Bytes that the value takes."""
        return self.size * self.dtype.itemsize

    @property
    def device(self) -> str:
        """Where values live: always ``"cpu"``."""
        return CPU

    def to_device(self, device: str, /, *, stream: Any = None) -> Tensor:
        """Return the tensor itself: there is one device, ``"cpu"``."""
        check_device(device)
        if stream is not None:
            raise ArgumentError(f"the processor has no streams, got stream={stream!r}")
        return self

    def __len__(self) -> int:
        if not self.shape:
            raise NoAxesError("a tensor with no axes has no len()")
        return self.shape[0].__index__()

    def __repr__(self) -> str:
        value = self.value
        if value is None:
            name = f" {self.name!r}" if self.name else ""
            return f"{self.op.name}{name} {self.shape} {self.dtype}"
        text = np.array_repr(value.view(_Shown))
        return f"{text[:-1]}, name={self.name!r})" if self.name else text

    def _repr_html_(self) -> str:
        from unspool._html import table_as_html, text_as_html

        rows = [("op", self.op.name), ("shape", self.shape), ("dtype", self.dtype), ("made at", source_of(self))]
        value = self.value
        shown = "" if value is None else text_as_html(np.array2string(value, separator=", "))
        return table_as_html([("name", self.name), *rows] if self.name else rows) + shown

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name not in _INTERNAL]

    __hash__ = object.__hash__

    def __copy__(self) -> Tensor:
        return self

    def __deepcopy__(self, memo: Any) -> Tensor:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        from unspool._travelling import by_value

        # Of a class of its own is what came out of a call: it was computed, or can be.
        return by_value(self, was_computed=self.piece is not None or type(self) is not Tensor)

    # -- its value (computes) --

    def eval(self, bindings: Mapping[Tensor, Any] | None = None) -> Array:
        """Return the value as a read-only NumPy array.

        Parameters
        ----------
        bindings : dict of Tensor to array_like, optional
            Values for the placeholders it depends on.

        Examples
        --------
        >>> import unspool as us
        >>> us.tensor([1.0, 2.0]).sum().eval()
        array(3.)
        """
        if bindings:
            return above.engine().evaluate((self,), bindings)[0]  # type: ignore[no-any-return]
        # What `evaluate` does for one tensor, written out: loops that look at a value are here in every step.
        value: Array | None = _core.value_now(self)
        while value is None:
            above.engine().compute((self,))
            value = self.value  # looked at once: another thread may evict it at any time
        if value.flags.writeable:
            value.setflags(write=False)
        return value

    def numpy(self) -> Array:
        """Return the value; the same as `eval` without bindings."""
        return self.eval()

    def compute(self) -> Array:
        """Return the value; the same as `eval` without bindings, under the name lazy-array libraries use."""
        return self.eval()

    def item(self) -> Any:
        """Return the value of a tensor with one element as a Python scalar."""
        return self.eval().item()

    def tolist(self) -> Any:
        """Return the value as nested lists of Python scalars."""
        return self.eval().tolist()

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Array:
        frame = sys._getframe(1)
        if frame.f_code.co_name == "getdata":
            refuse_masked_operand(self, frame)
        watch = watched.get()
        if watch is not None:
            watch_array(watch, self, copy)
        value = self.eval()
        if dtype is not None and value.dtype != dtype:
            if copy is False:
                raise ValueError(f"a copy is needed to convert {value.dtype} to {np.dtype(dtype)}")
            return value.astype(dtype)
        return value.copy() if copy else value

    def __int__(self) -> int:
        value = self._scalar("int")
        try:
            return int(value)
        except TypeError:
            raise self._is_no_real_number("int") from None

    def __complex__(self) -> complex:
        watch = watched.get()
        if watch is not None:
            watch_number(watch, self)
        return complex(self._scalar("complex"))

    def __bool__(self) -> bool:
        return bool(self._scalar("bool"))

    def __index__(self) -> int:
        if self.dtype.kind not in "iu":
            raise DTypeError(f"only integer tensors can be used as an index, not {self.dtype}")
        return int(self._scalar("index"))

    def _is_no_real_number(self, what: str) -> DTypeError:
        return DTypeError(f"{what}() of a tensor of dtype {self.dtype}: take .real or abs() first, or use complex()")

    def _scalar(self, what: str) -> Any:
        value = _core.value_now(self)
        while value is None:
            above.engine().compute((self,))
            value = self.value
        try:
            return value.item()
        except ValueError:
            raise ShapeError(f"{what}() takes a tensor with one element, this one has shape {self.shape}") from None
        except TypeError as error:
            raise DTypeError(str(error)) from None

    def __str__(self) -> str:
        try:
            return str(self.eval())
        except UnspoolError:  # a placeholder without a value, or a function that is being traced
            return repr(self)

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else str(self)

    def __iter__(self) -> Iterator[Tensor]:
        if not self.shape:
            raise NoAxesError("a tensor with no axes cannot be iterated over")
        self.eval()
        return iter(layout.unstack(self))

    def __contains__(self, item: Any) -> bool:
        return bool(np.any(self.eval() == np.asarray(item)))

    # -- NumPy's protocols --

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        frame = sys._getframe(1)
        if computes_with_values(frame):
            return with_values(func, args, kwargs, frame)
        return above.call_function(func, args, kwargs)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        if api_version is not None and api_version not in _STANDARDS:
            raise ArgumentError(f"versions of the array API standard are {', '.join(_STANDARDS)}, got {api_version!r}")
        return above.namespace

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        from unspool._ops.data import export_dlpack

        return export_dlpack(self.eval(), stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return DLPACK_CPU

    # -- derivatives --

    def grad(
        self,
        wrt: Any,
        *,
        holomorphic: bool = False,
        unconnected: Literal["auto", "zeros", "none", "raise"] = "auto",
        memory: str | int | float | None = None,
        checkpoint: CheckpointConfig | None = None,
    ) -> Any:
        """Return the gradient of this scalar with respect to tensors of its graph, as lazy tensors.

        Parameters
        ----------
        wrt : pytree of Tensor
            Any tensors this one was made from, leaves or not. The result has the same structure.
        holomorphic : bool
            For a complex result that is a holomorphic function of complex tensors: return its complex derivative.
        unconnected : {"auto", "zeros", "none", "raise"}
            What to return for a tensor that this one does not depend on: zeros, ``None`` or a `NotConnectedError`. By
            default zeros beside tensors that it depends on, and an error if it depends on none of them.
        memory : str, int or float, optional
            A budget, as in `unspool.memory`. The gradient is computed at once, within it.
        checkpoint : CheckpointConfig, optional
            Segments of the graph, by hand. Nodes are numbered as a `Tape` of this tensor numbers them. The gradient is
            computed at once; values inside a segment are evicted and recomputed when the gradient gets there.

        Examples
        --------
        >>> import unspool as us
        >>> x = us.tensor(3.0)
        >>> y = x * x
        >>> (y * y).grad([x, y])
        [multiply () float64, add () float64]
        """
        options = {"holomorphic": holomorphic, "unconnected": unconnected}
        return above.gradient(self, wrt, options, memory, checkpoint)

    def detach(self) -> Tensor:
        """Return the tensor with its history hidden from derivatives; see `unspool.stop_gradient`."""
        return stop_gradient(self)

    def report(self, path: Any = None, **options: Any) -> Any:
        """Tell what happened inside of the run that computed this scalar; see `unspool.report`.

        The last line of a notebook's cell, it shows the page inline.

        Parameters
        ----------
        path : str or path, optional
            Where the page goes, if it is to be a file.
        **options
            As in `unspool.report`.

        Returns
        -------
        Report

        Examples
        --------
        >>> import unspool as us
        >>> x = us.tensor(0.5)
        >>> y = x
        >>> for _ in range(4):
        ...     y = us.cos(y)
        ...     value = float(y)
        >>> y.report(title="cosines")
        <report 'cosines', 4 steps>
        """
        return above.report(self, path, **options)

    # -- operators; those of arithmetic, and products of matrices, are in `TensorBase` --

    __floordiv__ = _operator(elementwise.floor_divide)
    __rfloordiv__ = _operator(elementwise.floor_divide, reflected=True)
    __mod__ = _operator(elementwise.remainder)
    __rmod__ = _operator(elementwise.remainder, reflected=True)
    __pow__ = _operator(elementwise.power)
    __rpow__ = _operator(elementwise.power, reflected=True)
    __and__ = _operator(_later("bitwise_and"))
    __rand__ = _operator(_later("bitwise_and"), reflected=True)
    __or__ = _operator(_later("bitwise_or"))
    __ror__ = _operator(_later("bitwise_or"), reflected=True)
    __xor__ = _operator(_later("bitwise_xor"))
    __rxor__ = _operator(_later("bitwise_xor"), reflected=True)
    __lshift__ = _operator(_later("bitwise_left_shift"))
    __rlshift__ = _operator(_later("bitwise_left_shift"), reflected=True)
    __rshift__ = _operator(_later("bitwise_right_shift"))
    __rrshift__ = _operator(_later("bitwise_right_shift"), reflected=True)
    __lt__ = _operator(elementwise.less)
    __le__ = _operator(elementwise.less_equal)
    __gt__ = _operator(elementwise.greater)
    __ge__ = _operator(elementwise.greater_equal)
    __eq__ = _operator(elementwise.equal)  # type: ignore[assignment]
    __ne__ = _operator(elementwise.not_equal)  # type: ignore[assignment]

    def __divmod__(self, other: Any) -> tuple[Tensor, Tensor]:
        return (self // other, self % other) if isinstance(other, _OPERANDS) else NotImplemented

    def __rdivmod__(self, other: Any) -> tuple[Tensor, Tensor]:
        return (self.__rfloordiv__(other), self.__rmod__(other)) if isinstance(other, _OPERANDS) else NotImplemented

    def __neg__(self) -> Tensor:
        return elementwise.negative(self)

    def __pos__(self) -> Tensor:
        return elementwise.positive(self)

    def __abs__(self) -> Tensor:
        return elementwise.abs(self)

    def __invert__(self) -> Tensor:
        return elementwise.bitwise_invert(self)

    def __round__(self, ndigits: int | None = None) -> Tensor:
        return elementwise.round(self, ndigits or 0)

    # -- indexing; the operator is in `TensorBase` --

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        raise MutationError("a tensor cannot be written into; t = t.at[index].set(value) makes an updated one")

    @property
    def at(self) -> indexing.IndexUpdater:
        """Functional updates: ``t.at[index].set(v)``, and ``add``, ``multiply``, ``min``, ``max``.

        Examples
        --------
        >>> import unspool as us
        >>> us.zeros(3).at[1].set(5.0).eval()
        array([0., 5., 0.])
        """
        return indexing.IndexUpdater(self)

    # -- layout --

    @property
    def T(self) -> Tensor:
        """The tensor with its axes in reverse order."""
        return layout.reverse_axes(self)

    @property
    def mT(self) -> Tensor:
        """The tensor with its last two axes swapped."""
        return layout.matrix_transpose(self)

    @property
    def H(self) -> Tensor:
        """The conjugate transpose: the last two axes swapped, conjugated."""
        return elementwise.conj(layout.matrix_transpose(self))

    @property
    def real(self) -> Tensor:
        """The real part."""
        return elementwise.real(self)

    @property
    def imag(self) -> Tensor:
        """The imaginary part."""
        return elementwise.imag(self)

    def reshape(self, *shape: Any, order: str = "C") -> Tensor:
        """Return the tensor in another shape; see `unspool.reshape`."""
        return layout.reshape(self, _unpack(shape), order)

    def transpose(self, *axes: Any) -> Tensor:
        """Return the tensor with its axes reordered, reversed by default."""
        order = _unpack(axes)
        return self.T if not order or order == (None,) else layout.permute_dims(self, order)

    def flatten(self, order: str = "C") -> Tensor:
        """Return the tensor with one axis; see `unspool.ravel`."""
        return layout.ravel(self, order)

    ravel = flatten

    def squeeze(self, axis: Axis = None) -> Tensor:
        """Return the tensor without axes of size 1; see `unspool.squeeze`."""
        return layout.squeeze(self, axis)

    def swapaxes(self, axis1: int, axis2: int) -> Tensor:
        """Return the tensor with two axes swapped; see `unspool.swapaxes`."""
        return layout.swapaxes(self, axis1, axis2)

    def repeat(self, repeats: Any, axis: int | None = None) -> Tensor:
        """Return the tensor with elements repeated; see `unspool.repeat`."""
        return layout.repeat(self, repeats, axis)

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
        """Return a diagonal; see `unspool.diagonal`."""
        return layout.diagonal(self, offset, axis1, axis2)

    def trace(self, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: DTypeLike | None = None) -> Tensor:
        """Return the sum of a diagonal; see `unspool.trace`."""
        return layout.trace(self, offset, axis1, axis2, dtype)

    def copy(self, order: str = "C") -> Tensor:
        """Return the tensor itself: what never changes needs no copy."""
        return self

    def take(self, indices: Any, axis: int | None = None, *, mode: str = "raise") -> Tensor:
        """Return elements by position along an axis; see `unspool.take`."""
        return indexing.take(self, indices, axis, mode=mode)

    def compress(self, condition: Any, axis: int | None = None) -> Tensor:
        """Return the slices along an axis for which a condition holds; see `unspool.compress`."""
        return indexing.compress(condition, self, axis)

    def nonzero(self) -> tuple[Tensor, ...]:
        """Return the positions of the elements that are not 0; see `unspool.nonzero`."""
        return indexing.nonzero(self)

    def searchsorted(self, v: Any, side: Literal["left", "right"] = "left", sorter: Any = None) -> Tensor:
        """Return where to insert elements to keep the tensor sorted; see `unspool.searchsorted`."""
        return indexing.searchsorted(self, v, side, sorter)

    def sort(self, axis: int = -1, kind: str | None = None) -> Tensor:
        """Return the tensor sorted along an axis; see `unspool.sort`."""
        return indexing.sort(self, axis, kind)

    def argsort(self, axis: int = -1, kind: str | None = None) -> Tensor:
        """Return the positions that sort the tensor; see `unspool.argsort`."""
        return indexing.argsort(self, axis, kind)

    def partition(self, kth: Any, axis: int = -1) -> Tensor:
        """Return the tensor with its ``kth`` elements in their sorted places; see `unspool.partition`."""
        found: Tensor = above.namespace.partition(self, kth, axis)
        return found

    def argpartition(self, kth: Any, axis: int = -1) -> Tensor:
        """Return the positions that partition the tensor; see `unspool.argpartition`."""
        found: Tensor = above.namespace.argpartition(self, kth, axis)
        return found

    # -- elementwise --

    def astype(self, dtype: DTypeLike, *, copy: bool = True) -> Tensor:
        """Return the tensor in another data type; see `unspool.astype`."""
        return elementwise.astype(self, dtype, copy=copy)

    def conj(self) -> Tensor:
        """Return the complex conjugate."""
        return elementwise.conj(self)

    conjugate = conj

    def clip(self, min: Any = None, max: Any = None) -> Tensor:
        """Return the tensor limited to an interval; see `unspool.clip`."""
        return elementwise.clip(self, min, max)

    def round(self, decimals: int = 0) -> Tensor:
        """Return the tensor rounded; see `unspool.round`."""
        return elementwise.round(self, decimals)

    def dot(self, other: Any) -> Tensor:
        """Return the dot product; see `unspool.dot`."""
        return contraction.dot(self, other)

    # -- reductions --

    def sum(
        self,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        keepdims: bool = False,
        *,
        initial: Any = None,
        where: Any = None,
    ) -> Tensor:
        """Return the sum over axes; see `unspool.sum`."""
        return reduction.sum(self, axis, dtype, keepdims, initial=initial, where=where)

    def mean(
        self, axis: Axis = None, dtype: DTypeLike | None = None, keepdims: bool = False, *, where: Any = None
    ) -> Tensor:
        """Return the mean over axes; see `unspool.mean`."""
        return reduction.mean(self, axis, dtype, keepdims, where=where)

    def prod(
        self,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        keepdims: bool = False,
        *,
        initial: Any = None,
        where: Any = None,
    ) -> Tensor:
        """Return the product over axes; see `unspool.prod`."""
        return reduction.prod(self, axis, dtype, keepdims, initial=initial, where=where)

    def max(self, axis: Axis = None, keepdims: bool = False, *, initial: Any = None, where: Any = None) -> Tensor:
        """Return the largest element over axes; see `unspool.max`."""
        return reduction.max(self, axis, keepdims, initial=initial, where=where)

    def min(self, axis: Axis = None, keepdims: bool = False, *, initial: Any = None, where: Any = None) -> Tensor:
        """Return the smallest element over axes; see `unspool.min`."""
        return reduction.min(self, axis, keepdims, initial=initial, where=where)

    def ptp(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """Return the difference between the largest and the smallest elements; see `unspool.ptp`."""
        return reduction.ptp(self, axis, keepdims)

    def var(
        self,
        axis: Axis = None,
        correction: float = 0,
        keepdims: bool = False,
        *,
        ddof: float | None = None,
        where: Any = None,
    ) -> Tensor:
        """Return the variance over axes; see `unspool.var`."""
        return reduction.var(self, axis, correction, keepdims, ddof=ddof, where=where)

    def std(
        self,
        axis: Axis = None,
        correction: float = 0,
        keepdims: bool = False,
        *,
        ddof: float | None = None,
        where: Any = None,
    ) -> Tensor:
        """Return the standard deviation over axes; see `unspool.std`."""
        return reduction.std(self, axis, correction, keepdims, ddof=ddof, where=where)

    def any(self, axis: Axis = None, keepdims: bool = False, *, where: Any = None) -> Tensor:
        """Whether any element over axes is true; see `unspool.any`."""
        return reduction.any(self, axis, keepdims, where=where)

    def all(self, axis: Axis = None, keepdims: bool = False, *, where: Any = None) -> Tensor:
        """Whether all elements over axes are true; see `unspool.all`."""
        return reduction.all(self, axis, keepdims, where=where)

    def argmax(self, axis: int | None = None, keepdims: bool = False) -> Tensor:
        """Return the position of the largest element; see `unspool.argmax`."""
        return reduction.argmax(self, axis, keepdims=keepdims)

    def argmin(self, axis: int | None = None, keepdims: bool = False) -> Tensor:
        """Return the position of the smallest element; see `unspool.argmin`."""
        return reduction.argmin(self, axis, keepdims=keepdims)

    def cumsum(self, axis: int | None = None) -> Tensor:
        """Return the running sum; see `unspool.cumsum`."""
        return reduction.cumsum(self, axis)

    def cumprod(self, axis: int | None = None) -> Tensor:
        """Return the running product; see `unspool.cumprod`."""
        return reduction.cumprod(self, axis)


# NumPy prints arrays under the name of their class.
_Shown = type("Tensor", (np.ndarray,), {})
# What the engine and the sweeps use of a node.
_INTERNAL = frozenset(
    {"_is_no_real_number", "_name", "_scalar", "attributes", "code", "id"}
    | {"key", "lasti", "line", "output", "piece", "value"}
)
# autoray and opt_einsum find a library's functions by the module of its array class.
Tensor.__module__ = "unspool"
_OPERANDS = (Node, int, float, complex, np.ndarray, np.generic, list, tuple)


def _as_float(tensor: Tensor) -> float:
    """Return a tensor as a float where that takes more than its value: the method ``__float__`` asks."""
    watch = watched.get()
    if watch is not None:
        watch_number(watch, tensor)
    value = tensor._scalar("float")
    try:
        return float(value)
    except TypeError:
        raise tensor._is_no_real_number("float") from None


def _any_item(tensor: Tensor, index: Any) -> Tensor:
    """Return what any index selects from a tensor."""
    return indexing.getitem(tensor, index)


def _any_ufunc(ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """Record what one of NumPy's functions was asked to do with tensors: the method ``__array_ufunc__`` asks."""
    frame = sys._getframe(1)
    if computes_with_values(frame):
        return with_values(getattr(ufunc, method), inputs, kwargs, frame)
    return above.call_ufunc(ufunc, method, inputs, kwargs)


_core.bind(
    tensor_class=Tensor,
    watched=watched,
    general_float=_as_float,
    general_item=_any_item,
    general_ufunc=_any_ufunc,
    computes_with_values=computes_with_values,
)
trees.LEAVES.add(Tensor)
for _op in (elementwise.ADD, elementwise.SUBTRACT, elementwise.MULTIPLY, elementwise.DIVIDE):
    _core.bind_operator(_op.name, _op, partial(_any_operands, _op))
_core.bind_operator("matmul", None, _any_product)  # its op is told by the module that has it
_core.bind_ufuncs(
    {np.add: "add", np.subtract: "subtract", np.multiply: "multiply", np.divide: "divide", np.matmul: "matmul"}
)


def _unpack(arguments: tuple[Any, ...]) -> Any:
    """Return the one sequence that was passed, or all that was passed: ``f((2, 3))`` and ``f(2, 3)`` mean the same."""
    return tuple(arguments[0]) if len(arguments) == 1 and isinstance(arguments[0], (tuple, list)) else arguments
