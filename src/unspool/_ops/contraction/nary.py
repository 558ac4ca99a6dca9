"""`einsum` of any number of operands, lowered to binary contractions when it is recorded.

The one idea: after diagonals are taken and labels of one operand alone are summed out, an einsum is a tree of
``contract`` nodes. Partial contractions that several einsums have in common are one node, and the derivative of a chain
of N tensors is about 2N further contractions, where differentiating it as a whole would take N².
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unspool._dims import Shape, Size
from unspool._dtypes import BOOL
from unspool._graph import Node
from unspool._ops import layout, reduction
from unspool._ops.broadcasting import ensure_shape
from unspool._ops.contraction.contract import common_size, contract, fits, record
from unspool._ops.contraction.parsing import Label, Subscripts, as_tokens, read_lists, read_text
from unspool._ops.contraction.path import NOMINAL_SIZE, find_path
from unspool._ops.elementwise import astype
from unspool._ops.leaf import as_operands
from unspool.errors import ArgumentError, ShapeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

Labels = tuple[Label, ...]


def einsum(*operands: Any, optimize: Any = True) -> Tensor:
    """Sum products of tensors over labelled axes.

    Parameters
    ----------
    *operands
        Subscripts and tensors, ``einsum("ij,jk->ik", a, b)``, or tensors each followed by a list of integer labels,
        ``einsum(a, [0, 1], b, [1, 2], [0, 2])``. ``...`` stands for axes that broadcast. Without ``->`` the result has
        the labels that occur once, in alphabetic order. A label repeated in one operand takes its diagonal, and an axis
        of size 1 broadcasts.
    optimize : bool, str or sequence of pairs
        In which order three and more operands are contracted: found once per structure by default, ``False`` for left
        to right, or the name of an opt_einsum method, or a path as ``numpy.einsum_path`` returns it.

    Examples
    --------
    >>> import unspool as us
    >>> a = us.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> us.einsum("ij,jk->ik", a, a) is a @ a
    True
    >>> us.einsum("ii", a).eval()
    array(5.)
    """
    subscripts, tensors = read_operands(operands)
    form = subscripts.form
    if form is not None and fits(form, tensors[0].shape, tensors[1].shape):
        return record(form, tensors[0], tensors[1])
    sizes = _sizes(subscripts, tensors)
    terms = _simplify(subscripts, tensors, sizes)
    if len(terms) == 1:
        tensor, labels = terms[0]
        return layout.permute_dims(tensor, [labels.index(label) for label in subscripts.output])
    return _contract_all(terms, subscripts.output, sizes, _hashable(optimize))


# --- reading ---------------------------------------------------------------------------------------------------------


def read_operands(operands: tuple[Any, ...]) -> tuple[Subscripts, tuple[Tensor, ...]]:
    """Return the labels and the tensors of what einsum is called with, in either of its forms."""
    if not operands:
        raise ShapeError("einsum needs subscripts and at least one operand")
    text = operands[0]
    if isinstance(text, str):
        tensors = operands[1:]
        for x in tensors:
            if not isinstance(x, Node):
                tensors = as_operands(*tensors)
                break
        try:
            return read_text(text, tuple([len(x.shape) for x in tensors])), tensors
        except ShapeError as error:
            raise _refusal(repr(text), tensors, error) from None
    inputs = tuple(as_tokens(sublist) for sublist in operands[1::2])
    tensors = as_operands(*operands[: 2 * len(inputs) : 2])
    output = as_tokens(operands[-1]) if len(operands) % 2 else None
    try:
        return read_lists(inputs, output, tuple([len(x.shape) for x in tensors])), tensors
    except ShapeError as error:
        raise _refusal(f"with labels {inputs}", tensors, error) from None


def _refusal(text: str, tensors: tuple[Tensor, ...], reason: object) -> ShapeError:
    shapes = ", ".join(str(x.shape) for x in tensors)
    return ShapeError(f"einsum {text} of operands of shapes {shapes}: {reason}")


def _sizes(subscripts: Subscripts, tensors: tuple[Tensor, ...]) -> dict[Label, Size]:
    """Return the size of every label; sizes that can never be equal raise, those of 1 broadcast."""
    sizes: dict[Label, Size] = {}
    for x, labels in zip(tensors, subscripts.inputs, strict=True):
        for label, size in zip(labels, x.shape, strict=True):
            known = sizes.get(label, 1)
            met = size if known == 1 else known if size == 1 else common_size(known, size)
            if met is None:
                name = "'...'" if isinstance(label, tuple) else repr(label)
                raise _refusal(subscripts.text, tensors, f"the label {name} has sizes {known} and {size}")
            sizes[label] = met
    return sizes


def _hashable(optimize: Any) -> Any:
    """Return a path given as lists in a form that can be remembered; NumPy's begin with a name."""
    if not isinstance(optimize, (list, tuple)):
        return optimize if isinstance(optimize, str) else bool(optimize)
    names = [step for step in optimize if isinstance(step, str) and step != "einsum_path"]
    if names:
        return names[0]
    try:
        return tuple(tuple(position.__index__() for position in step) for step in optimize if step != "einsum_path")
    except (AttributeError, TypeError):
        raise ArgumentError(f"a path for einsum is a list of tuples of positions, got optimize={optimize!r}") from None


