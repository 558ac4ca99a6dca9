"""Loops with several bodies, made by hand: the same as their steps written out, in value and in all derivatives."""

from __future__ import annotations

from fractions import Fraction
from itertools import count

import numpy as np
import pytest

import unspool as us
from tests.closeness import close
from unspool._autodiff.loops import variants as loop_variants
from unspool._autodiff.loops.checkpointed_rules import Checkpoints, outputs_of, place_checkpointed
from unspool._autodiff.loops.checkpointed_run import bodies_of
from unspool._autodiff.loops.loop import Body, Loop, apply_fragment, loop_output, one_body, place_loop
from unspool._autodiff.loops.record import recorded
from unspool._fragments.fragment import capture
from unspool._ops.leaf import placeholder
from unspool.errors import StructureError

N = 3


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def body(function, constants=(), reads=(), rows=(), assigns=(), stacked=(), sums=()):
    """The body that does what a function of its inputs does; it returns a tuple. All are vectors but constant 2."""
    shapes = [(N, N) if i == 2 else (N,) for i in constants] + [(N,)] * len((*reads, *rows))
    inputs = [placeholder(shape, np.dtype(float)) for shape in shapes]
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


def random_loop(seed, *, closed=False):
    """A loop with two or three bodies that read and fill what they like, as long as it is there.

    A closed one has no stacked inputs and no sums. Not every try gives a loop that can run and has outputs.
    """
    return next(filter(None, (_tried(np.random.default_rng([seed, i]), closed) for i in count())))


def _tried(rng, closed):
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
        wiring = {"constants": some(3, 3) or (1,), "reads": some(registers, 3), "rows": () if closed else some(1, 1)}
        filled = {"assigns": some(registers, 2), "stacked": some(2, 2), "sums": () if closed else some(2, 1)}
        chosen = [
            (ops[rng.integers(len(ops))], *rng.integers(0, 100, 2)) for _ in range(sum(map(len, filled.values())))
        ]

        def function(*given):
            matrices = [x for x in given if x.shape == (N, N)]
            given = [x for x in given if x.shape == (N,)] or [us.sum(matrices[0] * matrices[0], axis=0)]
            found = [op(given[i % len(given)], given[j % len(given)]) for op, i, j in chosen]
            return tuple([us.tanh(matrices[0] @ x) if matrices and i % 3 else x for i, x in enumerate(found)])

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
        bodies, 3, entering, leaving, () if closed else (None,), (None,) * len(filled[0]), len(filled[1]), steps,
        which=which if len(bodies) > 1 else b"",
    )  # fmt: skip
    return loop if leaving or filled[0] or filled[1] else None


def inputs_of(loop):
    """Constants and registers of a random loop."""
    shapes = [(N,), (N,), (N, N), *[(N,)] * len(loop.entering)]
    return [us.tensor(numbers(*shape, seed=i)) for i, shape in enumerate(shapes)]


@pytest.mark.parametrize("seed", range(40))
def test_random_loops_do_what_their_steps_do(seed):
    loop = random_loop(seed)
    agree(loop, [*inputs_of(loop), us.tensor(numbers(loop.steps, N, seed=9))])


@pytest.mark.parametrize("seed", range(8))
def test_random_loops_do_what_their_steps_do_if_forms_are_masked(seed, monkeypatch):
    monkeypatch.setattr(loop_variants, "MOST_BODIES", 1)
    loop = random_loop(seed)
    agree(loop, [*inputs_of(loop), us.tensor(numbers(loop.steps, N, seed=9))])


@pytest.mark.parametrize("seed", range(20))
def test_random_loops_with_few_states_have_the_same_bits(seed):
    loop = random_loop(seed, closed=True)
    inputs = inputs_of(loop)
    places, directions = tuple(range(len(inputs))), tuple(x * 0.5 + 1.0 for x in inputs)

    def derivatives(run):
        loss = loss_of(run, loop)
        gradient = us.grad(loss, places, unconnected="zeros")
        second = us.jvp(gradient, tuple(inputs), directions)[1]
        return us.eval([loss(*inputs), *gradient(*inputs)]), us.eval(
            [us.jvp(loss, tuple(inputs), directions)[1], *second]
        )

    first, second = derivatives(placed)
    for adjoint in (us.Checkpointed(slots=1), us.Checkpointed(slots=3), us.Checkpointed(memory=1000)):

        def few(loop, inputs, adjoint=adjoint):
            return outputs_of(place_checkpointed(Checkpoints(bodies_of(loop, inputs), adjoint), inputs))

        same, near = derivatives(few)
        assert [x.tobytes() for x in same] == [x.tobytes() for x in first]
        for actual, expected in zip(near, second, strict=True):
            close(actual, expected)


