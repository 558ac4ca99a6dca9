"""`unspool.plan_memory`: what a gradient would take under a budget, told before anything is computed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unspool import _trees as trees
from unspool._autodiff.sweeps.gradient import gradient_of
from unspool._engine.default import default_engine
from unspool._engine.memory.allowance import budget_for, usable
from unspool._engine.memory.replay import survey
from unspool._engine.memory.report import MemoryPlan
from unspool._engine.memory.sizes import parse_bytes
from unspool._graph import Node
from unspool.errors import StructureError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def plan_memory(loss: Tensor, wrt: Any, *, memory: str | int | float) -> MemoryPlan:
    """Tell what a gradient would take under a budget, without computing anything.

    Parameters
    ----------
    loss : Tensor
        A scalar.
    wrt : pytree of Tensor
        What to differentiate with respect to.
    memory : str, int or float
        The budget, as in `unspool.memory`.

    Returns
    -------
    MemoryPlan
        Prints as a table: whether the budget works and the least that does, the peak, how often a step runs.

    Examples
    --------
    >>> import unspool as us
    >>> x = us.ones((100, 100))
    >>> y = x
    >>> for _ in range(50):
    ...     y = us.sin(y)
    >>> plan = us.plan_memory(us.sum(y), x, memory="1MB")
    >>> plan.fits, plan.steps, plan.factor > 1
    (True, 50, True)
    """
    budget = parse_bytes(memory)
    if not isinstance(loss, Node):
        raise StructureError(f"the loss must be a tensor, got {type(loss).__name__}")
    engine = default_engine()
    gradient = [g for g in trees.flatten(gradient_of(loss, wrt))[0] if g.value is None]
    need = survey(engine.ledger, gradient, engine.levels.now())
    least = max(1, budget_for(need.least()))
    fits = least <= budget
    if not need.steps:
        peak, factor = (need.everything, 1.0) if fits else (None, None)
        return MemoryPlan(budget=budget, fits=fits, least_budget=least, predicted_peak=peak, steps=0, factor=factor)
    plan = need.plan(usable(budget)) if fits else None
    return MemoryPlan(
        budget=budget,
        fits=fits,
        least_budget=least,
        predicted_peak=need.predicted_peak(usable(budget)) if fits else None,
        steps=need.steps,
        factor=need.factor(usable(budget)) if fits else None,
        slots=None if plan is None else plan.slots,
        block=None if plan is None else plan.block,
        state_bytes=need.state,
        tape_bytes=need.step,
    )
