"""How much memory a process may use, read from trees of files as Linux has them."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

import pytest

import unspool._engine.memory.process_limits as memory
from unspool._engine.memory.process_limits import available_bytes, resident_bytes

MB = 10**6

# What version 1 says where there is no limit.
V1_UNLIMITED = str((1 << 63) - 4096)


@pytest.fixture(autouse=True)
def _machine_of_a_gigabyte(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand on a machine of a known size, without a limit on address space."""
    monkeypatch.setattr(memory, "_physical_bytes", lambda: 1000 * MB)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def available(root: Path, membership: str, files: dict[str, int | str]) -> int:
    """Write what a process belongs to and the limits of groups, and ask."""
    process, groups = root / "proc", root / "cgroup"
    process.mkdir()
    (process / "cgroup").write_text(membership)
    for name, limit in files.items():
        path = groups / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{limit}\n")
    return available_bytes(process, groups)


def test_without_limits_it_is_the_memory_of_the_machine(tmp_path: Path) -> None:
    assert available(tmp_path, "0::/user.slice\n", {"user.slice/memory.max": "max"}) == 1000 * MB


def test_a_system_without_control_groups_has_only_the_machine(tmp_path: Path) -> None:
    assert available_bytes(tmp_path / "nothing", tmp_path / "nothing") == 1000 * MB


def test_version_2_limits_by_the_own_group(tmp_path: Path) -> None:
    files: dict[str, int | str] = {"a/memory.max": "max", "a/b/memory.max": 200 * MB}
    assert available(tmp_path, "0::/a/b\n", files) == 200 * MB


def test_version_2_limits_by_every_group_above(tmp_path: Path) -> None:
    files: dict[str, int | str] = {"a/memory.max": 100 * MB, "a/b/memory.max": 200 * MB, "a/b/c/memory.max": "max"}
    assert available(tmp_path, "0::/a/b/c\n", files) == 100 * MB


def test_other_groups_do_not_matter(tmp_path: Path) -> None:
    files: dict[str, int | str] = {"a/b/memory.max": 200 * MB, "a/x/memory.max": MB, "a/b/c/memory.max": MB}
    assert available(tmp_path, "0::/a/b\n", files) == 200 * MB


def test_being_slowed_down_above_an_amount_is_a_limit(tmp_path: Path) -> None:
    files: dict[str, int | str] = {"a/memory.max": 300 * MB, "a/memory.high": 250 * MB}
    assert available(tmp_path, "0::/a\n", files) == 250 * MB


def test_version_1_limits_by_the_memory_controller(tmp_path: Path) -> None:
    membership = "9:name=systemd:/s\n5:cpu,cpuacct:/s\n4:memory:/jobs/7\n0::/s\n"
    files: dict[str, int | str] = {
        "memory/memory.limit_in_bytes": V1_UNLIMITED,
        "memory/jobs/memory.limit_in_bytes": 300 * MB,
        "memory/jobs/7/memory.limit_in_bytes": V1_UNLIMITED,
        "memory/s/memory.limit_in_bytes": MB,
    }
    assert available(tmp_path, membership, files) == 300 * MB


def test_version_1_controllers_can_be_mounted_in_company(tmp_path: Path) -> None:
    assert available(tmp_path, "3:cpu,memory:/j\n", {"memory/j/memory.limit_in_bytes": 50 * MB}) == 50 * MB


def test_version_2_beside_version_1_is_mounted_further_down(tmp_path: Path) -> None:
    files: dict[str, int | str] = {"unified/a/memory.max": 70 * MB, "memory/memory.limit_in_bytes": V1_UNLIMITED}
    assert available(tmp_path, "4:memory:/\n0::/a\n", files) == 70 * MB


def test_a_container_may_see_its_group_as_the_root(tmp_path: Path) -> None:
    files: dict[str, int | str] = {"memory/memory.limit_in_bytes": 80 * MB}
    assert available(tmp_path, "4:memory:/docker/f00\n0::/../../outside\n", files) == 80 * MB


def test_names_of_groups_may_contain_colons_and_spaces(tmp_path: Path) -> None:
    assert available(tmp_path, "0::/a b/job:7\n", {"a b/job:7/memory.max": 90 * MB}) == 90 * MB


@pytest.mark.parametrize("text", ["", "0", "-1", "max", "12 34", "1e9", "٣"])
def test_what_is_not_a_limit_is_passed_over(tmp_path: Path, text: str) -> None:
    assert available(tmp_path, "0::/\nnonsense\n", {"memory.max": text}) == 1000 * MB


def test_files_that_are_not_text_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_bytes(b"0::/\xff\n")
    assert available_bytes(tmp_path, tmp_path) == 1000 * MB


def test_a_limit_on_address_space_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: {resource.RLIMIT_AS: (60 * MB, 70 * MB)}[which])
    assert available(tmp_path, "0::/\n", {"memory.max": 61 * MB}) == 60 * MB


def test_systems_without_limits_on_processes_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "resource", None)
    assert available_bytes(tmp_path, tmp_path) == 1000 * MB
    assert resident_bytes(tmp_path) == 0


def test_resident_bytes_are_counted_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096}.__getitem__)
    (tmp_path / "statm").write_text("765 430 402 5 0 123 0\n")
    assert resident_bytes(tmp_path) == 430 * 4096


@pytest.mark.parametrize("content", [None, "", "765", "765 many"])
def test_where_the_system_does_not_tell_it_is_the_peak(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "statm").write_text(content)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    assert resident_bytes(tmp_path) >= peak > 0


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not tell what is resident now")
def test_resident_bytes_rise_and_fall_with_what_is_held() -> None:
    before = resident_bytes()
    held = bytearray(b"1") * (64 * MB)
    during = resident_bytes()
    del held
    assert during - before > 60 * MB
    assert resident_bytes() - before < 4 * MB
