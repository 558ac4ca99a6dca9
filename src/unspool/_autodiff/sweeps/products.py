"""Contributions to a cotangent that are products of two factors, outer ones or over a short axis; see `factored`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

from unspool._autodiff.sweeps.factored import Factored
from unspool._autodiff.sweeps.late import late
from unspool._ops.contraction.contract import contract, form_from, record, split_subscripts
from unspool._records import NamedTuple

if TYPE_CHECKING:
    from unspool._tensor import Tensor

# Factors that are smaller than their product by this factor are kept in its place.
WORTH_KEEPING = 16


class Products(NamedTuple):
    """Products of two factors, outer ones or over a short axis; what is made of them is said by subscripts."""

    subscripts: str

    def write(self, factors: Sequence[Tensor]) -> Tensor:
        """Return one of them."""
        return record(form_from(self.subscripts), *factors)

    def gather(self, stacks: Sequence[Tensor]) -> Tensor:
        """Return the sum over the first axis of stacked factors: a product of matrices."""
        left, right, out = split_subscripts(self.subscripts)
        return contract(stacks[0], ["step", *left], stacks[1], ["step", *right], list(out))


def as_products(term: Any) -> Factored | None:
    """Return a contraction as its factors, if it is an outer or thin product of tensors that have axes."""
    subscripts = term.attributes["subscripts"]
    inputs = term.inputs
    thin = is_thin(subscripts, [x.shape for x in inputs], term.shape)
    return Factored(Products(subscripts), inputs) if thin else None


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


late.provide(as_products=as_products)
