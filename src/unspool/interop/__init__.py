"""unspool beside other libraries: what they need to be told, and bridges between their derivatives and ours.

A module for each neighbour, imported when it is used. autoray (and with it quimb, cotengra and symmray), einops and
TensorLy need nothing from you: they know unspool as soon as both are imported. `torch` and `jax` make a differentiable
function of theirs from one of ours, and the other way round.
"""

from importlib import import_module as _import_module
from typing import Any as _Any

__all__ = ["jax", "torch"]


def __getattr__(name: str) -> _Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _import_module(f"unspool.interop.{name}")


def __dir__() -> list[str]:
    return sorted(__all__)
