"""Tensor trains: a tensor as a product of small matrices, one per index, by TT-SVD and by alternating least squares.

The model is X̂[i₁, …, i_d] = G₁[i₁]·G₂[i₂] ⋯ G_d[i_d], where G_k[i] is a matrix of the sizes r_{k-1} × r_k and both ends
have the size 1. Physicists call it a matrix product state; `unspool.networks.chain.MPS` takes the same cores.

TT-SVD splits one index off after the other by singular value decompositions. If each drops a tail of norm at most
ε‖X‖/√(d-1), the whole error is at most ε‖X‖; for given ranks it is at most √(d-1) times the best one.

TT-ALS starts from a train and replaces one core after the other by the best one, forth and back, with ranks as they
are. If the cores to the left are orthonormal in (left, index) and those to the right in (index, right), the best core
is the projection of the data on these bases; there is nothing to solve, and the residual is ‖X‖² - ‖core‖². As in
`unspool.networks.als`, the indices are halved again and again, so the data themselves are multiplied only three times,
twice to the right and once to the left, however many indices there are.

References: I. V. Oseledets, SIAM J. Sci. Comput. 33, 2295 (2011): trains and TT-SVD. S. Holtz, T. Rohwedder and
R. Schneider, SIAM J. Sci. Comput. 34, A683 (2012): alternating optimisation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

import unspool as us
from unspool.errors import ArgumentError, ShapeError
from unspool.networks import _checks
from unspool.networks._fitting import (
    FitResult,
    OnStep,
    Progress,
    data_tensor,
    noise,
    register_state,
    same_kind,
    square_norm,
    truncated_basis,
)
from unspool.networks._progress import shows_progress
from unspool.networks._spooling import Spool, run_of

__all__ = ["TensorTrain", "TensorTrainResult", "random_train", "tt_als", "tt_svd"]


@dataclass(frozen=True, eq=False)
class TensorTrain:
    """A tensor as a row of cores, joined from each one's last axis to the next one's first.

    Parameters
    ----------
    cores : sequence of array_like
        A tensor (left, index, right) for each mode. The sizes at both ends are 1.

    Examples
    --------
    >>> from unspool.networks.tensor_train import TensorTrain
    >>> train = TensorTrain([[[[1.0], [2.0]]], [[[3.0], [4.0]]]])
    >>> train
    TensorTrain(shape=(2, 2), ranks=(1,))
    >>> train.full().eval()
    array([[3., 4.],
           [6., 8.]])
    """

    cores: tuple[us.Tensor, ...]

    def __post_init__(self) -> None:
        cores = tuple(us.asarray(core) for core in self.cores)
        shapes = [core.shape for core in cores]
        if not shapes or any(len(shape) != 3 for shape in shapes):
            raise ShapeError(f"cores must have the axes (left, index, right), but their shapes are {shapes}")
        lefts, rights = [shape[0] for shape in shapes], [shape[2] for shape in shapes]
        if lefts != [1, *rights[:-1]] or rights[-1] != 1:
            raise ShapeError(f"cores of shapes {shapes} do not make a train: neighbours and ends (of size 1) must fit")
        object.__setattr__(self, "cores", cores)

    def __repr__(self) -> str:
        return f"TensorTrain(shape={self.shape}, ranks={self.ranks})"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the tensor it stands for."""
        return tuple(int(core.shape[1]) for core in self.cores)

    @property
    def ranks(self) -> tuple[int, ...]:
        """The sizes of the joints between neighbouring cores."""
        return tuple(int(core.shape[2]) for core in self.cores[:-1])

    def full(self) -> us.Tensor:
        """The tensor it stands for."""
        return _joined(self.cores).reshape(self.shape)


register_state(TensorTrain, "cores")


class TensorTrainResult(FitResult[TensorTrain]):
    """The result of `tt_als`."""

    __slots__ = ()


def random_train(shape: Sequence[int], rank: int, *, seed: int = 0, dtype: DTypeLike = np.float64) -> TensorTrain:
    """Return a train of normally distributed cores; ranks are at most ``rank`` and no larger than they can be.

    Examples
    --------
    >>> from unspool.networks.tensor_train import random_train
    >>> random_train((2, 3, 4, 5), rank=4)
    TensorTrain(shape=(2, 3, 4, 5), ranks=(2, 4, 4))
    """
    rank, rng, dtype = _checks.count(rank, "rank"), np.random.default_rng(seed), np.dtype(dtype)
    sizes = [_checks.count(size, "a size") for size in shape]
    joints = [min(rank, math.prod(sizes[:cut]), math.prod(sizes[cut:])) for cut in range(len(sizes) + 1)]
    cores = []
    for core in zip(joints[:-1], sizes, joints[1:], strict=True):
        values = rng.standard_normal(core)
        cores.append((values + 1j * rng.standard_normal(core) if dtype.kind == "c" else values).astype(dtype))
    return TensorTrain(tuple(us.tensor(core) for core in cores))


# --- one pass of singular value decompositions -----------------------------------------------------------------------


