"""The op ``loop``: steps made by one or several bodies, as one node.

A body reads constants, *registers* and one row of each stacked input. At its end it assigns registers, all at once; it
gives one row of each stacked output, and terms of sums over the steps. These kinds belong together in pairs: a constant
is read by all steps and a sum is fed by all, a stacked input is read and a stacked output is fed row by row.
Differentiation maps each kind to its partner (reverse mode) or to itself (forward mode), so the derivative of a loop is
a loop, to any order.

A loop may have several bodies, and says for each step which of them runs. Each has a list of what it reads and what it
fills, so a value may be *absent*: a register that nobody has assigned yet is not read, and a step may write no row of a
stack. An absent value is not a zero, since 0·∞ is not nothing.

Nodes have the inputs (constants, registers before the first step, stacked inputs) and the outputs (registers after the
last step, stacked outputs, sums).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from unspool import _graph
from unspool._autodiff.sweeps.late import late
from unspool._dims import is_concrete
from unspool._engine.default import default_engine
from unspool._fragments.fragment import Fragment
from unspool._graph import Node, origin_scope
from unspool._ops.batching import rule_above
from unspool._ops.leaf import CONSTANT, placeholder
from unspool._ops.op import INPUTS, OUTPUT, PART, STRUCTURE, JointRule, Op
from unspool.errors import StructureError

if TYPE_CHECKING:
    from unspool._engine.plan import Plan
    from unspool._graph import Bundle
    from unspool._tensor import Tensor

MOST_BODIES = 8

# The steps that a stack has rows for, from the first to before the last; None stands for all steps of its loop.
Extent = tuple[int, int]

# One alternative for each body: a reference to what came before would take a hundred times as long.
_RUN = re.compile(b"|".join(re.escape(bytes([body])) + b"+" for body in range(MOST_BODIES)))


class Body(NamedTuple):
    """What one step does, and what of the loop it reads and fills, by position.

    Attributes
    ----------
    fragment : Fragment
        Inputs: constants, registers, rows of stacked inputs. Results: registers, rows of stacked outputs, terms of
        sums.
    constants, reads, rows : tuple of int
        The constants, registers and stacked inputs that it reads.
    assigns, stacked, sums : tuple of int
        The registers that it assigns when it ends, the stacked outputs that it writes a row of, and the sums that it
        adds to. A register that it does not assign stays.
    """

    fragment: Fragment
    constants: tuple[int, ...]
    reads: tuple[int, ...]
    rows: tuple[int, ...]
    assigns: tuple[int, ...]
    stacked: tuple[int, ...]
    sums: tuple[int, ...]

    @property
    def touched(self) -> tuple[int, ...]:
        """The registers that it reads or assigns."""
        return (*self.reads, *[r for r in self.assigns if r not in self.reads])

    @property
    def is_idle(self) -> bool:
        """Whether nothing comes out of it."""
        return not self.fragment.outputs


class Loop(NamedTuple):
    """What a loop does, without what it does it to.

    Attributes
    ----------
    bodies : tuple of Body
        At most `MOST_BODIES`; each runs at least once.
    constants : int
    entering, leaving : tuple of int
        The registers that have a value before the first step, and those whose value after the last step is an output.
    rows, stacked : tuple of (int, int) or None
        For each stacked input and output the steps that it has rows for; ``None`` for all.
    sums : int
        How many there are. The first term of a sum is assigned, so each needs a body that adds to it.
    steps : int
        At least 1. Steps are numbered by the rows that they read and write.
    reverse : bool
        Whether it goes from the last step to the first.
    recorded : int
        How many of the stacked outputs are a record for derivatives (`record`); they are the last ones.
    which : bytes
        The body of each step; empty if there is one body.
    """

    bodies: tuple[Body, ...]
    constants: int
    entering: tuple[int, ...]
    leaving: tuple[int, ...]
    rows: tuple[Extent | None, ...]
    stacked: tuple[Extent | None, ...]
    sums: int
    steps: int
    reverse: bool = False
    recorded: int = 0
    which: bytes = b""

    def __repr__(self) -> str:
        direction = ", last row first" if self.reverse else ""
        return f"<{self.steps} steps of {' or '.join(str(len(body.fragment)) for body in self.bodies)} ops{direction}>"

    @property
    def registers(self) -> int:
        """How many registers there are."""
        touched = [r for body in self.bodies for r in (*body.reads, *body.assigns)]
        return 1 + max((-1, *self.entering, *touched))

    @property
    def inputs(self) -> int:
        """How many inputs its node has."""
        return self.constants + len(self.entering) + len(self.rows)

    def extent(self, declared: Extent | None) -> Extent:
        """Return the steps that a stack has rows for."""
        return declared or (0, self.steps)

    def runs(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """Yield the runs of one body among the steps of a range, in the order in which they are made.

        Each is a body, its first step and the one after its last.
        """
        if not self.which:
            yield 0, start, stop
            return
        found: Any = _RUN.finditer(self.which, start, stop)
        for match in reversed(list(found)) if self.reverse else found:
            yield self.which[match.start()], match.start(), match.end()

    def in_order(self) -> list[int]:
        """Return the bodies in the order in which they first run."""
        if not self.which:
            return [0]
        find = self.which.rfind if self.reverse else self.which.find
        return sorted(set(self.which), key=find, reverse=self.reverse)

    def presence(self, bodies: Collection[int]) -> tuple[Extent, bool]:
        """Return the extent of the steps that some bodies make, and whether they make all steps in it."""
        if not self.which:
            return (0, self.steps), True
        marks = self.marks(bodies)
        extent = marks.find(1), marks.rfind(1) + 1
        return extent, marks.count(1) == extent[1] - extent[0]

    def marks(self, bodies: Collection[int]) -> bytes:
        """Return a byte for each step: 1 if one of some bodies makes it, else 0."""
        if not self.which:
            return bytes([0 in bodies]) * self.steps
        return self.which.translate(bytes([number in bodies for number in range(256)]))


def one_body(
    fragment: Fragment,
    *,
    steps: int,
    constants: int = 0,
    carries: int = 0,
    rows: int = 0,
    stacked: int = 0,
    sums: int = 0,
    reverse: bool = False,
) -> Loop:
    """Return the loop that repeats a fragment, which reads and assigns all registers."""
    carried = tuple(range(carries))
    body = Body(
        fragment,
        tuple(range(constants)),
        carried,
        tuple(range(rows)),
        carried,
        tuple(range(stacked)),
        tuple(range(sums)),
    )
    return Loop((body,), constants, carried, carried, (None,) * rows, (None,) * stacked, sums, steps, reverse)


class Placing(NamedTuple):
    """How nodes of a loop on inputs of some shapes and dtypes are made: parameters, shapes, dtypes and key."""

    params: Any
    shapes: Any
    dtypes: Any
    key: tuple[Any, ...]

    def place(self, inputs: tuple[Node, ...]) -> Bundle:
        """Return the node on inputs, which are of these shapes and dtypes."""
        found: Any = _graph.find(LOOP, inputs, self[3])
        return found or _graph.intern_bundle(LOOP, inputs, *self)


def placing_of(loop: Loop, inputs: Sequence[Node]) -> Placing:
    """Return how nodes of a loop on inputs like some are made."""
    facts, kinds = facts_of(loop), tuple([(x.shape, x.dtype) for x in inputs])
    found: Placing | None = facts.get(kinds)
    if found is None:
        made = _graph.apply_multi(LOOP, *inputs, loop=loop)
        found = facts[kinds] = Placing(made.attributes, made.shape, made.dtype, made.key)
    return found


def place_loop(loop: Loop, inputs: Sequence[Node]) -> Bundle:
    """Return the node of a loop on inputs."""
    return placing_of(loop, inputs).place(tuple(inputs))


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
    known = is_concrete(tuple(chain.from_iterable(shapes)))
    return default_engine().plans.plan_for(body, shapes) if known else None


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


# --- shapes ----------------------------------------------------------------------------------------------------------


class Signature(NamedTuple):
    """The shapes in a loop.

    Attributes
    ----------
    bodies : list of tuple of Shape
        Of the inputs of each body.
    registers, stacked, sums : list of (Shape, dtype)
        Of each register, of a row of each stacked output, and of each sum. The dtype of a register that no body touches
        is ``None``.
    """

    bodies: list[Any]
    registers: list[Any]
    stacked: list[Any]
    sums: list[Any]


def signature_of(loop: Loop, shapes: Sequence[Any]) -> Signature:
    """Return the shapes in a loop from those of its inputs."""
    found: Signature = found_once(loop, shapes, "signature", lambda: _found_signature(loop, shapes))
    return found


# Objects of which something is known without their being compared with others.
_MOST_OBJECTS = 1 << 10


def facts_of(thing: Any) -> dict[Any, Any]:
    """Return what is known of this very object, which may be added to.

    Programs that are run again come by the same objects, and to compare loops takes longer than to make a step.
    """
    known = default_engine().plans.known_of("objects")
    found = known.get(id(thing))
    if found is None:
        if len(known) >= _MOST_OBJECTS:
            known.clear()
        # It is held, so no other object comes to have its address.
        found = known[id(thing)] = thing, {}
    facts: dict[Any, Any] = found[1]
    return facts


def known_of(loop: Loop, shapes: Sequence[Any]) -> dict[Any, Any]:
    """Return what is known of a loop on inputs of some shapes, which may be added to; nothing if sizes are not known.

    Of a loop with one body it must not depend on the number of steps.
    """
    last = loop.constants + len(loop.entering)
    # All but the number of steps, which is that of the bodies to run if there are several.
    given = (*shapes[:last], *[shape[1:] for shape in shapes[last:]])
    known = default_engine().plans.known_of((loop[:7], loop[8:], given))
    return known if known or is_concrete(tuple(chain.from_iterable(given))) else {}


def found_once(loop: Loop, shapes: Sequence[Any], name: Any, find: Callable[[], Any]) -> Any:
    """Return what is found from a loop on inputs of some shapes, once if sizes are known."""
    known = known_of(loop, shapes)
    found = known.get(name)
    if found is None:
        found = known[name] = find()
    return found


def _found_signature(loop: Loop, shapes: Sequence[Any]) -> Signature:
    first, last = loop.constants, loop.constants + len(loop.entering)
    rows = [shape[1:] for shape in shapes[last:]]
    registers: list[Any] = [None] * loop.registers
    for r, shape in zip(loop.entering, shapes[first:last], strict=True):
        registers[r] = shape, None
    found = Signature([None] * len(loop.bodies), registers, [None] * len(loop.stacked), [None] * loop.sums)
    for number in loop.in_order():
        body = loop.bodies[number]
        found.bodies[number] = given = (
            *[shapes[i] for i in body.constants],
            *[registers[r][0] for r in body.reads],
            *[rows[i] for i in body.rows],
        )
        results = iter(result_types(body.fragment, given))
        for r in body.assigns:
            registers[r] = next(results)
        for i in body.stacked:
            found.stacked[i] = next(results)
        for i in body.sums:
            found.sums[i] = next(results)
        for r, dtype in zip(body.reads, body.fragment.dtypes[len(body.constants) :], strict=False):
            registers[r] = registers[r][0], dtype
    return found


def result_types(fragment: Fragment, shapes: tuple[Any, ...]) -> list[tuple[Any, Any]]:
    """Return shapes and dtypes of the outputs of a fragment."""
    plan = body_plan(fragment, shapes)
    if plan is None:
        return [(x.shape, x.dtype) for x in apply_fragment(fragment, stand_ins(fragment, shapes))]
    return list(zip(plan.output_shapes, plan.output_dtypes, strict=True))


# --- the op ----------------------------------------------------------------------------------------------------------


def _infer(*inputs: Node, loop: Loop) -> list[tuple[Any, Any]]:
    _check(loop)
    found = signature_of(loop, [x.shape for x in inputs])
    stacked = []
    for (shape, dtype), declared in zip(found.stacked, loop.stacked, strict=True):
        start, stop = loop.extent(declared)
        stacked.append(((stop - start, *shape), dtype))
    leaving = [found.registers[r] for r in loop.leaving]
    for i, r in enumerate(loop.leaving):
        if leaving[i][1] is None:
            # No body touches it.
            leaving[i] = leaving[i][0], inputs[loop.constants + loop.entering.index(r)].dtype
    return [*leaving, *stacked, *found.sums]


def _check(loop: Loop) -> None:
    """Raise if it is not said which body runs in each step."""
    bodies = len(loop.bodies)
    if bodies == 1 and not loop.which:
        return
    if bodies > MOST_BODIES:
        raise StructureError(f"a loop has at most {MOST_BODIES} bodies, got {bodies}")
    if (bodies > 1 or loop.which) and (len(loop.which) != loop.steps or set(loop.which) != set(range(bodies))):
        raise StructureError(
            f"which body runs has to be said for each of {loop.steps} steps, and each of {bodies} bodies has to run; "
            f"got {len(loop.which)} steps of the bodies {sorted(set(loop.which))}"
        )


def _kernel(*arrays: Any, loop: Loop) -> tuple[Any, ...]:
    return late.run_loop(loop, arrays)


def _pull(needed: Sequence[bool], ct: Sequence[Any], out: Sequence[Any], *inputs: Any, loop: Loop) -> list[Any]:
    return late.pull_loop(loop, needed, ct, out, inputs)


def _push(tangents: Sequence[Any], out: Sequence[Any], *inputs: Any, loop: Loop) -> Any:
    return late.push_loop(loop, tangents, out, inputs)


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
    loop=True,
    batch=rule_above("loop"),
)
