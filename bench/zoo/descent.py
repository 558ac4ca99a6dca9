"""Loops that fit weights: over rows, batches and tables, with a schedule, with gradients inside, with a history."""

from __future__ import annotations

from typing import Any

import numpy as np

import unspool as us
from bench.zoo.kind import FAR, Data, Forms, Read, Watch, kind, normal, zeros_like

SQUARE = {"shape": (64, 64)}

# The rate of descent on a number of weights.
STRENGTH = 0.08


# --- one sample a step ------------------------------------------------------------------------------------------------


@kind("a", "w", large=SQUARE)
def same() -> Forms:
    """Nothing changes from step to step but the state."""

    def setup(steps: int, shape: tuple[int, ...] = (8,)) -> Data:
        return {"a": normal(0, *shape), "w": normal(1, *shape), "rate": STRENGTH / np.prod(shape)}

    def ours(steps: int, a: us.Tensor, w: us.Tensor, rate: float, read: Read, watch: Watch) -> us.Tensor:
        for k in range(steps):
            r = us.sum(a * w) - 1.0
            w = w - rate * r * a
            watch(k, r, w)
            if read(r) > FAR:
                break
        return us.sum(w * w)

    def theirs(torch: Any, steps: int, a: Any, w: Any, rate: float) -> Any:
        for _ in range(steps):
            r = (a * w).sum() - 1.0
            w = w - rate * r * a
            if r.item() > FAR:
                break
        return (w * w).sum()

    return setup, ours, theirs


@kind("a", "w", large=SQUARE)
def schedule() -> Forms:
    """The learning rate is a Python number that depends on the step."""

    def setup(steps: int, shape: tuple[int, ...] = (8,)) -> Data:
        return {"a": normal(0, *shape), "w": normal(1, *shape), "rate": 10 * STRENGTH / np.prod(shape)}

    def ours(steps: int, a: us.Tensor, w: us.Tensor, rate: float, read: Read, watch: Watch) -> us.Tensor:
        for k in range(steps):
            r = us.sum(a * w) - 1.0
            w = w - (rate / (k + 1)) * r * a
            watch(k, r, w)
            if read(r) > FAR:
                break
        return us.sum(w * w)

    def theirs(torch: Any, steps: int, a: Any, w: Any, rate: float) -> Any:
        for k in range(steps):
            r = (a * w).sum() - 1.0
            w = w - (rate / (k + 1)) * r * a
            if r.item() > FAR:
                break
        return (w * w).sum()

    return setup, ours, theirs


def _table(steps: int, shape: tuple[int, ...] = (8,)) -> Data:
    return {"D": normal(0, steps, *shape), "w": normal(1, *shape), "rate": STRENGTH / np.prod(shape)}


def _by_rows(steps: int, D: us.Tensor, w: us.Tensor, rate: float, read: Read, watch: Watch) -> us.Tensor:
    for k in range(steps):
        x = D[k]
        r = us.sum(x * w) - 1.0
        w = w - rate * r * x
        watch(k, x, r, w)
        if read(r) > FAR:
            break
    return us.sum(w * w)


def _by_rows_in_torch(torch: Any, steps: int, D: Any, w: Any, rate: float) -> Any:
    for k in range(steps):
        x = D[k]
        r = (x * w).sum() - 1.0
        w = w - rate * r * x
        if r.item() > FAR:
            break
    return (w * w).sum()


@kind("w", large=SQUARE)
def row_of_data() -> Forms:
    """Each step reads a row of a table that nobody differentiates."""
    return _table, _by_rows, _by_rows_in_torch


@kind("D", "w", large=SQUARE)
def row_of_variable() -> Forms:
    """Each step reads a row of a table that is differentiated, so its gradient is written row by row."""
    return _table, _by_rows, _by_rows_in_torch


def _by_arrays_in_torch(torch: Any, steps: int, D: np.ndarray, w: Any, rate: float) -> Any:
    return _by_rows_in_torch(torch, steps, torch.tensor(D), w, rate)


@kind("w", raw=("D",), large=SQUARE)
def numpy_row() -> Forms:
    """A row of a NumPy array is mixed into each step, twice."""

    def ours(steps: int, D: np.ndarray, w: us.Tensor, rate: float, read: Read, watch: Watch) -> us.Tensor:
        for k in range(steps):
            r = us.sum(w * D[k]) - 1.0
            w = w - rate * r * D[k]
            watch(k, r, w)
            if read(r) > FAR:
                break
        return us.sum(w * w)

    return _table, ours, _by_arrays_in_torch


