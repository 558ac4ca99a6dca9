"""What `us.explain` says of programs whose loops, values and obstacles are known."""

from __future__ import annotations

import json

import numpy as np
import pytest

import unspool as us
from bench.zoo.run import KINDS
from unspool._engine.default import default_engine
from unspool.errors import StructureError


def leaf(seed: int, *shape: int, name: str | None = None) -> us.Tensor:
    return us.tensor(np.random.default_rng(seed).normal(size=shape) / 4, name=name)


def names(values) -> list[str]:
    return [value.name for value in values]


def reasons(tensor: us.Tensor) -> dict[str, us.Tensor]:
    return {one.reason: one for one in us.explain(tensor).unfolded}


# --- loops -----------------------------------------------------------------------------------------------------------


def descent(steps: int = 100, every: int = 1) -> us.Tensor:
    A, x = leaf(0, 4, 4, name="A"), leaf(1, 4, name="x0")
    for k in range(steps):
        x = us.tanh(A @ x) * (1.0 / (k + 1)) + 0.5
        if k % every == every - 1:
            float(us.sum(x))
    return us.sum(x * x)


def test_a_loop_is_told_with_its_steps_and_lines() -> None:
    found = us.explain(descent())
    (loop,) = found.loops
    first = descent.__code__.co_firstlineno
    assert (loop.kind, loop.steps) == ("plain", 100)
    assert {line - first for _, line in loop.lines} == {3, 5}
    assert all(name.endswith("test_explain.py") for name, _ in loop.lines)
    assert loop.folded + loop.waiting == 100
    assert loop.unfolded == 0
    assert not found.unfolded
    assert f"{first + 3}  x = us.tanh(A @ x) * (1.0 / (k + 1)) + 0.5" in str(found)


def test_carried_streamed_and_invariant_values_are_told_apart() -> None:
    (loop,) = us.explain(descent()).loops
    assert [(value.name, value.shape) for value in loop.carried] == [("x", (4,))]
    assert [value.note for value in loop.streams] == ["1, 0.5, 0.333333, …"]
    assert {(value.name, value.shape) for value in loop.invariants} == {("A", (4, 4)), ("0.5", ())}


def test_rows_of_a_table_are_streamed_by_their_number() -> None:
    data, w = leaf(0, 80, 3, name="data"), leaf(1, 3, name="w0")
    for k in range(80):
        w = w - 0.1 * data[k] * us.sum(data[k] * w)
        float(us.sum(w))
    (loop,) = us.explain(us.sum(w)).loops
    assert names(loop.invariants) == ["data", "0.1"] or set(names(loop.invariants)) == {"data", "0.1"}
    assert [(value.name, value.note) for value in loop.streams] == [("numbers in `data[k]`", "0, 1, 2, …")]


def test_leaves_that_each_step_makes_are_a_stream_and_no_variable_of_the_gradient() -> None:
    w = leaf(1, 3, name="w0")
    for k in range(80):
        x = us.tensor(np.full(3, 0.01 * k))
        w = w - x * us.sum(x * w)
        float(us.sum(w))
    found = us.explain(us.sum(w))
    assert [(value.name, value.note) for value in found.loops[0].streams] == [("x", "a new leaf in each step")]
    assert found.gradient.wrt == ("w0",)


def test_a_value_that_is_read_in_the_middle_of_a_step_is_told_from_what_is_carried() -> None:
    a, w = leaf(0, 3, name="a"), leaf(1, 3, name="w0")
    for _ in range(80):
        r = us.sum(a * w) - 1.0
        if float(r) > 1e9:
            break
        w = w - 0.1 * r * a
    (loop,) = us.explain(us.sum(w)).loops
    assert (names(loop.carried), names(loop.across), loop.steps, loop.pending) == (["w"], ["r"], 80, 1)


def test_the_state_is_carried_also_where_a_read_in_the_middle_hides_it() -> None:
    A, x = leaf(0, 4, 4, name="A"), leaf(1, 4, name="x0")
    for _ in range(80):
        y = A @ x
        n = us.linalg.norm(y)
        x = y / n
        if float(n) < 0:
            break
    (loop,) = us.explain(us.sum(x)).loops
    assert [(value.name, value.shape) for value in loop.carried] == [("x", (4,))]
    assert (names(loop.across), loop.steps) == (["y", "n"], 80)


def test_a_function_that_a_step_calls_several_times_carries_nothing_by_itself() -> None:
    def slope(y, s):
        z = s * y
        return us.tanh(z)

    y, s = leaf(1, 3, name="y0"), leaf(2, 3, name="s")
    for _ in range(80):
        first = slope(y, s)
        second = slope(y + 0.05 * first, s)
        y = y + 0.1 * second
        float(us.sum(y))
    (loop,) = us.explain(us.sum(y)).loops
    assert (names(loop.carried), names(loop.across), loop.steps) == (["y"], [], 80)


