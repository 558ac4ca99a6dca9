"""Operations that modules below their own use: looked up when a rule runs.

Rules of ops need each other. The adjoint of a sum copies and that of a copy sums; a cotangent is scaled by products,
and a product has a cotangent. Modules stand in one order nevertheless: what a module needs of one above it is declared
here, and the module that defines it enters it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from unspool._dims import Shape
from unspool._ops.op import Op

if TYPE_CHECKING:
    from unspool._tensor import Tensor


class Operations:
    """The operations by name, each with the signature it has where it is defined."""

    MULTIPLY: Op
    add: Callable[..., Tensor]
    astype: Callable[..., Tensor]
    broadcast_shapes: Callable[..., Shape]
    broadcast_to: Callable[..., Tensor]
    conj: Callable[..., Tensor]
    cumsum: Callable[..., Tensor]
    divide: Callable[..., Tensor]
    greater: Callable[..., Tensor]
    log: Callable[..., Tensor]
    logical_and: Callable[..., Tensor]
    logical_or: Callable[..., Tensor]
    multiply: Callable[..., Tensor]
    nonzero: Callable[..., tuple[Tensor, ...]]
    real: Callable[..., Tensor]
    rearrange: Callable[[Tensor, Callable[[Tensor], Tensor]], Tensor]
    reshape: Callable[..., Tensor]
    stack: Callable[..., Tensor]
    sum: Callable[..., Tensor]
    unrepeated: Callable[[Tensor], Tensor]

    def provide(self, **operations: Any) -> None:
        """Enter operations by their names."""
        unknown = operations.keys() - Operations.__annotations__.keys()
        if unknown:
            raise AttributeError(f"operations that are not declared: {sorted(unknown)}")
        vars(self).update(operations)

    def __getattr__(self, name: str) -> Any:
        """Return an operation of a module that was not loaded before."""
        if name not in _HOMES:
            raise AttributeError(f"nobody has entered {name!r}")
        import_module(f"unspool._ops.{_HOMES[name]}")
        return vars(self)[name]


_HOMES = {
    "cumsum": "reduction.scan",
    "log": "elementwise.exponential",
    "nonzero": "indexing.access",
    "stack": "layout.joining",
}


ops = Operations()
