"""How much of a sum is noise: the size of its terms, each of which is known to some relative accuracy only.

A loss that is stationary at a point sends cotangents back to it that cancel. What is left of them has no meaning, and
its own size does not tell so. That of the terms does, and the graph still has them: a cotangent is a sum, moved about.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._dims import Shape
from unspool._dtypes import real_dtype
from unspool._ops import batching
from unspool._ops.contraction.norms import vector_norm
from unspool._ops.elementwise import ADD, ASTYPE, CONJ, MASK, NEGATIVE, SUBTRACT, maximum, multiply
from unspool._ops.elementwise.complex_numbers import IMAGINARY_PART, REAL_PART
from unspool._ops.indexing.selection import UNSLICE
from unspool._ops.layout import CONCAT, PERMUTE, RESHAPE, reshape
from unspool._ops.layout.cropping import ZERO_PAD
from unspool._ops.op import STRUCTURE, Op, register

if TYPE_CHECKING:
    from unspool._graph import Node
    from unspool._tensor import Tensor

# What a sum looks like in the graph; what leaves its elements where they are, and what moves them about.
_SUMS = (ADD, SUBTRACT)
_IN_PLACE = (MASK, NEGATIVE, CONJ, ASTYPE, REAL_PART, IMAGINARY_PART)
_MOVES = (CONCAT, RESHAPE, PERMUTE)

# A loop may add up thousands of terms; the last of them, and what came before as one, will do.
_MOST_TERMS = 16


def noise_of(total: Tensor, level: float) -> Tensor | None:
    """Return what a sum may be wrong by if its terms have the relative accuracy ``level``; ``None`` for no sum."""
    terms = terms_of(total)
    if not terms:
        return None
    sizes = [vector_norm(reshape(term, (-1,))) for term in terms]
    return multiply(reduce(maximum, sizes), level)


def scale_of(*moves: Tensor | None, stack: int) -> Tensor:
    """Return the largest modulus in cotangents, or tangents, and in the terms they are sums of; no derivative sees it.

    The first ``stack`` axes tell independent things apart; each has its scale. It is one number and made at once, so
    that no term has to be kept until somebody asks how large it was.
    """
    given = [move for move in moves if move is not None]
    terms = [term for move in given for term in terms_of(move, stack)]
    return _graph.apply(SCALE, *given, *terms, stack=stack)


def largest_modulus(*arrays: Any, stack: int) -> Any:
    """Return the largest modulus in all of some arrays, apart for what their first ``stack`` axes tell apart."""
    return reduce(np.maximum, [np.max(np.abs(a), axis=tuple(range(stack, a.ndim)), initial=0.0) for a in arrays])


def _scale_of_tangents(tangents: Sequence[Tensor | None], out: Tensor, *moves: Tensor, stack: int) -> Tensor | None:
    # What moves is held against the scale of what moves.
    given = [tangent for tangent in tangents if tangent is not None]
    return _graph.apply(SCALE, *given, stack=stack) if given else None


SCALE = register(
    Op(
        "scale",
        infer=lambda first, *others, stack: (first.shape[:stack], real_dtype(first.dtype)),
        kernel=largest_modulus,
        vjp=lambda i, ct, *nodes, **params: None,
        jvp=_scale_of_tangents,
        params={"stack": STRUCTURE},
        batch=lambda op, members, *moves, stack: batching.leading(op, members, *moves, stack=stack + 1),
    )
)


def terms_of(total: Tensor, stack: int = 0) -> list[Tensor]:
    """Return the terms of sums that a tensor consists of, some of them as partial sums if there are many.

    The first ``stack`` axes of the tensor tell independent things apart, and those of the terms tell the same things
    apart, so that each can be judged by what belongs to it. A tensor that is no sum has no terms.
    """
    waiting: deque[tuple[Node, bool]] = deque([(total, False)])
    found: dict[int, Node] = {}
    while waiting:
        node, is_term = waiting.popleft()
        is_sum = node.op in _SUMS
        if (is_sum or _only_moves(node, stack)) and len(found) + len(waiting) < _MOST_TERMS:
            inputs = node.inputs[:1] if node.op in (MASK, UNSLICE) else node.inputs
            waiting.extend((operand, is_term or is_sum) for operand in inputs)
        elif is_term and (stack == 0 or _stacked_alike(node.shape, total.shape, stack)):
            found[node.id] = node
    return list(found.values())  # type: ignore[arg-type]


def _only_moves(node: Node, stack: int) -> bool:
    """Whether a node has the elements of its first input, each in its place as far as the first axes go, or zeros."""
    if node.op is UNSLICE:
        return bool(node.attributes["index"][:stack] == ("whole",) * stack)
    if node.op is ZERO_PAD:
        return not any(node.attributes["before"][:stack]) and not any(node.attributes["after"][:stack])
    return node.op in _IN_PLACE or (stack == 0 and node.op in _MOVES)


def _stacked_alike(shape: Shape, other: Shape, stack: int) -> bool:
    return len(shape) == len(other) and shape[:stack] == other[:stack]
