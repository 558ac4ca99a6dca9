"""Elementwise ops: values, data types and broadcasting are NumPy's."""

from __future__ import annotations

import itertools
import subprocess
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import special

import unspool as us
from unspool._ops.elementwise.declare import OfArrays
from unspool._ops.op import REGISTRY, load_all, lookup
from unspool.errors import DTypeError, KernelError, ShapeError

BOOL, INT32, INT64 = np.dtype(bool), np.dtype("int32"), np.dtype("int64")
FLOAT32, FLOAT64 = np.dtype("float32"), np.dtype("float64")
COMPLEX64, COMPLEX128 = np.dtype("complex64"), np.dtype("complex128")
OTHER_INTEGERS = [np.dtype(name) for name in ("int8", "int16", "uint8", "uint16", "uint32", "uint64")]
DTYPES = [BOOL, INT32, INT64, *OTHER_INTEGERS, FLOAT32, FLOAT64, COMPLEX64, COMPLEX128]
EXACT = [BOOL, INT32, INT64, *OTHER_INTEGERS]
EVERY_PAIR = list(itertools.product(DTYPES, DTYPES))


def array(dtype: np.dtype[Any], values: Any = (1, 0, 3)) -> Any:
    return np.asarray(values).astype(dtype)


def numpy_result(function: Any, *arrays: Any) -> Any:
    """Return what NumPy computes, or None where it has no such operation or unspool does not have its data type."""
    with np.errstate(all="ignore"):
        try:
            result = function(*arrays)
        except TypeError:
            return None
    return result if result.dtype in DTYPES else None


# --- values and promotion --------------------------------------------------------------------------------------------

PROMOTING = [
    "add",
    "subtract",
    "multiply",
    "divide",
    "power",
    "equal",
    "not_equal",
    "logical_and",
    "logical_or",
    "logical_xor",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "left_shift",
    "right_shift",
]
PROMOTING_REAL = [
    "floor_divide",
    "remainder",
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "arctan2",
    "hypot",
    "logaddexp",
    "logaddexp2",
    "copysign",
]


@pytest.mark.parametrize("name", PROMOTING)
def test_binary_ops_promote_every_pair_of_data_types_as_numpy_does(name: str) -> None:
    for left, right in EVERY_PAIR:
        a, b = array(left), array(right, [2, 1, 1])
        expected = numpy_result(getattr(np, name), a, b)
        if expected is None:
            with pytest.raises(DTypeError):
                getattr(us, name)(us.tensor(a), us.tensor(b))
        else:
            result = getattr(us, name)(us.tensor(a), us.tensor(b))
            assert result.dtype == expected.dtype == result.eval().dtype, (left, right)
            np.testing.assert_array_equal(result.eval(), expected)


@pytest.mark.parametrize("name", PROMOTING_REAL)
def test_ops_on_ordered_numbers_promote_as_numpy_does_and_refuse_complex_ones(name: str) -> None:
    floats = ("arctan2", "hypot", "logaddexp", "logaddexp2", "copysign")
    for left, right in EVERY_PAIR:
        a, b = array(left), array(right, [2, 1, 1])
        if left in EXACT and right in EXACT and name in floats:
            # NumPy's own answer for small integers is float16 or float32, by their size.
            expected = getattr(np, name)(a.astype(float), b.astype(float))
        else:
            expected = numpy_result(getattr(np, name), a, b)
        if expected is None or "c" in (left.kind, right.kind):
            with pytest.raises(DTypeError, match=name):
                getattr(us, name)(us.tensor(a), us.tensor(b))
        else:
            result = getattr(us, name)(us.tensor(a), us.tensor(b))
            assert result.dtype == expected.dtype == result.eval().dtype, (left, right)
            np.testing.assert_array_equal(result.eval(), expected)


FLOATING = [
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sqrt",
    "cbrt",
    "sin",
    "cos",
    "tan",
    "arcsin",
    "arccos",
    "arctan",
    "sinh",
    "cosh",
    "tanh",
    "arcsinh",
    "arccosh",
    "arctanh",
    "sinc",
    "deg2rad",
    "rad2deg",
]
FLOATING_OF_OUR_OWN = {
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "sigmoid": special.expit,
    "softplus": lambda x: np.logaddexp(x, 0),
    "erf": special.erf,
    "erfc": special.erfc,
    "gammaln": special.gammaln,
    "digamma": special.digamma,
}
REAL_ONLY = [
    "cbrt",
    "deg2rad",
    "rad2deg",
    "sigmoid",
    "softplus",
    "relu",
    "erf",
    "erfc",
    "gammaln",
    "digamma",
    "floor",
    "ceil",
    "trunc",
    "signbit",
]


