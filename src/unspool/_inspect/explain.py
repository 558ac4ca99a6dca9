"""`unspool.explain`: what happened to a program, in plain words and as data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from unspool import _trees as trees
from unspool._engine.default import default_engine
from unspool._engine.folding.matching import Site
from unspool._engine.plan import Plan
from unspool._graph import Node
from unspool._inspect.explanation import Explanation, FoundLoop, Line, Unfolded
from unspool._inspect.gradients import cost_of_gradient
from unspool._inspect.loops import find_loops
from unspool._inspect.places import Places
from unspool._inspect.unfolded import find_unfolded
from unspool._inspect.units import Units
from unspool._inspect.wholes import find_wholes
from unspool._ops.leaf import TENSOR
from unspool._tensor import Tensor
from unspool.errors import StructureError

# More leaves than this that one line made are data of the steps of a loop.
_FEW = 8


def explain(tensor: Tensor, wrt: Any = None) -> Explanation:
    """Tell in plain words what happened to the program that a tensor is the result of.

    Which loops were found, with how many steps, and which lines they run; what they carry from step to step, what comes
    from outside in each step and what is the same in all; what is held; what did not fold, where and why; what the
    gradient will cost. Nothing is computed.

    Parameters
    ----------
    tensor : Tensor
        The result of a program, as a loss.
    wrt : pytree of Tensor, optional
        What a gradient would be taken with respect to. By default all floating leaves that the tensor is made from; not
        those that a line has made many of, which are data of the steps of a loop.

    Returns
    -------
    Explanation
        Prints as text. ``loops``, ``unfolded`` and ``gradient`` are the same as data, ``to_dict()`` is all of it.

    Examples
    --------
    >>> import unspool as us
    >>> w = us.tensor([1.0, 2.0], name="w")
    >>> x = w
    >>> for k in range(100):
    ...     x = x - 0.1 * us.sin(x)
    ...     if float(us.sum(x)) < 1e-9:
    ...         break
    >>> found = us.explain(us.sum(x))
    >>> len(found.loops), found.loops[0].steps, found.gradient.wrt
    (1, 100, ('w',))
    """
    if not isinstance(tensor, Node):
        raise StructureError(f"expected a tensor, got {type(tensor).__name__}")
    places = Places()
    operations, loops, unfolded, leaves = _look(tensor, places)
    if wrt is not None:
        leaves = trees.flatten(wrt)[0]
        for leaf in leaves:
            if not isinstance(leaf, Node):
                raise StructureError(f"wrt must be tensors, got {type(leaf).__name__}")
    names = [getattr(leaf, "_name", None) or places.name(leaf.code, leaf.lasti) for leaf in leaves]
    return Explanation(
        tensor=_title(tensor, places),
        operations=operations,
        is_evaluated=tensor.value is not None,
        loops=tuple(loop for loop, _ in loops),
        unfolded=unfolded,
        gradient=cost_of_gradient(tensor, leaves, names, loops, places),
    )


class _Look(NamedTuple):
    """What a walk over a graph found."""

    operations: int
    loops: list[tuple[FoundLoop, Sequence[Plan | Site]]]
    unfolded: tuple[Unfolded, ...]
    leaves: list[Any]


def _look(tensor: Node, places: Places) -> _Look:
    """Walk the graph and return what there is; no node but leaves outlives the walk, or it would count as held."""
    queue = default_engine().queue
    with queue.nothing_folds():
        units = Units(tensor)
        waiting = queue.waiting()
        found = sorted([*find_loops(units, waiting, places), *find_wholes(units, places)], key=lambda one: one.first)
        members = {position: number for number, one in enumerate(found, 1) for position in one.members}
        lines: dict[Line, int] = {}
        for number, one in enumerate(found, 1):
            lines |= dict.fromkeys(one.loop.lines, number)
        bodies = {number: max(b.operations for b in one.loop.bodies) for number, one in enumerate(found, 1)}
        unfolded = find_unfolded(units, members, lines, bodies, waiting, places)
        return _Look(
            sum(len(unit.fragment.body) if unit.fragment else bool(unit.inputs) for unit in units.order),
            [(one.loop, one.runners) for one in found],
            tuple(unfolded),
            _leaves(units),
        )


def _leaves(units: Units) -> list[Any]:
    """Return the floating leaves that a gradient may be wanted in."""
    found: dict[Any, list[Any]] = {}
    for unit in units.order:
        node = unit.source
        if not unit.is_step and node.op is TENSOR and node.dtype.kind in "fc":
            found.setdefault((node.code, node.line, getattr(node, "_name", None)), []).append(node)
    return [leaf for group in found.values() if len(group) <= _FEW for leaf in group]


def _title(tensor: Tensor, places: Places) -> str:
    name = getattr(tensor, "_name", None) or places.name(tensor.code, tensor.lasti)
    shape = "×".join(map(str, tensor.shape)) if tensor.shape else "a scalar"
    return f"{name}, {shape} of {tensor.dtype}"
