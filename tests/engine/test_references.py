"""Counting references: only where the interpreter counts as is known, and right without that."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from itertools import count

import pytest

from unspool._engine import references
from unspool._engine.references import FORMS, MANY, Form, count_references, counter_for

# The interpreters in the metadata of the package.
TESTED = [(3, 11), (3, 12), (3, 13)]


def names(form: Form) -> str:
    return form.measure.__name__


@pytest.mark.skipif(sys.version_info[:2] not in TESTED, reason="may count otherwise")
def test_the_interpreters_that_are_tested_count_as_is_known() -> None:
    assert count_references is sys.getrefcount
    assert counter_for(sys.getrefcount) is sys.getrefcount


@pytest.mark.parametrize("form", FORMS, ids=names)
def test_a_reference_from_elsewhere_is_seen_in_each_form(form: Form) -> None:
    others: list[object] = []
    alone = form.measure(lambda counted: sys.getrefcount(counted))
    assert form.measure(lambda counted: others.append(counted) or sys.getrefcount(counted)) == alone + 1


@pytest.mark.parametrize("change", [-2, -1, 1])
@pytest.mark.parametrize("form", FORMS, ids=names)
def test_one_form_that_counts_otherwise_is_enough_to_rely_on_none(
    monkeypatch: pytest.MonkeyPatch, form: Form, change: int
) -> None:
    changed = form._replace(expected=form.expected - change)
    monkeypatch.setattr(references, "FORMS", tuple([changed if other is form else other for other in FORMS]))
    assert counter_for(sys.getrefcount)(object()) == MANY


@pytest.mark.parametrize("first", range(1, 12))
def test_a_count_that_changes_when_code_has_run_some_times_is_not_relied_on(first: int) -> None:
    calls = count(1)
    changing: Callable[[object], int] = lambda _: 2 if next(calls) < first else 1  # noqa: E731
    assert counter_for(changing)(object()) == MANY


# --- programs on an interpreter that counts otherwise ----------------------------------------------------------------

COUNTERS = {
    "borrowing": "lambda counted: real(counted) - 2",  # one less than here, as where variables are not counted
    "immortal": "lambda counted: 1 << 30",
    "in turns": "lambda counted, turn=itertools.count(): real(counted) - 2 + next(turn) % 2",
}

START = """
import itertools, sys
real = sys.getrefcount
sys.getrefcount = {counter}
import numpy as np
import unspool as us
from unspool._engine.references import MANY, count_references
assert count_references(object()) == MANY
"""


def run(counter: str, program: str) -> None:
    """Run a program that asserts things, in a process whose interpreter counts references in its own way."""
    script = START.format(counter=COUNTERS[counter]) + textwrap.dedent(program)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(params=COUNTERS)
def counter(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_an_array_that_somebody_else_sees_is_not_overwritten(counter: str) -> None:
    run(
        counter,
        """
        table = np.full(1 << 15, 2.0)
        look_up = us.op("look_up", kernel=lambda x: table, infer=lambda x: (x.shape, x.dtype))
        values = np.linspace(0.1, 1.0, 1 << 15)
        for turn in range(5):  # node by node, described, by plan, recognised
            x = us.tensor(values + turn)
            y = us.sin(x)
            for _ in range(9):
                y = us.sin(y)
            total = us.sum(look_up(y) + us.exp(y) - 1.0)
            expected = np.sin(values + turn)
            for _ in range(9):
                expected = np.sin(expected)
            assert abs(float(total) - np.sum(1.0 + np.exp(expected))) < 1e-9
            assert np.all(table == 2.0)
        """,
    )


def test_arrays_that_were_read_stay_as_they_are(counter: str) -> None:
    run(
        counter,
        """
        rng = np.random.default_rng(0)
        start, held, copies = rng.uniform(size=(200, 200)), [], []
        x = us.tensor(start)
        expected = start
        for _ in range(20):
            x = us.tanh(x) + 0.5 * x - 0.1
            expected = np.tanh(expected) + 0.5 * expected - 0.1
            held.append(x.eval())
            copies.append(held[-1].copy())
        assert np.array_equal(held[-1], expected)
        for array, copy in zip(held, copies):
            assert np.array_equal(array, copy)
        """,
    )


def test_loops_and_their_derivatives_are_right(counter: str) -> None:
    run(
        counter,
        """
        # w → w², ten times: w^1024. And an intermediate that the program still has.
        def power(x):
            w = x
            for step in range(10):
                w = w * w
                assert abs(float(w) / 1.001 ** (2 ** (step + 1)) - 1) < 1e-12
                if step == 4:
                    middle = w
            return w, middle

        x = us.tensor(1.001)
        w, middle = power(x)
        slope, bend = w.grad(x), w.grad(x).grad(x)
        assert abs(float(slope) / (1024 * 1.001**1023) - 1) < 1e-12
        assert abs(float(bend) / (1024 * 1023 * 1.001**1022) - 1) < 1e-12
        assert abs(float(w.grad(middle)) / (32 * 1.001 ** (32 * 31)) - 1) < 1e-12

        # Longer than what is looked at as a loop, in three forms: x → a x, so d/da = n a^(n-1) x.
        step = us.fragment(lambda a, s: a * s)
        for form in (lambda a, s: a * s, step, us.remat(lambda a, s: a * s)):
            a, s = us.tensor(0.999), us.tensor(np.arange(300.0))
            loss = s
            for _ in range(300):
                loss = form(a, loss)
                float(loss[1])
            gradient = float(us.sum(loss).grad(a))
            assert abs(gradient / (300 * 0.999**299 * 44850.0) - 1) < 1e-12
        # And without looking: one pass that repeats.
        loss = s
        for _ in range(1500):
            loss = 0.999 * (a * loss)
        assert abs(float(us.sum(loss).grad(a)) / (1500 * 0.999**2999 * 44850.0) - 1) < 1e-11
        """,
    )


def test_budgets_are_kept_and_change_no_bit(counter: str) -> None:
    run(
        counter,
        """
        rng = np.random.default_rng(1)
        matrix, start = rng.uniform(-1, 1, (40, 40)) / 6, rng.uniform(size=(40, 40))

        def gradient():
            a, y = us.tensor(matrix), us.tensor(start)
            for _ in range(40):
                y = us.tanh(a @ y) + 0.5 * y
                float(us.sum(y))
            return us.sum(y * y).grad(a).eval()

        expected = gradient()
        everything = 40 * 4 * start.nbytes
        for share in (2, 5, 8):
            with us.memory(everything // share) as budget:
                found = gradient()
            assert np.array_equal(found, expected)
            assert budget.report().peak <= everything // share
        """,
    )
