"""The parameters of many members: arrays with the members along a first axis, nested in any way, and random keys."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from unspool import _trees as trees
from unspool._dtypes import INEXACT
from unspool._ops.random import Key
from unspool.errors import ArgumentError, DTypeError, ShapeError

_NUMBERS = "biufc"


class SharedKey(Key):
    """A random key that members share, as some of them see it: those from number ``start`` on.

    `unspool.vmap` splits a key among the members of a batch. These are members of a larger whole, each of which is to
    draw with its own key wherever it runs.
    """

    __slots__ = ("start",)

    start: int

    def __init__(self, bits: int, start: int) -> None:
        super().__init__(bits)
        object.__setattr__(self, "start", start)

    def derive(self, purpose: str, data: int) -> Key:
        """Return the key that belongs to a number, counted from the first of these members, under this one."""
        return super().derive(purpose, self.start + data)

    def __reduce__(self) -> Any:
        return SharedKey, (self.bits, self.start)


class Parameters:
    """The parameters of all members.

    Parameters
    ----------
    tree : pytree
        Arrays, tensors and lists of numbers with the members along their first axis, and random keys.

    Attributes
    ----------
    count : int
        How many members there are.
    leaves : list
        Arrays, and keys.
    is_moving : list of bool
        Which leaves have derivatives: those of real or complex numbers.
    """

    def __init__(self, tree: Any) -> None:
        given, self._structure = trees.flatten(tree)
        names = trees.names(self._structure, "parameters")
        self.leaves = [_as_array(leaf, name) for leaf, name in zip(given, names, strict=True)]
        self.count = _count(self.leaves, names)
        self.is_moving = [not isinstance(leaf, Key) and leaf.dtype in INEXACT for leaf in self.leaves]

    def part(self, start: int, stop: int) -> list[Any]:
        """Return the leaves of some members."""
        return [
            SharedKey(leaf.bits, start) if isinstance(leaf, Key) else np.ascontiguousarray(leaf[start:stop])
            for leaf in self.leaves
        ]

    def member(self, index: int) -> Any:
        """Return the parameters of one member, nested as they were given, numbers as Python has them."""
        leaves = member_of(self.part(index, index + 1), 0)
        return self.nested([leaf.item() if isinstance(leaf, np.generic) else leaf for leaf in leaves])

    def nested(self, leaves: Sequence[Any]) -> Any:
        """Return leaves in the structure of the parameters."""
        return trees.unflatten(self._structure, leaves)

    @property
    def structure(self) -> Any:
        """How the leaves are nested."""
        return self._structure

    def digest(self) -> str:
        """Return a checksum of all parameters and of how they are nested."""
        found = hashlib.sha256(trees.show(self._structure).encode())
        for leaf in self.leaves:
            if isinstance(leaf, Key):
                found.update(repr(leaf).encode())
            else:
                found.update(f"{leaf.dtype.str}{leaf.shape}".encode())
                found.update(np.ascontiguousarray(leaf).data)
        return found.hexdigest()


def member_of(part: Sequence[Any], position: int) -> list[Any]:
    """Return the leaves of one of the members whose leaves are given."""
    return [leaf.derive("split", position) if isinstance(leaf, Key) else leaf[position] for leaf in part]


def _as_array(leaf: Any, name: str) -> Any:
    if isinstance(leaf, Key):
        return leaf
    array = np.asarray(leaf)
    if array.dtype.kind not in _NUMBERS:
        raise DTypeError(f"{name} has no members: it is a {type(leaf).__name__}; close over what all have in common")
    if not array.ndim:
        raise ShapeError(f"{name} is a scalar and has no axis along which members lie; close over what all share")
    return array


def _count(leaves: Sequence[Any], names: Sequence[str]) -> int:
    sizes = [(name, leaf.shape) for leaf, name in zip(leaves, names, strict=True) if not isinstance(leaf, Key)]
    if not sizes:
        raise ArgumentError(
            "us.ensemble needs an array with the members along its first axis; beside random keys alone, np.arange(n)"
        )
    first, shape = sizes[0]
    for name, other in sizes[1:]:
        if other[0] != shape[0]:
            raise ShapeError(
                f"members differ in number: {shape[0]} in {first}, of shape {shape}, and {other[0]} in {name}, "
                f"of shape {other}"
            )
    if not shape[0]:
        raise ArgumentError(f"us.ensemble needs at least one member, but {first} has the shape {shape}")
    return int(shape[0])
