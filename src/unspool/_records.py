"""Named tuples whose annotations are for readers and type checkers alone.

`typing.NamedTuple` compiles each annotation when a class is made, which takes as long as the rest of making it. What a
first gradient loads has two dozen such classes.
"""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING, Any

__all__ = ["NamedTuple"]

if TYPE_CHECKING:
    from typing import NamedTuple
else:

    class _Making(type):
        """Makes a named tuple of a class with annotated fields: its methods and docstring stay."""

        def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> type:
            fields = namespace.get("__annotations__", {})
            defaults = [namespace[field] for field in fields if field in namespace]
            made = namedtuple(name, fields, defaults=defaults, module=namespace["__module__"])
            for key, value in namespace.items():
                if key not in fields and key not in ("__module__", "__qualname__"):
                    setattr(made, key, value)
            made.__qualname__ = namespace["__qualname__"]
            return made

    NamedTuple = type.__new__(_Making, "NamedTuple", (), {"__module__": __name__})
