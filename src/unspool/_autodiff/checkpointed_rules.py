"""The ops behind `Checkpointed`: a loop that keeps no history, and the sweep back through it.

``checkpointed_loop`` has the values of the loop, and derivative rules that need its inputs alone. In reverse they place
one node, ``reversed_loop``, whose kernel rebuilds the states of the loop block by block and runs the adjoint through
them (`checkpointed_run`, `checkpointed_adjoint`); forward, a loop that carries tangents along (`checkpointed_tangent`).

Second derivatives follow from these two. With J the derivative of the loop at u, ``reversed_loop`` gives Jᴴ·c. What a
cotangent w of it contributes is J·w to c, and to u the gradient of ⟨J·w, c⟩: the loop with tangents w, and its adjoint.
Its tangent is an adjoint of the loop with tangents as well. So derivatives of any order keep few states.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unspool import _graph
from unspool._autodiff.checkpointed_adjoint import AdjointStretch, Reverser, run_fragment
from unspool._autodiff.checkpointed_run import Bodies, KeptOnce, Stepper, go_back, run_known
from unspool._autodiff.checkpointed_second import pull_reversal, push_reversal
from unspool._autodiff.checkpointed_tangent import push_steps
from unspool._autodiff.loop import LOOP, Loop, loop_output
from unspool._autodiff.loop_rules import Stretch, Transform, join_carry, joined_parts
from unspool._autodiff.loop_run import run_loop
from unspool._autodiff.loop_steps import ADJOINT, MASKED, PLAIN, Groups, active_carries, form_of, grouped, split
from unspool._dtypes import BOOL
from unspool._fragments.fragment import Fragment, capture
from unspool._graph import Node
from unspool._ops.leaf import placeholder
from unspool._ops.op import INPUTS, STRUCTURE, JointRule, Op

if TYPE_CHECKING:
    from unspool._autodiff.checkpointed import Checkpointed
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
    primal = _Primal(checkpoints, inputs, out)
    arriving = grouped(checkpoints.loop, tuple(ct), at_inputs=False)
    padding = (None,) * (primal.loop.stacked - checkpoints.loop.stacked)
    wanted = grouped(primal.loop, tuple(needed), at_inputs=True)
    active = active_carries(primal.loop, primal.shapes, wanted)
    carried = tuple([x if flag else None for x, flag in zip(arriving.carried, active, strict=True)])
    work = _Reversal(primal, Groups(carried, arriving.rows + padding, ()), wanted._replace(carried=active))
    work.run()
    initial = [x if flag else None for x, flag in zip(work.carry, wanted.carried, strict=True)]
    return work.place([*work.sums(), *initial], inputs)


def _push(tangents: Sequence[Any], out: Sequence[Any], *inputs: Any, checkpoints: Checkpoints) -> Any:
    return push_steps(checkpoints, tangents, inputs, out)


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
)


# --- from the loop to its reversal -----------------------------------------------------------------------------------


class _Primal:
    """The loop to reverse: what a `Transform` looks at."""

    def __init__(self, checkpoints: Checkpoints, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        self.checkpoints = checkpoints
        self.loop = checkpoints.bodies.recorded
        self.shapes = self.loop.row_shapes(inputs)
        self.inputs = grouped(self.loop, inputs, at_inputs=True)
        self.outputs = grouped(checkpoints.loop, outputs, at_inputs=False)


class Reversal(NamedTuple):
    """The static part of a sweep back through a loop.

    The inputs of its node are those of the loop, the parts of what arrives at the final state and at the stacked
    outputs, and the constants of each stretch. Its outputs are the parts of what leaves.

    Attributes
    ----------
    checkpoints : Checkpoints
    stretches : tuple of AdjointStretch
    arriving : tuple of (position, is_keep)
        For each arriving part, the output of the loop that it arrives at, and whether it says what to keep. Those at
        the final state come first.
    leaving : tuple of (position, is_keep)
        The same for each part that leaves, with the inputs of the loop.
    finish : Fragment
        Adds up what the stretches give.
    """

    checkpoints: Checkpoints
    stretches: tuple[AdjointStretch, ...]
    arriving: tuple[tuple[int, bool], ...]
    leaving: tuple[tuple[int, bool], ...]
    finish: Fragment

    def __repr__(self) -> str:
        return repr(self.checkpoints)

    def grouped(self, inputs: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
        """Split the inputs of the node into those of the loop, what arrives, and constants."""
        loop = self.checkpoints.loop
        first = loop.constants + loop.carries
        last = first + len(self.arriving)
        return inputs[:first], inputs[first:last], inputs[last:]


# Whether a part of a cotangent says what to keep, for each part that a form has.
_PARTS: dict[str | None, tuple[bool, ...]] = {None: (), PLAIN: (False,), MASKED: (False, True)}


class _Reversal(Transform):
    """An adjoint in the making that places no steps: it describes them for the kernel of ``reversed_loop``."""

    def __init__(self, primal: _Primal, arriving: Groups, wanted: Groups) -> None:
        super().__init__(primal, ADJOINT, arriving, wanted)
        carries = primal.loop.carries
        self._arriving: list[tuple[int, bool]] = []
        self._parts: list[Any] = []
        self._row_parts: dict[tuple[str, int], int] = {}
        for i, ct in enumerate(arriving.rows):
            for part, name in zip(split(ct, form_of(ct), ct), ("number", "keep"), strict=False):
                self._row_parts[name, i] = len(self._parts)
                self._parts.append(part)
                self._arriving.append((carries + i, name == "keep"))
        self._stretches: list[AdjointStretch] = []
        self._constants: list[Any] = []
        self._entering: list[Any] = []
        self._carry_parts: list[Tensor] = []
        self._terms: list[Tensor] = []

    def peel(self, stretch: Stretch) -> None:
        """Describe one step."""
        self._describe(stretch)

    def loop(self, stretch: Stretch) -> None:
        """Describe the rest."""
        self._describe(stretch)

    def _describe(self, stretch: Stretch) -> None:
        step = stretch.step
        parts = self.split_carry(stretch.forms)
        entering = None
        if not self._stretches:
            self._entering = parts
        elif tuple(map(form_of, self.carry)) != stretch.forms:
            entering = capture(self._carry_parts, parts).fragment
        constants = self.constants(step)
        places = zip(self.here.carried, step.carry, strict=True)
        carry = [_stand_in(node, keep) for node, form in places for keep in _PARTS[form]]
        outer = self._collect_terms(step)
        rows = [
            ("record", at) if kind == "stacked" else ("arriving", self._row_parts[kind, at]) for kind, at in step.rows
        ]
        self._stretches.append(
            AdjointStretch(
                step.body, entering, len(constants), tuple(rows), step.counts, outer, stretch.steps, stretch.peeled
            )
        )
        self._constants += constants
        self._carry_parts = carry
        self.carry = join_carry(step.carry, carry)

    def _collect_terms(self, step: Any) -> tuple[Any, ...]:
        """Add stand-ins for what a stretch gives to the sums; return the outer products among it."""
        sums: dict[int, Tensor] = {}
        outer, products = [], []
        for i, (terms, node) in enumerate(zip(step.sums, self.there.shared, strict=True)):
            for term in terms:
                if term[0] == "outer":
                    outer.append(term[1:])
                    products.append(_stand_in(node, False))
                    self.add(i, products[-1])
                else:
                    sums.update((at, _stand_in(node, k == 1)) for k, at in enumerate(term[1:]))
                    self.add(i, joined_parts(term, sums))  # type: ignore[arg-type]
        self._terms += [*[sums[at] for at in range(step.counts[2])], *products]
        return tuple(outer)

    def place(self, results: Sequence[Any], inputs: Sequence[Any]) -> list[Tensor | None]:
        """Place the node, and return what leaves it, one entry per input of the loop."""
        forms = [form_of(result) for result in results]
        targets, leaving = [], []
        for i, (result, form) in enumerate(zip(results, forms, strict=True)):
            parts = split(result, form, inputs[i])
            targets += parts
            leaving += [(i, k == 1) for k in range(len(parts))]
        if not targets:
            return [None] * len(results)
        finish = capture([*self._carry_parts, *self._terms], targets).fragment
        carried = [(i, keep) for i, ct in enumerate(self.arriving.carried) for keep in _PARTS[form_of(ct)]]
        reversal = Reversal(
            self.primal.checkpoints, tuple(self._stretches), (*carried, *self._arriving), tuple(leaving), finish
        )
        entering = [*self._entering, *self._parts, *self._constants]
        node = _graph.apply_multi(REVERSED_LOOP, *inputs, *entering, reversal=reversal)
        return join_carry(tuple(forms), outputs_of(node))


def _stand_in(node: Node, keep: bool) -> Tensor:
    """Return a stand-in for a part of a cotangent of a node."""
    return placeholder(node.shape, BOOL if keep else node.dtype)


# --- the reversal ----------------------------------------------------------------------------------------------------


def _infer_reversed(*inputs: Node, reversal: Reversal) -> list[tuple[Any, Any]]:
    return [(inputs[at].shape, BOOL if keep else inputs[at].dtype) for at, keep in reversal.leaving]


def _kernel_reversed(*arrays: Any, reversal: Reversal) -> tuple[Any, ...]:
    checkpoints, stretches = reversal.checkpoints, reversal.stretches
    given, arriving, rest = reversal.grouped(arrays)
    stepper = Stepper(checkpoints.bodies, given)
    kept = None if checkpoints.saved is None else checkpoints.saved.take(given)
    if kept is None:
        kept = run_known(stepper, checkpoints.strategy, False).kept
    constants, left = [], list(rest)
    for stretch in stretches:
        constants.append(left[: stretch.constants])
        del left[: stretch.constants]
    carries = checkpoints.loop.carries
    carry = [x for x, (at, _) in zip(arriving, reversal.arriving, strict=True) if at < carries]
    reverser = Reverser(stretches, constants, carry, arriving[len(carry) :])
    go_back(stepper, kept, reverser.take)
    found = run_fragment(reversal.finish, [*reverser.carry, *reverser.terms])
    return tuple(map(np.asarray, found))


def _passes(params: Any) -> list[bool]:
    """Return through which inputs derivatives pass: not constants of stretches, which are made of those of the loop."""
    reversal = params["reversal"]
    loop = reversal.checkpoints.loop
    numbers = [not keep for _, keep in reversal.arriving]
    constants = sum(stretch.constants for stretch in reversal.stretches)
    return [True] * (loop.constants + loop.carries) + numbers + [False] * constants


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
)
