"""Leading singular spaces: values against NumPy, derivatives against differences and the resolvent, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.linalg.oracles import Factored, differences, frame, weights
from unspool.errors import (
    ArgumentError,
    GaugeError,
    KernelError,
    MissingRuleError,
    ShapeError,
    UnboundPlaceholderError,
)

leading_space, space_factors = us.linalg.leading_space, us.linalg.space_factors

SIDES = pytest.mark.parametrize("side", ["left", "right"])
FIELDS = pytest.mark.parametrize("field", ["real", "complex"])
SHAPES = pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5), (1, 3), (3, 1), (2, 3, 4)], ids=str)


def adjoint(x: Any) -> Any:
    return np.conj(np.swapaxes(x, -1, -2)) if isinstance(x, np.ndarray) else us.conj(x).mT


def matrix(values: Any, field: str = "real", extra: tuple[int, int] = (0, 0)) -> Any:
    """A matrix with given singular values, and more rows or columns than that."""
    kind, k = "unitary" if field == "complex" else "rotation", len(values)
    return Factored(frame(k + extra[0], kind, 2), np.array(values, float), frame(k + extra[1], kind, 3)).matrix


def product(isometry: Any, rest: Any, side: str) -> Any:
    return isometry @ rest if side == "left" else rest @ isometry


def projector(isometry: Any, side: str) -> Any:
    return isometry @ adjoint(isometry) if side == "left" else adjoint(isometry) @ isometry


def inner(w: Any, x: Any) -> Any:
    return us.real(us.sum(np.conj(w) * x))


def loss_of(rank: int, side: str, shape: Any, field: str) -> Callable[[Any], us.Tensor]:
    """Something of isometry and rest in which no basis is seen."""
    size = shape[-2] if side == "left" else shape[-1]
    first, second = weights(*shape, field=field), weights(*shape[:-2], size, size, field=field, seed=6)

    def loss(x: Any) -> us.Tensor:
        isometry, rest, _ = leading_space(x, rank, side=side)
        return us.sin(inner(first, product(isometry, rest, side))) + inner(second, projector(isometry, side))

    return loss


def moved_projector(a: Any, rank: int, direction: Any) -> Any:
    """The derivative of the projector on the leading left space, by the resolvent of A·Aᴴ.

    That is the integral of (z - H)⁻¹·dH·(z - H)⁻¹ around the eigenvalues that are kept, which knows no vectors. Its
    sums over points of a circle converge exponentially.
    """
    h, change = a @ adjoint(a), direction @ adjoint(a) + a @ adjoint(direction)
    kept = np.sort(np.linalg.eigvalsh(h))[::-1]
    lower, upper = (kept[rank - 1] + kept[rank]) / 2, kept[0] + (kept[rank - 1] - kept[rank]) / 2
    total = np.zeros_like(h, complex)
    for angle in 2 * np.pi * (np.arange(4000) + 0.5) / 4000:
        step = (upper - lower) / 2 * np.exp(1j * angle)
        resolvent = np.linalg.inv(((upper + lower) / 2 + step) * np.eye(len(h)) - h)
        total += step / 4000 * resolvent @ change @ resolvent
    return total if np.iscomplexobj(a) else total.real


# --- values ----------------------------------------------------------------------------------------------------------


@SIDES
@SHAPES
@FIELDS
def test_the_product_is_the_best_approximation_and_one_part_an_isometry(side: str, shape: Any, field: str) -> None:
    a = weights(*shape, field=field)
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    for rank in range(min(shape[-2:]) + 1):
        isometry, rest, values = us.eval(leading_space(a, rank, side=side))
        best = (u[..., :rank] * s[..., None, :rank]) @ vh[..., :rank, :]
        np.testing.assert_allclose(product(isometry, rest, side), best, rtol=0, atol=1e-13)
        gram = adjoint(isometry) @ isometry if side == "left" else isometry @ adjoint(isometry)
        np.testing.assert_allclose(gram, np.broadcast_to(np.eye(rank), gram.shape), rtol=0, atol=1e-14)
        np.testing.assert_allclose(values, s, rtol=1e-12)


@pytest.mark.parametrize(
    ("options", "rank"),
    [
        ({"rank": 2}, 2),
        ({"rank": 9}, 6),
        ({"rank": 0}, 0),
        ({"rtol": 1e-3}, 3),
        ({"rtol": 2.0}, 1),
        ({"rank": 2, "rtol": 1e-3}, 2),
        ({"rank": 2, "keep_multiplets": True}, 1),
        ({"rank": 3, "keep_multiplets": True}, 3),
        ({"rank": 5, "keep_multiplets": True}, 5),
        ({}, 6),
    ],
    ids=str,
)
def test_a_rank_is_given_or_found_by_a_tolerance(options: Any, rank: int) -> None:
    # The last two differ by less than the tolerance for equal values of the largest, but not of themselves.
    assert leading_space(np.diag([4.0, 2.0, 2.0, 1e-3, 2e-9, 1e-9]), **options).rest.shape == (rank, 6)


def test_the_largest_multiplet_is_kept_even_if_it_is_larger_than_the_rank() -> None:
    assert leading_space(np.diag([2.0, 2.0, 1.0]), 1, keep_multiplets=True).rest.shape == (2, 3)


def test_a_stack_keeps_as_many_as_its_neediest_matrix_and_cuts_no_multiplet_of_any() -> None:
    stack = np.stack([np.diag([1.0, 1e-9, 1e-9]), np.diag([1.0, 0.5, 1e-9])])
    assert leading_space(stack, rtol=1e-6).isometry.shape == (2, 3, 2)
    assert leading_space(stack, rtol=1e-6, keep_multiplets=True).isometry.shape == (2, 3, 1)


@FIELDS
def test_factors_of_a_hermitian_matrix_are_its_eigenvectors_by_modulus(field: str) -> None:
    q = frame(4, "unitary" if field == "complex" else "rotation")
    a = (q * [1.0, -4.0, 2.0, -0.5]) @ adjoint(q)
    u, s, vh = us.eval(space_factors(a, hermitian=True))
    np.testing.assert_allclose(s, [4.0, 2.0, 1.0, 0.5], rtol=1e-13)
    np.testing.assert_allclose((u * s) @ vh, a, rtol=0, atol=1e-14)
    u, s, vh = us.eval(space_factors(2 * np.tril(a, -1) + np.diag(np.diag(a)), hermitian=True))
    np.testing.assert_allclose((u * s) @ vh, a, rtol=0, atol=1e-14)


@pytest.mark.parametrize(("hermitian", "bad"), [(False, np.nan), (True, np.nan), (True, np.inf)])
def test_what_is_not_finite_has_no_factors(hermitian: bool, bad: float) -> None:
    with pytest.raises(KernelError):
        space_factors(np.array([[bad, 1.0], [1.0, 1.0]]), hermitian=hermitian).S.eval()


@FIELDS
def test_the_leading_space_of_a_hermitian_matrix_is_that_of_eigenvalues_by_modulus(field: str) -> None:
    q = frame(4, "unitary" if field == "complex" else "rotation")
    lower = (q * [1.0, -4.0, 2.0, -0.5]) @ adjoint(q) / 2

    def loss(x: Any) -> us.Tensor:
        a = x + adjoint(x)
        isometry, rest, _ = leading_space(a, 2, factors=space_factors(a, hermitian=True))
        return inner(weights(4, 4, field=field), isometry @ adjoint(isometry)) + us.sum(us.abs(rest @ isometry) ** 2)

    assert us.check_grad(loss, lower, order=2).ok
    vectors = q[:, [1, 2]]
    found = leading_space(2 * lower, 2, factors=space_factors(2 * lower, hermitian=True)).isometry
    np.testing.assert_allclose(projector(found, "left").eval(), vectors @ adjoint(vectors), rtol=0, atol=1e-13)


def test_sizes_may_be_unknown_and_smaller_than_the_rank() -> None:
    x = us.placeholder(us.dims("m n"))
    isometry, rest, _ = leading_space(x, 2)
    gradient = us.sum(us.square(isometry @ rest)).grad(x)
    for shape in ((3, 4), (4, 3), (1, 3)):
        a = weights(*shape)
        u, s, vh = np.linalg.svd(a, full_matrices=False)
        np.testing.assert_allclose(gradient.eval({x: a}), 2 * (u[:, :2] * s[:2]) @ vh[:2], rtol=0, atol=1e-13)
    with pytest.raises(UnboundPlaceholderError):
        leading_space(us.placeholder((3, 3)), rtol=1e-3)


def test_what_cannot_be_meant_is_refused() -> None:
    with pytest.raises(ArgumentError, match='side is "left" or "right", got \'up\''):
        leading_space(np.eye(2), 1, side="up")
    with pytest.raises(ArgumentError, match="rank"):
        leading_space(np.eye(2), -1)
    with pytest.raises(ShapeError, match="factors are what space_factors makes"):
        leading_space(np.eye(2), 1, factors=space_factors(np.eye(3)))
    with pytest.raises(ArgumentError, match="factors are what space_factors makes of the matrix, got 5"):
        leading_space(np.eye(2), 1, factors=5)


def test_singular_values_to_look_at_have_no_derivative_rather_than_a_wrong_one() -> None:
    a = us.tensor(np.diag([2.0, 1.0]))
    with pytest.raises(MissingRuleError, match="space_factors"):
        us.sum(leading_space(a, 1).values).grad(a).eval()


# --- derivatives -----------------------------------------------------------------------------------------------------


@SIDES
@SHAPES
@FIELDS
def test_derivatives_of_both_orders_and_modes_agree_with_differences(side: str, shape: Any, field: str) -> None:
    least = min(shape[-2:])
    for rank in {1, least - 1, least} - {0}:
        assert us.check_grad(loss_of(rank, side, shape, field), weights(*shape, field=field, seed=7), order=2).ok


SPECTRA = {
    "apart": [3.0, 2.0, 1.0, 0.5],
    "equal and kept": [2.0, 2.0, 1.0, 0.5],
    "equal to rounding and kept": [2.0, 2.0 * (1 - 3e-16), 1.0, 0.5],
    "nearly equal and kept": [2.0, 2.0 - 1e-9, 1.0, 0.5],
    "equal and dropped": [3.0, 2.0, 1.0, 1.0],
    "of the rank": [2.0, 2.0, 0.0, 0.0],
}


@pytest.mark.parametrize("extra", [(0, 0), (2, 0), (0, 2)], ids=str)
@pytest.mark.parametrize("spectrum", SPECTRA)
@FIELDS
def test_the_projector_moves_as_the_resolvent_says_in_both_modes(spectrum: str, extra: Any, field: str) -> None:
    a = matrix(SPECTRA[spectrum], field, extra)
    direction, w = weights(*a.shape, field=field, seed=8), weights(len(a), len(a), field=field, seed=9)
    expected = np.sum(np.conj(w) * moved_projector(a, 2, direction)).real

    def loss(x: Any) -> us.Tensor:
        return inner(w, projector(leading_space(x, 2).isometry, "left"))

    x = us.tensor(a)
    backward = np.sum(np.conj(loss(x).grad(x).eval()) * direction).real
    forward = us.jvp(loss, (a,), (direction,))[1].eval()
    np.testing.assert_allclose([backward, forward], expected, rtol=1e-9, atol=1e-10)


@SIDES
@FIELDS
def test_equal_kept_values_are_nothing_special_where_svd_has_to_refuse(side: str, field: str) -> None:
    a, w = matrix([2.0, 2.0, 1.0, 0.5], field), weights(4, 4, field=field)
    x = us.tensor(a)
    u, s, vh = us.linalg.truncated_svd(x, 3)
    with pytest.raises(GaugeError):
        inner(w, (u * s) @ vh).grad(x).eval()

    def best(b: Any) -> Any:
        u, s, vh = np.linalg.svd(b)
        return np.sum(np.conj(w) * ((u[:, :3] * s[:3]) @ vh[:3])).real

    isometry, rest, _ = leading_space(x, 3, side=side)
    found = inner(w, product(isometry, rest, side)).grad(x).eval()
    np.testing.assert_allclose(found, differences(best, a, 1e-4), rtol=0, atol=1e-7)


@pytest.mark.parametrize("spectrum", SPECTRA)
@FIELDS
def test_second_derivatives_divide_by_no_gap_among_kept_values(spectrum: str, field: str) -> None:
    values = SPECTRA[spectrum]
    if spectrum == "of the rank":
        values = [2.0, 2.0, 1e-3, 0.0]  # a second derivative needs a neighbourhood in which the rank is what it is
    assert us.check_grad(loss_of(2, "left", (4, 4), field), matrix(values, field), order=2).ok


def test_kept_values_far_below_the_largest_keep_their_digits() -> None:
    # dP of a direction that couples vector 1, of the value 1e-9, to vector 2, of the value 0: dA/s.
    a, t = us.tensor(np.diag([1.0, 1e-9, 0.0])), np.zeros((3, 3))
    t[2, 1] = 1.0
    isometry = leading_space(a, 2).isometry
    found = (isometry @ isometry.mT)[2, 1].grad(a).eval()
    np.testing.assert_allclose(found, t * 1e9, rtol=1e-12)


def test_zeros_among_the_kept_values_do_not_matter_to_a_loss_that_does_not_see_their_vectors() -> None:
    a = matrix([2.0, 1.0, 0.0, 0.0])
    x, target = us.tensor(a), a + matrix([0.3, 0.2, 0.0, 0.0])
    two, three = (leading_space(x, rank) for rank in (2, 3))
    # Only what both have in common: the part of the target in the range of A.
    found, expected = (us.sum(us.square(space.rest @ a.T @ target)).grad(x).eval() for space in (three, two))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11)


def test_the_whole_space_does_not_move() -> None:
    a = us.tensor(matrix([2.0, 1.0, 0.0], extra=(0, 2)))
    isometry, rest, _ = leading_space(a, 3)
    np.testing.assert_array_equal(inner(weights(3, 3), isometry @ isometry.mT).grad(a).eval(), np.zeros((3, 5)))
    w = weights(3, 5)
    np.testing.assert_allclose(inner(w, isometry @ rest).grad(a).eval(), w, rtol=0, atol=1e-13)


def test_one_derivative_takes_one_decomposition() -> None:
    a = us.tensor(weights(5, 4))
    with us.debug.count_kernels() as kernels:
        loss_of(2, "left", (5, 4), "real")(a).grad(a).eval()
    assert {op: count for op, count in kernels.by_op.items() if "svd" in op or "space" in op} == {
        "space_factors": 1,
        "leading_space": 1,
        "space_motion": 1,
    }


# --- refusals --------------------------------------------------------------------------------------------------------


@SIDES
def test_a_loss_that_depends_on_the_basis_is_refused_with_the_line_it_comes_from(side: str) -> None:
    a = us.tensor(matrix([3.0, 2.0, 1.0]))
    isometry, rest, _ = leading_space(a, 2, side=side)  # this line
    for part in (isometry, rest, isometry[..., :1] @ isometry[..., :1].mT):
        with pytest.raises(GaugeError, match="depends on which basis of the kept space was taken") as caught:
            us.sum(weights(*part.shape) * part).grad(a).eval()
        assert "# this line" in str(caught.value)
        assert caught.value.amount > 1e-3


def test_a_rotation_of_the_isometry_has_to_be_undone_by_the_rest() -> None:
    a, w = us.tensor(matrix([3.0, 2.0, 1.0])), weights(3, 3)
    isometry, rest, _ = leading_space(a, 2)
    inner(w, isometry @ rest).grad(a).eval()
    with pytest.raises(GaugeError, match="rotation of isometry and rest"):
        inner(w, isometry @ us.stop_gradient(rest)).grad(a).eval()


def test_a_phase_is_a_rotation_too() -> None:
    a = us.tensor(matrix([3.0, 2.0, 1.0], "complex"))
    vector = leading_space(a, 1).isometry
    with pytest.raises(GaugeError, match="depends on which basis"):
        us.real(vector[0, 0]).grad(a).eval()
    us.abs(vector[0, 0]).grad(a).eval()


def test_in_a_stack_the_matrix_is_named() -> None:
    stack = us.tensor(np.stack([matrix([3.0, 2.0, 1.0]), matrix([2.0, 1.0, 1.0])]))
    isometry = leading_space(stack, 2).isometry
    with pytest.raises(GaugeError, match=r"in matrix \(1,\) of the stack: rank 2 cuts through equal singular values"):
        inner(weights(3, 3), isometry @ isometry.mT).grad(stack).eval()


@SIDES
@FIELDS
@pytest.mark.parametrize("values", [[2.0, 1.0, 1.0], [2.0, 1.0 + 1e-9, 1.0], [2.0, 0.0, 0.0]], ids=str)
def test_a_cut_through_equal_values_is_refused_if_the_loss_sees_it(side: str, field: str, values: Any) -> None:
    a = us.tensor(matrix(values, field))
    isometry = leading_space(a, 2, side=side).isometry
    with pytest.raises(GaugeError, match="rank 2 cuts through equal singular values, and the loss depends") as caught:
        inner(weights(3, 3, field=field), projector(isometry, side)).grad(a).eval()
    assert caught.value.indices == (1, 2)


def test_a_cut_through_equal_values_is_fine_if_the_loss_does_not_see_it() -> None:
    a, v = matrix([2.0, 1.0, 1.0]), frame(3, "rotation", 2)[:, :1]
    x = us.tensor(a)
    isometry = leading_space(x, 2).isometry
    # What the space shares with the vector of the largest value, and with nothing else.
    found = us.sum(us.square(isometry.mT @ v)).grad(x).eval()
    np.testing.assert_allclose(found, np.zeros((3, 3)), rtol=0, atol=1e-12)


@pytest.mark.parametrize("values", [[2.0, 1.0, 1.0], [2.0, 0.0, 0.0]], ids=str)
def test_a_loss_that_sees_values_at_the_cut_has_a_derivative_only_if_a_symmetry_protects_them(values: Any) -> None:
    a = us.tensor(matrix(values))
    kept, protected = (leading_space(a, 2, protected=protected) for protected in (False, True))
    w = weights(3, 3) if values[1] == 0 else np.zeros((3, 3))

    def loss(space: Any) -> us.Tensor:
        return inner(w, space.isometry @ space.rest) + us.sum(us.square(space.rest))

    with pytest.raises(GaugeError, match="cuts through equal singular values"):
        loss(kept).grad(a).eval()
    if values[1]:
        s = np.linalg.svd(a.eval(), compute_uv=False)
        slope = np.sum(loss(protected).grad(a).eval() * a.eval())  # along A, which keeps equal values equal
        np.testing.assert_allclose(slope, 2 * np.sum(s[:2] ** 2), rtol=1e-12)


def test_a_loss_that_is_stationary_in_the_choice_that_was_made_is_refused_too() -> None:
    # Of two equal values the vector along an axis is kept: what turns it within their space is sent nothing back.
    a = us.tensor(np.diag([2.0, 1.0, 1.0]))
    isometry = leading_space(a, 2).isometry
    with pytest.raises(GaugeError, match="rank 2 cuts through equal singular values"):
        us.sum(us.diagonal(isometry @ isometry.mT) * [0.0, 1.0, 2.0]).grad(a).eval()


def test_a_direction_that_tells_equal_values_at_the_cut_apart_is_refused() -> None:
    a, t = matrix([2.0, 1.0, 1.0]), weights(3, 3)
    with pytest.raises(GaugeError, match="rank 2 cuts through equal singular values"):
        us.jvp(lambda x: leading_space(x, 2).isometry, (a,), (t,))[1].eval()


def test_what_rounding_leaves_of_a_loss_is_no_reason_to_refuse() -> None:
    # Two ways to group a product: what comes back is rounding, of any size in any direction.
    a, first, second = us.tensor(matrix([3.0, 2.0, 1.0, 0.5])), weights(2, 5), weights(5, 2)
    isometry = leading_space(a, 2).isometry
    loss = us.sum(weights(4, 2) * ((isometry @ first) @ second - isometry @ (first @ second)))
    sent = loss.grad(isometry).eval()
    assert 0 < np.max(np.abs(sent)) < 1e-14
    np.testing.assert_allclose(loss.grad(a).eval(), np.zeros((4, 4)), rtol=0, atol=1e-13)


def test_noise_is_judged_by_the_terms_it_is_left_of() -> None:
    # Stationary and large: what comes back is rounding of terms that cancel, far above that of a loss of order one.
    a, first, second = us.tensor(matrix([3.0, 2.0, 1.0, 0.5])), weights(2, 5), weights(5, 2)
    isometry = leading_space(a, 2).isometry
    loss = us.sum(1e9 * weights(4, 2) * ((isometry @ first) @ second - isometry @ (first @ second)))
    assert np.max(np.abs(loss.grad(isometry).eval())) > 1e-8
    np.testing.assert_allclose(loss.grad(a).eval(), np.zeros((4, 4)), rtol=0, atol=1e-4)


def test_a_small_loss_is_judged_as_a_large_one_with_a_lower_tolerance() -> None:
    a = us.tensor(matrix([3.0, 2.0, 1.0]))
    with us.linalg.tolerances(gauge=1e-12):
        isometry = leading_space(a, 2).isometry
    for size in (1e-16, 1.0, 1e16):
        with pytest.raises(GaugeError, match="depends on which basis"):
            us.sum(size * weights(3, 2) * isometry).grad(a).eval()


def test_a_loss_that_is_trusted_is_not_asked_for_the_basis() -> None:
    a = us.tensor(matrix([3.0, 2.0, 1.0]))
    isometry = leading_space(a, 2, trusted=True).isometry
    # The isometry moves by what is orthogonal to it: that of the projector, along its basis.
    sent = us.sum(weights(3, 2) * isometry).grad(a).eval()
    along = us.sum((weights(3, 2) @ isometry.eval().T) * (isometry @ isometry.T)).grad(a).eval()
    np.testing.assert_allclose(sent, along, rtol=0, atol=1e-12)


def test_where_all_values_are_zero_a_loss_that_is_flat_has_the_gradient_zero() -> None:
    a = us.tensor(np.zeros((4, 3)))
    isometry, rest, _ = leading_space(a, 2)
    np.testing.assert_array_equal(us.sum(us.square(isometry @ rest)).grad(a).eval(), np.zeros((4, 3)))


def test_tolerances_of_the_block_in_which_it_is_written_count() -> None:
    a = us.tensor(matrix([2.0, 1.01, 1.0]))
    with us.linalg.tolerances(degeneracy=0.1):
        assert leading_space(a, 2, keep_multiplets=True).rest.shape == (1, 3)
        isometry = leading_space(a, 2).isometry
    with pytest.raises(GaugeError, match="cuts through"):
        inner(weights(3, 3), isometry @ isometry.mT).grad(a).eval()
