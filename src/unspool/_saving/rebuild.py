"""From records to nodes: what a file says is recorded again, through the intern table, in the order it was made in.

The order matters. Sweeps go by it, so sums of contributions are taken in the order of ids; and what was folded into
calls decides how products are grouped. So nodes are made in the order of their ids in the file, calls come back as
calls, and pieces that waited to be folded wait again. What had a value and has none in the file is known to have been
evaluated, as if a budget had evicted it: the engine computes it again when it is needed, bit for bit.

Shapes and dtypes are not believed: each op is asked what it makes of its inputs. Nothing is given a value before all
nodes are there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from unspool import _core
from unspool._core import Piece, fold
from unspool._engine.default import default_engine
from unspool._engine.folding.matching import Site
from unspool._engine.memory.cached import Loose
from unspool._fragments.call import BOUNDS, CALL, LOST, Call, Projection, call_of, make_call, output, was_evaluated
from unspool._graph import NO_PARAMS, Bundle, Node, find, intern, intern_bundle, next_id, origin_scope
from unspool._ops.leaf import CONSTANT, LEAF_OPS, PLACEHOLDER, TENSOR, constant, unit_seed
from unspool._ops.op import PART
from unspool._saving.identity import known_leaf, remember
from unspool._saving.ordering import in_order, reachable
from unspool._saving.reader import GraphReader, Stored
from unspool._saving.records import CallRecord, NodeRecord, OutputRecord
from unspool._saving.vocabulary import PieceKind
from unspool._tensor import Tensor
from unspool.errors import BudgetError, SaveFileError, UnspoolError

# How many of the newest nodes are looked at for what they read, and how many ops are few.
_NEWEST = 2048
_FEW = 64

Fetch = Callable[[Stored], Any]


class _References:
    """Stands for the nodes of a file when a nesting is read to see which it needs."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.found: list[int] = []

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> int:
        self.found.append(number)
        return number


