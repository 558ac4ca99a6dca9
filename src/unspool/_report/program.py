"""The folded program as data: what comes before the loop, the body of the loop as a graph, and what comes after it.

The body is that of a step like most others. What it reads from outside is carried (from the step before), streamed
(another value in each step) or fixed (the same in all). Views are left out: they move nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._autodiff.loops.loop import signature_of
from unspool._engine.costs import nbytes
from unspool._engine.default import default_engine
from unspool._graph import Node
from unspool._ops.leaf import CONSTANT
from unspool._ops.op import PART, Op
from unspool._report.iterated import Iterated
from unspool._report.places import Lines, Origin
from unspool._report.steps import Steps, passing_of
from unspool._report.units import Program

if TYPE_CHECKING:
    from unspool._engine.plan import Plan

# Ops that are drawn, at most.
_MOST = 70

# Ops that are named of what is outside of the loop.
_NAMED = 8


def program_of(program: Program, steps: Steps, iterated: Iterated | None, lines: Lines) -> dict[str, Any]:
    """Return the program as plain data."""
    numbers = range(len(program.units))
    if iterated is not None:
        before = [i for i in numbers if i < iterated.number]
        after = [i for i in numbers if i > iterated.number]
        loop: dict[str, Any] | None = _iterated_loop(iterated, lines)
    else:
        before, after = steps.before, steps.after
        loop = _plain_loop(program, steps, lines) if len(steps) else None
    fragments = {unit.plan.fragment.id for unit in program.units if unit.plan is not None}
    return {
        "ops": sum(len(unit.ops) for unit in program.units),
        "units": len(program.units),
        "bodies": len(fragments),
        "before": _outside(program, before),
        "after": _outside(program, after),
        "loop": loop,
    }


def _outside(program: Program, units: Iterable[int]) -> dict[str, Any]:
    ops = Counter(op.name for number in units for op, _ in program.units[number].ops)
    return {"ops": sum(ops.values()), "most": [[name, count] for name, count in ops.most_common(_NAMED)]}


class _Body:
    """A graph of ops, while it is put together; nodes are numbered."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self.nodes: list[dict[str, Any]] = []
        self.edges: set[tuple[int, int]] = set()
        self._stands_for: dict[int, int] = {}

    def enter(self, kind: str, label: str, shape: Any, dtype: Any, origin: Origin | None) -> int:
        """Add a node."""
        size = 0 if type(dtype) is tuple else nbytes(shape, dtype)
        line = "" if origin is None else self._lines.name(origin)
        sizes = [] if type(dtype) is tuple else [int(n) for n in shape]
        self.nodes.append({"kind": kind, "label": label, "shape": sizes, "bytes": size, "line": line})
        return len(self.nodes) - 1

    def add_plan(self, plan: Plan, origins: Sequence[Origin], inputs: Sequence[int]) -> dict[int, int]:
        """Add the ops of a plan on nodes; return the node of each slot. Of constants there are none."""
        slots: dict[int, int] = dict(enumerate(inputs))
        for position, instruction in enumerate(plan.fragment.body):
            if instruction.op is CONSTANT:
                continue
            slot = len(inputs) + position
            sources = [slots[i] for i in instruction.operands if i in slots]
            shape, dtype = plan.shapes[slot], plan.dtypes[slot]
            slots[slot] = self.add_op(instruction.op, shape, dtype, origins[position], sources)
        return slots

    def add_op(self, op: Op, shape: Any, dtype: Any, origin: Origin, sources: Sequence[int]) -> int:
        """Add an op on nodes; a view is what it is a view of."""
        if (op.view or op.renames or op is PART) and len(sources) == 1 and self.nodes[sources[0]]["kind"] == "op":
            if not self.nodes[sources[0]]["shape"] and type(dtype) is not tuple:
                self.nodes[sources[0]].update(shape=[int(n) for n in shape], bytes=nbytes(shape, dtype))
            return sources[0]
        number = self.enter("op", op.name, shape, dtype, origin)
        self.edges.update((source, number) for source in sources if source != number)
        return number

    def data(self) -> dict[str, Any]:
        """Return the graph as plain data; of a large one the first ops."""
        kept = [i for i, node in enumerate(self.nodes) if node["kind"] != "op"]
        kept += [i for i, node in enumerate(self.nodes) if node["kind"] == "op"][:_MOST]
        used = {i for edge in self.edges for i in edge if edge[0] in set(kept) and edge[1] in set(kept)}
        number = {old: new for new, old in enumerate(i for i in sorted(kept) if i in used or len(kept) < _MOST)}
        return {
            "nodes": [self.nodes[i] for i in number],
            "edges": sorted([number[a], number[b]] for a, b in self.edges if a in number and b in number),
            "left_out": sum(node["kind"] == "op" for node in self.nodes) - min(_MOST, len(self.nodes)),
            "number": number,
        }


