"""A matrix cut off and split in two: against NumPy, finite differences, and rules that go through all of U, S and V."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool._autodiff.svd_split import split
from unspool._ops.linalg.svd import plain_factors

SIDES = pytest.mark.parametrize("isometry", ["left", "right"])
SHAPES = pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5), (1, 3), (3, 1)])
DTYPES = pytest.mark.parametrize("dtype", [float, complex])


def random(*shape: int, dtype: Any = float, seed: int = 0) -> Any:
    draw = np.random.default_rng(seed).normal
    return draw(size=shape) + 1j * draw(size=shape) if dtype is complex else draw(size=shape)


def parts_of(a: us.Tensor, kept: int, isometry: str) -> tuple[us.Tensor, us.Tensor]:
    return split(a, plain_factors(a), kept, isometry)


def adjoint(x: us.Tensor) -> us.Tensor:
    return us.conj(x).mT


def projector(left: us.Tensor, right: us.Tensor, isometry: str) -> us.Tensor:
    """The projector on the space of the isometry."""
    return left @ adjoint(left) if isometry == "left" else adjoint(right) @ right


def loss(a: us.Tensor, kept: int, isometry: str) -> us.Tensor:
    """Something of both parts in which no basis of the kept space is seen."""
    left, right = parts_of(a, kept, isometry)
    space = projector(left, right, isometry)
    seen = us.sum(us.asarray(random(*a.shape, dtype=complex, seed=1)) * (left @ right))
    return us.sin(us.real(seen)) + us.real(us.sum(us.asarray(random(*space.shape, seed=2)) * space))


# --- values ----------------------------------------------------------------------------------------------------------


@SIDES
@SHAPES
@DTYPES
def test_the_product_is_the_best_approximation_and_one_part_an_isometry(
    isometry: str, shape: tuple[int, int], dtype: Any
) -> None:
    a = random(*shape, dtype=dtype)
    for kept in range(1, min(shape) + 1):
        left, right = us.eval(parts_of(us.tensor(a), kept, isometry))
        u, s, vh = np.linalg.svd(a, full_matrices=False)
        np.testing.assert_allclose(left @ right, (u[:, :kept] * s[:kept]) @ vh[:kept], rtol=0, atol=1e-13)
        gram, rest = (left.conj().T @ left, right) if isometry == "left" else (right @ right.conj().T, left)
        np.testing.assert_allclose(gram, np.eye(kept), rtol=0, atol=1e-14)
        np.testing.assert_allclose(np.linalg.svd(rest, compute_uv=False), s[:kept], rtol=1e-13)


# --- derivatives -----------------------------------------------------------------------------------------------------


@SIDES
@SHAPES
@DTYPES
def test_derivatives_of_both_orders_and_modes_agree_with_differences(
    isometry: str, shape: tuple[int, int], dtype: Any
) -> None:
    a = random(*shape, dtype=dtype)
    for kept in {1, min(shape) - 1, min(shape)} - {0}:
        assert us.check_grad(lambda x, kept=kept: loss(x, kept, isometry), a).ok


@SIDES
@SHAPES
def test_the_gradient_is_that_of_the_rule_for_all_factors(isometry: str, shape: tuple[int, int]) -> None:
    a = us.tensor(random(*shape, dtype=complex, seed=3))
    for kept in range(1, min(shape) + 1):
        u, s, vh = us.linalg.truncated_svd(a, kept)
        left, right = (u, s[:, None] * vh) if isometry == "left" else (u * s, vh)
        weights, more = (us.asarray(random(*x.shape, seed=4)) for x in (a, projector(left, right, isometry)))

        def of_both(left: us.Tensor, right: us.Tensor, weights: Any = weights, more: Any = more) -> us.Tensor:
            return us.real(us.sum(weights * (left @ right)) + us.sum(more * projector(left, right, isometry)))

        expected = of_both(left, right).grad(a).eval()
        found = of_both(*parts_of(a, kept, isometry)).grad(a).eval()
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11)


@SIDES
def test_equal_kept_values_are_nothing_special(isometry: str) -> None:
    # Rotations of a diagonal matrix with a pair among its values.
    turns = [np.linalg.qr(random(4, 4, seed=seed))[0] for seed in (5, 6)]
    a = us.tensor(turns[0] @ np.diag([2.0, 2.0, 1.0, 0.5]) @ turns[1])
    weights = random(4, 4, seed=7)
    left, right = parts_of(a, 3, isometry)
    found = us.sum(weights * (left @ right)).grad(a).eval()
    expected = us.sum(weights * us.linalg.low_rank(a, 3)).grad(a).eval()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)


@SIDES
def test_dropped_values_of_zero_are_nothing_special(isometry: str) -> None:
    # Of rank 2, with two equal values that are dropped. In the limit A = XY the gradient of f(AA⁺) is known: a change
    # of A moves the space by (1 - P)·dA·A⁺.
    a = us.tensor(random(4, 2, seed=8) @ random(2, 4, seed=9))
    left, right = parts_of(a, 2, isometry)
    weights = random(4, 4, seed=10)
    found = us.sum(weights * projector(left, right, isometry)).grad(a).eval()
    matrix = a.eval()
    inverse, symmetric = np.linalg.pinv(matrix), weights + weights.T
    if isometry == "left":
        expected = (np.eye(4) - matrix @ inverse) @ symmetric @ matrix @ inverse @ inverse.T
    else:
        expected = inverse.T @ inverse @ matrix @ symmetric @ (np.eye(4) - inverse @ matrix)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@SIDES
def test_one_part_alone_has_its_derivative(isometry: str) -> None:
    a = random(4, 3, seed=11)

    def spectrum(x: us.Tensor) -> us.Tensor:
        left, right = parts_of(x, 2, isometry)
        rest = right @ right.mT if isometry == "left" else left.mT @ left
        return us.sum(us.square(rest))

    x = us.tensor(a)
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    np.testing.assert_allclose(spectrum(x).grad(x).eval(), (u[:, :2] * 4 * s[:2] ** 3) @ vh[:2], rtol=0, atol=1e-11)
    assert us.check_grad(spectrum, a).ok
