"""Pictures of measured rows: bars for each workload, growth curves, memory against budget, and all ratios in one.

Ours is blue, peers are orange and the limit is grey in every picture. A form without a number stands in its place with
the reason.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from bench.suite.lines import line_of
from bench.suite.report import STATES, Amount, by_case, duration, fastest, ratio, volume
from bench.suite.results import Measured
from bench.suite.workload import Row

COLOURS = {"ours": "#1f6fb4", "peer": "#e08a2e", "limit": "#8a8a8a"}
NAMES = {"ours": "unspool", "peer": "peers", "limit": "limit: adjoint by hand"}

# Curves of one kind are told apart by shade and mark.
SHADES = {
    "ours": ("#0b3c6f", "#1f6fb4", "#6fb1e4", "#a9d3f2"),
    "peer": ("#b3541e", "#e08a2e", "#c23b5a", "#7a4fa3", "#d9b310"),
    "limit": ("#4d4d4d", "#8a8a8a", "#bdbdbd"),
}
MARKS = "osD^vPX"


def draw(workloads: dict[str, Measured], folder: Path) -> list[Path]:
    """Draw everything that was measured and return the files."""
    try:
        import matplotlib as mpl
    except ImportError:
        print("matplotlib is not installed: no pictures")
        return []
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    made = []
    style: dict[Any, Any] = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 10}
    with plt.rc_context(style):
        for key, workload in workloads.items():
            figure = _picture(workload)
            if figure is not None:
                made.append(_save(figure, folder / f"{key.lower()}.png"))
        ratios = _ratios(workloads)
        if ratios:
            made.append(_save(_overview(ratios), folder / "summary.png"))
    return made


def _save(figure: Any, path: Path) -> Path:
    from matplotlib import pyplot as plt

    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path


def _picture(workload: Measured) -> Any:
    if not any(row.seconds is not None for row in workload.rows):
        return None
    if workload.plot == "kinds":
        ratios = _ratios_of(by_case(workload.rows))
        return _overview(ratios) if ratios else None
    if workload.plot != "bars" and any(row.x is not None for row in workload.rows):
        return _curves(workload)
    return _bars(workload)


# --- bars -------------------------------------------------------------------------------------------------------------


def _bars(workload: Measured) -> Any:
    """Draw time, and memory where there is any: a row of panels for each case, a bar for each form."""
    from matplotlib import pyplot as plt

    cases = by_case(row for row in workload.rows if row.state != "missing")
    weighed = any(row.resident is not None for row in workload.rows)
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
        _bar_panel(line[0], members, lambda row: row.seconds, lambda row: row.high, duration)
        _mark_quartiles(line[0], members)
        _label(line[0], case, "time, median and quartiles")
        if weighed:
            _bar_panel(line[1], members, lambda row: row.resident, lambda row: row.live, volume, explained=False)
            _mark_live(line[1], members)
            _label(line[1], "", "growth of the process; line: peak of live bytes, if the library tells")
    figure.suptitle(workload.heading, fontsize=11)
    return figure


def _bar_panel(
    axes: Any,
    rows: Sequence[Row],
    number: Callable[[Row], float | None],
    mark: Callable[[Row], float | None],
    unit: Callable[[Any], str],
    explained: bool = True,
) -> None:
    """Draw a bar for each form, or what to say instead of it, and leave room for a mark beyond its end."""
    numbers = [number(row) if row.state == "ok" else None for row in rows]
    most = max((found for found in numbers if found is not None), default=1.0)
    for place, (row, found) in enumerate(zip(rows, numbers, strict=True)):
        if found is None:
            instead = _instead(row) if explained else "–"
            axes.text(0.01 * most, place, instead, va="center", color="#a02020", style="italic")
            continue
        axes.barh(place, found, height=0.66, color=COLOURS[row.kind])
        end = min(max(found, mark(row) or 0.0), 1.25 * most)
        axes.text(end + 0.02 * most, place, unit(found), va="center", fontsize=8)
    axes.set_yticks(range(len(rows)), [row.form for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, 1.45 * most)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _mark_quartiles(axes: Any, rows: Sequence[Row]) -> None:
    for place, row in enumerate(rows):
        if row.state == "ok" and row.low is not None and row.high is not None:
            axes.plot((row.low, row.high), (place, place), color="#202020", linewidth=1.2)


def _mark_live(axes: Any, rows: Sequence[Row]) -> None:
    for place, row in enumerate(rows):
        if row.state == "ok" and row.live is not None:
            axes.plot((row.live, row.live), (place - 0.33, place + 0.33), color="#202020", linewidth=1.6)


def _label(axes: Any, title: str, label: str) -> None:
    axes.set_title(title, loc="left")
    axes.set_xlabel(label, fontsize=8)


def _instead(row: Row) -> str:
    note = f": {row.note}" if row.note and row.state != "NaN" else ""
    return textwrap.shorten(STATES[row.state] + note, 60, placeholder=" …")


# --- curves -----------------------------------------------------------------------------------------------------------

# What the panels of memory show. Under a budget both are drawn for every form: a budget is in live bytes, and not every
# library tells its own.
MEMORY = {
    "growth": "peak of live bytes; dotted: growth of the process, of those that do not tell; wide: straight lines",
    "budget": "solid: peak of live bytes; dotted and dashed: growth of the process",
}


def _curves(workload: Measured) -> Any:
    """Draw time and memory against ``x``: a row of panels for each case, a curve for each form."""
    from matplotlib import pyplot as plt

    rows = workload.rows
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
        if workload.plot == "growth":
            _fit_panel(left, members, looks, "seconds", 1.0)
            _fit_panel(right, telling, looks, "live", 1e-6)
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


def _fit_panel(axes: Any, rows: Sequence[Row], looks: dict[str, tuple[str, str]], amount: Amount, unit: float) -> None:
    """Draw the straight line of each form; on logarithmic axes it bends where its start counts."""
    for form, (colour, _) in looks.items():
        members = [row for row in rows if row.form == form]
        line = line_of(members, amount)
        places = [row.x for row in members if row.x is not None]
        if line is None:
            continue
        few, many = min(places), max(places)
        steps = [few * (many / few) ** (part / 40) for part in range(41)]
        axes.plot(steps, [unit * (line.start + line.slope * x) for x in steps], color=colour, lw=5, alpha=0.25)


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

# Whom a mark compares with: its colour, its shape and its name.
BESIDE = {
    "peer": (COLOURS["peer"], "o", "beside the best peer"),
    "torch": ("#b3541e", "^", "beside the fastest of PyTorch"),
    "limit": (COLOURS["limit"], "D", "beside the adjoint by hand"),
}
TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)


def _ratios(workloads: dict[str, Measured]) -> dict[str, dict[str, float]]:
    """Return ours divided by theirs, for each workload and whom there is; of a curve for its end."""
    return _ratios_of(
        {workload.short(case): rows for workload in workloads.values() for case, rows in workload.cases().items()}
    )


def _ratios_of(cases: dict[str, list[Row]]) -> dict[str, dict[str, float]]:
    found = {}
    for name, rows in cases.items():
        ours = fastest(rows, "ours")
        theirs = {
            "peer": fastest(rows, "peer"),
            "torch": fastest((row for row in rows if row.library == "torch"), "peer"),
            "limit": fastest(rows, "limit"),
        }
        told = {whom: number for whom, row in theirs.items() if (number := ratio(ours, row)) is not None}
        if told:
            found[name] = told
    return found


def _overview(ratios: dict[str, dict[str, float]]) -> Any:
    """Draw the ratios on a logarithmic axis: left of the line at 1 ours is faster."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 1.4 + 0.36 * len(ratios)), layout="constrained")
    for place, told in enumerate(ratios.values()):
        everybody = (1.0, *told.values())
        axes.plot((min(everybody), max(everybody)), (place, place), color="#c8c8c8", lw=1.5, zorder=1)
        for name, number in told.items():
            colour, mark, _ = BESIDE[name]
            # The best peer is a ring around PyTorch where it is that.
            ring = "none" if name == "peer" else colour
            axes.plot(number, place, mark, color=colour, mfc=ring, mew=1.6, ms=10 if name == "peer" else 6, zorder=2)
    numbers = [number for told in ratios.values() for number in told.values()]
    axes.axvline(1.0, color="#202020", lw=1)
    axes.set_xscale("log")
    axes.set_xlim(min(0.5, 0.7 * min(numbers)), max(2.0, 1.4 * max(numbers)))
    low, high = axes.get_xlim()
    ticks = [tick for tick in TICKS if low <= tick <= high]
    axes.set_xticks(ticks, [f"{tick:g} ×" for tick in ticks])
    axes.minorticks_off()
    axes.set_yticks(range(len(ratios)), list(ratios))
    axes.set_ylim(len(ratios) - 0.5, -0.5)
    axes.grid(axis="x", alpha=0.25)
    for name, (colour, mark, label) in BESIDE.items():
        axes.plot([], [], mark, color=colour, mfc="none" if name == "peer" else colour, mew=1.6, label=label)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False, fontsize=8)
    axes.set_xlabel("time of unspool divided by theirs; left of 1 unspool is faster")
    return figure
