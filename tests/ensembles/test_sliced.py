"""Contractions slice by slice: the value and all derivatives of the whole, within a budget, on any pool."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.ensembles.networks import lattice
from unspool.errors import ArgumentError, BudgetError, DTypeError, PoolError, ShapeError, UnknownSizeError

pytestmark = [pytest.mark.ecosystem, pytest.mark.filterwarnings("ignore")]
pytest.importorskip("cotengra")

RNG = np.random.default_rng(8)


def number_of_slices(result: us.Tensor) -> int:
    (node,) = [node for node in us._graph.ancestors([result]) if node.op.name == "slice_sum"]
    return len(node.attributes["slices"])


@pytest.mark.parametrize("dtype", [np.float64, np.complex128, np.float32])
def test_a_network_and_its_gradient_are_sums_over_slices(dtype: Any) -> None:
    expression, arrays = lattice(3, 4, dtype)
    tensors = [us.tensor(x) for x in arrays]
    whole = us.einsum(expression, *tensors)
    found = us.sliced(expression, *tensors, slices=20)
    assert number_of_slices(found) >= 20
    assert found.dtype == whole.dtype
    tolerance = 1e-4 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(found.eval(), np.einsum(expression, *arrays, optimize="greedy"), rtol=tolerance)
    pairs = zip(us.eval(us.real(found).grad(tensors)), us.eval(us.real(whole).grad(tensors)), strict=True)
    for slope, expected in pairs:
        np.testing.assert_allclose(slope, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


def test_open_labels_stay_and_derivatives_go_on_to_any_order() -> None:
    a, b, c = (RNG.normal(size=(4, 4)) for _ in range(3))

    def whole(a: Any, b: Any, c: Any) -> us.Tensor:
        return us.sum(us.einsum("ij,jk,kl->il", a, b, c) ** 3)

    def by_slices(a: Any, b: Any, c: Any) -> us.Tensor:
        return us.sum(us.sliced("ij,jk,kl->il", a, b, c, slices=8) ** 3)

    for transform in (us.hessian, lambda f: us.jacfwd(us.jacfwd(f)), lambda f: us.jacrev(us.jacrev(f))):
        np.testing.assert_allclose(transform(by_slices)(a, b, c).eval(), transform(whole)(a, b, c).eval(), rtol=1e-10)
    us.check_grad(lambda p: by_slices(*p), [a, b, c], order=2)


def test_members_of_a_batch_are_contracted_one_by_one() -> None:
    a, b = RNG.normal(size=(3, 4, 5)), RNG.normal(size=(5, 4))
    found = us.vmap(us.grad(lambda a: us.sliced("ij,ji->", a, b, slices=4)))(a)
    np.testing.assert_allclose(found.eval(), np.broadcast_to(b.T, (3, 4, 5)))


def test_bits_do_not_depend_on_the_pool() -> None:
    expression, arrays = lattice(3, 4)
    tensors = [us.tensor(x) for x in arrays]

    def gradient(pool: Any) -> Any:
        found = us.sliced(expression, *tensors, slices=30, pool=pool)
        return us.eval([found, found.grad(tensors)])

    here = gradient(None)
    with ThreadPoolExecutor(3) as pool:
        there = gradient(pool)
    assert np.array_equal(here[0], there[0])
    assert all(np.array_equal(x, y) for x, y in zip(here[1], there[1], strict=True))


def test_the_same_slices_are_found_in_every_process() -> None:
    program = (
        "import unspool as us; from tests.ensembles.networks import lattice; e, arrays = lattice(4, 3);"
        "print(us.sliced(e, *arrays, memory='60kB').item().hex())"
    )
    found = set()
    for seed in ("0", "1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        found.add(done.stdout)
    assert len(found) == 1


@pytest.mark.parametrize("budget", ["1MB", "100kB"])
def test_workers_keep_to_their_budget_and_a_smaller_one_has_more_slices(budget: str) -> None:
    expression, arrays = lattice(4, 5)
    tensors = [us.tensor(x) for x in arrays]
    whole = us.einsum(expression, *tensors)
    with us.memory("1GB"):
        found = us.sliced(expression, *tensors, memory=budget)
        slope = found.grad(tensors[5]).eval()
    assert number_of_slices(found) >= {"1MB": 1, "100kB": 5}[budget]
    np.testing.assert_allclose(slope, whole.grad(tensors[5]).eval(), rtol=1e-9, atol=1e-12)


def test_a_budget_that_no_slice_keeps_is_refused_with_the_least_that_works() -> None:
    expression, arrays = lattice(2, 3)
    with pytest.raises(BudgetError, match="no slice of the contraction fits into 100 B: cut into") as caught:
        us.sliced(expression, *arrays, memory=100)
    found = us.sliced(expression, *arrays, memory=caught.value.least)
    np.testing.assert_allclose(found.eval(), np.einsum(expression, *arrays, optimize="greedy"), rtol=1e-10)


def test_axes_of_size_one_broadcast() -> None:
    a, b = us.tensor(RNG.normal(size=(3, 1))), us.tensor(RNG.normal(size=(5, 3)))
    found, whole = us.sliced("ij,ji->", a, b, slices=5), us.einsum("ij,ji->", a, b)
    np.testing.assert_allclose(found.eval(), whole.eval())
    np.testing.assert_allclose(found.grad(a).eval(), whole.grad(a).eval())


def test_labels_may_be_numbers_as_networks_with_many_of_them_need() -> None:
    a, b = RNG.normal(size=(4, 5)), RNG.normal(size=(5, 4))
    found = us.sliced(a, [100, 7], b, [7, 100], [], slices=5)
    assert number_of_slices(found) == 5
    np.testing.assert_allclose(found.eval(), np.trace(a @ b))


def test_a_path_of_ones_own_is_taken() -> None:
    a, b, c = (RNG.normal(size=(4, 4)) for _ in range(3))
    found = us.sliced("ij,jk,kl->il", a, b, c, slices=4, optimize=[(1, 2), (0, 1)])
    np.testing.assert_allclose(found.eval(), a @ b @ c)


class Lost:
    def submit(self, f: Any, *args: Any) -> Any:
        raise RuntimeError("closed")


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: us.sliced("ij,jk->ik", np.ones((2, 3)), np.ones((2, 3))), ShapeError, "'ij,jk->ik'"),
        (lambda: us.sliced("ij->", np.ones((2, 3)), slices=0), ArgumentError, "1 or more, got 0"),
        (lambda: us.sliced("ij->", np.ones((2, 3)), pool=3), ArgumentError, "the pool of us.sliced"),
        (lambda: us.sliced(np.ones(3), "i"), ShapeError, "interleaved form"),
        (lambda: us.sliced("ij->", np.ones((2, 3), int)), DTypeError, "real or complex"),
        (lambda: us.sliced("i->", us.placeholder(us.dims("n"))), UnknownSizeError, "sizes are known"),
        (lambda: us.sliced("ij->", np.ones((2, 3)), pool=Lost()).eval(), PoolError, "takes no task.*made at"),
    ],
)
def test_mistakes_are_told(call: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        call()
