"""Corner transfer matrices and infinite states, against exact and published numbers and finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool.errors import ArgumentError, ConvergenceError, DTypeError, ShapeError
from unspool.networks.ctmrg import ctmrg
from unspool.networks.ipeps import bond_density, double_layer, heisenberg_bond, ipeps_energy
from unspool.networks.lattice import (
    Environment,
    ising_site,
    partition_per_site,
    product_environment,
    site_expectation,
    symmetrise,
)
from unspool.networks.optimise import minimise

ADJOINTS = pytest.mark.parametrize("adjoint", [us.Unrolled(), us.Implicit()], ids=["unrolled", "implicit"])

# Onsager's solution: β, ln Z per site, energy u, specific heat c.
ONSAGER = [
    (0.3, 0.790559070951263, -0.704499070832445, 0.286290202872046),
    (0.5, 1.025792812694918, -1.74556457531255, 0.724871448601574),
]

# The energy per site of the best C4v tensor with bonds of size 2, at rank 16 (peps-torch, quoted by PEPSKit).
HEISENBERG = -0.6602310934799577


def exact_magnetisation(beta: float) -> tuple[float, float]:
    """Yang's formula, and its derivative."""
    s, c = np.sinh(2 * beta), np.cosh(2 * beta)
    return (1 - s**-4) ** 0.125, c * s**-5 * (1 - s**-4) ** -0.875


def magnetisation(beta: us.Tensor, rank: int, **settings: Any) -> us.Tensor:
    site = ising_site(beta)
    found = ctmrg(site.bulk, rank=rank, start=product_environment(site.up), **settings)
    assert found.converged
    return site_expectation(site.bulk, site.spin, found.state)


def free_energy(bulk: us.Tensor, **settings: Any) -> us.Tensor:
    return us.log(partition_per_site(bulk, ctmrg(bulk, **settings).state))


def potts_site(beta: us.Tensor, states: int = 3) -> us.Tensor:
    """The q-state Potts model. All states but one are alike, so corners have multiplets of q - 1."""
    mean = np.full((states, states), 1 / states)
    half = us.sqrt(us.exp(beta) + (states - 1)) * mean + us.sqrt(us.exp(beta) - 1) * (np.eye(states) - mean)
    return us.einsum("su,sl,sd,sr->uldr", half, half, half, half)


def random_tensor(seed: int, bond: int = 2) -> Any:
    return np.random.default_rng(seed).standard_normal((2, *(bond,) * 4))


def energy(tensor: us.Tensor, **settings: Any) -> us.Tensor:
    return ipeps_energy(symmetrise(tensor), heisenberg_bond(), **settings).energy


def slope(loss: Callable[[us.Tensor], us.Tensor], at: Any, direction: Any, step: float = 1e-4) -> float:
    """The derivative along a direction by central differences of fourth order."""
    values = [float(loss(us.tensor(at + k * step * direction))) for k in (-2, -1, 1, 2)]
    return float(np.dot(values, [1, -8, 8, -1]) / (12 * step))


# --- the Ising model -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("beta", "rank"), [(0.6, 4), (0.8, 2), (1.0, 2)])
def test_magnetisation_is_that_of_yang_at_a_small_rank(beta: float, rank: int) -> None:
    assert abs(float(magnetisation(us.tensor(beta), rank)) - exact_magnetisation(beta)[0]) < 1.5e-8


@ADJOINTS
@pytest.mark.parametrize("beta", [0.5, 0.6])
def test_slope_of_the_magnetisation_is_that_of_yang(beta: float, adjoint: Any) -> None:
    at = us.tensor(beta)
    m = magnetisation(at, 20, tol=1e-12, adjoint=adjoint)
    value, derivative = exact_magnetisation(beta)
    assert abs(float(m) - value) < 1e-13
    assert abs(float(m.grad(at)) - derivative) < 1e-9


