"""Running a call of which some residuals are there: the ops that made them do not run again.

A user may want a value kept (`unspool.keep`) when the rest of its step is evicted. When the step runs again, that value
is one of its inputs: a plan of its own, made once for each choice of values that are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unspool._fragments.fragment import Instruction, fragment_of

if TYPE_CHECKING:
    from unspool._engine.plan import Plan
    from unspool._fragments.call import Call


def run_with_given(call: Call, arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Return the outputs of a call that has some of its residuals, without computing those."""
    plan = call.plan
    fragment = plan.fragment
    first = len(fragment.dtypes)
    residuals = zip(fragment.outputs[fragment.results :], call.value, strict=True)
    given = {slot: value for slot, value in residuals if value is not None and slot >= first}
    rest = _plan_with_given(plan, tuple(sorted(given)))
    computed = rest.run(*arguments, *[given[slot] for slot in sorted(given)])
    values = given | dict(zip([s for s in dict.fromkeys(fragment.outputs) if s not in given], computed, strict=True))
    return tuple([values[slot] for slot in fragment.outputs])


def _plan_with_given(plan: Plan, given: tuple[int, ...]) -> Plan:
    """Return the plan that takes the values of some slots as further inputs, and returns all other outputs once."""
    made: Plan | None = plan.derivatives.get(("given", given))
    if made is None:
        made = plan.derivatives["given", given] = _make(plan, given)
    return made


def _make(plan: Plan, given: tuple[int, ...]) -> Plan:
    fragment = plan.fragment
    first = len(fragment.dtypes)
    outputs = [slot for slot in dict.fromkeys(fragment.outputs) if slot not in given]
    needed = set(outputs)
    for slot in range(first + len(fragment.body) - 1, first - 1, -1):
        if slot in needed and slot not in given:
            needed.update(fragment.body[slot - first].operands)
    number = {slot: slot for slot in range(first)} | {slot: first + i for i, slot in enumerate(given)}
    body: list[Instruction] = []
    origins = []
    swept = []
    for slot, (op, operands, _) in enumerate(fragment.body, start=first):
        if slot in needed and slot not in given:
            if slot - first in fragment.swept:
                swept.append(len(body))
            number[slot] = first + len(given) + len(body)
            body.append(Instruction(op, tuple([number[i] for i in operands]), plan.params[slot - first]))
            origins.append(fragment.origins[slot - first])
    shorter = fragment_of(
        (*fragment.dtypes, *[plan.dtypes[slot] for slot in given]),
        None,
        tuple(body),
        tuple([number[slot] for slot in outputs]),
        len(outputs),
        tuple(origins),
    )
    shorter.swept = frozenset(swept)
    from unspool._engine.plan import make_plan

    return make_plan(shorter, (*plan.input_shapes, *[plan.shapes[slot] for slot in given]), plan.backend)
