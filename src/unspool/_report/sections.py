"""The parts of the page of a report, each from its part of the data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from unspool._engine.memory.sizes import format_bytes
from unspool._report.charts import (
    Line,
    budget_chart,
    handle_places,
    line_chart,
    memory_chart,
    spectrum_chart,
)
from unspool._report.graph import program_picture
from unspool._report.page import Page, table
from unspool._report.places import made_at
from unspool._report.svg import can_be_logarithmic, element, escape, number, seconds

# Rows of the table of times, and series of what was read.
_MOST_ROWS, _MOST_SERIES, _FEW_LINES = 24, 8, 3

# More arrays than these that went in are shown when they are asked for.
_MOST_INPUTS = 12

# Digits of a digest that are shown; the raw data has all.
_DIGITS = 16

_SECTIONS = (
    ("convergence", "Convergence and cotangents"),
    ("memory", "Memory and budget"),
    ("program", "Program"),
    ("time", "Time"),
    ("spectra", "Spectra"),
    ("folding", "Folding"),
    ("settings", "Settings and data"),
)


def page_of(data: dict[str, Any]) -> str:
    """Return the page of a report."""
    page = Page(data["title"])
    page.add(_head(data))
    page.add(element("nav", *[element("a", escape(title), href=f"#about-{name}") for name, title in _SECTIONS]))
    page.add(_tiles(data))
    for name, title in _SECTIONS:
        content = _WRITERS[name](page, data)
        page.add(element("section", element("h2", escape(title), id_=f"about-{name}"), content))
    page.attach("data", data)
    return page.html()


def _head(data: dict[str, Any]) -> str:
    loss = data["loss"]
    where = made_at(loss["op"], loss["line"])
    text = data["lines"].get(loss["line"], "")
    code = f" {element('code', escape(text))}" if text else ""
    lead = f"Loss {escape(number(loss['value'], 12))}, {escape(where)}{code}. Made {escape(data['made'])}."
    return element("header", element("h1", escape(data["title"])), element("p", lead, class_="lead"))


def _tiles(data: dict[str, Any]) -> str:
    totals, budgets = data["times"]["totals"], data["budgets"]
    steps = data["steps"]["count"]
    norms = [v["norm"] for v in data["gradient"]["variables"]]
    tiles = [
        ("steps", f"{steps:,}" if steps else "no loop"),
        ("forward, op by op", seconds(totals.get("forward"))),
        ("backward, op by op", seconds(totals.get("backward"))),
        ("memory if all is kept", format_bytes(budgets["everything"]) if budgets["everything"] else "–"),
        ("least budget", format_bytes(budgets["least"])),
        ("norm of the gradient", number(math.sqrt(sum(n * n for n in norms)), 5) if norms else "–"),
    ]
    return element(
        "dl", *[element("div", element("dt", escape(a)), element("dd", escape(b))) for a, b in tiles], class_="tiles"
    )


# -- convergence --


def _convergence(page: Page, data: dict[str, Any]) -> str:
    cards = []
    sources: set[str] = set()
    for i, series in enumerate(data["readings"][:_MOST_SERIES]):
        # The first of each kind is what the loop is about.
        cards += _reading_cards(page, i, series, distance=series["source"] not in sources)
        sources.add(series["source"])
    arrived = data["cotangents"]
    if arrived["norms"]:
        line = Line("norm", 2, arrived["steps"], arrived["norms"])
        # Where nothing arrives the norm is 0, which a logarithmic axis leaves out.
        log = can_be_logarithmic([norm for norm in arrived["norms"] if norm > 0])
        chart = line_chart([line], x_label="step", label="norm of the cotangent of the state after each step", log=log)
        told = "What the loss sends back to the state after each step: large where a step mattered."
        if log and min(arrived["norms"]) == 0:
            told += " Where there is a gap, nothing arrives."
        cards.append(page.chart("cotangents", "Cotangent of the state, ‖∂ loss / ∂ state‖", chart, told))
    else:
        cards.append(_missing("Cotangent of the state", arrived["reason"] or "nothing arrives at a state"))
    if not data["readings"]:
        cards.insert(0, _missing("Convergence", "the loop read no number in its steps"))
    return element("p", escape(_about_steps(data)), class_="soft") + element("div", *cards, class_="cards")


def _about_steps(data: dict[str, Any]) -> str:
    steps = data["steps"]
    if not steps["count"]:
        return "No repetition was found in this program."
    how = {
        "iterate": "A loop in one call",
        "folded": "A plain loop, folded into calls of one body or several",
        "recorded": "A plain loop, too short to be folded",
    }[steps["form"]]
    ends = f"; a step is what ran for {steps['mark']}" if steps["mark"] else ""
    read = "Values are those that the program read or had a name for, computed once more from its recipe."
    return f"{how}: {steps['count']:,} steps{ends}. {read}"


def _reading_cards(page: Page, i: int, series: dict[str, Any], *, distance: bool) -> list[str]:
    """Return the chart of a series, and of its distance from the last value where its end cannot be seen."""
    values, steps, name = series["values"], series["steps"], series["name"]
    caption = escape(", ".join(filter(None, (series["line"], series["source"])))) + code_of(series.get("text", ""))
    sizes = [abs(value) for value in values]
    # Signs do not matter of what goes to zero.
    goes_to_zero = min(values) < 0 and can_be_logarithmic([size for size in sizes if size > 0])
    line = Line("value", i % 6, steps, sizes if goes_to_zero else values)
    told = f"{name}, without signs" if goes_to_zero else name
    cards = [page.chart(f"reading-{i}", told, line_chart([line], x_label="step", label=told), caption)]
    if distance and not can_be_logarithmic(line.ys):
        away = [(k, abs(value - values[-1])) for k, value in zip(steps, values, strict=True)]
        shown = [(k, a) for k, a in away if 0 < a < math.inf]
        if can_be_logarithmic([a for _, a in shown]):
            line = Line("distance", i % 6, [k for k, _ in shown], [a for _, a in shown], dashed=True)
            told = f"{name}: distance from the last value"
            cards.append(page.chart(f"distance-{i}", told, line_chart([line], x_label="step", label=told), caption))
    return cards


def code_of(text: str) -> str:
    """Return source text as a caption shows it."""
    return f"<br>{element('code', escape(text))}" if text else ""


def _missing(title: str, reason: str) -> str:
    return element("figure", element("h3", escape(title)), element("p", escape(reason), class_="soft"))


# -- memory --


def _memory(page: Page, data: dict[str, Any]) -> str:
    memory, budgets = data["memory"], data["budgets"]
    told = _budget_table(budgets) if budgets["rows"] else ""
    return element("div", _blocks(page, memory, data["lines"]), _budget(page, budgets), class_="cards") + told


def _blocks(page: Page, memory: dict[str, Any], texts: dict[str, str]) -> str:
    if not any(block["bytes"] for block in memory["blocks"]):
        return _missing("Memory over time", "no step of a loop leaves anything behind")
    words = {"kept": "kept", "recomputed": "recomputed", "disk": "on disk"}
    legend = element(
        "ul",
        *[
            element(
                "li", element("i", style=f"background:var(--{fate})"), f"{word}: {format_bytes(memory['bytes'][fate])}"
            )
            for fate, word in words.items()
            if memory["bytes"].get(fate)
        ],
        class_="legend",
    )
    told = (
        "What each step leaves for later steps and for the gradient, as it stood when the report was made. Width is "
        "lifetime, height is size: forth through the loop, then back. What was evicted is drawn where it was made, and "
        "again where the backward pass runs its steps once more, a block of them at a time."
    )
    return page.chart("memory-blocks", "Memory over time", memory_chart(memory, texts), told, legend)


def _budget(page: Page, budgets: dict[str, Any]) -> str:
    rows = budgets["rows"]
    if not rows:
        told = f"there are no steps to run again: the gradient takes {format_bytes(budgets['least'])}, or is refused"
        return _missing("Recompute factor against the budget", told)
    chart = budget_chart([("", budgets)])
    page.attach(
        "budgets",
        [{"at": at, "words": _row_words(row)} for at, row in zip(handle_places(budgets), rows, strict=True)],
    )
    start = _nearest_row(rows, budgets["used"])
    slider = element(
        "div",
        element("label", "Budget", for_="budget"),
        f'<input type="range" id="budget" min="0" max="{len(rows) - 1}" value="{start}">',
        element("output", escape(_row_words(rows[start])), id_="budget-told", for_="budget"),
        class_="slider",
    )
    used = escape(_used_words(budgets["used"]))
    return page.chart("budgets", "Recompute factor against the budget", chart, used, slider, id_="budgets-figure")


def _budget_table(budgets: dict[str, Any]) -> str:
    cells = [("budget", "factor", "predicted peak", "states kept", "steps in a block")]
    cells += [
        (format_bytes(r["budget"]), f"{r['factor']:.3f}", format_bytes(r["peak"]), str(r["slots"]), str(r["block"]))
        for r in budgets["rows"]
    ]
    content = element("div", table(cells, numeric=True), class_="scroll")
    return element("details", element("summary", "The budgets as a table"), content)


def _row_words(row: dict[str, Any]) -> str:
    return (
        f"{format_bytes(row['budget'])}: steps run {row['factor']:.3f} times, peak {format_bytes(row['peak'])}, "
        f"{_counted(row['slots'], 'state')} kept, {_counted(row['block'], 'step')} at once"
    )


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _nearest_row(rows: Sequence[dict[str, Any]], used: dict[str, Any] | None) -> int:
    if used is None:
        return len(rows) - 1
    return min(range(len(rows)), key=lambda i: abs(math.log(rows[i]["budget"] / max(1, used["budget"]))))


def _used_words(used: dict[str, Any] | None) -> str:
    if used is None:
        return "No budget was given: all was kept as long as there was room."
    words = f"Used: {format_bytes(used['budget'])}"
    if used["factor"] is not None:
        words += f", steps ran {used['factor']:.3f} times (ring)"
    return words + (f", peak {format_bytes(used['peak'])}." if used["peak"] else ".")


# -- program --


def _program(page: Page, data: dict[str, Any]) -> str:
    program = data["program"]
    told = f"{program['ops']:,} ops in {program['units']:,} evaluations of {program['bodies']:,} different bodies."
    picture = program_picture(program, number(data["loss"]["value"], 8), data["lines"])
    if not picture:
        return element("p", escape(told), class_="soft")
    legend = (
        '<ul class="legend"><li><i style="background:var(--c1)"></i>carried from step to step</li>'
        '<li><i style="background:var(--c2)"></i>streamed: another in each step</li>'
        '<li><i style="background:var(--soft)"></i>dashed: the same in all steps</li></ul>'
    )
    return element("p", escape(told), class_="soft") + element("figure", picture, class_="wide") + legend


# -- time --


def _time(page: Page, data: dict[str, Any]) -> str:
    rows, totals = data["times"]["rows"], data["times"]["totals"]
    if not rows:
        return element("p", "Nothing ran.", class_="soft")
    by_line, by_op = _gathered(rows, "line"), _gathered(rows, "op")
    words = ", ".join(f"{when} {seconds(value)}" for when, value in totals.items())
    told = f"Op by op: {words}. Plans and native loops are faster than that; shares are what this is for."
    reason = data["gradient"]["timing"]
    legend = "".join(
        f'<li><i style="background:var(--{colour})"></i>{when}</li>'
        for when, colour in (("forward", "c0"), ("backward", "c2"), ("recomputed", "recomputed"))
    )
    return (
        element("p", escape(told + (f" {reason.capitalize()}." if reason else "")), class_="soft")
        + element("ul", legend, class_="legend")
        + element("div", _times_table(by_line, ("line",), data["lines"]), class_="scroll")
        # All that a driver of ours does stands at the one line that calls it.
        + f"<details{' open' if len(by_line) < _FEW_LINES else ''}>"
        + element("summary", "By op")
        + element("div", _times_table(by_op, ("op",), data["lines"]), class_="scroll")
        + "</details>"
        + element(
            "details",
            element("summary", "By line and op"),
            element("div", _times_table(rows, ("line", "op"), data["lines"]), class_="scroll"),
        )
    )


def _gathered(rows: Sequence[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        entry = found.setdefault(row[key], {key: row[key], "calls": {}})
        for when in ("forward", "backward", "recomputed"):
            if when in row:
                entry[when] = entry.get(when, 0.0) + row[when]
                entry["calls"][when] = entry["calls"].get(when, 0) + row["calls"].get(when, 0)
    return sorted(found.values(), key=lambda row: -_whole(row))


def _whole(row: dict[str, Any]) -> float:
    return float(sum(row.get(when, 0.0) for when in ("forward", "backward", "recomputed")))


def _times_table(rows: Sequence[dict[str, Any]], names: Sequence[str], texts: dict[str, str]) -> str:
    most = max(_whole(row) for row in rows) or 1.0
    head = element(
        "tr", *[element("th", name) for name in names], '<th class="bar"></th>', *_heads("forward", "backward", "calls")
    )
    body = []
    for row in rows[:_MOST_ROWS]:
        cells = [element("td", escape(row[name]) + (_source(row, texts) if name == "line" else "")) for name in names]
        bars = "".join(
            f'<span class="{when}" style="width:{100 * row[when] / most:.1f}%"></span>'
            for when in ("forward", "recomputed", "backward")
            if when in row
        )
        calls = sum(row["calls"].values())
        back = row.get("backward", 0.0) + row.get("recomputed", 0.0)
        cells += [element("td", bars, class_="bar")]
        cells += [
            element("td", seconds(row.get("forward")), class_="n"),
            element("td", seconds(back or None), class_="n"),
        ]
        cells += [element("td", f"{calls:,}", class_="n")]
        body.append(element("tr", *cells))
    left = len(rows) - _MOST_ROWS
    more = element("p", f"{left} more in the raw data.", class_="soft") if left > 0 else ""
    return element("table", element("thead", head), element("tbody", *body)) + more


def _source(row: dict[str, Any], texts: dict[str, str]) -> str:
    return code_of(texts.get(row["line"], ""))


def _heads(*names: str) -> list[str]:
    return [element("th", name, class_="n") for name in names]


# -- spectra --


def _spectra(page: Page, data: dict[str, Any]) -> str:
    spectra = data["spectra"]
    cuts = spectra["shown"]
    if not cuts:
        more = f" {spectra['without_cut']:,} decompositions were not cut." if spectra["without_cut"] else ""
        return element("p", f"Nothing was truncated.{more}", class_="soft")
    told = (
        f"{spectra['truncations']:,} truncations"
        + (f", every {spectra['every']}th is shown" if spectra["every"] > 1 else "")
        + ". The margin is the least gap that derivatives divide by, beside the tolerance below which values are equal."
    )
    cards = [
        page.chart(
            "spectrum",
            "Values relative to the largest",
            spectrum_chart(cuts),
            "Blue is kept, orange is cut off; the last truncation stands out.",
        )
    ]
    numbers = list(range(len(cuts)))
    margins = [(k, cut["margin"]) for k, cut in zip(numbers, cuts, strict=True) if cut["margin"] is not None]
    if any(m > 0 for _, m in margins):
        line = Line("margin", 3, [k for k, _ in margins], [m for _, m in margins])
        chart = line_chart(
            [line], x_label="truncation", label="gauge margin", log=True, word="truncation", level=(1.0, "equal")
        )
        cards.append(page.chart("margins", "Gauge margin", chart, "Below 1, values count as equal."))
    gaps = [(k, cut["gap"]) for k, cut in zip(numbers, cuts, strict=True) if cut["gap"]]
    lost = [(k, cut["discarded_weight"]) for k, cut in zip(numbers, cuts, strict=True) if cut["discarded_weight"] > 0]
    lines = [Line("gap at the cut", 0, [k for k, _ in gaps], [g for _, g in gaps])] if gaps else []
    lines += [Line("discarded weight", 1, [k for k, _ in lost], [w for _, w in lost])] if lost else []
    if lines:
        chart = line_chart(lines, x_label="truncation", label="gaps and discarded weights", log=True, word="truncation")
        cards.append(page.chart("gaps", "Gap at the cut (blue) and discarded weight (orange)", chart))
    return element("p", escape(told), class_="soft") + element("div", *cards, class_="cards")


# -- folding --


def _folding(page: Page, data: dict[str, Any]) -> str:
    rows = data["unfolded"]
    if not rows:
        return element("p", "Everything folded that repeats.")
    cells = [("line", "why it did not fold"), *[(row["line"], row["reason"]) for row in rows]]
    return element("div", table(cells), class_="scroll")


# -- settings --


def _settings(page: Page, data: dict[str, Any]) -> str:
    given = dict(data["settings"])
    environment = given.pop("environment", {})
    given["memory budget"] = format_bytes(given["memory budget"])
    facts = [*data["versions"].items(), *[(f"BLAS {k}", v) for k, v in data["blas"].items()]]
    facts += [(k, _fact(v)) for k, v in given.items()] + list(environment.items())
    inputs = [("input", "shape", "dtype", "size", "SHA-256")]
    inputs += [
        (
            (row["name"] or row["line"]) + (f" ({row['count']} times)" if row["count"] > 1 else ""),
            "×".join(map(str, row["shape"])) or "scalar",
            row["dtype"],
            format_bytes(row["bytes"]),
            f"{row['sha256'][:_DIGITS]}…" if row["sha256"] else "too large",
        )
        for row in data["inputs"]
    ]
    shown = element("div", table(inputs), class_="scroll")
    said = f"{sum(row['count'] for row in data['inputs']):,} arrays"
    save = element("a", "Save the raw data as JSON", href="#data", download="report.json", data_save="data")
    return (
        element("p", save, class_="screen")
        + element("div", table([("", ""), *[(str(a), str(b)) for a, b in facts]]), class_="scroll")
        + element("h3", "What went in")
        + (shown if len(data["inputs"]) <= _MOST_INPUTS else element("details", element("summary", said), shown))
    )


def _fact(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value) if isinstance(value, int | float) else str(value)


_WRITERS = {
    "convergence": _convergence,
    "memory": _memory,
    "program": _program,
    "time": _time,
    "spectra": _spectra,
    "folding": _folding,
    "settings": _settings,
}
