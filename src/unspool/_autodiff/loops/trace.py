"""Tracing one step of an iteration: the user's functions run once, on stand-ins for the state, and become a fragment.

Every tensor that they use and that does not depend on the state is an input of the fragment, a *constant* of the loop.
What is made of such tensors alone is not part of a step at all: it is one of its constants, computed once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from unspool import _trees as trees
from unspool._autodiff.loops.known_steps import steps_at
from unspool._autodiff.loops.loop import apply_fragment, body_plan
from unspool._autodiff.loops.loop import stand_ins as place_holders
from unspool._dtypes import BOOL, promote, scalar_dtype
from unspool._fragments.asking import asks_for_a_value
from unspool._fragments.fragment import Fragment, capture
from unspool._graph import Node, source_of
from unspool._ops.broadcasting import ensure_shape, may_be_equal
from unspool._ops.elementwise import astype
from unspool._ops.leaf import as_tensor, constant, stand_in
from unspool.errors import ArgumentError, DTypeError, ShapeError, StructureError, UnboundPlaceholderError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

_NUMBERS = (bool, int, float, complex)


class TracedStep(NamedTuple):
    """One step as a fragment.

    Attributes
    ----------
    fragment : Fragment
        Inputs: constants, then the state. Results: the new state, then the outputs of the step.
    constants, carries, outputs : int
        How many there are of each.
    condition : Fragment or None
        The same inputs; its one result is whether to stop after the step.
    names : tuple of str
        What to call each leaf of the state in messages.
    """

    fragment: Fragment
    constants: int
    carries: int
    outputs: int
    condition: Fragment | None
    names: tuple[str, ...]

    def apply(self, constants: Sequence[Tensor], carry: Sequence[Tensor]) -> list[Tensor]:
        """Place the step as graph; returns the new state, then the outputs."""
        return apply_fragment(self.fragment, [*constants, *carry])


class Trace(NamedTuple):
    """A traced step with what it stands on, and the nesting of what the user's function returned.

    Attributes
    ----------
    facts : dict or None
        What is known of all traces that look like this one, shapes and dtypes included; it may be added to.
    """

    step: TracedStep
    constants: list[Tensor]
    initial: list[Tensor]
    state_structure: Any
    output_structure: Any
    facts: dict[Any, Any] | None = None


def trace(
    step: Callable[..., Any], state: Any, until: Callable[..., Any] | None, *, has_outputs: bool, what: str
) -> Trace:
    """Call the functions of an iteration on stand-ins for its state, and describe what they do.

    ``what`` is the function that iterates, for messages.
    """
    leaves, structure = trees.flatten(state)
    initial, is_all_tensors = leaves, all(map(isinstance, leaves, repeat(Node)))
    if not is_all_tensors:
        initial = [as_tensor(leaf) for leaf in leaves]
    names = ("state",) if structure is trees.leaf() else _names(structure)
    while True:
        stand_ins = list(map(stand_in, initial, names))
        returned, new, outputs, nesting = _called(step, structure, stand_ins, names, has_outputs, what)
        wider = None if is_all_tensors else _promoted(initial, new, leaves)
        if wider is None:
            break
        initial = wider
    carry = list(new)
    for i, old in enumerate(stand_ins):
        if carry[i].shape != old.shape or carry[i].dtype != old.dtype:
            carry[i] = _fit(carry[i], old, names[i], returned[i])
    stop = [] if until is None else [_condition(until, structure, new, stand_ins, what)]
    results = [*carry, *outputs, *stop]
    steps = steps_at((step,) if until is None else (step, until), structure, len(results), stand_ins)
    found = steps.find(results, stand_ins)
    if found is None:
        traced, constants = _described(stand_ins, results, len(outputs), bool(stop), names)
        found = (traced, {}), constants
        steps.add(results, stand_ins, constants, found[0])
    (traced, facts), constants = found
    return Trace(traced, constants, initial, structure, nesting, facts)


@lru_cache(maxsize=256)
def _names(structure: Any) -> tuple[str, ...]:
    return tuple(trees.names(structure, "state"))


def _described(
    stand_ins: Sequence[Tensor], results: Sequence[Tensor], outputs: int, has_condition: bool, names: tuple[str, ...]
) -> tuple[TracedStep, list[Tensor]]:
    """Return the step that results on stand-ins show, and its constants."""
    carries = len(stand_ins)
    captured = capture(stand_ins, results)
    constants: Any = captured.inputs[carries:]
    shapes = tuple([node.shape for node in captured.inputs])
    body, condition = _taken_apart(captured.fragment, shapes, carries, has_condition)
    return TracedStep(body, len(constants), carries, outputs, condition, names), constants


def _taken_apart(
    whole: Fragment, shapes: tuple[Any, ...], carries: int, has_condition: bool
) -> tuple[Fragment, Fragment | None]:
    """Return the step and its condition from what was traced as one, with the constants before the state."""
    plan = body_plan(whole, shapes)
    key = ("taken apart", carries, has_condition)
    if plan is not None and key in plan.derivatives:
        found: tuple[Fragment, Fragment | None] = plan.derivatives[key]
        return found
    inputs = place_holders(whole, shapes)
    outputs = apply_fragment(whole, inputs)
    ordered = [*inputs[carries:], *inputs[:carries]]
    step = capture(ordered, outputs[: len(outputs) - has_condition]).fragment
    condition = capture(ordered, outputs[-1:]).fragment if has_condition else None
    if plan is not None:
        plan.derivatives[key] = (step, condition)
    return step, condition


def _called(
    step: Callable[..., Any],
    structure: Any,
    stand_ins: Sequence[Tensor],
    names: Sequence[str],
    split: bool,
    what: str,
) -> tuple[list[Any], list[Tensor], list[Tensor], Any]:
    """Return what a step function returned for stand-ins, taken apart and checked for structure.

    The leaves of the state, these as tensors, the outputs, and their structure.
    """
    returned = _call("the step", what, step, trees.unflatten(structure, stand_ins))
    outputs: Any = None
    if split:
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise StructureError(
                f"with has_outputs=True a step returns (state, outputs), got {type(returned).__name__}"
            )
        returned, outputs = returned
    leaves, found = trees.flatten(returned)
    if found is not structure and found != structure:
        raise StructureError(
            f"a step must return a state of the structure it was given: given {trees.show(structure)}, "
            f"returned {trees.show(found)}"
        )
    state = leaves
    if not all(map(isinstance, leaves, repeat(Node))):
        state = list(map(_returned, leaves, names))
    if not split:
        return leaves, state, [], None
    others, output_structure = trees.flatten(outputs)
    return leaves, state, [_returned(leaf, "the output of the step") for leaf in others], output_structure


def _call(which: str, what: str, function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except UnboundPlaceholderError as error:
        raise asks_for_a_value(error, f"{which} of {what}", "stop with until=, or write the loop in Python") from error


def _returned(leaf: Any, name: str) -> Tensor:
    try:
        return as_tensor(leaf)
    except DTypeError as error:
        raise DTypeError(f"{name}, as returned by the step, must be a tensor: {error}") from None


def _promoted(initial: Sequence[Tensor], new: Sequence[Tensor], leaves: Sequence[Any]) -> list[Tensor] | None:
    """Return the initial state with Python numbers in the dtypes that the step makes of them; ``None`` if they are.

    ``leaves`` are the initial state as it was given.
    """
    changed = False
    promoted = list(initial)
    for i, (old, result) in enumerate(zip(initial, new, strict=True)):
        if (
            isinstance(leaves[i], _NUMBERS)
            and result.dtype != old.dtype
            and promote(old.dtype, result.dtype) == result.dtype
        ):
            promoted[i] = constant(old.value, result.dtype)
            changed = True
    return promoted if changed else None


def _fit(new: Tensor, old: Tensor, name: str, returned: Any) -> Tensor:
    """Return a leaf of the new state if it may have the shape and dtype of the old one, which a number takes."""
    if not may_be_equal(new.shape, old.shape):
        raise ShapeError(
            f"{name} has shape {old.shape} before a step and {new.shape} after it; the shapes of a state must not "
            f"change. The new one was made at {source_of(new)}"
        )
    if new.dtype != old.dtype:
        # A number has no dtype of its own.
        number: type | None = type(returned) if isinstance(returned, _NUMBERS) else None
        if number is None or scalar_dtype(old.dtype, number) != old.dtype:
            raise DTypeError(
                f"{name} has dtype {old.dtype} before a step and {new.dtype} after it; the dtypes of a state must not "
                f"change. The new one was made at {source_of(new)}; .astype({str(old.dtype)!r}) converts it"
            )
        new = astype(new, old.dtype)
    return ensure_shape(new, old.shape)


# --- the condition ---------------------------------------------------------------------------------------------------


def _condition(
    until: Callable[..., Any], structure: Any, new: Sequence[Tensor], old: Sequence[Tensor], what: str
) -> Tensor:
    arguments = [trees.unflatten(structure, new)]
    if _takes_two(until):
        arguments.append(trees.unflatten(structure, old))
    returned = _call("until", what, until, *arguments)
    leaves, nesting = trees.flatten(returned)
    if not trees.is_leaf(nesting):
        raise StructureError(f"until must return one truth value, got the structure {trees.show(nesting)}")
    stop = as_tensor(leaves[0])
    if stop.shape != ():
        raise ShapeError(
            f"until must return a scalar, got shape {stop.shape}, made at {source_of(stop)}; us.all or us.any reduce it"
        )
    if stop.dtype != BOOL:
        raise DTypeError(f"until must return a truth value, got dtype {stop.dtype}, made at {source_of(stop)}")
    return stop


def _takes_two(until: Callable[..., Any]) -> bool:
    """Whether a condition wants the old state beside the new one: it has two positional parameters without default."""
    try:
        parameters = inspect.signature(until).parameters.values()
    except (TypeError, ValueError):
        return False
    required = [
        p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    if len(required) > 2:
        raise ArgumentError(f"until takes (new) or (new, old), but has {len(required)} parameters")
    return len(required) == 2
