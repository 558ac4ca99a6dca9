"""Charts as SVG: lines over steps, a curve over budgets, blocks of memory, spectra.

A chart is drawn for a width of 460 and scales with its place. Beside the picture it gives what the script of the page
needs to show values under the pointer: places along the axis, and words for each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from unspool._engine.memory.sizes import format_bytes
from unspool._report.svg import Scale, can_be_logarithmic, element, number, text

WIDTH, HEIGHT = 460.0, 250.0
LEFT, RIGHT, TOP, BOTTOM = 62.0, 448.0, 14.0, 212.0

# Points that are marked by dots, at most.
_DOTS = 80


@dataclass
class Chart:
    """A picture and what is shown under the pointer: places, and lines of words for each."""

    svg: str
    places: list[float] = field(default_factory=list)
    tips: list[list[str]] = field(default_factory=list)

    def pointers(self) -> dict[str, Any]:
        """Return what the script needs."""
        return {"places": [round(x, 2) for x in self.places], "tips": self.tips}


@dataclass
class Line:
    """A series of points: its name, the colour by number, and numbers along both axes."""

    name: str
    colour: int
    xs: Sequence[float]
    ys: Sequence[float]
    dashed: bool = False


def line_chart(
    lines: Sequence[Line],
    *,
    x_label: str,
    label: str,
    log: bool | None = None,
    word: str = "step",
    level: tuple[float, str] | None = None,
    dots: bool = True,
) -> Chart:
    """Return a chart of lines, with dots on few points; logarithmic if that shows more. A ``level`` goes across."""
    points = [y for line in lines for y in line.ys]
    log = can_be_logarithmic(points) if log is None else log
    usable = [y for y in points if math.isfinite(y) and (y > 0 or not log)]
    if not usable:
        return Chart(frame(text((LEFT + RIGHT) / 2, 110, "no finite values", class_="note"), label=label))
    xs = [x for line in lines for x in line.xs]
    across = Scale(min(xs), max(xs), LEFT + 8, RIGHT - 8)
    reach = [*usable, *([level[0]] if level is not None and (level[0] > 0 or not log) else [])]
    up = padded(min(reach), max(reach), log)
    parts = [axes(across, up, x_label)]
    if level is not None:
        y = up(level[0])
        parts += [element("line", x1=LEFT, x2=RIGHT, y1=y, y2=y, class_="level")]
        parts += [text(RIGHT - 2, y - 4, level[1], class_="tick end")]
    for line in lines:
        parts.append(_curve(line, across, up, log, dots and len(line.xs) <= _DOTS))
    chart = Chart(frame(*parts, element("g", class_="cursor"), label=label))
    chart.places, chart.tips = _under_pointer(lines, across, word)
    return chart


def padded(low: float, high: float, log: bool) -> Scale:
    """Return a scale along the vertical axis with a little room at both ends."""
    if log:
        factor = max((high / low) ** 0.05, 1.05)
        return Scale(low / factor, high * factor, BOTTOM, TOP, log=True)
    room = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    return Scale(low - room, high + room, BOTTOM, TOP)


def axes(across: Scale, up: Scale, x_label: str, most: int = 6) -> str:
    """Return the axes of a chart: lines, ticks, and what goes across."""
    parts = []
    for value, label in up.ticks():
        y = up(value)
        parts += [element("line", x1=LEFT, x2=RIGHT, y1=y, y2=y, class_="grid")]
        parts += [text(LEFT - 6, y + 4, label, class_="tick end")]
    for value, label in across.ticks(most, whole=True):
        x = across(value)
        parts += [element("line", x1=x, x2=x, y1=BOTTOM, y2=BOTTOM + 4, class_="axis")]
        parts += [text(x, BOTTOM + 17, label, class_="tick middle")]
    parts += [element("line", x1=LEFT, x2=RIGHT, y1=BOTTOM, y2=BOTTOM, class_="axis")]
    parts += [text((LEFT + RIGHT) / 2, HEIGHT - 6, x_label, class_="tick middle")]
    return element("g", *parts)


def frame(*parts: str, label: str, height: float = HEIGHT, class_: str = "chart") -> str:
    """Return a picture."""
    return element("svg", *parts, viewBox=f"0 0 {WIDTH:g} {height:g}", role="img", aria_label=label, class_=class_)


def _curve(line: Line, across: Scale, up: Scale, log: bool, dots: bool) -> str:
    pieces: list[list[tuple[float, float]]] = [[]]
    for x, y in zip(line.xs, line.ys, strict=True):
        if math.isfinite(y) and (y > 0 or not log):
            pieces[-1].append((across(x), up(y)))
        elif pieces[-1]:
            pieces.append([])
    style = f"line c{line.colour}" + (" dashed" if line.dashed else "")
    parts = []
    for piece in pieces:
        if len(piece) > 1:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in piece)
            parts.append(element("polyline", points=path, class_=style))
        if len(piece) == 1 or dots:
            parts += [element("circle", cx=x, cy=y, r=2.6, class_=f"dot c{line.colour}") for x, y in piece]
    return element("g", *parts)


def _under_pointer(lines: Sequence[Line], across: Scale, word: str) -> tuple[list[float], list[list[str]]]:
    found: dict[float, list[str]] = {}
    for line in lines:
        for x, y in zip(line.xs, line.ys, strict=True):
            found.setdefault(x, [f"{word} {x:g}"]).append(f"{line.name}: {number(y, 10)}")
    order = sorted(found)
    return [across(x) for x in order], [found[x] for x in order]


# --- budgets ---------------------------------------------------------------------------------------------------------


def budget_chart(tables: Sequence[tuple[str, dict[str, Any]]], *, slider: bool = True) -> Chart:
    """Return the recompute factor against the budget, of one or several tables; a slider has a handle to move."""
    rows = [row for _, table in tables for row in table["rows"]]
    across, up = _budget_scales([table for _, table in tables])
    used = [table["used"] for _, table in tables]
    parts = [_byte_axes(across, up)]
    for colour, (_, table) in enumerate(tables):
        points = [(across(row["budget"]), up(row["factor"])) for row in table["rows"]]
        path = f"M{points[0][0]:.1f},{points[0][1]:.1f}" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in points[1:])
        parts.append(element("path", d=path, class_=f"line c{colour}"))
    for colour, point in enumerate(used):
        if point is not None and point["factor"] is not None:
            lowest, most = min(r["budget"] for r in rows), max(r["budget"] for r in rows)
            x = across(min(max(point["budget"], lowest), most))
            parts.append(element("circle", cx=x, cy=up(point["factor"]), r=5.5, class_=f"used c{colour}"))
    parts.append(element("g", class_="cursor"))
    if slider:
        parts.append(element("circle", r=5.0, cx=-20, cy=-20, class_="handle"))
    chart = Chart(frame(*parts, label="recompute factor against the memory budget"))
    for name, table in tables:
        for row in table["rows"]:
            chart.places.append(across(row["budget"]))
            chart.tips.append([f"budget {format_bytes(row['budget'])}", f"{name}factor {row['factor']:.3f}"])
    order = sorted(range(len(chart.places)), key=chart.places.__getitem__)
    chart.places = [chart.places[i] for i in order]
    chart.tips = [chart.tips[i] for i in order]
    return chart


def handle_places(table: dict[str, Any]) -> list[list[float]]:
    """Return where the slider puts its handle for each row of a table."""
    across, up = _budget_scales([table])
    return [[round(across(row["budget"]), 2), round(up(row["factor"]), 2)] for row in table["rows"]]


def _budget_scales(tables: Sequence[dict[str, Any]]) -> tuple[Scale, Scale]:
    budgets = [row["budget"] for table in tables for row in table["rows"]]
    factors = [row["factor"] for table in tables for row in table["rows"]]
    factors += [table["used"]["factor"] for table in tables if table["used"] is not None and table["used"]["factor"]]
    room = 0.06 * (max(factors) - 1 or 1)
    across = Scale(min(budgets), max(budgets), LEFT + 8, RIGHT - 8, log=True)
    return across, Scale(1.0 - room, max(factors) + room, BOTTOM, TOP)


def _byte_axes(across: Scale, up: Scale) -> str:
    parts = []
    for value, label in up.ticks():
        y = up(value)
        parts += [element("line", x1=LEFT, x2=RIGHT, y1=y, y2=y, class_="grid")]
        parts += [text(LEFT - 6, y + 4, f"{label} ×", class_="tick end")]
    for i, style in enumerate(("begin", "middle", "middle", "middle", "end")):
        value = 10 ** (across.low + (across.high - across.low) * i / 4)
        x = across(value)
        parts += [element("line", x1=x, x2=x, y1=BOTTOM, y2=BOTTOM + 4, class_="axis")]
        parts += [text(x, BOTTOM + 17, format_bytes(value), class_=f"tick {style}")]
    parts += [element("line", x1=LEFT, x2=RIGHT, y1=BOTTOM, y2=BOTTOM, class_="axis")]
    parts += [text((LEFT + RIGHT) / 2, HEIGHT - 6, "memory budget", class_="tick middle")]
    return element("g", *parts)


# --- memory ----------------------------------------------------------------------------------------------------------


def memory_chart(memory: dict[str, Any], texts: dict[str, str]) -> Chart:
    """Return memory over time as blocks: width is lifetime, height is size; each block says what it is."""
    blocks, count = memory["blocks"], memory["steps"]
    highest = max(block["base"] + block["bytes"] for block in blocks)
    across, up = Scale(0, 2 * count, LEFT, RIGHT), Scale(0, highest * 1.04, BOTTOM, TOP)
    parts = [_step_axes(across, up, count, highest)]
    for block in blocks:
        x, y = across(block["begin"]), up(block["base"] + block["bytes"])
        size = max(0.8, up(block["base"]) - y)
        odd = " odd" if block["steps"][0] // max(1, block["steps"][1] - block["steps"][0] + 1) % 2 else ""
        wide = max(0.8, across(block["end"]) - x)
        parts.append(
            element(
                "rect",
                x=x,
                y=y,
                width=wide,
                height=size,
                class_=f"block {block['fate']}{odd}",
                data_tip=_block_tip(block, texts),
            )
        )
    return Chart(frame(*parts, label="memory over time: forth through the steps, and back"))


def _block_tip(block: dict[str, Any], texts: dict[str, str]) -> str:
    first, last = block["steps"]
    steps = f"step {first}" if first == last else f"steps {first} to {last}"
    words = {"kept": "kept", "disk": "on disk", "recomputed": "recomputed"}[block["fate"]]
    lines = [f"{steps}: {format_bytes(block['bytes'])}, {words}"]
    for line, op, size in block["lines"]:
        lines.append(f"{format_bytes(size)} by {op} at {line}")
        if texts.get(line):
            lines.append(f"    {texts[line]}")
    return "\n".join(lines)


def _step_axes(across: Scale, up: Scale, count: int, highest: float) -> str:
    parts = []
    step = highest / 4
    for i in range(5):
        y = up(i * step)
        parts += [element("line", x1=LEFT, x2=RIGHT, y1=y, y2=y, class_="grid")]
        parts += [text(LEFT - 6, y + 4, format_bytes(i * step), class_="tick end")]
    middle = across(count)
    parts += [element("line", x1=middle, x2=middle, y1=TOP, y2=BOTTOM + 4, class_="level")]
    for at, label, style in ((0, "0", "begin"), (count, f"{count}", "middle"), (2 * count, "0", "end")):
        parts += [text(across(at), BOTTOM + 17, label, class_=f"tick {style}")]
    parts += [element("line", x1=LEFT, x2=RIGHT, y1=BOTTOM, y2=BOTTOM, class_="axis")]
    parts += [text(across(count / 2), HEIGHT - 6, "step, forth →", class_="tick middle")]
    parts += [text(across(3 * count / 2), HEIGHT - 6, "back →", class_="tick middle")]
    return element("g", *parts)


# --- spectra ---------------------------------------------------------------------------------------------------------

# Spectra that are drawn over each other.
_SPECTRA = 40


def spectrum_chart(cuts: Sequence[dict[str, Any]]) -> Chart:
    """Return spectra over each other, what was kept and what was cut off; the last one stands out."""
    stride = max(1, math.ceil(len(cuts) / _SPECTRA))
    shown = [cut for i, cut in enumerate(cuts) if (len(cuts) - 1 - i) % stride == 0]
    relative = [[v / (cut["values"][0] or 1.0) for v in cut["values"]] for cut in shown if cut["values"]]
    points = [v for values in relative for v in values if v > 0]
    longest = max((len(values) for values in relative), default=1)
    across = Scale(1, max(2, longest), LEFT + 8, RIGHT - 8)
    low = max(min(points, default=1e-3), 1e-18)
    up = Scale(low / 1.6, 1.6, BOTTOM, TOP, log=True)
    parts = [axes(across, up, "number of the value")]
    for at, (cut, values) in enumerate(zip(shown, relative, strict=False)):
        style = " last" if at + 1 == len(shown) else ""
        places = [(across(i + 1), up(max(v, low))) for i, v in enumerate(values)]
        for part, kind in ((places[: cut["rank"]], "held"), (places[max(0, cut["rank"] - 1) :], "cut")):
            if len(part) > 1:
                path = " ".join(f"{x:.1f},{y:.1f}" for x, y in part)
                parts.append(element("polyline", points=path, class_=f"spectrum {kind}{style}"))
        if style:
            parts += [
                element("circle", cx=x, cy=y, r=2.6, class_=f"value {'held' if i < cut['rank'] else 'cut'}")
                for i, (x, y) in enumerate(places)
            ]
    chart = Chart(frame(*parts, element("g", class_="cursor"), label="spectra at truncations"))
    last = shown[-1]
    for i, value in enumerate(last["values"]):
        chart.places.append(across(i + 1))
        kept = "kept" if i < last["rank"] else "cut off"
        chart.tips.append([f"value {i + 1} of {last['count']}, {kept}", number(value, 10), f"step {last['step']}"])
    return chart
