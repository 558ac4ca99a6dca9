"""The batching rule of a loop: the loop of the batched bodies.

Which registers differ among members is found by following the steps until nothing changes; others stay as they are, so
a counter, and what is read of data by it, remain those of one member. A stack has the steps along its first axis and
the members along its second. Matrices that all members share may be read as transposed copies (`turning`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from unspool._autodiff.loops.checkpointed_rules import Checkpoints, Reversal, outputs_of, place_checkpointed
from unspool._autodiff.loops.checkpointed_run import bodies_of
from unspool._autodiff.loops.forms import MASKED, PLAIN, split
from unspool._autodiff.loops.gather import gather
from unspool._autodiff.loops.loop import Body, Loop, facts_of, found_once, loop_output, place_loop, signature_of
from unspool._autodiff.sweeps.chain import StepKind, follow_steps
from unspool._autodiff.sweeps.reverse import pullback
from unspool._autodiff.sweeps.substitution import substitute
from unspool._batching.images import BatchedFragment, Image, batch_fragment, place_batched, spread_image
from unspool._batching.mapped import mapped
from unspool._batching.turning import turned, with_turned
from unspool._dims import Size
from unspool._fragments.fragment import Fragment
from unspool._ops.batching import Members
from unspool._ops.contraction.contract import form_of, split_subscripts
from unspool._ops.elementwise import mask
from unspool._ops.layout import moveaxis, stack
from unspool._ops.leaf import placeholder

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def batch_loop(op: Any, members: Members, *inputs: Tensor, loop: Loop) -> list[Image]:
    """Return the images of the outputs of a loop."""
    work = _batching(loop, members, inputs)
    node = place_loop(work.loop, work.inputs(inputs))
    return work.images([loop_output(node, i) for i in range(len(node.shape))])


def batched_body(
    loop: Loop, count: Size, batched: Sequence[bool], inputs: Sequence[Tensor]
) -> tuple[Fragment, list[bool]]:
    """Return the one body of a loop for all members, and which registers differ among them."""
    work = _batching(loop, Members(count, tuple(batched)), inputs)
    return work.plain[0].fragment, list(work.registers)


def _batching(loop: Loop, members: Members, inputs: Sequence[Tensor]) -> _Batching:
    """Return a loop for all members, the very same object for the same loop on inputs of the same shapes."""
    shapes = tuple([x.shape[1:] if flag else x.shape for x, flag in zip(inputs, members.batched, strict=True)])
    facts, key = facts_of(loop), ("batched", members.count, members.batched, shapes)
    found: _Batching | None = facts.get(key)
    if found is None:
        found = facts[key] = _Batching(loop, members, shapes)
    return found


class _Batching:
    """A loop with those of its values that differ among members.

    Attributes
    ----------
    loop : Loop
        That of all members.
    plain : tuple of Body
        Its bodies, as they were before matrices that all members share were turned.
    registers : list of bool
        Which registers differ among members.
    """

    def __init__(self, loop: Loop, members: Members, shapes: Sequence[Any]) -> None:
        flags, last = members.batched, loop.constants + len(loop.entering)
        found = found_once(loop, shapes, ("batched", members), lambda: _Spreading(loop, members, shapes).found())
        self.plain, bodies, self._copies, self.registers, self._stacked, self._sums = found
        self._members, self._rows, self._source = members, flags[last:], loop
        self.loop = loop._replace(bodies=bodies, constants=loop.constants + len(self._copies))

    def inputs(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Return the inputs of the loop of all members."""
        loop, found = self._source, list(inputs)
        first, last = loop.constants, loop.constants + len(loop.entering)
        for i, r in enumerate(loop.entering, first):
            if self.registers[r]:
                found[i] = self._members.spread(i, found[i])
        for i, flag in enumerate(self._rows, last):
            if flag:
                found[i] = moveaxis(found[i], 0, 1)
        found[first:first] = [turned(inputs[i]) for i in self._copies]
        return found

    def images(self, outputs: Sequence[Tensor]) -> list[Image]:
        """Return the outputs of the loop of all members, with the members first where they differ."""
        loop = self._source
        registers = [self.registers[r] for r in loop.leaving]
        kinds = [(flag, 0) for flag in registers] + [(flag, 1) for flag in self._stacked]
        kinds += [(flag, 0) for flag in self._sums]
        pairs = zip(outputs, kinds, strict=True)
        return [Image(moveaxis(x, axis, 0) if flag and axis else x, flag) for x, (flag, axis) in pairs]


