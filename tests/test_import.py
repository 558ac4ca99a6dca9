"""What `import unspool` brings with it, and what it offers."""

from __future__ import annotations

import inspect
import subprocess
import sys
from types import ModuleType

import pytest

import unspool

HEAVY = ("scipy", "opt_einsum", "torch", "jax", "autograd", "matplotlib", "hypothesis", "pytest", "safetensors", "rich")
NAMESPACES = [unspool, *filter(inspect.ismodule, (getattr(unspool, name) for name in unspool.__all__))]


def test_import_loads_no_heavy_library() -> None:
    report = "import sys, unspool; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    assert not set(HEAVY) & set(done.stdout.split())


def test_import_warns_of_nothing() -> None:
    command = [sys.executable, "-W", "error", "-c", "import unspool"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_public_names_are_listed_once() -> None:
    assert len(unspool.__all__) == len(set(unspool.__all__))


def test_star_import_gives_exactly_the_public_names() -> None:
    names: dict[str, object] = {}
    exec("from unspool import *", names)
    assert set(names) - {"__builtins__"} == set(unspool.__all__)


def test_every_public_name_exists_and_says_what_it_is_for() -> None:
    things = {name: getattr(unspool, name) for name in unspool.__all__}
    silent = [n for n, thing in things.items() if _is_documented_kind(thing) and not inspect.getdoc(thing)]
    assert not silent


@pytest.mark.parametrize("namespace", NAMESPACES, ids=lambda module: module.__name__)
def test_every_public_function_shows_an_example(namespace: ModuleType) -> None:
    functions = {name: getattr(namespace, name) for name in namespace.__all__}
    silent = [n for n, f in functions.items() if inspect.isroutine(f) and ">>>" not in (inspect.getdoc(f) or "")]
    assert not silent


def _is_documented_kind(thing: object) -> bool:
    return inspect.ismodule(thing) or inspect.isclass(thing) or inspect.isroutine(thing)
