"""How good and how fast the checkpoint schedules are: no tensors, only counts of steps.

A loop whose length is not known keeps a few states by a rule; it is stopped after every number of steps and the
evaluations that it takes in all are compared with the least possible for a length known beforehand. Then the schedules
for a known length are carried out for every pair of steps and slots, and counted; and both kinds are timed. At last
budgets: a share of what keeping everything takes becomes a schedule that shares room between states and tapes, and its
runs of a step are counted and compared with the exact table.

    python bench/schedules.py                 the tables, and the bars they are held to
    python bench/schedules.py --json out.json the numbers as well
    python bench/schedules.py --quick         a short run that checks the harness; no bars

Exits with 1 if a bar is missed.
"""

from __future__ import annotations

import statistics
import sys
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import harness
import numpy as np
from harness import Bar

if TYPE_CHECKING:
    from unspool.checkpoint._schedule.loops import OpenLoop

PACKAGES = {"unspool": "unspool"}

# The worst ratio that a number of slots may have, for any length of the loop.
WORST = {5: 1.07, 10: 1.04, 20: 1.03, 50: 1.03, 100: 1.03}
MEAN = 1.01

# Steps, slots, and the most evaluations for a step that a loop of unknown length may take.
KNOWN = ((1000, 10, 4.735), (10_000, 5, 12.4), (100_000, 5, 20.3))

# Budgets: steps, residuals of a step in states, and shares of what keeping everything takes in per cent.
BUDGET_STEPS, RESIDUALS, SHARES = (100, 1000, 10_000), (0, 1, 5), (50, 12, 2)
# States and residuals that are compared with the exact table, and the worst ratios for lengths known and unknown.
EXACT_STATES, KNOWN_RATIO, OPEN_RATIO, OPEN_RATIO_OF_TWO = (2, 3, 5, 10, 24, 60), 1.03, 1.08, 1.13

# Slots, and the most time that choosing what to drop may take, in µs.
CHOICES = {10: 20.0, 100: 130.0, 5000: 1000.0}


@dataclass(frozen=True)
class Ratios:
    """Evaluations beside the optimum, over all lengths of a loop."""

    worst: float
    worst_at: int
    mean: float


@dataclass(frozen=True)
class Budgeted:
    """What a budget makes of a loop: runs of a step for each step, decisions while it runs, rows of its schedule."""

    steps: int
    residual: int
    share: int
    known: float
    unknown: float
    decisions: int
    rows: int
    seconds: float


# --- counting --------------------------------------------------------------------------------------------------------


def open_loop(slots: int) -> OpenLoop:
    """Return a loop of unknown length that saves so many states and tapes one step."""
    from unspool.checkpoint._schedule.budget import plan_for_slots

    return plan_for_slots(slots).open()


def evaluations(loop: OpenLoop) -> int:
    """Return how often a step runs in all if the loop ends now: at first, in the backward pass, and to be reversed.

    The last step has just run, so it need not run again to be reversed.
    """
    from unspool.checkpoint import binomial

    bounds = [*[position for position in loop.positions if position < loop.steps - 1], loop.steps - 1]
    gaps = enumerate(stop - start for start, stop in pairwise(bounds))
    return 2 * loop.steps - 1 + sum(binomial.advances(gap, loop.reach.slots - i) for i, gap in gaps)


def open_ratios(slots: int, longest: int) -> Ratios:
    """Stop a loop after every number of steps and compare its evaluations with the optimum for that number."""
    from unspool.checkpoint import binomial

    loop, ratios = open_loop(slots), []
    for steps in range(1, longest + 1):
        loop.run_to(steps)
        ratios.append(evaluations(loop) / (steps + binomial.advances(steps, slots)))
    worst = max(ratios)
    return Ratios(worst, 1 + ratios.index(worst), statistics.fmean(ratios))


def open_factor(steps: int, slots: int) -> float:
    """Return the evaluations of a step that a loop of unknown length takes."""
    loop = open_loop(slots)
    loop.run_to(steps)
    return evaluations(loop) / steps


def wrong_counts(longest: int) -> tuple[int, int]:
    """Go through the schedule of every pair of steps and slots; return how many there are, and how many fail.

    One fails if it does not reverse every step or does not run as few steps as the closed form says.
    """
    from unspool.checkpoint import binomial
    from unspool.checkpoint._schedule.actions import ADVANCE, REVERSE, TAPE
    from unspool.checkpoint._schedule.budget import plan_for_slots

    pairs = wrong = 0
    for slots in range(1, longest):
        plan = plan_for_slots(slots)
        for steps in range(slots + 1, longest + 1):
            loop = plan.closed(steps)
            rows = np.concatenate([*loop.forward(), *loop.backward()])
            kinds, lengths = rows[:, 0], rows[:, 2] - rows[:, 1]
            runs = int(lengths[(kinds == ADVANCE) | (kinds == TAPE)].sum())
            reversed_ = int(lengths[kinds == REVERSE].sum())
            pairs += 1
            wrong += (runs, reversed_) != (steps + binomial.advances(steps, slots), steps)
    return pairs, wrong


