"""The parts of ensembles alone: checksums of functions, nested results, pools."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
import pytest

import unspool as us
from unspool._ensembles.errands import Errands, workers_of
from unspool._ensembles.fingerprint import digest_of
from unspool._ensembles.nesting import pack, unpack
from unspool._ensembles.pools import results
from unspool.errors import PoolError, StructureError


def of_source(text: str, **names: Any) -> FunctionType:
    space: dict[str, Any] = {"__name__": "somewhere", **names}
    exec(text, space)
    return space["f"]


SOURCE = "def helper(x): return x * 2\ndef f(x, y=1): return [CHI * helper(z) for z in x]"


def test_the_checksum_of_a_function_is_the_same_each_time() -> None:
    assert digest_of(of_source(SOURCE, CHI=3)) == digest_of(of_source(SOURCE, CHI=3))


@pytest.mark.parametrize(
    "other",
    [
        of_source(SOURCE, CHI=4),
        of_source(SOURCE.replace("x * 2", "x * 3"), CHI=3),
        of_source(SOURCE.replace("y=1", "y=2"), CHI=3),
        of_source(SOURCE.replace("for z", "for z in [x] for x"), CHI=3),
        partial(of_source(SOURCE, CHI=3), y=1),
    ],
)
def test_another_function_has_another_checksum(other: Any) -> None:
    assert digest_of(other) != digest_of(of_source(SOURCE, CHI=3))


def test_what_a_function_closes_over_is_part_of_it() -> None:
    def make(what: Any) -> Any:
        return lambda x: (x, what)

    things = [np.arange(3), np.arange(4), np.arange(3.0), us.tensor([1.0, 2.0]), "text", {"a": 1}, {"a": 2}, [1], (1,)]
    assert len({digest_of(make(thing)) for thing in things}) == len(things)
    assert digest_of(make(np.arange(3))) == digest_of(make(np.arange(3)))


class Scaled:
    def __init__(self, scale: float) -> None:
        self.scale, self.calls = scale, [0]

    def __call__(self, x: Any) -> Any:
        self.calls.append(1)
        return x * self.scale


def test_an_object_that_is_called_is_told_by_its_code_and_its_settings() -> None:
    one, other = Scaled(2.0), Scaled(3.0)
    before = digest_of(one)
    one(1.0)
    assert digest_of(one) == before != digest_of(other)


def test_functions_that_call_each_other_have_a_checksum() -> None:
    text = "def g(x): return f(x - 1)\ndef f(x): return g(x) if x else 0"
    assert digest_of(of_source(text)) == digest_of(of_source(text))


@pytest.mark.parametrize("tree", [None, 3.0, [1, (2, {"a": None, 3: [4.0]})], (), {}, [True]])
def test_nested_results_come_back(tree: Any) -> None:
    nesting, leaves = pack(tree, "it")
    assert unpack(nesting, [leaf.item() for leaf in leaves]) == tree


class Pair(NamedTuple):
    a: float
    b: float


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        (Pair(1.0, 2.0), "it is a Pair"),
        (["yes"], r"it\[0\] is a str"),
        ({"a": object()}, r"it\['a'\] is a object"),
        ({2.5: 1}, "names or integers as keys, it has 2.5"),
    ],
)
def test_what_a_file_could_not_describe_is_refused(tree: Any, words: str) -> None:
    with pytest.raises(StructureError, match=words):
        pack(tree, "it")


def test_a_pool_is_given_a_few_tasks_at_a_time() -> None:
    made = []

    def task(number: int) -> tuple[int]:
        made.append(number)
        return (number,)

    with ThreadPoolExecutor(1) as pool:
        running = results(pool, abs, [partial(task, i) for i in range(10)], ahead=3)
        assert len([next(running), next(running)]) == 2
        assert len(made) == 4
        rest = list(running)
    assert len(rest) == 8 and len(made) == 10


def test_references_that_make_futures_are_waited_for() -> None:
    class Reference:
        def __init__(self, value: Any) -> None:
            self._value = value

        def future(self) -> Future[Any]:
            made: Future[Any] = Future()
            made.set_result(self._value)
            return made

    class Pool:
        def submit(self, f: Any, *args: Any) -> Reference:
            return Reference(f(*args))

    assert sorted(results(Pool(), pow, [lambda: (2, 2), lambda: (2, 3)])) == [(0, 4, None), (1, 8, None)]


def test_what_has_not_begun_is_cancelled_when_nobody_waits_any_more() -> None:
    futures: list[Future[Any]] = []

    class Pool:
        def submit(self, f: Any, *args: Any) -> Future[Any]:
            futures.append(Future())
            if len(futures) == 1:
                futures[0].set_result(1)
            return futures[-1]

    running = results(Pool(), abs, [lambda: (1,)] * 3)
    next(running)
    running.close()
    assert [future.cancelled() for future in futures] == [False, True, True]


def test_a_pool_that_breaks_is_an_error_of_the_pool() -> None:
    from concurrent.futures.process import BrokenProcessPool

    class Pool:
        def submit(self, f: Any, *args: Any) -> Future[Any]:
            made: Future[Any] = Future()
            made.set_exception(BrokenProcessPool("a process ended"))
            return made

    with pytest.raises(PoolError, match="the pool broke: BrokenProcessPool: a process ended"):
        next(results(Pool(), abs, [lambda: (1,)]))


# --- pieces that travel together --------------------------------------------------------------------------------------


def sizes(seconds: float, workers: int | None, pieces: int = 64) -> list[int]:
    """Return how many pieces each errand has, if all are known to take so long once the first has come back."""
    errands = Errands([(k, k + 1) for k in range(pieces)], workers)
    found = []
    for errand in errands:
        found.append(errand)
        errands.took(seconds * len(errand), len(errand))
    assert [piece for errand in found for piece in errand] == [(k, k + 1) for k in range(pieces)]
    return [len(errand) for errand in found]


def test_short_pieces_travel_together_and_are_shared_out_at_the_end() -> None:
    found = sizes(0.01, 2)
    assert found[0] == 1
    assert max(found) == 5
    assert found[1:] == sorted(found[1:], reverse=True)
    assert found[-4:] == [1] * 4
    assert len(found) < 32


@pytest.mark.parametrize(("seconds", "workers"), [(10.0, 2), (0.001, None)])
def test_long_pieces_and_those_of_pools_that_tell_nothing_travel_alone(seconds: float, workers: int | None) -> None:
    assert sizes(seconds, workers) == [1] * 64


def test_pieces_that_take_no_time_are_shared_out_too() -> None:
    assert max(sizes(0.0, 2)) == 63 // 4


def test_pools_tell_how_many_workers_they_have() -> None:
    with ThreadPoolExecutor(3) as pool:
        assert workers_of(pool) == 3
    assert workers_of(object()) is None
