"""Linear equations with an operator that is a function: conjugate gradients and its relatives, differentiable."""

from __future__ import annotations

from typing import Any

from unspool._autodiff.operators import as_function, trace, trace_beside
from unspool._autodiff.solvers.linear_solve import RESTART, Equation, default_tolerance, place
from unspool._autodiff.vectors import Vectors
from unspool._ops.elementwise import astype
from unspool._ops.linalg.gauge import as_tolerance
from unspool.errors import ArgumentError


def cg(
    operator: Any,
    b: Any,
    x0: Any = None,
    *,
    args: tuple[Any, ...] = (),
    tol: float | None = None,
    atol: float = 0.0,
    maxiter: int | None = None,
    preconditioner: Any = None,
) -> Any:
    """Solve ``operator(x) = b`` by conjugate gradients, for a Hermitian operator that is positive definite.

    The operator is traced, never formed. The solution is differentiable with respect to ``b`` and to every tensor that
    the operator uses, in both modes and to any order: each derivative is one more solve.

    Parameters
    ----------
    operator : callable or array_like
        A linear function ``v -> A v``, called as ``operator(v, *args)`` with a tensor of the shape of ``b``, whatever
        its number of axes. It may close over tensors. Or a square matrix, which acts on ``b`` seen as a vector.
    b : array_like or nested structure of tensors
        The right-hand side, of any shape. For a structure (a dict, a tuple of tensors) the operator takes and returns
        structures like it.
    x0 : like b, optional
        Where to start; zero by default. The solution does not depend on it.
    args : tuple
        Further arguments of the operator: tensors, arrays or nested structures of them.
    tol : float, optional
        The solver stops at a residual of this much of ``b``, and so does every solve of a derivative, relative to its
        own right-hand side. By default 1e-10 in double and 1e-5 in single precision. The relative error of the solution
        may be larger, by up to the condition number.
    atol : float
        It also stops at a residual of this size. Derivatives do not.
    maxiter : int, optional
        The most iterations; by default ten times the number of unknowns.
    preconditioner : callable or array_like, optional
        An approximate inverse, given like the operator but without further arguments. The solution does not depend on
        it.

    Returns
    -------
    Tensor or structure of tensors
        The solution, shaped like ``b``.

    Raises
    ------
    ConvergenceError
        When the value is computed and the residual does not reach the tolerance.
    ArgumentError
        When the value is computed and the operator is found not to be Hermitian (on one random pair of vectors), or
        when a derivative is built and the operator is found not to be linear.

    Notes
    -----
    The adjoint solve uses the adjoint of the operator. So derivatives are right also with respect to parameters that
    would make it non-Hermitian, such as the entries of a matrix.

    Examples
    --------
    >>> import unspool as us
    >>> d = us.tensor([2.0, 4.0])
    >>> x = us.linalg.cg(lambda v: d * v, us.tensor([1.0, 1.0]))
    >>> x.eval()
    array([0.5 , 0.25])
    >>> us.sum(x).grad(d).eval()
    array([-0.25  , -0.0625])
    """
    return _solve("cg", operator, b, x0, args, tol, atol, maxiter, preconditioner)


def gmres(
    operator: Any,
    b: Any,
    x0: Any = None,
    *,
    args: tuple[Any, ...] = (),
    tol: float | None = None,
    atol: float = 0.0,
    restart: int = RESTART,
    maxiter: int | None = None,
    preconditioner: Any = None,
) -> Any:
    """Solve ``operator(x) = b`` by GMRES, for any operator that is invertible.

    Parameters
    ----------
    operator, b, x0, args, tol, atol, preconditioner
        As for `cg`; the operator need not be Hermitian.
    restart : int
        How many vectors are kept before the solver starts again from where it is.
    maxiter : int, optional
        The most restarts; by default at least ten, and enough for ten times as many iterations as there are unknowns.

    Returns
    -------
    Tensor or structure of tensors
        The solution, shaped like ``b``.

    Raises
    ------
    ConvergenceError
        When the value is computed and the residual does not reach the tolerance.

    Examples
    --------
    >>> import unspool as us
    >>> A = us.tensor([[2.0, 1.0], [0.0, 4.0]])
    >>> x = us.linalg.gmres(A, us.tensor([3.0, 4.0]))
    >>> x.eval().round(12)
    array([1., 1.])
    >>> us.sum(x).grad(A).eval().round(12)
    array([[-0.5  , -0.5  ],
           [-0.125, -0.125]])
    """
    if not _is_count(restart):
        raise ArgumentError(f"restart is a positive number of vectors, got {restart!r}")
    return _solve("gmres", operator, b, x0, args, tol, atol, maxiter, preconditioner, restart)


def _solve(
    method: str,
    operator: Any,
    b: Any,
    x0: Any,
    args: tuple[Any, ...],
    tol: float | None,
    atol: float,
    maxiter: int | None,
    preconditioner: Any,
    restart: int = RESTART,
) -> Any:
    if maxiter is not None and not _is_count(maxiter):
        raise ArgumentError(f"maxiter is a positive number, or None, got {maxiter!r}")
    vectors = Vectors(b, "the right-hand side")
    traced, right = trace_beside(operator, args, vectors, f"the operator of {method}")
    tolerance = default_tolerance(right.dtype) if tol is None else as_tolerance(tol, "tol")
    guess = None if x0 is None else astype(vectors.pack(x0, "x0"), right.dtype)
    conditioner = None
    if preconditioner is not None:
        what = f"the preconditioner of {method}"
        conditioner = trace(as_function(preconditioner, (), vectors, what), right.shape, right.dtype, what)
    equation = Equation(
        traced.fragment,
        method,
        tolerance,
        as_tolerance(atol, "atol"),
        maxiter,
        restart,
        is_checked=method == "cg",
    )
    return vectors.unpack(place(equation, right, traced, guess, conditioner))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
