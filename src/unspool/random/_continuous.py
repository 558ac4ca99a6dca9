"""Draws from continuous distributions, differentiable in their parameters.

The one idea: a draw is a quantile at a uniform level that depends on the key alone, so it is a smooth function of its
parameters, and its derivatives are those of the quantile. For the gamma distribution, which has no elementary quantile
function, this is what is called implicit reparametrisation. It is drawn as a logarithm, which does not underflow when
the shape is small; beta and Dirichlet draws are made of differences of such logarithms.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from numpy.typing import DTypeLike

from unspool._dims import Size
from unspool._ops import layout
from unspool._ops.broadcasting import broadcast_shapes
from unspool._ops.contraction import matvec
from unspool._ops.elementwise import (
    abs,
    add,
    astype,
    divide,
    exp,
    log,
    log1p,
    logical_not,
    multiply,
    negative,
    sigmoid,
    sign,
    sqrt,
    subtract,
    tan,
    where,
)
from unspool._ops.elementwise.build import as_inexact
from unspool._ops.leaf import as_shape
from unspool._ops.random import Key, draw_normal, draw_uniform
from unspool._ops.reduction.exponentials import softmax
from unspool.errors import ShapeError
from unspool.random._arguments import as_key, draw_level, parameters, real_dtype_of

if TYPE_CHECKING:
    from unspool._tensor import Tensor

Shape = Size | tuple[Size, ...]


# --- with an elementary quantile function ----------------------------------------------------------------------------


def exponential(key: Key, shape: Shape = (), dtype: DTypeLike = "float64") -> Tensor:
    """Draw from the exponential distribution with rate 1; divide by a rate for another.

    Examples
    --------
    >>> import unspool as us
    >>> bool(us.all(us.random.exponential(us.random.key(0), (100,)) >= 0))
    True
    """
    unit = draw_uniform(as_key(key), as_shape(shape), real_dtype_of(dtype, "exponential"))
    return negative(log1p(negative(unit)))


def gumbel(key: Key, shape: Shape = (), dtype: DTypeLike = "float64") -> Tensor:
    """Draw from the standard Gumbel distribution, that of the largest of many.

    Examples
    --------
    >>> import unspool as us
    >>> us.random.gumbel(us.random.key(0), (2, 3)).shape
    (2, 3)
    """
    return negative(log(negative(log(draw_level(key, as_shape(shape), real_dtype_of(dtype, "gumbel"))))))


def laplace(key: Key, shape: Shape = (), dtype: DTypeLike = "float64") -> Tensor:
    """Draw from the Laplace distribution with location 0 and scale 1.

    Examples
    --------
    >>> import unspool as us
    >>> us.random.laplace(us.random.key(0), (2, 3)).shape
    (2, 3)
    """
    level = draw_level(key, as_shape(shape), real_dtype_of(dtype, "laplace"))
    side = subtract(multiply(level, 2.0), 1.0)
    return negative(multiply(sign(side), log1p(negative(abs(side)))))


def logistic(key: Key, shape: Shape = (), dtype: DTypeLike = "float64") -> Tensor:
    """Draw from the logistic distribution with location 0 and scale 1.

    Examples
    --------
    >>> import unspool as us
    >>> us.random.logistic(us.random.key(0), (2, 3)).shape
    (2, 3)
    """
    from unspool._ops.special.entropy import logit

    return logit(draw_level(key, as_shape(shape), real_dtype_of(dtype, "logistic")))


def cauchy(key: Key, shape: Shape = (), dtype: DTypeLike = "float64") -> Tensor:
    """Draw from the Cauchy distribution with location 0 and scale 1.

    Examples
    --------
    >>> import unspool as us
    >>> us.random.cauchy(us.random.key(0), (2, 3)).shape
    (2, 3)
    """
    level = draw_level(key, as_shape(shape), real_dtype_of(dtype, "cauchy"))
    return tan(multiply(subtract(level, 0.5), math.pi))


def pareto(key: Key, b: Any, shape: Shape | None = None, dtype: DTypeLike = "float64") -> Tensor:
    """Draw from the Pareto distribution with exponent ``b`` on numbers from 1 on.

    Examples
    --------
    >>> import unspool as us
    >>> bool(us.all(us.random.pareto(us.random.key(0), 3.0, (100,)) >= 1))
    True
    """
    sizes, (exponent,) = parameters(shape, b)
    return _as(exp(divide(exponential(key, sizes), exponent)), dtype, "pareto")


def rayleigh(key: Key, scale: Any = 1.0, shape: Shape | None = None, dtype: DTypeLike = "float64") -> Tensor:
    """Draw from the Rayleigh distribution: the length of two independent normal numbers.

    Examples
    --------
    >>> import unspool as us
    >>> bool(us.random.rayleigh(us.random.key(0), 2.0) > 0)
    True
    """
    sizes, (factor,) = parameters(shape, scale)
    return _as(multiply(factor, sqrt(multiply(exponential(key, sizes), 2.0))), dtype, "rayleigh")


def weibull_min(
    key: Key, scale: Any, concentration: Any, shape: Shape | None = None, dtype: DTypeLike = "float64"
) -> Tensor:
    """Draw from the Weibull distribution: a power of an exponential number.

    Examples
    --------
    >>> import unspool as us
    >>> bool(us.random.weibull_min(us.random.key(0), 2.0, 1.5) > 0)
    True
    """
    sizes, (factor, exponent) = parameters(shape, scale, concentration)
    return _as(multiply(factor, exponential(key, sizes) ** divide(1.0, exponent)), dtype, "weibull_min")


# --- made of normal numbers ------------------------------------------------------------------------------------------


def lognormal(key: Key, sigma: Any = 1.0, shape: Shape | None = None, dtype: DTypeLike = "float64") -> Tensor:
    """Draw numbers whose logarithm is normal with mean 0 and standard deviation ``sigma``.

    Examples
    --------
    >>> import unspool as us
    >>> bool(us.random.lognormal(us.random.key(0)) > 0)
    True
    """
    sizes, (deviation,) = parameters(shape, sigma)
    wanted = real_dtype_of(dtype, "lognormal")
    return _as(exp(multiply(deviation, draw_normal(as_key(key), sizes, wanted))), dtype, "lognormal")


def truncated_normal(
    key: Key, lower: Any, upper: Any, shape: Shape | None = None, dtype: DTypeLike = "float64"
) -> Tensor:
    """Draw from the standard normal distribution between two ends, in which the result is differentiable.

    Examples
    --------
    >>> import unspool as us
    >>> far = us.random.truncated_normal(us.random.key(0), 20.0, 21.0, (100,))
    >>> bool(us.all((far >= 20) & (far <= 21)))
    True
    """
    from unspool._ops.special.normal import ndtr, ndtri

    sizes, (low, high) = parameters(shape, lower, upper)
    # In the upper tail probabilities are all 1: there the mirror image is drawn.
    upright = logical_not(low > 0)
    first, last = where(upright, low, negative(high)), where(upright, high, negative(low))
    below, above = ndtr(first), ndtr(last)
    level = draw_level(key, sizes)
    drawn = ndtri(add(below, multiply(subtract(above, below), level)))
    return _as(where(upright, drawn, negative(drawn)), dtype, "truncated_normal")


def multivariate_normal(
    key: Key, mean: Any, cov: Any, shape: Shape | None = None, dtype: DTypeLike = "float64"
) -> Tensor:
    """Draw vectors from a normal distribution with a mean and a covariance matrix.

    Parameters
    ----------
    key : Key
        Made by `key`, `split` or `fold_in`.
    mean : array_like
        Vectors in the last axis.
    cov : array_like
        Positive definite matrices in the last two axes. The result is differentiable in both, through the Cholesky
        factor.
    shape : int or tuple of int or Dim, optional
        The shape without the last axis, by default that of the leading axes.
    dtype : dtype_like
        A floating-point data type.

    Examples
    --------
    >>> import unspool as us
    >>> us.random.multivariate_normal(us.random.key(0), [1.0, 2.0], us.eye(2), (5,)).shape
    (5, 2)
    """
    from unspool._ops.linalg.cholesky import cholesky

    center, factor = as_inexact(mean), cholesky(cov)
    if not center.ndim:
        raise ShapeError("multivariate_normal takes vectors as mean: tensors with at least one axis, got none")
    leading = broadcast_shapes(center.shape[:-1], factor.shape[:-2])
    sizes = leading if shape is None else as_shape(shape)
    wanted = real_dtype_of(dtype, "multivariate_normal")
    noise = draw_normal(as_key(key), (*sizes, factor.shape[-1]), wanted)
    return _as(add(center, matvec(factor, noise)), dtype, "multivariate_normal")


def orthogonal(key: Key, n: int, shape: Shape = (), dtype: DTypeLike = "float64") -> Tensor:
    """Draw n-by-n orthogonal matrices, evenly over all of them.

    Examples
    --------
    >>> import unspool as us
    >>> q = us.random.orthogonal(us.random.key(0), 3)
    >>> us.allclose(q @ q.T, us.eye(3)).eval()
    array(True)
    """
    from unspool._ops.linalg.qr import qr

    square = draw_normal(as_key(key), (*as_shape(shape), *as_shape((n, n))), real_dtype_of(dtype, "orthogonal"))
    q, r = qr(square)
    # Evenly, because the signs that the decomposition leaves open are those of the diagonal.
    return multiply(q, layout.expand_dims(sign(layout.diagonal(r, axis1=-2, axis2=-1)), -2))


# --- made of gamma numbers -------------------------------------------------------------------------------------------


def loggamma(key: Key, a: Any, shape: Shape | None = None, dtype: DTypeLike = "float64") -> Tensor:
    """Draw the logarithm of a gamma number, which is in range for every shape parameter ``a``.

    Examples
    --------
    >>> import unspool as us
    >>> bool(us.isfinite(us.random.loggamma(us.random.key(0), 1e-5)))
    True
    """
    from unspool._ops.special.incomplete import log_gamma_quantile

    sizes, (concentration,) = parameters(shape, a)
    return _as(log_gamma_quantile(concentration, draw_level(key, sizes)), dtype, "loggamma")


def gamma(key: Key, a: Any, shape: Shape | None = None, dtype: DTypeLike = "float64") -> Tensor:
    """Draw from the gamma distribution with shape parameter ``a`` and scale 1; differentiable in ``a``.

    Parameters
    ----------
    key : Key
        Made by `key`, `split` or `fold_in`.
    a : array_like
        The shape parameter, broadcast to the shape of the draw.
    shape : int or tuple of int or Dim, optional
        By default that of ``a``.
    dtype : dtype_like
        A floating-point data type.

    Examples
    --------
    >>> import unspool as us
    >>> a = us.tensor(3.0)
    >>> sample = us.random.gamma(us.random.key(0), a, (1000,))
    >>> bool(us.abs(us.mean(sample) - 3.0) < 0.2), bool(us.abs(us.mean(sample).grad(a) - 1.0) < 0.1)
    (True, True)
    """
    return exp(loggamma(key, a, shape, dtype))


def chisquare(key: Key, df: Any, shape: Shape | None = None, dtype: DTypeLike = "float64") -> Tensor:
    """Draw from the chi-square distribution with ``df`` degrees of freedom; differentiable in these.

    Examples
    --------
    >>> import unspool as us
    >>> bool(us.random.chisquare(us.random.key(0), 4.0) > 0)
    True
    """
    return multiply(gamma(key, multiply(as_inexact(df), 0.5), shape, dtype), 2.0)


def t(key: Key, df: Any, shape: Shape | None = None, dtype: DTypeLike = "float64") -> Tensor:
    """Draw from Student's t distribution with ``df`` degrees of freedom; differentiable in these.

    Examples
    --------
    >>> import unspool as us
    >>> us.random.t(us.random.key(0), 4.0, (2,)).shape
    (2,)
    """
    sizes, (freedom,) = parameters(shape, df)
    first, second = as_key(key).derive("t", 0), as_key(key).derive("t", 1)
    spread = sqrt(divide(freedom, chisquare(second, freedom, sizes)))
    return _as(multiply(draw_normal(first, sizes, real_dtype_of(dtype, "t")), spread), dtype, "t")


def beta(key: Key, a: Any, b: Any, shape: Shape | None = None, dtype: DTypeLike = "float64") -> Tensor:
    """Draw from the beta distribution; differentiable in both parameters.

    Examples
    --------
    >>> import unspool as us
    >>> sample = us.random.beta(us.random.key(0), 2.0, 3.0, (100,))
    >>> bool(us.all((sample > 0) & (sample < 1)))
    True
    """
    sizes, (first, second) = parameters(shape, a, b)
    key = as_key(key)
    odds = subtract(loggamma(key.derive("beta", 0), first, sizes), loggamma(key.derive("beta", 1), second, sizes))
    return _as(sigmoid(odds), dtype, "beta")


def dirichlet(key: Key, alpha: Any, shape: Shape | None = None, dtype: DTypeLike = "float64") -> Tensor:
    """Draw probabilities, in the last axis, from the Dirichlet distribution; differentiable in ``alpha``.

    Parameters
    ----------
    key : Key
        Made by `key`, `split` or `fold_in`.
    alpha : array_like
        Concentrations in the last axis.
    shape : int or tuple of int or Dim, optional
        The shape without the last axis, by default that of the leading axes of ``alpha``.
    dtype : dtype_like
        A floating-point data type.

    Examples
    --------
    >>> import unspool as us
    >>> sample = us.random.dirichlet(us.random.key(0), [1.0, 2.0, 3.0], (4,))
    >>> sample.shape, us.allclose(us.sum(sample, axis=-1), 1.0).eval()
    ((4, 3), array(True))
    """
    concentration = as_inexact(alpha)
    if not concentration.ndim:
        raise ShapeError("dirichlet takes concentrations in the last axis, got a tensor without axes")
    leading = concentration.shape[:-1] if shape is None else as_shape(shape)
    logs = loggamma(key, concentration, (*leading, concentration.shape[-1]))
    return _as(softmax(logs, axis=-1), dtype, "dirichlet")


def _as(x: Tensor, dtype: DTypeLike, function: str) -> Tensor:
    return astype(x, real_dtype_of(dtype, function))
