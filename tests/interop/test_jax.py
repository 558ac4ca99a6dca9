"""Between JAX and us: values and derivatives are those of the same function written in one library."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool.errors import ArgumentError

jax = pytest.importorskip("jax")
jnp = jax.numpy

rng = np.random.default_rng(0)
X, W = rng.normal(size=4), rng.normal(size=(4, 4))
Z = rng.normal(size=3) + 1j * rng.normal(size=3)


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def ours(x: Any, w: Any, steps: int = 3, *, scale: float = 1.0) -> Any:
    for _ in range(steps):
        x = us.tanh(w @ x) * scale
    return {"state": x, "norm": us.sum(x * x)}


def theirs(x: Any, w: Any, steps: int = 3, *, scale: float = 1.0) -> Any:
    for _ in range(steps):
        x = jnp.tanh(w @ x) * scale
    return {"state": x, "norm": jnp.sum(x * x)}


def loss_of(f: Any) -> Any:
    def loss(x: Any, w: Any) -> Any:
        result = f(x, w, 4, scale=1.1)
        return result["norm"] + jnp.sum(result["state"]) ** 3

    return loss


def gradient(loss: Any) -> Any:
    return jax.grad(loss, (0, 1))


def second(loss: Any) -> Any:
    return gradient(lambda x, w: sum(jnp.sum(g**2) for g in gradient(loss)(x, w)))


TRANSFORMS = {
    "value": lambda loss: loss,
    "gradient": gradient,
    "second derivative": second,
    "compiled": lambda loss: jax.jit(loss),
    "compiled gradient": lambda loss: jax.jit(gradient(loss)),
    "compiled second derivative": lambda loss: jax.jit(second(loss)),
    "mapped": lambda loss: lambda x, w: jax.vmap(loss, (0, None))(jnp.stack([x, 2.0 * x]), w),
    "mapped gradient": lambda loss: lambda x, w: jax.vmap(gradient(loss), (0, None))(jnp.stack([x, 2.0 * x]), w),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_loop_of_ours_is_transformed_by_jax(name: str) -> None:
    transform = TRANSFORMS[name]
    found = transform(loss_of(us.interop.jax.wrap(ours)))(X, W)
    expected = transform(loss_of(theirs))(X, W)
    jax.tree_util.tree_map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9), found, expected)


@pytest.mark.parametrize("compiled", [False, True])
def test_complex_gradients_are_in_their_convention(compiled: bool) -> None:
    wrapped = us.interop.jax.wrap(lambda z: us.exp(z) * z[0])
    found = jax.grad(lambda z: jnp.real(jnp.sum(wrapped(z) ** 2)))
    expected = jax.grad(lambda z: jnp.real(jnp.sum((jnp.exp(z) * z[0]) ** 2)))(jnp.asarray(Z))
    np.testing.assert_allclose((jax.jit(found) if compiled else found)(jnp.asarray(Z)), expected, rtol=1e-12)


def test_a_loop_that_stops_on_a_value_is_differentiated_and_not_compiled() -> None:
    def halved(x: Any) -> Any:
        while float(x) > 1.0:
            x = x / 2.0
        return x

    wrapped = us.interop.jax.wrap(halved)
    assert float(jax.grad(wrapped)(5.0)) == 0.125
    with pytest.raises(ArgumentError, match="JAX needs shapes before there are values"):
        jax.jit(wrapped)(5.0)


def test_single_precision_stays_single() -> None:
    with jax.enable_x64(False):
        value, slope = jax.value_and_grad(us.interop.jax.wrap(lambda x: us.sum(us.sin(x))))(jnp.ones(3))
    assert value.dtype == slope.dtype == np.float32
    np.testing.assert_allclose(slope, np.cos(np.ones(3)), rtol=1e-6)


def test_whole_numbers_have_no_cotangent() -> None:
    picked = us.interop.jax.wrap(lambda x, i: x[i] * 2.0)
    found = jax.grad(lambda x: picked(x, jnp.asarray(1)))(jnp.asarray([1.0, 2.0]))
    assert found.tolist() == [0.0, 2.0]


def test_a_function_of_jax_is_differentiated_by_us_twice() -> None:
    lifted = us.interop.jax.lift(theirs)

    def loss(x: Any, w: Any) -> Any:
        result = lifted(x, w, 2, scale=1.1)
        return us.sum(result["state"] ** 3) * result["norm"]

    assert us.check_grad(loss, X, W, order=2).ok


def test_a_complex_function_of_jax() -> None:
    lifted = us.interop.jax.lift(lambda z: jnp.exp(z) * z[0])
    assert us.check_grad(lambda z: us.real(us.sum(lifted(z))), Z).ok


def test_a_function_of_jax_stands_in_a_loop_of_ours() -> None:
    step = us.interop.jax.lift(lambda x: jnp.tanh(jnp.asarray(W) @ x))
    x = start = us.tensor(X)
    for _ in range(30):
        x = 0.5 * x + step(x)
        float(us.sum(x))

    def plain(y: Any) -> Any:
        for _ in range(30):
            y = 0.5 * y + jnp.tanh(W @ y)
        return jnp.sum(y)

    np.testing.assert_allclose(us.sum(x).grad(start).eval(), jax.grad(plain)(jnp.asarray(X)), rtol=1e-9)


def test_arrays_go_both_ways() -> None:
    x = us.tensor(X)
    assert np.array_equal(jnp.from_dlpack(x), X)
    assert np.array_equal(us.from_dlpack(jnp.asarray(X)).eval(), X)
