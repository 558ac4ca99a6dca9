"""The Tucker decomposition: a small core and one orthonormal basis per mode, by HOSVD and by HOOI.

The model is X̂ = G ×₁ U₁ ×₂ U₂ ⋯, with UₖᴴUₖ = 1. For given bases the best core is the projection of the data on them,
and the residual is ‖X‖² - ‖G‖². HOSVD takes each basis from the singular vectors of the data, unfolded along the mode;
its error is at most √N times the best one for N modes. HOOI (higher-order orthogonal iteration) starts there. It
projects the data on the bases of all other modes, takes the leading singular vectors of what is left, and goes on to
the next mode; the residual never grows.

As in `unspool.networks.als` the modes are halved again and again, so a sweep multiplies the data themselves only twice.

The fit depends on the spaces, not on the bases in them, so equal singular values inside a space do no harm to its
derivative. A rank that cuts through equal singular values leaves the space open, and a derivative that depends on it
raises `GaugeError`; so does one that depends on the part of a basis that the data do not fill.

References: L. De Lathauwer, B. De Moor and J. Vandewalle, SIAM J. Matrix Anal. Appl. 21, 1253 and 1324 (2000).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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

__all__ = ["Tucker", "TuckerResult", "hooi", "hosvd"]


@dataclass(frozen=True, eq=False)
class Tucker:
    """A core tensor and a matrix for each of its axes.

    Parameters
    ----------
    core : array_like
        One axis per mode.
    factors : sequence of array_like
        A matrix (size of the mode, size of the core's axis) for each mode.

    Examples
    --------
    >>> from unspool.networks.tucker import Tucker
    >>> tucker = Tucker([[2.0]], ([[1.0], [0.0]], [[0.0], [1.0]]))
    >>> tucker
    Tucker(shape=(2, 2), ranks=(1, 1))
    >>> tucker.full().eval()
    array([[0., 2.],
           [0., 0.]])
    """

    core: us.Tensor
    factors: tuple[us.Tensor, ...]

    def __post_init__(self) -> None:
        core, factors = us.asarray(self.core), tuple(us.asarray(factor) for factor in self.factors)
        shapes = [factor.shape for factor in factors]
        if any(len(shape) != 2 for shape in shapes) or tuple(shape[1] for shape in shapes) != core.shape:
            raise ShapeError(f"factors of shapes {shapes} do not fit a core of shape {core.shape}")
        object.__setattr__(self, "core", core)
        object.__setattr__(self, "factors", factors)

    def __repr__(self) -> str:
        return f"Tucker(shape={self.shape}, ranks={self.ranks})"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the tensor it stands for."""
        return tuple(int(factor.shape[0]) for factor in self.factors)

    @property
    def ranks(self) -> tuple[int, ...]:
        """The shape of the core."""
        return tuple(int(factor.shape[1]) for factor in self.factors)

    def full(self) -> us.Tensor:
        """The tensor it stands for."""
        whole = self.core
        for mode, factor in enumerate(self.factors):
            whole = _times(whole, factor.mT, mode)
        return whole


register_state(Tucker, "core", "factors")


class TuckerResult(FitResult[Tucker]):
    """The result of `hooi`."""

    __slots__ = ()


def hosvd(data: Any, rank: int | Sequence[int]) -> Tucker:
    """Return the Tucker decomposition whose bases are the leading singular vectors of the unfolded data.

    Parameters
    ----------
    data : array_like
        The tensor to decompose, with two axes or more, real or complex.
    rank : int or sequence of int
        The largest size of each basis, or one number for all. What the data do not fill is left out.

    Examples
    --------
    >>> import numpy as np
    >>> import unspool as us
    >>> from unspool.networks.tucker import hosvd
    >>> X = us.tensor(np.indices((4, 5, 6)).sum(axis=0) + 0.0)       # i + j + k
    >>> tucker = hosvd(X, rank=3)
    >>> tucker, bool(us.allclose(tucker.full(), X))
    (Tucker(shape=(4, 5, 6), ranks=(2, 2, 2)), True)
    """
    data = data_tensor(data)
    allowed = noise(data, data.ndim)
    factors = tuple(
        truncated_basis(_unfolded(data, mode), largest, allowed)
        for mode, largest in enumerate(_checked_ranks(data.shape, rank))
    )
    return Tucker(_project(data, factors, range(data.ndim)), factors)


@shows_progress("sweeps")
def hooi(
    data: Any,
    rank: int | Sequence[int],
    *,
    start: Tucker | Sequence[Any] | None = None,
    tol: float = 1e-8,
    max_steps: int = 100,
    on_step: OnStep | None = None,
    progress: bool = False,
    spool: Spool | None = None,
) -> TuckerResult:
    """Fit a Tucker decomposition by higher-order orthogonal iteration, one basis after the other.

    Parameters
    ----------
    data : array_like
        The tensor to decompose, with two axes or more, real or complex.
    rank : int or sequence of int
        The size of each basis, or one number for all. Without a start they are the largest ones, as in `hosvd`.
    start : Tucker or sequence of array_like, optional
        The bases to start from, by default those of `hosvd`. They need not be orthonormal; the first one is not read
        but for its shape.
    tol : float
        Stop when the fit changes by less than this in a sweep.
    max_steps : int
        The most sweeps to make.
    on_step : callable, optional
        ``on_step(step, state, values)`` is called after each sweep.
    progress : bool
        Whether to show how far it is while it runs; see `unspool.progress`.
    spool : path or us.SpooledRun, optional
        Write the loop as it runs, into a folder or as `unspool.spool` says. A run that is there is gone on with, and
        derivatives go through all its steps.

    Returns
    -------
    TuckerResult
        The named tuple (state, fit, residual, steps, converged, history). Not to have converged is no error.

    Examples
    --------
    >>> import numpy as np
    >>> import unspool as us
    >>> from unspool.networks.tucker import hooi
    >>> X = us.tensor(1.0 / (1.0 + np.indices((6, 6, 6)).sum(axis=0)))
    >>> found = hooi(X, rank=2)
    >>> found.converged, found.state
    (True, Tucker(shape=(6, 6, 6), ranks=(2, 2, 2)))
    >>> gradient = found.residual.grad(X)                            # through every sweep and the start
    >>> bool(us.allclose(gradient, 2 * (X - found.state.full()), atol=1e-4))   # what the envelope theorem says
    True
    """
    data = data_tensor(data)
    ranks, max_steps = _checked_ranks(data.shape, rank), _checks.count(max_steps, "max_steps")
    state = hosvd(data, ranks) if start is None else _starting_point(data, ranks, start)
    norm2 = square_norm(data)
    with run_of(spool, max_steps) as run:
        sweeps = Progress(norm2, tol, on_step, run)
        begin = (data, norm2, state.core, tuple(state.factors))
        data, norm2, core, factors = run.start(begin, inputs=(data, state.core, tuple(state.factors)))
        state = Tucker(core, factors)
        while sweeps.steps < max_steps and not sweeps.converged:
            state = _sweep(data, state)
            parts = (data, norm2, state.core, tuple(state.factors))
            sweeps.note(state, float(norm2 - square_norm(state.core)), parts)
    return sweeps.result(TuckerResult, data, state)


@us.fragment
def _sweep(data: us.Tensor, state: Tucker) -> Tucker:
    """Replace every basis once."""
    bases, ranks = list(state.factors), state.ranks

    def descend(block: us.Tensor, first: int, last: int) -> us.Tensor:
        """Replace the bases from first to last; the block is the data, projected on the others. Return the core."""
        if last - first == 1:
            bases[first] = us.linalg.leading_space(_unfolded(block, first), ranks[first]).isometry
            return _project(block, bases, [first])
        middle = (first + last + 1) // 2
        # From the ends inwards: the first product of each is with the data as they lie in memory.
        descend(_project(block, bases, range(last - 1, middle - 1, -1)), first, middle)
        return descend(_project(block, bases, range(first, middle)), middle, last)

    core = descend(data, 0, len(bases))
    return Tucker(core, tuple(bases))


def _unfolded(tensor: us.Tensor, mode: int) -> us.Tensor:
    """Return a tensor as a matrix whose rows are a mode."""
    size = tensor.shape[mode]
    return us.moveaxis(tensor, mode, 0).reshape((size, -1))


def _project(tensor: us.Tensor, bases: Sequence[us.Tensor], modes: Any) -> us.Tensor:
    """Replace the entries along modes by those in the bases."""
    for mode in modes:
        tensor = _times(tensor, us.conj(bases[mode]), mode)
    return tensor


def _times(tensor: us.Tensor, matrix: us.Tensor, mode: int) -> us.Tensor:
    """Contract a mode with the first axis of a matrix, whose second takes its place."""
    before, after = tensor.shape[:mode], tensor.shape[mode + 1 :]
    if mode == tensor.ndim - 1:
        return tensor @ matrix
    block = tensor.reshape((math.prod(before), tensor.shape[mode], math.prod(after)))
    return us.einsum("anb,nr->arb", block, matrix).reshape((*before, matrix.shape[1], *after))


# --- checks ----------------------------------------------------------------------------------------------------------


def _checked_ranks(shape: tuple[int, ...], ranks: Any) -> tuple[int, ...]:
    """Return a rank for each mode that a core can have."""
    given = ranks if isinstance(ranks, Sequence) else (ranks,) * len(shape)
    if len(given) != len(shape):
        raise ArgumentError(f"rank must have one entry for each of the {len(shape)} modes, but is {tuple(given)}")
    numbers = tuple(_checks.count(rank, f"rank[{mode}]") for mode, rank in enumerate(given))
    for mode, (rank, size) in enumerate(zip(numbers, shape, strict=True)):
        others = math.prod(numbers) // rank
        if rank > size:
            raise ArgumentError(f"rank[{mode}] is {rank}, but the mode has size {size}")
        if rank > others:
            raise ArgumentError(f"rank[{mode}] is {rank}, more than the product {others} of the others can fill")
    return numbers


def _starting_point(data: us.Tensor, ranks: tuple[int, ...], start: Any) -> Tucker:
    """Return bases to start from, made orthonormal."""
    given = start.factors if isinstance(start, Tucker) else start
    factors = [_checks.finite_tensor(factor, f"start[{mode}]", ndim=2) for mode, factor in enumerate(given)]
    shapes, wanted = [factor.shape for factor in factors], [*zip(data.shape, ranks, strict=True)]
    if shapes != wanted:
        raise ShapeError(f"the bases to start from must have shapes {wanted}, but have {shapes}")
    same_kind(factors, data, "start")
    bases = tuple(us.linalg.qr(factor, positive=True).Q for factor in factors)
    return Tucker(_project(data, bases, range(data.ndim)), bases)
