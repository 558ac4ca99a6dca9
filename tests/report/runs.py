"""Small runs that reports are made of: their numbers are known in closed form, or noted while they run."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import unspool as us


class Run(NamedTuple):
    loss: us.Tensor
    variable: us.Tensor
    read: list[float]


def scaling(steps: int, size: int = 3, *, read: bool = True) -> Run:
    """Y ← 0.9 y, and the sum at the end: the cotangent after step k is 0.9^(steps−1−k) in every entry."""
    factor = us.tensor(0.9, name="factor")
    y, numbers = us.tensor(np.arange(1.0, size + 1), name="start"), []
    for _ in range(steps):
        y = factor * y
        norm = us.linalg.norm(y)
        if read:
            numbers.append(float(norm))
    loss = us.sum(y)
    float(loss)
    return Run(loss, factor, numbers)


def scaling_norms(steps: int, size: int = 3) -> list[float]:
    return [0.9 ** (steps - 1 - k) * size**0.5 for k in range(steps)]


def power(steps: int = 40, size: int = 5) -> Run:
    """Power iteration, stopped by nothing; what it reads is how far it moves."""
    rng = np.random.default_rng(7)
    matrix = us.tensor(np.diag(np.arange(1.0, size + 1)) + 0.1 * rng.random((size, size)), name="A")
    x, numbers = us.tensor(np.ones(size)), []
    for _ in range(steps):
        y = matrix @ x
        y = y / us.linalg.norm(y)
        moved = us.linalg.norm(y - x)
        x = y
        numbers.append(float(moved))
    loss = x @ matrix @ x
    float(loss)
    return Run(loss, matrix, numbers)


def iterated(steps: int = 30, *, adjoint: us.Unrolled | us.Checkpointed | None = None) -> Run:
    """The same as `scaling`, in one call."""
    factor = us.tensor(0.9, name="factor")
    y, _ = us.iterate(lambda y: factor * y, us.tensor(np.arange(1.0, 4.0)), max_steps=steps, adjoint=adjoint)
    loss = us.sum(y)
    float(loss)
    return Run(loss, factor, [])


def truncating(steps: int = 6) -> Run:
    """A matrix that is cut to rank 2 in every step, and the norm of what is left."""
    rng = np.random.default_rng(3)
    start = us.tensor(rng.normal(size=(6, 5)), name="M")
    coupling = us.tensor(rng.normal(size=(6, 6)) / 4, name="C")
    m, numbers = start, []
    for _ in range(steps):
        u, s, vh = us.linalg.truncated_svd(m + coupling @ m, 2)
        m = (u * s) @ vh
        norm = us.linalg.norm(m)
        numbers.append(float(norm))
    loss = us.sum(m * m)
    float(loss)
    return Run(loss, start, numbers)
