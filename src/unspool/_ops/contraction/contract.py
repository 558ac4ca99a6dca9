"""The op ``contract``: every product of two tensors that sums over labels, in one form.

The one idea: matmul, tensordot, einsum and their derivatives are all ``contract`` with canonical subscripts, labels
named a, b, c, … by first use. Equal contractions are one node however they were written, and the derivative of a
contraction is again one contraction with the subscripts in another order. No label occurs twice in one operand, and
every label of an operand occurs in the other operand or in the result; so a label is a batch label (in all three),
contracted (in both operands) or free (in one operand and the result).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from unspool._dims import Shape, Size, equal
from unspool._dtypes import promote
from unspool._graph import Node, find, intern
from unspool._ops import elementwise, layout, reduction
from unspool._ops.batching import Members
from unspool._ops.broadcasting import ensure_shape
from unspool._ops.contraction.kernel import contract_arrays
from unspool._ops.op import INPUTS, STRUCTURE, Op, register
from unspool.errors import ShapeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

Labels = Sequence[Hashable]


def contract(x1: Tensor, labels1: Labels, x2: Tensor, labels2: Labels, out: Labels, what: str = "contract") -> Tensor:
    """Return the contraction of two tensors whose axes carry the given labels (any hashable values).

    Sizes of equal labels must be equal; where that is not known yet, it is checked when sizes are bound. ``what`` names
    the function the user called, for errors.
    """
    form = form_of(tuple(labels1), tuple(labels2), tuple(out))
    x1, x2 = unify(form, x1, x2, what)
    return record(form, x1, x2)


# --- forms -----------------------------------------------------------------------------------------------------------


class Form:
    """A contraction's canonical subscripts and what follows from them alone, worked out once."""

    __slots__ = ("is_multiplication", "items", "out", "params", "shared", "subscripts")

    def __init__(self, subscripts: str) -> None:
        s1, s2, out = split_subscripts(subscripts)
        self.subscripts = subscripts
        self.params = {"subscripts": subscripts}
        self.items = (("subscripts", subscripts),)
        # Pairs of axes with equal sizes, and for each axis of the result the operand and axis it comes from.
        self.shared = tuple((axis, s2.index(label)) for axis, label in enumerate(s1) if label in s2)
        self.out = tuple((0, s1.index(label)) if label in s1 else (1, s2.index(label)) for label in out)
        # With nothing summed and no axis to move, it is what `multiply` does, bit for bit.
        summed = any(label not in out for label in s1)
        self.is_multiplication = not summed and out.endswith(s1) and out.endswith(s2)


@lru_cache(maxsize=4096)
def form_of(labels1: tuple[Hashable, ...], labels2: tuple[Hashable, ...], out: tuple[Hashable, ...]) -> Form:
    """Return the form of a contraction given by labels of any kind."""
    names: dict[Hashable, str] = {}
    for label in (*labels1, *labels2):
        names.setdefault(label, symbol(len(names)))
    s1, s2, s3 = ("".join(names[label] for label in labels) for labels in (labels1, labels2, out))
    return form_from(f"{s1},{s2}->{s3}")


form_from = lru_cache(maxsize=4096)(Form)


def symbol(index: int) -> str:
    """Return the name of the n-th label: a to z, A to Z, then other letters."""
    if index < 26:
        return chr(ord("a") + index)
    return chr(ord("A") + index - 26) if index < 52 else chr(0x4E00 + index - 52)


def split_subscripts(subscripts: str) -> tuple[str, str, str]:
    """Return the labels of the two operands and of the result."""
    operands, out = subscripts.split("->")
    first, second = operands.split(",")
    return first, second, out


# --- recording -------------------------------------------------------------------------------------------------------


def record(form: Form, x1: Tensor, x2: Tensor) -> Tensor:
    """Return the node for a contraction of tensors whose shared sizes are known to be equal: the hot path."""
    if form.is_multiplication:
        return elementwise.multiply(x1, x2)
    return record_of_shape(form, x1, x2, result_shape(form, x1.shape, x2.shape))


def record_of_shape(form: Form, x1: Tensor, x2: Tensor, shape: Shape) -> Tensor:
    """Return the node for a contraction that is no multiplication, if the shape of its result is known too."""
    inputs = x1, x2
    found = find(CONTRACT, inputs, form.items)
    if found is not None:
        return found  # type: ignore[return-value]
    dtype = x1.dtype if x1.dtype is x2.dtype else promote(x1.dtype, x2.dtype)
    return intern(CONTRACT, inputs, form.params, shape, dtype, form.items)


def result_shape(form: Form, *shapes: Shape) -> Shape:
    """Return the shape of a contraction of two tensors of the given shapes."""
    return tuple([shapes[operand][axis] for operand, axis in form.out])


def fits(form: Form, shape1: Shape, shape2: Shape) -> bool:
    """Whether all sizes that must be equal are, as they are written."""
    for i, j in form.shared:  # noqa: SIM110 - a generator costs more than all the rest, and this runs for every product
        if shape1[i] != shape2[j]:
            return False
    return True


def unify(form: Form, x1: Tensor, x2: Tensor, what: str) -> tuple[Tensor, Tensor]:
    """Return the operands with the sizes that must be equal ensured; sizes that never are raise `ShapeError`."""
    if fits(form, x1.shape, x2.shape):
        return x1, x2
    shape1, shape2 = list(x1.shape), list(x2.shape)
    for i, j in form.shared:
        size = common_size(shape1[i], shape2[j])
        if size is None:
            raise ShapeError(
                f"{what} of shapes {x1.shape} and {x2.shape}: axis {i} of the first and axis {j} of the second must "
                f"have the same size, not {shape1[i]} and {shape2[j]}"
            )
        shape1[i] = shape2[j] = size
    return ensure_shape(x1, tuple(shape1)), ensure_shape(x2, tuple(shape2))


