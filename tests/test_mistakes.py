"""Every public function answers arguments that make no sense with an error of unspool's own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool.errors import (
    ArgumentError,
    DTypeError,
    NoAxesError,
    ShapeError,
    StructureError,
    UnexpectedBindingError,
    UnspoolError,
)

SENSELESS: list[Any] = [5, -1, 2.5, None, "nonsense", object(), [], {}, np.array(["a"])]

# Made by other functions: a Tensor by every operation, a Dim by us.dims, a Key by us.random.key.
MADE = {"Dim", "Key", "Tensor"}
NAMESPACES: dict[str, ModuleType] = {
    "us": us,
    "us.fft": us.fft,
    "us.linalg": us.linalg,
    "us.random": us.random,
    "us.signal": us.signal,
    "us.special": us.special,
    "us.stats.dirichlet": us.stats.dirichlet,
    "us.stats.multinomial": us.stats.multinomial,
    "us.stats.multivariate_normal": us.stats.multivariate_normal,
    "us.debug": us.debug,
    "us.checkpoint": us.checkpoint,
}


def public_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    for place, namespace in NAMESPACES.items():
        for name in namespace.__all__:
            function = getattr(namespace, name)
            is_numpys = isinstance(function, type) and function.__module__ == "numpy"
            if callable(function) and not inspect.ismodule(function) and name not in MADE and not is_numpys:
                yield f"{place}.{name}", function


FUNCTIONS = dict(public_functions())


def required(function: Callable[..., Any]) -> tuple[int, list[str]]:
    """Return how many positional arguments a function must be given, and which keywords."""
    parameters = list(inspect.signature(function).parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    count = len([p for p in positional if p.default is p.empty])
    count += any(p.kind is p.VAR_POSITIONAL for p in parameters)
    return count, [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]


def attempt(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
    """Call a function; it may answer, or refuse in words of ours."""
    try:
        answer = function(*args, **kwargs)
        if isinstance(answer, us.Tensor):
            answer.eval()
    except UnspoolError:
        pass
    except Exception as error:
        raise AssertionError(f"called with {args}, {kwargs}") from error


MATRIX = us.tensor([[2.0, 0.5], [0.5, 1.0]])


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # "nonsense" is a fine name for a file.
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_required_arguments_that_make_no_sense(name: str) -> None:
    function = FUNCTIONS[name]
    count, keywords = required(function)
    for value in SENSELESS:
        given = dict.fromkeys(keywords, value)
        attempt(function, *[value] * count, **given)
        attempt(function, *[MATRIX, *[value] * (count - 1)][:count], **given)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_options_that_make_no_sense(name: str) -> None:
    function = FUNCTIONS[name]
    count, keywords = required(function)
    given = dict.fromkeys(keywords, "1MB" if name == "us.plan_memory" else MATRIX)
    for option, parameter in inspect.signature(function).parameters.items():
        if parameter.default is not parameter.empty:
            for value in SENSELESS:
                attempt(function, *[MATRIX] * count, **given | {option: value})


# --- the messages ----------------------------------------------------------------------------------------------------

X = us.tensor([1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("mistake", "error", "message"),
    [
        (lambda: us.zeros((10**10, 10**10)), ShapeError, "has more elements than an array can have"),
        (lambda: us.broadcast_to(X, (10**20, 3)), ShapeError, "has more elements than an array can have"),
        (lambda: us.ones((2, 10**7)) * X, ShapeError, "cannot be broadcast together"),
        (lambda: X * "a", DTypeError, "multiply of a tensor of dtype float64 and str 'a'"),
        (lambda: "a" * X, DTypeError, "multiply of a tensor of dtype float64 and str 'a'"),
        (lambda: X + b"a", DTypeError, "add of a tensor of dtype float64 and bytes b'a'"),
        (lambda: us.plan_memory(5, X, memory="1MB"), StructureError, "the loss must be a tensor, got int"),
        (lambda: X.eval(5), UnexpectedBindingError, "bindings are a dict .* got 5"),
        (lambda: us.eval(X, bindings=[1]), UnexpectedBindingError, r"bindings are a dict .* got \[1\]"),
        (lambda: us.dims(5), ShapeError, r"dims\(\) takes names such as 'n k', got 5"),
        (lambda: us.memory("1MB", spill=5), ArgumentError, "spill is the path of a directory, got 5"),
        (lambda: float(us.tensor(1j)), DTypeError, r"float\(\) of a tensor of dtype complex128: take \.real or abs"),
        (lambda: int(us.tensor(1j)), DTypeError, r"int\(\) of a tensor of dtype complex128: take \.real or abs"),
        (lambda: us.arange(10**15), ArgumentError, r"arange\(0, 1000000000000000, 1\): Unable to allocate"),
        (lambda: us.linspace(0, 1, 10**15), ArgumentError, "linspace.*Unable to allocate"),
        (lambda: us.tensor(1j).astype(float), DTypeError, "would lose the imaginary part"),
        (lambda: us.vjp(5, X), ArgumentError, "takes a function, got 5"),
        (lambda: us.concat(5), ArgumentError, "concat takes a sequence of tensors, got 5"),
    ],
)
def test_a_mistake_is_called_by_its_name(mistake: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        mistake()


def test_text_is_repeated_an_integer_number_of_times() -> None:
    assert "ab" * us.tensor(2) == "abab"  # type: ignore[operator]


def test_a_tensor_without_axes_is_no_sequence() -> None:
    x = us.tensor(1.0)
    for ask in (len, iter, list):
        with pytest.raises(NoAxesError) as caught:
            ask(x)  # type: ignore[operator]
        assert isinstance(caught.value, TypeError) and isinstance(caught.value, ShapeError)


def test_matplotlib_draws_tensors() -> None:
    pyplot = pytest.importorskip("matplotlib.figure")
    axes = pyplot.Figure().subplots()
    axes.plot(X, us.sin(X))
    axes.plot(us.tensor(1.0), us.tensor(2.0), "o")
    axes.scatter(X, X)
    axes.axhline(us.tensor(0.5))
    axes.errorbar(X, us.cos(X), yerr=us.tensor(0.1))
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), np.sin(X.eval()))
    assert float(axes.lines[1].get_ydata()[0]) == 2.0
