"""Changing the data type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import DTypeLike

from unspool import _graph
from unspool._dtypes import BOOL, COMPLEX, as_dtype
from unspool._ops import elementwise as ops  # looked up when a rule runs: the modules with the ops import this one
from unspool._ops.elementwise.absence import through_mask
from unspool._ops.leaf import as_tensor
from unspool._ops.op import Op, register

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def _astype_kernel(x: Any, *, dtype: Any) -> Any:
    # On rationals (the tape's exact mode) a change of floating-point type is the identity.
    return x if x.dtype == object else x.astype(dtype)


ASTYPE = register(
    Op(
        "astype",
        infer=lambda x, *, dtype: (x.shape, dtype),
        kernel=_astype_kernel,
        vjp=(lambda ct, out, x, *, dtype: through_mask(ct, lambda inner: astype(inner, x.dtype)),),
        jvp=(lambda t, out, x, *, dtype: through_mask(t, lambda inner: astype(inner, dtype)),),
        cheap=True,
    )
)


def astype(x: Any, dtype: DTypeLike) -> Tensor:
    """Convert to another data type; from complex to real or integer the real part is taken.

    Examples
    --------
    >>> import unspool as us
    >>> us.astype([1.7, -1.7], "int64").eval()
    array([ 1, -1])
    """
    tensor = as_tensor(x)
    wanted = as_dtype(dtype)
    if tensor.dtype == wanted:
        return tensor
    if tensor.dtype in COMPLEX and wanted not in COMPLEX and wanted != BOOL:
        return astype(ops.real(tensor), wanted)
    return _graph.apply(ASTYPE, tensor, dtype=wanted)
