"""What a pool makes meanwhile: by a thread if one has begun, else by who asks."""

from __future__ import annotations

import threading
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor
from typing import Any

import pytest

from unspool._engine.memory.background import Meanwhile


def test_a_thread_makes_it() -> None:
    begun = threading.Event()

    def make() -> int:
        begun.set()
        return threading.get_ident()

    with ThreadPoolExecutor(1) as pool:
        waiting = Meanwhile(pool, make)
        begun.wait()
        assert waiting.result() == pool.submit(threading.get_ident).result()


def test_what_was_not_begun_is_made_by_who_asks() -> None:
    may_end = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(may_end.wait)
        assert Meanwhile(pool, threading.get_ident).result() == threading.get_ident()
        may_end.set()
    assert Meanwhile(pool, threading.get_ident).result() == threading.get_ident()


def test_what_was_cancelled_with_its_pool_is_made_by_who_asks() -> None:
    may_end = threading.Event()
    pool = ThreadPoolExecutor(1)
    pool.submit(may_end.wait)
    waiting = Meanwhile(pool, threading.get_ident)
    pool.shutdown(wait=False, cancel_futures=True)
    may_end.set()
    assert waiting.result() == threading.get_ident()


def test_a_pool_that_breaks_is_done_without() -> None:
    class Breaking:
        def submit(self, function: Any) -> Future[Any]:
            made: Future[Any] = Future()
            made.set_running_or_notify_cancel()
            made.set_exception(BrokenExecutor("its threads could not begin"))
            return made

    assert Meanwhile(Breaking(), lambda: 3).result() == 3


def test_what_it_raises_arrives_and_what_nobody_waits_for_does_not() -> None:
    def fail() -> None:
        raise ValueError("broken")

    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(ValueError, match="broken"):
            Meanwhile(pool, fail).result()
        Meanwhile(pool, fail).leave()


def test_leaving_waits_for_the_thread() -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), []

    def make() -> None:
        begun.set()
        may_end.wait()
        ended.append(True)

    with ThreadPoolExecutor(1) as pool:
        waiting = Meanwhile(pool, make)
        begun.wait()
        threading.Timer(0.05, may_end.set).start()
        waiting.leave()
        assert ended == [True]
