"""Every example runs: those in docstrings and those in the README and the documentation pages."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

import unspool

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("*.md", "docs/*.md", "docs/recipes/*.md", "bench/*.md")
PAGES = sorted(p.relative_to(ROOT) for folder in FOLDERS for p in ROOT.glob(folder))
MODULES = sorted(["unspool", *(m.name for m in pkgutil.walk_packages(unspool.__path__, "unspool."))])
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
IMPORT = re.compile(r"^(?:>>> )? *(?:import|from) (\w+)", re.MULTILINE)
# Packages that the library is used with and does without: examples of theirs run where they are installed.
NEIGHBOURS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
NEIGHBOURS = {re.split(r"[<>=]", wanted)[0].replace("scikit-learn", "sklearn") for wanted in NEIGHBOURS["ecosystem"]}
RECIPES = [page for page in PAGES if page.parent.name == "recipes"]
WITH_NEIGHBOURS = [
    page for page in RECIPES if NEIGHBOURS & set(IMPORT.findall((ROOT / page).read_text(encoding="utf-8")))
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name: str) -> None:
    module = importlib.import_module(name)
    for example in find_examples(module):
        if not absent("".join(line.source for line in example.examples)):
            run(example)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_examples_on_pages_run(page: Path) -> None:
    if page.parent.name != "recipes":
        run_page(page)
        return
    first = FENCE.search((ROOT / page).read_text(encoding="utf-8"))
    if first is not None and (missing := absent(first[2])):
        pytest.skip(f"the recipe needs {', '.join(sorted(missing))}")
    run_recipe(page)


@pytest.mark.ecosystem
@pytest.mark.parametrize("page", WITH_NEIGHBOURS, ids=str)
def test_recipes_run_beside_the_packages_that_they_import(page: Path) -> None:
    assert not absent((ROOT / page).read_text(encoding="utf-8"))
    run_recipe(page)


def run_recipe(page: Path) -> None:
    """Run a recipe in a process of its own."""
    # Recipes count what a budget takes; what other tests hold would count too.
    program = f"from pathlib import Path; from tests.test_docs import run_page; run_page(Path({str(page)!r}))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def run_page(page: Path) -> None:
    """Run the examples on a page. One page is one program: later blocks see what earlier ones made."""
    text = (ROOT / page).read_text(encoding="utf-8")
    names: dict[str, object] = {"__name__": page.stem}
    for block in FENCE.finditer(text):
        language, code = block.groups()
        line = text.count("\n", 0, block.start(2))
        if language != "python" or absent(code):
            continue
        if ">>>" in code:
            # The parser copies the names it is given, so they are put in after it.
            example = doctest.DocTestParser().get_doctest(code, {}, str(page), str(page), line)
            example.globs = names
            run(example, clear=False)
        else:
            # Blank lines before the code give its tracebacks the page's line numbers.
            exec(compile("\n" * line + code, str(ROOT / page), "exec"), names)


def test_architecture_page_names_every_module() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    package = Path(unspool.__path__[0])
    modules = [p.name for p in package.glob("*.py") if p.stem != "__init__"]
    packages = [f"{p.parent.name}/" for p in package.glob("*/__init__.py")]
    assert not [name for name in modules + packages if f"`{name}`" not in text]


def test_pages_on_how_it_is_made_name_no_file_that_does_not_exist() -> None:
    text = "".join([(ROOT / "docs" / page).read_text(encoding="utf-8") for page in ("architecture.md", "internals.md")])
    folders = ("src", "docs", "bench", "tests", "examples")
    paths = [path for folder in folders for path in (ROOT / folder, *(ROOT / folder).rglob("*"))]
    files = [f"/{path.relative_to(ROOT).as_posix()}" for path in paths]
    named = set(re.findall(r"`([\w./-]*\w(?:\.py|\.pyi|\.c|\.h|/))`", text))
    assert len(named) > 150
    assert not [name for name in named if not any(file.endswith(f"/{name.rstrip('/')}") for file in files)]


def find_examples(module: ModuleType) -> list[doctest.DocTest]:
    found = doctest.DocTestFinder(exclude_empty=True).find(module)
    return [example for example in found if example.examples]


def absent(code: str) -> set[str]:
    """Return the neighbours that code imports and that are not installed."""
    return {name for name in NEIGHBOURS & set(IMPORT.findall(code)) if find_spec(name) is None}


def run(example: doctest.DocTest, clear: bool = True) -> None:
    report: list[str] = []
    doctest.DocTestRunner(optionflags=OPTIONS).run(example, out=report.append, clear_globs=clear)
    assert not report, "".join(report)
