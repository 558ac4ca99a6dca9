"""Samples for ops that change no value, and for functions with rules of their own."""

from __future__ import annotations

from typing import Any

import numpy as np

import unspool as us
from tests.samples import Sample, complex_, real
from unspool._ops.cancellation import scale_of
from unspool._ops.identity import alias


@us.custom_vjp
def _sine_times(x: Any, y: Any) -> Any:
    return us.sin(x) * y


_sine_times.defvjp(
    lambda x, y: (us.sin(x) * y, (x, y)),
    lambda res, ct: (ct * us.conj(us.cos(res[0]) * res[1]), ct * us.conj(us.sin(res[0]))),
)


@us.custom_jvp
def _exp_times(x: Any, y: Any) -> Any:
    return us.exp(x) * y


@_exp_times.defjvp
def _exp_times_rule(primals: Any, tangents: Any) -> Any:
    (x, y), (dx, dy) = primals, tangents
    out = _exp_times(x, y)
    return out, out * dx + us.exp(x) * dy


SHAPES: list[tuple[int, ...]] = [(), (3,), (1, 2), (0, 2)]

SAMPLES = [
    *[
        Sample("alias", lambda x: alias(x) * x, (make(*shape),), lambda x: x * x, exact=make is real)
        for shape in SHAPES
        for make in (real, complex_)
    ],
    *[
        Sample(
            "scale",
            lambda x: x * scale_of(us.tensor(np.float32([0.5, -2.0])), stack=0),
            (make(*shape),),
            lambda x: x * np.float32(2.0),
        )
        for shape in SHAPES
        for make in (real, complex_)
    ],
    *[
        Sample(
            "stop_gradient",
            lambda x: x * us.stop_gradient(us.tensor(np.float32(2.0))),
            (make(*shape),),
            lambda x: x * np.float32(2.0),
        )
        for shape in SHAPES
        for make in (real, complex_)
    ],
    *[
        Sample("custom_vjp", _sine_times, (make(*shape), make(*shape, seed=1)), lambda x, y: np.sin(x) * y)
        for shape in SHAPES
        for make in (real, complex_)
    ],
    *[
        Sample("custom_jvp", _exp_times, (make(*shape), make(*shape, seed=1)), lambda x, y: np.exp(x) * y)
        for shape in SHAPES
        for make in (real, complex_)
    ],
]
