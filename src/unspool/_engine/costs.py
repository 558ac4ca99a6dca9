"""What values take, and what units run: all that a first value needs to know of plans."""

from __future__ import annotations

from math import prod
from typing import Any

from unspool._fragments.call import Call
from unspool._graph import Node
from unspool._ops.leaf import CONSTANT
from unspool._ops.op import PART, Op


def nbytes(shape: Any, dtype: Any) -> int:
    """Return how many bytes a slot takes, given its shape and dtype, or tuples of them."""
    if isinstance(dtype, tuple):
        return sum(prod(s) * d.itemsize for s, d in zip(shape, dtype, strict=True))
    size: int = prod(shape) * dtype.itemsize
    return size


def runs_kernel(op: Op) -> bool:
    """Whether an op is a kernel call: it does more than to name a value again or to pick one of several."""
    return not (op.renames or op.passes or op is PART or op is CONSTANT)


def kernels_of(unit: Node) -> int:
    """Return how many kernels running a unit takes."""
    if type(unit) is Call:
        return unit.plan.kernels
    return int(runs_kernel(unit.op))
