"""An adaptive solver for hares and lynxes, differentiated in the four parameters."""

from __future__ import annotations

from bench.recipes.common import STOPS, Problem, Run, cannot, ours_outcome, page, torch_outcome, workload
from bench.suite.workload import Form, Outcome

PARAMETERS, START = [1.1, 0.4, 0.4, 0.1], [10.0, 5.0]


def problem(end: float) -> Problem:
    """Return the end of the interval; the rest is on the page."""
    return {"end": end}


def plain(given: Problem) -> Run:
    """Return the plain loop of the page."""
    import unspool as us

    names = page("ode")

    def run() -> Outcome:
        p = us.tensor(PARAMETERS)
        y = names["solve"](names["hunting"](p), us.tensor(START), [0.0, given["end"]])
        return ours_outcome(us.sum(y[-1]), (p,))

    return run


def traced(given: Problem) -> Run:
    """Return the loop over a traced step."""
    import unspool as us

    names = page("ode")

    def run() -> Outcome:
        p = us.tensor(PARAMETERS)
        return ours_outcome(us.sum(names["solve_traced"](p, us.tensor(START), given["end"])), (p,))

    return run


def torch_eager(given: Problem) -> Run:
    """Return the same loop in PyTorch."""
    import torch

    names = page("ode")
    nodes, error_weights, combine = names["NODES"], names["ERROR"], names["combine"]

    def run() -> Outcome:
        p = torch.tensor(PARAMETERS, dtype=torch.float64, requires_grad=True)

        def f(y: torch.Tensor) -> torch.Tensor:
            together = y[0] * y[1]
            return torch.stack([p[0] * y[0] - p[1] * together, p[3] * together - p[2] * y[1]])

        y, t, h = torch.tensor(START, dtype=torch.float64), 0.0, 0.1
        while t < given["end"]:
            h = min(h, given["end"] - t)
            slopes: list[torch.Tensor] = []
            for row in nodes:
                slopes.append(f(y + h * combine(row, slopes)) if row else f(y))
            new = y + h * combine(nodes[-1], slopes)
            scale = 1e-3 + torch.maximum(y.abs(), new.abs())
            error = ((h * combine(error_weights, slopes)).abs() / scale).max().item() / 1e-8
            if error <= 1:
                t, y = (given["end"], new) if h == given["end"] - t else (t + h, new)
            h *= min(5.0, max(0.2, 0.9 * max(error, 1e-10) ** -0.2))
        return torch_outcome(y.sum(), (p,))

    return run


WORKLOAD = workload(
    "ode",
    "an adaptive solver",
    __name__,
    problem,
    (
        Form("unspool, plain loop", "unspool", plain, "ours"),
        Form("unspool, `@us.fragment`", "unspool", traced, "ours"),
        Form("PyTorch", "torch", torch_eager, "peer"),
        cannot("JAX", STOPS),
    ),
    end=(3.0, 100.0),
)
