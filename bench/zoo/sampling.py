"""Loops that draw: Hamiltonian Monte Carlo with keys that depend on the step, and annealing with the best so far."""

from __future__ import annotations

from typing import Any

import numpy as np

import unspool as us
from bench.zoo.kind import Data, Forms, Read, Watch, kind, normal

WIDE = {"shape": (64, 64)}


@kind("c", "q", large=WIDE, most=300)
def hmc() -> Forms:
    """Hamiltonian Monte Carlo: a key for each step, three leaps along gradients, and proposals that may be rejected.

    PyTorch gets the same random numbers as a table and does not draw.
    """
    leaps, h = 3, 0.8

    def drawn(k: int, shape: tuple[int, ...]) -> tuple[us.Tensor, us.Tensor]:
        """Return the momentum of a step, and the number that decides whether its proposal is taken."""
        momentum, chance = us.random.split(us.random.fold_in(us.random.key(3), k))
        return us.random.normal(momentum, shape), us.random.uniform(chance, ())

    def setup(steps: int, shape: tuple[int, ...] = (6,)) -> Data:
        return {"c": 1.0 + normal(0, *shape) ** 2, "q": normal(1, *shape)}

    def ours(steps: int, c: us.Tensor, q: us.Tensor, read: Read, watch: Watch) -> us.Tensor:
        def potential(q: us.Tensor) -> us.Tensor:
            return 0.5 * us.sum(c * q * q) + 0.5 * us.sum(us.cos(q))

        for k in range(steps):
            p, chance = drawn(k, q.shape)
            new, old = q, potential(q) + 0.5 * us.sum(p * p)
            for _ in range(leaps):
                p = p - 0.5 * h * us.grad(potential)(new)
                new = new + h * p
                p = p - 0.5 * h * us.grad(potential)(new)
            energy = potential(new) + 0.5 * us.sum(p * p)
            watch(k, p, new, old, energy)
            if read(old - energy) > read(us.log(chance)):
                q = new
        return us.sum(q * q)

    def theirs(torch: Any, steps: int, c: Any, q: Any) -> Any:
        def potential(q: Any) -> Any:
            return 0.5 * (c * q * q).sum() + 0.5 * torch.cos(q).sum()

        def slope(q: Any) -> Any:
            return torch.autograd.grad(potential(q), q, create_graph=True)[0]

        for momentum, chance in _table(steps, tuple(q.shape)):
            p = torch.tensor(momentum)
            new, old = q, potential(q) + 0.5 * (p * p).sum()
            for _ in range(leaps):
                p = p - 0.5 * h * slope(new)
                new = new + h * p
                p = p - 0.5 * h * slope(new)
            energy = potential(new) + 0.5 * (p * p).sum()
            if (old - energy).item() > np.log(chance):
                q = new
        return (q * q).sum()

    tables: dict[Any, list[tuple[np.ndarray, float]]] = {}

    def _table(steps: int, shape: tuple[int, ...]) -> list[tuple[np.ndarray, float]]:
        if (steps, shape) not in tables:
            tables[steps, shape] = [(p.numpy(), float(u)) for p, u in (drawn(k, shape) for k in range(steps))]
        return tables[steps, shape]

    return setup, ours, theirs


@kind("t", "w", raw=("noise", "heat"), large=WIDE, most=500)
def best_so_far() -> Forms:
    """Annealing along a gradient: trials are rejected, and the best of them is carried along unchanged."""

    def setup(steps: int, shape: tuple[int, ...] = (6,)) -> Data:
        size = int(np.prod(shape))
        heat = np.random.default_rng(3).exponential(size=steps)
        return {
            "t": normal(0, *shape),
            "w": normal(1, *shape),
            "noise": normal(2, steps, *shape),
            "heat": 0.02 * size**0.5 * heat,
        }

    def ours(
        steps: int, t: us.Tensor, w: us.Tensor, noise: np.ndarray, heat: np.ndarray, read: Read, watch: Watch
    ) -> us.Tensor:
        def height(w: us.Tensor) -> us.Tensor:
            return 0.5 * us.sum((w - t) ** 2) + us.sum(us.sin(3.0 * w))

        loss = height(w)
        best, lowest = w, read(loss)
        now = lowest
        for k in range(steps):
            trial = w - 0.05 * loss.grad(w) + 0.1 * noise[k]
            found = height(trial)
            watch(k, trial, found)
            value = read(found)
            if value < now + heat[k]:
                w, loss, now = trial, found, value
            if value < lowest:
                best, lowest = trial, value
        return height(best) + 0.1 * us.sum(w * w)

    def theirs(torch: Any, steps: int, t: Any, w: Any, noise: np.ndarray, heat: np.ndarray) -> Any:
        def height(w: Any) -> Any:
            return 0.5 * ((w - t) ** 2).sum() + torch.sin(3.0 * w).sum()

        table = torch.tensor(noise)
        loss = height(w)
        best, lowest = w, loss.item()
        now = lowest
        for k in range(steps):
            slope = torch.autograd.grad(loss, w, create_graph=True)[0]
            trial = w - 0.05 * slope + 0.1 * table[k]
            found = height(trial)
            value = found.item()
            if value < now + heat[k]:
                w, loss, now = trial, found, value
            if value < lowest:
                best, lowest = trial, value
        return height(best) + 0.1 * (w * w).sum()

    return setup, ours, theirs
