"""Complex numbers and their parts.

Cotangents follow the real inner product Re<a, b>, so that the adjoint of taking the imaginary part is multiplication
by i. The conjugate and real part of a real tensor are the tensor itself, so that real graphs have no complex nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._core import record
from unspool._dtypes import COMPLEX, SUPPORTED, complex_dtype, promote, real_dtype
from unspool._ops.elementwise.absence import through_mask
from unspool._ops.elementwise.comparison import equal, not_equal
from unspool._ops.elementwise.conversion import to_dtype
from unspool._ops.elementwise.declare import elementwise
from unspool._ops.late import ops
from unspool._ops.leaf import as_tensor, constant
from unspool._ops.op import FOR_ITS_OWN, Op

if TYPE_CHECKING:
    from unspool._tensor import Tensor


# --- the conjugate ---------------------------------------------------------------------------------------------------


def _conj_rule(ct: Tensor, out: Tensor, x: Tensor) -> Tensor:
    return through_mask(ct, conj)


CONJ: Op = elementwise(
    "conj",
    np.conjugate,
    vjp=(_conj_rule,),
    jvp=(_conj_rule,),
    canonical=lambda x: x.inputs[0] if x.op is CONJ else None,
    canonical_for=FOR_ITS_OWN,
    exact=SUPPORTED,
)


def conj(x: Any) -> Tensor:
    """Take the complex conjugate; a real tensor is returned as it is.

    Examples
    --------
    >>> import unspool as us
    >>> us.conj([1 + 2j]).eval()
    array([1.-2.j])
    """
    x = as_tensor(x)
    return x if x.dtype not in COMPLEX else _graph.apply(CONJ, x)


conjugate = conj


# --- the parts -------------------------------------------------------------------------------------------------------


REAL_PART = elementwise(
    "real",
    np.real,
    vjp=(lambda ct, out, x: through_mask(ct, lambda inner: to_dtype(inner, x.dtype)),),
    jvp=(lambda t, out, x: through_mask(t, real),),
    dtype=real_dtype,
    view=True,
)


def real(x: Any) -> Tensor:
    """Take the real part; a real tensor is returned as it is.

    Examples
    --------
    >>> import unspool as us
    >>> us.real([1 + 2j]).eval()
    array([1.])
    """
    x = as_tensor(x)
    return x if x.dtype not in COMPLEX else _graph.apply(REAL_PART, x)


IMAGINARY_PART = elementwise(
    "imag",
    np.imag,
    vjp=(lambda ct, out, x: through_mask(ct, imaginary),),
    jvp=(lambda t, out, x: through_mask(t, imag),),
    dtype=real_dtype,
    view=True,
)


def imag(x: Any) -> Tensor:
    """Take the imaginary part; that of a real tensor is zero.

    Examples
    --------
    >>> import unspool as us
    >>> us.imag([1 + 2j]).eval()
    array([2.])
    """
    x = as_tensor(x)
    return _graph.apply(IMAGINARY_PART, x) if x.dtype in COMPLEX else ops.broadcast_to(constant(0, x.dtype), x.shape)


def _from_parts_kernel(x1: Any, x2: Any) -> Any:
    # Not x1 + 1j * x2, which makes NaN of an infinite part.
    result = np.empty(np.broadcast_shapes(np.shape(x1), np.shape(x2)), np.result_type(x1, x2, np.complex64))
    result.real = x1
    result.imag = x2
    return result


FROM_PARTS = elementwise(
    "from_parts",
    _from_parts_kernel,
    vjp=(lambda ct, out, x1, x2: through_mask(ct, real), lambda ct, out, x1, x2: through_mask(ct, imag)),
    jvp=(
        lambda t, out, x1, x2: through_mask(t, lambda inner: to_dtype(inner, out.dtype)),
        lambda t, out, x1, x2: through_mask(t, imaginary),
    ),
    dtype=lambda x1, x2: complex_dtype(promote(x1, x2)),
)


def from_parts(real: Tensor, imag: Tensor) -> Tensor:
    """Make complex numbers of their real and imaginary parts, which are floating-point tensors."""
    return record(FROM_PARTS, real, imag)


def imaginary(x: Tensor) -> Tensor:
    """Return i times a real tensor, also where it is infinite."""
    return from_parts(constant(0, x.dtype), x)


# --- questions about them --------------------------------------------------------------------------------------------


def isreal(x: Any) -> Tensor:
    """Whether the imaginary part is zero, element by element.

    Examples
    --------
    >>> import unspool as us
    >>> us.isreal([1 + 0j, 1 + 1j]).eval()
    array([ True, False])
    """
    return equal(imag(x), 0)


def iscomplex(x: Any) -> Tensor:
    """Whether the imaginary part is not zero, element by element.

    Examples
    --------
    >>> import unspool as us
    >>> us.iscomplex([1 + 0j, 1 + 1j]).eval()
    array([False,  True])
    """
    return not_equal(imag(x), 0)


ops.provide(conj=conj, real=real)
