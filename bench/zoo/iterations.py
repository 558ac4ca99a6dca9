"""Loops towards a fixed point: products, histories, entries one by one, inner loops, factorisations, an early end."""

from __future__ import annotations

from typing import Any

import numpy as np

import unspool as us
from bench.zoo.kind import FAR, Data, Forms, Read, Watch, contraction, kind, normal, symmetric

WIDE = {"shape": (64, 64)}


@kind("A", large=WIDE)
def all_kept() -> Forms:
    """Power iteration whose every state is held in a list and used in the loss."""

    def setup(steps: int, shape: tuple[int, ...] = (16,)) -> Data:
        return {"A": np.eye(shape[0]) + contraction(0, shape[0], 0.4), "x": normal(1, *shape)}

    def ours(steps: int, A: us.Tensor, x: us.Tensor, read: Read, watch: Watch) -> us.Tensor:
        states = []
        for k in range(steps):
            y = A @ x
            n = us.linalg.norm(y)
            x = y / n
            states.append(x)
            watch(k, y, n, x)
            if read(n) < 0:
                break
        return sum(us.sum(s[0]) for s in states) * (1.0 / steps)

    def theirs(torch: Any, steps: int, A: Any, x: Any) -> Any:
        states = []
        for _ in range(steps):
            y = A @ x
            n = torch.linalg.norm(y)
            x = y / n
            states.append(x)
            if n.item() < 0:
                break
        return sum(s[0].sum() for s in states) * (1.0 / steps)

    return setup, ours, theirs


@kind("A", "x", large=WIDE)
def two_lags() -> Forms:
    """A recurrence of three terms: the last two states are read."""

    def setup(steps: int, shape: tuple[int, ...] = (10,)) -> Data:
        return {"A": 0.5 * np.eye(shape[0]) + contraction(0, shape[0], 0.06), "x": normal(1, *shape)}

    def ours(steps: int, A: us.Tensor, x: us.Tensor, read: Read, watch: Watch) -> us.Tensor:
        before = x
        for k in range(steps):
            x, before = 2 * (A @ x) - 0.9 * before, x
            n = us.sqrt(us.sum(x * x)) + 1e-3
            x, before = x / n, before / n
            watch(k, n, x, before)
            if read(n) > FAR:
                break
        return us.sum(x * before)

    def theirs(torch: Any, steps: int, A: Any, x: Any) -> Any:
        before = x
        for _ in range(steps):
            x, before = 2 * (A @ x) - 0.9 * before, x
            n = torch.sqrt((x * x).sum()) + 1e-3
            x, before = x / n, before / n
            if n.item() > FAR:
                break
        return (x * before).sum()

    return setup, ours, theirs


@kind("A", "b", large={"n": 64}, most=500)
def history() -> Forms:
    """Anderson mixing over the last five iterates: a history that grows, and then rolls."""

    def setup(steps: int, n: int = 12) -> Data:
        return {"A": contraction(0, n, 0.28), "b": normal(1, n)}

    def ours(steps: int, A: us.Tensor, b: us.Tensor, read: Read, watch: Watch) -> us.Tensor:
        x, xs, fs = us.zeros(b.shape), [], []
        for k in range(steps):
            f = us.tanh(A @ x + b) - x + 0.01 * us.sin(x * (1.0 + 0.001 * k))
            xs, fs = [*xs, x][-5:], [*fs, f][-5:]
            F = us.stack(fs, axis=1)
            c = us.linalg.solve(F.T @ F + 1e-3 * np.eye(len(fs)), us.ones(len(fs)))
            c = c / us.sum(c)
            x = us.stack(xs, axis=1) @ c + 0.5 * (F @ c)
            watch(k, f, F, c, x)
            if read(us.sum(f * f)) > FAR:
                break
        return us.sum(x * x)

    def theirs(torch: Any, steps: int, A: Any, b: Any) -> Any:
        x, xs, fs = torch.zeros(b.shape, dtype=b.dtype), [], []
        for k in range(steps):
            f = torch.tanh(A @ x + b) - x + 0.01 * torch.sin(x * (1.0 + 0.001 * k))
            xs, fs = [*xs, x][-5:], [*fs, f][-5:]
            F = torch.stack(fs, 1)
            m = len(fs)
            c = torch.linalg.solve(F.T @ F + 1e-3 * torch.eye(m, dtype=b.dtype), torch.ones(m, dtype=b.dtype))
            c = c / c.sum()
            x = torch.stack(xs, 1) @ c + 0.5 * (F @ c)
            if (f * f).sum().item() > FAR:
                break
        return (x * x).sum()

    return setup, ours, theirs


