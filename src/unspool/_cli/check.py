"""``unspool check``: derivatives held against differences, on this machine and with the libraries installed on it.

Each check is a small function and a point. `unspool.check_grad` compares its derivatives with central differences, in
forward and in reverse mode, and the modes with each other.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import unspool as us
from unspool._cli.checks import CHECKS, Check
from unspool._cli.progress import working
from unspool._cli.tables import make_console
from unspool._engine.table import UNKNOWN
from unspool.errors import ArgumentError, UnspoolError

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["run_checks"]

_FAILED = 1


def run_checks(names: Sequence[str] = (), checks: Iterable[Check] = CHECKS) -> int:
    """Run checks and print them as a table; return 1 if one fails.

    Parameters
    ----------
    names : sequence of str
        Which ones, by the beginnings of their names; all if empty.
    checks : iterable of Check
        What there is to run.
    """
    chosen = _chosen(names, list(checks))
    console = make_console()
    width = max(len(check.name) for check in chosen)
    heading = f"{'':<{width}}  order  largest error     time"
    console.print("Derivatives against differences", style="bold cyan")
    console.print(heading, style="bold")
    console.print("─" * len(heading), style="dim")
    begin = time.perf_counter()
    failures = [failure for check in chosen if (failure := _run(console, check, width)) is not None]
    seconds = time.perf_counter() - begin
    for failure in failures:
        console.print(f"\n{failure}", style="red", soft_wrap=True, markup=False)
    passed = len(chosen) - len(failures)
    console.print(f"\n{passed} of {len(chosen)} passed in {seconds:.1f} s.", markup=False)
    return _FAILED if failures else 0


def _chosen(names: Sequence[str], checks: list[Check]) -> list[Check]:
    if not names:
        return checks
    for name in names:
        if not any(check.name.startswith(name) for check in checks):
            raise ArgumentError(f"no check begins with {name!r}; there are {', '.join(check.name for check in checks)}")
    return [check for check in checks if check.name.startswith(tuple(names))]


def _run(console: Console, check: Check, width: int) -> str | None:
    """Print a row of the table; return what went wrong if something did."""
    begin = time.perf_counter()
    failure, error = None, UNKNOWN
    with working(console, check.name):
        try:
            report = us.check_grad(check.function, *check.at, order=check.order, modes=check.modes)
            error = f"{report.max_abs_error:.1e}"
        except UnspoolError as found:
            failure = f"{check.name}: {str(found).splitlines()[0]}"
    seconds = time.perf_counter() - begin
    row = f"{check.name:<{width}}  {check.order:>5}  {error:>13}  {seconds:>5.2f} s  {'FAILED' if failure else 'ok'}"
    console.print(row, style="red" if failure else None, soft_wrap=True, markup=False)
    return failure
