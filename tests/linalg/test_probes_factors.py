"""More losses with a known gradient: through qr, lu, eig, det and products, at full rank and where rank is lost.

As in `test_probes`: right to 1e-6 or a typed error, and required to be right wherever the loss is smooth.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.linalg.oracles import Factored, Hermitian, divided, frame, hermitian, indicator, judge, outcome
from tests.linalg.probing import FRAMES, inner, weight_for

SIDES = {"square": (0, 0), "tall": (2, 0), "wide": (0, 2)}
RANKS = {
    "full rank": [3, 2, 1],
    "two equal": [2, 2, 1],
    "all equal": [2, 2, 2],
    "nearly singular": [3, 2, 2e-3],
    "rank 2": [3, 2, 0],
    "rank 1": [3, 0, 0],
    "rank 0": [0, 0, 0],
}


def factored(values: Any, kind: str, side: str = "square") -> Factored:
    m, n = (len(values) + extra for extra in SIDES[side])
    return Factored(frame(m, kind, 2), np.array(values, float), frame(n, kind, 3))


def multiply(factors: Any) -> Any:
    """Return the product of factors."""
    first, *rest = factors
    for factor in rest:
        first = first @ factor
    return first


# --- products of factors ---------------------------------------------------------------------------------------------

PRODUCTS: dict[str, Callable[[Any], Any]] = {
    "qr": lambda a: multiply(us.linalg.qr(a)),
    "complete qr": lambda a: multiply(us.linalg.qr(a, mode="complete")),
    "positive qr": lambda a: multiply(us.linalg.qr(a, positive=True)),
    "lq": lambda a: multiply(us.linalg.lq(a)),
    "lu": lambda a: multiply(us.linalg.lu(a)),
}

# Where rank is lost, the product is required if Q is square: what its open columns do then cancels in the product.
REQUIRED_WITHOUT_RANK = {
    "qr": {"square", "wide"},
    "complete qr": set(SIDES),
    "positive qr": {"square", "wide"},
    "lq": {"square", "tall"},
    "lu": set(),
}


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("name", PRODUCTS)
def test_the_product_of_the_factors_is_the_matrix(name: str, rank: str, side: str, kind: str) -> None:
    x = factored(RANKS[rank], kind, side)
    w = weight_for(kind, *x.matrix.shape)
    required = min(RANKS[rank]) > 0 or side in REQUIRED_WITHOUT_RANK[name]
    judge(outcome(lambda a: inner(w, PRODUCTS[name](a)), x.matrix), w, required=required)
    expected = x.matrix / (np.linalg.norm(x.matrix) or 1.0)
    judge(outcome(lambda a: us.linalg.norm(PRODUCTS[name](a)), x.matrix), expected, required=required)


# --- what qr knows of the matrix -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("rank", RANKS)
def test_the_projector_on_the_range_by_qr(rank: str, kind: str) -> None:
    x = factored(RANKS[rank], kind, "tall")
    w = weight_for(kind, 5, 5)

    def loss(a: Any) -> Any:
        q = us.linalg.qr(a)[0]
        return inner(w, q @ q.H)

    found = outcome(loss, x.matrix)
    if min(RANKS[rank]) > 0:
        judge(found, x.pull_back(indicator(lambda v: np.abs(v) > 1e-7), left=w))
    else:
        # The range jumps here: there is nothing to be right about.
        assert isinstance(found, us.errors.UnspoolError)


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("rank", RANKS)
def test_the_gram_matrix_by_qr(rank: str, side: str, kind: str) -> None:
    x = factored(RANKS[rank], kind, side)
    w = weight_for(kind, *(x.matrix.shape[1:] * 2))

    def loss(a: Any) -> Any:
        r = us.linalg.qr(a)[1]
        return inner(w, r.H @ r)

    judge(outcome(loss, x.matrix), 2 * x.matrix @ hermitian(w))


# --- determinants ----------------------------------------------------------------------------------------------------

LOG_DETERMINANTS: dict[str, Callable[[Any], Any]] = {
    "slogdet": lambda a: us.linalg.slogdet(a)[1],
    "det": lambda a: us.log(us.abs(us.linalg.det(a))),
    "qr": lambda a: us.sum(us.log(us.abs(us.diagonal(us.linalg.qr(a)[1])))),
    "lu": lambda a: us.sum(us.log(us.abs(us.diagonal(us.linalg.lu(a)[2])))),
    "svdvals": lambda a: us.sum(us.log(us.linalg.svdvals(a))),
    "cholesky of the gram matrix": lambda a: us.sum(us.log(us.real(us.diagonal(us.linalg.cholesky(a.H @ a))))),
    "eigvals": lambda a: us.sum(us.log(us.abs(us.linalg.eigvals(a)))),
}


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("rank", ["full rank", "two equal", "all equal"])
@pytest.mark.parametrize("name", LOG_DETERMINANTS)
def test_log_determinants(name: str, rank: str, kind: str) -> None:
    x = factored(RANKS[rank], kind)
    judge(outcome(LOG_DETERMINANTS[name], x.matrix), x.spectral(1 / x.values))


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("rank", RANKS)
def test_determinants_also_of_singular_matrices(rank: str, kind: str) -> None:
    x = factored(RANKS[rank], kind)
    sign = np.linalg.det(x.left) * np.linalg.det(x.right.conj().T)
    others = [np.prod(np.delete(x.values, i)) for i in range(3)]
    expected = np.conj(sign) * x.spectral(np.array(others))
    judge(outcome(lambda a: inner(1.0, us.linalg.det(a)), x.matrix), expected)


# --- eig -------------------------------------------------------------------------------------------------------------

DIAGONALISABLE = {
    "distinct": [0.5, 1.0, 2.0],
    **{f"gap {gap:.0e}": [1, 1 + gap, 2] for gap in (1e-4, 1e-6, 1e-8, 1e-10, 1e-12, 1e-14, 1e-15)},
    "two equal": [1, 1, 2],
    "all equal": [1, 1, 1],
    "a zero": [0, 1, 2],
}


def similar(values: Any, kind: str) -> tuple[Any, Any, Any]:
    """Return values, a well conditioned basis that is not orthogonal, and the matrix they make."""
    values = np.array(values, float)
    skewed = np.eye(3) + 0.4 * weight_for(kind, 3, 3)
    basis = np.eye(3) if kind == "axes" else skewed
    return values, basis, (basis * values) @ np.linalg.inv(basis)


def pull_back(values: Any, basis: Any, w: Any) -> Any:
    """Return the gradient of Re⟨w, exp(A)⟩ for A = X Λ X⁻¹."""
    outward = np.linalg.inv(basis).conj().T
    gradient = outward @ (divided(np.exp, np.exp)(values) * (basis.conj().T @ w @ outward)) @ basis.conj().T
    return gradient if np.iscomplexobj(basis) else gradient.real


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("spectrum", DIAGONALISABLE)
def test_symmetric_functions_of_eigvals(spectrum: str, kind: str) -> None:
    values, basis, a = similar(DIAGONALISABLE[spectrum], kind)
    found = outcome(lambda a: us.real(us.sum(us.exp(us.linalg.eigvals(a)))), a)
    judge(found, pull_back(values, basis, np.eye(3)))


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("spectrum", DIAGONALISABLE)
def test_a_function_of_a_matrix_by_eig(spectrum: str, kind: str) -> None:
    values, basis, a = similar(DIAGONALISABLE[spectrum], kind)
    w = weight_for(kind, 3, 3)

    def loss(a: Any) -> Any:
        found, vectors = us.linalg.eig(a)
        return inner(w, (vectors * us.exp(found)) @ us.linalg.inv(vectors))

    judge(outcome(loss, a), pull_back(values, basis, w), required=spectrum in ("distinct", "gap 1e-04", "a zero"))


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("spectrum", DIAGONALISABLE)
def test_the_matrix_exponential_is_right_everywhere(spectrum: str, kind: str) -> None:
    values, basis, a = similar(DIAGONALISABLE[spectrum], kind)
    w = weight_for(kind, 3, 3)
    judge(outcome(lambda a: inner(w, us.linalg.matrix_exp(a)), a), pull_back(values, basis, w))


JORDAN = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 2.0]])


@pytest.mark.parametrize("rotate", [False, True])
def test_eigvals_of_a_defective_matrix_are_refused(rotate: bool) -> None:
    # Each of the two moves as a root of the change does. What becomes of a symmetric function, no rule can see.
    q = frame(3, "rotation") if rotate else np.eye(3)
    found = outcome(lambda a: us.real(us.sum(us.exp(us.linalg.eigvals(a)))), q @ JORDAN @ q.T)
    assert isinstance(found, us.errors.GaugeError)


@pytest.mark.parametrize("order", [None, "fro", "nuc", 2])
def test_the_norm_of_a_zero_matrix_has_gradient_zero(order: Any) -> None:
    judge(outcome(lambda a: us.linalg.norm(a, order), np.zeros((3, 2))), np.zeros((3, 2)))


# --- functions of the matrix, which know no vectors ------------------------------------------------------------------

FUNCTIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "matrix_exp": (lambda a: us.linalg.matrix_exp(a), np.exp, np.exp),
    "sqrtm": (lambda a: us.linalg.sqrtm(a), np.sqrt, lambda x: 0.5 / np.sqrt(x)),
    "logm": (lambda a: us.linalg.logm(a), np.log, lambda x: 1 / x),
    "cube": (lambda a: us.linalg.matrix_power(a, 3), lambda x: x**3, lambda x: 3 * x**2),
    "inverse square": (lambda a: us.linalg.matrix_power(a, -2), lambda x: x**-2, lambda x: -2 * x**-3),
    "inv": (lambda a: us.linalg.inv(a), lambda x: 1 / x, lambda x: -(x**-2)),
}


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize(
    "values", [[1, 2, 3, 4], [1, 1 + 1e-10, 2, 3], [1, 1, 2, 3], [1, 1, 1, 2], [2, 2, 2, 2]], ids=str
)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_matrices_are_right_at_every_spectrum(name: str, values: list[float], kind: str) -> None:
    build, f, slope = FUNCTIONS[name]
    h = Hermitian(np.array(values, float), frame(4, kind))
    w = weight_for(kind, 4, 4)
    # These take any matrix. The theorem says what the gradient is along Hermitian directions.
    found = outcome(lambda a: inner(hermitian(w), build(a)), h.matrix)
    judge(found, h.pull_back(w, divided(f, slope)(h.values)))


# --- stacks ----------------------------------------------------------------------------------------------------------


def test_each_matrix_of_a_stack_is_judged_by_itself() -> None:
    spectra = ([1.0, 1, 2, 3], [1.0, 2, 3, 4], [0.0, 0, 0, 0], [1e-9, 2e-9, 3e-9, 4e-9])
    stack = np.array([Hermitian(np.array(s), frame(4, "rotation")).matrix for s in spectra])

    def loss(a: Any) -> Any:
        values, vectors = us.linalg.eigh(a)
        return us.sum(us.linalg.norm((vectors * values[..., None, :]) @ vectors.mT, axis=(-2, -1)))

    sizes = np.linalg.norm(stack, axis=(-2, -1), keepdims=True)
    judge(outcome(loss, stack), stack / np.where(sizes > 0, sizes, 1.0))
