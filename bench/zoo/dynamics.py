"""Loops in time: one of two ways, steps that are rejected or cut short, complex numbers, ranks that change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import unspool as us
from bench.zoo.kind import FAR, Data, Forms, Read, Watch, contraction, kind, normal, symmetric

WIDE = {"shape": (64, 64)}


@kind("A", "B", "x", large=WIDE)
def branches() -> Forms:
    """Each step takes one of two ways, by a value."""

    def setup(steps: int, shape: tuple[int, ...] = (10,)) -> Data:
        n = shape[0]
        return {"A": contraction(0, n, 1.25), "B": contraction(1, n, 1.25), "x": normal(2, *shape)}

    def ours(steps: int, A: us.Tensor, B: us.Tensor, x: us.Tensor, read: Read, watch: Watch) -> us.Tensor:
        for k in range(steps):
            x = us.tanh(A @ x) if read(us.sum(x)) > 0 else us.sin(B @ x) * 1.1 + 0.05
            watch(k, x)
        return us.sum(x * x)

    def theirs(torch: Any, steps: int, A: Any, B: Any, x: Any) -> Any:
        for _ in range(steps):
            x = torch.tanh(A @ x) if x.sum().item() > 0 else torch.sin(B @ x) * 1.1 + 0.05
        return (x * x).sum()

    return setup, ours, theirs


@kind("H", "x", large=WIDE)
def complex_steps() -> Forms:
    """A complex evolution with a phase that depends on the step."""

    def setup(steps: int, shape: tuple[int, ...] = (8,)) -> Data:
        return {"H": 0.4 * symmetric(0, shape[0]), "x": normal(1, *shape) + 1j * normal(2, *shape)}

    def ours(steps: int, H: us.Tensor, x: us.Tensor, read: Read, watch: Watch) -> us.Tensor:
        for k in range(steps):
            x = x - 0.05j * (H @ x) * np.cos(0.01 * k)
            n = us.sqrt(us.sum(us.abs(x) ** 2))
            x = x / n
            watch(k, n, x)
            if read(n) > FAR:
                break
        return us.real(us.sum(us.conj(x) * (H @ x)))

    def theirs(torch: Any, steps: int, H: Any, x: Any) -> Any:
        H = H.to(x.dtype)
        for k in range(steps):
            x = x - 0.05j * (H @ x) * np.cos(0.01 * k)
            n = torch.sqrt((x.abs() ** 2).sum())
            x = x / n
            if n.item() > FAR:
                break
        return (x.conj() * (H @ x)).sum().real

    return setup, ours, theirs


@kind("y", "s", "p", large=WIDE)
def adaptive_ode() -> Forms:
    """A pair of Runge–Kutta rules: steps are accepted or rejected, and their size is a Python number."""

    def setup(steps: int, shape: tuple[int, ...] = (3,)) -> Data:
        start = np.linspace(0.01, 0.02, int(np.prod(shape))).reshape(shape)
        return {"y": start, "s": np.array(0.3), "p": np.array(-0.01)}

    def solve(steps: int, y: Any, s: Any, p: Any, size: Callable[[Any], float], watch: Watch) -> Any:
        def slope(y: Any, t: float) -> Any:
            # Pulses: the rule meets each with too large a step.
            return s * y * (1.0 - y) + p * y * y * y + (0.01 if np.sin(3.0 * t) > 0.9 else 0.0)

        t, h = 0.0, 0.05
        for k in range(steps):
            k1 = slope(y, t)
            k2 = slope(y + h * 0.5 * k1, t + 0.5 * h)
            k3 = slope(y + h * 0.75 * k2, t + 0.75 * h)
            new = y + h * (2 / 9 * k1 + 1 / 3 * k2 + 4 / 9 * k3)
            k4 = slope(new, t + h)
            error = h * (-5 / 72 * k1 + 1 / 12 * k2 + 1 / 9 * k3 - 1 / 8 * k4)
            watch(k, k1, k2, k3, new, k4, error)
            e = size(error) / 1e-6
            if e <= 1.0 or h < 1e-4:
                y, t = new, t + h
            h = min(0.2, h * min(2.0, max(0.3, 0.9 * (e + 1e-12) ** (-1 / 3))))
        return y

    def ours(steps: int, y: us.Tensor, s: us.Tensor, p: us.Tensor, read: Read, watch: Watch) -> us.Tensor:
        return us.sum(solve(steps, y, s, p, lambda error: read(us.max(us.abs(error))), watch))

    def theirs(torch: Any, steps: int, y: Any, s: Any, p: Any) -> Any:
        return solve(steps, y, s, p, lambda error: error.abs().max().item(), lambda *_: None).sum()

    return setup, ours, theirs


@kind("x", "v", "g", "e", large=WIDE)
def ode_events() -> Forms:
    """A ball that bounces: a step in which it would hit the ground is cut short there, by Newton's iteration."""
    h, newton = 0.02, 3

    def setup(steps: int, shape: tuple[int, ...] = (3,)) -> Data:
        return {
            "x": 0.3 + 0.03 * np.abs(normal(0, *shape)),
            "v": 0.1 * normal(1, *shape),
            "g": np.array(9.81),
            "e": np.array(0.995),
        }

    def moved(sin: Any, g: Any, x: Any, v: Any, h: Any) -> tuple[Any, Any, Any]:
        """Return place and velocity after some time, and the velocity half-way, by the rule of the midpoint."""
        half = v - (0.5 * h) * (g + 0.01 * v + 0.05 * sin(x))
        middle = x + (0.5 * h) * v
        return x + h * half, v - h * (g + 0.01 * half + 0.05 * sin(middle)), half

    def ours(
        steps: int,
        x: us.Tensor,
        v: us.Tensor,
        g: us.Tensor,
        e: us.Tensor,
        read: Read,
        watch: Watch,
    ) -> us.Tensor:
        for k in range(steps):
            new, fast, half = moved(us.sin, g, x, v, h)
            if read(us.mean(new)) < 0:
                time: Any = h
                for _ in range(newton):
                    time = time - us.mean(new) / us.mean(half)
                    new, fast, half = moved(us.sin, g, x, v, time)
                fast = -e * fast
            x, v = new, fast
            watch(k, x, v)
        return us.sum(x) + us.sum(v * v)

    def theirs(torch: Any, steps: int, x: Any, v: Any, g: Any, e: Any) -> Any:
        for _ in range(steps):
            new, fast, half = moved(torch.sin, g, x, v, h)
            if new.mean().item() < 0:
                time = h
                for _ in range(newton):
                    time = time - new.mean() / half.mean()
                    new, fast, half = moved(torch.sin, g, x, v, time)
                fast = -e * fast
            x, v = new, fast
        return x.sum() + (v * v).sum()

    return setup, ours, theirs


