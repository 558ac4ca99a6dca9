"""Samples of banded equations, and of the ops that solving with factors is made of."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg

import unspool as us
from tests.samples import Sample, complex_, real
from unspool._ops.linalg import banded

SAMPLES: list[Sample] = []


def dominant(band: Any, upper: int) -> Any:
    band = band.copy()
    band[upper] += 4
    return band


for lower, upper in ((1, 1), (2, 0), (0, 0), (1, 2)):
    for make, shape in ((real, (5,)), (complex_, (5, 2))):
        SAMPLES.append(
            Sample(
                "solve_banded",
                lambda ab, b, w=(lower, upper): us.linalg.solve_banded(w, ab, b),
                (dominant(make(lower + upper + 1, 5), upper), make(*shape, seed=4)),
                lambda ab, b, w=(lower, upper): linalg.solve_banded(w, ab, b),
                label=f"{lower}below-{upper}above",
            )
        )


def shifted(x: Any, fixed: int) -> Any:
    rows, columns = x.shape
    return np.array(
        [
            [x[r, c + r - fixed] if 0 <= c + r - fixed < columns else x.dtype.type(0) for c in range(columns)]
            for r in range(rows)
        ],
        x.dtype,
    )


for fixed in (0, 1, 2):
    SAMPLES.append(
        Sample(
            "shift_rows",
            lambda x, f=fixed: banded.shift_rows(x, f),
            (real(3, 4),),
            lambda x, f=fixed: shifted(x, f),
            label=f"fixed{fixed}",
        )
    )
SAMPLES.append(Sample("shift_rows", lambda x: banded.shift_rows(x, 3), (real(4, 2),), lambda x: shifted(x, 3)))

MATRIX = real(3, 3, seed=8)
SAMPLES += [
    Sample(
        "pivots_of_order",
        lambda: us.linalg.lu_factor(MATRIX)[1],
        (),
        lambda: linalg.lu_factor(MATRIX)[1].astype(np.int64),
        0,
    ),
    Sample(
        "order_of_pivots",
        lambda a, b: us.linalg.lu_solve(us.linalg.lu_factor(a), b),
        (MATRIX, real(3)),
        linalg.solve,
    ),
]
SAMPLES += [
    Sample("schur", lambda: us.linalg.schur(MATRIX).T, (), lambda: linalg.schur(MATRIX)[0], 0, label="triangle"),
    Sample(
        "schur",
        lambda: us.linalg.schur(MATRIX, "complex").Z,
        (),
        lambda: linalg.schur(MATRIX, "complex")[1],
        0,
        label="basis",
    ),
]
