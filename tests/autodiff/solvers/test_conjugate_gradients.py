"""Conjugate gradients on arrays, held against SciPy's, which makes the same steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse.linalg import cg

from unspool._autodiff.solvers.conjugate_gradients import conjugate_gradients

N = 40


def equation(dtype: str) -> tuple[Any, Any]:
    """Return a definite matrix and a right-hand side."""
    draw = np.random.default_rng(0).standard_normal
    a, b = draw((N, N)), draw(N)
    if np.dtype(dtype).kind == "c":
        a, b = a + 1j * draw((N, N)), b + 1j * draw(N)
    return (a @ a.conj().T / N + np.eye(N)).astype(dtype), b.astype(dtype)


@pytest.mark.parametrize("preconditioned", [False, True])
@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "complex128", "float32"])
def test_every_iterate_is_that_of_scipy(dtype: str, started: bool, preconditioned: bool) -> None:
    a, b = equation(dtype)
    start = b[::-1].copy() if started else None
    m = np.diag(1.0 / np.diag(a)).astype(dtype) if preconditioned else None
    theirs: list[Any] = []
    ours: list[Any] = []
    cg(a, b, start, rtol=1e-4, M=m, callback=lambda x: theirs.append(x.copy()))
    x, info = conjugate_gradients(
        a.dot,
        b,
        start,
        rtol=1e-4,
        maxiter=100,
        precondition=None if m is None else m.dot,
        callback=lambda x: ours.append(x.copy()),
    )
    assert info == 0
    assert x.dtype == dtype
    assert len(ours) == len(theirs)
    accuracy = 100 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(ours, theirs, rtol=accuracy, atol=accuracy)


def test_it_ends_after_as_many_iterations_as_asked_and_says_so() -> None:
    a, b = equation("float64")
    seen: list[Any] = []
    _, info = conjugate_gradients(a.dot, b, rtol=1e-12, maxiter=3, callback=lambda x: seen.append(x.copy()))
    assert info == len(seen) == 3


def test_a_start_that_solves_the_equation_is_returned_as_it_is() -> None:
    b = equation("float64")[1]
    x, info = conjugate_gradients(lambda v: v, b, b, rtol=0.0, maxiter=10)
    assert info == 0
    np.testing.assert_array_equal(x, b)


def test_what_is_given_and_what_the_operator_returns_is_not_written_to() -> None:
    a, b = equation("float64")
    start = np.ones(N)
    given = [b.copy(), start.copy()]

    def apply(v: Any) -> Any:
        result = a @ v
        result.flags.writeable = False
        return result

    conjugate_gradients(apply, b, start, rtol=1e-8, maxiter=100)
    np.testing.assert_array_equal([b, start], given)


def test_an_operator_may_return_its_argument() -> None:
    b = equation("float64")[1]
    x, info = conjugate_gradients(lambda v: v, b, rtol=1e-12, maxiter=10, precondition=lambda v: v)
    assert info == 0
    np.testing.assert_allclose(x, b)
