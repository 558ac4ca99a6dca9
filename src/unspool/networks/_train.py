"""A row of tensors joined by bonds: what the states and the operators of a chain have in common.

Every tensor has its left bond first and its right bond last; the axes between belong to the site. The sum over all
bonds is the object that the row stands for. Adding two rows puts their bonds side by side, so bond sizes add up; a
factor goes into the first tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar, cast

import numpy as np
import optree

import unspool as us
from unspool.errors import ArgumentError, ShapeError, StructureError

__all__ = ["Train", "check_dense", "check_pair", "position", "register_train"]

T = TypeVar("T", bound="Train")

# The largest dense form that is made: 2²⁴ numbers, 128 MB in double precision.
LARGEST_DENSE = 2**24


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Train:
    """A row of tensors, joined from each one's last axis to the next one's first.

    Parameters
    ----------
    tensors : sequence of array_like
        One tensor per site. The bonds at both ends have size 1.
    """

    tensors: tuple[us.Tensor, ...]

    # The names of a tensor's axes, for messages. Their number is what is checked.
    axes: ClassVar[tuple[str, ...]] = ()
    # NumPy's numbers leave ``number * train`` to this class.
    __array_ufunc__: ClassVar[None] = None

    def __init__(self, tensors: Sequence[Any]) -> None:
        object.__setattr__(self, "tensors", _checked(tensors, self.axes, type(self).__name__))

    @property
    def sites(self) -> int:
        """The number of sites."""
        return len(self.tensors)

    @property
    def ranks(self) -> tuple[int, ...]:
        """The sizes of the bonds between neighbouring sites."""
        return tuple(cast(int, tensor.shape[-1]) for tensor in self.tensors[:-1])

    @property
    def physical(self) -> tuple[int, ...]:
        """The size of each site's space."""
        return tuple(cast(int, tensor.shape[1]) for tensor in self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(sites={self.sites}, physical={self.physical}, ranks={self.ranks})"

    def __add__(self, other: Any) -> Self:
        if type(other) is not type(self):
            return NotImplemented
        check_pair(self, other, "+")
        return type(self)(_side_by_side(self.tensors, other.tensors))

    def __mul__(self, factor: Any) -> Self:
        if isinstance(factor, Train) or np.ndim(factor) != 0:
            return NotImplemented
        return type(self)((self.tensors[0] * factor, *self.tensors[1:]))

    __rmul__ = __mul__

    def __neg__(self) -> Self:
        return self * -1.0

    def __sub__(self, other: Any) -> Self:
        return self + -other if isinstance(other, Train) else NotImplemented

    def __truediv__(self, divisor: Any) -> Self:
        return NotImplemented if isinstance(divisor, Train) else self * (1.0 / divisor)


def register_train(cls: type[T]) -> type[T]:
    """Make a class of trains a pytree, so that `us.grad`, `us.eval` and the others look into it.

    A tree may hold anything in place of its tensors (arrays, gradients that are missing), so nothing is checked when it
    is put together again.
    """

    def unflatten(_: Any, children: Iterable[Any]) -> Any:
        train = object.__new__(cls)
        (tensors,) = children
        object.__setattr__(train, "tensors", tensors)
        return train

    def flatten(train: Any) -> tuple[tuple[Any, ...], None, tuple[str, ...]]:
        return (train.tensors,), None, ("tensors",)

    entry = optree.GetAttrEntry
    optree.register_pytree_node(cast(Any, cls), flatten, unflatten, path_entry_type=entry, namespace="unspool")
    return cls


def check_pair(first: Train, second: Train, what: str) -> None:
    """Raise unless two trains live on the same chain."""
    if first.sites != second.sites:
        raise ShapeError(f"{what} needs chains of the same length, got {first.sites} and {second.sites} sites")
    for site, (one, other) in enumerate(zip(first.physical, second.physical, strict=True)):
        if _differ(one, other):
            raise ShapeError(
                f"{what} needs the same spaces, but site {site} has size {one} in one, {other} in the other"
            )


def position(index: Any, count: int, name: str) -> int:
    """Return a site or bond as a number from 0 to ``count - 1``; negative ones count from the end."""
    try:
        number = int(index.__index__())
    except AttributeError:
        raise ArgumentError(f"{name} must be an integer, but is {index!r}") from None
    if not -count <= number < count:
        raise ArgumentError(f"{name} must be from {-count} to {count - 1}, but is {number}")
    return number % count


def check_dense(entries: int, name: str) -> None:
    """Raise if a dense form would not fit."""
    if entries > LARGEST_DENSE:
        raise ArgumentError(f"the dense form of this {name} has {entries} entries; at most {LARGEST_DENSE} are made")


def _checked(tensors: Any, axes: tuple[str, ...], name: str) -> tuple[us.Tensor, ...]:
    """Return the tensors of a train, after a look at their shapes."""
    if isinstance(tensors, us.Tensor) or not isinstance(tensors, Sequence):
        raise StructureError(f"{name} needs a sequence of tensors, one per site, got {type(tensors).__name__}")
    if not tensors:
        raise ArgumentError(f"{name} needs at least one site")
    checked = tuple(us.asarray(tensor) for tensor in tensors)
    for site, tensor in enumerate(checked):
        if tensor.ndim != len(axes):
            raise ShapeError(
                f"tensor {site} of {name} must have the axes ({', '.join(axes)}), got shape {tensor.shape}"
            )
    _check_bonds(checked, name)
    return checked


def _check_bonds(tensors: tuple[us.Tensor, ...], name: str) -> None:
    """Raise unless bonds have the same size on both sides and size 1 at the ends; symbols may stand for any size."""
    lefts = [tensor.shape[0] for tensor in tensors] + [1]
    rights = [1] + [tensor.shape[-1] for tensor in tensors]
    for bond, (right, left) in enumerate(zip(rights, lefts, strict=True)):
        if not _differ(left, right):
            continue
        if bond in (0, len(tensors)):
            end = "left" if bond == 0 else "right"
            size = left if bond == 0 else right
            raise ShapeError(f"the bond at the {end} end of {name} must have size 1, got {size}")
        raise ShapeError(
            f"the bond between sites {bond - 1} and {bond} of {name} has size {right} on the left tensor "
            f"and {left} on the right one"
        )


def _differ(one: Any, other: Any) -> bool:
    """Say whether two sizes are known to differ."""
    return isinstance(one, int) and isinstance(other, int) and one != other


def _side_by_side(first: tuple[us.Tensor, ...], second: tuple[us.Tensor, ...]) -> list[us.Tensor]:
    """Return the tensors of a sum: blocks on the diagonal, in a row at the first site, in a column at the last."""
    if len(first) == 1:
        return [first[0] + second[0]]
    inner = [_block_diagonal(one, other) for one, other in zip(first[1:-1], second[1:-1], strict=True)]
    return [us.concat([first[0], second[0]], axis=-1), *inner, us.concat([first[-1], second[-1]], axis=0)]


def _block_diagonal(one: us.Tensor, other: us.Tensor) -> us.Tensor:
    fixed = ((0, 0),) * (one.ndim - 2)
    upper = us.pad(one, ((0, other.shape[0]), *fixed, (0, other.shape[-1])))
    lower = us.pad(other, ((one.shape[0], 0), *fixed, (one.shape[-1], 0)))
    return upper + lower
