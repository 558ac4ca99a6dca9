"""Tasks on a pool of workers: anything with ``submit``, whose futures come in any order.

The futures of threads, processes, loky, mpi4py and Dask tell when they are done. What does not is waited for in order.
A future is dropped as soon as its result is here: Dask computes again what it lost and somebody still refers to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor
from contextlib import suppress
from itertools import islice
from queue import SimpleQueue
from typing import Any

from unspool.errors import ArgumentError, PoolError

# So many tasks are given to a pool at a time; more are given as results come, so that a long list of them need not be
# in the memory of a scheduler.
_AHEAD = 256


def check_pool(pool: Any, what: str) -> None:
    """Refuse what is no pool."""
    if pool is not None and not callable(getattr(pool, "submit", None)):
        raise ArgumentError(
            f"the pool of {what} is anything with submit(function, *arguments), such as "
            f"concurrent.futures.ProcessPoolExecutor or dask.distributed.Client; got {pool!r}"
        )


def results(
    pool: Any, function: Callable[..., Any], tasks: Iterable[Callable[[], tuple[Any, ...]]], ahead: int = _AHEAD
) -> Iterator[tuple[int, Any, BaseException | None]]:
    """Yield the number of a task, what the function returned, and what kept the pool from running it, as they come.

    A task is a function that makes the arguments, asked for and called when its turn has come. Without a pool tasks run
    here, in order. When the consumer stops, what has not begun is cancelled.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> with ThreadPoolExecutor(2) as pool:
    ...     sorted(results(pool, pow, [lambda: (2, 3), lambda: (3, 2)]))
    [(0, 8, None), (1, 9, None)]
    """
    if pool is None:
        for number, arguments in enumerate(tasks):
            yield number, function(*arguments()), None
        return
    waiting = _Waiting()
    left = enumerate(tasks)
    try:
        while True:
            for number, arguments in islice(left, ahead - len(waiting)):
                waiting.add(number, _submit(pool, function, arguments()))
            if not len(waiting):
                return
            yield waiting.next()
    finally:
        waiting.cancel()


def _submit(pool: Any, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        made = pool.submit(function, *arguments)
    except Exception as error:
        raise PoolError(f"the pool {pool!r} takes no task: {type(error).__name__}: {error}") from error
    if not hasattr(made, "result") and callable(getattr(made, "future", None)):
        return made.future()  # a reference of Ray's
    return made


class _Waiting:
    """Futures that are not done yet."""

    def __init__(self) -> None:
        self._futures: dict[int, Any] = {}
        self._done: SimpleQueue[int] = SimpleQueue()
        self._silent: deque[int] = deque()

    def __len__(self) -> int:
        return len(self._futures)

    def add(self, number: int, future: Any) -> None:
        self._futures[number] = future
        if callable(getattr(future, "add_done_callback", None)):
            future.add_done_callback(lambda _: self._done.put(number))
        else:
            self._silent.append(number)

    def next(self) -> tuple[int, Any, BaseException | None]:
        """Wait for one of them."""
        number = self._silent.popleft() if self._silent else self._done.get()
        future = self._futures.pop(number)
        try:
            found = future.result()
        except BrokenExecutor as error:
            raise PoolError(f"the pool broke: {type(error).__name__}: {error}") from error
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:  # that a task was cancelled is no Exception
            return number, None, error
        finally:
            _release(future)
        return number, found, None

    def cancel(self) -> None:
        """Cancel what has not begun."""
        for future in self._futures.values():
            with suppress(Exception):
                future.cancel()
            _release(future)
        self._futures.clear()


def _release(future: Any) -> None:
    if callable(getattr(future, "release", None)):
        with suppress(Exception):
            future.release()
