"""Views of views: one view of the source, unless the view in between is what has been computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import unspool as us

X = np.random.default_rng(0).standard_normal((6, 4))

View = Callable[[Any], Any]
PAIRS: dict[str, tuple[View, View]] = {
    "reshape": (lambda x: x.reshape(2, 3, 4), lambda v: v.reshape(3, 8)),
    "reshape and back": (lambda x: x.reshape(2, 3, 4), lambda v: v.reshape(6, 4)),
    "transpose and back": (lambda x: x.T, lambda v: v.T),
    "permutation": (lambda x: x.reshape(2, 3, 4).T, lambda v: us.permute_dims(v, (1, 0, 2))),
    "flip": (lambda x: us.flip(x, 0), lambda v: us.flip(v, 1)),
    "flip and back": (lambda x: us.flip(x, 0), lambda v: us.flip(v, 0)),
    "roll": (lambda x: us.roll(x, 1, 0), lambda v: us.roll(v, 2, 0)),
    "roll and back": (lambda x: us.roll(x, 1, 0), lambda v: us.roll(v, -1, 0)),
    "pad": (lambda x: us.pad(x, 1), lambda v: us.pad(v, 2)),
    "diagonal": (lambda x: us.diag(x[:, 0]), us.diagonal),
}
pairs = pytest.mark.parametrize(("first", "second"), PAIRS.values(), ids=PAIRS.keys())


@pairs
def test_a_view_that_has_its_value_is_read_and_not_computed_again(first: View, second: View) -> None:
    with us.debug.count_kernels() as kernels:
        view = first(us.sin(us.tensor(X)))
        view.eval()
        found = second(view).eval()
    assert kernels["sin"] == 1
    np.testing.assert_array_equal(found, second(first(us.tensor(np.sin(X)))).eval())


@pairs
def test_a_recipe_is_one_node_whatever_was_computed_in_between(first: View, second: View) -> None:
    source = us.sin(us.tensor(X))
    view = first(source)
    before = second(view)
    view.eval()
    assert second(view) is before  # it has kept the source
    before.eval()
    assert second(view) is before

    view = first(us.cos(us.tensor(X)))
    view.eval()
    after = second(view)
    assert second(view) is after
    after.eval()
    assert second(view) is after


@pytest.mark.parametrize("back", ["reshape and back", "transpose and back", "flip and back", "roll and back"])
def test_with_both_values_there_the_way_back_is_the_source(back: str) -> None:
    first, second = PAIRS[back]
    leaf = us.tensor(X)
    for source in (leaf, us.sin(leaf)):
        view = first(source)
        assert second(view) is source
        source.eval()
        view.eval()
        assert second(view) is source


@pairs
def test_derivatives_do_not_depend_on_what_was_computed(first: View, second: View) -> None:
    def gradient(look: bool) -> Any:
        x = us.tensor(X)
        view = first(us.sin(x))
        if look:
            view.eval()
        return us.sum(us.exp(second(view)) * us.cos(second(view))).grad(x).eval()

    np.testing.assert_array_equal(gradient(True), gradient(False))


def test_a_loop_that_reshapes_its_state_runs_each_step_once() -> None:
    start = us.tensor(np.eye(6)[:, :2].reshape(2, 3, 2))
    x = us.tensor(X[:, :2])
    with us.debug.count_kernels() as kernels:
        core = start
        for _ in range(6):
            core = us.linalg.qr(us.sin(core.reshape(6, 2)) + x).Q.reshape(2, 3, 2)
            float(us.sum(core * core))
    assert kernels["qr"] == 6


@pytest.mark.parametrize("share", [10, 3])
def test_a_budget_does_not_change_a_bit(share: int) -> None:
    def gradient() -> Any:
        x = us.tensor(np.linspace(0.1, 1.0, 2000).reshape(40, 50))
        state, total = x, us.tensor(0.0)
        for _ in range(60):
            state = us.sin(state.reshape(40, 50) * 1.1).reshape(20, 100)
            total = total + us.sum(state * state) + us.sum(us.exp(-state))
            float(total)
        return total.grad(x).eval()

    gradient()
    expected = gradient()
    with us.memory("4GB") as everything:
        gradient()
    peak = everything.report().peak
    assert peak is not None
    with us.memory(peak // share):
        np.testing.assert_array_equal(gradient(), expected)


def test_copies_of_copies_are_copies_of_the_source_whatever_was_computed() -> None:
    def gradient(look: bool) -> Any:
        x = us.tensor(X)
        copies = us.broadcast_to(us.sin(x), (7, 6, 4))
        if look:
            copies.eval()
        weights = np.random.default_rng(1).standard_normal((5, 7, 6, 4))
        return us.sum(us.broadcast_to(copies, (5, 7, 6, 4)) * weights).grad(x).eval()

    np.testing.assert_array_equal(gradient(True), gradient(False))
