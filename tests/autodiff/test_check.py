"""check_grad passes what is right and names what is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool._autodiff.differences import derivative
from unspool.errors import ArgumentError, DTypeError, GradientCheckError

X = np.array([0.3, 1.2, 2.0])
Z = np.array([0.3 + 1j, -1.2 - 0.4j])


def squared(**rules: Any) -> Any:
    return us.op("squared", kernel=lambda x: x * x, replace=True, **rules)


RIGHT_VJP = (lambda ct, out, x: ct * 2.0 * us.conj(x),)
RIGHT_JVP = (lambda t, out, x: t * 2.0 * x,)


@pytest.mark.parametrize(
    ("f", "args"),
    [
        (us.sin, (X,)),
        (us.sin, (np.float64(0.5),)),
        (us.sin, (0.5,)),
        (us.sin, (np.zeros((0, 3)),)),
        (us.sin, (np.full((1, 1), 0.5),)),
        (us.sin, (np.linspace(0.1, 1.0, 60),)),
        (us.exp, (Z,)),
        (lambda z: z * us.conj(z), (Z,)),
        (lambda z: us.real(z * us.conj(z)), (np.linspace(0.1, 1.0, 20) * (1 + 2j),)),
        (us.sin, (X.astype("float32"),)),
        (us.exp, (Z.astype("complex64"),)),
        (lambda x: us.sin(us.astype(x, "float32")), (X,)),
        (lambda p: {"a": p["x"] * p["y"], "b": [p["n"], 3.0]}, ({"x": X, "y": us.tensor(X), "n": 3},)),
        (lambda x, n: x * n, (X, 3)),
        (lambda x: us.sum(x) * 0.0 + 1.0, (X,)),
        (lambda x, y: us.sin(y), (X, X)),
        (us.log, (np.float64(1e-3),)),
        (lambda x: 1.0 / x, (np.array([1e-2, 1e4]),)),
        (lambda x: x * 1e6 + 1e9, (X,)),
    ],
)
def test_right_derivatives_pass(f: Any, args: Any) -> None:
    report = us.check_grad(f, *args)
    assert report.ok and bool(report)


@pytest.mark.parametrize("modes", [("reverse",), ("forward",)])
def test_one_mode_can_be_checked_alone(modes: Any) -> None:
    report = us.check_grad(lambda x: us.sin(x) * x, X, modes=modes, order=3)
    assert {c.mode for c in report.comparisons} == set(modes)
    assert {c.order for c in report.comparisons} == {1, 2, 3}


def test_the_report_is_a_table_of_orders_and_modes() -> None:
    report = us.check_grad(us.sin, X)
    rows = {(c.order, c.mode) for c in report.comparisons}
    assert {(k, mode) for k in (1, 2) for mode in ("reverse", "forward", "forward = reverse")} < rows
    assert report.max_abs_error < 1e-9
    text = str(report)
    assert text.splitlines()[0].split() == ["order", "derivative", "abs", "error", "rel", "error", "worst", "entry"]
    assert len(text.splitlines()) == 1 + len(report.comparisons)
    assert str(report.comparisons[0]).startswith("order 1, reverse: right to")


@pytest.mark.parametrize("at", [X, np.linspace(0.1, 1.0, 60), X.astype("float32")])
@pytest.mark.parametrize(
    ("rules", "mode"),
    [
        ({"vjp": (lambda ct, out, x: ct * 2.01 * x,), "jvp": RIGHT_JVP}, "reverse"),
        ({"vjp": RIGHT_VJP, "jvp": (lambda t, out, x: t * 2.01 * x,)}, "forward"),
        ({"vjp": (lambda ct, out, x: -ct * 2.0 * x,)}, "reverse"),
        ({"vjp": (lambda ct, out, x: ct * 0.0,), "jvp": RIGHT_JVP}, "reverse"),
        ({"vjp": (None,), "jvp": RIGHT_JVP}, "reverse"),
    ],
    ids=["wrong vjp", "wrong jvp", "wrong sign", "zero", "absent"],
)
def test_a_wrong_first_derivative_is_caught(rules: Any, mode: str, at: Any) -> None:
    with pytest.raises(GradientCheckError, match=f"order 1, {mode}: the derivative at"):
        us.check_grad(squared(**rules), at)


def test_a_missing_conjugate_is_caught() -> None:
    wrong = squared(vjp=(lambda ct, out, x: ct * 2.0 * x,), jvp=RIGHT_JVP)
    us.check_grad(wrong, X)
    with pytest.raises(GradientCheckError, match="order 1, reverse"):
        us.check_grad(wrong, Z)
    with pytest.raises(GradientCheckError, match="order 1, reverse"):
        us.check_grad(wrong, Z, modes=("reverse",))


def test_a_wrong_second_derivative_is_caught() -> None:
    wrong = squared(vjp=(lambda ct, out, x: ct * 2.0 * us.stop_gradient(x),), jvp=RIGHT_JVP)
    us.check_grad(wrong, X, order=1)
    with pytest.raises(GradientCheckError, match="order 2, reverse"):
        us.check_grad(wrong, X)


def test_a_wrong_second_derivative_of_the_forward_rule_is_caught() -> None:
    wrong = squared(vjp=RIGHT_VJP, jvp=(lambda t, out, x: t * 2.0 * us.stop_gradient(x),))
    us.check_grad(wrong, X, order=1)
    with pytest.raises(GradientCheckError, match="order 2, of forward rules"):
        us.check_grad(wrong, X)
    with pytest.raises(GradientCheckError, match="order 2, forward"):
        us.check_grad(wrong, X, modes=("forward",))


def test_a_rule_that_is_wrong_by_little_is_caught() -> None:
    with pytest.raises(GradientCheckError):
        us.check_grad(squared(vjp=(lambda ct, out, x: ct * 2.00001 * x,)), X)


def test_modes_that_differ_by_rounding_errors_too_large_are_caught() -> None:
    slightly = squared(vjp=(lambda ct, out, x: ct * (2.0 + 2e-8) * x,), jvp=RIGHT_JVP)
    with pytest.raises(GradientCheckError, match="forward = reverse"):
        us.check_grad(slightly, X)


def test_history_lost_on_the_way_is_caught() -> None:
    with pytest.raises(GradientCheckError, match="order 1"):
        us.check_grad(lambda x: x * us.constant(x.eval()), X)


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("reverse", r"order 1, reverse: the derivative at args\[1\]\['w'\]\[1\] is .*, expected "),
        ("forward", r"order 1, forward: the derivative at out\[1\] along args\[1\]\['w'\]\[1\] is 3.*, expected 6"),
    ],
)
def test_the_worst_entry_is_named_with_both_values(mode: str, message: str) -> None:
    right, half = np.array([6.0, 6.0]), np.array([6.0, 3.0])
    wrong = us.op(
        "six_times",
        kernel=lambda x: x * right,
        vjp=(lambda ct, out, x: ct * half,),
        jvp=(lambda t, out, x: t * half,),
        replace=True,
    )
    with pytest.raises(GradientCheckError, match=message):
        us.check_grad(lambda x, p: wrong(p["w"]) + x, 1.0, {"w": np.array([1.0, 2.0])}, modes=(mode,))


def test_the_error_shows_the_table() -> None:
    with pytest.raises(GradientCheckError, match="<-- wrong"):
        us.check_grad(squared(vjp=(lambda ct, out, x: ct,)), X)


def test_a_kink_is_reported_as_such_or_as_wrong() -> None:
    jump = us.op("jump", kernel=lambda x: np.where(x > 0, 1.0, 0.0), vjp=(lambda ct, out, x: ct * 0.0,), replace=True)
    with pytest.raises(GradientCheckError, match="order 1"):
        us.check_grad(jump, 0.0)


def test_tolerances_can_be_given() -> None:
    slightly = squared(vjp=(lambda ct, out, x: ct * 2.001 * x,))
    with pytest.raises(GradientCheckError):
        us.check_grad(slightly, X, modes=("reverse",))
    assert us.check_grad(slightly, X, modes=("reverse",), rtol=1e-2).ok
    assert us.check_grad(slightly, X, modes=("reverse",), atol=1e-1, order=1).ok


def test_there_must_be_something_to_check() -> None:
    with pytest.raises(DTypeError, match="arguments to move"):
        us.check_grad(us.sin, 3)
    with pytest.raises(DTypeError, match="result"):
        us.check_grad(lambda x: us.astype(x, "int64"), X)
    for modes in ((), ("backward",)):
        with pytest.raises(ArgumentError, match="modes are"):
            us.check_grad(us.sin, X, modes=modes)


@pytest.mark.parametrize(
    ("f", "slope", "at"),
    [
        (np.exp, np.exp, 1.0),
        (np.log, lambda x: 1 / x, 1e-3),
        (lambda x: np.sin(50 * x), lambda x: 50 * np.cos(50 * x), 0.3),
        (lambda x: x**7, lambda x: 7 * x**6, 2.0),
    ],
)
def test_differences_settle_to_the_derivative(f: Any, slope: Any, at: float) -> None:
    found = derivative(f, np.array([at]), np.array([1.0]), step=2.0**-8, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(found, slope(at), rtol=1e-8)


def test_differences_that_do_not_settle_are_nan() -> None:
    found = derivative(lambda x: x * np.nan, np.ones(2), np.ones(2), step=2.0**-8, rtol=1e-8, atol=1e-10)
    assert np.isnan(found).all()


def test_what_is_linear_piece_by_piece_has_a_second_derivative_that_is_zero_up_to_rounding() -> None:
    x = np.array([[-0.23415337, -0.23413696, 1.57921282], [0.76743473, -0.46947439, 0.54256004]])
    us.check_grad(lambda x: us.std(x, axis=0), x)
