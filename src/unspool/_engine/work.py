"""Passes and replays as work that somebody looks on at: how many steps of loops they are through."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np

from unspool._activity import BACKWARD, FORWARD, Work
from unspool._engine.memory.replay import Replay
from unspool._fragments.call import Call, Projection
from unspool._graph import Node


def pass_as_work(order: list[Node], values: dict[int, Any], *, is_backward: bool) -> Work:
    """Return a pass over nodes, which are taken from the end of a list, and keep their values in a dictionary."""
    total = len(order)
    done = [0, *accumulate(map(steps_of, order))]
    return Work(
        BACKWARD if is_backward else FORWARD,
        done[-1] or None,
        lambda: done[max(0, total - len(order) - 1)],
        lambda: sum(map(_nbytes, list(values.values()))),
    )


def replay_as_work(replay: Replay, *, is_backward: bool) -> Work:
    """Return an evaluation within a budget."""
    total, done = replay.steps_of_all, replay.steps_done
    work = Work(
        BACKWARD if is_backward else FORWARD,
        None,
        lambda: done(steps_of),
        lambda: replay.nbytes_beside,
        lambda: replay.kernels,
    )
    replay.on_begin = lambda: setattr(work, "total", total(steps_of) or None)
    return work


def steps_of(node: Node) -> int:
    """Return how many steps of a loop a node stands for: many for a loop or a chain, one for a call, else none."""
    if type(node) is Call:
        return 1
    if type(node) is Projection:
        return 0
    for name in ("chain", "loop"):
        what = node.attributes.get(name)
        if what is not None:
            return int(what.steps)
    return 0


def _nbytes(value: Any) -> int:
    if type(value) is tuple:
        return sum(map(_nbytes, value))
    return value.nbytes if isinstance(value, np.ndarray) else 0
