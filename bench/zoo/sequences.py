"""Loops along a sequence: hidden states, filters, recurrences, and how they are read, logged and differentiated."""

from __future__ import annotations

from typing import Any

import numpy as np

import unspool as us
from bench.zoo.kind import FAR, Data, Forms, Read, Watch, contraction, kind, normal

WIDE = {"shape": (64, 64)}


@kind("T", "E", raw=("seen",), large={"states": 64, "signs": 64})
def unread() -> Forms:
    """The forward pass of a hidden Markov model: nothing is read before the end."""

    def setup(steps: int, states: int = 6, signs: int = 10) -> Data:
        seen = np.random.default_rng(2).integers(0, signs, steps)
        return {"T": 0.3 * normal(0, states, states), "E": 0.3 * normal(1, states, signs), "seen": seen}

    def ours(steps: int, T: us.Tensor, E: us.Tensor, seen: np.ndarray, read: Read, watch: Watch) -> us.Tensor:
        log_t = T - us.logsumexp(T, axis=1)[:, None]
        log_e = E - us.logsumexp(E, axis=1)[:, None]
        a = log_e[:, int(seen[0])]
        for k in range(1, steps):
            a = us.logsumexp(a[:, None] + log_t, axis=0) + log_e[:, int(seen[k])]
            watch(k, a)
        return us.logsumexp(a) * (1.0 / steps)

    def theirs(torch: Any, steps: int, T: Any, E: Any, seen: np.ndarray) -> Any:
        log_t = T - torch.logsumexp(T, 1)[:, None]
        log_e = E - torch.logsumexp(E, 1)[:, None]
        a = log_e[:, int(seen[0])]
        for k in range(1, steps):
            a = torch.logsumexp(a[:, None] + log_t, 0) + log_e[:, int(seen[k])]
        return torch.logsumexp(a, 0) * (1.0 / steps)

    return setup, ours, theirs


def _driven(steps: int, shape: tuple[int, ...] = (12,)) -> Data:
    return {"A": contraction(0, shape[0], 1.0), "x": normal(1, *shape)}


@kind("A", "x", large=WIDE)
def read_now_and_then() -> Forms:
    """A value is read in every tenth step only."""

    def ours(steps: int, A: us.Tensor, x: us.Tensor, read: Read, watch: Watch) -> us.Tensor:
        for k in range(steps):
            x = us.tanh(A @ x) + 0.1
            watch(k, x)
            if k % 10 == 9 and read(us.sum(x)) > FAR:
                break
        return us.sum(x * x)

    def theirs(torch: Any, steps: int, A: Any, x: Any) -> Any:
        for k in range(steps):
            x = torch.tanh(A @ x) + 0.1
            if k % 10 == 9 and x.sum().item() > FAR:
                break
        return (x * x).sum()

    return _driven, ours, theirs


@kind("A", "x", large=WIDE)
def logged() -> Forms:
    """A norm is noted in every tenth step, as a tensor, and read when all is over."""

    def ours(steps: int, A: us.Tensor, x: us.Tensor, read: Read, watch: Watch) -> us.Tensor:
        log = []
        for k in range(steps):
            x = us.tanh(A @ x) + 0.1
            watch(k, x)
            if k % 10 == 0:
                log.append(us.linalg.norm(x))
        loss = us.sum(x * x)
        assert max(map(read, log)) < FAR
        return loss

    def theirs(torch: Any, steps: int, A: Any, x: Any) -> Any:
        log = []
        for k in range(steps):
            x = torch.tanh(A @ x) + 0.1
            if k % 10 == 0:
                log.append(torch.linalg.norm(x))
        loss = (x * x).sum()
        assert max(norm.item() for norm in log) < FAR
        return loss

    return _driven, ours, theirs


@kind(large=WIDE)
def every_state() -> Forms:
    """The gradient with respect to every state of the loop: how much each of them matters."""

    def ours(steps: int, A: us.Tensor, x: us.Tensor, read: Read, watch: Watch) -> tuple[us.Tensor, list[us.Tensor]]:
        states = []
        for k in range(steps):
            x = us.tanh(A @ x) + 0.1
            states.append(x)
            watch(k, x)
            if read(us.sum(x)) > FAR:
                break
        return us.sum(x * x), states

    def theirs(torch: Any, steps: int, A: Any, x: Any) -> tuple[Any, list[Any]]:
        A, states = A.requires_grad_(), []
        for _ in range(steps):
            x = torch.tanh(A @ x) + 0.1
            states.append(x)
            if x.sum().item() > FAR:
                break
        return (x * x).sum(), states

    return _driven, ours, theirs


