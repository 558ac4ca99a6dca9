"""Sweeps and rules that modules below their own use: looked up when a rule runs.

The adjoint of a call or of a loop is derived by sweeping its body, and a sweep meets calls and loops. So they need each
other, as rules of ops do (`unspool._ops.late`): what a module needs of one above it is declared here, and the module
that defines it enters it. Most programs sweep in one direction, so a module that nobody has imported is loaded when it
is asked for something.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unspool._autodiff.sweeps.factored import Factored
    from unspool._engine.plan import Plan
    from unspool._graph import Node
    from unspool._tensor import Tensor


class Late:
    """The functions by name, each with the signature it has where it is defined."""

    active_nodes: Callable[..., list[Node]]
    as_products: Callable[[Any], Factored | None]
    jvp_of: Callable[[Node, tuple[Any, ...]], Any]
    passing_inputs: Callable[[Plan], tuple[int, ...]]
    pull_call: Callable[..., None]
    pull_loop: Callable[..., list[Any]]
    pull_through: Callable[..., list[Tensor | None]]
    pullback: Callable[..., list[Tensor | None]]
    push_loop: Callable[..., Any]
    pushforward: Callable[..., list[Tensor | None]]
    run_loop: Callable[..., tuple[Any, ...]]
    substitute: Callable[..., list[Any]]
    sweep: Callable[..., dict[int, Any]]

    def provide(self, **functions: Any) -> None:
        """Enter functions by their names."""
        unknown = functions.keys() - Late.__annotations__.keys()
        if unknown:
            raise AttributeError(f"functions that are not declared: {sorted(unknown)}")
        vars(self).update(functions)

    def __getattr__(self, name: str) -> Any:
        """Return a function of a module that was not loaded before."""
        if name not in _HOMES:
            raise AttributeError(f"nobody has entered {name!r}")
        import_module(f"unspool._autodiff.{_HOMES[name]}")
        return vars(self)[name]


_HOMES = {
    "active_nodes": "sweeps.walk",
    "as_products": "sweeps.products",
    "jvp_of": "sweeps.forward",
    "passing_inputs": "sweeps.calls",
    "pull_call": "sweeps.calls",
    "pull_through": "sweeps.transpose",
    "pullback": "sweeps.reverse",
    "pushforward": "sweeps.forward",
    "substitute": "sweeps.substitution",
    "sweep": "sweeps.reverse",
}

late = Late()
