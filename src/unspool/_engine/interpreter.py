"""Node by node: one pass over pending nodes in order, with the kernel of each op, or the plan of each call.

What a pass keeps is what somebody can still ask for: the targets, and interior nodes that are referenced from outside
the piece of graph it ran (a variable of the user's, a consumer that was not part of it). The rest is freed at its last
use. So a loop that reads one value per step runs each step once, and the temporaries of a step are not held.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np

from unspool import _core, _dims
from unspool._activity import ACTIVITY
from unspool._engine.backends.values import owned
from unspool._engine.costs import nbytes
from unspool._engine.observe import Observer, shown
from unspool._engine.references import IN_A_LIST_AND_A_VARIABLE, count_references
from unspool._fragments.call import Call, Projection, call_of, link_of, unfold
from unspool._graph import Bundle, Node, SizedParams, find, in_order
from unspool._ops.elementwise import ADD
from unspool._ops.hints import KEEP
from unspool._ops.leaf import CONSTANT
from unspool._ops.op import PART
from unspool._sweeps import is_swept
from unspool.errors import SizeContradictionError

_by_id = attrgetter("id")


def sources_of(node: Node) -> tuple[Node, ...]:
    """Return what a node is computed from: its inputs, or its call."""
    return (call_of(node),) if type(node) is Projection else node.inputs


class Pass:
    """What has to run: pending nodes in order, and how often each is used by the others.

    ``bundles`` are those of which parts may be asked for later that are no tensors yet. ``lent`` are residuals that
    have their value from their call, for the duration of the pass. ``reads_lost`` tells whether it reads values that
    were there before and have been evicted; what it takes to make them again is not part of it.
    """

    __slots__ = ("bundles", "has_calls", "lent", "order", "reads_lost", "uses")

    def __init__(
        self, order: list[Node], uses: dict[int, int], has_calls: bool, bundles: set[int], lent: list[Node]
    ) -> None:
        self.order = order
        self.uses = uses
        self.has_calls = has_calls
        self.bundles = bundles
        self.lent = lent
        self.reads_lost = False

    def give_back(self) -> None:
        """Leave residuals to their calls again: what a call releases has to be gone."""
        for node in self.lent:
            node.value = None
        self.lent.clear()


def collect(targets: Sequence[Node], bound: Mapping[int, Any] | None = None, *, stop_at_lost: bool = False) -> Pass:
    """Find what has to run for targets without value, down to what has one, or to what has lost one if asked to."""
    wanted = {t.id: t for t in targets if type(t) is not Projection or not take_from_slab(t)}
    uses: dict[int, int] = dict.fromkeys(wanted, 0)
    order = list(wanted.values())
    bundles: list[Node] = []
    lent: list[Node] = []
    found = _core.pending_nodes(order, uses, bundles, lent, bound, take_from_slab, stop_at_lost)
    has_calls, inverted, reads_lost = found
    adopters = adopt_parts(bundles, order, uses) if bundles and bound is None else set()
    if inverted:
        order = in_order(order, sources_of)
    elif len(order) > 1:
        order.sort(key=_by_id)
    work = Pass(order, uses, has_calls, adopters, lent)
    work.reads_lost = reads_lost
    return work


def peak_bytes(work: Pass) -> int:
    """Return the most bytes that a pass holds at once of what it computes.

    What is referred to from outside stays after its last use: values that were evicted and are recomputed, say.
    """
    left = dict(work.uses)
    for node in kept_nodes(work.order, work.uses, ()):
        left[node.id] += 1
    alive: dict[int, int] = {}
    now = peak = 0
    for node in work.order:
        if type(node) is not Projection:
            alive[node.id] = size = bytes_of(node)
            now += size
            peak = max(peak, now)
        for source in sources_of(node):
            if source.id in left and type(source) is not Call:
                left[source.id] -= 1
                if not left[source.id]:
                    now -= alive.pop(source.id, 0)
    return peak


def bytes_of(node: Node) -> int:
    """Return the bytes of what a node gives."""
    return node.plan.output_bytes if type(node) is Call else nbytes(node.shape, node.dtype)


def adopt_parts(bundles: Sequence[Node], order: list[Node], uses: dict[int, int]) -> set[int]:
    """Let a pass also take the parts of its bundles that are alive but were not asked for.

    Taking a part costs nothing once the bundle is there. Returns the bundles that have adopted a part and have others.
    """
    adopters: set[int] = set()
    for bundle in bundles:
        parts = [part_if_alive(bundle, index) for index in range(len(bundle.shape))]
        for part in parts:
            if part is not None and part.value is None and part.id not in uses:
                uses[part.id] = 0
                uses[bundle.id] += 1
                order.append(part)
                if any(other is None for other in parts):
                    adopters.add(bundle.id)
    return adopters


def part_if_alive(bundle: Node, index: int) -> Node | None:
    """Return the tensor that is a part of a bundle, if there is one."""
    return find(PART, (bundle,), (("index", index),))


def kept_nodes(order: list[Node], uses: dict[int, int], targets: Container[int]) -> list[Node]:
    """Return the nodes of a pass whose values somebody can still ask for: targets, and what is referenced from outside.

    The caller must hold no other references to them than the list.
    """
    own = IN_A_LIST_AND_A_VARIABLE
    return [node for node in order if node.id in targets or count_references(node) > own + uses[node.id]]


def take_from_slab(projection: Node) -> bool:
    """Give a residual its value if its call has kept it; tell whether it did."""
    call = call_of(projection)
    slab = call.value
    position = call.plan.fragment.slab.get(projection.output) if slab else None
    if position is None:
        return False
    projection.value = slab[position]
    return projection.value is not None


class ValueDroppedError(Exception):
    """A value that a pass was about to read has been evicted by another thread: the pass has to be collected anew."""


def run(work: Pass, targets: set[int], observer: Observer | None, values: dict[int, Any] | None = None) -> None:
    """Run pending nodes; keep the values of targets and of nodes that are referenced from outside.

    ``values`` is where those of others are in the meantime, for who looks on.
    """
    apply: Callable[[Node, Sequence[Any]], Any] | None = apply_kernel if ACTIVITY.timer is not None else None
    call: Callable[[Call, Sequence[Any]], Any] = run_call
    if observer is not None:
        apply, call = partial(_apply_shown, observer), partial(run_call, observer=observer)
    can_count = count_references is sys.getrefcount
    values = {} if values is None else values
    _core.run_nodes(work.order, work.uses, targets, values, can_count, apply, call, _HOOKS)


def _apply_shown(observer: Observer, node: Node, arguments: Sequence[Any]) -> Any:
    value = shown(observer, apply_kernel, node, arguments)
    observer.after(node, arguments, value)
    return value


def _onto_left(node: Node, arguments: Sequence[Any]) -> Any:
    """Add two arrays onto the left one, to which nobody else refers; None if the sum would be another one."""
    array = arguments[0]
    if array.base is None and array.flags.writeable and array.shape == node.shape and array.dtype == node.dtype:
        return np.add(array, arguments[1], out=array)
    return None


def apply_kernel(node: Node, arguments: Sequence[Any], kernel: Callable[..., Any] | None = None) -> Any:
    """Return the value of a node that is not a call, by the kernel of its op unless another one is given."""
    kernel = kernel or node.op.kernel
    try:
        params = node.attributes
        if params and type(params) is SizedParams:
            from unspool._engine.binding import bind_params

            params = bind_params(node.op, params, {})
        if ACTIVITY.timer is not None:
            op, origin = node.op, (node.code, node.lasti)
            return ACTIVITY.timer.run(op, origin, is_swept(node.id), kernel, arguments, params)
        if params:
            return kernel(*arguments, **params)
        return kernel(*arguments)
    except Exception as error:
        raise _failure(node, error) from error


def _failure(node: Node, error: Exception, call: Call | None = None) -> Exception:
    from unspool._engine.failure import failure

    return failure(node, error, call)


def _fail(node: Node, error: Exception) -> None:
    raise _failure(node, error) from error


def _apply_inside(call: Call, node: Node, arguments: Sequence[Any], params: Mapping[str, Any]) -> Any:
    """Return the value of a node inside a call, with the parameters of its plan."""
    try:
        return node.op.kernel(*arguments, **params)
    except Exception as error:
        raise _failure(node, error, call) from error


def _apply_bound(node: Node, arguments: Sequence[Any], sizes: Mapping[str, int]) -> Any:
    """Return the value of a node that is not a call, where symbolic sizes are numbers."""
    from unspool._engine.binding import bind_params

    try:
        value = node.op.kernel(*arguments, **bind_params(node.op, node.attributes, sizes))
        if sizes:  # else nothing was symbolic
            _check_shape(node, value, sizes)
        return value
    except Exception as error:
        raise _failure(node, error) from error


def run_call(call: Call, arguments: Sequence[Any], observer: Observer | None = None) -> tuple[Any, ...]:
    """Return the outputs of a call; residuals are kept with it."""
    results = results_of(call, arguments, observer)
    call.value = results[call.plan.fragment.results :]
    return results


def results_of(call: Call, arguments: Sequence[Any], observer: Observer | None = None) -> tuple[Any, ...]:
    """Return the outputs of a call."""
    if observer is not None:
        return run_inside(call, arguments, observer)
    try:
        if not call.value:
            return call.plan.run(*arguments)
        from unspool._engine.partial_calls import run_with_given

        return run_with_given(call, arguments)
    except Exception:
        return run_inside(call, arguments)  # finds the node that failed


def give_to_handles(call: Call, results: Sequence[Any], inside: Container[int] = ()) -> None:
    """Give the outputs of a call that ran to the tensors that stand for them, except to those ``inside`` a pass.

    A pass decides itself what to keep of its own. Others would have to run the call again.
    """
    for handle, value in zip(call.handles, results, strict=True):
        if handle is not None and handle.value is None and handle.id not in inside:
            handle.value = value


def run_inside(call: Call, arguments: Sequence[Any], observer: Observer | None = None) -> tuple[Any, ...]:
    """Run a call node by node, so that an observer sees them and an error names one."""
    values = list(arguments)
    nodes = unfold(call)
    plan = call.plan
    for position, instruction in enumerate(plan.fragment.body):
        node = nodes[len(arguments) + position]
        if instruction.op is CONSTANT:
            values.append(instruction.params["literal"].array)
            continue
        inputs = [values[slot] for slot in instruction.operands]
        value = shown(observer, _apply_inside, call, node, inputs, plan.params[position])
        if observer is not None:
            observer.after(node, inputs, value, call)
        values.append(value)
    return tuple(owned(values[slot]) for slot in plan.fragment.outputs)


def run_bound(
    work: Pass,
    targets: Container[int],
    values: dict[int, Any],
    sizes: Mapping[str, int],
    observer: Observer | None,
) -> None:
    """Run a pass under a binding: symbolic sizes are numbers now, and shapes are checked against them.

    ``values`` holds the bound arrays and receives those of the targets; nothing is kept on the nodes.
    """
    for node in work.order:
        arguments: Any = ()
        if type(node) is Projection:
            call, index = link_of(node)
            value = values[call.id][index]
        else:
            arguments = [values[i.id] if i.value is None else i.value for i in node.inputs]
            if type(node) is Call:
                value = run_inside(node, arguments, observer) if observer else node.plan.run(*arguments)
            else:
                value = shown(observer, _apply_bound, node, arguments, sizes)
                if observer is not None:
                    observer.after(node, arguments, value)
        values[node.id] = value
        release(sources_of(node), work.uses, values, targets)


def release(
    operands: Sequence[Node], uses: dict[int, int], values: dict[int, Any], targets: Container[int] = ()
) -> None:
    """Drop the values of operands that were needed for the last time."""
    for operand in operands:
        key = operand.id
        left = uses.get(key)
        if left is not None:
            uses[key] = left - 1
            if left == 1 and key not in targets:
                values.pop(key, None)


def _check_shape(node: Node, value: Any, sizes: Mapping[str, int]) -> None:
    declared = node.shape if type(node) is Bundle else (node.shape,)
    actual = value if type(node) is Bundle else (value,)
    for shape, part in zip(declared, actual, strict=True):
        expected = tuple(_dims.bind(size, sizes) for size in shape)  # type: ignore[union-attr]
        if np.shape(part) != expected:
            raise SizeContradictionError(f"a result of shape {np.shape(part)} was declared as {shape} = {expected}")


# What the core asks of this module in rare cases, and what it has to know: see `run`.
_HOOKS = (ADD, KEEP, owned, _onto_left, apply_kernel, run_inside, _fail, ValueDroppedError)
