"""The engine: computes the values of nodes, each once, with NumPy kernels.

`Engine.evaluate` walks back from its targets to nodes that have a value, runs what lies between in id order, and frees
each intermediate value at its last use. What it keeps is what somebody can still ask for: the targets, and interior
nodes that are referenced from outside the piece of graph it ran (a variable of the user's, a consumer that was not part
of it). So a loop that reads one value per step runs each step once, and the temporaries of a step are not held.

Values that depend on placeholders are never kept: they belong to one binding.
"""

from __future__ import annotations

import contextvars
import copy
import threading
from collections.abc import Callable, Container, Mapping, Sequence
from sys import getrefcount
from typing import Any

import numpy as np

from unspool import _dims
from unspool._engine.binding import bind_params, bind_placeholders
from unspool._engine.observe import Observer, current_observer
from unspool._graph import Bundle, Node, SizedParams, describe, source_of
from unspool._ops.leaf import PLACEHOLDER
from unspool.errors import (
    KernelError,
    SizeContradictionError,
    UnboundPlaceholderError,
    UnspoolError,
)

# Passes longer than this free intermediate values at their last use; shorter ones end before that could matter.
_SHORT = 32

# What the loop of `_run` itself refers to a node by: the loop variable and the argument of getrefcount.
_OWN_REFERENCES = 2


class Engine:
    """Evaluates tensors; the default one serves ``eval()``, ``float()`` and everything else that computes."""

    def evaluate(self, targets: Sequence[Node], bindings: Mapping[Any, Any] | None = None) -> list[Any]:
        """Return the values of the targets as read-only arrays, computing each node that needs it once."""
        if bindings:
            return self._evaluate_bound(targets, bindings)
        missing = [t for t in targets if t.value is None]
        if missing:
            order, uses = _collect(missing)
            _run_quietly(_run, order, uses, {t.id for t in missing}, current_observer())
        return [_hand_out(t.value) for t in targets]

    def _evaluate_bound(self, targets: Sequence[Node], bindings: Mapping[Any, Any]) -> list[Any]:
        values, sizes = bind_placeholders(bindings)
        order, uses = _collect([t for t in targets if t.value is None and t.id not in values], values)
        _run_quietly(_run_bound, order, uses, {t.id for t in targets}, values, sizes, current_observer())
        return [_hand_out(_owned(values[t.id]) if t.id in values else t.value) for t in targets]


class _QuietContext(threading.local):
    """A context per thread in which NumPy does not warn: infinities of branches not taken are no news.

    Entering ``numpy.errstate`` costs more than a small kernel; running in a context where it was entered does not.
    """

    def __init__(self) -> None:
        self.context = contextvars.Context()
        self.context.run(np.seterr, all="ignore")
        self.context.run(_is_quiet.set, True)


_is_quiet: contextvars.ContextVar[bool] = contextvars.ContextVar("unspool_is_quiet", default=False)
_quiet = _QuietContext()


def _run_quietly(function: Callable[..., None], *arguments: Any) -> None:
    if _is_quiet.get():  # a kernel of the user's evaluates tensors itself
        function(*arguments)
    else:
        _quiet.context.run(function, *arguments)


_default = Engine()


def default_engine() -> Engine:
    """Return the engine that ``eval()`` uses."""
    return _default


# --- one pass --------------------------------------------------------------------------------------------------------


def _collect(targets: list[Node], bound: Mapping[int, Any] | None = None) -> tuple[list[Node], dict[int, int]]:
    """Find what has to run: the pending nodes in id order, and how often each is used within the pass."""
    wanted = {t.id: t for t in targets}
    uses: dict[int, int] = dict.fromkeys(wanted, 0)
    order: list[Node] = []
    stack = list(wanted.values())
    while stack:
        node = stack.pop()
        order.append(node)
        for operand in node.inputs:
            if operand.value is None:
                key = operand.id
                if key in uses:
                    uses[key] += 1
                elif bound is None or key not in bound:
                    uses[key] = 1
                    stack.append(operand)
    if len(order) > 1:
        order.sort(key=_by_id)
    return order, uses


