"""What steps cost: those of one plan count alike, whatever else the machine did while one of them ran."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from unspool._engine.memory.clock import Clock


def plan(number: int, seconds: float) -> Any:
    return SimpleNamespace(id=number, seconds=seconds)


def test_a_step_that_had_to_wait_counts_like_the_others() -> None:
    clock, step = Clock(), plan(7, 5.0)
    for fastest in (5.0, 0.25, 0.25, 0.25):
        step.seconds = fastest
        clock.add([step])
    np.testing.assert_allclose(clock.times, [0.0, 0.25, 0.5, 0.75, 1.0])


def test_little_news_changes_nothing_of_the_past() -> None:
    clock, step = Clock(), plan(7, 1.0)
    clock.add([step])
    step.seconds = 0.95
    clock.add([step])
    np.testing.assert_allclose(clock.times, [0.0, 1.0, 2.0])


def test_steps_of_several_plans_and_steps_without_one() -> None:
    clock, short, long = Clock(), plan(1, 1.0), plan(2, 10.0)
    for step in (short, None, long, short, plan(3, 0.0)):
        clock.add([step])
    np.testing.assert_allclose(clock.times, [0.0, 1.0, 1.0, 11.0, 12.0, 12.0], atol=1e-6)
    assert np.all(np.diff(clock.times) > 0)
    long.seconds = 2.0
    clock.add([long])
    np.testing.assert_allclose(clock.times, [0.0, 1.0, 1.0, 3.0, 4.0, 4.0, 6.0], atol=1e-6)


def test_what_was_passed_is_forgotten() -> None:
    clock = Clock()
    for _ in range(5):
        clock.add([plan(1, 1.0)])
    clock.rewind(2)
    clock.add([plan(2, 3.0)])
    np.testing.assert_allclose(clock.times, [0.0, 1.0, 2.0, 5.0])
