"""Values as parts of a key: two keys are equal if the values are the same, not if they compare equal.

``2 == 2.0 == True`` and ``0.0 == -0.0``, but a function may do something else to each. NaN equals nothing, and yet is
the same NaN every time. Plain values, and tuples and frozen dataclasses of them, are compared by type and value; any
other object is only the same as itself: what its class calls equal need not be the same to a function that looks
inside.
"""

from __future__ import annotations

import dataclasses
import enum
from decimal import Decimal
from fractions import Fraction
from types import MethodType
from typing import Any, Final

import numpy as np

from unspool._dims import Dim
from unspool._ops.random import Key

# Types whose instances are the same when they are equal, and types whose instances are the same when they look it.
_BY_EQUALITY: Final = frozenset({type(None), bool, int, str, bytes, type(...), np.dtype, Dim, Key})
_BY_TEXT: Final = frozenset({float, complex, Fraction, Decimal})


class Same:
    """An object that is the same as itself only; keeps it alive, so that no other has its identity."""

    __slots__ = ("thing",)

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def __hash__(self) -> int:
        return id(self.thing)

    def __eq__(self, other: object) -> bool:
        return type(other) is Same and other.thing is self.thing


def exactly(value: Any) -> Any:
    """Return a key that equals that of another value only if the two are the same.

    Raises `TypeError` for a value that has no hash.
    """
    kind = type(value)
    if kind in _BY_EQUALITY:
        return kind, value
    if kind in _BY_TEXT:
        return kind, repr(value)
    if _method(kind, "__hash__") is object.__hash__:
        # Compared by identity as it is, unless the class says otherwise.
        return value if _method(kind, "__eq__") is object.__eq__ else Same(value)
    if kind is slice or kind is range:
        return kind, tuple([exactly(part) for part in (value.start, value.stop, value.step)])
    hash(value)
    if kind is tuple or kind is frozenset or (isinstance(value, tuple) and _method(kind, "__eq__") is tuple.__eq__):
        return kind, (frozenset if kind is frozenset else tuple)([exactly(item) for item in value])
    if kind is MethodType:
        return kind, Same(value.__func__), exactly(value.__self__)
    if isinstance(value, np.dtype):
        return np.dtype, value
    if isinstance(value, np.generic):
        return kind, value.dtype, value.tobytes()
    if _is_plain_dataclass(kind):
        return kind, tuple([_part(getattr(value, field.name)) for field in dataclasses.fields(value)])
    return Same(value)


def _method(kind: type, name: str) -> Any:
    return getattr(kind, name)


def _part(value: Any) -> Any:
    try:
        return exactly(value)
    except TypeError:  # the class has a hash that does without this part
        return Same(value)


def _is_plain_dataclass(kind: type) -> bool:
    """Whether all that instances are is in their fields."""
    parameters = kind.__dict__.get("__dataclass_params__")
    return parameters is not None and bool(parameters.frozen) and not issubclass(kind, enum.Enum)
