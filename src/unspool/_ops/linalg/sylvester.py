"""The Sylvester equation A·Z + Z·B = C as an op: what derivatives of roots, and of their derivatives, are made of.

Linear in C, and closed under differentiation: its derivatives are equations with the same A and B, or their adjoints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._dims import Shape
from unspool._dtypes import promote
from unspool._graph import Node
from unspool._ops import elementwise
from unspool._ops.contraction import matmul
from unspool._ops.linalg import schur
from unspool._ops.linalg.matrices import adjoint
from unspool._ops.op import INPUTS, OUTPUT, STRUCTURE, Op, register

if TYPE_CHECKING:
    from unspool._tensor import Tensor


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
    )
)
