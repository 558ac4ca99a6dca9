"""Two loops, written once for each library and for each form that a library offers.

``growth`` is y ← y + 1e-6·y·y; its gradient is that of sum(y) with respect to the start. ``power`` is power iteration,
x ← A x / ‖A x‖; its gradient is that of the Rayleigh quotient x·A x with respect to A, through all the steps. Both have
a stopping test that looks at a value in every step and never holds: the first number of y, and the norm. The exception
is ``scan`` of JAX, which cannot stop early. Its norms come out afterwards.

Each form is written the way users of the library write it. Making one imports the library, so nothing heavy is imported
up here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

RATE = 1e-6

# The loops of a form by name. ``growth(start, steps)`` and ``power(matrix, start, steps)`` take arrays and return the
# last y or the Rayleigh quotient, and the gradient, as arrays.
Loops = dict[str, Callable[..., tuple[Any, Any]]]


class MissingError(Exception):
    """The library is installed and does not have this form."""


# --- unspool ---------------------------------------------------------------------------------------------------------


def plain() -> Loops:
    """A plain loop: the recipe grows, and looking at a value computes what is new in it."""
    return _python_loops(lambda step: step)


def fragment() -> Loops:
    """The same loop over a step that is traced once."""
    import unspool as us

    decorator = getattr(us, "fragment", None)
    if decorator is None:
        raise MissingError("unspool has no `fragment`")
    return _python_loops(decorator)


def _python_loops(decorate: Callable[[Any], Any]) -> Loops:
    import unspool as us

    @decorate
    def grow(y: Any) -> Any:
        return y + RATE * y * y

    @decorate
    def turn(A: Any, x: Any) -> Any:
        y = A @ x
        norm = us.linalg.norm(y)
        return y / norm, norm

    def growth(start: Any, steps: int) -> tuple[Any, Any]:
        x = us.tensor(start)
        y = x
        for _ in range(steps):
            y = grow(y)
            if y.eval()[0] <= 0.0:
                break
        return us.eval(y, us.sum(y).grad(x))  # type: ignore[no-any-return]

    def power(matrix: Any, start: Any, steps: int) -> tuple[Any, Any]:
        A, x = us.tensor(matrix), us.tensor(start)
        for _ in range(steps):
            x, norm = turn(A, x)
            if float(norm) <= 0.0:
                break
        quotient = x @ A @ x
        return us.eval(quotient, quotient.grad(A))  # type: ignore[no-any-return]

    return {"growth": growth, "power": power}


def iterate() -> Loops:
    """The engine runs the steps, and tests the condition between them."""
    import unspool as us

    iterating = getattr(us, "iterate", None)
    if iterating is None:
        raise MissingError("unspool has no `iterate`")

    def grow(y: Any) -> Any:
        return y + RATE * y * y

    def turn(state: Any, A: Any) -> Any:
        x, _ = state
        y = A @ x
        norm = us.linalg.norm(y)
        return y / norm, norm

    def growth(start: Any, steps: int) -> tuple[Any, Any]:
        x = us.tensor(start)
        y, _ = iterating(grow, x, until=lambda y: y[0] <= 0.0, max_steps=steps)
        return us.eval(y, us.sum(y).grad(x))  # type: ignore[no-any-return]

    def power(matrix: Any, start: Any, steps: int) -> tuple[Any, Any]:
        A = us.tensor(matrix)
        state = us.tensor(start), us.tensor(1.0)
        (x, _), _ = iterating(lambda state: turn(state, A), state, until=lambda state: state[1] <= 0.0, max_steps=steps)
        quotient = x @ A @ x
        return us.eval(quotient, quotient.grad(A))  # type: ignore[no-any-return]

    return {"growth": growth, "power": power}


# --- by hand, in NumPy -----------------------------------------------------------------------------------------------


def hand() -> Loops:
    """Forward and reverse loop as an engineer writes them: states stored, everything else in place.

    The norm of A x needs no derivative of its own: x = y/‖y‖ has the adjoint ȳ = (x̄ − x (x·x̄)) / ‖y‖.
    """
    import numpy as np

    def growth(start: Any, steps: int) -> tuple[Any, Any]:
        y, states = start, []
        for _ in range(steps):
            states.append(y)
            y = y + RATE * y * y
            if y[0] <= 0.0:
                break
        y_bar = np.ones_like(y)
        for state in reversed(states):
            y_bar *= 1.0 + (2.0 * RATE) * state
        return y, y_bar

    def power(matrix: Any, start: Any, steps: int) -> tuple[Any, Any]:
        states, norms = _power_states(matrix, start, steps)
        x = states[-1]
        image = matrix @ x
        A_bar = np.outer(x, x)
        x_bar = image + x @ matrix
        for k in reversed(range(len(norms))):
            x_bar -= np.dot(states[k + 1], x_bar) * states[k + 1]
            x_bar /= norms[k]
            A_bar += np.outer(x_bar, states[k])
            x_bar = np.dot(x_bar, matrix)
        return x @ image, A_bar

    return {"growth": growth, "power": power}


def gathered() -> Loops:
    """Power iteration by hand, with the outer products of all steps gathered into one matrix product."""
    import numpy as np

    def power(matrix: Any, start: Any, steps: int) -> tuple[Any, Any]:
        states, norms = _power_states(matrix, start, steps)
        x = states[-1]
        image = matrix @ x
        x_bar = image + x @ matrix
        y_bars = np.empty_like(states)
        y_bars[-1] = x
        for k in reversed(range(len(norms))):
            y_bar = np.multiply(states[k + 1], -np.dot(states[k + 1], x_bar), out=y_bars[k])
            y_bar += x_bar
            y_bar /= norms[k]
            x_bar = np.dot(y_bar, matrix)
        return x @ image, y_bars.T @ states

    return {"power": power}


def _power_states(matrix: Any, start: Any, steps: int) -> tuple[Any, list[float]]:
    """Return the vectors of all steps, the start first, and the norms that were divided by."""
    import math

    import numpy as np

    states = np.empty((steps + 1, len(start)))
    states[0] = start
    norms = []
    for k in range(steps):
        y = np.dot(matrix, states[k], out=states[k + 1])
        norm = math.sqrt(np.dot(y, y))
        y /= norm
        norms.append(norm)
        if norm <= 0.0:
            break
    return states[: len(norms) + 1], norms


# --- the other libraries ---------------------------------------------------------------------------------------------


def torch_eager() -> Loops:
    """PyTorch eager."""
    import torch

    torch.set_num_threads(1)

    def growth(start: Any, steps: int) -> tuple[Any, Any]:
        x = torch.tensor(start, requires_grad=True)
        y = x
        for _ in range(steps):
            y = y + RATE * y * y
            if y[0].item() <= 0.0:
                break
        (gradient,) = torch.autograd.grad(y.sum(), x)
        return y.detach().numpy(), gradient.numpy()

    def power(matrix: Any, start: Any, steps: int) -> tuple[Any, Any]:
        A, x = torch.tensor(matrix, requires_grad=True), torch.tensor(start)
        for _ in range(steps):
            y = A @ x
            norm = torch.linalg.vector_norm(y)
            x = y / norm
            if norm.item() <= 0.0:
                break
        quotient = x @ A @ x
        (gradient,) = torch.autograd.grad(quotient, A)
        return quotient.detach().numpy(), gradient.numpy()

    return {"growth": growth, "power": power}


def autograd_boxes() -> Loops:
    """HIPS autograd: values are boxed inside ``grad``, and the box shows the array."""
    import autograd.numpy as anp
    from autograd import value_and_grad

    def growth(start: Any, steps: int) -> tuple[Any, Any]:
        last = None

        def total(x: Any) -> Any:
            nonlocal last
            y = x
            for _ in range(steps):
                y = y + RATE * y * y
                if y._value[0] <= 0.0:
                    break
            last = y._value
            return anp.sum(y)

        _, gradient = value_and_grad(total)(start)
        return last, gradient

    def power(matrix: Any, start: Any, steps: int) -> tuple[Any, Any]:
        def quotient(A: Any) -> Any:
            x = start
            for _ in range(steps):
                y = anp.dot(A, x)
                norm = anp.linalg.norm(y)
                x = y / norm
                if norm._value <= 0.0:
                    break
            return anp.dot(x, anp.dot(A, x))

        return value_and_grad(quotient)(matrix)  # type: ignore[no-any-return]

    return {"growth": growth, "power": power}


def jax_eager() -> Loops:
    """JAX without ``jit``, which a Python loop that looks at values cannot have."""
    import jax
    import numpy as np

    jax.config.update("jax_enable_x64", True)

    def growth(start: Any, steps: int) -> tuple[Any, Any]:
        def total(x: Any) -> Any:
            y = x
            for _ in range(steps):
                y = y + RATE * y * y
                if float(jax.lax.stop_gradient(y)[0]) <= 0.0:
                    break
            return y.sum(), y

        gradient, y = jax.grad(total, has_aux=True)(jax.numpy.asarray(start))
        return np.asarray(y), np.asarray(gradient)

    return {"growth": growth}


def jax_scan() -> Loops:
    """JAX with ``lax.scan``, compiled whole: a fixed number of steps, and what was looked at comes out afterwards."""
    import jax
    import numpy as np
    from jax import lax

    jax.config.update("jax_enable_x64", True)

    @partial(jax.jit, static_argnames="steps")
    def growth(start: Any, steps: int) -> Any:
        def grow(y: Any, _: Any) -> Any:
            y = y + RATE * y * y
            return y, y[0]

        def total(x: Any) -> Any:
            y, firsts = lax.scan(grow, x, None, length=steps)
            return y.sum(), (y, firsts)

        gradient, (y, firsts) = jax.grad(total, has_aux=True)(start)
        return y, gradient, firsts

    @partial(jax.jit, static_argnames="steps")
    def power(matrix: Any, start: Any, steps: int) -> Any:
        def quotient(A: Any) -> Any:
            def turn(x: Any, _: Any) -> Any:
                y = A @ x
                norm = jax.numpy.linalg.norm(y)
                return y / norm, norm

            x, norms = lax.scan(turn, start, None, length=steps)
            return x @ A @ x, norms

        (value, norms), gradient = jax.value_and_grad(quotient, has_aux=True)(matrix)
        return value, gradient, norms

    def arrays(compiled: Any) -> Callable[..., tuple[Any, Any]]:
        def run(*inputs: Any, **named: Any) -> tuple[Any, Any]:
            value, gradient, _ = map(np.asarray, compiled(*inputs, **named))
            return value, gradient

        return run

    return {"growth": arrays(growth), "power": arrays(power)}
