"""pandas, Matplotlib and scikit-learn take tensors as data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import unspool as us

rng = np.random.default_rng(0)
grid = np.linspace(0.0, 1.0, 20)


# --- Matplotlib ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "draw",
    [
        lambda ax, x, y: ax.plot(x, y),
        lambda ax, x, y: ax.scatter(x, y, c=y),
        lambda ax, x, y: ax.hist(y),
        lambda ax, x, y: ax.hist(y, bins=x[::5]),
        lambda ax, x, y: ax.hist2d(x, y),
        lambda ax, x, y: ax.bar(x, y),
        lambda ax, x, y: ax.barh(x, y),
        lambda ax, x, y: ax.axhline(np.mean(y)),
        lambda ax, x, y: ax.axvspan(np.min(y), np.max(y)),
        lambda ax, x, y: ax.errorbar(x, y, xerr=0.1, yerr=0.1 * y),
        lambda ax, x, y: ax.fill_between(x, y - 0.1, y + 0.1),
        lambda ax, x, y: ax.boxplot(y),
        lambda ax, x, y: ax.imshow(np.outer(x, y)),
        lambda ax, x, y: ax.contour(np.outer(x, y)),
        lambda ax, x, y: ax.set_xlim(np.min(x), np.max(x)),
    ],
)
def test_a_figure_of_tensors_is_that_of_arrays(draw: Callable[[Any, Any, Any], Any]) -> None:
    figure = pytest.importorskip("matplotlib.figure")

    from matplotlib.backends.backend_agg import FigureCanvasAgg

    def drawn(x: Any, y: Any) -> bytes:
        fig = figure.Figure(figsize=(2, 2))
        canvas = FigureCanvasAgg(fig)
        draw(fig.subplots(), x, y)
        canvas.draw()
        return bytes(canvas.buffer_rgba())

    values = np.sin(3.0 * grid)
    assert drawn(us.tensor(grid), us.tensor(values)) == drawn(grid, values)


# --- pandas ----------------------------------------------------------------------------------------------------------


def test_columns_and_tables_of_tensors() -> None:
    pd = pytest.importorskip("pandas")
    x = us.tensor(grid)
    table = pd.DataFrame({"x": x, "y": us.sin(x)}).assign(z=2.0 * x)
    np.testing.assert_allclose(table.to_numpy(), np.stack([grid, np.sin(grid), 2.0 * grid], axis=1))
    np.testing.assert_allclose(pd.Series(x).rolling(2).mean()[1:], (grid[1:] + grid[:-1]) / 2.0)
    np.testing.assert_allclose(pd.DataFrame(us.outer(x, x)).sum(), grid * grid.sum())
    losses = pd.DataFrame([{"step": k, "loss": us.sum(x) * k} for k in range(3)])
    assert [float(loss) for loss in losses.loss] == pytest.approx([0.0, 10.0, 20.0])


def test_tensors_of_columns() -> None:
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]})
    assert us.tensor(table).tolist() == [[1.0, 3.0], [2.0, 4.0]]
    assert us.sum(us.asarray(table.b)).item() == 7.0
    np.testing.assert_allclose(table.a + us.tensor([1.0, 1.0]).eval(), [2.0, 3.0])


# --- scikit-learn ----------------------------------------------------------------------------------------------------

X = rng.normal(size=(40, 4))
Y = X @ [1.0, -2.0, 3.0, 0.5] + 0.1


@pytest.mark.parametrize(
    "fit",
    [
        lambda sk, x, y: sk.linear_model.LinearRegression().fit(x, y).coef_,
        lambda sk, x, y: sk.linear_model.LogisticRegression().fit(x, y > 0).coef_,
        lambda sk, x, y: sk.decomposition.PCA(2, svd_solver="full").fit(x).explained_variance_,
        lambda sk, x, y: sk.preprocessing.StandardScaler().fit_transform(x),
        lambda sk, x, y: sk.cluster.KMeans(2, n_init=1, random_state=0).fit(x).cluster_centers_,
        lambda sk, x, y: sk.ensemble.RandomForestRegressor(3, random_state=0).fit(x, y).predict(x),
        lambda sk, x, y: sk.svm.SVC().fit(x, y > 0).predict(x),
        lambda sk, x, y: sk.metrics.mean_squared_error(y, y + 1.0),
        lambda sk, x, y: sk.metrics.r2_score(y, 0.9 * y),
        lambda sk, x, y: sk.model_selection.cross_val_score(sk.linear_model.Ridge(), x, y),
    ],
)
def test_an_estimator_fits_tensors_as_arrays(fit: Callable[[Any, Any, Any], Any]) -> None:
    sk = pytest.importorskip("sklearn")
    for part in ("cluster", "decomposition", "ensemble", "linear_model", "metrics", "model_selection", "svm"):
        pytest.importorskip(f"sklearn.{part}")
    pytest.importorskip("sklearn.preprocessing")
    np.testing.assert_allclose(np.asarray(fit(sk, us.tensor(X), us.tensor(Y))), fit(sk, X, Y), rtol=1e-10)
