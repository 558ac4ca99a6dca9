"""Samples of random draws; the reference is NumPy's generator, at the beginning of the key's stream."""

from __future__ import annotations

from typing import Any

import numpy as np

import unspool as us
from tests.samples import Sample, real

KEY = us.random.key(3)


def numpy_generator() -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=KEY.bits))


def complex_normal(*shape: int) -> Any:
    parts = numpy_generator().standard_normal((*shape, 2))
    return (parts[..., 0] + 1j * parts[..., 1]) / np.sqrt(2)


SAMPLES = [
    Sample(
        "random_normal", lambda: us.random.normal(KEY, (2, 3)), (), lambda: numpy_generator().normal(size=(2, 3)), 0
    ),
    Sample("random_normal", lambda: us.random.normal(KEY), (), lambda: numpy_generator().normal(), 0, label="scalar"),
    Sample("random_normal", lambda: us.random.normal(KEY, (0, 2)), (), lambda: np.zeros((0, 2)), 0, label="empty"),
    Sample(
        "random_normal",
        lambda: us.random.normal(KEY, 3, "complex128"),
        (),
        lambda: complex_normal(3),
        0,
        label="complex",
    ),
    Sample(
        "random_normal",
        lambda x: x * us.random.normal(KEY, 3) + x * x,
        (real(3),),
        lambda x: x * numpy_generator().normal(size=3) + x * x,
        label="noise",
    ),
    Sample("random_uniform", lambda: us.random.uniform(KEY, (4,)), (), lambda: numpy_generator().random(4), 0),
    Sample(
        "random_uniform",
        lambda: us.random.uniform(KEY, (4,), "float32"),
        (),
        lambda: numpy_generator().random(4, np.float32),
        0,
        label="float32",
    ),
    Sample(
        "random_uniform",
        lambda low, high: us.random.uniform(KEY, (2, 3), low=low, high=high),
        (real(3), real(2, 1) + 9.0),
        lambda low, high: low + (high - low) * numpy_generator().random((2, 3)),
        label="interval",
    ),
    Sample(
        "random_integers",
        lambda: us.random.randint(KEY, (5,), -3, 4),
        (),
        lambda: numpy_generator().integers(-3, 4, 5),
        0,
    ),
    Sample(
        "random_permutation", lambda: us.random.permutation(KEY, 6), (), lambda: numpy_generator().permutation(6), 0
    ),
    Sample(
        "random_permutation",
        lambda x: us.random.permutation(KEY, x * x),
        (real(4, 2),),
        lambda x: (x * x)[numpy_generator().permutation(4)],
        label="rows",
    ),
    Sample(
        "random_poisson",
        lambda: us.random.poisson(KEY, [0.5, 30.0], (3, 2)),
        (),
        lambda: numpy_generator().poisson([0.5, 30.0], (3, 2)),
        0,
    ),
    Sample(
        "random_binomial",
        lambda: us.random.binomial(KEY, [3, 40], 0.4, (3, 2)),
        (),
        lambda: numpy_generator().binomial([3, 40], 0.4, (3, 2)),
        0,
    ),
]
