"""What the NumPy backend does with values, and with single kernels: all that a program needs which runs once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._ops.leaf import CONSTANT
from unspool._ops.op import Op

if TYPE_CHECKING:
    from unspool._engine.backends.base import Lowered


def owned(value: Any) -> Any:
    """Return a value fit to be kept: an array, and not a small view that would hold a large one alive."""
    if type(value) is np.ndarray:
        base = value.base
        if base is not None and type(base) is np.ndarray and base.nbytes > 2 * value.nbytes:
            return value.copy(order="K")  # a product of other layout has other bits
        return value
    return tuple([owned(part) for part in value]) if type(value) is tuple else np.asarray(value)


def frozen(value: Any) -> Any:
    """Return a value, an array or several, to which nobody can write any more."""
    for array in value if type(value) is tuple else (value,):
        array.setflags(write=False)
    return value


def call_kernel(op: Op, arguments: Sequence[Any], params: Any) -> Any:
    """Return what an op gives for arrays."""
    return params["literal"].array if op is CONSTANT else op.kernel(*arguments, **params)


def held_values(program: Lowered) -> dict[int, Any]:
    """Compute what depends on no input, and return the values that runs read, by slot."""
    values: dict[int, Any] = {}
    for step in program.steps:
        if step.once:
            values[step.slot] = owned(call_kernel(step.op, [values[slot] for slot in step.operands], step.params))
    read = {slot for step in program.steps if not step.once for slot in step.operands} | set(program.outputs)
    return {slot: frozen(value) for slot, value in values.items() if slot in read}
