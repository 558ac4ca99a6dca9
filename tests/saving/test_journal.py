"""`_core.Journal`: numbers of nodes, records in the short way, and calls that are written when they are folded."""

from __future__ import annotations

import os
import random
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.saving.programs import PROGRAMS
from unspool._core import Journal, Node, memory_of
from unspool._saving.records import INLINE
from unspool._saving.writer import GraphWriter
from unspool.errors import SaveError


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


# --- numbers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stride", [1, 2, 64, 4096])
def test_numbers_are_found_by_id(stride: int) -> None:
    rng = random.Random(0)
    journal = Journal()
    known: dict[int, int] = {}
    for number in range(3000):
        key = stride * rng.randrange(5000)
        journal.enter(key, number)
        known.setdefault(key, number)
    assert len(journal) == len(known)
    for key in range(0, 5000 * stride, stride):
        assert journal.get(key) == known.get(key)
        assert journal.get(key - 1) == known.get(key - 1)
    with pytest.raises(KeyError):
        journal[-7]


def test_a_journal_takes_a_few_bytes_a_node() -> None:
    journal = Journal()
    for number in range(100_000):
        journal.enter(8 * number, number)
    assert sys.getsizeof(journal) <= 64 * 100_000


@pytest.mark.parametrize(
    "mistake",
    [
        lambda journal: Journal(1),
        lambda journal: journal.collect(()),
        lambda journal: journal.collect([1]),
        lambda journal: journal.put_known([1], 0, 1),
        lambda journal: journal.put_inputs(1, (1,)),
        lambda journal: journal.put_inputs(-1, ()),
        lambda journal: journal.put_inputs(1, (us.tensor(1.0),)),
        lambda journal: journal.adopt_inputs(1, ("a",)),
        lambda journal: journal.enter(1, -1),
        lambda journal: journal.put_values((), 1),
        lambda journal: journal.put_values([1], 1),
        lambda journal: setattr(journal, "encoder", 1),
        lambda journal: delattr(journal, "encoder"),
        lambda journal: delattr(journal, "on_new"),
    ],
)
def test_what_a_journal_cannot_take_is_refused(mistake: Callable[[Any], Any]) -> None:
    with pytest.raises((TypeError, ValueError, KeyError)):
        mistake(Journal())


# --- records ---------------------------------------------------------------------------------------------------------


class General(GraphWriter):
    """Writes every record in the general way."""

    def _write_all(self, nodes: list[Node], levels: Sequence[int] = ()) -> None:
        marks = list(levels)
        for node in nodes:
            while marks and marks[0] < node.id:
                self._write_level(marks.pop(0))
            self._write(node)
        for mark in marks:
            self._write_level(mark)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_short_way_writes_the_bytes_of_the_general_one(name: str) -> None:
    variables, loss = PROGRAMS[name]()
    gradient = loss.grad(variables)
    loss.eval()
    written = []
    for writer in (GraphWriter(), General()):
        writer.add([loss])
        writer.add(gradient)
        written.append(bytes(writer.out))
    assert written[0] == written[1]


# --- calls that are written when they are folded ---------------------------------------------------------------------


def power(A: Any, x: Any, k: int) -> Any:
    return us.tanh(A @ x)


def with_constants(A: Any, x: Any, k: int) -> Any:
    return us.tanh(A @ x) + 0.1 * k


def with_an_invariant(A: Any, x: Any, k: int) -> Any:
    return us.tanh((A + A.mT) @ x)


def with_an_invariant_and_a_constant(A: Any, x: Any, k: int) -> Any:
    return us.tanh((A + A.mT) @ x * 0.5)


def with_small_vectors(A: Any, x: Any, k: int) -> Any:
    return us.tanh(A @ x) + us.constant(np.full(5, 0.01 * k)) + us.sum(us.constant(np.full((2, 3), 0.01 * k)))


def with_large_constants(A: Any, x: Any, k: int) -> Any:
    return us.tanh(A @ x) + us.sum(us.constant(np.full(40, 0.01 * k)))


