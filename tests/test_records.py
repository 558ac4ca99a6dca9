"""Named tuples of our own are those of `typing`, but for what becomes of annotations."""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple

import pytest

from unspool import _records


class Ours(_records.NamedTuple):
    """What it is for."""

    first: int
    second: NoSuchName = 2.0  # type: ignore[name-defined]  # noqa: F821

    @property
    def total(self) -> float:
        """The sum."""
        return self.first + self.second


class Theirs(NamedTuple):
    """What it is for."""

    first: int
    second: float = 2.0

    @property
    def total(self) -> float:
        """The sum."""
        return self.first + self.second


@pytest.mark.parametrize(
    "ask",
    [
        lambda kind: kind(1),
        lambda kind: kind(1, 3.0)._replace(first=5),
        lambda kind: kind(second=1.0, first=4).total,
        lambda kind: (kind._fields, kind._field_defaults, kind.__doc__, kind.__module__, kind.__slots__),
        lambda kind: kind(1)._asdict(),
        lambda kind: repr(kind(1)).partition("(")[2],
        lambda kind: kind.__bases__,
        lambda kind: hash(kind(1)) == hash((1, 2.0)),
    ],
)
def test_they_answer_like_those_of_typing(ask: Any) -> None:
    assert ask(Ours) == ask(Theirs)


@pytest.mark.parametrize("given", [(), (1, 2, 3)])
def test_they_take_as_many_values_as_they_have_fields(given: Any) -> None:
    with pytest.raises(TypeError):
        Ours(*given)


def test_they_are_pickled_by_name() -> None:
    assert Ours.__qualname__ == "Ours"
    assert pickle.loads(pickle.dumps(Ours(1, 5.0))) == Ours(1, 5.0)


def test_they_are_made_of_as_many_values_as_they_have_fields() -> None:
    assert Ours._make(iter([1, 3.0])) == Ours(1, 3.0)
    with pytest.raises(TypeError, match="Expected 2 arguments, got 3"):
        Ours._make([1, 2, 3])
    with pytest.raises(ValueError, match="third"):
        Ours(1)._replace(third=2)
    with pytest.raises(TypeError, match="third"):
        Ours(1, third=2)  # type: ignore[call-arg]


def test_fields_without_default_come_first() -> None:
    with pytest.raises(TypeError, match="without default"):

        class Mixed(_records.NamedTuple):
            first: int = 1
            second: int  # type: ignore[misc]
