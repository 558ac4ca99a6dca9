"""What a budget evicts and gets back: digests find ops that do not repeat themselves, and a disk holds states.

A disk is a help, never a need: whatever happens to it, results are the same.
"""

from __future__ import annotations

import errno
import warnings
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.engine.budgets import (
    PROGRAMS,
    Outcome,
    Program,
    cases,
    gradient_only,
    least_budget,
    least_working,
    matrix,
    reference,
    same_bits,
    settle,
    within,
)
from unspool._engine.memory.guard import SpillWarning
from unspool.errors import RebuildError


@pytest.fixture(autouse=True)
def _settle() -> Iterator[None]:
    settle()
    yield
    settle()


# --- digests ---------------------------------------------------------------------------------------------------------


def looped(apply: Callable[[us.Tensor], us.Tensor], budget: int, **options: Any) -> Any:
    """Return the gradient of a loop over an op."""
    a, x = us.tensor(matrix(32, 0)), us.tensor(matrix(32, 1))
    with us.memory(budget, **options):
        for _ in range(40):
            x = us.tanh(a @ apply(x)) + 0.5 * x
            x.eval()
        return us.sum(x * x).grad(a).eval()


def op_with(name: str, kernel: Callable[[Any], Any]) -> Callable[[us.Tensor], us.Tensor]:
    return us.op(name, kernel=kernel, vjp=(lambda ct, out, x: ct * out,), needs=("output",), replace=True)


def drifting(step: float) -> Callable[[Any], Any]:
    """Return a kernel that gives something else every time it runs."""
    runs = count()
    return lambda x: x * (1.0 + step * next(runs))


@pytest.mark.parametrize("step", [1e-3, 2.0**-52], ids=["much", "one place"])
def test_an_op_that_does_not_repeat_itself_is_found_and_named_with_its_line(step: float) -> None:
    budget = 2 * least_working(lambda size: looped(op_with("repeats", np.sin), size))
    with pytest.raises(RebuildError, match="came out different") as caught:
        looped(op_with("drifts", drifting(step)), budget, verify="hash")
    assert "test_guard.py" in str(caught.value)


def test_the_op_itself_is_named() -> None:
    budget = 2 * least_working(lambda size: looped(op_with("repeats", np.sin), size))
    with pytest.raises(RebuildError, match="user:drifts"):
        looped(op_with("drifts", drifting(1e-3)), budget, verify="hash")


def test_what_draws_random_numbers_outside_of_keys_is_found() -> None:
    rng = np.random.default_rng(0)
    budget = 2 * least_working(lambda size: looped(op_with("repeats", np.sin), size))
    with pytest.raises(RebuildError):
        looped(op_with("draws", lambda x: x + 1e-3 * rng.normal(size=x.shape)), budget, verify="hash")


@cases({}, slow=True)
def test_programs_that_repeat_themselves_pass(name: str) -> None:
    for share in (1, 3):
        found = within(PROGRAMS[name], share * least_budget(name), verify="hash")
        same_bits(found.values(), reference(name).values())


def test_without_digests_nothing_is_compared() -> None:
    apply = op_with("drifts", drifting(1e-9))
    looped(apply, 10**9)
    assert np.all(np.isfinite(looped(apply, 2 * least_working(lambda size: looped(apply, size)))))


# --- disk ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write every fourth state, however slow the disk is beside the steps of a test."""
    monkeypatch.setattr("unspool.checkpoint.planner.disk_period", lambda *_, **__: 4)


@cases({}, slow=True)
@pytest.mark.usefixtures("often")
def test_states_on_disk_change_no_bit_and_are_gone_afterwards(name: str, tmp_path: Path) -> None:
    for share in (3, 1.5, 1):
        found = within(PROGRAMS[name], int(share * least_budget(name)), spill=tmp_path)
        same_bits(found.values(), reference(name).values())
        assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("often")
def test_states_go_to_disk_and_come_back(tmp_path: Path) -> None:
    report = within(PROGRAMS["plain"], least_budget("plain", gradient_only), gradient_only, spill=tmp_path).report
    assert report.spilled_bytes > 0
    assert report.read_bytes > 0
    assert report.disk_period >= 1


@pytest.mark.usefixtures("often")
def test_states_on_disk_save_work(tmp_path: Path) -> None:
    budget = least_budget("plain", gradient_only)
    without = within(PROGRAMS["plain"], budget, gradient_only).report
    assert within(PROGRAMS["plain"], budget, gradient_only, spill=tmp_path).report.evaluations < without.evaluations


@pytest.mark.usefixtures("often")
def test_reading_states_back_keeps_to_the_budget(tmp_path: Path) -> None:
    for share in (2, 1):
        budget = share * least_budget("plain", gradient_only)
        assert within(PROGRAMS["plain"], budget, gradient_only, spill=tmp_path).report.peak <= budget


