"""What `import unspool` brings with it, and what it offers."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import unspool

HEAVY = ("scipy", "opt_einsum", "torch", "jax", "autograd", "matplotlib", "hypothesis", "pytest")


def test_import_loads_no_heavy_library() -> None:
    report = "import sys, unspool; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    assert not set(HEAVY) & set(done.stdout.split())


def test_import_warns_of_nothing() -> None:
    command = [sys.executable, "-W", "error", "-c", "import unspool"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_public_names_are_sorted_and_unique() -> None:
    names = list(unspool.__all__)
    assert names == sorted(set(names))


def test_star_import_gives_exactly_the_public_names() -> None:
    names: dict[str, object] = {}
    exec("from unspool import *", names)
    assert set(names) - {"__builtins__"} == set(unspool.__all__)


@pytest.mark.parametrize("name", unspool.__all__)
def test_every_public_name_exists_and_says_what_it_is_for(name: str) -> None:
    thing = getattr(unspool, name)
    if inspect.ismodule(thing) or callable(thing):
        assert (inspect.getdoc(thing) or "").strip()


@pytest.mark.parametrize("name", [n for n in unspool.__all__ if inspect.isroutine(getattr(unspool, n))])
def test_every_public_function_shows_an_example(name: str) -> None:
    assert ">>>" in (inspect.getdoc(getattr(unspool, name)) or "")


@pytest.mark.parametrize("name", [n for n in unspool.__all__ if inspect.ismodule(getattr(unspool, n))])
def test_every_function_of_a_public_namespace_shows_an_example(name: str) -> None:
    namespace = getattr(unspool, name)
    listed = [getattr(namespace, member) for member in namespace.__all__]
    silent = [f.__name__ for f in listed if inspect.isroutine(f) and ">>>" not in (inspect.getdoc(f) or "")]
    assert not silent
