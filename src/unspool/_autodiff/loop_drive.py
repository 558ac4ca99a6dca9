"""Making the steps of a loop: the same function twice, once fast and once simple.

The fast one is generated: the text of the body's plan inside a ``for``, with every value in a local variable, so that a
step costs its kernels and an assignment per row that is kept. The simple one calls the kernel of each op in turn. It runs
on exact numbers too, and it knows which op failed.

Both are called as ``drive(indices, constants, carry, rows, histories, written, sums)`` and return the last index, whether
the condition held, the carry, the carry before the last step, and the sums. Rows are written by index. The array of a
history has a row more than there are steps: what a step starts from is what the step before it ended with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from unspool._engine.interpreter import failure
from unspool._engine.numpy_backend import POOL, Writer, _compiled, _held, owned
from unspool._engine.plan import Plan
from unspool._engine.planning import Bound, Step, lower
from unspool._fragments.call import expand
from unspool._ops.leaf import CONSTANT, placeholder
from unspool.errors import UnspoolError

Drive = Callable[..., tuple[int, bool, list[Any], list[Any], list[Any]]]

# Arithmetic on single numbers: an operator is several times faster than the ufunc, and computes the same.
_OPERATORS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}


class Layout(NamedTuple):
    """What becomes of the outputs of a body.

    Attributes
    ----------
    constants, carries, rows : int
        How many inputs of each kind it has. Its first outputs are the carry.
    histories : tuple of int
        The carried values of which all states are kept.
    written, sums : tuple of int
        The outputs that are written row by row, and those that are added up.
    watched : bool
        Whether the last output says when to stop.
    reverse : bool
        Whether indices fall.
    """

    constants: int
    carries: int
    rows: int
    histories: tuple[int, ...]
    written: tuple[int, ...]
    sums: tuple[int, ...]
    watched: bool
    reverse: bool


# --- fast ------------------------------------------------------------------------------------------------------------


def generated_drive(plan: Plan, layout: Layout) -> Drive:
    """Return the steps of a loop as one compiled function, which the plan keeps."""
    drive: Drive | None = plan.derivatives.get(layout)
    if drive is None:
        drive = plan.derivatives[layout] = _generate(plan, layout)
    return drive


def _generate(plan: Plan, layout: Layout) -> Drive:
    fragment, bound = plan.fragment, Bound(plan.shapes, plan.dtypes, plan.params)
    steps, outputs = lower(fragment, bound)
    names = {"owned": owned, "asarray": np.asarray, "give": POOL.give}
    names |= {f"v{slot}": value for slot, value in _held(fragment, steps, outputs).items()}
    writer = _LoopWriter(fragment, bound, frozenset(), names)
    for step in steps:
        if not step.once:
            writer.write(step)
    made: dict[str, Drive] = {}
    exec(_compiled("\n".join(_source(layout, writer.lines, outputs))), names, made)
    return made["drive"]


def _source(layout: Layout, body: Sequence[str], outputs: Sequence[int]) -> list[str]:
    first, last = layout.constants, layout.constants + layout.carries
    constants = [f"v{i}" for i in range(first)]
    carry = [f"v{i}" for i in range(first, last)]
    before = [f"before{i}" for i in range(layout.carries)]
    rows = [f"v{i}" for i in range(last, last + layout.rows)]
    stacks = [f"rows{i}" for i in range(layout.rows)]
    histories = [f"history{i}" for i in layout.histories]
    written = [f"written{j}" for j in layout.written]
    sums = [f"sum{j}" for j in layout.sums]
    after = [f"v{slot}" for slot in outputs[: layout.carries]]
    following = "k" if layout.reverse else "k + 1"
    step = [
        *_assign(rows, [f"{stack}[k]" for stack in stacks]),
        *body,
        *[f"{name}[k] = v{outputs[j]}" for name, j in zip(written, layout.written, strict=True)],
        *[f"{name} += v{outputs[j]}" for name, j in zip(sums, layout.sums, strict=True)],
        *_assign(before, carry),
        *_assign(carry, after),
        *[f"{name}[{following}] = v{first + i}" for name, i in zip(histories, layout.histories, strict=True)],
    ]
    if layout.watched:
        step += [f"if v{outputs[-1]}:", "    stopped = True", "    break"]
    entering = zip(
        (constants, carry, stacks, histories, written, sums),
        ("constants", "carry", "rows", "histories", "written", "sums"),
        strict=True,
    )
    return [
        "def drive(indices, constants, carry, rows, histories, written, sums):",
        *[f"    {line}" for names, given in entering for line in _assign(names, [f"*{given}"])],
        "    stopped = False",
        "    for k in indices:",
        *[f"        {line}" for line in step or ["pass"]],
        f"    return k, stopped, [{', '.join(carry)}], [{', '.join(before)}], [{', '.join(sums)}]",
    ]


def _assign(names: Sequence[str], values: Sequence[str]) -> list[str]:
    """Return the line that gives names values, all at once; nothing for no names."""
    return [f"{', '.join(names)}, = {', '.join(values)},"] if names else []


class _LoopWriter(Writer):
    """Writes the body of a loop. Values go from step to step as they are, so a number need not become an array."""

    def ufunc(self, ufunc: Any, step: Step, operands: Sequence[str]) -> str:
        """Return the call of a ufunc, or an operator where it works on single numbers."""
        slots = (*step.operands, step.slot)
        if all(self.shapes[slot] == () and self.dtypes[slot] == np.float64 for slot in slots):
            if ufunc is np.negative:
                return f"-{operands[0]}"
            if ufunc.__name__ in _OPERATORS:
                return f"{operands[0]} {_OPERATORS[ufunc.__name__]} {operands[1]}"
        return super().ufunc(ufunc, step, operands)


# --- simple ----------------------------------------------------------------------------------------------------------


def simple_drive(plan: Plan, layout: Layout) -> Drive:
    """Return the steps of a loop, op by op; an error names the op and the step."""

    def drive(
        indices: Sequence[int], constants: Any, carry: Any, rows: Any, histories: Any, written: Any, sums: Any
    ) -> tuple[int, bool, list[Any], list[Any], list[Any]]:
        carry, sums, previous = list(carry), list(sums), list(carry)
        for k in indices:
            found = _step(plan, [*constants, *carry, *[stack[k] for stack in rows]], k)
            for stack, j in zip(written, layout.written, strict=True):
                stack[k] = found[j]
            sums = [total + found[j] for total, j in zip(sums, layout.sums, strict=True)]
            previous, carry = carry, found[: layout.carries]
            for history, i in zip(histories, layout.histories, strict=True):
                history[k if layout.reverse else k + 1] = carry[i]
            if layout.watched and found[-1]:
                return k, True, carry, previous, sums
        return k, False, carry, previous, sums

    return drive


def _step(plan: Plan, values: list[Any], k: int) -> list[Any]:
    fragment = plan.fragment
    for position, (op, operands, _) in enumerate(fragment.body):
        if op is CONSTANT:
            values.append(fragment.body[position].params["literal"].array)
            continue
        try:
            values.append(op.kernel(*[values[slot] for slot in operands], **plan.params[position]))
        except Exception as error:
            raise _located(plan, position, error, k) from error
    return [values[slot] for slot in fragment.outputs]


def _located(plan: Plan, position: int, error: Exception, k: int) -> UnspoolError:
    """Return the error to raise for an op inside a body that failed."""
    fragment = plan.fragment
    inputs = [placeholder(shape, dtype) for shape, dtype in zip(plan.input_shapes, fragment.dtypes, strict=True)]
    node = expand(plan, inputs, fragment.origins)[len(inputs) + position]
    located = failure(node, error)
    located.args = (f"{located}, in step {k} of a loop",)
    return located
