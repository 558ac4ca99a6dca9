"""The batching rule of a fixed point: all members recompute theirs together, as they were found.

A search applies the map of all members that are still going as one batch (`searching`), and how a product is rounded
may depend on how many there are. So whoever needs the points again makes the same steps on the same batches, and gets
the same bits. Their derivative is the batch of the derivative of a member (`mapped`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._batching.extrapolating import packed_rows
from unspool._batching.mapped import Member, mapped, op_on_members
from unspool._batching.searching import Together, repeat_members
from unspool._ops.batching import Members
from unspool._ops.op import parts

if TYPE_CHECKING:
    from unspool._autodiff.solvers.implicit import Route


def batch_fixed_point(op: Any, members: Members, *inputs: Any, route: Route) -> Any:
    """Return the fixed points of all members, which have a number of steps each."""
    if not route.is_counted or route.has_tangent:
        return mapped(op, members, *inputs, route=route)
    member = Member(op, {"route": route}, members)
    return parts(_graph.apply_multi(FIXED_POINTS, *inputs, member=member))[0]


def _batch_again(op: Any, members: Members, *inputs: Any, member: Member) -> Any:
    return parts(_graph.apply_multi(FIXED_POINTS, *inputs, member=Member(op, {"member": member}, members)))


def _kernel(*arrays: Any, member: Member) -> tuple[Any, ...]:
    levels = [member.members.batched]
    while member.op is FIXED_POINTS:
        member = member.params["member"]
        levels.append(member.members.batched)
    route: Route = member.params["route"]
    counts, images = in_one_row(arrays, levels)
    flags = [any(flags) for flags in zip(*levels, strict=True)]
    pairs = list(zip(images, flags, strict=True))
    steps = route.closed + route.leaves
    together = Together(route.step, pairs[: route.closed], pairs[route.closed : steps])
    lengths = np.broadcast_to(images[-1], (int(np.prod(counts)),))
    found = packed_rows(repeat_members(together, route.history, lengths))
    return (found.reshape(*counts, found.shape[-1]),)


def in_one_row(arrays: Sequence[Any], levels: Sequence[Sequence[bool]]) -> tuple[list[int], list[Any]]:
    """Return how many members batches in batches have, and arrays with all of them along one axis.

    ``levels`` tells for each batch, the outermost first, which arrays have an axis of its members. Those that have none
    of any stay as they are.
    """
    owned = [[flags[i] for flags in levels] for i in range(len(arrays))]
    counts = []
    for level, flags in enumerate(levels):
        i = flags.index(True)
        counts.append(arrays[i].shape[sum(owned[i][:level])])
    rows = []
    for array, own in zip(arrays, owned, strict=True):
        rest = array.shape[sum(own) :]
        sizes = [count if flag else 1 for count, flag in zip(counts, own, strict=True)]
        whole = np.broadcast_to(array.reshape(*sizes, *rest), (*counts, *rest))
        rows.append(whole.reshape(int(np.prod(counts)), *rest) if any(own) else array)
    return counts, rows


# Not registered: batching places it, and nobody applies it by name.
FIXED_POINTS = op_on_members("fixed_points", _kernel, _batch_again)
