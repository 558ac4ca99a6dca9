"""Quantum chemistry from scratch: Hartree–Fock and full CI over s-Gaussians, differentiated through the loop.

A molecule of hydrogen, the STO-3G basis, integrals in closed form, the self-consistent field with DIIS, and full
configuration interaction on the orbitals that it found. Nothing here was written with derivatives in mind: the energy
is what a loop of unknown length came to, and forces, force constants and beyond are its gradients.

Run it with ``python examples/hartree_fock.py``; ``--small`` takes fewer distances.
"""

# %%
from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

import unspool as us

SMALL = "--small" in sys.argv
BOHR = 0.52917721092  # in Å: CODATA 2010, with which the published digits were made

# %% [markdown]
# ## Integrals
#
# A basis function is a sum of three Gaussians around a nucleus. Integrals over Gaussians of s type have closed forms
# (S. F. Boys, 1950), in which only F₀(t) = ∫₀¹ exp(−t u²) du is not elementary. It is √(π/4t) erf √t, and 1 at t = 0,
# where that formula has 0/0: so a series stands there, and `us.where` keeps each formula to the numbers it is for.

# %%
EXPONENTS = np.array([3.42525091, 0.62391373, 0.16885540])  # STO-3G of hydrogen, as basis-set files have it
WEIGHTS = np.array([0.15432897, 0.53532814, 0.44463454])


def boys(t):
    """Return F₀(t) for t ≥ 0, smooth to any order."""
    near = t < 0.2
    series = 0.0
    for n in range(11, -1, -1):
        series = 1 / (math.factorial(n) * (2 * n + 1)) - t * series
    far = us.where(near, 1.0, t)
    return us.where(near, series, 0.5 * us.sqrt(np.pi / far) * us.erf(us.sqrt(far)))


def squared(v):
    """Return |v|² over the last axis."""
    return us.sum(v * v, axis=-1)


def integrals(places, charges):
    """Return overlap, core Hamiltonian and repulsion (ij|kl) for nuclei at places, in bohr, with an orbital each."""
    atoms = len(charges)
    norms = WEIGHTS * (2 * EXPONENTS / np.pi) ** 0.75
    contract = np.kron(np.eye(atoms), norms)  # (orbital, Gaussian)
    a = np.tile(EXPONENTS, atoms)
    A = us.repeat(places, 3, axis=0)
    p = a[:, None] + a  # the product of two Gaussians is a Gaussian,
    mu = a[:, None] * a / p
    P = (a[:, None, None] * A[:, None] + a[:, None] * A) / p[..., None]  # around P,
    apart = squared(A[:, None] - A)
    K = us.exp(-mu * apart)  # times K
    S = K * (np.pi / p) ** 1.5
    core = mu * (3 - 2 * mu * apart) * S  # kinetic energy
    for charge, place in zip(charges, us.unstack(places), strict=True):
        core = core - charge * 2 * np.pi / p * K * boys(p * squared(P - place))
    q = p[:, :, None, None] + p
    t = p[:, :, None, None] * p / q * squared(P[:, :, None, None] - P)
    repulsion = 2 * np.pi**2.5 / (p[:, :, None, None] * p * np.sqrt(q)) * K[:, :, None, None] * K * boys(t)
    for _ in range(4):  # each turn does one axis and moves it to the end
        repulsion = us.tensordot(repulsion, contract.T, axes=([0], [0]))
    return contract @ S @ contract.T, contract @ core @ contract.T, repulsion


# %% [markdown]
# ## The self-consistent field
#
# Two electrons share an orbital. The orbitals are those of the Fock matrix, and that is made of the orbitals. DIIS (P.
# Pulay, 1980) extrapolates from the Fock matrices so far: it takes the combination whose error F·D·S − S·D·F, which is
# zero at the end, is least. The loop reads that error, and stops on it.


