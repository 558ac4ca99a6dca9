"""From bytes to records: a file is read as data first, and every number in it is held against the rest.

No node is made here. What is read is complete and consistent in itself, or a `SaveFileError` was raised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from unspool._saving import records
from unspool._saving.decoder import Decoder, array_from
from unspool._saving.identity import Identity
from unspool._saving.records import CallRecord, NodeRecord, OutputRecord, PieceRecord, Record
from unspool._saving.vocabulary import CallKind, PieceKind, Recipe, more_words, words
from unspool._saving.wire import Bytes
from unspool.errors import SaveFileError, UnspoolError


class Stored(NamedTuple):
    """Where an array is: a file by number, a group and a row in it."""

    file: int
    group: int
    row: int


class ArraysFile(NamedTuple):
    """What a run says of a file of arrays."""

    name: str
    digest: bytes
    nbytes: int


class GraphReader:
    """Reads records, in one go or one part after the other.

    Attributes
    ----------
    nodes : list of Record
        By number; what has changed since is in them.
    pieces : list of PieceRecord
    values : dict of int to value
        By the number of the node: an array, `Stored`, or a list of those and None for a node with several outputs.
    levels : list of int
        The ids at which derivative sweeps began.
    root : bytes
        The newest nesting.
    files : dict of int to ArraysFile
        Those that were not dropped.
    history : list of dict
        What was noted of steps.
    payloads : list of bytes
        The entries as they are.
    """

    def __init__(self) -> None:
        self.decoder = Decoder({word.name: word for word in words()}, more_words)
        self.nodes: list[Record] = []
        self.pieces: list[PieceRecord] = []
        self.values: dict[int, Any] = {}
        self.names: dict[int, str] = {}
        self.leaves: dict[int, Identity] = {}
        self.levels: list[int] = []
        self.files: dict[int, ArraysFile] = {}
        self.next_file = 0
        self.history: list[dict[str, Any]] = []
        self.payloads: list[bytes] = []
        self.root = b""
        # What the next record is told from.
        self.last_id = 0
        self.last_depth = 0
        self.last_inputs: dict[int, tuple[int, ...]] = {}

    def read(self, data: bytes) -> None:
        """Read records to the end of some bytes."""
        source = Bytes(data)
        try:
            while source.left:
                kind = source.byte()
                read = _READERS.get(kind)
                if read is None:
                    raise SaveFileError(f"the file has a record of the unknown kind {kind}")
                read(self, source)
        except UnspoolError:
            raise
        except Exception as error:
            # Parts that do not fit each other: of whatever kind that is, it is the file's fault.
            raise SaveFileError(f"the file is damaged: {type(error).__name__}: {error!s:.200}") from error

    # -- parts of records --

    def _id(self, source: Bytes) -> int:
        self.last_id += source.whole()
        if not 0 <= self.last_id < 1 << 62:
            raise SaveFileError("an id in the file is out of range")
        return self.last_id

    def _earlier(self, source: Bytes) -> int:
        """Read a reference to a node."""
        return self._node_back(source.count())

    def _node_back(self, distance: int) -> int:
        number = len(self.nodes) - distance
        if not 0 <= number < len(self.nodes):
            raise SaveFileError(f"the file refers to a node {distance} back, of {len(self.nodes)}")
        return number

    def _inputs(self, source: Bytes, kind: int, count: int) -> tuple[int, ...]:
        before = self.last_inputs.get(kind, ())
        if count > source.left:
            raise SaveFileError(f"the file announces {count} inputs and has {source.left} bytes left")
        found = []
        for position in range(count):
            distance = source.count()
            if distance:
                found.append(self._node_back(distance))
            elif len(before) == count:
                found.append(before[position])
            else:
                raise SaveFileError("the file refers to an input that nothing had before")
        self.last_inputs[kind] = made = tuple(found)
        return made

    # -- records --

    def _entry(self, source: Bytes) -> None:
        payload = source.bytes()
        self.decoder.add_entry(payload)
        self.payloads.append(payload)

    def _node(self, source: Bytes) -> None:
        node_id, kind, flags = self._id(source), source.count(), source.byte()
        recipe = self.decoder.entry(kind, Recipe)
        inputs = self._inputs(source, kind, source.count())
        self.nodes.append(NodeRecord(node_id, recipe, inputs, flags))

    def _call(self, source: Bytes) -> None:
        node_id, number = self._id(source), source.count()
        kind = self.decoder.entry(number, CallKind)
        self.last_depth += source.whole()
        if not 0 <= self.last_depth < 1 << 62:
            raise SaveFileError("a depth in the file is out of range")
        inputs = self._inputs(source, number, len(kind.plan.fragment.dtypes))
        self.nodes.append(CallRecord(node_id, kind, self.last_depth, inputs))

    def _output(self, source: Bytes) -> None:
        node_id, call, index, flags = self._id(source), self._earlier(source), source.count(), source.byte()
        self._check_output(call, index)
        self.nodes.append(OutputRecord(node_id, call, index, bool(flags)))

    def _check_output(self, call: int, index: int) -> None:
        record = self.nodes[call]
        if not isinstance(record, CallRecord) or index >= len(record.kind.plan.recipes):
            raise SaveFileError(f"the file has an output {index} of what has no such output")
        if record.kind.plan.recipes[index] is None:
            raise SaveFileError("the file has an output of a call that the call does not make")

    def _folded(self, source: Bytes) -> None:
        number, call, index = self._earlier(source), self._earlier(source), source.count()
        self._check_output(call, index)
        before = self.nodes[number]
        if isinstance(before, CallRecord):
            raise SaveFileError("the file makes an output of a call")
        self.nodes[number] = OutputRecord(before.id, call, index, before.is_evaluated)

    def _piece(self, source: Bytes) -> None:
        number, depth = source.count(), source.count()
        kind = self.decoder.entry(number, PieceKind)
        inputs = self._inputs(source, number, len(kind.fragment.dtypes))
        outputs = []
        for _ in kind.positions:
            distance = source.count()
            outputs.append(self._node_back(distance) if distance else None)
        self.pieces.append(PieceRecord(kind, depth, inputs, tuple(outputs)))

    def _stays(self, source: Bytes) -> None:
        number = source.count()
        if number >= len(self.pieces):
            raise SaveFileError(f"the file refers to piece {number} of {len(self.pieces)}")
        self.pieces[number].is_waiting = False

    def _evaluated(self, source: Bytes) -> None:
        record = self.nodes[self._earlier(source)]
        if isinstance(record, CallRecord):
            raise SaveFileError("the file has a value of a call")
        record.is_evaluated = True

    def _inline(self, source: Bytes) -> None:
        number = self._earlier(source)
        shape, dtype = self.aval(number)
        axes = tuple(source.take(len(shape)))
        size = dtype.itemsize
        for length in shape:
            size *= length
        self.values[number] = array_from(dtype, shape, axes, source.take(size))

    def _stored(self, source: Bytes) -> None:
        number = self._earlier(source)
        self.values[number] = Stored(source.count(), source.count(), source.count())

    def _parts(self, source: Bytes) -> None:
        number, file = self._earlier(source), source.count()
        parts: list[Stored | None] = []
        for _ in range(source.count_of_items()):
            parts.append(Stored(file, source.count(), source.count()) if source.count() else None)
        self.values[number] = parts

    def aval(self, number: int) -> tuple[Any, Any]:
        """Return shape and dtype of a node, by what its record says; of all outputs if there are several."""
        record = self.nodes[number]
        if isinstance(record, NodeRecord):
            return record.recipe.shape, record.recipe.dtype
        if isinstance(record, CallRecord):
            raise SaveFileError("the file has a value of a call")
        call: Any = self.nodes[record.call]
        plan = call.kind.plan
        return plan.output_shapes[record.index], plan.output_dtypes[record.index]

    def _level(self, source: Bytes) -> None:
        self.levels.append(self._id(source))

    def _name(self, source: Bytes) -> None:
        self.names[self._earlier(source)] = source.text()

    def _root(self, source: Bytes) -> None:
        self.root = source.bytes()

    def _leaf(self, source: Bytes) -> None:
        number, token = self._earlier(source), self.decoder.entry(source.count(), bytes)
        self.leaves[number] = token, source.count()

    def _history(self, source: Bytes) -> None:
        keys = self.decoder.entry(source.count(), tuple)
        self.history.append({key: self.decoder.get(source) for key in keys})

    def _file(self, source: Bytes) -> None:
        number = source.count()
        self.next_file = max(self.next_file, number + 1)
        self.files[number] = ArraysFile(source.text(), source.bytes(), source.count())

    def _dropped(self, source: Bytes) -> None:
        self.files.pop(source.count(), None)


_READERS: dict[int, Callable[[GraphReader, Bytes], None]] = {
    records.ENTRY: GraphReader._entry,
    records.NODE: GraphReader._node,
    records.CALL: GraphReader._call,
    records.OUTPUT: GraphReader._output,
    records.FOLDED: GraphReader._folded,
    records.PIECE: GraphReader._piece,
    records.STAYS: GraphReader._stays,
    records.EVALUATED: GraphReader._evaluated,
    records.INLINE: GraphReader._inline,
    records.STORED: GraphReader._stored,
    records.PARTS: GraphReader._parts,
    records.LEVEL: GraphReader._level,
    records.NAME: GraphReader._name,
    records.ROOT: GraphReader._root,
    records.FILE: GraphReader._file,
    records.DROPPED: GraphReader._dropped,
    records.LEAF: GraphReader._leaf,
    records.HISTORY: GraphReader._history,
}
