"""How truncations are written in native programs: the factors of a matrix, its leading space, and how that moves.

Polar factors are here too, which the halves of a matrix that is cut are made of.

As in `native_linalg` a rule writes the usual case of the kernel, call by call, and jumps to the kernel for all others:
where a cut goes through equal values, or a loss depends on the basis. Of complex numbers there are only the kernels.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from unspool._engine.backends.native_layout import Value, result_order
from unspool._engine.backends.native_linalg import check, finite, gufunc_of, hermitian_part, is_one, singular_factors
from unspool._engine.backends.native_program import GUFUNC, IF_OUTSIDE, Builder
from unspool._engine.backends.native_rules import Rule, Writing

_DOUBLE = np.dtype(np.float64)


def _space_factors(to: Writing, x: Value) -> Any:
    is_hermitian, is_matrix = to.step.params["hermitian"], len(x.shape) == 2
    if is_hermitian or not is_one(x) or x.dtype != _DOUBLE:
        orders = ("C" if is_hermitian else "F", "C", "F") if is_matrix else None
        return to.call_all(x, orders=orders)
    (u, s, vh), tests = singular_factors(to, x, full=False)
    to.builder.unless(tests, to.kernel, [x], [u, s, vh])
    return [u, s, vh]


def _leading_space(to: Writing, a: Value, u: Value, s: Value, vh: Value) -> Any:
    if not is_one(u, vh) or s.shape == (0,):
        return to.call_all(a, u, s, vh)
    (_, count), _ = isometry, rest = to.shape
    values = s.viewed((count, 1), (s.strides[0], 0))
    rows = vh.viewed(rest, vh.strides)
    return [u.viewed(isometry, u.strides), to.builder.apply(np.multiply, None, [values, rows], rest, to.dtype[1])]


# --- how a space moves ------------------------------------------------------------------------------------------------


def _space_motion(to: Writing, *given: Value) -> Any:
    x, y, _, _, _, u, s, vh = given[:8]
    if not is_one(x, y, u, vh) or any(v.dtype != _DOUBLE for v in given):
        return to.call_all(*given)
    builder, params = to.builder, to.step.params
    (rows, count), rank = u.shape, x.shape[1]
    tests: list[int] = []
    inside = _times(builder, u.transposed((1, 0)), x)
    total = _sum(builder, inside, _scaled(builder, s, _times(builder, vh, y.transposed((1, 0)))))
    if params["check"] and not params["trusted"]:
        tests.append(_turns_nothing(builder, total.viewed((rank, rank), total.strides), params["gauge"]))
    if rank == rows:
        z, w = builder.new(None, x.shape, x.dtype, result_order([x], x.shape)), y
        builder.fill(z, 0)
    else:
        tests.append(check(builder, "c", [s], count, rank, limit=params["degeneracy"]))
        z, w = _moved(builder, x, y, u, s, vh, inside, total)
    # Where all values are kept, what pushes the rest is how it moves, whatever the kernel finds.
    is_same = w is y
    builder.unless(tests, partial(_first, to.kernel) if is_same else to.kernel, given, [z] if is_same else [z, w])
    return [z, w]


def _first(kernel: Any, *given: Any) -> Any:
    return kernel(*given)[0]


def _moved(
    builder: Builder, x: Value, y: Value, u: Value, s: Value, vh: Value, inside: Value, total: Value
) -> tuple[Value, Value]:
    """Write what the kernel computes if a space and what is beside it have no value in common."""
    (rows, count), rank = u.shape, x.shape[1]
    kept = s.viewed((1, rank), (0, s.strides[0]))
    z, w = None, y
    if rank < count:
        beside = builder.moved(s, rank * s.strides[0])
        dropped = beside.viewed((count - rank, 1), (s.strides[0], 0))
        below = builder.moved(total, rank * total.strides[0]).viewed((count - rank, rank), total.strides)
        push = _divided(builder, below, kept, dropped)
        others = builder.moved(u, rank * u.strides[1]).viewed((rows, count - rank), u.strides)
        z = _times(builder, others, push)
        back = _elementwise(builder, np.multiply, dropped, push).transposed((1, 0))
        w = _sum(
            builder,
            y,
            _times(
                builder, back, builder.moved(vh, rank * vh.strides[0]).viewed((count - rank, vh.shape[1]), vh.strides)
            ),
        )
    if rows > count:
        outside = _elementwise(builder, np.subtract, x, _times(builder, u, inside))
        outside = _divided(builder, outside, kept, builder.constant(np.array(0.0)))
        z = outside if z is None else _sum(builder, z, outside)
    assert z is not None
    return z, w


def _turns_nothing(builder: Builder, turn: Value, gauge: float) -> int:
    """Append the quick look of the kernel at what a rotation of the basis would send back."""
    skew = _elementwise(builder, np.subtract, turn, turn.transposed((1, 0)))
    flat = skew.viewed((skew.size,), (8,))
    floor = 1024 * gauge * gauge
    return builder.test(IF_OUTSIDE, [builder.dot(None, flat, flat).slot], what=(-1.0, np.nextafter(floor**2, np.inf)))


def _divided(builder: Builder, push: Value, kept: Value, dropped: Value) -> Value:
    gaps = _elementwise(builder, np.subtract, kept, dropped)
    divisors = _elementwise(builder, np.multiply, gaps, _elementwise(builder, np.add, kept, dropped))
    return _elementwise(builder, np.divide, push, divisors)


def _times(builder: Builder, left: Value, right: Value) -> Value:
    result = builder.new(None, (left.shape[0], right.shape[1]), left.dtype)
    builder.matmul(result, left, right)
    return result


def _sum(builder: Builder, x: Value, y: Value) -> Value:
    return _elementwise(builder, np.add, x, y)


def _scaled(builder: Builder, s: Value, matrix: Value) -> Value:
    return _elementwise(builder, np.multiply, s.viewed((s.size, 1), (s.strides[0], 0)), matrix)


def _elementwise(builder: Builder, ufunc: Any, x: Value, y: Value) -> Value:
    return builder.apply(ufunc, None, [x, y], np.broadcast_shapes(x.shape, y.shape), x.dtype)


# --- polar factors ----------------------------------------------------------------------------------------------------


def _polar(to: Writing, x: Value) -> Any:
    if not is_one(x) or x.dtype != _DOUBLE:
        return to.call_all(x)
    builder, (m, n) = to.builder, x.shape
    k = min(m, n)
    tests = [finite(builder, x)]
    left, spectrum, right = [builder.new(None, shape, x.dtype) for shape in ((m, k), (k,), (k, n))]
    strides = (*x.strides, *left.strides, *spectrum.strides, *right.strides)
    loop = gufunc_of("svd_s", "d->ddd")
    slots = (x.slot, left.slot, spectrum.slot, right.slot)
    builder.emit(GUFUNC, slots, count=4, numbers=(1, m, n, k, 0, 0, 0, 0, *strides), what=loop)
    tests.append(finite(builder, spectrum))
    columns = _conjugated(builder, right)
    scaled = _elementwise(builder, np.multiply, columns, spectrum.viewed((1, k), (0, spectrum.strides[0])))
    p = _times(builder, scaled, right)
    total = _sum(builder, p, _conjugated(builder, p))
    u, half = _times(builder, left, right), _elementwise(builder, np.divide, total, builder.constant(np.array(2.0)))
    builder.unless(tests, to.kernel, [x], [u, half])
    return [u, half]


def _lyapunov(to: Writing, p: Value, c: Value) -> Value:
    if not is_one(p, c) or p.order != "C" or p.dtype != _DOUBLE or c.dtype != _DOUBLE:
        return to.call(p, c)
    builder, n = to.builder, p.shape[0]
    result, tests = to.new(), [finite(builder, p)]
    matrix = hermitian_part(builder, p)
    values, vectors = builder.new(None, (n,), p.dtype), builder.new(None, (n, n), p.dtype)
    numbers = (1, n, 0, 0, 0, *matrix.strides, *values.strides, *vectors.strides)
    slots = (matrix.slot, values.slot, vectors.slot)
    builder.emit(GUFUNC, slots, count=2, numbers=numbers, what=gufunc_of("eigh_lo", "d->dd"))
    # They rise, so all are positive if the first one is.
    tests.append(builder.test(IF_OUTSIDE, [values.slot], what=(0.0, np.inf)))
    tests.append(check(builder, "e", [values], n, limit=to.step.params["rank"]))
    back = _conjugated(builder, vectors)
    column, row = [values.viewed(*v) for v in (((n, 1), (values.strides[0], 0)), ((1, n), (0, values.strides[0])))]
    turned = _times(builder, _times(builder, back, c), vectors)
    quotient = _elementwise(builder, np.divide, turned, _elementwise(builder, np.add, column, row))
    builder.matmul(result, _times(builder, vectors, quotient), back)
    to.call_unless(tests, result, p, c)
    return result


def _conjugated(builder: Builder, x: Value) -> Value:
    """Return the adjoint of a matrix, as an array of its own."""
    turned = x.transposed((1, 0))
    return builder.apply(np.conjugate, None, [turned], turned.shape, x.dtype)


RULES: dict[str, Rule] = {
    "leading_space": _leading_space,
    "lyapunov": _lyapunov,
    "polar": _polar,
    "space_factors": _space_factors,
    "space_motion": _space_motion,
}
