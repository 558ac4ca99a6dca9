"""States of a chain, against the vectors they stand for, closed forms and finite differences."""

from __future__ import annotations

import math

import numpy as np
import pytest

import unspool as us
from unspool.errors import ArgumentError, DTypeError, GaugeError, RankError, ShapeError, StructureError
from unspool.networks import models
from unspool.networks.chain import (
    MPO,
    MPS,
    apply,
    bond_expectation,
    compress,
    correlations,
    expectation,
    local_expectation,
    overlap,
    product_state,
    random_mps,
)
from unspool.networks.terms import mpo_from_terms

DTYPES = pytest.mark.parametrize("dtype", [np.float64, np.complex128], ids=["real", "complex"])
SIZES = pytest.mark.parametrize(("sites", "rank"), [(1, 1), (2, 1), (2, 2), (5, 1), (5, 3), (6, 8)])
Z = np.diag([1.0, -1.0])


def untidy(sites, rank, dtype=np.float64, seed=0, physical=2):
    """A state in no canonical form, with a norm of its own; its tensors are leaves."""
    rng = np.random.default_rng(seed)
    shapes = [
        (tensor.shape[0], tensor.shape[1], tensor.shape[2]) for tensor in random_mps(sites, physical, rank).tensors
    ]
    arrays = [rng.normal(size=shape) for shape in shapes]
    if dtype == np.complex128:
        arrays = [array + 1j * rng.normal(size=array.shape) for array in arrays]
    return MPS([us.tensor(array) for array in arrays])


def vector(mps):
    """The state by NumPy's einsum, tensor by tensor."""
    whole = np.ones((1, 1))
    for tensor in us.eval(mps.tensors):
        whole = np.einsum("xl,lpr->xpr", whole, tensor).reshape(-1, tensor.shape[2])
    return whole[:, 0]


def schmidt(psi, bond, sites):
    values = np.linalg.svd(psi.reshape(2**bond, 2 ** (sites - bond)), compute_uv=False)
    return values / np.linalg.norm(values)


def directional(loss, mps, seed=7, step=1e-5):
    """The gradient of a loss along a random direction, and the same by central differences of fourth order."""
    rng = np.random.default_rng(seed)
    arrays = us.eval(mps.tensors)
    moves = [rng.normal(size=array.shape) for array in arrays]
    if any(np.iscomplexobj(array) for array in arrays):
        moves = [move + 1j * rng.normal(size=move.shape) for move in moves]
    slopes = us.eval(us.grad(loss)(mps)).tensors
    slope = sum(np.sum((np.conj(g) * move).real) for g, move in zip(slopes, moves, strict=True))

    def at(size):
        moved = [us.tensor(array + size * move) for array, move in zip(arrays, moves, strict=True)]
        return float(loss(MPS(moved)))

    difference = (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step)
    return slope, difference


def assert_same_gradient(one, other, mps, atol=1e-13):
    for mine, theirs in zip(us.eval(us.grad(one)(mps)).tensors, us.eval(us.grad(other)(mps)).tensors, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=atol)


# --- what a state is -------------------------------------------------------------------------------------------------


@DTYPES
@SIZES
def test_a_state_is_the_vector_it_stands_for(sites, rank, dtype):
    state = untidy(sites, rank, dtype)
    np.testing.assert_allclose(state.dense().eval(), vector(state), atol=1e-12)
    assert (state.sites, len(state), state.physical) == (sites, sites, (2,) * sites)


def test_a_product_state_is_a_kronecker_product_and_differentiable_in_its_vectors():
    vectors = us.tensor(np.random.default_rng(0).normal(size=(3, 2)))
    state = product_state(vectors)
    a, b, c = vectors.eval()
    np.testing.assert_allclose(state.dense().eval(), np.kron(a, np.kron(b, c)), atol=1e-15)
    assert state.ranks == (1, 1)
    # The norm is the product of norms, with the gradient v·(norm / |v|²) in each.
    norms = np.linalg.norm(vectors.eval(), axis=1)
    want = vectors.eval() * (np.prod(norms) / norms**2)[:, None]
    np.testing.assert_allclose(state.norm().grad(vectors).eval(), want, atol=1e-14)


