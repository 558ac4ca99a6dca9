"""`unspool.remat`: the same bits as the plain function, with nothing of its inside held between value and gradient."""

from __future__ import annotations

import tracemalloc
from collections import namedtuple
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.fragments.tracing_helpers import numbers
from unspool._engine.default import default_engine
from unspool._fragments.call import link_of
from unspool._graph import ancestors
from unspool.errors import ArgumentError

State = namedtuple("State", "position momentum")


def residual_ops(function: Any, *args: Any) -> list[str]:
    """Return the ops whose results a traced function keeps for derivatives."""
    fragment = function.trace(*args).fragment
    body = fragment.body
    return sorted(body[slot - len(fragment.dtypes)].op.name for slot in fragment.outputs[fragment.results :])


class CountedSine:
    """A sine that counts its kernel calls; its rule looks at its input."""

    def __init__(self) -> None:
        self.runs = 0
        self._apply = us.op(
            "counted sine",
            kernel=self._kernel,
            infer=lambda x: (x.shape, x.dtype),
            vjp=(lambda ct, out, x: ct * us.cos(x),),
            replace=True,
        )

    def _kernel(self, array: Any) -> Any:
        self.runs += 1
        return np.sin(array)

    def __call__(self, x: Any) -> Any:
        return self._apply(x)

    def count(self, work: Callable[[], Any]) -> int:
        """Return how many kernel calls some work takes."""
        before = self.runs
        work()
        return self.runs - before


@pytest.fixture
def sine() -> CountedSine:
    return CountedSine()


# --- values and derivatives ------------------------------------------------------------------------------------------


# Functions of a square matrix and a vector whose results are used in their own rules, are several, come from
# factorisations, depend on sizes, or are masked.
FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "layers": lambda A, x: us.tanh(A @ us.sin(A @ us.exp(A @ x))),
    "result that its rule looks at": lambda A, x: us.exp(A @ x),
    "several results": lambda A, x: us.concat([y := us.tanh(A @ x), us.sin(y)]),
    "norm": lambda A, x: (A @ x) / us.linalg.norm(A @ x),
    "svd": lambda A, x: us.linalg.svd(A @ A).S,
    "qr": lambda A, x: us.linalg.qr(A @ A).R ** 2,
    "solve": lambda A, x: us.linalg.solve(A + 10 * us.eye(A.shape[0]), us.sin(x)),
    "choice": lambda A, x: us.where(A > 1, us.log(A - 1), A),
    "maximum": lambda A, x: us.max(us.sin(A @ A), axis=0),
    "network": lambda A, x: us.einsum("i,ij,jk,kl,l->", x, A, A, A, x),
    "size that is looked at": lambda A, x: sum((A[i] * us.sin(x) for i in range(A.shape[0])), x),
    "gradient inside": lambda A, x: us.grad(lambda y: us.sum(us.sin(A @ y) ** 2))(x),
    "argument": lambda A, x: x,
    "constant": lambda A, x: us.ones(3),
}

COMPUTED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "value": lambda f, A, x: f(A, x),
    "gradient": lambda f, A, x: gradient(partial(weighted_sum, f))(A, x),
    "tangent": lambda f, A, x: us.jvp(f, (A, x), (A * A, 2 - x), unconnected="zeros"),
    "second derivative": lambda f, A, x: gradient(partial(slope, f))(A, x),
    "Hessian times vector": lambda f, A, x: us.hvp(
        partial(weighted_sum, f), (A, x), (A * A, 2 - x), unconnected="zeros"
    ),
}


def weighted_sum(f: Any, A: Any, x: Any) -> Any:
    y = f(A, x)
    return us.sum(y * numbers(*y.shape, seed=1))


def slope(f: Any, A: Any, x: Any) -> Any:
    return sum(us.sum(us.sin(part)) for part in gradient(partial(weighted_sum, f))(A, x))


