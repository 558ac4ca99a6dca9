"""NumPy's functions on tensors record tensors; what would write, or has no counterpart, is refused with advice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

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
        (lambda t: np.interp(t, [0.0, 1.0], [0.0, 1.0]), "np.interp"),
        (lambda t: np.gcd(t, 2), "np.gcd"),
        (lambda t: np.modf(t), "np.modf"),
        (lambda t: np.divmod(t, 2), "np.divmod"),
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
        (lambda t: np.reshape(t, (3, 2), order="F"), "does not take order='F'"),
        (lambda t: np.where(t > 1), "np.where of a tensor does not work with these arguments"),
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
