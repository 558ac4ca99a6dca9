"""Arguments that belong to the key of a trace: equal is not the same."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest

import unspool as us
from tests.fragments.tracing_helpers import counted
from unspool._fragments.exactly import exactly


@dataclass(frozen=True)
class Order:
    value: Any


class Pair(NamedTuple):
    first: Any
    second: Any


class Level(enum.IntEnum):
    ONE = 1


class Named:
    """Two of these with one name are equal, whatever else they hold."""

    def __init__(self, name: str, w: float) -> None:
        self.name, self.w = name, w

    def __repr__(self) -> str:
        return f"{self.name} {self.w}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)


NAN = float("nan")

EQUAL_BUT_NOT_THE_SAME = [
    (2, 2.0),
    (0.0, -0.0),
    (True, 1),
    (1, 1 + 0j),
    (complex(0.0, 0.0), complex(0.0, -0.0)),
    (np.float32(1), 1.0),
    (np.float32(1), np.float64(1)),
    (np.float64(0.0), np.float64(-0.0)),
    (Fraction(1), 1),
    (Decimal("1.0"), Decimal("1.00")),
    (Level.ONE, 1),
    (Named("a", 1.0), Named("a", 2.0)),
]


def _wrapped(value: Any) -> list[Any]:
    return [value, (value,), ((value, "a"),), frozenset({value}), Order(value), Pair(value, 1), Order((value,))]


@pytest.mark.parametrize(("one", "other"), EQUAL_BUT_NOT_THE_SAME, ids=lambda value: f"{type(value).__name__} {value}")
def test_equal_values_that_are_not_the_same_have_keys_that_differ(one: Any, other: Any) -> None:
    assert one == other
    for first, second in zip(_wrapped(one), _wrapped(other), strict=True):
        assert exactly(first) != exactly(second)


@pytest.mark.parametrize(
    "make",
    [
        lambda: NAN * 1,
        lambda: np.float64(NAN),
        lambda: complex(NAN, 1.0),
        lambda: (float("0.1"), "text", None, ...),
        lambda: Order((1.5, Pair(2, "a"))),
        lambda: frozenset({1.5, "a"}),
        lambda: range(int("300")),
        lambda: slice(0, int("300")),
        lambda: np.dtype("float32"),
        lambda: us.random.key(0),
        lambda: Fraction(1, 3),
    ],
)
def test_values_that_are_the_same_have_one_key_each_time(make: Any) -> None:
    assert exactly(make()) == exactly(make())
    assert hash(exactly(make())) == hash(exactly(make()))


def test_an_object_that_its_class_calls_equal_is_only_the_same_as_itself() -> None:
    f = us.fragment(lambda x, thing: x * thing.w)
    x = us.tensor(3.0)
    assert [f(x, Named("a", w)).item() for w in (1.0, 2.0)] == [3.0, 6.0]


@pytest.mark.parametrize(("one", "other"), [(2, 2.0), (True, 1), (2, 2 + 0j), (2, np.float32(2))])
@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: (v,), lambda v: Order(v), lambda v: Pair(v, None)])
def test_static_arguments_that_are_equal_have_traces_of_their_own(wrap: Any, one: Any, other: Any) -> None:
    def number(n: Any) -> Any:
        while isinstance(n, (tuple, Order)):
            n = n[0] if isinstance(n, tuple) else n.value
        return n

    def scaled(x: Any, n: Any) -> Any:
        return x * number(n)

    f, x = us.fragment(scaled, static="n"), us.tensor([3])
    for value in (one, other, one):
        assert f(x, wrap(value)).dtype == scaled(x, wrap(value)).dtype
        assert f(x, n=wrap(value)).dtype == scaled(x, wrap(value)).dtype
    assert f.traces == 4


def test_zeros_of_both_signs_are_two_static_arguments() -> None:
    f = us.fragment(lambda x, n: x / n[0], static="n")
    x = us.tensor(1.0)
    assert [f(x, (zero,)).item() for zero in (0.0, -0.0, 0.0)] == [np.inf, -np.inf, np.inf]


def test_a_nan_is_the_same_static_argument_each_time() -> None:
    runs = []

    @us.fragment(static="n")
    def f(x: Any, n: Any) -> Any:
        runs.append(1)
        return x * n[0]

    for _ in range(4):
        assert np.isnan(f(us.tensor(1.0), (float("nan"),)).item())
    assert (f.traces, len(runs)) == (1, 1)


def test_keys_of_dictionaries_that_are_equal_have_traces_of_their_own() -> None:
    def total(table: Any) -> Any:
        return sum(key * value for key, value in table.items())

    f, x = us.fragment(total), us.tensor([3])
    for key in (1, 1.0, True, 1 + 0j, 1):
        assert f({key: x}).dtype == total({key: x}).dtype


def test_an_object_that_is_made_anew_but_the_same_does_not_trace_again() -> None:
    f, runs = counted(lambda x, order: x * order.value)
    for _ in range(3):
        f(us.tensor(1.0), Order(2.5))
    assert len(runs) == 1


def test_a_bound_method_is_the_same_argument_each_time() -> None:
    class Scale:
        def apply(self, x: Any) -> Any:
            return x * 2

    scale = Scale()
    f, runs = counted(lambda x, function: function(x))
    for _ in range(3):
        f(us.tensor(1.0), scale.apply)
    assert len(runs) == 1
