"""Pictures of measured rows: bars for each workload, growth curves, memory against budget, and all ratios in one.

Ours is blue, peers are orange and the limit is grey in every picture. A form without a number stands in its place with
the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from bench.suite.report import STATES, at_the_end, by_case, duration, fastest, ratio, volume
from bench.suite.workload import Row, Special, Workload

COLOURS = {"ours": "#1f6fb4", "peer": "#e08a2e", "limit": "#8a8a8a"}
NAMES = {"ours": "unspool", "peer": "peers", "limit": "limit: adjoint by hand"}

# Curves of one kind are told apart by shade and mark.
SHADES = {
    "ours": ("#0b3c6f", "#1f6fb4", "#6fb1e4", "#a9d3f2"),
    "peer": ("#b3541e", "#e08a2e", "#c23b5a", "#7a4fa3", "#d9b310"),
    "limit": ("#4d4d4d", "#8a8a8a", "#bdbdbd"),
}
MARKS = "osD^vPX"


def draw(workloads: dict[str, Workload | Special], rows: dict[str, list[Row]], folder: Path) -> list[Path]:
    """Draw everything that was measured and return the files."""
    try:
        import matplotlib as mpl
    except ImportError:
        print("matplotlib is not installed: no pictures")
        return []
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    made = []
    style = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 10}
    with plt.rc_context(style):
        for key, workload in workloads.items():
            figure = _picture(workload, rows[key])
            if figure is not None:
                made.append(_save(figure, folder / f"{key.lower()}.png"))
        ratios = _ratios(rows)
        if ratios:
            made.append(_save(_overview(ratios), folder / "summary.png"))
    return made


def _save(figure: Any, path: Path) -> Path:
    from matplotlib import pyplot as plt

    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path


def _picture(workload: Workload | Special, rows: Sequence[Row]) -> Any:
    if not any(row.seconds is not None for row in rows):
        return None
    if isinstance(workload, Special) and workload.plot != "bars" and any(row.x is not None for row in rows):
        return _curves(workload, rows)
    return _bars(workload, rows)


# --- bars -------------------------------------------------------------------------------------------------------------


def _bars(workload: Workload | Special, rows: Sequence[Row]) -> Any:
    """Draw time, and memory where there is any: a row of panels for each case, a bar for each form."""
    from matplotlib import pyplot as plt

    cases = by_case(row for row in rows if row.state != "missing")
    weighed = any(_memory(row) is not None for row in rows)
    columns = 2 if weighed else 1
    heights = [0.9 + 0.3 * len(members) for members in cases.values()]
    figure, panels = plt.subplots(
        len(cases),
        columns,
        figsize=(4.0 + 3.6 * columns, 0.7 + sum(heights)),
        height_ratios=heights,
        squeeze=False,
        sharey="row",
        layout="constrained",
    )
    for (case, members), line in zip(cases.items(), panels, strict=True):
        _bar_panel(line[0], members, lambda row: row.seconds, duration, "time, median and quartiles")
        line[0].set_title(case, loc="left")
        if weighed:
            _bar_panel(line[1], members, _memory, volume, "peak of live bytes; hatched: growth of the process")
    size = "" if isinstance(workload, Special) else f" · {rows[0].size}"
    figure.suptitle(f"{workload.key} {workload.title}{size}", fontsize=11)
    return figure


def _memory(row: Row) -> float | None:
    found = row.live if row.live is not None else row.resident
    return None if found is None or row.state != "ok" else found


def _bar_panel(
    axes: Any, rows: Sequence[Row], number: Callable[[Row], float | None], unit: Callable[[Any], str], label: str
) -> None:
    numbers = {row.form: number(row) if row.state == "ok" else None for row in rows}
    most = max((found for found in numbers.values() if found is not None), default=1.0)
    timed = "time" in label
    for place, row in enumerate(rows):
        found = numbers[row.form]
        if found is None:
            axes.text(0.01 * most, place, _instead(row) if timed else "–", va="center", color="#a02020", style="italic")
            continue
        hatch = "" if timed or row.live is not None else "////"
        axes.barh(place, found, height=0.66, color=COLOURS[row.kind], hatch=hatch, edgecolor="white", linewidth=0)
        end = found
        if timed and row.low is not None and row.high is not None:
            axes.plot((row.low, row.high), (place, place), color="#202020", linewidth=1.2)
            end = max(found, row.high)
        axes.text(min(end, 1.25 * most) + 0.02 * most, place, unit(found), va="center", fontsize=8)
    axes.set_yticks(range(len(rows)), [row.form for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, 1.45 * most)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(label, fontsize=8)


def _instead(row: Row) -> str:
    note = f": {row.note}" if row.note and row.state != "NaN" else ""
    return (STATES[row.state] + note)[:60]


# --- curves -----------------------------------------------------------------------------------------------------------

# What the panels of memory show. Under a budget both are drawn for every form: a budget is in live bytes, and not every
# library tells its own.
MEMORY = {
    "growth": "peak of live bytes; dotted: growth of the process, of those that do not tell",
    "budget": "solid: peak of live bytes; dotted and dashed: growth of the process",
}


def _curves(workload: Special, rows: Sequence[Row]) -> Any:
    """Draw time and memory against ``x``: a row of panels for each case, a curve for each form."""
    from matplotlib import pyplot as plt

    names = list(dict.fromkeys(row.case for row in rows))
    figure, panels = plt.subplots(
        len(names), 2, figsize=(11, 0.9 + 3.4 * len(names)), squeeze=False, layout="constrained"
    )
    for name, (left, right) in zip(names, panels, strict=True):
        members = [row for row in rows if row.case == name and row.state == "ok"]
        looks = _looks(members)
        _curve_panel(left, members, looks, lambda row: row.seconds)
        telling = [row for row in members if row.live is not None]
        growing = members if workload.plot == "budget" else [row for row in members if row.live is None]
        _curve_panel(right, telling, looks, lambda row: None if row.live is None else row.live / 1e6)
        _curve_panel(right, growing, looks, lambda row: None if row.resident is None else row.resident / 1e6, ":")
        left.set_title(name, loc="left")
        right.set_title(MEMORY[workload.plot], loc="left", fontsize=8)
        for axes, unit in ((left, "seconds"), (right, "MB")):
            _decorate(axes, sorted({row.x for row in members if row.x is not None}), workload.axis, unit)
        right.legend(*left.get_legend_handles_labels(), fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.suptitle(f"{workload.key} {workload.title}", fontsize=11)
    return figure


def _looks(rows: Iterable[Row]) -> dict[str, tuple[str, str]]:
    """Return a colour and a mark for each form."""
    looks: dict[str, tuple[str, str]] = {}
    used = dict.fromkeys(SHADES, 0)
    for row in rows:
        if row.form not in looks:
            number = used[row.kind]
            used[row.kind] += 1
            looks[row.form] = (SHADES[row.kind][number % len(SHADES[row.kind])], MARKS[len(looks) % len(MARKS)])
    return looks


def _curve_panel(
    axes: Any,
    rows: Sequence[Row],
    looks: dict[str, tuple[str, str]],
    number: Callable[[Row], float | None],
    line: str = "-",
) -> None:
    for form, (colour, mark) in looks.items():
        members = [(row.x, found) for row in rows if row.form == form and (found := number(row))]
        points = sorted(point for point in members if point[0] is not None)
        if points:
            axes.plot(*zip(*points, strict=True), color=colour, marker=mark, ms=4, ls=line, label=form)
        for x, level in members:
            if x is None:  # a form without a budget: a level to compare with
                axes.axhline(level, color=colour, ls=(0, (5, 3)), lw=1.2, label=form)


def _decorate(axes: Any, places: Sequence[float], axis: str, unit: str) -> None:
    """Make both axes logarithmic, with plain numbers: at the points measured, and at 1, 2 and 5 times powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.minorticks_off()
    axes.set_xticks(places, [f"{place:g}" for place in places])
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:g}"))
    axes.set_xlabel(axis)
    axes.set_ylabel(unit)
    axes.grid(alpha=0.25)