@pytest.mark.parametrize("name", [*FLOATING, *FLOATING_OF_OUR_OWN])
def test_functions_with_a_fractional_result_make_float64_of_bools_and_integers(name: str) -> None:
    reference = FLOATING_OF_OUR_OWN.get(name) or getattr(np, name)
    for dtype in (*EXACT, FLOAT32, FLOAT64):
        x = array(dtype, [1, 1, 1])
        result = getattr(us, name)(x)
        assert result.dtype == result.eval().dtype == (FLOAT32 if dtype == FLOAT32 else FLOAT64)
        with np.errstate(all="ignore"):
            expected = reference(x.astype(result.dtype))
        np.testing.assert_allclose(result.eval(), expected, rtol=1e-6 if dtype == FLOAT32 else 1e-13)


@pytest.mark.parametrize("name", [n for n in FLOATING if n not in REAL_ONLY])
@pytest.mark.parametrize("dtype", [COMPLEX64, COMPLEX128], ids=str)
def test_functions_of_complex_numbers_are_those_of_numpy(name: str, dtype: np.dtype[Any]) -> None:
    x = array(dtype, [0.3 + 0.4j, -1.2 + 0.1j, 0.5 - 2j])
    result = getattr(us, name)(x)
    assert result.dtype == dtype
    np.testing.assert_allclose(result.eval(), getattr(np, name)(x), rtol=1e-5 if dtype == COMPLEX64 else 1e-13)


@pytest.mark.parametrize("name", [n for n in REAL_ONLY if n not in ("deg2rad", "rad2deg", "erf", "erfc")])
def test_functions_of_real_numbers_refuse_complex_ones(name: str) -> None:
    with pytest.raises(DTypeError, match=f"{name} of complex128"):
        getattr(us, name)([1j])


@pytest.mark.parametrize(
    "name",
    ["negative", "abs", "square", "sign", "isnan", "isinf", "isfinite", "signbit", "logical_not", "invert"],
)
def test_functions_that_keep_or_decide_have_the_data_types_of_numpy(name: str) -> None:
    for dtype in DTYPES:
        x = array(dtype, [1, 0, -2])
        expected = numpy_result(getattr(np, name), x)
        if expected is None:
            with pytest.raises(DTypeError, match=str(dtype)):
                getattr(us, name)(us.tensor(x))
        else:
            result = getattr(us, name)(us.tensor(x))
            assert result.dtype == result.eval().dtype == expected.dtype
            np.testing.assert_array_equal(result.eval(), expected)


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "round"])
def test_integers_are_round_already(name: str) -> None:
    for dtype in EXACT:
        x = us.tensor(array(dtype))
        assert getattr(us, name)(x) is x


@pytest.mark.parametrize("decimals", [0, 2, -1])
def test_rounding_to_decimals_is_that_of_numpy(decimals: int) -> None:
    for x in (np.array([0.5, 1.5, -2.345, 17.0]), np.array([15, 25, 7]), np.array([1.26 - 2.5j])):
        np.testing.assert_array_equal(us.round(x, decimals).eval(), np.round(x, decimals))


def test_division_and_remainder_have_the_signs_and_zeros_of_numpy() -> None:
    for a, b in (([7.0, -7.0, 7.0, 1.0], [4.0, 4.0, -4.0, 0.0]), ([7, -7, 7], [4, 4, -4])):
        with np.errstate(all="ignore"):
            for name in ("divide", "floor_divide", "remainder"):
                expected = getattr(np, name)(a, b)
                np.testing.assert_array_equal(getattr(us, name)(a, b).eval(), expected)


def test_nan_passes_through_maximum_and_is_skipped_by_fmax() -> None:
    a, b = [np.nan, 1.0, np.nan, 2.0], [1.0, np.nan, np.nan, 3.0]
    for name in ("maximum", "minimum", "fmax", "fmin"):
        np.testing.assert_array_equal(getattr(us, name)(a, b).eval(), getattr(np, name)(a, b))
    assert np.isnan(us.relu(np.nan).eval())