@DTYPES
def test_a_random_state_is_normalised_right_canonical_and_repeatable(dtype):
    state, again, other = (random_mps(7, 2, 5, seed=seed, dtype=dtype) for seed in (3, 3, 4))
    assert state.ranks == (2, 4, 5, 5, 4, 2)
    assert float(state.norm()) == pytest.approx(1.0, abs=1e-14)
    for tensor, same in zip(us.eval(state.tensors), us.eval(again.tensors), strict=True):
        np.testing.assert_array_equal(tensor, same)
        rows = tensor.reshape(tensor.shape[0], -1)
        np.testing.assert_allclose(rows @ rows.conj().T, np.eye(len(rows)), atol=1e-14)
        assert tensor.dtype == dtype
    assert abs(overlap(state, other).item()) < 0.9


def test_single_precision_stays_single_precision():
    state = random_mps(4, 2, 3, dtype=np.float32)
    energy = expectation(state, MPO([us.eye(2, dtype=np.float32).reshape(1, 2, 2, 1)] * 4))
    for tensor in (state.norm(), state.entropies(), energy, compress(state, 2, 1e-6).truncation):
        assert tensor.dtype == np.float32


def test_sites_may_have_spaces_of_different_sizes():
    state = random_mps(4, [2, 3, 1, 2], 8)
    assert state.physical == (2, 3, 1, 2) and state.ranks == (2, 2, 2)
    assert float(overlap(state, state)) == pytest.approx(1.0, abs=1e-14)


def test_states_are_trees_that_can_be_evaluated_and_differentiated():
    state = untidy(3, 2)
    evaluated = us.eval(state)
    assert isinstance(evaluated, MPS) and isinstance(evaluated.tensors[0], np.ndarray)
    value, slopes = us.value_and_grad(lambda s: s.norm())(state)
    assert isinstance(slopes, MPS) and slopes.ranks == state.ranks
    # Euler: the norm is of degree one in every tensor.
    for slope, tensor in zip(slopes.tensors, state.tensors, strict=True):
        assert float(us.sum(slope * tensor)) == pytest.approx(float(value), rel=1e-13)


@DTYPES
@SIZES
def test_states_are_added_subtracted_and_scaled_like_vectors(sites, rank, dtype):
    one, other = untidy(sites, rank, dtype), untidy(sites, max(1, rank - 1), dtype, seed=1)
    psi, phi = vector(one), vector(other)
    np.testing.assert_allclose(vector(one + other), psi + phi, atol=1e-12)
    np.testing.assert_allclose(vector(us.tensor(2.0) * one - other / 4), 2 * psi - phi / 4, atol=1e-12)
    np.testing.assert_allclose(vector(np.float64(3.0) * -one), -3 * psi, atol=1e-12)
    np.testing.assert_allclose(vector(one.normalised()), psi / np.linalg.norm(psi), atol=1e-14)


@DTYPES
@SIZES
def test_norm_and_overlap_are_those_of_the_vectors(sites, rank, dtype):
    one, other = untidy(sites, rank, dtype), untidy(sites, rank, dtype, seed=1)
    psi, phi = vector(one), vector(other)
    assert one.norm().dtype == np.float64
    assert float(one.norm()) == pytest.approx(np.linalg.norm(psi), rel=1e-13)
    assert overlap(one, other).item() == pytest.approx(np.vdot(psi, phi), rel=1e-11)


@DTYPES
def test_the_gradients_of_norm_and_overlap_are_those_of_finite_differences(dtype):
    state, other = untidy(4, 3, dtype), untidy(4, 3, dtype, seed=1)
    for loss in (lambda s: s.norm(), lambda s: us.real(overlap(other, s)), lambda s: us.abs(overlap(s, other))):
        slope, difference = directional(loss, state)
        assert slope == pytest.approx(difference, rel=1e-9)


# --- canonical form --------------------------------------------------------------------------------------------------


@DTYPES
@SIZES
def test_canonical_form_keeps_the_state_and_makes_isometries_around_its_centre(sites, rank, dtype):
    state = untidy(sites, rank, dtype)
    for center in range(sites):
        mixed = state.canonical(center)
        np.testing.assert_allclose(vector(mixed), vector(state), atol=1e-11)
        for site, tensor in enumerate(us.eval(mixed.tensors)):
            if site < center:
                columns = tensor.reshape(-1, tensor.shape[2])
                np.testing.assert_allclose(columns.conj().T @ columns, np.eye(tensor.shape[2]), atol=1e-14)
            if site > center:
                rows = tensor.reshape(tensor.shape[0], -1)
                np.testing.assert_allclose(rows @ rows.conj().T, np.eye(tensor.shape[0]), atol=1e-14)
        assert float(us.linalg.norm(mixed.tensors[center])) == pytest.approx(float(state.norm()), rel=1e-13)


