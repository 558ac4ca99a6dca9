"""Anderson's method on many vectors at once, each of which goes its own way (`unspool._autodiff.solvers.anderson`).

What one search does with numbers, this does with arrays of one number for each: a search of few numbers spends its
time in calls. All searches begin together, and one that has come to its end is not advanced any more. Whoever repeats
them with the same numbers of steps makes the same calls on the same arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unspool._autodiff.solvers.anderson import REGULARISATION, RUNAWAY, least_squares
from unspool._autodiff.solvers.packing import Packing

Leaves = list[Any]

# The longest vectors whose small problems are solved together: with longer ones the copies take longer than calls.
MOST_TOGETHER = 256


class Iterations:
    """Many searches, step by step: `take` the images of the states of some, look at the residuals, `advance` these.

    Parameters
    ----------
    start : sequence of ndarray
        The leaves of the states, with the searches along a first axis.
    history : int
        How many earlier steps an argument is extrapolated from; 0 for plain steps.

    Attributes
    ----------
    state : list of ndarray
        The leaves of what the maps are to be applied to next.
    residual : ndarray
        |f(x) - x| / (1 + |x|) of each search, of the last step that it made.
    """

    def __init__(self, start: Sequence[Any], history: int) -> None:
        self.packing = packing_of(list(start))
        count, size, dtype = len(start[0]), self.packing.size, self.packing.dtype
        self.state = [np.array(leaf) for leaf in start]
        self.residual, self._distance = np.full(count, np.inf), np.full(count, np.inf)
        self._best, self._best_image = np.full(count, np.inf), [np.array(leaf) for leaf in start]
        self._taken: Any = None
        self._history = min(history, size)
        self._steps = np.zeros(count, np.int64)
        self._has_last = np.zeros(count, bool)
        self._last_residual, self._last_image = np.empty((count, size), dtype), np.empty((count, size), dtype)
        self._residuals = np.empty((count, self._history, size), dtype)
        self._images = np.empty((count, self._history, size), dtype)

    def can_restart(self, rows: Any) -> Any:
        """Return which searches extrapolated their argument, so that there is a safer one to go on from."""
        return self._counts(rows) > 0

    def _counts(self, rows: Any) -> Any:
        return np.minimum(self._steps[rows], self._history)

    def take(self, rows: Any, images: Leaves) -> None:
        """Take the images of the states of some searches, by number."""
        x, image = packed_rows([leaf[rows] for leaf in self.state]), packed_rows(images)
        self._taken = rows, images, x, image
        distance = np.linalg.norm(image - x, axis=1)
        self._distance[rows] = distance
        self.residual[rows] = distance / (1.0 + np.linalg.norm(x, axis=1))

    def advance(self, goes_on: Any) -> None:
        """Choose the next arguments of those searches that go on, of those whose images were taken."""
        (rows, images, x, image), self._taken = _chosen(self._taken, goes_on), None
        if not self._history:
            self._set_state(rows, images)
            return
        is_astray = self.can_restart(rows) & ~(self._distance[rows] <= RUNAWAY * self._best[rows])
        astray = rows[is_astray]
        self._steps[astray], self._has_last[astray], self._best[astray] = 0, False, np.inf
        self._set_state(astray, [leaf[astray] for leaf in self._best_image])
        rows, images, x, image = _chosen((rows, images, x, image), ~is_astray)
        better = self._distance[rows] <= self._best[rows]
        self._best[rows[better]] = self._distance[rows[better]]
        for whole, leaf in zip(self._best_image, images, strict=True):
            whole[rows[better]] = leaf[better]
        self._set_state(rows, self._unpacked(self._extrapolated(rows, x, image), images))

    def _extrapolated(self, rows: Any, x: Any, image: Any) -> Any:
        """Return where to go from arguments and their images."""
        residual = image - x
        again = self._has_last[rows]
        moved = rows[again]
        slots = self._steps[moved] % self._history
        self._residuals[moved, slots] = residual[again] - self._last_residual[moved]
        self._images[moved, slots] = image[again] - self._last_image[moved]
        self._steps[moved] += 1
        self._last_residual[rows], self._last_image[rows], self._has_last[rows] = residual, image, True
        found, counts = image.copy(), self._counts(rows)
        for count in np.unique(counts[counts > 0]):
            some = counts == count
            weights = _least_squares(self._residuals[rows[some], :count], residual[some])
            found[some] -= np.einsum("mc,mcs->ms", weights, self._images[rows[some], :count])
        return found

    def _set_state(self, rows: Any, leaves: Leaves) -> None:
        for whole, leaf in zip(self.state, leaves, strict=True):
            whole[rows] = leaf

    def _unpacked(self, vectors: Any, others: Leaves) -> Leaves:
        """Return the states that vectors stand for; leaves that are not in a vector are those of ``others``."""
        leaves, start = list(others), 0
        for i in self.packing.positions:
            like = others[i]
            width = int(np.prod(like.shape[1:]))
            leaf = vectors[:, start : start + width]
            start += width
            if like.dtype.kind == "c":
                leaf = leaf + 1j * vectors[:, start : start + width]
                start += width
            leaves[i] = leaf.astype(like.dtype, copy=False).reshape(like.shape)
        return leaves


def _chosen(taken: tuple[Any, Leaves, Any, Any], flags: Any) -> tuple[Any, Leaves, Any, Any]:
    """Return numbers, images, and vectors of states and images of some of the searches."""
    if flags.all():
        return taken
    rows, images, x, image = taken
    return rows[flags], [leaf[flags] for leaf in images], x[flags], image[flags]


def packed_rows(leaves: Leaves) -> Any:
    """Return the vectors of many states (see `Packing`), one in each row."""
    packing = packing_of(leaves)
    runs: list[Any] = []
    for i in packing.positions:
        leaf = leaves[i]
        halves = [leaf.real, leaf.imag] if leaf.dtype.kind == "c" else [leaf]
        runs += [half.reshape(len(leaf), int(np.prod(leaf.shape[1:]))) for half in halves]
    if len(runs) == 1:
        return runs[0]
    return np.concatenate(runs or [np.empty((len(leaves[0]), 0))], axis=1, dtype=packing.dtype)


def packing_of(leaves: Leaves) -> Packing:
    """Return how a state lies in its vector, given the leaves of many."""
    return Packing([np.empty(leaf.shape[1:], leaf.dtype) for leaf in leaves])


def _least_squares(rows: Any, targets: Any) -> Any:
    """Return the weights with which rows add up to each target as nearly as possible; small ones if that is open."""
    if rows.shape[2] > MOST_TOGETHER:
        return np.stack([least_squares(*one) for one in zip(rows, targets, strict=True)])
    sizes = np.sqrt(np.einsum("mcs,mcs->mc", rows, rows))
    sizes[sizes == 0.0] = 1.0
    is_finite = np.isfinite(sizes).all(axis=1)
    count, dtype = rows.shape[1], rows.dtype
    scaled = np.where(is_finite[:, None, None], rows / sizes[:, :, None], 0.0)
    damping = np.broadcast_to(REGULARISATION * np.eye(count, dtype=dtype), (len(rows), count, count))
    q, r = np.linalg.qr(np.concatenate([scaled.swapaxes(1, 2), damping], axis=1))
    wanted = np.einsum("msc,ms->mc", q[:, : rows.shape[2]], targets)
    weights = np.linalg.solve(r, wanted[:, :, None])[:, :, 0] / sizes
    return np.where(is_finite[:, None], weights, 0.0).astype(dtype, copy=False)
