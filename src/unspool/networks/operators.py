"""Operators of a chain as matrix product operators.

A tensor of an `MPO` has the axes (left, out, in, right): as a matrix over its bonds, every entry is an operator of the
site. `terms.py` makes one from a sum of local terms, `models.py` from the couplings of the usual models.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

import unspool as us
from unspool.errors import ArgumentError, ShapeError
from unspool.networks import _checks
from unspool.networks._train import Train, check_dense, register_train

__all__ = ["MPO"]

Array = np.ndarray[Any, Any]


@register_train
@dataclass(frozen=True, eq=False, repr=False, init=False)
class MPO(Train):
    """A matrix product operator.

    Parameters
    ----------
    tensors : sequence of array_like
        One tensor per site with the axes (left, out, in, right); the bonds at both ends have size 1.

    Notes
    -----
    Operators can be added, subtracted, and multiplied by a scalar. They are pytrees: `us.grad` and `us.eval` look into
    them.

    Examples
    --------
    >>> import numpy as np
    >>> import unspool as us
    >>> from unspool.networks.chain import MPO
    >>> flip = np.array([[0.0, 1.0], [1.0, 0.0]]).reshape(1, 2, 2, 1)
    >>> both = MPO([flip, flip])
    >>> both
    MPO(sites=2, physical=(2, 2), ranks=(1,))
    >>> both.dense().eval()
    array([[0., 0., 0., 1.],
           [0., 0., 1., 0.],
           [0., 1., 0., 0.],
           [1., 0., 0., 0.]])
    """

    axes: ClassVar[tuple[str, ...]] = ("left", "out", "in", "right")

    def __init__(self, tensors: Sequence[Any]) -> None:
        super().__init__(tensors)
        for site, tensor in enumerate(self.tensors):
            out, into = tensor.shape[1:3]
            if isinstance(out, int) and isinstance(into, int) and out != into:
                raise ShapeError(f"tensor {site} of MPO must be square in (out, in), got shape {tensor.shape}")

    def adjoint(self) -> MPO:
        """Return the Hermitian adjoint.

        Examples
        --------
        >>> import unspool as us
        >>> from unspool.networks.chain import MPO
        >>> H = MPO([us.tensor([[0.0, 1.0], [0.0, 0.0]]).reshape(1, 2, 2, 1)])
        >>> H.adjoint().dense().eval()
        array([[0., 0.],
               [1., 0.]])
        """
        return MPO([us.conj(us.swapaxes(tensor, 1, 2)) for tensor in self.tensors])

    def dense(self) -> us.Tensor:
        """Return the operator as a matrix; the first site is the slowest index. For small chains only.

        Examples
        --------
        >>> import unspool as us
        >>> from unspool.networks.chain import MPO
        >>> MPO([us.eye(2).reshape(1, 2, 2, 1)] * 2).dense().shape
        (4, 4)
        """
        size = math.prod(self.physical)
        check_dense(size * size, "MPO")
        whole = us.ones((1, 1, 1))
        for tensor in self.tensors:
            rows, columns = whole.shape[0] * tensor.shape[1], whole.shape[1] * tensor.shape[2]
            whole = us.einsum("xyl,loir->xoyir", whole, tensor).reshape(rows, columns, tensor.shape[3])
        return whole.reshape(size, size)

    def hermitian_violation(self) -> float:
        """Return how far the operator is from its adjoint: ‖H - Hᴴ‖ / ‖H‖ in the Frobenius norm, by QR and to rounding.

        Examples
        --------
        >>> import unspool as us
        >>> from unspool.networks.chain import MPO
        >>> MPO([us.tensor([[0.0, 1.0], [0.0, 0.0]]).reshape(1, 2, 2, 1)]).hermitian_violation()
        1.4142135623730951
        """
        difference, whole = _log_norm(self - self.adjoint()), _log_norm(self)
        return 0.0 if difference == -math.inf else math.exp(difference - whole)

    def check_hermitian(self, tol: float = 1e-10) -> None:
        """Raise unless the operator is Hermitian, and its tensors finite.

        Parameters
        ----------
        tol : float
            The largest ‖H - Hᴴ‖ / ‖H‖ that is put down to rounding.

        Raises
        ------
        ArgumentError
            With the size of the violation.

        Examples
        --------
        >>> import unspool as us
        >>> from unspool.networks.chain import MPO
        >>> MPO([us.tensor([[0.0, 1.0], [0.0, 0.0]]).reshape(1, 2, 2, 1)]).check_hermitian()
        Traceback (most recent call last):
            ...
        unspool.errors.ArgumentError: the MPO is not Hermitian: ‖H - Hᴴ‖ is 1.41 of ‖H‖, more than the tolerance 1e-10
        """
        tol = _checks.fraction(tol, "tol")
        for site, tensor in enumerate(self.tensors):
            _checks.finite_tensor(tensor, f"tensor {site} of the MPO")
        violation = self.hermitian_violation()
        if violation > tol:
            raise ArgumentError(
                f"the MPO is not Hermitian: ‖H - Hᴴ‖ is {violation:.3g} of ‖H‖, more than the tolerance {tol:.3g}"
            )


def _log_norm(mpo: MPO) -> float:
    """Return the logarithm of the Frobenius norm, which itself may be too large for a number: it grows like pᴸ."""
    carry: Array = np.ones((1, 1))
    logarithm = 0.0
    for tensor in us.eval(mpo.tensors):
        matrix = np.tensordot(carry, tensor, 1).reshape(-1, tensor.shape[-1])
        carry = np.linalg.qr(matrix).R
        size = float(np.linalg.norm(carry))
        if size == 0.0:
            return -math.inf
        carry, logarithm = carry / size, logarithm + math.log(size)
    return logarithm
