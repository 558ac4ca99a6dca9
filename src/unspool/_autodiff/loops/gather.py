"""Sums over the steps of a loop of outer products, as products of matrices: the op ``outer_sum``.

A matrix that every step multiplies with a vector gets one outer product per step. Their sum is a product of two
matrices whose common axis counts the steps. It is taken in blocks of steps, and blocks are added from the last to the
first. How many steps a block has follows from the sizes of the factors alone, and blocks begin at multiples of that,
counted from step 0 of the loop. So the bits of the sum do not depend on whether all factors are there at once
(`gather`) or come in pieces, the last step first (`Gatherer`).
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._dims import is_concrete
from unspool._engine.backends.buffers import aligned
from unspool._ops.batching import rule_above
from unspool._ops.contraction.contract import CONTRACT, form_of, record, split_subscripts
from unspool._ops.contraction.kernel import contract_arrays
from unspool._ops.op import INPUTS, SIZE, STRUCTURE, Op

if TYPE_CHECKING:
    from unspool._graph import Node
    from unspool._tensor import Tensor

# A block has at most this many steps.
_MOST_ROWS = 256

# The factors of a block have at most as many elements as their product, or as many as this.
_FEW_ELEMENTS = 1 << 13


def gather(subscripts: str, left: Tensor, right: Tensor, start: int = 0) -> Tensor:
    """Return the sum over all rows of outer products of rows, the first of which are those of step ``start``.

    ``subscripts`` say what is made of one row of each.
    """
    known = is_concrete(left.shape) and is_concrete(right.shape)
    if known and start == 0 and left.shape[0] <= block_rows(left.shape[1:], right.shape[1:]):
        return record(_summed(subscripts), left, right)
    return _graph.apply(OUTER_SUM, left, right, subscripts=subscripts, start=start)


def block_rows(left: Any, right: Any) -> int:
    """Return how many steps a block has, given the shapes of the factors of one step."""
    first: int = prod(left)
    second: int = prod(right)
    both = max(1, first + second)
    return max(1, min(_MOST_ROWS, max(_FEW_ELEMENTS, first * second) // both))


class Gatherer:
    """The sum of outer products whose factors come in pieces, the last row first.

    Parameters
    ----------
    subscripts : str
        What is made of one row of each factor.
    start, stop : int
        The steps that there will be rows for.
    """

    def __init__(self, subscripts: str, start: int, stop: int) -> None:
        self._subscripts = _summed(subscripts).subscripts
        self._start, self._stop = start, stop
        self._missing = stop
        self._block: list[Any] = []
        self._total: Any = None

    def add(self, left: Any, right: Any) -> None:
        """Take the factors of the steps before those taken so far, in rising order."""
        last = len(left)
        size = block_rows(left.shape[1:], right.shape[1:])
        while last:
            block = (self._missing - 1) // size * size
            start, stop = max(block, self._start), min(block + size, self._stop)
            taken = min(last, self._missing - start)
            self._take(left[last - taken : last], right[last - taken : last], start, stop - start)
            last -= taken

    def _take(self, left: Any, right: Any, start: int, rows: int) -> None:
        """Take factors that lie in the block of a number of rows that begins with step ``start``."""
        first = self._missing - len(left) - start
        self._missing -= len(left)
        if len(left) < rows:
            self._block = self._block or [np.empty((rows, *x.shape[1:]), x.dtype) for x in (left, right)]
            for whole, part in zip(self._block, (left, right), strict=True):
                whole[first : first + len(part)] = part
            if first:
                return
            (left, right), self._block = self._block, []
        self._total = _added(self._total, left, right, self._subscripts)

    def total(self) -> Any:
        """Return the sum, when all rows were taken."""
        return self._total


def _added(total: Any, left: Any, right: Any, subscripts: str) -> Any:
    """Return a sum with one block more; every block is contracted in the same layout, as arrays of their own are."""
    factors = [aligned(np.ascontiguousarray(factor)) for factor in (left, right)]
    term = contract_arrays(*factors, subscripts=subscripts)
    return term if total is None else total + term


@lru_cache(maxsize=1024)
def _summed(subscripts: str) -> Any:
    """Return the contraction of stacked factors that sums over their rows."""
    first, second, out = split_subscripts(subscripts)
    return form_of(("row", *first), ("row", *second), tuple(out))


# --- the op ----------------------------------------------------------------------------------------------------------


def _infer(left: Node, right: Node, *, subscripts: str, start: int) -> tuple[Any, Any]:
    shape, dtype = CONTRACT.infer(left, right, subscripts=_summed(subscripts).subscripts)
    return shape, dtype


def _kernel(left: Any, right: Any, *, subscripts: str, start: int) -> Any:
    size, form = block_rows(left.shape[1:], right.shape[1:]), _summed(subscripts).subscripts
    total, last = None, len(left)
    while last:
        first = max(0, (start + last - 1) // size * size - start)
        total = _added(total, left[first:last], right[first:last], form)
        last = first
    return total


def _pulled(position: int) -> Any:
    rules: Any = CONTRACT.vjp

    def rule(ct: Tensor, out: Tensor, left: Tensor, right: Tensor, *, subscripts: str, start: int) -> Any:
        # A factor of a step has its cotangent from that step alone: nothing is summed over steps.
        return rules[position](ct, out, left, right, subscripts=_summed(subscripts).subscripts)

    return rule


# Not registered: rules of loops make it, and nobody applies it by name.
OUTER_SUM = Op(
    "outer_sum",
    infer=_infer,
    kernel=_kernel,
    vjp=(_pulled(0), _pulled(1)),
    jvp=(
        lambda t, out, left, right, *, subscripts, start: gather(subscripts, t, right, start),
        lambda t, out, left, right, *, subscripts, start: gather(subscripts, left, t, start),
    ),
    params={"subscripts": STRUCTURE, "start": SIZE},
    needs=(INPUTS,),
    batch=rule_above("outer_sum"),
)
