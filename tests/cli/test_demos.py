"""Every demonstration, at a size that takes a moment: it converges to the exact numbers, and so do its gradients."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from unspool._cli.demo_ctmrg import magnetisation_slope
from unspool._cli.demo_sinkhorn import make_problem
from unspool._cli.main import main

# What to type, and how far each row of the tables may be from its exact number: (name of the row, difference).
RUNS = {
    "dmrg": (["--sites", "6", "--chi", "8"], {"energy": 1e-9, "1–2": 1e-7, "3–4": 1e-7, "5–6": 1e-7}),
    "tebd": (["--sites", "4", "--chi", "4", "--dt", "0.05"], {"energy": 5e-6, "1": 2e-5, "4": 2e-5, "all": 5e-5}),
    "trg": (
        ["--chi", "6", "--beta", "0.3"],
        {"ln Z per site": 2e-5, "u = −d ln Z/dβ": 1e-3, "c = β² d² ln Z/dβ²": 1e-2},
    ),
    "ctmrg": (["--chi", "6", "--beta", "0.6"], {"magnetisation m": 1e-9, "ln Z per site": 1e-9, "dm/dβ": 1e-7}),
    "als": (["--size", "6", "--rank", "2"], {"⟨X, dr/dX⟩ = 2 r": 1e-9, "‖dr/dX‖ = 2 ‖X − M‖": 1e-6}),
    "sinkhorn": (["--size", "6", "--epsilon", "0.1"], {"cost ⟨P, C⟩": 1e-10, "‖d/dC − P‖ = 0": 1e-10}),
    "hypergradient": (
        ["--steps", "60", "--rows", "40", "--features", "5", "--batch", "8"],
        {"validation loss": 1e-12, "in the penalty": 1e-6, "in all rates": 1e-5, "in the last rate": 1e-6},
    ),
    "scf": (
        ["--sites", "6"],
        {"energy": 1e-9, "in U = Σ n²": 1e-7, "in v of site 1": 1e-7, "in v of sites 1 and 3": 1e-6},
    ),
    "ode": (["--end", "4"], {"hares": 1e-6, "lynxes": 1e-6, "in a": 1e-5, "in d": 1e-4}),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_loop_and_its_gradient_agree_with_exact_numbers(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    options, rows = RUNS[name]
    assert main(["demo", name, "--no-picture", *options]) == 0
    printed = capsys.readouterr().out
    assert "Not converged" not in printed
    for row, allowed in rows.items():
        found = re.search(rf"^{re.escape(row)} +(\S+) +(\S+) +(\S+)$", printed, re.MULTILINE)
        assert found, f"no row {row!r} in\n{printed}"
        assert abs(float(found[1]) - float(found[2])) <= allowed
        assert float(found[3]) <= allowed


@pytest.mark.parametrize("name", RUNS)
def test_cotangents_arrive_at_the_states_of_every_loop(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    drawings = []
    monkeypatch.setattr("unspool._cli.demo.draw", lambda drawing, path: drawings.append(drawing) or True)
    assert main(["demo", name, *RUNS[name][0], "--output", str(tmp_path / "a.png")]) == 0
    [drawing] = drawings
    assert len(drawing.cotangents) > 1
    assert all(np.isfinite(norm) for _, norm in drawing.cotangents)
    assert max(norm for _, norm in drawing.cotangents) > 0
    assert max(size for _, size in drawing.live) > 0
    assert drawing.changes and 0 < drawing.gradient_begin <= drawing.live[-1][0]


def test_hotrg_is_a_method_of_trg(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "trg", "--method", "hotrg", "--chi", "4", "--beta", "0.3", "--no-picture"]) == 0
    assert capsys.readouterr().out.startswith("HOTRG: ")


def test_fourth_order_is_nearer_than_second(capsys: pytest.CaptureFixture[str]) -> None:
    differences = []
    for order in ("2", "4"):
        main(["demo", "tebd", "--sites", "3", "--chi", "4", "--dt", "0.2", "--order", order, "--no-picture"])
        row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("energy "))
        differences.append(float(row.split()[-1]))
    assert differences[1] < differences[0] / 10


def test_a_tight_budget_changes_no_digit(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["demo", "sinkhorn", "--size", "30", "--tol", "1e-6", "--no-picture"]
    tables = []
    for budget in ("1GB", "1GB", "300kB"):  # the first run in a process may differ in the last bit
        assert main([*command, "--memory", budget]) == 0
        printed = capsys.readouterr().out
        tables.append(printed[printed.index("Results") : printed.index("Memory\n")])
    assert "residuals evicted" in printed and not re.search(r"^residuals evicted +0$", printed, re.MULTILINE)
    assert tables[1] == tables[2]


def test_the_slope_of_the_magnetisation_is_that_of_its_formula() -> None:
    def magnetisation(beta: float) -> float:
        return float((1 - np.sinh(2 * beta) ** -4) ** 0.125)

    step = 1e-5
    expected = (magnetisation(0.55 + step) - magnetisation(0.55 - step)) / (2 * step)
    assert magnetisation_slope(0.55) == pytest.approx(expected, rel=1e-8)
    assert magnetisation_slope(0.4) == 0.0


def test_the_plan_of_the_transport_problem_is_one() -> None:
    problem = make_problem(7, 0.05, seed=3)
    np.testing.assert_allclose(problem.plan.sum(axis=0), problem.target, rtol=1e-15)
    # It has the form that makes it optimal: log P + C/ε is a sum of a function of the row and one of the column.
    potential = np.log(problem.plan) + problem.cost / 0.05
    centred = potential - potential.mean(axis=0) - potential.mean(axis=1, keepdims=True) + potential.mean()
    assert np.max(np.abs(centred)) < 1e-12
