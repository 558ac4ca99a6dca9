"""`unspool.eval`: values of several tensors, or of nested structures of them, from one execution."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import repeat
from typing import TYPE_CHECKING, Any

from unspool._engine.default import default_engine
from unspool._graph import Node

if TYPE_CHECKING:
    from unspool._engine.engine import Evaluator
    from unspool._tensor import Tensor


def eval(*trees: Any, bindings: Mapping[Tensor, Any] | None = None) -> Any:
    """Compute tensors together; what they have in common is computed once.

    Parameters
    ----------
    *trees : pytree of Tensor
        Tensors, or nested tuples, lists and dicts of them. Other leaves are returned as they are.
    bindings : dict of Tensor to array_like, optional
        Values for the placeholders they depend on.

    Returns
    -------
    pytree of numpy.ndarray
        The structure of the argument, or a tuple of structures if several were given. Arrays are read-only.

    Examples
    --------
    >>> import unspool as us
    >>> x = us.tensor([1.0, 2.0])
    >>> loss = us.sum(x * x)
    >>> us.eval(loss, {"gradient": loss.grad(x)})
    (array(5.), {'gradient': array([2., 4.])})
    """
    return evaluate_with(default_engine(), trees, bindings)


def evaluate_with(engine: Evaluator, trees: tuple[Any, ...], bindings: Mapping[Tensor, Any] | None) -> Any:
    """Compute the tensors in some structures together, by an engine; see `eval`."""
    if all(map(isinstance, trees, repeat(Node))):  # nothing is nested
        values: Any = engine.evaluate(trees, bindings)
        return values[0] if len(values) == 1 else tuple(values)
    if len(trees) == 1 and type(trees[0]) is list and all(map(isinstance, trees[0], repeat(Node))):
        return engine.evaluate(trees[0], bindings)
    import optree

    leaves: list[Any]
    leaves, structure = optree.tree_flatten(trees, none_is_leaf=True, namespace="unspool")  # type: ignore[arg-type]
    tensors = [leaf for leaf in leaves if isinstance(leaf, Node)]
    values = iter(engine.evaluate(tensors, bindings))
    filled = [next(values) if isinstance(leaf, Node) else leaf for leaf in leaves]
    results: tuple[Any, ...] = optree.tree_unflatten(structure, filled)  # type: ignore[assignment]
    return results[0] if len(results) == 1 else results
