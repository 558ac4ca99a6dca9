"""Linear operators as fragments: a function v ↦ A·v is traced once, and what it closes over becomes parameters.

A traced operator is data: a fragment whose first input is the vector and whose other inputs are the parameters. So it can
be a static parameter of a node, run on arrays inside a kernel, be applied to nodes by a derivative rule, and be
transposed: its adjoint is what pulling a cotangent back to the vector builds, described as a fragment again. An operator
whose adjoint would depend on the vector is not linear, which is how that mistake is found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unspool import _graph
from unspool._autodiff.accumulation import total
from unspool._autodiff.calls import pull_call, push_call
from unspool._autodiff.forward import pushforward
from unspool._autodiff.identity import alias, zeros_like
from unspool._autodiff.reverse import pullback
from unspool._dims import Shape, is_concrete, product
from unspool._dtypes import COMPLEX, DType, promote, real_dtype
from unspool._engine.default import default_engine
from unspool._fragments.call import expand, make_call, output
from unspool._fragments.fragment import Fragment, capture
from unspool._graph import Node, SizedParams
from unspool._ops import elementwise, layout
from unspool._ops.broadcasting import ensure_shape, may_be_equal
from unspool._ops.contraction import matmul
from unspool._ops.leaf import CONSTANT, as_tensor, constant, placeholder, tensor
from unspool.errors import ArgumentError, DTypeError, ShapeError

if TYPE_CHECKING:
    from unspool._engine.plan import Plan
    from unspool._tensor import Tensor


class Traced(NamedTuple):
    """A linear operator: a fragment, and the tensors at its inputs after the vector."""

    fragment: Fragment
    parameters: tuple[Tensor, ...]


# --- tracing ---------------------------------------------------------------------------------------------------------


def trace(function: Callable[[Tensor], Any], shape: Shape, dtype: DType, what: str) -> Traced:
    """Trace a function on a stand-in for a vector of some shape and dtype; it has to return one of the same kind."""
    vector = placeholder(shape, dtype)
    result = as_tensor(function(vector))
    if result.shape != shape:
        if not may_be_equal(result.shape, shape):
            raise ShapeError(f"{what} maps a vector of shape {shape} to one of shape {result.shape}; it has to be square")
        result = ensure_shape(result, shape)
    if result.dtype != dtype:
        raise DTypeError(f"{what} maps a vector of dtype {dtype} to one of dtype {result.dtype}")
    fragment, inputs, _ = capture([vector], [result])
    return Traced(fragment, tuple(inputs[1:]))  # type: ignore[arg-type]


def trace_beside(operator: Any, args: tuple[Any, ...], vector: Tensor, what: str) -> tuple[Traced, Tensor]:
    """Trace an operator as users give it, and return it with the vector in the dtype that the two combine to."""
    function = as_function(operator, args, what)
    probe = as_tensor(function(placeholder(vector.shape, vector.dtype)))
    dtype = promote(vector.dtype, probe.dtype)
    return trace(function, vector.shape, dtype, what), elementwise.astype(vector, dtype)


def as_function(operator: Any, args: tuple[Any, ...], what: str) -> Callable[[Tensor], Any]:
    """Return a function of the vector alone, from a function and its further arguments or from a matrix."""
    if not isinstance(args, tuple):
        raise ArgumentError(f"args is a tuple of what {what} takes after the vector, got {args!r}")
    if callable(operator):
        return lambda v: operator(v, *args)
    if args:
        raise ArgumentError(f"{what} is a matrix, which takes no further arguments, but args has {len(args)}")
    matrix = as_tensor(operator)
    if matrix.op is CONSTANT:
        matrix = tensor(matrix.value)  # data of its own and not part of the structure of a fragment
    if matrix.ndim != 2 or not may_be_equal(matrix.shape[:1], matrix.shape[1:]):
        raise ShapeError(f"{what} is a function or a square matrix, got a tensor of shape {matrix.shape}")
    return lambda v: layout.reshape(matmul(matrix, layout.reshape(v, (product(v.shape),))), v.shape)


# --- on nodes --------------------------------------------------------------------------------------------------------


def apply_traced(fragment: Fragment, inputs: Sequence[Tensor]) -> Tensor:
    """Apply a traced operator to a vector and parameters."""
    plan = _plan(fragment, inputs)
    if plan is None:
        return _replay(fragment, inputs)
    return output(make_call(plan, tuple(inputs), fragment.origins), 0)


def pull_traced(
    fragment: Fragment, inputs: Sequence[Tensor], ct: Tensor, needed: Sequence[bool]
) -> list[Tensor | None]:
    """Return what a cotangent of the result contributes to each of the inputs that are needed."""
    plan = _plan(fragment, inputs)
    if plan is not None:
        call = make_call(plan, tuple(inputs), fragment.origins)
        return [None if found is None else total(found) for found in pull_call(call, [ct], needed)]
    # Identities of their own: a parameter may be made from another one.
    own = [alias(x) for x in inputs]
    wanted = [x for x, is_needed in zip(own, needed, strict=True) if is_needed]
    found = iter(pullback([_replay(fragment, own)], [ct], wanted))
    return [next(found) if is_needed else None for is_needed in needed]


def push_traced(fragment: Fragment, inputs: Sequence[Tensor], tangents: Sequence[Tensor | None]) -> Tensor | None:
    """Return the tangent of the result from tangents of the inputs."""
    plan = _plan(fragment, inputs)
    if plan is not None:
        return push_call(make_call(plan, tuple(inputs), fragment.origins), tangents, (0,))[0]
    own = [alias(x) for x in inputs]
    return pushforward([_replay(fragment, own)], own, tangents)[0]


def _plan(fragment: Fragment, inputs: Sequence[Node]) -> Plan | None:
    """Return the plan for inputs of known sizes."""
    shapes = tuple([node.shape for node in inputs])
    return default_engine().plans.plan_for(fragment, shapes) if all(map(is_concrete, shapes)) else None


def _replay(fragment: Fragment, inputs: Sequence[Node]) -> Tensor:
    """Apply the ops of a fragment, one by one, to nodes whose sizes may be symbolic."""
    nodes: list[Any] = list(inputs)
    sizes = _renaming(fragment, inputs)
    for op, operands, params in fragment.body:
        if op is CONSTANT:
            nodes.append(constant(params["literal"].array))
            continue
        if sizes and type(params) is SizedParams:
            params = {name: _renamed(value, sizes) if name in op.sized else value for name, value in params.items()}
        apply: Any = _graph.apply_multi if op.multi else _graph.apply
        nodes.append(apply(op, *[nodes[slot] for slot in operands], **params))
    result: Tensor = nodes[fragment.outputs[0]]
    return result


def _renaming(fragment: Fragment, inputs: Sequence[Node]) -> dict[str, Any]:
    """Return the sizes that the names in a fragment stand for, where the inputs have others than it was traced with."""
    found: dict[str, Any] = {}
    for traced, node in zip(fragment.shapes or (), inputs, strict=False):
        for name, size in zip(traced, node.shape, strict=True):
            if name != size:
                found[str(name)] = size
    return found


def _renamed(value: Any, sizes: dict[str, Any]) -> Any:
    if isinstance(value, tuple):
        return tuple(_renamed(entry, sizes) for entry in value)
    if isinstance(value, (int, np.integer)) or not hasattr(value, "names"):
        return value
    return value.bind({name: sizes.get(name, _graph_size(name)) for name in value.names()})


def _graph_size(name: str) -> Any:
    from unspool._dims import dims

    return dims(name)


# --- the adjoint -----------------------------------------------------------------------------------------------------

_ADJOINT = "adjoint operator"


def adjoint_of(fragment: Fragment, inputs: Sequence[Node]) -> Fragment:
    """Return the adjoint of a traced operator: it takes a vector and the same parameters, in the same order.

    The adjoint belongs to the inner product Re⟨a, b⟩; for an operator that is linear over the complex numbers it is the
    conjugate transpose. It is derived once for a fragment and sizes.
    """
    plan = _plan(fragment, inputs)
    if plan is None:
        return _derive_adjoint(fragment, inputs, None)
    found: Fragment | None = plan.derivatives.get(_ADJOINT)
    if found is None:
        found = plan.derivatives[_ADJOINT] = _derive_adjoint(fragment, inputs, plan)
    return found


def _derive_adjoint(fragment: Fragment, inputs: Sequence[Node], plan: Plan | None) -> Fragment:
    stand_ins: list[Any] = [placeholder(x.shape, x.dtype) for x in inputs]
    vector, *parameters = stand_ins
    if plan is None:
        result = _replay(fragment, stand_ins)
    else:
        result = expand(plan, stand_ins, fragment.origins)[fragment.outputs[0]]  # type: ignore[assignment]
    arriving = placeholder(vector.shape, vector.dtype)
    pulled = pullback([result], [arriving], [vector])[0]
    captured = capture([arriving, *parameters], [zeros_like(vector) if pulled is None else pulled])
    if len(captured.inputs) > len(stand_ins):
        raise ArgumentError(
            "the operator is not linear in its vector: its derivative depends on the vector. Take out constant terms, "
            "norms and whatever else is no linear map, or differentiate it first"
        )
    return captured.fragment


# --- on arrays -------------------------------------------------------------------------------------------------------


class Applied:
    """A traced operator on flat NumPy vectors, which is what SciPy takes; it counts its applications.

    With ``real``, a complex vector is seen as a real one of twice the length: an operator that is linear over the real
    numbers only, one that contains a conjugate for instance, is linear there.
    """

    def __init__(
        self, fragment: Fragment, shape: tuple[int, ...], dtype: DType, parameters: Sequence[Any], real: bool = False
    ) -> None:
        engine = default_engine()
        plan = engine.plans.plan_for(fragment, (shape, *[np.shape(p) for p in parameters]))
        self._plan = plan
        self._statistics = engine.statistics
        self._shape = shape
        self._parameters = parameters
        self._complex = dtype
        self.dtype = real_dtype(dtype) if real else dtype
        self._is_split = real and dtype in COMPLEX
        self.size = int(np.prod(shape)) * (2 if self._is_split else 1)
        self.count = 0

    def __call__(self, flat: Any) -> Any:
        """Apply the operator to a vector with one axis."""
        self.count += 1
        self._statistics.kernel_calls += self._plan.kernels
        vector = self.unflatten(flat)
        return self.flatten(self._plan.run(vector, *self._parameters)[0])

    def flatten(self, array: Any) -> Any:
        """Return an array of the operator's shape as a vector with one axis."""
        flat = np.ascontiguousarray(array).reshape(-1)
        return flat.view(self.dtype) if self._is_split else flat

    def unflatten(self, flat: Any) -> Any:
        """Return a vector with one axis as an array of the operator's shape."""
        vector = np.ascontiguousarray(flat).reshape(-1)
        return (vector.view(self._complex) if self._is_split else vector).reshape(self._shape)
