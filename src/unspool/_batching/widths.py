"""How many members or directions run as one batch: a width that follows from sizes alone, never from a budget.

A product of fewer rows may round in another way, so a width that followed from what memory there is would change bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unspool import _trees as trees
from unspool._engine.costs import nbytes
from unspool._fragments.call import Call
from unspool._graph import Bundle, Node, ancestors

# What a batch may take if all that is computed is held, in bytes. A wider one gains nothing: its arrays are large
# enough for kernels to be what costs.
BLOCK = 128 * 2**20


def block_width(recorded: Any, count: int) -> int:
    """Return how many members fit into a block, given the results of some of them as one recorded batch."""
    targets = [leaf for leaf in trees.flatten(recorded)[0] if isinstance(leaf, Node)]
    return width_of(array_sizes(ancestors(targets)), count)


def width_of(sizes: Sequence[int], count: int = 1) -> int:
    """Return how many fit into a block, given the sizes of all arrays that are made for some of them."""
    return max(1, BLOCK * count // max(1, sum(sizes)))


def array_sizes(nodes: Sequence[Any]) -> list[int]:
    """Return the sizes of the arrays that nodes give, in bytes."""
    return [nbytes(shape, dtype) for node in nodes for shape, dtype in _outputs(node)]


def _outputs(node: Any) -> list[tuple[Any, Any]]:
    """Return shapes and dtypes of what a node gives."""
    several = type(node) is Bundle or type(node) is Call
    return list(zip(node.shape, node.dtype, strict=True)) if several else [(node.shape, node.dtype)]