@kind("A", "b", large={"n": 64})
def gauss_seidel() -> Forms:
    """One entry is updated after the other, with ``x.at[i].set``."""

    def setup(steps: int, n: int = 8) -> Data:
        return {"A": 4.0 * np.eye(n) + contraction(0, n, 0.8), "b": normal(1, n)}

    def ours(steps: int, A: us.Tensor, b: us.Tensor, read: Read, watch: Watch) -> us.Tensor:
        x, n = us.zeros(b.shape), b.shape[0]
        for k in range(steps):
            i = k % n
            x = x.at[i].set(x[i] + (b[i] - us.sum(A[i] * x)) / A[i, i])
            watch(k, x)
            if read(x[i]) > FAR:
                break
        return us.sum(x * x)

    def theirs(torch: Any, steps: int, A: Any, b: Any) -> Any:
        x, n = torch.zeros(b.shape, dtype=b.dtype), b.shape[0]
        for k in range(steps):
            i = k % n
            new = x[i] + (b[i] - (A[i] * x).sum()) / A[i, i]
            x = torch.cat([x[:i], new[None], x[i + 1 :]])
            if x[i].item() > FAR:
                break
        return (x * x).sum()

    return setup, ours, theirs


@kind("A", "b", large=WIDE)
def nested() -> Forms:
    """An inner loop of twelve steps in each step of an outer one; the steps are those of the inner loop."""
    inner = 12

    def setup(steps: int, shape: tuple[int, ...] = (8,)) -> Data:
        return {"A": np.eye(shape[0]) + contraction(0, shape[0], 0.15), "b": normal(1, *shape)}

    def ours(steps: int, A: us.Tensor, b: us.Tensor, read: Read, watch: Watch) -> us.Tensor:
        z = us.zeros(b.shape)
        for k in range(-(-steps // inner)):
            x = z
            for i in range(inner):
                x = 0.5 * us.tanh(A @ x + b)
                watch(k * inner + i, x)
                if read(us.sum(x * x)) > FAR:
                    break
            z = 0.9 * z + 0.1 * x
        return us.sum(z * z)

    def theirs(torch: Any, steps: int, A: Any, b: Any) -> Any:
        z = torch.zeros(b.shape, dtype=b.dtype)
        for _ in range(-(-steps // inner)):
            x = z
            for _ in range(inner):
                x = 0.5 * torch.tanh(A @ x + b)
                if (x * x).sum().item() > FAR:
                    break
            z = 0.9 * z + 0.1 * x
        return (z * z).sum()

    return setup, ours, theirs


@kind("H", "g", large={"n": 64}, most=200)
def factorised() -> Forms:
    """A mean field: an eigendecomposition in every step."""

    def setup(steps: int, n: int = 12) -> Data:
        return {"H": 5.0 * symmetric(0, n), "g": np.array(0.3), "ramp": np.arange(float(n))}

    def ours(steps: int, H: us.Tensor, g: us.Tensor, ramp: us.Tensor, read: Read, watch: Watch) -> us.Tensor:
        n = ramp.shape[0]
        d = us.ones(n) * 0.5
        for k in range(steps):
            _, v = us.linalg.eigh(H + g * us.diag(d))
            d = 0.7 * d + 0.3 * us.sum(v[:, : n // 2] ** 2, axis=1)
            watch(k, v, d)
            if read(us.sum(d)) > FAR:
                break
        return us.sum(d * ramp)

    def theirs(torch: Any, steps: int, H: Any, g: Any, ramp: Any) -> Any:
        n = ramp.shape[0]
        d = torch.ones(n, dtype=ramp.dtype) * 0.5
        for _ in range(steps):
            _, v = torch.linalg.eigh(H + g * torch.diag(d))
            d = 0.7 * d + 0.3 * (v[:, : n // 2] ** 2).sum(1)
            if d.sum().item() > FAR:
                break
        return (d * ramp).sum()

    return setup, ours, theirs


@kind("A", "b", large=WIDE)
def early_break() -> Forms:
    """The loop ends in the middle of a step when it has converged, after some three quarters of the steps."""

    def setup(steps: int, shape: tuple[int, ...] = (10,)) -> Data:
        return {"A": contraction(0, shape[0], 0.3), "b": normal(1, *shape), "rate": min(0.5, 18.0 / steps)}

    def ours(steps: int, A: us.Tensor, b: us.Tensor, rate: float, read: Read, watch: Watch) -> us.Tensor:
        x = us.zeros(b.shape)
        for k in range(steps):
            change = us.tanh(A @ x) + b - x
            watch(k, change, x)
            if read(us.mean(change * change)) < 1e-10:
                break
            x = x + rate * change
        return us.sum(x * x)

    def theirs(torch: Any, steps: int, A: Any, b: Any, rate: float) -> Any:
        x = torch.zeros(b.shape, dtype=b.dtype)
        for _ in range(steps):
            change = torch.tanh(A @ x) + b - x
            if (change * change).mean().item() < 1e-10:
                break
            x = x + rate * change
        return (x * x).sum()

    return setup, ours, theirs
