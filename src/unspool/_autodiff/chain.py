"""The gradient of a loop is a loop: derivative calls that follow each other become one node.

While a sweep walks back through the calls of a loop it would place one derivative call per step. Instead it notes a
`Step`: a derived plan and its inputs, some of which are `Pending`, outputs of earlier steps. Only when a tensor is
needed are the steps made into nodes. Steps of one plan, each reading what the one before it gave in the same way, are a
*chain*: one node whose kernel runs the plan once per step, carries what is carried, and writes what is wanted of every
step into stacked arrays. Other steps become calls.

A chain is differentiated by expanding it into the calls it stands for, which form chains again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _core, _graph
from unspool._activity import ACTIVITY, INNER, CountedRange, Work
from unspool._autodiff.late import late
from unspool._core import Pending, Step
from unspool._engine.default import default_engine
from unspool._engine.planning import nbytes
from unspool._fragments.call import make_call, output
from unspool._graph import Bundle, Node, intern_bundle, origin_scope
from unspool._ops import indexing, reduction
from unspool._ops.batching import rule_above
from unspool._ops.identity import alias
from unspool._ops.layout import concat, reshape
from unspool._ops.op import PART, STRUCTURE, JointRule, Op
from unspool._records import NamedTuple
from unspool._statistics import STATISTICS

if TYPE_CHECKING:
    from unspool._engine.plan import Plan
    from unspool._tensor import Tensor

# Fewer steps than this are placed as calls.
SHORTEST = 4

# More steps than this are placed as several chains, and so are those that stack up more bytes than this, unless they
# are few: what a chain holds stays small beside what the loop took, and products of stacks are multiplied in blocks
# that depend on sizes alone, whatever the memory.
LONGEST = 256
_LARGEST_STACK = 1 << 16
_FEW = 16


def note_step(plan: Plan, inputs: Sequence[Tensor | Pending]) -> Step:
    """Note a derivative call."""
    return _core.step(plan, list(inputs))


class Placed:
    """Where steps have their outputs now: one step at a call, or the steps of a chain.

    ``last`` has the outputs of the last step of a chain, ``stacks`` those of all its steps: for each the part it is.
    ``is_small`` tells whether all the stacks may be copied.
    """

    __slots__ = ("_parts", "is_small", "last", "length", "source", "stacks")

    def __init__(
        self, source: Node, length: int, last: dict[int, int], stacks: dict[int, int], is_small: bool = False
    ) -> None:
        self.source = source
        self.length = length
        self.last = last
        self.stacks = stacks
        self.is_small = is_small
        self._parts: dict[int, Tensor] = {}

    def part(self, index: int) -> Tensor:
        """Return a part of a chain."""
        found = self._parts.get(index)
        if found is None:
            found = self._parts[index] = _graph.apply(PART, self.source, index=index)
        return found


def as_tensor(value: Any) -> Tensor:
    """Return a tensor for a contribution: itself, or the output of a step, which is placed if it was not."""
    if type(value) is not Pending:
        return value  # type: ignore[no-any-return]
    step, index = value.step, value.index
    if step.placed is None:
        place_steps(value)
    placed: Any = step.placed
    if not placed.length:
        return output(placed.source, index)
    position = step.position
    if position == placed.length - 1 and index in placed.last:
        return placed.part(placed.last[index])  # type: ignore[no-any-return]
    return indexing.getitem(placed.part(placed.stacks[index]), position)


def stack_of(first: Pending, count: int) -> Tensor:
    """Return so many consecutive outputs of a chain along a new first axis: they are stacked already."""
    placed: Any = first.step.placed
    whole: Tensor = placed.part(placed.stacks[first.index])
    position = first.step.position
    return whole if whole.shape[0] == count else whole[position : position + count]


def add_picked(before: Tensor | None, values: Sequence[Pending]) -> Tensor:
    """Return the sum of some outputs of one chain, rows of stacks, added one after the other to what came before."""
    placed: Any = values[0].step.placed
    # In their order, so that all sums over a chain pick from the same.
    indices = sorted({value.index for value in values})
    first = {index: number * placed.length for number, index in enumerate(indices)}
    positions = np.array([first[value.index] + value.step.position for value in values])
    wholes = [placed.part(placed.stacks[index]) for index in indices]
    rows = indexing.getitem(wholes[0] if len(wholes) == 1 else concat(wholes, axis=0), positions)
    if before is not None:
        rows = concat([reshape(before, (1, *before.shape)), rows], axis=0)
    return indexing.getitem(reduction.cumsum(rows, axis=0), -1)


def youngest(values: Sequence[Any]) -> Any:
    """Return the output of the latest step among some values; placing it first lets all before it form chains."""
    pending = [v for v in values if type(v) is Pending and v.step.placed is None]
    return max(pending, key=lambda p: p.step.number) if pending else None


# --- placing steps ---------------------------------------------------------------------------------------------------


def place_steps(last: Pending) -> None:
    """Make nodes of a step and of all it depends on that are not nodes yet."""
    for run, wiring in _core.runs(last.step, LONGEST):
        _place_run(run, wiring)


def _place_run(run: list[Step], wiring: tuple[tuple[int, int], ...]) -> None:
    if len(run) < SHORTEST:
        for step in run:
            inputs = tuple([as_tensor(value) for value in step.inputs])
            _core.settle([step], Placed(make_call(step.plan, inputs, step.plan.fragment.origins), 0, {}, {}))
        return
    stacked = tuple(sorted(_core.needed(run)))
    length = len(run) if len(run) <= _FEW else _longest(run[0].plan, stacked)
    for first in range(0, len(run), length):
        _place_chain(run[first : first + length], wiring, stacked)


def _longest(plan: Plan, stacked: Sequence[int]) -> int:
    """Return how many steps a chain may have that stacks up some of the outputs of each."""
    return min(LONGEST, max(_FEW, _LARGEST_STACK // max(1, _nbytes(plan, stacked))))


def _nbytes(plan: Plan, outputs: Sequence[int]) -> int:
    return sum([nbytes(plan.output_shapes[i], plan.output_dtypes[i]) for i in outputs])


def _place_chain(run: list[Step], wiring: tuple[tuple[int, int], ...], stacked: tuple[int, ...]) -> None:
    plan = run[0].plan
    made = run[-1].made
    last = tuple([i for i in range(len(plan.output_shapes)) if i in made])
    design = _design(plan, len(run), wiring, _core.shared(run), last, stacked)
    entering = _core.read_by_each(run[:1], design.first, as_tensor)
    entering += _core.read_by_each(run, design.varying, as_tensor)
    node = make_chain(design, tuple(entering))
    _core.settle(run, Placed(node, len(run), design.last, design.stacks, design.is_small))


class _Design(NamedTuple):
    """What chains that are alike have in common.

    ``first`` are the inputs that a chain reads of its first step, ``varying`` those of each. ``last`` and ``stacks``
    are as in `Placed`.
    """

    params: dict[str, Chain]
    key: tuple[Any, ...]
    shapes: tuple[Any, ...]
    dtypes: tuple[Any, ...]
    first: tuple[int, ...]
    varying: tuple[int, ...]
    last: dict[int, int]
    stacks: dict[int, int]
    is_small: bool


def _design(
    plan: Plan,
    steps: int,
    wiring: tuple[tuple[int, int], ...],
    shared: tuple[bool, ...],
    last: tuple[int, ...],
    stacked: tuple[int, ...],
) -> _Design:
    """Return the design of a chain. A loop that takes one way or another has many short ones that are alike."""
    known = "chain", steps, wiring, shared, last, stacked
    found: _Design | None = plan.derivatives.get(known)
    if found is None:
        carried = tuple([position for position, _ in wiring])
        constant = tuple([i for i, same in enumerate(shared) if same and i not in carried])
        varying = tuple([i for i, same in enumerate(shared) if not same and i not in carried])
        chain = Chain(plan, steps, wiring, constant, varying, last, stacked)
        params = {"chain": chain}
        shapes, dtypes = zip(*chain.avals(), strict=True)
        found = plan.derivatives[known] = _Design(
            params,
            tuple(params.items()),
            shapes,
            dtypes,
            (*carried, *constant),
            varying,
            {index: i for i, index in enumerate(last)},
            {index: len(last) + i for i, index in enumerate(stacked)},
            steps * _nbytes(plan, stacked) <= _LARGEST_STACK,
        )
    return found


# --- the node --------------------------------------------------------------------------------------------------------


class Chain(NamedTuple):
    """What a chain does: which plan, how often, and how its inputs and outputs are wired.

    The inputs of the node are the first values of what is carried, the constants, and then for each step what varies.
    Its outputs are outputs of the last step, then stacks of outputs of all steps.
    """

    plan: Plan
    steps: int
    carried: tuple[tuple[int, int], ...]
    constant: tuple[int, ...]
    varying: tuple[int, ...]
    last: tuple[int, ...]
    stacked: tuple[int, ...]

    def avals(self) -> list[tuple[Any, Any]]:
        """Return shape and dtype of the outputs."""
        shapes, dtypes = self.plan.output_shapes, self.plan.output_dtypes
        single = [(shapes[i], dtypes[i]) for i in self.last]
        return single + [((self.steps, *shapes[i]), dtypes[i]) for i in self.stacked]

    def begin(self, arrays: Sequence[Any]) -> ChainRun:
        """Return a run of the chain, given the first values of what is carried, and the constants."""
        return ChainRun(self, arrays)


def make_chain(design: _Design, inputs: tuple[Tensor, ...]) -> Bundle:
    """Return the node of a chain."""
    origins = design.params["chain"].plan.fragment.origins
    STATISTICS.chains += 1
    found: Any = _graph.find(CHAIN, inputs, design.key)
    if found is None:
        with origin_scope() as origin:
            if origins:  # a step that only passes on what arrives has no instructions
                origin.code, origin.lasti = origins[-1]
            found = intern_bundle(CHAIN, inputs, design.params, design.shapes, design.dtypes, design.key)
    return found  # type: ignore[no-any-return]


def _kernel(*arrays: Any, chain: Chain) -> tuple[Any, ...]:
    fixed = len(chain.carried) + len(chain.constant)
    run = chain.begin(arrays[:fixed])
    run.advance(chain.steps, arrays[fixed:])
    return run.results()


class ChainRun:
    """A chain that is being run: in one go, or some steps at a time as their inputs become available."""

    __slots__ = ("_carry", "_chain", "_constants", "_last", "_loop", "_run", "_stacks", "done")

    def __init__(self, chain: Chain, arrays: Sequence[Any]) -> None:
        plan = chain.plan
        self._chain = chain
        self._stacks = [np.empty((chain.steps, *plan.output_shapes[i]), plan.output_dtypes[i]) for i in chain.stacked]
        self._carry = list(arrays[: len(chain.carried)])
        self._constants = list(arrays[len(chain.carried) :])
        self._last: tuple[Any, ...] = ()
        self.done = 0
        STATISTICS.kernel_calls += chain.steps * plan.kernels - 1
        sums, run_in_place = plan.run_in_place()
        summed = [i for i, (position, source) in enumerate(chain.carried) if sums.get(position) == source]
        self._run = plan.run
        if summed and len(summed) == len(sums) and not set(sums.values()) & set(chain.stacked):
            from unspool._engine.running_sums import RunningSum

            # What is only added to is added to in place, once the first value is the chain's own.
            for i in summed:
                self._carry[i] = RunningSum(np.array(self._carry[i]))
            self._run = run_in_place
        wiring = (chain.carried, chain.constant, chain.varying, chain.last, chain.stacked, len(plan.output_shapes))
        self._loop = _loop(*wiring)

    def advance(self, steps: int, varying: Sequence[Any]) -> None:
        """Run some steps, given what varies: the values of each step, one step after the other."""
        entering = (*self._carry, *self._constants, *varying)
        self._carry.clear()
        indices = range(self.done, self.done + steps)
        if steps == 1 or not ACTIVITY.lookers:
            found = self._loop(self._run, indices, entering, *self._stacks)
        else:
            counted = CountedRange(indices, [0])
            with ACTIVITY.doing(Work(INNER, steps, counted.done)):
                found = self._loop(self._run, counted, entering, *self._stacks)
        self._carry, self._last = found
        self.done += steps

    def results(self) -> tuple[Any, ...]:
        """Return the outputs of the chain, once all steps have run."""
        from unspool._engine.running_sums import settled

        return (*map(settled, self._last), *self._stacks)

    @property
    def nbytes(self) -> int:
        """Bytes of what is stacked up and carried."""
        return sum(value.nbytes for value in (*self._stacks, *self._carry))


@lru_cache(maxsize=512)
def _loop(
    carried: tuple[tuple[int, int], ...],
    constant: tuple[int, ...],
    varying: tuple[int, ...],
    last: tuple[int, ...],
    stacked: tuple[int, ...],
    outputs: int,
) -> Any:
    """Generate the loop of a chain."""
    inputs = {position: f"c{i}" for i, (position, _) in enumerate(carried)}
    inputs |= {position: f"k{i}" for i, position in enumerate(constant)}
    inputs |= {position: f"v{i}" for i, position in enumerate(varying)}
    fixed = len(carried) + len(constant)
    names = [inputs[position] for position, _ in carried] + [inputs[position] for position in constant]
    arguments = ", ".join(inputs[position] for position in sorted(inputs))
    results = "".join(f"o{i}, " for i in range(outputs))
    steps = ", ".join(f"arrays[{fixed + i}::{len(varying)}]" for i in range(len(varying)))
    each = "".join(f"v{i}, " for i in range(len(varying)))
    lines = [f"{', '.join(names)}, = arrays[:{fixed}]"] if names else []
    lines += [f"for j, ({each}) in zip(indices, zip({steps})):" if varying else "for j in indices:"]
    lines += [f"    {results}= run({arguments})"]
    lines += [f"    c{i} = o{source}" for i, (_, source) in enumerate(carried)]
    lines += [f"    s{i}[j] = o{source}" for i, source in enumerate(stacked)]
    carry = ", ".join(f"c{i}" for i in range(len(carried)))
    lines += [f"return [{carry}], ({''.join(f'o{i}, ' for i in last)})"]
    from unspool._engine.generated import compile_function

    stacks = "".join(f", s{i}" for i in range(len(stacked)))
    body = "\n".join(f"    {line}" for line in lines)
    return compile_function("chain", f"def chain(run, indices, arrays{stacks}):\n{body}\n", {})


def expand_chain(chain: Chain, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Return the outputs of a chain as those of the calls it stands for."""
    carry = list(inputs[: len(chain.carried)])
    constants = inputs[len(chain.carried) : len(chain.carried) + len(chain.constant)]
    rest = iter(inputs[len(chain.carried) + len(chain.constant) :])
    stacks: list[list[Tensor]] = [[] for _ in chain.stacked]
    call: Any = None
    for _ in range(chain.steps):
        slots: dict[int, Tensor] = dict(zip(chain.constant, constants, strict=True))
        slots |= {position: tensor for (position, _), tensor in zip(chain.carried, carry, strict=True)}
        slots |= {position: next(rest) for position in chain.varying}
        arguments = tuple([slots[position] for position in sorted(slots)])
        call = make_call(chain.plan, arguments, chain.plan.fragment.origins)
        carry = [output(call, source) for _, source in chain.carried]
        for stack, index in zip(stacks, chain.stacked, strict=True):
            stack.append(output(call, index))
    return [output(call, index) for index in chain.last] + [stacked_tensors(stack) for stack in stacks]


