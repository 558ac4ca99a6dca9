"""Which body runs in which step of a derivative of a loop: a finite automaton, run over integers.

The derivative of a step depends on which registers have a cotangent (or tangent) at all, and on which are masked. That
is the *state* of the automaton, and the body of a step moves it: a loss reads one part of a state, and a step later the
cotangent has spread to the rest. Each pair of a body and a state is one *variant*, a body of the derivative. States are
finitely many, so in a run of one body they soon come back, and the rest of the run is a cycle that need not be walked.

More variants than a loop may have bodies are not worth their code. Then every register whose form changes is masked in
all steps, which can say everything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

from unspool._autodiff.loops.forms import MASKED, Forms
from unspool._autodiff.loops.loop import MOST_BODIES, Body, Loop
from unspool._autodiff.loops.steps import ADJOINT, DerivedStep
from unspool._fragments.fragment import Fragment, fragment_of

# A register of a derivative: the register of the loop that it belongs to, and which part it is.
Key = tuple[int, str]

# derive(body, forms, leaving): the derivative of a body, by number, for forms of the registers that it touches, which
# leave in given forms, or as they come out.
Derive = Callable[[int, Forms, "Forms | None"], DerivedStep]


class Variants(NamedTuple):
    """The bodies of a derivative.

    Attributes
    ----------
    steps : list of (int, DerivedStep)
        For each the body that it is the derivative of, and what it does.
    which : bytes
        The variant of each step, by number of the step.
    entering, leaving : forms
        Of all registers, before the first and after the last step of the derivative.
    """

    steps: list[tuple[int, DerivedStep]]
    which: bytes
    entering: Forms
    leaving: Forms


def variants_of(loop: Loop, derive: Derive, forms: Forms, *, backwards: bool) -> Variants:
    """Return the variants of a derivative that goes through the steps of a loop in its order or ``backwards``."""
    runs = list(loop.runs(0, loop.steps))
    if backwards:
        runs.reverse()
    automaton = _Automaton(loop, derive, backwards)
    pieces, state = [], forms
    for body, start, stop in runs:
        piece, state = automaton.run(body, state, stop - start)
        pieces.append(piece)
        if len(automaton.steps) > MOST_BODIES:
            return _widened(loop, derive, forms, backwards)
    which = b"".join(pieces)
    return Variants(automaton.steps, which[::-1] if loop.reverse != backwards else which, forms, state)


class _Automaton:
    """The variants that were met so far."""

    def __init__(self, loop: Loop, derive: Derive, backwards: bool) -> None:
        self._loop, self._derive, self._backwards = loop, derive, backwards
        self._known: dict[tuple[int, Forms], int] = {}
        self.steps: list[tuple[int, DerivedStep]] = []

    def run(self, body: int, state: Forms, count: int) -> tuple[bytes, Forms]:
        """Return the variants of a number of steps of one body, in order, and the state after them."""
        found = bytearray()
        states: list[Forms] = []
        met: dict[Forms, int] = {}
        while len(found) < count:
            if state in met:
                cycle = bytes(found[met[state] :])
                missing = count - len(found)
                found += (cycle * (missing // len(cycle) + 1))[:missing]
                return bytes(found), states[met[state] + missing % len(cycle)]
            met[state] = len(found)
            states.append(state)
            variant, state = self._step(body, state)
            found.append(variant)
            if variant >= MOST_BODIES:
                break
        return bytes(found), state

    def _step(self, number: int, state: Forms) -> tuple[int, Forms]:
        """Return the variant of a body in a state, and the state that it leaves."""
        body = self._loop.bodies[number]
        arriving = _arriving(body, state, self._backwards)
        variant = self._known.get((number, arriving))
        if variant is None:
            variant = self._known[number, arriving] = len(self.steps)
            self.steps.append((number, self._derive(number, arriving, None)))
        return variant, _after(state, body.touched, self.steps[variant][1].carry)


def _arriving(body: Body, state: Forms, backwards: bool) -> Forms:
    """Return the forms of the registers that a body touches; a tangent of what it does not read is not looked at."""
    return tuple([state[r] if backwards or r in body.reads else None for r in body.touched])


def _after(state: Forms, touched: Sequence[int], forms: Forms) -> Forms:
    after: list[Any] = list(state)
    for r, form in zip(touched, forms, strict=True):
        after[r] = form
    return tuple(after)


def _widened(loop: Loop, derive: Derive, forms: Forms, backwards: bool) -> Variants:
    """Return variants, one for each body, that leave registers in the forms in which they take them."""
    before = None
    while forms != before:
        before = forms
        for number, body in enumerate(loop.bodies):
            left = _after(forms, body.touched, derive(number, _arriving(body, forms, backwards), None).carry)
            forms = tuple([a if a in (b, MASKED) else MASKED for a, b in zip(forms, left, strict=True)])
    steps = []
    for number, body in enumerate(loop.bodies):
        leaving = tuple([forms[r] for r in body.touched])
        steps.append((number, derive(number, _arriving(body, forms, backwards), leaving)))
    return Variants(steps, loop.which, forms, forms)


# --- variants as bodies ----------------------------------------------------------------------------------------------


class Numbering:
    """Things in the order in which they were met first, each once."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers: dict[Hashable, int] = {}

    def number(self, value: Any, key: Hashable) -> int:
        if key not in self._numbers:
            self._numbers[key] = len(self.values)
            self.values.append(value)
        return self._numbers[key]


