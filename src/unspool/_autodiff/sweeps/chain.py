"""A chain: the steps of the derivative of a loop, one after the other, as one node.

Each step is a run of a derived plan. What it gives and a later one reads is in a register until then. There may be
several kinds of steps, in any order, as in the derivative of a loop that takes now one branch, now another, or of loops
in loops. The kernel runs one step after the other; what is wanted of all steps of a kind it writes into stacked arrays.

A chain is differentiated by expanding it into the calls it stands for, which form chains again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._activity import ACTIVITY, INNER, CountedRange, Work
from unspool._autodiff.sweeps.late import late
from unspool._engine.costs import nbytes
from unspool._engine.default import default_engine
from unspool._fragments.call import make_call, output
from unspool._graph import Bundle, intern_bundle, origin_scope
from unspool._native import run_chain
from unspool._ops import layout
from unspool._ops.batching import rule_above
from unspool._ops.identity import alias
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
    reads : tuple of (int, int)
        Inputs of the plan, and the registers that they are read from.
    constant, varying : tuple of int
        The other inputs: those that are the same for all steps of this kind, and those that are not.
    writes : tuple of (int, int)
        Outputs, and the registers that they are written to.
    last : tuple of int
        The outputs of the last step of this kind that are outputs of the chain.
    stacked : tuple of int
        The outputs that are stacked up.
    """

    plan: Plan
    reads: tuple[tuple[int, int], ...]
    constant: tuple[int, ...]
    varying: tuple[int, ...]
    writes: tuple[tuple[int, int], ...]
    last: tuple[int, ...]
    stacked: tuple[int, ...]


class Chain(NamedTuple):
    """What a chain does.

    The inputs of the node are what enters registers; the constants of each kind; and then for each step what varies.
    Its outputs are for each kind outputs of its last step, then for each kind stacks of outputs of all its steps.

    Attributes
    ----------
    kinds : tuple of StepKind
    which : bytes
        The kind of each step; empty if there is only one.
    steps : int
    entering : tuple of int
        The registers that are read before anything is written to them.
    """

    kinds: tuple[StepKind, ...]
    which: bytes
    steps: int
    entering: tuple[int, ...]

    def kind(self, k: int) -> StepKind:
        """Return what a step does."""
        return self.kinds[self.which[k] if self.which else 0]

    def counts(self) -> list[int]:
        """Return how many steps of each kind there are."""
        return [self.which.count(i) for i in range(len(self.kinds))] if self.which else [self.steps]

    @property
    def fixed(self) -> int:
        """How many inputs there are before those that vary."""
        return len(self.entering) + sum([len(kind.constant) for kind in self.kinds])

    @property
    def registers(self) -> int:
        """How many registers there are."""
        used = [r for kind in self.kinds for _, r in (*kind.reads, *kind.writes)]
        return 1 + max(used, default=-1)

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
        start = len(self.entering)
        for kind in self.kinds:
            yield slice(start, start + len(kind.constant))
            start += len(kind.constant)

    def avals(self) -> list[tuple[Any, Any]]:
        """Return shape and dtype of the outputs."""
        plans = [kind.plan for kind in self.kinds]
        found = [
            (p.output_shapes[i], p.output_dtypes[i])
            for p, kind in zip(plans, self.kinds, strict=True)
            for i in kind.last
        ]
        for kind, count in zip(self.kinds, self.counts(), strict=True):
            shapes, dtypes = kind.plan.output_shapes, kind.plan.output_dtypes
            found += [((count, *shapes[i]), dtypes[i]) for i in kind.stacked]
        return found

    def is_stack(self, index: int) -> bool:
        """Whether an output has values of all steps of a kind: they lie in memory one after the other."""
        return index >= sum([len(kind.last) for kind in self.kinds])

    @property
    def kernels(self) -> int:
        """How many kernels all steps run."""
        return sum([kind.plan.kernels * count for kind, count in zip(self.kinds, self.counts(), strict=True)])

    @property
    def peak_bytes(self) -> int:
        """Bytes that a step takes at most while it runs."""
        return max([kind.plan.peak_bytes for kind in self.kinds])

    def held_bytes(self) -> int:
        """Return the bytes of what a run holds at most: registers and outputs."""
        sizes = [nbytes(shape, dtype) for shape, dtype in self.avals()]
        # What the last step gives is in its registers until it leaves.
        final = self.which[-1] if self.which else 0
        first = sum([len(kind.last) for kind in self.kinds[:final]])
        leaving = sum(sizes[first : first + len(self.kinds[final].last)])
        return max(self._register_bytes(), leaving) + sum(sizes) - leaving

    def _register_bytes(self) -> int:
        most = [0] * self.registers
        for kind in self.kinds:
            plan = kind.plan
            for i, r in kind.reads:
                most[r] = max(most[r], nbytes(plan.input_shapes[i], plan.fragment.dtypes[i]))
            for i, r in kind.writes:
                most[r] = max(most[r], nbytes(plan.output_shapes[i], plan.output_dtypes[i]))
        return sum(most)

    def begin(self, arrays: Sequence[Any]) -> ChainRun:
        """Return a run of the chain, given what enters its first step, and the constants."""
        return ChainRun(self, arrays)