def common_size(left: Size, right: Size) -> Size | None:
    """Return the name for two sizes that must be equal, a number if there is one; ``None`` if they never are."""
    if equal(left, right) is False:
        return None
    return right if isinstance(right, int) else left


# --- the op ----------------------------------------------------------------------------------------------------------


def _infer(x1: Node, x2: Node, *, subscripts: str) -> tuple[Shape, Any]:
    form = form_from(subscripts)
    if not fits(form, x1.shape, x2.shape):
        raise ShapeError(f"cannot contract shapes {x1.shape} and {x2.shape} as {subscripts!r}")
    return result_shape(form, x1.shape, x2.shape), promote(x1.dtype, x2.dtype)


@lru_cache(maxsize=4096)
def _adjoint_forms(subscripts: str) -> tuple[Form, Form]:
    s1, s2, out = split_subscripts(subscripts)
    return form_of(tuple(out), tuple(s2), tuple(s1)), form_of(tuple(s1), tuple(out), tuple(s2))


@lru_cache(maxsize=4096)
def _swap(subscripts: str) -> tuple[int, ...] | None:
    """Return how the axes of the result move when a tensor's product with itself has its operands exchanged.

    ``None`` if that is not the same product, or if it sums over nothing.
    """
    s1, s2, out = split_subscripts(subscripts)
    exchanged = {**dict(zip(s1, s2, strict=False)), **dict(zip(s2, s1, strict=False))}
    moved = "".join(exchanged[label] for label in out)
    same = len(s1) == len(s2) and "".join(exchanged[label] for label in s1) == s2 and set(moved) == set(out)
    if not same or all(label in out for label in s1):
        return None
    return tuple(moved.index(label) for label in out)


def _joint(ct: Tensor, x1: Tensor, x2: Tensor, subscripts: str) -> tuple[int, ...] | None:
    """Return the axes of the exchanged cotangent if both operands are one tensor: G' added to G saves a product.

    With S = X'X, for example, X G + X G' is X (G + G').
    """
    return _swap(subscripts) if x1 is x2 and ct.op is not elementwise.MASK else None


def _vjp_first(ct: Tensor, out: Tensor, x1: Tensor, x2: Tensor, *, subscripts: str) -> Tensor:
    form, other = _adjoint_forms(subscripts)[0], elementwise.conj(x2)
    axes = _joint(ct, x1, x2, subscripts)
    if axes is not None:
        return record(form, elementwise.add(ct, layout.permute_dims(ct, axes)), other)
    if ct.op is not elementwise.MASK:
        return record(form, ct, other)
    s1, _, s3 = split_subscripts(subscripts)
    return _leave_absent(ct, record(form, ct, other), s3, s1)


def _vjp_second(ct: Tensor, out: Tensor, x1: Tensor, x2: Tensor, *, subscripts: str) -> Tensor | None:
    if _joint(ct, x1, x2, subscripts) is not None:
        return None  # the first has it
    form, other = _adjoint_forms(subscripts)[1], elementwise.conj(x1)
    if ct.op is not elementwise.MASK:
        return record(form, other, ct)
    _, s2, s3 = split_subscripts(subscripts)
    return _leave_absent(ct, record(form, other, ct), s3, s2)


def _leave_absent(ct: Tensor, result: Tensor, labels: str, kept: str) -> Tensor:
    """Mark as absent what was made of absent elements of a cotangent only.

    ``labels`` are those of the cotangent, ``kept`` those of the result.
    """
    common = [label for label in kept if label in labels]
    if not common:
        return result
    keep: Tensor = layout.broadcast_to(ct.inputs[1], ct.shape)
    summed = tuple(axis for axis, label in enumerate(labels) if label not in kept)
    if summed:
        keep = reduction.any(keep, axis=summed)
    remaining = [label for label in labels if label in kept]
    keep = layout.permute_dims(keep, [remaining.index(label) for label in common])
    shape = tuple(size if label in labels else 1 for label, size in zip(kept, result.shape, strict=True))
    return elementwise.mask(result, layout.reshape(keep, shape))


@lru_cache(maxsize=4096)
def _members_form(subscripts: str, first: bool, second: bool) -> Form:
    """Return the form of the same contraction for all members of a batch, along a first axis of their own."""
    s1, s2, out = split_subscripts(subscripts)
    return form_of(("member",) * first + tuple(s1), ("member",) * second + tuple(s2), ("member", *out))


def _contract_members(op: Op, members: Members, x1: Tensor, x2: Tensor, *, subscripts: str) -> Tensor:
    return record(_members_form(subscripts, *members.batched), x1, x2)


CONTRACT = register(
    Op(
        "contract",
        infer=_infer,
        kernel=contract_arrays,
        vjp=(_vjp_first, _vjp_second),
        jvp=(
            lambda t, out, x1, x2, *, subscripts: record(form_from(subscripts), t, x2),
            lambda t, out, x1, x2, *, subscripts: record(form_from(subscripts), x1, t),
        ),
        params={"subscripts": STRUCTURE},
        needs=(INPUTS,),
        contracts=True,
        fresh=True,
        batch=_contract_members,
    )
)
