"""Ops that nobody knows how to do to several members at once: the op ``mapped`` does them to one after the other.

These are a user's kernels, solvers that look at one problem at a time, and functions with rules of their own. The
derivative of such a batch is the batch of the derivative of a member: its rule is placed on stand-ins and batched like
every graph. So only the op itself runs member by member.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._autodiff.sweeps.forward import pushforward
from unspool._autodiff.sweeps.reverse import pullback
from unspool._batching.images import Image, Images, batch_graph, spread_image
from unspool._dims import Size
from unspool._ops.batching import Members, place
from unspool._ops.elementwise import fold_to_shape
from unspool._ops.leaf import placeholder
from unspool._ops.op import INPUTS, OUTPUT, STRUCTURE, JointRule, Op, parts

if TYPE_CHECKING:
    from unspool._graph import Node
    from unspool._tensor import Tensor


def mapped(op: Op, members: Members, *inputs: Any, **params: Any) -> Any:
    """Do to each member what an op does to one: a batching rule."""
    member = Member(op, params, members)
    outputs = parts(_graph.apply_multi(MAPPED, *inputs, member=member))
    return outputs if op.multi else outputs[0]


class Member:
    """What is done to one member: a parameter of the node of all.

    Attributes
    ----------
    op : Op
    params : dict
    members : Members
    """

    __slots__ = ("_key", "members", "op", "params")

    def __init__(self, op: Op, params: dict[str, Any], members: Members) -> None:
        self.op, self.params, self.members = op, params, members
        self._key = (op, tuple(params.items()), members)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Member) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"<{self.op.name} of {self.members.count} members>"

    def count(self, inputs: Sequence[Any]) -> Any:
        """Return how many members there are, a number where sizes are known."""
        return next(x.shape[0] for x, flag in zip(inputs, self.members.batched, strict=True) if flag)

    def stand_ins(self, inputs: Sequence[Any]) -> tuple[list[Tensor], Images]:
        """Return stand-ins for the inputs of one member, and what they stand for."""
        flags = self.members.batched
        made = [placeholder(x.shape[1:] if flag else x.shape, x.dtype) for x, flag in zip(inputs, flags, strict=True)]
        return made, {s.id: Image(x, flag) for s, x, flag in zip(made, inputs, flags, strict=True)}

    def outputs(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Place the op on the inputs of one member."""
        found = place(self.op, inputs, self.params)
        return list(found) if self.op.multi else [found]


def _infer(*inputs: Node, member: Member) -> list[tuple[Any, Any]]:
    return _avals(inputs, member)


def _avals(inputs: Sequence[Any], member: Member) -> list[tuple[Any, Any]]:
    """Return shapes and dtypes of the outputs of all members, from tensors or arrays."""
    outputs = member.outputs(member.stand_ins(inputs)[0])
    count = member.count(inputs)
    return [((count, *x.shape), x.dtype) for x in outputs]


def one_after_the_other(*arrays: Any, member: Member) -> tuple[Any, ...]:
    """Return what the kernel of the op makes of each member: a kernel."""
    op, params, flags = member.op, member.params, member.members.batched
    count = member.count(arrays)
    if op.passes:
        whole = [x if flag else np.broadcast_to(x, (count, *x.shape)) for x, flag in zip(arrays, flags, strict=True)]
        return tuple(op.kernel(*whole, **params))
    if not count:  # no member tells what a result is like
        return tuple([np.empty(shape, dtype) for shape, dtype in _avals(arrays, member)])
    found = [
        op.kernel(*[x[i] if flag else x for x, flag in zip(arrays, flags, strict=True)], **params) for i in range(count)
    ]
    return tuple([np.stack(column) for column in zip(*found, strict=True)]) if op.multi else (np.stack(found),)


def _placed(
    member: Member, inputs: Sequence[Tensor], out: Sequence[Tensor]
) -> tuple[list[Tensor], list[Tensor], Images]:
    """Return the inputs and the outputs of one member, on stand-ins, and what these stand for."""
    stand_ins, images = member.stand_ins(inputs)
    outputs = member.outputs(stand_ins)
    images.update((x.id, Image(whole, True)) for x, whole in zip(outputs, out, strict=True))
    return stand_ins, outputs, images


def _pull(needed: Sequence[bool], ct: Sequence[Any], out: Sequence[Any], *inputs: Any, member: Member) -> list[Any]:
    stand_ins, outputs, images = _placed(member, inputs, out)
    arriving = [(x, placeholder(x.shape, x.dtype), c) for x, c in zip(outputs, ct, strict=True) if c is not None]
    images.update((s.id, Image(c, True)) for _, s, c in arriving)
    variables = [x for x, need in zip(stand_ins, needed, strict=True) if need]
    pulled = pullback([x for x, _, _ in arriving], [s for _, s, _ in arriving], variables)
    found = iter(batched_or_none(pulled, images, member.members.count))
    contributions = [next(found) if need else None for need in needed]
    return [
        c if c is None or flag else fold_to_shape(c, x.shape)
        for c, x, flag in zip(contributions, inputs, member.members.batched, strict=True)
    ]


def _push(tangents: Sequence[Any], out: Sequence[Any], *inputs: Any, member: Member) -> tuple[Any, ...]:
    stand_ins, outputs, images = _placed(member, inputs, out)
    moving = [(x, placeholder(x.shape, x.dtype)) for x, t in zip(stand_ins, tangents, strict=True) if t is not None]
    flags = [f for f, t in zip(member.members.batched, tangents, strict=True) if t is not None]
    given = [t for t in tangents if t is not None]
    images.update((s.id, Image(t, flag)) for (_, s), t, flag in zip(moving, given, flags, strict=True))
    pushed = pushforward(outputs, [x for x, _ in moving], [s for _, s in moving])
    return tuple(batched_or_none(pushed, images, member.members.count))


def batched_or_none(tensors: Sequence[Any], images: Images, count: Size) -> list[Any]:
    """Return derivatives of one member as those of all, with ``None`` for those that are absent."""
    found = iter(batch_graph([x for x in tensors if x is not None], images, count))
    return [None if x is None else spread_image(next(found), count) for x in tensors]


def _passes(params: Any) -> Sequence[bool]:
    """Return which inputs the op is differentiated through."""
    member: Member = params["member"]
    rules, count = member.op.vjp, len(member.members.batched)
    if isinstance(rules, JointRule):
        return [True] * count if rules.passes is None else rules.passes(member.params)
    return [rule is not None for rule in rules] if isinstance(rules, tuple) else [True] * count


def op_on_members(name: str, kernel: Callable[..., Any], batch: Callable[..., Any]) -> Op:
    """Return an op that does to each member what another one does, with the derivative of a member for all of them."""
    return Op(
        name,
        infer=_infer,
        kernel=kernel,
        vjp=JointRule(_pull, _passes),
        jvp=_push,  # type: ignore[arg-type]
        params={"member": STRUCTURE},
        needs=(INPUTS, OUTPUT),
        multi=True,
        batch=batch,
    )


# Not registered: batching places it, and nobody applies it by name.
MAPPED = op_on_members("mapped", one_after_the_other, mapped)
