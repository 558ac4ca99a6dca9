"""Derivatives of the backward pass through a loop with few saved states, by loops that keep few states themselves.

Let J be the derivative of the loop at its inputs u. The sweep gives Jᴴ·c for a cotangent c of the outputs.

- In reverse, a cotangent w of that contributes J·w to c, which is the loop's tangent, and to u the gradient of the
  real number ⟨J·w, c⟩.
- Forward, with tangents of u and of c, its tangent is Jᴴ·ċ plus the gradient of ⟨J·u̇, c⟩ with respect to u.

Both take the loop with tangents carried along, and its adjoint. They are found on stand-ins, which have nothing to do
with each other, so that derivatives are partial ones, and placed on the nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unspool._autodiff.loops.forms import MASKED, form_of, split
from unspool._autodiff.loops.loop import apply_fragment
from unspool._autodiff.sweeps.forward import pushforward
from unspool._autodiff.sweeps.reverse import pullback
from unspool._fragments.fragment import capture
from unspool._ops.elementwise import add_cotangents, mask
from unspool._ops.leaf import placeholder

if TYPE_CHECKING:
    from unspool._autodiff.loops.checkpointed_rules import Reversal
    from unspool._tensor import Tensor


def pull_reversal(
    needed: Sequence[bool], ct: Sequence[Any], inputs: Sequence[Any], reversal: Reversal
) -> list[Tensor | None]:
    """Return what cotangents of a sweep contribute to its inputs."""
    at = _OnStandIns(reversal, inputs)
    moving: list[Any] = [None] * len(at.inputs)
    for (position, keep), w in zip(reversal.leaving, ct, strict=True):
        if not keep:
            moving[position] = at.stand_in(w)
    tangents = pushforward(at.outputs, at.inputs, moving)
    found = at.gradients(tangents, at.cotangents, [flag for flag, _ in zip(needed, at.inputs, strict=False)])
    wanted = needed[len(at.inputs) :]
    for (position, keep), flag in zip(reversal.arriving, wanted, strict=False):
        tangent = tangents[position] if flag and not keep else None
        found.append(at.as_arriving(tangent, position))
    return [*at.placed(found), *[None] * (len(inputs) - len(found))]


def push_reversal(tangents: Sequence[Any], inputs: Sequence[Any], reversal: Reversal) -> tuple[Tensor | None, ...]:
    """Return the tangents of what a sweep gives."""
    at = _OnStandIns(reversal, inputs)
    given, arriving, _ = reversal.grouped(tangents)
    moving = [at.stand_in(t) for t in given]
    turning: list[Any] = [None] * len(at.outputs)
    for (position, keep), t in zip(reversal.arriving, arriving, strict=True):
        if not keep:
            turning[position] = at.as_arriving(at.stand_in(t), position)
    leaving = {position for position, _ in reversal.leaving}
    wanted = [i in leaving for i in range(len(at.inputs))]
    first = at.gradients(at.outputs, turning, wanted)
    second = at.gradients(pushforward(at.outputs, at.inputs, moving), at.cotangents, wanted)
    both = [y if x is None else x if y is None else add_cotangents(x, y) for x, y in zip(first, second, strict=True)]
    found = at.placed([None if keep else both[position] for position, keep in reversal.leaving])
    return tuple(found)


class _OnStandIns:
    """A loop on stand-ins for its inputs, with stand-ins for what arrives at its outputs.

    ``inputs`` and ``outputs`` are those of the loop; ``cotangents`` has one entry, or ``None``, per output.
    """

    def __init__(self, reversal: Reversal, inputs: Sequence[Any]) -> None:
        self._nodes: list[Any] = []
        self._stand_ins: list[Tensor] = []
        given, arriving, _ = reversal.grouped(inputs)
        self.inputs = [self._part(node) for node in given]
        self.outputs = reversal.loop_on(self.inputs)
        self.cotangents: list[Any] = [None] * len(self.outputs)
        for (position, keep), node in zip(reversal.arriving, arriving, strict=True):
            part = self._part(node)
            self.cotangents[position] = mask(self.cotangents[position], part) if keep else part

    def _part(self, node: Any) -> Tensor:
        self._nodes.append(node)
        self._stand_ins.append(placeholder(node.shape, node.dtype))
        return self._stand_ins[-1]

    def stand_in(self, tensor: Tensor | None) -> Tensor | None:
        """Return a stand-in for a cotangent or tangent, masked if it is."""
        if tensor is None:
            return None
        parts = [self._part(part) for part in split(tensor, form_of(tensor), tensor)]
        return parts[0] if len(parts) == 1 else mask(*parts)

    def as_arriving(self, tensor: Tensor | None, position: int) -> Tensor | None:
        """Return what has the shape of a cotangent; where that is absent, it does not count."""
        cotangent = self.cotangents[position]
        return mask(tensor, cotangent.inputs[1]) if tensor is not None and form_of(cotangent) == MASKED else tensor

    def gradients(self, outputs: Sequence[Any], cotangents: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
        """Return what cotangents contribute to those inputs of the loop that are wanted, ``None`` for the others."""
        reached = [(x, ct) for x, ct in zip(outputs, cotangents, strict=True) if x is not None and ct is not None]
        variables = [x for x, flag in zip(self.inputs, wanted, strict=True) if flag]
        found = iter(pullback([x for x, _ in reached], [ct for _, ct in reached], variables))
        return [next(found) if flag else None for flag in wanted]

    def placed(self, found: Sequence[Any]) -> list[Any]:
        """Return tensors on stand-ins as the same tensors on the nodes that these stand for."""
        fragment, inputs, _ = capture(self._stand_ins, [tensor for tensor in found if tensor is not None])
        # What depends on no stand-in is an input as it is.
        made = iter(apply_fragment(fragment, [*self._nodes, *inputs[len(self._nodes) :]]))
        return [None if tensor is None else next(made) for tensor in found]
