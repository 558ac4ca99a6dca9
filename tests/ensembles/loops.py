"""Functions of one member, which processes can import."""

from __future__ import annotations

from typing import Any

import numpy as np

import unspool as us

LIMIT = 0.92


def fixed_point(p: Any) -> us.Tensor:
    """Return the x with x = cos(c x), by a loop that stops by a value."""
    x, _ = us.iterate(lambda x: us.cos(p["c"] * x), 1.0, until=lambda old, new: abs(new - old) < 1e-13, max_steps=500)
    return x


def looked_at(p: Any) -> tuple[us.Tensor, dict[str, Any]]:
    """Return the same by a loop that looks at its values, and how many steps it made; refuse large c."""
    if p["c"].item() > LIMIT:
        raise ValueError(f"c is {p['c'].item()}")
    x, steps = us.tensor(1.0), 0
    while True:
        new = us.cos(p["c"] * x)
        steps += 1
        if abs(new - x).item() < 1e-13:
            return new, {"steps": steps}
        x = new


def reference(c: Any) -> tuple[Any, Any]:
    """Return values and slopes, by Newton's method and the implicit function theorem."""
    x = np.ones_like(c)
    for _ in range(50):
        x = x - (x - np.cos(c * x)) / (1 + c * np.sin(c * x))
    return x, -x * np.sin(c * x) / (1 + c * np.sin(c * x))


def couplings(count: int) -> Any:
    """Return parameters of which, for 20 or more, some are refused by `looked_at`."""
    return {"c": np.linspace(0.1, 1.0, count)}


def power(p: Any) -> us.Tensor:
    """Return the norm of what a matrix makes of a vector in forty steps."""
    a, x = p["a"], us.ones(8)
    for _ in range(40):
        x = us.tanh(a @ x) + 0.1
    return us.linalg.norm(x)


def drawn(p: Any) -> us.Tensor:
    """Return the sum of squares of random numbers, scaled."""
    return p["s"] * us.sum(us.random.normal(p["key"], (5,)) ** 2)
