"""The NumPy backend: programs and loops as generated Python that calls NumPy.

Compiling text costs about as much as a thousand small kernels, so a program that runs once is interpreted. From then on
it is straight-line Python (`numpy_steps`), and a loop is that inside a ``for`` (`numpy_loops`). The text depends on the
structure alone: parameters are names in it, so one program for many sizes is compiled once (`generated`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unspool._activity import ACTIVITY
from unspool._engine.backends.base import Backend, Drive, Layout, Lowered, Run
from unspool._engine.backends.buffers import aligned, clear_pools, copied, dense, new_array
from unspool._engine.backends.running_sums import RunningSum, is_worth, nothing, settled
from unspool._engine.backends.values import call_kernel, held_values, owned
from unspool._engine.planning import Bound
from unspool._fragments.fragment import Fragment
from unspool._ops.leaf import CONSTANT

__all__ = ["NUMPY", "NumpyBackend", "clear_caches", "owned"]


class NumpyBackend(Backend):
    """Runs programs and steps of loops on NumPy's arrays."""

    # --- programs

    def interpret(self, fragment: Fragment, bound: Bound, arrays: Sequence[Any]) -> tuple[Any, ...]:
        """Run a program op by op."""
        kept = frozenset(fragment.outputs)
        last = {slot: j for j, instruction in enumerate(fragment.body) for slot in instruction.operands}
        values = list(arrays)
        timer = ACTIVITY.timer
        for j, (op, operands, _) in enumerate(fragment.body):
            given, params = [values[slot] for slot in operands], bound.params[j]
            if timer is None or op is CONSTANT:
                value = call_kernel(op, given, params)
            else:
                value = timer.run(op, fragment.origins[j], j in fragment.swept, op.kernel, given, params)
            values.append(owned(value) if len(values) in kept else value)
            for slot in operands:
                if last[slot] == j and slot not in kept:
                    values[slot] = None
        return tuple([values[slot] for slot in fragment.outputs])

    def compile(self, program: Lowered) -> Run:
        """Return a program as straight-line code."""
        from unspool._engine.backends.generated import FunctionWriter
        from unspool._engine.backends.numpy_steps import StepWriter

        fragment, bound, steps, outputs = program
        held = held_values(program)
        function = FunctionWriter("run", [f"v{slot}" for slot in range(len(fragment.dtypes))], local="vbpt")
        function.tell(fragment, bound)
        function.bind(**{f"v{slot}": value for slot, value in held.items()})
        writer = StepWriter(program, function, held, frozenset(outputs))
        for step in steps:
            if not step.once:
                writer.write(step)
        results = ", ".join([f"v{slot}" for slot in outputs])
        function.write(*writer.lines, f"return ({results},)" if len(outputs) == 1 else f"return ({results})")
        run: Run = function.compile("plan", fragment.origins)
        return run

    def compile_loop(self, program: Lowered, layout: Layout) -> Drive:
        """Return steps of a loop as one function."""
        from unspool._engine.backends.numpy_loops import compile_loop

        return compile_loop(program, layout)

    def source(self, program: Lowered, layout: Layout | None = None) -> str:
        """Return the text of the generated function."""
        from unspool._engine.backends.generated import source_of

        return source_of(NUMPY.compile(program) if layout is None else NUMPY.compile_loop(program, layout))

    # --- arrays

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return a new array with arbitrary contents."""
        return new_array(shape, dtype)

    def copy(self, array: Any) -> Any:
        """Return an array of its own; one without axes for a number."""
        return copied(array) if type(array) is np.ndarray else np.array(array)

    def owned(self, value: Any) -> Any:
        """Return a value fit to be kept."""
        return owned(value)

    def nbytes(self, value: Any) -> int:
        """Return how many bytes a value takes."""
        return sum(part.nbytes for part in value) if type(value) is tuple else int(value.nbytes)

    def invariant(self, array: Any) -> Any:
        """Return an array that begins where NumPy's do, or a number of NumPy's, which costs less, without axes."""
        if not array.shape:
            return array[()]
        return array if array.flags.owndata else aligned(array)

    def carried(self, array: Any) -> Any:
        """Return the same without gaps: as a step leaves it, so that a first state is no other case."""
        return dense(array) if array.shape else array[()]

    def new_sum(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return nothing, as a number where it has no axes."""
        empty = nothing(shape, dtype)
        return RunningSum(empty) if is_worth(shape, dtype) else empty[()]

    def settled(self, total: Any) -> Any:
        """Return the array of a sum."""
        return np.asarray(settled(total))


# It has no state.
NUMPY: Backend = NumpyBackend()


def clear_caches() -> None:
    """Forget compiled code, and arrays kept for later; plans that exist keep working."""
    from unspool._engine.backends.generated import clear_texts

    clear_texts()
    clear_pools()
