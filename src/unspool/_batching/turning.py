"""Matrices that all members share, turned once for a whole loop.

``w @ x`` for all members is x Wᵀ with the members along the rows of x: a product with a matrix that is read across.
BLAS takes up to twice as long for small ones of these as for a matrix that lies the right way. So a matrix that no step
changes gets a transposed copy before the loop, and the steps read that. A single product would not earn the copy.

It is part of the graph, so all that run it compute the same: the two products may round differently.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._autodiff.loops.loop import Body, apply_fragment, stand_ins
from unspool._autodiff.sweeps.substitution import substitute
from unspool._fragments.fragment import capture
from unspool._ops import batching
from unspool._ops.contraction.contract import contract, split_subscripts
from unspool._ops.layout import permute_dims
from unspool._ops.layout.reshaping import rearrange
from unspool._ops.leaf import placeholder
from unspool._ops.op import Op

if TYPE_CHECKING:
    from unspool._tensor import Tensor

# The most elements of a matrix that is turned: with larger ones a product takes so long that reading across is nothing.
_MOST = 1 << 14


def _across(x: Any) -> Any:
    return permute_dims(x, (*range(len(x.shape) - 2), len(x.shape) - 1, len(x.shape) - 2))


# Not registered: batching places it, and nobody applies it by name.
TURNED = Op(
    "turned",
    infer=lambda x: ((*x.shape[:-2], x.shape[-1], x.shape[-2]), x.dtype),
    kernel=lambda x: x.swapaxes(-1, -2).copy(order="C"),
    vjp=(lambda ct, out, x: rearrange(ct, _across),),
    jvp=(lambda t, out, x: rearrange(t, _across),),
    fresh=True,
    batch=batching.leading,
)


def turned(x: Tensor) -> Tensor:
    """Return a matrix transposed, in memory of its own."""
    return _graph.apply(TURNED, x)


def with_turned(bodies: Sequence[Body], shapes: Sequence[Any], first: int) -> tuple[tuple[Body, ...], list[int]]:
    """Return bodies of a loop that read transposed copies, and the constants of which there have to be some.

    Copies are constants from number ``first`` on. ``shapes`` are those of the inputs of each body.
    """
    copies: list[int] = []
    made = [_rewritten(body, given, copies, first) for body, given in zip(bodies, shapes, strict=True)]
    return tuple(made), copies


def _rewritten(body: Body, shapes: Sequence[Any], copies: list[int], first: int) -> Body:
    fragment, constants = body.fragment, len(body.constants)
    if not any(op.contracts and min(slots) < constants for op, slots, _ in fragment.body):
        return body
    inputs = stand_ins(fragment, shapes)
    outputs = apply_fragment(fragment, inputs)
    places = {x.id: i for i, x in enumerate(inputs[:constants])}
    products = [node for node in _graph.ancestors(outputs) if node.op.contracts]
    read = [(node, side) for node in products if (side := _read_across(node, places)) is not None]
    if not read:
        return body
    added: dict[int, Tensor] = {}
    for node, side in read:
        matrix = node.inputs[side]
        added.setdefault(places[matrix.id], placeholder(matrix.shape[::-1], matrix.dtype))
    instead = [_product(node, side, added[places[node.inputs[side].id]]) for node, side in read]
    results = substitute(outputs, [node for node, _ in read], instead, same_values=False)
    given = [*inputs[:constants], *added.values(), *inputs[constants:]]
    numbers = [body.constants[place] for place in added]
    copies += [number for number in numbers if number not in copies]
    whole = (*body.constants, *[first + copies.index(number) for number in numbers])
    return body._replace(fragment=capture(given, results).fragment, constants=whole)


def _read_across(node: Any, places: dict[int, int]) -> int | None:
    """Return which operand of a product of matrices is a constant on the right that is read across, if one is."""
    if any(len(x.shape) != 2 for x in (node, *node.inputs)) or node.dtype not in (np.float64, np.float32):
        return None
    labels = split_subscripts(node.attributes["subscripts"])
    side = int(labels[2][1] in labels[1])  # the operand that has the columns of the result is on the right
    matrix, own = node.inputs[side], labels[side]
    rows, columns = matrix.shape
    if own[0] != labels[2][1] or own[1] in labels[2] or matrix.id not in places:
        return None
    if not isinstance(rows, int) or not isinstance(columns, int) or min(rows, columns) == 1:
        return None
    return side if matrix.dtype == node.dtype and rows * columns <= _MOST else None


def _product(node: Any, side: int, copy: Tensor) -> Tensor:
    """Return a product of matrices of which one operand is there transposed."""
    labels = list(split_subscripts(node.attributes["subscripts"]))
    operands = list(node.inputs)
    operands[side], labels[side] = copy, labels[side][::-1]
    return contract(operands[0], tuple(labels[0]), operands[1], tuple(labels[1]), tuple(labels[2]))
