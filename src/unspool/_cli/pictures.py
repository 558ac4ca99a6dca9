"""The picture of a run: how it converged, what its gradient felt of each step, and what it held in memory.

Matplotlib is imported here, when a picture is made, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Drawing", "draw"]

_BLUE, _ORANGE, _GREEN, _GREY = "#2563a8", "#d9772b", "#2f8f5b", "#777777"

# A budget that is far above what was held would squeeze the curve; then it is told instead of drawn.
_NEAR = 2.0

# Of more samples than that, the largest are drawn: what holds to a budget goes up and down in every step.
_MOST_SAMPLES = 300

_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """The numbers that a picture shows.

    Attributes
    ----------
    title, step, quantity, loss : str
        What was run, what a step is called, which number converges, and which one is differentiated.
    errors, changes, cotangents : sequence of (step, number)
        The distance from the exact number, the change of a step, and the norm of the cotangent of the state.
    live : sequence of (seconds, bytes)
        What was held.
    gradient_begin : float
        When the loop was done, in seconds.
    budget : int
        The memory budget, in bytes.
    """

    title: str
    step: str
    quantity: str
    loss: str
    errors: Sequence[tuple[int, float]]
    changes: Sequence[tuple[int, float]]
    cotangents: Sequence[tuple[int, float]]
    live: Sequence[tuple[float, float]]
    gradient_begin: float
    budget: int


def draw(drawing: Drawing, path: Path) -> bool:
    """Save a picture; return False if Matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=(13.5, 4.4), layout="constrained")
    convergence, cotangents, memory = figure.subplots(1, 3)
    _draw_convergence(convergence, drawing)
    _draw_cotangents(cotangents, drawing)
    _draw_memory(memory, drawing)
    for axes in (convergence, cotangents, memory):
        axes.grid(alpha=0.25, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(drawing.title, fontsize=13, fontweight="bold")
    figure.savefig(path, dpi=150)
    return True


def _draw_convergence(axes: Any, drawing: Drawing) -> None:
    _plot_steps(axes, drawing.errors, color=_BLUE, label=f"error of the {drawing.quantity}")
    _plot_steps(axes, drawing.changes, color=_ORANGE, label=f"change in a {drawing.step}", line="--")
    axes.set(title="Convergence", ylabel=f"difference of the {drawing.quantity}")
    _finish_steps(axes, drawing.step)
    if axes.lines:
        axes.legend(fontsize=9, framealpha=0.9, edgecolor="none")


def _draw_cotangents(axes: Any, drawing: Drawing) -> None:
    _plot_steps(axes, drawing.cotangents, color=_GREEN)
    axes.set(title="Cotangent of the state", ylabel=f"norm of d {drawing.loss} / d state")
    _finish_steps(axes, drawing.step)
    if not axes.lines:
        axes.text(0.5, 0.5, "left out:\nthe budget is tight", transform=axes.transAxes, ha="center", va="center")
        axes.set(xticks=[], yticks=[])


def _draw_memory(axes: Any, drawing: Drawing) -> None:
    live = _envelope(drawing.live)
    most = max((size for _, size in live), default=1.0)
    unit, scale = next(((unit, scale) for unit, scale in _UNITS if most >= scale), ("B", 1.0))
    seconds = [at for at, _ in live]
    held = [size / scale for _, size in live]
    axes.fill_between(seconds, held, color=_BLUE, alpha=0.15, linewidth=0)
    axes.plot(seconds, held, color=_BLUE, linewidth=1.2)
    axes.set(title="Memory", xlabel="seconds", ylabel=f"live bytes ({unit})", ylim=(0, 1.15 * most / scale))
    axes.margins(x=0.02)
    if drawing.budget <= _NEAR * most:
        axes.axhline(drawing.budget / scale, color=_ORANGE, linestyle="--", linewidth=1.2, label="budget")
        axes.set_ylim(top=1.15 * max(most, drawing.budget) / scale)
    axes.axvline(drawing.gradient_begin, color=_GREY, linestyle=":", linewidth=1.2, label="the gradient begins")
    axes.legend(fontsize=9, loc="lower right", framealpha=0.9, edgecolor="none")


def _envelope(samples: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """Return at most so many samples, the largest from each stretch of time."""
    if len(samples) <= _MOST_SAMPLES:
        return samples
    begin, end = samples[0][0], samples[-1][0]
    largest: dict[int, tuple[float, float]] = {}
    for at, size in samples:
        stretch = int((at - begin) / (end - begin) * (_MOST_SAMPLES - 1))
        if stretch not in largest or size > largest[stretch][1]:
            largest[stretch] = (at, size)
    return list(largest.values())


def _plot_steps(
    axes: Any, points: Sequence[tuple[int, float]], *, color: str, label: str = "", line: str = "-"
) -> None:
    # A logarithm has no place for a zero.
    shown = [(step, value) for step, value in points if value > 0]
    if shown:
        marker = "o" if len(shown) <= 60 else ""
        steps, values = zip(*shown, strict=True)
        axes.plot(steps, values, color=color, label=label, linestyle=line, marker=marker, markersize=4)


def _finish_steps(axes: Any, step: str) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel(step)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if axes.lines:
        axes.set_yscale("log")
