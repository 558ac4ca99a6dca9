"""Loops with several bodies, made by hand: the same as their steps written out, in value and in all derivatives."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import unspool as us
from tests.closeness import close
from unspool._autodiff.loop import Body, Loop, apply_fragment, loop_output, place_loop
from unspool._fragments.fragment import capture
from unspool._ops.leaf import placeholder

N = 3


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def body(function, constants=(), reads=(), rows=(), assigns=(), stacked=(), sums=()):
    """The body that does what a function of its inputs, all vectors, does; it returns a tuple."""
    inputs = [placeholder((N,), np.dtype(float)) for _ in (*constants, *reads, *rows)]
    return Body(capture(inputs, list(function(*inputs))).fragment, constants, reads, rows, assigns, stacked, sums)


def placed(loop, inputs):
    """All outputs of a loop as one node."""
    node = place_loop(loop, inputs)
    return [loop_output(node, i) for i in range(len(node.shape))]


def written_out(loop, inputs):
    """All outputs of a loop by its steps as plain graph; rows that no step writes are zeros."""
    first, last = loop.constants, loop.constants + len(loop.entering)
    registers = dict(zip(loop.entering, inputs[first:last], strict=True))
    stacks = [{} for _ in loop.stacked]
    sums = [None] * loop.sums
    for k in range(loop.steps)[:: -1 if loop.reverse else 1]:
        one = loop.bodies[loop.which[k] if loop.which else 0]
        rows = [inputs[last + i][k - loop.extent(loop.rows[i])[0]] for i in one.rows]
        found = apply_fragment(
            one.fragment, [*[inputs[i] for i in one.constants], *map(registers.get, one.reads), *rows]
        )
        found = iter(found)
        registers |= {r: next(found) for r in one.assigns}
        for i in one.stacked:
            stacks[i][k] = next(found)
        for i in one.sums:
            term = next(found)
            sums[i] = term if sums[i] is None else sums[i] + term
    joined = []
    for rows, extent in zip(stacks, loop.stacked, strict=True):
        nothing = us.zeros(next(iter(rows.values())).shape)
        joined.append(us.stack([rows.get(k, nothing) for k in range(*loop.extent(extent))]))
    return [*[registers[r] for r in loop.leaving], *joined, *sums]


def loss_of(run, loop, only=None):
    """A scalar function of the inputs of a loop that looks at some outputs, by default all."""

    def loss(*inputs):
        found = run(loop, list(inputs))
        chosen = [x for i, x in enumerate(found) if only is None or i in only]
        return sum(us.sum(us.tensor(numbers(*x.shape, seed=i)) * us.sin(x)) for i, x in enumerate(chosen))

    return loss


def agree(loop, inputs, only=None):
    """Check values, gradients, tangents and second derivatives both ways of a loop against its steps written out."""
    for actual, expected in zip(placed(loop, inputs), written_out(loop, inputs), strict=True):
        close(actual, expected)
    actual, expected = (loss_of(run, loop, only) for run in (placed, written_out))
    places = tuple(range(len(inputs)))
    directions = [us.tensor(numbers(*x.shape, seed=50 + i)) for i, x in enumerate(inputs)]

    def gradient(loss):
        return us.grad(loss, places, unconnected="zeros")

    def slope(loss):
        return lambda *args: sum(us.sum(g * d) for g, d in zip(gradient(loss)(*args), directions, strict=True))

    def both(measure):
        for x, y in zip(us.eval(measure(actual)), us.eval(measure(expected)), strict=True):
            close(x, y)

    both(lambda loss: gradient(loss)(*inputs))
    both(lambda loss: [us.jvp(loss, tuple(inputs), tuple(directions))[1]])
    both(lambda loss: gradient(slope(loss))(*inputs))
    both(lambda loss: us.jvp(gradient(loss), tuple(inputs), tuple(directions))[1])


# --- loops made by hand ----------------------------------------------------------------------------------------------


def alternating(steps, pattern):
    """Two bodies in some order: one changes the first register, the other, which has a sum, the second."""
    which = (pattern * steps)[:steps]
    bodies = (
        body(lambda c, x, y, row: (us.sin(x) * c + y * row,), (0,), (0, 1), (0,), (0,)),
        body(lambda c, x, y: (us.cos(x) + c * y, x * y, y * y), (1,), (0, 1), (), (1,), (0,), (0,)),
    )
    return Loop(bodies, 2, (0, 1), (0, 1), (None,), (None,), 1, steps, which=which)


@pytest.mark.parametrize("pattern", [b"\0\1", b"\1\0\0", b"\0\0\0\1\1"], ids=list)
@pytest.mark.parametrize("reverse", [False, True])
def test_alternating_bodies_do_what_their_steps_do(pattern, reverse):
    loop = alternating(7, pattern)._replace(reverse=reverse)
    inputs = [us.tensor(numbers(N, seed=i)) for i in range(4)] + [us.tensor(numbers(7, N, seed=4))]
    agree(loop, inputs)
    for output in range(4):
        agree(loop, inputs, only={output})


@pytest.mark.parametrize("steps", [2, 3, 4, 9])
def test_a_register_that_is_not_there_yet_is_not_read(steps):
    # The first step makes the second register, all others read it; the first does not write a row.
    bodies = (
        body(lambda x: (us.exp(x / 3),), (), (0,), (), (1,)),
        body(lambda x, y: (us.sin(y) + x / 2, x * y, us.cos(x), y / 4), (), (0, 1), (), (0, 1), (0,), (0,)),
    )
    loop = Loop(bodies, 0, (0,), (0, 1), (), ((1, steps),), 1, steps, which=b"\0" + b"\1" * (steps - 1))
    agree(loop, [us.tensor(numbers(N))])


def test_the_tape_agrees_with_a_loop_of_several_bodies():
    loop = alternating(6, b"\0\1\1")
    inputs = [us.tensor(numbers(N, seed=i)) for i in range(4)] + [us.tensor(numbers(6, N, seed=4))]
    value = loss_of(written_out, loop)(*inputs)
    tape = us.Tape([value])
    cotangents = tape.backward_scalar(tape.id_of(value))
    gradients = us.grad(loss_of(placed, loop), tuple(range(5)))(*inputs)
    for x, gradient in zip(inputs, gradients, strict=True):
        close(gradient, cotangents[tape.id_of(x)])


def test_a_loop_of_several_bodies_runs_on_rationals():
    bodies = (
        body(lambda c, x: (x * c,), (0,), (0,), (), (0,)),
        body(lambda c, x: (x + c, x * x), (0,), (0,), (), (0,), (), (0,)),
    )
    loop = Loop(bodies, 1, (0,), (0,), (), (), 1, 4, which=b"\0\1\0\1")
    c, x = us.tensor([1.0, 2.0, 0.5]), us.tensor([3.0, 0.5, 1.0])
    total = us.sum(placed(loop, [c, x])[1])
    tape = us.Tape([total], exact=True)
    found = tape.backward_scalar(tape.id_of(total))[tape.id_of(c)]

    # (cx)² + ((cx + c)c)² and its derivative.
    def slope(c, x):
        return 2 * c * x * x + 4 * c**3 * (x + 1) ** 2

    exact = [(Fraction(1), Fraction(3)), (Fraction(2), Fraction(1, 2)), (Fraction(1, 2), Fraction(1))]
    assert found.tolist() == [slope(c, x) for c, x in exact]


# --- loops at random -------------------------------------------------------------------------------------------------


def random_loop(seed):
    """A loop with two or three bodies that read and fill what they like, as long as it is there."""
    rng = np.random.default_rng(seed)
    registers, steps = 3, int(rng.integers(1, 8))
    ops = [
        lambda a, b: us.sin(a) * b,
        lambda a, b: a / 2 - us.cos(b),
        lambda a, b: us.where(a > b, a, us.tanh(b)),
        lambda a, b: us.concat([a[1:], b[:1]]),
        lambda a, b: a * us.sum(b),
        lambda a, b: us.concat([us.zeros(1), us.exp(b / 4)[1:]]),
    ]

    def some(count, most):
        return tuple(int(i) for i in rng.permutation(count)[: int(rng.integers(0, most + 1))])

    def made():
        wiring = {"constants": some(2, 2) or (1,), "reads": some(registers, 3), "rows": some(1, 1)}
        filled = {"assigns": some(registers, 2), "stacked": some(2, 2), "sums": some(2, 1)}
        chosen = [
            (ops[rng.integers(len(ops))], *rng.integers(0, 100, 2)) for _ in range(sum(map(len, filled.values())))
        ]

        def function(*given):
            return tuple([op(given[i % len(given)], given[j % len(given)]) for op, i, j in chosen])

        return body(function, **wiring, **filled)

    bodies = [made() for _ in range(int(rng.integers(2, 4)))]
    entering = tuple(sorted(some(registers, 3)))
    present, which = set(entering), []
    for _ in range(steps):
        able = [n for n, one in enumerate(bodies) if set(one.reads) <= present]
        if not able:
            return None
        which.append(int(rng.choice(able)))
        present |= set(bodies[which[-1]].assigns)
    used = sorted(set(which))
    which = bytes([used.index(n) for n in which])
    bodies = tuple(bodies[n] for n in used)
    # Stacks and sums that nothing is written to do not exist.
    filled = [sorted({i for one in bodies for i in group(one)}) for group in (lambda b: b.stacked, lambda b: b.sums)]
    bodies = tuple(
        one._replace(stacked=tuple(map(filled[0].index, one.stacked)), sums=tuple(map(filled[1].index, one.sums)))
        for one in bodies
    )
    leaving = tuple(sorted({r for one in bodies for r in one.assigns}))
    loop = Loop(
        bodies, 2, entering, leaving, (None,), (None,) * len(filled[0]), len(filled[1]), steps,
        which=which if len(bodies) > 1 else b"",
    )  # fmt: skip
    return loop if leaving or filled[0] or filled[1] else None


@pytest.mark.parametrize("seed", range(40))
def test_random_loops_do_what_their_steps_do(seed):
    loop = random_loop(seed)
    if loop is None:
        pytest.skip("no loop")
    inputs = [us.tensor(numbers(N, seed=i)) for i in range(2 + len(loop.entering))]
    agree(loop, [*inputs, us.tensor(numbers(loop.steps, N, seed=9))])
