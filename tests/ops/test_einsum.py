"""`einsum`: all that NumPy's takes, lowered to shared binary contractions along paths that are the same every time."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unspool as us
from unspool._graph import Node, ancestors
from unspool._ops.contraction.path import find_path
from unspool.errors import ArgumentError, ShapeError, SizeContradictionError


def data(*shape: int, seed: int = 0, dtype: Any = float) -> Any:
    return np.random.default_rng([*shape, seed]).integers(-4, 5, shape).astype(dtype)


def contractions(*tensors: us.Tensor) -> list[Node]:
    return [node for node in ancestors(tensors) if node.op.name == "contract"]


def check(*operands: Any, **options: Any) -> None:
    expected = np.einsum(*operands)
    for ours in (us.einsum(*operands, **options), us.einsum(*operands, optimize=False)):
        assert ours.shape == expected.shape
        assert ours.dtype == expected.dtype
        np.testing.assert_allclose(ours.eval(), expected, rtol=1e-12)


# --- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subscripts", "shapes"),
    [
        ("ij->ji", [(2, 3)]),
        ("ij->i", [(2, 3)]),
        ("ij->", [(2, 3)]),
        ("ii->i", [(3, 3)]),
        ("ii", [(3, 3)]),
        ("iij->ji", [(2, 2, 3)]),
        ("iii->i", [(2, 2, 2)]),
        ("iijj->ij", [(2, 2, 3, 3)]),
        ("ba", [(2, 3)]),
        ("bA", [(2, 3)]),
        ("...", [(2, 3)]),
        ("i...->...", [(2, 3)]),
        ("...ij->...ji", [(2, 3, 4)]),
        (" i j , j k -> i k ", [(2, 3), (3, 4)]),
        ("ij,jk", [(2, 3), (3, 4)]),
        ("Ij,jK", [(2, 3), (3, 4)]),
        (",i", [(), (3,)]),
        (",->", [(), ()]),
        ("i,j->", [(2,), (3,)]),
        ("ij,k->k", [(2, 3), (4,)]),
        ("ij,ij,ij->ij", [(2, 3), (2, 3), (2, 3)]),
        ("ii,ij->j", [(3, 3), (3, 2)]),
        ("...i,...i", [(2, 1, 3), (4, 3)]),
        ("...ij,...jk->...ik", [(5, 1, 2, 3), (4, 3, 2)]),
        ("i...,i...->...", [(2, 3), (2, 1)]),
        ("...,...->...", [(2, 3), (3,)]),
        ("ij,jk->ik", [(2, 1), (3, 4)]),
        ("i,i->i", [(1,), (3,)]),
        ("i,i->", [(1,), (3,)]),
        ("i,i->", [(1,), (1,)]),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 2)]),
        ("ij,jk,k", [(2, 3), (3, 4), (4,)]),
        ("bij,bjk,bkl->bil", [(2, 2, 3), (2, 3, 4), (2, 4, 2)]),
        ("ij,ik,il->jkl", [(2, 3), (2, 1), (2, 2)]),
        ("a,b,c,d->dcba", [(1,), (2,), (3,), (2,)]),
        ("ab,bc,cd,de,ef->af", [(2, 3)] + [(3, 3)] * 3 + [(3, 2)]),
        ("ij,jk->ik", [(2, 0), (0, 3)]),
        ("ij,jk,kl->", [(2, 0), (0, 3), (3, 1)]),
    ],
)
def test_values_are_numpys(subscripts: str, shapes: list[tuple[int, ...]]) -> None:
    check(subscripts, *[data(*shape, seed=i) for i, shape in enumerate(shapes)])


@pytest.mark.parametrize("dtype", ["bool", "int32", "int64", "float32", "complex64"])
@pytest.mark.parametrize("subscripts", ["ij->i", "ij,jk->ik", "ij,jk->", "ii,ij->j", "ij,jk,kl->il"])
def test_sums_stay_in_the_operands_data_type(subscripts: str, dtype: str) -> None:
    count = subscripts.count(",") + 1
    check(subscripts, *[data(3, 3, seed=i, dtype=dtype) for i in range(count)])


def test_the_interleaved_form_takes_lists_of_integers() -> None:
    a, b = data(2, 3), data(3, 4)
    check(a, [0, 1])
    check(a, [1, 0])
    check(a, [0, 1], b, [1, 2])
    check(a, [0, 1], b, [1, 2], [2, 0])
    check(a, [..., 1], [1, ...])
    check(a, (0, 1), b, (1, 2), ())


@pytest.mark.parametrize(
    "optimize", [True, False, "auto", "greedy", "optimal", "dp", ("greedy", 10), ["einsum_path", (0, 1), (0, 1)]]
)
def test_every_path_gives_the_same_value(optimize: Any) -> None:
    check("ab,bc,cd->ad", data(2, 3), data(3, 4), data(4, 2), optimize=optimize)


@pytest.mark.parametrize("path", [[(0, 1, 2, 3)], [(3,), (0, 3)], [(1, 2), (0, 2)], [(0, 2, 3)], []])
def test_any_complete_or_partial_path_is_followed(path: Any) -> None:
    check("ab,bc,cd,de->ae", data(2, 3), data(3, 4), data(4, 2), data(2, 5), optimize=path)


@st.composite
def cases(draw: Any) -> tuple[str, list[tuple[int, ...]]]:
    sizes = {label: draw(st.integers(0, 3)) for label in "abcd"}
    terms = draw(st.lists(st.text("abcd", max_size=3), min_size=1, max_size=4))
    used = sorted(set("".join(terms)))
    result = draw(st.permutations(used))[: draw(st.integers(0, len(used)))]
    shapes = []
    for term in terms:
        single = draw(st.booleans()) and len(set(term)) == len(term)
        shapes.append(tuple(1 if single and draw(st.booleans()) else sizes[label] for label in term))
    return f"{','.join(terms)}->{''.join(result)}", shapes


@settings(deadline=None, max_examples=150, derandomize=True)
@given(cases())
def test_any_subscripts_give_numpys_value(case: tuple[str, list[tuple[int, ...]]]) -> None:
    subscripts, shapes = case
    check(subscripts, *[data(*shape, seed=i) for i, shape in enumerate(shapes)])


# --- lowering --------------------------------------------------------------------------------------------------------


def test_a_chain_of_matrices_is_contracted_without_outer_products() -> None:
    matrices = [us.tensor(data(4, 4, seed=i)) for i in range(6)]
    nodes = contractions(us.einsum("ab,bc,cd,de,ef,fg->ag", *matrices))
    assert len(nodes) == 5
    assert all(len(node.shape) == 2 and node.attributes["subscripts"] == "ab,bc->ac" for node in nodes)


@pytest.mark.parametrize("length", [5, 25])
def test_a_chain_that_ends_in_a_vector_never_multiplies_two_matrices(length: int) -> None:
    matrices = [us.tensor(data(8, 8, seed=i)) for i in range(length)]
    operands = [operand for i, m in enumerate(matrices) for operand in (m, [i, i + 1])]
    nodes = contractions(us.einsum(*operands, us.tensor(data(8)), [length], [0]))
    assert len(nodes) == length
    assert all(len(node.shape) == 1 for node in nodes)


def test_what_is_written_decides_the_path() -> None:
    narrow, wide = us.tensor(data(2, 50)), us.tensor(data(50, 2))
    inner = contractions(us.einsum("ab,bc,cd->ad", wide, narrow, wide))
    assert [node.shape for node in inner] == [(2, 2), (50, 2)]


def test_partial_contractions_are_shared_between_einsums() -> None:
    a, b, c, d = (us.tensor(data(3, 3, seed=i)) for i in range(4))
    with_c = us.einsum("ij,jk,kl->il", a, b, c, optimize=[(0, 1), (0, 1)])
    with_d = us.einsum("ij,jk,kl->il", a, b, d, optimize=[(0, 1), (0, 1)])
    assert len(contractions(with_c, with_d)) == 3
    assert any(node is a @ b for node in contractions(with_c))


@pytest.mark.parametrize("length", [4, 8, 16, 32])
def test_the_gradient_of_a_chain_takes_a_number_of_contractions_linear_in_its_length(length: int) -> None:
    tensors = [us.tensor(data(2, 3, 2, seed=i)) for i in range(length)]
    operands = [operand for i, t in enumerate(tensors) for operand in (t, [i, length + 1 + i, i + 1])]
    lower = 2 * length + 1
    for i, t in enumerate(tensors):
        operands += [us.conj(t), [lower + i, length + 1 + i, lower + i + 1]]
    norm = us.einsum(*operands, [])
    forward = len(contractions(norm))
    assert forward == 2 * length - 1
    assert len(contractions(norm, *norm.grad(tensors))) <= 3 * forward


def test_paths_are_the_same_in_every_process() -> None:
    program = (
        "from unspool._ops.contraction.path import find_path\n"
        "for count in (6, 9, 14):\n"
        "    ring = tuple((i, (i + 1) % count, count + i) for i in range(count))\n"
        "    print(find_path(ring, (), (4,) * (2 * count), True))\n"
        "    print(find_path(ring, tuple(range(count, 2 * count)), (4,) * (2 * count), 'greedy'))\n"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1


def test_a_path_is_found_once_per_structure() -> None:
    before = find_path.cache_info()
    for seed in range(5):
        a, b, c = (us.tensor(data(3, 3, seed=seed + i)) for i in range(3))
        us.einsum("pq,qr,rs->ps", a, b, c)
        us.einsum("ij,jk,kl->il", a, b, c)
    after = find_path.cache_info()
    assert after.misses - before.misses <= 1
    assert after.hits - before.hits >= 9


def test_opt_einsum_is_imported_only_when_a_path_is_needed() -> None:
    program = (
        "import sys, numpy as np, unspool as us\n"
        "a = us.tensor(np.ones((2, 2)))\n"
        "us.einsum('ij,jk', a, a).eval()\n"
        "assert 'opt_einsum' not in sys.modules\n"
        "us.einsum('ij,jk,kl', a, a, a).eval()\n"
        "assert 'opt_einsum' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


# --- derivatives -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subscripts", "shapes"),
    [
        ("ii->i", [(2, 2)]),
        ("iij,j->i", [(2, 2, 2), (2,)]),
        ("ij,jk,kl->il", [(2, 2), (2, 1), (1, 2)]),
        ("ij,jk->", [(2, 1), (3, 2)]),
        ("...i,i...->...", [(2, 1, 2), (2, 3)]),
    ],
)
def test_derivatives_agree_with_differences(subscripts: str, shapes: list[tuple[int, ...]]) -> None:
    generator = np.random.default_rng(3)
    args = [generator.normal(size=shape) for shape in shapes]
    us.check_grad(lambda *operands: us.einsum(subscripts, *operands), *args, order=2)


def test_an_operand_used_twice_gets_both_contributions() -> None:
    a = us.tensor(data(3, 3))
    gradient = us.einsum("ij,ji->", a, a).grad(a)
    np.testing.assert_allclose(gradient.eval(), 2 * a.eval().T)


# --- symbolic sizes --------------------------------------------------------------------------------------------------


def test_sizes_may_be_symbolic() -> None:
    n, k, m = us.dims("n k m")
    a, b, c = us.placeholder((n, k)), us.placeholder((k, m)), us.placeholder((m, 2))
    product = us.einsum("ij,jk,kl->il", a, b, c)
    assert product.shape == (n, 2)
    values = {a: data(3, 4), b: data(4, 5), c: data(5, 2)}
    np.testing.assert_array_equal(product.eval(values), values[a] @ values[b] @ values[c])
    assert us.sum(product).grad(b).shape == (k, m)


def test_labels_with_different_unknown_sizes_are_checked_when_bound() -> None:
    n, k = us.dims("n k")
    square = us.placeholder((n, k))
    trace = us.einsum("ii", square)
    assert float(trace.eval({square: np.eye(3)})) == 3.0
    with pytest.raises(SizeContradictionError):
        trace.eval({square: np.ones((2, 3))})


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subscripts", "shapes", "reason"),
    [
        ("ij,jk", [(2, 3), (4, 5)], "label 'j' has sizes 3 and 4"),
        ("...i,...i", [(2, 3), (4, 3)], "label '...' has sizes 2 and 4"),
        ("ij->ii", [(2, 3)], "label 'i' more than once"),
        ("ij->k", [(2, 3)], "label 'k', which no operand has"),
        ("i,j", [(2,)], "for 2 operands, 1 were given"),
        ("ijk", [(2,)], "operand 0 has 1 axes and 3 labels"),
        ("i", [(2, 3)], "operand 0 has 2 axes and 1 labels"),
        ("i$->i", [(2,)], "'$' is neither a letter"),
        ("i.->i", [(2,)], "'.' is neither a letter"),
        ("...i->i", [(2, 2)], "the result needs '...' too"),
        ("i...j...", [(2, 2)], "more than one '...'"),
        ("ii", [(1, 3)], "label 'i' has sizes 1 and 3 in one operand"),
    ],
)
def test_errors_repeat_the_subscripts_and_the_shapes(subscripts: str, shapes: Any, reason: str) -> None:
    with pytest.raises(ShapeError) as caught:
        us.einsum(subscripts, *[np.ones(shape) for shape in shapes])
    message = str(caught.value)
    assert reason in message
    assert repr(subscripts) in message
    assert all(str(shape) in message for shape in shapes)


@pytest.mark.parametrize(
    ("operands", "options", "reason"),
    [
        ((), {}, "at least one operand"),
        (("->",), {}, "1 operands, 0 were given"),
        ((np.ones(3), [0, "a"]), {}, "integers or ..., got 'a'"),
        ((np.ones(3), 0), {}, "list of labels"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(operands: Any, options: Any, reason: str) -> None:
    with pytest.raises(ShapeError) as caught:
        us.einsum(*operands, **options)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("optimize", "reason"),
    [
        ("fastest", "optimize='fastest'"),
        ([(0, 5)], "cannot contract operands (0, 5)"),
        ([(0, "x")], "list of tuples of positions"),
        ([3, 4], "list of tuples of positions"),
    ],
)
def test_paths_that_make_no_sense_are_refused(optimize: Any, reason: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        us.einsum("i,i,i", *[np.ones(3)] * 3, optimize=optimize)
    assert reason in str(caught.value)
