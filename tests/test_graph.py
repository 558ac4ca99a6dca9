"""The graph: equal recipes are one object, dead ones leave nothing behind, and every node knows its line."""

from __future__ import annotations

import gc
import importlib.util
import threading
import weakref

import numpy as np
import pytest

import unspool as us
from unspool import _graph
from unspool._graph import ancestors, describe, live_node_count, source_of
from unspool._ops.op import Op, parts


@pytest.fixture(autouse=True)
def _no_collector():
    """Counts of live nodes must not change because the garbage collector finds the remains of other tests."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


# --- interning --------------------------------------------------------------------------------------------------------


def test_the_same_recipe_is_the_same_object():
    x, y = us.tensor([1.0, 2.0]), us.tensor([3.0, 4.0])
    assert x * y is x * y
    assert us.sin(x) is us.sin(x)
    assert us.sum(x, axis=0) is us.sum(x, axis=-1) is us.sum(x)
    assert us.reshape(x, (2, 1)) is us.reshape(x, (2, -1))
    assert x + 1.0 is x + 1
    assert (us.sin(x) * y + x) is (us.sin(x) * y + x)


def test_different_recipes_are_different_objects():
    x, y = us.tensor([1.0, 2.0]), us.tensor([1.0, 2.0])
    assert x is not y
    assert us.sin(x) is not us.sin(y)
    assert x - y is not y - x
    assert x / y is not y / x
    assert us.sum(x, keepdims=True) is not us.sum(x)
    assert x * 0.0 is not x * -0.0


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "bool"])
def test_operands_of_commuting_ops_are_found_in_either_order(dtype):
    x, y = us.tensor([1, 0], dtype=dtype), us.tensor([1, 1], dtype=dtype)
    assert x + y is y + x
    assert x * y is y * x


def test_complex_products_keep_their_order():
    x, y = us.tensor([1j, 2.0]), us.tensor([1j, 2.0])
    assert x * y is not y * x


@pytest.mark.parametrize(
    ("build", "is_input"),
    [
        (lambda x: us.negative(-x), True),
        (lambda x: x.T.T, True),
        (lambda x: us.permute_dims(us.permute_dims(x, (2, 0, 1)), (1, 2, 0)), True),
        (lambda x: us.reshape(us.reshape(x, (24,)), (2, 3, 4)), True),
        (lambda x: us.reshape(x, x.shape), True),
        (lambda x: x.astype("float64"), True),
        (lambda x: us.broadcast_to(x, (2, 3, 4)), True),
        (lambda x: us.sum(x, axis=()), True),
        (lambda x: us.real(x), True),
        (lambda x: us.conj(x), True),
        (lambda x: x * 1.0, False),  # a number, which may be another in the next step
        (lambda x: x + 0.0, False),  # turns -0.0 into 0.0
        (lambda x: x * us.tensor(1.0), False),  # a variable, not a constant
        (lambda x: x / 1.5 * 1.5, False),  # rounds
    ],
)
def test_what_cannot_change_a_bit_is_simplified_and_nothing_else(build, is_input):
    x = us.tensor(np.arange(24.0).reshape(2, 3, 4))
    assert (build(x) is x) == is_input


def test_simplified_recipes_meet_in_one_node():
    x = us.tensor(np.arange(24.0).reshape(2, 3, 4))
    assert us.reshape(us.reshape(x, (4, 6)), (24,)) is us.reshape(x, (24,))
    assert us.permute_dims(x.T, (1, 0, 2)) is us.permute_dims(x, (1, 2, 0))
    z = us.tensor([1j])
    assert us.conj(us.conj(z)) is z


def test_leaves_and_placeholders_are_never_shared():
    assert us.tensor(1.0) is not us.tensor(1.0)
    assert us.placeholder(()) is not us.placeholder(())


def test_shapes_and_parameters_that_are_equal_sizes_make_one_node():
    n = us.dims("n")
    x = us.placeholder((n, 2))
    assert us.reshape(x, (n + n,)) is us.reshape(x, (2 * n,))


# --- life and death ---------------------------------------------------------------------------------------------------


def test_dropping_the_last_handle_frees_the_whole_recipe_at_once():
    x = us.tensor([1.0, 2.0])
    before = live_node_count()
    y = x
    for _ in range(100):
        y = us.sin(y) + x
    assert live_node_count() == before + 200
    gc.disable()
    try:
        del y
        assert live_node_count() == before
    finally:
        gc.enable()


def test_evaluating_and_differentiating_leave_nothing_behind():
    x = us.tensor([1.0, 2.0])
    us.sum(us.sin(x) * x).grad(x).eval()  # the constants that rules use once, always
    before = live_node_count()
    loss = us.sum(us.sin(x) * x)
    loss.eval()
    loss.grad(x).eval()
    del loss
    assert live_node_count() == before


def test_a_node_that_died_can_be_made_again():
    x = us.tensor([1.0, 2.0])
    first = us.exp(x).id
    again = us.exp(x)
    assert again.id != first and again is us.exp(x)


def test_nodes_freed_by_the_garbage_collector_leave_the_table_too():
    x = us.tensor([1.0, 2.0])
    before = live_node_count()

    class Holder:
        pass

    holder = Holder()
    holder.me, holder.tensor = holder, us.tan(x)
    assert live_node_count() == before + 1
    del holder
    gc.collect()
    assert live_node_count() == before


def test_values_die_with_their_node():
    y = us.sin(us.tensor(np.ones(100)))
    value = weakref.ref(y.eval())
    assert value() is not None
    del y
    assert value() is None


def test_threads_that_build_the_same_recipes_get_the_same_objects():
    x = us.tensor([1.0, 2.0])
    before = live_node_count()
    count, made = 8, []
    barrier = threading.Barrier(count)

    def build():
        barrier.wait()
        nodes = []
        y = x
        for step in range(300):
            y = us.sin(y) * x + float(step % 7)
            nodes.append(y)
        made.append(nodes)

    threads = [threading.Thread(target=build) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == count
    for nodes in zip(*made, strict=True):
        assert len({id(node) for node in nodes}) == 1
    del nodes
    made.clear()
    threads.clear()
    gc.collect()
    # Seven constants may have been alive before.
    assert before <= live_node_count() + 7 and live_node_count() <= before


def test_threads_that_build_and_drop_leave_nothing():
    x = us.tensor([1.0, 2.0])
    (x * 3.25).eval()
    before = live_node_count()

    def churn():
        for _ in range(500):
            us.sin(x * 3.25) + us.cos(x)

    threads = [threading.Thread(target=churn) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert live_node_count() == before


# --- order and walks --------------------------------------------------------------------------------------------------


def test_id_order_is_a_topological_order():
    x, y = us.tensor(1.0), us.tensor(2.0)
    loss = us.sin(x * y) + us.exp(y) * x
    everything = ancestors([loss, loss.grad(x)])
    position = {node.id: i for i, node in enumerate(everything)}
    assert len(position) == len(everything)
    for node in everything:
        assert all(i.id < node.id and position[i.id] < position[node.id] for i in node.inputs)


def test_ancestors_of_several_nodes_come_once_and_can_be_cut():
    x = us.tensor(1.0)
    y = us.sin(x)
    z = us.cos(y)
    assert ancestors([z, y]) == ancestors([z]) == [x, y, z]
    assert ancestors([z], newer_than=y.id) == [z]
    assert ancestors([z], newer_than=z.id) == []


def test_a_long_chain_is_built_walked_and_freed():
    before = live_node_count()
    y = us.tensor(1.0)
    for _ in range(50_000):
        y = us.sin(y)
    assert len(ancestors([y])) == 50_001
    del y
    assert live_node_count() == before


def test_ops_with_several_outputs_are_interned_too():
    op = Op("pair", infer=lambda x: ((x.shape, x.dtype), (x.shape, x.dtype)), kernel=lambda x: (x, -x), multi=True)
    x = us.tensor([1.0, 2.0])
    bundle = _graph.apply_multi(op, x)
    assert _graph.apply_multi(op, x) is bundle
    first, second = parts(bundle)
    assert parts(bundle) == (first, second) and first is not second
    np.testing.assert_array_equal((first - second).eval(), [2.0, 4.0])


# --- names and lines --------------------------------------------------------------------------------------------------

USER_MODULE = """
import unspool as us

