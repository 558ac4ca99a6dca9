"""TensorLy with our backend: the numbers of its NumPy backend, and derivatives through its decompositions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import unspool as us

tl = pytest.importorskip("tensorly")
from tensorly.decomposition import parafac, tensor_train, tucker  # noqa: E402

rng = np.random.default_rng(0)
data = rng.normal(size=(4, 5, 3))


@pytest.fixture(autouse=True)
def backend() -> Iterator[None]:
    with tl.backend_context("unspool"):
        yield


def with_numpy(f: Callable[[Any], Any]) -> np.ndarray[Any, Any]:
    with tl.backend_context("numpy"):
        return np.asarray(f(data))


def test_the_backend_is_found_by_name() -> None:
    assert tl.get_backend() == "unspool"
    assert isinstance(tl.tensor([1.0, 2.0]), us.Tensor)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: tl.unfold(x, 1),
        lambda x: tl.tenalg.mode_dot(x, x[:2, :, 0], 1),
        lambda x: tl.tenalg.khatri_rao([x[:, :, 0], x[:, :, 1]]),
        lambda x: tl.tenalg.kronecker([x[:, :, 0], x[:, :, 1]]),
        lambda x: tl.norm(x, 2),
        lambda x: tl.tenalg.svd_interface(tl.unfold(x, 0), n_eigenvecs=2)[1],
        lambda x: tl.index_update(tl.copy(x), tl.index[0, :, 1], 2.0),
        lambda x: tl.clip(x, a_min=0.0),
        lambda x: tl.solve(tl.dot(tl.unfold(x, 0), tl.transpose(tl.unfold(x, 0))), x[:, :, 0]),
        lambda x: tl.tt_to_tensor(tensor_train(x, rank=[1, 2, 2, 1])),
        lambda x: tl.tucker_to_tensor(tucker(x, rank=[2, 2, 2], n_iter_max=3)),
        lambda x: tl.cp_to_tensor(parafac(x, rank=2, n_iter_max=3, init="svd", tol=0.0)),
    ],
)
def test_a_function_of_tensors_is_that_of_arrays(f: Callable[[Any], Any]) -> None:
    np.testing.assert_allclose(np.asarray(f(us.tensor(data))), with_numpy(f), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "decompose",
    [
        lambda x: tl.cp_to_tensor(parafac(x, rank=2, n_iter_max=4, init="svd", tol=0.0)),
        lambda x: tl.tucker_to_tensor(tucker(x, rank=[2, 2, 2], n_iter_max=3)),
        lambda x: tl.tt_to_tensor(tensor_train(x, rank=[1, 2, 2, 1])),
    ],
    ids=["parafac", "tucker", "tensor train"],
)
def test_a_decomposition_has_derivatives(decompose: Callable[[Any], Any]) -> None:
    weights, direction = rng.normal(size=data.shape), rng.normal(size=data.shape)
    x = us.tensor(data)
    slope = np.sum(us.sum(weights * decompose(x)).grad(x).eval() * direction)
    with tl.backend_context("numpy"):
        above, below = (np.sum(weights * decompose(data + h * direction)) for h in (1e-6, -1e-6))
    np.testing.assert_allclose(slope, (above - below) / 2e-6, rtol=1e-6)
