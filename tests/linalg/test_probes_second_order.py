"""Second derivatives at close and equal values: right or refused, like the first.

The gradient of a symmetric function of eigenvalues is a function of the matrix, V f(Λ) Vᴴ, so its derivative along a
direction is known by the theorem of Daleckii and Krein.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.linalg.oracles import Factored, Hermitian, divided, frame, hermitian, judge, outcome, weights

GAPS = (0.5, 1e-4, 1e-6, 3e-8, 1e-9, 1e-10, 1e-12, 1e-14, 1e-16, 0.0)


def direction(kind: str, hidden: bool) -> Any:
    """Return where to differentiate along; a hidden one has nothing on the diagonal."""
    found = weights(4, 4, field="complex" if kind == "unitary" else "real", seed=51)
    return found - np.diag(np.diagonal(found)) if hidden else found


def along(loss: Callable[[Any], Any], e: Any) -> Callable[[Any], Any]:
    """Return the derivative of a loss along a direction, which is the next loss."""
    return lambda a: us.sum(us.real(np.conj(e) * loss(a).grad(a)))


@pytest.mark.parametrize("hidden", [False, True], ids=["generic", "hidden"])
@pytest.mark.parametrize("kind", ["axes", "rotation", "unitary"])
@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("name", ["eigvalsh", "eigh"])
def test_of_functions_of_eigenvalues(name: str, gap: float, kind: str, hidden: bool) -> None:
    h = Hermitian(np.array([1.0, 1.0 + gap, 2.0, 3.0]), frame(4, kind))
    e = hermitian(direction(kind, hidden))
    values = us.linalg.eigvalsh if name == "eigvalsh" else lambda a: us.linalg.eigh(a)[0]
    found = outcome(along(lambda a: us.sum(us.exp(values(a))), e), h.matrix)
    expected = h.pull_back(e, divided(np.exp, np.exp)(h.values))
    judge(found, expected, required=gap > 5e-5)


@pytest.mark.parametrize("hidden", [False, True], ids=["generic", "hidden"])
@pytest.mark.parametrize("kind", ["axes", "rotation", "unitary"])
@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("name", ["svdvals", "svd"])
def test_of_functions_of_singular_values(name: str, gap: float, kind: str, hidden: bool) -> None:
    x = Factored(frame(4, kind, 2), np.array([3.0, 2.0, 1.0 + gap, 1.0]), frame(4, kind, 3))
    e = direction(kind, hidden)
    values = us.linalg.svdvals if name == "svdvals" else lambda a: us.linalg.svd(a)[1]
    found = outcome(along(lambda a: us.sum(values(a) ** 4), e), x.matrix)
    expected = x.pull_back(divided(lambda v: 4 * v**3, lambda v: 12 * v**2), off=e)
    judge(found, expected, required=gap > 5e-5)


@pytest.mark.parametrize("kind", ["axes", "rotation", "unitary"])
@pytest.mark.parametrize("gap", GAPS)
def test_of_the_norm_of_the_product(gap: float, kind: str) -> None:
    x = Factored(frame(4, kind, 2), np.array([3.0, 2.0, 1.0 + gap, 1.0]), frame(4, kind, 3)).matrix
    e = direction(kind, False)

    def loss(a: Any) -> Any:
        u, s, vh = us.linalg.svd(a)
        return us.linalg.norm((u * s) @ vh)

    size = np.linalg.norm(x)
    expected = e / size - x * np.real(np.vdot(x, e)) / size**3
    # Terms as large as 1/gap² cancel here, so that many digits are lost before the tolerance calls the values equal.
    rounding = 10 * np.finfo(float).eps / gap**2 if gap else 0.0
    judge(outcome(along(loss, e), x), expected, required=gap > 5e-5, accuracy=max(1e-6, rounding))


@pytest.mark.parametrize(
    ("values", "required"),
    [
        ([3.0, 2.0, 1.0, 0.0], True),
        ([3.0, 2.0, 0.0, 0.0], True),
        ([2.0, 1.0, 1.0, 0.0], False),
        ([0.0, 0.0, 0.0, 0.0], True),
    ],
)
def test_without_full_rank_no_nan_appears(values: list[float], required: bool) -> None:
    x = Factored(frame(4, "rotation", 2), np.array(values), frame(4, "rotation", 3))
    e = direction("rotation", False)
    found = outcome(along(lambda a: us.sum(us.linalg.svdvals(a) ** 4), e), x.matrix)
    judge(found, x.pull_back(divided(lambda v: 4 * v**3, lambda v: 12 * v**2), off=e), required=required)
