"""The native backend: plans and loops as tables of instructions, run in C over NumPy's own inner loops.

A plan that has a native program runs by it; one that has none, or is given arrays of another layout, runs in Python
(`numpy_backend`). Both give the same bits. The environment variable ``UNSPOOL_NATIVE=0`` switches it off, and so does a
NumPy whose loops are not as expected, which is found out when this module is imported.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from unspool._engine.backends.base import Lowered
from unspool._engine.backends.buffers import LARGE, repeats
from unspool._engine.backends.native_contract import contract
from unspool._engine.backends.native_frame import place_temporaries
from unspool._engine.backends.native_fusing import fuse
from unspool._engine.backends.native_layout import Unsupported, Value
from unspool._engine.backends.native_program import MOST_IN_FRAME, Builder
from unspool._engine.backends.native_rules import RULES, Rule, Writing, or_call
from unspool._engine.backends.values import held_values
from unspool._engine.planning import Bound, Step
from unspool._fragments.fragment import Fragment
from unspool._native import Program
from unspool._ops.op import PART, Op

# The rules by name of the op. Those of some families are loaded by the first program with an op of the family.
_RULES: dict[str, Rule] = {**RULES, "contract": or_call(contract)}
_OF_FAMILIES = {
    "cancellation": ("native_linalg",),
    "indexing": ("native_indexing",),
    "linalg": ("native_linalg", "native_spaces"),
    "random": ("native_random",),
}


def rule_of(op: Op) -> Rule | None:
    """Return how an op is written, if there is more to know than its kernel."""
    if op.name not in _RULES:
        _, _, family, *_ = (getattr(op.infer, "__module__", "") + "...").split(".")
        for name in _OF_FAMILIES.get(family, ()):
            _RULES.update(import_module(f"unspool._engine.backends.{name}").RULES)
    return _RULES.get(op.name)


def compile_program(
    fragment: Fragment,
    bound: Bound,
    steps: tuple[Step, ...],
    outputs: tuple[int, ...],
    fallback: Callable[..., Any],
    strides: Sequence[Any] | None = None,
    most: int = LARGE,
    *,
    is_body: bool = False,
) -> Program | None:
    """Return a plan as a native program, or ``None`` if it has none.

    ``fallback`` is what is called with arrays that it was not made for: by default it is made for arrays in C order,
    else for those of given strides. Results have fewer bytes than ``most``. The outputs of the body of a loop have no
    gaps; others are views where NumPy gives views.
    """
    if WHY_NOT is not None:
        return None
    builder = Builder(outputs, most)
    try:
        held = held_values(Lowered(fragment, bound, steps, outputs))
        owners = _write(builder, fragment, bound, steps, held, strides, frozenset(outputs), is_body=is_body)
        places = [_output(builder, slot, is_body=is_body) for slot in outputs]
    except Unsupported:
        return None
    place_temporaries(builder, fuse(builder))
    if builder.frame > max(most, MOST_IN_FRAME):
        return None
    inputs = tuple([builder.values[slot].slot for slot in range(len(fragment.dtypes))])
    program = Program(builder.slots, builder.instructions, inputs, tuple(places), builder.frame, fallback)
    owners += list(outputs[-1:]) * (len(builder.instructions) - len(owners))
    program.about = fragment, bound, tuple(owners)
    return program


def _write(
    builder: Builder,
    fragment: Fragment,
    bound: Bound,
    steps: Sequence[Step],
    held: Mapping[int, Any],
    strides: Sequence[Any] | None,
    kept: frozenset[int],
    *,
    is_body: bool,
) -> list[int]:
    """Write the steps; return for each instruction the slot whose value it helps to make."""
    owners: list[int] = []
    for slot, dtype in enumerate(fragment.dtypes):
        if dtype.hasobject:
            raise Unsupported("objects")
        builder.values[slot] = builder.input(
            slot, bound.shapes[slot], dtype, None if strides is None else strides[slot]
        )
    for slot, value in held.items():
        builder.values[slot] = (
            [builder.constant(v) for v in value] if type(value) is tuple else builder.constant(np.asarray(value))
        )
    for step in steps:
        if not step.once:
            value = _step(builder, step, bound)
            # What repeats elements is copied when it leaves the step of a loop, and not before.
            if step.slot in kept and _has_gaps(value) and not (is_body and repeats(value.shape, value.strides)):
                value = builder.owned(step.slot, value)
            builder.values[step.slot] = value
            owners += [step.slot] * (len(builder.instructions) - len(owners))
    return owners


def _has_gaps(value: Any) -> bool:
    """Whether a value is an array that has no dense layout."""
    return type(value) is Value and value.layout is None


def _step(builder: Builder, step: Step, bound: Bound) -> Any:
    operands = [builder.values[slot] for slot in step.operands]
    if step.op is PART:
        return operands[0][step.params["index"]]
    if any(type(operand) is list for operand in operands):
        raise Unsupported("it reads all that another op gives")
    to = Writing(builder, step, bound.shapes[step.slot], bound.dtypes[step.slot])
    ufunc = _ufunc_of(step.op.kernel, to, operands)
    if ufunc is not None:
        return to.apply(ufunc, *operands)
    rule = rule_of(step.op)
    if rule is not None:
        return rule(to, *operands)
    return to.call_all(*operands) if step.op.multi else to.call(*operands)


def _ufunc_of(kernel: Any, to: Writing, operands: Sequence[Any]) -> Any:
    """Return the ufunc that a kernel is or stands for: SciPy's functions are loaded when they are called."""
    if isinstance(kernel, np.ufunc):
        return kernel if kernel.nout == 1 else None
    if to.step.params or not hasattr(kernel, "ufunc") or any(x.dtype != to.dtype for x in operands):
        return None
    found = kernel.ufunc
    is_known = isinstance(found, np.ufunc) and f"{to.dtype.char * found.nin}->{to.dtype.char}" in found.types
    return found if is_known and len(operands) == found.nin else None


