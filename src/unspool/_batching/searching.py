"""Searches for the fixed points of all members: their maps are applied as one batch, each goes its own way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unspool._autodiff.loops.loop import one_body
from unspool._autodiff.loops.trace import TracedStep
from unspool._autodiff.solvers.anderson import Found, Iteration, Search
from unspool._batching.images import Image
from unspool._batching.loops import batched_body
from unspool._engine.default import default_engine


def search_members(
    step: TracedStep, images: Sequence[Image], count: int, history: int, tol: float, max_steps: int
) -> list[Found]:
    """Return what the search of each member came to; one that has found its point is not looked at any more."""
    values = default_engine().evaluate([image.node for image in images])
    pairs = [(value, image.batched) for value, image in zip(values, images, strict=True)]
    together = Together(step, pairs[: step.constants], pairs[step.constants :])
    searches = [Search(start, history, tol, max_steps) for start in together.starts(count)]
    going = list(range(count))
    while going:
        found = together.apply(going, [searches[k].argument for k in going])
        for k, image in zip(going, found, strict=True):
            searches[k].take(image)
        going = [k for k in going if searches[k].found is None]
    return [search.found for search in searches if search.found is not None]


def repeat_members(together: Together, history: int, lengths: Sequence[int]) -> list[list[Any]]:
    """Return the last image of each member of searches that are known to have applied the maps so many times."""
    finals = together.starts(len(lengths))
    searches = [Iteration(start, history) for start in finals]
    for k in range(max(lengths, default=0)):
        going = [i for i, length in enumerate(lengths) if length > k]
        found = together.apply(going, [searches[i].state for i in going])
        for i, image in zip(going, found, strict=True):
            if lengths[i] == k + 1:
                finals[i] = image
                continue
            searches[i].take(image)
            searches[i].advance()
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
        self._constants, self.initial = constants, initial
        self._loop = one_body(step.fragment, constants=step.constants, carries=step.carries, steps=1)

    def starts(self, count: int) -> list[list[Any]]:
        """Return where each member starts."""
        return [[x[k] if flag else x for x, flag in self.initial] for k in range(count)]

    def apply(self, members: Sequence[int], states: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """Return the images of the states of some members."""
        rows = np.asarray(members)
        constants = [x[rows] if flag else x for x, flag in self._constants]
        state = [np.stack(leaf) for leaf in zip(*states, strict=True)]
        flags = [*[flag for _, flag in self._constants], *[True] * len(state)]
        arrays = [*constants, *state]
        fragment, _ = batched_body(self._loop, len(members), flags, arrays)
        plan = default_engine().plans.plan_for(fragment, tuple([x.shape for x in arrays]))
        found = plan.run(*arrays)[: len(state)]
        return [[leaf[i] for leaf in found] for i in range(len(members))]
