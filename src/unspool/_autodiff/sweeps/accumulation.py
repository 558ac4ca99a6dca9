"""Adding up the contributions to a cotangent.

Most are added as they come. Two kinds are not, since each term would be as large as the whole sum though little is in
it: outer products, and elements that were selected from a tensor. They are kept as their *factors* (`factored`), and
many of them are gathered (`gathering`).
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias

from unspool._autodiff.sweeps.factored import FEWEST, Factored, as_factored, written
from unspool._autodiff.sweeps.placing import as_tensor, youngest
from unspool._core import Pending, longest_pick, run_of_terms
from unspool._ops.elementwise import MASK, add_cotangents

if TYPE_CHECKING:
    from unspool._tensor import Tensor


class Sum:
    """Contributions that are not added up yet."""

    __slots__ = ("terms",)

    def __init__(self, *terms: Tensor | Factored) -> None:
        self.terms: list[Tensor | Factored] = list(terms)


Contribution: TypeAlias = "Tensor | Factored | Sum"

# What arrives at a call in the midst of a loop: nothing, outputs of earlier steps, sums that are not added up.
LAZY = frozenset({type(None), Pending, Sum, Factored})


def form_of(value: Any) -> Any:
    """Return what a note depends on of something that arrives, beside its type: of a tensor, how it is masked or made.

    A product of which the factors would be kept tells itself apart by its subscripts.
    """
    if type(value) in LAZY:
        return None
    if value.op is MASK:
        return (value.inputs[1].shape,)
    factored = as_factored(value) if value.op.contracts else None
    return True if factored is None else value.attributes["subscripts"]


def accumulate(before: Contribution, term: Contribution) -> Contribution:
    """Return the sum of what arrived before and one contribution more."""
    if type(before) is Sum:
        before.terms.append(term)  # type: ignore[arg-type]
        return before
    if as_factored(before) is not None and as_factored(term) is not None:
        return Sum(before, term)  # type: ignore[arg-type]
    return add_cotangents(written(before), written(term))


def merge(before: Contribution, after: Contribution) -> Contribution:
    """Return the sum of two things that were accumulated apart."""
    return reduce(accumulate, after.terms, before) if type(after) is Sum else accumulate(before, after)


def total(contribution: Any) -> Tensor:
    """Return what was accumulated, as one tensor.

    Which terms are gathered with which depends on what they are and on their order alone, not on the chains that gave
    them: where one chain ends and the next begins is seen in no bit of a sum.
    """
    if type(contribution) is Pending:
        return as_tensor(contribution)
    if type(contribution) is not Sum:
        return written(contribution)
    from unspool._autodiff.sweeps.gathering import gather

    terms = contribution.terms
    # Contributions come in the order of steps. Placing the latest one first lets all before it form a chain.
    latest: Any = next((term for term in reversed(terms) if type(term) in (Factored, Pending)), None)
    pending = youngest(latest.factors if type(latest) is Factored else [latest])
    if pending is not None:
        as_tensor(pending)
    single, gathered = gather(terms)
    return reduce(add_cotangents, gathered, _in_order(single)) if single else reduce(add_cotangents, gathered)


def _in_order(terms: list[Any]) -> Tensor:
    """Return the sum of terms, added one after the other; outputs of steps of chains are taken from their stacks."""
    if longest_pick(terms) < FEWEST:
        return reduce(add_cotangents, map(written, terms))
    from unspool._autodiff.sweeps.gathering import add_up

    summed: Any = None
    start = 0
    while start < len(terms):
        are_stacked, stop = run_of_terms(terms, start)
        values = terms[start:stop]
        if are_stacked and len(values) >= FEWEST:
            summed = add_up(summed, values)
        else:
            summed = reduce(add_cotangents, map(written, values), *([] if summed is None else [summed]))
        start = stop
    return summed  # type: ignore[no-any-return]
