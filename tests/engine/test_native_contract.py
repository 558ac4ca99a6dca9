"""Contractions in native programs have the bits of the kernel, whatever the order of axes, and of axes in memory."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.engine.test_native import both_ways, compare, fragment_of, strided
from unspool._engine import native
from unspool._engine.native_layout import Value, c_strides, reshaped_strides

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


@pytest.mark.parametrize("subscripts", ["ijr,jr->ri", "abcd,cdef->abef", "abc,cd->abd", "xab,xbc->xac", "abc,dbc->ad"])
def test_contractions_need_no_call_back(subscripts: str) -> None:
    given = operands(subscripts, (3, 4), float)
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