def _output(builder: Builder, slot: int, *, is_body: bool) -> int:
    """Return where an output is; a view becomes an array of its own."""
    value = builder.values[slot]
    if type(value) is list:
        raise Unsupported("all that an op gives")
    home, _, _, dtype, shape, strides, _ = builder.slots[value.slot]
    is_whole = (dtype, shape, strides) == (value.dtype, value.shape, value.strides)
    if is_whole and home in (0, 1, 3):
        return int(value.slot)
    # As `buffers.copied` lays it out.
    order = "C" if is_body and repeats(value.shape, value.strides) else value.layout
    if order is None:
        return builder.shown(value)
    made = builder.copied(slot, value, order)
    builder.values[slot] = made
    return made.slot


# --- whether it works here -------------------------------------------------------------------------------------------


def _reason_not_to() -> str | None:
    """Return why the native backend is not used, or ``None``."""
    if os.environ.get("UNSPOOL_NATIVE") == "0":
        return "UNSPOOL_NATIVE is 0"
    return _difference()


def _difference() -> str | None:
    """Return where a program gives something else than NumPy, if it does."""
    x = np.linspace(-1.0, 2.0, 35).reshape(5, 7)
    builder = Builder((0, 1, 2, 3, 4, 5))
    given = builder.input(0, x.shape, x.dtype)
    product = builder.new(0, (5, 5), x.dtype)
    builder.matmul(product, given, given.transposed((1, 0)))
    tanh = builder.apply(np.tanh, 1, [given], x.shape, x.dtype)
    total = builder.reduce(np.add, 2, tanh, [1], (5,))
    square = builder.dot(3, total, total)
    # One by one, and in eight parts with others after them.
    few, some = [builder.reduce(np.add, 4 + i, given.viewed((n,), (8,)), [0], ()) for i, n in enumerate((5, 35))]
    places = (product.slot, tanh.slot, total.slot, square.slot, few.slot, some.slot)
    program = Program(builder.slots, builder.instructions, (given.slot,), places, builder.frame, None)
    expected = [np.matmul(x, x.T), np.tanh(x), np.tanh(x).sum(axis=1)]
    expected.append(np.asarray(expected[-1].dot(expected[-1])))
    expected += [np.asarray(x.ravel()[:n].sum()) for n in (5, 35)]
    for ours, theirs in zip(program(x), expected, strict=True):
        if ours.tobytes() != theirs.tobytes():
            return f"NumPy {np.__version__} computes {theirs}, and its inner loops {ours}"
    return None


# Why plans do not run natively; ``None`` if they do.
WHY_NOT: str | None = _reason_not_to()
