"""Spectra of signals, estimated from windows that overlap, and back.

The segments of a signal are gathered by fixed places, so all of it is differentiable in the signal, in every mode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unspool import fft
from unspool._dtypes import COMPLEX
from unspool._ops import layout
from unspool._ops.checks import as_integer, one_of
from unspool._ops.creation import zeros
from unspool._ops.elementwise import conj, multiply, real
from unspool._ops.elementwise.build import as_inexact
from unspool._ops.indexing import take
from unspool._ops.layout.padding import pad
from unspool._ops.layout.reshaping import normalize_axis
from unspool._ops.leaf import constant
from unspool._ops.reduction import mean
from unspool.errors import ArgumentError, ShapeError, UnknownSizeError
from unspool.signal._trends import detrend as without_trend

if TYPE_CHECKING:
    from unspool._tensor import Tensor

_LONGEST = 256
_BOUNDARIES = {"zeros": "constant", "even": "reflect", "odd": "reflect", "constant": "edge"}


class _Windows(NamedTuple):
    """How a signal is cut: the weights in a window, how far apart windows are, and how many numbers are transformed."""

    weights: Any
    step: int
    transformed: int

    @property
    def length(self) -> int:
        return len(self.weights)

    @property
    def overlap(self) -> int:
        return self.length - self.step


def welch(
    x: Any,
    fs: float = 1.0,
    window: Any = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Any = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple[Tensor, Tensor]:
    """Estimate the spectral density of a signal by Welch's method; the arguments are those of `csd`.

    Examples
    --------
    >>> import numpy as np
    >>> import unspool as us
    >>> frequencies, power = us.signal.welch(np.cos(np.arange(64) * np.pi / 4), nperseg=16)
    >>> float(frequencies[np.argmax(power.eval())])
    0.125
    """
    frequencies, power = csd(
        x, x, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis, average
    )
    return frequencies, real(power)


def csd(
    x: Any,
    y: Any,
    fs: float = 1.0,
    window: Any = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Any = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple[Tensor, Tensor]:
    """Estimate the cross spectral density of two signals by Welch's method.

    Parameters
    ----------
    x, y : array_like
        Signals of one length.
    fs : float
        How many numbers there are in a unit of time.
    window : str, tuple or array_like
        A window of ``scipy.signal.get_window``, or its weights.
    nperseg, noverlap, nfft : int, optional
        How long a window is, by how much windows overlap (by half of it), and to how many numbers it is padded.
    detrend : {"constant", "linear", False}
        What is subtracted from each segment.
    return_onesided : bool
        Whether the frequencies below zero are left out, for real signals.
    scaling : {"density", "spectrum"}
        By the unit of frequency, or not.
    axis : int
    average : {"mean"}
        How segments are averaged. SciPy has the median too.

    Returns
    -------
    frequencies, density : Tensor

    Examples
    --------
    >>> import unspool as us
    >>> us.signal.csd([1.0, 2.0, 3.0, 4.0], [0.0, 1.0, 0.0, 1.0], nperseg=4)[1].shape
    (3,)
    """
    one_of(average, ("mean",), "average")
    one_of(scaling, ("density", "spectrum"), "scaling")
    rate = _rate(fs)
    first, second = as_inexact(x), as_inexact(y)
    along = normalize_axis(axis, first.ndim)
    if first.ndim != second.ndim or first.shape[along] != second.shape[along]:
        raise ShapeError(f"signals have one length, got {first.shape} and {second.shape} along axis {along}")
    windows = _windows(window, nperseg, noverlap, nfft, _length(first, along))
    is_onesided = return_onesided and first.dtype not in COMPLEX and second.dtype not in COMPLEX
    spectra = [_spectra(layout.moveaxis(s, along, -1), windows, detrend, is_onesided) for s in (first, second)]
    density = multiply(conj(spectra[0]), spectra[1])
    weights = windows.weights
    scale = 1 / (rate * np.sum(weights**2)) if scaling == "density" else 1 / np.sum(weights) ** 2
    density = multiply(density, constant(_doubled(windows, is_onesided) * scale))
    return _frequencies(windows, rate, is_onesided), layout.moveaxis(mean(density, axis=-2), -1, along)


def stft(
    x: Any,
    fs: float = 1.0,
    window: Any = "hann",
    nperseg: int = 256,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Any = False,
    return_onesided: bool = True,
    boundary: str | None = "zeros",
    padded: bool = True,
    axis: int = -1,
    scaling: str = "spectrum",
) -> tuple[Tensor, Tensor, Tensor]:
    """Transform the windows of a signal, one after the other.

    Parameters
    ----------
    x : array_like
    fs, window, nperseg, noverlap, nfft, detrend, return_onesided, axis
        As in `csd`.
    boundary : {"zeros", "even", "odd", "constant", None}
        How the signal is continued by half a window at both ends.
    padded : bool
        Whether zeros are appended, so that windows cover all of the signal.
    scaling : {"spectrum", "psd"}

    Returns
    -------
    frequencies, times, transform : Tensor
        The transform has the frequencies along ``axis``, and the windows along its last one.

    Examples
    --------
    >>> import unspool as us
    >>> [t.shape for t in us.signal.stft(us.arange(32.0), nperseg=8)]
    [(5,), (9,), (5, 9)]
    """
    one_of(scaling, ("spectrum", "psd"), "scaling")
    rate = _rate(fs)
    signal = as_inexact(x)
    along = normalize_axis(axis, signal.ndim)
    signal = layout.moveaxis(signal, along, -1)
    windows = _windows(window, nperseg, noverlap, nfft, _length(signal, -1))
    half = windows.length // 2
    if boundary is not None:
        signal = _continued(signal, half, boundary)
    if padded:
        missing = -(_length(signal, -1) - windows.length) % windows.step % windows.length
        signal = pad(signal, [(0, 0)] * (signal.ndim - 1) + [(0, missing)])
    is_onesided = return_onesided and signal.dtype not in COMPLEX
    found: Any = _spectra(signal, windows, detrend, is_onesided)
    weights = windows.weights
    scale = 1 / np.sum(weights) if scaling == "spectrum" else 1 / np.sqrt(rate * np.sum(weights**2))
    times = (np.arange(found.shape[-2]) * windows.step + windows.length / 2) / rate
    if boundary is not None:
        times = times - windows.length / 2 / rate
    transform = layout.moveaxis(multiply(found, float(scale)), -1, along)
    return _frequencies(windows, rate, is_onesided), constant(times), transform


def istft(
    Zxx: Any,
    fs: float = 1.0,
    window: Any = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    input_onesided: bool = True,
    boundary: bool = True,
    time_axis: int = -1,
    freq_axis: int = -2,
    scaling: str = "spectrum",
) -> tuple[Tensor, Tensor]:
    """Undo `stft`: the signal, of all that have such windows, that is nearest by least squares.

    Parameters
    ----------
    Zxx : array_like
        The transform.
    fs, window, nperseg, noverlap, nfft, scaling
        As in `stft`.
    input_onesided : bool
        Whether frequencies below zero were left out.
    boundary : bool
        Whether the signal was continued at its ends.
    time_axis, freq_axis : int

    Returns
    -------
    times, signal : Tensor

    Examples
    --------
    >>> import unspool as us
    >>> _, _, transform = us.signal.stft(us.arange(12.0), nperseg=4)
    >>> us.signal.istft(transform, nperseg=4)[1].eval().round(6)[:4]
    array([0., 1., 2., 3.])
    """
    one_of(scaling, ("spectrum", "psd"), "scaling")
    rate = _rate(fs)
    transform = as_inexact(Zxx)
    axes = [normalize_axis(axis, transform.ndim) for axis in (time_axis, freq_axis)]
    transform = layout.moveaxis(transform, axes, [-2, -1])
    count, bins = transform.shape[-2:]
    if not isinstance(count, int) or not isinstance(bins, int):
        raise UnknownSizeError(f"istft needs to know its sizes, got {transform.shape}")
    points = 2 * (bins - 1) if input_onesided else bins
    length = points if nperseg is None else as_integer(nperseg, "nperseg", least=1)
    transformed = nfft or (length if input_onesided and length == points + 1 else points)
    windows = _windows(window, length, noverlap, transformed, length)
    pieces = (fft.irfft if input_onesided else fft.ifft)(transform, transformed, -1)[..., :length]
    weights = windows.weights
    places = np.arange(count)[:, None] * windows.step + np.arange(length)
    total = int(places[-1, -1]) + 1
    scale = np.sum(weights) if scaling == "spectrum" else np.sqrt(rate * np.sum(weights**2))
    signal = zeros((*transform.shape[:-2], total), pieces.dtype)
    signal = signal.at[..., places].add(multiply(pieces, constant(weights * scale)))
    norm = np.bincount(places.ravel(), np.tile(weights**2, count), total)
    signal = multiply(signal, constant(1 / np.where(norm > 1e-10, norm, 1.0)))
    if boundary:
        half = length // 2
        signal = signal[..., half : total - half]
    return constant(np.arange(_length(signal, -1)) / rate), signal


# --- windows ---------------------------------------------------------------------------------------------------------


def _windows(window: Any, nperseg: Any, noverlap: Any, nfft: Any, length: int) -> _Windows:
    if isinstance(window, (str, tuple)):
        from scipy.signal import get_window

        size = min(_LONGEST if nperseg is None else as_integer(nperseg, "nperseg", least=1), length)
        try:
            weights = get_window(window, size)
        except (ValueError, TypeError) as error:
            raise ArgumentError(f"there is no window {window!r}: {error}") from None
    else:
        try:
            weights = np.asarray(window, dtype=float)
        except (ValueError, TypeError):
            raise ArgumentError(f"a window is a name or weights, got {window!r}") from None
        if weights.ndim != 1 or (nperseg is not None and nperseg != len(weights)) or len(weights) > length:
            raise ArgumentError(
                f"a window is one axis of nperseg={nperseg} weights, no longer than the signal ({length}), "
                f"got shape {weights.shape}"
            )
    size = len(weights)
    overlap = size // 2 if noverlap is None else as_integer(noverlap, "noverlap", least=0)
    if overlap >= size:
        raise ArgumentError(f"windows of {size} numbers overlap by less than that, got noverlap={overlap}")
    transformed = size if nfft is None else as_integer(nfft, "nfft", least=1)
    if transformed < size:
        raise ArgumentError(f"nfft is at least as long as a window, {size}, got {transformed}")
    return _Windows(weights, size - overlap, transformed)


def _rate(fs: Any) -> float:
    """Return how many numbers there are in a unit of time, or raise `ArgumentError`."""
    if not isinstance(fs, (int, float, np.integer, np.floating)) or not 0 < fs < np.inf:
        raise ArgumentError(f"fs is a positive number, got {fs!r}")
    return float(fs)


def _length(x: Tensor, axis: int) -> int:
    length = x.shape[axis]
    if not isinstance(length, int):
        raise UnknownSizeError(f"windows are cut from a signal of known length, got {length}")
    if length == 0:
        raise ShapeError(f"a signal has at least one number, got shape {x.shape}")
    return length


def _continued(x: Tensor, by: int, boundary: str) -> Tensor:
    """Return a signal continued at both ends."""
    mode: Any = _BOUNDARIES[one_of(boundary, _BOUNDARIES, "boundary")]
    widths = [(0, 0)] * (x.ndim - 1) + [(by, by)]
    if boundary != "odd":
        return pad(x, widths, mode=mode)
    inner = _length(x, -1)
    mirrored = pad(x, widths, mode=mode)
    before = 2 * x[..., :1] - mirrored[..., :by]
    after = 2 * x[..., -1:] - mirrored[..., by + inner :]
    return layout.concat([before, x, after], axis=-1)


def _spectra(x: Tensor, windows: _Windows, detrend: Any, is_onesided: bool) -> Tensor:
    """Return the transforms of the windows of a signal along its last axis: windows, then frequencies."""
    starts = np.arange(0, _length(x, -1) - windows.length + 1, windows.step)
    segments = take(x, constant(starts[:, None] + np.arange(windows.length)), axis=-1)
    if detrend:
        segments = without_trend(segments, -1, detrend)
    segments = multiply(segments, constant(windows.weights.astype(np.finfo(segments.dtype).dtype)))
    return (fft.rfft if is_onesided else fft.fft)(segments, windows.transformed, -1)


def _doubled(windows: _Windows, is_onesided: bool) -> Any:
    """Return how often each frequency counts: those that were left out count with the others."""
    count = windows.transformed
    if not is_onesided:
        return np.ones(count)
    factors = np.full(count // 2 + 1, 2.0)
    factors[0] = 1.0
    if count % 2 == 0:
        factors[-1] = 1.0
    return factors


def _frequencies(windows: _Windows, fs: float, is_onesided: bool) -> Tensor:
    return (fft.rfftfreq if is_onesided else fft.fftfreq)(windows.transformed, 1 / fs)
