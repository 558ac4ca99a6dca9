"""Samples of leading singular spaces, and of the equation by which they move."""

from __future__ import annotations

from typing import Any

import numpy as np

import unspool as us
from tests.samples import Sample, complex_, real
from tests.samples.svd import adjoint, weights
from unspool._ops.linalg.space_motion import motion


def both(projector: Any, product: Any) -> Any:
    """Return something of a projector and of a matrix that was cut off."""
    return (projector * weights(projector.shape[-1])) @ product


def cut(a: Any, rank: int) -> Any:
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    u = u[..., :rank]
    return both(u @ adjoint(u), (u * s[..., None, :rank]) @ vh[..., :rank, :])


def space(x: Any, rank: int) -> Sample:
    def found(t: Any) -> Any:
        isometry, rest, _ = us.linalg.leading_space(t, rank)
        return both(isometry @ adjoint(isometry), isometry @ rest)

    label = f"rank{rank}-{'x'.join(map(str, x.shape))}"
    return Sample("leading_space", found, (x,), lambda a: cut(a, rank), label=label)


def factors(x: Any, hermitian: bool) -> Sample:
    """Factors have no derivative. They are there to be looked at, and for leading spaces."""

    def given(t: Any) -> Any:
        return t + adjoint(t) if hermitian else t

    def found(t: Any) -> Any:
        a = given(t)
        isometry, rest, _ = us.linalg.leading_space(a, 1, factors=us.linalg.space_factors(a, hermitian=hermitian))
        return both(isometry @ adjoint(isometry), isometry @ rest)

    label = f"{'hermitian-' if hermitian else ''}{'x'.join(map(str, x.shape))}"
    return Sample("space_factors", found, (x,), lambda a: cut(given(a), 1), label=label)


def moved(x: Any, g: Any, rank: int) -> Sample:
    """The motion of a pair that is pushed by G·Rᴴ and QᴴG, as a change of the matrix that was cut off."""

    def found(t: Any, push: Any) -> Any:
        factors = us.linalg.space_factors(t)
        q, r, _ = us.linalg.leading_space(t, rank, factors=factors)
        tolerance = {"degeneracy": 1e-8, "gauge": 1e-8, "check": False, "protected": False, "trusted": False}
        z, w = motion(push @ adjoint(r), adjoint(q) @ push, t, q, r, *factors, **tolerance)
        return z @ r + q @ w

    def expected(a: Any, push: Any) -> Any:
        u, s, vh = np.linalg.svd(a)
        inner = adjoint(u) @ push @ adjoint(vh)
        m, n = a.shape
        s = np.concatenate([s, np.zeros(max(m, n) - len(s))])
        total = np.zeros_like(inner)
        total[:rank] = inner[:rank]
        for i in range(rank):
            for j in range(rank, m):
                back = np.conj(inner[i, j]) if j < n else 0
                z = (s[i] * inner[j, i] + s[j] * back) / (s[i] ** 2 - s[j] ** 2)
                total[j, i] += z * s[i]
                if j < n:
                    total[i, j] += np.conj(z) * s[j]
        return u @ total @ vh

    return Sample("space_motion", found, (x, g), expected, label=f"rank{rank}-{'x'.join(map(str, x.shape))}")


SAMPLES = [
    *[factors(x, hermitian=False) for x in (real(3, 2), complex_(2, 3), real(0, 2))],
    *[factors(x, hermitian=True) for x in (real(3, 3), complex_(3, 3), real(2, 2, 2), real(0, 0))],
    *[space(x, 1) for x in (real(3, 3), real(3, 2), real(2, 3), complex_(2, 3), real(2, 2, 2))],
    space(real(3, 3), 2),
    space(real(2, 2), 2),
    space(real(2, 2), 0),
    moved(real(3, 3), real(3, 3, seed=1), 2),
    moved(real(3, 2), real(3, 2, seed=1), 1),
    moved(real(2, 3), real(2, 3, seed=1), 1),
    moved(complex_(3, 3), complex_(3, 3, seed=1), 1),
]
