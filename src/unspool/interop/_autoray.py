"""autoray: the functions it asks for that unspool has under another name, with other arguments, or not at all.

autoray finds a library by the module of its array class, and functions by their names in it, so most of it works by
itself. What unspool lacks it looks up here, as an alternative module; what takes other arguments is wrapped. Both also
hold for the very first call by name (``do("ones", 3, like="unspool")``), which is what imports unspool.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

import unspool as us
from unspool import linalg as _linalg
from unspool import random as _random
from unspool._tensor import Tensor

_Function = Callable[..., Any]


def enter(autoray: ModuleType) -> None:
    """Tell autoray about unspool; called when both are imported."""
    autoray.register_module_alias("unspool[alt]", __name__)
    for name, wrapper in _WRAPPERS.items():
        autoray.register_function("unspool", name, wrapper=wrapper)
    # Who asks for the value by this name has said so; ``np.asarray`` inside of autoray has not.
    autoray.register_function("unspool", "to_numpy", Tensor.eval)


# --- what unspool has otherwise --------------------------------------------------------------------------------------


def _thin_svd(svd: _Function) -> _Function:
    return lambda x, full_matrices=False, **options: svd(x, full_matrices=full_matrices, **options)


def _drawn(name: str) -> _Function:
    """Return a wrapper that draws from NumPy's shared state, as autoray expects, in place of a keyed function."""
    return lambda keyed: _as_tensors(getattr(np.random, name))


def _as_tensors(draw: _Function) -> _Function:
    def function(*args: Any, dtype: Any = None, **kwargs: Any) -> Any:
        drawn = np.asarray(draw(*args, **kwargs))
        return us.tensor(drawn if dtype is None else drawn.astype(dtype))

    return function


_WRAPPERS: dict[str, _Function] = {
    "linalg.svd": _thin_svd,
    # Ours take a key.
    **{f"random.{name}": _drawn(name) for name in _random.__all__ if hasattr(np.random, name)},
}


# --- what unspool does not have --------------------------------------------------------------------------------------


class Generator:
    """NumPy's generator with tensors as results, under the names of its methods."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def __getattr__(self, name: str) -> _Function:
        return _as_tensors(getattr(self._rng, name))


def default_rng(seed: Any = None) -> Generator:
    """Make a generator from a seed, or return the one that was given."""
    return seed if isinstance(seed, Generator) else Generator(np.random.default_rng(seed))


def complex(re: Any, im: Any) -> Tensor:
    """Make complex numbers of their parts."""
    return us.asarray(re) + 1j * us.asarray(im)


random = SimpleNamespace(default_rng=default_rng, seed=np.random.seed)
scipy = SimpleNamespace(
    linalg=SimpleNamespace(expm=_linalg.expm, lu=_linalg.lu, solve_triangular=_linalg.solve_triangular)
)
