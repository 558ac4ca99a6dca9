"""``us.iterate(..., spool=)``: a loop of the engine's that is written as it runs.

It runs a stretch of steps at a time, and keeps no record of them. Between stretches the state so far is, as graph, the
loop with as many steps as were made; that is what is written, with its value. A run that goes on takes the value and
makes the next stretch. At the end there is the loop with all steps, which is differentiated like any other: what its
derivative looks at is computed then.
"""

from __future__ import annotations

import hashlib
import os
import time
from typing import Any

from unspool._autodiff.loops.checkpointed import Checkpointed
from unspool._autodiff.loops.checkpointed_tape import Outputs
from unspool._autodiff.loops.iterate import Adjoint, Run, Unrolled, loop_of
from unspool._autodiff.loops.record import joined
from unspool._autodiff.loops.run import Runner, can_be_evaluated
from unspool._autodiff.loops.trace import Trace
from unspool._engine.default import default_engine
from unspool._engine.quiet import run_quietly
from unspool._saving.encoder import Encoder
from unspool._saving.run import SpooledRun, spool
from unspool._saving.vocabulary import more_words, words_by_type
from unspool._tensor import Tensor
from unspool.errors import ArgumentError, SaveFileError

# How long a stretch of steps takes, in seconds, before somebody looks at the clock.
_STRETCH = 0.25

# Nothing goes back through single states of such a run, so few are kept.
_STATES = 3


def iterate_spooled(traced: Trace, strategy: Adjoint, most: int | None, given: Any) -> tuple[int, list[Tensor]]:
    """Run an iteration in a run that is written; return how many steps were made, the final state and the outputs."""
    if isinstance(given, str | os.PathLike):
        given = spool(given, states=_STATES)
    if not isinstance(given, SpooledRun):
        raise ArgumentError(f"spool is the folder of a run, or us.spool(folder, ...), got {given!r}")
    if not can_be_evaluated([*traced.constants, *traced.initial]):
        raise ArgumentError("us.iterate with spool runs at once, but its inputs depend on a placeholder without value")
    with given as run:
        return _Iteration(traced, strategy, most, run).go()


class _Iteration:
    """An iteration that is written as it runs."""

    def __init__(self, traced: Trace, strategy: Adjoint, most: int | None, run: SpooledRun) -> None:
        self._traced, self._strategy, self._most, self._run = traced, strategy, most, run
        # What a strategy that keeps nothing of the steps places is known at the end only.
        self._places = strategy if isinstance(strategy, Unrolled | Checkpointed) else Unrolled()

    def go(self) -> tuple[int, list[Tensor]]:
        """Make the steps that are left."""
        traced, run = self._traced, self._run
        inputs = (traced.constants, traced.initial)
        state = run.start(self._noted(0, list(traced.initial), [], False), inputs=(inputs, self._digest()))
        if run.inputs[1][1] != self._digest():
            raise ArgumentError(f"the run in {run.path} is of another step, or another condition: it is another loop")
        done, carry, rows, stopped = state
        run.total = self._most
        if not stopped and done != self._most:
            done, carry, rows = run_quietly(self._advance, done, carry, rows)
        return done, self._attached(done, [x.value for x in carry], [x.value for x in rows])

    def _digest(self) -> str:
        """Return what has to be the same for a run to be gone on with, beside the values of its inputs."""
        step = self._traced.step
        digest = hashlib.sha256(repr(step[1:4]).encode(), usedforsecurity=False)
        encoder = Encoder(words_by_type(), digest.update, more=more_words)
        for fragment in (step.fragment, step.condition):
            if fragment is not None:  # without its lines, which say nothing of what it does
                body = [(i.op.name, i.operands, dict(i.params)) for i in fragment.body]
                digest.update(encoder.encode((fragment.dtypes, body, fragment.outputs)))
        return digest.hexdigest()

    def _advance(self, done: int, carry: Any, rows: Any) -> tuple[int, list[Tensor], list[Tensor]]:
        step, most, run = self._traced.step, self._most, self._run
        inputs = [*self._traced.constants, *self._traced.initial]
        loop = loop_of(step, most or 1, inputs, keep=False)
        watched = None
        if step.condition is not None:
            watched = joined(loop.bodies[0].fragment, step.condition, tuple([x.shape for x in inputs]))
        engine = default_engine()
        runner = Runner(loop, engine.evaluate(inputs), watched)
        outputs = Outputs(step.outputs)
        if rows:
            outputs.add([x.value for x in rows])
        state, count, stopped = engine.evaluate(carry), 16, False
        while not stopped and done != most:
            count = count if most is None else min(count, most - done)
            began = time.perf_counter()
            runner.restart(state, done, done + count)
            stopped = bool(runner.advance(count))
            done += runner.done
            state = list(runner.state)
            outputs.add([stack[: runner.done] for stack in runner.stacked()])
            run.step = done - 1
            run.checkpoint(self._noted(done, state, outputs.so_far(), stopped))
            if time.perf_counter() - began < _STRETCH:
                count *= 2
        _, final, shown, _ = run.state
        return done, final, shown

    def _noted(self, done: int, carry: list[Any], rows: list[Any], stopped: bool) -> tuple[Any, ...]:
        """Return the state after some steps as it is written: the loop with so many steps, and its values."""
        if not done:
            return 0, carry, rows, stopped
        found = self._places.place(self._traced.step, self._traced.constants, self._traced.initial, done)
        for tensor, value in zip(found, [*carry, *rows], strict=True):
            if tensor.value is None:
                tensor.value = value.copy()
        return done, found[: len(carry)], found[len(carry) :], stopped

    def _attached(self, done: int, carry: list[Any], rows: list[Any]) -> list[Tensor]:
        traced, strategy = self._traced, self._strategy
        if not done:
            raise SaveFileError(f"the run in {self._run.path} has made no step")
        if self._places is strategy:
            found = strategy.place(traced.step, traced.constants, traced.initial, done)
            for tensor, value in zip(found, [*carry, *rows], strict=True):
                if tensor.value is None:
                    tensor.value = value
            return found
        run = Run(done, carry, carry, rows, None, [])
        return strategy.attach(traced.step, traced.constants, traced.initial, run)
