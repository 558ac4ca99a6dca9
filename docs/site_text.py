"""How the text of a page becomes that of a page of the site: links are turned, and programs are laid out.

`site_hooks.py` calls this for every page. A page is written once, for whoever reads it in the repository.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from docs import reference

# Files from elsewhere, and the pages that they are on the site.
ELSEWHERE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
    "CITATION.cff": "citation.md",
    "LICENSE": "license.md",
    "bench/README.md": "benchmarks.md",
}
# The text of a link or picture, its target, and the part of the page that it names.
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")
# A block of another library's, and ours that does the same.
PAIR = re.compile(r"^```pycon\n(.*?)^```\n\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def recipes(folder: Path) -> list[str]:
    """Return the pages of a folder: its index, and the others in the order in which that names them."""
    names = sorted(path.name for path in folder.glob("*.md"))
    if "index.md" not in names:
        return names
    index = (folder / "index.md").read_text(encoding="utf-8")
    others = [name for name in names if name != "index.md"]
    return ["index.md", *sorted(others, key=lambda name: (f"({name}" not in index, index.find(f"({name}")))]


def contents() -> str:
    """Return the first page of the reference: every name, by page."""
    parts = ["# Reference", f"All {len(reference.public_names())} public names. `us` is `unspool`."]
    for page in reference.pages():
        links = ", ".join(f"[`{name.rpartition('.')[2]}`][unspool.{name}]" for name in page.names)
        parts += [f"## [{page.title}]({posixpath.basename(page.path)})", links]
    return "\n\n".join(parts) + "\n"


def side_by_side(markdown: str, library: str) -> str:
    """Put blocks that do the same into columns, with the names of both libraries above."""
    columns = (
        '<div class="pair" markdown="1">\n\n'
        rf'```pycon title="{library}"\n\1```\n\n```pycon title="unspool"\n\2```\n\n</div>'
    )
    return PAIR.sub(columns.replace(r"\n", "\n"), markdown)


def for_site(text: str, source: str, name: str) -> str:
    """Return the text of a file as that of a page: with links that fit its place, and sessions coloured as such."""

    def turn(link: re.Match[str]) -> str:
        picture, words, target, part = link.groups()
        place = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        place = f"docs/{ELSEWHERE[place]}" if place in ELSEWHERE else place
        if not place.startswith("docs/") or place.endswith((".py", ".json")):
            return words  # a file of the repository that the site does not have
        target = posixpath.relpath(place, posixpath.dirname(f"docs/{name}"))
        return f"{picture}[{words}]({target}{part or ''})"

    parts, end = [], 0
    for fence in FENCE.finditer(text):
        session = fence.group().replace("```python\n>>>", "```pycon\n>>>", 1)
        parts += [LINK.sub(turn, text[end : fence.start()]), session]
        end = fence.end()
    return "".join([*parts, LINK.sub(turn, text[end:])])
