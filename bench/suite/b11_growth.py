"""B11: time and memory of B1 and B9 against the number of steps: a straight line, or a step would cost more later on.

Power iteration runs without its stop, with a small matrix, so that a step is cheap and there can be many of them. At
each number of steps all forms are compared and measured as in any workload. The last row of a form tells in its note
the lines through its time and memory, and how far the points are off them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from bench.suite import b1_power, b9_scalar
from bench.suite.lines import described
from bench.suite.report import Amount
from bench.suite.workload import Bar, Form, Options, Row, Special, Workload

# JAX eager and unrolled cannot make so many steps, and Equinox would compile anew at every point.
LEFT_OUT = {"JAX unrolled", "JAX eager", "Equinox"}

POWER_SIZE = 64

# The numbers of steps by size.
STEPS = {
    "power": {
        "small": (100, 200, 400, 800),
        "medium": (500, 1_000, 2_000, 4_000),
        "large": (1_000, 2_000, 4_000, 8_000, 16_000),
    },
    "scalar": {
        "small": (500, 1_000, 2_000, 4_000),
        "medium": (2_000, 5_000, 10_000, 20_000),
        "large": (2_000, 5_000, 10_000, 20_000, 50_000, 100_000),
    },
}
QUICK = 2

WORDS: dict[Amount, str] = {"seconds": "time", "live": "live", "resident": "growth"}


def _forms(forms: Iterable[Form]) -> tuple[Form, ...]:
    return tuple(dataclasses.replace(form, limits={}) for form in forms if form.name not in LEFT_OUT)


POWER = Workload(
    key="B11",
    title="power iteration without a stop",
    sizes={"medium": {"n": POWER_SIZE, "tolerance": 0.0, "most": STEPS["power"]["medium"][0]}},
    problem=b1_power.problem,
    forms=_forms(b1_power.FORMS),
    where="bench.suite.b11_growth:POWER",
)

SCALAR = Workload(
    key="B11",
    title="a loop on eight numbers",
    sizes={"medium": {"steps": STEPS["scalar"]["medium"][0]}},
    problem=b9_scalar.problem,
    forms=_forms(b9_scalar.FORMS),
    where="bench.suite.b11_growth:SCALAR",
)


def run(options: Options) -> list[Row]:
    """Measure both loops at several numbers of steps, and note how straight the lines are."""
    from bench.suite.measure import measure

    chosen = {case: steps[options.size][: QUICK if options.quick else None] for case, steps in STEPS.items()}
    # Time is given out in proportion to the steps, and half of it evenly: processes have to start.
    points = [(case, steps) for case, several in chosen.items() for steps in several]
    rows: list[Row] = []
    for case, steps in points:
        share = 0.5 / len(points) + 0.25 * steps / sum(chosen[case])
        limited = dataclasses.replace(options, seconds=options.seconds * share)
        if case == "power":
            parameters = {"n": POWER_SIZE, "tolerance": 0.0, "most": steps}
            rows += measure(POWER, limited, parameters, case=case, x=steps)
        else:
            rows += measure(SCALAR, limited, {"steps": steps}, case=case, x=steps)
    return with_lines(rows)


def with_lines(rows: Sequence[Row]) -> list[Row]:
    """Return the rows, the last of each case and form with a note on its lines."""
    last = {(row.case, row.form): index for index, row in enumerate(rows)}
    noted = list(rows)
    for name, index in last.items():
        several = [row for row in rows if (row.case, row.form) == name]
        told = [
            rows[index].note,
            *(f"{word} {line}" for amount, word in WORDS.items() if (line := described(several, amount))),
        ]
        noted[index] = dataclasses.replace(rows[index], note="; ".join(filter(None, told)))
    return noted


WORKLOAD = Special(
    key="B11",
    title="growth with the number of steps",
    run=run,
    bars=(Bar("PyTorch", 1.0, case="scalar", ours="unspool, plain"),),
    plot="growth",
    axis="steps",
)
