"""The tape on rationals: gradients are right or wrong, with no tolerance in between."""

from __future__ import annotations

from fractions import Fraction as F

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import unspool as us
from tests.exact import Dual
from unspool.errors import DTypeError, DTypeMismatchError, ExactArithmeticError, RankMismatchError, ShapeMismatchError


def exact(*rows):
    return np.array(rows, dtype=object)


def gradients(loss, values):
    """Return the exact value of a scalar and its gradient with respect to the leaves that values are given for."""
    tape = us.Tape(loss, values=values)
    found = tape.backward_scalar(loss)
    return tape.value(loss).item(), [found[tape.id_of(leaf)].tolist() for leaf in values]


# --- against derivatives worked out by hand ---------------------------------------------------------------------------


def test_quotient_rule():
    x, y = us.tensor(1.0), us.tensor(1.0)
    value, (dx, dy) = gradients((x * x + y) / (x - y), {x: F(2, 3), y: F(-1, 5)})
    a, b = F(2, 3), F(-1, 5)
    assert value == (a * a + b) / (a - b)
    assert dx == (2 * a * (a - b) - (a * a + b)) / (a - b) ** 2
    assert dy == ((a - b) + (a * a + b)) / (a - b) ** 2


def test_two_layers_with_a_polynomial_activation():
    x = us.tensor(np.zeros(2))
    w1, w2 = us.tensor(np.zeros((3, 2))), us.tensor(np.zeros(3))
    hidden = us.sum(w1 * x, axis=1)
    activated = hidden * hidden + hidden
    error = us.sum(w2 * activated) - us.constant(0.5)
    X, W1, W2 = exact(F(1, 2), F(-2, 3)), exact([1, F(1, 7)], [F(2, 5), -1], [F(-3, 4), 2]), exact(F(1, 3), 2, F(-5, 6))
    _, (dx, dw1, dw2) = gradients(error * error, {x: X, w1: W1, w2: W2})
    # By hand: e = Σ w2·(h²+h) - 1/2, dL = 2e·de, dh = 2e·w2·(2h+1).
    h = W1 @ X
    a = h * h + h
    e = W2 @ a - F(1, 2)
    dh = 2 * e * W2 * (2 * h + 1)
    assert dw2 == list(2 * e * a)
    assert dw1 == np.outer(dh, X).tolist()
    assert dx == list(dh @ W1)


def test_matrix_products():
    a, b, c = us.tensor(np.zeros((2, 3))), us.tensor(np.zeros((3, 2))), us.tensor(np.zeros((2, 2)))
    A = exact([F(1, 2), 2, F(-1, 3)], [F(3, 4), F(-5, 2), 1])
    B = exact([1, F(1, 6)], [F(-2, 3), 4], [F(5, 7), F(-1, 2)])
    C = exact([F(1, 9), 2], [F(-3, 8), F(7, 2)])
    value, (da, db, dc) = gradients(us.sum((a @ b) * c), {a: A, b: B, c: C})
    assert value == np.sum((A @ B) * C)
    assert da == (C @ B.T).tolist()
    assert db == (A.T @ C).tolist()
    assert dc == (A @ B).tolist()


def test_diamond_and_fan_out():
    x = us.tensor(0.0)
    y = x * x
    loss = y * y + y * x + x
    value, (dx,) = gradients(loss, {x: F(-3, 7)})
    t = F(-3, 7)
    assert value == t**4 + t**3 + t
    assert dx == 4 * t**3 + 3 * t**2 + 1


def test_broadcasting_reshaping_and_sums():
    x, s = us.tensor(np.zeros((2, 3))), us.tensor(0.0)
    loss = us.sum(us.reshape(x.T, (2, 3)) * x * s + us.broadcast_to(s, (2, 3)))
    X, S = exact([F(1, 2), 2, 3], [F(-1, 3), 5, F(2, 7)]), F(3, 5)
    P = X.T.reshape(2, 3)
    back = X.reshape(3, 2).T  # the adjoint of "transpose, then reshape"
    _, (dx, ds) = gradients(loss, {x: X, s: S})
    assert dx == (S * (P + back)).tolist()
    assert ds == np.sum(P * X) + 6


def test_conditions_choose_exactly():
    x = us.tensor(np.zeros(3))
    loss = us.sum(us.where(x > 0, x * x, -x))
    _, (dx,) = gradients(loss, {x: exact(F(1, 3), F(-1, 3), F(10**30, 10**30 + 1))})
    assert dx == [F(2, 3), -1, F(2 * 10**30, 10**30 + 1)]


