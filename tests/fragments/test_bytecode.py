"""What code names, told from its bytecode; the same for every version of the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from unspool._fragments.bytecode import reads_of


def _reads(function: Callable[..., Any]) -> Any:
    return reads_of(function.__code__)


def test_names_are_attributes_and_strings_and_the_function_itself() -> None:
    def function(x: Any) -> Any:
        return x.weights.first * getattr(x, "second") * x["a key"]  # noqa: B009

    assert {"weights", "first", "second", "function"} <= _reads(function).names
    assert "a key" not in _reads(function).names


def test_globals_are_told_apart_from_attributes() -> None:
    reads = _reads(lambda x: pytest.approx(x.len) + len(x))
    assert reads.from_globals == {"pytest", "len"}


@pytest.mark.parametrize(
    ("function", "computes"),
    [
        (lambda x: x.w, False),
        (lambda x: getattr(x, "w"), False),  # noqa: B009
        (lambda x: getattr(x.a.b, "w", None), False),
        (lambda x: hasattr(x, "w"), False),
        (lambda x, name: getattr(x, name), True),
        (lambda x: getattr(x, "w" + x.suffix), True),
        (lambda x: getattr(x(), "w"), True),  # noqa: B009 - not understood, so taken for computed
        (lambda x: vars(x), True),
        (lambda x: x.__dict__, True),
        (lambda x: map(getattr, x, "w"), True),
    ],
)
def test_a_name_is_computed_unless_the_code_says_it(function: Callable[..., Any], computes: bool) -> None:
    assert _reads(function).computes_names is computes


def test_globals_by_a_computed_name_are_seen() -> None:
    assert _reads(lambda name: globals()[name]).all_globals
    assert not _reads(lambda name: name).all_globals


def test_modules_that_are_imported_are_named() -> None:
    def function() -> None:
        import json.decoder
        from os import path  # noqa: F401

        json.decoder

    assert _reads(function).imports == {"json.decoder", "os"}


def _counts(s: Any) -> None:
    s.n += 1


def _counts_plainly(s: Any) -> None:
    s.n = s.n + 1


def _appends(s: Any) -> None:
    s.n.append(1)


def _enters(s: Any) -> None:
    s.n["a"] = 1


def _counts_an_entry(s: Any) -> None:
    s.n["a"] += 1


@pytest.mark.parametrize("function", [_counts, _counts_plainly, _appends, _enters, _counts_an_entry])
def test_what_is_only_changed_is_not_read(function: Callable[..., Any]) -> None:
    reads = _reads(function)
    assert "n" in reads.written_back
    assert "n" not in reads.read


def _returns_the_count(s: Any) -> Any:
    s.n += 1
    return s.n


def _measures(s: Any) -> Any:
    s.n.append(1)
    return len(s.n)


@pytest.mark.parametrize("function", [_returns_the_count, _measures])
def test_what_is_changed_and_read_is_both(function: Callable[..., Any]) -> None:
    reads = _reads(function)
    assert "n" in reads.written_back
    assert "n" in reads.read


def test_what_is_written_before_it_is_read_is_not_read_first() -> None:
    def stores(s: Any) -> Any:
        s.n = 1
        return s.n

    def loads(s: Any) -> Any:
        before = s.n
        s.n = 1
        return before

    assert "n" not in _reads(stores).read_first
    assert "n" in _reads(loads).read_first
    assert {"n"} == set(_reads(stores).written)
