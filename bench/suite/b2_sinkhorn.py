"""B2: Sinkhorn's iteration in the log domain for entropic transport, and the gradient of ⟨P, C⟩ in the costs.

The loop sets the potentials f and g in turn,

    f_i = −ε log Σ_j b_j exp((g_j − C_ij)/ε),    g_j = −ε log Σ_i a_i exp((f_i − C_ij)/ε),

until no entry of f changes by 1e-6 or more. Then P_ij = a_i exp((f_i + g_j − C_ij)/ε) b_j, and the gradient goes
through all the steps.

Everybody's plain loop does just that. ``us.networks.sinkhorn`` does the same in scalings relative to reference
potentials: two products with a matrix for a step, instead of two matrices of exponentials. Potentials, steps and
derivatives are the same. So that like is compared with like, there is a plain loop of ours, and the scaled form in
PyTorch and by hand: the forms named "scaled".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from bench.suite.loops import Compiled, checkpointed_loop, masked_scan
from bench.suite.workload import Bar, Form, Outcome, Workload, by_size, outcome

WIDTH = 5e-3  # ε
TOLERANCE = 1e-6
MOST = 500  # a loop that is compiled has to say how many steps it takes at most


class Transport(NamedTuple):
    """Costs and two sets of masses."""

    cost: Any
    source: Any
    target: Any


def problem(n: int) -> Transport:
    """Return squared distances in the unit square, and random masses."""
    rng = np.random.default_rng(0)
    x, y, a, b = rng.uniform(size=(n, 2)), rng.uniform(size=(n, 2)), rng.uniform(0.5, 1.5, n), rng.uniform(0.5, 1.5, n)
    return Transport(np.sum((x[:, None] - y) ** 2, axis=-1), a / a.sum(), b / b.sum())


# --- unspool ---------------------------------------------------------------------------------------------------------


def driver(problem: Transport) -> Callable[[], Outcome]:
    """The loop of the library."""
    import unspool as us

    def run() -> Outcome:
        C = us.tensor(problem.cost)
        found = us.networks.sinkhorn(C, problem.source, problem.target, regularisation=WIDTH, tol=TOLERANCE)
        return outcome(found.cost, found.cost.grad(C), found.steps)

    return run


def ours(problem: Transport, form: Literal["plain", "fragment", "remat", "iterate"]) -> Callable[[], Outcome]:
    """The loop that the peers have. Under ``remat`` a step holds f and g for its derivative, and nothing else."""
    import unspool as us

    _, a, b = problem
    log_a, log_b = np.log(a), np.log(b)

    def step(C: Any, g: Any) -> tuple[Any, Any]:
        f = -WIDTH * us.logsumexp((g - C) / WIDTH + log_b, axis=1)
        g = -WIDTH * us.logsumexp((f[:, None] - C) / WIDTH + log_a[:, None], axis=0)
        return f, g

    advance: Any = {"fragment": us.fragment, "remat": us.remat}.get(form, lambda function: function)(step)

    def loop(C: Any) -> tuple[Any, Any, int]:
        f, g, steps, change = us.zeros(a.shape), us.zeros(b.shape), 0, np.inf
        while change >= TOLERANCE:
            before, (f, g) = f, advance(C, g)
            steps, change = steps + 1, float(us.max(abs(f - before)))
        return f, g, steps

    def inside(C: Any) -> tuple[Any, Any, int]:
        start = us.zeros(a.shape), us.zeros(b.shape)
        (f, g), steps = us.iterate(
            lambda state: step(C, state[1]), start, until=lambda new, old: us.max(abs(new[0] - old[0])) < TOLERANCE
        )
        return f, g, steps

    def run() -> Outcome:
        C = us.tensor(problem.cost)
        f, g, steps = inside(C) if form == "iterate" else loop(C)
        loss = us.sum(a[:, None] * us.exp((f[:, None] + g - C) / WIDTH) * b * C)
        return outcome(loss, loss.grad(C), steps)

    return run


# --- peers -----------------------------------------------------------------------------------------------------------


def torch_eager(problem: Transport, checkpointed: bool = False) -> Callable[[], Outcome]:
    """A plain loop; ``checkpointed`` recomputes each step in the backward pass."""
    import torch
    from torch.utils.checkpoint import checkpoint

    a, b = map(torch.from_numpy, problem[1:])
    log_a, log_b = a.log(), b.log()

    def step(c: Any, g: Any) -> tuple[Any, Any]:
        f = -WIDTH * torch.logsumexp((g - c) / WIDTH + log_b, 1)
        g = -WIDTH * torch.logsumexp((f[:, None] - c) / WIDTH + log_a[:, None], 0)
        return f, g

    def run() -> Outcome:
        c = torch.tensor(problem.cost, requires_grad=True)
        f, g, steps, change = torch.zeros_like(a), torch.zeros_like(b), 0, np.inf
        while change >= TOLERANCE:
            before, (f, g) = f, checkpoint(step, c, g, use_reentrant=False) if checkpointed else step(c, g)
            steps, change = steps + 1, (f - before).abs().max().item()
        loss = (a[:, None] * torch.exp((f[:, None] + g - c) / WIDTH) * b * c).sum()
        (gradient,) = torch.autograd.grad(loss, c)
        return outcome(loss.item(), gradient, steps)

    return run


def torch_scaled(problem: Transport) -> Callable[[], Outcome]:
    """What `unspool.networks.sinkhorn` does: a step in the log domain, then scalings of a kernel."""
    import torch

    a, b = map(torch.from_numpy, problem[1:])

    def run() -> Outcome:
        c = torch.tensor(problem.cost, requires_grad=True)
        f = -WIDTH * torch.logsumexp(-c / WIDTH + b.log(), 1)
        g = -WIDTH * torch.logsumexp((f[:, None] - c) / WIDTH + a.log()[:, None], 0)
        g0 = g.detach()
        f0 = (c.detach() - g0).min(1).values
        kernel, v, before = torch.exp((f0[:, None] + g0 - c) / WIDTH), torch.exp((g - g0) / WIDTH), f.detach()
        steps, change = 1, np.inf
        while change >= TOLERANCE:
            u = 1.0 / (kernel @ (b * v))
            v = 1.0 / ((a * u) @ kernel)
            f = f0 + WIDTH * u.detach().log()
            steps, change, before = steps + 1, (f - before).abs().max().item(), f
        loss = ((a * u)[:, None] * kernel * (b * v) * c).sum()
        (gradient,) = torch.autograd.grad(loss, c)
        return outcome(loss.item(), gradient, steps)

    return run


def jax_loop(problem: Transport, form: Literal["scan", "checkpoint", "equinox"]) -> Callable[[], Outcome]:
    """A compiled loop: a scan of fixed length that does nothing after the stop, or the checkpointed loop of Equinox."""
    import jax
    from jax import numpy as jnp
    from jax.scipy.special import logsumexp

    loops: dict[str, Callable[..., tuple[Any, Any]]] = {
        "scan": masked_scan,
        "checkpoint": partial(masked_scan, wrap=jax.checkpoint),
        "equinox": checkpointed_loop,
    }

    def loss(c: Any, a: Any, b: Any) -> Any:
        log_a, log_b = jnp.log(a), jnp.log(b)

        def advance(state: Any) -> Any:
            before, g = state
            f = -WIDTH * logsumexp((g - c) / WIDTH + log_b, axis=1)
            g = -WIDTH * logsumexp((f[:, None] - c) / WIDTH + log_a[:, None], axis=0)
            return (f, g), jax.lax.stop_gradient(jnp.abs(f - before).max())

        (f, g), steps = loops[form](advance, (jnp.zeros_like(a), jnp.zeros_like(b)), TOLERANCE, MOST)
        return (a[:, None] * jnp.exp((f[:, None] + g - c) / WIDTH) * b * c).sum(), steps

    return Compiled(loss, *problem)


def autograd_boxes(problem: Transport) -> Callable[[], Outcome]:
    """HIPS autograd: a plain loop on boxed values; a box shows its array."""
    import autograd.numpy as anp
    from autograd import value_and_grad
    from autograd.scipy.special import logsumexp

    cost, a, b = problem
    log_a, log_b = np.log(a), np.log(b)

    def run() -> Outcome:
        steps = 0

        def loss(c: Any) -> Any:
            nonlocal steps
            f, g, seen, change = anp.zeros_like(a), anp.zeros_like(b), anp.zeros_like(a), np.inf
            while change >= TOLERANCE:
                f = -WIDTH * logsumexp((g - c) / WIDTH + log_b, axis=1)
                g = -WIDTH * logsumexp((f[:, None] - c) / WIDTH + log_a[:, None], axis=0)
                steps, change, seen = steps + 1, np.abs(f._value - seen).max(), f._value
            return anp.sum(a[:, None] * anp.exp((f[:, None] + g - c) / WIDTH) * b * c)

        value, gradient = value_and_grad(loss)(cost)
        return outcome(value, gradient, steps)

    return run


# --- by hand ---------------------------------------------------------------------------------------------------------


def by_hand(problem: Transport) -> Callable[[], Outcome]:
    """Keep f and g of each step, and recompute the matrices of exponentials in the backward pass, all in one buffer.

    With the potential of the rows at hand, their weights need no maximum: S_ij = exp((g_j − C_ij + f_i)/ε) b_j, and
    likewise for the columns. Costs and potentials are in units of ε throughout.
    """
    cost, a, b = problem
    log_a, log_b = np.log(a), np.log(b)
    buffer = np.empty_like(cost)

    def potential(scaled: Any, other: Any, axis: int) -> Any:
        """Return −log Σ exp(other − cost) along an axis, taking the largest term out."""
        np.subtract(other, scaled, out=buffer)
        top = buffer.max(axis=axis, keepdims=True)
        np.exp(np.subtract(buffer, top, out=buffer), out=buffer)
        return -(np.squeeze(top, axis) + np.log(buffer.sum(axis=axis)))

    def weights(scaled: Any, f: Any, g: Any) -> Any:
        np.subtract(f[:, None], scaled, out=buffer)
        return np.exp(np.add(buffer, g, out=buffer), out=buffer)

    def run() -> Outcome:
        scaled = cost / WIDTH
        f, g, states, change = np.zeros(a.shape), np.zeros(b.shape), [], np.inf
        while change >= TOLERANCE:
            before, f = f, potential(scaled, g + log_b, 1)
            states.append((g, f))
            g = potential(scaled, (f + log_a)[:, None], 0)
            change = WIDTH * np.abs(f - before).max()
        plan = weights(scaled, f + log_a, g + log_b).copy()
        slope = plan * scaled
        value, gradient = WIDTH * float(slope.sum()), plan - slope
        f_bar, g_bar, g_after = slope.sum(axis=1), slope.sum(axis=0), g
        for g_before, f in reversed(states):
            columns = weights(scaled, f + log_a, g_after)
            columns *= g_bar
            gradient += columns
            f_bar -= columns.sum(axis=1)
            rows = weights(scaled, f, g_before + log_b)
            rows *= f_bar[:, None]
            gradient += rows
            g_bar, f_bar, g_after = -rows.sum(axis=0), np.zeros(a.shape), g_before
        return outcome(value, gradient, len(states))

    return run


def by_hand_scaled(problem: Transport) -> Callable[[], Outcome]:
    """The scaled loop: keep u and v of each step; the kernel's gradient is one product of them all, at the end."""
    cost, a, b = problem

    def run() -> Outcome:
        first = np.exp(-(cost - (least := cost.min(axis=1))[:, None]) / WIDTH)
        f = least - WIDTH * np.log(first @ b)
        second = (f[:, None] - cost) / WIDTH
        g = -WIDTH * ((top := second.max(axis=0)) + np.log(a @ np.exp(second - top)))
        f0 = (cost - g).min(axis=1)
        kernel = np.exp((f0[:, None] + g - cost) / WIDTH)
        v, us, vs, change, before = np.ones(b.shape), [], [np.ones(b.shape)], np.inf, f
        while change >= TOLERANCE:
            u = 1.0 / (kernel @ (b * v))
            v = 1.0 / ((a * u) @ kernel)
            us.append(u)
            vs.append(v)
            now = f0 + WIDTH * np.log(u)
            change, before = np.abs(now - before).max(), now
        moved = (a * u)[:, None] * kernel * (b * v)
        paid = moved * cost
        u_bar, v_bar, lefts, rights = paid.sum(axis=1) / u, paid.sum(axis=0) / v, [], []
        for u, v, v_before in zip(us[::-1], vs[:0:-1], vs[-2::-1], strict=True):
            v_bar *= -v * v
            lefts.append(a * u)
            rights.append(v_bar)
            u_bar = (u_bar + a * (kernel @ v_bar)) * (-u * u)
            lefts.append(u_bar)
            rights.append(b * v_before)
            u_bar, v_bar = 0.0, b * (u_bar @ kernel)
        gradient = moved - (paid + (np.array(lefts).T @ np.array(rights)) * kernel) / WIDTH
        # The step in the log domain: v = exp((g − g₀)/ε) = 1 at the reference, with the slope of g.
        g_bar = v_bar / WIDTH
        columns = np.exp(second + g / WIDTH) * a[:, None] * g_bar
        rows = np.exp((f[:, None] - cost) / WIDTH) * b * -columns.sum(axis=1)[:, None]
        gradient += columns + rows
        return outcome(paid.sum(), gradient, len(us) + 1)

    return run