# %%
def self_consistent(places, charges, electrons, tol=1e-9, history=6, show=None):
    """Return the energy of closed-shell Hartree–Fock, its orbitals, and the integrals."""
    S, core, repulsion = integrals(places, charges)
    levels, vectors = us.linalg.eigh(S)
    X = (vectors / us.sqrt(levels)) @ vectors.T  # S^(-1/2)
    fock, focks, errors = core, [], []
    while True:
        _, rotated = us.linalg.eigh(X @ fock @ X)
        orbitals = X @ rotated
        occupied = orbitals[:, : electrons // 2]
        D = occupied @ occupied.T
        fock = core + 2 * us.einsum("ijkl,kl->ij", repulsion, D) - us.einsum("ikjl,kl->ij", repulsion, D)
        energy = us.sum(D * (core + fock))
        error = X @ (fock @ D @ S - S @ D @ fock) @ X
        size = float(us.max(abs(error)))
        if show:
            show(float(energy), size)
        if size < tol:
            return energy + nuclear(places, charges), orbitals, core, repulsion
        focks, errors = [*focks, fock][-history:], [*errors, error][-history:]
        fock = extrapolate(focks, errors)


def extrapolate(focks, errors):
    """Return the combination of Fock matrices whose error is least, with weights that sum to 1."""
    count = len(focks)
    if count == 1:
        return focks[0]
    e = us.stack(errors).reshape(count, -1)
    overlaps = e @ e.T / squared(e[-1])  # in units of the last error: never all tiny
    bordered = us.block([[overlaps, us.ones((count, 1))], [us.ones((1, count)), us.zeros((1, 1))]])
    weights = us.linalg.solve(bordered, us.tensor([0.0] * count + [1.0]))[:count]
    return us.einsum("n,nij->ij", weights, us.stack(focks))


def nuclear(places, charges):
    """Return the repulsion of the nuclei."""
    pairs = [(i, j) for i in range(len(charges)) for j in range(i)]
    return sum((charges[i] * charges[j] / us.sqrt(squared(places[i] - places[j])) for i, j in pairs), 0.0)


# %% [markdown]
# ## Full CI
#
# For two electrons the whole problem is a matrix: each electron in any orbital. Its lowest eigenvalue is the exact
# answer in this basis. It is symmetric in the two electrons in space, so their spins make a singlet.


# %%
def full_ci(places, charges):
    """Return the exact energy of two electrons in the basis, from the orbitals of the self-consistent field."""
    _, C, core, repulsion = self_consistent(places, charges, electrons=2)
    h = C.T @ core @ C
    between = us.einsum("ijkl,ip,jq,kr,ls->prqs", repulsion, C, C, C, C)  # (pq|rs) of electrons 1 and 2
    one, n = us.eye(len(charges)), len(charges)
    matrix = us.einsum("pq,rs->prqs", h, one) + us.einsum("pq,rs->prqs", one, h) + between
    return us.linalg.eigvalsh(matrix.reshape(n * n, n * n))[0] + nuclear(places, charges)


# %% [markdown]
# ## H₂
#
# At 0.74 Å the energies are published to many digits. The force is minus the slope. Beside it stand differences of the
# energy, each the end of two more loops. The second derivative gives the frequency of the vibration, the third its
# anharmonicity.


# %%
def hydrogen(distance):
    """Return the places of two nuclei that far apart along z, in bohr."""
    return us.stack([us.zeros(3), distance * us.tensor([0.0, 0.0, 1.0])])


def derivatives(energy, distance, order=3):
    """Return the energy and its derivatives in the distance."""
    R = us.tensor(distance)
    found = [energy(hydrogen(R), [1, 1])]
    for _ in range(order):
        found.append(found[-1].grad(R))
    return [float(value) for value in found]


def hartree_fock(places: us.Tensor, charges: list[int]) -> us.Tensor:
    """Return the energy of Hartree–Fock for two electrons."""
    return self_consistent(places, charges, electrons=2)[0]


PUBLISHED = {"Hartree–Fock": -1.1167593073964, "full CI": -1.1372838344885}
METHODS: dict[str, Any] = {"Hartree–Fock": hartree_fock, "full CI": full_ci}

if __name__ == "__main__":
    R = 0.74 / BOHR
    print("H₂ in STO-3G at 0.74 Å, in hartree and bohr\n")
    print(f"{'':<14}{'energy':>18}{'published':>18}{'difference':>12}")
    for name, method in METHODS.items():
        value = derivatives(method, R, order=0)[0]
        print(f"{name:<14}{value:>18.13f}{PUBLISHED[name]:>18.13f}{abs(value - PUBLISHED[name]):>12.0e}")

    print("\nDerivatives in the distance, through the loop and by differences of one order less\n")
    print(f"{'':<14}{'order':>6}{'through the loop':>20}{'differences':>18}{'apart':>10}")
    for name, method in METHODS.items():
        above, here, below = (derivatives(method, R + h) for h in (1e-4, 0.0, -1e-4))
        for order in (1, 2, 3):
            slope = (above[order - 1] - below[order - 1]) / 2e-4
            print(f"{name:<14}{order:>6}{here[order]:>20.12f}{slope:>18.12f}{abs(here[order] - slope):>10.0e}")

    # %% [markdown]
    # ## The bond
    #
    # Newton's method on the force finds the distance of least energy, and the second derivative there the frequency.

    # %%
    reduced = 1.00782503207 * 1822.888486 / 2  # the mass of a proton and its electron, halved, in electron masses
    for name, method in METHODS.items():
        R = 1.4
        for _ in range(6):
            _, slope, curvature = derivatives(method, R, order=2)
            R -= slope / curvature
        frequency = np.sqrt(curvature / reduced) * 219474.6313
        print(f"\n{name}: bond of {R * BOHR:.6f} Å, vibration at {frequency:.1f} cm⁻¹", end="")
    print()

    # %% [markdown]
    # ## Where orbitals are degenerate
    #
    # In H₃⁺, an equilateral triangle, the two empty orbitals have the same energy. Their eigenvectors are a choice, and
    # the derivative of a choice is 0/0. Energies do not depend on it, and neither do the forces: they are there.

    # %%
    corners = us.tensor(1.65 / np.sqrt(3) * np.array([[0.0, 1, 0], [-(0.75**0.5), -0.5, 0], [0.75**0.5, -0.5, 0]]))
    print("\nH₃⁺, equilateral: largest difference of the forces from differences of the energy\n")
    for name, method in METHODS.items():
        forces = -method(corners, [1, 1, 1]).grad(corners).eval()
        apart = []
        for place in np.ndindex(2, 2) if SMALL else np.ndindex(3, 3):
            shift = np.zeros((3, 3))
            shift[place] = 1e-5
            above, below = (float(method(corners + sign * shift, [1, 1, 1])) for sign in (1, -1))
            apart.append(abs((below - above) / 2e-5 - forces[place]))
        print(f"{name:<14}{max(apart):>10.0e}   force outwards {forces[0, 1]:.8f} hartree/bohr")

    # %% [markdown]
    # ## A loop that takes some steps
    #
    # Four atoms in a row, not evenly spaced: here the field has to become consistent, and DIIS shows what it is for.

    # %%
    row = us.tensor([[0.0, 0.0, z] for z in (0.0, 1.4, 3.6, 4.9)])
    for history in (1, 6):
        sizes: list[float] = []
        energy = self_consistent(row, [1] * 4, 4, history=history, show=lambda _, size, to=sizes: to.append(size))[0]
        slope = float(energy.grad(row)[1, 2])
        name = "DIIS" if history > 1 else "plain steps"
        print(f"\nH₄, {name}: {len(sizes)} steps, energy {float(energy):.9f}, dE/dz of the second {slope:.9f}", end="")
    print()