@DTYPES
@SIZES
def test_canonical_form_changes_no_gradient_of_a_function_of_the_state(sites, rank, dtype):
    state, other = untidy(sites, rank, dtype), untidy(sites, rank, dtype, seed=1)
    for center in range(sites):
        assert_same_gradient(
            lambda s, center=center: us.real(overlap(other, s.canonical(center))),
            lambda s: us.real(overlap(other, s)),
            state,
            atol=1e-11,
        )


def test_bonds_that_are_too_large_for_a_site_shrink():
    wide = untidy(3, 2) + untidy(3, 2, seed=1)
    assert wide.ranks == (4, 4)
    assert wide.canonical(2).ranks == (2, 4) and wide.canonical(0).ranks == (4, 2)


def test_a_gradient_through_an_isometry_that_is_not_determined_is_refused():
    state, other = untidy(4, 2), untidy(4, 2, seed=1)
    with pytest.raises(RankError, match="linearly independent"):
        us.eval(us.grad(lambda s: overlap(other, (s + s).canonical(3)))(state))


# --- entanglement ----------------------------------------------------------------------------------------------------


@DTYPES
@SIZES
def test_schmidt_values_and_entropies_are_those_of_the_vector(sites, rank, dtype):
    state = untidy(sites, rank, dtype)
    psi, values = vector(state), state.schmidt_values()
    assert state.entropies().shape == (sites - 1,)
    for bond, (s, entropy) in enumerate(zip(values, state.entropies().eval(), strict=True), start=1):
        want = schmidt(psi, bond, sites)[: s.shape[0]]
        np.testing.assert_allclose(s.eval(), want, atol=1e-13)
        weights = want[want > 0] ** 2
        assert entropy == pytest.approx(-np.sum(weights * np.log(weights)), abs=1e-12)


@DTYPES
def test_the_gradient_of_the_entropies_is_that_of_finite_differences(dtype):
    state = untidy(5, 3, dtype)
    weights = np.array([1.0, -2.0, 0.5, 3.0])
    slope, difference = directional(lambda s: us.sum(weights * s.entropies()), state)
    assert slope == pytest.approx(difference, rel=1e-9)


def test_the_entropy_of_two_spins_has_its_closed_form_and_derivative():
    angle = us.tensor(0.3)
    up, down = product_state([[1.0, 0.0]] * 2), product_state([[0.0, 1.0]] * 2)
    entropy = (up * us.cos(angle) + down * us.sin(angle)).entropies()[0]
    p = math.cos(0.3) ** 2
    assert float(entropy) == pytest.approx(-p * math.log(p) - (1 - p) * math.log(1 - p), abs=1e-14)
    # dS/dp = ln((1 - p) / p), dp/dangle = -sin(2·angle)
    assert float(entropy.grad(angle)) == pytest.approx(-math.sin(0.6) * math.log((1 - p) / p), abs=1e-13)


@pytest.mark.parametrize("sites", [2, 4])
def test_a_maximally_entangled_state_is_a_maximum_of_the_entropy(sites):
    up, down = product_state([[1.0, 0.0]] * sites), product_state([[0.0, 1.0]] * sites)
    ghz = MPS([us.tensor(tensor.eval()) for tensor in (up + down).tensors])
    np.testing.assert_allclose(ghz.entropies().eval(), math.log(2), atol=1e-14)
    for slope in us.eval(us.grad(lambda s: us.sum(s.entropies()))(ghz)).tensors:
        np.testing.assert_allclose(slope, 0.0, atol=1e-13)


