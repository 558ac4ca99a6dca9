"""Leftovers of dead processes are removed, and nothing that might be somebody else's is."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unspool.checkpoint import _own_directory
from unspool.checkpoint._own_directory import LOCK
from unspool.checkpoint.spill import SpillStore


def leftover_name(host: str | None = None, pid: int = 1) -> str:
    return f"unspool-spill-{_own_directory._host() if host is None else host}-{pid}-{'0' * 16}"


def make_leftover(path: Path) -> None:
    path.mkdir()
    (path / LOCK).touch()
    (path / "00000000.safetensors").write_bytes(b"old")


def test_a_leftover_is_removed_even_if_its_process_id_is_in_use_again(tmp_path: Path) -> None:
    make_leftover(tmp_path / leftover_name(pid=os.getpid()))
    with SpillStore(tmp_path) as store:
        assert list(tmp_path.iterdir()) == [store.path]


def test_a_directory_whose_owner_was_killed_before_it_had_a_lock_is_removed_if_empty(tmp_path: Path) -> None:
    empty, other = tmp_path / leftover_name(), tmp_path / leftover_name(pid=2)
    empty.mkdir()
    other.mkdir()
    (other / "thesis.txt").touch()
    with SpillStore(tmp_path) as store:
        assert set(tmp_path.iterdir()) == {store.path, other}


@pytest.mark.parametrize(
    "name",
    [
        "unspool-spill",
        f"{leftover_name()}.bak",
        f"my-{leftover_name()}",
        leftover_name().replace("-1-", "--"),
        leftover_name(host="0123abcd"),
    ],
    ids=["short", "suffix", "prefix", "no process", "another machine"],
)
def test_directories_that_are_not_surely_ours_are_left_alone(tmp_path: Path, name: str) -> None:
    make_leftover(tmp_path / name)
    SpillStore(tmp_path).close()
    assert sorted(path.name for path in (tmp_path / name).iterdir()) == ["00000000.safetensors", LOCK]


def test_links_and_files_with_such_a_name_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "spill").mkdir()
    make_leftover(tmp_path / "precious")
    (tmp_path / "spill" / leftover_name()).symlink_to(tmp_path / "precious")
    (tmp_path / "spill" / leftover_name(pid=2)).write_bytes(b"a file")
    SpillStore(tmp_path / "spill").close()
    assert len(list((tmp_path / "precious").iterdir())) == 2
    assert len(list((tmp_path / "spill").iterdir())) == 2


def test_leftovers_of_another_user_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_leftover(tmp_path / leftover_name())
    another = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: another)
    SpillStore(tmp_path).close()
    assert len(list((tmp_path / leftover_name()).iterdir())) == 2


def test_a_leftover_of_something_else_keeps_what_is_not_a_file(tmp_path: Path) -> None:
    make_leftover(tmp_path / leftover_name())
    (tmp_path / leftover_name() / "inner").mkdir()
    SpillStore(tmp_path).close()
    assert [path.name for path in (tmp_path / leftover_name()).iterdir()] == ["inner"]


@pytest.mark.parametrize("moment", ["before the lock is made", "before it is held"])
def test_a_directory_that_a_neighbour_takes_for_a_leftover_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    calls = []

    def tidied_first(real: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any) -> Any:
            if not calls:
                calls.append(None)
                _own_directory.remove_leftovers(tmp_path)
            return real(*arguments)

        return wrapped

    name, owner = ("open", os) if moment == "before the lock is made" else ("_try_lock", _own_directory)
    monkeypatch.setattr(owner, name, tidied_first(getattr(owner, name)))
    with SpillStore(tmp_path) as store:
        assert calls and list(tmp_path.iterdir()) == [store.path]
        assert store.get(store.put({"x": np.ones(1)}))["x"].tolist() == [1.0]


def test_where_there_are_no_locks_a_store_works_and_leftovers_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    make_leftover(tmp_path / leftover_name())
    monkeypatch.setattr(_own_directory.fcntl, "flock", unsupported)
    with SpillStore(tmp_path) as store:
        assert store.get(store.put({"x": np.ones(1)}))["x"].tolist() == [1.0]
    assert [path.name for path in tmp_path.iterdir()] == [leftover_name()]
