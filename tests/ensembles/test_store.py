"""Results in a folder: an interrupted run goes on, and a folder of something else is refused."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool._ensembles.work import Piece
from unspool.errors import ArgumentError, EnsembleError

GIVEN = np.linspace(0.5, 1.5, 10)


class Counting:
    """A function that remembers what it was called with."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def __call__(self, x: us.Tensor) -> tuple[us.Tensor, Any]:
        self.seen.append(x.item())
        if x.item() > 1.4:
            raise ValueError("large")
        return us.sin(x) * x, (us.cos(x) + 1j * x, np.arange(3) > 1)


def stop_after(count: int) -> Any:
    def progress(done: int, of: int) -> None:
        if done == count:
            raise KeyboardInterrupt

    return progress


def test_a_run_that_was_interrupted_goes_on_where_it_was(tmp_path: Path) -> None:
    f = Counting()
    with pytest.raises(KeyboardInterrupt):
        us.ensemble(f, GIVEN, has_aux=True, batch=1, folder=tmp_path, progress=stop_after(4))
    assert f.seen == list(GIVEN[:4])
    found = us.ensemble(f, GIVEN, has_aux=True, folder=tmp_path)
    assert f.seen == list(GIVEN)
    assert (found.report().computed, found.report().read, found.report().failed) == (6, 4, 1)
    again = us.ensemble(f, GIVEN, has_aux=True, folder=tmp_path)
    assert f.seen == list(GIVEN)
    whole = us.ensemble(f, GIVEN, has_aux=True, batch=1)
    for other in (again, whole):
        assert np.array_equal(found.values, other.values, equal_nan=True)
        assert np.array_equal(found.gradients, other.gradients, equal_nan=True)
        assert all(np.array_equal(x, y, equal_nan=True) for x, y in zip(found.aux, other.aux, strict=True))
        assert [(x.index, x.kind, x.message) for x in found.failures] == [(9, "ValueError", "large")]
    assert [x.dtype for x in again.aux] == [np.complex128, np.bool_]


def test_members_that_failed_are_computed_again_only_when_asked_for(tmp_path: Path) -> None:
    f = Counting()
    us.ensemble(f, GIVEN, has_aux=True, batch=1, folder=tmp_path)
    f.seen = []
    us.ensemble(f, GIVEN, has_aux=True, batch=1, folder=tmp_path, retry=True)
    assert f.seen == [1.5]


def test_a_folder_holds_arrays_and_words_and_no_code(tmp_path: Path) -> None:
    us.ensemble(us.sin, GIVEN, folder=tmp_path, batch=5)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [
        "ensemble.json",
        "members-0000000-0000005.safetensors",
        "members-0000005-0000010.safetensors",
    ]
    assert json.loads((tmp_path / "ensemble.json").read_text())["members"] == 10


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-9], lambda data: data[:-1] + bytes([data[-1] ^ 1]), lambda _: b""]
)
def test_a_damaged_file_is_computed_again(tmp_path: Path, damage: Any) -> None:
    expected = us.ensemble(us.sin, GIVEN, folder=tmp_path, batch=5)
    path = tmp_path / "members-0000005-0000010.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    found = us.ensemble(us.sin, GIVEN, folder=tmp_path, batch=5)
    assert found.report().computed == 5
    assert np.array_equal(found.values, expected.values)


def scaled(x: us.Tensor, scale: float) -> us.Tensor:
    return us.sin(scale * x)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (lambda folder: us.ensemble(partial(scaled, scale=3.0), GIVEN, folder=folder), "code differs;"),
        (lambda folder: us.ensemble(partial(scaled, scale=2.0), GIVEN + 1, folder=folder), "parameters differ;"),
        (lambda folder: us.ensemble(partial(scaled, scale=2.0), GIVEN, folder=folder, batch=3), "batch differs"),
        (lambda folder: us.ensemble(partial(scaled, scale=2.0), GIVEN, folder=folder, gradient=False), "gradient"),
    ],
)
def test_a_folder_of_another_ensemble_is_refused(tmp_path: Path, other: Any, words: str) -> None:
    us.ensemble(partial(scaled, scale=2.0), GIVEN, folder=tmp_path)
    with pytest.raises(EnsembleError, match=f"has results of another ensemble: .*{words}"):
        other(tmp_path)


def test_results_of_another_version_of_the_function_are_taken_when_asked_for(tmp_path: Path) -> None:
    us.ensemble(partial(scaled, scale=2.0), GIVEN, folder=tmp_path)
    kept = us.ensemble(partial(scaled, scale=3.0), GIVEN, folder=tmp_path, changed="keep")
    np.testing.assert_allclose(kept.values, np.sin(2 * GIVEN), atol=1e-15)


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ArgumentError, match="cannot be made"):
        us.ensemble(us.sin, GIVEN, folder=tmp_path / "file")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "ensemble.json").write_text("[]")
    with pytest.raises(EnsembleError, match="not of a format"):
        us.ensemble(us.sin, GIVEN, folder=tmp_path / "other")


def test_what_a_pool_lost_is_not_written(tmp_path: Path) -> None:
    class Losing:
        def submit(self, f: Any, task: Any, parts: Any) -> Any:
            class Future:
                def result(self) -> list[Piece]:
                    if parts[0][0] == 5:
                        raise OSError("the worker is gone")
                    return f(task, parts)

            return Future()

    found = us.ensemble(us.sin, GIVEN, Losing(), folder=tmp_path, batch=5)
    assert list(found.ok) == [True] * 5 + [False] * 5
    assert found.failures[0].kind == "OSError"
    assert us.ensemble(us.sin, GIVEN, folder=tmp_path).ok.all()
