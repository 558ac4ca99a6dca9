"""What `unspool.explain` found, as data that prints as text: numbers, names and lines, no nodes.

An explanation can be kept after everything it tells of is gone.
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from unspool._engine.memory.sizes import format_bytes
from unspool._html import printed_as_html
from unspool._inspect.places import lines_text, source_lines

# A place in the user's program: file and line.
Line = tuple[str, int]

# Lines of source text, and values of one sort, that are printed of a loop.
_MOST_LINES = 12
_MOST_VALUES = 8
_MOST_BODIES = 4

_WIDTH = 100


@dataclass(frozen=True)
class Value:
    """A value that a loop reads or carries.

    Attributes
    ----------
    name : str
        What the program calls it: a name, or the expression that made it.
    shape : tuple
    dtype : str
    note : str
        What else is known of it: its number, where it comes from.
    """

    name: str
    shape: tuple[Any, ...]
    dtype: str
    note: str = ""

    def __str__(self) -> str:
        size = f" {'×'.join(map(str, self.shape))}" if self.shape else ""
        note = f" ({self.note})" if self.note else ""
        return f"{self.name}{size}{note}"


@dataclass(frozen=True)
class Body:
    """One program that steps of a loop run.

    Attributes
    ----------
    operations : int
        Recorded operations.
    runs : int
        How often it ran.
    sizes : int
        For how many different sizes.
    lines : tuple of (str, int)
        Files and lines of the user's program that recorded it.
    """

    operations: int
    runs: int
    sizes: int
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class FoundLoop:
    """A loop that was found.

    Attributes
    ----------
    kind : str
        ``"plain"`` for a Python loop whose values were read, ``"fragment"`` for calls of a traced function,
        ``"iterate"`` for `unspool.iterate`, ``"adjoint"`` for the loop of a derivative.
    steps : int
        How often the value that it carries was made.
    folded, waiting, unfolded, pending : int
        How many runs of bodies are calls, wait to become calls, cannot, and how many steps were not evaluated yet.
    bodies : tuple of Body
        The most frequent first.
    order : str
        How bodies follow each other, if there are several.
    carried, streams, invariants : tuple of Value
        What a step reads of earlier ones, what is another one in each step, what is the same in all.
    across : tuple of Value
        What is made and used in one step, with a read in between: it is handed from one run to the next.
    held, held_bytes, residual_bytes : int
        Values of its steps that are in memory, what they take, and what is kept besides for derivatives.
    evicted : int
        Values that were held and have been evicted.
    """

    kind: str
    steps: int
    bodies: tuple[Body, ...]
    folded: int = 0
    waiting: int = 0
    unfolded: int = 0
    pending: int = 0
    order: str = ""
    carried: tuple[Value, ...] = ()
    streams: tuple[Value, ...] = ()
    invariants: tuple[Value, ...] = ()
    across: tuple[Value, ...] = ()
    held: int = 0
    held_bytes: int = 0
    residual_bytes: int = 0
    evicted: int = 0

    @property
    def lines(self) -> tuple[Line, ...]:
        """The lines of the user's program that it runs."""
        return tuple(dict.fromkeys(line for body in self.bodies for line in body.lines))


@dataclass(frozen=True)
class Unfolded:
    """Operations that were not folded, and why.

    Attributes
    ----------
    loop : int or None
        The number of the loop that they belong to, the first being 1.
    reason : str
        A short name of it, the same for the same reason.
    why, change : str
        What happened, and what to change, if there is anything.
    operations : int
    times : int
        How often the lines ran, as far as that is clear; 1 if nothing repeats.
    lines : tuple of (str, int)
    """

    reason: str
    why: str
    change: str
    operations: int
    times: int
    lines: tuple[Line, ...]
    loop: int | None = None


