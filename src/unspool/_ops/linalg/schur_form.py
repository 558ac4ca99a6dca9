"""The Schur form as an op: values without a derivative.

Its factors are open by a phase for each eigenvalue, and by the order in which LAPACK finds these, which no rule can
see. What functions of matrices need of it is in `schur`, and they have derivatives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unspool import _graph
from unspool._dims import Shape
from unspool._dtypes import complex_dtype
from unspool._graph import Node
from unspool._ops import batching
from unspool._ops.elementwise import astype
from unspool._ops.linalg.finite import refuse_not_finite
from unspool._ops.linalg.matrices import as_square
from unspool._ops.op import Op, parts, register
from unspool.errors import ArgumentError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


class SchurResult(NamedTuple):
    """The factors of a Schur decomposition: ``Z @ T @ Z.H``."""

    T: Tensor
    Z: Tensor


def schur(a: Any, output: str = "real") -> SchurResult:
    """Decompose square matrices into a unitary Z and an upper triangle T, as ``scipy.linalg.schur``.

    Parameters
    ----------
    a : array_like, shape (..., n, n)
        The matrices.
    output : {"real", "complex"}
        Of a real matrix, whether T is real, with a block of size 2 for each pair of complex eigenvalues, or triangular
        and complex.

    Returns
    -------
    SchurResult
        The named tuple ``(T, Z)``. A derivative through it raises `MissingRuleError`.

    Examples
    --------
    >>> import unspool as us
    >>> T, Z = us.linalg.schur([[1.0, 2.0], [0.0, 3.0]])
    >>> T.eval()
    array([[1., 2.],
           [0., 3.]])
    """
    if output not in ("real", "complex"):
        raise ArgumentError(f"output is 'real' or 'complex', got {output!r}")
    x = as_square(a, "schur")
    if output == "complex":
        x = astype(x, complex_dtype(x.dtype))
    return SchurResult(*parts(_graph.apply_multi(SCHUR, x)))


def _infer(x: Node) -> tuple[tuple[Shape, Any], ...]:
    return (x.shape, x.dtype), (x.shape, x.dtype)


def _kernel(x: Any) -> tuple[Any, Any]:
    from scipy.linalg import schur as factor

    refuse_not_finite(x, "schur")
    triangles, bases = np.empty_like(x), np.empty_like(x)
    if x.size:
        for index in np.ndindex(x.shape[:-2]):
            triangles[index], bases[index] = factor(x[index], output="complex" if x.dtype.kind == "c" else "real")
    return triangles, bases


SCHUR = register(Op("schur", infer=_infer, kernel=_kernel, multi=True, batch=batching.leading))