def with_leaves(A: Any, x: Any, k: int) -> Any:
    return us.tanh(A @ x) + us.tensor(0.1 * k)


def with_a_loop_inside(A: Any, x: Any, k: int) -> Any:
    y = us.constant(np.ones(5))
    for _ in range(70 if k in (3, 60, 100) else 1):
        y = us.cos(A @ y)
        float(y[0])
    return us.tanh(A @ x) * (float(y[0]) > -2)


def with_factors(A: Any, x: Any, k: int) -> Any:
    values, vectors = us.linalg.eigh(us.outer(x, x) + A + A.mT)
    return us.tanh(vectors[:, 0] * values[0])


STEPS = [
    power,
    with_constants,
    with_an_invariant,
    with_an_invariant_and_a_constant,
    with_small_vectors,
    with_large_constants,
    with_leaves,
    with_a_loop_inside,
    with_factors,
]


def run_to(folder: Path | None, steps: int, step: Any, stop: int = -1, every: Any = "1h") -> Any:
    rng = np.random.default_rng(3)
    A, x0 = us.tensor(rng.normal(size=(5, 5)) / 3), us.tensor(rng.normal(size=5))
    if folder is None:
        x = x0
        for k in range(steps):
            x = step(A, x, k)
            us.eval(x)
        return A, x0, x
    with us.spool(folder, every=every) as run:
        x = run.start(x0, inputs=A)
        for k in run.steps(steps):
            if k == stop:
                raise KeyboardInterrupt
            x = step(A, x, k)
            run.checkpoint(x)
    return A, x0, x


def bits(A: Any, x0: Any, x: Any) -> bytes:
    loss = us.sum(x * x)
    return b"".join(np.ascontiguousarray(value).tobytes() for value in us.eval([loss, *loss.grad([A, x0])]))


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_a_run_that_is_written_at_its_end_goes_on_with_the_same_bits(tmp_path: Path, step: Any) -> None:
    expected = bits(*run_to(None, 230, step))
    for stop in (5, 90, 200):
        with pytest.raises(KeyboardInterrupt):
            run_to(tmp_path / "run", 230, step, stop)
    assert bits(*run_to(tmp_path / "run", 230, step)) == expected


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_what_was_written_when_it_was_folded_is_read_by_another_process(tmp_path: Path, step: Any) -> None:
    expected = bits(*run_to(tmp_path / "run", 150, step))
    with us.resume(tmp_path / "run") as run:
        (x0, A), x = run.inputs, run.state
        assert bits(A, x0, x) == expected


def calls_in(run: us.SpooledRun) -> int:
    """How many calls are in the log by now; each has one output here."""
    return len(run._writer._journal) // 2


@pytest.mark.parametrize(
    "step", [power, with_constants, with_an_invariant, with_small_vectors, with_large_constants, with_factors]
)
def test_calls_are_written_when_they_are_folded(tmp_path: Path, step: Any) -> None:
    rng = np.random.default_rng(3)
    A, x = us.tensor(rng.normal(size=(5, 5)) / 3), us.tensor(rng.normal(size=5))
    with us.spool(tmp_path / "run", every="1h") as run:
        x = run.start(x, inputs=A)
        for k in run.steps(300):
            x = step(A, x, k)
            run.checkpoint(x)
        assert calls_in(run) >= 200


def test_a_loop_beside_a_run_is_not_written(tmp_path: Path) -> None:
    A, x = us.tensor(np.eye(3)), us.tensor(np.ones(3))
    with us.spool(tmp_path / "run", every="1h") as run:
        x = run.start(x, inputs=A)
        before = len(run._writer._journal)
        y = us.tensor(np.zeros(3))
        for _ in range(300):
            y = us.cos(A @ y)
            float(y[0])
        assert len(run._writer._journal) == before
        run.checkpoint(us.sin(A @ x))


def test_nothing_is_written_for_a_run_that_is_closed(tmp_path: Path) -> None:
    x = us.tensor(1.0)
    run = us.spool(tmp_path / "run", every="1h")
    x = run.start(x)
    run.close()
    before = len(run._writer._journal)
    for _ in range(200):
        x = us.sin(x)
        x.eval()
    assert len(run._writer._journal) == before


