"""The native backend: the bits of the NumPy backend, program by program, layout by layout, dtype by dtype."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.samples import Sample, all_samples
from unspool._engine.backends import native, native_indexing, native_linalg, native_random, native_spaces
from unspool._engine.backends.base import Lowered
from unspool._engine.backends.native import compile_program
from unspool._engine.backends.native_backend import NATIVE, _OtherLayouts
from unspool._engine.backends.numpy_backend import NUMPY, NumpyBackend
from unspool._engine.planning import bind, lower
from unspool._fragments.fragment import Fragment, capture
from unspool._ops.op import lookup
from unspool.errors import UnspoolError

pytestmark = pytest.mark.skipif(native.WHY_NOT is not None, reason=f"the native backend does not run: {native.WHY_NOT}")


FAMILIES = [native_indexing, native_linalg, native_random, native_spaces]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_the_rules_of_a_family_are_found_by_the_first_op_of_it(
    family: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, rule in family.RULES.items():
        monkeypatch.setattr(native, "_RULES", {})
        assert native.rule_of(lookup(name)) is rule


class Calls:
    """Stands where a program would run in Python, and counts how often it wanted to."""

    def __init__(self, run: Callable[..., Any]) -> None:
        self.count = 0
        self._run = run

    def __call__(self, *arrays: Any) -> Any:
        self.count += 1
        return self._run(*arrays)


def both_ways(fragment: Fragment, arrays: Sequence[Any]) -> tuple[Any, Any, Calls] | None:
    """Return a program and generated code for a fragment on arrays like these; None if there is no program."""
    bound = bind(fragment, [np.shape(a) for a in arrays])
    steps, outputs = lower(fragment, bound)
    calls = Calls(NUMPY.compile(Lowered(fragment, bound, steps, outputs)))
    program = compile_program(fragment, bound, steps, outputs, calls, [a.strides for a in arrays])
    return None if program is None else (program, calls._run, calls)


def bits_of(array: Any) -> bytes:
    """Return the bits of an array; any NaN is as good as another, and which one it is processors decide."""
    parts = np.ascontiguousarray(array)
    if parts.dtype.kind in "fc":
        parts = (
            parts.view(parts.real.dtype)
            if parts.dtype.kind == "c" and parts.shape
            else np.array([parts.real, parts.imag])
        )
        parts = np.where(np.isnan(parts), np.nan, parts)
    return parts.tobytes()


def assert_same(ours: Sequence[Any], theirs: Sequence[Any]) -> None:
    """Check that arrays have the same bits, and lie in memory in the same order."""
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert bits_of(a) == bits_of(b)
        if a.size > 1 and min(a.shape) > 1:
            assert (a.flags.c_contiguous, a.flags.f_contiguous) == (b.flags.c_contiguous, b.flags.f_contiguous)


def fragment_of(function: Callable[..., Any], arrays: Sequence[Any], *, adjoint: bool) -> tuple[Fragment, list[Any]]:
    """Return what a function does, or its gradient, as a fragment, and the values at its inputs."""
    leaves = [us.tensor(a) for a in arrays]
    result = function(*leaves)
    results = list(result) if isinstance(result, tuple | list) else [result]
    if adjoint:
        floats = [x for x in leaves if x.dtype.kind in "fc"]
        losses = [us.sum(us.real(r * us.conj(r))) for r in results if r.dtype.kind in "fc"]
        results = [g for g in us.cotangents(losses[0], floats) if g is not None]
    captured = capture(leaves, results, keep_residuals=not adjoint)
    return captured.fragment, [np.asarray(node.eval()) for node in captured.inputs]


def strided(array: Any) -> Any:
    """Return the same numbers with gaps between them."""
    wide = np.zeros([2 * n for n in array.shape], array.dtype)
    view = wide[tuple(slice(None, None, 2) for _ in array.shape)]
    view[...] = array
    return view


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "strided": strided,
    "broadcast": lambda a: np.broadcast_to(np.array(a.flat[0] if a.size else 0, a.dtype), a.shape),
}

SAMPLES = [s for s in all_samples() if all(np.asarray(a).dtype.kind in "fcib" for a in s.args)]


def in_single_precision(array: Any) -> Any:
    return array.astype({"f": np.float32, "c": np.complex64}.get(array.dtype.kind, array.dtype))


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_every_op_has_the_bits_and_the_layout_of_numpy(sample: Sample) -> None:

    arrays = [np.asarray(a) for a in sample.args]
    for convert in (np.asarray, in_single_precision):
        for adjoint in (False, True):
            try:
                fragment, values = fragment_of(sample.function, [convert(a) for a in arrays], adjoint=adjoint)
            except (UnspoolError, IndexError):
                continue  # a result without derivative, or not at this point
            for lay in LAYOUTS.values():
                given = [lay(v) if v.shape else v for v in values]
                compare(fragment, given)


def compare(fragment: Fragment, given: Sequence[Any]) -> bool:
    """Check a program against generated code; tell whether there was a program."""
    try:
        made = both_ways(fragment, given)
        if made is None:
            return False
        program, run, _ = made
        with np.errstate(all="ignore"):
            theirs = run(*given)
    except UnspoolError:
        return False  # numbers that the op refuses
    with np.errstate(all="ignore"):
        for _ in range(2):
            assert_same(program(*given), theirs)
    return True


# --- random programs --------------------------------------------------------------------------------------------------

UNARY = (us.sin, us.tanh, us.exp, us.abs, us.sqrt, us.negative, us.square, us.sigmoid, us.conj, us.real, us.cos)
BINARY = (us.add, us.subtract, us.multiply, us.divide, us.maximum, us.power, us.arctan2)


def random_program(generator: np.random.Generator) -> tuple[Callable[..., Any], list[Any]]:
    """Return a function of two matrices, two vectors and a number, and arguments for it."""
    n, m = generator.integers(1, 9, 2)
    kinds = ["d", "f", "D", "F"]
    char = kinds[generator.choice(4, p=[0.6, 0.15, 0.15, 0.1])]
    shapes = [(n, m), (m, n), (m,), (n,), ()]
    args = [generator.normal(size=s).astype(char) for s in shapes]
    if char in "DF":
        args[0] = args[0] + np.array(1j, char) * generator.normal(size=(n, m)).astype(char.lower())
    plan = generator.integers(0, 1 << 30, 40)

    def function(*leaves: Any) -> list[Any]:
        values = list(leaves)
        for number in plan[:14]:
            choice, a, b = number % 11, values[number // 11 % len(values)], values[number // 191 % len(values)]
            try:
                values.append(_applied(int(choice), int(number), a, b))
            except UnspoolError:
                continue
        return values[5:][-4:]

    return function, args


def _applied(choice: int, number: int, a: Any, b: Any) -> Any:
    if choice < 3:
        return UNARY[number // 7 % len(UNARY)](a)
    if choice < 6:
        return BINARY[number // 7 % len(BINARY)](a, b)
    if choice == 6:
        return a @ b
    if choice == 7:
        return us.sum(a, axis=None if number % 3 else 0)
    if choice == 8:
        return a.T if len(a.shape) == 2 else a[::2]
    if choice == 9:
        return us.where(us.real(a) > 0, a, b)
    return us.concat([a, a], axis=-1) if a.shape else us.stack([a, b])


@pytest.mark.parametrize("block", range(8))
def test_random_programs_have_the_bits_of_numpy(block: int) -> None:
    native_ones = 0
    for seed in range(60):
        generator = np.random.default_rng([block, seed])
        function, args = random_program(generator)
        for adjoint in (False, True):
            try:
                fragment, values = fragment_of(function, args, adjoint=adjoint)
            except (UnspoolError, IndexError):
                continue
            for lay in (np.ascontiguousarray, np.asfortranarray):
                native_ones += compare(fragment, [lay(v) if v.shape else v for v in values])
    assert native_ones > 60


# --- sums -------------------------------------------------------------------------------------------------------------


SUMMED = [(1,), (7,), (129,), (8, 16), (3, 5, 7), (1, 9), (9, 1), (4000,), (50, 60)]
SHORT_ROWS = [(6, 4, 8), (3, 5, 64), (3, 5, 65), (5, 128), (5, 130), (2, 3, 4, 16)]


@pytest.mark.parametrize("char", "fdFD")
@pytest.mark.parametrize("shape", [*SUMMED, *SHORT_ROWS], ids=str)
def test_sums_over_any_axes_have_the_bits_of_numpy(shape: tuple[int, ...], char: str) -> None:
    x = np.random.default_rng(len(shape)).normal(size=shape).astype(char)
    x.flat[0] = -0.0
    axes = [None, *range(len(shape)), *[(0, a) for a in range(1, len(shape))]]
    for axis in axes:
        for reduce in (us.sum, us.prod):
            fragment, values = fragment_of(lambda t, a=axis, f=reduce: f(t, axis=a), [x], adjoint=False)
            assert compare(fragment, values)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 17, 100])
def test_extremes_have_numpys_signs_of_zero_and_its_nans(n: int) -> None:
    for values in ([0.0, -0.0] * n, [-0.0, 0.0] * n, [np.nan, 1.0] * n, [1.0] * n + [np.nan], np.arange(n) * -1.0):
        for reduce in (us.max, us.min):
            fragment, given = fragment_of(lambda t, f=reduce: f(t), [np.array(values)], adjoint=False)
            compare(fragment, given)


@pytest.mark.parametrize("char", "fdl")
@pytest.mark.parametrize(
    "shape", [(1, 9), (9, 1), (2, 8), (5, 17), (17, 5), (3, 4, 5), (2, 3, 40), (40, 3, 2)], ids=str
)
def test_extremes_over_an_axis_have_numpys_signs_of_zero_and_its_nans(shape: tuple[int, ...], char: str) -> None:
    special = [[0.0, -0.0, -0.0], [0.0, -1.0, np.nan, 2.0, -0.0], [-3.0, 5.0, 4.0, -np.inf, np.inf, 1.0, 2.0]]
    for values in special:
        x = np.resize(np.nan_to_num(np.clip(values, -9, 9)) if char == "l" else np.array(values), shape).astype(char)
        for axis in (*range(len(shape)), (0, 1)):
            for reduce in (us.max, us.min):
                fragment, given = fragment_of(lambda t, a=axis, f=reduce: f(t, axis=a), [x], adjoint=False)
                assert compare(fragment, given)


# --- products ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("char", "fdFD")
@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 16, 33, 64])
@pytest.mark.parametrize("m", [1, 2, 5, 8, 31, 64])
def test_products_have_the_bits_of_numpy(n: int, m: int, char: str) -> None:
    generator = np.random.default_rng([n, m])
    a, b = (generator.normal(size=(n, m)).astype(char) for _ in range(2))
    x, y = generator.normal(size=m).astype(char), generator.normal(size=n).astype(char)
    if char in "DF":
        a, x = a * (1 + 2j), x * (2 - 1j)

    def function(a: Any, b: Any, x: Any, y: Any) -> list[Any]:
        return [a @ x, y @ a, a @ b.T, a.T @ b, a.T @ y, x @ b.T, x @ x, us.outer(y, x), a @ a.T]

    fragment, values = fragment_of(function, [a.astype(char), b, x.astype(char), y], adjoint=False)
    for lay in LAYOUTS.values():
        given = [lay(v) for v in values]
        compare(fragment, given)
        assert compare(fragment, [np.ascontiguousarray(v) for v in values])


# --- loops ------------------------------------------------------------------------------------------------------------


SPECIAL = (0.0, -0.0, 1.0, -1.5, 1e308, -1e308, 5e-324, 1e-200, np.inf, -np.inf, np.nan, 3.0)
ARITHMETIC: tuple[Callable[[Any, Any], Any], ...] = (us.add, us.subtract, us.multiply, us.divide)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 100, 128, 129, 1000])
def test_arithmetic_on_doubles_has_the_bits_of_numpy_for_all_special_values(n: int) -> None:
    values = np.resize(np.array(SPECIAL), n)
    others = np.resize(np.array((*SPECIAL[::-1], 2.5)), n)

    def function(x: Any, y: Any, z: Any) -> list[Any]:
        pairs = [f(a, b) for f in ARITHMETIC for a, b in ((x, y), (x, z), (z, y), (z, z))]
        return [*pairs, -x, abs(x), us.square(x), us.sqrt(x), us.sum(x), us.sum(us.sqrt(abs(y) + 1e-3) * 1e-3)]

    for scalar in SPECIAL:
        fragment, given = fragment_of(function, [values, others, np.array(scalar)], adjoint=False)
        for lay in (np.asarray, strided):
            assert compare(fragment, [lay(a) if a.shape else a for a in given])


@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 16, 23, 64, 65, 200])
def test_arithmetic_on_rows_has_the_bits_of_numpy_for_all_special_values(n: int) -> None:
    whole = np.resize(np.array((*SPECIAL, 7.0)), (3, 5, n))
    shapes = [(3, 5, 1), (3, 1, n), (5, n), (5, 1), (3, 1, 1)]
    parts = [np.resize(np.array((*SPECIAL[::-1], 2.5)), shape) for shape in shapes]

    def function(x: Any, *others: Any) -> list[Any]:
        pairs = [(x, y) for y in others] + [(y, x) for y in others]
        pairs += [(others[0], others[1]), (others[1], others[2]), (others[2], others[4])]
        return [f(a, b) for f in ARITHMETIC for a, b in pairs] + [us.where(y > 0, x, y) for y in others]

    fragment, given = fragment_of(function, [whole, *parts], adjoint=False)
    for lay in (np.ascontiguousarray, strided):
        assert compare(fragment, [lay(a) for a in given])


def steps(a: Any, x: Any) -> dict[str, Callable[[Any], Any]]:
    """Return bodies of loops over a vector."""
    return {
        "power": lambda s: (a @ s) / us.linalg.norm(a @ s),
        "tanh": lambda s: us.tanh(a @ s) + 0.1 * x,
        "index": lambda s: s.at[2].set(s[1] * 0.5 + us.sum(a[0] * s)),
        "gate": lambda s: us.sigmoid(a @ s) * s + us.where(s > 0, s, 0.3 * s),
        "solve": lambda s: us.linalg.solve(a + 4 * us.eye(5), s),
    }


@pytest.fixture
def in_python(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def switch() -> None:
        monkeypatch.setattr(native, "WHY_NOT", "a test")
        us.clear_caches()

    return switch


@pytest.mark.parametrize("name", ["power", "tanh", "index", "gate", "solve"])
def test_loops_their_gradients_and_hessians_have_the_bits_of_python(name: str, in_python: Callable[[], None]) -> None:
    def run() -> list[bytes]:
        generator = np.random.default_rng(3)
        a, x = us.tensor(0.4 * generator.normal(size=(5, 5))), us.tensor(generator.normal(size=5))
        state, _ = us.iterate(steps(a, x)[name], x, max_steps=30)
        loss = us.sum(state * state * np.arange(1.0, 6.0))
        gradients = loss.grad([a, x])
        second = us.sum(gradients[0] * gradients[0]).grad(x)
        return [np.asarray(v).tobytes() for v in us.eval([state, loss, *gradients, second])]

    us.clear_caches()
    natively = run()
    in_python()
    assert natively == run()


def with_gaps(shape: tuple[int, ...]) -> Any:
    return us.tensor(np.arange(2.0 * np.prod(shape)).reshape(*shape[:-1], 2 * shape[-1]))[..., ::2]


# What reaches the steps of a loop's adjoint from outputs of shape (12, 2, 3), and from its last state.
COTANGENTS: dict[str, Callable[[Any, Any], Any]] = {
    "rows of one number": lambda ys, y: us.sum(ys) * 0.5,
    "rows that repeat an element": lambda ys, y: us.sum(us.sum(ys, axis=(1, 2)) * np.arange(1.0, 13.0)),
    "rows in columns": lambda ys, y: us.sum(us.permute_dims(ys, (2, 0, 1)) * np.arange(72.0).reshape(3, 12, 2)),
    "rows with gaps": lambda ys, y: us.sum(us.permute_dims(ys, (1, 0, 2)) * with_gaps((2, 12, 3))),
    "a state of one number": lambda ys, y: us.sum(y),
    "a state that repeats a row": lambda ys, y: us.sum(us.sum(y, axis=0) * np.arange(3.0)),
    "a state with gaps": lambda ys, y: us.sum(y * with_gaps((2, 3))),
}


@pytest.fixture
def generated(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list of the loops that were compiled as Python from now on."""
    found: list[Any] = []
    compile_loop = NumpyBackend.compile_loop

    def compiled(self: Any, *given: Any) -> Any:
        found.append(given)
        return compile_loop(self, *given)

    monkeypatch.setattr(NumpyBackend, "compile_loop", compiled)
    us.clear_caches()
    return found


