"""`unspool.fragment`: the same values and derivatives as the plain function, traced once for all sizes."""

from __future__ import annotations

import threading
import weakref
from collections import namedtuple
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.fragments.tracing_helpers import counted, numbers
from unspool._fragments.call import Projection
from unspool._traced.function import MOST_TRACES

Pair = namedtuple("Pair", "first second")


def power_step(A: Any, x: Any) -> Any:
    y = A @ x
    norm = us.linalg.norm(y)
    return y / norm, norm


# Functions of a square matrix and a vector that return something to sum over.
FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "product": lambda A, x: A @ x,
    "power iteration": lambda A, x: power_step(A, x)[0],
    "elementwise": lambda A, x: us.exp(-x) * us.sin(x) + us.log(x) / x,
    "broadcast": lambda A, x: A * x + x[:, None],
    "reductions": lambda A, x: us.max(A, axis=0) + us.mean(A, axis=1) * us.var(x),
    "layout": lambda A, x: us.concat([A.T.reshape(-1), x[::-1]]),
    "size in a shape": lambda A, x: us.eye(A.shape[0]) * 2 + us.ones((x.shape[0], 1)) * A,
    "solve": lambda A, x: us.linalg.solve(A + 10 * us.eye(A.shape[0]), x),
    "svd": lambda A, x: us.linalg.svd(A).S,
    "qr": lambda A, x: us.linalg.qr(A).R ** 2,
    "eigh": lambda A, x: us.linalg.eigh(A + A.T)[0] * x,
    "determinant": lambda A, x: us.linalg.slogdet(A + 10 * us.eye(A.shape[0]))[1],
    "network": lambda A, x: us.einsum("i,ij,jk,kl,l->", x, A, A, A, x),
    "indexing": lambda A, x: A[1:, ::2] * x[1:, None],
    "update": lambda A, x: A.at[0].set(x * x),
    "choice": lambda A, x: us.where(A > 1, A * A, us.sqrt(A)),
    "scan": lambda A, x: us.cumsum(A * x, axis=0),
    "loop": lambda A, x: [x := power_step(A, x)[0] for _ in range(3)][-1],
    "size that is looked at": lambda A, x: sum((A[i] * x for i in range(A.shape[0])), x) / x.shape[0],
    "gradient inside": lambda A, x: us.grad(lambda y: us.sum(us.sin(A @ y) ** 2))(x),
    "unused argument": lambda A, x: x * x,
}


COMPUTED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "value": lambda f, A, x: f(A, x),
    "gradient": lambda f, A, x: us.grad(partial(weighted_sum, f), argnums=(0, 1))(A, x),
    "tangent": lambda f, A, x: us.jvp(f, (A, x), (A * A, 2 - x)),
    "second derivative": lambda f, A, x: us.grad(partial(slope, f), argnums=(0, 1))(A, x),
    "Hessian times vector": lambda f, A, x: us.hvp(partial(weighted_sum, f), (A, x), (A * A, 2 - x)),
}


def weighted_sum(f: Any, A: Any, x: Any) -> Any:
    y = f(A, x)
    return us.sum(y * numbers(*y.shape, seed=1))


def slope(f: Any, A: Any, x: Any) -> Any:
    return sum(us.sum(us.sin(part)) for part in us.grad(partial(weighted_sum, f), argnums=(0, 1))(A, x))


@pytest.mark.parametrize("what", COMPUTED)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_derivatives_are_those_of_the_plain_function(name: str, what: str) -> None:
    plain, compute = FUNCTIONS[name], COMPUTED[what]
    folded = us.fragment(plain)
    for n in (3, 5):
        A, x = us.tensor(numbers(n, n)), us.tensor(numbers(n))
        expected, found = us.eval(compute(plain, A, x)), us.eval(compute(folded, A, x))
        for a, b in zip(_flat(expected), _flat(found), strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-9)


def _flat(tree: Any) -> list[Any]:
    return [leaf for item in tree for leaf in _flat(item)] if isinstance(tree, (tuple, list)) else [tree]


