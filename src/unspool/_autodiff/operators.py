"""Linear operators as fragments: a function v ↦ A·v is traced once, and what it closes over becomes parameters.

A traced operator is data: a fragment whose first input is the vector and whose other inputs are the parameters. So it
can be a static parameter of a node, run on arrays inside a kernel, be applied to nodes by a derivative rule, and be
transposed. Its derivatives are fragments as well, derived once. The adjoint is what pulling a cotangent back to the
vector builds; an operator whose adjoint would depend on the vector is not linear, which is how that mistake is found.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unspool import _graph
from unspool._autodiff.sweeps.derived import derive_once
from unspool._autodiff.sweeps.forward import pushforward
from unspool._autodiff.sweeps.reverse import pullback
from unspool._autodiff.vectors import Vectors
from unspool._dims import Dim, Shape, is_concrete, product
from unspool._dtypes import DType, promote
from unspool._engine.default import default_engine
from unspool._fragments.asking import asks_for_a_value
from unspool._fragments.call import expand
from unspool._fragments.fragment import Captured, Fragment, seal
from unspool._graph import Node, SizedParams, ancestors, describe, source_of
from unspool._ops import elementwise, layout
from unspool._ops.broadcasting import ensure_shape, may_be_equal
from unspool._ops.contraction import matmul
from unspool._ops.identity import zeros_like
from unspool._ops.leaf import CONSTANT, LEAF_OPS, as_tensor, constant, placeholder
from unspool.errors import ArgumentError, DTypeError, ShapeError, UnboundPlaceholderError

if TYPE_CHECKING:
    from unspool._engine.plan import Plan
    from unspool._tensor import Tensor


# Constants with more elements than this are parameters of an operator and not part of its structure.
_LARGE = 64


class Traced(NamedTuple):
    """A linear operator: a fragment, and the tensors at its inputs after the vector."""

    fragment: Fragment
    parameters: tuple[Tensor, ...]


# --- tracing ---------------------------------------------------------------------------------------------------------


def trace(function: Callable[[Tensor], Any], shape: Shape, dtype: DType, what: str) -> Traced:
    """Trace a function on a stand-in for a vector of some shape and dtype; it has to return one of the same kind."""
    vector = placeholder(shape, dtype)
    return _describe(vector, as_tensor(_call(function, vector, what)), what)


def _call(function: Callable[[Tensor], Any], stand_in: Tensor, what: str) -> Any:
    try:
        return function(stand_in)
    except UnboundPlaceholderError as error:
        raise asks_for_a_value(error, what, "or give it as a matrix; a linear map does not look at values") from error


def trace_beside(operator: Any, args: tuple[Any, ...], vectors: Vectors, what: str) -> tuple[Traced, Tensor]:
    """Trace an operator as users give it, and return it with the example of a vector in the dtype they combine to."""
    function = as_function(operator, args, vectors, what)
    vector = vectors.example
    stand_in = placeholder(vector.shape, vector.dtype)
    result = _call(function, stand_in, what)
    dtype = promote(vector.dtype, result.dtype)
    if dtype == vector.dtype:
        return _describe(stand_in, result, what), vector
    return trace(function, vector.shape, dtype, what), elementwise.astype(vector, dtype)


def _describe(vector: Tensor, result: Tensor, what: str) -> Traced:
    if result.shape != vector.shape:
        if not may_be_equal(result.shape, vector.shape):
            raise ShapeError(f"{what} maps a vector of shape {vector.shape} to one of shape {result.shape}")
        result = ensure_shape(result, vector.shape)
    if result.dtype != vector.dtype:
        raise DTypeError(f"{what} maps a vector of dtype {vector.dtype} to one of dtype {result.dtype}")
    order = _between(vector, result)
    if not order and result is not vector:
        raise ArgumentError(f"{what} returns something that does not depend on the vector, which no linear map does")
    fragment, inputs, _ = seal(order, [result], inputs=[vector, *_large_constants(order)], literals=True)
    open_sizes = _open_sizes(order, inputs)
    if open_sizes:
        # A tensor of each size comes along, as a parameter that nothing reads.
        rulers = [layout.broadcast_to(constant(False), (_size_named(name),)) for name in open_sizes]
        fragment, inputs, _ = seal(order, [result], inputs=[*inputs, *rulers], literals=True)
    return Traced(fragment, tuple(inputs[1:]))  # type: ignore[arg-type]


def _open_sizes(order: Sequence[Node], inputs: Sequence[Node]) -> list[str]:
    """Return the names of sizes that do not follow from the shapes of the inputs, of a product for instance."""
    shapes = [size for node in inputs for size in node.shape if isinstance(size, Dim)]
    known = {name for size in shapes for name in size.names() if str(size) == name}
    named = {name for size in shapes for name in size.names()}
    for node in order:
        if type(node.attributes) is SizedParams:
            for value in map(node.attributes.__getitem__, node.op.sized):
                sizes = value if isinstance(value, tuple) else (value,)
                named.update(name for size in sizes if isinstance(size, Dim) for name in size.names())
    return sorted(named - known)


def _size_named(name: str) -> Dim:
    """Return the size of that name, which may be one that no user can make."""
    return Dim([((("size", name),), 1)])


def _between(vector: Node, result: Node) -> list[Node]:
    """Return the nodes that depend on the vector, in order. All else is computed before the operator is applied."""
    dependent = {vector.id}
    order = []
    # What depends on the vector is newer, so the history of the parameters is not walked.
    for node in ancestors([result], newer_than=vector.id):
        if any(operand.id in dependent for operand in node.inputs):
            dependent.add(node.id)
            order.append(node)
    return order


def _large_constants(order: Sequence[Node]) -> list[Node]:
    """Return the constants that are data: as parameters they are not compared whenever an operator is traced."""
    operands = {operand.id: operand for node in order for operand in node.inputs if operand.op is CONSTANT}
    return [node for node in operands.values() if node.value.size > _LARGE]


def as_function(operator: Any, args: tuple[Any, ...], vectors: Vectors, what: str) -> Callable[[Tensor], Tensor]:
    """Return a function of one tensor, from a function and its further arguments or from a matrix."""
    if not isinstance(args, tuple):
        raise ArgumentError(f"args is a tuple of what {what} takes after the vector, got {args!r}")
    if callable(operator):
        return vectors.function(operator, args, what)
    if args:
        raise ArgumentError(f"{what} is a matrix, which takes no further arguments, but args has {len(args)}")
    matrix = as_tensor(operator)
    size = product(vectors.example.shape)
    if matrix.ndim != 2 or not may_be_equal(matrix.shape, (size, size)):
        raise ShapeError(
            f"{what} is a function or a square matrix that fits vectors of {size} numbers, got shape {matrix.shape}"
        )
    return lambda v: layout.reshape(matmul(matrix, layout.reshape(v, (size,))), v.shape)


# --- on nodes --------------------------------------------------------------------------------------------------------


def apply_traced(fragment: Fragment, inputs: Sequence[Tensor]) -> Tensor:
    """Apply a traced operator to a vector and parameters."""
    result: Tensor = _placed(fragment, inputs)[0]
    return result


def _placed(fragment: Fragment, inputs: Sequence[Tensor]) -> list[Any]:
    """Apply the ops of a fragment to nodes, one by one, and return its results."""
    plan = _plan(fragment, inputs)
    nodes = _replay(fragment, inputs) if plan is None else expand(plan, inputs, fragment.origins)
    return [nodes[slot] for slot in fragment.outputs]


def _plan(fragment: Fragment, inputs: Sequence[Node]) -> Plan | None:
    """Return the plan for inputs of known sizes."""
    shapes = tuple([node.shape for node in inputs])
    return default_engine().plans.plan_for(fragment, shapes) if all(map(is_concrete, shapes)) else None


def _replay(fragment: Fragment, inputs: Sequence[Node]) -> list[Any]:
    """Apply the ops of a fragment to nodes whose sizes are not all known."""
    nodes: list[Any] = list(inputs)
    sizes = _renaming(fragment, inputs)
    for op, operands, params in fragment.body:
        if op is CONSTANT:
            nodes.append(params["literal"].node())
            continue
        if sizes and type(params) is SizedParams:
            params = {name: _renamed(value, sizes) if name in op.sized else value for name, value in params.items()}
        apply: Any = _graph.apply_multi if op.multi else _graph.apply
        nodes.append(apply(op, *[nodes[slot] for slot in operands], **params))
    return nodes


def _renaming(fragment: Fragment, inputs: Sequence[Node]) -> dict[str, Any]:
    """Return what the names in a fragment stand for, on inputs that have other sizes than it was traced with."""
    found: dict[str, Any] = {}
    for traced, node in zip(fragment.shapes or (), inputs, strict=False):
        for size, actual in zip(traced, node.shape, strict=True):
            if size != actual and isinstance(size, Dim):
                found.update((name, actual) for name in size.names() if str(size) == name)
    return found


def _renamed(value: Any, sizes: dict[str, Any]) -> Any:
    if isinstance(value, tuple):
        return tuple(_renamed(entry, sizes) for entry in value)
    if not isinstance(value, Dim):
        return value
    return value.bind({name: sizes.get(name, _size_named(name)) for name in value.names()})


# --- derived operators -----------------------------------------------------------------------------------------------


def derived(fragment: Fragment, inputs: Sequence[Node], name: Any, derive: Callable[[], Any]) -> Any:
    """Return what is derived from an operator for inputs of some sizes: made once, if the sizes are known."""
    return derive_once(_plan(fragment, inputs), name, derive)


def closed(inputs: Sequence[Node], outputs: Sequence[Tensor]) -> Captured:
    """Describe how outputs follow from inputs, with all that depends on constants alone inside of the fragment."""
    starts = {node.id for node in inputs}
    order = [node for node in ancestors(outputs, until=starts) if node.id not in starts and node.op not in LEAF_OPS]
    return seal(order, outputs, inputs=inputs, literals=True)


def stand_ins_for(nodes: Sequence[Node]) -> list[Any]:
    """Return a placeholder for each node."""
    return [placeholder(node.shape, node.dtype) for node in nodes]


class _Rule(NamedTuple):
    """A derivative of an operator as a fragment, and which of its results belongs to which place, if any."""

    fragment: Fragment
    places: tuple[int | None, ...]

    def place(self, inputs: Sequence[Tensor]) -> list[Tensor | None]:
        results = _placed(self.fragment, inputs)
        return [None if i is None else results[i] for i in self.places]


def _make_rule(inputs: Sequence[Node], found: Sequence[Tensor | None]) -> _Rule:
    order = itertools.count()
    places = tuple(None if tensor is None else next(order) for tensor in found)
    return _Rule(closed(inputs, [tensor for tensor in found if tensor is not None]).fragment, places)


def pull_traced(
    fragment: Fragment, inputs: Sequence[Tensor], ct: Tensor, needed: Sequence[bool]
) -> list[Tensor | None]:
    """Return what a cotangent of the result contributes to each of the inputs that are needed."""

    def derive() -> _Rule:
        stand_ins, arriving = stand_ins_for(inputs), placeholder(ct.shape, ct.dtype)
        wanted = [x for x, is_needed in zip(stand_ins, needed, strict=True) if is_needed]
        found = iter(pullback([apply_traced(fragment, stand_ins)], [arriving], wanted))
        return _make_rule([*stand_ins, arriving], [next(found) if is_needed else None for is_needed in needed])

    rule: _Rule = derived(fragment, inputs, ("operator pullback", *needed), derive)
    return rule.place([*inputs, ct])


def push_traced(fragment: Fragment, inputs: Sequence[Tensor], tangents: Sequence[Tensor | None]) -> Tensor | None:
    """Return the tangent of the result from tangents of the inputs."""
    moving = [t for t in tangents if t is not None]

    def derive() -> _Rule:
        stand_ins, arriving = stand_ins_for(inputs), stand_ins_for(moving)
        given = iter(arriving)
        pushed = [None if t is None else next(given) for t in tangents]
        return _make_rule([*stand_ins, *arriving], pushforward([apply_traced(fragment, stand_ins)], stand_ins, pushed))

    key = ("operator pushforward", *[t is not None for t in tangents])
    rule: _Rule = derived(fragment, inputs, key, derive)
    return rule.place([*inputs, *moving])[0]


def adjoint_of(fragment: Fragment, inputs: Sequence[Node], user: Node) -> Fragment:
    """Return the adjoint of a traced operator: it takes a vector and the same parameters, in the same order.

    The adjoint belongs to the inner product Re⟨a, b⟩; for an operator that is linear over the complex numbers it is the
    conjugate transpose. ``user`` is the node that needs it, to be named in an error.
    """

    def derive() -> Fragment:
        vector, *parameters = stand_ins = stand_ins_for(inputs)
        arriving = placeholder(vector.shape, vector.dtype)
        pulled = pullback([apply_traced(fragment, stand_ins)], [arriving], [vector])[0]
        captured = closed([arriving, *parameters], [zeros_like(vector) if pulled is None else pulled])
        if any(node is vector for node in captured.inputs):
            raise ArgumentError(
                "the operator is not linear in its vector, because its derivative depends on the vector, in "
                f"{describe(user)}, made at {source_of(user)}"
            )
        return captured.fragment

    adjoint: Fragment = derived(fragment, inputs, "adjoint operator", derive)
    return adjoint


# --- on arrays -------------------------------------------------------------------------------------------------------


class Applied:
    """A traced operator on flat NumPy vectors, which is what SciPy takes; it counts its applications."""

    def __init__(self, fragment: Fragment, shape: tuple[int, ...], dtype: DType, parameters: Sequence[Any]) -> None:
        engine = default_engine()
        self._plan = engine.plans.plan_for(fragment, (shape, *[np.shape(p) for p in parameters]))
        self._statistics = engine.statistics
        self._shape = shape
        self.parameters = parameters
        self.dtype = dtype
        self.size = math.prod(shape)
        self.count = 0

    def __call__(self, vector: Any) -> Any:
        """Apply the operator to a vector with one axis."""
        self.count += 1
        plan = self._plan
        self._statistics.kernel_calls += plan.kernels
        return plan.run(vector.reshape(self._shape), *self.parameters)[0].reshape(-1)
