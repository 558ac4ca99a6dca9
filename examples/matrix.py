"""Matrix iterations with an answer: polar factor and dominant eigenvectors, and their derivatives.

A = U H has a unitary factor U; X ← X (3 − XᴴX)/2 squares the distance to it with products of matrices only. The vector
that A stretches most is found by multiplying with A and normalising. Both loops stop when nothing moves, and their
limits have derivatives in closed form, a Sylvester equation and a linear system, which the loops have to agree with.

Run it with ``python examples/matrix.py``; ``--small`` takes smaller matrices.
"""

# %%
from __future__ import annotations

import sys

import numpy as np
from scipy import linalg

import unspool as us
from unspool.networks.matrix import newton_schulz_polar, power_iteration, subspace_iteration

SMALL = "--small" in sys.argv
SIZE = 12 if SMALL else 64
rng = np.random.default_rng(0)


def orthogonal() -> np.ndarray:
    """Return a random orthogonal matrix."""
    return np.linalg.qr(rng.standard_normal((SIZE, SIZE)))[0]


# %% [markdown]
# ## The polar factor
#
# Singular values from 0.3 to 1 take nine steps. From A to U the error squares, and so does that of the gradient.

# %%
matrix = (orthogonal() * np.linspace(0.3, 1.0, SIZE)) @ orthogonal().T
weights = rng.standard_normal((SIZE, SIZE))
A = us.tensor(matrix, name="A")
U, H = linalg.polar(matrix)
exact = U @ linalg.solve_sylvester(H, H, U.T @ weights - weights.T @ U)

print(f"Newton–Schulz on a {SIZE} × {SIZE} matrix: distance from the exact answers\n")
print(f"{'steps':>6}{'factor':>11}{'gradient':>11}")
for most in range(1, 10):
    found = newton_schulz_polar(A, scale=1.0, max_steps=most)
    gradient = us.sum(weights * found.state).grad(A).eval()
    errors = np.abs(found.state.eval() - U).max(), np.abs(gradient - exact).max() / np.abs(exact).max()
    print(f"{found.steps:>6}{errors[0]:>11.1e}{errors[1]:>11.1e}")

# %% [markdown]
# ## A rotation
#
# In two dimensions U is a rotation by the angle atan2(c − b, a + d), and all derivatives of an angle are known.


# %%
def angle(M: us.Tensor) -> us.Tensor:
    """Return the angle of the rotation in a matrix, from the loop."""
    rotation = newton_schulz_polar(M).state
    return us.atan2(rotation[1, 0], rotation[0, 0])


def closed_form(M: us.Tensor) -> us.Tensor:
    """Return the same from the entries."""
    return us.atan2(M[1, 0] - M[0, 1], M[0, 0] + M[1, 1])


M = us.tensor([[1.3, -0.4], [2.2, 0.7]])
print("\nThe angle of a rotation, loop against closed form")
print(f"  value            {float(angle(M)):.12f}   {float(closed_form(M)):.12f}")
for order, derivative in (("first", us.grad), ("second", us.hessian)):
    apart = np.abs((derivative(angle)(M) - derivative(closed_form)(M)).eval()).max()
    print(f"  {order} derivative differs by at most {apart:.1e}")

# %% [markdown]
# ## The dominant eigenvector
#
# The error of the vector falls by λ₂/λ₁ in each step. The derivative of the loop has that error too, times the number
# of steps; the implicit rule solves (λ − A) y = (1 − v vᵀ) c instead.

# %%
basis = orthogonal()
symmetric = (basis * np.r_[1.0, np.linspace(-0.8, 0.8, SIZE - 1)]) @ basis.T
symmetric = (symmetric + symmetric.T) / 2
c = rng.standard_normal(SIZE)
S = us.tensor(symmetric, name="S")

print("\nPower iteration: distance from the eigenpair solve\n")
print(f"{'tol':>8}{'steps':>7}{'value':>11}{'gradient':>11}")
for tol in (1e-2, 1e-4, 1e-6, 1e-8, 1e-10, 1e-12):
    found = power_iteration(S, tol=tol)
    v = basis[:, 0] * np.sign(basis[:, 0] @ found.state.eval())
    y = np.linalg.lstsq(np.eye(SIZE) - symmetric, c - v * (v @ c), rcond=1e-10)[0]
    gradient = (c @ found.state).grad(S).eval()
    errors = abs(float(found.value) - 1.0), np.abs(gradient - np.outer(y, v)).max() / np.abs(np.outer(y, v)).max()
    print(f"{tol:>8.0e}{found.steps:>7}{errors[0]:>11.1e}{errors[1]:>11.1e}")

# %% [markdown]
# ## A whole space
#
# Where eigenvalues coincide there is no dominant vector, but there is a dominant space. The sum of its eigenvalues has
# its projector for a gradient.

# %%
degenerate = (basis * np.r_[1.0, 1.0, 1.0, np.linspace(-0.7, 0.7, SIZE - 3)]) @ basis.T
D = us.tensor((degenerate + degenerate.T) / 2, name="D")
found = subspace_iteration(D, 3)
gradient = us.sum(found.values).grad(D).eval()
projector = basis[:, :3] @ basis[:, :3].T
print(f"\nThree equal eigenvalues by subspace iteration, {found.steps} steps: {found.values.eval().round(10)}")
print(f"  the gradient of their sum differs from the projector by at most {np.abs(gradient - projector).max():.1e}")
