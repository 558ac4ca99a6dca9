"""einops on tensors: the same as on arrays, with derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import unspool as us

einops = pytest.importorskip("einops")

rng = np.random.default_rng(0)
image = rng.normal(size=(2, 4, 6, 3))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: einops.rearrange(x, "b h w c -> b c h w"),
        lambda x: einops.rearrange(x, "b (h i) (w j) c -> (b i j) h w c", i=2, j=3),
        lambda x: einops.rearrange([x, 2.0 * x], "n b h w c -> (b n) (h w) c"),
        lambda x: einops.reduce(x, "b (h i) (w j) c -> b h w c", "mean", i=2, j=2),
        lambda x: einops.reduce(x, "b h w c -> b c", "max"),
        lambda x: einops.reduce(x, "b h w c -> () h () c", "sum"),
        lambda x: einops.reduce(x, "b h w c -> b h", "prod"),
        lambda x: einops.repeat(x, "b h w c -> b (h 2) w n c", n=3),
        lambda x: einops.einsum(x, x, "b h w c, b h v c -> b w v"),
        lambda x: einops.pack([x, 3.0 * x[..., 0]], "b h w *")[0],
        lambda x: einops.unpack(x, [(1,), (2,)], "b h w *")[1],
    ],
)
def test_a_function_of_tensors_is_that_of_arrays(f: Callable[[Any], Any]) -> None:
    assert isinstance(f(us.tensor(image)), us.Tensor)
    np.testing.assert_allclose(f(us.tensor(image)).eval(), f(image), rtol=1e-13)
    assert us.check_grad(lambda x: us.sum(us.sin(f(x))), image).ok


def test_sizes_are_checked() -> None:
    with pytest.raises(einops.EinopsError, match="can't divide"):
        einops.rearrange(us.tensor(image), "b (h i) w c -> b h i w c", i=3)
    assert einops.parse_shape(us.tensor(image), "b h _ c") == {"b": 2, "h": 4, "c": 3}
