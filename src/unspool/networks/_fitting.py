"""What the loops that fit a decomposition to data share: the data, the measure of the fit, when to stop, the result.

For data X and an approximation X̂ the fit is 1 - ‖X - X̂‖² / ‖X‖², the fraction of the square norm that is explained: 1
is exact, 0 is as good as nothing. It has no square root, so it is smooth where the approximation is exact. A loop stops
when the fit of a sweep differs from that of the sweep before by less than its tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
import optree

import unspool as us
from unspool.errors import ArgumentError
from unspool.networks import _checks
from unspool.networks._results import printed_as_table
from unspool.networks._spooling import Run

__all__ = [
    "FitResult",
    "OnStep",
    "Progress",
    "data_tensor",
    "fit_of",
    "noise",
    "register_state",
    "same_kind",
    "square_norm",
    "truncated_basis",
]

# Without a cutoff, parts of the data below this many units of rounding count as none.
NOISE = 1024

OnStep: TypeAlias = "Callable[[int, Any, dict[str, float]], object]"

State = TypeVar("State")
Result = TypeVar("Result", bound="FitResult[Any]")


@printed_as_table
class FitResult(NamedTuple, Generic[State]):
    """What a loop reached; each loop has its own, named after its decomposition."""

    state: State
    #: 1 - residual / ‖data‖², a tensor to differentiate.
    fit: us.Tensor
    #: ‖data - state‖², a tensor to differentiate.
    residual: us.Tensor
    steps: int
    converged: bool
    #: The floats "fit", "error" = ‖data - state‖ / ‖data‖ and "change" (of the fit) of each sweep.
    history: tuple[dict[str, float], ...]


def data_tensor(value: Any, name: str = "data") -> us.Tensor:
    """Return data to decompose: finite numbers, real or complex, with two axes or more and none of them empty."""
    tensor = _checks.finite_tensor(value, name)
    if tensor.ndim < 2:
        raise ArgumentError(f"{name} must have two axes or more, but has shape {tensor.shape}")
    if 0 in tensor.shape:
        raise ArgumentError(f"{name} must not be empty, but has shape {tensor.shape}")
    return tensor if tensor.dtype.kind in "fc" else us.astype(tensor, us.float64)


def same_kind(tensors: Sequence[us.Tensor], data: us.Tensor, name: str) -> None:
    """Raise if a start is complex and the data are not: results of real data are real."""
    for position, tensor in enumerate(tensors):
        if tensor.dtype.kind == "c" and data.dtype.kind != "c":
            raise ArgumentError(f"{name}[{position}] is complex, but the data are real")


def square_norm(tensor: us.Tensor) -> us.Tensor:
    """Return the sum of the squared moduli."""
    return us.sum(us.real(us.conj(tensor) * tensor))


def noise(data: us.Tensor, truncations: int) -> float:
    """Return the norm that each of some truncations may drop, so that all of them together drop rounding only."""
    return NOISE * float(np.finfo(data.dtype).eps) * math.sqrt(float(square_norm(data)) / truncations)


def fit_of(residual: us.Tensor, norm2: us.Tensor) -> us.Tensor:
    """Return the fit for a squared residual; data that are zero are explained by zero."""
    return 1.0 - residual / us.where(norm2 > 0, norm2, 1.0)


def truncated_basis(
    matrix: us.Tensor, largest: int | None, allowed: float, *, keep_multiplets: bool = False
) -> us.Tensor:
    """Return a basis of the leading left space of the smallest rank that drops no more than an allowed norm.

    Its rank is one at least, and no more than the largest. It is found by looking at singular values, and is a constant
    of the derivative.
    """
    factors = us.linalg.space_factors(matrix)
    rank = _leading_rank(factors.S.eval(), largest, allowed)
    return us.linalg.leading_space(matrix, rank, keep_multiplets=keep_multiplets, factors=factors).isometry


def _leading_rank(values: Any, largest: int | None, allowed: float) -> int:
    """Return how many singular values to keep, one at least, so that the norm of the others is no more than allowed."""
    tails = np.sqrt(np.cumsum(values[::-1] ** 2))[::-1]
    needed = max(1, int(np.count_nonzero(tails > allowed)))
    return needed if largest is None else min(needed, largest)


class Progress:
    """The fit of every sweep so far, and whether it still changes."""

    def __init__(self, norm2: us.Tensor, tol: Any, on_step: OnStep | None, run: Run) -> None:
        self._norm2 = norm2
        self._scale = float(norm2) or 1.0
        self._tol = _checks.fraction(tol, "tol")
        self._on_step = on_step
        self._run = run

    @property
    def history(self) -> list[dict[str, float]]:
        """What was noted of every sweep."""
        return self._run.history

    @property
    def steps(self) -> int:
        """How many sweeps were made."""
        return len(self._run.history)

    @property
    def converged(self) -> bool:
        """Whether the last sweep changed the fit by less than the tolerance."""
        # The first sweep has nothing to compare with.
        return self.steps > 1 and self.history[-1]["change"] < self._tol

    def note(self, state: Any, residual: float, parts: Any) -> None:
        """Note a sweep by the state and the squared residual it reached, and what the next one goes on with."""
        # A difference of large numbers may come out below zero by rounding.
        explained = 1.0 - max(residual, 0.0) / self._scale
        change = abs(explained - (self.history[-1]["fit"] if self.steps else 0.0))
        values = {"fit": explained, "error": float(np.sqrt(1.0 - explained)), "change": change}
        self._run.checkpoint(parts, values)
        if self._on_step is not None:
            self._on_step(self.steps, state, dict(values))

    def result(self, kind: type[Result], data: us.Tensor, state: Any) -> Result:
        """Return what the loop reached. The residual is that of the state itself, not the one that sweeps go by."""
        residual = square_norm(data - state.full())
        fit = fit_of(residual, self._norm2)
        return kind(state, fit, residual, self.steps, self.converged, tuple(self.history))


def register_state(cls: type[Any], *fields: str) -> None:
    """Make a frozen dataclass a pytree.

    A tree may hold anything in place of its tensors, so nothing is checked when it is put together again.
    """

    def flatten(state: Any) -> tuple[tuple[Any, ...], None, tuple[str, ...]]:
        return tuple(getattr(state, field) for field in fields), None, fields

    def unflatten(_: Any, children: Any) -> Any:
        state = object.__new__(cls)
        for field, child in zip(fields, children, strict=True):
            object.__setattr__(state, field, child)
        return state

    optree.register_pytree_node(cls, flatten, unflatten, path_entry_type=optree.GetAttrEntry, namespace="unspool")
