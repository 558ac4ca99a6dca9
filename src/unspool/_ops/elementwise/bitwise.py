"""Logic on bits, and shifts. Nothing here has a derivative."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._dtypes import SUPPORTED
from unspool._ops.elementwise.build import binary, unary
from unspool._ops.elementwise.declare import elementwise
from unspool._ops.op import Op

if TYPE_CHECKING:
    from unspool._tensor import Tensor

BITWISE_AND = elementwise("bitwise_and", np.bitwise_and, commuting=SUPPORTED)
BITWISE_OR = elementwise("bitwise_or", np.bitwise_or, commuting=SUPPORTED)
BITWISE_XOR = elementwise("bitwise_xor", np.bitwise_xor, commuting=SUPPORTED)
BITWISE_INVERT: Op = elementwise(
    "bitwise_invert", np.bitwise_not, canonical=lambda x: x.inputs[0] if x.op is BITWISE_INVERT else None
)
LEFT_SHIFT = elementwise("bitwise_left_shift", np.left_shift)
RIGHT_SHIFT = elementwise("bitwise_right_shift", np.right_shift)


def bitwise_and(x1: Any, x2: Any) -> Tensor:
    """The bits that are set in both integers, or logical and of bools.

    Examples
    --------
    >>> import unspool as us
    >>> us.bitwise_and(6, 3).eval()
    array(2)
    """
    return binary(BITWISE_AND, x1, x2)


def bitwise_or(x1: Any, x2: Any) -> Tensor:
    """The bits that are set in at least one integer, or logical or of bools.

    Examples
    --------
    >>> import unspool as us
    >>> us.bitwise_or(6, 3).eval()
    array(7)
    """
    return binary(BITWISE_OR, x1, x2)


def bitwise_xor(x1: Any, x2: Any) -> Tensor:
    """The bits that are set in exactly one integer, or logical xor of bools.

    Examples
    --------
    >>> import unspool as us
    >>> us.bitwise_xor(6, 3).eval()
    array(5)
    """
    return binary(BITWISE_XOR, x1, x2)


def bitwise_invert(x: Any) -> Tensor:
    """All bits of an integer flipped, or logical not of bools.

    Examples
    --------
    >>> import unspool as us
    >>> us.bitwise_invert([0, 5]).eval()
    array([-1, -6])
    """
    return unary(BITWISE_INVERT, x)


invert = bitwise_not = bitwise_invert


def bitwise_left_shift(x1: Any, x2: Any) -> Tensor:
    """Bits moved to the left: multiplication by ``2**x2``.

    Examples
    --------
    >>> import unspool as us
    >>> us.bitwise_left_shift(3, 2).eval()
    array(12)
    """
    return binary(LEFT_SHIFT, x1, x2)


left_shift = bitwise_left_shift


def bitwise_right_shift(x1: Any, x2: Any) -> Tensor:
    """Bits moved to the right: floor division by ``2**x2``.

    Examples
    --------
    >>> import unspool as us
    >>> us.bitwise_right_shift(13, 2).eval()
    array(3)
    """
    return binary(RIGHT_SHIFT, x1, x2)


right_shift = bitwise_right_shift
