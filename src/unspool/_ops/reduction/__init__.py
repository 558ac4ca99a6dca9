"""Reductions over axes, and running reductions along one; `exponentials` is loaded when it is asked for."""

from typing import TYPE_CHECKING

from unspool._ops.later import later
from unspool._ops.reduction.axes import Axis, expand_like, reduced_shape, spread
from unspool._ops.reduction.sums import count_nonzero, sum

if TYPE_CHECKING:
    from unspool._ops.reduction.extrema import amax, amin, argmax, argmin, max, min, ptp
    from unspool._ops.reduction.logic import all, allclose, any
    from unspool._ops.reduction.products import prod
    from unspool._ops.reduction.scan import cumprod, cumsum, cumulative_prod, cumulative_sum
    from unspool._ops.reduction.statistics import mean, std, var

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

# Where to find what is loaded when it is first asked for.
_LATER = {
    "amax": "extrema",
    "amin": "extrema",
    "argmax": "extrema",
    "argmin": "extrema",
    "max": "extrema",
    "min": "extrema",
    "ptp": "extrema",
    "all": "logic",
    "allclose": "logic",
    "any": "logic",
    "prod": "products",
    "cumprod": "scan",
    "cumsum": "scan",
    "cumulative_prod": "scan",
    "cumulative_sum": "scan",
    "mean": "statistics",
    "std": "statistics",
    "var": "statistics",
}

__getattr__ = later(__name__, _LATER)
