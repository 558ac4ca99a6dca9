"""How much of a sum is noise: the size of its terms, each of which is known to some relative accuracy only.

A loss that is stationary at a point sends cotangents back to it that cancel. What is left of them has no meaning, and
its own size does not tell so. That of the terms does, and the graph still has them: a cotangent is a sum, moved about.
"""

from __future__ import annotations

from collections import deque
from functools import reduce
from typing import TYPE_CHECKING

from unspool import _graph
from unspool._autodiff.identity import STOP_GRADIENT
from unspool._ops.contraction.norms import vector_norm
from unspool._ops.elementwise import ADD, MASK, NEGATIVE, SUBTRACT, maximum, multiply
from unspool._ops.elementwise.complex_numbers import IMAGINARY_PART, REAL_PART
from unspool._ops.layout import CONCAT, PERMUTE, RESHAPE, reshape

if TYPE_CHECKING:
    from unspool._graph import Node
    from unspool._tensor import Tensor

# What a sum looks like in the graph, and what only moves it.
_SUMS = (ADD, SUBTRACT)
_MOVES = (CONCAT, RESHAPE, PERMUTE, NEGATIVE, REAL_PART, IMAGINARY_PART)

# A loop may add up thousands of terms; the last of them, and what came before as one, will do.
_MOST_TERMS = 16


def noise_of(total: Tensor, level: float) -> Tensor | None:
    """Return what a sum may be wrong by if its terms have the relative accuracy ``level``; ``None`` for no sum."""
    terms = _terms(total)
    if not terms:
        return None
    sizes = [vector_norm(reshape(_graph.apply(STOP_GRADIENT, term), (-1,))) for term in terms]
    return multiply(reduce(maximum, sizes), level)


def _terms(total: Tensor) -> list[Tensor]:
    """Return the terms of sums that a tensor consists of, some of them as partial sums if there are many."""
    waiting: deque[tuple[Node, bool]] = deque([(total, False)])
    found: dict[int, Node] = {}
    while waiting:
        node, is_term = waiting.popleft()
        is_sum = node.op in _SUMS
        if (is_sum or node.op in _MOVES or node.op is MASK) and len(found) + len(waiting) < _MOST_TERMS:
            inputs = node.inputs[:1] if node.op is MASK else node.inputs
            waiting.extend((operand, is_term or is_sum) for operand in inputs)
        elif is_term:
            found[node.id] = node
    return list(found.values())  # type: ignore[arg-type]
