"""Chains whose steps have several plans: a loop that takes one of two ways, or whose sizes differ from step to step.

A `chain.Chain` has one plan, and each step reads the one before in the same way. Here steps are of *kinds*: a kind has
a plan and says which inputs are registers, constants, or the step's own, and which outputs become registers. A register
keeps its value until a step fills it again, so a step may read what was made some steps before. What is wanted of every
step of a plan is stacked up, one row for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._activity import ACTIVITY, INNER, CountedRange, Work
from unspool._autodiff.chain_rules import chain_op, stacked_tensors
from unspool._autodiff.late import late
from unspool._engine.planning import nbytes
from unspool._fragments.call import make_call, output
from unspool._graph import Bundle, origin_scope
from unspool._records import NamedTuple
from unspool._statistics import STATISTICS

if TYPE_CHECKING:
    from unspool._engine.plan import Plan
    from unspool._tensor import Tensor


class StepKind(NamedTuple):
    """What steps of one kind do.

    ``plan`` is the number of their plan. ``read`` has pairs of an input and the register it is, ``constant`` of an
    input and the number of a constant, ``varying`` the inputs that are a step's own, and ``carried`` pairs of an output
    and the register it becomes.
    """

    plan: int
    read: tuple[tuple[int, int], ...]
    constant: tuple[tuple[int, int], ...]
    varying: tuple[int, ...]
    carried: tuple[tuple[int, int], ...]


class MixedChain(NamedTuple):
    """What a chain of steps of several kinds does. ``which`` is the kind of each step.

    The inputs of the node are the constants, and then for each step what varies. Its outputs are outputs of the last
    step of a plan, then stacks of outputs of all steps of a plan; both are pairs of a plan and an output of it.
    """

    plans: tuple[Plan, ...]
    kinds: tuple[StepKind, ...]
    which: bytes
    constants: int
    registers: int
    last: tuple[tuple[int, int], ...]
    stacked: tuple[tuple[int, int], ...]

    @property
    def steps(self) -> int:
        """How many steps there are."""
        return len(self.which)

    @property
    def fixed(self) -> int:
        """How many inputs do not belong to a single step."""
        return self.constants

    @property
    def workspace(self) -> int:
        """Bytes that a step takes, with what is carried past it."""
        return max([plan.peak_bytes for plan in self.plans]) + self.carried_bytes

    @property
    def carried_bytes(self) -> int:
        """Bytes that registers may take."""
        sizes = [0] * self.registers
        for kind in self.kinds:
            for index, register in kind.carried:
                sizes[register] = max(sizes[register], _bytes_of(self.plans[kind.plan], index))
        return sum(sizes)

    def rows(self) -> list[int]:
        """Return how many steps there are of each plan."""
        found = [0] * len(self.plans)
        for number, kind in enumerate(self.kinds):
            found[kind.plan] += self.which.count(number)
        return found

    def of_plans(self) -> list[tuple[Plan, int]]:
        """Return the plans of the steps, and how many steps are of each."""
        return list(zip(self.plans, self.rows(), strict=True))

    def carries(self) -> list[tuple[Plan, int]]:
        """Return the outputs that are carried to other steps, and the plan of each."""
        places = dict.fromkeys([(kind.plan, index) for kind in self.kinds for index, _ in kind.carried])
        return [(self.plans[number], index) for number, index in places]

    def avals(self) -> list[tuple[Any, Any]]:
        """Return shape and dtype of the outputs."""
        plans, rows = self.plans, self.rows()
        single = [(plans[p].output_shapes[i], plans[p].output_dtypes[i]) for p, i in self.last]
        return single + [((rows[p], *plans[p].output_shapes[i]), plans[p].output_dtypes[i]) for p, i in self.stacked]

    def spans(self) -> Iterator[tuple[StepKind, int, int]]:
        """Yield the kind of each step, and from where to where its own inputs are among those of the node."""
        start = self.constants
        for number in self.which:
            kind = self.kinds[number]
            yield kind, start, start + len(kind.varying)
            start += len(kind.varying)

    def operands(self, k: int, inputs: Sequence[Any]) -> tuple[Plan, list[Any]]:
        """Return the plan of a step and what it reads, given the inputs of the node; None for what is carried."""
        kind, start, stop = next(span for i, span in enumerate(self.spans()) if i == k)
        return self.plans[kind.plan], arguments_of(kind, [None] * self.registers, inputs, inputs[start:stop])

    def begin(self, arrays: Sequence[Any]) -> MixedRun:
        """Return a run of the chain, given the constants."""
        return MixedRun(self, arrays)

    def expand(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Return the outputs as those of the calls it stands for."""
        registers: list[Any] = [None] * self.registers
        rows: dict[tuple[int, int], list[Tensor]] = {place: [] for place in self.stacked}
        latest: dict[int, Any] = {}
        for kind, start, stop in self.spans():
            plan = self.plans[kind.plan]
            arguments = tuple(arguments_of(kind, registers, inputs, inputs[start:stop]))
            call = latest[kind.plan] = make_call(plan, arguments, plan.fragment.origins)
            for index, register in kind.carried:
                registers[register] = output(call, index)
            for (number, index), stack in rows.items():
                if number == kind.plan:
                    stack.append(output(call, index))
        return [output(latest[p], i) for p, i in self.last] + [stacked_tensors(rows[place]) for place in self.stacked]

    def passes(self) -> list[bool]:
        """Return which inputs are differentiated through: those that a plan is."""
        passing = [late.passing_inputs(plan) for plan in self.plans]
        flags = [False] * self.constants
        for kind in self.kinds:
            for position, number in kind.constant:
                flags[number] |= position in passing[kind.plan]
        for kind, _, _ in self.spans():
            flags += [position in passing[kind.plan] for position in kind.varying]
        return flags


