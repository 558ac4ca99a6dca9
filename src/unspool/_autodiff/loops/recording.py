"""A batch that is being recorded, as loops see it: they may have to run, for all of its members, to go on with one.

Batches are made in a layer above this one (`unspool._batching`); the one that is being recorded says so here.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from unspool._autodiff.loops.iterate import Adjoint
    from unspool._autodiff.loops.trace import Trace
    from unspool._tensor import Tensor

# The number of steps of a member, as a tensor, and its final state.
Iterated = tuple[Any, list["Tensor"]]


class Recording(Protocol):
    """What a batch does for loops in the function of one member."""

    def iterate(self, traced: Trace, strategy: Adjoint, most: int | None) -> Iterated | None:
        """Run a loop for all members; ``None`` if it does not have to run here, or cannot."""

    def fixed_point(
        self, traced: Trace, strategy: Adjoint, history: int, tol: float, max_steps: int
    ) -> Iterated | None:
        """Search for the fixed points of all members; ``None`` if there are no values to search with."""


recorded: ContextVar[Recording | None] = ContextVar("unspool_recorded", default=None)