# --- budgets ---------------------------------------------------------------------------------------------------------


def budgeted(steps: int, residual: int, share: int) -> Budgeted:
    """Make the schedules of a loop within a share of what keeping everything takes, and count."""
    from unspool.checkpoint._schedule.loops import ClosedLoop, OpenLoop
    from unspool.checkpoint._schedule.reach import Reach

    reach = Reach(steps * (1 + residual) * share // 100, 1, residual)
    opened = OpenLoop(reach)
    opened.run_to(steps)
    start = time.perf_counter()
    closed = ClosedLoop(reach, steps)
    rows = sum(map(len, closed.forward())) + sum(map(len, closed.backward()))
    seconds = time.perf_counter() - start
    known, unknown = closed.evaluations() / steps, opened.evaluations() / steps
    return Budgeted(steps, residual, share, known, unknown, opened.decisions, rows, seconds)


def seconds_a_step(states: int, steps: int) -> float:
    """Return what making the whole schedule of a loop takes for each step, with room for few states."""
    from unspool.checkpoint._schedule.loops import ClosedLoop
    from unspool.checkpoint._schedule.reach import Reach

    start = time.perf_counter()
    for _ in ClosedLoop(Reach(states, 1, 1), steps).backward():
        pass
    return (time.perf_counter() - start) / steps


def ratios_to_the_table(states: int, longest: int) -> tuple[float, float]:
    """Return the worst ratios to the exact table, for known and unknown length, over the ends of the second half."""
    from unspool.checkpoint._schedule.loops import ClosedLoop, OpenLoop
    from unspool.checkpoint._schedule.reach import Reach

    known, unknown = [], []
    for residual in (1, 5):
        reach = Reach(states, 1, residual)
        opened, table = OpenLoop(reach), exact_table(longest, states, 1 + residual)
        for end in range(longest // 2, longest + 1, max(1, longest // 40)):
            opened.run_to(end)
            least = int(table[end])
            known.append(ClosedLoop(reach, end).evaluations() / least)
            unknown.append(opened.evaluations() / least)
    return max(known), max(unknown)


def exact_table(steps: int, units: int, tape: int) -> Any:
    """Return the least runs that reverse 0, 1, … steps with room for so many states, a tape being as large as some.

    With f(l, c) for l steps and c free units: a tape of the first step leaves f(l − 1, c − tape), and one run more;
    saving the start and advancing i steps leaves f(l − i, c − 1) and then f(i, c), and i runs. (Maddison 2024, where a
    tape is one unit.) The last step is taped in the workspace.
    """
    table = np.full((steps + 1, units + 1), 2**29, np.int64)
    table[1] = 1
    for length in range(2, steps + 1):
        ahead = np.arange(1, length)[:, np.newaxis]
        table[length, 1:] = (table[1:length, 1:] + ahead + table[length - 1 : 0 : -1, :-1]).min(axis=0)
        if tape <= units:
            np.minimum(table[length, tape:], table[length - 1, : units + 1 - tape] + 1, out=table[length, tape:])
    return table[:, units]


def print_budgets(found: list[Budgeted]) -> None:
    """Print the recompute factors of budgets; the rows are those of the page on memory."""
    print("\nBudgets: recompute factor at a share of keeping everything, length known / unknown (decisions, rows)")
    for steps in sorted({each.steps for each in found}):
        for residual in sorted({each.residual for each in found}):
            cells = (
                f"{each.share:>3} %  {each.known:.3f} / {each.unknown:.3f} ({each.decisions}, {each.rows})"
                for each in found
                if (each.steps, each.residual) == (steps, residual)
            )
            print(f"  {steps:>7} steps, residuals of {residual} states:  {'   '.join(cells)}")


# --- timing ----------------------------------------------------------------------------------------------------------


def stream(steps: int, slots: int) -> tuple[float, int]:
    """Go through a schedule; return the seconds it takes and its number of rows."""
    from unspool.checkpoint._schedule.budget import plan_for_slots

    start = time.perf_counter()
    loop = plan_for_slots(slots).closed(steps)
    rows = sum(map(len, loop.forward())) + sum(map(len, loop.backward()))
    return time.perf_counter() - start, rows


def stream_memory(steps: int, slots: int) -> int:
    """Return the peak of bytes that a schedule holds on its way."""
    tracemalloc.start()
    stream(steps, slots)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def choice(slots: int, rounds: int) -> float:
    """Return the median time of one choice of what to drop, in seconds, when all slots are full."""
    from unspool.checkpoint.online import choose_removal

    positions, seconds = list(range(slots + 1)), []
    for step in range(slots + 1, slots + 1 + rounds):
        start = time.perf_counter()
        index = choose_removal(positions, step)
        seconds.append(time.perf_counter() - start)
        positions.pop(index)
        positions.append(step)
    return statistics.median(seconds)


# --- the tables and the bars -----------------------------------------------------------------------------------------


def print_ratios(found: dict[int, Ratios], longest: int) -> None:
    """Print the worst and the mean ratio by slots."""
    print(f"\nUnknown length: evaluations beside the optimum, for every length up to {longest}")
    print(f"  {'slots':>6}  {'worst':>8}{'at':>8}{'mean':>9}")
    for slots, ratios in sorted(found.items()):
        print(f"  {slots:>6}  {ratios.worst:>8.4f}{ratios.worst_at:>8}{ratios.mean:>9.4f}")


def bars(
    ratios: dict[int, Ratios],
    factors: dict[tuple[int, int], float],
    wrong: int,
    streams: dict[int, tuple[float, int]],
    choices: dict[int, float],
    budgets: list[Budgeted],
    tables: dict[int, tuple[float, float]],
) -> Iterator[Bar]:
    """What the schedules are held to."""
    for slots, limit in WORST.items():
        yield Bar(f"worst ratio to the optimum, {slots} slots", ratios[slots].worst, limit, "×")
        yield Bar(f"mean ratio to the optimum, {slots} slots", ratios[slots].mean, MEAN, "×")
    for steps, slots, limit in KNOWN:
        yield Bar(f"evaluations of a step, {steps} steps in {slots} slots", factors[steps, slots], limit, "×")
    yield Bar("schedules of known length that are not optimal", wrong, 0, "")
    for slots, (seconds, rows) in streams.items():
        yield Bar(f"a row of a schedule, 10⁶ steps in {slots} slots", 1e6 * seconds / rows, 3.0, "µs")
        yield Bar(f"a schedule of 10⁶ steps in {slots} slots", seconds, 13.0, "s")
    for slots, limit in CHOICES.items():
        yield Bar(f"a choice of what to drop among {slots} states", 1e6 * choices[slots], limit, "µs")
    for states, (known, unknown) in tables.items():
        yield Bar(f"states and tapes beside the exact table, room for {states} states", known, KNOWN_RATIO, "×")
        limit = OPEN_RATIO_OF_TWO if states == 2 else OPEN_RATIO
        yield Bar(f"the same while the length is not known, {states} states", unknown, limit, "×")
    slowest = max(each.seconds / each.steps for each in budgets if each.steps >= 10_000)
    yield Bar("a step of a schedule for a budget, 10⁴ steps and more", 1e6 * slowest, 1.0, "µs")
    for states in (3, 20):
        each = seconds_a_step(states, 100_000)
        yield Bar(f"the same with room for {states} states, 10⁵ steps", 1e6 * each, 5.0, "µs")


def main() -> int:
    """Count, measure, print, and return 1 if a bar is missed."""
    options = harness.options("Compare and time the checkpoint schedules of unspool.")
    harness.participants(PACKAGES)
    longest, pairs_to = (500, 20) if options.quick else (20_000, 400)
    ratios = {slots: open_ratios(slots, longest) for slots in WORST}
    print_ratios(ratios, longest)

    pairs, wrong = wrong_counts(pairs_to)
    print(f"\nKnown length: {pairs - wrong} of {pairs} schedules of up to {pairs_to} steps are optimal")
    million = 1000 if options.quick else 10**6
    streams = {slots: stream(million, slots) for slots in (10, 100)}
    for slots, (seconds, actions) in streams.items():
        held = stream_memory(million // 10, slots)
        print(f"  {million} steps in {slots} slots: {actions} rows, {seconds:.2f} s; the stream holds {held} bytes")
    choices = {slots: choice(slots, 50 if options.quick else 500) for slots in CHOICES}
    factors = {} if options.quick else {(steps, slots): open_factor(steps, slots) for steps, slots, _ in KNOWN}
    lengths = BUDGET_STEPS[:2] if options.quick else (*BUDGET_STEPS, 100_000)
    budgets = [budgeted(steps, residual, share) for steps in lengths for residual in RESIDUALS for share in SHARES]
    print_budgets(budgets)
    tables = {states: ratios_to_the_table(states, 60 if options.quick else 300) for states in EXACT_STATES}
    if options.json:
        numbers = {
            "open": [{"slots": slots, **asdict(found)} for slots, found in ratios.items()],
            "factors": [{"steps": s, "slots": c, "factor": factor} for (s, c), factor in factors.items()],
            "streams": [{"slots": c, "seconds": seconds, "actions": n} for c, (seconds, n) in streams.items()],
            "choices": choices,
            "budgets": [asdict(each) for each in budgets],
            "tables": {states: {"known": known, "unknown": open_} for states, (known, open_) in tables.items()},
        }
        harness.write(options.json, PACKAGES.values(), numbers)
    return 0 if options.quick else harness.decide(bars(ratios, factors, wrong, streams, choices, budgets, tables))


if __name__ == "__main__":
    sys.exit(main())
