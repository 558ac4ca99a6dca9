"""Batching rules that many ops share: what an op does to all members of a batch at once.

A rule gets the nodes of an op with the members along a first axis, of those that differ from member to member, and
places ops that compute all results, with the members along a first axis. It never goes through the members one by one.
Rules build graph, so derivatives of a batch are those of the ops that it is made of.

Most ops need no more than one of these: `elementwise`, where operands are broadcast; `leading`, for matrices in stacks;
`shifted`, where a parameter counts axes; `prefixed`, where parameters have an entry for each axis.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from unspool import _graph
from unspool._dims import Size
from unspool._graph import Node
from unspool._ops.late import ops
from unspool._ops.op import Op, parts

if TYPE_CHECKING:
    from unspool._tensor import Tensor

BatchRule = Callable[..., Any]


class Members:
    """The members of a batch, as a rule sees them.

    Attributes
    ----------
    count : Size
        How many there are.
    batched : tuple of bool
        For each input, whether it has them along its first axis; others are the same for all.
    batch : object
        Which batch it is, for programs of members (`unspool._batching.member`); ``None`` for one that nobody recorded,
        such as the directions of a Jacobian. Two with the same members are equal.
    """

    __slots__ = ("batch", "batched", "count")
    __match_args__ = ("count", "batched")

    def __init__(self, count: Size, batched: tuple[bool, ...], batch: object = None) -> None:
        self.count, self.batched, self.batch = count, batched, batch

    def __eq__(self, other: object) -> bool:
        return type(other) is Members and (self.count, self.batched) == (other.count, other.batched)

    def __hash__(self) -> int:
        return hash((self.count, self.batched))

    def rank(self, position: int, x: Node) -> int:
        """Return how many axes an input has for one member."""
        return len(x.shape) - self.batched[position]

    def lifted(self, position: int, x: Any, rank: int) -> Any:
        """Return an input that broadcasts with others of a rank: axes of size 1 follow that of the members."""
        missing = rank - self.rank(position, x)
        if not self.batched[position] or not missing:
            return x
        return ops.reshape(x, (self.count, *[1] * missing, *x.shape[1:]))

    def spread(self, position: int, x: Any) -> Any:
        """Return an input with an axis of the members: what is the same for all is broadcast."""
        return x if self.batched[position] else spread(x, self.count)

    def all(self, inputs: Sequence[Any]) -> list[Any]:
        """Return all inputs with an axis of the members."""
        return [self.spread(i, x) for i, x in enumerate(inputs)]


def spread(x: Any, count: Size) -> Tensor:
    """Return a tensor that is the same for all members with an axis of the members in front."""
    return ops.broadcast_to(x, (count, *x.shape))


def place(op: Op, inputs: Sequence[Any], params: Mapping[str, Any]) -> Any:
    """Place an op; one with several outputs gives a tuple of them."""
    if op.multi:
        return parts(_graph.apply_multi(op, *inputs, **params))
    return _graph.apply(op, *inputs, **params)


# --- rules -----------------------------------------------------------------------------------------------------------


def elementwise(op: Op, members: Members, *inputs: Any, **params: Any) -> Any:
    """Broadcast operands, which may have fewer axes than others, along the members too.

    What was made by repeating elements is computed before they are repeated.
    """
    rank = max(members.rank(i, x) for i, x in enumerate(inputs))
    operands = [members.lifted(i, x, rank) for i, x in enumerate(inputs)]
    shapes = [x.shape for x in operands]
    whole = shapes[0] if shapes.count(shapes[0]) == len(shapes) else ops.broadcast_shapes(*shapes)
    result = place(op, [ops.unrepeated(x) for x in operands], params)
    return result if result.shape == whole else ops.broadcast_to(result, whole)


def like_first(op: Op, members: Members, *inputs: Any, **params: Any) -> Any:
    """Do the same where the result has the shape of the first input."""
    rank = members.rank(0, inputs[0])
    first, *others = [ops.unrepeated(members.lifted(i, x, rank)) for i, x in enumerate(inputs)]
    small = ops.broadcast_shapes(first.shape, *[x.shape for x in others])
    whole = (members.count, *inputs[0].shape[members.batched[0] :])
    return ops.broadcast_to(place(op, [ops.broadcast_to(first, small), *others], params), whole)


def leading(op: Op, members: Members, *inputs: Any, **params: Any) -> Any:
    """Let the members be the outermost axis of stacks."""
    return place(op, members.all(inputs), params)


def shifted(op: Op, members: Members, *inputs: Any, **params: Any) -> Any:
    """Count the axes in the parameters ``axis`` and ``axes`` from the second one on."""
    moved = {name: _next(value) if name in ("axis", "axes") else value for name, value in params.items()}
    return place(op, members.all(inputs), moved)


def prefixed(**entries: Size | None) -> BatchRule:
    """Return the rule of an op of one input whose parameters have an entry for each axis.

    ``entries`` are those of the axis of the members, ``None`` for their number.
    """

    def rule(op: Op, members: Members, x: Any, **params: Any) -> Any:
        first = {name: members.count if entry is None else entry for name, entry in entries.items()}
        return place(op, [x], {name: (first[name], *v) if name in first else v for name, v in params.items()})

    return rule


class Later:
    """Rules that are made in a layer above all ops, by name; it enters them, and nothing is batched without it."""

    chain: BatchRule
    checkpointed: BatchRule
    fixed_point: BatchRule
    loop: BatchRule
    one_by_one: BatchRule
    outer_sum: BatchRule
    reversed_loop: BatchRule

    def provide(self, **rules: BatchRule) -> None:
        """Enter rules by their names."""
        unknown = rules.keys() - Later.__annotations__.keys()
        if unknown:
            raise AttributeError(f"rules that are not declared: {sorted(unknown)}")
        vars(self).update(rules)


later = Later()


def rule_above(name: str) -> BatchRule:
    """Return the rule that a layer above enters under a name."""

    def rule(op: Op, members: Members, *inputs: Any, **params: Any) -> Any:
        return getattr(later, name)(op, members, *inputs, **params)

    return rule


# Does the op to one member after the other: for kernels that nobody can look into.
one_by_one = rule_above("one_by_one")


def _next(axes: int | tuple[int, ...]) -> int | tuple[int, ...]:
    return axes + 1 if isinstance(axes, int) else tuple([axis + 1 for axis in axes])


def rule_of(op: Op) -> BatchRule | None:
    """Return the batching rule of an op; ``None`` if it has none."""
    return op.batch or (shifted if "axis" in op.params else None)
