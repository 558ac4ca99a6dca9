"""Named tuples and protocols that are made quickly: what is said of their types is for readers and type checkers alone.

`typing.NamedTuple` compiles each annotation when a class is made, and `collections.namedtuple` a constructor, which
takes most of the time. What a first gradient loads has two dozen such classes. Here they share their methods, and
constructors of as many fields share their code but for the names. `typing.Protocol` makes classes that can be asked at
run time, which nobody does here.
"""

from __future__ import annotations

from functools import lru_cache
from types import FunctionType
from typing import TYPE_CHECKING, Any

__all__ = ["NamedTuple", "Protocol"]

if TYPE_CHECKING:
    from typing import NamedTuple, Protocol
else:

    class Protocol:
        """What other classes can be used for, said for readers and type checkers alone."""

    from collections import namedtuple

    # What reads the field at some position, as the standard library has it.
    _field = type(namedtuple("_One", "field").field)

    def _make(cls: Any, iterable: Any) -> Any:
        made = tuple.__new__(cls, iterable)
        if len(made) != len(cls._fields):
            raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
        return made

    def _replace(self: Any, /, **changes: Any) -> Any:
        made = self._make(map(changes.pop, self._fields, self))
        if changes:
            raise ValueError(f"Got unexpected field names: {list(changes)!r}")
        return made

    def _asdict(self: Any) -> dict[str, Any]:
        return dict(zip(self._fields, self, strict=True))

    def _repr(self: Any) -> str:
        fields = ", ".join([f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True)])
        return f"{type(self).__name__}({fields})"

    def _getnewargs(self: Any) -> tuple[Any, ...]:
        return tuple(self)

    # What all of them can do, as in `collections.namedtuple`.
    _METHODS = {
        "_make": classmethod(_make),
        "_replace": _replace,
        "_asdict": _asdict,
        "__repr__": _repr,
        "__getnewargs__": _getnewargs,
        "__slots__": (),
    }

    @lru_cache(maxsize=64)
    def _code(count: int) -> Any:
        names = ", ".join([f"_{i}" for i in range(count)])
        made = eval(f"lambda _cls, {names}: _new(_cls, ({names},))", {})
        return made.__code__

    class _Making(type):
        """Makes a named tuple of a class with annotated fields: its methods and docstring stay."""

        def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> type:
            fields = tuple(namespace.get("__annotations__", ()))
            defaults = {field: namespace.pop(field) for field in fields if field in namespace}
            if list(defaults) != list(fields[len(fields) - len(defaults) :]):
                raise TypeError(f"a field of {name} without default follows one with a default")
            code = _code(len(fields)).replace(co_varnames=("_cls", *fields), co_name="__new__")
            values = tuple(defaults.values()) or None
            made = FunctionType(code, {"_new": tuple.__new__, "__name__": f"namedtuple_{name}"}, "__new__", values)
            made.__qualname__ = f"{name}.__new__"
            namespace.setdefault("__doc__", f"{name}({', '.join(fields)})")
            namespace |= {field: _field(i, f"Alias for field number {i}") for i, field in enumerate(fields)}
            namespace |= {"_fields": fields, "_field_defaults": defaults, "__match_args__": fields}
            return type(name, (tuple,), {**_METHODS, "__new__": made, **namespace})

    NamedTuple = type.__new__(_Making, "NamedTuple", (), {"__module__": __name__})
