"""What becomes of an exception in a kernel: an error that names the op, the user's line and the step of a loop."""

from __future__ import annotations

from unspool._engine.step_number import step_of
from unspool._fragments.call import Call
from unspool._graph import Node, describe, source_of
from unspool._ops.leaf import PLACEHOLDER
from unspool.errors import KernelError, UnboundPlaceholderError, UnspoolError


def failure(node: Node, error: Exception, call: Call | None = None) -> UnspoolError:
    """Return the error to raise for a node whose computation failed, with the user's line that made it and its step.

    ``call`` is the call that it is inside of.
    """
    place = f"{describe(node)}, made at {source_of(node)}"
    if node.op is PLACEHOLDER:
        return UnboundPlaceholderError(f"no value was given for {place}; pass it as t.eval({{placeholder: value}})")
    step = step_of(call or node, node)
    loop = "" if step is None else f", in step {step} of a loop"
    if isinstance(error, UnspoolError):
        import copy

        located = copy.copy(error)
        located.args = (f"{error}, in {place}{loop}",)
        return located
    shapes = ", ".join(str(operand.shape) for operand in node.inputs)
    message = f"{type(error).__name__}: {error}, while computing {place}, from inputs of shapes {shapes}{loop}"
    return KernelError(message)
