"""Every function of NumPy, and of SciPy where ours share its names, called with tensors in the ways people call it.

A call must give a tensor with the right values, or the right answer to a question that is no number (a shape, a bool),
or raise an error of ours; or it converts, and then gives the right values. While a derivative is taken nothing may
leave the graph silently: there the result is a tensor whose derivative is that of NumPy's function, or an error.

The reference is the same call with arrays, and its differences along a direction.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import scipy.fft
import scipy.linalg
import scipy.special

import unspool as us
from unspool.errors import ShapeError, UnboundPlaceholderError, UnknownSizeError, UnspoolError

# No two elements are equal, and none is where a function jumps.
ARRAYS = {
    "X": np.array([[0.31, 0.72, 0.23], [0.64, 0.12, 0.91]]),
    "V": np.array([0.21, 0.46, 0.83]),
    "P": np.array([[2.1, 0.33, 0.14], [0.33, 1.45, 0.26], [0.14, 0.26, 1.22]]),
    "I": np.array([[3, 1, 2], [5, 4, 6]]),
    "B": np.array([[True, False, True], [False, True, True]]),
}
# What stands beside a tensor as an array.
A = np.array([[0.25, 1.1, 2.2], [3.3, 4.4, 5.5]])

# By how many arrays they have; a function is not called with more than it requires, because the rest are options.
FORMS = {
    1: """f(X) f(V) f(P) f(I) f(B) f([X,X]) f([X,A]) f((V,V)) f([V,V],axis=0) f([[P,P],[P,P]]) f(X,axis=0) f(X,axis=-1)
        f(X,axis=1,keepdims=True) f(X,None) f(X,0) f(X,1) f(X,2) f(X,3) f(V,2) f(P,2) f(X,0.5)
        f(X,0.5,axis=1) f(X,dtype="float32") f(X,(3,2)) f(X,[1,0],axis=1) f(X,0,1) f(X,ddof=1) f(V,[0,2])
        f(X,[0,2],axis=1) f(I.ravel()) f((lambda r:r*2),0,X) f(X.T) f(X[0])""",
    2: """f(X,X) f(X,A) f(A,X) f(V,V) f(P,P) f(P,V) f(I,I) f(B,B) f(X,V) f(V,X) f(X,A,axis=0) f("ij,ij->i",X,X)
        f("ij,kj",X,A) f(X,I) f(X,I%2) f([B,B],[X,X]) f(X,weights=X) f(0.5,V) f(V,0.5) f(2,X) f(3,X)""",
    3: """f(X,X,X) f(V,V,V) f(B,X,0.5) f(B,X,A) f(0.5,V,V) f(P,V,V)""",
}

# They print, set, draw, touch files, or are about dates.
LEFT_OUT = frozenset(
    """test show_config show_runtime info get_include save savez savez_compressed savetxt seterr seterrcall setbufsize
    set_printoptions load loadtxt genfromtxt fromfile fromregex printoptions errstate geterr set_workers set_backend
    skip_backend set_global_backend register_backend clarkson_woodruff_transform busday_offset busday_count
    is_busday datetime_as_string""".split()  # noqa: SIM905 - a list of words
)

# They make an array of a tensor, and say so.
CONVERSIONS = {
    f"numpy.{name}" for name in ["array", "asanyarray", "asarray", "ascontiguousarray", "asfortranarray", "from_dlpack"]
}

# What is another value than NumPy's, and why.
OTHERWISE = {
    "numpy.bmat": "looks at the class itself, and gives None for what it does not know",
    "numpy.empty": "its contents are whatever was there",
    "numpy.empty_like": "its contents are whatever was there",
    "numpy.linalg.eig": "eigenvalues are complex, whatever their values",
    "numpy.linalg.eigvals": "eigenvalues are complex, whatever their values",
    "numpy.linalg.lstsq": "residuals are there whatever the rank: shapes do not depend on values",
    "numpy.polydiv": "no coefficient is left out of the first array: shapes do not depend on values",
    "numpy.polymul": "no leading zero is left out: shapes do not depend on values",
    "numpy.reciprocal": "that of an integer is no integer",
    "numpy.unique_values": "in rising order, where NumPy has any",
    "scipy.special.stdtrit": "SciPy's is infinite with the wrong sign at 0",
    "scipy.linalg.eig": "converts, and its vectors have any sign",
}

# Looks at memory itself, and says that a tensor has none.
REFUSED_BY_NUMPY = {
    "numpy.frombuffer",
    "numpy.isfortran",
    "scipy.linalg.find_best_blas_type",
    "scipy.linalg.get_blas_funcs",
    "scipy.linalg.get_lapack_funcs",
}

# They take the tensor for an integer, the order of a polynomial.
NO_DERIVATIVE = {"scipy.special.legendre_p", "scipy.special.legendre_p_all"}

# Not differentiable where they are called here, or by convention in another way than by differences.
DERIVATIVE_OTHERWISE = {
    "numpy.linalg.eigh": "vectors have any sign, and only differences along symmetric matrices mean something",
    "scipy.special.betainc": "is called where the first parameter is 0, the end of its domain",
    "scipy.special.betaincc": "is called where the first parameter is 0, the end of its domain",
    "scipy.special.gammaincinv": "is called at 0, where its slope is infinite",
    "scipy.special.gammainccinv": "is called at 1, where its slope is infinite",
    "numpy.spacing": "jumps, and is not said to",
    "numpy.nextafter": "jumps by less than a difference sees",
}


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    for module in (np, np.linalg, np.fft, scipy.special, scipy.linalg, scipy.fft):
        for name in sorted(set(getattr(module, "__all__", dir(module)))):
            found = getattr(module, name)
            if callable(found) and not isinstance(found, type) and name not in LEFT_OUT and not name.startswith("_"):
                yield f"{module.__name__}.{name}", found


FUNCTIONS = dict(functions())


def required(function: Callable[..., Any]) -> int:
    """Return how many arguments a function takes that are no options."""
    if isinstance(function, np.ufunc):
        return function.nin
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return 2
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return 3
    return max(
        1, sum(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
    )


def forms(function: Callable[..., Any]) -> Iterator[str]:
    for arrays, texts in FORMS.items():
        if arrays <= required(function):
            yield from texts.split()


def call(form: str, function: Callable[..., Any], **given: Any) -> Any:
    names = {name: array.copy() for name, array in ARRAYS.items()} | {"A": A.copy(), "f": function} | given
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return eval(form, names)


def of_arrays(form: str, function: Callable[..., Any]) -> tuple[bool, Any]:
    """Return whether a call works with arrays, and its result."""
    try:
        return True, call(form, function)
    except Exception:
        return False, None


def leaves(result: Any) -> Iterator[Any]:
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, tuple | list):
        for each in result:
            yield from leaves(each)
    else:
        yield result


def agree(mine: Any, theirs: Any) -> bool:
    """Whether results are the same; of data types it is not asked: ours have no float16, and bools are no integers."""
    first, second = list(leaves(mine)), list(leaves(theirs))
    if len(first) != len(second):
        return False
    for one, other in zip(first, second, strict=True):
        one = one.eval() if isinstance(one, us.Tensor) else one
        if not isinstance(other, np.ndarray | np.generic | float | complex):
            if not np.all(np.asarray(one == other)):
                return False
            continue
        one, other = np.asarray(one), np.asarray(other)
        if other.dtype.kind not in "biufc":
            continue
        coarse = 1e-2 if other.dtype == np.float16 else 1e-4 if other.dtype in (np.float32, np.complex64) else 1e-9
        if one.shape != other.shape or not np.allclose(one, other, rtol=coarse, atol=coarse, equal_nan=True):
            return False
    return True


def test_many_call_forms_work_with_arrays() -> None:
    assert sum(of_arrays(form, function)[0] for function in FUNCTIONS.values() for form in forms(function)) > 5_000


def test_what_is_otherwise_is_there() -> None:
    assert {*OTHERWISE, *REFUSED_BY_NUMPY, *DERIVATIVE_OTHERWISE} <= set(FUNCTIONS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_call_gives_the_right_answer_or_an_error_of_ours(name: str) -> None:
    function = FUNCTIONS[name]
    wrong = []
    for form in forms(function):
        works, expected = of_arrays(form, function)
        if not works:
            continue
        try:
            found = call(form, function, **{name: us.tensor(array) for name, array in ARRAYS.items()})
            if name not in OTHERWISE and not agree(found, expected):
                wrong.append((form, found))
        except UnspoolError:
            pass
        except Exception as error:
            if name not in REFUSED_BY_NUMPY:
                wrong.append((form, error))
    assert not wrong


# --- symbolic sizes --------------------------------------------------------------------------------------------------

N, M, K = us.dims("n m k")
SIZES = {"X": (N, M), "V": (M,), "P": (K, K), "I": (N, M), "B": (N, M)}

# How long their result is, or how many arrays they take, is a number that has to be known.
OF_KNOWN_SIZES = {
    "numpy.cross": ShapeError,
    **dict.fromkeys(
        """numpy.delete numpy.insert numpy.polyadd numpy.polysub numpy.polyval numpy.tril_indices_from
        numpy.triu_indices_from numpy.unstack""".split(),  # noqa: SIM905 - a list of words
        UnknownSizeError,
    ),
    **dict.fromkeys(
        """numpy.argwhere numpy.bincount numpy.compress numpy.flatnonzero numpy.intersect1d numpy.nonzero numpy.poly
        numpy.roots numpy.setdiff1d numpy.setxor1d numpy.trim_zeros numpy.union1d numpy.unique numpy.unique_all
        numpy.unique_counts numpy.unique_inverse""".split(),  # noqa: SIM905
        UnboundPlaceholderError,
    ),
}


def is_recorded(form: str, function: Callable[..., Any]) -> bool:
    """Whether a call with tensors gives tensors and nothing else."""
    try:
        found = list(leaves(call(form, function, **{name: us.tensor(array) for name, array in ARRAYS.items()})))
    except Exception:
        return False
    return all(isinstance(each, us.Tensor) for each in found)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in OTHERWISE])
def test_a_call_is_recorded_before_sizes_are_known(name: str) -> None:
    function = FUNCTIONS[name]
    known = [form for form in forms(function) if of_arrays(form, function)[0] and is_recorded(form, function)]
    needed: set[type[Exception]] = set()
    recorded = 0
    for form in known[:6]:
        places = {each: us.placeholder(SIZES[each], dtype=array.dtype) for each, array in ARRAYS.items()}
        values = {places[each]: array for each, array in ARRAYS.items()}
        try:
            found = tuple(leaves(call(form, function, **places)))
        except UnspoolError as error:  # a sequence of arrays is asked for, or a number that has to be known
            needed.add(type(error))
        else:
            recorded += 1
            assert agree(tuple(each.eval(values) for each in found), tuple(leaves(call(form, function)))), form
    if name in OF_KNOWN_SIZES:
        assert not recorded and needed == {OF_KNOWN_SIZES[name]}
    else:
        assert recorded or not known
        assert needed <= {UnboundPlaceholderError, UnknownSizeError}


# --- derivatives -----------------------------------------------------------------------------------------------------


class SilentExitError(Exception):
    """A number that depends on a variable has left the graph, and nobody was told."""


def is_inexact(value: Any) -> bool:
    return np.asarray(value).dtype.kind in "fc"


def total(result: Any, is_tensor: bool) -> Any:
    """Return one number of all floating ones in a result, weighted, so that none can go missing."""
    number: Any = 0.0
    for position, each in enumerate(leaves(result)):
        if isinstance(each, us.Tensor if is_tensor else np.ndarray | np.generic) and each.dtype.kind in "fc":
            weights = np.cos(position + np.arange(np.prod(each.shape, dtype=int)).reshape(each.shape))
            number = number + (us.sum(us.real(each) * weights) if is_tensor else np.sum(np.real(each) * weights))
        elif is_tensor and isinstance(each, np.ndarray | np.generic | float | complex) and is_inexact(each):
            raise SilentExitError(each)
    return number


def direction(variable: str) -> np.ndarray:
    found = np.random.default_rng(7).normal(size=ARRAYS[variable].shape)
    return found + found.T if variable == "P" else found


def difference(form: str, function: Callable[..., Any], variable: str) -> float | None:
    """Return the slope along a direction by differences, ``None`` where they do not tell it."""
    with np.errstate(all="ignore"):
        moved = [
            total(call(form, function, **{variable: ARRAYS[variable] + step * direction(variable)}), False)
            for step in (-2e-6, -1e-6, 1e-6, 2e-6)
        ]
        coarse, fine = (moved[3] - moved[0]) / 4e-6, (moved[2] - moved[1]) / 2e-6
    return float(fine) if np.isfinite(fine) and abs(coarse - fine) <= 1e-3 * (1 + abs(fine)) else None


def slope(form: str, function: Callable[..., Any], variable: str) -> float:
    def loss(x: us.Tensor) -> Any:
        return total(call(form, function, **{variable: x}), True) + 0.0 * us.sum(x)

    with np.errstate(all="ignore"):
        return float(np.sum(us.grad(loss)(us.tensor(ARRAYS[variable])).eval() * direction(variable)))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_derivative_is_lost_silently(name: str) -> None:
    function = FUNCTIONS[name]
    wrong = []
    for form in forms(function):
        for variable in "XVP":
            works, _ = of_arrays(form, function) if variable in form else (False, None)
            if (
                not works
                or name in (*CONVERSIONS, *NO_DERIVATIVE)
                or (name in OTHERWISE and name != "numpy.reciprocal")
            ):
                continue
            try:
                found = slope(form, function, variable)
                expected = difference(form, function, variable)
            except UnspoolError:
                continue
            except Exception as error:
                if name not in REFUSED_BY_NUMPY:
                    wrong.append((form, variable, error))
                continue
            if expected is None or name in DERIVATIVE_OTHERWISE or "float32" in form:
                continue
            if not abs(found - expected) <= 1e-4 * (1 + abs(expected)):
                wrong.append((form, variable, found, expected))
    assert not wrong
