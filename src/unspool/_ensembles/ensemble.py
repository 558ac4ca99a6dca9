"""``us.ensemble``: values and gradients of many independent loops, here or on a pool.

The one idea: members are numbered, and which of them run together follows from their numbers. A piece is some members
in a row. Pieces are computed by anybody, in any order, written as they come, and put together in order.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Literal, get_args

import numpy as np

from unspool._autodiff.arguments import name_of
from unspool._batching.widths import block_width
from unspool._engine.memory.sizes import parse_bytes
from unspool._ensembles.budgets import budget_of_worker
from unspool._ensembles.errands import Errands, workers_of
from unspool._ensembles.fingerprint import digest_of
from unspool._ensembles.nesting import unpack
from unspool._ensembles.parameters import Parameters
from unspool._ensembles.pools import check_pool, results
from unspool._ensembles.result import EnsembleReport, EnsembleResult, Failure, all_that_failed
from unspool._ensembles.store import Store
from unspool._ensembles.work import Piece, Task, blank, check_alike, compute_all, failure_of, record_batch
from unspool._fragments.asking import check_callable
from unspool.errors import ArgumentError, PoolError, StructureError

Changed = Literal["refuse", "keep"]

# At most so many members run as one batch if nobody says how many: a batch gains little beyond that, and a pool wants
# several to choose from.
_MOST = 16


def ensemble(
    f: Callable[[Any], Any],
    parameters: Any,
    pool: Any = None,
    memory: str | int | float | None = None,
    *,
    gradient: bool = True,
    has_aux: bool = False,
    batch: int | None = None,
    folder: str | os.PathLike[str] | None = None,
    changed: Changed = "refuse",
    retry: bool = False,
    progress: Callable[[int, int], Any] | None = None,
) -> EnsembleResult:
    """Compute values and gradients of many independent members, each by the same function.

    Parameters
    ----------
    f : callable
        A function of the parameters of one member. It returns a real scalar, or ``(scalar, aux)`` with
        ``has_aux=True``; with ``gradient=False`` numbers and arrays in lists, tuples and dictionaries.
    parameters : pytree of arrays
        The members lie along the first axis of every array. A random key is split among them, as in `vmap`.
    pool : object with submit, optional
        Who computes: a thread or process pool of ``concurrent.futures``, loky, ``dask.distributed.Client``,
        ``mpi4py.futures``, … By default everything runs here. Bits do not depend on it.
    memory : str, int or float, optional
        The budget of a worker, as in `unspool.memory`.
    gradient : bool
        Whether to compute gradients.
    has_aux : bool
        Whether ``f`` also returns something that is not differentiated.
    batch : int, optional
        How many members run as one batch (`vmap`). By default up to 16, if the function can be batched and its arrays
        are small, and 1 otherwise. To find out, the function is called here, for two members at once.
    folder : path, optional
        Where results are written as they come. A run that was interrupted goes on from there.
    changed : {"refuse", "keep"}
        What to do with results in the folder if the function has changed since.
    retry : bool
        Whether members that failed in an earlier run are computed again.
    progress : callable, optional
        Called with the number of members that are done, and that of all, whenever some are done.

    Returns
    -------
    EnsembleResult
        With ``values``, ``gradients`` in the structure of the parameters, ``aux``, ``ok``, ``failures`` and
        ``report()``.

    Raises
    ------
    EnsembleError
        If no member has a result, or the folder is that of another ensemble. Members that fail beside others that do
        not are in ``failures``, with their parameters.
    PoolError
        If the pool broke. What was written to the folder by then is there.

    Examples
    --------
    >>> import numpy as np
    >>> import unspool as us
    >>> def final(p):
    ...     x, _ = us.iterate(lambda x: us.cos(p["c"] * x), 1.0, max_steps=50)
    ...     return x
    >>> found = us.ensemble(final, {"c": np.array([0.2, 0.5, 0.8])})
    >>> found.values.round(4)
    array([0.9808, 0.9004, 0.8014])
    >>> found.gradients["c"].round(4)
    array([-0.184 , -0.3218, -0.3242])
    """
    began = time.perf_counter()
    check_callable(f, "us.ensemble")
    check_pool(pool, "us.ensemble")
    _check_options(batch, changed, progress, gradient, has_aux)
    members = Parameters(parameters)
    if gradient and not any(members.is_moving):
        raise ArgumentError("no parameter of the ensemble is a real or complex number; pass gradient=False")
    budget = None if memory is None else parse_bytes(memory)
    task = Task(f, members.structure, members.is_moving, gradient, has_aux, budget)
    if batch is None and folder is not None:
        batch = Store.width(folder)
    width = _width(task, members) if batch is None else min(batch, members.count)
    store = None if folder is None else Store(folder, _facts(f, members, task, width), changed == "keep")
    run = _Run(task, members, width, store, retry, progress)
    run.gather(pool)
    return run.result(parameters, time.perf_counter() - began)


class _Run:
    """One run of an ensemble: which pieces there are, and what came of them."""

    def __init__(
        self,
        task: Task,
        members: Parameters,
        width: int,
        store: Store | None,
        retry: bool,
        progress: Callable[[int, int], Any] | None,
    ) -> None:
        self._task, self._members, self._width = task, members, width
        self._store, self._retry, self._progress = store, retry, progress
        self._pieces: dict[int, Piece] = {}
        self._computed: set[int] = set()

    def gather(self, pool: Any) -> None:
        """Compute all that is not in the folder."""
        count, width = self._members.count, self._width
        bounds = [(start, min(start + width, count)) for start in range(0, count, width)]
        missing = [b for b in bounds if not self._has(*b)]
        if self._pieces:
            self._tell()
        errands = Errands(missing, workers_of(pool))
        sent: list[list[tuple[int, int]]] = []
        try:
            for number, pieces, error in results(pool, compute_all, self._tasks(errands, sent), errands.ahead):
                if error is not None:
                    pieces = [Piece(*bounds, failures=_lost(*bounds, error)) for bounds in sent[number]]
                for piece in pieces:
                    self._take(piece)
                    if error is None and self._store is not None:
                        self._store.write(piece)
                    self._tell()
                errands.took(sum(piece.seconds for piece in pieces), len(pieces))
        except PoolError as error:
            kept = "nothing was written" if self._store is None else "what was computed is in the folder; run it again"
            raise PoolError(f"{error}; {self._done()} of {count} members were done, {kept}") from error.__cause__

    def _has(self, start: int, stop: int) -> bool:
        piece = None if self._store is None else self._store.read(start, stop)
        if piece is None or (self._retry and piece.failures):
            return False
        self._pieces[start] = piece
        return True

    def _tasks(self, errands: Errands, sent: list[list[tuple[int, int]]]) -> Iterator[Callable[[], tuple[Any, ...]]]:
        """Yield what a pool is asked for, one errand after the other, and note which pieces those are."""
        for pieces in errands:
            sent.append(pieces)
            yield partial(self._arguments, pieces)

    def _arguments(self, pieces: Sequence[tuple[int, int]]) -> tuple[Any, ...]:
        return self._task, [(start, self._members.part(start, stop), stop - start) for start, stop in pieces]

    def _take(self, piece: Piece) -> None:
        self._pieces[piece.start] = piece
        self._computed.add(piece.start)

    def _done(self) -> int:
        return sum(piece.stop - piece.start for piece in self._pieces.values())

    def _tell(self) -> None:
        if self._progress is not None:
            self._progress(self._done(), self._members.count)

    def result(self, parameters: Any, elapsed: float) -> EnsembleResult:
        """Put all pieces together, in order."""
        pieces = [self._pieces[start] for start in sorted(self._pieces)]
        like = next((piece for piece in pieces if piece.arrays), None)
        for piece in pieces:
            if like is not None and piece.arrays:
                _compare(like, piece)
        told = sorted((told for piece in pieces for told in piece.failures), key=lambda told: int(told["index"]))
        failures = [Failure(parameters=self._members.member(told["index"]), **told) for told in told]
        if like is None:
            raise all_that_failed(failures, self._members.count)
        ok = np.ones(self._members.count, bool)
        ok[[failure.index for failure in failures]] = False
        found = unpack(like.nesting, [self._column(pieces, i, x) for i, x in enumerate(like.arrays)])
        return EnsembleResult(
            parameters=parameters,
            values=found["value"],
            gradients=self._nested(found.get("gradient")),
            aux=found.get("aux"),
            ok=ok,
            failures=failures,
            report=self._report(pieces, len(failures), elapsed),
        )

    def _column(self, pieces: list[Piece], i: int, like: Any) -> Any:
        return np.concatenate(
            [
                piece.arrays[i] if piece.arrays else blank(piece.stop - piece.start, like.shape[1:], like.dtype)
                for piece in pieces
            ]
        )

    def _nested(self, gradient: list[Any] | None) -> Any:
        """Return gradients in the structure of the parameters."""
        if gradient is None:
            return None
        arrays = iter(gradient)
        return self._members.nested([next(arrays) if moves else None for moves in self._members.is_moving])

    def _report(self, pieces: list[Piece], failed: int, elapsed: float) -> EnsembleReport:
        workers: dict[str, tuple[int, float, int | None]] = {}
        for piece in sorted(pieces, key=lambda piece: piece.worker):
            count, seconds, peak = workers.get(piece.worker, (0, 0.0, None))
            most = piece.peak if peak is None else max(peak, piece.peak or 0)
            workers[piece.worker] = count + piece.stop - piece.start, seconds + piece.seconds, most
        computed = sum(piece.stop - piece.start for piece in pieces if piece.start in self._computed)
        return EnsembleReport(
            members=self._members.count,
            computed=computed,
            read=self._members.count - computed,
            failed=failed,
            batch=self._width,
            batched=sum(piece.stop - piece.start for piece in pieces if piece.batched),
            seconds=sum(piece.seconds for piece in pieces),
            elapsed=elapsed,
            memory=self._task.memory,
            workers=workers,
        )


def _compare(like: Piece, piece: Piece) -> None:
    """Refuse a piece whose results differ in kind from those of the first: all of its members failed, then."""
    ones = [[x[0] for x in p.arrays] for p in (like, piece)]
    try:
        check_alike(like.nesting, ones[0], piece.nesting, ones[1])
    except StructureError as error:
        failed = {told["index"] for told in piece.failures}
        left = [i for i in range(piece.start, piece.stop) if i not in failed]
        piece.failures = [*piece.failures, *[failure_of(i, error) for i in left]]
        piece.arrays = []


# What pickle's errors say, in the words of one Python or another.
_NOT_PICKLED = ("pickle", "local object")


def _lost(start: int, stop: int, error: BaseException) -> list[dict[str, Any]]:
    """Return failures of members that the pool could not compute."""
    told = [failure_of(i, error) for i in range(start, stop)]
    said = f"{type(error).__name__} {error}".lower()
    if any(words in said for words in _NOT_PICKLED):
        for one in told:
            one["message"] += (
                "; a pool of processes takes functions that can be imported, and loky or Dask take others too"
            )
    return told


def _width(task: Task, members: Parameters) -> int:
    """Return how many members run as one batch, which follows from the function and from sizes."""
    pair = min(2, members.count)
    if pair == 1:
        return 1
    try:
        with budget_of_worker(task.memory):  # a loop that stops by a value runs while it is recorded
            recorded = record_batch(task, members.part(0, pair), pair)
        return min(members.count, _MOST, block_width(recorded, pair))
    except Exception:  # it looks at values, say; what is wrong otherwise each member will tell
        return 1


def _facts(f: Callable[..., Any], members: Parameters, task: Task, width: int) -> dict[str, Any]:
    return {
        "function": name_of(f),
        "code": digest_of(f),
        "members": members.count,
        "parameters": members.digest(),
        "batch": width,
        "gradient": task.wants_gradient,
        "aux": task.has_aux,
    }


def _check_options(batch: Any, changed: Any, progress: Any, gradient: bool, has_aux: bool) -> None:
    if batch is not None and (isinstance(batch, bool) or not isinstance(batch, int) or batch < 1):
        raise ArgumentError(f"batch is how many members run at once, at least 1, got {batch!r}")
    if changed not in get_args(Changed):
        raise ArgumentError(f"changed is 'refuse' or 'keep', got {changed!r}")
    if progress is not None and not callable(progress):
        raise ArgumentError(f"progress is called with the numbers of members done and of all, got {progress!r}")
    if has_aux and not gradient:
        raise ArgumentError("has_aux=True is for gradients; with gradient=False the function returns what it likes")
