"""Programs that are saved in one process and loaded in another: each makes variables and a scalar from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import unspool as us

Program = Callable[[], tuple[list[Any], Any]]


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def matrix(n: int = 4) -> Any:
    return us.tensor(rng().normal(size=(n, n)) / n, name="A")


def vector(n: int = 4) -> Any:
    return us.tensor(rng().normal(size=n) + 2.0, name="x")


def not_evaluated() -> tuple[list[Any], Any]:
    A, x = matrix(), vector()
    return [A, x], us.sum(us.tanh(A @ x) ** 3 * us.exp(x[1:3].sum()))


def plain_loop(steps: int = 150) -> tuple[list[Any], Any]:
    A, x = matrix(), vector()
    y = x
    for k in range(steps):
        y = us.tanh((A + A.mT) @ y) + 0.01 * k * x
        float(y[0])
    return [A, x], us.sum(y * y)


def short_loop() -> tuple[list[Any], Any]:
    return plain_loop(20)


def loop_with_draws() -> tuple[list[Any], Any]:
    A, x = matrix(), vector()
    key = us.random.key(3)
    y = x
    for k in range(80):
        y = us.tanh(A @ y) + us.random.normal(us.random.fold_in(key, k), (4,)) * 0.1
        y.eval()
    return [A, x], us.sum(y * y)


def loop_with_factorisations() -> tuple[list[Any], Any]:
    A, x = matrix(), vector()
    X = A @ A.mT + us.eye(4)
    for _ in range(12):
        values, vectors = us.linalg.eigh(X)
        X = vectors @ (us.sqrt(us.abs(values) + 1.0)[:, None] * vectors.mT) + us.outer(x, x) * 0.1
        float(values[0])
    return [A, x], us.sum(X * X)


def loop_of_fragments() -> tuple[list[Any], Any]:
    @us.fragment
    def step(A: Any, y: Any) -> Any:
        return us.tanh(A @ y), us.sum(y)

    A, x = matrix(), vector()
    y, total = x, us.constant(0.0)
    for _ in range(40):
        y, s = step(A, y)
        total = total + s * s
        float(s)
    return [A, x], total + us.sum(y)


def iterated(adjoint: Any = None) -> tuple[list[Any], Any]:
    A, x = matrix(), vector()
    y, _, out = us.iterate(
        lambda y: (us.tanh(A @ y) + 0.1 * x, us.sum(y)), x, max_steps=30, adjoint=adjoint, has_outputs=True
    )
    return [A, x], us.sum(y * y) + us.sum(out)


def checkpointed() -> tuple[list[Any], Any]:
    return iterated(us.Checkpointed(slots=3))


def fixed_point() -> tuple[list[Any], Any]:
    A, x = matrix(), vector()
    y, _ = us.fixed_point(lambda y: us.tanh(A @ y) * 0.5 + x, x, tol=1e-12)
    return [A, x], us.sum(y * y)


def solved() -> tuple[list[Any], Any]:
    A, x = matrix(), vector()
    S = A @ A.mT + us.eye(4)
    return [A, x], us.sum(us.linalg.cg(lambda v: S @ v, x) ** 2) + us.sum(us.linalg.gmres(S + A * 0.1, x))


def lowest_eigenvalue() -> tuple[list[Any], Any]:
    A = matrix(12)
    S = A + A.mT
    found = us.linalg.eigsh(lambda v: S @ v, us.ones(12), k=1, which="SA")
    return [A], found[0][0] ** 2


def gradient(program: Program = plain_loop) -> tuple[list[Any], Any]:
    """What is saved is a gradient: adjoint calls in chains."""
    variables, loss = program()
    g = loss.grad(variables[0])
    return variables, us.sum(g * g)


def gradient_of_iterated() -> tuple[list[Any], Any]:
    return gradient(iterated)


def gradient_of_checkpointed() -> tuple[list[Any], Any]:
    return gradient(checkpointed)


def gradient_of_solved() -> tuple[list[Any], Any]:
    return gradient(solved)


def gradient_of_lowest_eigenvalue() -> tuple[list[Any], Any]:
    return gradient(lowest_eigenvalue)


def gradient_of_fixed_point() -> tuple[list[Any], Any]:
    return gradient(fixed_point)


def batched() -> tuple[list[Any], Any]:
    A, x = matrix(), vector()
    rows = us.vmap(lambda row: us.sum(us.linalg.eigh(us.outer(row, row) + us.eye(4))[0] ** 2) + row @ x)(A)
    return [A, x], us.sum(rows)


def batched_loop() -> tuple[list[Any], Any]:
    A, x = matrix(), vector()
    ends = us.vmap(lambda row: us.iterate(lambda y: us.tanh(A @ y) + 0.1 * x, row, max_steps=5)[0])(A)
    return [A, x], us.sum(ends * ends)


def batched_fixed_points() -> tuple[list[Any], Any]:
    A, x = matrix(), vector()
    points = us.vmap(lambda row: us.fixed_point(lambda y: 0.2 * us.tanh(A @ y) + x * row, row)[0])(A)
    return [A, x], us.sum(points * points)


def batched_ragged_loop() -> tuple[list[Any], Any]:
    A, x = matrix(), vector()
    sizes = us.tensor([1.0, 20.0, 3.0])
    ends = us.vmap(lambda s: us.iterate(lambda y: 0.5 * y, s * x, until=lambda y: us.max(abs(y)) < 0.3)[0])(sizes)
    return [A, x], us.sum((ends @ A.T) ** 2)


def indexed() -> tuple[list[Any], Any]:
    A, x = matrix(), vector()
    y = x.at[1:3].set(A[0, ::2]).at[0].add(A[us.asarray(2), 1])
    return [A, x], us.sum(us.where(y > 0, y, -y) * us.concat([x[:2], A[1, 2:]])) + us.einsum("ij,jk,k->", A, A, x)


def complex_numbers() -> tuple[list[Any], Any]:
    A, x = matrix(), vector()
    z = us.fft.fft(x) * (1.0 + 2.0j)
    return [A, x], us.sum(us.real(z * us.conj(z))) * A[0, 0] + us.sum(us.linalg.svd(A)[1] ** 3)


cube = us.op(
    "saved_cube",
    kernel=lambda x, *, factor: factor * x**3,
    vjp=(lambda ct, out, x, *, factor: ct * (3.0 * factor) * x * x,),
    needs=("inputs",),
    replace=True,
)


@us.custom_vjp
def softplus(x: Any) -> Any:
    return us.log(1.0 + us.exp(x))


softplus.defvjp(lambda x: (softplus.f(x), x), lambda x, ct: (ct / (1.0 + us.exp(-x)),))


@us.custom_jvp
def halved(x: Any) -> Any:
    return x / 2.0


@halved.defjvp
def _halved_rule(primals: Any, tangents: Any) -> Any:
    return halved(*primals), tangents[0] / 2.0


def of_users() -> tuple[list[Any], Any]:
    A, x = matrix(), vector()
    return [A, x], us.sum(cube(x, factor=2.0)) + us.sum(softplus(A @ x)) + us.sum(halved(x) ** 2)


PROGRAMS: dict[str, Program] = {
    program.__name__: program
    for program in (
        not_evaluated,
        plain_loop,
        short_loop,
        loop_with_draws,
        loop_with_factorisations,
        loop_of_fragments,
        iterated,
        checkpointed,
        fixed_point,
        solved,
        lowest_eigenvalue,
        batched,
        batched_loop,
        batched_fixed_points,
        batched_ragged_loop,
        gradient_of_iterated,
        gradient_of_checkpointed,
        gradient_of_solved,
        gradient_of_lowest_eigenvalue,
        gradient_of_fixed_point,
        batched,
        indexed,
        complex_numbers,
        of_users,
    )
}


def derivatives(variables: list[Any], loss: Any) -> np.ndarray[Any, Any]:
    """Return the value, the gradients and a second derivative, in one row."""
    first = loss.grad(variables)
    again = us.sum(us.stack([us.sum(g * g) for g in first])).grad(variables, unconnected="zeros")
    return np.concatenate([np.ravel(part) for part in us.eval([loss, *first, *again])])
