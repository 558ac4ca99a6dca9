"""Nested structures (pytrees): lists, tuples, dicts, named tuples, and classes registered with optree.

The one idea: every transform works on flat lists of leaves and puts the structure back at the end. ``None`` is an empty
subtree. Classes registered with optree globally, or in its namespace ``"unspool"``, are looked into.

optree is imported with the first structure: a program whose arguments are single tensors does without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from typing import Any, TypeAlias

from unspool.errors import StructureError

TreeDef: TypeAlias = Any

NAMESPACE = "unspool"

# Classes whose objects are leaves, which is known without asking; entered by who defines them.
LEAVES: set[type] = {bool, int, float, complex}


@cache
def leaf() -> TreeDef:
    """Return the structure of a single leaf."""
    import optree

    single: Any = 0
    return optree.tree_flatten(single, namespace=NAMESPACE)[1]


@lru_cache(maxsize=64)
def _row(length: int) -> TreeDef:
    """Return the structure of a list of leaves."""
    import optree

    row: Any = [0] * length
    return optree.tree_flatten(row, namespace=NAMESPACE)[1]


def flatten(tree: Any) -> tuple[list[Any], TreeDef]:
    """Return the leaves of a tree and its structure."""
    kind = type(tree)
    if kind in LEAVES:
        return [tree], leaf()
    if kind is list and LEAVES.issuperset(map(type, tree)):
        return list(tree), _row(len(tree))
    import optree

    leaves, structure = optree.tree_flatten(tree, namespace=NAMESPACE)
    return leaves, structure


def unflatten(structure: TreeDef, leaves: Iterable[Any]) -> Any:
    """Return the tree of a structure with the given leaves."""
    if structure is leaf():
        (found,) = leaves
        return found
    found = list(leaves)
    if structure is _row(len(found)):
        return found
    import optree

    return optree.tree_unflatten(structure, found)


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """Apply a function to every leaf of a tree."""
    import optree

    return optree.tree_map(function, tree, namespace=NAMESPACE)


def flatten_like(structure: TreeDef, tree: Any, what: str) -> list[Any]:
    """Return one entry per leaf of ``structure``; ``None`` may stand for a leaf.

    Raises `StructureError`, with ``what`` naming the tree, if the structures differ.
    """
    try:
        return list(structure.flatten_up_to(tree))
    except (ValueError, TypeError) as error:
        raise StructureError(
            f"{what} must have the structure {show(structure)}, but has {show(flatten(tree)[1])}: {error}"
        ) from None


def names(structure: TreeDef, root: str) -> list[str]:
    """Return what to call each leaf in messages: ``root['a'][0]`` and so on."""
    return (
        [root]
        if structure is leaf() or structure.is_leaf()
        else [accessor.codify(root) for accessor in structure.accessors()]
    )


def children(tree: Any) -> dict[Any, Any] | None:
    """Return what a tree is made of, by name or position, not looking into it any further; ``None`` for a leaf."""
    import optree

    if tree is None or optree.tree_is_leaf(tree, namespace=NAMESPACE):
        return None
    found, _, entries, _ = optree.tree_flatten_one_level(tree, namespace=NAMESPACE)
    return dict(zip(entries, found, strict=True))


def is_leaf(structure: TreeDef) -> bool:
    """Whether a structure is a single leaf."""
    return bool(structure.is_leaf())


def show(structure: TreeDef) -> str:
    """Return a structure as text, with ``*`` for a leaf."""
    text = repr(structure)
    return text.removeprefix("PyTreeSpec(").removesuffix(")").replace(f", namespace={NAMESPACE!r}", "")