def tt_svd(
    data: Any, rank: int | None = None, cutoff: float | None = None, *, keep_multiplets: bool = False
) -> TensorTrain:
    """Split a tensor into a train, as short as a rank, a relative error, or both allow.

    Parameters
    ----------
    data : array_like
        The tensor to decompose, with two axes or more, real or complex.
    rank : int, optional
        The largest rank to keep.
    cutoff : float, optional
        The relative error ‖data - train‖ / ‖data‖ to allow: every decomposition keeps the smallest rank that makes
        sure of it. By default, what may be rounding is cut off, at 1024 units of it.
    keep_multiplets : bool
        Lower a rank as far as it takes not to cut through equal singular values.

    Notes
    -----
    Ranks are found by looking at singular values, and are constants of the derivative. A rank that cuts through equal
    singular values leaves the train open; a derivative that depends on it raises `GaugeError`.

    Examples
    --------
    >>> import numpy as np
    >>> import unspool as us
    >>> from unspool.networks.tensor_train import tt_svd
    >>> X = us.tensor(np.sin(np.indices((10, 10, 10, 10)).sum(axis=0)))
    >>> train = tt_svd(X)
    >>> train, bool(us.allclose(train.full(), X))
    (TensorTrain(shape=(10, 10, 10, 10), ranks=(2, 2, 2)), True)
    """
    data = data_tensor(data)
    largest, splits = None if rank is None else _checks.count(rank, "rank"), data.ndim - 1
    if cutoff is None:
        allowed = noise(data, splits)
    else:
        allowed = _checks.fraction(cutoff, "cutoff") * math.sqrt(float(square_norm(data)) / splits)
    cores, rest, left = [], data, 1
    for size in data.shape[:-1]:
        matrix = rest.reshape((left * size, -1))
        basis = truncated_basis(matrix, largest, allowed, keep_multiplets=keep_multiplets)
        kept = int(basis.shape[1])
        cores.append(basis.reshape((left, size, kept)))
        rest, left = us.conj(basis).mT @ matrix, kept
    return TensorTrain((*cores, rest.reshape((left, data.shape[-1], 1))))


# --- alternating least squares ---------------------------------------------------------------------------------------


@shows_progress("sweeps")
def tt_als(
    data: Any,
    start: TensorTrain | Sequence[Any] | int | None = None,
    *,
    rank: int | None = None,
    tol: float = 1e-8,
    max_steps: int = 100,
    on_step: OnStep | None = None,
    progress: bool = False,
    spool: Spool | None = None,
) -> TensorTrainResult:
    """Fit a train of fixed ranks to a tensor, core by core, forth and back, until the fit settles.

    Parameters
    ----------
    data : array_like
        The tensor to decompose, with two axes or more, real or complex.
    start : TensorTrain, sequence of array_like, or int
        The train to start from, or a rank, to start from `tt_svd`. The first core is not read but for its shape.
    rank : int
        The largest rank, in place of a start, which is that of `tt_svd`.
    tol : float
        Stop when the fit changes by less than this in a sweep.
    max_steps : int
        The most sweeps to make. Each goes once forth and once back.
    on_step : callable, optional
        ``on_step(step, state, values)`` is called after each sweep.
    progress : bool
        Whether to show how far it is while it runs; see `unspool.progress`.
    spool : path or us.SpooledRun, optional
        Write the loop as it runs, into a folder or as `unspool.spool` says. A run that is there is gone on with, and
        derivatives go through all its steps.

    Returns
    -------
    TensorTrainResult
        The named tuple (state, fit, residual, steps, converged, history). Not to have converged is no error. All cores
        of the state but the first are orthonormal in (index, right).

    Notes
    -----
    A start with ranks that the data do not fill is no trouble for the values. The space of a core is then open, and the
    derivative raises `RankError`. A rank as a start is not: `tt_svd` lowers it to what the data fill.

    Examples
    --------
    >>> import numpy as np
    >>> import unspool as us
    >>> from unspool.networks.tensor_train import tt_als
    >>> X = us.tensor(1.0 / (1.0 + np.indices((6, 6, 6, 6)).sum(axis=0)))
    >>> found = tt_als(X, rank=2, tol=1e-12)
    >>> found.converged, found.state
    (True, TensorTrain(shape=(6, 6, 6, 6), ranks=(2, 2, 2)))
    >>> gradient = found.residual.grad(X)                            # through every sweep and the start
    >>> bool(us.allclose(gradient, 2 * (X - found.state.full()), atol=1e-5))   # what the envelope theorem says
    True
    """
    data = data_tensor(data)
    max_steps = _checks.count(max_steps, "max_steps")
    cores = _right_orthonormal(_starting_point(data, _checks.start_or_rank(start, rank)).cores)
    norm2 = square_norm(data)
    with run_of(spool, max_steps) as run:
        sweeps = Progress(norm2, tol, on_step, run)
        data, norm2, cores = run.start((data, norm2, tuple(cores)), inputs=(data, tuple(cores)))
        while sweeps.steps < max_steps and not sweeps.converged:
            cores = _sweep(data, cores)
            sweeps.note(TensorTrain(cores), float(norm2 - square_norm(cores[0])), (data, norm2, tuple(cores)))
    return sweeps.result(TensorTrainResult, data, TensorTrain(cores))


