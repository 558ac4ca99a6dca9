"""What a linear operator acts on: one tensor of any shape, or a nested structure of tensors seen as one vector.

A tensor stays as it is. The tensors of a structure are laid out one after the other in a vector with one axis, and what
a function of the structure returns is laid out in the same way, so everything else deals with one tensor.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from unspool import _trees as trees
from unspool._dims import Size, product
from unspool._dtypes import promote
from unspool._graph import Node
from unspool._ops import elementwise, layout
from unspool._ops.broadcasting import ensure_shape, may_be_equal
from unspool.errors import ShapeError, StructureError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


class Vectors:
    """The vectors that are structured like a given one.

    Parameters
    ----------
    example : array_like or nested structure of tensors
        Nested lists of numbers are an array; with a tensor in it, or as a dict, a nesting is a structure.
    what : str
        What to call it in errors.
    """

    def __init__(self, example: Any, what: str) -> None:
        leaves, structure = trees.flatten(example)
        is_array = not any(isinstance(leaf, Node) for leaf in leaves) and isinstance(example, (list, tuple))
        self.structure = None if is_array or trees.is_leaf(structure) else structure
        self._what = what
        if self.structure is None:
            leaves = [example]
        elif not leaves:
            raise StructureError(f"{what} is a structure without any tensor: {trees.show(structure)}")
        tensors = [elementwise.as_inexact(leaf) for leaf in leaves]
        self._shapes = [tensor.shape for tensor in tensors]
        self.example = self._joined(tensors)

    def pack(self, tree: Any, what: str) -> Tensor:
        """Return one of the vectors as a tensor."""
        leaves = [tree] if self.structure is None else trees.flatten_like(self.structure, tree, what)
        tensors = [elementwise.as_inexact(leaf) for leaf in leaves]
        for i, (tensor, shape) in enumerate(zip(tensors, self._shapes, strict=True)):
            if tensor.shape != shape:
                if not may_be_equal(tensor.shape, shape):
                    raise ShapeError(f"{what} has shape {tensor.shape}, where {self._what} has {shape}")
                tensors[i] = ensure_shape(tensor, shape)
        return self._joined(tensors)

    def unpack(self, vector: Tensor, *more: Size) -> Any:
        """Return a tensor as the structure it stands for; ``more`` are sizes of further axes, at its end."""
        if self.structure is None:
            return layout.reshape(vector, (*self._shapes[0], *more))
        ends = list(itertools.accumulate(map(product, self._shapes), initial=0))
        spans = zip(self._shapes, ends[:-1], ends[1:], strict=True)
        return trees.unflatten(
            self.structure, [layout.reshape(vector[start:stop], (*shape, *more)) for shape, start, stop in spans]
        )

    def function(self, operator: Callable[..., Any], args: tuple[Any, ...], what: str) -> Callable[[Tensor], Tensor]:
        """Return a function of structures as one of tensors."""
        return lambda vector: self.pack(operator(self.unpack(vector), *args), f"what {what} returns")

    def _joined(self, tensors: Sequence[Tensor]) -> Tensor:
        if self.structure is None:
            return tensors[0]
        dtype = promote(*[tensor.dtype for tensor in tensors])
        flat = [layout.reshape(elementwise.astype(x, dtype), (product(x.shape),)) for x in tensors]
        return layout.concat(flat, axis=0)
