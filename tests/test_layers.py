"""What import-linter does not see of the order of layers; its contracts are in pyproject.toml."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import unspool as us
from unspool._above import above
from unspool._autodiff.sweeps.late import late
from unspool._ops.batching import later
from unspool._ops.late import ops

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"
# In C: below everything, and without a file that import-linter could see.
COMPILED = {"unspool._core", "unspool._native"}
# The face is for those above it.
ABOVE_THE_FACE = ("unspool.networks", "unspool.interop", "unspool._cli")
# Types of which a layer may name one that is made above it: what users hold, what a node applies, what a call runs.
NAMED_FROM_BELOW = {("unspool._tensor", "Tensor"), ("unspool._ops.op", "Op"), ("unspool._engine.plan", "Plan")}


class Import(NamedTuple):
    """An import of ours: by which module, of which module, of which name in it, and whether it only names types."""

    importer: str
    module: str
    name: str
    is_for_types: bool


@cache
def modules() -> dict[str, Path]:
    paths = {path.relative_to(SOURCE).with_suffix(""): path for path in (SOURCE / "unspool").rglob("*.py")}
    return {".".join(parts.parts).removesuffix(".__init__"): path for parts, path in paths.items()}


def imports_of(importer: str, source: str) -> Iterator[Import]:
    tree = ast.parse(source)
    guarded = [
        node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    ]
    for_types = {id(child) for guard in guarded for child in ast.walk(guard)}
    known = {*modules(), *COMPILED}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [(f"{node.module}.{alias.name}", alias.name) for alias in node.names]
            found = [(full, "") if full in known else (str(node.module), name) for full, name in names]
        else:
            continue
        for module, name in found:
            if module.partition(".")[0] == "unspool":
                yield Import(importer, module, name, id(node) in for_types)


ALL = [found for module, path in modules().items() for found in imports_of(module, path.read_text("utf-8"))]


def layers() -> list[list[str]]:
    """Return the layers from the lowest to the highest; those in one list do not import each other."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    stack = next(contract["layers"] for contract in contracts if contract["id"] == "layers")
    return [re.findall(r"\w+", layer) for layer in reversed(stack)]


LEVEL = {name: level for level, names in enumerate(layers()) for name in names}


def level_of(module: str) -> int:
    """Return the level of a module; the package itself is above all, the core below."""
    if module in COMPILED:
        return -1
    return LEVEL[module.split(".")[1]] if "." in module else len(LEVEL)


def test_what_is_below_the_face_does_not_import_it() -> None:
    below = [found for found in ALL if not found.importer.startswith(ABOVE_THE_FACE)]
    assert [found for found in below if found.module == "unspool"] == []


def test_a_type_from_above_is_one_of_those_that_may_be_named() -> None:
    upwards = {
        (found.module, found.name)
        for found in ALL
        if found.is_for_types and found.importer != "unspool" and level_of(found.module) > level_of(found.importer)
    }
    assert upwards == NAMED_FROM_BELOW


def test_what_tensors_ask_of_layers_above_is_given() -> None:
    assert [name for name in type(above).__slots__ if not hasattr(above, name)] == []


@pytest.mark.parametrize("table", [ops, late, later], ids=["operations", "derivatives", "batches"])
def test_what_is_looked_up_later_is_entered(table: object) -> None:
    assert us.iterate  # the rules of loops are loaded with what makes loops
    assert us.vmap  # and those of batches with what makes batches
    assert set(type(table).__annotations__) == set(vars(table))


@pytest.mark.parametrize("table", [ops, late, later], ids=["operations", "derivatives", "batches"])
def test_what_is_not_declared_is_not_entered(table: object) -> None:
    with pytest.raises(AttributeError, match=r"not declared: \['no_such_name'\]"):
        table.provide(no_such_name=abs)  # type: ignore[attr-defined]


def test_the_map_of_the_architecture_is_the_order_that_is_held() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    section = page.partition("## Layers")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    shown = [
        name.removesuffix("/").removesuffix(".py") for row in rows for name in re.findall(r"`(\w+(?:/|\.py)?)`", row)
    ]
    top_level = [name for name in shown if name in LEVEL]
    assert sorted(top_level) == sorted(LEVEL)
    assert [LEVEL[name] for name in top_level] == sorted(LEVEL[name] for name in top_level)
