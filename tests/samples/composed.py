"""Samples of functions that are composed of other ops, under NumPy's names: each has NumPy's value and derivatives.

The op that a sample is for is the last one of its graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special

import unspool as us
from tests.samples import Sample, complex_, real


def of(
    name: str,
    *args: Any,
    part: Any = None,
    order: int = 2,
    spoil: Any = None,
    **options: Any,
) -> Sample:
    """Return a sample of a function that NumPy has, too: arrays are its data, and ``part`` chooses from results.

    Where ``spoil`` is true, elements are replaced by NaN before the function sees them.
    """
    data = tuple(a for a in args if isinstance(a, np.ndarray))

    def call(function: Callable[..., Any], given: Any) -> Any:
        rest = iter(given)
        found = function(*[next(rest) if isinstance(a, np.ndarray) else a for a in args], **options)
        return found if part is None else found[part]

    def ours(*given: Any) -> Any:
        return call(getattr(us, name), given if spoil is None else [us.where(spoil, np.nan, x) for x in given])

    def theirs(*given: Any) -> Any:
        return call(getattr(np, name), given if spoil is None else [np.where(spoil, np.nan, x) for x in given])

    settings = [*[str(a) for a in args if not isinstance(a, np.ndarray)], *[f"{k}={v}" for k, v in options.items()]]
    shapes = ",".join("x".join(map(str, a.shape)) for a in data)
    op = ours(*[us.tensor(a) for a in data]).op.name
    label = " ".join([name, shapes, *settings])
    return Sample(op, ours, data, theirs, order, label=label)


X = real(3, 4)
Y = real(3, 4, seed=1)
V = real(5)
Z = complex_(4)
W = real(4, low=0.5, high=2.0)
RISING = np.array([-1.5, -0.25, 0.5, 1.0, 1.75])
# Between the coordinates above, before them and after them; none is near one.
PLACES = np.array([[-1.1, 0.2], [0.8, 1.3], [-1.9, 1.9]])
# Where a sample for functions that leave out NaN has one.
HIDDEN = np.eye(3, 4, dtype=bool)
NUMBERS = np.array([1, 0, 3, 1, 1])
COUNTS = np.array([2, 1, 3, 1])

CALCULUS = [
    of("diff", X),
    of("diff", X, n=2, axis=0),
    of("diff", Z),
    of("diff", X, prepend=0.5, append=Y[:, :1]),
    of("ediff1d", X, to_begin=[1.0, 2.0], to_end=3.0),
    of("gradient", V),
    of("gradient", V, RISING),
    of("gradient", V, RISING, edge_order=2),
    of("gradient", V, np.array(0.5), edge_order=2),
    of("gradient", X, part=0),
    of("gradient", X, axis=1),
    of("gradient", Z),
    of("trapezoid", X),
    of("trapezoid", V, RISING),
    of("trapezoid", X, Y, axis=0),
    of("trapezoid", Z, dx=0.5),
    of("interp", PLACES, RISING, V),
    of("interp", PLACES, RISING, V, left=2.0, right=-1.0),
    of("interp", PLACES, RISING, V, period=4.5),
    of("interp", PLACES[0], RISING, complex_(5)),
    of("unwrap", np.cumsum(real(6, low=0.5, high=4.0))),
    of("unwrap", X, axis=0, period=1.5),
    of("convolve", V, W),
    of("convolve", V, W, mode="same"),
    of("convolve", W, V, mode="valid"),
    of("convolve", Z, V),
    of("correlate", V, W, mode="full"),
    of("correlate", W, V, mode="same"),
    of("correlate", Z, complex_(3)),
    of("cross", real(2, 3), real(2, 3, seed=1)),
    of("cross", real(3, 2), real(3, 2, seed=1), axis=0),
]

STATISTICS = [
    of("average", X),
    of("average", X, axis=1, weights=W),
    of("average", X, axis=(1, 0), weights=W[:, None] + W[:3]),
    of("median", X, axis=0),
    of("median", V),
    of("quantile", X, [0.2, 0.55], axis=1),
    of("quantile", X, axis=0, q=0.4, method="hazen"),
    of("quantile", X, axis=0, q=0.4, method="midpoint", keepdims=True),
    of("quantile", V, np.array([0.3, 0.85])),
    of("percentile", X, 30.0),
    of("cov", X),
    of("cov", X, Y[:1], rowvar=True),
    of("cov", X, rowvar=False, ddof=0),
    of("cov", X, aweights=W, fweights=COUNTS),
    of("cov", complex_(2, 4)),
    of("nansum", X, spoil=HIDDEN, axis=0),
    of("nanprod", X, spoil=HIDDEN, axis=1),
    of("nanmean", X, spoil=HIDDEN, axis=1),
    of("nanvar", X, spoil=HIDDEN, axis=1, ddof=1),
    of("nanstd", X, spoil=HIDDEN),
    of("nanmax", X, spoil=HIDDEN, axis=1),
    of("nanmin", X, spoil=HIDDEN, axis=0),
    of("nancumsum", X, spoil=HIDDEN, axis=1),
    of("nancumprod", X, spoil=HIDDEN, axis=0),
    of("nanmedian", X, spoil=HIDDEN, axis=1),
    of("nanquantile", X, 0.3, spoil=HIDDEN, axis=0),
    of("corrcoef", X[:2], part=(0, 1)),
    Sample(
        "scatter_add",
        lambda w: us.bincount(NUMBERS, w),
        (V,),
        lambda w: np.bincount(NUMBERS, w),
        label="bincount",
    ),
    Sample(
        "astype",
        lambda x: us.histogram(x, bins=RISING)[0],
        (PLACES,),
        lambda x: np.histogram(x, bins=RISING)[0],
        order=0,
        label="histogram",
    ),
    Sample(
        "scatter_add",
        lambda w: us.histogram(RISING, bins=3, weights=w)[0],
        (V,),
        lambda w: np.histogram(RISING, bins=3, weights=w)[0],
        label="histogram of weights",
    ),
    of("digitize", PLACES, RISING, order=0),
]

SETS = [
    of("unique", np.array([2.0, -1.0, 0.5])),
    of("union1d", X[0], X[1]),
    of("setdiff1d", X[0], [5.0]),
    of("setxor1d", X[0], Y[0]),
    of("isin", X, X[0], order=0),
]

POLYNOMIALS = [
    of("polyval", V, PLACES),
    of("polyval", Z, Z[:2]),
    of("vander", V, N=3),
    of("vander", np.array([0.0, 2.0]), increasing=True),
    of("polyadd", V, W),
    of("polysub", W, V),
    of("polymul", V, Z),
    of("polydiv", V, W[:2], part=0),
    of("polyder", V, m=2),
    of("polyint", V, m=2, k=[0.5, 2.0]),
    of("poly", V),
    of("polyfit", RISING, V, deg=2),
    of("polyfit", RISING, real(5, 2), deg=1, w=np.array([1.0, 2.0, 1.5, 0.5, 1.0])),
]

ARRANGING = [
    of("append", X, V),
    of("append", X, Y, axis=0),
    Sample("concat", lambda x, y: us.block([[x, y], [y, x]]), (X, Y), lambda x, y: np.block([[x, y], [y, x]])),
    of("insert", V, [1, 3], W[:2]),
    of("insert", X, 1, V[:3], axis=1),
    of("delete", X, [0, 2], axis=1),
    of("hsplit", X, 2, part=1),
    of("rollaxis", real(2, 3, 2), 2),
    of("resize", V, (2, 4)),
    Sample("permute_dims", lambda x: us.reshape(x, (2, 6), order="F"), (X,), lambda x: np.reshape(x, (2, 6), "F")),
    Sample("reshape", lambda x: us.ravel(x, order="F"), (X,), lambda x: np.ravel(x, "F"), label="column-major"),
    of("take", X, [5, -14], mode="wrap"),
    of("take", X, [7, -9], axis=1, mode="clip"),
    Sample(
        "permute_dims",
        lambda x: us.apply_along_axis(lambda row: row[:2] * row[0], 1, x).T,
        (X,),
        lambda x: np.apply_along_axis(lambda row: row[:2] * row[0], 1, x).T,
        label="apply_along_axis",
    ),
    Sample(
        "where",
        lambda x, y: us.select([x > 1, x > 0], [x * y, y], 2.0),
        (X, Y),
        lambda x, y: np.select([x > 1, x > 0], [x * y, y], 2.0),
        label="select",
    ),
    Sample(
        "where",
        lambda x: us.piecewise(x, [x < 0, x > 1], [us.exp, us.log, 0.5]),
        (X,),
        lambda x: np.piecewise(x, [x < 0, x > 1], [np.exp, np.log, 0.5]),
        label="piecewise",
    ),
    of("choose", np.array([0, 1, 0, 0]), X[:2]),
    Sample(
        "reshape",
        lambda x, v: us.put(x, [0, 5], v),
        (X, W[:2]),
        lambda x, v: np.r_[v[0], x.flat[1:5], v[1], x.flat[6:]].reshape(3, 4),
        label="put",
    ),
    Sample(
        "reshape",
        lambda x, v: us.fill_diagonal(x, v),
        (X[:, :3], W[:3]),
        lambda x, v: x - np.diag(np.diag(x)) + np.diag(v),
        label="fill_diagonal",
    ),
    of("partition", X, 1, axis=1),
    of("argpartition", X, 2, axis=1, order=0),
    of("lexsort", np.array([[1, 0, 1], [2, 2, 1]]), order=0),
    of("sort_complex", V),
    of("logspace", W[:1], W[1:2], num=4, base=2.0),
    of("geomspace", W[:2], W[2:], num=4, axis=1),
    of("linspace", W[:2], W[2:], num=4, axis=1),
    of("sum", X, axis=0, initial=2.0),
    of("prod", X, axis=1, initial=2.0, where=X > 0),
    Sample(
        "add",
        lambda x, b: us.logsumexp(x, axis=1, b=b),
        (X, np.abs(Y)),
        lambda x, b: scipy.special.logsumexp(x, axis=1, b=b),
        label="weighted logsumexp",
    ),
    Sample(
        "add",
        lambda x, b: us.logsumexp(x, b=b, return_sign=True)[0],
        (X, Y),
        lambda x, b: scipy.special.logsumexp(x, b=b, return_sign=True)[0],
        label="logsumexp with signs",
    ),
    Sample(
        "sum",
        lambda x: us.linalg.trace(x),
        (real(2, 3, 3),),
        lambda x: np.trace(x, axis1=-2, axis2=-1),
        label="linalg.trace",
    ),
]

SAMPLES = [*CALCULUS, *STATISTICS, *SETS, *POLYNOMIALS, *ARRANGING]
