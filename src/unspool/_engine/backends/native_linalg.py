"""How ops of linear algebra are written in native programs: the routine that the kernel calls, on the same memory.

The kernels of these ops look for what is rare before and after LAPACK: entries that are not finite, singular matrices,
equal values, null spaces. A rule writes the usual case, with the same tests, and jumps to the kernel for all others.
Routines are those of SciPy, which the kernels call too, or of NumPy's generalised ufuncs; so the bits are the same. Of
stacks of matrices, and of single precision, there are only the kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from unspool._engine.backends.native_layout import Unsupported, Value, c_strides, result_order
from unspool._engine.backends.native_program import CHECK, FORTRAN, GUFUNC, PARITY, SELECT, SHIFT, TRIANGLE, Builder
from unspool._engine.backends.native_rules import Rule, Writing

# The argument by which a routine says whether it failed, as `lapack.c` has it.
INFO = -(1 << 63)

_LETTERS = {"d": "d", "D": "z"}
_INT32 = np.dtype(np.int32)


@lru_cache(maxsize=128)
def _routine(name: str, library: str = "cython_lapack") -> Any:
    """Return the pointer of a routine of SciPy's BLAS or LAPACK whose integers have 32 bits."""
    from importlib import import_module

    found = import_module(f"scipy.linalg.{library}").__pyx_capi__.get(name)
    if found is None or " int *" not in repr(found):
        raise Unsupported(f"there is no routine {name}")
    return found


def _call(builder: Builder, routine: Any, *arguments: Value | int | str) -> int:
    """Append the call of a routine, and return the position of the instruction, which jumps if it fails."""
    constants = bytearray()
    numbers: list[int] = []
    for argument in arguments:
        if isinstance(argument, Value):
            numbers.append(argument.slot)
        elif argument == INFO:
            numbers.append(INFO)
        else:
            numbers.append(~len(constants))
            constants += argument.encode().ljust(4) if isinstance(argument, str) else _INT32.type(argument).tobytes()
    return builder.test(FORTRAN, (), numbers, (routine, bytes(constants)))


def is_one(*values: Value) -> bool:
    """Whether values are single matrices of doubles, or of complex numbers, with elements."""
    return all(len(v.shape) == 2 and v.size and v.dtype.char in _LETTERS for v in values)


def check(builder: Builder, what: str, values: Sequence[Value], *sizes: int, limit: float = 0.0) -> int:
    """Append a test that numbers are as they most often are, and return its position (see `run_check`)."""
    return builder.test(CHECK, [v.slot for v in values], (ord(what), *sizes), limit)


