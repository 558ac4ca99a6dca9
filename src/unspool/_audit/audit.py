"""`unspool.audit`: is this gradient to be trusted? All that the graph of a loss can tell, with a verdict.

Each part looks at one way in which a gradient can be off: a rule that is wrong, or a kink (differences); a loop that
was stopped when its value had settled and its derivative had not (convergence); a cut that dropped what the derivative
needs (truncations); a spectrum next to where the derivative does not exist (gaps).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _trees as trees
from unspool._audit.convergence import FIXED_ENOUGH, follow_states, follow_steps
from unspool._audit.loops import States, Steps, find_loops
from unspool._audit.recipe import Recipe
from unspool._audit.report import DOUBTFUL, GOOD, WRONG, Audit, Difference, Finding, LoopAudit, norm_of
from unspool._audit.spectra import look_at_spectra
from unspool._autodiff.solvers.implicit import is_positive, is_positive_integer
from unspool._autodiff.sweeps.gradient import gradient_of
from unspool._dtypes import INEXACT
from unspool._engine.default import default_engine
from unspool._graph import Node, describe
from unspool._ops.leaf import tensor
from unspool.errors import ArgumentError, GaugeError, StructureError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

# Less than this is rounding.
_ROUNDING = 1e-14

# A gauge margin below this costs digits that a tolerance may need: errors of values are divided by the gap.
_THIN = 100.0


def audit(
    loss: Tensor, wrt: Any, *, tol: float = 1e-6, directions: int = 2, states: Sequence[Any] | None = None
) -> Audit:
    """Tell whether the gradient of a loss is to be trusted, from its graph alone.

    The user's program is not run again. The recipe is evaluated at other values of ``wrt``, a few dozen times, and
    differentiated forward and in reverse.

    Parameters
    ----------
    loss : Tensor
        A real scalar.
    wrt : pytree of Tensor
        What it is differentiated with respect to.
    tol : float
        The relative error of the gradient that would be too much.
    directions : int
        Along how many random directions to take differences.
    states : sequence of pytree of Tensor, optional
        What a loop came to after each of its steps, in order, if its convergence is to be judged by these: the energies
        of all sweeps, say. By default loops are found: those of `iterate` and `fixed_point`, and plain ones by what
        they repeat.

    Returns
    -------
    Audit
        ``ok``, ``verdict``, ``error`` and the numbers behind them. Prints as text.

    Raises
    ------
    NotConnectedError
        If the loss depends on nothing of ``wrt``, as the gradient does.

    Notes
    -----
    *Differences.* The gradient times a random direction beside central differences of the recipe, with an estimate of
    their error. Numbers of steps and ranks are held fixed, as they are in the gradient.

    *Loops.* The tangent of the state along a random direction, carried along with the steps: how fast value and
    derivative converge, and how far both are from their limits. If the loop ended at a fixed point, the gradient
    through all steps and the implicit one (`Implicit`) are compared.

    *Truncations.* What each cut at a rank drops of the matrix and of its tangent.

    *Gaps.* The least distance of values that a derivative divides by, beside the one at which they count as equal.

    Examples
    --------
    >>> import unspool as us
    >>> a = us.tensor(0.9)
    >>> x, steps = us.iterate(lambda x: a * x + 1.0, us.tensor(0.0), until=lambda new, old: abs(new - old) < 1e-7)
    >>> report = us.audit(x, a)  # x converges to 1 / (1 - a), its derivative to 1 / (1 - a)²
    >>> report.ok
    False
    >>> print(report.verdict)
    Be careful with this gradient: it is that of the steps that were made, and about ... from that of their limit.
    >>> true = 1 / (1 - 0.9) ** 2
    >>> loop = report.loops[0]
    >>> 0.9 < loop.derivative_left / (1 - float(x.grad(a)) / true) < 1.1
    True
    """
    variables = _checked(loss, wrt, tol, directions)
    engine = default_engine()
    value = float(engine.evaluate([loss])[0])
    try:
        gradient = [np.asarray(g) for g in engine.evaluate(gradient_of(loss, variables))]
    except GaugeError as error:
        found = Audit(value, float("nan"), tol)
        found.findings.append(Finding(WRONG, float("inf"), f"there is none: {error}".split("\n")[0]))
        return found
    found = Audit(value, norm_of(gradient), tol)
    recipe = Recipe(loss, variables)
    found.differences = [_difference(recipe, gradient, seed) for seed in range(directions)]
    along = [tensor(move) for move in recipe.direction(0)]
    loops = find_loops(loss, variables) if states is None else [_given(states)]
    for loop in loops:
        if isinstance(loop, Steps):
            found.loops.append(follow_steps(loop, loss, gradient, variables, along))
            continue
        followed = follow_states(loop, variables, along)
        if states is not None or followed.settles:  # else what was found may be no state of a loop at all
            found.loops.append(followed)
        else:
            found.unfollowed = loop.source.partition(": ")[0]
    found.truncations, found.gaps = look_at_spectra(loss, loops, variables, along)
    found.findings = list(_findings(found))
    return found


def _checked(loss: Any, wrt: Any, tol: Any, directions: Any) -> list[Any]:
    """Return the variables, or raise for arguments that make no sense."""
    if not isinstance(loss, Node):
        raise StructureError(f"the loss must be a tensor, got {type(loss).__name__}")
    if loss.shape != () or loss.dtype not in INEXACT:
        raise ArgumentError(f"a gradient is that of a scalar of floating-point numbers, got {describe(loss)}")
    if not is_positive(tol):
        raise ArgumentError(f"tol must be a positive number, got {tol!r}")
    if not is_positive_integer(directions):
        raise ArgumentError(f"directions must be a positive integer, got {directions!r}")
    variables = trees.flatten(wrt)[0]
    for variable in variables:
        if not isinstance(variable, Node) or variable.dtype not in INEXACT:
            raise ArgumentError(f"wrt has floating-point or complex tensors, got {variable!r}")
    if not variables:
        raise ArgumentError(f"wrt has floating-point or complex tensors, got {wrt!r}, which has none")
    return list({id(variable): variable for variable in variables}.values())  # one that is given twice is moved once


def _given(states: Any) -> States:
    if not isinstance(states, Iterable):
        raise ArgumentError(f"states are those after each step, in order, got {states!r:.80}")
    rows = [
        [leaf for leaf in trees.flatten(state)[0] if isinstance(leaf, Node) and leaf.dtype in INEXACT]
        for state in states
    ]
    if len(rows) < 3 or any(len(row) != len(rows[0]) or not row for row in rows):
        raise ArgumentError("states are at least three states of one structure, with floating-point tensors in them")
    return States("the states given", "", rows)  # type: ignore[arg-type]


def _difference(recipe: Recipe, gradient: Sequence[Any], seed: int) -> Difference:
    direction = recipe.direction(seed)
    terms = [np.real(np.conj(g) * v) for g, v in zip(gradient, direction, strict=True)]
    slope, error = recipe.slope(direction)
    scale = float(np.sqrt(sum(float(np.sum(term**2)) for term in terms)))
    return Difference(float(sum(float(np.sum(term)) for term in terms)), slope, error, max(scale, abs(slope)))


# --- the verdict -----------------------------------------------------------------------------------------------------


def _findings(found: Audit) -> Iterator[Finding]:
    """Return what each part says."""
    if not np.isfinite(found.norm):
        yield Finding(WRONG, float("inf"), "it is not finite; us.debug.first_nan tells where that comes from")
        return
    yield _of_differences(found.differences, found.tol)
    for loop in found.loops:
        yield _of_loop(loop, found.tol)
    if found.unfollowed and not found.loops:
        text = f"no loop in it tends to a limit, as far as can be told from {found.unfollowed}; states= says what does"
        yield Finding(GOOD, 0.0, text)
    if found.truncations:
        yield _of_truncations(found)
    if found.gaps:
        yield _of_gaps(found)


def _of_differences(differences: Sequence[Difference], tol: float) -> Finding:
    apart = max(d.disagreement for d in differences)
    known = max(d.resolution for d in differences)
    if not np.isfinite(known):
        return Finding(DOUBTFUL, 0.0, "differences do not settle, so that they can tell nothing: a kink, or noise")
    if apart > tol:
        status = WRONG if apart > max(10 * known, tol) else DOUBTFUL
        return Finding(status, apart, f"differences of the recipe are off by {apart:.1e} (and good to {known:.0e})")
    if known > tol:
        text = f"differences agree, but are good to {known:.0e} only: the loss is rough on that scale"
        return Finding(DOUBTFUL, known, text)
    return Finding(GOOD, max(apart, known), f"differences of the recipe agree, within their error of {known:.0e}")


def _of_loop(loop: LoopAudit, tol: float) -> Finding:
    left, where = loop.derivative_left, f"{loop.kind} of {loop.steps} steps"
    if not loop.settles:
        if np.isfinite(loop.value_left):
            apart = f"(value about {loop.value_left:.0e}, derivative about {left:.0e} from it)"
            return Finding(GOOD, 0.0, f"{where} was not run to its limit {apart}: it is the derivative of these steps")
        return Finding(GOOD, 0.0, f"{where} tends to no limit: it is the derivative of these steps")
    if loop.other_difference is not None and loop.kind == "us.fixed_point":
        error = loop.other_difference
        text = f"the implicit derivative of {where} and the one through plain steps differ by {error:.1e}"
        return Finding(GOOD if error <= tol else DOUBTFUL, error, text)
    off = left if loop.other_difference is None else loop.other_difference
    if off > tol:
        text = f"it is that of the steps that were made, and about {off:.1e} from that of their limit"
        return Finding(DOUBTFUL, off, text)
    reached = f"about {off:.1e}" if off > _ROUNDING else "rounding"
    return Finding(GOOD, off, f"the derivative of {where} has converged, to {reached}")


def _of_truncations(found: Audit) -> Finding:
    lost = max(t.derivative_lost or 0.0 for t in found.truncations)
    dropped = max(t.value_lost for t in found.truncations)
    if lost > max(found.tol, FIXED_ENOUGH) ** 0.5 and lost > 10 * dropped:
        return Finding(DOUBTFUL, lost, f"a truncation drops {lost:.1e} of a derivative, and {dropped:.1e} of a value")
    return Finding(GOOD, 0.0, f"truncations drop at most {lost:.1e} of a derivative, {dropped:.1e} of a value")


def _of_gaps(found: Audit) -> Finding:
    nearest = min(found.gaps, key=lambda gap: gap.margin)
    text = f"the least gap of a spectrum is {nearest.margin:.1e} times what counts as equal ({nearest.op})"
    if 1.0 < nearest.margin < _THIN:
        return Finding(DOUBTFUL, 1e-16 / max(nearest.gap, 1e-16), text + ", which costs digits")
    return Finding(GOOD, 0.0, text)