@pytest.mark.parametrize("dtype", ["float32", "complex64", "complex128"])
def test_dtypes_are_kept(dtype: str) -> None:
    A, x = us.tensor(numbers(3, 3).astype(dtype)), us.tensor(numbers(3).astype(dtype))
    f = us.fragment(lambda A, x, s: us.sum(us.abs(s * (A @ x) + 1) ** 2))
    found, expected = f(A, x, 0.1), f.__wrapped__(A, x, 0.1)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found.eval(), expected.eval(), rtol=1e-6)
    np.testing.assert_allclose(found.grad(A).eval(), expected.grad(A).eval(), rtol=1e-5)


# --- traced once -----------------------------------------------------------------------------------------------------


def test_one_trace_serves_all_sizes() -> None:
    f, runs = counted(power_step)
    for n in (2, 3, 7, 20):
        a, v = numbers(n, n), numbers(n)
        y, norm = f(us.tensor(a), us.tensor(v))
        np.testing.assert_allclose(norm.eval(), np.linalg.norm(a @ v))
        np.testing.assert_allclose(y.eval(), a @ v / np.linalg.norm(a @ v))
    assert len(runs) == 1 and f.traces == 1


def test_a_call_is_one_node_and_the_same_call_is_the_same_node() -> None:
    f = us.fragment(power_step)
    A, x = us.tensor(numbers(3, 3)), us.tensor(numbers(3))
    y, norm = f(A, x)
    assert type(y) is Projection and y is f(A, x)[0] and norm is f(A, x)[1]


def test_other_dtypes_ranks_and_patterns_of_sizes_make_other_traces() -> None:
    f, runs = counted(lambda x, y: x * y)
    f(us.tensor(numbers(3)), us.tensor(numbers(3)))
    f(us.tensor(numbers(5)), us.tensor(numbers(5)))
    assert len(runs) == 1
    f(us.tensor(numbers(5)), us.tensor(numbers(1)))
    f(us.tensor(numbers(3, 5)), us.tensor(numbers(5)))
    f(us.tensor(numbers(5, 5)), us.tensor(numbers(5)))
    f(us.tensor(numbers(3).astype("float32")), us.tensor(numbers(3)))
    f(us.tensor(numbers(0)), us.tensor(numbers(0)))
    assert len(runs) == 6


def test_a_size_that_is_derived_and_happens_to_be_one_broadcasts_as_in_plain_code() -> None:
    f = us.fragment(lambda x, y: us.squeeze(x[1:] * y))
    assert f(us.tensor(numbers(4)), us.tensor(numbers(3))).shape == (3,)
    for _ in range(2):
        short = us.tensor(numbers(2))
        np.testing.assert_allclose(f(short, us.tensor(numbers(5))).eval(), short.eval()[1] * numbers(5))
    g = us.fragment(lambda x: us.squeeze(x[1:]))
    assert [g(us.tensor(numbers(n))).shape for n in (4, 2, 5, 2)] == [(3,), (), (4,), ()]
    assert g.traces == 2
    assert "x.shape[0] = 2, the general trace does not hold for it" in str(g.trace(us.tensor(numbers(2))))


# --- what belongs to the key -----------------------------------------------------------------------------------------


def test_strings_bools_and_none_belong_to_the_key() -> None:
    def f(x: Any, mode: str, scale: bool = False, bias: Any = None) -> Any:
        y = us.sin(x) if mode == "sin" else us.cos(x)
        y = 2 * y if scale else y
        return y if bias is None else y + bias

    folded, runs = counted(f)
    x = us.tensor(numbers(3))
    for _ in range(2):
        for args, kwargs in ((("sin",), {}), (("cos",), {}), (("cos", True), {}), (("cos",), {"bias": x})):
            np.testing.assert_allclose(folded(x, *args, **kwargs).eval(), f(x, *args, **kwargs).eval())
    assert len(runs) == 4


def test_static_arguments_are_known_by_name_at_any_place() -> None:
    @us.fragment(static="order")
    def power_sum(x: Any, order: int = 2, *, shift: float = 0.0) -> Any:
        return sum((x**i for i in range(order)), us.zeros_like(x)) + shift

    x = us.tensor([2.0, 3.0])
    assert power_sum(x, 3).tolist() == [7.0, 13.0]
    assert power_sum(x, order=3, shift=1.0).tolist() == [8.0, 14.0]
    assert power_sum(x).tolist() == [3.0, 4.0]
    assert "only for" not in str(power_sum.trace(x, 3))


