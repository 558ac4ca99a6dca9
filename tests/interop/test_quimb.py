"""quimb's networks with tensors inside: the same numbers as with arrays, and derivatives as finite differences have."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import unspool as us

qu = pytest.importorskip("quimb")
qtn = pytest.importorskip("quimb.tensor")

rng = np.random.default_rng(0)
lattice = qtn.TN2D_rand(4, 4, 2, seed=3, dtype="float64", dist="uniform")
chain = qtn.MPS_rand_state(6, 4, seed=0)
other = qtn.MPS_rand_state(6, 4, seed=1)
ZZ = qu.pauli("Z") & qu.pauli("Z")


def like(network: Any, x: Any) -> Any:
    """Return a network with arrays of the kind that x is."""
    network = network.copy()
    if isinstance(x, us.Tensor):
        network.apply_to_arrays(us.tensor)
    return network


def check_derivative(f: Callable[[Any], Any], x: np.ndarray[Any, Any], step: float = 1e-6) -> None:
    direction = rng.normal(size=x.shape)
    value, gradient = us.value_and_grad(f)(us.tensor(x))
    np.testing.assert_allclose(float(value), f(x), rtol=1e-10)
    slope = (f(x + step * direction) - f(x - step * direction)) / (2 * step)
    np.testing.assert_allclose(np.sum(gradient.eval() * direction), slope, rtol=1e-6)


@pytest.mark.parametrize("options", [{"max_bond": 2, "cutoff": 0.0}, {"cutoff": 1e-10}])
def test_a_compressed_chain(options: dict[str, Any]) -> None:
    def overlap(x: Any) -> Any:
        psi = like(chain, x)
        psi[2].modify(data=x)
        psi.compress(**options)
        return (like(other, x).H & psi).contract(all)

    check_derivative(overlap, np.array(chain[2].data))


@pytest.mark.parametrize(
    "contract",
    [
        lambda tn: tn.contract_boundary(max_bond=3, cutoff=0.0),
        lambda tn: tn.contract_boundary(max_bond=3, cutoff=0.0, mode="projector"),
        lambda tn: tn.contract_ctmrg(max_bond=3, cutoff=0.0),
        lambda tn: tn.contract_hotrg(max_bond=3, cutoff=0.0),
        lambda tn: tn.contract_compressed("greedy", max_bond=3, cutoff=0.0),
    ],
    ids=["boundary", "boundary by projectors", "ctmrg", "hotrg", "compressed"],
)
def test_a_lattice_contracted_with_truncation(contract: Callable[[Any], Any]) -> None:
    def value(x: Any) -> Any:
        tn = like(lattice, x)
        tn[1, 1].modify(data=x)
        return contract(tn)

    check_derivative(value, np.array(lattice[1, 1].data))


@pytest.mark.parametrize("circuit", [qtn.Circuit, lambda n: qtn.CircuitMPS(n, max_bond=4)], ids=["exact", "mps"])
def test_a_circuit(circuit: Callable[[int], Any]) -> None:
    def energy(x: Any) -> Any:
        circ = circuit(4)
        for i in range(4):
            circ.apply_gate("RX", x[i], i)
        for i in range(3):
            circ.apply_gate("RZZ", x[4 + i], i, i + 1)
        for i in range(4):
            circ.apply_gate("RY", x[7 + i], i)
        return np.real(circ.local_expectation(ZZ, (0, 1)))

    check_derivative(energy, rng.normal(size=11))


def test_sweeps_that_solve_for_one_tensor_at_a_time_have_the_slope_of_the_ground_energy() -> None:
    """One-site DMRG on quimb's networks: the derivative by a staggered field is the magnetisation that it has."""
    sites, bond = 4, 4
    start = qtn.MPS_rand_state(sites, bond, seed=5)
    exchange = qtn.MPO_ham_heis(sites)
    field = sum((-1) ** i * qu.ikron(qu.spin_operator("Z"), [2] * sites, i) for i in range(sites)).real

    def energy(h: Any) -> Any:
        psi, hamiltonian = like(start, h), like(exchange, h)
        labels = [f"k{i}" for i in range(sites)] + [f"b{i}" for i in range(sites)]
        staggered = qtn.Tensor(us.tensor(field.reshape([2] * (2 * sites))) * h, labels)
        for _ in range(2):
            for site in range(sites):
                psi.canonize(site)
                bra = psi.H.reindex({f"k{i}": f"b{i}" for i in range(sites)})
                bra.reindex({i: f"{i}*" for i in psi.inner_inds()}, inplace=True)
                ket = psi.copy()
                ket.delete(psi.site_tag(site))
                bra.delete(psi.site_tag(site))
                right = psi[site].inds
                left = tuple(f"b{site}" if i == f"k{site}" else f"{i}*" for i in right)
                terms = [(ket & part & bra).contract(output_inds=(*left, *right)) for part in (hamiltonian, staggered)]
                shape = psi[site].shape
                size = int(np.prod(shape))
                total = (terms[0].data + terms[1].data).reshape(size, size)
                values, vectors = us.linalg.eigh((total + total.mT) / 2)
                psi[site].modify(data=vectors[:, 0].reshape(shape))
        return values[0]

    exact_energy, ground = qu.eigh(qu.ham_heis(sites, sparse=False).real + 0.5 * field, k=1)
    value, slope = us.value_and_grad(energy)(us.tensor(0.5))
    np.testing.assert_allclose(float(value), exact_energy[0], rtol=1e-8)
    np.testing.assert_allclose(float(slope), (ground.T @ field @ ground).item(), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_the_optimiser_finds_the_ground_state(dtype: str) -> None:
    sites = 6
    hamiltonian = qtn.MPO_ham_heis(sites)
    exact = qu.groundenergy(qu.ham_heis(sites, sparse=True))

    def normalise(psi: Any) -> Any:
        return psi / (psi.H @ psi) ** 0.5

    def loss(psi: Any, hamiltonian: Any) -> Any:
        bra, operator, ket = qtn.tensor_network_align(psi.H, hamiltonian, psi)
        return np.real((bra & operator & ket).contract(all))

    optimiser = qtn.TNOptimizer(
        qtn.MPS_rand_state(sites, 8, seed=2, dtype=dtype),
        loss_fn=loss,
        norm_fn=normalise,
        loss_constants={"hamiltonian": hamiltonian},
        autodiff_backend="unspool",
        progbar=False,
    )
    found = optimiser.optimize(150)
    np.testing.assert_allclose(float(loss(normalise(found), hamiltonian)), exact, rtol=1e-5)


@pytest.mark.parametrize("ours", ["import unspool", "import autoray; autoray.do('ones', 3, like='unspool')"])
def test_the_optimiser_knows_the_name_if_it_comes_first(ours: str) -> None:
    program = f"""
import numpy as np
import quimb.tensor as qtn
{ours}
optimiser = qtn.TNOptimizer(np.ones(3), lambda x: (x * x).sum(), autodiff_backend="unspool", progbar=False)
print(optimiser.vectorized_value_and_grad(np.ones(3))[1].sum())
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "6.0"


def test_the_optimiser_has_products_with_the_hessian() -> None:
    weights = np.diag([1.0, 2.0, 3.0])
    optimiser = qtn.TNOptimizer(
        np.ones(3), loss_fn=lambda x: x @ (weights @ x), autodiff_backend="unspool", progbar=False
    )
    product = optimiser.vectorized_hessp(np.ones(3), np.array([1.0, 0.0, 2.0]))
    np.testing.assert_allclose(product, 2.0 * weights @ [1.0, 0.0, 2.0])
