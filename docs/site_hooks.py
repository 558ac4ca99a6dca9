"""What the site is made of beside the pages of this folder; mkdocs calls the functions below (``mkdocs.yml``).

Pages that live elsewhere in the repository, the README among them, become pages of the site, and links to them are
turned. The reference is made (`reference.py`). Recipes are found, run, and shown with what they printed
(`notebooks.py`). So every page is written once, and its links work in both places.
"""

from __future__ import annotations

import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from docs import notebooks, reference  # noqa: E402
from docs.site_text import ELSEWHERE, contents, for_site, recipes, side_by_side  # noqa: E402

TITLES = {"CITATION.cff": "Citation", "LICENSE": "Licence"}
# What a browser fetches without being asked; a link that is followed is none of it.
LOADED = re.compile(r"""<(?:script|img|link|iframe)[^>]+(?:src|href)=["']?((?:https?:)?//[^"' >]+)""")
ANCHOR = re.compile(r"""\sid=["']?([^"' >]+)""")
LINK_TO_PAGE = re.compile(r"(\]\([^):]+)\.md(?=[)#])")
COMING_FROM = {"from-pytorch.md": "PyTorch", "from-jax.md": "JAX", "from-autograd.md": "autograd"}


def on_config(config: Any) -> Any:
    """Enter the recipes that there are, and the reference, where ``mkdocs.yml`` leaves their place.

    A page of this folder that is listed nowhere is a guide.
    """
    entries = [{page.title: page.path} for page in reference.pages()]
    found = {
        "Recipes": [f"recipes/{name}" for name in recipes(ROOT / "docs" / "recipes")],
        "Reference": ["reference/index.md", {"Beside NumPy, SciPy and JAX": "names.md"}, *entries],
    }
    listed = re.findall(r"[\w-]+\.md", str([config.nav, found]))
    unlisted = sorted(path.name for path in ROOT.glob("docs/*.md") if path.name not in listed)
    nav = []
    for entry in config.nav:
        if isinstance(entry, str):
            nav.append(entry)
            continue
        ((title, pages),) = entry.items()
        pages = [*found.get(title, pages), *(unlisted if title == "Guides" else [])]
        if pages:
            nav.append({title: pages})
    config.nav = nav
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add what is written elsewhere, and what is made."""
    for source, name in ELSEWHERE.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        if not source.endswith(".md"):
            text = f"# {TITLES[source]}\n\n```text\n{text}```\n"
        files.append(File.generated(config, name, content=for_site(text, source, name)))
    for page in reference.pages():
        files.append(File.generated(config, page.path, content=page.markdown()))
    files.append(File.generated(config, "reference/index.md", content=contents()))
    pages = [ROOT / "docs" / "recipes" / name for name in recipes(ROOT / "docs" / "recipes") if name != "index.md"]
    with ThreadPoolExecutor(2) as pool:
        for page, ran in zip(pages, pool.map(notebooks.executed, pages), strict=True):
            files.append(File.generated(config, f"recipes/{page.stem}.ipynb", content=_notebook(page, ran)))
    return files


def _notebook(page: Path, ran: list[notebooks.Ran]) -> str:
    """Return a recipe as a notebook; its links lead to pages of the site that it lies in."""

    def turned(text: str) -> str:
        return LINK_TO_PAGE.sub(r"\1.html", for_site(text, f"docs/recipes/{page.name}", f"recipes/{page.name}"))

    text = page.read_text(encoding="utf-8")
    return json.dumps(notebooks.notebook(text, ran, ROOT / "docs" / "images" / "recipes", turned), indent=1)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn the links of a page of this folder, and lay it out."""
    name = page.file.src_uri
    if name == "index.md":
        page.meta["hide"] = ["navigation"]  # it is alone in its part of the site
    if name in COMING_FROM:
        page.meta["hide"] = ["toc"]  # leaves room for two columns
        markdown = side_by_side(markdown, COMING_FROM[name])
    if name.startswith("recipes/") and name != "recipes/index.md":
        markdown = notebooks.with_outputs(markdown, notebooks.executed(ROOT / "docs" / name))
        told = f"[As a notebook]({Path(name).stem}.ipynb){{ .notebook download }}"
        markdown = markdown.replace("\n\n", f"\n\n{told}\n\n", 1)
    made = name.startswith("reference/") or name in ELSEWHERE.values()
    return markdown if made else for_site(markdown, f"docs/{name}", name)


def on_post_build(config: Any) -> None:
    """Refuse a site that lacks a public name, or loads something from elsewhere."""
    pages = [path.read_text(encoding="utf-8") for path in Path(config.site_dir).rglob("*.html")]
    anchors = {anchor for page in pages for anchor in ANCHOR.findall(page)}
    lacking = [name for name in reference.public_names() if f"unspool.{name}" not in anchors]
    loaded = {address for page in pages for address in LOADED.findall(page)}
    if lacking or loaded:
        raise PluginError(f"the site lacks {lacking}, and loads {sorted(loaded)} from elsewhere")