@kind(*(f"W{i}" for i in range(8)), raw=("D",), large={"inputs": 64, "hidden": 64, "rows": 64}, most=500)
def recurrent() -> Forms:
    """A gated cell with eight arrays of weights over a sequence, with a loss in every step."""

    def setup(steps: int, inputs: int = 4, hidden: int = 8, rows: int | None = None) -> Data:
        extra = () if rows is None else (rows,)
        square, narrow, bias = (hidden, hidden), (inputs, hidden), (hidden,)
        shapes = [narrow, square, bias, narrow, square, bias, narrow, square]
        weights = {f"W{i}": 0.8 * normal(i, *shape) / shape[0] ** 0.5 for i, shape in enumerate(shapes)}
        return {"D": normal(9, steps, *extra, inputs), "h": np.zeros((*extra, hidden)), **weights}

    def cell(sigmoid: Any, tanh: Any, W: list[Any], x: Any, h: Any) -> Any:
        z = sigmoid(x @ W[0] + h @ W[1] + W[2])
        r = sigmoid(x @ W[3] + h @ W[4] + W[5])
        return (1.0 - z) * h + z * tanh(x @ W[6] + (r * h) @ W[7])

    def ours(steps: int, D: np.ndarray, h: us.Tensor, read: Read, watch: Watch, **weights: us.Tensor) -> us.Tensor:
        W, total = list(weights.values()), us.tensor(0.0)
        for k in range(steps):
            h = cell(us.sigmoid, us.tanh, W, D[k], h)
            total = total + us.mean(h * h) * (1.0 / steps)
            watch(k, h, total)
            if read(total) > FAR:
                break
        return total

    def theirs(torch: Any, steps: int, D: np.ndarray, h: Any, **weights: Any) -> Any:
        W, total, table = list(weights.values()), torch.tensor(0.0, dtype=h.dtype), torch.tensor(D)
        for k in range(steps):
            h = cell(torch.sigmoid, torch.tanh, W, table[k], h)
            total = total + (h * h).mean() * (1.0 / steps)
            if total.item() > FAR:
                break
        return total

    return setup, ours, theirs


@kind("F", "q", large={"n": 64, "m": 64}, most=300)
def kalman() -> Forms:
    """A Kalman filter over a table of observations: the likelihood in the dynamics and the noise."""

    def setup(steps: int, n: int = 4, m: int = 2) -> Data:
        return {
            "F": 0.9 * np.eye(n) + contraction(0, n, 0.1),
            "q": np.array(0.3),
            "H": normal(1, m, n) / n**0.5,
            "Y": normal(2, steps, m),
        }

    def ours(steps: int, F: us.Tensor, q: us.Tensor, H: us.Tensor, Y: us.Tensor, read: Read, watch: Watch) -> us.Tensor:
        m, n = H.shape
        x, P, total = us.zeros(n), us.eye(n), us.tensor(0.0)
        for k in range(steps):
            x, P = F @ x, F @ P @ F.T + q * np.eye(n)
            e, S = Y[k] - H @ x, H @ P @ H.T + 0.5 * np.eye(m)
            gain = us.linalg.solve(S, H @ P).T
            total = total + us.sum(e * us.linalg.solve(S, e)) + us.linalg.slogdet(S)[1]
            x, P = x + gain @ e, P - gain @ (H @ P)
            watch(k, x, P, e, S, gain, total)
            if read(total) > FAR:
                break
        return total * (1.0 / steps)

    def theirs(torch: Any, steps: int, F: Any, q: Any, H: Any, Y: Any) -> Any:
        m, n = H.shape
        wide = {"dtype": F.dtype}
        x, P, total = torch.zeros(n, **wide), torch.eye(n, **wide), torch.tensor(0.0, **wide)
        for k in range(steps):
            x, P = F @ x, F @ P @ F.T + q * torch.eye(n, **wide)
            e, S = Y[k] - H @ x, H @ P @ H.T + 0.5 * torch.eye(m, **wide)
            gain = torch.linalg.solve(S, H @ P).T
            total = total + (e * torch.linalg.solve(S, e)).sum() + torch.linalg.slogdet(S)[1]
            x, P = x + gain @ e, P - gain @ (H @ P)
            if total.item() > FAR:
                break
        return total * (1.0 / steps)

    return setup, ours, theirs
