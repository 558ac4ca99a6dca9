"""Fourier transforms: NumPy's values in every form of the arguments, and derivatives by their own adjoints."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import unspool as us
from tests.samples import complex_, real
from unspool.errors import ArgumentError, DTypeError, ShapeError

NORMS = (None, "backward", "ortho", "forward")
X, Z = real(4, 3, 5), complex_(4, 3, 5)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_transforms_of_one_axis_are_numpys(name: str, norm: str | None) -> None:
    for n, axis in itertools.product((None, 1, 2, 3, 4, 7), (0, 1, -1)):
        for x in [X] if name in ("rfft", "ihfft") else [X, Z]:
            expected = getattr(np.fft, name)(x, n, axis, norm)
            out = getattr(us.fft, name)(x, n, axis, norm)
            assert (out.shape, out.dtype) == (expected.shape, expected.dtype)
            np.testing.assert_allclose(out.eval(), expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn", "fft2", "ifft2", "rfft2", "irfft2"])
def test_transforms_of_several_axes_are_numpys(name: str, norm: str | None) -> None:
    x = X if name.startswith("rfft") else Z
    for s, axes in (
        (None, None),
        (None, (0, 1)),
        (None, (2, 0)),
        ((3, 6), (0, 1)),
        ((5, 2), (-1, 0)),
        ((-1, 4), (1, 2)),
        (None, (1, 1)),
    ):
        arguments = {"s": s, "norm": norm} | ({} if axes is None else {"axes": axes})
        expected = getattr(np.fft, name)(x, **arguments)
        out = getattr(us.fft, name)(x, **arguments)
        np.testing.assert_allclose(out.eval(), expected, rtol=1e-13, atol=1e-13)


def test_numpys_functions_take_tensors() -> None:
    t = us.tensor(X)
    for call in (
        lambda x: np.fft.fft(x, 4, 1, "ortho"),
        lambda x: np.fft.rfftn(x, axes=(0, 2)),
        lambda x: np.fft.irfft(x, n=5),
        lambda x: np.fft.fftshift(x, axes=0),
    ):
        out = call(t)
        assert isinstance(out, us.Tensor)
        np.testing.assert_allclose(out.eval(), call(X), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("size", [1, 2, 5, 6])
def test_frequencies_and_shifts_are_numpys(size: int) -> None:
    for name in ("fftfreq", "rfftfreq"):
        np.testing.assert_array_equal(getattr(us.fft, name)(size, 0.3).eval(), getattr(np.fft, name)(size, 0.3))
    x = real(size, 3)
    for name in ("fftshift", "ifftshift"):
        for axes in (None, 0, (1,), (0, 1)):
            np.testing.assert_array_equal(getattr(us.fft, name)(x, axes).eval(), getattr(np.fft, name)(x, axes))


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_transforms_work_on_symbolic_sizes_with_their_gradients(size: int) -> None:
    n = us.dims("n")
    x, data = us.placeholder((2, n)), real(2, size)
    for name in ("fft", "ifft", "rfft", "ihfft", "irfft", "hfft", "fftn", "rfftn", "fftshift", "ifftshift"):
        for arguments in ((), (3,)) if "n" not in name and "shift" not in name else ((),):
            function = getattr(us.fft, name)
            loss = us.sum(us.abs(function(x, *arguments) - 0.3) ** 2)
            np.testing.assert_allclose(
                function(x, *arguments).eval({x: data}), getattr(np.fft, name)(data, *arguments), atol=1e-14
            )
            known = us.tensor(data)
            expected = us.sum(us.abs(function(known, *arguments) - 0.3) ** 2).grad(known).eval()
            np.testing.assert_allclose(loss.grad(x).eval({x: data}), expected, rtol=1e-13, atol=1e-13)
    np.testing.assert_array_equal((us.fft.fftfreq(n) + x).eval({x: data}), np.fft.fftfreq(size) + data)


@pytest.mark.parametrize(("size", "n"), [(5, 5), (4, 4), (4, 7), (6, 3)])
def test_the_adjoint_of_a_real_transform_is_its_transposed_matrix(size: int, n: int) -> None:
    """The matrix of rfft is known: its cotangent rule must be the real part of the conjugate of that, by hand."""
    x, ct = us.tensor(real(size)), complex_(n // 2 + 1)
    k, j = np.arange(n // 2 + 1)[:, None], np.arange(min(size, n))
    matrix = np.zeros((n // 2 + 1, size), complex)
    matrix[:, : min(size, n)] = np.exp(-2j * np.pi * k * j / n)
    (pulled,) = us.vjp(lambda x: us.fft.rfft(x, n), x)[1](us.tensor(ct))
    np.testing.assert_allclose(pulled.eval(), (matrix.conj().T @ ct).real, atol=1e-13)


@pytest.mark.parametrize("n", [4, 5])
def test_what_irfft_does_not_look_at_has_no_derivative(n: int) -> None:
    z = us.tensor(complex_(n // 2 + 1))
    slope = us.sum(us.fft.irfft(z, n) ** 3).grad(z).eval()
    assert slope[0].imag == 0
    assert (slope[-1].imag == 0) == (n == 4)


def test_lines_that_nobody_asked_for_stay_absent() -> None:
    x = us.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]])
    rows = us.where(us.constant([[True], [False]]), us.real(us.fft.fft(us.log(x))), 0.0)
    slope = us.sum(rows).grad(x).eval()
    np.testing.assert_allclose(slope, [[3.0, 0.0, 0.0], [0.0, 0.0, 0.0]], atol=1e-13)
    halves = us.where(us.constant([[True], [False]]), us.real(us.fft.rfft(us.log(x))), 0.0)
    assert np.isfinite(us.sum(halves).grad(x).eval()).all()


def test_a_round_trip_has_the_identity_as_its_derivative() -> None:
    for there, back in ((us.fft.rfft, us.fft.irfft), (us.fft.ihfft, us.fft.hfft)):
        for size in (5, 6):
            jacobian = us.jacobian(lambda x, f=there, g=back, n=size: g(f(x, norm="ortho"), n, norm="ortho"))
            np.testing.assert_allclose(jacobian(us.tensor(real(size))).eval(), np.eye(size), atol=1e-14)


def test_mistakes_are_typed() -> None:
    with pytest.raises(ArgumentError, match="norm is one of backward, ortho, forward; got 'both'"):
        us.fft.fft(X, norm="both")
    with pytest.raises(DTypeError, match="rfft takes real numbers, got complex128"):
        us.fft.rfft(Z)
    with pytest.raises(ShapeError, match="at least one number, got n=0"):
        us.fft.fft(X, 0)
    with pytest.raises(ShapeError, match="axis 0 of shape \\(0,\\) has none"):
        us.fft.fft(np.zeros(0))
    with pytest.raises(ShapeError, match="an integer, got 2.5"):
        us.fft.fft(X, 2.5)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="irfft\\(x, n=1\\)"):
        us.fft.irfft([1.0])
    with pytest.raises(ShapeError, match="one size for each axis"):
        us.fft.fftn(X, (2, 3), (0,))
    with pytest.raises(ShapeError, match="at least one axis"):
        us.fft.rfftn(X, (), ())
    with pytest.raises(ArgumentError, match="device='gpu'"):
        us.fft.fftfreq(4, device="gpu")
    with pytest.raises(DTypeError, match="one spacing"):
        us.fft.fftfreq(4, [1.0, 2.0])
