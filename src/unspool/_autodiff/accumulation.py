"""Adding up the contributions to a cotangent.

Most are added as they come. Two kinds are not, since each term would be as large as the whole sum though little is in
it. A matrix that every step of a loop multiplies with a vector gets one outer product per step; their sum is one matrix
product of the stacked vectors. A table of which every step reads some rows gets these rows back; their sum is one
scatter of the stacked rows. So such terms are kept as their *factors*, gathered, and written out in blocks. The size of
a block is a number, not a matter of memory: whatever budget a gradient is taken under, its bits are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any, TypeAlias

from unspool._autodiff.chain import add_picked, as_tensor, stack_of, stacked_tensors, youngest
from unspool._core import Pending, longest_pick, segments
from unspool._ops import indexing
from unspool._ops.contraction.contract import CONTRACT, contract, form_from, record, split_subscripts
from unspool._ops.elementwise import MASK, add_cotangents
from unspool._records import NamedTuple

if TYPE_CHECKING:
    from unspool._ops.indexing import Selection
    from unspool._tensor import Tensor

# Fewer terms than this are added one by one; more are gathered into blocks of at most this many.
FEWEST = 8
BLOCK = 256


class Outer(NamedTuple):
    """Outer products of two factors; what is made of them is said by subscripts."""

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
    return value.attributes["subscripts"] if value.op is CONTRACT else True


def accumulate(before: Contribution, term: Contribution) -> Contribution:
    """Return the sum of what arrived before and one contribution more."""
    if type(before) is Sum:
        before.terms.append(term)  # type: ignore[arg-type]
        return before
    if as_factored(before) is not None and as_factored(term) is not None:
        return Sum(before, term)  # type: ignore[arg-type]
    return add_cotangents(_written(before), _written(term))


def merge(before: Contribution, after: Contribution) -> Contribution:
    """Return the sum of two things that were accumulated apart."""
    return reduce(accumulate, after.terms, before) if type(after) is Sum else accumulate(before, after)


def total(contribution: Any) -> Tensor:
    """Return what was accumulated, as one tensor."""
    if type(contribution) is Pending:
        return as_tensor(contribution)
    if type(contribution) is not Sum:
        return _written(contribution)
    terms = contribution.terms
    # Contributions come in the order of steps. Placing the latest one first lets all before it form a chain.
    latest: Any = next((term for term in reversed(terms) if type(term) in (Factored, Pending)), None)
    pending = youngest(latest.factors if type(latest) is Factored else [latest])
    if pending is not None:
        as_tensor(pending)
    terms = _without_picks(terms)
    factored = [as_factored(term) for term in terms]
    rows = [term for term in factored if term is not None and type(term.form) is Rows]
    if len(rows) < FEWEST:
        return _total_of_products(terms)
    others = [one for one, term in zip(terms, factored, strict=True) if term is None or type(term.form) is not Rows]
    found = _total_of_rows(rows)
    return add_cotangents(_total_of_products(others), found) if others else found


def _without_picks(terms: list[Any]) -> list[Any]:
    """Return terms, of which those that are outputs of steps of one chain are one: they are picked from its stacks.

    If all terms are outputs of steps or tensors, they are added in their order, as they would be one by one. Beside
    terms that are gathered, those that are the same output of the steps are added up apart.
    """
    if longest_pick(terms) < FEWEST:
        return terms
    if any(type(term) is Factored or as_factored(term) is not None for term in terms):
        parts = _picks(terms, _output_of)
        return [one for part in parts for one in ([add_picked(None, part)] if len(part) >= FEWEST else part)]
    total: Any = None
    for part in _picks(terms, _chain_of):
        if len(part) >= FEWEST:
            total = add_picked(total, part)
        else:
            total = reduce(add_cotangents, map(_written, part), *([] if total is None else [total]))
    return [total]


def _output_of(term: Pending) -> tuple[int, ...]:
    return id(term.step.placed), term.index


def _chain_of(term: Pending) -> tuple[int, ...]:
    """Return what tells apart what can be picked together: a chain, and which output it is if its stacks are large."""
    placed: Any = term.step.placed
    return (id(placed),) if placed.is_small else _output_of(term)


def _picks(terms: list[Any], kind_of: Callable[[Pending], Any]) -> list[list[Any]]:
    """Split terms into single ones and such as are stacked up by a chain and of one kind, one after the other."""
    parts: list[list[Any]] = []
    latest: Any = None
    for term in terms:
        placed: Any = term.step.placed if type(term) is Pending else None
        kind = kind_of(term) if placed is not None and placed.length and term.index in placed.stacks else None
        if kind is not None and kind == latest:
            parts[-1].append(term)
        else:
            parts.append([term])
        latest = kind
    return parts


def _total_of_rows(terms: list[Factored]) -> Tensor:
    """Return the sum of parts of one tensor.

    Those of one form are added one after the other, then the sums of all forms, in an order that does not depend on
    which of them arrived first.
    """
    forms: dict[Any, list[Factored]] = {}
    for term in terms:
        forms.setdefault((term.form, *[factor.shape for factor in term.factors]), []).append(term)
    return reduce(add_cotangents, [_total_of_form(key[0].selection, forms[key]) for key in sorted(forms, key=repr)])


def _total_of_form(selection: Selection, terms: list[Factored]) -> Tensor:
    summed = indexing.RowSum(selection.shape, as_tensor(terms[0].factors[0]).dtype)
    singles: list[Factored] = []
    for segment in [*segments(terms, Factored), None]:
        if segment is not None and len(segment) == 1:
            singles += segment
            continue
        for i in range(0, len(singles), BLOCK):
            summed.add(selection, *_stacks(singles[i : i + BLOCK]))
        singles = []
        if segment is not None:
            summed.add(selection, *_chained(segment))
    return summed.total()


def _total_of_products(terms: list[Any]) -> Tensor:
    """Return the sum of outer products and of terms that are written out."""
    loose: dict[Any, list[Factored]] = {}
    others: list[Any] = []
    runs: list[list[Any]] = []
    for segment in segments(terms, Factored):
        term = as_factored(segment[0])
        if term is None or type(term.form) is Rows:
            others += segment
        elif len(segment) > 1:
            runs.append(segment)
        else:
            loose.setdefault((term.form, *[factor.shape for factor in term.factors]), []).append(term)
    if not runs and max(map(len, loose.values()), default=0) < FEWEST:
        return reduce(add_cotangents, map(_written, terms))

    def parts() -> Iterator[Tensor]:
        # Each is recorded just before it is added, and so it is computed: two of them are there at a time, not all.
        yield from map(_written, others)
        for run in runs:
            yield run[0].form.gather(_chained(run))
        for alike in loose.values():
            for i in range(0, len(alike), BLOCK):
                yield _gather(alike[i : i + BLOCK])

    return reduce(add_cotangents, parts())


def as_factored(term: Any) -> Factored | None:
    """Return a contribution as its factors: an outer product of tensors that both have axes, or rows of a table."""
    if type(term) is Factored:
        return term
    if type(term) is Sum or type(term) is Pending:
        return None
    if term.op is CONTRACT:
        subscripts = term.attributes["subscripts"]
        return Factored(Outer(subscripts), term.inputs) if is_outer(subscripts) else None
    if term.op is MASK:
        found = indexing.selection_of(*term.inputs)
        return None if found is None else Factored(Rows(found), term.inputs[0].inputs)
    return None


@lru_cache(maxsize=4096)
def is_outer(subscripts: str) -> bool:
    """Whether a contraction sums nothing and its operands share no label."""
    left, right, _ = split_subscripts(subscripts)
    return bool(left) and bool(right) and set(left).isdisjoint(right)


def _written(term: Any) -> Tensor:
    if type(term) is not Factored:
        return as_tensor(term)
    return term.form.write([as_tensor(factor) for factor in term.factors])


def _gather(terms: list[Factored]) -> Tensor:
    """Return the sum of outer products of one form."""
    return _written(terms[0]) if len(terms) == 1 else terms[0].form.gather(_stacks(terms))  # type: ignore[union-attr]


def _stacks(terms: list[Factored]) -> list[Tensor]:
    """Return each factor of terms of one form along a new first axis."""
    each = zip(*[term.factors for term in terms], strict=True)
    return [stacked_tensors([as_tensor(factor) for factor in factors]) for factors in each]


def _chained(run: list[Factored]) -> list[Tensor]:
    """Return each factor of terms that stand one after the other in a chain along a new first axis."""
    factors: Any = run[0].factors
    return [stack_of(factor, len(run)) for factor in factors]