# --- the workload ----------------------------------------------------------------------------------------------------


WORKLOAD = Workload(
    key="B2",
    title="log-Sinkhorn, ε = 5e-3",
    sizes=by_size(n=(100, 400, 1000)),
    problem=problem,
    forms=(
        Form("unspool, driver", "unspool", driver, "ours"),
        Form("unspool, plain", "unspool", partial(ours, form="plain"), "ours"),
        Form("unspool, fragment", "unspool", partial(ours, form="fragment"), "ours"),
        Form("unspool, remat", "unspool", partial(ours, form="remat"), "ours"),
        Form("unspool, iterate", "unspool", partial(ours, form="iterate"), "ours"),
        Form("PyTorch", "torch", torch_eager, "peer"),
        Form("PyTorch, checkpoint", "torch", partial(torch_eager, checkpointed=True), "peer"),
        Form("PyTorch, scaled", "torch", torch_scaled, "peer"),
        Form("JAX scan", "jax", partial(jax_loop, form="scan"), "peer"),
        Form("JAX scan, checkpoint", "jax", partial(jax_loop, form="checkpoint"), "peer"),
        Form("Equinox", "equinox", partial(jax_loop, form="equinox"), "peer"),
        Form("autograd", "autograd", autograd_boxes, "peer"),
        Form("by hand", "numpy", by_hand, "limit"),
        Form("by hand, scaled", "numpy", by_hand_scaled, "limit"),
    ),
    bars=(Bar("peer", 1.2), Bar("peer", 0.2, "memory")),
)
