"""Samples of eigenvalues and eigenvectors of general matrices, seen through what does not depend on phases."""

from __future__ import annotations

from typing import Any

import numpy as np

import unspool as us
from tests.samples import Sample, complex_, real
from unspool import _graph
from unspool._ops.linalg.eig import INVERSE_GAPS, eig, eigvals, with_fixed_phase
from unspool._ops.linalg.eig_checks import settled_cotangent, settled_tangent
from unspool._ops.linalg.gauge import tolerances_for

SPREAD = real(2, 2, seed=3) + np.diag([0.0, 6.0])
PAIR = np.array([[0.5, 2.0], [-1.5, 0.25]])
STACK = np.stack([SPREAD, PAIR])
GENERAL = complex_(2, 2, seed=4)
TOLERANCES = tolerances_for(np.dtype(np.float64))


def numpy_eig(a: Any) -> tuple[Any, Any]:
    values, vectors = np.linalg.eig(a)
    dtype = np.result_type(a, np.complex64)
    return values.astype(dtype), vectors.astype(dtype)


def fixed(vectors: Any) -> Any:
    """Make the largest entry of each column real and positive."""
    chosen = np.argmax(np.abs(vectors), axis=-2, keepdims=True) if vectors.size else np.zeros((0, 0), int)
    pivot = np.take_along_axis(vectors, chosen, -2)
    return vectors * np.conj(pivot) / np.abs(pivot)


def values(x: Any, label: str = "") -> Sample:
    return Sample("eig", eigvals, (x,), lambda a: numpy_eig(a)[0], label=f"values{label}")


def weights(x: Any, label: str = "") -> Sample:
    def ours(t: Any) -> Any:
        return us.abs(eig(t).eigenvectors) ** 2

    return Sample("eig", ours, (x,), lambda a: np.abs(numpy_eig(a)[1]) ** 2, label=f"weights{label}")


def canonical(x: Any, label: str = "") -> Sample:
    def ours(t: Any) -> Any:
        return eig(t, gauge="fixed").eigenvectors

    return Sample("eig", ours, (x,), lambda a: fixed(numpy_eig(a)[1]), label=f"fixed{label}")


def broadened(x: Any) -> Sample:
    # So narrow that differences do not see it.
    def ours(t: Any) -> Any:
        w, v = eig(t, broaden=1e-12)
        return us.real(w) * us.abs(v) ** 2

    def theirs(a: Any) -> Any:
        w, v = numpy_eig(a)
        return w.real * np.abs(v) ** 2

    return Sample("eig", ours, (x,), theirs, label="broadened")


def inverse_gaps(x: Any) -> Sample:
    def theirs(w: Any) -> Any:
        gaps = w[..., None, :] - w[..., :, None]
        gaps[..., np.arange(w.shape[-1]), np.arange(w.shape[-1])] = np.inf
        return 1 / gaps

    return Sample("inverse_gaps", lambda w: _graph.apply(INVERSE_GAPS, w, degeneracy=1e-8), (x,), theirs)


def checked_cotangent(ct: Any, w_ct: Any, v_ct: Any, label: str) -> Sample:
    w, v = (us.tensor(part) for part in numpy_eig(SPREAD))

    def ours(t: Any) -> Any:
        of_values, of_vectors = (None if x is None else us.tensor(x) for x in (w_ct, v_ct))
        return settled_cotangent(t, w, v, of_values, of_vectors, TOLERANCES, True)

    return Sample("eig_cotangent", ours, (ct,), lambda a: a, label=label)


def checked_tangent(t: Any) -> Sample:
    w, v = (us.tensor(part) for part in numpy_eig(SPREAD))
    return Sample("eig_tangent", lambda x: settled_tangent(x, w, v, TOLERANCES, True), (t,), lambda a: a)


SAMPLES = [
    values(SPREAD, "-real"),
    values(PAIR, "-pair"),
    values(STACK, "-stack"),
    values(GENERAL),
    values(np.array([[2.5]]), "-1x1"),
    values(np.zeros((0, 0)), "-0x0"),
    weights(SPREAD, "-real"),
    weights(PAIR, "-pair"),
    weights(STACK, "-stack"),
    weights(GENERAL),
    weights(np.array([[1.5 - 2j]]), "-1x1"),
    weights(np.zeros((2, 0, 0)), "-0x0"),
    canonical(SPREAD, "-real"),
    canonical(GENERAL),
    canonical(np.zeros((0, 0)), "-0x0"),
    Sample("largest_of_column", with_fixed_phase, (GENERAL,), fixed, label="phases"),
    broadened(SPREAD),
    inverse_gaps(np.array([0.5, -1.0, 2.0 + 1j])),
    inverse_gaps(np.array([[0.5j, -1.0], [1.0, 3.0]])),
    inverse_gaps(np.zeros(0, complex)),
    checked_cotangent(complex_(2, 2), complex_(2, seed=1), None, "values"),
    checked_cotangent(complex_(2, 2), None, 2 * numpy_eig(SPREAD)[1], "vectors"),
    checked_cotangent(complex_(2, 2), complex_(2, seed=1), 2 * numpy_eig(SPREAD)[1], "both"),
    checked_tangent(complex_(2, 2)),
]
