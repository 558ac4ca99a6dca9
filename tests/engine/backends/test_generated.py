"""Generated code: names that a reader understands, and files in which a traceback finds the lines."""

from __future__ import annotations

import gc
import inspect
import keyword
import linecache
import traceback
from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool import _graph
from unspool._engine.backends import generated
from unspool._engine.backends.generated import FunctionWriter, source_of
from unspool._engine.backends.numpy_backend import NUMPY
from unspool._engine.plan import Plan, make_plan
from unspool._fragments.fragment import capture


def plan_of(x: us.Tensor, y: us.Tensor) -> Plan:
    plan = make_plan(capture([x], [y]).fragment, (x.shape,), NUMPY)
    plan.prepare()
    return plan


def file_of(function: Any) -> str:
    file: str = function.__code__.co_filename
    return file


def returning(value: Any, wish: str = "value", local: Any = ()) -> Any:
    """Return a generated function that returns a constant."""
    writer = FunctionWriter("run", [], local)
    writer.write(f"return {writer.constant(wish, value)}")
    return writer.compile("example")


# --- names -----------------------------------------------------------------------------------------------------------


def test_a_constant_is_called_after_the_op_the_parameter_and_the_slot_it_belongs_to() -> None:
    x = us.tensor(np.ones((2, 3)))
    plan = plan_of(x, us.sum(us.permute_dims(us.reshape(x, (1, 3, 2)), (2, 0, 1)), axis=1))
    first = len(plan.fragment.dtypes)
    for slot, (op, _, params) in enumerate(plan.fragment.body, start=first):
        name = {"reshape": "shape", "permute_dims": "axes", "sum": "axis"}[op.name]
        assert f"{op.name}_{name}_{slot}" in plan.source
        assert plan.run.__globals__[f"{op.name}_{name}_{slot}"] == params[name]


WISHES = ["axis", "class", "float", "v3", "v", "user.op", "3d", "größe", "ﬁeld", "", "f (vectorized)", "__source__"]


@pytest.mark.parametrize("wish", WISHES)
def test_any_wish_becomes_a_name_that_python_takes(wish: str) -> None:
    value = object()
    writer = FunctionWriter("run", ["v3"], local=["v"])
    name = writer.constant(wish, value)
    assert name.isidentifier() and not keyword.iskeyword(name)
    writer.write(f"return {name}, v3, float(1)")
    run = writer.compile("example")
    assert run(5) == (value, 5, 1.0)


def test_two_values_never_share_a_name_and_one_value_has_one() -> None:
    writer = FunctionWriter("run", [])
    values = [object() for _ in range(3)]
    names = [writer.constant("value", value) for value in [*values, *values]]
    assert names[:3] == names[3:]
    writer.write(f"return {', '.join(names[:3])}")
    assert list(writer.compile("example")()) == values


def test_a_method_of_a_ufunc_has_one_name_although_it_is_another_object_each_time() -> None:
    x = us.tensor(np.ones((2, 3)))
    assert plan_of(x, us.sum(us.sum(x, axis=0) * 2.0)).source.count("= add_reduce(") == 1


def test_values_named_with_none_are_values_too() -> None:
    assert returning(None)() is None


# --- files -----------------------------------------------------------------------------------------------------------


def test_a_traceback_shows_the_generated_line_and_names_the_line_it_is_for() -> None:
    x = us.tensor(np.eye(3))
    plan = plan_of(x, us.linalg.cholesky(x * 1.0))
    line = inspect.getsourcelines(test_a_traceback_shows_the_generated_line_and_names_the_line_it_is_for)[1] + 2
    with pytest.raises(us.errors.KernelError) as caught:
        plan.run(-np.eye(3))
    frames = traceback.extract_tb(caught.value.__traceback__)
    (frame,) = [frame for frame in frames if frame.filename == file_of(plan.run)]
    assert frame.line is not None and "cholesky_kernel(" in frame.line
    assert frame.filename.startswith("<unspool plan ")
    assert frame.filename.endswith(f" of test_generated.py:{line}>")


def test_the_source_of_a_plan_is_what_inspect_finds() -> None:
    x = us.tensor(np.ones(3))
    plan = plan_of(x, us.sum(x * x))
    assert plan.source == source_of(plan.run) == inspect.getsource(plan.run).rstrip("\n")


def test_functions_with_one_text_have_files_of_their_own() -> None:
    first, second = returning(1), returning(2)
    assert source_of(first) is source_of(second)
    assert file_of(first) != file_of(second)
    assert (first(), second()) == (1, 2)
    assert linecache.getlines(file_of(first)) == linecache.getlines(file_of(second)) != []


def test_the_lines_of_a_function_go_with_it() -> None:
    x = us.tensor(np.ones(3))
    plan = plan_of(x, us.sum(x * x))
    file = file_of(plan.run)
    plan.run(np.ones(3))
    assert linecache.getline(file, 1).startswith("def run")
    del plan
    gc.collect()
    assert file not in linecache.cache
    assert file not in generated._listed


def test_plans_that_come_and_go_leave_no_lines_behind() -> None:
    gc.collect()
    before = len(linecache.cache), len(generated._listed), len(_graph._is_internal)
    for n in range(1, 50):
        x = us.tensor(np.ones(n))
        plan_of(x, us.sum(x * x)).run(np.ones(n))
    gc.collect()
    assert (len(linecache.cache), len(generated._listed), len(_graph._is_internal)) == before


def test_the_number_of_functions_whose_lines_are_shown_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generated, "MOST_LISTED", len(generated._listed) + 3)
    functions = [returning(i) for i in range(5)]
    assert len(generated._listed) <= generated.MOST_LISTED
    assert file_of(functions[-1]) in linecache.cache
    assert [function() for function in functions] == list(range(5))
    assert all("return value" in source_of(function) for function in functions)


def test_a_generated_file_counts_as_one_of_unspool() -> None:
    assert _graph.is_internal(file_of(returning(1)))
    assert not _graph.is_internal(__file__)


def test_clearing_the_cache_of_texts_leaves_functions_and_their_lines() -> None:
    run = returning(7)
    us.clear_caches()
    assert run() == 7
    assert linecache.getline(file_of(run), 2) == "    return value"