def test_factor_of_a_site_is_the_published_one() -> None:
    site = ising_site(0.6)
    state = ctmrg(site.bulk, rank=20, tol=1e-13, start=product_environment(site.up)).state
    assert abs(float(partition_per_site(site.bulk, state)) - 3.3539286440313774) < 1e-13
    assert abs(float(site_expectation(site.bulk, site.spin, state)) - 0.9736086674403006) < 1e-13


@ADJOINTS
@pytest.mark.parametrize(("beta", "log_z", "u"), [row[:3] for row in ONSAGER])
def test_slope_of_the_free_energy_is_that_of_onsager(beta: float, log_z: float, u: float, adjoint: Any) -> None:
    at = us.tensor(beta)
    site = ising_site(at)
    value = free_energy(site.bulk, rank=20, tol=1e-12, start=product_environment(site.up), adjoint=adjoint)
    assert abs(float(value) - log_z) < 1e-13
    assert abs(float(value.grad(at)) + u) < 1e-11


def test_second_derivative_through_the_loop_is_the_specific_heat() -> None:
    beta, _, u, c = ONSAGER[0]
    at = us.tensor(beta)
    first = free_energy(ising_site(at).bulk, rank=8, tol=1e-12).grad(at)
    assert abs(float(first) + u) < 1e-11
    assert abs(beta**2 * float(first.grad(at)) - c) < 1e-10


def test_start_that_breaks_no_symmetry_gives_no_magnetisation() -> None:
    site = ising_site(0.6)
    state = ctmrg(site.bulk, rank=8).state
    # The phase is ordered: rounding breaks the symmetry too, and grows to a few 1e-12 with some kernels of BLAS.
    assert abs(float(site_expectation(site.bulk, site.spin, state))) < 1e-10


def test_loop_that_has_not_converged_is_differentiated_as_it_is() -> None:
    def unfinished(beta: us.Tensor) -> us.Tensor:
        site = ising_site(beta)
        found = ctmrg(site.bulk, rank=4, max_steps=5, start=product_environment(site.up))
        assert not found.converged and found.steps == 5
        return site_expectation(site.bulk, site.spin, found.state)

    at = us.tensor(0.45)
    derivative = float(unfinished(at).grad(at))
    assert abs(derivative - slope(unfinished, 0.45, 1.0)) < 1e-9
    assert abs(derivative - exact_magnetisation(0.45)[1]) > 1  # far from the end, where it would be this


def test_derivative_flows_to_the_start() -> None:
    bulk = us.constant(ising_site(0.4).bulk.eval())
    ends = us.tensor([1.0, 0.3])

    def short(ends: us.Tensor) -> us.Tensor:
        return free_energy(bulk, rank=3, max_steps=2, start=product_environment(ends))

    direction = np.array([0.4, -0.8])
    assert abs(float(short(ends).grad(ends) @ direction) - slope(short, ends.eval(), direction)) < 1e-10


# --- multiplets, and other corners -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("rank", "kept"), [(2, 1), (3, 3), (4, 3)])
def test_rank_does_not_cut_through_a_multiplet(rank: int, kept: int) -> None:
    found = ctmrg(potts_site(us.tensor(0.7)), rank=rank)
    assert found.state.corner.shape == (kept, kept)
    assert found.history[-1]["rank"] == kept


@ADJOINTS
@pytest.mark.parametrize("rank", [2, 3, 12])
def test_gradient_is_right_with_multiplets_among_what_is_kept(rank: int, adjoint: Any) -> None:
    def loss(beta: us.Tensor) -> us.Tensor:
        return free_energy(potts_site(beta), rank=rank, tol=1e-12, adjoint=adjoint)

    beta = us.tensor(0.7)
    assert abs(float(loss(beta).grad(beta)) - slope(loss, 0.7, 1.0)) < 1e-9


@ADJOINTS
def test_product_of_vectors_is_summed_exactly(adjoint: Any) -> None:
    v = us.tensor([1.0, 2.0])
    bulk = us.einsum("u,l,d,r->uldr", v, v, v, v)
    found = ctmrg(bulk, rank=5, adjoint=adjoint)
    factor = partition_per_site(bulk, found.state)  # two bonds for each site: (v·v)²
    assert found.converged and found.state.corner.shape == (1, 1)
    assert abs(float(factor) - 25.0) < 1e-12
    np.testing.assert_allclose(factor.grad(v).eval(), [20.0, 40.0], rtol=1e-12)


