"""The gradient of a scalar with respect to tensors of its graph: what `Tensor.grad` asks for.

It stands apart from the transforms of functions, which a program that asks tensors for gradients does not load.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

from unspool import _trees as trees
from unspool._autodiff.sweeps.connected import Unconnected, check_unconnected, depends, not_connected
from unspool._autodiff.sweeps.repeated_sweeps import pull_one
from unspool._dtypes import COMPLEX, INEXACT
from unspool._graph import Node, describe, source_of
from unspool._leaving import note_derivatives
from unspool._ops.elementwise import conj
from unspool._ops.identity import zeros_like
from unspool._ops.leaf import CONSTANT
from unspool.errors import (
    ComplexLossError,
    DTypeError,
    NonScalarLossError,
    NotConnectedError,
    StructureError,
)

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def gradient_of(output: Tensor, wrt: Any, *, holomorphic: bool = False, unconnected: Unconnected = "auto") -> Any:
    """Return the gradient of a scalar tensor with respect to tensors of its graph; see `Tensor.grad`."""
    if isinstance(wrt, Node):
        _check_variable(wrt, "wrt")
        return _gradient_of(output, [wrt], lambda: ["wrt"], holomorphic, unconnected)[0]  # type: ignore[list-item]
    variables, structure = trees.flatten(wrt)

    # To name leaves takes longer than to look at them, and only messages need it.
    def names() -> list[str]:
        return trees.names(structure, "wrt")

    for i, variable in enumerate(variables):
        if not isinstance(variable, Node) or variable.op is CONSTANT or variable.dtype not in INEXACT:
            _check_variable(variable, names()[i])
    return trees.unflatten(structure, _gradient_of(output, variables, names, holomorphic, unconnected))


def _gradient_of(
    output: Tensor,
    variables: Sequence[Tensor],
    names: Callable[[], Sequence[str]],
    holomorphic: bool,
    unconnected: Unconnected,
) -> list[Tensor | None]:
    def require() -> None:
        if not depends([output], variables):
            raise not_connected(output, variables, names())

    found = gradient_parts(output, variables, names, holomorphic, unconnected, require)
    note_derivatives(found)
    return found


def gradient_parts(
    loss: Tensor,
    variables: Sequence[Tensor],
    names: Callable[[], Sequence[str]],
    holomorphic: bool,
    unconnected: Unconnected,
    require: Callable[[], None],
) -> list[Tensor | None]:
    """Return the parts of a gradient; ``require`` raises if the loss depends on no variable and should."""
    check_unconnected(unconnected, ("auto", "zeros", "none", "raise"))
    check_loss(loss, holomorphic)
    found = pull_one(loss, variables)
    missing = sum(map(operator.is_, found, repeat(None)))
    if not holomorphic and not missing:
        return found
    if unconnected == "auto" and found and missing == len(found):
        require()
    for i, (variable, ct) in enumerate(zip(variables, found, strict=True)):
        if holomorphic and variable.dtype not in COMPLEX:
            raise DTypeError(f"holomorphic=True needs complex variables, but {names()[i]} has dtype {variable.dtype}")
        if ct is not None:
            found[i] = conj(ct) if holomorphic else ct
        elif unconnected == "raise":
            raise NotConnectedError(f"{describe(loss)}, made at {source_of(loss)}, does not depend on {names()[i]}")
        elif unconnected != "none":
            found[i] = zeros_like(variable)
    return found


def check_loss(loss: Tensor, holomorphic: bool) -> None:
    """Raise for what has no gradient."""
    if loss.shape != ():
        raise NonScalarLossError(
            f"a gradient needs a scalar, got {describe(loss)}, made at {source_of(loss)}; "
            "sum it, or use us.vjp with a cotangent, or us.jacobian for all of it"
        )
    if holomorphic and loss.dtype not in COMPLEX:
        raise DTypeError(f"holomorphic=True is for complex results, got {loss.dtype}; leave it out")
    if loss.dtype in COMPLEX and not holomorphic:
        raise ComplexLossError(
            f"the gradient of a complex scalar ({describe(loss)}, made at {source_of(loss)}) is not defined; take its "
            ".real or abs() first, or pass holomorphic=True if it is a holomorphic function of complex tensors"
        )
    if loss.dtype not in INEXACT:
        raise DTypeError(
            f"a result of dtype {loss.dtype} has no gradient ({describe(loss)}, made at {source_of(loss)})"
        )


def _check_variable(variable: Any, name: str) -> None:
    if not isinstance(variable, Node):
        raise StructureError(f"{name} must be a tensor of the graph, got {type(variable).__name__}; see us.tensor")
    if variable.op is CONSTANT:
        raise StructureError(
            f"{name} is a constant, which is shared by all equal constants; make it a variable with us.tensor"
        )
    if variable.dtype not in INEXACT:
        raise DTypeError(
            f"{name} has dtype {variable.dtype}; gradients are taken with respect to floating-point or complex tensors"
        )
