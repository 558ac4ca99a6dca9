"""How single ops are written in generated code.

The one idea: with shapes, dtypes and parameters known, a kernel that looks at them and then calls NumPy can be written
as the call it decides for, without a Python frame of its own. A rule returns that expression, or ``None`` where the
kernel is called as it is. What it writes gives, bit for bit, what the kernel gives; where the kernel would explain an
error, NumPy's comes out, and whoever runs the plan finds the op that failed by running it op by op.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unspool._engine.planning import Step
from unspool._ops.contraction.grouping import MatrixView, product_for
from unspool._ops.contraction.kernel import is_thin
from unspool._ops.indexing.slices import as_numpy, extent
from unspool._ops.indexing.template import decode, numpy_index, positions_along

if TYPE_CHECKING:
    from unspool._engine.backends.numpy_steps import StepWriter

Rule = Callable[..., str | None]


def call_text(function: str, arguments: Sequence[str], out: str | None = None) -> str:
    """Write a call, with an array to write the result into if there is one."""
    return f"{function}({', '.join(arguments if out is None else [*arguments, f'out={out}'])})"


# --- elementwise -----------------------------------------------------------------------------------------------------


def _attribute(name: str) -> Rule:
    return lambda writer, step, x: f"{x}.{name}"


def _astype(writer: StepWriter, step: Step, x: str) -> str:
    return f"{x}.astype({writer.param(step, 'dtype')})"


def _mask(writer: StepWriter, step: Step, x: str, keep: str) -> str:
    return call_text(writer.function(np.where), [keep, x, _zero(writer, step)])


def _relu(writer: StepWriter, step: Step, x: str) -> str:
    return writer.ufunc(np.maximum, step, (x, _zero(writer, step)))


def _zero(writer: StepWriter, step: Step) -> str:
    return writer.constant(step, "zero", np.zeros((), writer.dtypes[step.slot]))


def _divide_or_zero(writer: StepWriter, step: Step, x1: str, x2: str) -> str | None:
    if writer.shapes[step.operands[1]]:
        return None
    return f"{writer.ufunc(np.divide, step, (x1, x2))} if {x2} else {writer.kernel(step, (x1, x2))}"


# --- reductions ------------------------------------------------------------------------------------------------------


def _reduction(ufunc: Any) -> Rule:
    def rule(writer: StepWriter, step: Step, x: str) -> str | None:
        if step.params.get("or_neutral") and 0 in writer.shapes[step.operands[0]]:
            return None
        keeping = ["None", "None", "True"] if step.params["keepdims"] else []
        return call_text(writer.method(ufunc, "reduce"), [x, writer.param(step, "axis"), *keeping])

    return rule


def _accumulation(ufunc: Any) -> Rule:
    return lambda writer, step, x: call_text(writer.method(ufunc, "accumulate"), [x, writer.param(step, "axis")])


# A sum of squares between these has lost nothing to the ends of the range of doubles; the kernel scales others.
_SAFE_SQUARES = (1e-290, math.inf)


def _norm2(writer: StepWriter, step: Step, x: str) -> str | None:
    """Write the norm of a vector of doubles as the root of its square, where that is safe."""
    shape, dtype = writer.shapes[step.operands[0]], writer.dtypes[step.operands[0]]
    if len(shape) != 1 or dtype != np.float64 or step.params["keepdims"] or step.params["axis"] != (0,):
        return None
    low, high = (writer.constant(step, what, end) for what, end in zip(("low", "high"), _SAFE_SQUARES, strict=True))
    root, kernel = writer.constant(step, "root", math.sqrt), writer.kernel(step, (x,))
    return writer.number(step, f"{root}(t) if {low} < (t := float({x}.dot({x}))) < {high} else {kernel}")


# --- moving and picking ----------------------------------------------------------------------------------------------


def _reshape(writer: StepWriter, step: Step, x: str) -> str:
    return f"{x}.reshape({writer.param(step, 'shape')})"


def _permute_dims(writer: StepWriter, step: Step, x: str) -> str:
    axes = step.params["axes"]
    return f"{x}.T" if axes == (1, 0) else f"{x}.transpose({writer.param(step, 'axes')})"


def _flip(writer: StepWriter, step: Step, x: str) -> str:
    rank = len(writer.shapes[step.slot])
    reverse, whole = slice(None, None, -1), slice(None)
    index = tuple(reverse if axis in step.params["axes"] else whole for axis in range(rank))
    return f"{x}[{writer.constant(step, 'index', index)}]"


def _concat(writer: StepWriter, step: Step, *xs: str) -> str:
    return call_text(writer.function(np.concatenate), [f"({', '.join(xs)},)", str(step.params["axis"])])


def _part(writer: StepWriter, step: Step, values: str) -> str:
    return f"{values}[{step.params['index']}]"


def _pick(writer: StepWriter, step: Step, x: str, *at: str) -> str | None:
    place = _place(writer, step, writer.shapes[step.operands[0]], at)
    return None if place is None else f"{x}[{place}]"


def _crop(writer: StepWriter, step: Step, x: str) -> str | None:
    box = list(zip(step.params["start"], step.params["shape"], writer.shapes[step.operands[0]], strict=True))
    if any(not 0 <= first <= first + count <= size for first, count, size in box):
        return None
    index = tuple(slice(first, first + count) for first, count, _ in box)
    return f"{x}[{writer.constant(step, 'index', index)}]"


# --- copies with something written into them -------------------------------------------------------------------------

# These rules write lines before the expression they return, which is the name of the result.


def _unslice(writer: StepWriter, step: Step, values: str, *at: str) -> str | None:
    return _filled(writer, step, values, at)


def _chosen(writer: StepWriter, step: Step, *at: str) -> str | None:
    return _filled(writer, step, "True", at)


def _filled(writer: StepWriter, step: Step, values: str, at: tuple[str, ...]) -> str | None:
    place = _place(writer, step, step.params["shape"], at)
    if place is not None:
        kind = [writer.param(step, "shape"), writer.constant(step, "dtype", writer.dtypes[step.slot])]
        writer.lines.append(f"v{step.slot} = {call_text(writer.function(np.zeros), kind)}")
        writer.lines.append(f"v{step.slot}[{place}] = {values}")
    return None if place is None else f"v{step.slot}"


def _slice_set(writer: StepWriter, step: Step, x: str, values: str, *at: str) -> str | None:
    place = _place(writer, step, writer.shapes[step.slot], at)
    if place is not None:
        writer.lines.append(f"v{step.slot} = array({x})")
        writer.lines.append(f"v{step.slot}[{place}] = {values}")
    return None if place is None else f"v{step.slot}"


def _slice_add(writer: StepWriter, step: Step, x: str, values: str, *at: str) -> str | None:
    place = _place(writer, step, writer.shapes[step.slot], at)
    if place is not None:
        writer.lines.append(f"v{step.slot} = array({x})")
        writer.lines.append(f"t = v{step.slot}[{place}]")
        writer.lines.append(call_text(writer.function(np.add), ["t", values, "t"]))
    return None if place is None else f"v{step.slot}"


def _place(writer: StepWriter, step: Step, shape: tuple[int, ...], at: tuple[str, ...]) -> str | None:
    """Write what NumPy takes as an index of an array of some shape; ``at`` are the operands of the template.

    What is known beforehand is an object that is made once. Positions that are not become numbers: an array as an index
    would be a copy, where a number is a view.
    """
    index, lengths = step.params["index"], step.params["lengths"]
    known = [writer.held(slot) for slot in step.operands[len(step.operands) - len(at) :]]
    if all(value is not None for value in known):
        return writer.constant(step, "index", numpy_index(index, lengths, known, shape))
    template = decode(index, lengths)
    texts = [writer.constant(step, "item", item) for item in template.items]
    waiting = iter(zip(known, at, strict=True))
    for place, axis, entry in template.slots:
        if entry[0] == "along":
            texts[place] = writer.constant(step, "positions", positions_along(shape[axis], *entry[1:]))
            continue
        value, text = next(waiting)
        written = text if entry[0] == "array" else _position(writer, step, axis, entry, value, text)
        if written is None:
            return None
        texts[place] = written
    return ", ".join(texts)


def _position(writer: StepWriter, step: Step, axis: int, entry: tuple[Any, ...], value: Any, text: str) -> str | None:
    """Write a position, or a slice from one."""
    if entry[0] == "int":
        return f"{text}.item()" if value is None else writer.constant(step, "position", int(value))
    _, stride, length = entry
    if value is not None:
        return writer.constant(step, "slice", as_numpy(int(value), length, stride))
    if stride < 0 or length == 0:
        return None  # where it stops is written in another way if that is the end of the axis
    size = writer.constant(step, "extent", extent(length, stride))
    return f"(p{axis} := {text}.item()) : p{axis} + {size} : {stride}"


# --- contractions ----------------------------------------------------------------------------------------------------


class _Matrix(NamedTuple):
    """An operand of a product of matrices, as it is or transposed: a view that BLAS takes in its stride."""

    name: str
    is_transposed: bool = False

    @property
    def T(self) -> _Matrix:
        return _Matrix(self.name, not self.is_transposed)

    def __str__(self) -> str:
        return f"{self.name}.T" if self.is_transposed else self.name


def _contract(writer: StepWriter, step: Step, x1: str, x2: str) -> str:
    subscripts = step.params["subscripts"]
    operands, out = subscripts.split("->")
    s1, s2 = operands.split(",")
    contracted = [label for label in s1 if label in s2 and label not in out]
    if not contracted:
        spread = [_spread(writer, step, *operand, out) for operand in (("left", s1, x1), ("right", s2, x2))]
        return writer.ufunc(np.multiply, step, spread)
    if len(s1) <= 2 and len(s2) <= 2 and len(contracted) == 1 and len(out) == len(s1) + len(s2) - 2:
        left = _Matrix(x1, len(s1) == 2 and s1[0] == contracted[0])
        right = _Matrix(x2, len(s2) == 2 and s2[1] == contracted[0])
        if len(s1) == 1 or len(s2) == 1:
            return call_text(f"{left}.dot", [str(right)], writer.place(step))
        if out[0] not in s1:
            # The result is wanted transposed: B'A' = (AB)', with every transpose a view.
            left, right = right.T, left.T
        summed = writer.shapes[step.operands[0]][s1.index(contracted[0])]
        return _matmul(writer, step, left, right, summed)
    return _product(writer, step, x1, x2)


def _matmul(writer: StepWriter, step: Step, left: _Matrix, right: _Matrix, summed: int) -> str:
    """Write a product of two matrices over an axis of some length."""
    rows, columns = writer.shapes[step.slot]
    function, is_large = writer.function(np.matmul), writer.is_large(step.slot)
    if not is_thin(rows, summed, columns):
        out = writer.new_array(step) if is_large else writer.place(step)
        return call_text(function, [str(left), str(right)], out)
    out = writer.new_array_behind(step) if is_large else None
    return f"{call_text(function, [str(right.T), str(left.T)], out)}.T"


def _product(writer: StepWriter, step: Step, x1: str, x2: str) -> str:
    """Write a contraction as the product of matrices that it is."""
    left, right = (writer.shapes[slot] for slot in step.operands)
    product = product_for(step.params["subscripts"], left, right)
    if product.swap:
        x1, x2, left, right = x2, x1, right, left
    views = [_grouped(writer, step, "left", product.left, x1, left)]
    views += [_grouped(writer, step, "right", product.right, x2, right)]
    function = writer.function(np.dot if product.flat else np.matmul)
    shape = product.shape(left, right)
    is_turned = product.narrowed is not None or product.order is not None
    if writer.is_large(step.slot) and not (product.flat or is_turned):
        # Lines before the expression, as above. The array that is new is the one that others may take over later.
        result = f"v{step.slot}"
        writer.lines.append(f"{result} = {writer.new_array(step)}")
        target = result
        if shape is not None:
            target = f"{result}.reshape({writer.constant(step, 'grouped', product.grouped_shape(shape))})"
        writer.lines.append(call_text(function, views, target))
        return result
    # NumPy may lay out a product of other views in another order than that of the place where it is wanted.
    is_plain = views == [x1, x2] and shape is None and not (product.flat or is_turned)
    text = call_text(function, views, writer.place(step) if is_plain else None)
    if shape is not None:
        text = f"{text}.reshape({writer.constant(step, 'shape', shape)})"
    if product.narrowed is not None:
        text = f"{text}[{writer.constant(step, 'narrowed', product.narrowed)}]"
    return text if product.order is None else f"{text}.transpose({writer.constant(step, 'order', product.order)})"


def _grouped(writer: StepWriter, step: Step, side: str, view: MatrixView, x: str, shape: tuple[int, ...]) -> str:
    """Write an operand as the stack of matrices that a product takes."""
    if view.order is not None:
        x = f"{x}.transpose({writer.constant(step, f'{side}_order', view.order)})"
    if view.widened is not None:
        x = f"{x}[{writer.constant(step, f'{side}_widened', view.widened)}]"
    grouped = view.shape(shape)
    if grouped is not None:
        x = f"{x}.reshape({writer.constant(step, f'{side}_grouped', grouped)})"
    return f"{x}.swapaxes(-1, -2)" if view.flipped else x


def _spread(writer: StepWriter, step: Step, side: str, labels: str, x: str, out: str) -> str:
    """Write the view that lines an operand's axes up with those of the result."""
    if not labels or out.endswith(labels):
        return x
    order = tuple(labels.index(label) for label in out if label in labels)
    index = tuple(slice(None) if label in labels else None for label in out)
    if order != tuple(sorted(order)):
        x = f"{x}.transpose({writer.constant(step, f'{side}_order', order)})"
    return f"{x}[{writer.constant(step, f'{side}_axes', index)}]"


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
