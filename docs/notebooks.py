"""Recipes as executed notebooks: a page is run, and what it printed then is what the site shows.

The source of a recipe is plain text, Markdown with blocks of Python. The build of the site runs each page once, in a
process of its own, puts the outputs of that run into the page (`with_outputs`), and writes the page as a notebook that
has them too (`notebook`). What was run is kept in ``build/recipes`` and run again when the page or the package changes.

    python docs/notebooks.py docs/recipes/economics.md    # run a page and print what its blocks printed, as JSON
"""

from __future__ import annotations

import base64
import contextlib
import doctest
import hashlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
KEPT = ROOT / "build" / "recipes"
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PICTURE = re.compile(r"(!\[[^\]]*\])\(([^)\s]+/)?([\w-]+\.png)\)")

# A piece of a program as it stands on the page, prompts included, and what it printed.
Ran = list[tuple[str, str]]


# --- running ----------------------------------------------------------------------------------------------------------


def run(page: Path) -> list[Ran]:
    """Run a page in this process, and return what the pieces of each of its blocks printed."""
    text = page.read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": page.stem}
    return [
        _run_block(block[1], str(page), text.count("\n", 0, block.start(1)), names) for block in FENCE.finditer(text)
    ]


def _run_block(code: str, file: str, line: int, names: dict[str, Any]) -> Ran:
    # Blank lines above give tracebacks, and whoever asks for the source of a function, the lines of the page.
    if ">>>" not in code:
        return [(code, _printed(compile("\n" * line + code, file, "exec"), names))]
    ran: Ran = []
    lines = code.splitlines(keepends=True)
    for example in doctest.DocTestParser().get_examples(code):
        shown = "".join(lines[example.lineno : example.lineno + example.source.count("\n")])
        compiled = compile("\n" * (line + example.lineno) + example.source, file, "single")
        ran.append((shown, _printed(compiled, names)))
    return ran


def _printed(code: Any, names: dict[str, Any]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, names)
    return out.getvalue()


def executed(page: Path, folder: Path = KEPT) -> list[Ran]:
    """Return what a page printed when it was run, which is done now if it has not been, in a process of its own."""
    key = hashlib.sha256(page.read_bytes() + _package().encode()).hexdigest()
    kept = folder / f"{page.stem}-{key[:16]}.json"
    if not kept.exists():
        one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        done = subprocess.run(
            [sys.executable, "-P", __file__, str(page)],  # modules of this folder have names that others have, too
            capture_output=True,
            encoding="utf-8",
            check=False,
            env={**os.environ, **one_thread, "PYTHONIOENCODING": "utf-8"},
        )
        if done.returncode:
            raise RuntimeError(f"{page} does not run:\n{done.stderr}")
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob(f"{page.stem}-*.json"):
            old.unlink()
        kept.write_text(done.stdout, encoding="utf-8")
    return [[(code, output) for code, output in block] for block in json.loads(kept.read_text(encoding="utf-8"))]


@cache
def _package() -> str:
    """Return a digest of all sources of the package."""
    digest = hashlib.sha256()
    for file in sorted(path for path in (ROOT / "src").rglob("*") if path.suffix in (".py", ".c", ".h")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


# --- what is made of it -----------------------------------------------------------------------------------------------


def with_outputs(text: str, ran: list[Ran]) -> str:
    """Return a page with the outputs of a run in place of those that it has."""
    blocks = iter(ran)

    def turn(block: re.Match[str]) -> str:
        pieces = next(blocks)
        if ">>>" not in block[1]:
            return block.group()
        return f"```python\n{''.join(shown + output for shown, output in pieces)}```"

    return FENCE.sub(turn, text)


def notebook(text: str, ran: list[Ran], pictures: Path, links: Callable[[str], str] = str) -> dict[str, Any]:
    """Return a page as a notebook with the outputs of a run, its pictures inside, and links that have been turned."""
    cells, end = [], 0
    for block, pieces in zip(FENCE.finditer(text), ran, strict=True):
        cells += _text_cells(links(text[end : block.start()]), pictures)
        cells += _code_cells(pieces)
        end = block.end()
    cells += _text_cells(links(text[end:]), pictures)
    count = 0
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
        if cell["cell_type"] == "code":
            count += 1
            cell["execution_count"] = count
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def _text_cells(text: str, pictures: Path) -> list[dict[str, Any]]:
    """Return a cell for the text between two blocks, or none; its pictures are attached."""
    text = text.strip()
    if not text:
        return []
    cell: dict[str, Any] = {"cell_type": "markdown", "metadata": {}}
    if names := [picture[3] for picture in PICTURE.finditer(text)]:
        inside = {name: base64.b64encode((pictures / name).read_bytes()).decode() for name in names}
        cell["attachments"] = {name: {"image/png": data} for name, data in inside.items()}
        text = PICTURE.sub(r"\1(attachment:\3)", text)
    return [{**cell, "source": text}]


def _code_cells(pieces: Ran) -> list[dict[str, Any]]:
    """Return cells that end where something was printed."""
    cells, source = [], ""
    for number, (shown, output) in enumerate(pieces, 1):
        source += "".join(line[4:] or "\n" for line in shown.splitlines(keepends=True)) if ">>>" in shown else shown
        if output or number == len(pieces):
            stream = [{"output_type": "stream", "name": "stdout", "text": output}] if output else []
            cells.append({"cell_type": "code", "metadata": {}, "source": source.rstrip("\n"), "outputs": stream})
            source = ""
    return cells


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(Path(sys.argv[1]))))
