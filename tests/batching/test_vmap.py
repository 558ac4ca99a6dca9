"""`us.vmap` itself: where members lie, how they nest, and what it says to those who ask for too much."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool.errors import ArgumentError, DTypeError, ShapeError, StructureError, UnboundPlaceholderError

RNG = np.random.default_rng(5)
X = RNG.normal(size=(3, 4))
Y = RNG.normal(size=(5, 3, 4))


def test_the_members_lie_along_any_axis_of_arguments_and_results() -> None:
    outer = us.vmap(lambda x, y: x[:, None] * y, in_axes=(1, -1), out_axes=2)
    found = outer(X, Y[:, 0])
    np.testing.assert_allclose(found.eval(), np.einsum("im,jm->ijm", X, Y[:, 0]))


def test_one_entry_stands_for_all_that_is_nested_in_its_argument() -> None:
    def f(pair: Any, options: dict[str, Any]) -> Any:
        return {"sum": pair[0] + pair[1] * options["scale"], "twice": (2.0 * pair[0],)}

    found = us.vmap(f, in_axes=((0, 1), None), out_axes={"sum": 0, "twice": (1,)})((X, X.T), {"scale": 3.0})
    np.testing.assert_allclose(found["sum"].eval(), 4.0 * X)
    np.testing.assert_allclose(found["twice"][0].eval(), 2.0 * X.T)


def test_keyword_arguments_have_the_members_first() -> None:
    found = us.vmap(lambda x, *, shift: x + shift)(X, shift=np.arange(3.0))
    np.testing.assert_allclose(found.eval(), X + np.arange(3.0)[:, None])


def test_what_members_have_in_common_is_passed_on_as_it_is() -> None:
    marks = []

    def f(x: us.Tensor, mark: object) -> us.Tensor:
        marks.append(mark)
        return x

    mark = object()
    us.vmap(f, in_axes=(0, None))(X, mark)
    assert marks == [mark]


def test_a_result_that_is_no_tensor_or_does_not_depend_on_the_member_is_repeated() -> None:
    number, common = us.vmap(lambda x: (2, us.constant([1.0, 2.0])))(X)
    assert number.tolist() == [2, 2, 2]
    np.testing.assert_array_equal(common.eval(), np.tile([1.0, 2.0], (3, 1)))


def test_out_axes_of_none_gives_what_is_the_same_for_all_once() -> None:
    common, own = us.vmap(lambda x: (us.constant([1.0, 2.0]), x), out_axes=(None, 0))(X)
    assert common.shape == (2,)
    assert own.shape == X.shape


def test_batches_nest_and_tensors_that_are_closed_over_are_shared() -> None:
    A = us.tensor(RNG.normal(size=(4, 4)))
    found = us.vmap(us.vmap(lambda y: y @ A @ y))(Y)
    np.testing.assert_allclose(found.eval(), np.einsum("abi,ij,abj->ab", Y, A.eval(), Y))
    inner = us.vmap(lambda x: us.vmap(lambda y: x @ A @ y)(X))(X)
    np.testing.assert_allclose(inner.eval(), X @ A.eval() @ X.T)


def test_what_does_not_depend_on_the_member_is_computed_once() -> None:
    A = us.tensor(np.eye(4) + 0.1)
    with us.debug.count_kernels() as counts:
        found = us.vmap(lambda x: us.linalg.matrix_exp(A) @ x)(us.tensor(X))
        found.eval()
    assert counts["matrix_exp"] == 1
    assert [node.shape for node in us._graph.ancestors([found]) if node.op.name == "matrix_exp"] == [(4, 4)]


def test_a_matrix_that_all_members_share_is_factored_once() -> None:
    A = RNG.normal(size=(4, 4)) + 4 * np.eye(4)
    with us.debug.count_kernels() as counts:
        found = us.vmap(lambda x: us.linalg.solve(us.tensor(A), x))(X).eval()
    np.testing.assert_allclose(found, np.linalg.solve(A, X.T).T)
    assert counts["solve"] == 1


def test_the_same_batch_is_the_same_tensor() -> None:
    xs = us.tensor(X)

    def f(x: us.Tensor) -> us.Tensor:
        return us.sum(us.tanh(x) * x)

    assert us.vmap(f)(xs) is us.vmap(f)(xs)
    assert us.vmap(us.grad(f))(xs) is us.vmap(us.grad(f))(xs)


def test_products_with_many_hessian_vectors_are_one_batch() -> None:
    A = RNG.normal(size=(4, 4))
    x = us.tensor(RNG.normal(size=4))
    found = us.vmap(lambda v: us.hvp(lambda x: us.sum((A @ x) ** 3), (x,), (v,)))(X)
    hessian = 6.0 * A.T @ np.diag(A @ x.eval()) @ A
    np.testing.assert_allclose(found.eval(), X @ hessian, rtol=1e-12)


def test_per_member_gradients_of_what_is_shared() -> None:
    w = us.tensor(RNG.normal(size=4))
    found = us.vmap(us.grad(lambda w, x: us.tanh(w @ x)), in_axes=(None, 0))(w, X)
    np.testing.assert_allclose(found.eval(), (1 - np.tanh(X @ w.eval()) ** 2)[:, None] * X, rtol=1e-12)


def test_symbolic_sizes_of_members_and_of_their_number_stay_symbolic() -> None:
    n, m = us.dims("n m")
    xs = us.placeholder((m, n), "float64")
    found = us.vmap(lambda x: us.cumsum(x)[1:] / us.sum(x))(xs)
    expected = np.cumsum(X, axis=1)[:, 1:] / X.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found.eval({xs: X}), expected, rtol=1e-12)


def test_a_batch_of_no_members_has_no_results() -> None:
    assert us.vmap(lambda x: us.sum(x * x))(np.empty((0, 4))).eval().shape == (0,)


# --- indexing by what differs among members ---------------------------------------------------------------------------

ROWS = np.arange(24.0).reshape(2, 3, 4)
STARTS = np.array([2, 0, -1])


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        (lambda r, k: r[1, k], lambda r, k: r[1, k]),
        (lambda r, k: r[:, k, ::2], lambda r, k: r[:, k, ::2]),
        (lambda r, k: r[k[None] % 2, :, [1, 2]], lambda r, k: r[np.array([k % 2]), :, [1, 2]]),
        (lambda r, k: r[..., us.stack([k, k - 1])], lambda r, k: r[..., [k, k - 1]]),
        (lambda r, k: r.at[1, k].set(5.0), lambda r, k: put(r, (1, k), 5.0)),
        (lambda r, k: r.at[:, k].add(5.0), lambda r, k: put(r, (slice(None), k), r[:, k] + 5.0)),
    ],
)
def test_members_read_and_write_at_positions_of_their_own(select: Any, expected: Any) -> None:
    found = us.vmap(lambda k: select(us.tensor(ROWS), k))(STARTS)
    np.testing.assert_array_equal(found.eval(), [expected(ROWS, k) for k in STARTS])
    own = [ROWS + i for i in range(3)]
    both = us.vmap(select)(np.stack(own), STARTS)
    np.testing.assert_array_equal(both.eval(), [expected(r, k) for r, k in zip(own, STARTS, strict=True)])
    weights = np.cos(np.arange(both.size)).reshape(both.shape)
    slope = us.grad(lambda r: us.sum(us.vmap(select)(r, STARTS) * weights))(np.stack(own))
    alone = [
        us.grad(lambda r, k=k, w=w: us.sum(select(r, us.constant(k)) * w))(r).eval()
        for r, k, w in zip(own, STARTS, weights, strict=True)
    ]
    np.testing.assert_allclose(slope.eval(), alone)


def put(array: Any, index: Any, values: Any) -> Any:
    copy = array.copy()
    copy[index] = values
    return copy


def test_a_position_out_of_range_is_refused_and_reads_nothing_of_a_neighbour() -> None:
    with pytest.raises(us.errors.IndexRangeError, match="index 4 is out of range for axis 0 with size 4"):
        us.vmap(lambda x, k: x[k])(us.tensor(X), us.tensor(np.array([0, 4, 1]))).eval()


# --- mistakes --------------------------------------------------------------------------------------------------------


def test_a_value_that_is_read_is_a_mistake_that_says_what_to_do() -> None:
    def f(x: us.Tensor) -> us.Tensor:
        return x if float(us.sum(x)) > 0 else -x

    with pytest.raises(UnboundPlaceholderError, match=r"(?s)under us.vmap.*float\(us.sum\(x\)\).*us.iterate\(until=\)"):
        us.vmap(f)(X)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: us.vmap(3), ArgumentError, "us.vmap takes a function"),
        (lambda: us.vmap(us.add)(X, Y), ShapeError, "members differ in number: 3 in .* 5 in"),
        (lambda: us.vmap(us.add)(X, 1.0), ShapeError, "is a scalar and has no axis 0"),
        (lambda: us.vmap(us.add, in_axes=(None, None))(X, X), ArgumentError, "needs an argument with an axis"),
        (lambda: us.vmap(us.add, in_axes=(0, 0, 0))(X, X), StructureError, "in_axes is an integer, None, or nested"),
        (lambda: us.vmap(us.add, in_axes=(0, {"a": 0}))(X, X), StructureError, "in_axes is an integer, None"),
        (lambda: us.vmap(lambda x: x, out_axes=(0, 0))(X), StructureError, "out_axes is an integer, None"),
        (lambda: us.vmap(lambda x: x, out_axes=None)(X), ArgumentError, "differs from member to member"),
        (lambda: us.vmap(lambda x, s: x)(X, "mode"), DTypeError, "in_axes=None passes it on"),
    ],
)
def test_mistakes_are_named(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
