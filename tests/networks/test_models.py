"""Chain Hamiltonians and sums of local terms, against matrices that NumPy's Kronecker products make."""

from __future__ import annotations

from functools import reduce
from itertools import pairwise

import numpy as np
import pytest

import unspool as us
from unspool.errors import ArgumentError, ShapeError
from unspool.networks import models
from unspool.networks.operators import MPO
from unspool.networks.terms import mpo_from_bonds, mpo_from_terms

X, Y, Z = np.array([[0, 1], [1, 0]]), np.array([[0, -1j], [1j, 0]]), np.diag([1, -1])


def on_chain(sizes, placed):
    """The product of matrices at some sites and identities elsewhere, as one matrix."""
    return reduce(np.kron, [placed.get(site, np.eye(size)) for site, size in enumerate(sizes)])


def spins(spin):
    s = models.spin_operators(spin)
    return [s.x, s.y, s.z]


def dense_heisenberg(couplings, spin=0.5, fields=None, anisotropy=None):
    sites, matrices = len(couplings) + 1, spins(spin)
    sizes = [len(matrices[2])] * sites
    ratio = np.ones(sites - 1) if anisotropy is None else np.broadcast_to(anisotropy, sites - 1)
    total = 0.0
    for bond, coupling in enumerate(couplings):
        for matrix, factor in zip(matrices, (1.0, 1.0, ratio[bond]), strict=True):
            total = total + coupling * factor * on_chain(sizes, {bond: matrix, bond + 1: matrix})
    for site, field in enumerate([] if fields is None else fields):
        total = total - field * on_chain(sizes, {site: matrices[2]})
    return total


def dense_ising(couplings, fields):
    sizes = [2] * len(fields)
    total = sum(-c * on_chain(sizes, {b: Z, b + 1: Z}) for b, c in enumerate(couplings))
    return total + sum(-h * on_chain(sizes, {site: X}) for site, h in enumerate(fields))


def dense_bonds(bonds):
    size = bonds[0].shape[0]
    sites = len(bonds) + 1
    total = 0.0
    for place, bond in enumerate(bonds):
        matrix = bond.eval().reshape(size**2, size**2)
        total = total + np.kron(np.kron(np.eye(size**place), matrix), np.eye(size ** (sites - 2 - place)))
    return total


def numbers(count, seed=0):
    return np.random.default_rng(seed).normal(size=count)


# --- spins -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spin", [0.5, 1, 1.5, 2])
def test_spin_matrices_obey_the_algebra_of_angular_momentum(spin):
    s = models.spin_operators(spin)
    np.testing.assert_allclose(s.x @ s.y - s.y @ s.x, 1j * s.z, atol=1e-14)
    np.testing.assert_allclose(s.y @ s.z - s.z @ s.y, 1j * s.x, atol=1e-14)
    np.testing.assert_allclose(s.x @ s.x + s.y @ s.y + s.z @ s.z, spin * (spin + 1) * s.identity, atol=1e-14)
    np.testing.assert_allclose(s.up, s.x + 1j * s.y, atol=1e-15)
    np.testing.assert_array_equal(s.down, s.up.T)


@pytest.mark.parametrize("spin", [0, -0.5, 0.7, np.nan, np.inf])
def test_a_spin_that_is_no_multiple_of_one_half_is_refused(spin):
    with pytest.raises(ArgumentError, match="spin must be a positive multiple of 1/2"):
        models.spin_operators(spin)


# --- the models ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sites", [2, 3, 4, 7])
def test_the_heisenberg_chain_of_spins_one_half_is_the_sum_of_its_terms(sites):
    couplings, fields = numbers(sites - 1), numbers(sites, 1)
    want = dense_heisenberg(couplings, fields=fields)
    H = models.heisenberg(couplings, fields=fields)
    np.testing.assert_allclose(H.dense().eval(), want, atol=1e-14)
    np.testing.assert_allclose(dense_bonds(models.heisenberg_bonds(couplings, fields=fields)), want, atol=1e-14)
    assert max(H.ranks) <= 5


