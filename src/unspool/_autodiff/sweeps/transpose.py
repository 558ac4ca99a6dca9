"""One derivative rule from the other: a rule is linear in its cotangent or tangent, so its transpose is the other rule.

A vjp computes ct ↦ Jᵀ·ct. Applied to a stand-in for the cotangent it gives a graph that is linear in the stand-in, and
pulling a tangent t back through that graph gives J·t. In the same way a jvp gives the vjp. So an op, or a function with
a custom rule, that has one of the two has both. The stand-ins are zeros, whose value nothing depends on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from unspool._autodiff.sweeps.late import late
from unspool._autodiff.sweeps.reverse import contributions_of, fit, pullback
from unspool._autodiff.sweeps.walk import is_differentiable
from unspool._dtypes import INEXACT
from unspool._graph import Bundle, Node
from unspool._ops.identity import alias, zeros, zeros_like

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def push_through_vjp(node: Node, tangents: Sequence[Tensor | None]) -> Any:
    """Return the tangent of a node, from its vjp rules; for an op with several outputs a tuple."""
    stand_ins = _cotangents_for(node)
    ct = tuple(stand_ins) if type(node) is Bundle else stand_ins[0]
    moving = {operand.id for operand, t in zip(node.inputs, tangents, strict=True) if t is not None}
    # The rules are evaluated here for the sake of their graph alone, before any cotangent is known.
    outputs, seeds = [], []
    for operand, tangent, ct_in in zip(node.inputs, tangents, contributions_of(node, ct, moving), strict=True):
        if tangent is not None and ct_in is not None:
            outputs.append(fit(ct_in, operand, node))
            seeds.append(tangent)
    present = [s for s in stand_ins if s is not None]
    found = dict(zip((s.id for s in present), pullback(outputs, seeds, present), strict=True))
    slots = tuple(None if s is None else found[s.id] for s in stand_ins)
    return slots if type(node) is Bundle else slots[0]


def pull_through(
    push: Callable[[tuple[Any, ...]], Sequence[Any] | None],
    inputs: Sequence[Node],
    needed: Sequence[bool],
    cotangents: Sequence[Any],
) -> list[Tensor | None]:
    """Return the contributions to the inputs that are needed, from a rule that maps tangents of inputs to outputs'."""
    stand_ins = [
        alias(zeros_like(operand)) if wanted and is_differentiable(operand) else None
        for operand, wanted in zip(inputs, needed, strict=True)
    ]
    moved = push(tuple(stand_ins))
    if moved is None:
        return [None] * len(stand_ins)
    reached = [(t, ct) for t, ct in zip(moved, cotangents, strict=True) if t is not None and ct is not None]
    present = [s for s in stand_ins if s is not None]
    pulled = pullback([t for t, _ in reached], [ct for _, ct in reached], present)
    found = dict(zip((s.id for s in present), pulled, strict=True))
    return [None if s is None else found[s.id] for s in stand_ins]


def _cotangents_for(node: Node) -> list[Tensor | None]:
    """Return a stand-in for the cotangent of each output that can have one."""
    shapes: Any
    dtypes: Any
    shapes, dtypes = (node.shape, node.dtype) if type(node) is Bundle else ((node.shape,), (node.dtype,))
    return [
        alias(zeros(shape, dtype)) if dtype in INEXACT else None for shape, dtype in zip(shapes, dtypes, strict=True)
    ]


late.provide(pull_through=pull_through)
