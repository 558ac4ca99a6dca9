"""Losses that depend on what a decomposition leaves open are refused, with a message that helps.

A phase of a vector, or a basis inside a space of equal values, is chosen by the routine that computes it. A gradient of
such a loss would be a gradient of that choice. The refusal names indices, amount and remedy; the remedies work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.linalg.oracles import Factored, Hermitian, differences, frame, hermitian, relative_error, weights
from unspool.errors import ArgumentError, GaugeError, RankError

COMPLEX = weights(4, 3, field="complex", seed=31)
WIDE = weights(3, 4, field="complex", seed=32)
SQUARE = weights(3, 3, field="complex", seed=33)
HERMITIAN = hermitian(weights(4, 4, field="complex", seed=34))
W = weights(4, 4, seed=35)


def refusal(loss: Callable[[Any], Any], at: Any) -> GaugeError:
    """Return the error that asking for a gradient raises."""
    a = us.tensor(at)
    value = loss(a)
    assert np.isfinite(value.eval())
    with pytest.raises(GaugeError) as caught:
        value.grad(a).eval()
    return caught.value


def svd(a: Any, **options: Any) -> Any:
    return us.linalg.svd(a, full_matrices=False, **options)


# --- phases ----------------------------------------------------------------------------------------------------------

PHASES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "svd, left": (lambda a: us.real(svd(a)[0][0, 0]), COMPLEX),
    "svd, right": (lambda a: us.imag(svd(a)[2][1, 2]), COMPLEX),
    "svd, wide": (lambda a: us.real(svd(a)[2][0, 0]), WIDE),
    "svd, full": (lambda a: us.real(us.linalg.svd(a)[0][0, 1]), COMPLEX),
    "truncated_svd": (lambda a: us.real(us.linalg.truncated_svd(a, rank=2)[0][0, 1]), COMPLEX),
    "eigh": (lambda a: us.real(us.linalg.eigh(a)[1][1, 0]), HERMITIAN),
    "eigh, upper": (lambda a: us.sum(us.imag(us.linalg.eigh(a, UPLO="U")[1][:, 2])), HERMITIAN),
    "eig": (lambda a: us.sum(us.real(us.linalg.eig(a)[1][:, 0])), SQUARE),
    "qr, q": (lambda a: us.real(us.linalg.qr(a)[0][0, 0]), COMPLEX),
    "qr, r": (lambda a: us.real(us.linalg.qr(a)[1][0, 1]), COMPLEX),
    "qr, wide": (lambda a: us.imag(us.linalg.qr(a)[1][1, 3]), WIDE),
    "lq": (lambda a: us.real(us.linalg.lq(a)[1][0, 0]), WIDE),
}


@pytest.mark.parametrize("name", PHASES)
def test_a_loss_of_a_phase_is_refused(name: str) -> None:
    message = str(refusal(*PHASES[name]))
    assert "phase" in message
    assert any(remedy in message for remedy in ('gauge="fixed"', "gauge='fixed'", "positive=True"))


@pytest.mark.parametrize("name", PHASES)
def test_a_refusal_names_the_index_the_amount_and_the_line(name: str) -> None:
    error = refusal(*PHASES[name])
    message = str(error)
    assert any(f"{what} {i}" in message for what in ("value", "column", "vector", "row") for i in range(3)), message
    assert "e-" in message or "e+" in message
    assert "test_gauge_dependent.py" in message


@pytest.mark.parametrize("name", PHASES)
def test_the_same_loss_of_moduli_has_a_gradient(name: str) -> None:
    _, at = PHASES[name]
    decompositions = {
        "svd": lambda a: us.abs(svd(a)[0]),
        "truncated_svd": lambda a: us.abs(us.linalg.truncated_svd(a, rank=2)[0]),
        "eigh": lambda a: us.abs(us.linalg.eigh(a)[1]),
        "eig": lambda a: us.abs(us.linalg.eig(a)[1]),
        "qr": lambda a: us.abs(us.linalg.qr(a)[0]),
        "lq": lambda a: us.abs(us.linalg.lq(a)[0]),
    }
    moduli = decompositions[name.split(",", maxsplit=1)[0]]
    a = us.tensor(at)
    assert np.all(np.isfinite(us.sum(us.cos(moduli(a))).grad(a).eval()))


# --- bases of degenerate spaces --------------------------------------------------------------------------------------


def degenerate(kind: str) -> Any:
    return Hermitian(np.array([1.0, 1.0, 2.0, 3.0]), frame(4, kind)).matrix


def degenerate_factored(kind: str) -> Any:
    return Factored(frame(4, kind, 2), np.array([3.0, 2.0, 1.0, 1.0]), frame(4, kind, 3)).matrix


def squares(x: Any) -> Any:
    return us.sum(W * us.abs(x) ** 2)


BASES: dict[str, tuple[Callable[[Any], Any], Callable[[str], Any]]] = {
    "eigh, one vector": (lambda a: us.sum(W[0] * us.abs(us.linalg.eigh(a)[1][:, 0]) ** 2), degenerate),
    "eigh, all": (lambda a: squares(us.linalg.eigh(a)[1]), degenerate),
    "svd, one vector": (lambda a: us.sum(W[0] * us.abs(svd(a)[0][:, 3]) ** 2), degenerate_factored),
    "svd, right": (lambda a: squares(svd(a)[2]), degenerate_factored),
    "svd, all": (lambda a: squares(svd(a)[0]), degenerate_factored),
    "truncated_svd, cut": (
        lambda a: squares(us.linalg.truncated_svd(a, rank=3)[0] @ np.ones((3, 4))),
        degenerate_factored,
    ),
}


@pytest.mark.parametrize("kind", ["rotation", "unitary"])
@pytest.mark.parametrize("name", BASES)
def test_a_loss_of_a_basis_of_equal_values_is_refused(name: str, kind: str) -> None:
    loss, make = BASES[name]
    error = refusal(loss, make(kind))
    message = str(error)
    if kind == "rotation":
        assert "equal" in message
        assert "broaden=" in message or "Treat equal values alike" in message


@pytest.mark.parametrize("kind", ["rotation", "unitary"])
def test_a_loss_that_tells_equal_values_apart_is_refused(kind: str) -> None:
    ramp = np.arange(4.0)
    for loss, make in [
        (lambda a: us.sum(ramp * us.linalg.eigvalsh(a)), degenerate),
        (lambda a: us.sum(ramp * us.linalg.svdvals(a)), degenerate_factored),
    ]:
        assert "equal" in str(refusal(loss, make(kind)))


def test_eig_refuses_vectors_of_equal_eigenvalues() -> None:
    basis = np.eye(4) + 0.3 * weights(4, 4, seed=36)
    a = us.tensor((basis * [1.0, 1.0, 2.0, 3.0]) @ np.linalg.inv(basis))
    with pytest.raises((GaugeError, RankError)):
        squares(us.linalg.eig(a)[1]).grad(a).eval()


def test_qr_refuses_the_columns_that_a_matrix_without_full_rank_leaves_open() -> None:
    a = us.tensor(np.outer([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0]))
    with pytest.raises((GaugeError, RankError), match="rank"):
        squares(us.linalg.qr(a, mode="complete")[0]).grad(a).eval()


# --- noise -----------------------------------------------------------------------------------------------------------

# Singular values and eigenvalues 2, 2, 1, 1/2; what is taken from them is a basis of the space of the equal ones.
PAIR = Hermitian(np.array([2.0, 2.0, 1.0, 0.5]), frame(4, "rotation")).matrix
SPACES: dict[str, Callable[[Any], Any]] = {
    "svd, left": lambda a: svd(a)[0][..., :2],
    "svd, right": lambda a: svd(a)[2][..., :2, :].mT,
    "svd, full": lambda a: us.linalg.svd(a)[0][..., :2],
    "svd, tall": lambda a: svd(us.concat([a, a], axis=-2))[0][..., :2],
    "truncated_svd": lambda a: us.linalg.truncated_svd(a, rank=2)[0],
    "eigh": lambda a: us.linalg.eigh(a)[1][..., 2:],
}


def nothing(u: Any) -> Any:
    """Return the difference of two ways to write one number that no choice of a basis changes."""
    weight = weights(u.shape[-2], u.shape[-2], seed=36)
    return us.sum(weight * (u @ u.mT), axis=(-2, -1)) - us.sum((weight @ u) * u, axis=(-2, -1))


def dependent(u: Any) -> Any:
    """Return a number that any choice of a basis changes."""
    return us.sum(weights(*u.shape[-2:], seed=37) * u, axis=(-2, -1))


@pytest.mark.parametrize("name", SPACES)
def test_what_is_left_of_cotangents_that_cancel_is_no_dependence(name: str) -> None:
    a = us.tensor(PAIR)
    assert np.max(np.abs(nothing(SPACES[name](a)).grad(a).eval())) < 1e-13


@pytest.mark.parametrize("name", SPACES)
def test_dependence_far_below_the_rounding_of_what_is_sent_back_is_no_dependence(name: str) -> None:
    a = us.tensor(PAIR)
    u = SPACES[name](a)
    loss = nothing(u) + 1e-76 * dependent(u)
    assert np.max(np.abs(loss.grad(a).eval())) < 1e-13


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("scale", [1e-70, 1e-40, 1e70])
def test_the_scale_of_a_loss_does_not_hide_that_it_depends_on_a_basis(name: str, scale: float) -> None:
    for loss in (dependent, lambda u: nothing(u) + dependent(u)):
        error = refusal(lambda a, loss=loss: scale * loss(SPACES[name](a)), PAIR)  # type: ignore[misc]
        assert error.amount is not None and error.amount > 1e-3


@pytest.mark.parametrize("name", ["svd, left", "svd, right", "eigh"])
def test_large_terms_of_one_matrix_do_not_excuse_another_of_the_stack(name: str) -> None:
    a = us.tensor(np.stack([PAIR, PAIR]))
    u = SPACES[name](a)
    loss = us.sum(np.array([1.0, 1e-70]) * nothing(u) + np.array([0.0, 1e-70]) * dependent(u))
    with pytest.raises(GaugeError, match=r"in matrix \(1,\) of the stack"):
        loss.grad(a).eval()


@pytest.mark.parametrize("values_of", [us.linalg.svdvals, us.linalg.eigvalsh])
def test_what_is_left_of_cotangents_that_cancel_does_not_tell_equal_values_apart(values_of: Any) -> None:
    a, weight = us.tensor(PAIR), weights(4, seed=38)
    s = values_of(a)
    square = s * s
    same = us.sum(weight * square * square * s) - us.sum((s * weight) * (s * square) * s)
    assert np.max(np.abs(same.grad(a).eval())) < 1e-12
    with pytest.raises(GaugeError, match="tells them apart"):
        (1e-70 * us.sum(weight * s)).grad(a).eval()


# --- remedies: a convention ------------------------------------------------------------------------------------------


def turned(vectors: Any) -> Any:
    """Return the phases that make the largest entry of each column real and positive."""
    largest = np.take_along_axis(vectors, np.argmax(np.abs(vectors), axis=0)[None, :], axis=0)
    return np.conj(largest) / np.abs(largest)


def canonical_svd(a: Any) -> Any:
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    phases = turned(u)
    return u * phases, s, np.conj(phases).T * vh


def canonical_eigh(a: Any) -> Any:
    vectors = np.linalg.eigh(a)[1]
    return vectors * turned(vectors)


def canonical_eig(a: Any) -> Any:
    values, vectors = np.linalg.eig(a)
    vectors = (vectors * turned(vectors))[:, np.lexsort((values.imag, values.real))]
    return vectors


def in_order(a: Any) -> Any:
    values, vectors = us.linalg.eig(a, gauge="fixed")
    known = values.eval()
    return vectors[:, np.lexsort((known.imag, known.real))]


def canonical_qr(a: Any) -> Any:
    q, r = np.linalg.qr(a)
    phases = np.conj(np.diagonal(r)) / np.abs(np.diagonal(r))
    return q * np.conj(phases), phases[:, None] * r


FIXED: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], Any]] = {
    "svd, left": (lambda a: svd(a, gauge="fixed")[0], lambda a: canonical_svd(a)[0], COMPLEX),
    "svd, right": (lambda a: svd(a, gauge="fixed")[2], lambda a: canonical_svd(a)[2], COMPLEX),
    "svd, wide": (lambda a: svd(a, gauge="fixed")[0], lambda a: canonical_svd(a)[0], WIDE),
    "svd, real": (lambda a: svd(a, gauge="fixed")[2], lambda a: canonical_svd(a)[2], COMPLEX.real),
    "truncated_svd": (
        lambda a: us.linalg.truncated_svd(a, rank=2, gauge="fixed")[2],
        lambda a: canonical_svd(a)[2][:2],
        COMPLEX,
    ),
    "eig": (in_order, canonical_eig, SQUARE),
    "qr, q": (lambda a: us.linalg.qr(a, positive=True)[0], lambda a: canonical_qr(a)[0], COMPLEX),
    "qr, r": (lambda a: us.linalg.qr(a, positive=True)[1], lambda a: canonical_qr(a)[1], COMPLEX),
    "qr, wide": (lambda a: us.linalg.qr(a, positive=True)[1], lambda a: canonical_qr(a)[1], WIDE),
    "lq": (
        lambda a: us.linalg.lq(a, positive=True)[0],
        lambda a: canonical_qr(a.conj().T)[1].conj().T,
        WIDE,
    ),
}


def weighted(x: Any) -> Any:
    """Return a real number that every entry takes part in, with its phase."""
    w = weights(*x.shape, field="complex", seed=37)
    return us.sum(us.real(w * x)) if isinstance(x, us.Tensor) else np.sum(np.real(w * x))


@pytest.mark.parametrize("name", FIXED)
def test_a_convention_for_phases_can_be_differentiated(name: str) -> None:
    ours, reference, at = FIXED[name]
    a = us.tensor(at)
    np.testing.assert_allclose(ours(a).eval(), reference(at), rtol=1e-10, atol=1e-12)
    expected = differences(lambda x: weighted(reference(x)), at)
    assert relative_error(weighted(ours(a)).grad(a).eval(), expected) < 1e-7


def test_a_convention_for_phases_of_eigh_can_be_differentiated() -> None:
    a = us.tensor(HERMITIAN)
    vectors = us.linalg.eigh(a, gauge="fixed")[1]
    np.testing.assert_allclose(vectors.eval(), canonical_eigh(HERMITIAN), rtol=1e-10, atol=1e-12)
    expected = differences(lambda x: weighted(canonical_eigh(hermitian(x))), HERMITIAN)
    assert relative_error(weighted(vectors).grad(a).eval(), expected) < 1e-7


def test_qr_with_a_fixed_gauge_differentiates_a_real_diagonal() -> None:
    a = us.tensor(COMPLEX)
    q, r = us.linalg.qr(a, gauge="fixed")
    signs = np.diagonal(r.eval()) / np.abs(np.diagonal(r.eval()))

    def reference(x: Any) -> Any:
        return weighted(canonical_qr(x)[0] * signs)

    assert relative_error(weighted(q).grad(a).eval(), differences(reference, COMPLEX)) < 1e-7


def test_a_convention_does_not_settle_a_basis() -> None:
    a = us.tensor(degenerate("rotation"))
    with pytest.raises(GaugeError):
        squares(us.linalg.eigh(a, gauge="fixed")[1]).grad(a).eval()


# --- remedies: broadening --------------------------------------------------------------------------------------------


def broadened(h: Hermitian, cotangent: Any, width: float) -> Any:
    """Return the gradient through eigenvectors with every 1/d replaced by d/(d² + width²)."""
    gaps = h.values[None, :] - h.values[:, None]
    v = h.vectors
    return hermitian(v @ (gaps / (gaps**2 + width**2) * (v.conj().T @ cotangent)) @ v.conj().T)


def test_broadening_is_what_it_says() -> None:
    h = Hermitian(np.array([1.0, 1.5, 2.0, 3.0]), frame(4, "rotation"))
    a = us.tensor(h.matrix)
    vectors = us.linalg.eigh(a, broaden=0.1)[1]
    found = np.asarray(squares(vectors).grad(a).eval())
    known = Hermitian(h.values, vectors.eval())
    np.testing.assert_allclose(found, broadened(known, 2 * W * known.vectors, 0.1), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["eigh", "svd", "truncated_svd"])
def test_broadening_gives_a_finite_answer_where_the_check_refuses(name: str) -> None:
    at = degenerate("rotation") if name == "eigh" else degenerate_factored("rotation")
    a = us.tensor(at)
    factor = {
        "eigh": lambda: us.linalg.eigh(a, broaden=1e-3)[1],
        "svd": lambda: svd(a, broaden=1e-3)[0],
        "truncated_svd": lambda: us.linalg.truncated_svd(a, rank=3, broaden=1e-3)[0] @ np.ones((3, 4)),
    }[name]()
    gradient = squares(factor).grad(a).eval()
    assert np.all(np.isfinite(gradient)) and np.any(gradient)


@pytest.mark.parametrize("width", [1e-3, 1e-4])
def test_the_bias_of_broadening_falls_with_its_square(width: float) -> None:
    x = Factored(frame(4, "unitary", 2), np.array([4.0, 3.0, 2.0, 1.0]), frame(4, "unitary", 3)).matrix

    def gradient(**options: Any) -> Any:
        a = us.tensor(x)
        return squares(svd(a, **options)[0]).grad(a).eval()

    assert relative_error(gradient(broaden=width), gradient()) < 2 * width**2


@pytest.mark.parametrize("option", [{"gauge": "fix"}, {"gauge": None}, {"broaden": -1.0}, {"broaden": "a lot"}])
@pytest.mark.parametrize("name", ["svd", "eigh", "eig"])
def test_options_that_mean_nothing_are_refused_at_once(name: str, option: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        getattr(us.linalg, name)(us.tensor(np.eye(2)), **option)


# --- tolerances ------------------------------------------------------------------------------------------------------


def test_the_tolerance_decides_what_is_equal() -> None:
    close = Hermitian(np.array([1.0, 1.0 + 1e-5, 2.0]), frame(3, "rotation")).matrix
    a = us.tensor(close)

    def loss(**options: Any) -> Any:
        return us.sum(W[:3, :3] * us.linalg.eigh(a, **options)[1] ** 2)

    assert np.all(np.isfinite(loss().grad(a).eval()))
    with pytest.raises(GaugeError):
        loss(rtol=1e-4).grad(a).eval()
    with us.linalg.tolerances(degeneracy=1e-4):
        inside = loss()
    with pytest.raises(GaugeError):
        inside.grad(a).eval()
    assert np.all(np.isfinite(loss().grad(a).eval()))
