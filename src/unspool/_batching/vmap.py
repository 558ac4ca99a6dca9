"""``us.vmap``: a function of one member as a function of a whole batch.

The one idea: call the function once, on stand-ins for one member, and batch the graph that it recorded
(`unspool._batching.images`). The result is graph like any other. So gradients of batches, batches of gradients, and
batches of batches need nothing of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from unspool import _trees as trees
from unspool._autodiff.arguments import name_of
from unspool._batching.axes import axes_of, mapped_leaves, placed
from unspool._batching.members import Batch
from unspool._fragments.asking import asks_for_a_value, check_callable
from unspool._ops.leaf import as_tensor
from unspool.errors import UnboundPlaceholderError

if TYPE_CHECKING:
    from unspool._dims import Size


def vmap(
    f: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0, *, axis_size: Size | None = None
) -> Callable[..., Any]:
    """Vectorise a function: do to each member of a batch what it does to one, all at once.

    Parameters
    ----------
    f : callable
        A function of nested arguments, as for one member. It is called once, on stand-ins, and cannot look at values:
        a loop that stops by a value is written with `iterate`, a choice with `where`.
    in_axes : int, None, or nested tuples, lists and dicts of them
        Along which axis of each argument the members lie; ``None`` for what they have in common, which may be any
        object. A single entry stands for all arguments, and one in a tuple for all that is nested in its argument.
        Arguments that are passed by keyword have the members along their first axis.
    out_axes : int, None, or nested tuples, lists and dicts of them
        Along which axis of each result the members are to lie; ``None`` for a result that is the same for all.
    axis_size : int, optional
        How many members there are, if no argument but random keys tells.

    Returns
    -------
    callable
        Takes the arguments of the whole batch and returns the results of all members, nested as ``f`` nests them.

    Notes
    -----
    A random key that lies along an axis (`unspool.random.Key`) is split: member ``i`` of ``n`` draws with
    ``us.random.split(key, n)[i]``. With ``None`` all members make the same draws.

    Examples
    --------
    >>> import unspool as us
    >>> A = us.tensor([[2.0, 0.0], [0.0, 3.0]])
    >>> xs = us.tensor([[1.0, 1.0], [2.0, 0.0], [0.0, 1.0]])
    >>> us.vmap(lambda x: x @ A @ x)(xs).eval()
    array([5., 8., 3.])
    >>> us.vmap(us.grad(lambda x: x @ A @ x))(xs).eval()
    array([[4., 6.],
           [8., 0.],
           [0., 6.]])
    """
    check_callable(f, "us.vmap")

    @wraps(f)
    def batched(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = trees.flatten((args, kwargs))
        spec = tuple(in_axes) if isinstance(in_axes, list) else in_axes
        axes = axes_of(spec, args, "in_axes") + [0] * len(trees.flatten(kwargs)[0])
        batch = Batch(*mapped_leaves(leaves, axes, partial(trees.names, structure, "arguments"), axis_size))
        given, named = trees.unflatten(structure, batch.members)
        with batch:
            returned = _call(f, given, named)
            results, nesting = trees.flatten(returned)
            targets = axes_of(out_axes, returned, "out_axes")
            images = batch.images_of([as_tensor(leaf) for leaf in results])
        names = partial(trees.names, nesting, "the result")
        return trees.unflatten(nesting, placed(images, targets, names, batch.count))

    return batched


def _call(f: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    try:
        return f(*args, **kwargs)
    except UnboundPlaceholderError as error:
        instead = "and stop loops with us.iterate(until=), which each member leaves at its own step"
        raise asks_for_a_value(error, f"{name_of(f)}, under us.vmap,", instead) from error