def _sweep(data: us.Tensor, cores: Sequence[us.Tensor]) -> tuple[us.Tensor, ...]:
    """Replace every core forth and back. The cores but the first have to be orthonormal to the right, and are again."""
    cores = list(cores)
    whole = data.reshape((1, *data.shape, 1))

    def forth(block: us.Tensor, first: int, last: int) -> None:
        """Replace the cores from first to last; the block is the data, projected on the bases beside them."""
        if last - first == 1:
            # The part that is not orthonormal is left out: the next core is replaced anyway.
            cores[first] = _left_basis(block) if last < len(cores) else block
            return
        middle = (first + last + 1) // 2
        forth(_without_right(block, cores[middle:last]), first, middle)
        forth(_without_left(block, cores[first:middle]), middle, last)

    def back(block: us.Tensor, first: int, last: int) -> None:
        if last - first == 1:
            cores[first] = _right_basis(block) if first > 0 else block
            return
        middle = (first + last + 1) // 2
        back(_without_left(block, cores[first:middle]), middle, last)
        back(_without_right(block, cores[middle:last]), first, middle)

    forth(whole, 0, len(cores))
    cores[-1] = _right_basis(cores[-1])
    back(_without_right(whole, cores[-1:]), 0, len(cores) - 1)
    return tuple(cores)


def _joined(cores: Sequence[us.Tensor]) -> us.Tensor:
    """Return a row of cores as one tensor (left, all indices, right)."""
    whole = cores[0]
    for core in cores[1:]:
        whole = us.einsum("lmk,knr->lmnr", whole, core).reshape((whole.shape[0], -1, core.shape[2]))
    return whole


def _without_left(block: us.Tensor, cores: Sequence[us.Tensor]) -> us.Tensor:
    """Project the leading indices of a block (left, indices, right) on the basis that cores make."""
    basis = _joined(cores)
    left, size, right = basis.shape
    kept = block.shape[1 + len(cores) :]
    return us.einsum("lir,lix->rx", us.conj(basis), block.reshape((left, size, -1))).reshape((right, *kept))


def _without_right(block: us.Tensor, cores: Sequence[us.Tensor]) -> us.Tensor:
    """Project the trailing indices of a block (left, indices, right) on the basis that cores make."""
    basis = _joined(cores)
    left, size, right = basis.shape
    kept = block.shape[: block.ndim - 1 - len(cores)]
    return us.einsum("xir,lir->xl", block.reshape((-1, size, right)), us.conj(basis)).reshape((*kept, left))


def _left_basis(core: us.Tensor) -> us.Tensor:
    """Return an orthonormal basis of what a core's (left, index) spans."""
    left, size, right = core.shape
    basis: us.Tensor = us.linalg.qr(core.reshape((left * size, right)), positive=True).Q
    return basis.reshape((left, size, right))


def _right_basis(core: us.Tensor) -> us.Tensor:
    """Return an orthonormal basis of what a core's (index, right) spans."""
    left, size, right = core.shape
    basis: us.Tensor = us.linalg.lq(core.reshape((left, size * right)), positive=True).Q
    return basis.reshape((left, size, right))


def _right_orthonormal(cores: Sequence[us.Tensor]) -> tuple[us.Tensor, ...]:
    """Return the same train with all cores but the first orthonormal in (index, right)."""
    cores = list(cores)
    for place in range(len(cores) - 1, 0, -1):
        left, size, right = cores[place].shape
        carry, basis = us.linalg.lq(cores[place].reshape((left, size * right)), positive=True)
        cores[place] = basis.reshape((left, size, right))
        cores[place - 1] = us.einsum("lik,kr->lir", cores[place - 1], carry)
    return tuple(cores)


def _starting_point(data: us.Tensor, start: Any) -> TensorTrain:
    """Return the train to start from, checked."""
    if not isinstance(start, (TensorTrain, Sequence)):
        return tt_svd(data, _checks.count(start, "start, if it is a rank,"))
    given = start.cores if isinstance(start, TensorTrain) else start
    train = TensorTrain(
        tuple(_checks.finite_tensor(core, f"start[{place}]", ndim=3) for place, core in enumerate(given))
    )
    if train.shape != data.shape:
        raise ShapeError(f"the start stands for a tensor of shape {train.shape}, but the data have shape {data.shape}")
    for place, (left, size, right) in enumerate(core.shape for core in train.cores):
        if left > size * right or right > left * size or 0 in (left, right):
            raise ArgumentError(
                f"start[{place}] of shape {(left, size, right)} has a rank that the data cannot fill: "
                f"no rank may exceed the product of the other two sizes, and none may be 0"
            )
    same_kind(train.cores, data, "start")
    return train
