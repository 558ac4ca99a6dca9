"""One graph, built before any size is known, gives value and gradient on tall, wide and square matrices and on stacks.

Each graph is checked against the same function on a concrete tensor, whose rules are checked elsewhere, and its value
against NumPy or SciPy.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import unspool as us
from tests.linalg.oracles import weights
from unspool.errors import UnspoolError

SHAPES = {"tall": (5, 3), "wide": (3, 5), "square": (4, 4), "row": (1, 4), "column": (4, 1)}


def adjoint(x: Any) -> Any:
    return us.conj(x.mT)


def outer_product(x: Any) -> Any:
    """Return x xᴴ: what is left of vectors when their phase does not matter."""
    return x @ adjoint(x)


def by_lstsq(a: Any) -> Any:
    return us.linalg.lstsq(a, a[..., :, :1] * 2.0 + 1.0)[0]


def scaled(x: Any, s: Any) -> Any:
    return x * s[..., None, :]


def adjoint_array(x: Any) -> Any:
    return np.swapaxes(x.conj(), -1, -2)


def rebuild(factors: Any, f: Callable[[Any], Any]) -> Any:
    """Return U f(S) Vᴴ."""
    u, s, vh = factors
    return scaled(u, f(s)) @ vh


def first_term(a: Any) -> Any:
    """Return the part of an array that belongs to its largest singular value."""
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    return scaled(u[..., :1], s[..., :1]) @ vh[..., :1, :]


def exponential(a: Any) -> Any:
    values, vectors = us.linalg.eig(a)
    return scaled(vectors, us.exp(values)) @ us.linalg.inv(vectors)


def outer_array(x: Any) -> Any:
    return x @ adjoint_array(x)


# Each takes a stack of matrices to something that depends on no gauge; the reference does the same to an array.
RECTANGULAR: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "svd": (
        lambda a: rebuild(us.linalg.svd(a, full_matrices=False), us.sqrt),
        lambda a: rebuild(np.linalg.svd(a, full_matrices=False), np.sqrt),
    ),
    "svd, left vectors": (
        lambda a: outer_product(us.linalg.svd(a, full_matrices=False)[0][..., :, :1]),
        lambda a: outer_array(np.linalg.svd(a)[0][..., :, :1]),
    ),
    "svdvals": (lambda a: us.linalg.svdvals(a), lambda a: np.linalg.svd(a, compute_uv=False)),
    "truncated_svd": (lambda a: rebuild(us.linalg.truncated_svd(a, rank=1), us.positive), first_term),
    "low_rank": (lambda a: us.linalg.low_rank(a, 1), first_term),
    "qr, q": (lambda a: us.abs(us.linalg.qr(a)[0]), lambda a: np.abs(np.linalg.qr(a)[0])),
    "qr, r": (lambda a: us.abs(us.linalg.qr(a)[1]), lambda a: np.abs(np.linalg.qr(a)[1])),
    "lq": (
        lambda a: us.abs(us.linalg.lq(a)[0]),
        lambda a: np.abs(np.swapaxes(np.linalg.qr(np.swapaxes(a, -1, -2))[1], -1, -2)),
    ),
    "lu": (lambda a: us.linalg.lu(a)[2], lambda a: scipy.linalg.lu(a)[2]),
    "polar": (lambda a: us.linalg.polar(a)[0], lambda a: each(lambda x: scipy.linalg.polar(x)[0])(a)),
    "pinv": (lambda a: us.linalg.pinv(a), np.linalg.pinv),
    "lstsq": (by_lstsq, lambda a: np.linalg.pinv(a) @ (a[..., :, :1] * 2.0 + 1.0)),
    "norm": (lambda a: us.linalg.matrix_norm(a, ord="nuc"), lambda a: np.linalg.norm(a, "nuc", axis=(-2, -1))),
}


def definite(a: Any) -> Any:
    return a @ adjoint(a) + 1.0 * us.eye(a.shape[-1])


def definite_array(a: Any) -> Any:
    return a @ adjoint_array(a) + np.eye(a.shape[-1])


def each(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function of one matrix as a function of a stack."""

    def mapped(a: Any) -> Any:
        flat = [function(x) for x in a.reshape(-1, *a.shape[-2:])]
        return np.array(flat).reshape(*a.shape[:-2], *flat[0].shape)

    return mapped