def arguments_of(kind: StepKind, registers: Sequence[Any], constants: Sequence[Any], own: Sequence[Any]) -> list[Any]:
    """Return what a step reads, in the order of the inputs of its plan."""
    slots = {position: registers[register] for position, register in kind.read}
    slots |= {position: constants[number] for position, number in kind.constant}
    slots |= dict(zip(kind.varying, own, strict=True))
    return [slots[position] for position in range(len(slots))]


def _bytes_of(plan: Plan, index: int) -> int:
    return nbytes(plan.output_shapes[index], plan.output_dtypes[index])


def make_mixed_chain(chain: MixedChain, inputs: tuple[Tensor, ...]) -> Bundle:
    """Return the node of a chain of steps of several kinds."""
    origins = next((plan.fragment.origins for plan in chain.plans if plan.fragment.origins), ())
    with origin_scope() as origin:
        if origins:  # steps that only pass on what arrives have no instructions
            origin.code, origin.lasti = origins[-1]
        STATISTICS.chains += 1
        return _graph.apply_multi(MIXED_CHAIN, *inputs, chain=chain)


# --- running ---------------------------------------------------------------------------------------------------------


class _Runner(NamedTuple):
    """How a step of some kind runs: its plan, the order of its inputs, how many are its own, where its outputs go."""

    run: Callable[..., Any]
    select: Callable[[Sequence[Any]], Sequence[Any]]
    own: int
    plan: int
    carried: tuple[tuple[int, int], ...]
    stacks: tuple[tuple[int, Any], ...]
    last: tuple[tuple[int, int], ...]


class MixedRun:
    """A chain that is being run: in one go, or some steps at a time as their inputs become available."""

    __slots__ = ("_chain", "_given", "_last", "_rows", "_runners", "_spans", "_stacks", "done")

    def __init__(self, chain: MixedChain, constants: Sequence[Any]) -> None:
        rows = chain.rows()
        self._chain = chain
        # Registers, then constants.
        self._given = [*[None] * chain.registers, *constants]
        self._stacks = [
            np.empty((rows[p], *chain.plans[p].output_shapes[i]), chain.plans[p].output_dtypes[i])
            for p, i in chain.stacked
        ]
        self._last: list[Any] = [None] * len(chain.last)
        self._rows = [0] * len(chain.plans)
        self._runners = [self._runner(kind) for kind in chain.kinds]
        self._spans = list(chain.spans())
        self.done = 0
        STATISTICS.kernel_calls += sum([plan.kernels * steps for plan, steps in chain.of_plans()]) - 1

    def _runner(self, kind: StepKind) -> _Runner:
        chain, fixed = self._chain, len(self._given)
        order = arguments_of(kind, range(fixed), range(chain.registers, fixed), range(fixed, fixed + len(kind.varying)))
        return _Runner(
            chain.plans[kind.plan].run,
            itemgetter(*order) if len(order) > 1 else lambda given: [given[i] for i in order],
            len(kind.varying),
            kind.plan,
            kind.carried,
            tuple([(i, self._stacks[at]) for at, (p, i) in enumerate(chain.stacked) if p == kind.plan]),
            tuple([(i, at) for at, (p, i) in enumerate(chain.last) if p == kind.plan]),
        )

    def advance(self, steps: int, varying: Sequence[Any]) -> None:
        """Run some steps, given what varies: the values of each step, one step after the other."""
        numbers: Any = range(self.done, self.done + steps)
        if steps == 1 or not ACTIVITY.lookers:
            self._run(numbers, varying)
        else:
            numbers = CountedRange(numbers, [0])
            with ACTIVITY.doing(Work(INNER, steps, numbers.done)):
                self._run(numbers, varying)
        self.done += steps

    def _run(self, numbers: Any, varying: Sequence[Any]) -> None:
        which, runners, given, rows, latest = self._chain.which, self._runners, self._given, self._rows, self._last
        at = 0
        for k in numbers:
            run, select, own, plan, carried, stacks, last = runners[which[k]]
            found = run(*select((*given, *varying[at : at + own])))
            at += own
            for index, register in carried:
                given[register] = found[index]
            if stacks:
                row = rows[plan]
                for index, stack in stacks:
                    stack[row] = found[index]
                rows[plan] = row + 1
            for index, place in last:
                latest[place] = found[index]

    def results(self) -> tuple[Any, ...]:
        """Return the outputs of the chain, once all steps have run."""
        return (*self._last, *self._stacks)

    @property
    def span(self) -> tuple[int, int]:
        """From where to where the inputs of the next step are among those of the node."""
        _, start, stop = self._spans[self.done]
        return start, stop

    @property
    def nbytes(self) -> int:
        """Bytes of what is stacked up and carried."""
        chain = self._chain
        single = sum([_bytes_of(chain.plans[p], i) for p, i in chain.last])
        return sum([stack.nbytes for stack in self._stacks]) + single + chain.carried_bytes


def _kernel(*arrays: Any, chain: MixedChain) -> tuple[Any, ...]:
    run = chain.begin(arrays[: chain.fixed])
    run.advance(chain.steps, arrays[chain.fixed :])
    return run.results()


MIXED_CHAIN = chain_op("mixed_chain", _kernel, "mixed_chain")