# --- what is absent --------------------------------------------------------------------------------------------------


def test_an_infinity_that_nobody_asked_for_never_becomes_nan():
    # The square root of zero has an infinite derivative; only steps of the other body reach the loss.
    bodies = (
        body(lambda x, y: (us.sqrt(x), y * 2.0), (), (0, 1), (), (2, 1)),
        body(lambda x, y: (x * 3.0, us.sqrt(y), y), (), (0, 1), (), (0, 2), (0,)),
    )
    which = b"\0\1\1\0\1"
    loop = Loop(bodies, 0, (0, 1), (0, 1, 2), (), (None,), 0, 5, which=which)
    x, y = us.tensor(np.zeros(N)), us.tensor(np.ones(N))
    first, second, _, rows = placed(loop, [x, y])
    close(us.sum(first).grad(x), np.full(N, 27.0))
    close(us.sum(second).grad(y), np.full(N, 4.0))
    close(us.sum(rows[4]).grad(y), np.full(N, 4.0))
    # The last assignment of the third register reads the second one.
    close(us.sum(first + second).grad([x, y])[0], np.full(N, 27.0))
    product = us.jvp(lambda x, y: us.sum(placed(loop, [x, y])[0]), (x, y), (None, y))[1]
    assert product.eval() == 0.0


@pytest.mark.parametrize("adjoint", [us.Unrolled(), us.Checkpointed(slots=2)], ids=repr)
@pytest.mark.parametrize("steps", [1, 2, 3, 8])
def test_what_arrives_at_every_step_reaches_all_earlier_ones(steps, adjoint):
    def loss(run):
        def total(x, y):
            rows = run(lambda s: (us.sin(s[1]), us.cos(s[0]) * x), (x, y))
            return us.sum(rows**3)

        return total

    def by_loop(step, state):
        def with_output(s):
            return step(s), s[0] * s[1]

        return us.iterate(with_output, state, max_steps=steps, adjoint=adjoint, has_outputs=True)[2]

    def by_hand(step, state):
        rows = []
        for _ in range(steps):
            rows.append(state[0] * state[1])
            state = step(state)
        return us.stack(rows)

    args = us.tensor(numbers(N, seed=1)), us.tensor(numbers(N, seed=2))
    for actual, expected in zip(
        us.grad(loss(by_loop), (0, 1))(*args), us.grad(loss(by_hand), (0, 1))(*args), strict=True
    ):
        close(actual, expected)
    for actual, expected in zip(us.hvp(loss(by_loop), args, args), us.hvp(loss(by_hand), args, args), strict=True):
        close(actual, expected)


def test_a_step_that_only_reads_a_register_adds_to_its_cotangent():
    loop = Loop(
        (body(lambda x: (x * x,), (), (0,), (), (), (), (0,)), body(us_pair, (), (0,), (), (0,), (), (0,))),
        0, (0,), (0,), (), (), 1, 4, which=b"\0\1\0\0",
    )  # fmt: skip
    x = us.tensor([2.0, 3.0, 0.5])
    # x² + x³, then twice (3x)²; and the register itself.
    final, total = placed(loop, [x])
    close(us.sum(total).grad(x), 2 * x.eval() + 3 * x.eval() ** 2 + 2 * 18 * x.eval())
    close(us.sum(final + total).grad(x), 3 + 2 * x.eval() + 3 * x.eval() ** 2 + 36 * x.eval())


def us_pair(x):
    return 3.0 * x, x**3


def test_a_sum_begins_with_its_first_term():
    loop = one_body(body(lambda x: (x, x), (), (0,), (), (0,), (), (0,)).fragment, carries=1, sums=1, steps=3)
    total = placed(loop, [us.tensor([-0.0, 0.0, 1.0])])[1].eval()
    assert np.signbit(total).tolist() == [True, False, False]
    assert total.tolist() == [0.0, 0.0, 3.0]


