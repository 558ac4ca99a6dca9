"""A batch that is being recorded: stand-ins for one member, and what they stand for.

Stand-ins are placeholders. Which batch is being recorded is known to those who need the values of all members while
the function of one of them runs: loops that stop by a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import Token
from typing import TYPE_CHECKING, Any

from unspool._autodiff.loops.iterate import Adjoint
from unspool._autodiff.loops.recording import Iterated, recorded
from unspool._autodiff.loops.trace import Trace
from unspool._batching.images import Image, Images, batch_graph
from unspool._batching.iterating import fixed_points, iterate_members
from unspool._batching.keys import member_key
from unspool._dims import Size
from unspool._ops.leaf import placeholder
from unspool._ops.random import Key

if TYPE_CHECKING:
    from unspool._tensor import Tensor


class Batch:
    """One call of a function under `unspool.vmap`.

    Parameters
    ----------
    leaves : sequence
        Arguments, with members along a first axis where they have any; a random key is split among members.
    has_members : sequence of bool
        Which of them have members.
    count : Size
        How many members there are.

    Attributes
    ----------
    members : list
        The arguments of one member: stand-ins, and what all have in common.
    images : Images
        What stand-ins stand for, and what has been made of them.
    outer : Batch or None
        The batch inside whose function this one is recorded.
    identity : object
        What programs know the batch by, which do not keep it alive.
    """

    def __init__(self, leaves: Sequence[Any], has_members: Sequence[bool], count: Size) -> None:
        self.count, self.images = count, Images()
        self.outer: Any = recorded.get()
        self.identity = object()
        self.members = [self._member(leaf) if flag else leaf for leaf, flag in zip(leaves, has_members, strict=True)]
        self._token: Token[Any] | None = None

    def _member(self, leaf: Any) -> Any:
        return member_key(leaf, self.count, self.stand_in) if isinstance(leaf, Key) else self.stand_in(leaf)

    def stand_in(self, whole: Tensor) -> Tensor:
        """Return what stands for one member of a tensor that has all along its first axis."""
        made = placeholder(whole.shape[1:], whole.dtype)
        self.images[made.id] = Image(whole, True)
        return made

    def images_of(self, nodes: Sequence[Any]) -> list[Image]:
        """Return what nodes of a member have become."""
        return batch_graph(nodes, self.images, self.count, self.identity)

    def __enter__(self) -> Batch:
        self._token = recorded.set(self)
        return self

    def __exit__(self, *error: object) -> None:
        if self._token is not None:
            recorded.reset(self._token)

    def iterate(self, traced: Trace, strategy: Adjoint, most: int | None) -> Iterated | None:
        """Run a loop that stops by a value, or that is differentiated where it ends, for all members."""
        return iterate_members(self, traced, strategy, most)

    def fixed_point(
        self, traced: Trace, strategy: Adjoint, history: int, tol: float, max_steps: int
    ) -> Iterated | None:
        """Search for the fixed points of all members."""
        return fixed_points(self, traced, strategy, history, tol, max_steps)
