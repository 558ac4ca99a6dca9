"""The rest of the space: a Hermitian operator outside of the eigenvectors that were found.

With V these vectors and P = 1 - V·Vᴴ, everything here goes by the operator P·(A - λ)·P + s·V·Vᴴ, a traced operator as
well. A derivative of eigenvectors solves with it. The search for an eigenvalue that is equal to one of those found, but
was not found with them, runs on it. Both raise `GaugeError` if a derivative does not exist for that reason.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unspool import _graph
from unspool._autodiff.operators import Applied, apply_traced, closed, derived, stand_ins_for
from unspool._autodiff.solvers.arpack import Wanted, find
from unspool._autodiff.solvers.linear_solve import LINEAR_SOLVE, Equation, Guard, probes
from unspool._dims import product
from unspool._dtypes import real_dtype
from unspool._engine.quiet import run_quietly
from unspool._fragments.fragment import Fragment
from unspool._graph import Node
from unspool._ops import elementwise, layout
from unspool._ops.batching import one_by_one
from unspool._ops.contraction import matmul
from unspool._ops.identity import STOP_GRADIENT
from unspool._ops.leaf import placeholder
from unspool._ops.linalg.division import Division
from unspool._ops.linalg.gauge import refusal, rounding_level
from unspool._ops.linalg.matrices import adjoint
from unspool._ops.op import STRUCTURE, Op, parts

if TYPE_CHECKING:
    from unspool._tensor import Tensor


class Search(NamedTuple):
    """The static part of a search: a parameter of its node. Its inputs are the start and the operator's parameters."""

    operator: Fragment
    wanted: Wanted
    solve_tol: float
    rule: Division
    edge: bool


# --- solving ---------------------------------------------------------------------------------------------------------


def solve_outside(right: Tensor, out: Any, v0: Tensor, parameters: Any, search: Search) -> Tensor:
    """Return column by column the solution of (A - λ_j)·w = P·r in the complement of the vectors that were found."""
    values, vectors, size = out
    operator = _deflated(search, v0, vectors, parameters)
    outside = _project_out(vectors, right)
    filling = _filling(values, size, search.wanted.which)
    solved = []
    for j in range(search.wanted.k):
        equation = Equation(operator, "cg", search.solve_tol, guard=_guard(j, search))
        given = (outside[:, j], vectors, values[j], filling[j], *parameters)
        solved.append(_graph.apply(LINEAR_SOLVE, *given, equation=equation))
    return _project_out(vectors, layout.stack(solved, axis=1))


def _deflated(search: Search, v0: Node, vectors: Node, parameters: Any) -> Fragment:
    """Return the operator u ↦ P·(A - λ)·P·u + s·(1 - P)·u as a fragment with the inputs u, V, λ, s and parameters.

    The last term makes it invertible. Solutions do not depend on it, because right-hand sides have no such part.
    """
    operator = search.operator
    name = ("deflated operator", search.wanted.k)
    found: Fragment = derived(
        operator, (v0, *parameters), name, lambda: _derive_deflated(operator, v0, vectors, parameters)
    )
    return found


def _derive_deflated(operator: Fragment, v0: Node, vectors: Node, parameters: Any) -> Fragment:
    frame, *inner = stand_ins_for((vectors, *parameters))
    u = placeholder((product(v0.shape),), v0.dtype)
    shift, filling = (placeholder((), real_dtype(v0.dtype)) for _ in range(2))
    inside = matmul(frame, matmul(adjoint(frame), u))
    outside = elementwise.subtract(u, inside)
    applied = apply_traced(operator, (layout.reshape(outside, v0.shape), *inner))
    moved = elementwise.subtract(layout.reshape(applied, u.shape), elementwise.multiply(shift, outside))
    result = elementwise.add(_project_out(frame, moved), elementwise.multiply(filling, inside))
    return closed([u, frame, shift, filling, *inner], [result]).fragment


def _project_out(vectors: Tensor, x: Tensor) -> Tensor:
    return elementwise.subtract(x, matmul(vectors, matmul(adjoint(vectors), x)))


def _filling(values: Tensor, size: Tensor, which: str) -> Tensor:
    """Return what takes the place of A - λ_j on the vectors that were found: of its size, and of its sign outside."""
    values, size = _graph.apply(STOP_GRADIENT, values), _graph.apply(STOP_GRADIENT, size)
    if which == "LM":
        return elementwise.where(elementwise.greater(values, 0.0), elementwise.negative(size), size)
    filled = layout.broadcast_to(size, values.shape)
    return filled if which == "SA" else elementwise.negative(filled)


