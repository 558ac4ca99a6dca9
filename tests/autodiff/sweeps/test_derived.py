"""Derivatives that are kept, and rules of users that read what changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import unspool as us


class Scale:
    """What the rules of this module read: each says that the slope of the identity is ``slope``."""

    def __init__(self) -> None:
        self.slope: Any = 2.0


def by_vjp(scale: Scale) -> Callable[[Any], Any]:
    function = us.custom_vjp(lambda v: v * 1.0)
    function.defvjp(lambda v: (v * 1.0, ()), lambda _, ct: (ct * scale.slope,))
    return function


def by_jvp(scale: Scale) -> Callable[[Any], Any]:
    function = us.custom_jvp(lambda v: v * 1.0)
    function.defjvp(lambda primals, tangents: (function(primals[0]), tangents[0] * scale.slope))
    return function


def by_op(scale: Scale) -> Callable[[Any], Any]:
    return us.op(
        "identity of test_derived", kernel=lambda x: x * 1.0, vjp=(lambda ct, *_: ct * scale.slope,), replace=True
    )


def by_op_with_one_rule(scale: Scale) -> Callable[[Any], Any]:
    return us.op(
        "identity of test_derived", kernel=lambda x: x * 1.0, vjp=lambda i, ct, *_: ct * scale.slope, replace=True
    )


def placed_twice(f: Any) -> Any:
    inner = us.fragment(lambda v: f(v))
    return us.fragment(lambda v: inner(f(inner(v))))


# Three times the function, in one form or another.
FORMS: dict[str, Callable[[Any], Callable[[Any], Any]]] = {
    "plain": lambda f: lambda x: f(f(f(x))),
    "fragment": lambda f: us.fragment(lambda x: f(f(f(x)))),
    "fragments": placed_twice,
    "remat": lambda f: us.remat(lambda x: f(f(f(x)))),
    "iterate": lambda f: lambda x: us.iterate(f, x, max_steps=3)[0],
    "checkpointed": lambda f: lambda x: us.iterate(f, x, max_steps=3, adjoint=us.Checkpointed(slots=1))[0],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rule", [by_vjp, by_jvp, by_op, by_op_with_one_rule])
def test_a_rule_that_reads_something_else_is_run_again(rule: Callable[..., Any], form: str) -> None:
    scale = Scale()
    function = FORMS[form](rule(scale))
    for slope in (2.0, 5.0, us.tensor(3.0), 2):
        scale.slope = slope
        x = us.tensor(1.5)
        assert function(x).grad(x).item() == float(slope) ** 3


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rule", [by_vjp, by_jvp, by_op])
def test_forward_mode_follows_too(rule: Callable[..., Any], form: str) -> None:
    scale = Scale()
    function = FORMS[form](rule(scale))
    for slope in (2.0, 5.0):
        scale.slope = slope
        assert us.jvp(function, (us.tensor(1.5),), (us.tensor(1.0),))[1].item() == slope**3


@pytest.mark.parametrize("form", FORMS)
def test_another_rule_takes_the_place_of_the_first(form: str) -> None:
    function = us.custom_vjp(lambda v: v * 1.0)
    loss = FORMS[form](function)
    for slope in (2.0, 5.0):
        function.defvjp(lambda v: (v * 1.0, ()), lambda _, ct, slope=slope: (ct * slope,))
        x = us.tensor(1.5)
        assert loss(x).grad(x).item() == slope**3


def test_derivatives_with_respect_to_what_a_rule_closes_over_stay_connected() -> None:
    scale = Scale()
    function = us.fragment(by_vjp(scale))
    for value in (2.0, 5.0):
        scale.slope = us.tensor(value)
        x = us.tensor(1.5)
        slope = function(x).grad(x)
        assert (slope.item(), slope.grad(scale.slope).item()) == (value, 1.0)


def test_a_rule_whose_surroundings_stay_runs_once() -> None:
    runs = []
    function = us.custom_vjp(lambda v: us.sin(v))

    def backward(v: Any, ct: Any) -> Any:
        runs.append(1)
        return (ct * us.cos(v),)

    function.defvjp(lambda v: (us.sin(v), v), backward)
    f = us.fragment(function)
    for k in range(5):
        x = us.tensor(float(k))
        f(x).grad(x).eval()
    assert len(runs) == 1


def test_a_gradient_inside_a_fragment_follows_the_rule() -> None:
    scale = Scale()
    inner = us.fragment(by_vjp(scale))
    slope = us.fragment(lambda x: us.grad(inner)(x) * x)
    x = us.tensor(1.0)
    us.grad(inner)(x).eval()
    for value in (2.0, 5.0):
        scale.slope = value
        assert slope(x).item() == value
