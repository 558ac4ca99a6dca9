"""The op ``loop``: a fragment applied a number of times, as one node.

A body reads constants, values carried from step to step, and one row of each stacked input. It gives the carried
values of the next step, one row of each stacked output, and terms of sums over the steps. These kinds belong together
in pairs: a constant is read by all steps and a sum is fed by all, a stacked input is read and a stacked output is fed
row by row. Differentiation maps each kind to its partner (reverse mode) or to itself (forward mode), so the derivative
of a loop is a loop, to any order.

Nodes have the inputs (constants, initial carry, stacked inputs) and the outputs (final carry, stacked outputs, sums).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from unspool import _graph
from unspool._dims import is_concrete
from unspool._engine.default import default_engine
from unspool._fragments.fragment import Fragment
from unspool._graph import Node, origin_scope
from unspool._ops.leaf import CONSTANT, placeholder
from unspool._ops.op import INPUTS, OUTPUT, PART, STRUCTURE, JointRule, Op

if TYPE_CHECKING:
    from unspool._engine.plan import Plan
    from unspool._graph import Bundle
    from unspool._tensor import Tensor


class Loop(NamedTuple):
    """What a loop does, without what it does it to.

    Attributes
    ----------
    body : Fragment
        Inputs: constants, carry, rows of stacked inputs. Results: carry, rows of stacked outputs, terms of sums.
    constants, carries, rows, stacked, sums : int
        How many there are of each.
    steps : int
        At least 1.
    reverse : bool
        Whether it goes through the rows from the last to the first.
    recorded : int
        How many of the stacked outputs are a record for derivatives (`loop_record`); they are the last ones.
    """

    body: Fragment
    constants: int
    carries: int
    rows: int
    stacked: int
    sums: int
    steps: int
    reverse: bool = False
    recorded: int = 0

    def __repr__(self) -> str:
        direction = ", last row first" if self.reverse else ""
        return f"<{self.steps} steps of {len(self.body)} ops{direction}>"

    def row_shapes(self, inputs: Sequence[Node]) -> tuple[Any, ...]:
        """Return the shapes that the body sees."""
        whole = self.constants + self.carries
        return tuple([x.shape if i < whole else x.shape[1:] for i, x in enumerate(inputs)])


def place_loop(loop: Loop, inputs: Sequence[Node]) -> Bundle:
    """Return the node of a loop on inputs."""
    return _graph.apply_multi(LOOP, *inputs, loop=loop)


def loop_output(node: Bundle, index: int) -> Tensor:
    """Return one output of a loop."""
    return _graph.apply(PART, node, index=index)


def take_values(outputs: Sequence[Tensor]) -> None:
    """Give the outputs of a loop that has run their values: rows of its record need no evaluation of their own."""
    for index, tensor in enumerate(outputs):
        values = tensor.inputs[0].value
        if tensor.value is None and values is not None:
            tensor.value = values[index]


def body_plan(body: Fragment, shapes: tuple[Any, ...]) -> Plan | None:
    """Return the plan of a body, or ``None`` if sizes are not known yet."""
    return default_engine().plans.plan_for(body, shapes) if all(map(is_concrete, shapes)) else None


# --- fragments as graph ----------------------------------------------------------------------------------------------


def stand_ins(fragment: Fragment, shapes: Sequence[Any]) -> list[Tensor]:
    """Return placeholders for the inputs of a fragment."""
    return [placeholder(shape, dtype) for shape, dtype in zip(shapes, fragment.dtypes, strict=True)]


def apply_fragment(fragment: Fragment, inputs: Sequence[Node]) -> list[Tensor]:
    """Place the ops of a fragment on nodes, one by one, and return its outputs, residuals included."""
    plan = body_plan(fragment, tuple([node.shape for node in inputs]))
    nodes: list[Any] = list(inputs)
    with origin_scope() as origin:
        for position, (op, operands, params) in enumerate(fragment.body):
            origin.code, origin.lasti = fragment.origins[position]
            if op is CONSTANT:
                nodes.append(params["literal"].node())
                continue
            if plan is not None:
                params = plan.params[position]
            apply = _graph.apply_multi if op.multi else _graph.apply
            nodes.append(apply(op, *[nodes[slot] for slot in operands], **params))
    return [nodes[slot] for slot in fragment.outputs]


# --- the op ----------------------------------------------------------------------------------------------------------


def _infer(*inputs: Node, loop: Loop) -> list[tuple[Any, Any]]:
    shapes = loop.row_shapes(inputs)
    plan = body_plan(loop.body, shapes)
    if plan is None:
        found = [(x.shape, x.dtype) for x in apply_fragment(loop.body, stand_ins(loop.body, shapes))]
    else:
        found = list(zip(plan.output_shapes, plan.output_dtypes, strict=True))
    last = loop.carries + loop.stacked
    return [
        ((loop.steps, *shape) if loop.carries <= i < last else shape, dtype) for i, (shape, dtype) in enumerate(found)
    ]


def _kernel(*arrays: Any, loop: Loop) -> tuple[Any, ...]:
    from unspool._autodiff.loop_run import run_loop  # the runner reads loops

    return run_loop(loop, arrays)


def _pull(needed: Sequence[bool], ct: Sequence[Any], out: Sequence[Any], *inputs: Any, loop: Loop) -> list[Any]:
    from unspool._autodiff.loop_rules import pull_loop  # the rules place loops

    return pull_loop(loop, needed, ct, out, inputs)


def _push(tangents: Sequence[Any], out: Sequence[Any], *inputs: Any, loop: Loop) -> Any:
    from unspool._autodiff.loop_rules import push_loop

    return push_loop(loop, tangents, out, inputs)


# Not registered: nobody applies it by name, and its rules are those of the ops inside.
LOOP = Op(
    "loop",
    infer=_infer,
    kernel=_kernel,
    vjp=JointRule(_pull),
    jvp=_push,
    params={"loop": STRUCTURE},
    needs=(INPUTS, OUTPUT),
    multi=True,
)
