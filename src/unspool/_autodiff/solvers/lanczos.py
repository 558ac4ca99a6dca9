"""A few eigenvalues and eigenvectors of a traced Hermitian operator, with derivatives that never see the iteration.

With V the k vectors that were found, Λ their eigenvalues, P = 1 - V·Vᴴ and X = Vᴴ·V̄, whose skew part is a(X),

    Re⟨Λ̄, Λ'⟩ + Re⟨V̄, V'⟩ = Σ_j Re⟨y_j, A'·v_j⟩,     Y = V·M + W,
    M_ij = a(X)_ij / (λ_j - λ_i) + δ_ij·λ̄_j,          (A - λ_j)·w_j = -P·v̄_j  with w_j = P·w_j.

What couples the vectors that were found is known exactly and divided by gaps as for `eigh`, with the same checks. The
rest of the space enters by a linear solve for each vector. The wanted eigenvalues lie at an end of the spectrum, so
A - λ_j is definite on that rest, and conjugate gradients solve it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._autodiff.operators import Applied, pull_traced, push_traced, trace_beside
from unspool._autodiff.solvers.arpack import ENDS, Wanted, find
from unspool._autodiff.solvers.deflation import Search, past_edge, solve_outside
from unspool._autodiff.solvers.linear_solve import default_tolerance, ensure_hermitian
from unspool._autodiff.vectors import Vectors
from unspool._dims import product
from unspool._dtypes import real_dtype
from unspool._engine.quiet import run_quietly
from unspool._graph import Node
from unspool._ops import elementwise, layout
from unspool._ops.batching import one_by_one
from unspool._ops.cancellation import scale_of
from unspool._ops.contraction import matmul
from unspool._ops.elementwise import add_cotangents
from unspool._ops.linalg.division import Division, division
from unspool._ops.linalg.eigh import EighResult
from unspool._ops.linalg.gaps import EIGH, TANGENT
from unspool._ops.linalg.gauge import as_tolerance
from unspool._ops.linalg.matrices import adjoint, hermitian_part, skew_part
from unspool._ops.linalg.svd import column_phases
from unspool._ops.op import INPUTS, OUTPUT, STRUCTURE, JointRule, Op, parts
from unspool.errors import ArgumentError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def eigsh(
    operator: Any,
    v0: Any,
    *,
    args: tuple[Any, ...] = (),
    k: int = 1,
    which: str = "SA",
    tol: float = 0.0,
    maxiter: int | None = None,
    ncv: int | None = None,
    solve_tol: float | None = None,
    gauge: str = "check",
    edge: str = "check",
) -> EighResult:
    """Find a few eigenvalues, and their eigenvectors, of a Hermitian operator, by SciPy's Lanczos (ARPACK).

    The operator is traced, never formed. The result is differentiable with respect to every tensor that the operator
    uses, in both modes and to any order. No derivative looks at the iterations: that of an eigenvalue takes no solve,
    that of an eigenvector one, by conjugate gradients in the complement of the vectors that were found.

    Parameters
    ----------
    operator : callable or array_like
        A Hermitian linear function ``v -> A v``, called as ``operator(v, *args)`` with a tensor of the shape of
        ``v0``, whatever its number of axes. It may close over tensors. Or a square matrix, which acts on ``v0`` seen as
        a vector.
    v0 : array_like or nested structure of tensors
        Where to start; not zero. It also tells the shape; for a structure (a dict, a tuple of tensors) the operator
        takes and returns structures like it. The result does not depend on it.
    args : tuple
        Further arguments of the operator: tensors, arrays or nested structures of them.
    k : int
        How many.
    which : {"SA", "LA", "LM"}
        The smallest, the largest, or those of largest modulus.
    tol : float
        Relative accuracy of the eigenvalues; 0 is machine precision.
    maxiter : int, optional
        The most restarts; by default ten times the number of unknowns.
    ncv : int, optional
        How many vectors are kept before a restart; by default 20, or 2 k + 1 if that is more.
    solve_tol : float, optional
        The relative residual at which the solves of derivatives stop; by default 1e-10 in double and 1e-5 in single
        precision.
    gauge : {"check", "fixed"}
        The largest entry of each eigenvector is real and positive. "check": a loss may not depend on such a phase, if
        the vectors are complex. "fixed": the derivative is that of this convention.
    edge : {"check", "ignore"}
        An eigenvalue that is equal to one beyond the ``k`` found has no derivative by itself. "check": look for one
        when a derivative of eigenvalues is evaluated, which costs about one more search. "ignore": do not look.

    Returns
    -------
    EighResult
        The named tuple (eigenvalues, eigenvectors). Eigenvalues rise. Eigenvectors are shaped like ``v0``, with one
        axis more at the end, along which they are counted: ``eigenvectors[..., j]`` belongs to ``eigenvalues[j]``.

    Raises
    ------
    ConvergenceError
        When a value is computed and an eigenvalue, or a solve of a derivative, does not converge.
    GaugeError
        When a derivative is evaluated of a loss that depends on what is open: a phase, the basis of equal eigenvalues,
        or which of several equal eigenvalues were among those found.
    ArgumentError
        When the value is computed and the operator is found not to be Hermitian (on one random pair of vectors).

    Notes
    -----
    If the basis of ``ncv`` vectors would span the whole space, the matrix is formed instead and given to ``eigh``.

    Derivatives are those of an operator that stays Hermitian: build it from its parameters in such a way.

    A Krylov space holds one vector of each eigenspace. Copies of a repeated eigenvalue come in by rounding alone, late
    or never; a derivative that needs a copy which was not found is refused.

    Examples
    --------
    >>> import unspool as us
    >>> d = us.tensor([3.0, 1.0, 2.0])
    >>> values, vectors = us.linalg.eigsh(lambda v: d * v, us.ones(3))
    >>> values.eval(), vectors.eval()[:, 0].round(12)
    (array([1.]), array([0., 1., 0.]))
    >>> values[0].grad(d).eval().round(12)
    array([0., 1., 0.])
    """
    given = Vectors(v0, "v0")
    traced, start = trace_beside(operator, args, given, "the operator of eigsh")
    rule = Division(**division(start.dtype, gauge, None, None))
    if edge not in ("check", "ignore"):
        raise ArgumentError(f'edge is "check" or "ignore", got {edge!r}')
    wanted = _wanted(k, which, tol, maxiter, ncv)
    search = Search(traced.fragment, wanted, _solve_tol(solve_tol, start), rule, edge == "check")
    values, vectors, _ = parts(_graph.apply_multi(EIGSH, start, *traced.parameters, search=search))
    if gauge == "fixed":
        vectors = elementwise.multiply(vectors, elementwise.conj(column_phases(vectors)))
    return EighResult(values, given.unpack(vectors, k))


def _wanted(k: Any, which: Any, tol: Any, maxiter: Any, ncv: Any) -> Wanted:
    for name, value in (("k", k), ("maxiter", maxiter), ("ncv", ncv)):
        if (value is not None or name == "k") and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise ArgumentError(f"{name} is a positive number, got {value!r}")
    if which not in ENDS:
        raise ArgumentError(f"which is one of {', '.join(map(repr, ENDS))}, got {which!r}")
    if ncv is not None and ncv <= k:
        raise ArgumentError(f"ncv is larger than k, got ncv={ncv} and k={k}")
    return Wanted(k, which, as_tolerance(tol, "tol"), maxiter, ncv)


def _solve_tol(given: float | None, start: Tensor) -> float:
    return default_tolerance(start.dtype) if given is None else as_tolerance(given, "solve_tol")


# --- rules -----------------------------------------------------------------------------------------------------------


def _infer(v0: Node, *parameters: Node, search: Search) -> Any:
    real = real_dtype(v0.dtype)
    return ((search.wanted.k,), real), ((product(v0.shape), search.wanted.k), v0.dtype), ((), real)


def _vjp(needed: Any, ct: Any, out: Any, v0: Tensor, *parameters: Tensor, search: Search) -> list[Tensor | None]:
    values_ct, vectors_ct, _ = ct
    values, vectors, _ = out
    rule = search.rule
    along = None
    if values_ct is not None:
        values_ct = past_edge(values_ct, values_ct, values_ct, out, v0, parameters, search)
    if vectors_ct is None:
        if values_ct is not None:
            along = elementwise.multiply(vectors, rule.settle(values_ct, values, what=EIGH))
    else:
        inner = matmul(adjoint(vectors), vectors_ct)
        # What is sent back lies mostly outside of these vectors: inside, a loss that is indifferent to phase and norm
        # leaves nothing but rounding, which must not be its own measure.
        scale = scale_of(vectors_ct, stack=0)
        mixing = rule.divide(skew_part(inner), values, values, scale, sign=-1, what=EIGH)
        along = elementwise.subtract(matmul(vectors, mixing), solve_outside(vectors_ct, out, v0, parameters, search))
        if values_ct is not None:
            settled = rule.settle(values_ct, values, inner, scale=scale, what=EIGH)
            along = elementwise.add(along, elementwise.multiply(vectors, settled))
    found: list[Tensor | None] = [None] * (1 + len(parameters))
    if along is None:
        return found
    for j in range(search.wanted.k):
        inputs = (_column(vectors, j, v0), *parameters)
        pulled = pull_traced(search.operator, inputs, _column(along, j, v0), [False, *needed[1:]])
        found = [_sum(before, more) for before, more in zip(found, pulled, strict=True)]
    return found


def _jvp(tangents: Any, out: Any, v0: Tensor, *parameters: Tensor, search: Search) -> Any:
    values, vectors, _ = out
    moved = []
    for j in range(search.wanted.k):
        inputs = (_column(vectors, j, v0), *parameters)
        column = push_traced(search.operator, inputs, (None, *tangents[1:]))
        if column is None:
            return None
        moved.append(layout.reshape(column, (product(v0.shape),)))
    right = layout.stack(moved, axis=1)
    inner = hermitian_part(matmul(adjoint(vectors), right))
    scale = scale_of(right, stack=0)
    rotation = search.rule.divide(inner, values, values, scale, sign=-1, what=TANGENT)
    outside = solve_outside(right, out, v0, parameters, search)
    values_t = elementwise.real(layout.diagonal(search.rule.split(inner, values, -1, scale), 0, -2, -1))
    values_t = past_edge(values_t, None, right, out, v0, parameters, search)
    return values_t, elementwise.subtract(matmul(vectors, rotation), outside), None


def _sum(before: Tensor | None, more: Tensor | None) -> Tensor | None:
    if before is None or more is None:
        return before if more is None else more
    return add_cotangents(before, more)


def _column(matrix: Tensor, j: int, v0: Tensor) -> Tensor:
    return layout.reshape(matrix[:, j], v0.shape)


# --- the op ----------------------------------------------------------------------------------------------------------


def _kernel(v0: Any, *parameters: Any, search: Search) -> Any:
    return run_quietly(_search, v0, parameters, search)


def _search(v0: Any, parameters: Any, search: Search) -> Any:
    apply = Applied(search.operator, v0.shape, v0.dtype, parameters)
    size = ensure_hermitian(apply) or 1.0
    values, vectors = find(apply, np.reshape(v0, -1), search.wanted, size)
    return values, vectors, np.asarray(size, values.dtype)


EIGSH = Op(
    "eigsh",
    infer=_infer,
    kernel=_kernel,
    vjp=JointRule(_vjp, lambda params: [False, *[True] * (len(params["search"].operator.dtypes) - 1)]),
    jvp=_jvp,
    params={"search": STRUCTURE},
    needs=(INPUTS, OUTPUT),
    multi=True,
    batch=one_by_one,
)
