"""Facts as a table of two columns: what `print` shows of statistics, reports and plans.

Numbers are aligned on the right and their units on the left, so that a column is read at a glance.
"""

from __future__ import annotations

from collections.abc import Iterable

# In place of a number that is not known.
UNKNOWN = "–"


def render_table(rows: Iterable[tuple[str, str]]) -> str:
    """Return the lines of a table; a value is a number, or a number, a space and its unit.

    Examples
    --------
    >>> print(render_table([("budget", "2.00 GB"), ("steps", "10,000"), ("recomputing", "0.73 s")]))
    budget         2.00 GB
    steps        10,000
    recomputing    0.73 s
    """
    cells = [(name, *value.partition(" ")[::2]) for name, value in rows]
    left = max((len(name) for name, _, _ in cells), default=0)
    right = max((len(number) for _, number, _ in cells), default=0)
    return "\n".join(f"{name:<{left}}  {number:>{right}} {unit}".rstrip() for name, number, unit in cells)
