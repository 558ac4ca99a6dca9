"""What is not finite and goes into a factorisation comes out as NaN or as an error, and never ends in a loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.linalg.oracles import weights
from unspool.errors import KernelError

la = us.linalg
SIZE = 3
PLACES = [(0, 0), (0, 2), (2, 0), (2, 2)]
FIELDS = ["real", "complex"]


def parts(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


def positive(stack: tuple[int, ...], field: str, size: int = SIZE) -> Any:
    """Return positive definite matrices, for which every function here has a value."""
    x = weights(*stack, size, size, field=field, seed=71)
    return x @ np.conj(np.swapaxes(x, -1, -2)) + size * np.eye(size)


# Found by iteration: refused.
REFUSING: dict[str, Callable[[Any], Any]] = {
    "eigh": la.eigh,
    "eigvalsh": la.eigvalsh,
    "svd": la.svd,
    "thin svd": lambda a: la.svd(a, full_matrices=False),
    "svdvals": la.svdvals,
    "truncated_svd": lambda a: la.truncated_svd(a, rank=1),
    "low_rank": lambda a: la.low_rank(a, 1),
    "eig": la.eig,
    "eigvals": la.eigvals,
    "polar": la.polar,
    "left polar": lambda a: la.polar(a, side="left"),
    "pinv": la.pinv,
    "pinv of Hermitian": lambda a: la.pinv(a, hermitian=True),
    "sqrtm": la.sqrtm,
    "logm": la.logm,
    "nuclear norm": lambda a: la.matrix_norm(a, ord="nuc"),
    "spectral norm": lambda a: la.matrix_norm(a, ord=2),
    "cond": la.cond,
    "matrix_rank": la.matrix_rank,
    "matrix_rank of Hermitian": lambda a: la.matrix_rank(a, hermitian=True),
}

# Found by elimination: NaN goes through.
PASSING: dict[str, Callable[[Any], Any]] = {
    "solve": lambda a: la.solve(a, np.ones((*a.shape[:-1], 1))),
    "inv": la.inv,
    "det": la.det,
    "slogdet": la.slogdet,
    "cholesky": la.cholesky,
    "upper cholesky": lambda a: la.cholesky(a, upper=True),
    "qr": la.qr,
    "complete qr": lambda a: la.qr(a, mode="complete"),
    "lq": la.lq,
    "lu": la.lu,
    "matrix_exp": la.matrix_exp,
    "cube": lambda a: la.matrix_power(a, 3),
    "inverse square": lambda a: la.matrix_power(a, -2),
    "Frobenius norm": la.matrix_norm,
    "cond": lambda a: la.cond(a, 1),
}


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("name", REFUSING)
def test_what_iterates_refuses_and_names_the_entry_and_the_line(name: str, field: str, place: Any, bad: float) -> None:
    a = positive((), field)
    a[place] = bad
    with pytest.raises(KernelError, match=r"finite matrices.*entry \(\d, \d\) is .*(nan|inf).*test_finite\.py"):
        us.eval(parts(REFUSING[name](a)))


@pytest.mark.parametrize("name", REFUSING)
def test_a_refusal_names_the_matrix_of_the_stack(name: str) -> None:
    a = positive((2, 2), "real")
    a[1, 0, 2, 1] = a[1, 0, 1, 2] = np.nan
    with pytest.raises(KernelError, match=r"entry \(1, 2\) of matrix \(1, 0\) of the stack is nan"):
        us.eval(parts(REFUSING[name](a)))


def test_least_squares_refuse_too() -> None:
    for bad in (np.nan, np.inf):
        with pytest.raises(KernelError, match=r"entry \(1, 0\) is"):
            us.eval(la.lstsq([[1.0, 2.0], [bad, 1.0], [0.0, 1.0]], [1.0, 2.0, 3.0]).solution)


def test_eigenvalues_of_two_by_two_matrices_are_refused_under_the_check_for_nan_too() -> None:
    with us.debug.check_nan(), pytest.raises(KernelError, match=r"entry \(0, 0\) is nan"):
        la.eigvalsh([[np.nan, 1.0], [1.0, 1.0]]).eval()


def passing_cases() -> Iterator[Any]:
    for name in PASSING:
        for size in (1, 2, 8, 40):
            for place in dict.fromkeys([(0, 0), (0, size - 1), (size - 1, 0), (size - 1, size - 1)]):
                yield pytest.param(name, size, place, id=f"{name}-{size}-{place}")


@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize(("name", "size", "place"), list(passing_cases()))
def test_what_eliminates_passes_nan_on_matrix_for_matrix(
    name: str, size: int, place: Any, field: str, diagonal: bool
) -> None:
    stack = positive((3,), field, size) * (np.eye(size) if diagonal else 1.0)
    stack[1][place] = np.nan
    others = us.eval(parts(PASSING[name](stack[::2])))
    for found, expected in zip(us.eval(parts(PASSING[name](stack))), others, strict=True):
        np.testing.assert_allclose(found[::2], expected, rtol=1e-10, atol=1e-12)
    for a, select in ((stack, 1), (stack[1], ...)):
        found = [part[select] for part in us.eval(parts(PASSING[name](a)))]
        assert any(np.isnan(part).any() for part in found if part.dtype.kind in "fc"), found


@pytest.mark.parametrize("shape", [(0, 0), (0, 2, 2), (2, 0, 0)], ids=str)
@pytest.mark.parametrize("name", ["eigh", "svd", "eig", "pinv", "matrix_rank", "polar", "sqrtm"])
def test_matrices_without_entries_are_finite(name: str, shape: Any) -> None:
    us.eval(parts(REFUSING[name](np.zeros(shape))))


@pytest.mark.parametrize("scale", [1e200, 1e-200])
def test_large_numbers_are_finite_although_their_squares_are_not(scale: float) -> None:
    values = la.eigvalsh(scale * np.array([[2.0, 1.0], [1.0, 2.0]])).eval()
    np.testing.assert_allclose(values / scale, [1.0, 3.0], rtol=1e-14)


# --- derivatives -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("name", ["solve", "inv", "det", "slogdet", "cholesky", "qr", "lq", "lu"])
def test_gradients_of_what_passes_nan_are_nan_in_that_matrix_alone(name: str, field: str) -> None:
    stack = positive((3,), field)
    stack[1, 2, 0] = np.nan

    def gradient(a: Any) -> Any:
        x = us.tensor(a)
        return us.sum(us.abs(parts(PASSING[name](x))[-1]) ** 2).grad(x).eval()

    found = gradient(stack)
    assert np.isnan(found[1]).any()
    np.testing.assert_allclose(found[::2], gradient(stack[::2]), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["qr", "complete qr", "lq", "det"])
def test_gradients_at_infinite_matrices_end(name: str) -> None:
    for place in PLACES:
        a = positive((), "real") * np.eye(SIZE)
        a[place] = np.inf
        x = us.tensor(a)
        found = gradient_or_refusal(us.sum(parts(PASSING[name](x))[-1] ** 2).grad(x))
        assert isinstance(found, KernelError) or not np.all(np.isfinite(found))


def gradient_or_refusal(gradient: Any) -> Any:
    try:
        return gradient.eval()
    except KernelError as refusal:
        return refusal


def test_a_singular_matrix_beside_one_with_nan_keeps_its_cofactors() -> None:
    x = us.tensor(np.array([[[1.0, 2.0], [2.0, 4.0]], [[np.nan, 0.0], [0.0, 1.0]]]))
    gradient = us.sum(la.det(x)).grad(x).eval()
    np.testing.assert_allclose(gradient[0], [[4.0, -2.0], [-2.0, 1.0]], atol=1e-12)
    assert np.isnan(gradient[1]).all()
