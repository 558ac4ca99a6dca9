"""The recompute factor against the budget: what `unspool.plan_memory` says, for a row of budgets."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from unspool._engine.default import default_engine
from unspool._engine.memory.allowance import budget_for, usable
from unspool._engine.memory.replay import survey
from unspool._engine.memory.requirement import Need
from unspool._graph import Node
from unspool.checkpoint._schedule.budget import Sizes, plan_for

# Budgets in a table.
_COUNT = 41


def need_of(gradient: Sequence[Node]) -> Need:
    """Tell what a gradient takes of the steps below it, if nothing is held of them."""
    engine = default_engine()
    return survey(engine.ledger, [g for g in gradient if g.value is None], engine.levels.now())


def table_of(need: Need) -> dict[str, Any]:
    """Return the table of a plain loop as plain data; what is known of a gradient without steps is one number."""
    least = max(1, budget_for(need.least()))
    if not need.steps:
        return {"least": least, "everything": need.everything, "steps": 0, "rows": []}

    def row(budget: int) -> dict[str, Any]:
        plan = need.plan(usable(budget))
        return {
            "budget": budget,
            "factor": need.factor(usable(budget)),
            "peak": need.predicted_peak(usable(budget)),
            "slots": plan.slots,
            "block": plan.block,
        }

    everything = max(budget_for(need.overhead() + need.tape), least)
    return {
        "least": least,
        "everything": everything,
        "steps": need.steps,
        "state": need.state,
        "tape": need.step,
        "rows": _rows(least, everything, row),
    }


def table_of_iterated(sizes: Sizes, steps: int) -> dict[str, Any]:
    """Return the table of a loop that is one node: what `unspool.Checkpointed` would make of each memory."""
    least, everything = sizes.state + sizes.tape, steps * sizes.tape

    def row(budget: int) -> dict[str, Any]:
        plan = plan_for(max(budget, least), sizes)
        loop = plan.closed(steps)
        return {
            "budget": budget,
            "factor": loop.evaluations() / steps,
            "peak": min(max(budget, least), everything),
            "slots": len(loop.positions),
            "block": steps - loop.edge,
        }

    return {
        "least": least,
        "everything": max(least, everything),
        "steps": steps,
        "state": sizes.state,
        "tape": sizes.tape,
        "rows": _rows(least, max(least, everything), row),
    }


def _rows(least: int, everything: int, row: Callable[[int], dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows for budgets from the least one to a little more than all takes, evenly in the logarithm."""
    span = math.log(max(1.3 * everything / least, 1.1))
    budgets = [math.ceil(least * math.exp(span * i / (_COUNT - 1))) for i in range(_COUNT)]
    budgets = sorted({*budgets, everything})
    return [row(budget) for budget in budgets]
