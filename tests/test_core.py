"""The nodes and the table in C: what it refuses, what it counts, and that nothing is lost or found too late."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import unspool as us
from unspool import _core, _graph
from unspool._engine.interpreter import ValueDroppedError, collect, run
from unspool._fragments.call import LOST, Call
from unspool._graph import NO_PARAMS, Bundle
from unspool._ops.elementwise import ADD, EXP
from unspool._ops.op import PART, Op
from unspool.errors import KernelError, ShapeError


@pytest.fixture(autouse=True)
def _no_garbage() -> None:
    """Nodes that other tests have left in cycles must not leave the table while it is counted."""
    gc.collect()


def declared(name: str, **options: Any) -> Op:
    """Return an op of one tensor that is not registered."""
    return Op(name, infer=lambda x, **params: (x.shape, x.dtype), kernel=lambda x, **params: x, **options)


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [us.Tensor, Bundle, Call, _core.Node, _core.TensorBase])
def test_nodes_are_not_made_by_calling_their_class(cls):
    with pytest.raises(TypeError, match=r"unspool\.tensor"):
        cls([1.0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: _core.apply(), "an op and its inputs"),
        (lambda x: _core.apply(x, x), "an op and its inputs"),
        (lambda x: _core.apply(EXP, 1.0), "<op exp> takes tensors, got 1.0"),
        (lambda x: _core.unary(EXP), "unary takes 2 arguments, got 1"),
        (lambda x: _core.unary(x, x), "expected an op"),
        (lambda x: _core.unary_inexact(EXP), "unary_inexact takes 2 arguments, got 1"),
        (lambda x: _core.unary_inexact(x, x), "expected an op"),
        (lambda x: _core.record(ADD, x, None), "<op add> takes tensors, got None"),
        (lambda x: _core.record(None, x, x), "expected an op, got None"),
        (lambda x: _core.record(ADD, x), "record takes 3 arguments, got 2"),
        (lambda x: _core.all_hold(x, (), (), ()), "all_hold takes 5 arguments, got 4"),
        (lambda x: _core.all_hold(x, [], (), (), ()), "places come in tuples"),
        (lambda x: _core.all_hold(x, (({}, "w"),), (), (), ()), "a place is a tuple of 3 things"),
        (lambda x: _core.all_hold(x, (), ((len, None, None, None),), (), ()), "only functions have defaults"),
        (lambda x: _core.all_hold(x, (), (), ((x, x),), ()), "only cells hold variables"),
        (lambda x: _core.plain_index(x), "plain_index takes 2 arguments, got 1"),
        (lambda x: _core.plain_index([x], 0), "expected a node"),
        (lambda x: _core.find(EXP, [x], ()), "inputs of <op exp> as a tuple"),
        (lambda x: _core.find("exp", (x,), ()), "expected an op, got 'exp'"),
        (lambda x: _core.intern(EXP, (x, 1), NO_PARAMS, (), x.dtype, ()), "takes tensors, got 1"),
        (lambda x: _core.intern(EXP, (x,), NO_PARAMS, (), x.dtype, []), "unhashable"),
        (lambda x: _core.new(int, EXP, (x,), NO_PARAMS, (), x.dtype, (), None, 0), "a class of nodes"),
        (lambda x: _core.enter(1), "expected a node"),
        (lambda x: _core.leave(1), "expected a node"),
        (lambda x: _core.fold(None, (x,), (), 1, 1, (), (), []), "origins and indices as tuples"),
        (lambda x: _core.fold(None, [x], (), 1, 1, (), (), []), "inputs of <op call> as a tuple"),
        (lambda x: _core.fold(None, (x,), ((None, 0),), 1, 1, (), (), []), "a call has a plan"),
        (lambda x: _core.piece(None, (), (), ()), "a piece has a site"),
        (lambda x: _core.measure_piece(x), "expected a piece"),
        (lambda x: _core.QueueBase().add_loose(x), "expected a piece"),
        (lambda x: _core.QueueBase().place(x), "expected a piece"),
        (lambda x: _core.QueueBase().enter(x), "expected a piece"),
        (lambda x: _core.QueueBase().fold_one(x), "expected a piece"),
        (lambda x: _core.QueueBase().will_fold(x), "expected a piece that was placed"),
        (lambda x: _core.line_key([]), "expected targets"),
        (lambda x: _core.find_site({}, [1]), "expected a node, got 1"),
        (lambda x: _core.find_site([], [x]), "must be dict"),
        (lambda x: _core.value_now(1), "expected a node, got 1"),
        (lambda x: _core.reduce(x, x, None, False), "expected an op"),
        (lambda x: _core.runner({}, None, None, None, None, None), "LedgerBase"),
        (lambda x: _core.bind(nonsense=1), "nothing called 'nonsense'"),
        (lambda x: _core.bind_operator("power", ADD, max), "no operator power"),
    ],
)
def test_what_makes_no_sense_is_refused(call, message):
    with pytest.raises(TypeError, match=message):
        call(us.tensor([1.0, 2.0]))


def test_what_a_node_is_cannot_be_changed():
    x = us.tensor([1.0, 2.0])
    for name in ("op", "inputs", "params", "shape", "dtype", "id", "key", "code"):
        with pytest.raises(AttributeError):
            setattr(x, name, None)
        with pytest.raises((AttributeError, TypeError)):
            delattr(x, name)


def test_an_error_inside_a_rule_reaches_the_caller_and_leaves_no_node():
    x = us.tensor([1.0, 2.0])
    before = _core.count()

    def fail(x: Any) -> Any:
        raise ShapeError("no")

    with pytest.raises(ShapeError, match="no"):
        _core.apply(declared("fails in canonical", canonical=fail), x)
    op = declared("fails in infer")
    op.infer = fail
    with pytest.raises(ShapeError, match="no"):
        _core.apply(op, x)
    op.infer = lambda x: None
    with pytest.raises(TypeError, match="should infer a shape and a dtype, got None"):
        _core.apply(op, x)
    with pytest.raises(TypeError, match="add of a tensor of dtype float64 and str 'text'"):
        x + "text"  # type: ignore[operator]
    assert _core.count() == before


# --- the table --------------------------------------------------------------------------------------------------------


def test_the_table_grows_and_shrinks_and_loses_nothing():
    x = us.tensor([1.0, 2.0])
    before = _core.count()
    op = declared("counted")
    made = [_core.apply(op, x, step=step) for step in range(20_000)]
    assert _core.count() == before + 20_000
    assert all(_core.apply(op, x, step=step) is node for step, node in enumerate(made))
    del made[1::2]
    assert _core.count() == before + 10_000
    assert all(_core.find(op, (x,), (("step", 2 * i),)) is node for i, node in enumerate(made))
    assert _core.find(op, (x,), (("step", 1),)) is None
    made.clear()
    assert _core.count() == before


def test_nodes_lists_what_is_in_the_table():
    x = us.tensor([1.0, 2.0])
    y = us.exp(x)
    listed = {id(node) for node in _core.nodes()}
    assert id(y) in listed and id(x) not in listed  # a leaf is not shared


class Meddling:
    """A parameter that equals none of its kind, and changes the table whenever it is compared."""

    def __init__(self) -> None:
        self.dropped: list[Any] = []
        self.made: list[Any] = []

    def __hash__(self) -> int:
        return 7

    def __eq__(self, other: object) -> bool:
        self.dropped.clear()
        self.made.append(us.exp(us.tensor(1.0)))
        return False


def test_a_comparison_may_change_the_table_while_it_is_searched():
    x = us.tensor([1.0, 2.0])
    before = _core.count()
    op = declared("meddled with")
    parameters = [Meddling() for _ in range(40)]
    nodes = [_core.apply(op, x, by=parameter) for parameter in parameters]
    for i, parameter in enumerate(parameters[:20]):
        parameter.dropped.append(nodes[20 + i])
    del nodes[20:]
    assert all(_core.apply(op, x, by=by) is node for by, node in zip(parameters, nodes, strict=False))
    assert _core.find(op, (x,), (("by", Meddling()),)) is None
    assert all(parameter.made for parameter in parameters[:20])  # they were compared
    assert not any(parameter.dropped for parameter in parameters)  # and dropped what they held
    nodes.clear()
    for parameter in parameters:
        parameter.made.clear()
        parameter.dropped.clear()
    assert _core.count() == before


class Swelling:
    """A parameter that equals none of its kind. When it is compared the table grows, and shrinks again."""

    def __init__(self, compared: list[Swelling]) -> None:
        self.compared = compared

    def __hash__(self) -> int:
        return 7

    def __eq__(self, other: object) -> bool:
        self.compared.append(self)
        if len(self.compared) > 100:
            raise AssertionError("the search does not end")
        [us.exp(us.tensor(1.0)) for _ in range(_core.count() + 3000)]
        return False


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_search_ends_though_every_comparison_resizes_the_table(count):
    x = us.tensor([1.0, 2.0])
    op = declared("swollen")
    compared: list[Swelling] = []
    parameters = [Swelling(compared) for _ in range(count)]
    nodes = [_core.apply(op, x, by=parameter) for parameter in parameters]
    assert len(set(nodes)) == count
    compared.clear()
    assert _core.find(op, (x,), (("by", Swelling(compared)),)) is None
    assert sorted(map(id, compared)) == sorted(map(id, parameters))  # each one once


def test_a_node_in_a_cycle_with_its_name_is_collected():
    class Name(str):
        tensor: us.Tensor

    name, x = Name("x"), us.tensor([1.0, 2.0])
    x._name = name
    name.tensor = x
    ends = weakref.ref(name), weakref.ref(x)
    del name, x
    gc.collect()
    assert [end() for end in ends] == [None, None]


def test_a_key_that_cannot_be_compared_or_hashed_says_so():
    class Stubborn:
        def __hash__(self) -> int:
            return 11

        def __eq__(self, other: object) -> bool:
            raise ShapeError("not today")

    x = us.tensor([1.0, 2.0])
    op = declared("stubborn")
    node = _core.apply(op, x, by=Stubborn())
    before = _core.count()
    with pytest.raises(ShapeError, match="not today"):
        _core.apply(op, x, by=Stubborn())
    with pytest.raises(TypeError, match="unhashable"):
        _core.apply(op, x, by=[])
    assert _core.count() == before and node.op is op


def test_what_stands_under_a_recipe_first_stays():
    x = us.tensor([1.0, 2.0])
    standing = us.exp(x)
    rival = _core.new(us.Tensor, EXP, (x,), NO_PARAMS, x.shape, x.dtype, (), standing.code, standing.lasti)
    assert _core.enter(rival) is standing
    _core.leave(standing)
    other = us.exp(x)
    assert other is not standing and _core.enter(standing) is other


def test_a_node_that_left_is_not_found_and_dies_in_peace():
    x = us.tensor([1.0, 2.0])
    before = _core.count()
    node = us.exp(x)
    _core.leave(node)
    _core.leave(node)
    assert _core.count() == before
    again = us.exp(x)
    assert again is not node
    del node
    assert _core.find(EXP, (x,), ()) is again


# --- operands that commute --------------------------------------------------------------------------------------------


def test_operands_that_commute_are_found_in_either_order_and_kept_as_written():
    x, y = us.tensor([1.0, 2.0]), us.tensor([3.0, 4.0])
    product, total = y * x, y + x
    assert product.inputs == (y, x) and total.inputs == (y, x)
    assert x * y is product and x + y is total
    assert _core.apply(ADD, x, y) is total and _core.record(ADD, x, y) is total
    assert _core.find(ADD, (x, y), ()) is total
    del total
    assert (x + y).inputs == (x, y)


def test_operands_that_do_not_commute_stay_apart_though_their_hashes_are_equal():
    x, y = us.tensor([1.0, 2.0]), us.tensor([3.0, 4.0])
    assert x - y is not y - x and x / y is not y / x
    z, w = us.tensor([1.0j]), us.tensor([2.0j])
    assert z * w is not w * z and z + w is w + z
    number = us.tensor([2])
    assert number * number is number * number and (x - x).inputs == (x, x)


def test_numbers_stand_where_they_are_written_in_every_step_of_a_loop():
    x = us.tensor([1.0, 2.0])
    places = []
    for _ in range(3):
        x = x - 0.01 * (x * x)
        places.append([operand.op.name for operand in x.inputs[1].inputs])
    assert places == [["constant", "multiply"]] * 3


# --- what ops infer ---------------------------------------------------------------------------------------------------


def test_an_op_is_asked_once_for_each_combination_of_shapes_dtypes_and_parameters():
    asked: list[Any] = []

    def infer(x: Any, **params: Any) -> Any:
        asked.append((x.shape, x.dtype, *params.values()))
        return x.shape, x.dtype

    op = Op("asked", infer=infer, kernel=lambda x, **params: x)
    single, double = us.tensor([1.0], dtype="float32"), us.tensor([1.0])
    for x in (single, double, us.tensor([2.0]), us.tensor([1.0, 2.0])):
        for by in (1, (2, "a"), None, 1.5):
            y = _core.apply(op, x, by=by)
            assert (y.shape, y.dtype) == (x.shape, x.dtype)
            assert _core.apply(op, y, by=by).shape == x.shape
    assert len(asked) == len(set(asked)) == 12


def test_an_op_with_several_outputs_is_asked_once_and_each_output_is_one_node():
    asked: list[Any] = []

    def infer(x: Any, **params: Any) -> Any:
        asked.append(params)
        yield x.shape, x.dtype
        for i in range(params["more"]):
            yield (*x.shape, i), np.dtype("int64")

    op = Op("several", infer=infer, kernel=lambda x, **params: (), multi=True)
    for x in (us.tensor([1.0]), us.tensor([2.0])):
        bundle = _core.apply_multi(op, x, more=9)
        assert type(bundle) is Bundle and _core.apply_multi(op, x, more=9) is bundle
        assert bundle.shape == ((1,), *[(1, i) for i in range(9)]) and bundle.dtype[1] == np.dtype("int64")
        outputs = _core.parts(PART, bundle)
        assert [(y.shape, y.dtype) for y in outputs] == list(zip(bundle.shape, bundle.dtype, strict=True))
        assert all(y is _core.apply(PART, bundle, index=i) for i, y in enumerate(outputs))
    assert len(asked) == 1
    for wrong, error in ((3.0, TypeError), ([(1, 2, 3)], TypeError), ([[(), x.dtype]], TypeError)):
        with pytest.raises(error):
            _core.apply_multi(Op("wrong", infer=lambda x, made=wrong: made, kernel=None, multi=True), x)
    with pytest.raises(TypeError, match="several outputs"):
        _core.parts(PART, x)


def test_what_an_op_infers_from_sizes_without_numbers_or_other_objects_is_asked_every_time():
    asked: list[Any] = []

    def infer(x: Any, **params: Any) -> Any:
        asked.append(x)
        return x.shape, x.dtype

    op = Op("asked again", infer=infer, kernel=lambda x, **params: x)
    for _ in range(2):
        _core.apply(op, us.placeholder((us.dims("n"),)))
        _core.apply(op, us.tensor(1.0), by=(0.0,))
        _core.apply(op, us.tensor(1.0), by=-0.0)
        _core.apply(op, us.tensor(1.0), by=float("nan"))
        _core.apply(op, us.tensor(1.0), by=ADD)
    assert len(asked) == 10
    op.inferred = None
    for _ in range(2):
        _core.apply(op, us.tensor(1.0))
    assert len(asked) == 12


def test_what_ops_inferred_does_not_pile_up_and_keeps_nothing_alive():
    op = declared("piled up")
    x = us.tensor([1.0, 2.0])
    for step in range(3000):
        _core.apply(op, x, step=step)
    assert 0 < len(op.inferred or ()) <= 1024

    class Word(str):
        """A word that can be watched."""

    word = Word("by")
    end = weakref.ref(word)
    _core.apply(op, x, by=word)
    del word
    assert end() is None


# --- dying ------------------------------------------------------------------------------------------------------------


def test_nodes_whose_end_is_put_off_are_not_found():
    """Deep recipes die in portions; between two of them, other code runs, and may record what is about to be freed."""
    x = us.tensor([1.0, 2.0])
    found: list[Any] = []

    class Recorder:
        def __del__(self) -> None:
            y: Any = x
            for _ in range(200):
                y = us.sin(y)
            found.append(y.eval())

    y, expected = x, np.array([1.0, 2.0])
    for _ in range(200):
        y, expected = us.sin(y), np.sin(expected)
    for step in range(500):
        y = _core.apply(declared(f"holder {step}"), y, held=(Recorder(),) if step % 50 == 0 else ())
    del y
    gc.collect()
    assert len(found) == 10 and all(np.array_equal(value, expected) for value in found)


def test_a_cycle_through_a_parameter_is_collected():
    x = us.tensor([1.0, 2.0])
    before = _core.count()

    class Knot:
        node: Any

    knot = Knot()
    knot.node = us.exp(_core.apply(declared("knotted"), x, knot=knot))
    del knot
    gc.collect()
    assert _core.count() == before


def seen_by_the_collector() -> int:
    gc.collect()
    return sum(isinstance(thing, _core.Node) for thing in gc.get_objects())


def test_the_collector_does_not_look_at_a_loop_or_at_its_gradient():
    table, start = us.tensor(np.diag(np.arange(1.0, 7.0)) * 0.1), us.tensor(np.ones(6))
    before = seen_by_the_collector()
    x, states = start, []
    for k in range(300):
        values, vectors = us.linalg.eigh(table + us.diag(x) * (0.1 / (k + 1)))
        x = us.tanh(table @ x) + 0.1 * us.sum(vectors[:, :3] ** 2, axis=1) * values[k % 6]
        states.append(x)
        if float(us.sum(x)) > 1e9:
            break
    assert seen_by_the_collector() - before < 100
    gradient = us.sum(x * x).grad(table)
    gradient.eval()
    assert seen_by_the_collector() - before < 100
    held = sum(node.op.name != "constant" for node in _core.nodes())
    assert held > 300  # they are there all the same


def test_a_cycle_through_a_rule_of_a_users_is_collected():
    def run() -> list[weakref.ref[us.Tensor]]:
        states: list[us.Tensor] = []

        @us.custom_vjp
        def damped(x: us.Tensor) -> us.Tensor:
            return x * 0.5

        def forward(x: us.Tensor) -> tuple[us.Tensor, None]:
            return x * 0.5, None

        def backward(residuals: None, ct: us.Tensor) -> tuple[us.Tensor]:
            return (ct * float(len(states)),)

        damped.defvjp(forward, backward)
        x = us.tensor(np.ones(3))
        for _ in range(20):
            x = us.exp(damped(x) + 1.0)
            states.append(x)
        return [weakref.ref(state) for state in states]

    ends = run()
    gc.collect()
    assert len(ends) == 20 and not any(end() is not None for end in ends)


def test_a_finaliser_never_finds_what_the_collector_is_about_to_clear():
    x = us.tensor([1.0, 2.0])
    op = declared("inspected")
    found: list[Any] = []

    class Knot:
        node: Any

        def __hash__(self) -> int:
            return 3

        def __eq__(self, other: object) -> bool:
            return True

        def __del__(self) -> None:
            found.append(_core.apply(op, x, knot=Knot.spare))

        spare: Any = None

    Knot.spare = Knot()
    knot = Knot()
    knot.node = _core.apply(op, x, knot=knot)
    del knot
    gc.collect()
    assert [node.inputs[0] is x and node.op is op for node in found] == [True]
    Knot.__del__ = lambda self: None  # type: ignore[method-assign]


def test_recording_gives_back_every_reference_it_takes():
    x, y = us.tensor([1.0, 2.0]), us.tensor([[3.0], [4.0]])

    def everything() -> None:
        z = (x + y) * 2.5 - x / 3.0
        us.exp(z) + us.sum(us.reshape(z, (4,)))
        us.linalg.qr(z)
        us.value_and_grad(lambda x, y: us.sum(us.sqrt(us.negative(-x)) + y), (0, 1))(x, y)
        _core.find(ADD, (x, y), ())
        us.sum(y[-1, :0].at[:].add(1.0)) + y[0, 0] + y[1:, 0] + x[::-1]
        us.where(x > 1.0, us.concat([x[:1], x[1:]]), 0.0)
        _core.plain_index(y, (0, slice(0, 1))), _core.plain_index(y, (0, 5)), _core.plain_index(y, (0, None))

    everything()
    watched = [x, y, x.shape, x.dtype, ADD, EXP, NO_PARAMS, (), us.Tensor, everything.__code__]
    gc.collect()
    before = [sys.getrefcount(thing) for thing in watched]
    for _ in range(200):
        everything()
    gc.collect()
    after = [sys.getrefcount(thing) for thing in watched]
    assert max(b - a for a, b in zip(before, after, strict=True)) < 100


def test_threads_search_and_change_the_table_at_once():
    x = us.tensor([1.0, 2.0])
    before = _core.count()
    failures: list[BaseException] = []

    def churn(seed: int) -> None:
        rng = np.random.default_rng(seed)
        try:
            for _ in range(300):
                kept = [_core.apply(declared("churned"), x, step=int(step)) for step in rng.integers(0, 50, 20)]
                assert all(node.inputs[0] is x for node in kept)
        except BaseException as error:
            failures.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=churn, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    gc.collect()
    assert not failures and _core.count() == before


# --- where a node was made --------------------------------------------------------------------------------------------


def test_a_node_remembers_the_line_of_the_user_not_ours():
    x = us.tensor([1.0, 2.0])
    y = us.mean(x)
    assert _graph.source_of(y).startswith("test_core.py") and "us.mean(x)" in _graph.source_of(y)
    code, lasti = _core.current_origin()
    assert code is test_a_node_remembers_the_line_of_the_user_not_ours.__code__ and lasti > 0


# --- lines -----------------------------------------------------------------------------------------------------------


def test_a_node_knows_the_line_that_made_it():
    first = sys._getframe().f_lineno
    x = us.tensor([1.0, 2.0])
    y, z = (
        us.exp(x),
        us.sin(x),
    )
    assert [node.line - first for node in (x, y, z)] == [1, 3, 4]
    made = [us.exp(x * float(k)) for k in range(2, 1000)]  # more often than it takes Python to specialise the call
    assert {node.line for node in made} == {made[0].line}
    with pytest.raises(AttributeError):
        x.line = 1  # type: ignore[misc]


def test_lines_of_many_places_are_told_apart():
    x = us.tensor([1.0, 2.0])
    sources = ["\n" * k + f"y = us.exp(x * {k + 2}.0)" for k in range(1000)]
    made = []
    for source in sources:
        scope: dict[str, Any] = {"us": us, "x": x}
        exec(compile(source, "<a program>", "exec"), scope)
        made.append(scope["y"])
    for _ in range(2):
        assert [node.line for node in made] == list(range(1, 1001))


def test_a_node_made_nowhere_has_no_line():
    node = _core.new(us.Tensor, EXP, (), NO_PARAMS, (), us.tensor(1.0).dtype, (), None, 0)
    assert node.line == 0


# --- pieces of graph that were not evaluated --------------------------------------------------------------------------


def chain_of(count: int) -> list[us.Tensor]:
    x = us.tensor(np.arange(3.0))
    nodes = []
    for k in range(count):
        x = us.sin(x) * (1.0 + k)
        nodes += [x.inputs[0], x]
    return nodes


def test_pending_nodes_are_found_with_the_number_of_their_uses():
    x = us.tensor([1.0, 2.0])
    y = us.sin(x)
    z = y * y + y
    order, uses = [z], {z.id: 0}
    assert pending(order, uses) == ((False, False, False), [], [])
    assert {node.id for node in order} == {z.id, z.inputs[0].id, y.id}
    assert uses == {z.id: 0, z.inputs[0].id: 1, y.id: 3}


def pending(order: list[Any], uses: dict[int, int], bound: Any = None, stops: bool = False) -> Any:
    bundles: list[Any] = []
    lent: list[Any] = []
    found = _core.pending_nodes(order, uses, bundles, lent, bound, lambda node: False, stops)
    return found, bundles, lent


def test_pending_nodes_end_with_what_has_a_value_and_with_what_is_bound():
    y = us.sin(us.tensor([1.0]))
    z = us.cos(y)
    order: list[Any] = [z]
    assert pending(order, {z.id: 0}, {y.id: 1.0}) == ((False, False, False), [], [])
    assert order == [z]
    y.eval()
    assert pending(order, {z.id: 0}) == ((False, False, False), [], [])
    assert order == [z]


def test_pending_nodes_tell_bundles_and_calls():
    x = us.sum(us.linalg.qr(us.tensor(np.eye(2)))[0])
    found, bundles, _ = pending([x], {x.id: 0})
    assert found == (False, False, False)
    assert [type(node) for node in bundles] == [Bundle]
    states = [us.ones(3)]
    for _ in range(200):
        states.append(us.sin(states[-1]) * 1.5)
        float(states[-1][0])
    lost = states[50]
    lost.value = None
    y = us.cos(lost)
    order: list[Any] = [y]
    assert pending(order, {y.id: 0})[0][0]
    assert [type(node) for node in order] == [us.Tensor, type(lost), Call]
    lost.piece = LOST
    assert pending([y], {y.id: 0}, stops=True)[0] == (False, False, True)


@pytest.mark.parametrize("given", [(None, {}), ([1], {}), ([], [])])
def test_pending_nodes_take_a_list_of_nodes_and_a_dict(given):
    with pytest.raises(TypeError):
        pending(*given)


def test_wiring_numbers_nodes_by_what_they_are_and_operands_by_where_they_stand():
    nodes = chain_of(50)
    tokens, arities, sources, outside, keys = _core.wiring(nodes)
    numbers = [np.frombuffer(data, np.int64).tolist() for data in (tokens, arities, sources)]
    assert numbers[0] == [0, 1] * 50
    assert numbers[1] == [1, 2] * 50
    assert [key[2] for key in keys] == [nodes[0].op, nodes[1].op]
    all_nodes = [*nodes, *outside]
    expected = [operand for node in nodes for operand in node.inputs]
    assert [all_nodes[i] for i in numbers[2]] == expected
    assert len(outside) == len(set(map(id, outside))) == 51  # the leaf, and a number for each step


def test_wiring_tells_parameters_and_shapes_apart():
    x, y = us.tensor(np.ones((2, 3))), us.tensor(np.ones((3, 2)))
    nodes = [us.sum(x, axis=0), us.sum(x, axis=1), us.sum(y, axis=0), us.sum(us.tensor(np.zeros((2, 3))), axis=0)]
    assert np.frombuffer(_core.wiring(nodes)[0], np.int64).tolist() == [0, 1, 2, 0]


def test_wiring_refuses_what_is_no_list_of_nodes():
    for given in (None, (), [1]):
        with pytest.raises(TypeError):
            _core.wiring(given)
    assert _core.wiring([])[:3] == (b"", b"", b"")


class _Sum:
    """Stands for what is not added up."""


def _sweep() -> Any:
    return _core.call_sweep({}, {}, set(), {}, set(), {}, id, id, _Sum, tuple)


def test_a_sweep_through_calls_takes_calls_alone():
    order: Any = [us.tensor(1.0)]
    assert _sweep().pull(order, 0) is None and len(order) == 1
    assert _sweep().pull([], 0) is None
    for given in ((None, 0), (order, "floor"), ((), 0)):
        with pytest.raises(TypeError):
            _sweep().pull(*given)
    with pytest.raises(TypeError):
        _core.call_sweep({}, {}, {}, {}, set(), {}, id, id, _Sum, tuple)


@pytest.mark.parametrize(
    ("sources", "read", "forms"),
    [
        ((("input", 1),), (), (None,)),  # there is one input
        ((("output", 1),), (), (None,)),
        ((("elsewhere", 0, 0),), (), (None,)),
        ((("input", 0),), (1,), (None,)),  # nothing is read there
        ((("input", 0),), (), (("plain",),)),
        ((("input", 0),), (), (("terms", ("other", 0)),)),
        ((("input", 0),), (), (1,)),
    ],
)
def test_notes_that_say_nothing_of_a_call_are_refused(sources, read, forms):
    with pytest.raises((TypeError, ValueError)):
        _core.note(None, 1, sources, read, forms, tuple, _Sum, max, _core.output)


def _steps(count: int) -> list[Any]:
    """Return steps of which each reads the one before."""
    steps = [_core.step("plan", [us.tensor(1.0)])]
    for _ in range(count - 1):
        steps.append(_core.step("plan", [steps[-1].output(0)]))
    return steps


def test_steps_that_nobody_places_end_one_after_the_other_however_many_there_are():
    last = _steps(200_000)[-1]
    assert last.number >= 199_999
    del last


def test_steps_that_read_the_same_registers_and_write_the_same_are_of_one_kind():
    x = us.tensor(1.0)
    one = [_core.step("a", [x, x])]
    for _ in range(4):
        one.append(_core.step("a", [one[-1].output(1), x]))
    two = _core.step("b", [x, one[-1].output(1)])
    three = _core.step("a", [two.output(0), x])
    last = _core.step("b", [three.output(2), one[0].output(2)])  # what that gave is in a register all the time
    ((run, which, kinds),) = _core.runs(last, 99)
    assert run == [*one, two, three, last]
    assert which == bytes([0, 1, 1, 1, 1, 2, 3, 4])
    assert kinds == (
        ("a", (), ((1, 0), (2, 1))),
        ("a", ((0, 0),), ((1, 0),)),
        ("b", ((1, 0),), ((0, 0),)),
        ("a", ((0, 0),), ((2, 0),)),
        ("b", ((0, 0), (1, 1)), ()),
    )
    assert [len(run) for run, *_ in _core.runs(last, 3)] == [3, 3, 2]
    kept = one[2].output(1)
    entering, ends, inside = _core.ends(run[2:6], which[2:6], kinds)
    assert list(entering.items()) == [(0, one[2].inputs[0])]
    assert (ends, inside) == ([set(), set(), {0}, set(), set()], [set(), {1}, set(), set(), set()])
    assert _core.shared(one[1:4]) == (False, True)
    assert _core.read_by_each(one[:3], (1,), id) == [x, x, x]
    with pytest.raises(ValueError, match="no such slot"):
        _core.read_by_each(one, (2,), id)
    _core.settle(one[:2], "there")
    _core.settle([*one[2:], two, three, last], "here")
    assert [step.position for step in run] == [0, 1, 0, 1, 2, 3, 4, 5]
    assert kept.step.placed == "here" and all(step.inputs == () for step in run)
    with pytest.raises(TypeError):
        _core.settle(one, "there")


def test_the_first_step_is_like_the_others_though_nobody_was_before_it():
    x, y = us.tensor(1.0), us.tensor(2.0)
    steps = [_core.step("a", [x, y])]
    for _ in range(5):
        steps.append(_core.step("a", [steps[-1].output(1), steps[-1].output(0)]))
    ((run, which, kinds),) = _core.runs(steps[-1], 99)
    used = {*which}
    assert len(used) == 1 and kinds[used.pop()] == ("a", ((0, 1), (1, 0)), ((0, 0), (1, 1)))
    assert _core.ends(run, which, kinds)[0] == {0: y, 1: x}


def test_loops_in_loops_and_branches_are_few_kinds_of_steps():
    x = us.tensor(1.0)
    outer, steps = _core.step("outer", [x, x]), []
    for k in range(12):
        inner = outer
        for _ in range(3 + k % 2):
            inner = _core.step("inner", [inner.output(1)])
            steps.append(inner)
        outer = _core.step("outer" if k % 3 else "other", [outer.output(0), inner.output(1)])
        steps.append(outer)
    ((run, which, kinds),) = _core.runs(outer, 99)
    assert run[1:] == steps
    assert {kinds[i] for i in which} == {
        ("outer", ((0, 0), (1, 1)), ((0, 0), (1, 1))),
        ("other", ((0, 0), (1, 1)), ((0, 0), (1, 1))),
        ("inner", ((0, 1),), ((1, 1),)),
    }


def test_a_value_for_which_no_register_is_left_is_read_from_elsewhere():
    x = us.tensor(1.0)
    many = [_core.step("start", [x])]
    many += [_core.step("a", [many[0].output(i)]) for i in range(2000)]
    last = _core.step("sum", [step.output(0) for step in many[1:]])
    runs = _core.runs(last, 10_000)
    assert [step for run, *_ in runs for step in run] == [*many, last]
    assert max(r for *_, kinds in runs for kind in kinds for _, r in kind[2]) == 1023


def test_what_is_no_step_is_no_part_of_a_run():
    for given in (None, [], [us.tensor(1.0)]):
        with pytest.raises(TypeError):
            _core.shared(given)
        with pytest.raises(TypeError):
            _core.ends(given, b"", ())
    step = _steps(1)[0]
    for which, kinds in ((b"", (("plan", (), ()),)), (b"\0", ("plan",)), (b"\0", (("plan", (), (1,)),))):
        with pytest.raises(TypeError):
            _core.ends([step], which, kinds)
    for which, kinds in ((b"\1", (("plan", (), ()),)), (b"\0", (("plan", ((1, 0),), ()),))):
        with pytest.raises(IndexError):
            _core.ends([step], which, kinds)
    with pytest.raises(TypeError):
        _core.runs(None, 4)
    with pytest.raises(ValueError, match="positive"):
        _core.runs(_steps(1)[0], 0)


def test_a_walk_is_in_topological_order_where_ids_are_not():
    """Nodes read younger ones, as those do that were recorded again: the least ids come first among those that can."""
    rng = np.random.default_rng(3)
    op = Op("read", infer=lambda *operands: (operands[0].shape, operands[0].dtype), kernel=None)
    for _ in range(20):
        ids = [int(i) for i in rng.permutation(60)]
        nodes: list[Any] = []
        for i in ids:
            picked = rng.permutation(len(nodes))[: int(rng.integers(0, 3))]
            read = tuple([nodes[j] for j in picked])
            shape, dtype = (), np.dtype("float64")
            nodes.append(_core.new(us.Tensor, op, read, {}, shape, dtype, None, _sweep.__code__, 0, 10**9 + 2 * i))
        sources = _core.reach(list(nodes), 0, None, {op}, {}, id, id, id, None)
        assert len(sources) == 60
        order = _core.activate(sources, {node.id for node in nodes}, {}, id)
        assert [node.id for node in order] == [node.id for node in _graph.in_order(list(nodes))]


def test_a_walk_refuses_what_it_cannot_walk():
    x = us.tensor(1.0)
    for given in (((x,), 0), ([1], 0), ([x], "first")):
        with pytest.raises(TypeError):
            _core.reach(*given, None, set(), {}, id, id, id, None)
    with pytest.raises(TypeError):
        _core.activate([], set(), {}, id)


# --- recording again --------------------------------------------------------------------------------------------------


def doubled(node: Any, operands: tuple[Any, ...]) -> Any:
    """Record what is not simply recorded again."""
    return _core.apply(node.op, *operands, **node.attributes)


def test_nodes_are_recorded_again_on_images_of_what_they_are_made_of():
    x, y = us.tensor([1.0, 2.0]), us.tensor([3.0, 4.0])
    before = us.exp(us.tensor([5.0, 6.0]))
    inside = us.sin(x) * before
    result = inside + us.cos(before)
    order = _core.younger_than(x.id, [result, us.exp(y)], {x.id: y}, sorted)
    assert [node.op.name for node in order] == ["tensor", "tensor", "exp", "sin", "multiply", "cos", "add", "exp"]
    images: dict[int, Any] = {x.id: y}
    assert _core.record_again(order, images, [], id, doubled, False) == []
    assert images[result.id] is us.sin(y) * before + us.cos(before)
    assert us.cos(before).id not in images and images[inside.id].lasti == inside.lasti
    result.eval()
    images = {x.id: us.tensor([3.0, 4.0])}
    assert result.id in {node.id for node in _core.record_again(order, images, [], id, doubled, False)}


def test_nodes_younger_than_what_is_made_of_them_come_in_the_order_that_is_asked_for():
    op = declared("younger")
    old, new = [_core.new(us.Tensor, op, (), {}, (), np.dtype("float64"), None, None, 0, 10**9 + i) for i in (0, 8)]
    reader = _core.new(us.Tensor, op, (new, old), {}, (), np.dtype("float64"), None, None, 0, 10**9 + 4)
    asked: list[Any] = []

    def in_order(nodes: list[Any]) -> list[Any]:
        asked.append(list(nodes))
        return [old, new, reader]

    order = _core.younger_than(0, [reader], {}, in_order)
    assert [node.id - old.id for node in order] == [0, 8, 4]
    assert [[node.id - old.id for node in nodes] for nodes in asked] == [[0, 4, 8]]


def test_levels_begin_where_marks_are_crossed():
    x = us.tensor(1.0)
    first = us.sin(x)
    marks = [_core.next_id(), _core.next_id()]
    second = us.cos(first)
    images: dict[int, Any] = {x.id: us.tensor(2.0)}
    crossed: list[int] = []
    _core.record_again([first, second], images, marks, lambda: crossed.append(len(images)), doubled, False)
    assert crossed == [2, 2]  # between the two


def test_what_fails_while_it_is_recorded_again_leaves_the_place_of_the_program_as_it_was():
    x = us.tensor(1.0)
    node = _core.apply(declared("canonical", canonical=lambda x: None), x)
    before = _core.current_origin()[0]

    def fail(node: Any, operands: Any) -> Any:
        assert _core.current_origin() == (node.code, node.lasti)
        raise ShapeError("not today")

    with pytest.raises(ShapeError, match="not today"):
        _core.record_again([node], {x.id: us.tensor(2.0)}, [], id, fail, False)
    assert _core.current_origin()[0] is before
    for given in ((node,), {}, []), ([1], {}, []), ([node], [], []), ([node], {}, ()):
        with pytest.raises(TypeError):
            _core.record_again(*given, id, fail, False)
    for given in (node,), {}, (0, [1], {}), (0, [node], []):
        with pytest.raises(TypeError):
            _core.younger_than(*given, id)


# --- passes -----------------------------------------------------------------------------------------------------------


def run_all(targets: list[us.Tensor], **given: Any) -> dict[int, Any]:
    """Run what some tensors need, in C, and return the values that no node keeps."""
    work = collect(targets)
    values: dict[int, Any] = {}
    run(work, {t.id for t in targets}, given.get("observer"), values)
    assert work.order == []
    return values


def test_a_pass_keeps_what_is_asked_for_and_what_somebody_refers_to() -> None:
    x = us.tensor([1.0, 2.0])
    held = us.sin(x)
    y = us.cos(held * 2.0) + us.exp(held)
    values = run_all([y])
    assert_array_equal(y.value, np.cos(np.sin(x.value) * 2.0) + np.exp(np.sin(x.value)))
    assert_array_equal(held.value, np.sin(x.value))
    assert len(values) == 3
    assert all(node.value is None for node in y.inputs)


def test_a_long_pass_frees_what_it_has_used() -> None:
    x = us.tensor([1.0, 2.0])
    y, z = x, x.eval()
    for k in range(100):
        y, z = us.sin(y) + float(k), np.sin(z) + k
    values = run_all([y])
    assert_array_equal(y.value, z)
    assert values == {}


def test_a_long_pass_adds_onto_large_temporaries_and_onto_nothing_else() -> None:
    x = us.tensor(np.arange(4096.0))
    held = us.sin(x)
    y, z = held, np.sin(x.eval())
    once = z.copy()
    for _ in range(40):
        y, z = y + us.cos(x), z + np.cos(x.eval())
    run_all([y])
    assert_array_equal(y.value, z)
    assert_array_equal(held.value, once)
    assert_array_equal(x.value, np.arange(4096.0))


def test_a_pass_holds_no_array_when_a_kernel_fails() -> None:
    def kernel(x: Any) -> Any:
        raise ValueError("no")

    failing = us.op("fails_in_a_pass", kernel=kernel)
    x = us.tensor(np.ones(3))
    y = us.sin(x)
    z = failing(y)
    with pytest.raises(KernelError, match=r"ValueError: no, while computing .*test_core\.py"):
        run_all([us.cos(z)])
    gc.collect()  # the error has frames that have the array
    references = sys.getrefcount(y.value)
    assert references == 2


def test_a_pass_reads_no_value_that_was_evicted() -> None:
    x = us.tensor(np.ones(3))
    y = us.sin(x)
    y.eval()
    z = us.cos(y)
    work = collect([z])
    y.value = None
    with pytest.raises(ValueDroppedError):
        run(work, {z.id}, None)
    assert_array_equal(z.eval(), np.cos(np.sin(np.ones(3))))


@pytest.mark.parametrize("given", [([1], {}, set(), {}), ([], [], set(), {}), ([], {}, [], {}), ([], {}, set(), None)])
def test_a_pass_takes_a_list_of_nodes_and_tables(given):
    with pytest.raises(TypeError):
        _core.run_nodes(*given, True, None, run_all, (None,) * 8)


def test_memory_of_tensors_is_used_again_by_others() -> None:
    gc.collect()
    x = us.tensor([1.0])
    before = {id(us.sin(x) * float(k)) for k in range(50)}
    assert len(before) < 50
    assert _core.count() == len(_core.nodes())
    y = us.sin(x)
    assert (y.value, y.piece, y.name, getattr(y, "output", None)) == (None, None, None, None)
    assert weakref.ref(y)() is y


def test_long_chains_of_tensors_die_without_recursion() -> None:
    x = us.tensor([1.0])
    count = _core.count()
    for _ in range(100_000):
        x = us.sin(x)
    del x
    assert _core.count() <= count


# --- terms of sums ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [(None, 0), ([], 0), ([1], -1), ([1], 1)])
def test_runs_of_terms_begin_at_one_of_a_list(given):
    with pytest.raises((TypeError, IndexError)):
        _core.run_of_terms(*given)


def test_terms_that_are_no_outputs_of_steps_are_one_run_and_have_no_rows() -> None:
    x = us.tensor([1.0])
    assert _core.run_of_terms([x, x, x], 1) == (False, 3)
    assert _core.row_table([]) == ([], b"", b"")
    for given in (None, [x]):
        with pytest.raises(TypeError):
            _core.row_table(given)  # type: ignore[arg-type]
