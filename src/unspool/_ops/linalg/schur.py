"""Kernels on the Schur form: roots, logarithms and Sylvester equations of one matrix, and loops over stacks of them.

The one idea: A = Q·T·Qᴴ with T triangular, and on triangles everything reduces to smaller triangles. The root of a
triangle splits into the roots of its two diagonal blocks and a Sylvester equation for the corner; a logarithm is taken
of repeated roots, which are close to the identity, where a rational approximation is exact to rounding. Plain NumPy and
SciPy: this module knows nothing of graphs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from unspool.errors import RankError

# Up to this distance from the identity, Gauss-Legendre quadrature with so many nodes gives logarithms to rounding: the
# error falls like 0.172 ** (2 * nodes).
_NEAR_IDENTITY = 0.5
_NODES = 12
# The roots of a double reach a distance of 0.5 from 1 in 11 steps; triangles far from normal take a few more.
_MOST_ROOTS = 100


def over_stack(function: Callable[..., Any], dtype: Any, *stacks: Any) -> Any:
    """Apply a function of matrices to each matrix of stacks with equal leading axes; it has the shape of the last."""
    result = np.empty(stacks[-1].shape, dtype)
    if result.size:
        for index in np.ndindex(result.shape[:-2]):
            # A stack that is given twice gives one matrix twice, so that a function can tell.
            matrices = {id(stack): stack[index] for stack in stacks}
            result[index] = function(*[matrices[id(stack)] for stack in stacks])
    return result


def complex_schur(a: Any) -> tuple[Any, Any]:
    """Return T, triangular, and Q, unitary, with a = Q·T·Qᴴ, in double precision."""
    from scipy.linalg import schur

    t, q = schur(a.astype(np.complex128), output="complex")
    return t, q


# --- Sylvester equations ---------------------------------------------------------------------------------------------


def sylvester(a: Any, b: Any, c: Any, rtol: float) -> Any:
    """Return the matrix Z with a·Z + Z·b = c; raises `RankError` where there is not exactly one."""
    from scipy.linalg import schur

    output = "complex" if any(map(np.iscomplexobj, (a, b, c))) else "real"
    t, q = schur(a, output=output)
    s, p = (t, q) if b is a else schur(b, output=output)
    first, second = eigenvalues(t), eigenvalues(s)
    sums = np.abs(first[:, None] + second)
    i, j = np.unravel_index(np.argmin(sums), sums.shape)
    if not sums[i, j] > rtol * (np.abs(first).max() + np.abs(second).max()):
        raise RankError(
            f"the Sylvester equation A·Z + Z·B = C has no unique solution: A has the eigenvalue {first[i]:.6g} and B "
            f"has {second[j]:.6g}, its negative to working precision; where this is for the derivative of a matrix "
            "square root, the matrix is singular"
        )
    return q @ _triangular_sylvester(t, s, q.conj().T @ c @ p) @ p.conj().T


def eigenvalues(t: Any) -> Any:
    """Return the eigenvalues of a Schur form; a real one has a block of size 2 for each pair of complex ones."""
    if np.iscomplexobj(t):
        return np.diagonal(t)
    half_gap = np.sqrt((np.diagonal(t, 1) * np.diagonal(t, -1)).astype(complex))
    found = np.diagonal(t).astype(complex)
    found[:-1] += half_gap
    found[1:] -= half_gap
    return found


def _triangular_sylvester(t: Any, s: Any, c: Any) -> Any:
    from scipy.linalg.lapack import get_lapack_funcs

    solve = get_lapack_funcs("trsyl", (t, s, c))
    z, scale, _ = solve(t, s, c)
    return z / scale


# --- roots -----------------------------------------------------------------------------------------------------------


def square_root(a: Any) -> Any:
    """Return the principal square root, in double precision; raises ``LinAlgError`` where there is none."""
    t, q = complex_schur(a)
    root = q @ _triangular_root(t) @ q.conj().T
    epsilon = float(np.finfo(float).eps)
    if np.isrealobj(a):
        # An eigenvalue that rounding has put below 0 leaves an imaginary part that squares to rounding.
        allowed = 16 * len(a) * epsilon * np.linalg.norm(root) ** 2
        root = root.real
        if np.isfinite(allowed) and not np.abs(root @ root - a).max() <= allowed:
            raise np.linalg.LinAlgError(
                "the principal square root of this real matrix is not real: it has an eigenvalue on the negative real "
                "axis; convert the matrix with astype('complex128') to get the complex one"
            )
    if not np.abs(root @ root - a).max() <= np.sqrt(epsilon) * np.abs(a).max():
        raise np.linalg.LinAlgError("the matrix has no square root: its eigenvalue 0 is defective")
    return root


def _triangular_root(t: Any) -> Any:
    """Return the principal square root of an upper triangle, by halves."""
    size = len(t)
    if size <= 1:
        # Adding 0 makes -0 of an imaginary part +0: the same side of the cut for every eigenvalue on it.
        return np.sqrt(t + 0)
    half = size // 2
    root = np.zeros_like(t)
    root[:half, :half] = _triangular_root(t[:half, :half])
    root[half:, half:] = _triangular_root(t[half:, half:])
    root[:half, half:] = _triangular_sylvester(root[:half, :half], root[half:, half:], t[:half, half:])
    return root


# --- logarithms ------------------------------------------------------------------------------------------------------


def logarithm(a: Any) -> Any:
    """Return the principal logarithm, in double precision; raises ``LinAlgError`` where there is none."""
    t, q = complex_schur(a)
    result = q @ _triangular_log(t) @ q.conj().T
    if np.isrealobj(a):
        _refuse_cut(
            t,
            "the principal logarithm of this real matrix is not real",
            "convert the matrix with astype('complex128') to get the complex one",
        )
        return result.real
    return result


def logarithm_frechet(a: Any, e: Any) -> Any:
    """Return the derivative of the principal logarithm at ``a`` in the direction ``e``.

    It is the corner of the logarithm of [[T, G], [0, T]], where G is ``e`` in the basis of the Schur form: a triangle
    whose two halves have the same eigenvalues, bit for bit.
    """
    t, q = complex_schur(a)
    sizes = np.abs(np.diagonal(t))
    if not np.min(sizes) > len(t) * np.finfo(float).eps * np.max(sizes):
        raise RankError(f"the logarithm of a singular matrix has no derivative: an eigenvalue is {np.min(sizes):.1e}")
    _refuse_cut(t, "the principal logarithm jumps there and has no derivative", "move the eigenvalue off the axis")
    size = len(t)
    block = np.zeros((2 * size, 2 * size), t.dtype)
    block[:size, :size] = block[size:, size:] = t
    # The corner is linear in it; made small, it does not add to the roots that have to be taken.
    largest = float(np.abs(e).max())
    small = 2.0**-10 * float(np.abs(t).max()) / largest if largest else 1.0
    block[:size, size:] = q.conj().T @ (e * small) @ q
    result = q @ _triangular_log(block)[:size, size:] @ q.conj().T / small
    return result.real if np.isrealobj(a) and np.isrealobj(e) else result


def _refuse_cut(t: Any, what: str, advice: str) -> None:
    values = np.diagonal(t)
    rounding = 16 * len(t) * np.finfo(float).eps * np.abs(t).max(initial=0)
    on_cut = values[(values.real < 0) & (np.abs(values.imag) <= np.minimum(rounding, np.abs(values.real)))]
    if on_cut.size:
        raise np.linalg.LinAlgError(
            f"the matrix has the eigenvalue {on_cut[0].real:.6g} on the negative real axis: {what}; {advice}"
        )


def _triangular_log(t: Any) -> Any:
    """Return the principal logarithm of an upper triangle: 2^k times that of its 2^k-th root."""
    values = np.diagonal(t)
    if np.any(values == 0):
        raise np.linalg.LinAlgError("the matrix has the eigenvalue 0, to rounding: it has no logarithm")
    root, identity, power = t, np.eye(len(t)), 1.0
    for _ in range(_MOST_ROOTS):
        if len(t) == 0 or np.abs(root - identity).sum(axis=0).max() <= _NEAR_IDENTITY:
            break
        root, power = _triangular_root(root), 2 * power
    rest = root - identity
    nodes, weights = _quadrature()
    # log(1 + x) is the integral of x/(1 + s·x) over s from 0 to 1.
    terms = np.linalg.solve(identity + nodes[:, None, None] * rest, np.broadcast_to(rest, (len(nodes), *rest.shape)))
    result = power * np.tensordot(weights, terms, 1)
    # The diagonal is known without the cancellation that taking 1 from a root near 1 suffers.
    np.fill_diagonal(result, np.log(values + 0))
    return np.triu(result)


@lru_cache(maxsize=1)
def _quadrature() -> tuple[Any, Any]:
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return (nodes + 1) / 2, weights / 2
