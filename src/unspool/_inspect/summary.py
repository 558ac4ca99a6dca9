"""What a graph consists of, in numbers: how many nodes of which ops, how deep, how many bytes.

Everything is one pass over the nodes in id order; nothing is computed and nothing recurses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unspool._dims import Size, product
from unspool._engine.default import default_engine
from unspool._graph import Bundle, Node, ancestors
from unspool._html import printed_as_html
from unspool._ops.op import PART
from unspool._tensor import Tensor
from unspool.errors import StructureError

__all__ = ["Summary", "graph_size", "summary"]


@dataclass(frozen=True)
class Summary:
    """The numbers that `unspool.summary` finds; prints as a table.

    Attributes
    ----------
    nodes : int
        Distinct nodes that the tensors are made from, themselves included.
    leaves : int
        How many of them have no inputs: data, constants, placeholders.
    depth : int
        Number of operations on the longest path from a leaf to one of the tensors.
    by_op : dict of str to int
        Nodes by op, most frequent first.
    shared : int
        Nodes that at least two of the tensors are made from.
    bytes : int or Dim
        What the values would take if every one was kept.
    held : int
        Values that are in memory now, data of leaves included.
    held_bytes : int
        What those take; memory that several values share is counted once.
    """

    nodes: int
    leaves: int
    depth: int
    by_op: Mapping[str, int]
    shared: int
    bytes: Size
    held: int
    held_bytes: int

    _repr_html_ = printed_as_html

    def __str__(self) -> str:
        rows = [
            ("nodes", f"{self.nodes:,}"),
            ("  leaves", f"{self.leaves:,}"),
            ("  shared", f"{self.shared:,}"),
            ("depth", f"{self.depth:,}"),
            ("bytes if all kept", _bytes_text(self.bytes)),
            ("values held", f"{self.held:,}"),
            ("bytes held", _bytes_text(self.held_bytes)),
        ]
        ops = [(name, f"{count:,}") for name, count in self.by_op.items()]
        width = max(len(name) for name, _ in rows + ops)
        right = max(len(number) for _, number in rows + ops)
        table = [f"{name:<{width}}  {number:>{right}}" for name, number in rows]
        table.append("-" * (width + 2 + right))
        table += [f"{name:<{width}}  {number:>{right}}" for name, number in ops]
        return "\n".join(table)


def graph_size(*tensors: Tensor) -> int:
    """Return the number of distinct nodes that tensors are made from, themselves included.

    Examples
    --------
    >>> import unspool as us
    >>> x = us.tensor([1.0, 2.0])
    >>> us.graph_size(x * x + x)
    3
    """
    with default_engine().queue.nothing_folds():
        return len(ancestors(_check(tensors)))


def summary(*tensors: Tensor) -> Summary:
    """Return what the graph of some tensors consists of, without computing anything.

    Parameters
    ----------
    *tensors : Tensor
        Where to start. With several, ``shared`` tells how many nodes they have in common.

    Returns
    -------
    Summary
        A record of numbers that prints as a table.

    Examples
    --------
    >>> import unspool as us
    >>> x = us.tensor([1.0, 2.0], name="x")
    >>> y = us.sum(us.sin(x) * x)
    >>> print(us.summary(y))
    nodes                 4
      leaves              1
      shared              0
    depth                 3
    bytes if all kept  56 B
    values held           1
    bytes held         16 B
    -----------------------
    multiply              1
    sin                   1
    sum                   1
    tensor                1
    """
    with default_engine().queue.nothing_folds():
        return _summary(ancestors(_check(tensors)), tensors)


def _summary(nodes: list[Node], tensors: Sequence[Tensor]) -> Summary:
    by_op = Counter(node.op.name for node in nodes)
    held = [node.value for node in nodes if node.value is not None]
    return Summary(
        nodes=len(nodes),
        leaves=sum(not node.inputs for node in nodes),
        depth=_depth(nodes),
        by_op=dict(sorted(by_op.items(), key=lambda item: (-item[1], item[0]))),
        shared=_shared(nodes, tensors),
        bytes=_bytes_of_all(nodes),
        held=len(held),
        held_bytes=_bytes_held(held),
    )


def _check(tensors: Sequence[Any]) -> Sequence[Tensor]:
    for tensor in tensors:
        if not isinstance(tensor, Node):
            raise StructureError(f"expected tensors, one per argument, got {type(tensor).__name__}")
    return tensors


def _depth(nodes: Iterable[Node]) -> int:
    depth: dict[int, int] = {}
    for node in nodes:
        depth[node.id] = 1 + max(depth[i.id] for i in node.inputs) if node.inputs else 0
    return max(depth.values(), default=0)


def _shared(nodes: Sequence[Node], tensors: Sequence[Tensor]) -> int:
    """Count the nodes that two of the tensors need, in one walk: a node knows one of its users, or that it has more."""
    many = -1
    user = {tensor.id: tensor.id for tensor in tensors}
    for node in reversed(nodes):
        mine = user[node.id]
        for operand in node.inputs:
            if user.setdefault(operand.id, mine) != mine:
                user[operand.id] = many
    return sum(found == many for found in user.values())


def _bytes_of_all(nodes: Iterable[Node]) -> Size:
    """Add up the bytes of all values; sizes may be symbolic, so equal shapes are gathered before they are added."""
    kinds: Counter[tuple[Any, Any]] = Counter()
    for node in nodes:
        if type(node) is Bundle:
            kinds.update(zip(node.shape, node.dtype, strict=True))  # type: ignore[call-overload]
        elif node.op is not PART:  # a part is one of the arrays of its bundle
            kinds[node.shape, node.dtype] += 1
    total: Size = 0
    for (shape, dtype), count in kinds.items():
        total = total + product(shape) * (dtype.itemsize * count)
    return total


def _bytes_held(values: Iterable[Any]) -> int:
    owners: dict[int, int] = {}
    for value in values:
        for array in value if isinstance(value, tuple) else (value,):
            owner = array
            while isinstance(getattr(owner, "base", None), np.ndarray):
                owner = owner.base
            owners[id(owner)] = np.asarray(owner).nbytes
    return sum(owners.values())


def _bytes_text(size: Size) -> str:
    if not isinstance(size, int):
        return f"{size} B"
    amount = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{size} B" if unit == "B" else f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:,.3g} TB"
