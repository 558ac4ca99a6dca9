"""Which measured number matters? Alternating least squares on a spectroscopic experiment, differentiated to the end.

Mixtures of fluorescent substances are lit at several wavelengths, and each emits light at several others. A substance
has an emission and an excitation spectrum, and an amount in each mixture, so the data are a sum of products of three
vectors: a CP decomposition. ALS finds the vectors without knowing them; its gradient tells how they hang on the data.

Run it with ``python examples/als.py``, or ``--small`` for a second's worth. Cells begin with ``# %%``.
"""

from __future__ import annotations

# %% What to compute
import argparse
import time

import numpy as np

import unspool as us
from unspool.networks.als import CP, cp_als, random_cp
from unspool.networks.tensor_train import tt_als, tt_svd
from unspool.networks.tucker import hooi

parser = argparse.ArgumentParser(description="CP, Tucker and tensor-train decompositions, and gradients through them.")
parser.add_argument("--small", action="store_true", help="few wavelengths and few mixtures")
small = parser.parse_known_args()[0].small

mixtures, emission, excitation = (6, 20, 15) if small else (12, 80, 60)
substances = 3

# %% The experiment: bell-shaped spectra, random amounts, a little noise
rng = np.random.default_rng(0)


def spectra(points: int, width: float) -> np.ndarray:
    """Bells at equal distances, one column for each substance."""
    axis, centres = np.linspace(0, 1, points)[:, None], np.linspace(0.3, 0.7, substances)
    return np.exp(-(((axis - centres) / width) ** 2))


truth = [rng.uniform(0.2, 1.0, (mixtures, substances)), spectra(emission, 0.12), spectra(excitation, 0.09)]
clean = CP(truth).full().eval()
data = us.tensor(clean + 0.01 * rng.standard_normal(clean.shape), name="data")

# %% The loop: any value can be looked at, and it stops when the fit has settled
begin = time.perf_counter()
found = cp_als(
    data, random_cp(clean.shape, substances, seed=1, nonnegative=True), nonnegative=True, tol=1e-9, max_steps=500
)
print(f"{found.state}: {found.steps} sweeps in {time.perf_counter() - begin:.2f} s, converged: {found.converged}")
for step in sorted({1, 2, 5, 20, found.steps} & set(range(found.steps + 1))):
    print(f"  sweep {step:>4}   ‖X - X̂‖ / ‖X‖ = {found.history[step - 1]['error']:.8f}")

# %% The amounts, beside the true ones: the scale and the order of terms are open, so compare shares
_, unit = found.state.normalised()
_, true_unit = CP(truth).normalised()
match = np.abs(unit.factors[1].eval().T @ true_unit.factors[1].eval())
order = np.argmax(match, axis=0)
print("\noverlap of the spectra found with the true ones:", np.round(match[order, range(substances)], 5))

# %% The gradient of the residual through every sweep; at convergence it is 2 (X - X̂), the envelope theorem says
begin = time.perf_counter()
gradient = found.residual.grad(data).eval()
expected = 2 * (data - found.state.full()).eval()
print(f"gradient through {found.steps} sweeps in {time.perf_counter() - begin:.2f} s,", end=" ")
print(f"off the envelope theorem by {np.linalg.norm(gradient - expected) / np.linalg.norm(expected):.1e}")

# %% No theorem gives this one: how does the amount of the first substance in the first mixture hang on each number?
amount = unit.factors[0][0, int(order[0])]
influence = np.linalg.norm(amount.grad(data).eval(), axis=0)
peak = np.unravel_index(np.argmax(influence), influence.shape)
print(f"\nthe amount of substance 0 in mixture 0 hangs most on emission {peak[0]} of {emission}", end=", ")
print(f"excitation {peak[1]} of {excitation};")
print(f"its own spectra peak at {np.argmax(truth[1][:, 0])} and {np.argmax(truth[2][:, 0])}")

# %% Other formats for the same data: numbers stored, error, and distance from the envelope theorem
cp = cp_als(data, substances, tol=1e-13, max_steps=500)
tucker = hooi(data, substances, tol=1e-13)
train = tt_als(data, substances, tol=1e-13)
print(f"\n{'format':<28}{'numbers':>9}{'error':>12}{'gradient off by':>18}")
for name, result, parts in (
    ("CP, 3 terms", cp, cp.state.factors),
    ("Tucker (HOOI), 3 × 3 × 3", tucker, (tucker.state.core, *tucker.state.factors)),
    ("tensor train (ALS), rank 3", train, train.state.cores),
):
    numbers = sum(part.size for part in us.eval(list(parts)))
    off = us.linalg.norm(result.residual.grad(data) - 2 * (data - result.state.full())) / us.linalg.norm(data)
    print(f"{name:<28}{numbers:>9}{np.sqrt(1 - float(result.fit)):>12.6f}{float(off):>18.1e}")

# %% Ranks found from spectra: what an error takes
for cutoff in (0.1, 0.03, 0.01):
    short = tt_svd(data, cutoff=cutoff)
    error = float(us.linalg.norm(data - short.full()) / us.linalg.norm(data))
    print(f"TT-SVD to {cutoff:>5}: ranks {short.ranks}, error {error:.5f}")
