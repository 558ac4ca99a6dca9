"""Samples of the decompositions of Hermitian matrices.

Derivatives are those among Hermitian matrices, so the samples make one of what they are given.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import unspool as us
from tests.samples import Sample, complex_, real
from tests.samples.svd import adjoint, weights


def hermitian(x: Any) -> Any:
    return x + adjoint(x)


def combined(values: Any, vectors: Any) -> Any:
    """Return what the factors determine, whatever their phases: a function of values, with weights for the vectors."""
    w = weights(values.shape[-1])
    return (vectors * (values * values * w)[..., None, :]) @ adjoint(vectors)


def canonical(values: Any, vectors: Any) -> Any:
    pivots = np.take_along_axis(vectors, np.argmax(np.abs(vectors), axis=-2, keepdims=True), axis=-2)
    return vectors * np.conj(pivots / np.abs(pivots))


def whole(x: Any, uplo: str = "L", **options: Any) -> Sample:
    return Sample(
        "eigh",
        lambda t: combined(*us.linalg.eigh(hermitian(t), uplo, **options)),
        (x,),
        lambda a: combined(*np.linalg.eigh(hermitian(a), uplo)),
        label=f"{uplo}-{'-'.join(options)}-{'x'.join(map(str, x.shape))}",
    )


def fixed(x: Any) -> Sample:
    return Sample(
        "eigh",
        lambda t: us.linalg.eigh(hermitian(t), gauge="fixed").eigenvectors,
        (x,),
        lambda a: canonical(*np.linalg.eigh(hermitian(a))),
        label=f"fixed-{'x'.join(map(str, x.shape))}",
    )


def values(x: Any, uplo: str = "L") -> Sample:
    return Sample(
        "eigh",
        lambda t: us.linalg.eigvalsh(hermitian(t), uplo),
        (x,),
        lambda a: np.linalg.eigvalsh(hermitian(a), uplo),
        label=f"values-{uplo}-{'x'.join(map(str, x.shape))}",
    )


MATRICES = [real(3, 3), real(2, 2, 2), real(1, 1), complex_(2, 2), complex_(1, 1), real(0, 0), real(0, 2, 2)]

SAMPLES = [
    *[whole(x) for x in MATRICES],
    whole(real(2, 2), "U"),
    whole(complex_(2, 2), "U"),
    whole(real(3, 3), broaden=1e-8),
    *[fixed(x) for x in (real(2, 2), complex_(2, 2))],
    *[values(x) for x in MATRICES],
    values(complex_(2, 2), "U"),
]
