"""``loss.grad`` with ``memory=`` or ``checkpoint=``: computed at once, the same bits, less memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.engine.budgets import (
    PLENTY,
    PROGRAMS,
    CountedOp,
    cases,
    least_working,
    matrix,
    reference,
    same_bits,
    settle,
)
from unspool._engine.default import default_engine
from unspool.checkpoint import CheckpointConfig, CheckpointSegment
from unspool.errors import ArgumentError, BudgetError, NonScalarLossError


@pytest.fixture(autouse=True)
def _settle() -> Iterator[None]:
    settle()
    yield
    settle()


# --- a budget for one gradient ---------------------------------------------------------------------------------------


@cases({})
def test_a_gradient_with_a_budget_is_the_same(name: str) -> None:
    expected = reference(name)
    for share in (4, 1):
        leaves = PROGRAMS[name].leaves()
        run = PROGRAMS[name].run(*leaves)

        def gradient(budget: int, run: Any = run, leaves: Any = leaves) -> Any:
            return us.eval(run.loss.grad(leaves, memory=budget))

        least = least_working(gradient)
        same_bits(gradient(share * least), expected.gradients)
        same_bits([tensor.eval() for tensor in run.held], expected.held)
        same_bits([run.loss.eval()], [expected.loss])


def test_the_gradient_is_computed_at_once_and_nested_like_the_variables() -> None:
    expected = reference("plain").gradients
    a, x = PROGRAMS["plain"].leaves()
    loss = PROGRAMS["plain"].run(a, x).loss
    slopes = loss.grad({"a": a, "more": [x]}, memory=PLENTY)
    before = us.engine_stats().kernel_calls
    same_bits([slopes["a"].eval(), slopes["more"][0].eval()], expected)
    assert us.engine_stats().kernel_calls == before


def test_the_budget_is_set_back_afterwards_also_when_it_is_refused() -> None:
    ledger = default_engine().ledger
    before = ledger.limit, ledger.is_strict
    a, x = PROGRAMS["plain"].leaves()
    loss = PROGRAMS["plain"].run(a, x).loss
    loss.grad(a, memory=PLENTY)
    assert (ledger.limit, ledger.is_strict) == before
    with pytest.raises(BudgetError):
        loss.grad(x, memory=1000)
    assert (ledger.limit, ledger.is_strict) == before


def test_a_gradient_with_a_budget_can_be_differentiated_again() -> None:
    def second(**options: Any) -> Any:
        a, x = PROGRAMS["plain"].leaves()
        slope = PROGRAMS["plain"].run(a, x).loss.grad(a, **options)
        return us.sum(slope * slope).grad(x).eval()

    second()
    expected = second()
    same_bits([second(memory=PLENTY)], [expected])
    same_bits([second(memory=2 * least_working(lambda size: second(memory=size)))], [expected])


def test_options_of_a_gradient_hold_with_a_budget_too() -> None:
    x, other = us.ones(3), us.ones(2)
    loss = us.sum(x * x)
    assert loss.grad(other, unconnected="none", memory=PLENTY) is None
    assert loss.grad([x, other], unconnected="none", checkpoint=CheckpointConfig())[1] is None
    np.testing.assert_array_equal(loss.grad(other, unconnected="zeros", memory=PLENTY).eval(), np.zeros(2))
    with pytest.raises(us.errors.NotConnectedError):
        loss.grad(other, memory=PLENTY)
    with pytest.raises(NonScalarLossError):
        (x * x).grad(x, memory=PLENTY)
    z = us.tensor([1.0 + 2.0j])
    np.testing.assert_allclose(us.sum(z * z).grad(z, holomorphic=True, memory=PLENTY).eval(), [2.0 + 4.0j])


def test_a_gradient_that_fits_runs_no_more_than_one_without_a_budget() -> None:
    sine = CountedOp("once")

    def runs(**options: Any) -> int:
        a, x = PROGRAMS["plain"].leaves()
        sine.runs = 0
        for _ in range(30):
            x = us.tanh(a @ sine.apply(x))
            x.eval()
        us.eval(us.sum(x).grad(a, **options))
        return sine.runs

    runs()
    assert runs(memory=PLENTY) == runs() == 30


# --- segments by hand ------------------------------------------------------------------------------------------------


def config(*ends: tuple[int, int]) -> CheckpointConfig:
    return CheckpointConfig(tuple(CheckpointSegment(*pair) for pair in ends))


SIZE = 10_000
UNIT = 8 * SIZE


class Chain:
    """A chain of ops, each of which needs its input for its derivative: the loss has ``steps + 2`` nodes.

    Node 0 is the leaf, nodes 1 to ``steps`` are the chain, the last one is the sum.
    """

    def __init__(self, name: str, steps: int) -> None:
        self.sine = CountedOp(name)
        self.x = us.tensor(np.linspace(0.1, 1.5, SIZE))
        y = self.x
        for _ in range(steps):
            y = self.sine.apply(y)
        self.loss = us.sum(y)
        self.nodes = steps + 2

    def gradient(self, checkpoint: CheckpointConfig | None = None) -> tuple[Any, int, int]:
        """Return the gradient, the runs of the op, and the bytes at most."""
        self.sine.runs = 0
        tracemalloc.start()
        try:
            value = self.loss.grad(self.x, checkpoint=checkpoint or CheckpointConfig()).eval()
            return value, self.sine.runs, tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


def closed_form(steps: int) -> Any:
    """Return the derivative of a sine of a sine of …."""
    x, slope = np.linspace(0.1, 1.5, SIZE), np.ones(SIZE)
    for _ in range(steps):
        slope, x = slope * np.cos(x), np.sin(x)
    return slope


def test_without_segments_each_op_runs_once() -> None:
    chain = Chain("all_kept", 40)
    value, runs, _ = chain.gradient()
    np.testing.assert_allclose(value, closed_form(40), rtol=1e-12)
    assert runs == 40


@pytest.mark.parametrize("segments", [2, 4, 6])
def test_each_op_in_a_segment_runs_twice_and_the_memory_is_that_of_borders_and_one_segment(segments: int) -> None:
    steps = 48
    chain = Chain(f"uniform_{segments}", steps)
    expected, _, everything = chain.gradient()
    del chain
    settle()
    chain = Chain(f"uniform_{segments}", steps)
    value, runs, peak = chain.gradient(CheckpointConfig.uniform(chain.nodes, segments))
    same_bits([value], [expected])
    # The result of the last op of a segment is used outside of it, and stays.
    assert steps < runs <= 2 * steps
    assert everything > steps * UNIT
    assert peak <= (segments + steps // segments + 6) * UNIT


def test_one_segment_over_everything_runs_everything_twice() -> None:
    chain = Chain("whole", 20)
    value, runs, _ = chain.gradient(config((0, chain.nodes - 1)))
    np.testing.assert_allclose(value, closed_form(20), rtol=1e-12)
    assert 20 <= runs <= 40


def test_a_segment_drops_what_it_holds_and_nothing_else() -> None:
    # Outside are 11 values, at the borders two, and one segment of 15 is there at a time.
    expected, _, everything = Chain("partly", 40).gradient()
    assert everything > 40 * UNIT
    settle()
    chain = Chain("partly", 40)
    value, runs, peak = chain.gradient(config((6, 20), (21, 35)))
    same_bits([value], [expected])
    assert 40 < runs <= 70
    assert peak <= (11 + 2 + 15 + 6) * UNIT


def test_values_that_were_computed_before_are_dropped_inside_segments_too() -> None:
    chain = Chain("before", 40)
    chain.loss.eval()
    value, _, _ = chain.gradient(CheckpointConfig.uniform(chain.nodes, 4))
    np.testing.assert_allclose(value, closed_form(40), rtol=1e-12)


def test_overlapping_segments_are_their_union() -> None:
    one, other = Chain("overlap", 30), Chain("union", 30)
    found = one.gradient(config((3, 12), (8, 20)))
    expected = other.gradient(config((3, 20)))
    same_bits([found[0]], [expected[0]])
    assert found[1] == expected[1]


def test_a_second_gradient_gives_the_same_bits_and_takes_the_same_work() -> None:
    chain = Chain("again", 40)
    segments = CheckpointConfig.uniform(chain.nodes, 4)
    first, runs, _ = chain.gradient(segments)
    second, again, _ = chain.gradient(segments)
    same_bits([second], [first])
    assert again <= runs


def test_loss_and_held_values_are_right_afterwards() -> None:
    x = us.tensor(np.linspace(0.1, 1.5, 500))
    held = [x]
    for _ in range(30):
        held.append(us.sin(held[-1]))
    loss = us.sum(held[-1] * held[15])
    expected = np.linspace(0.1, 1.5, 500)
    loss.grad(x, checkpoint=CheckpointConfig.uniform(33, 5))
    for tensor in held:
        np.testing.assert_allclose(tensor.eval(), expected, rtol=1e-12)
        expected = np.sin(expected)
    np.testing.assert_allclose(loss.eval(), np.sum(held[-1].eval() * held[15].eval()), rtol=1e-14)


@cases({}, slow=True)
@pytest.mark.parametrize("segments", [1, 3, 7])
def test_segments_change_no_bit_of_any_program(name: str, segments: int) -> None:
    expected = reference(name)
    leaves = PROGRAMS[name].leaves()
    run = PROGRAMS[name].run(*leaves)
    nodes = len(us.Tape([run.loss]))
    slopes = run.loss.grad(leaves, checkpoint=CheckpointConfig.uniform(nodes, segments))
    same_bits(us.eval(slopes), expected.gradients)
    same_bits([run.loss.eval()], [expected.loss])
    same_bits([tensor.eval() for tensor in run.held], expected.held)


def test_segments_and_a_budget_go_together() -> None:
    expected = reference("silent")

    def gradients(budget: int) -> Any:
        leaves = PROGRAMS["silent"].leaves()
        loss = PROGRAMS["silent"].run(*leaves).loss
        segments = CheckpointConfig.uniform(len(us.Tape([loss])), 8)
        return us.eval(loss.grad(leaves, memory=budget, checkpoint=segments))

    least = least_working(gradients)
    for budget in (PLENTY, 3 * least, least):
        same_bits(gradients(budget), expected.gradients)


def test_what_the_user_keeps_is_not_dropped_in_a_segment() -> None:
    sine = CountedOp("kept_in_segment")
    x = us.tensor(np.linspace(0.1, 1.5, SIZE))
    y = us.keep(sine.apply(x))
    z = us.cos(us.exp(us.sin(y)))
    loss = us.sum(z * z)
    everything = config((0, len(us.Tape([loss])) - 1))
    sine.runs = 0  # a tape runs what it records
    loss.grad(x, checkpoint=everything)
    assert sine.runs == 1


@pytest.mark.parametrize("wrong", [5, "all", [CheckpointSegment(0, 3)], ((0, 3),)])
def test_what_is_not_a_configuration_is_refused(wrong: Any) -> None:
    x = us.tensor(matrix(4, 0))
    with pytest.raises(ArgumentError):
        us.sum(x * x).grad(x, checkpoint=wrong)


@pytest.mark.parametrize("ends", [(-1, 2), (3, 1), (0, 1000)])
def test_segments_outside_of_the_graph_are_refused(ends: tuple[int, int]) -> None:
    x = us.tensor(matrix(4, 0))
    with pytest.raises(ArgumentError):
        us.sum(us.sin(x * x)).grad(x, checkpoint=config(ends))


def test_complex_segments() -> None:
    a, x = PROGRAMS["turning"].leaves()
    y = x
    for _ in range(5):
        y = us.exp(0.1j * y) * (a @ y)
    loss = us.sum(us.abs(y) ** 2)
    expected = us.eval(loss.grad([a, x]))
    for segments in (2, 5):
        found = loss.grad([a, x], checkpoint=CheckpointConfig.uniform(len(us.Tape([loss])), segments))
        same_bits(us.eval(found), expected)
