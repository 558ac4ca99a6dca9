"""Numbers of nodes by id, some in a dict and the rest in arrays."""

from __future__ import annotations

import random

import pytest

from unspool._saving import numbers
from unspool._saving.numbers import Numbers


def test_numbers_are_found_wherever_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "_MOST_RECENT", 10)
    rng = random.Random(0)
    made, known = Numbers(), {}
    for number in range(500):
        key = rng.randrange(2000)
        if key not in known:
            made[key] = known[key] = number
        made.settle()
    assert len(made) == len(known)
    for key in range(2000):
        assert made.get(key) == known.get(key)
        assert (key in made) == (key in known)
    with pytest.raises(KeyError):
        made[2001]