@lru_cache(maxsize=64)
def _begins(which: bytes, counts: tuple[int, ...]) -> list[int]:
    """Return how many inputs vary that are those of earlier steps, by step."""
    return list(accumulate([counts[i] for i in which], initial=0))


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

    __slots__ = ("_chain", "_constants", "_kinds", "_runs", "_stacks", "_state", "done")

    def __init__(self, chain: Chain, arrays: Sequence[Any]) -> None:
        self._chain = chain
        last = sum([len(kind.last) for kind in chain.kinds])
        self._stacks = tuple([np.empty(shape, dtype) for shape, dtype in chain.avals()[last:]])
        # Registers, then what leaves of the last step of each kind.
        self._state: list[Any] = [None] * (chain.registers + last)
        for r, array in zip(chain.entering, arrays, strict=False):
            self._state[r] = array
        self._constants = tuple(arrays[len(chain.entering) :])
        self.done = 0
        STATISTICS.kernel_calls += chain.kernels - 1
        self._runs = tuple([kind.plan.run for kind in chain.kinds])
        self._kinds = tuple([kind[1:] for kind in chain.kinds])

    def advance(self, steps: int, varying: Sequence[Any]) -> None:
        """Run some steps, given what varies: the values of each step, one step after the other."""
        chain, done = self._chain, self.done
        indices: Any = range(done, done + steps)
        rows = tuple([chain.which.count(i, 0, done) for i in range(len(chain.kinds))]) if chain.which else (done,)
        of_chain = (chain.registers, self._kinds, self._runs, chain.which, self._state, self._constants)
        given = (*of_chain, tuple(varying), rows, self._stacks)
        if steps == 1 or not ACTIVITY.lookers:
            run_chain(indices, *given)
        else:
            counted = CountedRange(indices, [0])
            with ACTIVITY.doing(Work(INNER, steps, counted.done)):
                run_chain(counted, *given)
        self.done += steps

    def results(self) -> tuple[Any, ...]:
        """Return the outputs of the chain, once all steps have run."""
        return (*self._state[self._chain.registers :], *self._stacks)

    @property
    def nbytes(self) -> int:
        """Bytes of what is stacked up and carried."""
        held = {id(value): value for value in self._state if value is not None}
        return sum([value.nbytes for value in (*self._stacks, *held.values())])


def follow_steps(
    chain: Chain, inputs: Sequence[Any], step: Callable[[StepKind, list[Any]], Callable[[int], Any]]
) -> tuple[list[Any], list[list[Any]]]:
    """Make the steps of a chain one after the other, and return what leaves it: single outputs, and lists of outputs.

    ``step(kind, inputs)`` makes one, and returns what gives its outputs by number.
    """
    kinds = chain.kinds
    constants = [
        dict(zip(kind.constant, inputs[at], strict=True)) for kind, at in zip(kinds, chain.constants(), strict=True)
    ]
    registers = dict(zip(chain.entering, inputs, strict=False))
    stacks: list[list[list[Any]]] = [[[] for _ in kind.stacked] for kind in kinds]
    last: list[Any] = [None] * len(kinds)
    for k in range(chain.steps):
        which = chain.which[k] if chain.which else 0
        kind = kinds[which]
        slots = constants[which] | dict(zip(kind.varying, inputs[chain.varying(k)], strict=True))
        slots |= {i: registers[r] for i, r in kind.reads}
        outputs = last[which] = step(kind, [slots[i] for i in sorted(slots)])
        registers |= {r: outputs(i) for i, r in kind.writes}
        for stack, i in zip(stacks[which], kind.stacked, strict=True):
            stack.append(outputs(i))
    single = [outputs(i) for kind, outputs in zip(kinds, last, strict=True) for i in kind.last]
    return single, [stack for of_kind in stacks for stack in of_kind]


def expand_chain(chain: Chain, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Return the outputs of a chain as those of the calls it stands for."""

    def call(kind: StepKind, operands: list[Tensor]) -> Callable[[int], Tensor]:
        return partial(output, make_call(kind.plan, tuple(operands), kind.plan.fragment.origins))

    single, stacks = follow_steps(chain, inputs, call)
    return single + [stacked_tensors(stack) for stack in stacks]


def stacked_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """Return tensors of one shape along a new first axis."""
    shape = tensors[0].shape
    with_axes = [layout.reshape(t, (1, *shape)) if not shape else t for t in tensors]
    return layout.reshape(layout.concat(with_axes, axis=0), (len(tensors), *shape))


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
    read = {r for kind, through in zip(chain.kinds, passing, strict=True) for i, r in kind.reads if i in through}
    flags = [r in read for r in chain.entering]
    for kind, through in zip(chain.kinds, passing, strict=True):
        flags += [i in through for i in kind.constant]
    each = [[i in through for i in kind.varying] for kind, through in zip(chain.kinds, passing, strict=True)]
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
