"""Every example runs: those in docstrings and those in the README and the documentation pages."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path
from types import ModuleType

import pytest

import unspool

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(p.relative_to(ROOT) for p in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("bench/*.md")])
MODULES = sorted(["unspool", *(m.name for m in pkgutil.walk_packages(unspool.__path__, "unspool."))])
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]+\]\(([^)#:]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name: str) -> None:
    module = importlib.import_module(name)
    for example in find_examples(module):
        run(example)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_examples_on_pages_run(page: Path) -> None:
    # One page is one program: later blocks see what earlier ones made.
    text = (ROOT / page).read_text(encoding="utf-8")
    names: dict[str, object] = {"__name__": page.stem}
    for block in FENCE.finditer(text):
        language, code = block.groups()
        line = text.count("\n", 0, block.start(2))
        if language != "python":
            continue
        if ">>>" in code:
            # The parser copies the names it is given, so they are put in after it.
            example = doctest.DocTestParser().get_doctest(code, {}, str(page), str(page), line)
            example.globs = names
            run(example, clear=False)
        else:
            # Blank lines before the code give its tracebacks the page's line numbers.
            exec(compile("\n" * line + code, str(ROOT / page), "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    broken = [target for target in LINK.findall(text) if not (ROOT / page.parent / target).exists()]
    assert not broken


def test_architecture_page_names_every_module() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    package = Path(unspool.__path__[0])
    modules = [p.name for p in package.glob("*.py") if p.stem != "__init__"]
    packages = [f"{p.parent.name}/" for p in package.glob("*/__init__.py")]
    assert not [name for name in modules + packages if f"`{name}`" not in text]


def find_examples(module: ModuleType) -> list[doctest.DocTest]:
    found = doctest.DocTestFinder(exclude_empty=True).find(module)
    return [example for example in found if example.examples]


def run(example: doctest.DocTest, clear: bool = True) -> None:
    report: list[str] = []
    doctest.DocTestRunner(optionflags=OPTIONS).run(example, out=report.append, clear_globs=clear)
    assert not report, "".join(report)
