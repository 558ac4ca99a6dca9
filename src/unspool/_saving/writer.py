"""From a graph to records: what is reachable and was not written yet, each time it is asked to.

A writer may be asked again and again while a program runs. It then writes what has been added, and what has become of
what it wrote: pieces that were folded, values that came to be kept. It changes nothing of the graph: when a piece is
folded follows from the program, and must not depend on when somebody looked.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from weakref import ref

from unspool._core import Journal, Piece
from unspool._engine.default import default_engine
from unspool._engine.folding.matching import Site
from unspool._fragments.call import Call, Projection, call_of, was_evaluated
from unspool._graph import Bundle, Node, in_order, next_id, source_of
from unspool._ops.leaf import CONSTANT, LEAF_OPS, PLACEHOLDER, TENSOR, is_seed
from unspool._saving import records
from unspool._saving.arrays import Arrays
from unspool._saving.codec import memory_order
from unspool._saving.encoder import Encoder
from unspool._saving.identity import identity_of
from unspool._saving.reader import GraphReader
from unspool._saving.records import IS_SEED, WAS_EVALUATED, NodeRecord
from unspool._saving.vocabulary import CallKind, PieceKind, Position, Recipe, words_by_type
from unspool._saving.wire import put_bytes, put_count, put_text, put_whole
from unspool.errors import SaveError

# Arrays of at most so many bytes stand among the records.
SMALL = 64

# An id that no node has.
_NEVER = 1 << 62


def sources_of(node: Node) -> Sequence[Node]:
    """Return what a node is made from, with calls as one."""
    return (call_of(node),) if type(node) is Projection else node.inputs


class GraphWriter:
    """Writes a graph as records into ``out``, which whoever uses it takes away and clears."""

    def __init__(self) -> None:
        self._journal = Journal()
        self.out = self._journal.out
        # Of a file that is gone on with: ids that nodes of it have now and had there.
        self._adopted: tuple[list[int], list[int]] = [], []
        self._encoder = Encoder(words_by_type(), self._journal.put_entry, self._journal)
        self._encoder.position = Position
        self._journal.encoder = self._encoder
        self._kinds: dict[int, tuple[int, Any]] = {}
        self._recipes: dict[tuple[Any, ...], int] = {}
        self._last_mark = -1
        self._pieces: dict[int, tuple[ref[Piece], int]] = {}
        self._piece_count = 0
        # What was written when a call was folded: its pieces and its data are written later, if it lives.
        self._early: list[ref[Node]] = []
        self._failure: Exception | None = None

    # -- going on with a file --

    def adopt(self, reader: GraphReader, nodes: Sequence[Node | None], pieces: Sequence[Piece | None]) -> None:
        """Go on with a file that was read: ``nodes`` and ``pieces`` are what those of the file are now."""
        for payload in reader.payloads:
            self._encoder.adopt(payload)
        journal = self._journal
        journal.last_id, journal.last_depth = reader.last_id, reader.last_depth
        for kind, numbers in reader.last_inputs.items():
            journal.adopt_inputs(kind, numbers)
        pairs = []
        for number, (node, record) in enumerate(zip(nodes, reader.nodes, strict=True)):
            if node is not None:
                journal.enter(node.id, number)
                self._watch(node)
                if type(node) is Projection and isinstance(record, NodeRecord):  # folded here, which is not in the file
                    journal.unfolded[node.id] = ref(node)
                pairs.append((node.id, record.id))
        pairs.sort()
        self._adopted = [now for now, _ in pairs], [then for _, then in pairs]
        newest = max([record.id for record in reader.nodes] + reader.levels, default=0)
        offset = max(0, newest + 2 - next_id())
        journal.offset = offset + offset % 2
        journal.adopted = self._adopted[0][-1] if pairs else -1
        journal.next = len(nodes)
        for number, piece in enumerate(pieces):
            if piece is not None:
                self._pieces[id(piece)] = ref(piece), number
        self._piece_count = len(pieces)
        self._last_mark = next_id()

    def _id_in_file(self, node_id: int) -> int:
        """Return the id that stands for one in the file: their order is the same."""
        if node_id > self._journal.adopted:
            return node_id + self._journal.offset
        now, then = self._adopted
        at = bisect_left(now, node_id)
        return then[at] - (now[at] - node_id)

    # -- what is folded --

    def follow(self, is_wanted: bool) -> None:
        """Write calls when they are folded, or no longer: then they are at hand, and later they would have to be found.

        Whoever writes anything else beside must not follow at that time.
        """
        if is_wanted:
            default_engine().queue.remember_parted()
        self._journal.on_new = self._write_folded if is_wanted and self._failure is None else None

    def _write_folded(self, call: Call) -> None:
        """Write a call that was just folded, with what it reads and its outputs."""
        try:
            fresh = self._unwritten([call, *[node for node in call.handles if node is not None]])
            self._write_all(fresh)
            self._early += [ref(node) for node in fresh if type(node) is not Call and type(node) is not Projection]
        except Exception as error:  # folding goes on, and who writes the run is told
            self._failure = error
            self.follow(False)

    # -- the graph --

    def add(self, roots: Iterable[Node]) -> list[Node]:
        """Write all that roots are made from and that is not written; return these nodes."""
        if self._failure is not None:
            raise self._failure
        engine = default_engine()
        with engine.queue.nothing_folds():
            changed = self._write_changes()
            early = [node for reference in self._early if (node := reference()) is not None]
            self._early.clear()
            fresh = self._unwritten(roots)
            levels = engine.levels._all[bisect_right(engine.levels._all, self._last_mark) :]
            self._write_all(fresh, levels)
            fresh += early
            fresh += self._write_pieces([*changed, *fresh])
            self._write_identities()
        return fresh

    def _unwritten(self, roots: Iterable[Node]) -> list[Node]:
        found, is_ordered = self._journal.collect(list(roots))
        return found if is_ordered else in_order(found, sources_of)

    def _write_all(self, nodes: list[Node], levels: Sequence[int] = ()) -> None:
        """Write nodes, each after what it is made from, and where levels begin among them."""
        at, put_known = 0, self._journal.put_known
        for mark in (*levels, _NEVER):
            while (at := put_known(nodes, at, mark + 1)) < len(nodes) and nodes[at].id <= mark:
                self._write(nodes[at])
                at += 1
            if mark != _NEVER:
                self._write_level(mark)

    def _write(self, node: Node) -> None:
        """Write a node in the general way: it has a name, or no value yet, or was in a file that is gone on with."""
        if type(node) is Projection:
            self._write_output(node)
        elif type(node) is Call:
            self._write_call(node)
        else:
            self._write_node(node)
        journal = self._journal
        journal.enter(node.id, journal.next)
        journal.next += 1
        self._watch(node)
        name = getattr(node, "_name", None)
        if name and type(node) is Projection:
            self._begin(records.NAME, node)
            put_text(self.out, name)

    def _put_id(self, out: bytearray, node_id: int) -> None:
        known = self._id_in_file(node_id)
        put_whole(out, known - self._journal.last_id)
        self._journal.last_id = known

    def _write_node(self, node: Node) -> None:
        op = node.op
        recipe = self._recipe_of(node)
        flags = (WAS_EVALUATED if _is_evaluated(node) else 0) | (IS_SEED if op is CONSTANT and is_seed(node) else 0)
        out = self.out
        out.append(records.NODE)
        self._put_id(out, node.id)
        put_count(out, recipe)
        out.append(flags)
        put_count(out, len(node.inputs))
        self._journal.put_inputs(recipe, node.inputs)
        if op is TENSOR or op is PLACEHOLDER:
            self._journal.leaves.append(node)

    def _recipe_of(self, node: Node) -> int:
        name = getattr(node, "_name", None)
        key = (node.op.code, id(node.attributes), node.shape, node.dtype, id(node.code), node.line, type(node), name)
        number = self._recipes.get(key)
        if number is None:
            position = Position(node.code, node.lasti)
            parts = (node.op, node.attributes, node.shape, node.dtype, type(node) is Bundle, position, name)
            try:
                number = self._encoder.entry_of(Recipe(*parts))
            except SaveError as error:
                raise SaveError(f"{error}; it is a parameter of {node.op.name}, made at {source_of(node)}") from None
            self._recipes[key] = number
            self._kinds[id(node.attributes)] = number, node.attributes  # the key holds as long as this lives
        return number

    def _write_call(self, call: Call) -> None:
        kind = self._call_kind_of(call)
        out = self.out
        out.append(records.CALL)
        self._put_id(out, call.id)
        put_count(out, kind)
        put_whole(out, call.depth - self._journal.last_depth)
        self._journal.last_depth = call.depth
        self._journal.put_inputs(kind, call.inputs)

    def _call_kind_of(self, call: Call) -> int:
        plan, origins = call.plan, call.origins
        own = plan.fragment.origins
        key = (plan.id, None if origins is own else id(origins), bool(call.depth))
        number = self._recipes.get(key)
        if number is None:
            shown = None if origins == own else tuple([Position(*origin) for origin in origins])
            try:
                number = self._encoder.entry_of(CallKind(plan, shown, bool(call.depth)))
            except SaveError as error:
                raise SaveError(
                    f"{error}; it is a parameter of an op inside of a call, made at {source_of(call)}"
                ) from None
            self._recipes[key] = number
            self._kinds[id(origins)] = number, (origins, plan)
        return number

    def _write_output(self, node: Node) -> None:
        out = self.out
        out.append(records.OUTPUT)
        self._put_id(out, node.id)
        put_count(out, self._back(call_of(node)))
        put_count(out, node.output)
        out.append(WAS_EVALUATED if _is_evaluated(node) else 0)

    def _write_identities(self) -> None:
        tokens: dict[bytes, int] = {}
        for leaf in self._journal.leaves:
            token, number = identity_of(leaf)
            entry = tokens.get(token)
            if entry is None:
                entry = tokens[token] = self._encoder.entry_of_bytes(self._encoder.encode(token))
            self._begin(records.LEAF, leaf)
            put_count(self.out, entry)
            put_count(self.out, number)
        self._journal.leaves.clear()

    def _write_level(self, mark: int) -> None:
        self.out.append(records.LEVEL)
        self._put_id(self.out, mark)
        self._last_mark = mark

    def _begin(self, kind: int, node: Node) -> None:
        """Begin a record about a node that is written."""
        self.out.append(kind)
        put_count(self.out, self._back(node))

    def _back(self, node: Node) -> int:
        """Return how far back a node is that is written."""
        return self._journal.next - self._journal[node.id]

    # -- what becomes of what was written --

    def _watch(self, node: Node) -> None:
        """Remember a node of which something may change: it has no value yet, or may be folded."""
        if type(node) is Projection or type(node) is Call or node.op in LEAF_OPS:
            if type(node) is Projection and not _is_evaluated(node):
                self._journal.unevaluated[node.id] = ref(node)
            return
        if not _is_evaluated(node):
            self._journal.unevaluated[node.id] = ref(node)
        self._journal.unfolded[node.id] = ref(node)

    def _write_changes(self) -> list[Node]:
        """Write what has changed of nodes that are written: they are outputs of calls now, or have had a value.

        Returns those that have had a value since.
        """
        folded = self._journal.take_folded()
        if folded:
            self._write_all(self._unwritten([call_of(node) for node in folded]))
            for node in folded:
                self._begin(records.FOLDED, node)
                put_count(self.out, self._back(call_of(node)))
                put_count(self.out, node.output)
        changed = self._journal.take_evaluated()
        for node in changed:
            self._begin(records.EVALUATED, node)
        return changed

    def _write_pieces(self, fresh: Sequence[Node]) -> list[Node]:
        """Write the pieces of nodes that are new, and which of those that are written do not wait any more.

        Returns the nodes that only pieces read: for outputs that have died since.
        """
        order = [piece for queue in tuple(default_engine().queue._gate.queues) for piece in queue.pieces()]
        place = {id(piece): i for i, piece in enumerate(order)}
        for key, (reference, number) in tuple(self._pieces.items()):
            if reference() is None or key not in place:
                del self._pieces[key]
                self.out.append(records.STAYS)
                put_count(self.out, number)
        found: dict[int, Piece] = {}
        for node in fresh:
            if type(node) is not Projection and type(node) is not Call:
                piece = getattr(node, "piece", None)
                if type(piece) is Piece and id(piece) not in self._pieces:
                    found.setdefault(id(piece), piece)
        read = self._unwritten([operand for piece in found.values() for operand in piece.inputs])
        self._write_all(read)
        for piece in sorted(found.values(), key=lambda piece: place.get(id(piece), -1)):
            self._write_piece(piece, id(piece) in place)
        return read

    def _write_piece(self, piece: Piece, is_waiting: bool) -> None:
        outputs = [reference() for reference in piece.outputs]
        kind = self._piece_kind_of(piece.site)
        out = self.out
        out.append(records.PIECE)
        put_count(out, kind)
        put_count(out, piece.depth)
        self._journal.put_inputs(kind, piece.inputs)
        for node in outputs:
            number = None if node is None else self._journal.get(node.id)
            put_count(out, 0 if number is None else self._journal.next - number)
        if is_waiting:
            self._pieces[id(piece)] = ref(piece), self._piece_count
        else:
            out.append(records.STAYS)
            put_count(out, self._piece_count)
        self._piece_count += 1

    def _piece_kind_of(self, site: Site) -> int:
        known = self._kinds.get(id(site))
        if known is None:
            make: Any = site._make
            fragment, shapes = (site.plan.fragment, site.plan.input_shapes) if site.is_ready else make.args
            origins = tuple([Position(*origin) for origin in site.origins])
            parts = (fragment, shapes, site.results, tuple(site.positions), origins, site.has_bundles, site.apart)
            known = self._kinds[id(site)] = self._encoder.entry_of(PieceKind(*parts)), site
        return known[0]

    # -- values, roots and files --

    def put_values(self, nodes: list[Node], arrays: Arrays, file: int = 0, *, inline: int = SMALL) -> None:
        """Write the values of nodes that are written: here if one has at most so many bytes, else into arrays."""
        for node in self._journal.put_values(nodes, inline):
            self._put_value(node, arrays, file, inline)

    def _put_value(self, node: Node, arrays: Arrays, file: int, inline: int) -> None:
        value = node.value
        if type(value) is tuple:
            self._begin(records.PARTS, node)
            put_count(self.out, file)
            put_count(self.out, len(value))
            for part in value:
                put_count(self.out, 0 if part is None else 1)
                for place in () if part is None else arrays.add(part):
                    put_count(self.out, place)
        elif value.nbytes <= inline:
            self._begin(records.INLINE, node)
            axes = memory_order(value)
            self.out += bytes(axes)
            self.out += value.transpose(axes).tobytes()
        else:
            self._begin(records.STORED, node)
            put_count(self.out, file)
            for place in arrays.add(value):
                put_count(self.out, place)

    def put_root(self, tree: Any) -> None:
        """Write a nesting of nodes that are written and of plain values."""
        payload = self._encoder.encode(tree)
        self.out.append(records.ROOT)
        put_bytes(self.out, payload)

    def put_history(self, values: dict[str, Any]) -> None:
        """Write what was noted of a step."""
        keys = self._encoder.entry_of_bytes(self._encoder.encode(tuple(values)))
        payload = b"".join(map(self._encoder.encode, values.values()))
        self.out.append(records.HISTORY)
        put_count(self.out, keys)
        self.out += payload

    def put_file(self, number: int, name: str, digest: bytes, nbytes: int) -> None:
        """Write that arrays are in a file."""
        self.out.append(records.FILE)
        put_count(self.out, number)
        put_text(self.out, name)
        put_bytes(self.out, digest)
        put_count(self.out, nbytes)

    def put_dropped(self, number: int) -> None:
        """Write that a file of arrays is not needed any more."""
        self.out.append(records.DROPPED)
        put_count(self.out, number)


def _is_evaluated(node: Node) -> bool:
    return node.value is not None or (type(node) is not Call and was_evaluated(node))


def tensors_in(tree: Any) -> list[Node]:
    """Return the tensors in a nesting of lists, tuples and dicts; what else is in it is seen when it is written."""
    found: list[Node] = []
    stack: list[Iterator[Any]] = [iter((tree,))]
    while stack:
        for part in stack[-1]:
            if isinstance(part, Node):
                found.append(part)
            elif isinstance(part, (list, tuple)):
                stack.append(iter(part))
                break
            elif isinstance(part, dict):
                stack.append(iter(part.values()))
                break
        else:
            stack.pop()
    return found
