"""Contributions to a cotangent that are kept as their factors, since there is little in them for their size.

A matrix that every step of a loop multiplies with a vector gets one outer product per step, one that it multiplies with
a few vectors a product over a short axis. A table of which every step reads some rows gets these rows back.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

from unspool._autodiff.placing import as_tensor
from unspool._core import Pending
from unspool._graph import Node
from unspool._ops import indexing
from unspool._ops.contraction.contract import CONTRACT, contract, form_from, record, split_subscripts
from unspool._ops.elementwise import MASK
from unspool._records import NamedTuple

if TYPE_CHECKING:
    from unspool._ops.indexing import Selection
    from unspool._tensor import Tensor


# Factors that are smaller than their product by this factor are kept in its place.
WORTH_KEEPING = 16


class Outer(NamedTuple):
    """Products of two factors, outer ones or over a short axis; what is made of them is said by subscripts."""

    subscripts: str

    def write(self, factors: Sequence[Tensor]) -> Tensor:
        """Return one of them."""
        return record(form_from(self.subscripts), *factors)

    def gather(self, stacks: Sequence[Tensor]) -> Tensor:
        """Return the sum over the first axis of stacked factors: a product of matrices."""
        left, right, out = split_subscripts(self.subscripts)
        return contract(stacks[0], ["step", *left], stacks[1], ["step", *right], list(out))


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

    form: Outer | Rows
    factors: tuple[Tensor | Pending, ...]


def as_factored(term: Any) -> Factored | None:
    """Return a contribution as its factors: an outer or thin product of tensors that have axes, or rows of a table."""
    if type(term) is Factored:
        return term
    if not isinstance(term, Node):  # an output of a step, or a sum
        return None
    inputs: Any = term.inputs
    if term.op is CONTRACT:
        subscripts = term.attributes["subscripts"]
        return (
            Factored(Outer(subscripts), inputs) if is_thin(subscripts, [x.shape for x in inputs], term.shape) else None
        )
    if term.op is MASK:
        found = indexing.selection_of(*inputs)
        return None if found is None else Factored(Rows(found), inputs[0].inputs)
    return None


@lru_cache(maxsize=4096)
def is_outer(subscripts: str) -> bool:
    """Whether a contraction sums nothing and its operands share no label."""
    left, right, _ = split_subscripts(subscripts)
    return bool(left) and bool(right) and set(left).isdisjoint(right)


def is_thin(subscripts: str, shapes: Sequence[Any], out: Any) -> bool:
    """Whether a product is outer, or over an axis so short that its factors are much smaller than it is."""
    if is_outer(subscripts):
        return True
    known = all(type(size) is int for shape in (*shapes, out) for size in shape)
    return known and _is_matrix_product(subscripts) and WORTH_KEEPING * sum(map(prod, shapes)) <= prod(out)


@lru_cache(maxsize=4096)
def _is_matrix_product(subscripts: str) -> bool:
    """Whether a contraction sums over what its operands share, and over nothing else."""
    left, right, out = split_subscripts(subscripts)
    shared = set(left) & set(right)
    return set(out) == {*left, *right} - shared and len({*left}) == len(left) and len({*right}) == len(right)


def written(term: Any) -> Tensor:
    """Return a contribution as one tensor."""
    if type(term) is not Factored:
        return as_tensor(term)
    return term.form.write([as_tensor(factor) for factor in term.factors])
