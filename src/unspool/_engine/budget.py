"""`unspool.memory` and its relatives: one number says how much memory the engine may hold.

The number is the limit of the engine's ledger. A scope sets it, counts what happens inside, and sets it back.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, get_args

from unspool import _native
from unspool._engine.backends.buffers import POOL, POOL_LIMIT
from unspool._engine.default import default_engine
from unspool._engine.memory.background import check_pool
from unspool._engine.memory.guard import Guard
from unspool._engine.memory.ledger import Ledger
from unspool._engine.memory.report import MemoryReport
from unspool._engine.memory.sizes import parse_bytes
from unspool.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType


Verify = Literal["off", "hash"]

# The share of a budget that arrays may take which are kept to be used again.
_POOL_SHARE = 16


class memory:  # noqa: N801 - used like a function, in a with statement
    """Keep values within a memory budget, for the duration of a ``with`` block: evict some, recompute them when needed.

    Loop and gradient go inside. While everything fits nothing changes. When it does not, the engine evicts values
    and computes them again when the gradient needs them, at the least cost it can; see the page on memory. Results are
    the same, bit for bit. Your Python code is never run again.

    Parameters
    ----------
    budget : str, int or float
        Bytes: ``"2GB"``, ``"1.5GiB"``, an int, or a float as a fraction of the memory that is available. It covers what
        the engine holds: values, and what it computes with. Arrays of your own, and the leaves made of them, are yours.
    spill : path, optional
        A directory. States that there is no room for go there, as often as pays, instead of being computed again.
    spill_limit : str, int or float, optional
        The most bytes to have on disk.
    verify : {"off", "hash"}
        With ``"hash"``, what is computed again is compared with what it was; a difference raises `RebuildError`.
    pool : object with submit, optional
        A pool of threads. While the backward pass uses the steps that were computed again, a thread computes the steps
        before them, if the budget has room for both. Bits do not change, and your Python code runs in your thread
        alone. Steps that run long natively, or in large products, leave Python's lock to others, and only these gain.

    Examples
    --------
    >>> import numpy as np
    >>> import unspool as us
    >>> A = us.tensor(np.eye(64) * 0.5)
    >>> with us.memory("1MB") as m:
    ...     x = us.ones((64, 64))
    ...     for k in range(200):
    ...         x = us.tanh(A @ x) + 1.0
    ...         if us.max(abs(x)).item() > 1e3:
    ...             break
    ...     slope = us.sum(x).grad(A).eval()
    >>> m.report().peak <= 1_000_000
    True
    """

    def __init__(
        self,
        budget: str | int | float,
        *,
        spill: str | os.PathLike[str] | None = None,
        spill_limit: str | int | float | None = None,
        verify: Verify = "off",
        pool: Any = None,
    ) -> None:
        self.budget = parse_bytes(budget)
        if verify not in get_args(Verify):
            raise ArgumentError(f"verify is one of {', '.join(map(repr, get_args(Verify)))}, got {verify!r}")
        if spill_limit is not None and spill is None:
            raise ArgumentError("spill_limit says how much may go to disk, but spill, where to, was not given")
        if spill is not None and not isinstance(spill, (str, os.PathLike)):
            raise ArgumentError(f"spill is the path of a directory, got {spill!r}")
        check_pool(pool, "us.memory")
        self._pool = pool
        self._verify = verify == "hash"
        self._spill = spill
        self._spill_limit = None if spill_limit is None else parse_bytes(spill_limit)
        self._before: tuple[Any, ...] | None = None
        self._started: dict[str, Any] = {}
        self._report: MemoryReport | None = None
        self._timeline: list[tuple[float, int]] = []
        self._kept = 0

    def __enter__(self) -> memory:
        if self._before is not None:
            raise ArgumentError("this memory budget is in use already; make another one for a block inside")
        store = None
        if self._spill is not None:
            from unspool.checkpoint.spill import SpillStore

            store = SpillStore(self._spill, self._spill_limit)
        ledger = default_engine().ledger
        self._before = (
            ledger.limit,
            ledger.is_strict,
            ledger.guard,
            ledger.timeline,
            ledger.peak,
            ledger.pool,
            POOL.limit,
        )
        self._kept = _native.limit_kept(0)  # what is held is counted when it dies, and this would not be
        ledger.guard = Guard(self._verify, store) if self._verify or store is not None else None
        ledger.pool = self._pool
        ledger.is_strict = False
        ledger.need = None
        ledger.set_limit(self.budget)
        ledger.make_room()  # what was held before; if it is too much, the first step says so
        ledger.is_strict = True
        ledger.peak = 0
        ledger.timeline = self._timeline = []
        POOL.set_limit(min(POOL_LIMIT, self.budget // _POOL_SHARE))
        self._started = counters(ledger)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ledger = default_engine().ledger
        self._report = self._make_report()
        if ledger.guard is not None:
            ledger.guard.close()
        limit, ledger.is_strict, ledger.guard, ledger.timeline, peak, ledger.pool, arrays = self._before or ()
        ledger.peak = max(peak, ledger.peak)
        ledger.set_limit(limit)
        if not ledger.is_strict:
            ledger.stop_tracking()
        POOL.set_limit(arrays)
        _native.limit_kept(self._kept)
        self._before = None

    def report(self) -> MemoryReport:
        """Return what was done to keep to the budget, so far or until the block was left.

        Examples
        --------
        >>> import unspool as us
        >>> with us.memory("1GB") as m:
        ...     _ = us.sum(us.ones(1000)).eval()
        >>> m.report().evictions
        0
        """
        if self._before is not None:
            return self._make_report()
        return MemoryReport(budget=self.budget) if self._report is None else self._report

    def timeline(self) -> list[tuple[float, int]]:
        """Return samples of (seconds, bytes held) from the block, in order.

        Examples
        --------
        >>> import unspool as us
        >>> with us.memory("1GB") as m:
        ...     pass
        >>> m.timeline()
        []
        """
        if not self._timeline:
            return []
        start = self._timeline[0][0]
        return [(seconds - start, size) for seconds, size in self._timeline]

    def _make_report(self) -> MemoryReport:
        return report_since(default_engine().ledger, self._started, self.budget)


def counters(ledger: Ledger) -> dict[str, Any]:
    """Return what a ledger has counted so far, by name."""
    return {
        "steps": ledger.steps,
        "kernels": ledger.kernels,
        "kernels_again": ledger.kernels_again,
        "runs": ledger.runs,
        "distinct": ledger.distinct,
        "evictions": ledger.evictions,
        "slabs_dropped": ledger.slabs_dropped,
        "seconds": ledger.seconds,
    }


def report_since(ledger: Ledger, started: Mapping[str, Any], budget: int) -> MemoryReport:
    """Return what keeping to a budget took since the counters had the values ``started``."""
    done = {name: value - started[name] for name, value in counters(ledger).items()}
    need = ledger.need if ledger.need is not None and ledger.need.steps else None
    guard = ledger.guard
    store = None if guard is None else guard.store
    steps, evaluations = done["steps"], done["steps"]
    if steps and done["kernels"]:
        evaluations += round(steps * done["kernels_again"] / done["kernels"])
    else:  # a loop that was recorded, and not run before its gradient
        steps, evaluations = done["distinct"], done["runs"]
    plan = None if need is None else need.plan(budget)
    return MemoryReport(
        budget=budget,
        # A budget that may be exceeded is not watched closely enough to tell.
        peak=ledger.peak if ledger.is_strict else None,
        predicted_peak=None if need is None else need.predicted_peak(budget),
        steps=steps,
        evaluations=evaluations,
        optimal_factor=None if plan is None else plan.factor,
        slots=None if plan is None else plan.slots,
        block=None if plan is None else plan.block,
        disk_period=None if guard is None or store is None else guard.period,
        evictions=done["evictions"],
        slabs_dropped=done["slabs_dropped"],
        spilled_bytes=0 if store is None else store.written,
        read_bytes=0 if store is None else store.read,
        rebuild_seconds=done["seconds"],
        metadata_bytes=steps * ledger.record_bytes(),
    )


def limit_memory(ledger: Ledger, budget: str | int | float | None) -> None:
    """Give a ledger its budget; ``None`` for half of the memory that is available, exceeded rather than refused."""
    ledger.set_limit(parse_bytes(budget))
    ledger.is_strict = budget is not None


def set_memory(budget: str | int | float | None) -> None:
    """Set the budget of the engine for the rest of the program, or until it is set again.

    Parameters
    ----------
    budget : str, int, float or None
        As in `unspool.memory`; ``None`` for what holds from the start: half of the memory that is available to the
        process, exceeded rather than refused where it cannot be kept.

    Examples
    --------
    >>> import unspool as us
    >>> us.set_memory("4GB")
    >>> us.set_memory(None)
    """
    limit_memory(default_engine().ledger, budget)
