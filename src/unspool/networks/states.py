"""States of a chain as matrix product states.

A tensor of an `MPS` has the axes (left, physical, right), and the state is the sum over all bonds. A bond of size χ
carries entanglement of at most ln χ. The tensors of a state are determined up to X·X⁻¹ on each bond. `MPS.canonical`
uses this to make all tensors but one isometries; the remaining one, the centre, then holds the norm and the Schmidt
values.

Conventions: U. Schollwöck, The density-matrix renormalization group in the age of matrix product states, Ann. Phys.
326, 96 (2011).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike

import unspool as us
from unspool.errors import DTypeError, ShapeError
from unspool.networks import _checks
from unspool.networks._train import Train, check_dense, check_pair, position, register_train

__all__ = ["MPS", "left_factors", "overlap", "product_state", "random_mps"]

# A gauge tolerance that lets everything pass, for decompositions whose use here is independent of what they leave open,
# by construction. The check compares what arrives there with the whole cotangent. Where that is zero as well (a state
# that is compressed without loss does not depend on the left factors at all), it would compare rounding with rounding.
UNCHECKED = 1e300


@register_train
@dataclass(frozen=True, eq=False, repr=False, init=False)
class MPS(Train):
    """A matrix product state.

    Parameters
    ----------
    tensors : sequence of array_like
        One tensor per site with the axes (left, physical, right); the bonds at both ends have size 1.

    Attributes
    ----------
    tensors : tuple of Tensor
    sites : int
        The number of sites.
    physical : tuple of int
        The size of each site's space.
    ranks : tuple of int
        The sizes of the bonds between neighbouring sites.

    Notes
    -----
    States can be added, subtracted, and multiplied by a scalar; bonds of a sum are as large as those of both together.
    They are pytrees: `us.grad`, `us.eval` and the others look into them.

    Examples
    --------
    >>> import unspool as us
    >>> from unspool.networks.chain import product_state
    >>> up, down = product_state([[1.0, 0.0]] * 3), product_state([[0.0, 1.0]] * 3)
    >>> ghz = (up + down) / 2**0.5
    >>> ghz
    MPS(sites=3, physical=(2, 2, 2), ranks=(2, 2))
    >>> ghz.entropies().eval().round(12)            # ln 2 on every bond
    array([0.69314718, 0.69314718])
    >>> us.grad(lambda state: state.norm())(ghz)
    MPS(sites=3, physical=(2, 2, 2), ranks=(2, 2))
    """

    axes: ClassVar[tuple[str, ...]] = ("left", "physical", "right")

    def canonical(self, center: int) -> MPS:
        """Return the same state with isometries on both sides of a site.

        Parameters
        ----------
        center : int
            The site that holds the norm: 0 makes the state right-canonical, -1 left-canonical. Tensors to the left obey
            Σ Aᴴ·A = 1, those to the right Σ A·Aᴴ = 1.

        Notes
        -----
        Derivatives exist for losses that depend on the state. Where tensors have linearly dependent columns and the
        site has room for more, the isometry is not determined, and a derivative raises `RankError`; `compress` first.

        Examples
        --------
        >>> import unspool as us
        >>> from unspool.networks.chain import product_state
        >>> state = product_state([[3.0, 4.0], [0.0, 2.0]]).canonical(0)
        >>> [us.linalg.norm(tensor).item() for tensor in state.tensors]
        [10.0, 1.0]
        """
        center = position(center, self.sites, "center")
        tensors = list(self.tensors)
        for site in range(center):
            tensors[site], carry = _split_right(tensors[site])
            tensors[site + 1] = us.tensordot(carry, tensors[site + 1], 1)
        for site in range(self.sites - 1, center, -1):
            carry, tensors[site] = _split_left(tensors[site])
            tensors[site - 1] = us.tensordot(tensors[site - 1], carry, 1)
        return MPS(tensors)

    def norm(self) -> us.Tensor:
        """Return the norm of the state.

        Examples
        --------
        >>> from unspool.networks.chain import product_state
        >>> float(product_state([[3.0, 4.0], [0.0, 2.0]]).norm())
        10.0
        """
        return us.sqrt(us.real(overlap(self, self)))

    def normalised(self) -> MPS:
        """Return the state divided by its norm.

        Examples
        --------
        >>> from unspool.networks.chain import product_state
        >>> product_state([[3.0, 4.0], [0.0, 2.0]]).normalised().dense().eval()
        array([0. , 0.6, 0. , 0.8])
        """
        return self / self.norm()

    def schmidt_values(self) -> tuple[us.Tensor, ...]:
        """Return the Schmidt values of each bond, largest first; their squares sum to 1.

        Examples
        --------
        >>> from unspool.networks.chain import product_state
        >>> up, down = product_state([[1.0, 0.0]] * 2), product_state([[0.0, 1.0]] * 2)
        >>> (values,) = (up * 0.8 - down * 0.6).schmidt_values()
        >>> values.eval().round(12)
        array([0.8, 0.6])
        """
        lefts, rights = left_factors(self), _right_factors(self)
        values = []
        for bond in range(1, self.sites):
            s = us.linalg.svdvals(lefts[bond] @ rights[bond])
            values.append(s / us.linalg.norm(s))
        return tuple(values)

    def entropies(self) -> us.Tensor:
        """Return the entanglement entropy -Σ p·ln p of each bond, p being the squares of the Schmidt values.

        Differentiable everywhere, at product states too: the slope of -p·ln p in the Schmidt value itself vanishes
        where that does.

        Examples
        --------
        >>> import unspool as us
        >>> from unspool.networks.chain import product_state
        >>> state = product_state([[1.0, 0.0], [0.6, 0.8]])
        >>> state.entropies().eval()
        array([0.])
        >>> us.grad(lambda s: us.sum(s.entropies()))(state).tensors[0].tolist()
        [[[0.0], [0.0]]]
        """
        if self.sites == 1:
            return us.zeros(0)
        with us.linalg.tolerances(gauge=UNCHECKED):
            weights = [s * s for s in self.schmidt_values()]
        # 0 minus, not the negative: the entropy of a product state is 0.0, and prints as such.
        return 0.0 - us.stack([us.sum(us.xlogy(p, p)) for p in weights])

    def dense(self) -> us.Tensor:
        """Return the state as a vector; the first site is the slowest index. For small chains only.

        Examples
        --------
        >>> from unspool.networks.chain import product_state
        >>> product_state([[1.0, 2.0], [0.0, 1.0]]).dense().eval()
        array([0., 1., 0., 2.])
        """
        check_dense(math.prod(self.physical), "MPS")
        whole = self.tensors[0][0]
        for tensor in self.tensors[1:]:
            whole = us.tensordot(whole, tensor, 1).reshape(whole.shape[0] * tensor.shape[1], tensor.shape[2])
        return whole.reshape(-1)


def product_state(vectors: Any) -> MPS:
    """Return the product of states of the single sites, as they are.

    Parameters
    ----------
    vectors : sequence of array_like
        One vector per site; a tensor of shape (sites, physical) will do.

    Examples
    --------
    >>> from unspool.networks.chain import product_state
    >>> product_state([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    MPS(sites=3, physical=(2, 2, 2), ranks=(1, 1))
    """
    if isinstance(vectors, us.Tensor | np.ndarray) and vectors.ndim != 2:
        raise ShapeError(f"vectors must have the axes (sites, physical), got shape {vectors.shape}")
    tensors = [_checks.finite_tensor(vector, f"vector {site}") for site, vector in enumerate(vectors)]
    for site, tensor in enumerate(tensors):
        if tensor.ndim != 1 or tensor.shape[0] == 0:
            raise ShapeError(f"vector {site} must have one axis and entries on it, got shape {tensor.shape}")
    return MPS([tensor.reshape(1, tensor.shape[0], 1) for tensor in tensors])


def random_mps(
    sites: int, physical: int | Sequence[int], rank: int, *, seed: int = 0, dtype: DTypeLike = np.float64
) -> MPS:
    """Return a random state, right-canonical and normalised; its tensors are leaves.

    Parameters
    ----------
    sites : int
        The number of sites.
    physical : int or sequence of int
        The size of each site's space.
    rank : int
        The largest bond. No bond is larger than what is on either side of it can fill.
    seed : int
        The same seed gives the same state.
    dtype : dtype_like
        float64, complex128, float32 or complex64.

    Examples
    --------
    >>> from unspool.networks.chain import random_mps
    >>> state = random_mps(6, 2, 5, seed=1)
    >>> state.ranks
    (2, 4, 5, 4, 2)
    >>> round(float(state.norm()), 12)
    1.0
    """
    sites, rank = _checks.count(sites, "sites"), _checks.count(rank, "rank")
    sizes = [physical] * sites if hasattr(physical, "__index__") else list(physical)
    sizes = [_checks.count(size, "physical") for size in sizes]
    if len(sizes) != sites:
        raise ShapeError(f"physical must have a size for each of {sites} sites, got {len(sizes)}")
    kind = np.dtype(dtype)
    if kind.kind not in "fc":
        raise DTypeError(f"the dtype of a state must be real or complex floating point, but is {kind}")
    rng = np.random.default_rng(seed)
    bonds = [min(rank, math.prod(sizes[:bond]), math.prod(sizes[bond:])) for bond in range(sites + 1)]
    tensors = []
    for size, left, right in zip(sizes, bonds, bonds[1:], strict=False):
        matrix = rng.normal(size=(size * right, left))
        if kind.kind == "c":
            matrix = matrix + 1j * rng.normal(size=matrix.shape)
        isometry = np.linalg.qr(matrix)[0].T
        tensors.append(us.tensor(isometry.reshape(left, size, right).astype(kind)))
    return MPS(tensors)


def overlap(bra: MPS, ket: MPS) -> us.Tensor:
    """Return the inner product of two states; the first one is conjugated.

    Examples
    --------
    >>> from unspool.networks.chain import overlap, product_state
    >>> overlap(product_state([[1.0, 2.0], [3.0, 0.0]]), product_state([[1.0, 1.0], [1.0, 5.0]])).item()
    9.0
    """
    check_pair(bra, ket, "overlap")
    left = us.conj(bra.tensors[0][0]).mT @ ket.tensors[0][0]
    for lower, upper in zip(bra.tensors[1:], ket.tensors[1:], strict=True):
        left = us.einsum("ab,apc,bpd->cd", left, us.conj(lower), upper)
    return left[0, 0]


def left_factors(state: MPS) -> list[us.Tensor]:
    """Return for each bond, the left end included, a triangle R with RᴴR = ⟨left part|left part⟩.

    These are the R of a sweep of QR decompositions that makes nothing of the Q: a derivative is then right also where
    columns are linearly dependent and no Q is determined.
    """
    factors = [us.ones((1, 1), dtype=state.tensors[0].dtype)]
    for tensor in state.tensors:
        whole = us.tensordot(factors[-1], tensor, 1)
        with us.linalg.tolerances(gauge=UNCHECKED):
            factors.append(us.linalg.qr(whole.reshape(whole.shape[0] * whole.shape[1], whole.shape[2]), mode="r"))
    return factors


def _right_factors(state: MPS) -> list[us.Tensor]:
    """Return for each bond, the right end included, a triangle L with L·Lᴴ = ⟨right part|right part⟩."""
    factors = [us.ones((1, 1), dtype=state.tensors[-1].dtype)]
    for tensor in reversed(state.tensors):
        whole = us.tensordot(tensor, factors[-1], 1)
        with us.linalg.tolerances(gauge=UNCHECKED):
            factors.append(us.linalg.lq(whole.reshape(whole.shape[0], whole.shape[1] * whole.shape[2]), mode="l"))
    return factors[::-1]


def _split_right(tensor: us.Tensor) -> tuple[us.Tensor, us.Tensor]:
    """Write a tensor as an isometry from the left and what is passed on to the right."""
    left, physical, right = tensor.shape
    matrix = tensor.reshape(left * physical, right)
    if left * physical <= right:
        # The whole space fits through the bond. The identity is an isometry, and leaves nothing open.
        return us.eye(left * physical, dtype=tensor.dtype).reshape(left, physical, left * physical), matrix
    q, r = us.linalg.qr(matrix)
    return q.reshape(left, physical, right), r


def _split_left(tensor: us.Tensor) -> tuple[us.Tensor, us.Tensor]:
    """Write a tensor as what is passed on to the left and an isometry from the right."""
    left, physical, right = tensor.shape
    matrix = tensor.reshape(left, physical * right)
    if left >= physical * right:
        return matrix, us.eye(physical * right, dtype=tensor.dtype).reshape(physical * right, physical, right)
    lower, q = us.linalg.lq(matrix)
    return lower, q.reshape(left, physical, right)