def model(x):
    hidden = us.sin(x)
    shifted = (
        hidden
        + 1.0
    )
    return us.sum(shifted * shifted)  # the loss
"""


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "usermodule.py"
    path.write_text(USER_MODULE)
    spec = importlib.util.spec_from_file_location("usermodule", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.model


def test_every_node_knows_the_line_of_user_code_that_made_it(model):
    loss = model(us.tensor([1.0, 2.0]))
    product = loss.inputs[0]
    added = product.inputs[0]
    assert source_of(loss) == "usermodule.py:10: return us.sum(shifted * shifted)  # the loss"
    assert source_of(product).startswith("usermodule.py:10:")
    assert source_of(added) in ("usermodule.py:7: hidden", "usermodule.py:8: + 1.0")
    (hidden,) = [node for node in added.inputs if node.op.name == "sin"]
    assert source_of(hidden) == "usermodule.py:5: hidden = us.sin(x)"


def test_nodes_of_a_gradient_point_to_the_line_of_their_primal(model):
    # A size of its own: what is made of constants alone is shared with whoever made it first.
    x = us.tensor([float(i) for i in range(37)])
    gradient = model(x).grad(x)
    nodes = [n for n in ancestors([gradient]) if any(i.op.name != "constant" for i in n.inputs)]
    made = {source_of(node).split(":")[0] for node in nodes}
    assert made == {"usermodule.py"}


def test_a_line_without_source_text_still_has_a_place():
    space = {"us": us}
    exec(compile("y = us.sin(us.tensor(1.0))", "<typed in>", "exec"), space)
    assert source_of(space["y"]) == "<typed in>:1"


def test_describe_names_op_shape_dtype_and_name():
    x = us.tensor([1.0, 2.0], name="speed")
    assert describe(x) == "tensor 'speed' of shape (2,) and dtype float64"
    assert describe(us.sin(x)) == "sin of shape (2,) and dtype float64"
