"""What leaves the process: pickle, and with it cloudpickle, joblib and multiprocessing.

The one idea: of a tensor, its value travels. A leaf arrives as a leaf of its kind, and what was computed as a variable
that has its value and no history. A recipe whose value nobody has asked for is refused, and the message says what to
do. Of a traced function the function travels, and is traced again where it arrives.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from unspool._graph import describe, source_of
from unspool._ops.leaf import CONSTANT, PLACEHOLDER, constant, tensor
from unspool.errors import NoValueError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def by_value(t: Tensor, was_computed: bool) -> tuple[Any, ...]:
    """Return what pickle needs to make a tensor again (``Tensor.__reduce__``)."""
    value = t.value
    if value is None and was_computed:
        value = t.eval()  # it was evicted since
    if value is None:
        raise NoValueError(_refusal(t))
    return (constant, (value,)) if t.op is CONSTANT else (arrived, (value, t.name))


def arrived(value: Any, name: str | None) -> Tensor:
    """Make a tensor from what was pickled."""
    return tensor(value, name=name)


def fragment_by_name_or_function(fragment: Any, parts: tuple[Any, ...]) -> Any:
    """Return what pickle needs to make a traced function again: its name where that leads to it, else its function.

    A decorated function has the fragment under its own name, so that it cannot be pickled by it. cloudpickle takes
    functions of the main program by value, because names of it mean nothing in another process.
    """
    module = getattr(fragment, "__module__", None)
    asking = sys._getframe(2).f_globals.get("__name__", "")
    if module == "__main__" and "cloudpickle" in asking:
        return type(fragment), parts
    name: str = getattr(fragment, "__qualname__", "")
    found: Any = sys.modules.get(str(module))
    for part in name.split("."):
        found = getattr(found, part, None)
    return name if found is fragment else (type(fragment), parts)


def _refusal(t: Tensor) -> str:
    if t.op is PLACEHOLDER:
        return f"{describe(t)}, made at {source_of(t)}, has no value and cannot be pickled"
    return (
        f"{describe(t)}, made at {source_of(t)}, is a recipe that was not evaluated, and only values are pickled: "
        "call t.eval() first, and the tensor arrives with its value and without its history"
    )
