"""The tape on floats and complex numbers: its forms agree with each other and with ``grad``, and misuse raises."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import unspool as us
from unspool import _graph
from unspool._autodiff.sweeps.reverse import pullback
from unspool._ops.op import Op, parts
from unspool.errors import (
    AccumulatorLengthError,
    AccumulatorShapeError,
    ContributionShapeError,
    DTypeError,
    DTypeMismatchError,
    KernelError,
    MissingRuleError,
    NonScalarOutputError,
    RankMismatchError,
    SeedShapeError,
    ShapeMismatchError,
    StructureError,
    UnboundPlaceholderError,
    UnexpectedBindingError,
    UnknownNodeError,
)


def real_program():
    x = us.tensor([0.5, -1.0, 2.0], name="x")
    w = us.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], name="w")
    h = us.sin(w * x)
    return us.sum(h * h / (x * x + 2.0) + us.exp(w * 0.1)), [x, w, h]


def complex_program():
    z = us.tensor([1 + 2j, -0.5 + 1j], name="z")
    r = us.tensor([2.0, 3.0], name="r")
    u = us.exp(z * r) * z
    return us.sum(us.real(us.conj(u) * u) + r), [z, r, u]


def shapes_program():
    x = us.tensor(np.arange(0.5, 6.0).reshape(2, 3), name="x")
    y = us.reshape(us.sin(x).T, (2, 3)) * us.broadcast_to(us.sum(x, axis=1, keepdims=True), (2, 3))
    return us.sum(us.where(x > 2, us.log(y * y), y)), [x, y]


PROGRAMS = pytest.mark.parametrize("program", [real_program, complex_program, shapes_program], ids=lambda p: p.__name__)


def test_entries_of_two_tapes_are_equal_if_they_are_the_same_tensor_at_the_same_place():
    x = us.tensor([1.0, 2.0])
    loss = us.sum(us.sin(x) * x)
    tape, again, other = us.Tape(loss), us.Tape(loss), us.Tape(us.sum(us.sin(x)))
    assert tape.nodes == again.nodes
    assert set(tape.nodes) == set(again.nodes)
    assert tape.nodes != other.nodes
    assert tape.nodes[0] != tape.nodes[1]


def same(left, right):
    """Whether two lists of cotangents are equal to the last bit, entry by entry."""
    return all((a is None and b is None) or np.array_equal(a, b) for a, b in zip(left, right, strict=True))


# --- what is on it ----------------------------------------------------------------------------------------------------


def test_nodes_are_numbered_in_topological_order_with_a_value_each():
    loss, wrt = real_program()
    tape = us.Tape(loss)
    assert len(tape) == us.graph_size(loss) == len(tape.nodes)
    for position, node in enumerate(tape.nodes):
        assert node.id == position
        assert all(i < position for i in node.inputs)
        assert tape.id_of(node.tensor) == position
        assert tape.tensor(position) is node.tensor
        assert tape.value(position).shape == node.shape
        np.testing.assert_array_equal(tape.value(position), node.tensor.eval())
    record = tape.nodes[tape.id_of(wrt[0])]
    assert (record.op, record.inputs, record.shape, record.name) == ("tensor", (), (3,), "x")
    assert record.dtype == np.float64
    assert 'x = us.tensor([0.5, -1.0, 2.0], name="x")' in record.source


def test_outputs_may_be_a_structure_and_need_not_be_connected():
    x, y = us.tensor(1.0), us.tensor(2.0)
    tape = us.Tape({"a": x * 2, "b": [y, (x + y,)]})
    assert {tape.id_of(x), tape.id_of(y), tape.id_of(x * 2), tape.id_of(x + y)} < set(range(len(tape)))


def test_show_is_a_table_with_a_row_per_node():
    x = us.tensor([1.0, 2.0], name="x")
    y = us.sum(x * x)  # the line that made y
    text = us.Tape(y).show()
    lines = text.splitlines()
    assert len(lines) == 4
    assert lines[0].split() == ["id", "op", "inputs", "shape", "source"]
    assert lines[3].split()[:4] == ["2", "sum", "1", "()"]
    assert "test_tape.py" in lines[3] and "the line that made y" in lines[3]


def test_values_and_cotangents_are_read_only():
    x = us.tensor([1.0, 2.0])
    tape = us.Tape(x + x)
    seed = np.ones(2)
    dense = tape.backward_dense(1, seed)
    total = tape.backward_dense_all(1, seed)
    for array in [tape.value(0), tape.value(1), *dense, *total, *tape.backward_dense_from(dense)]:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7.0
    seed[0] = 5.0
    assert dense[1][0] == 1.0


def test_a_tape_does_not_use_or_fill_the_store():
    x = us.tensor([1.0, 2.0])
    y = us.sin(x)
    with us.debug.count_kernels() as counts:
        us.Tape(y).backward(1, np.ones(2))
    assert counts.total == 0
    assert y.value is None


def test_a_tape_leaves_no_nodes_behind():
    loss, _ = real_program()
    before = _graph.live_node_count()
    us.Tape(loss).backward_scalar(loss)
    assert _graph.live_node_count() == before


# --- the forms agree --------------------------------------------------------------------------------------------------


@PROGRAMS
def test_every_cotangent_equals_what_grad_gives(program):
    loss, _ = program()
    tape = us.Tape(loss)
    found = tape.backward_scalar(loss)
    for node in tape.nodes:
        if node.id in found:
            expected = loss.grad(node.tensor, unconnected="raise").eval()
            np.testing.assert_allclose(found[node.id], expected, rtol=1e-13, atol=1e-13)
            assert found[node.id].dtype == node.dtype
        else:
            # Not reached: integers, bools, constants and what is made from them alone.
            assert node.dtype.kind not in "fc" or not any(n.op == "tensor" for n in us.Tape(node.tensor).nodes)


@PROGRAMS
def test_all_forms_agree(program):
    loss, _ = program()
    tape = us.Tape(loss)
    out, size = tape.id_of(loss), len(tape)
    dense = tape.backward_dense(out, 1.0)
    assert len(dense) == size
    sparse = {i: ct for i, ct in enumerate(dense) if ct is not None}
    for form in (tape.backward(loss, 1.0), tape.backward_scalar(out)):
        assert form.keys() == sparse.keys()
        assert all(np.array_equal(form[i], sparse[i]) for i in sparse)
    total = tape.backward_dense_all(out, 1.0)
    for node, ct, filled in zip(tape.nodes, dense, total, strict=True):
        assert filled.shape == node.shape
        assert np.array_equal(filled, np.zeros(node.shape) if ct is None else ct)
    seeded = [np.zeros(node.shape) for node in tape.nodes]
    seeded[out] = np.array(1.0)
    assert same(tape.backward_dense_from(seeded), total)
    assert same(tape.backward_loop(size, seeded), total)
    optional = [None] * size
    optional[out] = 1.0
    assert same(tape.backward_loop(size, optional), dense)
    stepped = optional
    for position in reversed(range(size)):
        stepped = tape.backward_step(position, stepped)
    assert same(stepped, dense)


@PROGRAMS
def test_a_seed_in_the_middle_equals_the_pullback(program):
    loss, wrt = program()
    *variables, middle = wrt
    tape = us.Tape(loss)
    rng = np.random.default_rng(3)
    seed = rng.normal(size=middle.shape) + (1j * rng.normal(size=middle.shape) if middle.dtype.kind == "c" else 0)
    found = tape.backward(middle, seed)
    for variable, expected in zip(variables, pullback([middle], [us.constant(seed)], variables), strict=True):
        np.testing.assert_allclose(found[tape.id_of(variable)], expected.eval(), rtol=1e-13)


def test_complex_gradients_follow_the_real_inner_product():
    z = us.tensor(3 + 4j)
    loss = us.real(us.conj(z) * z)
    tape = us.Tape(loss)
    assert tape.backward_scalar(loss)[tape.id_of(z)] == 6 + 8j


def test_a_real_node_gets_a_real_cotangent_from_complex_consumers():
    r = us.tensor([1.0, 2.0])
    loss = us.sum(us.real(r * (1 + 2j)))
    tape = us.Tape(loss)
    ct = tape.backward_scalar(loss)[tape.id_of(r)]
    assert ct.dtype == np.float64
    np.testing.assert_array_equal(ct, [1.0, 1.0])


def test_single_precision_stays_single():
    x = us.tensor([1.0, 2.0], dtype="float32")
    tape = us.Tape(us.sum(us.sin(x) * x))
    for node, ct in zip(tape.nodes, tape.backward_dense_all(len(tape) - 1, 1.0), strict=True):
        assert tape.value(node.id).dtype == ct.dtype == np.float32


def test_many_seeds_at_once_are_the_sum_of_each():
    x = us.tensor([1.0, 2.0])
    a, b = us.sin(x), x * x
    tape = us.Tape([a, b])
    seeds = [np.zeros(2)] * len(tape)
    seeds[tape.id_of(a)], seeds[tape.id_of(b)] = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    seeds[tape.id_of(x)] = np.array([100.0, 200.0])
    found = tape.backward_dense_from(seeds)[tape.id_of(x)]
    x0 = np.array([1.0, 2.0])
    np.testing.assert_allclose(found, [100, 200] + np.cos(x0) * [1, 2] + 2 * x0 * [3, 4], rtol=1e-14)


def test_a_step_is_pure_and_moves_one_node():
    x = us.tensor(3.0)
    y = x * x
    z = us.sin(y)
    tape = us.Tape(z)
    acc = [np.array(0.0), np.array(5.0), np.array(1.0)]
    after = tape.backward_step(z, acc)
    assert [float(a) for a in acc] == [0.0, 5.0, 1.0]
    assert after is not acc
    assert [float(a) for a in after] == [0.0, 5.0 + np.cos(9.0), 1.0]
    assert [float(a) for a in tape.backward_loop(2, acc)] == [30.0, 5.0, 1.0]
    assert [float(a) for a in tape.backward_loop(0, acc)] == [0.0, 5.0, 1.0]


# --- order, absence, singular points ----------------------------------------------------------------------------------


@pytest.mark.parametrize("factors", list(itertools.permutations([1e16, 1.0, -1e16, 3.0])), ids=str)
def test_contributions_are_summed_in_falling_id_of_their_consumers(factors):
    x = us.tensor(1.0)
    uses = [x * us.tensor(factor) for factor in factors]
    tape = us.Tape(uses)
    seeds = [0.0] * len(tape)
    for use in uses:
        seeds[tape.id_of(use)] = 1.0
    expected = 0.0
    for factor in reversed(factors):
        expected += factor
    assert tape.backward_dense_from(seeds)[tape.id_of(x)] == expected
    # The same order in the sweep that `grad` is made of.
    (ct,) = pullback(uses, [us.constant(1.0)] * 4, [x])
    assert float(ct) == expected


def test_within_a_consumer_contributions_are_summed_in_input_order():
    op = Op(
        "three",
        infer=lambda *xs: (xs[0].shape, xs[0].dtype),
        kernel=lambda *xs: xs[0],
        vjp=lambda i, ct, out, *xs: ct * (1e16, 1.0, -1e16)[i],
    )
    x = us.tensor(1.0)
    tape = us.Tape(_graph.apply(op, x, x, x))
    assert tape.backward_scalar(1)[0] == (1e16 + 1.0) - 1e16 == 0.0


def test_a_diamond_sums_both_paths():
    x = us.tensor(2.0)
    y = x * x
    tape = us.Tape(us.sin(y) + us.exp(y))
    expected = (np.cos(4.0) + np.exp(4.0)) * 4.0
    np.testing.assert_allclose(tape.backward_scalar(len(tape) - 1)[tape.id_of(x)], expected, rtol=1e-15)


def test_a_disconnected_pole_gives_a_finite_zero_in_the_total_form_and_none_in_the_dense_form():
    x = us.tensor(0.0)
    pole, line = 1.0 / x, x * 2.0
    square = pole * pole
    tape = us.Tape([square, line])
    dense, total = tape.backward_dense(line, 1.0), tape.backward_dense_all(line, 1.0)
    assert dense[tape.id_of(pole)] is None and dense[tape.id_of(square)] is None
    assert total[tape.id_of(pole)] == 0.0 and total[tape.id_of(square)] == 0.0
    assert total[tape.id_of(x)] == 2.0
    assert set(tape.backward(line, 1.0)) == {tape.id_of(x), tape.id_of(line)}
    # Run on an explicit zero, the same rules do meet 0·∞.
    seeds = [0.0] * len(tape)
    seeds[tape.id_of(line)] = 1.0
    assert np.isnan(tape.backward_dense_from(seeds)[tape.id_of(x)])


def test_a_zero_that_arrives_is_reached():
    x = us.tensor(3.0)
    tape = us.Tape(x * us.tensor(0.0))
    assert tape.backward_scalar(2)[0] == 0.0
    assert tape.backward_dense(2, 0.0)[0] == 0.0


def test_elements_that_were_not_chosen_stay_absent_through_several_nodes():
    x = us.tensor([0.0, 4.0])
    loss = us.sum(us.where(x > 0, us.log(us.sqrt(x)), 7.0))
    tape = us.Tape(loss)
    np.testing.assert_array_equal(tape.backward_scalar(loss)[tape.id_of(x)], [0.0, 0.125])
    np.testing.assert_array_equal(loss.grad(x).eval(), [0.0, 0.125])


def test_integers_bools_and_constants_carry_no_cotangents():
    x = us.tensor([1.0, -2.0])
    i = us.tensor([3, 4])
    condition = x > 0
    constant = us.sin(us.constant([1.0, 2.0]))
    loss = us.sum(us.where(condition, x * i, x) * constant)
    tape = us.Tape(loss)
    dense, total = tape.backward_dense(loss, 1.0), tape.backward_dense_all(loss, 1.0)
    for tensor in (i, condition, constant):
        assert dense[tape.id_of(tensor)] is None
        assert not total[tape.id_of(tensor)].any()
    with pytest.raises(DTypeError, match="carries no cotangents"):
        tape.backward(i, [1, 1])


def test_a_node_made_from_constants_can_be_seeded_and_sends_nothing_on():
    c = us.sin(us.constant(1.0))
    tape = us.Tape(c)
    assert tape.backward_dense(c, 2.0) == [None, 2.0]


# --- ops with several outputs -----------------------------------------------------------------------------------------


def two_outputs(x, with_rule=True):
    """Return ``(x**2, x**3)`` as the parts of one node."""

    def vjp(i, ct, out, x):
        square, cube = ct
        total = None if square is None else square * 2.0 * x
        if cube is not None:
            total = cube * 3.0 * x * x if total is None else total + cube * 3.0 * x * x
        return total

    op = Op(
        "powers",
        infer=lambda x: ((x.shape, x.dtype), (x.shape, x.dtype)),
        kernel=lambda x: (x * x, x * x * x),
        vjp=vjp if with_rule else None,
        multi=True,
    )
    return parts(_graph.apply_multi(op, x))


def test_an_op_with_several_outputs_is_one_node_with_tuples():
    x = us.tensor([2.0, 3.0])
    square, cube = two_outputs(x)
    loss = us.sum(square + 10.0 * cube)
    tape = us.Tape(loss)
    bundle = square.inputs[0]
    record = tape.nodes[tape.id_of(bundle)]
    assert (record.op, record.shape) == ("powers", ((2,), (2,)))
    assert [list(v) for v in tape.value(bundle)] == [[4.0, 9.0], [8.0, 27.0]]
    found = tape.backward_scalar(loss)
    assert [list(ct) for ct in found[tape.id_of(bundle)]] == [[1.0, 1.0], [10.0, 10.0]]
    np.testing.assert_array_equal(found[tape.id_of(x)], [4.0 + 120.0, 6.0 + 270.0])
    np.testing.assert_array_equal(loss.grad(x).eval(), [124.0, 276.0])


def test_a_part_that_was_not_reached_is_none_in_its_slot():
    x = us.tensor([2.0, 3.0])
    square, cube = two_outputs(x)
    tape = us.Tape([square, cube])
    bundle = tape.id_of(square.inputs[0])
    dense = tape.backward_dense(square, [1.0, 1.0])
    assert dense[bundle][1] is None and dense[tape.id_of(cube)] is None
    total = tape.backward_dense_all(square, [1.0, 1.0])
    assert [list(ct) for ct in total[bundle]] == [[1.0, 1.0], [0.0, 0.0]]
    np.testing.assert_array_equal(total[tape.id_of(x)], [4.0, 6.0])
    # A bundle takes a tuple as its seed, and in an array of cotangents.
    np.testing.assert_array_equal(tape.backward(bundle, (None, [1.0, 1.0]))[tape.id_of(x)], [12.0, 27.0])
    np.testing.assert_array_equal(tape.backward_dense_from(total)[tape.id_of(x)], [4.0 + 8.0, 6.0 + 12.0])
    for seed in ([1.0, 1.0, 1.0], (np.ones(2), np.ones(3)), np.ones(2)):
        with pytest.raises(SeedShapeError, match="'powers'"):
            tape.backward(bundle, seed)
    with pytest.raises(NonScalarOutputError):
        tape.backward_scalar(bundle)


# --- values that are given --------------------------------------------------------------------------------------------


def test_placeholders_are_bound_and_symbolic_sizes_follow():
    n, k = us.dims("n k")
    x = us.placeholder((n, 1), name="x")
    y = us.placeholder((2 * k,), name="y")
    loss = us.sum(us.broadcast_to(x, (n, 2 * k)) * y * us.reshape(x * x, (n, 1)))
    given = {x: [[1.0], [2.0], [3.0]], y: [1.0, 1.0, 2.0, 0.5]}
    tape = us.Tape(loss, values=given)
    found = tape.backward_scalar(loss)
    for variable in (x, y):
        expected = loss.grad(variable).eval(given)
        np.testing.assert_allclose(found[tape.id_of(variable)], expected, rtol=1e-14)
    assert tape.nodes[tape.id_of(y)].shape == (4,)


def test_leaves_can_be_given_other_values_for_one_tape():
    x = us.tensor([1.0, 2.0])
    y = us.sum(x * x)
    tape = us.Tape(y, values={x: [3.0, 4.0]})
    assert tape.value(y) == 25.0
    np.testing.assert_array_equal(tape.backward_scalar(y)[tape.id_of(x)], [6.0, 8.0])
    assert float(y) == 5.0


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ([1.0, 2.0, 3.0], ShapeMismatchError),
        ([[1.0, 2.0]], RankMismatchError),
        ([1j, 2.0], DTypeMismatchError),
        (np.array([1.0, 2.0], dtype=np.float32), DTypeMismatchError),
    ],
    ids=str,
)
def test_values_have_to_fit_their_leaf(data, error):
    x = us.tensor([1.0, 2.0])
    with pytest.raises(error, match="test_tape.py"):
        us.Tape(x * x, values={x: data})


def test_only_leaves_and_placeholders_can_be_given_values():
    x = us.tensor([1.0, 2.0])
    y = x * x
    for key in (y, us.constant(2.0), "x"):
        with pytest.raises(UnexpectedBindingError):
            us.Tape(y, values={key: [1.0, 2.0]})


def test_a_placeholder_without_value_is_named():
    x = us.placeholder((2,), name="speed")
    with pytest.raises(UnboundPlaceholderError, match="'speed'"):
        us.Tape(x * 2.0)


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def tape():
    x = us.tensor([1.0, 2.0], name="x")
    return us.Tape(us.sum(x * x))


@pytest.mark.parametrize("node", [3, -1, 10**9, 1.5, "x", None], ids=str)
def test_unknown_node(tape, node):
    calls = [
        lambda: tape.backward_dense(node, [1.0, 1.0]),
        lambda: tape.backward_dense_all(node, 1.0),
        lambda: tape.backward(node, 1.0),
        lambda: tape.backward_scalar(node),
        lambda: tape.backward_step(node, []),
        lambda: tape.value(node),
        lambda: tape.tensor(node),
    ]
    for call in calls:
        with pytest.raises(UnknownNodeError):
            call()


def test_a_tensor_that_is_not_on_the_tape_is_unknown(tape):
    other = us.tensor(1.0, name="other")
    for call in (tape.id_of, tape.value, tape.backward_scalar):
        with pytest.raises(UnknownNodeError, match="'other'"):
            call(other)
    with pytest.raises(UnknownNodeError):
        tape.id_of(0)
    with pytest.raises(UnknownNodeError, match="n = 4"):
        tape.backward_loop(4, [None] * 3)


@pytest.mark.parametrize("seed", [1.0, [1.0], [1.0, 2.0, 3.0], [[1.0, 2.0]], [[1.0], [1.0, 2.0]]], ids=str)
def test_seed_shape(tape, seed):
    for form in (tape.backward_dense, tape.backward_dense_all, tape.backward):
        with pytest.raises(SeedShapeError, match=r"node 1 \(op 'multiply'.*has to have shape \(2,\)"):
            form(1, seed)


def test_an_unknown_node_is_reported_before_the_shape_of_its_seed(tape):
    with pytest.raises(UnknownNodeError):
        tape.backward_dense(99, np.ones((5, 5)))


@pytest.mark.parametrize("length", [0, 2, 4])
def test_accumulator_length(tape, length):
    acc = [np.zeros(2)] * length
    for call in (tape.backward_dense_from, lambda a: tape.backward_step(0, a), lambda a: tape.backward_loop(1, a)):
        with pytest.raises(AccumulatorLengthError, match=f"3 nodes.* got {length}"):
            call(acc)


def test_accumulator_entry_shape(tape):
    acc = [np.zeros(2), np.zeros(3), np.zeros(())]
    for call in (tape.backward_dense_from, lambda a: tape.backward_step(0, a), lambda a: tape.backward_loop(1, a)):
        with pytest.raises(AccumulatorShapeError, match=r"node 1 \(op 'multiply'.*shape \(2,\), got \(3,\)"):
            call(acc)
    with pytest.raises(AccumulatorShapeError, match="entry 1 is None"):
        tape.backward_dense_from([np.zeros(2), None, 0.0])


@pytest.mark.parametrize(
    ("rule", "got"),
    [
        (lambda ct, out, x: us.sum(ct), r"shape \(\)"),
        (lambda ct, out, x: us.reshape(ct, (1, 2)), r"shape \(1, 2\)"),
        (lambda ct, out, x: np.ones(2), "gave"),
        (lambda ct, out, x: 1.0, "1.0"),
        (lambda ct, out, x: (ct,), "gave"),
    ],
)
def test_contribution_shape(rule, got):
    op = Op("wrong", infer=lambda x: (x.shape, x.dtype), kernel=np.negative, vjp=(rule,))
    tape = us.Tape(_graph.apply(op, us.tensor([1.0, 2.0], name="x")))
    with pytest.raises(ContributionShapeError, match=f"'wrong' for input 0.*'x'.*{got}"):
        tape.backward(1, [1.0, 1.0])


def test_non_scalar_output(tape):
    for node in (0, 1):
        with pytest.raises(NonScalarOutputError, match=rf"node {node} .*shape \(2,\)"):
            tape.backward_scalar(node)


def test_a_complex_cotangent_for_a_real_node_is_refused(tape):
    with pytest.raises(DTypeError, match="complex"):
        tape.backward(2, 1j)
    with pytest.raises(DTypeError, match="does not fit"):
        tape.backward(2, "one")


def test_a_missing_rule_is_named():
    op = Op("rough", infer=lambda x: (x.shape, x.dtype), kernel=np.negative)
    tape = us.Tape(_graph.apply(op, us.tensor(1.0)))
    with pytest.raises(MissingRuleError, match="'rough'"):
        tape.backward_scalar(1)


def test_a_kernel_that_fails_names_its_node():
    def kernel(x):
        raise RuntimeError("out of luck")

    op = Op("failing", infer=lambda x: (x.shape, x.dtype), kernel=kernel)
    with pytest.raises(KernelError, match=r"RuntimeError: out of luck.*failing.*test_tape\.py"):
        us.Tape(_graph.apply(op, us.tensor(1.0)))


@pytest.mark.parametrize("outputs", [[], 1.0, "x", np.ones(2), [us.tensor(1.0), 2.0]], ids=str)
def test_a_tape_is_made_from_tensors(outputs):
    with pytest.raises(StructureError):
        us.Tape(outputs)


def test_a_long_tape_needs_no_recursion():
    x = us.tensor(1.0)
    y = x
    for _ in range(5000):
        y = us.sin(y) + x
    tape = us.Tape(y)
    assert len(tape) == 10_001
    np.testing.assert_allclose(tape.backward_scalar(y)[0], float(y.grad(x)), rtol=1e-12)
