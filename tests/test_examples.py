"""The examples and the benchmark, run as a reader would run them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))


def run_script(*command: object) -> str:
    # Two workers with as many BLAS threads as there are cores would wait for each other; ∂ and ⟨ need an encoding.
    settings = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        capture_output=True,
        encoding="utf-8",
        check=False,
        env={**os.environ, **settings},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@cache
def printed(name: str) -> list[list[str]]:
    """What an example prints at small size: the words of each line."""
    return [line.split() for line in run_script(ROOT / "examples" / f"{name}.py", "--small").splitlines()]


def numbers_after(lines: list[list[str]], is_heading: Callable[[list[str]], bool]) -> Any:
    """Return the rows of numbers under the first line that is the heading of a table."""
    first = next(i for i, words in enumerate(lines) if is_heading(words))
    rows = []
    for words in lines[first + 1 :]:
        try:
            rows.append([float(word.replace(",", "")) for word in words])
        except ValueError:
            break
        if not words:
            rows.pop()
            break
    assert rows
    return np.array(rows)


def line_with(lines: list[list[str]], *words: str) -> list[str]:
    return next(line for line in lines if all(word in line for word in words))


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_runs_and_begins_with_what_it_is_about(name: str) -> None:
    assert len(printed(name)) > 5
    source = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")
    assert "# %%" in source or name == "power_iteration"
    assert f"python examples/{name}.py" in source


# --- closed forms ----------------------------------------------------------------------------------------------------


def test_dmrg_has_the_energy_of_the_bethe_ansatz_and_the_gradient_of_hellmann_and_feynman() -> None:
    sweeps = numbers_after(printed("dmrg"), lambda words: words[:2] == ["sweep", "rank"])
    # Eight spins: exact diagonalisation gives -3.3749325987; bonds of 12 cost what the last column says they drop.
    assert sweeps[-1, 2] == pytest.approx(-3.3749325987, abs=10 * sweeps[-1, 5])
    slopes = numbers_after(printed("dmrg"), lambda words: words == ["bond", "dE/dJ", "⟨S·S⟩", "difference"])
    np.testing.assert_allclose(slopes[:, 1], slopes[:, 2], rtol=0, atol=1e-9)
    unfinished = numbers_after(printed("dmrg"), lambda words: words == ["bond", "dE/dJ", "differences", "⟨S·S⟩"])
    np.testing.assert_allclose(unfinished[:, 1], unfinished[:, 2], rtol=0, atol=1e-8)
    assert np.abs(unfinished[:, 1] - unfinished[:, 3]).max() > 1e-5


def test_dmrg_of_the_ising_chain_has_the_energy_and_the_slope_of_free_fermions() -> None:
    rows = numbers_after(printed("dmrg"), lambda words: words[:2] == ["h", "energy"])
    for field, energy, _, _, slope, *_ in rows:
        u, s, vh = np.linalg.svd(field * np.eye(8) + np.eye(8, k=1))
        assert energy == pytest.approx(-np.sum(s), abs=1e-9)
        assert slope == pytest.approx(-np.trace(u @ vh), abs=1e-8)


def test_dmrg_converges_and_has_the_energy_of_the_valence_bonds_of_spins_1() -> None:
    assert line_with(printed("dmrg"), "converged", "after")
    # Four bonds of -2/3 each.
    found = line_with(printed("dmrg"), "AKLT", "energy")
    assert float(found[found.index("energy") + 1].rstrip(",")) == pytest.approx(-8 / 3, abs=1e-11)


def test_hartree_fock_has_the_published_energies_of_hydrogen() -> None:
    # PySCF gives both, for 0.74 Å and STO-3G.
    assert float(line_with(printed("hartree_fock"), "Hartree–Fock")[1]) == pytest.approx(-1.1167593073964, abs=1e-12)
    assert float(line_with(printed("hartree_fock"), "full", "CI")[2]) == pytest.approx(-1.1372838344885, abs=1e-12)


def test_hartree_fock_has_three_derivatives_that_differences_confirm() -> None:
    rows = [line for line in printed("hartree_fock") if len(line) > 4 and line[-4] in ("1", "2", "3")]
    assert len(rows) == 6
    for line in rows:
        assert float(line[-3]) == pytest.approx(float(line[-2]), abs=1e-6)


def test_hartree_fock_has_forces_where_orbitals_are_degenerate_and_diis_saves_steps() -> None:
    for line in (line for line in printed("hartree_fock") if "outwards" in line):
        assert float(line[line.index("force") - 1]) < 1e-8
    steps = [int(line[line.index("steps,") - 1]) for line in printed("hartree_fock") if "H₄," in line]
    assert len(steps) == 2 and steps[1] < steps[0]


def test_the_phase_diagram_has_the_energies_and_the_slopes_of_free_fermions() -> None:
    rows = numbers_after(printed("phase_diagram"), lambda words: words[:2] == ["h", "energy"])
    assert len(rows) == 8
    for field, energy, _, by_coupling, _, by_field, *_ in rows:
        # Fields are printed with three digits.
        field = round((field - 0.7) / 0.8 * 7) / 7 * 0.8 + 0.7
        matrix = field * np.eye(8) + np.eye(8, k=1)
        u, s, vh = np.linalg.svd(matrix)
        assert energy == pytest.approx(-np.sum(s), abs=1e-8)
        assert by_field == pytest.approx(np.trace(u @ vh), abs=1e-5)
        assert by_coupling == pytest.approx(np.trace(u @ vh @ np.eye(8, k=1).T), abs=1e-5)


def test_tebd_approaches_free_fermions_with_the_fourth_power_of_the_step() -> None:
    rows = numbers_after(printed("tebd"), lambda words: words[:2] == ["dt", "steps"])
    u, s, vh = np.linalg.svd(1.5 * np.eye(6) + np.eye(6, k=1))
    off = np.abs(rows[:, [3, 5]] - [-np.sum(s), -np.trace(u @ vh)])
    assert np.all(off[-1] < 1e-4)
    np.testing.assert_allclose(off[0] / off[1], 16, rtol=0.1)


def test_tebd_in_real_time_agrees_with_the_exact_evolution() -> None:
    rows = numbers_after(printed("tebd"), lambda words: words[:3] == ["t", "rank", "entropy"])
    assert np.all(np.abs(rows[:, [4, 6]]) < 1e-6)


def test_trg_prints_the_specific_heat_of_onsager_within_the_error_of_its_rank() -> None:
    found, exact = [line for line in printed("trg") if "lnZ" in line and "c" in line][:2]
    values, references = ([float(word.rstrip(",")) for word in line[-7::3]] for line in (found, exact))
    assert references == pytest.approx([1.025792813, -1.745564575, 0.724871449], abs=1e-9)
    assert values == pytest.approx(references, rel=0.04)
    assert values[0] == pytest.approx(references[0], rel=3e-4)


def test_trg_and_hotrg_are_near_the_exact_values_at_two_temperatures() -> None:
    rows = [words for words in printed("trg") if words[:1] in (["trg"], ["hotrg"])]
    assert [words[0] for words in rows] == ["trg", "trg", "hotrg", "hotrg"]
    assert np.all(np.array([[float(word) for word in words[-3:]] for words in rows]) < [2e-4, 5e-3, 2e-2])


def test_ctmrg_has_the_magnetisation_of_yang_and_one_gradient_by_two_ways() -> None:
    rows = numbers_after(printed("ctmrg"), lambda words: words[:3] == ["rank", "m", "dm/dβ"])
    s, c = np.sinh(1.0), np.cosh(1.0)
    assert rows[-1, 1] == pytest.approx((1 - s**-4) ** 0.125, abs=1e-10)
    assert rows[-1, 2] == pytest.approx(c * s**-5 * (1 - s**-4) ** -0.875, abs=1e-8)
    assert float(line_with(printed("ctmrg"), "gradients", "differ")[-1]) < 1e-9


def test_ctmrg_ends_near_the_best_energy_that_is_known() -> None:
    energy = float(line_with(printed("ctmrg"), "energy", "site")[3])
    assert energy == pytest.approx(-0.66023, abs=2e-4)


def test_decompositions_have_the_gradient_of_the_envelope_theorem() -> None:
    rows = [line for line in printed("als") if line and line[0] in ("CP,", "Tucker", "tensor")]
    assert len(rows) == 3
    assert all(float(row[-1]) < 1e-5 for row in rows)
    assert float(line_with(printed("als"), "envelope", "theorem")[-1]) < 1e-2
    overlaps = line_with(printed("als"), "overlap")[-3:]
    assert all(float(word.strip("[]")) > 0.999 for word in overlaps)


def test_sinkhorn_agrees_with_the_closed_forms_of_two_places_and_of_two_gaussians() -> None:
    lines = printed("sinkhorn")
    places = numbers_after(lines, lambda words: words == ["ε", "cost", "closed", "form", "slope", "closed", "form"])
    q = np.exp(-1 / places[:, 0])
    np.testing.assert_allclose(places[:, 1], q / (1 + q), rtol=0, atol=1e-9)
    np.testing.assert_allclose(places[:, 3], q / (1 + q) ** 2 / places[:, 0] ** 2, rtol=0, atol=1e-9)
    gaussians = numbers_after(lines, lambda words: words[:2] == ["ε", "steps"])
    root = np.sqrt(gaussians[:, 0] ** 2 + 16 * 0.6**2)
    np.testing.assert_allclose(gaussians[:, 2], 1.36 - (root - gaussians[:, 0]) / 2, rtol=0, atol=1e-9)
    np.testing.assert_allclose(gaussians[:, 4], (1 - gaussians[:, 0] / root) / 2, rtol=0, atol=1e-9)


def test_matrix_iterations_reach_the_derivatives_of_their_limits() -> None:
    lines = printed("matrix")
    polar = numbers_after(lines, lambda words: words == ["steps", "factor", "gradient"])
    assert np.all(polar[-1, 1:] < 1e-13) and polar[0, 2] > 0.1
    power = numbers_after(lines, lambda words: words == ["tol", "steps", "value", "gradient"])
    assert power[-1, 3] < 1e-10
    assert np.all(np.diff(power[:, 3]) < 0)
    # The loop of a rotation, and its angle atan2(c - b, a + d).
    angle = line_with(lines, "value")
    assert float(angle[1]) == pytest.approx(np.arctan2(2.2 + 0.4, 1.3 + 0.7), abs=1e-11)
    assert float(line_with(lines, "projector")[-1]) < 1e-9


# --- power iteration: how graph and work grow ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def power_iteration() -> Any:
    """The table that the example prints, as numbers."""
    rows = [words for words in printed("power_iteration") if words and words[0].startswith("1e-")]
    return np.array([[float(word.replace(",", "")) for word in row[:9]] for row in rows])


def test_derivatives_of_power_iteration_agree_with_the_closed_form(power_iteration: Any) -> None:
    value, gradient, second = power_iteration[-1, 2:5]
    assert value < 1e-13
    assert gradient < 1e-10
    assert second < 1e-8


def test_derivatives_of_power_iteration_converge_as_the_loop_does(power_iteration: Any) -> None:
    assert np.all(np.diff(power_iteration[:, 3:5], axis=0) < 0)


def test_graph_and_work_of_power_iteration_grow_linearly(power_iteration: Any) -> None:
    steps, counts = power_iteration[:, 1:2], power_iteration[:, 5:9]
    slopes = np.diff(counts, axis=0) / np.diff(steps, axis=0)
    # The loop itself exactly; its derivatives have some nodes for each block of terms that they add up.
    assert np.ptp(slopes[:, 0]) == 0
    assert np.all(np.ptp(slopes, axis=0) <= 0.05 * np.min(slopes, axis=0))


# --- the benchmark ---------------------------------------------------------------------------------------------------


def test_benchmark_runs_and_writes_its_numbers(tmp_path: Path) -> None:
    out = tmp_path / "overhead.json"
    shown = run_script(ROOT / "bench" / "overhead.py", "--quick", "--json", out)
    assert "unspool" in shown
    report = json.loads(out.read_text(encoding="utf-8"))
    assert {row["steps"] for row in report["loops"] if row["library"] == "unspool"} == {100, 300}
    assert all(seconds > 0 for seconds in report["operations"].values())
