"""Samples for the ops that say which values to hold: they change no value."""

from __future__ import annotations

from typing import Any

import numpy as np

import unspool as us
from tests.samples import Sample, complex_, real
from unspool._ops.hints import mark_rebuilt


def _sine_times(x: Any, y: Any) -> Any:
    return us.sin(x) * y


SHAPES: list[tuple[int, ...]] = [(), (3,), (1, 2), (0, 2)]

SAMPLES = [
    *[
        Sample(hint.__name__, lambda x, hint=hint: hint(x) * x, (make(*shape),), lambda x: x * x, exact=exact)
        for hint in (us.keep, us.cheap)
        for shape in SHAPES
        for make, exact in ((real, True), (complex_, False))
    ],
    *[
        Sample("remat", lambda x: mark_rebuilt(x * x, [x]), (make(*shape),), lambda x: x * x, exact=exact)
        for shape in SHAPES
        for make, exact in ((real, True), (complex_, False))
    ],
    *[
        Sample(
            "remat",
            us.remat(_sine_times),
            (make(*shape), make(*shape, seed=1)),
            lambda x, y: np.sin(x) * y,
            label=f"call of {len(shape)} axes",
        )
        for shape in SHAPES
        for make in (real, complex_)
    ],
]
