"""The energy of the 2-D Ising model by TRG, through the SVDs that other libraries have: what comes back is NaN.

The program is the usual one: split each tensor by an SVD, keep the largest singular values, join the halves around a
plaquette, divide by the largest entry, repeat. lnZ per site comes out the same everywhere. Its derivative is the
energy. Each library differentiates the very same lines with its own rule for the SVD, which divides by differences of
singular values. At rank 8, a matrix in step 5 has 64 rows and rank 16; the others of its values are rounding, equal to
the last bit, and are dropped. What the rule divides there is zero as well: 0/0.

    python bench/nan_in_peers.py             all libraries that are installed; those that are not are named
    python bench/nan_in_peers.py --rank 16   at another rank; 8 by default

Exits with 1 if unspool's energy is further than 1e-10 from a finite difference of the loop.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import math
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np

from unspool.networks.trg import ising_tensor, trg

TEMPERATURES = (0.4, 0.44, 0.5)
STEPS = 30


def log_partition(p: Any, site: Any, rank: int) -> Any:
    """Return lnZ per site, with the functions of any library."""
    total = 0.0
    for step in range(STEPS):
        largest = p.max(p.abs(site))
        total = total + p.log(largest) / 2**step
        site = site / largest
        upper_right, lower_left = halves(p, site, (0, 1, 2, 3), rank)
        upper_left, lower_right = halves(p, site, (1, 2, 0, 3), rank)
        top = p.einsum("wxr,wzu->xrzu", lower_left, lower_right)
        bottom = p.einsum("yzl,xyd->zlxd", upper_right, upper_left)
        site = p.einsum("xrzu,zlxd->ruld", top, bottom)
    both = np.einsum("ik,jl->ijkl", np.eye(site.shape[0]), np.eye(site.shape[1]))  # a trace that all can differentiate
    return total + p.log(p.sum(site * p.array(both))) / 2**STEPS


def halves(p: Any, site: Any, order: tuple[int, int, int, int], rank: int) -> tuple[Any, Any]:
    """Split a tensor between two pairs of its legs."""
    legs = p.transpose(site, order)
    size = legs.shape
    u, s, vh = p.svd(p.reshape(legs, (size[0] * size[1], size[2] * size[3])))
    k = min(rank, int(p.count(s)))
    root = p.sqrt(s[:k])
    left, right = u[:, :k] * root, p.transpose(vh[:k], (1, 0)) * root
    return p.reshape(left, (*size[:2], k)), p.reshape(right, (*size[2:], k))


# --- the libraries ---------------------------------------------------------------------------------------------------


class Functions:
    """What the program needs of a library."""

    def __init__(self, module: Any, svd: Callable[..., Any], transpose: Callable[..., Any], array: Callable[..., Any]):
        self.max, self.abs, self.log, self.sqrt = module.max, module.abs, module.log, module.sqrt
        self.einsum, self.reshape, self.sum = module.einsum, module.reshape, module.sum
        self.svd, self.transpose, self.array = svd, transpose, array

    @staticmethod
    def count(s: Any) -> int:
        """Return how many singular values are not rounding; a decision, not differentiated."""
        values = s.detach().numpy() if hasattr(s, "detach") else getattr(s, "_value", s)
        return int(np.sum(np.asarray(values) > 1e-15))


def by_torch(beta: float, rank: int) -> tuple[float, float]:
    """Return lnZ and u with PyTorch in eager mode."""
    import torch

    def build(b: Any) -> Any:
        cosh, sinh = torch.cosh(b), torch.sinh(b)
        legs = [torch.tensor(mask) for mask in leg_masks()]
        return 2 * (cosh * cosh * legs[0] + cosh * sinh * legs[1] + sinh * sinh * legs[2])

    functions = Functions(torch, lambda a: torch.linalg.svd(a, full_matrices=False), torch.permute, torch.tensor)
    b = torch.tensor(beta, dtype=torch.float64, requires_grad=True)
    value = log_partition(functions, build(b), rank)
    value.backward()
    return value.item(), -b.grad.item()


def by_jax(beta: float, rank: int) -> tuple[float, float]:
    """Return lnZ and u with JAX, not compiled: ranks are chosen by values, which are known outside of a trace only."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)

    def build(b: Any) -> Any:
        cosh, sinh = jnp.cosh(b), jnp.sinh(b)
        legs = leg_masks()
        return 2 * (cosh * cosh * legs[0] + cosh * sinh * legs[1] + sinh * sinh * legs[2])

    functions = Functions(jnp, lambda a: jnp.linalg.svd(a, full_matrices=False), jnp.transpose, jnp.asarray)
    functions.count = lambda s: int(np.sum(np.asarray(concrete(s)) > 1e-15))  # type: ignore[method-assign]

    def concrete(s: Any) -> Any:
        while isinstance(s, jax.core.Tracer):
            s = s.primal if hasattr(s, "primal") else s.val
        return s

    value, slope = jax.value_and_grad(lambda b: log_partition(functions, build(b), rank))(beta)
    return float(value), -float(slope)


