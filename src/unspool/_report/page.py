"""The page of a report: data in, one HTML file out that needs nothing else.

Pictures are SVG that Python draws; the script, a page of our own, shows values under the pointer and moves the slider.
Without the script everything can still be read, and printed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from unspool._report.charts import (
    Chart,
)
from unspool._report.svg import element, escape


@cache
def _asset(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


class Page:
    """A page while it is put together: sections, and what the script is told."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._parts: list[str] = []
        self._pointers: dict[str, Any] = {}
        self._data: dict[str, str] = {}

    def add(self, *parts: str) -> None:
        """Add markup."""
        self._parts += parts

    def chart(self, name: str, title: str, chart: Chart, caption: str = "", legend: str = "", id_: str = "") -> str:
        """Return a figure; the script is told of what is under the pointer."""
        if chart.places:
            self._pointers[name] = chart.pointers()
        told = element("figcaption", caption) if caption else ""
        return element(
            "figure", element("h3", escape(title)), chart.svg, legend, told, data_chart=name, id_=id_ or None
        )

    def attach(self, name: str, data: Any) -> None:
        """Put data into the page, as JSON under a name."""
        self._data[name] = embedded(data)

    def html(self) -> str:
        """Return the whole page."""
        self.attach("pointers", self._pointers)
        data = "".join(
            f'<script type="application/json" id="{name}">{text}</script>\n' for name, text in self._data.items()
        )
        return (
            "<!DOCTYPE html>\n"
            '<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            '<meta name="generator" content="unspool">\n'
            '<link rel="icon" href="data:,">\n'
            f"<title>{escape(self._title)}</title>\n<style>\n{_asset('page.css')}</style>\n</head>\n<body>\n"
            + "\n".join(self._parts)
            + f'\n<div id="tip" hidden></div>\n{data}<script>\n{_asset("page.js")}</script>\n</body>\n</html>\n'
        )


def embedded(data: Any) -> str:
    """Return data as JSON that may stand inside of a script element: nothing in it can end that."""
    text = json.dumps(as_json(data), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def as_json(data: Any) -> Any:
    """Return data as JSON has it: numbers that are not finite are the texts "nan", "inf" and "-inf"."""
    if isinstance(data, float) and not math.isfinite(data):
        return repr(data)
    if isinstance(data, dict):
        return {key: as_json(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [as_json(value) for value in data]
    return data


def table(rows: Sequence[Sequence[str]], *, numeric: bool = False) -> str:
    """Return a table; the first row is its head, which may be empty."""
    style = "n" if numeric else None
    head = element("tr", *[element("th", escape(cell), class_=style) for cell in rows[0]])
    body = [element("tr", *[element("td", escape(cell), class_=style) for cell in row]) for row in rows[1:]]
    return element("table", element("thead", head) if any(rows[0]) else "", element("tbody", *body))
