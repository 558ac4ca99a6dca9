"""Random loops: folded at once, folded later, never folded, the tape and plain NumPy must agree.

A program is the body of a loop: a few steps that run several times on a state, so that their structure recurs. Each
step reads the state, constants, or earlier results, and has one thing done to its own: it is looked at, branched on,
held beyond the loop, or it makes earlier results be dropped. NumPy runs the program first and says which results are
too large to go on with. What the program means must not depend on when its pieces are folded.

There are more than 2,000 programs. The engine runs each three times; the tape differentiates the run that was not
folded, NumPy gives the values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unspool as us
from tests.engine.test_folding import NEVER, folding

# When pieces are folded: while they are evaluated (those that keep nothing for derivatives), or at the next evaluation.
AT_ONCE, SOON = 0, 1

# Results beyond this are left out by the program: they would make the comparison one of rounding errors.
LARGEST = 30.0

# Programs of at most so many steps are differentiated twice.
SHORT = 6

REAL_LEAVES = (
    np.array([0.5, -1.25, 2.0]),
    np.array([[1.0, 0.25, -0.5], [0.75, -1.0, 0.5], [0.25, 1.5, 1.0]]),
    np.array(0.75),
)
COMPLEX_LEAVES = (
    np.array([0.5 + 0.25j, -1.25j, 1.5 - 0.5j]),
    np.array([[1.0, 0.25j, -0.5], [0.75, -1.0 + 0.5j, 0.5], [0.25, 1.5, 1.0j]]),
    np.array(0.75),
)

# What is done with the result of a step beside going on with it.
ACTIONS = ["nothing", "nothing", "look", "branch", "hold", "drop"]

# How often a body runs. Derivatives of five steps can be placed as one chain, those of three are not.
TIMES = st.sampled_from([1, 2, 3, 5])


class Step(NamedTuple):
    """One step of a body: an operation, which values it reads, and what is done with the result."""

    name: str
    first: int
    second: int
    action: str


# --- operations: each on arrays and on tensors alike -----------------------------------------------------------------


def matrix(xp: Any, a: Any) -> Any:
    """Return a matrix made from a value of any shape, with small entries."""
    return 0.3 * xp.tanh(a + xp.zeros((3, 3)))


def symmetric(xp: Any, a: Any) -> Any:
    """Return a Hermitian positive definite matrix with distinct eigenvalues."""
    m = matrix(xp, a)
    return np.diag([1.0, 2.5, 5.0]) + 0.5 * (m + xp.conj(m).T)


def fixed_at(a: Any, change: Callable[[Any], Any], update: Callable[[Any], Any]) -> Any:
    """Return an updated copy: by an index update of a tensor, or by writing into a copy of an array."""
    if not a.ndim:
        return a
    if isinstance(a, us.Tensor):
        return update(a)
    new = np.array(a)
    change(new)
    return new


def set_row(xp: Any, a: Any, b: Any) -> Any:
    value = xp.real(xp.mean(b))

    def change(new: Any) -> None:
        new[0] = value

    return fixed_at(a, change, lambda t: t.at[0].set(value))


def add_row(xp: Any, a: Any, b: Any) -> Any:
    value = xp.real(xp.mean(b))

    def change(new: Any) -> None:
        new[-1] += value

    return fixed_at(a, change, lambda t: t.at[-1].add(value))


def scale_rows(xp: Any, a: Any, b: Any) -> Any:
    value = xp.real(xp.tanh(xp.mean(b)))

    def change(new: Any) -> None:
        new[1:] *= value

    return fixed_at(a, change, lambda t: t.at[1:].multiply(value))


def guarded_root(xp: Any, a: Any, b: Any) -> Any:
    above = a - xp.min(a)
    return xp.where(above > 1e-3, xp.sqrt(above), above)


def matvec(xp: Any, a: Any, b: Any) -> Any:
    return a @ b if a.ndim and b.ndim else a * b


def outer(xp: Any, a: Any, b: Any) -> Any:
    return xp.einsum("i,j->ij", a, b) if a.ndim == b.ndim == 1 else a + b


def quadratic(xp: Any, a: Any, b: Any) -> Any:
    return xp.einsum("i,ij,j->", a, b, xp.conj(a)) if a.ndim == 1 and b.ndim == 2 else xp.conj(a) * b


def normalised(xp: Any, a: Any, b: Any) -> Any:
    return a / (1.0 + xp.linalg.norm(b))


def rank_two(xp: Any, a: Any, b: Any) -> Any:
    u, s, vh = xp.linalg.svd(np.diag([1.0, 2.5, 5.0]) + matrix(xp, a))
    return (u[:, :2] * s[:2]) @ vh[:2]


def eigenvectors(xp: Any, a: Any, b: Any) -> Any:
    w, v = xp.linalg.eigh(symmetric(xp, a))
    return (v * xp.exp(-w)) @ xp.conj(v).T


def top_weights(xp: Any, a: Any, b: Any) -> Any:
    v = xp.linalg.eigh(symmetric(xp, a))[1]
    return xp.real(v[:, 2] * xp.conj(v[:, 2]))


def triangular(xp: Any, a: Any, b: Any) -> Any:
    r = xp.linalg.qr(2.0 * np.eye(3) + matrix(xp, a))[1]
    return xp.real(r * xp.conj(r))


def solved(xp: Any, a: Any, b: Any) -> Any:
    return xp.linalg.solve(2.0 * np.eye(3) + matrix(xp, a), b if b.ndim == 1 else matrix(xp, b))


def logdet(xp: Any, a: Any, b: Any) -> Any:
    return b * xp.linalg.slogdet(2.0 * np.eye(3) + matrix(xp, a))[1]


Operation = Callable[[Any, Any, Any], Any]

ELEMENTWISE: dict[str, Operation] = {
    "sin": lambda xp, a, b: xp.sin(a),
    "tanh": lambda xp, a, b: xp.tanh(a),
    "exp": lambda xp, a, b: xp.exp(-xp.tanh(a)),
    "square": lambda xp, a, b: 0.5 * xp.square(a),
    "negative": lambda xp, a, b: -a,
    "half": lambda xp, a, b: 0.5 * a,
    "add": lambda xp, a, b: a + b,
    "subtract": lambda xp, a, b: a - b,
    "multiply": lambda xp, a, b: a * b,
    "divide": lambda xp, a, b: a / (1.5 + xp.square(xp.tanh(b))),
    "power": lambda xp, a, b: xp.square(a) ** 1.5 if a.dtype.kind == "f" else a**3,
}
MASKED: dict[str, Operation] = {
    "maximum": lambda xp, a, b: xp.maximum(a, b),
    "minimum": lambda xp, a, b: xp.minimum(a, 0.5),
    "where": lambda xp, a, b: xp.where(a > b, a, 0.5 * (a + b)),
    "guarded log": lambda xp, a, b: xp.where(a > 0, xp.log(a), 0.1 * a),
    "guarded root": guarded_root,
    "largest": lambda xp, a, b: b * xp.max(a),
    "clip": lambda xp, a, b: xp.clip(a, -0.8, 0.8),
    "abs": lambda xp, a, b: xp.abs(a),
    "sort": lambda xp, a, b: xp.sort(a, axis=-1) if a.ndim else a,
}
LAYOUT: dict[str, Operation] = {
    "transpose": lambda xp, a, b: a.T,
    "flip": lambda xp, a, b: a[::-1] if a.ndim else a,
    "row": lambda xp, a, b: a[1] if a.ndim else a,
    "picked": lambda xp, a, b: a[np.array([2, 0, 2])] if a.ndim else a,
    "cycle": lambda xp, a, b: xp.concatenate([a[1:], a[:1]]) if a.ndim else a,
    "stack": lambda xp, a, b: xp.stack([a, a, 0.5 * a]) if a.ndim == 1 else a,
    "diagonal": lambda xp, a, b: xp.diagonal(a) if a.ndim == 2 else a,
    "triangle": lambda xp, a, b: xp.tril(a) if a.ndim == 2 else a,
    "reshape": lambda xp, a, b: xp.reshape(xp.reshape(a, (-1,))[::-1], a.shape),
    "set": set_row,
    "add at": add_row,
    "scale at": scale_rows,
}
REDUCTIONS: dict[str, Operation] = {
    "sum": lambda xp, a, b: xp.sum(a, axis=-1) if a.ndim else a,
    "mean": lambda xp, a, b: xp.mean(a) * b,
    "running": lambda xp, a, b: xp.cumsum(a, axis=0) if a.ndim else a,
    "matvec": matvec,
    "outer": outer,
    "quadratic": quadratic,
    "normalised": normalised,
}
LINALG: dict[str, Operation] = {
    "solve": solved,
    "inverse": lambda xp, a, b: xp.linalg.inv(symmetric(xp, a)) * 2.0,
    "logdet": logdet,
    "singular values": lambda xp, a, b: xp.linalg.svd(symmetric(xp, a))[1],
    "rank two": rank_two,
    "eigenvectors": eigenvectors,
    "top weights": top_weights,
    "qr": triangular,
    "cholesky": lambda xp, a, b: xp.linalg.cholesky(symmetric(xp, a)),
}
COMPLEX: dict[str, Operation] = {
    "phase": lambda xp, a, b: a * xp.exp(1j * xp.tanh(xp.real(b))),
    "conj": lambda xp, a, b: xp.conj(a),
    "real": lambda xp, a, b: xp.real(a),
    "imag": lambda xp, a, b: xp.imag(a) + 0.5 * b,
    "modulus": lambda xp, a, b: xp.abs(a + 3.0) * b,
    "turn": lambda xp, a, b: a * (0.5 + 0.5j),  # in this order: a Python number first makes a Python number
    "over modulus": lambda xp, a, b: a / (2.0 + xp.abs(b) ** 2),
}
EVERY_ONE = {**ELEMENTWISE, **MASKED, **LAYOUT, **REDUCTIONS, **LINALG, **COMPLEX}

SMOOTH = [*ELEMENTWISE, *REDUCTIONS]


class Kind(NamedTuple):
    """A kind of programs: their operations, their leaves, and how many there are."""

    operations: list[str]
    leaves: tuple[Any, ...]
    programs: int


KINDS = {
    "smooth": Kind(SMOOTH, REAL_LEAVES, 420),
    "masked": Kind([*MASKED, *MASKED, *SMOOTH], REAL_LEAVES, 420),
    "layout": Kind([*LAYOUT, *SMOOTH], REAL_LEAVES, 420),
    "complex": Kind([*COMPLEX, "add", "multiply", "square", *REDUCTIONS, *LAYOUT], COMPLEX_LEAVES, 420),
    "linalg": Kind([*LINALG, "matvec", "add", "tanh", "row"], REAL_LEAVES, 150),
}


def program_of(kind: str) -> st.SearchStrategy[tuple[list[Step], int]]:
    """Draw a body of a few steps and how often it runs. Most steps read the one before, most bodies end with a look."""
    name, operand = st.sampled_from(KINDS[kind].operations), st.sampled_from([3, 0, 1, 2, 3, 3, 4, 5])
    step = st.builds(Step, name, operand, operand, st.sampled_from(ACTIONS))
    last = st.builds(Step, name, operand, operand, st.sampled_from(["look", "look", "branch", "nothing"]))
    return st.tuples(st.builds(lambda steps, end: [*steps, end], st.lists(step, max_size=3), last), TIMES)


# --- running programs ------------------------------------------------------------------------------------------------


class Reference:
    """A program run by NumPy: the value of each step, and which way each branch went."""

    def __init__(self, steps: list[Step], times: int, leaves: Sequence[Any]) -> None:
        self.values: list[Any] = []
        self.is_kept: list[bool] = []
        with np.errstate(all="ignore"):
            self.loss = float(_run(np, steps, times, list(leaves), self._note))

    def _note(self, position: int, action: str, value: Any) -> Any:
        if action == "branch":
            value = 0.5 * value if np.mean(value.real) > 0.1 else np.sin(value)
        value = np.asarray(value)
        self.values.append(value)
        self.is_kept.append(bool(np.all(np.isfinite(value)) and np.max(np.abs(value)) < LARGEST))
        return value if self.is_kept[-1] else None


def _run(xp: Any, steps: list[Step], times: int, leaves: list[Any], note: Callable[[int, str, Any], Any]) -> Any:
    """Run a program; ``note`` sees each result and returns what to go on with, or None to leave it out."""
    state, *constants = leaves
    held: list[Any] = []
    position = 0
    for _ in range(times):
        recent = [state]
        for name, first, second, action in steps:
            near = [state, *constants, recent[-1], recent[0], held[-1] if held else recent[-1]]
            result = note(position, action, EVERY_ONE[name](xp, near[first], near[second]))
            position += 1
            if result is None:
                continue
            if action == "hold" and len(held) < 3:
                held.append(result)
            recent.append(result)
            del recent[: len(recent) - (1 if action == "drop" else 3)]
        state = 0.5 * state + 0.5 * (xp.mean(recent[-1], axis=0) if recent[-1].ndim == 2 else recent[-1])
    return sum(xp.mean(xp.real(o * xp.conj(o))) for o in [state, recent[0], *held])


def run(steps: list[Step], times: int, leaves: Sequence[Any], reference: Reference) -> Any:
    """Run a program on tensors, looking at values where it says so."""

    def note(position: int, action: str, tensor: Any) -> Any:
        if action == "branch":
            tensor = 0.5 * tensor if float(us.mean(us.real(tensor))) > 0.1 else us.sin(tensor)
        if not reference.is_kept[position]:
            return None
        if action == "look":
            close(tensor.eval(), reference.values[position], 1e-11)
        return tensor

    return _run(us, steps, times, list(leaves), note)


# --- comparing -------------------------------------------------------------------------------------------------------


def close(found: Any, expected: Any, tolerance: float) -> None:
    """Compare arrays up to rounding: a tolerance relative to the largest element."""
    expected = np.asarray(expected)
    scale = max(1.0, float(np.max(np.abs(expected))))
    if not np.max(np.abs(found - expected)) <= tolerance * scale:  # else a message would cost more than the program
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * scale)


def curved(gradients: Sequence[us.Tensor]) -> us.Tensor:
    """Return a scalar that depends on every element of a gradient, and not linearly."""
    return sum(us.sum(us.sin(us.real(g)) + us.sin(us.imag(g))) for g in gradients)  # type: ignore[return-value]


def by_tape(leaves: Sequence[us.Tensor], *losses: us.Tensor) -> list[Any]:
    """Return the gradients of some losses that the tape gives, one after the other."""
    tape = us.Tape([*losses, *leaves])
    found = [tape.backward_dense_all(loss, np.ones(())) for loss in losses]
    return [cotangents[tape.id_of(leaf)] for cotangents in found for leaf in leaves]


class Outcome:
    """The loss of a program and its derivatives, up to the second for programs that are short enough."""

    def __init__(self, steps: list[Step], times: int, arrays: Sequence[Any], reference: Reference, after: int) -> None:
        with folding(after) as engine:
            self.leaves = [us.tensor(array) for array in arrays]
            loss = run(steps, times, self.leaves, reference)
            self.value = loss.eval()
            if after == SOON:
                engine.queue.flush()
            gradients = loss.grad(self.leaves)
            self.derivatives = us.eval(gradients)
            self.losses = [loss]
            if len(steps) * times <= SHORT:
                self.losses.append(curved(gradients))
                self.derivatives += us.eval(self.losses[1].grad(self.leaves))


def check_program(steps: list[Step], times: int, arrays: Sequence[Any]) -> None:
    """Compare a program that is not folded with NumPy and the tape, then the folded ones with that."""
    reference = Reference(steps, times, arrays)
    plain = Outcome(steps, times, arrays, reference, NEVER)
    close(plain.value, reference.loss, 1e-11)
    for found, expected in zip(plain.derivatives, by_tape(plain.leaves, *plain.losses), strict=True):
        close(found, expected, 1e-9)
    for after in (AT_ONCE, SOON):
        folded = Outcome(steps, times, arrays, reference, after)
        np.testing.assert_array_equal(folded.value, plain.value)
        for found, expected in zip(folded.derivatives, plain.derivatives, strict=True):
            close(found, expected, 1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_loops_mean_the_same_whenever_they_are_folded(kind: str) -> None:
    _, leaves, programs = KINDS[kind]

    @settings(max_examples=programs)
    @given(program_of(kind))
    def check(program: tuple[list[Step], int]) -> None:
        check_program(*program, leaves)

    check()


@pytest.mark.parametrize("kind", KINDS)
def test_forward_mode_through_folded_loops_agrees_with_reverse_mode(kind: str) -> None:
    arrays = KINDS[kind].leaves
    tangents = [np.cos(np.arange(array.size).reshape(array.shape) + array) for array in arrays]

    @settings(max_examples=50)
    @given(program_of(kind))
    def check(program: tuple[list[Step], int]) -> None:
        reference = Reference(*program, arrays)

        def f(*leaves: us.Tensor) -> Any:
            return run(*program, leaves, reference)

        with folding(NEVER):
            leaves = [us.tensor(array) for array in arrays]
            slopes = f(*leaves).grad(leaves)
            along = us.tensor(0.0)
            for slope, tangent in zip(slopes, tangents, strict=True):
                along = along + us.sum(us.real(us.conj(slope) * tangent))
            expected, curvature = float(along), by_tape(leaves, along)
        with folding(SOON):
            leaves = [us.tensor(array) for array in arrays]
            value, pushed = us.jvp(f, leaves, tangents)
            close(float(value), reference.loss, 1e-11)
            close(float(pushed), expected, 1e-9)
            for found, wanted in zip(us.eval(us.hvp(f, leaves, tangents)), curvature, strict=True):
                close(found, wanted, 1e-9)

    check()
