"""``us.Checkpointed``: differentiate an iteration through all its steps while keeping few of its states.

The one idea: what reverse mode needs of a step can be recomputed from any earlier state. So a run saves some
states, and the backward pass recomputes the others, with the least work that is possible for the room there is
(`unspool.checkpoint`). What is recomputed has the bits that it had, and sums are taken in the same order; so has the
gradient the bits that `Unrolled` gives it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from unspool._autodiff.loops.checkpointed_rules import Checkpoints, outputs_of, place_checkpointed
from unspool._autodiff.loops.checkpointed_run import KeptOnce, bodies_of, run
from unspool._autodiff.loops.iterate import Adjoint, Run, loop_of
from unspool._autodiff.loops.loop import take_values
from unspool._engine.default import default_engine
from unspool._engine.memory.background import check_pool
from unspool._engine.memory.sizes import parse_bytes
from unspool._engine.observe import current_observer, shown
from unspool._engine.quiet import run_quietly
from unspool.checkpoint._counting import at_least
from unspool.checkpoint._schedule.budget import Plan, Sizes, plan_for, plan_for_slots
from unspool.errors import ArgumentError

if TYPE_CHECKING:
    from unspool._autodiff.loops.trace import Trace, TracedStep
    from unspool._tensor import Tensor

__all__ = ["Checkpointed"]


class Checkpointed(Adjoint):
    """Differentiate through all steps that ran, forward or in reverse, to any order, and keep few states.

    Gradients equal those of `Unrolled`, bit for bit. The backward pass recomputes steps by the plan of the traced step:
    the functions of the user are not called again. A second gradient of the same run begins with the initial state, so
    it runs the loop forward once more.

    Exactly one of ``slots`` and ``memory`` has to be given.

    Parameters
    ----------
    slots : int, optional
        How many states may be saved at a time. The initial one counts, but takes no memory of its own. What the rules
        look at is kept for one step.
    memory : str, int or float, optional
        How many bytes the saved states and the residuals of steps may take: "2GB", "1.5GiB", a number of bytes, or a
        fraction of the available memory. What is not needed for states holds the residuals of many steps at once. The
        initial state, the outputs, the gradient and the temporaries of one step come on top.
    pool : object with submit, optional
        A pool of threads. While the backward pass uses the residuals of some steps, a thread computes those of the
        steps before; they take as much room again. Bits do not change. Steps that run natively, or in large products,
        leave Python's lock to others, and only these gain. The pool has to be there when the gradient is evaluated; if
        it is busy or closed by then, the backward pass computes them itself. By default it is that of the
        `unspool.memory` block in which this is made, if that has one.

    Raises
    ------
    BudgetError
        When the loop is to run, if the memory has no room for a state and the residuals of a step. Its attribute
        ``least`` is what is needed.

    Examples
    --------
    >>> import unspool as us
    >>> x = us.tensor(2.0)
    >>> root, steps = us.iterate(lambda r: (r + x / r) / 2, 1.0, max_steps=6, adjoint=us.Checkpointed(slots=2))
    >>> round(float(root.grad(x)), 6)
    0.353553
    """

    def __init__(self, *, slots: int | None = None, memory: str | int | float | None = None, pool: Any = None) -> None:
        if (slots is None) == (memory is None):
            given = "neither" if slots is None else f"slots={slots!r} and memory={memory!r}"
            raise ArgumentError(f"us.Checkpointed takes either slots or memory, got {given}")
        self.slots = None if slots is None else at_least(slots, 1, "slots")
        self.memory = None if memory is None else parse_bytes(memory)
        self.pool = default_engine().ledger.pool if pool is None else pool
        check_pool(pool, "us.Checkpointed")

    def _key(self) -> tuple[Any, ...]:
        return self.slots, self.memory, id(self.pool)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Checkpointed) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        given = f"memory={self.memory}" if self.slots is None else f"slots={self.slots}"
        return f"us.Checkpointed({given}{'' if self.pool is None else ', pool=...'})"

    # -- plans --

    def plan(self, sizes: Sizes) -> Plan:
        """Return how to run and reverse loops whose steps have some sizes."""
        if self.slots is not None:
            return plan_for_slots(self.slots)
        if self.pool is not None:
            # Two tapes at once while going back.
            sizes = sizes._replace(residual=sizes.residual + sizes.tape)
        assert self.memory is not None
        return plan_for(self.memory, sizes)

    def has_room(self, states: int, steps: int, sizes: Sizes) -> bool:
        """Tell whether so many saved states and taped steps may be there at once."""
        return self.memory is None or states * sizes.state + steps * sizes.tape <= self.memory

    # -- strategy --

    def run(self, traced: Trace, most: int | None) -> Run:
        """Make the steps, saving some of the states."""
        step = traced.step
        inputs = [*traced.constants, *traced.initial]
        bodies = bodies_of(loop_of(step, most or 0, inputs, keep=False), inputs)
        values = default_engine().evaluate(inputs)
        observer = current_observer()
        found = run_quietly(shown, observer, partial(run, condition=step.condition, most=most), bodies, values, self)
        checkpoints = Checkpoints(bodies.of_length(found.steps), self, KeptOnce(found.kept, values))
        if observer is not None:
            observer.after(place_checkpointed(checkpoints, inputs), values, (*found.final, *found.outputs))
        return Run(found.steps, found.final, found.previous, found.outputs, None, [], checkpoints)

    def attach(self, step: TracedStep, constants: list[Tensor], initial: list[Tensor], run: Run) -> list[Tensor]:
        """Place the loop that ran as one node with known values."""
        node = place_checkpointed(run.other, [*constants, *initial])
        node.value = (*run.final, *run.outputs)
        found = outputs_of(node)
        take_values(found)
        return found

    def place(self, step: TracedStep, constants: list[Tensor], initial: list[Tensor], steps: int) -> list[Tensor]:
        """Place the loop as one node, to be run when its value is asked for."""
        inputs: Sequence[Tensor] = [*constants, *initial]
        bodies = bodies_of(loop_of(step, steps, inputs, keep=False), inputs)
        return outputs_of(place_checkpointed(Checkpoints(bodies, self), inputs))
