"""What a worker does: it computes some members, as one batch or one by one, and returns plain arrays.

Which members run together follows from their numbers alone, so bits do not depend on who computes them and when. A
batch in which anything fails is computed one by one, so that what fails is one member.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unspool import _trees as trees
from unspool._autodiff.functional import value_and_grad
from unspool._batching.vmap import vmap
from unspool._engine.evaluate import eval as evaluate
from unspool._ensembles.budgets import budget_of_worker
from unspool._ensembles.nesting import Nesting, pack
from unspool._ensembles.parameters import member_of
from unspool._ops.leaf import as_tensor
from unspool._ops.random import Key
from unspool.errors import StructureError


@dataclass(frozen=True)
class Task:
    """What is asked of a function, for every member.

    Attributes
    ----------
    function : callable
        A function of the parameters of one member.
    structure : PyTreeSpec
        How these are nested.
    is_moving : list of bool
        Which of their leaves have derivatives.
    wants_gradient, has_aux : bool
        Whether the gradient is asked for, and whether the function returns something beside its value.
    memory : int or None
        The budget of a worker, in bytes.
    """

    function: Callable[[Any], Any]
    structure: Any
    is_moving: list[bool]
    wants_gradient: bool
    has_aux: bool
    memory: int | None

    def of_member(self) -> Callable[[list[Any], list[Any]], Any]:
        """Return the function of the leaves that move and of the others, nested results as a dictionary."""

        def called(moving: list[Any], others: list[Any]) -> Any:
            sources = iter(moving), iter(others)
            leaves = [next(sources[0] if moves else sources[1]) for moves in self.is_moving]
            return self.function(trees.unflatten(self.structure, leaves))

        if not self.wants_gradient:
            return lambda moving, others: {"value": called(moving, others)}
        both = value_and_grad(called, has_aux=self.has_aux)

        def derived(moving: list[Any], others: list[Any]) -> Any:
            value, gradient = both(moving, others)
            if not self.has_aux:
                return {"value": value, "gradient": gradient}
            value, aux = value
            return {"value": value, "gradient": gradient, "aux": aux}

        return derived

    def split(self, leaves: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return the leaves that move, and the others."""
        pairs = list(zip(leaves, self.is_moving, strict=True))
        return [leaf for leaf, moves in pairs if moves], [leaf for leaf, moves in pairs if not moves]


@dataclass
class Piece:
    """What came of some members: plain data, which go through any pool and into any file.

    Attributes
    ----------
    start, stop : int
        Which members.
    nesting : Nesting
        How results are nested; ``None`` if there are none.
    arrays : list of ndarray
        Their leaves, with the members along a first axis; NaN, or 0, for members that failed.
    failures : list of dict
        What was raised, by which member: ``index``, ``kind``, ``message``, ``traceback``.
    batched : bool
        Whether they ran as one batch.
    seconds : float
        The processor time that took.
    worker : str
        Who did it.
    peak : int or None
        The most bytes the worker held, if it has a budget.
    """

    start: int
    stop: int
    nesting: Nesting = None
    arrays: list[Any] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)
    batched: bool = False
    seconds: float = 0.0
    worker: str = ""
    peak: int | None = None


def compute_all(task: Task, parts: Sequence[tuple[int, list[Any], int]]) -> list[Piece]:
    """Compute some pieces, given the first of their members, their leaves, and how many members they have."""
    return [compute(task, *part) for part in parts]


def compute(task: Task, start: int, part: list[Any], count: int) -> Piece:
    """Compute some members, from number ``start`` on, given their leaves."""
    began = time.thread_time()
    piece = Piece(start, start + count, worker=_name())
    with budget_of_worker(task.memory) as held:
        if count == 1 or not _as_batch(task, part, count, piece):
            _one_by_one(task, part, count, piece)
    piece.peak, piece.seconds = held.peak, time.thread_time() - began
    return piece


def record_batch(task: Task, part: list[Any], count: int) -> Any:
    """Record some members as one batch, and return the results, not yet evaluated."""
    moving, others = task.split(part)
    return vmap(task.of_member(), axis_size=count)([as_tensor(x) for x in moving], others)


def failure_of(index: int, error: BaseException) -> dict[str, Any]:
    """Return what is kept of an error: its kind and its words, not the object, which may not travel."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    trace = "".join(traceback.format_exception(error))
    try:
        message = str(error)
    except Exception:  # an error that cannot say what it is fails one member, too
        message = "<its message could not be made>"
    return {"index": index, "kind": name, "message": message, "traceback": trace}


def _as_batch(task: Task, part: list[Any], count: int, piece: Piece) -> bool:
    try:
        nesting, arrays = pack(evaluate(record_batch(task, part, count)), "the result")
    except Exception:  # whatever it is, it will show for the member that is to blame
        return False
    piece.nesting, piece.arrays, piece.batched = nesting, [np.array(x) for x in arrays], True
    return True


def _one_by_one(task: Task, part: list[Any], count: int, piece: Piece) -> None:
    function = task.of_member()
    found: dict[int, list[Any]] = {}
    for position in range(count):
        index = piece.start + position
        try:
            leaves = [x if isinstance(x, Key) else as_tensor(x) for x in member_of(part, position)]
            nesting, arrays = pack(evaluate(function(*task.split(leaves))), "the result")
            check_alike(piece.nesting, next(iter(found.values()), arrays), nesting, arrays)
        except Exception as error:
            piece.failures.append(failure_of(index, error))
        else:
            piece.nesting, found[position] = nesting, arrays
    if found:
        columns = zip(*found.values(), strict=True)
        piece.arrays = [_stacked(list(found), list(column), count) for column in columns]


def check_alike(nesting: Nesting, arrays: Sequence[Any], other: Nesting, others: Sequence[Any]) -> None:
    """Refuse results of a member that differ in kind from those of one before it; ``nesting`` is None for the first."""
    if nesting is None:
        return
    if nesting != other:
        raise StructureError(f"the result is nested as {other}, that of members before this one as {nesting}")
    for x, y in zip(arrays, others, strict=True):
        if x.shape != y.shape or x.dtype != y.dtype:
            raise StructureError(
                f"the result has an array of shape {y.shape} and dtype {y.dtype}, that of members before this one has "
                f"{x.shape} and {x.dtype} there"
            )


def blank(count: int, shape: tuple[int, ...], dtype: Any) -> Any:
    """Return an array for members that have no results: NaN, or 0 where there is no NaN."""
    return np.full((count, *shape), np.nan if dtype.kind in "fc" else 0, dtype)


def _stacked(positions: Sequence[int], column: Sequence[Any], count: int) -> Any:
    whole = blank(count, column[0].shape, column[0].dtype)
    for position, array in zip(positions, column, strict=True):
        whole[position] = array
    return whole


def _name() -> str:
    name = f"{socket.gethostname()} {os.getpid()}"
    return name if threading.current_thread() is threading.main_thread() else f"{name} {threading.get_ident():x}"
