"""NumPy's protocols: ``np.sin(t)``, ``np.add(a, t)``, ``np.linalg.norm(t)`` on tensors record tensors.

The one idea: a NumPy function stands for the unspool function of the same name, looked up when it is called, so all
that unspool has works through NumPy too. What is here is only where names or arguments differ, and refusals that say
what to write instead: tensors are never written into, and nothing is computed behind the user's back.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from unspool._above import above
from unspool._dims import product
from unspool._graph import Node
from unspool._ops.elementwise import astype
from unspool._ops.layout import reshape
from unspool._ops.leaf import as_operands, as_tensor
from unspool.errors import DTypeError, MutationError, UnspoolError, UnsupportedError

_KEYWORDS: Mapping[str, str] = {"a_max": "max", "a_min": "min", "ddof": "correction", "newshape": "shape"}

_REDUCTIONS: Mapping[str, str] = {
    "add": "sum",
    "logical_and": "all",
    "logical_or": "any",
    "maximum": "max",
    "minimum": "min",
    "multiply": "prod",
}

_RUNNING: Mapping[str, str] = {"add": "cumsum", "multiply": "cumprod"}

_NO_DEFAULT = object()

# Arguments of ufuncs that change nothing when they have these values.
_NEUTRAL: Mapping[str, Any] = {"casting": "same_kind", "order": "K", "subok": True, "where": True}

_OPERATORS: Mapping[str, str] = {
    "add": "+",
    "bitwise_and": "&",
    "bitwise_or": "|",
    "bitwise_xor": "^",
    "divide": "/",
    "floor_divide": "//",
    "left_shift": "<<",
    "matmul": "@",
    "multiply": "*",
    "power": "**",
    "remainder": "%",
    "right_shift": ">>",
    "subtract": "-",
}

_WRITERS = frozenset({"copyto", "fill_diagonal", "place", "put", "put_along_axis", "putmask"})

# Questions that need no value; a copy of what never changes is itself.
_ANSWERS: Mapping[str, Callable[..., Any]] = {
    "copy": lambda a, order="K", subok=False: a,
    "iscomplexobj": lambda x: x.dtype.kind == "c",
    "isrealobj": lambda x: x.dtype.kind != "c",
    "ndim": lambda a: len(a.shape),
    "shape": lambda a: a.shape,
    "size": lambda a, axis=None: product(a.shape) if axis is None else a.shape[axis],
}

# Functions whose result is text, a file or a Python bool: they are given values.
_ON_VALUES = frozenset(
    {"array2string", "array_equal", "array_equiv", "array_repr", "array_str"}
    | {"save", "savetxt", "savez", "savez_compressed"}
)


# --- ufuncs ----------------------------------------------------------------------------------------------------------


def call_ufunc(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Record what a ufunc, or one of its methods, was asked to do with tensors (``__array_ufunc__``)."""
    if method == "__call__" and not kwargs:  # an operator between an array and a tensor
        return _function_for(ufunc)(*inputs)
    name = ufunc.__name__
    out = kwargs.pop("out", None)
    if out is not None:
        raise _refused_output(f"np.{name}", _operator(name, inputs, out))
    if method == "at":
        verb = {"add": "add", "multiply": "multiply", "maximum": "max", "minimum": "min"}.get(name, "set")
        raise MutationError(
            f"np.{name}.at writes into its first argument; t = t.at[index].{verb}(value) makes a new one"
        )
    if method == "__call__":
        return _call(ufunc, inputs, kwargs)
    if method == "outer" and ufunc.nin == 2:
        first, second = as_operands(*inputs)
        return _call(ufunc, (reshape(first, (*first.shape, *[1] * second.ndim)), second), kwargs)
    table = {"reduce": _REDUCTIONS, "accumulate": _RUNNING}.get(method, {})
    if name not in table:
        raise _unsupported(f"np.{name}.{method}")
    return _reduce(f"np.{name}.{method}", table[name], inputs, kwargs)


