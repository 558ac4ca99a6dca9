"""Whether a result depends on variables at all, and what a derivative is where it does not.

A result that depends on no variable is nearly always a mistake: some value became a plain number on the way. So the
default is to raise. Two things are no mistakes. One is a variable beside others that matter: its derivative is zero.
The other is a result made of derivatives, which may well be constant: the second derivative of a linear function is.
Dependence is meant in the graph as a whole: what goes through a sign, an integer or `stop_gradient` has a derivative of
zero, and that is no error.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from unspool._autodiff.sweeps.variables_inside import Inside
from unspool._autodiff.sweeps.walk import Walk
from unspool._engine.default import default_engine
from unspool._fragments.call import Projection, call_of
from unspool._graph import Node, describe, source_of
from unspool.errors import ArgumentError, NotConnectedError

if TYPE_CHECKING:
    from unspool._autodiff.arguments import Outputs, Variables

Unconnected: TypeAlias = Literal["auto", "zeros", "none", "raise"]
OrZeros: TypeAlias = Literal["auto", "zeros"]


def check_unconnected(unconnected: Any, meanings: Sequence[str]) -> None:
    """Raise `ArgumentError` if ``unconnected`` is none of what it may be."""
    if not isinstance(unconnected, str) or unconnected not in meanings:
        known = ", ".join(map(repr, meanings[:-1]))
        raise ArgumentError(f"unconnected is {known} or {meanings[-1]!r}, got {unconnected!r}")


def require_connection(outputs: Outputs, variables: Variables, name: str) -> None:
    """Raise `NotConnectedError` if what a function returned depends on none of its variables and should."""
    if not variables.tensors or not outputs.tensors:
        return
    if outputs.plain is not None:
        raise NotConnectedError(
            f"{name} returned {outputs.plain}, which has no derivative: what it was made of has left the graph. "
            f"{_ADVICE}"
        )
    if not depends(outputs.tensors, variables.tensors) and not _is_made_of(outputs.tensors, variables.derivatives):
        raise not_connected(outputs.tensors[0], variables.tensors, variables.names())


def not_connected(output: Node, variables: Sequence[Node], names: Sequence[str]) -> NotConnectedError:
    """Return the error for a result that depends on no variable."""
    named = f"any of {', '.join(names)}" if len(names) > 1 else f"{names[0]} ({describe(variables[0])})"
    return NotConnectedError(f"{describe(output)}, made at {source_of(output)}, does not depend on {named}. {_ADVICE}")


_ADVICE = (
    "A value that became a plain number or array on the way (float, np.asarray, math, a library's function) is a "
    "constant from there on. Pass unconnected='zeros' if a constant is meant, as the slope of a linear function is one"
)


def depends(outputs: Sequence[Node], variables: Sequence[Node]) -> bool:
    """Whether an output is made from a variable, on any path."""
    return _reaches(outputs, {v.id for v in variables}, Inside(variables))


def moves(node: Node, variables: Sequence[Node]) -> bool:
    """Whether a node depends on a variable on a path that is differentiated."""
    if not variables or node.id < min(v.id for v in variables):
        return False
    queue = default_engine().queue
    queue.settle([node], variables)
    with queue.nothing_folds():
        return bool(Walk([node], variables).order)


def _is_made_of(outputs: Sequence[Node], derivatives: Collection[int]) -> bool:
    return bool(derivatives) and _reaches(outputs, derivatives, None)


def _reaches(outputs: Sequence[Node], wanted: Collection[int], inside: Inside | None) -> bool:
    """Whether nodes with some ids are among what outputs are made from; calls are looked into where these are inside.

    Without ``inside`` a call counts as made of what is wanted if that is older.
    """
    first = min(wanted) if inside is None else inside.first
    queue = default_engine().queue
    queue.settle(outputs)
    with queue.nothing_folds():
        seen: set[int] = set()
        stack = list(outputs)
        while stack:
            node = stack.pop()
            if node.id in wanted:
                return True
            if node.id in seen or node.id < first:
                continue
            seen.add(node.id)
            if type(node) is not Projection:
                stack.extend(node.inputs)
                continue
            call = call_of(node)
            if inside is None:
                return True
            stack.extend(node.inputs if inside.is_in(call) else call.inputs)
    return False
