"""Matrices with generated spectra, blocks and gaps; the derivative of Daleckii and Krein decides what is right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import unspool as us
from tests.linalg.oracles import Factored, Hermitian, divided, frame, indicator, judge, outcome, weights
from tests.linalg.probing import inner

# How far apart the members of a block are, relative to their size. The largest is not a block any more.
SPREADS = (0.0, 1e-16, 1e-15, 1e-14, 1e-13, 1e-12, 1e-11, 1e-10, 1e-9, 1e-8, 1e-6, 1e-4)


@dataclass(frozen=True)
class Spectrum:
    """Values in falling order, the number of them in each block, and the kind of frame they are put into."""

    values: Any
    blocks: tuple[int, ...]
    kind: str
    seed: int

    @property
    def exact(self) -> bool:
        """Whether every block has one member, so that no refusal is allowed."""
        return max(self.blocks) == 1

    def weight(self, *shape: int) -> Any:
        """Return a generic weight."""
        return weights(*shape, field="complex" if self.kind == "unitary" else "real", seed=self.seed)


@st.composite
def spectra(draw: st.DrawFn, zero: bool = False, sign: bool = False) -> Spectrum:
    blocks = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    level, values = draw(st.floats(0.5, 1.5)), []
    for size in reversed(blocks):
        spread = draw(st.sampled_from(SPREADS))
        values += [level * (1 + i * spread) for i in range(size)]
        level += draw(st.floats(0.3, 2.0))
    ordered = np.array(values[::-1])
    if zero:
        ordered[len(ordered) - blocks[-1] :] = 0.0
    if sign:
        ordered -= draw(st.sampled_from([0.0, 1.0, 3.0]))
    return Spectrum(ordered, blocks, draw(st.sampled_from(["axes", "rotation", "unitary"])), draw(st.integers(0, 99)))


def ascending(spectrum: Spectrum) -> tuple[Hermitian, tuple[int, ...]]:
    """Return the Hermitian matrix with this spectrum and the sizes of its blocks from below."""
    values = spectrum.values[::-1]
    return Hermitian(values, frame(len(values), spectrum.kind, spectrum.seed)), spectrum.blocks[::-1]


def factored(spectrum: Spectrum, extra: tuple[int, int]) -> Factored:
    m, n = (len(spectrum.values) + e for e in extra)
    left, right = frame(m, spectrum.kind, spectrum.seed), frame(n, spectrum.kind, spectrum.seed + 1)
    return Factored(left, spectrum.values, right)


# --- Hermitian -------------------------------------------------------------------------------------------------------


@given(spectra(sign=True))
@settings(max_examples=150)
def test_functions_of_hermitian_matrices_are_right_or_refused(spectrum: Spectrum) -> None:
    h, _ = ascending(spectrum)
    w = spectrum.weight(*h.matrix.shape)

    def loss(a: Any) -> Any:
        values, vectors = us.linalg.eigh(a)
        return inner(w, (vectors * us.tanh(values)) @ vectors.H)

    expected = h.pull_back(w, divided(np.tanh, lambda x: 1 / np.cosh(x) ** 2)(h.values))
    judge(outcome(loss, h.matrix), expected, required=spectrum.exact)


@given(spectra(sign=True), st.data())
@settings(max_examples=150)
def test_projectors_on_whole_blocks_are_right(spectrum: Spectrum, data: st.DataObject) -> None:
    h, blocks = ascending(spectrum)
    w = spectrum.weight(*h.matrix.shape)
    chosen = data.draw(st.integers(0, len(blocks) - 1))
    start = sum(blocks[:chosen])
    stop = start + blocks[chosen]

    def loss(a: Any) -> Any:
        vectors = us.linalg.eigh(a)[1][:, start:stop]
        return inner(w, vectors @ vectors.H)

    low, high = h.values[start] - 0.1, h.values[stop - 1] + 0.1
    expected = h.pull_back(w, indicator(lambda x: (x > low) & (x < high))(h.values))
    found = outcome(loss, h.matrix)
    if len(blocks) == 1:
        # The whole space never moves; what rounding leaves is judged by what a gradient of a projector can be.
        assert np.linalg.norm(found) * np.linalg.norm(h.matrix) <= 1e-7 * np.linalg.norm(w)
    else:
        judge(found, expected)


@given(spectra(sign=True))
@settings(max_examples=100)
def test_symmetric_functions_of_eigenvalues_are_right(spectrum: Spectrum) -> None:
    h, _ = ascending(spectrum)
    expected = (h.vectors * np.exp(h.values)) @ h.vectors.conj().T
    judge(outcome(lambda a: us.sum(us.exp(us.linalg.eigvalsh(a))), h.matrix), expected)


# --- singular values -------------------------------------------------------------------------------------------------

EXTRA = st.sampled_from([(0, 0), (2, 0), (0, 1)])


@given(spectra(), EXTRA)
@settings(max_examples=150)
def test_functions_of_singular_values_and_vectors_are_right_or_refused(
    spectrum: Spectrum, extra: tuple[int, int]
) -> None:
    x = factored(spectrum, extra)
    w = spectrum.weight(*x.matrix.shape)

    def loss(a: Any) -> Any:
        u, s, vh = us.linalg.svd(a, full_matrices=False)
        return inner(w, (u * us.tanh(s)) @ vh)

    expected = x.pull_back(divided(np.tanh, lambda v: 1 / np.cosh(v) ** 2), off=w)
    judge(outcome(loss, x.matrix), expected, required=spectrum.exact)


@given(spectra(zero=True), EXTRA)
@settings(max_examples=100)
def test_functions_of_matrices_without_full_rank_are_right_or_refused(
    spectrum: Spectrum, extra: tuple[int, int]
) -> None:
    x = factored(spectrum, extra)
    w = spectrum.weight(*x.matrix.shape)

    def loss(a: Any) -> Any:
        u, s, vh = us.linalg.svd(a, full_matrices=False)
        return inner(w, (u * s**3) @ vh)

    expected = x.pull_back(divided(lambda v: v**3, lambda v: 3 * v**2), off=w)
    found = outcome(loss, x.matrix)
    # The cube has slope 0 at 0, so that the vectors of the value 0 do not matter. Equal values that are not 0 may.
    judge(found, expected, required=max(spectrum.blocks[:-1], default=1) == 1)


@given(spectra(zero=True), EXTRA)
@settings(max_examples=100)
def test_the_norm_of_the_product_is_right_everywhere(spectrum: Spectrum, extra: tuple[int, int]) -> None:
    x = factored(spectrum, extra)

    def loss(a: Any) -> Any:
        u, s, vh = us.linalg.svd(a, full_matrices=False)
        return us.linalg.norm((u * s) @ vh)

    judge(outcome(loss, x.matrix), x.matrix / (np.linalg.norm(x.matrix) or 1.0))


@given(spectra(), EXTRA, st.data())
@settings(max_examples=150)
def test_low_rank_parts_are_right(spectrum: Spectrum, extra: tuple[int, int], data: st.DataObject) -> None:
    x = factored(spectrum, extra)
    w = spectrum.weight(*x.matrix.shape)
    rank = sum(spectrum.blocks[: data.draw(st.integers(1, len(spectrum.blocks)))])
    cut = x.values[rank - 1] - 0.1

    def keep(f: Any) -> Any:
        return lambda v: np.where(np.abs(v) > cut, f(v), 0.0)

    expected = x.pull_back(divided(keep(lambda v: v), keep(np.ones_like)), off=w)
    judge(outcome(lambda a: inner(w, us.linalg.low_rank(a, rank)), x.matrix), expected)
