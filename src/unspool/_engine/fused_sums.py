"""Products of matrices that are added to a running sum as BLAS computes them.

A sum that a loop carries is as large as what it is the gradient of, and a product of thin matrices that is added to it
costs less than writing it out, reading it again and adding. So in code that may overwrite its sums, a product that
nothing reads but the sum becomes one step with it (`running_sums` computes it).

Which products those are follows from the steps and their sizes alone. A product over a long axis stays apart: there the
sum is a small part of the work. One of a matrix with itself stays apart too, since NumPy computes half of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np

from unspool._engine.planning import Bound, Step

# The name of a step ``total + x1 x2`` that overwrites the total; its operands are these three.
ADD_PRODUCT = "add_product"

# Products over a longer axis than this are computed on their own.
LONGEST_AXIS = 64

_BLAS_TYPES = frozenset(map(np.dtype, "fdFD"))


# --- finding them ----------------------------------------------------------------------------------------------------


def fuse_sums(
    steps: Sequence[Step], bound: Bound, outputs: Collection[int], in_place: Collection[int]
) -> tuple[Step, ...]:
    """Return the steps with products made one with the sums that take them; ``in_place`` are inputs only added to.

    A fused step stands where the product stood and fills the slot of the sum.
    """
    position = {step.slot: i for i, step in enumerate(steps)}
    reads = Counter([slot for step in steps for slot in step.operands])
    done: list[Step | None] = list(steps)
    sums = dict.fromkeys(in_place, -1)  # each with the position from which on it is there
    for i, step in enumerate(steps):
        total = next((slot for slot in step.operands if slot in sums), None)
        if step.op != "add" or total is None:
            continue
        sums[step.slot] = i
        term = step.operands[step.operands.index(total) - 1]  # the other of the two
        j = position.get(term, -1)
        if j <= sums[total] or term in outputs or reads[term] != 1 or not _is_thin(steps[j], bound, total):
            continue
        sums[step.slot] = j
        # The total goes on under another name, so neither it nor the product ends here.
        dying = tuple(sorted({*steps[j].dying, *step.dying} - {total, term}))
        done[i] = None
        done[j] = step._replace(
            op=ADD_PRODUCT, operands=(total, *steps[j].operands), params=steps[j].params, dying=dying
        )
    return tuple([step for step in done if step is not None])


def _is_thin(step: Step, bound: Bound, total: int) -> bool:
    """Whether a step is a product of two matrices over a short axis, in the type of the total."""
    if step.op != "contract" or step.once or step.operands[0] == step.operands[1]:
        return False
    labels, out = step.params["subscripts"].split("->")
    contracted = [label for label in labels.split(",")[0] if label not in out]
    types = {bound.dtypes[slot] for slot in (total, *step.operands)}
    if len(contracted) != 1 or len(labels) != 5 or len(out) != 2 or len(types) != 1 or not types <= _BLAS_TYPES:
        return False
    length: int = bound.shapes[step.operands[0]][labels.index(contracted[0])]
    return 0 < length <= LONGEST_AXIS
