"""Loops without the part of their record that nobody reads.

A loop keeps for its derivatives what any of them may need. Where a derivative has been taken inside of a batch, it is
known what that one reads, and a batch of loops has as many records as members. So what it does not read is left out. If
the batch is differentiated in turn, its loop keeps a whole record again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from unspool._autodiff.loops.loop import Body, Loop, apply_fragment, facts_of, signature_of, stand_ins
from unspool._fragments.fragment import capture


def as_read(loop: Loop, read: Collection[int], shapes: Sequence[Any]) -> tuple[Loop, Sequence[int]]:
    """Return a loop that records what is read alone, and which outputs of the given one it has.

    It is the given one if all of its record is read, or nothing: a derivative may still be taken then.
    """
    first = len(loop.leaving) + len(loop.stacked) - loop.recorded
    record = range(first, first + loop.recorded)
    unread = tuple([i for i in record if i not in read])
    if len(unread) in (0, loop.recorded):
        return loop, range(len(loop.leaving) + len(loop.stacked) + loop.sums)
    facts, key = facts_of(loop), ("as read", unread, tuple(shapes))
    found: tuple[Loop, Sequence[int]] | None = facts.get(key)
    if found is None:
        found = facts[key] = _without(loop, unread, shapes)
    return found


def _without(loop: Loop, unread: Sequence[int], shapes: Sequence[Any]) -> tuple[Loop, Sequence[int]]:
    shown = len(loop.leaving)
    kept = [i for i in range(len(loop.stacked)) if shown + i not in unread]
    number = {stack: i for i, stack in enumerate(kept)}
    pairs = zip(loop.bodies, signature_of(loop, shapes).bodies, strict=True)
    bodies = tuple([_body_without(body, given, number) for body, given in pairs])
    outputs = [i for i in range(shown + len(loop.stacked) + loop.sums) if i not in unread]
    return loop._replace(bodies=bodies, stacked=tuple([loop.stacked[i] for i in kept]), recorded=0), outputs


def _body_without(body: Body, shapes: Sequence[Any], number: dict[int, int]) -> Body:
    stacked = tuple([number[i] for i in body.stacked if i in number])
    if len(stacked) == len(body.stacked):
        return body._replace(stacked=stacked)
    inputs = stand_ins(body.fragment, shapes)
    results = apply_fragment(body.fragment, inputs)
    first, last = len(body.assigns), len(body.assigns) + len(body.stacked)
    rows = [row for row, i in zip(results[first:last], body.stacked, strict=True) if i in number]
    fragment = capture(inputs, [*results[:first], *rows, *results[last:]]).fragment
    return body._replace(fragment=fragment, stacked=stacked)
