"""Joining written as an index, as NumPy has it: ``us.r_[0:3, t, 5]`` and ``us.c_[a, b]``."""

from __future__ import annotations

from typing import Any

from unspool._ops import layout
from unspool._ops.composed.grids import span
from unspool._ops.leaf import as_operands, as_tensor
from unspool.errors import ArgumentError


class Joiner:
    """Joins what it is indexed with: tensors, numbers, and slices, which stand for ranges.

    A text in front says along which axis to join, how many axes each piece gets at least, and where a piece that had
    fewer has its own: ``us.r_["1,2,0", a, b]``.

    Examples
    --------
    >>> import unspool as us
    >>> us.r_[0:3, [7, 8], 9].eval()
    array([0, 1, 2, 7, 8, 9])
    >>> us.c_[[1, 2], [3, 4]].eval()
    array([[1, 3],
           [2, 4]])
    """

    __slots__ = ("_name", "_settings")

    def __init__(self, name: str, axis: int, ndmin: int, own: int) -> None:
        self._name = name
        self._settings = (axis, ndmin, own)

    def __getitem__(self, key: Any) -> Any:
        items = list(key) if isinstance(key, tuple) else [key]
        axis, ndmin, own = self._settings
        if items and isinstance(items[0], str):
            axis, ndmin, own = _directive(items.pop(0), self._settings)
        pieces = [span(item) if isinstance(item, slice) else item for item in items]
        if not pieces:
            raise ArgumentError(f"us.{self._name} takes at least one tensor, number or slice, got none")
        return layout.concat([_widened(piece, ndmin, own) for piece in as_operands(*pieces)], axis)

    def __repr__(self) -> str:
        return f"us.{self._name}"


def _directive(text: str, defaults: tuple[int, int, int]) -> tuple[int, int, int]:
    try:
        given = [int(part) for part in text.split(",")]
        axis, ndmin, own = [*given, *defaults[len(given) :]]
    except ValueError:
        raise ArgumentError(f"a text in us.r_ is up to three integers such as '0,2,-1', got {text!r}") from None
    return axis, ndmin, own


def _widened(piece: Any, ndmin: int, own: int) -> Any:
    """Return a piece with at least so many axes; those it had stand from axis ``own`` on, or last if that is -1."""
    piece = as_tensor(piece)
    missing = ndmin - piece.ndim
    if missing <= 0:
        return piece
    first = own + missing + 1 if own < 0 else own
    return layout.reshape(piece, (*[1] * first, *piece.shape, *[1] * (missing - first)))


class IndexMaker:
    """Returns what it is indexed with: ``us.s_[1:, ::2]`` is the index of ``x[1:, ::2]``.

    Examples
    --------
    >>> import unspool as us
    >>> us.arange(6)[us.s_[1::2]].eval()
    array([1, 3, 5])
    """

    __slots__ = ("_as_tuple",)

    def __init__(self, *, as_tuple: bool) -> None:
        self._as_tuple = as_tuple

    def __getitem__(self, key: Any) -> Any:
        return (key,) if self._as_tuple and not isinstance(key, tuple) else key

    def __repr__(self) -> str:
        return "us.index_exp" if self._as_tuple else "us.s_"


r_ = Joiner("r_", 0, 1, -1)
c_ = Joiner("c_", -1, 2, 0)
s_ = IndexMaker(as_tuple=False)
index_exp = IndexMaker(as_tuple=True)
