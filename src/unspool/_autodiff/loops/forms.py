"""In which forms a cotangent or tangent goes from step to step: not at all, as numbers, or masked; and row by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from unspool._graph import Node
from unspool._ops.elementwise import MASK, logical_or, mask
from unspool._ops.identity import zeros
from unspool._ops.layout import broadcast_to
from unspool._ops.leaf import constant

if TYPE_CHECKING:
    from unspool._tensor import Tensor

# How a cotangent or tangent is passed on: not at all (None), as numbers, or as numbers and what to keep of them.
PLAIN, MASKED = "plain", "masked"
Forms = tuple[str | None, ...]

# What a register of a derivative is: the register of the loop itself, or a part of its cotangent or tangent.
STATE, NUMBER, KEEP = "state", "number", "keep"
PARTS: dict[str | None, tuple[str, ...]] = {None: (), PLAIN: (NUMBER,), MASKED: (NUMBER, KEEP)}


def form_of(tensor: Tensor | None) -> str | None:
    """Return how a cotangent or tangent is passed on."""
    return None if tensor is None else MASKED if tensor.op is MASK else PLAIN


class Like(NamedTuple):
    """What a cotangent is shaped like."""

    shape: Any
    dtype: Any


def split(tensor: Tensor | None, form: str | None, like: Node | Like) -> list[Tensor]:
    """Return a cotangent of something as the tensors that a form has."""
    if form is None:
        return []
    if tensor is None:
        tensor = mask(zeros(like.shape, like.dtype), broadcast_to(constant(False), like.shape))
    if form == PLAIN:
        return [tensor]
    number, keep = tensor.inputs if tensor.op is MASK else (tensor, constant(True))
    return [number, broadcast_to(keep, like.shape)]  # type: ignore[list-item]


def joined(parts: Sequence[Any]) -> Any:
    """Return the cotangent that has some parts: ``None`` for none, masked for two."""
    return None if not parts else parts[0] if len(parts) == 1 else mask(*parts)


class JoinedRows(NamedTuple):
    """A cotangent or tangent that comes row by row.

    ``number`` and ``keep``, if there is one, are stacks; ``whole`` tells which rows are not masked, if not all are.
    """

    number: int
    keep: int | None
    whole: Any

    def of(self, stacks: Sequence[Any]) -> Any:
        """Return it, given all stacks."""
        number = stacks[self.number]
        if self.whole is None:
            return number
        rows = constant(self.whole.reshape((-1,) + (1,) * (len(number.shape) - 1)))
        keep = rows if self.keep is None else logical_or(rows, stacks[self.keep])
        return mask(number, broadcast_to(keep, number.shape))
