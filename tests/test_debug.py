"""Debugging tools: where a NaN was born, which kernels ran, and the code that runs them."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import unspool as us
from unspool import _graph
from unspool._engine.observe import current_observer
from unspool._ops.op import Op, parts
from unspool.errors import ArgumentError, NaNError, UnboundSizeError


def test_the_first_node_that_makes_a_nan_is_named_with_its_line_and_inputs():
    x = us.tensor([4.0, -1.0, 0.0], name="x")
    bad = us.log(x)  # the line to blame
    loss = us.sum(bad * 2.0)
    with us.debug.check_nan(), pytest.raises(NaNError) as caught:
        loss.eval()
    message = str(caught.value)
    assert "log of shape (3,) and dtype float64 made 1 NaN of 3 values" in message
    assert "test_debug.py" in message and "the line to blame" in message
    assert "input 0: tensor 'x' of shape (3,)" in message
    assert "min -1, max 4, 1 of 3 zero" in message


def test_a_nan_that_came_in_is_not_blamed_on_those_who_pass_it_on():
    x = us.tensor([np.nan, 1.0])
    with us.debug.check_nan():
        assert np.isnan(us.sum(x * 2.0).eval())


def test_infinities_are_reported_only_when_asked_for():
    x = us.tensor([0.0, 1.0])
    with us.debug.check_nan():
        (1.0 / x).eval()
    with (
        us.debug.check_nan(infinities=True),
        pytest.raises(NaNError, match="divide.* made 1 infinite or NaN value of 2"),
    ):
        (1.0 / (x * 1.5)).eval()
    with us.debug.check_nan(infinities=True):
        us.sum(us.tensor([np.inf]) * 2.0).eval()


@pytest.mark.parametrize("value", [2.0, 1 + 1j, 3, True])
def test_ordinary_values_of_every_kind_pass(value):
    x = us.tensor([value, value])
    with us.debug.check_nan(infinities=True):
        us.eval(x + x, us.sum(x), x > 0 if not isinstance(value, complex) else us.conj(x))


def test_complex_nans_and_their_inputs_are_described_by_modulus():
    z = us.tensor([0j, 3 + 4j])
    with us.debug.check_nan(), pytest.raises(NaNError, match="max 5 of the modulus"):
        (z / z).eval()


def test_empty_arrays_and_ops_with_several_outputs_are_looked_into():
    op = Op(
        "pair",
        infer=lambda x: ((x.shape, x.dtype), (x.shape, x.dtype)),
        kernel=lambda x: (x, np.log(x)),
        multi=True,
    )
    with us.debug.check_nan():
        parts(_graph.apply_multi(op, us.tensor(np.zeros(0))))[1].eval()
        with pytest.raises(NaNError, match="pair"):
            parts(_graph.apply_multi(op, us.tensor([-1.0])))[0].eval()


def test_a_nan_in_a_gradient_points_to_the_line_of_the_primal():
    x = us.tensor(0.0)
    y = us.sqrt(x)  # singular here
    gradient = (y * y).grad(x)
    with us.debug.check_nan(), pytest.raises(NaNError, match="singular here"):
        gradient.eval()


def test_evaluation_goes_on_after_an_error():
    x = us.tensor([-1.0])
    y = us.log(x)
    with us.debug.check_nan(), pytest.raises(NaNError):
        us.sum(y).eval()
    assert np.isnan(us.sum(y).eval())


def test_kernels_are_counted_by_op_and_by_node():
    x = us.tensor([1.0, 2.0])
    with us.debug.count_kernels() as counts:
        y = us.sin(x)
        us.eval(y * y, y + x, us.sin(y))
        y.eval()
    assert counts.total == 4
    assert counts.by_op == {"sin": 2, "multiply": 1, "add": 1}
    assert counts["sin"] == 2 and counts["cos"] == 0
    assert counts.by_node[y.id] == 1
    assert set(counts.by_node.values()) == {1}
    assert repr(counts) == "<4 kernel calls: sin 2, multiply 1, add 1>"


def test_evaluation_under_a_binding_is_counted_too():
    x = us.placeholder((2,))
    y = us.sin(x)
    with us.debug.count_kernels() as counts:
        y.eval({x: [1.0, 2.0]})
        y.eval({x: [1.0, 2.0]})
    assert counts.by_node == {y.id: 2}


def test_contexts_nest_and_end():
    x = us.tensor([1.0])
    assert current_observer() is None
    with us.debug.count_kernels() as outer:
        us.sin(x).eval()
        with us.debug.check_nan(), us.debug.count_kernels() as inner:
            us.cos(x).eval()
            with pytest.raises(NaNError):
                us.log(-x).eval()
        us.exp(x).eval()
    us.tan(x).eval()
    assert current_observer() is None
    assert outer.by_op == {"sin": 1, "cos": 1, "negative": 1, "log": 1, "exp": 1}
    assert inner.by_op == {"cos": 1, "negative": 1}


def test_a_context_that_ends_by_an_error_ends():
    with pytest.raises(ZeroDivisionError), us.debug.check_nan():
        raise ZeroDivisionError
    assert current_observer() is None


def test_counting_does_not_change_what_is_kept():
    def run():
        x = us.tensor(np.ones(4))
        y = us.sin(us.cos(x))
        y.eval()
        return us.summary(y).held

    plain = run()
    with us.debug.count_kernels():
        assert run() == plain


def test_other_threads_are_not_watched():
    x = us.tensor([1.0])
    with us.debug.count_kernels() as counts:
        worker = threading.Thread(target=lambda: us.sin(x).eval())
        worker.start()
        worker.join()
    assert counts.total == 0


# --- generated code --------------------------------------------------------------------------------------------------


def test_the_source_of_a_tensor_goes_back_to_its_leaves_and_computes_nothing():
    x = us.tensor([1.0, 2.0])
    y = us.exp(x) * x
    with us.debug.count_kernels() as counts:
        source = us.debug.source(us.sum(y))
    assert [name for name in ("exp", "multiply", "add_reduce") if f"{name}(" in source] == [
        "exp",
        "multiply",
        "add_reduce",
    ]
    assert counts.total == 0 and y.value is None
    y.eval()
    assert us.debug.source(us.sum(y)) == source


def test_the_source_of_what_a_fragment_returns_is_that_of_the_whole_fragment():
    @us.fragment
    def step(A, x):
        y = us.tanh(A @ x)
        return y, us.sum(y)

    y, total = step(us.tensor(np.eye(2)), us.tensor([1.0, 2.0]))
    assert us.debug.source(y) == us.debug.source(total)
    assert "tanh(" in us.debug.source(y) and "add_reduce(" in us.debug.source(y)
    # What is made of its outputs begins with them.
    assert "tanh(" not in us.debug.source(us.exp(total))


def test_the_source_of_a_loop_has_its_steps_and_writes_what_is_kept_where_it_is_kept():
    A, x = us.tensor(np.eye(2)), us.tensor([1.0, 2.0])
    last, _ = us.iterate(lambda y: A @ y, x, max_steps=5)
    source = us.debug.source(last)
    assert "for k in indices:" in source
    assert ".dot(v1, out=history0[k + 1])" in source


def test_there_is_no_source_before_sizes_are_known():
    n = us.dims("n")
    with pytest.raises(UnboundSizeError, match=r"shape \(n,\)") as caught:
        us.debug.source(us.sum(us.placeholder((n,))))
    assert "test_debug.py" in str(caught.value)


def test_only_tensors_have_a_source():
    with pytest.raises(ArgumentError, match="takes a tensor, got 3 of type int"):
        us.debug.source(3)
