"""Node by node: one pass over pending nodes in order, with the kernel of each op, or the plan of each call.

What a pass keeps is what somebody can still ask for: the targets, and interior nodes that are referenced from outside
the piece of graph it ran (a variable of the user's, a consumer that was not part of it). The rest is freed at its last
use. So a loop that reads one value per step runs each step once, and the temporaries of a step are not held.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import numpy as np

from unspool import _core, _dims
from unspool._activity import ACTIVITY
from unspool._engine.binding import bind_params
from unspool._engine.failure import failure
from unspool._engine.given import run_with_given
from unspool._engine.numpy_values import owned
from unspool._engine.observe import Observer, shown
from unspool._engine.planning import nbytes
from unspool._engine.references import AS_AN_OPERAND, IN_A_LIST_AND_A_VARIABLE, IN_A_VARIABLE, count_references
from unspool._fragments.call import Call, Projection, call_of, link_of, unfold, was_evaluated
from unspool._graph import Bundle, Node, SizedParams, find, in_order
from unspool._ops.elementwise import ADD
from unspool._ops.hints import KEEP
from unspool._ops.leaf import CONSTANT
from unspool._ops.op import PART
from unspool._sweeps import is_swept
from unspool.errors import SizeContradictionError

# Passes longer than this free intermediate values at their last use, shorter ones when there is a large one: else they
# end before that could matter.
_SHORT = 32

# Smaller arrays are not worth freeing early, and sums of them not the check whether they can be done in place.
_LARGE = 1 << 14


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
    if bound is None and not stop_at_lost:
        # Most passes have neither calls nor factorisations; without these there is nothing to decide.
        order = list(wanted.values())
        if _core.pending_nodes(order, uses):
            order.sort(key=_by_id)
            return Pass(order, uses, False, set(), [])
        uses = dict.fromkeys(wanted, 0)
    order = []
    bundles: list[Node] = []
    lent: list[Node] = []
    inverted = has_calls = reads_lost = False
    stack = list(wanted.values())
    while stack:
        node = stack.pop()
        order.append(node)
        if type(node) is Bundle:
            bundles.append(node)
        if type(node) is Projection:
            has_calls = True
            call = call_of(node)
            inverted |= call.id > node.id
            if call.id in uses:
                uses[call.id] += 1
            else:
                uses[call.id] = 1
                stack.append(call)
            continue
        for operand in node.inputs:
            if operand.value is None:
                key = operand.id
                if key in uses:
                    uses[key] += 1
                elif bound is None or key not in bound:
                    if type(operand) is Projection and take_from_slab(operand):
                        lent.append(operand)
                        continue
                    uses[key] = 1
                    if stop_at_lost and was_evaluated(operand):
                        reads_lost = True
                        continue
                    inverted |= key > node.id
                    stack.append(operand)
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


def run(work: Pass, targets: Container[int], observer: Observer | None, values: dict[int, Any] | None = None) -> None:
    """Run pending nodes; keep the values of targets and of nodes that are referenced from outside.

    ``values`` is where those of others are in the meantime, for who looks on.
    """
    values = {} if values is None else values
    order, uses = work.order, work.uses
    freeing = len(order) > _SHORT
    order.reverse()
    while order:
        node = order.pop()
        cls = type(node)
        if cls is Projection:
            if node.value is not None:
                continue  # another thread computed it, and folded it
            call, index = link_of(node)
            value = values[call.id][index]
            arguments: Any = ()
        else:
            try:
                arguments = [values[i.id] if (value := i.value) is None else value for i in node.inputs]
            except KeyError:
                raise ValueDroppedError from None
            if cls is Call:
                value = run_call(node, arguments, observer)  # type: ignore[arg-type]
                values[node.id] = value
                give_to_handles(node, value, uses)  # type: ignore[arg-type]
                if freeing:
                    arguments.clear()
                    release(node.inputs, uses, values)
                continue
            if observer is not None:
                value = shown(observer, apply_kernel, node, arguments)
                observer.after(node, arguments, value)
            elif freeing and node.op is ADD and _is_spare(node, arguments, uses, values):
                value = np.add(arguments[0], arguments[1], out=arguments[0])
            else:
                value = apply_kernel(node, arguments)
        # What was computed before is small, so that it does not matter how often it was used.
        freeing = freeing or (type(value) is np.ndarray and value.nbytes >= _LARGE)
        key = node.id
        # Consumers come later in the pass, so at this point `uses` still counts all of them.
        if key in targets or count_references(node) > IN_A_VARIABLE + uses[key]:
            node.value = owned(value)
        elif node.op is KEEP:
            node.value = node.inputs[0].value = owned(value)
        else:
            values[key] = value
        if freeing:
            if arguments:
                arguments.clear()
            release(sources_of(node), uses, values)


def _is_spare(node: Node, arguments: list[Any], uses: dict[int, int], values: dict[int, Any]) -> bool:
    """Whether the left operand of a sum may be overwritten by it: a large temporary that nothing else looks at."""
    left = node.inputs[0].id
    array = arguments[0]
    return (
        left in values
        and uses[left] == 1
        and type(array) is np.ndarray
        and array.nbytes >= _LARGE
        and array.base is None
        and array.flags.writeable
        and array.shape == node.shape
        and array.dtype == node.dtype
        and count_references(array) <= AS_AN_OPERAND
    )


def apply_kernel(node: Node, arguments: Sequence[Any], kernel: Callable[..., Any] | None = None) -> Any:
    """Return the value of a node that is not a call, by the kernel of its op unless another one is given."""
    kernel = kernel or node.op.kernel
    try:
        params = node.attributes
        if params and type(params) is SizedParams:
            params = bind_params(node.op, params, {})
        if ACTIVITY.timer is not None:
            op, origin = node.op, (node.code, node.lasti)
            return ACTIVITY.timer.run(op, origin, is_swept(node.id), kernel, arguments, params)
        if params:
            return kernel(*arguments, **params)
        return kernel(*arguments)
    except Exception as error:
        raise failure(node, error) from error


def _apply_inside(call: Call, node: Node, arguments: Sequence[Any], params: Mapping[str, Any]) -> Any:
    """Return the value of a node inside a call, with the parameters of its plan."""
    try:
        return node.op.kernel(*arguments, **params)
    except Exception as error:
        raise failure(node, error, call) from error


def _apply_bound(node: Node, arguments: Sequence[Any], sizes: Mapping[str, int]) -> Any:
    """Return the value of a node that is not a call, where symbolic sizes are numbers."""
    try:
        value = node.op.kernel(*arguments, **bind_params(node.op, node.attributes, sizes))
        if sizes:  # else nothing was symbolic
            _check_shape(node, value, sizes)
        return value
    except Exception as error:
        raise failure(node, error) from error


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
        return run_with_given(call, arguments) if call.value else call.plan.run(*arguments)
    except Exception:
        return run_inside(call, arguments, None)  # finds the node that failed


def give_to_handles(call: Call, results: Sequence[Any], inside: Container[int] = ()) -> None:
    """Give the outputs of a call that ran to the tensors that stand for them, except to those ``inside`` a pass.

    A pass decides itself what to keep of its own. Others would have to run the call again.
    """
    for handle, value in zip(call.handles, results, strict=True):
        if handle is not None and handle.value is None and handle.id not in inside:
            handle.value = value


def run_inside(call: Call, arguments: Sequence[Any], observer: Observer | None) -> tuple[Any, ...]:
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


def _by_id(node: Node) -> float:
    return node.id


def _check_shape(node: Node, value: Any, sizes: Mapping[str, int]) -> None:
    declared = node.shape if type(node) is Bundle else (node.shape,)
    actual = value if type(node) is Bundle else (value,)
    for shape, part in zip(declared, actual, strict=True):
        expected = tuple(_dims.bind(size, sizes) for size in shape)  # type: ignore[union-attr]
        if np.shape(part) != expected:
            raise SizeContradictionError(f"a result of shape {np.shape(part)} was declared as {shape} = {expected}")
