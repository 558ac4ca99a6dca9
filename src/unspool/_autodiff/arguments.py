"""What every transform does around the function it differentiates: take arguments apart, check, put results together.

The one idea: `Variables` turns nested arguments into a flat list of tensors that are identities of their own (see
`unspool._ops.identity`), calls happen on the same nesting, and results are nested the same way again, with the
arguments in the places of the variables (`unspool._autodiff.sweeps.substitution`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _trees as trees
from unspool._autodiff.sweeps.connected import moves
from unspool._autodiff.sweeps.substitution import substitute
from unspool._dims import equal
from unspool._dtypes import INEXACT, promote
from unspool._fragments.asking import check_callable
from unspool._graph import Node
from unspool._leaving import watching
from unspool._ops.broadcasting import ensure_shape
from unspool._ops.elementwise import astype
from unspool._ops.identity import alias
from unspool._ops.leaf import as_tensor, constant, tensor
from unspool.errors import ArgumentError, DTypeError, ShapeError, StructureError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

_PYTHON_SCALARS = (bool, int, float, complex)


class Variables:
    """The differentiable leaves of nested arguments, each under an identity of its own.

    Leaves that are not floating-point or complex are held fixed if ``fixed`` allows it, else refused.

    Attributes
    ----------
    tensors : list of Tensor
        The variables: stand-ins for the tensors among the arguments, and new tensors for arrays and numbers.
    derivatives : set of id
        Results of derivatives that the function took itself while it was called with them.
    """

    def __init__(self, args: Any, roots: Sequence[str], *, fixed: bool) -> None:
        self._leaves, self.structure = trees.flatten(tuple(args))
        self._moving: list[int] = []
        self.tensors: list[Tensor] = []
        self._given: list[Node] = []
        for i, leaf in enumerate(self._leaves):
            made = alias(leaf) if isinstance(leaf, Node) and leaf.dtype in INEXACT else leaf  # type: ignore[arg-type]
            if not isinstance(leaf, Node) and not (fixed and _is_exact(leaf)):
                made = tensor(leaf)
            if isinstance(made, Node) and made.dtype in INEXACT:
                self._leaves[i] = made
                self._moving.append(i)
                self.tensors.append(made)  # type: ignore[arg-type]
                self._given.append(leaf if isinstance(leaf, Node) else made)
            elif not fixed:
                raise DTypeError(
                    f"{_names(self.structure, roots)[i]} has dtype {made.dtype}; derivatives are taken with respect to "
                    "floating-point or complex values (3.0 instead of 3, or us.astype)"
                )
        self._roots = roots
        self.derivatives: set[int] = set()

    def nested(self) -> tuple[Any, ...]:
        """Return the arguments with the variables in place."""
        nested: tuple[Any, ...] = trees.unflatten(self.structure, self._leaves)
        return nested

    def restore(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Return one value per variable, nested like the arguments; ``None`` for what is held fixed."""
        filled: list[Any] = [None] * len(self._leaves)
        for i, value in zip(self._moving, values, strict=True):
            filled[i] = value
        nested: tuple[Any, ...] = trees.unflatten(self.structure, filled)
        return nested

    def substitute(self, results: Sequence[Any], aux: Any = None) -> tuple[list[Any], Any]:
        """Return results, and what else the function returned, with the arguments in the places of the variables."""
        if aux is None:
            return substitute(results, self.tensors, self._given), None
        leaves, structure = trees.flatten(aux)
        placed = substitute([*results, *leaves], self.tensors, self._given)
        found, others = placed[: len(results)], placed[len(results) :]
        is_same = all(before is after for before, after in zip(leaves, others, strict=True))
        return found, aux if is_same else trees.unflatten(structure, others)

    def names(self) -> list[str]:
        """Return what to call each variable in messages."""
        every = _names(self.structure, self._roots)
        return [every[i] for i in self._moving]

    def tangents(self, given: Any) -> list[Tensor | None]:
        """Return the tangent of each variable from a nesting like that of the arguments."""
        entries = trees.flatten_like(self.structure, tuple(given), "tangents")
        every = _names(self.structure, self._roots)
        for i, entry in enumerate(entries):
            if entry is not None and i not in self._moving:
                raise DTypeError(f"{every[i]} is not floating-point or complex: its tangent is None")
        pairs = zip(self._moving, self.tensors, strict=True)
        return [as_direction(entries[i], v, f"the tangent of {every[i]}") for i, v in pairs]


def _names(structure: Any, roots: Sequence[str]) -> list[str]:
    """Return what to call each leaf of a tuple of arguments: the name of its argument and its place in there."""
    return [str(accessor[1:].codify(roots[accessor[0].entry])) for accessor in structure.accessors()]


