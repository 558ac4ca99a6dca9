"""Linear algebra, under the names of ``numpy.linalg`` and the array API standard.

Examples
--------
>>> import unspool as us
>>> us.linalg.norm([3.0, 4.0]).eval()
array(5.)
"""

from unspool._ops.contraction import matmul, outer, tensordot, vecdot
from unspool._ops.contraction.norms import matrix_norm, norm, vector_norm
from unspool._ops.layout import diagonal, matrix_transpose, trace

__all__ = [
    "diagonal",
    "matmul",
    "matrix_norm",
    "matrix_transpose",
    "norm",
    "outer",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]
