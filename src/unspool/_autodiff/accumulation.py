"""Adding up the contributions to a cotangent.

Most are added as they come. Outer products are not: a matrix that every step of a loop multiplies with a vector gets
one outer product per step, each as large as the matrix. Their sum is one matrix product of the stacked vectors, so they
are gathered and multiplied in blocks. The size of a block is a number, not a matter of memory: whatever budget a
gradient is taken under, its bits are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from unspool._autodiff.chain import Pending, as_tensor, stack_of, stacked_tensors, youngest
from unspool._ops.contraction.contract import CONTRACT, contract, form_from, record, split_subscripts
from unspool._ops.elementwise import add_cotangents

if TYPE_CHECKING:
    from unspool._tensor import Tensor

# Fewer outer products than this are added one by one; more are gathered into blocks of at most this many.
FEWEST = 8
BLOCK = 256


class Outer(NamedTuple):
    """An outer product that has not been written out."""

    subscripts: str
    left: Tensor | Pending
    right: Tensor | Pending


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
    return add_cotangents(_written(before), _written(term))


def merge(before: Contribution, after: Contribution) -> Contribution:
    """Return the sum of two things that were accumulated apart."""
    return reduce(accumulate, after.terms, before) if type(after) is Sum else accumulate(before, after)


def total(contribution: Any) -> Tensor:
    """Return what was accumulated, as one tensor."""
    if type(contribution) is not Sum:
        return _written(contribution)
    terms = contribution.terms
    # Contributions come in the order of steps. Placing the latest one first lets all before it form a chain.
    latest = next((term for term in reversed(terms) if type(term) is Outer), None)
    if latest is not None and youngest(latest[1:]) is not None:
        as_tensor(youngest(latest[1:]))
    loose: dict[Any, list[Outer]] = {}
    others: list[Any] = []
    runs: list[list[Any]] = []
    for segment in _segments(terms):
        if len(segment) > 1:
            runs.append(segment)
        elif (outer := as_outer(segment[0])) is None:
            others.append(segment[0])
        else:
            loose.setdefault((outer.subscripts, outer.left.shape, outer.right.shape), []).append(outer)
    if not runs and max(map(len, loose.values()), default=0) < FEWEST:
        return reduce(add_cotangents, map(_written, terms))

    def parts() -> Iterator[Tensor]:
        # Each is recorded just before it is added, and so it is computed: two of them are there at a time, not all.
        yield from map(_written, others)
        for run in runs:
            yield _gather(run, stack_of)
        for outers in loose.values():
            for i in range(0, len(outers), BLOCK):
                yield _gather(outers[i : i + BLOCK], _stack_singly)

    return reduce(add_cotangents, parts())


def _segments(terms: list[Any]) -> list[list[Any]]:
    """Split terms into runs of outer products whose factors stand one after the other in a chain, and single terms.

    A step may give several products; those of one kind are a run, whatever stands between them.
    """
    segments: list[list[Any]] = []
    latest: dict[Any, tuple[list[Any], int]] = {}  # of each kind the latest run, and the position where it ends
    for term in terms:
        here = _place(term)
        if here is None:
            segments.append([term])
            continue
        kind, position = here[:-1], here[-1]
        run, end = latest.get(kind, ([], -1))
        if not run or position != end + 1:
            run = []
            segments.append(run)
        run.append(term)
        latest[kind] = run, position
    return segments


def _place(term: Any) -> tuple[Any, ...] | None:
    """Return the chain, the outputs and the position of an outer product whose factors one step of a chain gave."""
    if type(term) is not Outer:
        return None
    subscripts, left, right = term
    if type(left) is not Pending or type(right) is not Pending or left.step is not right.step:
        return None
    step = left.step
    placed = step.placed
    if placed is None or not placed.length or left.index not in placed.stacks or right.index not in placed.stacks:
        return None
    return id(placed.source), subscripts, left.index, right.index, step.position


def as_outer(term: Any) -> Outer | None:
    """Return a contribution as an outer product of two tensors that both have axes, if it is one."""
    if type(term) is Outer:
        return term
    if type(term) is Sum or type(term) is Pending or term.op is not CONTRACT:
        return None
    subscripts = term.attributes["subscripts"]
    return Outer(subscripts, *term.inputs) if is_outer(subscripts) else None


@lru_cache(maxsize=4096)
def is_outer(subscripts: str) -> bool:
    """Whether a contraction sums nothing and its operands share no label."""
    left, right, _ = split_subscripts(subscripts)
    return bool(left) and bool(right) and set(left).isdisjoint(right)


def _written(term: Any) -> Tensor:
    if type(term) is not Outer:
        return as_tensor(term)
    return record(form_from(term.subscripts), as_tensor(term.left), as_tensor(term.right))


def _gather(outers: list[Outer], stack: Callable[[Any], Tensor]) -> Tensor:
    """Return the sum of outer products of one form: a product of matrices whose common axis counts the terms."""
    if len(outers) == 1:
        return _written(outers[0])
    left, right, out = split_subscripts(outers[0].subscripts)
    lefts, rights = stack([outer.left for outer in outers]), stack([outer.right for outer in outers])
    return contract(lefts, ["step", *left], rights, ["step", *right], list(out))


def _stack_singly(values: Sequence[Any]) -> Tensor:
    return stacked_tensors([as_tensor(value) for value in values])
