"""The one class that runs programs and loops."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool._engine.backends.base import Backend
from unspool._engine.backends.numpy_backend import NUMPY, NumpyBackend
from unspool._engine.default import default_engine
from unspool._engine.plan import make_plan
from unspool._fragments.fragment import capture


class Counting(NumpyBackend):
    """Counts what it is asked for."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    def __getattribute__(self, name: str) -> Any:
        if name in Backend.__abstractmethods__:
            self.asked[name] += 1
        return super().__getattribute__(name)


def test_a_backend_has_to_implement_everything() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Backend()  # type: ignore[abstract]


def test_a_plan_is_interpreted_and_then_compiled_by_its_backend() -> None:
    x = us.tensor([1.0, 2.0])
    backend = Counting()
    plan = make_plan(capture([x], [x * x]).fragment, ((2,),), backend)
    for _ in range(4):
        np.testing.assert_array_equal(plan.run(np.array([3.0, 4.0]))[0], [9.0, 16.0])
    assert backend.asked == {"interpret": 1, "compile": 1}


def test_loops_run_on_the_backend_of_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Counting()
    us.clear_caches()
    monkeypatch.setattr(default_engine().plans, "backend", backend)
    x = us.tensor([1.0, 2.0])
    last, _ = us.iterate(lambda y: y * 0.5 + x, x, max_steps=20)
    loss = us.sum(last)
    # y ← y/2 + x has the fixed point 2x, and starts from x.
    np.testing.assert_allclose(loss.grad(x).eval(), np.full(2, 2 - 0.5**20), rtol=1e-14)
    assert backend.asked["compile_loop"] == 2  # the loop and its adjoint
    assert backend.asked["empty"] and backend.asked["carried"] and backend.asked["copy"] and backend.asked["new_sum"]
    us.clear_caches()


def test_a_value_of_several_arrays_takes_the_bytes_of_all() -> None:
    assert NUMPY.nbytes(np.zeros((2, 3))) == 48
    assert NUMPY.nbytes((np.zeros(2), np.zeros(3, np.float32))) == 28


def test_a_copy_keeps_the_order_of_axes_and_is_nobody_elses() -> None:
    array = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    copy = NUMPY.copy(array)
    assert copy.strides == array.strides
    assert not np.shares_memory(copy, array)


@pytest.mark.parametrize(
    ("shape", "dtype"), [((3,), "float64"), ((64, 64), "float64"), ((), "complex64"), ((2,), "int64")]
)
def test_a_sum_to_which_nothing_was_added_changes_no_bit_of_what_is(shape: Any, dtype: str) -> None:
    term = np.full(shape, -0.0 if np.dtype(dtype).kind in "fc" else 0, dtype)
    total = NUMPY.new_sum(shape, np.dtype(dtype))
    added = total.add(term) if hasattr(total, "add") else total + term
    assert NUMPY.settled(added).tobytes() == term.tobytes()
