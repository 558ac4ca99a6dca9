"""Every op of the registry, checked in every way that does not depend on which op it is.

The samples (``tests/samples``) say how an op is used and what NumPy makes of it; this file says what must hold. An op
without a sample fails here.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.exact import duals, rationals, slope_of, value_of
from tests.samples import Sample, all_samples
from unspool._autodiff.sweeps.reverse import vjp_of
from unspool._autodiff.sweeps.walk import is_differentiable
from unspool._graph import Bundle, Node, ancestors
from unspool._ops.broadcasting import ENSURE_SHAPE
from unspool._ops.leaf import LEAF_OPS
from unspool._ops.op import PART, REGISTRY, Op, load_all

load_all()
SAMPLES = all_samples()
BUILT_IN = [op for name, op in REGISTRY.items() if not name.startswith("user:")]
EVERY = pytest.mark.parametrize("sample", SAMPLES, ids=str)
# Leaves are not computed, the sweeps handle parts themselves, and sizes are only ensured where they are symbolic, which
# samples are not: tests/ops/test_broadcasting.py has that op.
STRUCTURAL = LEAF_OPS | {PART, ENSURE_SHAPE}
SINGLE = {"f": np.float32, "c": np.complex64}


def build(sample: Sample, args: Any) -> us.Tensor:
    return sample.function(*[us.tensor(a) for a in args])


def nodes_of(sample: Sample, out: us.Tensor) -> list[Node]:
    return [node for node in ancestors([out]) if node.op.name == sample.op]


def is_inexact(array: Any) -> bool:
    return np.asarray(array).dtype.kind in "fc"


@pytest.mark.parametrize("op", [op for op in BUILT_IN if op not in STRUCTURAL], ids=lambda op: op.name)
def test_every_op_has_a_sample(op: Op) -> None:
    assert any(sample.op == op.name for sample in SAMPLES), f"add samples for {op.name!r} in tests/samples"


def names_after(program: str) -> set[str]:
    """Return the names of the ops that there are after a program, in a process of its own."""
    report = "from unspool._ops.op import REGISTRY; print(*REGISTRY)"
    done = subprocess.run([sys.executable, "-c", f"{program}\n{report}"], capture_output=True, text=True, check=True)
    return {name for name in done.stdout.split() if not name.startswith("user:")}


IMPORT_EVERYTHING = """
import importlib, pkgutil, unspool
for module in pkgutil.walk_packages(unspool.__path__, "unspool."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""


def test_all_ops_can_be_loaded_at_once() -> None:
    assert names_after("from unspool._ops.op import load_all; load_all()") == names_after(IMPORT_EVERYTHING)


def test_an_op_is_found_by_its_name_before_anything_used_it() -> None:
    assert "svd" not in names_after("import unspool")
    assert "svd" in names_after("from unspool._ops.op import lookup; assert lookup('svd').name == 'svd'")


@EVERY
def test_the_value_is_what_numpy_computes(sample: Sample) -> None:
    out = build(sample, sample.args)
    expected = np.asarray(sample.reference(*sample.args))
    assert nodes_of(sample, out), f"the graph of this sample does not contain {sample.op!r}"
    assert out.shape == expected.shape
    assert out.dtype == expected.dtype
    np.testing.assert_allclose(out.eval(), expected, rtol=1e-12, atol=1e-12)


@EVERY
def test_the_memory_layout_of_inputs_does_not_matter(sample: Sample) -> None:
    expected = build(sample, sample.args).eval()
    for relayout in (_reversed_in_memory, _every_other_in_memory, np.asfortranarray):
        args = [np.reshape(relayout(np.asarray(a)), np.shape(a)) for a in sample.args]
        out = sample.function(*[us.tensor(a, copy=False) for a in args])
        np.testing.assert_allclose(out.eval(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("sample", [s for s in SAMPLES if any(map(is_inexact, s.args))], ids=str)
def test_single_precision_stays_single(sample: Sample) -> None:
    args = [np.asarray(a, SINGLE.get(np.asarray(a).dtype.kind)) if is_inexact(a) else a for a in sample.args]
    out, expected = build(sample, args), np.asarray(sample.reference(*args))
    assert out.eval().dtype == out.dtype
    if expected.dtype.kind in "fc":
        assert out.dtype in (np.float32, np.complex64, expected.dtype)
    np.testing.assert_allclose(out.eval(), build(sample, sample.args).eval(), rtol=2e-4, atol=2e-4)


@EVERY
def test_derivatives_agree_with_differences_in_both_modes_to_second_order(sample: Sample) -> None:
    if sample.order:
        us.check_grad(sample.function, *sample.args, order=sample.order)
    else:
        out = build(sample, sample.args)
        assert not any(is_differentiable(n) for n in nodes_of(sample, out)) or not any(map(is_inexact, sample.args))


@EVERY
def test_rules_look_only_at_what_the_op_declares(sample: Sample) -> None:
    for node in nodes_of(sample, build(sample, sample.args)):
        assert _looked_at(node) <= set(node.op.needs)


@pytest.mark.parametrize("op", [op for op in BUILT_IN if op.vjp is not None and op.needs], ids=lambda op: op.name)
def test_no_op_declares_more_than_its_rules_look_at(op: Op) -> None:
    looked: set[str] = set()
    for sample in SAMPLES:
        if sample.op == op.name and sample.order:
            for node in nodes_of(sample, build(sample, sample.args)):
                looked |= _looked_at(node)
    assert looked == set(op.needs)


@pytest.mark.parametrize("sample", [s for s in SAMPLES if s.exact], ids=str)
def test_rules_are_exact_on_rationals(sample: Sample) -> None:
    """⟨w, J·v⟩ by dual numbers through the NumPy reference equals ⟨Jᵀ·w, v⟩ by the tape, without rounding."""
    args = [rationals(a) for a in sample.args]
    leaves = [us.tensor(np.asarray(a, dtype=float)) for a in args]
    out = sample.function(*leaves)
    tape = us.Tape(out, values=dict(zip(leaves, args, strict=True)))
    generator = np.random.default_rng(5)
    directions = [rationals(generator.uniform(-2, 2, np.shape(a))) for a in args]
    moved = sample.reference(*[duals(a, v) for a, v in zip(args, directions, strict=True)])
    assert list(np.ravel(tape.value(tape.id_of(out)))) == value_of(moved)
    weights = rationals(generator.uniform(-2, 2, out.shape))
    cotangents = tape.backward(tape.id_of(out), weights)
    forward = sum((w * s for w, s in zip(np.ravel(weights), slope_of(moved), strict=True)), 0)
    backward = 0
    for leaf, direction in zip(leaves, directions, strict=True):
        ct = cotangents.get(tape.id_of(leaf)) if leaf.id in {n.id for n in ancestors([out])} else None
        if ct is not None:
            backward += sum((c * v for c, v in zip(np.ravel(ct), np.ravel(direction), strict=True)), 0)
    assert forward == backward


def _looked_at(node: Node) -> set[str]:
    """Return which values ("inputs", "positions", "output") the vjp rules of a node refer to."""
    found: set[str] = set()
    if node.op.vjp is None or not is_differentiable(node):
        return found
    if type(node) is Bundle:
        ct: Any = tuple(us.placeholder(s, d) for s, d in zip(node.shape, node.dtype, strict=True))
    else:
        ct = us.placeholder(node.shape, node.dtype)
    for position, operand in enumerate(node.inputs):
        if is_differentiable(operand):
            contribution = vjp_of(node, position, ct)
            if contribution is not None:
                found |= _reach(contribution, node)
    return found


def _reach(contribution: Node, node: Node) -> set[str]:
    inputs = {i.id for i in node.inputs if i.op.name != "constant" or i.shape}
    # Who declares inputs declares the positions among them.
    positions = {i.id for i in node.inputs if i.dtype.kind == "i"} if "inputs" not in node.op.needs else set()
    seen: set[int] = set()
    found: set[str] = set()
    stack = [contribution]
    while stack:
        current = stack.pop()
        if current.id in seen:
            continue
        seen.add(current.id)
        if current.id in positions:
            found.add("positions")
            continue
        if current is node:
            found.add("output")
        elif current.id in inputs:
            found.add("inputs")
        else:
            stack.extend(current.inputs)
    return found


def _reversed_in_memory(a: Any) -> Any:
    everywhere = (slice(None, None, -1),) * a.ndim
    return np.ascontiguousarray(a[everywhere])[everywhere] if a.ndim else a


def _every_other_in_memory(a: Any) -> Any:
    if not a.ndim:
        return a
    wide = np.zeros((*a.shape[:-1], 2 * a.shape[-1]), a.dtype)
    wide[..., ::2] = a
    return wide[..., ::2]
