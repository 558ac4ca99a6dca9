"""Hints on which values to hold for derivatives: ``keep``, ``cheap``, and what marks the results of ``unspool.remat``.

Each op is the identity; the hint is that it is there. So a hint is part of the recipe: it survives tracing, folding and
differentiation, and no table has to remember it. A plan knows them as other names of a value, at no cost. What they ask
for is done where it is decided which values a piece keeps (`unspool._fragments.residuals`).

A value that is both kept and cheap is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unspool import _graph
from unspool import _trees as trees
from unspool._graph import Node
from unspool._ops import batching
from unspool._ops.op import STRUCTURE, JointRule, Op, register

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unspool._tensor import Tensor


def _infer_same(x: Node, *_: Node, **__: Any) -> tuple[Any, Any]:
    return x.shape, x.dtype


def _kernel_same(x: Any, *_: Any, **__: Any) -> Any:
    return x


def _identity(name: str) -> Op:
    """Return an op that is the identity; twice is once."""

    def canonical(x: Tensor) -> Tensor | None:
        return x if x.op is op else None

    op = Op(
        name,
        infer=_infer_same,
        kernel=_kernel_same,
        vjp=(lambda ct, out, x: ct,),
        jvp=(lambda t, out, x: t,),
        canonical=canonical,
        cheap=True,
        renames=True,
        batch=batching.elementwise,
    )
    return register(op)


def _remat_members(op: Op, members: batching.Members, x: Any, *sources: Any, count: int) -> Any:
    return batching.place(op, [members.spread(0, x), *sources], {"count": count})


KEEP = _identity("keep")
CHEAP = _identity("cheap")

# The identity of its first input. The others are where the computation of that one begins: what lies between is not
# kept. It is not cheap itself: seen from outside, the result of a function is a value like others.
REMAT = register(
    Op(
        "remat",
        infer=_infer_same,
        kernel=_kernel_same,
        vjp=JointRule(
            lambda needed, ct, out, x, *sources, count: [ct, *[None] * count],
            lambda params: [True, *[False] * params["count"]],
        ),
        jvp=lambda tangents, out, x, *sources, count: tangents[0],
        params={"count": STRUCTURE},
        renames=True,
        batch=_remat_members,
    )
)


def keep(x: Any) -> Any:
    """Return tensors whose values are held for derivatives, whatever it takes.

    The values are among what is kept of the computation they are part of, even if they would be cheap to recompute,
    even inside a function that is decorated with `unspool.remat`, and a memory budget does not drop them.

    Parameters
    ----------
    x : pytree of Tensor
        What is not a tensor is returned as it is.

    Returns
    -------
    pytree of Tensor
        The same values. Derivatives pass through.

    See Also
    --------
    cheap : The opposite.

    Examples
    --------
    >>> import unspool as us
    >>> @us.remat
    ... def layer(A, x):
    ...     h = us.keep(A @ x)
    ...     return us.tanh(us.sin(h) * h)
    >>> print(layer.trace(us.tensor([[1.0, 2.0], [3.0, 4.0]]), us.tensor([1.0, 1.0])))  # doctest: +ELLIPSIS
    fragment layer
      ...
        %2  (n₀,)     float64  contract(%0, %1, subscripts='ab,b->a')
        %3  (n₀,)     float64  keep(%2)
      ...
      keeps for derivatives %2
    """
    return _map(KEEP, x)


def cheap(x: Any) -> Any:
    """Return tensors whose values are not held for derivatives but recomputed from what they are made of.

    That what they are made of is held instead, if derivatives need the values. So it pays where an input is smaller
    than the result: a product with a wide matrix, a kernel matrix of few points.

    Parameters
    ----------
    x : pytree of Tensor
        What is not a tensor is returned as it is. Of a tensor that is part of a factorisation, the factorisation is
        recomputed.

    Returns
    -------
    pytree of Tensor
        The same values. Derivatives pass through.

    See Also
    --------
    keep : The opposite.
    unspool.remat : The same for everything that a function computes.

    Examples
    --------
    >>> import unspool as us
    >>> @us.fragment
    ... def energy(x):
    ...     distances = us.cheap(us.linalg.norm(x[:, None] - x[None, :], axis=-1))
    ...     return us.sum(distances**3)
    >>> x = us.tensor([[0.0, 0.0], [3.0, 4.0]])
    >>> energy(x).item()
    250.0
    >>> "keeps for derivatives" in str(energy.trace(x))
    False
    """
    return _map(CHEAP, x)


def _map(op: Op, x: Any) -> Any:
    if isinstance(x, Node):
        return _graph.apply(op, x)
    return trees.map_leaves(lambda leaf: _graph.apply(op, leaf) if isinstance(leaf, Node) else leaf, x)


def mark_rebuilt(x: Tensor, sources: Sequence[Node]) -> Tensor:
    """Return a tensor that is computed again from sources where derivatives need what lies between."""
    return _graph.apply(REMAT, x, *sources, count=len(sources))


def is_kept(node: Node) -> bool:
    """Whether the value of a node shall not be dropped: it is the result of `keep`, or what `keep` was applied to."""
    # A node does not know its consumers; the intern table does.
    return node.op is KEEP or _graph.find(KEEP, (node,), ()) is not None