SITES = 5


@kind("h", *(f"M{i}" for i in range(SITES)), large={"bits": 4, "most": 16}, most=300)
def changing_ranks() -> Forms:
    """Gates on the bonds of a chain, one after the other, each followed by an SVD cut at a rank that is read off it."""

    def setup(steps: int, bits: int = 2, most: int = 4) -> Data:
        ranks = [min(most, bits ** min(i, SITES - i)) for i in range(SITES + 1)]
        tensors = {f"M{i}": normal(i, ranks[i], bits, ranks[i + 1]) for i in range(SITES)}
        matrix = contraction(9, bits * bits, 1.0)
        # Mostly a rotation, so that ranks neither die out nor stay at the most.
        return {"h": matrix - 0.5 * matrix.T, "bits": bits, "most": most, **tensors}

    def rank_of(k: int, values: np.ndarray, bits: int, most: int) -> int:
        cut = 0.07 + 0.06 * np.sin(0.2 * k)
        # With fewer than that, a gate alone does not fill the matrix, and equal zeros have no derivative.
        return min(most, max(bits, int(np.sum(values > cut * values[0]))))

    def strength(k: int) -> float:
        return 0.3 * (1.0 + np.cos(0.1 * k))

    def ours(
        steps: int, h: us.Tensor, bits: int, most: int, read: Read, watch: Watch, **tensors: us.Tensor
    ) -> us.Tensor:
        chain, total = list(tensors.values()), us.tensor(0.0)
        for k in range(steps):
            i = k % (SITES - 1)
            gate = us.reshape(us.linalg.matrix_exp(strength(k) * h), (bits,) * 4)
            pair = us.einsum("aib,bjc,ijkl->aklc", chain[i], chain[i + 1], gate)
            a, _, _, c = pair.shape
            n = us.linalg.norm(us.reshape(pair, (-1,)))
            u, s, vh = us.linalg.svd(us.reshape(pair / n, (a * bits, bits * c)), full_matrices=False)
            rank = rank_of(k, np.array([read(each) for each in us.unstack(s)]), bits, most)
            root = us.sqrt(s[:rank])
            chain[i] = us.reshape(u[:, :rank] * root, (a, bits, rank))
            chain[i + 1] = us.reshape(root[:, None] * vh[:rank], (rank, bits, c))
            total = total + us.log(n)
            watch(k, gate, pair, n, s, chain[i], chain[i + 1], total)
        return total * (1.0 / steps)

    def theirs(torch: Any, steps: int, h: Any, bits: int, most: int, **tensors: Any) -> Any:
        chain, total = list(tensors.values()), torch.tensor(0.0, dtype=h.dtype)
        for k in range(steps):
            i = k % (SITES - 1)
            gate = torch.linalg.matrix_exp(strength(k) * h).reshape((bits,) * 4)
            pair = torch.einsum("aib,bjc,ijkl->aklc", chain[i], chain[i + 1], gate)
            a, _, _, c = pair.shape
            n = torch.linalg.norm(pair)
            u, s, vh = torch.linalg.svd((pair / n).reshape(a * bits, bits * c), full_matrices=False)
            rank = rank_of(k, s.detach().numpy(), bits, most)
            root = torch.sqrt(s[:rank])
            chain[i] = (u[:, :rank] * root).reshape(a, bits, rank)
            chain[i + 1] = (root[:, None] * vh[:rank]).reshape(rank, bits, c)
            total = total + torch.log(n)
        return total * (1.0 / steps)

    return setup, ours, theirs
