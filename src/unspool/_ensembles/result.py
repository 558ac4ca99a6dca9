"""What came of an ensemble: stacked arrays, failures with their parameters, and a report of who computed what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unspool._engine.memory.sizes import format_bytes
from unspool._engine.table import render_table
from unspool._html import printed_as_html
from unspool.errors import EnsembleError

# So many failures are named in a message.
_NAMED = 3


@dataclass(frozen=True)
class Failure:
    """A member that failed.

    Attributes
    ----------
    index : int
        Which one.
    parameters : pytree
        Its parameters.
    kind : str
        The class of what was raised.
    message : str
        What that said.
    traceback : str
        Where it was raised.
    """

    index: int
    parameters: Any
    kind: str
    message: str
    traceback: str = field(repr=False, default="")

    def __str__(self) -> str:
        first = self.message.splitlines()[0] if self.message else ""
        return f"member {self.index}, with {_shown(self.parameters)}: {self.kind}: {first}"

    _repr_html_ = printed_as_html


@dataclass(frozen=True, kw_only=True)
class EnsembleReport:
    """Who computed what, and what that took; prints as a table.

    Attributes
    ----------
    members, computed, read, failed : int
        How many members there are, were computed in this run, were read from a folder, and failed.
    batch : int
        How many members ran as one batch.
    batched : int
        How many members ran so.
    seconds : float
        The processor time of all members, also of those that an earlier run computed.
    elapsed : float
        How long this run took.
    memory : int or None
        The budget of a worker in bytes.
    workers : dict
        For each worker, how many members it computed, in how many seconds, and the most bytes it held.
    """

    members: int
    computed: int
    read: int
    failed: int
    batch: int
    batched: int
    seconds: float
    elapsed: float
    memory: int | None
    workers: dict[str, tuple[int, float, int | None]]

    _repr_html_ = printed_as_html

    def __str__(self) -> str:
        rows = [
            ("members", f"{self.members:,}"),
            ("computed", f"{self.computed:,}"),
            ("read from the folder", f"{self.read:,}"),
            ("failed", f"{self.failed:,}"),
            ("in batches", f"{self.batched:,}"),
            ("members in a batch", f"{self.batch:,}"),
            ("processor time", f"{self.seconds:.3f} s"),
            ("elapsed", f"{self.elapsed:.3f} s"),
        ]
        if self.memory is not None:
            rows.append(("budget of a worker", format_bytes(self.memory)))
        for i, (count, seconds, peak) in enumerate(self.workers.values()):
            held = "" if peak is None else f", at most {format_bytes(peak)}"
            rows.append((f"worker {i}", f"{count:,} in {seconds:.3f} s{held}"))
        return render_table(rows)


class EnsembleResult:
    """What came of an ensemble.

    Attributes
    ----------
    parameters : pytree of ndarray
        As they were given.
    values : ndarray, or nested arrays
        What the function returned, with the members along a first axis.
    gradients : pytree of ndarray, or None
        The gradients, in the structure of the parameters, ``None`` for integers, booleans and random keys.
    aux : nested arrays, or None
        What the function returned beside its value.
    ok : ndarray of bool
        Which members have results. Those of the others are NaN, or 0 where there is no NaN.
    failures : list of Failure
        The members that failed.
    """

    def __init__(
        self,
        *,
        parameters: Any,
        values: Any,
        gradients: Any,
        aux: Any,
        ok: Any,
        failures: Sequence[Failure],
        report: EnsembleReport,
    ) -> None:
        self.parameters, self.values, self.gradients, self.aux = parameters, values, gradients, aux
        self.ok, self.failures = ok, list(failures)
        self._report = report

    def report(self) -> EnsembleReport:
        """Return who computed what, and what that took; prints as a table."""
        return self._report

    def check(self) -> EnsembleResult:
        """Return the result itself if no member failed; raise an `EnsembleError` that names those which did."""
        if self.failures:
            raise all_that_failed(self.failures, len(self.ok))
        return self

    def __len__(self) -> int:
        return len(self.ok)

    def __repr__(self) -> str:
        done = int(np.count_nonzero(self.ok))
        return f"<EnsembleResult of {len(self.ok)} members, {len(self.ok) - done} failed>"

    def __str__(self) -> str:
        lines = [str(self._report), *[f"failed: {failure}" for failure in self.failures[:_NAMED]]]
        if len(self.failures) > _NAMED:
            lines.append(f"and {len(self.failures) - _NAMED} more, see .failures")
        return "\n".join(lines)

    _repr_html_ = printed_as_html


def all_that_failed(failures: Sequence[Failure], count: int) -> EnsembleError:
    """Return the error that names the members that failed."""
    named = "\n".join(f"  {failure}" for failure in failures[:_NAMED])
    more = f"\n  and {len(failures) - _NAMED} more" if len(failures) > _NAMED else ""
    error = EnsembleError(f"{len(failures)} of {count} members failed:\n{named}{more}")
    error.failures = list(failures)
    return error


def _shown(parameters: Any) -> str:
    text = " ".join(repr(parameters).split())
    return text if len(text) <= 100 else f"{text[:97]}..."
