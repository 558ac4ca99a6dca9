"""Gradients in loops that are recorded again: they are the very tensors that a sweep would give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import unspool as us
from bench.zoo import KINDS
from bench.zoo.kind import answer
from tests.closeness import close
from tests.samples import all_samples
from unspool import _core
from unspool._autodiff.sweeps import gradient, repeated_sweeps
from unspool._autodiff.sweeps.reverse import pullback
from unspool._engine.default import default_engine
from unspool._graph import ancestors
from unspool._ops.identity import ALIAS
from unspool._ops.leaf import unit_seed
from unspool._ops.op import PART


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Every gradient is also taken by a sweep and must be the same tensors; tells which had swept already."""
    swept: list[bool] = []
    calls: list[int] = []

    def counting(*given: Any) -> Any:
        calls.append(1)
        return pullback(*given)

    def both(loss: us.Tensor, variables: Any) -> Any:
        calls.clear()
        found = repeated_sweeps.pull_one(loss, variables)
        swept.append(bool(calls))
        expected = pullback([loss], [unit_seed(loss.dtype)], variables)
        assert [id(one) for one in found] == [id(other) for other in expected]
        return found

    monkeypatch.setattr(repeated_sweeps, "pullback", counting)
    monkeypatch.setattr(gradient, "pull_one", both)
    default_engine().sweeps = None
    yield swept
    default_engine().sweeps = None


def descend(steps: int, loss_of: Any, read: bool = True) -> us.Tensor:
    w = us.tensor([0.5, -1.0, 0.25])
    for k in range(steps):
        loss = loss_of(w, k)
        w = w - 0.05 * loss.grad(w)
        if read:
            float(loss)
    return w


@pytest.mark.parametrize("read", [True, False])
def test_a_loop_sweeps_in_its_first_steps_alone(compared: list[bool], read: bool) -> None:
    descend(100, lambda w, k: us.sum(us.tanh(w) ** 2), read)
    assert len(compared) == 100
    assert sum(compared) < 12


def test_numbers_rows_and_leaves_that_change_are_no_reason_to_sweep(compared: list[bool]) -> None:
    data, rows = us.tensor(np.cos(np.arange(300.0).reshape(100, 3))), np.sin(np.arange(300.0).reshape(100, 3))
    descend(
        100,
        lambda w, k: us.sum((us.sum(data[k] * w) - 0.1 * k) ** 2 + us.sum(rows[k] * w) + us.tensor(rows[k]) * w),
    )
    assert sum(compared) < 12


def test_the_gradient_follows_a_branch_that_one_line_takes(compared: list[bool]) -> None:
    w = descend(60, lambda w, k: us.sum(us.sin(w) if k % 3 else us.exp(w)))
    by_hand = np.array([0.5, -1.0, 0.25])
    for k in range(60):
        by_hand = by_hand - 0.05 * (np.cos(by_hand) if k % 3 else np.exp(by_hand))
    close(w.eval(), by_hand)
    assert sum(compared) < 20


def test_what_a_loss_reads_from_outside_may_come_to_depend_on_the_variable(compared: list[bool]) -> None:
    # The factor is a product of two tensors in each step. From the tenth on it is made from the variable.
    fixed, w = us.tensor(2.0), us.tensor(3.0)
    for k in range(20):
        factor = w * fixed if k > 9 else fixed * fixed
        slope = us.sum(factor * w).grad(w)
        assert float(slope) == (12.0 if k > 9 else 4.0)


def test_sizes_and_kinds_of_numbers_are_looked_at(compared: list[bool]) -> None:
    for n, dtype in [(3, "float64"), (4, "float64"), (3, "float32"), (1, "float64")] * 5:
        w = us.tensor(np.ones(n), dtype=dtype)
        slope = us.sum(w * w).grad(w)
        assert slope.dtype == dtype
        assert slope.eval().tolist() == [2.0] * n


def test_a_number_of_the_program_is_not_taken_for_one_that_a_rule_brings_along(compared: list[bool]) -> None:
    # The slope of tanh has a 1 in it; so has the program, in its first steps.
    for k in range(20):
        x, factor = us.tensor(0.5), 1.0 if k < 8 else 3.0 + k
        close(float(us.sum(us.tanh(x) * factor).grad(x)), factor / np.cosh(0.5) ** 2)
    assert not all(compared)


def test_exponents_are_looked_at_by_value(compared: list[bool]) -> None:
    for k in range(24):
        x, exponent = us.tensor(2.0), [3.0, -1.0, 0.5, 0.0][k % 4]
        close(float(us.sum(x**exponent).grad(x)), exponent * 2.0 ** (exponent - 1.0))
    assert not all(compared)


