"""Products of matrices that are added to the sum of a loop as BLAS computes them.

A sum that a loop adds up is as large as what it is the gradient of, and a product of thin matrices that is added to it
costs less than writing it out, reading it again and adding. So a product that nothing reads but the sum becomes one
step with it (`running_sums` computes it).

Which products those are follows from the steps and their sizes alone. A product over a long axis stays apart: there the
sum is a small part of the work. One of a matrix with itself stays apart too, since NumPy computes half of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unspool._engine.backends.running_sums import BLAS_TYPES
from unspool._engine.planning import Bound, Step
from unspool._ops.elementwise import ADD
from unspool._ops.op import STRUCTURE, Op

if TYPE_CHECKING:
    pass


def _is_written_by_the_backend(*operands: Any, subscripts: str) -> Any:
    raise NotImplementedError


# A step ``total + x1 x2`` that overwrites the total; its operands are these three. It is in plans alone: as in those of
# `ADD`, the name is that of the method of a running sum that does it.
ADD_PRODUCT = Op(
    "add_product",
    infer=_is_written_by_the_backend,
    kernel=_is_written_by_the_backend,
    params={"subscripts": STRUCTURE},
)

# Products over a longer axis than this are computed on their own.
LONGEST_AXIS = 64


def spread_total(steps: Sequence[Step], bound: Bound, outputs: Sequence[int], total: int) -> tuple[Step, ...] | None:
    """Return the steps with the terms of an output, which a loop adds up, added to its sum one by one.

    The steps that do so fill the slot of the output, which stands for the sum from then on. ``None`` if no term is a
    product that is added as it is computed.
    """
    position = {step.slot: i for i, step in enumerate(steps)}
    reads = Counter([*[slot for step in steps for slot in step.operands], *outputs])
    terms, sums = [], set()  # and the positions of the sums that make one of them
    waiting = [total]
    while waiting:
        slot = waiting.pop()
        i = position.get(slot, -1)
        if i >= 0 and reads[slot] == 1 and _adds_two(steps[i], bound):
            sums.add(i)
            waiting += steps[i].operands
        else:
            terms.append(slot)
    thin = {t for t in terms if t in position and reads[t] == 1 and _is_thin(steps[position[t]], bound, total)}
    if not thin:
        return None
    spread: list[Step] = []
    for i, step in enumerate(steps):
        if i in sums:
            for term in [t for t in step.operands if t in terms and t not in thin]:
                spread.append(step._replace(slot=total, operands=(total, term), dying=tuple({term} & {*step.dying})))
        elif step.slot in thin:
            spread.append(step._replace(op=ADD_PRODUCT, slot=total, operands=(total, *step.operands)))
        else:
            spread.append(step)
    return tuple(spread)


def _adds_two(step: Step, bound: Bound) -> bool:
    """Whether a step adds two different arrays of the shape and type of the sum."""
    kinds = {(bound.shapes[slot], bound.dtypes[slot]) for slot in (step.slot, *step.operands)}
    return step.op is ADD and not step.once and len(set(step.operands)) == 2 and len(kinds) == 1


def _is_thin(step: Step, bound: Bound, total: int) -> bool:
    """Whether a step is a product of two matrices over a short axis, in the type of the total."""
    if not step.op.contracts or step.once or step.operands[0] == step.operands[1]:
        return False
    labels, out = step.params["subscripts"].split("->")
    contracted = [label for label in labels.split(",")[0] if label not in out]
    types = {bound.dtypes[slot] for slot in (total, *step.operands)}
    if len(contracted) != 1 or len(labels) != 5 or len(out) != 2 or len(types) != 1 or not types <= BLAS_TYPES:
        return False
    length: int = bound.shapes[step.operands[0]][labels.index(contracted[0])]
    return 0 < length <= LONGEST_AXIS
