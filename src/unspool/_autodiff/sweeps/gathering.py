"""Sums of many terms that are kept as factors: they are stacked up, and added up in blocks.

The sum of outer products is a product of the stacked factors; that of rows of a table is one scatter of the stacked
rows. Factors that a chain gave are stacked already: a block takes of them what is its own. Blocks are counted from the
first term, and how many terms are one follows from their sizes: where chains begin and end, and what budget there is,
is seen in no bit of a sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from operator import le
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from unspool._autodiff.sweeps.factored import FEWEST, Factored, Rows, as_factored
from unspool._autodiff.sweeps.placing import as_tensor, outputs_of
from unspool._autodiff.sweeps.products import Products
from unspool._core import Pending, part_terms, row_table
from unspool._engine.costs import nbytes
from unspool._ops import indexing, layout, reduction
from unspool._records import NamedTuple

if TYPE_CHECKING:
    from unspool._tensor import Tensor

# How many terms are one block: as many as have factors of so many bytes, but neither few nor very many.
_FEWEST_IN_BLOCK, _MOST_IN_BLOCK = 16, 256
_BYTES_OF_BLOCK = 1 << 15

# Stacks of a chain are joined for a sum that takes at least one row in so many of them; else it takes rows of each.
_WORTH_JOINING = 4

# What terms have in common that are gathered: what is made of the factors, and the shape and dtype of each.
_Kind: TypeAlias = "tuple[Any, ...]"


class Gathered(NamedTuple):
    """Terms of one kind, and where their factors are.

    Each has a row in ``table``: where it stands among all terms, the number of its source, and its position in the
    chain that gave this one, or -1 if the source is the term itself.
    """

    kind: _Kind
    sources: list[Factored]
    table: np.ndarray

    def products(self) -> Iterator[Tensor]:
        """Yield the sums of outer products, block by block."""
        for stacks in self._blocks():
            yield self.kind[0].gather(stacks)

    def rows(self) -> Tensor:
        """Return the sum of rows; elements that none is of are absent."""
        selection = self.kind[0].selection
        summed = indexing.RowSum(selection.shape, self.kind[1][1])
        for stacks in self._blocks():
            summed.add(selection, *stacks)
        return summed.total()

    def _blocks(self) -> Iterator[list[Tensor]]:
        length = _length_of_block(self.kind[1:])
        for i in range(0, len(self.table), length):
            taken, order = _layout(*self.table[i : i + length, 1:].T)
            each = [(self.sources[number].factors, rows) for number, rows in taken]
            yield [_stacked([(factors[at], rows) for factors, rows in each], order) for at in range(len(self.kind) - 1)]


def add_up(before: Tensor | None, values: list[Pending]) -> Tensor:
    """Return the sum of outputs of steps that are stacked up, added one after the other to what came before."""
    first, *table = row_table(values)
    numbers, positions = [np.frombuffer(column, np.int64) for column in table]
    length = _length_of_block([_aval(values[0])])
    for i in range(0, len(values), length):
        taken, order = _layout(numbers[i : i + length], positions[i : i + length])
        stack = _stacked([(first[number], rows) for number, rows in taken], order)
        if before is not None:
            stack = layout.concat([layout.reshape(before, (1, *before.shape)), stack], axis=0)
        before = indexing.getitem(reduction.cumsum(stack, axis=0), -1)
    return before  # type: ignore[return-value]


def _length_of_block(avals: Sequence[tuple[Any, Any]]) -> int:
    size = sum([nbytes(shape, dtype) for shape, dtype in avals])
    return min(_MOST_IN_BLOCK, max(_FEWEST_IN_BLOCK, _BYTES_OF_BLOCK // max(1, size)))


def _layout(numbers: np.ndarray, positions: np.ndarray) -> tuple[list[tuple[int, np.ndarray]], np.ndarray | None]:
    """Return which rows to take of which sources, and in which order these are the terms; None if as they are.

    Sources come in the order in which they appear, so that most often it is the order of the terms.
    """
    # Blocks are short: lists take less than the calls of NumPy would.
    places: dict[int, list[int]] = {}
    for place, number in enumerate(numbers.tolist()):
        places.setdefault(number, []).append(place)
    if len(places) == 1:
        return [(number, positions)], None
    taken = [(number, positions[some]) for number, some in places.items()]
    by_source = list(chain.from_iterable(places.values()))
    if all(map(le, by_source, by_source[1:])):
        return taken, None
    order = np.empty(len(by_source), np.int64)
    order[by_source] = np.arange(len(by_source))
    return taken, order


def _stacked(taken: Sequence[tuple[Tensor | Pending, np.ndarray]], order: np.ndarray | None) -> Tensor:
    """Return rows of some factors one after the other, as an array of its own: sums depend on how it lies in memory."""
    pieces = [_joined(list(some)) for _, some in groupby(taken, _chain_of)]
    if len(pieces) == 1:
        stack, rows = pieces[0]
        rows = rows if order is None else rows[order]
        is_whole = len(rows) == stack.shape[0] and _are_in_turn(rows)
        return stack if is_whole else indexing.getitem(stack, rows)
    parts = [_flat(*piece) for piece in pieces]
    joined = layout.reshape(
        layout.concat(parts, axis=0), (sum([len(rows) for _, rows in pieces]), *pieces[0][0].shape[1:])
    )
    return joined if order is None else indexing.getitem(joined, order)


def _chain_of(taken: tuple[Any, np.ndarray]) -> Any:
    """Return what tells apart where factors are: in a chain, or alone."""
    factor, rows = taken
    return id(factor.step.placed) if rows[0] >= 0 else object()


def _joined(taken: list[tuple[Any, np.ndarray]]) -> tuple[Tensor, np.ndarray]:
    """Return all outputs of a chain that some factors are, one after the other in one stack, and rows of that."""
    factor, rows = taken[0]
    if rows[0] < 0:
        single = as_tensor(factor)
        return layout.reshape(single, (1, *single.shape)), np.zeros(1, np.int64)
    stacks = [outputs_of(factor) for factor, _ in taken]
    length, *shape = stacks[0].shape
    if len(stacks) == 1:
        return stacks[0], rows
    each = [rows for _, rows in taken]
    if _WORTH_JOINING * sum(map(len, each)) < len(stacks) * length:
        few = layout.concat([_flat(stack, rows) for stack, rows in zip(stacks, each, strict=True)], axis=0)
        count = sum(map(len, each))
        return layout.reshape(few, (count, *shape)), np.arange(count)
    # All of them, once for all blocks that take some.
    whole = layout.concat([_flat(stack) for stack in stacks], axis=0)
    joined = layout.reshape(whole, (len(stacks) * length, *shape))
    return joined, np.concatenate([rows + i * length for i, rows in enumerate(each)])


def _flat(stack: Tensor, rows: np.ndarray | None = None) -> Tensor:
    """Return rows of a stack, or all, one after the other along the first axis that they have, or along one."""
    if rows is not None and not (len(rows) == stack.shape[0] and _are_in_turn(rows)):
        first = int(rows[0])
        stack = stack[first : first + len(rows)] if _are_in_turn(rows) else indexing.getitem(stack, rows)
    count, *shape = stack.shape
    return layout.reshape(stack, (count * shape[0], *shape[1:])) if shape else stack


def _are_in_turn(rows: np.ndarray) -> bool:
    """Whether rows follow each other."""
    return bool(np.array_equal(rows, np.arange(rows[0], rows[0] + len(rows))))


def gather(terms: list[Any]) -> tuple[list[Any], Iterator[Tensor]]:
    """Tell terms that are gathered from others, which are returned in their order, beside the sums of the gathered.

    The order of these does not depend on which of their terms arrived first.
    """
    plain, found = part_terms(terms, Factored, _factors_of)
    groups = [Gathered(kind, sources, np.frombuffer(table, np.int64).reshape(-1, 3)) for kind, sources, table in found]
    rows = [group for group in groups if type(group.kind[0]) is Rows]
    # Rows of several forms are parts of one tensor, which few of them touch.
    least = {Rows: 1 if sum([len(group.table) for group in rows]) >= FEWEST else FEWEST, Products: FEWEST}
    gathered = [group for group in groups if len(group.table) >= least[type(group.kind[0])]]
    apart = [group.table[:, 0] for group in groups if len(group.table) < least[type(group.kind[0])]]
    single = np.sort(np.concatenate([np.frombuffer(plain, np.int64), *apart]))
    return [terms[i] for i in single.tolist()], _sums(sorted(gathered, key=lambda group: repr(group.kind)))


def _sums(groups: Sequence[Gathered]) -> Iterator[Tensor]:
    # Each is recorded just before it is added, and so it is computed: two of them are there at a time, not all.
    for group in groups:
        if type(group.kind[0]) is Rows:
            yield group.rows()
        else:
            yield from group.products()


def _factors_of(term: Any) -> tuple[_Kind, Factored] | None:
    """Return a term as its factors, beside what it can be gathered with; None if it has none."""
    found = as_factored(term)
    return None if found is None else ((found.form, *map(_aval, found.factors)), found)


def _aval(factor: Tensor | Pending) -> tuple[Any, Any]:
    """Return shape and dtype of a factor."""
    if type(factor) is not Pending:
        return factor.shape, factor.dtype  # type: ignore[union-attr]
    plan, index = factor.step.plan, factor.index
    return plan.output_shapes[index], plan.output_dtypes[index]