@kind("w", raw=("D",), large=SQUARE)
def fresh_leaf() -> Forms:
    """Each step makes a leaf of its own, as of a batch that was just loaded."""

    def ours(steps: int, D: np.ndarray, w: us.Tensor, rate: float, read: Read, watch: Watch) -> us.Tensor:
        for k in range(steps):
            x = us.tensor(D[k])
            r = us.sum(x * w) - 1.0
            w = w - rate * r * x
            watch(k, x, r, w)
            if read(r) > FAR:
                break
        return us.sum(w * w)

    return _table, ours, _by_arrays_in_torch


@kind("y", "w", large={"n": 4096})
def window() -> Forms:
    """A filter learns to predict a signal from the window before it: slices that move, of something differentiated."""

    def setup(steps: int, n: int = 8) -> Data:
        return {"y": normal(0, steps + n + 1), "w": normal(1, n) / n, "rate": STRENGTH / n, "n": n}

    def ours(steps: int, y: us.Tensor, w: us.Tensor, rate: float, n: int, read: Read, watch: Watch) -> us.Tensor:
        for k in range(steps):
            x = y[k : k + n]
            e = us.sum(w * x) - y[k + n]
            w = w - rate * e * x
            watch(k, x, e, w)
            if read(e) > FAR:
                break
        return us.sum(w * w)

    def theirs(torch: Any, steps: int, y: Any, w: Any, rate: float, n: int) -> Any:
        for k in range(steps):
            x = y[k : k + n]
            e = (w * x).sum() - y[k + n]
            w = w - rate * e * x
            if e.item() > FAR:
                break
        return (w * w).sum()

    return setup, ours, theirs


# --- batches ----------------------------------------------------------------------------------------------------------


@kind("s", "w", large={"rows": 256, "n": 64, "batch": 64})
def minibatch() -> Forms:
    """A batch is gathered by an index array that changes; the weights of the samples are differentiated."""

    def setup(steps: int, rows: int = 64, n: int = 8, batch: int = 16) -> Data:
        draw = np.random.default_rng(2)
        batches = [draw.integers(0, rows, batch) for _ in range(steps)]
        return {
            "X": normal(0, rows, n),
            "Y": normal(1, rows),
            "s": np.ones(rows),
            "w": np.zeros(n),
            "batches": batches,
            "rate": 0.32 / batch * min(1.0, 16 / n),
        }

    def ours(
        steps: int,
        X: us.Tensor,
        Y: us.Tensor,
        s: us.Tensor,
        w: us.Tensor,
        batches: list[np.ndarray],
        rate: float,
        read: Read,
        watch: Watch,
    ) -> us.Tensor:
        for k, index in enumerate(batches):
            x = X[index]
            e = x @ w - Y[index]
            w = w - rate * ((s[index] * e) @ x)
            watch(k, x, e, w)
            if read(us.sum(e * e)) > FAR:
                break
        return us.mean((X @ w - Y) ** 2)

    def theirs(torch: Any, steps: int, X: Any, Y: Any, s: Any, w: Any, batches: list[np.ndarray], rate: float) -> Any:
        for index in batches:
            x = X[index]
            e = x @ w - Y[index]
            w = w - rate * ((s[index] * e) @ x)
            if (e * e).sum().item() > FAR:
                break
        return ((X @ w - Y) ** 2).mean()

    return setup, ours, theirs


@kind("w", large={"n": 64, "least": 40, "most": 90})
def ragged() -> Forms:
    """Batches of different sizes, as arrays of NumPy."""

    def setup(steps: int, n: int = 6, least: int = 10, most: int = 30) -> Data:
        draw = np.random.default_rng(0)
        return {
            "batches": [draw.normal(size=(int(m), n)) for m in draw.integers(least, most, steps)],
            "w": normal(1, n),
        }

    def ours(steps: int, batches: list[np.ndarray], w: us.Tensor, read: Read, watch: Watch) -> us.Tensor:
        for k, b in enumerate(batches):
            e = us.tanh(b @ w)
            w = w - 0.05 * (e @ b) * (1.0 / len(b))
            watch(k, e, w)
            if read(us.sum(w * w)) > FAR:
                break
        return us.sum(w * w)

    def theirs(torch: Any, steps: int, batches: list[np.ndarray], w: Any) -> Any:
        for batch in batches:
            b = torch.tensor(batch)
            e = torch.tanh(b @ w)
            w = w - 0.05 * (e @ b) * (1.0 / len(b))
            if (w * w).sum().item() > FAR:
                break
        return (w * w).sum()

    return setup, ours, theirs


