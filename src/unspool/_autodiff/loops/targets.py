"""What the body of a derivative may read, and what leaves it."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from unspool._autodiff.loops.forms import MASKED, form_of, split
from unspool._autodiff.sweeps.products import is_outer
from unspool._dims import is_concrete
from unspool._graph import Node
from unspool._ops.elementwise import ADD

if TYPE_CHECKING:
    from unspool._tensor import Tensor


class Sources:
    """Nodes that a body may read, and where each comes from."""

    def __init__(self, nodes: Sequence[Node], kind: str) -> None:
        self.nodes: list[Node] = []
        self.places: dict[int, tuple[str, Any]] = {}
        self.add(nodes, kind)

    def add(self, nodes: Sequence[Node], kind: str) -> None:
        for i, node in enumerate(nodes):
            self.enter(node, kind, i)

    def enter(self, node: Node, kind: str, position: int) -> None:
        self.nodes.append(node)
        self.places[node.id] = (kind, position)


class Targets:
    """What leaves a body, by kind; ``read`` are rows that are used after the loop as they came in."""

    def __init__(self, carry: list[Node]) -> None:
        self.carry = carry
        self.rows: list[Node] = []
        self.sums: list[Node] = []
        self.read: list[Node] = []

    def all(self) -> list[Node]:
        return [*self.carry, *self.rows, *self.sums]

    def add_row(self, tensor: Tensor | None, node: Node) -> tuple[Any, ...] | None:
        form = form_of(tensor)
        first = len(self.rows)
        self.rows += split(tensor, form, node)
        return None if form is None else (form, *range(first, len(self.rows)))

    def add_sum(self, tensor: Tensor | None, node: Node, rows: Sources) -> list[tuple[Any, ...]]:
        if tensor is None:
            return []
        terms: list[tuple[Any, ...]] = []
        for term in _terms(tensor):
            if _is_gathered(term):
                factors = [self._factor(x, rows) for x in term.inputs]
                terms.append(("outer", term.attributes["subscripts"], *factors, tuple([x.dtype for x in term.inputs])))
                continue
            form = form_of(term)
            first = len(self.sums)
            self.sums += split(term, form, node)
            if form == MASKED:
                # What one step leaves out may be there in another: only what is kept is added up.
                self.sums[first] = term
            terms.append((form, *range(first, len(self.sums))))
        return terms

    def _factor(self, factor: Node, rows: Sources) -> tuple[str, Any]:
        if factor.id in rows.places:
            self.read.append(factor)
            return ("in", factor.id)
        self.rows.append(factor)
        return ("out", len(self.rows) - 1)


def _terms(tensor: Tensor) -> list[Tensor]:
    """Return the terms of a sum if there are outer products among them, else the sum itself."""
    terms: list[Any] = []
    stack: list[Any] = [tensor]
    while stack:
        term = stack.pop()
        if term.op is ADD and all(x.shape == term.shape and x.dtype == term.dtype for x in term.inputs):
            stack += reversed(term.inputs)
        else:
            terms.append(term)
    return terms if any(map(_is_gathered, terms)) else [tensor]


def _is_gathered(term: Tensor) -> bool:
    """Whether a term is an outer product whose factors take less memory than their product."""
    if not term.op.contracts or not is_outer(term.attributes["subscripts"]):
        return False
    shapes = [factor.shape for factor in term.inputs]
    if not all(map(is_concrete, shapes)):
        return True
    left, right = map(prod, shapes)
    return bool(left + right <= left * right)


def placed_term(term: tuple[Any, ...], position: dict[int, int]) -> tuple[Any, ...]:
    """Return a term with rows by position instead of by node."""
    if term[0] != "outer":
        return term
    factors = [("in", position[key]) if kind == "in" else (kind, key) for kind, key in term[2:4]]
    return ("outer", term[1], *factors, term[4])
