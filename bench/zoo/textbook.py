"""Methods as textbooks have them: grids, rotations and sweeps, roots, self-consistent fields, gates, a cache."""

from __future__ import annotations

from typing import Any

import numpy as np

import unspool as us
from bench.zoo.kind import FAR, Data, Forms, Read, Watch, contraction, kind, normal, symmetric


@kind("u", "c", large={"n": 4096})
def wave() -> Forms:
    """The wave equation: the inner part of the state before the last, which the step before has read as well."""

    def setup(steps: int, n: int = 20) -> Data:
        return {"u": np.exp(-(np.linspace(-3.0, 3.0, n) ** 2)), "c": 0.25 + 0.02 * normal(0, n - 2)}

    def ours(steps: int, u: us.Tensor, c: us.Tensor, read: Read, watch: Watch) -> us.Tensor:
        old, traces, n = u, [], u.shape[0]
        for k in range(steps):
            bent = u[2:] - 2 * u[1:-1] + u[:-2]
            inner = 2 * u[1:-1] - old[1:-1] + c * bent
            old, u = u, us.concatenate([us.zeros(1), inner, us.zeros(1)])
            traces.append(u[n // 3])
            watch(k, bent, u)
            if read(u[3]) > FAR:
                break
        return sum(trace * trace for trace in traces) * (1.0 / steps)

    def theirs(torch: Any, steps: int, u: Any, c: Any) -> Any:
        old, traces, n = u, [], u.shape[0]
        end = torch.zeros(1, dtype=u.dtype)
        for _ in range(steps):
            bent = u[2:] - 2 * u[1:-1] + u[:-2]
            inner = 2 * u[1:-1] - old[1:-1] + c * bent
            old, u = u, torch.cat([end, inner, end])
            traces.append(u[n // 3])
            if u[3].item() > FAR:
                break
        return sum(trace * trace for trace in traces) * (1.0 / steps)

    return setup, ours, theirs


@kind("A", large={"n": 64})
def rotations() -> Forms:
    """Jacobi's method for eigenvalues: a rotation of two rows and two columns, which ones by counter."""

    def setup(steps: int, n: int = 5) -> Data:
        return {"A": symmetric(0, n) + np.diag(2.0 * np.arange(n))}

    def pair(k: int, n: int) -> tuple[int, int]:
        rows, columns = np.triu_indices(n, 1)
        return int(rows[k % len(rows)]), int(columns[k % len(rows)])

    def ours(steps: int, A: us.Tensor, read: Read, watch: Watch) -> us.Tensor:
        n = A.shape[0]
        for k in range(steps):
            p, q = pair(k, n)
            off, half = A[p, q], 0.5 * (A[q, q] - A[p, p])
            t = off / (half + us.sqrt(half * half + off * off + 1e-3))
            c = 1 / us.sqrt(t * t + 1)
            s = t * c
            up, low = A[p], A[q]
            A = A.at[p].set(c * up - s * low)
            A = A.at[q].set(s * up + c * low)
            left, right = A[:, p], A[:, q]
            A = A.at[:, p].set(c * left - s * right)
            A = A.at[:, q].set(s * left + c * right)
            watch(k, off, half, t, c, s, A)
            if read(off) > FAR:
                break
        return us.sum(us.diagonal(A) * np.arange(1.0, n + 1.0)) + us.sum(A * A * A)

    def theirs(torch: Any, steps: int, A: Any) -> Any:
        n = A.shape[0]
        for k in range(steps):
            p, q = pair(k, n)
            off, half = A[p, q], 0.5 * (A[q, q] - A[p, p])
            t = off / (half + torch.sqrt(half * half + off * off + 1e-3))
            c = 1 / torch.sqrt(t * t + 1)
            s = t * c
            up, low = A[p], A[q]
            A = A.clone()
            A[p], A[q] = c * up - s * low, s * up + c * low
            left, right = A[:, p].clone(), A[:, q].clone()
            A = A.clone()
            A[:, p], A[:, q] = c * left - s * right, s * left + c * right
            if off.item() > FAR:
                break
        return (torch.diagonal(A) * torch.arange(1.0, n + 1.0, dtype=A.dtype)).sum() + (A * A * A).sum()

    return setup, ours, theirs


@kind("a", "b", large={"n": 4096})
def secant() -> Forms:
    """Roots by secants, and of the next equation when they are found: two states, which are one at the start."""

    def setup(steps: int, n: int = 4) -> Data:
        return {"a": 1.0 + np.abs(normal(0, n)), "b": np.array(0.3)}

    def ours(steps: int, a: us.Tensor, b: us.Tensor, read: Read, watch: Watch) -> us.Tensor:
        def f(x: us.Tensor) -> us.Tensor:
            return x * x + b * us.sin(x) - a

        before, x = 0.5 * a, a
        last = f(before)
        for k in range(steps):
            now = f(x)
            new = x - now * (x - before) / (now - last + 1e-3)
            before, last, x = x, now, new
            watch(k, now, x)
            if read(us.max(us.abs(now))) < 1e-4:
                a = a + 0.1 * x
                before = 0.8 * x
                last = f(before)
        return us.sum(x * x)

    def theirs(torch: Any, steps: int, a: Any, b: Any) -> Any:
        def f(x: Any) -> Any:
            return x * x + b * torch.sin(x) - a

        before, x = 0.5 * a, a
        last = f(before)
        for _ in range(steps):
            now = f(x)
            new = x - now * (x - before) / (now - last + 1e-3)
            before, last, x = x, now, new
            if now.abs().max().item() < 1e-4:
                a = a + 0.1 * x
                before = 0.8 * x
                last = f(before)
        return (x * x).sum()

    return setup, ours, theirs


@kind("h", "g", large={"n": 16}, most=400)
def diis() -> Forms:
    """A self-consistent field: `eigh` in the step, mixing of the last four matrices by the overlaps of their errors."""

    def setup(steps: int, n: int = 4) -> Data:
        return {"h": symmetric(0, n) + np.diag(2.0 * np.arange(n)), "g": 0.3 * symmetric(1, n)}

    def ours(steps: int, h: us.Tensor, g: us.Tensor, read: Read, watch: Watch) -> us.Tensor:
        n = h.shape[0]
        P, matrices, errors = us.constant(np.diag([1.0] + [0.0] * (n - 1))), [], []
        for k in range(steps):
            F = h + g * P + us.diag(g @ us.diagonal(P))
            matrices, errors = [*matrices, F][-4:], [*errors, F @ P - P @ F][-4:]
            E = us.stack([us.reshape(error, (n * n,)) for error in errors])
            c = us.linalg.solve(E @ E.T + 0.01 * np.eye(len(errors)), us.ones(len(errors)))
            F = us.tensordot(c / us.sum(c), us.stack(matrices), 1)
            v = us.linalg.eigh(F)[1][:, :1]
            P = 0.8 * v @ v.T + 0.2 * P
            watch(k, errors[-1], E, c, F, P)
            if read(P[0, 0]) > FAR:
                break
        return us.sum(P * h) + us.sum(P * P * g)

    def theirs(torch: Any, steps: int, h: Any, g: Any) -> Any:
        n = h.shape[0]
        P, matrices, errors = torch.diag(torch.tensor([1.0] + [0.0] * (n - 1), dtype=h.dtype)), [], []
        for _ in range(steps):
            F = h + g * P + torch.diag(g @ torch.diagonal(P))
            matrices, errors = [*matrices, F][-4:], [*errors, F @ P - P @ F][-4:]
            m = len(errors)
            E = torch.stack([error.reshape(n * n) for error in errors])
            overlaps = E @ E.T + 0.01 * torch.eye(m, dtype=h.dtype)
            c = torch.linalg.solve(overlaps, torch.ones(m, dtype=h.dtype))
            F = torch.tensordot(c / c.sum(), torch.stack(matrices), 1)
            v = torch.linalg.eigh(F)[1][:, :1]
            P = 0.8 * v @ v.T + 0.2 * P
            if P[0, 0].item() > FAR:
                break
        return (P * h).sum() + (P * P * g).sum()

    return setup, ours, theirs


SITES = 5


@kind("J", *(f"M{i}" for i in range(SITES)), large={"rank": 20})
def sweeps() -> Forms:
    """A chain of tensors is swept to and fro by QR, and the centre is turned a little: a list that is written into."""

    def setup(steps: int, rank: int = 3) -> Data:
        ranks = [1, *[rank] * (SITES - 1), 1]
        return {"J": np.array(0.7), **{f"M{i}": normal(i, ranks[i], 2, ranks[i + 1]) for i in range(SITES)}}

    turn = [(i, 1) for i in range(SITES - 1)] + [(i, -1) for i in range(SITES - 1, 0, -1)]
    flip = np.array([[0.0, 1.0], [1.0, 0.0]])

    def ours(steps: int, J: us.Tensor, read: Read, watch: Watch, **tensors: us.Tensor) -> us.Tensor:
        chain, total = list(tensors.values()), us.tensor(0.0)
        for k in range(steps):
            i, way = turn[k % len(turn)]
            a, p, b = chain[i].shape
            if way > 0:
                Q, R = us.linalg.qr(us.reshape(chain[i], (a * p, b)))
                chain[i] = us.reshape(Q, (a, p, -1))
                centre = us.tensordot(R, chain[i + 1], 1)
            else:
                Q, R = us.linalg.qr(us.reshape(chain[i], (a, p * b)).T)
                chain[i] = us.reshape(Q.T, (-1, p, b))
                centre = us.tensordot(chain[i - 1], R.T, 1)
            n = us.linalg.norm(us.reshape(centre, (-1,)))
            centre = centre / n
            chain[i + way] = centre + 0.3 * float(np.cos(k)) * J * us.einsum("apb,pq->aqb", centre, flip)
            total = total + us.log(n)
            watch(k, Q, R, n, chain[i + way])
            if read(n) > FAR:
                break
        return total * (1.0 / steps)

    def theirs(torch: Any, steps: int, J: Any, **tensors: Any) -> Any:
        chain, total, other = list(tensors.values()), torch.zeros((), dtype=J.dtype), torch.tensor(flip)
        for k in range(steps):
            i, way = turn[k % len(turn)]
            a, p, b = chain[i].shape
            if way > 0:
                Q, R = torch.linalg.qr(chain[i].reshape(a * p, b))
                chain[i] = Q.reshape(a, p, -1)
                centre = torch.tensordot(R, chain[i + 1], 1)
            else:
                Q, R = torch.linalg.qr(chain[i].reshape(a, p * b).T)
                chain[i] = Q.T.reshape(-1, p, b)
                centre = torch.tensordot(chain[i - 1], R.T, 1)
            n = torch.linalg.norm(centre)
            centre = centre / n
            chain[i + way] = centre + 0.3 * float(np.cos(k)) * J * torch.einsum("apb,pq->aqb", centre, other)
            total = total + torch.log(n)
            if n.item() > FAR:
                break
        return total * (1.0 / steps)

    return setup, ours, theirs


@kind("Wx", "Wh", "b", "out", raw=("data",), large={"n": 40, "batch": 20})
def gates() -> Forms:
    """An LSTM on batches: gates cut out of one product, a loss in each step."""

    def setup(steps: int, n: int = 4, batch: int = 3) -> Data:
        weights = {"Wx": 0.4 * normal(0, 2, 4 * n), "Wh": 0.4 * normal(1, n, 4 * n), "b": 0.1 * normal(2, 4 * n)}
        return {**weights, "out": normal(3, n, 1), "data": normal(4, steps, batch, 2)}

    def ours(
        steps: int,
        Wx: us.Tensor,
        Wh: us.Tensor,
        b: us.Tensor,
        out: us.Tensor,
        data: np.ndarray,
        read: Read,
        watch: Watch,
    ) -> us.Tensor:
        n = Wh.shape[0]
        h = c = us.zeros((data.shape[1], n))
        loss = us.tensor(0.0)
        for k in range(steps):
            z = data[k] @ Wx + h @ Wh + b
            i, f, o = (1 / (1 + us.exp(-z[:, j * n : (j + 1) * n])) for j in range(3))
            c = f * c + i * us.tanh(z[:, 3 * n :])
            h = o * us.tanh(c)
            loss = loss + us.mean((h @ out - 0.1 * (k % 10)) ** 2)
            watch(k, z, c, h, loss)
            if read(loss) > FAR:
                break
        return loss * (1.0 / steps)

    def theirs(torch: Any, steps: int, Wx: Any, Wh: Any, b: Any, out: Any, data: np.ndarray) -> Any:
        n = Wh.shape[0]
        h = c = torch.zeros((data.shape[1], n), dtype=Wh.dtype)
        loss = torch.zeros((), dtype=Wh.dtype)
        for k in range(steps):
            z = torch.from_numpy(data[k]) @ Wx + h @ Wh + b
            i, f, o = (1 / (1 + torch.exp(-z[:, j * n : (j + 1) * n])) for j in range(3))
            c = f * c + i * torch.tanh(z[:, 3 * n :])
            h = o * torch.tanh(c)
            loss = loss + ((h @ out - 0.1 * (k % 10)) ** 2).mean()
            if loss.item() > FAR:
                break
        return loss * (1.0 / steps)

    return setup, ours, theirs


@kind("Wq", "Wk", "Wv", "x", large={"n": 64}, most=60)
def cache() -> Forms:
    """Attention over a cache that gets a row more in every step."""

    def setup(steps: int, n: int = 4) -> Data:
        return {name: contraction(i, n, 1.0) for i, name in enumerate(["Wq", "Wk", "Wv"])} | {"x": normal(3, n)}

    def ours(
        steps: int, Wq: us.Tensor, Wk: us.Tensor, Wv: us.Tensor, x: us.Tensor, read: Read, watch: Watch
    ) -> us.Tensor:
        keys: list[us.Tensor] = []
        values: list[us.Tensor] = []
        for k in range(steps):
            keys.append(x @ Wk)
            values.append(x @ Wv)
            weights = us.softmax(us.stack(keys) @ (x @ Wq) * 0.5)
            x = us.tanh(x + weights @ us.stack(values))
            watch(k, weights, x)
            if read(x[0]) > FAR:
                break
        return us.sum(x * x)

    def theirs(torch: Any, steps: int, Wq: Any, Wk: Any, Wv: Any, x: Any) -> Any:
        keys: list[Any] = []
        values: list[Any] = []
        for _ in range(steps):
            keys.append(x @ Wk)
            values.append(x @ Wv)
            weights = torch.softmax(torch.stack(keys) @ (x @ Wq) * 0.5, 0)
            x = torch.tanh(x + weights @ torch.stack(values))
            if x[0].item() > FAR:
                break
        return (x * x).sum()

    return setup, ours, theirs


@kind("phase", "x", large={"n": 4096})
def flow() -> Forms:
    """A normalising flow: what is read is the logarithm of a volume, which the state is not needed for."""

    def setup(steps: int, n: int = 3) -> Data:
        return {"phase": 0.3 * normal(0, n), "x": normal(1, n)}

    def ours(steps: int, phase: us.Tensor, x: us.Tensor, read: Read, watch: Watch) -> us.Tensor:
        total = us.tensor(0.0)
        for k in range(steps):
            scale = 1.0 + 0.1 * us.cos(phase + k)
            total = total + us.sum(us.log(us.abs(scale)))
            x = scale * x + 0.1 * us.tanh(phase * x)
            x = x / (1.0 + 0.01 * us.mean(x * x))
            watch(k, scale, total, x)
            if read(total) > FAR:
                break
        return total * (1.0 / steps) + us.sum(x * x)

    def theirs(torch: Any, steps: int, phase: Any, x: Any) -> Any:
        total = torch.zeros((), dtype=x.dtype)
        for k in range(steps):
            scale = 1.0 + 0.1 * torch.cos(phase + k)
            total = total + torch.log(torch.abs(scale)).sum()
            x = scale * x + 0.1 * torch.tanh(phase * x)
            x = x / (1.0 + 0.01 * (x * x).mean())
            if total.item() > FAR:
                break
        return total * (1.0 / steps) + (x * x).sum()

    return setup, ours, theirs
