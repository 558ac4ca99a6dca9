"""How a network that does not fit is cut into slices: paths and slices by cotengra, what they take counted here.

A slice fixes the values of some summed labels. The contraction is the sum over all of their values, and each term takes
a share of the memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

from unspool._engine.memory.sizes import format_bytes
from unspool.errors import ArgumentError, BudgetError

Path: TypeAlias = tuple[tuple[int, ...], ...]
Terms: TypeAlias = tuple[tuple[int, ...], ...]

# Searches for a path, of which the best is taken, and where they begin: the same path each time.
_SEARCHES = 32
_SEED = 0

# More slices than these take longer than anybody waits.
_MOST = 1 << 20

# While a slice is differentiated, all that its contraction made is there, and about so many arrays on top: cotangents.
_ON_TOP = 4


@dataclass(frozen=True)
class Cut:
    """A path, and the labels whose values are fixed in a slice.

    Attributes
    ----------
    path : tuple
        Which operands to contract, step by step, as ``numpy.einsum_path`` has it.
    labels : tuple of int
        The labels that are cut.
    bytes : int
        What a slice and its derivative take.
    """

    path: Path
    labels: tuple[int, ...]
    bytes: int


def find_cut(
    inputs: Terms,
    output: tuple[int, ...],
    sizes: Sequence[int],
    itemsize: int,
    *,
    memory: int | None,
    slices: int,
    optimize: Any,
) -> Cut:
    """Return how to cut a contraction into at least so many slices, each of which fits into a budget.

    Labels are numbers, and ``sizes[label]`` is the size of one.
    """
    cotengra = _cotengra()
    search = cotengra.RandomGreedyOptimizer(max_repeats=_SEARCHES, seed=_SEED, accel=False, parallel=False)
    tree = cotengra.array_contract_tree(
        inputs=inputs,
        output=output,
        size_dict=dict(enumerate(sizes)),
        optimize=search if optimize is None else optimize,
        canonicalize=False,
    )
    path: Path = tuple(tuple(step) for step in tree.get_path())
    whole = bytes_of(path, inputs, output, sizes, itemsize)
    if (memory is None or whole <= memory) and slices == 1 and not tree.sliced_inds:
        return Cut(path, (), whole)
    summed = {label for term in inputs for label in term if sizes[label] > 1} - set(output)
    most = min(_MOST, prod(sizes[label] for label in summed))
    target, least = min(slices, most), whole
    while True:
        cut = tree.slice(target_slices=target, allow_outer=False, seed=_SEED) if summed else tree
        labels = tuple(sorted(int(label) for label in cut.sliced_inds))
        taken = bytes_of(path, inputs, output, [1 if i in labels else n for i, n in enumerate(sizes)], itemsize)
        least = min(least, taken)
        if memory is None or taken <= memory:
            return Cut(path, labels, taken)
        if target >= most:
            raise _too_small(memory, least, most)
        target = min(2 * target, most)


def bytes_of(path: Path, inputs: Terms, output: tuple[int, ...], sizes: Sequence[int], itemsize: int) -> int:
    """Return what a contraction and its derivative take: all that is made on the way, and some cotangents."""
    terms = [set(term) for term in inputs]
    made: list[int] = [prod(sizes[label] for label in term) for term in inputs]
    given = sum(made)
    for step in path:
        joined = set().union(*(terms[position] for position in step))
        terms = [term for position, term in enumerate(terms) if position not in step]
        left = joined & set(output).union(*terms)
        terms.append(left)
        made.append(prod(sizes[label] for label in left))
    return itemsize * (given + sum(made) + _ON_TOP * max(made))


def _too_small(memory: int, least: int, most: int) -> BudgetError:
    error = BudgetError(
        f"no slice of the contraction fits into {format_bytes(memory)}: cut into {most:,} slices, each takes "
        f"{format_bytes(least)} with its derivative"
    )
    error.least = least
    return error


def _cotengra() -> Any:
    try:
        import cotengra
    except ImportError as error:
        raise ArgumentError(
            "us.sliced needs the package cotengra, which is not installed: pip install 'unspool[slices]'"
        ) from error
    return cotengra
