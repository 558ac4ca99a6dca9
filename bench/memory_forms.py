"""The loop of ``memory.py``, written once for each library; the step is the very same text for all of them.

Each form is written the way users of the library write it. Each tests the energy in every step and would stop if it
were not positive, which never happens. Making a form imports its library, so nothing heavy is imported up here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

UNLIMITED = 1.0  # as a budget: all the memory that there is


# --- the loop --------------------------------------------------------------------------------------------------------


def step(p: Any, A: Any, x: Any, rate: float) -> tuple[Any, Any]:
    """Move a state by ten ops of a library; return it with its energy before it was scaled."""
    response = p.tanh(A @ x)
    y = x + rate * (response - x * response)
    energy = p.mean(y * y)
    return y / p.sqrt(energy), energy


def loss_of(p: Any, x: Any) -> Any:
    """How far the entries are from being alike in size: the mean of x⁴."""
    square = x * x
    return p.mean(square * square)


def rate_of(steps: int) -> float:
    """So small that all steps together take as long for every number of them: gradients neither vanish nor explode."""
    return 2.0 / steps


def inputs(size: int) -> dict[str, Any]:
    """Return the arrays that the loop takes, by name."""
    import numpy as np

    random = np.random.default_rng(size)
    return {"matrix": random.normal(size=(size, size)) / size**0.5, "start": random.normal(size=(size, size))}


# --- the loop in each library ----------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What a run found, when it had the loss where that can be told, and what it says of its memory."""

    value: Any
    by_matrix: Any
    by_start: Any
    at_loss: float | None = None
    report: dict[str, Any] | None = None
    timeline: Sequence[tuple[float, float]] = ()


# A form prepares a run on arrays, for a number of steps and a budget; what it prepares is not timed with the run.
Prepare = Callable[..., Callable[[], Outcome]]


def unspool_loop() -> Prepare:
    """A plain loop under a budget."""
    import unspool as us

    def run(matrix: Any, start: Any, steps: int, budget: float) -> Outcome:
        A, first = us.tensor(matrix), us.tensor(start)
        x, rate = first, rate_of(steps)
        with us.memory(budget) as memory:
            for _ in range(steps):
                x, energy = step(us, A, x, rate)
                if float(energy) <= 0.0:
                    break
            loss = loss_of(us, x)
            value, at_loss = float(loss), time.perf_counter()
            by_matrix, by_start = us.eval(*loss.grad([A, first]))
        return Outcome(value, by_matrix, by_start, at_loss, memory.report().asdict(), memory.timeline())

    return lambda **request: partial(run, **request)


def torch_loop(checkpointed: bool) -> Prepare:
    """A plain loop, or one over checkpointed blocks of √K steps."""
    import torch
    from torch.utils.checkpoint import checkpoint

    torch.set_num_threads(1)

    def advance(A: Any, x: Any, rate: float, steps: int) -> Any:
        for _ in range(steps):
            x, energy = step(torch, A, x, rate)
            if energy.item() <= 0.0:
                break
        return x

    def run(matrix: Any, start: Any, steps: int, budget: float) -> Outcome:
        A, first = (torch.from_numpy(array).requires_grad_() for array in (matrix, start))
        x, rate = first, rate_of(steps)
        if checkpointed:
            block = round(steps**0.5)
            for begin in range(0, steps, block):
                x = checkpoint(advance, A, x, rate, min(block, steps - begin), use_reentrant=False)
        else:
            x = advance(A, x, rate, steps)
        loss = loss_of(torch, x)
        value, at_loss = loss.item(), time.perf_counter()
        by_matrix, by_start = torch.autograd.grad(loss, [A, first])
        return Outcome(value, by_matrix.numpy(), by_start.numpy(), at_loss)

    return lambda **request: partial(run, **request)


def equinox_loop() -> Prepare:
    """A loop that the compiler knows, with checkpoints for a number of steps known in advance."""
    import equinox.internal as eqxi
    import jax
    import numpy as np

    jax.config.update("jax_enable_x64", True)
    p = jax.numpy

    def loss(A: Any, first: Any, steps: int) -> Any:
        def proceed(state: Any) -> Any:
            _, energy = state
            return energy > 0.0

        def body(state: Any) -> Any:
            return step(p, A, state[0], rate_of(steps))

        x, _ = eqxi.while_loop(proceed, body, (first, p.mean(first * first)), max_steps=steps, kind="checkpointed")
        return loss_of(p, x)

    def prepare(matrix: Any, start: Any, steps: int, budget: float) -> Callable[[], Outcome]:
        arguments = jax.device_put(matrix), jax.device_put(start)
        function = jax.jit(jax.value_and_grad(partial(loss, steps=steps), argnums=(0, 1)))
        compiled = function.lower(*arguments).compile()

        def run() -> Outcome:
            value, gradients = jax.block_until_ready(compiled(*arguments))
            by_matrix, by_start = map(np.asarray, gradients)
            return Outcome(float(value), by_matrix, by_start)

        return run

    return prepare


@dataclass(frozen=True)
class Form:
    """A way to run the loop, and the package it needs."""

    package: str
    make: Callable[[], Prepare]


FORMS = {
    "unspool": Form("unspool", unspool_loop),
    "torch store-all": Form("torch", partial(torch_loop, checkpointed=False)),
    "torch √K blocks": Form("torch", partial(torch_loop, checkpointed=True)),
    "equinox": Form("equinox", equinox_loop),
}
