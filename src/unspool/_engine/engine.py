"""The engine: computes the values of nodes, each once, and folds what it computed.

What is pending between the targets and nodes that have a value is a *piece*. The first time a piece of some structure
is asked for it is described as a fragment and, unless it has factorisations, runs node by node. The second time it gets
a plan, and its site in the user's program is remembered with a matcher. From then on the matcher recognises it and the
plan runs it: that is what an iteration of a loop costs. Pieces are folded into calls later (`fold_queue`), whichever
way they ran, so what a program folds to does not depend on what ran before it.

Values that depend on placeholders are never kept: they belong to one binding.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container, Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any
from weakref import ref

from unspool import _core
from unspool._activity import ACTIVITY
from unspool._core import Piece
from unspool._engine import interpreter
from unspool._engine.backends.values import owned
from unspool._engine.costs import kernels_of
from unspool._engine.folding.by_line import ByLine
from unspool._engine.folding.fold_queue import FoldQueue, make_site
from unspool._engine.folding.matching import LARGE, Site, Sites, make_matcher
from unspool._engine.folding.outcomes import Outcomes, Why
from unspool._engine.interpreter import Pass, ValueDroppedError, bytes_of, collect, give_to_handles, run, take_from_slab
from unspool._engine.levels import Levels
from unspool._engine.memory.cached import TINY, Loose
from unspool._engine.memory.ledger import Ledger
from unspool._engine.memory.process_limits import available_bytes
from unspool._engine.observe import OBSERVER, current_observer
from unspool._engine.plan_cache import PlanCache
from unspool._engine.quiet import IS_QUIET, quiet_context, run_quietly
from unspool._engine.structure import can_be_sealed, gathers, note_recorded_again, structure_of
from unspool._fragments.call import Call, Projection, call_of, was_evaluated
from unspool._graph import Bundle, Node, SizedParams
from unspool._ops.leaf import PLACEHOLDER
from unspool._statistics import STATISTICS
from unspool._sweeps import is_swept
from unspool._tensor import Tensor
from unspool.errors import BudgetError, UnknownSizeError

if TYPE_CHECKING:
    from unspool._engine.memory.replay import Replay
    from unspool._engine.plan import Plan

# Pieces of at most this many nodes are described as a whole, larger ones are not: compiling takes time.
LARGEST_PIECE = 512

# Pieces of at least this many nodes are searched for repetition; below, the search costs more than it gains.
SMALLEST_LOOP = 1000

# What is not clearly a step of a loop but takes at most this part of the budget is run like one.
_STEP_SHARE = 4

# Where the frames of a replay take more than was planned, they are planned for this part of the room.
_SHORTER = 0.85

# Structures of pieces that are remembered.
_MOST_STRUCTURES = 1 << 11

# Structures of one line that are described: a line that always looks different (an index that counts) would never end.
MOST_OF_A_LINE = 64


class Evaluator:
    """Evaluates tensors; the default one serves ``eval()``, ``float()`` and everything else that computes."""

    def __init__(self) -> None:
        self.statistics = STATISTICS
        self.plans = PlanCache(self.statistics)
        self.sites = Sites()
        self.levels = Levels()
        self.sweeps: Any = None  # what the sweeps of derivatives keep with an engine
        self._visits: ByLine[int] = ByLine()
        self._cuts: ByLine[int] = ByLine()
        self._described: OrderedDict[tuple[Any, ...], Site] = OrderedDict()
        self.outcomes = Outcomes()
        self.smallest_loop = SMALLEST_LOOP
        self._hold_nothing()

    def _hold_nothing(self, beside: FoldQueue | None = None) -> None:
        self.queue = FoldQueue(self._on_fold, self._on_stay, self._describe_cut, beside)
        self.ledger = self.queue.ledger = Ledger(available_bytes() // 2, self.queue.pieces)
        self.runner = _core.runner(self.sites.lines, self.ledger, self.queue, OBSERVER, IS_QUIET, quiet_context)

    def beside(self) -> Evaluator:
        """Return one that knows the same programs, and counts and evicts what it holds by itself."""
        other = object.__new__(Evaluator)
        vars(other).update(vars(self))
        other._hold_nothing(self.queue)
        return other

    # -- values --

    def evaluate(self, targets: Sequence[Node], bindings: Mapping[Any, Any] | None = None) -> list[Any]:
        """Return the values of the targets as read-only arrays, computing each node that needs it once."""
        if bindings:
            return self._evaluate_bound(targets, bindings)
        while (values := _held_values(targets)) is None:
            missing = {t.id: t for t in targets if t.value is None}
            self.compute(tuple(missing.values()))
        return values

    def compute(self, missing: Sequence[Node]) -> None:
        """Give each of some tensors without value its value."""
        if self.runner.run(missing):  # the steady state of a loop
            return
        if self.ledger.is_strict:
            with self.ledger.lock:  # threads that share a budget take turns, or together they would exceed it
                self._compute([t for t in missing if t.value is None])
        else:
            self._compute(missing)

    def _compute(self, missing: Sequence[Node]) -> None:
        if not missing:
            return
        self.statistics.evaluations += 1
        observer = current_observer()
        if observer is None:
            if type(missing[0]) is Projection and self._run_call_of(missing):
                return
            found = self.sites.find(missing)
            if found is not None and self._run_site(*found):
                return
        has_made_room = has_looked = False
        while True:
            work = collect(missing, stop_at_lost=observer is None and self.ledger.has_dropped)
            if not work.order:
                return
            if not has_looked and observer is None and self._may_have_loops(work):
                work.give_back()
                work.order.clear()  # what is referred to counts as held
                self.fold_unread(missing, derivatives=False)
                has_looked = True
                continue
            # Calls had kept some, or another thread has computed them by now: looked at once.
            missing = [t for t in missing if t.value is None]
            try:
                if not missing:
                    return
                if observer is None and (work.reads_lost or self._is_too_large(work)):
                    work.give_back()
                    piece = None if any(map(was_evaluated, missing)) else self._describe(work, missing)
                    if not work.reads_lost and not has_made_room and self._made_room(work):
                        has_made_room = True
                        continue  # what is missing may have become more
                    self._replay_pass(work, missing, piece)
                    return
                run_quietly(self._run_pass, work, missing, observer)
                return
            except ValueDroppedError:
                # What has been computed so far stays.
                missing = [t for t in missing if t.value is None]
            finally:
                work.give_back()

    def _replay_pass(self, work: Pass, missing: Sequence[Node], piece: Piece | None) -> None:
        """Compute what a pass would have, and what is missing for it, bit by bit within the budget."""
        found = {t.id: t for t in missing}
        if len(work.order) <= LARGEST_PIECE:
            # What the next steps read. What a sweep needed of the program that it differentiates is not for them, and
            # what takes much of the budget is not the state of a loop.
            level = self.levels.of(missing[0])
            kept = interpreter.kept_nodes(work.order, work.uses, found)
            kept = [n for n in kept if isinstance(n, Tensor) and self.levels.of(n) == level]
            if sum(map(bytes_of, kept)) <= self.ledger.limit // _STEP_SHARE:
                found |= {node.id: node for node in kept}
            del kept
        read = _read_from_outside(work.order)
        work.order.clear()  # what is referred to counts as wanted
        self.replay(list(found.values()), read)
        if piece is not None:
            self.queue.add_loose(piece)
            self.ledger.line.refer([operand.id for operand in piece.inputs])

    def _run_site(self, site: Site, inputs: tuple[Node, ...], outputs: tuple[Node, ...], values: Sequence[Any]) -> bool:
        """Run a piece that was recognised; a failure is left to the pass node by node, which finds the culprit."""
        plan = site.plan
        ledger = self.ledger
        held = noted = ledger.noted
        is_noted = site.is_large or ledger.is_strict
        if is_noted:
            if held + site.peak > ledger.ceiling:
                try:
                    held = ledger.make_room(plan)
                except BudgetError:
                    return False  # in one go it does not fit; bit by bit it may
                noted = ledger.noted
            started = perf_counter()
        try:
            # `run_quietly`, without the call.
            results = plan.run(*values) if IS_QUIET.get() else quiet_context().run(plan.run, *values)
        except Exception:
            return False
        for node, value in zip(outputs, results, strict=False):
            node.value = value
        statistics = self.statistics
        statistics.plan_hits += 1
        statistics.kernel_calls += plan.kernels
        ledger.noted = noted + site.nbytes
        self.queue.add(site, inputs, outputs, results[site.results :])
        if is_noted:
            plan.note_time(perf_counter() - started)
            ledger.steps += 1
            ledger.kernels += plan.kernels
            if ledger.is_strict:
                ledger.note_peak(held + site.peak)
        return True

    def _run_call_of(self, projections: Sequence[Node]) -> bool:
        """Run the call that tensors are outputs of, if it is one, all its inputs have values and it does not fail."""
        call = call_of(projections[0])
        for projection in projections[1:]:
            if type(projection) is not Projection or call_of(projection) is not call:
                return False
        if all(map(take_from_slab, projections)):
            return True
        arguments = [i.value for i in call.inputs]
        for argument in arguments:
            if argument is None:
                return False
        plan, ledger = call.plan, self.ledger
        if ledger.is_strict and not self._has_room(plan):
            return False
        function, given = (_run_with_given(), (call, arguments)) if call.value else (plan.run, arguments)
        started = perf_counter()
        try:
            results = run_quietly(function, *given)
        except Exception:
            return False
        plan.note_time(perf_counter() - started)
        call.value = results[plan.fragment.results :]
        give_to_handles(call, results)
        self.statistics.plan_hits += 1
        self.statistics.kernel_calls += plan.kernels
        ledger.kernels += plan.kernels
        del results, arguments
        self._enter_calls([call])
        return True

    def _has_room(self, plan: Plan) -> bool:
        """Make room for a run of a plan, if there is not enough; tell whether there is now."""
        ledger = self.ledger
        held = ledger.noted
        if held + plan.peak_bytes > ledger.ceiling:
            try:
                held = ledger.make_room(plan)
            except BudgetError:
                return False  # in one go it does not fit; bit by bit it may
        ledger.note_peak(held + plan.peak_bytes)
        return True

    def _run_pass(self, work: Pass, missing: Sequence[Node], observer: Any) -> None:
        targets = {t.id for t in missing}
        count = len(work.order)
        piece = None
        if observer is None and not work.has_calls:
            piece = self._describe(work, missing)
            if piece is not None and piece.site.is_ready and self._run_piece(piece, work, missing):
                return
        elif observer is None:
            self.outcomes.note(missing[0], Why.READS_CALLS, work.order)
        if piece is not None:
            targets |= {work.order[i].id for i in piece.site.ahead}
        kernels = sum([kernels_of(node) for node in work.order if type(node) is not Projection])
        self.statistics.kernel_calls += kernels
        self.ledger.kernels += kernels
        calls = [node for node in work.order if type(node) is Call] if work.has_calls else []
        try:
            nodes, read = self._loose_step(work, missing)
        except UnknownSizeError:  # there is a placeholder without a value, which the pass is going to name
            nodes, read = [], []
        if ACTIVITY.lookers and count > 1:
            from unspool._engine.work import pass_as_work

            values: dict[int, Any] = {}
            with ACTIVITY.doing(pass_as_work(work.order, values, is_backward=is_swept(missing[0].id))):
                run(work, targets | work.bundles, observer, values)
        else:
            run(work, targets | work.bundles, observer)
        self._enter_calls(calls)
        if piece is not None:
            self.queue.add_loose(piece)
            read += [operand.id for operand in piece.inputs]
        if nodes:
            self._enter_loose(nodes, read)

    def _describe(self, work: Pass, missing: Sequence[Node]) -> Piece | None:
        """Return the record of a piece; its site has a plan if one of its structure was met before.

        None for a piece that is not worth it.
        """
        order = work.order
        if work.has_calls or not 1 < len(order) <= LARGEST_PIECE or not can_be_sealed(order):
            self.outcomes.note(missing[0], _why_not(work), order)
            return None
        kept = interpreter.kept_nodes(order, work.uses, {t.id for t in missing})
        structure, inputs = structure_of(order, kept, missing)
        if any(type(node) is Bundle for node in (*kept, *inputs)):
            self.outcomes.note(missing[0], Why.HELD_FACTORS, order)
            return None
        note_recorded_again(order, inputs)
        ahead: frozenset[int] = frozenset()
        while (site := self._described.get((structure, missing[0].code, missing[0].line))) is not None and site.again:
            # What the steps after this one record again is a result of it, though nobody asks for it yet.
            ahead |= site.again
            asked = {node.id for node in kept}
            kept += [order[i] for i in sorted(site.again) if order[i].id not in asked]
            structure, inputs = structure_of(order, kept, missing)
        if site is None:
            if not self._may_describe(missing[0]):
                self.outcomes.note(missing[0], Why.MANY_STRUCTURES, order)
                return None
            site = self._make_site(order, kept, structure, missing[0], ahead=ahead)
            if site.has_bundles:
                site.make_plan()  # what a factorisation gave is kept for derivatives from the first time on
        else:
            site.make_plan()
            site.is_known = True
        return _core.piece(site, tuple(inputs), tuple([order[i] for i in site.positions]), ())

    def _make_site(
        self,
        order: list[Node],
        kept: list[Node],
        structure: Any,
        target: Node,
        literals: Container[int] = (),
        ahead: frozenset[int] = frozenset(),
    ) -> Site:
        site = make_site(order, kept, self.plans.plan_for, literals, ahead)
        # Another line that asks for the same has a site of its own: it says where its ops were recorded.
        self._described[structure, target.code, target.line] = site
        if len(self._described) > _MOST_STRUCTURES:
            self._described.popitem(last=False)
        return site

    def _may_have_loops(self, work: Pass) -> bool:
        """Whether it is worth looking for loops that were not read."""
        return len(work.order) >= self.smallest_loop and not work.has_calls

    def fold_unread(self, targets: Sequence[Node], *, derivatives: bool) -> None:
        """Fold the loops that were recorded without being read among what has to run for some tensors.

        If a sweep recorded some of it, only for who differentiates ``derivatives``: else they are read once, by nodes,
        which would have to be given all that steps keep to themselves.
        """
        self.queue.fold_found(lambda: self._find_unread(targets, derivatives))

    def _find_unread(self, targets: Sequence[Node], derivatives: bool) -> list[Piece]:
        from unspool._engine.folding.unread import cut_into_pieces

        # What was evicted is there as far as the program goes: which loops are found does not depend on a budget.
        missing = [target for target in targets if target.value is None and not was_evaluated(target)]
        work = collect(missing, stop_at_lost=self.ledger.has_dropped)
        work.give_back()
        if not self._may_have_loops(work) or (not derivatives and any(is_swept(node.id) for node in work.order)):
            return []
        pieces = cut_into_pieces(work, {t.id for t in missing}, self._describe_part)
        if not pieces:
            self.outcomes.note(missing[0], Why.NOT_REPEATED, work.order)
        return pieces

    def _describe_part(self, order: list[Node], kept: list[Node], literals: frozenset[int]) -> Site:
        """Return the site of a part of a graph, given what is needed of it and which inputs are constants."""
        key, site = self._part_of(order, kept, literals)
        return self._make_site(order, kept, key, order[-1], literals) if site is None else site

    def _describe_cut(self, order: list[Node], kept: list[Node], literals: frozenset[int]) -> Site | None:
        """Return the site of what is left of a piece; None if its line always leaves something else."""
        key, site = self._part_of(order, kept, literals)
        if site is None:
            cuts = (self._cuts.get(order[-1]) or 0) + 1
            self._cuts.put(order[-1], cuts)
            if cuts <= MOST_OF_A_LINE:
                site = self._make_site(order, kept, key, order[-1], literals)
        return site

    def _part_of(self, order: list[Node], kept: list[Node], literals: frozenset[int]) -> tuple[Any, Site | None]:
        """Return what makes a part of a graph the same as another one, and its site, if it is known."""
        structure, inputs = structure_of(order, kept, kept)
        key = (structure, tuple([node.id in literals for node in inputs]))
        return key, self._described.get((key, order[-1].code, order[-1].line))

    def _run_piece(self, piece: Piece, work: Pass, missing: Sequence[Node]) -> bool:
        """Run a piece by the plan of its site; a failure is left to the pass node by node, which finds the culprit."""
        site, order = piece.site, work.order
        outputs = tuple([order[i] for i in site.positions])
        if site.is_known:
            if site.match is None:
                site.plan.prepare()
                site.match = make_matcher(
                    missing, order, piece.inputs, outputs, work.uses, site.results, site.apart.constants, site.ahead
                )
            self.sites.add(missing, site)
        return self._run_site(site, piece.inputs, outputs, [i.value for i in piece.inputs])

    def _may_describe(self, target: Node) -> bool:
        """Whether the line that made a target has not yet shown more structures than are worth a description."""
        visits = (self._visits.get(target) or 0) + 1
        self._visits.put(target, visits)
        return visits <= MOST_OF_A_LINE

    def _evaluate_bound(self, targets: Sequence[Node], bindings: Mapping[Any, Any]) -> list[Any]:
        from unspool._engine.binding import bind_placeholders

        values, sizes = bind_placeholders(bindings)
        bound: dict[int, Any] = dict(values)
        work = collect([t for t in targets if t.value is None and t.id not in values], values)
        run_quietly(interpreter.run_bound, work, {t.id for t in targets}, bound, sizes, current_observer())
        return [hand_out(owned(bound[t.id]) if t.id in bound else t.value) for t in targets]

    # -- memory --

    def replay(self, targets: Sequence[Node], read: Sequence[int] = (), *, unlimited: bool = False) -> Replay:
        """Compute values within the budget: what was evicted is recomputed just before it is needed.

        ``read`` are the ids of what the nodes that were never evaluated before refer to.
        """
        from unspool._engine.memory.replay import Replay

        ledger = self.ledger
        limit = None if unlimited else ledger.ceiling
        with ledger.busy():
            ledger.place_waiting()
            room, is_careful = limit, False
            while True:
                work = Replay(ledger, targets, self.levels.now(), limit, room, is_careful=is_careful)
                try:
                    self._run_replay(work, targets)
                    break
                except BudgetError:
                    # What is held side by side may take more than a survey of long frames saw. Shorter ones take less.
                    ledger.add_replay(work, is_done=False)
                    if room is not None and is_careful:
                        room = int(_SHORTER * room)
                    if room is None or work.need is None or not work.need.steps or room < work.need.least():
                        raise
                    is_careful = True
            ledger.enter(Loose([t for t in targets if isinstance(t, Tensor)], read))
            ledger.add_replay(work)
        return work

    def _run_replay(self, work: Replay, targets: Sequence[Node]) -> None:
        if not ACTIVITY.lookers:
            run_quietly(work.run)
            return
        from unspool._engine.work import replay_as_work

        with ACTIVITY.doing(replay_as_work(work, is_backward=is_swept(targets[0].id))):
            run_quietly(work.run)

    def _is_too_large(self, work: Pass) -> bool:
        """Whether a pass does not fit the budget, by what all its nodes together take."""
        ledger = self.ledger
        if not (ledger.is_strict or ledger.has_dropped or ledger.noted > ledger.limit // 2):
            return False
        if any(node.op is PLACEHOLDER or type(node.attributes) is SizedParams for node in work.order):
            return False  # it has no value or no size, which the pass finds
        peak = interpreter.peak_bytes(work)
        held = ledger.noted
        if held + peak > ledger.ceiling:
            held = ledger.held_bytes()  # during a replay all that is free counts as noted
            if held + peak > ledger.ceiling:
                return True
        ledger.note_peak(held + peak)
        return False

    def _made_room(self, work: Pass) -> bool:
        """Make room for a pass that looks like a step of a loop; tell whether there is enough now.

        Others, like gradients, are not helped by that: they need what would have to go.
        """
        ledger = self.ledger
        needed = interpreter.peak_bytes(work)
        little = ledger.limit // _STEP_SHARE
        is_step = not work.has_calls and len(work.order) <= LARGEST_PIECE and can_be_sealed(work.order)
        if needed > little and not (is_step and self._read_from_below(work.order) <= little):
            return False
        before = ledger.noted
        work.order.clear()  # what is referred to counts as wanted
        try:
            ledger.make_room(needed=needed)
        except BudgetError:
            return False
        return ledger.noted < before and ledger.noted + needed <= ledger.ceiling

    def _read_from_below(self, order: Sequence[Node]) -> int:
        """Return the bytes that nodes read of what they differentiate: much for a gradient, nothing for a step."""
        floor = self.levels.floor(order[-1])
        operands = {operand.id: operand for node in order for operand in node.inputs if operand.id < floor}
        return sum(
            [operand.value.nbytes for operand in operands.values() if operand.inputs and operand.value is not None]
        )

    def _enter_calls(self, calls: Sequence[Call]) -> None:
        """Note calls that ran, with the residuals they keep."""
        ledger = self.ledger
        ledger.steps += bool(calls)
        for call in calls:
            ledger.noted += call.plan.output_bytes
            ledger.enter(call)

    def _loose_step(self, work: Pass, missing: Sequence[Node]) -> tuple[list[ref[Node]], list[int]]:
        """Return the nodes of a pass that may be worth evicting later, and what it reads.

        By weak references: what is referred to counts as wanted.
        """
        if not self.ledger.is_strict and not any(bytes_of(t) >= LARGE for t in missing):
            return [], []
        loose = [node for node in work.order if not isinstance(node, Call | Projection)]
        read = _read_from_outside(loose)
        return [ref(node) for node in loose if isinstance(node, Tensor) and bytes_of(node) > TINY], read

    def _enter_loose(self, nodes: list[ref[Node]], read: list[int]) -> None:
        ledger = self.ledger
        alive = [node for node in [reference() for reference in nodes] if node is not None]
        step = Loose([node for node in alive if node.value is not None], read)
        del alive
        ledger.noted += step.nbytes
        ledger.steps += 1
        ledger.enter(step)

    def _on_fold(self, call: Call, piece: Piece) -> None:
        ledger = self.ledger
        if piece.is_loose:
            ledger.fold_loose(call)
        elif piece.slab is not None:
            ledger.note_folded(call, piece.slab)
        else:
            if ledger.is_tracking:
                ledger.enter(call)  # other calls are found when it matters
            left = [node for index in piece.site.apart.results if (node := piece.outputs[index]()) is not None]
            if left:
                ledger.enter(Loose(left, ()))

    def _on_stay(self, piece: Piece) -> None:
        """Note a piece that is not folded: its values, those for derivatives too, are with its nodes."""
        if piece.slab is None and not piece.is_loose:
            self.ledger.enter(piece)

    def kept_bytes(self) -> int:
        """Return the bytes that residuals of live calls take."""
        return self.ledger.slab_bytes()

    def pooled_bytes(self) -> int:
        """Return the bytes of arrays that are kept to be used again."""
        from unspool._engine.backends.buffers import pooled_bytes

        return pooled_bytes()

    def clear(self) -> None:
        """Forget plans, sites and structures; values and what they mean stay as they are."""
        from unspool._engine.backends.numpy_backend import clear_caches

        clear_caches()
        self.plans.clear()
        self.sites.clear()
        self.queue.clear()
        self._described.clear()
        self._visits.clear()
        self._cuts.clear()
        self.sweeps = None
        self.outcomes.clear()


def _why_not(work: Pass) -> Why:
    """Return why a pass is none that can be described."""
    order = work.order
    if work.has_calls:
        return Why.READS_CALLS
    if len(order) < 2:
        return Why.ONE_OPERATION
    if len(order) > LARGEST_PIECE:
        return Why.TOO_LARGE
    return Why.MANY_INPUTS if any(map(gathers, order)) else Why.STAND_INS


def _run_with_given() -> Callable[..., tuple[Any, ...]]:
    from unspool._engine.partial_calls import run_with_given

    return run_with_given


def _read_from_outside(nodes: Sequence[Node]) -> list[int]:
    """Return the ids of what nodes refer to that is not among them, as often as they do."""
    inside = {node.id for node in nodes}
    return [i.id for node in nodes if type(node) is not Projection for i in node.inputs if i.id not in inside]


def _held_values(targets: Sequence[Node]) -> list[Any] | None:
    """Return the values of nodes for the user, or ``None`` if one has none."""
    values = []
    for target in targets:
        # Looked at once: another thread may evict values at any time.
        value = target.value
        if value is None:
            return None
        if value.flags.writeable:
            value.setflags(write=False)
        values.append(value)
    return values


def hand_out(value: Any) -> Any:
    """Return a value for the user: read-only."""
    if value.flags.writeable:
        value.setflags(write=False)
    return value