@DTYPES
@pytest.mark.parametrize("padding", ["none", "zeros", "copies"])
def test_a_product_state_has_no_entropy_and_no_slope_of_it_whatever_its_bonds(dtype, padding):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(4, 2)) + (1j * rng.normal(size=(4, 2)) if dtype == np.complex128 else 0.0)
    state = product_state(vectors)
    if padding == "zeros":
        pads = [(0, 1), (1, 1), (1, 1), (1, 0)]
        shaped = [((0, left), (0, 0), (0, right)) for left, right in pads]
        state = MPS([us.tensor(np.pad(t.eval(), pad)) for t, pad in zip(state.tensors, shaped, strict=True)])
    if padding == "copies":
        state = MPS([us.tensor(tensor.eval()) for tensor in (state + state).tensors])
    np.testing.assert_allclose(state.entropies().eval(), 0.0, atol=1e-15)
    for slope in us.eval(us.grad(lambda s: us.sum(s.entropies()))(state)).tensors:
        np.testing.assert_allclose(slope, 0.0, atol=1e-13)


@DTYPES
def test_bonds_that_are_larger_than_they_need_to_be_change_no_entropy_and_no_gradient(dtype):
    state = untidy(5, 3, dtype)
    np.testing.assert_allclose((state + state).entropies().eval(), state.entropies().eval(), atol=1e-13)
    assert_same_gradient(lambda s: us.sum((s + s).entropies()), lambda s: us.sum(s.entropies()), state, atol=1e-12)


# --- apply and compress ----------------------------------------------------------------------------------------------


@DTYPES
@pytest.mark.parametrize("sites", [2, 3, 6])
def test_applying_an_operator_is_the_product_of_matrix_and_vector(sites, dtype):
    state, H = untidy(sites, 3, dtype), models.heisenberg(np.ones(sites - 1), fields=0.3)
    applied = apply(H, state)
    np.testing.assert_allclose(vector(applied), H.dense().eval() @ vector(state), atol=1e-11)
    assert applied.ranks == tuple(a * b for a, b in zip(H.ranks, state.ranks, strict=True))


@DTYPES
@pytest.mark.parametrize("rank", [1, 2, 3, 5])
def test_the_truncation_is_exactly_the_error_of_the_state(rank, dtype):
    state = untidy(6, 8, dtype)
    small, truncation = compress(state, rank)
    psi, phi = vector(state), vector(small)
    assert max(small.ranks) == rank
    error = np.linalg.norm(psi - phi) ** 2 / np.linalg.norm(psi) ** 2
    assert float(truncation) == pytest.approx(error, rel=1e-12)
    # What is dropped is orthogonal to what is kept.
    assert float(small.norm()) ** 2 == pytest.approx((1 - error) * np.linalg.norm(psi) ** 2, rel=1e-12)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_with_one_bond_compression_is_the_best_approximation_of_its_rank(rank):
    state = random_mps(2, 4, 4)
    small, truncation = compress(state, rank)
    u, s, vh = np.linalg.svd(vector(state).reshape(4, 4))
    np.testing.assert_allclose(vector(small).reshape(4, 4), (u[:, :rank] * s[:rank]) @ vh[:rank], atol=1e-14)
    assert float(truncation) == pytest.approx(np.sum(s[rank:] ** 2), rel=1e-12)


def test_the_result_is_right_canonical():
    small = compress(untidy(6, 8), 3).state
    for tensor in us.eval(small.tensors)[1:]:
        rows = tensor.reshape(tensor.shape[0], -1)
        np.testing.assert_allclose(rows @ rows.T, np.eye(len(rows)), atol=1e-14)
    assert float(us.linalg.norm(small.tensors[0])) == pytest.approx(float(small.norm()), rel=1e-13)


def test_a_cutoff_keeps_what_is_above_it_on_every_bond():
    state = untidy(7, 8)
    for cutoff in (1e-1, 3e-1, 6e-1):
        small, truncation = compress(state, cutoff=cutoff)
        for values in small.schmidt_values():
            # Later cuts move the values of earlier ones, by no more than what they drop.
            assert values.eval()[-1] > (cutoff - math.sqrt(float(truncation))) * values.eval()[0]
    assert compress(state, cutoff=1.0).state.ranks == (1,) * 6


def test_a_cutoff_below_the_tolerance_for_equal_values_is_kept():
    # Multiplets are told by their own size: 1e-9 and 1e-11 are not equal beside the largest value 1.
    values = np.array([1.0, 1e-3, 1e-9, 1e-11])
    left, right = np.linalg.qr(np.random.default_rng(3).normal(size=(2, 4, 4)))[0]
    state = MPS([(left * values).reshape(1, 4, 4), right.reshape(4, 4, 1)])
    assert compress(state, cutoff=1e-10).state.ranks == (3,)
    assert compress(state, 3).state.ranks == (3,)


