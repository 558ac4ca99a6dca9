"""Whole Jacobians and Hessians, by rows and by columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.closeness import close
from unspool._batching import jacobians
from unspool.errors import ArgumentError, ComplexLossError, DTypeError, UnknownSizeError

X = np.array([0.3, -1.2, 2.0])
Y = np.array([1.5, 0.4])
Z = np.array([1 + 2j, -0.5 + 0.3j])
MODES = pytest.mark.parametrize("mode", ["auto", "reverse", "forward"])


def outer(x: Any, y: Any) -> us.Tensor:
    return us.reshape(us.sin(x), (3, 1)) * y


@MODES
def test_the_jacobian_has_the_shape_of_the_output_then_that_of_the_argument(mode: Any) -> None:
    by_x, by_y = us.jacobian(outer, argnums=(0, 1), mode=mode)(X, Y)
    close(by_x, np.einsum("ik,i,j->ijk", np.eye(3), np.cos(X), Y))
    close(by_y, np.einsum("i,jk->ijk", np.sin(X), np.eye(2)))


@MODES
def test_the_jacobian_is_nested_like_the_output_then_like_the_argument(mode: Any) -> None:
    def f(p: Any) -> Any:
        return {"prod": p["x"] * p["x"], "sum": [us.sum(p["x"]) * p["s"]]}

    found = us.jacobian(f, mode=mode)({"x": X, "s": 2.0})
    close(found["prod"]["x"], np.diag(2 * X))
    close(found["prod"]["s"], np.zeros(3))
    close(found["sum"][0]["x"], np.full(3, 2.0))
    close(found["sum"][0]["s"], X.sum())


@MODES
@pytest.mark.parametrize("size", [0, 1])
def test_small_sizes(mode: Any, size: int) -> None:
    close(us.jacobian(lambda x: x * x, mode=mode)(np.full(size, 3.0)), np.diag(np.full(size, 6.0)))
    close(us.jacobian(us.sum, mode=mode)(np.full(size, 3.0)), np.ones(size))


@MODES
def test_a_jacobian_comes_with_aux(mode: Any) -> None:
    found, aux = us.jacobian(lambda x: (x * x, "aux"), has_aux=True, mode=mode)(X)
    close(found, np.diag(2 * X))
    assert aux == "aux"


@MODES
def test_holomorphic_jacobians_hold_complex_derivatives(mode: Any) -> None:
    close(us.jacobian(lambda z: z * z * z, holomorphic=True, mode=mode)(Z), np.diag(3 * Z**2))


@MODES
def test_rows_for_complex_arguments_are_gradients(mode: Any) -> None:
    found = us.jacobian(lambda z: us.real(z * us.conj(z)), mode=mode)(Z)
    close(found, np.diag(2 * Z))


@MODES
def test_complex_functions_of_real_arguments_have_complex_derivatives(mode: Any) -> None:
    found = us.jacobian(lambda x: us.exp(x * 1j), mode=mode)(X)
    close(found, np.diag(1j * np.exp(1j * X)))


@pytest.mark.parametrize(("rows", "columns", "swept"), [(2, 5, "rows"), (5, 2, "columns"), (3, 3, "rows")])
def test_the_fewer_sweeps_are_made(monkeypatch: Any, rows: int, columns: int, swept: str) -> None:
    sweeps = {"rows": 0, "columns": 0}

    def counted(name: str, sweep: Any) -> Any:
        def count(*args: Any) -> Any:
            sweeps[name] += 1
            return sweep(*args)

        return count

    monkeypatch.setattr(jacobians, "pullback", counted("rows", jacobians.pullback))
    monkeypatch.setattr(jacobians, "pushforward", counted("columns", jacobians.pushforward))
    matrix = np.arange(rows * columns, dtype=float).reshape(rows, columns)
    found = us.jacobian(lambda x: us.sum(us.constant(matrix) * x, axis=1))(np.ones(columns))
    close(found, matrix)
    assert sweeps == {"rows": 0, "columns": 0, swept: 1}


def test_jacrev_and_jacfwd_compose_in_any_order() -> None:
    f = lambda x: us.sum(us.sin(x) * x[::-1])  # noqa: E731
    expected = np.diag(-np.sin(X) * X[::-1]) + np.fliplr(np.diag(np.cos(X))) + np.fliplr(np.diag(np.cos(X))).T
    for outer_, inner in [(a, b) for a in (us.jacrev, us.jacfwd) for b in (us.jacrev, us.jacfwd)]:
        close(outer_(inner(f))(X), expected)
    close(us.hessian(f)(X), expected)


def test_the_hessian_of_several_arguments_has_blocks() -> None:
    f = lambda x, y: us.sum(x * x) * us.sum(y * y * y)  # noqa: E731
    (xx, xy), (yx, yy) = us.hessian(f, argnums=(0, 1))(X, Y)
    close(xx, 2 * np.eye(3) * np.sum(Y**3))
    close(xy, np.outer(2 * X, 3 * Y**2))
    close(yx, np.outer(2 * X, 3 * Y**2).T)
    close(yy, np.diag(6 * Y) * np.sum(X**2))


def test_the_hessian_comes_with_aux_and_is_holomorphic_if_asked() -> None:
    found, aux = us.hessian(lambda x: (us.sum(x * x * x), 7), has_aux=True)(X)
    close(found, np.diag(6 * X))
    assert aux == 7
    close(us.hessian(lambda z: us.sum(z * z * z), holomorphic=True)(Z), np.diag(6 * Z))


def test_jacobians_can_be_differentiated() -> None:
    trace = lambda x: us.sum(us.jacobian(us.sin)(x))  # noqa: E731
    close(us.grad(trace)(X), -np.sin(X))


def test_jacobians_are_in_the_precision_of_the_argument() -> None:
    assert us.jacobian(us.sin)(X.astype("float32")).dtype == np.float32
    assert us.jacobian(lambda x: us.exp(x * 1j))(X.astype("float32")).dtype == np.complex64


def test_jacobians_of_unknown_sizes_are_refused() -> None:
    n = us.dims("n")
    with pytest.raises(UnknownSizeError, match=r"us.vjp or us.jvp"):
        us.jacobian(us.sin)(us.placeholder((n,)))


def test_bad_requests_are_refused() -> None:
    with pytest.raises(ComplexLossError, match="holomorphic=True"):
        us.jacobian(lambda z: z * us.conj(z))(Z)
    with pytest.raises(DTypeError, match="holomorphic"):
        us.jacobian(us.sin, holomorphic=True)(X)
    with pytest.raises(DTypeError, match="int64"):
        us.jacobian(lambda x: us.astype(x, "int64"))(X)
    with pytest.raises(ArgumentError, match="mode is"):
        us.jacobian(us.sin, mode="rows")  # type: ignore[arg-type]
