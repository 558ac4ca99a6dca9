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

# TensorLy asks for these by NumPy's names, which are ours.
_FUNCTIONS = [
    "abs",
    "all",
    "any",
    "arange",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctanh",
    "argmax",
    "argmin",
    "argsort",
    "concatenate",
    "conj",
    "cos",
    "cosh",
    "count_nonzero",
    "cumsum",
    "diag",
    "digamma",
    "dot",
    "einsum",
    "exp",
    "eye",
    "flip",
    "kron",
    "log",
    "log2",
    "matmul",
    "max",
    "maximum",
    "mean",
    "min",
    "minimum",
    "moveaxis",
    "ones",
    "prod",
    "reshape",
    "sign",
    "sin",
    "sinh",
    "sort",
    "sqrt",
    "stack",
    "sum",
    "tan",
    "tanh",
    "tensordot",
    "trace",
    "transpose",
    "zeros",
    "zeros_like",
]
_CONSTANTS = ["complex128", "complex64", "e", "float32", "float64", "inf", "int32", "int64", "nan", "pi"]


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
        def where(condition: Any, *choices: Any) -> Any:
            return us.where(condition, *choices) if choices else us.nonzero(condition)

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

    for name in _FUNCTIONS:
        UnspoolBackend.register_method(name, getattr(us, name))
    for name in ("eigh", "qr", "solve"):
        UnspoolBackend.register_method(name, getattr(linalg, name))
    for name in _CONSTANTS:
        setattr(UnspoolBackend, name, getattr(us, name))
    if "unspool" not in backend.BackendManager.available_backend_names:
        backend.BackendManager.available_backend_names.append("unspool")
