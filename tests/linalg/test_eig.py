"""`eig` and `eigvals`: complex whatever the values, right derivatives, and refusals where there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import unspool as us
from unspool._ops.linalg.eig_checks import close_pairs
from unspool.errors import ArgumentError, GaugeError, KernelError, ShapeError

GENERATOR = np.random.default_rng(7)
BASIS = GENERATOR.normal(size=(4, 4))
WEIGHTS = GENERATOR.normal(size=(4, 4))
DIRECTION = GENERATOR.normal(size=(4, 4))


def with_eigenvalues(*values: float) -> Any:
    return BASIS @ np.diag(values) @ np.linalg.inv(BASIS)


def composed(x: us.Tensor, function: Callable[[Any], Any], **options: Any) -> us.Tensor:
    """Return V·f(Λ)·V⁻¹, weighted and summed."""
    w, v = us.linalg.eig(x, **options)
    return us.real(us.sum(us.tensor(WEIGHTS) * ((v * function(w)) @ us.linalg.inv(v))))


def gradient(loss: Callable[[us.Tensor], us.Tensor], at: Any) -> Any:
    x = us.tensor(at)
    return loss(x).grad(x).eval()


# --- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 3), (1, 1), (0, 0), (2, 0, 0), (0, 2, 2)])
def test_columns_are_eigenvectors_of_norm_one(shape: tuple[int, ...], dtype: str) -> None:
    a = np.random.default_rng(1).normal(size=shape).astype(dtype)
    w, v = us.linalg.eig(a)
    assert w.dtype == v.dtype == np.result_type(dtype, "complex64")
    assert w.shape == shape[:-1]
    values, vectors = w.eval(), v.eval()
    assert values.dtype == vectors.dtype == w.dtype
    np.testing.assert_allclose(a @ vectors, vectors * values[..., None, :], atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=-2), np.ones(shape[:-1]), rtol=1e-5)


def test_results_are_complex_also_where_all_imaginary_parts_vanish() -> None:
    result = us.linalg.eig([[2.0, 0.0], [0.0, 3.0]])
    assert result.eigenvalues.eval().dtype == np.complex128
    assert result.eigenvectors.eval().dtype == np.complex128
    assert us.linalg.eigvals([[2, 0], [0, 3]]).dtype == np.complex128


def test_eigvals_are_those_of_eig() -> None:
    assert us.linalg.eigvals(x := us.tensor(BASIS)) is us.linalg.eig(x).eigenvalues


def test_the_fixed_gauge_makes_the_largest_entry_of_each_column_real_and_positive() -> None:
    a = BASIS + 1j * WEIGHTS
    v = us.linalg.eig(a, gauge="fixed").eigenvectors.eval()
    largest = v[np.argmax(np.abs(v), axis=0), np.arange(4)]
    np.testing.assert_allclose(largest, np.abs(largest), atol=1e-15)


def test_entries_that_are_equal_but_for_rounding_do_not_take_turns() -> None:
    turned = [us.linalg.eig([[0.0, 1.0], [-1.0 + d, 0.0]], gauge="fixed").eigenvectors.eval() for d in (-1e-9, 1e-9)]
    np.testing.assert_allclose(*turned, atol=1e-8)


# --- derivatives -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["real", "complex"])
def test_a_function_of_the_matrix_by_eigenvectors_has_the_derivative_of_the_function(field: str) -> None:
    a = BASIS / 2 + (1j * DIRECTION / 2 if field == "complex" else 0)
    expected = scipy.linalg.expm_frechet(a.conj().T, WEIGHTS.astype(a.dtype), compute_expm=False)
    np.testing.assert_allclose(gradient(lambda x: composed(x, us.exp), a), expected, rtol=1e-9, atol=1e-10)


def test_single_precision_stays_single() -> None:
    a = (BASIS / 2).astype("float32")
    found = gradient(lambda x: composed(us.astype(x, "float32"), us.exp), a)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, scipy.linalg.expm_frechet(a.T, WEIGHTS, compute_expm=False), rtol=1e-3, atol=1e-3)


def test_a_stack_has_the_derivatives_of_its_matrices() -> None:
    stack = np.stack([BASIS, DIRECTION])

    def loss(x: us.Tensor) -> us.Tensor:
        w, v = us.linalg.eig(x)
        return us.sum(us.abs(v) ** 4) + us.real(us.sum(w**3))

    found = gradient(loss, stack)
    np.testing.assert_allclose(found, np.stack([gradient(loss, a) for a in stack]), rtol=1e-10)


def test_unknown_sizes_make_no_difference() -> None:
    n = us.dims("n")
    p = us.placeholder((n, n))
    w, v = us.linalg.eig(p, gauge="fixed")
    loss = us.sum(us.abs(v) ** 4) + us.real(us.sum(us.exp(w / 4))) + us.real(us.sum(v))
    first = loss.grad(p)
    second = us.sum(first**2).grad(p)
    for a in (BASIS, BASIS[:2, :2], np.ones((1, 1)), np.zeros((0, 0))):
        x = us.tensor(a)
        w, v = us.linalg.eig(x, gauge="fixed")
        g = (us.sum(us.abs(v) ** 4) + us.real(us.sum(us.exp(w / 4))) + us.real(us.sum(v))).grad(x)
        np.testing.assert_allclose(first.eval({p: a}), g.eval(), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(second.eval({p: a}), us.sum(g**2).grad(x).eval(), rtol=1e-8, atol=1e-10)


# --- equal eigenvalues -----------------------------------------------------------------------------------------------

GAPS = [1e-4, 1e-6, 1e-8, 1e-10, 1e-12, 1e-14, 0.0]
SYMMETRIC = {
    "trace": (lambda w: w, lambda a: np.eye(4)),
    "trace of the square": (lambda w: w**2, lambda a: 2 * a.T),
    "log det": (us.log, lambda a: np.linalg.inv(a).T),
}


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("name", SYMMETRIC)
@pytest.mark.parametrize("third", [2.0, 1.0])
def test_what_treats_equal_eigenvalues_alike_has_its_derivative(name: str, gap: float, third: float) -> None:
    function, expected = SYMMETRIC[name]
    for a in (with_eigenvalues(1, 1 + gap, third, 3), np.diag([1, 1 + gap, third, 3])):
        found = gradient(lambda x: us.real(us.sum(function(us.linalg.eigvals(x)))), a)
        np.testing.assert_allclose(found, expected(a), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("gap", GAPS)
def test_the_projector_on_a_block_has_its_derivative(gap: float) -> None:
    values = np.array([1, 1 + gap, 2, 3])
    a = with_eigenvalues(*values)
    inside = values < 1.5
    gaps = np.where(np.equal.outer(inside, inside), 1, np.subtract.outer(values, values))
    slopes = np.subtract.outer(inside * 1.0, inside * 1.0) / gaps
    inverse = np.linalg.inv(BASIS)
    expected = (BASIS @ (slopes * (inverse @ WEIGHTS.T @ BASIS)) @ inverse).T
    chosen = us.tensor(np.linalg.eig(a)[0] < 1.5) * 1.0
    found = gradient(lambda x: composed(x, lambda w: chosen), a)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("basis", ["general", "axes"])
def test_a_function_of_values_and_vectors_is_right_or_refused(gap: float, basis: str) -> None:
    a = with_eigenvalues(1, 1 + gap, 2, 3) if basis == "general" else np.diag([1, 1 + gap, 2, 3])
    if gap <= 1e-8:
        with pytest.raises(GaugeError, match="together with their eigenvectors"):
            gradient(lambda x: composed(x, us.exp), a)
    else:
        expected = scipy.linalg.expm_frechet(a.T, WEIGHTS, compute_expm=False)
        np.testing.assert_allclose(gradient(lambda x: composed(x, us.exp), a), expected, rtol=1e-6, atol=1e-6)


def test_cotangents_that_happen_to_vanish_are_refused_too() -> None:
    """The gradient of Σ C∘(V·Λ·V⁻¹) is C, of which nothing arrives at the eigenvalues if its diagonal is 0."""
    x = us.tensor(np.eye(2))
    w, v = us.linalg.eig(x)
    loss = us.real(us.sum(us.tensor([[0.0, 1.0], [1.0, 0.0]]) * ((v * w) @ us.linalg.inv(v))))
    with pytest.raises(GaugeError):
        loss.grad(x).eval()
    first = us.real(us.sum(us.linalg.eigvals(x) ** 2)).grad(x)
    with pytest.raises(GaugeError):
        us.sum(first * us.tensor([[0.0, 1.0], [1.0, 0.0]])).grad(x).eval()


def test_vectors_beside_a_block_that_nobody_looks_at_have_their_derivatives() -> None:
    a = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.3, 0.4, 2.0]])
    k = int(np.argmax(np.linalg.eig(a)[0]))

    def loss(x: us.Tensor) -> us.Tensor:
        w, v = us.linalg.eig(x)
        return us.real(w[k]) * us.sum(us.abs(v[:, k]) ** 4)

    np.testing.assert_allclose(gradient(loss, a), [[0, 0, 0.3], [0, 0, 0.4], [0, 0, 1]], atol=1e-12)


def test_the_second_derivative_of_the_trace_vanishes_at_equal_eigenvalues() -> None:
    x = us.tensor(with_eigenvalues(1, 1, 2, 3))
    first = (1e5 * us.real(us.sum(us.linalg.eigvals(x)))).grad(x)
    np.testing.assert_allclose(us.sum(first * us.tensor(DIRECTION)).grad(x).eval(), np.zeros((4, 4)), atol=1e-8)


@pytest.mark.parametrize("size", [2, 3])
def test_broadening_is_finite_at_equal_eigenvalues_and_exact_away_from_them(size: int) -> None:
    values = np.array([1.0, 1.0, 1.0 if size == 3 else 2.0, 3.0])
    assert np.isfinite(gradient(lambda x: composed(x, us.exp, broaden=1e-3), with_eigenvalues(*values))).all()
    a = with_eigenvalues(1, 2, 3, 4)
    found = gradient(lambda x: composed(x, us.exp, broaden=1e-6), a)
    np.testing.assert_allclose(found, scipy.linalg.expm_frechet(a.T, WEIGHTS, compute_expm=False), rtol=1e-8, atol=1e-8)


def test_the_tolerance_is_that_of_the_call_or_of_the_context() -> None:
    a = with_eigenvalues(1, 1.001, 2, 3)
    assert np.isfinite(gradient(lambda x: composed(x, us.exp), a)).all()
    with pytest.raises(GaugeError):
        gradient(lambda x: composed(x, us.exp, rtol=1e-2), a)
    with us.linalg.tolerances(degeneracy=1e-2), pytest.raises(GaugeError):
        gradient(lambda x: composed(x, us.exp), a)


def test_equality_passes_along_chains() -> None:
    near = close_pairs(np.array([[0.0, 1.0, 2.0, 9.0], [0.0, 3.0, 6.0, 9.0]]) + 0j, 0.12)
    np.testing.assert_array_equal(near[0], scipy.linalg.block_diag(np.ones((3, 3)), 1).astype(bool))
    np.testing.assert_array_equal(near[1], np.eye(4, dtype=bool))


# --- refusals --------------------------------------------------------------------------------------------------------

DEPENDENT = {
    "a phase": (lambda x: us.imag(us.sum(us.linalg.eig(x).eigenvectors)), BASIS, "phase of eigenvector"),
    "a basis": (
        lambda x: us.sum(us.tensor(WEIGHTS) * us.abs(us.linalg.eig(x).eigenvectors) ** 2),
        with_eigenvalues(1, 1, 2, 3),
        "which basis",
    ),
    "a basis, stationary": (
        lambda x: us.sum(us.abs(us.linalg.eig(x).eigenvectors) ** 4),
        np.eye(4),
        "which basis",
    ),
    "one of two": (lambda x: us.real(us.linalg.eigvals(x)[0]), np.diag([1.0, 1.0, 2.0, 3.0]), "tells them apart"),
    "a defective value": (
        lambda x: us.real(us.sum(us.linalg.eigvals(x) ** 2)),
        np.diag([1.0, 1.0, 2.0, 3.0]) + np.diag([1.0, 0.0, 0.0], 1),
        "defective",
    ),
}


@pytest.mark.parametrize("case", DEPENDENT)
def test_a_loss_that_depends_on_what_is_open_is_refused(case: str) -> None:
    loss, at, reason = DEPENDENT[case]
    with pytest.raises(GaugeError, match=reason) as caught:
        gradient(loss, at)
    assert "test_eig.py" in str(caught.value)
    assert caught.value.indices  # type: ignore[attr-defined]


@pytest.mark.parametrize("distance", [10.0**-k for k in range(2, 17)])
def test_near_a_defective_matrix_derivatives_are_right_or_refused(distance: float) -> None:
    turn = np.linalg.qr(BASIS[:3, :3])[0]
    a = turn @ np.array([[1, 1, 0], [distance, 1, 0], [0, 0, 3]]) @ turn.T
    root = np.sqrt(distance)
    k = int(np.argmin(np.abs(np.linalg.eig(a)[0] - 1 - root)))
    expected = turn @ np.outer([root, 1, 0], [1, root, 0]) @ turn.T / (2 * root)

    def loss(x: us.Tensor) -> us.Tensor:
        return us.real(us.linalg.eigvals(x)[k])

    if distance < 5e-10:
        with pytest.raises(GaugeError, match="defective"):
            gradient(loss, a)
    else:
        assert np.abs(gradient(loss, a) - expected).max() <= 1e-6 * np.abs(expected).max()


def test_forward_mode_refuses_a_direction_that_splits_equal_eigenvalues() -> None:
    a = with_eigenvalues(1, 1, 2, 3)
    with pytest.raises(GaugeError, match="splits"):
        us.jvp(us.linalg.eigvals, (us.tensor(a),), (us.tensor(DIRECTION),))[1].eval()
    moved = us.jvp(us.linalg.eigvals, (us.tensor(a),), (us.tensor(a @ a),))[1].eval()
    np.testing.assert_allclose(np.sort(moved.real), [1, 1, 4, 9], rtol=1e-10)


def test_the_fixed_gauge_lets_a_loss_depend_on_phases() -> None:
    x = us.tensor(BASIS)
    loss = us.real(us.sum(us.tensor(WEIGHTS * (1 + 1j)) * us.linalg.eig(x, gauge="fixed").eigenvectors))
    assert np.isfinite(loss.grad(x).eval()).all()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"x": np.zeros(3)}, ShapeError),
        ({"x": np.zeros((2, 3))}, ShapeError),
        ({"x": np.eye(2), "gauge": "free"}, ArgumentError),
        ({"x": np.eye(2), "broaden": 0.0}, ArgumentError),
        ({"x": np.eye(2), "broaden": "wide"}, ArgumentError),
        ({"x": np.eye(2), "rtol": -1.0}, ArgumentError),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        us.linalg.eig(**arguments)


def test_a_matrix_with_nan_fails_with_the_line_that_used_it() -> None:
    with pytest.raises(KernelError, match=r"test_eig\.py"):
        us.linalg.eigvals([[np.nan, 0.0], [0.0, 1.0]]).eval()
