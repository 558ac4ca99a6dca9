"""Losses whose gradient is known in closed form, at distinct, nearly equal, equal and vanishing spectra.

Each gradient is right to a relative 1e-6, or is refused with a typed error; finite and wrong never happens, nor does NaN.
A table says for each loss where the answer is required and a refusal would be a failure: wherever the loss does not
depend on the basis that a decomposition happens to choose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.linalg.oracles import (
    Factored,
    Hermitian,
    divided,
    dyadic_frame,
    frame,
    hermitian,
    indicator,
    judge,
    on,
    outcome,
    weights,
)
from unspool.errors import GaugeError, RankError, UnspoolError

GAPS = (1e-4, 1e-6, 1e-8, 1e-9, 1e-10, 1e-11, 1e-12, 1e-13, 1e-14, 1e-15)
FRAMES = ("axes", "rotation", "unitary")


def inner(w: Any, x: Any) -> Any:
    """Return Re⟨w, x⟩."""
    return us.real(us.sum(np.conj(w) * x))


def weight_for(kind: str, *shape: int) -> Any:
    """Return a generic weight of the kind of numbers that a frame has."""
    return weights(*shape, field="complex" if kind == "unitary" else "real")


def always(values: Any) -> bool:
    return True


def never(values: Any) -> bool:
    return False


def apart(values: Any) -> bool:
    """Whether all values differ so clearly that no rule may have doubts."""
    return len(values) < 2 or np.min(np.abs(np.diff(values))) > 5e-5


def positive(values: Any) -> bool:
    return bool(np.min(values) > 0.5)


# --- Hermitian matrices ----------------------------------------------------------------------------------------------

# Ascending, with the first ones a block: the values below 1.5.
HERMITIAN = {
    "distinct": [0.7, 1.2, 2.0, 3.5],
    **{f"gap {gap:.0e}": [1, 1 + gap, 2, 3] for gap in GAPS},
    "equal to rounding": [1, 1 + 2.3e-16, 2, 3],
    "two equal": [1, 1, 2, 3],
    "three equal": [1, 1, 1, 2, 3],
    "two and three equal": [1, 1, 2, 2, 2],
    "all equal": [1, 1, 1],
    "a zero": [0, 1, 2, 3],
    "two zeros": [0, 0, 2, 3],
    "all zero": [0, 0, 0],
}


@dataclass(frozen=True)
class HermitianProbe:
    """A loss of a Hermitian matrix and a weight, its gradient, and for which eigenvalues that is required."""

    loss: Callable[[Any, Any], Any]
    gradient: Callable[[Hermitian, Any], Any]
    required: Callable[[Any], bool] = always
    defined: Callable[[Any], bool] = always


def block(values: Any) -> Any:
    return values < 1.5


def below(a: Any) -> int:
    """Return the number of eigenvalues in the first block, which the program is told."""
    return int(np.sum(block(np.linalg.eigvalsh(a.eval()))))


def rebuild(a: Any, f: Callable[[Any], Any]) -> Any:
    """Return f(a) by eigenvalues and eigenvectors."""
    values, vectors = us.linalg.eigh(a)
    return (vectors * f(values)) @ vectors.H


def projector(vectors: Any) -> Any:
    return vectors @ vectors.H


def function_of_matrix(f: Any, build: Any, slope: Any) -> HermitianProbe:
    """Return the probe Re⟨w, V f(Λ) Vᴴ⟩, whose gradient the eigenvectors alone cannot tell inside a block."""
    return HermitianProbe(
        lambda a, w: inner(w, rebuild(a, build)),
        lambda h, w: h.pull_back(w, divided(f, slope)(h.values)),
        required=apart,
    )


def function_of_values(values: Any, build: Any, slopes: Any, defined: Any = always) -> HermitianProbe:
    """Return the probe of a symmetric function of eigenvalues, whose gradient is V diag(slopes) Vᴴ."""
    return HermitianProbe(
        lambda a, w: build(values(a)),
        lambda h, w: (h.vectors * slopes(h.values)) @ h.vectors.conj().T,
        defined=defined,
    )


HERMITIAN_PROBES = {
    "norm of the product": HermitianProbe(
        lambda a, w: us.linalg.norm(rebuild(a, lambda x: x)),
        lambda h, w: h.matrix / (np.linalg.norm(h.matrix) or 1.0),
    ),
    "projector on the block": HermitianProbe(
        lambda a, w: inner(w, projector(us.linalg.eigh(a)[1][:, : below(a)])),
        lambda h, w: h.pull_back(w, indicator(block)(h.values)),
    ),
    "projector on the rest": HermitianProbe(
        lambda a, w: inner(w, projector(us.linalg.eigh(a)[1][:, below(a) :])),
        lambda h, w: -h.pull_back(w, indicator(block)(h.values)),
    ),
    "weighted sum of two projectors": HermitianProbe(
        lambda a, w: inner(w, rebuild(a, lambda x: us.where(np.arange(x.shape[0]) < below(a), 2.0, -3.0))),
        lambda h, w: 5 * h.pull_back(w, indicator(block)(h.values)),
    ),
    "sum of exp of eigvalsh": function_of_values(us.linalg.eigvalsh, lambda x: us.sum(us.exp(x)), np.exp),
    "sum of exp of eigh": function_of_values(lambda a: us.linalg.eigh(a)[0], lambda x: us.sum(us.exp(x)), np.exp),
    "sum of cubes": function_of_values(us.linalg.eigvalsh, lambda x: us.sum(x**3), lambda x: 3 * x**2),
    "logsumexp": function_of_values(us.linalg.eigvalsh, us.logsumexp, lambda x: np.exp(x) / np.sum(np.exp(x))),
    "log det by eigvalsh": function_of_values(
        us.linalg.eigvalsh, lambda x: us.sum(us.log(x)), lambda x: 1 / x, defined=positive
    ),
    "log det by slogdet": function_of_values(
        lambda a: us.linalg.slogdet(a)[1], lambda x: x, lambda x: 1 / x, defined=positive
    ),
    "log det by cholesky": function_of_values(
        lambda a: us.diagonal(us.linalg.cholesky(a)),
        lambda x: 2 * us.sum(us.log(us.real(x))),
        lambda x: 1 / x,
        defined=positive,
    ),
    "matrix itself": function_of_matrix(lambda x: x, lambda x: x, np.ones_like),
    "square": function_of_matrix(np.square, us.square, lambda x: 2 * x),
    "exponential": function_of_matrix(np.exp, us.exp, np.exp),
    "tanh": function_of_matrix(np.tanh, us.tanh, lambda x: 1 / np.cosh(x) ** 2),
    # No part of this weight is on the diagonal, so the derivatives by the eigenvalues see nothing of it on the axes.
    "square, hidden": HermitianProbe(
        lambda a, w: inner(off_diagonal(w), rebuild(a, us.square)),
        lambda h, w: h.pull_back(off_diagonal(w), divided(np.square, lambda x: 2 * x)(h.values)),
        required=apart,
    ),
    "product, hidden": HermitianProbe(
        lambda a, w: inner(off_diagonal(w), rebuild(a, lambda x: x)),
        lambda h, w: hermitian(off_diagonal(w)),
        required=apart,
    ),
}


def off_diagonal(w: Any) -> Any:
    return w - np.diag(np.diagonal(w))


def hermitian_cases() -> Iterator[Any]:
    for spectrum, values in HERMITIAN.items():
        for name, probe in HERMITIAN_PROBES.items():
            if probe.defined(np.array(values, float)):
                for kind in FRAMES:
                    yield pytest.param(spectrum, name, kind, id=f"{name}-{spectrum}-{kind}")


def hermitian_case(spectrum: str, name: str, kind: str) -> tuple[HermitianProbe, Hermitian, Any]:
    values = np.array(HERMITIAN[spectrum], float)
    size = len(values)
    return HERMITIAN_PROBES[name], Hermitian(values, frame(size, kind)), weight_for(kind, size, size)


@pytest.mark.parametrize(("spectrum", "name", "kind"), hermitian_cases())
def test_gradients_of_losses_of_eigenvalues_and_eigenvectors(spectrum: str, name: str, kind: str) -> None:
    probe, h, w = hermitian_case(spectrum, name, kind)
    found = outcome(lambda a: probe.loss(a, w), h.matrix)
    # Only moves among Hermitian matrices count: how a gradient is shared between two mirrored entries is a convention.
    found = found if isinstance(found, UnspoolError) else hermitian(found)
    judge(found, probe.gradient(h, w), required=probe.required(h.values))


# --- any matrices ----------------------------------------------------------------------------------------------------

# Descending; the values above 1.5 are kept by what truncates.
SINGULAR = {
    "distinct": [3, 2, 1.2, 0.7],
    **{f"gap {gap:.0e}": [3, 2, 1 + gap, 1] for gap in GAPS},
    "equal to rounding": [3, 2, 1 + 2.3e-16, 1],
    "two equal": [3, 2, 1, 1],
    "three equal": [3, 1, 1, 1],
    "two pairs": [2, 2, 1, 1],
    "all equal": [2, 2, 2],
    "a zero": [3, 2, 1, 0],
    "two zeros": [3, 2, 0, 0],
    "equal and zero": [2, 1, 1, 0],
    "all zero": [0, 0, 0],
}
SIDES = {"square": (0, 0), "tall": (2, 0), "wide": (0, 2)}


@dataclass(frozen=True)
class Probe:
    """A loss of a matrix and a weight, its gradient, and for which singular values that is required."""

    loss: Callable[[Any, Any], Any]
    gradient: Callable[[Factored, Any], Any]
    required: Callable[[Any], bool] = always
    defined: Callable[[Any], bool] = always


def kept(values: Any) -> Any:
    return np.abs(values) > 1.5


def count(a: Any) -> int:
    """Return the number of singular values that are kept, which the program is told."""
    return int(np.sum(kept(np.linalg.svd(a.eval(), compute_uv=False))))


def product(a: Any, f: Callable[[Any], Any] = lambda s: s) -> Any:
    """Return U f(S) Vᴴ."""
    u, s, vh = us.linalg.svd(a, full_matrices=False)
    return (u * f(s)) @ vh


def truncated_product(a: Any) -> Any:
    u, s, vh = us.linalg.truncated_svd(a, rank=count(a))
    return (u * s) @ vh


def of_singular_values(build: Any, slopes: Any, defined: Any = always) -> Probe:
    return Probe(lambda a, w: build(us.linalg.svdvals(a)), lambda x, w: x.spectral(slopes(x.values)), defined=defined)


def left_weight(x: Factored, w: Any) -> Any:
    return square_weight(w, len(x.left))


def right_weight(x: Factored, w: Any) -> Any:
    return square_weight(w, len(x.right))


def square_weight(w: Any, size: int) -> Any:
    """Return a square weight made of the numbers of another."""
    return np.resize(w, (size, size)) + np.diag(np.arange(size))


def has_kept(values: Any) -> bool:
    return bool(np.any(kept(values)))


def inverse(x: Any) -> Any:
    return 1 / np.where(np.abs(x) > 0.5, x, np.inf)


def nonzero(x: Any) -> Any:
    return np.abs(x) > 0.5


def apart_and_positive(values: Any) -> bool:
    return apart(values) and positive(values)


LOW_RANK = on(kept, lambda x: x, np.ones_like)

PROBES = {
    "norm of the product": Probe(
        lambda a, w: us.linalg.norm(product(a)), lambda x, w: x.matrix / (np.linalg.norm(x.matrix) or 1.0)
    ),
    "left projector": Probe(
        lambda a, w: inner(square_weight(w, a.shape[0]), projector(us.linalg.svd(a, full_matrices=False)[0][:, : count(a)])),
        lambda x, w: x.pull_back(indicator(kept), left=left_weight(x, w)),
    ),
    "right projector": Probe(
        lambda a, w: inner(square_weight(w, a.shape[1]), projector(us.linalg.svd(a, full_matrices=False)[2].H[:, : count(a)])),
        lambda x, w: x.pull_back(indicator(kept), right=right_weight(x, w)),
    ),
    "left projector on the block below": Probe(
        lambda a, w: inner(square_weight(w, a.shape[0]), projector(us.linalg.svd(a, full_matrices=False)[0][:, count(a) :])),
        lambda x, w: x.pull_back(indicator(lambda v: nonzero(v) & ~kept(v)), left=left_weight(x, w)),
        defined=positive,
    ),
    "left projector of the full svd": Probe(
        lambda a, w: inner(square_weight(w, a.shape[0]), projector(us.linalg.svd(a, full_matrices=True)[0][:, count(a) :])),
        lambda x, w: -x.pull_back(indicator(kept), left=left_weight(x, w)),
    ),
    "sum of singular values": of_singular_values(us.sum, np.ones_like, defined=positive),
    "sum of cubes": of_singular_values(lambda s: us.sum(s**3), lambda s: 3 * s**2),
    "logsumexp": of_singular_values(us.logsumexp, lambda s: np.exp(s) / np.sum(np.exp(s)), defined=positive),
    "sum of log": of_singular_values(lambda s: us.sum(us.log(s)), lambda s: 1 / s, defined=positive),
    "sum of cubes by svd": Probe(
        lambda a, w: us.sum(us.linalg.svd(a, full_matrices=False)[1] ** 3), lambda x, w: x.spectral(3 * x.values**2)
    ),
    "nuclear norm": Probe(
        lambda a, w: us.linalg.norm(a, "nuc"), lambda x, w: x.spectral(np.ones_like(x.values)), defined=positive
    ),
    "product": Probe(lambda a, w: inner(w, product(a)), lambda x, w: w, required=apart_and_positive),
    "tanh": Probe(
        lambda a, w: inner(w, product(a, us.tanh)),
        lambda x, w: x.pull_back(divided(np.tanh, lambda v: 1 / np.cosh(v) ** 2), off=w),
        required=apart_and_positive,
    ),
    "cube": Probe(
        lambda a, w: inner(w, product(a, lambda s: s**3)),
        lambda x, w: x.pull_back(divided(lambda v: v**3, lambda v: 3 * v**2), off=w),
        required=apart_and_positive,
    ),
    "truncated product": Probe(
        lambda a, w: inner(w, truncated_product(a)),
        lambda x, w: x.pull_back(LOW_RANK, off=w),
        required=apart_and_positive,
        defined=has_kept,
    ),
    "norm of the truncated product": Probe(
        lambda a, w: us.linalg.norm(truncated_product(a)),
        lambda x, w: x.spectral(x.values * kept(x.values)) / np.linalg.norm(x.values * kept(x.values)),
        defined=has_kept,
    ),
    "low rank": Probe(
        lambda a, w: inner(w, us.linalg.low_rank(a, count(a))),
        lambda x, w: x.pull_back(LOW_RANK, off=w),
        required=apart_and_positive,
        defined=has_kept,
    ),
    "polar factor": Probe(
        lambda a, w: inner(w, us.linalg.polar(a)[0]),
        lambda x, w: x.pull_back(on(nonzero, np.sign, np.zeros_like), off=w),
        required=positive,
    ),
    "pseudo-inverse": Probe(
        lambda a, w: inner(w, us.linalg.pinv(a).H),
        lambda x, w: x.pull_back(divided(inverse, lambda v: -(inverse(v) ** 2)), off=w),
        required=positive,
        defined=positive,
    ),
}


def cases() -> Iterator[Any]:
    for spectrum, values in SINGULAR.items():
        for name, probe in PROBES.items():
            if probe.defined(np.array(values, float)):
                for kind in FRAMES:
                    for side in SIDES:
                        yield pytest.param(spectrum, name, kind, side, id=f"{name}-{spectrum}-{kind}-{side}")


def case(spectrum: str, name: str, kind: str, side: str) -> tuple[Probe, Factored, Any]:
    values = np.array(SINGULAR[spectrum], float)
    m, n = (len(values) + extra for extra in SIDES[side])
    return PROBES[name], Factored(frame(m, kind, 2), values, frame(n, kind, 3)), weight_for(kind, m, n)


@pytest.mark.parametrize(("spectrum", "name", "kind", "side"), cases())
def test_gradients_of_losses_of_singular_values_and_vectors(spectrum: str, name: str, kind: str, side: str) -> None:
    probe, x, w = case(spectrum, name, kind, side)
    if x.matrix.shape[0] < x.matrix.shape[1] and name == "polar factor":
        pytest.skip("a wide matrix has no polar factor with orthonormal columns")
    judge(outcome(lambda a: probe.loss(a, w), x.matrix), probe.gradient(x, w), required=probe.required(x.values))


# --- forward mode ----------------------------------------------------------------------------------------------------


def push_forward(loss: Callable[[Any], Any], at: Any, direction: Any) -> Any:
    """Return the derivative along a direction, or the typed error that refused it."""
    try:
        return us.jvp(loss, (us.tensor(at),), (us.tensor(direction),))[1].eval()
    except (GaugeError, RankError) as refusal:
        return refusal


def judge_along(found: Any, gradient: Any, direction: Any) -> None:
    if isinstance(found, UnspoolError):
        return
    expected = np.real(np.vdot(gradient, direction))
    size = np.linalg.norm(gradient) * np.linalg.norm(direction)
    assert np.isfinite(found)
    assert abs(found - expected) <= 1e-6 * (size or 1.0), f"finite and wrong: {found} is not {expected}"


@pytest.mark.parametrize(("spectrum", "name", "kind"), hermitian_cases())
def test_forward_mode_is_right_or_refuses_too(spectrum: str, name: str, kind: str) -> None:
    probe, h, w = hermitian_case(spectrum, name, kind)
    direction = hermitian(weights(*w.shape, field="complex" if kind == "unitary" else "real", seed=9))
    found = push_forward(lambda a: probe.loss(a, w), h.matrix, direction)
    judge_along(found, probe.gradient(h, w), direction)


# --- exactly known gaps ----------------------------------------------------------------------------------------------

# In a dyadic frame the matrix has exactly these eigenvalues, so that even a loss that splits the pair has a known
# gradient. It is as large as one over the gap, and no computation can have it once the gap is near rounding.
DYADIC = (8, 13, 20, 27, 30, 33, 36, 40, 43, 46, 49)


def quotients(f: Any, values: Any) -> Any:
    gaps = values[:, None] - values[None, :]
    return (f[:, None] - f[None, :]) / np.where(gaps == 0, 1.0, gaps)


@pytest.mark.parametrize("kind", ["rotation", "unitary"])
@pytest.mark.parametrize("bits", DYADIC)
def test_a_projector_that_splits_a_close_pair_is_right_or_refused(bits: int, kind: str) -> None:
    h = Hermitian(np.array([1, 1 + 2.0**-bits, 2, 3]), dyadic_frame(kind))
    w = weight_for(kind, 4, 4)
    expected = h.pull_back(w, quotients(np.array([1.0, 0, 0, 0]), h.values))
    found = outcome(lambda a: inner(w, projector(us.linalg.eigh(a)[1][:, :1])), h.matrix)
    judge(found if isinstance(found, UnspoolError) else hermitian(found), expected, required=bits <= 13)


@pytest.mark.parametrize("kind", ["rotation", "unitary"])
@pytest.mark.parametrize("bits", DYADIC)
@pytest.mark.parametrize("build", ["truncated_svd", "low_rank"])
def test_a_cut_through_a_close_pair_is_right_or_refused(build: str, bits: int, kind: str) -> None:
    x = Factored(dyadic_frame(kind), np.array([3, 2, 1 + 2.0**-bits, 1]), dyadic_frame("rotation")[:, [2, 0, 3, 1]])
    w = weight_for(kind, 4, 4)

    def loss(a: Any) -> Any:
        if build == "low_rank":
            return inner(w, us.linalg.low_rank(a, 3))
        u, s, vh = us.linalg.truncated_svd(a, rank=3)
        return inner(w, (u * s) @ vh)

    def differences(points: Any) -> Any:
        f = np.where(np.abs(points) > 1, points, 0.0)
        return np.where(points[:, None] == points[None, :], (f != 0)[:, None], quotients(f, points))

    judge(outcome(loss, x.matrix), x.pull_back(differences, off=w), required=bits <= 13)


def test_a_cut_through_equal_singular_values_is_refused() -> None:
    x = Factored(frame(4, "rotation", 2), np.array([3.0, 2, 1, 1]), frame(4, "rotation", 3))
    assert isinstance(outcome(lambda a: inner(weights(4, 4), us.linalg.low_rank(a, 3)), x.matrix), GaugeError)