# --- everything at a glance -------------------------------------------------------------------------------------------


def _ratios(rows: dict[str, list[Row]]) -> list[tuple[str, float | None, float | None]]:
    """Return ours divided by the best peer and by the limit, for each workload; of a curve for its end."""
    found = []
    for key, members in rows.items():
        for case, part in by_case(at_the_end(members)).items():
            ours = fastest(part, "ours")
            pair = ratio(ours, fastest(part, "peer")), ratio(ours, fastest(part, "limit"))
            if pair != (None, None):
                found.append((f"{key} {case}".strip(), *pair))
    return found


def _overview(ratios: Sequence[tuple[str, float | None, float | None]]) -> Any:
    """Draw the ratios on a logarithmic axis: left of the line at 1 ours is faster."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7.5, 1.4 + 0.36 * len(ratios)), layout="constrained")
    for place, (_, peer, limit) in enumerate(ratios):
        for number, colour, mark in ((peer, COLOURS["peer"], "o"), (limit, COLOURS["limit"], "D")):
            if number is not None:
                axes.plot((1.0, number), (place, place), color=colour, lw=1.5, alpha=0.5, zorder=1)
                axes.plot(number, place, mark, color=colour, ms=7, zorder=2)
    everything = [number for line in ratios for number in line[1:] if number is not None]
    axes.axvline(1.0, color="#202020", lw=1)
    axes.set_xscale("log")
    axes.set_xlim(min(0.5, 0.7 * min(everything)), max(2.0, 1.4 * max(everything)))
    ticks = [tick for tick in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50) if _within(tick, axes.get_xlim())]
    axes.set_xticks(ticks, [f"{tick:g} ×" for tick in ticks])
    axes.minorticks_off()
    axes.set_yticks(range(len(ratios)), [name for name, _, _ in ratios])
    axes.set_ylim(len(ratios) - 0.5, -0.5)
    axes.grid(axis="x", alpha=0.25)
    axes.plot([], [], "o", color=COLOURS["peer"], label="beside the best peer")
    axes.plot([], [], "D", color=COLOURS["limit"], label="beside the adjoint by hand")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False, fontsize=8)
    axes.set_xlabel("time of unspool divided by theirs; left of 1 unspool is faster")
    return figure


def _within(number: float, limits: tuple[float, float]) -> bool:
    return limits[0] <= number <= limits[1]