@DTYPES
def test_without_a_limit_nothing_but_redundancy_is_lost(dtype):
    state = untidy(5, 3, dtype)
    small, truncation = compress(state + state - state)
    assert small.ranks == state.ranks
    assert float(truncation) < 1e-28
    np.testing.assert_allclose(vector(small), vector(state), atol=1e-12)


@DTYPES
@SIZES
def test_lossless_compression_changes_no_gradient(sites, rank, dtype):
    state, other = untidy(sites, rank, dtype), untidy(sites, rank, dtype, seed=1)
    assert_same_gradient(
        lambda s: us.real(overlap(other, compress(s).state)), lambda s: us.real(overlap(other, s)), state, atol=1e-11
    )
    assert_same_gradient(
        lambda s: us.real(overlap(other, compress(s + s).state)),
        lambda s: 2 * us.real(overlap(other, s)),
        state,
        atol=1e-11,
    )


@DTYPES
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_the_gradient_through_a_truncation_is_that_of_finite_differences(rank, dtype):
    state, other = untidy(5, 4, dtype), untidy(5, 3, dtype, seed=1)
    for loss in (
        lambda s: us.real(overlap(other, compress(s, rank).state)),
        lambda s: compress(s, rank).truncation,
        lambda s: us.real(expectation(compress(s + other, rank).state, models.heisenberg(np.ones(4)))),
    ):
        slope, difference = directional(loss, state, step=1e-4)
        assert slope == pytest.approx(difference, rel=1e-7, abs=1e-9)


def test_the_gradient_through_an_operator_on_a_product_state_is_right_though_bonds_are_redundant():
    # On |↑↑↑↑⟩ the operator Z does nothing: most of the bonds of H|ψ⟩ are not needed, on the left and on the right.
    J, h = us.tensor(np.array([1.0, 0.7, 1.2])), us.tensor(np.array([0.5, 0.3, 0.9, 0.4]))
    weights = np.random.default_rng(0).normal(size=16)
    up = product_state([[1.0, 0.0]] * 4)
    applied = compress(apply(models.ising(J, h), up)).state
    assert max(applied.ranks) < 3
    found = us.eval(us.sum(weights * applied.dense()).grad((J, h)))
    want = us.eval(us.sum(weights * (models.ising(J, h).dense() @ up.dense())).grad((J, h)))
    for mine, theirs in zip(found, want, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-13)


@pytest.mark.parametrize(("rank", "kept"), [(1, 1), (2, 1), (3, 3), (4, 4)])
def test_a_rank_that_would_cut_a_multiplet_is_lowered(rank, kept):
    rng = np.random.default_rng(0)
    u, v = np.linalg.qr(rng.normal(size=(4, 4)))[0], np.linalg.qr(rng.normal(size=(4, 4)))[0]
    matrix = (u * [1.0, 0.5, 0.5, 0.2]) @ v
    state = MPS([us.tensor(matrix.reshape(1, 4, 4)), us.tensor(np.eye(4).reshape(4, 4, 1))])
    assert compress(state, rank).state.ranks == (kept,)
    # Between multiplets the gradient is that of the projectors on whole spaces, which is a function of the matrix.
    weights = rng.normal(size=16)
    slope = us.grad(lambda s: us.sum(weights * compress(s, rank).state.dense()))(state).tensors[0]
    leaf = us.tensor(matrix)
    want = us.sum(weights.reshape(4, 4) * us.linalg.low_rank(leaf, kept)).grad(leaf)
    np.testing.assert_allclose(slope.eval()[0], want.eval(), atol=1e-13)


def test_a_cut_through_equal_schmidt_values_has_a_value_but_no_derivative():
    up, down = product_state([[1.0, 0.0]] * 3), product_state([[0.0, 1.0]] * 3)
    ghz = MPS([us.tensor(tensor.eval()) for tensor in (up + down).tensors])
    assert compress(ghz, 1).state.ranks == (2, 2)
    state, truncation = compress(ghz, 1, keep_multiplets=False)
    assert state.ranks == (1, 1) and float(truncation) == pytest.approx(0.5, abs=1e-14)
    other = untidy(3, 2)
    with pytest.raises(GaugeError):
        us.eval(us.grad(lambda s: overlap(other, compress(s, 1, keep_multiplets=False).state))(ghz))


