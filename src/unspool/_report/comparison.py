"""Two reports in one page: curves over each other, numbers side by side, and what differs in where they ran."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from unspool._engine.memory.sizes import format_bytes
from unspool._report.charts import Line, budget_chart, line_chart
from unspool._report.page import Page, table
from unspool._report.svg import element, escape, number, seconds

# Rows of a table of times.
_MOST_ROWS = 24


def comparison_of(first: dict[str, Any], second: dict[str, Any]) -> str:
    """Return the page that compares two reports."""
    both = (first, second)
    names = _names(first, second)
    page = Page(f"{names[0]} and {names[1]}")
    page.add(
        element("header", element("h1", escape(f"{names[0]} beside {names[1]}")), _legend(names)),
        element("section", element("h2", "Numbers"), _numbers(both, names)),
        element("section", element("h2", "Convergence and cotangents"), _curves(page, both, names)),
        element("section", element("h2", "Budget"), _budgets(page, both, names)),
        element("section", element("h2", "Time by line"), _times(both, names)),
        element("section", element("h2", "What differs"), _differences(both, names)),
    )
    page.attach("data", {"first": first, "second": second})
    return page.html()


def _names(first: dict[str, Any], second: dict[str, Any]) -> tuple[str, str]:
    """Return what the reports are called, so that they can be told apart."""
    one, other = str(first["title"]), str(second["title"])
    return (one, other) if one != other else (f"{one} (first)", f"{other} (second)")


def _legend(names: Sequence[str]) -> str:
    entries = [
        element("li", element("i", style=f"background:var(--c{i})"), escape(name)) for i, name in enumerate(names)
    ]
    return element("ul", *entries, class_="legend")


def _numbers(both: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    rows = [
        ("made", *[data["made"] for data in both]),
        ("loss", *[number(data["loss"]["value"], 14) for data in both]),
        ("steps", *[f"{data['steps']['count']:,}" for data in both]),
    ]
    for when in ("forward", "backward", "recomputed"):
        rows.append((f"{when}, op by op", *[seconds(data["times"]["totals"].get(when)) for data in both]))
    rows += [
        ("memory if all is kept", *[_bytes(data["budgets"]["everything"]) for data in both]),
        ("least budget", *[_bytes(data["budgets"]["least"]) for data in both]),
        ("ops", *[f"{data['program']['ops']:,}" for data in both]),
        ("different bodies", *[f"{data['program']['bodies']:,}" for data in both]),
        ("truncations", *[f"{data['spectra']['truncations']:,}" for data in both]),
        ("least gauge margin", *[number(_least_margin(data), 4) for data in both]),
    ]
    for name in _ordered(v["name"] for data in both for v in data["gradient"]["variables"]):
        rows.append((f"norm of the gradient, {name}", *[number(_gradient(data, name), 10) for data in both]))
    return element("div", table([("", *names), *rows]), class_="scroll")


def _bytes(size: int | None) -> str:
    return "–" if not size else format_bytes(size)


def _least_margin(data: dict[str, Any]) -> float | None:
    return min((cut["margin"] for cut in data["spectra"]["shown"] if cut["margin"] is not None), default=None)


def _gradient(data: dict[str, Any], name: str) -> float | None:
    return next((v["norm"] for v in data["gradient"]["variables"] if v["name"] == name), None)


def _ordered(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


# --- curves ----------------------------------------------------------------------------------------------------------


def _curves(page: Page, both: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    cards = []
    for i, pair in enumerate(_paired_readings(*both)):
        lines = [
            Line(name, colour, series["steps"], series["values"], dashed=colour == 1)
            for colour, (name, series) in enumerate(zip(names, pair, strict=True))
            if series is not None
        ]
        title = next(series["name"] for series in pair if series is not None)
        chart = line_chart(lines, x_label="step", label=title, dots=False)
        cards.append(page.chart(f"reading-{i}", title, chart))
    lines = [
        Line(name, colour, data["cotangents"]["steps"], data["cotangents"]["norms"], dashed=colour == 1)
        for colour, (name, data) in enumerate(zip(names, both, strict=True))
        if data["cotangents"]["norms"]
    ]
    if lines:
        chart = line_chart(lines, x_label="step", label="norms of the cotangents of the states", dots=False)
        cards.append(page.chart("cotangents", "Cotangent of the state, ‖∂ loss / ∂ state‖", chart))
    return element("div", *cards, class_="cards") if cards else element("p", "No steps to compare.", class_="soft")


def _paired_readings(first: dict[str, Any], second: dict[str, Any]) -> list[tuple[Any, Any]]:
    """Return the series of both reports that have the same name; others of the same rank are taken to be the same."""
    left, right = list(first["readings"]), list(second["readings"])
    found = []
    for series in list(left):
        other = next((s for s in right if s["name"] == series["name"]), None)
        if other is not None:
            found.append((series, other))
            left.remove(series)
            right.remove(other)
    while left or right:
        found.append((left.pop(0) if left else None, right.pop(0) if right else None))
    return found


def _budgets(page: Page, both: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    tables = [(f"{name}: ", data["budgets"]) for name, data in zip(names, both, strict=True) if data["budgets"]["rows"]]
    if not tables:
        return element("p", "No steps to run again in either.", class_="soft")
    chart = budget_chart(tables, slider=False)
    return element("div", page.chart("budgets", "Recompute factor against the budget", chart), class_="cards")


# --- tables ----------------------------------------------------------------------------------------------------------


def _times(both: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    totals: list[dict[str, float]] = []
    for data in both:
        found: dict[str, float] = {}
        for row in data["times"]["rows"]:
            spent = sum(row.get(when, 0.0) for when in ("forward", "backward", "recomputed"))
            found[_line(data, row["line"])] = found.get(_line(data, row["line"]), 0.0) + spent
        totals.append(found)
    lines = sorted({*totals[0], *totals[1]}, key=lambda line: -max(t.get(line, 0.0) for t in totals))[:_MOST_ROWS]
    rows = [("line", *names, "second by first")]
    for line in lines:
        one, other = totals[0].get(line), totals[1].get(line)
        ratio = f"{other / one:.2f} ×" if one and other else "–"
        rows.append((line, seconds(one), seconds(other), ratio))
    return element("div", table(rows), class_="scroll")


def _line(data: dict[str, Any], line: str) -> str:
    """Return what a line says, by which lines of two programs are told to be the same."""
    text = data["lines"].get(line, "")
    return f"{line.rpartition(':')[0]}: {text}" if text else line


def _differences(both: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    facts = [_facts(data) for data in both]
    rows = [("", *names)]
    for name in _ordered([*facts[0], *facts[1]]):
        values = [fact.get(name, "–") for fact in facts]
        if values[0] != values[1]:
            rows.append((name, *values))
    if len(rows) == 1:
        return element("p", "Versions, settings and inputs are the same in both.")
    return element("div", table(rows), class_="scroll")


def _facts(data: dict[str, Any]) -> dict[str, str]:
    """Return what surrounds a run, by name, as text."""
    found = {name: str(value) for name, value in data["versions"].items()}
    found |= {f"BLAS {name}": str(value) for name, value in data["blas"].items()}
    for name, value in data["settings"].items():
        if isinstance(value, dict):
            found |= {str(k): str(v) for k, v in value.items()}
        else:
            found[name] = format_bytes(value) if name == "memory budget" else str(value)
    for i, row in enumerate(data["inputs"]):
        digest = row["sha256"] or "too large"
        found[f"input {row['name'] or i}"] = f"{'×'.join(map(str, row['shape'])) or 'scalar'} {row['dtype']}, {digest}"
    return found
