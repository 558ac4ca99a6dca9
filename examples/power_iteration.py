"""The largest eigenvalue of a matrix by a loop that stops when it has converged, and its derivatives.

The loop is plain Python. It looks at values every step and decides by them when to stop. Afterwards the whole loop is
differentiated, once and then again, and both derivatives are compared with what perturbation theory says:

    gradient          v vᵀ                               v the unit eigenvector of the largest eigenvalue λ
    second, along D   dv vᵀ + v dvᵀ                      dv = Σₖ vₖ (vₖᵀ D v) / (λ − λₖ), over the others

Run it with ``python examples/power_iteration.py``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

import unspool as us

SIZE = 32
TOLERANCES = (1e-2, 1e-4, 1e-6, 1e-8, 1e-10, 1e-12)


def largest_eigenvalue(A: us.Tensor, tolerance: float) -> tuple[us.Tensor, list[float]]:
    """Return the Rayleigh quotient when the vector has settled, and the estimates read on the way."""
    x = us.ones(A.shape[0]) / np.sqrt(SIZE)
    estimates = []
    while True:
        y = A @ x  # nothing is computed yet: y is a recipe
        norm = us.linalg.norm(y)
        x, before = y / norm, x
        estimates.append(float(norm))  # looks at a value; breaks nothing
        if float(us.linalg.norm(x - before)) < tolerance:
            return x @ A @ x, estimates


# --- what the answer should be ---------------------------------------------------------------------------------------


def symmetric_matrix(rng: np.random.Generator) -> Any:
    """Return a positive matrix with eigenvalues 1, 0.7, 0.49 and so on."""
    q, _ = np.linalg.qr(rng.standard_normal((SIZE, SIZE)))
    matrix = (q * 0.7 ** np.arange(SIZE)) @ q.T
    return (matrix + matrix.T) / 2


def closed_form(a: Any, direction: Any) -> tuple[float, Any, Any]:
    """Return the largest eigenvalue, its gradient, and the derivative of the gradient along a direction."""
    values, vectors = np.linalg.eigh(a)
    top, v, others = values[-1], vectors[:, -1], vectors[:, :-1]
    dv = others @ ((others.T @ direction @ v) / (top - values[:-1]))
    return float(top), np.outer(v, v), np.outer(dv, v) + np.outer(v, dv)


# --- the comparison --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """What one run of the loop came to."""

    tolerance: float
    steps: int
    errors: tuple[float, float, float]
    nodes: tuple[int, int, int]
    kernels: int
    most_often: int
    seconds: float

    def __str__(self) -> str:
        errors = "".join(f"{error:>11.1e}" for error in self.errors)
        nodes = "".join(f"{count:>9,}" for count in self.nodes)
        return f"{self.tolerance:>9.0e}{self.steps:>7}{errors}{nodes}{self.kernels:>9,}{1e3 * self.seconds:>8.0f} ms"


HEADING = f"{'':16}{'—— error against closed form ——':^33}{'———— nodes in graph ————':^27}{'kernel':>9}\n" + (
    f"{'tolerance':>9}{'steps':>7}{'value':>11}{'gradient':>11}{'second':>11}"
    f"{'value':>9}{'gradient':>9}{'second':>9}{'calls':>9}{'time':>11}"
)


def run(a: Any, direction: Any, tolerance: float) -> tuple[Row, list[float]]:
    """Run the loop, differentiate it twice, and compare."""
    begin = time.perf_counter()
    with us.debug.count_kernels() as kernels:
        A = us.tensor(a, name="A")
        value, estimates = largest_eigenvalue(A, tolerance)
        gradient = value.grad(A)
        second = us.sum(gradient * direction).grad(A)  # a gradient is a recipe too, so it has a gradient
        found = us.eval(value, gradient, second)
    seconds = time.perf_counter() - begin
    errors = [float(np.max(np.abs(f - c))) for f, c in zip(found, closed_form(a, direction), strict=True)]
    row = Row(
        tolerance=tolerance,
        steps=len(estimates),
        errors=(errors[0], errors[1], errors[2]),
        nodes=(us.graph_size(value), us.graph_size(value, gradient), us.graph_size(value, gradient, second)),
        kernels=kernels.total,
        most_often=max(kernels.by_node.values()),
        seconds=seconds,
    )
    return row, estimates


def main() -> None:
    """Run the loop to several tolerances and print how well its derivatives agree with the closed form."""
    rng = np.random.default_rng(0)
    a = symmetric_matrix(rng)
    direction = rng.standard_normal((SIZE, SIZE))
    direction = (direction + direction.T) / 2

    print(f"Power iteration on a symmetric {SIZE} × {SIZE} matrix, stopped by looking at the values it computes.\n")
    print(HEADING)
    for tolerance in TOLERANCES:
        row, estimates = run(a, direction, tolerance)
        print(row)
    print("\nThe derivatives are those of the steps that ran, so they converge as the vector does. The graph grows")
    print(
        f"linearly with the steps. The most often that any node was computed, over all derivatives: {row.most_often}."
    )

    print("\nWhat the last loop read on the way (the norm of A x, which tends to the eigenvalue):")
    for step in (1, 2, 5, 10, 20, row.steps):
        print(f"  step {step:>3}   {estimates[step - 1]:.15f}")
    print(f"  exact      {closed_form(a, direction)[0]:.15f}")


if __name__ == "__main__":
    main()
