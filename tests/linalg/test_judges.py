"""The probes can fail: with a derivative that always refuses, and with one that is wrong in the fourth digit.

Each loss of each table is taken at a few of its points. The probe is run as it stands, with forward or reverse mode
replaced; a probe that passes then would pass whatever the library did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.linalg import test_probes as hermitian_probes
from tests.linalg import test_probes_factors as factor_probes
from tests.linalg import test_probes_random as random_probes
from tests.linalg import test_probes_second_order as second_order_probes
from tests.linalg import test_probes_singular as singular_probes
from unspool.errors import GaugeError

ERROR = 1e-4
Probe = Callable[[], None]


# --- what is run -----------------------------------------------------------------------------------------------------


def forward_probes() -> Iterator[Any]:
    """Every loss at distinct, equal and vanishing values: forward mode has something to answer at each of them."""
    for case in hermitian_probes.hermitian_cases():
        spectrum, _, kind = case.values
        if kind == "rotation" and spectrum in ("distinct", "two equal", "two zeros"):
            test = hermitian_probes.test_forward_mode_is_right_and_refuses_at_most_to_split_equal_eigenvalues
            yield probe(f"eigh: {case.id}", test, *case.values)
    for case in singular_probes.cases():
        spectrum, name, *shape = case.values
        rough = singular_probes.PROBES[name].rough(np.array(singular_probes.SINGULAR[spectrum], float))
        if shape == ["rotation", "tall"] and spectrum in ("distinct", "two equal", "two zeros") and not rough:
            test = singular_probes.test_forward_mode_is_right_and_refuses_at_most_to_split_equal_singular_values
            yield probe(f"svd: {case.id}", test, *case.values)


def reverse_probes() -> Iterator[Any]:
    """Every loss at points where its gradient is required."""
    for case in hermitian_probes.hermitian_cases():
        spectrum, name, kind = case.values
        values = np.array(hermitian_probes.HERMITIAN[spectrum], float)
        required = hermitian_probes.HERMITIAN_PROBES[name].required(values)
        if kind == "rotation" and spectrum in ("distinct", "two equal") and required:
            test = hermitian_probes.test_gradients_of_losses_of_eigenvalues_and_eigenvectors
            yield probe(f"eigh: {case.id}", test, *case.values)
    for case in singular_probes.cases():
        spectrum, name, *shape = case.values
        required = singular_probes.PROBES[name].required(np.array(singular_probes.SINGULAR[spectrum], float))
        if shape == ["rotation", "wide"] and spectrum in ("distinct", "two equal") and required:
            test = singular_probes.test_gradients_of_losses_of_singular_values_and_vectors
            yield probe(f"svd: {case.id}", test, *case.values)
    yield from factor_cases()
    yield from other_cases()


def factor_cases() -> Iterator[Any]:
    f = factor_probes
    for name in f.PRODUCTS:
        yield probe(
            f"product of {name}", f.test_the_product_of_the_factors_is_the_matrix, name, "full rank", "tall", "axes"
        )
    for name in f.LOG_DETERMINANTS:
        yield probe(f"log det by {name}", f.test_log_determinants, name, "two equal", "rotation")
    for name in f.FUNCTIONS:
        test = f.test_functions_of_matrices_are_right_at_every_spectrum
        yield probe(name, test, name, [1, 1, 2, 3], "unitary")
    yield probe("range by qr", f.test_the_projector_on_the_range_by_qr, "nearly singular", "rotation")
    yield probe("gram matrix by qr", f.test_the_gram_matrix_by_qr, "rank 2", "tall", "rotation")
    yield probe("det", f.test_determinants_also_of_singular_matrices, "rank 2", "unitary")
    yield probe("eigvals", f.test_symmetric_functions_of_eigvals, "two equal", "rotation")
    yield probe("eig", f.test_a_function_of_a_matrix_by_eig, "distinct", "rotation")
    yield probe("exponential", f.test_the_matrix_exponential_is_right_everywhere, "two equal", "rotation")
    yield probe("stack", f.test_each_matrix_of_a_stack_is_judged_by_itself)


def other_cases() -> Iterator[Any]:
    s, r = second_order_probes, random_probes
    for name in ("eigvalsh", "eigh"):
        yield probe(f"second order of {name}", s.test_of_functions_of_eigenvalues, name, 1e-4, "rotation", False)
    for name in ("svdvals", "svd"):
        yield probe(f"second order of {name}", s.test_of_functions_of_singular_values, name, 1e-4, "rotation", False)
    yield probe("second order of the norm", s.test_of_the_norm_of_the_product, 0.5, "rotation")
    yield probe("second order without rank", s.test_without_full_rank_no_nan_appears, [3.0, 2.0, 0.0, 0.0], True)
    yield probe(
        "hermitian, split",
        hermitian_probes.test_a_projector_that_splits_a_close_pair_is_right_or_refused,
        8,
        "rotation",
    )
    for build in ("truncated_svd", "low_rank"):
        test = singular_probes.test_a_cut_through_a_close_pair_is_right_or_refused
        yield probe(f"cut by {build}", test, build, 8, "rotation")
    apart = r.Spectrum(np.array([3.0, 2.0, 0.7]), (1, 1, 1), "unitary", 7)
    whole = r.Spectrum(np.array([3.0, 2.0, 2.0]), (1, 2), "unitary", 7)
    low = r.Spectrum(np.array([3.0, 2.0, 0.0, 0.0]), (1, 1, 2), "unitary", 7)
    for test, *arguments in (
        (r.test_functions_of_hermitian_matrices_are_right_or_refused, apart),
        (r.test_projectors_on_whole_blocks_are_right, whole, First()),
        (r.test_symmetric_functions_of_eigenvalues_are_right, whole),
        (r.test_functions_of_singular_values_and_vectors_are_right_or_refused, apart, (2, 0)),
        (r.test_functions_of_matrices_without_full_rank_are_right_or_refused, low, (2, 0)),
        (r.test_the_norm_of_the_product_is_right_everywhere, low, (0, 1)),
        (r.test_low_rank_parts_are_right, whole, (0, 0), First()),
    ):
        yield probe(f"random: {test.__name__}", test.hypothesis.inner_test, *arguments)


class First:
    """Draws what a strategy of integers has first."""

    def draw(self, strategy: Any) -> Any:
        return strategy.start if hasattr(strategy, "start") else strategy.wrapped_strategy.start


def probe(name: str, test: Callable[..., None], *arguments: Any) -> Any:
    return pytest.param(lambda: test(*arguments), id=name)


# --- what is replaced ------------------------------------------------------------------------------------------------


def refusing(*args: Any, **options: Any) -> Any:
    raise GaugeError("a test refuses everything")


def replace(monkeypatch: pytest.MonkeyPatch, mode: str, how: str) -> None:
    """Let a mode refuse everything, or let it be wrong by a relative error."""
    jvp, grad = us.jvp, us.Tensor.grad

    def wrong_jvp(*args: Any, **options: Any) -> Any:
        value, tangent = jvp(*args, **options)
        return value, tangent * (1 + ERROR)

    def wrong_grad(*args: Any, **options: Any) -> Any:
        return grad(*args, **options) * (1 + ERROR)

    if mode == "forward":
        monkeypatch.setattr(us, "jvp", refusing if how == "refuses" else wrong_jvp)
    else:
        monkeypatch.setattr(us.Tensor, "grad", refusing if how == "refuses" else wrong_grad)


@pytest.mark.parametrize("how", ["refuses", "is wrong"])
@pytest.mark.parametrize("run", list(forward_probes()))
def test_forward_probes_fail_if_forward_mode(run: Probe, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    replace(monkeypatch, "forward", how)
    with pytest.raises((GaugeError, AssertionError), match="refuses everything" if how == "refuses" else "wrong"):
        run()


@pytest.mark.parametrize("how", ["refuses", "is wrong"])
@pytest.mark.parametrize("run", list(reverse_probes()))
def test_reverse_probes_fail_if_reverse_mode(run: Probe, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    replace(monkeypatch, "reverse", how)
    with pytest.raises((GaugeError, AssertionError), match="refuses everything" if how == "refuses" else "wrong"):
        run()


@pytest.mark.parametrize("run", [*forward_probes(), *reverse_probes()])
def test_the_same_probes_pass_as_they_are(run: Probe) -> None:
    run()
