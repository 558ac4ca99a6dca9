"""The machine under the tape: computes nodes one by one, and one reverse step at a time.

It shares nothing with the engine but the kernels and the rules, and it keeps no state: what it needs to know comes in
as arguments and what it finds goes out. A derivative rule builds graph, so a reverse step puts a stand-in for the
cotangent into the rule and computes the little graph that comes back from the values of the tape.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from unspool import _graph
from unspool._autodiff.sweeps.reverse import vjp_of
from unspool._autodiff.tape.arithmetic import Arithmetic, frozen
from unspool._dtypes import BOOL
from unspool._engine.binding import bind_params
from unspool._graph import NO_PARAMS, Bundle, Node, describe, in_order, origin_scope, source_of
from unspool._ops.elementwise import MASK, mask
from unspool._ops.leaf import CONSTANT, PLACEHOLDER, TENSOR
from unspool.errors import ContributionShapeError, UnboundPlaceholderError

Array: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Cotangent:
    """A cotangent as numbers, and which of its elements were reached (``None``: all)."""

    value: Array
    keep: Array | None = None


# The cotangent of a node with several outputs has one slot for each, ``None`` where that output was not reached.
Slots: TypeAlias = tuple[Cotangent | None, ...]


class Interpreter:
    """Computes nodes from the values of others, in one arithmetic and under one binding of sizes."""

    def __init__(self, arithmetic: Arithmetic, sizes: Mapping[str, int]) -> None:
        self.arithmetic = arithmetic
        self.sizes = sizes

    def run(self, nodes: Iterable[Node], known: MutableMapping[int, Any]) -> None:
        """Compute nodes in the given order; read values from ``known`` and enter them there, by node id."""
        with np.errstate(all="ignore"):
            for node in nodes:
                if node.id not in known:
                    known[node.id] = self._compute(node, known)

    def evaluate(self, targets: Iterable[Node], known: Mapping[int, Any], own: dict[int, Any]) -> None:
        """Compute the targets and enter them into ``own``; values of other nodes come from ``known`` or ``own``."""
        found: dict[int, Node] = {}
        stack = list(targets)
        while stack:
            node = stack.pop()
            if node.id in own or node.id in found:
                continue
            if node.id in known:
                own[node.id] = known[node.id]
            else:
                found[node.id] = node
                stack.extend(node.inputs)
        self.run(in_order(list(found.values())), own)

    def contributions(self, node: Node, ct: Any, known: Mapping[int, Any], active: set[int]) -> Iterator[Any]:
        """Yield ``(input position, cotangent)`` for each active input that a node's cotangent reaches, in order."""
        own: dict[int, Any] = {}
        stand_in = _stand_in(node, ct, own)
        with origin_scope() as origin:
            for position, operand in enumerate(node.inputs):
                if operand.id in active:
                    origin.code, origin.lasti = node.code, node.lasti
                    contribution = vjp_of(node, position, stand_in)
                    if contribution is not None:
                        yield position, self._received(node, position, contribution, known, own)

    def _compute(self, node: Node, known: Mapping[int, Any]) -> Any:
        if node.op is PLACEHOLDER:
            raise UnboundPlaceholderError(
                f"no value was given for {describe(node)}, made at {source_of(node)}; "
                "pass it as Tape(outputs, values={placeholder: value})"
            )
        if node.op is TENSOR or node.op is CONSTANT:
            return self.arithmetic.leaf(node)
        values = [known[operand.id] for operand in node.inputs]
        try:
            params = bind_params(node.op, node.attributes, self.sizes)
            value = node.op.kernel(*self.arithmetic.arguments(node, values), **params)
            is_data = not node.inputs or node.op.draws
            if type(node) is Bundle:
                return tuple(
                    self.arithmetic.result(dtype, part, is_data)
                    for dtype, part in zip(node.dtype, value, strict=True)  # type: ignore[call-overload]
                )
            return self.arithmetic.result(node.dtype, value, is_data)
        except Exception as error:
            raise self.arithmetic.failure(node, error) from error

    def _received(
        self, node: Node, position: int, contribution: Any, known: Mapping[int, Any], own: dict[int, Any]
    ) -> Cotangent | Slots:
        """Return what a rule gave for one input as numbers, or raise if it does not fit the input."""
        operand = node.inputs[position]
        value = known[operand.id]
        if type(operand) is not Bundle:
            return self._numbers(node, position, contribution, value.shape, operand.dtype, known, own)
        if type(contribution) is not tuple or len(contribution) != len(value):
            raise self._misfit(node, position, f"a tuple of {len(value)} cotangents", contribution)
        return tuple(
            None if slot is None else self._numbers(node, position, slot, part.shape, dtype, known, own)
            for slot, part, dtype in zip(contribution, value, operand.dtype, strict=True)  # type: ignore[call-overload]
        )

    def _numbers(
        self,
        node: Node,
        position: int,
        contribution: Any,
        shape: tuple[int, ...],
        dtype: Any,
        known: Mapping[int, Any],
        own: dict[int, Any],
    ) -> Cotangent:
        if not isinstance(contribution, Node) or type(contribution) is Bundle:
            raise self._misfit(node, position, f"a tensor of shape {shape}", contribution)
        self.evaluate([contribution], known, own)
        value = own[contribution.id]
        if value.shape != shape:
            raise self._misfit(node, position, f"shape {shape}", value)
        keep = None
        if contribution.op is MASK:
            keep = np.broadcast_to(own[contribution.inputs[1].id], shape)
        return Cotangent(self.arithmetic.cotangent(dtype, value), keep)

    def _misfit(self, node: Node, position: int, expected: str, got: Any) -> ContributionShapeError:
        what = f"shape {got.shape}" if isinstance(got, (np.ndarray, Node)) else repr(got)
        return ContributionShapeError(
            f"the derivative rule of op {node.op.name!r} for input {position}, {describe(node.inputs[position])}, "
            f"has to give {expected} and gave {what}; {describe(node)} was made at {source_of(node)}"
        )


def add_cotangents(left: Cotangent, right: Cotangent) -> Cotangent:
    """Add two cotangents of one node; an element is absent from the sum if it is absent from both."""
    with np.errstate(all="ignore"):
        value = frozen(np.asarray(left.value + right.value))
    if left.keep is None or right.keep is None:
        return Cotangent(value)
    return Cotangent(value, left.keep | right.keep)


def add_slots(left: Slots, right: Slots) -> Slots:
    """Add two cotangents of one node with several outputs, slot by slot."""
    return tuple(b if a is None else a if b is None else add_cotangents(a, b) for a, b in zip(left, right, strict=True))


def _stand_in(node: Node, ct: Any, own: dict[int, Any]) -> Any:
    """Return graph that stands for a cotangent in a rule, and enter its value."""
    if type(node) is not Bundle:
        return _stand_in_for(node.shape, node.dtype, ct, own)
    return tuple(
        None if slot is None else _stand_in_for(shape, dtype, slot, own)
        for shape, dtype, slot in zip(node.shape, node.dtype, ct, strict=True)  # type: ignore[call-overload]
    )


def _stand_in_for(shape: Any, dtype: Any, ct: Cotangent, own: dict[int, Any]) -> Any:
    stand_in = _graph.intern(PLACEHOLDER, (), NO_PARAMS, shape, dtype, None)
    own[stand_in.id] = ct.value
    if ct.keep is None:
        return stand_in
    keep = _graph.intern(PLACEHOLDER, (), NO_PARAMS, shape, BOOL, None)
    own[keep.id] = ct.keep
    return mask(stand_in, keep)