@pytest.mark.parametrize("name", COTANGENTS)
def test_steps_read_rows_and_states_of_any_layout_natively_with_the_bits_of_python(
    name: str, in_python: Callable[[], None], generated: list[Any]
) -> None:
    def run() -> bytes:
        x = us.tensor(np.linspace(-1.0, 1.0, 6).reshape(2, 3))
        y, _, ys = us.iterate(
            lambda s: (us.tanh(s) - 0.1 * us.sum(s, axis=0), us.sin(s)), x, max_steps=12, has_outputs=True
        )
        return np.asarray(COTANGENTS[name](ys, y).grad(x)).tobytes()

    natively = run()
    assert not generated
    in_python()
    assert run() == natively
    assert generated


# What all steps read, of shape (2, 3).
SHARED: dict[str, Callable[[], Any]] = {
    "columns": lambda: us.permute_dims(us.tensor(np.linspace(-1.0, 1.0, 6).reshape(3, 2)) * 0.3, (1, 0)),
    "with gaps": lambda: with_gaps((2, 3)),
    "one number": lambda: us.broadcast_to(us.tensor(0.3) * 0.5, (2, 3)),
    "beginning anywhere": lambda: us.reshape(us.tensor(np.linspace(-1.0, 1.0, 7))[1:], (2, 3)),
}


