"""What `import unspool` brings with it, and what it offers."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from importlib.util import find_spec
from types import ModuleType

import pytest

import unspool

HEAVY = ("scipy", "opt_einsum", "torch", "jax", "autograd", "matplotlib", "hypothesis", "pytest", "safetensors", "rich")
# What a first value or gradient does without, of ours and of what ours would bring along.
LATER = {
    "optree",
    "hashlib",
    "unspool._autodiff.check",
    "unspool._autodiff.loops.checkpointed",
    "unspool._autodiff.loops.iterate",
    "unspool._autodiff.tape.tape",
    "unspool._engine.engine",
    "unspool._traced.function",
    "unspool._inspect.summary",
    "unspool._report.report",
    "unspool.checkpoint",
    "unspool.debug",
    "unspool.fft",
    "unspool.linalg",
    "unspool.networks",
    "unspool.random",
    "unspool.signal",
    "unspool.special",
    "unspool.stats",
    "unspool.testing",
}
NAMESPACES = [unspool, *filter(inspect.ismodule, (getattr(unspool, name) for name in unspool.__all__))]


def loaded_by(program: str) -> set[str]:
    """Return the modules that a program has loaded by its end, in a process of its own."""
    report = f"{program}\nimport sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_import_loads_no_heavy_library() -> None:
    assert not set(HEAVY) & {name.partition(".")[0] for name in loaded_by("import unspool")}


def test_import_loads_what_most_programs_need_and_no_more() -> None:
    # NumPy brings modules of its own, in some versions also from this list.
    assert not LATER & (loaded_by("import unspool") - loaded_by("import numpy, numpy.typing"))


def test_a_first_gradient_loads_no_other_way_to_differentiate() -> None:
    program = "import unspool as us; x = us.tensor([1.0, 2.0]); us.sum(x * x).grad(x).eval()"
    others = {name for name in LATER if name.startswith("unspool._autodiff")} | {"optree", "unspool.linalg"}
    assert not others & loaded_by(program)


def test_a_first_gradient_loads_no_plans_no_generated_code_and_no_budgets() -> None:
    program = "import unspool as us; x = us.tensor([1.0, 2.0]); us.sum(x * x).grad(x).eval()"
    engine = ("backends.buffers", "backends.generated", "backends.native_backend", "backends.numpy_backend", "binding")
    engine += ("failure", "memory.clock", "memory.replay", "memory.sizes", "memory.timeline", "partial_calls", "plan")
    engine += ("planning", "work")
    sweeps = ("arguments", "functional", "sweeps.calls", "sweeps.chain", "sweeps.forward", "sweeps.gathering")
    sweeps += ("sweeps.products", "sweeps.step_templates", "sweeps.substitution", "sweeps.transpose")
    others = {f"unspool._engine.{name}" for name in engine} | {f"unspool._autodiff.{name}" for name in sweeps}
    assert all(find_spec(name) is not None for name in others)
    others |= {"dataclasses", "numpy.typing", "heapq"} - loaded_by("import numpy")
    assert not others & loaded_by(program)


def test_a_first_gradient_loads_the_families_of_operations_that_it_records() -> None:
    program = "import unspool as us; x = us.tensor([1.0, 2.0]); us.sum(us.sin(x) ** 2).grad(x).eval()"
    families = ("contraction.products", "contraction.contract", "creation", "data", "elementwise.angles")
    families += ("elementwise.bitwise", "elementwise.choosing", "elementwise.exponential", "indexing.selection")
    families += ("layout.axes", "layout.cropping", "layout.joining", "linalg", "reduction.extrema", "special")
    loaded = loaded_by(program)
    assert "unspool._ops.elementwise.trigonometric" in loaded
    assert not {f"unspool._ops.{name}" for name in families} & loaded


def test_an_operator_of_tensors_loads_the_family_it_belongs_to() -> None:
    products = "unspool._ops.contraction.products"
    program = "import unspool as us; x = us.ones((2, 2)); y, z = x @ x, us.tensor(6) & 3; assert y is x @ x"
    assert {products, "unspool._ops.elementwise.bitwise"} <= loaded_by(program)


def test_what_is_loaded_later_is_there_from_the_start() -> None:
    program = "import unspool; missing = set(unspool.__all__) - set(dir(unspool)); assert not missing, missing"
    assert not LATER & {name for name in loaded_by(program) if name.startswith("unspool")}


def test_type_checkers_see_what_python_finds() -> None:
    block = next(node for node in ast.parse(inspect.getsource(unspool)).body if isinstance(node, ast.If))
    shown = {alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    homes = {name: f"unspool.{home}" for name, home in unspool._HOMES.items()}
    assert shown == homes | dict.fromkeys(unspool._NAMESPACES, "unspool")


def test_what_is_loaded_later_is_found_once() -> None:
    program = "import unspool as us; first = us.iterate; assert us.__dict__['iterate'] is first is us.iterate"
    assert "unspool._autodiff.loops.iterate" in loaded_by(program)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'unspool' has no attribute 'no_such_name'"):
        unspool.no_such_name  # type: ignore[attr-defined]


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