def test_clip_limits_on_one_side_or_both() -> None:
    x = np.array([-1.0, 0.5, 2.0, np.nan])
    np.testing.assert_array_equal(us.clip(x, 0.0, 1.0).eval(), np.clip(x, 0.0, 1.0))
    np.testing.assert_array_equal(us.clip(x, min=0.0).eval(), np.clip(x, 0.0, None))
    np.testing.assert_array_equal(us.clip(x, max=0.0).eval(), np.clip(x, None, 0.0))
    np.testing.assert_array_equal(us.clip(x, [0.0, 1.0, 0.0, 0.0], 1.5).eval(), np.clip(x, [0.0, 1.0, 0.0, 0.0], 1.5))
    np.testing.assert_array_equal(us.clip(x, 1.0, 0.0).eval(), np.clip(x, 1.0, 0.0))
    tensor = us.tensor(x)
    assert us.clip(tensor) is tensor


def test_parts_of_complex_numbers() -> None:
    z = np.array([3 + 4j, 0j, -1 + 0j, complex(np.inf, -np.inf)])
    for name in ("real", "imag", "conj", "angle", "isreal", "iscomplex", "abs"):
        np.testing.assert_array_equal(getattr(us, name)(z).eval(), getattr(np, name)(z))
    np.testing.assert_array_equal(us.angle(z[:3], deg=True).eval(), np.angle(z[:3], deg=True))
    np.testing.assert_array_equal(us.angle([1.0, 0.0, -1.0]).eval(), np.angle([1.0, 0.0, -1.0]))
    np.testing.assert_array_equal(us.imag([1.0, 2.0]).eval(), [0.0, 0.0])


def test_nan_to_num_replaces_what_is_not_finite() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1.0])
    for dtype in ("float32", "float64"):
        np.testing.assert_array_equal(us.nan_to_num(x.astype(dtype)).eval(), np.nan_to_num(x.astype(dtype)))
    np.testing.assert_array_equal(us.nan_to_num(x, 5.0, 6.0, 7.0).eval(), [5.0, 6.0, 7.0, 1.0])
    z = np.array([complex(a, b) for a in x for b in x])
    np.testing.assert_array_equal(us.nan_to_num(z).eval(), np.nan_to_num(z))
    np.testing.assert_array_equal(us.nan_to_num([1, 2]).eval(), [1, 2])


@pytest.mark.parametrize("equal_nan", [False, True])
def test_isclose_agrees_with_numpy(equal_nan: bool) -> None:
    a = np.array([1.0, 1.0, np.inf, np.inf, np.nan, 0.0, 1e10])
    b = np.array([1.0 + 1e-6, 1.1, np.inf, -np.inf, np.nan, 1e-9, 1.00001e10])
    expected = np.isclose(a, b, equal_nan=equal_nan)
    np.testing.assert_array_equal(us.isclose(a, b, equal_nan=equal_nan).eval(), expected)
    assert bool(us.allclose(a[:1], b[:1])) is True
    assert bool(us.allclose(a[:2], b[:2])) is False
    assert us.isclose([1, 2], [1, 3]).eval().tolist() == [True, False]
    assert us.isclose([True], [True]).eval().tolist() == [True]


def test_astype_takes_the_truth_of_complex_numbers_and_no_part_of_them() -> None:
    z = np.array([1.7 + 2j, 0j, 1j])
    for dtype in ("float32", "float64", int):
        with pytest.raises(
            DTypeError, match=r"astype from complex128 to .* would lose the imaginary part: take \.real"
        ):
            us.tensor(z).astype(dtype)
    np.testing.assert_array_equal(us.astype(z, bool).eval(), [True, False, True])
    x = us.tensor([1.0])
    assert us.astype(x, "float64") is x


def test_special_functions_agree_with_scipy() -> None:
    x = np.array([0.0, 0.5, 2.0, 10.0])
    np.testing.assert_array_equal(us.xlogy(x, [0.0, 2.0, 0.0, 3.0]).eval(), special.xlogy(x, [0.0, 2.0, 0.0, 3.0]))
    for n in range(4):
        np.testing.assert_allclose(us.polygamma(n, x[1:]).eval(), special.polygamma(n, x[1:]), rtol=1e-14)
    assert us.polygamma(2, np.float32([1.0])).eval().dtype == FLOAT32


