"""Which variable is which, across files and processes.

Two leaves with equal data are two variables, so a file has to say which leaf it means. Each has the number that it had
where it was made, and a token of that process. A file that is loaded beside another one, or where it was saved, finds
the variables that are there.
"""

from __future__ import annotations

import os
from weakref import WeakValueDictionary, ref

import numpy as np

from unspool._graph import Node

Identity = tuple[bytes, int]

_tokens: dict[int, bytes] = {}
_leaves: WeakValueDictionary[Identity, Node] = WeakValueDictionary()
_identities: dict[int, Identity] = {}

# Leaves that were written and are not among `_leaves` yet: they are looked for there when a file is read, which many
# programs never do.
_written: list[ref[Node]] = []
_MOST_WRITTEN = 4096


def _token() -> bytes:
    """Return what tells this process from others; a forked one makes its own leaves."""
    process = os.getpid()
    if process not in _tokens:
        _tokens[process] = os.urandom(12)
    return _tokens[process]


def identity_of(leaf: Node) -> Identity:
    """Return what a variable or placeholder is known by."""
    found = _identities.get(leaf.id)
    if found is None:
        found = _identities[leaf.id] = _token(), leaf.id
        _written.append(ref(leaf))
        if len(_written) > _MOST_WRITTEN:
            _enter_written()
    return found


def _enter_written() -> None:
    """Let leaves that were written be found by their identity."""
    while _written:
        leaf = _written.pop()()
        if leaf is not None:
            _leaves[_identities[leaf.id]] = leaf


def remember(leaf: Node, identity: Identity) -> None:
    """Let a leaf be known by an identity, and no other one that was."""
    _enter_written()
    _identities[leaf.id] = identity
    _leaves[identity] = leaf


def known_leaf(identity: Identity, op: object, shape: object, dtype: object, value: object) -> Node | None:
    """Return the leaf that is known by an identity, if it is alive and has the same contents."""
    _enter_written()
    found = _leaves.get(identity)
    if found is None or found.op is not op or found.shape != shape or found.dtype != dtype:
        return None
    if value is not None and (found.value is None or not _same_bits(found.value, value)):
        return None
    return found


def _same_bits(left: object, right: object) -> bool:
    a, b = np.ascontiguousarray(left), np.ascontiguousarray(right)
    return a.tobytes() == b.tobytes()