@pytest.mark.parametrize("name", SHARED)
def test_steps_read_what_they_share_in_any_layout_natively_with_the_bits_of_python(
    name: str, in_python: Callable[[], None], generated: list[Any]
) -> None:
    def run() -> list[bytes]:
        shared, x = SHARED[name](), us.tensor(np.linspace(0.5, 1.0, 3))
        y, _ = us.iterate(lambda s: us.tanh((shared @ s) @ shared) + us.sum(shared, axis=0), x, max_steps=12)
        return [np.asarray(v).tobytes() for v in us.eval([y, us.sum(y * y).grad(x)])]

    natively = run()
    assert not generated
    in_python()
    assert run() == natively


def test_a_state_that_repeats_elements_is_carried_natively_with_the_bits_of_python(
    in_python: Callable[[], None], generated: list[Any]
) -> None:
    def run() -> list[bytes]:
        x, weights = us.tensor(np.linspace(0.5, 1.0, 6).reshape(2, 3)), np.linspace(1.0, 2.0, 3)
        y, _ = us.iterate(lambda s: us.broadcast_to(us.sum(us.tanh(s) * weights, axis=0), (2, 3)), x, max_steps=12)
        return [np.asarray(v).tobytes() for v in us.eval([y, us.sum(y @ weights).grad(x)])]

    natively = run()
    assert not generated
    in_python()
    assert run() == natively


