"""``unspool runs`` and ``unspool resume``: runs that were written, and going on with those of demonstrations."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import unspool as us
from unspool._cli.tables import Table, make_console, print_table
from unspool._engine.memory.sizes import format_bytes
from unspool._engine.table import UNKNOWN
from unspool._saving.listing import RunInfo, run_info, runs_in
from unspool.errors import ArgumentError

__all__ = ["list_runs", "options_of", "spooled"]

# What a run is noted to be, where ``resume`` looks for it.
_DEMO, _OPTIONS = "demo", "options"


def list_runs(folder: Path) -> int:
    """Print the runs in a folder; return the exit code of the command."""
    console = make_console()
    found = runs_in(folder)
    if not found:
        console.print(f"There are no runs in {folder}.", markup=False, soft_wrap=True)
        return 0
    heads = ("run", "status", "steps", "of", "size", "states", "written", "what")
    print_table(console, Table(f"Runs in {folder}", heads, [_row(info, folder) for info in found]))
    return 0


def _row(info: RunInfo, folder: Path) -> list[str]:
    name = info.path.name if info.path != folder else "."
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(info.written)) if info.written else UNKNOWN
    total = UNKNOWN if info.total is None else f"{info.total:,}"
    sizes = format_bytes(info.nbytes), format_bytes(info.state_bytes)
    return [name, info.status, f"{info.step:,}", total, *sizes, when, (info.notes or {}).get(_DEMO, UNKNOWN)]


def spooled(chosen: argparse.Namespace) -> us.SpooledRun | None:
    """Return the run that a demonstration is written to, if it is, with a note of what it is."""
    folder = getattr(chosen, "spool", None)
    if folder is None:
        return None
    run = us.spool(folder, every=chosen.every)
    options = {
        key: value
        for key, value in vars(chosen).items()
        if value is None or isinstance(value, bool | int | float | str)
    }
    run.note(**{_DEMO: chosen.demo, _OPTIONS: json.dumps(options)})
    return run


def options_of(folder: Path) -> dict[str, Any]:
    """Return the options of the demonstration that a run is of."""
    info = run_info(folder) if (folder / "log").is_file() else None
    if info is None:
        raise ArgumentError(f"there is no run in {folder}; unspool runs FOLDER lists those in a folder")
    notes = info.notes or {}
    if _DEMO not in notes:
        raise ArgumentError(
            f"the run in {folder} is not of a demonstration: run the program again that wrote it, or read it with "
            "us.resume"
        )
    options = json.loads(notes[_OPTIONS])
    return {**options, "demo": notes[_DEMO], "spool": str(folder)}
