"""Ratios and tables from measured rows.

Everything here is arithmetic on rows, so it can be tested with numbers made up. A ratio is ours divided by theirs:
below 1 is faster, or smaller. Ours is the fastest of our forms, the best peer the fastest peer that is right.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Literal

from bench.suite.workload import Row

STATES = {
    "NaN": "NaN",
    "wrong": "wrong",
    "missing": "not installed",
    "cannot": "cannot",
    "failed": "failed",
    "slow": "too slow",
}

Amount = Literal["seconds", "first", "resident", "live"]


# --- ratios -----------------------------------------------------------------------------------------------------------


def fastest(rows: Iterable[Row], kind: str) -> Row | None:
    """Return the row of the fastest form of a kind among those that were right and timed."""
    timed = [row for row in rows if row.kind == kind and row.state == "ok" and row.seconds is not None]
    return min(timed, key=lambda row: row.seconds or 0.0, default=None)


def ratio(ours: Row | None, theirs: Row | None, amount: Amount = "seconds") -> float | None:
    """Return ours divided by theirs, or ``None`` if a number is missing."""
    if ours is None or theirs is None:
        return None
    one, other = getattr(ours, amount), getattr(theirs, amount)
    return None if one is None or not other else float(one / other)


def by_case(rows: Iterable[Row], axis: str = "") -> dict[str, list[Row]]:
    """Return the rows of a workload by case, which is the empty string where there is only one.

    A case whose rows all have an ``x`` is divided by it.
    """
    divided: dict[str, list[Row]] = {}
    for case, members in _cases(rows).items():
        for row in members:
            point = f"{row.x:g} {axis}".strip() if is_curve(members) else ""
            divided.setdefault(", ".join(filter(None, (case, point))), []).append(row)
    return divided


def _cases(rows: Iterable[Row]) -> dict[str, list[Row]]:
    cases: dict[str, list[Row]] = {}
    for row in rows:
        cases.setdefault(row.case, []).append(row)
    return cases


def is_curve(rows: Sequence[Row]) -> bool:
    """Whether the rows of a case are points along an axis."""
    return all(row.x is not None for row in rows)


def at_the_end(rows: Iterable[Row]) -> list[Row]:
    """Return the rows without those of a case divided by ``x`` that are not at the largest one."""
    kept = []
    for members in _cases(rows).values():
        largest = max((row.x or 0.0 for row in members), default=0.0)
        kept += [row for row in members if not is_curve(members) or row.x == largest]
    return kept


# --- numbers as text --------------------------------------------------------------------------------------------------


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


# --- tables -----------------------------------------------------------------------------------------------------------

COLUMNS = ("time", "quartiles", "to ours", "first call", "live", "growth", "steps")


def cells(row: Row, ours: Row | None) -> tuple[str, ...]:
    """Return what was measured of a form, a cell for each of the columns."""
    return (
        duration(row.seconds),
        f"{duration(row.low)}–{duration(row.high)}" if row.rounds > 1 else "–",
        times(ratio(row, ours)),
        duration(row.first),
        volume(row.live),
        volume(row.resident),
        str(row.steps or "–"),
    )


def table(title: str, rows: Sequence[Row], axis: str = "") -> str:
    """Return what was measured of a workload, a line for each form whose library is installed."""
    lines = []
    for case, members in by_case((row for row in rows if row.state != "missing"), axis).items():
        names = {id(row): name_of(row, members) for row in members}
        ours, width = fastest(members, "ours"), max(20, *(len(name) + 2 for name in names.values()))
        lines += ["", title + (f" · {case}" if case else "")]
        lines.append(" " * (width + 2) + _spaced(COLUMNS))
        for row in members:
            told = f"{STATES[row.state]:>12}" if row.state != "ok" else _spaced(cells(row, ours))
            lines.append(f"  {names[id(row)]:<{width}}{told}   {row.note}".rstrip())
    return "\n".join(lines)


def _spaced(texts: Iterable[str]) -> str:
    return "".join(
        f"{text:>{18 if column == 'quartiles' else 12}}" for column, text in zip(COLUMNS, texts, strict=True)
    )


def name_of(row: Row, rows: Sequence[Row]) -> str:
    """Return the form, with its ``x`` where the table does not stand for one."""
    return row.form if row.x is None or is_curve(rows) else f"{row.form}, {row.x:g}"


HEAD = ("workload", "ours", "time", "best peer", "ours / peer", "growth", "live", "limit", "ours / limit")


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
        times(ratio(ours, peer, "resident")),
        times(ratio(ours, peer, "live")),
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


def aligned(lines: Sequence[tuple[str, ...]], head: tuple[str, ...] = HEAD) -> str:
    """Return a table in plain text."""
    widths = [max(len(line[column]) for line in (head, *lines)) for column in range(len(head))]
    return "\n".join(
        "  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in (head, *lines)
    )


def markdown(lines: Sequence[tuple[str, ...]], head: tuple[str, ...] = HEAD) -> str:
    """Return a table for a document."""
    rule = tuple("---" for _ in head)
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *lines))


def missing(rows: Iterable[Row]) -> str:
    """Return the libraries that are not installed, in a line, or nothing."""
    names = dict.fromkeys(row.library for row in rows if row.state == "missing")
    return f"not installed and left out: {', '.join(names)}" if names else ""


def busy(rows: Iterable[Row]) -> float:
    """Return the median of how busy the core was with others, 1 for not at all."""
    return statistics.median([row.busy for row in rows if row.busy is not None] or [1.0])
