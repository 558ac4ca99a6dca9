"""Sums of exponentials that neither overflow nor vanish: logsumexp, softmax and log_softmax.

All three subtract the largest exponent first, so inputs of any magnitude are safe. Where every exponent is minus
infinity the sum is 0: its logarithm is minus infinity, and nothing flows back from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from unspool import _graph
from unspool._dtypes import inexact_dtype
from unspool._ops import elementwise, layout
from unspool._ops.leaf import as_operands, as_tensor
from unspool._ops.op import INPUTS, OUTPUT, STRUCTURE, Op, register
from unspool._ops.reduction.axes import Axis, expand_like, reduced_shape, spread
from unspool._ops.reduction.rows import through_rows
from unspool._ops.reduction.sums import sum

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def _largest_exponent(x: Any, axis: tuple[int, ...]) -> Any:
    """Return what to subtract before exponentiating: finite, so that infinities keep their meaning."""
    largest = np.max(np.real(x), axis=axis, keepdims=True, initial=-np.inf)
    return np.where(np.isfinite(largest), largest, np.zeros((), largest.dtype))


def _inexact(x: Any) -> Tensor:
    x = as_tensor(x)
    return elementwise.astype(x, inexact_dtype(x.dtype))


# --- logsumexp -------------------------------------------------------------------------------------------------------


def _logsumexp_kernel(x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    largest = _largest_exponent(x, axis)
    total = np.exp(x - largest).sum(axis=axis, keepdims=keepdims)
    return np.log(total) + largest.reshape(np.shape(total))


def _shares(out: Tensor, x: Tensor, axis: tuple[int, ...]) -> Tensor:
    """Return what each exponential contributes to the sum, as a fraction; 0 where the sum is."""
    vanishes = elementwise.equal(elementwise.real(out), -np.inf)
    return elementwise.exp(x - expand_like(elementwise.where(vanishes, 0.0, out), x, axis))


def _logsumexp_vjp(ct: Tensor, out: Tensor, x: Tensor, *, axis: tuple[int, ...], keepdims: bool) -> Tensor:
    return elementwise.scale(spread(ct, x, axis), elementwise.conj(_shares(out, x, axis)))


def _logsumexp_jvp(t: Tensor, out: Tensor, x: Tensor, *, axis: tuple[int, ...], keepdims: bool) -> Tensor:
    return sum(t * _shares(out, x, axis), axis=axis, keepdims=keepdims)


LOGSUMEXP = register(
    Op(
        "logsumexp",
        infer=lambda x, *, axis, keepdims: (reduced_shape(x.shape, axis, keepdims), x.dtype),
        kernel=_logsumexp_kernel,
        vjp=(_logsumexp_vjp,),
        jvp=(_logsumexp_jvp,),
        params={"axis": STRUCTURE, "keepdims": STRUCTURE},
        needs=(INPUTS, OUTPUT),
    )
)


@overload
def logsumexp(
    x: Any, axis: Axis = None, b: Any = None, keepdims: bool = False, return_sign: Literal[False] = False
) -> Tensor: ...
@overload
def logsumexp(
    x: Any, axis: Axis = None, b: Any = None, keepdims: bool = False, *, return_sign: bool
) -> Tensor | tuple[Tensor, Tensor]: ...
def logsumexp(
    x: Any, axis: Axis = None, b: Any = None, keepdims: bool = False, return_sign: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """Return ``log(sum(b * exp(x)))`` over axes (all by default), for inputs of any magnitude.

    Parameters
    ----------
    x : array_like
        The exponents.
    axis : int or tuple of int, optional
        The axes to sum over; all by default.
    b : array_like, optional
        What to multiply the exponentials by; where it is 0, the exponent does not count, whatever it is.
    keepdims : bool
        Keep the summed axes, with size 1.
    return_sign : bool
        Return a pair instead: the logarithm of the modulus of the sum, and the sign of the sum.

    Examples
    --------
    >>> import unspool as us
    >>> us.logsumexp([1000.0, 1000.0]).eval()
    array(1000.69314718)
    >>> us.logsumexp([1000.0, 1000.0], b=[1.0, 3.0]).eval()
    array(1001.38629436)
    """
    x = _inexact(x)
    if b is not None or return_sign:
        logarithm, sign = _weighted(x, 1.0 if b is None else b, axis, keepdims, signed=return_sign)
        return (logarithm, sign) if return_sign else logarithm
    return _graph.apply(LOGSUMEXP, x, axis=layout.normalize_axes(axis, x.ndim), keepdims=bool(keepdims))


def _weighted(x: Tensor, b: Any, axis: Axis, keepdims: bool, *, signed: bool) -> tuple[Tensor, Tensor]:
    """Return the logarithm of a weighted sum of exponentials, or of its modulus, and the sign of the sum."""
    x, b = layout.broadcast_arrays(*as_operands(x, b))
    x = elementwise.where(elementwise.not_equal(b, 0), x, -np.inf)
    top = logsumexp(elementwise.real(x), axis=axis, keepdims=True)
    top = elementwise.where(elementwise.isfinite(top), top, 0.0)
    total = sum(elementwise.multiply(b, elementwise.exp(elementwise.subtract(x, top))), axis=axis, keepdims=keepdims)
    logarithm = elementwise.log(elementwise.abs(total) if signed else total)
    return elementwise.add(logarithm, layout.reshape(top, total.shape)), elementwise.sign(total)


# --- softmax ---------------------------------------------------------------------------------------------------------


def _softmax_kernel(x: Any, *, axis: tuple[int, ...]) -> Any:
    exponentials = np.exp(x - _largest_exponent(x, axis))
    return exponentials / np.sum(exponentials, axis=axis, keepdims=True)


def _log_softmax_kernel(x: Any, *, axis: tuple[int, ...]) -> Any:
    shifted = x - _largest_exponent(x, axis)
    return shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))


def _softmax_vjp(ct: Tensor, out: Tensor, x: Tensor, *, axis: tuple[int, ...]) -> Tensor:
    shares = elementwise.conj(out)

    def function(inner: Tensor) -> Tensor:
        weighted = elementwise.scale(inner, shares)
        return weighted - shares * sum(weighted, axis=axis, keepdims=True)

    return through_rows(ct, axis, function)


def _softmax_jvp(t: Tensor, out: Tensor, x: Tensor, *, axis: tuple[int, ...]) -> Tensor:
    weighted = t * out
    return weighted - out * sum(weighted, axis=axis, keepdims=True)


SOFTMAX = register(
    Op(
        "softmax",
        infer=lambda x, *, axis: (x.shape, x.dtype),
        kernel=_softmax_kernel,
        vjp=(_softmax_vjp,),
        jvp=(_softmax_jvp,),
        params={"axis": STRUCTURE},
        needs=(OUTPUT,),
    )
)


def softmax(x: Any, axis: Axis = None) -> Tensor:
    """Return ``exp(x) / sum(exp(x))`` over axes, for inputs of any magnitude.

    As in SciPy, the sum is over all elements if no axis is given.

    Examples
    --------
    >>> import unspool as us
    >>> us.softmax([[1000.0, 1000.0], [0.0, -1000.0]], axis=1).eval()
    array([[0.5, 0.5],
           [1. , 0. ]])
    """
    x = _inexact(x)
    return _graph.apply(SOFTMAX, x, axis=layout.normalize_axes(axis, x.ndim))


def _log_softmax_vjp(ct: Tensor, out: Tensor, x: Tensor, *, axis: tuple[int, ...]) -> Tensor:
    shares = elementwise.conj(elementwise.exp(out))
    return through_rows(ct, axis, lambda inner: inner - shares * sum(inner, axis=axis, keepdims=True))


LOG_SOFTMAX = register(
    Op(
        "log_softmax",
        infer=lambda x, *, axis: (x.shape, x.dtype),
        kernel=_log_softmax_kernel,
        vjp=(_log_softmax_vjp,),
        jvp=(lambda t, out, x, *, axis: t - sum(t * elementwise.exp(out), axis=axis, keepdims=True),),
        params={"axis": STRUCTURE},
        needs=(OUTPUT,),
    )
)


def log_softmax(x: Any, axis: Axis = None) -> Tensor:
    """Return ``log(softmax(x))``, for inputs of any magnitude.

    As in SciPy, the sum is over all elements if no axis is given.

    Examples
    --------
    >>> import unspool as us
    >>> us.log_softmax([0.0, -1000.0]).eval()
    array([    0., -1000.])
    """
    x = _inexact(x)
    return _graph.apply(LOG_SOFTMAX, x, axis=layout.normalize_axes(axis, x.ndim))
