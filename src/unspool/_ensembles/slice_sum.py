"""The op ``slice_sum``: a sum over slices, each computed by itself, here or on a pool.

Its derivatives are sums over the same slices. Slices are added in their order, whoever computed them, so bits do not
depend on the pool.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._batching.mapped import mapped
from unspool._engine.evaluate import eval as evaluate
from unspool._ensembles.budgets import budget_of_worker
from unspool._ensembles.pools import results
from unspool._ensembles.summands import Cuts, Pulled, Pushed, Summand
from unspool._ops.leaf import placeholder, tensor
from unspool._ops.op import INPUTS, STRUCTURE, JointRule, Op, parts
from unspool.errors import UnspoolError

if TYPE_CHECKING:
    from unspool._graph import Node
    from unspool._tensor import Tensor

# So many slices are with a pool at a time: what comes too early waits here for its turn to be added.
_AHEAD = 32


class Slices:
    """Which slices there are, and who computes them: a parameter of nodes.

    Attributes
    ----------
    summand : Summand
        What is computed of each.
    sizes : dict
        How many values each label that is cut has.
    pool : object or None
        Who computes.
    memory : int or None
        The budget of a worker.
    """

    __slots__ = ("_key", "memory", "pool", "sizes", "summand")

    def __init__(self, summand: Summand, sizes: dict[int, int], pool: Any, memory: int | None) -> None:
        self.summand, self.sizes, self.pool, self.memory = summand, sizes, pool, memory
        self._key = (summand, tuple(sizes.items()), id(pool), memory)

    def of(self, summand: Summand) -> Slices:
        """Return the same slices with something else to compute."""
        return Slices(summand, self.sizes, self.pool, self.memory)

    def __len__(self) -> int:
        return prod(self.sizes.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Slices) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"<{len(self)} slices>"

    def part(self, number: int, cuts: Cuts) -> tuple[slice, ...]:
        """Return where the part of an array lies that belongs to a slice."""
        values = dict(zip(self.sizes, np.unravel_index(number, tuple(self.sizes.values())), strict=True))
        return tuple([slice(None) if cut is None else slice(int(values[cut]), int(values[cut]) + 1) for cut in cuts])


def place(slices: Slices, inputs: Sequence[Any]) -> tuple[Tensor, ...]:
    """Record a sum over slices."""
    return parts(_graph.apply_multi(SLICE_SUM, *inputs, slices=slices))


def of_slice(summand: Summand, memory: int | None, arrays: list[Any]) -> list[Any]:
    """Compute one slice: what a worker does."""
    with budget_of_worker(memory):
        found = evaluate(summand([tensor(x) for x in arrays]))
    return [np.asarray(x) for x in found]


def _infer(*inputs: Node, slices: Slices) -> list[tuple[Any, Any]]:
    # Sizes are those of whole arrays: an axis that is cut is as long as it was.
    return [(x.shape, x.dtype) for x in slices.summand([placeholder(x.shape, x.dtype) for x in inputs])]


def _kernel(*arrays: Any, slices: Slices) -> tuple[Any, ...]:
    summand = slices.summand
    totals: list[Any] = []
    for number, found in enumerate(_in_order(slices, arrays)):
        if not totals:
            totals = [_whole(slices, x, cuts) for x, cuts in zip(found, summand.outputs, strict=True)]
        for total, x, cuts in zip(totals, found, summand.outputs, strict=True):
            total[slices.part(number, cuts)] += x
    return tuple(totals)


def _in_order(slices: Slices, arrays: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield what each slice gives, in the order of the slices."""

    def arguments(number: int) -> tuple[Any, ...]:
        # Copies, so that a slice lies in memory in the same way here and elsewhere.
        pairs = zip(arrays, slices.summand.inputs, strict=True)
        given = [np.array(x[slices.part(number, cuts)], order="C") for x, cuts in pairs]
        return slices.summand, slices.memory, given

    early: dict[int, list[Any]] = {}
    turn = 0
    tasks = [partial(arguments, number) for number in range(len(slices))]
    for number, found, error in results(slices.pool, of_slice, tasks, _AHEAD):
        if error is not None:
            raise error if isinstance(error, UnspoolError) else _lost(number, error)
        early[number] = found
        while turn in early:
            yield early.pop(turn)
            turn += 1


def _lost(number: int, error: BaseException) -> RuntimeError:
    made = RuntimeError(f"slice {number} was not computed: {type(error).__name__}: {error}")
    made.__cause__ = error
    return made


def _whole(slices: Slices, x: Any, cuts: Cuts) -> Any:
    shape = [n if cut is None else slices.sizes[cut] for n, cut in zip(x.shape, cuts, strict=True)]
    return np.zeros(shape, x.dtype)


def _pull(needed: Sequence[bool], ct: Sequence[Any], out: Any, *inputs: Any, slices: Slices) -> list[Any]:
    arriving = tuple([c is not None for c in ct])
    pulled = slices.of(Pulled(slices.summand, tuple(needed), arriving))
    found = iter(place(pulled, (*inputs, *[c for c in ct if c is not None])))
    return [next(found) if need else None for need in needed]


def _push(tangents: Sequence[Any], out: Any, *inputs: Any, slices: Slices) -> tuple[Any, ...]:
    moving = tuple([t is not None for t in tangents])
    return place(slices.of(Pushed(slices.summand, moving)), (*inputs, *[t for t in tangents if t is not None]))


# Not registered: `unspool.sliced` places it, and nobody applies it by name.
SLICE_SUM = Op(
    "slice_sum",
    infer=_infer,
    kernel=_kernel,
    vjp=JointRule(_pull),
    jvp=_push,  # type: ignore[arg-type]
    params={"slices": STRUCTURE},
    needs=(INPUTS,),
    multi=True,
    batch=mapped,
)
