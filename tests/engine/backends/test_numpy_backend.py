"""The NumPy backend: interpreted and generated runs give, bit for bit, what the kernels give node by node."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unspool as us
from tests.samples import Sample, all_samples
from unspool._engine.backends import generated, numpy_backend, numpy_rules, numpy_steps
from unspool._engine.backends.buffers import POOL, BufferPool
from unspool._engine.plan import Plan, make_plan
from unspool._fragments.fragment import Captured, capture
from unspool._graph import Node, ancestors
from unspool._ops.leaf import LEAF_OPS
from unspool._ops.op import REGISTRY

SAMPLES = all_samples()


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def node_by_node(nodes: Sequence[Node], known: Mapping[int, Any]) -> list[Any]:
    """Compute nodes with their kernels, one after the other; ``known`` are values by id."""
    values = dict(known)
    for node in ancestors(nodes, until=values.keys()):
        if node.id not in values:
            arguments = [values[operand.id] for operand in node.inputs]
            values[node.id] = node.value if node.op in LEAF_OPS else node.op.kernel(*arguments, **node.attributes)
    return [values[node.id] for node in nodes]


def planned(inputs: Sequence[us.Tensor], outputs: Sequence[us.Tensor]) -> tuple[Plan, Captured, list[Any]]:
    """Return the plan that makes outputs from inputs, and the arrays it runs on."""
    captured = capture(inputs, outputs)
    arrays = [np.asarray(value) for value in node_by_node(captured.inputs, {})]
    return make_plan(captured.fragment, tuple(a.shape for a in arrays)), captured, arrays


def tensors_in(result: Any) -> list[us.Tensor]:
    return [result] if isinstance(result, us.Tensor) else [t for part in result for t in tensors_in(part)]


def assert_same(got: Any, expected: Any) -> None:
    expected = np.asarray(expected)
    assert type(got) is np.ndarray
    assert got.shape == expected.shape
    assert got.dtype == expected.dtype
    if expected.dtype.kind == "c" and expected.ndim == 0:
        # NumPy rounds some operations on one complex number in two ways, by whether it is a scalar or an array.
        np.testing.assert_allclose(got, expected, rtol=8 * np.finfo(expected.dtype).eps)
    else:
        assert got.tobytes() == expected.tobytes()


def assert_runs_as_node_by_node(inputs: Sequence[us.Tensor], outputs: Sequence[us.Tensor]) -> None:
    plan, captured, arrays = planned(inputs, outputs)
    copies = [a.copy() for a in arrays]
    for layout in (np.asarray, _reversed_in_memory, _in_columns):
        laid_out = [layout(a) for a in arrays]
        by_id = {node.id: a for node, a in zip(captured.inputs, laid_out, strict=True)}
        expected = node_by_node(outputs, by_id)
        for _ in range(2):  # the very first run is interpreted, all others run generated code
            for got, wanted in zip(plan.run(*laid_out), expected, strict=True):
                assert_same(got, wanted)
    for array, copy in zip(arrays, copies, strict=True):
        assert array.tobytes() == copy.tobytes()


def _reversed_in_memory(array: Any) -> Any:
    back = (slice(None, None, -1),) * array.ndim
    return np.ascontiguousarray(array[back])[back] if array.ndim else array


def _in_columns(array: Any) -> Any:
    return np.array(array, order="F")


@contextmanager
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Send all results but the smallest through the pool."""
    with monkeypatch.context() as patch:
        patch.setattr(numpy_steps, "LARGE", 32)
        yield


