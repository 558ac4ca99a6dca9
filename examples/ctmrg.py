# %% [markdown]
"""Corner transfer matrices: an infinite magnet, and an infinite quantum state, differentiated.

In an infinite square lattice, each site sees the same world: four corners and four edges around it.
A loop lets this world grow by one site at a time, and keeps the part that matters, until nothing changes.
What one reads off, a magnetisation or an energy, has a derivative through all of that: optimise it.

Run it with ``python examples/ctmrg.py``, or cell by cell in an editor that knows ``# %%``. ``--small`` is for tests.
"""

import sys

import numpy as np

import unspool as us
from unspool.networks.ctmrg import ctmrg
from unspool.networks.ipeps import heisenberg_bond, ipeps_energy
from unspool.networks.lattice import ising_site, product_environment, site_expectation, symmetrise
from unspool.networks.optimise import minimise, progress_line

SMALL = "--small" in sys.argv

# %% The Ising model below its critical temperature
# Far away all spins point up. Yang's formula tells how much of that is left here: m = (1 - sinh⁻⁴ 2β)^⅛.

BETA = 0.5


def magnetisation(beta: us.Tensor, rank: int) -> us.Tensor:
    """Return the mean spin of a site in the middle of the lattice."""
    site = ising_site(beta)
    world = ctmrg(site.bulk, rank=rank, tol=1e-12, start=product_environment(site.up))
    return site_expectation(site.bulk, site.spin, world.state)


s = np.sinh(2 * BETA)
exact, exact_slope = (1 - s**-4) ** 0.125, np.cosh(2 * BETA) * s**-5 * (1 - s**-4) ** -0.875
print(f"magnetisation of the Ising model at β = {BETA}")
print("rank                 m          dm/dβ   error of m   of dm/dβ")
for rank in (2, 4, 8) if SMALL else (2, 4, 8, 16):
    beta = us.tensor(BETA)
    m = magnetisation(beta, rank)
    slope = float(m.grad(beta))
    print(f"{rank:4d}  {float(m):16.12f} {slope:14.10f} {float(m) - exact:12.1e} {slope - exact_slope:10.1e}")
print(f"Yang  {exact:16.12f} {exact_slope:14.10f}\n")

# %% The loop can be watched
# Each step tells how much the spectrum of the corner moved, and how much was cut off.

bulk = ising_site(0.44).bulk  # close to the critical point, where it takes long
world = ctmrg(bulk, rank=8, tol=1e-6, on_step=lambda n, _, v: n % 50 == 0 and print(f"step {n:3d}  {v['change']:.1e}"))
print(f"converged: {world.converged}, after {world.steps} steps\n")

# %% An antiferromagnet on an infinite square lattice
# One real tensor on all sites, bonds of size 2; every other spin is turned, so that neighbours look alike. The energy
# per site is a function of the tensor. Its gradient through all steps, and at the fixed point:

RANK = 8 if SMALL else 16
BOND = heisenberg_bond()
start = np.random.default_rng(0).standard_normal((2, 2, 2, 2, 2))
gradients = []
for adjoint in (us.Unrolled(), us.Implicit()):
    tensor = us.tensor(start)
    energy = ipeps_energy(symmetrise(tensor), BOND, rank=RANK, adjoint=adjoint).energy
    gradients.append(energy.grad(tensor).eval())
    norm = np.linalg.norm(gradients[-1])
    print(f"{type(adjoint).__name__:8s}  energy {float(energy):.12f}, norm of gradient {norm:.12f}")
print(f"the gradients differ by {np.abs(gradients[0] - gradients[1]).max():.1e}\n")

# %% Minimise it
# L-BFGS of SciPy, with that gradient. The best energy that is known for such a tensor at rank 16 is -0.6602310935.

found = minimise(
    lambda tensor: ipeps_energy(symmetrise(tensor), BOND, rank=RANK).energy,
    start,
    tol=1e-3 if SMALL else 1e-7,
    on_step=progress_line(),
)
print(f"\nenergy per site {float(found.loss):.10f} after {found.evaluations} evaluations; converged: {found.converged}")
