"""Gathers what a report tells, as plain data: numbers, texts, lists and dictionaries that JSON can hold.

The program is run once more, op by op, for what was read, for spectra and for times; that holds no more than one step.
Then cotangents are evaluated, within the budget that is in force. Nothing of the user's graph changes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._above import above
from unspool._activity import ACTIVITY
from unspool._autodiff.sweeps.cotangents import cotangents
from unspool._engine.budget import counters
from unspool._engine.default import default_engine
from unspool._engine.memory.allowance import usable
from unspool._engine.memory.report import MemoryReport
from unspool._engine.memory.sizes import parse_bytes
from unspool._engine.quiet import run_quietly
from unspool._fragments.call import Call
from unspool._graph import origin_scope
from unspool._ops.elementwise import abs as modulus
from unspool._ops.elementwise import sqrt, square
from unspool._ops.leaf import tensor
from unspool._ops.reduction import sum as total
from unspool._report import surroundings
from unspool._report.asked import Asked, check_loss, tensors_in, variables_of
from unspool._report.blocks import Group, blocks_of, groups_of, groups_of_iterated
from unspool._report.budgets import need_of, table_of, table_of_iterated
from unspool._report.iterated import (
    Iterated,
    Scalars,
    cotangents_inside,
    cuts_of,
    follow,
    is_loop,
    iterated_in,
    loop_in,
)
from unspool._report.places import Lines, Origin, made_at, text_of
from unspool._report.program import program_of
from unspool._report.spectra import Spectra
from unspool._report.steps import FEWEST, Reading, readings_of, states_of, steps_of
from unspool._report.times import BACKWARD, FORWARD, RECOMPUTED, Times
from unspool._report.units import Program, Unit
from unspool._watching.profile import profile
from unspool.errors import (
    BudgetError,
    GaugeError,
)

if TYPE_CHECKING:
    from unspool._engine.memory.ledger import Ledger
    from unspool._tensor import Tensor

FORMAT, VERSION = "unspool report", 2

# States whose cotangents are shown, and numbers of one series.
_MOST_STATES, _MOST_NUMBERS = 256, 2000

# Series that are shown of what a program read.
_MOST_SERIES = 12

_LONGEST_TITLE = 44

# Graphs with more ops than this are not opened to look for steps inside of one evaluation.
_MOST_OPENED = 200_000


def gather(loss: Tensor, asked: Asked) -> dict[str, Any]:
    """Return all that a report tells of a loss that was evaluated."""
    check_loss(loss)
    engine = default_engine()
    engine.queue.settle()
    with engine.queue.nothing_folds(), origin_scope() as origin:
        # What is placed here is the work of the line that made the loss.
        origin.code, origin.lasti = loss.code, loss.lasti
        with _unnoticed(engine.ledger):
            return _Run(loss, asked).data()


@contextmanager
def _unnoticed(ledger: Ledger) -> Iterator[None]:
    """Let what is computed for a report not be counted: reports of memory tell of the user's program."""
    before = counters(ledger) | {"peak": ledger.peak, "need": ledger.need}
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(ledger, name, value)