class Outputs:
    """The leaves of what a function returned, as tensors; a leaf that is none is a constant.

    Attributes
    ----------
    tensors : list of Tensor
        The leaves.
    plain : str or None
        What they are, if none of them was a tensor.
    """

    def __init__(self, returned: Any) -> None:
        leaves, self.structure = trees.flatten(returned)
        self.tensors = [as_tensor(leaf) for leaf in leaves]
        is_plain = bool(leaves) and not any(isinstance(leaf, Node) for leaf in leaves)
        self.plain = f"a plain {type(leaves[0]).__name__}" if is_plain else None

    def nested(self) -> Any:
        """Return the outputs as the function nested them."""
        return trees.unflatten(self.structure, self.tensors)

    def restore(self, values: Sequence[Any]) -> Any:
        """Return one value per output, nested like the outputs."""
        return trees.unflatten(self.structure, values)

    def names(self) -> list[str]:
        """Return what to call each output in messages."""
        return trees.names(self.structure, "the output")

    def cotangents(self, given: Any) -> list[Tensor | None]:
        """Return the cotangent of each output from a nesting like that of the outputs."""
        entries = trees.flatten_like(self.structure, given, "the cotangent")
        found = []
        for entry, out, name in zip(entries, self.tensors, self.names(), strict=True):
            if entry is not None and out.dtype not in INEXACT:
                raise DTypeError(f"{name} has dtype {out.dtype}, which has no derivative: its cotangent is None")
            found.append(as_direction(entry, out, f"the cotangent of {name}"))
        return found


def call(
    f: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    argnums: Sequence[int],
    *,
    fixed: bool = False,
) -> tuple[Variables, Any]:
    """Call a function with the arguments at ``argnums`` replaced by variables; return these and what it returned."""
    check_callable(f, "a derivative (us.vjp, us.jvp, us.linearize, us.hvp)")
    places = [_place(f, n, len(args)) for n in argnums]
    if len(set(places)) != len(places):
        raise ArgumentError(f"argnums {tuple(argnums)} name an argument of {name_of(f)} twice")
    variables = Variables([args[n] for n in places], [f"argument {n}" for n in places], fixed=fixed)
    filled = list(args)
    for n, value in zip(places, variables.nested(), strict=True):
        filled[n] = value
    with watching(lambda node: moves(node, variables.tensors)) as watch:
        variables.derivatives = watch.derivatives
        return variables, f(*filled, **kwargs)


def as_argnums(argnums: int | Sequence[int]) -> tuple[tuple[int, ...], bool]:
    """Return positions as a tuple, and whether there was just one."""
    if isinstance(argnums, (int, np.integer)) and not isinstance(argnums, bool):
        return (int(argnums),), True
    if isinstance(argnums, (tuple, list)) and argnums and all(isinstance(n, (int, np.integer)) for n in argnums):
        return tuple(int(n) for n in argnums), False
    raise ArgumentError(f"argnums is an integer or a tuple of integers, got {argnums!r}")


def _place(f: Callable[..., Any], argnum: int, count: int) -> int:
    if not -count <= argnum < count:
        raise StructureError(
            f"argnums={argnum}, but {name_of(f)} was called with {count} positional arguments; "
            "an argument to differentiate is passed by position"
        )
    return argnum % count


def split_aux(f: Callable[..., Any], returned: Any, has_aux: bool) -> tuple[Any, Any]:
    """Return what a function returned as (output, aux)."""
    if not has_aux:
        return returned, None
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise StructureError(f"with has_aux=True {name_of(f)} must return (output, aux), got {returned!r}")
    return returned


def name_of(f: Any) -> str:
    """Return what to call a function in messages."""
    return getattr(f, "__name__", None) or type(f).__name__


def as_direction(value: Any, like: Tensor, what: str) -> Tensor | None:
    """Return a tangent or cotangent for a tensor: of its shape, in its dtype; ``None`` stays ``None``.

    Python scalars are weak. A dtype that does not fit into that of the tensor is refused.
    """
    if value is None:
        return None
    if isinstance(value, _PYTHON_SCALARS):
        if isinstance(value, complex) and like.dtype.kind != "c":
            raise DTypeError(f"{what} is complex, but the value it belongs to has dtype {like.dtype}")
        direction = constant(value, like.dtype)
    else:
        direction = leaf_tensor(value, what)
    if direction.ndim != like.ndim or any(
        equal(a, b) is False for a, b in zip(direction.shape, like.shape, strict=True)
    ):
        raise ShapeError(f"{what} must have shape {like.shape}, got {direction.shape}")
    if promote(direction.dtype, like.dtype) != like.dtype:
        raise DTypeError(f"{what} must fit dtype {like.dtype}, got {direction.dtype}")
    return ensure_shape(astype(direction, like.dtype), like.shape)


def leaf_tensor(value: Any, what: str) -> Tensor:
    """Return a tensor for something array-like that stands where one leaf is expected."""
    leaves, structure = trees.flatten(value)
    if not trees.is_leaf(structure) and (not leaves or any(isinstance(leaf, Node) for leaf in leaves)):
        raise StructureError(f"{what} must be one tensor or array, got the structure {trees.show(structure)}")
    try:
        return as_tensor(value)
    except DTypeError as error:
        raise DTypeError(f"{what} must be a tensor or array: {error}") from None


def _is_exact(leaf: Any) -> bool:
    """Whether a leaf that is not a tensor is something to hold fixed: integers, bools, strings, any object."""
    return np.asarray(leaf).dtype.kind not in "fc"
