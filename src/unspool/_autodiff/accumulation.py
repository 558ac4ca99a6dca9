"""Adding up the contributions to a cotangent.

Most are added as they come. Outer products are not: a matrix that every step of a loop multiplies with a vector gets one
outer product per step, each as large as the matrix. Their sum is one matrix product of the stacked vectors, so they are
gathered and multiplied in blocks. The size of a block is a number, not a matter of memory: whatever budget a gradient is
taken under, its bits are the same.
"""

from __future__ import annotations

from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from unspool._ops.contraction.contract import CONTRACT, contract, form_from, record, split_subscripts
from unspool._ops.elementwise import add_cotangents
from unspool._ops.layout import concat, reshape

if TYPE_CHECKING:
    from unspool._tensor import Tensor

# Fewer outer products than this are added one by one; more are gathered into blocks of at most this many.
FEWEST = 8
BLOCK = 256


class Outer(NamedTuple):
    """An outer product that has not been written out."""

    subscripts: str
    left: Tensor
    right: Tensor


class Sum:
    """Contributions that are not added up yet."""

    __slots__ = ("terms",)

    def __init__(self, *terms: Tensor | Outer) -> None:
        self.terms: list[Tensor | Outer] = list(terms)


Contribution: TypeAlias = "Tensor | Outer | Sum"


def accumulate(before: Contribution, term: Contribution) -> Contribution:
    """Return the sum of what arrived before and one contribution more."""
    if type(before) is Sum:
        before.terms.append(term)  # type: ignore[arg-type]
        return before
    if as_outer(before) is not None and as_outer(term) is not None:
        return Sum(before, term)  # type: ignore[arg-type]
    return add_cotangents(_written(before), _written(term))  # type: ignore[arg-type]


def total(contribution: Any) -> Tensor:
    """Return what was accumulated, as one tensor."""
    if type(contribution) is not Sum:
        return _written(contribution)
    terms = contribution.terms
    kinds: dict[tuple[Any, ...], list[Outer]] = {}
    others: list[Tensor] = []
    for term in terms:
        outer = as_outer(term)
        if outer is None:
            others.append(term)  # type: ignore[arg-type]
        else:
            kinds.setdefault((outer.subscripts, outer.left.shape, outer.right.shape), []).append(outer)
    if max(map(len, kinds.values())) < FEWEST:
        return reduce(add_cotangents, map(_written, terms))
    gathered = [_gather(outers[i : i + BLOCK]) for outers in kinds.values() for i in range(0, len(outers), BLOCK)]
    return reduce(add_cotangents, [*others, *gathered])


def as_outer(term: Any) -> Outer | None:
    """Return a contribution as an outer product of two tensors that both have axes, if it is one."""
    if type(term) is Outer:
        return term
    if type(term) is Sum or term.op is not CONTRACT:
        return None
    subscripts = term.params["subscripts"]
    return Outer(subscripts, *term.inputs) if is_outer(subscripts) else None


@lru_cache(maxsize=4096)
def is_outer(subscripts: str) -> bool:
    """Whether a contraction sums nothing and its operands share no label."""
    left, right, _ = split_subscripts(subscripts)
    return bool(left) and bool(right) and set(left).isdisjoint(right)


def _written(term: Any) -> Tensor:
    if type(term) is not Outer:
        return term  # type: ignore[no-any-return]
    return record(form_from(term.subscripts), term.left, term.right)


def _gather(outers: list[Outer]) -> Tensor:
    """Return the sum of outer products of one form: a product of matrices whose common axis counts the terms."""
    if len(outers) == 1:
        return _written(outers[0])
    left, right, out = split_subscripts(outers[0].subscripts)
    stacked = [_stack([outer.left for outer in outers]), _stack([outer.right for outer in outers])]
    return contract(stacked[0], ["step", *left], stacked[1], ["step", *right], list(out))


def _stack(tensors: list[Tensor]) -> Tensor:
    shape = tensors[0].shape
    return reshape(concat(tensors, axis=0), (len(tensors), *shape))



