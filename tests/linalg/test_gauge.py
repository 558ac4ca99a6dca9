"""Tolerances, and what is let through or refused before a division by a gap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool._ops.linalg.gaps import SVD, gap_quotient, gauge_check, settled_values
from unspool._ops.linalg.gauge import tolerances_for
from unspool.errors import ArgumentError, GaugeError

DOUBLE, SINGLE = np.dtype(np.float64), np.dtype(np.float32)


# --- tolerances ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [DOUBLE, SINGLE, np.dtype(np.complex64)])
def test_by_default_half_of_the_digits_decide(dtype: Any) -> None:
    found = tolerances_for(dtype)
    assert found.degeneracy == found.gauge == np.sqrt(np.finfo(dtype).eps)
    assert found.rank < found.degeneracy


def test_a_context_sets_tolerances_and_restores_them() -> None:
    before = tolerances_for(DOUBLE)
    with us.linalg.tolerances(degeneracy=1e-3, gauge=1e-4):
        with us.linalg.tolerances(gauge=1e-5, rank=1e-6):
            inner = tolerances_for(DOUBLE)
        outer = tolerances_for(DOUBLE)
    assert (inner.degeneracy, inner.gauge, inner.rank) == (1e-3, 1e-5, 1e-6)
    assert (outer.degeneracy, outer.gauge, outer.rank) == (1e-3, 1e-4, before.rank)
    assert tolerances_for(DOUBLE) == before


def test_a_context_counts_where_a_decomposition_is_built_not_where_it_runs() -> None:
    a = us.tensor(np.diag([2.0, 1.0001, 1.0]))
    weight = np.arange(9.0).reshape(3, 3)
    with us.linalg.tolerances(degeneracy=1e-3):
        coarse = us.linalg.eigh(a).eigenvectors
    fine = us.linalg.eigh(a).eigenvectors
    loss = [us.sum(weight * (v[:, :1] @ v[:, :1].mT)) for v in (coarse, fine)]
    assert np.all(np.isfinite(loss[1].grad(a).eval()))
    with pytest.raises(GaugeError):
        loss[0].grad(a).eval()


@pytest.mark.parametrize("bad", [-1e-3, np.nan, np.inf, "small"])
def test_a_tolerance_is_a_number_that_is_not_negative(bad: Any) -> None:
    with pytest.raises(ArgumentError, match="gauge"), us.linalg.tolerances(gauge=bad):
        pass
    with pytest.raises(ArgumentError, match="rtol"):
        us.linalg.svd(np.eye(2), rtol=bad)


# --- dividing --------------------------------------------------------------------------------------------------------


def test_the_quotient_is_zero_with_its_derivatives_where_values_are_equal() -> None:
    s = us.tensor([3.0, 1.0, 1.0])
    n = us.tensor(np.arange(1.0, 10).reshape(3, 3))
    quotient = gap_quotient(n, s, s, -1, 1e-9)
    expected = np.array([[0, -1, -1.5], [2, 0, 0], [3.5, 0, 0]])
    np.testing.assert_array_equal(quotient.eval(), expected)
    by_n, by_s = us.grad(lambda x, y: us.sum(gap_quotient(x, y, y, -1, 1e-9)), argnums=(0, 1))(n, s)
    np.testing.assert_array_equal(by_n.eval(), [[0, -0.5, -0.5], [0.5, 0, 0], [0.5, 0, 0]])
    slope = np.array([[0, 0.5, 0.75], [1, 0, 0], [1.75, 0, 0]])
    np.testing.assert_allclose(by_s.eval(), slope.sum(1) - slope.sum(0))


def test_all_values_zero_are_all_equal() -> None:
    quotient = gap_quotient(us.ones((2, 2)), us.zeros(2), us.zeros(2), 1, 1e-9)
    np.testing.assert_array_equal(quotient.eval(), np.zeros((2, 2)))


def check(numerator: Any, s: Any, **options: Any) -> Any:
    given = {"what": SVD, "sign": -1, "degeneracy": 1e-9, "gauge": 1e-9, **options}
    return gauge_check(us.tensor(numerator), us.tensor(s), us.tensor(s), **given).eval()


def test_a_numerator_passes_unchanged_where_it_vanishes_enough() -> None:
    numerator = np.array([[0, 1.0, 2.0], [-1.0, 0, 1e-12], [-2.0, -1e-12, 0]])
    np.testing.assert_array_equal(check(numerator, [2.0, 1.0, 1.0]), numerator)


def test_a_refusal_says_which_values_and_how_much() -> None:
    numerator = np.array([[0, 4.0, 0], [-4.0, 0, 1.0], [0, -1.0, 0]])
    with pytest.raises(GaugeError, match=r"singular values 1 and 2 are equal.*2\.5e-01.*test_gauge\.py") as refused:
        check(numerator, [2.0, 1.0, 1.0])
    assert set(refused.value.indices) == {1, 2}
    assert refused.value.amount == 0.25


def test_each_matrix_of_a_stack_is_judged_by_its_own_scale() -> None:
    skew = np.array([[0.0, 1.0], [-1.0, 0.0]])
    stack = np.stack([1e12 * skew, skew])
    values = np.array([[2.0, 1.0], [1.0, 1.0]])
    with pytest.raises(GaugeError, match=r"in matrix \(1,\) of the stack") as refused:
        check(stack, values)
    assert refused.value.amount == 1.0
    check(stack * np.array([1.0, 0.0])[:, None, None], values)


# --- cotangents of values --------------------------------------------------------------------------------------------


def settle(ct: Any, s: Any, *vectors: Any, zeros: bool = True) -> Any:
    found = settled_values(*map(us.tensor, (ct, s, *vectors)), what=SVD, degeneracy=1e-9, gauge=1e-9, zeros=zeros)
    return found.eval()


def test_equal_values_may_have_equal_cotangents_and_others_any() -> None:
    np.testing.assert_array_equal(settle([5.0, 1.0, 1.0], [2.0, 1.0, 1.0]), [5.0, 1.0, 1.0])
    with pytest.raises(GaugeError, match="tells them apart"):
        settle([5.0, 1.0, 2.0], [2.0, 1.0, 1.0])


def test_nearly_equal_values_may_have_nearly_equal_cotangents() -> None:
    settle([1.0, 1.0 + 3e-9], [1.0, 1.0 - 5e-10])


def test_a_zero_value_may_have_no_cotangent() -> None:
    settle([1.0, 0.0], [1.0, 0.0])
    with pytest.raises(GaugeError, match="rank is 1 of 2") as refused:
        settle([1.0, 1.0], [1.0, 0.0])
    assert refused.value.indices == (1,)
    settle([1.0, 1.0], [0.0, 1.0], zeros=False)


def test_vectors_may_not_couple_equal_values() -> None:
    skew, coupled = np.array([[0.0, 1.0], [-1.0, 0.0]]), np.array([[0.0, 1.0], [1.0, 0.0]])
    settle([1.0, 1.0], [1.0, 1.0], skew)
    with pytest.raises(GaugeError, match="values and vectors of their space together"):
        settle([1.0, 1.0], [1.0, 1.0], skew, coupled)
