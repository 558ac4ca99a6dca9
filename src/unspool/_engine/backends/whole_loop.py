"""What a backend is told of a loop that runs from its first step to its last, for who makes all of it in one call."""

from __future__ import annotations

from typing import Any, NamedTuple


class Ends(NamedTuple):
    """Where a loop that runs from its first step to its last finds its inputs and leaves its results.

    Attributes
    ----------
    constants, carry, rows : tuple of int
        Which of its inputs the program reads, as what all steps read, as registers and row by row.
    histories : tuple of (int, tuple of int, dtype)
        Of each history the input that it begins with, -1 for zeros, and shape and dtype of a row.
    written, sums : tuple of (tuple of int, dtype)
        Shape and dtype of a row of what is written, and of the sums.
    leaving : tuple of int
        The registers that are results: which of those that are assigned, or ~ which input.
    places : tuple of (int, int)
        The stacks that are results: a history and its first row, or ~ one that is written, and 0.
    """

    constants: tuple[int, ...]
    carry: tuple[int, ...]
    rows: tuple[int, ...]
    histories: tuple[tuple[int, tuple[int, ...], Any], ...]
    written: tuple[tuple[tuple[int, ...], Any], ...]
    sums: tuple[tuple[tuple[int, ...], Any], ...]
    leaving: tuple[int, ...]
    places: tuple[tuple[int, int], ...]
