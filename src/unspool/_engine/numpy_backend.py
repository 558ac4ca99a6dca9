"""The NumPy backend: runs a plan once as it stands, and from then on as generated straight-line Python.

Compiling text costs about as much as a thousand small kernels, so a piece that runs once is interpreted. In the text a
step is one line, most often a NumPy call without a Python frame in between (`numpy_rules`), followed by the end of the
values nobody reads any more. The text depends on the structure alone: parameters are names in it, so plans of one
fragment for many sizes share the compiled code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from types import CodeType
from typing import Any

import numpy as np

from unspool._dtypes import COMPLEX
from unspool._engine.buffers import LARGE, POOL, overwritable
from unspool._engine.fused_sums import ADD_PRODUCT, fuse_sums
from unspool._engine.numpy_rules import RULES
from unspool._engine.planning import Bound, Step, nbytes
from unspool._engine.running_sums import SMALLEST
from unspool._fragments.fragment import Fragment
from unspool._ops.elementwise import ADD
from unspool._ops.leaf import CONSTANT
from unspool._ops.op import Op

Run = Callable[..., tuple[Any, ...]]


def owned(value: Any) -> Any:
    """Return a value fit to be kept: an array, and not a small view that would hold a large one alive."""
    if type(value) is np.ndarray:
        base = value.base
        if base is not None and type(base) is np.ndarray and base.nbytes > 2 * value.nbytes:
            return value.copy(order="K")  # a product of other layout has other bits
        return value
    return tuple([owned(part) for part in value]) if type(value) is tuple else np.asarray(value)


# --- as it stands ----------------------------------------------------------------------------------------------------


def interpret(fragment: Fragment, bound: Bound, arrays: Sequence[Any]) -> tuple[Any, ...]:
    """Run a fragment instruction by instruction: what costs least for a piece that runs once."""
    kept = frozenset(fragment.outputs)
    last = {slot: j for j, instruction in enumerate(fragment.body) for slot in instruction.operands}
    values = list(arrays)
    for j, (op, operands, _) in enumerate(fragment.body):
        value = _call(op, [values[slot] for slot in operands], bound.params[j])
        values.append(owned(value) if len(values) in kept else value)
        for slot in operands:
            if last[slot] == j and slot not in kept:
                values[slot] = None
    return tuple([values[slot] for slot in fragment.outputs])


def _call(op: Op, arguments: Sequence[Any], params: Any) -> Any:
    return params["literal"].array if op is CONSTANT else op.kernel(*arguments, **params)


# --- as generated code -----------------------------------------------------------------------------------------------


def accumulators(fragment: Fragment, bound: Bound, steps: Sequence[Step], outputs: Sequence[int]) -> dict[int, int]:
    """Return the large inputs that are only added to, each with the slot of the sum that ends up as an output.

    A loop that carries such a sum can have it computed in place.
    """
    readers: dict[int, list[Step]] = {}
    for step in steps:
        for slot in step.operands:
            readers.setdefault(slot, []).append(step)
    found: dict[int, int] = {}
    for start in range(len(fragment.dtypes)):
        slot = start
        while slot not in outputs and len(readers.get(slot, ())) == 1:
            step = readers[slot][0]
            same = (bound.shapes[slot], bound.dtypes[slot]) == (bound.shapes[step.slot], bound.dtypes[step.slot])
            if step.once or not same or step.op is not ADD:
                break
            slot = step.slot
        if slot != start and slot in outputs and nbytes(bound.shapes[slot], bound.dtypes[slot]) >= SMALLEST:
            found[start] = slot
    return found


def generate(
    fragment: Fragment, bound: Bound, steps: Sequence[Step], outputs: Sequence[int], in_place: Sequence[int] = ()
) -> Run:
    """Return a function of the input arrays that runs the steps and returns a tuple of arrays.

    ``in_place`` are accumulators that it adds to: it takes and returns a `RunningSum` for each of them.
    """
    names = {"owned": owned, "array": np.array, "asarray": np.asarray, "give": POOL.give}
    names |= {f"v{slot}": value for slot, value in _held(fragment, steps, outputs).items()}
    writer = Writer(fragment, bound, frozenset(outputs), names, frozenset(in_place))
    for step in fuse_sums(steps, bound, outputs, in_place) if in_place else steps:
        if not step.once:
            writer.write(step)
    arguments = ", ".join(f"v{slot}" for slot in range(len(fragment.dtypes)))
    results = "".join(f"v{slot}, " for slot in outputs)
    body = "".join(f"    {line}\n" for line in [*writer.lines, f"return ({results})"])
    made: dict[str, Run] = {}
    exec(_compiled(f"def run({arguments}):\n{body}"), names, made)
    return made["run"]


@lru_cache(maxsize=256)
def _compiled(source: str) -> CodeType:
    return compile(source, "<unspool plan>", "exec")


def clear_caches() -> None:
    """Let go of compiled code and of arrays kept for later; plans that exist keep working."""
    _compiled.cache_clear()
    POOL.clear()


def _held(fragment: Fragment, steps: Sequence[Step], outputs: Sequence[int]) -> dict[int, Any]:
    """Compute what depends on no input, and return the values that runs read."""
    values: dict[int, Any] = {}
    for step in steps:
        if step.once:
            values[step.slot] = owned(_call(step.op, [values[slot] for slot in step.operands], step.params))
    read = {slot for step in steps if not step.once for slot in step.operands} | set(outputs)
    held = {slot: value for slot, value in values.items() if slot in read}
    for value in held.values():
        for array in value if type(value) is tuple else (value,):
            array.setflags(write=False)
    return held


class Writer:
    """Writes steps as lines of Python; ``names`` are the globals of the function they will be in."""

    def __init__(
        self,
        fragment: Fragment,
        bound: Bound,
        outputs: frozenset[int],
        names: dict[str, Any],
        in_place: frozenset[int] = frozenset(),
    ) -> None:
        self.fragment = fragment
        self.shapes, self.dtypes, _ = bound
        self.lines: list[str] = []
        self._bound = bound
        self._outputs = outputs
        self._names = names
        self._in_place = in_place
        self._behind: dict[int, str] = {}  # arrays of which results are views, by slot

    def write(self, step: Step) -> None:
        """Append the lines of a step: its result, then the end of what it was the last to read."""
        if self._add_in_place(step):
            self._bury(step)
            return
        operands = [f"v{slot}.settled()" if slot in self._in_place else f"v{slot}" for slot in step.operands]
        kernel, rule = step.op.kernel, RULES.get(step.op.name)
        text = None
        if isinstance(kernel, np.ufunc):
            text = self.ufunc(kernel, step, operands)
        elif rule is not None:
            text = rule(self, step, *operands)
        if text is None:
            text = self.call(kernel, operands, step.params)
        text = self._fit_to_keep(step, text)
        if (
            self.shapes[step.slot] == ()
            and self.dtypes[step.slot] in COMPLEX
            and not text.startswith(("asarray(", "array("))
        ):
            text = f"asarray({text})"  # NumPy multiplies complex scalars in another way than arrays without axes
        if text != f"v{step.slot}":
            self.lines.append(f"v{step.slot} = {text}")
        self._bury(step)

    def _add_in_place(self, step: Step) -> bool:
        """Append the line that adds to a running sum, if the step does so."""
        total = next((slot for slot in step.operands if slot in self._in_place), None)
        if total is None or step.op not in (ADD, ADD_PRODUCT):
            return False
        terms = list(step.operands)
        terms.remove(total)
        given = self._given([f"v{slot}" for slot in terms], step.params)
        self.lines.append(f"v{step.slot} = v{total}.{step.op.name}({given})")
        self._in_place |= {step.slot}
        return True

    def _fit_to_keep(self, step: Step, text: str) -> str:
        if step.slot not in self._outputs or text.startswith("asarray("):
            return text
        if not step.op.fresh:
            # A copy of one number costs less than to find out whether one is needed.
            return f"owned({text})" if self.shapes[step.slot] else f"array({text})"
        # NumPy returns scalars where a result has no axes.
        return text if self.shapes[step.slot] else f"asarray({text})"

    def _bury(self, step: Step) -> None:
        for slot in step.dying:
            if self.is_large(slot) and slot not in self._behind:
                op = self.fragment.body[slot - len(self.fragment.dtypes)].op
                if not op.view and not op.multi:
                    self.lines.append(f"give(v{slot})")
        if step.dying:
            self.lines.append(f"del {', '.join(f'v{slot}' for slot in step.dying)}")
        for slot in step.dying:
            if slot in self._behind:
                array = self._behind.pop(slot)
                self.lines += [f"give({array})", f"del {array}"]

    # --- what rules use

    def name(self, value: Any) -> str:
        """Return the name under which the generated code finds a value."""
        name = value.__name__ if isinstance(value, np.ufunc) else f"c{len(self._names)}"
        self._names[name] = value
        return name

    def call(self, function: Any, operands: Sequence[str], params: Any) -> str:
        """Return the call of a function, with parameters by keyword."""
        return f"{self.name(function)}({self._given(operands, params)})"

    def _given(self, operands: Sequence[str], params: Any) -> str:
        return ", ".join([*operands, *[f"{key}={self.name(value)}" for key, value in params.items()]])

    def ufunc(self, ufunc: Any, step: Step, operands: Sequence[str]) -> str:
        """Return the call of a ufunc; a large result is written into an array that is no longer needed."""
        if not self.is_large(step.slot):
            return f"{self.name(ufunc)}({', '.join(operands)})"
        spare = overwritable(step, self._bound)
        dying = tuple((step.operands.index(slot), step.operands.count(slot)) for slot in spare)
        given = [ufunc, self.shapes[step.slot], self.dtypes[step.slot], dying]
        return f"{self.name(POOL.fill)}({', '.join([*map(self.name, given), *operands])})"

    def new_array(self, step: Step) -> str:
        """Return what makes an array to write the result of a step into."""
        return f"{self.name(POOL.take)}({self.name(self.shapes[step.slot])}, {self.name(self.dtypes[step.slot])})"

    def new_array_behind(self, step: Step) -> str:
        """Return what makes an array to write the transposed result of a step into, which will be a view of it."""
        array = self._behind[step.slot] = f"b{step.slot}"
        shape, dtype = self.shapes[step.slot][::-1], self.dtypes[step.slot]
        self.lines.append(f"{array} = {self.name(POOL.take)}({self.name(shape)}, {self.name(dtype)})")
        return array

    def held(self, slot: int) -> Any:
        """Return the value of a slot that depends on no input, else ``None``."""
        return self._names.get(f"v{slot}")

    def is_large(self, slot: int) -> bool:
        """Whether a slot is worth a buffer."""
        return nbytes(self.shapes[slot], self.dtypes[slot]) >= LARGE
