"""How tables and reports look in a notebook: as the text that they print, in a fixed font or in cells."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def table_as_html(rows: Iterable[tuple[str, Any]]) -> str:
    """Return names and values as a table with two columns.

    Examples
    --------
    >>> table_as_html([("steps", 3), ("state", "<tensor>")])
    '<table><tr><th>steps</th><td>3</td></tr><tr><th>state</th><td>&lt;tensor&gt;</td></tr></table>'
    """
    cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>" for name, value in rows)
    return f"<table>{cells}</table>"


def text_as_html(text: str) -> str:
    """Return text that is laid out in columns as it is.

    Examples
    --------
    >>> text_as_html("a < b")
    '<pre>a &lt; b</pre>'
    """
    return f"<pre>{escape(text)}</pre>"


def printed_as_html(self: Any) -> str:
    """Return what an object prints; to be its ``_repr_html_``."""
    return text_as_html(str(self))


def escape(text: str) -> str:
    """Return text with what means something in HTML replaced; ``html.escape``, whose import takes a millisecond."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
