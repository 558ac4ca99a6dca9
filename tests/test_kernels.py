"""The runner of tests under other kernels finds out what runs here, and chooses the same share everywhere."""

from __future__ import annotations

from typing import Any

import pytest

from tests import kernels
from tests.conftest import is_in_share
from tests.kernels import Kernel, core_of, main, reason_to_skip


def test_a_share_is_what_it_says_and_the_same_everywhere() -> None:
    names = [f"tests/test_a.py::test_{i}[{j}]" for i in range(100) for j in range(100)]
    chosen = [name for name in names if is_in_share(name, 4)]
    assert len(chosen) == pytest.approx(2500, rel=0.1)
    assert all(is_in_share(name, 1) for name in names)
    # By a published checksum, that of CRC-32 for "123456789", 0xCBF43926: no hash that differs from process to process.
    assert [n for n in range(1, 30) if is_in_share("123456789", n)] == [n for n in range(1, 30) if 0xCBF43926 % n == 0]


def test_kernels_that_kill_the_process_are_skipped_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "PROBE", "import os; os.abort()")
    reason = reason_to_skip(Kernel("Haswell", {"OPENBLAS_CORETYPE": "Haswell"}))
    assert reason is not None and "cannot run it" in reason


def test_kernels_that_the_library_does_not_have_are_skipped_with_a_reason() -> None:
    reason = reason_to_skip(Kernel("Abacus", {"OPENBLAS_CORETYPE": "Abacus"}))
    assert reason is not None and ("built without it" in reason or "does not say" in reason)


class Runs(list[tuple[str, tuple[str, ...]]]):
    """What was run, in place of running it."""

    def __call__(self, kernel: Kernel, arguments: Any) -> int:
        self.append((kernel.name, tuple(arguments)))
        return 0


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    recorded = Runs()
    monkeypatch.setattr(kernels, "run_under", recorded)
    return recorded


def test_all_that_run_here_are_run_and_the_rest_named(runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    printed = capsys.readouterr().out
    asked = [kernel.name for kernel in kernels.kernels()]
    assert len(asked) == 5 and all(f"under {name}" in printed or f"skipped {name}: " in printed for name in asked)
    assert [name for name, _ in runs] == [name for name in asked if f"skipped {name}" not in printed]
    assert all(arguments == ("--share", "1", *kernels.SENSITIVE) for _, arguments in runs)


def test_another_kernel_is_one_and_not_that_of_the_machine(runs: Runs) -> None:
    if core_of({}) is None:
        pytest.skip("NumPy's BLAS is not OpenBLAS")
    assert main(["--other", "--share", "4", "--workers", "2"]) == 0
    [(name, arguments)] = runs
    assert core_of({"OPENBLAS_CORETYPE": name}) != core_of({})
    assert arguments == ("-n", "2", "--share", "4", *kernels.SENSITIVE)


def test_what_is_not_ours_goes_to_pytest(runs: Runs) -> None:
    main(["--only", kernels.WITHOUT_AVX, "tests/linalg", "-x"])
    assert all(arguments == ("--share", "1", "tests/linalg", "-x") for _, arguments in runs)
    runs.clear()
    main(["--only", kernels.WITHOUT_AVX, "-p", "no:cacheprovider"])
    assert all(arguments == ("--share", "1", "-p", "no:cacheprovider", *kernels.SENSITIVE) for _, arguments in runs)


def test_a_failure_under_one_kernel_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "run_under", lambda kernel, arguments: 1)
    monkeypatch.setattr(kernels, "reason_to_skip", lambda kernel: None)
    assert main([]) == 1
