"""The disk tier: the same bits come back or a typed error does, and no file outlives its process by long."""

from __future__ import annotations

import errno
import gc
import json
import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from unspool.checkpoint import spill
from unspool.checkpoint._own_directory import LOCK
from unspool.checkpoint.spill import SpillHandle, SpillStore
from unspool.errors import ArgumentError, DTypeError, SpillError, UnspoolError

DTYPES = ("bool", "int32", "int64", "float32", "float64", "complex64", "complex128")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SpillStore]:
    with SpillStore(tmp_path) as made:
        yield made


def files_in(store: SpillStore) -> list[str]:
    return sorted(path.name for path in store.path.iterdir() if path.name != LOCK)


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


# --- what comes back -------------------------------------------------------------------------------------------------


@st.composite
def laid_out_arrays(draw: st.DrawFn) -> np.ndarray:
    """Arrays of any bits, as views with permuted, reversed, skipped and repeated axes."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
    count = int(np.prod(shape, dtype=int)) * dtype.itemsize
    raw = draw(st.binary(min_size=count, max_size=count))
    array = np.frombuffer(raw, "uint8") % 2 == 1 if dtype.kind == "b" else np.frombuffer(raw, dtype)
    array = array.reshape(shape).transpose(draw(st.permutations(range(len(shape)))))
    steps = draw(st.tuples(*[st.sampled_from([1, 1, -1, 2])] * array.ndim))
    array = array[tuple(slice(None, None, step) for step in steps)]
    return np.broadcast_to(array, (2, *array.shape)) if draw(st.booleans()) else array


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.text(max_size=8), laid_out_arrays(), max_size=4))
def test_arrays_come_back_with_the_same_names_and_bits(store: SpillStore, arrays: dict[str, np.ndarray]) -> None:
    handle = store.put(arrays)
    found = store.get(handle)
    store.free(handle)
    assert list(found) == list(arrays)
    assert all(same_bits(found[name], arrays[name]) for name in arrays)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (2, 3, 4)])
def test_every_data_type_comes_back_from_every_kind_of_shape(
    store: SpillStore, dtype: str, shape: tuple[int, ...]
) -> None:
    array = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    assert same_bits(store.get(store.put({"x": array}))["x"], array)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_signs_of_zeros_and_payloads_of_nans_come_back(store: SpillStore, dtype: str) -> None:
    bits = {
        4: (0x7FC00001, 0xFFC12345, 0x80000000, 0x7F800000),
        8: (0x7FF8000000000001, 0xFFF8000000ABCDEF, 1 << 63, 1),
    }
    width = np.dtype(dtype).itemsize // (2 if dtype.startswith("c") else 1)
    array = np.array(bits[width], f"uint{8 * width}").view(dtype)
    assert same_bits(store.get(store.put({"x": array}))["x"], array)


@pytest.mark.parametrize("axes", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (0, 2, 1)])
@pytest.mark.parametrize("dtype", ["float64", "complex64"])
def test_dense_arrays_come_back_with_their_strides(store: SpillStore, axes: tuple[int, ...], dtype: str) -> None:
    array = np.arange(24).astype(dtype).reshape(2, 3, 4).transpose(axes)
    found = store.get(store.put({"x": array}))["x"]
    assert same_bits(found, array) and found.strides == array.strides


def test_strided_arrays_come_back_as_numpy_copies_them(store: SpillStore) -> None:
    array = np.arange(60.0).reshape(3, 4, 5).transpose(2, 0, 1)[::2, ::-1, 1:3]
    found = store.get(store.put({"x": array}))["x"]
    assert same_bits(found, array) and found.strides == array.copy(order="K").strides


def test_products_of_what_comes_back_round_as_before(store: SpillStore) -> None:
    rng = np.random.default_rng(1)
    a, b = np.asfortranarray(rng.standard_normal((97, 61))), rng.standard_normal((53, 61)).T
    found = store.get(store.put({"a": a, "b": b}))
    assert same_bits(found["a"] @ found["b"], a @ b)


def test_what_comes_back_is_new_memory_that_may_be_written(store: SpillStore) -> None:
    array = np.arange(3.0)
    array.flags.writeable = False
    handle = store.put({"x": array})
    store.get(handle)["x"][:] = 7.0
    assert same_bits(store.get(handle)["x"], array)


def test_each_array_that_comes_back_has_memory_of_its_own(store: SpillStore) -> None:
    found = store.get(store.put({"x": np.zeros(3), "y": np.zeros((3, 4), order="F")}))
    for array in found.values():
        held = array
        while isinstance(held.base, np.ndarray):
            held = held.base
        assert held.nbytes == array.nbytes


@pytest.mark.parametrize("name", ["__metadata__", "", 'quo"te', "\udcff", "ψ/../..", "0"])
def test_any_name_will_do(store: SpillStore, name: str) -> None:
    assert list(store.get(store.put({name: np.ones(2), "1": np.zeros(1)}))) == [name, "1"]


@pytest.mark.parametrize("dtype", ["float16", "m8[s]", ">f8", "object", "U3"])
def test_other_data_types_are_refused_by_name(store: SpillStore, dtype: str) -> None:
    with pytest.raises(DTypeError, match=r"array 'odd' has dtype .*complex128"):
        store.put({"odd": np.zeros(2, dtype)})
    assert files_in(store) == []


@pytest.mark.parametrize("dtype", ["int8", "uint8", "uint16", "uint32", "uint64"])
def test_small_and_unsigned_integers_come_back(store: SpillStore, dtype: str) -> None:
    array = np.array([[0, 1, 127]], dtype)
    back = store.get(store.put({"x": array}))["x"]
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


def test_a_file_is_plain_safetensors_with_checksum_and_layout_in_its_metadata(store: SpillStore) -> None:
    x, z = np.arange(6.0).reshape(2, 3), np.array([[1 + 2j, 3 - 4j]], order="F")
    handle = store.put({"x": x, "z": z})
    with safetensors.safe_open(handle.file, framework="np") as file:
        metadata = file.metadata()
        np.testing.assert_array_equal(file.get_tensor("0"), x)
        np.testing.assert_array_equal(file.get_tensor("1").ravel(), [1, 2, 3, -4])
    assert metadata["sha256"] == handle.checksum
    assert [row[:3] for row in json.loads(metadata["layout"])] == [
        ["x", "float64", [2, 3]],
        ["z", "complex128", [1, 2]],
    ]


# --- what is counted -------------------------------------------------------------------------------------------------


def test_bytes_are_those_of_the_files(store: SpillStore) -> None:
    handles = [store.put({"x": np.zeros(n)}) for n in (1, 10, 100)]
    sizes = [handle.file.stat().st_size for handle in handles]
    assert [handle.nbytes for handle in handles] == sizes
    assert store.nbytes == store.written == sum(sizes)
    store.get(handles[2])
    store.get(handles[2])
    assert store.read == 2 * sizes[2]
    store.free(handles[0])
    assert (store.nbytes, store.written) == (sizes[1] + sizes[2], sum(sizes))
    assert store.seconds_writing > 0.0 and store.seconds_reading > 0.0


def test_freed_files_are_gone_and_freeing_twice_is_nothing(store: SpillStore) -> None:
    kept, freed = store.put({"x": np.zeros(3)}), store.put({"x": np.zeros(3)})
    store.free(freed)
    store.free(freed)
    assert files_in(store) == [kept.file.name]
    with pytest.raises(SpillError, match=f"{freed.file} was freed"):
        store.get(freed)


def test_a_put_beyond_the_limit_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SpillStore(tmp_path, limit=10_000) as store:
        first = store.put({"x": np.zeros(1000)})
        monkeypatch.setattr(spill, "_write", lambda *_: pytest.fail("wrote"))
        with pytest.raises(SpillError, match=rf"spilling 8\d\d\d bytes beside {first.nbytes} .* limit of 10000 bytes"):
            store.put({"x": np.zeros(1000)})
        assert (store.nbytes, files_in(store)) == (first.nbytes, [first.file.name])
        monkeypatch.undo()
        store.free(first)
        store.put({"x": np.zeros(1000)})


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.text(max_size=8), laid_out_arrays(), max_size=4))
def test_the_size_foreseen_is_never_too_small_and_nearly_right(
    store: SpillStore, arrays: dict[str, np.ndarray]
) -> None:
    layouts, tensors = spill._to_stored(arrays)
    metadata = spill._metadata(layouts, spill._checksum(layouts, tensors))
    foreseen = spill._size_bound(layouts, tensors, metadata)
    handle = store.put(arrays)
    store.free(handle)
    assert handle.nbytes <= foreseen <= handle.nbytes + 16 + 8 * len(arrays)


def test_a_limit_of_nothing_refuses_everything(tmp_path: Path) -> None:
    with SpillStore(tmp_path, limit=0) as store, pytest.raises(SpillError, match="limit of 0 bytes"):
        store.put({})


# --- files that are not what was written -----------------------------------------------------------------------------


def missing(file: Path) -> None:
    file.unlink()


def truncated(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 1)


def emptied(file: Path) -> None:
    os.truncate(file, 0)


def extended(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"\0")


def a_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


def overwritten(file: Path) -> None:
    file.write_bytes(b"\xff" * file.stat().st_size)


def last_bit_flipped(file: Path) -> None:
    contents = bytearray(file.read_bytes())
    contents[-1] ^= 1
    file.write_bytes(contents)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (missing, "is missing"),
        (truncated, r"has \d+ bytes, but \d+ were written"),
        (emptied, r"has 0 bytes, but \d+ were written"),
        (extended, r"has \d+ bytes, but \d+ were written"),
        (a_directory, r"has \d+ bytes, but \d+ were written"),
        (overwritten, "cannot be read: .*header"),
        (last_bit_flipped, "is damaged: its SHA-256 is [0-9a-f]{64}, not [0-9a-f]{64}"),
    ],
)
def test_a_damaged_file_is_an_error_that_names_it(
    store: SpillStore, harm: Callable[[Path], None], message: str
) -> None:
    handle = store.put({"x": np.arange(5.0)})
    harm(handle.file)
    with pytest.raises(SpillError, match=f"{handle.file} {message}") as caught:
        store.get(handle)
    assert isinstance(caught.value, UnspoolError) and isinstance(caught.value, OSError)
    assert store.read == 0


def test_a_flipped_bit_in_any_byte_of_a_file_is_found(store: SpillStore) -> None:
    handle = store.put({"x": np.array([1.5, -2.5]), "flag": np.array(True), "z": np.array([1j], "complex64")})
    sound = handle.file.read_bytes()
    unnoticed = []
    for position in range(len(sound)):
        changed = bytearray(sound)
        changed[position] ^= 1 << position % 8
        handle.file.write_bytes(changed)
        try:
            store.get(handle)
        except SpillError:
            continue
        unnoticed.append(position)
    assert unnoticed == []
    handle.file.write_bytes(sound)
    assert store.get(handle)["x"].tolist() == [1.5, -2.5]


def test_a_file_exchanged_for_a_sound_one_is_found(store: SpillStore) -> None:
    first, second = store.put({"x": np.zeros(5)}), store.put({"x": np.ones(5)})
    assert first.nbytes == second.nbytes
    first.file.write_bytes(second.file.read_bytes())
    with pytest.raises(SpillError, match=f"{first.file} was replaced or damaged"):
        store.get(first)


def test_a_file_with_the_same_bytes_cut_into_other_arrays_is_found(store: SpillStore) -> None:
    handle = store.put({"x": np.zeros(2), "y": np.zeros(3)})
    metadata = spill._metadata(handle._layouts, handle.checksum)
    safetensors.numpy.save_file({"0": np.zeros(3), "1": np.zeros(2)}, handle.file, metadata)
    assert handle.file.stat().st_size == handle.nbytes
    with pytest.raises(SpillError, match=f"{handle.file} was replaced or damaged"):
        store.get(handle)


def test_a_file_that_shrinks_while_it_is_read_is_an_error(store: SpillStore, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = store.put({"x": np.zeros(10_000)})

    def shrinking(*arguments: Any, **options: Any) -> Any:
        opened = safe_open(*arguments, **options)
        os.truncate(handle.file, 4096)
        return opened

    safe_open: Any = safetensors.safe_open
    monkeypatch.setattr(safetensors, "safe_open", shrinking)
    with pytest.raises(SpillError, match=f"{handle.file} cannot be read"):
        store.get(handle)


def test_a_handle_of_another_store_is_refused(store: SpillStore, tmp_path: Path) -> None:
    with SpillStore(tmp_path) as other:
        handle = other.put({"x": np.ones(3)})
        store.put({"x": np.zeros(3)})
        for use in (store.get, store.free):
            with pytest.raises(ArgumentError, match=f"{handle.file} is not of this store"):
                use(handle)
        assert other.get(handle)["x"].tolist() == [1.0, 1.0, 1.0]


# --- disks that fail -------------------------------------------------------------------------------------------------


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_a_full_disk_is_an_error_and_nothing_is_left(
    store: SpillStore, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    kept = store.put({"x": np.ones(3)})
    monkeypatch.setattr(*{"fsync": (os, "fsync"), "rename": (Path, "replace")}[call], full)
    with pytest.raises(SpillError, match=r"00000001.safetensors failed: .*No space left on device") as caught:
        store.put({"x": np.zeros(100)})
    assert isinstance(caught.value.__cause__, OSError)
    monkeypatch.undo()
    assert files_in(store) == [kept.file.name]
    assert store.nbytes == store.written == kept.nbytes
    assert store.get(kept)["x"].tolist() == [1.0, 1.0, 1.0]
    assert store.get(store.put({"x": np.zeros(100)}))["x"].shape == (100,)


def test_a_directory_that_fails_to_sync_takes_the_renamed_file_with_it(
    store: SpillStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = spill._sync
    monkeypatch.setattr(spill, "_sync", lambda path: full() if path.is_dir() else sync(path))
    with pytest.raises(SpillError, match="No space left on device"):
        store.put({"x": np.zeros(3)})
    assert (files_in(store), store.nbytes) == ([], 0)


def test_a_file_larger_than_the_system_allows_is_an_error_and_nothing_is_left(store: SpillStore) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with pytest.raises(SpillError, match="File too large"):
            store.put({"x": np.zeros(1 << 18)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (files_in(store), store.nbytes) == ([], 0)


@pytest.mark.parametrize("stage", ["save_file", "fsync", "replace", "add"])
def test_an_interrupt_while_writing_leaves_no_file(
    store: SpillStore, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    def interrupted(*arguments: Any) -> None:
        if stage == "save_file":
            arguments[1].write_bytes(b"half")
        raise KeyboardInterrupt

    owner = {"save_file": safetensors.numpy, "fsync": os, "replace": Path, "add": spill}[stage]
    monkeypatch.setattr(owner, "SpillHandle" if stage == "add" else stage, interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.put({"x": np.zeros(3)})
    monkeypatch.undo()
    assert (files_in(store), store.nbytes, store.written) == ([], 0, 0)


def test_a_file_is_synced_before_it_gets_its_name(store: SpillStore, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def watched(descriptor: int) -> None:
        seen.append((os.fstat(descriptor).st_ino, files_in(store)))

    monkeypatch.setattr(os, "fsync", watched)
    file = store.put({"x": np.zeros(3)}).file
    assert seen == [
        (file.stat().st_ino, ["00000000.partial"]),
        (store.path.stat().st_ino, ["00000000.safetensors"]),
    ]


# --- arguments -------------------------------------------------------------------------------------------------------


def test_a_directory_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=f"{tmp_path / 'none'} does not exist"):
        SpillStore(tmp_path / "none")


def test_a_file_is_refused_as_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ArgumentError, match=f"{tmp_path / 'file'} is not a directory"):
        SpillStore(tmp_path / "file")


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_directory_that_is_not_writable_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "mkdir", refused)
    with pytest.raises(ArgumentError, match=f"{tmp_path} is not writable"):
        SpillStore(tmp_path)


def test_a_disk_without_room_for_a_directory_is_a_spill_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "mkdir", lambda *_, **__: full())
    with pytest.raises(SpillError, match="No space left on device"):
        SpillStore(tmp_path)


@pytest.mark.parametrize("limit", [-1, 1.5, "2GB", True])
def test_a_limit_that_is_no_number_of_bytes_is_refused(tmp_path: Path, limit: Any) -> None:
    with pytest.raises(ArgumentError, match=f"not {limit!r}"):
        SpillStore(tmp_path, limit)
    assert list(tmp_path.iterdir()) == []


def test_without_the_package_the_error_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    with pytest.raises(ArgumentError, match="needs the package safetensors"):
        SpillStore(tmp_path)


def test_the_module_loads_nothing_until_a_store_is_made() -> None:
    report = "import sys, unspool.checkpoint.spill; print('safetensors' in sys.modules)"
    assert run(report).stdout == "False\n"


# --- the end of a store ----------------------------------------------------------------------------------------------


def test_a_closed_store_leaves_nothing_and_gives_nothing(tmp_path: Path) -> None:
    store = SpillStore(tmp_path)
    handle = store.put({"x": np.zeros(3)})
    store.close()
    store.close()
    store.free(handle)
    assert store.closed and store.nbytes == 0 and list(tmp_path.iterdir()) == []
    for use in (lambda: store.get(handle), lambda: store.put({})):
        with pytest.raises(SpillError, match=f"{store.path} is closed"):
            use()


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_block_that_fails_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    def fail() -> None:
        with SpillStore(tmp_path) as store:
            store.put({"x": np.zeros(3)})
            raise error

    with pytest.raises(error):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_forgotten_store_leaves_nothing(tmp_path: Path) -> None:
    gc.disable()
    try:
        store = SpillStore(tmp_path)
        store.put({"x": np.zeros(3)})
        del store
        assert list(tmp_path.iterdir()) == []
    finally:
        gc.enable()


def run(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


SPILLING = """
import os, signal, sys
import numpy as np
from unspool.checkpoint import spill
store = spill.SpillStore(sys.argv[1])
handle = store.put({"x": np.arange(1000.0)})
"""


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("", 0),
        ("raise ValueError", 1),
        ("sys.exit(3)", 3),
        # A program that was started in the background may have been told to ignore it.
        (
            "signal.signal(signal.SIGINT, signal.default_int_handler)\nsignal.raise_signal(signal.SIGINT)",
            -signal.SIGINT,
        ),
    ],
    ids=["end", "exception", "exit", "interrupt"],
)
def test_a_program_that_ends_leaves_nothing(tmp_path: Path, ending: str, code: int) -> None:
    done = run(SPILLING + "print(handle.file.exists(), flush=True)\n" + ending, tmp_path)
    assert (done.stdout, done.returncode, list(tmp_path.iterdir())) == ("True\n", code, [])


def test_a_working_directory_that_changes_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spill").mkdir()
    monkeypatch.chdir(tmp_path)
    with SpillStore("spill") as store:
        handle = store.put({"x": np.ones(3)})
        monkeypatch.chdir("/")
        assert store.get(handle)["x"].tolist() == [1.0, 1.0, 1.0]
    assert list((tmp_path / "spill").iterdir()) == []


def test_a_forked_process_can_neither_use_nor_remove_the_files(
    store: SpillStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle, owner = store.put({"x": np.ones(3)}), os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: owner + 1)
    for use in (lambda: store.get(handle), lambda: store.put({})):
        with pytest.raises(SpillError, match=f"belongs to process {owner}, not to {owner + 1}"):
            use()
    store.free(handle)
    store.close()
    monkeypatch.undo()
    assert store.get(handle)["x"].tolist() == [1.0, 1.0, 1.0]


def test_a_forked_process_that_ends_leaves_the_files_of_its_parent(tmp_path: Path) -> None:
    forking = "\npid = os.fork()\nif pid == 0: sys.exit()\nos.waitpid(pid, 0)\nprint(store.get(handle)['x'].sum())"
    done = run(SPILLING + forking, tmp_path)
    assert (done.stdout, done.stderr, list(tmp_path.iterdir())) == ("499500.0\n", "", [])


# --- leftovers -------------------------------------------------------------------------------------------------------

DYING = """
def die(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)

