"""What a QR decomposition leaves open, checked when its derivative is computed.

A derivative rule builds graph and sees no values, so each check is an op: it passes its first operand on, or divides by
R, and raises if the numbers say that the result would have no meaning.

A matrix whose leading k columns are linearly dependent has no unique factors: the derivative divides by a zero on the
diagonal of R. `divide_cotangent` then looks at what is to be divided. Of a cotangent G·U⁻ᴴ of the leading columns that
is N = G - Q·Ū·Uᴴ, and it vanishes for a loss that depends on the product Q·R, or on Rᴴ·R, alone. Then the answer is
Q·Ū, with no division left, provided that it is the whole answer: what a loss of Q·R sends beside the span of Q and
beside the rows of R is lost in both cotangents. So of a tall matrix only the complete decomposition has that answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._dtypes import DType
from unspool._graph import Node
from unspool._ops import batching
from unspool._ops.contraction import matmul
from unspool._ops.elementwise import negative, subtract
from unspool._ops.linalg.finite import refuse_not_finite
from unspool._ops.linalg.gauge import Tolerances, as_tolerance, refusal, tolerances_for
from unspool._ops.linalg.matrices import adjoint
from unspool._ops.linalg.triangular import divide_triangular, keep_triangle, solve_triangular_kernel
from unspool._ops.op import INPUTS, OUTPUT, STRUCTURE, Op, register
from unspool.errors import RankError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def tolerances_of_call(dtype: DType, rtol: float | None) -> Tolerances:
    """Return the tolerances of a call: its own for the rank, those of the context for the rest."""
    found = tolerances_for(dtype)
    return found if rtol is None else replace(found, rank=as_tolerance(rtol, "rtol"))


def _same(x: Node, *others: Node, **params: Any) -> Any:
    return x.shape, x.dtype


def _size(x: Any) -> Any:
    """Return the Frobenius norms of a stack of matrices."""
    return np.linalg.norm(x, axis=(-2, -1)) if x.size else np.zeros(x.shape[:-2])


def _place(index: tuple[int, ...]) -> str:
    return f" of matrix {index} of the stack" if index else ""


# --- phases ----------------------------------------------------------------------------------------------------------


def check_phases(inner: Any, q_ct: Tensor | None, r: Tensor, r_ct: Tensor | None, tol: Tolerances) -> Tensor:
    """Return R·R̄ᴴ - Q̄ᴴ·Q, whose diagonal is real unless the loss depends on the phases of the columns of Q."""
    sources = ([] if q_ct is None else [q_ct]) + ([] if r_ct is None else [r, r_ct])
    return _graph.apply(CHECK_PHASES, inner, *sources, tol=tol)


def _check_phases_kernel(inner: Any, *sources: Any, tol: Tolerances) -> Any:
    scale = np.zeros(inner.shape[:-2])
    if len(sources) != 2:
        scale = scale + _size(sources[0])
    if len(sources) != 1:
        scale = scale + _size(sources[-2]) * _size(sources[-1])
    amount = np.abs(np.imag(np.diagonal(inner, 0, -2, -1)))
    beyond = amount > tol.gauge * scale[..., None]
    if np.any(beyond):
        *matrix, column = (int(i) for i in np.argwhere(beyond)[0])
        index = tuple(matrix)
        part = float(amount[(*index, column)] / scale[index])
        raise refusal(
            f"the loss depends on the phase of column {column} of Q{_place(index)} (by {part:.1e} of its cotangent), "
            "which a QR decomposition leaves open. Use positive=True, or ask for gauge='fixed' to differentiate the "
            "convention that the diagonal of R is real",
            (column,),
            part,
        )
    return inner


# The rest of a derivative is that of the operand which is passed on.
CHECK_PHASES = register(
    Op(
        "check_phases",
        infer=_same,
        kernel=_check_phases_kernel,
        vjp=lambda i, ct, out, *inputs, tol: ct if i == 0 else None,
        jvp=lambda tangents, out, *inputs, tol: tangents[0],
        params={"tol": STRUCTURE},
        batch=batching.leading,
    )
)


# --- the columns that complete Q -------------------------------------------------------------------------------------


def check_basis(rest_ct: Tensor, rest: Tensor, tol: Tolerances) -> Tensor:
    """Return the cotangent of the columns that complete Q, if the loss depends on their span alone."""
    return _graph.apply(CHECK_BASIS, rest_ct, rest, tol=tol)


def _check_basis_kernel(rest_ct: Any, rest: Any, *, tol: Tolerances) -> Any:
    within = np.matmul(np.conjugate(np.swapaxes(rest, -1, -2)), rest_ct)
    amount, scale = _size(within - np.conjugate(np.swapaxes(within, -1, -2))) / 2, _size(rest_ct)
    beyond = amount > tol.gauge * scale
    if np.any(beyond):
        index = tuple(int(i) for i in np.argwhere(beyond)[0])
        rows, count = rest.shape[-2:]
        part = float(amount[index] / scale[index])
        raise refusal(
            f"the loss depends on which basis columns {rows - count} to {rows - 1} of Q{_place(index)} are (by "
            f"{part:.1e} of their cotangent), and a complete QR decomposition leaves open all but their span. Use "
            "mode='reduced', or their projector",
            tuple(range(rows - count, rows)),
            part,
        )
    return rest_ct


CHECK_BASIS = register(
    Op(
        "check_basis",
        infer=_same,
        kernel=_check_basis_kernel,
        vjp=(lambda ct, out, rest_ct, rest, *, tol: ct, None),
        jvp=(lambda t, out, rest_ct, rest, *, tol: t, None),
        params={"tol": STRUCTURE},
        batch=batching.leading,
    )
)


# --- rank ------------------------------------------------------------------------------------------------------------


def divide_full_rank(
    b: Tensor, u: Tensor, tol: Tolerances, *, adjoint: bool = False, what: str = "a QR decomposition"
) -> Tensor:
    """Solve ``x @ u = b`` for a triangle; raise `RankError` when it runs if that has no full rank, to tolerance."""
    return divide_triangular(b, _graph.apply(FULL_RANK, u, b, rank=tol.rank, what=what), adjoint=adjoint)


def _deficient(u: Any, rank: float) -> Any:
    """Return for each triangle of a stack whether it has an element on the diagonal that counts as zero."""
    if not u.size:
        return np.zeros(u.shape[:-2], bool)
    diagonal = np.abs(np.diagonal(u, 0, -2, -1)).min(axis=-1)
    if u.dtype.kind == "c":
        return diagonal <= rank * np.abs(u).max(axis=(-2, -1))
    # The same, without an array of moduli.
    return diagonal <= rank * np.maximum(u.max(axis=(-2, -1)), -u.min(axis=(-2, -1)))


def _rank_error(u: Any, index: tuple[int, ...], rank: float, what: str, why: str = "") -> RankError:
    refuse_not_finite(u, f"the derivative of {what}")
    spectrum = np.linalg.svd(u[index], compute_uv=False)
    size = len(spectrum)
    # The diagonal has an element that counts as zero, whatever the spectrum says in this precision.
    found = min(int(np.sum(spectrum > rank * spectrum[0])), size - 1)
    which = f"matrix {index} of the stack" if index else "the matrix"
    return RankError(
        f"the derivative of {what} needs {size} linearly independent leading columns, and those of "
        f"{which} have rank {found}{why}"
    )


def _full_rank_kernel(u: Any, b: Any, *, rank: float, what: str) -> Any:
    deficient = _deficient(u, rank)
    if b.size and np.any(deficient):
        raise _rank_error(u, tuple(int(i) for i in np.argwhere(deficient)[0]), rank, what)
    return u


FULL_RANK = register(
    Op(
        "full_rank",
        infer=_same,
        kernel=_full_rank_kernel,
        vjp=(lambda ct, out, u, b, *, rank, what: ct, None),
        jvp=(lambda t, out, u, b, *, rank, what: t, None),
        params={"rank": STRUCTURE, "what": STRUCTURE},
        batch=batching.leading,
    )
)


# --- the division by R -----------------------------------------------------------------------------------------------


def divide_cotangent(
    numerator: Tensor, u: Tensor, q_ct: Tensor | None, q: Tensor, r: Tensor, r_ct: Tensor | None, tol: Tolerances
) -> Tensor:
    """Return G·U⁻ᴴ; the other operands are looked at only where U has not full rank (see the module docstring)."""
    sources = (() if q_ct is None else (q_ct,)) + (() if r_ct is None else (q, r, r_ct))
    return _graph.apply(DIVIDE_COTANGENT, numerator, u, *sources, tol=tol)


def _divide_cotangent_kernel(numerator: Any, u: Any, *sources: Any, tol: Tolerances) -> Any:
    deficient = _deficient(u, tol.rank)
    if not np.any(deficient):
        return _divide_kernel(numerator, u)
    result = np.empty(numerator.shape, numerator.dtype)
    for index in np.ndindex(u.shape[:-2]):
        if not deficient[index]:
            result[index] = _divide_kernel(numerator[index], u[index])
            continue
        answer = _undivided([numerator[index], u[index], *[s[index] for s in sources]], tol)
        if isinstance(answer, str):
            raise _rank_error(u, index, tol.rank, "a QR decomposition", f": {answer}")
        result[index] = answer
    return result


def _divide_kernel(numerator: Any, u: Any) -> Any:
    right = np.conjugate(np.swapaxes(numerator, -1, -2))
    x = solve_triangular_kernel(u, right, lower=False, adjoint=False, unit_diagonal=False)
    return np.conjugate(np.swapaxes(x, -1, -2))


def _undivided(arrays: Sequence[Any], tol: Tolerances) -> Any:
    """Return the cotangent of the leading columns of a matrix without full rank, or why there is none."""
    numerator, u, *sources = arrays
    k = u.shape[-1]
    with_q, with_r = len(sources) != 3, len(sources) != 1
    if not with_r:
        return "the loss depends on Q, whose columns are then not determined"
    q, r, r_ct = sources[-3:]
    if with_q and q.shape[0] > q.shape[1]:
        return "the loss depends on Q, whose columns are then not determined (of Q @ R alone? use mode='complete')"
    answer = q @ r_ct[:, :k]
    scale = np.linalg.norm(r) * np.linalg.norm(r_ct) + (np.linalg.norm(sources[0]) if with_q else 0.0)
    if np.linalg.norm(numerator - answer @ np.conjugate(u.T)) > tol.gauge * scale:
        return "the loss depends on more than the product of Q and R"
    if not with_q and _leaves_range(r, r_ct, tol):
        return "the loss depends on a part of R that is zero up to rounding"
    return answer


def _leaves_range(r: Any, r_ct: Any, tol: Tolerances) -> bool:
    """Whether a cotangent of R has a part that no loss of Rᴴ·R sends: one outside the column space of R."""
    refuse_not_finite(r, "the derivative of a QR decomposition")
    left, spectrum, _ = np.linalg.svd(r)
    open_part = left[:, int(np.sum(spectrum > tol.rank * spectrum[0])) :]
    return bool(np.linalg.norm(np.conjugate(open_part.T) @ r_ct) > tol.gauge * np.linalg.norm(r_ct))


def _divide_cotangent_vjp(
    i: int, ct: Tensor, out: Tensor, numerator: Tensor, u: Tensor, *sources: Tensor, tol: Tolerances
) -> Tensor | None:
    if i > 1:
        return None
    numerator_ct = divide_full_rank(ct, u, tol)
    return numerator_ct if i == 0 else keep_triangle(negative(matmul(adjoint(numerator_ct), out)), lower=False)


def _divide_cotangent_jvp(
    tangents: Any, out: Tensor, numerator: Tensor, u: Tensor, *sources: Tensor, tol: Tolerances
) -> Tensor | None:
    total, u_t = tangents[:2]
    if u_t is not None:
        product = matmul(out, adjoint(keep_triangle(u_t, lower=False)))
        total = negative(product) if total is None else subtract(total, product)
    return None if total is None else divide_full_rank(total, u, tol, adjoint=True)


DIVIDE_COTANGENT = register(
    Op(
        "divide_cotangent",
        infer=_same,
        kernel=_divide_cotangent_kernel,
        vjp=_divide_cotangent_vjp,
        jvp=_divide_cotangent_jvp,
        params={"tol": STRUCTURE},
        needs=(INPUTS, OUTPUT),
        batch=batching.leading,
    )
)
