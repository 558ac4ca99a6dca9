"""The short way of a step that is recognised: the same graph, bits and counts as in the general way."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool import _core
from unspool._engine.default import default_engine
from unspool._fragments.call import Call, live_calls
from unspool._ops.op import Op
from unspool.errors import KernelError, ShapeError

WIDE = np.random.default_rng(7).normal(size=(24, 24)) / 5.0
NARROW = np.array([0.5, -1.25, 2.0])

Body = Callable[[us.Tensor, int], tuple[us.Tensor, us.Tensor]]


class _Refusing:
    """Runs nothing: everything goes the general way."""

    def run(self, targets: Any) -> bool:
        return False


@contextmanager
def general_way() -> Iterator[None]:
    """Let no step take the short way."""
    engine = default_engine()
    runner = engine.runner
    engine.runner = _Refusing()  # type: ignore[assignment]
    _core.bind(runner=_Refusing())  # type: ignore[arg-type]
    try:
        yield
    finally:
        engine.runner = runner
        _core.bind(runner=runner)


def plain(x: us.Tensor, k: int) -> tuple[us.Tensor, us.Tensor]:
    y = x - 0.01 * us.sin(x)
    return y, us.sum(y)


def wide(x: us.Tensor, k: int) -> tuple[us.Tensor, us.Tensor]:
    y = us.tanh(x @ x.T) + x
    return y, us.max(y)


def changing(x: us.Tensor, k: int) -> tuple[us.Tensor, us.Tensor]:
    y = x * (1.0 + 0.001 * k) + (us.cos(x) if k % 3 else us.exp(-x))
    return y / us.linalg.norm(y), us.sum(y * y)


def factorised(x: us.Tensor, k: int) -> tuple[us.Tensor, us.Tensor]:
    q, r = us.linalg.qr(x)
    return q + 0.1 * x, us.sum(r)


def dropped(x: us.Tensor, k: int) -> tuple[us.Tensor, us.Tensor]:
    y = us.sin(x)
    us.sum(us.exp(y) * 2.0).eval()
    return y + 0.5 * x, us.mean(x)


def on_constants(x: us.Tensor, k: int) -> tuple[us.Tensor, us.Tensor]:
    y = x * us.sum(us.ones(3)) / 3.5
    return y, us.sum(y)


BODIES: dict[str, tuple[Body, Any]] = {
    "plain": (plain, NARROW),
    "wide": (wide, WIDE),
    "changing": (changing, NARROW),
    "factorised": (factorised, WIDE[:6, :6]),
    "dropped": (dropped, NARROW),
    "on constants": (on_constants, NARROW),
}


def looped(body: Body, start: Any, steps: int = 150) -> dict[str, Any]:
    """Run a loop that reads a number in each step, and say all that may be said of it."""
    before = us.engine_stats()
    x = first = us.tensor(start)
    numbers = []
    for k in range(steps):
        x, number = body(x, k)
        numbers.append(float(number))
    waiting = len(default_engine().queue.alive())
    loss = us.sum(x * x)
    gradient = loss.grad(first)
    calls = [call for call in live_calls() if call.depth]
    after = us.engine_stats()
    counts = {name: getattr(after, name) - getattr(before, name) for name in ("evaluations", "kernel_calls", "calls")}
    shapes = [(c.depth, len(c.inputs), [h is not None for h in c.handles], kept(c)) for c in calls]
    values = [value.tobytes() for value in us.eval([x, loss, gradient])]
    return {"numbers": numbers, "values": values, "calls": shapes, "waiting": waiting, **counts}


def kept(call: Call) -> list[bytes | None]:
    """Return what a call keeps for derivatives."""
    return [None if value is None else value.tobytes() for value in call.value or ()]


@pytest.mark.parametrize("name", BODIES)
def test_the_short_way_makes_what_the_general_way_makes(name: str) -> None:
    body, start = BODIES[name]
    looped(body, start)  # it is known from now on
    gc.collect()
    short = looped(body, start)
    gc.collect()
    with general_way():
        general = looped(body, start)
    assert short == general
    assert short["calls"]


def test_a_step_that_is_known_takes_the_short_way_and_one_that_is_not_does_not() -> None:
    runner = default_engine().runner
    took = []
    x = us.tensor(NARROW)
    for _ in range(6):
        x = us.tanh(us.sin(x) * 0.5)
        top = us.max(x)
        took.append(runner.run([top]))
        float(top)
    assert took == [False, False, True, True, True, True]


def test_who_looks_on_sees_every_kernel_of_a_step_that_is_known() -> None:
    def step(x: us.Tensor) -> us.Tensor:
        x = us.tanh(us.sin(x) * 0.5)
        float(x[0])
        return x

    x = us.tensor(NARROW)
    for _ in range(5):
        x = step(x)
    with us.debug.count_kernels() as kernels:
        step(x)
    assert kernels.total == 4


def test_a_step_that_is_known_leaves_a_budget_to_the_general_way() -> None:
    def step(x: us.Tensor) -> us.Tensor:
        x = us.tanh(us.sin(x) * 0.5)
        assert default_engine().runner.run([x[0]]) is False
        float(x[0])
        return x

    x = us.tensor(NARROW)
    with us.memory("1MB"):
        for _ in range(5):
            x = step(x)


def test_a_kernel_that_fails_in_a_step_that_is_known_names_its_line() -> None:
    def halve(a: Any) -> Any:
        if a[0] < 0.1:
            raise ValueError("too small")
        return a * 0.5

    half = us.op("running_halved", kernel=halve, vjp=(lambda ct, out, a: ct * 0.5,), needs=(), replace=True)

    def run() -> None:
        x = us.tensor([1.0])
        for _ in range(10):
            x = half(x) + 0.0
            float(x[0])

    with pytest.raises(KernelError, match=r"running_halved.*\n?.*test_running"):
        run()


def test_numbers_are_what_the_values_are() -> None:
    assert float(us.tensor([2.5])) == 2.5
    assert float(us.tensor(3)) == 3.0 and type(float(us.tensor(3))) is float
    assert float(us.tensor(True)) == 1.0
    assert np.isnan(float(us.tensor(np.nan)))
    assert float(us.tensor(np.float32(0.1))) == float(np.float32(0.1))
    with pytest.raises(ShapeError, match="one element"):
        float(us.tensor([1.0, 2.0]))
    with pytest.raises(us.errors.DTypeError, match="complex"):
        float(us.tensor(1j))


def test_constants_are_told_apart_by_their_bits_and_found_again() -> None:
    x = us.tensor(NARROW)
    many = [x * (0.1 + k) for k in range(200)]
    assert all(x * (0.1 + k) is many[k] for k in range(200))
    assert x * 0.0 is not x * -0.0
    assert [float(us.sum(x * c)) for c in (0.1, 0.1)] == [float(np.sum(NARROW * 0.1))] * 2
    del many
    again = x * 0.1
    assert again is x * 0.1 and again is 0.1 * x


# --- what waits -------------------------------------------------------------------------------------------------------


def test_what_dies_while_it_waits_leaves_and_what_is_left_keeps_its_order() -> None:
    queue = default_engine().queue
    queue.flush()
    x = us.tensor(NARROW)

    def piece(k: int) -> us.Tensor:
        y = us.exp(us.sin(x * float(k)))
        y.eval()
        return y

    held = [piece(k) for k in range(20)]
    mine = [y.piece for y in held]
    assert [p for p in queue.alive() if p in mine] == mine
    length = len(queue)
    del mine[::2], held[::2]
    gc.collect()
    assert [p for p in queue.alive() if any(p is m for m in mine)] == mine
    assert len(queue) == length  # it has not been looked after
    queue.fold_chosen(lambda piece: False, None)
    assert [p for p in queue.alive() if any(p is m for m in mine)] == mine
    queue.leave(mine[3])
    assert [p for p in queue.alive() if any(p is m for m in mine)] == [*mine[:3], *mine[4:]]
    queue.pad(100)
    assert [p for p in queue.alive() if any(p is m for m in mine)] == [*mine[:3], *mine[4:]]


def test_what_waits_outlives_the_queue_it_waits_in() -> None:
    engine = us.Engine()
    x = us.tensor(NARROW)
    held = [us.exp(us.sin(x * float(k))) for k in range(10)]
    for y in held:
        engine.eval(y)
    expected = [y.eval().copy() for y in held]
    del engine
    gc.collect()
    assert all((y.eval() == e).all() for y, e in zip(held, expected, strict=True))
    del held[::2], y
    gc.collect()
    assert us.sum(held[0]).grad(x).eval().shape == (3,)


def test_a_function_that_fails_while_it_is_asked_what_to_fold_loses_nothing() -> None:
    queue = default_engine().queue
    x = us.tensor(NARROW)
    held = [us.exp(us.sin(x * float(k))) for k in range(5)]
    for y in held:
        y.eval()
    before = queue.alive()

    def fail(piece: Any) -> bool:
        raise ArithmeticError("no")

    with pytest.raises(ArithmeticError):
        queue.fold_chosen(fail, None)
    assert queue.alive() == before
    del y


def test_rows_that_are_joined_in_any_order_are_one() -> None:
    queue = default_engine().queue
    x = us.tensor(NARROW)
    starts = [us.exp(us.sin(x * float(k))) for k in range(40)]
    for y in starts:
        y.eval()
    rows = {id(y.piece.row.whole()) for y in starts}
    assert len(rows) == 40
    while len(starts) > 1:  # a tree of pairs
        starts = [us.tanh(a + b) * 0.5 for a, b in zip(starts[::2], starts[1::2], strict=False)] + (
            [starts[-1]] if len(starts) % 2 else []
        )
        for y in starts:
            y.eval()
    row = starts[0].piece.row.whole()
    assert row.depth == starts[0].piece.depth == 7
    assert sum(piece.row.whole() is row for piece in queue.alive()) >= 1
    del y


# --- the collector ----------------------------------------------------------------------------------------------------


def test_the_collector_finds_cycles_that_go_through_the_inputs_of_nodes() -> None:
    class Holder:
        """A parameter that refers to a tensor made from it."""

        tensor: Any = None

        def __hash__(self) -> int:
            return 3

        def __eq__(self, other: object) -> bool:
            return self is other

    held = Op("running_holder", infer=lambda x, **params: (x.shape, x.dtype), kernel=lambda x, **params: x)
    gc.collect()
    before = _core.count()
    holder = Holder()
    y = _core.apply(held, us.tensor(NARROW), holder=holder)
    holder.tensor = us.exp(us.sin(y) + y)
    assert _core.count() > before
    inputs = y.inputs  # who holds the tuple keeps what is in it
    del y, holder
    gc.collect()
    assert inputs[0].shape == (3,)
    del inputs
    gc.collect()
    assert _core.count() == before


def test_steps_that_repeat_leave_no_references_behind() -> None:
    def run() -> None:
        x = us.tensor(NARROW)
        for _ in range(300):
            x = us.tanh(us.sin(x) * 0.5)
            float(x[0])

    run()
    watched = [None, (), 0, NARROW.dtype]  # which every step refers to
    gc.collect()
    before = [sys.getrefcount(thing) for thing in watched]
    count = _core.count()
    for _ in range(3):
        run()
    gc.collect()
    assert _core.count() == count
    assert all(abs(sys.getrefcount(thing) - then) < 200 for thing, then in zip(watched, before, strict=True))