# --- gradients inside -------------------------------------------------------------------------------------------------


@kind("rate", "w", large={"rows": 64, "n": 64})
def sgd_hyper() -> Forms:
    """Descent along ``loss.grad(w)``, differentiated in its rate and its start; only the loss is read."""

    def setup(steps: int, rows: int = 32, n: int = 8) -> Data:
        return {"X": normal(0, rows, n) / n**0.5, "Y": normal(1, rows), "rate": np.array(0.15), "w": normal(2, n)}

    def ours(
        steps: int, X: us.Tensor, Y: us.Tensor, rate: us.Tensor, w: us.Tensor, read: Read, watch: Watch
    ) -> us.Tensor:
        for k in range(steps):
            loss = us.mean(us.tanh(X @ w - Y) ** 2)
            g = loss.grad(w)
            w = w - rate * g
            watch(k, loss, g, w)
            if read(loss) < 0:
                break
        return us.mean((X @ w - Y) ** 2)

    def theirs(torch: Any, steps: int, X: Any, Y: Any, rate: Any, w: Any) -> Any:
        for _ in range(steps):
            loss = (torch.tanh(X @ w - Y) ** 2).mean()
            w = w - rate * torch.autograd.grad(loss, w, create_graph=True)[0]
            if loss.item() < 0:
                break
        return ((X @ w - Y) ** 2).mean()

    return setup, ours, theirs


@kind("rate", "W", "v", large={"rows": 64, "n": 64, "hidden": 64}, most=500)
def adam_hyper() -> Forms:
    """Adam with bias correction on two arrays of weights, by `us.value_and_grad` of a function inside the loop."""

    def setup(steps: int, rows: int = 32, n: int = 4, hidden: int = 6) -> Data:
        return {
            "X": normal(0, rows, n) / n**0.5,
            "Y": normal(1, rows),
            "rate": np.array(0.01),
            "W": normal(2, n, hidden),
            "v": normal(3, hidden) / hidden**0.5,
        }

    def adapted(xp: Any, k: int, rate: Any, p: Any, g: Any, m: Any, v: Any) -> tuple[list[Any], list[Any], list[Any]]:
        m = [0.9 * a + 0.1 * b for a, b in zip(m, g, strict=True)]
        v = [0.999 * a + 0.001 * b * b for a, b in zip(v, g, strict=True)]
        small, large = 1 - 0.9 ** (k + 1), 1 - 0.999 ** (k + 1)
        p = [q - rate * (a / small) / (xp.sqrt(b / large + 1e-12) + 1e-8) for q, a, b in zip(p, m, v, strict=True)]
        return p, m, v

    def ours(
        steps: int,
        X: us.Tensor,
        Y: us.Tensor,
        rate: us.Tensor,
        W: us.Tensor,
        v: us.Tensor,
        read: Read,
        watch: Watch,
    ) -> us.Tensor:
        def error(p: list[us.Tensor]) -> us.Tensor:
            return us.mean((us.tanh(X @ p[0]) @ p[1] - Y) ** 2)

        p = [W, v]
        first, second = zeros_like(us, p), zeros_like(us, p)
        for k in range(steps):
            loss, g = us.value_and_grad(error)(p)
            p, first, second = adapted(us, k, rate, p, g, first, second)
            watch(k, loss, *g, *p, *first, *second)
            if read(loss) < 0:
                break
        return error(p)

    def theirs(torch: Any, steps: int, X: Any, Y: Any, rate: Any, W: Any, v: Any) -> Any:
        def error(p: list[Any]) -> Any:
            return ((torch.tanh(X @ p[0]) @ p[1] - Y) ** 2).mean()

        p = [W, v]
        first, second = zeros_like(torch, p), zeros_like(torch, p)
        for k in range(steps):
            loss = error(p)
            g = torch.autograd.grad(loss, p, create_graph=True)
            p, first, second = adapted(torch, k, rate, p, g, first, second)
            if loss.item() < 0:
                break
        return error(p)

    return setup, ours, theirs


