"""A linear operator that counts how often it is applied, for tests of solvers."""

from __future__ import annotations

from typing import Any

import unspool as us


class Counted:
    """A matrix as an op, with a factor as parameter, that counts how often it is applied, in either direction."""

    def __init__(self, matrix: Any, name: str) -> None:
        self.count = 0

        def kernel(p: Any, v: Any) -> Any:
            self.count += 1
            return p * (matrix @ v)

        def product(p: Any, v: Any) -> Any:
            return self.apply(p, v)

        self.apply = us.op(
            name,
            kernel=kernel,
            replace=True,
            infer=lambda p, v: (v.shape, v.dtype),
            vjp=(lambda ct, out, p, v: us.sum(ct * product(1.0 + 0.0 * p, v)), lambda ct, out, p, v: product(p, ct)),
            jvp=(lambda t, out, p, v: t * product(1.0 + 0.0 * p, v), lambda t, out, p, v: product(p, t)),
        )