@pytest.mark.parametrize("spin", [1, 1.5])
def test_the_heisenberg_chain_of_larger_spins_is_the_sum_of_its_terms(spin):
    couplings = numbers(2)
    want = dense_heisenberg(couplings, spin)
    np.testing.assert_allclose(models.heisenberg(couplings, spin).dense().eval(), want, atol=1e-13)
    np.testing.assert_allclose(dense_bonds(models.heisenberg_bonds(couplings, spin)), want, atol=1e-13)


@pytest.mark.parametrize("anisotropy", [0.3, numbers(4, 3)], ids=["one", "per bond"])
def test_the_xxz_chain_is_the_sum_of_its_terms(anisotropy):
    couplings = numbers(4)
    want = dense_heisenberg(couplings, anisotropy=anisotropy)
    H = models.xxz(couplings, anisotropy)
    np.testing.assert_allclose(H.dense().eval(), want, atol=1e-14)
    np.testing.assert_allclose(dense_bonds(models.xxz_bonds(couplings, anisotropy)), want, atol=1e-14)
    assert max(H.ranks) == 5


@pytest.mark.parametrize("sites", [2, 3, 6])
def test_the_ising_chain_is_the_sum_of_its_terms(sites):
    couplings, fields = numbers(sites - 1), numbers(sites, 1)
    want = dense_ising(couplings, fields)
    H = models.ising(couplings, fields)
    np.testing.assert_allclose(H.dense().eval(), want, atol=1e-14)
    np.testing.assert_allclose(dense_bonds(models.ising_bonds(couplings, fields)), want, atol=1e-14)
    assert max(H.ranks) == 3


def test_one_field_for_all_sites_is_that_field_at_every_site():
    whole, one = models.ising(np.ones(3), np.full(4, 0.7)), models.ising(np.ones(3), 0.7)
    np.testing.assert_array_equal(one.dense().eval(), whole.dense().eval())


@pytest.mark.parametrize("sites", [2, 3, 4])
def test_the_aklt_chain_is_the_sum_of_its_terms(sites):
    couplings = numbers(sites - 1)
    want = 0.0
    for bond, coupling in enumerate(couplings):
        exchange = sum(on_chain([3] * sites, {bond: s, bond + 1: s}) for s in spins(1))
        want = want + coupling * (exchange + exchange @ exchange / 3)
    H = models.aklt(couplings)
    np.testing.assert_allclose(H.dense().eval(), want, atol=1e-13)
    np.testing.assert_allclose(dense_bonds(models.aklt_bonds(couplings)), want, atol=1e-13)
    assert max(H.ranks) <= 10


@pytest.mark.parametrize("sites", [2, 3, 4, 5])
def test_the_open_aklt_chain_has_four_ground_states_of_minus_two_thirds_per_bond(sites):
    energies = np.linalg.eigvalsh(models.aklt(np.ones(sites - 1)).dense().eval())
    np.testing.assert_allclose(energies[:4], -2 / 3 * (sites - 1), atol=1e-12)
    assert energies[4] > energies[3] + 0.1


# Open Bethe ansatz and exact diagonalisation agree on these; tensor-network pages print them too.
@pytest.mark.parametrize(("sites", "energy"), [(4, -1.6160254037844), (6, -2.4935771338879), (8, -3.3749325986879)])
def test_heisenberg_ground_energies_are_the_published_ones(sites, energy):
    found = np.linalg.eigvalsh(models.heisenberg(np.ones(sites - 1)).dense().eval())[0]
    assert found == pytest.approx(energy, abs=2e-13)


def test_a_hamiltonian_is_linear_in_its_couplings_and_its_derivative_is_their_term():
    J, h = us.tensor(numbers(3)), us.tensor(numbers(4, 1))
    weights = np.random.default_rng(5).normal(size=(16, 16))
    loss = us.sum(weights * models.heisenberg(J, fields=h).dense())
    slopes, field_slopes = us.eval(loss.grad((J, h)))
    for bond in range(3):
        term = dense_heisenberg(np.eye(3)[bond])
        assert slopes[bond] == pytest.approx(np.sum(weights * term.real), abs=1e-12)
    for site in range(4):
        term = -on_chain([2] * 4, {site: Z / 2})
        assert field_slopes[site] == pytest.approx(np.sum(weights * term), abs=1e-12)


