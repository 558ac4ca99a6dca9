"""Where the NaN in the outputs of a loop come from: the step and the op that made them, or inputs of the loop.

The one idea: NaN mostly pass through a step in the same way as through the one before. So a step is run op by op only
if NaN enter or leave it at other places than in the steps that were looked at already, and the others are passed over
by what is known of these. The walk goes from the last step back to the first that explains what is wanted.

Which registers have NaN before a step is read from the states that the loop has kept. If it has kept none, the steps
are made once more, from the last clean state that there is, and a number is noted of each of them.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any

from unspool._autodiff.loops.checkpointed_rules import CHECKPOINTED_LOOP
from unspool._autodiff.loops.loop import LOOP
from unspool._autodiff.sweeps.chain import CHAIN
from unspool._engine.observe import Stop, watched
from unspool._engine.step_number import step_of_derivative
from unspool._graph import Node
from unspool._nan.flow import Birth, Look, PlanFlow
from unspool._nan.repetition import History, Repetition, repetition_of_chain, repetition_of_loop
from unspool._nan.report import NaNReport

# Where the NaN in outputs of a step come from: births in it, and inputs of its plan.
Origins = tuple[list[Birth], list[int]]


def origins_inside(
    node: Node, params: Any, arrays: Sequence[Any], value: Sequence[Any], wanted: set[int], look: Look
) -> tuple[NaNReport | None, list[int]]:
    """Return the report on the step that made the NaN in wanted outputs of an op, or the inputs that they came with."""
    op, bad = node.op, look.bad
    if op is CHAIN:
        chain = params["chain"]
        walk = _Walk(repetition_of_chain(chain, arrays), look)
        walk.make_steps()
        return walk.origins(wanted, lambda k, birth: chain_step(node, k, birth.node))
    if op is LOOP or op is CHECKPOINTED_LOOP:
        loop = params["loop"] if op is LOOP else params["checkpoints"].loop
        walk = _Walk(repetition_of_loop(loop, arrays), look)
        history = History(loop, value)
        if history.is_complete:
            walk.look_up(history)
        else:
            # A clean state says nothing of the outputs that were stacked before it.
            saved = params["checkpoints"].saved if op is CHECKPOINTED_LOOP and max(wanted) < len(loop.leaving) else None
            walk.make_steps(None if saved is None else saved.clean_start(arrays, lambda state: not bad.among(state)))
        return walk.origins(wanted, lambda k, birth: (k,))
    found = first_birth(lambda: op.kernel(*arrays, **params), look)
    return found, [] if found is not None else list(bad.among(arrays))


def chain_step(node: Node, k: int, inner: Node) -> tuple[int, ...]:
    """Return the number of the step whose derivative a step of a chain is, if that can be told."""
    chain = node.attributes["chain"]
    inputs: Any = node.inputs
    kind, constants = chain.kind(k), dict(zip(chain.kinds, chain.constants(), strict=True))
    operands: dict[int, Node | None] = dict(zip(kind.constant, inputs[constants[kind]], strict=True))
    operands |= dict(zip(kind.varying, inputs[chain.varying(k)], strict=True))
    operands |= {position: None for position, _ in kind.reads}
    step = step_of_derivative(kind.plan, [operands[i] for i in sorted(operands)], inner)
    return () if step is None else (step,)


class _Walk:
    """A walk back through the steps of a loop, as far as there are NaN to explain."""

    def __init__(self, steps: Repetition, look: Look) -> None:
        self._steps, self._look, self._bad = steps, look, look.bad
        self._known: dict[Any, PlanFlow] = {}
        self._at: Callable[[int, Sequence[int]], Origins] = lambda k, outputs: ([], [])

    def look_up(self, history: History) -> None:
        """Go by the states that a loop has kept."""
        steps, bad = self._steps, self._bad

        def at(k: int, outputs: Sequence[int]) -> Origins:
            shown = steps.body(k).shown
            outputs = [i for i in outputs if i not in shown or bad.is_in(history.row(k, shown[i]))]
            return self._flow(k, steps.values(k, history.before(k)), outputs).origins(outputs) if outputs else ([], [])

        self._at = at

    def make_steps(self, start: tuple[int, Sequence[Any]] | None = None) -> None:
        """Make the steps once more, from a state that is clean, and note how NaN pass through each of them."""
        steps, bad = self._steps, self._bad
        first, state = 0, steps.start()
        if start is not None:
            first, state = start[0], {r: value for r, value in enumerate(start[1]) if value is not None}
        # The flow through each step that gives NaN, by its number among the flows that differ.
        flows: dict[PlanFlow, int] = {}
        marks = array("I", bytes(4 * len(steps.order)))
        for k in steps.order[first:]:
            values = steps.values(k, state)
            outputs = steps.body(k).plan.run(*values)
            found = bad.among(outputs)
            if found:
                marks[k] = flows.setdefault(self._flow(k, values, found), len(flows) + 1)
            steps.assign(k, state, outputs)
        different = list(flows)
        self._at = lambda k, outputs: different[marks[k] - 1].origins(outputs) if marks[k] else ([], [])

    def _flow(self, k: int, values: Sequence[Any], outputs: Sequence[int]) -> PlanFlow:
        """Return how NaN pass through a step; what is known of one in which none is born holds for all like it."""
        plan, bad = self._steps.body(k).plan, self._bad
        key = (plan.id, bad.among(values), tuple(outputs))
        flow = self._known.get(key)
        if flow is None:
            flow = PlanFlow(plan, values, self._look)
            births, entered = flow.origins(outputs)
            if entered and not births:
                self._known[key] = flow
        return flow

    def origins(
        self, wanted: set[int], number: Callable[[int, Birth], tuple[int, ...]]
    ) -> tuple[NaNReport | None, list[int]]:
        """Return the report on the first birth that explains outputs of the loop, or the inputs that do."""
        steps = self._steps
        registers = {r for i, r in steps.leaving.items() if i in wanted}
        is_shown = not wanted <= set(steps.leaving)
        first: tuple[int, Birth] | None = None
        entered: set[int] = set()
        for k in reversed(steps.order):
            body = steps.body(k)
            outputs = [i for i, r in body.assigned if r in registers]
            outputs += [i for i, output in body.shown.items() if output in wanted and i not in outputs]
            if not outputs:
                continue
            registers = registers - {r for _, r in body.assigned}
            births, slots = self._at(k, outputs)
            if births:
                first = k, births[-1]
            registers |= {body.carried[slot] for slot in slots if slot in body.carried}
            entered |= {steps.source(k, slot) for slot in slots if slot not in body.carried}
            if not registers and not is_shown:
                break
        entered |= {steps.entering[r] for r in registers if r in steps.entering}
        if entered or first is None:
            return None, sorted(entered)
        return first[1].report.inside(*number(*first)), []


# --- loops that run in a way of their own ----------------------------------------------------------------------------


def first_birth(run: Callable[[], Any], look: Look) -> NaNReport | None:
    """Return the report on the first NaN that a step of a kernel makes and gives, if any."""
    try:
        watched((_FirstBirth(look),), run)
    except _FoundError as found:
        return found.report
    return None


class _FoundError(Exception):
    """Ends a run: what was looked for has been found."""

    def __init__(self, report: NaNReport) -> None:
        super().__init__()
        self.report = report


class _FirstBirth:
    """Looks at steps as they are made, and stops at the first output with NaN that were born in its step."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._steps: list[int] = []
        self._harmless: set[Any] = set()

    def run_step(self, plan: Any, values: Sequence[Any], k: int) -> Sequence[Any]:
        """Return the outputs of a step, or stop."""
        bad = self._look.bad
        self._steps.append(k)
        try:
            outputs: Sequence[Any] = plan.run(*values)
            found = bad.among(outputs)
            key = (plan.id, bad.among(values), found)
            if found and key not in self._harmless:
                births, _ = PlanFlow(plan, values, self._look).origins(found)
                if births:
                    raise Stop(_FoundError(births[-1].report.inside(*self._steps)))
                self._harmless.add(key)
            return outputs
        finally:
            self._steps.pop()
