"""How a demonstration goes: the loop with its progress, the gradient through it, and both beside exact numbers.

A `Story` says what is run; `play` runs it. Everything is done inside one `unspool.memory` block. The states that the
loop went through are kept as recipes, not as values: one backward pass at the end gives the gradient, and what arrives
at each of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import optree

import unspool as us
from unspool._cli.interrupts import Interrupts
from unspool._cli.live import LiveBytes
from unspool._cli.options import written
from unspool._cli.pictures import Drawing, draw
from unspool._cli.progress import Column, Progress, spoken, working
from unspool._cli.tables import Comparison, Table, compare, make_console, print_lines, print_table
from unspool._engine.memory.sizes import format_bytes
from unspool._engine.table import UNKNOWN
from unspool.errors import BudgetError, ReportError

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Outcome", "Story", "play"]

OnStep: TypeAlias = Callable[[int, Any, Mapping[str, float]], None]

# Exit codes of a run that did not end well. Ctrl-C: 128 and the number of the signal, as shells have it.
_FAILED, _STOPPED = 1, 130

# States whose cotangents are drawn, at most.
_MOST_STATES = 128

# The budget if none is given: half of the memory that is available.
_SHARE = 0.5


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a loop came to.

    Attributes
    ----------
    loss : Tensor
        The scalar to differentiate.
    variable : pytree of Tensor
        What it is differentiated with respect to.
    converged : bool
        Whether the loop stopped by itself.
    tables : callable
        Takes the gradient, nested like ``variable``, and returns what to print of it all.
    """

    loss: us.Tensor
    variable: Any
    converged: bool
    tables: Callable[[Any], Sequence[Table]]


@dataclass(frozen=True, kw_only=True)
class Story:
    """A loop to run.

    Attributes
    ----------
    title, about : str
        What is run, and what to know of it.
    run : callable
        Runs the loop, calling back after every step.
    columns : sequence of Column
        What to show of the numbers that it reads.
    quantity : str
        The number whose convergence is drawn; the name of a column.
    exact : float, optional
        What that number tends to.
    loss : str, optional
        What is differentiated, if that is another number.
    step : str
        What a step is called.
    """

    title: str
    about: str
    run: Callable[[OnStep], Outcome]
    columns: Sequence[Column]
    quantity: str
    exact: float | None = None
    loss: str | None = None
    step: str = "sweep"


@dataclass
class _Trace:
    """What was seen of a loop: the numbers of every step, and some of the states."""

    numbers: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    states: list[tuple[int, list[us.Tensor]]] = field(default_factory=list)
    is_done: bool = False
    _stride: int = 1

    def note(self, step: int, state: Any, values: Mapping[str, float]) -> None:
        self.numbers.append((step, dict(values)))
        if step % self._stride == 0:
            self.states.append((step, _tensors(state)))
        if len(self.states) > _MOST_STATES:
            self._stride *= 2
            self.states = [(at, state) for at, state in self.states if at % self._stride == 0]

    def column(self, name: str) -> list[tuple[int, float]]:
        return [(step, values[name]) for step, values in self.numbers if name in values]


@dataclass(frozen=True)
class _Seen:
    """What is shown of a run that came to its end."""

    outcome: Outcome
    tables: Sequence[Table]
    cotangents: list[tuple[int, float]]
    loop_end: float
    gradient_seconds: float


def play(story: Story, chosen: argparse.Namespace) -> int:
    """Run a story and print it; return the exit code of the command."""
    with Interrupts() as interrupts:
        return _play(story, chosen, interrupts)


def _play(story: Story, chosen: argparse.Namespace, interrupts: Interrupts) -> int:
    console = make_console()
    console.print(story.title, style="bold cyan", markup=False)
    console.print(story.about, markup=False)
    trace = _Trace()
    budget: int | float = _SHARE if chosen.memory is None else chosen.memory
    try:
        with us.memory(budget) as memory:
            console.print(f"Memory budget: {format_bytes(memory.budget)}.\n", markup=False)
            live = LiveBytes(memory)
            seen = _run(story, trace, memory, live, console, interrupts, written(chosen))
            interrupts.check()
            taken, page = memory.report(), _page_of(chosen)
            made = None if page is None else _make_report(story, trace, seen, taken, console)
            interrupts.check()
    except KeyboardInterrupt:
        _print_stopped(console, story, trace)
        return _STOPPED
    _print_seen(console, story, trace, seen, chosen)
    # A dash stands for what was not needed.
    known = [line for line in str(taken).splitlines() if not line.endswith(UNKNOWN)]
    print_lines(console, "Memory", known)
    code = 0
    if chosen.output is not None:
        code = _save_picture(console, _drawing(story, trace, seen, live, memory.budget), Path(chosen.output))
    if made is not None and page is not None:
        code = _save_report(console, made, page) or code
    return code


def _page_of(chosen: argparse.Namespace) -> Path | None:
    """Return where the report goes: where it was told to, or beside the picture."""
    if chosen.report is not None:
        return None if chosen.report is False else Path(chosen.report)
    return None if chosen.output is None else Path(chosen.output).with_suffix(".html")