def test_a_loop_stops_when_its_condition_holds() -> None:
    x, made = us.iterate(lambda s: 0.5 * s, us.tensor([1.0, 2.0]), until=lambda new: us.max(new) < 1e-3)
    assert made == 11
    np.testing.assert_array_equal(x, np.array([1.0, 2.0]) * 0.5**11)


def test_registers_are_assigned_all_at_once() -> None:
    (a, b, c), _ = us.iterate(lambda s: (s[1], s[0], s[0] + s[2]), tuple(map(us.tensor, (1.0, 2.0, 0.0))), max_steps=3)
    assert [float(a), float(b), float(c)] == [2.0, 1.0, 4.0]


# --- what may go wrong ------------------------------------------------------------------------------------------------


def program_of(function: Callable[..., Any], *arrays: Any) -> tuple[Any, Calls]:
    fragment, values = fragment_of(function, arrays, adjoint=False)
    made = both_ways(fragment, values)
    assert made is not None
    return made[0], made[2]


def test_arrays_of_another_layout_or_dtype_run_in_python() -> None:
    x = np.arange(12.0).reshape(3, 4)
    program, calls = program_of(lambda t: us.tanh(t) + 1.0, x)
    np.testing.assert_array_equal(program(np.asfortranarray(x))[0], np.tanh(x) + 1.0)
    assert calls.count == 1
    program(x)
    assert calls.count == 1


