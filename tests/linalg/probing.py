"""What the probes share: weights, spectra, and what it takes for a derivative to be required or right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import unspool as us
from tests.linalg.oracles import Factored, Hermitian, hermitian, weights
from unspool.errors import GaugeError, RankError

GAPS = (1e-4, 1e-6, 3e-8, 1e-9, 1e-11, 1e-13, 1e-15)
FRAMES = ("axes", "rotation", "unitary")


def inner(w: Any, x: Any) -> Any:
    """Return Re⟨w, x⟩."""
    return us.real(us.sum(np.conj(w) * x))


def weight_for(kind: str, *shape: int) -> Any:
    """Return a generic weight of the kind of numbers that a frame has."""
    return weights(*shape, field="complex" if kind == "unitary" else "real")


def always(values: Any) -> bool:
    return True


def never(values: Any) -> bool:
    return False


def apart(values: Any) -> bool:
    """Whether all values differ so clearly that no rule may have doubts."""
    return len(values) < 2 or np.min(np.abs(np.diff(values))) > 5e-5


def told_apart(values: Any) -> bool:
    """Whether no two values are equal to rounding, so that each has a derivative along any direction."""
    return len(values) < 2 or np.min(np.abs(np.diff(values))) > 5e-12


def positive(values: Any) -> bool:
    return bool(np.min(values) > 0.5)


def has_zero(values: Any) -> bool:
    return not positive(values)


def apart_and_positive(values: Any) -> bool:
    return apart(values) and positive(values)


def told_apart_and_positive(values: Any) -> bool:
    return told_apart(values) and positive(values)


def projector(vectors: Any) -> Any:
    return vectors @ vectors.H


# --- forward mode ----------------------------------------------------------------------------------------------------


def push_forward(loss: Callable[[Any], Any], at: Any, direction: Any) -> Any:
    """Return the derivative along a direction, or the typed error that refused it."""
    try:
        return us.jvp(loss, (us.tensor(at),), (us.tensor(direction),))[1].eval()
    except (GaugeError, RankError) as refusal:
        return refusal


def judge_along(found: Any, gradient: Any, direction: Any, required: bool) -> None:
    """Fail unless the derivative along a direction is right, or was refused and may be."""
    if isinstance(found, (GaugeError, RankError)):
        if required:
            raise found
        return
    expected = np.real(np.vdot(gradient, direction))
    size = np.linalg.norm(gradient) * np.linalg.norm(direction)
    assert np.isfinite(found)
    accuracy = 1e-6 * abs(expected) + 1e-8 * (size or 1.0)
    assert abs(found - expected) <= accuracy, f"finite and wrong: {found} is not {expected}"


# A rule of forward mode does not know what becomes of the vectors. At equal values it has an answer only along
# directions that move them alike; along these it is required to have one, whatever the loss is.


def unsplit(h: Hermitian, coupling: Any) -> Any:
    """Return a direction that couples the eigenvectors as given, and moves equal eigenvalues alike."""
    coupling = hermitian(coupling)
    for i, block in enumerate(_blocks(h.values)):
        coupling[np.ix_(block, block)] = (1 + 0.3 * i) * np.eye(len(block))
    return h.vectors @ coupling @ h.vectors.conj().T


def unsplit_singular(x: Factored, coupling: Any) -> Any:
    """Return a direction that couples the singular vectors as given, moves equal values alike and keeps the rank."""
    (m, n), k = coupling.shape, len(x.values)
    coupling = coupling.copy()
    for i, block in enumerate(_blocks(x.values)):
        inside = np.ix_(block, block)
        # What is skew inside of a block turns its left and right vectors against each other, and splits nothing.
        coupling[inside] += (1 + 0.3 * i) * np.eye(len(block)) - hermitian(coupling[inside])
    null = np.flatnonzero(x.values < 0.5)
    if null.size:
        coupling[np.ix_([*null, *range(k, m)], [*null, *range(k, n)])] = 0.0
    return x.left @ coupling @ x.right.conj().T


def _blocks(values: Any) -> list[Any]:
    """Return the indices of values that are equal or nearly so, for sorted values."""
    return np.split(np.arange(len(values)), 1 + np.flatnonzero(np.abs(np.diff(values)) > 1e-3))


# --- exactly known gaps ----------------------------------------------------------------------------------------------

# In a dyadic frame the matrix has exactly these eigenvalues, so that even a loss that splits the pair has a known
# gradient. It is as large as one over the gap, and no computation can have it once the gap is near rounding.
DYADIC = (8, 13, 20, 27, 30, 33, 36, 40, 43, 46, 49)


def quotients(f: Any, values: Any) -> Any:
    gaps = values[:, None] - values[None, :]
    return (f[:, None] - f[None, :]) / np.where(gaps == 0, 1.0, gaps)
