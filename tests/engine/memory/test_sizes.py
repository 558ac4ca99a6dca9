"""Budgets as people write them, and bytes as we print them."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import unspool._engine.memory.sizes as sizes
from unspool._engine.memory.process_limits import available_bytes
from unspool._engine.memory.sizes import format_bytes, parse_bytes
from unspool.errors import ArgumentError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2GB", 2_000_000_000),
        ("1.5GiB", 1_610_612_736),
        ("300 MB", 300_000_000),
        ("4096", 4096),
        ("1B", 1),
        ("3kB", 3_000),
        ("3KiB", 3_072),
        ("7MB", 7_000_000),
        ("7MiB", 7_340_032),
        ("2 TB", 2_000_000_000_000),
        ("2 TiB", 2_199_023_255_552),
        ("  64 mib  ", 67_108_864),
        ("2gb", 2_000_000_000),
        ("2Gb", 2_000_000_000),
        ("2\tGIB", 2_147_483_648),
    ],
)
def test_text_has_a_number_and_a_unit(text: str, expected: int) -> None:
    assert parse_bytes(text) == expected


def test_text_is_read_without_rounding() -> None:
    # In binary floating point 1.1e9 / 1.1 and the like are not whole numbers.
    assert parse_bytes("1.1GB") == 1_100_000_000
    assert parse_bytes("0.3TB") == 300_000_000_000
    assert parse_bytes("9007199254740993") == 2**53 + 1


def test_parts_of_a_byte_are_dropped() -> None:
    assert parse_bytes("1.9999 kB") == 1999
    assert parse_bytes("0.0015kB") == 1


@pytest.mark.parametrize("count", [1, 4096, 10**15, np.int64(4096), np.uint8(3)])
def test_integers_are_bytes(count: Any) -> None:
    parsed = parse_bytes(count)
    assert parsed == count and type(parsed) is int


@pytest.mark.parametrize("share", [0.5, 1.0, 0.001, np.float64(0.25), np.float32(0.5), Fraction(1, 4)])
def test_floats_up_to_one_are_shares_of_the_available_memory(share: Any) -> None:
    parsed = parse_bytes(share)
    assert parsed == int(available_bytes() * share) and type(parsed) is int


def test_none_is_half_of_the_available_memory() -> None:
    assert parse_bytes(None) == available_bytes() // 2


def test_a_share_is_never_zero_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "available_bytes", lambda: 1000)
    assert parse_bytes(1e-9) == 1


@pytest.mark.parametrize(
    "nonsense",
    [
        -1,
        0,
        True,
        False,
        np.True_,
        math.nan,
        math.inf,
        -math.inf,
        0.0,
        -0.5,
        1.5,
        4096.0,
        "2 bananas",
        "",
        " ",
        "GB",
        "0",
        "0GB",
        "0.1B",
        "-2GB",
        "+2GB",
        "1e9",
        "0.5",
        "1.5",
        "2GB3",
        "2 G B",
        "2,5GB",
        "1_000",
        "inf",
        "nan",
        "50%",
        "٣GB",
        "9" * 5000,
        ".5GB",
        b"2GB",
        [1],
        2 + 0j,
        object,
    ],
    ids=repr,
)
def test_everything_else_is_refused_by_saying_what_is_accepted(nonsense: Any) -> None:
    with pytest.raises(ArgumentError) as caught:
        parse_bytes(nonsense)
    message = str(caught.value)
    assert repr(nonsense) in message
    assert all(example in message for example in ('"2GB"', '"1.5GiB"', "4096", "up to 1", "None"))


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (9_994, "9.99 kB"),
        (9_995, "10.0 kB"),
        (99_949, "99.9 kB"),
        (99_951, "100 kB"),
        (999_499, "999 kB"),
        (999_500, "1.00 MB"),
        (1_500_000_000, "1.50 GB"),
        (25_274_793_984, "25.3 GB"),
        (999_500_000_000, "1.00 TB"),
        (10**15, "1000 TB"),
        (-5_000_000, "-5.00 MB"),
    ],
)
def test_bytes_are_printed_with_three_digits(count: int, expected: str) -> None:
    assert format_bytes(count) == expected


@pytest.mark.parametrize("power", range(15))
def test_what_is_printed_reads_as_the_same_amount(power: int) -> None:
    for leading in (1, 12, 123):
        count = leading * 10**power
        assert parse_bytes(format_bytes(count)) == count
