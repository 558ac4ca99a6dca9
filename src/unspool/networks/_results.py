"""How results of loops print: a line for each field, the long ones shortened. Nothing is computed for it."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any, TypeVar

import unspool as us

Cls = TypeVar("Cls", bound=type)

# Characters of a line.
WIDTH = 72


def printed_as_table(cls: Cls) -> Cls:
    """Decorate a named tuple that prints as a table, and as one in notebooks."""
    cls.__repr__ = _as_text  # type: ignore[assignment,method-assign]
    cls._repr_html_ = _as_html  # type: ignore[attr-defined]
    return cls


def _as_text(self: Any) -> str:
    width = max(map(len, self._fields))
    lines = [f"  {name:<{width}}  {text}" for name, text in _rows(self)]
    return "\n".join([type(self).__name__, *lines])


def _as_html(self: Any) -> str:
    return f"<pre>{escape(repr(self))}</pre>"


def _rows(result: Any) -> list[tuple[str, str]]:
    return [(name, _history(value) if name == "history" else _short(value)) for name, value in result._asdict().items()]


def _short(value: Any) -> str:
    """Return a value on one line."""
    if isinstance(value, us.Tensor):
        known = repr(value).removeprefix("Tensor(").removesuffix(")") if value.ndim == 0 else ""
        return known or f"Tensor {value.shape} {value.dtype}"
    if isinstance(value, float):
        return f"{value:.8g}"
    if hasattr(value, "_fields"):
        parts = ", ".join(f"{name}={_short(part)}" for name, part in value._asdict().items())
        return f"{type(value).__name__}({parts})"
    if isinstance(value, (tuple, list)):
        return f"{type(value).__name__} of {len(value)}"
    text = " ".join(repr(value).split())
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 2]} …"


def _history(steps: Any) -> str:
    """Return how many steps there were, and the numbers of the last one."""
    if not steps or not isinstance(steps[-1], Mapping):
        return f"{len(steps)} entries"
    last = ", ".join(f"{name} {value:.3g}" for name, value in steps[-1].items())
    return f"{len(steps)} entries, the last: {last}"
