"""The parts of which a derivative of a loop is put together: variants of bodies, and what they share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from unspool._autodiff.loop import Body
from unspool._autodiff.loop_steps import ADJOINT, DerivedStep
from unspool._fragments.fragment import Fragment, fragment_of
from unspool._ops.elementwise import logical_or, mask
from unspool._ops.layout import broadcast_to
from unspool._ops.leaf import constant

# A register of a derivative: the register of the loop that it belongs to, and which part it is.
Key = tuple[int, str]


class JoinedRows(NamedTuple):
    """A cotangent or tangent that comes row by row.

    ``number`` and ``keep``, if there is one, are stacks; ``whole`` tells which rows are not masked, if not all are.
    """

    number: int
    keep: int | None
    whole: Any

    def of(self, stacks: Sequence[Any]) -> Any:
        """Return it, given all stacks."""
        number = stacks[self.number]
        if self.whole is None:
            return number
        rows = constant(self.whole.reshape((-1,) + (1,) * (len(number.shape) - 1)))
        keep = rows if self.keep is None else logical_or(rows, stacks[self.keep])
        return mask(number, broadcast_to(keep, number.shape))


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


def joined(parts: Sequence[Any]) -> Any:
    """Return the cotangent that has some parts: ``None`` for none, masked for two."""
    return None if not parts else parts[0] if len(parts) == 1 else mask(*parts)
