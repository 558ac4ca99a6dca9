"""Optimal transport with entropy, differentiated in costs, masses and the weight of the entropy.

Mass a is to be moved to mass b, and moving a unit from i to j costs C_ij. With entropy of weight ε the best plan is
P_ij = a_i exp((f_i + g_j − C_ij)/ε) b_j, and Sinkhorn's loop finds f and g by making rows and columns right in turn.
The loop stops when it has converged; its gradient is the gradient through all its steps.

Run it with ``python examples/sinkhorn.py``; ``--small`` takes smaller problems.
"""

# %%
from __future__ import annotations

import sys
from typing import Any

import numpy as np

import unspool as us
from unspool.networks.optimise import minimise
from unspool.networks.transport import sinkhorn

SMALL = "--small" in sys.argv

# %% [markdown]
# ## Two places: everything is known
#
# With a = b = (½, ½) and costs 0 and 1, the cost of the plan is q/(1 + q), where q = exp(−1/ε). Its slope in ε follows.

# %%
print("Two places: cost and its slope in ε, through the loop and in closed form\n")
print(f"{'ε':>6}{'cost':>14}{'closed form':>14}{'slope':>14}{'closed form':>14}")
for width in (2.0, 1.0, 0.5, 0.2, 0.1):
    eps = us.tensor(width)
    found = sinkhorn([[0.0, 1.0], [1.0, 0.0]], [0.5, 0.5], [0.5, 0.5], regularisation=eps)
    slope = found.cost.grad(eps)
    q = np.exp(-1 / width)
    print(f"{width:>6}{float(found.cost):>14.10f}{q / (1 + q):>14.10f}", end="")
    print(f"{float(slope):>14.10f}{q / (1 + q) ** 2 / width**2:>14.10f}")

# %% [markdown]
# ## Two Gaussians
#
# The plan between Gaussians of widths s and t is a Gaussian. For squared distances its covariance is
# (√(ε² + 16 s²t²) − ε)/4, so again cost and slope are known. Small ε is where a loop in exp(f/ε) overflows.

# %%
POINTS = 60 if SMALL else 300
x, s, t = np.linspace(-7.0, 7.0, POINTS), 1.0, 0.6
a, b = np.exp(-(x**2) / (2 * s**2)), np.exp(-(x**2) / (2 * t**2))
a, b = a / a.sum(), b / b.sum()
print(f"\nTwo Gaussians on {POINTS} points: error of the cost, and of its slope in ε\n")
print(f"{'ε':>6}{'steps':>7}{'cost':>14}{'error':>10}{'slope':>14}{'error':>10}")
for width in (1.0, 0.5) if SMALL else (1.0, 0.5, 0.1, 0.03):
    eps = us.tensor(width)
    found = sinkhorn((x[:, None] - x) ** 2, a, b, regularisation=eps, tol=1e-12)
    value, slope = float(found.cost), float(found.cost.grad(eps))
    root = np.sqrt(width**2 + 16 * s**2 * t**2)
    errors = value - (s**2 + t**2 - (root - width) / 2), slope - (1 - width / root) / 2
    print(f"{width:>6}{found.steps:>7}{value:>14.10f}{errors[0]:>10.1e}{slope:>14.10f}{errors[1]:>10.1e}")

# %% [markdown]
# ## Where the gradient comes from does not matter
#
# At the fixed point the gradient of the objective ⟨P, C⟩ + ε KL in the costs is the plan itself. The gradient through
# all steps and the one by the implicit function theorem both find it.

# %%
SIZE = 30 if SMALL else 200
rng = np.random.default_rng(0)
here, there = rng.uniform(size=(SIZE, 2)), rng.uniform(size=(SIZE, 2))
cost = us.tensor(np.sum((here[:, None] - there) ** 2, axis=-1), name="cost")
mass = np.full(SIZE, 1 / SIZE)
print(f"\n{SIZE} places: how far the gradient of the objective in the costs is from the plan")
for derivative in ("unrolled", "implicit"):
    found = sinkhorn(cost, mass, mass, regularisation=0.02, tol=1e-11, derivative=derivative)
    apart = np.max(np.abs((found.objective.grad(cost) - found.plan).eval())) * SIZE
    print(f"  {derivative:<10}{found.steps:>6} steps{apart:>12.1e} of a mass")

# %% [markdown]
# ## Moving points
#
# The objective compares two clouds of points, and it can be differentiated in where the points are. Entropy alone would
# draw a cloud together; half of its objective against itself, taken off, removes that (Feydy et al., AISTATS 2019). A
# minimiser then moves one cloud onto the other. Each evaluation runs two loops of whatever length they need.

# %%
CLOUD = 12 if SMALL else 60
angle = np.linspace(0.0, 2 * np.pi, CLOUD, endpoint=False)
ring = np.stack([np.cos(angle), np.sin(angle)], axis=1)
equal = np.full(CLOUD, 1 / CLOUD)


def objective(points: us.Tensor, others: Any) -> us.Tensor:
    """Return the least ⟨P, C⟩ + ε KL between two clouds, for squared distances."""
    costs = us.sum((points[:, None] - others) ** 2, axis=-1)
    return sinkhorn(costs, equal, equal, regularisation=0.2, tol=1e-7).objective


def divergence(points: us.Tensor) -> us.Tensor:
    """Return how far a cloud is from the ring, up to a constant."""
    return objective(points, ring) - objective(points, points) / 2


moved = minimise(divergence, 0.3 * rng.standard_normal((CLOUD, 2)), tol=3e-5 / CLOUD)
radii = np.linalg.norm(moved.state.eval(), axis=1)
first, last = moved.history[0]["loss"], moved.history[-1]["loss"]
print(f"\n{CLOUD} points moved onto a circle of radius 1, by {moved.evaluations} evaluations of loops and gradient")
print(f"  divergence {first:.6f} after the first step, {last:.6f} after the last")
print(f"  radii between {radii.min():.4f} and {radii.max():.4f}")
