"""How the rules of one decomposition divide by gaps: checked and exact, or broadened because a user asked for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unspool._dtypes import DType
from unspool._ops import elementwise, layout
from unspool._ops.creation import eye, zeros
from unspool._ops.linalg.gaps import SVD, TANGENT, gap_quotient, gauge_check, settled_values
from unspool._ops.linalg.gauge import as_tolerance, rounding_level, tolerances_for
from unspool.errors import ArgumentError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


@dataclass(frozen=True)
class Division:
    """The manner of dividing, as the parameters of a node say it.

    Parameters
    ----------
    degeneracy, gauge : float
        As in `Tolerances`.
    phase : bool
        Whether the phases of vectors are checked as well.
    broaden : float or None
        The width of the Lorentzian d/(d² + width²) that takes the place of 1/d, without any check.
    """

    degeneracy: float
    gauge: float
    phase: bool
    broaden: float | None

    def divide(self, numerator: Tensor, left: Tensor, right: Tensor, scale: Tensor, *, sign: int, what: str) -> Tensor:
        """Divide entry (i, j) by ``right[j] + sign * left[i]``; ``scale`` is that of what the numerator comes from."""
        if self.broaden is not None:
            return self._broadened(numerator, left, right, sign, self.broaden)
        passed = gauge_check(
            numerator,
            left,
            right,
            scale,
            what=what,
            sign=sign,
            degeneracy=self.degeneracy,
            gauge=self.gauge,
            diagonal=sign > 0 or (self.phase and what != TANGENT),
        )
        return gap_quotient(passed, left, right, sign, self.degeneracy)

    @staticmethod
    def _broadened(numerator: Tensor, left: Tensor, right: Tensor, sign: int, width: float) -> Tensor:
        if left is right and sign < 0:
            # A value has no distance to itself, and no rounding of it should be multiplied by 1/width².
            numerator = elementwise.where(eye(left.shape[-1], dtype="bool"), 0.0, numerator)
        left, right = layout.expand_dims(left, -1), layout.expand_dims(right, -2)
        gaps = elementwise.add(right, left) if sign > 0 else elementwise.subtract(right, left)
        return elementwise.multiply(
            numerator, elementwise.divide(gaps, elementwise.add(elementwise.square(gaps), width**2))
        )

    def settle(self, ct: Tensor, values: Tensor, *vectors: Tensor, scale: Tensor | None = None, what: str) -> Tensor:
        """Check the cotangent of values, and those of vectors if they were reached; ``scale`` is theirs."""
        if self.broaden is not None:
            return ct
        # Without vectors nothing is divided by gaps, and only values that are equal to rounding have no derivative.
        degeneracy = self.degeneracy if vectors else min(self.degeneracy, rounding_level(values.dtype))
        return settled_values(
            ct,
            values,
            *vectors,
            scale=scale,
            what=what,
            degeneracy=degeneracy,
            gauge=self.gauge,
            zeros=what == SVD,
        )

    def split(self, tangent: Tensor, values: Tensor, sign: int, scale: Tensor) -> Tensor:
        """Check that a tangent, in the basis of the vectors, does not split values that are equal to rounding.

        ``scale`` is that of what it comes from.
        """
        if self.broaden is not None:
            return tangent
        degeneracy = min(self.degeneracy, rounding_level(values.dtype))
        return gauge_check(
            tangent,
            values,
            values,
            scale,
            what=TANGENT,
            sign=sign,
            degeneracy=degeneracy,
            gauge=self.gauge,
            diagonal=sign > 0,
        )


def division(dtype: DType, gauge: str, broaden: float | None, rtol: float | None) -> dict[str, Any]:
    """Return the parameters of a `Division` from the options that users give."""
    if gauge not in ("check", "fixed"):
        raise ArgumentError(f'gauge is "check" or "fixed", got {gauge!r}')
    if broaden is not None and not as_tolerance(broaden, "broaden"):
        raise ArgumentError("broaden is the width of a Lorentzian, in the units of the values: it has to be positive")
    chosen = tolerances_for(dtype, rtol)
    return {
        "degeneracy": chosen.degeneracy,
        "gauge": chosen.gauge,
        "phase": gauge == "check",
        "broaden": None if broaden is None else float(broaden),
    }


def vanishing(like: Tensor) -> Tensor:
    """Return a single zero, to stand for the other value where the divisor is a value itself."""
    return zeros((1,), like.dtype)