def test_steps_between_two_reads_are_counted() -> None:
    (loop,) = us.explain(descent(200, every=10)).loops
    assert (loop.steps, sum(body.runs for body in loop.bodies)) == (200, 20)


def test_arrays_of_several_sizes_are_one_program() -> None:
    w = leaf(1, 3, name="w0")
    for k in range(90):
        batch = np.full((2 + k % 3, 3), 0.01)
        w = w - us.mean(us.tanh(batch @ w)) * w
        float(us.sum(w))
    (loop,) = us.explain(us.sum(w)).loops
    assert [(body.runs, body.sizes) for body in loop.bodies] == [(90, 3)]
    assert loop.streams[0].shape == ("2…4", 3)


def test_bodies_that_a_value_decides_between_are_one_loop() -> None:
    A, B, x = leaf(0, 4, 4), leaf(1, 4, 4), leaf(2, 4)
    ways = np.random.default_rng(3).random(150) < 0.4
    for way in ways:
        x = us.tanh(A @ x) if way else us.sin(B @ x) * 1.1 + 0.05
        float(us.sum(x))
    (loop,) = us.explain(us.sum(x)).loops
    assert (loop.steps, {body.runs for body in loop.bodies}) == (150, {ways.sum(), 150 - ways.sum()})
    assert "as values or structure decide" in loop.order
    assert names(loop.carried) == ["x"]


def test_an_outer_step_is_found_among_inner_ones() -> None:
    A, z = leaf(0, 4, 4), leaf(1, 4)
    for _ in range(10):
        x = z
        for _ in range(9):
            x = 0.5 * us.tanh(A @ x)
            float(us.sum(x))
        z = 0.9 * z + 0.1 * x
        float(us.sum(z))
    (loop,) = us.explain(us.sum(z)).loops
    assert "every 10 runs" in loop.order


def test_two_loops_are_two() -> None:
    A, x = leaf(0, 4, 4), leaf(1, 4)
    for _ in range(70):
        x = us.tanh(A @ x)
        float(us.sum(x))
    for _ in range(80):
        x = us.sin(x) + 0.1 * x
        float(us.sum(x))
    assert [loop.steps for loop in us.explain(us.sum(x)).loops] == [70, 80]


def test_calls_of_a_fragment_are_a_loop() -> None:
    A, x = leaf(0, 4, 4, name="A"), leaf(1, 4)

    @us.fragment
    def step(x):
        return us.tanh(A @ x)

    for _ in range(20):
        x = step(x)
    (loop,) = us.explain(us.sum(x)).loops
    assert (loop.kind, loop.steps, loop.folded, names(loop.invariants)) == ("fragment", 20, 20, ["A"])


@pytest.mark.parametrize("adjoint", [None, us.Checkpointed(memory="20kB")], ids=["unrolled", "checkpointed"])
def test_iterate_is_a_loop(adjoint) -> None:
    A, x = leaf(0, 4, 4, name="A"), leaf(1, 4, name="x0")
    last, _ = us.iterate(lambda x: us.tanh(A @ x), x, max_steps=300, adjoint=adjoint)
    found = us.explain(us.sum(last))
    (loop,) = found.loops
    assert (loop.kind, loop.steps, names(loop.carried), names(loop.invariants)) == ("iterate", 300, ["x0"], ["A"])
    assert [(one.loop, one.steps) for one in found.gradient.loops] == [(1, 300)]
    assert found.gradient.recorded < 20


def test_a_gradient_has_a_loop_of_derivatives() -> None:
    loss = descent()
    gradient = loss.grad(next(node for node in _leaves(loss) if node.name == "A"))
    kinds = {loop.kind: loop.steps for loop in us.explain(gradient).loops}
    assert kinds["plain"] == 100
    assert 90 < kinds["adjoint"] <= 100


def _leaves(tensor: us.Tensor) -> list[us.Tensor]:
    seen, stack = {}, [tensor]
    while stack:
        node = stack.pop()
        if node.id not in seen:
            seen[node.id] = node
            stack += node.inputs
    return [node for node in seen.values() if not node.inputs]


STEPS = {"early_break": None, "hmc": None, "best_so_far": None, "adaptive_ode": None, "nested": 108, "lbfgs": 99}


# Of a loop whose state grows only the first steps are described, and none if its lines have run in other tests before.
LOOPS = [kind for kind in KINDS.values() if kind.name not in ("unread", "cache")]


