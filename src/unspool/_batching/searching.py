"""Searches for the fixed points of all members: their maps are applied as one batch, each goes its own way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unspool._autodiff.loops.loop import one_body
from unspool._autodiff.loops.trace import TracedStep
from unspool._autodiff.solvers.anderson import Found, Search
from unspool._batching.images import Image
from unspool._batching.loops import batched_body
from unspool._engine.default import default_engine


def search_members(
    step: TracedStep, images: Sequence[Image], count: int, history: int, tol: float, max_steps: int
) -> list[Found]:
    """Return what the search of each member came to; one that has found its point is not looked at any more."""
    together = _Together(step, images)
    starts = [[x[k] if flag else x for x, flag in together.initial] for k in range(count)]
    searches = [Search(start, history, tol, max_steps) for start in starts]
    going = list(range(count))
    while going:
        found = together.apply(going, [searches[k].argument for k in going])
        for k, image in zip(going, found, strict=True):
            searches[k].take(image)
        going = [k for k in going if searches[k].found is None]
    return [search.found for search in searches if search.found is not None]


class _Together:
    """The map of all members, as a function of arrays."""

    def __init__(self, step: TracedStep, images: Sequence[Image]) -> None:
        values = default_engine().evaluate([image.node for image in images])
        pairs = [(value, image.batched) for value, image in zip(values, images, strict=True)]
        self._step, self._images = step, images
        self._constants, self.initial = pairs[: step.constants], pairs[step.constants :]
        self._loop = one_body(step.fragment, constants=step.constants, carries=step.carries, steps=1)

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
