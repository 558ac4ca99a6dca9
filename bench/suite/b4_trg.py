"""B4: the 2-D Ising model by TRG, energy and specific heat: first and second derivative of lnZ through the loop.

In every step two SVDs are cut at a rank that is read off the singular values. Values that are dropped are rounding and
equal, and rules that divide by their differences give NaN. All peers run the very same lines, those of
``bench/nan_in_peers.py``; PyTorch does so a second time with an SVD rule written by hand. Ours is `us.networks.trg`,
which is a plain loop. There is no form with `us.iterate`: shapes change while ranks grow.

JAX cannot read ranks while it compiles, so it is given them, from a run in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bench.suite.workload import Bar, Form, Options, Outcome, Reference, Row, Special, Workload, by_size, outcome

BETA = 0.4
CUTOFF = 1e-12  # singular values below this much of the largest one are dropped
Problem = dict[str, Any]
Run = Callable[[], Outcome]


def problem(rank: int, order: int) -> Problem:
    """Return the inverse temperature, the rank, and how often to differentiate."""
    return {"beta": BETA, "rank": rank, "order": order}


# --- ours ------------------------------------------------------------------------------------------------------------


def by_unspool(problem: Problem) -> Run:
    """The loop of the package: a step records two SVDs and what joins their halves, and reads the ranks and lnZ."""
    import unspool as us

    def run() -> Outcome:
        beta = us.tensor(problem["beta"])
        found = us.networks.trg(beta, rank=problem["rank"], cutoff=CUTOFF)
        slopes = [found.log_partition.grad(beta)]
        if problem["order"] == 2:
            slopes.append(slopes[0].grad(beta))
        return outcome(float(found.log_partition), us.eval(slopes), found.steps)

    return run


# --- PyTorch ---------------------------------------------------------------------------------------------------------


def by_torch(problem: Problem) -> Run:
    """PyTorch, eager, with its own SVD."""
    import torch

    return _torch(problem, lambda matrix: torch.linalg.svd(matrix, full_matrices=False))


def by_torch_safe(problem: Problem) -> Run:
    """PyTorch, eager, with an SVD whose rule leaves out gaps that are zero."""
    from bench.suite.safe_svd_torch import safe_svd

    return _torch(problem, safe_svd)


def _torch(problem: Problem, svd: Callable[[Any], Any]) -> Run:
    import torch

    from bench import nan_in_peers as loop

    functions = _functions(torch, svd, torch.permute, torch.tensor)
    functions.count = lambda s: int((s > CUTOFF * s[0]).sum().item())
    legs = [torch.tensor(mask) for mask in loop.leg_masks()]

    def run() -> Outcome:
        beta = torch.tensor(problem["beta"], dtype=torch.float64, requires_grad=True)
        value = loop.log_partition(functions, _site(torch, beta, legs), problem["rank"])
        (slope,) = torch.autograd.grad(value, beta, create_graph=problem["order"] == 2)
        slopes = [slope.item()]
        if problem["order"] == 2:
            slopes.append(torch.autograd.grad(slope, beta)[0].item())
        return outcome(value.item(), slopes, loop.STEPS)

    return run


# --- JAX and autograd ------------------------------------------------------------------------------------------------


def by_jax(problem: Problem) -> Run:
    """JAX, all steps unrolled into one compiled function."""
    import jax
    import jax.numpy as jnp

    from bench import nan_in_peers as loop

    legs, ranks = loop.leg_masks(), _ranks(problem)

    def log_partition(beta: Any) -> Any:
        functions, known = _functions(jnp, _jax_svd, jnp.transpose, jnp.asarray), iter(ranks)
        functions.count = lambda s: next(known)
        return loop.log_partition(functions, _site(jnp, beta, legs), problem["rank"])

    def _jax_svd(matrix: Any) -> Any:
        return jnp.linalg.svd(matrix, full_matrices=False)

    def slopes(beta: Any) -> Any:
        if problem["order"] == 1:
            value, slope = jax.value_and_grad(log_partition)(beta)
            return value, (slope,)
        (value, slope), curvature = jax.jvp(jax.value_and_grad(log_partition), (beta,), (jnp.ones_like(beta),))
        return value, (slope, curvature[1])

    compiled = jax.jit(slopes)

    def run() -> Outcome:
        value, found = compiled(jnp.asarray(problem["beta"]))
        return outcome(value, found, loop.STEPS)

    return run


def by_autograd(problem: Problem) -> Run:
    """HIPS autograd."""
    import autograd
    import autograd.numpy as anp

    from bench import nan_in_peers as loop

    functions = _functions(anp, lambda a: anp.linalg.svd(a, full_matrices=False), anp.transpose, lambda a: a)
    functions.count = _count
    legs = loop.leg_masks()

    def log_partition(beta: Any) -> Any:
        return loop.log_partition(functions, _site(anp, beta, legs), problem["rank"])

    def run() -> Outcome:
        with np.errstate(all="ignore"):
            value, slope = autograd.value_and_grad(log_partition)(problem["beta"])
            slopes = [slope]
            if problem["order"] == 2:
                slopes.append(autograd.grad(autograd.grad(log_partition))(problem["beta"]))
        return outcome(value, slopes, loop.STEPS)

    return run


# --- what they share -------------------------------------------------------------------------------------------------


def _functions(*of_library: Any) -> Any:
    from bench.nan_in_peers import Functions

    return Functions(*of_library)


def _site(module: Any, beta: Any, legs: list[Any]) -> Any:
    """Return the tensor of a site, whose entries have an even number of odd legs."""
    cosh, sinh = module.cosh(beta), module.sinh(beta)
    return 2 * (cosh * cosh * legs[0] + cosh * sinh * legs[1] + sinh * sinh * legs[2])


def _count(s: Any) -> int:
    values = s
    while hasattr(values, "_value"):
        values = values._value
    return int(np.sum(values > CUTOFF * values[0]))


def _ranks(problem: Problem) -> list[int]:
    """Return how many singular values are not rounding, for all SVDs in turn."""
    from bench import nan_in_peers as loop

    found: list[int] = []
    functions = _functions(np, lambda a: np.linalg.svd(a, full_matrices=False), np.transpose, np.asarray)

    def count(s: Any) -> int:
        found.append(_count(s))
        return found[-1]

    functions.count = count
    loop.log_partition(functions, _site(np, problem["beta"], loop.leg_masks()), problem["rank"])
    return found


def reference(problem: Problem) -> Reference:
    """Return lnZ and its derivatives from the table of another program, whose c is right to about 3e-8."""
    from bench.networks_trg import TRG_TABLE

    log_z, energy, heat = TRG_TABLE[problem["beta"], problem["rank"]].values
    slopes = [-energy, heat / problem["beta"] ** 2]
    order = problem["order"]
    return Reference(log_z, np.array(slopes[:order]), 1e-9 if order == 1 else 1e-7)


# --- the workload ----------------------------------------------------------------------------------------------------

SAFE = "PyTorch, safe SVD"
NATIVE = ("PyTorch, its own SVD", "JAX unrolled", "autograd")
FORMS = (
    Form("unspool, networks.trg", "unspool", by_unspool, "ours"),
    Form(SAFE, "torch", by_torch_safe, "peer"),
    Form(NATIVE[0], "torch", by_torch, "peer"),
    Form(NATIVE[1], "jax", by_jax, "peer"),
    Form(NATIVE[2], "autograd", by_autograd, "peer"),
)

# Left out where it would take long to find that the second derivative is NaN where the first one is.
NAN_BEFORE = "the first derivative is NaN"
LIMITS = {
    NATIVE[1]: dict.fromkeys(("small", "medium", "large"), NAN_BEFORE),
    NATIVE[2]: {"large": NAN_BEFORE},
}


FIRST = Workload(
    key="B4",
    title="TRG of the Ising model, 30 steps, energy",
    sizes=by_size(rank=(8, 16, 24), order=1),
    problem=problem,
    forms=FORMS,
    reference=reference,
    where="bench.suite.b4_trg:FIRST",
)
SECOND = replace(
    FIRST,
    title="TRG of the Ising model, 30 steps, energy and specific heat",
    sizes=by_size(rank=(8, 16, 24), order=2),
    forms=tuple(replace(form, limits=LIMITS.get(form.name, {})) for form in FORMS),
    where="bench.suite.b4_trg:SECOND",
)
CASES = {"first derivative": FIRST, "second derivative": SECOND}


def run(options: Options) -> list[Row]:
    """Measure both derivatives; the first has JAX in it, which compiles, and more of the time."""
    from bench.suite.measure import measure

    rows: list[Row] = []
    for (case, workload), share in zip(CASES.items(), (0.7, 0.3), strict=True):
        rows += measure(workload, replace(options, seconds=share * options.seconds), case=case)
    return rows


WORKLOAD = Special(
    key="B4",
    title="TRG of the Ising model, 30 steps: energy, and energy with specific heat",
    run=run,
    bars=(
        Bar(SAFE, 1.0, case="first derivative"),
        Bar("; ".join(NATIVE), quantity="right", case="first derivative"),
    ),
)