@pytest.mark.parametrize("kind", LOOPS, ids=lambda kind: kind.name)
def test_the_loop_of_every_kind_of_the_zoo_is_found(kind) -> None:
    steps = min(100, kind.most)
    loss, variables = kind.in_unspool(steps, kind.setup(steps))
    found = us.explain(loss, variables)
    assert len(found.loops) == 1
    expected = STEPS.get(kind.name, steps)
    assert expected is None or found.loops[0].steps == expected
    assert found.loops[0].carried or found.loops[0].across
    assert found.gradient.kernel_calls > 0
    assert all(len(line) < 160 for line in str(found).splitlines())


# --- what did not fold -----------------------------------------------------------------------------------------------


def test_a_program_that_nobody_reads_says_so() -> None:
    x = leaf(0, 4)
    for _ in range(100):
        x = us.tanh(x) + 0.1
    one = reasons(us.sum(x))["not evaluated"]
    assert (one.operations, one.times, one.loop) == (201, 100, None)
    assert "one piece" in one.why
    assert "us.iterate" in one.change


def test_what_will_repeat_is_told_of_a_long_program_that_nobody_reads() -> None:
    x = leaf(0, 4)
    for _ in range(1500):
        x = us.tanh(x) + 0.1
    assert "are folded into calls of 1 body" in reasons(us.sum(x))["not evaluated"].why


def test_few_reads_are_no_loop_yet() -> None:
    one = reasons(descent(20))["few reads"]
    assert one.loop == 1
    assert "20 reads in a row, and from 65 on they are folded, or from 16 on with 1024 operations" in one.why


def test_what_is_too_long_between_two_reads_is_named() -> None:
    x = leaf(0, 4)
    for _ in range(400):
        x = us.tanh(x) + 0.1
    loss = us.sum(x)
    float(loss)
    assert reasons(loss)["too large"].times == 400


def test_a_loop_that_was_read_at_its_end_is_a_loop() -> None:
    x = leaf(0, 4)
    for _ in range(1500):
        x = us.tanh(x) + 0.1
    loss = us.sum(x)
    float(loss)
    (loop,) = us.explain(loss).loops
    assert loop.steps == 1500


def test_a_step_of_which_every_value_is_held_is_part_of_a_loop() -> None:
    A, x = leaf(0, 4, 4), leaf(1, 4)
    held = []
    for _ in range(80):
        y = A @ x
        n = us.linalg.norm(y)
        x = y / n
        held.append(x)
        float(n)
    assert [loop.steps for loop in us.explain(us.sum(x)).loops] == [80]


def test_a_value_that_a_later_step_records_again_keeps_no_step_from_folding() -> None:
    x, before = leaf(0, 4), us.zeros(4)
    for _ in range(100):
        x, before = x - 0.1 * us.sin(x) + 0.05 * us.sin(before), x
        float(us.sum(x))
    found = us.explain(us.sum(x))
    assert found.unfolded == ()
    assert (found.loops[0].steps, found.loops[0].unfolded) == (100, 0)


def test_what_all_steps_have_in_common_keeps_none_from_folding() -> None:
    A, x = leaf(0, 4, 4), leaf(1, 4)
    for _ in range(100):
        x = us.tanh((A @ A.T) @ x) + 0.1
        float(us.sum(x))
    found = us.explain(us.sum(x))
    assert found.unfolded == ()
    assert found.loops[0].unfolded == 0


def test_a_line_that_always_shows_another_structure_is_named() -> None:
    x = leaf(0, 4)
    for k in range(1, 90):
        y = x
        for _ in range(k):
            y = us.sin(y)
        x = x - 0.1 * y
        float(us.sum(x))
    assert reasons(us.sum(x))["always another structure"].operations > 1000


def test_a_stack_of_many_states_gathers() -> None:
    states = [us.sin(leaf(k, 2)) for k in range(80)]
    loss = us.sum(us.stack(states))
    float(loss)
    assert "gathers" in reasons(loss)


def test_a_short_expression_needs_no_explanation() -> None:
    found = us.explain(us.sum(us.sin(leaf(0, 3, name="x")) * 2.0))
    assert (found.operations, found.loops, found.unfolded, found.gradient.wrt) == (3, (), (), ("x",))


def test_lines_are_those_of_the_program_and_not_of_one_that_does_the_same() -> None:
    def one(x):
        for _ in range(70):
            x = us.cos(x) * 0.7
            float(us.sum(x))
        return x

    def other(x):
        for _ in range(70):
            x = us.cos(x) * 0.7
            float(us.sum(x))
        return x

    for program in (one, other):
        (loop,) = us.explain(us.sum(program(leaf(3, 5)))).loops
        assert {line - program.__code__.co_firstlineno for _, line in loop.lines} == {2, 3}


