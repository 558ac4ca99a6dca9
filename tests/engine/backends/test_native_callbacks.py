"""Which ops a native program cannot run without calling Python, and that loops of the usual kinds meet none of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import unspool as us
from bench.suite import (
    b1_power,
    b2_sinkhorn,
    b3_cp_als,
    b4_trg,
    b5_ctmrg,
    b6_tebd,
    b7_dmrg,
    b8_newton_schulz,
    b9_scalar,
)
from bench.suite.workload import Workload
from bench.zoo import KINDS
from tests.samples import Sample, all_samples
from unspool._engine.backends import native
from unspool._engine.backends.native_layout import Unsupported
from unspool._engine.backends.native_program import CALL
from unspool._engine.folding.fold_queue import FEWEST_LONG
from unspool._engine.plan import make_plan
from unspool._fragments.fragment import capture
from unspool.errors import UnspoolError


class Seen:
    """Ops of which the usual case is a call-back, or has no native form, and those that run natively."""

    def __init__(self) -> None:
        self.called: set[str] = set()
        self.native: set[str] = set()


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    if native.WHY_NOT is not None:
        pytest.skip(native.WHY_NOT)
    found, write = Seen(), native._step

    def watched(builder: Any, step: Any, bound: Any) -> Any:
        first = len(builder.instructions)
        try:
            value = write(builder, step, bound)
        except Unsupported:
            found.called.add(step.op.name)
            raise
        calls = any(i[0] == CALL and not i[6][1] for i in builder.instructions[first:])
        (found.called if calls else found.native).add(step.op.name)
        return value

    monkeypatch.setattr(native, "_step", watched)
    us.clear_caches()
    yield found
    us.clear_caches()


# What no sample runs natively: it has no loop of NumPy's or SciPy's that a program could call, or nobody has written
# one yet. An op that is new is either native or here.
# fmt: off
CALLED_BACK = {
    "adjugate", "adjugate_slope", "all", "argmax", "argmin", "argpartition", "argsort", "beta_ratio", "check_basis",
    "convolve_nd", "copy_along", "cosine_integral", "cumprod", "cumsum", "det", "divide_cotangent", "divide_or_zero",
    "eig", "erfcx", "expn", "exponent", "fft", "flip", "fresnel_cosine", "fresnel_sine", "from_parts", "full_rank",
    "full_rank_pinv", "gamma_ratio", "hyp1f1", "hyp2f1", "irfft", "is_edge", "iv", "ive", "jv", "kv", "kve",
    "largest_of_column", "linear_recurrence", "log_gamma_quantile", "logm", "logm_frechet", "lstsq", "lu",
    "matrix_exp", "matrix_exp_frechet", "matrix_rank", "order_of_pivots", "pinv", "pivot_rows",
    "pivots_of_order", "polar_harmonic", "polygamma", "positions", "random_binomial", "random_poisson",
    "recurrence", "relative_size", "rfft", "roll", "round", "scatter_max", "scatter_min", "searchsorted", "shift",
    "shift_rows", "sinc", "sine_integral", "solve_banded", "sort", "sqrtm", "stdtrit", "sum_copies", "sylvester",
    "yv", "zeta",
}
# fmt: on


def double_samples() -> list[Sample]:
    samples = []
    for sample in all_samples():
        if all(np.asarray(a).dtype.kind in "fib" for a in sample.args):
            samples.append(sample)
    return samples


def test_ops_that_need_a_call_back_are_listed(seen: Seen) -> None:
    for sample in double_samples():
        leaves = [us.tensor(np.ascontiguousarray(a)) for a in sample.args]
        try:
            result = sample.function(*leaves)
            results = list(result) if isinstance(result, tuple | list) else [result]
            fragment = capture(leaves, results).fragment
            make_plan(fragment, tuple([x.shape for x in capture(leaves, results).inputs])).prepare()
        except UnspoolError:
            continue
    assert seen.called - seen.native == CALLED_BACK


# SciPy's exponential of a matrix is Python, and so is what looks whether a derivative of QR exists.
IN_KINDS = {
    "changing_ranks": {"matrix_exp", "matrix_exp_frechet"},
    "sweeps": {"divide_cotangent"},
}


@pytest.mark.parametrize("name", sorted(KINDS))
def test_kinds_of_loops_meet_no_call_back_in_their_steps(name: str, seen: Seen) -> None:
    kind = KINDS[name]
    steps = FEWEST_LONG - 1  # too few to fold: the steps themselves are compiled, and what a derivative makes of them
    data = kind.setup(steps)
    for _ in range(2):
        loss, variables = kind.in_unspool(steps, data)
        us.eval([loss, *loss.grad(variables)])
    assert seen.called <= IN_KINDS.get(name, set())


# The workloads, so small that what counts is which ops they meet. B10 to B13 have the loops of these and of the zoo.
WORKLOADS: dict[str, tuple[Workload, Mapping[str, Any]]] = {
    "power iteration": (b1_power.WORKLOAD, {"n": 8}),
    "Sinkhorn": (b2_sinkhorn.WORKLOAD, {"n": 6}),
    "CP-ALS": (b3_cp_als.WORKLOAD, {"n": 5, "rank": 2, "sweeps": 6}),
    "TRG": (b4_trg.FIRST, {"rank": 4, "order": 1}),
    "CTMRG": (b5_ctmrg.WORKLOAD, {"bond": 2, "rank": 4, "seed": 0}),
    "TEBD": (b6_tebd.WORKLOAD, {"sites": 4, "rank": 3, "steps": 8}),
    "DMRG": (b7_dmrg.ONE_SITE, {"sites": 4, "rank": 2, "sweeps": 2}),
    "DMRG of two sites": (b7_dmrg.TWO_SITES, {"sites": 4, "rank": 2, "sweeps": 2}),
    "Newton-Schulz": (b8_newton_schulz.POLAR, {"n": 6}),
    "HOOI": (b8_newton_schulz.HOOI, {"n": 6, "rank": 2}),
    "eight numbers": (b9_scalar.WORKLOAD, {"steps": 40}),
}

# Factors of a Hermitian matrix are put in order by their size, and SciPy's solvers are Python. Outside of the steps are
# the energy of CTMRG, which adds up a diagonal of diagonals, and the gates of TEBD.
IN_WORKLOADS = {
    "CTMRG": {"space_factors", "sum"},
    "DMRG": {"eigsh", "linear_solve", "pivot_rows"},
    "DMRG of two sites": {"eigsh", "linear_solve", "pivot_rows"},
    "TEBD": {"matrix_exp"},
}

# What is one op outside of a step and has the steps inside.
LOOPS = {"chain", "loop", "reversed_loop"}


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_workloads_meet_no_call_back_in_their_steps(name: str, seen: Seen) -> None:
    workload, size = WORKLOADS[name]
    problem = workload.problem(**size)
    for form in workload.forms:
        if form.kind == "ours":
            run = form.make(problem)
            for _ in range(2):
                run()
    assert seen.native
    assert seen.called - LOOPS <= IN_WORKLOADS.get(name, set())
