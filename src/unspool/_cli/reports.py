"""``unspool report``: the report of a demonstration, of a former run, or of two beside each other."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import unspool as us
from unspool._cli.demo import play
from unspool._cli.demos import DEMOS
from unspool._cli.runs import options_of
from unspool._cli.tables import make_console
from unspool.errors import ArgumentError

__all__ = ["make_or_show"]


def make_or_show(runs: Sequence[str], output: Path | None) -> int:
    """Run a demonstration, or go on with one, and write its report; or show that of a file; or compare those of two.

    Parameters
    ----------
    runs : sequence of str
        A name of a demonstration, the folder of one that was written, or one or two files of reports.
    output : Path or None
        Where the page goes. A report that is only shown is not written again without it.
    """
    if len(runs) > 2:
        raise ArgumentError(f"one report is shown and two are compared, got {len(runs)}: {', '.join(runs)}")
    if len(runs) == 2:
        return _compare(runs[0], runs[1], output)
    if runs[0] in DEMOS:
        return _run(runs[0], output or Path(f"unspool-{runs[0]}.html"))
    if Path(runs[0]).is_dir():
        return _go_on(Path(runs[0]), output)
    console = make_console()
    found = us.load_report(runs[0])
    console.print(str(found), soft_wrap=True, markup=False)
    if output is not None:
        console.print(f"Report: {found.save(output)}", soft_wrap=True, markup=False)
    return 0


def _run(name: str, page: Path) -> int:
    """Run a demonstration as it is without options, and write its report."""
    parser = argparse.ArgumentParser()
    DEMOS[name].add_options(parser)
    chosen = parser.parse_args(["--no-picture"])
    chosen.report = page
    return play(DEMOS[name].tell(chosen), chosen)


def _go_on(folder: Path, page: Path | None) -> int:
    """Go on with a demonstration that was written, which makes all of its steps again, and write its report."""
    options = options_of(folder)
    name = options["demo"]
    if name not in DEMOS:
        raise ArgumentError(f"the run in {folder} is of the demonstration {name!r}, which this unspool does not have")
    parser = argparse.ArgumentParser()
    DEMOS[name].add_options(parser)
    chosen = parser.parse_args([])
    for option, value in options.items():
        setattr(chosen, option, value)
    chosen.output = None
    chosen.report = page or Path(f"unspool-{folder.resolve().name}.html")
    return play(DEMOS[name].tell(chosen), chosen)


def _compare(first: str, second: str, output: Path | None) -> int:
    page = output or Path("unspool-comparison.html")
    us.compare_reports(first, second, page)
    make_console().print(f"Comparison: {page}", soft_wrap=True, markup=False)
    return 0
