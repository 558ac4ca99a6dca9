"""xarray with tensors inside: the same numbers as with arrays, lazily and with derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import unspool as us

xr = pytest.importorskip("xarray")

rng = np.random.default_rng(0)
data = rng.normal(size=(4, 6))


def labelled(x: Any) -> Any:
    return xr.DataArray(x, dims=("a", "b"), coords={"a": [0, 0, 1, 1], "b": np.arange(6.0)})


PLAIN = [
    lambda d: d.isel(b=slice(1, 4)),
    lambda d: d.isel(b=[0, 3]),
    lambda d: d.sel(b=2.0),
    lambda d: d.transpose("b", "a"),
    lambda d: d + d.isel(a=0, drop=True),
    lambda d: np.exp(d),
    lambda d: xr.dot(d, d, dim="b"),
    lambda d: xr.apply_ufunc(np.sin, d),
    lambda d: d.reduce(np.sum, "a"),
    lambda d: d.clip(0.0, 1.0),
    lambda d: d.expand_dims("z"),
    lambda d: d.stack(c=("a", "b")),
    lambda d: d.sortby("b", ascending=False),
    lambda d: d.integrate("b"),
    lambda d: d.astype("float32"),
]
PROMOTING = [
    lambda d: d.sum("a"),
    lambda d: d.mean("b"),
    lambda d: d.max("a"),
    lambda d: d.prod("b"),
    lambda d: d.where(d > 0, 0.0),
    lambda d: d.where(d > 0).sum(),
    lambda d: xr.concat([d, 2.0 * d], "a"),
    lambda d: xr.concat([d, 2.0 * d], "c"),
    lambda d: d.groupby("a").sum(),
    lambda d: d.groupby("a").mean(),
    lambda d: d.groupby("a").map(lambda group: group - group.mean()),
    lambda d: d.rolling(b=3).mean().fillna(0.0),
    lambda d: d.rolling(b=3, center=True).sum().fillna(0.0),
    lambda d: d.coarsen(b=2).mean(),
    lambda d: d.shift(b=1).fillna(0.0),
    lambda d: d.roll(b=1),
    lambda d: d.weighted(xr.DataArray(np.arange(6.0), dims="b")).mean("b"),
    lambda d: xr.Dataset({"u": d}).mean()["u"],
    lambda d: d.std(),
    lambda d: d.median("b"),
    lambda d: d.cumsum("b"),
]


@pytest.mark.parametrize("f", [*PLAIN, *PROMOTING])
def test_a_function_of_labelled_tensors_is_that_of_arrays(f: Callable[[Any], Any]) -> None:
    found = f(labelled(us.tensor(data))).data
    assert isinstance(found, us.Tensor)
    np.testing.assert_allclose(found.eval(), f(labelled(data)).data, rtol=1e-6 if found.dtype == "float32" else 1e-12)


@pytest.mark.parametrize("f", [PLAIN[6], PROMOTING[4], PROMOTING[9], PROMOTING[11]])
def test_a_function_of_labelled_tensors_has_derivatives(f: Callable[[Any], Any]) -> None:
    assert us.check_grad(lambda x: us.sum(us.sin(f(labelled(x)).data)), data).ok


def test_a_labelled_tensor_prints() -> None:
    array = labelled(us.tensor(data))
    assert "DataArray" in repr(array) and "<div>" in array._repr_html_()
