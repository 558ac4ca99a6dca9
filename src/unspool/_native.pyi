"""The native backend, in C (`src/native/`)."""

from collections.abc import Callable, Sequence
from typing import Any

class Program:
    """A plan as a table of instructions; called with arrays, it returns a tuple of arrays."""

    about: Any
    others: list[Program]
    fallback: Callable[..., Any]
    calls_back: int
    is_long: int
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
        counter: Any,
        /,
    ) -> tuple[int, bool, list[Any], list[Any], list[Any]] | None:
        """Make steps of a loop; ``None`` if the program was not made for what it is given."""

    def whole(
        self, layout: tuple[Any, ...], ends: tuple[Any, ...], steps: int, arrays: Sequence[Any], /
    ) -> tuple[Any, ...] | None:
        """Make all steps of a loop and return its outputs; ``None`` if the program was not made for the arrays."""

def start_profile() -> None:
    """Measure every instruction of every program from now on."""

def stop_profile() -> tuple[list[tuple[Any, list[tuple[int, int]]]], list[tuple[Any, int, int, int, int]], int]:
    """Return what was measured.

    For each program that ran what it was made from, and how often and how long each instruction ran, in nanoseconds;
    the runs of programs: what it was made from, beginning, end, steps and thread; and how many runs were not noted.
    """

def counted() -> int:
    """Return the nanoseconds that have been measured so far, here and elsewhere."""

def count(took: int, /) -> None:
    """Count nanoseconds that were measured elsewhere."""

def look() -> float:
    """Return the nanoseconds that a look at the clock takes."""

def empty(shape: tuple[int, ...], dtype: Any, /) -> Any:
    """Return a new array with arbitrary contents, whose memory is kept for others of its size when it dies."""

def limit_kept(nbytes: int, /) -> int:
    """Set how many bytes of memory are kept at most; return how many it were before."""

def kept_bytes() -> int:
    """Return how many bytes of memory are kept."""

def run_chain(
    indices: Any,
    registers: int,
    kinds: tuple[tuple[Any, ...], ...],
    runs: tuple[Callable[..., Any], ...],
    which: bytes,
    state: list[Any],
    constants: tuple[Any, ...],
    varying: tuple[Any, ...],
    rows: tuple[int, ...],
    stacks: tuple[Any, ...],
    /,
) -> None:
    """Run steps of a chain."""
