"""Measure the loops that people write beside PyTorch: error, time, growth, and what less memory does to them.

    python bench/zoo/run.py                           every kind: the table and the bars
    python bench/zoo/run.py --kinds same ragged       some of them
    python bench/zoo/run.py --steps 300 --rounds 2    shorter
    python bench/zoo/run.py --json out.json           the numbers as well
    python bench/zoo/run.py --quick                   few steps, one round: checks the harness; no bars

A row has the largest relative error of value and gradients beside PyTorch, microseconds of processor time for a step of
both, loop and gradient, the least of rounds in which they take turns, and their ratio, below 1 where unspool is faster.
*growth* is the time of a step with four times the steps over that of a step; 1 is a straight line. *half the memory*
has how often a step runs in half of what the loop takes by itself, *an eighth* the same for arrays of 64×64, beside the
optimum: in the results, which are the user's, and an eighth of what is beside them, but no less than two steps take.
BITS says that a bit changed, OVER that the peak was above the budget.

Exits with 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from bench import harness
from bench.harness import ONE_THREAD, Bar

os.environ.update(ONE_THREAD)

from bench.zoo import KINDS
from bench.zoo.measure import Budgeted, Found, calls_in_a_step, measure

PACKAGES = {"unspool": "unspool", "PyTorch": "torch"}

STEPS, ROUNDS = 1000, 3

# The loop whose calls of Python functions are counted.
COUNTED = "read_now_and_then"


# --- bars -------------------------------------------------------------------------------------------------------------


def bars(found: Sequence[Found]) -> list[Bar]:
    """Return what is asked of all kinds together."""
    ratios = [each.ratio for each in found if each.ratio is not None]
    growths = [math.inf if each.growth is None else each.growth for each in found]
    asked = [Bar("growth: time of a step with four times the steps, worst kind", max(growths), 1.15, "×")]
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        asked += [
            Bar(
                "error beside PyTorch, worst kind, in units of 1e-8",
                1e8 * max(each.error or 0.0 for each in found),
                1,
                "",
            ),
            Bar("kinds slower than PyTorch", sum(ratio > 1.0 for ratio in ratios), 0, ""),
            Bar("time beside PyTorch, geometric mean", mean, 0.6, "×"),
            Bar("time beside PyTorch, worst kind", max(ratios), 1.0, "×"),
        ]
    asked += _memory_bars("half the memory", [each.half for each in found], 1.6, lambda one: one.factor)
    asked += _memory_bars("an eighth, 64×64", [each.eighth for each in found], 1.2, _over_optimum, " over the optimum")
    return asked


def _over_optimum(one: Budgeted) -> float | None:
    return None if one.factor is None or not one.optimum else one.factor / one.optimum


def _memory_bars(
    what: str,
    found: Sequence[Budgeted | None],
    most: float,
    factor: Callable[[Budgeted], float | None],
    beside: str = "",
) -> list[Bar]:
    measured = [one for one in found if one is not None]
    if not measured:
        return []
    factors = [number for one in measured if not one.refusal and (number := factor(one)) is not None]
    return [
        Bar(f"{what}: kinds refused", sum(bool(one.refusal) for one in measured), 0, ""),
        Bar(f"{what}: kinds with other bits", sum(not one.same for one in measured), 0, ""),
        Bar(f"{what}: kinds above the budget", sum(not one.fits for one in measured), 0, ""),
        Bar(f"{what}: recompute factor{beside}, worst kind", max(factors, default=1.0), most, "×"),
    ]


# --- the table --------------------------------------------------------------------------------------------------------

HEAD = f"{'kind':18} {'steps':>6} {'error':>8} {'unspool':>9} {'PyTorch':>9} {'ratio':>6} {'growth':>7}"


def line(found: Found) -> str:
    """Return a row of the table."""

    def number(value: float | None, shape: str) -> str:
        return format("–" if value is None else format(value, shape), f">{shape.lstrip('>').partition('.')[0]}")

    budgets = " | ".join(str(one) for one in (found.half, found.eighth) if one is not None)
    return (
        f"{found.kind:18} {found.steps:>6} {number(found.error, '8.0e')} {found.ours:9.1f} "
        f"{number(found.theirs, '9.1f')} {number(found.ratio, '6.2f')} {number(found.growth, '7.2f')}  {budgets}"
    )


# --- the command line -------------------------------------------------------------------------------------------------


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kinds", nargs="+", metavar="KIND", choices=KINDS, help=f"some of {', '.join(KINDS)}")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"of a loop (default {STEPS}; slow kinds have fewer)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"of which the least counts (default {ROUNDS})")
    parser.add_argument("--no-budgets", action="store_true", help="leave out what is done with less memory")
    parser.add_argument("--json", metavar="FILE", help="write the numbers to a file")
    parser.add_argument("--quick", action="store_true", help="20 steps and one round: checks the harness; no bars")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print and decide."""
    chosen = parse(arguments)
    harness.participants(PACKAGES)
    steps, rounds = (20, 1) if chosen.quick else (chosen.steps, chosen.rounds)
    print(f"\n{HEAD}{'' if chosen.no_budgets else '  half the memory | an eighth, 64×64'}", flush=True)
    found = []
    for name in chosen.kinds or KINDS:
        found.append(measure(KINDS[name], steps, rounds, not chosen.no_budgets))
        print(line(found[-1]), flush=True)
    decided = bars(found)
    if not (chosen.no_budgets or chosen.quick or chosen.kinds):
        calls = calls_in_a_step(KINDS[COUNTED], steps)
        decided.append(Bar(f"calls of Python functions a step in half the memory, {COUNTED}", calls, 10, ""))
    if chosen.json:
        numbers = {"found": list(map(dataclasses.asdict, found)), "bars": list(map(dataclasses.asdict, decided))}
        harness.write(chosen.json, PACKAGES.values(), numbers)
    print()
    return 0 if chosen.quick else harness.decide(decided)


if __name__ == "__main__":
    sys.exit(main())
