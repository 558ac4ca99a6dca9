"""DMRG against the Bethe ansatz, free fermions, exact diagonalisation, and finite differences of the whole loop."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool.errors import ArgumentError, BudgetError, GaugeError, ShapeError
from unspool.networks.chain import MPO, MPS, bond_expectation, expectation, local_expectation, product_state, random_mps
from unspool.networks.dmrg import DMRGResult, dmrg
from unspool.networks.exact import bethe_energy, ising_chain_energy, ising_chain_gradient
from unspool.networks.models import aklt, heisenberg, heisenberg_bonds, ising, spin_operators

# Open Heisenberg chain of 10 spins: exact diagonalisation and Bethe ansatz agree to all of these digits.
TEN_SPINS = -4.2580352072829


def uneven(bonds: int) -> Any:
    """Couplings without any symmetry of reflection."""
    return np.random.default_rng(1).uniform(0.5, 1.5, bonds)


def bond_correlations(found: DMRGResult, spin: float = 0.5) -> Any:
    """⟨S·S⟩ of every bond in the state that was found."""
    sites = found.state.sites
    return np.real(bond_expectation(found.state, heisenberg_bonds(np.ones(sites - 1), spin=spin)).eval())


def lowest_by_diagonalisation(operator: MPO) -> tuple[float, Any]:
    values, vectors = np.linalg.eigh(operator.dense().eval())
    return float(values[0]), vectors[:, 0]


def differences(energy: Callable[[us.Tensor], us.Tensor], at: Any, width: float = 1e-5) -> Any:
    """Central differences of a function that runs the whole loop anew for every value."""
    slopes = []
    for i in range(len(at)):
        step = width * np.eye(len(at))[i]
        slopes.append((float(energy(us.tensor(at + step))) - float(energy(us.tensor(at - step)))) / (2 * width))
    return np.array(slopes)


# --- energies --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [8, 16, 32])
def test_ten_spins_have_the_energy_of_the_bethe_ansatz_within_the_truncation_error(rank: int) -> None:
    found = dmrg(heisenberg(np.ones(9)), random_mps(10, 2, 4), rank=rank)
    error = float(found.energy) - TEN_SPINS
    assert found.converged
    assert -1e-12 < error < 20 * found.history[-1]["truncation"] + 1e-12
    assert max(found.state.ranks) <= rank


def test_without_truncation_ten_spins_are_exact() -> None:
    found = dmrg(heisenberg(np.ones(9)), random_mps(10, 2, 4), rank=32)
    assert abs(float(found.energy) - bethe_energy(10)) < 1e-11
    assert found.history[-1]["truncation"] < 1e-14


@pytest.mark.parametrize("update", [1, 2])
def test_the_state_has_the_energy_and_norm_1(update: int) -> None:
    found = dmrg(heisenberg(uneven(7)), random_mps(8, 2, 6, seed=3), rank=6, update=update)
    assert abs(float(found.state.norm()) - 1.0) < 1e-13
    assert abs(float(expectation(found.state, heisenberg(uneven(7)))) - float(found.energy)) < 1e-12


def test_one_site_at_a_time_reaches_the_ground_state_from_a_random_start() -> None:
    operator = heisenberg(uneven(7))
    found = dmrg(operator, random_mps(8, 2, 16, seed=5), rank=16, update=1)
    assert abs(float(found.energy) - lowest_by_diagonalisation(operator)[0]) < 1e-11


def test_one_site_at_a_time_keeps_the_bonds_of_the_start() -> None:
    found = dmrg(heisenberg(np.ones(7)), random_mps(8, 2, 3), rank=16, update=1)
    assert found.state.ranks == (2, 3, 3, 3, 3, 3, 2)


def test_energies_never_rise_from_sweep_to_sweep_without_truncation() -> None:
    found = dmrg(heisenberg(uneven(7)), random_mps(8, 2, 4), rank=4, update=1, tol=1e-11)
    assert all(values["change"] < 1e-12 for values in found.history)


def test_spins_of_size_1_agree_with_diagonalisation_and_their_gradient_with_hellmann_and_feynman() -> None:
    J = us.tensor(uneven(5))
    operator = heisenberg(J, spin=1)
    found = dmrg(operator, random_mps(6, 3, 4), rank=27)
    exact, vector = lowest_by_diagonalisation(operator)
    gradient = found.energy.grad(J).eval()
    assert abs(float(found.energy) - exact) < 1e-11
    for bond in range(5):
        term = heisenberg(np.eye(5)[bond], spin=1).dense().eval()
        assert abs(gradient[bond] - vector @ term @ vector) < 1e-10


def test_complex_states_and_operators_work() -> None:
    # A rotation about z makes the couplings complex and leaves the spectrum alone.
    phase = np.diag([1.0, np.exp(0.7j)])
    turned = [
        us.einsum(
            "ab,wbcx,cd->wadx", phase if site % 2 else np.eye(2), tensor, (phase if site % 2 else np.eye(2)).conj().T
        )
        for site, tensor in enumerate(heisenberg(np.ones(5)).tensors)
    ]
    found = dmrg(MPO(turned), random_mps(6, 2, 4, dtype=complex), rank=8)
    assert found.state.tensors[0].dtype == np.complex128
    assert abs(float(found.energy) - bethe_energy(6)) < 1e-11


# --- gradients -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("update", [1, 2])
def test_at_convergence_the_gradient_through_all_sweeps_is_the_correlation_of_each_bond(update: int) -> None:
    J = us.tensor(np.ones(9))
    found = dmrg(heisenberg(J), random_mps(10, 2, 32), rank=32, update=update, tol=1e-11)
    gradient = found.energy.grad(J).eval()
    np.testing.assert_allclose(gradient, bond_correlations(found), rtol=0, atol=1e-11)
    # E is of first degree in J, so the slopes sum to it.
    assert abs(gradient.sum() - TEN_SPINS) < 1e-11
    np.testing.assert_allclose(gradient, gradient[::-1], rtol=0, atol=1e-11)


@pytest.mark.parametrize("unit", [1e-9, 1e6])
def test_the_gradient_does_not_depend_on_the_unit_of_the_energy(unit: float) -> None:
    J = us.tensor(np.full(9, unit))
    found = dmrg(heisenberg(J), random_mps(10, 2, 32), rank=32)
    gradient = found.energy.grad(J).eval()
    # The state is known as well as the energy is converged; the slopes, to first order in its error.
    np.testing.assert_allclose(gradient, bond_correlations(found), rtol=0, atol=1e-7)


def test_the_correlations_are_those_of_exact_diagonalisation() -> None:
    J = us.tensor(uneven(7))
    operator = heisenberg(J)
    gradient = dmrg(operator, random_mps(8, 2, 4), rank=16, tol=1e-11).energy.grad(J).eval()
    _, vector = lowest_by_diagonalisation(operator)
    exact = [vector @ heisenberg(np.eye(7)[bond]).dense().eval() @ vector for bond in range(7)]
    np.testing.assert_allclose(gradient, exact, rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    ("sites", "update", "rank", "start", "sweeps", "dtype"),
    [
        (6, 2, 3, 2, 1, float),
        (8, 2, 4, 2, 2, float),
        (6, 1, 3, 3, 1, float),
        (5, 2, 3, 2, 1, complex),
        (5, 1, 3, 3, 1, complex),
    ],
)
def test_before_convergence_the_gradient_is_that_of_the_whole_loop(
    sites: int, update: int, rank: int, start: int, sweeps: int, dtype: Any
) -> None:
    def run(J: us.Tensor) -> DMRGResult:
        first = random_mps(sites, 2, start, dtype=dtype)
        return dmrg(heisenberg(J), first, update=update, rank=rank, max_steps=sweeps, tol=0.0)

    J = us.tensor(uneven(sites - 1))
    found = run(J)
    gradient = found.energy.grad(J).eval()
    np.testing.assert_allclose(gradient, differences(lambda j: run(j).energy, uneven(sites - 1)), rtol=0, atol=2e-9)
    # That is not what Hellmann and Feynman say of the state: the sweeps themselves matter.
    assert np.max(np.abs(gradient - bond_correlations(found))) > 1e-6


def test_before_convergence_it_depends_on_the_start_too() -> None:
    start = random_mps(5, 2, 2)

    def energy(tensor: us.Tensor) -> us.Tensor:
        moved = MPS([*start.tensors[:3], tensor, start.tensors[4]])
        return dmrg(heisenberg(uneven(4)), moved, update=1, rank=2, max_steps=1, tol=0.0).energy

    tensor = start.tensors[3]
    along = 1e-5 * np.random.default_rng(0).normal(size=tensor.shape)
    expected = (float(energy(tensor + along)) - float(energy(tensor - along))) / 2
    found = np.sum(energy(tensor).grad(tensor).eval() * along)
    assert abs(found - expected) < 1e-6 * abs(expected)


def test_second_derivatives_go_through_the_whole_loop() -> None:
    along = np.array([1.0, -1.0, 0.5, 0.0, 0.3])

    def slope(at: Any) -> tuple[us.Tensor, us.Tensor]:
        J = us.tensor(at)
        found = dmrg(heisenberg(J), random_mps(6, 2, 2), rank=3, max_steps=1, tol=0.0)
        return J, us.sum(found.energy.grad(J) * along)

    J, first = slope(uneven(5))
    second = first.grad(J).eval()
    ahead, back = (float(slope(uneven(5) + side * 1e-5 * along)[1]) for side in (1.0, -1.0))
    assert abs(second @ along - (ahead - back) / 2e-5) < 1e-8


@pytest.mark.parametrize("field", [0.5, 1.0, 1.5])
def test_the_ising_chain_has_the_energy_and_the_slopes_of_free_fermions(field: float) -> None:
    J, h = us.tensor(np.ones(9)), us.tensor(np.full(10, field))
    found = dmrg(ising(J, h), random_mps(10, 2, 4), rank=16, tol=1e-11)
    exact = ising_chain_gradient(np.ones(9), field)
    by_coupling, by_field = us.eval(found.energy.grad((J, h)))
    assert abs(float(found.energy) - ising_chain_energy(np.ones(9), field)) < 1e-11
    np.testing.assert_allclose(by_field, exact.fields, rtol=0, atol=1e-10)
    np.testing.assert_allclose(by_coupling, exact.couplings, rtol=0, atol=1e-10)


def test_the_slope_in_the_critical_field_is_the_published_number() -> None:
    h = us.tensor(1.0)
    found = dmrg(ising(np.ones(9), h), random_mps(10, 2, 4), rank=16, tol=1e-11)
    assert abs(float(found.energy) - (1 - 1 / math.sin(math.pi / 42))) < 1e-11
    assert abs(float(found.energy.grad(h)) + 7.3225505472971) < 1e-10


def test_a_nearly_degenerate_ground_state_has_its_gradient_with_a_looser_solve() -> None:
    # In the ordered phase the two lowest states of 20 sites are 1e-6 apart, and 1e-10 of a residual is below rounding.
    h = us.tensor(0.5)
    found = dmrg(ising(np.ones(19), h), random_mps(20, 2, 4), rank=16, solve_tol=1e-8)
    exact = float(ising_chain_gradient(np.ones(19), 0.5).fields.sum())
    assert abs(float(found.energy.grad(h)) - exact) < 1e-10


def test_within_a_tenth_of_the_memory_the_gradient_is_the_same_to_the_last_bit() -> None:
    def gradient() -> Any:
        J = us.tensor(uneven(7))
        return dmrg(heisenberg(J), random_mps(8, 2, 4), rank=10, max_steps=3, tol=0.0).energy.grad(J).eval()

    gradient()
    expected = gradient()
    with us.memory("4GB") as everything:
        gradient()
    budget = everything.report().peak // 10
    try:
        with us.memory(budget) as m:
            found = gradient()
    except BudgetError as error:  # a few updates next to each other are more than that
        budget = max(budget, error.least)
        with us.memory(budget) as m:
            found = gradient()
    assert np.array_equal(found, expected)
    assert m.report().evaluations > m.report().steps  # something was evicted and recomputed
    assert budget < everything.report().peak // 4


def test_a_chain_that_does_not_fit_runs_its_steps_hardly_more_often_than_it_has_to() -> None:
    """Twenty spins, half of what the loop would hold: small chains do not tell good choices from bad ones."""
    with us.memory("20MB") as memory:
        couplings = us.tensor(np.ones(19))
        start = random_mps(20, 2, 2, seed=0)
        found = dmrg(heisenberg(couplings), start, rank=32, tol=1e-10)
        slopes = found.energy.grad(couplings).eval()
    report = memory.report()
    assert report.factor is not None and report.optimal_factor is not None
    assert 1.0 < report.factor <= 1.15 * report.optimal_factor
    assert report.peak <= report.budget
    # E is homogeneous in the couplings, so E = Σ J dE/dJ; what a rank of 32 cuts off is 1.5e-8.
    assert abs(np.sum(slopes) - bethe_energy(20)) < 1e-7


def test_a_state_that_was_evicted_is_rebuilt_once_for_all_its_sites() -> None:
    # An expectation value reads the sites in the order in which the last sweep made them.
    J = us.tensor(np.ones(19))
    with us.memory("20MB"):
        found = dmrg(heisenberg(J), random_mps(20, 2, 2), rank=32)
        found.energy.grad(J).eval()
    with us.memory("5MB") as memory:
        bond_expectation(found.state, heisenberg_bonds(np.ones(19))).eval()
    report = memory.report()
    assert report.steps and report.factor == 1.0


# --- degenerate on purpose -------------------------------------------------------------------------------------------


def test_two_sites_are_solved_at_once() -> None:
    for update in (1, 2):
        J = us.tensor([1.5])
        found = dmrg(heisenberg(J), random_mps(2, 2, 2), update=update)
        assert abs(float(found.energy) + 0.75 * 1.5) < 1e-14
        assert abs(float(found.energy.grad(J)[0]) + 0.75) < 1e-14


def test_a_multiplet_at_the_cut_is_dropped_as_a_whole() -> None:
    # Across the middle of four spins there is a singlet and a triplet. Three of those four do not go together; with the
    # singlet alone the best state is two dimers.
    J = us.tensor([1.0, 0.8, 1.0])
    found = dmrg(heisenberg(J), random_mps(4, 2, 2), rank=3)
    assert found.state.ranks == (2, 1, 2)
    assert abs(float(found.energy) + 1.5) < 1e-13
    np.testing.assert_allclose(found.energy.grad(J).eval(), [-0.75, 0.0, -0.75], rtol=0, atol=1e-13)


def test_a_cut_through_a_multiplet_is_made_on_request_and_has_no_gradient() -> None:
    J = us.tensor([1.0, 0.8, 1.0])
    found = dmrg(heisenberg(J), random_mps(4, 2, 2), rank=3, keep_multiplets=False, max_steps=2, tol=0.0)
    assert found.state.ranks == (2, 3, 2)
    with pytest.raises(GaugeError):
        found.energy.grad(J).eval()


def test_without_keeping_multiplets_other_cuts_have_their_gradients() -> None:
    J = us.tensor(uneven(5))
    gradients = []
    for keep in (True, False):
        found = dmrg(heisenberg(J), random_mps(6, 2, 2), rank=3, keep_multiplets=keep, max_steps=1, tol=0.0)
        gradients.append(found.energy.grad(J).eval())
    np.testing.assert_allclose(*gradients, rtol=0, atol=1e-12)


def test_the_largest_multiplet_is_kept_even_if_it_is_more_than_the_rank() -> None:
    found = dmrg(heisenberg([1.0]), random_mps(2, 2, 1), rank=1)
    assert found.state.ranks == (2,)


def test_rank_1_is_the_best_product_state() -> None:
    # For H = -Σ ZZ - 3·Σ X that is all spins along x, from which no single turn gains.
    h = us.tensor(3.0)
    found = dmrg(ising(np.ones(9), h), random_mps(10, 2, 1), rank=1, update=1, tol=1e-13)
    assert found.state.ranks == (1,) * 9
    assert abs(float(found.energy) + 30.0) < 1e-11
    assert abs(float(found.energy.grad(h)) + 10.0) < 1e-6


def test_rank_1_without_a_field_is_one_of_the_two_ordered_states() -> None:
    J = us.tensor(np.ones(5))
    found = dmrg(ising(J, 0.0), random_mps(6, 2, 2, seed=2), rank=1)
    order = local_expectation(found.state, np.diag([1.0, -1.0])).eval()
    assert abs(float(found.energy) + 5.0) < 1e-13
    np.testing.assert_allclose(np.abs(order), 1.0, rtol=0, atol=1e-7)
    np.testing.assert_allclose(found.energy.grad(J).eval(), -1.0, rtol=0, atol=1e-10)


def test_a_product_state_as_ground_state_and_zero_singular_values() -> None:
    h = us.tensor(np.full(6, 1.0))
    found = dmrg(ising(np.zeros(5), h), random_mps(6, 2, 3), rank=8)
    assert found.state.ranks == (1,) * 5
    assert abs(float(found.energy) + 6.0) < 1e-13
    np.testing.assert_allclose(found.energy.grad(h).eval(), -1.0, rtol=0, atol=1e-12)


def test_an_eigenstate_as_start_is_left_where_it_is() -> None:
    up = product_state([[1.0, 0.0]] * 4)
    found = dmrg(heisenberg(-np.ones(3)), up, update=1)
    assert (found.steps, found.converged) == (1, True)
    assert abs(float(found.energy) + 0.75) < 1e-14


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_fourfold_ground_state_of_aklt_is_found_and_its_gradient_through_the_loop_refused(seed: int) -> None:
    J = us.tensor(np.ones(5))
    operator = aklt(J)
    found = dmrg(operator, random_mps(6, 3, 3, seed=seed), rank=8)
    assert abs(float(found.energy) + 2 / 3 * 5) < 1e-12
    assert found.state.ranks == (2,) * 5
    # Which of the four states it is was decided by the start, at every update.
    with pytest.raises(GaugeError):
        found.energy.grad(J).eval()
    held = expectation(us.stop_gradient(found.state), operator)
    np.testing.assert_allclose(held.grad(J).eval(), -2 / 3, rtol=0, atol=1e-12)


def test_a_field_makes_the_ground_state_of_an_odd_chain_unique() -> None:
    J, h = us.tensor(np.ones(6)), us.tensor(0.1)
    found = dmrg(heisenberg(J, fields=h), random_mps(7, 2, 4), rank=8, tol=1e-11)
    gradient, magnetisation = us.eval(found.energy.grad((J, h)))
    assert abs(float(found.energy) - (bethe_energy(7) - 0.05)) < 1e-11
    assert abs(magnetisation + 0.5) < 1e-10
    np.testing.assert_allclose(gradient, bond_correlations(found), rtol=0, atol=1e-10)


# --- the interface ---------------------------------------------------------------------------------------------------


def test_every_sweep_is_shown_and_what_it_shows_is_the_history() -> None:
    seen = []
    operator = heisenberg(uneven(5))

    def on_step(step: int, state: MPS, values: dict[str, float]) -> None:
        seen.append((step, float(expectation(state, operator)), values))

    found = dmrg(operator, random_mps(6, 2, 2), rank=8, on_step=on_step)
    assert [step for step, _, _ in seen] == list(range(1, found.steps + 1))
    assert tuple(values for _, _, values in seen) == found.history
    assert all(abs(energy - values["energy"]) < 1e-12 for _, energy, values in seen)
    assert set(found.history[0]) == {"energy", "change", "truncation", "rank"}


def test_what_on_step_raises_passes_through() -> None:
    def on_step(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dmrg(heisenberg(np.ones(3)), random_mps(4, 2, 2), on_step=on_step)


def test_too_few_sweeps_are_no_error_but_visible() -> None:
    found = dmrg(heisenberg(np.ones(5)), random_mps(6, 2, 2), rank=4, max_steps=1)
    assert (found.steps, found.converged, len(found.history)) == (1, False, 1)


def lowering(sites: int) -> MPO:
    return MPO([us.tensor(spin_operators().down).reshape(1, 2, 2, 1)] * sites)


@pytest.mark.parametrize(
    ("operator", "start", "options", "error", "words"),
    [
        (lowering(4), random_mps(4, 2, 2), {}, ArgumentError, "not Hermitian"),
        (heisenberg(np.ones(4)), random_mps(4, 2, 2), {}, ShapeError, "5 and 4 sites"),
        (heisenberg(np.ones(3), spin=1), random_mps(4, 2, 2), {}, ShapeError, "size 3 in one"),
        (MPO([np.eye(2).reshape(1, 2, 2, 1)]), random_mps(1, 2, 1), {}, ShapeError, "at least 2 sites"),
        (heisenberg(np.ones(3)), random_mps(4, 2, 2), {"rank": 0}, ArgumentError, "rank must be at least 1"),
        (heisenberg(np.ones(3)), random_mps(4, 2, 2), {"update": 3}, ArgumentError, "update must be 1 or 2"),
        (heisenberg(np.ones(3)), random_mps(4, 2, 2), {"cutoff": -1.0}, ArgumentError, "cutoff"),
        (heisenberg(np.ones(3)), random_mps(4, 2, 2), {"tol": np.nan}, ArgumentError, "tol"),
        (heisenberg(np.ones(3)), random_mps(4, 2, 2), {"max_steps": 0}, ArgumentError, "max_steps"),
        (heisenberg(np.ones(3)), random_mps(4, 2, 2), {"solve_tol": -1.0}, ArgumentError, "solve_tol"),
        (heisenberg(np.ones(3)), random_mps(4, 2, 2) * 0.0, {}, ArgumentError, "norm 0"),
        (heisenberg(np.ones(3)), random_mps(4, 2, 2) * np.nan, {}, ArgumentError, "tensor 0 of the start"),
        (heisenberg(np.ones(3)) * np.nan, random_mps(4, 2, 2), {}, ArgumentError, "tensor 0 of the MPO"),
        (np.ones(3), random_mps(4, 2, 2), {}, ArgumentError, "hamiltonian must be an MPO"),
        (heisenberg(np.ones(3)), np.ones(4), {}, ArgumentError, "start must be an MPS"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    operator: Any, start: Any, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        dmrg(operator, start, **options)
