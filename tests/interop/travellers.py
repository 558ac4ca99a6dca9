"""Functions that other processes import."""

from __future__ import annotations

from typing import Any

import unspool as us


@us.fragment
def square(x: us.Tensor) -> us.Tensor:
    return x * x


def cube(x: us.Tensor) -> us.Tensor:
    return x * x * x


cube_traced = us.fragment(cube)


class Model:
    def __init__(self, slope: float) -> None:
        self.slope = slope

    @us.fragment
    def predict(self, x: us.Tensor) -> Any:
        return self.slope * x


def gradient(x: us.Tensor) -> us.Tensor:
    found = us.sum(square(x)).grad(x)
    found.eval()
    return found  # type: ignore[no-any-return]


def unevaluated(x: us.Tensor) -> us.Tensor:
    return x + 1.0
