"""One member's view of what is computed for the whole batch: the op ``member``.

Most of what a member records can be batched later, when its function has returned. A loop that stops by a value cannot:
how many steps it makes is found by running it, for all members, while the function of one of them is being recorded.
What the member gets is a node that knows how all members are computed, a *program*. Its derivatives are programs too:
those of the graph that the program places. So such a loop can be differentiated inside of the function, to any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unspool import _graph
from unspool._autodiff.sweeps.connected import depends
from unspool._autodiff.sweeps.forward import pushforward
from unspool._autodiff.sweeps.reverse import pullback
from unspool._autodiff.sweeps.substitution import substitute
from unspool._batching.images import Image, Images, batch_graph, spread_image
from unspool._dims import Size
from unspool._dtypes import INEXACT
from unspool._ops.batching import Members
from unspool._ops.identity import alias, zeros, zeros_like
from unspool._ops.layout import broadcast_to, moveaxis, reshape
from unspool._ops.leaf import placeholder
from unspool._ops.op import STRUCTURE, JointRule, Op, parts
from unspool.errors import UnboundPlaceholderError

if TYPE_CHECKING:
    from unspool._graph import Node
    from unspool._tensor import Tensor

Avals = list[tuple[Any, Any]]


class Program:
    """How something is computed for all members.

    Attributes
    ----------
    batches : tuple of object
        Those whose members it computes, the innermost first: each that is placed takes one away, and the last one
        places what is computed.
    """

    batches: tuple[object, ...]

    def avals(self, inputs: Sequence[Node]) -> Avals:
        """Return shapes and dtypes of the outputs of one member."""
        raise NotImplementedError

    def place(self, images: Sequence[Image], count: Size) -> list[Image]:
        """Return the outputs of all members from the inputs of all."""
        raise NotImplementedError


def view(program: Program, inputs: Sequence[Node]) -> tuple[Tensor, ...]:
    """Return the outputs of one member."""
    return parts(_graph.apply_multi(MEMBER, *inputs, program=program))


class Outer(Program):
    """A program inside of several batches, seen from the second one: its members are those of both, in one row."""

    def __init__(self, program: Program, batched: Sequence[bool], count: Size) -> None:
        self.batches = program.batches[1:]
        self._program, self._batched, self._count = program, tuple(batched), count

    def avals(self, inputs: Sequence[Node]) -> Avals:
        """Return what the inner batch gives."""
        members = [_Member(x.shape[flag:], x.dtype) for x, flag in zip(inputs, self._batched, strict=True)]
        return [((self._count, *shape), dtype) for shape, dtype in self._program.avals(members)]  # type: ignore[arg-type]

    def place(self, images: Sequence[Image], count: Size) -> list[Image]:
        """Place the program for the members of both batches."""
        rows = [self._in_row(image, flag, count) for image, flag in zip(images, self._batched, strict=True)]
        found = self._program.place(rows, count * self._count)
        whole = [spread_image(image, count * self._count) for image in found]
        return [Image(reshape(x, (count, self._count, *x.shape[1:])), True) for x in whole]

    def _in_row(self, image: Image, is_inner: bool, count: Size) -> Image:
        x, is_outer = image
        if not is_inner and not is_outer:
            return image
        own = x.shape[is_inner + is_outer :]
        sizes = (count if is_outer else 1, self._count if is_inner else 1)
        whole = broadcast_to(reshape(x, (*sizes, *own)), (count, self._count, *own))
        return Image(reshape(whole, (count * self._count, *own)), True)


class Across(Program):
    """A program for all of a batch that is none of its own, such as the directions of a Jacobian of a member.

    How many steps a member makes does not depend on these. So what the program places for all members, on a stand-in
    for one direction, is graph that is batched like any other.
    """

    def __init__(self, program: Program, batched: Sequence[bool], count: Size) -> None:
        self.batches = program.batches
        self._program, self._batched, self._count = program, tuple(batched), count

    def avals(self, inputs: Sequence[Node]) -> Avals:
        """Return what one direction gives, with an axis of them in front."""
        single = [_Member(x.shape[flag:], x.dtype) for x, flag in zip(inputs, self._batched, strict=True)]
        return [((self._count, *shape), dtype) for shape, dtype in self._program.avals(single)]  # type: ignore[arg-type]

    def place(self, images: Sequence[Image], count: Size) -> list[Image]:
        """Place the program for all members and one direction, and batch what it placed over all directions."""
        known: Images = {}
        single: list[Image] = []
        for (x, is_own), flag in zip(images, self._batched, strict=True):
            if flag:
                whole = moveaxis(x, 1, 0) if is_own else x
                x = placeholder(whole.shape[1:], whole.dtype)
                known[x.id] = Image(whole, True)
            single.append(Image(x, is_own))
        placed = self._program.place(single, count)
        found = batch_graph([image.node for image in placed], known, self._count)
        rows = [spread_image(image, self._count) for image in found]
        return [
            Image(moveaxis(x, 0, 1), True) if own else Image(x, False) for x, (_, own) in zip(rows, placed, strict=True)
        ]


class _Member:
    """Shape and dtype of an input, for those who look at no more."""

    def __init__(self, shape: Any, dtype: Any) -> None:
        self.shape, self.dtype = shape, dtype


class _Pulled(Program):
    """The cotangents of inputs of a program; its own inputs are those of the program, then cotangents of outputs."""

    def __init__(self, program: Program, needed: Sequence[bool], reached: Sequence[bool]) -> None:
        self.batches = program.batches
        self._program, self._needed, self._reached = program, tuple(needed), tuple(reached)

    def avals(self, inputs: Sequence[Node]) -> Avals:
        return [(x.shape, x.dtype) for x, need in zip(inputs, self._needed, strict=False) if need]

    def place(self, images: Sequence[Image], count: Size) -> list[Image]:
        given = images[: len(self._needed)]
        whole = [spread_image(i, count) if need else i.node for i, need in zip(given, self._needed, strict=True)]
        own = _apart(whole, self._needed)
        outputs = self._program.place(_again(own, given, self._needed), count)
        reached = [spread_image(o, count) for o, flag in zip(outputs, self._reached, strict=True) if flag]
        arriving = [spread_image(ct, count) for ct in images[len(given) :]]
        variables = [x for x, need in zip(own, self._needed, strict=True) if need]
        pulled = pullback(reached, arriving, variables)
        found = [zeros_like(x) if ct is None else ct for ct, x in zip(pulled, variables, strict=True)]
        return [Image(x, True) for x in substitute(found, own, whole)]


class _Pushed(Program):
    """The tangents of outputs of a program; its own inputs are those of the program, then tangents of inputs."""

    def __init__(self, program: Program, moving: Sequence[bool]) -> None:
        self.batches = program.batches
        self._program, self._moving = program, tuple(moving)

    def avals(self, inputs: Sequence[Node]) -> Avals:
        return self._program.avals(inputs[: len(self._moving)])

    def place(self, images: Sequence[Image], count: Size) -> list[Image]:
        given = images[: len(self._moving)]
        whole = [spread_image(i, count) if moves else i.node for i, moves in zip(given, self._moving, strict=True)]
        own = _apart(whole, self._moving)
        outputs = [spread_image(o, count) for o in self._program.place(_again(own, given, self._moving), count)]
        tangents = [spread_image(t, count) for t in images[len(given) :]]
        pushed = pushforward(outputs, [x for x, moves in zip(own, self._moving, strict=True) if moves], tangents)
        found = [zeros(x.shape, x.dtype) if t is None else t for t, x in zip(pushed, outputs, strict=True)]
        return [Image(x, True) for x in substitute(found, own, whole)]


def _apart(nodes: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
    """Return inputs with stand-ins for those that are wanted, if a derivative by one might go through another.

    Most often none is made from another. Then what was placed on them is found again, and need not be placed on
    stand-ins first.
    """
    variables = [x for x, want in zip(nodes, wanted, strict=True) if want]
    for variable in variables:
        others = [x for x in nodes if x is not variable]
        if len(others) != len(nodes) - 1 or depends(others, [variable]):
            return [alias(x) if want else x for x, want in zip(nodes, wanted, strict=True)]
    return list(nodes)


def _again(nodes: Sequence[Any], images: Sequence[Image], spread: Sequence[bool]) -> list[Image]:
    """Return other nodes as images; those that are spread have the members in any case."""
    return [Image(x, image.batched or flag) for x, image, flag in zip(nodes, images, spread, strict=True)]


# --- the op ----------------------------------------------------------------------------------------------------------


def _kernel(*arrays: Any, program: Program) -> Any:
    raise UnboundPlaceholderError("what a member of a batch is made of has values for the whole batch only")


def _pull(needed: Sequence[bool], ct: Sequence[Any], out: Sequence[Any], *inputs: Any, program: Program) -> list[Any]:
    wanted = [need and x.dtype in INEXACT for need, x in zip(needed, inputs, strict=True)]
    pulled = _Pulled(program, wanted, [c is not None for c in ct])
    found = iter(view(pulled, [*inputs, *[c for c in ct if c is not None]]))
    return [next(found) if need else None for need in wanted]


def _push(tangents: Sequence[Any], out: Sequence[Any], *inputs: Any, program: Program) -> tuple[Any, ...]:
    moving = [t is not None for t in tangents]
    pushed = view(_Pushed(program, moving), [*inputs, *[t for t in tangents if t is not None]])
    return tuple([t if x.dtype in INEXACT else None for t, x in zip(pushed, out, strict=True)])


def _batch(op: Op, members: Members, *inputs: Any, program: Program) -> list[Image]:
    if members.batch is not program.batches[0]:
        return [Image(x, True) for x in view(Across(program, members.batched, members.count), inputs)]
    if len(program.batches) == 1:
        return program.place([Image(x, flag) for x, flag in zip(inputs, members.batched, strict=True)], members.count)
    return [Image(x, True) for x in view(Outer(program, members.batched, members.count), inputs)]


# Not registered: it lives inside of batches, and nobody applies it by name.
MEMBER = Op(
    "member",
    infer=lambda *inputs, program: program.avals(inputs),
    kernel=_kernel,
    vjp=JointRule(_pull),
    jvp=_push,  # type: ignore[arg-type]
    params={"program": STRUCTURE},
    multi=True,
    batch=_batch,
)