@pytest.mark.parametrize(
    ("which", "message"),
    [(b"", "each of 4 steps"), (b"\0\1\0", "got 3 steps"), (b"\0\0\0\0", "each of 2 bodies"), (b"\0\1\2\0", "bodies")],
)
def test_steps_whose_body_is_not_known_are_refused(which, message):
    with pytest.raises(StructureError, match=message):
        placed(alternating(4, b"\0\1")._replace(which=which), [us.tensor(numbers(N))] * 4 + [us.tensor(numbers(4, N))])


def test_more_than_eight_bodies_are_refused():
    bodies = tuple(body(lambda x, i=i: (x * float(i),), (), (0,), (), (0,)) for i in range(9))
    with pytest.raises(StructureError, match="at most 8 bodies, got 9"):
        placed(Loop(bodies, 0, (0,), (0,), (), (), 0, 9, which=bytes(range(9))), [us.tensor(numbers(N))])


# --- the derivative is one loop --------------------------------------------------------------------------------------


def rotation(steps, parts):
    """Parts of a state that change places, of which a loss reads one."""
    x = us.tensor(numbers(N))
    state = tuple(x * (i + 1.0) for i in range(parts))
    final, _ = us.iterate(lambda s: (*s[1:], us.sin(s[0]) * x), state, max_steps=steps)
    return us.sum(final[0]), x


def settling(steps, parts):
    """A cotangent that reaches one part more of the state in every step, until it has all."""
    x = us.tensor(numbers(N))
    state = tuple(x * (i + 1.0) for i in range(parts))
    step = lambda s: (*[s[i] + us.sin(s[i + 1]) for i in range(parts - 1)], s[-1] * x)  # noqa: E731
    final, _ = us.iterate(step, state, max_steps=steps)
    return us.sum(final[0]), x


@pytest.mark.parametrize("program", [rotation, settling], ids=lambda p: p.__name__)
@pytest.mark.parametrize("parts", [2, 3, 5])
def test_a_gradient_has_one_loop_however_many_steps_there_are(program, parts):
    sizes = set()
    for steps in (parts + 1, 4 * parts + 1, 80 * parts + 1):
        loss, x = program(steps, parts)
        gradient = loss.grad(x)
        assert [node.op for node in us.Tape([gradient]).nodes].count("loop") == 2
        sizes.add(us.graph_size(gradient))
    assert len(sizes) == 1


@pytest.mark.parametrize("parts", [2, 3])
def test_a_gradient_of_a_gradient_has_one_loop_each_however_many_steps_there_are(parts):
    found = set()
    for steps in (2 * parts + 1, 6 * parts + 1):
        loss, x = rotation(steps, parts)
        second = us.sum(loss.grad(x) ** 2).grad(x)
        found.add([node.op for node in us.Tape([second]).nodes].count("loop"))
    assert len(found) == 1 and found.pop() <= 6


def test_more_forms_than_bodies_are_masked():
    # Nine parts that rotate would need nine variants.
    loss, x = rotation(40, 9)
    adjoint = next(node for node in walk_up(loss.grad(x)) if node.op.name == "loop" and node.attributes["loop"].reverse)
    assert len(adjoint.attributes["loop"].bodies) == 1
    state = tuple(x * (i + 1.0) for i in range(9))
    for _ in range(40):
        state = (*state[1:], us.sin(state[0]) * x)
    close(loss.grad(x), us.sum(state[0]).grad(x))


def walk_up(tensor):
    stack, met = [tensor], set()
    while stack:
        node = stack.pop()
        if node.id not in met:
            met.add(node.id)
            yield node
            stack += node.inputs


def test_a_record_is_shared_by_bodies_and_covers_the_steps_that_write_it():
    norm = us.linalg.norm
    bodies = (
        body(lambda x: (us.sin(x / norm(x)),), (), (0,), (), (0,)),
        body(lambda x: (us.cos(x / norm(x)),), (), (0,), (), (0,)),
        body(lambda x: (norm(us.sin(x)) * x * norm(x),), (), (0,), (), (0,)),
    )
    loop = Loop(bodies, 0, (0,), (0,), (), (), 0, 9, which=b"\0\1\0\1\0\1\2\2\1")
    # The state, a norm that all bodies have, and one that only the third has.
    assert recorded(loop, [us.tensor(numbers(N))]).stacked == (None, None, (6, 8))
