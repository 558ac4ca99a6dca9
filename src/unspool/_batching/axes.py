"""Where members lie: axes of nested arguments and results of `unspool.vmap`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from unspool import _trees as trees
from unspool._batching.images import Image, spread_image
from unspool._dims import Size, equal
from unspool._graph import Node
from unspool._ops.layout import moveaxis, normalize_axis
from unspool._ops.leaf import as_tensor
from unspool._ops.random import Key
from unspool.errors import ArgumentError, DTypeError, ShapeError, StructureError


def axes_of(spec: Any, tree: Any, what: str) -> list[int | None]:
    """Return an axis, or ``None``, for each leaf of a tree; an entry stands for all that is nested in it."""
    if spec is None or (isinstance(spec, (int, np.integer)) and not isinstance(spec, bool)):
        return [spec if spec is None else int(spec)] * len(trees.flatten(tree)[0])
    entries, others = trees.children(spec), trees.children(tree)
    if entries is None or others is None or list(entries) != list(others):
        raise StructureError(
            f"{what} is an integer, None, or nested like what it is for; got {spec!r} for a "
            f"{type(tree).__name__} of the structure {trees.show(trees.flatten(tree)[1])}"
        )
    return [axis for name, entry in entries.items() for axis in axes_of(entry, others[name], what)]


def mapped_leaves(
    leaves: Sequence[Any], axes: Sequence[int | None], names: Callable[[], Sequence[str]], axis_size: Size | None
) -> tuple[list[Any], list[bool], Size]:
    """Return the leaves with the members first, which of them have members, and how many members there are.

    ``names`` tells what to call each leaf in messages.
    """
    moved: list[Any] = []
    sizes: list[tuple[int, Size]] = [] if axis_size is None else [(-1, axis_size)]
    for i, (leaf, axis) in enumerate(zip(leaves, axes, strict=True)):
        if axis is None or isinstance(leaf, Key):
            moved.append(leaf)
            continue
        x = _as_tensor(leaf, names, i)
        if not x.shape:
            raise ShapeError(
                f"{names()[i]} is a scalar and has no axis {axis} along which members could lie; see in_axes"
            )
        place = normalize_axis(axis, x.ndim)
        sizes.append((i, x.shape[place]))
        moved.append(moveaxis(x, place, 0) if place else x)
    if not sizes:
        raise ArgumentError("us.vmap needs an argument with an axis of members, or axis_size; in_axes is None for all")
    for which, size in sizes[1:]:
        if equal(size, sizes[0][1]) is False:
            first, other = [
                "axis_size" if i < 0 else f"{names()[i]}, of shape {leaves[i].shape}, along axis {axes[i]}"
                for i in (sizes[0][0], which)
            ]
            raise ShapeError(f"members differ in number: {sizes[0][1]} in {first}, {size} in {other}")
    return moved, [axis is not None for axis in axes], sizes[0][1]


def _as_tensor(leaf: Any, names: Callable[[], Sequence[str]], number: int) -> Any:
    if isinstance(leaf, Node):
        return leaf
    try:
        return as_tensor(leaf)
    except DTypeError as error:
        name = names()[number]
        raise DTypeError(f"{name} has no axis of members: {error}; in_axes=None passes it on as it is") from None


def placed(
    images: Sequence[Image], axes: Sequence[int | None], names: Callable[[], Sequence[str]], count: Size
) -> list[Any]:
    """Return results with the members along the axes that were asked for."""
    found = []
    for i, (image, axis) in enumerate(zip(images, axes, strict=True)):
        if axis is not None:
            whole = spread_image(image, count)
            place = normalize_axis(axis, whole.ndim)
            found.append(moveaxis(whole, 0, place) if place else whole)
        elif image.batched:
            raise ArgumentError(f"{names()[i]} differs from member to member, but out_axes is None for it")
        else:
            found.append(image.node)
    return found
