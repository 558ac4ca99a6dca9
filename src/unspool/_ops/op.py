"""What an operation is: one record with everything the other layers need to know about it.

The calling convention of every part is the same: data positional, static parameters by keyword.

``infer(*inputs, **params)``
    shape and dtype of the result, from nodes (symbolic sizes included).
``kernel(*arrays, **params)``
    the value, from NumPy arrays. Takes dtypes from its arrays (the tape also runs kernels on arrays of rationals) and
    never writes into them.
``params``
    what each parameter is: `STRUCTURE`, part of what the program is (axes, subscripts, dtypes, flags), or `SIZE`, sizes
    that may be symbolic and belong to a plan. There is no third kind: what may be another in each step of a loop is an
    input.
``vjp``
    one rule per input, ``rule(ct, out, *inputs, **params)``, or, for ops with any number of inputs, one function
    ``vjp(i, ct, out, *inputs, **params)``. Returns the cotangent for that input; ``None`` in place of a rule marks an
    input through which nothing is differentiated (an index, a condition).
``jvp``
    one rule per input, ``rule(t, out, *inputs, **params)``, whose results are summed, or one function
    ``jvp(tangents, out, *inputs, **params)`` with ``None`` for inputs without tangent.

``batch``
    what the op does to all members of a batch at once, ``rule(op, members, *inputs, **params)``: inputs that belong to
    the members have them along a first axis, and so has the result (`unspool._ops.batching` has the common rules).

A vjp that would do the same work for each input is a `JointRule`. One of vjp and jvp is enough: the other follows by
transposition, which costs a sweep over the graph the rule builds.

Rules build graph with the functions a user would call; they never touch arrays. For an op with several outputs ``out``
and ``ct`` are tuples, the latter with ``None`` for outputs that were not reached.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from inspect import CO_VARKEYWORDS
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from unspool import _core
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

STRUCTURE = "structure"
SIZE = "size"

FOR_ANY, FOR_ITS_OWN, FOR_SEEDS = range(3)


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
    """An operation, its rules and all that other layers have to know of it; see the module docstring for conventions.

    A trait that is not given is the safe one: an op that says nothing is neither view nor fresh nor exact.

    Parameters
    ----------
    name : str
        Unique in the registry.
    infer, kernel, vjp, jvp : callable
        As described above. ``vjp=None`` and ``jvp=None`` mean that the op has no derivative: asking for one through an
        inexact output raises `MissingRuleError`.
    params : mapping of str to {"structure", "size"}
        What each parameter is. They are the keyword-only parameters of ``infer`` and ``kernel``.
    needs : tuple of {"inputs", "output", "positions"}
        Which values the vjp rules look at: what has to be kept, or recomputed, for the backward pass. Positions are the
        inputs of integers.
    canonical : callable, optional
        ``canonical(*inputs, **params)`` returns an existing or simpler node that has, bit for bit, the same value, or
        ``None``. It follows from structure alone: it never looks at a value.
    canonical_for : {FOR_ANY, FOR_ITS_OWN, FOR_SEEDS}
        For which inputs ``canonical`` looks at more than shapes, dtypes and parameters: any; those that the op made
        itself (a view of a view); the 1 that a backward pass starts from. A loop asks the last two once.
    multi : bool
        Whether the op has several outputs; ``infer`` then returns a sequence of pairs and the kernel a tuple.
    cheap : bool
        Whether computing it again costs hardly more than reading it from memory; such values are not kept for
        derivatives.
    renames : bool
        Whether it only names its first input again: the value is that very one.
    passes : bool
        Whether its outputs, of which there are several, are its first inputs.
    contracts : bool
        Whether it is a product of two tensors, of which its parameter ``subscripts`` says what is summed.
    view : bool
        Whether its result may lie in the memory of its first input.
    fresh : bool
        Whether its result never shares memory with anything.
    onto : callable, optional
        Like ``kernel``, but writes the result onto the first input, which nobody reads any more: an array of its own,
        in the shape, dtype and C order of the result.
    exact : frozenset of dtype
        Result types for which it is elementwise and neither the layout of its operands nor where the result is written
        changes a bit: it is rounded correctly or not at all.
    draws : bool
        Whether it draws random numbers, so that one that reads nothing is still another in each step of a loop.
    stepwise : bool
        Whether it stands for steps that an engine may run one by one.
    users_own : bool
        Whether its kernel is a user's, which may not give the same value each time.
    by_value : bool
        Whether its derivative rules look at the value of an operand that is a constant.
    loop : bool
        Whether it is a whole loop. What its rules record follows from its parameters, shapes and dtypes alone, and its
        outputs take their values from it as soon as it has run.
    batch : callable, optional
        As described above. An op with a parameter ``axis`` and none of its own has that parameter counted from the
        second axis on.
    """

    # `OpBase` has what recording looks at: canonical, canonical_for, commuting, infer,
    # inferred, result_dtypes and sized.
    __slots__ = (
        "batch",
        "by_value",
        "cheap",
        "code",
        "contracts",
        "draws",
        "exact",
        "fresh",
        "jvp",
        "kernel",
        "loop",
        "multi",
        "name",
        "needs",
        "onto",
        "params",
        "passes",
        "renames",
        "stepwise",
        "users_own",
        "view",
        "vjp",
    )

    name: str

    def __init__(
        self,
        name: str,
        *,
        infer: Callable[..., Any],
        kernel: Callable[..., Any],
        vjp: Rules = None,
        jvp: Rules = None,
        params: Mapping[str, str] | None = None,
        needs: tuple[str, ...] = (),
        canonical: Callable[..., Tensor | None] | None = None,
        canonical_for: int = FOR_ANY,
        multi: bool = False,
        cheap: bool = False,
        renames: bool = False,
        passes: bool = False,
        contracts: bool = False,
        view: bool = False,
        fresh: bool = False,
        onto: Callable[..., Any] | None = None,
        exact: frozenset[Any] = frozenset(),
        draws: bool = False,
        stepwise: bool = False,
        users_own: bool = False,
        by_value: bool = False,
        loop: bool = False,
        batch: Callable[..., Any] | None = None,
    ) -> None:
        self.name = name
        # Stands for the op where structures are compared: integers are cheap to hash.
        self.code = _next_code()
        self.infer = infer
        self.kernel = kernel
        self.vjp = vjp
        self.jvp = jvp
        declared = params or {}
        check_params(name, declared, {"infer": infer, "kernel": kernel})
        self.params = MappingProxyType(dict(declared))
        self.needs = needs
        self.sized = tuple([parameter for parameter, kind in self.params.items() if kind == SIZE])
        self.canonical = canonical
        self.canonical_for = canonical_for
        self.multi = multi
        self.cheap = cheap
        self.renames = renames
        self.passes = passes
        self.contracts = contracts
        self.view = view
        self.fresh = fresh
        self.onto = onto
        self.exact = exact
        self.draws = draws
        self.stepwise = stepwise
        self.by_value = by_value
        self.loop = loop
        self.users_own = users_own
        self.batch = batch
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


def check_params(name: str, params: Mapping[str, str], functions: Mapping[str, Any]) -> None:
    """Hold the parameters that an op declares against what its functions, by what they are, take by keyword."""
    for parameter, kind in params.items():
        if kind not in (STRUCTURE, SIZE):
            raise OpDefinitionError(
                f"parameter {parameter!r} of op {name!r} is of the kind {STRUCTURE!r} or {SIZE!r}, got {kind!r}"
            )
    for what, function in functions.items():
        keywords, takes_more = keywords_of(function)
        undeclared, missing = set(keywords) - set(params), set(params) - set(keywords)
        if undeclared or (missing and not takes_more):
            raise OpDefinitionError(
                f"{what} of op {name!r} has the keyword-only parameters {sorted(keywords)}, but {sorted(params)} are "
                "declared; params={...} says of each what it is"
            )


def keywords_of(function: Any) -> tuple[tuple[str, ...], bool]:
    """Return the keyword-only parameters of a function, and whether it takes, or may take, others."""
    code = getattr(function, "__code__", None)
    if code is None:  # not written in Python
        return (), True
    first = code.co_argcount
    return code.co_varnames[first : first + code.co_kwonlyargcount], bool(code.co_flags & CO_VARKEYWORDS)


REGISTRY: dict[str, Op] = {}

# How the names of ops of users begin.
USERS = "user:"


def register(op: Op) -> Op:
    """Enter an op into the registry, which tests enumerate; a name can be taken once."""
    if op.name in REGISTRY:
        raise OpDefinitionError(f"there is an op named {op.name!r} already; choose another name")
    REGISTRY[op.name] = op
    op.is_lasting = not op.users_own
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
    from pkgutil import walk_packages

    ops = import_module("unspool._ops")
    for module in walk_packages(ops.__path__, "unspool._ops."):
        import_module(module.name)
    import_module("unspool._autodiff.rules.custom")


# --- ops with several outputs ----------------------------------------------------------------------------------------


def _infer_part(bundle: Node, *, index: int) -> tuple[Any, Any]:
    return bundle.shape[index], bundle.dtype[index]


# The derivative sweeps handle `part` themselves: it moves a cotangent into one slot of the bundle.
PART = register(
    Op("part", infer=_infer_part, kernel=lambda values, *, index: values[index], params={"index": STRUCTURE}, view=True)
)


def parts(bundle: Bundle) -> tuple[Tensor, ...]:
    """Return the outputs of a node that has several."""
    return _core.parts(PART, bundle)
