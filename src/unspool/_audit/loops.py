"""The loops in a graph: what `iterate` and `fixed_point` placed, and plain Python loops as far as they can be told.

A plain loop that was folded is a row of calls of one plan. If each of them reads what the one before gave, and what all
have in common, it is a step like any other. Else, and if it was not folded, its states are what one line made, again
and again, of one shape.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from unspool._autodiff.loops.checkpointed_rules import CHECKPOINTED_LOOP
from unspool._autodiff.loops.loop import LOOP, Loop, apply_fragment, stand_ins
from unspool._autodiff.loops.trace import TracedStep
from unspool._autodiff.solvers.implicit import FIXED_POINT
from unspool._autodiff.sweeps.walk import active_nodes
from unspool._dtypes import INEXACT
from unspool._engine.interpreter import part_if_alive
from unspool._fragments.call import Call, Projection, call_of, output
from unspool._fragments.fragment import Fragment, capture
from unspool._graph import Node, source_of
from unspool._ops.leaf import LEAF_OPS
from unspool._tensor import Tensor

# Fewer repetitions than this say nothing of a rate.
LEAST_STEPS = 4

# Loops in each other of which values are followed.
_MOST_NESTED = 3

ITERATE, FIXED, PLAIN = "us.iterate", "us.fixed_point", "a loop"


class Steps(NamedTuple):
    """A loop whose step is known.

    Attributes
    ----------
    kind : str
        Who made it.
    source : str
        The user's line.
    step : TracedStep
    constants, initial : list of Tensor
    steps : int
    finals : list of Tensor or None
        The tensors of the final state, ``None`` for a leaf that nobody refers to; for a fixed point, its one node.
    history : int
        How many earlier steps the search extrapolated from; 0 for plain steps.
    """

    kind: str
    source: str
    step: TracedStep
    constants: list[Tensor]
    initial: list[Tensor]
    steps: int
    finals: list[Any]
    history: int = 0

    @property
    def is_implicit(self) -> bool:
        """Whether it is differentiated at the point that it found."""
        return self.kind == FIXED


class States(NamedTuple):
    """A loop of which some values are known that it made one after the other."""

    kind: str
    source: str
    states: list[list[Tensor]]


def find_loops(loss: Tensor, variables: Sequence[Tensor]) -> list[Steps | States]:
    """Return the loops between variables and a loss, those nearest to the loss first.

    What may be one and is none, which `States` may turn out to be, is among them.
    """
    nodes = active_nodes([loss], variables)
    found: list[Steps | States] = [steps for node in nodes if (steps := _placed(node)) is not None]
    calls = [node for node in nodes if type(node) is Call]
    folded = _folded(calls)
    found += [folded] if folded is not None else _repeated(nodes)
    return found[::-1]


def _placed(node: Node) -> Steps | None:
    """Return what a node says of its loop, if it is one that a user wrote."""
    if node.op is FIXED_POINT:
        route = node.attributes["route"]
        inputs: Any = node.inputs
        return Steps(
            FIXED,
            source_of(node),
            route.step,
            list(inputs[: route.closed]),
            list(route.initial(inputs)),
            route.steps,
            [node],
            route.history,
        )
    if node.op not in (LOOP, CHECKPOINTED_LOOP):
        return None
    loop: Loop = node.attributes["loop"] if node.op is LOOP else node.attributes["checkpoints"].loop
    if not _is_plain(loop):
        return None
    inputs, carries = node.inputs, len(loop.entering)
    names = tuple([f"state[{i}]" for i in range(carries)])
    step = TracedStep(_without_outputs(loop, inputs), loop.constants, carries, 0, None, names)
    finals = [part_if_alive(node, i) for i in range(carries)]
    return Steps(
        ITERATE,
        source_of(node),
        step,
        list(inputs[: loop.constants]),
        list(inputs[loop.constants :]),
        loop.steps,
        finals,
    )


def _without_outputs(loop: Loop, inputs: Sequence[Node]) -> Fragment:
    """Return the body of a loop without what it stacks up, be it for the user or for derivatives."""
    fragment = loop.bodies[0].fragment
    given = stand_ins(fragment, tuple([node.shape for node in inputs]))
    return capture(given, apply_fragment(fragment, given)[: len(loop.entering)]).fragment


def _is_plain(loop: Loop) -> bool:
    """Whether a loop has one body that reads and assigns all registers, and no rows: no derivative of another one."""
    if len(loop.bodies) != 1 or loop.rows or loop.reverse or loop.sums:
        return False
    body, every = loop.bodies[0], tuple(range(len(loop.entering)))
    return body.constants == tuple(range(loop.constants)) and body.reads == body.assigns == every == loop.leaving


# --- plain loops -----------------------------------------------------------------------------------------------------


def _folded(calls: Sequence[Any]) -> Steps | States | None:
    """Return the longest row of calls of one plan as a loop."""
    rows = defaultdict(list)
    for call in calls:
        rows[call.plan.id].append(call)
    row = max(rows.values(), key=lambda row: (len(row), row[-1].id), default=[])
    if len(row) < LEAST_STEPS:
        return None
    carried = _carried(row)
    if not carried:
        return None
    plan, source = row[0].plan, source_of(output(row[-1], min(carried.values())))
    constant = [i for i in range(len(row[0].inputs)) if i not in carried]
    if any(call.inputs[i] is not row[0].inputs[i] for call in row for i in constant):
        # A stream: another value in each step.
        return States(PLAIN, source, [[output(call, o) for o in sorted(set(carried.values()))] for call in row])
    inputs = stand_ins(plan.fragment, plan.input_shapes)
    outputs = apply_fragment(plan.fragment, inputs)
    results = [outputs[carried[i]] for i in carried]
    fragment = capture([*[inputs[i] for i in constant], *[inputs[i] for i in carried]], results).fragment
    names = tuple([f"state[{k}]" for k in range(len(carried))])
    step = TracedStep(fragment, len(constant), len(carried), 0, None, names)
    first, last = row[0].inputs, row[-1]
    finals = [output(last, o) for o in carried.values()]
    return Steps(PLAIN, source, step, [first[i] for i in constant], [first[i] for i in carried], len(row), finals)


def _carried(row: Sequence[Any]) -> dict[int, int]:
    """Return the inputs of a call that are outputs of the one before, in all of the row: input to output."""
    found: dict[int, int] | None = None
    for before, after in pairwise(row):
        here = {
            i: operand.output
            for i, operand in enumerate(after.inputs)
            if type(operand) is Projection and call_of(operand) is before
        }
        found = here if found is None else {i: o for i, o in found.items() if here.get(i) == o}
    return found or {}


def _repeated(nodes: Sequence[Node]) -> list[States]:
    """Return the values that places of a program made most often: of loops in each other, those of each."""
    groups = defaultdict(list)
    for node in _made_by(nodes):
        if isinstance(node, Tensor) and node.op not in LEAF_OPS and node.dtype in INEXACT:
            groups[node.op, node.code, node.lasti, node.shape, node.dtype].append(node)
    found: dict[int, list[Tensor]] = {}
    for group in sorted(groups.values(), key=lambda group: (-len(group), -group[-1].id)):
        if len(group) >= LEAST_STEPS and len(found) < _MOST_NESTED:
            found.setdefault(len(group), group)
    return [States(PLAIN, source_of(group[-1]), [[state] for state in group]) for group in found.values()]


def _made_by(nodes: Sequence[Node]) -> Iterator[Any]:
    """Yield nodes; of calls what they give, a step with several bodies is several of them."""
    for node in nodes:
        if type(node) is Call:
            kept = node.plan.recipes[: node.plan.fragment.results]
            yield from [output(node, i) for i, recipe in enumerate(kept) if recipe is not None]
        else:
            yield node
