"""A machine that carries out rows of actions on nothing, counts bytes and runs, and refuses what cannot be.

It holds the number of the current state, the numbers of the saved ones, and which steps are on the tape. A state that
is saved, on the tape and current counts once: these are owners of one array. The bytes of every single run and reversal
are compared with the most there may be: in the course of a run the state that it makes is there too, and in the
backward pass the cotangent of the state, twice while a step is reversed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from unspool.checkpoint._schedule.actions import ADVANCE, CHUNK, FREE, LOAD, REVERSE, SAVE, TAPE, WRITE, Rows
from unspool.checkpoint._schedule.budget import Sizes


class RefusedError(Exception):
    """An action that is impossible, or goes beyond the most bytes."""


class Machine:
    """Carries out chunks of rows; `end` says that the loop has ended and the backward pass begins."""

    def __init__(self, sizes: Sizes, most: int | None = None) -> None:
        self.sizes = sizes
        self.most = most
        self.current: int | None = 0
        self.saved: dict[int, int] = {}
        self.disk: dict[int, int] = {}
        self.tape = range(0)
        self.left: int | None = None
        self.runs: Counter[int] = Counter()
        self.transfers = Counter({"written": 0, "read": 0})
        self.peak = 0
        self.rows = 0

    def run(self, chunks: Iterable[Rows]) -> Machine:
        """Carry out rows; returns the machine."""
        for chunk in chunks:
            self._require(len(chunk) <= CHUNK and chunk.dtype == "int64", "a chunk is int64 of at most 1024 rows")
            self.rows += len(chunk)
            for kind, first, stop, slot in chunk.tolist():
                if kind in (ADVANCE, TAPE, REVERSE):
                    self._require(first < stop, "there are steps")
                    {ADVANCE: self._advance, TAPE: self._tape, REVERSE: self._reverse}[kind](first, stop, slot)
                else:
                    self._require(first == stop, "it is one state")
                    {SAVE: self._save, LOAD: self._load, FREE: self._free, WRITE: self._write}[kind](first, slot)
        return self

    def end(self) -> Machine:
        """The loop has run, and its last state is the loop's result."""
        self._require(self.left is None and self.current is not None, "the loop is running")
        self.left = self.current
        self.current = None
        return self

    @property
    def done(self) -> bool:
        """Whether all steps were reversed, and nothing is held."""
        return self.left == 0 and not self.saved and not self.tape and not self.disk

    @property
    def evaluations(self) -> int:
        """All runs of a step."""
        return sum(self.runs.values())

    # --- what rows do ------------------------------------------------------------------------------------------------

    def _advance(self, first: int, stop: int, _: int) -> None:
        self._require(self.current == first, "the run starts from the current state")
        self._require(self.left is None or stop < self.left, "the run is of use for what is still to be reversed")
        self.tape = range(0)
        for step in range(first, stop):
            self.current = step
            self._count(1, 0, self.sizes.forward + self._cotangents(1))
            self.runs[step] += 1
        self.current = stop

    def _tape(self, first: int, stop: int, keep: int) -> None:
        self._require(self.current == first, "the run starts from the current state")
        self._require(keep >= 1, "something stays on the tape")
        self._require(not self.tape or self.tape.stop == first, "the tape has neighbouring steps")
        self._require(self.left is None or (stop == self.left and keep >= stop - first), "a leaf is reversed at once")
        for step in range(first, stop):
            self.current = step
            begin = max(self.tape.start if self.tape else step, step - keep + 1)
            self.tape = range(begin, step)
            wanted = self.left is None or step + 1 < stop
            self._count(wanted, 1, self.sizes.forward + self._cotangents(1))
            self.runs[step] += 1 if wanted or self.sizes.residual else 0
            self.tape = range(begin, step + 1)
        self.current = stop if self.left is None else None

    def _reverse(self, first: int, stop: int, _: int) -> None:
        self._require(self.left == stop, "steps are reversed from the last to the first")
        self._require(bool(self.tape) and self.tape.stop == stop and self.tape.start <= first, "the steps are taped")
        for step in range(stop - 1, first - 1, -1):
            self._count(0, 0, self.sizes.backward + self._cotangents(2))
            self.tape = range(self.tape.start, step)
        self.left = first

    def _save(self, state: int, slot: int) -> None:
        self._require(slot >= 0 and slot not in self.saved, "the slot is in memory, and free")
        self._require(state == self.current or state in self.tape, "the state is there")
        self.saved[slot] = state

    def _load(self, state: int, slot: int) -> None:
        held = self.saved if slot >= 0 else self.disk
        self._require(held.get(slot) == state, "the slot has the state")
        self._require(self.left is not None and state < self.left and not self.tape, "it is of use")
        self.transfers["read"] += slot < 0
        self.current = state
        self._count(0, 0, self._cotangents(1))

    def _free(self, state: int, slot: int) -> None:
        held = self.saved if slot >= 0 else self.disk
        self._require(held.get(slot) == state, "the slot has the state")
        del held[slot]

    def _write(self, state: int, slot: int) -> None:
        self._require(slot < 0 and slot not in self.disk, "the slot is on disk, and free")
        self._require(state == self.current or state in self.tape, "the state is there")
        self.transfers["written"] += 1
        self.disk[slot] = state

    # --- bytes -------------------------------------------------------------------------------------------------------

    def _cotangents(self, count: int) -> int:
        return 0 if self.left is None else count * self.sizes.cotangent

    def _count(self, states: int, residuals: int, more: int) -> None:
        """Count what is held, and states, residuals and bytes that are there beside it."""
        apart = {
            state for state in (*self.saved.values(), self.current) if state is not None and state not in self.tape
        }
        states += len(apart) + len(self.tape)
        residuals += len(self.tape)
        now = self.sizes.fixed + states * self.sizes.state + residuals * self.sizes.residual + more
        self.peak = max(self.peak, now)
        self._require(self.most is None or now <= self.most, f"{now} bytes are within {self.most}")

    def _require(self, holds: bool, what: str) -> None:
        if not holds:
            raise RefusedError(f"not so: {what}; {self.__dict__}")