# --- scalars ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scalar", [True, 2, 2.0, 2j], ids=lambda s: type(s).__name__)
def test_python_scalars_are_weak_beside_every_data_type(scalar: Any) -> None:
    for dtype in DTYPES:
        x = array(dtype)
        for name in ("add", "multiply", "divide", "equal", "power"):
            expected = numpy_result(getattr(np, name), x, scalar)
            if expected is not None:
                assert getattr(us, name)(us.tensor(x), scalar).dtype == expected.dtype, (dtype, name)
                result = getattr(us, name)(us.tensor(x), scalar).eval()
                np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 2**64])
def test_a_python_integer_that_does_not_fit_is_refused(value: int) -> None:
    with pytest.raises(DTypeError, match="int32"):
        us.tensor(np.zeros(2, np.int32)) + value


def test_numpy_scalars_are_strong() -> None:
    assert (us.tensor(np.float32([1.0])) * np.float64(2.0)).dtype == FLOAT64
    assert (us.tensor(np.float32([1.0])) * us.constant(2.0)).dtype == FLOAT64


# --- broadcasting ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right"), [((2, 3), (3,)), ((2, 1), (1, 3)), ((), (2,)), ((0, 1), (3,)), ((1,), (2, 1, 4))]
)
def test_shapes_broadcast_as_in_numpy(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = np.full(left, 3.0), np.full(right, 2.0)
    for function, reference in ((us.subtract, np.subtract), (us.maximum, np.maximum), (us.less, np.less)):
        assert function(a, b).shape == reference(a, b).shape
        np.testing.assert_array_equal(function(a, b).eval(), reference(a, b))
    assert us.where(a > 2, a, b).shape == np.broadcast_shapes(left, right)


def test_shapes_that_do_not_broadcast_are_refused_when_built() -> None:
    with pytest.raises(ShapeError, match=r"\(2,\) and \(3,\)"):
        us.add([1.0, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(ShapeError):
        us.where([True, False], [1.0, 2.0, 3.0], 0.0)


def test_symbolic_sizes_broadcast_and_are_bound_later() -> None:
    n, m = us.dims("n m")
    x, y = us.placeholder((n, 1)), us.placeholder((m,))
    total = us.hypot(x, y)
    assert total.shape == (n, m)
    a, b = np.array([[3.0], [1.0]]), np.array([4.0, 2.0, 0.0])
    np.testing.assert_allclose(total.eval({x: a, y: b}), np.hypot(a, b))
    gradient = us.sum(total).grad(x)
    np.testing.assert_allclose(gradient.eval({x: a, y: b}), np.sum(a / np.hypot(a, b), axis=1, keepdims=True))


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (us.subtract, ([True], [False])),
        (us.negative, ([True],)),
        (us.positive, ([True],)),
        (us.bitwise_and, ([1.0], [1])),
        (us.bitwise_left_shift, ([1], [1.5])),
        (us.invert, ([1.0],)),
        (us.xlogy, ([1j], [1.0])),
        (us.less, ([1j], [1.0])),
        (us.clip, ([1j], 0.0)),
        (us.polygamma, (1, [1j])),
    ],
)
def test_operations_that_do_not_exist_are_refused_when_built(function: Any, args: Any) -> None:
    with pytest.raises(DTypeError):
        function(*args)


def test_integers_to_negative_powers_are_refused_when_built_if_that_can_be_seen() -> None:
    base = us.tensor([2, 3])
    with pytest.raises(DTypeError, match="negative"):
        base**-1
    with pytest.raises(DTypeError, match="negative"):
        base ** np.array([1, -1])
    with pytest.raises(KernelError, match="negative"):
        (base ** us.tensor(-1)).eval()
    np.testing.assert_array_equal((base**-1.0).eval(), [1 / 2, 1 / 3])


@pytest.mark.parametrize("order", [-1, 1.5])
def test_polygamma_takes_orders_from_zero_on(order: Any) -> None:
    with pytest.raises(DTypeError, match="order"):
        us.polygamma(order, 1.0)


def test_round_takes_a_whole_number_of_decimals() -> None:
    with pytest.raises(DTypeError, match="decimals"):
        us.round([1.0], 1.5)  # type: ignore[arg-type]


# --- names and imports -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        *((f"a{f}", f"arc{f}") for f in ("sin", "cos", "tan", "sinh", "cosh", "tanh")),
        ("atan2", "arctan2"),
        ("absolute", "abs"),
        ("pow", "power"),
        ("conjugate", "conj"),
        ("invert", "bitwise_invert"),
        ("bitwise_not", "bitwise_invert"),
        ("left_shift", "bitwise_left_shift"),
        ("right_shift", "bitwise_right_shift"),
        ("radians", "deg2rad"),
        ("degrees", "rad2deg"),
    ],
)
def test_aliases_are_the_same_function(alias: str, name: str) -> None:
    assert getattr(us, alias) is getattr(us, name)


