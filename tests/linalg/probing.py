"""What the probes share: weights, spectra, and what it takes for a derivative to be required or right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import unspool as us
from tests.linalg.oracles import weights
from unspool.errors import GaugeError, RankError, UnspoolError

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


def apart(values: Any) -> bool:
    """Whether all values differ so clearly that no rule may have doubts."""
    return len(values) < 2 or np.min(np.abs(np.diff(values))) > 5e-5


def positive(values: Any) -> bool:
    return bool(np.min(values) > 0.5)


def projector(vectors: Any) -> Any:
    return vectors @ vectors.H


# --- forward mode ----------------------------------------------------------------------------------------------------


def push_forward(loss: Callable[[Any], Any], at: Any, direction: Any) -> Any:
    """Return the derivative along a direction, or the typed error that refused it."""
    try:
        return us.jvp(loss, (us.tensor(at),), (us.tensor(direction),))[1].eval()
    except (GaugeError, RankError) as refusal:
        return refusal


def judge_along(found: Any, gradient: Any, direction: Any) -> None:
    if isinstance(found, UnspoolError):
        return
    expected = np.real(np.vdot(gradient, direction))
    size = np.linalg.norm(gradient) * np.linalg.norm(direction)
    assert np.isfinite(found)
    assert abs(found - expected) <= 1e-6 * (size or 1.0), f"finite and wrong: {found} is not {expected}"


# --- exactly known gaps ----------------------------------------------------------------------------------------------

# In a dyadic frame the matrix has exactly these eigenvalues, so that even a loss that splits the pair has a known
# gradient. It is as large as one over the gap, and no computation can have it once the gap is near rounding.
DYADIC = (8, 13, 20, 27, 30, 33, 36, 40, 43, 46, 49)


def quotients(f: Any, values: Any) -> Any:
    gaps = values[:, None] - values[None, :]
    return (f[:, None] - f[None, :]) / np.where(gaps == 0, 1.0, gaps)
