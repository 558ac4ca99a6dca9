"""Repetition: where a piece of graph, in order, is the same few nodes over and over.

A loop that was written without looking at values leaves its iterations behind as stretches of nodes with the same ops
and the same wiring, at a fixed period. Two nodes a period apart *repeat* if they have the same op, parameters, shape
and dtype, and each operand of the one stands either at the same distance as that of the other, or both stand a period
back or more. Then, whatever node a repetition is taken to start at, what it reads of itself is wired alike, and what
it reads from outside is an input: carried from an earlier repetition, the same in all of them, or another one each
time. The last is how the gradient of a loop reads the values of the loop: backwards, at growing distances.

Candidates for the period come from hashes of windows of nodes: the distance to the next equal window, where that is
frequent. They may be wrong and only say where to look. Every repetition that is returned was compared node by node,
over integers that stand for the nodes one to one. All of it is linear in the number of nodes, up to a sort of
integers.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from unspool import _core
from unspool._graph import Node

Integers: TypeAlias = NDArray[np.int64]
Section: TypeAlias = tuple[int, int, int]

# The longest body that is looked for. Of nested loops, the outer one is found if its body is not longer.
LONGEST = 2000

# Fewer repetitions than this are not worth a plan.
FEWEST = 4

# Bodies shorter than this are taken several at a time: one long step costs less than many short ones. If their nodes
# are held they are not, since what is asked for should be at the end of a body; then the shortest are not worth a step.
_SHORT = 16
SHORTEST = 4

# What a plan and a section cost, in nodes that could have been run meanwhile. Plans cost more when they are made; but
# they are found again.
_PLAN_COST, _SECTION_COST = 4, 200

# Lengths of the windows that are compared to find periods. Short ones see inner loops, long ones outer loops.
_WINDOWS = (8, 32, 128, 512)

# Distances up to this are wiring within a body, as a rule; longer ones may be those that grow.
_NEAR = 8

# How many periods are tried per length of windows.
_MOST_CANDIDATES = 8

# Stands for the distance to an operand that is not in the piece.
_FAR = 1 << 40

_ODD = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)


@dataclass(frozen=True, order=True, slots=True)
class Repeat:
    """A section of a piece: ``count`` repetitions of ``period`` nodes, the first of them at position ``start``."""

    start: int
    period: int
    count: int

    @property
    def stop(self) -> int:
        """The position after the last repetition."""
        return self.start + self.period * self.count


class Wiring(NamedTuple):
    """A piece of graph as integers: what its nodes are, and what they read.

    Attributes
    ----------
    tokens : array of int
        One per node; equal where op, parameters, shape, dtype and number of operands are.
    first : array of int
        The operands of node ``i`` are ``sources[first[i]:first[i + 1]]``.
    sources : array of int
        Positions of operands: below ``len(tokens)`` in the piece, from there on in ``outside``.
    outside : list of Node
        What the piece reads and is not part of it, each once.
    kinds : array of int
        One per node and, after them, one per outside node; equal where shape and dtype are.
    """

    tokens: Integers
    first: Integers
    sources: Integers
    outside: list[Node]
    kinds: Integers


def wiring_of(order: list[Node]) -> Wiring:
    """Describe nodes, given in topological order, by integers. There must be no calls among them."""
    *numbers, outside, keys = _core.wiring(order)
    tokens, arities, sources = [np.frombuffer(data, np.int64) for data in numbers]
    first = np.zeros(len(order) + 1, np.int64)
    np.cumsum(arities, out=first[1:])
    kinds: dict[Any, int] = {}
    of_token = np.array([kinds.setdefault(key[:2], len(kinds)) for key in keys], np.int64)
    of_outside = np.array([kinds.setdefault((node.shape, node.dtype), len(kinds)) for node in outside], np.int64)
    return Wiring(tokens, first, sources, outside, np.concatenate([of_token[tokens], of_outside]))


def find_repeats(wiring: Wiring, longest: int = LONGEST, held: Any = None, breaks: Any = None) -> list[Repeat]:
    """Return the repeated sections of a piece, in order, without overlap; bodies have at most ``longest`` nodes.

    A section starts and ends where it pays: what is left over at its ends belongs to none. Of the places at which its
    repetitions can be cut from each other, it takes one that the fewest values cross. ``held`` are flags of nodes that
    somebody refers to: these are what a repetition is likely to be asked for, so it ends with one of them. ``breaks``
    are flags of nodes before which something was recorded that is read and is not in the piece: a repetition begins
    there, and is not several bodies if each has one.
    """
    size = len(wiring.tokens)
    # A longer body could not be repeated often enough.
    longest = min(longest, size // FEWEST)
    if longest < 1:
        return []
    search = _Search(wiring, held, breaks)
    for reach in (longest, _NEAR):
        hashes = search.local_hashes(reach)
        length = 1
        for window in _WINDOWS:
            hashes, length = _window_hashes(hashes, length, min(window, size // 2))
            periods = _frequent_gaps(hashes, longest)
            if not periods:
                break
            for period in periods:
                search.try_period(period)
            # A section that is longer than any body cannot be part of one: longer windows would show nothing new.
            if sum(r.stop - r.start for r in search.chosen() if r.stop - r.start > longest) > 0.9 * size:
                return search.chosen()
    return search.chosen()


# --- candidates ------------------------------------------------------------------------------------------------------


def _window_hashes(hashes: Any, length: int, wanted: int) -> tuple[Any, int]:
    """Lengthen the windows that hashes stand for, from a length to at least a wanted one, by joining two at a time."""
    while length < wanted and len(hashes) > length:
        factor = np.uint64(pow(int(_ODD), length, 1 << 64))
        hashes = hashes[:-length] * factor + hashes[length:]
        hashes ^= hashes >> _SHIFT
        length *= 2
    return hashes, length


def _frequent_gaps(hashes: Any, longest: int) -> list[int]:
    """Return the distances between equal windows that could make up the most of the piece."""
    size = len(hashes)
    bits = np.uint64(size.bit_length())
    # Sorted together with their positions, equal hashes are neighbours in the order of position.
    keys = np.sort(((hashes * _ODD) >> bits << bits) | np.arange(size, dtype=np.uint64))
    equal = keys[1:] >> bits == keys[:-1] >> bits
    gaps = (keys[1:] - keys[:-1])[equal]
    counts = np.bincount(gaps[gaps <= longest].astype(np.int64), minlength=1)
    often = np.flatnonzero(counts >= FEWEST - 1)
    reached = np.minimum(counts[often] * often, size)
    best = np.lexsort((-counts[often], -reached))[:_MOST_CANDIDATES]
    return [int(period) for period in often[best]]


# --- verification ----------------------------------------------------------------------------------------------------


class _Search:
    """The sections that were verified so far."""

    def __init__(self, wiring: Wiring, held: Any, breaks: Any) -> None:
        self.wiring = wiring
        self.held = held
        self.breaks = breaks
        size = len(wiring.tokens)
        self.arities = np.diff(wiring.first)
        self.owners = np.repeat(np.arange(size), self.arities)
        self.distances = np.where(wiring.sources < size, self.owners - wiring.sources, _FAR)
        self.sections: dict[int, list[Section]] = {}
        self.crossings: dict[int, Integers] = {}

    def local_hashes(self, reach: int) -> Any:
        """Return a hash per node of what it is and of the distances to its operands, up to a reach."""
        codes = np.where(self.distances <= reach, self.distances, np.where(self.distances < _FAR, reach + 1, 0))
        places = np.arange(len(codes)) - self.wiring.first[self.owners]
        mixed = (codes * 64 + places + 1).astype(np.uint64) * _ODD
        mixed ^= mixed >> _SHIFT
        sums = np.zeros(len(codes) + 1, np.uint64)
        np.cumsum(mixed * _ODD, out=sums[1:])
        first = self.wiring.first
        hashes = (sums[first[1:]] - sums[first[:-1]] + self.wiring.tokens.astype(np.uint64) + np.uint64(1)) * _ODD
        return hashes ^ (hashes >> _SHIFT)

    def try_period(self, period: int) -> None:
        """Find the sections of a period; of a short one, those of a multiple that makes a body worth a step."""
        if period in self.sections:
            return
        found = self.find_sections(period)
        if found and period < _SHORT:
            extent = max(hi - lo for lo, hi, _ in found)
            times = min(-(-_SHORT // period), extent // (FEWEST * period))
            is_held = self.are_held(found)
            if times > 1 and not is_held and not self.are_broken(found):
                period *= times
                found = self.find_sections(period)
            elif is_held and (period < SHORTEST or any(period % less == 0 for less in self.sections)):
                found = []  # multiples of a body of which each is asked for
        self.sections[period] = found

    def are_held(self, sections: list[Section]) -> bool:
        """Whether nodes of sections are held, more than one in a body that is worth a step."""
        if self.held is None:
            return False
        count = sum([int(np.count_nonzero(self.held[lo:hi])) for lo, hi, _ in sections])
        return count * _SHORT > sum([hi - lo for lo, hi, _ in sections])

    def are_broken(self, sections: list[Section]) -> bool:
        """Whether most bodies of sections have a break."""
        if self.breaks is None:
            return False
        count = sum([int(np.count_nonzero(self.breaks[lo:hi])) for lo, hi, _ in sections])
        return count > sum([(hi - lo) // (2 * period) for lo, hi, period in sections])

    def find_sections(self, period: int) -> list[Section]:
        """Return where a period holds, as positions (from, to) and the period."""
        first, distances = self.wiring.first, self.distances
        tokens = self.wiring.tokens
        same = tokens[period:] == tokens[:-period]
        least = (FEWEST - 1) * period
        starts, stops = _long_runs(same, least)
        if not len(starts):
            return []
        lengths = stops - starts
        rows = np.repeat(starts - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
        for place in range(int(self.arities[rows].max())):
            rows = rows[self.arities[rows] > place]
            here, there = distances[first[rows + period] + place], distances[first[rows] + place]
            same[rows[(here != there) & (np.minimum(here, there) < period)]] = False
        starts, stops = _long_runs(same, least)
        return [(lo, hi + period, period) for lo, hi in zip(starts.tolist(), stops.tolist(), strict=True)]

    # -- choice --

    def chosen(self) -> list[Repeat]:
        """Return sections that do not overlap, the most worthwhile first choice."""
        taken: list[Repeat] = []
        for lo, hi, period in sorted((s for found in self.sections.values() for s in found), key=_gain, reverse=True):
            if _gain((lo, hi, period)) <= 0:
                break
            for start, stop in list(_free_parts(lo, hi, taken)):
                if _gain((start, stop, period)) > 0:
                    insort(taken, self.align(start, stop, period))
        return taken

    def align(self, lo: int, hi: int, period: int) -> Repeat:
        """Choose where to cut a section into repetitions: where the fewest values cross, within the first of them."""
        start = lo
        if (hi - lo) // period > FEWEST:
            crossings = self.crossings_of(period)[lo + period : lo + 2 * period]
            if self.held is not None and (held := self.held[lo + period - 1 : lo + 2 * period - 1]).any():
                crossings = np.where(held, crossings, len(self.wiring.tokens))
            elif self.breaks is not None and (breaks := self.breaks[lo + period : lo + 2 * period]).any():
                crossings = np.where(breaks, crossings, len(self.wiring.tokens))
            start += int(np.argmin(crossings))
        return Repeat(start, period, (hi - start) // period)

    def crossings_of(self, period: int) -> Integers:
        """Return, per position, how many values from before it are read after it, at most a period on."""
        if period not in self.crossings:
            size = len(self.wiring.tokens)
            near = self.distances <= period
            last = np.arange(size)
            # Of several values for one index the last one stays, and owners rise.
            last[self.wiring.sources[near]] = self.owners[near]
            ended = np.bincount(last + 1, minlength=size + 1)
            # Each node begins to cross right after itself and ends after its last reader; a node without one, at once.
            self.crossings[period] = np.cumsum(np.concatenate([[0], np.ones(size, np.int64)]) - ended)
        return self.crossings[period]


def _long_runs(flags: Any, least: int) -> tuple[Integers, Integers]:
    """Return where runs of true flags of at least a length start and stop."""
    changes = np.flatnonzero(np.diff(flags, prepend=False, append=False))
    starts, stops = changes[::2], changes[1::2]
    enough = stops - starts >= least
    return starts[enough], stops[enough]


def _gain(section: Section) -> int:
    """Return what running a section by repetition saves, in nodes."""
    lo, hi, period = section
    count = (hi - lo) // period
    return count * period - _PLAN_COST * period - _SECTION_COST if count >= FEWEST else -1


def _free_parts(lo: int, hi: int, taken: list[Repeat]) -> Iterator[tuple[int, int]]:
    """Yield the parts of an interval that sections, given in order, leave free."""
    at = max(bisect_right(taken, lo, key=_start_of) - 1, 0)
    for repeat in taken[at:]:
        if repeat.start >= hi:
            break
        if repeat.stop > lo:
            if repeat.start > lo:
                yield lo, repeat.start
            lo = max(lo, repeat.stop)
    if lo < hi:
        yield lo, hi


def _start_of(repeat: Repeat) -> int:
    return repeat.start
