"""Samples of elementwise ops: real, complex, broadcast, size 0, size 1 and 0-d arguments, away from kinks and poles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy import special

import unspool as us
from tests.samples import Sample, complex_, real
from unspool._ops import elementwise

Function = Callable[..., Any]


def away_from(points: Any, *shape: int, seed: int = 0, low: float = -2.0, high: float = 2.0, gap: float = 0.1) -> Any:
    """Return random reals, none of them near one of the given points."""
    x = real(*shape, seed=seed, low=low, high=high)
    for point in points:
        x = np.where(np.abs(x - point) < gap, point + np.where(x < point, -gap, gap), x)
    return x


def unary(
    op: str,
    reference: Function,
    *,
    low: float = -2.0,
    high: float = 2.0,
    complex_too: bool = False,
    exact: bool = False,
    function: Function | None = None,
    label: str = "",
) -> Iterator[Sample]:
    """Yield samples of a function of one argument on an interval, and on complex numbers where it takes them."""
    function = function or getattr(us, op)
    for shape in ((3,), (2, 1, 2), (0,), ()):
        yield Sample(op, function, (real(*shape, low=low, high=high),), reference, exact=exact, label=label)
    if complex_too:
        yield Sample(op, function, (complex_(4),), reference, label=label)
        yield Sample(op, function, (complex_(),), reference, label=label)


def binary(
    op: str,
    reference: Function,
    *,
    first: tuple[float, float] = (-2.0, 2.0),
    second: tuple[float, float] = (-2.0, 2.0),
    complex_too: bool = False,
    exact: bool = False,
) -> Iterator[Sample]:
    """Yield samples of a function of two arguments, each on its interval, with all kinds of broadcasting."""
    function = getattr(us, op)
    for left, right in (((3,), (3,)), ((2, 1), (3,)), ((), (2,)), ((2,), ()), ((), ()), ((1,), (0,)), ((2, 0), (1, 1))):
        args = real(*left, seed=1, low=first[0], high=first[1]), real(*right, seed=2, low=second[0], high=second[1])
        yield Sample(op, function, args, reference, exact=exact)
    if complex_too:
        yield Sample(op, function, (complex_(3, seed=1), complex_(3, seed=2)), reference)
        yield Sample(op, function, (complex_(2, 1, seed=1), complex_(2, seed=2)), reference)
        yield Sample(op, function, (real(2, seed=1, low=0.5), complex_(2, 1, seed=2)), reference, label="real-complex")
        yield Sample(op, function, (complex_(2, seed=1), real(seed=2, low=0.5)), reference, label="complex-real")


# --- smooth functions of one argument --------------------------------------------------------------------------------

HOLOMORPHIC: list[tuple[str, Function, float, float]] = [
    ("exp", np.exp, -2.0, 2.0),
    ("exp2", np.exp2, -2.0, 2.0),
    ("expm1", np.expm1, -2.0, 2.0),
    ("log", np.log, 0.5, 3.0),
    ("log2", np.log2, 0.5, 3.0),
    ("log10", np.log10, 0.5, 3.0),
    ("log1p", np.log1p, -0.5, 3.0),
    ("sqrt", np.sqrt, 0.5, 3.0),
    ("rsqrt", lambda x: 1 / np.sqrt(x), 0.5, 3.0),
    ("sin", np.sin, -2.0, 2.0),
    ("cos", np.cos, -2.0, 2.0),
    ("tan", np.tan, -1.0, 1.0),
    ("arcsin", np.arcsin, -0.8, 0.8),
    ("arccos", np.arccos, -0.8, 0.8),
    ("arctan", np.arctan, -2.0, 2.0),
    ("sinh", np.sinh, -2.0, 2.0),
    ("cosh", np.cosh, -2.0, 2.0),
    ("tanh", np.tanh, -2.0, 2.0),
    ("arcsinh", np.arcsinh, -2.0, 2.0),
    ("arccosh", np.arccosh, 1.3, 3.0),
    ("arctanh", np.arctanh, -0.8, 0.8),
    ("sinc", np.sinc, -2.0, 2.0),
]
REAL: list[tuple[str, Function, float, float]] = [
    ("cbrt", np.cbrt, 0.5, 3.0),
    ("sigmoid", special.expit, -3.0, 3.0),
    ("softplus", lambda x: np.logaddexp(x, np.zeros_like(x)), -3.0, 3.0),
    ("erf", special.erf, -2.0, 2.0),
    ("erfc", special.erfc, -2.0, 2.0),
    ("gammaln", special.gammaln, 0.7, 4.0),
    ("digamma", special.digamma, 0.7, 4.0),
]
SAMPLES: list[Sample] = []
for name, reference, low, high in HOLOMORPHIC:
    SAMPLES += unary(name, reference, low=low, high=high, complex_too=True)
for name, reference, low, high in REAL:
    SAMPLES += unary(name, reference, low=low, high=high)
for n in (1, 2):
    SAMPLES += unary(
        "polygamma",
        lambda x, n=n: special.polygamma(n, x).astype(x.dtype),
        function=lambda x, n=n: us.polygamma(n, x),
        low=0.7,
        high=4.0,
        label=f"order{n}",
    )
SAMPLES += [
    Sample("sinc", us.sinc, (np.array([0.0, 1e-9, -1e-3, 0.3]),), np.sinc, label="near-zero"),
    Sample("sinc", us.sinc, (np.array([7.3, -11.6]),), np.sinc, label="far"),
]

# --- arithmetic ------------------------------------------------------------------------------------------------------

SAMPLES += binary("add", np.add, complex_too=True, exact=True)
SAMPLES += binary("subtract", np.subtract, complex_too=True, exact=True)
SAMPLES += binary("multiply", np.multiply, complex_too=True, exact=True)
SAMPLES += binary("divide", np.divide, second=(0.5, 2.0), complex_too=True, exact=True)
SAMPLES += binary("power", np.power, first=(0.5, 2.0), complex_too=True)
SAMPLES += unary("negative", np.negative, complex_too=True, exact=True)
SAMPLES += unary("square", np.square, complex_too=True, exact=True)
SAMPLES += unary("reciprocal", np.reciprocal, low=0.5, high=2.0, complex_too=True, exact=True)
for exponent in (3, -2):
    label = f"exponent{exponent}"
    by_scalar = {"function": lambda x, n=exponent: us.power(x, n), "label": label, "complex_too": True, "exact": True}
    SAMPLES += unary("power", lambda x, n=exponent: np.power(x, n), low=0.5, high=2.0, **by_scalar)
SAMPLES += [
    Sample("power", lambda x: us.power(x, 3), (real(3, high=-0.5),), lambda x: x**3, exact=True, label="negative-base"),
    Sample("power", lambda x: us.power(x, 0.5), (real(3, low=0.5),), np.sqrt, label="fraction"),
    Sample(
        "power",
        lambda x: us.power(x, [0.0, 1.0, 3.0]),
        (real(2, 3, low=0.5),),
        lambda x: x ** np.array([0.0, 1.0, 3.0]),
        label="constant-exponents",
    ),
    Sample(
        "power",
        lambda x: us.power(x, us.tensor([2, 3])),
        (real(2, high=-0.5),),
        lambda x: np.power(x.astype(float), np.array([2, 3])).astype(np.result_type(x, np.int64)),
        label="integer-exponents",
    ),
    Sample(
        "power",
        lambda y: us.power(2, y),
        (real(3),),
        lambda y: np.power(np.asarray(2, y.dtype), y),
        label="scalar-base",
    ),
    Sample(
        "power",
        lambda y: us.power(us.constant(-2.0), y),
        (complex_(3),),
        lambda y: np.power(np.asarray(-2.0), y),
        label="negative-constant-base",
    ),
]

# --- absolute value, sign, rounding: straight between kinks ----------------------------------------------------------

for shape in ((3,), (2, 1, 2), (0,), ()):
    x = away_from([0.0], *shape, seed=3)
    SAMPLES.append(Sample("abs", us.abs, (x,), np.abs, exact=True))
    SAMPLES.append(Sample("sign", us.sign, (x,), np.sign))
    SAMPLES.append(Sample("relu", us.relu, (x,), lambda x: np.maximum(x, np.zeros_like(x)), exact=True))
    between = away_from([-2, -1, 0, 1, 2], *shape, seed=4)
    for name, reference in (("floor", np.floor), ("ceil", np.ceil), ("trunc", np.trunc)):
        SAMPLES.append(Sample(name, getattr(us, name), (between,), reference))
    for decimals in (0, 1, -1):
        SAMPLES.append(
            Sample(
                "round",
                lambda x, d=decimals: us.round(x, d),
                (away_from(np.arange(-2.05, 2.1, 0.1), *shape, seed=5, gap=0.02),),
                lambda x, d=decimals: np.round(x, d),
                label=f"{np.shape(x)}decimals{decimals}",
            )
        )
for shape in ((3,), (2, 1), (0,), ()):
    SAMPLES.append(Sample("abs", us.abs, (complex_(*shape, seed=3),), np.abs))
    SAMPLES.append(Sample("sign", us.sign, (complex_(*shape, seed=3),), np.sign))
SAMPLES.append(Sample("round", us.round, (np.array([0.3 + 1.2j, -1.7 - 0.1j]),), np.round))

# --- two arguments ---------------------------------------------------------------------------------------------------

SAMPLES += binary("arctan2", np.arctan2, first=(0.5, 2.0))
SAMPLES += binary("hypot", np.hypot, first=(0.5, 2.0))
SAMPLES += binary("logaddexp", np.logaddexp)
SAMPLES += binary("logaddexp2", np.logaddexp2)
SAMPLES += binary("xlogy", special.xlogy, second=(0.5, 3.0))
SAMPLES += binary("copysign", np.copysign, first=(0.5, 2.0), second=(-2.0, -0.5))
SAMPLES += binary("floor_divide", np.floor_divide, first=(4.2, 4.8), second=(0.91, 1.03))
SAMPLES += binary("remainder", np.remainder, first=(4.2, 4.8), second=(0.91, 1.03))
for name, reference in (("maximum", np.maximum), ("minimum", np.minimum), ("fmax", np.fmax), ("fmin", np.fmin)):
    function = getattr(us, name)
    is_exact = not name.startswith("f")
    for left, right in (((3,), (3,)), ((2, 1), (3,)), ((), (2,)), ((0,), (1,)), ((), ())):
        args = real(*left, seed=8, low=-2.0, high=2.0), away_from([0.0], *right, seed=9)
        apart = np.where(np.abs(args[0] - args[1]).min(initial=1.0) < 0.05, 0.13, 0.0)
        SAMPLES.append(Sample(name, function, (args[0] + apart, args[1]), reference, exact=is_exact))

# --- choosing and masking --------------------------------------------------------------------------------------------

CONDITION = np.array([[True, False, True], [False, False, True]])
for left, right in (((2, 3), (2, 3)), ((3,), (2, 1)), ((), (2, 3)), ((1, 1), ())):
    SAMPLES.append(
        Sample(
            "where",
            lambda x, y: us.where(CONDITION, x, y),
            (real(*left, seed=6), real(*right, seed=7)),
            lambda x, y: np.where(CONDITION, x, y),
            exact=True,
        )
    )
SAMPLES += [
    Sample(
        "where",
        lambda x, y: us.where(CONDITION[0], x, y),
        (complex_(3, seed=6), real(3, seed=7)),
        lambda x, y: np.where(CONDITION[0], x, y),
    ),
    Sample(
        "where",
        lambda x, y: us.where(CONDITION[:0], x, y),
        (real(0, 3), real(3)),
        lambda x, y: np.where(CONDITION[:0], x, y),
        label="empty",
    ),
    Sample(
        "where",
        lambda x: us.where(x > 0, us.sin(x), 0.5 * x),
        (away_from([0.0], 4),),
        lambda x: np.where(x > 0, np.sin(x), 0.5 * x),
        label="condition-of-the-argument",
    ),
]
for shape in ((2, 3), (3,), (2, 1), ()):
    SAMPLES.append(
        Sample(
            "mask",
            lambda x: elementwise.mask(x, us.constant(CONDITION)),
            (real(*shape, seed=6),),
            lambda x: np.where(CONDITION, x, np.zeros((), x.dtype)),
            exact=True,
        )
    )
SAMPLES += [
    Sample(
        "mask",
        lambda x: elementwise.mask(x, us.constant(False)),
        (complex_(2, seed=6),),
        lambda x: np.where(False, x, np.zeros((), x.dtype)),
        label="nothing-kept",
    ),
    Sample(
        "mask",
        lambda x: elementwise.mask(x, us.constant(CONDITION[:0])),
        (real(0, 3),),
        lambda x: np.where(CONDITION[:0], x, np.zeros((), x.dtype)),
        label="empty",
    ),
]

# --- complex numbers and data types ----------------------------------------------------------------------------------

for shape in ((3,), (2, 1), (0,), ()):
    SAMPLES.append(Sample("conj", us.conj, (complex_(*shape),), np.conj))
    SAMPLES.append(Sample("real", us.real, (complex_(*shape),), np.real))
    SAMPLES.append(Sample("imag", us.imag, (complex_(*shape),), np.imag))
    SAMPLES.append(
        Sample("astype", lambda x: us.astype(x, "complex128"), (real(*shape),), lambda x: x.astype("complex128"))
    )
for left, right in (((3,), (3,)), ((2, 1), (3,)), ((), (2,)), ((0,), (1,)), ((), ())):
    SAMPLES.append(
        Sample(
            "from_parts", elementwise.from_parts, (real(*left, seed=1), real(*right, seed=2)), lambda x, y: x + 1j * y
        )
    )
SAMPLES += [
    Sample("astype", lambda x: us.astype(x, "float64") * 2.0, (np.arange(3),), lambda x: x * 2.0, order=0, label="int"),
    Sample("astype", lambda x: us.astype(x, "int64"), (real(3),), lambda x: x.astype("int64"), order=0, label="to-int"),
]

# --- without a derivative --------------------------------------------------------------------------------------------

LEVELS = np.array([-1.0, 0.0, 1.0, 2.0]), np.array([[-1.0], [1.0]])
INTEGERS = np.array([0, 1, 5, -7]), np.array([[3], [2]])
BOOLS = np.array([True, False]), np.array([[True], [False]])
ODD = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0])

for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"):
    for args in (LEVELS, INTEGERS, BOOLS, (np.float64(1.0), np.float64(1.0)), (np.zeros(0), np.zeros(1))):
        SAMPLES.append(Sample(name, getattr(us, name), args, getattr(np, name), order=0))
for name in ("equal", "not_equal"):
    SAMPLES.append(Sample(name, getattr(us, name), (complex_(2), complex_(2)), getattr(np, name), order=0))
for name in ("logical_and", "logical_or", "logical_xor"):
    for args in (LEVELS, BOOLS, (np.True_, np.zeros(0, bool))):
        SAMPLES.append(Sample(name, getattr(us, name), args, getattr(np, name), order=0))
for args in (BOOLS[:1], LEVELS[:1], (np.zeros(0, bool),), (np.True_,)):
    SAMPLES.append(Sample("logical_not", us.logical_not, args, np.logical_not, order=0))
for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    for args in (INTEGERS, BOOLS, (np.int32(6), np.int64(3)), (np.zeros(0, int), np.ones(1, int))):
        SAMPLES.append(Sample(name, getattr(us, name), args, getattr(np, name), order=0))
for args in (INTEGERS[:1], BOOLS[:1], (np.int64(5),), (np.zeros(0, int),)):
    SAMPLES.append(Sample("bitwise_invert", us.bitwise_invert, args, np.invert, order=0))
for name, reference in (("bitwise_left_shift", np.left_shift), ("bitwise_right_shift", np.right_shift)):
    for args in (INTEGERS, (np.int64(13), np.int64(2)), (np.zeros(0, int), np.ones(1, int))):
        SAMPLES.append(Sample(name, getattr(us, name), args, reference, order=0))
for name in ("isnan", "isinf", "isfinite", "signbit"):
    for x in (ODD, np.float64(-1.0), np.zeros(0), INTEGERS[0]):
        SAMPLES.append(Sample(name, getattr(us, name), (x,), getattr(np, name), order=0))
