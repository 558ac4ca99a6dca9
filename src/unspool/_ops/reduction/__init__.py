"""Reductions over axes, and running reductions along one; `exponentials` is loaded when it is asked for."""

from unspool._ops.reduction.axes import Axis, expand_like, reduced_shape, spread
from unspool._ops.reduction.extrema import amax, amin, argmax, argmin, max, min, ptp
from unspool._ops.reduction.logic import all, allclose, any
from unspool._ops.reduction.products import prod
from unspool._ops.reduction.scan import cumprod, cumsum, cumulative_prod, cumulative_sum
from unspool._ops.reduction.statistics import mean, std, var
from unspool._ops.reduction.sums import count_nonzero, sum

__all__ = [
    "Axis",
    "all",
    "allclose",
    "amax",
    "amin",
    "any",
    "argmax",
    "argmin",
    "count_nonzero",
    "cumprod",
    "cumsum",
    "cumulative_prod",
    "cumulative_sum",
    "expand_like",
    "max",
    "mean",
    "min",
    "prod",
    "ptp",
    "reduced_shape",
    "spread",
    "std",
    "sum",
    "var",
]
