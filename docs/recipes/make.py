"""Makes what the recipes show beside their text: pictures, and tables of what was measured.

A page is a program. It is run as it stands, and its own functions are what is drawn, at the sizes given in
``pictures.py``. Tables come from ``figures.json``, which ``bench/recipes/run.py`` writes, and stand between two
comments on the page, so that no measured number is written by hand; a test makes them again.

    python docs/recipes/make.py                  # all pictures and tables
    python docs/recipes/make.py scf ode          # those of some pages
    python docs/recipes/make.py --tables         # tables only, which takes a moment
"""

from __future__ import annotations

import argparse
import doctest
import importlib
import json
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
IMAGES = HERE.parent / "images" / "recipes"
FIGURES = HERE / "figures.json"
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# A block that starts a cluster: what is drawn and measured is in this process.
ELSEWHERE = re.compile(r"^>>> from distributed import", re.MULTILINE)
MEASURED = re.compile(r"<!-- measured: ([\w -]+) -->\n(.*?)<!-- end -->\n", re.DOTALL)


def program(page: str) -> dict[str, Any]:
    """Run the program on a page, its printing left out, and return its names."""
    path = HERE / f"{page}.md"
    text = path.read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": page, "print": lambda *things: None}
    for block in FENCE.finditer(text):
        code, above = block[1], text.count("\n", 0, block.start(1))
        if ELSEWHERE.search(code):
            continue
        if ">>>" not in code:
            exec(compile("\n" * above + code, str(path), "exec"), names)
            continue
        for example in doctest.DocTestParser().get_examples(code):
            exec(compile("\n" * (above + example.lineno) + example.source, str(path), "exec"), names)
    del names["print"]
    return names


# --- tables ----------------------------------------------------------------------------------------------------------


def with_tables(text: str, figures: dict[str, Any]) -> str:
    """Return a page with the tables of what was measured."""
    return MEASURED.sub(lambda found: _filled(found[1], figures), text)


def _filled(name: str, figures: dict[str, Any]) -> str:
    table = {"recompute": recompute_table, "disk": disk_table}.get(name.rpartition(" ")[2], time_table)(figures[name])
    return f"<!-- measured: {name} -->\n{table}<!-- end -->\n"


def time_table(rows: list[dict[str, Any]]) -> str:
    """Return the table of a workload: processor time and memory of each form, beside our fastest."""
    ours = [row for row in rows if row["kind"] == "ours" and row["state"] == "ok"]
    best = min(ours, key=lambda row: row["seconds"])
    lines = ["| | time | to ours | first call | memory |", "|---|---|---|---|---|"]
    for row in rows:
        if row["state"] == "ok":
            ratio = f"{row['seconds'] / best['seconds']:.2f} ×"
            cells = [spoken_time(row["seconds"]), ratio, spoken_time(row["first"]), spoken_bytes(row["resident"])]
        else:
            told = {"cannot": row["note"], "NaN": "NaN", "wrong": f"wrong: {row['note']}"}
            cells = [told.get(row["state"], row["state"]), "", "", ""]
        lines.append(f"| {row['form']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n\n" + CAPTION


CAPTION = """\
Processor time of one core, loop and gradient together, in the median of rounds in which all forms take turns; *memory*
is what the process grew by. Forms with a time agree on value and gradient to eight digits. `python
bench/recipes/run.py` measures it on your machine.
"""


def recompute_table(rows: list[dict[str, Any]]) -> str:
    """Return the table of budgets: runs of a step in all, beside the optimum for so many states."""
    lines = ["| room, in states | Revolve | ours | ours / Revolve | time |", "|---|---|---|---|---|"]
    for row in rows:
        room = row["room"] or "no limit"
        revolve = f"{row['revolve']:,}" if row["revolve"] else "–"
        ratio = f"{row['evaluations'] / row['revolve']:.2f}" if row["revolve"] else "–"
        lines.append(f"| {room} | {revolve} | {row['evaluations']:,} | {ratio} | {spoken_time(row['seconds'])} |")
    return "\n".join(lines) + "\n"


def disk_table(rows: list[dict[str, Any]]) -> str:
    """Return the table of runs in folders: their bytes, and the time of reading and differentiating them."""
    names = ("written", "states kept", "on disk", "log, a step", "opened", "gradient", "gradient, short of memory")
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for row in rows:
        size = [f"{row['kept']}", spoken_bytes(row["bytes"]), f"{row['log']:.0f} bytes"]
        times = [spoken_time(row[name]) for name in ("opened", "gradient", "tight")]
        lines.append(f"| {row['written']} | {' | '.join(size + times)} |")
    return "\n".join(lines) + "\n"


def spoken_time(seconds: float) -> str:
    """Return a time in a unit that suits it.

    >>> spoken_time(0.01234), spoken_time(2.5)
    ('12.3 ms', '2.50 s')
    """
    return f"{seconds:.3g} s" if seconds >= 10 else f"{seconds:.2f} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def spoken_bytes(count: int | None) -> str:
    """Return an amount of memory; what a process grew by is not known to less than 0.1 MB.

    >>> spoken_bytes(12_345_678), spoken_bytes(20_000)
    ('12.3 MB', '< 0.1 MB')
    """
    if count is None:
        return "–"
    return "< 0.1 MB" if count < 1e5 else f"{count / 1e6:.3g} MB"


def main() -> None:
    """Make pictures and tables."""
    parser = argparse.ArgumentParser(description="Make the pictures and tables of the recipes.")
    parser.add_argument("pages", nargs="*", help="names of pages; all if there are none")
    parser.add_argument("--tables", action="store_true", help="tables only")
    chosen = parser.parse_args()
    if not chosen.tables:
        sys.path.insert(0, str(HERE))
        pictures = importlib.import_module("pictures").PICTURES
        IMAGES.mkdir(parents=True, exist_ok=True)
        for page in chosen.pages or pictures:
            pictures[page](program(page)).savefig(IMAGES / f"{page}.png", dpi=100, pil_kwargs={"optimize": True})
            print(f"{page}: {(IMAGES / f'{page}.png').stat().st_size / 1e3:.0f} kB")
    if FIGURES.exists():
        figures = json.loads(FIGURES.read_text(encoding="utf-8"))
        for path in sorted(HERE.glob("*.md")):
            path.write_text(with_tables(path.read_text(encoding="utf-8"), figures["measured"]), encoding="utf-8")


if __name__ == "__main__":
    main()
