"""`multi_dot` and `cross`: NumPy's values, the cheapest order, stacks and unknown sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool._ops.linalg.products import _best_splits
from unspool.errors import ArgumentError, ShapeError

GENERATOR = np.random.default_rng(3)


def chain(*shapes: tuple[int, ...]) -> list[Any]:
    return [GENERATOR.normal(size=shape) for shape in shapes]


@pytest.mark.parametrize(
    "factors",
    [
        chain((2, 3), (3, 4)),
        chain((2, 3), (3, 4), (4, 5)),
        chain((5, 2), (2, 7), (7, 1), (1, 6), (6, 3)),
        chain((3,), (3, 4), (4, 2)),
        chain((2, 3), (3, 4), (4,)),
        chain((3,), (3, 4), (4,)),
        chain((3,), (3,)),
        chain((2, 0), (0, 3), (3, 2)),
    ],
    ids=lambda factors: "·".join(str(f.shape) for f in factors),
)
def test_chains_are_numpys(factors: list[Any]) -> None:
    ours, theirs = us.linalg.multi_dot(factors), np.linalg.multi_dot(factors)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours.eval(), theirs)


def test_stacks_of_matrices_broadcast() -> None:
    a, b, c = chain((4, 1, 2, 3), (5, 3, 4), (4, 2))
    np.testing.assert_allclose(us.linalg.multi_dot([a, b, c]).eval(), a @ b @ c)


def test_the_order_takes_the_fewest_multiplications() -> None:
    """The textbook chain: ((A1·(A2·A3))·((A4·A5)·A6)), 15125 multiplications."""
    split = _best_splits([30, 35, 15, 5, 10, 20, 25])
    assert (split[0, 5], split[0, 2], split[3, 5]) == (2, 0, 4)


def test_a_chain_with_a_vector_never_multiplies_matrices() -> None:
    n, k = us.dims("n k")
    a, b, x = us.placeholder((n, k)), us.placeholder((k, n)), us.placeholder((n,))
    for factors in ([a, b, a, b, x], [x, a, b, a]):
        product = us.linalg.multi_dot(factors)
        while product.inputs:
            assert product.ndim == 1
            product = next(i for i in product.inputs if i.ndim == 1)


def test_derivatives_of_a_chain() -> None:
    assert us.check_grad(lambda a, b, c: us.linalg.multi_dot([a, b, c]), *chain((2,), (2, 3), (3, 2))).ok


@pytest.mark.parametrize(
    ("factors", "error"),
    [
        (chain((2, 2)), ArgumentError),
        ([], ArgumentError),
        (chain((2, 2), (2,), (2, 2)), ShapeError),
        (chain((2, 3), (2, 3)), ShapeError),
        ([1.0, np.eye(2)], ShapeError),
    ],
)
def test_chains_that_make_no_sense_are_refused(factors: list[Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        us.linalg.multi_dot(factors)


# --- cross -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape1", "shape2", "axis"),
    [
        ((3,), (3,), -1),
        ((2, 3), (3,), -1),
        ((4, 1, 3), (5, 3), -1),
        ((3, 2), (3, 2), 0),
        ((2, 3, 4), (2, 3, 1), 1),
        ((2, 3, 4), (3, 4), -2),
        ((0, 3), (0, 3), -1),
    ],
)
@pytest.mark.parametrize("field", ["real", "complex"])
def test_cross_products_are_numpys(shape1: Any, shape2: Any, axis: int, field: str) -> None:
    a, b = chain(shape1, shape2)
    if field == "complex":
        a = a * (1 - 2j)
    ours, theirs = us.linalg.cross(a, b, axis=axis), np.linalg.cross(a, b, axis=axis)
    assert ours.dtype == theirs.dtype
    np.testing.assert_allclose(ours.eval(), theirs)


def test_derivatives_of_a_cross_product() -> None:
    assert us.check_grad(lambda a, b: us.linalg.cross(a, b, axis=0), *chain((3, 2), (3, 1))).ok


def test_unknown_sizes_are_ensured_to_be_three() -> None:
    p = us.placeholder((us.dims("n"),))
    product = us.linalg.cross(p, [0.0, 1.0, 0.0])
    np.testing.assert_array_equal(product.eval({p: np.array([1.0, 0.0, 0.0])}), [0, 0, 1])
    with pytest.raises(us.errors.SizeContradictionError):
        product.eval({p: np.ones(2)})


@pytest.mark.parametrize(("a", "b"), [(np.ones(2), np.ones(2)), (np.ones(3), np.ones(4)), (1.0, np.ones(3))])
def test_vectors_that_do_not_have_three_elements_are_refused(a: Any, b: Any) -> None:
    with pytest.raises(ShapeError):
        us.linalg.cross(a, b)