# --- gradients -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [3, 100, 700])
def test_the_kernels_of_a_gradient_are_those_that_run(steps: int) -> None:
    loss = descent(steps)
    variables = [node for node in _leaves(loss) if node.name]
    expected = us.explain(loss, variables).gradient.kernel_calls
    gradients = loss.grad(variables)
    before = default_engine().statistics.kernel_calls
    us.eval(gradients)
    assert default_engine().statistics.kernel_calls - before == expected


def test_the_least_budget_is_the_one_that_works() -> None:
    loss = descent(100)
    (x,) = [node for node in _leaves(loss) if node.name == "x0"]
    cost = us.explain(loss, x).gradient
    plan = us.plan_memory(loss, x, memory=cost.least_budget)
    assert plan.fits
    assert not us.plan_memory(loss, x, memory=cost.least_budget - 1).fits


def test_what_has_no_gradient_says_why() -> None:
    cost = us.explain(us.argmax(leaf(0, 3))).gradient
    assert "no gradient" in cost.problem
    assert cost.kernel_calls is None


def test_an_array_and_a_complex_number_have_the_gradient_of_their_sum() -> None:
    x = us.tensor(np.array([1.0 + 1j, 2.0]), name="x")
    assert us.explain(x * x).gradient.kernel_calls > 0


def test_symbolic_sizes_have_no_cost_yet() -> None:
    x = us.placeholder(us.dims("n"), name="x")
    found = us.explain(us.sum(x * x), x)
    assert "sizes" in found.gradient.problem


# --- as an object ----------------------------------------------------------------------------------------------------


def test_nothing_is_computed_and_nothing_folds_otherwise() -> None:
    def run(look: bool) -> tuple[int, int, bytes]:
        us.clear_caches()
        loss = descent(130)
        if look:
            before = default_engine().statistics.evaluations
            us.explain(loss)
            assert default_engine().statistics.evaluations == before
            assert loss.value is None
        (x,) = [node for node in _leaves(loss) if node.name == "x0"]
        gradient = loss.grad(x)
        loops = us.explain(loss).loops
        return loops[0].folded, loops[0].waiting, gradient.eval().tobytes()

    assert run(True) == run(False)


def test_it_is_data_text_and_html() -> None:
    found = us.explain(descent(70))
    data = found.to_dict()
    assert data["loops"][0]["steps"] == 70
    assert json.dumps(data)
    assert repr(found) == str(found)
    assert found._repr_html_().startswith("<pre>")
    assert "&lt;" not in found._repr_html_() or "<" in str(found)


def test_what_was_evicted_is_counted() -> None:
    x = start = us.tensor(np.ones((32, 32)))
    with us.memory("200kB"):
        for _ in range(100):
            x = us.sin(x) * us.cos(x)
            float(us.sum(x))
        (loop,) = us.explain(us.sum(x), start).loops
    assert loop.evicted > 0
    assert loop.held_bytes <= 200_000
    assert loop.held + loop.evicted >= 100


def test_a_very_long_loop_is_no_recursion() -> None:
    x = leaf(0, 2)
    for _ in range(20_000):
        x = us.sin(x) + 0.5
    assert us.explain(us.sum(x)).unfolded[0].times == 20_000


@pytest.mark.parametrize("bad", [3.0, None, [1.0]])
def test_other_things_than_tensors_are_refused(bad) -> None:
    with pytest.raises(StructureError):
        us.explain(bad)
    with pytest.raises(StructureError):
        us.explain(us.sum(leaf(0, 3)), wrt=[3.0])


def test_a_gradient_that_is_there_takes_nothing() -> None:
    w = us.tensor([0.5, 0.25], name="w")
    loss = us.sum(us.tanh(w))
    slope = loss.grad(w)
    assert not us.explain(loss, wrt=w).gradient.is_held
    slope.eval()
    found = us.explain(loss, wrt=w)
    assert found.gradient.is_held and found.gradient.kernel_calls == 0
    assert "Gradient in w\n  work       none: it was computed, and is held" in str(found)


def test_a_short_loop_is_not_said_to_be_folded_by_a_gradient() -> None:
    w = us.tensor([0.5, 0.25], name="w")
    x = w
    for _ in range(40):
        x = us.tanh(x * w) + 0.5
        float(us.sum(x))
    slope = us.sum(x).grad(w)
    slope.eval()
    text = str(us.explain(us.sum(x), wrt=w))
    assert "40 wait until more is read\n" in text and "gradient is taken" not in text
