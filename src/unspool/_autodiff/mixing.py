"""Which steps of a derivative become a chain of several plans, and how it is wired.

Steps of one plan that read each other alike are a run. Where runs are short and many follow each other, as in a loop
that takes one of two ways by a value, a chain for each run would cost more than its steps. Then they are one chain.
Long runs stay what they are, and so do the few odd steps at the ends of a loop.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from typing import Any

from unspool._autodiff.mixed_chain import MixedChain, StepKind
from unspool._core import StepBase as Step
from unspool._records import NamedTuple

Places = tuple[tuple[int, int], ...]

# Runs of more steps than this are chains of their own. Fewer short runs than that are not worth a mixed one.
LONGEST_RUN = 16
FEWEST_RUNS = 6


def can_be_mixed(run: Sequence[Step]) -> bool:
    """Whether the steps of a run may be part of a mixed chain: large sums are better added to in place."""
    return len(run) <= LONGEST_RUN and not run[0].plan.run_in_place()[0]


def reads_waiting(step: Step) -> bool:
    """Whether a step reads another one that is no node yet."""
    inputs: Sequence[Any] = step.inputs
    return any(inputs[position].step.placed is None for position in step.read)


class Mixed(NamedTuple):
    """A chain of several plans, and of each step the number of its plan.

    ``entering`` are the inputs of its node, tensors or outputs of steps that are nodes by now.
    """

    chain: MixedChain
    entering: list[Any]
    plans: list[int]


def mix(run: Sequence[Step]) -> Mixed:
    """Wire steps as one chain. All others that they read are nodes by now.

    This is done for every step of a loop, so what steps have in common is worked out once.
    """
    numbers: dict[Any, int] = {}
    plans = [numbers.setdefault(step.plan, len(numbers)) for step in run]
    reads = _Reads(run)
    last, stacked = _shown(run, plans, reads)
    constants = _constants(run, plans, reads)
    kept: dict[int, Any] = {id(value): value for of_plan in constants for value in of_plan.values()}
    place = {key: number for number, key in enumerate(kept)}
    registers, wiring = _wire(reads)
    known: dict[Any, tuple[int, list[int]]] = {}
    kinds: list[StepKind] = []
    which: list[int] = []
    own: list[Any] = []
    for step, number, wired in zip(run, plans, wiring, strict=True):
        inputs = step.inputs
        kind = known.get((number, wired))
        if kind is None:
            read, carried = wired
            given = {*[position for position, _ in read], *constants[number]}
            varying = [position for position in range(len(inputs)) if position not in given]
            same = tuple([(position, place[id(value)]) for position, value in constants[number].items()])
            kind = known[number, wired] = len(kinds), varying
            kinds.append(StepKind(number, read, same, tuple(varying), carried))
        which.append(kind[0])
        own += [inputs[position] for position in kind[1]]
    chain = MixedChain(tuple(numbers), tuple(kinds), bytes(which), len(kept), registers, last, stacked)
    return Mixed(chain, [*kept.values(), *own], plans)


class _Reads:
    """What the steps of a run read of each other.

    Attributes
    ----------
    links : list
        Of each step its inputs that other steps made: their position, the number of that step, and the output.
    until : list of dict of int to int
        Of each step its outputs that others read, and the last one that does.
    stand_ins : list of dict of int to int
        Of each step what stands for those outputs: its identity, and the output.
    """

    __slots__ = ("links", "stand_ins", "until")

    def __init__(self, run: Sequence[Step]) -> None:
        for k, step in enumerate(run):
            step.position = k  # until it is told where it is placed
        self.links: list[list[tuple[int, int, int]]] = []
        self.until: list[dict[int, int]] = [{} for _ in run]
        self.stand_ins: list[dict[int, int]] = [{} for _ in run]
        for k, step in enumerate(run):
            inputs: Sequence[Any] = step.inputs
            links = []
            for position in step.read:
                value = inputs[position]
                source, index = value.step, value.index
                if source.placed is None:
                    at = source.position
                    links.append((position, at, index))
                    self.until[at][index] = k
                    self.stand_ins[at][id(value)] = index
            self.links.append(links)


def _shown(run: Sequence[Step], plans: Sequence[int], reads: _Reads) -> tuple[Places, Places]:
    """Return the outputs that something else than the steps may ask for: of the last step of a plan, of others too."""
    latest = {number: k for k, number in enumerate(plans)}
    last: set[tuple[int, int]] = set()
    stacked: set[tuple[int, int]] = set()
    seen: set[Any] = set()
    for k, (step, number, inside) in enumerate(zip(run, plans, reads.stand_ins, strict=True)):
        is_last = latest[number] == k
        made, read, wanted = step.made, tuple(inside.values()), step.wanted
        if wanted or (is_last, number, made, read) not in seen:
            seen.add((is_last, number, made, read))
            needed = {index for index in made if made.count(index) > read.count(index)}.union(wanted)
            (last if is_last else stacked).update([(number, index) for index in needed])
    return tuple(sorted(last - stacked)), tuple(sorted(stacked))


def _constants(run: Sequence[Step], plans: Sequence[int], reads: _Reads) -> list[dict[int, Any]]:
    """Return, per plan, the inputs that are the same for all its steps, if there are several."""
    found: dict[int, dict[int, Any]] = {}
    single: set[int] = set()
    for step, number, links in zip(run, plans, reads.links, strict=True):
        inputs = step.inputs
        same = found.get(number)
        if same is None:
            inside = {position for position, _, _ in links}
            found[number] = {position: value for position, value in enumerate(inputs) if position not in inside}
            single.add(number)
            continue
        single.discard(number)
        for position in [position for position, value in same.items() if inputs[position] is not value]:
            del same[position]
    return [{} if number in single else found[number] for number in range(len(found))]


def _wire(reads: _Reads) -> tuple[int, list[tuple[Places, Places]]]:
    """Return how many registers there are, and of each step those that it reads and fills.

    What steps read of each other has one from the step that makes it to the last one that reads it: the lowest that is
    free, so that steps which do the same in turn use the same.
    """
    free: list[int] = []
    registers = 0
    held: list[dict[int, int]] = []
    steps = []
    for k, (links, until) in enumerate(zip(reads.links, reads.until, strict=True)):
        read = tuple([(position, held[at][index]) for position, at, index in links])
        for at, index in {(at, index) for _, at, index in links} if len(links) > 1 else [link[1:] for link in links]:
            if reads.until[at][index] == k:
                insort(free, held[at][index])
        filled: dict[int, int] = {}
        for index in sorted(until):
            if not free:
                free.append(registers)
                registers += 1
            filled[index] = free.pop(0)
        held.append(filled)
        steps.append((read, tuple(filled.items())))
    return registers, steps