def test_scipy_is_imported_when_a_special_function_is_evaluated() -> None:
    script = (
        "import sys, unspool as us; t = us.erf([0.5]); assert 'scipy' not in sys.modules; "
        "t.eval(); assert 'scipy.special' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


# --- exactness -------------------------------------------------------------------------------------------------------


def rationals(*pairs: tuple[int, int]) -> Any:
    return np.array([Fraction(*pair) for pair in pairs], dtype=object)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("add", [Fraction(5, 6), Fraction(-7, 12)]),
        ("subtract", [Fraction(1, 6), Fraction(-11, 12)]),
        ("multiply", [Fraction(1, 6), Fraction(-1, 8)]),
        ("divide", [Fraction(3, 2), Fraction(-9, 2)]),
        ("floor_divide", [1, -5]),
        ("remainder", [Fraction(1, 6), Fraction(1, 12)]),
        ("maximum", [Fraction(1, 2), Fraction(1, 6)]),
        ("minimum", [Fraction(1, 3), Fraction(-3, 4)]),
    ],
)
def test_kernels_of_two_operands_are_exact_on_rationals(op: str, expected: list[Any]) -> None:
    a, b = rationals((1, 2), (-3, 4)), rationals((1, 3), (1, 6))
    assert list(lookup(op).kernel(a, b)) == expected


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("negative", [Fraction(-1, 2), Fraction(3, 4)]),
        ("square", [Fraction(1, 4), Fraction(9, 16)]),
        ("reciprocal", [Fraction(2), Fraction(-4, 3)]),
        ("abs", [Fraction(1, 2), Fraction(3, 4)]),
        ("relu", [Fraction(1, 2), 0]),
        ("conj", [Fraction(1, 2), Fraction(-3, 4)]),
        ("sign", [1, -1]),
        ("floor", [0, -1]),
    ],
)
def test_kernels_of_one_operand_are_exact_on_rationals(op: str, expected: list[Any]) -> None:
    assert list(lookup(op).kernel(rationals((1, 2), (-3, 4)))) == expected


def test_choosing_and_conversion_are_exact_on_rationals() -> None:
    a, b = rationals((1, 2), (-3, 4)), rationals((1, 3), (1, 6))
    keep = np.array([True, False])
    assert list(lookup("where").kernel(keep, a, b)) == [Fraction(1, 2), Fraction(1, 6)]
    assert list(lookup("mask").kernel(a, keep)) == [Fraction(1, 2), 0]
    assert list(lookup("astype").kernel(a, dtype=FLOAT32)) == list(a)
    assert list(lookup("power").kernel(a, rationals((2, 1), (-1, 1)))) == [Fraction(1, 4), Fraction(-4, 3)]


# --- numbers ---------------------------------------------------------------------------------------------------------

load_all()
UFUNCS = {op.name: op.kernel for op in REGISTRY.values() if isinstance(op.kernel, np.ufunc | OfArrays)}


@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64, COMPLEX64, COMPLEX128], ids=str)
def test_a_number_has_the_bits_of_an_array_without_axes(dtype: np.dtype[Any]) -> None:
    """A value may be one or the other, as kernels return them; which one depends on what else is computed."""
    rng = np.random.default_rng(0)
    compared = 0
    for name, kernel in UFUNCS.items():
        count = (kernel if isinstance(kernel, np.ufunc) else kernel.ufunc).nin
        for x, y in rng.normal(size=(100, 2)):
            numbers = [dtype.type(complex(*pair) if dtype.kind == "c" else pair[0]) for pair in ((x, y), (y, x))]
            found = numpy_result(kernel, *numbers[:count])
            if found is not None:
                expected = numpy_result(kernel, *map(np.asarray, numbers[:count]))
                assert np.asarray(found).tobytes() == np.asarray(expected).tobytes(), name
                compared += 1
    assert compared > 1000
