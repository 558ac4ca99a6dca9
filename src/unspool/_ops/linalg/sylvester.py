"""The Sylvester equation A·Z + Z·B = C: `solve_sylvester`, and what derivatives of roots are made of.

Linear in C, and closed under differentiation: its derivatives are equations with the same A and B, or their adjoints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._dims import Shape, equal
from unspool._dtypes import promote
from unspool._graph import Node
from unspool._ops import batching, elementwise, layout
from unspool._ops.broadcasting import broadcast_shapes, ensure_shape
from unspool._ops.contraction import matmul
from unspool._ops.linalg import schur
from unspool._ops.linalg.matrices import adjoint, as_matrix, as_square
from unspool._ops.op import INPUTS, OUTPUT, STRUCTURE, Op, register
from unspool.errors import ShapeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def solve_sylvester(a: Any, b: Any, q: Any) -> Tensor:
    """Solve ``a @ x + x @ b = q`` for a matrix ``x``, as ``scipy.linalg.solve_sylvester``.

    Parameters
    ----------
    a : array_like, shape (..., m, m)
        The matrix on the left. Leading axes broadcast.
    b : array_like, shape (..., n, n)
        The matrix on the right.
    q : array_like, shape (..., m, n)
        The right side.

    Raises
    ------
    RankError
        When it runs, if an eigenvalue of ``a`` is the negative of one of ``b``: then there is no unique solution.

    Examples
    --------
    >>> import unspool as us
    >>> us.linalg.solve_sylvester([[2.0]], [[1.0, 0.0], [0.0, 3.0]], [[3.0, 10.0]]).eval()
    array([[1., 2.]])
    """
    a, b, q = as_square(a, "solve_sylvester"), as_square(b, "solve_sylvester"), as_matrix(q, "solve_sylvester")
    rows, columns = a.shape[-1], b.shape[-1]
    if equal(q.shape[-2], rows) is False or equal(q.shape[-1], columns) is False:
        raise ShapeError(
            f"solve_sylvester of matrices of shapes {a.shape} and {b.shape} with a right side of shape {q.shape}"
        )
    stack = broadcast_shapes(a.shape[:-2], b.shape[:-2], q.shape[:-2])
    q = ensure_shape(q, (*q.shape[:-2], rows, columns))
    a, b, q = (layout.broadcast_to(x, (*stack, *x.shape[-2:])) for x in (a, b, q))
    return sylvester(a, b, q)


def sylvester(a: Tensor, b: Tensor, c: Tensor, rtol: float | None = None) -> Tensor:
    """Return the matrices Z with a·Z + Z·b = c, where all three have the same leading axes.

    There is exactly one unless an eigenvalue of ``a`` is the negative of one of ``b``. If they are so within ``rtol``
    of the largest, by default 16 units of rounding, evaluation raises `RankError`.
    """
    if rtol is None:
        rtol = 16 * float(np.finfo(promote(a.dtype, b.dtype, c.dtype)).eps)
    return _graph.apply(SYLVESTER, a, b, c, rtol=rtol)


def _infer(a: Node, b: Node, c: Node, *, rtol: float) -> tuple[Shape, Any]:
    return c.shape, promote(a.dtype, b.dtype, c.dtype)


def _kernel(a: Any, b: Any, c: Any, *, rtol: float) -> Any:
    dtype = np.result_type(a, b, c)
    return schur.over_stack(lambda x, y, z: schur.sylvester(x, y, z, rtol), dtype, a, b, c)


def _pulled_back(ct: Tensor, a: Tensor, b: Tensor, rtol: float) -> Tensor:
    return sylvester(adjoint(a), adjoint(b), ct, rtol)


def _vjp_a(ct: Tensor, out: Tensor, a: Tensor, b: Tensor, c: Tensor, *, rtol: float) -> Tensor:
    return elementwise.negative(matmul(_pulled_back(ct, a, b, rtol), adjoint(out)))


def _vjp_b(ct: Tensor, out: Tensor, a: Tensor, b: Tensor, c: Tensor, *, rtol: float) -> Tensor:
    return elementwise.negative(matmul(adjoint(out), _pulled_back(ct, a, b, rtol)))


def _vjp_c(ct: Tensor, out: Tensor, a: Tensor, b: Tensor, c: Tensor, *, rtol: float) -> Tensor:
    return _pulled_back(ct, a, b, rtol)


def _jvp_a(t: Tensor, out: Tensor, a: Tensor, b: Tensor, c: Tensor, *, rtol: float) -> Tensor:
    return sylvester(a, b, elementwise.negative(matmul(t, out)), rtol)


def _jvp_b(t: Tensor, out: Tensor, a: Tensor, b: Tensor, c: Tensor, *, rtol: float) -> Tensor:
    return sylvester(a, b, elementwise.negative(matmul(out, t)), rtol)


def _jvp_c(t: Tensor, out: Tensor, a: Tensor, b: Tensor, c: Tensor, *, rtol: float) -> Tensor:
    return sylvester(a, b, t, rtol)


SYLVESTER = register(
    Op(
        "sylvester",
        infer=_infer,
        kernel=_kernel,
        vjp=(_vjp_a, _vjp_b, _vjp_c),
        jvp=(_jvp_a, _jvp_b, _jvp_c),
        params={"rtol": STRUCTURE},
        needs=(INPUTS, OUTPUT),
        batch=batching.leading,
    )
)
