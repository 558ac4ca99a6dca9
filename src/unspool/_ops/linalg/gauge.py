"""Tolerances of decompositions, and the error for losses that depend on what a decomposition leaves open.

A singular vector has no definite phase, and equal singular values have no definite vectors: any basis of their space
will do. That freedom is a gauge. A tolerance says when values are equal, and how much of a loss may depend on a gauge
before its derivative is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from unspool._dtypes import DType
from unspool.errors import ArgumentError, GaugeError


@dataclass(frozen=True)
class Tolerances:
    """How close is equal and how small is zero; all relative.

    Parameters
    ----------
    degeneracy : float
        Two singular values or eigenvalues are equal if they differ by at most this much of the largest one. The default
        is the square root of the machine epsilon: a quotient by a gap g has an error of about epsilon/g, so above it at
        least half of the digits of a derivative are right.
    gauge : float
        What has to vanish for a loss that does not depend on the gauge may be this large, relative to the largest entry
        of the cotangent it is a part of, or of the terms that this is the sum of. The default is the square root of the
        machine epsilon, for the noise that such quotients leave in cotangents.
    rank : float
        Singular values are taken to be zero if they are at most this much of the largest one. By default 1024 times the
        machine epsilon.
    """

    degeneracy: float
    gauge: float
    rank: float


_chosen: ContextVar[tuple[tuple[str, float], ...]] = ContextVar("unspool_tolerances", default=())


@contextmanager
def tolerances(
    degeneracy: float | None = None, gauge: float | None = None, rank: float | None = None
) -> Iterator[None]:
    """Set the tolerances of decompositions that are built inside a ``with`` block.

    They count where a decomposition is written, not where it is evaluated: they become part of the recipe.

    Parameters
    ----------
    degeneracy : float, optional
        Values are equal if they differ by at most this much of the largest one. By default about 1.5e-8 in double
        precision and 3.5e-4 in single: the square root of the machine epsilon.
    gauge : float, optional
        How large, relative to the cotangent and the terms it is the sum of, what a loss sends back into an open gauge
        may be before `GaugeError` is raised. The same defaults.
    rank : float, optional
        Singular values up to this much of the largest one are taken to be zero by functions that choose a rank. By
        default about 2e-13 in double precision and 1e-4 in single.

    Examples
    --------
    >>> import unspool as us
    >>> with us.linalg.tolerances(rank=1e-3):
    ...     us.linalg.truncated_svd(us.diag([1.0, 1e-2, 1e-4])).S.shape
    (2,)
    """
    given = {"degeneracy": degeneracy, "gauge": gauge, "rank": rank}
    new = {name: as_tolerance(value, name) for name, value in given.items() if value is not None}
    token = _chosen.set(tuple({**dict(_chosen.get()), **new}.items()))
    try:
        yield
    finally:
        _chosen.reset(token)


def tolerances_for(dtype: DType, degeneracy: float | None = None) -> Tolerances:
    """Return the tolerances that are in force for matrices of a dtype; an argument goes before the context."""
    found = _tolerances(dtype, _chosen.get())
    return found if degeneracy is None else replace(found, degeneracy=as_tolerance(degeneracy, "rtol"))


@lru_cache(maxsize=64)
def _tolerances(dtype: DType, chosen: tuple[tuple[str, float], ...]) -> Tolerances:
    epsilon = float(np.finfo(dtype).eps)
    defaults = Tolerances(math.sqrt(epsilon), math.sqrt(epsilon), 1024 * epsilon)
    return replace(defaults, **dict(chosen))


def user_tolerance(name: str) -> float | None:
    """Return a tolerance that the user has set, ``None`` where the default is in force."""
    return dict(_chosen.get()).get(name)


def as_tolerance(value: Any, name: str) -> float:
    """Return a tolerance as a number, or raise."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 <= number < math.inf:
        raise ArgumentError(f"{name} is a tolerance: a number that is not negative, got {value!r}")
    return number


def rounding_level(dtype: DType) -> float:
    """Return how far apart, relative to the largest, equal values may come out of a computation."""
    return 100 * float(np.finfo(dtype).eps)


def refusal(message: str, indices: tuple[int, ...], amount: float) -> GaugeError:
    """Return the error for a loss that depends on a gauge; it carries the indices concerned and the relative amount."""
    error = GaugeError(message)
    error.indices, error.amount = indices, amount
    return error
