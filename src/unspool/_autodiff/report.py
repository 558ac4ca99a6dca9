"""What `unspool.check_grad` reports: one comparison per order and mode, shown as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unspool._html import printed_as_html


@dataclass(frozen=True)
class Comparison:
    """How well one derivative of one order agreed with its reference; ``entry`` is where it agreed least."""

    order: int
    mode: str
    max_abs_error: float
    max_rel_error: float
    entry: str
    expected: float
    got: float
    allowed: float
    passed: bool

    @classmethod
    def of(cls, order: int, mode: str, names: Sequence[str], expected: Any, got: Any, allowed: Any) -> Comparison:
        """Compare two vectors entry by entry, with the difference that each entry is allowed."""
        if not expected.size:
            return cls(order, mode, 0.0, 0.0, "", 0.0, 0.0, 0.0, True)
        with np.errstate(all="ignore"):
            errors = np.abs(expected - got)
            # NaN agrees with nothing; it is the worst entry there can be.
            excess = np.where(np.isnan(errors), np.inf, errors / allowed)
            relative = errors / np.abs(expected)
        worst = int(np.argmax(excess))
        return cls(
            order,
            mode,
            float(np.max(errors)),
            float(np.max(np.where(expected == got, 0.0, relative))),
            names[worst],
            float(expected[worst]),
            float(got[worst]),
            float(allowed[worst]),
            bool(excess[worst] <= 1),
        )

    _repr_html_ = printed_as_html

    def __str__(self) -> str:
        if self.passed:
            return f"order {self.order}, {self.mode}: right to {self.max_abs_error:.1e}"
        if np.isnan(self.expected):
            return (
                f"order {self.order}, {self.mode}: differences do not settle at {self.entry} (the derivative came out "
                f"as {self.got:.10g}); is there a kink, a pole or noise near this point?"
            )
        return (
            f"order {self.order}, {self.mode}: the derivative at {self.entry} is {self.got:.10g}, "
            f"expected {self.expected:.10g} (a difference of {self.allowed:.1e} is allowed)"
        )


@dataclass(frozen=True)
class GradientReport:
    """All comparisons of one `unspool.check_grad`. True if every one passed; prints as a table."""

    comparisons: list[Comparison]

    @property
    def ok(self) -> bool:
        """Whether every comparison passed."""
        return all(c.passed for c in self.comparisons)

    @property
    def max_abs_error(self) -> float:
        """The largest absolute error of all comparisons."""
        return max((c.max_abs_error for c in self.comparisons), default=0.0)

    def __bool__(self) -> bool:
        return self.ok

    _repr_html_ = printed_as_html

    def __str__(self) -> str:
        lines = [f"{'order':>5}  {'derivative':<18} {'abs error':>9}  {'rel error':>9}  worst entry"]
        for c in self.comparisons:
            mark = "" if c.passed else "  <-- wrong"
            errors = f"{c.max_abs_error:>9.1e}  {c.max_rel_error:>9.1e}"
            lines.append(f"{c.order:>5}  {c.mode:<18} {errors}  {c.entry or '-'}{mark}")
        return "\n".join(lines)
