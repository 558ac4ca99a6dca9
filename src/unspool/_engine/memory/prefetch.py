"""What a backward pass will wait for next, and when a thread may begin with it.

A frame that a thread runs ahead is laid out as if it began when all that was recomputed before has been read. So it
needs no room of its own: whatever is read makes room for more of it. What a thread was promised counts as held until
its values are taken in, and where room is short it is the first to go. All of that follows from the order in which
values are read; when the thread runs changes nothing.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from unspool._engine.backends.values import owned
from unspool._engine.memory.ahead import FrameAhead, Recipe, next_reads, runs_anywhere
from unspool._engine.memory.recomputation import Frame, Saved
from unspool._engine.memory.requirement import Need

if TYPE_CHECKING:
    from unspool._engine.memory.replay import Replay

# About how many units are handed over at once, if there are as many that are read one after the other, and how many at
# least: to hand them over takes as long as a few small kernels.
_MANY = 8
_FEWEST = 4


class Lookout:
    """Lets threads of a pool run what the highest frame of a replay reads next.

    Attributes
    ----------
    due : int
        How little the replay has to hold before there is room to look again.
    """

    __slots__ = ("_ahead", "_own", "_passed", "_pool", "_work", "due")

    def __init__(self, work: Replay, pool: Any) -> None:
        self.due = -1
        self._work = work
        self._pool = pool
        self._ahead: FrameAhead | None = None
        self._own: set[int] = set()  # the units of the highest frame, by id
        self._passed: int | None = None  # the last unit of those that it uses now

    @property
    def nbytes(self) -> int:
        """The bytes that were promised to a thread."""
        return 0 if self._ahead is None else self._ahead.nbytes

    def begin(self) -> None:
        """Look for what a new highest frame reads."""
        self._passed = None
        self._own = {unit.id for unit in self._work.frames[0].order}
        self.look()

    def go_on_after(self, frame: Frame) -> None:
        """Look for what is read after what a frame has made, if it has made it for the highest one."""
        if len(self._work.frames) == 1:
            self._passed = max([unit.id for unit in frame.order])
            self.look()

    def look(self) -> None:
        """Let a thread run as much of what is read next as there is room for now."""
        self.due = -1
        work = self._work
        if not work.can_look_ahead():
            return
        if self._ahead is None:
            self._ahead = self._find(work.frames[0])
        ahead = self._ahead
        if ahead is None:
            return
        room = work.free_bytes() + ahead.nbytes
        ahead.grant(room)
        held, missing = work.held_bytes(), ahead.peaks[ahead.goal()] - room
        if missing > 0:
            self.due = held - missing

    def take_in(self) -> bool:
        """Take in what a thread has made, as far as there is room for it; tell whether there is anything.

        What did not come about is computed by who needs it, where an error belongs.
        """
        ahead, work = self._ahead, self._work
        if ahead is None:
            return False
        above = work.frames[0]
        work.unpin(above.recent)
        work.unpin(above.ahead)
        ahead.grant(work.free_bytes() + ahead.nbytes)
        work.held_bytes()
        is_there = ahead.result()
        if is_there:
            self._keep(ahead, above)
        self._leave(ahead)
        return is_there

    def drop(self) -> int:
        """Do without what is being made; return how many bytes that gave."""
        ahead = self._ahead
        if ahead is None:
            return 0
        ahead.drop()
        self._leave(ahead)
        return ahead.nbytes

    def _find(self, above: Frame) -> FrameAhead | None:
        """Return what a thread may run for a frame, if that is known and there will be room for all of it."""
        work = self._work
        reads = next_reads(above, self._own, work.find)
        missing = next(reads, None)
        if missing is None:
            return None
        frame = work.frame_for(missing, above)
        groups = max(0, _MANY // max(1, len(frame.order)) - 1)
        more = [node for group in islice(reads, groups) for node in group]
        for asked in [missing + more, missing] if more else [missing]:
            frame = work.frame_for(asked, above) if more else frame
            if len(frame.order) >= _FEWEST and all(map(runs_anywhere, frame.order)):
                recipe = Recipe(frame, asked, above, work.targets, work.find)
                peaks = self._lay_out(recipe, above)
                if peaks is not None:
                    held = {key for key in recipe.given if key in work.values}
                    for key in held:
                        work.values.add_reason(key)
                    return FrameAhead(self._pool, recipe, peaks, held)
        return None

    def _lay_out(self, recipe: Recipe, above: Frame) -> list[int] | None:
        """Decide what a frame keeps that runs ahead, and return what its first units take at most.

        ``None`` if there is no room for it even when what is held now has been read.
        """
        work, frame = self._work, recipe.frame
        need = Need(work.units, frame.order, above.uses)
        # What was read last stays until it is known what is read next.
        room = work.free_bytes() + work.values.nbytes_of(above.taped) - need.state - need.step
        peaks = recipe.peaks()
        if peaks[-1] > room and self._passed is not None:
            last = max([unit.id for unit in frame.order])
            room += work.reclaim(last, above, peaks[-1] - room, self._passed)
        inside = room - max(0, need.running() - work.still_to_come())
        while peaks[-1] > room:
            if need.steps == 1 or need.state + need.step > inside:
                return None
            work.lay_out(frame, need, inside)
            peaks = recipe.peaks()
            inside -= need.step  # a plan counts steps as if all were alike
        return peaks

    def _keep(self, ahead: FrameAhead, above: Frame) -> None:
        """Keep what a thread has made as if a frame had."""
        work, values = self._work, self._work.values
        self._passed = max(ahead.ran)
        for key in ahead.handed_over:
            if key in work.targets:
                work.targets[key].value = owned(ahead.made[key])
            elif above.uses.get(key) and key not in above.taped:  # it may have been there, and been read, meanwhile
                above.taped.add(key)
                values.add_reason(key)
        for after, keys in ahead.saved:
            for key in keys:
                values.add_reason(key)
            work.saved.append(Saved(after, keys, above))
        for key, value in ahead.made.items():
            if values.is_wanted(key):
                values.put(key, value, ahead.buffers[key])

    def _leave(self, ahead: FrameAhead) -> None:
        """Count what a thread has run, and keep nothing for it any more."""
        self._ahead, self.due = None, -1
        for key in ahead.held:
            self._work.values.drop_reason(key)
        self._work.count(ahead.ran, ahead.seconds)
        ahead.forget()