@kind("X", "w", large={"rows": 64, "n": 64}, most=500)
def curvature() -> Forms:
    """Descent whose rate follows the largest curvature, found beside it by products with the Hessian, `us.hvp`."""

    def setup(steps: int, rows: int = 24, n: int = 6) -> Data:
        return {"X": normal(0, rows, n) / rows**0.5, "Y": normal(1, rows), "w": normal(2, n), "v": normal(3, n)}

    def ours(steps: int, X: us.Tensor, Y: us.Tensor, w: us.Tensor, v: us.Tensor, read: Read, watch: Watch) -> us.Tensor:
        def error(w: us.Tensor) -> us.Tensor:
            return us.sum(us.log(us.cosh(X @ w - Y))) + 0.05 * us.sum(w * w)

        for k in range(steps):
            product = us.hvp(error, (w,), (v,))
            size = us.linalg.norm(product)
            v = product / size
            w = w - (0.02 / (size + 0.1)) * us.grad(error)(w)
            watch(k, product, size, v, w)
            if read(size) > FAR:
                break
        return error(w)

    def theirs(torch: Any, steps: int, X: Any, Y: Any, w: Any, v: Any) -> Any:
        def error(w: Any) -> Any:
            return torch.log(torch.cosh(X @ w - Y)).sum() + 0.05 * (w * w).sum()

        for _ in range(steps):
            g = torch.autograd.grad(error(w), w, create_graph=True)[0]
            product = torch.autograd.grad((g * v).sum(), w, create_graph=True)[0]
            size = torch.linalg.norm(product)
            v = product / size
            w = w - (0.02 / (size + 0.1)) * g
            if size.item() > FAR:
                break
        return error(w)

    return setup, ours, theirs


@kind("t", "w", large={"shape": (64, 64)}, most=300)
def lbfgs() -> Forms:
    """Quasi-Newton descent on a target that moves: the last four steps and changes of slope grow, and then roll."""
    memory = 4

    def setup(steps: int, shape: tuple[int, ...] = (8,)) -> Data:
        return {"c": 1.0 + normal(0, *shape) ** 2, "t": normal(1, *shape), "w": normal(2, *shape)}

    def direction(total: Any, g: Any, past: list[tuple[Any, Any]]) -> Any:
        """Return the product of the inverse Hessian that the past tells and the slope, by the two loops of Nocedal."""
        d, noted = g, []
        for s, y in reversed(past):
            rho = 1.0 / total(s * y)
            a = rho * total(s * d)
            d = d - a * y
            noted.append((rho, a))
        if past:
            s, y = past[-1]
            d = d * (total(s * y) / total(y * y))
        for (s, y), (rho, a) in zip(past, reversed(noted), strict=True):
            d = d + (a - rho * total(y * d)) * s
        return d

    def ours(steps: int, c: us.Tensor, t: us.Tensor, w: us.Tensor, read: Read, watch: Watch) -> us.Tensor:
        past: list[tuple[us.Tensor, us.Tensor]] = []
        for k in range(steps):
            goal = t * (1.0 + 0.2 * np.sin(0.3 * k))

            def error(w: us.Tensor, goal: us.Tensor = goal) -> us.Tensor:
                return 0.5 * us.sum(c * (w - goal) ** 2) + 0.3 * us.sum(us.cos(w))

            loss = error(w)
            g = loss.grad(w)
            new = w - 0.5 * direction(us.sum, g, past)
            past = [*past, (new - w, error(new).grad(new) - g)][-memory:]
            w = new
            watch(k, loss, g, w, *past[-1])
            if read(loss) > FAR:
                break
        return us.sum(w * w)

    def theirs(torch: Any, steps: int, c: Any, t: Any, w: Any) -> Any:
        past: list[tuple[Any, Any]] = []
        for k in range(steps):
            goal = t * (1.0 + 0.2 * np.sin(0.3 * k))

            def error(w: Any, goal: Any = goal) -> Any:
                return 0.5 * (c * (w - goal) ** 2).sum() + 0.3 * torch.cos(w).sum()

            loss = error(w)
            g = torch.autograd.grad(loss, w, create_graph=True)[0]
            new = w - 0.5 * direction(torch.sum, g, past)
            slope = torch.autograd.grad(error(new), new, create_graph=True)[0]
            past = [*past, (new - w, slope - g)][-memory:]
            w = new
            if loss.item() > FAR:
                break
        return (w * w).sum()

    return setup, ours, theirs
