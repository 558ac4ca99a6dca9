"""Checkpointing on the tape: values are really freed and really rebuilt, and nothing else changes by a bit."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from fractions import Fraction as F

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import unspool as us
from tests.autodiff.tape.test_tape import complex_program, real_program, shapes_program, two_outputs
from unspool import _graph
from unspool._ops.op import Op
from unspool.checkpoint import CheckpointConfig, CheckpointSegment
from unspool.errors import ArgumentError, KernelError

SIZE = 1000  # elements of an array in the tests that count bytes
UNIT = 8 * SIZE


def config(*ranges):
    return CheckpointConfig(tuple(CheckpointSegment(*ends) for ends in ranges))


def decomposition_program():
    x = us.tensor(np.array([[3.0, 1.0, 0.5], [0.25, 2.0, -1.0], [1.5, 0.0, 1.0]]))
    u, s, v = us.linalg.svd(us.sin(x) @ x.T)
    square, cube = two_outputs(s * s)
    return us.sum(us.sum(square[:2] / (1.0 + cube[1:])) * (u * s) @ v), [x]


def random_program():
    x = us.tensor(np.linspace(0.1, 1.0, 6).reshape(2, 3))
    noise = us.random.normal(us.random.key(7), (2, 3))
    y = us.sin(x * noise) + us.reshape(x, (3, 2)).T[::-1, :] * us.exp(noise)
    return us.sum(us.where(y > 0, y * y, us.log(x)) @ us.cos(y).T), [x]


PROGRAMS = [real_program, complex_program, shapes_program, decomposition_program, random_program]
EACH_PROGRAM = pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)


def bits(value):
    """Return cotangents or values as something that is equal only if every bit is."""
    if value is None:
        return None
    if isinstance(value, dict):
        return {key: bits(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [bits(entry) for entry in value]
    return value.shape, value.dtype, value.tobytes()


class Counted:
    """An elementwise op, x² as it happens, that counts the calls of its kernel."""

    def __init__(self):
        self.calls = 0

        def kernel(x):
            self.calls += 1
            return x * x

        self.op = Op(
            "counted", infer=lambda x: (x.shape, x.dtype), kernel=kernel, vjp=(lambda ct, out, x: ct * (2.0 * x),)
        )

    def __call__(self, x):
        return _graph.apply(self.op, x)


def chain(length, step=None, start=None):
    """Return a leaf and what ``length`` steps make of it: node i of its tape is step i."""
    step = us.sin if step is None else step
    x = us.tensor(np.linspace(0.1, 0.9, SIZE) if start is None else start, name="x")
    y = x
    for _ in range(length):
        y = step(y)
    return x, y


def watched(outputs, **options):
    """Return a tape and the list of its events, as ``(action, node, live arrays of SIZE doubles)``."""
    events = []
    tape = us.Tape(outputs, watch=lambda e: events.append((e.action, e.node, e.live_bytes / UNIT)), **options)
    return tape, events


def arrays(events, *actions):
    """Return how many arrays were alive after each event of some kinds."""
    return [live for action, _, live in events if action in actions]


# --- the same bits ----------------------------------------------------------------------------------------------------


def every_form(tape, loss, checkpoint):
    """Return the cotangents that each form gives; the forms on arrays start from two seeds."""
    size, out = len(tape), tape.id_of(loss)
    optional = [None] * size
    optional[out] = 2.0
    total = [ct * 0.5 if not isinstance(ct, tuple) else ct for ct in tape.backward_dense_all(out, 1.0)]
    stepped = optional
    for position in reversed(range(size)):
        stepped = tape.backward_step(position, stepped, checkpoint=checkpoint)
    return [
        tape.backward_scalar(loss, checkpoint=checkpoint),
        tape.backward(loss, 3.0, checkpoint=checkpoint),
        tape.backward_dense(loss, 3.0, checkpoint=checkpoint),
        tape.backward_dense_all(loss, 3.0, checkpoint=checkpoint),
        tape.backward_dense_from(total, checkpoint=checkpoint),
        tape.backward_loop(size, optional, checkpoint=checkpoint),
        stepped,
    ]


@EACH_PROGRAM
@pytest.mark.parametrize("segments", [1, 2, 3, "each node", "overlapping", "inner"])
def test_every_form_gives_the_bits_it_gives_without_checkpointing(program, segments):
    loss, _ = program()
    size = us.graph_size(loss)
    if segments == "overlapping":
        checkpoint = config((2, size // 2), (size // 2 - 1, size - 2), (1, 3))
    elif segments == "inner":
        checkpoint = config((3, size - 3))
    else:
        checkpoint = CheckpointConfig.uniform(size, size if segments == "each node" else segments)
    expected = bits(every_form(us.Tape(loss), loss, None))
    assert bits(every_form(us.Tape(loss), loss, checkpoint)) == expected
    made_with = us.Tape(loss, checkpoint=checkpoint)
    assert bits(every_form(made_with, loss, None)) == expected


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(PROGRAMS), st.data())
def test_any_segments_in_any_order_of_calls_give_the_same_bits_and_values(program, data):
    loss, _ = program()
    plain = us.Tape(loss)
    size = len(plain)
    ends = st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)).map(sorted)
    configs = st.one_of(st.none(), st.lists(ends, max_size=4).map(lambda pairs: config(*pairs)))
    tape = us.Tape(loss, checkpoint=data.draw(configs))
    starts = [i for i, node in enumerate(plain.nodes) if node.op != "part" and isinstance(node.dtype, np.dtype)]
    starts = [i for i in starts if plain.nodes[i].dtype.kind in "fc"]
    for _ in range(3):
        start, checkpoint = data.draw(st.sampled_from(starts)), data.draw(configs)
        seed = np.ones(plain.nodes[start].shape)
        assert bits(tape.backward(start, seed, checkpoint=checkpoint)) == bits(plain.backward(start, seed))
        assert [bits(tape.value(i)) for i in range(size)] == [bits(plain.value(i)) for i in range(size)]
    assert tape.nodes == plain.nodes


def test_gradients_are_those_of_the_closed_form():
    counted = Counted()
    x, y = chain(5, counted, start=np.array([1.25, -0.5]))
    tape = us.Tape(y, checkpoint=CheckpointConfig.uniform(6, 2))
    # x^32 after five squarings; powers of these numbers are exact.
    np.testing.assert_array_equal(tape.backward(y, np.ones(2))[tape.id_of(x)], 32 * np.array([1.25, -0.5]) ** 31)


def test_a_tape_on_fractions_is_checkpointed_in_the_same_way():
    p, q = us.placeholder((), name="p"), us.placeholder((), name="q")
    r = (p * p + q) / (p - q)
    loss = r * r / (r + 1) + p
    values = {p: F(2, 3), q: F(-1, 5)}
    plain, tape = us.Tape(loss, values), us.Tape(loss, values, checkpoint=CheckpointConfig.uniform(9, 3))
    expected = plain.backward_scalar(loss)
    for _ in range(2):
        found = tape.backward_scalar(loss)
        assert {i: ct.item() for i, ct in found.items()} == {i: ct.item() for i, ct in expected.items()}
    # By hand: L = r²/(r+1) + p, dL/dr = (r²+2r)/(r+1)², dr/dq = ((p-q) + (p²+q))/(p-q)².
    a, b = values[p], values[q]
    c = (a * a + b) / (a - b)
    assert found[tape.id_of(q)].item() == (c * c + 2 * c) / (c + 1) ** 2 * ((a - b) + (a * a + b)) / (a - b) ** 2
    assert tape.value(r).item() == c
    assert tape.value(loss).item() == c * c / (c + 1) + a


def test_symbolic_sizes_and_placeholders_are_rebuilt_with_their_binding():
    n = us.dims("n")
    x = us.placeholder((n, 2), name="x")
    y = us.sin(x) * us.broadcast_to(us.sum(x, axis=0), (n, 2))
    loss = us.sum(us.exp(y) * x)
    data = {x: np.linspace(-1, 1, 8).reshape(4, 2)}
    plain, tape = us.Tape(loss, data), us.Tape(loss, data, checkpoint=config((1, 5)))
    assert bits(tape.backward_scalar(loss)) == bits(plain.backward_scalar(loss))


# --- live bytes after every node --------------------------------------------------------------------------------------


def test_forwards_a_value_is_freed_after_its_last_use():
    _, y = chain(8)
    _, events = watched(y, checkpoint=config((1, 4), (5, 8)))
    assert events == [
        ("forward", 0, 1),  # the leaf
        ("forward", 1, 2),
        ("forward", 2, 3),
        ("drop", 1, 2),
        ("forward", 3, 3),
        ("drop", 2, 2),
        ("forward", 4, 3),
        ("drop", 3, 2),  # the leaf, and 4 that the next segment uses
        ("forward", 5, 3),
        ("forward", 6, 4),
        ("drop", 5, 3),
        ("forward", 7, 4),
        ("drop", 6, 3),
        ("forward", 8, 4),
        ("drop", 7, 3),  # and the output
    ]


def test_backwards_a_segment_is_rebuilt_when_it_is_entered_and_freed_when_it_is_left():
    _, y = chain(8)
    tape, events = watched(y, checkpoint=config((1, 4), (5, 8)))
    del events[:]
    tape.backward(y, np.ones(SIZE))
    assert events == [
        *[("rebuild", 5, 4), ("rebuild", 6, 5), ("rebuild", 7, 6)],
        *[("reverse", 8, 6), ("reverse", 7, 6), ("reverse", 6, 6), ("reverse", 5, 6)],
        *[("drop", 5, 5), ("drop", 6, 4), ("drop", 7, 3)],
        *[("rebuild", 1, 4), ("rebuild", 2, 5), ("rebuild", 3, 6)],
        *[("reverse", 4, 6), ("reverse", 3, 6), ("reverse", 2, 6), ("reverse", 1, 6)],
        # The step of the leaf, which has nothing to send on, is outside of both segments.
        *[("drop", 1, 5), ("drop", 2, 4), ("drop", 3, 3)],
        ("reverse", 0, 3),
    ]


def test_a_tape_that_holds_everything_frees_the_segments_first_and_does_not_get_them_back():
    _, y = chain(8)
    tape, events = watched(y)
    assert arrays(events, "forward") == list(range(1, 10))
    del events[:]
    tape.backward(y, np.ones(SIZE), checkpoint=config((1, 4), (5, 8)))
    assert events[:6] == [("drop", i, live) for i, live in zip([1, 2, 3, 5, 6, 7], [8, 7, 6, 5, 4, 3], strict=True)]
    assert max(arrays(events[6:], "rebuild", "reverse", "drop")) == 6
    assert events[-1][2] == 3


@pytest.mark.parametrize("root", [4, 7, 10])
def test_a_chain_of_n_in_blocks_of_root_n_never_has_more_than_two_root_n_arrays(root):
    _, y = chain(root * root)
    blocks = [(1 + root * i, root * (i + 1)) for i in range(root)]
    tape, events = watched(y, checkpoint=config(*blocks))
    tape.backward(y, np.ones(SIZE))
    # Leaf and one value for each block, and all but the last of one block.
    assert max(arrays(events, "forward", "rebuild", "reverse", "drop")) == 1 + root + (root - 1)
    plain, plain_events = watched(y)
    plain.backward(y, np.ones(SIZE))
    assert max(arrays(plain_events, "forward", "reverse")) == 1 + root * root


def test_the_interpreter_of_python_sees_the_memory_of_the_forward_pass_fall():
    _, y = chain(64, start=np.full(20_000, 0.3))

    def peak(**options):
        tracemalloc.start()
        tape = us.Tape(y, **options)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        del tape
        return found

    array = 8 * 20_000
    assert peak() > 64 * array
    # Eight values that leave their segments and two at work, one more for what is not arrays.
    assert peak(checkpoint=config(*((1 + 8 * i, 8 * i + 8) for i in range(8)))) < 11 * array


def test_what_is_dropped_is_dead_without_the_garbage_collector():
    _, y = chain(6)
    tape = us.Tape(y)
    dead = [weakref.ref(tape.value(i).base) for i in (1, 2, 4, 5)]
    alive = [weakref.ref(tape.value(i).base) for i in (3, 6)]
    gc.disable()
    try:
        tape.backward(y, np.ones(SIZE), checkpoint=config((1, 3), (4, 6)))
        assert [ref() is None for ref in dead] == [True] * 4
        assert [ref() is None for ref in alive] == [False] * 2
        del tape
        assert [ref() is None for ref in alive] == [True] * 2
    finally:
        gc.enable()


def test_the_watcher_counts_an_array_that_somebody_still_holds():
    _, y = chain(4)
    tape, events = watched(y)
    held = tape.value(2)
    tape.backward(y, np.ones(SIZE), checkpoint=config((1, 4)))
    before = held.copy()
    assert events[-1][2] == 3  # leaf, output and what is held here
    np.testing.assert_array_equal(held, before)
    del held
    tape.backward_step(0, [None] * 5)
    tape.backward(y, np.ones(SIZE), checkpoint=config((1, 4)))
    assert events[-1][2] == 2


# --- kernel calls -----------------------------------------------------------------------------------------------------


def test_every_dropped_value_is_computed_once_more_and_no_other():
    counted = Counted()
    _, y = chain(12, counted)
    tape = us.Tape(y, checkpoint=config((1, 4), (5, 8), (9, 12)))
    assert counted.calls == 12
    tape.backward(y, np.ones(SIZE))
    assert counted.calls == 12 + 9  # all but the last of each segment
    tape.backward(y, np.ones(SIZE))
    assert counted.calls == 12 + 9 + 9


def test_without_segments_nothing_is_computed_again():
    counted = Counted()
    _, y = chain(12, counted)
    tape = us.Tape(y)
    for checkpoint in (None, CheckpointConfig()):
        tape.backward(y, np.ones(SIZE), checkpoint=checkpoint)
    assert [tape.value(i).shape for i in range(13)] == [(SIZE,)] * 13
    assert counted.calls == 12


def test_dropping_from_a_tape_that_holds_everything_computes_nothing_but_the_rebuilds():
    counted = Counted()
    _, y = chain(12, counted)
    tape = us.Tape(y)
    tape.backward(y, np.ones(SIZE), checkpoint=config((1, 6), (7, 12)))
    assert counted.calls == 12 + 10
    # Without segments the tape holds everything again, and computes it only for that.
    tape.backward(y, np.ones(SIZE), checkpoint=CheckpointConfig())
    assert counted.calls == 12 + 10 + 10
    tape.backward(y, np.ones(SIZE))
    assert counted.calls == 12 + 10 + 10


def test_from_a_node_in_the_middle_only_what_comes_before_it_is_rebuilt():
    counted = Counted()
    _, y = chain(12, counted)
    tape, events = watched(y, checkpoint=config((1, 12)))
    before = counted.calls
    middle = tape.backward(5, np.ones(SIZE))
    # Nodes 1 to 5 to hold the value of the node it starts from, and 1 to 4 once more for the sweep.
    assert counted.calls == before + 5 + 4
    assert {node for action, node, _ in events if action == "rebuild"} == {1, 2, 3, 4}
    assert bits(middle) == bits(us.Tape(y).backward(5, np.ones(SIZE)))


def test_a_segment_that_no_cotangent_reaches_is_not_rebuilt():
    x = us.tensor(np.linspace(0.1, 0.9, SIZE))
    aside = us.sin(us.sin(us.sin(x)))
    loss = us.sum(x * x)
    tape, events = watched([aside, loss], checkpoint=config((1, 3)))
    assert {node for action, node, _ in events if action == "drop"} == {1, 2}
    tape.backward_scalar(loss)
    assert not arrays(events, "rebuild")


def test_overlapping_segments_are_their_union():
    _, y = chain(9)
    found = []
    for checkpoint in (config((2, 5), (4, 8)), config((4, 8), (2, 5), (5, 5)), config((2, 8))):
        tape, events = watched(y, checkpoint=checkpoint)
        tape.backward(y, np.ones(SIZE))
        found.append(events)
    assert found[0] == found[1] == found[2]


# --- what stays -------------------------------------------------------------------------------------------------------


def dropped(tape_outputs, checkpoint, start=None):
    tape, events = watched(tape_outputs, checkpoint=None if start is not None else checkpoint)
    if start is not None:
        tape.backward(start, np.ones(tape.nodes[tape.id_of(start)].shape), checkpoint=checkpoint)
    return {node for action, node, _ in events if action == "drop"}


def test_leaves_constants_and_outputs_stay():
    x = us.tensor(np.linspace(0.1, 0.9, SIZE))
    y = us.sin(x) * us.constant(np.linspace(1, 2, SIZE))
    z = us.exp(y)
    loss = us.sum(z * x)
    tape = us.Tape(loss)
    everything = CheckpointConfig.uniform(len(tape), 1)
    middle = {i for i, node in enumerate(tape.nodes) if node.op in ("sin", "multiply", "exp")}
    assert len(middle) == 4
    assert dropped(loss, everything) == middle
    # An output is pinned: to keep a value, make it one.
    assert dropped([loss, y], everything) == middle - {tape.id_of(y)}
    assert dropped(loss, everything, start=z) == middle - {tape.id_of(z)}


def test_what_keep_was_applied_to_stays():
    x = us.tensor(np.linspace(0.1, 0.9, SIZE))
    y = us.exp(us.keep(us.sin(us.cos(x))))
    loss = us.sum(y * y)
    # 0 x, 1 cos, 2 sin, 3 keep, 4 exp, 5 multiply, 6 sum
    assert dropped(loss, config((0, 6))) == {1, 4, 5}


def test_what_is_used_outside_its_segment_stays():
    x = us.tensor(np.linspace(0.1, 0.9, SIZE))
    a = us.sin(x)
    b = us.cos(a)
    c = us.exp(b)
    loss = us.sum(c * a)
    # 0 x, 1 a, 2 b, 3 c, 4 c * a, 5 sum
    assert dropped(loss, config((1, 3))) == {2}
    assert dropped(loss, config((1, 2))) == set()
    assert dropped(loss, config((2, 4))) == {2, 3}
    assert dropped(loss, config((1, 4))) == {1, 2, 3}


def test_loss_and_values_are_right_afterwards():
    loss, _ = real_program()
    plain = us.Tape(loss)
    tape = us.Tape(loss)
    held = [tape.value(i) for i in range(len(tape))]
    for _ in range(2):
        tape.backward_scalar(loss, checkpoint=CheckpointConfig.uniform(len(tape), 2))
        for i, before in enumerate(held):
            assert bits(tape.value(i)) == bits(plain.value(i)) == bits(before)
            assert not tape.value(i).flags.writeable
    assert tape.show() == plain.show()


def test_a_small_view_that_stays_does_not_hold_the_array_that_was_dropped():
    x = us.tensor(np.linspace(0.1, 0.9, SIZE).reshape(100, 10))
    rows = us.sin(x)
    few = rows[3:5]
    loss = us.sum(us.exp(few))
    # 0 x, 1 sin, 2 the position, 3 getitem, 4 exp, 5 sum
    for options in ({"checkpoint": config((1, 3))}, {}):
        tape, events = watched(loss, **options)
        found = tape.backward_scalar(loss, checkpoint=config((1, 3)))
        assert events[-1][2] == (SIZE + 2 * 20 + 2) / SIZE  # x, few, exp, the loss and the position
        assert bits(found) == bits(us.Tape(loss).backward_scalar(loss))


def test_views_of_what_stays_are_not_copied():
    x = us.tensor(np.linspace(0.1, 0.9, SIZE).reshape(100, 10))
    loss = us.sum(us.exp(x[3:5]) * us.sin(x[7:9]))
    tape = us.Tape(loss, checkpoint=CheckpointConfig.uniform(us.graph_size(loss), 3))
    for part in (x[3:5], x[7:9]):
        assert np.shares_memory(tape.value(part), tape.value(x))


def test_a_view_that_a_copy_would_lay_out_anew_stays_a_view():
    # A product rounds according to the layout of its operands.
    x = us.tensor(np.random.default_rng(0).normal(size=(60, 60)))
    few = us.sin(x)[:, ::7]
    loss = us.sum(us.exp(few.T @ us.cos(x)))
    checkpoint = config((1, 2))
    tape = us.Tape(loss, checkpoint=checkpoint)
    assert bits(tape.backward_scalar(loss)) == bits(us.Tape(loss).backward_scalar(loss))
    assert tape.value(few).strides == us.Tape(loss).value(few).strides


def test_a_rule_may_look_at_a_value_that_another_segment_dropped():
    counted = Counted()
    # The negative of a negative is the node itself: the rule asks for -b and gets a, inside the other segment.
    probe = Op(
        "probe",
        infer=lambda x: (x.shape, x.dtype),
        kernel=lambda x: -0.5 * x * x,
        vjp=(lambda ct, out, x: ct * us.negative(x),),
    )
    x = us.tensor(np.linspace(0.1, 0.9, 5))
    a = counted(counted(x))
    b = us.negative(a)
    y = us.sin(_graph.apply(probe, b))
    expected = us.Tape(y).backward(y, np.ones(5))
    # 0 x, 1 counted, 2 a, 3 b, 4 probe, 5 sin
    tape = us.Tape(y, checkpoint=config((1, 3), (4, 5)))
    counted.calls = 0
    assert bits(tape.backward(y, np.ones(5))) == bits(expected)
    assert counted.calls == 2 + 2  # for the rule of the probe, and for the segment of a itself


def test_outputs_of_one_node_that_leave_their_segment_stay_and_the_node_is_rebuilt():
    x = us.tensor([2.0, 3.0])
    square, cube = two_outputs(us.sin(x))
    loss = us.sum(us.exp(square) * cube)
    tape, events = watched(loss, checkpoint=config((1, 4)))
    bundle = tape.id_of(square.inputs[0])
    assert {node for action, node, _ in events if action == "drop"} == {1, bundle}
    assert bits(tape.backward_scalar(loss)) == bits(us.Tape(loss).backward_scalar(loss))
    assert bits(tape.value(bundle)) == bits(us.Tape(loss).value(bundle))


# --- failures and limits ----------------------------------------------------------------------------------------------


def test_a_sweep_that_fails_leaves_nothing_behind_and_the_tape_still_works():
    counted = Counted()
    fails = [True]

    def rule(ct, out, x):
        if fails[0]:
            raise RuntimeError("out of luck")
        return ct

    fragile = Op("fragile", infer=lambda x: (x.shape, x.dtype), kernel=np.positive, vjp=(rule,))
    _, y = chain(3, counted)
    y = counted(_graph.apply(fragile, y))
    checkpoint = config((1, len(us.Tape(y)) - 1))
    tape, events = watched(y, checkpoint=checkpoint)
    with pytest.raises(RuntimeError, match="out of luck"):
        tape.backward(y, np.ones(SIZE))
    fails[0] = False
    del events[:]
    found = tape.backward(y, np.ones(SIZE))
    assert events[0][:2] == ("rebuild", 1) and events[0][2] == 3  # leaf, output and the first that is rebuilt
    assert bits(found) == bits(us.Tape(y).backward(y, np.ones(SIZE)))


def test_a_kernel_that_fails_in_a_rebuild_names_its_node():
    calls = []

    def kernel(x):
        calls.append(x)
        if len(calls) > 1:
            raise RuntimeError("only once")
        return x + 1.0

    once = Op("once", infer=lambda x: (x.shape, x.dtype), kernel=kernel, vjp=(lambda ct, out, x: ct * out,))
    y = us.sin(_graph.apply(once, us.tensor(1.0)))
    tape = us.Tape(y, checkpoint=config((1, 2)))
    with pytest.raises(KernelError, match="only once"):
        tape.backward_scalar(y)


@pytest.mark.parametrize(
    ("checkpoint", "message"),
    [
        (config((2, 1)), "nodes 2 to 1, ends before it begins"),
        (config((-1, 1)), "nodes -1 to 1, begins below 0"),
        (config((1, 3)), "nodes 1 to 3, goes beyond the last of 3 nodes, which is node 2"),
        ([CheckpointSegment(0, 1)], "expected a CheckpointConfig"),
        (CheckpointSegment(0, 1), "expected a CheckpointConfig"),
        (True, "expected a CheckpointConfig"),
    ],
)
def test_configurations_that_make_no_sense_are_refused_before_the_work(checkpoint, message):
    x = us.tensor([1.0, 2.0])
    loss = us.sum(x * x)
    tape, events = watched(loss)
    del events[:]
    calls = [
        lambda: us.Tape(loss, checkpoint=checkpoint),
        lambda: tape.backward(loss, 1.0, checkpoint=checkpoint),
        lambda: tape.backward_scalar(loss, checkpoint=checkpoint),
        lambda: tape.backward_dense(loss, 1.0, checkpoint=checkpoint),
        lambda: tape.backward_dense_all(loss, 1.0, checkpoint=checkpoint),
        lambda: tape.backward_dense_from([np.zeros(2), np.zeros(2), 1.0], checkpoint=checkpoint),
        lambda: tape.backward_loop(3, [None, None, 1.0], checkpoint=checkpoint),
        lambda: tape.backward_step(2, [None, None, 1.0], checkpoint=checkpoint),
    ]
    for call in calls:
        with pytest.raises(ArgumentError, match=message):
            call()
    assert not events


def test_a_long_tape_in_segments_needs_no_recursion():
    x = us.tensor(1.0)
    y = x
    for _ in range(5000):
        y = us.sin(y) + x
    checkpoint = CheckpointConfig.uniform(10_001, 100)
    tape = us.Tape(y, checkpoint=checkpoint)
    assert bits(tape.backward_scalar(y)) == bits(us.Tape(y).backward_scalar(y))
    one = us.Tape(y, checkpoint=CheckpointConfig.uniform(10_001, 1))
    assert bits(one.value(9_998)) == bits(tape.value(9_998))
