"""Convolution and correlation: SciPy's values in every mode, by both ways, and derivatives through both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import signal
from scipy.fft import next_fast_len

import unspool as us
from tests.samples import complex_, real
from unspool._graph import ancestors
from unspool.errors import ArgumentError, ShapeError, SizeContradictionError
from unspool.signal._convolution import _fast_size

MODES = ("full", "same", "valid")
SHAPES = [
    ((5,), (3,)),
    ((4,), (2,)),
    ((3,), (5,)),
    ((5, 4), (3, 2)),
    ((4, 4), (2, 3)),
    ((3, 2), (4, 5)),
    ((3, 4, 2), (2, 2, 2)),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_both_ways_are_scipys_in_every_mode(left: Any, right: Any, mode: str) -> None:
    for x, y in (
        (real(*left), real(*right, seed=2)),
        (complex_(*left), real(*right, seed=2)),
        (real(*left), complex_(*right)),
    ):
        for name in ("convolve", "correlate"):
            expected = getattr(signal, name)(x, y, mode, "direct")
            for method in ("direct", "fft", "auto"):
                found = getattr(us.signal, name)(x, y, mode, method)
                assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
                np.testing.assert_allclose(found.eval(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("boundary", ["fill", "wrap", "symm"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("left", "right"), [s for s in SHAPES if len(s[0]) == 2])
def test_matrices_have_scipys_values_at_every_kind_of_edge(left: Any, right: Any, mode: str, boundary: str) -> None:
    x, y = real(*left), real(*right, seed=2)
    for name in ("convolve2d", "correlate2d"):
        expected = getattr(signal, name)(x, y, mode, boundary)
        found = getattr(us.signal, name)(x, y, mode, boundary).eval()
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_a_constant_may_lie_beyond_the_edges() -> None:
    x, y = real(4, 3), real(2, 2, seed=2)
    expected = signal.convolve2d(x, y, "same", "fill", 2.5)
    np.testing.assert_allclose(us.signal.convolve2d(x, y, "same", fillvalue=2.5).eval(), expected)


def test_some_axes_are_convolved_and_others_broadcast() -> None:
    x, y = real(2, 5, 3), real(1, 2, 3, seed=2)
    for mode in MODES:
        expected = signal.fftconvolve(x, y, mode, axes=1)
        np.testing.assert_allclose(us.signal.fftconvolve(x, y, mode, axes=1).eval(), expected, atol=1e-13)


@pytest.mark.parametrize("mode", MODES)
def test_the_way_by_transforms_has_the_derivatives_of_the_direct_one(mode: str) -> None:
    x, y = real(5, 4), real(2, 3, seed=2)
    us.check_grad(lambda x, y: us.signal.fftconvolve(x, y, mode), x, y)
    us.check_grad(lambda x, y: us.signal.correlate(x, y, mode, "direct"), x, y)
    us.check_grad(lambda x, y: us.signal.convolve2d(x, y, mode, "wrap"), x, y)
    slopes = []
    for method in ("direct", "fft"):
        leaves = us.tensor(x), us.tensor(y)
        loss = us.sum(us.signal.convolve(*leaves, mode, method) ** 2)
        slopes.append([g.eval() for g in loss.grad(leaves)])
    for direct, by_transforms in zip(*slopes, strict=True):
        np.testing.assert_allclose(direct, by_transforms, rtol=1e-12, atol=1e-12)


def test_integers_stay_integers_and_exact() -> None:
    x = np.arange(2000) % 7
    out = us.signal.convolve(x, x)
    assert out.dtype == np.int64
    np.testing.assert_array_equal(out.eval(), np.convolve(x, x))


def test_large_operands_are_transformed_and_small_ones_are_not() -> None:
    def ops(n: int) -> set[str]:
        return {node.op.name for node in ancestors([us.signal.convolve(us.tensor(np.ones(n)), np.ones(n))])}

    assert "convolve_nd" in ops(10)
    assert "rfft" in ops(10_000)


def test_sizes_may_be_symbolic() -> None:
    n = us.dims("n")
    x, y = us.placeholder((n,)), np.array([1.0, 2.0, 3.0])
    for mode in MODES:
        for method in ("direct", "fft"):
            out = us.signal.convolve(x, y, mode, method)
            slope = us.sum(out**2).grad(x)
            for size in (3, 6):
                data = real(size)
                np.testing.assert_allclose(out.eval({x: data}), signal.convolve(data, y, mode), atol=1e-13)
                known = us.tensor(data)
                expected = us.sum(us.signal.convolve(known, y, mode, "direct") ** 2).grad(known).eval()
                np.testing.assert_allclose(slope.eval({x: data}), expected, atol=1e-12)
    with pytest.raises(SizeContradictionError, match="does not fit"):
        us.signal.convolve(x, y, "valid").eval({x: [1.0]})


def test_transforms_have_sizes_with_small_factors() -> None:
    for size in [*range(1, 300), 1009, 10007]:
        found = _fast_size(size)
        rest = found
        for factor in (2, 3, 5):
            while rest % factor == 0:
                rest //= factor
        assert rest == 1
        # SciPy's are of real transforms, by the same factors.
        assert found == next_fast_len(size, real=True)


def test_a_product_without_axes() -> None:
    assert us.signal.convolve(2.0, 3.0).eval() == 6.0


def test_mistakes_are_typed() -> None:
    with pytest.raises(ShapeError, match="as many axes each"):
        us.signal.convolve(np.ones(3), np.ones((2, 2)))
    with pytest.raises(ShapeError, match="tensors with elements"):
        us.signal.convolve(np.ones(3), np.ones(0))
    with pytest.raises(ShapeError, match="fit into the other"):
        us.signal.convolve(np.ones((3, 2)), np.ones((2, 3)), "valid")
    with pytest.raises(ShapeError, match="convolve2d takes matrices"):
        us.signal.convolve2d(np.ones(3), np.ones(3))
    for options in ({"mode": "half"}, {"method": "slow"}):
        with pytest.raises(ArgumentError, match="is one of"):
            us.signal.convolve(np.ones(3), np.ones(2), **options)
    with pytest.raises(ArgumentError, match="boundary is one of fill, wrap, symm"):
        us.signal.convolve2d(np.ones((3, 2)), np.ones((2, 2)), boundary="edge")
