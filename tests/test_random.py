"""Random draws: the same at every evaluation, independent between keys, distributed as they should be."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import scipy.stats

import unspool as us
from unspool.errors import ArgumentError, DTypeError, MutationError, ShapeError

MANY = 20_000

PRINT_DRAWS = """
import unspool as us
first, second = us.random.split(us.random.key(7))
print(us.random.normal(first, (3,)).tolist(), us.random.uniform(second, (2,)).tolist())
print(us.random.permutation(us.random.fold_in(first, 3), 6).tolist(), first)
"""


# --- the same numbers ------------------------------------------------------------------------------------------------


def test_a_draw_is_the_same_at_every_evaluation() -> None:
    noise = us.random.normal(us.random.key(0), (4,))
    first = noise.eval().copy()
    del noise
    np.testing.assert_array_equal(us.random.normal(us.random.key(0), (4,)).eval(), first)


def test_a_draw_under_a_binding_is_the_same_every_time() -> None:
    n = us.dims("n")
    x = us.placeholder((n,))
    out = x + us.random.normal(us.random.key(0), (n,))
    np.testing.assert_array_equal(out.eval({x: np.zeros(3)}), us.random.normal(us.random.key(0), (3,)).eval())
    np.testing.assert_array_equal(out.eval({x: np.zeros(5)}), us.random.normal(us.random.key(0), (5,)).eval())


def test_draws_are_the_same_in_every_process() -> None:
    def run(hash_seed: str) -> str:
        command = [sys.executable, "-c", PRINT_DRAWS]
        variables = {**os.environ, "PYTHONHASHSEED": hash_seed}
        return subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout

    assert run("1") == run("2") != ""


def test_draws_are_the_same_in_every_thread() -> None:
    def draw(_: int) -> Any:
        return us.random.normal(us.random.key(5), (1000,)).eval()

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(draw, range(16)))
    for result in results:
        np.testing.assert_array_equal(result, results[0])


# --- nodes -----------------------------------------------------------------------------------------------------------


def test_draws_with_different_keys_never_merge() -> None:
    first, second = us.random.split(us.random.key(0))
    a, b = us.random.normal(first, (3,)), us.random.normal(second, (3,))
    assert a is not b
    assert not np.any(us.eval(a - b) == 0)
    assert us.random.normal(first, (3,)) is a


def test_building_a_draw_computes_nothing() -> None:
    assert us.random.normal(us.random.key(0), (10**6, 10**6)).shape == (10**6, 10**6)


def test_noise_lets_derivatives_through() -> None:
    x = us.tensor([1.0, 2.0, 3.0])
    noise = us.random.normal(us.random.key(0), (3,))
    slope = us.sum((x + noise) ** 2).grad(x)
    np.testing.assert_allclose(slope.eval(), 2 * (x.eval() + noise.eval()))


def test_an_interval_is_differentiable_in_its_ends() -> None:
    key = us.random.key(1)
    low, high = us.tensor(2.0), us.tensor(5.0)
    unit = us.random.uniform(key, (4,)).eval()
    drawn = us.random.uniform(key, (4,), low=low, high=high)
    np.testing.assert_allclose(drawn.eval(), 2 + 3 * unit)
    np.testing.assert_allclose(us.eval(us.sum(drawn).grad([low, high])), [np.sum(1 - unit), np.sum(unit)])


# --- keys ------------------------------------------------------------------------------------------------------------


def test_keys_are_values() -> None:
    key = us.random.key(3)
    assert key == us.random.key(3)
    assert hash(key) == hash(us.random.key(3))
    assert key != us.random.key(4)
    assert pickle.loads(pickle.dumps(key)) == key
    assert eval(repr(key), {"Key": us.random.Key}) == key
    with pytest.raises(MutationError, match="split"):
        key.bits = 4  # type: ignore[misc]


def test_derived_keys_are_all_different() -> None:
    root = us.random.key(0)
    keys = {root, *us.random.split(root, 100), *(us.random.fold_in(root, i) for i in range(-50, 50))}
    keys |= {us.random.key(seed) for seed in range(1, 100)}
    assert len(keys) == 1 + 100 + 100 + 99
    assert us.random.split(root, 3)[:2] == us.random.split(root, 2)
    assert us.random.split(root, 0) == ()


def test_seeds_of_any_size_are_keys() -> None:
    assert len({us.random.key(seed) for seed in (0, -1, 2**64, 2**200, np.int32(5))}) == 5


# --- distributions ---------------------------------------------------------------------------------------------------


def test_normal_numbers_are_normal() -> None:
    for dtype in ("float32", "float64"):
        drawn = us.random.normal(us.random.key(0), (MANY,), dtype).eval()
        assert drawn.dtype == dtype
        assert scipy.stats.kstest(drawn.astype(float), "norm").pvalue > 0.01


def test_complex_normal_numbers_have_unit_mean_square() -> None:
    for dtype in ("complex64", "complex128"):
        z = us.random.normal(us.random.key(0), (MANY,), dtype).eval()
        assert z.dtype == dtype
        for part in (z.real, z.imag):
            assert scipy.stats.kstest(part.astype(float) * np.sqrt(2), "norm").pvalue > 0.01
        assert abs(np.corrcoef(z.real, z.imag)[0, 1]) < 0.02


def test_uniform_numbers_are_uniform() -> None:
    drawn = us.random.uniform(us.random.key(0), (MANY,), low=-1.0, high=3.0).eval()
    assert scipy.stats.kstest(drawn, "uniform", (-1, 4)).pvalue > 0.01
    assert us.random.uniform(us.random.key(0), (2,), "float32", 0.5, 2.0).dtype == np.float32


@pytest.mark.parametrize("derive", [us.random.split, lambda key, n: [us.random.fold_in(key, i) for i in range(n)]])
def test_streams_of_derived_keys_are_independent(derive: Any) -> None:
    root = us.random.key(2)
    streams = np.stack([us.random.normal(k, (MANY,)).eval() for k in (root, *derive(root, 4))])
    correlations = np.corrcoef(streams) - np.eye(len(streams))
    assert np.abs(correlations).max() < 5 / np.sqrt(MANY)
    # One number from each of many streams is as good as many numbers from one stream.
    across = us.eval([us.random.normal(k) for k in derive(root, 2000)])
    assert scipy.stats.kstest(np.array(across), "norm").pvalue > 0.01


def test_integers_cover_their_range_evenly() -> None:
    drawn = us.random.randint(us.random.key(0), (MANY,), -2, 3).eval()
    values, counts = np.unique(drawn, return_counts=True)
    assert values.tolist() == [-2, -1, 0, 1, 2]
    assert scipy.stats.chisquare(counts).pvalue > 0.01
    assert us.random.randint(us.random.key(0), (), 0, 2**31, "int32").dtype == np.int32


def test_a_permutation_is_a_permutation() -> None:
    order = us.random.permutation(us.random.key(0), 50)
    assert order.dtype == np.int64
    assert sorted(order.tolist()) == list(range(50)) != order.tolist()
    rows = np.arange(12.0).reshape(6, 2)
    mixed = us.random.permutation(us.random.key(0), rows)
    np.testing.assert_array_equal(mixed.eval(), rows[us.random.permutation(us.random.key(0), 6).eval()])
    assert us.random.permutation(us.random.key(0), 0).eval().shape == (0,)


def test_coins_and_signs_have_their_probabilities() -> None:
    coins = us.random.bernoulli(us.random.key(0), [0.2, 0.7], (MANY, 2))
    assert coins.dtype == bool
    np.testing.assert_allclose(coins.eval().mean(axis=0), [0.2, 0.7], atol=0.02)
    signs = us.random.rademacher(us.random.key(0), (MANY,), "float32")
    assert signs.dtype == np.float32
    assert set(np.unique(signs.eval())) == {-1.0, 1.0}
    assert abs(signs.eval().mean()) < 0.03


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        (lambda: us.random.normal(0, (3,)), DTypeError, r"got 0; make one with us\.random\.key\(0\)"),
        (lambda: us.random.split(42), DTypeError, r"us\.random\.key\(42\)"),
        (lambda: us.random.uniform("seed", (3,)), DTypeError, r"us\.random\.key\(0\)"),
        (lambda: us.random.key(0.5), DTypeError, "a seed is an integer, got 0.5"),
        (lambda: us.random.normal(us.random.key(0), (3,), "int64"), DTypeError, "normal draws numbers of dtype"),
        (lambda: us.random.uniform(us.random.key(0), (3,), "complex128"), DTypeError, "uniform draws"),
        (lambda: us.random.uniform(us.random.key(0), (), low=[0.0, 1.0]), ShapeError, "broadcast"),
        (lambda: us.random.randint(us.random.key(0), (3,), 2, 2), ArgumentError, "low=2 and high=2"),
        (lambda: us.random.randint(us.random.key(0), (3,), 0, 2**40, "int32"), ArgumentError, "int32"),
        (lambda: us.random.randint(us.random.key(0), (3,), 0, 2, "float64"), DTypeError, "randint draws integers"),
        (lambda: us.random.permutation(us.random.key(0), 1.5), ShapeError, "at least one axis"),
        (lambda: us.random.permutation(us.random.key(0), -1), ShapeError, "at least 0"),
        (lambda: us.random.split(us.random.key(0), -1), ArgumentError, "at least 0"),
        (lambda: us.random.normal(us.random.key(0), -1), ShapeError, "at least 0"),
    ],
)
def test_misuse_is_refused_when_it_is_built(build: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        build()
