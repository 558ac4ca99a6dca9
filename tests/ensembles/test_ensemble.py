"""Many independent members: values and gradients, failures, batches, pools and budgets."""

from __future__ import annotations

import threading
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.ensembles import loops
from unspool.errors import ArgumentError, DTypeError, EnsembleError, PoolError, ShapeError

RNG = np.random.default_rng(5)
MATRICES = {"a": RNG.normal(size=(37, 8, 8)) / 4}


def same(one: Any, other: Any) -> bool:
    """Whether values and gradients have the same bits."""
    pairs = [(one.values, other.values), *[(one.gradients[k], other.gradients[k]) for k in one.gradients]]
    return all(np.array_equal(x, y, equal_nan=True) for x, y in pairs)


def processes(count: int) -> ProcessPoolExecutor:
    # A fork of a process with threads, as those of a test run may be, could wait for ever.
    return ProcessPoolExecutor(count, mp_context=get_context("spawn"))


@pytest.mark.parametrize("f", [loops.fixed_point, lambda p: loops.looked_at(p)[0]])
def test_values_and_gradients_are_those_of_the_members(f: Any) -> None:
    found = us.ensemble(f, {"c": np.linspace(0.1, 0.85, 20)})
    values, slopes = loops.reference(np.linspace(0.1, 0.85, 20))
    np.testing.assert_allclose(found.values, values, atol=1e-12)
    np.testing.assert_allclose(found.gradients["c"], slopes, atol=1e-10)
    assert found.ok.all() and not found.failures and found.check() is found


def test_members_run_as_batches_where_that_works() -> None:
    batched = us.ensemble(loops.fixed_point, loops.couplings(40)).report()
    assert (batched.batch, batched.batched) == (16, 40)
    alone = us.ensemble(lambda p: loops.looked_at(p)[0], loops.couplings(5)).report()
    assert (alone.batch, alone.batched) == (1, 0)


def test_a_batch_calls_the_function_once() -> None:
    calls = []

    def f(x: us.Tensor) -> us.Tensor:
        calls.append(x)
        return us.sin(x)

    us.ensemble(f, np.arange(20.0), batch=10)
    assert len(calls) == 2
    np.testing.assert_allclose(us.ensemble(f, np.arange(20.0), batch=1).values, np.sin(np.arange(20.0)), atol=1e-15)
    assert len(calls) == 22


@pytest.mark.parametrize("batch", [None, 1, 5])
def test_bits_do_not_depend_on_the_pool_nor_on_the_order(batch: int | None) -> None:
    here = us.ensemble(loops.power, MATRICES, batch=batch)
    with ThreadPoolExecutor(3) as pool:
        assert same(us.ensemble(loops.power, MATRICES, pool, batch=batch), here)
    assert same(us.ensemble(loops.power, MATRICES, LastFirst(), batch=batch), here)


def test_processes_compute_the_same_bits() -> None:
    here = us.ensemble(loops.power, MATRICES, batch=5)
    with processes(2) as pool:
        there = us.ensemble(loops.power, MATRICES, pool, "10MB", batch=5)
    assert same(here, there)
    assert all(peak <= 10_000_000 for _, _, peak in there.report().workers.values())