# --- expectation values ----------------------------------------------------------------------------------------------


@DTYPES
@pytest.mark.parametrize("sites", range(2, 9))
def test_an_energy_is_the_rayleigh_quotient_of_the_matrix(sites, dtype):
    state, H = untidy(sites, 4, dtype), models.heisenberg(np.ones(sites - 1), fields=0.3)
    psi, matrix = vector(state), H.dense().eval()
    want = np.vdot(psi, matrix @ psi) / np.vdot(psi, psi)
    assert expectation(state, H).item() == pytest.approx(want, rel=1e-10, abs=1e-13)


def test_an_operator_that_is_not_hermitian_has_a_complex_expectation_value():
    state, s = untidy(3, 2, np.complex128), models.spin_operators(0.5)
    raising = mpo_from_terms([(1.0, {1: s.up})], [2] * 3)
    psi = vector(state)
    want = np.vdot(psi, raising.dense().eval() @ psi) / np.vdot(psi, psi)
    assert expectation(state, raising).item() == pytest.approx(want, rel=1e-12)
    assert abs(want.imag) > 1e-2


def test_the_slope_of_an_energy_in_the_couplings_is_the_bond_correlation():
    J, state = us.tensor(np.ones(4)), untidy(5, 4)
    slopes = expectation(state, models.heisenberg(J)).grad(J).eval()
    np.testing.assert_allclose(slopes, bond_expectation(state, models.heisenberg_bonds([1.0])[0]).eval(), atol=1e-13)


@DTYPES
def test_the_slope_of_an_energy_in_the_state_is_that_of_finite_differences(dtype):
    slope, difference = directional(
        lambda s: us.real(expectation(s, models.xxz(np.ones(4), 0.5))), untidy(5, 3, dtype), step=1e-4
    )
    assert slope == pytest.approx(difference, rel=1e-8)


@DTYPES
def test_local_expectation_values_are_those_of_the_vector(dtype):
    state, operator = untidy(5, 3, dtype), np.random.default_rng(4).normal(size=(2, 2))
    psi = vector(state)
    found = local_expectation(state, operator).eval()
    for site in range(5):
        matrix = np.kron(np.kron(np.eye(2**site), operator), np.eye(2 ** (4 - site)))
        want = np.vdot(psi, matrix @ psi) / np.vdot(psi, psi)
        assert found[site] == pytest.approx(want, rel=1e-11)
        assert local_expectation(state, operator, site).item() == pytest.approx(want, rel=1e-11)
    each = local_expectation(state, [operator * site for site in range(5)]).eval()
    np.testing.assert_allclose(each, found * np.arange(5), rtol=1e-12)


@DTYPES
def test_bond_expectation_values_are_those_of_the_vector(dtype):
    state, operator = untidy(5, 3, dtype), np.random.default_rng(4).normal(size=(2, 2, 2, 2))
    psi = vector(state)
    found = bond_expectation(state, operator).eval()
    for bond in range(4):
        matrix = np.kron(np.kron(np.eye(2**bond), operator.reshape(4, 4)), np.eye(2 ** (3 - bond)))
        want = np.vdot(psi, matrix @ psi) / np.vdot(psi, psi)
        assert found[bond] == pytest.approx(want, rel=1e-11)
        assert bond_expectation(state, operator, bond).item() == pytest.approx(want, rel=1e-11)


def test_the_energies_of_the_bonds_sum_to_the_energy():
    state, couplings, fields = untidy(6, 4), np.arange(1.0, 6.0), np.linspace(-1, 1, 6)
    each = bond_expectation(state, models.heisenberg_bonds(couplings, fields=fields))
    whole = expectation(state, models.heisenberg(couplings, fields=fields))
    assert float(us.sum(each)) == pytest.approx(float(whole), abs=1e-12)


@DTYPES
@pytest.mark.parametrize("sites", [1, 2, 5])
def test_correlations_are_those_of_the_vector(sites, dtype):
    rng = np.random.default_rng(6)
    state, first, second = untidy(sites, 3, dtype), rng.normal(size=(2, 2)), rng.normal(size=(2, 2))
    psi, found = vector(state), correlations(state, first, second).eval()
    at = [
        lambda o, site=site: np.kron(np.kron(np.eye(2**site), o), np.eye(2 ** (sites - 1 - site)))
        for site in range(sites)
    ]
    for i in range(sites):
        for j in range(sites):
            want = np.vdot(psi, at[i](first) @ at[j](second) @ psi) / np.vdot(psi, psi)
            assert found[i, j] == pytest.approx(want, rel=1e-10, abs=1e-13)


