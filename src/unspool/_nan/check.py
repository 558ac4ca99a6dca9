"""The observer of `unspool.debug.check_nan`: looks at every kernel call, also in the steps of loops."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from unspool._autodiff.loops.drive import nodes_of
from unspool._autodiff.sweeps.chain import CHAIN
from unspool._engine.observe import Stop
from unspool._engine.step_number import step_of
from unspool._graph import Node
from unspool._nan.flow import run_ops
from unspool._nan.repetition import repetition_of_chain
from unspool._nan.report import Bad, NaNReport
from unspool._nan.stepping import chain_step
from unspool.errors import NaNError

if TYPE_CHECKING:
    from unspool._engine.plan import Plan


class NaNCheck:
    """Raises `NaNError` at the first kernel call that makes a NaN from inputs that have none."""

    def __init__(self, bad: Bad) -> None:
        self._bad = bad
        self.watchers = (_Steps(bad),)

    def after(self, node: Node, arguments: Any, value: Any, call: Node | None = None) -> None:
        """Look at one kernel call."""
        if node.op is CHAIN:
            self._look_at_chain(node, arguments)
        if self._bad.is_in(value) and not self._bad.among(arguments):
            step = step_of(call or node, node)
            report = self._bad.report(node, arguments, value)
            raise error_for(report if step is None else report.inside(step))

    def _look_at_chain(self, node: Node, arguments: Sequence[Any]) -> None:
        """Look at the steps of a chain, which has run."""
        steps = repetition_of_chain(node.attributes["chain"], arguments)
        state = steps.start()
        for k in steps.order:
            plan = steps.body(k).plan
            outputs = _look(plan, steps.values(k, state), self._bad, partial(chain_step, node, k))
            steps.assign(k, state, outputs)


class _Steps:
    """Looks at every op of every step that is about to be made."""

    def __init__(self, bad: Bad) -> None:
        self._bad = bad
        self._around: list[int] = []

    def run_step(self, plan: Plan, values: Sequence[Any], k: int) -> Sequence[Any]:
        """Return the outputs of a step, or stop."""
        self._around.append(k)
        try:
            return _look(plan, values, self._bad, lambda inner: tuple(self._around))
        except NaNError as error:
            raise Stop(error) from None
        finally:
            self._around.pop()


def _look(plan: Plan, values: Sequence[Any], bad: Bad, number: Any) -> list[Any]:
    """Return the outputs of a plan, looking at each of its ops; ``number`` tells the steps that an op is in."""

    def after(position: int, arguments: list[Any], value: Any) -> None:
        if arguments and bad.is_in(value) and not bad.among(arguments):
            node = nodes_of(plan)[position]
            raise error_for(bad.report(node, arguments, value).inside(*number(node)))

    return run_ops(plan, values, after)


def error_for(report: NaNReport) -> NaNError:
    """Return the error with a report."""
    error = NaNError(str(report))
    error.report = report
    return error
