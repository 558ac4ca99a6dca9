"""NumPy's functions in many forms of arguments: each expression has NumPy's values, shapes and data types.

Expressions are evaluated twice, with ``xp`` as unspool and as NumPy. What has derivatives is in ``tests/samples``.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool.errors import (
    ArgumentError,
    AxisError,
    DTypeError,
    IndexRangeError,
    ShapeError,
    UnknownSizeError,
    UnspoolError,
)

_rng = np.random.default_rng(7)
DATA: dict[str, Any] = {
    "x": _rng.normal(size=(3, 4)),
    "y": _rng.normal(size=(3, 4)),
    "z": _rng.normal(size=(2, 4, 6)),
    "v": _rng.normal(size=4),
    "c": np.sort(_rng.normal(size=4)),
    "d": np.sort(_rng.normal(size=3)),
    "w": _rng.uniform(0.5, 2.0, size=4),
    "special": np.array([-2.5, 0.0, 1.5, np.inf, -np.inf, np.nan, 7.0]),
    "holes": np.array([[1.0, np.nan, 3.0], [np.nan, np.nan, np.nan], [-2.0, 0.5, np.nan]]),
    "i": np.array([-12, 0, 7, 30, 5, -3]),
    "j": np.array([8, 3, 2, 4, 9, 1]),
    "places": np.array([2, 0, 1, 1]),
    "few": np.array([[3.0, 1.0, 3.0], [2.0, 1.0, 0.0]]),
    "many": _rng.normal(size=200),
    "others": _rng.normal(size=200),
    "weights": _rng.uniform(size=200),
    "points": _rng.normal(size=(50, 3)),
    "bits": _rng.integers(0, 2, size=(3, 11)),
    "far": np.array([[1.0, 2.0, np.inf], [-np.inf, 1.0, 2.0], [-np.inf, -np.inf, 1.0], [-np.inf, 0.0, np.inf]]),
    "falling": np.array([9, 4, 2], "uint8"),
    "bytes_": _rng.integers(0, 255, size=(2, 3)).astype("uint8"),
    "f32": _rng.normal(size=5).astype("float32"),
    "complex_": _rng.normal(size=3) + 1j * _rng.normal(size=3),
}

CALCULUS = """
xp.diff(x); xp.diff(x, n=0); xp.diff(x, n=9); xp.diff(x > 0); xp.diff(f32); xp.diff(i, append=[1, 2])
xp.diff(x, axis=0, prepend=0.0); xp.diff(x, append=y, prepend=2.0); xp.ediff1d(x, [1.0, 2.0], 4.0); xp.ediff1d(i)
xp.gradient(x); xp.gradient(x, 2.0); xp.gradient(x, 2.0, 3.0); xp.gradient(x, d, c)
xp.gradient(x, d, 0.5, edge_order=2); xp.gradient(x, c, axis=1); xp.gradient(x, c, d, axis=(1, 0)); xp.gradient(f32)
xp.gradient(i); xp.gradient(falling); xp.gradient([1.0, 5.0, 2.0], falling)
xp.trapezoid(x); xp.trapezoid(x, dx=0.5); xp.trapezoid(x, x=c); xp.trapezoid(x, x=d, axis=0)
xp.trapezoid(i); xp.interp(x, c, v); xp.interp(x, c, v, left=7.0, right=-1.0); xp.interp(x, c, v, period=1.3)
xp.interp(c, c, v); xp.interp(x, [1.0], [5.0]); xp.interp(2, [1, 3], [5, 6]); xp.interp(x, c, v + 1j)
xp.unwrap(9 * x); xp.unwrap(9 * x, axis=0); xp.unwrap(x, period=1.5); xp.unwrap(9 * x, discont=4.0)
xp.convolve(v, w, "full"); xp.convolve(v, d, "same"); xp.convolve(d, v, "same"); xp.convolve(d, v, "valid")
xp.convolve(v[:2], v, "same"); xp.convolve(i, j); xp.convolve(complex_, v, "valid"); xp.convolve(2.0, v)
xp.correlate(v, w); xp.correlate(v, d, "same"); xp.correlate(d, v, "same"); xp.correlate(v[:2], v, "same")
xp.correlate(v, v[:2], "same"); xp.correlate(complex_, v, "full"); xp.correlate(d, complex_, "same")
xp.cross(points, points[::-1]); xp.cross(points.T, points, axisa=0, axisc=0)
xp.cross(points.T, points[::-1].T, axis=0)
"""

STATISTICS = """
xp.average(x); xp.average(x, axis=0); xp.average(x, weights=y + 5); xp.average(x, axis=1, weights=w, keepdims=True)
xp.average(x, returned=True); xp.average(x, axis=1, weights=y + 5, returned=True)
xp.average([1, 2, 3], weights=[1, 1, 2]); xp.median(x); xp.median(x, axis=0)
xp.median(x, axis=(0, 1), keepdims=True); xp.median([3, 1, 2]); xp.median(f32); xp.median([np.inf, np.inf])
xp.median(holes, axis=1); xp.median(z, axis=(0, 2)); xp.quantile(x, 0.3); xp.quantile(x, [0.0, 0.5, 1.0], axis=1)
xp.quantile(x, [[0.1, 0.2]], axis=0, keepdims=True); xp.quantile(x, 0.3, axis=1, method="lower")
xp.quantile(x, 0.3, axis=1, method="higher"); xp.quantile(x, 0.3, axis=1, method="midpoint")
xp.quantile(x, 0.3, axis=1, method="nearest"); xp.quantile(x, [0.0, 0.25, 1.0], axis=1, method="hazen")
xp.quantile(x, [0.0, 0.25, 1.0], method="weibull")
xp.quantile(x, [0.0, 0.25, 1.0], axis=1, method="median_unbiased"); xp.quantile(x, 0.01, method="normal_unbiased")
xp.quantile(x, [0.0, 0.25, 0.3], axis=1, method="inverted_cdf")
xp.quantile(x, 0.7, method="interpolated_inverted_cdf")
xp.quantile(x, [0.0, 0.25, 0.3, 1.0], axis=1, method="averaged_inverted_cdf"); xp.percentile(x, [10, 20.0], axis=0)
xp.cov(x); xp.cov(x, bias=True); xp.cov(x, ddof=0); xp.cov(x, rowvar=False); xp.cov(x, y); xp.cov(v)
xp.cov(x + 1j * y); xp.cov(x, fweights=[1, 2, 3, 1]); xp.cov(x, aweights=w)
xp.cov(x, fweights=[1, 2, 3, 1], aweights=w, ddof=2); xp.corrcoef(x); xp.corrcoef(v, w); xp.corrcoef(v)
xp.corrcoef(x + 1j * y); xp.corrcoef(x, rowvar=False); xp.nansum(holes); xp.nansum(holes, axis=1)
xp.nanprod(holes, axis=0, keepdims=True); xp.nansum(i); xp.nansum(holes + 1j); xp.nanmean(holes, axis=1)
xp.nanvar(holes, axis=1, ddof=1); xp.nanstd(holes, axis=0); xp.nanmax(holes, axis=1); xp.nanmin(holes); xp.nanmax(i)
xp.nanargmax(holes); xp.nanargmin(holes, axis=0); xp.nancumsum(holes, axis=1); xp.nancumprod(holes)
xp.nanmedian(holes, axis=1); xp.nanquantile(holes, [0.3, 0.8], axis=1); xp.nanpercentile(holes, 30)
xp.nanquantile(holes, 0.4, axis=0, method="weibull"); xp.nansum(holes, axis=1, initial=2.0, where=holes > 0)
xp.nanmax(holes, axis=1, initial=0.0, where=holes < 9); xp.nanmin(holes, axis=1, initial=5.0, where=holes > 0.7)
xp.median(far, axis=1); xp.nanmedian(far, axis=1); xp.median(far); xp.quantile(far[0], [0.0, 0.3, 0.7])
xp.nanmean(holes, axis=1, where=holes > 0); xp.nanstd(holes, axis=1, where=holes > 0); xp.nanmax(i, initial=99)
"""

HISTOGRAMS = """
xp.histogram(many); xp.histogram(many, 7); xp.histogram(many, [-1.0, 0.0, 0.5, 2.0])
xp.histogram(many, range=(-1, 1)); xp.histogram(many, density=True); xp.histogram(many, weights=weights)
xp.histogram(many, 4, density=True, weights=weights); xp.histogram(np.ones(3)); xp.histogram([1, 2, 3, 4])
xp.histogram([3, 1, 2, 5, 4, 6]); xp.histogram(np.arange(12), 11); xp.linspace(np.float64(1.0), np.array(6.0), 11)
xp.histogram(np.zeros(0)); xp.histogram_bin_edges(many, 5); xp.histogram2d(many, others)
xp.histogram2d(many, others, (3, 4)); xp.histogram2d(many, others, 3, weights=weights)
xp.histogram2d(many, others, [[-1.0, 0.0, 1.0], 5]); xp.histogram2d(many, others, 3, density=True)
xp.histogram2d(many, others, 3, [[-1, 1], [0, 2]]); xp.histogramdd(points, (2, 3, 4))[0]
xp.histogramdd(points, 3, density=True)[0]; xp.bincount(j); xp.bincount(j, i * 0.5, 12)
xp.bincount(np.zeros(0, int)); xp.digitize(x, [-1, 0, 0.5]); xp.digitize(x, [-1, 0, 0.5], right=True)
xp.digitize([1, 2, 3], [3, 2, 1]); xp.digitize([1, 2, 3], [3, 2, 1], right=True); xp.digitize(i, falling)
xp.digitize([True, False], [True, True, False]); xp.digitize(falling, np.sort(falling), right=True)
"""

SETS = """
xp.unique(few); xp.unique(few, True, True, True); xp.unique(few[:, [0, 0]], axis=1); xp.unique(holes)
xp.unique(holes, equal_nan=False); xp.unique_values(few); xp.unique_counts(few); xp.unique_inverse(few)
xp.unique_all(few); xp.union1d(few, [7.0, 1.0]); xp.intersect1d(few, [7.0, 1.0])
xp.intersect1d(few, [1.0], return_indices=True); xp.setdiff1d(few, [1.0])
xp.setdiff1d(few, [1.0], assume_unique=True); xp.setxor1d(few, [7.0, 1.0]); xp.union1d(few, [])
xp.isin(few, [7.0, 1.0]); xp.isin(holes, holes); xp.isin(3, few, invert=True); xp.isin(few, [])
"""

POLYNOMIALS = """
xp.polyval(v, x); xp.polyval([1, 2], 3); xp.polyval(v, complex_); xp.vander(v); xp.vander(v, 2)
xp.vander(v, 3, True); xp.vander([1, 2, 3]); xp.polyadd(v, d); xp.polysub(d, v); xp.polymul(v, 2.0)
xp.polydiv(v, d); xp.polydiv(d, v); xp.polydiv([1.0, 0.0, 0.0, -1.0], [1.0, -1.0]); xp.polydiv(v, 2.0)
xp.polyder(v, 0); xp.polyder(v, 3); xp.polyder([1, 2, 3]); xp.polyint(v, 0); xp.polyint(v, 2, [1.0, 2.0])
xp.polyint([3, 2, 1], k=4); xp.poly(v); xp.poly(x[:, :3]); xp.poly([1j, -1j]); xp.sort_complex(xp.roots(v))
xp.sort_complex(xp.roots([0.0, 1.0, 2.0, 0.0, 0.0])); xp.polyfit(many, others, 2)
xp.polyfit(many, others, 1, w=weights); xp.polyfit(many, others, 1, cov=True)
xp.polyfit(many, points[:, 0].repeat(4)[:, None] * [1, 2], 1, cov="unscaled", w=weights)
"""

GRIDS = """
xp.indices((2, 3)); xp.indices((2, 3), sparse=True); xp.indices((2,), dtype="float32"); xp.indices((0, 2))
xp.fromfunction(lambda a, b: a + 2 * b, (2, 3)); xp.ix_([0, 1], [2, 0]); xp.ix_([True, False], [2, 0])
xp.ix_([], [1]); xp.mgrid[0:3, 0:1:5j]; xp.mgrid[1:5]; xp.ogrid[0:3, 1:4:0.5]; xp.diag_indices(3, 3)
xp.diag_indices_from(np.ones((3, 3))); xp.tri(3); xp.tri(3, 4, 1); xp.tri(2, 2, -1, "int32")
xp.tril_indices(3, 1, 5); xp.triu_indices(3, -1); xp.tril_indices_from(x, -1); xp.triu_indices_from(x)
xp.mask_indices(3, xp.triu, 1); xp.unravel_index([5, 0, 11], (3, 4))
xp.unravel_index([5, 0, 11], (3, 4), order="F"); xp.unravel_index(7, (3, 4))
xp.ravel_multi_index(([1, 2], [3, 0]), (3, 4)); xp.ravel_multi_index(([1, 2], [3, 0]), (3, 4), order="F")
xp.ravel_multi_index(([1, 5], [9, 0]), (3, 4), ("wrap", "clip")); xp.resize(x, (5, 3)); xp.resize(np.zeros(0), (2,))
xp.r_[0:3, v, 5]; xp.r_["0,2", v, v]; xp.r_["1,2,0", v, v]; xp.r_["-1", x, y]; xp.r_[0:1:3j, 2]; xp.c_[v, w]
xp.c_[x, y]; xp.bartlett(5); xp.hanning(8); xp.hamming(1); xp.blackman(2); xp.kaiser(5, 2.0); xp.hanning(0)
xp.logspace(0, 2, 5); xp.logspace([0.0, 1.0], 2, 5, base=2.0, axis=1); xp.geomspace(1, 8, 4)
xp.geomspace(-1, -8, 4, False); xp.geomspace([1.0, 2.0], [8.0, -3j], 4, axis=-1); xp.linspace(c[:3], d, 5, axis=1)
xp.array([1, 2], ndmin=3); xp.full_like(x, 3, shape=(2,)); xp.zeros((2,), dtype="uint8"); xp.arange(3, dtype="int8")
"""

ARRANGING = """
xp.append(x, v); xp.append(x, y, axis=1); xp.block([[x, y], [y, x]]); xp.block([v, 1.0, v])
xp.block([[1, 2], [3, 4]]); xp.insert(v, 1, 9.0); xp.insert(v, [1, 3], 9.0); xp.insert(v, 1, [7.0, 8.0])
xp.insert(v, slice(0, 2), 5.0); xp.insert(v, [0, 0, 2], [1.0, 2.0, 3.0]); xp.insert(v, -1, 4.0)
xp.insert(x, 1, v, axis=0); xp.insert(x, 2, 9.0); xp.insert(x, [1], [[1.0], [2.0], [3.0]], axis=1)
xp.insert(x, [1, 2], v, axis=0); xp.insert(i, 1, 2.7); xp.delete(v, 1); xp.delete(v, [0, 2])
xp.delete(v, slice(0, 2)); xp.delete(v, -1); xp.delete(x, [3, 5])
xp.delete(v, np.array([True, False, True, False])); xp.delete(x, 1, axis=0); xp.delete(v, []); xp.hsplit(x, 2)
xp.vsplit(x, [1]); xp.dsplit(z, 3); xp.hsplit(v, 2); xp.rollaxis(z, 2); xp.rollaxis(z, 0, 3); xp.rollaxis(z, -1, -2)
xp.trim_zeros(np.array([0.0, 1.0, 0.0, 2.0, 0.0])); xp.trim_zeros(np.array([0.0, 1.0, 0.0]), "b")
xp.apply_along_axis(xp.sum, 1, x); xp.apply_along_axis(lambda t: t[:2] * 2, 0, x)
xp.apply_along_axis(xp.diag, -1, z); xp.apply_along_axis(lambda t: xp.outer(t, t[:2]), 1, z)
xp.apply_over_axes(xp.sum, z, [0, 2]); xp.select([x > 1, x > 0], [x, y * 2], 9.0); xp.select([x > 1], [1])
xp.choose(places, [v, w, c]); xp.choose([4, -1], [v[:2], w[:2]], mode="wrap"); xp.choose([[0], [1]], [v, 5.0])
xp.choose([4, -1], [v[:2], w[:2]], mode="clip"); xp.partition(x, [1, 2], axis=0); xp.argpartition(v, 1)
xp.lexsort((i, j % 3)); xp.lexsort(np.array([i, j])); xp.sort_complex(f32); xp.sort_complex([3, 1])
xp.packbits(bits); xp.packbits(bits, 1, "little"); xp.packbits(bits, 0); xp.unpackbits(bytes_)
xp.unpackbits(bytes_, 1, 20, "little"); xp.unpackbits(bytes_, 0, -3); xp.reshape(z, (6, 8), order="F")
xp.reshape(z, -1, order="F"); xp.ravel(z, order="F"); xp.take(z, [50, -1], mode="wrap")
xp.searchsorted(v, x, sorter=xp.argsort(v)); xp.argsort(f32, kind="stable"); xp.where(x > 0)
xp.trace(x, dtype="float32"); xp.sum(x, axis=0, initial=2.0, where=x > 0); xp.prod(x, initial=3.0); xp.sum(bytes_)
xp.sum(i, dtype="int8"); xp.cumsum(bytes_, axis=1); xp.prod(bytes_, dtype="uint8", axis=0)
xp.cumprod(bytes_, axis=1, dtype="int16")
"""

NUMBERS = """
xp.fmod(x, y); xp.fmod(i, j); xp.mod(i, j); xp.divmod(x, y); xp.divmod(i, j); xp.modf(special); xp.gcd(i, j)
xp.lcm(i, j); xp.nextafter(x, y); xp.spacing(x); xp.ldexp(x, 3); xp.frexp(special); xp.float_power(i, j)
xp.float_power(f32, 2); xp.heaviside(special, 0.5); xp.heaviside(i, 0.5); xp.fabs(i); xp.rint(special); xp.rint(i)
xp.isneginf(special); xp.isposinf(i); xp.real_if_close(x + 1e-16j); xp.real_if_close(x + 1j); xp.real_if_close(x)
xp.bitwise_count(i); xp.fix(special); xp.around(x, 2); xp.true_divide(i, j); xp.array_equal(x, x)
xp.array_equal(x, v); xp.array_equal(holes, holes, equal_nan=True); xp.array_equiv(x, x[0])
xp.array_equiv(x, y[:2]); xp.count_nonzero(few, axis=0)
"""

FAMILIES = (CALCULUS, STATISTICS, HISTOGRAMS, SETS, POLYNOMIALS, GRIDS, ARRANGING, NUMBERS)


def listed(*tables: str) -> list[str]:
    return [e.strip() for table in tables for line in table.splitlines() for e in line.split(";") if e.strip()]


def flat(result: Any) -> list[Any]:
    """Return the tensors or arrays of a result that may be nested tuples and lists of them."""
    return [x for part in result for x in flat(part)] if isinstance(result, (tuple, list)) else [result]


@pytest.mark.parametrize("expression", listed(*FAMILIES))
def test_an_expression_is_what_numpy_makes_of_it(expression: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy warns of slices without numbers
        expected = flat(eval(expression, {"xp": np, "np": np, **DATA}))
    ours = flat(eval(expression, {"xp": us, "np": np, **DATA}))
    assert len(ours) == len(expected)
    for tensor, array in zip(ours, expected, strict=True):
        assert isinstance(tensor, us.Tensor)
        assert (tensor.shape, tensor.dtype) == (np.shape(array), np.asarray(array).dtype)
        np.testing.assert_allclose(tensor.eval(), array, rtol=1e-9, atol=1e-11)


# --- symbolic sizes --------------------------------------------------------------------------------------------------

SYMBOLIC = """
xp.diff(x, 2); xp.gradient(x * x, x, edge_order=2); xp.gradient(x); xp.trapezoid(x * x, x); xp.unwrap(9 * x)
xp.interp(0.9 * x, x, x * x); xp.convolve(x, x[:2], "same"); xp.correlate(x, x, "full"); xp.median(x)
xp.quantile(x, 0.3); xp.average(x, weights=x * x); xp.nanmedian(x); xp.nanmax(x); xp.cov(x)
xp.histogram(x, bins=3, range=(-2.0, 2.0))[0]; xp.polyval([1.0, 2.0], x); xp.vander(x); xp.isin(x, x[:2])
xp.append(x, x); xp.hanning(n) * x; xp.heaviside(x, 0.5); xp.select([x > 0], [x], 3.0)
xp.digitize(x, [-1.0, 0.0, 1.0]); xp.tri(n) * x; xp.reshape(x, (1, -1), order="F"); xp.take(x, [7, -9], mode="wrap")
xp.lexsort((x, -x)); xp.geomspace(x + 9, 4.0, 3); xp.indices((n, 2)) * x[:, None]; xp.resize(x, (9,))
xp.unravel_index(3 + 0 * x[0].astype(int), (2, n)); xp.logspace(x, 2.0, 3); xp.array_equal(x, x)
xp.ediff1d(x); xp.nancumsum(x); xp.quantile(x, [0.2, 0.9]); xp.percentile(x, [[7], [50.0]])
"""


@pytest.mark.parametrize(
    "expression", [e.strip() for line in SYMBOLIC.splitlines() for e in line.split(";") if e.strip()]
)
def test_an_expression_works_on_symbolic_sizes(expression: str) -> None:
    n = us.dims("n")
    place = us.placeholder((n,), name="x")
    recipe = eval(expression, {"xp": us, "np": np, "x": place, "n": n})
    for size in (4, 7):
        value = np.sort(np.random.default_rng(size).normal(size=size))
        expected = flat(eval(expression, {"xp": np, "np": np, "x": value, "n": size}))
        for tensor, array in zip(flat(recipe), expected, strict=True):
            np.testing.assert_allclose(tensor.eval({place: value}), array, rtol=1e-9, atol=1e-11)


# --- what is refused -------------------------------------------------------------------------------------------------

N = us.dims("n")


@pytest.mark.parametrize(
    ("mistake", "error", "message"),
    [
        (lambda: us.diff(1.0), ShapeError, "at least one axis"),
        (lambda: us.diff([1.0], n=-1), ArgumentError, "n is at least 0, got -1"),
        (lambda: us.gradient([1.0]), ShapeError, "at least 2 samples along axis 0, got 1"),
        (lambda: us.gradient([1.0, 2.0], 1.0, 2.0), ArgumentError, "one for each of 1 axes, got 2"),
        (lambda: us.gradient([1.0, 2.0], edge_order=3), ArgumentError, "edge_order is 1 or 2, got 3"),
        (lambda: us.interp([1.0], [1.0, 2.0], [1.0]), ShapeError, r"coordinates \(2,\) and samples \(1,\)"),
        (lambda: us.interp([1j], [1.0], [1.0]), DTypeError, "real coordinates, got complex128"),
        (lambda: us.convolve([[1.0]], [1.0]), ShapeError, r"one axis, got shape \(1, 1\)"),
        (lambda: us.convolve([], [1.0]), ShapeError, "at least one element"),
        (
            lambda: us.convolve([1.0], [1.0], "half"),
            ArgumentError,
            "one of 'full', 'same', 'valid', got 'half'",
        ),
        (lambda: us.cross([1.0] * 4, [1.0] * 4), ShapeError, "two or three elements, got 4"),
        (lambda: us.quantile([1.0], 1.5), ArgumentError, "got 1.5"),
        (lambda: us.quantile([1j], 0.5), DTypeError, "numbers with an order, got complex128"),
        (lambda: us.average([1.0, 2.0], weights=[1.0]), ShapeError, r"weights of shape \(1,\)"),
        (lambda: us.cov([1.0, 2.0], fweights=[0.5, 1.0]), ArgumentError, "fweights are integers, got dtype float64"),
        (lambda: us.bincount([-1]), ArgumentError, "not negative, got -1"),
        (lambda: us.bincount([0.5]), ArgumentError, "takes integers along one axis"),
        (lambda: us.histogram([1.0], "auto"), ArgumentError, "np.histogram_bin_edges"),
        (lambda: us.digitize([1.0], [1.0, 3.0, 2.0]), ArgumentError, "rise or fall, these do neither"),
        (lambda: us.polyadd(us.placeholder((N,)), [1.0]), UnknownSizeError, "must be known here, got n"),
        (lambda: us.polyfit([1.0, 2.0], [1.0], 1), ShapeError, r"got shapes \(1,\) and \(2,\)"),
        (lambda: us.polyfit([1.0, 2.0], [1.0, 2.0], 1, cov=True), ArgumentError, "more than 2 samples, got 2"),
        (lambda: us.tril_indices(N), UnknownSizeError, "got size n"),
        (lambda: us.ravel_multi_index(([5],), (3,)), ArgumentError, "axis of size 3 are from 5 to 5"),
        (lambda: us.mgrid[3], ArgumentError, "written with slices, got 3"),
        (lambda: us.r_["a", [1]], ArgumentError, "up to three integers such as '0,2,-1', got 'a'"),
        (lambda: us.block([]), ArgumentError, "lists that are not empty"),
        (lambda: us.block([[1.0], 2.0]), ArgumentError, "nested alike"),
        (lambda: us.insert([1.0], 5, 2.0), IndexRangeError, "axis of size 1"),
        (lambda: us.delete(us.placeholder((N,)), 0), UnknownSizeError, "needs to know its size, got n"),
        (lambda: us.rollaxis(us.zeros((2, 2)), 0, 5), AxisError, "start 5 is out of range"),
        (lambda: us.vsplit([1.0], 1), ShapeError, "at least 2 axes"),
        (lambda: us.select([[True]], []), ArgumentError, "got 0 for 1"),
        (lambda: us.select([[1.0]], [[1.0]]), DTypeError, "conditions are bools, got dtype float64"),
        (lambda: us.piecewise([1.0], [[True]], []), ArgumentError, "a piece for each of 1 conditions"),
        (lambda: us.choose([0.5], [[1.0]]), DTypeError, "integers to choose by"),
        (lambda: us.partition([1.0, 2.0], 5), ArgumentError, "kth=5 is out of range for axis 0 of size 2"),
        (lambda: us.take([1.0], [0], mode="skip"), ArgumentError, "got 'skip'"),
        (lambda: us.reshape([1.0], (1,), order="Z"), ArgumentError, "order is 'C', 'F', 'A' or 'K', got 'Z'"),
        (lambda: us.argsort([1.0], kind="bubble"), ArgumentError, "got 'bubble'"),
        (lambda: us.where([True], 1.0), ArgumentError, "a condition alone, or with two tensors"),
        (lambda: us.ldexp(1.0, 0.5), DTypeError, "the exponents of ldexp are integers"),
        (lambda: us.packbits([0.5]), DTypeError, "bools or integers, got dtype float64"),
        (lambda: us.unpackbits([1]), DTypeError, "takes uint8, got dtype int64"),
        (lambda: us.geomspace(0.0, 1.0), ArgumentError, "no ends that are 0"),
        (lambda: us.isneginf([1j]), DTypeError, "isneginf of complex128"),
        (lambda: us.zeros(2)[np.zeros(3, bool)], IndexError, "does not fit: axis 0 has size 2, not 3"),
        (lambda: us.sum([1.0], axis=3), IndexError, "axis 3 is out of range"),
    ],
)
def test_what_makes_no_sense_is_refused(mistake: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        mistake()
    assert isinstance(caught.value, UnspoolError)


# --- what an expression cannot say -----------------------------------------------------------------------------------


def test_putting_returns_a_new_tensor() -> None:
    x = DATA["x"]
    for name, args in (("put", ([0, 5, 7], [1.0, 2.0])), ("place", (x > 0, [1.0, 2.0])), ("fill_diagonal", (9.0,))):
        expected = x.copy()
        getattr(np, name)(expected, *args)
        t = us.tensor(x)
        np.testing.assert_array_equal(getattr(us, name)(t, *args).eval(), expected)
        np.testing.assert_array_equal(t.eval(), x)


@pytest.mark.parametrize("shape", [(3, 3), (5, 3), (3, 5), (2, 2, 2), (8, 3)])
@pytest.mark.parametrize("wrap", [False, True])
def test_a_diagonal_is_filled_as_numpy_does(shape: tuple[int, ...], wrap: bool) -> None:
    expected = np.zeros(shape)
    np.fill_diagonal(expected, [1.0, 2.0], wrap)
    np.testing.assert_array_equal(us.fill_diagonal(np.zeros(shape), [1.0, 2.0], wrap).eval(), expected)


def test_pieces_that_are_not_chosen_spoil_no_derivative() -> None:
    x = us.tensor([0.0, 4.0])
    y = us.piecewise(x, [x > 0], [us.sqrt, lambda t: 3 * t])
    np.testing.assert_array_equal(us.sum(y).grad(x).eval(), [3.0, 0.25])


def test_equal_elements_share_the_cotangent_of_the_first() -> None:
    x = us.tensor([2.0, 1.0, 2.0])
    np.testing.assert_array_equal(us.sum(us.unique(x) * [1.0, 5.0]).grad(x).eval(), [5.0, 1.0, 0.0])


def test_rows_without_numbers_have_no_largest_place() -> None:
    np.testing.assert_array_equal(us.nanargmax(DATA["holes"], axis=1).eval(), [2, -1, 1])


def test_a_histogram_is_counted_when_its_edges_are_known() -> None:
    x = us.placeholder((5,))
    counts, edges = us.histogram(x, bins=2)
    value = np.array([0.0, 1.0, 1.5, 3.0, 4.0])
    np.testing.assert_array_equal(counts.eval({x: value}), np.histogram(value, bins=2)[0])
    np.testing.assert_array_equal(edges.eval({x: value}), [0.0, 2.0, 4.0])


def test_integers_of_few_bits_are_summed_the_same_way_by_plans() -> None:
    x = us.asarray([[100, 100], [50, 3]], dtype="int8")
    for _ in range(3):  # the second time runs by a plan
        assert us.sum(x * 1, axis=0, dtype="int8").eval().dtype == np.int8


METHODS = """
t.copy(); t.nonzero(); t[0].searchsorted(1.0); divmod(t, 2.0); divmod(7.0, t)
t.sum(axis=0, initial=2.0); t.sum(where=t > 0); t.prod(axis=1, initial=2.0); t.max(initial=9.0)
t.min(axis=0, initial=0.0, where=t > 0); t.mean(where=t > 0); t.var(ddof=1); t.std(axis=1, ddof=1); t.any(axis=0)
t.all(where=t > 9); t.reshape(4, 3, order="F"); t.reshape((4, 3)); t.flatten("F"); t.ravel(order="F")
t.take([9, -30], mode="wrap"); t.argsort(kind="stable"); t.compress([True, False, True], axis=0)
t.trace(dtype="float32"); t.argpartition(1)
"""


@pytest.mark.parametrize(
    "expression", [e.strip() for line in METHODS.splitlines() for e in line.split(";") if e.strip()]
)
def test_methods_are_numpys(expression: str) -> None:
    ours, expected = flat(eval(expression, {"t": us.tensor(DATA["x"])})), flat(eval(expression, {"t": DATA["x"]}))
    for tensor, array in zip(ours, expected, strict=True):
        assert isinstance(tensor, us.Tensor)
        np.testing.assert_allclose(tensor.eval(), array, rtol=1e-6)


def test_sorting_methods_return_new_tensors() -> None:
    t = us.tensor(DATA["v"])
    np.testing.assert_array_equal(t.ptp().eval(), np.ptp(DATA["v"]))
    np.testing.assert_array_equal(t.sort().eval(), np.sort(DATA["v"]))
    np.testing.assert_array_equal(t.partition(1).eval(), np.partition(DATA["v"], 1))
    np.testing.assert_array_equal(t.eval(), DATA["v"])