def test_the_bond_form_has_the_same_derivatives_as_the_operator():
    J, h = us.tensor(numbers(3)), us.tensor(0.4)
    weights = np.random.default_rng(5).normal(size=(16, 16))
    one = us.sum(weights * models.ising(J, h).dense())
    other = us.sum(weights * mpo_from_bonds(models.ising_bonds(J, h)).dense())
    for mine, theirs in zip(us.eval(one.grad((J, h))), us.eval(other.grad((J, h))), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-12)


def test_tensors_in_the_bulk_of_a_uniform_chain_are_all_alike():
    H = models.heisenberg(np.ones(9), fields=0.3)
    assert H.ranks[1:-1] == (5,) * 7
    first, *others = [tensor.eval() for tensor in H.tensors[3:7]]
    for other in others:
        np.testing.assert_array_equal(other, first)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: models.heisenberg(np.array([1.0, np.nan])), "couplings must be finite, but 1 of its entries"),
        (lambda: models.heisenberg(2.0), "couplings must have 1 axes"),
        (lambda: models.heisenberg([]), "couplings must have an entry for each bond"),
        (lambda: models.heisenberg(np.ones(3), fields=np.ones(3)), r"fields must be a scalar or have shape \(4,\)"),
        (lambda: models.ising(np.ones(3), np.inf), "fields must be finite"),
        (lambda: models.ising_bonds(np.ones(3), np.ones(5)), r"fields must be a scalar or have shape \(4,\)"),
        (lambda: models.xxz(np.ones(3), np.ones(4)), r"anisotropy must be a scalar or have shape \(3,\)"),
        (lambda: models.aklt(np.ones((2, 2))), "couplings must have 1 axes"),
    ],
)
def test_couplings_that_make_no_chain_are_refused(make, message):
    with pytest.raises((ArgumentError, ShapeError), match=message):
        make()


# --- sums of terms ---------------------------------------------------------------------------------------------------


def test_terms_of_any_range_and_number_of_sites_are_summed():
    rng = np.random.default_rng(1)
    sizes = [2, 3, 2, 4, 2]
    places = [(0,), (3,), (0, 1), (1, 3), (0, 4), (1, 2, 4), (0, 1, 2, 3, 4), (2, 3), (0, 2, 4)]
    terms = [(rng.normal(), {site: rng.normal(size=(sizes[site],) * 2) for site in chosen}) for chosen in places]
    want = sum(coefficient * on_chain(sizes, placed) for coefficient, placed in terms)
    np.testing.assert_allclose(mpo_from_terms(terms, sizes).dense().eval(), want, atol=1e-12)


@pytest.mark.parametrize("sites", [6, 9])
def test_pairs_at_all_distances_take_no_more_than_half_the_chain(sites):
    rng = np.random.default_rng(2)
    terms = [(rng.normal(), {i: Z, j: Z}) for i in range(sites) for j in range(i + 1, sites)]
    H = mpo_from_terms(terms, [2] * sites)
    want = sum(coefficient * on_chain([2] * sites, placed) for coefficient, placed in terms)
    np.testing.assert_allclose(H.dense().eval(), want, atol=1e-12)
    # The numerical rank of a cut is what no exact form can be smaller than.
    for bond, rank in enumerate(H.ranks, start=1):
        left, right = 2**bond, 2 ** (sites - bond)
        matrix = want.reshape(left, right, left, right).transpose(0, 2, 1, 3).reshape(left**2, right**2)
        assert rank == np.linalg.matrix_rank(matrix)


def test_the_same_term_twice_is_that_term_with_the_sum_of_both_coefficients():
    twice = mpo_from_terms([(0.5, {0: Z, 2: X}), (us.tensor(1.5), {0: Z, 2: X})], [2] * 3)
    assert twice.ranks == (1, 1)
    np.testing.assert_allclose(twice.dense().eval(), 2 * on_chain([2] * 3, {0: Z, 2: X}))


def test_identities_in_a_term_need_no_memory():
    H = mpo_from_terms([(2.0, {0: Z, 1: np.eye(2)}), (3.0, {1: X, 2: np.eye(2)}), (5.0, {})], [2] * 3)
    want = 2 * on_chain([2] * 3, {0: Z}) + 3 * on_chain([2] * 3, {1: X}) + 5 * np.eye(8)
    np.testing.assert_allclose(H.dense().eval(), want)
    assert H.ranks == (2, 1)


