"""The arguments of a call of a traced function, taken apart: what is data, what is part of the key.

Tensors and arrays are data; a trace depends on their sizes and dtypes. Python numbers are data too, as weak as they are
(`weak_numbers`). Everything else (strings, bools, any object) and arguments that were declared static belong to the
key: plain values by type and value, any other object as itself (`exactly`).

Sizes enter the key of a trace by pattern alone. Sizes 0 and 1 stand for themselves, because what broadcasts depends on
them. Of the others it counts which are equal: shapes (5, 5) and (5,) have the pattern of (7, 7) and (7,). So sizes that
are equal at the call are one symbol in the trace, which needs no run-time checks then and lets ``us.eye(A.shape[0])``
meet ``A``. Sizes that differ are two symbols that are never equal. The price is another trace when sizes coincide.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from unspool import _trees as trees
from unspool._dims import Dim, is_concrete
from unspool._fragments.exactly import exactly
from unspool._fragments.weak_numbers import DTYPES, WeakNumber, is_weak
from unspool._graph import Node
from unspool._ops.leaf import constant, scalar
from unspool.errors import ArgumentError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

# A size 0 or 1, or ~i for the i-th other size.
Pattern: TypeAlias = tuple[tuple[int, ...], ...]

TENSOR = "tensor"
_OBJECT = "object"
_ARRAYS = (np.ndarray, np.generic)


class Parameters:
    """The parameters of a function: which are static, and what to call arguments in messages."""

    def __init__(self, function: Callable[..., Any], static: str | Sequence[str]) -> None:
        names = static_names(static)
        try:
            parameters = inspect.signature(function).parameters
        except (TypeError, ValueError):  # a callable that Python cannot look into
            parameters = {}  # type: ignore[assignment]
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        self.names = [p.name for p in parameters.values() if p.kind in positional]
        takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
        for name in names:
            if name not in parameters and not takes_any:
                known = ", ".join(parameters) or "none"
                raise ArgumentError(f"static names {name!r}, which is no parameter; there are: {known}")
        self.static = frozenset(names)
        self._static_places = {i for i, name in enumerate(self.names) if name in self.static}

    def split(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, tuple[tuple[Any, Any], ...]]:
        """Return the arguments with ``None`` in place of static ones, and these as pairs of name or place and value."""
        if not self.static:
            return (args, kwargs), ()
        given = [(i, value) for i, value in enumerate(args) if i in self._static_places]
        rest = tuple(None if i in self._static_places else value for i, value in enumerate(args))
        named = sorted((name, value) for name, value in kwargs.items() if name in self.static)
        remaining = {name: None if name in self.static else value for name, value in kwargs.items()}
        return (rest, remaining), (*given, *named)

    def name(self, place: int | str) -> str:
        """Return the name of the parameter at a place."""
        if isinstance(place, str):
            return place
        return self.names[place] if place < len(self.names) else f"argument {place}"

    def leaf_names(self, structure: Any) -> list[str]:
        """Return what to call each leaf of the arguments."""
        return [accessor[2:].codify(self.name(accessor[1].entry)) for accessor in structure.accessors()]


def static_names(static: Any) -> tuple[str, ...]:
    """Return the names of static parameters, as a user gives one or several."""
    try:
        names = (static,) if isinstance(static, str) else tuple(static)
    except TypeError:
        names = (static,)
    if not all(isinstance(name, str) for name in names):
        raise ArgumentError(f"static takes names of parameters, got {static!r}")
    return names


class Arguments:
    """One call's arguments, flat.

    Attributes
    ----------
    structure : treedef
        Of ``(args, kwargs)``.
    static : tuple
        Pairs (name or place, value) of the arguments that were declared static.
    leaves : list
        As they were given.
    tensors : list of Tensor
        The leaves that are tensors or arrays, these as constants.
    kinds : list
        What each leaf is: "tensor", a type of number, or a pair that tells what it is for one that belongs to the key.
    key : tuple
        All that a plan depends on, except values of numbers that the function insists on.
    is_abstract : bool
        Whether sizes or numbers among them are symbols themselves, so that the call is part of another trace.
    """

    __slots__ = ("is_abstract", "key", "kinds", "leaves", "static", "structure", "tensors")

    def __init__(self, parameters: Parameters, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        data, self.static = parameters.split(args, kwargs)
        self.leaves, self.structure = trees.flatten(data)
        self.tensors: list[Tensor] = []
        self.is_abstract = False
        self.kinds = [self._kind(leaf) for leaf in self.leaves]
        shapes = tuple([tensor.shape for tensor in self.tensors])
        dtypes = tuple([tensor.dtype for tensor in self.tensors])
        static = tuple([(place, _part_of_key(value)) for place, value in self.static]) if self.static else ()
        self.key = ((self.structure, _keys_in(self.structure)), static, tuple(self.kinds), shapes, dtypes)

    def _kind(self, leaf: Any) -> Any:
        if isinstance(leaf, Node):
            self.tensors.append(leaf)  # type: ignore[arg-type]
            if not is_concrete(leaf.shape):
                self.is_abstract = True
            return TENSOR
        if isinstance(leaf, _ARRAYS):
            self.tensors.append(constant(leaf))
            return TENSOR
        if is_weak(leaf):
            return type(leaf)
        if isinstance(leaf, (WeakNumber, Dim)):
            self.is_abstract = True
            return WeakNumber
        return _OBJECT, _part_of_key(leaf)

    def check_key(self, parameters: Parameters) -> None:
        """Raise `ArgumentError` for an argument that belongs to the key and has no hash."""
        named = [(parameters.name(place), value, "static ") for place, value in self.static]
        leaves = zip(parameters.leaf_names(self.structure), self.leaves, self.kinds, strict=True)
        named += [(name, leaf, "") for name, leaf, kind in leaves if type(kind) is tuple]
        for name, value, kind in named:
            try:
                hash(value)
            except TypeError as error:
                raise ArgumentError(
                    f"the {kind}argument {name} is part of what a trace is for and must be hashable, but is a "
                    f"{type(value).__name__} ({error}); data are tensors, arrays, numbers, and structures of them"
                ) from None

    # -- what a trace depends on --

    def pattern(self) -> tuple[Pattern, tuple[int, ...]]:
        """Return the shapes with symbols for sizes, and the size that each symbol stands for."""
        sizes: dict[int, int] = {}
        shapes: list[tuple[int, ...]] = []
        for tensor in self.tensors:
            numbers: Any = tensor.shape
            shapes.append(tuple([n if n < 2 else ~sizes.setdefault(n, len(sizes)) for n in numbers]))
        return tuple(shapes), tuple(sizes)

    def numbers(self) -> list[int]:
        """Return the positions of the leaves that are numbers."""
        return [i for i, kind in enumerate(self.kinds) if kind in DTYPES]

    def operands(self) -> list[Tensor]:
        """Return the data as tensors: first tensors and arrays, then numbers."""
        found = self.tensors
        if len(found) < len(self.leaves):
            found = found + [
                scalar(leaf, DTYPES[kind]) for leaf, kind in zip(self.leaves, self.kinds, strict=True) if kind in DTYPES
            ]
        return found

    def objects(self) -> list[Any]:
        """Return what is neither data nor declared static, and the values that were."""
        opaque = [leaf for leaf, kind in zip(self.leaves, self.kinds, strict=True) if type(kind) is tuple]
        return opaque + [value for _, value in self.static]


def _keys_in(structure: Any) -> tuple[Any, ...]:
    """Return what tells keys of dictionaries apart that are equal: 1.0 and True are not 1."""
    return tuple(
        [
            (i, exactly(entry))
            for i, path in enumerate(structure.paths())
            for entry in path
            if type(entry) is not int and type(entry) is not str
        ]
    )


def _part_of_key(value: Any) -> Any:
    """Return a value as part of a key; one that has no hash makes the key have none."""
    try:
        return exactly(value)
    except TypeError:
        return value
