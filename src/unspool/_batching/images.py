"""Batching a graph: what was recorded for one member, recorded again for all members at once.

The walk goes up from stand-ins for what differs among members, in topological order, and asks the batching rule of each
op that depends on one of them (`unspool._ops.batching`). What does not stays the node that it is. An *image* is what
a node of a member has become: a tensor with the members along a first axis, or one that they have in common.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from unspool._autodiff.loops.loop import LOOP, apply_fragment, body_plan, stand_ins
from unspool._autodiff.sweeps.substitution import image_of, operands_of, younger_than
from unspool._batching.reading import as_read
from unspool._dims import Size
from unspool._engine.default import default_engine
from unspool._fragments.call import Call, Projection, make_call, output
from unspool._fragments.fragment import Fragment, capture
from unspool._graph import Node, origin_scope, source_of
from unspool._ops.batching import Members, rule_of, spread
from unspool._ops.leaf import placeholder
from unspool._ops.op import PART, parts
from unspool.errors import MissingRuleError, ShapeError


class Image(NamedTuple):
    """What a tensor of a member has become; ``batched`` tells whether it has the members along a first axis."""

    node: Any
    batched: bool


# By id of what has been recorded for a member; a node with several outputs has images of them by number, of those at
# least that were looked at.
Images = dict[int, Any]


def batch_graph(nodes: Sequence[Any], images: Images, count: Size, batch: object = None) -> list[Image]:
    """Return the images of nodes, and add to ``images`` those of all that lies between them and what has one.

    ``batch`` tells which batch it is, if somebody records one (see `Members`).
    """
    if images:
        with default_engine().queue.nothing_folds():
            _walk([node for node in nodes if node.id not in images], images, count, batch)
    return [images.get(node.id) or Image(node, False) for node in nodes]


def spread_image(image: Image, count: Size) -> Any:
    """Return an image with an axis of the members, if need be as copies."""
    return image.node if image.batched else spread(image.node, count)


def _walk(nodes: Sequence[Node], images: Images, count: Size, batch: object) -> None:
    levels = default_engine().levels
    first = min(images)
    crossed = iter(levels.marks[bisect_right(levels.marks, first) :])
    mark = next(crossed, math.inf)
    order = younger_than(first, nodes, images)
    shown = _shown_outputs(order)
    with origin_scope() as origin:
        for node in order:
            while mark < node.id:
                levels.mark()  # what a sweep built is a level above what it differentiated, here as there
                mark = next(crossed, math.inf)
            operands = operands_of(node)
            found = [images.get(operand.id) for operand in operands]
            if any(image is not None for image in found):
                origin.code, origin.lasti = node.code, node.lasti
                index = _output_of(node)
                if index is None:
                    images[node.id] = _image(node, _given(node, images), count, batch, shown.get(node.id, ()))
                    continue
                (whole,) = operands
                outputs = images[whole.id]
                if index not in outputs:  # an earlier walk did not look at it
                    outputs = _image(whole, _given(whole, images), count, batch, {*outputs, index})
                    images[whole.id] = outputs
                images[node.id] = outputs[index]


def _given(node: Node, images: Images) -> list[Image]:
    """Return the images of what a node is made from."""
    return [images.get(operand.id) or Image(operand, False) for operand in operands_of(node)]


def _output_of(node: Node) -> int | None:
    """Return which of several outputs a node is; ``None`` if it is none."""
    if type(node) is Projection:
        return node.output
    found: int | None = node.attributes["index"] if node.op is PART else None
    return found


def _shown_outputs(order: Sequence[Node]) -> dict[int, set[int]]:
    """Return which outputs of nodes with several are looked at, by id of the node."""
    shown: dict[int, set[int]] = {}
    for node in order:
        index = _output_of(node)
        if index is not None:
            shown.setdefault(operands_of(node)[0].id, set()).add(index)
    return shown


def _image(node: Node, given: Sequence[Image], count: Size, batch: object, shown: Collection[int]) -> Any:
    """Return the image of a node; by number, if it has several outputs, those that are shown at least."""
    if not any(image.batched for image in given):
        again = image_of(node, tuple([image.node for image in given]))
        return _of_outputs(again)
    if type(node) is Call:
        return place_batched(node.plan, given, count, sorted(shown))
    inputs, batched = [image.node for image in given], tuple([image.batched for image in given])
    if node.op is not LOOP:
        return apply_rule(node, inputs, Members(count, batched, batch), node.attributes)
    shapes = [x.shape[1:] if flag else x.shape for x, flag in given]
    loop, outputs = as_read(node.attributes["loop"], shown, shapes)
    found = apply_rule(node, inputs, Members(count, batched, batch), {"loop": loop})
    return dict(zip(outputs, found.values(), strict=True))


def apply_rule(node: Node, inputs: Sequence[Any], members: Members, params: Mapping[str, Any]) -> Any:
    """Return the image of a node, of which at least one input is batched; by number, if it has several outputs."""
    op = node.op
    rule = rule_of(op)
    if rule is None:
        raise MissingRuleError(f"op {op.name!r} has no batching rule; it was used at {source_of(node)}")
    result = rule(op, members, *inputs, **params)
    if op.multi:
        return {i: entry if type(entry) is Image else Image(entry, True) for i, entry in enumerate(result)}
    whole = (members.count, *node.shape)
    if result.shape != whole or result.dtype != node.dtype:
        raise ShapeError(
            f"the batching rule of op {op.name!r} gave shape {result.shape} and dtype {result.dtype}, expected "
            f"{whole} and {node.dtype}; the op was used at {source_of(node)}"
        )
    return Image(result, True)


def _of_outputs(node: Node) -> Any:
    """Return the image of a node that all members have in common: one for each of its outputs, if it has several."""
    if type(node) is Call:
        return {i: Image(output(node, i), False) for i in range(len(node.plan.fragment.outputs))}
    if not node.op.multi:
        return Image(node, False)
    return {i: Image(x, False) for i, x in enumerate(parts(node))}  # type: ignore[arg-type]


# --- fragments -------------------------------------------------------------------------------------------------------
# A fragment is batched once for given sizes: it is placed on stand-ins for its inputs, batched as every graph is, and
# described again. What came of it is kept with its plan, as derivatives are.


class BatchedFragment(NamedTuple):
    """A fragment for all members: inputs and outputs that differ among them have them along a first axis."""

    fragment: Fragment
    outputs: tuple[bool, ...]


def batch_fragment(
    fragment: Fragment,
    shapes: tuple[Any, ...],
    batched: Sequence[bool],
    count: Size,
    *,
    shown: Sequence[int] | None = None,
    forced: Sequence[bool] = (),
    keep_residuals: bool = False,
) -> BatchedFragment:
    """Return a fragment for all members of a batch.

    Parameters
    ----------
    fragment : Fragment
    shapes : tuple of Shape
        Of its inputs, for one member.
    batched : sequence of bool
        Which of its inputs differ among members.
    count : Size
        How many members there are.
    shown : sequence of int, optional
        The outputs to compute; all by default.
    forced : sequence of bool
        Which of the first of these have an axis of the members in any case.
    keep_residuals : bool
        Whether what its derivatives need is among its outputs, after the others.
    """
    key = ("batched", tuple(batched), count, None if shown is None else tuple(shown), tuple(forced), keep_residuals)
    plan = body_plan(fragment, shapes)
    if plan is not None and key in plan.derivatives:
        found: BatchedFragment = plan.derivatives[key]
        return found
    inputs = stand_ins(fragment, shapes)
    outputs = apply_fragment(fragment, inputs)
    wanted = outputs if shown is None else [outputs[i] for i in shown]
    whole = [placeholder((count, *x.shape), x.dtype) if b else x for x, b in zip(inputs, batched, strict=True)]
    images: Images = {x.id: Image(y, True) for x, y, b in zip(inputs, whole, batched, strict=True) if b}
    results = batch_graph(wanted, images, count)
    for i, force in enumerate(forced):
        if force:
            results[i] = Image(spread_image(results[i], count), True)
    captured = capture(whole, [image.node for image in results], keep_residuals=keep_residuals)
    made = BatchedFragment(captured.fragment, tuple([image.batched for image in results]))
    if plan is not None:
        plan.derivatives[key] = made
    return made


def place_batched(plan: Any, given: Sequence[Image], count: Size, shown: Sequence[int]) -> dict[int, Image]:
    """Call what a plan does to one member for all members; return the images of some of its outputs."""
    shapes = tuple([x.shape[1:] if b else x.shape for x, b in given])
    batched = tuple([image.batched for image in given])
    made = batch_fragment(plan.fragment, shapes, batched, count, shown=shown, keep_residuals=True)
    inputs = tuple([image.node for image in given])
    whole = default_engine().plans.plan_for(made.fragment, tuple([x.shape for x in inputs]))
    call = make_call(whole, inputs, made.fragment.origins)
    return {i: Image(output(call, place), made.outputs[place]) for place, i in enumerate(shown)}