class Variant:
    """A derived step in terms of the primal loop, and what becomes of its outputs.

    Attributes
    ----------
    reads, assigns : list of Key
    rows : list of (kind, position)
        Where its rows come from.
    leaving_rows : dict
        The rows that leave it, by place.
    """

    def __init__(self, primal: Body, step: DerivedStep, kind: str) -> None:
        self.primal, self.step = primal, step
        is_adjoint = kind == ADJOINT
        arriving, leaving = (primal.stacked, primal.rows) if is_adjoint else (primal.rows, primal.stacked)
        self._shared = primal.constants if is_adjoint else primal.sums
        places = {"row": primal.rows, "stacked": primal.stacked}
        self.reads = [(primal.touched[i], name) for i, name in step.reads]
        self.assigns = [(primal.touched[i], name) for i, name in step.assigns]
        self.rows = [(kind, places.get(kind, arriving)[at]) for kind, at in step.rows]
        self.leaving_rows = dict(zip(leaving, step.leaving_rows, strict=True))
        self._written: dict[int, int] = {}
        self._added: dict[int, int] = {}

    def numbered_terms(self, place: int) -> list[tuple[Hashable, tuple[Any, ...]]]:
        """Return its terms of a sum, each with a key under which other variants have terms of the same kind."""
        if place not in self._shared:
            return []
        found: list[tuple[Hashable, tuple[Any, ...]]] = []
        met: Counter[Hashable] = Counter()
        for term in self.step.terms[self._shared.index(place)]:
            kind = (term[1], term[4]) if term[0] == "outer" else None
            found.append(((kind, met[kind]), term))
            met[kind] += 1
        return found

    def write(self, stack: int | None, position: int, *, as_read: bool = False) -> None:
        """Write a row that leaves the step, or one that it reads, to a stack."""
        step = self.step
        if as_read:
            slot = len(step.constants) + len(step.reads) + position
        else:
            slot = step.fragment.outputs[len(step.assigns) + position]
        self._written[stack] = slot  # type: ignore[index]

    def add(self, place: int, position: int) -> None:
        """Add a term that leaves the step to a sum."""
        self._added[place] = self.step.fragment.outputs[len(self.step.assigns) + self.step.stacked + position]

    def body(self, constants: Sequence[int], rows: Sequence[int], registers: dict[Key, int]) -> Body:
        """Return the step as a body of the new loop."""
        fragment = self.step.fragment
        outputs = (*fragment.outputs[: len(self.assigns)], *self._written.values(), *self._added.values())
        return Body(
            _with_outputs(fragment, outputs),
            tuple(constants),
            tuple([registers[key] for key in self.reads]),
            tuple(rows),
            tuple([registers[key] for key in self.assigns]),
            tuple(self._written),
            tuple(self._added),
        )


def _with_outputs(fragment: Fragment, outputs: tuple[int, ...]) -> Fragment:
    """Return a fragment with other outputs."""
    if outputs == fragment.outputs:
        return fragment
    made = fragment_of(fragment.dtypes, fragment.shapes, fragment.body, outputs, len(outputs), fragment.origins)
    made.swept = made.swept or fragment.swept
    return made