class _Run:
    """A run, and what is found of it step by step."""

    def __init__(self, loss: Tensor, asked: Asked) -> None:
        self.loss, self.asked, self.lines = loss, asked, Lines()
        self._line = self.lines.name((loss.code, loss.lasti))
        self.variables, self.names = variables_of(loss, asked.wrt)
        self.program = Program([loss])
        self.readings = readings_of(self.program)
        self.steps = steps_of(self.program, self.readings)
        self.iterated = self._longest()
        if self.iterated is None and len(self.steps) < FEWEST and self._ops() <= _MOST_OPENED:
            self.program, self.readings = Program([loss], opened=True), []
            self.steps = steps_of(self.program, ())
            self.iterated = self._longest()
        self.times = Times(self.lines, _places(self.program))
        self.spectra = Spectra(self.lines)
        self.scalars: Scalars | None = None
        self.values: dict[int, list[float]] = {}
        self.seconds: dict[str, float] = {}
        self.value = math.nan
        self._connected: list[tuple[str, Any]] = []

    def _longest(self) -> Iterated | None:
        """Return the loop that is one node and has more steps than the plain one, if there is one."""
        loops = iterated_in(self.program)
        return loops[0] if loops and loops[0].loop.steps > len(self.steps) else None

    def _ops(self) -> int:
        return sum(len(unit.ops) for unit in self.program.units)

    def data(self) -> dict[str, Any]:
        """Return everything."""
        # What is held is looked at first: evaluating more may let some of it go.
        groups = groups_of(self.program, self.steps) if self.iterated is None else groups_of_iterated(self.iterated)
        used = self._used()
        self._run_again()
        seed = tensor(np.ones((), self.loss.dtype))
        gradient, chosen, norms, reason = self._sweep(seed)
        budgets = self._budgets(gradient) | {"used": used}
        derivative, arrived = self._derivatives(gradient, chosen, norms, reason, budgets)
        count = self.iterated.loop.steps if self.iterated is not None else len(self.steps)
        return {
            "format": FORMAT,
            "version": VERSION,
            "title": self.asked.title or f"Report of {made_at(self.loss.op.name, self._line)}",
            "made": time.strftime("%Y-%m-%d %H:%M:%S %z"),
            "loss": {
                "value": self.value,
                "op": self.loss.op.name,
                "dtype": str(self.loss.dtype),
                "line": self._line,
            },
            "steps": {"count": count, "form": self._form(), "mark": self._mark()},
            "readings": self._read(),
            "cotangents": arrived,
            "gradient": derivative,
            "memory": self._memory(groups, budgets),
            "budgets": budgets,
            "program": program_of(self.program, self.steps, self.iterated, self.lines),
            "times": {"rows": self.times.rows(), "totals": self.times.totals(), "measured": self.seconds},
            "spectra": self.spectra.data(),
            "unfolded": _unfolded(self.loss),
            "inputs": surroundings.inputs(self.program.leaves, self.lines),
            "settings": surroundings.settings(),
            "versions": surroundings.versions(),
            "blas": surroundings.blas(),
            "lines": self.lines.texts,
        }

    def _form(self) -> str:
        if self.iterated is not None:
            return "iterate"
        if not len(self.steps):
            return "none"
        folded = any(isinstance(self.program.units[n].source, Call) for units in self.steps.units for n in units)
        return "folded" if folded else "recorded"

    def _mark(self) -> str:
        if self.iterated is not None:
            return f"us.iterate of {self.lines.name(self.iterated.origin)}"
        return self.steps.mark

    # -- forward --

    def _run_again(self) -> None:
        """Run the program op by op, once."""
        wanted: dict[int, list[tuple[int, int]]] = {}
        for series, reading in enumerate(self.readings[:_MOST_SERIES]):
            for number, index in reading.at:
                wanted.setdefault(number, []).append((series, index))
        step_of = self.steps.of_unit()
        at = [0]

        def on_op(op: Any, params: Any, origin: Any, inputs: Sequence[Any], value: Any, seconds: float) -> None:
            self.spectra.note(op, params, origin, inputs, value, step_of.get(at[0], 0))
            if not is_loop(op):
                self.times.add(FORWARD, origin, op.name, seconds)
                return
            mine = self.iterated is not None and at[0] == self.iterated.number
            self.scalars = Scalars(loop_in(op, params)) if mine else self.scalars
            follow(loop_in(op, params), inputs, inner, self.scalars.note if mine and self.scalars else None)

        def inner(op: Any, params: Any, origin: Any, inputs: Sequence[Any], value: Any, seconds: float) -> None:
            self.times.add(FORWARD, origin, op.name, seconds)
            self.spectra.note(op, params, origin, inputs, value, step_of.get(at[0], 0))

        def on_unit(number: int, unit: Unit, results: Any) -> None:
            at[0] = number + 1
            for series, index in wanted.get(number, ()):
                value = results if unit.plan is None else results[index]
                self.values.setdefault(series, []).append(float(np.real(value)))

        started = time.perf_counter()
        self.value = float(run_quietly(self.program.run, on_op, on_unit)[0])
        self.seconds["forward"] = time.perf_counter() - started

    def _read(self) -> list[dict[str, Any]]:
        found = [
            _series(name, "", "as given", list(numbers), list(numbers.values()))
            for name, numbers in self.asked.values.items()
        ]
        if self.scalars is not None:
            line = self.lines.name(self.iterated.origin) if self.iterated is not None else ""
            found += [_series(n, line, "run again", range(len(v)), v) for n, v in self.scalars.values.items()]
        step_of = self.steps.of_unit()
        for i, reading in enumerate(self.readings[:_MOST_SERIES]):
            at = [step_of[number] for number, _ in reading.at]
            if i in self.values and len({step for step in at if step >= 0}) >= FEWEST:
                line = self.lines.name(reading.origin)
                series = _series(_title(reading), line, "run again", at, self.values[i])
                found.append(series | {"op": reading.op, "text": text_of(*reading.origin)})
        return found

    # -- backward --

    def _states(self) -> tuple[list[int], list[list[Any]], str]:
        """Return the numbers of some steps and what each of them hands on."""
        if self.asked.states is not None:
            given = [(step, tensors_in(state)) for step, state in self.asked.states.items()]
            shown = [given[i] for i in _spread(len(given), _MOST_STATES)]
            return [step for step, _ in shown], [state for _, state in shown], "" if given else "left out"
        if not len(self.steps):
            return [], [], "no step of a loop was found"
        states: list[list[Any]] = states_of(self.program, self.steps)
        chosen = [k for k in _spread(len(states), _MOST_STATES) if states[k]]
        return chosen, [states[k] for k in chosen], "" if chosen else "no step hands on a tensor that the loss reads"

    def _sweep(self, seed: Tensor) -> tuple[list[Any], list[int], list[Any], str]:
        """Place the gradient and the norms of the cotangents of states; return also which states these are."""
        # The gradient comes first, so that it is placed as if it were alone. But where the program was opened, states
        # may be inside of calls, of which the gradient makes tensors of their own.
        found = None if self.program.is_opened else cotangents(self.loss, self.variables, seed)
        if self.iterated is not None and self.asked.states is None:
            cuts = cuts_of(self.iterated.loop.steps, _MOST_STATES)
            arrived, reason = cotangents_inside(self.program, self.iterated, cuts, seed)
            chosen = [cut - 1 for cut in cuts] if arrived else []
        else:
            chosen, states, reason = self._states()
            arrived = cotangents(self.loss, states, seed) if states else []
        if found is None:
            found = cotangents(self.loss, self.variables, seed)
        named = zip(self.names, self.variables, found, strict=True)
        self._connected = [(name, variable) for name, variable, g in named if g is not None]
        pairs = [(k, norm) for k, cts in zip(chosen, arrived, strict=True) if (norm := _norm(cts)) is not None]
        return [g for g in found if g is not None], [k for k, _ in pairs], [norm for _, norm in pairs], reason

    def _derivatives(
        self, gradient: list[Any], chosen: list[int], norms: list[Any], reason: str, budgets: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Compute gradient and norms, with times: op by op, if there is room for that, or within the budget."""
        arrays: list[Any] = []
        values: list[float] = []
        timing = ""
        started = time.perf_counter()
        try:
            if self._may_be_timed(budgets):
                arrays, values = self._run_back(gradient, norms)
            elif ACTIVITY.timer is None:
                timing = "the backward pass was measured as it ran, within its memory budget"
                arrays, values = self._run_back_within_budget(gradient, norms)
            else:
                timing = "a profile is being taken, so the backward pass was not timed"
                arrays = default_engine().evaluate(gradient)
                values = [float(value) for value in default_engine().evaluate(norms)]
        except (BudgetError, GaugeError) as error:
            reason = str(error).partition("\n")[0]
        self.seconds["backward"] = time.perf_counter() - started
        sizes = [math.sqrt(float(np.sum(np.abs(array) ** 2))) for array in arrays] or [math.nan] * len(gradient)
        variables = [
            {"name": name, "line": self.lines.name((v.code, v.lasti)), "shape": list(map(int, v.shape)), "norm": norm}
            for (name, v), norm in zip(self._connected, sizes, strict=True)
        ]
        arrived = {"steps": chosen if values else [], "norms": values, "reason": reason}
        return {"variables": variables, "timing": timing}, arrived

    def _run_back(self, gradient: list[Any], norms: list[Any]) -> tuple[list[Any], list[float]]:
        """Run the backward pass op by op, from the values that are held; what only the norms take is not timed."""
        program = Program([*gradient, *norms], from_held=True)
        timed = {id(unit.source) for unit in Program(gradient, from_held=True).units}
        forward = {id(unit.source) for unit in self.program.units}
        kinds = [RECOMPUTED if id(unit.source) in forward else BACKWARD for unit in program.units]
        at = [0]

        def on_op(op: Any, params: Any, origin: Any, inputs: Sequence[Any], value: Any, seconds: float) -> None:
            if id(program.units[at[0]].source) in timed:
                self.times.note(kinds[at[0]], op, params, origin, inputs, seconds)

        def on_unit(number: int, unit: Unit, results: Any) -> None:
            at[0] = number + 1

        found: list[Any] = run_quietly(program.run, on_op, on_unit)
        return found[: len(gradient)], [float(value) for value in found[len(gradient) :]]

    def _run_back_within_budget(self, gradient: list[Any], norms: list[Any]) -> tuple[list[Any], list[float]]:
        """Run the backward pass as the engine does, which keeps to the budget, and measure that."""
        with profile() as measured:
            found = default_engine().evaluate(gradient)
        for origin, op, is_backward, seconds, calls in measured._by_place():
            self.times.add(BACKWARD if is_backward else RECOMPUTED, origin, op, seconds, calls)
        return found, [float(value) for value in default_engine().evaluate(norms)]

    def _may_be_timed(self, budgets: dict[str, Any]) -> bool:
        """Whether the backward pass may run op by op: that does not keep to a budget."""
        ledger = default_engine().ledger
        return (budgets["everything"] or 0) + ledger.held_bytes() <= usable(ledger.limit)

    # -- memory --

    def _memory(self, groups: list[Group], budgets: dict[str, Any]) -> dict[str, Any]:
        count = self.iterated.loop.steps if self.iterated is not None else len(self.steps)
        used = budgets["used"]
        blocks = blocks_of(groups, count, self._room(budgets), self.lines, usable(used["budget"]) if used else None)
        fates: dict[str, int] = {}
        for _, _, values in groups:
            for value in values:
                fates[value.fate] = fates.get(value.fate, 0) + value.nbytes
        return {"steps": count, "blocks": blocks, "bytes": fates}

    def _room(self, budgets: dict[str, Any]) -> int | None:
        """Return the bytes of what is run again at once, if a budget says so: of a block of steps."""
        used, rows = budgets["used"], budgets["rows"]
        if used is None or not rows:
            return None
        fitting = [row["block"] for row in rows if row["budget"] <= used["budget"]] or [rows[0]["block"]]
        room: int = fitting[-1] * budgets["tape"]
        return room

    def _budgets(self, gradient: list[Tensor]) -> dict[str, Any]:
        if self.iterated is None:
            return table_of(need_of(gradient))
        return table_of_iterated(self.iterated.sizes(), self.iterated.loop.steps)

    def _used(self) -> dict[str, Any] | None:
        """Return the budget that was in force, and what it took, as far as that is known."""
        given = self.asked.memory
        if given is None and self.iterated is not None and not self.iterated.keeps_all:
            return self._used_by_strategy(self.iterated)
        if given is None:
            ledger = default_engine().ledger
            return {"budget": ledger.limit, "factor": None, "peak": ledger.peak} if ledger.is_strict else None
        report = given if isinstance(given, MemoryReport) else given.report() if hasattr(given, "report") else None
        if isinstance(report, MemoryReport):
            return {"budget": report.budget, "factor": report.factor, "peak": report.peak}
        return {"budget": parse_bytes(given), "factor": None, "peak": None}

    def _used_by_strategy(self, found: Iterated) -> dict[str, Any]:
        strategy, sizes, steps = found.node.attributes["checkpoints"].strategy, found.sizes(), found.loop.steps
        loop = strategy.plan(sizes).closed(steps)
        budget = strategy.memory
        if budget is None:
            # The newest step is taped beside the states.
            budget = len(loop.positions) * sizes.state + sizes.tape
        return {"budget": budget, "factor": loop.evaluations() / steps, "peak": budget}


# --- parts -----------------------------------------------------------------------------------------------------------


def _places(program: Program) -> dict[Origin, Origin]:
    """Return where each place of a body, as it was first recorded, is in a program."""
    return {
        first: here
        for unit in program.units
        if unit.plan is not None
        for first, here in zip(unit.plan.fragment.origins, unit.origins, strict=False)
    }


def _norm(arrived: Sequence[Any]) -> Tensor | None:
    """Return the norm of what arrives at some tensors; ``None`` if nothing does."""
    squares = [total(square(modulus(ct))) for ct in arrived if ct is not None]
    return sqrt(sum(squares[1:], squares[0])) if squares else None


def _spread(count: int, most: int) -> list[int]:
    """Return at most so many of the first numbers, evenly, the last one among them."""
    if count <= most:
        return list(range(count))
    return sorted({round((count - 1) * i / (most - 1)) for i in range(most)})


def _series(name: str, line: str, source: str, steps: Sequence[int], values: list[float]) -> dict[str, Any]:
    chosen = _spread(len(values), _MOST_NUMBERS)
    return {
        "name": name,
        "line": line,
        "source": source,
        "count": len(values),
        "steps": [steps[i] for i in chosen],
        "values": [values[i] for i in chosen],
    }


def _title(reading: Reading) -> str:
    text = text_of(*reading.origin)
    if not text:
        return made_at(reading.op, reading.line)
    if text.endswith("("):  # a statement of several lines
        text += "…)"
    return text if len(text) <= _LONGEST_TITLE else f"{text[: _LONGEST_TITLE - 1].rstrip()}…"


def _unfolded(loss: Tensor) -> list[dict[str, str]]:
    """Return what did not fold and why, as far as somebody can tell."""
    explain = getattr(above.namespace, "explain", None)
    return [] if explain is None else unfolded_rows(explain(loss))


def unfolded_rows(explained: Any) -> list[dict[str, str]]:
    """Return what did not fold as rows: from pairs of a line and a reason, or from what an explanation has of it."""
    rows = []
    for entry in getattr(explained, "unfolded", explained):
        if isinstance(entry, tuple):
            line, reason = entry
        else:
            line = ", ".join(f"{file}:{number}" for file, number in entry.lines)
            reason = " ".join(filter(None, (entry.why, entry.change)))
        rows.append({"line": str(line), "reason": str(reason)})
    return rows
