"""Samples of convolutions: one, two and three axes, whole and valid, real and complex."""

from __future__ import annotations

import numpy as np
from scipy import signal

import unspool as us
from tests.samples import Sample, complex_, real

SAMPLES: list[Sample] = []
for left, right in (((4,), (3,)), ((1,), (1,)), ((2, 3), (2, 2)), ((2, 1, 2), (1, 1, 2))):
    for mode in ("full", "valid"):
        SAMPLES.append(
            Sample(
                "convolve_nd",
                lambda x, y, m=mode: us.signal.convolve(x, y, m, "direct"),
                (real(*left, seed=1), real(*right, seed=2)),
                lambda x, y, m=mode: signal.convolve(x, y, m, "direct"),
                label=f"{len(left)}d-{mode}",
            )
        )
SAMPLES += [
    Sample(
        "convolve_nd",
        lambda x, y: us.signal.convolve(x, y, "valid", "direct"),
        (complex_(4, seed=1), complex_(2, seed=2)),
        lambda x, y: np.convolve(x, y, "valid"),
        label="complex",
    ),
    Sample(
        "convolve_nd",
        lambda x, y: us.signal.convolve(x, y, "full", "direct"),
        (real(2, 2, seed=1), complex_(2, 1, seed=2)),
        lambda x, y: signal.convolve(x, y, "full", "direct"),
        label="mixed",
    ),
    Sample(
        "convolve_nd",
        lambda x, y: us.signal.convolve(x, y, "full", "direct"),
        (real(3, seed=1), real(2, seed=2)),
        np.convolve,
        exact=True,
        label="exact",
    ),
]
