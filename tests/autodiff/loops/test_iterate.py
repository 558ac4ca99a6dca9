"""``us.iterate``: its values, and its derivatives against the plain loop, closed forms and finite differences."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import unspool as us
from tests.closeness import close
from unspool._graph import live_node_count
from unspool.errors import (
    ArgumentError,
    DTypeError,
    NaNError,
    RankError,
    ShapeError,
    StructureError,
    UnboundPlaceholderError,
)

N, STEPS = 5, 9


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def complex_numbers(*shape, seed=0):
    return numbers(*shape, seed=seed) + 1j * numbers(*shape, seed=seed + 100)


def iterated(step, state, steps=STEPS):
    return us.iterate(step, state, max_steps=steps)[0]


def unrolled(step, state, steps=STEPS):
    """The plain Python loop."""
    for _ in range(steps):
        state = step(state)
    return state


# --- programs: each takes the function that loops, and returns a scalar function and its arguments -------------------


def power_iteration(loop):
    weights = us.tensor(numbers(N, seed=3))

    def loss(A, x):
        def step(x):
            y = A @ x
            return y / us.linalg.norm(y)

        return us.sum(weights * loop(step, x) ** 3)

    A = numbers(N, N, seed=1)
    return loss, (us.tensor(A @ A.T), us.tensor(numbers(N, seed=2)))


def momentum(loop):
    Q = us.tensor(numbers(N, N) / 3)

    def loss(x, v, rate):
        def step(state):
            v = 0.9 * state["v"] - rate * us.sin(Q @ state["x"])
            return {"x": state["x"] + v, "v": v}

        return us.sum(loop(step, {"x": x, "v": v})["x"] ** 3)

    return loss, (us.tensor(numbers(N, seed=1)), us.tensor(numbers(N, seed=2)), us.tensor(0.1))


def newton_for_roots(loop):
    def loss(c):
        return us.sum(loop(lambda x: x - (x * x * x - c) / (3.0 * x * x), us.ones(N)) ** 2)

    return loss, (us.tensor(1.0 + numbers(N) ** 2),)


def descent_with_inner_gradient(loop):
    def loss(c):
        def energy(x):
            return us.sum((x * x - c) ** 2)

        return us.sum(loop(lambda x: x - 0.02 * us.grad(energy)(x), us.ones(N)) ** 3)

    return loss, (us.tensor(1.0 + numbers(N) ** 2),)


def alternating_least_squares(loop):
    eye = us.tensor(0.1 * np.eye(2))

    def loss(M, left, right):
        def step(factors):
            left, right = factors
            left = M @ right @ us.linalg.inv(right.T @ right + eye)
            right = M.T @ left @ us.linalg.inv(left.T @ left + eye)
            return [left, right]

        left, right = loop(step, [left, right], 4)
        return us.sum((left @ right.T) ** 2)

    return loss, (us.tensor(numbers(4, 3)), us.tensor(numbers(4, 2, seed=1)), us.tensor(numbers(3, 2, seed=2)))


def swapping(loop):
    # What has a cotangent changes from step to step, and never settles.
    def loss(a, b, c):
        return us.sum(loop(lambda s: (us.sin(s[1]), us.cos(s[2]), us.exp(s[0] / 9)), (a, b, c))[0])

    return loss, tuple(us.tensor(numbers(3, seed=i)) for i in range(3))


def complex_power_iteration(loop):
    def loss(A, x):
        def step(x):
            y = A @ x
            return y / us.linalg.norm(y)

        x = loop(step, x)
        return us.sum(abs(x[:2]) ** 2) + (x[0] * x[1]).real

    return loss, (us.tensor(complex_numbers(N, N)), us.tensor(complex_numbers(N, seed=5)))


def nested(loop):
    def loss(x):
        def outer(s):
            return 0.5 * s + loop(lambda t: us.sin(t) * x, s, 3)

        return us.sum(loop(outer, x, 4))

    return loss, (us.tensor(numbers(N)),)


def scaled_matrix(loop):
    # One matrix gets outer products from two places and something else from a third.
    def loss(A, x):
        return us.sum(loop(lambda x: us.tanh(A @ x + us.sin(x) @ A + us.sum(A * A) / 50), x))

    return loss, (us.tensor(numbers(N, N) / 2), us.tensor(numbers(N, seed=4)))


PROGRAMS = [
    power_iteration,
    momentum,
    newton_for_roots,
    descent_with_inner_gradient,
    alternating_least_squares,
    swapping,
    complex_power_iteration,
    nested,
    scaled_matrix,
]

programs = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)


@programs
def test_value_and_gradient_are_those_of_the_plain_loop(program):
    loss, args = program(iterated)
    plain, _ = program(unrolled)
    positions = tuple(range(len(args)))
    value, gradients = us.value_and_grad(loss, positions)(*args)
    expected_value, expected = us.value_and_grad(plain, positions)(*args)
    close(value, expected_value)
    for actual, wanted in zip(gradients, expected, strict=True):
        close(actual, wanted)


@programs
def test_tangents_are_those_of_the_plain_loop(program):
    loss, args = program(iterated)
    plain, _ = program(unrolled)
    directions = [numbers(*x.shape, seed=7) for x in args]
    close(us.jvp(loss, args, directions)[1], us.jvp(plain, args, directions)[1])
    # With one argument that moves, the state starts without a tangent.
    alone = [directions[0], *[None] * (len(args) - 1)]
    close(us.jvp(loss, args, alone)[1], us.jvp(plain, args, alone)[1])


@programs
def test_hessian_products_are_those_of_the_plain_loop(program):
    loss, args = program(iterated)
    plain, _ = program(unrolled)
    directions = [numbers(*x.shape, seed=7) for x in args]
    actual, expected = us.hvp(loss, args, directions), us.hvp(plain, args, directions)
    for a, b in zip(*((h if len(args) > 1 else (h,)) for h in (actual, expected)), strict=True):
        close(a, b, 1e-11)


@pytest.mark.parametrize("program", [power_iteration, momentum, newton_for_roots], ids=lambda p: p.__name__)
def test_derivatives_agree_with_finite_differences(program):
    loss, args = program(iterated)
    us.check_grad(loss, *args)


def test_gradient_of_a_gradient_is_that_of_the_plain_loop():
    loss, (A, x) = power_iteration(iterated)
    plain, _ = power_iteration(unrolled)
    w = numbers(N, N, seed=9)
    second = us.grad(lambda A: us.sum(w * us.grad(loss)(A, x)))(A)
    close(second, us.grad(lambda A: us.sum(w * us.grad(plain)(A, x)))(A))


def test_jacobians_both_ways_and_the_hessian_are_those_of_the_plain_loop():
    Q = us.tensor(numbers(3, 3))
    x = us.tensor(numbers(3, seed=1))
    expected = us.jacrev(lambda x: unrolled(lambda s: us.sin(Q @ s), x))(x)
    close(us.jacrev(lambda x: iterated(lambda s: us.sin(Q @ s), x))(x), expected)
    close(us.jacfwd(lambda x: iterated(lambda s: us.sin(Q @ s), x))(x), expected)
    hessian = us.hessian(lambda x: us.sum(iterated(lambda s: us.sin(Q @ s), x)))(x)
    close(hessian, us.hessian(lambda x: us.sum(unrolled(lambda s: us.sin(Q @ s), x)))(x))


def test_third_derivative_of_repeated_squaring_has_its_closed_form():
    def power(x):
        return iterated(lambda s: s * s, x, 3)

    def forward(f):
        return lambda x: us.jvp(f, (x,), (1.0,))[1]

    expected = 8 * 7 * 6 * 1.1**5
    close(us.grad(us.grad(us.grad(power)))(1.1), expected)
    close(forward(forward(forward(power)))(1.1), expected)
    close(forward(us.grad(forward(power)))(1.1), expected)


@pytest.mark.parametrize("steps", range(1, 7))
def test_any_number_of_steps_has_the_derivative_of_the_plain_loop(steps):
    args = tuple(us.tensor(numbers(3, seed=i)) for i in range(3))

    def rotated(loop):
        return lambda a, b, c: us.sum(loop(lambda s: (us.sin(s[1]), us.cos(s[2]), s[0] * a), (a, b, c), steps)[0])

    for i in range(3):  # after a few steps the result does not depend on all of them
        by_loop, by_steps = (us.grad(rotated(loop), i, unconnected="zeros") for loop in (iterated, unrolled))
        close(by_loop(*args), by_steps(*args))
    moving = (args[1], None, None)
    close(us.jvp(rotated(iterated), args, moving)[1], us.jvp(rotated(unrolled), args, moving)[1])


# --- elements that were never reached --------------------------------------------------------------------------------

ABSENT = {
    "dropped in every step": lambda loop, x: us.sum(loop(lambda s: us.concat([us.zeros(1), us.sqrt(s)[1:]]), x, 4)),
    "dropped after the loop": lambda loop, x: us.sum(loop(us.sqrt, x, 3)[1:]),
    "not chosen": lambda loop, x: us.sum(loop(lambda s: us.where(s > 0, us.sqrt(s), s), x, 4)),
    "of a constant": lambda loop, x: loop(lambda s: 0.5 * s + us.max(us.sqrt(x)) + us.sum(us.sqrt(x)[1:]), 1.0, 4),
    "of one part of the state": lambda loop, x: us.sum(loop(lambda s: (s[0] * 2.0, us.sqrt(s[0])), (x, x), 3)[0]),
}


@pytest.mark.parametrize("program", ABSENT.values(), ids=ABSENT)
def test_elements_that_were_never_reached_stay_absent(program):
    x = us.tensor([0.0, 1.0, 4.0])
    gradient = us.grad(lambda x: program(iterated, x))(x)
    close(gradient, us.grad(lambda x: program(unrolled, x))(x))
    assert np.isfinite(gradient.eval()).all()
    direction = np.array([0.0, 1.0, 2.0])
    tangent = us.jvp(lambda x: program(iterated, x), (x,), (direction,))[1]
    np.testing.assert_allclose(tangent.eval(), us.jvp(lambda x: program(unrolled, x), (x,), (direction,))[1].eval())


@pytest.mark.parametrize("adjoint", [us.Unrolled(), us.Checkpointed(slots=2), us.Checkpointed(memory=2000)], ids=repr)
def test_what_one_step_leaves_out_and_another_keeps_is_added_up_from_those_that_keep_it(adjoint):
    start, floor = np.array([5.5, 3.5, 0.5]), np.array([1.0, 2.0, 3.0])

    def loss(a):
        def step(state):
            x, total = state
            return x - 1.0, total + us.sum(us.maximum(x, a) ** 2)

        return us.iterate(step, (us.tensor(start), us.tensor(0.0)), max_steps=6, adjoint=adjoint)[0][1]

    a = us.tensor(floor)
    kept = np.sum(start - np.arange(6)[:, None] < floor, axis=0)
    assert kept.tolist() == [1, 4, 6]
    close(loss(a).grad(a), 2 * kept * floor)
    close(us.sum(us.sin(loss(a).grad(a))).grad(a), 2 * kept * np.cos(2 * kept * floor))
    direction = np.array([1.0, -2.0, 0.5])
    close(us.jvp(loss, (a,), (direction,))[1], np.sum(2 * kept * floor * direction))


# --- when to stop ----------------------------------------------------------------------------------------------------


def test_until_sees_the_new_state():
    x, steps = us.iterate(lambda x: x / 2, 1.0, until=lambda x: x < 0.1)
    assert (float(x), steps) == (0.0625, 4)


def test_until_may_compare_the_new_state_with_the_old_one():
    x, steps = us.iterate(us.cos, us.tensor(1.0), until=lambda new, old: abs(new - old) < 1e-12)
    value, count = 1.0, 0
    while True:
        value, before, count = np.cos(value), value, count + 1
        if abs(value - before) < 1e-12:
            break
    assert steps == count
    close(x, value)


def test_a_default_argument_of_until_is_not_the_old_state():
    assert us.iterate(lambda x: x / 2, 1.0, until=lambda x, limit=0.3: x < limit)[1] == 2


def test_until_and_max_steps_end_at_whichever_comes_first():
    assert us.iterate(lambda x: x / 2, 1.0, until=lambda x: x < 0.1, max_steps=3)[1] == 3
    assert us.iterate(lambda x: x / 2, 1.0, until=lambda x: x < 0.1, max_steps=100)[1] == 4


def test_a_record_of_unknown_length_grows_and_keeps_what_was_in_it():
    rate = us.tensor(0.999)
    x, steps, seen = us.iterate(lambda x: (x * rate, x), 1.0, until=lambda x: x < 0.5, has_outputs=True)
    assert steps == int(np.ceil(np.log(0.5) / np.log(0.999)))
    close(seen, 0.999 ** np.arange(steps))
    close(x.grad(rate), steps * 0.999 ** (steps - 1))


def test_until_may_close_over_tensors():
    limit = us.tensor(10)
    assert us.iterate(lambda i: i + 1, 0, until=lambda i: i >= limit)[1] == 10


def test_no_steps_leave_the_state_as_it_is():
    x = us.tensor([1.0, 2.0, 3.0])
    state, steps, outputs = us.iterate(lambda s: (2.0 * s, {"tail": s[1:]}), x, max_steps=0, has_outputs=True)
    assert state is x and steps == 0
    assert outputs["tail"].shape == (0, 2) and outputs["tail"].dtype == np.float64
    close(us.sum(state).grad(x), np.ones(3))


# --- states and outputs ----------------------------------------------------------------------------------------------


def test_outputs_are_stacked_and_differentiable():
    Q = us.tensor(numbers(N, N))
    x = us.tensor(numbers(N, seed=1))

    def step(s):
        y = Q @ s
        return y / us.linalg.norm(y), {"norm": us.linalg.norm(y), "before": s}

    def loss(x):
        s, _, seen = us.iterate(step, x, max_steps=STEPS, has_outputs=True)
        assert seen["before"].shape == (STEPS, N)
        return us.sum(seen["norm"] ** 2) + us.sum(seen["before"][2:] * s)

    def plain(x):
        norms, befores = [], []
        for _ in range(STEPS):
            x, seen = step(x)
            norms.append(seen["norm"])
            befores.append(seen["before"])
        return us.sum(us.stack(norms) ** 2) + us.sum(us.stack(befores)[2:] * x)

    close(loss(x), plain(x))
    close(us.grad(loss)(x), us.grad(plain)(x))
    close(us.hessian(loss)(x), us.hessian(plain)(x), 1e-11)
    direction = (numbers(N, seed=2),)
    close(us.jvp(loss, (x,), direction)[1], us.jvp(plain, (x,), direction)[1])


@pytest.mark.parametrize("adjoint", [us.Unrolled(), us.Checkpointed(slots=2), us.Checkpointed(memory=2000)], ids=repr)
def test_a_matrix_that_only_outputs_read_has_its_gradient(adjoint):
    # Nothing is carried back, and a step computes nothing: the gradient is a sum of outer products of what is there.
    A, x, weights = us.tensor(numbers(N, N)), us.tensor(numbers(N, seed=1)), numbers(STEPS, N, seed=2)
    outputs = us.iterate(lambda s: (us.sin(s), A @ s), x, max_steps=STEPS, adjoint=adjoint, has_outputs=True)[2]
    states = [x.eval()]
    for _ in range(STEPS - 1):
        states.append(np.sin(states[-1]))
    close(us.sum(outputs * weights).grad(A), weights.T @ np.array(states))


def test_counters_in_the_state_have_no_derivative_and_disturb_none():
    # x**6 / 6!
    def loss(x):
        return us.iterate(lambda s: (s[0] * x / (s[1] + 1), s[1] + 1), (1.0, 0), max_steps=6)[0][0]

    close(us.grad(loss)(2.0), 6 * 2.0**5 / 720)
    close(us.grad(us.grad(loss))(2.0), 30 * 2.0**4 / 720)
    assert us.iterate(lambda i: i + 1, 0, max_steps=3)[0].dtype == np.int64


def test_a_counter_picks_a_random_number_per_step():
    noise = us.random.normal(us.random.key(0), (STEPS, N))
    x = us.tensor(numbers(N))
    state, _ = us.iterate(lambda s: (us.sin(s[0]) + x * noise[s[1]], s[1] + 1), (x, 0), max_steps=STEPS)
    expected = x
    for k in range(STEPS):
        expected = us.sin(expected) + x * noise[k]
    close(state[0], expected)
    close(us.sum(state[0]).grad(x), us.sum(expected).grad(x))


def test_numbers_in_the_initial_state_take_the_dtype_that_a_step_gives_them():
    x = us.tensor([1.0 + 1j])
    assert us.iterate(lambda s: s / 2, 1, max_steps=2)[0].dtype == np.float64
    assert us.iterate(lambda s: s * x[0], 1, max_steps=2)[0].dtype == np.complex128
    single = us.tensor(np.float32([1.0, 2.0]))
    state, _ = us.iterate(lambda s: us.sin(s) * single, single, max_steps=2)
    assert state.dtype == np.float32 and us.sum(state).grad(single).dtype == np.float32


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
@pytest.mark.parametrize("number", [True, 2, 2.0])
def test_a_number_that_a_step_returns_takes_the_dtype_of_the_state(dtype, number):
    state, _ = us.iterate(lambda s: (s[0] * 2, number), (us.tensor(np.ones((), dtype)),) * 2, max_steps=2)
    assert [x.dtype for x in state] == [dtype, dtype]
    assert [x.item() for x in state] == [4, number]


def test_a_state_may_be_handed_on_unchanged_or_replaced():
    x, y = us.tensor([1.0, 2.0]), us.tensor([4.0, 5.0])
    first, _ = us.iterate(lambda s: (s[0] * s[1], s[1]), (x, x), max_steps=3)
    close(us.sum(first[0]).grad(x), 4 * np.array([1.0, 2.0]) ** 3)
    second, _ = us.iterate(lambda s: (y, s[0], us.ones(2)), (x, x, x), max_steps=3)
    close(us.sum(second[1] * y).grad(y), [8.0, 10.0])
    close(second[2], np.ones(2))


def test_a_part_of_a_fragment_that_does_not_depend_on_the_state_is_no_constant_of_the_loop():
    a, x = us.tensor([0.5, -1.0]), us.tensor([2.0, 3.0])
    f = us.fragment(lambda x, a: (x * us.sin(a), us.cos(a)))
    for step in (lambda s: f(s[0], a), lambda s: f(2.0 * s[0] - s[0], a)):
        (first, second), _ = us.iterate(step, (x, x), max_steps=3)
        close(first, x.eval() * np.sin(a.eval()) ** 3)
        close(second, np.cos(a.eval()))
        close(us.sum(second).grad(a), -np.sin(a.eval()))


def test_states_of_size_zero_work():
    x = us.tensor(np.zeros((0, 3)))
    state, _ = us.iterate(lambda s: us.sin(s), x, max_steps=3)
    assert us.sum(state).grad(x).shape == (0, 3)


# --- without values --------------------------------------------------------------------------------------------------


def test_a_loop_over_placeholders_of_any_size_is_placed_and_differentiated_before_values_are_known():
    n = us.dims("n")
    p = us.placeholder((n,))
    state, steps = us.iterate(lambda s: us.sin(s) * p, p, max_steps=3)
    assert steps == 3
    first = us.sum(state).grad(p)
    second = us.sum(first).grad(p)
    for size in (2, 4):
        x = us.tensor(numbers(size))
        expected = us.sum(unrolled(lambda s: us.sin(s) * x, x, 3))  # noqa: B023
        bound = {p: x.eval()}
        close(us.sum(state).eval(bound), expected)
        close(first.eval(bound), expected.grad(x))
        close(second.eval(bound), us.sum(expected.grad(x)).grad(x))


def test_a_fragment_may_contain_a_loop():
    @us.fragment
    def body(y):
        return us.iterate(lambda s: us.sin(s) * y, y, max_steps=3)[0]

    for size in (2, 3):
        x = us.tensor(numbers(size))
        expected = us.sum(unrolled(lambda s: us.sin(s) * x, x, 3))  # noqa: B023
        close(us.sum(body(x)), expected)
        close(us.sum(body(x)).grad(x), expected.grad(x))


def test_a_condition_needs_values():
    p = us.placeholder((2,), name="p")
    with pytest.raises(UnboundPlaceholderError, match="'p'.*max_steps alone"):
        us.iterate(lambda s: s * p, us.ones(2), until=lambda s: us.sum(s) > 3)

    @us.fragment
    def body(y):
        return us.iterate(lambda s: s * 2.0, y, until=lambda s: us.sum(s) > 3)[0]

    with pytest.raises(UnboundPlaceholderError):
        body(us.ones(2))


# --- what others see of a loop ---------------------------------------------------------------------------------------


def test_the_tape_runs_and_differentiates_a_loop():
    loss, (A, x) = power_iteration(iterated)
    value = loss(A, x)
    tape = us.Tape([value])
    assert [node.op for node in tape.nodes].count("loop") == 1
    cotangents = tape.backward_scalar(tape.id_of(value))
    for variable in (A, x):
        close(cotangents[tape.id_of(variable)], value.grad(variable))


def test_the_tape_runs_a_loop_on_rationals():
    q, w = us.tensor([1.0, 2.0]), us.tensor([3.0, 0.5])
    loss = us.sum(iterated(lambda s: s * w + q, q, 3))
    tape = us.Tape([loss], exact=True)
    gradient = tape.backward_scalar(tape.id_of(loss))[tape.id_of(w)]
    assert gradient.tolist() == [Fraction(34), Fraction(11, 2)]


def test_a_loop_runs_once_and_its_gradient_once():
    x = us.tensor(numbers(N))
    with us.debug.count_kernels() as counts:
        state = iterated(us.sin, x)
        state.eval()
        us.sum(state).grad(x).eval()
    assert counts["loop"] == 2 and counts["sin"] == 0


def test_a_gradient_is_made_of_loops_however_many_steps_there_are():
    loss, (A, x) = power_iteration(lambda step, state: iterated(step, state, 500))
    assert us.graph_size(us.grad(loss)(A, x)) < 60


def test_dropping_a_loop_frees_it():
    x = us.tensor(numbers(N))
    state = iterated(us.sin, x)
    us.sum(state).grad(x).eval()
    del state
    before = live_node_count()
    for _ in range(3):
        state = iterated(us.sin, x)
        us.sum(state).grad(x).eval()
    del state
    assert live_node_count() == before


def test_a_nan_in_a_loop_is_found():
    with us.debug.check_nan(), pytest.raises(NaNError, match="loop"):
        us.iterate(us.log, us.tensor([1.0, 2.0]), max_steps=5)


# --- errors ----------------------------------------------------------------------------------------------------------

x3 = us.tensor([1.0, 2.0, 3.0])

MISTAKES = {
    "no end": (lambda: us.iterate(lambda s: s, x3), ArgumentError, "until, max_steps, or both"),
    "negative": (lambda: us.iterate(lambda s: s, x3, max_steps=-1), ArgumentError, "at least 0, got -1"),
    "not an integer": (lambda: us.iterate(lambda s: s, x3, max_steps=2.5), ArgumentError, "integer, got 2.5"),
    "no strategy": (lambda: us.iterate(lambda s: s, x3, max_steps=2, adjoint="unrolled"), ArgumentError, "us.Unrolled"),
    "shape": (
        lambda: us.iterate(lambda s: {"a": s["a"][1:]}, {"a": x3}, max_steps=2),
        ShapeError,
        r"state\['a'\] has shape \(3,\) before a step and \(2,\) after.*test_iterate.py",
    ),
    "dtype": (
        lambda: us.iterate(lambda s: s * 1j, x3, max_steps=2),
        DTypeError,
        "state has dtype float64 before a step and complex128 after it.*test_iterate.py",
    ),
    "narrower dtype": (
        lambda: us.iterate(lambda s: {"a": s["a"].astype("float32")}, {"a": x3}, max_steps=2),
        DTypeError,
        r"state\['a'\] has dtype float64 before a step and float32 after it.*test_iterate.py.*astype\('float64'\)",
    ),
    "dtype of an array": (
        lambda: us.iterate(lambda s: np.ones(3, dtype=np.int64), x3, max_steps=2),
        DTypeError,
        "state has dtype float64 before a step and int64 after it",
    ),
    "truth values": (lambda: us.iterate(lambda s: s > 0, x3, max_steps=2), DTypeError, "float64 before .* bool after"),
    "structure": (lambda: us.iterate(lambda s: (s, s), x3, max_steps=2), StructureError, r"given \*, returned \(\*"),
    "not a tensor": (lambda: us.iterate(lambda s: "x", x3, max_steps=2), DTypeError, "as returned by the step"),
    "no outputs": (
        lambda: us.iterate(lambda s: s, x3, max_steps=2, has_outputs=True),
        StructureError,
        r"\(state, outputs\)",
    ),
    "condition of shape": (lambda: us.iterate(lambda s: s, x3, until=lambda s: s > 0), ShapeError, r"\(3,\).*us.all"),
    "condition of dtype": (lambda: us.iterate(lambda s: s, x3, until=us.sum), DTypeError, "dtype float64"),
    "nested condition": (
        lambda: us.iterate(lambda s: s, x3, until=lambda s: (s, s)),
        StructureError,
        "one truth value",
    ),
    "condition of three": (
        lambda: us.iterate(lambda s: s, x3, until=lambda a, b, c: a),
        ArgumentError,
        "has 3 parameters",
    ),
    "looking at values": (
        lambda: us.iterate(lambda s: s if float(us.sum(s)) > 0 else -s, x3, max_steps=2),
        UnboundPlaceholderError,
        r"the step of us.iterate is traced without values, but it asks for one at test_iterate.py:\d+: .*us.where",
    ),
    "if": (
        lambda: us.iterate(lambda s: s if s[0] > 0 else -s, x3, max_steps=2),
        UnboundPlaceholderError,
        r"the step of us.iterate is traced without values, but it asks for one at test_iterate.py:\d+: .*us.where",
    ),
    "if in the condition": (
        lambda: us.iterate(lambda s: s, x3, until=lambda s: bool(s[0] > 0)),
        UnboundPlaceholderError,
        r"until of us.iterate is traced without values, but it asks for one at test_iterate.py:\d+",
    ),
    "failing kernel": (
        lambda: us.iterate(lambda m: us.linalg.inv(m - us.eye(2)), us.tensor(2 * np.eye(2)), max_steps=4),
        RankError,
        r"in inv.*test_iterate.py.*in step 1 of a loop",
    ),
}


@pytest.mark.parametrize(("call", "error", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_raise_errors_that_say_what_is_wrong(call, error, message):
    with pytest.raises(error, match=message):
        call()