def die_in_the_library(tensors, path, metadata):
    (path.parent / ".tmpAbCdEf").write_bytes(b"half")
    die()

import pathlib, safetensors.numpy
"""


@pytest.mark.parametrize(
    ("killed", "left"),
    [
        ("safetensors.numpy.save_file = die_in_the_library", [".tmpAbCdEf", "00000000.safetensors"]),
        ("os.fsync = die", ["00000000.safetensors", "00000001.partial"]),
        ("pathlib.Path.replace = die", ["00000000.safetensors", "00000001.partial"]),
        ("spill.SpillHandle = die", ["00000000.safetensors", "00000001.safetensors"]),
    ],
    ids=["in the library", "before the sync", "before the rename", "after the rename"],
)
def test_a_process_killed_while_spilling_leaves_nothing_to_the_next(
    tmp_path: Path, killed: str, left: list[str]
) -> None:
    done = run(SPILLING + DYING + killed + "\nstore.put({'x': np.zeros(1000)})", tmp_path)
    assert done.returncode == -signal.SIGKILL, done.stderr
    (leftover,) = tmp_path.iterdir()
    assert sorted(path.name for path in leftover.iterdir()) == sorted([*left, LOCK])
    with SpillStore(tmp_path) as store:
        assert list(tmp_path.iterdir()) == [store.path]
        handle = store.put({"x": np.ones(3)})
        assert store.get(handle)["x"].tolist() == [1.0, 1.0, 1.0]


def test_a_process_killed_at_any_moment_leaves_nothing_to_the_next(tmp_path: Path) -> None:
    endless = "\nwhile True:\n    print(store.put({'x': np.zeros(100_000)}).file, flush=True)\n"
    command = [sys.executable, "-c", SPILLING + endless, str(tmp_path)]
    for lines in (1, 2, 5):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            seen = [Path(process.stdout.readline().strip()) for _ in range(lines)]
            process.kill()
        assert [(file.name, file.is_file()) for file in seen] == [
            (f"{number:08d}.safetensors", True) for number in range(1, lines + 1)
        ]
        with SpillStore(tmp_path) as store:
            assert list(tmp_path.iterdir()) == [store.path] and files_in(store) == []


def test_the_files_of_a_living_process_are_left_alone(tmp_path: Path) -> None:
    waiting = "\nprint(store.path, flush=True)\nsys.stdin.read()\nprint(store.get(handle)['x'].sum())"
    command = [sys.executable, "-c", SPILLING + waiting, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        theirs = Path(process.stdout.readline().strip())
        with SpillStore(tmp_path) as store:
            assert f"-{process.pid}-" in theirs.name and f"-{os.getpid()}-" in store.path.name
            assert {theirs, store.path} == set(tmp_path.iterdir())
        assert process.communicate()[0] == "499500.0\n"
    assert list(tmp_path.iterdir()) == []


def test_stores_of_one_process_leave_each_other_alone(tmp_path: Path) -> None:
    with SpillStore(tmp_path) as first:
        handle = first.put({"x": np.ones(3)})
        with SpillStore(tmp_path) as second:
            assert second.path != first.path
        assert first.get(handle)["x"].tolist() == [1.0, 1.0, 1.0]


def test_others_cannot_look_into_the_directory(store: SpillStore) -> None:
    handle = store.put({"x": np.zeros(1)})
    assert (store.path.stat().st_mode & 0o077, handle.file.stat().st_mode & 0o077) == (0, 0)


# --- threads ---------------------------------------------------------------------------------------------------------


def test_threads_may_share_a_store(store: SpillStore) -> None:
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        try:
            for _ in range(20):
                array = rng.standard_normal(200)
                handle = store.put({"x": array})
                if not same_bits(store.get(handle)["x"], array):
                    raise ValueError("other bits")
                store.free(handle)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == [] and store.nbytes == 0 and files_in(store) == []
    assert store.written == store.read > 80 * 1600


def test_a_finalizer_may_free_while_its_thread_is_writing(store: SpillStore, monkeypatch: pytest.MonkeyPatch) -> None:
    old = store.put({"x": np.zeros(3)})
    write = spill._write

    def freeing(*arguments: Any) -> int:
        store.free(old)
        return write(*arguments)

    monkeypatch.setattr(spill, "_write", freeing)
    new = store.put({"x": np.ones(3)})
    assert files_in(store) == [new.file.name] and store.nbytes == new.nbytes


def test_handles_and_stores_say_what_they_are(store: SpillStore) -> None:
    handle = store.put({"x": np.zeros(3)})
    assert isinstance(handle, SpillHandle) and handle.checksum in repr(handle)
    assert repr(store) == f"<SpillStore {store.path}: 1 files, {handle.nbytes} bytes>"
    store.close()
    assert repr(store) == f"<SpillStore {store.path}: closed>"