def test_complex_terms_make_a_complex_operator():
    H = mpo_from_terms([(1.0, {0: Y}), (2.0j, {0: X, 1: Y})], [2, 2])
    np.testing.assert_allclose(H.dense().eval(), on_chain([2, 2], {0: Y}) + 2j * np.kron(X, Y))


def test_a_sum_can_be_differentiated_in_the_operators_too():
    t = us.tensor(np.array([[0.3, 1.0], [-0.4, 0.2]]))
    weights = np.random.default_rng(0).normal(size=(8, 8))

    def loss(matrix):
        return us.sum(weights * mpo_from_terms([(2.0, {0: matrix, 2: matrix}), (1.0, {1: matrix})], [2] * 3).dense())

    def dense(matrix):
        return np.sum(weights * (2 * on_chain([2] * 3, {0: matrix, 2: matrix}) + on_chain([2] * 3, {1: matrix})))

    value, slope = us.value_and_grad(loss)(t)
    assert float(value) == pytest.approx(dense(t.eval()), abs=1e-12)
    # The loss is quadratic, so central differences are exact but for rounding.
    for place in np.ndindex(2, 2):
        step = np.zeros((2, 2))
        step[place] = 0.5
        difference = dense(t.eval() + step) - dense(t.eval() - step)
        assert slope.eval()[place] == pytest.approx(difference, abs=1e-12)


def test_one_site_is_a_chain_for_terms():
    np.testing.assert_allclose(mpo_from_terms([(2.0, {0: X}), (1.0, {0: Z})], [2]).dense().eval(), 2 * X + Z)


def test_pairs_of_neighbours_with_different_spaces_are_summed():
    rng = np.random.default_rng(3)
    sizes = [2, 3, 2, 2]
    bonds = [rng.normal(size=(p, q, p, q)) for p, q in pairwise(sizes)]
    want = 0.0
    for place, bond in enumerate(bonds):
        size = sizes[place] * sizes[place + 1]
        before, after = np.prod(sizes[:place], dtype=int), np.prod(sizes[place + 2 :], dtype=int)
        want = want + np.kron(np.kron(np.eye(before), bond.reshape(size, size)), np.eye(after))
    H = mpo_from_bonds(bonds)
    np.testing.assert_allclose(H.dense().eval(), want, atol=1e-13)
    assert H.ranks == (5, 11, 5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mpo_from_terms([], [2, 2]), "needs terms and sites, got 0 terms"),
        (lambda: mpo_from_terms([(1.0, {})], []), "1 terms and 0 sites"),
        (lambda: mpo_from_terms([(1.0, {2: Z})], [2, 2]), "site of an operator must be from -2 to 1, but is 2"),
        (lambda: mpo_from_terms([(1.0, {1: Z, -1: Z})], [2, 2]), "two operators for the same site"),
        (lambda: mpo_from_terms([(1.0, {"a": Z})], [2, 2]), "must be an integer, but is 'a'"),
        (lambda: mpo_from_terms([(1.0, {1: Z})], [2, 3]), r"operator at site 1 must have shape \(3, 3\), got \(2, 2\)"),
        (lambda: mpo_from_terms([(np.ones(2), {0: Z})], [2]), r"term 0 must be a scalar, got shape \(2,\)"),
        (lambda: mpo_from_terms([(1.0, {0: Z}), (np.nan, {0: X})], [2]), "coefficient of term 1 must be finite"),
        (lambda: mpo_from_terms([(1.0, {0: Z * np.nan})], [2]), "operator at site 0 must be finite"),
        (lambda: mpo_from_terms([(1.0, {0: Z})], [0]), "physical size must be at least 1"),
        (lambda: mpo_from_bonds([]), "at least one pair"),
        (lambda: mpo_from_bonds([np.ones((4, 4))]), "bond 0 must have 4 axes"),
        (lambda: mpo_from_bonds([np.ones((2, 2, 3, 2))]), "bond 0 must have the axes"),
        (lambda: mpo_from_bonds([np.ones((2,) * 4), np.ones((3,) * 4)]), "bonds 0 and 1 share a site"),
    ],
)
def test_terms_that_make_no_operator_are_refused(make, message):
    with pytest.raises((ArgumentError, ShapeError), match=message):
        make()


