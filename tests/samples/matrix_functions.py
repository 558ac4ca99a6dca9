"""Samples of functions of matrices and of the ops their derivatives are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg

from tests.samples import Sample, complex_, real
from unspool import _graph
from unspool._ops.linalg.functions import logm, matrix_exp, sqrtm
from unspool._ops.linalg.sylvester import sylvester
from unspool._ops.op import REGISTRY

GENERAL = real(2, 2, seed=1)
# The spectra of these keep away from the negative axis.
POSITIVE = np.array([[2.0, 0.5], [-0.75, 1.0]])
TILTED = POSITIVE + 0.5j * real(2, 2, seed=2)
STACK = np.stack([POSITIVE, POSITIVE.T + 1])
REPEATED = np.array([[1.5, 0.0], [0.0, 1.5]])
DEFECTIVE = np.array([[1.5, 1.0], [0.0, 1.5]])


def over_stack(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of matrices applied to stacks of them, in the dtype that goes in."""

    def apply(*stacks: Any) -> Any:
        result = np.zeros(stacks[-1].shape, np.result_type(*stacks))
        if result.size:
            for index in np.ndindex(result.shape[:-2]):
                # SciPy's logarithm warns about what single precision cannot give.
                result[index] = function(*[s[index].astype(np.result_type(s, np.float64)) for s in stacks])
        return result

    return apply


def corner(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the derivative of a function of matrices, read off a block matrix."""

    def derivative(a: Any, e: Any) -> Any:
        n = len(a)
        return function(np.block([[a, e], [np.zeros_like(a), a]]))[:n, n:]

    return derivative


def function(op: str, ours: Callable[..., Any], theirs: Callable[..., Any], x: Any, label: str = "") -> Sample:
    return Sample(op, ours, (x,), over_stack(theirs), label=label)


def derivative(op: str, theirs: Callable[..., Any], x: Any, e: Any, label: str = "") -> Sample:
    return Sample(op, lambda a, b: _graph.apply(REGISTRY[op], a, b), (x, e), over_stack(corner(theirs)), label=label)


def equation(a: Any, b: Any, c: Any) -> Sample:
    return Sample("sylvester", sylvester, (a, b, c), over_stack(scipy.linalg.solve_sylvester))


def exp(x: Any, label: str = "") -> Sample:
    return function("matrix_exp", matrix_exp, scipy.linalg.expm, x, label)


def log(x: Any, label: str = "") -> Sample:
    return function("logm", logm, scipy.linalg.logm, x, label)


def root(x: Any, label: str = "") -> Sample:
    return function("sqrtm", sqrtm, scipy.linalg.sqrtm, x, label)


def relative_size(e: Any, x: Any) -> Sample:
    def theirs(a: Any, b: Any) -> Any:
        sizes = [np.max(np.abs(m), axis=(-2, -1), keepdims=True, initial=0) for m in (a, b)]
        return 2.0 ** np.round(np.log2(sizes[0] / sizes[1])) if a.size else np.ones((1, 1))

    return Sample("relative_size", lambda a, b: _graph.apply(REGISTRY["relative_size"], a, b), (e, x), theirs)


SAMPLES = [
    relative_size(real(2, 2), 20 * real(2, 2, seed=1)),
    relative_size(100 * complex_(2, 2, 2), complex_(2, 2, 2, seed=1)),
    relative_size(np.zeros((0, 0)), np.zeros((0, 0))),
    exp(GENERAL),
    exp(complex_(2, 2)),
    exp(STACK),
    exp(REPEATED, "repeated"),
    exp(DEFECTIVE, "defective"),
    exp(np.zeros((2, 2)), "zero"),
    exp(real(1, 1)),
    exp(np.zeros((0, 0))),
    exp(np.zeros((2, 0, 0))),
    derivative("matrix_exp_frechet", scipy.linalg.expm, GENERAL, real(2, 2, seed=3)),
    derivative("matrix_exp_frechet", scipy.linalg.expm, complex_(2, 2), complex_(2, 2, seed=3)),
    derivative("matrix_exp_frechet", scipy.linalg.expm, real(2, 1, 1), real(2, 1, 1, seed=3)),
    log(POSITIVE),
    log(TILTED),
    log(STACK),
    log(REPEATED, "repeated"),
    log(DEFECTIVE, "defective"),
    log(real(1, 1, low=1.0)),
    log(np.zeros((0, 0))),
    derivative("logm_frechet", scipy.linalg.logm, POSITIVE, real(2, 2, seed=3)),
    derivative("logm_frechet", scipy.linalg.logm, TILTED, complex_(2, 2, seed=3)),
    root(POSITIVE),
    root(TILTED),
    root(STACK),
    root(REPEATED, "repeated"),
    root(DEFECTIVE, "defective"),
    root(real(1, 1, low=1.0)),
    root(np.zeros((0, 0))),
    equation(POSITIVE, POSITIVE.T, real(2, 2, seed=4)),
    equation(POSITIVE, np.array([[2.0]]), real(2, 1, seed=4)),
    equation(TILTED, TILTED.T + 1, complex_(2, 2, seed=4)),
    equation(STACK, STACK[::-1], real(2, 2, 2, seed=4)),
    equation(np.array([[2.0]]), np.zeros((0, 0)), np.zeros((1, 0))),
]