def test_arrays_of_a_layout_met_before_find_their_program_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    fragment, (x, y) = fragment_of(lambda x, y: us.sum(x @ y, 0), [np.ones((3, 4)), np.ones((4, 5))], adjoint=False)
    bound = bind(fragment, [x.shape, y.shape])
    run = NATIVE.compile(Lowered(fragment, bound, *lower(fragment, bound)))
    layouts = [(x, y), (np.asfortranarray(x), y), (strided(x), np.asfortranarray(y)), (strided(x), strided(y))]
    expected = [run(*given) for given in layouts]
    asked: list[Any] = []
    monkeypatch.setattr(_OtherLayouts, "__call__", lambda self, *arrays: asked.append(arrays))
    for given, theirs in zip(layouts, expected, strict=True):
        assert_same(run(*given), theirs)
    assert not asked
    run(x, y[::-1])
    assert len(asked) == 1


def test_what_a_program_returned_is_never_written_to_and_neither_are_its_arguments() -> None:
    x = np.arange(6.0)
    x.setflags(write=False)
    program, _ = program_of(lambda t: us.sin(t) * 2.0, x)
    first = program(x)[0]
    before = first.copy()
    program(np.arange(6.0) + 1)
    np.testing.assert_array_equal(first, before)


def test_an_output_that_is_an_input_is_that_array() -> None:
    x = np.arange(3.0)
    program, _ = program_of(lambda t: [us.sin(t), t], x)
    assert any(result is x for result in program(x))


