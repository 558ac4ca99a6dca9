"""The tape: a graph as a numbered list of nodes with their values, and reverse mode one plain step at a time.

This is the small, slow, obviously right interpreter. The engine is tested against it, and it is what to open when a
gradient looks wrong: every value and every intermediate cotangent is there to be read, every argument is checked. It
runs on floating-point and complex numbers and, without rounding, on rationals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import optree

from unspool._autodiff.sweeps.walk import is_differentiable
from unspool._autodiff.tape.arithmetic import Arithmetic, Machine, Rational, holds_fractions
from unspool._autodiff.tape.checkpoint import ByteCounter, DropPlan, ValueStore, Watcher, plan_drops
from unspool._autodiff.tape.entries import Entries, numbers
from unspool._autodiff.tape.interpreter import Interpreter, add_cotangents, add_slots
from unspool._engine.binding import solve_sizes
from unspool._engine.default import default_engine
from unspool._graph import Node, ancestors, describe, source_of
from unspool._ops.leaf import PLACEHOLDER, TENSOR
from unspool._tensor import Tensor
from unspool.checkpoint.segments import CheckpointConfig, as_config
from unspool.errors import ArgumentError, NonScalarOutputError, StructureError, UnexpectedBindingError, UnknownNodeError

Array: TypeAlias = Any
NodeLike: TypeAlias = int | Tensor


@dataclass(frozen=True, slots=True, eq=False)
class TapeNode:
    """One entry of `Tape.nodes`. For an op with several outputs ``shape`` and ``dtype`` are tuples, one entry each.

    Entries are equal if they are the same tensor at the same place, of tapes that may be two.
    """

    id: int
    op: str
    inputs: tuple[int, ...]
    shape: tuple[Any, ...]
    dtype: Any
    name: str | None
    tensor: Node

    def __eq__(self, other: object) -> bool:
        # By identity, because to compare tensors makes another tensor.
        return isinstance(other, TapeNode) and self._place() == other._place()

    def __hash__(self) -> int:
        return hash(self._place())

    def _place(self) -> tuple[object, ...]:
        return self.id, self.inputs, id(self.tensor)

    @property
    def source(self) -> str:
        """The user's line that made the node."""
        return source_of(self.tensor)


