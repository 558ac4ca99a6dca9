"""Samples of the triangular factorisations: every shape, real and complex, and the ops their rules are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.linalg

import unspool as us
from tests.samples import Sample, complex_, real
from unspool._ops.linalg.cholesky import cholesky
from unspool._ops.linalg.gauge import tolerances_for
from unspool._ops.linalg.lu import lu
from unspool._ops.linalg.polar import lyapunov, polar
from unspool._ops.linalg.qr import lq, qr
from unspool._ops.linalg.qr_checks import check_basis, check_phases, divide_cotangent, divide_full_rank
from unspool._ops.linalg.triangular import lower_half, solve_triangular

TALL, WIDE, SQUARE = (3, 2), (2, 3), (2, 2)


def matrices(*shapes: tuple[int, ...]) -> Iterator[Any]:
    """Real and complex matrices of full rank, away from ties of pivots."""
    for shape in shapes:
        for make in (real, complex_):
            yield make(*shape, seed=3) + 2 * np.eye(*shape[-2:])


def flat(*factors: Any) -> Any:
    return us.concat([us.reshape(x, (x.size,)) for x in factors])


def flat_arrays(*factors: Any) -> Any:
    return np.concatenate([np.ravel(x) for x in factors])


def adjoint(x: Any) -> Any:
    return np.conjugate(np.swapaxes(x, -1, -2))


# --- triangles -------------------------------------------------------------------------------------------------------


def triangular(a: Any, b: Any, label: str = "", **options: bool) -> Sample:
    def reference(a: Any, b: Any) -> Any:
        triangle = np.tril(a) if options.get("lower") else np.triu(a)
        if options.get("unit_diagonal"):
            triangle = triangle - triangle * np.eye(a.shape[-1]) + np.eye(a.shape[-1])
        return np.linalg.solve(adjoint(triangle) if options.get("adjoint") else triangle, b)

    label = label or "-".join([*options, "x".join(map(str, a.shape)), "x".join(map(str, b.shape))])
    return Sample("solve_triangular", lambda a, b: solve_triangular(a, b, **options), (a, b), reference, label=label)


def by_substitution(a: Any, b: Any) -> Any:
    last = b[1] / a[1, 1]
    return np.array([(b[0] - a[0, 1] * last) / a[0, 0], last])


def triangles() -> Iterator[Sample]:
    for make, shift in ((real, 3), (complex_, 3j)):
        a, b = make(2, 2, seed=1) + shift * np.eye(2), make(2, 2, seed=2)
        for lower in (False, True):
            for adjoint_ in (False, True):
                yield triangular(a, b, lower=lower, adjoint=adjoint_, label=f"lower-{lower}-adjoint-{adjoint_}")
        yield triangular(a, b, unit_diagonal=True)
        yield triangular(a, b, lower=True, adjoint=True, unit_diagonal=True)
        yield triangular(a, b[:, 0])
        yield triangular(a, make(2, 2, 1, seed=2))
        yield triangular(make(2, 2, 2, seed=1) + shift * np.eye(2), b)
    yield triangular(real(9, 1, 1, seed=1, low=1), real(1, 1), label="many-small")
    yield triangular(real(8, 2, 2, seed=1, low=1), real(2, 1), lower=True, adjoint=True, label="many")
    yield triangular(real(0, 0), real(0, 2))
    yield triangular(real(2, 2) + 3 * np.eye(2), real(2, 0))
    yield Sample(
        "solve_triangular", solve_triangular, (real(2, 2, low=1), real(2)), by_substitution, exact=True, label="exact"
    )
    for x in (real(3, 2), complex_(2, 2), real(2, 2, 2), real(0, 2)):
        yield Sample(
            "lower_half", lower_half, (x,), lambda x: (np.tril(x) + np.tril(x, -1)) / 2, exact=x.dtype == float
        )


# --- Cholesky --------------------------------------------------------------------------------------------------------


def positive_definite(x: Any) -> Any:
    return x @ (adjoint(x) if isinstance(x, np.ndarray) else us.conj(x.mT)) + np.eye(x.shape[-1], dtype=x.dtype)


def factors_of_positive() -> Iterator[Sample]:
    for upper in (False, True):
        for x in matrices((2, 2), (1, 1), (2, 2, 2), (0, 0)):
            yield Sample(
                "cholesky",
                lambda x, upper=upper: cholesky(positive_definite(x), upper=upper),
                (x,),
                lambda x, upper=upper: np.linalg.cholesky(positive_definite(x), upper=upper),
                label=f"upper-{upper}-{'x'.join(map(str, x.shape))}",
            )


# --- QR and LQ -------------------------------------------------------------------------------------------------------


def qr_reference(x: Any, mode: str = "reduced") -> tuple[Any, Any]:
    q, r = np.linalg.qr(x, mode)
    diagonal = np.diagonal(r, 0, -2, -1)
    phase = diagonal / np.abs(diagonal)
    count = diagonal.shape[-1]
    q[..., :, :count] *= phase[..., None, :]
    r[..., :count, :] *= np.conjugate(phase)[..., None]
    return q, r


def complete(x: Any, decompose: Callable[..., Any], conj: Callable[..., Any]) -> list[Any]:
    """The factors, with the projector on the columns that complete Q: their basis is open."""
    q, r = decompose(x)
    k = min(x.shape[-2:])
    return [q[..., :, :k], q[..., :, k:] @ conj(q[..., :, k:].mT), r]


def squares(x: Any, module: Any) -> Any:
    """The squared moduli of elements, which do not depend on phases."""
    return module.real(x * module.conj(x))


def orthogonal() -> Iterator[Sample]:
    for x in matrices(TALL, WIDE, SQUARE, (2, *TALL), (2, *WIDE), (3, 1), (0, 2), (2, 0), (0, 2, 2), (2, 0, 2)):
        name = "x".join(map(str, x.shape))
        yield Sample(
            "qr", lambda x: flat(*qr(x, positive=True)), (x,), lambda x: flat_arrays(*qr_reference(x)), label=name
        )
        yield Sample(
            "qr",
            lambda x: flat(*complete(x, lambda x: qr(x, "complete", positive=True), us.conj)),
            (x,),
            lambda x: flat_arrays(*complete(x, lambda x: qr_reference(x, "complete"), np.conj)),
            label=f"complete-{name}",
        )
    for x in matrices(TALL, WIDE, SQUARE):
        name = "x".join(map(str, x.shape))
        yield Sample("qr", lambda x: qr(x, gauge="fixed")[0], (x,), lambda x: np.linalg.qr(x)[0], label=f"fixed-{name}")
        yield Sample(
            "qr",
            lambda x: squares(qr(x, "r"), us),
            (x,),
            lambda x: squares(np.linalg.qr(x, "r"), np),
            label=f"r-{name}",
        )
        yield Sample(
            "qr",
            lambda x: flat(*lq(x, positive=True)),
            (x,),
            lambda x: flat_arrays(*[adjoint(f) for f in reversed(qr_reference(adjoint(x)))]),
            label=f"lq-{name}",
        )
    yield Sample("qr", lambda x: qr(x, "r") ** 2, (real(1, 3),), lambda x: x**2, label="row")


def checked_phases(x: Any) -> Any:
    return check_phases(x @ us.conj(x.mT), x, x, x, tolerances_for(x.dtype))


COLUMNS = np.linalg.qr(real(3, 2))[0]


def checked_basis(x: Any) -> Any:
    columns = us.tensor(COLUMNS.astype(x.dtype))
    return check_basis(columns @ (x + us.conj(x.mT)), columns, tolerances_for(x.dtype))


def checks() -> Iterator[Sample]:
    """The ops that look at numbers when a derivative runs; on these they find nothing to refuse."""
    for x in (complex_(2, 2), complex_(2, 1, 1)):
        yield Sample("check_phases", checked_phases, (x,), lambda x: x @ adjoint(x))
    for x in (real(2, 2), complex_(2, 2)):
        yield Sample("check_basis", checked_basis, (x,), lambda x: COLUMNS.astype(x.dtype) @ (x + adjoint(x)))
    for make in (real, complex_):
        for shape in (TALL, SQUARE, (2, *TALL), (0, 0), (2, 0)):
            k = shape[-1]
            b, u = make(*shape, seed=1), make(*shape[:-2], k, k, seed=2) + 3 * np.eye(k)
            yield from divisions(b, u, "x".join(map(str, shape)))


def divisions(b: Any, u: Any, name: str) -> Iterator[Sample]:
    yield Sample(
        "full_rank",
        lambda b, u: divide_full_rank(b, u, tolerances_for(b.dtype)),
        (b, u),
        lambda b, u: b @ np.linalg.inv(np.triu(u)),
        label=name,
    )
    for with_q, with_r in ((True, True), (True, False), (False, True)):
        yield Sample(
            "divide_cotangent",
            lambda b, u, with_q=with_q, with_r=with_r: divide_cotangent(
                b, u, b if with_q else None, b, u, u if with_r else None, tolerances_for(b.dtype)
            ),
            (b, u),
            lambda b, u: b @ adjoint(np.linalg.inv(np.triu(u))),
            label=f"{name}{'-q' * with_q}{'-r' * with_r}",
        )


# --- LU and polar ----------------------------------------------------------------------------------------------------


def lu_reference(x: Any) -> Any:
    if x.size:
        return flat_arrays(*scipy.linalg.lu(x)[1:])
    rows, columns = x.shape[-2:]
    k = min(rows, columns)
    eyes = np.broadcast_to(np.eye(rows, k, dtype=x.dtype), (*x.shape[:-1], k))
    return flat_arrays(eyes, np.zeros((*x.shape[:-2], k, columns), x.dtype))


def polar_reference(x: Any, side: str) -> Any:
    left, spectrum, right = np.linalg.svd(x, full_matrices=False)
    middle = left if side == "left" else adjoint(right)
    return flat_arrays(left @ right, (middle * spectrum[..., None, :]) @ adjoint(middle))


def others() -> Iterator[Sample]:
    for x in matrices(TALL, WIDE, SQUARE, (2, *TALL), (2, *WIDE), (1, 3), (3, 1), (0, 2), (2, 0), (0, 2, 2)):
        name = "x".join(map(str, x.shape))
        yield Sample("lu", lambda x: flat(*lu(x)[1:]) ** 2, (x,), lambda x: lu_reference(x) ** 2, label=name)
        for side in ("right", "left"):
            yield Sample(
                "polar",
                lambda x, side=side: flat(*polar(x, side)),
                (x,),
                lambda x, side=side: polar_reference(x, side),
                label=f"{side}-{name}",
            )
    for x in matrices((2, 2), (2, 2, 2)):
        yield Sample(
            "lyapunov",
            lambda p, c: lyapunov(positive_definite(p), c, 1e-9),
            (x, x[..., ::-1, :].copy()),
            lyapunov_reference,
        )


def lyapunov_reference(p: Any, c: Any) -> Any:
    p, eye = positive_definite(p), np.eye(c.shape[-1])
    # Row by row, p·Z + Z·p is (p ⊗ 1 + 1 ⊗ pᵀ) on the elements of Z.
    both = np.einsum("...ij,kl->...ikjl", p, eye) + np.einsum("ij,...kl->...ikjl", eye, np.swapaxes(p, -1, -2))
    size = c.shape[-1] ** 2
    return np.linalg.solve(
        both.reshape(*c.shape[:-2], size, size).astype(c.dtype), c.reshape(*c.shape[:-2], size, 1)
    ).reshape(c.shape)


SAMPLES = [*triangles(), *factors_of_positive(), *orthogonal(), *checks(), *others()]