# Where the deflated operator has the eigenvalue that it is shifted by, and the size of the operator itself.
_SIZES = (1, 2)


def _guard(j: int, search: Search) -> Guard:
    message = (
        f"eigenvalue {j} is equal to one that is not among the {search.wanted.k} found, and the loss depends on which "
        "vectors of their space were found. Ask for all of them (a larger k) and use the whole space (its projector)"
    )
    return Guard(search.rule.degeneracy, _SIZES, message, (j,))


# --- the edge --------------------------------------------------------------------------------------------------------


def past_edge(
    passed: Tensor, sent: Tensor | None, beside: Tensor, out: Any, v0: Tensor, parameters: Any, search: Search
) -> Tensor:
    """Return a derivative of eigenvalues, checked not to need one that is equal to theirs and was not found.

    ``sent`` tells how much each eigenvalue has to do with it, and ``beside``, columns or numbers, sets the scale. By
    default it is how much the columns couple an eigenvalue to its neighbour.
    """
    if not search.edge:
        return passed
    values, vectors, size = out
    operator = _deflated(search, v0, vectors, parameters)
    given = (values, vectors, size, *parameters)
    neighbour, outside = parts(_graph.apply_multi(EIGSH_EDGE, *given, operator=operator, search=search))
    if sent is None:
        sent = matmul(elementwise.conj(outside), beside)
    return _graph.apply(EDGE_CHECK, passed, values, neighbour, size, sent, beside, search=search)


def _edge_kernel(values: Any, vectors: Any, size: Any, *parameters: Any, operator: Fragment, search: Search) -> Any:
    """Return the nearest eigenvalue that was not found, and its vector."""
    n, k = vectors.shape
    if n == k:
        return np.full_like(size, np.inf), np.zeros_like(vectors[:, 0])
    shift, filling = _pushed_aside(values, size, search.wanted.which)
    apply = Applied(operator, (n,), vectors.dtype, (vectors, shift, filling, *parameters))
    tol = math.sqrt(float(np.finfo(vectors.dtype).eps))
    wanted = Wanted(1, search.wanted.which, tol, search.wanted.maxiter, None)
    found, columns = run_quietly(find, apply, probes(n, vectors.dtype)[0], wanted, float(size))
    return np.asarray(found[0] + shift, size.dtype), columns[:, 0]


def _pushed_aside(values: Any, size: Any, which: str) -> tuple[Any, Any]:
    """Return shift and filling that keep the vectors that were found away from the end of the spectrum."""
    if which == "LM":
        return np.zeros_like(size), np.zeros_like(size)
    return (values[-1] - size, 2 * size) if which == "SA" else (values[0] + size, -2 * size)


def _edge_check_kernel(
    passed: Any, values: Any, neighbour: Any, size: Any, sent: Any, beside: Any, *, search: Search
) -> Any:
    largest = max(float(size), float(np.max(np.abs(values))))
    close = np.abs(values - neighbour) <= min(search.rule.degeneracy, 100 * rounding_level(values.dtype)) * largest
    scale = np.max(np.linalg.norm(np.atleast_2d(beside), axis=0))
    amounts = np.where(close, np.abs(sent), 0.0)
    if np.any(amounts > search.rule.gauge * scale):
        j = int(np.argmax(amounts))
        raise refusal(_beyond(j, search), (j,), float(amounts[j] / scale))
    return passed


def _beyond(j: int, search: Search) -> str:
    return (
        f"eigenvalue {j} is equal to one that is not among the {search.wanted.k} found, and its derivative depends on "
        "which vectors of their space were found. Ask for all of them (a larger k) and treat them alike, or ask for "
        'edge="ignore" if no parameter can split them'
    )


EIGSH_EDGE = Op(
    "eigsh_edge",
    infer=lambda values, vectors, size, *parameters, **params: (
        ((), size.dtype),
        (vectors.shape[:1], vectors.dtype),
    ),
    kernel=_edge_kernel,
    params={"operator": STRUCTURE, "search": STRUCTURE},
    multi=True,
    batch=one_by_one,
)

EDGE_CHECK = Op(
    "eigsh_edge_check",
    infer=lambda passed, *others, **params: (passed.shape, passed.dtype),
    kernel=_edge_check_kernel,
    vjp=(lambda ct, *nodes, **params: ct, None, None, None, None, None),
    jvp=lambda tangents, *nodes, **params: tangents[0],
    params={"search": STRUCTURE},
    batch=one_by_one,
)
