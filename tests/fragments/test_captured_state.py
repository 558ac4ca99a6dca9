"""Tensors that a traced function finds outside its arguments, and names that are bound to something else."""

from __future__ import annotations

from typing import Any

import pytest

import unspool as us
from tests.fragments.tracing_helpers import counted, numbers

outside = us.tensor([1.0, 2.0])


def reads_outside(x: Any) -> Any:
    return x * outside


def test_tensors_that_a_function_closes_over_are_inputs_and_are_differentiated() -> None:
    w = us.tensor([3.0, 4.0], name="w")
    f = us.fragment(lambda x: us.sum(x * w * (w * w)))
    x = us.tensor([1.0, 2.0])
    assert f(x).grad(w).tolist() == [27.0, 96.0]
    assert "closed over: tensor 'w'" in str(f.trace(x))


def test_rebinding_a_variable_of_an_enclosing_function_traces_again() -> None:
    w, scale = us.tensor(2.0), 1.0
    f, runs = counted(lambda x: x * w * scale)
    x = us.tensor(3.0)
    assert f(x).item() == f(x).item() == 6.0 and len(runs) == 1
    w = us.tensor(5.0)
    assert f(x).item() == f(x).item() == 15.0 and len(runs) == 2
    scale = 2.0
    assert f(x).item() == 30.0 and f.traces == 1


def test_rebinding_a_global_that_is_reached_through_a_function_traces_again(monkeypatch: pytest.MonkeyPatch) -> None:
    f, runs = counted(lambda x: us.sum(reads_outside(x)))
    x = us.tensor([1.0, 1.0])
    assert f(x).item() == f(x).item() == 3.0 and len(runs) == 1
    monkeypatch.setitem(globals(), "outside", us.tensor([10.0, 20.0]))
    assert f(x).item() == 30.0 and len(runs) == 2


def test_replacing_an_entry_of_a_dictionary_traces_again() -> None:
    weights = {"w": us.tensor(2.0)}
    f = us.fragment(lambda x: x * weights["w"])
    assert f(us.tensor(3.0)).item() == 6.0
    weights["w"] = us.tensor(5.0)
    assert f(us.tensor(3.0)).item() == 15.0


def test_a_counter_that_the_function_writes_does_not_make_it_trace_again() -> None:
    runs = 0

    @us.fragment
    def f(x: Any) -> Any:
        nonlocal runs
        runs += 1
        return x * x

    for n in (2, 3, 1, 2, 1):
        f(us.tensor(numbers(n)))
    assert runs == 2


class Model:
    def __init__(self, w: Any) -> None:
        self.w = w

    @us.fragment
    def apply(self, x: Any) -> Any:
        return us.sum(self.w * x)


def test_methods_are_traced_per_instance_and_see_attributes_rebound() -> None:
    first, second = Model(us.tensor([1.0, 2.0])), Model(us.tensor([3.0, 4.0]))
    Model.apply.clear()
    x = us.tensor([1.0, 1.0])
    assert (first.apply(x).item(), second.apply(x).item()) == (3.0, 7.0)
    assert Model.apply(first, x) is first.apply(x) and first.apply.traces == 2
    assert first.apply(x).grad(first.w).tolist() == [1.0, 1.0]
    first.w = us.tensor([5.0, 5.0])
    assert first.apply(x).item() == 10.0
    assert "closed over" in str(first.apply.trace(x))
    assert "apply" in repr(first.apply)
    first.apply.clear()
    assert first.apply.traces == 0
