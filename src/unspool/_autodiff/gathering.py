"""Sums of many terms that are kept as factors: they are stacked up, and added up in blocks.

The sum of outer products is a product of the stacked factors; that of rows of a table is one scatter of the stacked
rows. Factors that a chain gave are stacked already: a block takes of them what is its own. Blocks are counted from the
first term, and how many terms are one follows from their sizes: where chains begin and end, and what budget there is,
is seen in no bit of a sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from unspool._autodiff.chain import as_tensor, outputs_of
from unspool._autodiff.factored import Factored, Outer, Rows, as_factored
from unspool._core import Pending, part_terms
from unspool._engine.planning import nbytes
from unspool._ops.indexing import RowSum, getitem
from unspool._ops.layout import concat, reshape
from unspool._records import NamedTuple

if TYPE_CHECKING:
    from unspool._tensor import Tensor

# Fewer terms than this are added one by one.
FEWEST = 8

# How many terms are one block: as many as have factors of so many bytes, but neither few nor very many.
_FEWEST_IN_BLOCK, _MOST_IN_BLOCK = 16, 256
_BYTES_OF_BLOCK = 1 << 16

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
        summed = RowSum(selection.shape, self.kind[1][1])
        for stacks in self._blocks():
            summed.add(selection, *stacks)
        return summed.total()

    def _blocks(self) -> Iterator[list[Tensor]]:
        size = sum([nbytes(shape, dtype) for shape, dtype in self.kind[1:]])
        length = min(_MOST_IN_BLOCK, max(_FEWEST_IN_BLOCK, _BYTES_OF_BLOCK // max(1, size)))
        for i in range(0, len(self.table), length):
            yield self._stacks(*self.table[i : i + length, 1:].T)

    def _stacks(self, numbers: np.ndarray, positions: np.ndarray) -> list[Tensor]:
        """Return each factor of some terms along a new first axis."""
        distinct, first, which = np.unique(numbers, return_index=True, return_inverse=True)
        sources = [self.sources[number] for number in distinct]
        if len(sources) == 1 and positions[0] >= 0:
            return [_picked(outputs_of(factor), positions) for factor in sources[0].factors]
        lowest, highest = np.full(len(distinct), len(positions) + _MOST_IN_BLOCK), np.full(len(distinct), -1)
        np.minimum.at(lowest, which, positions)
        np.maximum.at(highest, which, positions)
        # Sources in the order in which they appear, so that most often it is the order of the terms.
        order = np.argsort(first)
        counts = highest - lowest + 1
        begins = np.empty_like(counts)
        begins[order] = np.cumsum(counts[order]) - counts[order]
        taken = [(sources[i], int(lowest[i]), int(counts[i])) for i in order]
        rows = begins[which] + positions - lowest[which]
        return [_picked(self._joined(i, taken), rows) for i in range(len(self.kind) - 1)]

    def _joined(self, i: int, taken: Sequence[tuple[Factored, int, int]]) -> Tensor:
        """Return a factor of terms from several sources: of each so many, from a position on."""
        shape = self.kind[1 + i][0]
        size = sum([count for _, _, count in taken])
        parts = [_flat(source.factors[i], first, count, shape) for source, first, count in taken]
        return reshape(concat(parts, axis=0), (size, *shape))


def _flat(factor: Tensor | Pending, first: int, count: int, shape: Any) -> Tensor:
    """Return a factor of so many terms, one after the other along its first axis, or along one if it has none."""
    if first < 0:
        return as_tensor(factor) if shape else reshape(as_tensor(factor), (1,))
    stack = outputs_of(factor)[first : first + count]
    return reshape(stack, (count * shape[0], *shape[1:])) if shape else stack


def _picked(stack: Tensor, rows: np.ndarray) -> Tensor:
    """Return rows of a stack; as an array of its own, so that sums of it do not depend on how it lies in memory."""
    is_whole = len(rows) == stack.shape[0] and np.array_equal(rows, np.arange(len(rows)))
    return stack if is_whole else getitem(stack, rows)


def gather(terms: list[Any]) -> tuple[list[Any], Iterator[Tensor]]:
    """Tell terms that are gathered from others, which are returned in their order, beside the sums of the gathered.

    The order of these does not depend on which of their terms arrived first.
    """
    plain, found = part_terms(terms, Factored, _factors_of)
    groups = [Gathered(kind, sources, np.frombuffer(table, np.int64).reshape(-1, 3)) for kind, sources, table in found]
    rows = [group for group in groups if type(group.kind[0]) is Rows]
    # Rows of several forms are parts of one tensor, which few of them touch.
    least = {Rows: 1 if sum([len(group.table) for group in rows]) >= FEWEST else FEWEST, Outer: FEWEST}
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
