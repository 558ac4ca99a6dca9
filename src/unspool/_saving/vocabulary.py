"""The classes that may stand in a file, as a table: what each is made of, and how it is made again.

Here is what plain loops have. What loops of the engine's, solvers and rules have is in `loop_vocabulary`, which is
loaded for a value or a name that is not here: a short run has none, and to load all that takes as long as it.

A parameter of an op that is an object of ours has its line here or there. An op whose parameter has changed is one line
that changes; one whose parameter has none cannot be saved, and says so.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from unspool._core import position_key
from unspool._engine.default import default_engine
from unspool._engine.plan import Plan
from unspool._engine.structure import Apart
from unspool._fragments.fragment import Fragment, Instruction, Literal, fragment_of
from unspool._graph import NO_PARAMS, SizedParams
from unspool._ops.batching import Members
from unspool._ops.leaf import CONSTANT
from unspool._ops.op import Op
from unspool._saving.codec import Word, checked, data_class, named_tuple
from unspool._saving.definitions import Digest, digest_of_op, find_op
from unspool._saving.places import Place, Positions, place_of
from unspool.errors import SaveFileError


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


def _split_op(op: Op) -> tuple[Any, ...]:
    digest = digest_of_op(op)
    return op.name, None if digest is None else tuple(digest)


def _join_op(name: Any, digest: Any) -> Op:
    checked(name, str, "the name of an op")
    return find_op(name, None if digest is None else Digest(*digest), _unregistered)


def _split_fragment(fragment: Fragment) -> tuple[Any, ...]:
    body = [(i.op, i.operands, type(i.params) is SizedParams, dict(i.params)) for i in fragment.body]
    origins = [Position(*origin) for origin in fragment.origins]
    return fragment.dtypes, fragment.shapes, body, fragment.outputs, fragment.results, origins


def _join_fragment(dtypes: Any, shapes: Any, body: Any, outputs: Any, results: Any, origins: Any) -> Fragment:
    made = []
    first, slots = len(checked(dtypes, tuple, "the inputs of a fragment")), len(dtypes) + len(body)
    for slot, (op, operands, is_sized, params) in enumerate(body, first):
        checked(op, Op, "an op")
        if not all(type(i) is int and 0 <= i < slot for i in operands):
            raise SaveFileError(f"an instruction in the file reads {operands!r:.80}")
        if op is CONSTANT:
            checked(params["literal"], Literal, "a literal")
        made.append(Instruction(op, operands, params_of(params, is_sized)))
    if not all(type(i) is int and 0 <= i < slots for i in outputs) or not 0 <= checked(results, int, "a count") <= len(
        outputs
    ):
        raise SaveFileError("the outputs of a fragment in the file are not among its values")
    if len(origins) != len(body):
        raise SaveFileError("a fragment in the file has not one line for each of its ops")
    positions = tuple([tuple(checked(origin, Position, "a line")) for origin in origins])
    return fragment_of(dtypes, shapes, tuple(made), outputs, results, positions)


def params_of(params: Any, is_sized: bool) -> Any:
    """Return parameters as a node or an instruction keeps them."""
    checked(params, dict, "the parameters of an op")
    if is_sized:
        return SizedParams(params)
    return params or NO_PARAMS


def _join_plan(fragment: Any, shapes: Any) -> Plan:
    checked(fragment, Fragment, "a fragment")
    if not all(type(size) is int and size >= 0 for shape in shapes for size in shape):
        raise SaveFileError(f"a plan in the file is for the shapes {shapes!r:.80}")
    return default_engine().plans.plan_for(fragment, shapes)


def _join_literal(array: Any, is_seed: Any) -> Literal:
    if not hasattr(array, "tobytes"):
        raise SaveFileError("a literal in the file is no array")
    return Literal(array, checked(is_seed, bool, "a flag"))


def _join_piece(*parts: Any) -> PieceKind:
    found = PieceKind(*parts)
    checked(found.fragment, Fragment, "a fragment")
    checked(found.apart, Apart, "what stands apart")
    # Not all outputs of its fragment: those that only derivatives look at have no nodes.
    if not 0 <= checked(found.results, int, "a count") <= len(found.positions) <= len(found.fragment.outputs):
        raise SaveFileError("a piece in the file has more results than outputs")
    return found


_MORE: dict[type, dict[str, Any]] = {
    Position: {"key": position_key},
    Fragment: {"has_form": True},
    Plan: {"has_form": True},
    **{kind: {"is_fixed": True} for kind in (Apart, Literal, Members, SizedParams)},
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
        ("PieceKind", PieceKind, tuple, _join_piece, True),
        ("Sized", SizedParams, lambda params: (dict(params),), lambda params: params_of(params, True), False),
    ]
    found = [Word(*entry) for entry in special]
    found += [named_tuple(Apart), data_class(Members)]
    found += [named_tuple(kind)._replace(is_entry=True) for kind in (Recipe, CallKind)]
    return [word._replace(**_MORE.get(word.type, {})) for word in found]


@cache
def words_by_type() -> dict[type, Word]:
    """Return the vocabulary for those who write; they do not look for positions, so one is for all files."""
    return {word.type: word for word in words()}


def more_words() -> list[Word]:
    """Return the words of loops, solvers and rules, whose modules are loaded for it."""
    from unspool._saving.loop_vocabulary import words as found

    return found()


def _unregistered() -> dict[str, Op]:
    """Return the ops that nobody applies by name, so that they are not registered."""
    from unspool._saving.loop_vocabulary import UNREGISTERED

    return UNREGISTERED
