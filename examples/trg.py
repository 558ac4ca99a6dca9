"""The two-dimensional Ising model by tensor renormalisation, differentiated twice.

Spins on a square lattice, neighbours like to be parallel; below T = 2.269 they order. The partition function Z is a
network of tensors, one per site; a step of the loop merges pairs of them and keeps the largest singular values. One
graph gives lnZ, the energy u = -∂(lnZ)/∂β and the specific heat c = β²·∂²(lnZ)/∂β², beside those of Onsager (1944).

Run it with ``python examples/trg.py``, or ``--small`` for a few seconds' worth. Cells begin with ``# %%``.
"""

from __future__ import annotations

# %% What to compute
import argparse

import unspool as us
from unspool.networks.trg import hotrg, onsager, trg

parser = argparse.ArgumentParser(description="lnZ, energy and specific heat of the 2-D Ising model, beside Onsager's.")
parser.add_argument("--small", action="store_true", help="small ranks and few temperatures")
small = parser.parse_known_args()[0].small

rank = 4 if small else 16
temperatures = (0.35, 0.6) if small else (0.3, 0.4, 0.43, 0.44, 0.45, 0.5, 0.6)

# %% One temperature: the loop runs once, and is differentiated through all of its steps, twice
beta = us.tensor(0.5, name="beta")
result = trg(beta, rank=rank)
log_z = result.log_partition
slope = log_z.grad(beta)  # a recipe, like every gradient
heat = beta * beta * slope.grad(beta)
print(f"rank {rank}, β = 0.5: lnZ = {float(log_z):.9f}, u = {-float(slope):.9f}, c = {float(heat):.9f}")
print(f"Onsager:          lnZ = {onsager(0.5)[0]:.9f}, u = {onsager(0.5)[1]:.9f}, c = {onsager(0.5)[2]:.9f}\n")

# %% What was read on the way
for step, values in enumerate(result.history[:12], start=1):
    print(
        f"step {step:>2}: 2^{step:<2} sites, legs of {values['rank']:.0f}, lnZ = {values['log_partition']:.9f}, "
        f"dropped {values['truncation']:.1e}"
    )

# %% A scan over temperatures, with both methods
# Somewhere in a scan a rank cuts through equal singular values; keep_multiplets lowers it there.
print(f"\n{'':6}{'β':>6}{'lnZ':>13}{'u':>12}{'c':>11}    distance from Onsager's values")
for scheme in (trg, hotrg):
    for b in temperatures:
        beta = us.tensor(b)
        log_z = scheme(beta, rank=min(rank, 10) if scheme is hotrg else rank, keep_multiplets=True).log_partition
        slope = log_z.grad(beta)
        found = [float(t) for t in us.eval(log_z, -slope, beta * beta * slope.grad(beta))]
        apart = "".join(f"{abs(f - e):>10.1e}" for f, e in zip(found, onsager(b), strict=False))
        print(f"{scheme.__name__:<6}{b:>6.2f}{found[0]:>13.8f}{found[1]:>12.7f}{found[2]:>11.6f}  {apart}")
