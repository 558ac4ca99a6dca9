"""``@unspool.remat``: a traced function of which nothing inside is kept for derivatives.

The one idea: a result of the function passes through an identity, the op ``remat``, that names where the function
began: its arguments and whatever else it read. That is all; the rest is a fragment like others. What lies between is
left out where residuals are chosen, and since rules refer to the inside of the function and the adjoint is given its
outside, the adjoint of a call contains the function's operations again. The mark is part of the graph, so it holds
inside other fragments, in the body of a loop and in derivatives too. The user's function is not run again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any, overload

from unspool import _trees as trees
from unspool._fragments.arguments import static_names
from unspool._graph import Node, next_id
from unspool._ops.hints import mark_rebuilt
from unspool._ops.leaf import CONSTANT, LEAF_OPS
from unspool._ops.op import PART
from unspool._traced.function import BoundFragment, FragmentFunction


@overload
def remat(function: Callable[..., Any], *, static: str | Sequence[str] = ()) -> FragmentFunction: ...


@overload
def remat(
    function: None = None, *, static: str | Sequence[str] = ()
) -> Callable[[Callable[..., Any]], FragmentFunction]: ...


def remat(function: Callable[..., Any] | None = None, *, static: str | Sequence[str] = ()) -> Any:
    """Turn a function of tensors into one whose derivatives recompute its insides instead of holding them.

    Between value and gradient only the arguments and results of the function are held. The gradient runs its
    operations once more, so this trades time for memory. Values and derivatives, of any order, are those of the plain
    function; values and gradients bit for bit.

    Parameters
    ----------
    function : callable
        As for `unspool.fragment`, which this is but for what is kept. A function that is a fragment already is taken
        with its static parameters.
    static : str or sequence of str
        Names of further parameters that a trace is for, by value.

    Returns
    -------
    FragmentFunction
        Is called like the function. It is traced once per structure of its arguments, and the function itself is never
        run again for a derivative.

    Notes
    -----
    The operations belong to the derivative, in reverse and in forward mode. Inside a fragment, or in the step of
    `unspool.iterate`, nothing between arguments and results is among what that keeps. One inside another changes
    nothing: the outer one is recomputed as a whole.

    See Also
    --------
    keep : An exception: a value inside that is held all the same.
    cheap : The same for a single value.

    Examples
    --------
    >>> import unspool as us
    >>> def block(A, x):
    ...     return us.sum(us.tanh(A @ us.tanh(A @ x)))
    >>> A = us.tensor([[0.0, 1.0], [1.0, 0.0]])
    >>> x = us.tensor([1.0, 0.0])
    >>> print(us.fragment(block).trace(A, x))  # doctest: +ELLIPSIS
    fragment block
      ...
      keeps for derivatives %2, %4
    >>> rebuilt = us.remat(block)
    >>> "keeps for derivatives" in str(rebuilt.trace(A, x))
    False
    >>> bool((rebuilt(A, x).grad(x).eval() == block(A, x).grad(x).eval()).all())
    True
    """
    if function is None:
        return lambda decorated: RematFunction(decorated, static)
    return RematFunction(function, static)


class RematFunction(FragmentFunction):
    """A traced function of which nothing inside is kept for derivatives; made by `unspool.remat`."""

    _decorator = "remat"
    _watched = ("_function",)

    def __init__(self, function: Callable[..., Any], static: str | Sequence[str] = ()) -> None:
        names = {*static_names(static)}
        if isinstance(function, BoundFragment):
            names |= function.__func__._parameters.static
            function = MethodType(function.__func__._function, function.__self__)
        elif isinstance(function, FragmentFunction):
            names |= function._parameters.static
            function = function._function
        super().__init__(function, sorted(names))

    def _run(self, /, *args: Any, **kwargs: Any) -> Any:
        start = next_id()
        leaves, structure = trees.flatten(self._function(*args, **kwargs))
        return trees.unflatten(structure, [_marked(leaf, start) for leaf in leaves])


def _marked(leaf: Any, start: int) -> Any:
    """Return a result as what is computed again from nodes older than ``start``; what is none stays as it is."""
    if not isinstance(leaf, Node) or leaf.op in LEAF_OPS or leaf.id < start:
        return leaf
    sources: dict[int, Node] = {}
    # Held until the end: nodes inside a call are made anew for whoever asks, if nobody holds them.
    inside: dict[int, Node] = {}
    stack = [leaf]
    while stack:
        node = stack.pop()
        if node.id in inside or node.id in sources or node.op is CONSTANT:
            continue
        if node.id < start or (node.op is PART and node.inputs[0].id < start):
            sources[node.id] = node
        else:
            inside[node.id] = node
            stack += node.inputs
    return mark_rebuilt(leaf, [sources[key] for key in sorted(sources)])  # type: ignore[arg-type]
