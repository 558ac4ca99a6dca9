"""Other packages that keep a table of array libraries: we enter ourselves when they are imported.

The one idea: what to tell a neighbour stands in a module of its own in `unspool.interop`, which is imported when the
neighbour is, whichever of the two comes first. Nobody has to import or call anything for it, and a program that does
without a neighbour pays for a look into a table each time it imports a module.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

# The module that has a neighbour's table, and ours with what to enter.
_TABLES = {
    "autoray.autoray": "autoray",
    "einops._backends": "einops",
    "quimb.tensor.optimize": "quimb",
    "tensorly.backend": "tensorly",
}


class _AfterImport:
    """A finder that finds nothing by itself: it lets the others find a neighbour, and has us entered afterwards."""

    def __init__(self, waiting: dict[str, str]) -> None:
        self._waiting = waiting

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return what the other finders return for a neighbour, with its loader changed, and ``None`` for the rest."""
        ours = self._waiting.get(name)
        if ours is None:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader.exec_module = partial(_execute, spec.loader.exec_module, ours)  # type: ignore[method-assign]
                return spec
        return None


def _execute(execute: Callable[[ModuleType], None], ours: str, module: ModuleType) -> None:
    execute(module)
    _enter(module, ours)


def watch_imports() -> None:
    """Enter us in the tables of neighbours: now in those that are imported, and in the others when they are."""
    waiting = {}
    for table, ours in _TABLES.items():
        module = sys.modules.get(table)
        if module is None:
            waiting[table] = ours
        else:
            _enter(module, ours)
    sys.meta_path.insert(0, _AfterImport(waiting))


def _enter(table: ModuleType, ours: str) -> None:
    try:
        import_module(f"unspool.interop._{ours}").enter(table)
    except Exception as error:  # the neighbour works without us, and must be importable whatever it has changed
        version = getattr(sys.modules.get(table.__name__.partition(".")[0]), "__version__", "of unknown version")
        warnings.warn(
            f"unspool could not register with {table.__name__} {version}: {type(error).__name__}: {error}",
            RuntimeWarning,
            stacklevel=2,
        )
