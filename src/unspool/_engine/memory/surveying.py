"""What a replay takes before any of it runs: what the levels below the highest hold, in the order that is best.

From that follow whether a budget is enough, and the least that is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from unspool._core import count_uses
from unspool._engine.costs import nbytes
from unspool._engine.memory.allowance import budget_for
from unspool._engine.memory.recomputation import Frame, outputs_of, workspace_of
from unspool._engine.memory.requirement import Need
from unspool._engine.memory.sizes import format_bytes
from unspool._engine.memory.units import STEP_ORDERS, Order, Units
from unspool._graph import Node
from unspool._records import NamedTuple
from unspool.errors import BudgetError

if TYPE_CHECKING:
    from unspool._core import LevelTable
    from unspool._engine.levels import Marks

# The level of what is made of constants alone: above all others. The core has it too.
ANY_LEVEL = 1 << 60

# The part of what is named as the least budget that is allowed for nodes which an earlier run has left.
_SHARED = 64


class Survey(NamedTuple):
    """What levels take: also of the highest one at its busiest, in which order steps run, and if one level is left.

    ``known`` is how often the nodes of sweeps refer to others, by id, and ``marks`` where levels begin.
    """

    need: Need
    busiest: int
    order: Order
    has_one_level_below: bool
    known: dict[int, int]
    marks: Marks


def survey_levels(
    spine_of: Callable[[], Frame], units: Units, levels: LevelTable, marks: Marks, wanted: Sequence[int]
) -> Survey:
    """Tell what the levels below the highest one take if nothing is held of them.

    Of the ways to divide the work into levels and to order it, the one that takes least is chosen; ``levels`` are
    divided like that afterwards. ``spine_of`` returns the frame of the highest level, as they are divided then, and
    ``wanted`` are the ids of what was asked for.
    """
    best = _survey(spine_of(), units, levels, marks, wanted)
    dividing = marks.dividing(units.kernels)
    joined = dividing.joined(units.kernels)
    if len(joined.begun) < len(dividing.begun):
        levels.divide(joined.begun)
        other = _survey(spine_of(), units, levels, joined, wanted, best.need.everything)
        if other.need.least() < best.need.least():
            best = other
        else:
            levels.divide(marks.begun)
    units.kernels.clear()  # nobody asks for them again, and they are as many as there are units
    return best


def _survey(
    spine: Frame,
    units: Units,
    levels: LevelTable,
    marks: Marks,
    wanted: Sequence[int],
    everything: int | None = None,
) -> Survey:
    """Tell what levels take, from which the nodes of the highest one read.

    The level that takes most is the one that is told about; what the others cannot do without is added to it.
    ``everything`` is what keeping all values takes, if that is known: it does not depend on levels.
    """
    lower = levels.below(spine.order)
    fixed, busiest = units.widths(spine.order, wanted)
    constants = lower.pop(ANY_LEVEL, {})
    if lower:
        lower[min(lower)] |= constants
    lower.pop(spine.level, None)
    below = [lower[level] for level in sorted(lower, reverse=True)]
    known = dict(spine.uses)  # the steps of the loop, which are below all, are known to who evicts
    for level in below[:-1]:
        count_uses(known, list(level.values()))
    if not lower:
        alone = Need(units, workspace=max(map(workspace_of, spine.order), default=0), fixed=fixed)
        alone.everything = busiest
        return Survey(alone, busiest, Order.AS_RECORDED, False, known, marks)
    needs = [(_need_of(units, below, spine, fixed, busiest, order), order) for order in STEP_ORDERS]
    need, order = min(needs, key=lambda pair: pair[0].least_in_steps())
    # One that is made of constants may be there for a frame of any level.
    sizes = [sum(nbytes(node.shape, node.dtype) for node in outputs_of(unit)) for unit in constants.values()]
    need.fixed += max(sizes, default=0)
    if everything is None:
        all_units = [*spine.order, *[unit for level in below for unit in level.values()]]
        everything = units.narrowest(all_units, wanted)[1]
    need.everything = everything
    return Survey(need, busiest, order, len(lower) == 1, known, marks)


def _need_of(
    units: Units, below: Sequence[dict[int, Node]], spine: Frame, fixed: int, busiest: int, order: Order
) -> Need:
    """Tell what levels take if their units run in some order."""
    needs: list[Need] = []
    above = dict(spine.uses)
    for level in below:
        arranged = units.arranged(list(level.values()), order)
        needs.append(Need(units, arranged, above))
        count_uses(above, arranged)
    # The one that takes most is the loop. No two units run at the same time.
    main = max(needs, key=lambda need: need.tape)
    main.fixed = max(fixed, busiest - main.running())
    main.fixed += 2 * sum([need.least() for need in needs if need is not main])
    return main


def too_little(limit: int, need: Need) -> BudgetError:
    """Return the error for a budget that is too small for what a survey has found."""
    # What a program shares with an earlier run of itself is not quite the same every time.
    least = budget_for(need.least_in_steps())
    least += least // _SHARED
    takes = (
        f"a state takes {format_bytes(need.state)}, what is read of one step {format_bytes(need.step)}, and what has "
        f"to be there beside them {format_bytes(need.overhead())}"
    )
    if need.everything is not None and budget_for(need.everything) < least:
        least = budget_for(need.everything)
        takes = f"all of them together take {format_bytes(need.everything)}, and to run some of them again takes more"
    error = BudgetError(
        f"a memory budget of {format_bytes(limit)} is too small for {need.steps} steps: {takes}. The least that works "
        f"is {least} bytes"
    )
    error.least = least
    return error
