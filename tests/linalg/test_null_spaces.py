"""Generic vectors for values that are zero: orthonormal, the same every time, and drawn once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from unspool._ops.linalg import null_spaces
from unspool._ops.linalg.null_spaces import generic_null_eigenvectors, generic_null_vectors

DTYPES = ["float32", "float64", "complex64", "complex128"]


def deficient(rows: int, columns: int, rank: int, dtype: str) -> Any:
    draw = np.random.default_rng(0).standard_normal
    a: Any = draw((rows, rank)) @ draw((rank, columns))
    if np.dtype(dtype).kind == "c":
        a = a + 1j * draw((rows, rank)) @ draw((rank, columns))
    return a.astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "columns"), [(6, 6), (9, 6), (6, 9), (150, 140)])
def test_factors_stay_factors_and_are_the_same_bits_every_time(rows: int, columns: int, dtype: str) -> None:
    a = deficient(rows, columns, 2, dtype)
    factors = np.linalg.svd(a, full_matrices=False)
    u, s, vh = generic_null_vectors(*factors)
    tolerance = 100 * max(rows, columns) * float(np.finfo(dtype).eps)
    np.testing.assert_allclose((u * s) @ vh, a, atol=tolerance * s[0])
    for frame in (u, vh.conj().T):
        np.testing.assert_allclose(frame.conj().T @ frame, np.eye(len(s)), atol=tolerance)
    for first, again in zip((u, s, vh), generic_null_vectors(*factors), strict=True):
        np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_kept_is_what_would_be_drawn_and_cannot_be_written_to(dtype: str) -> None:
    kept = null_spaces._generic(7, 3, np.dtype(dtype))
    np.testing.assert_array_equal(kept, null_spaces._drawn(7, 3, np.dtype(dtype)))
    with pytest.raises(ValueError, match="read-only"):
        kept[0, 0] = 1.0


def test_a_loop_draws_its_vectors_once(monkeypatch: pytest.MonkeyPatch) -> None:
    values, vectors = np.zeros(5), np.eye(5)
    generic_null_eigenvectors(values, vectors)
    monkeypatch.setattr(np.random, "default_rng", None)  # to draw again would fail
    found = generic_null_eigenvectors(values, vectors)[1]
    np.testing.assert_allclose(found.T @ found, np.eye(5), atol=1e-14)
    found[0, 0] = 2.0  # results belong to whoever asked


def test_large_matrices_are_not_kept() -> None:
    before = null_spaces._kept.cache_info().currsize
    null_spaces._generic(129, 128, np.dtype("float64"))
    assert null_spaces._kept.cache_info().currsize == before