# --- lowering --------------------------------------------------------------------------------------------------------


def _simplify(
    subscripts: Subscripts, tensors: tuple[Tensor, ...], sizes: dict[Label, Size]
) -> list[tuple[Tensor, Labels]]:
    """Return operands in which each label occurs once, at full size, and also in another operand or the result."""
    terms: list[tuple[Tensor, Labels]] = []
    for x, labels in zip(tensors, subscripts.inputs, strict=True):
        if len(set(labels)) < len(labels):
            x, labels = _diagonal(subscripts, tensors, x, labels)
        terms.append(_full_size(x, labels, sizes))
    simple = []
    for position, (x, labels) in enumerate(terms):
        others = {label for other, term in enumerate(terms) if other != position for label in term[1]}
        alone = [axis for axis, label in enumerate(labels) if label not in others and label not in subscripts.output]
        if alone:
            x = _sum_out(x, tuple(alone))
            labels = tuple(label for axis, label in enumerate(labels) if axis not in alone)
        simple.append((x, labels))
    return simple


def _diagonal(subscripts: Subscripts, tensors: tuple[Tensor, ...], x: Tensor, labels: Labels) -> tuple[Tensor, Labels]:
    """Take the diagonal along every label that occurs more than once; it becomes the last axis."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            size = common_size(x.shape[first], x.shape[second])
            if size is None:
                reason = f"the label {label!r} has sizes {x.shape[first]} and {x.shape[second]} in one operand"
                raise _refusal(subscripts.text, tensors, reason)
            shape: Shape = tuple(size if axis in (first, second) else s for axis, s in enumerate(x.shape))
            x = layout.diagonal(ensure_shape(x, shape), 0, first, second)
            labels = (*[other for axis, other in enumerate(labels) if axis not in (first, second)], label)
    return x, labels


def _full_size(x: Tensor, labels: Labels, sizes: dict[Label, Size]) -> tuple[Tensor, Labels]:
    """Drop axes of size 1 that broadcast, and ensure the sizes of the others."""
    kept = [axis for axis, label in enumerate(labels) if x.shape[axis] != 1 or sizes[label] == 1]
    if len(kept) < len(labels):
        x = layout.reshape(x, tuple(x.shape[axis] for axis in kept))
        labels = tuple(labels[axis] for axis in kept)
    return ensure_shape(x, tuple(sizes[label] for label in labels)), labels


def _sum_out(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Sum in the operand's own dtype, as products are summed; a sum of bools is a logical or."""
    return reduction.any(x, axis=axes) if x.dtype == BOOL else astype(reduction.sum(x, axis=axes), x.dtype)


def _contract_all(
    terms: list[tuple[Tensor, Labels]], output: Labels, sizes: dict[Label, Size], optimize: Any
) -> Tensor:
    """Contract two operands at a time, along the path for this structure."""
    # Operands keep the order of the leftmost tensor they are made of: a chain stays a chain.
    pending = {number: (number, x, labels) for number, (x, labels) in enumerate(terms)}
    for number, (first, second) in enumerate(_path(terms, output, sizes, optimize), start=len(terms)):
        (left, x1, labels1), (_, x2, labels2) = sorted((pending.pop(first), pending.pop(second)), key=_position)
        needed = set(output).union(*[labels for _, _, labels in pending.values()])
        out = _result_labels(labels1, labels2, needed) if pending else output
        pending[number] = left, contract(x1, labels1, x2, labels2, out, "einsum"), out
    ((_, result, _),) = pending.values()
    return result


def _path(terms: list[tuple[Tensor, Labels]], output: Labels, sizes: dict[Label, Size], optimize: Any) -> Any:
    if len(terms) == 2:
        return ((0, 1),)
    numbers: dict[Label, int] = {}
    for _, labels in terms:
        for label in labels:
            numbers.setdefault(label, len(numbers))
    inputs = tuple(tuple(numbers[label] for label in labels) for _, labels in terms)
    nominal = tuple(size if isinstance(size := sizes[label], int) else NOMINAL_SIZE for label in numbers)
    return find_path(inputs, tuple(numbers[label] for label in output), nominal, optimize)


def _result_labels(labels1: Labels, labels2: Labels, needed: set[Label]) -> Labels:
    """Return an intermediate's labels in the order in which a batched matrix product makes them."""
    batch = [label for label in labels1 if label in labels2 and label in needed]
    free1 = [label for label in labels1 if label not in labels2]
    free2 = [label for label in labels2 if label not in labels1]
    return (*batch, *free1, *free2)


def _position(term: tuple[int, Tensor, Labels]) -> int:
    return term[0]
