"""Spectra from windows that overlap, and trends, against SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import signal

import unspool as us
from unspool.errors import ArgumentError, ShapeError

X, Y = np.random.default_rng(0).normal(size=(2, 2, 100))


def assert_same(found: Any, expected: Any) -> None:
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine.eval(), theirs, atol=1e-12)


DENSITIES: list[dict[str, Any]] = [
    {"nperseg": 16},
    {"nperseg": 16, "noverlap": 3, "nfft": 20, "scaling": "spectrum"},
    {"nperseg": 15, "detrend": "linear", "fs": 3.0},
    {"nperseg": 16, "detrend": False, "window": "boxcar"},
    {"nperseg": 16, "return_onesided": False},
    {"window": np.hanning(12)},
    {"nperseg": 16, "window": ("kaiser", 3.0)},
]


@pytest.mark.parametrize("options", DENSITIES, ids=str)
def test_densities_are_those_of_scipy(options: dict[str, Any]) -> None:
    assert_same(us.signal.csd(X, Y, **options), signal.csd(X, Y, **options))
    assert_same(us.signal.welch(X, **options), signal.welch(X, **options))


def test_densities_of_complex_signals_and_along_other_axes() -> None:
    assert_same(us.signal.csd(X + 1j * Y, Y, nperseg=16), signal.csd(X + 1j * Y, Y, nperseg=16))
    assert_same(us.signal.welch(X.T, nperseg=16, axis=0), signal.welch(X.T, nperseg=16, axis=0))


TRANSFORMS: list[dict[str, Any]] = [
    {"nperseg": 16},
    {"nperseg": 16, "boundary": None, "padded": False},
    {"nperseg": 15, "noverlap": 4, "boundary": "even"},
    {"nperseg": 16, "boundary": "odd", "fs": 2.0},
    {"nperseg": 16, "boundary": "constant", "scaling": "psd", "fs": 2.0},
    {"nperseg": 16, "nfft": 32, "detrend": "constant"},
]


@pytest.mark.parametrize("options", TRANSFORMS, ids=str)
def test_transforms_of_windows_are_those_of_scipy(options: dict[str, Any]) -> None:
    assert_same(us.signal.stft(X, **options), signal.stft(X, **options))
    assert_same(us.signal.stft(X.T, axis=0, **options), signal.stft(X.T, axis=0, **options))


@pytest.mark.parametrize(
    "options",
    [{"nperseg": 16}, {"nperseg": 15}, {"nperseg": 16, "scaling": "psd", "fs": 2.0}, {"nperseg": 16, "noverlap": 12}],
    ids=str,
)
def test_a_signal_comes_back_from_its_windows(options: dict[str, Any]) -> None:
    _, _, transform = us.signal.stft(X, **options)
    times, found = us.signal.istft(transform, **options)
    np.testing.assert_allclose(found.eval()[:, :100], X, atol=1e-12)
    np.testing.assert_allclose(found.eval(), signal.istft(transform.eval(), **options)[1], atol=1e-12)
    assert times.shape == found.shape[-1:]


def test_a_signal_comes_back_from_all_frequencies() -> None:
    _, _, transform = us.signal.stft(X + 1j * Y, nperseg=16)
    np.testing.assert_allclose(
        us.signal.istft(transform, nperseg=16, input_onesided=False)[1].eval()[:, :100], X + 1j * Y, atol=1e-12
    )


@pytest.mark.parametrize("options", [{}, {"type": "constant"}, {"bp": [30, 60]}, {"axis": 0}], ids=str)
def test_trends_are_those_of_scipy(options: dict[str, Any]) -> None:
    np.testing.assert_allclose(us.signal.detrend(X, **options).eval(), signal.detrend(X, **options), atol=1e-12)


@pytest.mark.parametrize(
    "loss",
    [
        lambda x: us.sum(us.signal.welch(x, nperseg=8)[1] ** 2),
        lambda x: us.sum(us.abs(us.signal.stft(x, nperseg=8, boundary="odd")[2]) ** 2),
        lambda x: us.sum(us.signal.istft(us.signal.stft(x, nperseg=8)[2], nperseg=8)[1] ** 3),
        lambda x: us.sum(us.signal.detrend(x, bp=9) ** 3),
    ],
)
def test_spectra_are_differentiable(loss: Any) -> None:
    us.check_grad(loss, X[0, :24])


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: us.signal.welch(X, nperseg=8, noverlap=8), ArgumentError),
        (lambda: us.signal.welch(X, nperseg=8, nfft=4), ArgumentError),
        (lambda: us.signal.welch(X, window=np.ones((2, 2))), ArgumentError),
        (lambda: us.signal.csd(X, Y[:, :50]), ShapeError),
        (lambda: us.signal.welch(np.zeros((2, 0))), ShapeError),
        (lambda: us.signal.stft(X, nperseg=8, boundary="round"), ArgumentError),
        (lambda: us.signal.detrend(X, type="square"), ArgumentError),
        (lambda: us.signal.detrend(X, bp=200), ArgumentError),
    ],
)
def test_what_makes_no_sense_is_refused(call: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        call()
