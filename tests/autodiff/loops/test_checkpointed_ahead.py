"""Records that a thread makes while the sweep back uses others: the same bits, whatever becomes of the pool."""

from __future__ import annotations

import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool._autodiff.loops.checkpointed_run import Taped, ahead
from unspool.checkpoint._schedule.budget import Sizes
from unspool.errors import ArgumentError

RNG = np.random.default_rng(2)
A = RNG.normal(size=(12, 12)) / 4
X = RNG.normal(size=12)


def gradient(adjoint: Any, until: Any = None) -> Any:
    a = us.tensor(A)
    y, _ = us.iterate(lambda x: us.tanh(a @ x) + 0.1, us.tensor(X), max_steps=200, until=until, adjoint=adjoint)
    return us.sum(y**2).grad(a).eval()


CASES = pytest.mark.parametrize("given", [{"slots": 4}, {"memory": "4kB"}, {"memory": "20kB"}], ids=str)


@CASES
@pytest.mark.parametrize("until", [None, lambda old, new: us.max(abs(new - old)) < 1e-9], ids=["known", "open"])
def test_a_pool_changes_no_bit(given: dict[str, Any], until: Any) -> None:
    with ThreadPoolExecutor(1) as pool:
        assert np.array_equal(gradient(us.Checkpointed(**given, pool=pool), until), gradient(us.Unrolled(), until))


class Noting(ThreadPoolExecutor):
    """A pool that counts what it is given."""

    given = 0

    def submit(self, f: Any, /, *args: Any, **kwargs: Any) -> Any:
        self.given += 1
        return super().submit(f, *args, **kwargs)


def test_the_pool_makes_records() -> None:
    with Noting(1) as pool:
        adjoint = us.Checkpointed(memory="4kB", pool=pool)
        asked = pool.given
        gradient(adjoint)
    assert pool.given > asked + 5


def test_two_records_are_within_the_memory() -> None:
    with ThreadPoolExecutor(1) as pool:
        alone, beside = us.Checkpointed(memory=10_000), us.Checkpointed(memory=10_000, pool=pool)
    sizes = Sizes(100, 100)
    leaves = [adjoint.plan(sizes).reach.leaf(10) for adjoint in (alone, beside)]
    assert leaves[1] <= leaves[0] // 2 + 1
    assert beside.has_room(20, 40, sizes) and not beside.has_room(20, 41, sizes)
    assert beside != alone


def test_a_tape_that_has_no_room_beside_another_is_made_when_that_is_gone() -> None:
    made = []

    def source() -> Any:
        for k in range(3):
            made.append(k)
            yield Taped(Any, k, k + 1, False)

    with Noting(1) as pool:
        for taped in ahead(pool, source()):
            assert made[-1] == taped.start
        assert pool.given == 0


def test_a_pool_that_is_busy_or_closed_costs_nothing_but_time() -> None:
    expected = gradient(us.Unrolled())
    waits = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        busy = us.Checkpointed(slots=3, pool=pool)
        pool.submit(waits.wait)
        assert np.array_equal(gradient(busy), expected)
        waits.set()
    assert np.array_equal(gradient(busy), expected)


def test_a_gradient_may_run_in_the_pool_that_it_uses() -> None:
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(gradient, us.Checkpointed(slots=3)).result()
        adjoint = us.Checkpointed(slots=3, pool=pool)
        assert np.array_equal(pool.submit(gradient, adjoint).result(), found)


def test_a_second_derivative_uses_the_pool_too() -> None:
    def loss(x: us.Tensor, adjoint: Any) -> us.Tensor:
        return us.sum(us.iterate(lambda y: us.sin(y) * 0.9, x, max_steps=30, adjoint=adjoint)[0] ** 2)

    with ThreadPoolExecutor(1) as pool:
        found = us.hessian(loss)(X[:3], us.Checkpointed(slots=3, pool=pool)).eval()
    np.testing.assert_allclose(found, us.hessian(loss)(X[:3], us.Unrolled()).eval(), rtol=1e-12)


def test_steps_that_somebody_watches_are_made_by_the_thread_that_is_watched() -> None:
    with Noting(1) as pool, us.debug.check_nan():
        adjoint = us.Checkpointed(slots=3, pool=pool)
        asked = pool.given
        gradient(adjoint)
    assert pool.given == asked


def test_a_consumer_that_stops_leaves_the_generator_to_nobody() -> None:
    made = []

    def source() -> Any:
        for k in range(5):
            made.append(k)
            yield Taped(Any, k, k + 1, True)

    with ThreadPoolExecutor(1) as pool:
        running = ahead(pool, source())
        assert [next(running).start, next(running).start] == [0, 1]
        running.close()
        pool.submit(int).result()
    assert made in ([0, 1], [0, 1, 2])


def test_what_a_thread_raises_arrives() -> None:
    def source() -> Any:
        yield Taped(Any, 0, 1, True)
        raise ValueError("broken")

    with ThreadPoolExecutor(1) as pool, pytest.raises(ValueError, match="broken"):
        list(ahead(pool, source()))


def test_a_pool_is_one_of_threads() -> None:
    with pytest.raises(ArgumentError, match="one of threads, with submit"):
        us.Checkpointed(slots=2, pool=3)
    with (
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool,
        pytest.raises(ArgumentError, match="threads of this process"),
    ):
        us.Checkpointed(slots=2, pool=pool)