def test_a_variable_on_the_way_to_another_one_has_its_own_gradient(compared: list[bool]) -> None:
    for k in range(20):
        x = us.tensor(2.0 + k)
        y = x * x
        by_x, by_y = us.sin(y).grad([x, y])
        close(float(by_y), np.cos((2.0 + k) ** 2))
        close(float(by_x), 2 * (2.0 + k) * np.cos((2.0 + k) ** 2))


def test_rules_of_users_run_each_time(compared: list[bool]) -> None:
    slope = [1.0]

    @us.custom_vjp
    def f(x: us.Tensor) -> us.Tensor:
        return x * 1.0

    f.defvjp(lambda x: (x * 1.0, None), lambda _, ct: (ct * slope[0],))
    for k in range(10):
        slope[0] = float(k)
        w = us.tensor(1.0)
        assert float(us.sum(f(w)).grad(w)) == k


@pytest.mark.parametrize("name", ["adam_hyper", "sgd_hyper", "hmc", "lbfgs", "curvature"])
def test_kinds_of_loops_with_gradients_inside(name: str, compared: list[bool]) -> None:
    kind = KINDS[name]
    answer(kind, 30, kind.setup(30))
    assert not all(compared)


def test_recorded_again_a_gradient_has_the_lines_of_its_own_loss() -> None:
    lines = set()
    for _ in range(6):
        x, y = us.tensor(2.0), us.tensor(2.0)
        first = us.sum(us.sin(x) * x)
        second = us.sum(us.sin(y) * y)
        for loss, variable in ((first, x), (second, y)):
            slope = loss.grad(variable)
            assert slope.line == loss.line
            lines.add(slope.line)
    assert len(lines) == 2


@pytest.mark.parametrize("as_constants", [False, True], ids=["leaves", "constants beside the first"])
def test_no_op_is_taken_for_another_one(as_constants: bool, compared: list[bool]) -> None:
    # One line makes the losses of all samples of all ops, with other numbers each time.
    for sample in all_samples():
        if not sample.order or np.asarray(sample.args[0]).dtype.kind not in "fc":
            continue
        for shift in (0.0, 0.0, 1e-3, 0.0):
            first = us.tensor(np.asarray(sample.args[0]) * (1.0 + shift))
            make = us.constant if as_constants else us.tensor
            rest = [
                make(a * 0.99 if as_constants and shift and np.asarray(a).dtype.kind == "f" else a)
                for a in sample.args[1:]
            ]
            out = sample.function(first, *rest)
            out = out if isinstance(out, us.Tensor) else out[0]
            if out.dtype.kind in "fc":
                loss = us.sum(us.real(out))
                loss.grad(first, unconnected="zeros")
    assert not all(compared)


def product(a: us.Tensor, b: us.Tensor) -> us.Tensor:
    return us.sum(a * b)


def test_two_tensors_say_nothing_of_one_that_stands_for_both(compared: list[bool]) -> None:
    for _ in range(4):
        product(us.tensor([1.0, 2.0]), us.tensor([3.0, 4.0])).grad(us.tensor([1.0, 2.0]), unconnected="zeros")
        a, b = us.tensor([1.0, 2.0]), us.tensor([3.0, 4.0])
        product(a, b).grad(a)
    a = us.tensor([1.0, 2.0])
    assert product(a, a).grad(a).eval().tolist() == [2.0, 4.0]


def test_a_variable_that_was_asked_for_twice_says_nothing_of_two(compared: list[bool]) -> None:
    for _ in range(4):
        a = us.tensor([1.0, 2.0])
        product(a, a).grad([a, a])
    b = us.tensor([5.0, 6.0])
    found = product(b, b).grad([a, b])
    assert [x.eval().tolist() for x in found] == [[0.0, 0.0], [10.0, 12.0]]


def test_constants_may_come_to_be_equal(compared: list[bool]) -> None:
    w = us.tensor([0.5, -1.0])
    for k in range(12):
        us.sum(w * (0.1 * k) + 0.5 * us.sin(w)).grad(w)
    assert not compared[5]


# --- loops -----------------------------------------------------------------------------------------------------------


def power_step(A: us.Tensor, x: us.Tensor, steps: int) -> us.Tensor:
    y, _ = us.iterate(lambda s: (A @ s) / us.linalg.norm(A @ s), x, max_steps=steps)
    return us.sum(y * y * np.arange(1.0, 4.0))


def test_a_loop_that_is_one_node_is_swept_a_few_times(compared: list[bool]) -> None:
    generator = np.random.default_rng(0)
    for _ in range(8):
        A, x = us.tensor(np.eye(3) + 0.1 * generator.normal(size=(3, 3))), us.tensor(generator.normal(size=3))
        power_step(A, x, 5).grad([A, x])
    assert not any(compared[3:])


