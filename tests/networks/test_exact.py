"""The references themselves: against exact diagonalisation, closed forms and published digits."""

from __future__ import annotations

import numpy as np
import pytest

from unspool.errors import ArgumentError, ShapeError
from unspool.networks import exact, models
from unspool.networks.chain import correlations, expectation, local_expectation
from unspool.networks.terms import mpo_from_terms


def ground_energy(mpo):
    return np.linalg.eigvalsh(mpo.dense().eval())[0]


# --- Heisenberg ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sites", range(2, 11))
def test_the_bethe_ansatz_gives_the_energy_of_exact_diagonalisation_for_even_and_odd_chains(sites):
    want = ground_energy(models.heisenberg(np.ones(sites - 1)))
    assert exact.bethe_energy(sites) == pytest.approx(want, abs=1e-13)


@pytest.mark.parametrize(
    ("sites", "energy"),
    [
        (12, -5.1420906328405),
        (16, -6.9117371455751),
        (20, -8.6824733343990),
        (30, -13.1113557586031),
        (40, -17.5414732999047),
        (50, -21.9721102812505),
        (64, -28.1754248597432),
        (100, -44.1277398932962),
        (200, -88.4415555695009),
    ],
)
def test_the_bethe_ansatz_reproduces_the_table_of_long_chains(sites, energy):
    assert exact.bethe_energy(sites) == pytest.approx(energy, abs=6e-14 * sites)


def test_the_energy_per_site_tends_to_that_of_the_infinite_chain():
    # The boundary cancels in the difference, and the rest falls like 1 / L².
    per_site = (exact.bethe_energy(1000) - exact.bethe_energy(500)) / 500
    assert per_site == pytest.approx(0.25 - np.log(2), abs=3e-6)


@pytest.mark.parametrize(("sites", "message"), [(1, "at least 2, but is 1"), (2.5, "must be an integer")])
def test_a_chain_without_bonds_has_no_bethe_ansatz(sites, message):
    with pytest.raises(ArgumentError, match=message):
        exact.bethe_energy(sites)


# --- Ising -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sites", "field", "energy"),
    [
        (10, 0.5, -9.7655039579272),
        (10, 1.0, -12.3814899996548),
        (10, 1.5, -16.5352549467592),
        (20, 0.5, -20.4002178670266),
        (20, 1.0, -25.1077971116238),
        (20, 1.5, -33.2545167536354),
        (50, 0.5, -52.3065494509739),
        (50, 1.0, -63.3011891554202),
        (50, 1.5, -83.4123033996769),
        (100, 0.5, -105.4837699496422),
        (100, 1.0, -126.9618767396807),
        (100, 1.5, -167.0086144764866),
    ],
)
def test_the_ising_table_is_reproduced(sites, field, energy):
    assert exact.ising_chain_energy(np.ones(sites - 1), field) == pytest.approx(energy, abs=2e-13 * sites / 10)


@pytest.mark.parametrize("sites", [2, 7, 100])
def test_the_critical_ising_chain_has_its_closed_form(sites):
    want = 1 - 1 / np.sin(np.pi / (2 * (2 * sites + 1)))
    assert exact.ising_chain_energy(np.ones(sites - 1), 1.0) == pytest.approx(want, rel=1e-14)


@pytest.mark.parametrize("sites", range(2, 9))
def test_any_couplings_and_fields_give_the_energy_of_exact_diagonalisation(sites):
    rng = np.random.default_rng(sites)
    couplings, fields = rng.normal(size=sites - 1), rng.normal(size=sites)
    want = ground_energy(models.ising(couplings, fields))
    assert exact.ising_chain_energy(couplings, fields) == pytest.approx(want, abs=1e-13)


@pytest.mark.parametrize(
    ("sites", "slope"),
    [(10, -7.3225505472971), (20, -13.8988518782266), (50, -33.2825738975714), (100, -65.3319815786840)],
)
def test_the_field_derivatives_of_the_table_are_reproduced(sites, slope):
    found = exact.ising_chain_gradient(np.ones(sites - 1), np.ones(sites)).fields.sum()
    assert found == pytest.approx(slope, abs=1e-12 * sites)


