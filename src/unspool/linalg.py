"""Linear algebra, under the names of ``numpy.linalg``, ``scipy.linalg`` and the array API standard.

Everything works on stacks of matrices, real and complex, on symbolic sizes, and has derivatives of every order in both
modes. At repeated eigenvalues and singular values, and where rank is lost, a derivative is right, or is refused with a
`GaugeError` or a `RankError` that says why. The page ``docs/linear-algebra.md`` tells the whole story.

Examples
--------
>>> import unspool as us
>>> us.linalg.norm([3.0, 4.0]).eval()
array(5.)
>>> A = us.tensor([[0.0, 2.0], [2.0, 0.0]])
>>> us.sum(us.linalg.svdvals(A)).grad(A).eval()  # both singular values are 2
array([[0., 1.],
       [1., 0.]])
"""

from unspool._autodiff.krylov import (
    cg,
    gmres,
)
from unspool._autodiff.lanczos import (
    eigsh,
)
from unspool._ops.contraction import (
    matmul,
    outer,
    tensordot,
    vecdot,
)
from unspool._ops.contraction.norms import (
    vector_norm,
)
from unspool._ops.layout import (
    kron,
    matrix_transpose,
)
from unspool._ops.linalg.banded import (
    solve_banded,
)
from unspool._ops.linalg.cholesky import (
    cholesky,
)
from unspool._ops.linalg.determinants import (
    SlogdetResult,
    det,
    slogdet,
)
from unspool._ops.linalg.eig import (
    EigResult,
    eig,
    eigvals,
)
from unspool._ops.linalg.eigh import (
    EighResult,
    eigh,
    eigvalsh,
)
from unspool._ops.linalg.factored import (
    cho_factor,
    cho_solve,
    lu_factor,
    lu_solve,
)
from unspool._ops.linalg.functions import (
    expm,
    expm_frechet,
    logm,
    matrix_exp,
    matrix_power,
    sqrtm,
)
from unspool._ops.linalg.gauge import (
    tolerances,
)
from unspool._ops.linalg.least_squares import (
    LstsqResult,
    lstsq,
    pinv,
)
from unspool._ops.linalg.lu import (
    LUResult,
    lu,
)
from unspool._ops.linalg.norms import (
    cond,
    matrix_norm,
    norm,
)
from unspool._ops.linalg.polar import (
    PolarResult,
    polar,
)
from unspool._ops.linalg.products import (
    cross,
    diagonal,
    multi_dot,
    trace,
)
from unspool._ops.linalg.qr import (
    LQResult,
    QRResult,
    lq,
    qr,
)
from unspool._ops.linalg.schur_form import (
    SchurResult,
    schur,
)
from unspool._ops.linalg.solving import (
    inv,
    solve,
    tensorinv,
    tensorsolve,
)
from unspool._ops.linalg.spaces import (
    LeadingSpaceResult,
    leading_space,
    low_rank,
    space_factors,
)
from unspool._ops.linalg.spectral_norms import (
    matrix_rank,
)
from unspool._ops.linalg.structured import (
    block_diag,
    circulant,
    hankel,
    hilbert,
    toeplitz,
)
from unspool._ops.linalg.svd import (
    SVDResult,
    svd,
    svdvals,
)
from unspool._ops.linalg.sylvester import (
    solve_sylvester,
)
from unspool._ops.linalg.triangular import (
    solve_triangular,
)
from unspool._ops.linalg.truncated import (
    truncated_svd,
)

__all__ = [
    "EigResult",
    "EighResult",
    "LQResult",
    "LUResult",
    "LeadingSpaceResult",
    "LstsqResult",
    "PolarResult",
    "QRResult",
    "SVDResult",
    "SchurResult",
    "SlogdetResult",
    "block_diag",
    "cg",
    "cho_factor",
    "cho_solve",
    "cholesky",
    "circulant",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigsh",
    "eigvals",
    "eigvalsh",
    "expm",
    "expm_frechet",
    "gmres",
    "hankel",
    "hilbert",
    "inv",
    "kron",
    "leading_space",
    "logm",
    "low_rank",
    "lq",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_solve",
    "matmul",
    "matrix_exp",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "multi_dot",
    "norm",
    "outer",
    "pinv",
    "polar",
    "qr",
    "schur",
    "slogdet",
    "solve",
    "solve_banded",
    "solve_sylvester",
    "solve_triangular",
    "space_factors",
    "sqrtm",
    "svd",
    "svdvals",
    "tensordot",
    "tensorinv",
    "tensorsolve",
    "toeplitz",
    "tolerances",
    "trace",
    "truncated_svd",
    "vecdot",
    "vector_norm",
]


def __dir__() -> list[str]:
    return sorted(__all__)
