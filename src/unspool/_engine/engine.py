"""The engine: computes the values of nodes, each once, and folds what it computed.

What is pending between the targets and nodes that have a value is a *piece*. The first time a piece of some structure
is asked for it runs node by node. The second time, or at once if its line is in a loop, it is described as a fragment,
gets a plan, and its site in the user's program is remembered with a matcher. From then on the matcher recognises it and
the plan runs it: that is what an iteration of a loop costs. Pieces are folded into calls later (`sealing`).

Values that depend on placeholders are never kept: they belong to one binding.
"""

from __future__ import annotations

import contextvars
import copy
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any
from weakref import ref

import numpy as np

from unspool._engine import interpreter
from unspool._engine.binding import bind_placeholders
from unspool._engine.held import TINY, Loose
from unspool._engine.interpreter import Pass, ValueDroppedError, bytes_of, collect, give_to_handles, run, take_from_slab
from unspool._engine.ledger import Ledger
from unspool._engine.levels import Levels
from unspool._engine.matching import LARGE, Site, Sites, make_matcher
from unspool._engine.memory import available_bytes
from unspool._engine.numpy_backend import POOL, clear_caches, owned
from unspool._engine.observe import current_observer
from unspool._engine.plan_cache import PlanCache
from unspool._engine.repeated import run_repeated
from unspool._engine.replay import Replay
from unspool._engine.sealing import FoldQueue, Piece, describe_piece
from unspool._engine.statistics import STATISTICS
from unspool._engine.structure import can_be_sealed, structure_of
from unspool._fragments.call import Call, Projection, link_of
from unspool._graph import Bundle, Node
from unspool._ops.leaf import PLACEHOLDER
from unspool._tensor import Tensor
from unspool.errors import BudgetError

# Pieces of at most this many nodes are described as a whole, larger ones are not: compiling takes time.
_LARGEST_PIECE = 512

# Pieces of at least this many nodes are searched for repetition; below, the search costs more than it gains.
_SMALLEST_LOOP = 2000

# Structures of pieces that are remembered: those seen once, and those that have a plan.
_MOST_STRUCTURES = 1 << 14
_MOST_DESCRIPTIONS = 1 << 11


