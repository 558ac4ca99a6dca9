"""Losses whose gradient is known in closed form, at distinct, nearly equal, equal and vanishing spectra.

Each gradient is right to a relative 1e-6, or is refused with a typed error; it is never finite and wrong, never NaN.
A table says for each loss where the answer is required and a refusal would be a failure: wherever the loss does not
depend on the basis that a decomposition happens to choose. Forward mode is required wherever the values are told apart,
and at equal values along directions that do not split them. `test_judges` shows that the probes fail where they should.
Here: Hermitian matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.linalg.oracles import (
    Hermitian,
    divided,
    dyadic_frame,
    frame,
    hermitian,
    indicator,
    judge,
    outcome,
    weights,
)
from tests.linalg.probing import (
    DYADIC,
    FRAMES,
    GAPS,
    always,
    apart,
    inner,
    judge_along,
    positive,
    projector,
    push_forward,
    quotients,
    told_apart,
    unsplit,
    weight_for,
)

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
    """A loss of a Hermitian matrix and a weight, its gradient, and for which eigenvalues that is required.

    Forward mode is required along any direction for the eigenvalues that ``forward`` says.
    """

    loss: Callable[[Any, Any], Any]
    gradient: Callable[[Hermitian, Any], Any]
    required: Callable[[Any], bool] = always
    defined: Callable[[Any], bool] = always
    forward: Callable[[Any], bool] = apart


def block(values: Any) -> Any:
    return values < 1.5


def below(a: Any) -> int:
    """Return the number of eigenvalues in the first block, which the program is told."""
    return int(np.sum(block(np.linalg.eigvalsh(a.eval()))))


def rebuild(a: Any, f: Callable[[Any], Any]) -> Any:
    """Return f(a) by eigenvalues and eigenvectors."""
    values, vectors = us.linalg.eigh(a)
    return (vectors * f(values)) @ vectors.H


def function_of_matrix(f: Any, build: Any, slope: Any) -> HermitianProbe:
    """Return the probe Re⟨w, V f(Λ) Vᴴ⟩, whose gradient the eigenvectors alone cannot tell inside a block."""
    return HermitianProbe(
        lambda a, w: inner(w, rebuild(a, build)),
        lambda h, w: h.pull_back(w, divided(f, slope)(h.values)),
        required=apart,
    )


def function_of_values(
    values: Any, build: Any, slopes: Any, defined: Any = always, forward: Any = told_apart
) -> HermitianProbe:
    """Return the probe of a symmetric function of eigenvalues, whose gradient is V diag(slopes) Vᴴ."""
    return HermitianProbe(
        lambda a, w: build(values(a)),
        lambda h, w: (h.vectors * slopes(h.values)) @ h.vectors.conj().T,
        defined=defined,
        forward=forward,
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
        lambda a: us.linalg.slogdet(a)[1], lambda x: x, lambda x: 1 / x, defined=positive, forward=always
    ),
    "log det by cholesky": function_of_values(
        lambda a: us.diagonal(us.linalg.cholesky(a)),
        lambda x: 2 * us.sum(us.log(us.real(x))),
        lambda x: 1 / x,
        defined=positive,
        forward=always,
    ),
    "matrix itself": function_of_matrix(lambda x: x, lambda x: x, np.ones_like),
    "square": function_of_matrix(np.square, us.square, lambda x: 2 * x),
    "exponential": function_of_matrix(np.exp, us.exp, np.exp),
    "tanh": function_of_matrix(np.tanh, us.tanh, lambda x: 1 / np.cosh(x) ** 2),
    # No part of this weight is on the diagonal, so the derivatives by the eigenvalues see nothing of it on the axes. At
    # an eigenvalue 0 those by the vectors vanish as well, which is why vectors of that value are a generic basis.
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


@pytest.mark.parametrize(("spectrum", "name", "kind"), list(hermitian_cases()))
def test_gradients_of_losses_of_eigenvalues_and_eigenvectors(spectrum: str, name: str, kind: str) -> None:
    probe, h, w = hermitian_case(spectrum, name, kind)
    judge(outcome(lambda a: probe.loss(a, w), h.matrix), probe.gradient(h, w), required=probe.required(h.values))


# --- forward mode ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("spectrum", "name", "kind"), list(hermitian_cases()))
def test_forward_mode_is_right_and_refuses_at_most_to_split_equal_eigenvalues(
    spectrum: str, name: str, kind: str
) -> None:
    probe, h, w = hermitian_case(spectrum, name, kind)
    generic = hermitian(weights(*w.shape, field="complex" if kind == "unitary" else "real", seed=9))
    for direction, required in ((generic, probe.forward(h.values)), (unsplit(h, generic), True)):
        found = push_forward(lambda a: probe.loss(a, w), h.matrix, direction)
        judge_along(found, probe.gradient(h, w), direction, required)


# --- exactly known gaps ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["rotation", "unitary"])
@pytest.mark.parametrize("bits", DYADIC)
def test_a_projector_that_splits_a_close_pair_is_right_or_refused(bits: int, kind: str) -> None:
    h = Hermitian(np.array([1, 1 + 2.0**-bits, 2, 3]), dyadic_frame(kind))
    w = weight_for(kind, 4, 4)
    expected = h.pull_back(w, quotients(np.array([1.0, 0, 0, 0]), h.values))
    found = outcome(lambda a: inner(w, projector(us.linalg.eigh(a)[1][:, :1])), h.matrix)
    judge(found, expected, required=bits <= 13)