def finite(builder: Builder, x: Value) -> int:
    """Append a test that no entry of a value without gaps is infinite or NaN."""
    if x.order is None:
        raise Unsupported("there are gaps between its elements")
    return check(builder, "f", [x], x.size * x.dtype.itemsize // 8)


def _regular(builder: Builder, factors: Value) -> int:
    """Append a test that no pivot is zero."""
    step = sum(factors.strides)
    return check(builder, "d", [factors], factors.shape[0], step, factors.dtype.itemsize // 8)


def _copied(builder: Builder, x: Value, order: str = "C") -> Value:
    return builder.copied(None, x, order)


# --- factors, and what is made of them --------------------------------------------------------------------------------


def _lu_factors(to: Writing, a: Value) -> Any:
    if not is_one(a):
        return to.call_all(a)
    builder, n = to.builder, a.shape[0]
    tests = [finite(builder, a)]
    factors = _copied(builder, a)
    if a.dtype.kind == "c":
        builder.loop(_loop(np.conjugate, a.dtype, 2), [factors, factors])
    pivots = builder.new(None, (n,), _INT32)
    routine = _routine(f"{_LETTERS[a.dtype.char]}getrf")
    # A matrix without an inverse has factors too.
    _never(builder, _call(builder, routine, n, n, factors, n, pivots, INFO))
    _shift(builder, pivots, pivots, -1)
    builder.unless(tests, to.kernel, [a], [factors, pivots])
    return [factors, pivots]


def _never(builder: Builder, test: int) -> None:
    """Let a test that is not looked at go on with what follows it."""
    opcode, slots, shape, count, outer, inner, numbers, what = builder.instructions[test]
    builder.instructions[test] = (opcode, slots, shape, count, outer, inner, (0, *numbers[1:]), what)


def _shift(builder: Builder, pivots: Value, shifted: Value, by: int) -> None:
    builder.emit(SHIFT, [pivots.slot, shifted.slot], count=pivots.size, numbers=(by,))


def _loop(ufunc: Any, dtype: Any, operands: int) -> Any:
    from unspool._engine.backends.native_program import loop_of

    return loop_of(ufunc, *[dtype] * operands)


def _solve(to: Writing, factors: Value, pivots: Value, a: Value, b: Value) -> Value:
    if not is_one(a, factors) or factors.order != "C" or not b.size or b.dtype != a.dtype:
        return to.call(factors, pivots, a, b)
    builder, n = to.builder, a.shape[0]
    result = to.new("C" if len(b.shape) == 1 or b.order == "C" else "F")
    tests = [_regular(builder, factors)]
    # LAPACK takes columns.
    columns = _copied(builder, b, "F" if len(b.shape) == 2 else "C")
    rows = builder.new(None, (n,), _INT32)
    _shift(builder, pivots, rows, 1)
    count = b.shape[1] if len(b.shape) == 2 else 1
    way = "N" if to.step.params["adjoint"] else "C"
    routine = _routine(f"{_LETTERS[a.dtype.char]}getrs")
    tests.append(_call(builder, routine, way, n, count, factors, n, rows, columns, n, INFO))
    builder.copy(columns, result)
    to.call_unless(tests, result, factors, pivots, a, b)
    return result


def _inv(to: Writing, factors: Value, pivots: Value, a: Value) -> Value:
    if not is_one(a, factors) or factors.order != "C":
        return to.call(factors, pivots, a)
    builder, n, letter = to.builder, a.shape[0], _LETTERS[a.dtype.char]
    result = to.new()
    # Without an inverse, what it gives depends on how it is asked.
    tests = [_regular(builder, factors)]
    builder.copy(factors, result)
    rows = builder.new(None, (n,), _INT32)
    _shift(builder, pivots, rows, 1)
    size = _workspace("getri_lwork", a.dtype, n)
    work = builder.new(None, (size,), a.dtype)
    tests.append(_call(builder, _routine(f"{letter}getri"), n, result, n, rows, work, size, INFO))
    if a.dtype.kind == "c":
        builder.loop(_loop(np.conjugate, a.dtype, 2), [result, result])
    to.call_unless(tests, result, factors, pivots, a)
    return result


@lru_cache(maxsize=1024)
def _workspace(name: str, dtype: Any, *sizes: int, **options: Any) -> int:
    """Return how much room a routine asks for, as its kernel does."""
    from scipy.linalg import get_lapack_funcs

    return int(get_lapack_funcs(name, dtype=dtype)(*sizes, **options)[0].real)


def _slogdet(to: Writing, factors: Value, pivots: Value, a: Value) -> Any:
    if not is_one(a, factors) or a.dtype.kind != "f":
        return to.call_all(factors, pivots, a)
    builder, n, dtype = to.builder, a.shape[0], a.dtype
    sign, logarithm = [builder.new(None, (), d) for d in to.dtype]
    tests = [_regular(builder, factors)]
    on_diagonal = factors.viewed((n,), (sum(factors.strides),))
    diagonal = builder.apply(np.conjugate, None, [on_diagonal], (n,), dtype)
    sizes = builder.apply(np.absolute, None, [diagonal], (n,), dtype)
    phases = builder.apply(np.divide, None, [diagonal, sizes], (n,), dtype)
    product = builder.reduce(np.multiply, None, phases, [0], ())
    parity = builder.new(None, (), dtype)
    builder.emit(PARITY, [pivots.slot, parity.slot], count=n)
    builder.loop(_loop(np.multiply, dtype, 3), [product, parity, sign])
    total = builder.reduce(np.add, None, builder.apply(np.log, None, [sizes], (n,), dtype), [0], ())
    builder.copy(total, logarithm)
    builder.unless(tests, to.kernel, [factors, pivots, a], [sign, logarithm])
    return [sign, logarithm]


def _sound_inverse(to: Writing, inverse: Value, a: Value) -> Value:
    if not is_one(inverse, a) or inverse.order is None or a.order is None:
        return to.call(inverse, a)
    # Well below the limit of the kernel.
    limit = 1e-3 / float(np.finfo(a.dtype).eps)
    sizes = [x.size * x.dtype.itemsize // 8 for x in (inverse, a)]
    test = check(to.builder, "p", [inverse, a], *sizes, limit=limit)
    to.call_unless([test], None, inverse, a)
    return inverse


# --- decompositions ---------------------------------------------------------------------------------------------------


def hermitian_part(builder: Builder, x: Value) -> Value:
    """Write the Hermitian part, as `hermitian_array` computes it; its axes lie in C order."""
    turned = x.transposed((1, 0))
    if x.dtype.kind == "c":
        turned = builder.apply(np.conjugate, None, [turned], x.shape, x.dtype)
    difference = builder.apply(np.subtract, None, [x, turned], x.shape, x.dtype)
    half = builder.apply(np.multiply, None, [difference, builder.constant(np.array(0.5, x.dtype))], x.shape, x.dtype)
    found = builder.apply(np.subtract, None, [x, half], x.shape, x.dtype)
    return found


def _eigh(to: Writing, x: Value) -> Any:
    if not is_one(x) or x.order != "C":
        return to.call_all(x)
    builder, n = to.builder, x.shape[0]
    values, vectors = [builder.new(None, s, d) for s, d in zip(to.shape, to.dtype, strict=True)]
    tests = [finite(builder, x)]
    matrix = hermitian_part(builder, x)
    if matrix.order != "C":
        raise Unsupported("NumPy copies such a matrix in its own order")
    loop = gufunc_of("eigh_lo" if to.step.params["lower"] else "eigh_up", f"{x.dtype.char}->d{x.dtype.char}")
    numbers = (1, n, 0, 0, 0, *matrix.strides, *values.strides, *vectors.strides)
    builder.emit(GUFUNC, (matrix.slot, values.slot, vectors.slot), count=2, numbers=numbers, what=loop)
    tests.append(check(builder, "e", [values], n, limit=n * float(np.finfo(np.float64).eps)))
    builder.unless(tests, to.kernel, [x], [values, vectors])
    return [values, vectors]


def gufunc_of(name: str, types: str) -> tuple[Any, int]:
    """Return a loop of NumPy's linear algebra by its name and its types."""
    from numpy.linalg import _umath_linalg

    found = getattr(_umath_linalg, name, None)
    if not isinstance(found, np.ufunc) or types not in found.types:
        raise Unsupported(f"there is no {name} of {types}")
    return found, found.types.index(types)


def singular_factors(to: Writing, x: Value, *, full: bool) -> tuple[list[Value], list[int]]:
    """Write the factors of a matrix of doubles, and return them with tests that LAPACK found them."""
    builder, (m, n) = to.builder, x.shape
    k = min(m, n)
    u, s, vh = [builder.new(None, *t) for t in zip(to.shape, to.dtype, ("F", "C", "F"), strict=True)]
    tests = [finite(builder, x)]
    columns = _copied(builder, x, "F")
    size = _workspace("gesdd_lwork", x.dtype, m, n, full_matrices=full)
    work, integers = builder.new(None, (size,), x.dtype), builder.new(None, (8 * k,), _INT32)
    rows, routine = vh.shape[0], _routine("dgesdd")
    way = "A" if full else "S"
    tests.append(_call(builder, routine, way, m, n, columns, m, s, u, m, vh, rows, work, size, integers, INFO))
    return [u, s, vh], tests


def _svd(to: Writing, x: Value) -> Any:
    if not is_one(x) or x.dtype.kind == "c":
        return to.call_all(x, orders=("F", "C", "F") if len(x.shape) == 2 else None)
    (u, s, vh), tests = singular_factors(to, x, full=to.step.params["full"])
    tests.append(check(to.builder, "s", [s], s.size, limit=max(x.shape) * float(np.finfo(np.float64).eps)))
    to.builder.unless(tests, to.kernel, [x], [u, s, vh])
    return [u, s, vh]


def _cholesky(to: Writing, x: Value) -> Value:
    if not is_one(x) or x.order != "C":
        return to.call(x)
    builder, n = to.builder, x.shape[0]
    result = to.new()
    matrix = hermitian_part(builder, x)
    if matrix.order != "C":
        raise Unsupported("NumPy copies such a matrix in its own order")
    tests = [finite(builder, matrix)]
    builder.copy(matrix, result)
    tests.append(_call(builder, _routine(f"{_LETTERS[x.dtype.char]}potrf"), "U", n, result, n, INFO))
    _keep_triangle(builder, result, upper=False)
    to.call_unless(tests, result, x)
    return result


def _keep_triangle(builder: Builder, x: Value, *, upper: bool) -> None:
    builder.emit(TRIANGLE, [x.slot], numbers=(*x.shape, *x.strides, x.dtype.itemsize, upper))


def _lower_half(to: Writing, x: Value) -> Value:
    if x.dtype.kind not in "fc" or not x.size:
        return to.call(x)
    rows, columns = x.shape[-2:]
    i, j = np.arange(rows)[:, None], np.arange(columns)
    below, diagonal = to.builder.constant(i > j), to.builder.constant(i == j)
    half = to.temporary(np.divide, x, to.constant(2))
    on_diagonal = to.builder.new(None, to.shape, to.dtype, result_order((diagonal, half), to.shape))
    to.builder.over_elements(SELECT, [diagonal, half, to.constant(0), on_diagonal], (to.dtype.itemsize,))
    result = to.new(result_order((below, x, on_diagonal), to.shape))
    to.builder.over_elements(SELECT, [below, x, on_diagonal, result], (to.dtype.itemsize,))
    return result


def _qr(to: Writing, x: Value) -> Any:
    params = to.step.params
    if not is_one(x) or params["complete"] or params["positive"] or x.dtype.kind == "c":
        return to.call_all(x)
    builder, (m, n) = to.builder, x.shape
    k, size = min(m, n), 64 * n
    q, r = [builder.new(None, s, d) for s, d in zip(to.shape, to.dtype, strict=True)]
    packed, tau, work = _copied(builder, x, "F"), builder.new(None, (k,), x.dtype), builder.new(None, (size,), x.dtype)
    tests = [_call(builder, _routine("dgeqrf"), m, n, packed, m, tau, work, size, INFO)]
    builder.copy(packed.viewed((k, n), packed.strides), r)
    _keep_triangle(builder, r, upper=True)
    tests.append(_call(builder, _routine("dorgqr"), m, k, k, packed, m, tau, work, size, INFO))
    builder.copy(packed.viewed((m, k), packed.strides), q)
    builder.unless(tests, to.kernel, [x], [q, r])
    return [q, r]


def _solve_triangular(to: Writing, a: Value, b: Value) -> Value:
    params = to.step.params
    if not is_one(a, b) or a.order is None or b.order is None or a.dtype != b.dtype or a.dtype.kind == "c":
        return to.call(a, b)
    builder, n = to.builder, a.shape[0]
    by_rows, from_right = a.order != "F", b.order != "F"
    result = to.new("C" if from_right else "F")
    tests = [] if params["unit_diagonal"] else [_regular(builder, a)]
    builder.copy(b, result)
    # As BLAS sees it: columns first.
    rows, columns = (b.shape[1], n) if from_right else (n, b.shape[1])
    transposed = params["adjoint"] != by_rows
    arguments = (
        "R" if from_right else "L",
        "L" if params["lower"] != by_rows else "U",
        "T" if transposed != from_right else "N",
        "U" if params["unit_diagonal"] else "N",
    )
    one = builder.constant(np.array(1.0))
    _never(
        builder,
        _call(builder, _routine("dtrsm", "cython_blas"), *arguments, rows, columns, one, a, n, result, rows),
    )
    to.call_unless(tests, result, a, b)
    return result


# --- derivatives of decompositions ------------------------------------------------------------------------------------


def _apart(to: Writing, left: Value, right: Value) -> int | None:
    """Append the quick look of the kernels at divisors; ``None`` if there is none."""
    sign, limit = to.step.params["sign"], to.step.params["degeneracy"]
    if any(len(v.shape) != 1 or not v.size or v.dtype != np.float64 or v.order != "C" for v in (left, right)):
        return None
    if sign > 0:
        return check(to.builder, "+", [left, right], left.size, right.size, limit=limit)
    same = to.step.operands[1] == to.step.operands[2]
    return check(to.builder, "-", [left], left.size, limit=limit) if same else None


def _gap_quotient(to: Writing, numerator: Value, left: Value, right: Value) -> Value:
    builder, sign = to.builder, to.step.params["sign"]
    test = _apart(to, left, right) if len(numerator.shape) == 2 else None
    if test is None:
        return to.call(numerator, left, right)
    shape, dtype = (left.size, right.size), left.dtype
    signed = builder.apply(np.multiply, None, [builder.constant(np.array(sign, dtype)), left], left.shape, dtype)
    row = right.viewed((1, right.size), (0, right.strides[0]))
    column = signed.viewed((left.size, 1), (signed.strides[0], 0))
    gaps = builder.apply(np.add, None, [row, column], shape, dtype)
    if sign < 0:
        diagonal = gaps.viewed((left.size,), (sum(gaps.strides),))
        builder.copy(builder.constant(np.array(np.inf, dtype)), diagonal)
    result = to.apply(np.divide, numerator, gaps)
    to.call_unless([test], result, numerator, left, right)
    return result


def _gauge_check(to: Writing, numerator: Value, left: Value, right: Value, *scales: Value) -> Value:
    params = to.step.params
    if numerator.order is None:
        return to.call(numerator, left, right, *scales)
    is_quick = params["sign"] > 0 or not params["diagonal"] or numerator.dtype.kind != "c"
    test = _apart(to, left, right) if is_quick and len(numerator.shape) == 2 else None
    if test is None:
        to.builder.call(to.kernel, [numerator, left, right, *scales], [])
        return numerator
    to.call_unless([test], None, numerator, left, right, *scales)
    return numerator


def _settled_values(to: Writing, ct: Value, values: Value, *others: Value) -> Value:
    builder, params = to.builder, to.step.params
    if ct.order is None:
        return to.call(ct, values, *others)
    if len(values.shape) != 1 or not values.size or values.dtype != np.float64 or values.order != "C":
        builder.call(to.kernel, [ct, values, *others], [])
        return ct
    # Twice the limit of the kernel, which divides by the largest value first.
    limit = 2 * params["degeneracy"]
    tests = [check(builder, "-", [values], values.size, limit=limit)]
    if params["zeros"]:
        tests.append(check(builder, "e", [values], values.size, limit=limit))
    to.call_unless(tests, None, ct, values, *others)
    return ct


def _scale(to: Writing, *moves: Value) -> Value:
    builder = to.builder
    if to.step.params["stack"] or any(x.dtype.char not in _LETTERS for x in moves):
        return to.call(*moves)
    result = to.new()
    builder.fill(result, 0)
    for x in moves:
        if x.size:
            sizes = builder.apply(np.absolute, None, [x], x.shape, to.dtype)
            flat = sizes.viewed((sizes.size,), c_strides((sizes.size,), to.dtype))
            builder.accumulate(_loop(np.maximum, to.dtype, 3), flat, result)
    return result


RULES: dict[str, Rule] = {
    "cholesky": _cholesky,
    "eigh": _eigh,
    "gap_quotient": _gap_quotient,
    "gauge_check": _gauge_check,
    "inv": _inv,
    "lower_half": _lower_half,
    "lu_factors": _lu_factors,
    "qr": _qr,
    "scale": _scale,
    "settled_values": _settled_values,
    "slogdet": _slogdet,
    "solve": _solve,
    "solve_triangular": _solve_triangular,
    "sound_inverse": _sound_inverse,
    "svd": _svd,
}
