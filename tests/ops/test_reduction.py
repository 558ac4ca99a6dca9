"""Reductions: values as NumPy has them, derivatives that are right at zeros, ties, masks and infinities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special

import unspool as us
from unspool.errors import ArgumentError, DTypeError, KernelError, ShapeError

X = np.array([[0.5, -1.25, 2.0], [1.5, -0.5, 0.875]])
KEEP = np.array([[True, False, True], [False, True, True]])
INF = np.inf


def gradient(f: Any, x: Any) -> Any:
    leaf = us.tensor(x)
    return us.sum(f(leaf)).grad(leaf).eval()


def hessian(f: Any, x: Any) -> Any:
    """Return the second derivatives of a scalar function of a vector, row by row through the graph."""
    leaf = us.tensor(x)
    first = f(leaf).grad(leaf)
    return np.stack([us.sum(first * row).grad(leaf).eval() for row in np.eye(len(x), dtype=first.dtype)])


# --- values and data types -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "var", "std", "max", "min", "any", "all", "count_nonzero"])
@pytest.mark.parametrize("dtype", ["bool", "int32", "int64", "float32", "float64"])
def test_result_dtypes_are_numpys(name: str, dtype: str) -> None:
    x = np.array([[0, 1, 1], [1, 1, 0]], dtype)
    for axis in (None, 0, (0, 1), ()):
        ours, theirs = getattr(us, name)(x, axis=axis), getattr(np, name)(x, axis=axis)
        assert ours.dtype == np.asarray(theirs).dtype
        np.testing.assert_allclose(ours.eval(), theirs, rtol=1e-6)


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "any", "all"])
@pytest.mark.parametrize("axis", [None, 0, (0, 1)])
def test_a_mask_leaves_elements_out(name: str, axis: Any) -> None:
    ours, theirs = getattr(us, name)(X, axis=axis, where=KEEP), getattr(np, name)(X, axis=axis, where=KEEP)
    np.testing.assert_allclose(ours.eval(), theirs)


def test_a_mask_is_broadcast_to_the_operand() -> None:
    np.testing.assert_allclose(us.sum(X, axis=1, where=[True, False, True]).eval(), X[:, ::2].sum(1))


def test_masked_extrema_start_from_the_initial_value() -> None:
    np.testing.assert_array_equal(
        us.max(X, axis=1, initial=0.75, where=KEEP).eval(), np.max(X, axis=1, initial=0.75, where=KEEP)
    )
    np.testing.assert_array_equal(us.min([3, 4], initial=9, where=[False, False]).eval(), 9)
    np.testing.assert_array_equal(us.max([], initial=-1.0).eval(), -1.0)


@pytest.mark.parametrize("correction", [0, 1, 0.5, 7])
def test_the_divisor_of_the_variance_is_corrected(correction: float) -> None:
    count = X.shape[1] - correction
    distance = X - X.mean(axis=1, keepdims=True)
    expected = np.sum(distance**2, axis=1) / count if count > 0 else [INF, INF]
    np.testing.assert_allclose(us.var(X, axis=1, correction=correction).eval(), expected)
    np.testing.assert_allclose(us.var(X, axis=1, ddof=correction).eval(), expected)


def test_the_variance_of_complex_numbers_is_real() -> None:
    z = X + 1j * X[::-1]
    assert us.var(z).dtype == np.float64
    np.testing.assert_allclose(us.std(z, axis=0).eval(), np.std(z, axis=0))


def test_positions_of_extrema_are_numpys() -> None:
    tied = np.array([[1.0, 3.0, 3.0], [1.0, 0.0, 3.0]])
    for axis in (None, 0, 1):
        for keepdims in (False, True):
            for ours, theirs in ((us.argmax, np.argmax), (us.argmin, np.argmin)):
                result = ours(tied, axis=axis, keepdims=keepdims)
                assert result.dtype == np.int64
                np.testing.assert_array_equal(result.eval(), theirs(tied, axis=axis, keepdims=keepdims))


def test_running_reductions_are_numpys() -> None:
    np.testing.assert_allclose(us.cumsum(X).eval(), np.cumsum(X))
    np.testing.assert_allclose(us.cumprod(X, axis=1).eval(), np.cumprod(X, axis=1))
    assert us.cumsum(np.array([1, 2], np.int32)).dtype == np.int64
    np.testing.assert_allclose(
        us.cumulative_sum(X, axis=0, include_initial=True).eval(), np.cumulative_sum(X, axis=0, include_initial=True)
    )
    np.testing.assert_allclose(
        us.cumulative_prod(X, axis=1, include_initial=True).eval(), np.cumulative_prod(X, axis=1, include_initial=True)
    )


def test_aliases_are_the_same_function() -> None:
    assert us.amax is us.max
    assert us.amin is us.min
    x = us.tensor(X)
    assert us.ptp(x) is us.max(x) - us.min(x)


# --- symbolic sizes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (us.mean, np.mean),
        (us.var, np.var),
        (us.std, np.std),
        (us.prod, np.prod),
        (us.max, np.max),
        (us.cumprod, np.cumprod),
        (us.logsumexp, scipy.special.logsumexp),
        (lambda x: us.var(x, axis=0, correction=1), lambda x: np.var(x, axis=0, ddof=1)),
        (lambda x: us.mean(x, axis=(0, 1), keepdims=True), lambda x: np.mean(x, axis=(0, 1), keepdims=True)),
        (lambda x: us.prod(x, axis=(1, 0)), lambda x: np.prod(x, axis=(1, 0))),
        (lambda x: us.softmax(x, axis=1), lambda x: scipy.special.softmax(x, axis=1)),
    ],
)
def test_sizes_may_be_symbolic(ours: Any, theirs: Any) -> None:
    n, k = us.dims("n k")
    x = us.placeholder((n, k))
    out = ours(x)
    slope = us.sum(out * out).grad(x)
    for value in (X, np.full((3, 1), 2.0)):
        np.testing.assert_allclose(out.eval({x: value}), theirs(value), atol=1e-14)
        leaf = us.tensor(value)
        known = ours(leaf)
        np.testing.assert_allclose(slope.eval({x: value}), us.sum(known * known).grad(leaf).eval(), atol=1e-14)


def test_the_maximum_of_no_elements_is_found_out_when_sizes_are_bound() -> None:
    n = us.dims("n")
    x = us.placeholder((n,))
    with pytest.raises(KernelError, match="max"):
        us.max(x).eval({x: np.zeros(0)})


# --- derivatives where care is needed --------------------------------------------------------------------------------


def test_only_the_largest_element_is_reached() -> None:
    np.testing.assert_array_equal(gradient(lambda x: us.max(us.sqrt(x)), [0.0, 4.0]), [0.0, 0.25])
    np.testing.assert_array_equal(
        gradient(lambda x: us.min(us.log(x), axis=0), [[1.0, INF], [INF, 2.0]]), [[1, 0], [0, 0.5]]
    )


def test_ties_share_equally() -> None:
    np.testing.assert_allclose(gradient(us.max, [1.0, 3.0, 3.0, 3.0]), [0, 1 / 3, 1 / 3, 1 / 3])
    np.testing.assert_allclose(gradient(lambda x: us.min(x, axis=1), [[1.0, 1.0], [2.0, 3.0]]), [[0.5, 0.5], [1, 0]])


def test_an_extremum_that_is_nan_depends_on_all_elements() -> None:
    np.testing.assert_allclose(gradient(us.max, [1.0, np.nan]), [0.5, 0.5])
    np.testing.assert_allclose(gradient(us.min, [1.0, np.nan]), [0.5, 0.5])


@pytest.mark.parametrize("reduce", [us.sum, us.mean, us.prod])
def test_what_a_mask_leaves_out_is_absent_from_derivatives(reduce: Any) -> None:
    slope = gradient(lambda x: reduce(us.log(x), where=x > 0), [0.0, np.e])
    np.testing.assert_allclose(slope, [0.0, 1 / np.e])


def test_what_a_mask_leaves_out_of_extrema_and_variances_is_absent() -> None:
    x = np.array([0.0, 1.0, 4.0])
    assert np.isfinite(gradient(lambda t: us.var(us.log(t), where=t > 0), x)).all()
    np.testing.assert_allclose(gradient(lambda t: us.max(us.sqrt(t), initial=0.5, where=t > 0), x), [0, 0, 0.25])
    np.testing.assert_allclose(gradient(lambda t: us.max(us.sqrt(t), initial=0.5, where=t > 9), x), [0, 0, 0])


def test_absent_cotangents_stay_absent_through_running_reductions() -> None:
    x = np.array([1.0, 4.0, 0.0])
    np.testing.assert_allclose(gradient(lambda t: us.cumsum(us.sqrt(t))[:2], x), [1.0, 0.25, 0.0])
    np.testing.assert_allclose(gradient(lambda t: us.cumprod(us.sqrt(t))[:2], x), [1.5, 0.25, 0.0])
    expected = [[-0.75, 0.125, 0], [0.125, -0.03125, 0], [0, 0, 0]]
    np.testing.assert_allclose(hessian(lambda t: us.sum(us.cumprod(us.sqrt(t))[:2]), x), expected)


def test_absent_rows_stay_absent() -> None:
    x = np.array([[1.0, 2.0], [-INF, -INF]])
    for function in (us.softmax, us.log_softmax):
        assert np.isfinite(gradient(lambda t, f=function: f(t, axis=1)[0] * [1.0, 2.0], x)).all()


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("zeros", [(), (1,), (0, 2), (0, 1, 2, 3)])
def test_products_have_exact_derivatives_at_zeros(zeros: tuple[int, ...], dtype: type) -> None:
    x = np.array([2.0, 3.0, 5.0, 7.0], dtype)
    x[list(zeros)] = 0
    others = [np.prod(np.delete(x, i)) for i in range(4)]
    pairs = [[0 if i == j else np.prod(np.delete(x, [i, j])) for j in range(4)] for i in range(4)]
    leaf = us.tensor(x)
    first = us.prod(leaf).grad(leaf, holomorphic=dtype is complex)
    np.testing.assert_array_equal(first.eval(), others)
    second = [us.sum(first * row).grad(leaf, holomorphic=dtype is complex).eval() for row in np.eye(4)]
    np.testing.assert_array_equal(second, pairs)


def test_products_have_exact_third_derivatives_at_zeros() -> None:
    x = us.tensor([0.0, 0.0, 0.0, 7.0])
    first = us.prod(x).grad(x)
    second = us.sum(first * [1.0, 0, 0, 0]).grad(x)
    third = us.sum(second * [0, 1.0, 0, 0]).grad(x)
    np.testing.assert_array_equal(third.eval(), [0, 0, 7, 0])


@pytest.mark.parametrize("zeros", [(), (1,), (0, 2), (0, 1, 2, 3)])
def test_running_products_have_exact_derivatives_at_zeros(zeros: tuple[int, ...]) -> None:
    x = np.array([2.0, 3.0, 5.0, 7.0])
    x[list(zeros)] = 0
    weights = np.array([1.0, -2.0, 3.0, 4.0])

    def without(upto: int, *left_out: int) -> float:
        return float(np.prod([x[k] for k in range(upto + 1) if k not in left_out]))

    first = [sum(weights[i] * without(i, j) for i in range(j, 4)) for j in range(4)]
    second = [
        [0 if j == k else sum(weights[i] * without(i, j, k) for i in range(max(j, k), 4)) for k in range(4)]
        for j in range(4)
    ]

    def f(t: us.Tensor) -> us.Tensor:
        return us.sum(us.cumprod(t) * weights)

    np.testing.assert_array_equal(gradient(f, x), first)
    np.testing.assert_array_equal(hessian(f, x), second)


def test_the_standard_deviation_of_equal_elements_has_derivative_zero() -> None:
    np.testing.assert_array_equal(gradient(us.std, [2.0, 2.0, 2.0]), [0, 0, 0])
    assert np.isnan(us.std([1.0, np.nan]).eval())


def test_mean_of_no_elements_is_nan() -> None:
    assert np.isnan(us.mean(np.zeros(0)).eval())


# --- sums of exponentials --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [0.0, 1e4, -1e4])
def test_sums_of_exponentials_neither_overflow_nor_vanish(shift: float) -> None:
    x = X + shift
    share = scipy.special.softmax(x, axis=1)
    np.testing.assert_allclose(us.logsumexp(x, axis=1).eval(), scipy.special.logsumexp(x, axis=1))
    np.testing.assert_allclose(us.softmax(x, axis=1).eval(), share)
    np.testing.assert_allclose(us.log_softmax(x, axis=1).eval(), scipy.special.log_softmax(x, axis=1), rtol=1e-10)
    np.testing.assert_allclose(gradient(lambda t: us.logsumexp(t, axis=1), x), share, rtol=1e-10)
    expected = np.diag(share[0]) - np.outer(share[0], share[0])
    np.testing.assert_allclose(hessian(us.logsumexp, x[0]), expected, rtol=1e-8, atol=1e-12)


def test_values_far_apart_keep_their_logarithm() -> None:
    x = np.array([1e4, -1e4])
    np.testing.assert_allclose(us.log_softmax(x).eval(), [0.0, -2e4])
    np.testing.assert_allclose(gradient(lambda t: us.log_softmax(t)[1], x), [-1.0, 1.0])


def test_minus_infinity_contributes_nothing() -> None:
    x = np.array([[1.0, -INF], [-INF, -INF], [2.0, 3.0]])
    np.testing.assert_array_equal(us.logsumexp(x, axis=1).eval(), scipy.special.logsumexp(x, axis=1))
    slope = gradient(lambda t: us.logsumexp(t, axis=1), x)
    np.testing.assert_allclose(slope[:2], [[1, 0], [0, 0]])
    np.testing.assert_allclose(slope[2], scipy.special.softmax(x[2]))
    assert np.isposinf(us.logsumexp([INF, 1.0]).eval())
    assert np.isneginf(us.logsumexp(np.zeros(0)).eval())


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        (lambda: us.max(np.zeros((2, 0)), axis=1), ShapeError, r"max of no elements: axis \(1,\).*\(2, 0\)"),
        (lambda: us.min(np.zeros(0)), ShapeError, "min of no elements"),
        (lambda: us.argmax(np.zeros((0, 3)), axis=0), ShapeError, "argmax of no elements"),
        (lambda: us.max([1j]), DTypeError, "max needs numbers with an order"),
        (lambda: us.argmin([1j]), DTypeError, "argmin needs numbers with an order"),
        (lambda: us.max([1.0], where=[True]), ArgumentError, "needs initial="),
        (lambda: us.sum([1.0], where=[1.0]), DTypeError, "mask of bools"),
        (lambda: us.sum([1.0], where=[[True], [True]]), ShapeError, "cannot be broadcast"),
        (lambda: us.sum([1.0], axis=1), ShapeError, "axis 1 is out of range"),
        (lambda: us.mean([[1.0]], axis=(0, 0)), ShapeError, "duplicate axis"),
        (lambda: us.cumsum([1.0], axis=1), ShapeError, "axis 1 is out of range"),
        (lambda: us.cumulative_sum([[1.0]]), ShapeError, "needs an axis"),
    ],
)
def test_misuse_is_refused_when_it_is_built(build: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        build()


def test_an_empty_result_needs_no_largest_element() -> None:
    assert us.max(np.zeros((0, 3)), axis=1).eval().shape == (0,)
    assert us.argmax(np.zeros((0, 3)), axis=1).eval().shape == (0,)
