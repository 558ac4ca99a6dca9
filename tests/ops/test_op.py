"""What an op declares of itself: its parameters and its traits, and that nobody else lists ops by name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.samples import Sample, all_samples
from unspool._dtypes import COMPLEX, INEXACT
from unspool._graph import Node, ancestors
from unspool._ops.op import REGISTRY, SIZE, STRUCTURE, Op, keywords_of, load_all
from unspool.errors import OpDefinitionError

load_all()
BUILT_IN = [op for op in REGISTRY.values() if not op.users_own]
SAMPLES = all_samples()
SOURCES = Path(us.__file__).parent


def same(x: Any) -> Any:
    return x.shape, x.dtype


def nodes_of(sample: Sample) -> Iterator[Node]:
    out = sample.function(*[us.tensor(a) for a in sample.args])
    return (node for node in ancestors([out]) if node.op.name == sample.op)


def values_of(node: Node) -> list[Any]:
    """Return the arrays that a node is computed from; those of a part are a tuple."""
    made = [
        parent.op.kernel(*values_of(parent), **parent.attributes) if parent.op.multi else None for parent in node.inputs
    ]
    return [i.eval() if value is None else value for i, value in zip(node.inputs, made, strict=True)]  # type: ignore[attr-defined]


# --- parameters ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", BUILT_IN, ids=lambda op: op.name)
def test_what_an_ops_functions_take_by_keyword_is_declared(op: Op) -> None:
    for function in (op.infer, op.kernel):
        keywords, takes_more = keywords_of(function)
        assert set(keywords) == set(op.params) or (takes_more and set(keywords) <= set(op.params))
    assert set(op.params.values()) <= {STRUCTURE, SIZE}
    assert op.sized == tuple(name for name, kind in op.params.items() if kind == SIZE)


@pytest.mark.parametrize("name", sorted({sample.op for sample in SAMPLES}))
def test_an_op_is_recorded_with_the_parameters_it_declares(name: str) -> None:
    for sample in [sample for sample in SAMPLES if sample.op == name][:6]:
        for node in nodes_of(sample):
            assert set(node.attributes) == set(node.op.params)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"infer": lambda x, *, axis: same(x), "kernel": np.abs}, r"infer of op 'odd' has .*'axis'.* but \[\] are"),
        ({"infer": same, "kernel": lambda x, *, axis: x}, r"kernel of op 'odd' has .*'axis'"),
        (
            {"infer": same, "kernel": np.abs, "params": {"axis": STRUCTURE}},
            r"infer of op 'odd' has the keyword-only parameters \[\]",
        ),
        ({"infer": lambda x, **_: same(x), "kernel": np.abs, "params": {"n": "number"}}, "'n' of op 'odd' .*'number'"),
    ],
    ids=["infer", "kernel", "declared in vain", "kind"],
)
def test_a_parameter_without_a_kind_is_refused_where_the_op_is_defined(options: Any, message: str) -> None:
    with pytest.raises(OpDefinitionError, match=message):
        Op("odd", **options)


def test_parameters_that_hold_sizes_are_those_declared_as_such() -> None:
    op = Op(
        "cut",
        infer=lambda x, *, axis, length: (length, x.dtype),
        kernel=lambda x, *, axis, length: x[:length],
        params={"axis": STRUCTURE, "length": SIZE},
    )
    assert op.sized == ("length",)


# --- traits ----------------------------------------------------------------------------------------------------------


def test_an_op_that_says_nothing_of_itself_promises_nothing() -> None:
    op = Op("silent", infer=same, kernel=np.negative)
    traits = (op.cheap, op.renames, op.passes, op.view, op.fresh, op.draws, op.stepwise, op.users_own)
    assert not any(traits)
    assert not op.exact


@pytest.mark.parametrize("name", sorted({s.op for s in SAMPLES if REGISTRY[s.op].fresh}))
def test_the_result_of_a_fresh_op_shares_memory_with_nothing(name: str) -> None:
    for sample in [sample for sample in SAMPLES if sample.op == name][:6]:
        for node in nodes_of(sample):
            arrays = values_of(node)
            result = node.op.kernel(*arrays, **node.attributes)
            assert not any(np.shares_memory(result, array) for array in arrays)


@pytest.mark.parametrize("name", sorted({s.op for s in SAMPLES if REGISTRY[s.op].renames or REGISTRY[s.op].passes}))
def test_what_renames_or_passes_on_gives_its_very_inputs(name: str) -> None:
    for sample in [sample for sample in SAMPLES if sample.op == name]:
        for node in nodes_of(sample):
            arrays = values_of(node)
            result = node.op.kernel(*arrays, **node.attributes)
            for part, array in zip(result if node.op.multi else [result], arrays, strict=False):
                assert part is array


@pytest.mark.parametrize("op", [op for op in BUILT_IN if op.exact], ids=lambda op: op.name)
def test_an_exact_op_has_the_same_bits_whatever_the_layout_and_wherever_it_is_written(op: Op) -> None:
    generator = np.random.default_rng(7)
    kernel: Any = getattr(op.kernel, "ufunc", op.kernel)
    for dtype in op.exact & INEXACT:
        factor = 1 + 2j if dtype in COMPLEX else 1
        operands = [(generator.uniform(0.5, 4.0, (9, 14)) * factor).astype(dtype)[::2, ::2] for _ in range(kernel.nin)]
        expected = kernel(*[np.ascontiguousarray(x) for x in operands])
        assert kernel(*operands).tobytes() == expected.tobytes()
        into = np.zeros((10, 7), expected.dtype, order="F")[::2]
        assert kernel(*operands, out=into).tobytes() == expected.tobytes()


# --- nobody else lists ops -------------------------------------------------------------------------------------------

# What may hold several names that are names of ops too, and why.
TABLES = {
    "__init__.py": "public names, and the modules they are in",
    "_dims.py": "the extrema of symbolic sizes",
    "_engine/backends/native_linalg.py": "how the native backend writes an op of linear algebra",
    "_engine/backends/native_rules.py": "how the native backend writes an op",
    "_engine/backends/native_indexing.py": "how the native backend writes an index",
    "_engine/backends/native_random.py": "how the native backend draws",
    "_engine/backends/native_spaces.py": "how the native backend writes a truncation",
    "_engine/backends/numpy_rules.py": "how the NumPy backend writes an op",
    "linalg.py": "public names, and the modules they are in",
    "stats/_summaries.py": "SciPy's names for ways to break ties",
    "_numpy.py": "functions of NumPy, and what stands for them",
}
DECLARATIONS = ("__all__", "__slots__")


def modules() -> list[str]:
    names = [path.relative_to(SOURCES).as_posix() for path in sorted(SOURCES.rglob("*.py"))]
    return [name for name in names if not name.startswith("_ops/") and name not in TABLES]


def listed_in(source: str, names: set[str]) -> list[str]:
    """Return the places of a module that know ops by their names: collections of them, and comparisons."""
    tree = ast.parse(source)
    declared = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in DECLARATIONS
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.Set, ast.List, ast.Tuple, ast.Dict)) and id(node) not in declared:
            entries = node.keys if isinstance(node, ast.Dict) else node.elts
            known = {entry.value for entry in entries if isinstance(entry, ast.Constant)} & names
            if len(known) > 1:
                found.append(f"{node.lineno}: {ast.unparse(node)}")
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            of_an_op = any(isinstance(side, ast.Attribute) and _is_name_of_op(side) for side in sides)
            if of_an_op and any(_holds_text(side) for side in sides):
                found.append(f"{node.lineno}: {ast.unparse(node)}")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            method = node.func  # op.name.startswith("...")
            if (
                isinstance(method.value, ast.Attribute)
                and _is_name_of_op(method.value)
                and any(map(_holds_text, node.args))
            ):
                found.append(f"{node.lineno}: {ast.unparse(node)}")
    return found


def _is_name_of_op(node: ast.Attribute) -> bool:
    """Whether an expression reads ``op.name``, ``….op.name`` or ``….op``."""
    if node.attr == "op":
        return True
    owner = node.value
    return node.attr == "name" and (
        (isinstance(owner, ast.Attribute) and owner.attr == "op") or (isinstance(owner, ast.Name) and owner.id == "op")
    )


def _holds_text(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Constant) and isinstance(part.value, str) for part in ast.walk(node))


@pytest.mark.parametrize("module", modules())
def test_no_module_outside_the_ops_lists_them_by_name(module: str) -> None:
    names = {op.name for op in BUILT_IN}
    assert not listed_in((SOURCES / module).read_text(), names), "a trait of an op belongs into its block in _ops/"


@pytest.mark.parametrize(
    "source",
    [
        'FRESH = frozenset({"sum", "where"})',
        'SYMBOLS = {"add": "+", "multiply": "*"}',
        'if node.op.name == "chain": pass',
        'if op.name in ("alias", TOKEN): pass',
        'if step.op != "add": pass',
        'doubted = node.op.name.startswith("user:")',
    ],
)
def test_what_lists_ops_by_name_is_found(source: str) -> None:
    assert listed_in(source, {"add", "alias", "multiply", "sum", "where"})


@pytest.mark.parametrize(
    "source",
    ['__all__ = ["sum", "where"]', 'kinds = ("sum", "mean")', "if node.op is ADD: pass", 'if form == "add": pass'],
)
def test_what_does_not_is_let_be(source: str) -> None:
    assert not listed_in(source, {"add", "sum", "where"})


def test_the_table_of_exceptions_has_no_more_than_it_needs() -> None:
    names = {op.name for op in BUILT_IN}
    assert all(listed_in((SOURCES / module).read_text(), names) for module in TABLES)
