"""`svd` and `svdvals`: NumPy's values, exact derivatives, and refusals where a loss depends on what is open.

Losses with closed forms at every kind of spectrum are in `test_probes`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.linalg.oracles import Factored, differences, frame, relative_error, weights
from unspool._ops.linalg import svd as module
from unspool.errors import ArgumentError, GaugeError, KernelError, ShapeError

SHAPES = [(3, 3), (4, 2), (2, 4), (2, 3, 2), (1, 3), (3, 1), (0, 2), (2, 0), (0, 0), (0, 2, 2)]
DTYPES = ["float32", "float64", "complex64", "complex128"]


def inner(w: Any, x: Any) -> Any:
    return us.real(us.sum(np.conj(w) * x))


def matrix(values: Any, field: str = "rotation", extra: tuple[int, int] = (0, 0)) -> Any:
    k = len(values)
    return Factored(frame(k + extra[0], field, 2), np.array(values, float), frame(k + extra[1], field, 3)).matrix


def random(shape: Any, dtype: str) -> Any:
    return weights(*shape, field="complex" if dtype.startswith("c") else "real").astype(dtype)


# --- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_factors_are_those_of_numpy(shape: Any, full: bool, dtype: str) -> None:
    a = random(shape, dtype)
    ours, theirs = us.linalg.svd(us.tensor(a), full), np.linalg.svd(a, full)
    assert ours._fields == ("U", "S", "Vh")
    for mine, other in zip(ours, theirs, strict=True):
        assert (mine.shape, mine.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(mine.eval(), other, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(us.linalg.svdvals(a).eval(), theirs.S, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(us.linalg.svd(a, compute_uv=False).eval(), theirs.S, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("field", ["rotation", "unitary"])
@pytest.mark.parametrize("extra", [(0, 0), (2, 0), (0, 2)])
@pytest.mark.parametrize("values", [(3, 2, 0), (3, 0, 0), (0, 0, 0)])
def test_factors_of_singular_matrices_are_factors(values: Any, extra: Any, field: str, full: bool) -> None:
    a = matrix(values, field, extra)
    u, s, vh = (part.eval() for part in us.linalg.svd(a, full_matrices=full))
    np.testing.assert_allclose((u[:, :3] * s) @ vh[:3], a, atol=1e-14)
    np.testing.assert_allclose(u.conj().T @ u, np.eye(u.shape[1]), atol=1e-14)
    np.testing.assert_allclose(vh @ vh.conj().T, np.eye(len(vh)), atol=1e-14)


def test_integers_become_floats_and_bad_arguments_raise() -> None:
    assert us.linalg.svdvals([[2, 0], [0, 1]]).dtype == np.float64
    with pytest.raises(ShapeError, match="at least two axes"):
        us.linalg.svd([1.0, 2.0])
    with pytest.raises(ArgumentError, match="gauge"):
        us.linalg.svd(np.eye(2), gauge="free")
    with pytest.raises(ArgumentError, match="broaden"):
        us.linalg.svd(np.eye(2), broaden=0)


def test_equal_recipes_of_square_matrices_are_one_whatever_the_form() -> None:
    a = us.tensor(np.eye(3))
    assert us.linalg.svd(a).S is us.linalg.svd(a, full_matrices=False).S


def test_a_second_algorithm_helps_out_where_the_first_does_not_converge(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*args: Any, **options: Any) -> Any:
        raise np.linalg.LinAlgError("SVD did not converge")

    a = weights(2, 3, 2)
    expected = np.linalg.svd(a, full_matrices=False)
    monkeypatch.setattr(module.np.linalg, "svd", failing)
    u, s, vh = us.linalg.svd(a, full_matrices=False)
    np.testing.assert_allclose(((u * s[:, None, :]) @ vh).eval(), a, atol=1e-14)
    np.testing.assert_allclose(s.eval(), expected.S)
    with pytest.raises(KernelError, match="converge"):
        us.linalg.svd(a * np.nan).S.eval()


# --- derivatives -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("field", ["real", "complex"])
def test_one_graph_of_unknown_sizes_serves_tall_wide_and_square_matrices(field: str, full: bool) -> None:
    m, n = us.dims("m n")
    x = us.placeholder((m, n), "complex128" if field == "complex" else "float64")
    k = us.linalg.svdvals(x).shape[-1]
    u, s, vh = us.linalg.svd(x, full_matrices=full)
    u, vh = u[:, :k], vh[:k]
    loss = us.real(us.sum((u * s**3) @ vh * 2.0)) + us.sum(us.abs(us.sum(u, axis=0)) ** 2 * s)
    gradient = loss.grad(x)
    for shape in [(4, 2), (2, 4), (3, 3), (1, 3), (0, 2)]:
        a = weights(*shape, field=field)
        found = gradient.eval({x: a})
        np.testing.assert_allclose(found, differences(lambda b: loss.eval({x: b}), a), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_single_precision_is_right_at_equal_values_too(dtype: str) -> None:
    a = matrix([3, 1, 1], "unitary" if dtype == "complex64" else "rotation").astype(dtype)
    x = us.tensor(a)
    u, s, vh = us.linalg.svd(x)
    gradient = us.linalg.norm((u * s) @ vh).grad(x).eval()
    assert gradient.dtype == dtype
    np.testing.assert_allclose(gradient, a / np.linalg.norm(a), atol=1e-5)


def test_the_norm_of_the_product_of_equal_values() -> None:
    a = us.tensor(np.diag([1.0, 1.0, 2.0, 3.0]))
    u, s, vh = us.linalg.svd(a)
    np.testing.assert_allclose(us.linalg.norm((u * s) @ vh).grad(a).eval(), a.eval() / np.sqrt(15), atol=1e-15)


@pytest.mark.parametrize("field", ["rotation", "unitary"])
@pytest.mark.parametrize("extra", [(3, 0), (0, 3)])
def test_the_projector_on_what_a_full_decomposition_adds(extra: Any, field: str) -> None:
    a, rows = matrix([3, 3, 1], field, extra), extra[0] > 0
    w = weights(6, 6, field="complex" if field == "unitary" else "real")

    def loss(x: Any) -> Any:
        u, _, vh = us.linalg.svd(x)
        rest = u[:, 3:] if rows else vh.H[:, 3:]
        return inner(w, rest @ rest.H)

    def reference(x: Any) -> Any:
        # The complement of the projector on the range, by the normal equations.
        tall = x if rows else x.conj().T
        return np.real(np.sum(w.conj() * (np.eye(6) - tall @ np.linalg.solve(tall.conj().T @ tall, tall.conj().T))))

    x = us.tensor(a)
    np.testing.assert_allclose(loss(x).grad(x).eval(), differences(reference, a), atol=1e-9)


def test_second_derivatives_at_equal_values_are_right_or_refused() -> None:
    def loss(x: Any) -> Any:
        u, s, vh = us.linalg.svd(x)
        return us.linalg.norm((u * s) @ vh) ** 2

    a = us.tensor(np.diag([2.0, 2.0, 1.0]))
    along = us.tensor(weights(3, 3))
    with pytest.raises(GaugeError):
        us.sum(loss(a).grad(a) * along).grad(a).eval()
    kept = np.diag([1.0, 1.0, 3.0])
    np.testing.assert_allclose(us.jvp(us.grad(loss), (a,), (kept,))[1].eval(), 2 * kept, atol=1e-12)


# --- what is open ----------------------------------------------------------------------------------------------------


def test_a_loss_that_depends_on_a_phase_is_refused() -> None:
    x = us.tensor(weights(3, 3, field="complex"))
    with pytest.raises(GaugeError, match=r'phase of the vectors of singular value \d.*gauge="fixed"') as refused:
        us.real(us.linalg.svd(x).U[0, 0]).grad(x).eval()
    assert len(refused.value.indices) == 1
    assert refused.value.amount > 1e-3


def test_a_loss_that_depends_on_a_basis_is_refused() -> None:
    x = us.tensor(matrix([3, 1, 1]))
    u = us.linalg.svd(x).U
    with pytest.raises(GaugeError, match="singular values (1 and 2|2 and 1) are equal") as refused:
        inner(weights(3, 3), u[:, :2] @ u[:, :2].H).grad(x).eval()
    assert set(refused.value.indices) == {1, 2}


def test_a_loss_that_depends_on_vectors_of_zero_is_refused() -> None:
    x = us.tensor(matrix([3, 1, 0], extra=(2, 0)))
    u = us.linalg.svd(x, full_matrices=False).U
    with pytest.raises(GaugeError, match="singular value 2 is zero"):
        inner(weights(5, 5), u @ u.H).grad(x).eval()


def test_one_of_two_equal_singular_values_has_no_derivative() -> None:
    x = us.tensor(matrix([3, 3, 1]))
    with pytest.raises(GaugeError, match="tells them apart"):
        us.linalg.svdvals(x)[0].grad(x).eval()
    near = us.tensor(matrix([3 + 1e-10, 3, 1]))
    gradient = us.linalg.svdvals(near)[0].grad(near).eval()
    assert relative_error(gradient @ gradient.T @ gradient, gradient) < 1e-9


def test_forward_mode_refuses_directions_that_split_equal_values() -> None:
    a, loss = matrix([3, 3, 1]), lambda x: us.sum(us.linalg.svdvals(x) ** 2)
    with pytest.raises(GaugeError, match="Reverse mode"):
        us.jvp(loss, (a,), (weights(3, 3),))[1].eval()
    np.testing.assert_allclose(us.jvp(loss, (a,), (a,))[1].eval(), 2 * np.sum(a * a))


def test_a_fixed_gauge_makes_the_largest_entry_of_each_left_vector_positive() -> None:
    a = weights(3, 4, field="complex")
    for full in (False, True):
        u, s, vh = (part.eval() for part in us.linalg.svd(a, full, gauge="fixed"))
        largest = np.take_along_axis(u, np.argmax(np.abs(u), axis=0)[None], axis=0)
        np.testing.assert_allclose(largest, np.abs(largest), atol=1e-15)
        np.testing.assert_allclose((u * s) @ vh[:3], a, atol=1e-14)
    assert us.linalg.svd(np.zeros((0, 2)), gauge="fixed").U.eval().shape == (0, 0)


def test_broadening_never_refuses_and_is_biased() -> None:
    a, w = np.diag([3.0, 1.0, 1.0]), weights(3, 3)
    x = us.tensor(a)
    u, s, vh = us.linalg.svd(x, broaden=1e-3)
    gradient = inner(w, (u * s) @ vh).grad(x).eval()
    assert np.all(np.isfinite(gradient))
    missing = gradient - w
    np.testing.assert_allclose(missing[1:, 1:], -(w[1:, 1:] + w[1:, 1:].T) / 2 * (1 - np.eye(2)), atol=1e-5)


# --- a step of a loop ------------------------------------------------------------------------------------------------


def renormalise(t: Any) -> Any:
    """Return the tensor of twice as large a lattice, in which half of the legs are cut off at four values."""
    d = t.shape[0]
    halves = []
    for legs in [(0, 1, 2, 3), (3, 0, 1, 2)]:
        u, s, vh = us.linalg.truncated_svd(t.transpose(legs).reshape((d * d, d * d)), rank=4, rtol=1e-12)
        root = us.sqrt(s)
        halves += [(u * root).reshape((d, d, len(s.eval()))), (root[:, None] * vh).reshape((len(s.eval()), d, d))]
    return us.einsum("xya,byz,czw,wxd->abcd", halves[0], halves[3], halves[1], halves[2])


def free_energy(beta: Any) -> Any:
    """Return log Z of the Ising model on a small torus, whose tensors have exactly degenerate singular values."""
    even, odd = us.sqrt(us.cosh(beta)), us.sqrt(us.sinh(beta))
    m = us.stack([us.stack([even, odd]), us.stack([even, -odd])])
    t = us.einsum("ai,aj,ak,al->ijkl", m, m, m, m)
    for _ in range(3):
        t = renormalise(t)
    return us.log(us.einsum("ijij->", t))


@pytest.mark.parametrize("beta", [0.3, 0.4406867935097715])
def test_a_renormalisation_of_the_ising_model_passes_the_checks(beta: float) -> None:
    x = us.tensor(beta)
    expected = differences(lambda b: free_energy(us.tensor(b)), np.array(beta), step=1e-4)
    np.testing.assert_allclose(free_energy(x).grad(x).eval(), expected, rtol=1e-7)
