"""Laws that hold for everything that only moves elements.

The backward pass is the transpose of the forward one, exactly; elements that did not get into the result are absent
from the gradient; and no rule looks at a value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unspool as us
from unspool._autodiff.sweeps.forward import pushforward
from unspool._autodiff.sweeps.reverse import pullback

Function = Callable[[Any], Any]

LINEAR: dict[str, Function] = {
    "reshape": lambda x: us.reshape(x, (-1, 1)),
    "transpose": us.transpose,
    "broadcast_to": lambda x: us.broadcast_to(x, (2, *x.shape)),
    "squeeze": lambda x: us.squeeze(us.expand_dims(x, 1), 1),
    "flip": us.flip,
    "roll": lambda x: us.roll(x, (1, -2), (0, -1)),
    "rot90": us.rot90,
    "concat": lambda x: us.concat([x, us.flip(x, 0), x], axis=1),
    "stack": lambda x: us.stack([x, -x], axis=1),
    "split": lambda x: us.array_split(x, 3)[1],
    "split and join": lambda x: us.concat(us.array_split(x, 2, axis=1)[::-1], axis=1),
    "tile": lambda x: us.tile(x, (2, 1, 3)),
    "tile no times": lambda x: us.tile(x, 0),
    "repeat": lambda x: us.repeat(x, 2, axis=1),
    "repeat each": lambda x: us.repeat(x, [i % 3 for i in range(x.shape[0])], axis=0),
    "pad": lambda x: us.pad(x, ((1, 0), (2, 1))),
    "edge": lambda x: us.pad(x, 2, "edge"),
    "reflect": lambda x: us.pad(x, ((3, 4), (1, 0)), "reflect"),
    "symmetric": lambda x: us.pad(x, ((3, 4), (1, 0)), "symmetric"),
    "wrap": lambda x: us.pad(x, ((3, 4), (1, 0)), "wrap"),
    "diagonal": us.diagonal,
    "diagonal above": lambda x: us.diagonal(x, 1),
    "diagflat": us.diagflat,
    "tril": us.tril,
    "triu": lambda x: us.triu(x, -1),
    "trace": us.trace,
    "meshgrid": lambda x: us.meshgrid(us.ravel(x), [1.0, 2.0])[0],
    "kron": lambda x: us.kron(x, [[1.0, 2.0], [3.0, 4.0]]),
}

EVERY = pytest.mark.parametrize("function", LINEAR.values(), ids=LINEAR.keys())
SHAPES = st.tuples(st.integers(1, 4), st.integers(1, 3))


def whole_numbers(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).integers(-8, 9, shape).astype(float)


@EVERY
@settings(max_examples=20)
@given(shape=SHAPES, seed=st.integers(0, 2**20))
def test_the_reverse_sweep_is_the_transpose_of_the_forward_sweep(function: Function, shape: Any, seed: int) -> None:
    x, direction = us.tensor(whole_numbers(seed, *shape)), us.tensor(whole_numbers(seed + 1, *shape))
    out = function(x)
    weights = us.tensor(whole_numbers(seed + 2, *out.shape))
    (moved,) = pushforward([out], [x], [direction])
    (pulled,) = pullback([out], [weights], [x])
    forward = 0.0 if moved is None else np.vdot(weights.eval(), moved.eval())
    backward = 0.0 if pulled is None else np.vdot(pulled.eval(), direction.eval())
    assert forward == backward
    np.testing.assert_array_equal(moved.eval(), function(direction).eval())


@EVERY
def test_the_transpose_of_the_transpose_is_the_function(function: Function) -> None:
    x = us.tensor(whole_numbers(0, 3, 2))
    out = function(x)
    weights = us.tensor(whole_numbers(1, *out.shape))
    (pulled,) = pullback([out], [weights], [x])
    direction = us.tensor(whole_numbers(2, 3, 2))
    (twice,) = pullback([pulled], [direction], [weights])
    np.testing.assert_array_equal(twice.eval(), function(direction).eval())


DROPPING: dict[str, tuple[Function, Any]] = {
    "split": (lambda x: us.split(x, 2)[1], [False, False, True, True]),
    "two of three": (lambda x: us.concat(us.split(x, [1, 2])[::2]), [True, False, True, True]),
    "unstack": (lambda x: us.unstack(x)[3], [False, False, False, True]),
    "repeat": (lambda x: us.repeat(x, [1, 0, 2, 0]), [True, False, True, False]),
    "repeat no times": (lambda x: us.repeat(x, 0), [False] * 4),
    "tile no times": (lambda x: us.tile(x, (3, 0)), [False] * 4),
    "diagonal": (lambda x: us.diagonal(us.reshape(x, (2, 2))), [True, False, False, True]),
    "tril": (lambda x: us.tril(us.reshape(x, (2, 2))), [True, False, True, True]),
    "triu": (lambda x: us.triu(us.reshape(x, (2, 2)), 1), [False, True, False, False]),
    "split of wrapped": (lambda x: us.split(us.pad(x, (1, 0), "wrap"), [1])[0], [False, False, False, True]),
    "split of edge": (lambda x: us.split(us.pad(x, (3, 0), "edge"), [2])[0], [True, False, False, False]),
    "masked inside split": (lambda x: us.triu(us.stack(us.split(x, 2))), [True, True, False, True]),
    "flipped": (lambda x: us.split(us.flip(x), 2)[0], [False, False, True, True]),
    "rolled": (lambda x: us.split(us.roll(x, 1), [3])[1], [False, False, True, False]),
    "padded": (lambda x: us.split(us.pad(x, 1), [2, 3])[1], [False, True, False, False]),
    "joined": (lambda x: us.split(us.concat([x, x]), [2, 5])[1], [True, False, True, True]),
    "embedded": (lambda x: us.tril(us.diag(x), -1), [False] * 4),
    "transposed": (lambda x: us.tril(us.transpose(us.reshape(x, (2, 2)))), [True, True, False, True]),
}


@pytest.mark.parametrize(("function", "kept"), DROPPING.values(), ids=DROPPING.keys())
def test_elements_that_were_dropped_are_absent_and_not_zero(function: Function, kept: Any) -> None:
    # The square root has an infinite slope at 0: a zero that was multiplied by it would give NaN.
    x = us.tensor(np.where(kept, 4.0, 0.0))
    gradient = us.sum(function(us.sqrt(x))).grad(x).eval()
    assert np.all(np.isfinite(gradient))
    np.testing.assert_array_equal(gradient != 0, kept)


@pytest.mark.parametrize("mode", ["edge", "reflect", "symmetric", "wrap"])
def test_copies_behind_a_mask_are_not_added(mode: str) -> None:
    x = us.tensor([1.0, 2.0, 3.0])
    weights = us.tensor([np.inf, 1.0, 1.0, 1.0, np.inf])
    keep = us.tensor([False, True, True, True, False])
    chosen = us.where(keep, us.pad(x, 1, mode) * weights, 0.0)
    np.testing.assert_array_equal(us.sum(chosen).grad(x).eval(), [1, 1, 1])


FILLING: dict[str, Function] = {
    "pad": lambda x: us.pad(x, 1),
    "diag": us.diag,
    "concat": lambda x: us.concat([x, [0.0, 0.0]]),
    "stack": lambda x: us.stack([[0.0, 0.0], x]),
    "tril": lambda x: us.tril(us.reshape(us.tile(x, 2), (2, 2))),
    "moved": lambda x: us.roll(us.flip(us.permute_dims(us.reshape(us.pad(x, 1), (2, 2)), (1, 0))), 1, 0),
    "split": lambda x: us.split(us.pad(x, 1), 2)[0],
    "copied": lambda x: us.pad(us.pad(x, 1), 1, "wrap"),
    "repeated": lambda x: us.repeat(us.pad(x, 1), [1, 0, 2, 3]),
    "broadcast": lambda x: us.broadcast_to(us.pad(x, 1), (2, 4)),
    "diagonal": lambda x: us.diagonal(us.reshape(us.pad(x, 1), (2, 2)), 1),
    "joined": lambda x: us.concat([us.pad(x, 1), x, [0.0]]),
}


@pytest.mark.parametrize("function", FILLING.values(), ids=FILLING.keys())
def test_elements_that_were_filled_in_do_not_move(function: Function) -> None:
    x = us.tensor([1.0, 4.0])
    before = function(x)
    (moved,) = pushforward([us.sqrt(before)], [x], [us.tensor([1.0, 1.0])])
    value = before.eval()
    expected = np.where(value > 0, 0.5 / np.sqrt(np.where(value > 0, value, 1.0)), 0.0)
    np.testing.assert_array_equal(moved.eval(), expected)


def test_a_dropped_element_stays_absent_to_second_order() -> None:
    x = us.tensor([0.0, 4.0])
    first = us.sum(us.split(us.sqrt(x), 2)[1]).grad(x)
    np.testing.assert_allclose(us.sum(first).grad(x).eval(), [0, -1 / 32])


@EVERY
def test_rules_look_at_no_value(function: Function) -> None:
    x = us.placeholder((3, 2))
    out = function(x)
    ct = us.placeholder(out.shape)
    (pulled,) = pullback([out], [ct], [x])
    pulled.eval({ct: np.ones(out.shape)})
