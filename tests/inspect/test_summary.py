"""Graph sizes and summaries: counted by hand on small graphs, linear on large ones."""

from __future__ import annotations

import numpy as np
import pytest

import unspool as us
from unspool import _graph
from unspool._ops.op import Op, parts
from unspool.errors import StructureError


def test_graph_size_counts_distinct_nodes():
    x = us.tensor([1.0, 2.0])
    y = x * x
    assert us.graph_size(x) == 1
    assert us.graph_size(y) == 2
    assert us.graph_size(y + x) == 3
    assert us.graph_size(y + x, y, us.sin(x)) == 4
    assert us.graph_size() == 0


def test_the_graph_of_a_loop_grows_linearly():
    x = us.tensor([1.0, 2.0])
    sizes = []
    for steps in (10, 20, 30):
        y = x
        for _ in range(steps):
            y = us.sin(y) * y + x
        sizes.append(us.graph_size(y))
    assert sizes == [31, 61, 91]


def test_summary_counts_ops_leaves_depth_and_bytes():
    x = us.tensor(np.ones((2, 3)), name="x")
    w = us.tensor(np.ones(3, dtype=np.float32), name="w")
    y = us.sum(us.sin(x * w) + x, axis=0)
    found = us.summary(y)
    assert found.nodes == us.graph_size(y) == 6
    assert found.leaves == 2
    assert found.depth == 4
    assert found.by_op == {"tensor": 2, "add": 1, "multiply": 1, "sin": 1, "sum": 1}
    assert next(iter(found.by_op)) == "tensor"
    assert found.bytes == 48 + 12 + 3 * 48 + 24
    assert found.shared == 0
    assert (found.held, found.held_bytes) == (2, 48 + 12)


def test_depth_is_the_longest_path_not_the_first():
    x = us.tensor(1.0)
    long = us.sin(us.sin(us.sin(x)))
    assert us.summary(x).depth == 0
    assert us.summary(x + long).depth == 4
    assert us.summary(long + x, us.sin(x)).depth == 4


def test_shared_nodes_are_those_that_two_of_the_tensors_need():
    x, y = us.tensor(1.0), us.tensor(2.0)
    both = us.sin(x)
    a, b, c = both + y, both * 2.0, us.cos(us.exp(x))
    assert us.summary(a).shared == 0
    assert us.summary(a, b).shared == 2  # x and sin(x)
    assert us.summary(a, c).shared == 1  # x
    assert us.summary(a, both).shared == 2  # sin(x) is one of the tensors itself
    assert us.summary(a, y).shared == 1
    assert us.summary(us.cos(y), c).shared == 0


@pytest.mark.parametrize("count", [2, 3, 4])
def test_shared_agrees_with_counting_each_tensor_on_its_own(count):
    rng = np.random.default_rng(count)
    nodes = [us.tensor(1.0), us.tensor(2.0), us.tensor(3.0)]
    for _ in range(40):
        i, j = rng.integers(0, len(nodes), 2)
        nodes.append(us.sin(nodes[i]) if rng.random() < 0.3 else nodes[i] * nodes[j])
    tensors = list({t.id: t for t in nodes[-count:]}.values())
    each = [{n.id for n in _graph.ancestors([t])} for t in tensors]
    expected = {i for one in each for i in one if sum(i in other for other in each) > 1}
    assert us.summary(*tensors).shared == len(expected)


def test_bytes_may_be_symbolic():
    n = us.dims("n")
    x = us.placeholder((n, 3), dtype="complex64")
    found = us.summary(us.real(x) * 2.0)
    # x is complex64; its real part and the product are float32; 2.0 is a float32 constant.
    assert found.bytes == 24 * n + 12 * n + 12 * n + 4
    assert "48*n + 4 B" in str(found)


def test_held_values_are_those_that_were_evaluated_and_views_count_once():
    x = us.tensor(np.ones(10))
    y = us.reshape(x * 2.0, (2, 5))
    before = us.summary(y)
    assert before.held == 2  # the data of x and the constant
    y.eval()
    after = us.summary(y)
    assert after.held == 3
    assert after.held_bytes == before.held_bytes + 80
    view = us.reshape(x, (5, 2))
    view.eval()
    assert us.summary(view).held_bytes == 80


def test_an_op_with_several_outputs_counts_its_arrays_once():
    op = Op("pair", infer=lambda x: ((x.shape, x.dtype), ((), x.dtype)), kernel=lambda x: (x, x.sum()), multi=True)
    a, b = parts(_graph.apply_multi(op, us.tensor([1.0, 2.0])))
    found = us.summary(a, b)
    assert found.by_op == {"part": 2, "pair": 1, "tensor": 1}
    assert found.bytes == 16 + 16 + 8
    us.eval(a, b)
    assert us.summary(a, b).held_bytes >= 16


def test_nothing_is_computed():
    y = us.sin(us.tensor([1.0, 2.0]))
    with us.debug.count_kernels() as counts:
        str(us.summary(y, y * 2.0))
        us.graph_size(y)
    assert counts.total == 0


def test_the_table_is_aligned_and_readable():
    x = us.tensor(np.ones(2000))
    text = str(us.summary(us.sum(x * x)))
    lines = text.splitlines()
    assert len({len(line) for line in lines}) == 1
    assert any(line.split() == ["bytes", "if", "all", "kept", "32", "kB"] for line in lines)
    assert any(line.split() == ["multiply", "1"] for line in lines)


@pytest.mark.parametrize(("size", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2 * 10**9, "2 GB")])
def test_bytes_are_printed_with_a_unit(size, text):
    from unspool._inspect.summary import _bytes_text

    assert _bytes_text(size) == text


@pytest.mark.parametrize("wrong", [1.0, [us.tensor(1.0)], "x", np.ones(2)], ids=str)
def test_only_tensors_are_accepted(wrong):
    with pytest.raises(StructureError, match="one per argument"):
        us.summary(wrong)
    with pytest.raises(StructureError, match="one per argument"):
        us.graph_size(us.tensor(1.0), wrong)


def test_long_chains_are_walked_without_recursion():
    y = us.tensor(1.0)
    for _ in range(20_000):
        y = us.sin(y)
    found = us.summary(y)
    assert found.depth == 20_000 and found.nodes == 20_001