def test_powers_with_whole_exponents_are_exact():
    x = us.tensor(0.0)
    value, (dx,) = gradients(x**3, {x: F(2, 5)})
    assert (value, dx) == (F(8, 125), F(12, 25))


# --- what is converted, and what is refused ---------------------------------------------------------------------------


def test_floats_of_leaves_and_constants_are_taken_as_the_rationals_they_are():
    x = us.tensor([0.1, 2.0])
    tape = us.Tape(us.sum(x * 0.3), exact=True)
    assert tape.value(len(tape) - 1).item() == F(0.1) * F(0.3) + 2 * F(0.3)
    assert tape.backward(len(tape) - 1, F(1, 3))[tape.id_of(x)].tolist() == [F(0.3) / 3] * 2
    assert tape.backward(len(tape) - 1, 0.5)[tape.id_of(x)].tolist() == [F(0.3) / 2] * 2


def test_single_precision_does_not_round():
    x = us.tensor([0.1], dtype="float32")
    tape = us.Tape(x / 3.0, exact=True)
    assert tape.value(x / 3.0).item() == F(float(np.float32(0.1))) / 3


def test_one_fraction_makes_the_whole_tape_exact():
    x, y = us.tensor(0.1), us.tensor(0.2)
    tape = us.Tape(x * y, values={x: F(1, 10)})
    assert tape.value(x * y).item() == F(1, 10) * F(0.2)
    assert "exact" in repr(tape)


def test_integers_and_bools_stay_what_they_are_until_they_become_real():
    i = us.tensor([1, 2, 4])
    x = us.tensor([1.0, 1.0, 1.0])
    ratio = x / i + i / us.tensor([3, 3, 3])
    tape = us.Tape([us.sum(ratio), i > 1], exact=True)
    assert tape.value(i).dtype == np.int64 and tape.value(i > 1).dtype == bool
    assert tape.value(ratio).tolist() == [1 + F(1, 3), F(1, 2) + F(2, 3), F(1, 4) + F(4, 3)]


def test_converting_to_integers_truncates_rationals():
    x = us.tensor([0.0, 0.0])
    tape = us.Tape(x.astype("int64"), values={x: exact(F(7, 3), F(-7, 3))})
    assert tape.value(1).tolist() == [2, -2]


def test_every_entry_of_an_exact_tape_is_a_fraction():
    x = us.tensor(np.zeros((2, 2)))
    loss = us.sum(us.where(x > 0, x, 0.0) * 2.0)
    tape = us.Tape(loss, values={x: exact([F(1, 2), -1], [3, 0])})
    total = tape.backward_dense_all(loss, 1)
    for node, ct in zip(tape.nodes, total, strict=True):
        if node.dtype.kind == "f":
            assert all(type(v) is F for v in np.ravel(tape.value(node.id)))
            assert all(type(v) is F for v in ct.flat)


def test_all_forms_agree_exactly():
    x = us.tensor(np.zeros(3))
    loss = us.sum(x * x * x / (x * x + 1.0))
    tape = us.Tape(loss, values={x: exact(F(1, 3), F(-2, 5), 4)})
    dense, total = tape.backward_dense(loss, 1), tape.backward_dense_all(loss, 1)
    seeds = [np.zeros(node.shape) for node in tape.nodes]
    seeds[tape.id_of(loss)] = 1
    stepped = seeds
    for position in reversed(range(len(tape))):
        stepped = tape.backward_step(position, stepped)
    for node, one, two, three, four in zip(
        tape.nodes, dense, total, tape.backward_dense_from(seeds), stepped, strict=True
    ):
        assert np.array_equal(two, three) and np.array_equal(three, four)
        assert one is None or np.array_equal(one, two)
        assert one is not None or node.op == "constant"


@pytest.mark.parametrize(
    ("function", "name"),
    [(us.exp, "exp"), (us.sin, "sin"), (us.sqrt, "sqrt"), (us.log, "log"), (lambda x: x**0.5, "power")],
)
def test_an_op_that_leaves_the_rationals_is_named_with_its_line(function, name):
    x = us.tensor(0.5)
    y = function(x)
    with pytest.raises(ExactArithmeticError, match=rf"{name}.*test_tape_exact\.py"):
        us.Tape(y, exact=True)


def test_division_by_an_exact_zero_has_no_value():
    x = us.tensor(0.0)
    with pytest.raises(ExactArithmeticError, match="divide"):
        us.Tape(1.0 / x, exact=True)