@dataclass(frozen=True)
class BackwardLoop:
    """A loop of the backward pass.

    Attributes
    ----------
    loop : int or None
        The number of the loop that it is the derivative of, the first being 1; ``None`` for what is no plain loop.
    steps : int
        Steps in loops of derivatives.
    calls : int
        Runs whose derivatives are recorded one by one, beside those.
    lines : tuple of (str, int)
    """

    loop: int | None
    steps: int
    calls: int
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class GradientCost:
    """What the gradient of a tensor takes.

    Attributes
    ----------
    wrt : tuple of str
        What it is taken with respect to.
    kernel_calls : int or None
        Kernels that have to run for it, without those that run again for lack of memory.
    recorded : int
        Nodes that it is recorded with: a loop is one.
    loops : tuple of BackwardLoop
        The loops that it goes back through.
    held_bytes : int or None
        The most bytes that are held at once if nothing runs again.
    least_budget : int or None
        The least budget with which it works.
    is_held : bool
        Whether it was computed already and is alive: then nothing has to run.
    problem : str
        Why there is none.
    """

    wrt: tuple[str, ...]
    kernel_calls: int | None = None
    recorded: int = 0
    loops: tuple[BackwardLoop, ...] = ()
    held_bytes: int | None = None
    least_budget: int | None = None
    is_held: bool = False
    problem: str = ""