# --- operators -------------------------------------------------------------------------------------------------------


def test_operators_are_added_subtracted_and_scaled_like_matrices():
    H, K = models.heisenberg(numbers(3)), models.ising(numbers(3, 1), numbers(4, 2))
    dense, other = H.dense().eval(), K.dense().eval()
    np.testing.assert_allclose((H + K).dense().eval(), dense + other, atol=1e-14)
    np.testing.assert_allclose((2 * H - K / 4).dense().eval(), 2 * dense - other / 4, atol=1e-14)
    np.testing.assert_allclose((-H).dense().eval(), -dense, atol=1e-14)


@pytest.mark.parametrize("sites", [2, 5, 60])
def test_every_model_is_hermitian(sites):
    ones = np.ones(sites - 1)
    for H in (models.heisenberg(ones, fields=0.3), models.xxz(ones, 0.5), models.ising(ones, 1.5), models.aklt(ones)):
        H.check_hermitian()
        assert H.hermitian_violation() < 1e-14


def test_the_norm_of_a_long_chain_does_not_overflow_the_check():
    # The norm is (4·√2)⁶⁰⁰ = 10⁴⁵¹, which is no number.
    product = MPO([4.0 * Z.reshape(1, 2, 2, 1)] * 600)
    product.check_hermitian()
    raising = MPO([*product.tensors[:-1], np.array([[0.0, 1.0], [0.0, 0.0]]).reshape(1, 2, 2, 1)])
    assert raising.hermitian_violation() == pytest.approx(np.sqrt(2), rel=1e-12)


def test_an_operator_that_is_not_hermitian_is_refused_with_the_size_of_the_violation():
    s = models.spin_operators(0.5)
    H = mpo_from_terms([(1.0, {0: s.up, 1: s.up}), (1.0, {2: s.z})], [2] * 3)
    dense = H.dense().eval()
    violation = np.linalg.norm(dense - dense.T) / np.linalg.norm(dense)
    assert H.hermitian_violation() == pytest.approx(violation, rel=1e-13)
    with pytest.raises(ArgumentError, match=f"not Hermitian: .* is {violation:.3g} of"):
        H.check_hermitian()
    H.check_hermitian(tol=2.0)


def test_a_violation_far_below_the_square_root_of_rounding_is_seen():
    s = models.spin_operators(0.5)
    H = models.heisenberg(np.ones(5)) + mpo_from_terms([(1e-11, {0: s.up})], [2] * 6)
    dense = H.dense().eval()
    violation = np.linalg.norm(dense - dense.T) / np.linalg.norm(dense)
    assert 1e-12 < violation < 1e-10
    assert H.hermitian_violation() == pytest.approx(violation, rel=1e-3)


def test_complex_operators_are_compared_with_their_adjoint():
    mpo_from_terms([(1.0, {0: Y, 1: Y}), (0.5, {1: Y})], [2, 2]).check_hermitian()
    with pytest.raises(ArgumentError, match="not Hermitian"):
        mpo_from_terms([(1.0j, {0: Y, 1: Y})], [2, 2]).check_hermitian()


def test_a_nan_in_an_operator_is_found_where_it_is():
    tensors = [np.eye(2).reshape(1, 2, 2, 1), np.full((1, 2, 2, 1), np.nan)]
    with pytest.raises(ArgumentError, match="tensor 1 of the MPO must be finite"):
        MPO(tensors).check_hermitian()


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ([np.ones((1, 2, 3, 1))], r"tensor 0 of MPO must be square in \(out, in\)"),
        ([np.ones((1, 2, 2))], r"must have the axes \(left, out, in, right\), got shape \(1, 2, 2\)"),
        ([np.ones((1, 2, 2, 2)), np.ones((3, 2, 2, 1))], "bond between sites 0 and 1 of MPO has size 2 on the left"),
        ([np.ones((1, 2, 2, 2))], "bond at the right end of MPO must have size 1, got 2"),
        ([np.ones((3, 2, 2, 1))], "bond at the left end of MPO must have size 1, got 3"),
    ],
)
def test_tensors_that_make_no_operator_are_refused(tensors, message):
    with pytest.raises(ShapeError, match=message):
        MPO(tensors)
