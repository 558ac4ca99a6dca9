"""What all loops that fit a decomposition by singular vectors have in common, whatever the decomposition is."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool.errors import ArgumentError
from unspool.networks.als import CP, cp_als
from unspool.networks.tensor_train import TensorTrain, TensorTrainResult, tt_als
from unspool.networks.tucker import Tucker, TuckerResult, hooi

LOOPS = pytest.mark.parametrize("fit", [hooi, tt_als])


def normal(shape: tuple[int, ...], seed: int = 0, dtype: Any = float) -> Any:
    rng = np.random.default_rng(seed)
    return rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if dtype is complex else 0.0)


def rotated_diagonal(weights: list[float]) -> Any:
    """Σ_r w_r a_r ⊗ b_r ⊗ c_r with orthonormal a, b and c: every unfolding has the singular values w."""
    size = len(weights)
    a, b, c = [np.linalg.qr(normal((size, size), seed))[0] for seed in range(3)]
    return np.einsum("r,ar,br,cr->abc", weights, a, b, c)


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        (CP, ([normal((3, 2)), normal((4, 2))],)),
        (Tucker, (normal((2, 2)), [normal((3, 2)), normal((4, 2))])),
        (TensorTrain, ([normal((1, 3, 2)), normal((2, 4, 1))],)),
    ],
)
def test_states_are_equal_to_themselves_and_to_no_other(kind: type[Any], parts: Any) -> None:
    one, other = kind(*parts), kind(*parts)
    assert one == one and one != other
    assert len({one, other, one}) == 2


@pytest.mark.parametrize(("fit", "state"), [(hooi, Tucker), (tt_als, TensorTrain)])
def test_the_steps_are_told(fit: Any, state: type[Any]) -> None:
    seen: list[Any] = []
    found = fit(normal((4, 4, 4)), 2, tol=0.0, max_steps=3, on_step=lambda *told: seen.append(told))
    assert [step for step, _, _ in seen] == [1, 2, 3] and not found.converged
    assert [values for _, _, values in seen] == list(found.history) and isinstance(seen[-1][1], state)


@pytest.mark.parametrize(("fit", "kind"), [(hooi, TuckerResult), (tt_als, TensorTrainResult)])
def test_results_are_named_tuples_of_their_own_kind(fit: Any, kind: type[Any]) -> None:
    found = fit(normal((4, 4, 4)), 2, tol=0.0, max_steps=2)
    assert type(found) is kind and repr(found).startswith(f"{kind.__name__}\n  state ")
    assert found._fields == ("state", "fit", "residual", "steps", "converged", "history")
    with pytest.raises(AttributeError):
        found.comment = "no room for more than the fields"
    values = found._replace(state=None, fit=float(found.fit), residual=float(found.residual))
    assert pickle.loads(pickle.dumps(values)) == copy.copy(values) == values and type(values) is kind


@pytest.mark.parametrize("shape", [(5, 4, 6), (6, 5, 4), (4, 5, 3, 4), (3, 4, 3, 2, 3), (3, 2, 3, 2, 2, 3)])
@pytest.mark.parametrize(("fit", "products"), [(hooi, 2), (tt_als, 3)])
def test_a_sweep_multiplies_the_data_as_often_however_many_modes_there_are(
    fit: Any, products: int, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = normal(shape)
    large = 0

    def after(self: Any, node: Any, arguments: Any, value: Any, call: Any = None) -> None:
        nonlocal large
        large += node.op.name == "contract" and any(np.size(argument) == data.size for argument in arguments)

    def contractions(sweeps: int) -> int:
        nonlocal large
        large = 0
        with us.debug.count_kernels():
            fit(data, 2, tol=0.0, max_steps=sweeps)
        return large

    monkeypatch.setattr(us.debug.KernelCounts, "after", after)
    assert contractions(4) - contractions(1) == 3 * products


@LOOPS
def test_equal_singular_values_that_are_kept_do_no_harm(fit: Any) -> None:
    data = us.tensor(rotated_diagonal([3.0, 3.0, 1.0, 0.5]))
    found = fit(data, 2, tol=0.0, max_steps=10)
    assert float(found.residual) == pytest.approx(1.25, rel=1e-12)
    np.testing.assert_allclose(found.residual.grad(data).eval(), 2 * (data - found.state.full()).eval(), atol=1e-12)


@LOOPS
def test_zeros_are_explained_by_zero(fit: Any) -> None:
    data = np.zeros((3, 4, 5))
    found = fit(data, 2)
    assert float(found.fit) == 1.0 and found.converged
    assert found.state.shape == data.shape and set(found.state.ranks) == {1}


@pytest.mark.parametrize("fit", [cp_als, hooi, tt_als])
def test_rank_means_the_rank_in_every_loop(fit: Any) -> None:
    data = normal((4, 3, 5))
    settings = {"tol": 0.0, "max_steps": 2}
    assert float(fit(data, rank=2, **settings).fit) == float(fit(data, 2, **settings).fit)


@pytest.mark.parametrize("fit", [cp_als, tt_als])
def test_a_start_or_a_rank_is_needed_and_not_both(fit: Any) -> None:
    data = normal((4, 3, 5))
    with pytest.raises(ArgumentError, match="give a start, or a rank"):
        fit(data)
    with pytest.raises(ArgumentError, match="either start or rank=2"):
        fit(data, 2, rank=2)
