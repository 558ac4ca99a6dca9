"""Samples of Fourier transforms: odd, even and single sizes, cut and padded, real and complex, and all scales."""

from __future__ import annotations

import numpy as np

import unspool as us
from tests.samples import Sample, complex_, real
from unspool._ops.fourier import transforms

SAMPLES: list[Sample] = []
for norm in ("backward", "ortho", "forward"):
    for op, function, reference in (
        ("fft", us.fft.fft, np.fft.fft),
        ("fft", us.fft.ifft, np.fft.ifft),
        ("rfft", us.fft.rfft, np.fft.rfft),
        ("irfft", us.fft.irfft, np.fft.irfft),
    ):
        name = f"{reference.__name__}-{norm}"
        arguments = {"norm": norm}
        made = real if op == "rfft" else complex_
        SAMPLES.append(
            Sample(
                op,
                lambda x, f=function, a=arguments: f(x, **a),
                (made(5),),
                lambda x, f=reference, a=arguments: f(x, **a),
                label=name,
            )
        )
for op, function, reference, x in (
    ("fft", us.fft.fft, np.fft.fft, real(4)),
    ("fft", us.fft.ifft, np.fft.ifft, real(2, 3)),
    ("rfft", us.fft.rfft, np.fft.rfft, real(2, 4)),
    ("irfft", us.fft.irfft, np.fft.irfft, real(3)),
    ("irfft", us.fft.hfft, np.fft.hfft, complex_(2, 3)),
    ("rfft", us.fft.ihfft, np.fft.ihfft, real(6)),
):
    SAMPLES.append(Sample(op, function, (x,), reference, label=reference.__name__))
    for n, axis in ((1, 0), (2, 0), (5, -1)):
        arguments = {"n": n, "axis": axis}
        SAMPLES.append(
            Sample(
                op,
                lambda x, f=function, a=arguments: f(x, **a),
                (x,),
                lambda x, f=reference, a=arguments: f(x, **a),
                label=f"{reference.__name__}-{n}",
            )
        )
SAMPLES += [
    Sample("fft", us.fft.fftn, (complex_(2, 3, 2),), np.fft.fftn, label="fftn"),
    Sample("rfft", us.fft.rfftn, (real(3, 4),), np.fft.rfftn, label="rfftn"),
    Sample("irfft", us.fft.irfftn, (complex_(2, 3),), np.fft.irfftn, label="irfftn"),
    Sample("fft", us.fft.fft, (np.zeros((0, 3)),), np.fft.fft, label="no-lines"),
    Sample(
        "fft_frequencies",
        lambda d: us.fft.fftfreq(5, d),
        (np.array(0.3),),
        lambda d: np.fft.fftfreq(5, float(d)).astype(d.dtype),
    ),
    Sample(
        "fft_frequencies",
        lambda d: us.fft.rfftfreq(4, d),
        (np.array(0.3),),
        lambda d: np.fft.rfftfreq(4, float(d)).astype(d.dtype),
        label="half",
    ),
]
for n, weights in ((4, [1, 0.5, 1]), (5, [1, 0.5, 0.5]), (1, [1])):
    SAMPLES.append(
        Sample(
            "weigh_half_spectrum",
            lambda x, n=n: transforms.weigh(x, 1, n, 0.5),
            (complex_(2, len(weights)),),
            lambda x, w=weights: x * np.array(w, x.real.dtype),
            label=f"of{n}",
        )
    )
