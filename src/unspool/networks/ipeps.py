"""Infinite projected entangled-pair states: one tensor, repeated on the square lattice, as a quantum state.

A site tensor A has axes (physical, up, left, down, right). The norm of the state is a sum over a square lattice of the
tensors A·A, with one bond for A and one for its mirror image, so `ctmrg` surrounds a site, or two, and gives density
matrices. The energy is a differentiable function of A: minimise it.

One tensor on every site is no antiferromagnet. Turn every other spin by π about the y axis: the ferromagnetic-looking
state of the turned spins is the antiferromagnet of the spins. Only the bond term sees it: `heisenberg_bond` is turned.

References: F. Verstraete and J. I. Cirac, arXiv:cond-mat/0407066 (the state); H.-J. Liao, J.-G. Liu, L. Wang and T.
Xiang, Phys. Rev. X 9, 031041 (2019) (its energy by automatic differentiation).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import unspool as us
from unspool.errors import ArgumentError, ShapeError
from unspool.networks import _checks
from unspool.networks._progress import shows_progress
from unspool.networks._results import printed_as_table
from unspool.networks.ctmrg import OnStep, ctmrg
from unspool.networks.lattice import Environment, fitting_ring, product_environment, symmetric_site

__all__ = ["IPEPSResult", "bond_density", "double_layer", "heisenberg_bond", "ipeps_energy"]

BONDS_PER_SITE = 2


@printed_as_table
class IPEPSResult(NamedTuple):
    """The result of `ipeps_energy`: the energy per site, and the rest as in `CTMRGResult`."""

    state: Environment
    energy: us.Tensor
    spectrum: us.Tensor
    steps: int
    converged: bool
    history: tuple[dict[str, float], ...]


@shows_progress("steps")
def ipeps_energy(
    tensor: Any,
    bond: Any,
    *,
    rank: int,
    tol: float = 1e-10,
    max_steps: int = 500,
    cutoff: float = 1e-8,
    start: Environment | tuple[Any, Any] | None = None,
    adjoint: us.Unrolled | us.Implicit | None = None,
    on_step: OnStep | None = None,
    progress: bool = False,
) -> IPEPSResult:
    """Return the energy per site of an infinite state on the square lattice, differentiable in its tensor.

    Parameters
    ----------
    tensor : array_like
        Real, with axes (physical, up, left, down, right), the same from all sides and in a mirror: see `symmetrise`.
        Its scale does not matter.
    bond : array_like
        The energy of a bond, with axes (out, out, in, in) for the two sites; symmetric as a matrix.
    rank, tol, max_steps, cutoff, start, adjoint, on_step, progress
        As for `ctmrg`. By default the ring begins with the states of a bond traced out.

    Returns
    -------
    IPEPSResult
        The energy, the environment and how it was reached.

    Examples
    --------
    The Néel state, a product, has one quarter of -1 on each of two bonds for each site.

    >>> import numpy as np
    >>> import unspool as us
    >>> from unspool.networks.ipeps import heisenberg_bond, ipeps_energy
    >>> up = us.tensor(np.array([1.0, 0.0]).reshape(2, 1, 1, 1, 1))
    >>> found = ipeps_energy(up, heisenberg_bond(), rank=1)
    >>> float(found.energy)
    -0.5
    """
    tensor = symmetric_site(tensor, "tensor", ndim=5)
    bond = _bond_term(bond, tensor.shape[0])
    scaled = tensor / us.linalg.norm(tensor)
    if start is None:
        start = product_environment(np.eye(tensor.shape[1], dtype=tensor.dtype).ravel())
    found = ctmrg(
        double_layer(scaled),
        rank=rank,
        tol=tol,
        max_steps=max_steps,
        cutoff=cutoff,
        start=start,
        adjoint=adjoint,
        on_step=on_step,
    )
    energy = BONDS_PER_SITE * us.sum(bond_density(scaled, found.state) * bond)
    return IPEPSResult(found.state, energy, found.spectrum, found.steps, found.converged, found.history)


def double_layer(tensor: Any) -> us.Tensor:
    """Return the tensor of the norm: two site tensors with their spins joined and their bonds taken in pairs.

    Parameters
    ----------
    tensor : array_like
        With axes (physical, up, left, down, right).

    Examples
    --------
    >>> import numpy as np
    >>> from unspool.networks.ipeps import double_layer
    >>> double_layer(np.ones((2, 3, 3, 3, 3))).shape
    (9, 9, 9, 9)
    """
    layer = us.asarray(tensor)
    if layer.ndim != 5:
        raise ShapeError(f"a site tensor has axes (physical, up, left, down, right), but the shape is {layer.shape}")
    pairs: us.Tensor = us.einsum("puldr,pefgh->uelfdgrh", layer, layer)
    return us.reshape(pairs, tuple(size * size for size in layer.shape[1:]))


def bond_density(tensor: Any, state: Environment | tuple[Any, Any]) -> us.Tensor:
    """Return the density matrix of two neighbours, with axes (out, out, in, in) and trace 1.

    Parameters
    ----------
    tensor : array_like
        With axes (physical, up, left, down, right), the same from all sides and in a mirror.
    state : Environment
        From `ctmrg` of its `double_layer`.

    Examples
    --------
    >>> import numpy as np
    >>> import unspool as us
    >>> from unspool.networks.ipeps import bond_density, heisenberg_bond, ipeps_energy
    >>> tilted = us.tensor(np.array([0.6, 0.8]).reshape(2, 1, 1, 1, 1))
    >>> state = ipeps_energy(tilted, heisenberg_bond(), rank=1).state
    >>> bond_density(tilted, state).eval()[0, 0, 0, 0].round(12)  # 0.6⁴
    np.float64(0.1296)
    """
    tensor = symmetric_site(tensor, "tensor", ndim=5)
    spin, bond = tensor.shape[:2]
    pairs = us.einsum("puldr,qefgh->uelfdgrhpq", tensor, tensor)
    site = us.reshape(pairs, (*(bond * bond,) * 4, spin, spin))
    corner, edge = fitting_ring(state, site)
    side = us.einsum("ac,cld,db->alb", corner, edge, corner)
    # The other half of the ring is the mirror image of this one, with the second site in it.
    half = us.einsum("alb,aux,uldrpq,bdy->xrypq", side, edge, site, edge)
    density: us.Tensor = us.einsum("xrypq,xryst->psqt", half, half)
    return density / us.einsum("psps->", density)


def heisenberg_bond() -> us.Tensor:
    """Return S·S of two spins ½ of which the second is turned by π about the y axis, with axes (out, out, in, in).

    Turning maps (Sx, Sy, Sz) to (-Sx, Sy, -Sz), so this is SʸSʸ - SˣSˣ - SᶻSᶻ. Its eigenvalues are those of S·S.

    Examples
    --------
    >>> import numpy as np
    >>> from unspool.networks.ipeps import heisenberg_bond
    >>> np.linalg.eigvalsh(heisenberg_bond().eval().reshape(4, 4)).round(12)
    array([-0.75,  0.25,  0.25,  0.25])
    """
    raising = np.array([[0.0, 1.0], [0.0, 0.0]])
    s_x, i_s_y, s_z = (raising + raising.T) / 2, (raising - raising.T) / 2, np.diag([0.5, -0.5])
    # i·Sʸ is real, and SʸSʸ is minus its square.
    turned = -sum((np.multiply.outer(a, a) for a in (i_s_y, s_x, s_z)), np.zeros((2,) * 4))
    return us.constant(turned.transpose(0, 2, 1, 3))  # (out, in, out, in) to (out, out, in, in)


def _bond_term(bond: Any, spin: Any) -> us.Tensor:
    term = _checks.finite_tensor(bond, "bond", ndim=4)
    if term.shape != (spin,) * 4:
        raise ShapeError(f"bond must have four axes of the size {spin} of a spin, but has shape {term.shape}")
    matrix = term.eval().reshape(spin * spin, spin * spin)
    difference = np.abs(matrix - matrix.conj().T).max()
    if difference > 1e-10 * np.abs(matrix).max():
        raise ArgumentError(f"bond must be Hermitian, but differs from its adjoint by {difference:.1e}")
    return term
