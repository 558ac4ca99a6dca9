"""From a fragment and sizes to the steps of a plan: binding, then lowering.

*Binding* carries the shapes of the inputs through the fragment, by the ``infer`` rules of its ops, run on stand-ins:
nodes that belong to no graph. What the sizes contradict is found here, with the user's line, and not by a kernel.

*Lowering* writes down what has to be done, as data. What only names a value again disappears, what depends on no input
is marked as done once, views that a product or an elementwise op takes in its stride are folded into it, and every step
says which values nobody reads after it. None of this changes a bit of a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unspool import _core
from unspool._engine.binding import bind_params, check_rank, solve_sizes
from unspool._engine.costs import nbytes
from unspool._fragments.fragment import Fragment, Instruction, Origin
from unspool._graph import NO_PARAMS, Bundle, Node, Params, source_at
from unspool._ops.broadcasting import ENSURE_SHAPE, broadcast_shapes
from unspool._ops.layout.reshaping import BROADCAST_TO, PERMUTE
from unspool._ops.leaf import CONSTANT, PLACEHOLDER
from unspool._ops.op import PART, Op
from unspool._records import NamedTuple
from unspool._tensor import Tensor
from unspool.errors import KernelError, ShapeMismatchError, SizeContradictionError, UnspoolError


class Bound(NamedTuple):
    """A fragment with its sizes: shape and dtype of every slot (tuples of them where a slot holds several arrays).

    ``params`` has one entry per instruction, with numbers in place of symbolic sizes.
    """

    shapes: tuple[Any, ...]
    dtypes: tuple[Any, ...]
    params: tuple[Params, ...]


def bind(fragment: Fragment, input_shapes: Sequence[tuple[int, ...]]) -> Bound:
    """Carry input shapes through a fragment, or raise what they contradict."""
    if len(input_shapes) != len(fragment.dtypes):
        raise ShapeMismatchError(
            f"a fragment with {len(fragment.dtypes)} inputs was given {len(input_shapes)} shapes: {input_shapes}"
        )
    sizes = _solve(fragment, input_shapes)
    origin = _origin(fragment, 0)
    slots = [_stand_in(shape, dtype, origin) for shape, dtype in zip(input_shapes, fragment.dtypes, strict=True)]
    bound: list[Params] = []
    for j, instruction in enumerate(fragment.body):
        operands, origin = tuple([slots[slot] for slot in instruction.operands]), _origin(fragment, j)
        try:
            params = bind_params(instruction.op, instruction.params, sizes)
            shape, dtype = _infer(instruction, operands, params)
        except Exception as error:
            raise _located(error, instruction, operands, origin) from error
        cls = Bundle if instruction.op.multi else Tensor
        slots.append(_core.new(cls, instruction.op, operands, params, shape, dtype, None, *origin))
        bound.append(params)
    return Bound(tuple([s.shape for s in slots]), tuple([s.dtype for s in slots]), tuple(bound))


# --- stand-ins -------------------------------------------------------------------------------------------------------


def _stand_in(shape: Any, dtype: Any, origin: Origin) -> Node:
    """Return what stands for an input where shapes and dtypes are inferred."""
    return _core.new(Tensor, PLACEHOLDER, (), NO_PARAMS, shape, dtype, None, *origin)


def _origin(fragment: Fragment, j: int) -> Origin:
    return fragment.origins[j] if j < len(fragment.origins) else (bind.__code__, 0)


def _infer(instruction: Instruction, operands: Sequence[Node], params: Params) -> tuple[Any, Any]:
    """Return the shape and dtype of a result, or a tuple of them for an op with several."""
    op = instruction.op
    if op is CONSTANT:
        array = params["literal"].array
        return array.shape, array.dtype
    if op is ENSURE_SHAPE:
        _check_ensured(operands[0].shape, params["shape"], instruction)
    inferred = op.infer(*operands, **params)
    if op.multi:
        return tuple(shape for shape, _ in inferred), tuple(dtype for _, dtype in inferred)
    return inferred  # type: ignore[no-any-return]


def _check_ensured(actual: Any, expected: Any, instruction: Instruction) -> None:
    if actual != expected:
        declared = instruction.params["shape"]
        raise SizeContradictionError(
            f"sizes that must be equal are bound to different numbers: {actual} and {declared} = {expected}"
        )


# --- symbolic sizes --------------------------------------------------------------------------------------------------


def _solve(fragment: Fragment, input_shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
    """Return the numbers that the input shapes give to the fragment's symbolic sizes."""
    if fragment.shapes is None:
        return {}
    origin = _origin(fragment, 0)
    declared = [_stand_in(shape, dtype, origin) for shape, dtype in zip(fragment.shapes, fragment.dtypes, strict=True)]
    pairs = list(zip(declared, input_shapes, strict=True))
    for node, shape in pairs:
        check_rank(node, shape)
    return solve_sizes(pairs)


def _located(error: Exception, instruction: Instruction, operands: Sequence[Node], origin: Origin) -> UnspoolError:
    """Return the error to raise for an instruction that the sizes do not fit, with the user's line."""
    shapes = ", ".join(str(operand.shape) for operand in operands)
    place = f"in {instruction.op.name} of inputs of shapes {shapes}, made at {source_at(*origin)}"
    if isinstance(error, UnspoolError):
        import copy

        located = copy.copy(error)
        located.args = (f"{error}, {place}",)
        return located
    return KernelError(f"{type(error).__name__}: {error}, {place}")


# --- lowering --------------------------------------------------------------------------------------------------------


