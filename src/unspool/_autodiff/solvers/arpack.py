"""SciPy's Lanczos on arrays: a few eigenvalues at an end of the spectrum, with orthonormal vectors of fixed phase."""

from __future__ import annotations

import inspect
import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from unspool._autodiff.operators import Applied
from unspool._dtypes import real_dtype
from unspool.errors import ArgumentError, ConvergenceError

ENDS = ("SA", "LA", "LM")


class Wanted(NamedTuple):
    """How many eigenvalues, at which end of the spectrum, how well, and with which effort."""

    k: int
    which: str
    tol: float
    maxiter: int | None
    ncv: int | None


def find(apply: Applied, v0: Any, wanted: Wanted, size: float) -> tuple[Any, Any]:
    """Return eigenvalues, rising, and eigenvectors, as columns, of a Hermitian operator of about the given size."""
    if wanted.k > apply.size:
        raise ArgumentError(f"an operator on {apply.size} unknowns does not have k={wanted.k} eigenvalues")
    basis = wanted.ncv or max(20, 2 * wanted.k + 1)
    # ARPACK's complex driver wants two vectors more than it finds.
    if max(basis, wanted.k + 2) >= apply.size:
        values, vectors = np.linalg.eigh(_dense(apply))
    else:
        values, vectors = _refined(apply, _arpack(apply, v0, basis, wanted, size))
    chosen = _chosen(values, wanted)
    return values[chosen].astype(real_dtype(apply.dtype)), _with_fixed_phases(vectors[:, chosen])


def _dense(apply: Applied) -> Any:
    matrix = np.stack([apply(unit) for unit in np.eye(apply.size, dtype=apply.dtype)], axis=1)
    return (matrix + matrix.conj().T) / 2


# SciPy applies the operator to the start before it begins, which would take out a null vector for good. So the operator
# is shifted, by a multiple of its size, to where the wanted eigenvalues are far from zero. LM wants no null vector.
_SHIFTS = {"SA": -3.0, "LA": 3.0, "LM": 0.0}


def _arpack(apply: Applied, v0: Any, basis: int, wanted: Wanted, size: float) -> Any:
    """Return the vectors that ARPACK finds, as columns."""
    from scipy.sparse import linalg

    if not 0.0 < np.linalg.norm(v0) < math.inf:
        raise ArgumentError("eigsh starts from v0, which has to be finite and not zero")
    options: dict[str, Any] = {"v0": v0, "tol": wanted.tol, "maxiter": wanted.maxiter, "ncv": basis}
    if _takes_generator():
        options["rng"] = np.random.default_rng(0)  # a start that is an eigenvector is left by a random step
    shift = _SHIFTS[wanted.which] * size

    def shifted(vector: Any) -> Any:
        vector = vector.reshape(-1)
        return apply(vector) + shift * vector

    A = linalg.LinearOperator((apply.size, apply.size), matvec=shifted, dtype=apply.dtype)
    try:
        return linalg.eigsh(A, wanted.k, which=wanted.which, **options)[1]
    except linalg.ArpackNoConvergence as error:
        raise _failure(len(error.eigenvalues), apply, wanted) from error


@cache
def _takes_generator() -> bool:
    from scipy.sparse import linalg

    return "rng" in inspect.signature(linalg.eigsh).parameters


def _failure(converged: int, apply: Applied, wanted: Wanted) -> ConvergenceError:
    error = ConvergenceError(
        f"{converged} of {wanted.k} eigenvalues converged after {apply.count} applications of the operator, with the "
        f"tolerance {wanted.tol:.2e}; raise maxiter, ncv or tol, or start closer"
    )
    error.iterations, error.tolerance = apply.count, wanted.tol
    return error


def _refined(apply: Applied, found: Any) -> tuple[Any, Any]:
    """Return the best eigenvalues and orthonormal vectors in the space of some vectors.

    The vectors that ARPACK's complex driver gives for equal eigenvalues are not orthogonal.
    """
    frame = np.linalg.qr(found)[0]
    image = np.stack([apply(column) for column in np.ascontiguousarray(frame.T)], axis=1)
    small = frame.conj().T @ image
    values, rotation = np.linalg.eigh((small + small.conj().T) / 2)
    return values, frame @ rotation


def _chosen(values: Any, wanted: Wanted) -> Any:
    """Return the positions of the wanted ones among rising eigenvalues, rising."""
    if wanted.which == "LM":
        return np.sort(np.argsort(-np.abs(values), kind="stable")[: wanted.k])
    return np.arange(wanted.k) + (0 if wanted.which == "SA" else len(values) - wanted.k)


def _with_fixed_phases(vectors: Any) -> Any:
    """Return vectors whose largest entry is real and positive; of nearly equal ones the first decides."""
    sizes = np.abs(vectors)
    near = math.sqrt(float(np.finfo(vectors.dtype).eps))
    rows = np.argmax(sizes >= (1.0 - near) * sizes.max(axis=0), axis=0)
    entries = vectors[rows, np.arange(vectors.shape[1])]
    return vectors * (entries.conj() / np.abs(entries)).astype(vectors.dtype)
