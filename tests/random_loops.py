"""Random loops over a state of several tensors, written once and run in every form that the library has.

A *body* is what a step does: some operations of `tests.test_random_programs` on the state, on what stays the same, and
on each other; and for each tensor of the state how it goes on. It may go on unchanged, be exchanged with another, or be
replaced whatever it was, so outputs of a step can be inputs of it, and inputs can be without use. NumPy runs a loop
first and says whether its values stay moderate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

import unspool as us
from tests.test_random_programs import (
    COMPLEX,
    COMPLEX_LEAVES,
    ELEMENTWISE,
    EVERY_ONE,
    LARGEST,
    LAYOUT,
    LINALG,
    MASKED,
    REAL_LEAVES,
    REDUCTIONS,
)

# A state has one to three tensors; beside it there are a matrix and a number that stay the same.
STATES = {"f": (REAL_LEAVES[0], np.array(0.4), np.array([[0.2, -0.3, 0.5], [0.1, 0.6, -0.2], [0.3, 0.2, -0.4]]))}
STATES["c"] = (COMPLEX_LEAVES[0], np.array(0.4 - 0.3j), STATES["f"][2] + 0.25j * STATES["f"][2].T)
FIXED = {"f": REAL_LEAVES[1:], "c": COMPLEX_LEAVES[1:]}

KINDS = {
    "smooth": [*ELEMENTWISE, *REDUCTIONS],
    "masked": [*MASKED, *ELEMENTWISE],
    "layout": [*LAYOUT, *LAYOUT, *REDUCTIONS, "tanh", "multiply"],
    "linalg": [*LINALG, "matvec", "add", "tanh", "row", "picked"],
    "complex": [*COMPLEX, "add", "multiply", "square", *REDUCTIONS, "picked", "set"],
}


class Part(NamedTuple):
    """An operation and which values it reads."""

    name: str
    first: int
    second: int


class End(NamedTuple):
    """How a tensor of the state goes on: as it is, as another, or as (half of it and) half of a value."""

    how: str
    which: int


class Body(NamedTuple):
    """What a step does."""

    parts: tuple[Part, ...]
    ends: tuple[End, ...]


class Loop(NamedTuple):
    """A body, how often it runs, and what it starts from: the state and what stays the same."""

    body: Body
    times: int
    state: tuple[Any, ...]
    fixed: tuple[Any, ...]

    @property
    def arrays(self) -> tuple[Any, ...]:
        return (*self.state, *self.fixed)


def loops(kind: str, times: Sequence[int]) -> st.SearchStrategy[Loop]:
    """Draw loops of a kind."""
    number, letter = st.integers(0, 7), "c" if kind == "complex" else "f"
    parts = st.lists(st.builds(Part, st.sampled_from(KINDS[kind]), number, number), min_size=1, max_size=4)
    how = st.sampled_from(["mix", "mix", "mix", "new", "same", "other"])
    ends = st.lists(st.builds(End, how, number), min_size=1, max_size=3)

    def make(parts: list[Part], ends: list[End], count: int) -> Loop:
        return Loop(Body(tuple(parts), tuple(ends)), count, STATES[letter][: len(ends)], FIXED[letter])

    return st.builds(make, parts, ends, st.sampled_from(list(times)))


# --- a step ----------------------------------------------------------------------------------------------------------


def compute(xp: Any, parts: Sequence[Part], values: list[Any]) -> list[Any]:
    """Return values and what operations make of them, one after the other."""
    for name, first, second in parts:
        # The latest values have the smallest numbers.
        recent = values[::-1]
        values = [*values, EVERY_ONE[name](xp, recent[first % len(recent)], recent[second % len(recent)])]
    return values


def go_on(xp: Any, ends: Sequence[End], state: Sequence[Any], values: Sequence[Any]) -> tuple[Any, ...]:
    """Return the next state."""
    new = []
    for old, (how, which) in zip(state, ends, strict=True):
        if how == "same":
            new.append(old)
            continue
        source = state[which % len(state)] if how == "other" else values[-1 - which % len(values)]
        value = fitted(xp, source, old.shape)
        if value.dtype != old.dtype:
            value = value + 0j if old.dtype.kind == "c" else xp.real(value)
        new.append(value if how == "other" else 0.5 * value + (0.5 * old if how == "mix" else 0.1))
    return tuple(new)


def fitted(xp: Any, value: Any, shape: tuple[int, ...]) -> Any:
    """Return a value in another shape: means over what is too much, copies of what is too little."""
    while value.ndim > len(shape):
        value = xp.mean(value, axis=0)
    return value if value.shape == shape else value + xp.zeros(shape)


def step(xp: Any, body: Body, state: Sequence[Any], fixed: Sequence[Any]) -> tuple[Any, ...]:
    return go_on(xp, body.ends, state, compute(xp, body.parts, [*fixed, *state]))


LOSSES: dict[str, Callable[[Any, Any], Any]] = {
    "linear": lambda xp, s: xp.sum(xp.real(s)),
    "square": lambda xp, s: xp.mean(xp.real(s * xp.conj(s)) + xp.real(s)),
    "element": lambda xp, s: xp.real(s[(0,) * s.ndim]),
}


def loss_of(xp: Any, state: Iterable[Any], loss: str = "square") -> Any:
    """Return a number that depends on a state."""
    return sum(LOSSES[loss](xp, s) for s in state)


def by_numpy(loop: Loop, arrays: Sequence[Any] | None = None, seen: int = 0, loss: str = "square") -> float | None:
    """Return the loss of a loop, or None if a value on the way is too large to go on with.

    The bits of ``seen`` say which tensors of the final state the loss sees; all of them if it has none.
    """
    arrays = loop.arrays if arrays is None else arrays
    state: Sequence[Any] = arrays[: len(loop.state)]
    fixed = arrays[len(loop.state) :]
    with np.errstate(all="ignore"):
        for _ in range(loop.times):
            values = compute(np, loop.body.parts, [*fixed, *state])
            state = go_on(np, loop.body.ends, state, values)
            if any(not np.all(np.isfinite(v)) or np.max(np.abs(v)) > LARGEST for v in (*values, *state)):
                return None
        return float(loss_of(np, chosen(state, seen), loss))


def chosen(values: Sequence[Any], bits: int) -> list[Any]:
    """Return the values whose bits are set; all of them if none is."""
    return [v for i, v in enumerate(values) if bits >> i & 1] or list(values)


# --- forms -----------------------------------------------------------------------------------------------------------

Form = Callable[[Loop, Sequence[us.Tensor], Sequence[us.Tensor]], Sequence[us.Tensor]]


def by_steps(make: Callable[[Body], Callable[..., Any]], reads: Callable[[int], bool] = lambda k: False) -> Form:
    """Return the form of a loop in Python whose step a function makes; ``reads`` says after which steps it looks."""

    def run(loop: Loop, state: Sequence[us.Tensor], fixed: Sequence[us.Tensor]) -> Sequence[us.Tensor]:
        function = make(loop.body)
        for k in range(loop.times):
            state = function(tuple(state), tuple(fixed))
            if reads(k):
                float(us.mean(us.real(state[0])))
        return state

    return run


def plain(body: Body) -> Callable[..., Any]:
    return lambda state, fixed: step(us, body, state, fixed)


def nested(body: Body) -> Callable[..., Any]:
    """Return a fragment that calls fragments, one of them twice."""
    half = len(body.parts) // 2
    first = us.fragment(lambda values: tuple(compute(us, body.parts[:half], list(values))))
    second = us.fragment(lambda values: tuple(compute(us, body.parts[half:], list(values))))

    def function(state: Any, fixed: Any) -> Any:
        second((*fixed, *state))
        return go_on(us, body.ends, state, second(first((*fixed, *state))))

    return us.fragment(function)


def several(body: Body) -> Callable[..., Any]:
    """Return a step of which a part is a fragment with more results than are used."""
    inner = us.fragment(lambda values: tuple(compute(us, body.parts, list(values))))
    return lambda state, fixed: go_on(us, body.ends, state, inner((*fixed, *state)))


def remat_inside(body: Body) -> Callable[..., Any]:
    inner = us.remat(lambda values: tuple(compute(us, body.parts, list(values))))
    return us.fragment(lambda state, fixed: go_on(us, body.ends, state, inner((*fixed, *state))))


def by_iterate(adjoint: Any = None, make: Callable[[Body], Callable[..., Any]] = plain) -> Form:
    def run(loop: Loop, state: Sequence[us.Tensor], fixed: Sequence[us.Tensor]) -> Sequence[us.Tensor]:
        function = make(loop.body)
        found, _ = us.iterate(
            lambda state: function(state, tuple(fixed)), tuple(state), max_steps=loop.times, adjoint=adjoint
        )
        return found  # type: ignore[no-any-return]

    return run


def every(k: int) -> bool:
    return True


FORMS: dict[str, Form] = {
    "plain": by_steps(plain),
    "plain, read": by_steps(plain, every),
    "plain, read now and then": by_steps(plain, lambda k: k % 3 == 1),
    "fragment": by_steps(lambda body: us.fragment(plain(body))),
    "fragment, read": by_steps(lambda body: us.fragment(plain(body)), every),
    "fragments in a fragment": by_steps(nested),
    "a fragment with more results than are used": by_steps(several, every),
    "remat": by_steps(lambda body: us.remat(plain(body))),
    "remat, read": by_steps(lambda body: us.remat(plain(body)), every),
    "remat in a fragment": by_steps(remat_inside),
    "iterate": by_iterate(),
    "iterate of a fragment": by_iterate(make=lambda body: us.fragment(plain(body))),
    "iterate of a remat": by_iterate(make=lambda body: us.remat(plain(body))),
    "few states": by_iterate(us.Checkpointed(slots=2)),
    "little memory": by_iterate(us.Checkpointed(memory=2000)),
}
