"""Time by source line and op, forward and backward.

This module is all that a report knows of times: who runs ops tells `Times`, and it has the rows. Ops are timed one by
one, so what plans and native loops save is not seen. A loop is one op to whoever runs it: one step of it is run op by
op, and its time is shared out so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unspool._autodiff.sweeps.chain import CHAIN
from unspool._nan.repetition import Repetition, repetition_of_chain, repetition_of_loop
from unspool._report.iterated import is_loop, loop_in
from unspool._report.places import Lines, Origin
from unspool._report.units import run_plan

FORWARD, BACKWARD, RECOMPUTED = "forward", "backward", "recomputed"


class Times:
    """Seconds and calls by line, op and pass.

    Parameters
    ----------
    lines : Lines
    places : mapping of (code, offset) to (code, offset)
        Derivatives are derived once for all programs that have a body in common, and have the places of the first of
        these. This says which places they are in the program that is timed.
    """

    def __init__(self, lines: Lines, places: Mapping[Origin, Origin]) -> None:
        self._lines, self._places = lines, places
        self._rows: dict[tuple[str, str], dict[str, list[float]]] = {}

    def add(self, when: str, origin: Origin, op: str, seconds: float, calls: float = 1) -> None:
        """Note that an op took some time."""
        if when != FORWARD:
            origin = self._places.get(origin, origin)
        row = self._rows.setdefault((self._lines.name(origin), op), {})
        entry = row.setdefault(when, [0.0, 0.0])
        entry[0] += seconds
        entry[1] += calls

    def totals(self) -> dict[str, float]:
        """Return the seconds of each pass."""
        found: dict[str, float] = {}
        for row in self._rows.values():
            for when, (seconds, _) in row.items():
                found[when] = found.get(when, 0.0) + seconds
        return found

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows as plain data, what took longest first."""
        found = [
            {"line": line, "op": op}
            | {when: seconds for when, (seconds, _) in row.items()}
            | {"calls": {when: round(calls) for when, (_, calls) in row.items()}}
            for (line, op), row in self._rows.items()
        ]
        return sorted(found, key=lambda row: -sum(row.get(when, 0.0) for when in (FORWARD, BACKWARD, RECOMPUTED)))

    def note(self, when: str, op: Any, params: Any, origin: Origin, inputs: Sequence[Any], seconds: float) -> None:
        """Note an op that ran; what a loop took is shared out among its ops, as one step of it takes."""
        steps, shares = _shares(op, params, inputs)
        whole = sum(share for _, _, share in shares)
        if whole > 0:
            for place, name, share in shares:
                self.add(when, place, name, seconds * share / whole, steps)
        else:
            self.add(when, origin, op.name, seconds)


def _shares(op: Any, params: Any, inputs: Sequence[Any]) -> tuple[int, list[tuple[Origin, str, float]]]:
    """Return how many steps a loop has, and how long each op of one takes; nothing for what is not a loop."""
    if op is CHAIN:
        steps = repetition_of_chain(params["chain"], inputs)
    elif is_loop(op):
        steps = repetition_of_loop(loop_in(op, params), inputs)
    else:
        return 0, []
    return len(steps.order), _one_step(steps)


def _one_step(steps: Repetition) -> list[tuple[Origin, str, float]]:
    found: list[tuple[Origin, str, float]] = []

    def note(op: Any, params: Any, origin: Origin, inputs: Any, value: Any, seconds: float) -> None:
        found.append((origin, op.name, seconds))

    first = steps.order[0]
    plan = steps.body(first).plan
    run_plan(plan, steps.values(first, steps.start()), plan.fragment.origins, note)
    return found
