"""TensorLy: ``tl.set_backend("unspool")``.

Its backends are classes with NumPy's functions as methods. Ours has unspool's under the same names, and by hand what
differs.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

import unspool as us
from unspool import linalg
from unspool._tensor import Tensor


def enter(backend: ModuleType) -> None:
    """Tell TensorLy about unspool; called when both are imported."""

    class UnspoolBackend(backend.Backend, backend_name="unspool"):  # type: ignore[misc,name-defined,call-arg]
        """What TensorLy does with tensors."""

        @staticmethod
        def context(tensor: Any) -> dict[str, Any]:
            return {"dtype": tensor.dtype}

        @staticmethod
        def tensor(data: Any, dtype: Any = None, **kwargs: Any) -> Tensor:
            return us.asarray(data, dtype=dtype)

        @staticmethod
        def is_tensor(obj: Any) -> bool:
            return isinstance(obj, Tensor)

        @staticmethod
        def to_numpy(tensor: Any) -> Any:
            return tensor.eval().copy() if isinstance(tensor, Tensor) else np.array(tensor)

        @staticmethod
        def copy(tensor: Any) -> Tensor:
            return us.asarray(tensor)

        @staticmethod
        def shape(tensor: Any) -> Any:
            return us.asarray(tensor).shape

        @staticmethod
        def ndim(tensor: Any) -> int:
            return us.asarray(tensor).ndim

        @staticmethod
        def clip(tensor: Any, a_min: Any = None, a_max: Any = None) -> Tensor:
            return us.clip(tensor, a_min, a_max)

        @staticmethod
        def logsumexp(tensor: Any, axis: Any = 0) -> Tensor:
            return us.logsumexp(tensor, axis=axis)

        @staticmethod
        def index_update(tensor: Any, indices: Any, values: Any) -> Tensor:
            return us.asarray(tensor).at[indices].set(values)

        @staticmethod
        def finfo(dtype: Any) -> Any:
            return np.finfo(dtype)

        @staticmethod
        def lstsq(a: Any, b: Any, rcond: Any = None) -> tuple[Any, Any, Any, Any]:
            return tuple(linalg.lstsq(a, b, rcond))  # type: ignore[return-value]

        @staticmethod
        def svd(matrix: Any, full_matrices: bool = True) -> Any:
            return linalg.svd(matrix, full_matrices=full_matrices)

    known = backend.BackendManager
    # TensorLy's gamma is a draw, and its norm one of all entries.
    for name in set(known._functions) - {*vars(UnspoolBackend), "gamma", "norm"}:
        function = getattr(us, name, None) or getattr(linalg, name, None)
        if function is not None:
            UnspoolBackend.register_method(name, function)
    for name in known._attributes:
        if hasattr(us, name):
            setattr(UnspoolBackend, name, getattr(us, name))
    if "unspool" not in known.available_backend_names:
        known.available_backend_names.append("unspool")
