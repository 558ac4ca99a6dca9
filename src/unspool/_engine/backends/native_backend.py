"""The native backend: programs and loops in C where they can be, and as generated Python where not.

A native program is made for arrays of certain strides (`native`). Others, and what has no native form, run as the NumPy
backend runs them, with the same bits; that code is generated when it is first needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._engine.backends.base import Backend, Drive, Layout, Lowered, Run, WholeRun
from unspool._engine.backends.numpy_backend import NUMPY, NumpyBackend

if TYPE_CHECKING:
    from unspool._engine.backends.whole_loop import Ends

# The largest value of a loop that runs natively, and all that its temporaries may take. A loop allocates them once.
MOST_IN_LOOPS = 1 << 28

# Layouts of the inputs that a plan has native programs for.
MOST_LAYOUTS = 4


class NativeBackend(NumpyBackend):
    """Runs programs and steps of loops on NumPy's arrays, natively where it can."""

    def compile(self, program: Lowered) -> Run:
        """Return a native program, or generated code where there is none."""
        from unspool._engine.backends.native import compile_program

        others = _OtherLayouts(program)
        made = compile_program(*program, others)
        if made is None:
            return others.generated()
        made.others = others.programs
        return made

    def compile_loop(self, program: Lowered, layout: Layout) -> Drive:
        """Return steps of a loop over a native program, or generated code where there is none."""
        from unspool._engine.backends.numpy_loops import adds_products

        others = _OtherSteps(program, layout)
        found = None if adds_products(program, layout) else _native_steps(program, layout, others)
        return found or others.generated()

    def compile_whole(self, drive: Drive, ends: Ends) -> WholeRun | None:
        """Return all of a loop as one call, if its steps run natively."""
        from unspool._engine.backends.native_loops import NativeDrive

        return drive.whole(ends) if type(drive) is NativeDrive else None


def _native_steps(
    program: Lowered, layout: Layout, fallback: Drive, strides: Sequence[Any] | None = None
) -> Drive | None:
    """Return steps of a loop over a native program for inputs of given strides; ``None`` if there is none."""
    from unspool._engine.backends.native import compile_program
    from unspool._engine.backends.native_loops import native_drive

    body = compile_program(*program, fallback, strides, MOST_IN_LOOPS, is_body=True)
    if body is None:
        return None
    shapes, dtypes, _ = program.bound
    return native_drive(body, layout, [(shapes[slot], dtypes[slot]) for slot in program.outputs], fallback)


class _OtherLayouts:
    """What runs a program on arrays that its native form was not made for: one for their strides, or generated code.

    Native ones are in a list, which the first of them looks through by itself the next time.
    """

    __slots__ = ("_native", "_program", "_run", "programs")

    def __init__(self, program: Lowered) -> None:
        self._program = program
        self._run: Run | None = None
        self._native: dict[Any, Run] = {}
        self.programs: list[Any] = []

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        if any(type(array) is not np.ndarray for array in arrays):
            return self.generated()(*arrays)
        from unspool._engine.backends.native import compile_program

        strides = tuple([array.strides for array in arrays])
        run = self._native.get(strides)
        if run is None:
            run = self.generated()
            if len(self._native) < MOST_LAYOUTS:
                made = compile_program(*self._program, run, strides)
                if made is not None:
                    self.programs.append(made)
                    run = made
                self._native[strides] = run
        return run(*arrays)

    def generated(self) -> Run:
        """Return the program as generated code."""
        run = self._run
        if run is None:
            run = self._run = NUMPY.compile(self._program)
        return run


class _OtherSteps:
    """What makes steps of a loop on arrays that its native form was not made for.

    There is one for the strides of what all steps read. For anything else there is generated code.
    """

    __slots__ = ("_drive", "_given", "_native")

    def __init__(self, program: Lowered, layout: Layout) -> None:
        self._given = program, layout
        self._drive: Drive | None = None
        self._native: dict[Any, Drive] = {}

    def __call__(self, indices: Any, constants: Any, *others: Any) -> tuple[int, bool, list[Any], list[Any], list[Any]]:
        drive = None
        if not all(array.flags.c_contiguous for array in constants):
            drive = self._for_strides(tuple([array.strides for array in constants]))
        return (drive or self.generated())(indices, constants, *others)

    def _for_strides(self, constants: tuple[Any, ...]) -> Drive | None:
        """Return the steps as a native program for what all of them read, if there are few such programs yet."""
        drive = self._native.get(constants)
        if drive is None and len(self._native) < MOST_LAYOUTS:
            program, layout = self._given
            strides = (*constants, *[None] * (len(program.fragment.dtypes) - len(constants)))
            drive = _native_steps(program, layout, self._in_python, strides) or self.generated()
            self._native[constants] = drive
        return drive

    def _in_python(self, *given: Any) -> tuple[int, bool, list[Any], list[Any], list[Any]]:
        return self.generated()(*given)

    def generated(self) -> Drive:
        """Return the steps as generated code."""
        drive = self._drive
        if drive is None:
            drive = self._drive = NUMPY.compile_loop(*self._given)
        return drive


# What plans run on if nothing else is said. It has no state.
NATIVE: Backend = NativeBackend()