def gradient(f: Any) -> Any:
    return us.grad(f, argnums=(0, 1), unconnected="zeros")  # one of the functions is constant


@pytest.mark.parametrize("what", COMPUTED)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_derivatives_are_the_bits_of_the_plain_function(name: str, what: str) -> None:
    plain, compute = FUNCTIONS[name], COMPUTED[what]
    A, x = us.tensor(numbers(3, 3)), us.tensor(numbers(3))
    found, expected = us.eval(compute(us.remat(plain), A, x)), us.eval(compute(plain, A, x))
    for f, e in zip(leaves(found), leaves(expected), strict=True):
        np.testing.assert_array_equal(f, e)


@pytest.mark.parametrize("what", ["value", "gradient", "tangent"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_first_derivatives_are_the_bits_of_the_fragment(name: str, what: str) -> None:
    plain, compute = FUNCTIONS[name], COMPUTED[what]
    A, x = us.tensor(numbers(3, 3)), us.tensor(numbers(3))
    found, expected = us.eval(compute(us.remat(plain), A, x)), us.eval(compute(us.fragment(plain), A, x))
    for f, e in zip(leaves(found), leaves(expected), strict=True):
        np.testing.assert_array_equal(f, e)


def leaves(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


def test_absent_elements_stay_absent() -> None:
    x = us.tensor([0.0, 2.0])
    log = us.remat(us.log)
    np.testing.assert_array_equal(us.sum(us.where(x > 0, log(x), 0.0)).grad(x).eval(), [0.0, 0.5])


def test_nested_structures_go_in_and_come_out() -> None:
    def leapfrog(state: State, force: Any, h: float) -> dict[str, Any]:
        momentum = state.momentum - h * us.sin(force["k"] * state.position)
        return {"state": State(state.position + h * momentum, momentum), "order": 1}

    state = State(us.tensor([0.1, 0.2]), us.tensor([1.0, -1.0]))
    force = {"k": us.tensor([2.0, 3.0])}
    plain, rebuilt = leapfrog(state, force, 0.1), us.remat(leapfrog)(state, force, 0.1)
    assert (type(rebuilt["state"]), rebuilt["order"]) == (State, 1)
    for p, r in zip(plain["state"], rebuilt["state"], strict=True):
        np.testing.assert_array_equal(r.eval(), p.eval())
        np.testing.assert_array_equal(us.sum(r).grad(force["k"]).eval(), us.sum(p).grad(force["k"]).eval())


def test_tensors_that_the_function_closes_over_get_their_gradient() -> None:
    w = us.tensor(numbers(3, 3))
    x = us.tensor(numbers(3))

    def f(x: Any) -> Any:
        return us.sum(us.tanh(w @ us.sin(w @ x)))

    rebuilt = us.remat(f)
    np.testing.assert_array_equal(rebuilt(x).grad(w).eval(), f(x).grad(w).eval())


# --- what is held ----------------------------------------------------------------------------------------------------


def test_no_value_inside_is_kept_after_evaluation() -> None:
    def body(A: Any, x: Any) -> Any:
        return us.tanh(A @ us.sin(A @ us.tanh(A @ x)))

    A, x = us.tensor(numbers(3, 3)), us.tensor(numbers(3))
    traced, rebuilt = us.fragment(body), us.remat(body)
    assert residual_ops(traced, A, x) == ["contract", "contract", "tanh"]
    assert residual_ops(rebuilt, A, x) == []
    y = rebuilt(A, x)
    y.eval()
    assert not link_of(y)[0].value


def test_a_loop_holds_one_state_a_step_and_nothing_else() -> None:
    size, steps = 1 << 15, 20

    def body(x: Any, w: Any) -> Any:
        for _ in range(4):
            x = us.cumsum(us.sin(x), axis=0) * w
        return x

    def held(function: Any) -> float:
        """Return the bytes that a loop holds after it ran, in units of a state."""
        function(us.tensor(np.ones(size)), us.tensor(1e-5)).eval()
        us.clear_caches()
        tracemalloc.start()
        x, w = us.tensor(np.ones(size)), us.tensor(1e-5)
        for _ in range(steps):
            x = function(x, w)
            x.eval()
        us.clear_caches()
        live = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        return live / (8 * size)

    assert steps <= held(us.remat(body)) < steps + 2
    assert held(us.fragment(body)) > 4 * steps


def test_the_gradient_runs_the_inside_exactly_once_more(sine: CountedSine) -> None:
    def body(A: Any, x: Any) -> Any:
        return A @ sine(A @ sine(A @ sine(A @ x)))

    A, x = us.tensor(numbers(3, 3)), us.tensor(numbers(3))
    for function, again in ((us.fragment(body), 0), (us.remat(body), 3)):
        loss = us.sum(function(A, x))
        assert sine.count(loss.eval) == 3
        gradient = loss.grad(A)
        assert sine.count(gradient.eval) == again
        assert sine.count(loss.grad(A).eval) == 0
        del loss, gradient


def test_a_result_is_rebuilt_with_the_rest_and_not_by_another_run(sine: CountedSine) -> None:
    """The rule of the last op looks at the result, which nobody holds any more when the gradient is taken."""
    rebuilt = us.remat(lambda A, x: us.exp(A @ sine(A @ x)))
    A, x = us.tensor(numbers(3, 3)), us.tensor(numbers(3))
    loss = us.sum(rebuilt(A, x))
    assert sine.count(loss.eval) == 1
    with us.debug.count_kernels() as counts:
        assert sine.count(loss.grad(A).eval) == 1
    assert counts["exp"] == 1


def test_a_loop_is_rebuilt_step_by_step_exactly_once(sine: CountedSine) -> None:
    runs: list[int] = []

    @us.remat
    def step(A: Any, x: Any) -> Any:
        runs.append(1)
        return A @ sine(A @ sine(A @ x))

    A, x = us.tensor(numbers(3, 3) / 3), us.tensor(numbers(3))
    for _ in range(25):
        x = step(A, x)
        x.eval()
    assert sine.runs == 50
    loss = us.sum(x * x)
    assert sine.count(loss.grad(A).eval) == 50
    assert (len(runs), step.traces) == (1, 1)


def test_value_and_gradient_in_one_evaluation_run_the_inside_twice(sine: CountedSine) -> None:
    rebuilt = us.remat(lambda A, x: A @ sine(A @ sine(A @ x)))
    A, x = us.tensor(numbers(3, 3) / 3), us.tensor(numbers(3))
    y = x
    for _ in range(10):
        y = rebuilt(A, y)
    loss = us.sum(y)
    assert sine.count(lambda: us.eval((loss, loss.grad(A)))) == 40


def test_the_function_itself_is_not_run_again() -> None:
    runs: list[int] = []

    @us.remat
    def f(x: Any) -> Any:
        runs.append(1)
        return us.sum(us.sin(x) * us.exp(x))

    x = us.tensor(numbers(3))
    us.eval((f(x), us.grad(f)(x), us.hessian(f)(x), f(x * 2.0).grad(x)))
    assert (len(runs), f.traces) == (1, 1)


def test_what_is_kept_inside_is_held_and_ends_the_rebuilding(sine: CountedSine) -> None:
    rebuilt = us.remat(lambda A, x: A @ sine(us.keep(A @ sine(A @ sine(A @ x)))))
    A, x = us.tensor(numbers(3, 3)), us.tensor(numbers(3))
    assert residual_ops(rebuilt, A, x) == ["contract"]
    loss = us.sum(rebuilt(A, x))
    assert sine.count(loss.eval) == 3
    # The two below the kept value are needed by the products that read them, the one above by the last product.
    assert sine.count(loss.grad(A).eval) == 3
    assert sine.count(us.sum(rebuilt(A, x + 1.0)).grad(x).eval) == 3 + 1


# --- where it can be used --------------------------------------------------------------------------------------------


def test_inside_a_fragment_only_arguments_and_results_are_held() -> None:
    inner = us.remat(lambda A, x: us.tanh(A @ us.sin(A @ x)))

    def stack(layer: Any) -> Any:
        return us.fragment(lambda A, x: layer(A, layer(A, layer(A, x))))

    A, x = us.tensor(numbers(3, 3)), us.tensor(numbers(3))
    plain, marked = stack(inner._function), stack(inner)
    assert len(residual_ops(plain, A, x)) == 6
    assert residual_ops(marked, A, x) == ["remat", "remat"]
    np.testing.assert_array_equal(us.sum(marked(A, x)).grad(A).eval(), us.sum(plain(A, x)).grad(A).eval())


def test_inside_a_fragment_of_scalars_only_arguments_and_results_are_held() -> None:
    inner = us.remat(lambda x: us.cumsum(us.sin(us.cumsum(us.reshape(x, (1,)), axis=0)), axis=0)[0])
    outer = us.fragment(lambda x: us.sin(inner(us.exp(x))))
    x = us.tensor(0.5)
    assert residual_ops(outer, x) == ["remat"]
    np.testing.assert_array_equal(outer(x).grad(x).eval(), us.sin(inner._function(us.exp(x))).grad(x).eval())


def test_what_surrounds_it_inside_a_fragment_is_held_as_ever() -> None:
    def outer(A: Any, x: Any) -> Any:
        outside = A @ us.sin(A @ x)
        return us.remat(lambda y: us.sin(A @ us.sin(outside * y)))(x)

    A, x = us.tensor(numbers(3, 3)), us.tensor(numbers(3))
    assert residual_ops(us.fragment(outer), A, x) == ["contract", "contract"]


def test_one_inside_another_holds_nothing_of_either(sine: CountedSine) -> None:
    inner = us.remat(lambda A, x: A @ sine(A @ x))
    outer = us.remat(lambda A, x: inner(A, sine(inner(A, x))))
    A, x = us.tensor(numbers(3, 3)), us.tensor(numbers(3))
    assert residual_ops(outer, A, x) == []
    loss = us.sum(outer(A, x))
    assert sine.count(loss.eval) == 3
    assert sine.count(loss.grad(A).eval) == 3
    plain = us.sum(A @ us.sin(A @ us.sin(A @ us.sin(A @ x))))
    np.testing.assert_array_equal(loss.grad(A).eval(), plain.grad(A).eval())


def test_the_body_of_a_loop_in_the_engine_holds_its_states_alone() -> None:
    A, x = us.tensor(numbers(3, 3) / 3), us.tensor(numbers(3))

    def body(y: Any) -> Any:
        return us.tanh(A @ us.sin(A @ y))

    def gradient(step: Any) -> Any:
        return us.sum(us.iterate(step, x, max_steps=8)[0]).grad(A)

    def rows(gradient: us.Tensor) -> Any:
        """Return how many values of each step the loop records."""
        return max(node.attributes["loop"].recorded for node in ancestors([gradient]) if "loop" in node.attributes)

    plain, rebuilt = gradient(body), gradient(us.remat(body))
    np.testing.assert_array_equal(rebuilt.eval(), plain.eval())
    assert (rows(plain), rows(rebuilt)) == (3, 1)


def test_a_fragment_is_taken_with_its_static_parameters() -> None:
    @us.fragment(static="order")
    def series(A: Any, x: Any, order: int) -> Any:
        return us.sum(sum((us.sin(A @ x) ** i for i in range(order)), x))

    rebuilt = us.remat(series)
    A, x = us.tensor(numbers(3, 3)), us.tensor(numbers(3))
    for order in (3, 4):
        np.testing.assert_array_equal(rebuilt(A, x, order).grad(x).eval(), series(A, x, order).grad(x).eval())
    assert (rebuilt.traces, series.traces) == (2, 2)
    assert (residual_ops(series, A, x, 3), residual_ops(rebuilt, A, x, 3)) == (["contract"], [])


def test_a_fragment_around_it_has_traces_of_its_own() -> None:
    inner = us.remat(lambda A, x: us.sin(A @ x))
    outer = us.fragment(inner)
    A, x = us.tensor(numbers(3, 3)), us.tensor(numbers(3))
    np.testing.assert_array_equal(outer(A, x).eval(), inner(A, x).eval())
    assert residual_ops(outer, A, x) == []
    assert (outer.traces, inner.traces) == (1, 1)
    outer.clear()
    assert (outer.traces, inner.traces) == (0, 1)


def test_it_takes_static_parameters_of_its_own_and_keeps_those_it_has() -> None:
    @us.remat(static="times")
    def repeat(x: Any, times: int, power: int) -> Any:
        for _ in range(times):
            x = us.sin(x**power)
        return x

    again = us.remat(repeat, static=("power",))
    x = us.tensor(numbers(3))
    np.testing.assert_array_equal(again(x, 2, 3).eval(), repeat(x, 2, 3).eval())
    assert repr(repeat).startswith("<remat ")
    assert again._parameters.static == {"times", "power"}


def test_it_works_as_a_method() -> None:
    class Layer:
        def __init__(self, weight: us.Tensor) -> None:
            self.weight = weight

        @us.remat
        def apply(self, x: Any) -> Any:
            return us.tanh(self.weight @ us.sin(self.weight @ x))

    layer = Layer(us.tensor(numbers(3, 3)))
    x = us.tensor(numbers(3))
    w = layer.weight
    expected = us.sum(us.tanh(w @ us.sin(w @ x))).grad(w).eval()
    np.testing.assert_array_equal(us.sum(layer.apply(x)).grad(w).eval(), expected)
    bound = us.remat(layer.apply)
    np.testing.assert_array_equal(us.sum(bound(x)).grad(w).eval(), expected)


def test_symbolic_sizes_are_welcome() -> None:
    n: Any = us.dims("n")
    x = us.placeholder((n,))
    gradient = us.sum(us.remat(lambda x: us.sin(x) * us.exp(x))(x)).grad(x)
    array = numbers(4)
    expected = np.cos(array) * np.exp(array) + np.sin(array) * np.exp(array)
    np.testing.assert_allclose(gradient.eval({x: array}), expected, rtol=1e-15)


def test_asking_for_one_result_of_symbolic_size_needs_only_what_it_is_made_of() -> None:
    sizes: Any = us.dims("n m")
    x, y = us.placeholder(sizes[:1]), us.placeholder(sizes[1:])
    first, _ = us.remat(lambda x, y: (us.sin(x), us.sin(y)))(x, y)
    np.testing.assert_array_equal(first.eval({x: np.zeros(2)}), np.zeros(2))


def test_cotangents_of_results_can_be_asked_for() -> None:
    A, x = us.tensor(numbers(3, 3)), us.tensor(numbers(3))
    y = us.remat(lambda A, x: us.tanh(A @ x))(A, x)
    np.testing.assert_array_equal(us.sum(y * y).grad(y).eval(), (2 * y).eval())


def test_all_memory_is_returned_when_the_results_are_let_go() -> None:
    engine = default_engine()
    before = engine.kept_bytes()
    rebuilt = us.remat(lambda x: us.cumsum(us.sin(us.cumsum(x, axis=0)), axis=0))
    x = us.tensor(numbers(100))
    y = rebuilt(x)
    y.eval()
    us.sum(y).grad(x).eval()
    assert engine.kept_bytes() == before


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"us\.remat takes a function, got .* of type int"):
        us.remat(3)  # type: ignore[call-overload]
