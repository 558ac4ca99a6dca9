"""NumPy's functions on tensors record tensors; what would write, or has no counterpart, is refused with advice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special

import unspool as us
from unspool.errors import ArgumentError, DTypeError, MutationError, UnsupportedError

X = np.array([[1.0, 2.5, 3.0], [4.0, 0.5, 6.0]])
A = np.array([[0.25, 1.0, 2.0], [3.0, 4.0, 5.0]])

# Each is evaluated with a tensor and with an array for t.
EXPRESSIONS = [
    # operators with arrays and NumPy scalars on the left
    "A + t",
    "A - t",
    "A * t",
    "A / t",
    "A ** t",
    "A @ t.T",
    "A < t",
    "np.float64(2) * t",
    "np.float32(2) - t",
    "np.int64(3) / t",
    # ufuncs
    "np.sin(t)",
    "np.exp(t)",
    "np.sqrt(t)",
    "np.add(A, t)",
    "np.add(t, 1)",
    "np.add(t, 1, dtype='float32')",
    "np.true_divide(A, t)",
    "np.absolute(-t)",
    "np.conjugate(t)",
    "np.invert(t > 2)",
    "np.bitwise_and(t > 1, t > 2)",
    "np.left_shift(t.astype('int64'), 1)",
    "np.logical_not(t > 1)",
    "np.arctan2(t, A)",
    "np.hypot(t, A)",
    "np.power(t, 2)",
    "np.maximum(t, 2.0)",
    "np.isnan(t)",
    "np.floor(t)",
    "np.rint(t)",
    "np.matmul(t, A.T)",
    "np.vecdot(t, A)",
    # methods of ufuncs
    "np.add.reduce(t)",
    "np.add.reduce(t, axis=None)",
    "np.add.reduce(t, 1, None, None, True)",
    "np.add.reduce(t, axis=1, dtype='float32')",
    "np.multiply.reduce(t, axis=1)",
    "np.maximum.reduce(t)",
    "np.minimum.reduce(t, axis=1, keepdims=True)",
    "np.logical_and.reduce(t > 1)",
    "np.logical_or.reduce(t > 3, axis=None)",
    "np.add.accumulate(t, axis=1)",
    "np.multiply.accumulate(t)",
    "np.multiply.outer(t, A)",
    "np.subtract.outer(A, t)",
    # reductions
    "np.sum(t)",
    "np.sum(t, axis=0)",
    "np.sum(t, 0, None, None, True)",
    "np.sum(t, dtype='float32')",
    "np.mean(t, 0)",
    "np.mean(t, 0, None, None, True)",
    "np.var(t, ddof=1)",
    "np.std(t, axis=1, keepdims=True)",
    "np.prod(t, axis=0)",
    "np.max(t)",
    "np.amax(t, axis=0)",
    "np.min(t, axis=1)",
    "np.argmax(t, axis=1)",
    "np.any(t > 3)",
    "np.all(t > 0, axis=0)",
    "np.cumsum(t, axis=0)",
    "np.count_nonzero(t)",
    "np.allclose(t, t)",
    # layout
    "np.reshape(t, (3, 2))",
    "np.reshape(t, -1)",
    "np.transpose(t)",
    "np.transpose(t, (1, 0))",
    "np.permute_dims(t, (1, 0))",
    "np.swapaxes(t, 0, 1)",
    "np.moveaxis(t, 0, 1)",
    "np.expand_dims(t, 0)",
    "np.broadcast_to(t, (2, 2, 3))",
    "np.concatenate([A, t])",
    "np.concatenate((t, A), axis=1)",
    "np.concatenate((t, A), dtype='float32')",
    "np.stack([A, t], axis=1)",
    "np.split(t, 3, axis=1)",
    "np.flip(t, 0)",
    "np.roll(t, 1)",
    "np.tile(t, (1, 2))",
    "np.repeat(t, 2, axis=0)",
    "np.diagonal(t)",
    "np.trace(t)",
    "np.tril(t)",
    "np.kron(t, A)",
    "np.copy(t)",
    # choosing
    "np.where(t > 2, t, 0.0)",
    "np.clip(t, 2, 4)",
    "np.clip(t, a_min=2, a_max=3)",
    "np.take(t, [0, 1], axis=1)",
    "np.sort(t, axis=1)",
    "np.argsort(t)",
    "np.round(t, 1)",
    "np.real(t)",
    "np.zeros_like(t)",
    # contractions and norms
    "np.einsum('ij,kj->ik', t, A)",
    "np.einsum('ij->j', t)",
    "np.einsum(t, [0, 1], A, [2, 1], [0, 2])",
    "np.einsum('ij,kj,kl->il', t, A, A, optimize=True)",
    "np.dot(t, A.T)",
    "np.vdot(t, A)",
    "np.inner(t, A)",
    "np.outer(t, A)",
    "np.tensordot(t, A, axes=([1], [1]))",
    "np.tensordot(t, A, 2)",
    "np.linalg.norm(t)",
    "np.linalg.norm(t, 1, axis=1)",
    "np.linalg.norm(t, np.inf, 0)",
    "np.linalg.vector_norm(t, axis=1)",
    "np.linalg.matrix_norm(t)",
    "np.linalg.matmul(t, A.T)",
    "np.linalg.trace(t)",
    "np.linalg.diagonal(t)",
    # argument forms
    "np.sum(t, axis=0, initial=2.0)",
    "np.sum(t, where=A > 1)",
    "np.prod(t, axis=1, initial=2.0, where=A > 1)",
    "np.max(t, initial=0.0, where=A > 1)",
    "np.reshape(t, (3, 2), order='F')",
    "np.ravel(t, order='F')",
    "np.take(t, [7, -9], mode='wrap')",
    "np.take(t, [7, -9], mode='clip')",
    "np.argsort(t, kind='stable')",
    "np.sort(t, axis=0, kind='heapsort')",
    "np.searchsorted(np.sort(t[0]), A[0], side='right')",
    "np.searchsorted(t[0], 2.0, sorter=[0, 1, 2])",
    "np.where(t > 2)",
    "np.trace(t, dtype='float32')",
    "np.meshgrid(t[0], t[1], indexing='ij')",
    # quotients and representations
    "np.mod(t, 2.0)",
    "np.fmod(t, 2.0)",
    "np.divmod(t, 2.0)",
    "np.modf(t)",
    "np.frexp(t)",
    "np.ldexp(t, 2)",
    "np.nextafter(t, 0.0)",
    "np.spacing(t)",
    "np.float_power(t, 2)",
    "np.heaviside(t - 2.5, 0.5)",
    "np.gcd(t.astype('int64'), 2)",
    "np.lcm(t.astype('int64'), 2)",
    "np.bitwise_count(t.astype('int64'))",
    "np.fabs(t)",
    "np.around(t, 1)",
    "np.isposinf(t)",
    "np.real_if_close(t + 0j)",
    # calculus
    "np.diff(t, axis=0)",
    "np.diff(t, n=2, prepend=0.0)",
    "np.ediff1d(t, to_end=1.0)",
    "np.gradient(t)",
    "np.gradient(t, 0.5, axis=1, edge_order=2)",
    "np.trapezoid(t, dx=0.5)",
    "np.trapezoid(t, x=A)",
    "np.interp(t, [0.0, 2.0, 6.0], [1.0, 0.0, 3.0])",
    "np.interp([0.0, 1.0], t[0], t[1], left=-1.0)",
    "np.unwrap(t, period=2.0)",
    "np.convolve(t[0], A[0])",
    "np.convolve(A[0], t[0], 'same')",
    "np.correlate(t[0], A[0], mode='full')",
    "np.cross(t, A)",
    # statistics
    "np.average(t, axis=1, weights=A)",
    "np.median(t, axis=1)",
    "np.quantile(t, [0.25, 0.5], axis=1)",
    "np.percentile(t, 30, method='midpoint')",
    "np.cov(t)",
    "np.cov(t, ddof=0)",
    "np.corrcoef(t)",
    "np.ptp(t, axis=1)",
    "np.nansum(t)",
    "np.nansum(t, axis=0, initial=1.0, where=A > 1)",
    "np.nanprod(t, axis=1)",
    "np.nanmean(t, axis=1)",
    "np.nanvar(t, ddof=1)",
    "np.nanstd(t)",
    "np.nanmax(t, axis=0)",
    "np.nanmin(t)",
    "np.nanargmax(t, axis=1)",
    "np.nanargmin(t)",
    "np.nancumsum(t, axis=1)",
    "np.nancumprod(t)",
    "np.nanmedian(t, axis=1)",
    "np.nanquantile(t, 0.3)",
    "np.nanpercentile(t, 30)",
    "np.histogram(t, bins=3)",
    "np.histogram(t, [0.0, 2.0, 8.0], weights=A)",
    "np.histogram_bin_edges(t, 4)",
    "np.histogram2d(t[0], t[1], bins=2)",
    "np.bincount(t.astype('int64')[0])",
    "np.bincount([0, 1, 1], weights=t[0])",
    "np.digitize(t, [1.0, 3.0])",
    # sets
    "np.unique(t)",
    "np.unique(t, return_inverse=True, return_counts=True)",
    "np.unique_values(t)",
    "np.isin(t, A)",
    "np.union1d(t, A)",
    "np.intersect1d(t, A)",
    "np.setdiff1d(t, A)",
    "np.setxor1d(t, A)",
    # polynomials
    "np.polyval(t[0], 2.0)",
    "np.polyfit(t[0], A[0], 1)",
    "np.polyadd(t[0], [1.0])",
    "np.polysub(t[0], [1.0])",
    "np.polymul(t[0], [1.0, 2.0])",
    "np.polydiv(t[0], [1.0, 2.0])",
    "np.polyder(t[0])",
    "np.polyint(t[0], 2)",
    "np.poly(t[0])",
    "np.vander(t[0], 2)",
    # arranging
    "np.append(t, A)",
    "np.append(t, A, axis=1)",
    "np.block([[t, A], [A, t]])",
    "np.insert(t, 1, 5.0, axis=1)",
    "np.delete(t, [0, 2], axis=1)",
    "np.hsplit(t, 3)",
    "np.vsplit(t, [1])",
    "np.array_split(t, 2, axis=1)",
    "np.rollaxis(t, 1)",
    "np.trim_zeros(t[0])",
    "np.resize(t, (2, 4))",
    "np.apply_along_axis(np.sum, 1, t)",
    "np.apply_over_axes(np.sum, t, [0, 1])",
    "np.select([t > 3, t > 1], [t, A], 9.0)",
    "np.piecewise(t, [t > 2], [np.sqrt, 1.0])",
    "np.choose([1, 0, 1], [t[0], A[0]])",
    "np.partition(t, 1, axis=1, kind='introselect')",
    "np.argpartition(t, 0)",
    "np.lexsort((t[0], A[0]))",
    "np.sort_complex(t)",
    "np.ix_(t.astype('int64')[0], [0, 1])",
    "np.diag_indices_from(np.matmul(t, t.T))",
    "np.tril_indices_from(t)",
    "np.triu_indices_from(t, k=1)",
    "np.unravel_index(t.astype('int64'), (3, 3))",
    "np.ravel_multi_index(t.astype('int64')[:, :2], (9, 9))",
    "np.packbits(t > 2)",
    "np.unpackbits(t.astype('uint8'))",
    "np.logspace(t[0], t[1], 3)",
    "np.geomspace(t[0], t[1], 3)",
    "np.linspace(t[0], t[1], 3, axis=1)",
    "np.full_like(t, 3.0)",
    "np.ones_like(t, dtype='float32', shape=(2,))",
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_numpy_functions_record_tensors_with_numpys_values(expression: str) -> None:
    ours = eval(expression, {"np": np, "A": A, "t": us.tensor(X)})
    theirs = eval(expression, {"np": np, "A": A, "t": X})
    parts = ours if isinstance(ours, (list, tuple)) else [ours]
    expected = theirs if isinstance(theirs, (list, tuple)) else [theirs]
    assert len(parts) == len(expected)
    for part, value in zip(parts, expected, strict=True):
        assert isinstance(part, us.Tensor)
        assert part.shape == np.shape(value)
        assert part.dtype == np.asarray(value).dtype
        np.testing.assert_allclose(part.eval(), value, rtol=1e-6)


def test_what_is_recorded_can_be_differentiated() -> None:
    t = us.tensor(X)
    loss = np.sum(np.sin(t) * A) + np.linalg.norm(np.einsum("ij,kj->ik", t, A))
    product = X @ A.T
    expected = np.cos(X) * A + product / np.linalg.norm(product) @ A
    np.testing.assert_allclose(loss.grad(t).eval(), expected)


def test_questions_about_shape_and_type_compute_nothing() -> None:
    n = us.dims("n")
    t = us.placeholder((n, 3), "complex64")
    assert np.shape(t) == (n, 3)
    assert np.ndim(t) == 2
    assert np.size(t) == 3 * n
    assert np.size(t, 1) == 3
    assert np.iscomplexobj(t)
    assert np.result_type(t, np.float64) == np.complex128


def test_questions_with_a_plain_answer_look_at_values() -> None:
    t = us.tensor(X)
    assert np.array_equal(t, X) is True
    assert np.array_repr(t) == repr(X)


def test_asarray_gives_the_value() -> None:
    value = np.asarray(us.tensor(X) * 2)
    assert type(value) is np.ndarray
    np.testing.assert_array_equal(value, 2 * X)


# --- refusals --------------------------------------------------------------------------------------------------------


def augmented(statement: str) -> Any:
    return lambda t: exec(statement, {"a": X.copy(), "t": t})


@pytest.mark.parametrize(
    ("call", "advice"),
    [
        (augmented("a += t"), "a = a + t"),
        (augmented("a -= t"), "a = a - t"),
        (augmented("a *= t"), "a = a * t"),
        (augmented("a /= t"), "a = a / t"),
        (lambda t: np.add(A, t, out=X.copy()), "y = np.add("),
        (lambda t: np.sin(X, out=t), "t.at[index].set(value)"),
        (lambda t: np.sum(t, 0, out=np.zeros(3)), "y = np.sum("),
        (lambda t: np.sum(t, 0, None, np.zeros(3)), "y = np.sum("),
        (lambda t: np.dot(t, A.T, np.zeros((2, 2))), "y = np.dot("),
        (lambda t: np.einsum("ij->i", t, out=np.zeros(2)), "y = np.einsum("),
        (lambda t: np.add.reduce(t, out=np.zeros(3)), "y = np.add("),
        (lambda t: np.add.at(t, [0], 1.0), "t.at[index].add(value)"),
        (lambda t: np.maximum.at(X.copy(), [0], t), "t.at[index].max(value)"),
        (lambda t: np.copyto(X.copy(), t), "t.at[index].set(value)"),
        (lambda t: np.put(t, 0, 1.0), "t.at[index].set(value)"),
        (lambda t: np.putmask(t, X > 1, 0.0), "t.at[index].set(value)"),
        (lambda t: np.fill_diagonal(t, 0.0), "t.at[index].set(value)"),
    ],
)
def test_writing_is_refused_with_the_functional_way(call: Any, advice: str) -> None:
    with pytest.raises(MutationError) as caught:
        call(us.tensor(X))
    assert advice in str(caught.value)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda t: np.may_share_memory(t, t), "np.may_share_memory"),
        (lambda t: np.isnat(t), "np.isnat"),
        (lambda t: np.common_type(t), "np.common_type"),
        (lambda t: np.min_scalar_type(t), "np.min_scalar_type"),
        (lambda t: np.subtract.reduce(t), "np.subtract.reduce"),
        (lambda t: np.add.reduceat(t, [0]), "np.add.reduceat"),
    ],
)
def test_functions_without_a_counterpart_are_refused_by_name(call: Any, name: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        call(us.tensor(X))
    assert f"{name} has no counterpart" in str(caught.value)
    assert "np.asarray(t)" in str(caught.value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: np.add(A, t, where=A > 1), "np.add of a tensor does not take where="),
        (lambda t: np.add(A, t, casting="unsafe"), "does not take casting='unsafe'"),
        (lambda t: np.linspace(t, 1.0, 3, retstep=True), "does not take retstep=True"),
    ],
)
def test_arguments_that_unspool_does_not_have_are_refused(call: Any, message: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        call(us.tensor(X))
    assert message in str(caught.value)


def test_a_dtype_that_would_lose_information_is_refused() -> None:
    with pytest.raises(DTypeError, match="dtype=int64 cannot take a tensor of dtype float64"):
        np.add(us.tensor(X), 1, dtype="int64")


def test_neutral_arguments_are_accepted() -> None:
    np.testing.assert_array_equal(np.add(A, us.tensor(X), where=True, casting="same_kind", subok=True).eval(), A + X)


# --- masked arrays ---------------------------------------------------------------------------------------------------

MASKED = np.ma.masked_array(A, mask=A > 3.5)


@pytest.mark.parametrize(
    "expression",
    [
        "us.tensor(m)",
        "us.constant(m)",
        "us.asarray(m)",
        "us.tensor([m, m])",
        "us.tensor(np.ma.masked)",
        "us.sum(m)",
        "t * m",
        "m * t",
        "m + t",
        "m - t",
        "m / t",
        "m // t",
        "m ** t",
        "m.__imul__(t)",
        "m @ t.T",
        "t @ m.T",
        "np.add(m, t)",
        "np.add(t, m)",
        "np.ma.multiply(m, t)",
        "np.concatenate([m, t])",
        "np.where(t > 1, t, m)",
        "t.at[0].set(m[1])",
        "t * m[1, 2]",
        "us.sum(p).eval({p: m})",
    ],
)
def test_a_masked_array_does_not_lose_its_mask(expression: str) -> None:
    names = {"np": np, "us": us, "t": us.tensor(X), "m": MASKED.copy(), "p": us.placeholder(X.shape)}
    with pytest.raises(DTypeError, match="tensors have no masks"):
        eval(expression, names)


def test_a_masked_array_with_nothing_masked_is_an_array() -> None:
    whole = np.ma.masked_array(A)
    np.testing.assert_array_equal((us.tensor(X) * whole).eval(), X * A)
    np.testing.assert_array_equal(us.tensor(whole).eval(), A)


def test_masks_can_be_put_on_values() -> None:
    masked = np.ma.masked_where(X > 3, us.tensor(X))
    assert masked.sum() == X[X <= 3].sum()


@pytest.mark.parametrize(
    ("window", "axis"), [(3, 1), (2, None), ((2, 3), None), ((2, 3), (1, 0)), (1, -1), ((2, 2), (1, 1)), (4, 0)]
)
def test_windows_are_those_of_numpy(window, axis):
    data = np.random.default_rng(0).normal(size=(4, 5))
    if window == 2:
        data = data[0]
    windows = np.lib.stride_tricks.sliding_window_view
    found = windows(us.tensor(data), window, axis)
    assert isinstance(found, us.Tensor)
    np.testing.assert_array_equal(found.eval(), windows(data, window, axis))
    assert us.check_grad(lambda x: us.sum(us.sin(us.lib.stride_tricks.sliding_window_view(x, window, axis))), data).ok


def test_a_window_that_does_not_fit_is_refused():
    with pytest.raises(ArgumentError, match="a window of length 6 does not fit axis 0 of size 5"):
        us.lib.stride_tricks.sliding_window_view(us.tensor(np.ones(5)), 6)


@pytest.mark.parametrize("f", [np.nanvar, np.nanstd])
def test_spreads_without_nan_are_computed_in_the_type_that_is_asked_for(f):
    data = np.array([[1.0, np.nan, 4.0], [2.0, 7.0, np.nan]], np.float32)
    found = f(us.tensor(data), axis=1, dtype="float64", ddof=1)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found.eval(), f(data, axis=1, dtype="float64", ddof=1))


def test_a_special_function_that_we_lack_is_called_by_its_own_name() -> None:
    with pytest.raises(UnsupportedError, match=r"scipy\.special\.airy has no counterpart"):
        scipy.special.airy(us.tensor(1.0))
