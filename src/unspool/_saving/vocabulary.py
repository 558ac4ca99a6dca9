"""The classes that may stand in a file, as a table: what each is made of, and how it is made again.

A parameter of an op that is an object of ours has its line here. An op whose parameter has changed is one line that
changes; one whose parameter is not here cannot be saved, and says so.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from unspool import _trees as trees
from unspool._autodiff.loops.checkpointed import Checkpointed
from unspool._autodiff.loops.checkpointed_adjoint import AdjointLoop
from unspool._autodiff.loops.checkpointed_rules import CHECKPOINTED_LOOP, REVERSED_LOOP, Checkpoints, Reversal
from unspool._autodiff.loops.checkpointed_run import Bodies
from unspool._autodiff.loops.gather import OUTER_SUM
from unspool._autodiff.loops.loop import LOOP, Body, Loop
from unspool._autodiff.loops.structure import Outer
from unspool._autodiff.loops.trace import TracedStep
from unspool._autodiff.rules.custom_call import CustomCall, _Template
from unspool._autodiff.solvers.arpack import Wanted
from unspool._autodiff.solvers.deflation import EDGE_CHECK, EIGSH_EDGE, Search
from unspool._autodiff.solvers.implicit import FIXED_POINT, Implicit, Route
from unspool._autodiff.solvers.lanczos import EIGSH
from unspool._autodiff.solvers.linear_solve import LINEAR_SOLVE, Equation, Guard
from unspool._autodiff.sweeps.chain import CHAIN, Chain, StepKind
from unspool._batching.fixed_points import FIXED_POINTS
from unspool._batching.mapped import MAPPED, Member
from unspool._batching.reorder import REORDER
from unspool._batching.turning import TURNED
from unspool._core import position_key
from unspool._engine.default import default_engine
from unspool._engine.plan import Plan
from unspool._engine.structure import Apart
from unspool._fragments.fragment import Fragment, Instruction, Literal, fragment_of
from unspool._graph import NO_PARAMS, SizedParams
from unspool._ops.batching import Members
from unspool._ops.leaf import CONSTANT
from unspool._ops.linalg.division import Division
from unspool._ops.linalg.gauge import Tolerances
from unspool._ops.op import Op
from unspool._ops.random import Key
from unspool._saving.codec import Word
from unspool._saving.definitions import (
    Digest,
    digest_of_function,
    digest_of_op,
    find_function,
    find_op,
    name_of_function,
)
from unspool._saving.places import Place, Positions, place_of
from unspool.errors import SaveFileError

# Ops that nobody applies by name, so that they are not registered.
UNREGISTERED: dict[str, Op] = {
    op.name: op
    for op in (
        CHAIN,
        CHECKPOINTED_LOOP,
        EDGE_CHECK,
        EIGSH,
        EIGSH_EDGE,
        FIXED_POINT,
        FIXED_POINTS,
        LINEAR_SOLVE,
        LOOP,
        MAPPED,
        OUTER_SUM,
        REORDER,
        REVERSED_LOOP,
        TURNED,
    )
}


class Position(NamedTuple):
    """A position in a program: a code object and an offset."""

    code: Any
    lasti: int


class Recipe(NamedTuple):
    """What nodes that one line makes in each step have in common: all but their inputs."""

    op: Op
    params: Any
    shape: Any
    dtype: Any
    is_bundle: bool
    position: Position
    name: str | None


class CallKind(NamedTuple):
    """What calls of one plan have in common; ``origins`` is None where they are those of the fragment."""

    plan: Plan
    origins: tuple[Position, ...] | None
    is_folded: bool


class PieceKind(NamedTuple):
    """What pieces of one site have in common."""

    fragment: Fragment
    shapes: tuple[Any, ...]
    results: int
    positions: tuple[int, ...]
    origins: tuple[Position, ...]
    has_bundles: bool
    has_large: bool
    apart: Apart


# --- how each is split and joined ------------------------------------------------------------------------------------


def _as(value: Any, kind: type | tuple[type, ...], what: str) -> Any:
    if not isinstance(value, kind) or (kind is int and type(value) is bool):
        raise SaveFileError(f"{what} in the file is {value!r:.80}")
    return value


def _named_tuple(kind: Any, name: str = "") -> Word:
    def join(*parts: Any) -> Any:
        if len(parts) != len(kind._fields):
            raise SaveFileError(f"a {kind.__name__} has {len(kind._fields)} parts; the file has {len(parts)}")
        return kind(*parts)

    return Word(name or kind.__name__, kind, tuple, join)


def _data_class(kind: Any) -> Word:
    names = kind.__match_args__

    def join(*parts: Any) -> Any:
        if len(parts) != len(names):
            raise SaveFileError(f"a {kind.__name__} has {len(names)} parts; the file has {len(parts)}")
        return kind(*parts)

    return Word(kind.__name__, kind, lambda value: tuple([getattr(value, name) for name in names]), join)


def _split_op(op: Op) -> tuple[Any, ...]:
    digest = digest_of_op(op)
    return op.name, None if digest is None else tuple(digest)


def _join_op(name: Any, digest: Any) -> Op:
    _as(name, str, "the name of an op")
    return find_op(name, None if digest is None else Digest(*digest), UNREGISTERED)


def _split_fragment(fragment: Fragment) -> tuple[Any, ...]:
    body = [(i.op, i.operands, type(i.params) is SizedParams, dict(i.params)) for i in fragment.body]
    origins = [Position(*origin) for origin in fragment.origins]
    return fragment.dtypes, fragment.shapes, body, fragment.outputs, fragment.results, origins


def _join_fragment(dtypes: Any, shapes: Any, body: Any, outputs: Any, results: Any, origins: Any) -> Fragment:
    made = []
    first, slots = len(_as(dtypes, tuple, "the inputs of a fragment")), len(dtypes) + len(body)
    for slot, (op, operands, is_sized, params) in enumerate(body, first):
        _as(op, Op, "an op")
        if not all(type(i) is int and 0 <= i < slot for i in operands):
            raise SaveFileError(f"an instruction in the file reads {operands!r:.80}")
        if op is CONSTANT:
            _as(params["literal"], Literal, "a literal")
        made.append(Instruction(op, operands, params_of(params, is_sized)))
    if not all(type(i) is int and 0 <= i < slots for i in outputs) or not 0 <= _as(results, int, "a count") <= len(
        outputs
    ):
        raise SaveFileError("the outputs of a fragment in the file are not among its values")
    if len(origins) != len(body):
        raise SaveFileError("a fragment in the file has not one line for each of its ops")
    positions = tuple([tuple(_as(origin, Position, "a line")) for origin in origins])
    return fragment_of(dtypes, shapes, tuple(made), outputs, results, positions)


def params_of(params: Any, is_sized: bool) -> Any:
    """Return parameters as a node or an instruction keeps them."""
    _as(params, dict, "the parameters of an op")
    if is_sized:
        return SizedParams(params)
    return params or NO_PARAMS


def _join_plan(fragment: Any, shapes: Any) -> Plan:
    _as(fragment, Fragment, "a fragment")
    if not all(type(size) is int and size >= 0 for shape in shapes for size in shape):
        raise SaveFileError(f"a plan in the file is for the shapes {shapes!r:.80}")
    return default_engine().plans.plan_for(fragment, shapes)


def _join_literal(array: Any, is_seed: Any) -> Literal:
    if not hasattr(array, "tobytes"):
        raise SaveFileError("a literal in the file is no array")
    return Literal(array, _as(is_seed, bool, "a flag"))


def _split_route(route: Route) -> tuple[Any, ...]:
    kept = (route.step, route.strategy, route.steps, route.history, route.residual)
    return *kept, route.closed, route.leaves, route.passes, route.is_counted, route.has_tangent


def _join_route(
    step: Any,
    strategy: Any,
    steps: Any,
    history: Any,
    residual: Any,
    closed: Any,
    leaves: Any,
    passes: Any,
    counted: Any,
    has_tangent: Any,
) -> Route:
    flags = {"is_counted": counted, "has_tangent": has_tangent}
    found = Route(_as(step, TracedStep, "a step"), strategy, steps, history, residual, (), (), **flags)
    found.closed, found.leaves, found.passes = closed, leaves, passes
    found._key = (id(step.fragment), strategy, steps, history, closed, counted, has_tangent)
    return found


def _split_template(template: _Template) -> tuple[Any, ...]:
    return _nesting(template.structure), template.places, template._others


def _join_template(nesting: Any, places: Any, others: Any) -> _Template:
    found: Any = _Template.__new__(_Template)
    found.structure, found.tensors, found.places, found._others = _structure(nesting), [], places, others
    if len(others) != found.structure.num_leaves or not all(0 <= place < len(others) for place in places):
        raise SaveFileError("the arguments of a call in the file do not fit together")
    return found  # type: ignore[no-any-return]


def _nesting(structure: Any) -> Any:
    """Return a structure as something nested in the same way."""
    return trees.unflatten(structure, range(structure.num_leaves))


def _structure(nesting: Any) -> Any:
    return trees.flatten(nesting)[1]


def _split_call(call: CustomCall) -> tuple[Any, ...]:
    function = call.function
    identity = name_of_function(function), tuple(digest_of_function(function))
    counts = call._count, call.n_out, call._first_arg, call._first_closed
    return (
        *identity,
        call.nondiff,
        call._positions,
        call._args,
        call._residuals,
        _nesting(call._out_structure),
        counts,
        list(call.passes),
    )


def _join_call(
    name: Any, digest: Any, nondiff: Any, positions: Any, args: Any, residuals: Any, out: Any, counts: Any, passes: Any
) -> CustomCall:
    found: Any = CustomCall.__new__(CustomCall)
    found.function = find_function(_as(name, str, "the name of a function"), Digest(*digest))
    found.nondiff, found._positions, found._begin, found._stand_ins = nondiff, positions, 0, []
    found._args, found._residuals = _as(args, _Template, "arguments"), _as(residuals, _Template, "residuals")
    found._out_structure = _structure(out)
    found._count, found.n_out, found._first_arg, found._first_closed = counts
    found.passes = passes
    found._key = found._make_key()
    return found  # type: ignore[no-any-return]


def _join_checkpointed(slots: Any, memory: Any) -> Checkpointed:
    return Checkpointed(slots=slots, memory=memory)


def _join_key(bits: Any) -> Key:
    key = Key(_as(bits, int, "the bits of a key"))
    if key.bits != bits:
        raise SaveFileError("a random key in the file has more bits than keys have")
    return key


def _join_piece(*parts: Any) -> PieceKind:
    found = PieceKind(*parts)
    _as(found.fragment, Fragment, "a fragment")
    _as(found.apart, Apart, "what stands apart")
    # Not all outputs of its fragment: those that only derivatives look at have no nodes.
    if not 0 <= _as(found.results, int, "a count") <= len(found.positions) <= len(found.fragment.outputs):
        raise SaveFileError("a piece in the file has more results than outputs")
    return found


_MORE: dict[type, dict[str, Any]] = {
    Position: {"key": position_key},
    Fragment: {"has_form": True},
    Plan: {"has_form": True},
    **{kind: {"is_fixed": True} for kind in (Apart, Division, Literal, Members, Outer, Search, SizedParams)},
    **{kind: {"is_fixed": True} for kind in (Tolerances, Wanted)},
}


# --- the table -------------------------------------------------------------------------------------------------------


def words() -> list[Word]:
    """Return the vocabulary; positions in programs are found for one file at a time."""
    positions = Positions()
    made: dict[Place, Position] = {}

    def position(*parts: Any) -> Position:
        place = Place(*parts)
        if not all(isinstance(part, kind) for part, kind in zip(place, (str, str, int, int, str), strict=True)):
            raise SaveFileError(f"a line in the file is {place!r:.120}")
        found = made.get(place)
        if found is None:
            found = made[place] = Position(*positions.position(place))
        return found

    special: list[tuple[str, type, Callable[[Any], tuple[Any, ...]], Callable[..., Any], bool]] = [
        ("Op", Op, _split_op, _join_op, True),
        ("Position", Position, lambda p: tuple(place_of(*p)), position, True),
        ("Fragment", Fragment, _split_fragment, _join_fragment, True),
        ("Plan", Plan, lambda plan: (plan.fragment, plan.input_shapes), _join_plan, True),
        ("Literal", Literal, lambda x: (x.array, x.is_seed), _join_literal, False),
        ("Route", Route, _split_route, _join_route, False),
        ("Template", _Template, _split_template, _join_template, False),
        ("CustomCall", CustomCall, _split_call, _join_call, False),
        ("Checkpointed", Checkpointed, lambda c: (c.slots, c.memory), _join_checkpointed, False),
        ("Checkpoints", Checkpoints, lambda c: (c.bodies, c.strategy), Checkpoints, False),
        ("Key", Key, lambda key: (key.bits,), _join_key, False),
        ("Member", Member, lambda m: (m.op, m.params, m.members), Member, False),
        ("PieceKind", PieceKind, tuple, _join_piece, True),
        ("Sized", SizedParams, lambda params: (dict(params),), lambda params: params_of(params, True), False),
    ]
    found = [Word(*entry) for entry in special]
    found += [_named_tuple(kind) for kind in (AdjointLoop, Apart, Bodies, Body, Chain, Equation, Guard, Loop)]
    found += [_named_tuple(kind) for kind in (Outer, Reversal, Search, StepKind, TracedStep, Wanted)]
    found += [_named_tuple(kind)._replace(is_entry=True) for kind in (Recipe, CallKind)]
    found += [_data_class(kind) for kind in (Division, Implicit, Members, Tolerances)]
    return [word._replace(**_MORE.get(word.type, {})) for word in found]


@cache
def words_by_type() -> dict[type, Word]:
    """Return the vocabulary for those who write; they do not look for positions, so one is for all files."""
    return {word.type: word for word in words()}