@dataclass(frozen=True)
class Explanation:
    """What `unspool.explain` found; prints as text.

    Attributes
    ----------
    tensor : str
        What was explained.
    operations : int
        Operations that it is made of, those inside of loops counted as often as they ran.
    is_evaluated : bool
    loops : tuple of FoundLoop
        In the order of the program.
    unfolded : tuple of Unfolded
        What was not folded, in loops and outside of them.
    gradient : GradientCost
    """

    tensor: str
    operations: int
    is_evaluated: bool
    loops: tuple[FoundLoop, ...]
    unfolded: tuple[Unfolded, ...]
    gradient: GradientCost

    _repr_html_ = printed_as_html

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain data: dictionaries, tuples, numbers and text."""
        return dataclasses.asdict(self)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return "\n".join(_text(self))


# --- text ------------------------------------------------------------------------------------------------------------


def _text(found: Explanation) -> Iterator[str]:
    value = "has its value" if found.is_evaluated else "not evaluated yet"
    yield f"{found.tensor}: {_count(found.operations, 'operation')}, {value}."
    for number, loop in enumerate(found.loops, 1):
        yield ""
        is_short = any(one.loop == number and one.reason in ("few reads", "seldom") for one in found.unfolded)
        yield from _loop_text(number, loop, is_short)
        for one in found.unfolded:
            if one.loop == number:
                yield from _entry("not folded", _why(one))
                if one.change:
                    yield from _entry("", f"→ {one.change}")
    rest = [one for one in found.unfolded if one.loop is None]
    if rest:
        yield ""
        yield "Outside of loops" if found.loops else "Not folded"
    for one in rest:
        times = f", {one.times:,} times" if one.times > 1 else ""
        yield from _wrapped(f"{lines_text(one.lines)}: {_count(one.operations, 'operation')}{times}. {one.why}", "  ")
        if one.change:
            yield from _wrapped(f"→ {one.change}", "    ")
    yield ""
    yield from _gradient_text(found.gradient)


_KINDS = {
    "plain": "a Python loop",
    "fragment": "calls of a fragment",
    "iterate": "us.iterate",
    "adjoint": "of a derivative",
}


def _loop_text(number: int, loop: FoundLoop, is_short: bool) -> Iterator[str]:
    often = len(_frequent(loop))
    bodies = f", {often} bodies" if often > 1 else ""
    yield f"Loop {number}: {_count(loop.steps, 'step')}{bodies} ({_KINDS[loop.kind]}), {lines_text(loop.lines)}"
    shown = source_lines(loop.lines)
    for _, line, text in shown[:_MOST_LINES]:
        if text:
            yield f"    {line:>5}  {text}"
    if len(shown) > _MOST_LINES:
        yield f"           and {len(shown) - _MOST_LINES} more lines"
    yield from _entry("program", _program(loop))
    yield from _entry("carries", _carried(loop))
    if loop.streams:
        yield from _entry("streams", _values(loop.streams))
    if loop.invariants:
        yield from _entry("invariant", _values(loop.invariants))
    yield from _entry("holds", _holdings(loop))
    if loop.kind in ("plain", "fragment"):
        yield from _entry("folded", _folding(loop, is_short))


def _carried(loop: FoundLoop) -> str:
    across = f"across the read in the middle of a step: {_values(loop.across)}" if loop.across else ""
    if not loop.carried:
        return across or "nothing: no step reads an earlier one"
    return f"{_values(loop.carried)}; {across}" if across else _values(loop.carried)


def _why(one: Unfolded) -> str:
    return f"{_count(one.operations, 'operation')}: {one.why}"


def _frequent(loop: FoundLoop) -> list[Body]:
    """Return the bodies that make a loop: not those of its ends."""
    return [body for body in loop.bodies if body.runs > 2] or list(loop.bodies[:1])


def _program(loop: FoundLoop) -> str:
    often = _frequent(loop)
    parts = []
    for body in often[:_MOST_BODIES]:
        sizes = f" in {body.sizes} sets of sizes" if body.sizes > 1 else ""
        where = f" ({lines_text(body.lines)})" if len(often) > 1 else ""
        runs = f", {_count(body.runs, 'run')}" if body.runs != loop.steps or len(often) > 1 else ""
        parts.append(f"{_count(body.operations, 'operation')}{where}{runs}{sizes}")
    if len(often) > _MOST_BODIES:
        parts.append(f"and {_count(len(often) - _MOST_BODIES, 'more body')}")
    order = f". {loop.order}" if loop.order else ""
    return "; ".join(parts) + order


def _holdings(loop: FoundLoop) -> str:
    parts = []
    if loop.held:
        parts.append(f"{_count(loop.held, 'value')}, {format_bytes(loop.held_bytes)}")
    if loop.residual_bytes:
        parts.append(f"{format_bytes(loop.residual_bytes)} of residuals for derivatives")
    if loop.evicted:
        parts.append(f"{_count(loop.evicted, 'value')} evicted")
    return "; ".join(parts) or "no values"


def _folding(loop: FoundLoop, is_short: bool) -> str:
    runs = loop.folded + loop.waiting + loop.unfolded
    parts = []
    if loop.folded:
        parts.append("all runs" if loop.folded == runs else f"{loop.folded:,} of {_count(runs, 'run')}")
    else:
        parts.append(f"none of {_count(runs, 'run')}")
    if loop.waiting:
        parts.append(f"{loop.waiting:,} wait until more is read{'' if is_short else ' or a gradient is taken'}")
    if loop.unfolded:
        parts.append(f"{loop.unfolded:,} cannot be")
    if loop.pending:
        parts.append(f"{_count(loop.pending, 'step')} not evaluated yet")
    return ", ".join(parts)


def _gradient_text(cost: GradientCost) -> Iterator[str]:
    if cost.problem:
        yield from _wrapped(f"Gradient: {cost.problem}", "")
        return
    counts = Counter(cost.wrt)
    names = [name if count == 1 else f"{count} × {name}" for name, count in counts.items()]
    yield f"Gradient in {_listed(names)}"
    if cost.is_held:
        yield from _entry("work", "none: it was computed, and is held")
        return
    for one in cost.loops[:_MOST_VALUES]:
        yield from _entry("backward", _backward(one))
    work = "unknown" if cost.kernel_calls is None else _count(cost.kernel_calls, "kernel call")
    yield from _entry("work", f"{work}, recorded as {_count(cost.recorded, 'node')}")
    if cost.held_bytes is not None and cost.least_budget is not None:
        most, least = format_bytes(cost.held_bytes), format_bytes(cost.least_budget)
        less = f"; with a budget it runs steps again and works from {least} on"
        yield from _entry("memory", f"{most} at once{less if cost.least_budget < cost.held_bytes else ''}")


def _backward(one: BackwardLoop) -> str:
    name = f"loop {one.loop}" if one.loop is not None else f"the loop of {lines_text(one.lines)}"
    if not one.calls:
        return f"{name}, {_count(one.steps, 'step')}: a loop again"
    if not one.steps:
        return f"{name}: {_count(one.calls, 'run')} as nodes of their own"
    return f"{name}: {_count(one.steps, 'step')} as a loop, {_count(one.calls, 'run')} as nodes of their own"


def _values(values: Sequence[Value]) -> str:
    return _listed([str(value) for value in values])


def _listed(names: Sequence[str]) -> str:
    rest = f" and {len(names) - _MOST_VALUES} more" if len(names) > _MOST_VALUES else ""
    return ", ".join(names[:_MOST_VALUES]) + rest


def _entry(name: str, text: str) -> Iterable[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=f"  {name:<10} ", subsequent_indent=" " * 13)


def _wrapped(text: str, indent: str) -> Iterable[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ")


def _count(number: int, noun: str) -> str:
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"
