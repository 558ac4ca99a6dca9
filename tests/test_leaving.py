"""While a derivative is taken, a tensor that depends on a variable becomes a plain array only where that is asked for.

Every way out of the graph gives the right gradient (against differences) or an error that names the line.
"""

from __future__ import annotations

import contextlib
import math
import subprocess
import sys
import textwrap
import threading
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.fft
import scipy.integrate
import scipy.linalg
import scipy.signal
import scipy.sparse
import scipy.special

import unspool as us
from unspool.errors import LeftGraphError, NotConnectedError, UnboundPlaceholderError

X = np.array([0.3, 0.7, 1.1])
SPARSE = scipy.sparse.csr_array(np.diag([1.0, 2.0, 3.0]))


def gradient_by_differences(f: Any, step: float = 1e-6) -> Any:
    def value(x: Any) -> float:
        return float(us.asarray(f(us.tensor(x))))

    return np.array([(value(X + step * e) - value(X - step * e)) / (2 * step) for e in np.eye(3)])


def assigned(x: Any) -> Any:
    a = np.zeros(3)
    a[:] = x
    return us.sum(a)


def assigned_element(x: Any) -> Any:
    a = np.zeros(3)
    a[0] = x[0]
    return us.sum(a)


def filled(x: Any) -> Any:
    a = np.zeros(3)
    a.fill(x[0])
    return us.sum(a)


def list_by_name(x: Any) -> Any:
    rows = [x, 2 * x]
    return us.sum(np.asarray(rows))


def pair(x: Any) -> list[Any]:
    return [x[0], x[1]]


# A library that knows nothing of tensors, as pandas does: its operators take the other operand as an array.
LIBRARY = """
import numpy as np

class Series:
    def __init__(self, values):
        self.values = np.asarray(values)

    def __array__(self, dtype=None, copy=None):
        return self.values

    def __rmul__(self, other):
        return Series(np.asarray(other) * self.values)

    __mul__ = __rmul__

    def sum(self):
        return self.values.sum()

def size_of(x):
    return float(x) if x.ndim == 0 else None
"""
library: dict[str, Any] = {}
exec(compile(LIBRARY, "/somewhere/site-packages/library/core.py", "exec"), library)
SERIES = library["Series"]([1.0, 2.0, 3.0])


# --- what is not asked for -------------------------------------------------------------------------------------------

LEAVING = {
    "an array of lists": lambda x: us.linalg.det(np.array([[x[0], 0.0], [0.0, x[1]]])),
    "an array of tensors": lambda x: us.sum(np.array([x, x])),
    "asarray of a list": lambda x: us.sum(np.asarray([x, x])),
    "asarray of a tuple": lambda x: us.sum(np.asarray((x[0], x[1]))),
    "asarray of a comprehension": lambda x: us.sum(np.asarray([2 * x for _ in range(3)])),
    "asarray of a name of a list": list_by_name,
    "asarray of numbers from a call": lambda x: us.sum(np.asarray(pair(x))),
    "mean": lambda x: np.mean([x[0], x[1]]),
    "sum": lambda x: np.sum([x, x]),
    "hypot of lists": lambda x: us.sum(np.hypot([x[0], x[1]], [x[0], x[1]])),
    "einsum of lists": lambda x: np.einsum("i,i", [x[0], x[1]], [x[0], x[1]]),
    "dot of lists": lambda x: np.dot([x[0], x[1]], [1.0, 2.0]),
    "det of lists": lambda x: np.linalg.det([[x[0], 0.0], [0.0, x[1]]]),
    "trapezoid": lambda x: np.trapezoid([x[0], x[1]]),
    "array times list": lambda x: us.sum(np.ones(3) * [x[0], x[1], x[2]]),
    "r_": lambda x: us.sum(np.r_[x, 1.0]),
    "c_": lambda x: us.sum(np.c_[x, x]),
    "full": lambda x: us.sum(np.full(3, x[0])),
    "arange": lambda x: us.sum(np.arange(9 * x[0])),
    "vectorize": lambda x: us.sum(np.vectorize(lambda a: 2 * a)(x)),
    "fromiter": lambda x: us.sum(np.fromiter((t for t in x), float)),
    "assignment": assigned,
    "assignment of an element": assigned_element,
    "fill": filled,
    "math": lambda x: math.exp(x[0]),
    "logsumexp": lambda x: scipy.special.logsumexp(x),
    "softmax": lambda x: scipy.special.softmax(x)[0],
    "expm": lambda x: scipy.linalg.expm(us.outer(x, x))[0, 0],
    "eigh": lambda x: scipy.linalg.eigh(us.outer(x, x))[0][2],
    "solve": lambda x: scipy.linalg.solve(np.eye(3), x)[0],
    "norm": lambda x: scipy.linalg.norm(x),
    "sparse @ tensor": lambda x: us.sum(SPARSE @ x),
    "tensor @ sparse": lambda x: us.sum(x @ SPARSE),
    "tensor * sparse": lambda x: (x * SPARSE).sum(),
    "quad": lambda x: scipy.integrate.quad(lambda s: x[0] * s, 0, 1)[0],
    "fft": lambda x: us.sum(us.abs(scipy.fft.fft(x))),
    "convolve": lambda x: us.sum(scipy.signal.convolve(x, x)),
    "tensor * series": lambda x: (x * SERIES).sum(),
    "series * tensor": lambda x: (SERIES * x).sum(),
}