@pytest.mark.parametrize("of", ["an input", "a temporary"])
def test_an_output_with_gaps_is_a_view_as_in_python(of: str) -> None:
    for kept in (3, 5):  # less than half of the memory behind it, which is copied, and more
        x = us.tensor(np.arange(36.0).reshape(6, 6))
        y = x if of == "an input" else us.sin(x)
        fragment = capture([x], [y[:, :kept], y[::2, 1:]]).fragment
        made = both_ways(fragment, [np.asarray(x.eval())])
        assert made is not None
        (ours, _), (theirs, _) = made[0](x.eval()), made[1](x.eval())
        assert ours.strides == theirs.strides
        assert (ours.base is None, ours.flags.writeable) == (theirs.base is None, theirs.flags.writeable)
        assert_same([ours], [theirs])
        assert made[2].count == 0


@pytest.mark.parametrize("of", ["an input", "a temporary"])
@pytest.mark.parametrize("kept", [11, 30])
def test_an_output_with_gaps_is_read_as_it_leaves(kept: int, of: str) -> None:
    # Vectors without gaps are multiplied in another way than those with gaps.
    def function(x: Any) -> list[Any]:
        part = (x if of == "an input" else us.sin(x))[:kept, 0]
        return [part, us.sum(part * 1.0), us.vecdot(part, part), us.outer(part, part) @ part]

    random = np.random.default_rng(2).normal(size=(40, 4))
    fragment, given = fragment_of(function, [random], adjoint=False)
    assert compare(fragment, given)
    # An input that is a view of a larger array.
    wide = np.random.default_rng(3).normal(size=(900, 4))
    compare(fragment, [wide[:40]])


