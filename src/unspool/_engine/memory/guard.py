"""What happens to values when they are evicted and when they come back: they may be remembered by a digest, or on disk.

A digest tells whether a value that was computed again is what it was. A disk holds states so that the steps before them
need not run again; it is a help, never a need: a full disk or a damaged file is reported, and the value is computed.
"""

from __future__ import annotations

import warnings
from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from unspool._engine.interpreter import apply_kernel, run_inside
from unspool._fragments.call import Call
from unspool._graph import Node, describe, source_of
from unspool.errors import RebuildError, SpillError, SpillWarning

if TYPE_CHECKING:
    from unspool._core import Held
    from unspool.checkpoint.spill import SpillHandle, SpillStore


class Guard:
    """Looks after what a budget evicts.

    Parameters
    ----------
    verify : bool
        Whether what is computed again is compared with what it was.
    store : SpillStore, optional
        Where states go that there is no room for.

    Attributes
    ----------
    period : int
        Every how many steps a state goes to disk.
    """

    def __init__(self, verify: bool, store: SpillStore | None) -> None:
        self.verify = verify
        self.store = store
        self.period = 1
        self._digests: dict[int, bytes] = {}
        self._files: dict[int, SpillHandle] = {}
        self._nodes: dict[SpillHandle, list[ref[Node]]] = {}
        self._steps: list[int] = []
        self._is_full = False

    # -- digests --

    def before_drop(self, node: Node) -> None:
        """Remember what a value is."""
        if self.verify:
            self._digests[node.id] = _digest(node.value)

    def after_rebuild(self, node: Node, value: Any) -> None:
        """Compare a value that was computed again with what it was.

        Raises
        ------
        RebuildError
            If it differs: some op gives something else each time it runs.
        """
        if not self.verify or type(value) is tuple:
            return
        expected = self._digests.get(node.id)
        if expected is None and node.value is not None:
            expected = _digest(node.value)
        if expected is not None and expected != _digest(value):
            raise RebuildError(
                f"{describe(node)}, made at {source_of(node)}, was computed again and came out different: it, or what "
                "it is made from, does not give the same value each time (an op that draws random numbers, or depends "
                "on something outside); a gradient from it would be wrong"
            )

    def doubts(self, node: Node) -> bool:
        """Whether the op of a node is to be run twice: it is the user's own, and nothing else may tell on it."""
        return self.verify and node.op.users_own

    def compare(self, node: Node, value: Any, again: Any) -> None:
        """Compare two values that an op gave for the same inputs."""
        if _digests_of(value) != _digests_of(again):
            raise RebuildError(
                f"{describe(node)}, made at {source_of(node)}, came out different when it was computed twice from the "
                "same inputs; a gradient from it would be wrong"
            )

    # -- disk --

    def has_file(self, node: Node) -> bool:
        """Whether the value of a node is on disk."""
        return node.id in self._files

    def give_up(self, state: Sequence[Held], step: int, times: Sequence[float], slots: int) -> None:
        """Write a state that is about to be evicted to disk, if none is there that is near enough."""
        if self.store is None or self._is_near(step):
            return
        self._forget_dead()
        nodes = [node for node in [held.node() for held in state] if node is not None and node.value is not None]
        arrays = {str(node.id): node.value for node in nodes if node.id not in self._files}
        if not arrays:
            return
        try:
            handle = self.store.put(arrays)
        except SpillError as error:
            warnings.warn(f"no more states go to disk, they are computed again: {error}", SpillWarning, stacklevel=2)
            self._is_full = True
            return
        for node in nodes:
            self._files.setdefault(node.id, handle)
        self._nodes[handle] = [ref(node) for node in nodes]
        insort(self._steps, step)
        self._choose_period(times, slots)

    def _is_near(self, step: int) -> bool:
        if self._is_full:
            return True
        i = bisect_left(self._steps, step)
        return any(abs(step - near) < self.period for near in self._steps[max(0, i - 1) : i + 1])

    def _choose_period(self, times: Sequence[float], slots: int) -> None:
        """Write as often as pays, by what a step and writing a state have taken so far."""
        store = self.store
        if store is None or len(times) < 2 or not self._nodes:
            return
        second = (times[-1] - times[0]) / (len(times) - 1)
        write = store.seconds_writing / len(self._nodes) / second
        read = store.seconds_reading / max(1, store.read) * store.written / len(self._nodes) / second or write / 2
        from unspool.checkpoint.planner import disk_period

        self.period = disk_period(max(1, slots), write, read)

    def fetch(self, node: Node) -> dict[int, Any] | None:
        """Return the values that went to disk together with that of a node, by id; None if it is not there."""
        handle = self._files.get(node.id)
        if handle is None or self.store is None:
            return None
        try:
            found = self.store.get(handle)
        except SpillError as error:
            warnings.warn(f"{describe(node)} is computed again: {error}", SpillWarning, stacklevel=2)
            self._forget(handle)
            return None
        return {int(key): value for key, value in found.items()}

    def forget_after(self, identity: int) -> None:
        """Remove the states that stand after a node: the backward pass has passed them."""
        for handle, nodes in list(self._nodes.items()):
            alive = [node.id for node in [reference() for reference in nodes] if node is not None]
            if all(key > identity for key in alive):
                self._forget(handle)

    def _forget_dead(self) -> None:
        for handle, nodes in list(self._nodes.items()):
            if not any(reference() is not None for reference in nodes):
                self._forget(handle)

    def _forget(self, handle: SpillHandle) -> None:
        self._nodes.pop(handle, None)
        self._files = {key: other for key, other in self._files.items() if other is not handle}
        if self.store is not None:
            self.store.free(handle)

    def close(self) -> None:
        """Remove all that is on disk."""
        if self.store is not None:
            self.store.close()
        self._files.clear()
        self._nodes.clear()


class _Recorder:
    """An observer that remembers digests of what kernels gave, and which op it was, with its line."""

    watchers = ()

    def __init__(self) -> None:
        self.seen: list[tuple[bytes, str]] = []

    def after(self, node: Node, arguments: Any, value: Any, call: Node | None = None) -> None:
        """Remember one."""
        self.seen.append((_digests_of(value), f"{describe(node)}, made at {source_of(node)}"))


def located(error: RebuildError, unit: Node, arguments: Sequence[Any]) -> RebuildError:
    """Return the error with the op that is to blame, found by running a unit twice, node by node.

    An op that gives the same value twice now, and gave another one before, is not found like this.
    """
    first, second = _Recorder(), _Recorder()
    for recorder in (first, second):
        if isinstance(unit, Call):
            run_inside(unit, arguments, recorder)
        else:
            recorder.after(unit, arguments, apply_kernel(unit, arguments))
    for (before, place), (after, _) in zip(first.seen, second.seen, strict=True):
        if before != after:
            return RebuildError(f"{error}. The culprit is {place}: it gave two values for the same input")
    return error


def _digests_of(value: Any) -> bytes:
    return b"".join(map(_digest, value if type(value) is tuple else (value,)))


def _digest(value: Any) -> bytes:
    import hashlib

    return hashlib.blake2b(np.ascontiguousarray(value).data, digest_size=8).digest()
