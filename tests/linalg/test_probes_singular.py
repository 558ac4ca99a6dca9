"""Losses of singular values and vectors whose gradient is known in closed form, judged as in `test_probes`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.linalg.oracles import (
    Factored,
    divided,
    dyadic_frame,
    frame,
    indicator,
    judge,
    on,
    outcome,
    weights,
)
from tests.linalg.probing import (
    DYADIC,
    GAPS,
    always,
    apart_and_positive,
    has_zero,
    inner,
    judge_along,
    never,
    positive,
    projector,
    push_forward,
    quotients,
    told_apart_and_positive,
    unsplit_singular,
    weight_for,
)
from unspool.errors import GaugeError, RankError

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
SHAPES = [("axes", "square"), ("rotation", "tall"), ("rotation", "wide"), ("unitary", "square"), ("unitary", "wide")]


@dataclass(frozen=True)
class Probe:
    """A loss of a matrix and a weight, its gradient, and for which singular values that is required.

    Forward mode is required along any direction for the values that ``forward`` says. ``rough`` says where the loss has
    no derivative in either mode, and a refusal is the only right answer.
    """

    loss: Callable[[Any, Any], Any]
    gradient: Callable[[Factored, Any], Any]
    required: Callable[[Any], bool] = always
    defined: Callable[[Any], bool] = always
    forward: Callable[[Any], bool] = apart_and_positive
    rough: Callable[[Any], bool] = never


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


def of_singular_values(
    build: Any, slopes: Any, defined: Any = always, values: Callable[[Any], Any] = us.linalg.svdvals
) -> Probe:
    return Probe(
        lambda a, w: build(values(a)),
        lambda x, w: x.spectral(slopes(x.values)),
        defined=defined,
        forward=told_apart_and_positive,
    )


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


LOW_RANK = on(kept, lambda x: x, np.ones_like)

PROBES = {
    "norm of the product": Probe(
        lambda a, w: us.linalg.norm(product(a)), lambda x, w: x.matrix / (np.linalg.norm(x.matrix) or 1.0)
    ),
    "left projector": Probe(
        lambda a, w: inner(
            square_weight(w, a.shape[0]), projector(us.linalg.svd(a, full_matrices=False)[0][:, : count(a)])
        ),
        lambda x, w: x.pull_back(indicator(kept), left=left_weight(x, w)),
    ),
    "right projector": Probe(
        lambda a, w: inner(
            square_weight(w, a.shape[1]), projector(us.linalg.svd(a, full_matrices=False)[2].H[:, : count(a)])
        ),
        lambda x, w: x.pull_back(indicator(kept), right=right_weight(x, w)),
    ),
    "left projector on the block below": Probe(
        lambda a, w: inner(
            square_weight(w, a.shape[0]), projector(us.linalg.svd(a, full_matrices=False)[0][:, count(a) :])
        ),
        lambda x, w: x.pull_back(indicator(lambda v: nonzero(v) & ~kept(v)), left=left_weight(x, w)),
        defined=positive,
    ),
    "left projector of the full svd": Probe(
        lambda a, w: inner(
            square_weight(w, a.shape[0]), projector(us.linalg.svd(a, full_matrices=True)[0][:, count(a) :])
        ),
        lambda x, w: -x.pull_back(indicator(kept), left=left_weight(x, w)),
    ),
    "sum of singular values": of_singular_values(us.sum, np.ones_like, defined=positive),
    "sum of cubes": of_singular_values(lambda s: us.sum(s**3), lambda s: 3 * s**2),
    "logsumexp": of_singular_values(us.logsumexp, lambda s: np.exp(s) / np.sum(np.exp(s)), defined=positive),
    "sum of log": of_singular_values(lambda s: us.sum(us.log(s)), lambda s: 1 / s, defined=positive),
    "sum of cubes by svd": of_singular_values(
        lambda s: us.sum(s**3), lambda s: 3 * s**2, values=lambda a: us.linalg.svd(a, full_matrices=False)[1]
    ),
    "nuclear norm": of_singular_values(
        lambda norm: norm, np.ones_like, defined=positive, values=lambda a: us.linalg.norm(a, "nuc")
    ),
    "product": Probe(lambda a, w: inner(w, product(a)), lambda x, w: w, required=apart_and_positive),
    "product, values from svdvals": Probe(
        lambda a, w: inner(w, product(a, lambda s: us.linalg.svdvals(a))),
        lambda x, w: w,
        required=apart_and_positive,
    ),
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
        defined=has_kept,
        forward=always,
    ),
    "polar factor": Probe(
        lambda a, w: inner(w, us.linalg.polar(a)[0]),
        lambda x, w: x.pull_back(on(nonzero, np.sign, np.zeros_like), off=w),
        forward=always,
        rough=has_zero,
    ),
    "pseudo-inverse": Probe(
        lambda a, w: inner(w, us.linalg.pinv(a).H),
        lambda x, w: x.pull_back(divided(inverse, lambda v: -(inverse(v) ** 2)), off=w),
        defined=positive,
        forward=always,
    ),
}


def cases() -> Iterator[Any]:
    for spectrum, values in SINGULAR.items():
        for name, probe in PROBES.items():
            if probe.defined(np.array(values, float)):
                for kind, side in SHAPES:
                    yield pytest.param(spectrum, name, kind, side, id=f"{name}-{spectrum}-{kind}-{side}")


def case(spectrum: str, name: str, kind: str, side: str) -> tuple[Probe, Factored, Any]:
    values = np.array(SINGULAR[spectrum], float)
    m, n = (len(values) + extra for extra in SIDES[side])
    return PROBES[name], Factored(frame(m, kind, 2), values, frame(n, kind, 3)), weight_for(kind, m, n)


@pytest.mark.parametrize(("spectrum", "name", "kind", "side"), list(cases()))
def test_gradients_of_losses_of_singular_values_and_vectors(spectrum: str, name: str, kind: str, side: str) -> None:
    probe, x, w = case(spectrum, name, kind, side)
    found = outcome(lambda a: probe.loss(a, w), x.matrix)
    if probe.rough(x.values):
        assert isinstance(found, RankError)
    else:
        judge(found, probe.gradient(x, w), required=probe.required(x.values))


# --- forward mode ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("spectrum", "name", "kind", "side"), list(cases()))
def test_forward_mode_is_right_and_refuses_at_most_to_split_equal_singular_values(
    spectrum: str, name: str, kind: str, side: str
) -> None:
    probe, x, w = case(spectrum, name, kind, side)
    generic = weights(*w.shape, field="complex" if kind == "unitary" else "real", seed=9)
    for direction, required in ((generic, probe.forward(x.values)), (unsplit_singular(x, generic), True)):
        found = push_forward(lambda a: probe.loss(a, w), x.matrix, direction)
        if probe.rough(x.values):
            assert isinstance(found, RankError)
        else:
            judge_along(found, probe.gradient(x, w), direction, required)


# --- exactly known gaps ----------------------------------------------------------------------------------------------


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