def _plain_loop(program: Program, steps: Steps, lines: Lines) -> dict[str, Any]:
    kinds = [_kind(program, units) for units in steps.units]
    usual = Counter(kinds).most_common(1)[0][0]
    alike = [k for k, kind in enumerate(kinds) if kind == usual]
    k = alike[len(alike) // 2]
    passing = passing_of(program, steps, k)
    body = _Body(lines)
    known: dict[int, int] = {}
    for kind, nodes in (("carried", passing.carried), ("streamed", passing.streamed), ("fixed", passing.fixed)):
        for node in nodes:
            if kind == "fixed" and node.op is CONSTANT and node.value is not None and node.value.size == 1:
                continue
            known[node.id] = body.enter(kind, _name(node), node.shape, node.dtype, (node.code, node.lasti))
    for number in steps.units[k]:
        unit = program.units[number]
        sources = [known.get(node.id, -1) for node in unit.inputs]
        if unit.plan is None:
            alone: Any = unit.source
            known[alone.id] = body.add_op(
                alone.op, alone.shape, alone.dtype, unit.origin, [source for source in sources if source >= 0]
            )
            continue
        slots = body.add_plan(unit.plan, unit.origins, sources)
        for index, node in unit.outputs.items():
            slot = unit.plan.fragment.outputs[index]
            if slots.get(slot, -1) >= 0:
                known[node.id] = slots[slot]
    body.edges = {edge for edge in body.edges if edge[0] >= 0}
    data = body.data()
    data["back"] = _back(program, steps, k, kinds, known, data.pop("number"))
    return {
        "steps": len(steps),
        "kinds": len(set(kinds)),
        "mark": steps.mark,
        "shown": k,
        "alike": len(alike),
        "body": data,
        "form": "plain",
    }


def _kind(program: Program, units: Sequence[int]) -> tuple[Any, ...]:
    found: list[Any] = []
    for number in units:
        unit = program.units[number]
        found.append(unit.plan.fragment.id if unit.plan is not None else unit.source.op.name)  # type: ignore[union-attr]
    return tuple(found)


def _back(
    program: Program, steps: Steps, k: int, kinds: Sequence[Any], known: dict[int, int], number: dict[int, int]
) -> list[list[int]]:
    """Return which op fills what the next step reads as carried: pairs of an op and a carried value."""
    if k + 1 >= len(steps) or kinds[k + 1] != kinds[k]:
        return []
    found = set()
    for mine, following in zip(steps.units[k], steps.units[k + 1], strict=True):
        for a, b in zip(program.units[mine].inputs, program.units[following].inputs, strict=False):
            filled, carried = known.get(b.id), known.get(a.id)
            if b.id != a.id and filled in number and carried in number:
                found.add((number[filled], number[carried]))
    return [list(pair) for pair in sorted(found)]


def _iterated_loop(found: Iterated, lines: Lines) -> dict[str, Any]:
    loop = found.loop
    body = loop.bodies[0]
    shapes = signature_of(loop, [node.shape for node in found.node.inputs]).bodies[0]
    plan = default_engine().plans.plan_for(body.fragment, shapes)
    graph = _Body(lines)
    kinds = ["fixed"] * len(body.constants) + ["carried"] * len(body.reads) + ["streamed"] * len(body.rows)
    inputs = []
    for i, kind in enumerate(kinds):
        node = found.node.inputs[body.constants[i]] if kind == "fixed" else None
        label = _name(node) if node is not None else kind
        origin = (node.code, node.lasti) if node is not None else found.origin
        inputs.append(graph.enter(kind, label, shapes[i], body.fragment.dtypes[i], origin))
    slots = graph.add_plan(plan, body.fragment.origins, inputs)
    filled = {r: slots.get(body.fragment.outputs[at], -1) for at, r in enumerate(body.assigns)}
    carried = {r: len(body.constants) + at for at, r in enumerate(body.reads)}
    data = graph.data()
    number = data.pop("number")
    data["back"] = sorted(
        [number[filled[r]], number[carried[r]]] for r in carried if filled.get(r, -1) in number and carried[r] in number
    )
    return {
        "steps": loop.steps,
        "kinds": len(loop.bodies),
        "mark": f"us.iterate of {lines.name(found.origin)}",
        "shown": 0,
        "alike": loop.steps if not loop.which else int(np.sum(np.frombuffer(loop.which, np.uint8) == 0)),
        "body": data,
        "form": "iterate",
    }


def _name(node: Node) -> str:
    return getattr(node, "_name", "") or node.op.name
