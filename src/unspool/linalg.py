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

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _TYPE_CHECKING:
    from unspool._autodiff.solvers.krylov import (
        cg,
        gmres,
    )
    from unspool._autodiff.solvers.lanczos import (
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
        companion,
        convolution_matrix,
        fiedler,
        fiedler_companion,
        hankel,
        hilbert,
        leslie,
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
    from unspool._ops.linalg.tridiagonal import (
        eigh_tridiagonal,
        qr_multiply,
    )
    from unspool._ops.linalg.truncated import (
        truncated_svd,
    )

# Where each name is. A function is loaded when it is asked for: a norm does without solvers and decompositions.
_HOMES = {
    "cg": "_autodiff.solvers.krylov",
    "gmres": "_autodiff.solvers.krylov",
    "eigsh": "_autodiff.solvers.lanczos",
    "matmul": "_ops.contraction",
    "outer": "_ops.contraction",
    "tensordot": "_ops.contraction",
    "vecdot": "_ops.contraction",
    "vector_norm": "_ops.contraction.norms",
    "kron": "_ops.layout",
    "matrix_transpose": "_ops.layout",
    "solve_banded": "_ops.linalg.banded",
    "cholesky": "_ops.linalg.cholesky",
    "SlogdetResult": "_ops.linalg.determinants",
    "det": "_ops.linalg.determinants",
    "slogdet": "_ops.linalg.determinants",
    "EigResult": "_ops.linalg.eig",
    "eig": "_ops.linalg.eig",
    "eigvals": "_ops.linalg.eig",
    "EighResult": "_ops.linalg.eigh",
    "eigh": "_ops.linalg.eigh",
    "eigvalsh": "_ops.linalg.eigh",
    "cho_factor": "_ops.linalg.factored",
    "cho_solve": "_ops.linalg.factored",
    "lu_factor": "_ops.linalg.factored",
    "lu_solve": "_ops.linalg.factored",
    "expm": "_ops.linalg.functions",
    "expm_frechet": "_ops.linalg.functions",
    "logm": "_ops.linalg.functions",
    "matrix_exp": "_ops.linalg.functions",
    "matrix_power": "_ops.linalg.functions",
    "sqrtm": "_ops.linalg.functions",
    "tolerances": "_ops.linalg.gauge",
    "LstsqResult": "_ops.linalg.least_squares",
    "lstsq": "_ops.linalg.least_squares",
    "pinv": "_ops.linalg.least_squares",
    "LUResult": "_ops.linalg.lu",
    "lu": "_ops.linalg.lu",
    "cond": "_ops.linalg.norms",
    "matrix_norm": "_ops.linalg.norms",
    "norm": "_ops.linalg.norms",
    "PolarResult": "_ops.linalg.polar",
    "polar": "_ops.linalg.polar",
    "cross": "_ops.linalg.products",
    "diagonal": "_ops.linalg.products",
    "multi_dot": "_ops.linalg.products",
    "trace": "_ops.linalg.products",
    "LQResult": "_ops.linalg.qr",
    "QRResult": "_ops.linalg.qr",
    "lq": "_ops.linalg.qr",
    "qr": "_ops.linalg.qr",
    "SchurResult": "_ops.linalg.schur_form",
    "schur": "_ops.linalg.schur_form",
    "inv": "_ops.linalg.solving",
    "solve": "_ops.linalg.solving",
    "tensorinv": "_ops.linalg.solving",
    "tensorsolve": "_ops.linalg.solving",
    "LeadingSpaceResult": "_ops.linalg.spaces",
    "leading_space": "_ops.linalg.spaces",
    "low_rank": "_ops.linalg.spaces",
    "space_factors": "_ops.linalg.spaces",
    "matrix_rank": "_ops.linalg.spectral_norms",
    "block_diag": "_ops.linalg.structured",
    "circulant": "_ops.linalg.structured",
    "companion": "_ops.linalg.structured",
    "convolution_matrix": "_ops.linalg.structured",
    "fiedler": "_ops.linalg.structured",
    "fiedler_companion": "_ops.linalg.structured",
    "hankel": "_ops.linalg.structured",
    "hilbert": "_ops.linalg.structured",
    "leslie": "_ops.linalg.structured",
    "toeplitz": "_ops.linalg.structured",
    "SVDResult": "_ops.linalg.svd",
    "svd": "_ops.linalg.svd",
    "svdvals": "_ops.linalg.svd",
    "solve_sylvester": "_ops.linalg.sylvester",
    "solve_triangular": "_ops.linalg.triangular",
    "eigh_tridiagonal": "_ops.linalg.tridiagonal",
    "qr_multiply": "_ops.linalg.tridiagonal",
    "truncated_svd": "_ops.linalg.truncated",
}

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
    "companion",
    "cond",
    "convolution_matrix",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigh_tridiagonal",
    "eigsh",
    "eigvals",
    "eigvalsh",
    "expm",
    "expm_frechet",
    "fiedler",
    "fiedler_companion",
    "gmres",
    "hankel",
    "hilbert",
    "inv",
    "kron",
    "leading_space",
    "leslie",
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
    "qr_multiply",
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


def __getattr__(name: str) -> _Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(_import_module(f"unspool.{_HOMES[name]}"), name)
    globals()[name] = found  # from now on Python finds it without asking here
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
