"""How single ops are written in generated code.

The one idea: with shapes, dtypes and parameters known, a kernel that looks at them and then calls NumPy can be written
as the call it decides for, without a Python frame of its own. A rule returns that expression, or ``None`` where the
kernel is called as it is. What it writes gives, bit for bit, what the kernel gives; where the kernel would explain an
error, NumPy's comes out, and whoever runs the plan finds the op that failed by running it op by op.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._engine.planning import Step
from unspool._ops.contraction.grouping import MatrixView, product_for
from unspool._ops.contraction.kernel import is_thin
from unspool._ops.indexing.slices import as_numpy, extent
from unspool._ops.indexing.template import decode, numpy_index, positions_along

if TYPE_CHECKING:
    from unspool._engine.numpy_backend import Writer

Rule = Callable[..., str | None]

# --- elementwise -----------------------------------------------------------------------------------------------------


def _attribute(name: str) -> Rule:
    return lambda writer, step, x: f"{x}.{name}"


def _astype(writer: Writer, step: Step, x: str) -> str:
    return f"{x}.astype({writer.name(step.params['dtype'])})"


def _mask(writer: Writer, step: Step, x: str, keep: str) -> str:
    return f"{writer.name(np.where)}({keep}, {x}, {_zero(writer, step)})"


def _relu(writer: Writer, step: Step, x: str) -> str:
    return writer.ufunc(np.maximum, step, (x, _zero(writer, step)))


def _zero(writer: Writer, step: Step) -> str:
    return writer.name(np.zeros((), writer.dtypes[step.slot]))


def _divide_or_zero(writer: Writer, step: Step, x1: str, x2: str) -> str | None:
    if writer.shapes[step.operands[1]]:
        return None
    kernel = writer.call(step.op.kernel, (x1, x2), {})
    return f"{writer.ufunc(np.divide, step, (x1, x2))} if {x2} else {kernel}"


# --- reductions ------------------------------------------------------------------------------------------------------


def _reduction(ufunc: Any) -> Rule:
    def rule(writer: Writer, step: Step, x: str) -> str | None:
        if step.params.get("or_neutral") and 0 in writer.shapes[step.operands[0]]:
            return None
        tail = ", None, None, True" if step.params["keepdims"] else ""
        return f"{writer.name(ufunc.reduce)}({x}, {writer.name(step.params['axis'])}{tail})"

    return rule


def _accumulation(ufunc: Any) -> Rule:
    return lambda writer, step, x: f"{writer.name(ufunc.accumulate)}({x}, {writer.name(step.params['axis'])})"


# A sum of squares between these has lost nothing to the ends of the range of doubles; the kernel scales others.
_SAFE_SQUARES = (1e-290, math.inf)


def _norm2(writer: Writer, step: Step, x: str) -> str | None:
    """Write the norm of a vector of doubles as the root of its square, where that is safe."""
    shape, dtype = writer.shapes[step.operands[0]], writer.dtypes[step.operands[0]]
    if len(shape) != 1 or dtype != np.float64 or step.params["keepdims"] or step.params["axis"] != (0,):
        return None
    low, high = map(writer.name, _SAFE_SQUARES)
    kernel = writer.call(step.op.kernel, (x,), step.params)
    # An array and not a NumPy scalar, which ufuncs take longer to read.
    return f"asarray({writer.name(math.sqrt)}(t) if {low} < (t := float({x}.dot({x}))) < {high} else {kernel})"


# --- moving and picking ----------------------------------------------------------------------------------------------


def _reshape(writer: Writer, step: Step, x: str) -> str:
    return f"{x}.reshape({writer.name(step.params['shape'])})"


def _permute_dims(writer: Writer, step: Step, x: str) -> str:
    axes = step.params["axes"]
    return f"{x}.T" if axes == (1, 0) else f"{x}.transpose({writer.name(axes)})"


def _flip(writer: Writer, step: Step, x: str) -> str:
    rank = len(writer.shapes[step.slot])
    reverse, whole = slice(None, None, -1), slice(None)
    return f"{x}[{writer.name(tuple(reverse if axis in step.params['axes'] else whole for axis in range(rank)))}]"


def _concat(writer: Writer, step: Step, *xs: str) -> str:
    return f"{writer.name(np.concatenate)}(({', '.join(xs)},), {step.params['axis']})"


def _part(writer: Writer, step: Step, values: str) -> str:
    return f"{values}[{step.params['index']}]"


def _pick(writer: Writer, step: Step, x: str, *at: str) -> str | None:
    place = _place(writer, step, writer.shapes[step.operands[0]], at)
    return None if place is None else f"{x}[{place}]"


def _crop(writer: Writer, step: Step, x: str) -> str | None:
    box = list(zip(step.params["start"], step.params["shape"], writer.shapes[step.operands[0]], strict=True))
    if any(not 0 <= first <= first + count <= size for first, count, size in box):
        return None
    return f"{x}[{writer.name(tuple(slice(first, first + count) for first, count, _ in box))}]"


# --- copies with something written into them -------------------------------------------------------------------------

# These rules write lines before the expression they return, which is the name of the result.


def _unslice(writer: Writer, step: Step, values: str, *at: str) -> str | None:
    return _filled(writer, step, values, at)


def _chosen(writer: Writer, step: Step, *at: str) -> str | None:
    return _filled(writer, step, "True", at)


def _filled(writer: Writer, step: Step, values: str, at: tuple[str, ...]) -> str | None:
    place = _place(writer, step, step.params["shape"], at)
    if place is not None:
        dtype = writer.name(writer.dtypes[step.slot])
        writer.lines.append(f"v{step.slot} = {writer.name(np.zeros)}({writer.name(step.params['shape'])}, {dtype})")
        writer.lines.append(f"v{step.slot}[{place}] = {values}")
    return None if place is None else f"v{step.slot}"


def _slice_set(writer: Writer, step: Step, x: str, values: str, *at: str) -> str | None:
    place = _place(writer, step, writer.shapes[step.slot], at)
    if place is not None:
        writer.lines.append(f"v{step.slot} = {writer.name(np.array)}({x})")
        writer.lines.append(f"v{step.slot}[{place}] = {values}")
    return None if place is None else f"v{step.slot}"


def _slice_add(writer: Writer, step: Step, x: str, values: str, *at: str) -> str | None:
    place = _place(writer, step, writer.shapes[step.slot], at)
    if place is not None:
        writer.lines.append(f"v{step.slot} = {writer.name(np.array)}({x})")
        writer.lines.append(f"t = v{step.slot}[{place}]")
        writer.lines.append(f"{writer.name(np.add)}(t, {values}, t)")
    return None if place is None else f"v{step.slot}"


def _place(writer: Writer, step: Step, shape: tuple[int, ...], at: tuple[str, ...]) -> str | None:
    """Write what NumPy takes as an index of an array of some shape; ``at`` are the operands of the template.

    What is known beforehand is an object that is made once. Positions that are not become numbers: an array as an index
    would be a copy, where a number is a view.
    """
    index, lengths = step.params["index"], step.params["lengths"]
    known = [writer.held(slot) for slot in step.operands[len(step.operands) - len(at) :]]
    if all(value is not None for value in known):
        return writer.name(numpy_index(index, lengths, known, shape))
    template = decode(index, lengths)
    texts = [writer.name(item) for item in template.items]
    waiting = iter(zip(known, at, strict=True))
    for place, axis, entry in template.slots:
        if entry[0] == "along":
            texts[place] = writer.name(positions_along(shape[axis], *entry[1:]))
            continue
        value, text = next(waiting)
        written = text if entry[0] == "array" else _position(writer, axis, entry, value, text)
        if written is None:
            return None
        texts[place] = written
    return ", ".join(texts)


def _position(writer: Writer, axis: int, entry: tuple[Any, ...], value: Any, text: str) -> str | None:
    """Write a position, or a slice from one."""
    if entry[0] == "int":
        return f"{text}.item()" if value is None else writer.name(int(value))
    _, step, length = entry
    if value is not None:
        return writer.name(as_numpy(int(value), length, step))
    if step < 0 or length == 0:
        return None  # where it stops is written in another way if that is the end of the axis
    return f"(p{axis} := {text}.item()) : p{axis} + {writer.name(extent(length, step))} : {step}"


# --- contractions ----------------------------------------------------------------------------------------------------


def _contract(writer: Writer, step: Step, x1: str, x2: str) -> str:
    subscripts = step.params["subscripts"]
    operands, out = subscripts.split("->")
    s1, s2 = operands.split(",")
    contracted = [label for label in s1 if label in s2 and label not in out]
    if not contracted:
        return writer.ufunc(np.multiply, step, (_spread(writer, s1, out, x1), _spread(writer, s2, out, x2)))
    if len(s1) <= 2 and len(s2) <= 2 and len(contracted) == 1 and len(out) == len(s1) + len(s2) - 2:
        left = f"{x1}.T" if len(s1) == 2 and s1[0] == contracted[0] else x1
        right = f"{x2}.T" if len(s2) == 2 and s2[1] == contracted[0] else x2
        if len(s1) == 1 or len(s2) == 1:
            return f"{left}.dot({right})"
        if out[0] not in s1:
            # The result is wanted transposed: B'A' = (AB)', with every transpose a view.
            left, right = _transposed(right), _transposed(left)
        summed = writer.shapes[step.operands[0]][s1.index(contracted[0])]
        return _matmul(writer, step, left, right, summed)
    return _product(writer, step, x1, x2)


def _matmul(writer: Writer, step: Step, left: str, right: str, summed: int) -> str:
    """Write a product of two matrices over an axis of some length."""
    rows, columns = writer.shapes[step.slot]
    if not is_thin(rows, summed, columns):
        into = f", out={writer.new_array(step)}" if writer.is_large(step.slot) else ""
        return f"{writer.name(np.matmul)}({left}, {right}{into})"
    into = f", out={writer.new_array_behind(step)}" if writer.is_large(step.slot) else ""
    return f"{writer.name(np.matmul)}({_transposed(right)}, {_transposed(left)}{into}).T"


def _product(writer: Writer, step: Step, x1: str, x2: str) -> str:
    """Write a contraction as the product of matrices that it is."""
    left, right = (writer.shapes[slot] for slot in step.operands)
    product = product_for(step.params["subscripts"], left, right)
    if product.swap:
        x1, x2, left, right = x2, x1, right, left
    views = f"{_matrix(writer, product.left, x1, left)}, {_matrix(writer, product.right, x2, right)}"
    shape = product.shape(left, right)
    if writer.is_large(step.slot) and not (product.flat or product.narrowed or product.order):
        # Lines before the expression, as above. The array that is new is the one that others may take over later.
        result = f"v{step.slot}"
        target = result if shape is None else f"{result}.reshape({writer.name(product.grouped_shape(shape))})"
        writer.lines.append(f"{result} = {writer.new_array(step)}")
        writer.lines.append(f"{writer.name(np.matmul)}({views}, out={target})")
        return result
    text = f"{writer.name(np.dot if product.flat else np.matmul)}({views})"
    if shape is not None:
        text = f"{text}.reshape({writer.name(shape)})"
    if product.narrowed is not None:
        text = f"{text}[{writer.name(product.narrowed)}]"
    return text if product.order is None else f"{text}.transpose({writer.name(product.order)})"


def _matrix(writer: Writer, view: MatrixView, x: str, shape: tuple[int, ...]) -> str:
    """Write an operand as the stack of matrices that a product takes."""
    if view.order is not None:
        x = f"{x}.transpose({writer.name(view.order)})"
    if view.widened is not None:
        x = f"{x}[{writer.name(view.widened)}]"
    grouped = view.shape(shape)
    if grouped is not None:
        x = f"{x}.reshape({writer.name(grouped)})"
    return f"{x}.swapaxes(-1, -2)" if view.flipped else x


def _spread(writer: Writer, labels: str, out: str, x: str) -> str:
    """Write the view that lines an operand's axes up with those of the result."""
    if not labels or out.endswith(labels):
        return x
    order = tuple(labels.index(label) for label in out if label in labels)
    index = tuple(slice(None) if label in labels else None for label in out)
    moved = x if order == tuple(sorted(order)) else f"{x}.transpose({writer.name(order)})"
    return f"{moved}[{writer.name(index)}]"


def _transposed(x: str) -> str:
    return x[:-2] if x.endswith(".T") else f"{x}.T"


# By name, so that ops which no program uses need not be loaded.
RULES: dict[str, Rule] = {
    "all": _reduction(np.logical_and),
    "any": _reduction(np.logical_or),
    "astype": _astype,
    "concat": _concat,
    "contract": _contract,
    "crop": _crop,
    "cumprod": _accumulation(np.multiply),
    "chosen": _chosen,
    "cumsum": _accumulation(np.add),
    "divide_or_zero": _divide_or_zero,
    "flip": _flip,
    "gather": _pick,
    "imag": _attribute("imag"),
    "mask": _mask,
    "max": _reduction(np.maximum),
    "min": _reduction(np.minimum),
    "norm2": _norm2,
    "part": _part,
    "permute_dims": _permute_dims,
    "prod": _reduction(np.multiply),
    "real": _attribute("real"),
    "relu": _relu,
    "reshape": _reshape,
    "slice": _pick,
    "slice_add": _slice_add,
    "slice_set": _slice_set,
    "sum": _reduction(np.add),
    "unslice": _unslice,
}
