"""`us.save` and `us.load`: what comes back is what was saved, bit for bit, or an error."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.saving.programs import PROGRAMS, derivatives, plain_loop
from unspool._graph import source_of
from unspool._saving.loop_vocabulary import words
from unspool.errors import ArgumentError, DefinitionError, SaveError, SaveFileError


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Any]]:
    """Save every program here, load all in one other process; return the derivatives here and there."""
    folder = tmp_path_factory.mktemp("saved")
    here = {}
    for name, program in PROGRAMS.items():
        saved = program()
        us.save(folder / f"{name}.us", saved)
        here[name] = derivatives(*saved)
    subprocess.run([sys.executable, "-m", "tests.saving.loading", str(folder)], check=True)
    return {name: (here[name], np.load(folder / f"{name}.npy")) for name in PROGRAMS}


@pytest.mark.parametrize("name", PROGRAMS)
def test_another_process_has_the_same_values_gradients_and_second_derivatives(elsewhere: Any, name: str) -> None:
    here, there = elsewhere[name]
    assert here.tobytes() == there.tobytes()


def test_what_is_there_already_is_not_made_again(tmp_path: Path) -> None:
    variables, loss = plain_loop(20)
    us.save(tmp_path / "a", (variables, loss))
    found = us.load(tmp_path / "a")
    assert found[1] is loss
    assert found[0][0] is variables[0] and found[0][1] is variables[1]


def test_two_files_share_their_variables(tmp_path: Path) -> None:
    x = us.tensor([1.0, 2.0])
    us.save(tmp_path / "x", x)
    us.save(tmp_path / "y", us.sum(x * x))
    del x
    x, y = us.load(tmp_path / "x"), us.load(tmp_path / "y")
    assert y.grad(x).eval().tolist() == [2.0, 4.0]


def test_equal_data_are_still_two_variables(tmp_path: Path) -> None:
    us.save(tmp_path / "a", [us.tensor(1.0), us.tensor(1.0)])
    x, y = us.load(tmp_path / "a")
    assert x is not y


def test_names_nestings_and_numbers_come_back(tmp_path: Path) -> None:
    x = us.tensor([1.0], name="weights")
    tree = {"a": [x, (1, 2.5, "text", None)], "b": {"c": True, "d": np.arange(3)}}
    us.save(tmp_path / "a", tree)
    del tree["a"][0], x
    found = us.load(tmp_path / "a")
    assert found["a"][1] == (1, 2.5, "text", None)
    assert found["a"][0].name == "weights"
    assert found["b"]["c"] is True and found["b"]["d"].tolist() == [0, 1, 2]


def test_messages_name_the_line_that_made_a_tensor(tmp_path: Path) -> None:
    x = us.tensor([1.0, 2.0])
    us.save(tmp_path / "a", us.log(x * 7.0))
    text = (tmp_path / "a").read_bytes()
    assert b"us.log(x * 7.0)" in text
    del x
    assert "us.log(x * 7.0)" in source_of(us.load(tmp_path / "a"))


def test_placeholders_with_symbolic_sizes_are_saved(tmp_path: Path) -> None:
    n = us.dims("n")
    x = us.placeholder((n, 2), name="x")
    us.save(tmp_path / "a", [x, us.sum(us.reshape(x, (2 * n,)) ** 2)])
    del x
    x, y = us.load(tmp_path / "a")
    assert y.eval({x: np.ones((3, 2))}) == 6.0
    assert y.grad(x).eval({x: np.ones((3, 2))}).tolist() == [[2.0, 2.0]] * 3


def test_values_that_are_held_are_not_computed_again(tmp_path: Path) -> None:
    x = us.tensor([1.0, 2.0])
    y = us.exp(x)
    y.eval()
    us.save(tmp_path / "a", y)
    del x, y
    with us.debug.count_kernels() as count:
        us.load(tmp_path / "a").eval()
    assert count.total == 0


def test_axes_keep_their_order_in_memory(tmp_path: Path) -> None:
    data = np.asfortranarray(np.arange(12.0).reshape(3, 4) * 1e5)
    us.save(tmp_path / "a", us.tensor(data, copy=False))
    assert us.load(tmp_path / "a").eval().flags.f_contiguous


def test_the_file_is_one_that_safetensors_reads(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    us.save(tmp_path / "a", us.tensor(np.arange(20.0)))
    tensors = load_file(tmp_path / "a")
    assert tensors["0"].tolist() == [list(range(20))]
    assert tensors["structure"].dtype == np.uint8


def test_a_loop_is_one_body_and_short_records(tmp_path: Path) -> None:
    sizes = {}
    for steps in (500, 1500):
        variables, loss = plain_loop(steps)
        us.save(tmp_path / "a", (variables, loss))
        sizes[steps] = (tmp_path / "a").stat().st_size
    state = 4 * 8
    assert (sizes[1500] - sizes[500]) / 1000 <= 1.1 * state + 64


def test_a_long_chain_of_nodes_needs_no_recursion(tmp_path: Path) -> None:
    x = us.tensor(1.0)
    y = x
    for _ in range(20_000):
        y = us.sin(y)
    us.save(tmp_path / "a", (x, y))
    del x, y
    x, y = us.load(tmp_path / "a")
    assert y.op.name == "sin" and x.op.name == "tensor"


# --- refusals --------------------------------------------------------------------------------------------------------


def test_an_object_that_is_not_known_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(SaveError, match="object"):
        us.save(tmp_path / "a", {"x": object()})
    assert not (tmp_path / "a").exists()


def test_a_failed_save_leaves_what_was_there(tmp_path: Path) -> None:
    us.save(tmp_path / "a", us.tensor(1.0))
    before = (tmp_path / "a").read_bytes()
    with pytest.raises(SaveError):
        us.save(tmp_path / "a", {"x": object()})
    assert (tmp_path / "a").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_missing_file_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(SaveFileError, match="no file"):
        us.load(tmp_path / "nothing")
    with pytest.raises(SaveFileError):
        us.load(tmp_path)


@pytest.mark.parametrize("content", [b"", b"text", b"\0" * 100, b"\x93NUMPY" * 20])
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(SaveFileError):
        us.load(tmp_path / "a")


def test_a_newer_format_is_refused_by_name(tmp_path: Path) -> None:
    us.save(tmp_path / "a", us.tensor(1.0))
    data = (tmp_path / "a").read_bytes()
    (tmp_path / "a").write_bytes(data.replace(b"unspool-recipes-1", b"unspool-recipes-9"))
    with pytest.raises(SaveFileError, match="unspool-recipes-9"):
        us.load(tmp_path / "a")


def test_an_op_of_a_user_is_found_by_name_and_has_to_be_the_same(tmp_path: Path) -> None:
    def define(factor: float) -> Any:
        return us.op("saved_scale", kernel=lambda x: factor * x, vjp=(lambda ct, out, x: factor * ct,), replace=True)

    x = us.tensor([1.0, 2.0])
    us.save(tmp_path / "a", define(2.0)(x))
    define(2.0)
    assert us.load(tmp_path / "a").eval().tolist() == [2.0, 4.0]
    define(3.0)
    with pytest.raises(DefinitionError, match="saved_scale.*otherwise"):
        us.load(tmp_path / "a")


def test_an_op_that_is_not_there_is_named(tmp_path: Path) -> None:
    from unspool._ops.op import REGISTRY

    made = us.op("saved_and_gone", kernel=lambda x: x + 1.0)
    us.save(tmp_path / "a", made(us.tensor(1.0)))
    del REGISTRY["user:saved_and_gone"]
    with pytest.raises(DefinitionError, match="saved_and_gone"):
        us.load(tmp_path / "a")


def test_a_function_with_a_rule_is_found_by_name_and_has_to_be_the_same(tmp_path: Path) -> None:
    def define(factor: float) -> Any:
        @us.custom_vjp
        def ruled(x: Any) -> Any:
            return x * 2.0

        ruled.defvjp(lambda x: (ruled.f(x), None), lambda _, ct: (ct * factor,))
        return ruled

    x = us.tensor(1.0)
    first = define(5.0)
    us.save(tmp_path / "a", (x, first(x)))
    x, y = us.load(tmp_path / "a")
    assert float(y.grad(x)) == 5.0
    del first, y
    gc.collect()  # a rule that calls its function refers to it
    with pytest.raises(DefinitionError, match="ruled"):
        us.load(tmp_path / "a")
    other = define(6.0)
    with pytest.raises(DefinitionError, match="otherwise"):
        us.load(tmp_path / "a")
    del other


def test_the_header_says_what_the_file_is(tmp_path: Path) -> None:
    us.save(tmp_path / "a", us.tensor(np.ones(100)))
    data = (tmp_path / "a").read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert header["__metadata__"]["format"] == "unspool-recipes-1"
    assert len(header["__metadata__"]["sha256"]) == 64


def test_what_is_saved_again_has_the_same_bytes_in_a_file_of_its_own(tmp_path: Path) -> None:
    """Forms of fragments and plans are kept; the numbers of what they refer to are those of each file."""
    other = plain_loop()[1] * us.tensor(2.0)
    variables, loss = plain_loop()
    us.save(tmp_path / "first", [variables, loss])
    us.save(tmp_path / "mixed", [other, us.sin(loss)])  # other entries come first
    us.save(tmp_path / "again", [variables, loss])
    assert (tmp_path / "first").read_bytes() == (tmp_path / "again").read_bytes()
    gradient = us.eval(loss.grad(variables[0]))
    found = us.load(tmp_path / "mixed")[1]
    assert us.eval(found) == np.sin(us.eval(loss))
    assert (us.eval(loss.grad(variables[0])) == gradient).all()


def test_a_random_key_is_saved_as_it_is(tmp_path: Path) -> None:
    key = us.random.fold_in(us.random.key(3), 5)
    us.save(tmp_path / "file", {"key": key, "x": us.tensor(1.0)})
    found = us.load(tmp_path / "file")["key"]
    assert found == key
    assert us.random.normal(found, (3,)).eval().tobytes() == us.random.normal(key, (3,)).eval().tobytes()


@pytest.mark.parametrize("bits", [2**128, -1, "3", True])
def test_what_is_no_random_key_is_refused(bits: Any) -> None:
    join = next(word.join for word in words() if word.name == "Key")
    with pytest.raises(SaveFileError):
        join(bits)


# --- what is saved, and where ----------------------------------------------------------------------------------------


def nested(depth: int, content: Any) -> Any:
    for _ in range(depth):
        content = [content]
    return content


def part_of_itself() -> Any:
    found: list[Any] = []
    found.append(found)
    return found


@pytest.mark.parametrize("depth", [1, 10, 20, 30, 31])
def test_what_is_saved_comes_back_however_deep_it_is_nested(tmp_path: Path, depth: int) -> None:
    x = us.tensor([1.0, 2.0])
    us.save(tmp_path / "a", nested(depth, x))
    assert us.load(tmp_path / "a") == nested(depth, x)


@pytest.mark.parametrize("tree", [part_of_itself(), nested(33, 1.0), nested(1000, 1.0)], ids=["itself", "33", "1000"])
def test_what_could_not_be_loaded_again_is_refused_when_it_is_saved(tmp_path: Path, tree: Any) -> None:
    with pytest.raises(SaveError, match="nested more than"):
        us.save(tmp_path / "a", tree)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_a_path_that_names_nothing_is_refused(path: str) -> None:
    for use in (lambda: us.save(path, us.tensor(1.0)), lambda: us.load(path), lambda: us.resume(path)):
        with pytest.raises(ArgumentError, match="a path names a file or a folder"):
            use()


@pytest.mark.parametrize("path", [".", "/", None])
def test_a_folder_is_no_file_to_write(tmp_path: Path, path: str | None) -> None:
    with pytest.raises(SaveFileError, match="is a folder"):
        us.save(path or tmp_path, us.tensor(1.0))
