"""What an operation is: one record with everything the other layers need to know about it.

The calling convention of every part is the same: data positional, static parameters by keyword.

``infer(*inputs, **params)``
    shape and dtype of the result, from nodes (symbolic sizes included).
``kernel(*arrays, **params)``
    the value, from NumPy arrays. Takes dtypes from its arrays (the tape also runs kernels on arrays of rationals) and
    never writes into them.
``vjp``
    one rule per input, ``rule(ct, out, *inputs, **params)``, or, for ops with any number of inputs, one function
    ``vjp(i, ct, out, *inputs, **params)``. Returns the cotangent for that input; ``None`` in place of a rule marks an
    input through which nothing is differentiated (an index, a condition).
``jvp``
    one rule per input, ``rule(t, out, *inputs, **params)``, whose results are summed, or one function
    ``jvp(tangents, out, *inputs, **params)`` with ``None`` for inputs without tangent.

A vjp that would do the same work for each input is a `JointRule`. One of vjp and jvp is enough: the other follows by
transposition, which costs a sweep over the graph the rule builds.

Rules build graph with the functions a user would call; they never touch arrays. For an op with several outputs ``out``
and ``ct`` are tuples, the latter with ``None`` for outputs that were not reached.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from importlib import import_module
from pkgutil import walk_packages
from typing import TYPE_CHECKING, Any, TypeAlias

from unspool import _graph
from unspool._core import OpBase
from unspool.errors import OpDefinitionError

if TYPE_CHECKING:
    from unspool._graph import Bundle, Node, Params
    from unspool._tensor import Tensor

Rule: TypeAlias = Callable[..., "Tensor | None"]
Rules: TypeAlias = tuple[Rule | None, ...] | Rule | None

_next_code = itertools.count().__next__

INPUTS = "inputs"
OUTPUT = "output"
POSITIONS = "positions"


class JointRule:
    """A vjp that gives the contributions to all inputs in one go, for ops whose rule would repeat itself for each.

    Parameters
    ----------
    function : callable
        ``function(needed, ct, out, *inputs, **params)`` returns one contribution, or ``None``, per input. ``needed``
        has one bool per input; other contributions are not looked at.
    passes : callable, optional
        ``passes(params)`` returns one bool per input: whether anything is differentiated through it. All by default.
    """

    __slots__ = ("function", "passes")

    def __init__(
        self, function: Callable[..., Sequence[Any]], passes: Callable[[Params], Sequence[bool]] | None = None
    ) -> None:
        self.function = function
        self.passes = passes

    def __call__(self, position: int, ct: Any, out: Any, *inputs: Node, **params: Any) -> Any:
        """Return one contribution: the form that every vjp of an op with any number of inputs has."""
        needed = [i == position for i in range(len(inputs))]
        return self.function(needed, ct, out, *inputs, **params)[position]


class Op(OpBase):
    """An operation and its rules; see the module docstring for the conventions.

    Parameters
    ----------
    name : str
        Unique in the registry.
    infer, kernel, vjp, jvp : callable
        As described above. ``vjp=None`` and ``jvp=None`` mean that the op has no derivative: asking for one through an
        inexact output raises `MissingRuleError`.
    needs : tuple of {"inputs", "output", "positions"}
        Which values the vjp rules look at: what has to be kept, or rebuilt, for the reverse sweep. Positions are the
        inputs of integers.
    sized : tuple of str
        Parameters that may contain symbolic sizes.
    canonical : callable, optional
        ``canonical(*inputs, **params)`` returns an existing or simpler node that has, bit for bit, the same value, or
        ``None``.
    cheap : bool
        Whether computing it again costs hardly more than reading it from memory; such values are not kept for
        derivatives.
    multi : bool
        Whether the op has several outputs; ``infer`` then returns a sequence of pairs and the kernel a tuple.
    """

    # `OpBase` has what recording looks at: canonical, commuting, infer, inferred, result_dtypes and sized.
    __slots__ = ("cheap", "code", "jvp", "kernel", "multi", "name", "needs", "vjp")

    def __init__(
        self,
        name: str,
        *,
        infer: Callable[..., Any],
        kernel: Callable[..., Any],
        vjp: Rules = None,
        jvp: Rules = None,
        needs: tuple[str, ...] = (),
        sized: tuple[str, ...] = (),
        canonical: Callable[..., Tensor | None] | None = None,
        multi: bool = False,
        cheap: bool = False,
    ) -> None:
        self.name = name
        # Stands for the op where structures are compared: integers are cheap to hash.
        self.code = _next_code()
        self.infer = infer
        self.kernel = kernel
        self.vjp = vjp
        self.jvp = jvp
        self.needs = needs
        self.sized = sized
        self.canonical = canonical
        self.multi = multi
        self.cheap = cheap
        # What it inferred before, by shapes, dtypes and parameters.
        self.inferred = {}
        # Used by the elementwise fast path: dtypes for which operands may be swapped without changing a bit of the
        # result, and a cache of result dtypes by input dtypes.
        self.commuting = frozenset()
        self.result_dtypes = {}

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def __reduce__(self) -> tuple[Callable[[str], Op], tuple[str]]:
        return lookup, (self.name,)


REGISTRY: dict[str, Op] = {}


def register(op: Op) -> Op:
    """Enter an op into the registry, which tests enumerate; a name can be taken once."""
    if op.name in REGISTRY:
        raise OpDefinitionError(f"there is an op named {op.name!r} already; choose another name")
    REGISTRY[op.name] = op
    return op


def lookup(name: str) -> Op:
    """Return the registered op of that name."""
    if name not in REGISTRY:
        load_all()
    if name not in REGISTRY:
        raise OpDefinitionError(f"there is no op named {name!r}")
    return REGISTRY[name]


def load_all() -> None:
    """Import all modules with ops: many are otherwise imported when they are first used."""
    ops = import_module("unspool._ops")
    for module in walk_packages(ops.__path__, "unspool._ops."):
        import_module(module.name)
    import_module("unspool._autodiff.custom")


# --- ops with several outputs ----------------------------------------------------------------------------------------


def _infer_part(bundle: Node, *, index: int) -> tuple[Any, Any]:
    return bundle.shape[index], bundle.dtype[index]


# The derivative sweeps handle `part` themselves: it moves a cotangent into one slot of the bundle.
PART = register(Op("part", infer=_infer_part, kernel=lambda values, *, index: values[index]))


def parts(bundle: Bundle) -> tuple[Tensor, ...]:
    """Return the outputs of a node that has several."""
    return tuple(_graph.apply(PART, bundle, index=i) for i in range(len(bundle.shape)))
