"""Ways to look at a loop of the zoo, or not to: what it reads is noted and given back, what it makes is held or read.

A kind of ``bench/zoo`` reads numbers through ``read`` and shows the tensors of each step to ``watch``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import unspool as us
from bench.zoo.kind import Data, Kind


class Noted:
    """Reads numbers and notes them; `again` is a ``read`` that gives them back without looking at a tensor."""

    def __init__(self, numbers: Iterable[float] = ()) -> None:
        self.numbers = list(numbers)

    def __call__(self, tensor: us.Tensor) -> float:
        self.numbers.append(float(tensor))
        return self.numbers[-1]

    def again(self) -> Any:
        left = iter(self.numbers)
        return lambda tensor: next(left)


def noted(kind: Kind, steps: int, data: Data) -> Noted:
    """Return what a loop reads."""
    numbers = Noted()
    kind.in_unspool(steps, data, numbers)
    return numbers


class HoldAll:
    """Holds every tensor that a loop has made so far, those without a name of their own as well."""

    def __init__(self) -> None:
        self.held: dict[int, us.Tensor] = {}

    def __call__(self, step: int, *tensors: us.Tensor) -> None:
        waiting = list(tensors)
        while waiting:
            tensor = waiting.pop()
            if tensor.id not in self.held:
                self.held[tensor.id] = tensor
                waiting += tensor.inputs


def read_every(period: int) -> Any:
    """Return a ``watch`` that looks at all tensors of some steps."""

    def watch(step: int, *tensors: us.Tensor) -> None:
        if step % period == period - 1:
            for tensor in tensors:
                tensor.eval()

    return watch


def moved(data: Data, wrt: tuple[str, ...], directions: dict[str, Any], by: float) -> Data:
    """Return data of which some went along a direction."""
    return {name: value + by * directions[name] if name in wrt else value for name, value in data.items()}


def states(kind: Kind, steps: int, data: Data) -> Iterator[Any]:
    """Yield the last tensor that each step shows, as an array."""
    shown: list[us.Tensor] = []
    kind.in_unspool(steps, data, watch=lambda step, *tensors: shown.append(tensors[-1]))
    yield from us.eval(shown)
