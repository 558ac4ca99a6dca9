"""Tools for looking at an evaluation: where a NaN was born, which kernels ran, and the code that runs them.

`check_nan` and `count_kernels` look while it runs. They are context managers and can be nested. They see what is
*computed* inside the block: a value that is held already is read, not computed. Other threads are not watched, and
outside the block nothing costs anything. `first_nan` asks after the fact, of values that were computed before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from unspool._autodiff.loops.loop import LOOP
from unspool._autodiff.loops.run import loop_source
from unspool._dims import is_concrete
from unspool._engine.default import default_engine
from unspool._engine.observe import Watcher, observing
from unspool._fragments.call import Projection, call_of
from unspool._fragments.fragment import seal
from unspool._graph import Node, ancestors, describe, source_of
from unspool._nan.check import NaNCheck
from unspool._nan.report import Bad, NaNReport
from unspool._nan.search import find_origin
from unspool._ops.leaf import LEAF_OPS
from unspool._ops.op import PART
from unspool._tensor import Tensor
from unspool.errors import ArgumentError, UnboundSizeError

__all__ = ["KernelCounts", "NaNReport", "check_nan", "count_kernels", "first_nan", "source"]


def __dir__() -> list[str]:
    return sorted(__all__)


@contextmanager
def check_nan(infinities: bool = False) -> Iterator[None]:
    """Raise `NaNError` at the first operation that makes a NaN from inputs that have none.

    Every operation that is computed in the block is looked at, also in the steps of `iterate` and `fixed_point` and of
    their derivatives, and also one whose NaN is masked later. The error names the operation, its line and its step; its
    attribute ``report`` has these one by one. Loops run more than once, so this takes a few times as long.

    Parameters
    ----------
    infinities : bool
        Whether to raise for infinities too.

    See Also
    --------
    first_nan : asks where a NaN in a computed value came from.

    Examples
    --------
    >>> import unspool as us
    >>> x = us.tensor([1.0, -1.0], name="x")
    >>> with us.debug.check_nan():
    ...     us.log(x).eval()  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    unspool.errors.NaNError: log of shape (2,) and dtype float64 made 1 NaN of 2 values ...
    """
    with observing(NaNCheck(Bad(infinities))):
        yield


def first_nan(*tensors: Tensor, infinities: bool = False) -> NaNReport | None:
    """Tell where the NaN in values that have been computed came from, without running the program again.

    The search goes back through values that are held. What is not held is recomputed, from the nearest values that
    are; of a loop these are few steps, or, where none of its states was kept, its steps once more. In memory that takes
    what a run takes that is not under a budget. What was masked on the way does not count: the operation that is named
    is the first among those that made the NaN of the tensors.

    Parameters
    ----------
    *tensors : Tensor
        Tensors with NaN. Their values are computed if they are not there.
    infinities : bool
        Whether infinities count too. Then an overflow is named, and not what made a NaN of it later.

    Returns
    -------
    report : NaNReport or None
        The operation, the line, the step and the operands; ``print`` shows them. If the NaN was in data that was given,
        it is the tensor or constant with that data. ``None`` if the tensors have no NaN.

    See Also
    --------
    check_nan : raises an error as soon as a NaN is made.

    Examples
    --------
    >>> import unspool as us
    >>> x = us.tensor(1.0, name="x")
    >>> y, steps = us.iterate(lambda y: us.sqrt(y - 0.3), x, max_steps=100)
    >>> report = us.debug.first_nan(y)
    >>> report.op, report.steps, report.count
    ('sqrt', (9,), 1)
    >>> print(report)  # doctest: +ELLIPSIS
    sqrt of shape () and dtype float64 made 1 NaN of 1 values, at ..., in step 9 of a loop
      input 0: subtract of shape () and dtype float64: min -0.0..., max -0.0..., 0 of 1 zero, made at ...
    """
    if not tensors or not all(isinstance(tensor, Tensor) for tensor in tensors):
        raise ArgumentError(f"us.debug.first_nan takes one or several tensors, got {tensors!r}")
    return find_origin(tensors, Bad(infinities))


class KernelCounts:
    """How often kernels ran: ``total``, ``by_op`` (op name to count) and ``by_node`` (id of a node to count).

    ``counts["sin"]`` is short for ``counts.by_op["sin"]``; what did not run counts 0. A loop is one kernel.
    """

    watchers: tuple[Watcher, ...] = ()

    def __init__(self) -> None:
        self.total = 0
        self.by_op: Counter[str] = Counter()
        self.by_node: Counter[int] = Counter()

    def __getitem__(self, op: str) -> int:
        return self.by_op[op]

    def __repr__(self) -> str:
        ops = ", ".join(f"{name} {count}" for name, count in self.by_op.most_common())
        return f"<{self.total} kernel calls{': ' if ops else ''}{ops}>"

    def after(self, node: Node, arguments: Any, value: Any, call: Node | None = None) -> None:
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
        return loop_source(loop.attributes["loop"], _concrete([node.shape for node in loop.inputs], tensor))
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
