"""Samples of the ops behind norms."""

from __future__ import annotations

from typing import Any

import numpy as np

import unspool as us
from tests.samples import Sample, complex_, real
from unspool._ops.contraction.norms import divide_or_zero


def norm(x: Any, label: str = "", **options: Any) -> Sample:
    return Sample(
        "norm2",
        lambda t: us.linalg.norm(t, **options),
        (x,),
        lambda a: np.linalg.norm(a, **options),
        label=label or ",".join(f"{key}={value}" for key, value in options.items()),
    )


def quotient(x1: Any, x2: Any) -> Sample:
    return Sample("divide_or_zero", divide_or_zero, (x1, x2), np.divide, exact=not np.iscomplexobj(x1))


SAMPLES = [
    norm(real(3)),
    norm(real(1)),
    norm(real()),
    norm(real(2, 3)),
    norm(real(2, 3), axis=0),
    norm(real(2, 3), axis=1, keepdims=True),
    norm(real(2, 1, 2), axis=(0, 2)),
    norm(real(2, 2, 2), axis=(2, 0), keepdims=True),
    norm(real(2, 2), ord="fro", keepdims=True),
    norm(real(0)),
    norm(real(0, 2), axis=1),
    norm(real(2, 0), axis=1),
    norm(complex_(3)),
    norm(complex_(2, 2), axis=0),
    quotient(real(3, seed=1), real(3, seed=2, low=0.5)),
    quotient(real(2, 3, seed=1), real(seed=2, low=0.5)),
    quotient(real(2, 3, seed=1), real(2, 1, seed=2, low=0.5)),
    quotient(real(seed=1), real(seed=2, low=0.5)),
    quotient(real(0), real(1, low=0.5)),
    quotient(complex_(2, seed=1), real(2, seed=2, low=0.5)),
]
