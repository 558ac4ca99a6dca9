"""Declaring special functions of real numbers: SciPy's function of that name, and its partial derivatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from unspool._dtypes import EXACT, FLOAT64, promote
from unspool._graph import source_of
from unspool._ops.elementwise.build import nary
from unspool._ops.elementwise.conversion import astype
from unspool._ops.elementwise.declare import DTypeRule, Partial, elementwise, real_only
from unspool._ops.elementwise.special import scipy_function
from unspool._ops.leaf import as_operands
from unspool._ops.op import INPUTS, Op, Rule
from unspool.errors import MissingRuleError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def special_function(
    name: str,
    partials: Sequence[Partial | None] | None = None,
    *,
    rules: tuple[Rule, ...] | None = None,
    kernel: Callable[..., Any] | None = None,
    needs: tuple[str, ...] = (INPUTS,),
    dtype: DTypeRule = promote,
    params: Mapping[str, str] | None = None,
    cheap: bool = True,
) -> Op:
    """Declare an elementwise function of real numbers; ``rules`` serve cotangents and tangents alike."""
    return elementwise(
        name,
        kernel or scipy_function(name),
        partials,
        vjp=rules,
        jvp=rules,
        needs=needs,
        dtype=real_only(dtype),
        params=params,
        cheap=cheap,
    )


def beside_integers(*dtypes: Any) -> Any:
    """Return the dtype of a result that integers, such as the order of a Bessel function, do not widen."""
    return promote(*([dtype for dtype in dtypes if dtype not in EXACT] or dtypes))


def cast_result(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel that computes in the precision of SciPy and returns that of its floating-point operands."""
    return CastResult(function)


class CastResult:
    """A kernel that computes in the precision of SciPy and returns that of its floating-point operands."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *arrays: Any, **params: Any) -> Any:
        return self.function(*arrays, **params).astype(beside_integers(*[a.dtype for a in arrays]))

    @property
    def ufunc(self) -> Any:
        """The function of SciPy that it calls, if it is one."""
        return getattr(self.function, "ufunc", None)


def nary_inexact(op: Op, *operands: Any, **params: Any) -> Tensor:
    """Return the node for a function of several operands whose result always has a fractional part."""
    tensors = as_operands(*operands)
    if all(t.dtype in EXACT for t in tensors):
        tensors = tuple(astype(t, FLOAT64) for t in tensors)
    return nary(op, *tensors, **params)


def no_derivative(function: str, argument: str) -> Callable[..., NoReturn]:
    """Return the partial derivative of a function by an argument for which there is no closed form."""

    def partial(out: Tensor, *inputs: Tensor, **params: Any) -> NoReturn:
        raise MissingRuleError(
            f"{function} has no derivative with respect to {argument}, for which there is no closed form; us.constant "
            f"or us.stop_gradient say that it is held fixed. It was used at {source_of(out)}"
        )

    return partial
