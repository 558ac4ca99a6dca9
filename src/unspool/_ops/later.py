"""Modules of a family that are loaded when one of their names is first asked for.

A first gradient needs few of the operations there are, and waits for each module that is loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def later(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package that finds names in modules of it, each loaded when it is asked for."""

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, found)  # from now on Python finds it without asking here
        return found

    return find
