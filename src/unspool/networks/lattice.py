"""Sites of an infinite square lattice, and the rings of tensors that stand for all the others.

A site is a tensor with axes (up, left, down, right). Where all sites are equal and look the same from four sides and in
a mirror (C4v), everything around one of them is made of one corner C and one edge E:

    C - E - C
    |   |   |
    E - a - E
    |   |   |
    C - E - C

`unspool.networks.ctmrg.ctmrg` finds them. Here is what one puts in, and what one reads off: means of local quantities,
and the factor by which a site multiplies the sum over the lattice.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import unspool as us
from unspool.errors import ArgumentError, DTypeError, ShapeError
from unspool.networks import _checks

__all__ = [
    "Environment",
    "IsingSite",
    "ising_site",
    "partition_per_site",
    "product_environment",
    "site_expectation",
    "symmetrise",
]

# Mirrors of (up, left, down, right) from which all eight mirrors and rotations are made.
MIRRORS = ((0, 3, 2, 1), (2, 1, 0, 3), (1, 0, 3, 2))

# How much a site may change in a mirror: this power of the rounding error, 1e-11 in double precision.
SYMMETRY = 0.7


class Environment(NamedTuple):
    """What surrounds a site: a corner (rank, rank) and an edge (rank, bond, rank), symmetric in the axes of rank."""

    corner: us.Tensor
    edge: us.Tensor


# --- rings and sites -------------------------------------------------------------------------------------------------


def product_environment(vector: Any) -> Environment:
    """Return a ring of rank 1, with the same vector at the end of every bond of a site.

    Parameters
    ----------
    vector : array_like
        One entry for each value of a bond.

    Examples
    --------
    >>> import unspool as us
    >>> from unspool.networks.lattice import product_environment
    >>> product_environment([1.0, 0.0]).edge.shape
    (1, 2, 1)
    """
    ends = _checks.finite_tensor(vector, "vector", ndim=1)
    return Environment(us.ones((1, 1), dtype=ends.dtype), us.reshape(ends, (1, ends.shape[0], 1)))


def symmetrise(tensor: Any) -> us.Tensor:
    """Return the mean over the eight rotations and mirror images of the last four axes (up, left, down, right).

    Parameters
    ----------
    tensor : array_like
        Any number of axes before the last four, which have one size.

    Examples
    --------
    >>> import numpy as np
    >>> import unspool as us
    >>> from unspool.networks.lattice import symmetrise
    >>> corner = np.zeros((2, 2, 2, 2))
    >>> corner[0, 0, 1, 1] = 1.0
    >>> mean = symmetrise(corner).eval()
    >>> float(mean[0, 1, 1, 0]), float(mean[0, 1, 0, 1])
    (0.25, 0.0)
    """
    mean: us.Tensor = us.asarray(tensor)
    if mean.ndim < 4 or len(set(mean.shape[-4:])) != 1:
        raise ShapeError(f"a site has four axes of one size at the end, but the tensor has shape {mean.shape}")
    for mirror in MIRRORS:
        mean = (mean + us.transpose(mean, _mirrored(mean.ndim, mirror))) / 2
    return mean


class IsingSite(NamedTuple):
    """The tensors of the Ising model: the weight of a site, that with its spin, and a bond to a spin that points up."""

    bulk: us.Tensor
    spin: us.Tensor
    up: us.Tensor


def ising_site(beta: Any) -> IsingSite:
    """Return the tensors of the square-lattice Ising model, with the Boltzmann weight of a bond split between its ends.

    Parameters
    ----------
    beta : array_like
        The coupling over the temperature, positive; a scalar.

    Examples
    --------
    >>> from unspool.networks.lattice import ising_site
    >>> ising_site(0.5).bulk.shape
    (2, 2, 2, 2)
    """
    beta = _checks.finite_tensor(beta, "beta", ndim=0)
    if float(beta) <= 0.0:
        raise ArgumentError(
            f"beta must be positive, but is {float(beta)}; turn every other spin for an antiferromagnet"
        )
    even, odd = us.sqrt(us.cosh(beta) / 2), us.sqrt(us.sinh(beta) / 2)
    half = us.stack([us.stack([even + odd, even - odd]), us.stack([even - odd, even + odd])])
    bulk = us.einsum("su,sl,sd,sr->uldr", half, half, half, half)
    spin = us.einsum("s,su,sl,sd,sr->uldr", np.array([1.0, -1.0]), half, half, half, half)
    return IsingSite(bulk, spin, half[0])


# --- what one reads off a ring ---------------------------------------------------------------------------------------


def site_expectation(bulk: Any, impurity: Any, state: Environment | tuple[Any, Any]) -> us.Tensor:
    """Return the ring around an impurity divided by the ring around a site: the mean of what the impurity stands for.

    Parameters
    ----------
    bulk, impurity : array_like
        Tensors with axes (up, left, down, right).
    state : Environment
        From `ctmrg` of the bulk.

    Examples
    --------
    >>> from unspool.networks.ctmrg import ctmrg
    >>> from unspool.networks.lattice import ising_site, site_expectation, product_environment
    >>> site = ising_site(1.0)
    >>> state = ctmrg(site.bulk, rank=2, start=product_environment(site.up)).state
    >>> round(float(site_expectation(site.bulk, site.spin, state)), 9)
    0.999275752
    """
    bulk = symmetric_site(bulk, "bulk")
    impurity = _checks.finite_tensor(impurity, "impurity", ndim=4)
    if impurity.shape != bulk.shape:
        raise ShapeError(f"bulk and impurity must have one shape, but have {bulk.shape} and {impurity.shape}")
    around = _around(fitting_ring(state, bulk))
    return us.sum(around * impurity) / us.sum(around * bulk)


def partition_per_site(bulk: Any, state: Environment | tuple[Any, Any]) -> us.Tensor:
    """Return by which factor one more site multiplies the sum over the lattice; its logarithm is ln Z per site.

    Let Z₁ be the ring around a site, Zₑ one of four corners and two edges, and Z₀ one of four corners only. A site more
    is a row and a column more, so the factor is Z₁ Z₀ / Zₑ².

    Parameters
    ----------
    bulk : array_like
        The tensor on every site.
    state : Environment
        From `ctmrg` of the bulk.

    Examples
    --------
    >>> import numpy as np
    >>> from unspool.networks.ctmrg import ctmrg
    >>> from unspool.networks.lattice import ising_site, partition_per_site
    >>> bulk = ising_site(0.3).bulk
    >>> factor = partition_per_site(bulk, ctmrg(bulk, rank=8).state)
    >>> round(float(np.log(factor)), 9)  # Onsager: 0.790559071
    0.790559071
    """
    bulk = symmetric_site(bulk, "bulk")
    corner, edge = ring = fitting_ring(state, bulk)
    half = corner @ corner
    nothing = us.sum(half * half)
    pair = us.einsum("ac,aib,cid,bd->", half, edge, edge, half)
    return us.sum(_around(ring) * bulk) * nothing / pair**2


def _around(state: Environment) -> us.Tensor:
    """Return the ring as a tensor (up, left, down, right) in which a site is missing."""
    corner, edge = state
    side = us.einsum("ac,cld,db->alb", corner, edge, corner)
    left = us.einsum("alb,aux->lbux", side, edge)
    right = us.einsum("xry,bdy->xrbd", side, edge)
    return us.einsum("lbux,xrbd->uldr", left, right)


# --- checks ----------------------------------------------------------------------------------------------------------


def symmetric_site(tensor: Any, name: str, *, ndim: int = 4) -> us.Tensor:
    """Return the tensor of a site after a look at it: real, finite, not zero, the same from all sides."""
    site = _checks.finite_tensor(tensor, name, ndim=ndim)
    if site.dtype.kind != "f":
        raise DTypeError(f"{name} must be real and of floating point, but has dtype {site.dtype}")
    if len(set(site.shape[-4:])) != 1 or site.size == 0:
        raise ShapeError(f"the last four axes of {name} must have one size, but its shape is {site.shape}")
    value = site.eval()
    largest = np.abs(value).max()
    if largest == 0.0:
        raise ArgumentError(f"{name} must not be zero")
    asymmetry = max(np.abs(value - value.transpose(_mirrored(ndim, mirror))).max() for mirror in MIRRORS)
    if asymmetry > np.finfo(value.dtype).eps ** SYMMETRY * largest:
        raise ArgumentError(
            f"{name} must be the same from all sides and in a mirror, but entries differ by {asymmetry:.1e}, and the "
            f"largest is {largest:.1e}; symmetrise(...) makes a tensor that is"
        )
    return site


def fitting_ring(state: Any, bulk: us.Tensor) -> Environment:
    """Return a corner and an edge after a look at them: finite, and of shapes that fit each other and a site."""
    try:
        corner, edge = state
    except (TypeError, ValueError):
        raise ArgumentError(f"an environment is a pair (corner, edge), but got {type(state).__name__}") from None
    corner, edge = _checks.finite_tensor(corner, "corner", ndim=2), _checks.finite_tensor(edge, "edge", ndim=3)
    rank, bond = corner.shape[0], bulk.shape[0]
    if corner.shape != (rank, rank) or edge.shape != (rank, bond, rank):
        raise ShapeError(
            f"around a site with bonds of size {bond} a corner (n, n) goes with an edge (n, {bond}, n), but the shapes "
            f"are {corner.shape} and {edge.shape}"
        )
    return Environment(corner, edge)


def _mirrored(ndim: int, mirror: tuple[int, ...]) -> tuple[int, ...]:
    """Return the order of axes that mirrors the last four."""
    return (*range(ndim - 4), *(ndim - 4 + axis for axis in mirror))
