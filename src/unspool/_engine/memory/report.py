"""What a memory budget led to (`MemoryReport`), and what it would lead to (`MemoryPlan`): data that print as tables.

They hold numbers only, no engine and no tensors, so a report can be kept after everything it tells of is gone. What is
not known is None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from unspool._engine.memory.sizes import format_bytes
from unspool._engine.table import UNKNOWN, render_table
from unspool._html import printed_as_html


def _count(number: int) -> str:
    return f"{number:,}"


def _ratio(number: float) -> str:
    return f"{number:.3f} ×"


def _seconds(number: float) -> str:
    return f"{number:.3f} s"


def _answer(value: bool) -> str:
    return "yes" if value else "no"


class _Facts:
    """Named facts that print as a table, each in its own notation."""

    # What the table shows: the attribute, its caption, how to print it. In the order of the rows.
    _rows: ClassVar[tuple[tuple[str, str, Callable[[Any], str]], ...]]

    def asdict(self) -> dict[str, Any]:
        """Return what the table shows as plain data, by name, numbers unrounded."""
        return {name: getattr(self, name) for name, _, _ in self._rows}

    _repr_html_ = printed_as_html

    def __str__(self) -> str:
        facts: Mapping[str, Any] = self.asdict()
        return render_table(
            (caption, UNKNOWN if facts[name] is None else notation(facts[name]))
            for name, caption, notation in self._rows
        )


@dataclass(frozen=True, kw_only=True)
class MemoryReport(_Facts):
    """What keeping to a memory budget took; prints as a table. None where a number is not known.

    Attributes
    ----------
    budget : int
        Bytes that were allowed.
    peak, predicted_peak : int
        The most bytes that were alive at once, measured, and as the plan foresaw.
    steps : int
        Steps of the loop that was differentiated.
    evaluations : int
        Runs of a step: the first ones and those that recompute.
    factor : float
        Evaluations for each step. 1 means that nothing was computed twice.
    optimal_factor : float
        The least that any schedule can do with as many steps and slots, when the number of steps is known in advance.
    slots : int
        States that the budget had room for.
    block : int
        Steps that were recomputed and reversed at once.
    disk_period : int
        Every how many steps a state went to disk.
    evictions : int
        States that were evicted.
    slabs_dropped : int
        Calls whose residuals were evicted.
    spilled_bytes, read_bytes : int
        Bytes written to disk, and read back.
    rebuild_seconds : float
        Time spent on recomputing what had been evicted.
    metadata_bytes : int
        Bytes of the graph itself: nodes and records, without values.

    Examples
    --------
    >>> report = MemoryReport(budget=2_000_000, peak=1_874_944, steps=100, evaluations=199, slots=99)
    >>> report.factor
    1.99
    >>> print(report)  # doctest: +ELLIPSIS
    budget                           2.00 MB
    measured peak                    1.87 MB
    predicted peak                      –
    steps                             100
    evaluations                       199
    recompute factor                1.990 ×
    ...
    >>> report.asdict()["peak"]
    1874944
    """

    budget: int | None = None
    peak: int | None = None
    predicted_peak: int | None = None
    steps: int | None = None
    evaluations: int | None = None
    optimal_factor: float | None = None
    slots: int | None = None
    block: int | None = None
    disk_period: int | None = None
    evictions: int | None = None
    slabs_dropped: int | None = None
    spilled_bytes: int | None = None
    read_bytes: int | None = None
    rebuild_seconds: float | None = None
    metadata_bytes: int | None = None

    @property
    def factor(self) -> float | None:
        """Evaluations for each step; None if there were no steps."""
        if self.evaluations is None or not self.steps:
            return None
        return self.evaluations / self.steps

    _rows = (
        ("budget", "budget", format_bytes),
        ("peak", "measured peak", format_bytes),
        ("predicted_peak", "predicted peak", format_bytes),
        ("steps", "steps", _count),
        ("evaluations", "evaluations", _count),
        ("factor", "recompute factor", _ratio),
        ("optimal_factor", "recompute factor at best", _ratio),
        ("slots", "slots for states", _count),
        ("block", "steps in a block", _count),
        ("disk_period", "steps between states on disk", _count),
        ("evictions", "states evicted", _count),
        ("slabs_dropped", "residuals evicted", _count),
        ("spilled_bytes", "written to disk", format_bytes),
        ("read_bytes", "read from disk", format_bytes),
        ("rebuild_seconds", "recomputing", _seconds),
        ("metadata_bytes", "metadata", format_bytes),
    )


@dataclass(frozen=True, kw_only=True)
class MemoryPlan(_Facts):
    """What a gradient would take under a memory budget; prints as a table. None where a number is not known.

    Attributes
    ----------
    budget : int
        Bytes that are allowed.
    fits : bool
        Whether the budget can work at all.
    least_budget : int
        The smallest budget that works.
    predicted_peak : int
        The most bytes that would be alive at once.
    steps : int
        Steps of the loop.
    factor : float
        Runs of a step for each step, recomputation included.
    slots : int
        States that the budget has room for.
    block : int
        Steps that are recomputed and reversed at once.
    disk_period : int
        Every how many steps a state goes to disk.
    state_bytes, tape_bytes : int
        Bytes of the state between two steps, and of what the derivative of one step needs.

    Examples
    --------
    >>> plan = MemoryPlan(budget=1_000_000, fits=True, least_budget=120_000, predicted_peak=960_000, steps=1000)
    >>> print(plan)  # doctest: +ELLIPSIS
    budget                           1.00 MB
    fits                              yes
    least budget                      120 kB
    predicted peak                    960 kB
    steps                           1,000
    ...
    """

    budget: int | None = None
    fits: bool
    least_budget: int | None = None
    predicted_peak: int | None = None
    steps: int | None = None
    factor: float | None = None
    slots: int | None = None
    block: int | None = None
    disk_period: int | None = None
    state_bytes: int | None = None
    tape_bytes: int | None = None

    _rows = (
        ("budget", "budget", format_bytes),
        ("fits", "fits", _answer),
        ("least_budget", "least budget", format_bytes),
        ("predicted_peak", "predicted peak", format_bytes),
        ("steps", "steps", _count),
        ("factor", "recompute factor", _ratio),
        ("slots", "slots for states", _count),
        ("block", "steps in a block", _count),
        ("disk_period", "steps between states on disk", _count),
        ("state_bytes", "a state", format_bytes),
        ("tape_bytes", "residuals of a step", format_bytes),
    )