def test_several_static_arguments_may_be_any_hashable_objects() -> None:
    f = us.fragment(lambda x, g, axes: us.sum(g(x), axis=axes), static=("g", "axes"))
    x = us.tensor(numbers(2, 3))
    assert f(x, us.sin, (0, 1)).shape == () and f(x, us.cos, (0,)).shape == (3,) and f.traces == 2


def test_what_cannot_be_a_key_is_refused_by_name() -> None:
    f = us.fragment(lambda x, axes: us.sum(x, axis=tuple(axes)), static="axes")
    with pytest.raises(us.errors.ArgumentError, match="static argument axes .* hashable.* list"):
        f(us.tensor(numbers(2, 2)), [0, 1])
    with pytest.raises(us.errors.ArgumentError, match=r"argument options\['a'\] .* hashable.* set"):
        us.fragment(lambda x, options: x)(us.tensor(1.0), {"a": {1}})
    with pytest.raises(us.errors.ArgumentError, match="static names 'order', which is no parameter; there are: x"):
        us.fragment(lambda x: x, static="order")
    with pytest.raises(us.errors.ArgumentError, match="takes a function, got .* of type int"):
        us.fragment(3)  # type: ignore[call-overload]


def test_equal_values_of_different_types_are_different_keys() -> None:
    f = us.fragment(lambda x, flag: x * 10 if flag is True else x * flag)
    x = us.tensor(np.arange(3))
    assert f(x, True).tolist() == [0, 10, 20]
    assert (f(x, 1).tolist(), f(x, 1).dtype) == ([0, 1, 2], us.int64)
    assert (f(x, 1.0).tolist(), f(x, 1.0).dtype) == ([0.0, 1.0, 2.0], us.float64)


def test_the_number_of_traces_is_bounded() -> None:
    f = us.fragment(lambda x, k: x * k, static="k")
    x = us.tensor(1.0)
    assert [f(x, k).item() for k in range(MOST_TRACES + 10)] == list(range(MOST_TRACES + 10))
    assert f.traces == MOST_TRACES
    f.clear()
    assert f.traces == 0 and f(x, 3).item() == 3


# --- structures ------------------------------------------------------------------------------------------------------


def test_arguments_and_results_are_nested_structures() -> None:
    @us.fragment
    def f(state: dict[str, Any], pair: Pair, *rest: Any, **named: Any) -> Any:
        total = state["x"] + pair.first * pair.second + sum(rest) + named["w"][0]
        return {
            "total": total,
            "pair": Pair(total, state["x"]),
            "same": state["x"],
            "none": None,
            "tag": "t",
            "three": 3,
        }

    x, y = us.tensor(numbers(3)), us.tensor(numbers(3, seed=1))
    for _ in range(2):
        out = f({"x": x}, Pair(y, 2.0), x, y, w=[x])
        assert isinstance(out["pair"], Pair) and out["same"] is x and out["pair"].second is x
        assert (out["none"], out["tag"], out["three"]) == (None, "t", 3)
        assert out["total"] is out["pair"].first
        np.testing.assert_allclose(out["total"].eval(), 3 * x.eval() + 3 * y.eval())
    assert f.traces == 1


def test_sizes_that_are_returned_are_numbers() -> None:
    f = us.fragment(lambda x, s: (x.shape, 2 * x.shape[0], s, x))
    x = us.tensor(numbers(3, 4))
    assert f(x, 0.5) == ((3, 4), 6, 0.5, x)
    shape, double, number, same = f(us.tensor(numbers(5, 4)), 0.25)
    assert (shape, double, number) == ((5, 4), 10, 0.25) and same.shape == (5, 4) and f.traces == 1


def test_a_result_that_depends_on_no_argument_is_the_tensor_itself() -> None:
    w = us.tensor([1.0, 2.0])
    f = us.fragment(lambda x: (x * 2, w, us.constant(3.0), us.zeros(x.shape[0])))
    for n in (3, 4):
        _, same, three, zeros = f(us.tensor(numbers(n)))
        assert same is w and three is us.constant(3.0) and zeros.eval().tolist() == [0.0] * n