class Rebuilt:
    """The nodes of a file: ``nodes`` by number, None for what nothing needs; ``pieces`` likewise; the ``root``.

    Parameters
    ----------
    reader : GraphReader
        What was read.
    fetch : callable
        ``fetch(stored)`` returns the array that is stored somewhere; None for one that is not to be loaded.
    """

    def __init__(self, reader: GraphReader, fetch: Fetch) -> None:
        self._reader = reader
        self._fetch = fetch
        self.nodes: list[Any] = [None] * len(reader.nodes)
        self.pieces: list[Piece | None] = [None] * len(reader.pieces)
        self._values: dict[int, Any] = {}
        # What is older was recorded by the program that loads, before it did.
        self._began = next_id()
        # Of that, what it has not read yet, and the program that wrote the file had.
        self._unread: list[Tensor] = []
        # The piece that a node is a result of, and its place there.
        self._results = {
            number: (piece, index)
            for piece in reader.pieces
            for index, number in enumerate(piece.outputs[: piece.kind.results])
            if number is not None
        }
        try:
            self._build()
        except UnspoolError as error:
            if type(error).__module__ != "unspool.errors" or isinstance(error, OSError | LookupError):
                raise
            raise SaveFileError(f"the file is damaged, or of another version: {error}") from error
        except Exception as error:
            raise SaveFileError(f"the file is damaged: {type(error).__name__}: {error!s:.200}") from error

    def _build(self) -> None:
        reader = self._reader
        references = _References(len(reader.nodes))
        reader.decoder.nodes = references
        reader.decoder.decode(reader.root)
        order = self._order = in_order(reader, reachable(reader, references.found))
        self._read_values(order)
        engine = default_engine()
        marks = sorted(reader.levels, reverse=True)
        with engine.queue.nothing_folds(), origin_scope() as origin:
            self._origin = origin
            for number in order:
                while marks and marks[-1] < reader.nodes[number].id:
                    marks.pop()
                    engine.levels.mark()
                self.nodes[number] = self._node(number)
            if marks:
                engine.levels.mark()
            reader.decoder.nodes = self.nodes
            self.root = reader.decoder.decode(reader.root)
            self._restore_pieces()
            self._give_values(order)

    # -- nodes --

    def _node(self, number: int) -> Node:
        record = self._reader.nodes[number]
        if isinstance(record, OutputRecord):
            found: Node = output(self.nodes[record.call], record.index)
        elif isinstance(record, CallRecord):
            found = self._call(record)
        elif record.recipe.op in LEAF_OPS:
            found = self._leaf(number, record)
        else:
            folded = self._folded_here(number, record)
            found = self._apply(record) if folded is None else folded
        name = self._reader.names.get(number) or (record.recipe.name if isinstance(record, NodeRecord) else None)
        if name is not None and getattr(found, "_name", None) is None:
            found._name = _text(name)
        return found

    def _folded_here(self, number: int, record: NodeRecord) -> Node | None:
        """Return the tensor that a node is by now, if it is alive here and was folded after the file was written.

        To make it again would make a second one beside it, which could not be folded: the call is there already.
        """
        piece, index = self._results.get(number, (None, 0))
        if piece is None:
            return None
        inputs = tuple([self.nodes[i] for i in piece.inputs])
        if any(node is None for node in inputs):
            return None
        engine = default_engine()
        plan = engine.plans.plan_for(piece.kind.fragment, piece.kind.shapes)
        call: Any = find(CALL, inputs, plan.id)
        found = engine.queue.find_parted(plan, inputs, index) if call is None else call.handles[index]
        if found is None:
            return None
        return found if (found.shape, found.dtype) == (record.recipe.shape, record.recipe.dtype) else None

    def _apply(self, record: NodeRecord) -> Node:
        recipe = record.recipe
        op, params = recipe.op, recipe.params or NO_PARAMS
        inputs = tuple([self.nodes[number] for number in record.inputs])
        if op is CALL or bool(op.multi) is not recipe.is_bundle:
            raise SaveFileError(f"the file applies {op.name} as what it is not")
        for node in inputs:
            if type(node) is Call or (type(node) is Bundle and op is not PART):
                raise SaveFileError(f"the file applies {op.name} to something that is no tensor")
        if op is PART and type(inputs[0]) is not Bundle:
            raise SaveFileError("the file takes a part of something that has none")
        avals = op.infer(*inputs, **params)
        if op.multi:
            avals = tuple(shape for shape, _ in avals), tuple(dtype for _, dtype in avals)
        if tuple(avals) != (recipe.shape, recipe.dtype):
            raise SaveFileError(f"{op.name} makes {avals!r:.120} here, and not what the file says")
        key = tuple(params.items())
        found = find(op, inputs, key)
        if found is not None:
            self._note_unread(found)
            return found
        self._origin.code, self._origin.lasti = recipe.position
        make: Any = intern_bundle if op.multi else intern
        made: Node = make(op, inputs, params, recipe.shape, recipe.dtype, key)
        return made

    def _leaf(self, number: int, record: NodeRecord) -> Node:
        op, shape, dtype = record.recipe.op, record.recipe.shape, record.recipe.dtype
        if record.inputs or record.recipe.params:
            raise SaveFileError("the file has a leaf that is made of something")
        self._origin.code, self._origin.lasti = record.recipe.position
        value = self._values.get(number)
        if op is CONSTANT:
            if record.is_seed:
                return unit_seed(dtype)
            if value is None:
                raise SaveFileError("the file has a constant without a value")
            return constant(value)
        if op is TENSOR and value is None:
            raise SaveFileError("the file has a variable without a value")
        identity = self._reader.leaves.get(number)
        found = None if identity is None else known_leaf(identity, op, shape, dtype, value)
        if found is None:
            found = intern(op, (), NO_PARAMS, shape, dtype, None)
            if op is TENSOR:
                found.value = value
            if identity is not None:
                remember(found, identity)
        return found

    def _call(self, record: CallRecord) -> Node:
        plan = record.kind.plan
        fragment = plan.fragment
        inputs = tuple([self.nodes[number] for number in record.inputs])
        if any(not isinstance(node, Tensor) for node in inputs):
            raise SaveFileError("the file calls a plan on something that is no tensor")
        if tuple([node.shape for node in inputs]) != plan.input_shapes or fragment.dtypes != tuple(
            [node.dtype for node in inputs]
        ):
            raise SaveFileError("the file calls a plan on tensors that it is not for")
        own = record.kind.origins
        origins: Any = fragment.origins if own is None else tuple(map(tuple, own))
        if len(origins) != len(fragment.body):
            raise SaveFileError("a call in the file has not one line for each of its ops")
        if not record.kind.is_folded:
            return make_call(plan, inputs, origins)
        found = find(CALL, inputs, plan.id)
        return self._folded(plan, inputs, origins, record.depth) if found is None else found

    def _folded(self, plan: Any, inputs: Any, origins: Any, depth: int) -> Node:
        """Make a call as folding does: tensors become its outputs. If none is alive here, one that is dropped again."""
        indices, tensors = self._outputs_here(plan, inputs)
        if not tensors:
            index, recipe = next((i, recipe) for i, recipe in enumerate(plan.recipes) if recipe is not None)
            op, params, position = recipe
            shape, dtype = plan.output_shapes[index], plan.output_dtypes[index]
            indices, tensors = (index,), [_core.new(Tensor, op, (), params, shape, dtype, None, *origins[position])]
        made = fold(plan, inputs, origins, min([node.id for node in tensors]) - 1, depth, (), indices, tensors)
        if made is None:
            raise SaveFileError("the file has a call twice")
        BOUNDS.note(len(made.plan.fragment.body), made.id)
        return made

    def _outputs_here(self, plan: Any, inputs: Sequence[Node]) -> tuple[tuple[int, ...], list[Node]]:
        """Return which outputs of a call the program that loads has recorded already, and these tensors.

        That is what was made before the loop and read by its first step. What steps read from now on has to be what the
        earlier ones have read.
        """
        nodes: list[Node | None] = [node if node.id < self._began else None for node in inputs]
        newest = max([node.id for node in inputs if node.op not in LEAF_OPS], default=-1)
        if all(node is None for node in nodes):
            return (), []
        for instruction, params in zip(plan.fragment.body, plan.params, strict=True):
            operands = tuple([nodes[i] for i in instruction.operands])
            node = None
            if instruction.op is CONSTANT:
                node = instruction.params["literal"].node()
            elif operands and all(operand is not None for operand in operands):
                node = find(instruction.op, operands, tuple(params.items()))
            nodes.append(node)
        found = []
        for index, slot in enumerate(plan.fragment.outputs[: plan.fragment.results]):  # residuals are nobody's
            node = nodes[slot] if slot >= len(inputs) and plan.recipes[index] is not None else None
            if type(node) is Tensor and newest < node.id < self._began and node.op not in LEAF_OPS:
                found.append((index, node))
                self._note_unread(node)
        return tuple([index for index, _ in found]), [node for _, node in found]

    def _note_unread(self, node: Node) -> None:
        """Remember a tensor that the program that loads has recorded and not read, for `revive`."""
        if type(node) is Tensor and node.id < self._began and node.value is None and not was_evaluated(node):
            self._unread.append(node)

    # -- values --

    def _read_values(self, order: Sequence[int]) -> None:
        """Read the values of what is needed, and hold them against what the records say."""
        stored = self._reader.values
        for number in order:
            if number not in stored:
                continue
            value, (shape, dtype) = stored[number], self._reader.aval(number)
            if isinstance(value, list):
                value = tuple([None if part is None else self._fetch(part) for part in value])
                avals = zip(value, shape, dtype, strict=True)
                if any(part is not None and (part.shape, part.dtype) != (s, d) for part, s, d in avals):
                    raise SaveFileError("values in the file have other shapes than what they are of")
                if any(part is None for part in value):
                    continue
            else:
                value = self._fetch(value) if isinstance(value, Stored) else value
                if value is None:
                    continue
                if (value.shape, value.dtype) != (shape, dtype):
                    raise SaveFileError("a value in the file has another shape than what it is of")
            self._values[number] = value

    def _give_values(self, order: Sequence[int]) -> None:
        """Give nodes the values that the file has, and note which had one that it does not have."""
        ledger = default_engine().ledger
        for number in order:
            node, record = self.nodes[number], self._reader.nodes[number]
            if isinstance(record, CallRecord) or node.op in LEAF_OPS:
                continue
            value = self._values.get(number)
            if node.value is None and value is not None:
                node.value = value
                if isinstance(node, Tensor):
                    ledger.noted += value.nbytes
                    if type(getattr(node, "piece", None)) is not Piece:  # those are found by their pieces
                        sources = call_of(node).inputs if type(node) is Projection else node.inputs
                        ledger.enter(Loose([node], [source.id for source in sources]))
            elif node.value is None and record.is_evaluated and isinstance(node, Tensor):
                if getattr(node, "piece", None) is None:
                    node.piece = LOST
                ledger.has_dropped = True

    def revive(self) -> None:
        """Compute what steps from now on read and the file has no value of: else each would have to compute it again.

        That is what the program that loads has recorded already, and what the newest steps have in common, if that
        takes little.
        """
        newest = self._order[-_NEWEST:]
        first: dict[int, int] = {}
        common: set[int] = set()
        for place, number in enumerate(newest):
            for i in self._reader.nodes[number].inputs:
                # A state is read by the step after it, and what steps have in common by early and late ones.
                if place - first.setdefault(i, place) > len(newest) // 2:
                    common.add(i)
        nodes = [self.nodes[i] for i in sorted(common)]
        lost = [node for node in nodes if isinstance(node, Tensor) and _is_lost(node) and _takes_little(node)]
        lost += [node for node in self._unread if _is_lost(node)]
        engine = default_engine()
        with suppress(BudgetError):  # then it is computed where it is needed
            engine.evaluate(lost)
        # It was computed before, as part of other pieces: it is no step that could be folded. Those wait as they did.
        restored = {id(piece) for piece in self.pieces}
        pieces = [node.piece for node in lost if type(getattr(node, "piece", None)) is Piece]
        engine.queue.let_stay([piece for piece in pieces if id(piece) not in restored])

    # -- pieces --

    def _restore_pieces(self) -> None:
        sites: dict[int, Site] = {}
        placed: list[tuple[int, Piece]] = []
        for number, record in enumerate(self._reader.pieces):
            outputs = [None if i is None else self.nodes[i] for i in record.outputs]
            results = [node for node in outputs[: record.kind.results] if node is not None]
            inputs = tuple([self.nodes[i] for i in record.inputs])
            if not results or any(not isinstance(node, Tensor) for node in inputs):
                continue
            if any(type(node) is not Tensor or type(getattr(node, "piece", None)) is Piece for node in results):
                continue  # folded by now, or known here
            site = sites.get(id(record.kind))
            if site is None:
                site = sites[id(record.kind)] = _site_of(record.kind)
            dead = [_nobody() if node is None else node for node in outputs]
            made = _core.piece(site, inputs, tuple(dead), ())
            del dead
            placed.append((record.depth, made))
            self.pieces[number] = made
        placed.sort(key=lambda pair: pair[0])
        waiting = [p for p, record in zip(self.pieces, self._reader.pieces, strict=True) if p and record.is_waiting]
        default_engine().queue.restore([piece for _, piece in placed], waiting)


def _is_lost(node: Node) -> bool:
    return node.value is None and was_evaluated(node)


def _takes_little(target: Node) -> bool:
    """Whether a value is a few steps away from values that are there."""
    seen = {target.id}
    stack = [target]
    while stack:
        node = stack.pop()
        for source in call_of(node).inputs if type(node) is Projection else node.inputs:
            if source.value is None and source.id not in seen:
                if len(seen) == _FEW or source.op is PLACEHOLDER:
                    return False
                seen.add(source.id)
                stack.append(source)
    return True


def _site_of(kind: PieceKind) -> Site:
    origins: Any = tuple(map(tuple, kind.origins))
    site = Site(
        partial(default_engine().plans.plan_for, kind.fragment, kind.shapes),
        kind.fragment,
        kind.results,
        list(kind.positions),
        origins,
        has_bundles=kind.has_bundles,
        apart=kind.apart,
    )
    site.make_plan()
    return site


def _nobody() -> Node:
    """Return a node that nobody holds: it stands for one that had died."""
    return _core.new(Tensor, TENSOR, (), NO_PARAMS, (), None, None, _nobody.__code__, 0)


def _text(name: Any) -> str:
    if not isinstance(name, str):
        raise SaveFileError("a name in the file is none")
    return name
