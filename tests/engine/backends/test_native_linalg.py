"""Linear algebra in native programs: the bits of the kernels, and what is rare as they treat it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.engine.backends.test_native import both_ways, compare, fragment_of
from unspool._engine.backends import native
from unspool._engine.backends.native_layout import Unsupported
from unspool._engine.backends.native_linalg import _routine
from unspool._engine.backends.native_program import FORTRAN
from unspool.errors import GaugeError, KernelError, RankError, UnspoolError

pytestmark = pytest.mark.skipif(native.WHY_NOT is not None, reason=str(native.WHY_NOT))


def general(n: int, m: int, dtype: Any = float) -> Any:
    generator = np.random.default_rng(100 * n + m)
    matrix = generator.normal(size=(n, m))
    return matrix + 1j * generator.normal(size=(n, m)) if dtype is complex else matrix


def hermitian(n: int, dtype: Any = float) -> Any:
    matrix = general(n, n, dtype)
    return matrix + matrix.conj().T


def positive(n: int, dtype: Any = float) -> Any:
    matrix = general(n, n, dtype)
    return matrix @ matrix.conj().T + np.eye(n)


FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[[int, Any], tuple[Any, ...]]]] = {
    "solve a vector": (lambda a, b: us.linalg.solve(a, b), lambda n, d: (general(n, n, d), general(n, 1, d)[:, 0])),
    "solve columns": (lambda a, b: us.linalg.solve(a, b), lambda n, d: (general(n, n, d), general(n, 3, d))),
    "inv": (us.linalg.inv, lambda n, d: (general(n, n, d),)),
    "slogdet": (lambda a: us.linalg.slogdet(a)[1], lambda n, d: (general(n, n, d),)),
    "eigh": (lambda a: us.linalg.eigh(a), lambda n, d: (hermitian(n, d),)),
    "eigh, upper": (lambda a: us.linalg.eigh(a, "U"), lambda n, d: (hermitian(n, d),)),
    "svd": (lambda a: us.linalg.svd(a, full_matrices=False), lambda n, d: (general(n, n + 2, d),)),
    "svd, tall and full": (lambda a: us.linalg.svd(a), lambda n, d: (general(n + 3, n, d),)),
    "qr": (lambda a: us.linalg.qr(a), lambda n, d: (general(n + 2, n, d),)),
    "qr, wide": (lambda a: us.linalg.qr(a), lambda n, d: (general(n, n + 2, d),)),
    "cholesky": (us.linalg.cholesky, lambda n, d: (positive(n, d),)),
    "solve a triangle": (
        lambda a, b: us.linalg.solve_triangular(a, b, lower=True),
        lambda n, d: (np.tril(general(n, n, d)) + 3 * np.eye(n), general(n, 2, d)),
    ),
}


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("n", [1, 2, 5, 12, 33])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_decompositions_and_solutions_have_the_bits_of_their_kernels(name: str, n: int, dtype: Any) -> None:
    function, arguments = FUNCTIONS[name]
    made = arguments(n, dtype)
    for adjoint in (False, True):
        try:
            fragment, given = fragment_of(function, made, adjoint=adjoint)
        except UnspoolError:
            continue  # a loss that depends on phases
        compare(fragment, given)
        compare(fragment, [np.asfortranarray(x) for x in given])


def runs_natively(function: Callable[..., Any], *arrays: Any) -> bool:
    """Whether a program with the usual numbers calls no Python."""
    fragment, given = fragment_of(function, arrays, adjoint=False)
    made = both_ways(fragment, given)
    return made is not None and not made[0].calls_back


# One triangle is taken by an op that is a call-back.
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "eigh, upper"])
def test_in_the_usual_case_nothing_calls_back(name: str) -> None:
    function, arguments = FUNCTIONS[name]
    assert runs_natively(function, *arguments(6, float))


# --- what is rare ----------------------------------------------------------------------------------------------------


def looped(function: Callable[[Any], Any], start: Any) -> Any:
    """Return what one step of a loop makes of a matrix."""
    state, _ = us.iterate(function, us.tensor(start), max_steps=1)
    return state.eval()


def test_a_singular_matrix_is_refused_as_ever() -> None:
    with pytest.raises(RankError, match="singular"):
        looped(us.linalg.inv, np.ones((3, 3)))
    with pytest.raises(RankError, match="singular"):
        looped(lambda x: us.linalg.solve(x, np.eye(3)), np.zeros((3, 3)))


def test_numbers_that_are_not_finite_are_refused_or_passed_on() -> None:
    spoilt = np.eye(4)
    spoilt[2, 1] = np.nan
    with pytest.raises(KernelError, match="finite"):
        looped(lambda x: us.linalg.eigh(x)[1], spoilt)
    with pytest.raises(KernelError, match="finite"):
        looped(lambda x: us.linalg.svd(x)[0], spoilt)
    assert np.isnan(looped(us.linalg.cholesky, spoilt)).all()
    assert np.isnan(looped(us.linalg.inv, spoilt)).all()


def test_a_matrix_that_is_not_positive_is_refused_with_the_block() -> None:
    with pytest.raises(KernelError, match="leading 2 by 2"):
        looped(us.linalg.cholesky, np.diag([1.0, -1.0, 2.0]))


def test_a_zero_on_the_diagonal_of_a_triangle_is_refused() -> None:
    with pytest.raises(RankError, match="singular"):
        looped(lambda x: us.linalg.solve_triangular(x, np.eye(3), lower=True), np.diag([1.0, 0.0, 2.0]))


def test_null_spaces_have_the_basis_of_the_kernel() -> None:
    thin = general(5, 2)
    matrix = thin @ thin.T
    for function in (lambda x: us.linalg.eigh(x), lambda x: us.linalg.svd(x)):
        fragment, given = fragment_of(function, [matrix], adjoint=False)
        assert compare(fragment, given)


def test_equal_values_are_judged_by_the_kernel() -> None:
    matrix = np.diag([1.0, 1.0, 2.0])
    x = us.tensor(matrix)

    def loss(x: Any, weights: Any) -> Any:
        state, _ = us.iterate(lambda s: us.linalg.eigh(s)[1] * weights, x, max_steps=1)
        return us.sum(state * np.arange(9.0).reshape(3, 3))

    with pytest.raises(GaugeError):
        loss(x, np.ones((3, 3))).grad(x).eval()


def test_errors_come_from_the_step_in_which_they_arise() -> None:
    # The second step meets what the first has made: a matrix without an inverse.
    with pytest.raises(RankError, match="step 1 of a loop"):
        us.iterate(lambda x: us.linalg.inv(x) * np.zeros((2, 2)), us.tensor(np.eye(2)), max_steps=3)


def test_a_routine_that_is_not_there_leaves_the_program_to_python() -> None:
    with pytest.raises(Unsupported, match="no routine"):
        _routine("dnothing")


def test_tables_of_routines_are_checked() -> None:
    routine = _routine("dgetrf")
    for numbers, what in (((0, 5), (routine, b"")), ((0,), (routine, b"")), ((0, -1), (routine, b"")), ((0, -1), ())):
        with pytest.raises((ValueError, TypeError)):
            native.Program([], [(FORTRAN, (), (), 0, (), (), numbers, what)], (), (), 0, None)
