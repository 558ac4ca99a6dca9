"""Hamiltonians of the usual chains, from coupling *tensors*: every energy can be differentiated in every coupling.

Each model has two forms: the matrix product operator, and, under the name with ``_bonds``, the list of operators of
neighbouring pairs with the axes (out, out, in, in) that sum to the same Hamiltonian, for splitting it into gates. A
field is shared between the two bonds of its site. Matrices are real, also for S·S = SᶻSᶻ + (S⁺S⁻ + S⁻S⁺)/2.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

import numpy as np

import unspool as us
from unspool.errors import ArgumentError, ShapeError
from unspool.networks import _checks
from unspool.networks.operators import MPO
from unspool.networks.terms import mpo_from_terms

__all__ = [
    "SpinOperators",
    "aklt",
    "aklt_bonds",
    "heisenberg",
    "heisenberg_bonds",
    "ising",
    "ising_bonds",
    "spin_operators",
    "xxz",
    "xxz_bonds",
]

Array = np.ndarray[Any, Any]
# Operators of two neighbours, as products whose sum is meant.
Products = list[tuple[Array, Array]]


class SpinOperators(NamedTuple):
    """The matrices of a spin, in the basis of Sᶻ with the largest value first; see `spin_operators`."""

    identity: Array
    x: Array
    y: Array
    z: Array
    up: Array
    down: Array


def spin_operators(spin: float = 0.5) -> SpinOperators:
    """Return the matrices Sˣ, Sʸ, Sᶻ and S⁺, S⁻ of a spin, as NumPy arrays.

    Parameters
    ----------
    spin : float
        ½, 1, 3/2, …

    Examples
    --------
    >>> from unspool.networks.models import spin_operators
    >>> spin_operators(1).z.diagonal()
    array([ 1.,  0., -1.])
    """
    twice = 2 * float(spin)
    if not math.isfinite(twice) or twice < 1 or twice != round(twice):
        raise ArgumentError(f"spin must be a positive multiple of 1/2, but is {spin!r}")
    m = twice / 2 - np.arange(round(twice) + 1)
    up = np.diag(np.sqrt(twice / 2 * (twice / 2 + 1) - m[1:] * (m[1:] + 1)), 1)
    down = np.ascontiguousarray(up.T)
    return SpinOperators(np.eye(len(m)), (up + down) / 2, (up - down) / 2j, np.diag(m), up, down)


# --- the models ------------------------------------------------------------------------------------------------------


def heisenberg(couplings: Any, spin: float = 0.5, fields: Any = None) -> MPO:
    """Return the Heisenberg Hamiltonian Σ Jᵢ Sᵢ·Sᵢ₊₁ - Σ hᵢ Sᵢᶻ.

    Parameters
    ----------
    couplings : array_like
        The couplings J of the L - 1 bonds; antiferromagnetic where positive.
    spin : float
        ½, 1, 3/2, …
    fields : array_like, optional
        The fields h of the L sites, or one for all.

    Examples
    --------
    >>> import numpy as np
    >>> import unspool as us
    >>> from unspool.networks.models import heisenberg
    >>> J = us.tensor([1.0, 1.0, 1.0])
    >>> H = heisenberg(J)
    >>> H.ranks
    (4, 5, 4)
    >>> energies, vectors = us.linalg.eigh(H.dense())
    >>> round(float(energies[0]), 10)                 # -(3 + 2√3) / 4
    -1.6160254038
    >>> energies[0].grad(J).eval().round(6)           # ⟨S·S⟩ on each bond
    array([-0.683013, -0.25    , -0.683013])
    """
    return _heisenberg(couplings, spin, fields).mpo()


def heisenberg_bonds(couplings: Any, spin: float = 0.5, fields: Any = None) -> list[us.Tensor]:
    """Return the Hamiltonian of `heisenberg` as a list of operators of neighbouring pairs.

    Examples
    --------
    >>> import numpy as np
    >>> from unspool.networks.models import heisenberg_bonds
    >>> (pair,) = heisenberg_bonds([1.0])
    >>> np.linalg.eigvalsh(pair.eval().reshape(4, 4)).round(12)        # a singlet and a triplet
    array([-0.75,  0.25,  0.25,  0.25])
    """
    return _heisenberg(couplings, spin, fields).bonds()


def xxz(couplings: Any, anisotropy: Any, spin: float = 0.5) -> MPO:
    """Return the XXZ Hamiltonian Σ Jᵢ (SˣSˣ + SʸSʸ + Δᵢ SᶻSᶻ).

    Parameters
    ----------
    couplings : array_like
        The couplings J of the L - 1 bonds.
    anisotropy : array_like
        Δ for each bond, or one for all; with 1 this is the Heisenberg model.
    spin : float
        ½, 1, 3/2, …

    Examples
    --------
    >>> import numpy as np
    >>> import unspool as us
    >>> from unspool.networks.models import xxz
    >>> energies = us.linalg.eigvalsh(xxz(np.ones(3), 0.0).dense())      # free fermions: -cos(π/5) - cos(2π/5)
    >>> round(float(energies[0]), 10)
    -1.1180339887
    """
    return _xxz(couplings, anisotropy, spin).mpo()


def xxz_bonds(couplings: Any, anisotropy: Any, spin: float = 0.5) -> list[us.Tensor]:
    """Return the Hamiltonian of `xxz` as a list of operators of neighbouring pairs.

    Examples
    --------
    >>> from unspool.networks.models import xxz_bonds
    >>> (pair,) = xxz_bonds([1.0], 2.0)
    >>> pair[0, 0, 0, 0].item(), pair[0, 1, 1, 0].item()
    (0.5, 0.5)
    """
    return _xxz(couplings, anisotropy, spin).bonds()


def ising(couplings: Any, fields: Any) -> MPO:
    """Return the Hamiltonian -Σ Jᵢ ZᵢZᵢ₊₁ - Σ hᵢ Xᵢ of the Ising chain in a transverse field, with Pauli matrices.

    Parameters
    ----------
    couplings : array_like
        The couplings J of the L - 1 bonds.
    fields : array_like
        The fields h of the L sites, or one for all.

    Examples
    --------
    >>> import numpy as np
    >>> import unspool as us
    >>> from unspool.networks.models import ising
    >>> h = us.tensor(1.0)
    >>> energies = us.linalg.eigvalsh(ising(np.ones(3), h).dense())
    >>> round(float(energies[0]), 10)                 # 1 - 1 / sin(π/18)
    -4.7587704831
    """
    return _ising(couplings, fields).mpo()


def ising_bonds(couplings: Any, fields: Any) -> list[us.Tensor]:
    """Return the Hamiltonian of `ising` as a list of operators of neighbouring pairs.

    Examples
    --------
    >>> from unspool.networks.models import ising_bonds
    >>> first, second = ising_bonds([1.0, 1.0], 3.0)
    >>> first[0, 0, 1, 0].item(), first[0, 0, 0, 1].item()      # the site in the middle belongs to both bonds
    (-3.0, -1.5)
    """
    return _ising(couplings, fields).bonds()


def aklt(couplings: Any) -> MPO:
    """Return the spin-1 Hamiltonian Σ Jᵢ [Sᵢ·Sᵢ₊₁ + (Sᵢ·Sᵢ₊₁)²/3] of Affleck, Kennedy, Lieb and Tasaki.

    A term is -2/3 for neighbours of total spin 0 or 1, and 4/3 for total spin 2. With positive couplings, four states
    have no neighbours of total spin 2 at all, and the energy -(2/3)·Σ J.

    Parameters
    ----------
    couplings : array_like
        The couplings J of the L - 1 bonds.

    Examples
    --------
    >>> import numpy as np
    >>> from unspool.networks.models import aklt
    >>> np.linalg.eigvalsh(aklt(np.ones(2)).dense().eval())[:4].round(6)
    array([-1.333333, -1.333333, -1.333333, -1.333333])
    """
    return _aklt(couplings).mpo()


def aklt_bonds(couplings: Any) -> list[us.Tensor]:
    """Return the Hamiltonian of `aklt` as a list of operators of neighbouring pairs.

    Examples
    --------
    >>> import numpy as np
    >>> from unspool.networks.models import aklt_bonds
    >>> (pair,) = aklt_bonds([1.0])
    >>> np.unique(np.linalg.eigvalsh(pair.eval().reshape(9, 9)).round(6))
    array([-0.666667,  1.333333])
    """
    return _aklt(couplings).bonds()


# --- how they are made -----------------------------------------------------------------------------------------------


class _Model(NamedTuple):
    """A chain: products on neighbouring sites, times couplings, and operators of single sites, times fields."""

    pairs: list[tuple[us.Tensor, Products]]
    fields: list[tuple[us.Tensor, Array]]

    @property
    def sites(self) -> int:
        return cast(int, self.pairs[0][0].shape[0]) + 1

    @property
    def physical(self) -> int:
        return len(self.pairs[0][1][0][0])

    def mpo(self) -> MPO:
        terms: list[tuple[us.Tensor, dict[int, Any]]] = []
        for couplings, products in self.pairs:
            for bond in range(self.sites - 1):
                terms += [(couplings[bond], {bond: left, bond + 1: right}) for left, right in products]
        for strengths, operator in self.fields:
            terms += [(strengths[site], {site: operator}) for site in range(self.sites)]
        return mpo_from_terms(terms, [self.physical] * self.sites)

    def bonds(self) -> list[us.Tensor]:
        return [self._bond(bond) for bond in range(self.sites - 1)]

    def _bond(self, bond: int) -> us.Tensor:
        identity = np.eye(self.physical)
        # Inner sites have two bonds, and give half of their field to each.
        left, right = (1.0 if bond == 0 else 0.5), (1.0 if bond == self.sites - 2 else 0.5)
        parts = [couplings[bond] * _both(products) for couplings, products in self.pairs]
        for strengths, operator in self.fields:
            parts.append(strengths[bond] * _both([(left * operator, identity)]))
            parts.append(strengths[bond + 1] * _both([(identity, right * operator)]))
        return sum(parts[1:], parts[0])


def _both(products: Products) -> us.Tensor:
    """Return a sum of products as one tensor with the axes (out, out, in, in)."""
    lefts, rights = np.stack([left for left, _ in products]), np.stack([right for _, right in products])
    return us.constant(np.einsum("nac,nbd->abcd", lefts, rights))


def _flips(s: SpinOperators) -> Products:
    """Return SˣSˣ + SʸSʸ."""
    return [(s.up, s.down / 2), (s.down, s.up / 2)]


def _heisenberg(couplings: Any, spin: float, fields: Any) -> _Model:
    s, strengths = spin_operators(spin), _couplings(couplings)
    zeeman = [] if fields is None else [(-_along(fields, "fields", strengths.shape[0] + 1), s.z)]
    return _Model([(strengths, [*_flips(s), (s.z, s.z)])], zeeman)


def _xxz(couplings: Any, anisotropy: Any, spin: float) -> _Model:
    s, strengths = spin_operators(spin), _couplings(couplings)
    ratio = _along(anisotropy, "anisotropy", strengths.shape[0])
    return _Model([(strengths, _flips(s)), (strengths * ratio, [(s.z, s.z)])], [])


def _ising(couplings: Any, fields: Any) -> _Model:
    s, strengths = spin_operators(0.5), _couplings(couplings)
    transverse = _along(fields, "fields", strengths.shape[0] + 1)
    return _Model([(-strengths, [(2 * s.z, 2 * s.z)])], [(-transverse, 2 * s.x)])


def _aklt(couplings: Any) -> _Model:
    """Write S·S + (S·S)²/3 as (5/6) S·S + (1/3) Q:Q + 4/9 with the quadrupoles Q: eight products and a number."""
    s = spin_operators(1)
    dipoles = [(5 / 6 * left, right) for left, right in [*_flips(s), (s.z, s.z)]]
    up, down, along = s.up @ s.z + s.z @ s.up, s.down @ s.z + s.z @ s.down, 3 * s.z @ s.z - 2 * s.identity
    quadrupoles = [
        (s.up @ s.up / 12, s.down @ s.down),
        (s.down @ s.down / 12, s.up @ s.up),
        (up / 12, down),
        (down / 12, up),
        (along / 18, along),
    ]
    number = (4 / 9 * s.identity, s.identity)
    return _Model([(_couplings(couplings), [*dipoles, *quadrupoles, number])], [])


def _couplings(value: Any) -> us.Tensor:
    couplings = _checks.finite_tensor(value, "couplings", ndim=1)
    if couplings.shape[0] == 0:
        raise ArgumentError("couplings must have an entry for each bond, and a chain has at least one, but it is empty")
    return couplings


def _along(value: Any, name: str, count: Any) -> us.Tensor:
    """Return one number for each site or bond, from so many numbers or from one for all."""
    tensor = _checks.finite_tensor(value, name)
    if tensor.ndim == 0:
        return us.broadcast_to(tensor, (count,))
    if tensor.shape != (count,):
        raise ShapeError(f"{name} must be a scalar or have shape ({count},), got shape {tensor.shape}")
    return tensor
