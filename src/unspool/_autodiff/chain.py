"""A chain: the steps of the derivative of a loop, one after the other, as one node.

Each step is a run of a derived plan, and reads what the step before gave. There may be several kinds of steps, in any
order, as in the derivative of a loop that takes now one branch, now another. The kernel runs one step after the other,
passes on what they pass on, and writes what is wanted of every step into stacked arrays, one for each kind.

A chain is differentiated by expanding it into the calls it stands for, which form chains again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._activity import ACTIVITY, INNER, CountedRange, Work
from unspool._autodiff.late import late
from unspool._engine.default import default_engine
from unspool._engine.planning import nbytes
from unspool._fragments.call import make_call, output
from unspool._graph import Bundle, intern_bundle, origin_scope
from unspool._ops.batching import rule_above
from unspool._ops.identity import alias
from unspool._ops.layout import concat, reshape
from unspool._ops.op import STRUCTURE, JointRule, Op
from unspool._records import NamedTuple
from unspool._statistics import STATISTICS

if TYPE_CHECKING:
    from unspool._engine.plan import Plan
    from unspool._tensor import Tensor


class StepKind(NamedTuple):
    """What steps of one kind do.

    Attributes
    ----------
    plan : Plan
    carried : tuple of (int, int)
        Which inputs of the plan are which outputs of the step before.
    constant, varying : tuple of int
        The other inputs: those that are the same for all steps of this kind, and those that are not.
    stacked : tuple of int
        The outputs that are stacked up.
    """

    plan: Plan
    carried: tuple[tuple[int, int], ...]
    constant: tuple[int, ...]
    varying: tuple[int, ...]
    stacked: tuple[int, ...]


class Chain(NamedTuple):
    """What a chain does.

    The inputs of the node are what the first step reads of one before it; the constants of each kind; and then for each
    step what varies. Its outputs are outputs of the last step, then for each kind stacks of outputs of all its steps.

    Attributes
    ----------
    kinds : tuple of StepKind
    which : bytes
        The kind of each step; empty if there is only one.
    steps : int
    last : tuple of int
        The outputs of the last step that are outputs of the chain.
    """

    kinds: tuple[StepKind, ...]
    which: bytes
    steps: int
    last: tuple[int, ...]

    def kind(self, k: int) -> StepKind:
        """Return what a step does."""
        return self.kinds[self.which[k] if self.which else 0]

    def counts(self) -> list[int]:
        """Return how many steps of each kind there are."""
        return [self.which.count(i) for i in range(len(self.kinds))] if self.which else [self.steps]

    @property
    def entering(self) -> int:
        """How many inputs the first step reads of one before it."""
        return len(self.kind(0).carried)

    @property
    def fixed(self) -> int:
        """How many inputs there are before those that vary."""
        return self.entering + sum([len(kind.constant) for kind in self.kinds])

    def varying(self, k: int) -> slice:
        """Return which inputs vary and are those of a step."""
        count = len(self.kind(k).varying)
        if self.which:
            start = self.fixed + _begins(self.which, tuple([len(kind.varying) for kind in self.kinds]))[k]
        else:
            start = self.fixed + k * count
        return slice(start, start + count)

    def constants(self) -> Iterator[slice]:
        """Yield for each kind which inputs are its constants."""
        start = self.entering
        for kind in self.kinds:
            yield slice(start, start + len(kind.constant))
            start += len(kind.constant)

    def avals(self) -> list[tuple[Any, Any]]:
        """Return shape and dtype of the outputs."""
        plan = self.kind(self.steps - 1).plan
        found = [(plan.output_shapes[i], plan.output_dtypes[i]) for i in self.last]
        for kind, count in zip(self.kinds, self.counts(), strict=True):
            shapes, dtypes = kind.plan.output_shapes, kind.plan.output_dtypes
            found += [((count, *shapes[i]), dtypes[i]) for i in kind.stacked]
        return found

    @property
    def kernels(self) -> int:
        """How many kernels all steps run."""
        return sum([kind.plan.kernels * count for kind, count in zip(self.kinds, self.counts(), strict=True)])

    @property
    def peak_bytes(self) -> int:
        """Bytes that a step takes at most while it runs."""
        return max([kind.plan.peak_bytes for kind in self.kinds])

    def carried_bytes(self) -> int:
        """Return the bytes of what is carried from a step to the next, at most."""
        return max(map(_carried_bytes, self.kinds))

    def begin(self, arrays: Sequence[Any]) -> ChainRun:
        """Return a run of the chain, given what enters its first step, and the constants."""
        return ChainRun(self, arrays)


@lru_cache(maxsize=64)
def _begins(which: bytes, counts: tuple[int, ...]) -> list[int]:
    """Return how many inputs vary that are those of earlier steps, by step."""
    return list(accumulate([counts[i] for i in which], initial=0))


def _carried_bytes(kind: StepKind) -> int:
    plan = kind.plan
    carried = sum([nbytes(plan.input_shapes[i], plan.fragment.dtypes[i]) for i, _ in kind.carried])
    if not any(op.name == "contract" for op, *_ in plan.fragment.body):
        return carried
    from unspool._engine.running_sums import waiting_bytes

    sums, _ = plan.run_in_place()
    return carried + sum(
        [waiting_bytes(plan.input_shapes[i], plan.fragment.dtypes[i]) for i, _ in kind.carried if i in sums]
    )


def make_chain(
    chain: Chain, key: tuple[Any, ...], shapes: tuple[Any, ...], dtypes: tuple[Any, ...], inputs: tuple[Tensor, ...]
) -> Bundle:
    """Return the node of a chain."""
    origins = [origin for kind in chain.kinds for origin in kind.plan.fragment.origins[-1:]]
    STATISTICS.chains += 1
    found: Any = _graph.find(CHAIN, inputs, key)
    if found is None:
        with origin_scope() as origin:
            if origins:  # a step that only passes on what arrives has no instructions
                origin.code, origin.lasti = origins[0]
            found = intern_bundle(CHAIN, inputs, {"chain": chain}, shapes, dtypes, key)
    return found  # type: ignore[no-any-return]


def _kernel(*arrays: Any, chain: Chain) -> tuple[Any, ...]:
    run = chain.begin(arrays[: chain.fixed])
    run.advance(chain.steps, arrays[chain.fixed :])
    return run.results()


class ChainRun:
    """A chain that is being run: in one go, or some steps at a time as their inputs become available."""

    __slots__ = ("_before", "_chain", "_constants", "_passed", "_run", "_runs", "_stacks", "done")

    def __init__(self, chain: Chain, arrays: Sequence[Any]) -> None:
        self._chain = chain
        self._stacks = [np.empty(shape, dtype) for shape, dtype in chain.avals()[len(chain.last) :]]
        carried = chain.kind(0).carried
        # What enters stands where the outputs of a step before the first one would.
        self._before: Sequence[Any] = [None] * (1 + max([source for _, source in carried], default=-1))
        for (_, source), array in zip(carried, arrays, strict=False):
            self._before[source] = array
        self._constants = arrays[chain.entering :]
        self._passed = {source for kind in chain.kinds for _, source in kind.carried}
        self.done = 0
        STATISTICS.kernel_calls += chain.kernels - 1
        self._runs = [kind.plan.run for kind in chain.kinds]
        if (runs := _in_place(chain)) is not None:
            from unspool._engine.running_sums import RunningSum

            # What is only added to is added to in place, once the first value is the chain's own.
            self._runs, sums = runs
            for source in {source for position, source in carried if position in sums}:
                self._before[source] = RunningSum(np.array(self._before[source]))
        self._run = _loop(tuple([tuple(kind[1:]) for kind in chain.kinds]))

    def advance(self, steps: int, varying: Sequence[Any]) -> None:
        """Run some steps, given what varies: the values of each step, one step after the other."""
        chain, before, self._before = self._chain, self._before, ()
        indices: Any = range(self.done, self.done + steps)
        written = [chain.which.count(i, 0, self.done) for i in range(len(chain.kinds))] if chain.which else ()
        given = (self._runs, chain.which, before, self._constants, varying, written)
        del before
        if steps == 1 or not ACTIVITY.lookers:
            found = self._run(indices, *given, *self._stacks)
        else:
            counted = CountedRange(indices, [0])
            with ACTIVITY.doing(Work(INNER, steps, counted.done)):
                found = self._run(counted, *given, *self._stacks)
        self.done += steps
        wanted = chain.last if self.done == chain.steps else self._passed
        self._before = [value if i in wanted else None for i, value in enumerate(found)]

    def results(self) -> tuple[Any, ...]:
        """Return the outputs of the chain, once all steps have run."""
        from unspool._engine.running_sums import settled

        return (*[settled(self._before[i]) for i in self._chain.last], *self._stacks)

    @property
    def nbytes(self) -> int:
        """Bytes of what is stacked up and carried."""
        return sum([value.nbytes for value in (*self._stacks, *self._before) if value is not None])


def _in_place(chain: Chain) -> tuple[list[Any], set[int]] | None:
    """Return what runs the steps of each kind and overwrites sums, and the inputs of the first step that are such.

    None if some step would read what is overwritten, or stack it up.
    """
    runs, sums = [], []
    for kind in chain.kinds:
        found, run = kind.plan.run_in_place()
        if {*found.values()} & {*kind.stacked} or not {*found} <= {position for position, _ in kind.carried}:
            return None
        runs.append(run)
        sums.append(found)
    if not any(sums):
        return None
    for before, after in {*zip(chain.which, chain.which[1:], strict=False)} or {(0, 0)}:
        added = {*sums[before].values()}
        if any((position in sums[after]) != (source in added) for position, source in chain.kinds[after].carried):
            return None
    return runs, {*sums[chain.which[0] if chain.which else 0]}


@lru_cache(maxsize=512)
def _loop(kinds: tuple[Any, ...]) -> Any:
    """Generate the loop of chains whose steps are wired in some ways: without their plans, the kinds of steps."""
    constants = [f"k{which}_{i}, " for which, (_, constant, *_) in enumerate(kinds) for i in constant]
    lines = [f"{''.join(constants)} = constants"] if constants else []
    lines += [f"{''.join(f'run{i}, ' for i in range(len(kinds)))} = runs"]
    if len(kinds) == 1:
        varying = kinds[0][2]
        steps = ", ".join(f"varying[{i}::{len(varying)}]" for i in range(len(varying)))
        names = "".join(f"v{i}, " for i in varying)
        lines += [f"for j, ({names}) in zip(indices, zip({steps})):" if varying else "for j in indices:"]
        lines += [f"    {line}" for line in _step(0, kinds[0], {i: f"v{i}" for i in varying}, "j", 0)]
    else:
        # The values of a step come one after the other, and it takes them in this order.
        lines += ["take = iter(varying).__next__", f"{''.join(f'j{i}, ' for i in range(len(kinds)))} = written"]
        lines += ["for step in indices:", "    which = which_of[step]"]
        stack = 0
        for which, kind in enumerate(kinds):
            lines += [f"    {'el' if which else ''}if which == {which}:"]
            values = dict.fromkeys(kind[2], "take()")
            lines += [f"        {line}" for line in _step(which, kind, values, f"j{which}", stack)]
            lines += [f"        j{which} += 1"]
            stack += len(kind[3])
    lines += ["return before"]
    from unspool._engine.generated import compile_function

    stacks = "".join(f", s{i}" for i in range(sum([len(stacked) for *_, stacked in kinds])))
    body = "\n".join(f"    {line}" for line in lines)
    arguments = f"indices, runs, which_of, before, constants, varying, written{stacks}"
    return compile_function("chain", f"def chain({arguments}):\n{body}\n", {})


def _step(which: int, kind: tuple[Any, ...], varying: dict[int, str], row: str, stack: int) -> list[str]:
    """Return the lines of a step: it runs, and what is wanted of it is written into rows of stacks from one on."""
    carried, constant, _, stacked = kind
    inputs = {position: f"before[{source}]" for position, source in carried}
    inputs |= {position: f"k{which}_{position}" for position in constant} | varying
    arguments = ", ".join(inputs[position] for position in sorted(inputs))
    return [
        f"before = run{which}({arguments})",
        *[f"s{stack + i}[{row}] = before[{source}]" for i, source in enumerate(stacked)],
    ]


def expand_chain(chain: Chain, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Return the outputs of a chain as those of the calls it stands for."""
    constants = [
        dict(zip(kind.constant, inputs[at], strict=True))
        for kind, at in zip(chain.kinds, chain.constants(), strict=True)
    ]
    stacks: list[list[list[Tensor]]] = [[[] for _ in kind.stacked] for kind in chain.kinds]
    call: Any = None
    for k in range(chain.steps):
        which = chain.which[k] if chain.which else 0
        kind = chain.kinds[which]
        slots = dict(constants[which])
        slots |= zip(kind.varying, inputs[chain.varying(k)], strict=True)
        for i, (position, source) in enumerate(kind.carried):
            slots[position] = inputs[i] if call is None else output(call, source)
        arguments = tuple([slots[position] for position in sorted(slots)])
        call = make_call(kind.plan, arguments, kind.plan.fragment.origins)
        for stack, index in zip(stacks[which], kind.stacked, strict=True):
            stack.append(output(call, index))
    found = [output(call, index) for index in chain.last]
    return found + [stacked_tensors(stack) for stacks_of_kind in stacks for stack in stacks_of_kind]


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
    """Return which inputs a chain is differentiated through: those that its plans are."""
    chain = params["chain"]
    passing = [{*late.passing_inputs(kind.plan)} for kind in chain.kinds]
    first = chain.which[0] if chain.which else 0
    flags = [position in passing[first] for position, _ in chain.kinds[first].carried]
    for kind, through in zip(chain.kinds, passing, strict=True):
        flags += [position in through for position in kind.constant]
    each = [
        [position in through for position in kind.varying] for kind, through in zip(chain.kinds, passing, strict=True)
    ]
    for which in chain.which or bytes(chain.steps):
        flags += each[which]
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
