"""What the workloads of the recipes share: the programs of the pages, and how a workload is put together."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.suite.workload import Form, Outcome, Workload, outcome

MAKE = Path(__file__).resolve().parents[2] / "docs" / "recipes" / "make.py"

Problem = dict[str, Any]
Run = Callable[[], Outcome]

# Why a compiled loop of JAX has no part in a workload.
STOPS = "no reverse mode for a loop that stops on a value"


def page(name: str) -> dict[str, Any]:
    """Run the program of a page and return its names."""
    spec = importlib.util.spec_from_file_location("recipes_make", MAKE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    names: dict[str, Any] = module.program(name)
    return names


def workload(key: str, title: str, module: str, problem: Any, forms: tuple[Form, ...], **sizes: Any) -> Workload:
    """Return a workload; sizes are given as (small, medium) by parameter. Small ones are for tests."""
    chosen = {
        size: {name: given[place] for name, given in sizes.items()} for place, size in enumerate(("small", "medium"))
    }
    where = module if ":" in module else f"{module}:WORKLOAD"
    return Workload(key=key, title=title, sizes=chosen, problem=problem, forms=forms, where=where)


def cannot(name: str, reason: str) -> Form:
    """Return a row that says why a library has no part in a workload."""

    def make(problem: Problem) -> Run:
        raise NotImplementedError(reason)

    return Form(name, "jax", make, "peer", reason=reason)


def torch_outcome(loss: Any, variables: Any, steps: int = 0) -> Outcome:
    """Return what PyTorch computed, with the gradient of a loss in some variables."""
    import torch

    gradients = torch.autograd.grad(loss, variables)
    return outcome(loss.item(), [gradient.numpy() for gradient in gradients], steps)


def ours_outcome(loss: Any, variables: Any, steps: int = 0) -> Outcome:
    """Return what unspool computed, with the gradient of a loss in some variables."""
    import unspool as us

    gradients = us.eval(loss.grad(tuple(variables)))
    return outcome(float(loss), list(gradients), steps)
