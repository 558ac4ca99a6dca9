"""Which ops a native program cannot run without calling Python, and that loops of the usual kinds meet none of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import unspool as us
from bench.zoo import KINDS
from tests.samples import Sample, all_samples
from unspool._engine import native
from unspool._engine.native_layout import Unsupported
from unspool._engine.native_program import CALL
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
    "lyapunov", "matrix_exp", "matrix_exp_frechet", "matrix_rank", "order_of_pivots", "pinv", "pivot_rows",
    "pivots_of_order", "polar", "polar_harmonic", "polygamma", "positions", "random_binomial", "random_poisson",
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


# SciPy's exponential of a matrix is Python.
IN_KINDS = {
    "changing_ranks": {"matrix_exp", "matrix_exp_frechet"},
}


@pytest.mark.parametrize("name", sorted(KINDS))
def test_kinds_of_loops_meet_no_call_back_in_their_steps(name: str, seen: Seen) -> None:
    kind = KINDS[name]
    data = kind.setup(8)
    for _ in range(2):
        loss, variables = kind.in_unspool(8, data)
        us.eval([loss, *loss.grad(variables)])
    assert seen.called <= IN_KINDS.get(name, set())
