"""Python numbers as arguments of a fragment: data that stays weak, unless the function insists on its value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.fragments.tracing_helpers import counted, numbers


def test_new_values_of_numbers_and_arrays_do_not_trace_again() -> None:
    f, runs = counted(lambda x, s, k, a: s * x + x / (1 + k) - 0.9**k * a + (2 * s + 1) * x)
    for s, k in ((0.5, 1), (-2.0, 7), (0.0, 0)):
        x, a = numbers(3), numbers(3, seed=k)
        found = f(us.tensor(x), s, k, a)
        np.testing.assert_allclose(found.eval(), s * x + x / (1 + k) - 0.9**k * a + (2 * s + 1) * x)
    assert len(runs) == 1


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "int32", "int64", "bool"])
@pytest.mark.parametrize("number", [3, 0.1, 2j])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, s: x * s,
        lambda x, s: s + x,
        lambda x, s: s - x,
        lambda x, s: x / s,
        lambda x, s: (2 * s + 1) * x,
        lambda x, s: -s * x,
        lambda x, s: abs(s) * x,
        lambda x, s: (s * 0.5) * x,
        lambda x, s: us.maximum(abs(x), abs(s)),
        lambda x, s: x ** abs(s),
        lambda x, s: x == s,
        lambda x, s: np.arange(3.0, dtype="float32") * s * x,
    ],
)
def test_numbers_are_as_weak_as_in_plain_code(function: Callable[..., Any], number: complex, dtype: str) -> None:
    x = us.tensor(np.array([1, 0, 2]).astype(dtype))
    expected, found = function(x, number), us.fragment(function)(x, number)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found.eval(), expected.eval(), rtol=1e-6)


def test_a_number_that_is_insisted_on_is_traced_for_each_value() -> None:
    def polynomial(x: Any, order: Any, s: Any) -> Any:
        return s * sum((x**i for i in range(order)), us.zeros_like(x)) if s > 0 else x

    f = us.fragment(polynomial)
    x = us.tensor([1.0, 2.0])
    for order, s in ((3, 0.5), (2, 0.5), (3, 0.5), (3, -1.0), (2, -1.0), (2, 0.5)):
        np.testing.assert_allclose(f(x, order, s).eval(), polynomial(x, order, s).eval())
    assert f.traces == 4
    text = str(us.fragment(polynomial).trace(x, 3, 0.5))
    assert "s = 0.5, asked for at" in text and "order = 3, asked for at" in text


def test_a_number_beyond_what_an_integer_array_holds_is_refused_as_in_plain_code() -> None:
    f = us.fragment(lambda x, k: x * (k * k * k))
    x = us.tensor(np.arange(3))
    assert f(x, 2).tolist() == [0, 8, 16]
    with pytest.raises(us.errors.DTypeError):
        f(x, 2**31 - 1)
    with pytest.raises(us.errors.DTypeError):
        us.fragment(lambda x, k: x * k)(x, 2**70)
