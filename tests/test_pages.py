"""What holds for all pages: links lead somewhere, every public name is there, and numbers are measured."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import unspool
from docs import reference, site_text, tables

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/*.md")])
IDS = [str(page.relative_to(ROOT)) for page in PAGES]

FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`]*`")
# An address with a scheme is not ours to look up.
LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]*)(?:#([^)\s]+))?\)")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)

# Words that we gave up, and those that the field has: evict, recompute, backward pass, cached or held.
GIVEN_UP = re.compile(
    r"\blet(s|ting)? (\w+ )?go\b|\bway back\b|\bwhat is (not )?there\b"
    r"|\bbur(y|ied|ies)\b|\breverse sweep\b|\bsweeps? back\b|\brebuil(d|ds|ding|t) (the )?(value|state|residual)",
    re.IGNORECASE,
)


def prose(page: Path) -> str:
    """Return the text of a page without blocks of code."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """Return what a link to a part of a page may name: its headings, as sites make identifiers of them."""
    found: set[str] = set()
    for heading in HEADING.findall(prose(page)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        found.add(name if name not in found else f"{name}-{sum(a.startswith(name) for a in found)}")
    return found


# --- links ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    broken = []
    for target, anchor in LINK.findall(prose(page)):
        file = (page.parent / target).resolve() if target else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(f"{target}#{anchor}")
    assert not broken


def test_identifiers_of_headings_are_those_of_sites(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# Few states: `us.Checkpointed`\n\n## Trust, and verify\n\n```\n# none\n```\n\n## [A link](x.md)\n"
    )
    assert anchors(page) == {"few-states-uscheckpointed", "trust-and-verify", "a-link"}


def test_the_readme_names_every_page() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert not [name for name in (page.name for page in ROOT.glob("docs/*.md")) if f"docs/{name}" not in text]


# --- names ------------------------------------------------------------------------------------------------------------


def test_every_public_name_is_on_a_page() -> None:
    told: dict[str, set[str]] = {}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        code = "\n".join([*FENCE.findall(text), *CODE.findall(FENCE.sub("", text))])
        words = set(re.findall(r"\w+", code))
        # A name of a namespace counts where that namespace is spoken of.
        for namespace in ["", *(path for path in reference.namespaces() if re.search(rf"\b{path}\b", code))]:
            told.setdefault(namespace, set()).update(words)
    paths = (name.rpartition(".") for name in reference.public_names())
    assert not [f"{home}.{name}" for home, _, name in paths if name not in told.get(home, set())]


def test_the_reference_has_every_public_name_once() -> None:
    names = [name for page in reference.pages() for name in page.names]
    assert sorted(names) == sorted(set(names)) == sorted(reference.public_names())
    assert {name for name in unspool.__all__ if name not in names} == {
        path.partition(".")[0] for path in reference.namespaces()
    }


@pytest.mark.parametrize("page", reference.pages(), ids=lambda page: page.path)
def test_every_entry_of_the_reference_says_something(page: reference.Page) -> None:
    entries = re.split(r"^(?=## |::: )", page.markdown(), flags=re.MULTILINE)[1:]
    assert len(entries) == len(page.names)
    assert not [entry for entry in entries if entry.startswith("## ") and len(entry.strip().splitlines()) < 2]


# --- the site ---------------------------------------------------------------------------------------------------------


def test_links_fit_the_place_of_a_page_on_the_site() -> None:
    text = "[a](docs/memory.md#limits) [b](LICENSE) [c](bench/README.md) [d](https://example.org)"
    assert site_text.for_site(text, "README.md", "index.md") == (
        "[a](memory.md#limits) [b](license.md) [c](benchmarks.md) [d](https://example.org)"
    )
    assert site_text.for_site("[a](../../README.md#why)", "docs/recipes/x.md", "recipes/x.md") == "[a](../index.md#why)"


def test_a_file_that_the_site_does_not_have_is_named_and_not_linked() -> None:
    assert site_text.for_site("[`x.py`](../examples/x.py), ![p](images/p.png)", "docs/a.md", "a.md") == (
        "`x.py`, ![p](images/p.png)"
    )


def test_recipes_come_in_the_order_of_their_index(tmp_path: Path) -> None:
    for name, text in {"index": "[b](b.md) [a](a.md#x)", "a": "", "b": "", "c": ""}.items():
        (tmp_path / f"{name}.md").write_text(text)
    assert site_text.recipes(tmp_path) == ["index.md", "b.md", "a.md", "c.md"]
    assert site_text.recipes(tmp_path / "none") == []


def test_code_of_a_page_stays_as_it_is_on_the_site() -> None:
    text = "```python\n>>> a = f[0](README.md)\n```\n\n```python\na = 1\n```\n"
    assert site_text.for_site(text, "README.md", "index.md") == text.replace("```python\n>>>", "```pycon\n>>>")


def test_programs_that_do_the_same_stand_side_by_side() -> None:
    text = "```pycon\n>>> theirs\n```\n\n```python\n>>> ours\n```\n\n```python\n>>> alone\n```"
    found = site_text.side_by_side(text, "JAX")
    assert found.count('<div class="pair"') == 1 and found.index("theirs") < found.index("ours") < found.index("</div>")
    assert found.index("</div>") < found.index("alone") and 'title="JAX"' in found


def test_the_contents_of_the_reference_link_every_name() -> None:
    contents = site_text.contents()
    assert not [name for name in reference.public_names() if f"[unspool.{name}]" not in contents]


# --- words and numbers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_words_that_were_given_up_do_not_come_back(page: Path) -> None:
    assert not [found.group() for found in GIVEN_UP.finditer(" ".join(prose(page).split()))]


@pytest.mark.parametrize("folder", ["src", "bench", "examples"])
def test_the_words_of_docstrings_and_comments_are_those_of_the_pages(folder: str) -> None:
    found = []
    for file in sorted((ROOT / folder).rglob("*")):
        if file.suffix in (".py", ".pyi", ".c", ".h"):
            text = re.sub(r"\n *(#|//|\*)? *", " ", file.read_text(encoding="utf-8"))
            found += [f"{file.relative_to(ROOT)}: {word.group()}" for word in GIVEN_UP.finditer(text)]
    assert not found


@pytest.mark.parametrize("page", tables.PAGES, ids=lambda page: page.name)
def test_tables_of_numbers_are_what_their_script_writes(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert tables.PLACE.search(text)
    assert tables.filled(text) == text, "python docs/tables.py writes it again"


def test_a_time_has_three_digits_and_a_unit() -> None:
    assert [tables.duration(t) for t in (1.0, 0.0275, 0.000601, 12.34)] == ["1 s", "27.5 ms", "601 µs", "12.3 s"]


# --- the project ------------------------------------------------------------------------------------------------------


def test_the_citation_is_of_this_version() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {unspool.__version__}\n" in citation


def test_wheels_are_built_for_the_versions_that_are_named() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    series = "Programming Language :: Python :: 3."
    named = [c.removeprefix(series) for c in settings["project"]["classifiers"] if c.startswith(series)]
    assert settings["tool"]["cibuildwheel"]["build"].split() == [f"cp3{minor}-*" for minor in named]
