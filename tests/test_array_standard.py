"""What the array API standard asks of a namespace beside its functions; `make test-array-api` runs its own suite."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool._dtypes import SUPPORTED
from unspool.errors import ArgumentError, DTypeError

ROOT = Path(__file__).resolve().parents[1]
DTYPES = sorted(SUPPORTED, key=str)


# --- data types ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_data_type_has_a_name_and_holds_values(dtype: np.dtype[Any]) -> None:
    assert getattr(us, dtype.name) is dtype
    data = np.array([0, 1, 3]).astype(dtype)
    tensor = us.tensor(data)
    assert tensor.dtype == tensor.eval().dtype == dtype
    assert us.constant(data) is us.constant(data)
    assert us.constant(dtype.type(0)) is us.constant(dtype.type(0))
    np.testing.assert_array_equal((tensor + tensor).eval(), data + data)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.kind in "iu"], ids=str)
def test_limits_of_integers_are_numpys(dtype: np.dtype[Any]) -> None:
    ours, theirs = us.iinfo(dtype), np.iinfo(dtype)
    assert (ours.bits, ours.min, ours.max, ours.dtype) == (theirs.bits, theirs.min, theirs.max, dtype)
    assert us.iinfo(us.zeros(2, dtype=dtype)) == ours
    with pytest.raises(DTypeError, match="finfo is about floating-point"):
        us.finfo(dtype)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.kind in "fc"], ids=str)
def test_limits_of_floats_are_numpys_as_python_numbers(dtype: np.dtype[Any]) -> None:
    ours, theirs = us.finfo(dtype), np.finfo(dtype)
    for name in ("eps", "max", "min", "smallest_normal", "tiny", "resolution"):
        assert type(getattr(ours, name)) is float
        assert getattr(ours, name) == float(getattr(theirs, name))
    assert (ours.bits, ours.dtype) == (theirs.bits, theirs.dtype)
    with pytest.raises(DTypeError, match="iinfo is about integer"):
        us.iinfo(dtype)


@pytest.mark.parametrize(
    "kind",
    ["bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating", "numeric"],
)
def test_kinds_of_data_types_are_numpys(kind: str) -> None:
    assert [us.isdtype(d, kind) for d in DTYPES] == [np.isdtype(d, kind) for d in DTYPES]
    named = us.__array_namespace_info__().dtypes(kind=kind)
    assert set(named.values()) == {d for d in DTYPES if np.isdtype(d, kind)}


def test_kinds_can_be_combined_and_named_by_a_data_type() -> None:
    assert us.isdtype(us.float32, ("bool", us.float32))
    assert not us.isdtype(us.float32, us.float64)
    with pytest.raises(ArgumentError, match="a kind of data type is one of 'bool'"):
        us.isdtype(us.float32, "number")


@pytest.mark.parametrize("left", DTYPES, ids=str)
def test_promotion_and_casts_are_numpys(left: np.dtype[Any]) -> None:
    for right in DTYPES:
        expected = np.result_type(left, right)
        if expected in SUPPORTED:
            assert us.result_type(left, us.zeros((), dtype=right)) == us.promote_types(left, right) == expected
        assert us.can_cast(left, right) == np.can_cast(left, right)
        assert us.can_cast(us.zeros((), dtype=left), right, "same_kind") == np.can_cast(left, right, "same_kind")
    assert us.result_type(us.zeros(1, dtype=left), 1) == np.result_type(left, 1)
    assert us.issubdtype(left, us.integer) == np.issubdtype(left, np.integer)


def test_shapes_are_told_without_values() -> None:
    n = us.dims("n")
    x = us.placeholder((n, 3), "complex64")
    assert (us.shape(x), us.ndim(x), us.size(x), us.size(x, 1)) == ((n, 3), 2, 3 * n, 3)
    assert us.iscomplexobj(x) and not us.isrealobj(x)
    assert us.isscalar(2.0) and us.isscalar(us.tensor(1.0)) and not us.isscalar([1.0])


# --- devices ---------------------------------------------------------------------------------------------------------


def test_there_is_one_device() -> None:
    info = us.__array_namespace_info__()
    x = us.ones(3, device="cpu")
    assert info.devices() == ("cpu",) == (info.default_device(),) == (x.device,)
    assert x.to_device("cpu") is x
    for call in (lambda: us.zeros(3, device="gpu"), lambda: x.to_device("gpu"), lambda: info.dtypes(device="gpu")):
        with pytest.raises(ArgumentError, match="device is 'cpu', the only one that unspool has, got 'gpu'"):
            call()


def test_what_is_there_of_the_standard_is_told() -> None:
    info = us.__array_namespace_info__()
    assert info.capabilities()["boolean indexing"] is info.capabilities()["data-dependent shapes"] is True
    assert info.default_dtypes()["real floating"] == us.zeros(1).dtype
    assert info.default_dtypes()["integral"] == us.arange(1).dtype
    assert info.default_dtypes()["indexing"] == us.argsort([1.0]).dtype


def test_tensors_name_their_namespace() -> None:
    x = us.tensor([1.0])
    assert x.__array_namespace__() is us
    assert x.__array_namespace__(api_version=us.__array_api_version__) is us
    with pytest.raises(ArgumentError, match="versions of the array API standard are .* got '1999.12'"):
        x.__array_namespace__(api_version="1999.12")


# --- exchange --------------------------------------------------------------------------------------------------------


def test_dlpack_shares_memory_both_ways() -> None:
    array = np.arange(4.0)
    tensor = us.from_dlpack(array)
    assert np.shares_memory(tensor.eval(), array)
    assert not np.shares_memory(us.from_dlpack(array, copy=True).eval(), array)
    back = np.from_dlpack(tensor)
    assert np.shares_memory(back, array)
    assert not back.flags.writeable
    assert us.from_dlpack(tensor) is tensor


def test_consumers_that_cannot_know_that_a_value_is_read_only_get_a_copy() -> None:
    tensor = us.tensor([1.0, 2.0])

    class Old:
        """Asks as libraries did before DLPack 1.0."""

        def __dlpack__(self, **_: Any) -> Any:
            return tensor.__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return tensor.__dlpack_device__()

    copy = np.from_dlpack(Old())
    assert not np.shares_memory(copy, tensor.eval())
    np.testing.assert_array_equal(copy, tensor.eval())
    with pytest.raises(BufferError, match="read-only"):
        tensor.__dlpack__(copy=False)
    with pytest.raises(BufferError, match="memory of the processor"):
        tensor.__dlpack__(dl_device=(2, 0))


def test_what_is_no_array_is_refused_by_name() -> None:
    with pytest.raises(ArgumentError, match="an array with __dlpack__, got list"):
        us.from_dlpack([1.0])


def test_asarray_takes_memory_or_refuses() -> None:
    array = np.arange(3.0)
    assert np.shares_memory(us.asarray(array, copy=False).eval(), array)
    assert not np.shares_memory(us.asarray(array).eval(), array)
    for data, dtype in (([1.0, 2.0], None), (array, "float32"), (3.0, None)):
        with pytest.raises(ArgumentError, match="copy=False takes an array as it lies in memory"):
            us.asarray(data, dtype=dtype, copy=False)


# --- the suite -------------------------------------------------------------------------------------------------------


def test_every_expected_failure_has_a_reason() -> None:
    lines = (ROOT / "tests" / "array_api" / "expected-failures.txt").read_text(encoding="utf-8").splitlines()
    reason = False
    for line in lines:
        assert not line or line.startswith("#") or re.match(r"array_api_tests/\w+\.py::\w+", line)
        assert reason or not line.startswith("array_api_tests"), f"no reason above {line}"
        reason = line.startswith("#") or (bool(line) and reason)


def test_linalg_takes_diagonals_of_the_last_two_axes() -> None:
    x = np.arange(24.0).reshape(2, 3, 4)
    np.testing.assert_array_equal(us.linalg.diagonal(x, offset=1).eval(), np.linalg.diagonal(x, offset=1))
    np.testing.assert_array_equal(us.linalg.trace(x).eval(), np.linalg.trace(x))
    assert us.linalg.trace(x, dtype="float32").dtype == np.float32


def test_tolerances_may_differ_from_matrix_to_matrix() -> None:
    x = np.array([np.diag([1.0, 1e-3]), np.diag([1.0, 1e-3])])
    rtol = np.array([1e-2, 1e-4])
    np.testing.assert_allclose(us.linalg.pinv(x, rtol=rtol).eval(), np.linalg.pinv(x, rtol=rtol))
    np.testing.assert_array_equal(us.linalg.matrix_rank(x, rtol=us.tensor([1e-2, 1e-4])).eval(), [1, 2])
    np.testing.assert_array_equal(us.linalg.matrix_rank(x, tol=np.array([1e-2, 1e-4])).eval(), [1, 2])


@pytest.mark.parametrize("tol", [[1e-2, 1e-4, 2.0], [[1e-2], [1e-4]], [1e-2]])
def test_one_matrix_has_a_rank_for_each_tolerance(tol: Any) -> None:
    x = np.diag([1.0, 1e-3])
    rank = us.linalg.matrix_rank(us.tensor(x), tol=tol)
    expected = np.linalg.matrix_rank(x, tol=tol)
    assert rank.shape == expected.shape
    np.testing.assert_array_equal(rank.eval(), expected)
    one_by_one = [np.linalg.pinv(x, rtol=number) for number in np.ravel(tol)]
    inverse = us.linalg.pinv(us.tensor(x), rtol=tol)
    assert inverse.shape == (*np.shape(tol), 2, 2)
    np.testing.assert_allclose(inverse.eval(), np.reshape(one_by_one, inverse.shape))
