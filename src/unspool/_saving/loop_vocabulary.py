"""The classes of loops, solvers and rules that may stand in a file; all others, and the idea, are in `vocabulary`."""

from __future__ import annotations

from functools import cache
from typing import Any

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
from unspool._ops.linalg.division import Division
from unspool._ops.linalg.gauge import Tolerances
from unspool._ops.op import Op
from unspool._ops.random import Key
from unspool._saving.codec import Word, checked, data_class, named_tuple
from unspool._saving.definitions import Digest
from unspool._saving.functions import digest_of_function, find_function, name_of_function
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


# --- how each is split and joined ------------------------------------------------------------------------------------


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
    found = Route(checked(step, TracedStep, "a step"), strategy, steps, history, residual, (), (), **flags)
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
    found.function = find_function(checked(name, str, "the name of a function"), Digest(*digest))
    found.nondiff, found._positions, found._begin, found._stand_ins = nondiff, positions, 0, []
    found._args, found._residuals = checked(args, _Template, "arguments"), checked(residuals, _Template, "residuals")
    found._out_structure = _structure(out)
    found._count, found.n_out, found._first_arg, found._first_closed = counts
    found.passes = passes
    found._key = found._make_key()
    return found  # type: ignore[no-any-return]


def _join_checkpointed(slots: Any, memory: Any) -> Checkpointed:
    return Checkpointed(slots=slots, memory=memory)


def _join_key(bits: Any) -> Key:
    key = Key(checked(bits, int, "the bits of a key"))
    if key.bits != bits:
        raise SaveFileError("a random key in the file has more bits than keys have")
    return key


# --- the table -------------------------------------------------------------------------------------------------------


@cache
def words() -> list[Word]:
    """Return these words."""
    found = [
        Word("Route", Route, _split_route, _join_route),
        Word("Template", _Template, _split_template, _join_template),
        Word("CustomCall", CustomCall, _split_call, _join_call),
        Word("Checkpointed", Checkpointed, lambda c: (c.slots, c.memory), _join_checkpointed),
        Word("Checkpoints", Checkpoints, lambda c: (c.bodies, c.strategy), Checkpoints),
        Word("Key", Key, lambda key: (key.bits,), _join_key),
        Word("Member", Member, lambda m: (m.op, m.params, m.members), Member),
    ]
    found += [named_tuple(kind) for kind in (AdjointLoop, Bodies, Body, Chain, Equation, Guard, Loop)]
    found += [named_tuple(kind) for kind in (Outer, Reversal, Search, StepKind, TracedStep, Wanted)]
    found += [data_class(kind) for kind in (Division, Implicit, Tolerances)]
    fixed = (Division, Outer, Search, Tolerances, Wanted)
    return [word._replace(is_fixed=word.type in fixed) for word in found]
