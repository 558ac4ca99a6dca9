"""Functions that are none, and functions that ask for values while they are traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import unspool as us
from unspool.errors import ArgumentError, UnboundPlaceholderError

TAKE_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "iterate": lambda f: us.iterate(f, 1.0, max_steps=2),
    "until": lambda f: us.iterate(lambda s: s, 1.0, until=f or 0),
    "fixed_point": lambda f: us.fixed_point(f, 1.0),
    "grad": us.grad,
    "value_and_grad": us.value_and_grad,
    "vjp": lambda f: us.vjp(f, 3.0),
    "jvp": lambda f: us.jvp(f, (3.0,), (1.0,)),
    "linearize": lambda f: us.linearize(f, 3.0),
    "hvp": lambda f: us.hvp(f, (3.0,), (1.0,)),
    "jacobian": us.jacobian,
    "jacfwd": us.jacfwd,
    "jacrev": us.jacrev,
    "hessian": us.hessian,
    "check_grad": lambda f: us.check_grad(f, 3.0),
    "fragment": lambda f: us.fragment()(f),
    "remat": lambda f: us.remat()(f),
    "custom_vjp": us.custom_vjp,
    "custom_jvp": us.custom_jvp,
    "fwd": lambda f: us.custom_vjp(us.sin).defvjp(f, us.sin),
    "bwd": lambda f: us.custom_vjp(us.sin).defvjp(us.sin, f),
    "rule": lambda f: us.custom_jvp(us.sin).defjvp(f),
}


@pytest.mark.parametrize("take", TAKE_FUNCTIONS.values(), ids=TAKE_FUNCTIONS)
@pytest.mark.parametrize("given", [5, "sin", None, us.tensor(1.0)], ids=["int", "str", "None", "tensor"])
def test_what_is_no_function_is_refused_with_what_it_is(take: Callable[[Any], Any], given: Any) -> None:
    kind = "int" if given is None and take is TAKE_FUNCTIONS["until"] else type(given).__name__
    with pytest.raises(ArgumentError, match=rf"takes a function, got .* of type {kind}"):
        take(given)


@pytest.mark.parametrize("static", [3, (1, 2), ("n", 2.5)])
@pytest.mark.parametrize("decorate", [us.fragment, us.remat])
def test_static_parameters_are_given_by_name(decorate: Any, static: Any) -> None:
    with pytest.raises(ArgumentError, match="static takes names of parameters, got"):
        decorate(lambda n: n, static=static)


@pytest.mark.parametrize("positions", [1.5, "a", (0, 1.5), -1])
@pytest.mark.parametrize("decorate", [us.custom_vjp, us.custom_jvp])
def test_positions_of_arguments_are_integers(decorate: Any, positions: Any) -> None:
    with pytest.raises(ArgumentError, match="nondiff_argnums are positions"):
        decorate(us.sin, nondiff_argnums=positions)


def turned(s: Any) -> Any:
    return s if s[0] > 0 else -s


TRACE: dict[str, tuple[str, Callable[[], Any]]] = {
    "fragment": ("a fragment", lambda: us.fragment(turned)(us.ones(2))),
    "remat": ("a fragment", lambda: us.remat(turned)(us.ones(2))),
    "iterate": ("the step of us.iterate", lambda: us.iterate(turned, us.ones(2), max_steps=2)),
    "until": ("until of us.iterate", lambda: us.iterate(us.sin, us.ones(2), until=turned)),
    "fixed_point": ("the step of us.fixed_point", lambda: us.fixed_point(turned, us.ones(2))),
    "gmres": ("the operator of gmres", lambda: us.linalg.gmres(turned, us.ones(2))),
}


@pytest.mark.parametrize(("what", "call"), TRACE.values(), ids=TRACE)
def test_an_if_on_a_value_names_the_line_and_what_to_do(what: str, call: Callable[[], Any]) -> None:
    message = rf"{what} is traced without values, but it asks for one at test_asking.py:\d+: return s if .*us\.where"
    with pytest.raises(UnboundPlaceholderError, match=message):
        call()