def stacked_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """Return tensors of one shape along a new first axis."""
    shape = tensors[0].shape
    return reshape(
        concat([reshape(t, (1, *shape)) if not shape else t for t in tensors], axis=0), (len(tensors), *shape)
    )


def _pull(needed: Sequence[bool], ct: Any, out: Any, *inputs: Tensor, chain: Chain) -> list[Any]:
    # Under identities of their own: a tensor can stand at several inputs, and what a step read depends on others.
    own = [alias(i) if need else i for i, need in zip(inputs, needed, strict=True)]
    outputs = expand_chain(chain, own)
    default_engine().levels.mark()
    reached = [(o, c) for o, c in zip(outputs, ct, strict=True) if c is not None]
    variables = [i for i, need in zip(own, needed, strict=True) if need]
    pulled = late.pullback([o for o, _ in reached], [c for _, c in reached], variables)
    found = iter(late.substitute(pulled, own, inputs))
    return [next(found) if need else None for need in needed]


def _push(tangents: Sequence[Any], out: Any, *inputs: Tensor, chain: Chain) -> tuple[Any, ...]:
    own = [i if t is None else alias(i) for i, t in zip(inputs, tangents, strict=True)]
    moving = [(i, t) for i, t in zip(own, tangents, strict=True) if t is not None]
    pushed = late.pushforward(expand_chain(chain, own), [i for i, _ in moving], [t for _, t in moving])
    return tuple(late.substitute(pushed, own, inputs))


def _passes(params: Any) -> list[bool]:
    """Return which inputs a chain is differentiated through: those that its plan is."""
    chain = params["chain"]
    passing = late.passing_inputs(chain.plan)
    flags = [position in passing for position, _ in chain.carried]
    flags += [position in passing for position in chain.constant]
    flags += [position in passing for position in chain.varying] * chain.steps
    return flags


# Not registered, like calls: it is a way to write derivatives, not something to apply by name.
CHAIN = Op(
    "chain",
    infer=lambda *inputs, chain: chain.avals(),
    kernel=_kernel,
    vjp=JointRule(_pull, _passes),
    jvp=_push,  # type: ignore[arg-type]
    params={"chain": STRUCTURE},
    needs=("inputs",),
    multi=True,
    stepwise=True,
    batch=rule_above("chain"),
)
