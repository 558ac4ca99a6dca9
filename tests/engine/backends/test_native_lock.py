"""Long runs of native programs give the interpreter's lock to others, short ones keep it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool._engine.backends.native import WHY_NOT
from unspool._engine.plan import make_plan
from unspool._fragments.fragment import capture
from unspool._native import Program

pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))


@pytest.fixture(autouse=True)
def _patience() -> Iterator[None]:
    """Let threads have the lock when it is given up, and never because somebody has had it long enough."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000.0)
    yield
    sys.setswitchinterval(before)


def program_of(function: Callable[[us.Tensor], us.Tensor], shape: tuple[int, ...]) -> Any:
    """Return a function of a tensor as a native program."""
    x = us.placeholder(shape, "float64")
    plan = make_plan(capture([x], [function(x)]).fragment, (shape,))
    plan.prepare()
    run: Any = plan.run
    found = next(each for each in (run, getattr(run, "_compiled", None)) if type(each) is Program)
    return found


def others_run(call: Callable[[], Any], times: int) -> bool:
    """Tell whether another thread runs while something is called so many times."""
    has_run, may_run = [], threading.Lock()
    may_run.acquire()

    def other() -> None:
        with may_run:
            has_run.append(True)

    thread = threading.Thread(target=other)
    thread.start()
    may_run.release()
    for _ in range(times):
        call()
        if has_run:
            break
    found = bool(has_run)
    thread.join()
    return found


LONG = [
    ("products", lambda x: x @ (x @ x), (100, 100)),
    ("elements", lambda x: us.tanh(us.exp(x) * x), (100, 100)),
    ("a decomposition", lambda x: us.linalg.cholesky(x @ us.matrix_transpose(x)), (100, 100)),
]


@pytest.mark.parametrize(("what", "function", "shape"), LONG, ids=[what for what, *_ in LONG])
def test_others_run_meanwhile(what: str, function: Any, shape: Any) -> None:
    program, x = program_of(function, shape), np.eye(100) + 0.001
    assert program.is_long
    expected = program(x)[0]
    found = []
    assert others_run(lambda: found.append(program(x)[0]), 10_000)
    assert all(np.array_equal(each, expected) for each in found)


def test_short_runs_keep_the_lock() -> None:
    program, x = program_of(lambda x: us.tanh(x @ x) + x, (4, 4)), np.eye(4)
    assert not program.is_long
    assert not others_run(lambda: program(x), 100)


def test_runs_that_call_back_keep_it() -> None:
    doubled = us.op("doubled_by_call_back", kernel=lambda x: 2.0 * x, replace=True)
    program = program_of(lambda x: doubled(us.tanh(x @ (x @ x))), (100, 100))
    assert program.is_long and program.calls_back
    assert np.array_equal(program(np.eye(100))[0], 2.0 * np.tanh(np.eye(100)))