@ADJOINTS
def test_bonds_of_size_one_are_the_number_on_a_site(adjoint: Any) -> None:
    x = us.tensor(3.0)
    bulk = us.reshape(x, (1, 1, 1, 1))
    factor = partition_per_site(bulk, ctmrg(bulk, rank=2, adjoint=adjoint).state)
    assert abs(float(factor) - 3.0) < 1e-14
    assert abs(float(factor.grad(x)) - 1.0) < 1e-12


def test_bond_states_that_never_occur_are_not_kept() -> None:
    """Two of four values of a bond are unused, which leaves zero eigenvalues in every step."""
    padded = us.tensor(np.zeros((4, 4, 4, 4))).at[:2, :2, :2, :2].set(ising_site(0.6).bulk)
    found = ctmrg(padded, rank=6, start=product_environment([1.0, 0.2, 0.5, 0.5]))
    plain = ctmrg(ising_site(0.6).bulk, rank=6, start=product_environment([1.0, 0.2]))
    np.testing.assert_allclose(found.spectrum.eval(), plain.spectrum.eval(), atol=1e-12)


def test_rank_one_is_a_mean_field() -> None:
    """At rank 1 the matrix that grows is a site between two equal vectors, and its leading eigenvector the next one."""
    bulk = ising_site(0.3).bulk.eval()
    edge = np.ones(2)
    for _ in range(100):
        _, vectors = np.linalg.eigh(np.einsum("uldr,u,l->rd", bulk, edge, edge))
        edge = np.einsum("uldr,u,l,r->d", bulk, edge, vectors[:, -1], vectors[:, -1])
        edge /= np.linalg.norm(edge)
    found = ctmrg(bulk, rank=1)
    np.testing.assert_allclose(found.state.edge.eval().ravel(), edge, atol=1e-14)


# --- infinite states -------------------------------------------------------------------------------------------------


@ADJOINTS
def test_gradient_of_the_energy_agrees_with_finite_differences(adjoint: Any) -> None:
    start, direction = random_tensor(1), random_tensor(2)
    tensor = us.tensor(start)
    gradient = energy(tensor, rank=8, tol=1e-12, adjoint=adjoint).grad(tensor).eval()
    expected = slope(lambda t: energy(t, rank=8, tol=1e-12), start, direction)
    assert abs(np.sum(gradient * direction) - expected) < 1e-9


@pytest.mark.parametrize("rank", [8, 16])
def test_gradients_through_the_loop_and_at_the_fixed_point_agree(rank: int) -> None:
    tensor = us.tensor(random_tensor(1))
    unrolled, implicit = (
        energy(tensor, rank=rank, tol=1e-12, adjoint=adjoint).grad(tensor).eval()
        for adjoint in (us.Unrolled(), us.Implicit())
    )
    assert np.abs(unrolled).max() > 1e-2
    np.testing.assert_allclose(implicit, unrolled, rtol=0, atol=1e-11)


def test_best_energy_of_the_heisenberg_model_is_the_published_one() -> None:
    found = minimise(lambda tensor: energy(tensor, rank=16), random_tensor(0), tol=1e-7)
    assert found.converged
    assert abs(float(found.loss) - HEISENBERG) < 1e-10


def test_neel_state_has_its_energy_in_any_bond_size() -> None:
    site = np.zeros((2, 2, 2, 2, 2))
    site[0, 0, 0, 0, 0] = 1.0
    found = ipeps_energy(site, heisenberg_bond(), rank=4)
    assert abs(float(found.energy) + 0.5) < 1e-14
    assert found.state.corner.shape == (1, 1)


