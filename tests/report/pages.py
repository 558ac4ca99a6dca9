"""Reads pages as a browser would, strictly: elements have to nest, and names to be unique."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

VOID = frozenset(("meta", "link", "input", "br"))


class Read(HTMLParser):
    """A page that was read: its elements, its texts, and the data inside.

    Attributes
    ----------
    elements : list of (str, dict)
    ids : list of str
    scripts : dict of str to str
        The contents of scripts with an id.
    """

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.ids: list[str] = []
        self.scripts: dict[str, str] = {}
        self.words: list[str] = []
        self._open: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        self.close()
        assert not self._open, f"left open: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"{tag} has an attribute twice: {names}"
        given = dict(attrs)
        self.elements.append((tag, given))
        if given.get("id"):
            self.ids.append(str(given["id"]))
        if tag not in VOID:
            self._open.append((tag, given))

    def handle_endtag(self, tag: str) -> None:
        assert self._open and self._open[-1][0] == tag, f"</{tag}> closes {self._open[-1:]}"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1][0] == "script":
            name = self._open[-1][1].get("id")
            if name:
                self.scripts[name] = self.scripts.get(name, "") + data
        elif data.strip():
            self.words.append(data)

    def count(self, tag: str, **attributes: Any) -> int:
        """Return how many elements of a kind there are."""
        return sum(
            name == tag and all(given.get(key.rstrip("_")) == value for key, value in attributes.items())
            for name, given in self.elements
        )

    def data(self, name: str = "data") -> Any:
        """Return data inside of the page."""
        return json.loads(self.scripts[name])

    @property
    def text(self) -> str:
        """All that can be read on the page."""
        return " ".join(self.words)