class Step(NamedTuple):
    """One instruction of a plan.

    Attributes
    ----------
    op : Op
    operands : tuple of int
        The slots it reads.
    params : mapping
        Static parameters, all sizes numbers.
    slot : int
        The slot it fills.
    source : int
        The instruction of the fragment that it stands for.
    once : bool
        Whether it depends on no input, so that it runs once and not in every run.
    dying : tuple of int
        Slots that nobody reads after this step. Inputs, outputs and what is computed once never die.
    """

    op: Op
    operands: tuple[int, ...]
    params: Params
    slot: int
    source: int
    once: bool = False
    dying: tuple[int, ...] = ()


# Results that depend on no input are held if they are not larger than this, else computed in every run.
MOST_HELD_BYTES = 1 << 20


def lower(fragment: Fragment, bound: Bound) -> tuple[tuple[Step, ...], tuple[int, ...]]:
    """Return the steps of a bound fragment and the slots of its outputs."""
    first = len(fragment.dtypes)
    once = slots_computed_once(fragment, bound)
    same: dict[int, int] = {}
    made: dict[int, Step] = {}
    known: dict[Any, int] = {}
    for j, (op, operands, _) in enumerate(fragment.body):
        slot, params = first + j, bound.params[j]
        read = tuple([same.get(operand, operand) for operand in operands])
        renamed = _renamed(op, read, params, made)
        if renamed is None:
            # Values that were different recipes may be the same now that they are looked at without their names.
            renamed = known.setdefault((op.code, read, tuple(params.items())), slot)
        if renamed == slot:
            made[slot] = _folded(Step(op, read, params, slot, j, slot in once), made, bound)
        else:
            same[slot] = renamed
    outputs = tuple([same.get(slot, slot) for slot in fragment.outputs])
    return _with_last_uses(_needed(made, outputs), outputs, first), outputs


def _renamed(op: Op, operands: tuple[int, ...], params: Params, made: dict[int, Step]) -> int | None:
    """Return the slot that holds the very value a step would give, if the step does nothing but name it."""
    if op.renames:
        return operands[0]
    if op is PART and operands[0] in made and made[operands[0]].op.passes:
        return made[operands[0]].operands[params["index"]]
    return None


def slots_computed_once(fragment: Fragment, bound: Bound) -> set[int]:
    """Return the slots whose values depend on no input and are worth holding."""
    first = len(fragment.dtypes)
    found: set[int] = set()
    for slot, (op, operands, _) in enumerate(fragment.body, start=first):
        if op is CONSTANT or (
            not op.draws  # every step of a loop draws with a key of its own: each would be held by a plan of its own
            and all(operand in found for operand in operands)
            and (op.view or op.renames or nbytes(bound.shapes[slot], bound.dtypes[slot]) <= MOST_HELD_BYTES)
        ):
            found.add(slot)
    return found


def _needed(made: dict[int, Step], outputs: tuple[int, ...]) -> list[Step]:
    """Return the steps that outputs depend on, in order."""
    wanted = set(outputs)
    kept = []
    for step in reversed(made.values()):
        if step.slot in wanted:
            wanted.update(step.operands)
            kept.append(step)
    kept.reverse()
    return kept


def _with_last_uses(steps: list[Step], outputs: tuple[int, ...], first: int) -> tuple[Step, ...]:
    immortal = set(outputs) | {step.slot for step in steps if step.once}
    done = []
    for step in reversed(steps):
        dying = () if step.once else tuple(sorted({s for s in step.operands if s >= first and s not in immortal}))
        immortal.update(dying)
        done.append(Step(*step[:-1], dying))
    done.reverse()
    return tuple(done)


# --- views that are folded into what reads them ----------------------------------------------------------------------


def _folded(step: Step, made: dict[int, Step], bound: Bound) -> Step:
    """Return the step reading the sources of views where that gives the same product, or the same elements."""
    if step.op.contracts:
        return _fold_transposes(step, made)
    if bound.dtypes[step.slot] in step.op.exact:
        return _fold_broadcasts(step, made, bound)
    return step


def _fold_transposes(step: Step, made: dict[int, Step]) -> Step:
    """Read matrices instead of their transposes: BLAS takes either."""
    labels, out = step.params["subscripts"].split("->")
    subscripts, operands = labels.split(","), list(step.operands)
    # With more axes another order of labels may make the contraction another product of matrices.
    if max(map(len, subscripts)) > 2 or not set(subscripts[0]) & set(subscripts[1]) - set(out):
        return step
    for i, slot in enumerate(operands):
        view = made.get(slot)
        while view is not None and view.op is PERMUTE:
            if view.params["axes"] == (1, 0):
                subscripts[i] = subscripts[i][::-1]
            operands[i] = view.operands[0]
            view = made.get(operands[i])
    if tuple(operands) == step.operands:
        return step
    return step._replace(operands=tuple(operands), params={"subscripts": f"{','.join(subscripts)}->{out}"})


def _fold_broadcasts(step: Step, made: dict[int, Step], bound: Bound) -> Step:
    """Read what was broadcast instead of the broadcast view, where the result is as large without it."""
    operands = list(step.operands)
    for i, slot in enumerate(operands):
        view = made.get(slot)
        if view is None or view.op is not BROADCAST_TO:
            continue
        candidate = [*operands[:i], view.operands[0], *operands[i + 1 :]]
        if broadcast_shapes(*[bound.shapes[s] for s in candidate]) == bound.shapes[step.slot]:
            operands = candidate
    return step if tuple(operands) == step.operands else step._replace(operands=tuple(operands))
