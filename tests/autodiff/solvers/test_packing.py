"""States as vectors: what is packed comes back, as arrays and as graph, and norms are those of the state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool._autodiff.solvers.packing import Packing

STATES = {
    "vector": [np.arange(3.0)],
    "matrix": [np.arange(6.0).reshape(2, 3)],
    "scalar": [np.array(2.0)],
    "complex": [np.array([1 + 2j, 3 - 1j])],
    "mixed": [np.arange(3.0), np.array([[1 + 2j]]), np.array(7), np.array([True]), np.array(0.5)],
    "single": [np.arange(2, dtype=np.float32), np.array(1j, np.complex64)],
    "two precisions": [np.arange(2, dtype=np.float32), np.arange(2.0)],
    "empty leaf": [np.zeros((0, 2)), np.ones(2)],
    "no numbers": [np.array(3)],
}


@pytest.mark.parametrize("name", STATES)
def test_arrays_come_back_with_shape_dtype_and_value(name: str) -> None:
    state = STATES[name]
    packing = Packing(state)
    vector = packing.pack(state)
    assert (vector.shape, vector.dtype) == ((packing.size,), packing.dtype)
    assert_same(packing.unpack(vector, state), state)


@pytest.mark.parametrize("name", [name for name in STATES if name != "no numbers"])
def test_graph_packs_as_arrays_do(name: str) -> None:
    state = STATES[name]
    packing = Packing(state)
    tensors = [us.tensor(leaf) for leaf in state]
    vector = packing.pack_tensors(tensors)
    assert (vector.shape, vector.dtype) == ((packing.size,), packing.dtype)
    np.testing.assert_array_equal(vector.eval(), packing.pack(state))
    assert_same([leaf.eval() for leaf in packing.unpack_tensors(vector, tensors)], state)


def test_norm_of_the_vector_is_that_of_the_numbers_of_the_state() -> None:
    state = [np.array([3.0, 4.0]), np.array([5 + 12j]), np.array(1000)]
    assert np.linalg.norm(Packing(state).pack(state)) == pytest.approx(np.sqrt(25 + 169))


def test_coarsest_precision_decides() -> None:
    assert Packing(STATES["two precisions"]).coarsest == np.finfo(np.float32).eps
    assert Packing(STATES["two precisions"]).dtype == np.float64
    assert Packing(STATES["vector"]).coarsest == np.finfo(np.float64).eps


def assert_same(found: list[Any], expected: list[Any]) -> None:
    for leaf, wanted in zip(found, expected, strict=True):
        assert (leaf.shape, leaf.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_array_equal(leaf, wanted)