@pytest.mark.parametrize("f", LEAVING.values(), ids=LEAVING.keys())
def test_leaving_the_graph_on_the_way_is_an_error_that_names_the_line(f: Any) -> None:
    with pytest.raises(LeftGraphError) as caught:
        us.grad(lambda x: us.sum(x) + f(x))(us.tensor(X))
    message = str(caught.value)
    assert message.startswith("a tensor left the graph at test_leaving.py:")
    assert f.__code__.co_firstlineno <= int(message.split(":")[1]) <= f.__code__.co_firstlineno + 4
    assert "t.eval()" in message


@pytest.mark.parametrize("f", LEAVING.values(), ids=LEAVING.keys())
def test_in_a_plain_loop_a_loss_that_left_has_no_gradient(f: Any) -> None:
    x = us.tensor(X)
    with pytest.raises(NotConnectedError):
        us.asarray(f(x)).grad(x)


TRANSFORMS = {
    "value_and_grad": lambda f: us.value_and_grad(f)(X),
    "vjp": lambda f: us.vjp(f, X),
    "jvp": lambda f: us.jvp(f, (X,), (X,)),
    "linearize": lambda f: us.linearize(f, X),
    "hvp": lambda f: us.hvp(f, (X,), (X,)),
    "jacobian": lambda f: us.jacobian(f)(X),
    "hessian": lambda f: us.hessian(f)(X),
    "check_grad": lambda f: us.check_grad(f, X),
    "grad of grad": lambda f: us.grad(lambda x: us.sum(us.grad(f)(x)))(X),
}


@pytest.mark.parametrize("derivative", TRANSFORMS.values(), ids=TRANSFORMS.keys())
def test_every_transform_watches(derivative: Any) -> None:
    with pytest.raises(LeftGraphError, match=r"test_leaving\.py"):
        derivative(lambda x: us.sum(x * x) + np.mean([x[0], x[1]]))


def test_a_variable_of_a_derivative_outside_is_watched_inside() -> None:
    def outer(x: Any) -> Any:
        return us.sum(x) + us.grad(lambda y: us.sum(y * np.full(3, x[0])))(us.tensor(X))[0]

    with pytest.raises(LeftGraphError):
        us.grad(outer)(X)


TRACED = {
    "fragment": lambda step, x: us.fragment(step)(x),
    "remat": lambda step, x: us.remat(step)(x),
    "iterate": lambda step, x: us.iterate(step, x, max_steps=3),
    "fixed_point": lambda step, x: us.fixed_point(lambda s: 0.1 * step(s) + x, x)[0],
}


@pytest.mark.parametrize("run", TRACED.values(), ids=TRACED.keys())
def test_what_is_traced_without_values_cannot_leave(run: Any) -> None:
    def step(s: Any) -> Any:
        return 0.5 * s + np.mean([s[0], s[1]])

    with pytest.raises(UnboundPlaceholderError):
        us.grad(lambda x: us.sum(run(step, x)))(us.tensor(X))


