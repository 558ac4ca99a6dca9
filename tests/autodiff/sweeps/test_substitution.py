"""What transforms return is recorded on their arguments, not on what stood in for them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.closeness import close
from unspool import _trees as trees
from unspool._graph import Node, ancestors, source_of

X = np.array([0.3, -0.7, 1.1])
T = np.array([1.0, 0.5, -2.0])


def cubes(x: us.Tensor) -> us.Tensor:
    return us.sum(x * x * x)


def pair(x: us.Tensor) -> tuple[us.Tensor, dict[str, us.Tensor]]:
    return cubes(x), {"aux": us.exp(x)}


def applied(f: Callable[..., Any], x: us.Tensor) -> Any:
    out, pull = us.vjp(f, x)
    return out, pull(us.ones_like(out))


def pushed(f: Callable[..., Any], x: us.Tensor) -> Any:
    out, push = us.linearize(f, x)
    return out, push(T)


@us.custom_vjp
def root(x: us.Tensor) -> us.Tensor:
    return us.sqrt(us.abs(x))


root.defvjp(lambda x: (root.f(x), us.sqrt(us.abs(x))), lambda r, ct: (ct / (2 * r),))


@us.custom_jvp
def wave(x: us.Tensor) -> us.Tensor:
    return us.sin(x)


@wave.defjvp
def _(primals: Any, tangents: Any) -> Any:
    return wave(primals[0]), us.cos(primals[0]) * tangents[0]


@us.fragment
def bend(x: us.Tensor) -> us.Tensor:
    return us.tanh(x) * x


def iterated(adjoint: Any) -> Callable[[us.Tensor], us.Tensor]:
    def f(x: us.Tensor) -> us.Tensor:
        return us.sum(us.iterate(lambda y: us.cos(y) * 0.5 + x, x, max_steps=40, adjoint=adjoint)[0] ** 2)

    return f


def solved(x: us.Tensor) -> us.Tensor:
    return us.sum(us.linalg.solve(us.eye(3) * 2.0 + us.outer(x, x), x))


def decomposed(x: us.Tensor) -> us.Tensor:
    return us.sum(us.linalg.eigh(us.eye(3) + us.outer(x, x))[0] ** 2)


def read_in_a_loop(x: us.Tensor) -> us.Tensor:
    y = x
    for _ in range(80):
        y = us.tanh(y) + 0.1 * x
        if float(us.sum(y)) > 1e9:
            break
    return us.sum(y)


def drawn(x: us.Tensor) -> us.Tensor:
    return us.sum(x * us.random.normal(us.random.key(3), (3,)) * x)


TRANSFORMS: dict[str, Callable[[Callable[..., Any], us.Tensor], Any]] = {
    "grad": lambda f, x: us.grad(f)(x),
    "value_and_grad": lambda f, x: us.value_and_grad(f)(x),
    "has_aux": lambda f, x: us.value_and_grad(lambda x: (f(x), {"aux": us.exp(x)}), has_aux=True)(x),
    "vjp": applied,
    "jvp": lambda f, x: us.jvp(f, (x,), (T,)),
    "linearize": pushed,
    "hvp": lambda f, x: us.hvp(f, (x,), (T,)),
    "jacrev": lambda f, x: us.jacrev(f)(x),
    "jacfwd": lambda f, x: us.jacfwd(f)(x),
    "hessian": lambda f, x: us.hessian(f)(x),
    "grad of grad": lambda f, x: us.grad(lambda x: us.sum(us.grad(f)(x) ** 2))(x),
    "grad inside jvp": lambda f, x: us.jvp(us.grad(f), (x,), (T,)),
    "jvp inside grad": lambda f, x: us.grad(lambda x: us.jvp(f, (x,), (T,))[1])(x),
}

FUNCTIONS: dict[str, Callable[[us.Tensor], us.Tensor]] = {
    "products": cubes,
    "custom_vjp": lambda x: us.sum(root(x * x + 1.0)),
    "custom_jvp": lambda x: us.sum(wave(x) * x),
    "a fragment": lambda x: us.sum(bend(bend(x))),
    "several outputs": decomposed,
    "a factorisation": solved,
    "a draw": drawn,
    "iterate": iterated(us.Unrolled()),
    "iterate with checkpoints": iterated(us.Checkpointed(slots=4)),
    "a fixed point": iterated(us.Implicit()),
    "a loop that is read": read_in_a_loop,
}


def tensors_of(results: Any) -> list[Any]:
    return [leaf for leaf in trees.flatten(results)[0] if isinstance(leaf, Node)]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_no_stand_in_is_among_what_results_are_made_of(transform: str, function: str) -> None:
    x = us.tensor(X)
    found = tensors_of(TRANSFORMS[transform](FUNCTIONS[function], us.sin(x)))
    assert found
    assert "alias" not in {node.op.name for node in ancestors(found)}


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_the_same_derivative_of_the_same_tensor_is_the_same_tensor(transform: str) -> None:
    x = us.tensor(X)
    once, again = (tensors_of(TRANSFORMS[transform](cubes, x)) for _ in range(2))
    assert all(a is b for a, b in zip(once, again, strict=True))


def test_a_gradient_by_us_grad_is_the_one_that_is_written_out() -> None:
    x = us.tensor(X)
    assert us.grad(cubes)(x) is cubes(x).grad(x)
    assert us.value_and_grad(cubes)(x)[0] is cubes(x)


def test_a_result_that_is_the_argument_is_the_argument() -> None:
    x = us.tensor(X)
    out, pull = us.vjp(lambda x: x, x)
    ct = us.tensor(T)
    assert out is x
    assert pull(ct)[0] is ct


def test_partial_derivatives_stay_apart() -> None:
    x = us.tensor(X)
    left, right = us.grad(lambda a, b: us.sum(a * a * b), argnums=(0, 1))(x, x)
    close(left, 2 * X * X)
    close(right, X * X)
    y = us.exp(x)
    close(us.grad(lambda x: us.sum(x * y))(x), np.exp(X))
    close(us.grad(lambda x: us.sum(us.exp(x) * y))(x), np.exp(2 * X))
    by_x, by_y = us.grad(lambda x, y: us.sum(us.exp(x) * y), argnums=(0, 1))(x, y)
    close(by_x, np.exp(2 * X))
    close(by_y, np.exp(X))


def test_a_canonical_form_that_the_argument_allows_loses_no_derivative() -> None:
    m = us.tensor(np.outer(X, T))
    weights = np.arange(9.0).reshape(3, 3)
    close(us.grad(lambda t: us.sum(t.T * weights))(m.T), weights.T)
    close(us.grad(lambda t: us.sum(-t * weights))(-m), -weights)


def test_what_is_returned_beside_a_gradient_stays_what_it_is() -> None:
    marker = object()
    kept = [marker, 3]
    assert us.grad(lambda x: (us.sum(x), kept), has_aux=True)(us.tensor(X))[1] is kept
    x = us.tensor(X)
    aux = us.grad(lambda x: (us.sum(x), {"exp": us.exp(x), "marker": marker}), has_aux=True)(x)[1]
    assert aux["exp"] is us.exp(x)
    assert aux["marker"] is marker


def test_a_value_that_a_function_looks_at_is_computed_once() -> None:
    x = us.tensor(X)
    calls = []

    def kernel(x: Any) -> Any:
        calls.append(1)
        return np.sin(x)

    counted = us.op("counted_once", kernel=kernel, vjp=(lambda ct, out, x: ct * us.cos(x),))

    def f(x: us.Tensor) -> us.Tensor:
        y = counted(x)
        if float(us.sum(y)) > 100:
            return us.sum(x)
        return us.sum(y * y)

    value, gradient = us.value_and_grad(f)(x)
    close(value, np.sum(np.sin(X) ** 2))
    close(gradient, 2 * np.sin(X) * np.cos(X))
    assert len(calls) == 1


def test_derivatives_keep_the_lines_of_the_function() -> None:
    def f(x: us.Tensor) -> us.Tensor:
        y = us.exp(x)
        return us.sum(y)

    value, gradient = us.value_and_grad(f)(us.tensor(X))
    assert "return us.sum(y)" in source_of(value)
    assert {"y = us.exp(x)"} <= {source_of(node).split(": ", 1)[1] for node in ancestors([gradient]) if node.inputs}


def descended(slope: Callable[[us.Tensor], us.Tensor], read: bool) -> list[Any]:
    rate, start = us.tensor(0.05), us.tensor(X)
    w = start
    for _ in range(100):
        w = w - rate * slope(w)
        if read and float(us.sum(w)) > 1e9:
            break
    return us.eval(us.sum(w * w).grad([rate, start]))


def residual(w: us.Tensor) -> us.Tensor:
    return us.mean(us.tanh(w * T - 0.5) ** 2)


@pytest.mark.parametrize("read", [True, False])
def test_a_gradient_in_a_loop_has_the_bits_of_one_that_is_written_out(read: bool) -> None:
    by_function = descended(us.grad(residual), read)
    written_out = descended(lambda w: residual(w).grad(w), read)
    for a, b in zip(by_function, written_out, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_long_function_needs_no_recursion() -> None:
    def f(x: us.Tensor) -> us.Tensor:
        for _ in range(5000):
            x = us.sin(x) + x
        return us.sum(x)

    x = us.tensor(X)
    assert us.grad(f)(x) is us.grad(f)(x)


def test_threads_that_take_the_same_gradient_have_the_same_tensor() -> None:
    x = us.tensor(X)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: us.grad(cubes)(x), range(64)))
    assert all(gradient is found[0] for gradient in found)


@pytest.mark.parametrize("steps", [60, 200])
def test_a_function_that_is_read_has_its_gradient_within_a_budget(steps: int) -> None:
    def f(x: us.Tensor) -> us.Tensor:
        for _ in range(steps):
            x = us.tanh(x) * 1.1
            if float(us.sum(x)) > 1e9:
                break
        return us.sum(x)

    # A fourth of what the states take, or less.
    expected = us.grad(f)(us.tensor(np.linspace(-1.0, 1.0, 4096))).eval()
    with us.memory("500 kB"):
        found = us.grad(f)(us.tensor(np.linspace(-1.0, 1.0, 4096))).eval()
    np.testing.assert_array_equal(found, expected)
