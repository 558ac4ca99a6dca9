"""Samples of indexing, functional updates and sorting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import unspool as us
from tests.samples import Sample, complex_, real
from unspool import _graph
from unspool._ops.indexing import selection
from unspool._ops.indexing.parse import Where, parse_index
from unspool._ops.op import lookup

_REPEATED = np.array([2, 0, 2])
_SHUFFLE = np.array([1, 2, 0])
_MASK = np.array([[True, False, True], [False, False, True]])


# --- selecting -------------------------------------------------------------------------------------------------------


def _selecting(op: str, index: Any, *args: Any, label: str) -> list[Sample]:
    """Samples of an index, one for each array to select from."""
    return [
        Sample(op, lambda x: x[index], (a,), lambda x: x[index], label=label, exact=not np.iscomplexobj(a))
        for a in args
    ]


def _putting(op: str, index: Any, shape: Any, *args: Any) -> list[Sample]:
    """Samples of the transpose of an index."""

    def function(values: Any) -> Any:
        return selection.put(values, shape, parse_index(us.zeros(shape), index).where)

    def reference(values: Any) -> Any:
        out = np.zeros(shape, values.dtype)
        np.add.at(out, index, values)
        return out

    return [Sample(op, function, (a,), reference, exact=not np.iscomplexobj(a)) for a in args]


SELECTING = [
    *_selecting("slice", slice(1, None), real(3), complex_(3), real(3, 2), real(1, 2), real(3, 0), label="tail"),
    *_selecting("slice", (slice(None, None, -2), 1), real(3, 2), complex_(3, 2), label="backwards"),
    *_selecting("slice", (None, 0, slice(None), None), real(2, 3), label="new axes"),
    *_selecting("slice", (0, 1), real(2, 2), label="one element"),
    *_selecting("slice", slice(2, 1), real(3), label="nothing"),
    *_putting("unslice", np.s_[1:], (3,), real(2), complex_(2)),
    *_putting("unslice", np.s_[:, ::-2], (2, 3), real(2, 2)),
    *_putting("unslice", np.s_[1:, 0], (1, 2), real(0)),
    *_putting("unslice", np.s_[1, 0], (2, 2), real(), complex_()),
    *_selecting("gather", _REPEATED, real(3), complex_(3), real(3, 2), real(3, 0), label="repeated"),
    *_selecting("gather", np.zeros(0, int), real(3), label="nothing"),
    *_selecting("gather", (_REPEATED[:, None], np.array([1, 0])), real(3, 2), label="two arrays"),
    *_selecting("gather", (_SHUFFLE, slice(None), 0), real(3, 2, 2), label="separated"),
    *_selecting("gather", (slice(None, None, -1), _REPEATED), real(2, 3), complex_(2, 3), label="beside a slice"),
    *_selecting("gather", _MASK, real(2, 3), complex_(2, 3), label="mask"),
    *_selecting("gather", np.array([0, 0]), real(1), label="axis of size 1"),
    Sample(
        "gather",
        lambda x: x[us.tensor(_REPEATED)],
        (real(3),),
        lambda x: x[_REPEATED],
        label="index tensor",
    ),
    Sample(
        "slice",
        lambda x: x[us.tensor(1)],
        (real(3),),
        lambda x: x[1],
        label="0-d index tensor",
    ),
    Sample(
        "gather",
        lambda x: us.take_along_axis(x, [[0, 0, 2], [1, 0, 1]], axis=1),
        (real(2, 3),),
        lambda x: np.take_along_axis(x, np.array([[0, 0, 2], [1, 0, 1]]), axis=1),
        label="along an axis",
        exact=True,
    ),
    Sample("gather", lambda x: us.take(x, 1, axis=1) + us.take(x, [[0]], axis=1)[0, 0], (real(2, 3),),
           lambda x: x[:, 1] + x[0, 0], label="take"),
    *_putting("scatter", _REPEATED, (3,), real(3), complex_(3)),
    *_putting("scatter", np.s_[:, _REPEATED], (2, 3), real(2, 3)),
    *_putting("scatter", np.zeros(0, int), (3, 2), real(0, 2)),
    *_putting("scatter", (1, np.array([0])), (2, 2), real(1)),
    Sample(
        "chosen",
        lambda i: selection.chosen((3, 2), Where(("array",), (), (i,))),
        (_REPEATED,),
        lambda i: np.array([[0 in i] * 2, [1 in i] * 2, [2 in i] * 2]),
        order=0,
    ),
    Sample(
        "is_last",
        lambda i: selection.is_last((3,), Where(("array",), (), (i,))),
        (_REPEATED,),
        lambda i: np.array([False, True, True]),
        order=0,
    ),
]  # fmt: skip


# --- updating --------------------------------------------------------------------------------------------------------


def _set(x: Any, index: Any, values: Any) -> None:
    # Into an array of objects NumPy would put an array without axes itself, not what it holds.
    x[index] = values if np.ndim(values) else values.item()


_AT: dict[str, Callable[..., Any]] = {
    "set": _set,
    "add": np.add.at,
    "subtract": np.subtract.at,
    "multiply": np.multiply.at,
    "divide": np.divide.at,
    "min": np.minimum.at,
    "max": np.maximum.at,
}


def _updating(op: str, method: str, index: Any, x: Any, values: Any, *, label: str = "", exact: bool = True) -> Sample:
    """A sample of an update, differentiated with respect to the tensor and the values."""

    def function(t: Any, v: Any) -> Any:
        return getattr(t.at[index], method)(v)

    def reference(t: Any, v: Any) -> Any:
        out = np.array(t)
        _AT[method](out, index, v)
        return out

    exact = exact and not np.iscomplexobj(x)
    return Sample(op, function, (x, values), reference, label=f"{method} {label}".strip(), exact=exact)


UPDATING = [
    _updating("slice_set", "set", np.s_[1:], real(3), real(2, seed=1)),
    _updating("slice_set", "set", np.s_[1:], complex_(3), complex_(2, seed=1)),
    _updating("slice_set", "set", np.s_[1:], complex_(3), real(2, seed=1), label="real into complex"),
    _updating("slice_set", "set", np.s_[:, ::-1], real(2, 2), real(2, seed=1), label="broadcasting"),
    _updating("slice_set", "set", np.s_[0, 1], real(2, 2), real(seed=1), label="one element"),
    _updating("slice_set", "set", np.s_[...], real(), real(seed=1), label="0-d"),
    _updating("slice_set", "set", np.s_[3:], real(3), real(0), label="nothing"),
    _updating("slice_set", "multiply", np.s_[1:], real(3), real(2, seed=1)),
    _updating("slice_set", "divide", np.s_[1:], real(3), real(2, seed=1, low=1)),
    _updating("slice_set", "max", np.s_[:2], np.array([1.0, -1.0, 0.5]), np.array([0.0, 2.0]), exact=False),
    _updating("slice_set", "min", np.s_[:2], np.array([1.0, -1.0, 0.5]), np.array([0.0, 2.0]), exact=False),
    _updating("slice_add", "add", np.s_[::2], real(3), real(2, seed=1)),
    _updating("slice_add", "add", np.s_[1, 2:0:-1], real(2, 3), real(2, seed=1), label="from a position"),
    _updating("slice_add", "add", np.s_[::2], complex_(3), complex_(2, seed=1)),
    _updating("slice_add", "subtract", np.s_[:, 0], real(2, 1), real(seed=1), label="broadcasting"),
    _updating("slice_add", "add", np.s_[...], real(), real(seed=1), label="0-d"),
    _updating("slice_add", "add", np.s_[:], real(0, 2), real(2, seed=1), label="nothing"),
    _updating("scatter_set", "set", _REPEATED, real(3), real(3, seed=1), label="repeated"),
    _updating("scatter_set", "set", _REPEATED, complex_(3), complex_(3, seed=1), label="repeated"),
    _updating("scatter_set", "set", (slice(None), _REPEATED), real(2, 3), real(3, seed=1), label="broadcasting"),
    _updating("scatter_set", "set", _MASK, real(2, 3), real(3, seed=1), label="mask"),
    _updating("scatter_set", "set", np.zeros(0, int), real(3), real(0), label="nothing"),
    _updating("scatter_set", "set", [0], real(1), real(1, seed=1), label="axis of size 1"),
    _updating("scatter_set", "multiply", _SHUFFLE, real(3), real(3, seed=1), label="once each"),
    _updating("scatter_set", "divide", _MASK, real(2, 3), real(3, seed=1, low=1), label="mask"),
    _updating("scatter_add", "add", _REPEATED, real(3), real(3, seed=1), label="repeated"),
    _updating("scatter_add", "add", _REPEATED, complex_(3), complex_(3, seed=1), label="repeated"),
    _updating("scatter_add", "subtract", ([0, 0], slice(None)), real(1, 2), real(seed=1), label="broadcasting"),
    _updating("scatter_add", "add", np.zeros(0, int), real(0), real(0), label="nothing"),
    _updating("scatter_min", "min", _REPEATED, np.array([1.0, 5.0, 2.0]), np.array([1.5, 0.5, 3.0]), exact=False),
    _updating("scatter_max", "max", _REPEATED, np.array([1.0, 5.0, 2.0]), np.array([1.5, 1.5, 3.0]), exact=False),
    _updating("scatter_max", "max", ([0, 0], 0), real(1, 2), np.array(3.0), label="broadcasting tie", exact=False),
    Sample(
        "scatter_max",
        lambda x, v: x.at[us.tensor([0, 0]), :0].max(v),
        (real(1, 2), real(0)),
        lambda x, v: x,
        label="nothing",
    ),
]  # fmt: skip

# Factors that go to one element more than once, zeros among them.
_FACTORS = [
    (real(3), real(3, seed=1)),
    (complex_(3), complex_(3, seed=1)),
    (real(3), np.array([0.0, 2.0, 3.0])),
    (real(3), np.array([0.0, 2.0, 0.0])),
    (np.array([1.0, 2.0, 0.0]), np.array([0.5, 2.0, 0.0])),
]

REPEATED = [
    *[_updating("recurrence", "multiply", _REPEATED, x, v, label=f"{i}") for i, (x, v) in enumerate(_FACTORS)],
    _updating("recurrence", "multiply", [1, 1, 1, 1, 0], real(2), real(5, seed=1), label="four times"),
    _updating("recurrence", "multiply", ([0, 0], slice(None)), real(1, 2), real(2, 2, seed=1), label="rows"),
    _updating("recurrence", "divide", _REPEATED, real(3), real(3, seed=1, low=1), exact=False),
    Sample(
        "recurrence",
        lambda x, v: x.at[us.tensor(np.zeros(0, int))].multiply(v),
        (real(3), real(0)),
        lambda x, v: x,
        label="nothing",
    ),
    *[
        Sample(
            "recurrence",
            lambda b, c, reverse=reverse: build("recurrence", b, c, us.constant([0, 0, 0, 4, 4]), reverse=reverse),
            (real(5), real(5, seed=1)),
            lambda b, c, reverse=reverse: _recurrence(b, c, [0, 0, 0, 4, 4], reverse),
            label="reverse" if reverse else "forward",
            exact=True,
        )
        for reverse in (False, True)
    ],
    Sample(
        "positions",
        lambda i: build("positions", i, index=("slice", -1, "array"), lengths=(2,), shape=(2, 3), stack=0),
        (_REPEATED,),
        lambda i: np.arange(6).reshape(2, 3)[::-1, i],
        order=0,
    ),
    *[
        Sample(
            "is_edge",
            lambda groups, last=last: build("is_edge", groups, last=last),
            (np.array([1, 1, 3]),),
            lambda groups, last=last: np.array([not last, last, True]),
            order=0,
        )
        for last in (False, True)
    ],
]


def build(name: str, *inputs: Any, **params: Any) -> Any:
    """Build the node of an op that has no public function of its own."""
    return _graph.apply(lookup(name), *inputs, **params)


def _recurrence(b: Any, c: Any, groups: Any, reverse: bool) -> Any:
    """Run the recurrence as it is written down."""
    y = list(b)
    if reverse:
        for j in range(len(y) - 2, -1, -1):
            if groups[j] == groups[j + 1]:
                y[j] = y[j] + c[j] * y[j + 1]
    else:
        for j in range(1, len(y)):
            if groups[j] == groups[j - 1]:
                y[j] = y[j] + c[j - 1] * y[j - 1]
    return np.array(y)


# --- sorting ---------------------------------------------------------------------------------------------------------

_KEYS = np.array([[3.0, -1.0, 2.0], [0.5, 4.0, 0.25]])

SORTING = [
    Sample("sort", us.sort, (_KEYS,), np.sort),
    Sample("sort", us.sort, (_KEYS + 1j * _KEYS[::-1],), np.sort),
    Sample("sort", lambda x: us.sort(x, axis=0), (_KEYS,), lambda x: np.sort(x, axis=0), label="axis"),
    Sample("sort", lambda x: us.sort(x, axis=None), (_KEYS,), lambda x: np.sort(x, axis=None), label="flat"),
    Sample("sort", lambda x: us.sort(x, descending=True), (_KEYS,), lambda x: -np.sort(-x), label="descending"),
    Sample("sort", us.sort, (real(2, 0),), np.sort, label="nothing"),
    Sample("sort", us.sort, (real(2, 1),), np.sort, label="axis of size 1"),
    Sample("argsort", us.argsort, (_KEYS,), lambda x: np.argsort(x, kind="stable"), order=0),
    Sample("argsort", us.argsort, (np.array([2, 1, 2, 1]),), lambda x: np.argsort(x, kind="stable"), order=0),
    Sample(
        "argsort",
        lambda x: us.argsort(x, axis=0, descending=True),
        (np.array([2.0, 1.0, 2.0, 1.0]),),
        lambda x: np.argsort(-x, kind="stable"),
        order=0,
        label="descending",
    ),
    Sample("searchsorted", us.searchsorted, (np.array([1.0, 2.0, 3.0]), real(2, 2, low=0, high=4)), np.searchsorted, 0),
    Sample(
        "searchsorted",
        lambda x, v: us.searchsorted(x, v, side="right"),
        (np.array([1, 2, 2, 3]), np.array([[2], [0]])),
        lambda x, v: np.searchsorted(x, v, side="right"),
        order=0,
        label="right",
    ),
]

SAMPLES = [*SELECTING, *UPDATING, *REPEATED, *SORTING]
