"""quimb: ``TNOptimizer(..., autodiff_backend="unspool")``.

quimb computes with autoray, which knows unspool; what it has to be told is how to take a gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from optree import tree_map

import unspool as us
from unspool._tensor import Tensor

Array = np.ndarray[Any, Any]


def enter(optimize: ModuleType) -> None:
    """Tell quimb's optimiser about unspool; called when both are imported."""
    optimize._BACKEND_HANDLERS["unspool"] = Handler


class Handler:
    """Values, gradients and Hessian-vector products of a loss, as quimb's optimiser asks for them.

    Gradients of complex arrays are in the convention that quimb expects, which is ours: the direction in which the loss
    rises.
    """

    def __init__(self, device: str = "cpu") -> None:
        if device != "cpu":
            raise us.errors.ArgumentError(f"unspool computes on the CPU, got device={device!r}")

    def to_variable(self, x: Any) -> Tensor:
        """Return an array as a variable."""
        return us.tensor(np.asarray(x))

    def to_constant(self, x: Any) -> Tensor:
        """Return an array as it enters a network that is not optimised."""
        return us.tensor(np.asarray(x))

    def setup_fn(self, fn: Callable[[Any], Any]) -> None:
        """Take the loss, a function of a nested structure of arrays."""
        self._loss = fn
        self._value_and_grad = us.value_and_grad(fn, unconnected="zeros")

    def value(self, arrays: Any) -> Array:
        """Return the loss."""
        return np.asarray(self._loss(self._variables(arrays)))

    def value_and_grad(self, arrays: Any) -> tuple[Array, Any]:
        """Return the loss and its gradient."""
        return us.eval(self._value_and_grad(self._variables(arrays)))  # type: ignore[no-any-return]

    def hessp(self, primals: Any, tangents: Any) -> Any:
        """Return the product of the Hessian with a structure of arrays."""
        return us.eval(
            us.hvp(self._loss, (self._variables(primals),), (self._variables(tangents),), unconnected="zeros")
        )

    def _variables(self, arrays: Any) -> Any:
        return tree_map(self.to_variable, arrays)