def _run(order: list[Node], uses: dict[int, int], targets: set[int], observer: Observer | None) -> None:
    """Run pending nodes in id order; keep the values of targets and of nodes that are referenced from outside."""
    values: dict[int, Any] = {}
    freeing = len(order) > _SHORT
    order.reverse()
    while order:
        node = order.pop()
        try:
            arguments = [values[i.id] if i.value is None else i.value for i in node.inputs]
            params = node.params
            if params:
                if type(params) is SizedParams:
                    params = bind_params(node, {})
                value = node.op.kernel(*arguments, **params)
            else:
                value = node.op.kernel(*arguments)
        except Exception as error:
            raise _failure(node, error) from error
        if observer is not None:
            observer.after(node, arguments, value)
        key = node.id
        # Consumers come later in the pass, so at this point `uses` still counts all of them.
        if key in targets or getrefcount(node) > _OWN_REFERENCES + uses[key]:
            node.value = _owned(value)
        else:
            values[key] = value
        if freeing:
            arguments.clear()
            _release(node, uses, values)


def _run_bound(
    order: list[Node],
    uses: dict[int, int],
    targets: set[int],
    values: dict[int, Any],
    sizes: Mapping[str, int],
    observer: Observer | None,
) -> None:
    """Run a pass under a binding: symbolic sizes are numbers now, and shapes are checked against them.

    ``values`` holds the bound arrays and receives those of the targets; nothing is kept on the nodes.
    """
    for node in order:
        try:
            arguments = [values[i.id] if i.value is None else i.value for i in node.inputs]
            params = bind_params(node, sizes)
            value = node.op.kernel(*arguments, **params)
            if sizes:  # else nothing was symbolic
                _check_shape(node, value, sizes)
        except Exception as error:
            raise _failure(node, error) from error
        if observer is not None:
            observer.after(node, arguments, value)
        values[node.id] = value
        _release(node, uses, values, targets)


def _release(node: Node, uses: dict[int, int], values: dict[int, Any], targets: Container[int] = ()) -> None:
    """Drop the values that were needed for the last time by this node."""
    for operand in node.inputs:
        key = operand.id
        left = uses.get(key)
        if left is not None:
            uses[key] = left - 1
            if left == 1 and key not in targets:
                values.pop(key, None)


def _by_id(node: Node) -> int:
    return node.id


def _owned(value: Any) -> Any:
    """Return a value fit to be kept: an array, and not a small view that would hold a large one alive."""
    if type(value) is np.ndarray:
        base = value.base
        if base is not None and type(base) is np.ndarray and base.nbytes > 2 * value.nbytes:
            return value.copy()
        return value
    return value if type(value) is tuple else np.asarray(value)


def _hand_out(value: Any) -> Any:
    if value.flags.writeable:
        value.setflags(write=False)
    return value


def _check_shape(node: Node, value: Any, sizes: Mapping[str, int]) -> None:
    declared = node.shape if type(node) is Bundle else (node.shape,)
    actual = value if type(node) is Bundle else (value,)
    for shape, part in zip(declared, actual, strict=True):
        expected = tuple(_dims.bind(size, sizes) for size in shape)  # type: ignore[union-attr]
        if np.shape(part) != expected:
            raise SizeContradictionError(f"a result of shape {np.shape(part)} was declared as {shape} = {expected}")


def _failure(node: Node, error: Exception) -> UnspoolError:
    """Return the error to raise for a node whose computation failed, with the user's line that made it."""
    place = f"{describe(node)}, made at {source_of(node)}"
    if node.op is PLACEHOLDER:
        return UnboundPlaceholderError(f"no value was given for {place}; pass it as t.eval({{placeholder: value}})")
    if isinstance(error, UnspoolError):
        located = copy.copy(error)
        located.args = (f"{error}, in {place}",)
        return located
    shapes = ", ".join(str(operand.shape) for operand in node.inputs)
    return KernelError(f"{type(error).__name__}: {error}, while computing {place}, from inputs of shapes {shapes}")
