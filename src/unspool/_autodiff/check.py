"""`check_grad`: derivatives held against differences, and forward mode against reverse mode.

The one idea: a function of nested arrays is seen as a map from one flat real vector to another (a complex number is two
reals), so that every check is a comparison of real vectors. With J the Jacobian of the map,

- J·v in forward mode and Jᵀ·w in reverse mode are compared with central differences,
- ⟨w, J·v⟩ is compared with ⟨Jᵀ·w, v⟩, to rounding.

The next order is the same on the map x ↦ J(x)ᵀ·w, whose graph a second derivative is taken of. The map x ↦ J(x)·v must
give the same second derivative, which covers the derivatives of forward rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from unspool import _trees as trees
from unspool._autodiff.differences import derivative
from unspool._autodiff.report import Comparison, GradientReport
from unspool._autodiff.sweeps.connected import moves
from unspool._autodiff.sweeps.forward import pushforward
from unspool._autodiff.sweeps.reverse import pullback
from unspool._dtypes import COMPLEX, COMPLEX64, FLOAT32, INEXACT, real_dtype
from unspool._engine.default import default_engine
from unspool._fragments.asking import check_callable
from unspool._graph import Node
from unspool._leaving import watching
from unspool._ops.leaf import as_tensor, constant, tensor
from unspool.errors import ArgumentError, DTypeError, GradientCheckError

Vector: TypeAlias = np.ndarray[Any, Any]
Trace: TypeAlias = Callable[[list[Any]], tuple[list[Any], list[Any]]]

REVERSE = "reverse"
FORWARD = "forward"

# Up to this many real entries the whole Jacobian is taken by differences, so that a wrong entry has a name.
_SMALL = 24


@dataclass(frozen=True)
class _Accuracy:
    """What can be expected of derivatives and differences in one precision."""

    rtol: float
    atol: float
    rounding: float
    noise: float
    step: float


_DOUBLE = _Accuracy(rtol=1e-6, atol=1e-7, rounding=1e-9, noise=1e-12, step=2.0**-8)
_SINGLE = _Accuracy(rtol=5e-4, atol=5e-4, rounding=1e-3, noise=1e-12, step=2.0**-8)
# A function that computes in single precision whatever it is given: so do its differences.
_ONLY_SINGLE = _Accuracy(rtol=2e-2, atol=2e-2, rounding=1e-3, noise=1e-4, step=2.0**-4)


def check_grad(
    f: Callable[..., Any],
    *args: Any,
    order: int = 2,
    rtol: float | None = None,
    atol: float | None = None,
    modes: Sequence[str] = (REVERSE, FORWARD),
) -> GradientReport:
    """Check the derivatives of a function against differences, up to an order, in both modes.

    Parameters
    ----------
    f : callable
        Takes tensors (or nested structures of them) and returns a tensor or a structure of tensors. It is called many
        times, at points near the given one.
    *args : pytree of array_like
        Where to check. Floating-point and complex entries are moved, everything else is held fixed. Stay away from
        kinks and poles.
    order : int
        The highest derivative to check.
    rtol, atol : float, optional
        A derivative passes if it differs from its reference by at most ``atol + rtol * abs(reference)``. By default
        1e-6 and 1e-7 in double precision, 5e-4 for both if something is in single precision (differences are then taken
        on doubles), and 2e-2 for both if the function makes singles of these.
    modes : sequence of {"reverse", "forward"}
        Which modes to check. With both, they are also compared with each other, to rounding.

    Returns
    -------
    GradientReport
        The errors by order and mode. Prints as a table.

    Raises
    ------
    GradientCheckError
        If a derivative is wrong; names order, mode, entry, what was expected and what came.

    Examples
    --------
    >>> import unspool as us
    >>> us.check_grad(us.sin, us.tensor([0.1, 0.2])).ok
    True
    """
    check_callable(f, "us.check_grad")
    given: Any = modes
    if not isinstance(given, (list, tuple, set)) or not given or any(mode not in (REVERSE, FORWARD) for mode in given):
        raise ArgumentError(f"modes are 'reverse' and 'forward', got {modes!r}")
    both = REVERSE in modes and FORWARD in modes
    function = _Map.of(f, args)
    accuracy = function.accuracy(rtol, atol)
    by_reverse = by_forward = function
    weights = cotangent = _random(1, len(function.value))
    comparisons: list[Comparison] = []
    for k in range(1, order + 1):
        direction = _random(2 * k, len(function.at)) * np.maximum(1.0, np.abs(function.at))
        checked = by_reverse if REVERSE in modes else by_forward
        check = _Check(k, checked, cotangent, direction, accuracy)
        comparisons += check.against_differences(modes)
        if both:
            comparisons.append(check.of_the_adjoint())
            if k > 1:
                comparisons.append(check.of_another_order_of_modes(by_forward, weights))
        _raise_if_wrong(comparisons)
        by_reverse = by_reverse.pulled_back(cotangent)
        by_forward = by_forward.pushed_forward(direction)
        cotangent = direction if REVERSE in modes else weights
    return GradientReport(comparisons)


def _raise_if_wrong(comparisons: list[Comparison]) -> None:
    for c in comparisons:
        if not c.passed:
            raise GradientCheckError(f"{c}\n{GradientReport(comparisons)}")


def _random(seed: int, size: int) -> Vector:
    """Return a vector whose entries are away from 0, the same every time."""
    generator = np.random.default_rng([seed, size])
    signs: Vector = generator.choice([-1.0, 1.0], size)
    return signs * generator.uniform(0.5, 1.5, size)


# --- one order -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Check:
    """The checks of one order: of the first derivatives of a map that is itself a derivative of the function."""

    order: int
    map: _Map
    cotangent: Vector
    direction: Vector
    accuracy: _Accuracy

    def against_differences(self, modes: Sequence[str]) -> list[Comparison]:
        if len(self.map.at) <= _SMALL:
            return self._against_the_jacobian(modes)
        expected = self._difference(self.direction)
        found = []
        if REVERSE in modes:
            terms = self.cotangent * expected
            got = self.pulled * self.direction
            allowed = self._allowed(np.abs(terms).sum(), np.abs(self.cotangent) @ np.abs(self.map.value))
            found.append(self._compare(REVERSE, ["(a random direction)"], terms.sum(), got.sum(), allowed))
        if FORWARD in modes:
            allowed = self._allowed(np.abs(expected), np.abs(self.map.value))
            found.append(self._compare(FORWARD, self.map.output_names, expected, self.pushed, allowed))
        return found

    def _against_the_jacobian(self, modes: Sequence[str]) -> list[Comparison]:
        """Take the whole Jacobian by differences, column by column."""
        sizes = np.maximum(1.0, np.abs(self.map.at))
        units = np.diag(sizes)
        columns = [self._difference(unit) / size for unit, size in zip(units, sizes, strict=True)]
        jacobian = np.array(columns).T.reshape(len(self.map.value), len(self.map.at))
        scale = np.abs(jacobian)
        found = []
        if REVERSE in modes:
            weights = np.abs(self.cotangent)
            allowed = self._allowed(scale.T @ weights, weights @ np.abs(self.map.value))
            expected = jacobian.T @ self.cotangent
            found.append(self._compare(REVERSE, self.map.input_names, expected, self.pulled, allowed))
        if FORWARD in modes:
            weights = np.abs(self.direction)
            allowed = self._allowed(scale @ weights, np.abs(self.map.value) * weights.sum())
            expected = jacobian @ self.direction
            comparison = self._compare(FORWARD, self.map.output_names, expected, self.pushed, allowed)
            found.append(comparison if comparison.passed else self._worst_column(jacobian) or comparison)
        return found

    def _worst_column(self, jacobian: Vector) -> Comparison | None:
        """Find the entry of the arguments along which forward mode is wrong, now that it is known to be."""
        failed = []
        for unit, column, argument in zip(np.eye(len(jacobian.T)), jacobian.T, self.map.input_names, strict=True):
            names = [f"{output} along {argument}" for output in self.map.output_names]
            allowed = self._allowed(np.abs(column), np.abs(self.map.value))
            failed.append(self._compare(FORWARD, names, column, self.map.jvp(unit), allowed))
        failed = [c for c in failed if not c.passed]
        return max(failed, key=lambda c: c.max_abs_error, default=None)

    def of_the_adjoint(self) -> Comparison:
        """Compare ⟨w, J·v⟩ with ⟨Jᵀ·w, v⟩."""
        left, right = self.cotangent * self.pushed, self.pulled * self.direction
        allowed = self.accuracy.rounding * (np.abs(left).sum() + np.abs(right).sum() + self.accuracy.noise)
        # What cancels is off by what was cancelled: the second derivative of what is linear piece by piece, say.
        allowed += self.accuracy.noise * (np.abs(self.cotangent) @ np.abs(self.map.value))
        return self._compare("forward = reverse", ["<w, J v>"], left.sum(), right.sum(), allowed)

    def of_another_order_of_modes(self, by_forward: _Map, weights: Vector) -> Comparison:
        """Compare what comes of forward steps only, and of forward steps and a last reverse one, with the above."""
        expected = self.pulled * self.direction
        last_forward = weights * by_forward.jvp(self.direction)
        last_reverse = by_forward.vjp(weights) * self.direction
        size = max(np.abs(terms).sum() for terms in (expected, last_forward, last_reverse))
        allowed = self.accuracy.rounding * (size + self.accuracy.noise) * 10
        allowed += self.accuracy.noise * (np.abs(weights) @ np.abs(by_forward.value))
        entries = ["by forward over forward", "by reverse over forward"]
        got = np.array([last_forward.sum(), last_reverse.sum()])
        return self._compare("of forward rules", entries, np.full(2, expected.sum()), got, allowed)

    @cached_property
    def pushed(self) -> Vector:
        return self.map.jvp(self.direction)

    @cached_property
    def pulled(self) -> Vector:
        return self.map.vjp(self.cotangent)

    def _difference(self, direction: Vector) -> Vector:
        a = self.accuracy
        return derivative(self.map, self.map.at, direction, step=a.step, rtol=a.rtol / 100, atol=a.atol / 100)

    def _allowed(self, size: Any, value: Any) -> Any:
        return self.accuracy.atol + self.accuracy.rtol * size + self.accuracy.noise * value

    def _compare(self, mode: str, names: Sequence[str], expected: Any, got: Any, allowed: Any) -> Comparison:
        return Comparison.of(
            self.order, mode, names, *np.broadcast_arrays(*map(np.atleast_1d, (expected, got, allowed)))
        )


# --- a function as a map between real vectors ------------------------------------------------------------------------


class _Map:
    """A function of the inexact entries of its arguments, as a map of flat real vectors."""

    def __init__(self, trace: Trace, at: list[Any], names: tuple[list[str], list[str]]) -> None:
        self._trace = trace
        self._arrays = at
        self._names = names
        self._wide = [a.astype(np.result_type(a.dtype, np.float64)) for a in at]
        self.at = pack(at)

    @classmethod
    def of(cls, f: Callable[..., Any], args: tuple[Any, ...]) -> _Map:
        """Return the map of a function at given arguments; what is not inexact is held fixed."""
        leaves, structure = trees.flatten(args)
        values = [leaf.eval() if isinstance(leaf, Node) else leaf for leaf in leaves]  # type: ignore[attr-defined]
        moving = [i for i, value in enumerate(values) if np.asarray(value).dtype in INEXACT]
        if not moving:
            raise DTypeError("check_grad needs floating-point or complex arguments to move, got none")

        def trace(arrays: list[Any]) -> tuple[list[Any], list[Any]]:
            variables = [tensor(array) for array in arrays]
            filled = list(values)
            for i, variable in zip(moving, variables, strict=True):
                filled[i] = variable
            with watching(lambda node: moves(node, variables)):
                returned = f(*trees.unflatten(structure, filled))
            outputs = [as_tensor(out) for out in trees.flatten(returned)[0]]
            return variables, [out for out in outputs if out.dtype in INEXACT]

        every = trees.names(structure, "args")
        made = cls(trace, [np.asarray(values[i]) for i in moving], ([every[i] for i in moving], []))
        outputs = made.traced[1]
        if not outputs:
            raise DTypeError("check_grad needs a function with a floating-point or complex result, got none")
        made._names[1].extend(["out"] if len(outputs) == 1 else [f"out[{i}]" for i in range(len(outputs))])
        return made

    def pulled_back(self, cotangent: Vector) -> _Map:
        """Return the map x ↦ J(x)ᵀ·w."""

        def trace(arrays: list[Any]) -> tuple[list[Any], list[Any]]:
            variables, outputs = self._trace(arrays)
            return variables, _pull(variables, outputs, cotangent)

        return _Map(trace, self._arrays, (self._names[0], self._names[0]))

    def pushed_forward(self, direction: Vector) -> _Map:
        """Return the map x ↦ J(x)·v."""

        def trace(arrays: list[Any]) -> tuple[list[Any], list[Any]]:
            variables, outputs = self._trace(arrays)
            return variables, _push(variables, outputs, direction)

        return _Map(trace, self._arrays, self._names)

    @cached_property
    def traced(self) -> tuple[list[Any], list[Any]]:
        """Variables and outputs at the point of the check."""
        return self._trace(self._arrays)

    @cached_property
    def value(self) -> Vector:
        """The value at the point of the check."""
        return evaluate(self.traced[1])

    def __call__(self, at: Vector) -> Vector:
        """Return the value elsewhere, computed in double precision where the function allows it."""
        return evaluate(self._trace(unpack(at, self._wide))[1])

    def jvp(self, direction: Vector) -> Vector:
        """Return J·v by forward mode."""
        return evaluate(_push(*self.traced, direction))

    def vjp(self, cotangent: Vector) -> Vector:
        """Return Jᵀ·w by reverse mode."""
        return evaluate(_pull(*self.traced, cotangent))

    def accuracy(self, rtol: float | None, atol: float | None) -> _Accuracy:
        """Return what can be expected, with the tolerances that were asked for."""
        variables, outputs = self.traced
        if not any(t.dtype in (FLOAT32, COMPLEX64) for t in (*variables, *outputs)):
            base = _DOUBLE
        else:
            kept = any(out.dtype in (FLOAT32, COMPLEX64) for out in self._trace(self._wide)[1])
            base = _ONLY_SINGLE if kept else _SINGLE
        return _Accuracy(
            base.rtol if rtol is None else rtol,
            base.atol if atol is None else atol,
            base.rounding,
            base.noise,
            base.step,
        )

    @property
    def input_names(self) -> list[str]:
        """What to call each real entry of the arguments."""
        return entry_names(self._names[0], self.traced[0])

    @property
    def output_names(self) -> list[str]:
        """What to call each real entry of the result."""
        return entry_names(self._names[1], self.traced[1])


def _pull(variables: list[Any], outputs: list[Any], cotangent: Vector) -> list[Any]:
    cotangents = [constant(w) for w in unpack(cotangent, outputs)]
    return [
        constant(np.zeros(v.shape, v.dtype)) if ct is None else ct
        for v, ct in zip(variables, pullback(outputs, cotangents, variables), strict=True)
    ]


def _push(variables: list[Any], outputs: list[Any], direction: Vector) -> list[Any]:
    tangents = [constant(v) for v in unpack(direction, variables)]
    return [
        constant(np.zeros(out.shape, out.dtype)) if t is None else t
        for out, t in zip(outputs, pushforward(outputs, variables, tangents), strict=True)
    ]


def evaluate(tensors: list[Any]) -> Vector:
    """Return the values of tensors as one real vector."""
    return pack(default_engine().evaluate(tensors))


def pack(arrays: Sequence[Any]) -> Vector:
    """Return arrays as one vector of doubles; a complex number is its real and its imaginary part."""
    flat = [np.ascontiguousarray(a).reshape(-1) for a in arrays]
    return np.concatenate([a.view(real_dtype(a.dtype)) for a in flat], dtype=np.float64)


def unpack(vector: Vector, like: Sequence[Any]) -> list[Any]:
    """Return a packed vector as arrays with the shapes and dtypes of the given ones."""
    arrays, start = [], 0
    for template in like:
        reals = int(np.prod(template.shape)) * (2 if template.dtype in COMPLEX else 1)
        piece = vector[start : start + reals].astype(real_dtype(template.dtype))
        arrays.append(piece.view(template.dtype).reshape(template.shape))
        start += reals
    return arrays


def entry_names(roots: Sequence[str], like: Sequence[Any]) -> list[str]:
    """Return a name for each real entry of a packed vector, such as ``args[0][2, 1].imag``."""
    found = []
    for root, template in zip(roots, like, strict=True):
        for index in np.ndindex(template.shape):
            name = f"{root}[{', '.join(map(str, index))}]" if index else root
            found += [f"{name}.real", f"{name}.imag"] if template.dtype in COMPLEX else [name]
    return found
