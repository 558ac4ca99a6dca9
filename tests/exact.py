"""Dual numbers over rationals: derivatives without rounding, by a mechanism that shares nothing with the library.

A `Dual` carries a value and its derivative in one direction. NumPy's object arrays call Python's operators, so running
a NumPy reference function on arrays of duals gives its exact directional derivative.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np


class Dual:
    """``value + slope·ε`` with ε² = 0."""

    __slots__ = ("slope", "value")

    def __init__(self, value: Any, slope: Any = 0) -> None:
        self.value, self.slope = Fraction(value), Fraction(slope)

    @staticmethod
    def of(x: Any) -> Dual:
        return x if isinstance(x, Dual) else Dual(x)

    def __add__(self, other: Any) -> Dual:
        other = Dual.of(other)
        return Dual(self.value + other.value, self.slope + other.slope)

    __radd__ = __add__

    def __neg__(self) -> Dual:
        return Dual(-self.value, -self.slope)

    def __pos__(self) -> Dual:
        return self

    def __sub__(self, other: Any) -> Dual:
        return self + -Dual.of(other)

    def __rsub__(self, other: Any) -> Dual:
        return Dual.of(other) - self

    def __mul__(self, other: Any) -> Dual:
        other = Dual.of(other)
        return Dual(self.value * other.value, self.slope * other.value + self.value * other.slope)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Dual:
        other = Dual.of(other)
        quotient = self.value / other.value
        return Dual(quotient, (self.slope - quotient * other.slope) / other.value)

    def __rtruediv__(self, other: Any) -> Dual:
        return Dual.of(other) / self

    def __pow__(self, exponent: int) -> Dual:
        result = Dual(1)
        for _ in range(abs(int(exponent))):
            result = result * self
        return result if exponent >= 0 else 1 / result

    def __abs__(self) -> Dual:
        return -self if self.value < 0 else self

    def __floor__(self) -> int:
        return self.value.__floor__()

    def conjugate(self) -> Dual:
        return self

    def __lt__(self, other: Any) -> bool:
        return self.value < Dual.of(other).value

    def __le__(self, other: Any) -> bool:
        return self.value <= Dual.of(other).value

    def __gt__(self, other: Any) -> bool:
        return self.value > Dual.of(other).value

    def __ge__(self, other: Any) -> bool:
        return self.value >= Dual.of(other).value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (Dual, int, float, Fraction)) and self.value == Dual.of(other).value

    def __hash__(self) -> int:
        return hash(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __repr__(self) -> str:
        return f"{self.value}+{self.slope}ε"


def rationals(array: Any, denominator: int = 8) -> Any:
    """Return an array of rationals near an array of floats."""
    array = np.asarray(array)
    made = np.empty(array.shape, dtype=object)
    made.ravel()[:] = [Fraction(round(float(v) * denominator), denominator) for v in array.ravel()]
    return made


def duals(values: Any, slopes: Any) -> Any:
    """Return an array of duals."""
    made = np.empty(np.shape(values), dtype=object)
    made.ravel()[:] = [Dual(v, s) for v, s in zip(np.ravel(values), np.ravel(slopes), strict=True)]
    return made


def value_of(x: Any) -> Any:
    """Return the values of an array of duals (or of plain numbers that a reference mixed in)."""
    return [Dual.of(v).value for v in np.ravel(np.asarray(x, dtype=object))]


def slope_of(x: Any) -> Any:
    """Return the slopes of an array of duals."""
    return [Dual.of(v).slope for v in np.ravel(np.asarray(x, dtype=object))]
