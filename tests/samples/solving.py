"""Samples of linear equations, inverses, determinants, least squares and ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import unspool as us
from tests.samples import Sample, complex_, real
from unspool._ops.linalg import determinants, least_squares


def regular(x: Any) -> Any:
    """Return square matrices that are far from singular."""
    return x + 4 * np.eye(x.shape[-1])


def solve(a: Any, b: Any, op: str = "solve") -> Sample:
    return Sample(op, us.linalg.solve, (a, b), np.linalg.solve)


def inv(a: Any) -> Sample:
    return Sample("inv", us.linalg.inv, (a,), np.linalg.inv)


def det(a: Any, label: str = "") -> Sample:
    return Sample("det", us.linalg.det, (a,), np.linalg.det, label=label)


def logabsdet(a: Any, op: str = "slogdet") -> Sample:
    return Sample(op, lambda t: us.linalg.slogdet(t).logabsdet, (a,), lambda x: np.linalg.slogdet(x)[1])


def sign(a: Any) -> Sample:
    return Sample("slogdet", lambda t: us.linalg.slogdet(t).sign, (a,), lambda x: np.linalg.slogdet(x)[0], label="sign")


def sound_inverse(a: Any) -> Sample:
    return Sample("sound_inverse", lambda t: determinants._sound_inverse(t), (a,), np.linalg.inv)


def adjugate(a: Any) -> Sample:
    return Sample("adjugate", determinants.adjugate, (a,), cofactors)


def adjugate_slope(a: Any, direction: Any) -> Sample:
    return Sample("adjugate_slope", determinants.adjugate_slope, (a, direction), slope_of_cofactors)


def cofactors(a: Any) -> Any:
    """Return adjugates by their definition: transposed signed minors."""
    result = np.empty_like(a)
    for i, j in np.ndindex(a.shape[-2:]):
        minor = np.delete(np.delete(a, j, axis=-2), i, axis=-1)
        result[..., i, j] = (-1) ** (i + j) * np.linalg.det(minor)
    return result


def slope_of_cofactors(a: Any, direction: Any) -> Any:
    """Return the slope of `cofactors`, which are polynomials of degree 2 for matrices up to 3×3."""
    return (cofactors(a + direction) - cofactors(a - direction)) / 2


def pinv(a: Any, label: str = "", **options: Any) -> Sample:
    return Sample(
        "pinv", lambda t: us.linalg.pinv(t, **options), (a,), lambda x: np.linalg.pinv(x, **options), label=label
    )


def full_rank_pinv(a: Any) -> Sample:
    def checked(t: Any) -> Any:
        return least_squares._differentiable(*least_squares._pinv(t, rtol=None, hermitian=False), constant_rank=False)

    return Sample("full_rank_pinv", checked, (a,), np.linalg.pinv)


def lstsq(a: Any, b: Any, **options: Any) -> Sample:
    return Sample(
        "lstsq",
        lambda s, t: us.linalg.lstsq(s, t, **options).solution,
        (a, b),
        lambda x, y: np.matmul(np.linalg.pinv(x), y),
        label=",".join(options),
    )


def rank(a: Any, **options: Any) -> Sample:
    label = ",".join(options)
    function: Callable[..., Any] = lambda t: us.linalg.matrix_rank(t, **options)  # noqa: E731
    return Sample("matrix_rank", function, (a,), lambda x: np.linalg.matrix_rank(x, **options), 0, label=label)


def exact_solution(a: Any, b: Any) -> Any:
    """Solve a 2×2 system by Cramer's rule, in any arithmetic."""
    numerators = [b[0] * a[1, 1] - a[0, 1] * b[1], a[0, 0] * b[1] - b[0] * a[1, 0]]
    return np.asarray(numerators) / exact_determinant(a)


def exact_inverse(a: Any) -> Any:
    return np.asarray([[a[1, 1], -a[0, 1]], [-a[1, 0], a[0, 0]]]) / exact_determinant(a)


def exact_determinant(a: Any) -> Any:
    return a[0, 0] * a[1, 1] - a[0, 1] * a[1, 0]


RANK_ONE = np.outer([1.0, 2.0, -1.0], [1.0, 0.5, 3.0])
RANK_TWO = RANK_ONE + np.outer([0.0, 1.0, 1.0], [2.0, -1.0, 0.25])

