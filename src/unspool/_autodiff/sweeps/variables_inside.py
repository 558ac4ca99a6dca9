"""Which calls a variable is inside of, and how far back in the order of ids anything can depend on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from unspool._fragments.call import BOUNDS, Call, Projection, call_of, is_inside
from unspool._graph import Node
from unspool._ops.identity import ALIAS
from unspool._ops.leaf import CONSTANT

if TYPE_CHECKING:
    from unspool._engine.plan import Plan
    from unspool._ops.op import Op
    from unspool._tensor import Tensor

_by_id = attrgetter("id")


class Inside:
    """Tells which calls a variable is inside of.

    The cotangent of a node inside a call includes the paths inside that call, so such calls are walked node by node.
    A variable can be an output that the call itself reads, or a node equal to one that was freed when the call was
    folded: one that was recorded again. That one is younger than what was made from it. How far back such a call can be
    follows from what the variable is made from: a way from it to a leaf is inside the call until it meets an input or
    an output of the call, and it does so after no more steps than the call has instructions.

    Attributes
    ----------
    first : int
        An id: no node that is older depends on a variable.
    is_anywhere : bool
        Whether a variable that was recorded again can be inside a call at all.
    """

    __slots__ = ("_left", "_made_of_constants", "_ops", "_outputs", "_recorded", "first", "is_anywhere")

    def __init__(self, variables: Sequence[Node]) -> None:
        self._outputs: dict[int, tuple[Plan, list[int]]] = {}
        self._recorded: set[int] = set()
        self._ops: set[Op] = set()
        # What is on the ways back from variables, and how much further each was followed.
        self._left: dict[int, int] = {}
        self._made_of_constants = False
        outputs = self._outputs
        recorded: list[Node] = []
        ages: list[int] = []
        for v in variables:
            # Every state of a loop may be a variable.
            if type(v) is Projection:
                call = call_of(v)
                ages.append(call.id)
                if (known := outputs.get(call.id)) is None:
                    outputs[call.id] = call.plan, [v.output]
                else:
                    known[1].append(v.output)
            else:
                ages.append(v.id)
                if not _is_end(v):
                    recorded.append(v)
        self.first = min(ages)
        for v in recorded:
            self._recorded.add(v.id)
            self._ops.add(v.op)
            self._look_back(v)
        self.is_anywhere = bool(self._recorded)

    def _look_back(self, variable: Node) -> None:
        left = BOUNDS.length
        way = _way_back(variable, left, self._left)
        if not way:
            self._made_of_constants = True
            self.first = -1
            return
        for node in way:
            self._left[node.id] = max(left, self._left.get(node.id, 0))
            left -= 1
        end = _age(way[-1])
        # An input of a call is older than the call. If all of the way is younger than any call, it meets none.
        if end <= BOUNDS.newest:
            self.first = min(self.first, end)

    def read_on_the_way(self, shown: Mapping[int, Tensor | tuple[Tensor, ...]]) -> list[int]:
        """Return the calls in which an output that is a variable is read on the way to other outputs that were met.

        ``shown`` has the outputs that were met, as `Walk` notes them.
        """
        found = []
        for key, (plan, indices) in self._outputs.items():
            met = shown.get(key, ())
            if type(met) is not tuple and [met.output] == indices:  # type: ignore[union-attr]
                continue  # an output is not made from itself: most states of a loop are nothing else
            outputs: tuple[Tensor, ...] = met if type(met) is tuple else (met,)  # type: ignore[assignment]
            if any(other.output in _outputs_behind(plan, index) for index in indices for other in outputs):
                found.append(key)
        return found

    def is_in(self, call: Call) -> bool:
        """Whether a variable that was recorded again is inside a call."""
        if self._ops.isdisjoint(_ops_of(call.plan)):
            return False
        if not self._made_of_constants:
            around = {node.id for node in (*call.inputs, *call.handles) if node is not None}
            if around.isdisjoint(self._left):
                return False
        return is_inside(call, self._recorded)


def _way_back(variable: Node, most: int, known: Mapping[int, int]) -> list[Node]:
    """Return a way from a node to what it is made from: to a leaf, to an output of a call, or of so many steps at most.

    Of several inputs the youngest comes first: the later the way ends, the more it tells. A way that ends with a
    constant tells nothing. From what is made of constants alone no way leads anywhere. With ``known``, it ends where a
    node is on a way that was followed further than this one would be.
    """
    way = [variable]
    choices = [_youngest_last(variable.inputs)]
    fruitless: set[int] = set()
    while way:
        if len(way) > most:
            return way
        if not choices[-1]:
            fruitless.add(way.pop().id)
            choices.pop()
            continue
        node = choices[-1].pop()
        if node.op is CONSTANT or node.id in fruitless:
            continue
        way.append(node)
        if _is_end(node) or known.get(node.id, -1) > most - len(way):
            return way
        choices.append(_youngest_last(node.inputs))
    return way


def _youngest_last(nodes: Sequence[Node]) -> list[Node]:
    return list(nodes) if len(nodes) < 2 else sorted(nodes, key=_by_id)


def _is_end(node: Node) -> bool:
    """Whether a node is not known by what it is made from: a leaf, an output of a call, an identity of its own."""
    return type(node) is Projection or not node.inputs or node.op is ALIAS


def _age(node: Node) -> int:
    """Return the id of a node, of an output that of its call: an output that was made again is younger than others."""
    return call_of(node).id if type(node) is Projection else node.id


def _outputs_behind(plan: Plan, index: int) -> frozenset[int]:
    """Return the other outputs of a plan that are made from one of them."""
    key = ("behind", index)
    found: frozenset[int] | None = plan.derivatives.get(key)
    if found is None:
        fragment = plan.fragment
        first, start = len(fragment.dtypes), fragment.outputs[index]
        slots = {start}
        for slot, instruction in enumerate(fragment.body, first):
            if not slots.isdisjoint(instruction.operands):
                slots.add(slot)
        behind = [i for i, slot in enumerate(fragment.outputs) if slot in slots and slot != start]
        found = plan.derivatives[key] = frozenset(behind)
    return found


def _ops_of(plan: Plan) -> frozenset[Op]:
    ops = plan.derivatives.get("ops")
    if ops is None:
        ops = plan.derivatives["ops"] = frozenset([instruction.op for instruction in plan.fragment.body])
    return ops
