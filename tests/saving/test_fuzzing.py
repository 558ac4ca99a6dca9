"""Files that were changed: refused with a typed error, whatever was done to them, and nothing is loaded."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.saving.programs import PROGRAMS
from unspool._saving import arrays
from unspool._saving.arrays import ArrayFile, Arrays
from unspool._saving.file import FORMAT
from unspool.errors import DefinitionError, SaveFileError

SMALL = ("not_evaluated", "short_loop", "iterated", "of_users", "gradient_of_iterated", "loop_with_factorisations")


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Return bytes that were changed in one of the ways in which files are."""
    at = rng.randrange(len(data))
    length = min(rng.choice((1, 1, 1, 2, 4, 16, 200)), len(data) - at)
    match rng.randrange(7):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
        case 2:
            return data[:at] + rng.randbytes(length) + data[at + length :]
        case 3:
            return data[:at] + rng.randbytes(length) + data[at:]
        case 4:
            return data[:at] + data[at + length :]
        case 5:
            return data[:at] + bytes(length) + data[at + length :]
        case _:
            other = rng.randrange(len(data))
            return data[:at] + data[other : other + length] + data[at + length :]


def saved(folder: Path) -> list[bytes]:
    """Return the contents of some files."""
    found = []
    for name in SMALL:
        us.save(folder / "whole", PROGRAMS[name]())
        found.append((folder / "whole").read_bytes())
    return found


def signed_again(path: Path, structure: bytes, file: ArrayFile) -> None:
    """Write a file with another structure, and the checksum that belongs to it."""
    kept = Arrays()
    for number, group in enumerate(file.groups):
        for row in range(group.rows):
            kept.add(np.array(file.get(number, row), copy=True, order="K"))
    arrays.write(path, kept, structure, FORMAT)


def check_changed_files(folder: Path, count: int, seed: int) -> None:
    rng = random.Random(seed)
    wholes = saved(folder)
    path = folder / "changed"
    for _ in range(count):
        whole = rng.choice(wholes)
        data = mutated(whole, rng)
        if data == whole:
            continue
        path.write_bytes(data)
        with pytest.raises(SaveFileError):
            us.load(path)


def check_files_signed_again(folder: Path, count: int, seed: int) -> tuple[int, int]:
    """Change structures and sign them again; return how many were refused and how many had a meaning."""
    rng = random.Random(seed)
    path = folder / "whole"
    files: list[tuple[bytes, Any]] = []
    for number, data in enumerate(saved(folder)):
        path = folder / f"whole{number}"
        path.write_bytes(data)
        file = ArrayFile(path, FORMAT)
        files.append((file.structure, file))
    refused = 0
    for _ in range(count):
        structure, file = rng.choice(files)
        signed_again(folder / "changed", mutated(structure, rng), file)
        try:
            us.load(folder / "changed")
        except (SaveFileError, DefinitionError):
            refused += 1
    for _, file in files:
        file.close()
    return refused, count - refused


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    check_changed_files(tmp_path, 1500, seed=1)


def test_a_changed_file_with_a_right_checksum_is_refused_or_means_something(tmp_path: Path) -> None:
    refused, _ = check_files_signed_again(tmp_path, 600, seed=2)
    assert refused > 300


@pytest.mark.nightly
def test_a_hundred_thousand_changed_files_are_refused(tmp_path: Path) -> None:
    check_changed_files(tmp_path, 60_000, seed=3)
    check_files_signed_again(tmp_path, 40_000, seed=4)
