"""The contraction family: products of tensors, all of them made of one binary op.

`contract` is that op and `kernel` runs it as a matrix product; `products` (matmul, tensordot, …) and `nary` (einsum,
with `parsing` and `path`) say which axes go together; `norms` are sums of squares and their kin.
"""

from typing import TYPE_CHECKING

from unspool._ops.later import later

if TYPE_CHECKING:
    from unspool._ops.contraction.nary import einsum
    from unspool._ops.contraction.products import (
        dot,
        inner,
        matmul,
        matvec,
        outer,
        tensordot,
        vdot,
        vecdot,
        vecmat,
    )

__all__ = [
    "dot",
    "einsum",
    "inner",
    "matmul",
    "matvec",
    "outer",
    "tensordot",
    "vdot",
    "vecdot",
    "vecmat",
]

# Where to find what is loaded when it is first asked for.
_LATER = {
    "dot": "products",
    "inner": "products",
    "matmul": "products",
    "matvec": "products",
    "outer": "products",
    "tensordot": "products",
    "vdot": "products",
    "vecdot": "products",
    "vecmat": "products",
    "einsum": "nary",
}

__getattr__ = later(__name__, _LATER)