def test_the_error_names_the_library_that_converted() -> None:
    with pytest.raises(LeftGraphError, match=r"\(through core\.py:"):
        us.grad(lambda x: us.sum(x) + (x * SERIES).sum())(us.tensor(X))


# --- what is dispatched ----------------------------------------------------------------------------------------------

DISPATCHED = {
    "hypot of a list and a tensor": lambda x: us.sum(np.hypot([x[0], x[1]], x[:2])),
    "einsum of a list and a tensor": lambda x: np.einsum("i,i", [x[0], x[1], x[0]], x),
    "tensor times list": lambda x: us.sum(x * [x[0], 2.0, x[1]]),
    "list times tensor": lambda x: us.sum([x[0], 2.0, x[1]] * x),
    "nested lists beside a tensor": lambda x: us.sum([[x[0], 0.0, 0.5], [0.0, x[1], x[2]]] @ x),
    "a sum of a list": lambda x: us.sum([x[0], x[1] * x[2]]),
    "asarray": lambda x: us.linalg.det(us.asarray([[x[0], 0.3], [0.2, x[1]]])),
    "lists of lists and vectors": lambda x: us.sum(us.asarray([x, [x[1], 1.0, 2.0]]) ** 2),
    "stack": lambda x: np.sum(np.stack([x, x * x])),
    "concatenate": lambda x: np.sum(np.concatenate([x, x * x]) ** 2),
    "linspace": lambda x: np.sum(np.linspace(0.0, x[0], 3)),
    "maximum": lambda x: us.sum(np.maximum(x, [x[1], 0.1, x[0]])),
    "where": lambda x: us.sum(np.where(x > 0.5, x, [x[0], x[0], x[0]])),
    "erf": lambda x: us.sum(scipy.special.erf(x)),
}


@pytest.mark.parametrize("f", DISPATCHED.values(), ids=DISPATCHED.keys())
def test_what_numpy_dispatches_has_the_right_gradient(f: Any) -> None:
    np.testing.assert_allclose(us.grad(f)(us.tensor(X)).eval(), gradient_by_differences(f), rtol=1e-7, atol=1e-8)


def test_a_list_of_tensors_has_numpys_value() -> None:
    x, a = us.tensor(X), X
    np.testing.assert_array_equal(us.asarray([[x[0], 0], [1, x[1]]]).eval(), np.array([[a[0], 0], [1, a[1]]]))
    assert us.asarray([us.tensor(1, dtype="int32"), 2]).dtype == np.int32
    assert us.asarray([x[0], 2], dtype="float32").dtype == np.float32


def test_a_ragged_list_of_tensors_is_refused() -> None:
    x = us.tensor(X)
    with pytest.raises(us.errors.ShapeError, match="stack of shapes"):
        us.sum([x, x[:2]])


# --- a program's own reading -----------------------------------------------------------------------------------------

READING = {
    "eval": lambda x: x.eval()[0],
    "numpy": lambda x: x.numpy()[0],
    "item": lambda x: x[0].item(),
    "tolist": lambda x: x.tolist()[0],
    "float": lambda x: float(x[0]),
    "float of a loss": lambda x: float(us.sum(x * x)),
    "complex": lambda x: complex(x[0]).real,
    "np.float64": lambda x: np.float64(x[0]),
    "np.int64 of several": lambda x: np.int64(10 * x)[0],
    "map": lambda x: sum(list(map(float, x))),
    "key": lambda x: float(max(x, key=float)),
    "asarray": lambda x: np.asarray(x)[0],
    "asarray of an expression": lambda x: np.asarray(us.sin(x) * 2)[0],
    "asarray with a dtype": lambda x: np.asarray(x, dtype=np.float32)[0],
    "asarray by keyword": lambda x: np.asarray(a=x)[0],
    "asarray of an element": lambda x: float(np.asarray(x[0])),
    "asarray over lines": lambda x: np.asarray(
        x,
    )[0],
    "asarray of an attribute": lambda x: np.asarray(x.T)[0],
    "asarray by map": lambda x: sum(map(np.asarray, [x, x]))[0],
    "array": lambda x: np.array(x)[0],
    "ascontiguousarray": lambda x: np.ascontiguousarray(x)[0],
    "list of floats": lambda x: np.array([float(x[0]), float(x[1])])[0],
    "if": lambda x: 1.0 if us.sum(x) > 0 else 0.0,
    "truth": lambda x: 1.0 if x[0] else 0.0,
    "text": lambda x: float(len(f"{x[0]:.3f} {x} " + f"{x[0]!r}")),
    "percent": lambda x: float(len("%.3f" % x[0])),  # noqa: UP031
    "isnan": lambda x: float(math.isnan(x[0])),
    "array_equal": lambda x: float(np.array_equal(x, X)),
    "range": lambda x: float(len(range(int(9 * x[0])))),
    "a library's float": lambda x: library["size_of"](x[0]),
    "stop_gradient": lambda x: np.sum([us.stop_gradient(x), us.stop_gradient(x)]),
    "a constant": lambda x: scipy.special.logsumexp(us.tensor(X) * 2),
}


