"""TEBD against dense evolution in NumPy and SciPy, finite differences of the whole loop, and known energies."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from scipy.linalg import expm, expm_frechet

import unspool as us
from unspool.errors import ArgumentError, BudgetError, ShapeError, UnspoolError
from unspool.networks.chain import MPS, local_expectation, product_state, random_mps
from unspool.networks.models import heisenberg_bonds, ising_bonds
from unspool.networks.tebd import tebd, trotter_steps

X = np.array([[0.0, 1.0], [1.0, 0.0]])
Z = np.diag([1.0, -1.0])
PLUS = [1.0, 1.0]
TILTED = [0.8, 0.6]

# --- dense references ------------------------------------------------------------------------------------------------


def dense_bonds(couplings: Any, fields: Any) -> list[Any]:
    """The Ising bond terms, with inner fields shared by two bonds, written without the library."""
    sites = len(fields)
    one = np.eye(2)
    terms = []
    for b, coupling in enumerate(couplings):
        left = fields[b] * (1.0 if b == 0 else 0.5)
        right = fields[b + 1] * (1.0 if b == sites - 2 else 0.5)
        terms.append(-coupling * np.kron(Z, Z) - left * np.kron(X, one) - right * np.kron(one, X))
    return terms


def on_bond(matrix: Any, bond: int, vector: Any) -> Any:
    return np.einsum("ab,xby->xay", matrix, vector.reshape(2**bond, 4, -1)).reshape(-1)


def hamiltonian(terms: Any) -> Any:
    sites = len(terms) + 1
    return sum(np.kron(np.kron(np.eye(2**b), t), np.eye(2 ** (sites - 2 - b))) for b, t in enumerate(terms))


def at_site(matrix: Any, site: int, sites: int) -> Any:
    return np.kron(np.kron(np.eye(2**site), matrix), np.eye(2 ** (sites - 1 - site)))


def product_vector(vector: Any, sites: int) -> Any:
    whole = np.ones(1)
    for _ in range(sites):
        whole = np.kron(whole, np.asarray(vector) / np.linalg.norm(vector))
    return whole


def dense_loop(sites: int, field: float, step: float, steps: int) -> tuple[float, float]:
    """Energy and dE/dh of the untruncated imaginary-time loop, by carrying the derivative of the vector along."""
    terms, slopes = (
        dense_bonds(np.ones(sites - 1), np.full(sites, field)),
        dense_bonds(np.zeros(sites - 1), np.ones(sites)),
    )
    gates = [expm_frechet(-step / 2 * term, -step / 2 * slope) for term, slope in zip(terms, slopes, strict=True)]
    vector = product_vector(PLUS, sites)
    moved = np.zeros_like(vector)
    for _ in range(steps):
        for b in [*range(sites - 1), *reversed(range(sites - 1))]:
            gate, slope = gates[b]
            vector, moved = on_bond(gate, b, vector), on_bond(gate, b, moved) + on_bond(slope, b, vector)
        norm = np.linalg.norm(vector)
        vector, moved = vector / norm, moved / norm
    applied = sum(on_bond(term, b, vector) for b, term in enumerate(terms))
    slope = vector @ sum(on_bond(term, b, vector) for b, term in enumerate(slopes))
    energy = vector @ applied
    return float(energy), float(slope + 2 * (moved @ applied - energy * (moved @ vector)))


def differences(f: Callable[[Any], float], x: Any, size: float = 1e-4) -> Any:
    """Central differences of fourth order."""
    found = np.zeros_like(x)
    for i in range(len(x)):
        e = np.zeros_like(x)
        e[i] = size
        found[i] = (f(x - 2 * e) - 8 * f(x - e) + 8 * f(x + e) - f(x + 2 * e)) / (12 * size)
    return found


# --- imaginary time --------------------------------------------------------------------------------------------------


def test_the_loop_of_the_transverse_ising_chain_has_the_tabulated_energy_and_the_gradient_of_the_dense_loop() -> None:
    h = us.tensor(1.5)
    found = tebd(ising_bonds(us.ones(9), us.ones(10) * h), product_state([PLUS] * 10), rank=16)
    energy, slope = dense_loop(10, 1.5, 0.1, 100)
    # Tabulated with ten decimals, and one unit of the last away from the loop without truncation.
    assert float(found.energy) == pytest.approx(-16.5352384915, abs=2e-10)
    assert float(found.energy) == pytest.approx(energy, abs=1e-11)
    assert float(found.energy.grad(h)) == pytest.approx(slope, abs=1e-9)
    assert found.steps == 100 and not found.converged
    assert max(found.state.ranks) <= 16


def test_the_dense_loop_is_differentiated_correctly() -> None:
    slope = differences(lambda x: dense_loop(6, float(x[0]), 0.1, 20)[0], np.array([1.5]), 1e-3)[0]
    assert dense_loop(6, 1.5, 0.1, 20)[1] == pytest.approx(slope, abs=1e-9)


def test_fourth_order_reaches_the_bethe_ansatz_energy_of_the_heisenberg_chain() -> None:
    start = product_state([[1.0, 0.0], [0.0, 1.0]] * 3)
    found = tebd(heisenberg_bonds(us.ones(5)), start, step=0.5, steps=60, order=4, tol=1e-9)
    assert found.converged and found.steps < 60
    assert float(found.energy) == pytest.approx(-2.4935771338879, abs=1e-6)


@pytest.mark.parametrize("rank", [None, 3, 1])
@pytest.mark.parametrize("imaginary", [True, False])
def test_gradients_at_random_couplings_are_those_of_finite_differences_of_the_whole_loop(
    rank: int | None, imaginary: bool
) -> None:
    rng = np.random.default_rng(1)
    couplings, fields = rng.normal(size=3), rng.normal(size=4)
    start = random_mps(4, 2, 4, seed=3)

    def loss(j: Any, h: Any) -> us.Tensor:
        found = tebd(ising_bonds(j, h), start, step=0.07, steps=3, rank=rank, imaginary=imaginary)
        return found.energy + us.real(local_expectation(found.state, Z, 2))

    j, h = us.tensor(couplings), us.tensor(fields)
    by_j, by_h = us.eval(loss(j, h).grad([j, h]))
    assert by_j == pytest.approx(differences(lambda x: float(loss(us.tensor(x), fields)), couplings), abs=1e-9)
    assert by_h == pytest.approx(differences(lambda x: float(loss(couplings, us.tensor(x))), fields), abs=1e-9)


def test_the_start_is_differentiated_too() -> None:
    angles = np.array([0.3, 1.1, -0.4])

    def loss(x: Any) -> us.Tensor:
        vectors = [us.stack([us.cos(x[i]), us.sin(x[i])]) for i in range(3)]
        return tebd(ising_bonds([1.0, 0.5], [0.3, 0.7, 0.2]), product_state(vectors), steps=3, rank=2).energy

    x = us.tensor(angles)
    assert loss(x).grad(x).eval() == pytest.approx(differences(lambda v: float(loss(us.tensor(v))), angles), abs=1e-9)


def test_second_and_forward_derivatives_pass_through_the_truncation() -> None:
    def energy(h: us.Tensor) -> us.Tensor:
        return tebd(ising_bonds(us.ones(3), us.ones(4) * h), product_state([TILTED] * 4), steps=3, rank=2).energy

    def slope(x: float) -> float:
        h = us.tensor(x)
        return float(energy(h).grad(h))

    h = us.tensor(1.2)
    first = energy(h).grad(h)
    assert float(us.jvp(energy, (h,), (us.tensor(1.0),))[1]) == pytest.approx(float(first), abs=1e-12)
    change = differences(lambda x: slope(float(x[0])), np.array([1.2]), 1e-3)[0]
    assert float(first.grad(h)) == pytest.approx(change, abs=1e-8)


# --- the truncation --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("imaginary", [True, False])
def test_every_cut_is_the_best_one_for_the_whole_state(imaginary: bool) -> None:
    couplings, fields = [0.9, -0.4, 1.1], [0.5, 0.3, -0.8, 0.2]
    start = random_mps(4, 2, 4, seed=5)
    found = tebd(ising_bonds(couplings, fields), start, step=0.2, steps=2, rank=2, imaginary=imaginary)
    vector = start.dense().eval()
    gates = [expm((-0.1 if imaginary else -0.1j) * term) for term in dense_bonds(couplings, fields)]
    for _ in range(2):
        for b in [0, 1, 2, 2, 1, 0]:
            u, s, vh = np.linalg.svd(on_bond(gates[b], b, vector).reshape(2 ** (b + 1), -1), full_matrices=False)
            vector = ((u[:, :2] * s[:2]) @ vh[:2]).reshape(-1)
    ours = found.state.dense().eval()
    assert abs(np.vdot(ours, vector)) == pytest.approx(np.linalg.norm(vector), rel=1e-12)


def test_the_result_is_normalised_and_isometric_to_the_right_of_its_first_site() -> None:
    found = tebd(ising_bonds([1.0] * 4, [0.7] * 5), random_mps(5, 2, 3), steps=3, rank=3, imaginary=False)
    first, *others = us.eval(found.state.tensors)
    assert np.linalg.norm(first) == pytest.approx(1.0, abs=1e-13)
    for tensor in others:
        matrix = tensor.reshape(tensor.shape[0], -1)
        assert matrix @ matrix.conj().T == pytest.approx(np.eye(len(matrix)), abs=1e-12)


def dimers(pairs: int) -> MPS:
    """A row of singlets."""
    left = np.eye(2).reshape(1, 2, 2)
    right = np.array([[0.0, 1.0], [-1.0, 0.0]]).reshape(2, 2, 1)
    return MPS(tuple(us.asarray(tensor) for _ in range(pairs) for tensor in (left, right)))


@pytest.mark.parametrize("rank", [2, 3, 5])
def test_multiplets_of_total_spin_are_kept_or_dropped_as_a_whole_and_have_gradients(rank: int) -> None:
    couplings = np.array([1.0, 0.8, 1.2, 0.7, 1.1])

    def run(j: Any) -> Any:
        return tebd(heisenberg_bonds(j), dimers(3), step=0.3, steps=2, rank=rank)

    j = us.tensor(couplings)
    found = run(j)
    for values in found.state.schmidt_values():
        sizes = np.unique(np.round(values.eval(), 7), return_counts=True)[1]
        assert set(sizes) <= {1, 2, 3, 4}
    # Between an odd and an even number of spins ½ every multiplet is even, so a rank of 3 keeps 2.
    assert all(bond % 2 == 0 for bond in found.state.ranks[::2])
    slopes = differences(lambda x: float(run(us.tensor(x)).energy), couplings)
    assert found.energy.grad(j).eval() == pytest.approx(slopes, abs=1e-8)


def test_a_rank_below_the_largest_multiplet_keeps_that_multiplet() -> None:
    found = tebd(heisenberg_bonds([1.0]), dimers(1), steps=1, rank=1)
    assert found.state.ranks == (2,)
    assert float(found.energy) == pytest.approx(-0.75, abs=1e-13)


def test_without_couplings_a_product_state_stays_one() -> None:
    h, j = us.tensor(0.7), us.tensor(0.0)
    found = tebd(ising_bonds(us.ones(3) * j, us.ones(4) * h), product_state([PLUS] * 4), steps=5)
    assert found.state.ranks == (1, 1, 1)
    assert all(values["truncation"] < 1e-30 for values in found.history)
    assert float(found.energy) == pytest.approx(-2.8, abs=1e-13)
    assert us.eval(found.energy.grad([h, j])) == pytest.approx([-4.0, 0.0], abs=1e-12)


def test_a_state_with_bonds_larger_than_its_rank_loses_the_zero_singular_values() -> None:
    padded = product_state([TILTED] * 4) + product_state([TILTED] * 4)
    assert padded.ranks == (2, 2, 2)
    h = us.tensor(0.7)
    found = tebd(ising_bonds([0.0] * 3, us.ones(4) * h), padded, steps=2, cutoff=0.0)
    plain = tebd(ising_bonds([0.0] * 3, us.ones(4) * h), product_state([TILTED] * 4), steps=2)
    assert found.state.ranks == (1, 1, 1)
    assert float(found.energy) == pytest.approx(float(plain.energy), abs=1e-13)
    assert float(found.energy.grad(h)) == pytest.approx(float(plain.energy.grad(h)), abs=1e-12)


# --- real time -------------------------------------------------------------------------------------------------------

SITES, TIME = 6, 0.8


def quench(step: float, order: int) -> tuple[float, float]:
    """⟨Z⟩ at a site after a time, and its derivative in a coupling that all bonds share."""
    j = us.tensor(0.9)
    bonds = ising_bonds(us.ones(SITES - 1) * j, us.ones(SITES) * 0.6)
    steps = round(TIME / step)
    found = tebd(
        bonds, product_state([TILTED] * SITES), step=step, steps=steps, order=order, imaginary=False, cutoff=1e-14
    )
    value = us.real(local_expectation(found.state, Z, 2))
    return float(value), float(value.grad(j))


def exact_quench() -> tuple[float, float]:
    whole = hamiltonian(dense_bonds([0.9] * (SITES - 1), [0.6] * SITES))
    slope = hamiltonian(dense_bonds([1.0] * (SITES - 1), [0.0] * SITES))
    evolution, change = expm_frechet(-1j * TIME * whole, -1j * TIME * slope)
    start, operator = product_vector(TILTED, SITES), at_site(Z, 2, SITES)
    ket, moved = evolution @ start, change @ start
    return float(np.vdot(ket, operator @ ket).real), float(2 * np.vdot(moved, operator @ ket).real)


@pytest.mark.parametrize(("order", "step", "error"), [(2, 0.1, 2e-3), (4, 0.2, 2e-4)])
def test_an_observable_and_its_derivative_converge_to_exact_evolution_with_the_order_of_the_scheme(
    order: int, step: float, error: float
) -> None:
    exact = np.array(exact_quench())
    coarse, fine = np.array(quench(step, order)) - exact, np.array(quench(step / 2, order)) - exact
    assert np.all(np.abs(coarse) < error)
    assert np.log2(np.abs(coarse / fine)) == pytest.approx([order, order], abs=0.15)


def disordered(model: str) -> tuple[Any, Any]:
    """The bonds of a chain of five spins without any symmetry to speak of, and its Hamiltonian as a matrix."""
    rng = np.random.default_rng(7)
    if model == "ising":
        couplings, fields = rng.uniform(0.5, 1.5, 4), rng.uniform(0.5, 1.5, 5)
        return ising_bonds(couplings, fields), hamiltonian(dense_bonds(couplings, fields))
    terms = [term + term.T for term in rng.uniform(-0.5, 0.5, (4, 4, 4))]
    return [term.reshape(2, 2, 2, 2) for term in terms], hamiltonian(terms)


def measured_orders(model: str, order: int, imaginary: bool, step: float) -> Any:
    """By which powers of the step the error of the whole state after a fixed time falls, between halved steps."""
    time = 0.8
    bonds, whole = disordered(model)
    start = random_mps(5, 2, 4, seed=3)
    exact = expm((-time if imaginary else -1j * time) * whole) @ start.dense().eval()
    exact /= np.linalg.norm(exact)
    errors = []
    for size in (step, step / 2, step / 4):
        steps = round(time / size)
        found = tebd(bonds, start, step=size, steps=steps, order=order, imaginary=imaginary, cutoff=0.0)
        errors.append(np.linalg.norm(found.state.dense().eval() - exact))
    assert errors[-1] > 1e-12  # of the scheme, not of rounding
    return np.log2(np.divide(errors[:-1], errors[1:]))


MODELS = pytest.mark.parametrize("model", ["ising", "random"])
TIMES = pytest.mark.parametrize("imaginary", [True, False], ids=["imaginary", "real"])


@MODELS
@TIMES
@pytest.mark.parametrize(("order", "step"), [(2, 0.1), (4, 0.2)])
def test_the_error_of_the_state_falls_with_the_order_that_is_promised(
    model: str, imaginary: bool, order: int, step: float
) -> None:
    assert measured_orders(model, order, imaginary, step) == pytest.approx([order, order], abs=0.2)


WRONG = 1.0 / (4.0 - 4.0**0.5)  # a square root in place of the third root


@pytest.mark.parametrize("parts", [(0.2,) * 5, (WRONG, WRONG, 1 - 4 * WRONG, WRONG, WRONG)], ids=["equal", "root"])
def test_a_fourth_order_that_is_only_second_would_be_seen(
    monkeypatch: pytest.MonkeyPatch, parts: tuple[float, ...]
) -> None:
    assert sum(parts) == pytest.approx(1.0)
    monkeypatch.setitem(inspect.unwrap(tebd).__globals__, "trotter_steps", lambda order: parts)
    assert measured_orders("ising", 4, False, 0.2) == pytest.approx([2, 2], abs=0.2)


def test_real_time_conserves_norm_and_energy() -> None:
    bonds = ising_bonds([1.0, 0.7, 1.3, 0.4], [0.3, 0.9, 0.5, 0.8, 0.6])
    found = tebd(bonds, product_state([TILTED] * 5), step=0.05, steps=20, order=4, imaginary=False)
    assert [values["norm"] for values in found.history] == pytest.approx([1.0] * 20, abs=1e-12)
    assert abs(found.history[-1]["energy"] - found.history[0]["energy"]) < 1e-6


def test_entanglement_grows_from_zero_as_in_exact_evolution() -> None:
    middle = [0.0]

    def watch(step: int, state: MPS, values: dict[str, float]) -> None:
        middle.append(float(state.entropies()[2]))

    bonds = ising_bonds([0.9] * (SITES - 1), [0.6] * SITES)
    tebd(bonds, product_state([TILTED] * SITES), step=0.1, steps=5, order=4, imaginary=False, on_step=watch)
    ket = expm(-0.5j * hamiltonian(dense_bonds([0.9] * 5, [0.6] * 6))) @ product_vector(TILTED, SITES)
    weights = np.linalg.svd(ket.reshape(8, 8), compute_uv=False) ** 2
    weights = weights[weights > 1e-30]
    assert np.all(np.diff(middle) > 0)
    assert middle[-1] == pytest.approx(float(-np.sum(weights * np.log(weights))), abs=1e-5)


# --- small chains, stopping, watching --------------------------------------------------------------------------------


@pytest.mark.parametrize("imaginary", [True, False])
def test_two_sites_have_no_trotter_error(imaginary: bool) -> None:
    found = tebd(ising_bonds([0.7], [0.4, 1.1]), product_state([TILTED] * 2), step=0.9, steps=2, imaginary=imaginary)
    (term,) = dense_bonds([0.7], [0.4, 1.1])
    ket = expm((-1.8 if imaginary else -1.8j) * term) @ product_vector(TILTED, 2)
    overlap = np.vdot(found.state.dense().eval(), ket)
    assert abs(overlap) == pytest.approx(np.linalg.norm(ket), rel=1e-12)


def test_sites_of_different_sizes_are_evolved() -> None:
    rng = np.random.default_rng(0)
    terms = [rng.normal(size=(6, 6)), rng.normal(size=(6, 6))]
    first, second = ((term + term.T) / 2 for term in terms)
    start = product_state([[1.0, 0.5], [0.2, 1.0, 0.4], [0.3, 1.0]])
    found = tebd([first.reshape(2, 3, 2, 3), second.reshape(3, 2, 3, 2)], start, step=0.3, steps=30, order=4)
    whole = np.kron(first, np.eye(2)) + np.kron(np.eye(2), second)
    assert float(found.energy) == pytest.approx(np.linalg.eigvalsh(whole)[0], abs=1e-5)


def test_it_stops_when_the_energy_has_settled_and_says_so() -> None:
    bonds = ising_bonds([1.0] * 3, [1.5] * 4)
    seen: list[tuple[int, float]] = []
    found = tebd(
        bonds,
        product_state([PLUS] * 4),
        steps=500,
        tol=1e-8,
        on_step=lambda step, state, values: seen.append((step, values["energy"])),
    )
    assert found.converged and found.steps == len(found.history) == len(seen) < 500
    assert abs(found.history[-1]["change"]) < 1e-8 <= abs(found.history[-2]["change"])
    assert seen == [(i + 1, values["energy"]) for i, values in enumerate(found.history)]
    assert found.history[-1]["time"] == pytest.approx(0.1 * found.steps)


def test_the_norm_of_an_imaginary_step_is_that_of_the_exponential_of_the_energy() -> None:
    found = tebd(ising_bonds([1.0] * 3, [1.5] * 4), product_state([PLUS] * 4), step=0.02, steps=300)
    assert np.log(found.history[-1]["norm"]) == pytest.approx(-0.02 * float(found.energy), abs=1e-5)


def test_no_step_at_all_returns_the_start_and_its_energy() -> None:
    found = tebd(ising_bonds([1.0] * 2, [0.5] * 3), product_state([PLUS] * 3), steps=0)
    assert found.steps == 0 and found.history == () and not found.converged
    assert float(found.energy) == pytest.approx(-1.5, abs=1e-14)


def test_what_a_watcher_raises_passes_through() -> None:
    def watch(step: int, state: MPS, values: dict[str, float]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tebd(ising_bonds([1.0], [0.5] * 2), product_state([PLUS] * 2), on_step=watch)


def test_the_parts_of_a_step_of_fourth_order_cancel_the_error_of_third_order() -> None:
    weights = np.array(trotter_steps(4))
    assert np.sum(weights) == pytest.approx(1.0, abs=1e-15)
    assert np.sum(weights**3) == pytest.approx(0.0, abs=1e-15)
    assert tuple(weights) == tuple(weights[::-1])


# --- memory ----------------------------------------------------------------------------------------------------------


def test_a_tenth_of_the_memory_changes_no_bit_of_the_gradient() -> None:
    def program(budget: int) -> tuple[Any, Any]:
        with us.memory(budget) as m:
            h = us.tensor(1.2)
            found = tebd(ising_bonds(us.ones(4), us.ones(5) * h), product_state([TILTED] * 5), steps=15, rank=4)
            gradient = found.energy.grad(h).eval()
        return gradient, m.report().peak

    program(4_000_000_000)
    expected, peak = program(4_000_000_000)
    budget = peak // 10
    try:
        gradient, used = program(budget)
    except BudgetError as error:  # the least that can work is more
        budget = error.least
        gradient, used = program(budget)
    assert budget < peak // 2 and used <= budget
    assert np.array_equal(gradient, expected)


# --- bad input -------------------------------------------------------------------------------------------------------


def bad_calls() -> Iterator[Any]:
    bonds, start = ising_bonds([1.0] * 2, [0.5] * 3), product_state([PLUS] * 3)
    crooked = np.zeros((2, 2, 2, 2))
    crooked[0, 0, 1, 1] = 1.0
    good = np.asarray(bonds[1].eval())
    yield pytest.param(bonds, start, {"rank": 0}, ArgumentError, "rank must be at least 1", id="rank 0")
    yield pytest.param(bonds, start, {"order": 3}, ArgumentError, "order must be 2 or 4", id="order 3")
    yield pytest.param(bonds, start, {"steps": -1}, ArgumentError, "steps must be at least 0", id="negative steps")
    yield pytest.param(bonds, start, {"step": 0.0}, ArgumentError, "step must be positive", id="step 0")
    yield pytest.param(bonds, start, {"step": np.nan}, ArgumentError, "step must be finite", id="step NaN")
    yield pytest.param(bonds, start, {"cutoff": -1.0}, ArgumentError, "cutoff must be finite", id="negative cutoff")
    yield pytest.param(
        bonds, start, {"tol": 1e-6, "imaginary": False}, ArgumentError, "conserves", id="tol in real time"
    )
    yield pytest.param(bonds, start, {"step": 1e6}, ArgumentError, "the gate of bond 0", id="gate overflows")
    yield pytest.param(bonds[:1], start, {}, ShapeError, "3 sites, 1 terms", id="too few bonds")
    yield pytest.param([], product_state([PLUS]), {}, ShapeError, "two sites", id="one site")
    yield pytest.param([np.eye(4), good], start, {}, ShapeError, "bond 0 must have shape", id="matrix for a term")
    yield pytest.param([crooked, good], start, {}, ArgumentError, "bond 0 is not Hermitian", id="not Hermitian")
    yield pytest.param([good * np.nan, good], start, {}, ArgumentError, "bond 0 must be finite", id="NaN in a term")
    broken = MPS((us.full((1, 2, 1), np.nan), *start.tensors[1:]))
    yield pytest.param(bonds, broken, {}, ArgumentError, "tensor 0 of the state must be finite", id="NaN in the state")
    yield pytest.param(bonds, product_state([[0.0, 0.0]] * 3), {}, ArgumentError, "norm 0", id="zero state")
    yield pytest.param(bonds, [PLUS] * 3, {}, ArgumentError, "must be an MPS", id="no MPS")


@pytest.mark.parametrize(("bonds", "start", "options", "error", "message"), list(bad_calls()))
def test_bad_input_is_refused_with_what_was_wrong(
    bonds: Any, start: Any, options: Any, error: type[UnspoolError], message: str
) -> None:
    with pytest.raises(error, match=message):
        tebd(bonds, start, **options)
