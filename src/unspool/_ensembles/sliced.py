"""``us.sliced``: a contraction that does not fit into memory, as a sum over slices that do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unspool._dims import is_concrete
from unspool._dtypes import INEXACT
from unspool._engine.memory.sizes import parse_bytes
from unspool._ensembles.pools import check_pool
from unspool._ensembles.slice_sum import Slices, place
from unspool._ensembles.slicing import find_cut
from unspool._ensembles.summands import Contraction, Cuts
from unspool._ops.contraction import einsum
from unspool._ops.contraction.nary import read_operands
from unspool._ops.contraction.parsing import Subscripts
from unspool._questions import result_type
from unspool.errors import ArgumentError, DTypeError, UnknownSizeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def sliced(
    *operands: Any,
    pool: Any = None,
    memory: str | int | float | None = None,
    slices: int = 1,
    optimize: Any = None,
) -> Tensor:
    """Contract a network slice by slice, so that each slice, and its derivative, fits into a budget.

    Some of the summed labels get fixed values in a slice, and the result is the sum over all values. cotengra finds the
    path and which labels to cut. The result is a tensor like every other: gradients are sums over the same slices.

    Parameters
    ----------
    *operands
        Subscripts and the tensors of the network, ``sliced("ij,jk->ik", a, b)``, or tensors each followed by a list of
        integer labels, as in `einsum`.
    pool : object with submit, optional
        Who computes the slices, as in `ensemble`; here, one after the other, by default. It has to be there when the
        value or a derivative is asked for. Bits do not depend on it.
    memory : str, int or float, optional
        The budget of a worker, as in `unspool.memory`. Which labels are cut follows from it.
    slices : int
        At least so many slices, for a pool to have something to share out.
    optimize : optional
        Who finds the path: an optimiser or a path as cotengra takes it. By default a greedy search that finds the same
        path each time.

    Returns
    -------
    Tensor
        The contraction.

    Raises
    ------
    BudgetError
        If no slice fits; it names the least budget.

    Examples
    --------
    >>> import cotengra, numpy as np
    >>> import unspool as us
    >>> a, b, c = (us.tensor(np.full((8, 8), k)) for k in (1.0, 2.0, 3.0))
    >>> ring = us.sliced("ij,jk,ki->", a, b, c, slices=4)
    >>> ring.item()
    3072.0
    >>> ring.grad(a).eval()[0, 0]
    np.float64(48.0)
    """
    check_pool(pool, "us.sliced")
    _check(slices)
    result = einsum(*operands)  # a recipe that nobody evaluates: it tells what is wrong with the expression
    subscripts, tensors = read_operands(operands)
    if not all(is_concrete(x.shape) for x in tensors):
        raise UnknownSizeError("us.sliced cuts axes whose sizes are known; bind symbolic sizes first")
    dtype = result_type(*tensors)
    if dtype not in INEXACT:
        raise DTypeError(f"us.sliced adds real or complex numbers, got dtype {dtype}")
    budget = None if memory is None else parse_bytes(memory)
    labels, sizes = _labelled(subscripts, tensors)
    *inputs, output = labels
    cut = find_cut(tuple(inputs), output, sizes, dtype.itemsize, memory=budget, slices=slices, optimize=optimize)
    cuts: list[Cuts] = [
        tuple([label if label in cut.labels and n > 1 else None for label, n in zip(term, x.shape, strict=True)])
        for term, x in zip(inputs, tensors, strict=True)
    ]
    summand = Contraction(labels, cut.path, tuple(cuts), ((None,) * len(result.shape),))
    return place(Slices(summand, {label: sizes[label] for label in cut.labels}, pool, budget), tensors)[0]


def _check(slices: Any) -> None:
    if isinstance(slices, bool) or not isinstance(slices, int) or slices < 1:
        raise ArgumentError(f"slices is how many there are at least, 1 or more, got {slices!r}")


def _labelled(read: Subscripts, tensors: Any) -> tuple[tuple[tuple[int, ...], ...], list[int]]:
    """Return the labels of the operands and of the result as numbers, and the size of each."""
    numbers: dict[Any, int] = {}
    sizes: list[int] = []
    for term, x in zip(read.inputs, tensors, strict=True):
        for label, n in zip(term, x.shape, strict=True):
            if numbers.setdefault(label, len(sizes)) == len(sizes):
                sizes.append(1)
            sizes[numbers[label]] = max(sizes[numbers[label]], n)
    terms = (*read.inputs, read.output)
    return tuple(tuple(numbers[label] for label in term) for term in terms), sizes
