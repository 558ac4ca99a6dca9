"""What tensors ask of the layers above theirs: values, derivatives, NumPy's functions.

A tensor is what operations record, so it stands below the engine and the sweeps; yet users ask it for both. What it
calls there is declared here, and `unspool._face`, which may import everything, enters it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from unspool._graph import Node
from unspool._records import Protocol

if TYPE_CHECKING:
    from unspool._tensor import Tensor


class Engine(Protocol):
    """What computes values."""

    def compute(self, targets: Sequence[Node], /) -> Any:
        """Give each of some tensors its value."""

    def evaluate(self, targets: Sequence[Node], bindings: Mapping[Any, Any] | None = None, /) -> list[Any]:
        """Return the values of some tensors, with values for placeholders."""


class Above:
    """The functions of upper layers that tensors call.

    Attributes
    ----------
    engine : callable
        Returns the engine that computes values.
    gradient : callable
        ``gradient(loss, wrt, options, memory, checkpoint)``: the gradient of a scalar, lazily, or at once in a budget.
    call_ufunc, call_function : callable
        NumPy's functions on tensors: ``__array_ufunc__`` and ``__array_function__``.
    report : callable
        ``report(loss, path, **options)``: what happened inside of a run.
    iterate_spooled : callable
        ``iterate_spooled(traced, strategy, most, spool)``: an iteration that is written as it runs. Not tensors ask for
        it but `unspool.iterate`, which stands below what writes runs.
    namespace : module
        The package users import.
    """

    __slots__ = ("call_function", "call_ufunc", "engine", "gradient", "iterate_spooled", "namespace", "report")

    engine: Callable[[], Engine]
    gradient: Callable[[Tensor, Any, Mapping[str, Any], Any, Any], Any]
    call_ufunc: Callable[[Any, str, tuple[Any, ...], dict[str, Any]], Any]
    call_function: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
    report: Callable[..., Any]
    iterate_spooled: Callable[[Any, Any, int | None, Any], tuple[int, list[Tensor]]]
    namespace: ModuleType


above = Above()
