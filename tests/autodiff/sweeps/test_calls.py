"""Derivatives of calls: derived once per structure, right for whatever arrives, and ordinary calls again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.closeness import close
from tests.engine.test_folding import NEVER, by_tape, flush, folding, is_folded
from unspool._engine.default import default_engine
from unspool._fragments.call import link_of
from unspool.errors import MissingRuleError

X = np.array([0.5, -1.25, 2.0])
A = np.array([[1.0, 0.25, -0.5], [0.75, -1.0, 0.5], [0.25, 1.5, 1.0]])


@pytest.fixture(autouse=True)
def _fold_soon() -> Iterator[None]:
    with folding(1):
        yield


def loop(body: Callable[[us.Tensor, us.Tensor], us.Tensor], a: us.Tensor, x: us.Tensor, steps: int) -> us.Tensor:
    """Apply a body several times, looking at a value each time, and fold what was evaluated."""
    for _ in range(steps):
        x = body(a, x)
        float(us.sum(x))
    flush()
    return x


def power_step(a: us.Tensor, x: us.Tensor) -> us.Tensor:
    y = a @ x
    return y / us.linalg.norm(y)


def contract_step(a: us.Tensor, x: us.Tensor) -> us.Tensor:
    return us.tanh(a @ x + 0.1) + 0.5 * us.sin(x)


# --- rules run once, however many steps there are --------------------------------------------------------------------


def counted_op() -> tuple[Any, list[str]]:
    """Return an op, x -> x², and a list that its rules write to when they are applied."""
    applied: list[str] = []

    def pull(ct: us.Tensor, out: us.Tensor, x: us.Tensor) -> us.Tensor:
        applied.append("vjp")
        return ct * 2.0 * x

    def push(t: us.Tensor, out: us.Tensor, x: us.Tensor) -> us.Tensor:
        applied.append("jvp")
        return t * 2.0 * x

    op = us.op("counted_square", kernel=np.square, vjp=(pull,), jvp=(push,), needs=("inputs",), replace=True)
    return op, applied


def step_with(square: Any) -> Callable[[us.Tensor, us.Tensor], us.Tensor]:
    """Return a step that applies an op."""

    def body(a: us.Tensor, x: us.Tensor) -> us.Tensor:
        result: us.Tensor = square(us.sin(x)) * a + 0.5 * x
        return result

    return body


@pytest.mark.parametrize("order", [1, 2])
def test_rule_applications_do_not_grow_with_the_number_of_steps(order: int) -> None:
    counts = []
    for steps in (12, 48):
        square, applied = counted_op()
        x = us.tensor(X)
        y = loop(step_with(square), us.tensor(0.4), x, steps)
        applied.clear()
        gradient = us.sum(y).grad(x)
        if order == 2:
            gradient = us.sum(gradient * gradient).grad(x)
        gradient.eval()
        counts.append(applied.count("vjp"))
    # The first steps ran node by node and may not be folded; the rest share one adjoint, or one of each order.
    assert max(counts) <= 4 * order, counts


def test_forward_rules_are_applied_once_per_structure_too() -> None:
    counts = []
    for steps in (12, 48):
        square, applied = counted_op()
        body = step_with(square)
        y, tangent = us.jvp(lambda t, b=body, n=steps: loop(b, us.tensor(0.4), t, n), (us.tensor(X),), (us.ones(3),))
        us.eval(y, tangent)
        counts.append(applied.count("jvp"))
    assert max(counts) <= 4, counts


def test_placements_grow_with_the_steps_and_derivations_do_not() -> None:
    derived, graphs = [], []
    for steps in (20, 20, 40, 80):  # the second time all steps are folded, the first one too
        a, x = us.tensor(A * 0.3), us.tensor(X)
        loss = us.sum(loop(contract_step, a, x, steps))
        loss.eval()
        flush()
        before = us.engine_stats()
        gradient = loss.grad(a)
        gradient.eval()
        after = us.engine_stats()
        derived.append(after.derivatives - before.derivatives)
        graphs.append(after.calls + after.chains - before.calls - before.chains)
        close(gradient, by_tape(loss, a), 1e-11)
    assert derived[2:] == [0, 0], derived
    assert graphs[3] - graphs[2] <= 40 + 4, graphs


def test_the_adjoint_is_kept_with_the_plan_and_shared_by_its_calls() -> None:
    x = us.tensor(X)
    ys = []
    y = x
    for _ in range(8):
        y = us.sin(y) * y
        y.eval()
        ys.append(y)
    flush()
    plans = {link_of(y)[0].plan.id for y in ys if is_folded(y)}
    assert len(plans) == 1
    us.sum(y).grad(x).eval()
    before = us.engine_stats().derivatives
    us.sum(ys[5]).grad(ys[2]).eval()
    us.sum(ys[6]).grad(x).eval()
    assert us.engine_stats().derivatives == before


# --- what arrives ----------------------------------------------------------------------------------------------------


def test_absent_elements_stay_absent_across_calls() -> None:
    start, factor = np.array([0.0, 1.5, 4.0]), 1.3

    def run(xp: Any, x: Any, a: Any) -> Any:
        for _ in range(6):
            root = xp.sqrt(x * a)
            float(root[1])
            x = xp.concatenate([x[:1], root[1:] * a])  # the root at zero, whose slope is infinite, is left out
            float(x[1])
        return xp.sum(x * x) + xp.sum(x)

    for _ in range(3):
        x, a = us.tensor(start), us.tensor(factor)
        loss = run(us, x, a)
        flush()
    close(loss, run(np, start, factor))
    slope = loss.grad(x).eval()
    assert np.all(np.isfinite(slope))
    step = 1e-6
    for i, expected in ((0, 1.0), (1, None), (2, None)):
        shift = step * np.eye(3)[i]
        numeric = expected or (run(np, start + shift, factor) - run(np, start - shift, factor)) / (2 * step)
        close(slope[i], numeric, 1e-7)
    close(slope, by_tape(loss, x))
    curvature = us.sum(loss.grad(x)[1:]).grad(x).eval()
    assert np.all(np.isfinite(curvature))
    assert np.isfinite(float(us.jvp(lambda t: run(us, t, a), (x,), (us.tensor([0.0, 1.0, 1.0]),))[1]))


@pytest.mark.parametrize(
    "step",
    [
        lambda a, x: us.concat([x[:2], (us.max(us.log(x * a)) + x[2])[None]]),
        lambda a, x: us.where(x > 0, us.log(us.where(x > 0, x, 1.0)) + 2.0 * a, x),
        lambda a, x: us.where(x > 0, us.log(x) * a + 2.0, x),
        lambda a, x: us.concat([x[:1], us.sqrt(x)[1:] + a]),
        lambda a, x: x.at[1:].set(us.sqrt(x * a)[1:] + 0.5),
        lambda a, x: us.maximum(us.sqrt(x), 0.5) * a + x * 0.5,
    ],
    ids=["max of logs", "guarded log", "where of log", "slice of sqrt", "update", "maximum"],
)
def test_no_nan_comes_from_elements_that_were_not_chosen(step: Any) -> None:
    start = np.array([0.0, 1.5, 4.0])
    for _ in range(3):
        x, a = us.tensor(start), us.tensor(1.1)
        loss = us.sum(loop(step, a, x, 5))
    slopes = us.eval(loss.grad([a, x]))
    expected = [by_tape(loss, a), by_tape(loss, x)]
    for slope, wanted in zip(slopes, expected, strict=True):
        np.testing.assert_allclose(slope, wanted, rtol=1e-11)
    assert np.isfinite(slopes[0]) and np.all(np.isfinite(slopes[1][1:]))


def test_cotangents_arrive_at_several_outputs_of_a_call() -> None:
    def build(x: us.Tensor) -> tuple[list[us.Tensor], us.Tensor]:
        middle = []
        for _ in range(5):
            y = us.sin(x)
            z = y * x
            x = us.cos(z) + y
            middle += [y, z]
            x.eval()
        return middle, x

    for _ in range(3):
        x = us.tensor(X)
        middle, last = build(x)
        flush()
    assert all(is_folded(m) for m in middle)
    losses = [us.sum(last), us.sum(last) + us.sum(middle[2] * middle[5]), us.sum(middle[4]), us.sum(middle[3] * last)]
    for loss in losses:
        close(loss.grad(x), by_tape(loss, x))


def test_only_the_inputs_that_are_asked_for_are_differentiated() -> None:
    a, x = us.tensor(A * 0.4), us.tensor(X)
    loss = us.sum(loop(contract_step, a, x, 8))
    close(loss.grad(x), by_tape(loss, x))
    close(loss.grad(a), by_tape(loss, a))
    both = loss.grad([a, x])
    close(both[0], by_tape(loss, a))
    close(both[1], by_tape(loss, x))


def test_a_loop_that_does_not_depend_on_a_variable_is_not_connected_to_it() -> None:
    other = us.tensor(X)
    loss = us.sum(loop(contract_step, us.tensor(A * 0.4), us.tensor(X), 8))
    close(loss.grad(other, unconnected="zeros"), np.zeros(3))
    with pytest.raises(us.errors.NotConnectedError):
        loss.grad(other)


def test_a_complex_loop_has_the_gradient_of_its_real_and_imaginary_part() -> None:
    start = X + 1j * X[::-1]

    def run(xp: Any, z: Any, look: bool) -> Any:
        for _ in range(6):
            z = xp.sin(z) * 0.5 + xp.conj(z) * (0.25j)
            if look:
                complex(z[0])
        return xp.sum(xp.real(z * xp.conj(z)))

    for _ in range(3):
        z = us.tensor(start)
        loss = run(us, z, True)
        flush()
    gradient = loss.grad(z).eval()
    step = 1e-6
    for i in range(3):
        for direction in (1.0, 1j):
            shift = step * direction * np.eye(3)[i]
            numeric = (run(np, start + shift, False) - run(np, start - shift, False)) / (2 * step)
            close((np.conj(gradient[i]) * direction).real, numeric, 1e-8)


# --- functions with rules of their own -------------------------------------------------------------------------------


def test_stop_gradient_inside_folded_steps_stops_it() -> None:
    def body(a: us.Tensor, x: us.Tensor) -> Any:
        return us.sin(x) * a + us.stop_gradient(us.cos(x) * a) * 0.5

    for _ in range(3):
        a, x = us.tensor(0.8), us.tensor(X)
        loss = us.sum(loop(body, a, x, 6))
    slope, value = np.ones(3), X
    for _ in range(6):
        slope, value = slope * 0.8 * np.cos(value), np.sin(value) * 0.8 + np.cos(value) * 0.4
    close(loss.grad(x), slope)
    close(loss.grad(a), by_tape(loss, a))


def test_custom_rules_are_used_inside_folded_steps() -> None:
    @us.custom_vjp
    def twisted(x: us.Tensor) -> us.Tensor:
        return us.sin(x)

    twisted.defvjp(lambda x: (us.sin(x), x), lambda x, ct: (ct * 3.0 * us.cos(x),))  # three times the slope
    for _ in range(3):
        x = us.tensor(X)
        loss = us.sum(loop(lambda a, t: twisted(t) * a, us.tensor(0.5), x, 6))
    slope, value = np.ones(3), X
    for _ in range(6):
        slope, value = slope * 1.5 * np.cos(value), np.sin(value) * 0.5
    close(loss.grad(x), slope)


def test_custom_tangents_are_used_inside_folded_steps() -> None:
    @us.custom_jvp
    def twisted(x: us.Tensor) -> us.Tensor:
        return us.sin(x)

    twisted.defjvp(lambda primals, tangents: (us.sin(primals[0]), tangents[0] * 3.0 * us.cos(primals[0])))
    x = us.tensor(X)
    slope, value = np.ones(3), X
    for _ in range(6):
        slope, value = slope * 1.5 * np.cos(value), np.sin(value) * 0.5
    for _ in range(3):
        tangent = us.jvp(lambda t: loop(lambda a, u: twisted(u) * a, us.tensor(0.5), t, 6), (x,), (us.ones(3),))[1]
        close(tangent, slope)
        loss = us.sum(loop(lambda a, u: twisted(u) * a, us.tensor(0.5), x, 6))
        close(loss.grad(x), slope)


def test_ops_of_the_user_with_several_outputs_work_inside_folded_steps() -> None:
    halves = us.op(
        "folded_halves",
        kernel=lambda x: (x * 0.25, x * 0.75),
        infer=lambda x: [(x.shape, x.dtype), (x.shape, x.dtype)],
        vjp=(lambda ct, out, x: sum(c * f for c, f in zip(ct, (0.25, 0.75), strict=True) if c is not None),),
        needs=(),
        multi=True,
        replace=True,
    )

    def body(a: us.Tensor, x: us.Tensor) -> Any:
        small, large = halves(x)
        return us.sin(small) * a + large

    for _ in range(3):
        a, x = us.tensor(0.8), us.tensor(X)
        loss = us.sum(loop(body, a, x, 6))
    close(loss.grad(x), by_tape(loss, x))
    close(us.sum(loss.grad(x)).grad(a), by_tape(us.sum(loss.grad(x)), a))


def test_an_op_without_a_rule_inside_a_call_raises_and_names_the_line() -> None:
    blind = us.op("folded_blind", kernel=np.sin, replace=True)
    x = us.tensor(X)
    y = loop(lambda a, t: blind(t) * a, us.tensor(0.5), x, 6)
    with pytest.raises(MissingRuleError, match=r"user:folded_blind.*test_calls\.py:\d+"):
        us.sum(y).grad(x)


# --- transforms ------------------------------------------------------------------------------------------------------


def test_a_gradient_of_a_function_that_loops_and_looks() -> None:
    def f(x: us.Tensor) -> us.Tensor:
        for _ in range(8):
            x = us.sin(x) * 0.75 + 0.1 * x * x
            if float(us.sum(x)) > 100:
                break
        return us.sum(x)

    slope, value = np.ones(3), X
    for _ in range(8):
        slope, value = slope * (0.75 * np.cos(value) + 0.2 * value), np.sin(value) * 0.75 + 0.1 * value * value
    for _ in range(3):
        close(us.grad(f)(X), slope)
    second = us.grad(lambda x: us.sum(us.grad(f)(x)))(X).eval()
    direct = us.hvp(f, (us.tensor(X),), (us.ones(3),)).eval()
    close(second, direct, 1e-11)
    step = 1e-5
    with folding(NEVER):
        numeric = (us.grad(f)(X + step).eval() - us.grad(f)(X - step).eval()) / (2 * step)
    close(second, numeric, 1e-7)


def test_a_loop_of_gradient_steps_is_differentiated_through_its_gradients() -> None:
    def trained(rate: us.Tensor, x: us.Tensor) -> us.Tensor:
        for _ in range(8):
            x = x - rate * us.grad(lambda t: us.sum(t**4) / 4 + us.sum(t * t))(x)
            float(x[0])
        return us.sum(x * x)

    for _ in range(3):
        rate, x = us.tensor(0.05), us.tensor(X)
        loss = trained(rate, x)
        flush()
    value, by_x, by_rate = X, np.ones(3), np.zeros(3)
    for _ in range(8):
        slope, curvature = value**3 + 2 * value, 3 * value**2 + 2
        by_rate = by_rate * (1 - 0.05 * curvature) - slope
        by_x = by_x * (1 - 0.05 * curvature)
        value = value - 0.05 * slope
    close(loss, np.sum(value * value))
    close(loss.grad(x), 2 * value * by_x, 1e-11)
    close(loss.grad(rate), np.sum(2 * value * by_rate), 1e-11)


def test_an_argument_passed_twice_has_two_derivatives() -> None:
    def f(x: us.Tensor, y: us.Tensor) -> us.Tensor:
        for _ in range(6):
            x = us.sin(x) * 0.5 + y
            float(x[0])
        return us.sum(x)

    x = us.tensor(X)
    for _ in range(3):
        by_x, by_y = us.eval(us.grad(f, argnums=(0, 1))(x, x))
    slope, direct, value = np.ones(3), np.zeros(3), X
    for _ in range(6):
        slope, direct, value = slope * 0.5 * np.cos(value), direct * 0.5 * np.cos(value) + 1, np.sin(value) * 0.5 + X
    close(by_x, slope)
    close(by_y, direct)


@pytest.mark.parametrize("body", [power_step, contract_step])
def test_forward_mode_hessian_products_and_the_tape_agree_on_folded_loops(body: Any) -> None:
    tangent = np.cos(A)

    def f(a: us.Tensor) -> us.Tensor:
        x = loop(body, a, us.tensor(X), 8)
        return x @ a @ x

    for _ in range(2):
        a = us.tensor(A + 2 * np.eye(3))
        loss = f(a)
        along = us.sum(loss.grad(a) * tangent)
        close(us.jvp(f, (a,), (tangent,))[1], along.eval(), 1e-10)
        close(us.hvp(f, (a,), (tangent,)), by_tape(along, a), 1e-9)
        close(along.grad(a), by_tape(along, a), 1e-9)


def test_third_derivatives_of_a_folded_loop() -> None:
    for _ in range(2):
        x = us.tensor(0.3)
        y = x
        for _ in range(6):
            y = y * y * 0.5 + y
            float(y)
        flush()
    polynomial = np.polynomial.Polynomial([0.0, 1.0])
    for _ in range(6):
        polynomial = polynomial * polynomial * 0.5 + polynomial
    derivative: us.Tensor = y
    for order in range(1, 4):
        derivative = derivative.grad(x)
        close(derivative, polynomial.deriv(order)(0.3), 1e-11)


def test_jacobians_of_a_folded_loop_agree_in_both_modes() -> None:
    def f(x: us.Tensor) -> us.Tensor:
        return loop(contract_step, us.tensor(A * 0.4), x, 6)

    reverse, forward = us.jacrev(f)(us.tensor(X)).eval(), us.jacfwd(f)(us.tensor(X)).eval()
    close(reverse, forward, 1e-12)
    step = 1e-6
    numeric = [(f(us.tensor(X + s)).eval() - f(us.tensor(X - s)).eval()) / (2 * step) for s in step * np.eye(3)]
    close(reverse, np.array(numeric).T, 1e-8)


def test_gradients_survive_an_engine_that_forgot_everything() -> None:
    a, x = us.tensor(A * 0.4), us.tensor(X)
    loss = us.sum(loop(contract_step, a, x, 8))
    gradient = loss.grad(a)
    default_engine().clear()
    close(gradient, by_tape(loss, a))
    default_engine().clear()
    close(us.sum(gradient * gradient).grad(x), by_tape(us.sum(gradient * gradient), x), 1e-11)


def test_second_derivatives_after_the_first_were_read_meet_constants_inside_calls() -> None:
    step = us.fragment(lambda a, b, z: (0.6 * a + 0.4 * us.tanh(b), b, 0.5 * z**2))
    variables = tuple(us.tensor(value) for value in (0.3, 0.4, 0.5))
    a, b, z = variables
    for _ in range(6):
        a, b, z = step(a, b, z)
    loss = a + b + z
    gradient = loss.grad(variables)
    loss.eval()
    us.eval(gradient)
    # The loss is 0.6⁶ a + (1 - 0.6⁶) tanh b + b + 2 (z/2)⁶⁴.
    share, tanh = 1 - 0.6**6, np.tanh(0.4)
    for found, expected in zip(gradient, (0.6**6, share * (1 - tanh**2) + 1, 64 * 0.25**63), strict=True):
        close(found, expected)
    for found, expected in zip(gradient[1].grad(variables), (0.0, -2 * share * tanh * (1 - tanh**2), 0.0), strict=True):
        close(found, expected)


@pytest.mark.parametrize("is_read", [False, True])
def test_a_sum_that_is_not_added_up_may_have_masked_terms(is_read: bool) -> None:
    start = np.array([0.2, -0.4, 0.1])

    def loss_of(matrix: Any, state: Any, step: Callable[[Any, Any], Any]) -> Any:
        for _ in range(3):
            state = step(matrix, state)
        return state.sum()

    def slope(matrix: Any, position: tuple[int, int], h: float = 1e-30) -> float:
        moved = matrix.astype(complex)
        moved[position] += 1j * h
        return float(loss_of(moved, start, lambda a, w: np.tanh(a @ w + a[0])).imag / h)

    def slopes(matrix: Any) -> Any:
        return np.array([[slope(matrix, (i, j)) for j in range(3)] for i in range(3)])

    a, w = us.tensor(A), us.tensor(start)
    loss = loss_of(a, w, us.fragment(lambda a, w: us.tanh(a @ w + a[0])))
    gradient = loss.grad(a)
    if is_read:
        us.eval([loss, gradient])
    close(gradient, slopes(A))
    h = 1e-4  # differences of fourth order
    near, far = (slopes(A + k * h) - slopes(A - k * h) for k in (1, 2))
    close(us.sum(gradient).grad(a), (8 * near - far) / (12 * h), 1e-8)