def _call(ufunc: np.ufunc, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    name, function = ufunc.__name__, _function_for(ufunc)
    dtype = kwargs.pop("dtype", None)
    accepted = {key: value for key, value in kwargs.items() if key in _parameters(function)}
    _refuse_arguments(f"np.{name}", {key: value for key, value in kwargs.items() if key not in accepted})
    if dtype is not None:
        inputs = tuple(_cast(f"np.{name}", x, dtype) for x in as_operands(*inputs))
    return function(*inputs, **accepted)


@lru_cache(maxsize=256)
def _function_for(ufunc: np.ufunc) -> Callable[..., Any]:
    """Return unspool's function for a ufunc."""
    # SciPy's special functions are ufuncs too, and do not say where they are from.
    function = _counterpart("numpy", ufunc.__name__) or _counterpart("scipy.special", ufunc.__name__)
    if function is None:
        package = "np" if hasattr(np, ufunc.__name__) else "scipy.special"
        raise _unsupported(f"{package}.{ufunc.__name__}")
    return function


def _cast(name: str, x: Any, dtype: Any) -> Any:
    if not np.can_cast(x.dtype, dtype, "same_kind"):
        raise DTypeError(f"{name} with dtype={np.dtype(dtype)} cannot take a tensor of dtype {x.dtype}; use us.astype")
    return astype(x, dtype)


def _reduce(name: str, counterpart: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    # The methods of ufuncs work along the first axis by default, where the functions take all.
    arguments = dict(zip(("axis", "dtype", "out", "keepdims"), inputs[1:], strict=False)) | kwargs
    if arguments.pop("out", None) is not None:
        raise _refused_output(name)
    function = _function(counterpart)
    dtype = arguments.pop("dtype", None)
    known = {key: value for key, value in arguments.items() if key in _parameters(function)}
    _refuse_arguments(name, {key: value for key, value in arguments.items() if key not in known})
    result = function(as_tensor(inputs[0]) if dtype is None else astype(inputs[0], dtype), **({"axis": 0} | known))
    return result if dtype is None else astype(result, dtype)


def _refuse_arguments(name: str, arguments: Mapping[str, Any]) -> None:
    for key, value in arguments.items():
        if not _is_default(value, _NEUTRAL.get(key, _NO_DEFAULT)):
            hint = "; us.where(condition, result, other) chooses elements" if key == "where" else ""
            raise UnsupportedError(f"{name} of a tensor does not take {key}={value!r}{hint}")


def _is_default(value: Any, default: Any) -> bool:
    return value is default or (isinstance(value, (str, int, type(None))) and value == default)


# --- functions -------------------------------------------------------------------------------------------------------


def call_function(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Record what a NumPy function was asked to do with tensors (``__array_function__``)."""
    name = func.__name__
    module = func.__module__
    full_name = f"{module.replace('numpy', 'np', 1)}.{name}"
    if name in _WRITERS:
        raise MutationError(
            f"{full_name} writes into its first argument; t = t.at[index].set(value) makes a new tensor"
        )
    if name in _ANSWERS:
        return _ANSWERS[name](*args, **kwargs)
    if name in ("can_cast", "result_type"):
        return func(*[x.dtype if isinstance(x, Node) else x for x in args], **kwargs)
    if name in _ON_VALUES:
        given = {key: np.asarray(x) if isinstance(x, Node) else x for key, x in kwargs.items()}
        return func(*[np.asarray(x) if isinstance(x, Node) else x for x in args], **given)
    function = _counterpart(module, name)
    if function is None:
        raise _unsupported(full_name)
    return _translated(full_name, func, function, args, kwargs)


def _translated(
    name: str, func: Callable[..., Any], function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call our function with what NumPy's was given: required arguments by position, options by name.

    An option that ours does not have may have NumPy's default; ``dtype`` becomes a conversion of the result.
    """
    ours = _parameters(function)
    positional: list[Any] = []
    options: dict[str, Any] = {}
    dtype = None
    for parameter, value in _bound(func, args, kwargs):
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional.extend(value)
            continue
        option = parameter.name if parameter.name in ours else _KEYWORDS.get(parameter.name, parameter.name)
        if parameter.default is parameter.empty or parameter.kind is parameter.POSITIONAL_ONLY:
            positional.append(value)
        elif option in ours:
            options[option] = value
        elif option == "out" and value is not None:
            raise _refused_output(name)
        elif option == "dtype":
            dtype = value
        elif not _is_default(value, parameter.default):
            raise UnsupportedError(f"{name} of a tensor does not take {parameter.name}={value!r}")
    try:
        _signature(function).bind(*positional, **options)
    except TypeError as error:
        raise UnsupportedError(f"{name} of a tensor does not work with these arguments: {error}") from None
    result = function(*positional, **options)
    return result if dtype is None else astype(result, dtype)


def _bound(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[tuple[inspect.Parameter, Any]]:
    """Return the arguments that were given, each with the parameter of NumPy's function it is for."""
    signature = _signature(func)
    found: list[tuple[inspect.Parameter, Any]] = []
    for name, value in signature.bind(*args, **kwargs).arguments.items():
        parameter = signature.parameters[name]
        if parameter.kind is parameter.VAR_KEYWORD:
            found += [(inspect.Parameter(key, parameter.KEYWORD_ONLY, default=None), v) for key, v in value.items()]
        else:
            found.append((parameter, value))
    return found


# --- looking up ------------------------------------------------------------------------------------------------------


def _counterpart(module: str, name: str) -> Callable[..., Any] | None:
    """Return unspool's function for one of NumPy's, ``None`` if there is none."""
    namespace: Any = above.namespace
    for part in module.split(".")[1:]:
        namespace = getattr(namespace, part, None)
    function = getattr(namespace, name, None)
    return function if callable(function) and not isinstance(function, type) else None


def _function(name: str) -> Callable[..., Any]:
    function = _counterpart("numpy", name)
    if function is None:
        raise _unsupported(f"np.{name}")
    return function


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return _signature(function).parameters


_signature = lru_cache(maxsize=1024)(inspect.signature)


# --- refusing --------------------------------------------------------------------------------------------------------


def _unsupported(name: str) -> UnspoolError:
    return UnsupportedError(
        f"{name} has no counterpart in unspool; {name}(np.asarray(t)) computes with values, outside of derivatives"
    )


def _refused_output(name: str, operator: str | None = None) -> MutationError:
    if operator is not None:
        return MutationError(
            f"a {operator}= t would write a tensor into an array; write a = a {operator} t, "
            f"and t = t.at[index].set(value) to update elements"
        )
    return MutationError(
        f"{name} does not write into out=, its result is a new tensor: y = {name}(...); "
        f"t = t.at[index].set(value) makes an updated tensor"
    )


def _operator(name: str, inputs: tuple[Any, ...], out: tuple[Any, ...]) -> str | None:
    """Return the operator of an augmented assignment, which NumPy turns into a ufunc with its first input as output."""
    return _OPERATORS.get(name) if len(inputs) == 2 and inputs[0] is out[0] else None