def _run(
    story: Story,
    trace: _Trace,
    memory: us.memory,
    live: LiveBytes,
    console: Console,
    interrupts: Interrupts,
    spooled: us.SpooledRun | None,
) -> _Seen:
    with Progress(console, story.step, story.columns, live.now) as progress:

        def on_step(step: int, state: Any, values: Mapping[str, float]) -> None:
            trace.note(step, state, values)
            live.sample()
            progress.show(step, values)
            interrupts.check()

        outcome = story.run(on_step)
    if spooled is not None:  # steps of an earlier process are steps too
        trace.numbers = list(enumerate(spooled.history, 1))
    trace.is_done = True
    live.save()
    loop_end = live.seconds
    with working(console, f"the gradient, through {_counted(len(trace.numbers), story.step)}"):
        gradient = outcome.loss.grad(outcome.variable)
        # Cotangents of many states need more room than the gradient; where there is little, they would cost too much.
        norms = [] if memory.report().slabs_dropped else _cotangent_norms(outcome.loss, trace.states)
        with live.watching():
            cotangents = _evaluate(gradient, norms)
        seconds = live.seconds - loop_end
        tables = outcome.tables(gradient)
    return _Seen(outcome, tables, cotangents, loop_end, seconds)


def _make_report(story: Story, trace: _Trace, seen: _Seen, memory: Any, console: Console) -> us.Report:
    """Make the report of a run; cotangents that there was no room for are left out of it too."""
    names = [column.name for column in story.columns]
    with working(console, "the report"):
        us.eval(seen.outcome.loss)
        return us.report(
            seen.outcome.loss,
            wrt=seen.outcome.variable,
            states=dict(trace.states) if seen.cotangents else {},
            values={spoken(name): dict(trace.column(name)) for name in names if trace.column(name)},
            memory=memory,
            title=story.title,
        )


def _save_report(console: Console, made: us.Report, path: Path) -> int:
    """Save the report, say where, and return the exit code."""
    try:
        made.save(path)
    except ReportError as error:
        console.print(f"No report: {error}", style="red", soft_wrap=True, markup=False)
        return _FAILED
    console.print(f"Report: {path}", soft_wrap=True, markup=False)
    return 0


def _evaluate(gradient: Any, norms: list[tuple[int, us.Tensor]]) -> list[tuple[int, float]]:
    """Compute a gradient and, if the budget has room for them, norms of cotangents; return the norms."""
    try:
        # One evaluation, so that they share their sweep.
        _, values = us.eval(gradient, [norm for _, norm in norms])
    except BudgetError:
        us.eval(gradient)
        return []
    return [(step, float(value)) for (step, _), value in zip(norms, values, strict=True)]


def _cotangent_norms(loss: us.Tensor, states: list[tuple[int, list[us.Tensor]]]) -> list[tuple[int, us.Tensor]]:
    """Return the norm of what arrives at each state, where something does."""
    norms = []
    arrived = us.cotangents(loss, [state for _, state in states])
    for (step, _), cotangents in zip(states, arrived, strict=True):
        squares = [us.sum(us.square(us.abs(ct))) for ct in cotangents if ct is not None]
        if squares:
            norms.append((step, us.sqrt(sum(squares[1:], squares[0]))))
    return norms


def _tensors(state: Any) -> list[us.Tensor]:
    leaves = optree.tree_leaves(state, namespace="unspool")
    return [leaf for leaf in leaves if isinstance(leaf, us.Tensor) and leaf.dtype.kind in "fc"]


# --- what is shown ---------------------------------------------------------------------------------------------------


def _print_seen(console: Console, story: Story, trace: _Trace, seen: _Seen, chosen: argparse.Namespace) -> None:
    steps = _counted(len(trace.numbers), story.step)
    if not seen.outcome.converged:
        note = f"\nNot converged to {chosen.tol:g} in {steps}; --steps allows more."
        console.print(note, style="yellow", markup=False)
    console.print(f"\nGradient through {steps}: {seen.gradient_seconds:.1f} s.", markup=False)
    for table in seen.tables:
        print_table(console, table)


def _print_stopped(console: Console, story: Story, trace: _Trace) -> None:
    """Print how far it came."""
    if not trace.numbers:
        console.print(f"\nStopped in the first {story.step}.", style="yellow", markup=False)
        return
    step, values = trace.numbers[-1]
    rows = [
        Comparison(spoken(name), value, story.exact if name == story.quantity else None, ".12g")
        for name, value in values.items()
    ]
    where = "in the gradient, " if trace.is_done else ""
    console.print(f"\nStopped {where}after {_counted(step, story.step)}.", style="yellow", markup=False)
    print_table(console, compare("What was reached", rows))


def _save_picture(console: Console, drawing: Drawing, path: Path) -> int:
    """Save the picture, say where, and return the exit code."""
    try:
        is_saved = draw(drawing, path)
    except OSError as error:
        console.print(f"\nNo picture: {error}", style="red", soft_wrap=True, markup=False)
        return _FAILED
    told = f"Picture: {path}" if is_saved else "No picture: Matplotlib is not installed (pip install 'unspool[plot]')."
    console.print(f"\n{told}", soft_wrap=True, markup=False)
    return 0


def _drawing(story: Story, trace: _Trace, seen: _Seen, live: LiveBytes, budget: int) -> Drawing:
    exact = story.exact
    tracked = trace.column(story.quantity)
    return Drawing(
        title=story.title,
        step=story.step,
        quantity=spoken(story.quantity),
        loss=spoken(story.loss or story.quantity),
        errors=[] if exact is None else [(step, abs(value - exact)) for step, value in tracked],
        changes=[(step, abs(value)) for step, value in trace.column("change")],
        cotangents=seen.cotangents,
        live=live.curve(until=seen.loop_end + seen.gradient_seconds),
        gradient_begin=seen.loop_end,
        budget=budget,
    )


def _counted(number: int, noun: str) -> str:
    """Return a number and a noun.

    Examples
    --------
    >>> _counted(1, "sweep"), _counted(8, "sweep")
    ('1 sweep', '8 sweeps')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