def test_a_position_outside_of_its_axis_is_the_error_it_always_was() -> None:
    table = us.tensor(np.arange(4.0))
    for k in range(8):
        row = table[us.tensor(k % 4)] * 2.0 + us.sin(table[us.tensor(k % 4)])
        float(row)
    with pytest.raises(us.errors.IndexRangeError, match="index 4 is out of range"):
        float(table[us.tensor(4)] * 2.0 + us.sin(table[us.tensor(4)]))


def test_errors_of_call_backs_come_through() -> None:
    matrix = np.eye(3)
    with pytest.raises(us.errors.UnspoolError, match="singular"):
        us.iterate(lambda s: us.linalg.solve(us.tensor(matrix) * us.sum(s), s) * 0.0, us.ones(3), max_steps=4)[0].eval()


def test_threads_run_one_program_at_once() -> None:
    x = np.linspace(0.0, 1.0, 2000)
    program, _ = program_of(lambda t: us.tanh(us.sin(t) * 2.0) + t * t, x)
    expected = program(x)[0].tobytes()
    wrong: list[int] = []

    def work() -> None:
        for i in range(200):
            if program(x)[0].tobytes() != expected:
                wrong.append(i)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_program_says_what_is_wrong_with_its_tables() -> None:
    from unspool._native import Program

    with pytest.raises(TypeError):
        Program([], [])
    with pytest.raises(ValueError, match="no such slot"):
        Program([], [], (0,), (), 0, None)
    with pytest.raises(ValueError, match="few of the slots"):
        Program([], [(0, (3,), (), 1, (), (), (), None)], (), (), 0, None)


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    us.clear_caches()


def test_a_loop_is_interrupted_while_it_runs() -> None:
    """Within a signal's time, although no Python runs between its steps; what was there is still there."""
    x = us.tensor(np.linspace(0.0, 1.0, 64))

    def interrupt() -> None:
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.1, interrupt)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            us.iterate(lambda s: us.tanh(us.sin(s)) + 0.5, x, until=lambda new: us.max(new) > 1e9, max_steps=10**7)
    finally:
        timer.cancel()
        timer.join()
        signal.signal(signal.SIGINT, before)
    y, made = us.iterate(lambda s: us.tanh(us.sin(s)) + 0.5, x, max_steps=3)
    assert made == 3 and np.isfinite(np.asarray(y)).all()


def test_other_threads_run_while_a_loop_does() -> None:
    x = us.tensor(np.linspace(0.0, 1.0, 64))
    finished = threading.Event()
    turns = 0

    def work() -> None:
        us.iterate(lambda s: us.tanh(us.sin(s)) + 0.5, x, max_steps=200_000)[0].eval()
        finished.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not finished.wait(0.001):
        turns += 1
    thread.join()
    assert turns > 3
