"""State that a traced function reaches without naming it: whatever way leads there, a change of it is noticed.

Each function of `WAYS` returns a function of one tensor and a change to what it reads. The plain function, called after
the change, says what is right.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import operator
import random
import sys
import threading
import weakref
from collections import UserDict, deque, namedtuple
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.fragments.tracing_helpers import counted
from unspool.errors import GaugeError, SideEffectError

Way = tuple[Callable[[Any], Any], Callable[[], Any]]

WAYS: list[Callable[[], Way]] = []


def way(make: Callable[[], Way]) -> Callable[[], Way]:
    WAYS.append(make)
    return make


@pytest.fixture(scope="module", autouse=True)
def _leave_nothing() -> Iterator[None]:
    """Collect the objects that refer to each other: other tests count what is alive."""
    yield
    gc.collect()


class Layer:
    def __init__(self) -> None:
        self.bias = us.tensor(1.5)

    def __call__(self, v: Any) -> Any:
        return v + self.bias


class Model:
    scale = 1.0

    def __init__(self) -> None:
        self.w: Any = us.tensor(2.0)
        self.rate: Any = 0.5
        self.layer = Layer()
        self.layers: list[Any] = [Layer(), Layer()]
        self.table: dict[str, Any] = {"w": us.tensor(2.0)}

    def weigh(self, v: Any) -> Any:
        return v * self.w

    @property
    def strength(self) -> Any:
        return self.w * self.rate

    def __getattr__(self, name: str) -> Any:
        if name == "looked_up":
            return self.table["w"]
        raise AttributeError(name)


class Slotted:
    __slots__ = ("rate", "w")

    def __init__(self) -> None:
        self.w: Any = us.tensor(2.0)
        self.rate = 2.0


@dataclasses.dataclass
class Settings:
    w: Any
    rate: float = 0.5


def weigh_with(thing: Any, v: Any) -> Any:
    return v * thing.w


nested = SimpleNamespace(inner=SimpleNamespace(w=us.tensor(2.0)))


# --- attributes ------------------------------------------------------------------------------------------------------


@way
def a_method() -> Way:
    m = Model()
    return lambda v: m.weigh(v), lambda: setattr(m, "w", us.tensor(7.0))


@way
def a_property() -> Way:
    m = Model()
    return lambda v: v * m.strength, lambda: setattr(m, "rate", 7.0)


@way
def a_callable_inside() -> Way:
    m = Model()
    return lambda v: m.layer(v), lambda: setattr(m.layer, "bias", us.tensor(7.0))


@way
def another_callable_inside() -> Way:
    m = Model()
    return lambda v: m.layer(v), lambda: setattr(m, "layer", lambda v: v * 9)


@way
def a_helper_that_gets_the_object() -> Way:
    m = Model()
    return lambda v: weigh_with(m, v), lambda: setattr(m, "w", us.tensor(7.0))


@way
def a_nested_attribute_of_a_global() -> Way:
    nested.inner = SimpleNamespace(w=us.tensor(2.0))
    return lambda v: v * nested.inner.w, lambda: setattr(nested.inner, "w", us.tensor(7.0))


@way
def an_object_in_between() -> Way:
    nested.inner = SimpleNamespace(w=us.tensor(2.0))
    return lambda v: v * nested.inner.w, lambda: setattr(nested, "inner", SimpleNamespace(w=us.tensor(7.0)))


@way
def slots() -> Way:
    s = Slotted()
    return lambda v: weigh_with(s, v) * s.rate, lambda: setattr(s, "rate", 7.0)


@way
def fields_of_a_dataclass() -> Way:
    s = Settings(us.tensor(2.0))
    return lambda v: weigh_with(s, v) * s.rate, lambda: setattr(s, "rate", 7.0)


@way
def a_dataclass_as_a_dict() -> Way:
    s = Settings(2.0)
    return lambda v: v * dataclasses.asdict(s)["rate"], lambda: setattr(s, "rate", 7.0)


@way
def a_dataclass_as_a_tuple() -> Way:
    s = Settings(2.0)
    return lambda v: v * dataclasses.astuple(s)[1], lambda: setattr(s, "rate", 7.0)


@way
def a_copy_of_a_dataclass() -> Way:
    s = Settings(2.0)
    return lambda v: v * dataclasses.replace(s, w=1.0).rate, lambda: setattr(s, "rate", 7.0)


@way
def what_getattr_of_a_class_answers() -> Way:
    m = Model()
    return lambda v: v * m.looked_up, lambda: m.table.update(w=us.tensor(7.0))


@way
def an_attribute_that_was_not_there() -> Way:
    m = Model()
    return lambda v: v * m.looked_up, lambda: setattr(m, "looked_up", 7.0)


@way
def an_attribute_by_a_computed_name() -> Way:
    m, i = Settings(2.0), 1
    m.w1 = us.tensor(2.0)  # type: ignore[attr-defined]
    return lambda v: v * getattr(m, f"w{i}"), lambda: setattr(m, "w1", us.tensor(7.0))


@way
def the_dict_of_an_object() -> Way:
    m, i = Settings(2.0), 1
    m.w1 = us.tensor(2.0)  # type: ignore[attr-defined]
    return lambda v: v * m.__dict__[f"w{i}"], lambda: setattr(m, "w1", us.tensor(7.0))


@way
def vars_of_an_object() -> Way:
    m, i = Settings(2.0), 1
    m.w1 = 2.0  # type: ignore[attr-defined]
    return lambda v: v * vars(m)[f"w{i}"], lambda: setattr(m, "w1", 7.0)


@way
def an_attrgetter_made_elsewhere() -> Way:
    m, get = Model(), operator.attrgetter("layer.bias")
    return lambda v: v * get(m), lambda: setattr(m.layer, "bias", us.tensor(7.0))


@way
def a_methodcaller_made_elsewhere() -> Way:
    m, call = Model(), operator.methodcaller("weigh", 2.0)
    return lambda v: v * call(m), lambda: setattr(m, "w", us.tensor(7.0))


@way
def an_operator_of_a_class() -> Way:
    class Factor:
        value = 2.0

        def __mul__(self, other: Any) -> Any:
            return other * self.value

    factor = Factor()
    return lambda v: factor * v, lambda: setattr(factor, "value", 7.0)


@way
def a_number_of_another_type() -> Way:
    m = Model()
    m.rate = 2
    return lambda v: us.tensor([3]) * m.rate, lambda: setattr(m, "rate", 2.0)


@way
def a_zero_of_another_sign() -> Way:
    m = Model()
    m.rate = 0.0
    return lambda v: 1 / (v * m.rate), lambda: setattr(m, "rate", -0.0)


# --- classes ---------------------------------------------------------------------------------------------------------


@way
def an_attribute_of_a_class() -> Way:
    class Special(Model):
        scale = 2.0

    m = Special()
    return lambda v: v * m.scale, lambda: setattr(Special, "scale", 7.0)


@way
def an_attribute_that_hides_one_of_the_class() -> Way:
    m = Model()
    return lambda v: v * m.scale, lambda: setattr(m, "scale", 7.0)


@way
def an_attribute_of_a_class_in_between() -> Way:
    class Middle(Model):
        pass

    class Special(Middle):
        pass

    m = Special()
    return lambda v: v * m.scale, lambda: setattr(Middle, "scale", 7.0)


@way
def a_class_used_as_a_namespace() -> Way:
    class Constants:
        w = 2.0

    return lambda v: v * Constants.w, lambda: setattr(Constants, "w", 7.0)


@way
def another_method() -> Way:
    class Special(Model):
        pass

    m = Special()
    return lambda v: m.weigh(v), lambda: setattr(Special, "weigh", lambda self, v: v * 9)


@way
def a_method_hidden_by_an_attribute() -> Way:
    m = Model()
    return lambda v: m.weigh(v), lambda: setattr(m, "weigh", lambda v: v * 9)


@way
def another_class() -> Way:
    class Other(Model):
        def weigh(self, v: Any) -> Any:
            return v * 9

    m = Model()
    return lambda v: m.weigh(v), lambda: setattr(m, "__class__", Other)


@way
def another_namespace() -> Way:
    m = Model()
    return lambda v: m.weigh(v), lambda: setattr(m, "__dict__", {**m.__dict__, "w": us.tensor(7.0)})


@way
def a_descriptor() -> Way:
    class Constant:
        value = 2.0

        def __get__(self, instance: Any, owner: Any) -> float:
            return self.value

    class Holder:
        constant = Constant()

    holder = Holder()
    return lambda v: v * holder.constant, lambda: setattr(Holder.__dict__["constant"], "value", 7.0)


@way
def an_attribute_of_a_metaclass() -> Way:
    class Meta(type):
        w = 2.0

    class Holder(metaclass=Meta):
        pass

    return lambda v: v * Holder.w, lambda: setattr(Meta, "w", 7.0)


# --- functions -------------------------------------------------------------------------------------------------------


@way
def its_own_defaults() -> Way:
    def f(v: Any, w: Any = us.tensor(2.0)) -> Any:  # noqa: B008
        return v * w

    return f, lambda: setattr(f, "__defaults__", (us.tensor(7.0),))


@way
def defaults_of_a_helper() -> Way:
    def helper(v: Any, w: float = 2.0) -> Any:
        return v * w

    return lambda v: helper(v), lambda: setattr(helper, "__defaults__", (7.0,))


@way
def defaults_by_keyword() -> Way:
    def helper(v: Any, *, w: float = 2.0) -> Any:
        return v * w

    return lambda v: helper(v), lambda: (helper.__kwdefaults__ or {}).update(w=7.0)


@way
def the_code_of_a_helper() -> Way:
    def helper(v: Any) -> Any:
        return v * 2

    def other(v: Any) -> Any:
        return v * 9

    return lambda v: helper(v), lambda: setattr(helper, "__code__", other.__code__)


@way
def an_attribute_of_a_function() -> Way:
    def helper(v: Any) -> Any:
        return v * helper.w  # type: ignore[attr-defined]

    helper.w = 2.0  # type: ignore[attr-defined]
    return lambda v: helper(v), lambda: setattr(helper, "w", 7.0)


@way
def a_variable_around_a_helper_in_a_table() -> Way:
    w = 2.0
    table = {"helper": lambda v: v * w}

    def change() -> None:
        nonlocal w
        w = 7.0

    return lambda v: table["helper"](v), change


@way
def a_partial_application() -> Way:
    m = Model()
    return functools.partial(weigh_with, m), lambda: setattr(m, "w", us.tensor(7.0))


@way
def a_wrapper() -> Way:
    m = Model()

    def weighed(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(function)
        def wrapper(v: Any) -> Any:
            return function(v) * m.rate

        return wrapper

    @weighed
    def helper(v: Any) -> Any:
        return v * 2

    return lambda v: helper(v), lambda: setattr(m, "rate", 7.0)


@way
def a_function_chosen_by_type() -> Way:
    m = Model()

    @functools.singledispatch
    def helper(v: Any) -> Any:
        return v

    @helper.register(us.Tensor)
    def _(v: Any) -> Any:
        return v * m.rate

    return lambda v: helper(v), lambda: setattr(m, "rate", 7.0)


@way
def a_context_manager() -> Way:
    m = Model()

    @contextlib.contextmanager
    def rate() -> Iterator[float]:
        yield m.rate

    def f(v: Any) -> Any:
        with rate() as r:
            return v * r

    return f, lambda: setattr(m, "rate", 7.0)


@way
def a_function_that_remembers_its_results() -> Way:
    m = Model()

    @functools.lru_cache
    def rate() -> float:
        return m.rate  # type: ignore[no-any-return]

    def change() -> None:
        m.rate = 7.0
        rate.cache_clear()

    rate()
    return lambda v: v * rate(), change


@way
def a_builtin_method() -> Way:
    get = (table := {"w": 2.0}).get
    return lambda v: v * get("w"), lambda: table.update(w=7.0)


@way
def a_fragment_inside_that_was_traced_before() -> Way:
    w, c = us.tensor(2.0), us.tensor(4.0)
    inner = us.fragment(lambda v: v * w)
    inner(c)

    def change() -> None:
        nonlocal w
        w = us.tensor(7.0)

    return lambda v: v * inner(c), change


@way
def a_number_in_a_fragment_inside() -> Way:
    m, c = Model(), us.tensor(4.0)
    inner = us.remat(lambda v: v * m.rate)
    inner(c)
    return lambda v: v * inner(c), lambda: setattr(m, "rate", 7.0)


@way
def the_step_of_a_loop_inside() -> Way:
    m = Model()
    return lambda v: us.iterate(lambda z: z * m.rate + v, v, max_steps=3)[0], lambda: setattr(m, "rate", 7.0)


@way
def a_function_with_a_rule_of_its_own() -> Way:
    m = Model()

    @us.custom_vjp
    def f(v: Any) -> Any:
        return v * m.rate

    f.defvjp(lambda v: (v * m.rate, ()), lambda _, ct: (ct * m.rate,))
    return lambda v: f(v), lambda: setattr(m, "rate", 7.0)


# --- containers ------------------------------------------------------------------------------------------------------


@way
def an_entry_of_a_list() -> Way:
    rates = [1.0, 2.0]
    return lambda v: v * rates[1], lambda: rates.__setitem__(1, 7.0)


@way
def the_length_of_a_list_in_an_object() -> Way:
    m = Model()
    return lambda v: v * sum(layer.bias for layer in m.layers), lambda: m.layers.append(Layer())


@way
def an_object_in_a_list() -> Way:
    m = Model()
    return lambda v: m.layers[1](v), lambda: setattr(m.layers[1], "bias", us.tensor(7.0))


@way
def an_entry_of_a_dict_by_a_computed_key() -> Way:
    table, i = {"w1": 2.0}, 1
    return lambda v: v * table[f"w{i}"], lambda: table.update(w1=7.0)


@way
def an_entry_of_a_dict_that_was_not_there() -> Way:
    table: dict[str, float] = {}
    return lambda v: v * table.get("w", 1.0), lambda: table.update(w=7.0)


@way
def a_set() -> Way:
    numbers = {2.0}
    return lambda v: v * sum(numbers), lambda: numbers.add(7.0)


@way
def a_deque() -> Way:
    numbers = deque([2.0])
    return lambda v: v * numbers[-1], lambda: numbers.append(7.0)


@way
def an_object_in_a_named_tuple() -> Way:
    pair = namedtuple("pair", "model rest")(Model(), 2)
    return lambda v: v * pair.model.w, lambda: setattr(pair.model, "w", us.tensor(7.0))


@way
def a_dict_of_the_library() -> Way:
    table = UserDict(w=2.0)
    return lambda v: v * table["w"], lambda: table.update(w=7.0)


@way
def a_dict_with_attributes() -> Way:
    class Table(dict[str, float]):
        def __getattr__(self, name: str) -> float:
            return self[name]

    table = Table(w=2.0)
    return lambda v: v * table.w, lambda: table.update(w=7.0)


@way
def an_array_that_is_written_into() -> Way:
    weights = np.array([2.0])
    return lambda v: us.sum(v * weights), lambda: weights.__setitem__(0, 7.0)


@way
def an_array_of_objects() -> Way:
    layers = np.array([Layer()], dtype=object)
    return lambda v: layers[0](v), lambda: setattr(layers[0], "bias", us.tensor(7.0))


# --- modules and the rest --------------------------------------------------------------------------------------------


def _module(name: str, text: str) -> Any:
    module = ModuleType(name)
    exec(text, module.__dict__)
    return module


@way
def an_attribute_of_a_module() -> Way:
    module = _module("a_module", "w = 2.0")
    return lambda v: v * module.w, lambda: setattr(module, "w", 7.0)


@way
def a_global_of_another_module() -> Way:
    module = _module("a_module", "w = 2.0\ndef f(v): return v * w")
    return lambda v: module.f(v), lambda: setattr(module, "w", 7.0)


@way
def a_module_imported_inside() -> Way:
    module = sys.modules["unspool_tests_settings"] = _module("unspool_tests_settings", "w = 2.0")

    def f(v: Any) -> Any:
        from unspool_tests_settings import w  # type: ignore[import-not-found]

        return v * w

    return f, lambda: setattr(module, "w", 7.0)


@way
def a_global_that_hides_a_builtin() -> Way:
    module = _module("a_module", "def f(v): return abs(v)")
    return lambda v: module.f(v), lambda: setattr(module, "abs", lambda v: v * 9)


@way
def globals_by_a_computed_name() -> Way:
    module = _module("a_module", "w1 = 2.0\ndef f(v, i=1): return v * globals()[f'w{i}']")
    return lambda v: module.f(v), lambda: setattr(module, "w1", 7.0)


@way
def a_context_variable() -> Way:
    rate: ContextVar[float] = ContextVar("rate")
    rate.set(2.0)
    return lambda v: v * rate.get(), lambda: rate.set(7.0)


@way
def a_weak_reference() -> Way:
    m = Model()
    reference = weakref.ref(m)

    def change() -> None:
        m.w = us.tensor(7.0)

    return lambda v: v * reference().w, change  # type: ignore[union-attr]


@way
def a_function_that_a_transform_was_made_of() -> Way:
    m = Model()

    def change() -> None:
        m.w = us.tensor(7.0)

    return us.grad(us.value_and_grad(lambda v: v * v * v * m.w), has_aux=True), change


@way
def a_function_of_members() -> Way:
    w = [us.tensor(2.0)]

    def member(v: Any) -> Any:
        return v * v * w[0]

    def change() -> None:
        w[0] = us.tensor(7.0)

    batch = us.vmap(us.grad(member), in_axes=None, axis_size=2)
    return batch, change


def _outcome(function: Callable[[Any], Any], x: Any) -> list[Any]:
    """Return dtype, value and gradient, by their bits: 0.0 is not -0.0."""
    y = us.sum(function(x))
    return [
        y.dtype,
        y.eval().tobytes(),
        None if y.dtype == "int64" else y.grad(x, unconnected="zeros").eval().tobytes(),
    ]


@pytest.mark.parametrize("make", WAYS, ids=lambda make: make.__name__)
def test_a_change_is_noticed_whatever_way_leads_to_it(make: Callable[[], Way]) -> None:
    function, change = make()
    f, x = us.fragment(function), us.tensor(3.0)
    before = _outcome(f, x)
    assert before == _outcome(function, x)
    change()
    right = _outcome(function, x)
    assert right != before
    assert _outcome(f, x) == right


@pytest.mark.parametrize("make", WAYS, ids=lambda make: make.__name__)
def test_what_does_not_change_is_not_traced_again(make: Callable[[], Way]) -> None:
    function, _change = make()
    f, runs = counted(function)
    f(us.tensor(3.0))
    before = len(runs)
    for _ in range(3):
        f(us.tensor(3.0))
    assert len(runs) == before <= 2


def test_a_loss_that_calls_a_layer_follows_its_weights_with_value_and_gradient() -> None:
    class Network:
        def __init__(self) -> None:
            self.w = us.tensor([1.0, 2.0])

        def layer(self, v: Any) -> Any:
            return v * self.w

        @us.fragment
        def loss(self, v: Any) -> Any:
            return us.sum(self.layer(v) ** 2)

    network, v = Network(), us.tensor([3.0, 4.0])
    assert network.loss(v).item() == 9.0 + 64.0
    for _ in range(3):
        network.w = network.w - 0.25 * network.w
        loss = network.loss(v)
        w, x = network.w.eval(), v.eval()
        assert loss.item() == np.sum((w * x) ** 2)
        assert np.array_equal(loss.grad(network.w).eval(), 2 * w * x * x)


def test_what_the_function_does_not_name_may_change_freely() -> None:
    m = Model()
    m.steps = 0  # type: ignore[attr-defined]
    f, runs = counted(lambda v: m.weigh(v))
    for _ in range(5):
        f(us.tensor(3.0))
        m.steps += 1  # type: ignore[attr-defined]
        m.layers.append(Layer())
    assert len(runs) == 1


def test_an_equal_number_bound_anew_does_not_trace_again() -> None:
    m = Model()
    f, runs = counted(lambda v: v * m.rate)
    for _ in range(5):
        m.rate = float("nan")
        f(us.tensor(3.0))
    assert len(runs) == 1


def test_tolerances_that_were_in_force_belong_to_a_trace() -> None:
    def loss(A: Any) -> Any:
        return us.sum(us.linalg.eigh(A)[1][:, 0] * np.array([1.0, 2.0]))

    f, runs = counted(loss)
    A = us.tensor(np.eye(2))
    for _ in range(2):
        for _ in range(2):
            with us.linalg.tolerances(gauge=1e300):
                assert np.array_equal(f(A).grad(A).eval(), loss(A).grad(A).eval())
        gradient = f(A).grad(A)
        with pytest.raises(GaugeError):
            gradient.eval()
    assert len(runs) == 4


def test_tolerances_that_the_function_sets_itself_do_not_matter() -> None:
    def trace_of(A: Any) -> Any:
        with us.linalg.tolerances(gauge=1e300):
            return us.sum(us.linalg.eigvalsh(A))

    f, runs = counted(trace_of)
    assert [f(us.tensor(np.eye(2))).item() for _ in range(3)] == [2.0] * 3
    assert len(runs) == 1


# --- what cannot be watched ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "draw",
    [
        np.random.default_rng(0).normal,
        random.Random(0).random,
        random.random,
        lambda: np.random.default_rng(np.random.randint(10**9)).normal(),  # noqa: NPY002
        iter(range(1, 100)).__next__,
    ],
    ids=["Generator", "Random", "random", "np.random", "iterator"],
)
def test_what_changes_when_it_is_read_is_traced_at_each_call(draw: Callable[[], float]) -> None:
    f = us.fragment(lambda v: v * draw())
    x = us.tensor(1.0)
    assert len({f(x).item() for _ in range(5)}) == 5


def test_a_tensor_that_is_found_nowhere_is_traced_at_each_call() -> None:
    # The interpreter does not tell what a closed-over generator frame holds.
    def hold(tensor: Any) -> Iterator[Any]:
        while True:
            sent = yield tensor
            tensor = tensor if sent is None else sent

    holder: Any = hold(us.tensor(2.0))
    next(holder)
    send, x = holder.send, us.tensor(3.0)
    f = us.fragment(lambda v: v * send(None))
    assert f(x).item() == 6.0
    send(us.tensor(5.0))
    assert f(x).item() == 15.0
    assert "traced at each call" in str(f.trace(x))


def test_a_trace_that_cannot_be_kept_says_why() -> None:
    source = np.random.default_rng(0)
    f = us.fragment(lambda v: v * source.normal())
    assert "traced at each call" in str(f.trace(us.tensor(1.0)))
    assert "source, a Generator, changes when it is read" in str(f.trace(us.tensor(1.0)))


# --- what the function changes itself --------------------------------------------------------------------------------


class Stateful:
    def __init__(self) -> None:
        self.w: Any = us.tensor(3.0)
        self.calls = 0
        self.rate = 1.0
        self.velocity: Any = None
        self.log: list[Any] = []
        self.table: dict[str, Any] = {}
        self.last: Any = None


def shrinks_its_weights(s: Stateful, v: Any) -> Any:
    s.w = s.w * 0.9
    return v * s.w


def takes_a_step(s: Stateful, v: Any) -> Any:
    s.w = s.w - 0.1 * v
    return s.w


def has_momentum(s: Stateful, v: Any) -> Any:
    s.velocity = v if s.velocity is None else 0.9 * s.velocity + v
    return s.velocity


def lowers_its_rate(s: Stateful, v: Any) -> Any:
    s.rate *= 0.5
    return v * s.rate


def counts_and_uses_the_count(s: Stateful, v: Any) -> Any:
    s.calls += 1
    return v * s.calls


def measures_its_log(s: Stateful, v: Any) -> Any:
    s.log.append(1)
    return v * len(s.log)


def counts_in_a_table(s: Stateful, v: Any) -> Any:
    s.table["calls"] = s.table.get("calls", 0) + 1
    return v * s.table["calls"]


@pytest.mark.parametrize(
    "function",
    [
        shrinks_its_weights,
        takes_a_step,
        has_momentum,
        lowers_its_rate,
        counts_and_uses_the_count,
        measures_its_log,
        counts_in_a_table,
    ],
)
def test_a_function_that_carries_state_from_call_to_call_is_refused(function: Callable[..., Any]) -> None:
    state = Stateful()
    with pytest.raises(SideEffectError, match="Pass the state as an argument and return it"):
        us.fragment(lambda v: function(state, v))(us.tensor(2.0))


def test_a_refusal_names_what_is_changed_and_the_line() -> None:
    state = Stateful()
    with pytest.raises(SideEffectError, match=r"reads 'w' and changes it, at test_watching.py:\d+: s.w = s.w \* 0.9"):
        us.fragment(lambda v: shrinks_its_weights(state, v))(us.tensor(2.0))


def counts(s: Stateful, v: Any) -> Any:
    s.calls += 1
    return v * 2


def logs(s: Stateful, v: Any) -> Any:
    s.log.append(v)
    return v * 2


def keeps_a_table_of_results(s: Stateful, v: Any) -> Any:
    if "four" not in s.table:
        s.table["four"] = us.tensor(4.0)
    return v * s.table["four"]


def makes_a_thing_when_it_is_needed(s: Stateful, v: Any) -> Any:
    if s.last is None:
        s.last = us.tensor(4.0)
    return v * s.last


def stores_what_it_reads_back(s: Stateful, v: Any) -> Any:
    s.last = v * 2
    return _reads_last(s)


def _reads_last(s: Stateful) -> Any:
    return s.last + 1


def builds_on_objects_of_its_own(s: Stateful, v: Any) -> Any:
    own = Stateful()
    own.w = own.w * v
    own.log += [own.w, v]
    return shrinks_its_weights(own, v) + sum(own.log)


@pytest.mark.parametrize(
    "function",
    [
        counts,
        logs,
        keeps_a_table_of_results,
        makes_a_thing_when_it_is_needed,
        stores_what_it_reads_back,
        builds_on_objects_of_its_own,
    ],
)
def test_side_effects_that_do_not_matter_are_accepted(function: Callable[..., Any]) -> None:
    state, plain = Stateful(), Stateful()
    f = us.fragment(lambda v: function(state, v))
    for data in (2.0, [1.0, 3.0], 4.0, [5.0, 6.0], 7.0):
        x = us.tensor(data)
        assert np.array_equal(f(x).eval(), function(plain, x).eval())
    assert f.traces == 2


def test_messages_that_are_written_to_a_file_do_not_trace_again(tmp_path: Any) -> None:
    with open(tmp_path / "log", "w") as stream:
        f, runs = counted(lambda v: (stream.write("traced"), v * 2)[1])
        for _ in range(3):
            f(us.tensor(3.0))
    assert len(runs) == 1


def test_a_cached_property_is_computed_while_tracing_and_then_watched() -> None:
    class Lazy:
        def __init__(self) -> None:
            self.w = us.tensor(2.0)

        @functools.cached_property
        def square(self) -> Any:
            return self.w * self.w

    lazy, x = Lazy(), us.tensor(3.0)
    f, runs = counted(lambda v: v * lazy.square)
    assert [f(x).item() for _ in range(3)] == [12.0] * 3 and len(runs) == 2
    lazy.w = us.tensor(5.0)
    del lazy.square
    assert f(x).item() == 75.0


# --- beside other tools ----------------------------------------------------------------------------------------------


def test_a_profiler_of_the_users_sees_the_function_and_stays() -> None:
    seen = []

    def profile(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            seen.append(frame.f_code.co_name)

    def weighs(v: Any) -> Any:
        return v * 2

    sys.setprofile(profile)
    try:
        us.fragment(weighs)(us.tensor(2.0))
        assert sys.getprofile() is profile
    finally:
        sys.setprofile(None)
    assert "weighs" in seen


def test_a_profile_in_c_goes_on() -> None:
    import cProfile

    def weighs(v: Any) -> Any:
        return v * 2

    def afterwards() -> None:
        pass

    profile = cProfile.Profile()
    profile.enable()
    us.fragment(weighs)(us.tensor(2.0))
    afterwards()
    profile.disable()
    assert any(getattr(entry.code, "co_name", "") == "afterwards" for entry in profile.getstats())


def test_threads_that_trace_at_once_do_not_disturb_each_other() -> None:
    models = [Model() for _ in range(4)]
    wrong = []

    def work(m: Model) -> None:
        f = us.fragment(lambda v: m.weigh(v))
        for k in range(30):
            m.w = us.tensor(float(k))
            if f(us.tensor(3.0)).item() != 3.0 * k:
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(m,)) for m in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
