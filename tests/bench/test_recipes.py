"""The workloads of the recipes: at small size, all forms that can do the work agree."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from bench.recipes.run import WORKLOADS
from bench.suite.measure import difference
from bench.suite.workload import PACKAGES


def installed(library: str) -> bool:
    return all(importlib.util.find_spec(package) for package in PACKAGES[library])


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
@pytest.mark.parametrize("key", WORKLOADS)
def test_all_forms_of_a_recipe_agree(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if key == "symmetric-dmrg":
        pytest.importorskip("symmray")
    workload = WORKLOADS[key]
    if installed("jax"):
        import jax

        jax.config.update("jax_enable_x64", True)
    problem = workload.problem(**workload.sizes["small"])
    forms = [form for form in workload.forms if not form.reason and not form.flawed and installed(form.library)]
    outcomes = [form.make(problem)() for form in forms]
    for found in outcomes[1:]:
        assert found.value == pytest.approx(outcomes[0].value, rel=1e-8)
        assert difference(found.gradient, outcomes[0].gradient) <= workload.tolerance
    assert all(np.isfinite(found.gradient).all() for found in outcomes)
