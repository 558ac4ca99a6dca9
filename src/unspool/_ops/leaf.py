"""Leaves: tensors that hold data, constants shared by value, and placeholders that are bound later.

A *tensor* leaf is an identity of its own: two leaves with equal data are two variables. A *constant* is its value:
equal constants are one node, which is why nothing is differentiated with respect to one. Both keep a private, read-only
copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _core, _graph
from unspool._dims import Dim, Shape, Size
from unspool._dtypes import COMPLEX128, FLOAT32, FLOAT64, INT64, OWN, SUPPORTED, as_dtype, scalar_dtype
from unspool._graph import NO_PARAMS, Node
from unspool._ops.late import ops
from unspool._ops.op import Op, register
from unspool.errors import ArgumentError, DTypeError, ShapeError, UnboundPlaceholderError, UnspoolError

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from unspool._tensor import Tensor

_PYTHON_SCALARS = {bool: np.dtype(bool), int: INT64, float: FLOAT64, complex: COMPLEX128}


def _has_no_kernel(*arrays: Any, **params: Any) -> Any:
    raise UnboundPlaceholderError("a leaf is never computed")


def _leaf_op(name: str) -> Op:
    return register(Op(name, infer=_has_no_kernel, kernel=_has_no_kernel))


TENSOR = _leaf_op("tensor")
CONSTANT = _leaf_op("constant")
PLACEHOLDER = _leaf_op("placeholder")

LEAF_OPS = frozenset({TENSOR, CONSTANT, PLACEHOLDER})

_core.bind(constant=CONSTANT, leaves=LEAF_OPS, array_class=np.ndarray, numpy_float=np.float64, numpy_integer=np.int64)
_core.bind(float32=FLOAT32, float64=FLOAT64, complex128=COMPLEX128, int64=INT64, dtypes=tuple(SUPPORTED))


def tensor(data: Any, dtype: DTypeLike | None = None, name: str | None = None, copy: bool = True) -> Tensor:
    """Make a tensor that holds data: a variable one can differentiate with respect to.

    Parameters
    ----------
    data : array_like
        An array, nested lists, a Python scalar, or anything with ``__array__``. A tensor is evaluated first.
    dtype : dtype_like, optional
        Data type; by default that of the data (float64 for Python floats).
    name : str, optional
        Shown in ``repr``, summaries and errors.
    copy : bool
        By default the data is copied, so that a later write to the caller's array cannot change history.
        ``copy=False`` takes a read-only view; the caller promises not to write.

    Returns
    -------
    Tensor

    Examples
    --------
    >>> import unspool as us
    >>> us.tensor([1.0, 2.0], name="x")
    Tensor([1., 2.], name='x')
    """
    value = _own(data, dtype, copy)
    node = _graph.intern(TENSOR, (), NO_PARAMS, value.shape, value.dtype, None)
    node.value = value
    if name is not None:
        node._name = _as_name(name)
    return node


def constant(data: Any, dtype: DTypeLike | None = None) -> Tensor:
    """Make a constant: a leaf shared by all equal constants, with respect to which nothing is differentiated.

    Arrays and scalars that meet a tensor in an expression become constants.

    Examples
    --------
    >>> import unspool as us
    >>> us.constant([1.0, 2.0]) is us.constant([1.0, 2.0])
    True
    """
    if dtype is not None and type(data) in (int, float):
        found = _core.constant_beside(data, as_dtype(dtype))
        if found is not None:
            return found
    is_ready = dtype is None and type(data) is np.ndarray and OWN.get(data.dtype) is data.dtype
    value = data if is_ready else _own(data, dtype, copy=False)
    content = value.tobytes()
    return _core.constant(value.dtype, value.shape, _number_in(value) if value.ndim == 0 else content, content)


def _as_name(name: Any) -> str:
    if not isinstance(name, str):
        raise ArgumentError(f"name is a string, got {name!r} of type {type(name).__name__}")
    return name


def placeholder(shape: Size | tuple[Size, ...], dtype: DTypeLike = "float64", name: str | None = None) -> Tensor:
    """Make a tensor whose value is given at ``eval`` time.

    Parameters
    ----------
    shape : tuple of int or Dim
        Sizes may be symbolic (`unspool.dims`).
    dtype : dtype_like
        Data type of the values it will be bound to.
    name : str, optional
        Shown in ``repr``, summaries and errors.

    Examples
    --------
    >>> import unspool as us
    >>> n = us.dims("n")
    >>> x = us.placeholder((n,), name="x")
    >>> us.sum(x * x).eval({x: [3.0, 4.0]})
    array(25.)
    """
    sizes = as_shape(shape)
    node = _graph.intern(PLACEHOLDER, (), NO_PARAMS, sizes, as_dtype(dtype), None)
    if name is not None:
        node._name = _as_name(name)
    return node


def stand_in(x: Node, name: str) -> Tensor:
    """Return a placeholder with the shape and dtype of a tensor."""
    node = _graph.intern(PLACEHOLDER, (), NO_PARAMS, x.shape, x.dtype, None)
    node._name = name
    return node


def as_shape(shape: Size | tuple[Size, ...] | list[Size]) -> Shape:
    """Return a shape as a tuple of ints and dims, or raise `ShapeError`."""
    sizes = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    made: list[Size] = []
    for size in sizes:
        if type(size) is not int and not isinstance(size, Dim):
            try:
                size = size.__index__()
            except (AttributeError, TypeError):
                raise ShapeError(f"a shape is made of integers and dims, got {size!r} in {shape!r}") from None
        if type(size) is int and size < 0:
            raise ShapeError(f"sizes are at least 0, got {size} in {shape!r}")
        made.append(size)
    return tuple(made)


def as_tensor(value: Any) -> Tensor:
    """Return a tensor for an operand: itself, a constant, or for lists with tensors in them what stacks these."""
    if isinstance(value, Node):
        return value  # type: ignore[return-value]
    return stacked(value) if isinstance(value, (list, tuple)) and holds_tensors(value) else constant(value)


def stacked(items: Any) -> Tensor:
    """Return nested lists with tensors in them as one tensor, as ``np.array`` does with lists of arrays."""
    return ops.stack([stacked(item) if isinstance(item, (list, tuple)) else item for item in items])


def holds_tensors(data: Any) -> bool:
    """Whether there are tensors in nested lists."""
    level = [data]
    while level and all(isinstance(item, (list, tuple)) for item in level):
        level = [item for items in level for item in items]
        if any(isinstance(item, Node) for item in level):
            return True
    return False


def as_operands(*values: Any) -> tuple[Tensor, ...]:
    """Return tensors for the operands of one op; Python scalars are weak and take the dtype of the others."""
    if len(values) == 2 and (pair := _core.operands(*values)) is not None:
        return pair
    strong = [v.dtype for v in values if isinstance(v, (Node, np.ndarray, np.generic))]
    if len(strong) < len(values) and any(isinstance(v, (list, tuple)) and holds_tensors(v) for v in values):
        return as_operands(*[as_tensor(v) if isinstance(v, (list, tuple)) else v for v in values])
    if not strong:
        strong = [np.asarray(v).dtype for v in values if type(v) not in _PYTHON_SCALARS]
    if not strong:
        return tuple(constant(v) for v in values)
    beside = strong[0] if len(strong) == 1 else np.result_type(*strong)
    return tuple(scalar(v, beside) if type(v) in _PYTHON_SCALARS else as_tensor(v) for v in values)


def scalar(value: complex, beside: np.dtype[Any]) -> Tensor:
    """Return the constant for a Python scalar that meets an operand of the given dtype."""
    found = _core.constant_beside(value, beside)
    return constant(value, scalar_dtype(beside, type(value))) if found is None else found  # type: ignore[arg-type]


def _number_in(value: np.ndarray[Any, Any]) -> object:
    """Return what identifies the one element of a constant: the number itself, or its bytes."""
    if value.dtype.kind != "c":
        number = value.item()
        # -0.0 equals 0.0 and NaN equals nothing: those go by their bits, as complex numbers do, which hold two of them.
        if number == number and (number != 0 or value.dtype.kind in "iu"):
            return number
    return value.tobytes()


def identify(content: bytes) -> bytes:
    """Return what stands for bytes that nobody else keeps: themselves if they are few, else a digest."""
    if len(content) <= 64:
        return content
    # Imported here: it loads a library for cryptography, and few programs have literals of this size.
    import hashlib

    # Processors have instructions for this one.
    return hashlib.sha256(content, usedforsecurity=False).digest()


def _own(data: Any, dtype: DTypeLike | None, copy: bool) -> np.ndarray[Any, Any]:
    """Return the data as a read-only array of a supported dtype, copied if asked."""
    wanted = None if dtype is None else as_dtype(dtype)
    if isinstance(data, Node):
        data = data.eval()  # type: ignore[attr-defined]
    if type(data) is not np.ndarray:
        _refuse_what_would_be_lost(data)
    try:
        array = np.asarray(data)
        if wanted is None and array.dtype not in SUPPORTED:
            wanted = as_dtype(array.dtype)
        if wanted is not None and array.dtype != wanted:
            _refuse_lossy(array.dtype, wanted)
            array = np.asarray(data, dtype=wanted) if array.ndim == 0 else array.astype(wanted)
            copy = False
    except (ValueError, OverflowError, TypeError) as error:
        if isinstance(error, UnspoolError):
            raise
        kind = "an array" if wanted is None else f"an array of dtype {wanted}"
        raise DTypeError(f"cannot make {kind} from {type(data).__name__}: {error}") from error
    own = OWN[array.dtype]
    if array.dtype is own:
        array = array.copy() if copy else array.view()
    else:
        array = array.astype(own) if copy else array.view(own)
    array.setflags(write=False)
    return array


def _refuse_what_would_be_lost(data: Any) -> None:
    """Refuse what an array of the values would silently be without: a mask, or the history of tensors in a list."""
    refuse_masked(data)
    if holds_tensors(data):
        raise DTypeError("cannot make one leaf from a list of tensors; us.asarray([...]) keeps their history")


def refuse_masked(*data: Any) -> None:
    """Refuse arrays with masked elements, and lists of them."""
    level = list(data)
    while level:
        # The module of masked arrays is loaded only where an array is of some other class.
        if any(isinstance(x, np.ndarray) and type(x) is not np.ndarray and np.ma.is_masked(x) for x in level):
            raise DTypeError(
                "tensors have no masks, and values behind one are not meant: masked.filled(value) puts a value there, "
                "us.where chooses between two, masked.compressed() leaves them out"
            )
        level = [x for items in level if isinstance(items, (list, tuple)) for x in items]


def _refuse_lossy(have: np.dtype[Any], want: np.dtype[Any]) -> None:
    if have.kind == "c" and want.kind in "fiub":
        raise DTypeError(f"data of dtype {have} does not fit {want}: take .real or abs() first")


# Stands in the key of a constant where others have their contents.
_SEED = "seed"
_core.bind(seed=_SEED)


def unit_seed(dtype: np.dtype[Any]) -> Tensor:
    """Return the 1 that a backward pass starts from.

    It is a constant that no number of a user's is, so products with it can be left out without looking at a value: what
    a program is must not depend on whether one of its numbers is 1.
    """
    return _core.constant(dtype, (), _SEED, np.ones((), dtype).tobytes())


def is_seed(node: Node) -> bool:
    """Whether a node is the 1 that a backward pass starts from."""
    return node.op is CONSTANT and node.key[-1] is _SEED
