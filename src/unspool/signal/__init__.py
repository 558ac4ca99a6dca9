"""Convolution, correlation and spectra, under the names of ``scipy.signal``.

Examples
--------
>>> import unspool as us
>>> x = us.tensor([1.0, 2.0, 3.0, 4.0])
>>> smooth = us.signal.convolve(x, [0.5, 0.5], mode="valid")
>>> smooth.eval()
array([1.5, 2.5, 3.5])
>>> us.sum(smooth).grad(x).eval()
array([0.5, 1. , 1. , 0.5])
"""

from unspool.signal._convolution import convolve, convolve2d, correlate, correlate2d, fftconvolve
from unspool.signal._spectra import csd, istft, stft, welch
from unspool.signal._trends import detrend

__all__ = [
    "convolve",
    "convolve2d",
    "correlate",
    "correlate2d",
    "csd",
    "detrend",
    "fftconvolve",
    "istft",
    "stft",
    "welch",
]


def __dir__() -> list[str]:
    return sorted(__all__)