# --- every op --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", sorted({sample.op for sample in SAMPLES}))
@pytest.mark.parametrize("size", ["small", "large"])
def test_a_plan_gives_what_the_kernels_give_for_every_op(op: str, size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for sample in [s for s in SAMPLES if s.op == op][:12]:
        inputs = [us.tensor(a) for a in sample.args]
        outputs = tensors_in(sample.function(*inputs))
        if size == "small":
            assert_runs_as_node_by_node(inputs, outputs)
        else:
            with everything_is_large(monkeypatch):
                assert_runs_as_node_by_node(inputs, outputs)


@pytest.mark.parametrize("op", sorted({sample.op for sample in SAMPLES if sample.order}))
@pytest.mark.parametrize("size", ["small", "large"])
def test_a_plan_gives_what_the_kernels_give_for_gradients(op: str, size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for sample in [s for s in SAMPLES if s.op == op and s.order][:3]:
        inputs = [us.tensor(a) for a in sample.args]
        outputs = [*tensors_in(sample.function(*inputs)), *_gradients(sample, inputs)]
        if size == "small":
            assert_runs_as_node_by_node(inputs, outputs)
        else:
            with everything_is_large(monkeypatch):
                assert_runs_as_node_by_node(inputs, outputs)


def _gradients(sample: Sample, inputs: Sequence[us.Tensor]) -> list[us.Tensor]:
    def loss(*xs: us.Tensor) -> us.Tensor:
        return us.sum(us.real(tensors_in(sample.function(*xs))[0]) ** 2)

    return tensors_in(us.grad(loss, argnums=tuple(range(len(inputs))))(*inputs))


# --- random programs -------------------------------------------------------------------------------------------------

UNARY = [
    lambda x: -x,
    lambda x: us.tanh(x),
    lambda x: x.T,
    lambda x: x[::-1],
    lambda x: x * x,
    lambda x: us.sum(x, axis=0, keepdims=True),
    lambda x: us.sum(x) * x,
    lambda x: x / us.linalg.norm(x),
    lambda x: us.where(x > 0, x, 0.0),
    lambda x: x.at[0].set(1.0),
    lambda x: us.reshape(us.reshape(x, (-1,)), x.shape),
    lambda x: us.stop_gradient(x),
]
BINARY = [
    lambda x, y: x + y,
    lambda x, y: x - y,
    lambda x, y: x * y,
    lambda x, y: x / (1.5 + y * y),
    lambda x, y: x @ us.broadcast_to(y, (4, 4)),
    lambda x, y: us.broadcast_to(x, (4, 4)).T @ us.broadcast_to(y, (4, 4)),
    lambda x, y: us.maximum(x, y),
]
STEPS = st.lists(
    st.tuples(st.integers(0, len(UNARY) + len(BINARY) - 1), st.integers(0, 99), st.integers(0, 99)),
    min_size=1,
    max_size=14,
)


@settings(max_examples=300)
@given(steps=STEPS, chosen=st.lists(st.integers(0, 99), max_size=3), large=st.booleans())
def test_random_programs_run_as_node_by_node(steps: Any, chosen: list[int], large: bool) -> None:
    rng = np.random.default_rng(4)
    inputs = [us.tensor(rng.normal(size=(4, 4))) for _ in range(3)]
    values = list(inputs)
    for which, i, j in steps:
        x, y = values[-1 - i % min(4, len(values))], values[j % len(values)]
        values.append(UNARY[which](x) if which < len(UNARY) else BINARY[which - len(UNARY)](x, y))
    outputs = list(dict.fromkeys([values[-1], *[values[i % len(values)] for i in chosen]]))
    with pytest.MonkeyPatch.context() as patch:
        if large:
            patch.setattr(numpy_steps, "LARGE", 32)
        assert_runs_as_node_by_node(inputs, outputs)


# --- single ops in all their forms -----------------------------------------------------------------------------------


@pytest.mark.parametrize("subscripts", ["ab,bc->ac", "ba,bc->ac", "ab,cb->ac", "ba,cb->ca", "ab,bc->ca", "ab,b->a"])
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("size", [3, 160])
def test_products_of_transposed_matrices_keep_their_bits(subscripts: str, turned: Any, size: int) -> None:
    rng = np.random.default_rng(1)
    vector = subscripts.endswith("->a")
    x, y = us.tensor(rng.normal(size=(size, size))), us.tensor(rng.normal(size=(size,) if vector else (size, size)))
    product = us.einsum(subscripts, x.T if turned[0] else x, y.T if turned[1] and not vector else y)
    assert_runs_as_node_by_node([x, y], [product])


@pytest.mark.parametrize("subscripts", ["ab,bc->ac", "ba,bc->ac", "ab,cb->ac", "ba,cb->ca", "ab,bc->ca", "cb,ab->ac"])
@pytest.mark.parametrize("sizes", [(2500, 14, 8), (200, 300, 6), (8, 14, 2500)], ids=str)
@pytest.mark.parametrize("large", [False, True])
def test_thin_products_keep_their_bits(
    subscripts: str, sizes: tuple[int, ...], large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        monkeypatch.setattr(numpy_steps, "LARGE", 32)
    rng = np.random.default_rng(1)
    size = dict(zip("abc", sizes, strict=True))
    x, y = (us.tensor(rng.normal(size=[size[label] for label in labels])) for labels in subscripts[:5].split(","))
    product = us.einsum(subscripts, x, y)
    halves = us.reshape(product, (2, product.shape[0] // 2, product.shape[1]))
    assert_runs_as_node_by_node([x, y], [product, us.sum(product * product, axis=0), us.sum(halves, axis=1)])


def test_the_array_behind_a_thin_product_is_used_again() -> None:
    rng = np.random.default_rng(1)
    x, y = us.tensor(rng.normal(size=(20000, 20))), us.tensor(rng.normal(size=(20, 8)))
    plan, _, arrays = planned([x, y], [us.sum(x @ y)])
    plan.run(*arrays), plan.run(*arrays)
    held = POOL.nbytes
    assert held >= 20000 * 8 * 8
    plan.run(*arrays)
    assert POOL.nbytes == held


CONTRACTIONS = [
    *("a,b->ab", "a,b->ba", "ab,a->ab"),  # nothing is summed
    *("abc,cd->abd", "abc,cbd->da", "abc,abc->", "abc,bc->a", "ab,cab->c"),  # as a product of matrices or vectors
    *("abc,cd->dab", "ab,cbd->cad", "abcd,becf->adef", "abcd,bd->ca"),  # with other orders of axes
    *("abc,bd->adc", "db,abc->acd", "abcd,cbe->aed", "eabf,bd->eadf"),  # of a stack with one matrix
    *("eab,ebc->eac", "abe,ebc->cae", "eabc,ecbd->ead", "ea,eab->eb", "eab,eb->ea", "ae,ea->e", "eab,eab->e"),  # stacks
]


@pytest.mark.parametrize("subscripts", CONTRACTIONS)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("size", [3, 9])
@pytest.mark.parametrize("large", [False, True])
def test_other_contractions_keep_their_bits(
    subscripts: str, turned: bool, size: int, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        monkeypatch.setattr(numpy_steps, "LARGE", 32)
    rng = np.random.default_rng(2)
    given, views = [], []
    for label in subscripts.partition("->")[0].split(","):
        shape = [size + "abcdef".index(s) for s in label]
        given.append(us.tensor(rng.normal(size=shape[::-1] if turned else shape)))
        views.append(us.permute_dims(given[-1], range(len(label))[::-1]) if turned else given[-1])
    assert_runs_as_node_by_node(given, [us.einsum(subscripts, *views)])


@pytest.mark.parametrize("scale", [1.0, 1e200, 1e-200, 0.0, np.inf, np.nan])
@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128"])
def test_norms_are_those_of_the_kernel_at_both_ends_of_the_range(scale: float, dtype: str) -> None:
    x = us.tensor((np.array([3.0, -4.0, 1.0]) * scale).astype(dtype))
    norm = us.linalg.norm(x)
    assert_runs_as_node_by_node([x], [norm, x / norm, norm.grad(x)])


def test_a_result_without_axes_is_an_array() -> None:
    x = us.tensor([1.0, 2.0])
    plan, _, arrays = planned([x], [us.sum(x), x[0], us.linalg.norm(x), x @ x])
    for _ in range(3):
        assert [type(value) for value in plan.run(*arrays)] == [np.ndarray] * 4


def test_a_small_part_of_something_large_does_not_hold_it_alive() -> None:
    x = us.tensor(np.arange(10_000.0))
    plan, _, arrays = planned([x], [x[:3], (x + 1.0)[5:8], us.reshape((x * 2.0)[:4], (2, 2))])
    for _ in range(3):
        for value in plan.run(*arrays):
            assert value.base is None or value.base.nbytes <= 2 * value.nbytes


def test_the_outputs_may_be_inputs_and_constants() -> None:
    x = us.tensor([1.0, 2.0])
    plan, _, arrays = planned([x], [x, us.constant([3.0]) * 1.0, x])
    for _ in range(3):
        first, constant, again = plan.run(*arrays)
        assert first is arrays[0] and again is arrays[0]
        np.testing.assert_array_equal(constant, [3.0])


# --- what depends on no input ----------------------------------------------------------------------------------------


def test_what_depends_on_no_input_is_computed_once() -> None:
    calls = []
    counted = us.op("counted", kernel=lambda x: (calls.append(1), x * 2.0)[1], replace=True)
    plan, _, arrays = _with_symbolic_identity(counted)
    for _ in range(6):
        (result,) = plan.run(*arrays)
    np.testing.assert_array_equal(result, np.ones((3, 3)) + 2.0 * np.eye(3))
    assert len(calls) == 2  # the interpreted run, and once for all others


def _with_symbolic_identity(function: Any) -> tuple[Plan, Captured, list[Any]]:
    n = us.dims("n")
    x = us.placeholder((n, n))
    captured = capture([x], [x + function(us.eye(n))])
    return make_plan(captured.fragment, ((3, 3),)), captured, [np.ones((3, 3))]


def test_a_shared_constant_cannot_be_written_to() -> None:
    n = us.dims("n")
    x = us.placeholder((n,))
    plan = make_plan(capture([x], [us.eye(n), x]).fragment, ((3,),))
    for _ in range(2):
        plan.run(np.ones(3))
    identity, _ = plan.run(np.ones(3))
    assert not identity.flags.writeable


def test_what_is_large_is_not_held_although_it_depends_on_no_input() -> None:
    n = us.dims("n")
    x = us.placeholder((n,))
    plan = make_plan(capture([x], [us.eye(n) @ x]).fragment, ((600,),))
    assert [step.once for step in plan.instructions if step.op.name == "eye"] == [False]
    for _ in range(3):
        np.testing.assert_array_equal(plan.run(np.arange(600.0))[0], np.arange(600.0))


# --- memory ----------------------------------------------------------------------------------------------------------


def _large_program() -> tuple[list[us.Tensor], list[us.Tensor]]:
    rng = np.random.default_rng(3)
    x, y = (us.tensor(rng.normal(size=(160, 160))) for _ in range(2))
    product = (x * y + x) @ y
    row = us.sum(product * product - x, axis=1)
    return [x, y], [us.sqrt(product * product + 1.0) * y - x, row, us.exp(-us.abs(product)) + product.T]


def test_large_results_keep_their_bits_whatever_the_layout_of_the_inputs() -> None:
    assert_runs_as_node_by_node(*_large_program())


@pytest.mark.parametrize("subscripts", ["abc,cd->abd", "abc,bd->adc"])
def test_large_contractions_are_written_into_arrays_that_nobody_needs(subscripts: str) -> None:
    rng = np.random.default_rng(4)
    x, y = us.tensor(rng.normal(size=(52, 52, 52))), us.tensor(rng.normal(size=(52, 52)))
    plan, _, arrays = planned([x, y], [us.sum(us.einsum(subscripts, x, y))])
    plan.prepare()
    POOL.clear()
    for _ in range(3):
        plan.run(*arrays)
        assert POOL.nbytes == 8 * 52**3


def test_results_of_an_earlier_run_are_never_written_to() -> None:
    plan, _, arrays = planned(*_large_program())
    rng = np.random.default_rng(5)
    kept = []
    for _ in range(6):
        results = plan.run(*[rng.normal(size=a.shape) for a in arrays])
        kept.append((results, [r.copy() for r in results]))
    for results, copies in kept:
        for result, copy in zip(results, copies, strict=True):
            assert result.tobytes() == copy.tobytes()


def test_read_only_inputs_are_enough() -> None:
    plan, _, arrays = planned(*_large_program())
    for array in arrays:
        array.setflags(write=False)
    first, *others = [plan.run(*arrays) for _ in range(4)]
    for results in others:
        for got, expected in zip(results, first, strict=True):
            assert_same(got, expected)


def test_an_array_that_a_kernel_has_kept_is_not_written_to() -> None:
    seen = []

    def keep(x: Any) -> Any:
        seen.append((x, x.copy()))
        return x

    keeping = us.op("keeping", kernel=keep, replace=True)
    x = us.tensor(np.random.default_rng(6).normal(size=(160, 160)))
    plan, _, arrays = planned([x], [us.sum((keeping(x * 2.0) + 1.0) * 3.0 - x)])
    for _ in range(4):
        plan.run(*arrays)
    for array, copy in seen:
        assert array.tobytes() == copy.tobytes()


def test_temporaries_are_gone_after_their_last_use() -> None:
    x = us.tensor(np.ones(20_000))
    y = x
    for _ in range(60):
        y = us.tanh(y * x)
    plan, _, arrays = planned([x], [us.sum(y)])
    for _ in range(3):
        plan.run(*arrays)
    numpy_backend.clear_caches()
    tracemalloc.start()
    try:
        plan.run(*arrays)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * arrays[0].nbytes


def test_the_pool_is_bounded_and_can_be_cleared() -> None:
    pool = BufferPool(limit=10_000)
    for size in range(1, 300):
        array = np.empty(size)
        pool.give(array)
        del array
        assert pool.nbytes <= 10_000
    assert pool.nbytes > 5_000
    pool.clear()
    assert pool.nbytes == 0


def test_the_pool_takes_only_what_nobody_else_can_see() -> None:
    pool = BufferPool()
    whole = np.empty(1000)
    part = whole[:10]
    pool.give(part)  # a view
    pool.give(whole)  # seen through the view
    assert pool.nbytes == 0
    del part
    shared = [whole]
    pool.give(whole)
    assert pool.nbytes == 0
    shared.clear()
    address = whole.ctypes.data
    pool.give(whole)
    del whole
    assert pool.nbytes == 8000
    assert pool.take((1000,), np.dtype("float64")).ctypes.data == address
    assert pool.nbytes == 0


def test_an_operand_is_overwritten_only_if_nobody_else_can_see_it() -> None:
    pool = BufferPool()
    one = np.ones(4)
    shape, dtype, first = (4,), np.dtype("float64"), ((0, 1),)
    x = np.arange(4.0)
    address = x.ctypes.data
    y = pool.fill(np.add, shape, dtype, first, x, one)
    assert y.ctypes.data == address
    del x
    view = y[1:]
    z = pool.fill(np.add, shape, dtype, first, y, one)
    np.testing.assert_array_equal(y, [1.0, 2.0, 3.0, 4.0])
    np.testing.assert_array_equal(view, [2.0, 3.0, 4.0])
    np.testing.assert_array_equal(z, [2.0, 3.0, 4.0, 5.0])
    twice = pool.fill(np.multiply, shape, dtype, ((0, 2),), z, z)
    assert twice is z
    frozen = np.arange(4.0)
    frozen.setflags(write=False)
    pool.fill(np.add, shape, dtype, first, frozen, one)
    np.testing.assert_array_equal(frozen, np.arange(4.0))


# --- running ---------------------------------------------------------------------------------------------------------


def test_an_error_in_a_kernel_comes_out_and_the_plan_stays_usable() -> None:
    x = us.tensor(2.0 * np.eye(3))
    plan, _, arrays = planned([x], [us.linalg.cholesky(x + 0.0) * 2.0])
    expected = np.linalg.cholesky(arrays[0]) * 2.0
    for _ in range(3):
        with pytest.raises(Exception, match="positive"):
            plan.run(-arrays[0])
        np.testing.assert_array_equal(plan.run(*arrays)[0], expected)


def test_two_threads_may_run_one_plan() -> None:
    plan, _, arrays = planned(*_large_program())
    rng = np.random.default_rng(7)
    work = [[rng.normal(size=a.shape) for a in arrays] for _ in range(8)]
    expected = [[value.copy() for value in plan.run(*operands)] for operands in work]
    plan = make_plan(plan.fragment, plan.input_shapes)
    failures: list[str] = []

    def run() -> None:
        for _ in range(4):
            for operands, wanted in zip(work, expected, strict=True):
                for got, value in zip(plan.run(*operands), wanted, strict=True):
                    if got.tobytes() != value.tobytes():
                        failures.append("a result differs")

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_plans_of_one_fragment_are_compiled_once() -> None:
    x = us.tensor(np.ones(3))
    fragment = capture([x], [us.sum(x * x) * x]).fragment
    plans = [make_plan(fragment, ((n,),), numpy_backend.NUMPY) for n in (3, 5)]
    compiled = []

    def counting(*arguments: Any) -> Any:
        compiled.append(arguments)
        return compile(*arguments)

    numpy_backend.clear_caches()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generated, "compile", counting, raising=False)
        for plan in plans:
            plan.prepare()
    assert len(compiled) == 1
    assert plans[0].source == plans[1].source


def test_every_rule_belongs_to_an_op() -> None:
    assert set(numpy_rules.RULES) <= set(REGISTRY)
