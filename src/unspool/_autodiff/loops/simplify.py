"""Rewriting the body of a derivative so that a step costs less.

Rules of derivatives are general: they multiply element by element and then sum. Where both happen in one step, a dot
product does it in one pass over memory, and a scale factor is taken out of it, so that it scales one number instead of
a vector. In products of several factors the ones that the loop does not carry are multiplied first: derivatives have
many products of the same factors in different orders, which become one. As long as no intermediate product leaves the
floating-point range, these change results by rounding only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from unspool import _graph
from unspool._dtypes import INEXACT
from unspool._fragments.fragment import dependent_nodes
from unspool._graph import Node
from unspool._ops.contraction.contract import contract
from unspool._ops.elementwise import DIVIDE, MULTIPLY, NEGATIVE, divide, multiply, negative
from unspool._ops.reduction.sums import SUM


def simplified(targets: Sequence[Any], carry: Sequence[Node], rows: Sequence[Node]) -> list[Any]:
    """Return targets (``None`` stays) that are made of carried values and rows, rewritten."""
    wanted = [node for node in targets if node is not None]
    order = dependent_nodes(wanted, {node.id for node in (*carry, *rows)})
    uses = Counter(i.id for node in order for i in node.inputs)
    carried = {node.id for node in carry}
    replaced: dict[int, Any] = {}
    for node in order:
        inputs = tuple([replaced.get(i.id, i) for i in node.inputs])
        made = _dot(node, inputs) if node.op is SUM else _product(node, inputs, carried, uses)
        if made is None and any(new is not old for new, old in zip(inputs, node.inputs, strict=True)):
            apply: Any = _graph.apply_multi if node.op.multi else _graph.apply
            made = apply(node.op, *inputs, **node.attributes)
        if made is not None:
            replaced[node.id] = made
        if any(i.id in carried for i in inputs):
            carried.update((node.id, node.id if made is None else made.id))
    return [node if node is None else replaced.get(node.id, node) for node in targets]


def _dot(node: Node, inputs: tuple[Any, ...]) -> Any:
    """Return the sum of a product of vectors as a dot product, or ``None`` if the node is something else."""
    if node.shape != () or node.dtype not in INEXACT:
        return None
    product = inputs[0]
    if product.op is not MULTIPLY or len(product.shape) != 1:
        return None
    factors: list[Any] = list(product.inputs)
    if any(x.shape != product.shape or x.dtype != product.dtype for x in factors):
        return None
    # What was done to a whole vector is done to the one number that is left of it.
    later: list[Any] = []
    for i in range(2):
        while (stripped := _strip(factors[i])) is not None:
            factors[i], scaling = stripped
            later.append(scaling)
    result: Any = contract(factors[0], ["a"], factors[1], ["a"], [])
    for scaling in reversed(later):
        result = scaling(result)
    return result


def _product(node: Node, inputs: tuple[Any, ...], carried: set[int], uses: Counter[int]) -> Any:
    """Return a product of three factors with the carried one last, or ``None`` if the node is something else."""
    if node.op is not MULTIPLY or node.dtype not in INEXACT:
        return None
    for position, inner in enumerate(inputs):
        outer = inputs[1 - position]
        if inner.op is not MULTIPLY or inner.shape != node.shape or outer.id in carried:
            continue
        # An inner product that is needed elsewhere is there anyway.
        if inner.dtype != node.dtype or outer.dtype != node.dtype or uses[node.inputs[position].id] > 1:
            continue
        for x, last in (inner.inputs, inner.inputs[::-1]):
            if last.id in carried and x.id not in carried:
                return multiply(multiply(outer, x), last)
    return None


def _strip(vector: Any) -> tuple[Any, Any] | None:
    """Take the outermost scaling off a vector: return what is scaled, and what does the same to a number."""
    if vector.op is NEGATIVE:
        return vector.inputs[0], negative
    if vector.op is DIVIDE:
        x, by = vector.inputs
        if by.shape == () and x.shape == vector.shape and x.dtype == vector.dtype:
            return x, lambda number: divide(number, by)
    if vector.op is MULTIPLY:
        for x, by in (vector.inputs, vector.inputs[::-1]):
            if by.shape == () and x.shape == vector.shape and x.dtype == vector.dtype:
                return x, lambda number, by=by: multiply(number, by)
    return None
