"""Optimal transport with entropy: Sinkhorn's iteration in the log domain, differentiable in everything that enters it.

Mass a at some places is to be moved to mass b at others, and C says what a unit costs. The plan P that minimises

    ⟨P, C⟩ + ε KL(P | a⊗b),    rows of P adding up to a, columns to b,

is P_ij = a_i exp((f_i + g_j − C_ij)/ε) b_j, and Sinkhorn's iteration sets the potentials f and g in turn so that the
rows, then the columns are right. Places without mass are no special case: their potentials are finite, no log of 0 is
taken.

The one idea of this module: a step in f and g costs a matrix of exponentials; one in the scalings u = exp(f/ε) and
v = exp(g/ε) costs two products with a matrix, but overflows when ε is small. So scalings are taken relative to
reference potentials. The references cancel from the result. To derivatives they are therefore constants, and when u
leaves a safe range they are moved to where the potentials are (B. Schmitzer, SIAM J. Sci. Comput. 41, A1443, 2019).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

import unspool as us
from unspool.errors import ArgumentError, ShapeError
from unspool.networks import _checks
from unspool.networks._progress import shows_progress
from unspool.networks._results import printed_as_table
from unspool.networks._spooling import Spool, run_of

__all__ = ["SinkhornResult", "sinkhorn", "soft_transform"]

Potentials: TypeAlias = tuple[us.Tensor, us.Tensor]


@printed_as_table
class SinkhornResult(NamedTuple):
    """The result of `sinkhorn`.

    Attributes
    ----------
    state : tuple of Tensor
        The potentials f and g, shifted so that ⟨b, g⟩ = 0.
    plan : Tensor
        How much goes from where to where. Its columns add up to the target, its rows to the source as far as converged.
    cost : Tensor
        ⟨P, C⟩.
    objective : Tensor
        ⟨f, a⟩ + ⟨g, b⟩, which at convergence is ⟨P, C⟩ + ε Σ P log(P / a⊗b). Its gradient in C is then P, in a it is f
        and in b it is g, each up to a constant, and in ε the relative entropy.
    steps : int
    converged : bool
    history : tuple of dict
        For each step ``change``, the largest change of f, and ``marginal``, by how much rows of the plan before it
        missed the source in all.
    """

    state: Potentials
    plan: us.Tensor
    cost: us.Tensor
    objective: us.Tensor
    steps: int
    converged: bool
    history: tuple[dict[str, float], ...]


@shows_progress("steps")
def sinkhorn(
    cost: Any,
    source: Any,
    target: Any,
    *,
    regularisation: Any,
    start: tuple[Any, Any] | None = None,
    tol: float = 1e-9,
    max_steps: int = 10_000,
    derivative: Literal["unrolled", "implicit"] = "unrolled",
    on_step: Callable[[int, Potentials, dict[str, float]], object] | None = None,
    progress: bool = False,
    spool: Spool | None = None,
) -> SinkhornResult:
    """Find the plan of least cost and entropy that moves one distribution of mass to another.

    Parameters
    ----------
    cost : array_like, m by n
        What it costs to move a unit of mass.
    source : array_like, m
    target : array_like, n
        Masses, with the same sum. Zeros are allowed. Derivatives have a meaning along changes that keep the sums equal:
        gradients in both are open by a constant that one gets and the other loses.
    regularisation : float or scalar Tensor
        The weight ε of the entropy, greater than 0.
    start : tuple, optional
        Potentials (f, g) to begin from, such as the ``state`` of an earlier result; only g is looked at.
    tol : float
        Stop when no entry of f changes by more than this.
    max_steps : int
        Stop then in any case; see ``converged``.
    derivative : {"unrolled", "implicit"}
        The derivative of all steps, or that of the fixed point they converge to, by `unspool.fixed_point`.
    on_step : callable, optional
        ``on_step(step, (f, g), values)`` after each step; values are those of ``history``.
    progress : bool
        Whether to show how far it is while it runs; see `unspool.progress`.
    spool : path or us.SpooledRun, optional
        Write the loop as it runs, into a folder or as `unspool.spool` says. A run that is there is gone on with, and
        derivatives go through all its steps.

    Returns
    -------
    SinkhornResult

    Examples
    --------
    >>> import unspool as us
    >>> eps = us.tensor(1.0)
    >>> found = us.networks.sinkhorn([[0.0, 1.0], [1.0, 0.0]], [0.5, 0.5], [0.5, 0.5], regularisation=eps)
    >>> round(float(found.cost), 10), round(float(1 / (1 + us.exp(1 / eps))), 10)
    (0.2689414214, 0.2689414214)
    >>> round(float(found.cost.grad(eps)), 10)      # e / (1 + e)²
    0.1966119332
    """
    C, a, b, eps = _checked(cost, source, target, regularisation)
    if derivative not in ("unrolled", "implicit"):
        raise ArgumentError(f"derivative must be 'unrolled' or 'implicit', but is {derivative!r}")
    tol, max_steps = _checks.fraction(tol, "tol"), _checks.count(max_steps, "max_steps")
    first = _starting_potentials(start, a, b)
    if derivative == "unrolled":
        f, g, history = _iterate(C, a, b, eps, first, tol, max_steps, on_step, spool)
    else:
        C_, a_, b_, eps_ = (us.asarray(value) for value in us.eval((C, a, b, eps)))
        _, g, history = _iterate(C_, a_, b_, eps_, first, tol, max_steps, on_step, spool)
        f, g = _fixed_point(C, a, b, eps, g.eval(), tol)
    f, g = _centred(f, g, b)
    plan = a[:, None] * _kernel(C, f, g, eps) * b
    return SinkhornResult(
        state=(f, g),
        plan=plan,
        cost=us.sum(plan * C),
        objective=f @ a + g @ b,
        steps=len(history),
        converged=history[-1]["change"] <= tol,
        history=tuple(history),
    )


def soft_transform(cost: us.Tensor, weights: us.Tensor, potential: us.Tensor, regularisation: us.Tensor) -> us.Tensor:
    """Return the potential of the rows that a potential of the columns asks for: half a step of Sinkhorn.

    It is −ε log Σ_j b_j exp((g_j − C_ij)/ε), a smooth minimum of C_ij − g_j over the places j that have mass. Places
    without mass add nothing, whatever their potential is, and the slope in their mass is finite.

    Parameters
    ----------
    cost : Tensor, m by n
    weights : Tensor, n
        The masses b, at least one of them positive.
    potential : Tensor, n
        The potential g.
    regularisation : scalar Tensor
        The weight ε.

    Returns
    -------
    Tensor, m

    Examples
    --------
    >>> import unspool as us
    >>> C, b, g, eps = us.tensor([[1.0, 2.0]]), us.tensor([1.0, 0.0]), us.zeros(2), us.tensor(0.1)
    >>> us.networks.soft_transform(C, b, g, eps).eval()
    array([1.])
    """
    exponent = (potential - cost) / regularisation
    # The largest term is taken out; it cancels, so it is a constant to derivatives.
    largest = us.stop_gradient(us.max(us.where(weights > 0, exponent, -np.inf), axis=1))
    terms = us.exp(us.minimum(exponent - largest[:, None], _largest_exponent(cost.dtype)))
    transformed: us.Tensor = -regularisation * (largest + us.log(terms @ weights))
    return transformed


# --- the loop --------------------------------------------------------------------------------------------------------


@us.fragment
def _scaled_step(kernel: us.Tensor, a: us.Tensor, b: us.Tensor, v: us.Tensor) -> tuple[us.Tensor, us.Tensor]:
    u = 1.0 / (kernel @ (b * v))
    return u, 1.0 / ((a * u) @ kernel)


def _iterate(
    C: us.Tensor,
    a: us.Tensor,
    b: us.Tensor,
    eps: us.Tensor,
    start: tuple[Any, us.Tensor],
    tol: float,
    max_steps: int,
    on_step: Callable[[int, Potentials, dict[str, float]], object] | None,
    spool: Spool | None,
) -> tuple[us.Tensor, us.Tensor, list[dict[str, float]]]:
    """Set f and g in turn until f settles."""
    before, g = start
    width, masses = float(eps), a.eval()
    f: Any = None
    v: Any = None
    u: us.Tensor | None = None  # scalings of the frame; potentials are made of them when somebody asks
    frame: Any = None
    settled = False
    with run_of(spool, max_steps) as run:
        begin = ((C, a, b, eps), (f, g, u, v), frame, before, settled)
        read, moving, frame, before, settled = run.start(begin, inputs=(C, a, b, eps, g))
        (C, a, b, eps), (f, g, u, v) = read, moving
        frame = frame and _Frame(*frame)
        while len(run.history) < max_steps and not settled:
            step = len(run.history) + 1
            if frame is None:  # a step in the log domain: safe from anywhere
                f = soft_transform(C, b, g, eps)
                g = soft_transform(C.mT, a, f, eps)
                now, log_u = f.eval(), np.zeros(1)
                frame = _frame(C, b, eps, g)
                v = us.exp((g - frame.g) / eps)
            else:
                u, v = _scaled_step(frame.kernel, a, b, v)
                log_u = np.log(u.eval())
                now = frame.f.eval() + width * log_u
            values = _values(now, before, masses, width)
            settled = values["change"] <= tol
            far = bool(np.abs(log_u).max() > _largest_exponent(C.dtype) / 8)
            if u is not None and (settled or far or step == max_steps or on_step is not None):
                f, g = frame.f + eps * us.log(u), frame.g + eps * us.log(v)
            if on_step is not None:
                on_step(step, _centred(f, g, b), values)
            if far and not settled:
                frame = u = None
            before = now
            run.checkpoint(((C, a, b, eps), (f, g, u, v), frame and tuple(frame), before, settled), values)
        if u is not None and frame is not None and not settled:  # more steps were asked for before than now
            f, g = frame.f + eps * us.log(u), frame.g + eps * us.log(v)
    return f, g, run.history


class _Frame(NamedTuple):
    """Reference potentials, which are constants, and the matrix that scalings relative to them are multiplied with."""

    f: us.Tensor
    g: us.Tensor
    kernel: us.Tensor


def _frame(C: us.Tensor, b: us.Tensor, eps: us.Tensor, g: us.Tensor) -> _Frame:
    """Return references for scalings near 1: the largest entry of a row, among places with mass, is 1."""
    reference = g.eval()
    nearest = np.min(np.where(b.eval() > 0, C.eval() - reference, np.inf), axis=1)
    f, g = us.constant(nearest), us.constant(reference)
    return _Frame(f, g, _kernel(C, f, g, eps))


def _kernel(C: us.Tensor, f: Any, g: Any, eps: us.Tensor) -> us.Tensor:
    """Return exp((f + g − C)/ε). Only between two places without mass may it be too large to be a number."""
    return us.exp(us.minimum((f[:, None] + g - C) / eps, _largest_exponent(C.dtype)))


def _largest_exponent(dtype: Any) -> float:
    """Return an exponent that leaves room for a product with scalings."""
    return float(0.85 * np.log(np.finfo(dtype).max))


def _values(now: Any, before: Any, masses: Any, eps: float) -> dict[str, float]:
    """Return what is reported of a step. Where f falls by d, the row had exp(d/ε) times its mass."""
    fall = before - now
    excess = np.expm1(np.minimum(fall / eps, _largest_exponent(now.dtype)))
    return {"change": float(np.abs(fall).max()), "marginal": float(masses @ np.abs(excess))}


def _centred(f: us.Tensor, g: us.Tensor, b: us.Tensor) -> Potentials:
    """Shift a constant from g to f, so that ⟨b, g⟩ = 0: what the plan leaves open, made definite."""
    shift = (g @ b) / us.sum(b)
    return f + shift, g - shift


def _fixed_point(C: us.Tensor, a: us.Tensor, b: us.Tensor, eps: us.Tensor, start: Any, tol: float) -> Potentials:
    """Return potentials whose derivative is that of the fixed point."""

    def step(g: us.Tensor) -> us.Tensor:
        g = soft_transform(C.mT, a, soft_transform(C, b, g, eps), eps)
        return _centred(g, g, b)[1]

    g, _ = us.fixed_point(step, start, tol=max(tol, 1e-13))
    return soft_transform(C, b, g, eps), g


# --- arguments -------------------------------------------------------------------------------------------------------


def _checked(cost: Any, source: Any, target: Any, regularisation: Any) -> tuple[us.Tensor, ...]:
    """Return cost, masses and regularisation as tensors of one real dtype, after a look at them."""
    C = _checks.finite_tensor(cost, "cost", ndim=2)
    a, b = _masses(source, "source"), _masses(target, "target")
    if C.shape != a.shape + b.shape or 0 in C.shape:
        raise ShapeError(f"cost must be len(source) by len(target), {a.shape + b.shape}, but has shape {C.shape}")
    eps = _checks.finite_tensor(regularisation, "regularisation", ndim=0)
    tensors = (C, a, b, eps)
    if any(t.dtype.kind == "c" for t in tensors):
        raise ArgumentError(f"cost, masses and regularisation must be real, but have {[str(t.dtype) for t in tensors]}")
    dtype = np.result_type(*(t.dtype for t in (C, a, b)), np.float32)
    C, a, b, eps = (t.astype(dtype) for t in tensors)
    spread = float(np.max(np.abs(C.eval())))
    if not float(eps) > 0 or float(eps) < 1e3 * float(np.finfo(dtype).eps) * spread:
        raise ArgumentError(
            f"regularisation must be greater than 0 and not vanish beside the costs, which go to {spread:.3g}, "
            f"but is {float(eps):.3g}"
        )
    total, other = float(us.sum(a)), float(us.sum(b))
    if not total > 0 or abs(total - other) > 1e3 * float(np.finfo(dtype).eps) * total:
        raise ArgumentError(f"source and target must have the same positive total mass, but have {total} and {other}")
    return C, a, b, eps


def _masses(value: Any, name: str) -> us.Tensor:
    tensor = _checks.finite_tensor(value, name, ndim=1)
    values = tensor.eval()
    if values.dtype.kind != "c" and len(wrong := np.flatnonzero(values < 0)):
        raise ArgumentError(f"{name} must not be negative, but {name}[{wrong[0]}] is {values[wrong[0]]}")
    return tensor


def _starting_potentials(start: tuple[Any, Any] | None, a: us.Tensor, b: us.Tensor) -> tuple[Any, us.Tensor]:
    """Return the values of f, for the first change only, and the tensor g."""
    if start is None:
        return np.zeros(a.shape, a.dtype), us.zeros_like(b)
    f, g = (_checks.finite_tensor(given, f"start[{i}]", ndim=1) for i, given in enumerate(start))
    if (f.shape, g.shape) != (a.shape, b.shape):
        raise ShapeError(f"start must have shapes {a.shape} and {b.shape}, but has {f.shape} and {g.shape}")
    return f.eval().astype(a.dtype), g.astype(b.dtype)
