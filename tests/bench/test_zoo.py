"""The loops of the zoo are right: values and gradients against differences of the value, and against the tape.

Numbers that a loop reads on its way are constants of its derivative: a step size that follows an error, a branch. So a
loop that is run again a little further on is given the numbers that it read before.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unspool as us
from bench.suite import b13_zoo, plots
from bench.suite.bars import judge
from bench.suite.report import by_case
from bench.suite.results import measured
from bench.suite.workload import Options
from bench.zoo import KINDS
from bench.zoo.kind import FAR, answer
from bench.zoo.measure import Budgeted, Found
from bench.zoo.run import bars, line
from tests.engine.budgets import least_working, same_bits
from tests.test_random_programs import by_tape, close
from tests.zoo_watching import moved, noted, states

SCRIPT = Path(__file__).parents[2] / "bench" / "zoo" / "run.py"

# So many that histories of five have begun to roll, and an inner loop has ended.
STEPS = 14

EVERY = pytest.mark.parametrize("name", KINDS)
DIFFERENTIATED = pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.wrt])


# --- values and gradients ---------------------------------------------------------------------------------------------


def slope_by_differences(name: str, directions: dict[str, Any], step: float = 1e-6) -> float:
    """Return the derivative of a loss along a direction, as a central difference."""
    kind = KINDS[name]
    data = kind.setup(STEPS)
    numbers = noted(kind, STEPS, data)
    ends = [
        float(kind.in_unspool(STEPS, moved(data, kind.wrt, directions, by), numbers.again())[0]) for by in (step, -step)
    ]
    return (ends[0] - ends[1]) / (2 * step)


@DIFFERENTIATED
def test_gradients_agree_with_differences_of_the_value(name: str) -> None:
    kind = KINDS[name]
    data = kind.setup(STEPS)
    _, *gradients = answer(kind, STEPS, data)
    draw = np.random.default_rng(5)
    for each in (kind.wrt[:1], kind.wrt):
        directions = {
            wrt: draw.normal(size=data[wrt].shape) + (1j * draw.normal(size=data[wrt].shape) if is_complex else 0.0)
            for wrt in kind.wrt
            for is_complex in [np.iscomplexobj(data[wrt])]
        }
        directions = {wrt: direction if wrt in each else 0.0 * direction for wrt, direction in directions.items()}
        pairs = zip(gradients, directions.values(), strict=True)
        slope = sum(float(np.sum(np.real(np.conj(g) * d))) for g, d in pairs)
        close(slope_by_differences(name, directions), slope, 2e-6)


def test_the_gradient_in_every_state_agrees_with_loops_that_start_there() -> None:
    kind = KINDS["every_state"]
    data = kind.setup(STEPS)
    _, *gradients = answer(kind, STEPS, data)
    direction = np.cos(np.arange(data["x"].size))
    for k, (state, gradient) in enumerate(zip(states(kind, STEPS, data), gradients, strict=True)):
        left = STEPS - 1 - k
        ends = [float(kind.in_unspool(left, {**data, "x": state + by * direction})[0]) for by in (1e-6, -1e-6)]
        close((ends[0] - ends[1]) / 2e-6, np.sum(gradient * direction), 1e-7)


@EVERY
def test_gradients_agree_with_the_tape(name: str) -> None:
    kind = KINDS[name]
    loss, variables = kind.in_unspool(STEPS, kind.setup(STEPS))
    found = us.eval(loss.grad(variables))
    for gradient, expected in zip(found, by_tape(variables, loss), strict=True):
        close(gradient, expected, 1e-10)


@EVERY
def test_a_loop_stays_moderate_and_goes_all_the_way(name: str) -> None:
    kind, shown = KINDS[name], []
    data = kind.setup(STEPS)
    found = answer(kind, STEPS, data, watch=lambda step, *tensors: shown.append(step))
    assert all(np.all(np.isfinite(value)) and np.max(np.abs(value)) < FAR for value in found)
    assert max(shown) >= STEPS - 1
    assert kind.about.endswith(".")


# --- what is particular about some of them ----------------------------------------------------------------------------


def shapes_of(name: str, steps: int, which: int) -> list[tuple[int, ...]]:
    kind, shapes = KINDS[name], []
    kind.in_unspool(steps, kind.setup(steps), watch=lambda step, *tensors: shapes.append(tensors[which].shape))
    return shapes


def test_ranks_change_from_step_to_step() -> None:
    assert {shape[-1] for shape in shapes_of("changing_ranks", 60, 4)} == {2, 3, 4}


def test_a_history_grows_and_then_rolls() -> None:
    assert [shape[1] for shape in shapes_of("history", 8, 1)] == [1, 2, 3, 4, 5, 5, 5, 5]


def test_an_early_break_comes_before_the_last_step() -> None:
    kind, shown = KINDS["early_break"], []
    kind.in_unspool(100, kind.setup(100), watch=lambda step, *tensors: shown.append(step))
    assert 50 < max(shown) < 90


def ways(name: str) -> list[bool]:
    """Return which way each step went, from what the loop read."""
    kind = KINDS[name]
    numbers = noted(kind, 60, kind.setup(60)).numbers
    if name == "hmc":  # the gain of a proposal, and the number that it is compared with
        return [gain > chance for gain, chance in zip(numbers[::2], numbers[1::2], strict=True)]
    return [number > (1e-6 if name == "adaptive_ode" else 0.0) for number in numbers]


@pytest.mark.parametrize("name", ["branches", "hmc", "adaptive_ode", "ode_events"])
def test_both_ways_are_taken(name: str) -> None:
    assert 2 <= sum(ways(name)) <= len(ways(name)) - 2


# --- budgets ----------------------------------------------------------------------------------------------------------


@EVERY
def test_an_eighth_of_the_memory_changes_no_bit_or_is_refused_with_a_budget_that_works(name: str) -> None:
    kind = KINDS[name]
    data = kind.setup(STEPS)

    def within(budget: int) -> None:
        with us.memory(budget) as memory:
            found = answer(kind, STEPS, data)
        runs.append((found, memory.report().peak))

    runs: list[Any] = []
    within(10**9)
    # The first budget that is named does not always work today: a later part of the loop may name a larger one.
    budget = least_working(within, runs[0][1] // 8)
    found, peak = runs[-1]
    assert peak <= budget
    same_bits(found, runs[0][0])


# --- measuring --------------------------------------------------------------------------------------------------------


def test_a_quick_run_measures_the_kinds_that_are_named(tmp_path: Path) -> None:
    path = tmp_path / "numbers.json"
    done = subprocess.run(
        [sys.executable, SCRIPT, "--quick", "--kinds", "same", "gauss_seidel", "--json", path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    numbers = json.loads(path.read_text(encoding="utf-8"))
    assert [found["kind"] for found in numbers["found"]] == ["same", "gauss_seidel"]
    assert all(found["ours"] > 0.0 and found["half"]["same"] for found in numbers["found"])
    assert "half the memory: kinds refused" in {bar["what"] for bar in numbers["bars"]}


GOOD = Budgeted(100, 90, 1.5, 1.4)
QUICK_KIND = Found("quick", 100, 1e-15, 5.0, 10.0, 1.0, GOOD, GOOD)


def missed(*found: Found) -> set[str]:
    return {bar.what for bar in bars(found) if not bar.holds}


def test_a_kind_that_keeps_to_everything_misses_no_bar() -> None:
    assert missed(QUICK_KIND) == set()


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"ours": 11.0}, "kinds slower than PyTorch"),
        ({"ours": 9.0}, "time beside PyTorch, geometric mean"),
        ({"ours": 11.0}, "time beside PyTorch, worst kind"),
        ({"growth": 1.2}, "growth: time of a step with four times the steps, worst kind"),
        ({"growth": None}, "growth: time of a step with four times the steps, worst kind"),
        ({"error": 1e-7}, "error beside PyTorch, worst kind, in units of 1e-8"),
        ({"half": Budgeted(100, refusal="needs more")}, "half the memory: kinds refused"),
        ({"half": Budgeted(100, 90, 1.5, 1.4, same=False)}, "half the memory: kinds with other bits"),
        ({"half": Budgeted(100, 101, 1.5, 1.4)}, "half the memory: kinds above the budget"),
        ({"half": Budgeted(100, 90, 1.7, 1.6)}, "half the memory: recompute factor, worst kind"),
        ({"eighth": Budgeted(100, 90, 2.0, 1.4)}, "an eighth, 64×64: recompute factor over the optimum, worst kind"),
    ],
)
def test_a_kind_that_does_not_misses_the_bar(changes: dict[str, Any], what: str) -> None:
    fields = {name: getattr(QUICK_KIND, name) for name in QUICK_KIND.__dataclass_fields__}
    assert what in missed(QUICK_KIND, Found(**{**fields, **changes}))


def test_a_row_of_the_table_tells_what_is_not_known_and_what_went_wrong() -> None:
    told = line(Found("slow", 100, None, 5.0, None, None, Budgeted(100, 120, 1.5, None, same=False)))
    assert told.split() == ["slow", "100", "–", "5.0", "–", "–", "–", "1.50", "BITS", "OVER"]
    assert "refused: needs more" in line(Found("slow", 100, None, 5.0, None, None, Budgeted(100, refusal="needs more")))


# --- in the suite -----------------------------------------------------------------------------------------------------

TWO = [
    {"kind": "fast", "steps": 10, "error": 1e-15, "ours": 2.0, "theirs": 8.0, "growth": 1.0},
    {"kind": "slow", "steps": 10, "error": 1e-15, "ours": 18.0, "theirs": 8.0, "growth": None},
]


def test_the_suite_shows_all_kinds_together_the_worst_and_each() -> None:
    rows = b13_zoo.rows_of(TWO, Options())
    assert list(by_case(rows)) == ["all kinds", "the worst kind", "fast", "slow"]
    found = measured(b13_zoo.WORKLOAD, rows, Options())
    assert list(found.cases()) == ["all kinds", "the worst kind"]
    verdicts = judge(b13_zoo.WORKLOAD, rows, Options())
    assert [(verdict.state, round(verdict.measured or 0.0, 6)) for verdict in verdicts] == [
        ("missed", 0.75),
        ("missed", 2.25),
    ]


def test_the_suite_names_pytorch_where_it_is_missing() -> None:
    rows = b13_zoo.rows_of([{**each, "theirs": None} for each in TWO], Options())
    assert {row.state for row in rows if row.form == "PyTorch"} == {"missing"}
    assert {row.state for row in rows if row.form != "PyTorch"} == {"ok"}


def test_kinds_are_drawn_by_their_ratios(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = measured(b13_zoo.WORKLOAD, b13_zoo.rows_of(TWO, Options()), Options())
    assert [path.name for path in plots.draw({"B13": found}, tmp_path)] == ["b13.png", "summary.png"]
