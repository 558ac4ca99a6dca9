"""`unspool.report`: what happened inside of a run, as one page; and reports read back, and beside each other."""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unspool._engine.memory.sizes import format_bytes
from unspool._report.asked import Asked, check_loss
from unspool._report.comparison import comparison_of
from unspool._report.files import read_data, write_whole
from unspool._report.gather import gather
from unspool._report.page import as_json
from unspool._report.sections import page_of
from unspool._report.svg import escape, number, seconds
from unspool.errors import ArgumentError, ReportError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

__all__ = ["Report", "ReportComparison", "compare_reports", "load_report", "report"]


class _Page:
    """Something that is an HTML page: it can be saved, and shows in a notebook."""

    def html(self) -> str:
        """Return the page as text."""
        raise NotImplementedError

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to a file, all of it or nothing; return where it is.

        Raises
        ------
        ReportError
            If it cannot be written.
        """
        return write_whole(Path(path), self.html())

    def _repr_html_(self) -> str:
        # In a frame of its own: a notebook has styles of its own, and runs no script that it is handed.
        return (
            f'<iframe srcdoc="{escape(self.html())}" sandbox="allow-scripts allow-downloads" '
            'style="width:100%;height:80vh;min-height:30rem;border:1px solid #8884"></iframe>'
        )


class Report(_Page):
    """What happened inside of a run; made by `unspool.report`.

    Attributes
    ----------
    data : dict
        All that it tells, as plain data.

    Examples
    --------
    >>> import unspool as us
    >>> x = us.tensor(0.5)
    >>> y = x
    >>> for _ in range(5):
    ...     y = us.cos(y)
    ...     value = float(y)
    >>> found = us.report(y)
    >>> found.data["steps"]["count"], found.data["readings"][0]["values"][-1] == value
    (5, True)
    """

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data

    def html(self) -> str:
        """Return the page as text: it needs no other file and no network."""
        return page_of(self.data)

    def to_json(self) -> str:
        """Return the data as JSON; numbers that are not finite are texts."""
        return json.dumps(as_json(self.data), allow_nan=False)

    def __str__(self) -> str:
        data = self.data
        totals, budgets = data["times"]["totals"], data["budgets"]
        rows = [
            ("loss", number(data["loss"]["value"], 12)),
            ("steps", f"{data['steps']['count']:,}"),
            ("forward, op by op", seconds(totals.get("forward"))),
            ("backward, op by op", seconds(totals.get("backward"))),
            ("memory if all is kept", format_bytes(budgets["everything"]) if budgets["everything"] else "–"),
            ("least budget", format_bytes(budgets["least"])),
            ("truncations", f"{data['spectra']['truncations']:,}"),
        ]
        wide = max(len(name) for name, _ in rows)
        return "\n".join([data["title"], *[f"  {name:<{wide}}  {value}" for name, value in rows]])

    def __repr__(self) -> str:
        return f"<report {self.data['title']!r}, {self.data['steps']['count']:,} steps>"


class ReportComparison(_Page):
    """Two reports in one page; made by `unspool.compare_reports`.

    Attributes
    ----------
    first, second : Report
    """

    def __init__(self, first: Report, second: Report) -> None:
        self.first, self.second = first, second

    def html(self) -> str:
        """Return the page as text."""
        return comparison_of(self.first.data, self.second.data)

    def __repr__(self) -> str:
        return f"<comparison of {self.first!r} and {self.second!r}>"


def report(
    loss: Tensor,
    path: str | os.PathLike[str] | None = None,
    *,
    wrt: Any = None,
    states: Sequence[Any] | Mapping[int, Any] | None = None,
    values: Mapping[str, Sequence[float] | Mapping[int, float]] | None = None,
    memory: Any = None,
    title: str | None = None,
) -> Report:
    """Tell what happened inside of a run, in one page that needs no network.

    The page shows what the loop read in each step and how large the cotangent of its state was there, what was kept in
    memory and what was computed again, what other budgets would cost, the folded program as a graph, time by line and
    op, spectra at truncations, and where it all ran. For that the program runs once more, op by op, and its gradient is
    taken, within the memory budget that is in force. No value or gradient of yours changes.

    Parameters
    ----------
    loss : Tensor
        A real scalar that was evaluated.
    path : str or path, optional
        Where the page goes. A file that is there is replaced, when all is written.
    wrt : pytree of Tensor, optional
        What to differentiate with respect to; all floating-point data that the loss is made from if not given.
    states : sequence of pytrees of Tensor, or mapping of int to these, optional
        The state after each step, or by the numbers of steps, for the norms of their cotangents. By default steps are
        found: each reading of the number that was read most often ends one.
    values : mapping of str to sequence of float, or to mapping of int to float, optional
        Numbers of each step, by name, to show beside those that are found.
    memory : us.memory, MemoryReport, str or int, optional
        The budget that was used, if the report is made outside of its ``with`` block.
    title : str, optional

    Returns
    -------
    Report
        It shows itself in a notebook; ``data`` has everything as plain data.

    Raises
    ------
    NotEvaluatedError
        If nobody has asked for the value of the loss: there was no run.
    ReportError
        If the file cannot be written.

    See Also
    --------
    load_report : reads a report back.
    compare_reports : shows two reports in one page.

    Examples
    --------
    >>> import unspool as us
    >>> A = us.tensor([[2.0, 1.0], [1.0, 3.0]], name="A")
    >>> x, change = us.tensor([1.0, 0.0]), 1.0
    >>> while change > 1e-6:
    ...     y = A @ x
    ...     y = y / us.linalg.norm(y)
    ...     difference = us.linalg.norm(y - x)
    ...     x, change = y, float(difference)
    >>> eigenvalue = x @ A @ x
    >>> print(f"{float(eigenvalue):.6f}")
    3.618034
    >>> found = us.report(eigenvalue, wrt=A, title="Power iteration")
    >>> found
    <report 'Power iteration', 16 steps>
    >>> found.data["readings"][0]["values"][-1] == change
    True
    """
    check_loss(loss)
    place = None if path is None else _as_place(path)
    given = {} if values is None else _as_values(values)
    if title is not None and not isinstance(title, str):
        raise ArgumentError(f"title is a text, got {title!r}")
    asked = Asked(wrt=wrt, states=_as_states(states), values=given, memory=memory, title=title or "")
    found = Report(gather(loss, asked))
    if place is not None:
        found.save(place)
    return found


def load_report(path: str | os.PathLike[str]) -> Report:
    """Read a report back: from its page, or from the JSON that the page gives.

    Parameters
    ----------
    path : str or path

    Returns
    -------
    Report

    Raises
    ------
    ReportError
        If there is no such file, or it is not a report.

    Examples
    --------
    >>> import os, tempfile
    >>> import unspool as us
    >>> x = us.tensor(2.0)
    >>> y = us.sin(x) * x
    >>> value = float(y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = us.report(y, os.path.join(folder, "run.html"))
    ...     read = us.load_report(os.path.join(folder, "run.html"))
    >>> read.data == made.data
    True
    """
    return Report(read_data(_as_path(path)))


def compare_reports(
    first: Report | str | os.PathLike[str],
    second: Report | str | os.PathLike[str],
    path: str | os.PathLike[str] | None = None,
) -> ReportComparison:
    """Show two reports in one page: curves over each other, numbers side by side, and what differs in the settings.

    Parameters
    ----------
    first, second : Report, str or path
        Reports, or files of reports.
    path : str or path, optional
        Where the page goes.

    Returns
    -------
    ReportComparison
        It shows itself in a notebook.

    Raises
    ------
    ReportError
        If a file cannot be read or written.

    Examples
    --------
    >>> import unspool as us
    >>> def run(start):
    ...     y = us.tensor(start)
    ...     for _ in range(5):
    ...         y = us.cos(y)
    ...         float(y)
    ...     return us.report(y, title=f"from {start}")
    >>> us.compare_reports(run(0.5), run(1.5))
    <comparison of <report 'from 0.5', 5 steps> and <report 'from 1.5', 5 steps>>
    """
    place = None if path is None else _as_place(path)
    both = [given if isinstance(given, Report) else load_report(_as_path(given)) for given in (first, second)]
    found = ReportComparison(*both)
    if place is not None:
        found.save(place)
    return found


# --- arguments -------------------------------------------------------------------------------------------------------


def _as_path(given: Any) -> Path:
    try:
        return Path(given)
    except TypeError:
        raise ArgumentError(f"a report or the path of one is needed, got {given!r}") from None


def _as_place(path: Any) -> Path:
    """Return where a page goes; a place that cannot be written to is found before the work, not after it."""
    place = _as_path(path)
    if place.is_dir() or not place.parent.is_dir() or not os.access(place.parent, os.W_OK):
        raise ReportError(f"{os.fspath(place)!r} cannot be written: it needs a folder that can be written to")
    return place


def _as_states(states: Any) -> dict[int, Any] | None:
    if states is None:
        return None
    try:
        return {operator.index(step): state for step, state in _by_step(states)}
    except TypeError as error:
        raise ArgumentError(f"states are a sequence, or a mapping of the numbers of steps to states: {error}") from None


def _by_step(given: Any) -> Iterable[tuple[Any, Any]]:
    return given.items() if isinstance(given, Mapping) else enumerate(given)


def _as_values(values: Any) -> dict[str, dict[int, float]]:
    try:
        found = {
            str(name): {operator.index(step): float(value) for step, value in _by_step(numbers)}
            for name, numbers in values.items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise ArgumentError(f"values are a mapping of names to numbers, one for each step: {error}") from None
    if any(not numbers for numbers in found.values()):
        raise ArgumentError("values are numbers, one for each step; one of the names has none")
    return found
