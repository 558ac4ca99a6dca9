"""Loops on large arrays: chains of instructions that run block by block have the bits of the NumPy backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.engine.backends.test_native import assert_same, bits_of, both_ways, fragment_of
from unspool._engine.backends import native, native_backend, native_fusing
from unspool._engine.backends.native_program import FUSE

pytestmark = pytest.mark.skipif(native.WHY_NOT is not None, reason=str(native.WHY_NOT))


def steps(n: int, m: int) -> dict[str, Callable[[Any, Any], Any]]:
    """Return steps on a matrix, with a matrix that stays the same."""
    row, column = np.linspace(-1, 1, m), np.linspace(0.5, 2, n)[:, None]
    return {
        "elementwise": lambda c, x: us.tanh(x * c) / 2 + us.sin(x) * 0.1 - c,
        "rows and columns": lambda c, x: us.exp(-abs(x - row)) * column + us.sqrt(abs(c) + column),
        "sums of rows": lambda c, x: x / (1 + us.sum(x * x, axis=1, keepdims=True)) + c,
        "sums of columns": lambda c, x: x / (1 + us.sum(abs(x * c), axis=0)) + us.maximum(c, 0.0),
        "both": lambda c, x: (x - us.logsumexp(x, axis=1)[:, None]) * 0.5 + us.softmax(x + c, axis=0),
        "choices": lambda c, x: us.where(x > c, x * 0.5, us.where(x < 0.0, -x, c)),
        "a sum of everything": lambda c, x: x / (1 + us.sum(x * c) ** 2) + us.max(c),
        "turned": lambda c, x: us.reshape(x, (m, n)).T * 0.5 + c,
        "a vector": lambda c, x: us.reshape(us.cos(us.reshape(x, (-1,)) * 3.0) + 0.1, (n, m)) * c,
        "a part": lambda c, x: us.concat([x[1:] * 0.9, us.tanh(x[:1])], axis=0) + c * 0.01,
        "a product": lambda c, x: us.tanh((x @ us.ones((m, 3)) / m) @ us.ones((3, m))) + c,
    }


def run(step: Callable[[Any, Any], Any], n: int, m: int, count: int) -> list[bytes]:
    generator = np.random.default_rng(n * m)
    c, x = us.tensor(generator.normal(size=(n, m))), us.tensor(generator.normal(size=(n, m)))
    state, _ = us.iterate(lambda s: step(c, s), x, max_steps=count)
    gradients = us.eval(us.sum(state * state).grad([c, x]))
    return [bits_of(np.asarray(a)) for a in (state.eval(), *gradients)]


@pytest.mark.parametrize("shape", [(3, 5), (130, 130), (41, 1000), (1000, 41), (2, 9000), (9001, 2)], ids=str)
@pytest.mark.parametrize("name", list(steps(3, 5)))
def test_loops_have_the_bits_of_python(name: str, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    step = steps(*shape)[name]
    us.clear_caches()
    ours = run(step, *shape, 3)
    monkeypatch.setattr(native, "WHY_NOT", "the test wants Python")
    us.clear_caches()
    assert ours == run(step, *shape, 3)
    us.clear_caches()


@pytest.mark.parametrize("block", [8, 1000, 1 << 20])
def test_bits_do_not_depend_on_the_size_of_blocks(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    step = steps(130, 130)["both"]
    us.clear_caches()
    usual = run(step, 130, 130, 2)
    monkeypatch.setattr(native_fusing, "BLOCK_BYTES", block)
    us.clear_caches()
    assert run(step, 130, 130, 2) == usual
    us.clear_caches()


def programs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list to which the tables of all programs go that are made from now on."""
    made: list[Any] = []
    build = native.Program

    def watched(*tables: Any) -> Any:
        made.append(tables)
        return build(*tables)

    monkeypatch.setattr(native, "Program", watched)
    us.clear_caches()
    return made


def test_temporaries_of_a_chain_take_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    made = programs(monkeypatch)
    run(steps(400, 400)["elementwise"], 400, 400, 1)
    whole = 400 * 400 * 8
    assert any(instruction[0] == FUSE for tables in made for instruction in tables[1])
    # The step has five results that nobody sees.
    assert made[0][4] < whole


def test_temporaries_take_over_the_memory_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    made = programs(monkeypatch)
    a = us.tensor(np.random.default_rng(0).normal(size=(60, 60)) / 60)
    step = lambda x: us.tanh(a @ us.tanh(a @ us.tanh(a @ us.tanh(a @ x))))  # noqa: E731
    us.iterate(step, us.tensor(np.eye(60)), max_steps=2)[0].eval()
    assert made[0][4] <= 4 * 60 * 60 * 8


def test_a_loop_whose_temporaries_are_too_large_runs_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_backend, "MOST_IN_LOOPS", 1 << 12)
    made = programs(monkeypatch)
    assert run(steps(130, 130)["both"], 130, 130, 2)
    assert not made


# --- single runs ------------------------------------------------------------------------------------------------------


def grown(a: Any, b: Any) -> Any:
    """Return a vector, by way of matrices of its length."""
    table = us.tanh(a[:, None] * b) - a
    return us.sum(table * table, axis=1) + us.max(table, axis=0) * (table @ b)


def vectors(n: int) -> list[Any]:
    return [np.linspace(-1.0, 2.0, n), np.cos(np.arange(float(n)))]


@pytest.mark.parametrize("n", [129, 200])
def test_single_runs_may_have_temporaries_that_are_larger_than_results(n: int) -> None:
    fragment, given = fragment_of(grown, vectors(n), adjoint=False)
    made = both_ways(fragment, given)
    assert made is not None
    for _ in range(2):
        assert_same(made[0](*given), made[1](*given))
    assert made[2].count == 0


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: us.tanh(a[:, None] * b),
        lambda a, b: us.tanh(a[:, None] * b)[:, 1:],
        lambda a, b: us.sum(us.tanh(a[:, None] * us.concat([b, b, b, b])), axis=1),
    ],
    ids=["a large result", "a view of a large array", "temporaries that are too large"],
)
def test_single_runs_on_larger_arrays_take_memory_in_python(function: Callable[[Any, Any], Any]) -> None:
    assert both_ways(*fragment_of(function, vectors(200), adjoint=False)) is None
