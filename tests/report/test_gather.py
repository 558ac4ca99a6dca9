"""What a report tells: numbers against closed forms, NumPy, differences, and what was noted while the loop ran."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import unspool as us
from tests.report import runs

# --- what was read ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [5, 60, 150])
def test_the_numbers_that_a_loop_read_are_found_bit_for_bit(steps: int) -> None:
    run = runs.power(steps)
    found = us.report(run.loss).data
    assert found["steps"]["count"] == steps
    assert found["readings"][0]["values"] == run.read
    assert found["readings"][0]["steps"] == list(range(steps))
    assert found["readings"][0]["text"] == "moved = us.linalg.norm(y - x)"


def test_a_step_of_one_op_that_is_read_is_found_too() -> None:
    y, read = us.tensor(0.5), []
    for _ in range(6):
        y = us.cos(y)
        read.append(float(y))
    found = us.report(y).data
    assert found["readings"][0]["values"] == read


def test_what_was_read_under_a_budget_is_the_same() -> None:
    with us.memory("200kB") as memory:
        run = runs.scaling(100, size=1000)
        run.loss.grad(run.variable).eval()
        found = us.report(run.loss, memory=memory).data
    assert found["readings"][0]["values"] == run.read
    assert found["budgets"]["used"]["budget"] == 200_000


def test_set_up_before_the_loop_is_not_its_first_step() -> None:
    start = us.tensor(np.ones(4))
    y = us.sin(us.exp(start) + 1)
    float(us.sum(y))
    z = us.cos(y)
    float(us.sum(z))
    numbers = []
    for _ in range(8):
        z = us.tanh(z)
        total = us.sum(z)
        numbers.append(float(total))
    found = us.report(total).data
    assert found["steps"]["count"] == 8
    assert found["readings"][0]["values"] == numbers


def test_numbers_that_are_given_are_shown_by_their_steps() -> None:
    run = runs.scaling(5)
    found = us.report(run.loss, values={"energy": [1.0, 2.0], "rank": {3: 4, 7: 5}}).data["readings"]
    assert [(s["name"], s["steps"], s["values"]) for s in found[:2]] == [
        ("energy", [0, 1], [1.0, 2.0]),
        ("rank", [3, 7], [4.0, 5.0]),
    ]


def test_a_program_without_a_loop_has_a_report() -> None:
    x = us.tensor(2.0)
    loss = us.sin(x) * x
    value = float(loss)
    found = us.report(loss).data
    assert found["steps"]["count"] == 0 and found["loss"]["value"] == value
    assert found["gradient"]["variables"][0]["norm"] == pytest.approx(abs(math.sin(2) + 2 * math.cos(2)))


def test_a_loss_that_is_data_has_a_report() -> None:
    found = us.report(us.tensor(2.0)).data
    assert found["loss"]["value"] == 2.0 and found["gradient"]["variables"][0]["norm"] == 1.0


# --- cotangents ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("read", [True, False])
@pytest.mark.parametrize("steps", [6, 90])
def test_cotangents_of_a_plain_loop_are_those_of_the_closed_form(steps: int, read: bool) -> None:
    found = us.report(runs.scaling(steps, read=read).loss).data["cotangents"]
    assert found["steps"] == list(range(steps))
    assert found["norms"] == pytest.approx(runs.scaling_norms(steps), rel=1e-12)


@pytest.mark.parametrize("adjoint", [None, us.Checkpointed(slots=3)], ids=["unrolled", "checkpointed"])
def test_cotangents_inside_of_iterate_are_those_of_the_closed_form(adjoint: us.Checkpointed | None) -> None:
    found = us.report(runs.iterated(30, adjoint=adjoint).loss).data
    assert found["steps"] == {"count": 30, "form": "iterate", "mark": found["steps"]["mark"]}
    assert found["cotangents"]["norms"] == pytest.approx(runs.scaling_norms(30), rel=1e-12)


def test_of_a_long_iterate_some_states_are_shown_and_the_last_is_among_them() -> None:
    found = us.report(runs.iterated(1000).loss).data["cotangents"]
    assert len(found["steps"]) == 256 and found["steps"][-1] == 999
    assert found["norms"] == pytest.approx([0.9 ** (999 - k) * 3**0.5 for k in found["steps"]], rel=1e-10)


@pytest.mark.parametrize("is_differentiated", [False, True])
def test_steps_inside_of_one_call_have_cotangents(is_differentiated: bool) -> None:
    """A program with factorisations that is read once is a call; its derivative at orthogonal matrices is known."""
    start = us.tensor(np.diag([1.0, 2.0, 3.0]))
    y = start
    for _ in range(5):
        u, s, vh = us.linalg.svd(y)
        y = (u * (s * s)) @ vh
    loss = us.sum(us.diagonal(y))
    float(loss)
    gradient = loss.grad(start) if is_differentiated else None
    found = us.report(loss).data
    assert found["steps"]["count"] == 5
    # Singular values are squared in each step: d λ^(2^n) / dλ = 2^n λ^(2^n − 1) for n steps that are left.
    values = np.array([1.0, 2.0, 3.0])
    for k, norm in zip(found["cotangents"]["steps"], found["cotangents"]["norms"], strict=True):
        left = 2 ** (4 - k)
        assert norm == pytest.approx(np.linalg.norm(left * (values ** (2 ** (k + 1))) ** (left - 1)), rel=1e-9)
    assert len(found["cotangents"]["norms"]) == 5
    assert gradient is None or np.all(np.isfinite(gradient.eval()))


def test_a_loop_inside_of_a_batch_is_found() -> None:
    factors = us.tensor([0.5, 0.8])
    found = us.vmap(lambda factor: us.iterate(lambda y: factor * y, us.tensor(1.0), max_steps=12)[0])(factors)
    loss = us.sum(found)
    float(loss)
    data = us.report(loss).data
    assert data["steps"]["count"] == 12
    expected = [math.hypot(0.5 ** (11 - k), 0.8 ** (11 - k)) for k in range(12)]
    assert data["cotangents"]["norms"] == pytest.approx(expected)


def test_outputs_of_the_steps_of_iterate_send_back_too() -> None:
    factor = us.tensor(0.5)
    _, _, rows = us.iterate(lambda y: (factor * y, us.sum(y)), us.tensor(np.ones(4)), max_steps=5, has_outputs=True)
    loss = us.sum(rows)
    float(loss)
    found = us.report(loss).data["cotangents"]
    # Row j is the sum of 0.5^j, so the state after step k gets Σ over j > k of 0.5^(j−k−1) from each row.
    expected = [2 * sum(0.5**i for i in range(4 - k)) for k in range(5)]
    assert dict(zip(found["steps"], found["norms"], strict=True)) == pytest.approx(
        {k: value for k, value in enumerate(expected) if k in found["steps"]}
    )


def test_cotangents_of_a_loop_that_is_not_linear_are_those_of_differences() -> None:
    steps, size = 7, 3

    def run(y: us.Tensor, first: int) -> list[us.Tensor]:
        states = []
        for _ in range(first, steps):
            y = us.sin(y) * 1.3
            total = us.sum(y)
            float(total)
            states.append(y)
        return states

    states = run(us.tensor([0.2, 0.5, -0.7]), 0)
    loss = us.sum(states[-1] ** 3)
    float(loss)
    found = us.report(loss).data["cotangents"]

    def after(k: int, values: np.ndarray) -> float:
        for _ in range(k + 1, steps):
            values = 1.3 * np.sin(values)
        return float(np.sum(values**3))

    for k in range(steps):
        value, slopes = states[k].eval(), np.zeros(size)
        for i in range(size):
            step = 1e-5 * np.eye(size)[i]
            slopes[i] = (after(k, value + step) - after(k, value - step)) / 2e-5
        assert found["norms"][k] == pytest.approx(np.linalg.norm(slopes), rel=1e-7)


def test_states_that_are_given_are_taken() -> None:
    run = runs.scaling(4)
    y, states = us.tensor(np.arange(1.0, 4.0)), []
    for _ in range(4):
        y = 0.9 * y
        states.append({"y": y})
        float(us.sum(y))
    loss = us.sum(y)
    float(loss)
    found = us.report(loss, states={1: states[1], 3: states[3]}).data["cotangents"]
    assert found["steps"] == [1, 3]
    assert found["norms"] == pytest.approx([0.9**2 * 3**0.5, 3**0.5])
    assert us.report(run.loss, states={}).data["cotangents"] == {"steps": [], "norms": [], "reason": "left out"}


def test_the_norm_of_the_gradient_is_that_of_the_closed_form() -> None:
    run = runs.scaling(10)
    found = us.report(run.loss, wrt=run.variable).data["gradient"]["variables"]
    assert [(v["name"], v["shape"]) for v in found] == [("factor", [])]
    assert found[0]["norm"] == pytest.approx(10 * 0.9**9 * 6.0)


def test_complex_states_have_norms() -> None:
    z = us.tensor(np.array([1.0 + 1.0j, 2.0]))
    for _ in range(5):
        z = z * 0.5j
        float(us.sum(us.abs(z)))
    loss = us.real(us.sum(z))
    float(loss)
    found = us.report(loss).data["cotangents"]
    assert found["norms"] == pytest.approx([0.5 ** (4 - k) * 2**0.5 for k in range(5)])


# --- memory ----------------------------------------------------------------------------------------------------------


def test_blocks_of_a_loop_that_kept_all_are_as_large_as_what_it_kept() -> None:
    steps, size = 80, 500
    factor, y = us.tensor(0.9), us.tensor(np.ones(size))
    for _ in range(steps):
        y = us.sin(y) * factor
        float(us.sum(y))
    loss = us.sum(y)
    float(loss)
    memory = us.report(loss).data["memory"]
    assert set(memory["bytes"]) == {"kept"}
    # The state after each step at least, and no more than both of its values.
    assert steps * size * 8 <= memory["bytes"]["kept"] <= 2 * steps * (size * 8 + 8)
    first = memory["blocks"][0]
    assert first["begin"] == 0 and first["end"] == 2 * steps and first["lines"][0][0].startswith("test_gather.py:")


def test_blocks_on_the_way_do_not_overlap() -> None:
    with us.memory("150kB"):
        run = runs.scaling(120, size=1000)
        run.loss.grad(run.variable).eval()
        blocks = us.report(run.loss).data["memory"]["blocks"]
    assert {"kept", "recomputed"} == {block["fate"] for block in blocks}
    for i, a in enumerate(blocks):
        for b in blocks[i + 1 :]:
            apart_in_time = a["end"] <= b["begin"] or b["end"] <= a["begin"]
            apart_in_height = a["base"] + a["bytes"] <= b["base"] or b["base"] + b["bytes"] <= a["base"]
            assert apart_in_time or apart_in_height, (a, b)


def test_states_on_disk_are_told(tmp_path: Path) -> None:
    with us.memory("300kB", spill=tmp_path):
        run = runs.scaling(150, size=4000)
        found = us.report(run.loss).data["memory"]["bytes"]
    assert found.get("disk", 0) > 0


@pytest.mark.parametrize("steps", [70, 130])
def test_the_table_of_budgets_is_what_plan_memory_says(steps: int) -> None:
    run = runs.scaling(steps, size=200)
    budgets = us.report(run.loss, wrt=run.variable).data["budgets"]
    for row in (budgets["rows"][3], budgets["rows"][20], budgets["rows"][-1]):
        plan = us.plan_memory(run.loss, run.variable, memory=row["budget"])
        assert (plan.factor, plan.predicted_peak, plan.slots, plan.block) == (
            row["factor"],
            row["peak"],
            row["slots"],
            row["block"],
        )
    assert us.plan_memory(run.loss, run.variable, memory=1).least_budget == budgets["least"]
    assert budgets["rows"][-1]["factor"] == 1.0


def test_the_budget_of_a_checkpointed_loop_is_the_point_that_was_used() -> None:
    found = us.report(runs.iterated(30, adjoint=us.Checkpointed(slots=3)).loss).data["budgets"]
    from unspool.checkpoint.binomial import factor

    assert found["used"]["factor"] == factor(30, 3)
    assert found["rows"][-1]["factor"] == 1.0


# --- the program -----------------------------------------------------------------------------------------------------


def test_what_a_step_reads_is_carried_streamed_or_fixed() -> None:
    data, weight = us.tensor(np.ones((20, 4))), us.tensor(np.eye(4), name="weight")
    y = us.tensor(np.zeros(4))
    for k in range(20):
        y = weight @ y + us.tensor(data.eval()[k])
        float(us.sum(y))
    loss = us.sum(y)
    float(loss)
    loop = us.report(loss).data["program"]["loop"]
    kinds = sorted((node["kind"], node["label"]) for node in loop["body"]["nodes"] if node["kind"] != "op")
    assert [kind for kind, _ in kinds] == ["carried", "fixed", "streamed"]
    assert ("fixed", "weight") in kinds
    assert loop["steps"] == 20 and len(loop["body"]["back"]) == 1


def test_the_body_of_iterate_is_drawn_with_what_it_carries() -> None:
    loop = us.report(runs.iterated(30).loss).data["program"]["loop"]
    assert [node["kind"] for node in loop["body"]["nodes"]].count("carried") == 1
    assert [node["label"] for node in loop["body"]["nodes"] if node["kind"] == "op"] == ["multiply"]
    assert loop["body"]["back"] == [[2, 1]] and loop["steps"] == 30


def test_times_of_a_body_that_two_programs_have_in_common_stand_at_the_lines_of_each() -> None:
    def one() -> us.Tensor:
        x = us.tensor(np.ones(3))
        for _ in range(80):
            x = us.sin(us.cos(x) * 0.7)
            float(us.sum(x))
        return us.sum(x)

    def other() -> us.Tensor:
        y = us.tensor(np.ones(3))
        for _ in range(80):
            y = us.sin(us.cos(y) * 0.7)
            float(us.sum(y))
        return us.sum(y)

    for make in (one, other):
        loss = make()
        float(loss)
        found = us.report(loss).data
        name = "x" if make is one else "y"
        texts = {found["lines"][row["line"]] for row in found["times"]["rows"]}
        assert f"{name} = us.sin(us.cos({name}) * 0.7)" in texts
        assert not any(f"us.cos({'y' if make is one else 'x'})" in text for text in texts)


def test_times_count_each_op_of_each_step() -> None:
    run = runs.power(70)
    times = us.report(run.loss).data["times"]
    forward = {row["op"]: row["calls"]["forward"] for row in times["rows"] if "forward" in row and row["calls"]}
    assert forward["subtract"] == 70 and forward["divide"] == 70
    assert times["totals"]["forward"] > 0 and times["totals"]["backward"] > 0
    # Bodies of derivatives that are alike have the lines of the program that had the first one.
    lines = {row["line"] for row in times["rows"] if row["calls"].get("forward")}
    assert all(line.startswith("runs.py:") for line in lines)


# --- spectra ---------------------------------------------------------------------------------------------------------


def test_spectra_at_truncations_are_those_of_numpy() -> None:
    run = runs.truncating(6)
    rng = np.random.default_rng(3)
    m, coupling = rng.normal(size=(6, 5)), rng.normal(size=(6, 6)) / 4
    found = us.report(run.loss).data["spectra"]
    assert found["truncations"] == 6
    for cut in found["shown"]:
        u, s, vh = np.linalg.svd(m + coupling @ m, full_matrices=False)
        assert cut["values"] == pytest.approx(s, abs=1e-12)
        assert cut["rank"] == 2 and cut["count"] == 5
        assert cut["gap"] == pytest.approx((s[1] - s[2]) / s[0], abs=1e-12)
        assert cut["margin"] == pytest.approx(min(s[1] - s[2], s[0] - s[1]) / s[0] / cut["tolerance"], rel=1e-9)
        assert cut["discarded_weight"] == pytest.approx(np.sum(s[2:] ** 2) / np.sum(s**2), abs=1e-12)
        m = (u[:, :2] * s[:2]) @ vh[:2]


def test_the_margin_of_a_truncated_space_is_the_gap_at_the_cut_alone() -> None:
    x = us.tensor(np.diag([3.0, 3.0, 1.0, 0.5]))
    basis, rest, _ = us.linalg.leading_space(x, 2, side="left")
    loss = us.sum((basis @ rest) ** 2)
    float(loss)
    (cut,) = us.report(loss).data["spectra"]["shown"]
    assert cut["gap_among_kept"] == pytest.approx(0.0, abs=1e-12)
    assert cut["margin"] == pytest.approx(2 / 3 / cut["tolerance"])


def test_a_gradient_that_is_refused_is_told_and_the_rest_is_there() -> None:
    vectors = us.linalg.eigh(us.tensor(np.diag([1.0, 1.0, 2.0]))).eigenvectors
    loss = us.sum(vectors * us.tensor(np.arange(9.0).reshape(3, 3)))
    float(loss)
    found = us.report(loss).data
    assert "are equal" in found["cotangents"]["reason"]
    assert all(math.isnan(variable["norm"]) for variable in found["gradient"]["variables"])
    assert found["loss"]["value"] == float(loss)


# --- where it ran ----------------------------------------------------------------------------------------------------


def test_inputs_have_the_digests_of_their_bytes() -> None:
    run = runs.power(5)
    found = us.report(run.loss).data["inputs"]
    row = next(row for row in found if row["name"] == "A")
    assert row["sha256"] == hashlib.sha256(run.variable.eval().tobytes()).hexdigest()
    assert row["shape"] == [5, 5] and row["bytes"] == 200


def test_versions_and_the_blas_are_told() -> None:
    found = us.report(us.tensor(1.0)).data
    assert found["versions"]["numpy"] == np.__version__
    assert found["blas"]["name"] == np.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"]


# --- nothing changes -------------------------------------------------------------------------------------------------


def test_a_report_changes_no_bit_of_a_gradient() -> None:
    before = runs.power(100).loss
    run = runs.power(100)
    us.report(run.loss)
    fresh = runs.power(100)
    assert np.array_equal(run.loss.grad(run.variable).eval(), fresh.loss.grad(fresh.variable).eval())
    assert float(before) == float(run.loss)


def test_a_report_is_not_counted_in_the_report_of_memory() -> None:
    with us.memory("200kB") as memory:
        run = runs.scaling(100, size=1000)
        run.loss.grad(run.variable).eval()
        before = memory.report()
        us.report(run.loss)
        after = memory.report()
    assert (before.steps, before.evaluations, before.peak) == (after.steps, after.evaluations, after.peak)


def test_the_way_back_keeps_to_the_budget() -> None:
    with us.memory("200kB"):
        run = runs.scaling(200, size=1000)
        found = us.report(run.loss).data
    assert found["gradient"]["timing"]
    assert found["times"]["totals"]["backward"] > 0
    assert found["cotangents"]["norms"] == pytest.approx(runs.scaling_norms(200, 1000)) or found["cotangents"]["reason"]


def test_what_did_not_fold_is_asked_of_explain(monkeypatch: pytest.MonkeyPatch) -> None:
    run = runs.scaling(5)
    monkeypatch.setattr(us, "explain", lambda loss: [("a.py:3", "it is too short")], raising=False)
    assert us.report(run.loss).data["unfolded"] == [{"line": "a.py:3", "reason": "it is too short"}]


def test_an_explanation_gives_its_lines_and_reasons() -> None:
    from unspool._report.gather import unfolded_rows

    entry = SimpleNamespace(lines=(("a.py", 3), ("a.py", 4)), why="It is short.", change="Nothing to change.")
    expected = [{"line": "a.py:3, a.py:4", "reason": "It is short. Nothing to change."}]
    assert unfolded_rows(SimpleNamespace(unfolded=(entry,))) == expected
    assert unfolded_rows(SimpleNamespace(unfolded=())) == []


def test_within_a_budget_the_way_back_has_times_and_blocks_that_fit() -> None:
    with us.memory("600kB"):
        w, v = us.tensor(np.full(2000, 0.99), name="w"), us.tensor(np.ones(2000))
        for _ in range(150):
            v = us.tanh(w * v) + 0.01
            float(us.sum(v))
        loss = us.sum(v * v)
        loss.grad(w).eval()
        float(loss)
        found = us.report(loss, wrt=w).data
    assert "memory budget" in found["gradient"]["timing"]
    assert found["times"]["totals"]["backward"] > 0
    tanh = [row["calls"] for row in found["times"]["rows"] if row["op"] == "tanh"]
    assert sum(calls.get("recomputed", 0) for calls in tanh) >= 50  # as many steps have no value
    blocks = found["memory"]["blocks"]
    assert max(block["base"] + block["bytes"] for block in blocks) <= 600_000
