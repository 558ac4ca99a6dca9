"""Searches for the fixed points of all members: their maps are applied as one batch, each goes its own way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from unspool._autodiff.loops.loop import one_body
from unspool._autodiff.loops.trace import TracedStep
from unspool._autodiff.solvers.anderson import left_the_finite_numbers, none_found
from unspool._batching.extrapolating import Iterations
from unspool._batching.images import Image
from unspool._batching.loops import batched_body
from unspool._engine.default import default_engine


class FoundTogether(NamedTuple):
    """What the searches of all members came to: leaves of their last images, numbers of steps, the largest residual."""

    state: list[Any]
    lengths: Any
    residual: float


def search_members(
    step: TracedStep, images: Sequence[Image], count: int, history: int, tol: float, max_steps: int
) -> FoundTogether:
    """Return what the search of each member came to; one that has found its point is not looked at any more."""
    values = default_engine().evaluate([image.node for image in images])
    pairs = [(value, image.batched) for value, image in zip(values, images, strict=True)]
    together = Together(step, pairs[: step.constants], pairs[step.constants :])
    finals = together.starts(count)
    searches = Iterations(finals, history)
    tol = max(tol, 16.0 * searches.packing.coarsest)
    going, lengths, steps = np.arange(count), np.zeros(count, np.int64), 0
    while len(going):
        found = together.apply(going, [leaf[going] for leaf in searches.state])
        searches.take(going, found)
        steps += 1
        is_done = searches.residual[going] <= tol
        done, lengths[going[is_done]] = going[is_done], steps
        for whole, leaf in zip(finals, found, strict=True):
            whole[done] = leaf[is_done]
        going = going[~is_done]
        _refuse_hopeless(searches, going, steps, max_steps, tol)
        searches.advance(~is_done)
    return FoundTogether(finals, lengths, float(searches.residual.max()))


def _refuse_hopeless(searches: Iterations, going: Any, steps: int, most: int, tol: float) -> None:
    """Raise if there is no point in going on with the search of a member."""
    residuals = searches.residual[going]
    lost = ~np.isfinite(residuals) & ~searches.can_restart(going)
    if lost.any():
        raise left_the_finite_numbers(float(residuals[lost][0]), steps, tol)
    if steps == most and len(going):
        raise none_found(float(residuals[0]), steps, tol)


def repeat_members(together: Together, history: int, lengths: Any) -> list[Any]:
    """Return leaves of the last images of searches that are known to have applied the maps so many times."""
    finals = together.starts(len(lengths))
    searches = Iterations(finals, history)
    for k in range(max(lengths, default=0)):
        going = np.flatnonzero(lengths > k)
        found = together.apply(going, [leaf[going] for leaf in searches.state])
        is_done = lengths[going] == k + 1
        for whole, leaf in zip(finals, found, strict=True):
            whole[going[is_done]] = leaf[is_done]
        searches.take(going, found)
        searches.advance(~is_done)
    return finals


class Together:
    """The map of all members, as a function of arrays.

    Parameters
    ----------
    step : TracedStep
        That of one member.
    constants, initial : sequence of (array, bool)
        What it closes over, and where it starts; whether members have one each, along a first axis.
    """

    def __init__(
        self, step: TracedStep, constants: Sequence[tuple[Any, bool]], initial: Sequence[tuple[Any, bool]]
    ) -> None:
        self._constants, self._initial = constants, initial
        self._loop = one_body(step.fragment, constants=step.constants, carries=step.carries, steps=1)

    def starts(self, count: int) -> list[Any]:
        """Return the leaves of where all members start, in memory of their own."""
        return [np.array(x) if flag else np.repeat(x[None], count, axis=0) for x, flag in self._initial]

    def apply(self, members: Any, state: Sequence[Any]) -> list[Any]:
        """Return the leaves of the images of the states of some members, by number."""
        constants = [x[members] if flag else x for x, flag in self._constants]
        flags = [*[flag for _, flag in self._constants], *[True] * len(state)]
        arrays = [*constants, *state]
        fragment, _ = batched_body(self._loop, len(members), flags, arrays)
        plan = default_engine().plans.plan_for(fragment, tuple([x.shape for x in arrays]))
        return list(plan.run(*arrays)[: len(state)])
