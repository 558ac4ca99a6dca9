"""LU factors, computed once per matrix and shared by everything that needs them.

`solve`, its adjoint, `inv`, `det` and `slogdet` of one matrix all start from the same factors. These are a node of
their own, so interning makes one computation of them, in the forward and in the backward pass. The ops take the factors
and the matrix, and are differentiated with respect to the matrix alone.

What is factored is the conjugate transpose: LAPACK reads columns, NumPy stores rows, and this way neither is copied
into the other's order.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._dtypes import INT32
from unspool._graph import Node
from unspool._ops import batching
from unspool._ops.linalg.finite import is_finite
from unspool._ops.op import Op, parts, register
from unspool.errors import RankError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

# In a stack, matrices smaller than this are factored again where they are used, all in one call: that takes less time
# than a call per matrix.
_WORTH_A_CALL = 32


def lu_factors(a: Tensor) -> tuple[Tensor, Tensor]:
    """Return the factors of square matrices, in a form that only `unspool._ops.linalg` understands."""
    factors, pivots = parts(_graph.apply_multi(LU_FACTORS, a))
    return factors, pivots


def is_factored(a: Any) -> bool:
    """Whether the factors of an array of matrices hold anything; else ops call NumPy on the matrices themselves."""
    return a.shape[-1] > 0 and a.dtype.kind in "fc" and (a.ndim == 2 or a.shape[-1] >= _WORTH_A_CALL)


@lru_cache(maxsize=32)
def lapack(name: str, dtype: Any) -> Any:
    """Return a LAPACK function for a data type."""
    from scipy.linalg import get_lapack_funcs

    return get_lapack_funcs(name, dtype=dtype)


def stack_of(a: Any) -> Any:
    """Return the indices of the matrices in an array of them."""
    return np.ndindex(a.shape[:-2])


def _infer(a: Node) -> Any:
    return (a.shape, a.dtype), (a.shape[:-1], INT32)


def _kernel(a: Any) -> tuple[Any, Any]:
    if not is_factored(a):
        return a, np.zeros(a.shape[:-1], INT32)
    getrf = lapack("getrf", a.dtype)
    factors = np.array(a, order="C")
    if factors.dtype.kind == "c":
        np.conjugate(factors, out=factors)
    spoilt = None if is_finite(a) else np.isnan(a).any(axis=(-2, -1))
    if a.ndim == 2:
        found, pivots, _ = getrf(factors.T, overwrite_a=True)
        factors = factors if np.may_share_memory(found, factors) else found.T
    else:
        pivots = np.empty(a.shape[:-1], INT32)
        for index in stack_of(a):
            found, pivots[index], _ = getrf(factors[index].T, overwrite_a=True)
            if not np.may_share_memory(found, factors):
                factors[index] = found.T
    if spoilt is not None:
        # LAPACK may take a pivot of NaN for none, and the matrix for a singular one.
        factors[spoilt] = np.nan
    return factors, pivots


LU_FACTORS = register(Op("lu_factors", infer=_infer, kernel=_kernel, multi=True, batch=batching.leading))


# --- singular matrices -----------------------------------------------------------------------------------------------


def refuse_singular(factors: Any, a: Any) -> None:
    """Raise `RankError` if one of the factored matrices has a pivot that is exactly zero."""
    if factors.ndim == 2 and np.logical_and.reduce(factors.diagonal()):
        return  # the usual case, in one call
    pivotless = np.diagonal(factors, axis1=-2, axis2=-1) == 0
    if pivotless.any():
        raise singular(a, pivotless.any(axis=-1))


def singular(a: Any, which: Any = None) -> RankError:
    """Return the error for the first of the matrices that have no inverse; ``which`` marks them, if it is known."""
    if which is None:
        logabsdet = np.linalg.slogdet(a)[1]
        which = logabsdet == np.nanmin(logabsdet)
    index = tuple(int(i) for i in np.argwhere(which)[0])
    rank, size = np.linalg.matrix_rank(a[index]), a.shape[-1]
    place = f" (matrix {', '.join(map(str, index))} of the stack)" if index else ""
    found = f"its rank is {rank}, its size {size}{place}" if rank < size else f"its size is {size}{place}"
    return RankError(f"a singular matrix has no inverse: {found}")
