"""`us.spool` and `us.resume`: what was acknowledged is there, what is torn is cut off, anything else is refused."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool._saving.arguments import as_seconds
from unspool._saving.frames import framed, records_of
from unspool._saving.listing import run_info, runs_in
from unspool._saving.log import Log, read_frames
from unspool.errors import ArgumentError, SaveError, SaveFileError


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def variables(size: int = 5) -> tuple[Any, Any]:
    rng = np.random.default_rng(3)
    return us.tensor(rng.normal(size=(size, size)) / 3, name="A"), us.tensor(rng.normal(size=size), name="x")


def loop(folder: Path, steps: int, A: Any, x: Any, *, every: float = 0.0, **options: Any) -> Any:
    """Return the state after a number of steps of a loop that is written."""
    with us.spool(folder, every=every, **options) as run:
        x = run.start(x, inputs=A)
        for k in run.steps(steps):
            x = us.tanh(A @ x) + 0.1 * k
            run.checkpoint(x, {"first": float(x[0])})
    return x


def plain(steps: int, A: Any, x: Any) -> Any:
    """Return the same without a run."""
    for k in range(steps):
        x = us.tanh(A @ x) + 0.1 * k
        float(x[0])
    return x


def bits(loss: Any, *wrt: Any) -> bytes:
    return b"".join(np.ascontiguousarray(value).tobytes() for value in us.eval([loss, *loss.grad(list(wrt))]))


# --- going on --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stops", [[1], [3, 7, 40], [90, 91], [149]])
def test_a_run_that_goes_on_has_the_bits_of_one_that_was_never_stopped(tmp_path: Path, stops: list[int]) -> None:
    A, x = variables()
    expected = bits(us.sum(plain(150, A, x) ** 2), A, x)
    for steps in [*stops, 150]:
        A, x = variables()
        found = loop(tmp_path / "run", steps, A, x)
    assert bits(us.sum(found**2), A, x) == expected


@pytest.mark.parametrize("stop", [1, 7, 40, 66, 99])
@pytest.mark.parametrize("is_given", [False, True])
def test_what_was_made_before_the_loop_and_not_read_is_the_same_in_all_steps(
    tmp_path: Path, stop: int, is_given: bool
) -> None:
    """It is computed by the first step, is folded with it, and recorded again by the program that goes on."""

    def run_loop(folder: Path | None, steps: int) -> bytes:
        A, x = variables()
        scaled = us.exp(A) / 5.0
        with us.spool(folder or tmp_path / "whole", every=0) as run:
            x = run.start(x, inputs=(A, scaled) if is_given else A)
            for _ in run.steps(steps):
                x = us.sin(scaled @ x) * 0.9
                run.checkpoint(x)
        loss = us.sum(x**2)
        slope = loss.grad(A)
        return bits(loss, A) + bits(us.sum(slope**2), A)

    expected = run_loop(None, 100)
    run_loop(tmp_path / "run", stop)
    assert run_loop(tmp_path / "run", 100) == expected


def test_a_key_is_part_of_a_state(tmp_path: Path) -> None:
    def walk(folder: Path, steps: int) -> bytes:
        scale = us.tensor(0.3)
        with us.spool(folder) as run:
            key, x = run.start((us.random.key(5), us.tensor(np.zeros(3))), inputs=scale)
            for _ in run.steps(steps):
                key, draw = us.random.split(key)
                x = 0.9 * x + scale * us.random.normal(draw, (3,))
                run.checkpoint((key, x))
        return bits(us.sum(x**2), scale)

    expected = walk(tmp_path / "whole", 80)
    for steps in (3, 70):
        walk(tmp_path / "run", steps)
    assert walk(tmp_path / "run", 80) == expected


def test_a_run_goes_on_without_its_program(tmp_path: Path) -> None:
    A, x = variables()
    expected = bits(us.sum(loop(tmp_path / "run", 80, A, x) ** 2), A, x)
    del A, x
    with us.resume(tmp_path / "run") as run:
        (x, A), state = run.inputs, run.state
        assert run.step == run.acknowledged == 80 and run.is_finished
        assert A.name == "A" and x.name == "x"
        assert bits(us.sum(state**2), A, x) == expected


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (lambda x: {"norm": us.sum(x)}, "given a tensor as 'norm'"),
        (lambda x: {"state": x}, "given a tensor as 'state'"),
        (lambda x: {"nested": [1.0, {"deep": (x,)}]}, "given a tensor as 'nested'"),
        (lambda x: [1.0], "takes a dict"),
        (lambda x: {1: 1.0}, "takes a dict"),
    ],
)
def test_what_was_not_read_is_no_value_of_a_step(tmp_path: Path, values: Any, message: str) -> None:
    A, x = variables()
    with us.spool(tmp_path / "run", every=0) as run:
        x = run.start(x, inputs=A)
        for k in run.steps(3):
            x = us.tanh(A @ x)
            if k == 2:
                with pytest.raises(ArgumentError, match=message):
                    run.checkpoint(x, values(x))
                assert run.step == 2
            run.checkpoint(x, {"first": float(x[0])})
    with us.resume(tmp_path / "run") as run:
        assert run.step == len(run.history) == 3


@pytest.mark.parametrize("n", [-1, 2.5, "3", None])
def test_a_number_of_steps_that_is_none_is_refused(tmp_path: Path, n: Any) -> None:
    with us.spool(tmp_path / "run") as run:
        run.start(us.tensor(1.0))
        with pytest.raises(ArgumentError, match=r"run\.steps takes the number"):
            run.steps(n)
        assert list(run.steps(np.int64(2))) == [0, 1] and run.total == 2


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(SaveFileError, match=r"is a folder; us\.load reads a file"):
        us.load(tmp_path)


def test_values_that_were_noted_come_back(tmp_path: Path) -> None:
    loop(tmp_path / "run", 7, *variables())
    A, x = variables()
    x = loop(tmp_path / "run", 12, A, x)
    with us.resume(tmp_path / "run") as run:
        assert len(run.history) == 12
        assert run.history[-1] == {"first": float(x[0])}


def test_states_are_dropped_by_the_schedule_and_the_gradient_does_without(tmp_path: Path) -> None:
    A, x = variables(50)
    expected = bits(us.sum(plain(120, A, x) ** 2), A, x)
    A, x = variables(50)
    loop(tmp_path / "run", 100, A, x, states=4)
    kept = sorted(int(path.stem.split("-")[2]) for path in (tmp_path / "run").glob("state-*"))
    assert len(kept) == 3 and kept[0] > 0 and kept[-1] == 100  # and the first, of leaves alone, which takes no file
    A, x = variables(50)
    assert bits(us.sum(loop(tmp_path / "run", 120, A, x, states=4) ** 2), A, x) == expected


def test_a_gradient_of_a_run_that_goes_on_keeps_to_a_budget(tmp_path: Path) -> None:
    def step(A: Any, x: Any) -> Any:
        return us.tanh(A @ x)

    A, x = us.tensor(np.eye(64) * 0.9), us.tensor(np.linspace(-1, 1, 64 * 64).reshape(64, 64))
    with us.spool(tmp_path / "run", every=0, states=6) as run:
        y = run.start(x, inputs=A)
        for _ in run.steps(200):
            y = step(A, y)
            run.checkpoint(y)
    expected = bits(us.sum(y * y), A, x)
    del y
    with us.memory("3MB") as memory, us.resume(tmp_path / "run") as run:
        (x, A), y = run.inputs, run.state
        assert bits(us.sum(y * y), A, x) == expected
    assert memory.report().peak <= 3_000_000


def test_nothing_is_written_before_it_is_time(tmp_path: Path) -> None:
    A, x = variables()
    with us.spool(tmp_path / "run", every="1h") as run:
        x = run.start(x, inputs=A)
        for _ in run.steps(5):
            x = us.tanh(A @ x)
            run.checkpoint(x)
            assert run.acknowledged == 0
    assert run_info(tmp_path / "run").step == 5


def test_an_exception_loses_no_step(tmp_path: Path) -> None:
    def interrupted() -> None:
        A, x = variables()
        with us.spool(tmp_path / "run", every="1h") as run:
            x = run.start(x, inputs=A)
            for k in run.steps(10):
                if k == 6:
                    raise KeyboardInterrupt
                x = us.tanh(A @ x)
                run.checkpoint(x)

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    info = run_info(tmp_path / "run")
    assert info.step == 6 and info.status == "stopped"


def test_who_looks_at_a_run_does_not_end_it(tmp_path: Path) -> None:
    folder = tmp_path / "run"

    def go_on(run: us.SpooledRun, x: us.Tensor, stop: int) -> None:
        for k in run.steps(10):
            if k == stop:
                raise KeyboardInterrupt
            x = us.sin(x)
            run.checkpoint(x)

    def begin() -> None:
        with us.spool(folder, every=0) as run:
            go_on(run, run.start(us.tensor(1.0)), 5)

    with pytest.raises(KeyboardInterrupt):
        begin()
    for _ in range(2):
        with us.resume(folder) as run:
            assert (run.step, run.is_finished) == (5, False)
    with us.resume(folder) as run:
        go_on(run, run.state, -1)
    with us.resume(folder) as run:
        assert (run.step, run.is_finished) == (10, True)


def test_a_run_that_had_ended_and_goes_on_has_not_ended(tmp_path: Path) -> None:
    folder = tmp_path / "run"

    def begin(steps: int, stop: int) -> None:
        with us.spool(folder, every=0) as run:
            x = run.start(us.tensor(1.0))
            for k in run.steps(steps):
                x = us.sin(x)
                run.checkpoint(x)
                if k == stop:
                    raise KeyboardInterrupt

    begin(5, -1)
    assert run_info(folder).status == "finished"
    with pytest.raises(KeyboardInterrupt):
        begin(10, 7)
    assert (run_info(folder).status, run_info(folder).step) == ("stopped", 8)
    with us.resume(folder) as run:
        assert (run.step, run.is_finished) == (8, False)
        run.checkpoint(us.sin(run.state))  # goes on, without saying how far
    assert (run_info(folder).status, run_info(folder).step) == ("finished", 9)
    with pytest.raises(ZeroDivisionError), us.resume(folder) as run:
        raise ZeroDivisionError
    assert run_info(folder).status == "finished"


@pytest.mark.parametrize(("size", "files"), [(5, 0), (100, 1)])
def test_few_bytes_of_leaves_stand_in_the_log(tmp_path: Path, size: int, files: int) -> None:
    A, x = variables(size)
    y = loop(tmp_path / "run", 20, A, x)
    expected = bits(us.sum(y * y), A, x)
    assert len(list((tmp_path / "run").glob("leaves-*"))) == files
    with us.resume(tmp_path / "run") as run:
        (x, A), y = run.inputs, run.state
        assert bits(us.sum(y * y), A, x) == expected


@pytest.mark.parametrize(("every", "files"), [("1h", 0), (0, 4)])
def test_a_small_state_of_many_steps_stands_in_the_log_and_few_do(tmp_path: Path, every: Any, files: int) -> None:
    A, x = variables()
    expected = bits(us.sum(plain(150, A, x) ** 2), A, x)
    loop(tmp_path / "run", 150, A, x, every=every, states=6)
    found = list((tmp_path / "run").glob("state-*"))
    assert len(found) >= files if files else not found
    del A, x
    with us.resume(tmp_path / "run") as run:
        (x, A), y = run.inputs, run.state
        assert bits(us.sum(y**2), A, x) == expected


def test_a_step_is_made_once(tmp_path: Path) -> None:
    made = []
    for steps in (4, 9, 9):
        A, x = variables()
        with us.spool(tmp_path / "run", every=0) as run:
            x = run.start(x, inputs=A)
            for k in run.steps(steps):
                made.append(k)
                x = us.tanh(A @ x)
                run.checkpoint(x)
    assert made == list(range(9))


def test_loops_of_the_engine_go_on(tmp_path: Path) -> None:
    def run(steps: int, spool: Any) -> tuple[bytes, int]:
        A, x = variables()
        found, done, sums = us.iterate(
            lambda y: (us.tanh(A @ y), us.sum(y)), x, max_steps=steps, has_outputs=True, spool=spool
        )
        return bits(us.sum(found**2) + us.sum(sums), A, x), done

    expected = run(70, None)
    for steps in (20, 70):
        found = run(steps, us.spool(tmp_path / "run", every=0))
    assert found == expected
    assert run(70, tmp_path / "run") == expected


def test_a_loop_of_the_engine_that_stopped_by_itself_is_not_gone_on_with(tmp_path: Path) -> None:
    def run(spool: Any) -> tuple[float, int]:
        a = us.tensor(2.0)
        x, steps = us.iterate(
            lambda r: (r + a / r) / 2, 1.0, until=lambda new, old: abs(new - old) < 1e-12, max_steps=50, spool=spool
        )
        return float(x.grad(a)), steps

    assert run(None) == run(tmp_path / "run") == run(tmp_path / "run")


def test_another_loop_of_the_engine_is_refused(tmp_path: Path) -> None:
    x = us.tensor([1.0, 2.0])
    us.iterate(lambda y: y * 0.5, x, max_steps=3, spool=tmp_path / "run")
    with pytest.raises(ArgumentError, match="another"):
        us.iterate(lambda y: y * 0.5 + 1.0, x, max_steps=3, spool=tmp_path / "run")


CROWD = """
import sys
import unspool as us
from unspool._fragments.call import Projection
x = us.tensor([0.1, 0.2, 0.3])
with us.spool(sys.argv[1], every="1h") as run:
    found = run.start([], inputs=x)
    for k in run.steps(int(sys.argv[2])):
        found = [*found, us.sum(us.sin(x * (0.1 * k)))]
        run.checkpoint(found)