@pytest.mark.usefixtures("often")
def test_files_are_gone_after_an_exception(tmp_path: Path) -> None:
    def failing(program: Program) -> Outcome:
        program.run(*program.leaves())
        assert spilled_files(tmp_path)
        raise KeyboardInterrupt

    budget = least_budget("plain")
    with pytest.raises(KeyboardInterrupt):
        within(PROGRAMS["plain"], budget, failing, spill=tmp_path)
    assert not list(tmp_path.iterdir())


def spilled_files(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*.safetensors"))


@pytest.mark.usefixtures("often")
def test_there_is_never_more_on_disk_than_the_limit(tmp_path: Path) -> None:
    most = 0
    limit = 6 * PROGRAMS["plain"].arrays[0].nbytes

    def watched(program: Program) -> Outcome:
        nonlocal most
        a, x = program.leaves()
        y = x
        for _ in range(60):
            y = us.tanh(a @ y) + 0.5 * us.sin(y)
            y.eval()
            most = max(most, sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file()))
        return Outcome(us.eval(us.sum(y * y).grad([a, x])), None, [])

    watched(PROGRAMS["plain"])
    expected = watched(PROGRAMS["plain"]).gradients
    budget = least_working(lambda size: within(PROGRAMS["plain"], size, watched))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SpillWarning)
        found = within(PROGRAMS["plain"], budget, watched, spill=tmp_path, spill_limit=limit)
    assert 0 < most <= limit
    same_bits(found.gradients, expected)


def damaging(tmp_path: Path, damage: Callable[[Path], None]) -> Callable[[Program], Outcome]:
    """Return a computation that damages what is on disk between loop and gradient."""

    def compute(program: Program) -> Outcome:
        leaves = program.leaves()
        run = program.run(*leaves)
        files = spilled_files(tmp_path)
        assert files
        for file in files:
            damage(file)
        return Outcome(us.eval(run.loss.grad(leaves)), run.loss.eval(), [tensor.eval() for tensor in run.held])

    return compute


def flip_last_byte(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-8])


@pytest.mark.parametrize("damage", [flip_last_byte, cut, Path.unlink], ids=["changed", "cut", "removed"])
@cases({}, ["plain", "noisy", "turning", "summed"])
@pytest.mark.usefixtures("often")
def test_what_was_damaged_on_disk_is_computed_again_with_a_warning(
    name: str, damage: Callable[[Path], None], tmp_path: Path
) -> None:
    budget = least_budget(name)
    with pytest.warns(SpillWarning, match="computed again"):
        found = within(PROGRAMS[name], budget, damaging(tmp_path, damage), spill=tmp_path)
    same_bits(found.values(), reference(name).values())
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("often")
def test_a_full_disk_is_a_warning_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import safetensors.numpy

    written = []

    def save(*_: Any, **__: Any) -> None:
        written.append(None)
        raise OSError(errno.ENOSPC, "No space left on device")

    budget = least_budget("plain")
    monkeypatch.setattr(safetensors.numpy, "save_file", save)
    with pytest.warns(SpillWarning, match="No space left"):
        found = within(PROGRAMS["plain"], budget, spill=tmp_path)
    assert len(written) == 1
    same_bits(found.values(), reference("plain").values())
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("often")
def test_a_disk_that_becomes_full_keeps_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import safetensors.numpy

    original, written = safetensors.numpy.save_file, []

    def save(*arguments: Any, **options: Any) -> None:
        written.append(None)
        if len(written) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        original(*arguments, **options)

    budget = least_budget("plain")
    monkeypatch.setattr(safetensors.numpy, "save_file", save)
    with pytest.warns(SpillWarning, match="No space left"):
        found = within(PROGRAMS["plain"], budget, spill=tmp_path)
    assert found.report.read_bytes > 0
    same_bits(found.values(), reference("plain").values())


@pytest.mark.usefixtures("often")
def test_digests_and_disk_go_together(tmp_path: Path) -> None:
    for name in ("plain", "sweep", "noisy"):
        found = within(PROGRAMS[name], least_budget(name), spill=tmp_path, verify="hash")
        same_bits(found.values(), reference(name).values())


@pytest.mark.usefixtures("often")
def test_the_values_are_right_after_the_block_although_the_files_are_gone(tmp_path: Path) -> None:
    program = PROGRAMS["plain"]
    expected = reference("plain")
    leaves = program.leaves()
    with us.memory(least_budget("plain"), spill=tmp_path):
        run = program.run(*leaves)
    same_bits(us.eval(run.loss.grad(leaves)), expected.gradients)
    same_bits([tensor.eval() for tensor in run.held], expected.held)
