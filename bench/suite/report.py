"""Tables, ratios and bars from measured rows.

Everything here is arithmetic on rows, so it can be tested with numbers made up. A ratio is ours divided by theirs:
below 1 is faster, or smaller. Ours is the fastest of our forms, the best peer the fastest peer that is right.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.suite.workload import Bar, Row, Special, Workload

STATES = {"NaN": "NaN", "wrong": "wrong", "missing": "not installed", "cannot": "cannot", "failed": "failed"}


# --- ratios -----------------------------------------------------------------------------------------------------------


def fastest(rows: Iterable[Row], kind: str) -> Row | None:
    """Return the row of the fastest form of a kind among those that were right and timed."""
    timed = [row for row in rows if row.kind == kind and row.state == "ok" and row.seconds is not None]
    return min(timed, key=lambda row: row.seconds or 0.0, default=None)


def ratio(ours: Row | None, theirs: Row | None, quantity: str = "time") -> float | None:
    """Return ours divided by theirs, or ``None`` if a number is missing.

    Memory is that of live bytes where both tell and of resident growth where one cannot.
    """
    if ours is None or theirs is None:
        return None
    if quantity == "memory":
        pair = (ours.live, theirs.live)
        if None in pair:
            pair = (ours.resident, theirs.resident)
    else:
        name = "first" if quantity == "first" else "seconds"
        pair = (getattr(ours, name), getattr(theirs, name))
    if pair[0] is None or not pair[1]:
        return None
    return float(pair[0] / pair[1])


def by_case(rows: Iterable[Row], axis: str = "") -> dict[str, list[Row]]:
    """Return the rows of a workload by case, which is the empty string where there is only one.

    A case whose rows all have an ``x`` is divided by it.
    """
    cases: dict[str, list[Row]] = {}
    for row in rows:
        cases.setdefault(row.case, []).append(row)
    divided: dict[str, list[Row]] = {}
    for case, members in cases.items():
        for row in members:
            point = f"{row.x:g} {axis}".strip() if is_curve(members) else ""
            divided.setdefault(", ".join(filter(None, (case, point))), []).append(row)
    return divided


def is_curve(rows: Sequence[Row]) -> bool:
    """Whether the rows of a case are points along an axis."""
    return all(row.x is not None for row in rows)


def at_the_end(rows: Iterable[Row]) -> list[Row]:
    """Return the rows without those of a case divided by ``x`` that are not at the largest one."""
    cases: dict[str, list[Row]] = {}
    for row in rows:
        cases.setdefault(row.case, []).append(row)
    kept = []
    for members in cases.values():
        largest = max((row.x or 0.0 for row in members), default=0.0)
        kept += [row for row in members if not is_curve(members) or row.x == largest]
    return kept


# --- bars -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """A bar and what came of it: ``measured`` is the ratio, and ``held`` is ``None`` if it could not be decided."""

    workload: str
    bar: Bar
    what: str
    measured: float | None
    held: bool | None

    def __str__(self) -> str:
        word = {True: "pass", False: "MISS", None: "–"}[self.held]
        numbers = ""
        if self.bar.quantity != "right":
            measured = "not measured" if self.measured is None else f"{self.measured:.2f} ×"
            numbers = f"{measured:>14}   ≤ {self.bar.most:.2f} ×"
        return f"  {word:<5} {self.workload:<4} {self.what:<84}{numbers}"


def judge(workload: Workload | Special, rows: Sequence[Row], size: str) -> list[Verdict]:
    """Decide the bars of a workload that are meant for this size."""
    return [_decide(workload.key, bar, rows) for bar in workload.bars if bar.size == size]


def _decide(key: str, bar: Bar, rows: Sequence[Row]) -> Verdict:
    rows = at_the_end(row for row in rows if not bar.case or row.case == bar.case)
    if bar.quantity == "right":
        return _decide_right(key, bar, rows)
    ours = _named(rows, bar.ours) if bar.ours else fastest(rows, "ours")
    theirs = fastest(rows, bar.against) if bar.against in ("peer", "limit") else _named(rows, bar.against)
    measured = ratio(ours, theirs, bar.quantity)
    held = None if measured is None else measured <= bar.most
    quantity = {"time": "time", "memory": "memory", "first": "first call"}[bar.quantity]
    against = theirs.form if theirs else bar.against
    role = {"peer": " (best peer)", "limit": " (limit)"}.get(bar.against, "")
    what = f"{quantity} of {ours.form if ours else bar.ours or 'ours'} beside {against}{role}"
    return Verdict(key, bar, what + (f", {bar.case}" if bar.case else ""), measured, held)


def _named(rows: Sequence[Row], name: str) -> Row | None:
    return next((row for row in rows if row.form == name and row.state == "ok"), None)


def _decide_right(key: str, bar: Bar, rows: Sequence[Row]) -> Verdict:
    """Ours must be right; those named must not be, or not take part."""
    ours = [row for row in rows if row.kind == "ours"]
    right = bool(ours) and all(row.state == "ok" for row in ours)
    names = [name.strip() for name in bar.against.split(";") if name.strip()]
    others = [row for row in rows if row.form in names]
    failing = [row for row in others if row.state in ("NaN", "wrong", "failed")]
    told = ", ".join(f"{row.form} {STATES.get(row.state, 'right')}" for row in others)
    decided = [row for row in others if row.state != "missing"]
    return Verdict(key, bar, "ours right" + (f"; {told}" if told else ""), None, right and failing == decided)


# --- tables -----------------------------------------------------------------------------------------------------------


def duration(seconds: float | None) -> str:
    """Return a time with three digits and a unit that fits."""
    if seconds is None:
        return "–"
    for scale, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}" if seconds < 1000 * scale else f"{seconds / scale:.0f} {unit}"
    return f"{seconds / 1e-6:.3g} µs"


def volume(count: int | None) -> str:
    """Return bytes in MB, with three digits."""
    if count is None:
        return "–"
    megabytes = count / 1e6
    return f"{megabytes:.0f} MB" if megabytes >= 1000 else f"{megabytes:.3g} MB"


def times(number: float | None) -> str:
    """Return a ratio, or a dash."""
    if number is None:
        return "–"
    return f"{number:.0f} ×" if number >= 100 else f"{number:.2f} ×"


def table(title: str, rows: Sequence[Row], axis: str = "") -> str:
    """Return what was measured of a workload, a line for each form whose library is installed."""
    lines = []
    for case, members in by_case((row for row in rows if row.state != "missing"), axis).items():
        names = {id(row): _name(row, members) for row in members}
        ours, width = fastest(members, "ours"), max(20, *(len(name) + 2 for name in names.values()))
        lines += ["", title + (f" · {case}" if case else "")]
        head = ("time", "quartiles", "to ours", "first call", "live", "growth", "steps")
        lines.append(" " * (width + 2) + "".join(f"{name:>{18 if name == 'quartiles' else 12}}" for name in head))
        for row in members:
            lines.append(f"  {names[id(row)]:<{width}}" + _line(row, ours))
    return "\n".join(lines)


def _name(row: Row, rows: Sequence[Row]) -> str:
    """Return the form, with its ``x`` where the table does not stand for one."""
    return row.form if row.x is None or is_curve(rows) else f"{row.form}, {row.x:g}"


def _line(row: Row, ours: Row | None) -> str:
    if row.state != "ok":
        return f"{STATES[row.state]:>12}   {row.note}"
    spread = f"{duration(row.low)}–{duration(row.high)}" if row.rounds > 1 else "–"
    cells = (
        f"{duration(row.seconds):>12}{spread:>18}{times(ratio(row, ours)):>12}{duration(row.first):>12}"
        f"{volume(row.live):>12}{volume(row.resident):>12}{row.steps or '–':>12}"
    )
    return f"{cells}   {row.note}".rstrip()


HEAD = ("workload", "ours", "time", "best peer", "ours / peer", "memory", "limit", "ours / limit")


def summary_line(key: str, case: str, rows: Sequence[Row]) -> tuple[str, ...]:
    """Return a line of the table of all workloads: ours, the best peer and the limit, as ratios."""
    ours, peer, limit = (fastest(rows, kind) for kind in ("ours", "peer", "limit"))
    named = [f"{row.form}, {duration(row.seconds)}" if row else "–" for row in (peer, limit)]
    return (
        f"{key} {case}".strip(),
        ours.form if ours else "–",
        duration(ours.seconds if ours else None),
        named[0],
        times(ratio(ours, peer)),
        times(ratio(ours, peer, "memory")),
        named[1],
        times(ratio(ours, limit)),
    )


def summary(measured: dict[str, list[Row]]) -> list[tuple[str, ...]]:
    """Return the table of all workloads, without its head; of a curve only the end."""
    return [
        summary_line(key, case, members)
        for key, rows in measured.items()
        for case, members in by_case(at_the_end(rows)).items()
    ]


def aligned(lines: Sequence[tuple[str, ...]]) -> str:
    """Return a table in plain text."""
    widths = [max(len(line[column]) for line in (HEAD, *lines)) for column in range(len(HEAD))]
    return "\n".join(
        "  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in (HEAD, *lines)
    )


def markdown(lines: Sequence[tuple[str, ...]]) -> str:
    """Return the same table for a document."""
    rule = tuple("---" for _ in HEAD)
    return "\n".join("| " + " | ".join(line) + " |" for line in (HEAD, rule, *lines))


def missing(rows: Iterable[Row]) -> str:
    """Return the libraries that are not installed, in a line, or nothing."""
    names = dict.fromkeys(row.library for row in rows if row.state == "missing")
    return f"not installed and left out: {', '.join(names)}" if names else ""


def busy(rows: Iterable[Row]) -> float:
    """Return the median of how busy the core was with others, 1 for not at all."""
    return statistics.median([row.busy for row in rows if row.busy is not None] or [1.0])


def as_json(verdict: Verdict) -> dict[str, Any]:
    """Return a bar and its outcome as it stands in the file of results."""
    return {
        "workload": verdict.workload,
        "what": verdict.what,
        "quantity": verdict.bar.quantity,
        "measured": verdict.measured,
        "most": None if verdict.bar.quantity == "right" else verdict.bar.most,
        "held": verdict.held,
    }
