"""Contributions to a cotangent that are kept as their factors, since there is little in them for their size.

A matrix that every step of a loop multiplies with a vector gets one outer product per step, one that it multiplies with
a few vectors a product over a short axis (`products`). A table of which every step reads some rows gets these back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unspool._autodiff.sweeps.late import late
from unspool._autodiff.sweeps.placing import as_tensor
from unspool._core import Pending
from unspool._graph import Node
from unspool._ops import indexing
from unspool._ops.elementwise import MASK
from unspool._records import NamedTuple

if TYPE_CHECKING:
    from unspool._autodiff.sweeps.products import Products
    from unspool._ops.indexing import Selection
    from unspool._tensor import Tensor


# Fewer terms than this are added one by one.
FEWEST = 8


class Rows(NamedTuple):
    """Elements that were selected from a tensor, put back where they came from; all others are absent.

    The factors are the elements, and the operands of the index.
    """

    selection: Selection

    def write(self, factors: Sequence[Tensor]) -> Tensor:
        """Return one tensor with the elements in their places."""
        return self.selection.put_present(*factors)


class Factored(NamedTuple):
    """A contribution that has not been written out."""

    form: Products | Rows
    factors: tuple[Tensor | Pending, ...]


def as_factored(term: Any) -> Factored | None:
    """Return a contribution as its factors: an outer or thin product of tensors that have axes, or rows of a table."""
    if type(term) is Factored:
        return term
    if not isinstance(term, Node):  # an output of a step, or a sum
        return None
    if term.op.contracts:
        found: Factored | None = late.as_products(term)
        return found
    if term.op is MASK:
        inputs: Any = term.inputs
        rows = indexing.selection_of(*inputs)
        return None if rows is None else Factored(Rows(rows), inputs[0].inputs)
    return None


def written(term: Any) -> Tensor:
    """Return a contribution as one tensor."""
    if type(term) is not Factored:
        return as_tensor(term)
    return term.form.write([as_tensor(factor) for factor in term.factors])