def test_a_function_without_results_or_arguments_is_fine() -> None:
    w = us.tensor(2.0)
    assert us.fragment(lambda x: None)(w) is None
    assert us.fragment(lambda: w * w)().item() == 4.0
    assert us.fragment(lambda x: x)(w) is w


def test_duplicates_among_arguments_have_derivatives_of_their_own() -> None:
    f = us.fragment(lambda x, y: us.sum(x * x * y))
    x = us.tensor([2.0, 3.0])
    assert f(x, x).grad(x).tolist() == [12.0, 27.0]
    first, second = us.grad(f, argnums=(0, 1))(x, x)
    assert first.tolist() == [8.0, 18.0] and second.tolist() == [4.0, 9.0]


# --- inside other things ---------------------------------------------------------------------------------------------


def test_fragments_inside_fragments_are_part_of_the_outer_one() -> None:
    inner, inner_runs = counted(lambda x, s: us.tanh(x) * s)
    outer, outer_runs = counted(lambda x, s: inner(inner(x, s), 2 * s))
    for n, s in ((3, 0.5), (4, 0.25)):
        x = us.tensor(numbers(n))
        np.testing.assert_allclose(outer(x, s).eval(), np.tanh(np.tanh(numbers(n)) * s) * 2 * s)
    assert len(outer_runs) == 1 and len(inner_runs) == 2 and inner.traces == 0


def test_an_inner_fragment_on_known_sizes_is_a_call_inside_the_outer_trace() -> None:
    inner = us.fragment(lambda x: us.sin(x) * x)
    outer = us.fragment(lambda x: us.sum(inner(x[0]) + inner(x[1])))
    x = us.tensor([0.5, 1.5])
    v = x.eval()
    np.testing.assert_allclose(outer(x).grad(x).eval(), np.sin(v) + v * np.cos(v))
    np.testing.assert_allclose(us.hessian(outer)(x).eval(), np.diag(2 * np.cos(v) - v * np.sin(v)))


def test_arguments_with_symbolic_sizes_run_the_function_as_it_is() -> None:
    f = us.fragment(power_step)
    n = us.dims("n")
    A, x = us.placeholder((n, n)), us.placeholder((n,))
    y, norm = f(A, x)
    a, v = numbers(3, 3), numbers(3)
    np.testing.assert_allclose(norm.eval({A: a, x: v}), np.linalg.norm(a @ v))
    assert y.shape == (n,) and f.traces == 0
    with pytest.raises(us.errors.ArgumentError, match="symbolic"):
        f.trace(A, x)
    closed = us.fragment(lambda s: s * x)
    np.testing.assert_allclose(closed(us.tensor(2.0)).eval({x: v}), 2 * v)


def test_placeholders_of_known_sizes_are_arguments_like_others() -> None:
    f = us.fragment(power_step)
    A, x = us.placeholder((3, 3)), us.placeholder((3,))
    _, norm = f(A, x)
    a, v = numbers(3, 3), numbers(3)
    np.testing.assert_allclose(norm.eval({A: a, x: v}), np.linalg.norm(a @ v))
    np.testing.assert_allclose(norm.grad(x).eval({A: a, x: v}), a.T @ (a @ v) / np.linalg.norm(a @ v))
    assert f.traces == 1


def test_a_loop_of_calls_is_differentiated_as_the_plain_loop() -> None:
    def run(step: Any, A: Any, x: Any) -> Any:
        for _ in range(20):
            x, norm = step(A, x)
            if float(norm) < 0:
                break
        return x @ A @ x

    A, x = us.tensor(numbers(4, 4)), us.tensor(numbers(4))
    f = us.fragment(power_step)
    plain, folded = run(power_step, A, x), run(f, A, x)
    np.testing.assert_allclose(folded.eval(), plain.eval(), rtol=1e-12)
    np.testing.assert_allclose(folded.grad(A).eval(), plain.grad(A).eval(), rtol=1e-9, atol=1e-12)
    assert f.traces == 1


def test_random_draws_depend_on_the_key_that_is_passed() -> None:
    f, runs = counted(lambda key, x: x + us.random.normal(key, x.shape))
    x, (first, second) = us.tensor(numbers(3)), us.random.split(us.random.key(0))
    assert f(first, x).tolist() == (x + us.random.normal(first, (3,))).tolist()
    assert f(second, x).tolist() == (x + us.random.normal(second, (3,))).tolist()
    assert f(first, us.tensor(numbers(4))).tolist() == (us.tensor(numbers(4)) + us.random.normal(first, (4,))).tolist()
    assert len(runs) == 2