def test_state_of_square_roots_of_boltzmann_weights_has_the_energy_of_onsager() -> None:
    """Its spins are those of the Ising model, so neighbours have ⟨σσ⟩ = -u/2, and the slope gives the specific heat."""
    beta, _, u, c = ONSAGER[0]
    at = us.tensor(beta)
    even, odd = us.sqrt(us.cosh(at / 2) / 2), us.sqrt(us.sinh(at / 2) / 2)
    half = us.stack([us.stack([even + odd, even - odd]), us.stack([even - odd, even + odd])])
    tensor = us.einsum("ps,su,sl,sd,sr->puldr", np.eye(2), half, half, half, half)
    z = np.diag([1.0, -1.0])
    found = ipeps_energy(tensor, -np.einsum("ac,bd->abcd", z, z), rank=12, tol=1e-12)
    assert abs(float(found.energy) - u) < 1e-12
    assert abs(-(beta**2) * float(found.energy.grad(at)) - c) < 1e-10


def test_density_of_a_bond_is_a_density_matrix() -> None:
    tensor = symmetrise(random_tensor(3))
    state = ipeps_energy(tensor, heisenberg_bond(), rank=16).state
    density = bond_density(tensor, state).eval().reshape(4, 4)
    assert abs(np.trace(density) - 1) < 1e-14
    np.testing.assert_allclose(density, density.T, atol=1e-14)
    assert np.linalg.eigvalsh(density).min() > 0


def test_double_layer_is_the_product_of_two_layers() -> None:
    a = random_tensor(0, bond=3)
    bulk = double_layer(a).eval()
    assert abs(bulk[3 * 2 + 1, 4, 0, 8] - np.dot(a[:, 2, 1, 0, 2], a[:, 1, 1, 0, 2])) < 1e-14


def test_symmetrised_tensor_is_the_mean_of_its_eight_images() -> None:
    a = random_tensor(5)[0]
    images = [np.transpose(b, np.roll(range(4), k)) for b in (a, a.transpose(0, 3, 2, 1)) for k in range(4)]
    np.testing.assert_allclose(symmetrise(a).eval(), np.mean(images, axis=0), atol=1e-15)


# --- memory, precision, and what one sees of a run -------------------------------------------------------------------


