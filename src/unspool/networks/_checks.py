"""Checks of arguments that the loops share: each says what was wrong and which value came."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

import unspool as us
from unspool.errors import ArgumentError

__all__ = ["count", "finite_tensor", "fraction", "start_or_rank"]


def count(value: Any, name: str, *, least: int = 1) -> int:
    """Return a number of something, such as a rank or a number of steps: an integer of at least ``least``."""
    try:
        number = operator.index(value)
    except TypeError:
        raise ArgumentError(f"{name} must be an integer, but is {value!r}") from None
    if number < least:
        raise ArgumentError(f"{name} must be at least {least}, but is {number}")
    return number


def fraction(value: Any, name: str) -> float:
    """Return a tolerance or a cutoff: a finite number that is not negative."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ArgumentError(f"{name} must be a number, but is {value!r}") from None
    if not math.isfinite(number) or number < 0:
        raise ArgumentError(f"{name} must be finite and not negative, but is {number}")
    return number


def finite_tensor(value: Any, name: str, *, ndim: int | None = None) -> us.Tensor:
    """Return data as a tensor, after a look at it: no infinity, no NaN, and ``ndim`` axes if given."""
    tensor = us.asarray(value)
    if ndim is not None and tensor.ndim != ndim:
        raise ArgumentError(f"{name} must have {ndim} axes, but has shape {tensor.shape}")
    finite = np.isfinite(tensor.eval())
    if not finite.all():
        wrong = np.argwhere(~finite)
        place = ", ".join(map(str, wrong[0]))
        raise ArgumentError(f"{name} must be finite, but {len(wrong)} of its entries are not; the first is [{place}]")
    return tensor


def start_or_rank(start: Any, rank: int | None) -> Any:
    """Return what a loop starts from: a start that is given, or the rank of one that it makes itself."""
    if start is None and rank is None:
        raise ArgumentError("give a start, or a rank: rank=4")
    if start is not None and rank is not None:
        raise ArgumentError(f"a start has its own rank: give either start or rank={rank}, not both")
    return rank if start is None else start
