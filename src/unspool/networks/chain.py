"""What one does with the states and operators of a chain: apply, compress, and ask for expectation values.

States and operators themselves are in `states.py` and `operators.py`; their names are here too. All of it is
differentiable in every tensor of the state and of the operator. Expectation values are those of the normalised state,
whatever the norm of the one that is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import unspool as us
from unspool.errors import ArgumentError, ShapeError
from unspool.networks import _checks
from unspool.networks._train import check_pair, position
from unspool.networks.operators import MPO
from unspool.networks.states import MPS, left_factors, overlap, product_state, random_mps

__all__ = [
    "MPO",
    "MPS",
    "Compressed",
    "apply",
    "bond_expectation",
    "compress",
    "correlations",
    "expectation",
    "local_expectation",
    "overlap",
    "product_state",
    "random_mps",
]


def apply(mpo: MPO, mps: MPS) -> MPS:
    """Apply an operator to a state, exactly: bonds of the result are products of the bonds of both. `compress` it then.

    Examples
    --------
    >>> import numpy as np
    >>> from unspool.networks.chain import apply, product_state
    >>> from unspool.networks.models import ising
    >>> state = apply(ising(np.ones(2), 0.5), product_state([[1.0, 0.0]] * 3))
    >>> state.ranks
    (3, 3)
    >>> state.dense().eval()                # -2 for the two bonds, -h for each flipped spin
    array([-2. , -0.5, -0.5,  0. , -0.5,  0. ,  0. ,  0. ])
    """
    check_pair(mpo, mps, "apply")
    tensors = []
    for operator, tensor in zip(mpo.tensors, mps.tensors, strict=True):
        both = us.einsum("woix,lir->wloxr", operator, tensor)
        w, left, out, x, right = both.shape
        tensors.append(both.reshape(w * left, out, x * right))
    return MPS(tensors)


class Compressed(NamedTuple):
    """A state with smaller bonds, and what that cost.

    Attributes
    ----------
    state : MPS
        Right-canonical: its norm is that of the tensor at site 0.
    truncation : Tensor
        ‖ψ - φ‖² / ‖ψ‖² for the states ψ before and φ after. The parts that the single cuts drop are orthogonal to each
        other and to what is left, so this is the sum of the dropped weights, and it is exact.
    """

    state: MPS
    truncation: us.Tensor


def compress(mps: MPS, rank: int | None = None, cutoff: float = 1e-13, *, keep_multiplets: bool = True) -> Compressed:
    """Cut the bonds of a state down to the largest Schmidt values.

    Parameters
    ----------
    mps : MPS
        The state; its norm is kept but for what is dropped.
    rank : int, optional
        The largest bond. Without it, bonds become as small as the cutoff allows.
    cutoff : float
        Drop Schmidt values up to this much of the largest one of their bond. The default drops what is zero but for
        rounding.
    keep_multiplets : bool
        Lower the rank of a bond as far as it takes not to cut through equal Schmidt values; if all of them are equal,
        keep them all. A cut through equal values is an arbitrary choice, whose derivative is refused with `GaugeError`.

    Returns
    -------
    Compressed
        The named tuple ``(state, truncation)``.

    Notes
    -----
    One sweep from left to right for the norms of the left parts, one back with a truncated singular value decomposition
    on each bond. The derivative is exact, also where bonds are larger than they need to be. The chosen ranks are
    constants for it.

    Examples
    --------
    >>> import unspool as us
    >>> from unspool.networks.chain import compress, product_state
    >>> up, down = product_state([[1.0, 0.0]] * 4), product_state([[0.0, 1.0]] * 4)
    >>> cat = up * 0.8 + down * 0.6
    >>> state, truncation = compress(cat, rank=1)
    >>> state.ranks, round(float(truncation), 12)
    ((1, 1, 1), 0.36)
    >>> compress(cat + cat).state.ranks
    (2, 2, 2)
    """
    rank = None if rank is None else _checks.count(rank, "rank")
    cutoff = _checks.fraction(cutoff, "cutoff")
    lefts = left_factors(mps)
    weight = us.sum(us.square(us.abs(lefts[-1])))
    if not 0.0 < float(weight) < float("inf"):
        raise ArgumentError(f"the norm of the state must be positive and finite, but its square is {float(weight)}")
    tensors = list(mps.tensors)
    dropped = []
    for site in range(mps.sites - 1, 0, -1):
        left, physical, right = tensors[site].shape
        center = tensors[site].reshape(left, physical * right)
        # With the isometry that belongs to the left factor, this is the whole state; its singular values are Schmidt
        # values.
        whole = lefts[site] @ center
        basis, rest, _ = us.linalg.leading_space(whole, rank, cutoff, side="right", keep_multiplets=keep_multiplets)
        dropped.append(us.sum(us.square(us.abs(whole - rest @ basis))))
        tensors[site] = basis.reshape(-1, physical, right)
        tensors[site - 1] = us.tensordot(tensors[site - 1], center @ us.conj(basis).mT, 1)
    return Compressed(MPS(tensors), sum(dropped, us.zeros((), dtype=weight.dtype)) / weight)


def expectation(mps: MPS, mpo: MPO) -> us.Tensor:
    """Return ⟨ψ|H|ψ⟩ / ⟨ψ|ψ⟩; complex if a tensor is, so take `us.real` of it for a loss.

    Examples
    --------
    >>> import numpy as np
    >>> import unspool as us
    >>> from unspool.networks.chain import expectation, product_state
    >>> from unspool.networks.models import heisenberg
    >>> J = us.tensor(np.ones(3))
    >>> energy = expectation(product_state([[1.0, 0.0], [0.0, 1.0]] * 2), heisenberg(J))    # the Néel state
    >>> energy.item(), energy.grad(J).tolist()
    (-0.75, [-0.25, -0.25, -0.25])
    """
    check_pair(mps, mpo, "expectation")
    left = us.ones((1, 1, 1), dtype=mps.tensors[0].dtype)
    for tensor, operator in zip(mps.tensors, mpo.tensors, strict=True):
        left = us.einsum("awb,apc,wpqx,bqd->cxd", left, us.conj(tensor), operator, tensor)
    return left[0, 0, 0] / us.real(overlap(mps, mps))


def local_expectation(mps: MPS, operator: Any, site: int | None = None) -> us.Tensor:
    """Return expectation values of an operator of one site: at that site, or at every site.

    Parameters
    ----------
    mps : MPS
        The state; it need not be normalised.
    operator : array_like
        A matrix; without ``site`` a list of matrices, one per site, will do too.
    site : int, optional
        Where to look. Without it the result is a vector over all sites.

    Examples
    --------
    >>> import numpy as np
    >>> from unspool.networks.chain import local_expectation, product_state
    >>> local_expectation(product_state([[1.0, 0.0], [1.0, 1.0], [0.0, 2.0]]), np.diag([1.0, -1.0])).eval()
    array([ 1.,  0., -1.])
    """
    lefts, rights = _left_environments(mps), _right_environments(mps)

    def at(place: int, matrix: us.Tensor) -> us.Tensor:
        size = mps.physical[place]
        if matrix.shape != (size, size):
            raise ShapeError(f"the operator at site {place} must have shape {(size, size)}, got {matrix.shape}")
        tensor = mps.tensors[place]
        return us.einsum("ab,apc,pq,bqd,cd", lefts[place], us.conj(tensor), matrix, tensor, rights[place + 1])

    return _at_places(at, operator, site, mps.sites, "site") / us.real(lefts[-1][0, 0])


def bond_expectation(mps: MPS, operator: Any, bond: int | None = None) -> us.Tensor:
    """Return expectation values of an operator of two neighbours: at one bond, or at every bond.

    Parameters
    ----------
    mps : MPS
        The state; it need not be normalised.
    operator : array_like
        A tensor with the axes (out, out, in, in), as the `heisenberg_bonds` and others are; without ``bond`` a list of
        them, one per bond, will do too.
    bond : int, optional
        The left one of the two sites. Without it the result is a vector over all bonds.

    Examples
    --------
    >>> import numpy as np
    >>> from unspool.networks.chain import bond_expectation, product_state
    >>> from unspool.networks.models import heisenberg_bonds
    >>> bond_expectation(product_state([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]), heisenberg_bonds(np.ones(2))).eval()
    array([-0.25,  0.25])
    """
    lefts, rights = _left_environments(mps), _right_environments(mps)

    def at(place: int, gate: us.Tensor) -> us.Tensor:
        sizes = mps.physical[place : place + 2]
        if gate.shape != sizes * 2:
            raise ShapeError(f"the operator at bond {place} must have shape {sizes * 2}, got {gate.shape}")
        pair = us.tensordot(mps.tensors[place], mps.tensors[place + 1], 1)
        return us.einsum("ab,apqc,pqrs,brsd,cd", lefts[place], us.conj(pair), gate, pair, rights[place + 2])

    return _at_places(at, operator, bond, mps.sites - 1, "bond") / us.real(lefts[-1][0, 0])


def correlations(mps: MPS, first: Any, second: Any) -> us.Tensor:
    """Return the matrix ⟨AᵢBⱼ⟩ of two operators over all pairs of sites, and ⟨(AB)ᵢ⟩ on its diagonal.

    Parameters
    ----------
    mps : MPS
        The state, with spaces of the same size on all sites; it need not be normalised.
    first, second : array_like
        The matrices A and B.

    Examples
    --------
    >>> import numpy as np
    >>> from unspool.networks.chain import correlations, product_state
    >>> Z = np.diag([1.0, -1.0])
    >>> correlations(product_state([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]), Z, Z).eval()
    array([[ 1.,  0., -1.],
           [ 0.,  1.,  0.],
           [-1.,  0.,  1.]])
    """
    a, b = us.asarray(first), us.asarray(second)
    for name, matrix in (("first", a), ("second", b)):
        if any(matrix.shape != (size, size) for size in mps.physical):
            raise ShapeError(f"{name} has shape {matrix.shape}, which does not fit spaces of sizes {mps.physical}")
    diagonal = us.diag(local_expectation(mps, a @ b))
    if mps.sites == 1:
        return diagonal
    return diagonal + _ordered_pairs(mps, a, b) + _ordered_pairs(mps, b, a).mT


# --- environments ----------------------------------------------------------------------------------------------------


def _left_environments(mps: MPS) -> list[us.Tensor]:
    """Return for each bond, both ends included, the norm matrix of what is to its left, with the axes (bra, ket)."""
    found = [us.ones((1, 1), dtype=mps.tensors[0].dtype)]
    for tensor in mps.tensors:
        found.append(us.einsum("ab,apc,bpd->cd", found[-1], us.conj(tensor), tensor))
    return found


def _right_environments(mps: MPS) -> list[us.Tensor]:
    """Return for each bond, both ends included, the norm matrix of what is to its right, with the axes (bra, ket)."""
    found = [us.ones((1, 1), dtype=mps.tensors[-1].dtype)]
    for tensor in reversed(mps.tensors):
        found.append(us.einsum("apc,bpd,cd->ab", us.conj(tensor), tensor, found[-1]))
    return found[::-1]


def _at_places(at: Any, operator: Any, place: int | None, count: int, name: str) -> us.Tensor:
    """Return the value at a place, or a vector of the values at all places, for one operator or for one per place."""
    if place is not None:
        place = position(place, count, name)
        value: us.Tensor = at(place, us.asarray(operator))
        return value
    each = isinstance(operator, Sequence) and us.asarray(operator[0]).ndim > 1
    operators = [us.asarray(one) for one in operator] if each else [us.asarray(operator)] * count
    if len(operators) != count:
        raise ShapeError(f"there are {count} {name}s, got {len(operators)} operators")
    return us.stack([at(number, matrix) for number, matrix in enumerate(operators)]) if count else us.zeros(0)


def _ordered_pairs(mps: MPS, first: us.Tensor, second: us.Tensor) -> us.Tensor:
    """Return ⟨first at i, second at j⟩ for i < j, zero elsewhere.

    One sweep carries all environments that have the first operator somewhere on the left, stacked along an axis.
    """
    lefts, rights = _left_environments(mps), _right_environments(mps)
    columns = [us.zeros((mps.sites,))]
    started = None
    for site, tensor in enumerate(mps.tensors):
        bra = us.conj(tensor)
        if started is not None:
            ending = us.einsum("apc,pq,bqd,cd->ab", bra, second, tensor, rights[site + 1])
            values = us.einsum("nab,ab->n", started, ending)
            columns.append(us.pad(values, ((0, mps.sites - site),)))
            started = us.einsum("nab,apc,bpd->ncd", started, bra, tensor)
        fresh = us.einsum("ab,apc,pq,bqd->cd", lefts[site], bra, first, tensor)[None]
        started = fresh if started is None else us.concat([started, fresh], axis=0)
    return us.stack(columns, axis=1) / us.real(lefts[-1][0, 0])
