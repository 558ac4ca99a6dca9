"""The text of a loop: the steps of a body's plan inside a ``for``, with every value in a local variable.

Two things make it faster than calling the plan. Results that are kept are computed where they are kept, in a row of a
stack. And a value without axes goes by two names: ``v``, a number of NumPy's, for arithmetic with other numbers, which
operators do in a fraction of the time, and ``z``, an array, which ufuncs read faster. Each is made where it is first
needed.

Kernels of BLAS look at where an array begins and at its strides, so neither may depend on what is kept. Rows of a stack
begin where arrays of NumPy do (`ALIGNMENT`) if their size is a multiple of that; others are copied when they are read,
and written as copies. Rows with gaps between their elements, or one element repeated, are read as copies too. A view
that is carried on is laid out as a copy of it is when a loop stops and goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unspool._dtypes import BOOL, FLOAT32, FLOAT64, INT64
from unspool._engine.backends.base import Drive, Layout, Lowered
from unspool._engine.backends.buffers import ALIGNMENT, dense
from unspool._engine.backends.fused_sums import spread_total
from unspool._engine.backends.generated import FunctionWriter
from unspool._engine.backends.numpy_steps import StepWriter
from unspool._engine.backends.running_sums import is_worth
from unspool._engine.backends.values import held_values
from unspool._engine.costs import nbytes
from unspool._engine.planning import Step

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

# What the local variables of a loop are called, but for those of its arguments.
_LOCAL = ("v", "z", "b", "p", "t", "k", "before", "register", "history", "sum", "stopped")
_ARGUMENTS = ("indices", "constants", "carry", "rows", "histories", "written", "sums")


def compile_loop(program: Lowered, layout: Layout) -> Drive:
    """Return the function that makes the steps of a loop; `Backend.compile_loop` says how it is called."""
    steps, sums = _spread_sums(program, layout)
    function = FunctionWriter("drive", _ARGUMENTS, local=(*_LOCAL, *_ARGUMENTS))
    function.tell(program.fragment, program.bound)
    writer = _LoopWriter(program, function, layout, held_values(program), sums)
    for step in steps:
        if not step.once:
            writer.write(step)
    _write_loop(function, layout, writer, program.outputs)
    drive: Drive = function.compile("loop", program.fragment.origins)
    return drive


def adds_products(program: Lowered, layout: Layout) -> bool:
    """Whether terms of sums are products of matrices that are added as they are computed."""
    return bool(_spread_sums(program, layout)[1])


def _spread_sums(program: Lowered, layout: Layout) -> tuple[tuple[Step, ...], dict[int, str]]:
    """Return the steps with terms added to running sums as they are computed, and these sums by slot of the output."""
    _, bound, steps, outputs = program
    spread: dict[int, str] = {}
    for j in layout.sums:
        slot = outputs[j]
        found = spread_total(steps, bound, outputs, slot) if is_worth(bound.shapes[slot], bound.dtypes[slot]) else None
        if found is not None:
            steps = found
            spread[slot] = f"sum{j}"
    return steps, spread


def _write_loop(function: FunctionWriter, layout: Layout, writer: _LoopWriter, outputs: Sequence[int]) -> None:
    """Write what stands around the steps: names for what is given, the ``for``, and what is returned."""
    first, last = layout.constants, layout.constants + len(layout.reads)
    carry = [f"v{i}" for i in range(first, last)]
    names = dict(zip(layout.reads, carry, strict=True))
    assigned = [names.get(r, f"register{r}") for r in layout.assigns]
    before = [f"before{r}" for r in layout.reads]
    sums = [f"sum{j}" for j in layout.sums]
    entering = {
        "constants": [f"v{i}" for i in range(first)],
        "carry": carry,
        "rows": [f"rows{i}" for i in range(layout.rows)],
        "histories": [f"history{i}" for i in layout.histories],
        "written": [f"written{j}" for j in layout.written],
        "sums": sums,
    }
    for given, inside in entering.items():
        function.write(*_assign(inside, ["*dense_rows(rows)" if given == "rows" else f"*{given}"]))
    function.write(*[f"z{slot} = asarray(v{slot})" for slot in range(first) if slot in writer.arrays])
    function.write("stopped = False")
    rows = range(last, last + layout.rows)
    with function.block("for k in indices:"):
        step = [
            *[f"v{slot} = {writer.row(slot, f'rows{slot - last}[k]')}" for slot in rows if slot in writer.numbers],
            *[f"z{slot} = rows{slot - last}[k, ...]" for slot in rows if slot in writer.arrays],
            *writer.lines,
            *[f"{place} = v{slot}" for place, slot in places(layout, outputs) if place not in writer.done],
            *[writer.added(f"sum{j}", outputs[j]) for j in layout.sums if outputs[j] not in writer.spread],
            *_assign(before, carry),
            *_assign(assigned, [writer.carried(slot) for slot in outputs[: len(assigned)]]),
        ]
        function.write(*(step or ["pass"]))
        if layout.watched:
            with function.block(f"if v{outputs[-1]}:"):
                function.write("stopped = True", "break")
    function.write(f"return k, stopped, [{', '.join(assigned)}], [{', '.join(before)}], [{', '.join(sums)}]")


def places(layout: Layout, outputs: Sequence[int]) -> list[tuple[str, int]]:
    """Return the rows that a step fills, as text, each with the slot whose value goes there."""
    after = "k" if layout.reverse else "k + 1"
    kept = [(f"history{i}[{after}]", outputs[i]) for i in layout.histories]
    return kept + [(f"written{j}[k]", outputs[j]) for j in layout.written]


def _assign(names: Sequence[str], values: Sequence[str]) -> list[str]:
    """Return the line that gives names values, all at once; nothing for no names."""
    return [f"{', '.join(names)}, = {', '.join(values)},"] if names else []


class _DenseRows:
    """A stack whose rows have gaps or repeat elements, read row by row as copies without: a copy of all may not fit."""

    __slots__ = ("_stack",)

    def __init__(self, stack: Any) -> None:
        self._stack = stack

    def __getitem__(self, k: Any) -> Any:
        return self._stack[k].copy()


def _dense_rows(stacks: Sequence[Any]) -> list[Any]:
    """Return stacks so that each row that is read of them lies in memory in the order of its axes, without gaps."""
    return [stack if not len(stack) or stack[0].flags.c_contiguous else _DenseRows(stack) for stack in stacks]


class _LoopWriter(StepWriter):
    """Writes the steps of a body.

    ``numbers`` are the slots that are read under the name ``v``, ``arrays`` those under ``z``, and ``done`` the rows
    that are filled by what computes their values. ``spread`` are the slots whose steps add to a running sum, with its
    name.
    """

    def __init__(
        self,
        program: Lowered,
        function: FunctionWriter,
        layout: Layout,
        held: Mapping[int, Any],
        spread: Mapping[int, str],
    ) -> None:
        shapes = program.bound.shapes
        numbers = {slot: value[()] if shapes[slot] == () else value for slot, value in held.items()}
        super().__init__(program, function, numbers)
        function.bind(dense=dense, dense_rows=_dense_rows, float64=np.float64)
        function.bind(**{f"v{slot}": value for slot, value in numbers.items()})
        function.bind(**{f"z{slot}": value for slot, value in held.items()})
        # Whatever leaves a step leaves under its name v.
        self.numbers: set[int] = set(program.outputs)
        self.arrays: set[int] = set()
        self.done: set[str] = set()
        self.spread = spread
        self._first, self._last = layout.constants, layout.constants + len(layout.reads)
        self._inputs = len(program.fragment.dtypes)
        self._fresh: set[int] = set()
        self._rows: dict[int, str] = {}
        for place, slot in places(layout, program.outputs):
            if shapes[slot] != () and self._is_aligned(slot) and slot >= self._inputs and slot not in held:
                self._rows.setdefault(slot, place)

    # --- steps

    def add_in_place(self, step: Step) -> bool:
        """Append the line that adds to a running sum, if the step does so."""
        if step.slot not in self.spread:
            return False
        given = self.arguments(step, [self.operand(slot) for slot in step.operands[1:]])
        self.lines.append(f"{self.spread[step.slot]}.{step.op.name}({', '.join(given)})")
        return True

    def expression(self, step: Step) -> str:
        """Return the expression for the result of a step: an operator, if it works on single numbers."""
        if step.op.fresh:
            self._fresh.add(step.slot)
        return self._on_numbers(step) or super().expression(step)

    def _on_numbers(self, step: Step) -> str | None:
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

    def operand(self, slot: int) -> str:
        """Return the name of a value for NumPy's functions, and see to it that it is there."""
        if self.shapes[slot] != ():
            self.numbers.add(slot)
            return f"v{slot}"
        if slot not in self.arrays and self.held(slot) is None:
            self.arrays.add(slot)
            # Constants and rows are there as arrays from the beginning.
            if self._first <= slot < self._last or slot >= self._inputs:
                self.lines.append(f"z{slot} = asarray(v{slot})")
        return f"z{slot}"

    def place(self, step: Step) -> str | None:
        """Return the row that the result of a step is for."""
        row = self._rows.get(step.slot)
        if row is not None:
            self.done.add(row)
        return row

    def number(self, step: Step, text: str) -> str:
        """Return the expression for a number, which goes by its name ``v``."""
        return f"float64({text})"

    def finished(self, step: Step, text: str) -> str:
        """Return the expression for a result as it is: what has no axes goes by two names."""
        return text

    # --- what stands around them

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
