"""Polynomials by their coefficients, the highest power first, under the names ``numpy`` has for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._dims import Dim, Size
from unspool._dtypes import COMPLEX, real_dtype
from unspool._ops import elementwise, layout
from unspool._ops.checks import as_integer
from unspool._ops.composed.convolution import convolve
from unspool._ops.contraction import matmul, outer
from unspool._ops.creation import arange
from unspool._ops.indexing.access import getitem
from unspool._ops.layout import concat, reshape
from unspool._ops.layout.padding import pad
from unspool._ops.leaf import as_operands, as_shape, as_tensor, constant
from unspool._ops.linalg.eig import eigvals
from unspool._ops.linalg.least_squares import lstsq
from unspool._ops.linalg.solving import inv
from unspool._ops.reduction import sum as sum_
from unspool.errors import ArgumentError, ShapeError, UnknownSizeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


# --- values ----------------------------------------------------------------------------------------------------------


def polyval(p: Any, x: Any) -> Tensor:
    """Return the value of a polynomial at every element of ``x``, by Horner's rule.

    Examples
    --------
    >>> import unspool as us
    >>> us.polyval([3.0, 0.0, 1.0], 5.0).eval()  # 3 x^2 + 1
    array(76.)
    """
    p, x = as_operands(p, x)
    value = elementwise.multiply(x, constant(0, p.dtype))
    for coefficient in layout.unstack(_coefficients("polyval", p)):
        value = elementwise.add(elementwise.multiply(value, x), coefficient)
    return value


def vander(x: Any, N: Size | None = None, increasing: bool = False) -> Tensor:
    """Return a Vandermonde matrix: powers of each element of a vector in a row, the highest first by default.

    Parameters
    ----------
    x : array_like
        One axis.
    N : int or Dim, optional
        How many powers; by default as many as there are elements.
    increasing : bool
        Whether powers rise from left to right.

    Examples
    --------
    >>> import unspool as us
    >>> us.vander([1.0, 2.0, 3.0]).eval()
    array([[1., 1., 1.],
           [4., 2., 1.],
           [9., 3., 1.]])
    """
    x = as_tensor(x)
    if x.ndim != 1:
        raise ShapeError(f"vander takes a vector, got shape {x.shape}")
    (count,) = as_shape((x.shape[0] if N is None else N,))
    exponents = arange(count)
    if not increasing:
        exponents = layout.flip(exponents)
    return elementwise.power(reshape(x, (x.shape[0], 1)), exponents)


# --- arithmetic ------------------------------------------------------------------------------------------------------


def polyadd(a1: Any, a2: Any) -> Tensor:
    """Return the coefficients of the sum of two polynomials.

    Examples
    --------
    >>> import unspool as us
    >>> us.polyadd([1.0, 2.0], [9.0, 5.0, 4.0]).eval()
    array([9., 6., 6.])
    """
    return elementwise.add(*_same_degree("polyadd", a1, a2))


def polysub(a1: Any, a2: Any) -> Tensor:
    """Return the coefficients of the difference of two polynomials.

    Examples
    --------
    >>> import unspool as us
    >>> us.polysub([2.0, 10.0, -2.0], [3.0, 10.0, -4.0]).eval()
    array([-1.,  0.,  2.])
    """
    return elementwise.subtract(*_same_degree("polysub", a1, a2))


def polymul(a1: Any, a2: Any) -> Tensor:
    """Return the coefficients of the product of two polynomials.

    Examples
    --------
    >>> import unspool as us
    >>> us.polymul([1.0, 2.0, 3.0], [9.0, 5.0, 1.0]).eval()
    array([ 9., 23., 38., 17.,  3.])
    """
    first, second = as_operands(a1, a2)
    return convolve(_coefficients("polymul", first), _coefficients("polymul", second))


def polydiv(u: Any, v: Any) -> tuple[Tensor, Tensor]:
    """Divide polynomials: return the coefficients of quotient and remainder.

    How many coefficients the remainder has depends on values, so it is evaluated; leading ones that are 0 are left out.

    Examples
    --------
    >>> import unspool as us
    >>> quotient, remainder = us.polydiv([3.0, 5.0, 2.0], [2.0, 1.0])
    >>> quotient.eval(), remainder.eval()
    (array([1.5 , 1.75]), array([0.25]))
    """
    rest, divisor = (_coefficients("polydiv", elementwise.as_inexact(x)) for x in as_operands(u, v))
    steps, size = _known(rest) - _known(divisor) + 1, _known(divisor)
    quotient = []
    for step in range(steps):
        factor = getitem(rest, step) / getitem(divisor, 0)
        quotient.append(factor)
        rest = rest.at[step : step + size].subtract(factor * divisor)
    if not quotient:
        return reshape(getitem(rest, 0) * 0, (1,)), rest
    remainder = getitem(rest, slice(max(steps, 0), None)) if size > 1 else getitem(rest, slice(-1, None))
    vanishing = np.isclose(remainder.eval(), 0, rtol=1e-14)
    start = int(np.argmin(vanishing)) if not vanishing.all() else len(vanishing) - 1
    return layout.stack(quotient), getitem(remainder, slice(start, None))


def _same_degree(name: str, a1: Any, a2: Any) -> tuple[Tensor, Tensor]:
    first, second = (_coefficients(name, x) for x in as_operands(a1, a2))
    sizes = _known(first), _known(second)
    longest = max(sizes)
    return tuple(pad(x, (longest - size, 0)) for x, size in zip((first, second), sizes, strict=True))  # type: ignore[return-value]


def _coefficients(name: str, p: Any) -> Tensor:
    tensor = layout.atleast_1d(p)
    if tensor.ndim != 1:
        raise ShapeError(f"{name} takes coefficients along one axis, got shape {tensor.shape}")
    return tensor  # type: ignore[no-any-return]


def _known(p: Tensor) -> int:
    size = p.shape[0]
    if isinstance(size, Dim):
        raise UnknownSizeError(f"how many coefficients a polynomial has must be known here, got {size}")
    return size


# --- calculus --------------------------------------------------------------------------------------------------------


def polyder(p: Any, m: int = 1) -> Tensor:
    """Return the coefficients of the ``m``-th derivative of a polynomial.

    Examples
    --------
    >>> import unspool as us
    >>> us.polyder([1.0, 1.0, 1.0, 1.0]).eval()
    array([3., 2., 1.])
    """
    derivative = _coefficients("polyder", p)
    for _ in range(as_integer(m, "m", least=0)):
        powers = arange(derivative.shape[0] - 1, 0, -1)
        derivative = elementwise.multiply(getitem(derivative, slice(None, -1)), powers)
    return derivative


def polyint(p: Any, m: int = 1, k: Any = None) -> Tensor:
    """Return the coefficients of the ``m``-th integral of a polynomial.

    Parameters
    ----------
    p : array_like
        The coefficients.
    m : int
        How often to integrate.
    k : array_like, optional
        The constants of integration, in the order in which they arise; 0 by default.

    Examples
    --------
    >>> import unspool as us
    >>> us.polyint([3.0, 2.0, 1.0]).eval()
    array([1., 1., 1., 0.])
    """
    integral = elementwise.as_inexact(_coefficients("polyint", p))
    times = as_integer(m, "m", least=0)
    constants = layout.broadcast_to(_coefficients("polyint", 0.0 if k is None else k), (max(times, 1),))
    for step in range(times):
        raised = elementwise.divide(integral, arange(integral.shape[0], 0, -1))
        integral = concat([raised, getitem(constants, slice(step, step + 1))])
    return integral


# --- zeros and fits --------------------------------------------------------------------------------------------------


def poly(seq_of_zeros: Any) -> Tensor:
    """Return the coefficients of the polynomial with given zeros, or of the characteristic polynomial of a matrix.

    Complex zeros that come in conjugate pairs give real coefficients; to see that, they are evaluated.

    Examples
    --------
    >>> import unspool as us
    >>> us.poly([1.0, 2.0]).eval()
    array([ 1., -3.,  2.])
    """
    zeros = layout.atleast_1d(seq_of_zeros)
    if zeros.ndim == 2 and zeros.shape[0] == zeros.shape[1] and zeros.shape[0] != 0:
        zeros = eigvals(zeros)
    if zeros.ndim != 1:
        raise ShapeError(f"poly takes zeros along one axis, or a square matrix, got shape {zeros.shape}")
    zeros = elementwise.as_inexact(zeros)
    coefficients = constant(np.ones(1), zeros.dtype)
    for zero in layout.unstack(zeros):
        coefficients = convolve(coefficients, layout.stack([constant(1, zeros.dtype), -zero]))
    if zeros.dtype in COMPLEX:
        values = zeros.eval()
        if np.all(np.sort(values) == np.sort(values.conjugate())):
            return elementwise.real(coefficients)
    return coefficients


def roots(p: Any) -> Tensor:
    """Return the zeros of a polynomial, as complex numbers: the eigenvalues of its companion matrix.

    How many there are depends on which leading coefficients are 0, so the coefficients are evaluated.

    Examples
    --------
    >>> import unspool as us
    >>> us.sort(us.roots([1.0, -3.0, 2.0]).real).eval()
    array([1., 2.])
    """
    p = elementwise.as_inexact(_coefficients("roots", p))
    present = np.flatnonzero(p.eval())
    if not len(present):
        return constant(np.zeros(0, np.complex128))
    trailing = _known(p) - 1 - int(present[-1])
    p = getitem(p, slice(int(present[0]), int(present[-1]) + 1))
    wanted = np.result_type(p.dtype, np.complex64)
    at_zero = constant(np.zeros(trailing), wanted)
    degree = _known(p) - 1
    if not degree:
        return at_zero
    below = constant(np.eye(degree, k=-1), p.dtype)
    companion = below.at[0].set(-getitem(p, slice(1, None)) / getitem(p, 0))
    return concat([elementwise.astype(eigvals(companion), wanted), at_zero])


def polyfit(x: Any, y: Any, deg: int, rcond: float | None = None, w: Any = None, cov: bool | str = False) -> Any:
    """Fit a polynomial to samples by least squares.

    Parameters
    ----------
    x : array_like, shape (m,)
        Where the samples were taken.
    y : array_like, shape (m,) or (m, k)
        The samples, or several sets of them.
    deg : int
        The degree.
    rcond : float, optional
        Singular values up to this times the largest are taken to be zero; by default ``m`` times the precision.
    w : array_like, shape (m,), optional
        Weights of the residuals, before they are squared.
    cov : bool or "unscaled"
        Return the covariance of the coefficients, too, scaled so that the residuals are what the weights say.

    Examples
    --------
    >>> import unspool as us
    >>> us.polyfit([0.0, 1.0, 2.0], [1.0, 3.0, 5.0], 1).eval().round(12)
    array([2., 1.])
    """
    x, y = (elementwise.as_inexact(value) for value in as_operands(x, y))
    order = as_integer(deg, "deg", least=0) + 1
    if x.ndim != 1 or y.ndim not in (1, 2) or x.shape[0] != y.shape[0]:
        raise ShapeError(f"polyfit takes samples (m,) or (m, k) at places (m,), got shapes {y.shape} and {x.shape}")
    matrix, samples = vander(x, order), y
    if w is not None:
        w = elementwise.as_inexact(w)
        if w.ndim != 1 or w.shape != x.shape:
            raise ShapeError(f"polyfit takes one weight for each of {x.shape[0]} samples, got shape {w.shape}")
        column = reshape(w, (w.shape[0], 1))
        matrix, samples = matrix * column, samples * (w if y.ndim == 1 else column)
    if rcond is None:
        rcond = _known(x) * float(np.finfo(real_dtype(x.dtype)).eps)
    # Columns of one size: powers of large numbers would hide those of small ones.
    scale = elementwise.sqrt(sum_(elementwise.real(matrix * elementwise.conj(matrix)), axis=0))
    found = lstsq(matrix / scale, samples, rcond=rcond)
    coefficients = found[0] / (scale if y.ndim == 1 else reshape(scale, (order, 1)))
    if cov is False:
        return coefficients
    return coefficients, _covariance(matrix, samples, coefficients, scale, cov)


def _covariance(matrix: Tensor, samples: Tensor, coefficients: Tensor, scale: Tensor, cov: Any) -> Tensor:
    if cov is not True and cov != "unscaled":
        raise ArgumentError(f"cov is True, False or 'unscaled', got {cov!r}")
    scaled = matrix / scale
    base = inv(matmul(layout.matrix_transpose(scaled), scaled)) / outer(scale, scale)
    if samples.ndim == 2:
        base = reshape(base, (*base.shape, 1))
    if cov == "unscaled":
        return base
    rows, order = _known(matrix), matrix.shape[1]
    if rows <= order:
        raise ArgumentError(f"a covariance needs more than {order} samples, got {rows}")
    residue = samples - matmul(matrix, coefficients)
    variance = sum_(residue * residue, axis=0) / (rows - order)
    return base * variance
