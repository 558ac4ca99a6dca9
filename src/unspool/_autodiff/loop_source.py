"""The text of a loop: the steps of a body's plan inside a ``for``, with every value in a local variable.

Two things make it faster than calling the plan. Results that are kept are computed where they are kept, in a row of a
stack. And a value without axes goes by two names: ``v``, a number of NumPy's, for arithmetic with other numbers, which
operators do in a fraction of the time, and ``z``, an array, which ufuncs read faster. Each is made where it is first
needed.

Kernels of BLAS look at where an array begins and at its strides, so neither may depend on what is kept. Rows of a stack
begin where arrays of NumPy do (`ALIGNMENT`) if their size is a multiple of that; others are copied when they are read,
and written as copies. A view that is carried on is laid out as a copy of it is when a loop stops and goes on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from unspool._dtypes import BOOL, FLOAT32, FLOAT64, INT64
from unspool._engine.buffers import ALIGNMENT, POOL, dense
from unspool._engine.fused_sums import spread_total
from unspool._engine.numpy_backend import Writer, _compiled, _held, owned
from unspool._engine.numpy_rules import RULES
from unspool._engine.plan import Plan
from unspool._engine.planning import Bound, Step, lower, nbytes
from unspool._engine.running_sums import is_worth
from unspool._fragments.fragment import Fragment

Drive = Callable[..., tuple[int, bool, list[Any], list[Any], list[Any]]]

# What Python writes for a ufunc of two numbers.
_ARITHMETIC: dict[Any, str] = {np.add: "+", np.subtract: "-", np.multiply: "*", np.divide: "/"}
_COMPARISONS: dict[Any, str] = {
    np.less: "<",
    np.less_equal: "<=",
    np.greater: ">",
    np.greater_equal: ">=",
    np.equal: "==",
    np.not_equal: "!=",
}
_NUMBERS = frozenset({FLOAT32, FLOAT64, INT64})

# Products that take an array to write to as their last argument.
_PRODUCT = re.compile(r"v\d+(\.T)?\.dot\(v\d+(\.T)?\)|matmul\(v\d+(\.T)?, v\d+(\.T)?\)")


class Layout(NamedTuple):
    """What becomes of the inputs and outputs of a body.

    Attributes
    ----------
    constants, rows : int
        How many inputs of each kind it has.
    reads, assigns : tuple of int
        The registers among its inputs, and those that its first outputs are for.
    histories : tuple of int
        The outputs for registers of which all states are kept.
    written, sums : tuple of int
        The outputs that are written row by row, and those that are added up.
    watched : bool
        Whether the last output says when to stop.
    reverse : bool
        Whether indices fall.
    """

    constants: int
    reads: tuple[int, ...]
    rows: int
    assigns: tuple[int, ...]
    histories: tuple[int, ...]
    written: tuple[int, ...]
    sums: tuple[int, ...]
    watched: bool
    reverse: bool


def generate_drive(plan: Plan, layout: Layout) -> Drive:
    """Return the function that makes the steps of a loop; `loop_drive` says how it is called."""
    fragment, bound = plan.fragment, Bound(plan.shapes, plan.dtypes, plan.params)
    steps, outputs = lower(fragment, bound)
    held = _held(fragment, steps, outputs)
    names = {"owned": owned, "dense": dense, "asarray": np.asarray, "float64": np.float64, "give": POOL.give}
    for slot, value in held.items():
        names[f"v{slot}"] = value[()] if plan.shapes[slot] == () else value
        names[f"z{slot}"] = value
    steps, spread = _spread_sums(steps, bound, layout, outputs)
    writer = _LoopWriter(fragment, bound, names, layout, outputs, held, spread)
    for step in steps:
        if not step.once:
            writer.write(step)
    made: dict[str, Drive] = {}
    exec(_compiled("\n".join(_text(layout, writer, outputs))), names, made)
    return made["drive"]


def adds_products(plan: Plan, layout: Layout) -> bool:
    """Whether terms of sums are products of matrices that are added as they are computed."""
    bound = Bound(plan.shapes, plan.dtypes, plan.params)
    steps, outputs = lower(plan.fragment, bound)
    return bool(_spread_sums(steps, bound, layout, outputs)[1])


def _spread_sums(
    steps: tuple[Step, ...], bound: Bound, layout: Layout, outputs: Sequence[int]
) -> tuple[tuple[Step, ...], dict[int, str]]:
    """Return the steps with terms added to running sums as they are computed, and these sums by slot of the output."""
    spread: dict[int, str] = {}
    for j in layout.sums:
        slot = outputs[j]
        found = spread_total(steps, bound, outputs, slot) if is_worth(bound.shapes[slot], bound.dtypes[slot]) else None
        if found is not None:
            steps = found
            spread[slot] = f"sum{j}"
    return steps, spread


def _text(layout: Layout, writer: _LoopWriter, outputs: Sequence[int]) -> list[str]:
    first, last = layout.constants, layout.constants + len(layout.reads)
    constants = [f"v{i}" for i in range(first)]
    carry = [f"v{i}" for i in range(first, last)]
    names = dict(zip(layout.reads, carry, strict=True))
    assigned = [names.get(r, f"register{r}") for r in layout.assigns]
    before = [f"before{r}" for r in layout.reads]
    stacks = [f"rows{i}" for i in range(layout.rows)]
    histories = [f"history{i}" for i in layout.histories]
    written = [f"written{j}" for j in layout.written]
    sums = [f"sum{j}" for j in layout.sums]
    rows = range(last, last + layout.rows)
    step = [
        *[f"v{slot} = {writer.row(slot, f'rows{slot - last}[k]')}" for slot in rows if slot in writer.numbers],
        *[f"z{slot} = rows{slot - last}[k, ...]" for slot in rows if slot in writer.arrays],
        *writer.lines,
        *[f"{place} = v{slot}" for place, slot in places(layout, outputs) if place not in writer.done],
        *[writer.added(f"sum{j}", outputs[j]) for j in layout.sums if outputs[j] not in writer.spread],
        *_assign(before, carry),
        *_assign(assigned, [writer.carried(slot) for slot in outputs[: len(assigned)]]),
    ]
    if layout.watched:
        step += [f"if v{outputs[-1]}:", "    stopped = True", "    break"]
    entering = [
        (constants, "constants"),
        (carry, "carry"),
        (stacks, "rows"),
        (histories, "histories"),
        (written, "written"),
        (sums, "sums"),
    ]
    return [
        "def drive(indices, constants, carry, rows, histories, written, sums):",
        *[f"    {line}" for names, given in entering for line in _assign(names, [f"*{given}"])],
        *[f"    z{slot} = asarray(v{slot})" for slot in range(first) if slot in writer.arrays],
        "    stopped = False",
        "    for k in indices:",
        *[f"        {line}" for line in step or ["pass"]],
        f"    return k, stopped, [{', '.join(assigned)}], [{', '.join(before)}], [{', '.join(sums)}]",
    ]


def places(layout: Layout, outputs: Sequence[int]) -> list[tuple[str, int]]:
    """Return the rows that a step fills, as text, each with the slot whose value goes there."""
    after = "k" if layout.reverse else "k + 1"
    kept = [(f"history{i}[{after}]", outputs[i]) for i in layout.histories]
    return kept + [(f"written{j}[k]", outputs[j]) for j in layout.written]


def _assign(names: Sequence[str], values: Sequence[str]) -> list[str]:
    """Return the line that gives names values, all at once; nothing for no names."""
    return [f"{', '.join(names)}, = {', '.join(values)},"] if names else []


class _LoopWriter(Writer):
    """Writes the steps of a body.

    ``numbers`` are the slots that are read under the name ``v``, ``arrays`` those under ``z``, and ``done`` the rows
    that are filled by what computes their values. ``held`` are slots that have both names already, ``spread`` those
    whose steps add to a running sum, with its name.
    """

    def __init__(
        self,
        fragment: Fragment,
        bound: Bound,
        names: dict[str, Any],
        layout: Layout,
        outputs: Sequence[int],
        held: Container[int],
        spread: Mapping[int, str],
    ) -> None:
        super().__init__(fragment, bound, frozenset(), names)
        # Whatever leaves a step leaves under its name v.
        self.numbers: set[int] = set(outputs)
        self.arrays: set[int] = set()
        self.done: set[str] = set()
        self.spread = spread
        self._held = held
        self._first, self._last = layout.constants, layout.constants + len(layout.reads)
        self._inputs = len(fragment.dtypes)
        self._rows: dict[int, str] = {}
        self._fresh: set[int] = set()
        for place, slot in places(layout, outputs):
            if self.shapes[slot] != () and self._is_aligned(slot) and slot >= self._inputs and slot not in held:
                self._rows.setdefault(slot, place)

    def write(self, step: Step) -> None:
        """Append the lines of a step."""
        if step.slot in self.spread:
            given = self._given([self._as_array(slot) for slot in step.operands[1:]], step.params)
            self.lines.append(f"{self.spread[step.slot]}.{step.op.name}({given})")
            self._bury(step)
            return
        kernel, rule = step.op.kernel, RULES.get(step.op.name)
        if step.op.fresh:
            self._fresh.add(step.slot)
        text = self._on_numbers(step)
        if text is None:
            operands = [self._as_array(slot) for slot in step.operands]
            if isinstance(kernel, np.ufunc):
                text = self._fill(
                    step, self.ufunc(kernel, step, operands), f"{self.name(kernel)}({', '.join(operands)})"
                )
            elif rule is not None:
                text = rule(self, step, *operands)
            if text is None:
                text = self.call(kernel, operands, step.params)
        if step.slot in self._rows and _PRODUCT.fullmatch(text):
            text = self._fill(step, text, text)
        if text.startswith("asarray(") and self.shapes[step.slot] == ():
            text = f"float64({text.removeprefix('asarray(')}"
        if text != f"v{step.slot}":
            self.lines.append(f"v{step.slot} = {text}")
        self._bury(step)

    def carried(self, slot: int) -> str:
        """Return the text for a value as the next step takes it."""
        is_carried = self._first <= slot < self._inputs  # or a row, which is dense
        return f"v{slot}" if self.shapes[slot] == () or is_carried or slot in self._fresh else f"dense(v{slot})"

    def row(self, slot: int, text: str) -> str:
        """Return the text for a row of a stack as a step may compute with it."""
        return text if self.shapes[slot] == () or self._is_aligned(slot) else f"{text}.copy()"

    def _is_aligned(self, slot: int) -> bool:
        return nbytes(self.shapes[slot], self.dtypes[slot]) % ALIGNMENT == 0

    def added(self, name: str, slot: int) -> str:
        """Return the line that adds a value to a sum."""
        is_running = is_worth(self.shapes[slot], self.dtypes[slot])
        return f"{name}.add(v{slot})" if is_running else f"{name} += v{slot}"

    def _on_numbers(self, step: Step) -> str | None:
        """Return a step as an operator, if it works on single numbers."""
        dtypes = {self.dtypes[slot] for slot in step.operands}
        if len(dtypes) != 1 or any(self.shapes[slot] != () for slot in (*step.operands, step.slot)):
            return None
        dtype = dtypes.pop()
        if dtype not in _NUMBERS or self.dtypes[step.slot] not in (dtype, BOOL):
            return None
        symbol = (_ARITHMETIC if self.dtypes[step.slot] == dtype else _COMPARISONS).get(step.op.kernel)
        if symbol is None and (step.op.kernel is not np.negative or dtype == INT64):
            return None
        self.numbers.update(step.operands)
        operands = [f"v{slot}" for slot in step.operands]
        return f"-{operands[0]}" if symbol is None else f" {symbol} ".join(operands)

    def _as_array(self, slot: int) -> str:
        """Return the name of a value for NumPy's functions, and see to it that it is there."""
        if self.shapes[slot] != ():
            self.numbers.add(slot)
            return f"v{slot}"
        if slot not in self.arrays and slot not in self._held:
            self.arrays.add(slot)
            # Constants and rows are there as arrays from the beginning.
            if self._first <= slot < self._last or slot >= self._inputs:
                self.lines.append(f"z{slot} = asarray(v{slot})")
        return f"z{slot}"

    def _fill(self, step: Step, text: str, call: str) -> str:
        """Return a call that writes into the row that its result is for; the text as it is if there is none."""
        row = self._rows.get(step.slot)
        if row is None:
            return text
        self.done.add(row)
        return f"{call[:-1]}, out={row})"
