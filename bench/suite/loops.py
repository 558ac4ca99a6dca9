"""Loops that several workloads share, once for each kind of library: a step, and a stop that looks at what it did.

A step takes a state and returns the next one and how far it has moved. A loop ends when that is below a tolerance, or
after the most steps there may be; it returns the last state and the number of steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.suite.workload import Outcome, outcome

Advance = Callable[[Any], tuple[Any, Any]]


def python_loop(advance: Advance, state: Any, tolerance: float, most: int) -> tuple[Any, int]:
    """A plain loop, for libraries whose values can be read while it runs."""
    steps = 0
    while steps < most:
        state, change = advance(state)
        steps += 1
        if float(change) < tolerance:
            break
    return state, steps


def masked_scan(
    advance: Advance, state: Any, tolerance: float, most: int, wrap: Callable[[Any], Any] | None = None
) -> tuple[Any, Any]:
    """JAX: a scan over as many steps as may be needed, of which those after the stop are ignored.

    ``wrap`` is put around the body: ``jax.checkpoint``, to recompute a step in the backward pass.
    """
    import jax
    import jax.numpy as jnp

    def body(carried: Any, _: Any) -> Any:
        state, steps, going = carried
        new, change = advance(state)
        kept = jax.tree.map(lambda after, before: jnp.where(going, after, before), new, state)
        return (kept, steps + going, going & (change >= tolerance)), None

    start = state, jnp.zeros((), int), jnp.ones((), bool)
    (state, steps, _), _ = jax.lax.scan(wrap(body) if wrap else body, start, None, length=most)
    return state, steps


def checkpointed_loop(advance: Advance, state: Any, tolerance: float, most: int) -> tuple[Any, Any]:
    """Equinox: a while loop that stops, with checkpoints for the most steps there may be."""
    import equinox.internal as eqxi
    import jax.numpy as jnp

    def proceed(carried: Any) -> Any:
        return carried[1] >= tolerance

    def body(carried: Any) -> Any:
        state, _, steps = carried
        return *advance(state), steps + 1

    start = state, jnp.asarray(jnp.inf), jnp.zeros((), int)
    state, _, steps = eqxi.while_loop(proceed, body, start, max_steps=most, kind="checkpointed")
    return state, steps


class Compiled:
    """The run of a function of JAX that gives a loss and the steps, with its gradient in the first array.

    ``finish`` makes the outcome of value, gradient and steps.
    """

    def __init__(
        self,
        loss: Callable[..., tuple[Any, Any]],
        *arrays: Any,
        finish: Callable[[Any, Any, int], Outcome] = outcome,
    ) -> None:
        import jax

        self._function = jax.jit(jax.value_and_grad(loss, has_aux=True))
        self._arguments = [jax.device_put(array) for array in arrays]
        self._finish = finish

    def __call__(self) -> Outcome:
        """Run it, and read what it gives."""
        (value, steps), gradient = self._function(*self._arguments)
        return self._finish(value, gradient, int(steps))

    def live(self) -> int | None:
        """Return the bytes that the compiler sets aside for a call: results, and all in between."""
        told = self._function.lower(*self._arguments).compile().memory_analysis()
        return None if told is None else int(told.temp_size_in_bytes + told.output_size_in_bytes)
