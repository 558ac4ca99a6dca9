"""What a gradient would take: it is recorded, which computes nothing, and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from unspool import _trees as trees
from unspool._autodiff.sweeps.chain import CHAIN
from unspool._autodiff.sweeps.gradient import gradient_of
from unspool._dims import is_concrete
from unspool._engine.costs import kernels_of
from unspool._engine.default import default_engine
from unspool._engine.folding.matching import Site
from unspool._engine.interpreter import collect
from unspool._engine.memory.allowance import budget_for
from unspool._engine.memory.replay import survey
from unspool._engine.plan import Plan
from unspool._fragments.call import Call, Projection
from unspool._graph import Node
from unspool._inspect.explanation import BackwardLoop, FoundLoop, GradientCost
from unspool._inspect.places import Places
from unspool._inspect.wholes import lines_of, loop_of
from unspool._ops.elementwise import real
from unspool._ops.reduction import sum as total
from unspool._tensor import Tensor
from unspool.errors import UnspoolError

# What runs a loop: plans, or sites that have one as soon as they are folded.
Runners = Sequence[Plan | Site]


def cost_of_gradient(
    tensor: Tensor, wrt: Any, names: Sequence[str], known: Sequence[tuple[FoundLoop, Runners]], places: Places
) -> GradientCost:
    """Return what the gradient of a tensor takes; of the sum of its elements if it is no scalar.

    ``known`` are the loops that there are, and what runs them.
    """
    try:
        loss = tensor if not tensor.shape else total(tensor)
        if loss.dtype.kind == "c":
            loss = real(loss)
        found = [g for g in trees.flatten(gradient_of(loss, wrt))[0] if isinstance(g, Node)]
    except UnspoolError as error:
        return GradientCost(tuple(names), problem=f"there is none: {error}")
    missing = [gradient for gradient in found if gradient.value is None]
    if found and not missing:
        return GradientCost(tuple(names), kernel_calls=0, is_held=True)
    if not all(is_concrete(node.shape) for node in found):
        return GradientCost(tuple(names), problem="its cost is known when all sizes are.")
    work = collect(missing)
    order = [node for node in work.order if type(node) is not Projection]
    work.give_back()
    engine = default_engine()
    need = survey(engine.ledger, missing, engine.levels.now()) if missing else None
    return GradientCost(
        tuple(names),
        kernel_calls=sum(map(_kernels, order)),
        recorded=len(order),
        loops=_backward_loops(order, known, places),
        held_bytes=None if need is None else need.everything,
        least_budget=None if need is None else max(1, budget_for(need.least())),
    )


def _kernels(node: Any) -> int:
    """Return how many kernels a node runs, those in the steps of a loop included."""
    if node.op is CHAIN:
        return int(node.attributes["chain"].kernels)
    loop = loop_of(node)
    if loop is None:
        return kernels_of(node)
    runs = [loop.which.count(i) if loop.which else loop.steps for i in range(len(loop.bodies))]
    return sum(count * len(body.fragment.body) for count, body in zip(runs, loop.bodies, strict=True))


def _backward_loops(
    order: Sequence[Any], known: Sequence[tuple[FoundLoop, Runners]], places: Places
) -> tuple[BackwardLoop, ...]:
    """Return the loops that a gradient goes back through: of each, how many steps are loops and how many calls."""
    number_of = _derived_plans([runners for _, runners in known])
    lines = {number: loop.lines for number, (loop, _) in enumerate(known, 1)}
    steps: Counter[Any] = Counter()
    calls: Counter[Any] = Counter()
    for node in order:
        loop = loop_of(node)
        if loop is not None:
            found = lines_of([origin for body in loop.bodies for origin in body.fragment.origins], places)
            steps[_primal_of(loop.steps, found, known)] += loop.steps
        elif node.op is CHAIN:
            chain = node.attributes["chain"]
            for kind, count in zip(chain.kinds, chain.counts(), strict=True):
                steps[number_of.get(kind.plan.id, lines_of(kind.plan.fragment.origins, places))] += count
        elif type(node) is Call and node.plan.id in number_of:
            calls[number_of[node.plan.id]] += 1
    return tuple(
        BackwardLoop(key, steps[key], calls[key], lines[key])
        if isinstance(key, int)
        else BackwardLoop(None, steps[key], 0, key)
        for key in dict.fromkeys([*steps, *calls])
    )


def _primal_of(steps: int, lines: Any, known: Sequence[tuple[FoundLoop, Runners]]) -> Any:
    """Return which loop the derivative of one belongs to, by its lines.

    Bodies that are alike have the lines of the first one; then the only loop of so many steps is meant. Its lines, if
    there is none.
    """
    for number, (loop, _) in enumerate(known, 1):
        if set(lines) <= set(loop.lines):
            return number
    alike = [number for number, (loop, _) in enumerate(known, 1) if loop.kind == "iterate" and loop.steps == steps]
    return alike[0] if len(alike) == 1 else lines


def _derived_plans(runners: Sequence[Runners]) -> dict[int, int]:
    """Return which loop, counted from 1, the plans of derivatives belong to."""
    found: dict[int, int] = {}
    for number, of_loop in enumerate(runners, 1):
        for runner in of_loop:
            if isinstance(runner, Site) and not runner.is_ready:
                continue
            plan = runner.plan if isinstance(runner, Site) else runner
            for derived in plan.derivatives.values():
                if hasattr(derived, "sources"):
                    found.setdefault(derived.plan.id, number)
    return found
