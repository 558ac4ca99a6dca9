"""einops: ``rearrange``, ``reduce``, ``repeat``, ``einsum`` and ``pack`` on tensors.

einops asks every subclass of its backend class whether an array is one of its own, so that defining ours is enough.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import unspool as us
from unspool._tensor import Tensor


def enter(backends: ModuleType) -> None:
    """Tell einops about unspool; called when both are imported."""

    class UnspoolBackend(backends.AbstractBackend):  # type: ignore[misc,name-defined]
        """What einops does with tensors."""

        framework_name = "unspool"

        def is_appropriate_type(self, tensor: Any) -> bool:
            return isinstance(tensor, Tensor)

        def from_numpy(self, x: Any) -> Tensor:
            return us.tensor(x)

        def to_numpy(self, x: Tensor) -> Any:
            return x.eval()

        def arange(self, start: int, stop: int) -> Tensor:
            return us.arange(start, stop)

        def stack_on_zeroth_dimension(self, tensors: list[Any]) -> Tensor:
            return us.stack(tensors)

        def add_axis(self, x: Tensor, new_position: int) -> Tensor:
            return us.expand_dims(x, new_position)

        def tile(self, x: Tensor, repeats: Any) -> Tensor:
            return us.tile(x, repeats)

        def concat(self, tensors: list[Any], axis: int) -> Tensor:
            return us.concat(tensors, axis=axis)

        def is_float_type(self, x: Tensor) -> bool:
            return x.dtype.kind == "f"

        def einsum(self, pattern: str, *x: Any) -> Tensor:
            return us.einsum(pattern, *x)

    # einops finds subclasses, and nothing else holds this one.
    backends.UnspoolBackend = UnspoolBackend  # type: ignore[attr-defined]
