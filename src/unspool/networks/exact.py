"""Exact answers for chains, computed by other means than tensor networks: what the loops are measured against.

- The open Heisenberg chain of spins ½ by its Bethe ansatz (F. C. Alcaraz, M. N. Barber, M. T. Batchelor, R. J. Baxter
  and G. R. W. Quispel, J. Phys. A 20, 6397 (1987)): one equation for each rapidity, solved by Newton's method.
- The Ising chain in a transverse field as free fermions (P. Pfeuty, Ann. Phys. 57, 79 (1970)): the energies of the
  modes are the singular values of a bidiagonal matrix, for any couplings and fields.
- The ground states of the spin-1 chain of I. Affleck, T. Kennedy, E. H. Lieb and H. Tasaki (Phys. Rev. Lett. 59, 799,
  1987).

The energies are plain NumPy and floats: nothing of the library is in them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import unspool as us
from unspool.errors import ArgumentError, ConvergenceError, ShapeError
from unspool.networks import _checks
from unspool.networks.states import MPS

__all__ = ["IsingGradient", "aklt_state", "bethe_energy", "ising_chain_energy", "ising_chain_gradient"]

Array = np.ndarray[Any, Any]

_NEWTON_STEPS = 100


def bethe_energy(sites: int) -> float:
    """Return the ground energy of the open Heisenberg chain H = Σ S·S of spins ½.

    Parameters
    ----------
    sites : int
        The length of the chain, at least 2.

    Notes
    -----
    With M = ⌊sites / 2⌋ the rapidities λ₁ < … < λ_M obey, for j = 1 … M,

        4·sites·arctan 2λⱼ = 2πj + Σ_{k≠j} 2·[arctan(λⱼ - λₖ) + arctan(λⱼ + λₖ)],

    and the energy is (sites - 1)/4 - ½·Σⱼ 1/(λⱼ² + ¼).

    Examples
    --------
    >>> from unspool.networks.exact import bethe_energy
    >>> round(bethe_energy(2), 12)        # the singlet
    -0.75
    >>> round(bethe_energy(10), 12)
    -4.258035207283
    """
    sites = _checks.count(sites, "sites", least=2)
    rapidities = _rapidities(sites)
    return float((sites - 1) / 4 - 0.5 * np.sum(1 / (rapidities**2 + 0.25)))


def _rapidities(sites: int) -> Array:
    """Solve the Bethe equations by Newton's method, from where they would be if the sum were not there."""
    numbers = np.arange(1, sites // 2 + 1)
    x = np.tan(np.pi * numbers / (2 * sites)) / 2
    others = ~np.eye(len(x), dtype=bool)
    for _ in range(_NEWTON_STEPS):
        difference, total = x[:, None] - x, x[:, None] + x
        phases = np.where(others, np.arctan(difference) + np.arctan(total), 0.0)
        residual = 4 * sites * np.arctan(2 * x) - 2 * np.pi * numbers - 2 * phases.sum(axis=1)
        near, far = np.where(others, 2 / (1 + difference**2), 0.0), np.where(others, 2 / (1 + total**2), 0.0)
        slope = near - far + np.diag(8 * sites / (1 + 4 * x**2) - (near + far).sum(axis=1))
        step = np.linalg.solve(slope, residual)
        x = x - step
        if np.max(np.abs(step) / (1 + np.abs(x))) < 1e-14:
            return x
    error = ConvergenceError(f"the Bethe equations of {sites} sites were not solved in {_NEWTON_STEPS} Newton steps")
    error.residual, error.iterations, error.tolerance = float(np.max(np.abs(residual))), _NEWTON_STEPS, 1e-14
    raise error


def ising_chain_energy(couplings: Any, fields: Any) -> float:
    """Return the ground energy of the open Ising chain H = -Σ Jᵢ ZᵢZᵢ₊₁ - Σ hᵢ Xᵢ in a transverse field.

    Parameters
    ----------
    couplings : array_like
        The L - 1 couplings J.
    fields : array_like
        The L fields h, or one for all sites.

    Notes
    -----
    The energy is minus the nuclear norm (the sum of the singular values) of the matrix with h on its diagonal and J
    above it.

    Examples
    --------
    >>> import numpy as np
    >>> from unspool.networks.exact import ising_chain_energy
    >>> round(ising_chain_energy(np.ones(9), 1.0), 10)     # 1 - 1 / sin(π / 42) at the critical point
    -12.3814899997
    """
    return -float(np.sum(np.linalg.svd(_modes(couplings, fields), compute_uv=False)))


class IsingGradient(NamedTuple):
    """Derivatives of the ground energy of an Ising chain; see `ising_chain_gradient`."""

    couplings: Array
    fields: Array


def ising_chain_gradient(couplings: Any, fields: Any) -> IsingGradient:
    """Return the derivatives of `ising_chain_energy` in each coupling and in the field at each site.

    The gradient of minus the nuclear norm is minus the orthogonal polar factor; its diagonal belongs to the fields, the
    line above to the couplings. By Hellmann and Feynman these are -⟨Xᵢ⟩ and -⟨ZᵢZᵢ₊₁⟩.

    Parameters
    ----------
    couplings, fields
        As in `ising_chain_energy`.

    Examples
    --------
    >>> import numpy as np
    >>> from unspool.networks.exact import ising_chain_gradient
    >>> slopes = ising_chain_gradient(np.ones(9), 1.0)
    >>> round(float(slopes.fields.sum()), 10)
    -7.3225505473
    """
    u, _, vh = np.linalg.svd(_modes(couplings, fields))
    factor = u @ vh
    return IsingGradient(-np.diag(factor, 1), -np.diag(factor))


def _modes(couplings: Any, fields: Any) -> Array:
    above = np.asarray(_checks.finite_tensor(couplings, "couplings", ndim=1).eval(), dtype=np.float64)
    diagonal = np.asarray(_checks.finite_tensor(fields, "fields").eval(), dtype=np.float64)
    sites = len(above) + 1
    if diagonal.shape not in ((), (sites,)):
        raise ShapeError(f"fields must be a scalar or have shape ({sites},), got {diagonal.shape}")
    return np.diag(np.broadcast_to(diagonal, (sites,))) + np.diag(above, 1)


def aklt_state(sites: int, left: int = 0, right: int = 0) -> MPS:
    """Return one of the four ground states of the open chain of Affleck, Kennedy, Lieb and Tasaki.

    Each spin 1 is the symmetric part of two spins ½, and neighbours share a singlet. One spin ½ stays free at each end.

    Parameters
    ----------
    sites : int
        The length of the chain.
    left, right : {0, 1}
        The free spins at the ends: up or down.

    Returns
    -------
    MPS
        With bonds of size 2; not normalised.

    Examples
    --------
    >>> import numpy as np
    >>> from unspool.networks.chain import expectation
    >>> from unspool.networks.exact import aklt_state
    >>> from unspool.networks.models import aklt
    >>> round(float(expectation(aklt_state(6), aklt(np.ones(5)))), 12)            # -(2/3)·5
    -3.333333333333
    """
    sites = _checks.count(sites, "sites")
    for name, end in (("left", left), ("right", right)):
        if end not in (0, 1):
            raise ArgumentError(f"{name} must be 0 (up) or 1 (down), but is {end!r}")
    tensor = np.zeros((2, 3, 2))
    tensor[0, 0, 1] = np.sqrt(2 / 3)
    tensor[0, 1, 0], tensor[1, 1, 1] = -np.sqrt(1 / 3), np.sqrt(1 / 3)
    tensor[1, 2, 0] = -np.sqrt(2 / 3)
    tensors = [tensor] * sites
    tensors[0] = tensors[0][left : left + 1]
    tensors[-1] = tensors[-1][:, :, right : right + 1]
    return MPS([us.tensor(each) for each in tensors])
