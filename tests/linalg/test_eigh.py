"""`eigh` and `eigvalsh`: NumPy's values, derivatives among Hermitian matrices, and refusals.

Losses with closed forms at every kind of spectrum are in `test_probes`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.linalg.oracles import Hermitian, frame, hermitian, weights
from unspool.errors import ArgumentError, GaugeError, ShapeError

DTYPES = ["float32", "float64", "complex64", "complex128"]


def inner(w: Any, x: Any) -> Any:
    return us.real(us.sum(np.conj(w) * x))


def matrix(values: Any, kind: str = "rotation") -> Any:
    return Hermitian(np.array(values, float), frame(len(values), kind)).matrix


def random(shape: Any, dtype: str) -> Any:
    return weights(*shape, field="complex" if dtype.startswith("c") else "real").astype(dtype)


# --- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("uplo", ["L", "U"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 3), (1, 1), (0, 0), (0, 2, 2)], ids=str)
def test_factors_are_those_of_numpy_and_one_triangle_is_read(shape: Any, dtype: str, uplo: str) -> None:
    a = random(shape, dtype)
    ours, theirs = us.linalg.eigh(us.tensor(a), uplo), np.linalg.eigh(a, uplo)
    assert ours._fields == ("eigenvalues", "eigenvectors")
    for mine, other in zip(ours, theirs, strict=True):
        assert (mine.shape, mine.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(mine.eval(), other, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(us.linalg.eigvalsh(a, uplo).eval(), theirs.eigenvalues, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["axes", "rotation", "unitary"])
@pytest.mark.parametrize("values", [(0, 0, 3), (-1, 0, 0), (0, 0, 0), (0, 1, 2)], ids=str)
def test_factors_of_singular_matrices_are_factors(values: Any, kind: str) -> None:
    a = matrix(values, kind)
    found, vectors = (part.eval() for part in us.linalg.eigh(a))
    np.testing.assert_allclose((vectors * found) @ vectors.conj().T, a, atol=1e-15)
    np.testing.assert_allclose(vectors.conj().T @ vectors, np.eye(3), atol=1e-14)


def test_bad_arguments_raise() -> None:
    with pytest.raises(ShapeError, match="square"):
        us.linalg.eigh(np.zeros((2, 3)))
    with pytest.raises(ArgumentError, match="UPLO"):
        us.linalg.eigvalsh(np.eye(2), "X")
    with pytest.raises(ArgumentError, match="gauge"):
        us.linalg.eigh(np.eye(2), gauge=None)  # type: ignore[arg-type]


# --- derivatives -----------------------------------------------------------------------------------------------------


def test_a_graph_of_unknown_size_serves_all() -> None:
    n = us.dims("n")
    x = us.placeholder((n, n))
    values, vectors = us.linalg.eigh(x)
    gradient = us.sum((vectors * values**2) @ vectors.mT).grad(x)
    for size in (0, 1, 2, 5):
        a = hermitian(weights(size, size))
        ones = np.ones((size, size))
        np.testing.assert_allclose(gradient.eval({x: a}), a @ ones + ones @ a, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_single_precision_is_right_at_equal_values_too(dtype: str) -> None:
    h = Hermitian(np.array([1.0, 1.0, 3.0]), frame(3, "unitary" if dtype == "complex64" else "rotation"))
    x, w = us.tensor(h.matrix.astype(dtype)), weights(3, 3).astype("float32")
    v = us.linalg.eigh(x).eigenvectors[:, :2]
    found = inner(w, v @ v.H).grad(x).eval()
    expected = h.pull_back(w, np.array([[0, 0, -0.5], [0, 0, -0.5], [-0.5, -0.5, 0]]))
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected, atol=1e-5)


# --- what is open ----------------------------------------------------------------------------------------------------


def test_a_loss_that_depends_on_a_phase_is_refused_and_has_a_derivative_by_convention() -> None:
    x = us.tensor(hermitian(weights(3, 3, field="complex")))
    with pytest.raises(GaugeError, match=r"phase of the vectors of eigenvalue \d"):
        us.real(us.sum(us.linalg.eigh(x).eigenvectors)).grad(x).eval()
    fixed = us.linalg.eigh(x, gauge="fixed").eigenvectors
    largest = np.take_along_axis(fixed.eval(), np.argmax(np.abs(fixed.eval()), axis=0)[None], axis=0)
    np.testing.assert_allclose(largest, np.abs(largest), atol=1e-15)
    assert np.all(np.isfinite(us.real(fixed[0, 0]).grad(x).eval()))


def test_a_loss_that_depends_on_a_basis_is_refused_unless_broadened() -> None:
    x = us.tensor(matrix([1, 1, 2]))
    w = weights(3, 3)
    v = us.linalg.eigh(x).eigenvectors[:, :1]
    with pytest.raises(GaugeError, match="eigenvalues (0 and 1|1 and 0) are equal") as refused:
        inner(w, v @ v.H).grad(x).eval()
    assert set(refused.value.indices) == {0, 1}
    assert refused.value.amount > 1e-3
    v = us.linalg.eigh(x, broaden=1e-3).eigenvectors[:, :1]
    assert np.all(np.isfinite(inner(w, v @ v.H).grad(x).eval()))


def test_a_tolerance_of_the_call_says_what_is_equal() -> None:
    a = us.tensor(matrix([1, 1 + 1e-5, 2]))
    w = weights(3, 3)
    for rtol, refused in ((None, False), (1e-4, True)):
        v = us.linalg.eigh(a, rtol=rtol).eigenvectors[:, :1]
        gradient = inner(w, v @ v.H).grad(a)
        if refused:
            with pytest.raises(GaugeError):
                gradient.eval()
        else:
            assert np.all(np.isfinite(gradient.eval()))


def test_one_of_two_equal_eigenvalues_has_no_derivative() -> None:
    x = us.tensor(matrix([1, 1, 2]))
    with pytest.raises(GaugeError, match="tells them apart"):
        us.linalg.eigvalsh(x)[0].grad(x).eval()
    np.testing.assert_allclose(us.sum(us.linalg.eigvalsh(x)).grad(x).eval(), np.eye(3), atol=1e-14)
    with pytest.raises(GaugeError, match="Reverse mode"):
        us.jvp(us.linalg.eigvalsh, (x,), (hermitian(weights(3, 3)),))[1].eval()


def test_values_and_vectors_of_a_null_space_cannot_hide_that_they_belong_together() -> None:
    # On the axes, where LAPACK would put the basis, no value sees the weight.
    w = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    for at in (np.diag([0.0, 0.0, 2.0]), np.zeros((3, 3))):
        x = us.tensor(at)
        values, vectors = us.linalg.eigh(x)
        with pytest.raises(GaugeError, match="together"):
            us.sum(w * ((vectors * values) @ vectors.mT)).grad(x).eval()
        u, s, vh = us.linalg.svd(x)
        with pytest.raises(GaugeError, match="zero"):
            us.sum(w * ((u * s) @ vh)).grad(x).eval()
