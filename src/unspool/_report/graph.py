"""The folded program as a picture: what comes before the loop, its body in a box, and what comes after it.

What is carried from step to step has a line that leads back up beside the body.
"""

from __future__ import annotations

from typing import Any

from unspool._engine.memory.sizes import format_bytes
from unspool._report.layout import layers_of, order_of
from unspool._report.svg import element, escape, text

_WIDE, _HIGH, _GAP, _LAYER = 126.0, 36.0, 12.0, 62.0
_MARGIN, _HEAD = 14.0, 40.0


def program_picture(program: dict[str, Any], loss: str, texts: dict[str, str]) -> str:
    """Return the picture of a program; it has its natural size, and scrolls where there is less room."""
    loop = program["loop"]
    if loop is None:
        return ""
    body = _Body(loop["body"], texts)
    width = max(body.width + 2 * _MARGIN + 40, 340.0)
    y = 8.0
    parts = [_outside(program["before"], "before the loop", width, y)]
    y += 58
    parts.append(_arrow(width / 2, y - 16, y))
    height = body.height + _HEAD + 16
    parts.append(element("rect", x=1, y=y, width=width - 2, height=height, rx=10, class_="loopbox"))
    steps = f"{loop['steps']:,} steps"
    parts.append(text(_MARGIN, y + 19, steps, class_="boxtitle"))
    parts.append(text(_MARGIN, y + 34, _about(loop), class_="small"))
    parts.append(element("g", body.svg((width - body.width) / 2), transform=f"translate(0 {y + _HEAD:g})"))
    y += height
    parts.append(_arrow(width / 2, y, y + 16))
    y += 16
    parts.append(_outside(program["after"], f"after the loop, to the loss {loss}", width, y))
    y += 50
    return element(
        "svg",
        *parts,
        width=width,
        height=y,
        viewBox=f"0 0 {width:g} {y:g}",
        role="img",
        aria_label="the folded program: a graph of its loop",
        class_="graph",
    )


def _about(loop: dict[str, Any]) -> str:
    words = [f"{loop['alike']:,} alike, drawn is step {loop['shown']}" if loop["form"] == "plain" else loop["mark"]]
    if loop["kinds"] > 1:
        words.append(f"{loop['kinds']} kinds of steps")
    if loop["body"]["left_out"] > 0:
        words.append(f"{loop['body']['left_out']} more ops not drawn")
    return "; ".join(words)


def _outside(part: dict[str, Any], title: str, width: float, y: float) -> str:
    ops = ", ".join(f"{count} {name}" if count > 1 else name for name, count in part["most"])
    most = max(10, int(width / 6.2) - 4)
    return element(
        "g",
        element("rect", x=1, y=y, width=width - 2, height=42, rx=8, class_="outside"),
        text(_MARGIN, y + 17, f"{title}: {part['ops']:,} ops"[:most], class_="small strong"),
        text(_MARGIN, y + 33, ops if len(ops) <= most else f"{ops[: most - 1]}…", class_="small"),
    )


def _arrow(x: float, top: float, bottom: float) -> str:
    return element("path", d=f"M{x:g},{top:g}V{bottom:g}m-4,-6l4,6l4,-6", class_="edge")


class _Body:
    """The graph of a step, laid out."""

    def __init__(self, body: dict[str, Any], texts: dict[str, str]) -> None:
        self._nodes, self._edges, self._back = body["nodes"], body["edges"], body["back"]
        self._texts = texts
        layers = layers_of(len(self._nodes), self._edges)
        self._rows = order_of(len(self._nodes), self._edges, layers)
        widest = max((len(row) for row in self._rows), default=1)
        self._lane = 12.0 * len(self._back)
        self.width = widest * (_WIDE + _GAP) - _GAP + self._lane + 14
        self.height = max(1, len(self._rows)) * _LAYER
        self._at: dict[int, tuple[float, float]] = {}
        inner = self.width - self._lane - 14
        for depth, row in enumerate(self._rows):
            left = (inner - (len(row) * (_WIDE + _GAP) - _GAP)) / 2
            for i, node in enumerate(row):
                self._at[node] = left + i * (_WIDE + _GAP), depth * _LAYER + 8

    def svg(self, left: float) -> str:
        """Return the picture, moved to the right."""
        parts = [self._edge(*edge) for edge in self._edges]
        parts += [self._lead_back(i, *pair) for i, pair in enumerate(self._back)]
        parts += [self._node(i, node) for i, node in enumerate(self._nodes)]
        return element("g", *parts, transform=f"translate({left:g} 0)")

    def _edge(self, source: int, reader: int) -> str:
        (x1, y1), (x2, y2) = self._at[source], self._at[reader]
        x1, y1, x2 = x1 + _WIDE / 2, y1 + _HIGH, x2 + _WIDE / 2
        bend = max(14.0, (y2 - y1) / 2)
        path = f"M{x1:.1f},{y1:.1f}C{x1:.1f},{y1 + bend:.1f} {x2:.1f},{y2 - bend:.1f} {x2:.1f},{y2:.1f}"
        return element("path", d=path, class_=f"edge {self._nodes[source]['kind']}")

    def _lead_back(self, lane: int, source: int, carried: int) -> str:
        (x1, y1), (x2, y2) = self._at[source], self._at[carried]
        side = self.width - self._lane + 12.0 * lane
        below, above = y1 + _HIGH + 8 + 2 * (lane % 4), y2 - 6 - 2 * (lane % 4)
        start, end = x1 + _WIDE - 10, x2 + _WIDE - 10
        path = f"M{start:.1f},{y1 + _HIGH:.1f}V{below:.1f}H{side:.1f}V{above:.1f}H{end:.1f}V{y2:.1f}"
        return element("path", d=path, class_="edge back")

    def _node(self, i: int, node: dict[str, Any]) -> str:
        x, y = self._at[i]
        size = "×".join(map(str, node["shape"])) or "scalar"
        label = node["label"] if len(node["label"]) <= 16 else f"{node['label'][:15]}…"
        tip = [f"{node['kind']}: {node['label']}" if node["kind"] != "op" else node["label"]]
        tip.append(f"{size}, {format_bytes(node['bytes'])}")
        if node["line"]:
            tip += [node["line"], self._texts.get(node["line"], "")]
        return element(
            "g",
            element("rect", width=_WIDE, height=_HIGH, rx=6 if node["kind"] == "op" else 16),
            text(_WIDE / 2, 15, label, class_="middle"),
            text(_WIDE / 2, 29, f"{size} · {format_bytes(node['bytes'])}"[:23], class_="middle small"),
            transform=f"translate({x:.1f} {y:.1f})",
            class_=f"node {escape(node['kind'])}",
            data_tip="\n".join(filter(None, tip)),
        )
