"""Changing the data type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unspool import _graph
from unspool._devices import check_device
from unspool._dtypes import BOOL, COMPLEX, DType, as_dtype
from unspool._ops import batching
from unspool._ops.elementwise.absence import through_mask
from unspool._ops.late import ops
from unspool._ops.leaf import as_tensor
from unspool._ops.op import STRUCTURE, Op, register
from unspool.errors import DTypeError

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from unspool._tensor import Tensor


def _astype_kernel(x: Any, *, dtype: Any) -> Any:
    # On rationals (the tape's exact mode) a change of floating-point type is the identity.
    return x if x.dtype == object else x.astype(dtype)


ASTYPE = register(
    Op(
        "astype",
        infer=lambda x, *, dtype: (x.shape, dtype),
        kernel=_astype_kernel,
        vjp=(lambda ct, out, x, *, dtype: through_mask(ct, lambda inner: to_dtype(inner, x.dtype)),),
        jvp=(lambda t, out, x, *, dtype: through_mask(t, lambda inner: to_dtype(inner, dtype)),),
        params={"dtype": STRUCTURE},
        cheap=True,
        fresh=True,
        batch=batching.elementwise,
    )
)


def astype(x: Any, dtype: DTypeLike, *, copy: bool = True, device: str | None = None) -> Tensor:
    """Convert to another data type. A complex tensor is not converted to a real one: say which part is meant.

    ``copy`` changes nothing, since tensors are never written into; ``device`` is ``"cpu"``, the only one there is.

    Examples
    --------
    >>> import unspool as us
    >>> us.astype([1.7, -1.7], "int64").eval()
    array([ 1, -1])
    """
    if device is not None:
        check_device(device)
    tensor = as_tensor(x)
    wanted = as_dtype(dtype)
    if tensor.dtype in COMPLEX and wanted not in COMPLEX and wanted != BOOL:
        raise DTypeError(
            f"astype from {tensor.dtype} to {wanted} would lose the imaginary part: take .real, .imag or abs() first"
        )
    return to_dtype(tensor, wanted)


def to_dtype(tensor: Tensor, dtype: DType) -> Tensor:
    """Convert a tensor as derivatives are converted: of a complex one whose node is real, the real part counts."""
    if tensor.dtype == dtype:
        return tensor
    if tensor.dtype in COMPLEX and dtype not in COMPLEX and dtype != BOOL:
        return to_dtype(ops.real(tensor), dtype)
    return _graph.apply(ASTYPE, tensor, dtype=dtype)


ops.provide(astype=astype)