class Tape:
    """The nodes that some outputs are made from, numbered 0…N-1 in topological order, with a value for each.

    Parameters
    ----------
    outputs : Tensor or pytree of Tensor
        Where the tape ends; all they are made from is on it.
    values : dict of Tensor to array_like, optional
        Values for placeholders, or other values for tensor leaves; they may hold `fractions.Fraction`.
    exact : bool
        Compute on exact rationals: floats of leaves and constants become the rationals they are. Implied when a value
        holds a fraction. An op that leaves the rationals raises `ExactArithmeticError`.
    checkpoint : CheckpointConfig, optional
        Segments of nodes that evict their values; see Notes. Every form of ``backward`` takes another one for itself.
    watch : callable, optional
        Called as ``watch(event)`` when a value was computed, dropped or recomputed, and after each reverse step.
        The event has ``action``, ``node`` and ``live_bytes``.

    Notes
    -----
    A node carries cotangents if its numbers are floating-point or complex and it depends on a tensor leaf or a
    placeholder. Integers, bools and what is made from constants alone count as not reached.

    *Not reached* is ``None`` and never a zero. This holds for single elements too: in `backward_dense` and the forms
    made from it, an element that a ``where`` or an index dropped stays out of later rules, so that 0·∞ does not arise.
    The forms that take an array of cotangents run on what it holds: there a zero is a zero.

    Contributions to a node are summed in falling id of their consumers, and within one consumer in the order of its
    inputs. An op with several outputs is one node whose value and cotangent are tuples; its outputs are nodes of the op
    ``part``. Arrays that a tape returns are read-only.

    Inside a checkpoint segment a value is dropped after its last use, unless it is that of a leaf, of an output of the
    tape or of the node that ``backward`` starts from, is held by `unspool.keep`, or is used outside the segment. All
    that a segment dropped is recomputed when the backward pass enters it, and dropped again when it leaves. Results are
    the same, bit for bit. Between calls the tape holds what the last configuration keeps; `value` computes what is
    missing. A tape with checkpoint segments is for one thread at a time.

    Examples
    --------
    >>> import unspool as us
    >>> x = us.tensor(3.0, name="x")
    >>> tape = us.Tape(x * x + x)
    >>> len(tape), tape.value(1)
    (3, array(9.))
    >>> tape.backward_scalar(2)[tape.id_of(x)]
    array(7.)
    """

    def __init__(
        self,
        outputs: Any,
        values: Mapping[Tensor, Any] | None = None,
        exact: bool = False,
        *,
        checkpoint: CheckpointConfig | None = None,
        watch: Watcher | None = None,
    ) -> None:
        if values is not None and not isinstance(values, Mapping):
            raise UnexpectedBindingError(f"values are a dict of leaves and their values, got {values!r}")
        if watch is not None and not callable(watch):
            raise ArgumentError(f"watch is called with events, got {watch!r}")
        given = dict(values or {})
        exact = exact or any(holds_fractions(data) for data in given.values())
        self._arithmetic: Arithmetic = Rational() if exact else Machine()
        with default_engine().queue.nothing_folds():
            # From here on the tape holds the nodes, and what somebody holds is not folded.
            targets = _tensors(outputs)
            self._nodes = ancestors(targets)
            self._index = {node.id: position for position, node in enumerate(self._nodes)}
            self._inputs = [tuple(self._index[operand.id] for operand in node.inputs) for node in self._nodes]
        self._outputs = {self._index[target.id] for target in targets}
        self._checkpoint = CheckpointConfig() if checkpoint is None else as_config(checkpoint)
        plan = self._plan()
        bound = self._bind(given)
        sizes = solve_sizes([(node, bound[node.id].shape) for node in given])
        self._interpreter = Interpreter(self._arithmetic, sizes)
        self._store = ValueStore(self._nodes, self._inputs, self._interpreter, bound, ByteCounter(watch))
        self._entries = Entries(self._nodes, self._store.shapes, self._arithmetic)
        self._store.settle(plan)
        self._active: set[int] = set()
        for node in self._nodes:
            is_variable = node.op is TENSOR or node.op is PLACEHOLDER
            if is_differentiable(node) and (is_variable or any(i.id in self._active for i in node.inputs)):
                self._active.add(node.id)

    # -- what is on it --

    def __len__(self) -> int:
        return len(self._nodes)

    def __repr__(self) -> str:
        return f"<Tape of {len(self)} nodes{', exact' if isinstance(self._arithmetic, Rational) else ''}>"

    @property
    def nodes(self) -> tuple[TapeNode, ...]:
        """A record for each node: id, op, ids of inputs, shape, dtype, name, source line and the tensor itself."""
        return tuple(
            TapeNode(i, n.op.name, self._inputs[i], self._store.shapes[i], n.dtype, getattr(n, "_name", None), n)
            for i, n in enumerate(self._nodes)
        )

    def id_of(self, tensor: Tensor) -> int:
        """Return the id of a tensor on this tape, or raise `UnknownNodeError`."""
        if not isinstance(tensor, Node):
            raise UnknownNodeError(f"expected a tensor of the tape, got {tensor!r}")
        if tensor.id not in self._index:
            raise UnknownNodeError(f"{describe(tensor)}, made at {source_of(tensor)}, is not on this {self!r}")
        return self._index[tensor.id]

    def tensor(self, node: NodeLike) -> Tensor:
        """Return the node with an id."""
        return self._nodes[self._find(node)]  # type: ignore[return-value]

    def value(self, node: NodeLike) -> Array:
        """Return the value of a node: a read-only array, or a tuple of them for an op with several outputs.

        One that a checkpoint segment dropped is recomputed.
        """
        return self._store.value(self._find(node))

    def show(self) -> str:
        """Return the tape as a table to print: id, op, inputs, shape, source line.

        Examples
        --------
        >>> import unspool as us
        >>> x = us.tensor([1.0, 2.0], name="x")
        >>> print(us.Tape(us.sum(x * x)).show())  # doctest: +ELLIPSIS
        id  op          inputs  shape  source
         0  tensor 'x'          (2,)   ...
         1  multiply    0 0     (2,)   ...
         2  sum         1       ()     ...
        """
        rows = [("id", "op", "inputs", "shape", "source")]
        for node in self.nodes:
            label = f"{node.op} {node.name!r}" if node.name else node.op
            rows.append((str(node.id), label, " ".join(map(str, node.inputs)), str(node.shape), node.source))
        wide = [max(len(row[column]) for row in rows) for column in range(4)]
        return "\n".join(
            f"{a:>{wide[0]}}  {b:<{wide[1]}}  {c:<{wide[2]}}  {d:<{wide[3]}}  {e}".rstrip() for a, b, c, d, e in rows
        )

    # -- reverse mode from one output --

    def backward_dense(
        self, out: NodeLike, seed: Any, *, checkpoint: CheckpointConfig | None = None
    ) -> list[Array | None]:
        """Return the cotangent of every node for a seed at one of them, ``None`` where none arrives.

        Parameters
        ----------
        out : int or Tensor
            Where to start: any node of the tape.
        seed : array_like
            The cotangent of that node, of its shape.
        checkpoint : CheckpointConfig, optional
            Segments that evict their values and recompute them in the sweep; those of the tape by default.

        Examples
        --------
        >>> import unspool as us
        >>> x, y = us.tensor(3.0), us.tensor(4.0)
        >>> us.Tape([x * y, x + y]).backward_dense(2, 1.0)
        [array(4.), array(3.), array(1.), None]
        """
        start = self._find(out)
        cotangents: list[Any] = [None] * len(self)
        cotangents[start] = self._entries.seed(start, seed)
        self._sweep(range(start, -1, -1), cotangents, self._plan(checkpoint, start))
        return [numbers(ct) for ct in cotangents]

    def backward_dense_all(
        self, out: NodeLike, seed: Any, *, checkpoint: CheckpointConfig | None = None
    ) -> list[Array]:
        """Return the cotangent of every node, zeros where none arrives; rules of unreached nodes never run.

        Examples
        --------
        >>> import unspool as us
        >>> x = us.tensor(0.0)
        >>> tape = us.Tape([2 * x, 1 / x])
        >>> tape.backward_dense_all(tape.id_of(2 * x), 1.0)[tape.id_of(1 / x)]
        array(0.)
        """
        reached = self.backward_dense(out, seed, checkpoint=checkpoint)
        return [self._entries.filled(i, ct) for i, ct in enumerate(reached)]

    def backward(self, out: NodeLike, seed: Any, *, checkpoint: CheckpointConfig | None = None) -> dict[int, Array]:
        """Return the cotangents of the nodes that are reached, by id.

        Examples
        --------
        >>> import unspool as us
        >>> x = us.tensor([1.0, 2.0])
        >>> us.Tape(x * x).backward(1, [1.0, 10.0])
        {0: array([ 2., 40.]), 1: array([ 1., 10.])}
        """
        reached = self.backward_dense(out, seed, checkpoint=checkpoint)
        return {i: ct for i, ct in enumerate(reached) if ct is not None}

    def backward_scalar(self, out: NodeLike, *, checkpoint: CheckpointConfig | None = None) -> dict[int, Array]:
        """Return what `backward` does for a scalar output with seed 1.

        Examples
        --------
        >>> import unspool as us
        >>> x = us.tensor(3.0)
        >>> us.Tape(x * x).backward_scalar(1)[0]
        array(6.)
        """
        start = self._find(out)
        shape = self._store.shapes[start]
        if shape != ():
            label = self._entries.label(start)
            raise NonScalarOutputError(f"backward_scalar starts from a scalar; {label} has shape {shape}")
        return self.backward(start, 1, checkpoint=checkpoint)

    # -- reverse mode on explicit arrays of cotangents --

    def backward_dense_from(
        self, cotangents: Sequence[Any], *, checkpoint: CheckpointConfig | None = None
    ) -> list[Array]:
        """Return initial plus propagated cotangents of every node, for initial ones given in full.

        Every rule runs, also on zeros: at a singular point (1/x at 0) a zero cotangent gives NaN, as 0·∞ does.

        Parameters
        ----------
        cotangents : sequence of array_like
            One for each node, of its shape.
        checkpoint : CheckpointConfig, optional
            As for `backward_dense`.

        Examples
        --------
        >>> import unspool as us
        >>> x = us.tensor(3.0)
        >>> us.Tape(x * x).backward_dense_from([100.0, 1.0])
        [array(106.), array(1.)]
        """
        accumulator = self._entries.accumulator(cotangents, total=True)
        self._sweep(range(len(self) - 1, -1, -1), accumulator, self._plan(checkpoint))
        return [numbers(ct) for ct in accumulator]

    def backward_loop(
        self, n: int, acc: Sequence[Any], *, checkpoint: CheckpointConfig | None = None
    ) -> list[Array | None]:
        """Return an array of cotangents after the steps of nodes n-1, n-2, …, 0, in that order.

        An entry may be ``None``: such a node was not reached, and its rule does not run.

        Examples
        --------
        >>> import unspool as us
        >>> us.Tape(us.sin(us.tensor(0.0))).backward_loop(2, [None, 5.0])
        [array(5.), array(5.)]
        """
        if not 0 <= n <= len(self):
            raise UnknownNodeError(f"backward_loop starts from the first n nodes; got n = {n} for {self!r}")
        accumulator = self._entries.accumulator(acc, total=False)
        self._sweep(range(n - 1, -1, -1), accumulator, self._plan(checkpoint))
        return [numbers(ct) for ct in accumulator]

    def backward_step(
        self, node: NodeLike, acc: Sequence[Any], *, checkpoint: CheckpointConfig | None = None
    ) -> list[Array | None]:
        """Return a new array of cotangents, in which one node's contributions to its inputs are added.

        Examples
        --------
        >>> import unspool as us
        >>> x = us.tensor(3.0)
        >>> us.Tape(x * x).backward_step(1, [0.0, 1.0])
        [array(6.), array(1.)]
        """
        position = self._find(node)
        accumulator = self._entries.accumulator(acc, total=False)
        self._sweep([position], accumulator, self._plan(checkpoint))
        return [numbers(ct) for ct in accumulator]

    # -- how it is done --

    def _plan(self, checkpoint: CheckpointConfig | None = None, *pinned: int) -> DropPlan:
        config = self._checkpoint if checkpoint is None else as_config(checkpoint)
        return plan_drops(config, self._nodes, self._inputs, self._outputs.union(pinned))

    def _sweep(self, positions: Iterable[int], cotangents: list[Any], plan: DropPlan) -> None:
        """Take the steps of the given nodes, whose ids fall."""
        self._store.settle(plan)
        for position, known in self._store.walk_back(plan, self._reached(positions, cotangents)):
            self._step(position, cotangents, known)

    def _reached(self, positions: Iterable[int], cotangents: list[Any]) -> Iterator[int]:
        """Yield the positions that have something to send on; it is looked up when the sweep arrives there."""
        for position in positions:
            if cotangents[position] is not None and self._nodes[position].id in self._active:
                yield position

    def _step(self, position: int, cotangents: list[Any], known: Mapping[int, Any]) -> None:
        """Add what one node contributes to its inputs; the only place where cotangents move."""
        node, ct = self._nodes[position], cotangents[position]
        for slot, contribution in self._interpreter.contributions(node, ct, known, self._active):
            target = self._inputs[position][slot]
            before = cotangents[target]
            if before is not None:
                add = add_slots if isinstance(before, tuple) else add_cotangents
                contribution = add(before, contribution)
            cotangents[target] = contribution

    def _bind(self, given: Mapping[Any, Any]) -> dict[int, Any]:
        """Return the values that were given for leaves, by node id."""
        for leaf in given:
            if not isinstance(leaf, Node) or (leaf.op is not TENSOR and leaf.op is not PLACEHOLDER):
                what = f"{describe(leaf)}, made at {source_of(leaf)}" if isinstance(leaf, Node) else repr(leaf)
                raise UnexpectedBindingError(f"a value can be given for a tensor leaf or a placeholder, not for {what}")
        return {leaf.id: self._arithmetic.bound(leaf, data) for leaf, data in given.items()}

    def _find(self, node: Any) -> int:
        if isinstance(node, Node):
            return self.id_of(node)  # type: ignore[arg-type]
        try:
            position = int(node.__index__())
        except (AttributeError, TypeError):
            raise UnknownNodeError(f"a node is given by its id or its tensor, got {node!r}") from None
        if not 0 <= position < len(self):
            raise UnknownNodeError(f"there is no node {position} on this {self!r}")
        return position


def _tensors(outputs: Any) -> list[Tensor]:
    leaves: list[Any] = optree.tree_leaves(outputs, namespace="unspool")
    for leaf in leaves:
        if not isinstance(leaf, Node):
            raise StructureError(f"a tape is made from tensors, got {type(leaf).__name__}")
    if not leaves:
        raise StructureError("a tape needs at least one tensor")
    return leaves