SAMPLES = [
    solve(regular(real(2, 2)), real(2), "lu_factors"),
    solve(regular(real(3, 3)), real(3)),
    solve(regular(real(2, 2)), real(2, 2)),
    solve(regular(real(2, 2)), real(2, 0)),
    solve(regular(real(2, 2)), real(2, 2, 1)),
    solve(regular(real(2, 2, 2)), real(2)),
    solve(regular(real(2, 1, 2, 2)), real(2, 2, 1)),
    solve(regular(real(1, 1)), real(1, 2)),
    solve(real(0, 0), real(0, 2)),
    solve(real(0, 2, 2), real(2, 1)),
    solve(regular(complex_(2, 2)), complex_(2)),
    solve(regular(complex_(2, 2, 2)), complex_(2, 1)),
    solve(regular(real(2, 2)), complex_(2, 1)),
    Sample("solve", us.linalg.solve, (regular(real(2, 2)), real(2)), exact_solution, exact=True, label="exact"),
    Sample(
        "solve",
        us.linalg.tensorsolve,
        (regular(real(4, 4)).reshape(2, 2, 4), real(2, 2)),
        np.linalg.tensorsolve,
        label="tensorsolve",
    ),
    inv(regular(real(2, 2))),
    inv(regular(complex_(2, 2))),
    inv(regular(real(2, 2, 2))),
    inv(real(0, 0)),
    Sample("inv", us.linalg.inv, (regular(real(2, 2)),), exact_inverse, exact=True, label="exact"),
    Sample("inv", lambda t: us.linalg.cond(t, 1), (regular(real(2, 2)),), lambda x: np.linalg.cond(x, 1), label="cond"),
    Sample(
        "inv",
        lambda t: us.linalg.tensorinv(t, ind=1),
        (regular(real(4, 4)).reshape(4, 2, 2),),
        lambda x: np.linalg.tensorinv(x, ind=1),
        1,
        label="tensorinv",
    ),
    det(real(3, 3)),
    det(complex_(2, 2)),
    det(real(2, 2, 2)),
    det(real(1, 1)),
    det(real(0, 0)),
    det(real(2, 0, 0)),
    det(RANK_TWO, "rank 2"),
    det(RANK_ONE, "rank 1"),
    det(RANK_TWO * (1 - 2j), "rank 2"),
    det(np.zeros((2, 2)), "zero"),
    Sample("det", us.linalg.det, (real(2, 2),), exact_determinant, exact=True, label="exact"),
    logabsdet(regular(real(3, 3))),
    logabsdet(regular(complex_(2, 2))),
    logabsdet(regular(real(2, 2, 2))),
    logabsdet(real(0, 0)),
    sign(regular(real(2, 2))),
    sign(regular(complex_(2, 2))),
    sign(regular(complex_(2, 2, 2))),
    sound_inverse(regular(real(2, 2))),
    sound_inverse(real(0, 0)),
    adjugate(regular(real(3, 3))),
    adjugate(regular(complex_(3, 3))),
    adjugate(regular(real(2, 3, 3))),
    adjugate(real(1, 1)),
    adjugate_slope(regular(real(3, 3)), real(3, 3, seed=1)),
    adjugate_slope(regular(complex_(3, 3)), complex_(3, 3, seed=1)),
    adjugate_slope(regular(real(1, 3, 3)), real(1, 3, 3, seed=1)),
    pinv(real(3, 2)),
    pinv(real(2, 3)),
    pinv(regular(real(2, 2))),
    pinv(complex_(2, 3)),
    pinv(complex_(2, 3, 2)),
    pinv(real(1, 3)),
    pinv(real(3, 1)),
    pinv(real(0, 2)),
    pinv(real(3, 0)),
    pinv(real(2, 3), "rtol", rtol=1e-3),
    pinv(regular(np.ones((2, 2))), "hermitian", hermitian=True),
    full_rank_pinv(real(3, 2)),
    full_rank_pinv(complex_(2, 3)),
    lstsq(real(3, 2), real(3)),
    lstsq(real(2, 3), real(2, 2)),
    lstsq(regular(real(2, 2)), real(2, 1)),
    lstsq(complex_(3, 2), complex_(3, 1)),
    lstsq(real(2, 3, 2), real(3, 1)),
    lstsq(real(3, 2), real(3), rcond=1e-3),
    lstsq(real(0, 2), real(0, 1)),
    rank(RANK_TWO),
    rank(RANK_ONE[None] * np.ones((2, 1, 1))),
    rank(complex_(2, 3)),
    rank(np.zeros((0, 2))),
    rank(np.diag([1.0, 1e-4]), tol=1e-3),
    rank(np.diag([100.0, 1e-4]), rtol=1e-3),
    rank(np.ones((2, 2)), hermitian=True),
]
