"""Products of vectors, matrices and tensors: values as NumPy has them, one BLAS call, one node however written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool._graph import ancestors
from unspool._ops.contraction import kernel
from unspool.errors import ShapeError, SizeContradictionError


def data(*shape: int, dtype: Any = float, seed: int = 0) -> Any:
    generator = np.random.default_rng([*shape, seed])
    values = generator.integers(-4, 5, shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * generator.integers(-4, 5, shape)
    return values.astype(dtype)


def graph_ops(tensor: us.Tensor) -> list[str]:
    return [node.op.name for node in ancestors([tensor])]


# --- values ----------------------------------------------------------------------------------------------------------

MATMUL_SHAPES = [
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((3,), (3, 2)),
    ((2, 3), (3, 4)),
    ((5, 2, 3), (5, 3, 4)),
    ((5, 2, 3), (3, 4)),
    ((2, 3), (5, 3, 4)),
    ((5, 2, 3), (3,)),
    ((3,), (5, 3, 4)),
    ((5, 1, 2, 3), (4, 3, 2)),
    ((1, 2, 3), (5, 3, 4)),
    ((5, 2, 3), (1, 3, 4)),
    ((1, 2, 3), (1, 3, 4)),
    ((6, 5, 2, 3), (5, 3, 1)),
    ((2, 0), (0, 3)),
    ((0, 2, 3), (1, 3, 4)),
]


@pytest.mark.parametrize(("first", "second"), MATMUL_SHAPES, ids=str)
def test_matmul_is_numpys(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    a, b = data(*first), data(*second, seed=1)
    product = us.matmul(us.tensor(a), us.tensor(b))
    assert product.shape == np.matmul(a, b).shape
    np.testing.assert_array_equal(product.eval(), np.matmul(a, b))


@pytest.mark.parametrize("dtypes", [("bool", "bool"), ("int32", "int64"), ("float32", "float32"), ("int64", "float32")])
@pytest.mark.parametrize(("first", "second"), [((2, 3), (3, 2)), ((3,), (3,)), ((4, 2, 3), (4, 3, 1))], ids=str)
def test_data_types_promote_as_in_numpy(dtypes: tuple[str, str], first: Any, second: Any) -> None:
    a, b = data(*first, dtype=dtypes[0]), data(*second, dtype=dtypes[1], seed=1)
    product, expected = us.tensor(a) @ us.tensor(b), np.matmul(a, b)
    assert product.dtype == expected.dtype == product.eval().dtype
    np.testing.assert_array_equal(product.eval(), expected)


@pytest.mark.parametrize(
    ("name", "first", "second", "options"),
    [
        ("vecdot", (4, 3), (3,), {}),
        ("vecdot", (3, 4), (3, 1), {"axis": 0}),
        ("vdot", (2, 3), (3, 2), {}),
        ("inner", (2, 3), (4, 3), {}),
        ("inner", (), (3,), {}),
        ("outer", (2, 2), (3,), {}),
        ("dot", (3,), (3,), {}),
        ("dot", (2, 3), (3, 4), {}),
        ("dot", (2, 3), (5, 3, 4), {}),
        ("dot", (), (3,), {}),
        ("matvec", (5, 2, 3), (5, 3), {}),
        ("matvec", (2, 3), (4, 3), {}),
        ("vecmat", (5, 2), (5, 2, 3), {}),
        ("tensordot", (2, 3, 4), (3, 4, 5), {}),
        ("tensordot", (2, 3), (3, 2), {"axes": 1}),
        ("tensordot", (2, 3), (4,), {"axes": 0}),
        ("tensordot", (2, 3, 4), (4, 5, 2), {"axes": ([0, 2], [2, 0])}),
        ("tensordot", (2, 3, 4), (4, 5, 2), {"axes": (-1, 0)}),
        ("tensordot", (2, 3), (2, 3), {"axes": [(0, 1), (0, 1)]}),
    ],
)
def test_products_are_numpys(name: str, first: Any, second: Any, options: Any) -> None:
    a, b = data(*first, dtype=complex), data(*second, dtype=complex, seed=1)
    ours, theirs = getattr(us, name)(us.tensor(a), b, **options), getattr(np, name)(a, b, **options)
    assert ours.shape == np.shape(theirs)
    np.testing.assert_array_equal(ours.eval(), theirs)


def test_arrays_and_lists_are_accepted_on_either_side() -> None:
    a, x = data(2, 3), us.tensor([1.0, 2.0, 3.0])
    for product in (a @ x, us.matmul(a.tolist(), x), us.tensor(a) @ [1.0, 2.0, 3.0]):
        assert isinstance(product, us.Tensor)
        np.testing.assert_array_equal(product.eval(), a @ x.eval())


# --- one node, one call ----------------------------------------------------------------------------------------------


def test_equal_contractions_are_one_node_however_they_are_written() -> None:
    a, b = us.tensor(data(3, 3)), us.tensor(data(3, 3))
    product = a @ b
    for other in (
        us.matmul(a, b),
        us.dot(a, b),
        us.tensordot(a, b, axes=1),
        us.tensordot(a, b, axes=([1], [0])),
        us.einsum("ij,jk->ik", a, b),
        us.einsum("pq,qr->pr", a, b),
        us.einsum(a, [7, 2], b, [2, 9], [7, 9]),
    ):
        assert other is product
    assert product.attributes == {"subscripts": "ab,bc->ac"}
    assert us.inner(a, b) is us.einsum("ik,jk->ij", a, b)
    assert us.einsum("ij,ij->ij", a, b) is a * b


@pytest.mark.parametrize(
    "subscripts",
    [
        "ab,bc->ac",
        "ab,cb->ac",
        "ba,bc->ca",
        "abc,bcd->ad",
        "abc,cbd->da",
        "eab,ebc->eac",
        "abe,ebc->cae",
        "ab,acd->bcd",
    ],
)
def test_a_matrix_product_runs_as_one_matmul(subscripts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, ...]] = []
    matmul = np.matmul
    monkeypatch.setattr(np, "matmul", lambda x1, x2: calls.append((x1.ndim, x2.ndim)) or matmul(x1, x2))
    monkeypatch.setattr(np, "einsum", None)
    first, second = subscripts.split("->", maxsplit=1)[0].split(",")
    a, b = us.tensor(np.ones([2] * len(first))), us.tensor(np.ones([2] * len(second)))
    us.einsum(subscripts, a, b).eval()
    ranks = 3 if "e" in subscripts else 2
    assert calls == [(ranks, ranks)]


@pytest.mark.parametrize("subscripts", ["ab,bc->ac", "ba,bc->ac", "ab,cb->ac", "ba,cb->ac", "ab,bc->ca", "ba,cb->ca"])
def test_operands_reach_blas_as_views(subscripts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = data(3, 3), data(3, 3, seed=1)
    seen: list[Any] = []
    monkeypatch.setattr(np, "matmul", lambda *operands: seen.extend(operands))
    kernel.plan(subscripts)(a, b)
    assert {id(x if x.base is None else x.base) for x in seen} == {id(a), id(b)}


@pytest.mark.parametrize("subscripts", ["abc,bd->adc", "bd,abc->adc", "abc,db->acd", "abfc,bfd->adc", "eabc,bd->eadc"])
@pytest.mark.parametrize("size", [2, 12])
def test_a_stack_times_a_matrix_is_copied_only_if_its_products_are_small(
    subscripts: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = subscripts.split("->", maxsplit=1)[0].split(",")
    a, b = data(*[size] * len(first)), data(*[size] * len(second), seed=1)
    expected = np.einsum(subscripts, a, b)
    seen: list[Any] = []
    matmul = np.matmul
    monkeypatch.setattr(np, "matmul", lambda *operands: seen.extend(operands) or matmul(*operands))
    result = kernel.plan(subscripts)(a, b)
    np.testing.assert_allclose(result, expected, atol=1e-12)
    sources = {id(x if x.base is None else x.base) for x in seen}
    assert (sources == {id(a), id(b)} and result.flags.c_contiguous) == (size == 12)


def test_the_gradient_of_a_product_is_two_products_without_transposes() -> None:
    a, b = us.tensor(data(2, 3)), us.tensor(data(3, 4))
    weights = us.tensor(data(2, 4, seed=2))
    for gradient in us.sum((a @ b) * weights).grad([a, b]):
        assert "permute_dims" not in graph_ops(gradient)
        assert graph_ops(gradient).count("contract") == 1


# --- elements that were not reached ----------------------------------------------------------------------------------


def test_an_infinity_in_a_row_that_is_not_chosen_does_not_reach_the_gradient() -> None:
    x = us.tensor([[0.0, 1.0], [4.0, 9.0]])
    lengths = us.vecdot(us.sqrt(x), us.tensor([1.0, 1.0]))
    loss = us.sum(us.where(us.tensor([False, True]), lengths, 0.0))
    np.testing.assert_allclose(loss.grad(x).eval(), [[0.0, 0.0], [0.25, 1 / 6]])


def test_an_infinity_in_a_matrix_of_the_stack_that_is_not_chosen_does_not_reach_the_gradient() -> None:
    x = us.tensor([[[0.0, 1.0]], [[4.0, 9.0]]])
    products = us.sqrt(x) @ us.tensor([[1.0, 2.0], [1.0, 0.0]])
    loss = us.sum(us.where(us.tensor([[[False]], [[True]]]), products, 0.0))
    np.testing.assert_allclose(loss.grad(x).eval(), [[[0.0, 0.0]], [[0.75, 1 / 6]]])


# --- symbolic sizes --------------------------------------------------------------------------------------------------


def test_unknown_sizes_that_must_be_equal_are_checked_when_bound() -> None:
    n, k, m = us.dims("n k m")
    a, b = us.placeholder((n, k), name="a"), us.placeholder((m, n), name="b")
    product = a @ b
    assert product.shape == (n, n)
    x, y = data(2, 3), data(3, 2)
    np.testing.assert_array_equal(product.eval({a: x, b: y}), x @ y)
    gradient = us.sum(product).grad(b)
    assert gradient.shape == (m, n)
    np.testing.assert_array_equal(gradient.eval({a: x, b: y}), x.T @ np.ones((2, 2)))
    with pytest.raises(SizeContradictionError):
        product.eval({a: x, b: data(4, 2)})


def test_a_known_size_is_the_name_of_an_unknown_one() -> None:
    n = us.dims("n")
    a = us.placeholder((n, n))
    assert (a @ us.zeros((3, 2))).shape == (n, 2)
    assert us.outer(a, [1.0, 2.0]).shape == (n * n, 2)


def test_stacks_of_unknown_size_broadcast_against_ones() -> None:
    n = us.dims("n")
    a = us.placeholder((n, 2, 3))
    assert us.matmul(a, us.zeros((1, 3, 4))).shape == (n, 2, 4)
    assert us.matmul(us.zeros((5, 1, 4, 2)), a).shape == (5, n, 4, 3)


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: us.matmul(us.zeros((2, 3)), us.zeros((2, 3))), r"matmul of shapes \(2, 3\) and \(2, 3\).*3 and 2"),
        (lambda: us.matmul(us.zeros((4, 2, 3)), us.zeros((5, 3, 2))), r"stacks have sizes 4 and 5"),
        (lambda: us.matmul(2.0, us.zeros(3)), r"at least one axis.*\(\) and \(3,\)"),
        (lambda: us.dot(us.zeros(3), us.zeros(4)), r"dot of shapes \(3,\) and \(4,\)"),
        (lambda: us.vecdot(us.zeros(3), us.zeros(4)), r"vecdot of shapes \(3,\) and \(4,\)"),
        (lambda: us.vecdot(1.0, us.zeros(4)), r"at least 1 and 1 axes"),
        (lambda: us.vdot(us.zeros((2, 2)), us.zeros(3)), r"vdot of shapes \(4,\) and \(3,\)"),
        (lambda: us.tensordot(us.zeros((2, 3)), us.zeros((2, 3)), axes=1), r"tensordot of shapes"),
        (lambda: us.tensordot(us.zeros(2), us.zeros(2), axes=2), r"over 2 axes"),
        (lambda: us.tensordot(us.zeros(2), us.zeros(2), axes=([0], [0, 0])), r"as many axes"),
        (lambda: us.tensordot(us.zeros((2, 2)), us.zeros((2, 2)), axes=([0, 0], [0, 1])), r"each axis once"),
        (lambda: us.tensordot(us.zeros(2), us.zeros(2), axes=(0, 3)), r"axis 3 is out of range"),
        (lambda: us.tensordot(us.zeros(2), us.zeros(2), axes=None), r"axes=None"),
    ],
)
def test_shapes_that_do_not_fit_are_refused_with_shapes(call: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        call()


def test_sizes_that_can_never_be_equal_are_refused_when_built() -> None:
    n = us.dims("n")
    with pytest.raises(ShapeError, match=r"n and n \+ 1|n \+ 1 and n"):
        us.placeholder((2, n)) @ us.placeholder((n + 1,))


# --- a tensor with itself --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("subscripts", ["ki,kj->ij", "ki,kj->ji", "ik,jk->ij", "kri,krj->ij", "rik,rjk->rij", "k,k->"])
def test_the_gradient_of_a_product_with_itself_takes_one_product(subscripts: str) -> None:
    # S̄ reaches both operands; with S = X'X that is X S̄ + X S̄' = X (S̄ + S̄').
    random = np.random.default_rng(0)
    x = us.tensor(random.standard_normal((4, 3, 5)[: len(subscripts.split(",", maxsplit=1)[0])]))
    product = us.einsum(subscripts, x, x)
    weights = us.tensor(random.standard_normal(product.shape))
    gradient = us.sum(weights * product).grad(x)
    kernels = [node.op.name for node in ancestors([gradient])]
    assert kernels.count("contract") == (0 if product.ndim == 0 else 1)
    other = us.tensor(x.eval())
    apart = us.sum(weights * us.einsum(subscripts, x, other))
    expected = apart.grad(x).eval() + apart.grad(other).eval()
    np.testing.assert_allclose(gradient.eval(), expected, rtol=1e-13, atol=1e-13)


def test_a_product_with_itself_that_is_not_symmetric_keeps_two_products() -> None:
    x = us.tensor(np.random.default_rng(0).standard_normal((4, 4)))
    weights = us.tensor(np.random.default_rng(1).standard_normal((4, 4)))
    X, W = x.eval(), weights.eval()
    np.testing.assert_allclose(us.sum(weights * (x @ x)).grad(x).eval(), W @ X.T + X.T @ W, rtol=1e-13)


def test_absent_elements_stay_absent_in_a_product_with_itself() -> None:
    x = us.tensor([[1.0, 2.0], [3.0, 4.0]])
    root = us.sqrt(x - x[0, 0])  # its slope at the first element is infinite
    gram = us.einsum("ki,kj->ij", root, root)
    assert np.isfinite(gram[1, 1].grad(x).eval()[:, 1]).all()


def test_the_gradient_of_a_complex_product_with_itself_agrees_with_differences() -> None:
    random = np.random.default_rng(2)
    x = us.tensor(random.standard_normal((3, 2)) + 1j * random.standard_normal((3, 2)))
    loss = us.sum(us.abs(us.einsum("ki,kj->ij", x, x)) ** 2)
    h, direction = 1e-6, random.standard_normal((3, 2)) + 1j * random.standard_normal((3, 2))
    values = [np.sum(np.abs((z := x.eval() + s * h * direction).T @ z) ** 2) for s in (1, -1)]
    slope = np.real(np.vdot(loss.grad(x).eval(), direction))
    np.testing.assert_allclose(slope, (values[0] - values[1]) / (2 * h), rtol=1e-7)
