"""A sum that a loop carries: whatever is added to it and however it waits, it ends up as the sum of its terms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unspool._engine.backends.running_sums import GATHERED, WORTH_WAITING, RunningSum, settled

FORMS = ["ab,bc->ac", "ba,bc->ac", "ab,cb->ac", "ba,cb->ac", "bc,ab->ac", "cb,ab->ac", "bc,ba->ac", "cb,ba->ac"]
ROWS, COLUMNS = 150, 120  # large enough for products to wait until they fill the longest axis


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def numbers(shape: Sequence[int], dtype: str) -> np.ndarray:
    values = rng().standard_normal((*shape, 2))
    return (values @ [1.0, 1j] if np.dtype(dtype).kind == "c" else values[..., 0]).astype(dtype)


def rounding(dtype: str) -> dict[str, float]:
    return dict.fromkeys(("rtol", "atol"), 50 * float(np.finfo(dtype).eps))


# --- one product -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("subscripts", FORMS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("rows", [7, ROWS])
def test_a_product_is_added_in_place(subscripts: str, dtype: str, rows: int) -> None:
    sizes = {"a": rows, "b": 3, "c": 5 * rows}
    operands, _ = subscripts.split("->")
    x1, x2 = (numbers([sizes[label] for label in labels], dtype) for labels in operands.split(","))
    before = numbers((rows, 5 * rows), dtype)
    total = before.copy()
    assert RunningSum(total).add_product(x1, x2, subscripts=subscripts).settled() is total
    np.testing.assert_allclose(total, before + np.einsum(subscripts, x1, x2), **rounding(dtype))


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "rows": np.ascontiguousarray,
    "columns": np.asfortranarray,
    "every other": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
}


@pytest.mark.parametrize("layouts", list(product(LAYOUTS, repeat=3)), ids=" ".join)
@pytest.mark.parametrize("rows", [7, ROWS])
def test_any_layout_will_do(layouts: Sequence[str], rows: int) -> None:
    arrays = [rng().standard_normal(shape) for shape in ((rows, COLUMNS), (rows, 3), (3, COLUMNS))]
    total, x1, x2 = (LAYOUTS[layout](x.copy()) for layout, x in zip(layouts, arrays, strict=True))
    assert RunningSum(total).add_product(x1, x2, subscripts="ab,bc->ac").settled() is total
    np.testing.assert_allclose(total, arrays[0] + arrays[1] @ arrays[2], **rounding("float64"))


# --- many ------------------------------------------------------------------------------------------------------------


@given(lengths=st.lists(st.integers(0, GATHERED // WORTH_WAITING + 4), max_size=30))
def test_products_over_axes_of_any_length_add_up(lengths: list[int]) -> None:
    numbers = rng()
    expected = numbers.standard_normal((ROWS, COLUMNS))
    total = RunningSum(expected.copy())
    for length in lengths:
        if length:
            x1, x2 = numbers.standard_normal((ROWS, length)), numbers.standard_normal((length, COLUMNS))
            total.add_product(x1, x2, subscripts="ab,bc->ac")
            expected += x1 @ x2
        else:  # a term of another kind
            total.add(expected)
            expected += expected
    np.testing.assert_allclose(total.settled(), expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max())


def test_what_was_multiplied_may_be_overwritten_at_once() -> None:
    x1, x2 = rng().standard_normal((ROWS, 2)), rng().standard_normal((2, COLUMNS))
    expected = x1 @ x2
    total = RunningSum(np.zeros((ROWS, COLUMNS))).add_product(x1, x2, subscripts="ab,bc->ac")
    x1[:], x2[:] = np.nan, np.nan
    np.testing.assert_allclose(total.settled(), expected, **rounding("float64"))


def test_a_sum_can_be_read_and_added_to_in_turn() -> None:
    x1, x2 = rng().standard_normal((ROWS, 2)), rng().standard_normal((2, COLUMNS))
    total = RunningSum(np.zeros((ROWS, COLUMNS)))
    for times in (1, 2, 3):
        total.add_product(x1, x2, subscripts="ab,bc->ac")
        np.testing.assert_allclose(total.settled(), times * (x1 @ x2), **rounding("float64"))


@pytest.mark.parametrize("shape", [(70, 70), (3600, 60), (500, 500), (40, 50), (5000,), (20, 30, 40)])
def test_it_takes_no_more_memory_for_factors_than_for_the_sum(shape: tuple[int, ...]) -> None:
    total = RunningSum(np.zeros(shape))
    assert total.nbytes == total.array.nbytes
    if len(shape) == 2:
        total.add_product(np.ones((shape[0], 1)), np.ones((1, shape[1])), subscripts="ab,bc->ac")
    assert total.nbytes <= 2 * total.array.nbytes


def test_factors_that_wait_are_counted_once_there_are_some() -> None:
    total = RunningSum(np.zeros((70, 50)))
    # As many rows of both as together are no larger than the sum: 70·50 / (70 + 50), but no more than so many.
    waiting = min(GATHERED, 29) * (70 + 50) * 8
    total.add_product(np.ones((70, 1)), np.ones((1, 50)), subscripts="ab,bc->ac")
    assert total.nbytes == total.array.nbytes + waiting
    total.settled()
    assert total.nbytes == total.array.nbytes


def test_what_is_no_sum_is_settled_as_it_is() -> None:
    array = np.zeros(3)
    assert settled(array) is array
