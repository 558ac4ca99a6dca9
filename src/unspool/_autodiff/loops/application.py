"""A traced step as a function of arrays, by its plan; alone, or with a tangent beside its state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unspool._autodiff.loops.iterate import TracedStep
from unspool._autodiff.loops.tangent_step import random_direction, with_tangent
from unspool._engine.default import default_engine
from unspool._engine.observe import current_watchers
from unspool._ops.leaf import tensor


class Application:
    """A step as a function of arrays: its plan for the shapes at hand, with the values of what it closes over."""

    def __init__(self, step: TracedStep, constants: Sequence[Any], state: Sequence[Any]) -> None:
        shapes = tuple(array.shape for array in (*constants, *state))
        self._plan = default_engine().plans.plan_for(step.fragment, shapes)
        self._constants = tuple(constants)
        self._count = 0

    def __call__(self, state: Sequence[Any]) -> Sequence[Any]:
        """Return the next state."""
        for watcher in current_watchers():
            watcher.run_step(self._plan, [*self._constants, *state], self._count)
        self._count += 1
        return self._plan.run(*self._constants, *state)[: len(state)]


def with_tangents(step: TracedStep, constants: Sequence[Any], start: Sequence[Any]) -> tuple[Application, list[Any]]:
    """Return a step that carries the tangent along a direction of what it closes over, and where it starts.

    The direction follows from the arrays alone, so that a search can be repeated.
    """
    directions = [None if v is None else tensor(v) for v in random_direction(constants)]
    moving = with_tangent(step, list(map(tensor, constants)), list(map(tensor, start)), directions, [None] * len(start))
    values = default_engine().evaluate([*moving.constants, *moving.initial])
    closed, begin = values[: len(moving.constants)], values[len(moving.constants) :]
    return Application(moving.step, closed, begin), begin
