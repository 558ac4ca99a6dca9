"""`unspool.keep` and `unspool.cheap`: no value changes, only what a piece of graph holds for its derivatives."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import optree
import pytest

import unspool as us
from unspool._engine.default import default_engine
from unspool._engine.plan import make_plan
from unspool._fragments.call import Projection, link_of
from unspool._fragments.fragment import capture
from unspool._fragments.residuals import kept_outputs
from unspool._ops.hints import is_kept

Pair = namedtuple("Pair", "first second")
HINTS = pytest.mark.parametrize("hint", [us.keep, us.cheap])


def numbers(*shape: int) -> Any:
    return np.random.default_rng([*shape]).uniform(0.5, 1.5, shape)


def tensors(*shapes: tuple[int, ...]) -> list[us.Tensor]:
    return [us.tensor(numbers(*shape)) for shape in shapes]


def residual_ops(function: Callable[..., Any], *args: us.Tensor) -> list[str]:
    """Return the ops whose results a fragment keeps for derivatives."""
    fragment = us.fragment(function).trace(*args).fragment
    body = fragment.body
    return sorted(body[slot - len(fragment.dtypes)].op.name for slot in fragment.outputs[fragment.results :])


# --- values and derivatives ------------------------------------------------------------------------------------------


@HINTS
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128, np.int64, np.bool_])
def test_a_value_of_any_dtype_is_what_it_was(hint: Any, dtype: Any) -> None:
    array = np.asarray([0, 1, 2], dtype)
    marked = hint(us.tensor(array))
    assert marked.dtype == array.dtype
    np.testing.assert_array_equal(marked.eval(), array)


@HINTS
def test_structures_are_mapped_leaf_by_leaf(hint: Any) -> None:
    x, y = tensors((2,), (3,))
    array = numbers(2)
    marked = hint({"pair": Pair(x, [y, None]), "number": 3, "text": "a", "array": array})
    assert type(marked["pair"]) is Pair
    assert marked["pair"].first is hint(x)
    assert marked["pair"].second == [hint(y), None]
    assert (marked["number"], marked["text"]) == (3, "a")
    assert marked["array"] is array


@HINTS
def test_a_hint_given_twice_is_given_once(hint: Any) -> None:
    x = us.tensor([1.0, 2.0]) * 2.0
    assert hint(x) is hint(x)
    assert hint(hint(x)) is hint(x)
    assert hint(x) is not x


@HINTS
def test_derivatives_of_every_kind_are_the_same_bits(hint: Any) -> None:
    def plain(A: Any, x: Any) -> Any:
        h = us.sin(A @ x)
        return us.sum(us.tanh(A @ h) * h)

    def marked(A: Any, x: Any) -> Any:
        h = hint(us.sin(hint(A @ x)))
        return us.sum(hint(us.tanh(A @ h)) * h)

    A, x = tensors((4, 4), (4,))
    v = us.tensor(numbers(4) - 1.0)

    def derivatives(f: Any) -> list[Any]:
        of_x = partial(f, A)
        forms = f(A, x), us.jvp(of_x, (x,), (v,)), us.hvp(of_x, (x,), (v,)), us.hessian(of_x)(x)
        return leaves((*forms, *us.grad(f, argnums=(0, 1))(A, x)))

    for found, expected in zip(derivatives(marked), derivatives(plain), strict=True):
        np.testing.assert_array_equal(found, expected)


def leaves(tree: Any) -> list[Any]:
    found: list[Any] = optree.tree_leaves(us.eval(tree))
    return found


@HINTS
def test_an_absent_cotangent_stays_absent(hint: Any) -> None:
    x = us.tensor([0.0, 2.0])
    safe = us.where(x > 0, hint(us.log(hint(x))), 0.0)
    np.testing.assert_array_equal(us.sum(safe).grad(x).eval(), [0.0, 0.5])


@HINTS
def test_the_tape_passes_cotangents_on(hint: Any) -> None:
    x = us.tensor([2.0, 3.0])
    out = us.sum(hint(x * x))
    tape = us.Tape(out)
    np.testing.assert_array_equal(tape.backward(tape.id_of(out), np.float64(1.0))[tape.id_of(x)], [4.0, 6.0])


@HINTS
def test_a_plan_knows_no_hints(hint: Any) -> None:
    x = us.tensor([1.0, 2.0])
    marked = make_plan(capture([x], [us.sum(hint(us.exp(hint(x * x))))]).fragment, ((2,),))
    plain = make_plan(capture([x], [us.sum(us.exp(x * x))]).fragment, ((2,),))
    assert [step.op for step in marked.instructions] == [step.op for step in plain.instructions]
    assert marked.kernels == plain.kernels
    assert marked.peak_bytes == plain.peak_bytes


# --- what is held ----------------------------------------------------------------------------------------------------


def test_what_is_cheap_is_not_held_and_what_it_is_made_of_is() -> None:
    A, x = tensors((4, 4), (4,))
    held = residual_ops(lambda A, x: us.sin(A @ (A @ x)), A, x)
    cheap = residual_ops(lambda A, x: us.sin(us.cheap(A @ (A @ x))), A, x)
    both = residual_ops(lambda A, x: us.sin(us.cheap(A @ us.cheap(A @ x))), A, x)
    assert (held, cheap, both) == (["contract", "contract"], ["contract"], [])


def test_what_is_kept_is_held_even_if_it_is_cheap_or_nothing_looks_at_it() -> None:
    (x,) = tensors((4,))
    assert residual_ops(lambda x: us.sum(us.exp(x) + x), x) == []
    assert residual_ops(lambda x: us.sum(us.keep(us.exp(x)) + x), x) == ["exp"]
    assert residual_ops(lambda x: us.sum(us.keep(x + 1.0)), x) == ["add"]


def test_what_is_kept_is_not_computed_again_for_derivatives() -> None:
    (x,) = tensors((4,))
    runs: list[int] = []

    def kernel(array: Any) -> Any:
        runs.append(1)
        return np.exp(array)

    rule = lambda ct, out, x: ct * out  # noqa: E731
    exp = us.op("counted exp", kernel=kernel, infer=lambda x: (x.shape, x.dtype), vjp=(rule,), replace=True)
    loss = us.fragment(lambda x: us.sum(us.keep(exp(x))))(x)
    loss.eval()
    np.testing.assert_array_equal(loss.grad(x).eval(), np.exp(x.eval()))
    assert len(runs) == 1


def test_a_value_that_is_kept_and_cheap_is_kept() -> None:
    A, x = tensors((4, 4), (4,))
    assert residual_ops(lambda A, x: us.sin(us.cheap(us.keep(A @ x))), A, x) == ["contract"]
    assert residual_ops(lambda A, x: us.sin(us.keep(us.cheap(A @ x))), A, x) == ["cheap"]


def test_an_argument_need_not_be_kept() -> None:
    (x,) = tensors((4,))
    assert residual_ops(lambda x: us.sum(us.sin(us.keep(x))), x) == []


def test_parts_of_a_factorisation_are_dropped_one_by_one() -> None:
    (A,) = tensors((4, 4))

    def held(*cheap: int) -> list[str]:
        def function(A: Any) -> Any:
            parts = us.linalg.qr(A @ A)
            q, r = [us.cheap(part) if i in cheap else part for i, part in enumerate(parts)]
            return us.sum(us.sin(q)) + us.sum(us.sin(r))

        return residual_ops(function, A)

    assert held() == ["part", "part"]
    assert held(0) == held(1) == ["contract", "part"]
    assert held(0, 1) == ["contract"]


def test_the_gradient_is_right_when_a_part_of_a_factorisation_is_dropped() -> None:
    (A,) = tensors((4, 4))

    def function(A: Any, hint: Any = lambda x: x) -> Any:
        q, r = us.linalg.qr(A @ A)
        return us.sum(us.sin(hint(q)) @ r)

    marked = us.fragment(lambda A: function(A, us.cheap))
    loss = marked(A)
    loss.eval()
    np.testing.assert_array_equal(loss.grad(A).eval(), function(A).grad(A).eval())


@HINTS
def test_a_folded_loop_holds_what_the_hint_says(hint: Any) -> None:
    A = us.tensor(numbers(4, 4) / 4)
    x = start = us.tensor(numbers(4))
    for _ in range(30):
        h = hint(us.sin(A @ x))
        x = A @ (h * h)
        x.eval()
        del h
    default_engine().queue.flush()
    assert type(x) is Projection
    fragment = link_of(x)[0].plan.fragment
    held = [fragment.body[slot - len(fragment.dtypes)].op.name for slot in fragment.outputs[fragment.results :]]
    assert ("sin" in held) == (hint is us.keep)
    y = start
    for _ in range(30):
        h = us.sin(A @ y)
        y = A @ (h * h)
    np.testing.assert_array_equal(us.sum(x).grad(start).eval(), us.sum(y).grad(start).eval())


@HINTS
def test_hints_work_in_the_body_of_a_loop(hint: Any) -> None:
    A, x = us.tensor(numbers(3, 3) / 3), us.tensor(numbers(3))

    def loss(mark: Any) -> Any:
        return us.sum(us.iterate(lambda y: us.tanh(A @ mark(us.sin(A @ y))), x, max_steps=7)[0])

    expected = loss(lambda y: y).grad(A).eval()
    np.testing.assert_array_equal(loss(hint).grad(A).eval(), expected)


# --- what others are told --------------------------------------------------------------------------------------------


def test_a_node_knows_whether_it_is_to_be_kept() -> None:
    x = us.tensor([1.0]) * 2.0
    assert not is_kept(x)
    marked = us.keep(x)
    assert is_kept(x)
    assert is_kept(marked)
    assert not is_kept(us.cheap(x * 3.0))


def test_a_mark_ends_with_the_tensor_that_bears_it() -> None:
    x = us.tensor([1.0]) * 2.0
    marked = us.keep(x)
    assert is_kept(x)
    del marked
    assert not is_kept(x)


def test_a_fragment_tells_which_outputs_are_to_be_kept() -> None:
    A, x = tensors((4, 4), (4,))
    fragment = us.fragment(lambda A, x: us.sin(A @ us.keep(us.exp(A @ x)))).trace(A, x).fragment
    kept = {fragment.body[fragment.outputs[i] - 2].op.name for i in kept_outputs(fragment)}
    assert kept == {"exp"}
    assert kept_outputs(us.fragment(lambda A, x: us.sin(A @ x)).trace(A, x).fragment) == frozenset()
