"""What an audit came to: numbers by part, and a verdict in words; data that print as text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from unspool._html import printed_as_html

# What a part of an audit says.
GOOD, DOUBTFUL, WRONG = "good", "doubtful", "wrong"

# The rate of convergence is taken over so many of the last steps; changes below this are rounding.
_LAST = 8
_ROUNDING = 1e-14

# Of many truncations and decompositions so many are printed, the worst ones.
_SHOWN = 3


@dataclass(frozen=True)
class Difference:
    """The derivative along a random direction, twice.

    Attributes
    ----------
    gradient : float
        The gradient times the direction.
    difference, error : float
        Central differences of the recipe, extrapolated, and their estimated error.
    scale : float
        What the terms of the product add up to without cancelling: a relative error is one of this.
    """

    gradient: float
    difference: float
    error: float
    scale: float

    @property
    def disagreement(self) -> float:
        """How far both are apart beyond the error of the differences, relative to the scale."""
        excess = max(0.0, abs(self.gradient - self.difference) - self.error)
        return excess / self.scale if self.scale > 0 else excess

    @property
    def resolution(self) -> float:
        """What the differences can tell at best, relative to the scale."""
        return self.error / self.scale if self.scale > 0 else self.error


@dataclass
class LoopAudit:
    """How a loop converged, value and derivative.

    Attributes
    ----------
    kind, source : str
        What made it, and the user's line.
    steps : int
    accelerated : bool
        Whether the steps were extrapolated. Then the derivative is followed along plain steps from the point found.
    value_changes, derivative_changes : list of float
        By how much each step changed the state, and its tangent along a random direction, relative to their size.
    other_difference : float or None
        How far the gradient through all steps and the implicit one are apart, relative to their size.
    note : str
        Why there is no other one.
    """

    kind: str
    source: str
    steps: int
    accelerated: bool
    value_changes: list[float]
    derivative_changes: list[float]
    other_difference: float | None = None
    note: str = ""

    @property
    def value_rate(self) -> float | None:
        """By which factor the changes of the state fell from step to step, at the end."""
        return rate_of(self.value_changes)

    @property
    def derivative_rate(self) -> float | None:
        """By which factor the changes of the tangent fell."""
        return rate_of(self.derivative_changes)

    @property
    def value_left(self) -> float:
        """How far the state is from its limit, by its last change and its rate; infinite if it does not converge."""
        return _left(self.value_changes, self.value_rate)

    @property
    def derivative_left(self) -> float:
        """How far the derivative is from its limit, in the same way."""
        return _left(self.derivative_changes, self.derivative_rate)

    @property
    def settles(self) -> bool:
        """Whether the values of the loop tend to a limit, so that its derivative should."""
        changes = self.value_changes
        return changes[-1] <= _ROUNDING or (changes[-1] <= 1e-3 and changes[-1] < 0.1 * max(changes))

    def note_other(self, gradient: Sequence[Any], other: Sequence[Any] | None, note: str) -> None:
        """Note the gradient by other means, or why there is none."""
        self.note = note
        if other is not None:
            size = max(norm_of(gradient), norm_of(other))
            apart = norm_of([a - b for a, b in zip(gradient, other, strict=True)])
            self.other_difference = apart / size if size > 0 else apart

    def lines(self) -> list[str]:
        """Return what to print."""
        found = [
            f"{self.kind}, {self.steps} steps{', accelerated' if self.accelerated else ''}, at {self.source}",
            f"  value       {_convergence(self.value_changes, self.value_rate, self.value_left)}",
            f"  derivative  {_convergence(self.derivative_changes, self.derivative_rate, self.derivative_left)}",
        ]
        if self.other_difference is not None:
            found.append(f"  the gradient through all steps and the implicit one differ by {self.other_difference:.1e}")
        elif self.note:
            found.append(f"  nothing to compare with: {self.note}")
        return found


@dataclass(frozen=True)
class Truncation:
    """What a cut at a rank left out.

    Attributes
    ----------
    source : str
        The user's line.
    rank, full : int
        How many values were kept, and how many there are.
    value_lost : float
        The norm of what was dropped of the matrix, relative to the matrix.
    derivative_lost : float or None
        The same of the tangent of the matrix along a random direction.
    """

    source: str
    rank: int
    full: int
    value_lost: float
    derivative_lost: float | None


@dataclass(frozen=True)
class Gap:
    """How near a decomposition is to where its derivative does not exist.

    Attributes
    ----------
    op, source : str
        The operation and the user's line.
    gap : float
        The least distance of two values that the derivative divides by, relative to the largest value. For a truncated
        space these are the last value that is kept and the first that is dropped.
    tolerance : float
        At which distance values count as equal.
    """

    op: str
    source: str
    gap: float
    tolerance: float

    @property
    def margin(self) -> float:
        """The gap in units of the tolerance; below 1 values are equal."""
        return self.gap / self.tolerance if self.tolerance > 0 else float("inf")


@dataclass(frozen=True)
class Finding:
    """One line of a verdict: ``"good"``, ``"doubtful"`` or ``"wrong"``, the error that it stands for, and the text."""

    status: str
    error: float
    text: str


@dataclass
class Audit:
    """Whether a gradient is to be trusted; ``print`` shows it in words and numbers.

    Attributes
    ----------
    ok : bool
        Whether nothing speaks against it, for the tolerance that was asked for.
    verdict : str
        In one sentence.
    error : float
        The relative error of the gradient that the worst part stands for.
    loss, norm : float
        The loss, and the Euclidean norm of the gradient.
    tol : float
        The tolerance.
    findings : list of Finding
        What each part says.
    unfollowed : str
        The line of what looked like a loop and does not tend to a limit, if there is one.
    differences : list of Difference
    loops : list of LoopAudit
    truncations : list of Truncation
    gaps : list of Gap
    """

    loss: float
    norm: float
    tol: float
    differences: list[Difference] = field(default_factory=list)
    loops: list[LoopAudit] = field(default_factory=list)
    truncations: list[Truncation] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    unfollowed: str = ""

    @property
    def ok(self) -> bool:
        """Whether nothing speaks against the gradient."""
        return all(finding.status == GOOD for finding in self.findings)

    @property
    def error(self) -> float:
        """The relative error that the worst finding stands for."""
        return max((finding.error for finding in self.findings), default=0.0)

    @property
    def verdict(self) -> str:
        """The verdict in one sentence."""
        statuses = {finding.status for finding in self.findings}
        if WRONG in statuses:
            return f"Do not trust this gradient: {_first(self.findings, WRONG)}."
        if DOUBTFUL in statuses:
            return f"Be careful with this gradient: {_first(self.findings, DOUBTFUL)}."
        return f"This gradient can be trusted to about {max(self.error, 1e-15):.0e} of its size."

    def asdict(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        return {**asdict(self), "ok": self.ok, "error": self.error, "verdict": self.verdict}

    def to_json(self) -> str:
        """Return all of it as JSON."""
        return json.dumps(_finite(self.asdict()), indent=2)

    _repr_html_ = printed_as_html

    def __str__(self) -> str:
        lines = [self.verdict, f"loss {self.loss:.9g}, norm of the gradient {self.norm:.6g}"]
        lines += [f"- {finding.status}: {finding.text}" for finding in self.findings]
        if self.differences:
            lines += ["", "along random directions   gradient        differences     estimated error"]
            lines += [
                f"                          {d.gradient:<15.9g} {d.difference:<15.9g} {d.error:.1e}"
                for d in self.differences
            ]
        for loop in self.loops:
            lines += ["", *loop.lines()]
        if self.truncations:
            worst = sorted(self.truncations, key=lambda t: -(t.derivative_lost or t.value_lost))
            lines += [
                "",
                f"{_counted(len(self.truncations), 'truncation')}, those that lose most of the derivative first",
            ]
            lines += [
                f"  rank {t.rank} of {t.full}: value {t.value_lost:.1e}, derivative "
                f"{'–' if t.derivative_lost is None else format(t.derivative_lost, '.1e')}, at {t.source}"
                for t in worst[:_SHOWN]
            ]
        if self.gaps:
            nearest = sorted(self.gaps, key=lambda g: g.margin)
            lines += ["", f"{_counted(len(self.gaps), 'decomposition')}, those with the least gauge margin first"]
            lines += [
                f"  {g.op}: gap {g.gap:.1e}, {g.margin:.1e} times what counts as equal, at {g.source}"
                for g in nearest[:_SHOWN]
            ]
        return "\n".join(lines)


def rate_of(changes: Sequence[float]) -> float | None:
    """Return by which factor the last changes fell from step to step; ``None`` if there are too few to tell.

    Changes that are down to rounding are left out: they do not fall any more.

    Examples
    --------
    >>> rate_of([1.0, 0.5, 0.25, 0.125])
    0.5
    """
    last = [change for change in changes if change > _ROUNDING and np.isfinite(change)][-_LAST:]
    if len(last) < 3:
        return None
    return float((last[-1] / last[0]) ** (1.0 / (len(last) - 1)))


def norm_of(arrays: Sequence[Any]) -> float:
    """Return the Euclidean norm over some arrays."""
    return float(np.sqrt(sum(float(np.sum(np.abs(array) ** 2)) for array in arrays)))


def _left(changes: Sequence[float], rate: float | None) -> float:
    last = changes[-1]
    if last <= _ROUNDING or rate is None:
        return last
    return last * rate / (1.0 - rate) if rate < 1.0 else float("inf")


def _convergence(changes: Sequence[float], rate: float | None, left: float) -> str:
    """Return in words how far some changes came."""
    last = f"last change {changes[-1]:.1e}"
    if changes[-1] <= _ROUNDING:
        return f"{last}, down to rounding"
    if rate is not None and rate < 1.0:
        last += f", falling by {rate:.3g} a step"
    return f"{last}, {f'about {left:.1e} from its limit' if np.isfinite(left) else 'not converging'}"


def _first(findings: Sequence[Finding], status: str) -> str:
    worst = max((f for f in findings if f.status == status), key=lambda f: f.error)
    return worst.text


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _finite(data: Any) -> Any:
    """Return plain data without infinities and NaN, which JSON does not have."""
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_finite(value) for value in data]
    return data if not isinstance(data, float) or np.isfinite(data) else None
