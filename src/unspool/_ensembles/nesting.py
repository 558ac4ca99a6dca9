"""What members return, as a list of arrays and a description that JSON has.

The one idea: a file of results must not run code when it is read. So what they are nested in are plain lists, tuples
and dictionaries, which a few words describe, and no classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from unspool.errors import StructureError

Nesting: TypeAlias = Any

_NUMBERS = "biufc"


def pack(tree: Any, what: str) -> tuple[Nesting, list[Any]]:
    """Return how a tree is nested, with numbers for its leaves, and the leaves as arrays; ``what`` is its name.

    Examples
    --------
    >>> pack({"a": 1.0, "b": (2, None)}, "the result")
    ({'dict': [['a', 0], ['b', {'tuple': [1, None]}]]}, [array(1.), array(2)])
    """
    leaves: list[Any] = []
    return _packed(tree, what, leaves), leaves


def unpack(nesting: Nesting, leaves: Sequence[Any]) -> Any:
    """Return the tree of a nesting with the given leaves.

    Examples
    --------
    >>> unpack({"dict": [["a", 0], ["b", {"tuple": [1, None]}]]}, ["first", "second"])
    {'a': 'first', 'b': ('second', None)}
    """
    if nesting is None:
        return None
    if isinstance(nesting, int):
        return leaves[nesting]
    ((kind, entries),) = nesting.items()
    if kind == "dict":
        return {key: unpack(entry, leaves) for key, entry in entries}
    found = [unpack(entry, leaves) for entry in entries]
    return tuple(found) if kind == "tuple" else found


def _packed(tree: Any, what: str, leaves: list[Any]) -> Nesting:
    if tree is None:
        return None
    if type(tree) is dict:
        _check_keys(tree, what)
        return {"dict": [[key, _packed(entry, f"{what}[{key!r}]", leaves)] for key, entry in tree.items()]}
    if type(tree) in (list, tuple):
        return {type(tree).__name__: [_packed(entry, f"{what}[{i}]", leaves) for i, entry in enumerate(tree)]}
    leaves.append(_as_array(tree, what))
    return len(leaves) - 1


def _check_keys(tree: dict[Any, Any], what: str) -> None:
    for key in tree:
        if type(key) not in (str, int):
            raise StructureError(f"a dictionary of results has names or integers as keys, {what} has {key!r}")


def _as_array(leaf: Any, what: str) -> Any:
    is_other = isinstance(leaf, dict | list | tuple)  # a class of its own, which may mean more than its entries
    array = np.empty((), object) if is_other else np.asarray(leaf)
    if array.dtype.kind not in _NUMBERS:
        raise StructureError(
            f"results are numbers and arrays in lists, tuples and dictionaries, but {what} is a {type(leaf).__name__}"
        )
    return array
