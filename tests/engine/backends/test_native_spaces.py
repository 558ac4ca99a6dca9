"""Truncations in native programs: the bits of the kernels, whatever is kept, and what is rare as they treat it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.engine.backends.test_native import bits_of, both_ways, compare, fragment_of
from unspool._engine.backends import native
from unspool._fragments.fragment import capture
from unspool.errors import GaugeError, KernelError, RankError

pytestmark = pytest.mark.skipif(native.WHY_NOT is not None, reason=str(native.WHY_NOT))


def matrix_with(values: Any, rows: int, columns: int) -> Any:
    """Return a matrix with singular values."""
    random = np.random.default_rng(rows + 10 * columns)
    k = len(values)
    left, right = (np.linalg.qr(random.normal(size=(n, k)))[0] for n in (rows, columns))
    return (left * values) @ right.T


def truncated(side: str, rank: int, **options: Any) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        isometry, rest, _ = us.linalg.leading_space(x, rank, side=side, **options)
        return isometry @ rest if side == "left" else rest @ isometry

    return function


def derivative_of(function: Callable[[Any], Any], matrix: Any) -> tuple[Any, list[Any]]:
    """Return the gradient of a loss that goes by the truncated matrix, as a fragment, and the values at its inputs."""
    x = us.tensor(matrix)
    made = function(x)
    weights = np.random.default_rng(1).normal(size=matrix.shape)
    (gradient,) = us.cotangents(us.sum(made * weights), [x])
    captured = capture([x], [gradient])
    return captured.fragment, [np.asarray(node.eval()) for node in captured.inputs]


SHAPES = [(6, 6), (9, 4), (4, 9), (1, 5), (5, 1), (2, 2), (20, 32)]


@pytest.mark.parametrize("options", [{}, {"trusted": True}, {"protected": True}], ids=str)
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_truncations_and_their_derivatives_have_the_bits_of_the_kernels(
    shape: tuple[int, int], side: str, options: dict[str, bool]
) -> None:
    k = min(shape)
    matrix = matrix_with(np.geomspace(3.0, 0.01, k), *shape)
    for rank in {1, (k + 1) // 2, k}:
        function = truncated(side, rank, **options)
        fragments = [fragment_of(function, [matrix], adjoint=False), derivative_of(function, matrix)]
        for fragment, given in fragments:
            assert compare(fragment, given)
            assert compare(fragment, [np.asfortranarray(x) for x in given])


@pytest.mark.parametrize("rank", [2, 5])
def test_in_the_usual_case_nothing_calls_back(rank: int) -> None:
    matrix = matrix_with(np.geomspace(2.0, 0.1, 5), 7, 5)
    for fragment, given in (
        fragment_of(truncated("left", rank), [matrix], adjoint=False),
        derivative_of(truncated("left", rank), matrix),
    ):
        made = both_ways(fragment, given)
        assert made is not None and not made[0].calls_back
        made[0](*given)
        assert made[2].count == 0 and not made[0].is_given_up


@pytest.mark.parametrize("dtype", [np.float32, complex])
def test_other_dtypes_have_the_bits_of_the_kernels(dtype: Any) -> None:
    matrix = matrix_with(np.geomspace(2.0, 0.1, 4), 6, 4).astype(dtype)
    fragment, given = fragment_of(truncated("left", 2), [matrix], adjoint=False)
    assert compare(fragment, given)


def test_hermitian_factors_have_the_bits_of_the_kernel() -> None:
    random = np.random.default_rng(3).normal(size=(6, 6))
    fragment, given = fragment_of(
        lambda x: us.linalg.space_factors(x, hermitian=True), [random + random.T], adjoint=False
    )
    assert compare(fragment, given)


def polar_product(x: Any) -> Any:
    u, p = us.linalg.polar(x)
    return u @ us.linalg.cholesky(p)


@pytest.mark.parametrize("shape", [(6, 6), (9, 4), (1, 1), (5, 1), (32, 20)], ids=str)
def test_polar_factors_and_their_derivatives_have_the_bits_of_the_kernels(shape: tuple[int, int]) -> None:
    matrix = matrix_with(np.geomspace(3.0, 0.5, min(shape)), *shape)
    fragments = [
        fragment_of(us.linalg.polar, [matrix], adjoint=False),
        fragment_of(polar_product, [matrix], adjoint=False),
        derivative_of(polar_product, matrix),
    ]
    for fragment, given in fragments:
        assert compare(fragment, given)
        assert compare(fragment, [np.asfortranarray(x) for x in given])
        made = both_ways(fragment, given)
        assert made is not None and not made[0].calls_back
        made[0](*given)
        assert made[2].count == 0 and not made[0].is_given_up


def test_stacks_and_complex_matrices_have_the_polar_factors_of_the_kernel() -> None:
    matrix = matrix_with([3.0, 2.0], 4, 2)
    for given in (np.stack([matrix, 2 * matrix]), matrix + 1j * matrix[::-1], matrix.astype(np.float32)):
        assert compare(*fragment_of(us.linalg.polar, [given], adjoint=False))


# --- what is rare ----------------------------------------------------------------------------------------------------


def looped(rank: int, matrix: Any, **options: Any) -> Any:
    """Return the gradient of a loss through one step of a loop that truncates."""
    x = us.tensor(matrix)
    state, _ = us.iterate(truncated("left", rank, **options), x, max_steps=1)
    return us.sum(state * np.arange(float(matrix.size)).reshape(matrix.shape)).grad(x).eval()


def test_a_cut_through_equal_values_is_judged_by_the_kernel() -> None:
    matrix = matrix_with([2.0, 1.0, 1.0, 0.5], 5, 4)
    with pytest.raises(GaugeError, match="cuts through equal singular values"):
        looped(2, matrix)
    assert np.isfinite(looped(3, matrix)).all()


def test_a_loss_that_depends_on_the_basis_is_judged_by_the_kernel() -> None:
    x = us.tensor(matrix_with([3.0, 2.0, 1.0], 4, 3))
    state, _ = us.iterate(lambda s: us.linalg.leading_space(s, 3).isometry * 1.0, x, max_steps=1)
    with pytest.raises(GaugeError, match="which basis"):
        us.sum(state * np.arange(12.0).reshape(4, 3)).grad(x).eval()


def test_numbers_that_are_not_finite_are_refused() -> None:
    spoilt = np.eye(4)
    spoilt[1, 2] = np.inf
    with pytest.raises(KernelError, match="finite"):
        us.iterate(truncated("left", 2), us.tensor(spoilt), max_steps=1)[0].eval()


def test_a_polar_decomposition_without_full_rank_is_refused_where_it_is_differentiated() -> None:
    x = us.tensor(matrix_with([2.0, 1.0, 0.0], 5, 3))
    state, _ = us.iterate(lambda s: us.linalg.polar(s)[0] @ np.eye(3), x, max_steps=1)
    assert np.isfinite(state.eval()).all()
    with pytest.raises(RankError, match="has rank 2 where 3 is full"):
        us.sum(state * np.arange(15.0).reshape(5, 3)).grad(x).eval()


@pytest.mark.parametrize("entry", [np.inf, np.nan])
def test_a_polar_decomposition_of_numbers_that_are_not_finite_is_refused(entry: float) -> None:
    spoilt = np.eye(3)
    spoilt[0, 1] = entry
    with pytest.raises(KernelError, match="polar takes finite matrices"):
        us.iterate(lambda s: us.linalg.polar(s)[0], us.tensor(spoilt), max_steps=1)[0].eval()


# --- norms of matrices -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lay", [np.ascontiguousarray, np.asfortranarray, lambda x: x.transpose(1, 2, 0)])
@pytest.mark.parametrize("size", [1.0, 1e-200, 1e200, 0.0])
def test_norms_of_whole_arrays_go_by_memory(size: float, lay: Callable[[Any], Any]) -> None:
    array = lay(size * np.random.default_rng(5).normal(size=(3, 4, 5)))
    fragment, _ = fragment_of(lambda x: us.sqrt(us.linalg.vector_norm(x)), [array], adjoint=False)
    made = both_ways(fragment, [array])
    assert made is not None and not made[0].calls_back
    with np.errstate(all="ignore"):
        assert bits_of(made[0](array)[0]) == bits_of(made[1](array)[0])


@pytest.mark.parametrize("size", [1.0, 0.0])
@pytest.mark.parametrize("lay", [np.ascontiguousarray, np.asfortranarray, lambda x: x.transpose(1, 2, 0)])
def test_their_derivatives_lie_as_in_python(lay: Callable[[Any], Any], size: float) -> None:
    array = lay(size * np.random.default_rng(6).normal(size=(3, 4, 5)))
    x = us.tensor(array)
    fragment = capture([x], [us.linalg.vector_norm(x).grad(x)]).fragment
    assert compare(fragment, [array])
