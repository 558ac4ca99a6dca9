"""Writes the tables of measured numbers that stand on pages among words: in the README and in ``forms.md``.

A page marks the place with ``<!-- table NAME -->`` and ``<!-- end -->``. What stands between comes from a file of
numbers, ``performance.json`` or ``forms.json``, so none of it is written by hand, and a test can make it again.

    python docs/tables.py    writes all of them
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PAGES = (ROOT / "README.md", HERE / "forms.md")
PLACE = re.compile(r"(<!-- table (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)

Rows = list[dict[str, Any]]

# --- beside other libraries: the README -------------------------------------------------------------------------------

LIBRARIES = {"unspool": "unspool", "torch": "PyTorch", "jax": "JAX", "autograd": "autograd", "equinox": "Equinox"}

# What has no number: how the loop is written, when it is said what will be differentiated, and how memory is limited.
TOLD = (
    ("the loop is", "Python", "Python", "`lax.scan`, traced", "Python", "`while_loop`, traced"),
    ("values in it", "any time", "any time", "not under `jit`", "comparisons, `x._value`", "not under `jit`"),
    (
        "what to differentiate",
        "afterwards: any tensor, again",
        "before: `requires_grad`, `create_graph`",
        *["before: arguments of a function"] * 3,
    ),
    (
        "memory is limited by",
        "one number",
        "`checkpoint`, call by call",
        "`jax.checkpoint`, by function",
        "–",
        "a number of checkpoints",
    ),
)

# Workload, case of it, and what it is. Among them is one that others win.
BESIDE = (
    ("B1", "", "power iteration, {n} × {n}, {steps} steps"),
    ("B7", "one site", "DMRG, every coupling of a chain"),
    ("B6", "", "TEBD, ranks change as it runs"),
    ("B4", "first derivative", "TRG, an SVD in each step"),
    ("B9", "", "{steps:,} steps on eight numbers"),
    ("B12", "", "first gradient of a new process"),
)


def beside() -> str:
    """Return the time of loop and gradient in each library: of the fastest form that is right."""
    measured = _read("performance.json")
    lines = [("", *LIBRARIES.values()), *TOLD]
    for key, case, what in BESIDE:
        workload = measured["workloads"][key]
        rows = [row for row in workload["rows"] if row["case"] == case]
        steps = next(row["steps"] for row in rows if row["state"] == "ok")
        best = min(row["seconds"] for row in rows if row["state"] == "ok" and row["library"] in LIBRARIES)
        about = what.format(**{"steps": steps, **workload["parameters"]})
        lines.append((about, *(_cell([row for row in rows if row["library"] == name], best) for name in LIBRARIES)))
    return markdown(lines)


def _cell(rows: Rows, best: float) -> str:
    """Return the fastest time of a library, and beside it what its plain form came to where that is another one."""
    right = sorted((row for row in rows if row["state"] == "ok"), key=lambda row: row["seconds"])
    wrong = next((row["state"] for row in rows if row["state"] not in ("ok", "missing")), "–")
    if not right:
        return wrong
    fastest = right[0]
    told = duration(fastest["seconds"])
    told = f"**{told}**" if fastest["seconds"] == best else told
    plain = next((row for row in right[1:] if row["form"] == "unspool, plain"), None)
    if plain:
        return f"{told} {fastest['form'].partition(', ')[2]}, {duration(plain['seconds'])} plain"
    if wrong == "NaN":
        return f"NaN; {told} with a {fastest['form'].partition(', ')[2]}"
    return told


# --- the forms of a loop: forms.md ------------------------------------------------------------------------------------

FORMS = {
    "unspool plain": "plain loop",
    "unspool fragment": "`@us.fragment`",
    "unspool iterate": "`us.iterate`",
    "hand": "by hand, NumPy",
    "torch eager": "PyTorch",
    "jax scan": "JAX, `scan` under `jit`",
}


def forms() -> str:
    """Return what a step costs in each form, in microseconds, and what the first call takes."""
    measured = _read("forms.json")
    names = [name for name in FORMS if name in measured["rows"][0]["microseconds"]]
    titles = ["8 numbers" if row["loop"] == "growth" else f"power, n = {row['size']}" for row in measured["rows"]]
    lines = [("form", *titles, "first call")]
    for name in names:
        steps = (f"{row['microseconds'][name]:.3g} µs" for row in measured["rows"])
        lines.append((FORMS[name], *steps, f"{max(row['first'][name] for row in measured['rows'][:3]):.0f} ms"))
    versions = measured["versions"]
    peers = ", ".join(f"{name} {versions[name]}" for name in ("numpy", "torch", "jax") if name in versions)
    about = f"{measured['machine']['processor']}, one core, {measured['day']}; Python {versions['python']}, {peers}."
    return f"{markdown(lines)}\n\n{about}"


# --- writing ----------------------------------------------------------------------------------------------------------

TABLES: dict[str, Callable[[], str]] = {"beside": beside, "forms": forms}


def filled(text: str) -> str:
    """Return the text of a page with its tables as the numbers have them."""
    return PLACE.sub(lambda place: f"{place[1]}\n{TABLES[place[2]]()}\n\n{place[4]}", text)


def duration(seconds: float) -> str:
    """Return a time with up to three digits and a unit that fits."""
    scale, unit = next((scale, unit) for scale, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")) if seconds >= scale)
    return f"{seconds / scale:.3g} {unit}"


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """Return a table; the first line is its head."""
    head, *rest = lines
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *rest))


def _read(name: str) -> dict[str, Any]:
    return json.loads((HERE / name).read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def main() -> int:
    """Write the tables."""
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
