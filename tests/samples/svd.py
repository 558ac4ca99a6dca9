"""Samples of the singular value decomposition, whole and cut off, and of the divisions its rules make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import unspool as us
from tests.samples import Sample, complex_, real
from unspool import _graph
from unspool._ops.linalg.gaps import SVD, gap_quotient, gauge_check, settled_values
from unspool._ops.linalg.svd import PIVOT_ROWS


def adjoint(x: Any) -> Any:
    return np.conj(np.swapaxes(x, -1, -2)) if isinstance(x, np.ndarray) else x.H


def weights(count: int) -> Any:
    return np.arange(1.0, count + 1).astype("float32")


def combined(u: Any, s: Any, vh: Any) -> Any:
    """Return what the factors determine, whatever their phases: here a sum of products of all three."""
    k = s.shape[-1]
    u, vh, w = u[..., :k], vh[..., :k, :], weights(k)
    return (u * w) @ adjoint(u) @ (u * (s * s)[..., None, :]) @ vh @ (adjoint(vh) @ (vh * w[:, None]))


def beyond_left(u: Any, s: Any, vh: Any) -> Any:
    """Return the projector on the space that a matrix does not reach."""
    rest = u[..., s.shape[-1] :]
    return rest @ adjoint(rest)


def beyond_right(u: Any, s: Any, vh: Any) -> Any:
    """Return the projector on the space that a matrix sends to zero."""
    rest = vh[..., s.shape[-1] :, :]
    return adjoint(rest) @ rest


def canonical(u: Any, s: Any, vh: Any) -> Any:
    """Return the left vectors with the phase that their largest entry decides."""
    pivots = np.take_along_axis(u, np.argmax(np.abs(u), axis=-2, keepdims=True), axis=-2)
    return u * np.conj(pivots / np.abs(pivots))


def whole(x: Any, part: Callable[..., Any] = combined, full: bool = False) -> Sample:
    return Sample(
        "svd",
        lambda t: part(*us.linalg.svd(t, full_matrices=full)),
        (x,),
        lambda a: part(*np.linalg.svd(a, full_matrices=full)),
        label=f"{part.__name__}{'-full' if full else ''}-{'x'.join(map(str, x.shape))}",
    )


def fixed(x: Any) -> Sample:
    return Sample(
        "svd",
        lambda t: us.linalg.svd(t, full_matrices=False, gauge="fixed").U,
        (x,),
        lambda a: canonical(*np.linalg.svd(a, full_matrices=False)),
        label=f"fixed-{'x'.join(map(str, x.shape))}",
    )


def values(x: Any) -> Sample:
    return Sample(
        "svd",
        us.linalg.svdvals,
        (x,),
        lambda a: np.linalg.svd(a, compute_uv=False),
        label=f"values-{'x'.join(map(str, x.shape))}",
    )


def broadened(x: Any) -> Sample:
    # So narrow that it changes nothing: what is checked is the other path through the rules.
    return Sample(
        "svd",
        lambda t: combined(*us.linalg.svd(t, full_matrices=False, broaden=1e-8)),
        (x,),
        lambda a: combined(*np.linalg.svd(a, full_matrices=False)),
        label=f"broadened-{'x'.join(map(str, x.shape))}",
    )


MATRICES = [
    real(3, 3),
    real(4, 2),
    real(2, 4),
    real(2, 2, 2),
    real(1, 3),
    real(3, 1),
    real(1, 1),
    complex_(2, 2),
    complex_(3, 2),
    complex_(2, 3),
]
EMPTY = [real(0, 2), real(2, 0), real(0, 2, 2)]

SQUARE = np.array([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75], [-0.5, 1.0, 1.25]])
SPREAD = np.array([3.0, 1.5, 0.5])


def quotient(x: Any, left: Any, right: Any, sign: int, label: str) -> Sample:
    return Sample(
        "gap_quotient",
        lambda n, s, t: gap_quotient(n, s, t, sign, 1e-9),
        (x, left, right),
        lambda n, s, t: n / (t[..., None, :] + sign * s[..., :, None]),
        label=label,
    )


def diagonal_left_out(n: Any, s: Any) -> Any:
    gaps = s[None, :] - s[:, None]
    return np.where(gaps == 0, 0, n / np.where(gaps == 0, 1, gaps)).astype(np.result_type(n, s))


SAMPLES = [
    *[whole(x) for x in (*MATRICES, *EMPTY)],
    *[whole(x, full=True) for x in (real(3, 2), complex_(2, 3))],
    *[whole(x, beyond_left, full=True) for x in (real(3, 1), complex_(3, 2), real(2, 0))],
    *[whole(x, beyond_right, full=True) for x in (real(1, 3), complex_(2, 3), real(0, 2))],
    *[fixed(x) for x in (real(2, 2), complex_(2, 2), complex_(3, 2))],
    broadened(real(3, 2)),
    broadened(complex_(2, 2)),
    *[values(x) for x in (*MATRICES, *EMPTY)],
    quotient(SQUARE, SPREAD, SPREAD[::-1] + 0.25, -1, "difference"),
    quotient(SQUARE * (1 - 2j), SPREAD, SPREAD, 1, "sum"),
    quotient(real(2, 3), np.zeros(1), SPREAD, 1, "row of values"),
    quotient(real(2, 2, 2), real(2, 2, low=1.0), real(2, 2, seed=1, low=4.0, high=9.0), -1, "stack"),
    quotient(real(0, 2), real(0), real(2, low=1.0), 1, "empty"),
    Sample(
        "gap_quotient", lambda n, s: gap_quotient(n, s, s, -1, 1e-9), (SQUARE, SPREAD), diagonal_left_out, label="same"
    ),
    Sample(
        "gauge_check",
        lambda n, s: gauge_check(n, s, s, what=SVD, sign=-1, degeneracy=1e-9, gauge=1e-9, diagonal=False) * 1.0,
        (SQUARE, SPREAD),
        lambda n, s: n,
    ),
    Sample(
        "settled_values",
        lambda ct, s: settled_values(ct, s, what=SVD, degeneracy=1e-9, gauge=1e-9, zeros=True) * 1.0,
        (real(3), SPREAD),
        lambda ct, s: ct,
    ),
    Sample(
        "pivot_rows",
        lambda x: _graph.apply(PIVOT_ROWS, x),
        (real(3, 2),),
        lambda a: np.argmax(np.abs(a), axis=-2, keepdims=True),
        order=0,
    ),
]
