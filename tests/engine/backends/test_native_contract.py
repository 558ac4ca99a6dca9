"""Contractions in native programs have the bits of the kernel, whatever the order of axes, and of axes in memory."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.engine.backends.test_native import bits_of, both_ways, compare, fragment_of, strided
from unspool._engine.backends import native
from unspool._engine.backends.native_layout import Value, c_strides, reshaped_strides

pytestmark = pytest.mark.skipif(native.WHY_NOT is not None, reason=str(native.WHY_NOT))

# Stacks of products with vectors and with matrices, copies that are needed and that are not, results in other orders.
SUBSCRIPTS = [
    "ijr,jr->ri",
    "ijr,ir->rj",
    "ijr,jr->ir",
    "rij,rj->ri",
    "rj,rjk->rk",
    "abc,bd->adc",
    "abc,cd->abd",
    "abcd,cdef->abef",
    "abcd,bcef->adef",
    "ab,bcd->acd",
    "abc,abd->cd",
    "abc,abc->",
    "abc,abd->acd",
    "abc,acd->abd",
    "bac,cda->bd",
    "abc,dbc->ad",
    "abcd,abce->de",
    "ra,rb->rab",
    "xab,xbc->xac",
    "axb,xbc->xac",
    "abx,bcx->acx",
    "ab,cab->c",
    "abc,cb->a",
    "i,ijk->jk",
    "ijk,k->ij",
    "ijk,j->ik",
    "xyab,xybc->xyac",
    "eab,eab->e",
    "abe,abe->e",
]


def operands(subscripts: str, sizes: tuple[int, int], dtype: Any) -> list[Any]:
    first, second = subscripts.split("->", maxsplit=1)[0].split(",")
    size = {label: sizes[i % 2] + i % 3 for i, label in enumerate(dict.fromkeys(first + second))}
    generator = np.random.default_rng(7)
    arrays = [generator.normal(size=[size[label] for label in labels]) for labels in (first, second)]
    return [(a + 1j * a[::-1] if dtype is complex else a).astype(dtype) for a in arrays]


@pytest.mark.parametrize("dtype", [np.float32, float, complex])
@pytest.mark.parametrize("subscripts", SUBSCRIPTS)
def test_contractions_have_the_bits_of_their_kernel(subscripts: str, dtype: Any) -> None:
    for sizes in product((1, 2, 4), repeat=2):
        given = operands(subscripts, sizes, dtype)
        fragment, values = fragment_of(lambda x, y: us.einsum(subscripts, x, y) * 1.0, given, adjoint=False)
        for lay in (np.ascontiguousarray, np.asfortranarray, strided):
            compare(fragment, [lay(v) if v.shape else v for v in values])


PLAIN = ["ab,b->a", "ab,a->b", "a,ab->b", "b,ab->a", "a,a->", "ab,bc->ac", "ba,cb->ca"]


@pytest.mark.parametrize("dtype", [np.float32, float, complex])
@pytest.mark.parametrize("subscripts", [*PLAIN, *SUBSCRIPTS])
def test_axes_of_one_element_have_the_bits_of_their_kernel(subscripts: str, dtype: Any) -> None:
    first, second = subscripts.split("->", maxsplit=1)[0].split(",")
    labels = list(dict.fromkeys(first + second))
    generator = np.random.default_rng(11)
    for alone in product((False, True), repeat=min(len(labels), 4)):
        size = {label: 1 if i < 4 and alone[i] else 3 + i for i, label in enumerate(labels)}
        arrays = [generator.normal(size=[size[label] for label in one]) for one in (first, second)]
        arrays[0].flat[::3] *= 0.0
        given = [(a + 1j * a[::-1] if dtype is complex else a).astype(dtype) for a in arrays]
        fragment, values = fragment_of(lambda x, y: us.einsum(subscripts, x, y) * 1.0, given, adjoint=False)
        for lay in (np.ascontiguousarray, np.asfortranarray, strided):
            compare(fragment, [lay(v) if v.shape else v for v in values])


# Products that are zero because they are too small, of which BLAS keeps the sign or not; zero times infinity, which it
# does not compute; NaN.
@pytest.mark.parametrize("number", [0.0, -0.0, 1e-300, -1e-300, np.inf, np.nan, -3.5])
@pytest.mark.parametrize("subscripts", ["ab,b->a", "b,ba->a"])
def test_a_number_times_a_vector_is_as_blas_has_it(subscripts: str, number: float) -> None:
    vector = np.array([1.0, -1.0, 0.0, -0.0, 1e-30, -1e-30, np.inf, -np.inf, np.nan, 5e-324, -5e-324] * 3)
    matrix = vector[:, None] if subscripts == "ab,b->a" else vector[None]
    given = [matrix, np.array([number])][:: 1 if subscripts == "ab,b->a" else -1]
    fragment, values = fragment_of(lambda x, y: us.einsum(subscripts, x, y), given, adjoint=False)
    made = both_ways(fragment, values)
    assert made is not None and not made[0].calls_back
    with np.errstate(all="ignore"):
        assert bits_of(made[0](*values)[0]) == bits_of(np.dot(*given))


@pytest.mark.parametrize(
    "subscripts",
    ["ijr,jr->ri", "abcd,cdef->abef", "abc,cd->abd", "xab,xbc->xac", "abc,dbc->ad", "abc,abc->", "ab,cab->c"],
)
@pytest.mark.parametrize("sizes", [(3, 4), (1, 4), (3, 1)])
def test_contractions_need_no_call_back(subscripts: str, sizes: tuple[int, int]) -> None:
    given = operands(subscripts, sizes, float)
    fragment, values = fragment_of(lambda x, y: us.einsum(subscripts, x, y), given, adjoint=False)
    made = both_ways(fragment, values)
    assert made is not None and not made[0].calls_back


@pytest.mark.parametrize("axes", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (2, 1, 0)])
@pytest.mark.parametrize("shape", [(24,), (2, 12), (6, 4), (8, 3), (2, 3, 4), (4, 3, 2), (2, 2, 2, 3), (3, 8)], ids=str)
def test_views_in_other_shapes_are_those_of_numpy(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    array = np.zeros((2, 3, 4)).transpose(axes)
    expected = array.reshape(shape)
    strides = reshaped_strides(Value(0, array.shape, array.strides, array.dtype), shape)
    assert strides == (expected.strides if np.may_share_memory(array, expected) else None)
    assert c_strides(shape, array.dtype) == np.zeros(shape).strides
