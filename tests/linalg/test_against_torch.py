"""PyTorch as a second witness, where its rules are sound: values and gradients agree. Skipped if it is not there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.linalg.oracles import hermitian, weights

torch = pytest.importorskip("torch")


class Ours:
    """The functions that the losses are written with, as unspool has them."""

    linalg = us.linalg
    exp, log, abs, real, sum = us.exp, us.log, us.abs, us.real, us.sum
    constant = staticmethod(lambda x: x)
    adjoint = staticmethod(lambda x: us.conj(x.mT))

    @staticmethod
    def svd(a: Any) -> Any:
        return us.linalg.svd(a, full_matrices=False)

    @staticmethod
    def lstsq(a: Any, b: Any) -> Any:
        return us.linalg.lstsq(a, b)[0]


class Theirs:
    """The same functions, as PyTorch has them."""

    linalg = torch.linalg
    exp, log, abs, real, sum = torch.exp, torch.log, torch.abs, torch.real, torch.sum
    constant = staticmethod(torch.tensor)
    adjoint = staticmethod(lambda x: x.mH)

    @staticmethod
    def svd(a: Any) -> Any:
        return torch.linalg.svd(a, full_matrices=False)

    @staticmethod
    def lstsq(a: Any, b: Any) -> Any:
        return torch.linalg.lstsq(a, b).solution


def inner(p: Any, w: Any, x: Any) -> Any:
    """Return Re⟨w, x⟩ with the functions of ``p``."""
    return p.sum(p.real(p.constant(np.conj(w)) * x)) if np.iscomplexobj(w) else p.sum(p.constant(w) * p.real(x))


def as_definite(p: Any, a: Any) -> Any:
    """Return a positive definite matrix that is a smooth function of any square one."""
    return a @ p.adjoint(a) + p.constant(np.eye(a.shape[-1]))


def low_rank(p: Any, a: Any) -> Any:
    u, s, vh = p.svd(a)
    return (u[..., :, :2] * s[..., None, :2]) @ vh[..., :2, :]


def weighted_projector(p: Any, a: Any) -> Any:
    values, vectors = p.linalg.eigh(a + p.adjoint(a))
    return (vectors * p.exp(0.1 * values)[..., None, :]) @ p.adjoint(vectors)


def q_squared(p: Any, a: Any) -> Any:
    q, _ = p.linalg.qr(a)
    return abs(q) ** 2


def r_squared(p: Any, a: Any) -> Any:
    _, r = p.linalg.qr(a)
    return abs(r) ** 2


def by_eig(p: Any, a: Any) -> Any:
    values, vectors = p.linalg.eig(a)
    return (vectors * p.exp(0.2 * values)[..., None, :]) @ p.linalg.inv(vectors)


# A loss is the inner product of a weight with one of these; they take the functions and a matrix.
CASES: dict[str, tuple[Callable[[Any, Any], Any], tuple[str, ...]]] = {
    "svd, a low-rank part": (low_rank, ("square", "tall", "wide")),
    "svd, squared vectors": (lambda p, a: abs(p.svd(a)[0]) ** 2, ("square", "tall", "wide")),
    "svdvals": (lambda p, a: p.linalg.svdvals(a), ("square", "tall", "wide")),
    "eigh": (weighted_projector, ("square",)),
    "eigh, squared vectors": (lambda p, a: abs(p.linalg.eigh(a + p.adjoint(a))[1]) ** 2, ("square",)),
    "eigvalsh": (lambda p, a: p.linalg.eigvalsh(a + p.adjoint(a)), ("square",)),
    "qr, q": (q_squared, ("square", "tall")),
    "qr, r": (r_squared, ("square", "tall", "wide")),
    "cholesky": (lambda p, a: p.linalg.cholesky(as_definite(p, a)), ("square",)),
    "solve": (lambda p, a: p.linalg.solve(as_definite(p, a), a), ("square",)),
    "inv": (lambda p, a: p.linalg.inv(a), ("square",)),
    "det": (lambda p, a: p.linalg.det(a), ("square",)),
    "slogdet": (lambda p, a: p.linalg.slogdet(a)[1], ("square",)),
    "pinv": (lambda p, a: p.linalg.pinv(a), ("square", "tall", "wide")),
    "lstsq": (lambda p, a: p.lstsq(a, a[..., :, :1] ** 2), ("square", "tall")),
    "matrix_exp": (lambda p, a: p.linalg.matrix_exp(a), ("square",)),
    "eigvals": (lambda p, a: p.exp(0.2 * p.linalg.eigvals(a)).sum(-1), ("square",)),
    "eig": (by_eig, ("square",)),
}
SHAPES = {"square": (4, 4), "tall": (5, 3), "wide": (3, 5)}


@pytest.mark.parametrize("batch", [(), (2,)], ids=["one", "stack"])
@pytest.mark.parametrize("field", ["real", "complex"])
@pytest.mark.parametrize(("name", "side"), [(name, side) for name, (_, sides) in CASES.items() for side in sides])
def test_values_and_gradients_agree(name: str, side: str, field: str, batch: tuple[int, ...]) -> None:
    build = CASES[name][0]
    a = weights(*batch, *SHAPES[side], field=field, seed=11)
    theirs = torch.tensor(a, requires_grad=True)
    their_result = build(Theirs, theirs)
    w = weights(*their_result.shape, field="complex" if their_result.is_complex() else "real", seed=12)
    (their_gradient,) = torch.autograd.grad(inner(Theirs, w, their_result), theirs)

    ours = us.tensor(a)
    result = build(Ours, ours)
    gradient = inner(Ours, w, result).grad(ours)
    np.testing.assert_allclose(result.eval(), their_result.detach().numpy(), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(gradient.eval(), their_gradient.numpy(), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("field", ["real", "complex"])
def test_second_derivatives_agree(field: str) -> None:
    a = hermitian(weights(4, 4, field=field, seed=13))
    w = weights(4, 4, field=field, seed=14)

    def loss(p: Any, x: Any) -> Any:
        return inner(p, w, weighted_projector(p, x))

    theirs = torch.tensor(a, requires_grad=True)
    (first,) = torch.autograd.grad(loss(Theirs, theirs), theirs, create_graph=True)
    (expected,) = torch.autograd.grad(torch.sum(torch.real(torch.conj(first) * first)), theirs)
    ours = us.tensor(a)
    slope = loss(Ours, ours).grad(ours)
    found = us.sum(us.real(us.conj(slope) * slope)).grad(ours).eval()
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-6, atol=1e-7)
