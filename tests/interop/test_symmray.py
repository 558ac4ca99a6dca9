"""symmray's block-sparse arrays with tensors as blocks: the numbers of its NumPy blocks, and derivatives beside them.

U(1) and Z2, bosons and fermions. A chain with U(1) symmetry is evolved in imaginary time and differentiated through
all of it; the dense Hamiltonian says what the energy and its slope come to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import unspool as us

sr = pytest.importorskip("symmray")
ar = pytest.importorskip("autoray")
qtn = pytest.importorskip("quimb.tensor")

rng = np.random.default_rng(0)
KINDS = [(symmetry, fermionic) for symmetry in ("U1", "Z2") for fermionic in (False, True)]


def like(array: Any, x: Any) -> Any:
    """Return a block-sparse array with blocks of the kind that x is."""
    array = array.copy()
    array.apply_to_arrays(us.tensor if isinstance(x, us.Tensor) else np.asarray)
    return array


def with_block(array: Any, sector: Any, x: Any) -> Any:
    array = like(array, x)
    blocks = dict(array.get_params())
    blocks[sector] = x
    array.set_params(blocks)
    return array


def contracted(x: Any) -> Any:
    y = ar.do("tensordot", x, ar.do("conj", x), axes=[(1, 2), (1, 2)])
    return ar.do("linalg.norm", y)


def singular_values(x: Any) -> Any:
    _, s, _ = ar.do("linalg.svd", x.fuse((0, 1)))
    return ar.do("sum", s * s * s)


def triangular(x: Any) -> Any:
    q, r = ar.do("linalg.qr", x.fuse((0, 2)))
    return ar.do("linalg.norm", ar.do("tensordot", q, r, axes=1)) + ar.do("linalg.norm", r)


def truncated(x: Any) -> Any:
    tensor = qtn.Tensor(x, ("a", "b", "c"))
    left, right = tensor.split(("a", "b"), max_bond=3, cutoff=0.0, get="tensors")
    return (left & right).contract(output_inds=("a", "b", "c")).norm()


@pytest.mark.parametrize("f", [contracted, singular_values, triangular, truncated])
@pytest.mark.parametrize(("symmetry", "fermionic"), KINDS)
def test_a_function_of_blocks_and_its_derivative(f: Callable[[Any], Any], symmetry: str, fermionic: bool) -> None:
    array = sr.utils.get_rand(symmetry, (4, 5, 6), seed=1, fermionic=fermionic)
    sector, block = max(array.get_params().items(), key=lambda item: item[1].size)

    def value(x: Any) -> Any:
        return f(with_block(array, sector, x))

    found, gradient = us.value_and_grad(value)(us.tensor(block))
    np.testing.assert_allclose(float(found), float(value(block)), rtol=1e-12)
    direction = rng.normal(size=block.shape)
    slope = (float(value(block + 1e-6 * direction)) - float(value(block - 1e-6 * direction))) / 2e-6
    np.testing.assert_allclose(np.sum(gradient.eval() * direction), slope, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("symmetry", "fermionic"), KINDS)
def test_dense_and_fused_arrays_are_those_of_numpy(symmetry: str, fermionic: bool) -> None:
    array = sr.utils.get_rand(symmetry, (4, 5, 6), seed=2, fermionic=fermionic)
    ours = like(array, us.tensor(0.0))
    for change in (lambda x: x, lambda x: x.fuse((0, 2)), lambda x: x.transpose((2, 0, 1)), lambda x: x.conj()):
        assert isinstance(change(ours).to_dense(), us.Tensor)
        np.testing.assert_array_equal(change(ours).to_dense().eval(), change(array).to_dense())


# --- a chain ---------------------------------------------------------------------------------------------------------

SITES = 4
EXCHANGE = sr.heisenberg_local_array("U1", j=(1.0, 1.0, 0.0))
ISING = sr.heisenberg_local_array("U1", j=(1.0, 1.0, 1.0)) - EXCHANGE
START = sr.MPS_abelian_rand("U1", SITES, 4, phys_dim={0: 1, 1: 1}, seed=3, site_charge=lambda i: i % 2)


def evolved_energy(anisotropy: Any, sweeps: int = 150, step: float = 0.04) -> Any:
    """Return the energy of an XXZ chain after imaginary time, by TEBD with truncation."""
    bond = like(EXCHANGE, anisotropy) + like(ISING, anisotropy) * anisotropy
    gate = ar.do("scipy.linalg.expm", -step * bond.fuse((0, 1), (2, 3))).unfuse_all()
    psi = START.copy()
    psi.apply_to_arrays(us.tensor if isinstance(anisotropy, us.Tensor) else np.asarray)
    for _ in range(sweeps):
        for i in (*range(0, SITES - 1, 2), *range(1, SITES - 1, 2)):
            psi.gate_split_(gate, (i, i + 1), max_bond=4, cutoff=0.0)
        psi = psi / psi.norm()
    energy = 0.0
    for i in range(SITES - 1):
        energy = energy + (psi.H & psi.gate(bond, (i, i + 1), contract=True)).contract(all)
    return energy / (psi.H & psi).contract(all)


def dense_chain(anisotropy: float) -> np.ndarray[Any, Any]:
    x, y, z = (0.5 * np.array(m) for m in ([[0, 1], [1, 0]], [[0, -1j], [1j, 0]], [[1, 0], [0, -1]]))
    bond = (np.kron(x, x) + np.kron(y, y) + anisotropy * np.kron(z, z)).real
    return sum(np.kron(np.kron(np.eye(2**i), bond), np.eye(2 ** (SITES - 2 - i))) for i in range(SITES - 1))  # type: ignore[return-value]


def test_a_chain_with_symmetry_comes_to_the_dense_ground_state_and_its_slope() -> None:
    value, slope = us.value_and_grad(evolved_energy)(us.tensor(0.7))
    energies, states = np.linalg.eigh(dense_chain(0.7))
    ground = states[:, 0]
    np.testing.assert_allclose(float(value), energies[0], rtol=1e-3)
    np.testing.assert_allclose(float(slope), ground @ (dense_chain(1.7) - dense_chain(0.7)) @ ground, rtol=1e-2)


def test_the_slope_of_an_evolved_chain_is_that_of_differences() -> None:
    _, slope = us.value_and_grad(lambda d: evolved_energy(d, sweeps=3))(us.tensor(0.7))
    above, below = (float(evolved_energy(np.float64(0.7 + h), sweeps=3)) for h in (1e-6, -1e-6))
    np.testing.assert_allclose(float(slope), (above - below) / 2e-6, rtol=1e-6)
