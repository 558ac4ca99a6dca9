"""What a trace is for: symbols, and what the function insists on; and how it is shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.fragments.tracing_helpers import counted, numbers


def test_a_size_that_is_insisted_on_is_the_only_one_that_is_fixed() -> None:
    def rows(A: Any, x: Any) -> Any:
        total = us.zeros(x.shape[0])
        for i in range(A.shape[0]):
            total = total + A[i] * x
        return total

    f, runs = counted(rows)
    for m, n in ((3, 4), (3, 7), (5, 7), (3, 9)):
        a, v = numbers(m, n), numbers(n)
        np.testing.assert_allclose(f(us.tensor(a), us.tensor(v)).eval(), (a * v).sum(0))
    # The first attempt failed, then one trace for 3 rows and one for 5.
    assert f.traces == 2 and len(runs) == 3
    text = str(us.fragment(rows).trace(us.tensor(numbers(3, 4)), us.tensor(numbers(4))))
    assert "(3, n₁)" in text and "A.shape[0] = 3, asked for at test_tracing.py" in text
    assert text.endswith("for i in range(A.shape[0]):")


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x if x.shape[0] > 3 else x * 2,
        lambda x, y: us.sum(x) / x.shape[0],
        lambda x, y: x * np.arange(x.shape[0]),
        lambda x, y: sum(us.unstack(x)),
        lambda x, y: [x, x * x][x.shape[0] % 2],
        lambda x, y: x * len(x),
    ],
)
def test_any_way_to_ask_for_a_size_is_answered(function: Callable[..., Any]) -> None:
    f = us.fragment(function)
    for n in (3, 4):
        x, y = us.tensor(numbers(n)), us.tensor(numbers(7))
        np.testing.assert_allclose(f(x, y).eval(), function(x, y).eval())
    assert f.traces == 2
    assert "x.shape[0] = 3" in str(f.trace(us.tensor(numbers(3)), us.tensor(numbers(7))))
    assert "y.shape[0]" not in str(f.trace(us.tensor(numbers(3)), us.tensor(numbers(7))))


def test_values_of_tensors_cannot_be_asked_for() -> None:
    @us.fragment
    def positive(x: Any) -> Any:
        if x[0] > 0:
            return x
        return -x

    with pytest.raises(us.errors.UnboundPlaceholderError, match=r"test_tracing.py:\d+: if x\[0\] > 0:.*us.where"):
        positive(us.tensor([1.0, 2.0]))


# --- listings --------------------------------------------------------------------------------------------------------


def test_a_trace_prints_as_a_listing() -> None:
    weights = us.tensor([1.0, 2.0], name="weights")

    def step(state: Any, rate: Any) -> Any:
        y = state["A"] @ state["x"]
        return {"y": rate * y, "w": y[0] * weights, "x": state["x"], "size": y.shape[0]}

    trace = us.fragment(step).trace({"A": numbers(3, 3), "x": numbers(3)}, 0.5)
    lines = str(trace).splitlines()
    number = test_a_trace_prints_as_a_listing.__code__.co_firstlineno + 1
    line = f'test_tracing.py:{number}: weights = us.tensor([1.0, 2.0], name="weights")'
    assert lines[:6] == [
        f"fragment {step.__qualname__}",
        "  inputs",
        "    %0  (n₀, n₀)  float64  state['A']",
        "    %1  (n₀,)     float64  state['x']",
        "    %2  ()        float64  rate",
        f"    %3  (2,)      float64  closed over: tensor 'weights' of shape (2,) and dtype float64, made at {line}",
    ]
    assert "    %4  (n₀,)  float64  contract(%0, %1, subscripts='ab,b->a')" in lines
    assert lines[-2] == "  returns {'y': %5, 'w': %8, 'x': state['x'], 'size': n₀}"
    assert repr(trace) == f"<trace of {step.__qualname__}: 5 instructions>"


def test_an_op_with_several_outputs_is_listed_with_all_its_shapes() -> None:
    text = str(us.fragment(lambda A: us.linalg.qr(A).Q).trace(numbers(4, 3)))
    assert "((n₀, min(n₀, n₁)), (min(n₀, n₁), n₁))  (float64, float64)" in text


def test_a_constant_that_a_derivative_makes_when_it_is_asked_for_is_part_of_the_trace() -> None:
    f = us.custom_vjp(lambda v: v * 1.0)
    f.defvjp(lambda v: (v * 1.0, ()), lambda _, ct: (ct * 2.0,))
    inner = us.fragment(lambda v: f(v))
    assert us.fragment(lambda x: us.grad(inner)(x) * x)(us.tensor(3.0)).item() == 6.0