class _Spreading:
    """What differs among members in a loop, as far as it is known."""

    def __init__(self, loop: Loop, members: Members, shapes: Sequence[Any]) -> None:
        first, last = loop.constants, loop.constants + len(loop.entering)
        flags = members.batched
        self._loop, self._count = loop, members.count
        self._constants, self._rows = flags[:first], flags[last:]
        self._shapes = signature_of(loop, shapes).bodies
        self._registers = [False] * loop.registers
        for r, flag in zip(loop.entering, flags[first:last], strict=True):
            self._registers[r] = flag
        self._stacked, self._sums = [False] * len(loop.stacked), [False] * loop.sums

    def found(self) -> tuple[Any, ...]:
        """Return the bodies for all members, and what follows from them.

        These are the bodies with transposed copies of matrices, the constants of which there are some, and which
        registers, stacked outputs and sums differ.
        """
        while self._spreads():
            pass
        loop = self._loop
        plain = tuple([body._replace(fragment=self._batched(n, body).fragment) for n, body in enumerate(loop.bodies)])
        bodies, copies = with_turned(plain, [self._whole(n, body) for n, body in enumerate(plain)], loop.constants)
        return plain, bodies, copies, self._registers, self._stacked, self._sums

    def _whole(self, number: int, body: Body) -> tuple[Any, ...]:
        """Return the shapes of the inputs of a body for all members."""
        pairs = zip(self._shapes[number], self._given(body), strict=True)
        return tuple([(self._count, *shape) if flag else shape for shape, flag in pairs])

    def _spreads(self) -> bool:
        """Note what the bodies make of what differs; tell whether that is more than was known."""
        before = [*self._registers, *self._stacked, *self._sums]
        for number, body in enumerate(self._loop.bodies):
            results = iter(self._batched(number, body).outputs)
            for places, known in self._filled(body):
                for i in places:
                    known[i] = next(results) or known[i]
        return before != [*self._registers, *self._stacked, *self._sums]

    def _filled(self, body: Body) -> list[tuple[tuple[int, ...], list[bool]]]:
        return [(body.assigns, self._registers), (body.stacked, self._stacked), (body.sums, self._sums)]

    def _batched(self, number: int, body: Body) -> BatchedFragment:
        """Return a body for all members, as far as is known what differs."""
        given = self._given(body)
        forced = [known[i] for places, known in self._filled(body) for i in places]
        return batch_fragment(body.fragment, self._shapes[number], given, self._count, forced=forced)

    def _given(self, body: Body) -> list[bool]:
        """Return which inputs of a body differ, as far as is known."""
        return [
            *[self._constants[i] for i in body.constants],
            *[self._registers[r] for r in body.reads],
            *[self._rows[i] for i in body.rows],
        ]


def batch_checkpointed(op: Any, members: Members, *inputs: Tensor, checkpoints: Checkpoints) -> list[Image]:
    """Return the images of the outputs of a loop that keeps few states."""
    work = _batching(checkpoints.loop, members, inputs)
    given = work.inputs(inputs)
    whole = Checkpoints(bodies_of(work.loop, given), checkpoints.strategy)
    return work.images(outputs_of(place_checkpointed(whole, given)))


def batch_reversed(op: Any, members: Members, *inputs: Tensor, reversal: Reversal) -> Any:
    """Return the images of what a backward pass through a loop with few saved states gives.

    It is the backward pass through the loop of all members. One that is to keep to a memory does so for each member
    alone: what fits for one of them need not fit for all.
    """
    if reversal.checkpoints.strategy.memory is not None:
        return mapped(op, members, *inputs, reversal=reversal)
    given, arriving, _ = reversal.grouped(images_of(members, inputs))
    leaving = dict.fromkeys([position for position, _ in reversal.leaving])
    nodes = [spread_image(image, members.count) if i in leaving else image.node for i, image in enumerate(given)]
    own = [placeholder(x.shape, x.dtype) for x in nodes]
    flags = tuple([image.batched or i in leaving for i, image in enumerate(given)])
    outputs = batch_checkpointed(
        op, Members(members.count, flags), *own, checkpoints=reversal.checkpoints.without_run()
    )
    cts: dict[int, Any] = {}
    for (position, keep), image in zip(reversal.arriving, arriving, strict=True):
        part = spread_image(image, members.count)
        cts[position] = mask(cts[position], part) if keep else part
    reached = [spread_image(outputs[position], members.count) for position in cts]
    pulled = pullback(reached, list(cts.values()), [own[i] for i in leaving])
    forms = {i: MASKED if (i, True) in reversal.leaving else PLAIN for i in leaving}
    found = [part for i, ct in zip(leaving, pulled, strict=True) for part in split(ct, forms[i], own[i])]
    return substitute(found, own, nodes)


def images_of(members: Members, inputs: Sequence[Tensor]) -> list[Image]:
    """Return the inputs of a rule as images."""
    return [Image(x, flag) for x, flag in zip(inputs, members.batched, strict=True)]


def batch_outer_sum(op: Any, members: Members, left: Tensor, right: Tensor, *, subscripts: str, start: int) -> Tensor:
    """Return sums over the steps of outer products, for all members."""
    labels = split_subscripts(subscripts)
    first, second = members.batched
    form = form_of(
        ("member",) * first + tuple(labels[0]), ("member",) * second + tuple(labels[1]), ("member", *labels[2])
    )
    left, right = (moveaxis(left, 0, 1) if first else left), (moveaxis(right, 0, 1) if second else right)
    return gather(form.subscripts, left, right, start)


def batch_chain(op: Any, members: Members, *inputs: Tensor, chain: Any) -> list[Image]:
    """Return the images of the outputs of a chain: those of the calls that it stands for, each for all members."""
    images = images_of(members, inputs)

    def step(kind: StepKind, operands: list[Image]) -> Callable[[int], Image]:
        shown = sorted({*[i for i, _ in kind.writes], *kind.last, *kind.stacked})
        return place_batched(kind.plan, operands, members.count, shown).__getitem__

    single, stacks = follow_steps(chain, images, step)
    return single + [
        Image(stack([spread_image(image, members.count) for image in rows], axis=1), True) for rows in stacks
    ]
