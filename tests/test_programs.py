"""Random programs: the engine, the tape and plain NumPy must agree, wherever values are looked at on the way.

A program builds tensors from three leaves with operations drawn at random, looks at some of them in the middle, forgets
some and goes on with the others. What it means must not depend on any of that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import unspool as us

SIZE = 3
LEAVES = (
    np.array([0.5, -1.25, 2.0]),
    np.array([[1.0, 0.25, -0.5], [0.75, -1.0, 0.5], [0.25, 1.5, 1.0]]),
    np.array(0.75),
)

UNARY = ["sin", "tanh", "exp_small", "square", "negative", "transpose", "flip", "half", "running"]
BINARY = ["add", "subtract", "multiply", "maximum", "where", "divide_safe"]
MIXED = ["matvec", "outer", "sum", "mean", "row", "updated"]

STEP = st.tuples(
    st.sampled_from(UNARY + BINARY + MIXED), st.integers(0, 50), st.integers(0, 50), st.booleans(), st.booleans()
)


def apply(xp: Any, name: str, a: Any, b: Any) -> Any:
    """Return one operation on two values, on NumPy arrays or on tensors alike."""
    if name in ("sin", "tanh", "square", "negative"):
        return getattr(xp, name)(a)
    if name == "exp_small":
        return xp.exp(xp.tanh(a))
    if name == "transpose":
        return a.T
    if name == "flip":
        return a[::-1] if a.ndim else a
    if name == "half":
        return 0.5 * a
    if name == "running":
        return xp.cumsum(a, axis=0) if a.ndim else a
    if name in ("add", "subtract", "multiply", "maximum"):
        return getattr(xp, name)(a, b)
    if name == "where":
        return xp.where(a > b, a, 2.0 * b)
    if name == "divide_safe":
        return a / (1.5 + xp.square(b))
    if name == "matvec":
        return a @ b if a.ndim and b.ndim else a * b
    if name == "outer":
        return xp.einsum("i,j->ij", a, b) if a.ndim == b.ndim == 1 else a + b
    if name == "sum":
        return xp.sum(a, axis=-1) if a.ndim else a
    if name == "mean":
        return xp.mean(a) * b
    if name == "row":
        return a[1] if a.ndim else a
    return _updated(a, b)


def _updated(a: Any, b: Any) -> Any:
    if not a.ndim:
        return a
    if isinstance(a, us.Tensor):
        return a.at[0].add(us.sum(b))
    new = np.array(a)
    new[0] += np.sum(b)
    return new


def run(steps: list[Any], leaves: list[Any]) -> tuple[Any, Any]:
    """Run a program on tensors and on arrays side by side; return the last value of each, summed up."""
    tensors, arrays = list(leaves), [np.asarray(leaf.eval()) for leaf in leaves]
    for name, i, j, look, forget in steps:
        i, j = i % len(tensors), j % len(tensors)
        tensor, array = apply(us, name, tensors[i], tensors[j]), apply(np, name, arrays[i], arrays[j])
        assert tensor.shape == np.shape(array)
        if np.max(np.abs(array), initial=0.0) > 1e3:
            continue
        if look:
            np.testing.assert_allclose(tensor.eval(), array, rtol=1e-11, atol=1e-11)
        if forget and len(tensors) > 3:
            del tensors[3], arrays[3]
        tensors.append(tensor)
        arrays.append(np.asarray(array))
    total = us.sum(tensors[-1] * tensors[-1]) + us.sum(tensors[0] * tensors[len(tensors) // 2])
    return total, np.sum(arrays[-1] ** 2) + np.sum(arrays[0] * arrays[len(arrays) // 2])


@settings(max_examples=300)
@given(st.lists(STEP, min_size=1, max_size=12))
def test_values_and_derivatives_agree_however_the_program_is_looked_at(steps: list[Any]) -> None:
    leaves = [us.tensor(data) for data in LEAVES]
    loss, expected = run(steps, leaves)
    np.testing.assert_allclose(float(loss), expected, rtol=1e-10, atol=1e-10)

    unseen = [(name, i, j, False, forget) for name, i, j, _, forget in steps]
    fresh = [us.tensor(data) for data in LEAVES]
    quiet, _ = run(unseen, fresh)
    for leaf, other in zip(leaves, fresh, strict=True):
        gradient = loss.grad(leaf, unconnected="zeros")  # a program may do without a leaf
        np.testing.assert_array_equal(gradient.eval(), us.eval(quiet, quiet.grad(other, unconnected="zeros"))[1])
        _agrees_with_the_tape(loss, leaf, gradient)
        _agrees_with_the_tape(us.sum(us.sin(gradient)), leaf)


def _agrees_with_the_tape(loss: us.Tensor, leaf: us.Tensor, gradient: us.Tensor | None = None) -> None:
    found = (loss.grad(leaf, unconnected="zeros") if gradient is None else gradient).eval()
    tape = us.Tape([loss, leaf])
    by_tape = tape.backward_dense_all(loss, np.ones(()))[tape.id_of(leaf)]
    np.testing.assert_allclose(found, by_tape, rtol=1e-10, atol=1e-10)
