"""The tape: a graph as a numbered list of nodes with their values, and reverse mode one plain step at a time.

This is the small, slow, obviously right interpreter. The engine is tested against it, and it is what to open when a
gradient looks wrong: every value and every intermediate cotangent is there to be read, every argument is checked. It
runs on floating-point and complex numbers and, without rounding, on rationals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import optree

from unspool._autodiff.tape_arithmetic import Arithmetic, Machine, Rational, holds_fractions
from unspool._autodiff.tape_interpreter import Cotangent, Interpreter, Slots, add_cotangents, add_slots
from unspool._autodiff.walk import is_differentiable
from unspool._dtypes import INEXACT
from unspool._engine.binding import solve_sizes
from unspool._engine.default import default_engine
from unspool._graph import Bundle, Node, ancestors, describe, source_of
from unspool._ops.leaf import PLACEHOLDER, TENSOR
from unspool._tensor import Tensor
from unspool.errors import (
    AccumulatorLengthError,
    AccumulatorShapeError,
    DTypeError,
    NonScalarOutputError,
    SeedShapeError,
    StructureError,
    UnexpectedBindingError,
    UnknownNodeError,
    UnspoolError,
)

Array: TypeAlias = Any
NodeLike: TypeAlias = int | Tensor


@dataclass(frozen=True, slots=True)
class TapeNode:
    """One entry of `Tape.nodes`. For an op with several outputs ``shape`` and ``dtype`` are tuples, one entry each."""

    id: int
    op: str
    inputs: tuple[int, ...]
    shape: tuple[Any, ...]
    dtype: Any
    name: str | None
    tensor: Node

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

    def __init__(self, outputs: Any, values: Mapping[Tensor, Any] | None = None, exact: bool = False) -> None:
        given = dict(values or {})
        exact = exact or any(holds_fractions(data) for data in given.values())
        self._arithmetic: Arithmetic = Rational() if exact else Machine()
        with default_engine().queue.nothing_folds():
            # From here on the tape holds the nodes, and what somebody holds is not folded.
            self._nodes = ancestors(_tensors(outputs))
            self._index = {node.id: position for position, node in enumerate(self._nodes)}
            self._inputs = [tuple(self._index[operand.id] for operand in node.inputs) for node in self._nodes]
        bound = self._bind(given)
        sizes = solve_sizes([(node, bound[node.id].shape) for node in given])
        self._interpreter = Interpreter(self._arithmetic, sizes)
        self._known: dict[int, Any] = bound
        self._interpreter.run(self._nodes, self._known)
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
            TapeNode(i, n.op.name, self._inputs[i], self._shape(i), n.dtype, getattr(n, "_name", None), n)
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
        """Return the value of a node: a read-only array, or a tuple of them for an op with several outputs."""
        return self._known[self._nodes[self._find(node)].id]

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

    def backward_dense(self, out: NodeLike, seed: Any) -> list[Array | None]:
        """Return the cotangent of every node for a seed at one of them, ``None`` where none arrives.

        Parameters
        ----------
        out : int or Tensor
            Where to start: any node of the tape.
        seed : array_like
            The cotangent of that node, of its shape.

        Examples
        --------
        >>> import unspool as us
        >>> x, y = us.tensor(3.0), us.tensor(4.0)
        >>> us.Tape([x * y, x + y]).backward_dense(2, 1.0)
        [array(4.), array(3.), array(1.), None]
        """
        start = self._find(out)
        cotangents: list[Any] = [None] * len(self)
        cotangents[start] = self._seed(start, seed)
        self._sweep(start + 1, cotangents)
        return [_numbers(ct) for ct in cotangents]

    def backward_dense_all(self, out: NodeLike, seed: Any) -> list[Array]:
        """Return the cotangent of every node, zeros where none arrives; rules of unreached nodes never run.

        Examples
        --------
        >>> import unspool as us
        >>> x = us.tensor(0.0)
        >>> tape = us.Tape([2 * x, 1 / x])
        >>> tape.backward_dense_all(tape.id_of(2 * x), 1.0)[tape.id_of(1 / x)]
        array(0.)
        """
        reached = self.backward_dense(out, seed)
        return [self._filled(i, ct) for i, ct in enumerate(reached)]

    def backward(self, out: NodeLike, seed: Any) -> dict[int, Array]:
        """Return the cotangents of the nodes that are reached, by id.

        Examples
        --------
        >>> import unspool as us
        >>> x = us.tensor([1.0, 2.0])
        >>> us.Tape(x * x).backward(1, [1.0, 10.0])
        {0: array([ 2., 40.]), 1: array([ 1., 10.])}
        """
        return {i: ct for i, ct in enumerate(self.backward_dense(out, seed)) if ct is not None}

    def backward_scalar(self, out: NodeLike) -> dict[int, Array]:
        """Return what `backward` does for a scalar output with seed 1.

        Examples
        --------
        >>> import unspool as us
        >>> x = us.tensor(3.0)
        >>> us.Tape(x * x).backward_scalar(1)[0]
        array(6.)
        """
        start = self._find(out)
        if self._shape(start) != ():
            raise NonScalarOutputError(
                f"backward_scalar starts from a scalar; {self._label(start)} has shape {self._shape(start)}"
            )
        return self.backward(start, 1)

    # -- reverse mode on explicit arrays of cotangents --

    def backward_dense_from(self, cotangents: Sequence[Any]) -> list[Array]:
        """Return initial plus propagated cotangents of every node, for initial ones given in full.

        Every rule runs, also on zeros: at a singular point (1/x at 0) a zero cotangent gives NaN, as 0·∞ does.

        Parameters
        ----------
        cotangents : sequence of array_like
            One for each node, of its shape.

        Examples
        --------
        >>> import unspool as us
        >>> x = us.tensor(3.0)
        >>> us.Tape(x * x).backward_dense_from([100.0, 1.0])
        [array(106.), array(1.)]
        """
        accumulator = self._accumulator(cotangents, total=True)
        self._sweep(len(self), accumulator)
        return [_numbers(ct) for ct in accumulator]

    def backward_loop(self, n: int, acc: Sequence[Any]) -> list[Array | None]:
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
        accumulator = self._accumulator(acc, total=False)
        self._sweep(n, accumulator)
        return [_numbers(ct) for ct in accumulator]

    def backward_step(self, node: NodeLike, acc: Sequence[Any]) -> list[Array | None]:
        """Return a new array of cotangents, in which one node's contributions to its inputs are added.

        Examples
        --------
        >>> import unspool as us
        >>> x = us.tensor(3.0)
        >>> us.Tape(x * x).backward_step(1, [0.0, 1.0])
        [array(6.), array(1.)]
        """
        position = self._find(node)
        accumulator = self._accumulator(acc, total=False)
        self._step(position, accumulator)
        return [_numbers(ct) for ct in accumulator]

    # -- how it is done --

    def _sweep(self, n: int, cotangents: list[Any]) -> None:
        for position in range(n - 1, -1, -1):
            self._step(position, cotangents)

    def _step(self, position: int, cotangents: list[Any]) -> None:
        """Add what one node contributes to its inputs; the only place where cotangents move."""
        node, ct = self._nodes[position], cotangents[position]
        if ct is None or node.id not in self._active:
            return
        for slot, contribution in self._interpreter.contributions(node, ct, self._known, self._active):
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

    def _seed(self, position: int, seed: Any) -> Cotangent | Slots:
        entry = self._entry(position, seed, "the seed", SeedShapeError)
        if not is_differentiable(self._nodes[position]):
            raise DTypeError(f"{self._label(position)} holds no floating-point numbers, so it carries no cotangents")
        return entry

    def _accumulator(self, entries: Sequence[Any], total: bool) -> list[Any]:
        if len(entries) != len(self):
            raise AccumulatorLengthError(f"expected a cotangent for each node of this {self!r}, got {len(entries)}")
        made: list[Any] = []
        for position, entry in enumerate(entries):
            if entry is None and total:
                raise AccumulatorShapeError(
                    f"entry {position} is None, but every node needs a cotangent of its shape here: "
                    f"{self._label(position)} has shape {self._shape(position)}"
                )
            made.append(None if entry is None else self._entry(position, entry, "the entry", AccumulatorShapeError))
        return made

    def _entry(self, position: int, given: Any, what: str, error: type[UnspoolError]) -> Cotangent | Slots:
        """Return a cotangent that a user gives for a node, or raise if it does not fit."""
        node = self._nodes[position]
        shape = self._shape(position)
        if type(node) is not Bundle:
            return self._numbers(position, given, shape, node.dtype, what, error)
        if not isinstance(given, (tuple, list)) or len(given) != len(shape):
            raise error(f"{what} for {self._label(position)} has to be a tuple of shapes {shape}, got {given!r}")
        return tuple(
            None if part is None else self._numbers(position, part, size, dtype, what, error)
            for part, size, dtype in zip(given, shape, node.dtype, strict=True)  # type: ignore[call-overload]
        )

    def _numbers(
        self, position: int, given: Any, shape: tuple[int, ...], dtype: Any, what: str, error: type[UnspoolError]
    ) -> Cotangent:
        try:
            array = np.array(given)
        except ValueError as problem:
            raise error(f"{what} for {self._label(position)} has to have shape {shape}: {problem}") from None
        if array.shape != shape:
            raise error(f"{what} for {self._label(position)} has to have shape {shape}, got {array.shape}")
        if dtype not in INEXACT:
            return Cotangent(self._arithmetic.zeros(shape, dtype))
        if array.dtype.kind == "c" and dtype.kind != "c":
            raise DTypeError(f"{what} for {self._label(position)} is complex, and its dtype is {dtype}")
        try:
            return Cotangent(self._arithmetic.cotangent(dtype, array))
        except (TypeError, ValueError, OverflowError) as problem:
            raise DTypeError(f"{what} for {self._label(position)} does not fit {dtype}: {problem}") from problem

    def _filled(self, position: int, ct: Any) -> Any:
        node, shape = self._nodes[position], self._shape(position)
        if type(node) is not Bundle:
            return self._arithmetic.zeros(shape, node.dtype) if ct is None else ct
        slots = ct or (None,) * len(shape)
        return tuple(
            self._arithmetic.zeros(size, dtype) if slot is None else slot
            for slot, size, dtype in zip(slots, shape, node.dtype, strict=True)  # type: ignore[call-overload]
        )

    def _shape(self, position: int) -> tuple[Any, ...]:
        value = self._known[self._nodes[position].id]
        return tuple(part.shape for part in value) if isinstance(value, tuple) else tuple(value.shape)

    def _label(self, position: int) -> str:
        node = self._nodes[position]
        return f"node {position} (op {node.op.name!r}, made at {source_of(node)})"


def _tensors(outputs: Any) -> list[Tensor]:
    leaves: list[Any] = optree.tree_leaves(outputs)
    for leaf in leaves:
        if not isinstance(leaf, Node):
            raise StructureError(f"a tape is made from tensors, got {type(leaf).__name__}")
    if not leaves:
        raise StructureError("a tape needs at least one tensor")
    return leaves


def _numbers(ct: Any) -> Any:
    """Return a cotangent as users see it: an array, a tuple of them, or ``None``."""
    if isinstance(ct, tuple):
        return tuple(_numbers(slot) for slot in ct)
    return None if ct is None else ct.value