@pytest.mark.parametrize("read", READING.values(), ids=READING.keys())
def test_reading_a_value_goes_on_working(read: Any) -> None:
    found = us.grad(lambda x: us.sum(x * x) * (1.0 + 0.0 * read(x)))(us.tensor(X))
    np.testing.assert_allclose(found.eval(), 2 * X)


def test_a_library_may_be_given_values() -> None:
    found = us.grad(lambda x: us.sum(x) * scipy.special.logsumexp(x.eval()))(us.tensor(X))
    np.testing.assert_allclose(found.eval(), np.full(3, scipy.special.logsumexp(X)))


def test_nothing_is_watched_outside_of_derivatives() -> None:
    x = us.tensor(X)
    assert np.mean([x[0], x[1]]) == 0.5
    assert scipy.linalg.norm(x) == pytest.approx(np.linalg.norm(X))
    us.grad(lambda t: us.sum(t * t))(x)
    assert scipy.linalg.norm(x) == pytest.approx(np.linalg.norm(X))


def test_a_derivative_that_failed_leaves_no_watch_behind() -> None:
    kept = []
    with pytest.raises(LeftGraphError):
        us.grad(lambda x: kept.append(x) or us.sum(x) + np.mean([x[0], x[1]]))(us.tensor(X))
    assert np.mean([kept[0][0], kept[0][1]]) == 0.5


def test_a_thread_of_its_own_is_not_watched() -> None:
    read: list[Any] = []

    def f(x: Any) -> Any:
        thread = threading.Thread(target=lambda: read.append(np.sum([x, x])))
        thread.start()
        thread.join()
        return us.sum(x)

    us.grad(f)(us.tensor(X))
    assert read == [pytest.approx(2 * X.sum())]


def test_an_error_of_the_function_stays_what_it_is() -> None:
    def f(x: Any) -> Any:
        with contextlib.suppress(LeftGraphError):
            np.mean([x[0], x[1]])
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        us.grad(f)(us.tensor(X))


def test_partials_of_asarray_are_not_seen_through() -> None:
    with pytest.raises(LeftGraphError):
        us.grad(lambda x: us.sum(x) + partial(np.asarray, dtype=float)(x)[0])(us.tensor(X))


# --- with SciPy's switch for other arrays ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    ["scipy.special.erf(x)", "us.abs(scipy.fft.fft(x))", "scipy.signal.convolve(x, x)"],
    ids=["erf", "fft", "convolve"],
)
def test_nothing_leaves_when_scipy_takes_other_arrays(call: str) -> None:
    program = f"""
        import os
        os.environ["SCIPY_ARRAY_API"] = "1"
        import numpy as np, scipy.fft, scipy.signal, scipy.special
        import unspool as us
        from unspool.errors import LeftGraphError

        X = np.array([0.3, 0.7, 1.1])
        def f(x):
            return us.sum(x) + us.sum({call})
        def value(x):
            return float(f(us.tensor(x)))
        try:
            found = us.grad(f)(us.tensor(X)).eval()
        except LeftGraphError as error:
            assert "depends on a variable" in str(error)
        else:
            expected = [(value(X + 1e-6 * e) - value(X - 1e-6 * e)) / 2e-6 for e in np.eye(3)]
            np.testing.assert_allclose(found, expected, rtol=1e-7)
        print("right, or refused")
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "right, or refused\n", done.stderr
