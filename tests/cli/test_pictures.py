"""The picture of a run, looked at through Matplotlib's own objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from unspool._cli.pictures import Drawing, draw

STEPS = [(step, 10.0**-step) for step in range(1, 9)]


def drawing(**changes: Any) -> Drawing:
    facts: dict[str, Any] = {
        "title": "A loop",
        "step": "sweep",
        "quantity": "energy",
        "errors": STEPS,
        "changes": STEPS,
        "cotangents": STEPS,
        "live": [(0.0, 1e6), (0.5, 3e6), (1.0, 2e6)],
        "gradient_begin": 0.5,
        "budget": 10**9,
        "loss": "energy",
    }
    return Drawing(**(facts | changes))


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Every figure that would be saved; drawing them takes a while."""
    saved: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *args, **settings: saved.append(figure))
    return saved


def test_three_panels_with_names_on_every_axis(tmp_path: Path, figures: list[Figure]) -> None:
    assert draw(drawing(), tmp_path / "a.png")
    [figure] = figures
    assert [axes.get_title() for axes in figure.axes] == ["Convergence", "Cotangent of the state", "Memory"]
    assert [axes.get_xlabel() for axes in figure.axes] == ["sweep", "sweep", "seconds"]
    assert [axes.get_yscale() for axes in figure.axes] == ["log", "log", "linear"]
    assert figure.axes[2].get_ylabel() == "live bytes (MB)"


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_every_format_that_is_offered_is_written(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    assert draw(drawing(), path)
    assert path.stat().st_size > 1000


def test_zeros_are_left_out_of_a_logarithm(tmp_path: Path, figures: list[Figure]) -> None:
    draw(drawing(errors=[(1, 1.0), (2, 0.0), (3, 1e-3)]), tmp_path / "a.png")
    assert list(figures[0].axes[0].lines[0].get_xdata()) == [1, 3]


def test_a_budget_is_drawn_if_it_is_near_and_not_if_it_would_squeeze_the_curve(
    tmp_path: Path, figures: list[Figure]
) -> None:
    draw(drawing(budget=4_000_000), tmp_path / "near.png")
    draw(drawing(budget=10**9), tmp_path / "far.png")
    labels = [[line.get_label() for line in figure.axes[2].lines] for figure in figures]
    assert "budget" in labels[0] and "budget" not in labels[1]
    assert figures[0].axes[2].get_ylim()[1] > 4.0


def test_a_run_with_nothing_to_show_makes_a_picture_too(tmp_path: Path) -> None:
    assert draw(drawing(errors=[], changes=[], cotangents=[], live=[]), tmp_path / "a.png")


def test_of_many_samples_the_largest_are_drawn(tmp_path: Path, figures: list[Figure]) -> None:
    live = [(at / 1e4, 1e6 + 1e6 * (at % 7)) for at in range(10_000)]
    draw(drawing(live=live), tmp_path / "a.png")
    drawn = figures[0].axes[2].lines[0].get_ydata()
    assert 200 < len(drawn) <= 300
    assert set(drawn[:-1]) == {7.0}  # the last one is where the time ends
