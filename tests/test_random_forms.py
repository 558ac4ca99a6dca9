"""Random loops in every form: plain, read on the way, fragments, remat, `us.iterate`, with few states, after others.

`tests.random_loops` draws them. NumPy gives the value and central differences of it, the tape the derivatives of the
plain form to second order, and the plain form those of all others. What is differentiated, how often, and what is
looked at in between is drawn too: an element of a gradient is differentiated after the gradient was read, for instance.
Where the same bits are promised, bits are compared.

``UNSPOOL_RANDOM_PROGRAMS=20`` tries twenty times as many.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import unspool as us
from tests.random_loops import FORMS, KINDS, LOSSES, Loop, by_numpy, chosen, loops, loss_of
from tests.test_random_programs import by_tape, close, curved
from unspool.errors import BudgetError

MANY = int(os.environ.get("UNSPOOL_RANDOM_PROGRAMS", "1"))

# Loops whose differences mean something: no kinks.
SMOOTH = ("smooth", "linalg", "complex")

# Four steps of a derivative can be placed as one chain, three are not.
TIMES = (1, 2, 3, 4, 5, 7)


def element(gradients: Sequence[us.Tensor], which: int) -> us.Tensor:
    gradient = gradients[which % len(gradients)]
    return us.real(gradient[(0,) * gradient.ndim])


def square(gradients: Sequence[us.Tensor], which: int) -> us.Tensor:
    gradient = gradients[which % len(gradients)]
    return us.sum(us.real(gradient * us.conj(gradient)))


# What is made of a gradient before it is differentiated again.
SCALARS: dict[str, Callable[[Sequence[us.Tensor], int], us.Tensor]] = {
    "curved": lambda gradients, which: curved(gradients),
    "sum": lambda gradients, which: us.sum(us.real(gradients[which % len(gradients)])),
    "sum of all": lambda gradients, which: sum(us.sum(us.real(g)) for g in gradients),  # type: ignore[return-value]
    "element": element,
    "square": square,
}


class Question(NamedTuple):
    """Which derivatives of a loop are asked for: of which loss, to what order, with respect to what."""

    loss: str
    seen: int
    order: int
    scalar: str
    which: int
    variables: int


def questions(orders: Sequence[int]) -> st.SearchStrategy[Question]:
    return st.builds(
        Question,
        st.sampled_from(["linear", *LOSSES]),
        st.integers(0, 7),
        st.sampled_from(list(orders)),
        st.sampled_from(list(SCALARS)),
        st.integers(0, 4),
        st.integers(0, 31),
    )


# What is looked at before all is: the loss, each gradient, or the loss and the first gradient at once.
LOOKS = st.sets(st.sampled_from(["loss", "gradients", "both"]))


class Answer:
    """The loss of a loop in some form, its derivatives, and the tensors they were made of."""

    def __init__(
        self, loop: Loop, form: str, question: Question, looks: set[str] | frozenset[str] = frozenset()
    ) -> None:
        leaves = [us.tensor(array) for array in loop.arrays]
        count = len(loop.state)
        final = FORMS[form](loop, leaves[:count], leaves[count:])
        loss = loss_of(us, chosen(final, question.seen), question.loss)
        if "loss" in looks:
            loss.eval()
        self.variables = chosen(leaves, question.variables)
        gradients = loss.grad(self.variables, unconnected="zeros")
        if "both" in looks:
            us.eval([loss, *gradients])
        self.losses, found = [loss], [loss, *gradients]
        for _ in range(1, question.order):
            if "gradients" in looks:
                us.eval(gradients)
            self.losses.append(SCALARS[question.scalar](gradients, question.which))
            gradients = self.losses[-1].grad(self.variables, unconnected="zeros")
            found += gradients
        self.values = [np.asarray(value) for value in us.eval(found)]


def check_plain(kind: str, loop: Loop, question: Question) -> Answer:
    """Return the answer of the plain loop, compared with NumPy, differences and, if it is short, the tape."""
    plain = Answer(loop, "plain", question)
    parts = question.seen, question.loss
    close(plain.values[0], by_numpy(loop, None, *parts), 1e-11)
    gradients = plain.values[1 : 1 + len(plain.variables)]
    if kind in SMOOTH:
        moved = chosen(range(len(loop.arrays)), question.variables)
        directions = [np.cos(np.arange(array.size).reshape(array.shape) + array.real) for array in loop.arrays]
        step = 1e-6
        ends = []
        for sign in (step, -step):
            arrays = [
                a + sign * d if i in moved else a for i, (a, d) in enumerate(zip(loop.arrays, directions, strict=True))
            ]
            ends.append(by_numpy(loop, arrays, *parts))
        assume(None not in ends)
        slope = sum(np.sum(g.real * directions[i]) for i, g in zip(moved, gradients, strict=True))
        close((ends[0] - ends[1]) / (2 * step), slope, 1e-5)  # type: ignore[operator]
    if len(loop.body.parts) * loop.times <= 8 and question.order <= 2:
        for found, expected in zip(plain.values[1:], by_tape(plain.variables, *plain.losses), strict=True):
            close(found, expected, 1e-9)
    return plain


def check(programs: int, *drawn: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], None]:
    """Run a function on so many examples."""

    def run(function: Callable[..., None]) -> None:
        settings(max_examples=MANY * programs)(given(*drawn)(function))()

    return run


@pytest.mark.parametrize("kind", KINDS)
def test_every_form_of_a_loop_has_the_derivatives_of_the_plain_one(kind: str) -> None:
    orders = (1, 2) if kind == "linalg" else (1, 2, 2, 2, 3)

    @check(
        60, loops(kind, TIMES), questions(orders), st.sets(st.sampled_from(list(FORMS)), min_size=3, max_size=3), LOOKS
    )
    def _(loop: Loop, question: Question, forms: set[str], looks: set[str]) -> None:
        assume(by_numpy(loop) is not None)
        plain = check_plain(kind, loop, question)
        for form in sorted(forms):
            for found, expected in zip(Answer(loop, form, question, looks).values, plain.values, strict=True):
                close(found, expected, 1e-9 if question.order < 3 else 1e-8)


SAME_BITS = [
    ("few states", "iterate"),
    ("little memory", "iterate"),
    ("remat", "fragment"),
    ("remat, read", "fragment, read"),
]


@pytest.mark.parametrize(("form", "other"), SAME_BITS)
def test_forms_that_promise_the_same_bits_have_them(form: str, other: str) -> None:
    @check(30, loops("smooth", TIMES), questions([1]), LOOKS)
    def _(loop: Loop, question: Question, looks: set[str]) -> None:
        assume(by_numpy(loop) is not None)
        same_bits(Answer(loop, form, question, looks), Answer(loop, other, question, looks))


@pytest.mark.parametrize("form", FORMS)
def test_bits_do_not_depend_on_what_ran_before(form: str) -> None:
    loop = loops("smooth", TIMES)

    @check(12, loop, questions([1, 2]), LOOKS, loop, st.sampled_from(list(FORMS)))
    def _(loop: Loop, question: Question, looks: set[str], other: Loop, before: str) -> None:
        assume(by_numpy(loop) is not None and by_numpy(other) is not None)
        us.clear_caches()
        first = Answer(loop, form, question, looks)
        again = Answer(loop, form, question, looks)
        Answer(other, before, question, looks)
        last = Answer(loop, form, question, looks)
        same_bits(again, first)
        same_bits(last, first)


def same_bits(found: Answer, expected: Answer) -> None:
    for a, b in zip(found.values, expected.values, strict=True):
        np.testing.assert_array_equal(a, b)


# --- higher derivatives by the functions of the library --------------------------------------------------------------


@pytest.mark.parametrize("kind", ["smooth", "layout"])
def test_jacobians_and_hessian_products_agree_with_the_plain_loop(kind: str) -> None:
    @check(40, loops(kind, TIMES[:5]), st.sampled_from(list(FORMS)))
    def _(loop: Loop, form: str) -> None:
        assume(by_numpy(loop) is not None)
        count = len(loop.state)

        def final(form: str, *leaves: us.Tensor) -> us.Tensor:
            return us.concat([us.reshape(s, (-1,)) for s in FORMS[form](loop, leaves[:count], leaves[count:])])

        leaves = [us.tensor(array) for array in loop.arrays]
        tangents = [np.cos(array) for array in loop.arrays]
        for mode in (us.jacrev, us.jacfwd):
            found = mode(lambda x: final(form, x, *leaves[1:]), unconnected="zeros")(leaves[0])
            plain = mode(lambda x: final("plain", x, *leaves[1:]), unconnected="zeros")(leaves[0])
            close(found.eval(), plain.eval(), 1e-9)
        product = us.eval(us.hvp(lambda *x: us.sum(us.sin(final(form, *x))), leaves, tangents))
        wanted = us.eval(us.hvp(lambda *x: us.sum(us.sin(final("plain", *x))), leaves, tangents))
        for found, expected in zip(product, wanted, strict=True):
            close(found, expected, 1e-9)


# --- several chains that nothing is read of, under budgets ------------------------------------------------------------

# How a tensor goes on from itself and another one.
UPDATES: dict[str, Callable[[us.Tensor, us.Tensor], us.Tensor]] = {
    "tanh": lambda x, other: 0.6 * x + 0.4 * us.tanh(x),
    "running sum": lambda x, other: 0.6 * x + 0.2 * us.sin(us.cumsum(other @ x, axis=1) * 0.3),
    "qr": lambda x, other: soft(us.linalg.qr(us.tanh(x) / SIDE + 2.0 * np.eye(SIDE))[0]),
    "doubled": lambda x, other: 0.6 * x + 0.4 * soft(x + x),
    "product": lambda x, other: 0.5 * x + 0.25 * us.tanh(x @ other),
    "mean": lambda x, other: 0.7 * x + 0.3 * us.cos(us.mean(x, axis=0)),
    "other": lambda x, other: 0.5 * x + 0.3 * us.sin(other),
}
SIDE = 13


def soft(x: us.Tensor) -> us.Tensor:
    return x / (1.0 + us.abs(x))


class Chains(NamedTuple):
    """Tensors that go on side by side: how each does, and which one it reads."""

    updates: tuple[tuple[str, int], ...]
    steps: int

    def run(self) -> tuple[Any, ...]:
        """Return the loss and its gradient; nothing is read before."""
        rng = np.random.default_rng(0)
        start = [us.tensor(rng.normal(size=(SIDE, SIDE)) / 4) for _ in self.updates]
        state = start
        for _ in range(self.steps):
            state = [UPDATES[name](x, state[i % len(state)]) for x, (name, i) in zip(state, self.updates, strict=True)]
        loss: Any = sum(us.mean(x * x) for x in state)
        return tuple(us.eval([loss, *loss.grad(start)]))


CHAINS = st.builds(
    Chains,
    st.lists(st.tuples(st.sampled_from(list(UPDATES)), st.integers(0, 2)), min_size=2, max_size=3).map(tuple),
    st.sampled_from([20, 40]),
)


def run_within(chains: Chains, budget: str | int) -> tuple[tuple[Any, ...], int]:
    with us.memory(budget) as memory:
        return chains.run(), memory.report().peak


def test_chains_that_nothing_is_read_of_stay_within_a_budget_or_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # Which states go depends on how long steps take. Here all of them take the same.
    monkeypatch.setattr("unspool._engine.engine.perf_counter", lambda: 0.0)

    @check(5, CHAINS, st.sampled_from([2, 4, 8]))
    @example(Chains((("tanh", 1), ("tanh", 1), ("qr", 1)), 20), 8)
    def _(chains: Chains, part: int) -> None:
        free, peak = run_within(chains, "64GB")
        try:
            found, taken = run_within(chains, peak // part)
        except BudgetError:
            return
        assert taken <= peak // part
        for a, b in zip(found, free, strict=True):
            np.testing.assert_array_equal(a, b)
