"""Symbolic sizes: the normal form, three-valued comparison, binding and solving."""

from __future__ import annotations

import copy
import itertools
import pickle

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import unspool as us
from unspool import _dims
from unspool._dims import Dim, bind, equal, is_concrete, maximum, minimum, product, solve
from unspool.errors import ShapeError, UnboundSizeError, UnknownSizeError

n, k, m = us.dims("n k m")

EQUAL = [
    (2 * n, n + n),
    (n * k, k * n),
    ((n + 1) * (n - 1), n * n - 1),
    ((n * k + k) // k, n + 1),
    ((2 * n + 3) // 2, n + 1),
    (3 * n // 2, n + n // 2),
    (-(-n // 2), n - n // 2),
    (n % 2, n - 2 * (n // 2)),
    ((4 * n) % 2, 0),
    (n - n, 0),
    (n * 0, 0),
    (0 // (n + 1), 0),
    (3 // (n + 4), 0),
    (maximum(n, k), maximum(k, n)),
    (maximum(n, n + 1), n + 1),
    (minimum(n, n + 1), n),
    (minimum(2 * n, n), n),
    (maximum(minimum(n, k), n), n),
    (minimum(maximum(n, k), k), k),
    (maximum(n, 0), n),
    (5 - n + n, 5),
    (np.int64(3) * n, 3 * n),
    (n + np.int32(3), 3 + n),
]


@pytest.mark.parametrize(("left", "right"), EQUAL, ids=str)
def test_sizes_that_are_always_equal_have_one_normal_form(left, right):
    assert left == right
    assert hash(left) == hash(right)


@pytest.mark.parametrize("size", [n - n, n * 0, n // n, (n + 4) - n, maximum(3, 4)])
def test_a_result_without_names_is_a_plain_int(size):
    assert type(size) is int


@pytest.mark.parametrize(
    ("left", "right", "answer"),
    [
        (n, n, True),
        (n, k, None),
        (n, 3, None),
        (n, -1, False),
        (n + 1, n, False),
        (n + 1, 0, False),
        (2 * n, 3, False),
        (2 * n, 2 * k + 1, False),
        (2 * n, 4, None),
        (6 * n * k, 4, False),
        (maximum(n, 3), 2, False),
        (minimum(n, 3), 4, False),
        (minimum(n, k), n + 1, False),
        (n // 2, -1, False),
        (n % 3, 3, None),  # never equal, but out of reach of interval arithmetic
        (3, 3, True),
        (3, 4, False),
    ],
    ids=str,
)
def test_equality_is_true_false_or_unknown(left, right, answer):
    assert equal(left, right) is answer
    assert equal(right, left) is answer


@pytest.mark.parametrize(
    ("left", "right", "answer"),
    [
        (n, n + 1, True),
        (n + 1, n, False),
        (n, 0, False),
        (n, 1, None),
        (n, k, None),
        (-1, n, True),
        (minimum(n, k), n + 1, True),
        (n, minimum(n, k), False),
        (maximum(n, k), n, False),
        (minimum(n, 3), 4, True),
    ],
    ids=str,
)
def test_order_is_true_false_or_unknown(left, right, answer):
    left = left if isinstance(left, Dim) else n * 0 + left
    assert (left.less(right) if isinstance(left, Dim) else _dims._less(left, right)) is answer


def test_operators_answer_where_the_answer_is_known_and_raise_where_not():
    assert n < n + 1 and n + 1 > n and n >= 0 and n <= 2 * n and 0 <= n and bool(n + 1)
    assert not n < 0 and not n > 2 * n
    for question in (lambda: n < k, lambda: n <= 3, lambda: n > 3, lambda: k >= n, lambda: bool(n), lambda: n < 1):
        with pytest.raises(UnknownSizeError, match="depends on sizes that are not bound yet"):
            question()


def test_equality_operator_is_a_fact_about_every_binding():
    assert n != 3 and n != k and n == Dim(n._terms)
    assert {2 * n: "found"}[n + n] == "found"


def test_a_size_has_no_number_before_it_is_bound():
    with pytest.raises(UnknownSizeError, match="symbolic"):
        range(n)
    with pytest.raises(UnknownSizeError, match="symbolic"):
        [1, 2, 3][n]


@pytest.mark.parametrize("operand", [1.5, None, {}], ids=str)
def test_arithmetic_with_other_things_is_a_type_error(operand):
    for operation in (
        lambda: n + operand,
        lambda: n - operand,
        lambda: n * operand,
        lambda: n // operand,
        lambda: n % operand,
        lambda: operand - n,
        lambda: operand // n,
    ):
        with pytest.raises(TypeError):
            operation()


def test_division_by_zero_is_refused_when_built_and_when_bound():
    with pytest.raises(ShapeError, match="// 0"):
        n // 0
    with pytest.raises(ShapeError, match="5 // 0"):
        (n // k).bind({"n": 5, "k": 0})


@pytest.mark.parametrize("names", ["", "  ", "2n", "a-b"])
def test_names_are_identifiers(names):
    with pytest.raises(ShapeError, match="names such as"):
        us.dims(names)


def test_dims_gives_one_size_or_a_tuple_and_the_same_name_is_the_same_size():
    assert us.dims("n") == n
    assert us.dims("n, k") == (n, k)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (n, "n"),
        (2 * n + 1, "2*n + 1"),
        (n * k - 3, "k*n - 3"),
        (-n, "-n"),
        (maximum(n, k), "max(k, n)"),
        ((n + 1) // 2, "((n + 1)//(2))"),
    ],
)
def test_sizes_print_as_formulas(size, text):
    assert repr(size) == text


def test_copies_and_pickles_are_equal_to_the_original():
    size = (n + 1) // 2 + maximum(n, k)
    assert copy.deepcopy(size) == size
    loaded = pickle.loads(pickle.dumps(size))
    assert loaded == size and hash(loaded) == hash(size)


def test_product_and_concreteness_of_shapes():
    assert product(()) == 1
    assert product((2, n, 3, k)) == 6 * n * k
    assert is_concrete((2, 3)) and not is_concrete((2, n))


def test_binding_needs_every_name():
    assert bind(7, {}) == 7
    assert (n * k + maximum(n, k)).bind({"n": 2, "k": 5}) == 15
    with pytest.raises(UnboundSizeError, match="size k"):
        (n + k).bind({"n": 1})


@pytest.mark.parametrize(
    ("size", "value", "known", "solution"),
    [
        (n, 4, {}, ("n", 4)),
        (2 * n, 6, {}, ("n", 3)),
        (2 * n + 1, 7, {}, ("n", 3)),
        (10 - n, 4, {}, ("n", 6)),
        (n * k, 6, {"k": 2}, ("n", 3)),
        (n + k // 2, 6, {"k": 3}, ("n", 5)),
        (n * k, 6, {}, None),
        (n * k, 0, {"k": 0}, None),
        (n * n, 9, {}, None),
        (n * n * n - 3 * n * n + 3 * n, 2, {}, None),  # linear at 0, 1 and 2 only
        (n // 2, 3, {}, None),
        (6 // n, 3, {}, None),
        (n + maximum(n, 3), 8, {}, None),
        (n, 4, {"n": 4}, None),
    ],
    ids=str,
)
def test_the_one_unknown_of_a_linear_size_is_solved_for(size, value, known, solution):
    assert solve(size, value, known) == solution


@pytest.mark.parametrize(("size", "value"), [(2 * n, 7), (n + 3, 2), (5 - n, 6)], ids=str)
def test_a_size_without_a_solution_says_so(size, value):
    with pytest.raises(UnknownSizeError, match="no size n makes"):
        solve(size, value, {})


# --- laws, by brute force over small bindings -------------------------------------------------------------------------

_names = st.sampled_from([n, k])
_leaves = st.one_of(_names, st.integers(-3, 4))


def _grow(children):
    pairs = st.tuples(children, children)
    return st.one_of(
        pairs.map(lambda p: ("+", *p)),
        pairs.map(lambda p: ("-", *p)),
        pairs.map(lambda p: ("*", *p)),
        pairs.map(lambda p: ("max", *p)),
        pairs.map(lambda p: ("min", *p)),
        st.tuples(children, st.integers(1, 4)).map(lambda p: ("//", *p)),
        st.tuples(children, st.integers(1, 4)).map(lambda p: ("%", *p)),
    )


_programs = st.recursive(_leaves, _grow, max_leaves=6)

_SYMBOLIC = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "max": maximum,
    "min": minimum,
}
_CONCRETE = {**_SYMBOLIC, "max": max, "min": min}


def _build(program, table, sizes=None):
    if isinstance(program, tuple):
        return table[program[0]](*(_build(part, table, sizes) for part in program[1:]))
    return program.bind(sizes) if isinstance(program, Dim) and sizes is not None else program


@settings(max_examples=150, deadline=None)
@given(_programs)
def test_binding_commutes_with_arithmetic(program):
    size = _build(program, _SYMBOLIC)
    for values in itertools.product(range(4), repeat=2):
        sizes = dict(zip(("n", "k"), values, strict=True))
        assert bind(size, sizes) == _build(program, _CONCRETE, sizes)


@settings(max_examples=150, deadline=None)
@given(_programs, _programs)
def test_known_answers_hold_for_every_binding(left, right):
    a, b = _build(left, _SYMBOLIC), _build(right, _SYMBOLIC)
    same, less = equal(a, b), _dims._less(a, b)
    for values in itertools.product(range(4), repeat=2):
        sizes = dict(zip(("n", "k"), values, strict=True))
        x, y = bind(a, sizes), bind(b, sizes)
        assert same is None or same == (x == y)
        assert less is None or less == (x < y)