class LastFirst(Executor):
    """A pool that runs what it is given last, first, and only when somebody waits."""

    def __init__(self) -> None:
        self._tasks: list[Any] = []
        self._timer: threading.Timer | None = None

    def submit(self, f: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._tasks.append((future, f, args))
        if self._timer is None:
            self._timer = threading.Timer(0.05, self._run)
            self._timer.start()
        return future

    def _run(self) -> None:
        while self._tasks:
            future, f, args = self._tasks.pop()
            future.set_result(f(*args))
        self._timer = None


# --- failures --------------------------------------------------------------------------------------------------------


def test_members_that_fail_are_reported_with_their_parameters_and_the_others_are_kept() -> None:
    given = loops.couplings(20)
    found = us.ensemble(loops.looked_at, given, has_aux=True)
    bad = np.flatnonzero(given["c"] > loops.LIMIT)
    assert [failure.index for failure in found.failures] == list(bad)
    assert [failure.parameters["c"] for failure in found.failures] == list(given["c"][bad])
    assert {failure.kind for failure in found.failures} == {"ValueError"}
    assert "loops.py" in found.failures[0].traceback
    np.testing.assert_allclose(found.values[found.ok], loops.reference(given["c"][found.ok])[0], atol=1e-12)
    assert np.isnan(found.values[bad]).all() and np.isnan(found.gradients["c"][bad]).all()
    assert (found.aux["steps"][found.ok] > 5).all() and (found.aux["steps"][bad] == 0).all()
    with pytest.raises(EnsembleError, match="2 of 20 members failed:\n  member 18, with .*ValueError: c is 0.95") as e:
        found.check()
    assert e.value.failures[0].index == 18


def test_a_member_that_fails_in_a_batch_leaves_the_others_of_its_batch() -> None:
    def f(a: us.Tensor) -> us.Tensor:
        return us.linalg.inv(a)[0, 0]

    matrices = np.stack([np.eye(3) * k for k in range(4)])
    found = us.ensemble(f, matrices, batch=4)
    assert list(found.ok) == [False, True, True, True]
    np.testing.assert_allclose(found.values[1:], [1, 1 / 2, 1 / 3])
    np.testing.assert_allclose(found.gradients[1:, 0, 0], [-1, -1 / 4, -1 / 9])


class UnsayableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_an_error_that_cannot_say_what_it_is_fails_one_member() -> None:
    def f(x: us.Tensor) -> us.Tensor:
        if x.item() > 1.0:
            raise UnsayableError
        return x * x

    found = us.ensemble(f, np.array([0.5, 2.0]))
    assert list(found.ok) == [True, False]
    assert found.failures[0].kind.endswith("UnsayableError")
    assert "UnsayableError" in str(found.failures[0])


def test_an_ensemble_in_which_all_fail_raises() -> None:
    with pytest.raises(EnsembleError, match="3 of 3 members failed(.|\n)*NotConnectedError"):
        us.ensemble(lambda x: us.tensor(1.0), np.ones(3))


def test_a_member_whose_result_has_another_shape_fails() -> None:
    def f(p: Any) -> Any:
        return us.ones(3 if p.item() < 2 else 4)

    found = us.ensemble(f, np.arange(4), gradient=False)
    assert list(found.ok) == [True, True, False, False]
    assert found.failures[0].kind.endswith("StructureError")


def test_a_function_that_cannot_go_to_a_process_says_so() -> None:
    with processes(1) as pool, pytest.raises(EnsembleError, match="functions that can be imported"):
        us.ensemble(lambda x: x * x, np.ones(2), pool)


class Broken(Executor):
    def submit(self, f: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        raise RuntimeError("shut down")


def test_a_pool_that_takes_nothing_is_an_error_of_the_pool() -> None:
    with pytest.raises(PoolError, match="takes no task: RuntimeError: shut down; 0 of 3 members were done"):
        us.ensemble(lambda x: x * x, np.ones(3), Broken())


# --- parameters and results ------------------------------------------------------------------------------------------


def test_gradients_have_the_structure_of_the_parameters() -> None:
    given = {"x": np.arange(6.0).reshape(3, 2), "n": np.arange(3), "more": [us.tensor([1.0, 2.0, 3.0])]}
    found = us.ensemble(lambda p: p["more"][0] * us.sum(p["x"] ** 2) * (p["n"] + 1), given)
    assert found.gradients["n"] is None
    scale = np.array([1.0, 2.0, 3.0]) ** 2
    np.testing.assert_allclose(found.gradients["x"], 2 * given["x"] * scale[:, None])
    np.testing.assert_allclose(found.gradients["more"][0], (given["x"] ** 2).sum(axis=1) * [1, 2, 3])


def test_complex_parameters_have_complex_gradients() -> None:
    z = np.array([1 + 2j, 3 - 1j])
    found = us.ensemble(lambda z: us.real(z * us.conj(z)), z)
    np.testing.assert_allclose(found.gradients, 2 * z)


@pytest.mark.parametrize("batch", [1, 2, 7])
def test_each_member_draws_with_its_own_key(batch: int) -> None:
    key, scales = us.random.key(3), np.linspace(1.0, 2.0, 7)
    found = us.ensemble(loops.drawn, {"key": key, "s": scales}, batch=batch)
    keys = us.random.split(key, 7)
    alone = [(us.random.normal(k, (5,)).eval() ** 2).sum() for k in keys]
    np.testing.assert_allclose(found.gradients["s"], alone, rtol=1e-14)
    np.testing.assert_allclose(found.values, scales * alone, rtol=1e-14)


@pytest.mark.parametrize("batch", [1, 3])
def test_values_without_gradients_are_nested_as_the_function_nests_them(batch: int) -> None:
    found = us.ensemble(lambda x: {"a": (x, [x * x]), "b": None}, np.arange(3.0), gradient=False, batch=batch)
    assert found.gradients is None and found.values["b"] is None
    np.testing.assert_array_equal(found.values["a"][1][0], [0, 1, 4])


def test_progress_is_told_as_members_are_done() -> None:
    told: list[tuple[int, int]] = []
    us.ensemble(lambda x: x * x, np.arange(10.0), batch=4, progress=lambda done, count: told.append((done, count)))
    assert told == [(4, 10), (8, 10), (10, 10)]


def test_wide_arrays_are_not_batched() -> None:
    def f(x: us.Tensor) -> us.Tensor:
        return us.sum(us.ones((1500, 1500)) * x)

    assert us.ensemble(f, np.arange(3.0)).report().batch < 16


def test_a_budget_is_kept_by_every_worker_and_changes_no_bit() -> None:
    def f(x: us.Tensor) -> us.Tensor:
        y = us.ones((64, 64)) * x
        for _ in range(100):
            y = us.sin(y) + 0.1
            us.sum(y).item()
        return us.sum(y)

    free = us.ensemble(f, np.linspace(0.5, 1.5, 4))
    with ThreadPoolExecutor(2) as pool:
        within = us.ensemble(f, np.linspace(0.5, 1.5, 4), pool, "1MB")
    assert np.array_equal(free.values, within.values) and np.array_equal(free.gradients, within.gradients)
    assert all(peak <= 2_000_000 for _, _, peak in within.report().workers.values())
    assert "budget of a worker" in str(within.report())


def test_a_report_prints_what_was_done() -> None:
    found = us.ensemble(loops.looked_at, loops.couplings(20), has_aux=True)
    assert repr(found) == "<EnsembleResult of 20 members, 2 failed>"
    assert "failed: member 18, with {'c': 0.95" in str(found)
    assert found._repr_html_().startswith("<pre>members")
    assert found.report().members == 20 == len(found)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: us.ensemble(abs, np.ones(3), pool=4), ArgumentError, "anything with submit"),
        (lambda: us.ensemble(abs, np.ones(3), batch=0), ArgumentError, "at least 1, got 0"),
        (lambda: us.ensemble(abs, np.ones(3), changed="maybe"), ArgumentError, "'refuse' or 'keep'"),
        (lambda: us.ensemble(abs, np.ones(3), progress=3), ArgumentError, "progress is called"),
        (lambda: us.ensemble(abs, np.ones(3), gradient=False, has_aux=True), ArgumentError, "has_aux"),
        (lambda: us.ensemble(abs, np.arange(3)), ArgumentError, "gradient=False"),
        (lambda: us.ensemble(abs, np.ones(0)), ArgumentError, "at least one member"),
        (lambda: us.ensemble(abs, {"key": us.random.key(0)}), ArgumentError, "np.arange"),
        (lambda: us.ensemble(abs, {"a": np.ones(3), "b": np.ones(4)}), ShapeError, r"3 in parameters\['a'\]"),
        (lambda: us.ensemble(abs, 3.0), ShapeError, "is a scalar"),
        (lambda: us.ensemble(abs, {"a": ["x", "y"]}), DTypeError, "has no members|a scalar"),
    ],
)
def test_mistakes_are_told(call: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        call()