def test_the_gradient_of_correlations_is_that_of_finite_differences():
    weights = np.random.default_rng(2).normal(size=(4, 4))
    slope, difference = directional(lambda s: us.sum(weights * correlations(s, Z, Z)), untidy(4, 3), step=1e-4)
    assert slope == pytest.approx(difference, rel=1e-8)


# --- a loop over all of it -------------------------------------------------------------------------------------------


def ground_energy_by_powers(couplings, rank=4, shift=2.0, tol=1e-6, most=60):
    """The power method on shift - H with states of bounded rank, until the energy is steady."""
    H = models.heisenberg(couplings)
    sites = H.sites
    step = mpo_from_terms([(shift, {})], [2] * sites) - H
    state = product_state([[1.0, 0.2], [0.1, 1.0]] * (sites // 2))
    last, steps = math.inf, 0
    for _ in range(most):
        state = compress(apply(step, state), rank).state.normalised()
        energy = expectation(state, H)
        steps += 1
        if abs(float(energy) - last) < tol:
            break
        last = float(energy)
    return energy, steps


def test_a_power_method_on_states_finds_the_ground_energy_and_its_slopes():
    J = us.tensor(np.array([1.0, 0.8, 1.1]))
    energy, steps = ground_energy_by_powers(J, tol=1e-12, most=200)
    values, vectors = np.linalg.eigh(models.heisenberg(J).dense().eval())
    assert 10 < steps < 200
    assert float(energy) == pytest.approx(values[0], abs=1e-11)
    ground = vectors[:, 0]
    want = [ground @ models.heisenberg(np.eye(3)[bond]).dense().eval() @ ground for bond in range(3)]
    np.testing.assert_allclose(energy.grad(J).eval(), want, atol=1e-9)


def test_before_it_has_converged_the_gradient_is_that_of_the_whole_loop():
    start, move, size = np.array([1.0, 0.8, 1.1, 0.9, 1.2]), np.array([0.3, -0.2, 0.5, 0.1, -0.4]), 1e-4
    J = us.tensor(start)
    energy, steps = ground_energy_by_powers(J, rank=3, tol=0.0, most=5)
    slope = energy.grad(J).eval() @ move

    def at(distance):
        return float(ground_energy_by_powers(start + distance * move, rank=3, tol=0.0, most=5)[0])

    difference = (8 * (at(size) - at(-size)) - (at(2 * size) - at(-2 * size))) / (12 * size)
    assert steps == 5
    assert slope == pytest.approx(difference, rel=1e-8)


@pytest.fixture(scope="module")
def within_a_tenth():
    """The gradient of the loop without a budget and within about a tenth of what it took, the report, what it took."""

    def program():
        J = us.tensor(np.ones(5))
        return ground_energy_by_powers(J, tol=0.0, most=24)[0].grad(J).eval()

    program()
    free = program()
    with us.memory("4GB") as everything:
        program()
    budget = everything.report().peak // 10
    while True:
        try:
            with us.memory(budget) as little:
                found = program()
            return free, found, little.report(), everything.report().peak
        except us.errors.BudgetError as error:  # a tenth of a short loop may be less than its widest step takes
            budget = error.least


def test_a_tenth_of_the_memory_changes_no_bit_of_the_gradient(within_a_tenth):
    free, found, report, everything = within_a_tenth
    np.testing.assert_array_equal(found, free)
    assert report.evaluations > report.steps
    assert report.budget < everything / 7
    assert report.peak < everything / 7


def test_a_tenth_of_the_memory_is_not_exceeded(within_a_tenth):
    _, _, report, _ = within_a_tenth
    assert report.peak <= report.budget


def test_no_budget_is_exceeded_by_what_views_of_factors_keep():
    # Of a factor that is cut to a rank a step keeps the whole array, which is seen only when values are counted.
    def program():
        J = us.tensor(np.ones(5))
        return ground_energy_by_powers(J, tol=0.0, most=24)[0].grad(J).eval()

    program()
    for budget in (172_000, 347_247, 395_226):
        with us.memory(budget) as block:
            program()
        assert block.report().peak <= budget


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: MPS([]), ArgumentError, "MPS needs at least one site"),
        (lambda: MPS(us.ones((1, 2, 1))), StructureError, "needs a sequence of tensors, one per site, got Tensor"),
        (lambda: MPS([np.ones((1, 2))]), ShapeError, r"must have the axes \(left, physical, right\)"),
        (lambda: MPS([np.ones((1, 2, 2)), np.ones((3, 2, 1))]), ShapeError, "bond between sites 0 and 1 of MPS"),
        (lambda: MPS([np.ones((2, 2, 1))]), ShapeError, "left end of MPS must have size 1, got 2"),
        (lambda: product_state([[1.0, np.nan]]), ArgumentError, "vector 0 must be finite"),
        (lambda: product_state(np.ones(3)), ShapeError, r"axes \(sites, physical\)"),
        (lambda: product_state([[1.0], [[1.0]]]), ShapeError, "vector 1 must have one axis"),
        (lambda: product_state([]), ArgumentError, "at least one site"),
        (lambda: random_mps(0, 2, 2), ArgumentError, "sites must be at least 1, but is 0"),
        (lambda: random_mps(4, 2, 0), ArgumentError, "rank must be at least 1, but is 0"),
        (lambda: random_mps(4, [2, 2], 3), ShapeError, "a size for each of 4 sites, got 2"),
        (lambda: random_mps(4, 0, 3), ArgumentError, "physical must be at least 1"),
        (lambda: random_mps(4, 2, 3, dtype=np.int64), DTypeError, "must be real or complex floating point"),
        (lambda: untidy(3, 2) + untidy(4, 2), ShapeError, "same length, got 3 and 4 sites"),
        (lambda: overlap(untidy(3, 2), untidy(3, 2, physical=3)), ShapeError, "site 0 has size 2 in one, 3 in the"),
        (lambda: expectation(untidy(3, 2), models.ising(np.ones(3), 1.0)), ShapeError, "got 3 and 4 sites"),
        (lambda: apply(models.aklt(np.ones(2)), untidy(3, 2)), ShapeError, "apply needs the same spaces"),
        (lambda: untidy(3, 2).canonical(3), ArgumentError, "center must be from -3 to 2, but is 3"),
        (lambda: untidy(3, 2).canonical(0.5), ArgumentError, "center must be an integer, but is 0.5"),
        (lambda: compress(untidy(3, 2), 0), ArgumentError, "rank must be at least 1, but is 0"),
        (lambda: compress(untidy(3, 2), cutoff=-1.0), ArgumentError, "cutoff must be finite and not negative"),
        (lambda: compress(untidy(3, 2) * 0.0), ArgumentError, "norm of the state must be positive"),
        (lambda: compress(untidy(3, 2) * np.nan), ArgumentError, "norm of the state must be positive"),
        (lambda: local_expectation(untidy(3, 2), np.eye(3)), ShapeError, r"at site 0 must have shape \(2, 2\)"),
        (lambda: local_expectation(untidy(3, 2), Z, 3), ArgumentError, "site must be from -3 to 2"),
        (lambda: local_expectation(untidy(3, 2), [Z, Z]), ShapeError, "there are 3 sites, got 2 operators"),
        (lambda: bond_expectation(untidy(3, 2), np.eye(4)), ShapeError, r"must have shape \(2, 2, 2, 2\)"),
        (lambda: bond_expectation(untidy(3, 2), np.ones((2,) * 4), 2), ArgumentError, "bond must be from -2 to 1"),
        (lambda: correlations(untidy(3, 2), Z, np.eye(3)), ShapeError, r"second has shape \(3, 3\)"),
        (lambda: random_mps(30, 2, 2).dense(), ArgumentError, "has 1073741824 entries"),
        (lambda: models.ising(np.ones(29), 1.0).dense(), ArgumentError, "dense form of this MPO"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_was_wrong(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_state_cannot_be_changed_or_mixed_with_an_operator():
    state, H = untidy(2, 2), models.ising([1.0], 1.0)
    with pytest.raises(AttributeError):
        state.tensors = ()
    for mix in (lambda: state + H, lambda: state * state, lambda: state / H, lambda: state + 1.0, lambda: state - 1.0):
        with pytest.raises(TypeError):
            mix()
