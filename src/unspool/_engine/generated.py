"""Python functions made from source text, compiled once."""

from __future__ import annotations

import itertools
from typing import Any

_number = itertools.count().__next__


def compile_function(name: str, source: str, bound: dict[str, Any]) -> Any:
    """Return the function of that name which the source defines; ``bound`` are the global names it sees."""
    code = compile(source, f"<unspool {name} {_number()}>", "exec")
    namespace = dict(bound)
    exec(code, namespace)
    function = namespace.pop(name)
    return function
