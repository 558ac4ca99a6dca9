"""A trace as a listing: inputs, one line per instruction, what is returned, and what the trace is for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unspool import _trees as trees
from unspool._graph import describe, source_of
from unspool._ops.leaf import CONSTANT

if TYPE_CHECKING:
    from unspool._fragments.fragment import Instruction
    from unspool._fragments.tracing import Slot, Trace


def show(trace: Trace) -> str:
    """Return a trace as text.

    A slot is written ``%3``; inputs come first, then the result of each instruction. Sizes n₀, n₁, … are symbols: any
    sizes from 2 on that are equal where the symbols are. What the trace is for besides follows at the end.
    """
    fragment, slots = trace.fragment, trace.slots
    first = len(fragment.dtypes)
    lines = [f"fragment {trace.name}"]
    if first:
        labels = [*trace.inputs, *[f"closed over: {describe(t)}, made at {source_of(t)}" for t in trace.closed_over]]
        lines += ["  inputs", *_rows(0, slots[:first], labels)]
    if fragment.body:
        lines += ["  body", *_rows(first, slots[first:], [_instruction(i) for i in fragment.body])]
    lines.append(f"  returns {_returned(trace)}")
    residuals = sorted(set(fragment.outputs[fragment.results :]))
    if residuals:
        lines.append(f"  keeps for derivatives {_slots(residuals)}")
    if trace.given:
        lines.append("  only for")
        lines += [f"    {g.meaning} = {g.number!r}, {g.reason}" for g in trace.given]
    if trace.surroundings.unseen:
        lines.append("  traced at each call, because")
        lines += [f"    {reason}" for reason in dict.fromkeys(trace.surroundings.unseen)]
    return "\n".join(lines)


class _Text:
    """Shows as given inside a structure."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _rows(start: int, slots: Sequence[Slot], texts: Sequence[str]) -> list[str]:
    cells = [
        (f"%{number}", str(slot.shape), _dtype(slot.dtype), text)
        for number, (slot, text) in enumerate(zip(slots, texts, strict=True), start=start)
    ]
    widths = [max(len(row[column]) for row in cells) for column in range(3)]
    return ["    " + "  ".join([*map(str.ljust, row, widths), row[3]]) for row in cells]


def _dtype(dtype: Any) -> str:
    return f"({', '.join(map(str, dtype))})" if isinstance(dtype, tuple) else str(dtype)


def _instruction(instruction: Instruction) -> str:
    if instruction.op is CONSTANT:
        return f"constant {instruction.params['literal']!r}"
    params = [f"{name}={_parameter(value)}" for name, value in instruction.params.items()]
    return f"{instruction.op.name}({', '.join([*[f'%{slot}' for slot in instruction.operands], *params])})"


def _parameter(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _returned(trace: Trace) -> str:
    """Return the result as the function nests it, with slots in place of tensors."""
    names = [
        f"%{trace.fragment.outputs[content]}"
        if kind == "result"
        else trace.leaf_names[content]
        if kind == "leaf"
        else repr(content)
        for kind, content in trace.returns
    ]
    return repr(trees.unflatten(trace.structure, map(_Text, names)))


def _slots(numbers: Sequence[int]) -> str:
    return ", ".join(f"%{number}" for number in numbers)
