"""Random numbers in native programs are those of NumPy's generator, for every key, dtype and shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.engine.backends.test_native import assert_same, both_ways
from unspool import _graph
from unspool._engine.backends import native, native_random
from unspool._engine.backends.native_program import DRAW, IN_INPUT
from unspool._fragments.fragment import capture
from unspool._native import Program
from unspool._ops.random import NORMAL

pytestmark = pytest.mark.skipif(native.WHY_NOT is not None, reason=f"the native backend does not run: {native.WHY_NOT}")

DRAWS: dict[str, Callable[[Any, Any], Any]] = {
    "normal": lambda key, shape: us.random.normal(key, shape),
    "normal, single": lambda key, shape: us.random.normal(key, shape, dtype=us.float32),
    "normal, complex": lambda key, shape: us.random.normal(key, shape, dtype=us.complex128),
    "normal, complex, single": lambda key, shape: us.random.normal(key, shape, dtype=us.complex64),
    "uniform": lambda key, shape: us.random.uniform(key, shape),
    "uniform, single": lambda key, shape: us.random.uniform(key, shape, dtype=us.float32),
    "integers": lambda key, shape: us.random.randint(key, shape, -5, 1000),
    "large integers": lambda key, shape: us.random.randint(key, shape, 0, 2**40),
    "one integer": lambda key, shape: us.random.randint(key, shape, 3, 4),
    "permutation": lambda key, shape: us.random.permutation(key, int(np.prod(shape))),
}


@pytest.mark.parametrize("shape", [(), (1,), (3,), (7, 5), (3000,)], ids=str)
@pytest.mark.parametrize("name", DRAWS)
def test_draws_are_those_of_numpy(name: str, shape: tuple[int, ...]) -> None:
    for seed in range(8):
        drawn = DRAWS[name](us.random.key(seed), shape)
        captured = capture([], [drawn])
        values = [np.asarray(node.eval()) for node in captured.inputs]
        made = both_ways(captured.fragment, values)
        assert made is not None
        program, run, calls = made
        assert program.calls_back == (name == "normal, complex, single")
        assert_same(program(*values), run(*values))
        assert calls.count == 0


def test_steps_of_a_loop_draw_with_their_own_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    def walk() -> Any:
        us.clear_caches()
        x, scale = us.zeros(4), us.tensor(0.5)
        for k in range(80):
            key = us.random.fold_in(us.random.key(3), k)
            x = us.tanh(x + scale * us.random.normal(key, (4,)))
            x.eval()
        return us.eval([x, us.sum(x * x).grad(scale)])

    ours = walk()
    monkeypatch.setattr(native, "WHY_NOT", "a test")
    for a, b in zip(ours, walk(), strict=True):
        assert a.tobytes() == b.tobytes()


def test_each_key_of_a_stack_is_at_the_beginning_of_its_stream() -> None:
    keys = us.tensor(np.random.default_rng(0).integers(-(2**62), 2**62, size=(5, 3, 2)))
    drawn = _graph.apply(NORMAL, keys, shape=(6,), dtype=np.dtype(float))
    made = both_ways(capture([keys], [drawn]).fragment, [keys.eval()])
    assert made is not None and not made[0].calls_back
    (found,) = made[0](keys.eval())
    for place in np.ndindex(5, 3):
        lower, upper = (int(half) % 2**64 for half in keys.eval()[place])
        generator = np.random.Generator(np.random.Philox(key=(upper << 64) + lower))
        np.testing.assert_array_equal(found[place], generator.standard_normal(6))


def test_a_numpy_that_draws_otherwise_has_its_own_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    native_random._is_numpys.cache_clear()
    monkeypatch.setattr(native_random, "_by_numpy", lambda generator, kind, dtype: np.zeros(3, dtype))
    captured = capture([], [us.random.normal(us.random.key(9), (4,))])
    values = [np.asarray(node.eval()) for node in captured.inputs]
    made = both_ways(captured.fragment, values)
    native_random._is_numpys.cache_clear()
    assert made is not None and made[0].calls_back
    assert_same(made[0](*values), made[1](*values))


def test_tables_of_draws_are_checked() -> None:
    slot = (IN_INPUT, 0, None, np.dtype(np.int64), (2,), (8,), ord("C"))
    with pytest.raises(ValueError, match="a draw has a key"):
        Program([slot], [(DRAW, (0,), (), 1, (), (), (ord("n"), 1, 8, 0, 0), None)], (0,), (0,), 0, None)
