"""`unspool.cotangents`: what arrives at any nodes of a graph, in one sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unspool import _trees as trees
from unspool._autodiff.sweeps.reverse import pullback
from unspool._dtypes import COMPLEX, INEXACT
from unspool._graph import Node, describe, source_of
from unspool._leaving import note_derivatives
from unspool._ops.leaf import as_tensor, unit_seed
from unspool.errors import ComplexLossError, DTypeError, NonScalarLossError, SeedShapeError, StructureError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def cotangents(loss: Tensor, nodes: Any, seed: Any = None) -> Any:
    """Return the gradient of a loss with respect to any tensors of its graph, intermediate ones too: their cotangents.

    All of them come from one sweep, without a tape. They may be values of any iteration of a loop, whether it is folded
    or not.

    Parameters
    ----------
    loss : Tensor
        A real scalar, or any tensor if a seed is given.
    nodes : pytree of Tensor
        Tensors the loss is made from.
    seed : array_like, optional
        The cotangent of ``loss``, of its shape; 1 by default.

    Returns
    -------
    pytree of Tensor
        Nested like ``nodes``; ``None`` where nothing arrives, which is not the same as a zero.

    Examples
    --------
    >>> import unspool as us
    >>> x = us.tensor(2.0)
    >>> states = [x]
    >>> for _ in range(3):
    ...     states.append(states[-1] * states[-1])
    ...     value = float(states[-1])
    >>> [float(ct) for ct in us.cotangents(states[-1], states)]
    [1024.0, 256.0, 32.0, 1.0]
    """
    if not isinstance(loss, Node):
        raise StructureError(f"a tensor is needed, got {type(loss).__name__}")
    variables, structure = trees.flatten(nodes)
    for variable, name in zip(variables, trees.names(structure, "nodes"), strict=True):
        if not isinstance(variable, Node):
            raise StructureError(f"{name} must be a tensor of the graph, got {type(variable).__name__}")
    found = pullback([loss], [_seed(loss, seed)], variables)
    note_derivatives(found)
    return trees.unflatten(structure, found)


def _seed(loss: Tensor, seed: Any) -> Tensor:
    if loss.dtype not in INEXACT:
        raise DTypeError(f"{describe(loss)}, made at {source_of(loss)}, has no cotangent")
    if seed is not None:
        given = as_tensor(seed)
        if given.shape != loss.shape:
            raise SeedShapeError(f"a seed of shape {given.shape} was given for {describe(loss)}")
        return given
    if loss.shape != ():
        raise NonScalarLossError(
            f"cotangents of {describe(loss)}, made at {source_of(loss)}, need a seed of its shape: it is no scalar"
        )
    if loss.dtype in COMPLEX:
        raise ComplexLossError(f"{describe(loss)}, made at {source_of(loss)}, is complex: give a seed, or take .real")
    return unit_seed(loss.dtype)
