"""Derivatives of the incomplete gamma and beta functions by their parameters, computed by quadrature.

The one idea: both are distribution functions, F(w) = ∫ f over all up to w, of a variable on the whole real line: the
logarithm of a gamma variate, the log-odds of a beta variate. A derivative by a parameter is the integral of f times a
polynomial in the score, a complete Bell polynomial of the derivatives of log f. All of it integrates to 0, so either
side of w will do: the one that does not contain the sign change of the first derivative is taken, and nothing cancels.
In these variables log f is concave and smooth, f falls at least exponentially, and Gauss' rule on a few panels is
accurate to rounding. Results are divided by f(w), which neither overflows nor vanishes in the tails.

Plain NumPy and SciPy: this module knows nothing of graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import comb
from typing import Any

import numpy as np

_NODES = 40
_HALVINGS = 45
# Where the integrand has fallen by this power of e, and more for polynomials of higher order, it is cut off.
_CUT = 42.0
# Elements are integrated so many at a time: the integrand is evaluated at all nodes at once.
_CHUNK = 4096
# Where log f may bend although it falls slowly, because a parameter is small: panels end there.
_GAMMA_BENDS = (-36.0, -12.0, -2.0)
_BETA_BENDS = (-36.0, -12.0, -3.0, 3.0, 12.0, 36.0)


def bell_polynomial(order: Sequence[int], cumulant: Callable[[tuple[int, ...]], Any]) -> Any:
    """Return the derivative of exp(φ) of a mixed order, over exp(φ), from those of φ; of order 0 it is 1."""
    found: dict[tuple[int, ...], Any] = {}

    def derivative(of: tuple[int, ...]) -> Any:
        if not any(of):
            return 1.0
        if of not in found:
            axis = next(i for i, count in enumerate(of) if count)
            rest = tuple(count - (i == axis) for i, count in enumerate(of))
            total: Any = 0.0
            for taken in np.ndindex(*[count + 1 for count in rest]):
                ways = float(np.prod([comb(n, k) for n, k in zip(rest, taken, strict=True)]))
                left = tuple(n - k for n, k in zip(rest, taken, strict=True))
                moved = tuple(int(k) + (i == axis) for i, k in enumerate(taken))
                total = total + ways * derivative(left) * cumulant(moved)
            found[of] = total
        return found[of]

    return derivative(tuple(order))


# --- the gamma distribution ------------------------------------------------------------------------------------------


def gamma_ratio(a: Any, w: Any, order: int) -> Any:
    """Return ∂ᵐF/∂aᵐ over f at w = log(x), where F(w) is the regularised lower incomplete gamma function P(a, x)."""
    from scipy.special import digamma, polygamma

    def on(a: Any, w: Any) -> Any:
        x, center = np.exp(w), digamma(a)
        higher = [-polygamma(k, a) for k in range(1, order)]

        deep = w < -300.0

        def weight(s: Any) -> Any:
            rise = x * np.expm1(s)
            # So far out x may be too small for a float, and s so large that its exponential is too large for one.
            return a * s - (np.where(deep, np.exp(w + s), rise) if deep.any() else rise)

        def polynomial(s: Any) -> Any:
            return bell_polynomial([order], lambda k: w + s - center if k == (1,) else higher[k[0] - 2])

        # An upper bound for where the integrand is cut off, on either side.
        cut = _CUT + 4 * order
        by_square = (np.maximum(a - x, 0) + np.sqrt((a - x) ** 2 + 2 * x * cut)) / np.maximum(x, 1e-300)
        by_exponential = np.maximum(
            np.logaddexp(0, np.log(2 * cut) - w) + 1, 2 * np.logaddexp(0, np.log(2 * a) - w) + 2
        )
        bounds = (cut + x) / a, np.minimum(by_square, by_exponential)
        return _one_sided(weight, polynomial, w, w < center, bounds, cut, _GAMMA_BENDS)

    return _by_chunks(on, lambda a, w: (a > 0) & np.isfinite(a) & np.isfinite(w), a, w)


# --- the beta distribution -------------------------------------------------------------------------------------------


def beta_ratio(a: Any, b: Any, w: Any, order: tuple[int, int]) -> Any:
    """Return ∂ᵐ⁺ˡF/∂aᵐ∂bˡ over f at w = logit(x), where F(w) is the regularised incomplete beta function I(a, b, x)."""
    from scipy.special import digamma, log_expit, polygamma

    def on(a: Any, b: Any, w: Any) -> Any:
        log_p, log_q, total = log_expit(w), log_expit(-w), a + b
        means = digamma(a) - digamma(total), digamma(b) - digamma(total)

        def weight(s: Any) -> Any:
            return a * (log_expit(w + s) - log_p) + b * (log_expit(-w - s) - log_q)

        def higher(i: int, j: int) -> Any:
            alone = (polygamma(i - 1, a) if not j else 0) + (polygamma(j - 1, b) if not i else 0)
            return polygamma(i + j - 1, total) - alone

        known = {k: higher(*k) for k in np.ndindex(order[0] + 1, order[1] + 1) if sum(k) > 1}

        def polynomial(s: Any) -> Any:
            first = {(1, 0): log_expit(w + s) - means[0], (0, 1): log_expit(-w - s) - means[1]}
            return bell_polynomial(order, lambda k: first[k] if k in first else known[k])

        cut = _CUT + 4 * sum(order)
        # Each tail falls like exp(-a·s) or exp(-b·s) once it has passed 0.
        bounds = cut / a + 2 * (np.abs(w) + 1) * (1 + b / a), cut / b + 2 * (np.abs(w) + 1) * (1 + a / b)
        left = log_p < means[0] if order[0] else log_q > means[1]
        return _one_sided(weight, polynomial, w, left, bounds, cut, _BETA_BENDS)

    return _by_chunks(on, lambda a, b, w: (a > 0) & (b > 0) & np.isfinite(a) & np.isfinite(b) & np.isfinite(w), a, b, w)


# --- integration -----------------------------------------------------------------------------------------------------


def _one_sided(
    weight: Callable[[Any], Any],
    polynomial: Callable[[Any], Any],
    w: Any,
    left: Any,
    bounds: tuple[Any, Any],
    cut: float,
    bends: tuple[float, ...],
) -> Any:
    """Return the integral of polynomial·exp(weight) over s < 0 where ``left``, elsewhere minus that over s > 0."""
    direction = np.where(left, -1.0, 1.0)
    length = _cut_off(lambda s: weight(direction * s), np.where(left, *bounds), cut)
    inner = [np.clip(direction * (bend - w), 0, length) for bend in bends]
    edges = np.sort([np.zeros(w.shape), *inner, length], axis=0)
    nodes, weights = _gauss_legendre()
    half, middle = np.diff(edges, axis=0) / 2, (edges[1:] + edges[:-1]) / 2
    s = direction * (middle + half * nodes[:, None, None])
    integrand = polynomial(s) * np.exp(weight(s))
    return -direction * np.einsum("n,p...,np...->...", weights, half, integrand)


def _cut_off(weight: Callable[[Any], Any], bound: Any, cut: float) -> Any:
    """Return how far to go until the integrand has fallen by a power of e, by bisection: a digit or two will do."""
    low, high = np.zeros(bound.shape), bound
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        falls = weight(middle) < -cut
        low, high = np.where(falls, low, middle), np.where(falls, middle, high)
    return high


@lru_cache(maxsize=1)
def _gauss_legendre() -> tuple[Any, Any]:
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return nodes, weights


def _by_chunks(on: Callable[..., Any], valid: Callable[..., Any], *operands: Any) -> Any:
    """Apply a function of flat arrays to broadcast operands, in double precision; NaN where it is not defined."""
    arrays = [np.ravel(a).astype(float) for a in np.broadcast_arrays(*operands)]
    result = np.full(arrays[0].shape, np.nan)
    with np.errstate(all="ignore"):
        where = np.flatnonzero(valid(*arrays))
        for first in range(0, len(where), _CHUNK):
            chunk = where[first : first + _CHUNK]
            result[chunk] = on(*[a[chunk] for a in arrays])
    return result.reshape(np.broadcast_shapes(*[np.shape(a) for a in operands]))
