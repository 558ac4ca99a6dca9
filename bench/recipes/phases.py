"""The phase diagram: many loops, each of which stops by itself, with their slopes."""

from __future__ import annotations

import numpy as np

from bench.recipes.common import STOPS, Problem, Run, cannot, page, workload
from bench.suite.workload import Form, Outcome, outcome


def couplings(points: int) -> Problem:
    """Return the points of a square as the page makes them."""
    K1, K2 = np.meshgrid(np.linspace(0.1, 0.9, points), np.linspace(0.1, 0.9, points))
    return {"K1": K1.ravel(), "K2": K2.ravel()}


def gathered(values: object, by_K1: object, by_K2: object) -> Outcome:
    """Return what all members found; the sum of their values stands for them."""
    return outcome(float(np.sum(values)), [np.asarray(by_K1), np.asarray(by_K2)])


def ensemble(quick: bool):  # type: ignore[no-untyped-def]
    """Return the plain loop of the page, one after another, or its form in batches."""

    def make(given: Problem) -> Run:
        import unspool as us

        names = page("phase-diagram")
        member = names["quick"] if quick else lambda p: names["free_energy"](p["K1"], p["K2"])[0]

        def run() -> Outcome:
            found = us.ensemble(member, given)
            return gathered(found.values, found.gradients["K1"], found.gradients["K2"])

        return run

    return make


def torch_loops(given: Problem) -> Run:
    """Return the same loops in PyTorch, one after another."""
    import torch

    names = page("phase-diagram")
    width, aligned = names["WIDTH"], torch.from_numpy(names["aligned"])
    pairs = torch.from_numpy(np.outer(names["UP_DOWN"], names["UP_DOWN"]))

    def free_energy(K1, K2):  # type: ignore[no-untyped-def]
        v, value, last = torch.ones((2,) * width, dtype=torch.float64), torch.tensor(1.0), 0.0
        column, row = torch.exp(K2 * pairs), torch.exp(K1 * aligned)
        while abs(value.item() - last) > 1e-13:
            last = value.item()
            for _ in range(width):
                v = torch.tensordot(v, column, dims=([0], [0]))
            v = v * row
            size = torch.linalg.norm(v)
            v, value = v / size, torch.log(size) / width
        return value

    def run() -> Outcome:
        values, slopes = [], []
        for point in zip(given["K1"], given["K2"], strict=True):
            leaves = [torch.tensor(K, dtype=torch.float64, requires_grad=True) for K in point]
            value = free_energy(*leaves)
            slopes.append([slope.item() for slope in torch.autograd.grad(value, leaves)])
            values.append(value.item())
        return gathered(values, *np.transpose(slopes))

    return run


WORKLOAD = workload(
    "phase-diagram",
    "a phase diagram",
    __name__,
    couplings,
    (
        Form("unspool, plain loops", "unspool", ensemble(quick=False), "ours"),
        Form("unspool, `us.iterate` in batches", "unspool", ensemble(quick=True), "ours"),
        Form("PyTorch", "torch", torch_loops, "peer"),
        cannot("JAX", STOPS),
    ),
    points=(3, 8),
)
