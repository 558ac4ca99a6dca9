"""Samples of reductions and running reductions."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.special

import unspool as us
from tests.samples import Sample, complex_, real
from unspool._ops.reduction.recurrence import recurrence, shift

X = real(2, 3)
Z = complex_(2, 3)
CUBE = real(2, 2, 2)
# No two elements closer than the steps that differences take, or than rationals of eighths.
DISTINCT = np.array([[0.5, -1.25, 2.0], [1.5, -0.5, 0.875]])
ONE_ZERO = np.array([[0.0, 1.5, -2.0], [0.5, 3.0, 1.25]])
TWO_ZEROS = np.array([[0.0, 1.5, 0.0], [0.5, 0.0, 1.25]])
COMPLEX_ZEROS = np.array([0.0, 1 - 2j, 0.5 + 1j])
KEEP = np.array([[True, False, True], [True, True, False]])
SCALAR = np.array(1.5)
EMPTY = np.zeros((0, 2))
SINGLE = real(1, 3)


def recurrence_reference(adjoint: bool, axis: int = 0) -> Any:
    def reference(a: Any, b: Any) -> Any:
        a, out = np.moveaxis(a, axis, 0), np.moveaxis(np.array(b + 0 * a), axis, 0)
        n = len(out)
        for j in range(n - 2, -1, -1) if adjoint else range(1, n):
            out[j] = out[j] + (a[j + 1] * out[j + 1] if adjoint else a[j] * out[j - 1])
        return np.moveaxis(out, 0, axis)

    return reference


def shift_reference(fill: int, back: bool = False, axis: int = 0) -> Any:
    def reference(x: Any) -> Any:
        front = np.full_like(np.take(x, [0], axis=axis), fill)
        order = [x[(slice(None),) * axis + (slice(1, None),)], front] if back else None
        return np.concatenate(order or [front, x[(slice(None),) * axis + (slice(None, -1),)]], axis=axis)

    return reference


def stable_softmax(x: Any, axis: Any) -> Any:
    e = np.exp(x)
    return e / e.sum(axis=axis, keepdims=True)


def over_axes(op: str, ours: Any, reference: Any, x: Any, exact: bool = False, order: int = 2) -> list[Sample]:
    """Return samples over the ways to name axes."""
    variants: list[tuple[Any, dict[str, Any]]] = [
        (x, {}),
        (x, {"axis": 0}),
        (x, {"axis": -1, "keepdims": True}),
        (x, {"axis": (0, 1)}),
        (x, {"axis": None, "keepdims": True}),
        (CUBE if x.dtype.kind == "f" and x is not DISTINCT else x, {"axis": (-1, 0)}),
        (x[:1], {"axis": 0}),
    ]
    return [
        Sample(
            op,
            lambda a, kw=kw: ours(a, **kw),
            (a,),
            lambda a, kw=kw: reference(a, **kw),
            order,
            exact,
            " ".join(f"{k}={v}" for k, v in kw.items()) + " " + "x".join(map(str, a.shape)),
        )
        for a, kw in variants
    ]


SUMS = [
    *over_axes("sum", us.sum, np.sum, X, exact=True),
    *over_axes("sum", us.sum, np.sum, Z),
    Sample("sum", lambda x: us.sum(x, axis=0), (EMPTY,), lambda x: np.sum(x, axis=0), exact=True, label="empty"),
    Sample("sum", lambda x: us.sum(x, axis=1), (EMPTY,), lambda x: np.sum(x, axis=1), label="of nothing"),
    Sample("sum", lambda x: us.sum(x, where=KEEP), (X,), lambda x: np.sum(x, where=KEEP), label="where"),
    Sample("sum", us.sum, (np.array([True, True]),), np.sum, order=0, label="bools"),
    Sample("sum", us.sum, (np.array([1, 2], np.int32),), np.sum, order=0, label="int32"),
    *over_axes("sum", us.mean, np.mean, X, exact=True),
    Sample("sum", lambda x: us.mean(x, axis=1, where=KEEP), (Z,), lambda x: np.mean(x, axis=1, where=KEEP)),
    Sample("sum", lambda x: us.mean(x), (np.array([1, 2]),), np.mean, order=0, label="mean of integers"),
    *over_axes("sum", us.var, np.var, X),
    Sample("sum", lambda x: us.var(x, axis=1, correction=1), (Z,), lambda x: np.var(x, axis=1, ddof=1)),
    Sample(
        "sum",
        lambda x: us.var(x, axis=1, where=KEEP),
        (X,),
        lambda x: np.var(x, axis=1, where=KEEP),
        label="var where",
    ),
    Sample("sum", lambda x: us.std(x, axis=1), (X,), lambda x: np.std(x, axis=1), label="std of rows"),
    Sample("sum", lambda x: us.std(x, correction=1), (Z,), lambda x: np.std(x, ddof=1), label="std"),
]

PRODUCTS = [
    *over_axes("prod", us.prod, np.prod, X, exact=True),
    *over_axes("prod", us.prod, np.prod, Z)[:3],
    *over_axes("prod", us.prod, np.prod, ONE_ZERO, exact=True)[:2],
    *over_axes("prod", us.prod, np.prod, TWO_ZEROS, exact=True)[:3],
    Sample("prod", us.prod, (COMPLEX_ZEROS,), np.prod, label="complex zeros"),
    Sample("prod", lambda x: us.prod(x, axis=0), (EMPTY,), lambda x: np.prod(x, axis=0), exact=True, label="empty"),
    Sample("prod", lambda x: us.prod(x, axis=1), (EMPTY,), lambda x: np.prod(x, axis=1), label="of nothing"),
    Sample("prod", lambda x: us.prod(x, where=KEEP), (X,), lambda x: np.prod(x, where=KEEP), label="where"),
    Sample("prod", us.prod, (np.array([2, 3], np.int32),), np.prod, order=0, label="int32"),
]

EXTREMA = [
    *over_axes("max", us.max, np.max, DISTINCT, exact=True),
    *over_axes("min", us.min, np.min, DISTINCT, exact=True),
    Sample("max", lambda x: us.max(x, axis=1), (EMPTY,), lambda x: np.max(x, axis=1), label="of nothing"),
    Sample("min", lambda x: us.min(x, axis=1), (EMPTY,), lambda x: np.min(x, axis=1), label="of nothing"),
    Sample("max", lambda x: us.max(x, axis=0, initial=-9.0), (EMPTY,), lambda x: np.max(x, axis=0, initial=-9.0)),
    Sample("min", lambda x: us.min(x, axis=0, initial=9.0), (EMPTY,), lambda x: np.min(x, axis=0, initial=9.0)),
    Sample(
        "max",
        lambda x: us.max(x, axis=1, initial=0.75, where=KEEP),
        (DISTINCT,),
        lambda x: np.max(x, axis=1, initial=0.75, where=KEEP),
        label="where",
    ),
    Sample(
        "min",
        lambda x: us.min(x, axis=1, initial=0.75, where=KEEP),
        (DISTINCT,),
        lambda x: np.min(x, axis=1, initial=0.75, where=KEEP),
        label="where",
    ),
    Sample("max", us.max, (np.array([2, 3]),), np.max, order=0, label="integers"),
    Sample("max", lambda x: us.ptp(x, axis=1), (DISTINCT,), lambda x: np.ptp(x, axis=1), label="ptp"),
    Sample("argmax", us.argmax, (DISTINCT,), np.argmax, order=0),
    Sample("argmax", lambda x: us.argmax(x, axis=0), (DISTINCT,), lambda x: np.argmax(x, axis=0), order=0),
    Sample("argmax", us.argmax, (SCALAR,), np.argmax, order=0),
    Sample(
        "argmin",
        lambda x: us.argmin(x, axis=1, keepdims=True),
        (DISTINCT,),
        lambda x: np.argmin(x, axis=1, keepdims=True),
        order=0,
    ),
    Sample(
        "argmin", lambda x: us.argmin(x, keepdims=True), (DISTINCT,), lambda x: np.argmin(x, keepdims=True), order=0
    ),
]

LOGIC = [
    *over_axes("any", us.any, np.any, TWO_ZEROS, order=0),
    *over_axes("all", us.all, np.all, TWO_ZEROS, order=0),
    Sample("any", us.any, (np.array([0, 1j]),), np.any, order=0),
    Sample("any", us.any, (SCALAR,), np.any, order=0),
    Sample("all", lambda x: us.all(x, axis=0), (EMPTY,), lambda x: np.all(x, axis=0), order=0),
    Sample("all", lambda x: us.all(x, where=KEEP), (ONE_ZERO,), lambda x: np.all(x, where=KEEP), order=0),
    Sample("any", lambda x: us.any(x, where=~KEEP), (ONE_ZERO,), lambda x: np.any(x, where=~KEEP), order=0),
    Sample("sum", lambda x: us.count_nonzero(x, axis=0), (ONE_ZERO,), lambda x: np.count_nonzero(x, axis=0), order=0),
]

SCANS = [
    Sample(op, lambda x, f=ours, a=axis: f(x, axis=a), (x,), lambda x, f=theirs, a=axis: f(x, axis=a), 2, exact, label)
    for op, ours, theirs in (("cumsum", us.cumsum, np.cumsum), ("cumprod", us.cumprod, np.cumprod))
    for x, axis, exact, label in (
        (X, 0, True, "axis=0"),
        (X, -1, True, "axis=-1"),
        (X, None, True, "flat"),
        (Z, 1, False, "complex"),
        (ONE_ZERO, 1, True, "one zero"),
        (TWO_ZEROS, None, True, "zeros"),
        (COMPLEX_ZEROS, 0, False, "complex zeros"),
        (SINGLE, 0, True, "size 1"),
        (EMPTY, 0, True, "empty"),
        (EMPTY, 1, True, "of nothing"),
        (SCALAR, None, True, "scalar"),
    )
]
SCANS += [
    Sample(
        "cumsum",
        lambda x: us.cumulative_sum(x, axis=1, include_initial=True),
        (X,),
        lambda x: np.concatenate([0 * x[:, :1], np.cumsum(x, axis=1)], axis=1),
        label="with initial",
    ),
    Sample(
        "cumprod",
        lambda x: us.cumulative_prod(x, axis=0, include_initial=True),
        (X,),
        lambda x: np.concatenate([0 * x[:1] + 1, np.cumprod(x, axis=0)]),
        label="with initial",
    ),
    Sample("shift", lambda x: shift(x, axis=0, fill=1), (real(4),), shift_reference(1), exact=True),
    Sample("shift", lambda x: shift(x, axis=0, fill=0, back=True), (Z,), shift_reference(0, back=True)),
    Sample("shift", lambda x: shift(x, axis=1, fill=0), (SINGLE,), shift_reference(0, axis=1), label="axis 1"),
    Sample("shift", lambda x: shift(x, axis=0, fill=1), (SINGLE,), shift_reference(1), label="size 1"),
    Sample("shift", lambda x: shift(x, axis=0, fill=1), (EMPTY,), lambda x: x, label="empty"),
]
SCANS += [
    Sample(
        "linear_recurrence",
        lambda a, b, k=axis, r=adjoint: recurrence(a, b, axis=k, adjoint=r),
        (a, b),
        recurrence_reference(adjoint, axis),
        exact=a.dtype.kind == b.dtype.kind == "f",
        label=f"{'adjoint' if adjoint else 'plain'} axis={axis} {'x'.join(map(str, a.shape))}",
    )
    for adjoint in (False, True)
    for a, b, axis in (
        (real(4), real(4, seed=1), 0),
        (TWO_ZEROS, X, 1),
        (X, Z, 0),
        (complex_(3), COMPLEX_ZEROS, 0),
        (SINGLE, SINGLE + 1, 0),
        (EMPTY, EMPTY, 0),
    )
]

EXPONENTIALS = [
    *over_axes("logsumexp", us.logsumexp, scipy.special.logsumexp, X),
    Sample("logsumexp", lambda x: us.logsumexp(x, axis=1), (Z,), lambda x: scipy.special.logsumexp(x, axis=1)),
    Sample("logsumexp", us.logsumexp, (SCALAR,), lambda x: x),
    Sample("logsumexp", lambda x: us.logsumexp(x, axis=1), (EMPTY,), lambda x: np.sum(x, axis=1), label="of nothing"),
    Sample("logsumexp", us.logsumexp, (np.array([1, 2]),), scipy.special.logsumexp, order=0, label="integers"),
]
EXPONENTIALS += [
    Sample(op, lambda x, f=ours, a=axis: f(x, axis=a), (x,), lambda x, f=theirs, a=axis: f(x, axis=a), label=label)
    for op, ours, theirs in (
        ("softmax", us.softmax, stable_softmax),
        ("log_softmax", us.log_softmax, lambda x, axis: np.log(stable_softmax(x, axis))),
    )
    for x, axis, label in (
        (X, 1, "rows"),
        (X, None, "all"),
        (CUBE, (0, -1), "two axes"),
        (complex_(3) / 4, 0, "complex"),
        (SINGLE, 0, "size 1"),
        (SCALAR, None, "scalar"),
        (EMPTY, 1, "empty"),
    )
]

SAMPLES = [*SUMS, *PRODUCTS, *EXTREMA, *LOGIC, *SCANS, *EXPONENTIALS]
