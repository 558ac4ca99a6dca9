"""The two kinds of numbers a tape runs on: NumPy's own, and exact rationals.

An arithmetic turns data into values, and what a kernel returned into the value of its node. `Rational` holds every real
number as a `fractions.Fraction` in an object array. Integers and bools (indices, conditions) stay as they are; a float
that a kernel makes on its way means that the op has no exact meaning, and raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from numbers import Rational as RationalNumber
from typing import Any, Protocol

import numpy as np

from unspool._dtypes import COMPLEX, EXACT, REAL
from unspool._engine.binding import as_value, check_rank
from unspool._graph import Bundle, Node, describe, source_of
from unspool.errors import DTypeMismatchError, ExactArithmeticError, KernelError, UnspoolError

Array = Any


class Arithmetic(Protocol):
    """What the interpreter asks of a kind of numbers. Values are read-only arrays."""

    def bound(self, node: Node, data: Any) -> Array:
        """Return data that a user gives for a leaf as its value."""

    def leaf(self, node: Node) -> Array:
        """Return the data that a leaf holds as its value."""

    def arguments(self, node: Node, values: Sequence[Array]) -> Sequence[Array]:
        """Return the values of a node's inputs as its kernel shall see them."""

    def result(self, dtype: np.dtype[Any], value: Any, is_data: bool) -> Array:
        """Return what a kernel made as a value of the given dtype; ``is_data`` if it was made from nothing."""

    def failure(self, node: Node, error: Exception) -> UnspoolError:
        """Return the error to raise for a kernel that failed."""

    def cotangent(self, dtype: np.dtype[Any], value: Any) -> Array:
        """Return numbers as a cotangent of a node of the given dtype; a real one takes the real part."""

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return the cotangent of a node that was not reached, written as numbers."""


class Machine:
    """NumPy's own numbers: floating-point, complex, integers and bools."""

    def bound(self, node: Node, data: Any) -> Array:
        """Return data as an array of the leaf's dtype."""
        return frozen(as_value(node, data))

    def leaf(self, node: Node) -> Array:
        """Return the leaf's own array."""
        return node.value

    def arguments(self, node: Node, values: Sequence[Array]) -> Sequence[Array]:
        """Return the values as they are."""
        return values

    def result(self, dtype: np.dtype[Any], value: Any, is_data: bool) -> Array:
        """Return the value as an array."""
        return frozen(np.asarray(value))

    def failure(self, node: Node, error: Exception) -> UnspoolError:
        """Return an error of the same type, or `KernelError`, that names node and line."""
        return _located(node, error)

    def cotangent(self, dtype: np.dtype[Any], value: Any) -> Array:
        """Return numbers in the node's dtype."""
        array = np.asarray(value)
        if dtype not in COMPLEX:
            array = array.real
        return frozen(array.astype(dtype, copy=False))

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return an array of zeros."""
        return frozen(np.zeros(shape, dtype))


class Rational:
    """Exact rationals: every real number is a `fractions.Fraction`."""

    def bound(self, node: Node, data: Any) -> Array:
        """Return data, which may hold rationals, as an array of rationals (or integers for an integer leaf)."""
        if isinstance(data, Node):
            data = data.eval()  # type: ignore[attr-defined]
        array = np.asarray(data)
        if array.dtype.kind not in "biufO" or (node.dtype in EXACT and array.dtype.kind in "fO"):
            raise DTypeMismatchError(
                f"a value of dtype {array.dtype} was bound to {describe(node)}, made at {source_of(node)}"
            )
        check_rank(node, array.shape)
        return self._converted(node, array)

    def leaf(self, node: Node) -> Array:
        """Return the leaf's floats as the rationals they are."""
        return self._converted(node, node.value)

    def arguments(self, node: Node, values: Sequence[Array]) -> Sequence[Array]:
        """Return the values, where integers that are about to become reals are rationals already."""
        if _dtypes(node) & REAL and all(type(v) is not tuple and v.dtype != object for v in values):
            return [_rationals(v) for v in values]
        return values

    def result(self, dtype: np.dtype[Any], value: Any, is_data: bool) -> Array:
        """Return the value as rationals, integers or bools, as the dtype says."""
        array = np.asarray(value)
        if dtype in EXACT:
            return frozen(array.astype(dtype))
        if dtype in COMPLEX:
            raise TypeError("complex numbers are not rational")
        return _rationals(array, convert=is_data)

    def failure(self, node: Node, error: Exception) -> UnspoolError:
        """Return `ExactArithmeticError` for an op that floats would have passed, else what `Machine` returns."""
        if isinstance(error, (TypeError, AttributeError, ZeroDivisionError, OverflowError)) and not isinstance(
            error, UnspoolError
        ):
            return ExactArithmeticError(
                f"op {node.op.name!r} has no exact value on these rationals ({error}); "
                f"{describe(node)}, made at {source_of(node)}"
            )
        return _located(node, error)

    def cotangent(self, dtype: np.dtype[Any], value: Any) -> Array:
        """Return numbers as rationals."""
        return _rationals(np.asarray(value), convert=True)

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return an array of exact zeros."""
        if dtype in EXACT:
            return frozen(np.zeros(shape, dtype))
        return frozen(np.full(shape, Fraction(0), dtype=object))

    def _converted(self, node: Node, array: Array) -> Array:
        if node.dtype in EXACT:
            return frozen(array.astype(node.dtype))
        try:
            return _rationals(array, convert=True)
        except (TypeError, ValueError, OverflowError) as error:
            raise ExactArithmeticError(
                f"the data of {describe(node)}, made at {source_of(node)}, is not rational: {error}"
            ) from error


def holds_fractions(data: Any) -> bool:
    """Whether data (an array or nested lists) contains a `fractions.Fraction`, or is an empty array of objects."""
    if isinstance(data, Node):
        return False
    array = np.asarray(data)
    return array.dtype == object and (not array.size or any(isinstance(number, Fraction) for number in array.flat))


def frozen(array: Array) -> Array:
    """Return an array that cannot be written through: the array itself if it is read-only, else a view."""
    if array.flags.writeable:
        array = array.view()
        array.setflags(write=False)
    return array


def _rationals(array: Array, convert: bool = True) -> Array:
    """Return numbers as an array of fractions; without ``convert`` a float is a mistake and raises `TypeError`."""
    exact = (_converted_element if convert else _exact_element)(array)
    return frozen(np.asarray(exact, dtype=object))


def _exact(number: Any) -> Fraction:
    if type(number) is Fraction:
        return number
    if isinstance(number, RationalNumber):
        # Through int: NumPy's integers would overflow inside a fraction.
        return Fraction(int(number.numerator), int(number.denominator))
    raise TypeError(f"it gives {number!r}, which is {type(number).__name__} and not a rational")


def _converted(number: Any) -> Fraction:
    return Fraction(number) if isinstance(number, float) else _exact(number)


_exact_element = np.frompyfunc(_exact, 1, 1)
_converted_element = np.frompyfunc(_converted, 1, 1)


def _dtypes(node: Node) -> frozenset[Any]:
    return frozenset(node.dtype) if type(node) is Bundle else frozenset({node.dtype})  # type: ignore[call-overload]


def _located(node: Node, error: Exception) -> UnspoolError:
    place = f"{describe(node)}, made at {source_of(node)}"
    if isinstance(error, UnspoolError):
        return type(error)(f"{error}, in {place}")
    return KernelError(f"{type(error).__name__}: {error}, while computing {place}")