# --- errors ----------------------------------------------------------------------------------------------------------


def test_shapes_that_do_not_fit_raise_the_error_of_plain_code() -> None:
    f = us.fragment(power_step)
    f(us.tensor(numbers(3, 3)), us.tensor(numbers(3)))
    for _ in range(2):
        with pytest.raises(us.errors.ShapeError, match=r"\(3, 3\) and \(4,\)") as raised:
            f(us.tensor(numbers(3, 3)), us.tensor(numbers(4)))
    assert any(entry.name == "power_step" for entry in raised.traceback)
    g = us.fragment(lambda x: x + x[1:])
    with pytest.raises(us.errors.ShapeError):
        g(us.tensor(numbers(4)))


def test_an_exception_of_the_function_is_the_users() -> None:
    def f(x: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        us.fragment(f)(us.tensor(numbers(3)))


def test_a_kernel_that_fails_names_the_line_inside_the_function() -> None:
    def first(A: Any) -> Any:
        return us.linalg.inv(A)

    def second(A: Any) -> Any:
        return us.linalg.inv(A)  # another line

    singular = us.tensor(np.zeros((2, 2)))
    us.fragment(first)(singular)
    with pytest.raises(us.errors.RankError, match="another line"):
        us.fragment(second)(singular).eval()


# --- threads ---------------------------------------------------------------------------------------------------------


def test_threads_may_share_a_fragment() -> None:
    f = us.fragment(power_step)
    found: dict[int, Any] = {}

    def work(n: int) -> None:
        A, x = us.tensor(numbers(n, n)), us.tensor(numbers(n))
        for _ in range(10):
            x, _norm = f(A, x)
        found[n] = us.sum(x).grad(A).eval()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(2, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n in range(2, 8):
        A, x = us.tensor(numbers(n, n)), us.tensor(numbers(n))
        for _ in range(10):
            x, _norm = power_step(A, x)
        np.testing.assert_allclose(found[n], us.sum(x).grad(A).eval(), rtol=1e-9, atol=1e-12)


def test_a_fragment_may_call_one_that_makes_things_of_constants() -> None:
    def inverse(s: us.Tensor) -> us.Tensor:
        m = 0.3 * us.tanh(s + us.zeros((3, 3)))
        return 2.0 * us.linalg.inv(np.diag([1.0, 2.5, 5.0]) + 0.5 * (m + us.conj(m).T))

    inner = us.fragment(inverse)
    outer = us.fragment(lambda s: us.mean(inner(s), axis=0))
    expected = 2 * np.linalg.inv(np.diag([1.0, 2.5, 5.0]) + 0.3 * np.tanh(0.4))
    np.testing.assert_allclose(outer(us.tensor(0.4)).eval(), expected.mean(axis=0), rtol=1e-12)


def test_the_wrapper_looks_like_the_function() -> None:
    f = us.fragment(power_step)
    assert f.__name__ == "power_step" and f.__wrapped__ is power_step and repr(f) == "<fragment power_step>"


def test_a_trace_keeps_no_argument_alive() -> None:
    x, y = us.tensor(numbers(3)), us.tensor(numbers(3))
    alive = [weakref.ref(x), weakref.ref(y)]
    f = us.fragment(lambda a, b: us.sum(a["x"] * b))
    f({"x": x}, y).eval()
    del x, y
    assert [reference() for reference in alive] == [None, None] and f.traces == 1


@pytest.mark.parametrize(("dtype", "number"), [("int8", 300), ("uint8", -1), ("uint64", -1), ("int16", 1 << 20)])
def test_an_integer_that_does_not_fit_the_dtype_of_a_tensor_is_refused(dtype: str, number: int) -> None:
    x, f = us.tensor(np.array([1, 2], dtype)), us.fragment(lambda x, k: x + k)
    np.testing.assert_array_equal(f(x, 3), np.array([1, 2], dtype) + 3)
    with pytest.raises(us.errors.DTypeError, match="out of bounds"):
        f(x, number).eval()