def by_autograd(beta: float, rank: int) -> tuple[float, float]:
    """Return lnZ and u with HIPS autograd."""
    import autograd
    import autograd.numpy as anp

    def build(b: Any) -> Any:
        cosh, sinh = anp.cosh(b), anp.sinh(b)
        legs = leg_masks()
        return 2 * (cosh * cosh * legs[0] + cosh * sinh * legs[1] + sinh * sinh * legs[2])

    functions = Functions(anp, lambda a: anp.linalg.svd(a, full_matrices=False), anp.transpose, lambda a: a)
    value, slope = autograd.value_and_grad(lambda b: log_partition(functions, build(b), rank))(beta)
    return float(value), -float(slope)


def by_unspool(beta: float, rank: int) -> tuple[float, float]:
    """Return lnZ and u of `unspool.networks`."""
    import unspool as us

    b = us.tensor(beta)
    value = trg(b, rank=rank, steps=STEPS).log_partition
    return float(value), -float(value.grad(b))


def leg_masks() -> list[Any]:
    """Return where none, two and four legs of the Ising tensor are odd."""
    odd = np.sum(np.indices((2, 2, 2, 2)), axis=0)
    return [(odd == number).astype(float) for number in (0, 2, 4)]


LIBRARIES = {"torch": by_torch, "jax": by_jax, "autograd": by_autograd, "unspool": by_unspool}


def difference(beta: float, rank: int) -> float:
    """Return u by differences of fourth order, of the plain NumPy program."""
    functions = Functions(np, lambda a: np.linalg.svd(a, full_matrices=False), np.transpose, np.asarray)

    def value(b: float) -> float:
        return float(log_partition(functions, np.asarray(ising_tensor(b)), rank))

    h = 2e-4 if abs(beta - 0.44) > 0.01 else 2e-5  # the loop turns sharply where it is nearly critical
    return -(8 * (value(beta + h) - value(beta - h)) - (value(beta + 2 * h) - value(beta - 2 * h))) / (12 * h)


def main() -> int:
    """Print the table and return how many energies of unspool are wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rank", type=int, default=8)
    rank = parser.parse_args().rank
    wrong = 0
    print(f"TRG, rank {rank}, {STEPS} steps\n{'':24}{'β':>6}{'lnZ per site':>18}{'u per site':>16}")
    for beta in TEMPERATURES:
        expected = difference(beta, rank)
        print(f"{'finite differences':<24}{beta:>6}{'':18}{expected:>16.10f}")
        for name, run in LIBRARIES.items():
            if importlib.util.find_spec(name) is None:
                print(f"{name:<24}{beta:>6}    not installed, skipped")
                continue
            label = name if name == "unspool" else f"{name} {importlib.metadata.version(name)}"
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                value, energy = run(beta, rank)
            print(f"{label:<24}{beta:>6}{value:>18.12f}{energy:>16.10f}")
            # Near criticality the difference itself has fewer digits.
            if name == "unspool" and not math.isclose(energy, expected, abs_tol=1e-10 if beta != 0.44 else 1e-6):
                wrong += 1
    return wrong


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
