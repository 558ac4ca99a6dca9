"""`Encoder`: values as bytes, of which plain ones are written in C."""

from __future__ import annotations

import gc
import math
import weakref
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import unspool as us
from unspool._core import EncoderBase, Journal, position_key
from unspool._dims import dims
from unspool._saving.codec import Word
from unspool._saving.decoder import Decoder
from unspool._saving.encoder import Encoder
from unspool._saving.vocabulary import Position
from unspool._saving.wire import put_count, put_whole
from unspool.errors import SaveError


class Pair(NamedTuple):
    left: Any
    right: Any


class Shared(NamedTuple):
    content: Any


class Formed:
    def __init__(self, content: Any) -> None:
        self.content, self.form = content, None


WORDS = [
    Word("Pair", Pair, tuple, Pair),
    Word("Shared", Shared, tuple, Shared, is_entry=True),
    Word("Position", Position, tuple, Position, is_entry=True, key=position_key),
    Word("Formed", Formed, lambda value: (value.content,), Formed, is_entry=True, has_form=True),
]


def made() -> tuple[Encoder, Decoder]:
    decoder = Decoder({word.name: word for word in WORDS})
    return Encoder({word.type: word for word in WORDS}, decoder.add_entry), decoder


def with_form(form: Any) -> Formed:
    made = Formed(1)
    made.form = form
    return made


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
    | st.text()
    | st.just("a lone \ud800 surrogate")
    | st.binary()
    | st.just(...)
    | st.builds(slice, st.integers() | st.none(), st.integers()),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.integers(), inner)
        | st.builds(Pair, inner, inner)
        | st.builds(Shared, inner)
    ),
    max_leaves=20,
)


@given(plain)
def test_what_is_written_is_read_back(value: Any) -> None:
    encoder, decoder = made()
    found = decoder.decode(encoder.encode(value))
    assert repr(found) == repr(value)


@pytest.mark.parametrize("shift", range(0, 140, 7))
@pytest.mark.parametrize("beside", [-2, -1, 0, 1])
@pytest.mark.parametrize("sign", [-1, 1])
def test_whole_numbers_have_one_form_whatever_their_size(shift: int, beside: int, sign: int) -> None:
    number = sign * ((1 << shift) + beside)
    expected = bytearray(b"\x03")
    put_whole(expected, number)
    assert made()[0].encode(number) == bytes(expected)


@pytest.mark.parametrize("number", [-(2**63) - 1, -(2**63), 2**63 - 1, 2**63])
def test_the_largest_numbers_of_64_bits_are_read_back(number: int) -> None:
    encoder, decoder = made()
    assert decoder.decode(encoder.encode(number)) == number


@pytest.mark.parametrize("number", [0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, 0.1])
def test_floats_keep_their_bits(number: float) -> None:
    encoder, decoder = made()
    assert np.float64(decoder.decode(encoder.encode(number))).tobytes() == np.float64(number).tobytes()


def test_parameters_behind_a_proxy_are_written_as_a_dict() -> None:
    encoder, _ = made()
    assert encoder.encode(MappingProxyType({"axis": 1})) == encoder.encode({"axis": 1})


def test_values_that_are_not_plain_are_written_between_plain_ones() -> None:
    encoder, decoder = made()
    n = dims("n")
    value = [1, np.dtype("float32"), "a", n, np.float64(2.5), frozenset({3, 4}), (np.arange(3.0), None)]
    found = decoder.decode(encoder.encode(value))
    assert found[:6] == value[:6]
    np.testing.assert_array_equal(found[6][0], np.arange(3.0))


def test_equal_entries_are_one_and_references_have_their_numbers() -> None:
    encoder, decoder = made()
    one, two, like_one = Shared("a"), Shared("b"), Shared("a")
    assert [encoder.entry_of(value) for value in (one, two, like_one, one)] == [0, 1, 0, 0]
    assert decoder.decode(encoder.encode([one, two, like_one])) == [one, two, one]
    assert len(decoder.entries) == 2


