# %% [markdown]
"""The phase diagram of the Ising chain in a transverse field: 64 couplings, each by DMRG that is differentiated.

H = -J Σ ZZ - h Σ X. Strong J orders the spins, a strong field h turns them, and between the two, at h = J, is a quantum
phase transition. The energy alone hardly shows it. Its slopes do: -dE/dh is the magnetisation along the field, -dE/dJ
the order of neighbours, and how fast they change peaks at the transition. Every run of DMRG is one member of an
ensemble, which computes energies and slopes on as many processes as there are, and goes on where it was if it is
interrupted. Free fermions give the exact answers.

Run it with ``python examples/phase_diagram.py``, or with ``--small`` in a few seconds. ``--processes 4`` computes on
four processes, ``--dask`` on a cluster of Dask's on this machine. ``--folder results`` writes results there as they
come, ``--output picture.png`` saves a picture (by default ``phase_diagram.png``; with ``--small`` none).
"""

# %%
from __future__ import annotations

import argparse
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

import numpy as np

import unspool as us
from unspool.networks.chain import random_mps
from unspool.networks.dmrg import dmrg
from unspool.networks.exact import ising_chain_energy, ising_chain_gradient
from unspool.networks.models import ising

# %% [markdown]
# ## One member
#
# The function of one member takes its couplings and returns a scalar, and something beside it: how many sweeps it took
# and the largest bond, which says how entangled the state is.


# %%
def ground_state(p: dict[str, us.Tensor]) -> tuple[us.Tensor, dict[str, int]]:
    """Return the energy of a chain, and what the loop did."""
    sites = int(p["sites"])
    found = dmrg(ising(p["J"] * np.ones(sites - 1), p["h"]), random_mps(sites, 2, 4), rank=24, solve_tol=1e-7)
    return found.energy, {"sweeps": found.steps, "rank": max(found.state.ranks)}


def exact(sites: int, h: Any) -> tuple[Any, Any, Any]:
    """Return energies and slopes in J and h, by free fermions, at J = 1."""
    ones = np.ones(sites - 1)
    slopes = [ising_chain_gradient(ones, field) for field in h]
    return (
        np.array([ising_chain_energy(ones, field) for field in h]),
        np.array([slope.couplings.sum() for slope in slopes]),
        np.array([slope.fields.sum() for slope in slopes]),
    )


# %% [markdown]
# ## Who computes
#
# Anything with ``submit`` is a pool. Processes are started afresh (spawn), so the program below runs in one of them.


# %%
@contextmanager
def workers(processes: int, dask: bool) -> Iterator[Any]:
    """Give a pool: of Dask, of processes, or none."""
    if dask:
        from distributed import Client, LocalCluster

        with (
            LocalCluster(n_workers=max(processes, 2), threads_per_worker=1, dashboard_address=None) as cluster,
            Client(cluster) as client,
        ):
            yield client
    elif processes > 1:
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            yield pool
    else:
        yield None


def draw(path: str, sites: int, h: Any, found: Any) -> bool:
    """Save a picture of what was found beside what is exact; return False if Matplotlib is absent."""
    try:
        import matplotlib as mpl
    except ImportError:
        return False
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    fine = np.linspace(h[0], h[-1], 400)
    _, by_coupling, by_field = exact(sites, fine)
    figure, (above, below) = plt.subplots(
        2, 1, figsize=(7, 6.5), sharex=True, height_ratios=(3, 2), layout="constrained"
    )
    bonds = sites - 1
    above.plot([], [], color="0.4", lw=1.2, label="free fermions")
    above.plot(fine, -by_coupling / bonds, color="C0", lw=1.2)
    above.plot(fine, -by_field / sites, color="C1", lw=1.2)
    above.plot(
        h, -found.gradients["J"] / bonds, "o", ms=3.5, color="C0", label=r"$-dE/dJ$ of DMRG: order of neighbours"
    )
    above.plot(h, -found.gradients["h"] / sites, "o", ms=3.5, color="C1", label=r"$-dE/dh$ of DMRG: along the field")
    above.set_ylabel("slope of the energy, a bond or site")
    above.legend(frameon=False, loc="center right")
    below.plot(fine, -np.gradient(by_field / sites, fine), color="C1", lw=1.2)
    below.plot(h, -np.gradient(found.gradients["h"] / sites, h), "o", ms=3.5, color="C1")
    below.set_ylabel("susceptibility")
    below.set_xlabel("field h / J")
    for axes in (above, below):
        axes.axvline(1.0, color="0.6", lw=0.8, ls="--")
        axes.spines[["top", "right"]].set_visible(False)
    above.text(0.99, 0.02, "ordered", ha="right", color="0.4", transform=above.get_xaxis_transform())
    above.text(1.01, 0.02, "disordered", color="0.4", transform=above.get_xaxis_transform())
    above.set_title(f"Ising chain of {sites} sites in a transverse field, {len(h)} couplings")
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return True


# %% [markdown]
# ## All members
#
# The parameters of all members are arrays with the members along their first axis, and so are the gradients.


# %%
def main() -> None:
    """Compute, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--dask", action="store_true")
    parser.add_argument("--folder")
    parser.add_argument("--output")
    options = parser.parse_args()
    sites, count = (8, 8) if options.small else (32, 64)
    h = np.linspace(0.7, 1.5, count)
    given = {"J": np.ones(count), "h": h, "sites": np.full(count, sites)}
    with workers(options.processes, options.dask) as pool:
        found = us.ensemble(ground_state, given, pool, has_aux=True, folder=options.folder)
    energy, by_coupling, by_field = exact(sites, h)
    off = [
        found.values - energy,
        found.gradients["J"] - by_coupling,
        found.gradients["h"] - by_field,
    ]
    print(f"Ising chain of {sites} sites in a transverse field, {count} couplings\n")
    print(f"{'h':>6} {'energy':>15} {'off':>9} {'-dE/dJ':>11} {'off':>9} {'-dE/dh':>11} {'off':>9} {'rank':>5}")
    for k in range(0, count, max(1, count // 8)):
        slopes = -found.gradients["J"][k], -found.gradients["h"][k]
        print(
            f"{h[k]:>6.3f} {found.values[k]:>15.9f} {off[0][k]:>9.1e} {slopes[0]:>11.6f} {off[1][k]:>9.1e} "
            f"{slopes[1]:>11.6f} {off[2][k]:>9.1e} {found.aux['rank'][k]:>5}"
        )
    worst = " ".join(f"{np.nanmax(np.abs(x)):.1e}" for x in off)
    print(f"\nlargest differences from free fermions: energy, dE/dJ, dE/dh {worst}")
    change = -np.gradient(found.gradients["h"] / sites, h)
    print(f"the magnetisation changes fastest at h = {h[np.nanargmax(change)]:.3f} (an endless chain: 1)\n")
    print(found)
    path = options.output or (None if options.small else "phase_diagram.png")
    if path is not None:
        print(f"\nPicture: {path}" if draw(path, sites, h, found) else "\nNo picture: Matplotlib is not installed.")


if __name__ == "__main__":
    main()
