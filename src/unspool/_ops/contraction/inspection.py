"""What a contraction of several tensors would cost, told from their shapes alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from unspool._dims import is_concrete
from unspool._ops.leaf import as_tensor
from unspool.errors import ArgumentError, UnknownSizeError


def einsum_path(subscripts: Any, *operands: Any, optimize: Any = "greedy") -> tuple[list[Any], str]:
    """Return the order in which NumPy would contract tensors two at a time, and a text about what that costs.

    Parameters
    ----------
    subscripts : str
        As for `unspool.einsum`.
    *operands : array_like
        The tensors; only their shapes count, which have to be known.
    optimize : bool, str, list or tuple
        As for ``numpy.einsum_path``.

    Examples
    --------
    >>> import unspool as us
    >>> path, text = us.einsum_path("ij,jk,kl->il", us.ones((2, 3)), us.ones((3, 4)), us.ones((4, 5)))
    >>> path
    ['einsum_path', (1, 2), (0, 1)]
    """
    if not isinstance(subscripts, str):
        raise ArgumentError(f"einsum_path takes subscripts as a text such as 'ij,jk->ik', got {subscripts!r}")
    shapes = [as_tensor(operand).shape for operand in operands]
    for shape in shapes:
        if not is_concrete(shape):
            raise UnknownSizeError(f"a path through a contraction needs sizes that are known, got shape {shape}")
    known: Any = shapes
    stand_ins: list[Any] = [np.broadcast_to(np.zeros(()), shape) for shape in known]
    try:
        path, text = np.einsum_path(subscripts, *stand_ins, optimize=optimize)
    except (ValueError, TypeError, KeyError) as error:
        raise ArgumentError(f"einsum_path of {subscripts!r}: {error}") from None
    return list(path), text
