"""Random keys in batches: a key along an axis is split among members, and each draws what it would draw alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool.errors import ArgumentError

KEY = us.random.key(7)


def noisy(key: us.random.Key, x: us.Tensor) -> us.Tensor:
    first, second = us.random.split(key)
    return x * us.random.normal(first, (2,)) + us.random.uniform(us.random.fold_in(second, 3), (2,))


DRAWS = [
    lambda key: us.random.normal(key, (2, 3)),
    lambda key: us.random.normal(key, (2,), "complex128"),
    lambda key: us.random.uniform(key, ()),
    lambda key: us.random.randint(key, (4,), 0, 10),
    lambda key: us.random.permutation(key, 5),
    lambda key: us.random.gamma(key, 2.5, (3,)),
    lambda key: us.random.poisson(key, 4.0, (3,)),
    lambda key: us.random.categorical(key, np.zeros((2, 3))),
]


@pytest.mark.parametrize("draw", DRAWS)
def test_members_draw_with_the_keys_of_a_split(draw: Any) -> None:
    found = us.vmap(draw, axis_size=4)(KEY)
    np.testing.assert_array_equal(found.eval(), [draw(key).eval() for key in us.random.split(KEY, 4)])


def test_counts_have_the_key_and_the_mean_of_their_member() -> None:
    means = np.array([1.0, 50.0, 2000.0])
    found = us.vmap(lambda key, mean: us.random.poisson(key, mean, (2,)))(KEY, means)
    keys = us.random.split(KEY, 3)
    expected = [us.random.poisson(key, mean, (2,)).eval() for key, mean in zip(keys, means, strict=True)]
    np.testing.assert_array_equal(found.eval(), expected)
    common = us.vmap(lambda mean: us.random.poisson(KEY, mean, (2,)))(means)
    np.testing.assert_array_equal(common.eval(), [us.random.poisson(KEY, mean, (2,)).eval() for mean in means])


def test_keys_that_a_member_derives_are_its_own() -> None:
    xs = np.arange(6.0).reshape(3, 2)
    found = us.vmap(noisy)(KEY, xs)
    keys = us.random.split(KEY, 3)
    np.testing.assert_array_equal(found.eval(), [noisy(k, us.tensor(x)).eval() for k, x in zip(keys, xs, strict=True)])


def test_batches_inside_of_batches_split_the_keys_of_their_members() -> None:
    xs = np.arange(12.0).reshape(2, 3, 2)
    found = us.vmap(us.vmap(noisy))(KEY, xs).eval()
    for i, key in enumerate(us.random.split(KEY, 2)):
        for j, own in enumerate(us.random.split(key, 3)):
            np.testing.assert_array_equal(found[i, j], noisy(own, us.tensor(xs[i, j])).eval())


def test_members_that_share_a_key_make_the_same_draws() -> None:
    found = us.vmap(noisy, in_axes=(None, 0))(KEY, np.ones((3, 2))).eval()
    np.testing.assert_array_equal(found, np.tile(found[0], (3, 1)))


def test_the_gradient_of_noise_is_that_of_each_member() -> None:
    xs = np.ones((3, 2))
    found = us.vmap(us.grad(lambda x, key: us.sum(noisy(key, x))))(xs, KEY)
    expected = [us.random.normal(us.random.split(key)[0], (2,)).eval() for key in us.random.split(KEY, 3)]
    np.testing.assert_array_equal(found.eval(), expected)


def test_how_many_members_share_a_key_has_to_be_known() -> None:
    with pytest.raises(ArgumentError, match="axis_size"):
        us.vmap(lambda key: us.random.normal(key, ()))(KEY)