def test_what_cannot_be_saved_does_not_disturb_the_loop_and_is_said_when_it_is_written(tmp_path: Path) -> None:
    def make() -> Any:
        @us.custom_vjp
        def halved(x: Any) -> Any:
            return x / 2

        halved.defvjp(lambda x: (x / 2, None), lambda kept, ct: (ct / 2,))
        return halved

    first, second = make(), make()  # another one of the same name: the first cannot be found by it

    def begin(values: list[float]) -> None:
        with us.spool(tmp_path / "run", every="1h") as run:
            x = run.start(us.tensor(1.0))
            for _ in run.steps(200):
                x = us.cos(first(x))
                run.checkpoint(x)
                values.append(float(x))

    values: list[float] = []
    with pytest.raises(SaveError, match="halved"):
        begin(values)
    x, expected = 1.0, []
    for _ in range(200):
        x = float(np.cos(np.float64(x / 2)))
        expected.append(x)
    assert values == pytest.approx(expected, rel=1e-15) and second is not first


def test_threads_that_run_loops_of_their_own_do_not_disturb_a_run(tmp_path: Path) -> None:
    expected = bits(*run_to(None, 400, with_constants))
    ends = threading.Event()

    def beside(start: float) -> None:
        while not ends.is_set():
            y = us.tensor(start)
            for _ in range(150):
                y = us.cos(y) * 0.5
                float(y)

    threads = [threading.Thread(target=beside, args=(0.1 * i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    try:
        for stop in (100, 250):
            with pytest.raises(KeyboardInterrupt):
                run_to(tmp_path / "run", 400, with_constants, stop, every=0.005)
        found = run_to(tmp_path / "run", 400, with_constants, every=0.005)
    finally:
        ends.set()
        for thread in threads:
            thread.join()
    assert bits(*found) == expected


LAYOUTS = [
    np.arange(24.0).reshape(2, 3, 4),
    np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1),
    np.arange(6.0).reshape(2, 3).T,
    np.arange(6.0, dtype="complex64").reshape(1, 6, 1),
    np.arange(3, dtype="float16"),
    np.asfortranarray(np.ones((2, 1, 2), dtype=bool)),
    np.zeros((0, 3)),
    np.float64(2.5),
    np.array(7),
    np.arange(12.0).reshape(3, 4)[:, ::2],
    np.arange(4.0)[::-1],
    np.broadcast_to(np.float32(1.5), (2, 3)),
]


@pytest.mark.parametrize("array", LAYOUTS)
def test_where_an_array_lies_is_what_numpy_says(array: Any) -> None:
    address, axes = memory_of(array)
    assert list(axes) == sorted(
        range(array.ndim), key=[abs(stride) for stride in array.strides].__getitem__, reverse=True
    )
    assert address == np.asarray(array).__array_interface__["data"][0] or not isinstance(array, np.ndarray)


@pytest.mark.parametrize("array", LAYOUTS)
def test_a_value_that_is_written_has_the_bytes_of_the_general_form(array: Any) -> None:
    node = us.tensor(0.0)
    axes = memory_of(array)[1]
    expected = bytes([INLINE, 1, *axes]) + np.asarray(array).transpose(axes).tobytes()
    journal = Journal()
    journal.enter(node.id, 0)
    journal.next = 1
    node.value = array
    left = journal.put_values([node], 1000)
    lies_in_a_row = np.asarray(array).transpose(axes).flags.c_contiguous
    assert (left, journal.out) == (([], expected) if lies_in_a_row else ([node], b""))
    longer = Journal()
    longer.enter(node.id, 0)
    assert longer.put_values([node], array.nbytes - 1) == [node] and longer.out == b""


def test_what_is_no_array_lies_nowhere() -> None:
    for mistake in (1.0, b"abc", [1.0], None):
        with pytest.raises((TypeError, AttributeError)):
            memory_of(mistake)
