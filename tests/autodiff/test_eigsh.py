"""`eigsh`: eigenpairs, derivatives of every order held against dense ones, and refusals at degenerate spectra.

References are `numpy.linalg.eigh` for values, and for derivatives finite differences and `us.linalg.eigh`, whose rules
divide by gaps and solve nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.autodiff.counting import Counted
from unspool.errors import ArgumentError, ConvergenceError, GaugeError, ShapeError

FIELDS = ["real", "complex"]
ENDS = ["SA", "LA", "LM"]


def random(*shape: int, field: str = "real", seed: int = 0) -> Any:
    draw = np.random.default_rng(seed).standard_normal
    return draw(shape) + 1j * draw(shape) if field == "complex" else draw(shape)


def hermitian(a: Any) -> Any:
    return (a + us.conj(a.mT)) / 2 if isinstance(a, us.Tensor) else (a + a.conj().T) / 2


def with_spectrum(values: Any, field: str = "real", seed: int = 0) -> Any:
    frame = np.linalg.qr(random(len(values), len(values), field=field, seed=seed))[0]
    return hermitian((frame * np.asarray(values, float)) @ frame.conj().T)


def positions(values: Any, k: int, which: str) -> list[int]:
    if which == "LM":
        return sorted(int(i) for i in np.argsort(-np.abs(values))[:k])
    return list(range(k)) if which == "SA" else list(range(len(values) - k, len(values)))


def dense_pairs(a: Any, k: int, which: str) -> tuple[Any, Any]:
    values, vectors = us.linalg.eigh(a)
    chosen = positions(values.eval(), k, which)
    return us.stack([values[i] for i in chosen]), us.stack([vectors[:, i] for i in chosen], axis=1)


def loss(values: Any, vectors: Any) -> Any:
    """A number that depends on eigenvalues and on eigenvectors, but not on their phases."""
    n, k = vectors.shape
    overlaps = us.sum(vectors * random(n, k, field="complex", seed=5), axis=0)
    return us.sum(us.sin(values)) + us.sum(us.real(overlaps * us.conj(overlaps)) * np.arange(1, k + 1))


# --- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("which", ENDS)
@pytest.mark.parametrize(("n", "k"), [(1, 1), (2, 2), (5, 3), (21, 1), (40, 1), (40, 4), (40, 39)])
def test_pairs_are_those_of_numpy_and_orthonormal(n: int, k: int, which: str, field: str) -> None:
    a = hermitian(random(n, n, field=field))
    values, vectors = us.linalg.eigsh(us.tensor(a), random(n, seed=1), k=k, which=which)
    assert (values.shape, vectors.shape) == ((k,), (n, k))
    assert values.dtype == "float64" and vectors.dtype == a.dtype
    expected = np.linalg.eigvalsh(a)
    np.testing.assert_allclose(values.eval(), expected[positions(expected, k, which)], atol=1e-12)
    found = vectors.eval()
    np.testing.assert_allclose(a @ found, found * values.eval(), atol=1e-11)
    np.testing.assert_allclose(found.conj().T @ found, np.eye(k), atol=1e-13)


def test_the_result_is_a_named_tuple_like_that_of_eigh() -> None:
    assert us.linalg.eigsh(np.eye(3), np.ones(3))._fields == ("eigenvalues", "eigenvectors")


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_single_precision_is_kept(dtype: str) -> None:
    field = "complex" if dtype == "complex64" else "real"
    a = with_spectrum(np.linspace(-1.0, 5.0, 30), field).astype(dtype)
    A = us.tensor(a)
    H = hermitian(A)
    values, vectors = us.linalg.eigsh(H, np.ones(30, "float32"), k=2)
    assert values.dtype == "float32" and vectors.dtype == dtype
    np.testing.assert_allclose(values.eval(), np.linalg.eigvalsh(a)[:2], atol=1e-5)
    weights = random(30, 30, seed=2).astype("float32")
    ours, dense = (
        us.sum(us.real(v @ us.conj(v.mT)) * weights).grad(A).eval() for v in (vectors, us.linalg.eigh(H)[1][:, :2])
    )
    np.testing.assert_allclose(ours, dense, atol=2e-3 * np.abs(dense).max())


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("n", [6, 40])
def test_the_largest_entry_is_positive_and_the_start_does_not_matter(n: int, field: str) -> None:
    a = hermitian(random(n, n, field=field))
    found = [us.linalg.eigsh(a, random(n, seed=s), k=2).eigenvectors.eval() for s in range(3)]
    largest = np.take_along_axis(found[0], np.argmax(np.abs(found[0]), axis=0)[None], axis=0)
    np.testing.assert_allclose(largest, np.abs(largest), atol=1e-14)
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], atol=1e-9)


def test_a_start_that_is_an_eigenvector_of_another_eigenvalue_is_left_behind() -> None:
    d = np.linspace(1.0, 9.0, 50)
    values = us.linalg.eigsh(lambda v: d * v, np.eye(50)[7]).eigenvalues
    np.testing.assert_allclose(values.eval(), [1.0], rtol=1e-12)


def test_an_operator_on_a_tensor_with_many_axes() -> None:
    # The two-site problem of a density-matrix renormalisation group: left, two sites, right.
    shape = (3, 2, 2, 4)
    left, site, right = (hermitian(random(n, n, seed=seed)) for seed, n in enumerate((3, 4, 4)))
    names = "ab,cdef,gh,befh->acdg"

    def operator(v: Any, left: Any, site: Any, right: Any) -> Any:
        return us.einsum(names, left, us.reshape(site, (2, 2, 2, 2)), right, v)

    matrix = np.kron(np.kron(left, site), right)
    L, S, R = (us.tensor(x) for x in (left, site, right))
    values, vectors = us.linalg.eigsh(operator, random(*shape, seed=9), args=(L, S, R), k=2)
    assert vectors.shape == (*shape, 2)
    np.testing.assert_allclose(values.eval(), np.linalg.eigvalsh(matrix)[:2], atol=1e-12)
    v = vectors.eval()[..., 0]
    expected = np.einsum("acdg,cdef,gh,befh->ab", v, site.reshape(2, 2, 2, 2), right, v)
    np.testing.assert_allclose(values[0].grad(L).eval(), expected, atol=1e-11)


@pytest.mark.parametrize("field", FIELDS)
def test_a_null_vector_is_found(field: str) -> None:
    # SciPy applies the operator to the start first, which would take exactly this vector out of it.
    d = np.concatenate([[0.0], np.linspace(1.0, 2.0, 99)]).astype("complex128" if field == "complex" else "float64")
    for sign, which in ((1.0, "SA"), (-1.0, "LA")):
        values, vectors = us.linalg.eigsh(lambda v, sign=sign: sign * d * v, random(100, seed=1), which=which)
        np.testing.assert_allclose(values.eval(), [0.0], atol=1e-14)
        np.testing.assert_allclose(vectors.eval()[:, 0], np.eye(100)[0], atol=1e-12)


def test_an_operator_on_a_nested_structure() -> None:
    a = us.tensor(hermitian(random(6, 6)))

    def operator(v: Any) -> Any:
        x, y = v
        whole = hermitian(a) @ us.concat([x, us.reshape(y, (4,))])
        return whole[:2], us.reshape(whole[2:], (2, 2))

    values, (x, y) = us.linalg.eigsh(operator, (us.ones(2), us.ones((2, 2))), k=2)
    assert x.shape == (2, 2) and y.shape == (2, 2, 2)
    dense = us.linalg.eigh(hermitian(a))
    np.testing.assert_allclose(values.eval(), dense.eigenvalues.eval()[:2], atol=1e-12)
    ours, expected = (us.sum(v**4).grad(a).eval() for v in (y[..., 0], dense.eigenvectors[2:, 0]))
    np.testing.assert_allclose(ours, expected, atol=1e-8)


# --- derivatives -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("which", ENDS)
def test_derivatives_agree_with_differences_to_second_order(which: str, field: str) -> None:
    def measured(a: Any) -> Any:
        values, vectors = us.linalg.eigsh(hermitian(a), np.ones(4), k=2, which=which, solve_tol=1e-13)
        return us.stack([*values, loss(values, vectors)])

    us.check_grad(measured, with_spectrum([-2.0, -0.5, 1.0, 3.0], field), order=2)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("which", ENDS)
@pytest.mark.parametrize(("n", "k"), [(5, 5), (6, 2), (40, 1), (40, 3)])
def test_first_and_second_derivatives_are_those_of_the_dense_decomposition(
    n: int, k: int, which: str, field: str
) -> None:
    a = us.tensor(random(n, n, field=field, seed=3))
    H = hermitian(a)
    direction = random(n, n, field=field, seed=4)
    found = []
    for pairs in (us.linalg.eigsh(lambda v: H @ v, random(n, seed=1), k=k, which=which), dense_pairs(H, k, which)):
        gradient = loss(*pairs).grad(a)
        curvature = us.real(us.sum(us.conj(gradient) * direction)).grad(a)
        found.append([loss(*pairs).eval(), gradient.eval(), curvature.eval()])
    for ours, dense in zip(*found, strict=True):
        np.testing.assert_allclose(ours, dense, atol=1e-8 * np.abs(dense).max())


@pytest.mark.parametrize("field", FIELDS)
def test_forward_mode_is_that_of_the_dense_decomposition(field: str) -> None:
    a, t = random(30, 30, field=field, seed=3), random(30, 30, field=field, seed=4)

    def measured(pairs: Any) -> Any:
        values, vectors = pairs
        return us.concat([values, us.real(us.sum(vectors * us.conj(vectors) * random(30, 2, seed=6), axis=0))])

    ours = us.jvp(lambda m: measured(us.linalg.eigsh(hermitian(m), np.ones(30), k=2)), (a,), (t,))[1]
    dense = us.jvp(lambda m: measured(dense_pairs(hermitian(m), 2, "SA")), (a,), (t,))[1]
    np.testing.assert_allclose(ours.eval(), dense.eval(), rtol=1e-8)


def test_entries_of_real_vectors_have_derivatives_for_the_sign_that_was_returned() -> None:
    us.check_grad(
        lambda a: us.linalg.eigsh(hermitian(a), np.ones(3), solve_tol=1e-13).eigenvectors,
        with_spectrum([1.0, 2.0, 4.0]),
    )


def test_with_a_fixed_gauge_phases_of_complex_vectors_are_differentiated() -> None:
    def measured(a: Any) -> Any:
        return us.linalg.eigsh(hermitian(a), np.ones(3), gauge="fixed", solve_tol=1e-13).eigenvectors

    us.check_grad(measured, with_spectrum([1.0, 2.0, 4.0], "complex"), order=2)


def test_sizes_may_be_unknown_until_evaluation() -> None:
    n: Any = us.dims("n")
    A, start = us.placeholder((n, n)), us.placeholder((n,))
    values, vectors = us.linalg.eigsh(hermitian(A), start, k=2)
    total = us.sum(values**2) + us.sum(vectors[:, 0] ** 4)
    gradient = total.grad(A)
    curvature = us.sum(gradient * gradient).grad(A)
    for number in (3, 30):
        a = us.tensor(random(number, number))
        w, v = dense_pairs(hermitian(a), 2, "SA")
        dense = (us.sum(w**2) + us.sum(v[:, 0] ** 4)).grad(a)
        bound = {A: a.eval(), start: np.ones(number)}
        np.testing.assert_allclose(gradient.eval(bound), dense.eval(), atol=1e-8)
        np.testing.assert_allclose(curvature.eval(bound), us.sum(dense * dense).grad(a).eval(), atol=1e-7)


def test_sizes_may_be_products_of_unknown_ones() -> None:
    @us.fragment
    def lowest(a: Any, b: Any, block: Any) -> Any:
        bond, physical, rest = block.shape
        guess = block.reshape(bond * physical, rest)
        values, vectors = us.linalg.eigsh(
            lambda v: (hermitian(a) @ v).reshape(guess.shape[0], rest) + v @ hermitian(b), guess
        )
        return values[0] + us.sum(vectors**4)

    for bond, physical, rest in ((2, 3, 5), (3, 2, 4)):
        n = bond * physical
        a, b = us.tensor(random(n, n)), us.tensor(random(rest, rest, seed=1))
        total = lowest(a, b, us.tensor(np.ones((bond, physical, rest))))
        full = us.einsum("ij,kl->ikjl", hermitian(a), us.eye(rest)) + us.einsum("ij,kl->ikjl", us.eye(n), hermitian(b))
        w, v = us.linalg.eigh(full.reshape(n * rest, n * rest))
        dense = w[0] + us.sum(v[:, 0] ** 4)
        np.testing.assert_allclose(total.eval(), dense.eval(), rtol=1e-10)
        for ours, other in zip(total.grad([a, b]), dense.grad([a, b]), strict=True):
            np.testing.assert_allclose(ours.eval(), other.eval(), atol=1e-8)
        curvature, expected = (us.sum(y.grad(a) ** 2).grad(b).eval() for y in (total, dense))
        np.testing.assert_allclose(curvature, expected, atol=1e-7)


def test_a_loop_of_searches_is_differentiated_like_a_loop_of_dense_decompositions() -> None:
    a = us.tensor(random(24, 24))
    H = hermitian(a)

    def run(lowest: Any) -> Any:
        v = us.tensor(np.ones(24))
        for _ in range(15):
            v = lowest(0.1 * us.sin(v * v), v)
            float(v[0])
        return us.sum(v**4).grad(a).eval()

    ours = run(lambda d, v: us.linalg.eigsh(lambda u: H @ u + d * u, v).eigenvectors[:, 0])
    np.testing.assert_allclose(ours, run(lambda d, v: us.linalg.eigh(H + us.diag(d)).eigenvectors[:, 0]), atol=1e-8)


# --- effort ----------------------------------------------------------------------------------------------------------


def test_a_good_start_saves_applications_and_the_derivative_of_a_value_needs_none_of_the_search() -> None:
    d = np.concatenate([[0.0], np.linspace(1.0, 2.0, 299)])
    counted = Counted(np.diag(d), "eigsh_count")
    p = us.tensor(2.0)

    def search(start: Any) -> tuple[Any, int]:
        counted.count = 0
        found = us.linalg.eigsh(lambda v: counted.apply(p, v), start, edge="ignore")
        np.testing.assert_allclose(found.eigenvalues.eval(), [0.0], atol=1e-12)
        return found, counted.count

    pairs, far = search(us.tensor(np.ones(300)))
    _, close = search(us.tensor(np.eye(300)[0] + 1e-6))
    assert close < far < 150
    counted.count = 0
    assert abs(pairs.eigenvalues[0].grad(p).eval()) < 1e-12
    assert counted.count == 1
    counted.count = 0
    us.sum(pairs.eigenvectors**4).grad(p).eval()
    assert 0 < counted.count < far


# --- what is open ----------------------------------------------------------------------------------------------------

DEGENERATE = np.concatenate([[1.0, 1.0], np.linspace(2.0, 9.0, 38)])


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("n", [7, 40])
def test_the_projector_on_a_degenerate_pair_has_its_derivative(n: int, field: str) -> None:
    a = us.tensor(with_spectrum(DEGENERATE[:n], field))
    weights = hermitian(random(n, n, field=field, seed=2))
    found = []
    for values, vectors in (us.linalg.eigsh(hermitian(a), random(n, seed=1), k=2), dense_pairs(hermitian(a), 2, "SA")):
        projector = us.real(us.sum(vectors @ us.conj(vectors.mT) * weights))
        found.append([projector.grad(a).eval(), us.sum(us.exp(values)).grad(a).eval()])
    for ours, dense in zip(*found, strict=True):
        np.testing.assert_allclose(ours, dense, atol=1e-8)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("n", [7, 40])
@pytest.mark.parametrize("k", [1, 2])
def test_a_single_vector_or_value_of_a_degenerate_pair_has_no_derivative(k: int, n: int, field: str) -> None:
    a = us.tensor(with_spectrum(DEGENERATE[:n], field))
    values, vectors = us.linalg.eigsh(hermitian(a), random(n, seed=1), k=k)
    overlap = us.sum(vectors[:, 0] * random(n, seed=2))
    for measured in (values[0], us.real(overlap * us.conj(overlap))):
        with pytest.raises(GaugeError, match=r"eigenvalues? 0 .*equal.*test_eigsh.py") as caught:
            measured.grad(a).eval()
        assert 0 in caught.value.indices


@pytest.mark.parametrize("which", ENDS)
def test_an_eigenvalue_equal_to_one_beyond_those_found_is_noticed_at_every_end(which: str) -> None:
    spectrum = np.concatenate([[-8.0, -8.0], np.linspace(-3.0, 3.0, 30), [9.0, 9.0]])
    n = len(spectrum)
    a, start = us.tensor(with_spectrum(spectrum)), np.ones(n)
    values = us.linalg.eigsh(hermitian(a), start, which=which).eigenvalues
    with pytest.raises(GaugeError, match="not among the 1 found"):
        values[0].grad(a).eval()
    moved = us.jvp(lambda m: us.linalg.eigsh(m, start, which=which)[0], (a,), (hermitian(random(n, n)),))[1]
    with pytest.raises(GaugeError, match="not among the 1 found"):
        moved.eval()


def test_a_direction_that_does_not_split_a_degenerate_value_has_a_derivative() -> None:
    a = with_spectrum(DEGENERATE)
    moved = us.jvp(lambda m: us.linalg.eigsh(m, np.ones(40)).eigenvalues, (a,), (3.0 * a,))[1]
    np.testing.assert_allclose(moved.eval(), [3.0], rtol=1e-9)


def test_the_edge_can_be_ignored() -> None:
    a = us.tensor(with_spectrum(DEGENERATE))
    values, vectors = us.linalg.eigsh(hermitian(a), np.ones(40), edge="ignore")
    v = vectors.eval()[:, 0]
    np.testing.assert_allclose(values[0].grad(a).eval(), np.outer(v, v), atol=1e-10)


@pytest.mark.parametrize("n", [15, 30])
def test_a_loss_without_phase_and_norm_has_its_derivative(n: int) -> None:
    # What it sends back to the vector is orthogonal to it, up to rounding.
    a, weights = us.tensor(with_spectrum(np.linspace(1.0, 5.0, n), "complex")), hermitian(random(5, 5))

    def measured(vector: Any) -> Any:
        frame = us.linalg.svd(vector.reshape(5, n // 5)).U[:, :2]
        return us.real(us.sum(us.conj(frame) * (weights @ frame)))

    ours = measured(us.linalg.eigsh(hermitian(a), np.ones(n), solve_tol=1e-12).eigenvectors[:, 0])
    dense = measured(us.linalg.eigh(hermitian(a)).eigenvectors[:, 0])
    np.testing.assert_allclose(ours.grad(a).eval(), dense.grad(a).eval(), atol=1e-9)


@pytest.mark.parametrize("field", FIELDS)
def test_a_direction_that_couples_a_degenerate_pair_to_others_only_has_a_derivative(field: str) -> None:
    a = with_spectrum(DEGENERATE, field)
    frame = np.linalg.eigh(a)[1]
    coupling = np.outer(frame[:, 0], frame[:, 5].conj()) + 0.5 * np.outer(frame[:, 1], frame[:, 7].conj())
    direction = coupling + coupling.conj().T

    def pair(m: Any) -> Any:
        values, vectors = us.linalg.eigsh(m, random(40, seed=1), k=2)
        return values, vectors @ us.conj(vectors.mT)

    values, projector = us.jvp(pair, (a,), (direction,))[1]
    weights = np.array([1.0 / (1.0 - DEGENERATE[5]), 0.5 / (1.0 - DEGENERATE[7])])
    half = (frame[:, :2] * weights) @ frame[:, [5, 7]].conj().T
    np.testing.assert_allclose(values.eval(), 0.0, atol=1e-12)
    np.testing.assert_allclose(projector.eval(), half + half.conj().T, atol=1e-9)


def test_a_loss_that_depends_on_a_phase_is_refused() -> None:
    a = us.tensor(with_spectrum(np.linspace(1.0, 5.0, 30), "complex"))
    vectors = us.linalg.eigsh(hermitian(a), np.ones(30)).eigenvectors
    with pytest.raises(GaugeError, match="phase.*eigenvalue 0"):
        us.real(vectors[1, 0]).grad(a).eval()


# --- refusals --------------------------------------------------------------------------------------------------------


def test_too_few_restarts_raise_with_the_number_of_applications() -> None:
    d = np.linspace(0.0, 1.0, 2000) ** 2
    with pytest.raises(ConvergenceError, match="0 of 1 eigenvalues converged.*test_eigsh.py") as caught:
        us.linalg.eigsh(lambda v: d * v, np.ones(2000), maxiter=2).eigenvalues.eval()
    assert caught.value.iterations > 20


@pytest.mark.parametrize("n", [4, 40])
def test_an_operator_that_is_not_hermitian_is_refused(n: int) -> None:
    with pytest.raises(ArgumentError, match="not Hermitian.*test_eigsh.py"):
        us.linalg.eigsh(random(n, n), np.ones(n)).eigenvalues.eval()


def test_an_operator_with_infinities_is_refused() -> None:
    with pytest.raises(ConvergenceError, match="infinities"):
        us.linalg.eigsh(np.diag([1.0, np.inf]), np.ones(2)).eigenvalues.eval()


def test_bad_arguments_raise() -> None:
    with pytest.raises(ArgumentError, match="k is a positive number"):
        us.linalg.eigsh(np.eye(3), np.ones(3), k=0)
    with pytest.raises(ArgumentError, match="k=4"):
        us.linalg.eigsh(np.eye(3), np.ones(3), k=4).eigenvalues.eval()
    with pytest.raises(ArgumentError, match="which is one of 'SA'"):
        us.linalg.eigsh(np.eye(3), np.ones(3), which="SM")
    with pytest.raises(ArgumentError, match="ncv"):
        us.linalg.eigsh(np.eye(3), np.ones(3), k=2, ncv=2)
    with pytest.raises(ArgumentError, match="edge"):
        us.linalg.eigsh(np.eye(3), np.ones(3), edge="maybe")
    with pytest.raises(ArgumentError, match="gauge"):
        us.linalg.eigsh(np.eye(3), np.ones(3), gauge="free")
    with pytest.raises(ArgumentError, match="solve_tol"):
        us.linalg.eigsh(np.eye(3), np.ones(3), solve_tol=-1.0)
    with pytest.raises(ArgumentError, match="v0"):
        us.linalg.eigsh(np.eye(30), np.zeros(30)).eigenvalues.eval()
    with pytest.raises(ShapeError, match="square matrix"):
        us.linalg.eigsh(np.eye(3), np.ones(4))
