"""Conjugate gradients on arrays.

SciPy's iterate is this one, number for number. But an iteration of it wraps and checks what an operator takes and
returns, and multiplies by the identity if there is no preconditioner. On vectors of a few thousand numbers that takes
longer than the arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Map = Callable[[Any], Any]


def conjugate_gradients(
    apply: Map,
    b: Any,
    x: Any = None,
    *,
    rtol: float,
    maxiter: int,
    precondition: Map | None = None,
    callback: Callable[[Any], None] | None = None,
) -> tuple[Any, int]:
    """Solve ``apply(x) = b`` for a Hermitian operator that is positive definite.

    Parameters
    ----------
    apply : callable
        The operator on vectors with one axis. What it returns is not written to.
    b : ndarray
        The right-hand side, with one axis.
    x : ndarray, optional
        Where to start; zero by default.
    rtol : float
        Stop when the residual that is carried along has this much of the norm of ``b``.
    maxiter : int
        The most iterations.
    precondition : callable, optional
        An approximate inverse of the operator, Hermitian and positive definite as well.
    callback : callable, optional
        Called after every iteration with the solution so far, an array that goes on to change.

    Returns
    -------
    tuple
        Where it ended; and 0, or ``maxiter`` if the residual is not that small.

    Examples
    --------
    >>> import numpy as np
    >>> from unspool._autodiff.solvers.conjugate_gradients import conjugate_gradients
    >>> A = np.array([[2.0, 1.0], [1.0, 3.0]])
    >>> x, info = conjugate_gradients(A.dot, np.array([3.0, 4.0]), rtol=1e-12, maxiter=10)
    >>> x.round(12), info
    (array([1., 1.]), 0)
    """
    x, residual = (np.zeros_like(b), b.copy()) if x is None else (x.copy(), b - apply(x))
    small = rtol * _norm(b)
    direction, step = np.zeros_like(b), np.empty_like(b)
    before: Any = np.inf
    for _ in range(maxiter):
        if _norm(residual) <= small:
            return x, 0
        improved = residual if precondition is None else precondition(residual)
        square = np.vdot(residual, improved)
        direction *= square / before
        direction += improved
        image = apply(direction)
        length = square / np.vdot(direction, image)
        x += np.multiply(direction, length, out=step)
        residual -= np.multiply(image, length, out=step)
        before = square
        if callback is not None:
            callback(x)
    return x, maxiter


def _norm(x: Any) -> float:
    return math.sqrt(np.vdot(x, x).real)
