"""The ops behind `Checkpointed`: a loop that keeps no history, and the backward pass through it.

``checkpointed_loop`` has the values of the loop, and derivative rules that need its inputs alone. In reverse they place
one node, ``reversed_loop``, whose kernel recomputes the states of the loop block by block and runs the adjoint through
them (`checkpointed_run`, `checkpointed_adjoint`). Forward, they place a loop of the same kind that carries the state
and its tangent along together, so it is reversed with few saved states as well.

Second derivatives follow from these two. With J the derivative of the loop at u, ``reversed_loop`` gives Jᴴ·c. What a
cotangent w of it contributes is J·w to c, and to u the gradient of ⟨J·w, c⟩: the loop with tangents w, and its adjoint.
Its tangent is an adjoint of the loop with tangents as well. So derivatives of any order keep few states.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unspool import _graph
from unspool._autodiff.loops.checkpointed_adjoint import AdjointLoop, Reverser, run_fragment
from unspool._autodiff.loops.checkpointed_run import Bodies, KeptOnce, Machine, bodies_of, go_back, run
from unspool._autodiff.loops.checkpointed_second import pull_reversal, push_reversal
from unspool._autodiff.loops.forms import KEEP, PARTS, form_of, joined, split
from unspool._autodiff.loops.loop import LOOP, Loop, loop_output
from unspool._autodiff.loops.rules import Derivative, adjoint_of, primal_of
from unspool._autodiff.loops.run import run_loop
from unspool._autodiff.loops.steps import TANGENT, Groups, grouped
from unspool._dtypes import BOOL
from unspool._fragments.fragment import Fragment, capture
from unspool._graph import Node
from unspool._ops.batching import rule_above
from unspool._ops.leaf import placeholder
from unspool._ops.op import INPUTS, STRUCTURE, JointRule, Op

if TYPE_CHECKING:
    from unspool._autodiff.loops.checkpointed import Checkpointed
    from unspool._graph import Bundle
    from unspool._tensor import Tensor


class Checkpoints:
    """The static part of a loop with few saved states: what it does, how it is reversed, and what a run has kept.

    Runs are told apart: what one has kept is of no use to another. A loop that has not run keeps nothing.
    """

    __slots__ = ("_key", "bodies", "saved", "strategy")

    def __init__(self, bodies: Bodies, strategy: Checkpointed, saved: KeptOnce | None = None) -> None:
        self.bodies = bodies
        self.strategy = strategy
        self.saved = saved
        self._key = (bodies, strategy, None if saved is None else id(saved))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Checkpoints) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"{self.bodies.loop!r} with {self.strategy!r}"

    @property
    def loop(self) -> Loop:
        """The loop as it was traced."""
        return self.bodies.loop

    def without_run(self) -> Checkpoints:
        """Return the same loop with nothing kept."""
        return Checkpoints(self.bodies, self.strategy)


def place_checkpointed(checkpoints: Checkpoints, inputs: Sequence[Node]) -> Bundle:
    """Return the node of a loop on constants and an initial state."""
    return _graph.apply_multi(CHECKPOINTED_LOOP, *inputs, checkpoints=checkpoints)


def outputs_of(node: Bundle) -> list[Tensor]:
    """Return the final state and the stacked outputs of a loop."""
    return [loop_output(node, i) for i in range(len(node.shape))]


# --- the loop --------------------------------------------------------------------------------------------------------


def _infer(*inputs: Node, checkpoints: Checkpoints) -> Any:
    return LOOP.infer(*inputs, loop=checkpoints.loop)


def _kernel(*arrays: Any, checkpoints: Checkpoints) -> tuple[Any, ...]:
    return run_loop(checkpoints.loop, arrays)


def _pull(
    needed: Sequence[bool], ct: Sequence[Any], out: Sequence[Any], *inputs: Any, checkpoints: Checkpoints
) -> list[Tensor | None]:
    primal = primal_of(checkpoints.bodies.recorded, len(checkpoints.loop.stacked), inputs, out)
    work = adjoint_of(primal, needed, ct)
    return _place_reversal(checkpoints, work, needed, inputs)


def _push(tangents: Sequence[Any], out: Sequence[Any], *inputs: Any, checkpoints: Checkpoints) -> Any:
    loop = checkpoints.loop
    primal = primal_of(loop, len(loop.stacked), inputs, out)
    wanted = Groups((True,) * loop.registers, (True,) * len(loop.stacked), ())
    work = Derivative(primal, TANGENT, grouped(loop, tangents, at_inputs=True), wanted, fused=True)
    outputs: list[Any] = []
    if work.loop.leaving or work.loop.stacked:
        given = [*work.constants, *work.entering]
        moving = Checkpoints(bodies_of(work.loop, given), checkpoints.strategy)
        outputs = outputs_of(place_checkpointed(moving, given))
    found = work.results(outputs, [])
    return (*[found.carried[r] for r in loop.leaving], *found.rows)


# Not registered: like the loop that it is, it is made of the ops inside.
CHECKPOINTED_LOOP = Op(
    "checkpointed_loop",
    infer=_infer,
    kernel=_kernel,
    vjp=JointRule(_pull),
    jvp=_push,
    params={"checkpoints": STRUCTURE},
    needs=(INPUTS,),
    multi=True,
    batch=rule_above("checkpointed"),
)


# --- from the loop to its reversal -----------------------------------------------------------------------------------


class Reversal(NamedTuple):
    """The static part of a backward pass through a loop.

    The inputs of its node are those of the loop, the parts of what arrives at the final state and at the stacked
    outputs, the constants of the adjoint, others that its registers begin with, and what is handed on as it arrived.
    Its outputs are the parts of what leaves.

    Attributes
    ----------
    checkpoints : Checkpoints
    adjoint : AdjointLoop
    arriving : tuple of (position, is_keep)
        For each arriving part, the output of the loop that it arrives at, and whether it says what to keep.
    entering : tuple of (kind, int)
        What the registers of the adjoint begin with: a part that is "arriving", or one of "others".
    leaving : tuple of (position, is_keep)
        For each part that leaves, the input of the loop that it belongs to, and whether it says what to keep.
    finish : Fragment
        Makes these of the registers and sums of the adjoint, its sums of outer products, and what is handed on.
    passing : int
        How much is handed on.
    """

    checkpoints: Checkpoints
    adjoint: AdjointLoop
    arriving: tuple[tuple[int, bool], ...]
    entering: tuple[tuple[str, int], ...]
    leaving: tuple[tuple[int, bool], ...]
    finish: Fragment
    passing: int

    def __repr__(self) -> str:
        return repr(self.checkpoints)

    def grouped(self, inputs: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
        """Split the inputs of the node into those of the loop, what arrives, and constants."""
        first = self.checkpoints.loop.inputs
        last = first + len(self.arriving)
        return inputs[:first], inputs[first:last], inputs[last:]

    def loop_on(self, inputs: Sequence[Node]) -> list[Tensor]:
        """Return the outputs of the loop on some inputs."""
        return outputs_of(place_checkpointed(self.checkpoints.without_run(), inputs))


def _place_reversal(
    checkpoints: Checkpoints, work: Derivative, needed: Sequence[bool], inputs: Sequence[Any]
) -> list[Tensor | None]:
    """Place the node that runs an adjoint, and return what leaves it, one entry per input of the loop."""
    parts = _Parts(work.arriving, checkpoints.loop)
    leaving, sums = _stand_ins_for(work, inputs)
    products = [placeholder(inputs[outer.place].shape, inputs[outer.place].dtype) for outer in work.outers]
    found = work.results([*leaving, *[None] * len(work.loop.stacked), *sums], products)
    initial = [found.carried[r] for r in checkpoints.loop.entering]
    results = [x if flag else None for x, flag in zip([*found.shared, *initial], needed, strict=True)]
    forms = tuple(map(form_of, results))
    targets = [part for x, form, node in zip(results, forms, inputs, strict=True) for part in split(x, form, node)]
    if work.is_idle or not targets:
        return results
    finish, entering, _ = capture([*leaving, *sums, *products], targets)
    # What is handed on as it arrived comes last.
    passing = entering[len(leaving) + len(sums) + len(products) :]
    starts, others = parts.sources(work.entering)
    reversal = Reversal(
        checkpoints,
        AdjointLoop(work.loop, tuple([parts.row(source) for source in work.sources]), work.outers),
        tuple(parts.places),
        tuple(starts),
        tuple([(i, name == KEEP) for i, form in enumerate(forms) for name in PARTS[form]]),
        finish,
        len(passing),
    )
    node = _graph.apply_multi(
        REVERSED_LOOP, *inputs, *parts.tensors, *work.constants, *others, *passing, reversal=reversal
    )
    left = iter(outputs_of(node))
    return [joined([next(left) for _ in PARTS[form]]) for form in forms]


def _stand_ins_for(work: Derivative, inputs: Sequence[Any]) -> tuple[list[Tensor], list[Tensor]]:
    """Return stand-ins for the registers that leave an adjoint, and for its sums."""
    found = work.signature()
    registers = [placeholder(*found.registers[r]) for r in work.loop.leaving]
    return registers, [placeholder(*kind) for kind in found.sums]


class _Parts:
    """The parts of what arrives at the outputs of a loop; ``places`` has (position, is_keep) for each."""

    def __init__(self, arriving: Groups, loop: Loop) -> None:
        self.tensors: list[Any] = []
        self.places: list[tuple[int, bool]] = []
        self._rows: dict[tuple[str, int], int] = {}
        for position, r in enumerate(loop.leaving):
            self._add(arriving.carried[r], position)
        self._carried = len(self.tensors)
        for i, ct in enumerate(arriving.rows):
            names = PARTS[form_of(ct)]
            self._rows.update(((name, i), len(self.tensors) - self._carried + k) for k, name in enumerate(names))
            self._add(ct, len(loop.leaving) + i)

    def _add(self, ct: Any, position: int) -> None:
        form = form_of(ct)
        self.tensors += split(ct, form, ct)
        self.places += [(position, name == KEEP) for name in PARTS[form]]

    def row(self, source: tuple[str, int]) -> tuple[str, int]:
        """Return where rows of an adjoint come from, for its kernel."""
        kind, at = source
        return ("record", at) if kind == "stacked" else ("arriving", self._rows[source])

    def sources(self, tensors: Sequence[Any]) -> tuple[list[tuple[str, int]], list[Any]]:
        """Tell where tensors come from: what is "arriving", or "others", which are returned."""
        known = {tensor.id: i for i, tensor in enumerate(self.tensors[: self._carried])}
        others = [tensor for tensor in tensors if tensor.id not in known]
        numbers = iter(range(len(others)))
        return [("arriving", known[x.id]) if x.id in known else ("others", next(numbers)) for x in tensors], others


# --- the reversal ----------------------------------------------------------------------------------------------------


def _infer_reversed(*inputs: Node, reversal: Reversal) -> list[tuple[Any, Any]]:
    return [(inputs[at].shape, BOOL if keep else inputs[at].dtype) for at, keep in reversal.leaving]


def _kernel_reversed(*arrays: Any, reversal: Reversal) -> tuple[Any, ...]:
    checkpoints, loop = reversal.checkpoints, reversal.adjoint.loop
    given, arriving, rest = reversal.grouped(arrays)
    kept = None if checkpoints.saved is None else checkpoints.saved.take(given)
    if kept is None:
        kept = run(checkpoints.bodies, given, checkpoints.strategy, show=False).kept
    constants, rest = rest[: loop.constants], rest[loop.constants :]
    sources = {"arriving": arriving, "others": rest}
    carry = [sources[kind][at] for kind, at in reversal.entering]
    final = len(checkpoints.loop.leaving)
    rows = [x for x, (at, _) in zip(arriving, reversal.arriving, strict=True) if at >= final]
    reverser = Reverser(reversal.adjoint, constants, carry, rows)
    go_back(Machine(checkpoints.bodies, given), kept, reverser.take, checkpoints.strategy)
    others = sum(kind == "others" for kind, _ in reversal.entering)
    found = run_fragment(reversal.finish, [*reverser.outputs(), *rest[others:]])
    return tuple(map(np.asarray, found))


def _passes(params: Any) -> list[bool]:
    """Return through which inputs derivatives pass: not what an adjoint stands on beside the loop and what arrives."""
    reversal = params["reversal"]
    numbers = [not keep for _, keep in reversal.arriving]
    others = sum(kind == "others" for kind, _ in reversal.entering) + reversal.passing
    return [True] * reversal.checkpoints.loop.inputs + numbers + [False] * (reversal.adjoint.loop.constants + others)


def _push_reversed(tangents: Sequence[Any], out: Sequence[Any], *inputs: Any, reversal: Reversal) -> Any:
    return push_reversal(tangents, inputs, reversal)


def _pull_reversed(
    needed: Sequence[bool], ct: Sequence[Any], out: Sequence[Any], *inputs: Any, reversal: Reversal
) -> list[Tensor | None]:
    return pull_reversal(needed, ct, inputs, reversal)


# Not registered either.
REVERSED_LOOP = Op(
    "reversed_loop",
    infer=_infer_reversed,
    kernel=_kernel_reversed,
    vjp=JointRule(_pull_reversed, _passes),
    jvp=_push_reversed,
    params={"reversal": STRUCTURE},
    needs=(INPUTS,),
    multi=True,
    batch=rule_above("reversed_loop"),
)
