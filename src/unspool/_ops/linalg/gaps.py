"""Division by the distance of two values, and the checks that come before it.

The derivative rules of a decomposition divide by gaps: 0/0 where values are equal, for a loss that does not depend on
the basis of their space, and infinite for one that does. So a rule looks at the numerator before it divides:

`gauge_check`
    lets a numerator pass if it vanishes, to tolerance, wherever its divisor does, and raises `GaugeError` if not;
`settled_values`
    lets the cotangent of values pass if it does not tell equal values apart, and raises `GaugeError` if it does;
`gap_quotient`
    divides, and is exactly 0, with all its derivatives, where the divisor vanishes.

These are ops: they run when values are known, and being part of the graph they have derivatives of every order. What
vanishes is judged pair by pair, relative to the largest value. Second derivatives at a degenerate point hold the set of
vanishing divisors fixed; a tangent of a numerator is checked like the numerator itself.

Small means small beside what the loss sends back to the decomposition. That may be a sum that cancels, as where a loss
is stationary, and what is left of it is rounding, of any size in any direction. So a check is given the scale of the
terms of the sum (`scale_of`): it is they that have some digits, not what is left of them.

The checks see what a loss sends back to first order, in the basis that was computed. A loss whose dependence on the
basis happens to vanish just there cannot be told from one that does not depend on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from unspool import _graph
from unspool._dims import Shape
from unspool._dtypes import promote
from unspool._graph import Node
from unspool._ops import batching, elementwise, layout, reduction
from unspool._ops.broadcasting import sum_to_shape
from unspool._ops.cancellation import largest_modulus, scale_of
from unspool._ops.linalg.gauge import refusal
from unspool._ops.op import INPUTS, OUTPUT, STRUCTURE, Op, register

if TYPE_CHECKING:
    from unspool._tensor import Tensor

# Whose numerator is checked: what an error message has to explain.
SVD = "svd"
EIGH = "eigh"
TANGENT = "tangent"


# --- the quotient ----------------------------------------------------------------------------------------------------


def gap_quotient(numerator: Tensor, left: Tensor, right: Tensor, sign: int, degeneracy: float) -> Tensor:
    """Divide entry (i, j) by ``right[j] + sign * left[i]``; 0 where that is at most the tolerance times the largest."""
    return _graph.apply(GAP_QUOTIENT, numerator, left, right, sign=sign, degeneracy=degeneracy)


def _infer_quotient(numerator: Node, left: Node, right: Node, *, sign: int, degeneracy: float) -> tuple[Shape, Any]:
    return numerator.shape, promote(numerator.dtype, right.dtype)


def _gaps(left: Any, right: Any, sign: int) -> Any:
    return right[..., None, :] + sign * left[..., :, None]


def _largest(*arrays: Any) -> Any:
    """Return the largest modulus in each vector of some stacks of vectors."""
    # The methods of ufuncs: these vectors are short, and the functions around the methods take longer than they do.
    found = [np.maximum.reduce(np.abs(a), axis=-1, initial=0.0) for a in arrays]
    return found[0] if len(found) == 1 else np.maximum(*found)


def _closeness(left: Any, right: Any, sign: int, degeneracy: float) -> tuple[Any, Any]:
    """Return the divisors, and where they vanish."""
    gaps = _gaps(left, right, sign)
    return gaps, np.abs(gaps) <= (degeneracy * _largest(left, right))[..., None, None]


def _all_apart(left: Any, right: Any, sign: int, degeneracy: float) -> bool:
    """Whether no divisor vanishes but those of a value and itself; a quick look, which may answer no for yes."""
    if left.size == 0 or right.size == 0:
        return False
    if sign > 0:
        nearest = np.minimum.reduce(left, axis=-1) + np.minimum.reduce(right, axis=-1)
    elif left is right:
        # Values are sorted: if no neighbours are close, no others are.
        nearest = np.minimum.reduce(np.abs(left[..., 1:] - left[..., :-1]), axis=-1, initial=np.inf)
    else:
        return False
    return bool(np.logical_and.reduce(nearest > degeneracy * _largest(left, right), axis=None))


def _quotient_kernel(numerator: Any, left: Any, right: Any, *, sign: int, degeneracy: float) -> Any:
    if _all_apart(left, right, sign, degeneracy):
        gaps = _gaps(left, right, sign)
        if sign < 0:
            along = np.arange(gaps.shape[-1])
            gaps[..., along, along] = np.inf
    else:
        gaps, close = _closeness(left, right, sign, degeneracy)
        np.copyto(gaps, np.inf, where=close)
    return np.divide(numerator, gaps)


def _pull_numerator(ct: Tensor, out: Tensor, numerator: Tensor, left: Tensor, right: Tensor, **params: Any) -> Tensor:
    return gap_quotient(ct, left, right, **params)


def _slopes(ct: Tensor, out: Tensor, left: Tensor, right: Tensor, params: Any) -> Tensor:
    """Return the cotangents of the divisors."""
    slope = gap_quotient(out, left, right, **params)
    return elementwise.negative(elementwise.real(elementwise.multiply(elementwise.conj(ct), slope)))


def _pull_left(ct: Tensor, out: Tensor, numerator: Tensor, left: Tensor, right: Tensor, **params: Any) -> Tensor:
    total = reduction.sum(_slopes(ct, out, left, right, params), axis=-1)
    return sum_to_shape(total if params["sign"] > 0 else elementwise.negative(total), left.shape)


def _pull_right(ct: Tensor, out: Tensor, numerator: Tensor, left: Tensor, right: Tensor, **params: Any) -> Tensor:
    return reduction.sum(_slopes(ct, out, left, right, params), axis=-2)


def _push_numerator(t: Tensor, out: Tensor, numerator: Tensor, left: Tensor, right: Tensor, **params: Any) -> Tensor:
    return gap_quotient(t, left, right, **params)


def _push_left(t: Tensor, out: Tensor, numerator: Tensor, left: Tensor, right: Tensor, **params: Any) -> Tensor:
    moved = elementwise.multiply(gap_quotient(out, left, right, **params), layout.expand_dims(t, -1))
    return elementwise.negative(moved) if params["sign"] > 0 else moved


def _push_right(t: Tensor, out: Tensor, numerator: Tensor, left: Tensor, right: Tensor, **params: Any) -> Tensor:
    return elementwise.negative(
        elementwise.multiply(gap_quotient(out, left, right, **params), layout.expand_dims(t, -2))
    )


GAP_QUOTIENT = register(
    Op(
        "gap_quotient",
        infer=_infer_quotient,
        kernel=_quotient_kernel,
        vjp=(_pull_numerator, _pull_left, _pull_right),
        jvp=(_push_numerator, _push_left, _push_right),
        params={"sign": STRUCTURE, "degeneracy": STRUCTURE},
        needs=(INPUTS, OUTPUT),
        batch=batching.leading,
    )
)


# --- numerators that have to vanish ----------------------------------------------------------------------------------


def gauge_check(
    numerator: Tensor,
    left: Tensor,
    right: Tensor,
    scale: Tensor | None = None,
    *,
    what: str,
    sign: int,
    degeneracy: float,
    gauge: float,
    diagonal: bool = True,
) -> Tensor:
    """Return a numerator of `gap_quotient` that was found to vanish where its divisor does, or raise `GaugeError`.

    Its size is judged by ``scale``, which is `scale_of` what it comes from. ``diagonal=False`` leaves entries (i, i)
    out: what becomes of phases is then nobody's business.
    """
    return _graph.apply(
        GAUGE_CHECK,
        numerator,
        left,
        right,
        *(() if scale is None else (scale,)),
        what=what,
        sign=sign,
        degeneracy=degeneracy,
        gauge=gauge,
        diagonal=diagonal,
    )


def _check_kernel(
    numerator: Any,
    left: Any,
    right: Any,
    *scales: Any,
    what: str,
    sign: int,
    degeneracy: float,
    gauge: float,
    diagonal: bool,
) -> Any:
    if _all_apart(left, right, sign, degeneracy) and (sign > 0 or not diagonal or numerator.dtype.kind != "c"):
        # The diagonal of a real skew matrix is zero.
        return numerator
    _, close = _closeness(left, right, sign, degeneracy)
    if not close.any():
        return numerator
    if not diagonal:
        along = np.arange(min(close.shape[-2:]))
        close[..., along, along] = False
    close = np.broadcast_to(close, numerator.shape)
    sizes = np.abs(numerator[close])
    if not sizes.any():
        return numerator
    scale = largest_modulus(numerator, *scales, stack=numerator.ndim - 2)
    excess = np.zeros(numerator.shape, sizes.dtype)
    excess[close] = sizes
    if np.any(excess > gauge * scale[..., None, None]):
        *where, i, j = _worst(excess / scale[..., None, None])
        _refuse_numerator(where, what, sign, i, j, float(excess[*where, i, j] / scale[tuple(where)]))
    return numerator


def _worst(amounts: Any) -> tuple[int, ...]:
    found = np.unravel_index(int(np.nanargmax(amounts)), amounts.shape)
    return tuple(int(i) for i in found)


def _push_check(
    tangents: Any, out: Tensor, numerator: Tensor, left: Tensor, right: Tensor, *_: Any, **params: Any
) -> Any:
    if tangents[0] is None:
        return None
    # A phase is never divided by anything, so how it would move does not matter.
    params["diagonal"] &= params["sign"] > 0
    return gauge_check(tangents[0], left, right, *tangents[3:], **params)


GAUGE_CHECK = register(
    Op(
        "gauge_check",
        infer=lambda numerator, *others, **params: (numerator.shape, numerator.dtype),
        kernel=_check_kernel,
        vjp=lambda i, ct, *nodes, **params: ct if i == 0 else None,
        jvp=_push_check,
        params={
            "what": STRUCTURE,
            "sign": STRUCTURE,
            "degeneracy": STRUCTURE,
            "gauge": STRUCTURE,
            "diagonal": STRUCTURE,
        },
        batch=batching.leading,
    )
)


# --- cotangents of values --------------------------------------------------------------------------------------------

# Inside a near-degenerate block the derivatives of a smooth function differ by as much as the values, times its
# curvature; so much of it is no sign of a gauge.
_CURVATURE = 10.0


def settled_values(
    ct: Tensor,
    values: Tensor,
    *vectors: Tensor,
    scale: Tensor | None = None,
    what: str,
    degeneracy: float,
    gauge: float,
    zeros: bool,
) -> Tensor:
    """Return the cotangent of values that was found not to tell equal values apart, or raise `GaugeError`.

    ``vectors`` are the cotangents of the vectors, in the basis of the vectors: their Hermitian parts must not couple
    equal values either. If values and vectors of a degenerate block enter a loss together, as in U·S·Vᴴ, a part of the
    derivative is the limit of 0/0, which cotangents at the degenerate point do not determine; this is how it shows.
    With ``zeros`` the values are moduli: 0 is a kink, and a double value is one if it is 0.

    Sizes are judged by `scale_of` the cotangent, those of the vectors by ``scale``, that of what they come from.
    """
    coupling = () if not vectors else (scale_of(*vectors, stack=ct.ndim - 1) if scale is None else scale, *vectors)
    return _graph.apply(
        SETTLED_VALUES,
        ct,
        values,
        scale_of(ct, stack=ct.ndim - 1),
        *coupling,
        what=what,
        degeneracy=degeneracy,
        gauge=gauge,
        zeros=zeros,
    )


def _settled_kernel(
    ct: Any,
    values: Any,
    scale: Any,
    *coupling: Any,
    what: str,
    degeneracy: float,
    gauge: float,
    zeros: bool,
) -> Any:
    largest = _largest(values)[..., None]
    relative = np.divide(values, np.where(largest > 0, largest, 1.0))
    scale = scale[..., None]
    if zeros:
        slack = np.where(relative <= degeneracy, gauge + _CURVATURE * relative, np.inf)
        bad = np.abs(ct) > slack * scale
        if bad.any():
            *where, i = _worst(np.where(bad, np.abs(ct) / scale, 0.0))
            _refuse_zero(where, i, values[tuple(where)], degeneracy, float(abs(ct[*where, i]) / scale[*where, 0]))
    # Values are sorted: if no neighbours are close, no others are.
    if not np.any(np.abs(np.diff(relative)) <= degeneracy):
        return ct
    gaps, close = _closeness(relative, relative, -1, degeneracy)
    along = np.arange(values.shape[-1])
    close[..., along, along] = False
    slack = np.where(close, gauge + _CURVATURE * np.abs(gaps), np.inf)
    spread = np.abs(_gaps(ct, ct, -1))
    bad = spread > slack * scale[..., None]
    if bad.any():
        *where, i, j = _worst(np.where(bad, spread / scale[..., None], 0.0))
        _refuse_spread(where, what, i, j, float(spread[*where, i, j] / scale[*where, 0]), bool(coupling))
    if coupling:
        _check_coupling(*coupling, slack=slack, what=what)
    return ct


def _check_coupling(scale: Any, *vectors: Any, slack: Any, what: str) -> None:
    scale = scale[..., None, None]
    for x in vectors:
        coupling = np.abs(x + np.conj(np.swapaxes(x, -1, -2))) / 2
        bad = coupling > slack * scale
        if bad.any():
            *where, i, j = _worst(np.where(bad, coupling / scale, 0.0))
            _refuse_spread(where, what, i, j, float(coupling[*where, i, j] / scale[*where, 0, 0]), True)


SETTLED_VALUES = register(
    Op(
        "settled_values",
        infer=lambda ct, *others, **params: (ct.shape, ct.dtype),
        kernel=_settled_kernel,
        vjp=lambda i, ct, *nodes, **params: ct if i == 0 else None,
        jvp=lambda tangents, *nodes, **params: tangents[0],
        params={"what": STRUCTURE, "degeneracy": STRUCTURE, "gauge": STRUCTURE, "zeros": STRUCTURE},
        batch=batching.leading,
    )
)


# --- refusing --------------------------------------------------------------------------------------------------------


def _value(what: str, *indices: int) -> str:
    word = "eigenvalue" if what == EIGH else "singular value"
    return f"{word}{'s' if len(indices) > 1 else ''} {' and '.join(map(str, indices))}"


def _in_stack(where: list[int]) -> str:
    return f"in matrix {tuple(where)} of the stack: " if where else ""


def _refuse_numerator(where: list[int], what: str, sign: int, i: int, j: int, amount: float) -> NoReturn:
    """Raise for a numerator that does not vanish where its divisor does; the divisor tells the reason."""
    sent = f"it sends back {amount:.1e} of its cotangent, which should vanish"
    if what == TANGENT:
        values = f"values {i} and {j} are equal" if sign < 0 else f"value {j} is zero"
        message = (
            f"{values}, and this direction changes that (by {amount:.1e} of its size): vectors, and each value by "
            "itself, have no derivative along it. Reverse mode can tell whether a loss needs them"
        )
    elif sign > 0:
        message = (
            f"{_value(SVD, j)} is zero, so its vectors are open, and the loss depends on them: {sent}. Truncate to the "
            "rank (us.linalg.truncated_svd), or ask for broaden="
        )
    elif i == j:
        message = (
            f"the loss depends on the phase of the vectors of {_value(what, i)}, which is open: {sent}. Write the loss "
            'so that phases cancel, or ask for gauge="fixed" to differentiate a convention for them'
        )
    else:
        message = (
            f"{_value(what, i, j)} are equal, and the loss depends on which basis of their space was chosen: {sent}. "
            "Use the whole space (its projector), do not let a rank cut through it, or ask for broaden="
        )
    raise refusal(_in_stack(where) + message, (i,) if i == j else (i, j), amount)


def _refuse_spread(where: list[int], what: str, i: int, j: int, amount: float, with_vectors: bool) -> NoReturn:
    """Raise for a cotangent of values that tells equal ones apart."""
    if with_vectors:
        message = (
            f"{_value(what, i, j)} are equal, and the loss takes values and vectors of their space together (by "
            f"{amount:.1e} of the cotangent): what it sends back does not determine its derivative. Write the quantity "
            "as a function of the matrix (us.linalg.low_rank, a matrix function), do not let a rank cut through the "
            "space, or ask for broaden="
        )
    else:
        message = (
            f"{_value(what, i, j)} are equal, and the loss tells them apart (by {amount:.1e} of the cotangent): it has "
            "no derivative here. Treat equal values alike"
        )
    raise refusal(_in_stack(where) + message, (i, j), amount)


def _refuse_zero(where: list[int], i: int, values: Any, degeneracy: float, amount: float) -> NoReturn:
    """Raise for a cotangent of a singular value that is zero."""
    rank = int(np.sum(values > degeneracy * np.max(values, initial=0.0)))
    message = (
        f"singular value {i} is zero (the rank is {rank} of {len(values)}), where it has a kink, and the loss depends "
        f"on it to first order (by {amount:.1e} of the cotangent). Truncate to the rank (us.linalg.truncated_svd), or "
        "use a function that is flat at zero"
    )
    raise refusal(_in_stack(where) + message, (i,), amount)