SQUARE: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "eigh": (
        lambda a: outer_product(us.linalg.eigh(a + adjoint(a))[1][..., :, :1]),
        lambda a: outer_array(np.linalg.eigh(a + adjoint_array(a))[1][..., :, :1]),
    ),
    "eigvalsh": (
        lambda a: us.linalg.eigvalsh(a + adjoint(a)),
        lambda a: np.linalg.eigvalsh(a + adjoint_array(a)),
    ),
    "eig": (exponential, scipy.linalg.expm),
    "eigvals": (
        lambda a: us.sum(us.exp(us.linalg.eigvals(a)), axis=-1),
        lambda a: np.trace(scipy.linalg.expm(a), axis1=-2, axis2=-1) + 0j,
    ),
    "cholesky": (lambda a: us.linalg.cholesky(definite(a)), lambda a: np.linalg.cholesky(definite_array(a))),
    "solve": (lambda a: us.linalg.solve(definite(a), a), lambda a: np.linalg.solve(definite_array(a), a)),
    "solve_triangular": (
        lambda a: us.linalg.solve_triangular(us.linalg.cholesky(definite(a)), a, lower=True),
        lambda a: np.linalg.solve(np.linalg.cholesky(definite_array(a)), a),
    ),
    "inv": (lambda a: us.linalg.inv(a), np.linalg.inv),
    "det": (lambda a: us.linalg.det(a), np.linalg.det),
    "slogdet": (lambda a: us.linalg.slogdet(a)[1], lambda a: np.linalg.slogdet(a)[1]),
    "polar": (lambda a: us.linalg.polar(a)[0], each(lambda a: scipy.linalg.polar(a)[0])),
    "matrix_exp": (lambda a: us.linalg.matrix_exp(a), scipy.linalg.expm),
    "matrix_power": (lambda a: us.linalg.matrix_power(a, 3), lambda a: a @ a @ a),
    "sqrtm": (lambda a: us.linalg.sqrtm(definite(a)), lambda a: each(scipy.linalg.sqrtm)(definite_array(a))),
    "logm": (lambda a: us.linalg.logm(definite(a)), lambda a: each(scipy.linalg.logm)(definite_array(a))),
    "cond": (lambda a: us.linalg.cond(a), np.linalg.cond),
    "qr": (lambda a: us.abs(us.linalg.qr(a)[1]), lambda a: np.abs(np.linalg.qr(a)[1])),
    "svd": (
        lambda a: scaled(*us.linalg.svd(a)[:2]) @ us.linalg.svd(a)[2],
        lambda a: a,
    ),
}


def loss(result: Any) -> Any:
    """Return a number that every entry of a result takes part in, each with another weight."""
    flat = us.reshape(result, (-1,))
    return us.sum(us.cos(us.arange(flat.shape[0]) * 1.0) * (us.real(flat) + us.imag(flat)))


@cache
def graph(name: str, square: bool, stacked: bool, dtype: str) -> tuple[Any, Any, Any]:
    """Return a placeholder of unknown sizes, the result and the gradient; made once and run on every shape."""
    function = (SQUARE if square else RECTANGULAR)[name][0]
    b, m, n = us.dims("b m n")
    shape = (n, n) if square else (m, n)
    a = us.placeholder((b, *shape) if stacked else shape, dtype=dtype, name="A")
    result = function(a)
    return a, result, loss(result).grad(a)


def check(name: str, square: bool, array: Any) -> None:
    function, reference = (SQUARE if square else RECTANGULAR)[name]
    a, result, gradient = graph(name, square, array.ndim == 3, array.dtype.name)
    np.testing.assert_allclose(result.eval({a: array}), reference(array), rtol=1e-8, atol=1e-9)
    known = us.tensor(array)
    expected = loss(function(known)).grad(known).eval()
    np.testing.assert_allclose(gradient.eval({a: array}), expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("field", ["real", "complex"])
@pytest.mark.parametrize("side", SHAPES)
@pytest.mark.parametrize("name", RECTANGULAR)
def test_a_graph_of_unknown_sizes_runs_on_every_shape(name: str, side: str, field: str) -> None:
    check(name, False, weights(*SHAPES[side], field=field, seed=21))


@pytest.mark.parametrize("side", ["tall", "wide", "square"])
@pytest.mark.parametrize("name", RECTANGULAR)
def test_a_graph_of_unknown_sizes_runs_on_stacks(name: str, side: str) -> None:
    check(name, False, weights(2, *SHAPES[side], seed=22))


@pytest.mark.parametrize("field", ["real", "complex"])
@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("name", SQUARE)
def test_a_graph_of_an_unknown_square_runs_on_every_size(name: str, size: int, field: str) -> None:
    check(name, True, weights(size, size, field=field, seed=23))


@pytest.mark.parametrize("name", SQUARE)
def test_a_graph_of_an_unknown_square_runs_on_stacks(name: str) -> None:
    check(name, True, weights(2, 3, 3, seed=24))


@pytest.mark.parametrize("name", ["eigh", "inv", "det", "cholesky", "matrix_exp"])
def test_two_sizes_that_have_to_be_equal_are_checked_when_they_are_known(name: str) -> None:
    m, n = us.dims("m n")
    a = us.placeholder((m, n))
    result = getattr(us.linalg, name)(a)
    outputs = result if isinstance(result, tuple) else (result,)
    assert np.all(np.isfinite(outputs[0].eval({a: np.eye(2)})))
    with pytest.raises(UnspoolError, match=r"m.*n|n.*m"):
        outputs[0].eval({a: np.ones((2, 3))})
