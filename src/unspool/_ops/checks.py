"""Arguments that are neither tensors nor axes: integers, and names out of a few."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from unspool.errors import ArgumentError


def as_integer(value: Any, what: str, least: int | None = None) -> int:
    """Return an integer argument, or raise `ArgumentError` naming it."""
    try:
        number = operator.index(value)
    except TypeError:
        raise ArgumentError(f"{what} is an integer, got {value!r}") from None
    if least is not None and number < least:
        raise ArgumentError(f"{what} is at least {least}, got {number}")
    return number


def one_of(value: Any, allowed: Iterable[str], what: str) -> str:
    """Return an argument that is one of a few names, or raise `ArgumentError` listing them."""
    names = tuple(allowed)
    if not isinstance(value, str) or value not in names:
        raise ArgumentError(f"{what} is one of {', '.join(map(repr, names))}, got {value!r}")
    return value
