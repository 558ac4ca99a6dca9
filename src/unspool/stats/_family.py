"""Families of distributions of one number: a standard form, moved by ``loc`` and stretched by ``scale``.

A family is declared by functions of its standard form (`Continuous`, `Discrete`). What is the same for all is here:
binding arguments in SciPy's order, moving and stretching, what lies outside of the support, and NaN for parameters that
make no distribution. Outside of the support nothing is differentiated: those elements are absent, not zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool._dtypes import EXACT, FLOAT64, promote
from unspool._ops.elementwise import (
    add,
    astype,
    divide,
    equal,
    exp,
    floor,
    log,
    logical_and,
    logical_or,
    multiply,
    not_equal,
    subtract,
    where,
)
from unspool._ops.leaf import as_operands
from unspool.errors import ArgumentError, UnsupportedError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

Function = Callable[..., "Tensor"]
_DEFAULTS = {"loc": 0.0, "scale": 1.0}


class _Family:
    """What continuous and discrete families share: their name, parameters, and the binding of arguments."""

    name: str
    shapes: tuple[str, ...]
    _parameters: tuple[str, ...]
    _functions: Mapping[str, Function]
    _valid: Callable[..., Any] | None

    def __init__(
        self,
        name: str,
        doc: str,
        *,
        shapes: tuple[str, ...] = (),
        support: tuple[float, float] = (-np.inf, np.inf),
        valid: Callable[..., Any] | None = None,
        is_open: bool = False,
        **functions: Function,
    ) -> None:
        self.name, self.shapes, self.__doc__ = name, shapes, doc
        self.__module__ = "unspool.stats"  # where pickle finds it by its name
        self._support, self._open, self._valid, self._functions = support, is_open, valid, functions

    def __repr__(self) -> str:
        return f"<distribution {self.name}({', '.join([*self.shapes, *self._parameters])})>"

    def __reduce__(self) -> str:
        return self.name

    def _function(self, *names: str) -> Function | None:
        return next((self._functions[name] for name in names if name in self._functions), None)

    def _bind(self, x: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Tensor, dict[str, Any]]:
        """Return the variable and the parameters, as tensors but for those that were left at their defaults."""
        names = (*self.shapes, *self._parameters)
        given = dict(zip(names, args, strict=False)) | dict(kwargs)
        missing = [name for name in self.shapes if name not in given]
        unknown = [name for name in given if name not in names]
        twice = [name for name in names[: len(args)] if name in kwargs]
        if missing or unknown or twice or len(args) > len(names):
            raise ArgumentError(
                f"{self.name} takes x, {', '.join(names)}; got {len(args)} after x by position and "
                f"{', '.join(kwargs) or 'none'} by name"
            )
        wanted = {n: v for n, v in given.items() if n in self.shapes or not _is_default(v, _DEFAULTS[n])}
        variable, *values = as_operands(x, *wanted.values())
        # Integers of few bits would be moved around by modular arithmetic.
        kept = [t.dtype for t in (variable, *values) if t.dtype not in EXACT]
        dtype = promote(*kept) if kept else FLOAT64
        variable, *values = [astype(t, dtype) if t.dtype in EXACT else t for t in (variable, *values)]
        return variable, dict(zip(wanted, values, strict=True))

    def _checked(self, value: Tensor, parameters: Mapping[str, Any]) -> Tensor:
        """Return NaN where parameters make no distribution."""
        conditions = []
        if "scale" in parameters:
            conditions.append(parameters["scale"] > 0)
        if self._valid is not None:
            conditions.append(self._valid(*[parameters[name] for name in self.shapes]))
        for condition in conditions:
            value = where(condition, value, np.nan)
        return value


def positive(*parameters: Any) -> Any:
    """Return whether all parameters are positive, for families that exist only then."""
    condition = parameters[0] > 0
    for parameter in parameters[1:]:
        condition = logical_and(condition, parameter > 0)
    return condition


def _is_default(value: Any, default: float) -> bool:
    return type(value) in (int, float) and value == default


# --- continuous ------------------------------------------------------------------------------------------------------


class Continuous(_Family):
    """A family of continuous distributions, with SciPy's methods and signatures: ``norm.logpdf(x, loc=0, scale=1)``.

    The shape parameters, if there are any, come before ``loc``: ``gamma.cdf(x, a, loc=0, scale=1)``. Results are
    differentiable in the variable and in all parameters.

    Examples
    --------
    >>> import unspool as us
    >>> mean = us.tensor(1.0)
    >>> us.stats.norm.logpdf(3.0, mean, 2.0).grad(mean).eval()
    array(0.5)
    """

    _parameters = ("loc", "scale")

    def logpdf(self, x: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Return the logarithm of the density."""
        z, shapes, parameters = self._standard(x, args, kwargs)
        value = self._functions["logpdf"](z, *shapes)
        if "scale" in parameters:
            value = subtract(value, log(parameters["scale"]))
        return self._checked(self._outside(z, shapes, value, -np.inf, -np.inf), parameters)

    def pdf(self, x: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Return the density."""
        return exp(self.logpdf(x, *args, **kwargs))

    def cdf(self, x: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Return the probability of being at most ``x``."""
        return self._tail("cdf", x, args, kwargs, 0.0, 1.0, lambda sf: subtract(1, sf), "sf")

    def sf(self, x: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Return the probability of being larger than ``x``."""
        return self._tail("sf", x, args, kwargs, 1.0, 0.0, lambda cdf: subtract(1, cdf), "cdf")

    def logcdf(self, x: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Return the logarithm of the probability of being at most ``x``."""
        return self._tail("logcdf", x, args, kwargs, -np.inf, 0.0, log, "cdf")

    def logsf(self, x: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Return the logarithm of the probability of being larger than ``x``."""
        return self._tail("logsf", x, args, kwargs, 0.0, -np.inf, log, "sf")

    def ppf(self, q: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Return the quantile: where the distribution function is ``q``."""
        return self._quantile("ppf", q, args, kwargs)

    def isf(self, q: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Return where the probability of being larger is ``q``."""
        if "isf" not in self._functions:
            return self.ppf(subtract(1.0, q), *args, **kwargs)
        return self._quantile("isf", q, args, kwargs)

    def _standard(self, x: Any, args: Any, kwargs: Any) -> tuple[Tensor, list[Tensor], dict[str, Any]]:
        variable, parameters = self._bind(x, args, kwargs)
        if "loc" in parameters:
            variable = subtract(variable, parameters["loc"])
        if "scale" in parameters:
            variable = divide(variable, parameters["scale"])
        return variable, [parameters[name] for name in self.shapes], parameters

    def _outside(self, z: Tensor, shapes: list[Tensor], value: Tensor, below: float, above: float) -> Tensor:
        """Return a value with what it is below and above the support, whose ends may depend on shape parameters."""
        if "low" in self._functions:
            value = where(z < self._functions["low"](*shapes), below, value)
            return where(z > self._functions["high"](*shapes), above, value)
        low, high = self._support
        if np.isfinite(low):
            value = where(z <= low if self._open else z < low, below, value)
            if np.isinf(high):
                # What is written for the inside may be infinity less infinity here.
                value = where(equal(z, np.inf), above, value)
        if np.isfinite(high):
            value = where(z > high, above, value)
        return value

    def _tail(
        self, name: str, x: Any, args: Any, kwargs: Any, below: float, above: float, made: Function, of: str
    ) -> Tensor:
        z, shapes, parameters = self._standard(x, args, kwargs)
        function = self._function(name)
        if function is not None:
            value = function(z, *shapes)
        elif self._function(of) is not None:
            value = made(self._functions[of](z, *shapes))
        elif name.startswith("log") and (other := self._function({"cdf": "sf", "sf": "cdf"}[of])) is not None:
            value = log(subtract(1, other(z, *shapes)))
        else:
            raise UnsupportedError(f"{self.name} has no {name} here")
        return self._checked(self._outside(z, shapes, value, below, above), parameters)

    def _quantile(self, name: str, q: Any, args: Any, kwargs: Any) -> Tensor:
        function = self._function(name)
        if function is None:
            raise UnsupportedError(f"{self.name} has no {name} here")
        level, parameters = self._bind(q, args, kwargs)
        value = function(level, *[parameters[shape] for shape in self.shapes])
        value = where(logical_and(level >= 0, level <= 1), value, np.nan)
        if "scale" in parameters:
            value = multiply(value, parameters["scale"])
        if "loc" in parameters:
            value = add(value, parameters["loc"])
        return self._checked(value, parameters)


# --- discrete --------------------------------------------------------------------------------------------------------


class Discrete(_Family):
    """A family of distributions of whole numbers, with SciPy's signatures: ``poisson.logpmf(k, mu, loc=0)``.

    Results are differentiable in all parameters. The probability of a number that is not whole is 0.

    Examples
    --------
    >>> import unspool as us
    >>> rate = us.tensor(2.0)
    >>> us.stats.poisson.logpmf(3, rate).grad(rate).eval()
    array(0.5)
    """

    _parameters = ("loc",)

    def logpmf(self, k: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Return the logarithm of the probability of ``k``."""
        k, shapes, parameters = self._moved(k, args, kwargs)
        value = self._functions["logpmf"](k, *shapes)
        low, high = self._ends(shapes)
        outside = logical_or(k < low, not_equal(k, floor(k)))
        if high is not None:
            outside = logical_or(outside, k > high)
        return self._checked(where(logical_or(outside, equal(k, np.inf)), -np.inf, value), parameters)

    def pmf(self, k: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Return the probability of ``k``."""
        return exp(self.logpmf(k, *args, **kwargs))

    def cdf(self, k: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Return the probability of being at most ``k``."""
        return self._tail("cdf", k, args, kwargs, 0.0, 1.0)

    def sf(self, k: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Return the probability of being larger than ``k``."""
        return self._tail("sf", k, args, kwargs, 1.0, 0.0)

    def logcdf(self, k: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Return the logarithm of the probability of being at most ``k``."""
        return log(self.cdf(k, *args, **kwargs))

    def logsf(self, k: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Return the logarithm of the probability of being larger than ``k``."""
        return log(self.sf(k, *args, **kwargs))

    def _moved(self, k: Any, args: Any, kwargs: Any) -> tuple[Tensor, list[Tensor], dict[str, Any]]:
        variable, parameters = self._bind(k, args, kwargs)
        if "loc" in parameters:
            variable = subtract(variable, parameters["loc"])
        return variable, [parameters[name] for name in self.shapes], parameters

    def _ends(self, shapes: list[Tensor]) -> tuple[float, Any]:
        """Return the first and the last whole number of the support; the last may be a parameter."""
        low, high = self._support
        last = self._function("last")
        return low, last(*shapes) if last is not None else None if np.isinf(high) else high

    def _tail(self, name: str, k: Any, args: Any, kwargs: Any, below: float, above: float) -> Tensor:
        k, shapes, parameters = self._moved(k, args, kwargs)
        function = self._function(name)
        if function is None:
            raise UnsupportedError(f"{self.name} has no {name} here")
        low, high = self._ends(shapes)
        whole = floor(k)
        value = where(whole < low, below, function(whole, *shapes))
        value = where(equal(k, np.inf) if high is None else whole >= high, above, value)
        return self._checked(value, parameters)