def test_a_form_is_filled_with_numbers_of_this_file() -> None:
    shared = [Shared(k) for k in range(300)]
    body = Formed([*shared, "text", shared[7], shared[299]])
    first, _ = made()
    first.entry_of(body)
    assert body.form is not None and len(body.form[1]) == 300
    second, decoder = made()
    second.encode(shared[::-1])
    found = decoder.decode(second.encode(body))
    assert found.content == body.content
    body.form = None
    other, _ = made()
    other.encode(shared[::-1])
    assert second.encode(body) == other.encode(body)


def test_entries_within_entries_without_end_are_refused() -> None:
    body: Any = Formed(None)
    body.form = (b"", b""), ((WORDS[-1], 1, body),), (0,)
    encoder, _ = made()
    with pytest.raises(RecursionError):
        encoder.entry_of(body)


def test_positions_are_told_apart_by_their_code_and_not_by_what_it_equals() -> None:
    first, second = compile("1", "a.py", "eval"), compile("1", "b.py", "eval")
    assert first == second
    assert position_key(Position(first, 0)) == position_key(Position(first, 0))
    assert position_key(Position(first, 0)) != position_key(Position(second, 0))
    assert position_key(Position(first, 0)) != position_key(Position(first, 2))


def test_nodes_are_written_by_number_and_others_are_refused() -> None:
    x, y = us.tensor(1.0), us.tensor(2.0)
    journal = Journal()
    journal.enter(x.id, 300)
    encoder = Encoder({}, bytes, journal)
    expected = bytearray(b"\x14")
    put_count(expected, 300)
    assert encoder.encode(x) == bytes(expected)
    with pytest.raises(SaveError, match="cannot be saved"):
        encoder.encode([x, y])
    with pytest.raises(SaveError, match="cannot be saved"):
        made()[0].encode(x)


def test_what_contains_itself_is_an_error_and_no_crash() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(RecursionError, match="written to a file"):
        made()[0].encode(value)


def test_what_fails_while_a_value_is_taken_apart_is_passed_on() -> None:
    def fails(value: Any) -> tuple[Any, ...]:
        raise ZeroDivisionError

    encoder = Encoder({Pair: Word("Pair", Pair, fails, Pair)}, bytes)
    with pytest.raises(ZeroDivisionError):
        encoder.encode((1, Pair(1, 2)))


@pytest.mark.parametrize(
    "mistake",
    [
        lambda encoder: encoder.put(b"", 1),
        lambda encoder: encoder.put(bytearray()),
        lambda encoder: encoder.put_parts(bytearray(), (1, 2), Pair(1, 2)),
        lambda encoder: encoder.entry_of(1),
        lambda encoder: encoder.entry_of(with_form(((b"",), (), (0,)))),
        lambda encoder: encoder.entry_of(with_form(((b"", b""), (Shared(1),), (0,)))),
        lambda encoder: encoder.entry_of(with_form(((b"", b""), (), (0,)))),
        lambda encoder: encoder.entry_of(with_form((("",), (), ()))),
        lambda encoder: encoder.entry_of(with_form(([b""], (), ()))),
        lambda encoder: encoder.entry_of(with_form("form")),
        lambda encoder: encoder.entry_of_bytes("text"),
        lambda encoder: setattr(encoder, "write", None),
        lambda encoder: setattr(encoder, "position", None),
        lambda encoder: setattr(encoder, "words", None),
        lambda encoder: setattr(encoder, "references", ()),
        lambda encoder: setattr(encoder, "journal", encoder),
        lambda encoder: delattr(encoder, "words"),
        lambda encoder: EncoderBase().put(bytearray(), 1j),
        lambda encoder: position_key((1,)),
    ],
)
def test_mistakes_are_errors_and_no_crashes(mistake: Any) -> None:
    with pytest.raises((TypeError, ValueError, AttributeError)):
        mistake(made()[0])


def test_an_array_of_bytes_that_is_looked_at_cannot_grow() -> None:
    out = bytearray(b"a")
    with memoryview(out), pytest.raises(BufferError):
        made()[0].put(out, "text")


def test_an_encoder_in_a_cycle_is_freed() -> None:
    encoder, _ = made()
    encoder.known[0] = 0, encoder
    gone = weakref.ref(encoder)
    del encoder
    gc.collect()
    assert gone() is None