def test_derivatives_are_the_correlations_of_the_ground_state():
    rng = np.random.default_rng(0)
    couplings, fields = rng.uniform(0.5, 1.5, 5), rng.uniform(0.5, 1.5, 6)
    _, vectors = np.linalg.eigh(models.ising(couplings, fields).dense().eval())
    ground = vectors[:, 0]
    slopes = exact.ising_chain_gradient(couplings, fields)
    for bond in range(5):
        term = models.ising(np.eye(5)[bond], 0.0).dense().eval()
        assert slopes.couplings[bond] == pytest.approx(ground @ term @ ground, abs=1e-13)
    for site in range(6):
        term = models.ising(np.zeros(5), np.eye(6)[site]).dense().eval()
        assert slopes.fields[site] == pytest.approx(ground @ term @ ground, abs=1e-13)


def test_fields_that_do_not_fit_the_couplings_are_refused():
    with pytest.raises(ShapeError, match=r"fields must be a scalar or have shape \(4,\), got \(3,\)"):
        exact.ising_chain_energy(np.ones(3), np.ones(3))
    with pytest.raises(ArgumentError, match="couplings must be finite"):
        exact.ising_chain_gradient([1.0, np.nan], 1.0)


# --- AKLT ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [0, 1])
@pytest.mark.parametrize("right", [0, 1])
@pytest.mark.parametrize("sites", [2, 3, 20])
def test_the_aklt_state_has_minus_two_thirds_on_every_bond(sites, left, right):
    state = exact.aklt_state(sites, left, right)
    assert float(expectation(state, models.aklt(np.ones(sites - 1)))) == pytest.approx(-2 / 3 * (sites - 1), rel=1e-13)


def test_the_four_aklt_states_are_linearly_independent():
    states = [exact.aklt_state(4, left, right).dense().eval() for left in (0, 1) for right in (0, 1)]
    assert np.linalg.matrix_rank(np.stack(states)) == 4


def test_the_transfer_matrix_of_the_aklt_state_has_the_eigenvalues_one_and_three_times_minus_a_third():
    tensor = exact.aklt_state(3).tensors[1].eval()
    transfer = np.einsum("apc,bpd->abcd", tensor, tensor).reshape(4, 4)
    found = np.sort(np.linalg.eigvals(transfer).real)
    np.testing.assert_allclose(found, [-1 / 3, -1 / 3, -1 / 3, 1.0], atol=1e-14)


def test_aklt_correlations_decay_by_a_third_per_site_far_from_the_ends():
    state, s = exact.aklt_state(60), models.spin_operators(1)
    found = correlations(state, s.z, s.z).eval()
    for distance in (1, 2, 3, 4):
        assert found[28, 28 + distance] == pytest.approx(4 / 3 * (-1 / 3) ** distance, abs=1e-12)
    np.testing.assert_allclose(local_expectation(state, s.z).eval()[25:35], 0.0, atol=1e-11)


def test_the_string_order_of_the_aklt_state_is_minus_four_ninths_at_any_distance():
    state, s = exact.aklt_state(60), models.spin_operators(1)
    sign = np.diag([-1.0, 1.0, -1.0])
    for distance in (1, 2, 9):
        string = {28: s.z, **{28 + step: sign for step in range(1, distance)}, 28 + distance: s.z}
        operator = mpo_from_terms([(1.0, string)], [3] * 60)
        assert set(operator.ranks) == {1}
        assert float(expectation(state, operator)) == pytest.approx(-4 / 9, abs=1e-12)


def test_the_ends_of_the_aklt_chain_are_spins_one_half():
    with pytest.raises(ArgumentError, match=r"left must be 0 \(up\) or 1 \(down\), but is 2"):
        exact.aklt_state(5, 2)