def test_gradient_within_a_tenth_of_the_memory_has_the_same_bits() -> None:
    def gradient() -> Any:
        tensor = us.tensor(random_tensor(1))
        return energy(tensor, rank=8, tol=0.0, max_steps=60).grad(tensor).eval()

    gradient()
    expected = gradient()
    with us.memory("4GB") as everything:
        gradient()
    with us.memory(everything.report().peak // 10) as limited:
        found = gradient()
    assert limited.report().peak < everything.report().peak / 9
    assert np.array_equal(found, expected)


def test_single_precision_stays_single() -> None:
    site = ising_site(0.6)
    bulk, spin, up = (us.tensor(t.eval().astype(np.float32)) for t in site)
    found = ctmrg(bulk, rank=4, tol=1e-6, start=product_environment(up))
    assert found.converged and found.state.edge.dtype == np.float32
    assert abs(float(site_expectation(bulk, spin, found.state)) - exact_magnetisation(0.6)[0]) < 1e-5


def test_run_can_be_watched() -> None:
    seen: list[tuple[int, Any, dict[str, float]]] = []
    found = ctmrg(ising_site(0.3).bulk, rank=4, on_step=lambda *step: seen.append(step))
    assert [step for step, _, _ in seen] == list(range(1, found.steps + 1))
    assert tuple(values for _, _, values in seen) == found.history
    assert seen[-1][1] is found.state
    assert found.history[-1]["change"] < 1e-10 <= found.history[-2]["change"]
    assert abs(np.linalg.norm(found.spectrum.eval()) - 1) < 1e-14


def test_exception_of_the_watcher_passes_through() -> None:
    def stop(step: int, state: Environment, values: dict[str, float]) -> None:
        if step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ctmrg(ising_site(0.3).bulk, rank=4, on_step=stop)


def test_run_goes_on_from_an_earlier_one() -> None:
    bulk = ising_site(0.4).bulk
    first = ctmrg(bulk, rank=8)
    assert ctmrg(bulk, rank=8, start=us.eval(first.state)).steps == 2


# --- bad input -------------------------------------------------------------------------------------------------------

SYMMETRIC = ising_site(0.5).bulk.eval()


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"rank": 0}, ArgumentError, "rank must be at least 1, but is 0"),
        ({"rank": 2.5}, ArgumentError, "rank must be an integer"),
        ({"tol": -1.0}, ArgumentError, "tol must be finite and not negative"),
        ({"cutoff": float("nan")}, ArgumentError, "cutoff must be finite"),
        ({"max_steps": 0}, ArgumentError, "max_steps must be at least 1"),
        ({"adjoint": "implicit"}, ArgumentError, "adjoint must be us.Unrolled"),
        ({"bulk": np.where(SYMMETRIC > 1, np.nan, SYMMETRIC)}, ArgumentError, "bulk must be finite"),
        ({"bulk": np.arange(16.0).reshape(2, 2, 2, 2)}, ArgumentError, "symmetrise"),
        ({"bulk": np.zeros((2, 2, 2, 2))}, ArgumentError, "bulk must not be zero"),
        ({"bulk": np.ones((2, 2, 2))}, ArgumentError, "bulk must have 4 axes"),
        ({"bulk": np.ones((2, 3, 2, 3))}, ShapeError, r"\(2, 3, 2, 3\)"),
        ({"bulk": np.ones((0, 0, 0, 0))}, ShapeError, r"\(0, 0, 0, 0\)"),
        ({"bulk": np.ones((2, 2, 2, 2), complex)}, DTypeError, "complex128"),
        ({"bulk": np.ones((2, 2, 2, 2), int)}, DTypeError, "int64"),
        ({"start": 3}, ArgumentError, "pair"),
        ({"start": (np.ones((2, 2)), np.ones((2, 3, 2)))}, ShapeError, r"\(2, 3, 2\)"),
        ({"start": product_environment([0.0, 0.0])}, ArgumentError, "becomes 0.0"),
    ],
)
def test_bad_argument_is_named(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    arguments = {"bulk": SYMMETRIC, "rank": 4, **changes}
    with pytest.raises(error, match=message):
        ctmrg(arguments.pop("bulk"), **arguments)


def test_rank_within_the_leading_multiplet_is_refused() -> None:
    bulk = np.einsum("us,ls,ds,rs->uldr", *[np.eye(2)] * 4)  # two spins that never change: each may be the one
    with pytest.raises(ArgumentError, match="rank 1 cuts through 2 equal eigenvalues"):
        ctmrg(bulk, rank=1)


def test_fixed_point_that_was_not_reached_is_an_error() -> None:
    with pytest.raises(ConvergenceError, match="no fixed point: step 3 changed"):
        ctmrg(SYMMETRIC, rank=8, max_steps=3, adjoint=us.Implicit())


def test_bad_bond_of_an_infinite_state_is_named() -> None:
    tensor = symmetrise(random_tensor(0))
    with pytest.raises(ArgumentError, match="Hermitian"):
        ipeps_energy(tensor, np.arange(16.0).reshape(2, 2, 2, 2), rank=2)
    with pytest.raises(ShapeError, match="size 2 of a spin"):
        ipeps_energy(tensor, np.ones((3, 3, 3, 3)), rank=2)
    with pytest.raises(ArgumentError, match="tensor must be the same from all sides"):
        ipeps_energy(random_tensor(0), heisenberg_bond(), rank=2)
    with pytest.raises(ArgumentError, match="tensor must have 5 axes"):
        ipeps_energy(SYMMETRIC, heisenberg_bond(), rank=2)


@pytest.mark.parametrize("beta", [0.0, -0.3, float("inf")])
def test_temperature_without_a_real_tensor_is_refused(beta: float) -> None:
    with pytest.raises(ArgumentError, match="beta must be"):
        ising_site(beta)
