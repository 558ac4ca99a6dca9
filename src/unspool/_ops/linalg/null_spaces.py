"""Generic vectors for values that are zero.

Any basis of a null space will do. The one LAPACK finds is often the coordinate axes, and a loss can look as if it did
not depend on the basis just because of that: a function f(A) with f(0) = 0 sends nothing back to vectors of the value
zero, and to the values themselves only the diagonal of what it knows in this basis. In a generic basis that shows. The
basis is the same for the same matrix every time.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np


def generic_null_vectors(u: Any, s: Any, vh: Any) -> tuple[Any, Any, Any]:
    """Return the factors of matrices, with a generic basis where singular values are zero to rounding."""
    k = s.shape[-1]
    level = max(u.shape[-2], vh.shape[-1]) * np.finfo(s.dtype).eps
    if k == 0 or not np.any(s[..., -1] <= level * s[..., 0]):
        return u, s, vh
    u, v = u.copy(), np.conj(np.swapaxes(vh, -1, -2))
    for index in np.ndindex(s.shape[:-1]):
        values = s[index]
        rank = int(np.sum(values > level * values[0]))
        if rank < k:
            u[index] = _generic_beyond(u[index], rank)
            v[index] = _generic_beyond(v[index], rank)
    return u, s, np.conj(np.swapaxes(v, -1, -2))


def generic_null_eigenvectors(values: Any, vectors: Any) -> tuple[Any, Any]:
    """Return eigenvectors, with a generic basis where eigenvalues are zero to rounding."""
    n = values.shape[-1]
    sizes = np.abs(values)
    zero = sizes <= n * np.finfo(values.dtype).eps * np.max(sizes, axis=-1, keepdims=True, initial=0.0)
    if not zero.any():
        return values, vectors
    vectors = vectors.copy()
    for index in np.ndindex(values.shape[:-1]):
        chosen = zero[index]
        count = int(np.sum(chosen))
        if count > 1:
            vectors[index][:, chosen] = vectors[index][:, chosen] @ _generic(count, count, vectors.dtype)
    return values, vectors


def _generic_beyond(vectors: Any, rank: int) -> Any:
    """Return orthonormal columns whose first ones are kept and whose others are generic."""
    rows, columns = vectors.shape
    kept, others = vectors[:, :rank], vectors[:, rank:]
    if rows == columns:
        found = others @ _generic(rows - rank, rows - rank, vectors.dtype)
    else:
        # There is more room than vectors: the generic ones may also leave the space of those they replace.
        found = _generic(rows, columns - rank, vectors.dtype)
        for _ in range(2):
            found = np.linalg.qr(found - kept @ (np.conj(kept.T) @ found))[0]
    return np.concatenate([kept, found], axis=1)


def _generic(rows: int, columns: int, dtype: Any) -> Any:
    """Return a matrix with orthonormal columns that point nowhere in particular; not to be written to."""
    # A loop asks for the same one in every step. Larger ones take less time than the decomposition they are for.
    return (_kept if rows * columns <= _MOST_KEPT else _drawn)(rows, columns, dtype)


def _drawn(rows: int, columns: int, dtype: Any) -> Any:
    generator = np.random.default_rng(rows)
    numbers = generator.standard_normal((rows, columns))
    if np.dtype(dtype).kind == "c":
        numbers = numbers + 1j * generator.standard_normal((rows, columns))
    found = np.linalg.qr(numbers)[0].astype(dtype)
    found.flags.writeable = False
    return found


# Numbers in a matrix that is kept. All of them together take at most 16 MB.
_MOST_KEPT = 128 * 128
_kept = lru_cache(maxsize=64)(_drawn)
