"""Helpers for tests of code that uses unspool, and of operations registered with `unspool.op`."""

from __future__ import annotations

from unspool._autodiff.check import check_grad
from unspool._autodiff.report import Comparison, GradientReport

__all__ = ["Comparison", "GradientReport", "check_grad"]


def __dir__() -> list[str]:
    return sorted(__all__)
