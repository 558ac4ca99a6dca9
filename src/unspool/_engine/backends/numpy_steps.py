"""Steps of a program as lines of Python that call NumPy.

A step is one line, most often a NumPy call without a Python frame in between (`numpy_rules`), followed by the end of
the values nobody reads any more. Slot 5 is the variable ``v5``. What is known beforehand is a constant whose name says
which op it belongs to: ``sum_axis_5`` is the axis of the sum that fills slot 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unspool._dtypes import COMPLEX
from unspool._engine.backends.base import Lowered
from unspool._engine.backends.buffers import LARGE, POOL, overwritable
from unspool._engine.backends.generated import FunctionWriter
from unspool._engine.backends.numpy_rules import RULES, call_text
from unspool._engine.backends.values import owned
from unspool._engine.costs import nbytes
from unspool._engine.planning import Step
from unspool._ops.elementwise.declare import OfArrays


class StepWriter:
    """Writes the steps of a program as lines of a function.

    Parameters
    ----------
    program : Lowered
    function : FunctionWriter
        What the lines will be in: it has the names of constants.
    held : mapping
        Values that depend on no input, by slot.
    kept : collection of int
        The slots of the outputs, whose values have to be fit to be kept.

    Attributes
    ----------
    lines : list of str
    shapes, dtypes : tuple
        Of every slot.
    """

    def __init__(
        self,
        program: Lowered,
        function: FunctionWriter,
        held: Mapping[int, Any],
        kept: frozenset[int] = frozenset(),
    ) -> None:
        self.shapes, self.dtypes, _ = program.bound
        self.lines: list[str] = []
        self._program = program
        self._function = function
        self._held = held
        self._kept = kept
        self._arrays: set[int] = set()  # slots without axes whose values are arrays and not numbers
        self._behind: dict[int, str] = {}  # arrays of which results are views, by slot
        function.bind(owned=owned, array=np.array, asarray=np.asarray)
        function.bind(give=POOL.give, take=POOL.take, fill=POOL.fill)

    def write(self, step: Step) -> None:
        """Append the lines of a step: its result, then the end of what it was the last to read."""
        if not self.add_in_place(step):
            result, text = f"v{step.slot}", self.finished(step, self.expression(step))
            if text != result:  # else lines that were written on the way have assigned it
                self.lines.append(f"{result} = {text}")
        for slot in step.dying:
            if self.is_large(slot) and slot not in self._behind and self._is_new(slot):
                self.lines.append(f"give(v{slot})")
        if step.dying:
            self.lines.append(f"del {', '.join([f'v{slot}' for slot in step.dying])}")
        for slot in step.dying if self._behind else ():
            array = self._behind.pop(slot, None)
            if array is not None:
                self.lines += [f"give({array})", f"del {array}"]

    def _is_new(self, slot: int) -> bool:
        """Whether the value of a slot is one array, and none that others may see."""
        fragment = self._program.fragment
        op = fragment.body[slot - len(fragment.dtypes)].op
        return not op.view and not op.multi

    def add_in_place(self, step: Step) -> bool:
        """Append the line that adds to a running sum, if the step does so."""
        return False

    def expression(self, step: Step) -> str:
        """Return the expression for the result of a step; lines that it needs are written before."""
        operands = [self.operand(slot) for slot in step.operands]
        kernel = step.op.kernel
        ufunc = kernel.ufunc if type(kernel) is OfArrays else kernel
        if isinstance(ufunc, np.ufunc):
            place = self.place(step)
            if place is not None:
                return call_text(self.function(ufunc), operands, place)
            if ufunc is kernel or self.is_large(step.slot):
                return self.ufunc(ufunc, step, operands)
        rule = RULES.get(step.op.name)
        text = None if rule is None else rule(self, step, *operands)
        return self.kernel(step, operands) if text is None else text

    def operand(self, slot: int) -> str:
        """Return the text for the value of a slot as NumPy's functions take it."""
        return f"v{slot}"

    def place(self, step: Step) -> str | None:
        """Return the array that the result of a step is to be computed in; ``None``: in one of its own."""
        return None

    def finished(self, step: Step, text: str) -> str:
        """Return the expression for a result as others may read it, and whoever runs the program may keep it."""
        is_kept, has_axes = step.slot in self._kept, self.shapes[step.slot] != ()
        if step.slot in self._arrays:
            return text
        if is_kept and not step.op.fresh:
            # A copy of one number costs less than to find out whether one is needed.
            return f"owned({text})" if has_axes else f"array({text})"
        # NumPy returns scalars where a result has no axes, and multiplies complex ones in another way than arrays.
        is_array = has_axes or not (is_kept or self.dtypes[step.slot] in COMPLEX)
        return text if is_array else f"asarray({text})"

    # --- what rules use

    def constant(self, step: Step, what: str, value: Any) -> str:
        """Return the name of a value that belongs to a step."""
        return self._function.constant(f"{step.op.name}_{what}_{step.slot}", value)

    def param(self, step: Step, key: str) -> str:
        """Return the name of a parameter of a step."""
        return self.constant(step, key, step.params[key])

    def function(self, value: Any) -> str:
        """Return the name of a function."""
        return self._function.function(value)

    def method(self, ufunc: Any, name: str) -> str:
        """Return the name of a method of a ufunc."""
        return self._function.constant(f"{ufunc.__name__}_{name}", getattr(ufunc, name))

    def kernel(self, step: Step, operands: Sequence[str]) -> str:
        """Return the call of an op's own kernel."""
        function = self._function.constant(f"{step.op.name}_kernel", step.op.kernel)
        return call_text(function, self.arguments(step, operands))

    def arguments(self, step: Step, operands: Sequence[str]) -> list[str]:
        """Return operands, and the parameters of a step by keyword."""
        return [*operands, *[f"{key}={self.param(step, key)}" for key in step.params]]

    def ufunc(self, ufunc: Any, step: Step, operands: Sequence[str]) -> str:
        """Return the call of a ufunc; a large result is written into an array that is no longer needed."""
        if not self.is_large(step.slot):
            return call_text(self.function(ufunc), operands)
        spare = overwritable(step, self._program.bound)
        dying = tuple((step.operands.index(slot), step.operands.count(slot)) for slot in spare)
        given = [self.function(ufunc), *self._kind(step, self.shapes[step.slot]), self.constant(step, "dying", dying)]
        return call_text("fill", [*given, *operands])

    def number(self, step: Step, text: str) -> str:
        """Return the expression for a result without axes that is computed as a number of Python's."""
        self._arrays.add(step.slot)
        return f"asarray({text})"  # and not a NumPy scalar, which ufuncs take longer to read

    def new_array(self, step: Step) -> str:
        """Return what makes an array to write the result of a step into."""
        return call_text("take", self._kind(step, self.shapes[step.slot]))

    def new_array_behind(self, step: Step) -> str:
        """Return what makes an array to write the transposed result of a step into, which will be a view of it."""
        array = self._behind[step.slot] = f"b{step.slot}"
        self.lines.append(f"{array} = {call_text('take', self._kind(step, self.shapes[step.slot][::-1]))}")
        return array

    def _kind(self, step: Step, shape: tuple[int, ...]) -> list[str]:
        return [self.constant(step, "shape", shape), self.constant(step, "dtype", self.dtypes[step.slot])]

    def held(self, slot: int) -> Any:
        """Return the value of a slot that depends on no input, else ``None``."""
        return self._held.get(slot)

    def is_large(self, slot: int) -> bool:
        """Whether a slot is worth a buffer."""
        return nbytes(self.shapes[slot], self.dtypes[slot]) >= LARGE