print([type(y) is Projection for y in found].count(True))
"""


def test_many_pieces_that_wait_are_folded_when_they_would_have_been(tmp_path: Path) -> None:
    def folded(folder: str, steps: int) -> int:
        command = [sys.executable, "-c", CROWD, str(tmp_path / folder), str(steps)]
        return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    expected = folded("whole", 1200)
    for steps in (300, 900, 1200):
        found = folded("run", steps)
    assert found == expected > 0


# --- what is torn, and what is damaged -------------------------------------------------------------------------------


def test_a_log_is_cut_at_the_last_whole_frame_wherever_it_was_torn(tmp_path: Path) -> None:
    log = Log(tmp_path / "log", create=True)
    log.append(b"first")
    whole = log.nbytes
    log.append(b"second, which is torn")
    log.close()
    data = (tmp_path / "log").read_bytes()
    for length in range(whole, len(data)):
        frames, end, _ = read_frames(tmp_path / "log", data[:length])
        assert (frames, end) == ([b"first"], whole)
    assert len(read_frames(tmp_path / "log", data)[0]) == 2
    assert read_frames(tmp_path / "log", data[:whole] + bytes(50))[1] == whole


def test_a_frame_that_was_acknowledged_is_never_skipped(tmp_path: Path) -> None:
    log = Log(tmp_path / "log", create=True)
    log.append(b"first")
    begin = log.nbytes
    log.append(b"second")
    log.close()
    data = bytearray((tmp_path / "log").read_bytes())
    for at in range(begin):
        changed = data.copy()
        changed[at] ^= 1
        with pytest.raises(SaveFileError):
            read_frames(tmp_path / "log", bytes(changed))


@pytest.mark.parametrize("size", [10, 5000])
def test_records_of_a_frame_come_back(size: int) -> None:
    records = bytes(k * k % 251 for k in range(size))
    assert records_of(framed({"step": 3}, records)) == records


@pytest.mark.parametrize("size", [0, -1, 4999, 5001, 1 << 40, "5000", 5000.0, True])
def test_a_frame_that_does_not_have_what_it_announces_is_refused(size: Any) -> None:
    text = json.dumps({"records": size}).encode()
    frame = len(text).to_bytes(4, "little") + text + zlib.compress(bytes(5000), 1)
    with pytest.raises(SaveFileError, match="announces"):
        records_of(frame)


@pytest.mark.parametrize("cut", [slice(-1), slice(1, None), slice(0)])
def test_a_frame_that_cannot_be_unpacked_is_refused(cut: slice) -> None:
    text = json.dumps({"records": 5000}).encode()
    frame = len(text).to_bytes(4, "little") + text + zlib.compress(bytes(5000), 1)[cut]
    with pytest.raises(SaveFileError, match="frame of the run"):
        records_of(frame)


def test_a_run_goes_on_from_a_torn_log(tmp_path: Path) -> None:
    A, x = variables()
    expected = bits(us.sum(loop(tmp_path / "whole", 30, A, x) ** 2), A, x)
    loop(tmp_path / "run", 20, *variables())
    path = tmp_path / "run" / "log"
    path.write_bytes(path.read_bytes()[:-7])
    (tmp_path / "run" / "state-999-20.safetensors").write_bytes(b"not acknowledged")
    A, x = variables()
    assert bits(us.sum(loop(tmp_path / "run", 30, A, x) ** 2), A, x) == expected
    assert not (tmp_path / "run" / "state-999-20.safetensors").exists()


def test_a_run_that_was_killed_before_it_began_begins(tmp_path: Path) -> None:
    for content in (b"", b"unspool", b"unspool-run-1\n", b"unspool-run-1\n\0\0"):
        folder = tmp_path / str(len(content))
        folder.mkdir()
        (folder / "log").write_bytes(content)
        with pytest.raises(SaveFileError, match="before its first state"):
            us.resume(folder)
        assert loop(folder, 3, *variables()).shape == (5,)
        assert run_info(folder).step == 3


@pytest.mark.parametrize("name", ["leaves-0", "state-"])
def test_files_of_a_run_that_were_changed_or_are_missing_are_refused(tmp_path: Path, name: str) -> None:
    loop(tmp_path / "run", 5, us.tensor(np.ones((100, 100)) / 190), us.tensor(np.ones(100)))
    path = max((tmp_path / "run").glob(f"{name}*"), key=lambda path: int(path.stem.split("-")[1]))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(SaveFileError, match="damaged"):
        us.resume(tmp_path / "run")
    path.unlink()
    with pytest.raises(SaveFileError, match="no file"):
        us.resume(tmp_path / "run")


def test_a_file_of_another_run_is_refused(tmp_path: Path) -> None:
    loop(tmp_path / "one", 5, *variables(100))
    loop(tmp_path / "two", 5, us.tensor(np.ones((100, 100)) / 190), us.tensor(np.ones(100)))
    (name,) = [path.name for path in (tmp_path / "one").glob("leaves-*")]
    shutil.copy(tmp_path / "two" / name, tmp_path / "one" / name)
    with pytest.raises(SaveFileError, match="not the file that the run wrote"):
        us.resume(tmp_path / "one")


# --- mistakes --------------------------------------------------------------------------------------------------------


def test_two_writers_are_one_too_many(tmp_path: Path) -> None:
    A, x = variables()
    with us.spool(tmp_path / "run") as run:
        run.start(x, inputs=A)
        assert run_info(tmp_path / "run").status == "running"
        with pytest.raises(SaveFileError, match="in use"):
            us.resume(tmp_path / "run")


def test_a_run_with_other_data_is_another_run(tmp_path: Path) -> None:
    A, x = variables()
    loop(tmp_path / "run", 5, A, x)
    with pytest.raises(ArgumentError, match="other data"):
        loop(tmp_path / "run", 5, A, us.tensor(np.ones(5)))
    with pytest.raises(ArgumentError, match="variables"):
        loop(tmp_path / "run", 5, us.constant(np.eye(5)), x)


def test_a_variable_that_the_run_was_not_told_of_is_named(tmp_path: Path) -> None:
    A, x = variables()
    with us.spool(tmp_path / "run", every=0) as run:
        x = run.start(x)
        with pytest.raises(ArgumentError, match="inputs="):
            run.checkpoint(A @ x)


def test_leaves_that_are_made_in_the_loop_need_not_be_told(tmp_path: Path) -> None:
    with us.spool(tmp_path / "run", every=0) as run:
        x = run.start(us.tensor([1.0, 2.0]))
        for k in run.steps(3):
            x = x + us.tensor([float(k), 1.0])
            run.checkpoint(x)
    with us.resume(tmp_path / "run") as run:
        assert run.state.eval().tolist() == [4.0, 5.0]


def test_a_checkpoint_before_the_start_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="run.start"), us.spool(tmp_path / "run") as run:
        run.checkpoint(us.tensor(1.0))


def test_what_cannot_be_saved_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(SaveError, match="object"), us.spool(tmp_path / "run") as run:
        run.start({"x": us.tensor(1.0), "other": object()})


def test_a_run_that_is_not_there_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(SaveFileError, match="no run"):
        us.resume(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("every", "seconds"),
    [
        ("5min", 300),
        ("30s", 30),
        (" 1.5 h ", 5400),
        (2, 2),
        (0.5, 0.5),
        (dt.timedelta(minutes=1), 60),
        ("10", 10),
    ],
)
def test_times_are_read(every: Any, seconds: float) -> None:
    assert as_seconds(every) == seconds


@pytest.mark.parametrize("every", ["soon", "5 parsecs", -1, True, None, "..s", float("nan")])
def test_what_is_no_time_is_refused(tmp_path: Path, every: Any) -> None:
    with pytest.raises(ArgumentError, match="every"):
        us.spool(tmp_path, every=every)


@pytest.mark.parametrize("states", [2, "many", None, True])
def test_a_run_keeps_at_least_three_states(tmp_path: Path, states: Any) -> None:
    with pytest.raises(ArgumentError, match="states"):
        us.spool(tmp_path, states=states)


# --- listing ---------------------------------------------------------------------------------------------------------


def test_runs_are_listed_with_how_far_they_are(tmp_path: Path) -> None:
    loop(tmp_path / "one", 4, *variables())
    A, x = variables()
    with us.spool(tmp_path / "two", every=0) as run:
        x = run.start(x, inputs=A)
        run.steps(10)
        run.checkpoint(us.tanh(A @ x))
        run.close()
    (tmp_path / "three").mkdir()
    (tmp_path / "three" / "log").write_bytes(b"something else")
    (tmp_path / "neither").mkdir()
    found = {info.path.name: info for info in runs_in(tmp_path)}
    assert found.keys() == {"one", "two", "three"}
    assert (found["one"].status, found["one"].step, found["one"].total) == ("finished", 4, 4)
    assert (found["two"].status, found["two"].step, found["two"].total) == ("stopped", 1, 10)
    assert found["three"].status.startswith("unreadable")
    assert 0 < found["one"].state_bytes < found["one"].nbytes


# --- a run whose tensors are alive -----------------------------------------------------------------------------------


def _variables() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return us.tensor(rng.normal(size=(6, 6)) / 4), us.tensor(rng.normal(size=6))


def _steps(A: Any, x: Any, first: int, last: int) -> Any:
    for k in range(first, last):
        x = us.tanh((A + A.mT) @ x) * 1.01 + 0.1 * (k % 3)
        x.eval()
    return x


def _written(folder: Path, A: Any, x: Any, steps: int) -> Any:
    with us.spool(folder, every=1e9) as run:
        x = run.start(x, inputs=A)
        for k in run.steps(steps):
            x = us.tanh((A + A.mT) @ x) * 1.01 + 0.1 * (k % 3)
            run.checkpoint(x)
    return x


def _bits(A: Any, x0: Any, x: Any) -> bytes:
    loss = us.sum(x * x)
    return b"".join(value.tobytes() for value in us.eval([loss, *loss.grad([A, x0])]))


@pytest.mark.parametrize("steps", [20, 90])
def test_what_was_folded_after_it_was_written_is_found_while_it_is_alive(tmp_path: Path, steps: int) -> None:
    A, x0 = _variables()
    state = _written(tmp_path, A, x0, steps)
    newest = _steps(A, state, steps, steps + 100)
    with us.resume(tmp_path) as run:
        assert run.state is state
    assert newest.value is not None


@pytest.mark.parametrize("takes_gradient", [False, True])
def test_going_on_beside_the_live_run_has_the_bits_of_a_program_that_writes_nothing(
    tmp_path: Path, takes_gradient: bool
) -> None:
    A, x0 = _variables()
    kept = _steps(A, x0, 0, 90)
    beside = _bits(A, x0, kept) if takes_gradient else _steps(A, kept, 90, 150)
    expected = _bits(A, x0, _steps(A, kept, 90, 200))
    del kept, beside
    A, x0 = _variables()
    kept = _written(tmp_path, A, x0, 90)
    beside = _bits(A, x0, kept) if takes_gradient else _steps(A, kept, 90, 150)
    assert _bits(A, x0, _written(tmp_path, A, x0, 200)) == expected
    del beside


def test_a_first_run_of_a_plain_loop_loads_no_other_loops_and_no_solvers(tmp_path: Path) -> None:
    # That takes as long as many a run, and is no part of it.
    program = f"""
import sys
import unspool as us
with us.spool({str(tmp_path / "run")!r}) as run:
    x = run.start(us.tensor([1.0, 0.5]))
    for k in run.steps(100):
        x = us.sin(x)
        run.checkpoint(x)
late = "unspool._autodiff.loops", "unspool._autodiff.solvers", "unspool._batching", "unspool._ops.linalg.division"
print(sorted(name for name in sys.modules if name.startswith(late)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done