class Evaluator:
    """Evaluates tensors; the default one serves ``eval()``, ``float()`` and everything else that computes."""

    def __init__(self) -> None:
        self.statistics = STATISTICS
        self.plans = PlanCache(self.statistics)
        self.sites = Sites()
        self.levels = Levels()
        self._seen: OrderedDict[int, None] = OrderedDict()
        self._visits: OrderedDict[tuple[int, int], int] = OrderedDict()
        self._described: OrderedDict[tuple[Any, ...], tuple[Site, list[int]]] = OrderedDict()
        self._hold_nothing()

    def _hold_nothing(self, beside: FoldQueue | None = None) -> None:
        self.queue = FoldQueue(self._on_fold, self._on_stay, beside)
        self.ledger = Ledger(available_bytes() // 2, self.queue.pieces)

    def beside(self) -> Evaluator:
        """Return one that knows the same programs, and counts and lets go what it holds by itself."""
        other = copy.copy(self)
        other._hold_nothing(self.queue)
        return other

    # -- values --

    def evaluate(self, targets: Sequence[Node], bindings: Mapping[Any, Any] | None = None) -> list[Any]:
        """Return the values of the targets as read-only arrays, computing each node that needs it once."""
        if bindings:
            return self._evaluate_bound(targets, bindings)
        while missing := {t.id: t for t in targets if t.value is None}:
            self.compute(tuple(missing.values()))
            # Looked at once: another thread may let values go at any time.
            values = [t.value for t in targets]
            if not any(value is None for value in values):
                return [hand_out(value) for value in values]
        return [hand_out(t.value) for t in targets]

    def compute(self, missing: Sequence[Node]) -> None:
        """Give each of some tensors without value its value."""
        self.statistics.evaluations += 1
        observer = current_observer()
        if observer is None:
            if type(missing[0]) is Projection and len(missing) == 1 and self._run_call_of(missing[0]):
                return
            found = self.sites.find(missing)
            if found is not None and self._run_site(*found):
                return
        while True:
            work = collect(missing)
            if not work.order:
                return
            try:
                if observer is None and self._is_too_large(work):
                    work.give_back()
                    if not self._made_room(work):
                        self.replay(missing)
                        return
                    continue  # what is missing may have become more
                run_quietly(self._run_pass, work, missing, observer)
                return
            except ValueDroppedError:
                # What has been computed so far stays.
                missing = [t for t in missing if t.value is None]
            finally:
                work.give_back()

    def _run_site(self, site: Site, inputs: tuple[Node, ...], outputs: tuple[Node, ...]) -> bool:
        """Run a piece that was recognised; a failure is left to the pass node by node, which finds the culprit."""
        plan = site.plan
        values = [i.value for i in inputs]
        ledger = self.ledger
        held = ledger.noted
        is_noted = site.is_large or ledger.is_strict
        if is_noted:
            if held + site.peak > ledger.limit:
                try:
                    ledger.make_room(plan)
                except BudgetError:
                    return False  # in one go it does not fit; bit by bit it may
                held = ledger.noted
            started = perf_counter()
        try:
            # `run_quietly`, without the call.
            results = plan.run(*values) if _is_quiet.get() else _quiet.context.run(plan.run, *values)
        except Exception:
            return False
        for node, value in zip(outputs, results, strict=False):
            node.value = value
        statistics = self.statistics
        statistics.plan_hits += 1
        statistics.kernel_calls += plan.kernels
        ledger.noted = held + site.nbytes
        if site.worth_folding:
            self.queue.add(site, inputs, outputs, results[len(outputs) :])
        elif is_noted:
            ledger.enter(Loose(outputs, [i.id for i in inputs]))
        if is_noted:
            plan.seconds = perf_counter() - started
            ledger.steps += 1
            ledger.kernels += plan.kernels
            if ledger.is_strict:
                ledger.note_peak(held + site.peak)
        return True

    def _run_call_of(self, projection: Node) -> bool:
        """Run the call that a tensor is an output of, if all its inputs have values and it does not fail."""
        if take_from_slab(projection):
            return True
        call = link_of(projection)[0]
        arguments = [i.value for i in call.inputs]
        for argument in arguments:
            if argument is None:
                return False
        plan = call.plan
        try:
            results = run_quietly(plan.run, *arguments)
        except Exception:
            return False
        call.value = results[plan.fragment.results :]
        give_to_handles(call, results)
        self.statistics.plan_hits += 1
        self.statistics.kernel_calls += plan.kernels
        del results, arguments
        self._enter_calls([call])
        return True

    def _run_pass(self, work: Pass, missing: Sequence[Node], observer: Any) -> None:
        targets = {t.id for t in missing}
        count = len(work.order)
        if observer is None and not work.has_calls:
            if count >= _SMALLEST_LOOP:
                if run_repeated(work.order, work.uses, targets, self.plans.plan_for):
                    self.statistics.kernel_calls += count
                    return
            elif (
                1 < count <= _LARGEST_PIECE
                and can_be_sealed(work.order)
                and self._run_described(work, missing, targets)
            ):
                return
        self.statistics.kernel_calls += count
        self.ledger.kernels += count
        calls = [node for node in work.order if type(node) is Call] if work.has_calls else []
        nodes, read = self._loose_step(work, missing)
        run(work, targets | work.bundles, observer)
        self._enter_calls(calls)
        if nodes:
            self._enter_loose(nodes, read)

    def _run_described(self, work: Pass, missing: Sequence[Node], targets: set[int]) -> bool:
        """Run a piece by plan if one of its structure ran before; tell whether it did.

        A piece that failed is left to the pass node by node, which finds the culprit.
        """
        order = work.order
        kept = interpreter.kept_nodes(order, work.uses, targets)
        structure, inputs = structure_of(order, kept)
        if any(type(node) is Bundle for node in (*kept, *inputs)):
            return False
        known = self._described.get(structure)
        if known is None:
            if not self._was_seen(structure) and not self._is_a_loop(missing[0]):
                return False
            known = self._describe(work, missing, kept)
            self._described[structure] = known
            if len(self._described) > _MOST_DESCRIPTIONS:
                self._described.popitem(last=False)
        site, positions = known
        # Again: Python moves the position of a call within its line when it specialises it.
        self.sites.add(missing, site)
        return self._run_site(site, tuple(inputs), tuple([order[i] for i in positions]))

    def _was_seen(self, structure: tuple[Any, ...]) -> bool:
        """Whether a piece of this structure was evaluated before; a rare mistake costs a plan that is used once."""
        number = hash(structure)
        if number in self._seen:
            return True
        self._seen[number] = None
        if len(self._seen) > _MOST_STRUCTURES:
            self._seen.popitem(last=False)
        return False

    def _is_a_loop(self, target: Node) -> bool:
        """Whether the line that made a target was evaluated before, once or twice: it is in a loop.

        The first iterations of a loop often look different from the rest. A line that always looks different would make
        plans in vain, so later visits do not count.
        """
        line = (id(target.code), target.lasti)
        visits = self._visits.get(line, 0)
        self._visits[line] = visits + 1
        if len(self._visits) > _MOST_STRUCTURES:
            self._visits.popitem(last=False)
        return 1 <= visits <= 2

    def _describe(self, work: Pass, missing: Sequence[Node], kept: list[Node]) -> tuple[Site, list[int]]:
        """Make the plan of a piece and remember its site; also return where in the piece its outputs are."""
        order = work.order
        captured, residuals, extra = describe_piece(order, kept, keep_residuals=True)
        plan = self.plans.plan_for(captured.fragment, tuple(i.shape for i in captured.inputs))
        origins = tuple((node.code, node.lasti) for node in order)
        outputs = [*kept, *residuals]
        plan.prepare()
        match = make_matcher(missing, order, captured.inputs, outputs, work.uses, len(kept))
        site = Site(match, plan, origins + origins[-1:] * extra, worth_folding=len(order) > len(kept))
        position = {node.id: i for i, node in enumerate(order)}
        return site, [position[node.id] for node in outputs]

    def _evaluate_bound(self, targets: Sequence[Node], bindings: Mapping[Any, Any]) -> list[Any]:
        values, sizes = bind_placeholders(bindings)
        bound: dict[int, Any] = dict(values)
        work = collect([t for t in targets if t.value is None and t.id not in values], values)
        run_quietly(interpreter.run_bound, work, {t.id for t in targets}, bound, sizes, current_observer())
        return [hand_out(owned(bound[t.id]) if t.id in bound else t.value) for t in targets]

    # -- memory --

    def replay(self, targets: Sequence[Node], *, unlimited: bool = False) -> Replay:
        """Compute values within the budget: what was let go is run again just before it is needed."""
        ledger = self.ledger
        with ledger.lock:
            ledger.place_waiting()
            work = Replay(ledger, targets, self.levels.marks, None if unlimited else ledger.limit)
            run_quietly(work.run)
            ledger.enter(Loose([t for t in targets if isinstance(t, Tensor)], ()))
            ledger.add_replay(work)
        return work

    def _is_too_large(self, work: Pass) -> bool:
        """Whether a pass does not fit the budget, by what all its nodes together take."""
        ledger = self.ledger
        if not (ledger.is_strict or ledger.has_dropped or ledger.noted > ledger.limit // 2):
            return False
        if any(node.op is PLACEHOLDER for node in work.order):
            return False  # it has no value, which the pass finds
        peak = interpreter.peak_bytes(work)
        if ledger.noted + peak > ledger.limit and ledger.held_bytes() + peak > ledger.limit:
            return True
        ledger.note_peak(ledger.noted + peak)
        return False

    def _made_room(self, work: Pass) -> bool:
        """Make room for a pass that looks like a step of a loop; tell whether there is enough now.

        Others, like gradients, are not helped by that: they need what would have to go.
        """
        if work.has_calls or len(work.order) > _LARGEST_PIECE or not can_be_sealed(work.order):
            return False
        ledger = self.ledger
        needed = interpreter.peak_bytes(work)
        before = ledger.noted
        work.order.clear()  # what is referred to counts as wanted
        try:
            ledger.make_room(needed=needed)
        except BudgetError:
            return False
        return ledger.noted < before and ledger.noted + needed <= ledger.limit

    def _enter_calls(self, calls: Sequence[Call]) -> None:
        """Note calls that ran, with the residuals they keep."""
        ledger = self.ledger
        for call in calls:
            ledger.noted += call.plan.output_bytes
            ledger.enter(call)

    def _loose_step(self, work: Pass, missing: Sequence[Node]) -> tuple[list[ref[Node]], list[int]]:
        """Return the nodes of a pass that may be worth letting go later, and what it reads.

        By weak references: what is referred to counts as wanted.
        """
        if not self.ledger.is_strict and not any(bytes_of(t) >= LARGE for t in missing):
            return [], []
        inside = work.uses
        read = [i.id for node in work.order if type(node) is not Projection for i in node.inputs if i.id not in inside]
        return [ref(node) for node in work.order if isinstance(node, Tensor) and bytes_of(node) > TINY], read

    def _enter_loose(self, nodes: list[ref[Node]], read: list[int]) -> None:
        ledger = self.ledger
        alive = [node for node in [reference() for reference in nodes] if node is not None]
        step = Loose([node for node in alive if node.value is not None], read)
        del alive
        ledger.noted += step.nbytes
        ledger.steps += 1
        ledger.enter(step)

    def _on_fold(self, call: Call, piece: Piece) -> None:
        if piece.slab is None:
            self.ledger.enter(call)
        else:
            self.ledger.fold_piece(piece.slab, call)

    def _on_stay(self, piece: Piece) -> None:
        """Note a piece that is not folded: its values, those for derivatives too, are with its nodes."""
        if piece.slab is None:
            self.ledger.enter(piece)

    def kept_bytes(self) -> int:
        """Return the bytes that residuals of live calls take."""
        return self.ledger.slab_bytes()

    def pooled_bytes(self) -> int:
        """Return the bytes of arrays that are kept to be used again."""
        return POOL.nbytes

    def clear(self) -> None:
        """Forget plans, sites and structures; values and what they mean stay as they are."""
        clear_caches()
        self.plans.clear()
        self.sites.clear()
        self.queue.clear()
        self._seen.clear()
        self._described.clear()
        self._visits.clear()


class _QuietContext(threading.local):
    """A context per thread in which NumPy does not warn: infinities of branches not taken are no news.

    Entering ``numpy.errstate`` costs more than a small kernel; running in a context where it was entered does not.
    """

    def __init__(self) -> None:
        self.context = contextvars.Context()
        self.context.run(np.seterr, all="ignore")
        self.context.run(_is_quiet.set, True)


_is_quiet: contextvars.ContextVar[bool] = contextvars.ContextVar("unspool_is_quiet", default=False)
_quiet = _QuietContext()


def run_quietly(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function where NumPy does not warn."""
    if _is_quiet.get():  # a kernel of the user's evaluates tensors itself
        return function(*arguments)
    return _quiet.context.run(function, *arguments)


def hand_out(value: Any) -> Any:
    """Return a value for the user: read-only."""
    if value.flags.writeable:
        value.setflags(write=False)
    return value
