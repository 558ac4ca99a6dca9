"""In which order an einsum of many operands is contracted, two at a time.

The objective is what gets *written*: every intermediate may have to be kept for the adjoint, and writing an element
costs about as much as 64 multiplications. So a path's cost is ``flops + 64 * elements written``, which opt_einsum
minimises exactly for few operands; for many, several greedy searches run and the cheapest path wins.

Paths are the same every time: labels go in as small integers, whose sets iterate in the same order in every process
(those of strings do not), and ties go to the first found.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any, TypeAlias

from unspool.errors import ArgumentError

Path: TypeAlias = tuple[tuple[int, int], ...]
Terms: TypeAlias = tuple[tuple[int, ...], ...]

# Stands for a size that is not known yet.
NOMINAL_SIZE = 32

_WRITE_WEIGHT = 64

# Up to so many operands the best path is found in well under a second: of any network, and of one that is sparse.
_EXACT_LIMIT = 8
_SPARSE_LIMIT = 16

# How much a greedy step values removing its operands against the size of what it makes.
_GREEDY_WEIGHTS = (1.0, 0.75, 0.5, 0.0)


@lru_cache(maxsize=1024)
def find_path(inputs: Terms, output: tuple[int, ...], sizes: tuple[int, ...], optimize: Any) -> Path:
    """Return which two operands to contract, step by step; what step k makes is operand number ``len(inputs) + k``.

    ``sizes[label]`` is a label's size. ``optimize`` is true for the search described above, false for left to right,
    the name of one of opt_einsum's methods, or a path that is checked and taken as it is.
    """
    count = len(inputs)
    if optimize is False:
        return _pairs([range(count)], count)
    if isinstance(optimize, tuple):
        return _pairs(optimize, count)
    # Sizes of 0 would make all paths equally cheap.
    positive = {label: max(size, 1) for label, size in enumerate(sizes)}
    if isinstance(optimize, str) and optimize != "auto":
        return _by_name(optimize, inputs, output, positive)
    return _cheapest(inputs, output, positive)


def _cheapest(inputs: Terms, output: tuple[int, ...], sizes: dict[int, int]) -> Path:
    from opt_einsum import paths

    sets: Any = [frozenset(term) for term in inputs]
    sparse = len(inputs) <= _SPARSE_LIMIT and sum(len(term) for term in inputs) <= 3 * len(inputs) + len(output)
    if sparse or len(inputs) <= _EXACT_LIMIT:
        search = paths.DynamicProgramming(minimize=f"combo-{_WRITE_WEIGHT}")
        return _pairs(search(sets, frozenset(output), sizes), len(inputs))

    def greedy(weight: float) -> Path:
        def cost(made: int, first: int, second: int, *labels: Any) -> float:
            return made - weight * (first + second)

        path = paths.ssa_greedy_optimize(sets, frozenset(output), sizes, cost_fn=cost)
        return _pairs(paths.ssa_to_linear(path), len(inputs))

    return min((greedy(weight) for weight in _GREEDY_WEIGHTS), key=lambda path: path_cost(path, inputs, output, sizes))


def _by_name(name: str, inputs: Terms, output: tuple[int, ...], sizes: dict[int, int]) -> Path:
    from opt_einsum import paths

    try:
        search = paths.get_path_fn(name)
    except KeyError:
        raise ArgumentError(
            f"einsum has no optimize={name!r}; there are True, False, 'optimal', 'greedy', 'dp'"
        ) from None
    sets: Any = [frozenset(term) for term in inputs]
    return _pairs(search(sets, frozenset(output), sizes, None), len(inputs))


def path_cost(path: Path, inputs: Terms, output: tuple[int, ...], sizes: dict[int, int]) -> int:
    """Return what a path costs: multiplications, and elements written with their weight."""
    terms = dict(enumerate(set(term) for term in inputs))
    total = 0
    for step, (first, second) in enumerate(path):
        joined = terms.pop(first) | terms.pop(second)
        made = joined & set(output).union(*terms.values())
        total += prod(sizes[label] for label in joined) + _WRITE_WEIGHT * prod(sizes[label] for label in made)
        terms[len(inputs) + step] = made
    return total


def _pairs(steps: Any, count: int) -> Path:
    """Return a path given as positions in a list, whose end what is made goes to, as pairs of operand numbers.

    Steps of more than two operands go from left to right, and so does what an incomplete path leaves.
    """
    left = list(range(count))
    pairs: list[tuple[int, int]] = []
    for step in (*steps, None):
        positions = range(len(left)) if step is None else sorted(step)
        if len(set(positions)) != len(positions) or not positions or not 0 <= positions[0] <= positions[-1] < len(left):
            raise ArgumentError(
                f"einsum cannot contract operands {step} when {len(left)} are left, in optimize={steps}"
            )
        first, *others = [left[position] for position in positions]
        left = [operand for position, operand in enumerate(left) if position not in positions]
        for other in others:
            pairs.append((first, other))
            first = count + len(pairs) - 1
        left.append(first)
    return tuple(pairs)
