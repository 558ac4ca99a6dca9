"""Tools for looking at an evaluation: where a NaN was born, which kernels ran, and the code that runs them.

The first two are context managers and can be nested. They see what is *computed* inside the block: a value that the
store holds already is read, not computed. Other threads are not watched, and outside the block nothing costs anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from unspool._autodiff.loop import LOOP
from unspool._autodiff.loop_run import loop_source
from unspool._dims import is_concrete
from unspool._engine.default import default_engine
from unspool._engine.observe import observing
from unspool._fragments.call import Projection, call_of
from unspool._fragments.fragment import seal
from unspool._graph import Node, ancestors, describe, source_of
from unspool._ops.leaf import LEAF_OPS
from unspool._ops.op import PART
from unspool._tensor import Tensor
from unspool.errors import ArgumentError, NaNError, UnboundSizeError

__all__ = ["KernelCounts", "check_nan", "count_kernels", "source"]


@contextmanager
def check_nan(infinities: bool = False) -> Iterator[None]:
    """Raise `NaNError` at the first node that makes a NaN from inputs that have none.

    Parameters
    ----------
    infinities : bool
        Whether to raise for infinities too.

    Examples
    --------
    >>> import unspool as us
    >>> x = us.tensor([1.0, -1.0], name="x")
    >>> with us.debug.check_nan():
    ...     us.log(x).eval()  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    unspool.errors.NaNError: log of shape (2,) and dtype float64 made 1 NaN of 2 values ...
    """
    with observing(_NaNCheck(infinities)):
        yield


class KernelCounts:
    """How often kernels ran: ``total``, ``by_op`` (op name to count) and ``by_node`` (id of a node to count).

    ``counts["sin"]`` is short for ``counts.by_op["sin"]``; what did not run counts 0.
    """

    def __init__(self) -> None:
        self.total = 0
        self.by_op: Counter[str] = Counter()
        self.by_node: Counter[int] = Counter()

    def __getitem__(self, op: str) -> int:
        return self.by_op[op]

    def __repr__(self) -> str:
        ops = ", ".join(f"{name} {count}" for name, count in self.by_op.most_common())
        return f"<{self.total} kernel calls{': ' if ops else ''}{ops}>"

    def after(self, node: Node, arguments: Any, value: Any) -> None:
        """Count one kernel call."""
        self.total += 1
        self.by_op[node.op.name] += 1
        self.by_node[node.id] += 1


@contextmanager
def count_kernels() -> Iterator[KernelCounts]:
    """Count the kernel calls of a block, by op and by node.

    Examples
    --------
    >>> import unspool as us
    >>> x = us.tensor([1.0, 2.0])
    >>> with us.debug.count_kernels() as counts:
    ...     y = us.sum(x * x)
    ...     first, second = float(y), float(y)
    >>> counts.total, counts["multiply"], set(counts.by_node.values())
    (2, 1, {1})
    """
    counts = KernelCounts()
    with observing(counts):
        yield counts


# --- generated code --------------------------------------------------------------------------------------------------


def source(tensor: Tensor) -> str:
    """Return the Python code that computes a tensor, as text.

    For what `unspool.fragment` returns it is the code of the whole fragment, and for an output of `unspool.iterate`
    that of the loop. For other tensors it is that of all operations back to leaves and to outputs of such, which the
    engine may run in several pieces. What runs natively does the same. A traceback that comes from generated code shows
    lines of it.

    Parameters
    ----------
    tensor : Tensor
        It need not have a value, and gets none.

    Returns
    -------
    str
        In it, ``v3`` is the fourth value: inputs come first, in the order in which they are read. ``sum_axis_3`` is the
        axis of the sum that makes it. Functions have NumPy's names; ``add_reduce`` is ``np.add.reduce``.

    Raises
    ------
    UnboundSizeError
        If a size is symbolic: code is generated when sizes are known.

    Examples
    --------
    >>> import unspool as us
    >>> x = us.tensor([1.0, 2.0])
    >>> print(us.debug.source(us.sum(x * x)))
    def run(v0):
        v1 = multiply(v0, v0)
        v2 = asarray(add_reduce(v1, sum_axis_2))
        del v1
        return (v2,)
    """
    if not isinstance(tensor, Tensor):
        raise ArgumentError(f"us.debug.source takes a tensor, got {tensor!r} of type {type(tensor).__name__}")
    if type(tensor) is Projection:
        return call_of(tensor).plan.source
    if _is_of_loop(tensor):
        loop = tensor.inputs[0]
        return loop_source(loop.params["loop"], _concrete([node.shape for node in loop.inputs], tensor))
    captured = seal(_operations_behind(tensor), [tensor], literals=True)
    shapes = _concrete([node.shape for node in captured.inputs], tensor)
    return default_engine().plans.plan_for(captured.fragment, shapes).source


def _is_of_loop(node: Node) -> bool:
    return node.op is PART and node.inputs[0].op is LOOP


def _operations_behind(tensor: Tensor) -> list[Node]:
    """Return the operations back to leaves and to outputs of calls and loops, in topological order."""
    borders: set[int] = set()
    seen: set[int] = set()
    stack: list[Node] = [tensor]
    while stack:
        node = stack.pop()
        if node.id in seen:
            continue
        seen.add(node.id)
        if node.op in LEAF_OPS or type(node) is Projection or _is_of_loop(node):
            borders.add(node.id)
        else:
            stack += node.inputs
    return [node for node in ancestors([tensor], until=borders) if node.id not in borders]


def _concrete(shapes: list[Any], tensor: Tensor) -> tuple[Any, ...]:
    unknown = next((shape for shape in shapes if not is_concrete(shape)), None)
    if unknown is not None:
        raise UnboundSizeError(
            f"code is generated when sizes are known, and {describe(tensor)}, made at {source_of(tensor)}, "
            f"is computed from a tensor of shape {unknown}"
        )
    return tuple(shapes)


# --- observers -------------------------------------------------------------------------------------------------------


class _NaNCheck:
    """The observer of `check_nan`."""

    def __init__(self, infinities: bool) -> None:
        self._infinities = infinities
        self._is_bad = _not_finite if infinities else np.isnan

    def after(self, node: Node, arguments: Any, value: Any) -> None:
        bad = self._count(value)
        if not bad or any(self._count(argument) for argument in arguments):
            return
        what = "infinite or NaN value" if self._infinities else "NaN"
        size = sum(np.size(part) for part in _parts(value))
        lines = [f"{describe(node)} made {bad} {what}{'s' if bad > 1 else ''} of {size} values, at {source_of(node)}"]
        lines += [
            f"  input {position}: {describe(operand)}: {_statistics(argument)}, made at {source_of(operand)}"
            for position, (operand, argument) in enumerate(zip(node.inputs, arguments, strict=True))
        ]
        raise NaNError("\n".join(lines))

    def _count(self, value: Any) -> int:
        return sum(int(np.count_nonzero(self._is_bad(part))) for part in _parts(value) if _is_inexact(part))


def _not_finite(array: Any) -> Any:
    return ~np.isfinite(array)


def _parts(value: Any) -> tuple[Any, ...]:
    """Return the arrays of a value: several for an op with several outputs."""
    return value if isinstance(value, tuple) else (value,)


def _is_inexact(array: Any) -> bool:
    return np.asarray(array).dtype.kind in "fc"


def _statistics(value: Any) -> str:
    """Return the range of an input's values, for the message."""
    if isinstance(value, tuple):
        return "; ".join(_statistics(part) for part in value)
    array = np.asarray(value)
    if not array.size:
        return "no values"
    kind = ""
    if array.dtype.kind == "c":
        array, kind = np.abs(array), " of the modulus"
    zeros = array.size - np.count_nonzero(array)
    return f"min {array.min():.6g}, max {array.max():.6g}{kind}, {zeros} of {array.size} zero"
