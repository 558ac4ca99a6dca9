"""Matrices with entries that are not finite: LAPACK gives anything for them, finite numbers and endless loops included.

What is found by iteration (`eigh`, `svd`, `eig`, and what rests on them) refuses them, as NumPy does for most. What is
found by elimination (`solve`, `inv`, `det`, `cholesky`) passes NaN on, as NumPy does, and matrix for matrix in a stack.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from unspool.errors import KernelError


def is_finite(x: Any) -> bool:
    """Whether an array has no entry that is infinite or NaN."""
    numbers = x.reshape(-1)
    # In the usual case one product tells, at a third of the time for small matrices.
    return bool(np.isfinite(numbers.dot(numbers)) or np.isfinite(x).all())


def refuse_not_finite(x: Any, what: str) -> None:
    """Raise `KernelError` if an array of matrices has an entry that is infinite or NaN."""
    if is_finite(x):
        return
    *matrix, row, column = (int(i) for i in np.argwhere(~np.isfinite(x))[0])
    where = f" of matrix {tuple(matrix)} of the stack" if matrix else ""
    raise KernelError(
        f"{what} takes finite matrices and converges for no others: entry ({row}, {column}){where} is "
        f"{x[(*matrix, row, column)]} (us.debug.check_nan(infinities=True) finds the operation that made it)"
    )


def nan_to_nan(compute: Callable[[Any], Any], x: Any) -> Any:
    """Return what a function computes of matrices, and NaN for those that contain NaN, which it does not see."""
    if is_finite(x):
        return compute(x)
    spoilt = np.isnan(x).any(axis=(-2, -1))
    found = compute(np.where(spoilt[..., None, None], np.eye(x.shape[-1], dtype=x.dtype), x))
    for part in found if isinstance(found, tuple) else (found,):
        part[spoilt] = np.nan
    return found
