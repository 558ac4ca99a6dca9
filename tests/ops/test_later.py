"""Modules of families that are loaded later are there for whoever asks."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from types import ModuleType

import pytest

from unspool._autodiff.sweeps.late import late
from unspool._ops import contraction, elementwise, layout, reduction
from unspool._ops.late import ops

FAMILIES = [contraction, elementwise, layout, reduction]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda module: module.__name__)
def test_a_family_has_all_its_names(family: ModuleType) -> None:
    assert set(family._LATER) <= set(family.__all__)
    for name in family.__all__:
        found = getattr(family, name)
        assert vars(family)[name] is found


@pytest.mark.parametrize("family", FAMILIES, ids=lambda module: module.__name__)
def test_type_checkers_see_where_python_finds_a_name(family: ModuleType) -> None:
    block = next(node for node in ast.parse(inspect.getsource(family)).body if isinstance(node, ast.If))
    shown = {alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert shown == {name: f"{family.__name__}.{home}" for name, home in family._LATER.items()}


@pytest.mark.parametrize(
    "thing", [*FAMILIES, ops, late], ids=lambda thing: getattr(thing, "__name__", type(thing).__name__)
)
def test_a_name_that_nobody_has_is_an_attribute_error(thing: object) -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        thing.no_such_name  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "program",
    [
        # The rule of a batched index counts with a cumulative sum.
        "x = us.tensor([1.0, 2.0, 3.0]); us.vmap(lambda i: x[i])(us.tensor([0, 2])).eval()",
        "us.jvp(us.sin, (us.tensor(1.0),), (us.tensor(1.0),))[1].eval()",
        "x = us.tensor([1.0, 2.0]); us.sum(us.cumsum(x) * us.floor(x) + us.max(x)).grad(x).eval()",
        "x = us.tensor([[1.0, 2.0], [3.0, 4.0]]); (us.einsum('ij->i', x) + us.trace(x) + x.mean() + x.any()).eval()",
    ],
)
def test_what_a_program_needs_is_loaded_on_the_way(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", f"import unspool as us; {program}"], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
