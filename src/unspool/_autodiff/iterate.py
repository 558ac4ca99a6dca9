"""``us.iterate``: a loop whose step is traced once and run by the engine, and strategies to differentiate it.

The one idea: how a loop is run and how it is differentiated are two matters. `iterate` traces the step, runs it until its
condition holds, and hands what it found to an `Adjoint`, which returns tensors that have these values and know their
derivatives. `Unrolled` is the derivative of the program as it ran, through all steps.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unspool._autodiff import trees
from unspool._autodiff.identity import zeros
from unspool._autodiff.loop_run import can_be_evaluated, run_step_by_step
from unspool._autodiff.loop_trace import Trace, TracedStep, trace
from unspool._graph import source_of
from unspool.errors import ArgumentError, UnboundPlaceholderError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

__all__ = ["Adjoint", "Run", "TracedStep", "Unrolled", "iterate"]


@dataclass(frozen=True, slots=True)
class Run:
    """What a run of an iteration left behind. All arrays are read-only to whoever gets them.

    Attributes
    ----------
    steps : int
        How many steps ran.
    final : list of ndarray
        The state after the last step.
    previous : list of ndarray
        The state before the last step.
    outputs : list of ndarray
        The outputs of the steps, stacked.
    history : list of ndarray or None
        The states before each step, stacked, one array per leaf, if the adjoint keeps them.
    kept : list of ndarray
        What else the adjoint keeps, stacked.
    """

    steps: int
    final: list[Any]
    previous: list[Any]
    outputs: list[Any]
    history: list[Any] | None = None
    kept: Sequence[Any] = ()


class Adjoint:
    """How an iteration is differentiated: base class of the strategies.

    Attributes
    ----------
    keeps_history : bool
        Whether a run has to keep the states before each step.
    """

    keeps_history: bool = False

    def attach(self, step: TracedStep, constants: list[Tensor], initial: list[Tensor], run: Run) -> list[Tensor]:
        """Return the final state, then the stacked outputs, as tensors that have their values and know derivatives."""
        raise NotImplementedError

    def place(self, step: TracedStep, constants: list[Tensor], initial: list[Tensor], steps: int) -> list[Tensor]:
        """Return the same without a run, for inputs that have no values yet."""
        raise UnboundPlaceholderError(
            f"us.iterate with {type(self).__name__}() runs at once, but its inputs depend on a placeholder that has no "
            "value; only us.Unrolled() with max_steps and without until can be placed before values are known"
        )
