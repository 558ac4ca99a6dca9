"""The recipes: what stands on their pages beside the programs, which `test_docs.py` runs."""

from __future__ import annotations

import base64
import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

from docs import notebooks

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "recipes"
PAGES = sorted(path.stem for path in FOLDER.glob("*.md") if path.stem != "index")


def read(page: str) -> str:
    return (FOLDER / f"{page}.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def make() -> ModuleType:
    spec = importlib.util.spec_from_file_location("recipes_make", FOLDER / "make.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", PAGES)
def test_every_recipe_is_in_the_index(page: str) -> None:
    assert f"({page}.md)" in read("index")


@pytest.mark.parametrize("page", PAGES)
def test_every_recipe_has_a_problem_a_loop_an_answer_a_picture_costs_and_advice(page: str) -> None:
    text = read(page)
    assert text.startswith("# ") and "**The problem.**" in text
    assert ">>> " in text and re.search(r"^## The answer", text, re.MULTILINE)
    assert f"](../images/recipes/{page}.png)" in text
    assert f"<!-- measured: {page} -->" in text
    assert "## When it is slow or too large" in text


@pytest.mark.parametrize("page", PAGES)
def test_the_tables_on_a_page_are_those_of_the_measured_figures(page: str, make: ModuleType) -> None:
    figures = json.loads((FOLDER / "figures.json").read_text(encoding="utf-8"))
    assert make.with_tables(read(page), figures["measured"]) == read(page)


@pytest.mark.parametrize("page", PAGES)
def test_pictures_are_small(page: str) -> None:
    assert (ROOT / "docs" / "images" / "recipes" / f"{page}.png").stat().st_size < 200_000


def test_the_program_of_a_page_has_its_functions_and_prints_nothing(
    make: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    names = make.program("economics")
    assert callable(names["policy"]) and "print" not in names
    assert capsys.readouterr().out == ""


def test_the_chemistry_on_the_page_is_that_of_the_example() -> None:
    example = (ROOT / "examples" / "hartree_fock.py").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", read("hartree-fock"), re.MULTILINE | re.DOTALL)
    programs = [block for block in blocks if ">>>" not in block]
    assert len(programs) == 3
    assert all(program.strip() in example for program in programs)


def test_times_and_bytes_are_told_in_units_that_suit_them(make: ModuleType) -> None:
    assert [make.spoken_time(seconds) for seconds in (0.0123, 0.5, 2.5, 12.0)] == [
        "12.3 ms",
        "500 ms",
        "2.50 s",
        "12 s",
    ]
    assert [make.spoken_bytes(count) for count in (None, 5, 12_345_678)] == ["–", "< 0.1 MB", "12.3 MB"]


def test_a_row_that_has_no_time_says_why(make: ModuleType) -> None:
    row = {"form": "ours", "kind": "ours", "state": "ok", "note": "", "seconds": 1.0, "first": 2.0, "resident": 1e6}
    others = [
        {"form": name, "kind": "peer", "state": state, "note": "a reason"}
        for name, state in (("A", "cannot"), ("B", "NaN"), ("C", "wrong"), ("D", "missing"))
    ]
    lines = make.time_table([row, *others]).splitlines()
    assert lines[2] == "| ours | 1.00 s | 1.00 × | 2.00 s | 1 MB |"
    told = [line.split(" | ")[1] for line in lines[3:7]]
    assert told == ["a reason", "NaN", "wrong: a reason", "missing"]


def test_a_run_in_a_folder_has_its_bytes_and_times_in_a_row(make: ModuleType) -> None:
    row = {"written": "at both ends", "kept": 2, "bytes": 2e5, "log": 26.6, "opened": 0.05, "gradient": 0.4, "tight": 2}
    head, rule, line = make.disk_table([row]).splitlines()
    assert line == "| at both ends | 2 | 0.2 MB | 27 bytes | 50 ms | 400 ms | 2.00 s |"
    assert head.count("|") == rule.count("|") == line.count("|")


# --- notebooks --------------------------------------------------------------------------------------------------------

PAGE = """# A page

**The problem.** Numbers; see [memory](../memory.md).

```python
>>> def twice(x):
...     return 2 * x
>>> print(twice(2))
5
>>> y = twice(3)
>>> y
```

```python
def f(x):
    return x
```

![A picture](../images/recipes/p.png)
"""


def test_a_page_is_run_and_shows_what_it_printed_then(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(PAGE)
    ran = notebooks.run(tmp_path / "page.md")
    assert [[output for _, output in block] for block in ran] == [["", "4\n", "", "6\n"], [""]]
    told = PAGE.replace("5\n", "4\n").replace(">>> y\n", ">>> y\n6\n")
    assert notebooks.with_outputs(PAGE, ran) == told
    assert notebooks.with_outputs(told, ran) == told


def test_a_notebook_has_cells_that_end_where_something_was_printed(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(PAGE)
    (tmp_path / "p.png").write_bytes(b"picture")
    made = notebooks.notebook(
        PAGE, notebooks.run(tmp_path / "page.md"), tmp_path, lambda text: text.replace("md", "html")
    )
    kinds = [cell["cell_type"] for cell in made["cells"]]
    assert kinds == ["markdown", "code", "code", "code", "markdown"]
    first, second, third = (cell for cell in made["cells"] if cell["cell_type"] == "code")
    assert first["source"] == "def twice(x):\n    return 2 * x\nprint(twice(2))"
    assert (second["source"], second["outputs"][0]["text"]) == ("y = twice(3)\ny", "6\n")
    assert third["source"] == "def f(x):\n    return x" and third["outputs"] == []
    assert "../memory.html" in made["cells"][0]["source"]
    assert "](attachment:p.png)" in made["cells"][-1]["source"]
    assert base64.b64decode(made["cells"][-1]["attachments"]["p.png"]["image/png"]) == b"picture"
    json.dumps(made)


def test_an_example_on_a_page_that_fails_says_where(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("# A page\n\n```python\n>>> 1 / 0\n```\n")
    with pytest.raises(RuntimeError, match=r'(?s)does not run.*page\.md", line 4.*ZeroDivisionError'):
        notebooks.executed(tmp_path / "page.md", tmp_path / "kept")


def test_a_page_is_run_again_only_when_it_has_changed(tmp_path: Path) -> None:
    page, kept = tmp_path / "page.md", tmp_path / "kept"
    for number in (1, 1, 2):
        page.write_text(f"# A page\n\n```python\n>>> {number} + 1\n```\n")
        made = notebooks.executed(page, kept)
        assert made == [[(f">>> {number} + 1\n", f"{number + 1}\n")]]
        (file,) = kept.iterdir()
    file.write_text("[]")
    assert notebooks.executed(page, kept) == []
