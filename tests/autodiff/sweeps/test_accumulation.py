"""Sums of contributions that are kept as factors: rows of a table that every step of a loop reads."""

import numpy as np
import pytest

import unspool as us
from tests.closeness import close
from unspool._autodiff.sweeps import accumulation, gathering


def _descend(table, weights, indices):
    """Gradient descent on one selection after the other; the residual of each step is read."""
    for index in indices:
        x = table[index]
        r = us.sum(x * weights) - 1.0
        weights = weights - 0.01 * r * us.sum(us.reshape(x, (-1, 4)), axis=0)
        float(r)
    return us.sum(weights * weights)


def _by_hand(table, weights, indices):
    """The same and its gradient in the table, by hand."""
    states, residuals = [], []
    for index in indices:
        x = table[index]
        r = np.sum(x * weights) - 1.0
        states.append(weights)
        residuals.append(r)
        weights = weights - 0.01 * r * x.reshape(-1, 4).sum(axis=0)
    gradient, ct = np.zeros_like(table), 2 * weights
    for index, w, r in zip(reversed(indices), reversed(states), reversed(residuals), strict=True):
        x = table[index]
        total = x.reshape(-1, 4).sum(axis=0)
        by_r = -0.01 * np.sum(ct * total)
        np.add.at(gradient, index, -0.01 * r * np.broadcast_to(ct, x.shape) + by_r * w)
        ct = ct + by_r * x.reshape(-1, 4).sum(axis=0)
    return gradient


SELECTIONS = {
    "a row": [k % 7 for k in range(100)],
    "rows of an index array, some of them twice": [np.array([k % 7, (3 * k) % 7, k % 7]) for k in range(100)],
    "a slice that moves": [slice(k % 5, k % 5 + 2) for k in range(100)],
    "one of two forms": [k % 7 if k % 3 else slice(k % 5, k % 5 + 2) for k in range(100)],
}


@pytest.mark.parametrize("indices", SELECTIONS.values(), ids=SELECTIONS.keys())
def test_a_table_gets_back_what_the_steps_of_a_loop_read_of_it(indices):
    rng = np.random.default_rng(0)
    table, weights = rng.normal(size=(7, 4)), rng.normal(size=4)
    leaf = us.tensor(table)
    gradient = _descend(leaf, us.tensor(weights), indices).grad(leaf)
    close(gradient.eval(), _by_hand(table, weights, indices))


def test_a_table_that_is_read_in_two_ways_gets_both_back():
    rng = np.random.default_rng(1)
    table = us.tensor(4 * np.eye(6) + 0.1 * rng.normal(size=(6, 6)))

    def solve(table):
        x = us.zeros(6)
        for k in range(90):
            i = k % 6
            x = x.at[i].set(x[i] + (1.0 - us.sum(table[i] * x)) / table[i, i])
            float(x[i])
        return us.sum(x)

    gradient = solve(table).grad(table).eval()
    # x solves table @ x = 1, so the sum has the gradient -y xᵀ with tableᵀ @ y = 1.
    x, y = np.linalg.solve(table.eval(), np.ones(6)), np.linalg.solve(table.eval().T, np.ones(6))
    close(gradient, -np.outer(y, x), 1e-8)


def test_what_no_step_reads_of_a_table_is_absent():
    # A rule behind the table would multiply what is absent by infinity.
    start = us.tensor(np.array([1.0, 2.0, 0.0]))
    table, w = us.sqrt(start), us.tensor(1.0)
    for k in range(100):
        w = w - 0.01 * table[k % 2] * w
        float(w)
    assert w.grad(start).eval()[2] == 0.0


def test_the_memory_of_a_gradient_does_not_grow_with_steps_times_table():
    steps, columns = 400, 64
    rng = np.random.default_rng(2)
    table, weights = us.tensor(rng.normal(size=(steps, columns))), us.tensor(rng.normal(size=columns))
    with us.memory("1GB") as budget:
        w = weights
        for k in range(steps):
            r = us.sum(table[k] * w) - 1.0
            w = w - 0.001 * r * table[k]
            float(r)
        us.sum(w * w).grad(table).eval()
        peak = budget.report().peak
    # States, rows and a few copies of the table; a contribution as large as the table for each step would be 80 MB.
    assert peak < 16 * table.value.nbytes


def test_a_second_derivative_goes_through_the_sum_of_rows():
    rng = np.random.default_rng(3)
    table = us.tensor(rng.normal(size=(5, 4)))

    def loss(table):
        w = us.ones(4)
        for k in range(80):
            r = us.sum(table[k % 5] * w) - 1.0
            w = w - 0.05 * r * table[k % 5]
            float(r)
        return us.sum(w * w)

    direction = rng.normal(size=(5, 4))
    second = us.sum(loss(table).grad(table) * direction).grad(table).eval()
    h = 1e-5

    def gradient(shift):
        moved = us.tensor(table.eval() + shift * direction)
        return loss(moved).grad(moved).eval()

    close(second, (gradient(h) - gradient(-h)) / (2 * h), 1e-6)


def test_what_unread_steps_read_again_and_again_is_added_up_as_if_it_were_added_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Several steps are one body, so a row gets now this output of it, now that, all from the stacks of one chain."""
    picks = np.random.default_rng(2).integers(0, 5, 600)
    table, factor = np.random.default_rng(3).normal(size=(5, 3)), np.array([0.97, -1.01, 0.4])

    def gradient():
        leaf, c = us.tensor(table), us.tensor(factor)
        rows = leaf * 1.0
        x = rows[0]
        for k in picks:
            x = x * c + rows[int(k)]
        return us.sum(x).grad(leaf).eval()

    picked: list[int] = []
    original = gathering.add_up

    def add_up(before, values):
        picked.append(len({value.index for value in values}))
        return original(before, values)

    monkeypatch.setattr(gathering, "add_up", add_up)
    found = gradient()
    assert max(picked) > 1
    monkeypatch.setattr(accumulation, "longest_pick", lambda terms: 0)
    assert gradient().tobytes() == found.tobytes()
    expected, ct = np.zeros_like(table), np.ones(3)
    for k in reversed(picks):
        expected[k] = expected[k] + ct
        ct = ct * factor
    expected[0] = expected[0] + ct
    close(found, expected)
