"""Loops, fragments, solvers and functions with rules of their own inside of batches, and derivatives of all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us

RNG = np.random.default_rng(3)
A = us.tensor(0.4 * RNG.normal(size=(4, 4)))
DATA = us.tensor(RNG.normal(size=(9, 4)))
XS = RNG.normal(size=(5, 4))


@us.fragment
def damped(x: us.Tensor) -> us.Tensor:
    return us.tanh(A @ x) + 0.1 * x


@us.custom_vjp
def doubled(x: us.Tensor) -> us.Tensor:
    return x * x


doubled.defvjp(lambda x: (x * x, x), lambda x, ct: (4.0 * x * ct,))  # twice the derivative, to tell it apart


@us.custom_jvp
def tripled(x: us.Tensor) -> us.Tensor:
    return x * x


tripled.defjvp(lambda primals, tangents: (tripled(*primals), 6.0 * primals[0] * tangents[0]))

swept = us.op(
    "batched cumulative sum",
    kernel=lambda x: np.cumsum(x) ** 2,
    vjp=(lambda ct, out, x: us.flip(us.cumsum(us.flip(2.0 * us.cumsum(x) * ct, 0)), 0),),
)
stacked = us.op("batched square in stacks", kernel=np.square, vjp=(lambda ct, out, x: 2.0 * x * ct,), batch="leading")


def fixed_steps(x: us.Tensor, adjoint: Any = None) -> us.Tensor:
    def step(state: Any) -> Any:
        y, k = state
        return us.tanh(A @ y) + DATA[k] * y, k + 1

    (y, _), _ = us.iterate(step, (x, 0), max_steps=9, adjoint=adjoint)
    return us.sum(y * y)


def outputs(x: us.Tensor, adjoint: Any = None) -> us.Tensor:
    y, _, trace = us.iterate(lambda y: (damped(y), us.sum(y)), x, max_steps=5, has_outputs=True, adjoint=adjoint)
    return us.sum(trace * trace) + us.sum(y)


def first_element(x: us.Tensor, adjoint: Any = None) -> us.Tensor:
    """Return what no cotangent of most elements comes from: of these, not only the numbers arrive."""
    y, _ = us.iterate(lambda y: us.concat([y[1:], us.sin(y[:1])]), x, max_steps=2, adjoint=adjoint)
    return y[0] * y[1]


def python_loop(x: us.Tensor) -> us.Tensor:
    for _ in range(12):
        x = damped(x)
    return us.sum(x * x)


def conjugate_gradients(x: us.Tensor) -> us.Tensor:
    return us.sum(us.linalg.cg(lambda v: v * (2.0 + x * x), x + DATA[0], tol=1e-13) * x)


def eigenvalues(x: us.Tensor) -> us.Tensor:
    values, _ = us.linalg.eigsh(lambda v: us.cumsum(x * x + 1.0) * v + 0.1 * us.sum(v), us.ones(4), k=2)
    return us.sum(values)


FUNCTIONS = {
    "iterate": fixed_steps,
    "iterate with few states": lambda x: fixed_steps(x, us.Checkpointed(slots=3)),
    "iterate within a memory": lambda x: fixed_steps(x, us.Checkpointed(memory="2kB")),
    "outputs of steps, few states": lambda x: outputs(x, us.Checkpointed(slots=3)),
    "one element, few states": lambda x: first_element(x, us.Checkpointed(slots=3)),
    "outputs of steps": outputs,
    "fragments in a loop": python_loop,
    "custom_vjp": lambda x: us.sum(doubled(damped(x))),
    "custom_jvp": lambda x: us.sum(tripled(damped(x))),
    "an op of a user's": lambda x: us.sum(swept(damped(x))),
    "an op of a user's that takes stacks": lambda x: us.sum(stacked(damped(x))),
    "cg": conjugate_gradients,
    "eigsh": eigenvalues,
}
EVERY = pytest.mark.parametrize("f", FUNCTIONS.values(), ids=FUNCTIONS.keys())


@EVERY
def test_values_are_those_of_the_members(f: Any) -> None:
    np.testing.assert_allclose(us.vmap(f)(XS).eval(), [f(us.tensor(x)).eval() for x in XS], rtol=1e-9)


@EVERY
def test_gradients_of_the_batch_and_batches_of_gradients_are_those_of_the_members(f: Any) -> None:
    gradient = us.grad(f)
    expected = [gradient(us.tensor(x)).eval() for x in XS]
    np.testing.assert_allclose(us.vmap(gradient)(XS).eval(), expected, rtol=1e-7, atol=1e-9)
    of_batch = us.grad(lambda xs: us.sum(us.vmap(f)(xs)))(XS)
    np.testing.assert_allclose(of_batch.eval(), expected, rtol=1e-7, atol=1e-9)


@EVERY
def test_tangents_of_the_batch_are_those_of_the_members(f: Any) -> None:
    moves = np.cos(np.arange(20.0)).reshape(5, 4)
    _, found = us.jvp(us.vmap(f), (us.tensor(XS),), (moves,))
    expected = [us.jvp(f, (us.tensor(x),), (t,))[1].eval() for x, t in zip(XS, moves, strict=True)]
    np.testing.assert_allclose(found.eval(), expected, rtol=1e-7, atol=1e-9)


SMOOTH = ["iterate", "outputs of steps", "fragments in a loop", "iterate with few states", "one element, few states"]


@pytest.mark.parametrize("name", SMOOTH)
def test_hessians_of_the_members(name: str) -> None:
    hessian = us.hessian(FUNCTIONS[name])
    expected = [hessian(us.tensor(x)).eval() for x in XS]
    np.testing.assert_allclose(us.vmap(hessian)(XS).eval(), expected, rtol=1e-8, atol=1e-10)


def test_a_batch_of_a_loop_is_one_loop_that_runs_each_step_once() -> None:
    xs = us.tensor(XS)
    with us.debug.count_kernels() as counts:
        us.vmap(fixed_steps)(xs).eval()
    assert counts["loop"] == 1


DERIVATIVES = {
    "gradients of members": lambda f, xs: us.vmap(us.grad(f))(xs),
    "a hessian": lambda f, xs: us.hessian(f)(xs[0]),
    "a jacobian": lambda f, xs: us.jacobian(lambda x: us.stack([f(x), 2.0 * f(x), us.sum(x)]))(xs[0]),
}


@pytest.mark.parametrize("derivative", DERIVATIVES.values(), ids=DERIVATIVES.keys())
def test_a_batch_of_backward_passes_with_few_states_is_one_for_all(derivative: Any) -> None:
    found = derivative(lambda x: fixed_steps(x, us.Checkpointed(slots=3)), us.tensor(XS))
    names = [node.op.name for node in us._graph.ancestors([found])]
    assert "reversed_loop" in names
    assert "mapped" not in names


def test_members_have_gradients_of_their_own_by_what_a_loop_with_few_states_shares() -> None:
    def last(w: us.Tensor, x: us.Tensor) -> us.Tensor:
        y, _ = us.iterate(lambda y: us.tanh(w @ y), x, max_steps=6, adjoint=us.Checkpointed(slots=2))
        return us.sum(y * y)

    gradient = us.grad(last, argnums=(0, 1))
    found = us.eval(us.vmap(gradient, in_axes=(None, 0))(A, XS))
    expected = [us.eval(gradient(A, us.tensor(x))) for x in XS]
    for own, of_members in zip(found, zip(*expected, strict=True), strict=True):
        np.testing.assert_allclose(own, of_members, rtol=1e-9, atol=1e-12)


def test_a_counter_stays_common_to_all_members() -> None:
    """Data that a counter reads is read once for all members: a slice in the batched body, not an index array."""
    found = us.vmap(us.grad(fixed_steps))(us.tensor(XS))
    loops = [node for node in us._graph.ancestors([found]) if node.op.name == "loop"]
    names = {i.op.name for node in loops for body in node.attributes["loop"].bodies for i in body.fragment.body}
    assert "slice" in names
    assert "gather" not in names


def test_a_fragment_around_a_batch_is_traced_once_for_all_numbers_of_members() -> None:
    whole = us.fragment(us.vmap(lambda x: us.sum(us.tanh(A @ x))))
    for count in (2, 3, 5):
        found = whole(us.tensor(XS[:count])).eval()
        np.testing.assert_allclose(found, np.tanh(XS[:count] @ A.eval().T).sum(axis=1))
    assert whole.traces == 1


@EVERY
def test_a_fragment_around_a_batch_is_the_batch(f: Any) -> None:
    gradient = us.grad(f)
    whole = us.fragment(us.vmap(gradient))
    for count in (5, 3):
        expected = [gradient(us.tensor(x)).eval() for x in XS[:count]]
        np.testing.assert_allclose(whole(us.tensor(XS[:count])).eval(), expected, rtol=1e-7, atol=1e-9)


def test_a_step_of_a_loop_may_be_a_batch() -> None:
    state, _ = us.iterate(us.vmap(damped), us.tensor(XS), max_steps=4)
    expected = XS
    for _ in range(4):
        expected = np.tanh(expected @ A.eval().T) + 0.1 * expected
    np.testing.assert_allclose(state.eval(), expected, rtol=1e-12)
