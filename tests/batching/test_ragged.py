"""Loops of a batch that stop by a value: each member's value, number of steps and derivatives are its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool.errors import ArgumentError, ConvergenceError, UnboundPlaceholderError

# The loop x ← r·x stops below 1 after a number of steps that is known in closed form, with x·rᵏ and slope k·x·rᵏ⁻¹.
RATES = np.array([0.5, 0.9, 0.99, 0.7, 0.9, 0.3])
START = 1000.0
LENGTHS = np.ceil(np.log(1.0 / START) / np.log(RATES)).astype(int)


def decay(r: us.Tensor) -> tuple[us.Tensor, Any]:
    return us.iterate(lambda x: r * x, us.tensor(START), until=lambda new: new < 1.0)


def test_values_and_numbers_of_steps_are_those_of_the_closed_form() -> None:
    x, steps = us.vmap(decay)(RATES)
    assert steps.tolist() == LENGTHS.tolist()
    np.testing.assert_allclose(x.eval(), START * RATES**LENGTHS, rtol=1e-12)


ADJOINTS = {"unrolled": us.Unrolled(), "checkpointed": us.Checkpointed(slots=4)}


@pytest.mark.parametrize("adjoint", ADJOINTS.values(), ids=ADJOINTS.keys())
def test_derivatives_are_those_of_the_closed_form(adjoint: Any) -> None:
    def last(r: us.Tensor) -> us.Tensor:
        return us.iterate(lambda x: r * x, us.tensor(START), until=lambda new: new < 1.0, adjoint=adjoint)[0]

    slopes = LENGTHS * START * RATES ** (LENGTHS - 1)
    rates = us.tensor(RATES)
    np.testing.assert_allclose(us.grad(lambda r: us.sum(us.vmap(last)(r)))(rates).eval(), slopes, rtol=1e-10)
    np.testing.assert_allclose(us.vmap(us.grad(last))(rates).eval(), slopes, rtol=1e-10)
    _, pushed = us.jvp(us.vmap(last), (rates,), (np.ones(6),))
    np.testing.assert_allclose(pushed.eval(), slopes, rtol=1e-10)


def test_second_derivatives_are_those_of_the_closed_form() -> None:
    curvatures = LENGTHS * (LENGTHS - 1) * START * RATES ** (LENGTHS - 2)
    second = us.grad(us.grad(lambda r: decay(r)[0]))
    np.testing.assert_allclose(us.vmap(second)(RATES).eval(), curvatures, rtol=1e-9)
    of_batch = us.grad(lambda r: us.sum(us.grad(lambda r: us.sum(us.vmap(decay)(r)[0]))(r)))(us.tensor(RATES))
    np.testing.assert_allclose(of_batch.eval(), curvatures, rtol=1e-9)


ORDERS = {
    "the first first": np.argsort(LENGTHS, kind="stable"),
    "the last first": np.argsort(-LENGTHS, kind="stable"),
    "from both ends": np.array([5, 3, 2, 1, 4, 0]),
    "any": np.array([2, 0, 4, 5, 1, 3]),
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
def test_members_may_stop_in_any_order(order: Any) -> None:
    rates, lengths = RATES[order], LENGTHS[order]
    both = us.vmap(us.value_and_grad(lambda r: decay(r)[0]))
    values, slopes = us.eval(both(us.tensor(rates)))
    np.testing.assert_allclose(values, START * rates**lengths, rtol=1e-12)
    np.testing.assert_allclose(slopes, lengths * START * rates ** (lengths - 1), rtol=1e-10)


# The start is r itself, or made from it, so the loop stands on two inputs of which one is made from the other.
STARTS = {
    "r twice": (lambda r: r, lambda r, k: r ** (k + 1), lambda r, k: (k + 1) * r**k),
    "made from r": (lambda r: 2.0 * r, lambda r, k: 2.0 * r ** (k + 1), lambda r, k: 2.0 * (k + 1) * r**k),
    "beside r": (lambda r: us.tensor(1.0), lambda r, k: r**k, lambda r, k: k * r ** (k - 1)),
}


@pytest.mark.parametrize(("start", "value", "slope"), STARTS.values(), ids=STARTS.keys())
def test_a_loop_that_starts_from_what_its_steps_read_has_the_whole_derivative(
    start: Any, value: Any, slope: Any
) -> None:
    def last(r: us.Tensor) -> Any:
        return us.iterate(lambda x: r * x, start(r), until=lambda new: new < 1e-3)

    x, steps = us.vmap(last)(RATES)
    k = steps.eval()
    np.testing.assert_allclose(x.eval(), value(RATES, k), rtol=1e-12)
    first = us.grad(lambda r: last(r)[0])
    np.testing.assert_allclose(us.vmap(first)(RATES).eval(), slope(RATES, k), rtol=1e-10)
    pushed = us.vmap(lambda r: us.jvp(lambda r: last(r)[0], (r,), (us.tensor(1.0),))[1])(RATES)
    np.testing.assert_allclose(pushed.eval(), slope(RATES, k), rtol=1e-10)


def test_a_loop_on_several_inputs_has_a_derivative_by_each_alone() -> None:
    def last(r: us.Tensor, shift: us.Tensor) -> us.Tensor:
        return us.iterate(lambda x: r * x, 1000.0 + shift, until=lambda new: new < 1.0)[0]

    by_rate, by_shift = us.eval(us.vmap(us.grad(last, argnums=(0, 1)))(us.tensor(RATES), us.zeros(6)))
    np.testing.assert_allclose(by_rate, LENGTHS * START * RATES ** (LENGTHS - 1), rtol=1e-10)
    np.testing.assert_allclose(by_shift, RATES**LENGTHS, rtol=1e-10)


def test_what_members_share_gets_the_sum_of_their_gradients_or_one_each() -> None:
    factor = us.tensor(1.0)

    def last(factor: us.Tensor, r: us.Tensor) -> us.Tensor:
        return us.iterate(lambda x: factor * r * x, us.tensor(START), until=lambda new: new < 1.0)[0]

    slopes = LENGTHS * START * RATES**LENGTHS
    each = us.vmap(us.grad(last), in_axes=(None, 0))(factor, RATES)
    np.testing.assert_allclose(each.eval(), slopes, rtol=1e-10)
    total = us.grad(lambda f: us.sum(us.vmap(last, in_axes=(None, 0))(f, RATES)))(factor)
    np.testing.assert_allclose(float(total), slopes.sum(), rtol=1e-10)


def test_no_member_makes_a_step_that_it_would_not_make_alone() -> None:
    rows = []

    def kernel(x: Any) -> Any:
        rows.append(x.size)
        return 1.0 * x

    counted = us.op("counted rows", kernel=kernel, infer="elementwise", vjp=(lambda ct, out, x: ct,), replace=True)

    def last(r: us.Tensor) -> Any:
        return us.iterate(lambda x: counted(r * x), us.tensor(START), until=lambda new: new < 1.0)

    x, steps = us.vmap(last)(RATES)
    us.eval(x)
    # Beside the steps, what stops is looked up once for each number of members that go on together.
    assert steps.tolist() == LENGTHS.tolist()
    looked_up = sum(np.count_nonzero(n <= LENGTHS) for n in np.unique(LENGTHS))
    assert sum(rows) <= LENGTHS.sum() + looked_up


def test_a_gradient_inside_of_the_function_does_not_run_the_loop_twice() -> None:
    rows = []

    def kernel(x: Any) -> Any:
        rows.append(x.size)
        return 1.0 * x

    counted = us.op("counted again", kernel=kernel, infer="elementwise", vjp=(lambda ct, out, x: ct,), replace=True)

    def last(r: us.Tensor) -> us.Tensor:
        return us.iterate(lambda x: counted(r * x), us.tensor(START), until=lambda new: new < 1.0)[0]

    us.vmap(us.value_and_grad(last))(RATES)[1].eval()
    looked_up = sum(np.count_nonzero(n <= LENGTHS) for n in np.unique(LENGTHS))
    assert sum(rows) <= LENGTHS.sum() + looked_up


def test_the_most_steps_hold_for_each_member() -> None:
    _, steps = us.vmap(lambda r: us.iterate(lambda x: r * x, START, until=lambda new: new < 1.0, max_steps=30))(RATES)
    assert steps.tolist() == np.minimum(LENGTHS, 30).tolist()


def test_a_batch_of_no_members_makes_no_steps() -> None:
    x, steps = us.vmap(decay)(np.empty(0))
    assert x.eval().shape == steps.eval().shape == (0,)


@pytest.mark.parametrize("adjoint", [us.Unrolled(), us.Checkpointed(slots=2), us.Implicit()], ids=str)
def test_a_batch_of_no_members_still_depends_on_what_its_steps_read(adjoint: Any) -> None:
    def total(r: us.Tensor, xs: Any) -> us.Tensor:
        def last(x: us.Tensor) -> us.Tensor:
            return us.iterate(lambda y: r * y + x, us.tensor(1.0), until=lambda new: new < 1e-9, adjoint=adjoint)[0]

        return us.sum(us.vmap(last)(xs))

    assert us.grad(lambda r: total(r, np.empty(0)))(us.tensor(0.5)).item() == 0.0


def test_a_counter_in_the_state_is_each_members_own_at_the_end() -> None:
    def step(state: Any) -> Any:
        x, k = state
        return x * RATE.get(), k + 1

    class RATE:
        value: Any = None

        @classmethod
        def get(cls) -> Any:
            return cls.value

    def last(r: us.Tensor) -> Any:
        RATE.value = r
        (_, k), _ = us.iterate(step, (us.tensor(START), 0), until=lambda new: new[0] < 1.0)
        return k

    assert us.vmap(last)(RATES).tolist() == LENGTHS.tolist()


def test_batches_in_batches_stop_each_member_at_its_own_step() -> None:
    starts = np.array([10.0, 1000.0])

    def last(r: us.Tensor, start: us.Tensor) -> Any:
        return us.iterate(lambda x: r * x, start, until=lambda new: new < 1.0)

    x, steps = us.vmap(lambda s: us.vmap(lambda r: last(r, s))(RATES))(starts)
    lengths = np.ceil(np.log(1.0 / starts)[:, None] / np.log(RATES)).astype(int)
    # 10 · 0.1ᵏ is 1 after one step, which is not below 1; no rate here is a root of a start.
    assert steps.tolist() == lengths.tolist()
    np.testing.assert_allclose(x.eval(), starts[:, None] * RATES**lengths, rtol=1e-12)
    slopes = us.vmap(lambda s: us.vmap(us.grad(lambda r: last(r, s)[0]))(RATES))(starts)
    np.testing.assert_allclose(slopes.eval(), lengths * starts[:, None] * RATES ** (lengths - 1), rtol=1e-10)


# Halving stops at a number of steps that is known in closed form, and so is the Jacobian, which depends on it.
STARTS_OF_VECTORS = np.array([[3.0, 1.0], [40.0, 2.0], [0.2, 0.1], [9.0, 9.0]])


def cubes(x: us.Tensor) -> us.Tensor:
    """Return the cubes of the halves of x below 1, of which derivatives depend on the number of steps of the member."""
    return us.iterate(lambda y: 0.5 * y, x, until=lambda new: us.sum(new) < 1.0, adjoint=us.Unrolled())[0] ** 3


def halvings() -> Any:
    return np.maximum(1, np.floor(np.log2(STARTS_OF_VECTORS.sum(axis=1))) + 1)


# Which members there are, and in which order they stop: directions are no members, whatever their number is.
CHOICES = {"two, in order": [2, 0], "two, the last first": [0, 2], "all": [0, 1, 2, 3], "one": [1], "none": []}


@pytest.mark.parametrize("chosen", CHOICES.values(), ids=CHOICES.keys())
def test_whole_jacobians_and_hessians_of_a_member_are_its_own(chosen: list[int]) -> None:
    x, shrunk = STARTS_OF_VECTORS[chosen], 0.5 ** halvings()[chosen]
    slopes = 3.0 * x**2 * shrunk[:, None] ** 3
    curvatures = 6.0 * x * shrunk[:, None] ** 3
    directions, eye = np.array([[1.0, 2.0], [0.0, -1.0], [3.0, 0.5]]), np.eye(2)
    total = us.hessian(lambda x: us.sum(cubes(x)))
    found = {
        "jacobian": (us.vmap(us.jacobian(cubes)), slopes[:, :, None] * eye),
        "hessian": (us.vmap(total), curvatures[:, :, None] * eye),
        "pushed": (
            us.vmap(lambda x: us.vmap(lambda v: us.jvp(cubes, (x,), (v,))[1])(directions)),
            slopes[:, None] * directions,
        ),
        "pulled": (
            us.vmap(lambda x: us.vmap(lambda v: us.grad(lambda x: us.sum(v * cubes(x)))(x))(directions)),
            slopes[:, None] * directions,
        ),
        "pushed, differentiated": (
            us.vmap(us.grad(lambda x: us.sum(us.vmap(lambda v: us.jvp(cubes, (x,), (v,))[1])(directions)))),
            curvatures * directions.sum(axis=0),
        ),
    }
    for name, (function, expected) in found.items():
        np.testing.assert_allclose(function(us.tensor(x)).eval(), expected, rtol=1e-12, err_msg=name)


def test_hessians_of_members_in_batches_of_batches_are_their_own() -> None:
    factors = np.array([1.0, 0.3, 5.0])
    x = factors[:, None, None] * STARTS_OF_VECTORS
    shrunk = 0.5 ** np.maximum(1, np.floor(np.log2(x.sum(axis=2))) + 1)
    total = us.hessian(lambda x: us.sum(cubes(x)))
    found = us.vmap(lambda f: us.vmap(lambda x: total(f * x))(us.tensor(STARTS_OF_VECTORS)))(us.tensor(factors))
    np.testing.assert_allclose(found.eval(), (6.0 * x * shrunk[..., None] ** 3)[..., None] * np.eye(2), rtol=1e-12)


def test_a_member_whose_numbers_become_nan_leaves_the_others_alone() -> None:
    def last(r: us.Tensor) -> Any:
        return us.iterate(lambda x: r * x, us.tensor(START), until=lambda new: new < 1.0, max_steps=2000)

    x, steps = us.vmap(last)(np.array([0.5, np.nan, 0.9]))
    assert steps.tolist() == [10, 2000, 66]
    assert np.isnan(x.eval()).tolist() == [False, True, False]
    slopes = us.grad(lambda r: us.sum(us.vmap(last)(r)[0] * np.array([1.0, 0.0, 1.0])))(np.array([0.5, 2.0, 0.9]))
    np.testing.assert_allclose(slopes.eval()[[0, 2]], [10 * START * 0.5**9, 66 * START * 0.9**65], rtol=1e-10)


def test_a_vector_state_with_a_condition_on_both_states() -> None:
    matrices = np.stack([np.diag([1.0, q]) for q in (0.2, 0.9, 0.6)])

    def power(A: us.Tensor) -> Any:
        def step(x: us.Tensor) -> us.Tensor:
            y = A @ x
            return y / us.linalg.norm(y)

        x, steps = us.iterate(step, us.tensor([0.6, 0.8]), until=lambda new, old: us.max(abs(new - old)) < 1e-10)
        return x @ A @ x, steps

    values, steps = us.vmap(power)(matrices)
    alone = [power(us.tensor(A)) for A in matrices]
    assert steps.tolist() == [n for _, n in alone]
    np.testing.assert_allclose(values.eval(), 1.0, atol=1e-12)
    found = us.vmap(us.grad(lambda A: power(A)[0]))(matrices).eval()
    np.testing.assert_allclose(found, np.tile([[1.0, 0.0], [0.0, 0.0]], (3, 1, 1)), atol=1e-7)


def test_a_loop_that_does_not_depend_on_the_member_runs_once_and_counts_in_integers() -> None:
    counts = []

    def f(x: us.Tensor) -> us.Tensor:
        y, steps = us.iterate(lambda y: 0.5 * y, us.tensor(8.0), until=lambda new: new < 1.0)
        counts.append(steps)
        return x * y

    assert us.vmap(f)(np.arange(3.0)).tolist() == [0.0, 0.5, 1.0]
    assert counts == [4]


# --- fixed points -----------------------------------------------------------------------------------------------------

# x = a + b·x has the fixed point a / (1 - b), with slopes 1 / (1 - b) and a / (1 - b)².
AS, BS = np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.1, 0.5, 0.9, -0.4])
SEARCHES = {
    "accelerated": lambda a, b: us.fixed_point(lambda x: a + b * x, 1.0, tol=1e-12),
    "plain": lambda a, b: us.fixed_point(lambda x: a + b * x, 1.0, tol=1e-12, acceleration=None),
    "through the steps": lambda a, b: us.fixed_point(
        lambda x: a + b * x, us.tensor(1.0), tol=1e-12, acceleration=None, adjoint=us.Unrolled()
    ),
    "iterate": lambda a, b: us.iterate(
        lambda x: a + b * x, us.tensor(1.0), until=lambda new, old: abs(new - old) < 1e-12, adjoint=us.Implicit()
    ),
    "iterate with a counter": lambda a, b: us.iterate(
        lambda s: (a + b * s[0], s[1] + 1), (1.0, 0), max_steps=400, adjoint=us.Implicit()
    )[0],
}


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES.keys())
def test_fixed_points_and_their_derivatives_are_those_of_the_closed_form(search: Any) -> None:
    x, steps = us.vmap(search)(AS, BS)
    np.testing.assert_allclose(x.eval(), AS / (1 - BS), rtol=1e-9)
    assert steps.tolist() == [int(search(us.tensor(a), us.tensor(b))[1]) for a, b in zip(AS, BS, strict=True)]
    own = us.vmap(us.grad(lambda a, b: search(a, b)[0], argnums=(0, 1)))(AS, BS)
    of_batch = us.grad(lambda a, b: us.sum(us.vmap(search)(a, b)[0]), argnums=(0, 1))(us.tensor(AS), us.tensor(BS))
    for found in (own, of_batch):
        np.testing.assert_allclose(found[0].eval(), 1 / (1 - BS), rtol=1e-7)
        np.testing.assert_allclose(found[1].eval(), AS / (1 - BS) ** 2, rtol=1e-7)


MATRIX = np.random.default_rng(4).normal(size=(16, 16)) / 8
POINTS = {
    "accelerated": lambda x: us.fixed_point(lambda y: us.tanh(MATRIX @ y) + x, x)[0],
    "plain": lambda x: us.fixed_point(lambda y: us.tanh(MATRIX @ y) + x, x, acceleration=None)[0],
    "iterate": lambda x: us.iterate(
        lambda y: us.tanh(MATRIX @ y) + x,
        x,
        until=lambda new, old: us.max(abs(new - old)) < 1e-9,
        adjoint=us.Implicit(),
    )[0],
}


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("search", POINTS.values(), ids=POINTS.keys())
def test_fixed_points_that_are_computed_again_have_the_bits_that_were_found(search: Any, nested: bool) -> None:
    starts = np.random.default_rng(5).normal(size=(8, 3, 16))
    if nested:
        points = us.vmap(us.vmap(search))(us.tensor(starts))
    else:
        points = us.vmap(search)(us.tensor(starts.reshape(24, 16)))
    (node,) = [node for node in us._graph.ancestors([points]) if node.op.name == "fixed_points"]
    found = points.eval()
    (again,) = node.op.kernel(*us.eval(list(node.inputs)), **node.attributes)
    assert np.array_equal(again.reshape(found.shape), found)


def test_the_bits_of_fixed_points_do_not_depend_on_how_batches_are_nested() -> None:
    starts = np.random.default_rng(6).normal(size=(4, 3, 16))
    nested = us.vmap(us.vmap(POINTS["accelerated"]))(us.tensor(starts)).eval()
    row = us.vmap(POINTS["accelerated"])(us.tensor(starts.reshape(12, 16))).eval()
    assert np.array_equal(nested.reshape(12, 16), row)


def test_second_derivatives_of_fixed_points() -> None:
    second = us.grad(us.grad(lambda b: us.fixed_point(lambda x: 1.0 + b * x, 1.0, tol=1e-13)[0]))
    np.testing.assert_allclose(us.vmap(second)(BS).eval(), 2 / (1 - BS) ** 3, rtol=1e-6)


def test_fixed_points_in_batches_of_batches() -> None:
    x, _ = us.vmap(lambda a: us.vmap(lambda b: us.fixed_point(lambda x: a + b * x, 1.0, tol=1e-12))(BS))(AS)
    np.testing.assert_allclose(x.eval(), AS[:, None] / (1 - BS), rtol=1e-9)
    slopes = us.vmap(lambda a: us.vmap(us.grad(lambda b: us.fixed_point(lambda x: a + b * x, 1.0)[0]))(BS))(AS)
    np.testing.assert_allclose(slopes.eval(), AS[:, None] / (1 - BS) ** 2, rtol=1e-6)


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES.keys())
def test_a_search_for_nobodys_fixed_points_finds_none(search: Any) -> None:
    nobody = us.tensor(np.empty(0))
    x, steps = us.vmap(search)(nobody, nobody)
    assert x.eval().shape == steps.eval().shape == (0,)
    for derivative in (us.grad, us.hessian):
        own = us.vmap(derivative(lambda a, b: search(a, b)[0]))(nobody, nobody)
        assert own.eval().shape == (0,)
    of_batch = us.grad(lambda a: us.sum(us.vmap(lambda a, b: search(a, b)[0])(a, nobody)))(nobody)
    assert of_batch.eval().shape == (0,)


def test_a_member_without_a_fixed_point_is_an_error() -> None:
    with pytest.raises(ConvergenceError, match="no fixed point after 20 steps"):
        us.vmap(lambda b: us.fixed_point(lambda x: 1.0 + b * x, 1.0, max_steps=20, acceleration=None))(BS)
    with pytest.raises(ConvergenceError, match="is no fixed point"):
        us.vmap(lambda b: us.iterate(lambda x: 1.0 + b * x, 1.0, max_steps=5, adjoint=us.Implicit()))(BS)


# --- mistakes --------------------------------------------------------------------------------------------------------


def test_outputs_of_steps_cannot_be_stacked_where_their_numbers_differ() -> None:
    def f(r: us.Tensor) -> Any:
        return us.iterate(lambda x: (r * x, x), us.tensor(START), until=lambda new: new < 1.0, has_outputs=True)

    with pytest.raises(ArgumentError, match="different numbers of steps"):
        us.vmap(f)(RATES)


def test_a_placeholder_without_value_is_named_as_outside_of_batches() -> None:
    rates = us.placeholder((6,), "float64", "rates")
    with pytest.raises(UnboundPlaceholderError, match="has to run to know its number of steps"):
        us.vmap(decay)(rates)