def test_rows_of_a_loop_that_has_run_have_their_values(compared: list[bool]) -> None:
    A, x = us.tensor([[2.0, 1.0, 0.0], [0.5, 1.0, 0.0], [0.0, 0.25, 1.0]]), us.tensor([1.0, 1.0, 1.0])
    for _ in range(4):
        again = us.tensor(A.eval())
        gradient = power_step(again, x, 5).grad(again)
    assert not compared[-1]
    rows = [node for node in ancestors([gradient]) if node.op is PART and node.inputs[0].value is not None]
    assert rows
    assert all(row.value is not None for row in rows)


def test_lengths_of_loops_that_change_are_swept_each(compared: list[bool]) -> None:
    A, x = us.tensor([[2.0, 1.0, 0.0], [0.5, 1.0, 0.0], [0.0, 0.25, 1.0]]), us.tensor([1.0, 1.0, 1.0])
    for steps in (1, 2, 3, 1, 2, 3, 1, 2, 3):
        power_step(A, x, steps).grad(A)
    assert not any(compared[-3:])


def test_no_records_are_made_of_a_line_that_always_looks_different(
    compared: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeated_sweeps, "_MOST_MADE", 3)
    A, x = us.tensor([[2.0, 1.0, 0.0], [0.5, 1.0, 0.0], [0.0, 0.25, 1.0]]), us.tensor([1.0, 1.0, 1.0])
    for steps in range(1, 8):
        power_step(A, x, steps).grad(A)
    compared.clear()
    for steps in (3, 7, 7):
        again = us.tensor(A.eval())
        power_step(again, x, steps).grad(again)
    assert compared == [False, True, True]


# --- the table -------------------------------------------------------------------------------------------------------


def table(**changed: Any) -> Any:
    x = us.tensor(2.0)
    y = us.sin(x)
    given = {
        "slots": 2,
        "outputs": (0,),
        "variables": (1,),
        "compared": [(0, y.op, type(y), y.attributes, y.shape, y.dtype, (1,))],
        "boundary": [(1, x.op, type(x), x.shape, x.dtype, True, False, None)],
        "constants": (),
        "recorded": [(y.op, type(y), y.attributes, y.shape, y.dtype, y.key, (1,), 0, True, -1)],
        "results": (2,),
        "alias": ALIAS,
    } | changed
    return _core.sweep_record(*given.values()), (y, x)


def test_traces_of_a_line_for_any_sizes_leave_room_for_records(compared: list[bool]) -> None:
    def slope(w: us.Tensor) -> us.Tensor:
        return us.grad(lambda w: us.sum(us.tanh(w) ** 2))(w)

    for number in range(8):
        us.fragment(lambda w, n=number: slope(w) * n)(us.ones(5))
    compared.clear()
    for k in range(50):
        slope(us.tensor([0.5, -1.0, 0.1 * k])).eval()
    assert len(compared) == 50
    assert sum(compared) < 12


def test_a_record_finds_the_node_that_is_there() -> None:
    made, (y, x) = table()
    levels: list[int] = []
    assert made.repeat((y, x), 10, 0, lambda: levels.append(1))[0] is y
    assert levels == [1]


def test_a_record_of_nodes_that_look_different_gives_nothing() -> None:
    made, (y, x) = table()
    assert made.repeat((us.cos(x), x), 10, 0, int) is None
    assert made.repeat((y, us.tensor(2.0)), 10, 0, int) is None
    assert made.repeat((us.sin(us.tensor([1.0])), us.tensor([1.0])), 10, 0, int) is None


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"slots": -1}, ValueError),
        ({"outputs": (7,)}, ValueError),
        ({"variables": ("a",)}, ValueError),
        ({"compared": [(0,)]}, TypeError),
        ({"boundary": [(9, None, None, None, None, True, False, None)]}, ValueError),
        ({"constants": (1,)}, TypeError),
        ({"recorded": [(None, None, None, None, None, None, (), 0, True, -1)]}, TypeError),
        ({"results": (3,)}, ValueError),
    ],
)
def test_tables_that_make_no_sense_are_refused(changed: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        table(**changed)


def test_a_table_that_reads_what_it_does_not_have_is_refused_when_it_runs() -> None:
    y = us.sin(us.tensor(2.0))
    entry = (y.op, type(y), y.attributes, y.shape, y.dtype, y.key, (2,), 0, True, -1)
    made, given = table(slots=3, recorded=[entry], results=(3,))
    with pytest.raises(ValueError, match="no part of the table"):
        made.repeat(given, 10, 0, int)
    with pytest.raises(TypeError, match="2 nodes"):
        made.repeat(given[:1], 10, 0, int)


def test_what_begins_a_level_may_raise() -> None:
    made, given = table()

    def fail() -> None:
        raise RuntimeError("no level")

    with pytest.raises(RuntimeError, match="no level"):
        made.repeat(given, 10, 0, fail)
