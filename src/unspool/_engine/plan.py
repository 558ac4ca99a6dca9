"""A plan: a fragment with concrete sizes, as a linear list of instructions, and the function that runs it.

A plan is data: ops, slots, parameters, last uses, buffers. Nothing in it is a Python closure, so any backend can
run it (`backend`). It is interpreted the first time, since most pieces of a program run once, and compiled when it is
run again.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any
from weakref import ref

from unspool import _core
from unspool._engine.backends.base import Backend, Lowered, Run
from unspool._engine.backends.buffers import Assignment, assign
from unspool._engine.backends.native_backend import NATIVE
from unspool._engine.costs import nbytes, runs_kernel
from unspool._engine.planning import Bound, Step, bind, lower, slots_computed_once
from unspool._fragments.fragment import Fragment
from unspool._ops.leaf import CONSTANT

if TYPE_CHECKING:
    from unspool._graph import Params
    from unspool._ops.op import Op

_next_id = itertools.count().__next__


class Plan(_core.PlanBase):
    """A fragment bound to sizes, ready to run; made by `make_plan`.

    Attributes
    ----------
    id : int
        Unique; later plans have larger ones.
    fragment : Fragment
    backend : Backend
        What runs it.
    input_shapes : tuple of tuple of int
    shapes, dtypes : tuple
        Of every slot, inputs first; tuples of them for slots that hold the outputs of an op with several.
    params : tuple of mapping
        Parameters of every instruction of the fragment, with numbers in place of symbolic sizes.
    output_shapes, output_dtypes : tuple
    recipes : tuple
        Of each output: the op, the parameters and the position of the instruction that makes it; None for one that is
        an input or a constant.
    kernels : int
        Kernel calls of one run.
    output_bytes : int
        Bytes of all outputs, each slot once.
    seconds : float
        How long its fastest run took, of those that were timed; 0 before one was. A run that waited for the processor
        says nothing of what a step costs.
    derivatives : dict
        Plans that were derived from this one, for whoever derives them.
    form : tuple or None
        What files have of it, for whoever writes them.
    run : callable
        ``run(*arrays)`` returns a tuple with one array per output. It never writes into its arguments, and what it
        returned is never written to afterwards.
    """

    __slots__ = (
        "__weakref__",
        "_lowered",
        "_memory",
        "backend",
        "derivatives",
        "dtypes",
        "form",
        "fragment",
        "input_shapes",
        "kernels",
        "output_bytes",
        "params",
        "recipes",
        "shapes",
    )

    def __init__(
        self, fragment: Fragment, input_shapes: tuple[tuple[int, ...], ...], bound: Bound, backend: Backend
    ) -> None:
        self.id = _next_id()
        self.fragment = fragment
        self.backend = backend
        self.input_shapes = input_shapes
        self.shapes, self.dtypes, self.params = bound
        self.output_shapes = tuple([bound.shapes[slot] for slot in fragment.outputs])
        self.output_dtypes = tuple([bound.dtypes[slot] for slot in fragment.outputs])
        self.recipes = tuple([_recipe(fragment, bound, slot) for slot in fragment.outputs])
        self.output_bytes = sum([nbytes(bound.shapes[s], bound.dtypes[s]) for s in set(fragment.outputs)])
        self.is_simple = all(_is_simple(i.op, p) for i, p in zip(fragment.body, bound.params, strict=True))
        self.kernels = _count_kernels(fragment, bound)
        self.derivatives: dict[Any, Any] = {}
        self.form: Any = None
        self._lowered: Lowered | None = None
        self._memory: Assignment | None = None
        self.run = _FirstRuns(self, bound)

    @property
    def lowered(self) -> Lowered:
        """The plan as a backend takes it."""
        if self._lowered is None:
            bound = Bound(self.shapes, self.dtypes, self.params)
            self._lowered = Lowered(self.fragment, bound, *lower(self.fragment, bound))
        return self._lowered

    @property
    def memory(self) -> Assignment:
        """Where results lie, and how many bytes that takes."""
        if self._memory is None:
            _, bound, steps, outputs = self.lowered
            self._memory = assign(steps, outputs, bound)
        return self._memory

    @property
    def instructions(self) -> tuple[Step, ...]:
        """The plan as data: its steps in order."""
        return self.lowered.steps

    @property
    def outputs(self) -> tuple[int, ...]:
        """The slots of the outputs, as the instructions name them."""
        return self.lowered.outputs

    @property
    def buffers(self) -> tuple[int | None, ...]:
        """The number of the buffer that each instruction's result lies in; ``None``: in no buffer of its own."""
        return self.memory.buffers

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the buffers that hold temporaries."""
        return self.memory.buffer_bytes

    @property
    def peak_bytes(self) -> int:
        """The most bytes that temporaries and outputs take at once."""
        # A reshape is a view, but of what is not contiguous a copy.
        return max(self.output_bytes, self.memory.peak_bytes)

    @property
    def source(self) -> str:
        """What runs the plan, as text.

        Examples
        --------
        >>> import unspool as us
        >>> from unspool._engine.plan import make_plan
        >>> from unspool._fragments.fragment import capture
        >>> x = us.tensor([1.0, 2.0])
        >>> print(make_plan(capture([x], [us.sum(x * x)]).fragment, ((2,),)).source)
        def run(v0):
            v1 = multiply(v0, v0)
            v2 = asarray(add_reduce(v1, sum_axis_2))
            del v1
            return (v2,)
        """
        return self.backend.source(self.lowered)

    def prepare(self) -> None:
        """Generate the code now: it is known that the plan will run more than once."""
        if type(self.run) is _FirstRuns:
            self.run.compile()

    def __repr__(self) -> str:
        shapes = ", ".join(map(str, self.input_shapes))
        return f"<Plan {self.id}: {self.kernels} kernel calls on inputs of shapes {shapes}>"

    def show(self) -> str:
        """Return a table of the instructions, where their results lie, and the memory a run takes.

        Examples
        --------
        >>> import unspool as us
        >>> from unspool._engine.plan import make_plan
        >>> from unspool._fragments.fragment import capture
        >>> x = us.tensor([1.0, 2.0])
        >>> y = us.sum(x * x)
        >>> print(make_plan(capture([x], [y]).fragment, ((2,),)).show())  # doctest: +ELLIPSIS
        plan ... of fragment ...: 2 kernel calls
        slot  op        reads  shape  dtype    bytes  buffer  notes
        0     input            (2,)   float64     16
        1     multiply  0 0    (2,)   float64     16  0
        2     sum       1      ()     float64      8  1       axis=(0,) keepdims=False; last use of 1
        outputs: 2
        buffers: 2, 16 bytes of temporaries, peak 24 bytes
        """
        return "\n".join(_table(self))


def make_plan(fragment: Fragment, input_shapes: tuple[tuple[int, ...], ...], backend: Backend = NATIVE) -> Plan:
    """Bind a fragment to the shapes of its inputs.

    Raises
    ------
    UnspoolError
        If the shapes do not fit: `SizeContradictionError` for symbolic sizes that would need two values, the error of
        the op for shapes that it does not take; both with the user's line.
    """
    shapes = tuple([tuple(shape) for shape in input_shapes])
    return Plan(fragment, shapes, bind(fragment, shapes), backend)


class _FirstRuns:
    """What a plan runs by until it is compiled: its first run is interpreted, the next one compiles it."""

    __slots__ = ("_backend", "_bound", "_compiled", "_fragment", "_has_run", "_plan")

    def __init__(self, plan: Plan, bound: Bound) -> None:
        self._fragment, self._bound, self._backend = plan.fragment, bound, plan.backend
        self._plan = ref(plan)  # which refers to this
        self._has_run = False
        self._compiled: Run | None = None

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        if not self._has_run:
            self._has_run = True
            return self._backend.interpret(self._fragment, self._bound, arrays)
        return self.compile()(*arrays)

    def compile(self) -> Run:
        """Return the compiled function; from now on the plan runs by it."""
        compiled = self._compiled
        if compiled is None:
            # Two threads may both get here; either function will do.
            plan, bound = self._plan(), self._bound
            lowered = Lowered(self._fragment, bound, *lower(self._fragment, bound)) if plan is None else plan.lowered
            compiled = self._compiled = self._backend.compile(lowered)
            if plan is not None:
                plan.run = compiled
        return compiled


def _recipe(fragment: Fragment, bound: Bound, slot: int) -> tuple[Op, Params, int] | None:
    position = slot - len(fragment.dtypes)
    if position < 0 or (op := fragment.body[position].op) is CONSTANT:
        return None
    return op, bound.params[position], position


def _is_simple(op: Op, params: Params) -> bool:
    return op is CONSTANT or _core.are_simple(op, params)


def _count_kernels(fragment: Fragment, bound: Bound) -> int:
    first = len(fragment.dtypes)
    once = slots_computed_once(fragment, bound)
    return sum(runs_kernel(op) and slot not in once for slot, (op, _, _) in enumerate(fragment.body, start=first))


# --- showing ---------------------------------------------------------------------------------------------------------


_HEADINGS = ("slot", "op", "reads", "shape", "dtype", "bytes", "buffer", "notes")


def _table(plan: Plan) -> list[str]:
    lowered, memory = plan.lowered, plan.memory
    rows = [_HEADINGS]
    for slot, (shape, dtype) in enumerate(zip(plan.input_shapes, plan.fragment.dtypes, strict=True)):
        rows.append((str(slot), "input", "", str(shape), str(dtype), f"{nbytes(shape, dtype):,}", "", ""))
    home = {step.slot: buffer for step, buffer in zip(lowered.steps, memory.buffers, strict=True)}
    for step in lowered.steps:
        shape, dtype = plan.shapes[step.slot], plan.dtypes[step.slot]
        where = "" if home[step.slot] is None else str(home[step.slot])
        reads = " ".join(map(str, step.operands))
        kinds = " ".join(map(str, dtype)) if isinstance(dtype, tuple) else str(dtype)
        size = f"{nbytes(shape, dtype):,}"
        rows.append((str(step.slot), step.op.name, reads, str(shape), kinds, size, where, _notes(step, home)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    lines = [_aligned(row, widths) for row in rows]
    return [
        f"plan {plan.id} of fragment {plan.fragment.id}: {plan.kernels} kernel calls",
        *lines,
        f"outputs: {' '.join(map(str, lowered.outputs))}",
        f"buffers: {len(memory.sizes)}, {memory.buffer_bytes:,} bytes of temporaries, peak {memory.peak_bytes:,} bytes",
    ]


def _aligned(row: tuple[str, ...], widths: list[int]) -> str:
    cells = [
        cell.rjust(width) if heading == "bytes" else cell.ljust(width)
        for cell, width, heading in zip(row, widths, _HEADINGS, strict=True)
    ]
    return "  ".join(cells).rstrip()


def _notes(step: Step, home: dict[int, int | None]) -> str:
    notes = []
    if step.params:
        notes.append(" ".join(f"{key}={_short(value)}" for key, value in step.params.items()))
    if step.once:
        notes.append("once")
    over = [slot for slot in step.dying if home[slot] is not None and home[slot] == home[step.slot]]
    if over and not step.op.view:
        notes.append(f"over {over[0]}")
    if step.dying:
        notes.append(f"last use of {' '.join(map(str, step.dying))}")
    return "; ".join(notes)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"


_WIDEST = 40
