"""Products that are added to a running sum as they are computed: which they are, and what loops make of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool._engine.backends.fused_sums import LONGEST_AXIS, spread_total
from unspool._engine.plan import Plan, make_plan
from unspool._engine.planning import Bound
from unspool._fragments.fragment import capture

ROWS, COLUMNS = 60, 50


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def matrix(*shape: int) -> us.Tensor:
    return us.tensor(rng().standard_normal(shape))


def plan_of(inputs: Sequence[us.Tensor], outputs: Sequence[us.Tensor]) -> Plan:
    captured = capture(inputs, outputs)
    return make_plan(captured.fragment, tuple(tuple(map(int, node.shape)) for node in captured.inputs))


# --- of a total that a loop adds up ----------------------------------------------------------------------------------


def spread(inputs: Sequence[us.Tensor], *outputs: us.Tensor) -> list[tuple[str, tuple[int, ...]]] | None:
    """What is added to the sum of the first output, in order: by which step, and from which slots."""
    plan = plan_of(inputs, outputs)
    steps = spread_total(plan.instructions, Bound(plan.shapes, plan.dtypes, plan.params), plan.outputs, plan.outputs[0])
    return None if steps is None else [(s.op.name, s.operands[1:]) for s in steps if s.slot == plan.outputs[0]]


def test_each_product_of_a_total_is_added_by_itself() -> None:
    a, b, c, d = matrix(ROWS, 3), matrix(3, COLUMNS), matrix(COLUMNS, 2), matrix(ROWS, 2)
    assert spread([a, b], a @ b) == [("add_product", (0, 1))]
    assert spread([a, b, c, d], a @ b + d @ c.mT) == [("add_product", (0, 1)), ("add_product", (3, 2))]


def test_so_is_what_else_there_is() -> None:
    a, b, c = matrix(ROWS, 3), matrix(3, COLUMNS), matrix(ROWS, COLUMNS)
    found = spread([a, b, c], us.tanh(c) + (a @ b + c))
    assert found is not None
    assert sorted(op for op, _ in found) == ["add", "add", "add_product"]
    assert ("add", (2,)) in found


@pytest.mark.parametrize(("length", "expected"), [(LONGEST_AXIS, True), (LONGEST_AXIS + 1, False)])
def test_a_product_over_a_long_axis_stays_apart(length: int, expected: bool) -> None:
    a, b, c = matrix(ROWS, length), matrix(length, COLUMNS), matrix(ROWS, COLUMNS)
    assert (spread([a, b, c], c + a @ b) is not None) == expected


@pytest.mark.parametrize(
    ("why", "make"),
    [
        ("the product is one of a matrix with itself", lambda a, b, c: (us.tanh(c @ c.mT) + a @ a.mT,)),
        ("it sums nothing", lambda a, b, c: (c + a[:, :1] * b[:1],)),
        ("it is a product of vectors", lambda a, b, c: (c + us.einsum("i,j->ij", a[:, 0], b[0]),)),
        (
            "it is a product of stacks",
            lambda a, b, c: (c + us.einsum("ijk,ikl->jl", us.stack([a, -a]), us.stack([b, b])),),
        ),
        ("it is of another type", lambda a, b, c: (c + us.astype(a, "float32") @ us.astype(b, "float32"),)),
        ("no term is a product", lambda a, b, c: (us.tanh(c) + c,)),
        ("the product is read elsewhere", lambda a, b, c: (c + (p := a @ b), us.sum(p))),
        ("the total is read elsewhere", lambda a, b, c: (t := c + a @ b, us.sum(t))),
        ("the total is another output, too", lambda a, b, c: (t := c + a @ b, t)),
        ("a term is counted twice", lambda a, b, c: ((p := a @ b) + p,)),
    ],
)
def test_a_total_is_not_spread_if(why: str, make: Callable[..., tuple[us.Tensor, ...]]) -> None:
    a, b, c = matrix(ROWS, 3), matrix(3, COLUMNS), matrix(ROWS, COLUMNS)
    assert spread([a, b, c], *make(a, b, c)) is None


# --- in a loop -------------------------------------------------------------------------------------------------------


def gradient(start: np.ndarray, steps: int) -> np.ndarray:
    """The gradient, in the matrix, of a loop whose every step multiplies it with a thin one."""
    A = us.tensor(start)
    y = us.tensor(rng().standard_normal((start.shape[1], 4)))
    for _ in range(steps):
        y = us.tanh(A.mT @ us.sin(A @ y))
        float(us.sum(y))
    return np.array(us.sum(y * y).grad(A))


def test_the_gradient_of_a_loop_has_the_same_bits_whenever_and_however_it_runs() -> None:
    start = rng().standard_normal((ROWS, COLUMNS)) / 8
    first = gradient(start, 80)
    assert first.tobytes() == gradient(start, 80).tobytes()
    with us.memory(400_000):
        assert first.tobytes() == gradient(start, 80).tobytes()


def test_the_gradient_of_a_loop_agrees_with_differences() -> None:
    start = rng().standard_normal((ROWS, COLUMNS)) / 8
    direction = rng().standard_normal(start.shape)

    def loss(A: np.ndarray) -> float:
        y = rng().standard_normal((COLUMNS, 4))
        for _ in range(12):
            y = np.tanh(A.T @ np.sin(A @ y))
        return float(np.sum(y * y))

    h = 1e-6
    slope = (loss(start + h * direction) - loss(start - h * direction)) / (2 * h)
    np.testing.assert_allclose(np.vdot(gradient(start, 12), direction), slope, rtol=1e-7)


def iterated_gradient(
    start: np.ndarray, adjoint: Any, step: Callable[[us.Tensor, us.Tensor], us.Tensor], steps: int
) -> np.ndarray:
    A = us.tensor(start)
    y = us.tensor(rng().standard_normal((start.shape[1], 4)))
    y, _ = us.iterate(lambda y: step(A, y), y, max_steps=steps, adjoint=adjoint)
    return np.array(us.sum(y * y).grad(A))


STEPS_OF_LOOPS: dict[str, Callable[[us.Tensor, us.Tensor], us.Tensor]] = {
    "products alone": lambda A, y: us.tanh(A.mT @ us.sin(A @ y)),
    "other terms": lambda A, y: us.tanh((A + 0.1 * us.sin(A)).mT @ us.sin(A @ y)),
}


@pytest.mark.parametrize("step", STEPS_OF_LOOPS)
def test_an_iteration_has_the_gradient_of_the_loop(step: str) -> None:
    start = rng().standard_normal((ROWS, COLUMNS)) / 8
    got = iterated_gradient(start, us.Unrolled(), STEPS_OF_LOOPS[step], 20)
    A = us.tensor(start)
    y = us.tensor(rng().standard_normal((COLUMNS, 4)))
    for _ in range(20):
        y = STEPS_OF_LOOPS[step](A, y)
    np.testing.assert_allclose(got, np.array(us.sum(y * y).grad(A)), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("step", STEPS_OF_LOOPS)
@pytest.mark.parametrize("slots", [1, 4])
def test_the_gradient_of_an_iteration_has_the_same_bits_however_much_is_kept(step: str, slots: int) -> None:
    start = rng().standard_normal((ROWS, COLUMNS)) / 8
    whole = iterated_gradient(start, us.Unrolled(), STEPS_OF_LOOPS[step], 30)
    assert whole.tobytes() == iterated_gradient(start, us.Unrolled(), STEPS_OF_LOOPS[step], 30).tobytes()
    parts = iterated_gradient(start, us.Checkpointed(slots=slots), STEPS_OF_LOOPS[step], 30)
    assert whole.tobytes() == parts.tobytes()
