"""Making the steps of a loop: the same function twice, once fast and once simple.

The fast one is compiled by the backend, so that a step costs hardly more than its kernels. The simple one calls the
kernel of each op in turn. It runs on exact numbers too, and it knows which op failed. Both are called in the same way
(`Backend.compile_loop`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unspool._engine.backends.base import Drive, Layout
from unspool._engine.backends.running_sums import RunningSum
from unspool._engine.failure import failure
from unspool._engine.observe import Watcher
from unspool._engine.plan import Plan
from unspool._fragments.call import expand
from unspool._fragments.fragment import Origin
from unspool._graph import Node
from unspool._ops.leaf import CONSTANT, placeholder
from unspool.errors import UnspoolError

# --- fast ------------------------------------------------------------------------------------------------------------


def compiled_drive(plan: Plan, layout: Layout) -> Drive:
    """Return the steps of a loop as one compiled function, which the plan keeps."""
    drive: Drive | None = plan.derivatives.get(layout)
    if drive is None:
        drive = plan.derivatives[layout] = plan.backend.compile_loop(plan.lowered, layout)
    return drive


# --- simple ----------------------------------------------------------------------------------------------------------


def simple_drive(plan: Plan, layout: Layout, first: int = 0) -> Drive:
    """Return the steps of a loop, op by op; an error names the op and the step, where index 0 is step ``first``."""
    assigned = len(layout.assigns)

    def drive(
        indices: Sequence[int], constants: Any, carry: Any, rows: Any, histories: Any, written: Any, sums: Any
    ) -> tuple[int, bool, list[Any], list[Any], list[Any]]:
        sums, registers = list(sums), dict(zip(layout.reads, carry, strict=True))
        for k in indices:
            before = [registers[r] for r in layout.reads]
            found = run_body(plan, [*constants, *before, *[stack[k] for stack in rows]], first + k)
            for stack, j in zip(written, layout.written, strict=True):
                stack[k] = found[j]
            sums = [_added(total, found[j]) for total, j in zip(sums, layout.sums, strict=True)]
            registers.update(zip(layout.assigns, found, strict=False))
            for history, i in zip(histories, layout.histories, strict=True):
                history[k if layout.reverse else k + 1] = found[i]
            if layout.watched and found[-1]:
                return k, True, found[:assigned], before, sums
        return k, False, found[:assigned], before, sums

    return drive


def _added(total: Any, term: Any) -> Any:
    return total.add(term) if type(total) is RunningSum else total + term


def show_steps(
    watcher: Watcher,
    plan: Plan,
    layout: Layout,
    first: int,
    indices: Sequence[int],
    constants: Any,
    carry: Any,
    rows: Any,
) -> None:
    """Let a watcher look at steps that are about to be made, from what they will read; nothing is written."""
    registers = dict(zip(layout.reads, carry, strict=True))
    for k in indices:
        before = [registers[r] for r in layout.reads]
        found = watcher.run_step(plan, [*constants, *before, *[stack[k] for stack in rows]], first + k)
        registers.update(zip(layout.assigns, found, strict=False))
        if layout.watched and found[-1]:
            return


def run_body(plan: Plan, values: list[Any], k: int) -> list[Any]:
    """Return the outputs of step ``k``, op by op, from its inputs; the list of these is filled up with what is made."""
    fragment = plan.fragment
    for position, (op, operands, _) in enumerate(fragment.body):
        if op is CONSTANT:
            values.append(fragment.body[position].params["literal"].array)
            continue
        try:
            values.append(op.kernel(*[values[slot] for slot in operands], **plan.params[position]))
        except Exception as error:
            raise located_failure(plan, position, error, k) from error
    return [values[slot] for slot in fragment.outputs]


def located_failure(plan: Plan, position: int, error: Exception, k: int) -> UnspoolError:
    """Return the error to raise for an op inside a body that failed."""
    located = failure(nodes_of(plan)[position], error)
    located.args = (f"{located}, in step {k} of a loop",)
    return located


def nodes_of(plan: Plan, origins: Sequence[Origin] | None = None) -> list[Node]:
    """Return what each instruction of a body makes of stand-ins for its inputs, with lines of their own if given."""
    fragment = plan.fragment
    inputs = list(map(placeholder, plan.input_shapes, fragment.dtypes))
    return expand(plan, inputs, origins or fragment.origins)[len(inputs) :]
