"""A lattice of random tensors, as an einsum."""

from __future__ import annotations

from typing import Any

import numpy as np

LETTERS = [chr(code) for code in range(ord("a"), 0x250) if chr(code).isalpha()]


def lattice(length: int, rank: int, dtype: Any = np.float64) -> tuple[str, list[Any]]:
    """Return subscripts and arrays of a square lattice without open labels."""
    rng = np.random.default_rng(4)
    labels: dict[tuple[int, ...], str] = {}
    terms = []
    for i in range(length):
        for j in range(length):
            bonds = [(0, i - 1, j), (0, i, j), (1, i, j - 1), (1, i, j)]
            inside = [0 <= b[1] < length - (b[0] == 0) and 0 <= b[2] < length - (b[0] == 1) for b in bonds]
            kept = [bond for bond, flag in zip(bonds, inside, strict=True) if flag]
            terms.append("".join(labels.setdefault(bond, LETTERS[len(labels)]) for bond in kept))
    arrays = [rng.normal(size=(rank,) * len(term)) / rank ** (len(term) / 4) for term in terms]
    if np.dtype(dtype).kind == "c":
        arrays = [x + 1j * rng.normal(size=x.shape) / rank for x in arrays]
    return ",".join(terms) + "->", [x.astype(dtype) for x in arrays]
