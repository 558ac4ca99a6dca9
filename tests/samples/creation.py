"""Samples of ops that make tensors from sizes and numbers."""

from __future__ import annotations

import numpy as np

import unspool as us
from tests.samples import Sample, complex_, real
from unspool import _graph
from unspool._dtypes import FLOAT32, FLOAT64, INT64
from unspool._ops.creation import ARANGE, SIZE_OF

SAMPLES = [
    Sample("eye", lambda: us.eye(3), (), lambda: np.eye(3), order=0),
    Sample("eye", lambda: us.eye(2, 3, 1, "int32"), (), lambda: np.eye(2, 3, 1, np.int32), order=0, label="k=1"),
    Sample(
        "eye", lambda: us.eye(3, 2, -1, "complex64"), (), lambda: np.eye(3, 2, -1, np.complex64), order=0, label="k=-1"
    ),
    Sample("eye", lambda: us.eye(0, 2), (), lambda: np.eye(0, 2), order=0, label="empty"),
    Sample(
        "eye",
        lambda x: x @ us.eye(3, dtype=x.dtype) + us.sum(x),
        (real(2, 3),),
        lambda x: x + np.sum(x),
        label="in a product",
    ),
    Sample(
        "arange",
        lambda: _graph.apply(ARANGE, start=1, step=2, length=3, dtype=INT64),
        (),
        lambda: np.array([1, 3, 5]),
        order=0,
    ),
    Sample(
        "arange",
        lambda: _graph.apply(ARANGE, start=4, step=-1, length=3, dtype=FLOAT32),
        (),
        lambda: np.array([4, 3, 2], np.float32),
        order=0,
        label="falling",
    ),
    Sample("size_of", lambda: _graph.apply(SIZE_OF, size=3, dtype=FLOAT64), (), lambda: np.array(3.0), order=0),
    Sample("broadcast_to", lambda v: us.full((2, 3), v), (np.array(1.5),), lambda v: np.full((2, 3), v), label="full"),
    Sample(
        "multiply",
        lambda a, b: us.linspace(a, b, 4),
        (real(2), real(2, seed=1)),
        lambda a, b: np.linspace(a, b, 4),
        label="linspace",
    ),
    Sample(
        "multiply",
        lambda a: us.linspace(a, 2.0, 3, endpoint=False),
        (complex_(2),),
        lambda a: np.linspace(a, 2.0, 3, endpoint=False),
        label="linspace without endpoint",
    ),
]
