"""The native backend, in C (`src/native/`)."""

from collections.abc import Callable
from typing import Any

class Program:
    """A plan as a table of instructions; called with arrays, it returns a tuple of arrays."""

    fallback: Callable[..., Any]
    calls_back: int
    is_given_up: int

    def __new__(
        cls,
        slots: list[tuple[Any, ...]],
        instructions: list[tuple[Any, ...]],
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
        frame: int,
        fallback: Any,
        /,
    ) -> Program: ...
    def __call__(self, *arrays: Any) -> tuple[Any, ...]: ...
    def drive(
        self,
        layout: tuple[Any, ...],
        first: int,
        step: int,
        count: int,
        constants: list[Any],
        carry: list[Any],
        rows: list[Any],
        histories: list[Any],
        written: list[Any],
        sums: list[Any],
        /,
    ) -> tuple[int, bool, list[Any], list[Any], list[Any]] | None:
        """Make steps of a loop; ``None`` if the program was not made for what it is given."""