def test_complex_numbers_infinities_and_nans_are_not_rational():
    x = us.tensor(0.5)
    for y in (us.tensor(1j) * x, x * us.tensor(np.inf), x * us.tensor(np.nan)):
        with pytest.raises(ExactArithmeticError):
            us.Tape(y, exact=True)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ([F(1), F(2), F(3)], ShapeMismatchError),
        ([[F(1), F(2)]], RankMismatchError),
        ([F(1), 2j], ExactArithmeticError),
        ([F(1), "two"], ExactArithmeticError),
    ],
    ids=str,
)
def test_values_have_to_fit(data, error):
    x = us.tensor([1.0, 2.0])
    with pytest.raises(error):
        us.Tape(x * x, values={x: np.array(data, dtype=object)})


def test_an_integer_leaf_takes_no_fractions():
    i = us.tensor([1, 2])
    with pytest.raises(DTypeMismatchError):
        us.Tape(i * 2.0, values={i: [F(1, 2), F(1)]})


def test_a_seed_that_is_not_rational_is_refused():
    x = us.tensor(1.0)
    tape = us.Tape(x * x, exact=True)
    for seed in (1j, np.nan):
        with pytest.raises(DTypeError):
            tape.backward(1, seed)


def test_fractions_bind_symbolic_sizes_too():
    n = us.dims("n")
    x = us.placeholder((n,), name="x")
    loss = us.sum(us.reshape(x, (n, 1)) * us.reshape(x, (1, n)))
    value, (dx,) = gradients(loss, {x: [F(1, 2), F(1, 3), F(1, 6)]})
    assert value == 1
    assert dx == [2, 2, 2]


# --- any program ------------------------------------------------------------------------------------------------------

fractions = st.fractions(min_value=-3, max_value=3, max_denominator=7)
steps = st.lists(
    st.tuples(st.sampled_from(["+", "-", "*", "/", "neg", "sum"]), st.integers(0, 30), st.integers(0, 30)),
    min_size=1,
    max_size=8,
)


def run(program, start, div, total):
    """Run a straight-line program on whatever numbers ``start`` holds; the last value is the result."""
    made = list(start)
    for op, i, j in program:
        a, b = made[i % len(made)], made[j % len(made)]
        made.append(
            {
                "+": lambda a, b: a + b,
                "-": lambda a, b: a - b,
                "*": lambda a, b: a * b,
                "/": lambda a, b: div(a, b * b + 1),
                "neg": lambda a, b: -a,
                "sum": lambda a, b: b * total(a),
            }[op](a, b)
        )
    return made


@settings(max_examples=60)
@given(steps, st.lists(fractions, min_size=6, max_size=6), st.lists(fractions, min_size=6, max_size=6))
def test_the_gradient_of_any_rational_program_is_its_exact_derivative(program, values, directions):
    start = [np.array(values[:3], dtype=object), np.array(values[3:], dtype=object)]
    along = [np.array(directions[:3], dtype=object), np.array(directions[3:], dtype=object)]
    # Forward, by dual numbers that share nothing with the library.
    duals = [np.array([Dual(v, d) for v, d in zip(x, t, strict=True)]) for x, t in zip(start, along, strict=True)]
    moved = np.sum(run(program, duals, lambda a, b: a / b, lambda a: np.sum(a))[-1])
    # Backward, by the tape.
    leaves = [us.tensor(np.zeros(3)), us.tensor(np.zeros(3))]
    loss = us.sum(run(program, leaves, us.divide, us.sum)[-1])
    tape = us.Tape([loss, *leaves], values=dict(zip(leaves, start, strict=True)))
    assert tape.value(loss).item() == moved.value
    found = tape.backward_dense_all(loss, 1)
    assert sum(np.sum(found[tape.id_of(x)] * t) for x, t in zip(leaves, along, strict=True)) == moved.slope


@settings(max_examples=30)
@given(steps, st.lists(fractions, min_size=6, max_size=6))
def test_the_tape_and_the_graph_have_the_same_gradient_in_floats(program, values):
    leaves = [us.tensor([float(v) for v in values[:3]]), us.tensor([float(v) for v in values[3:]])]
    loss = us.sum(run(program, leaves, us.divide, us.sum)[-1])
    tape = us.Tape([loss, *leaves])
    found = tape.backward_dense_all(loss, 1.0)
    for leaf, gradient in zip(leaves, loss.grad(leaves), strict=True):
        np.testing.assert_array_equal(found[tape.id_of(leaf)], gradient.eval())
