"""Random index expressions, and the adjoint identity they must satisfy."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

import unspool as us
from unspool._autodiff.sweeps.forward import pushforward
from unspool._autodiff.sweeps.reverse import pullback


def bounds(size: int) -> Any:
    return st.none() | st.integers(-size - 2, size + 2)


def slices(size: int) -> Any:
    return st.builds(slice, bounds(size), bounds(size), st.sampled_from([None, 1, 2, 3, -1, -2, -3]))


@st.composite
def index_arrays(draw: Any, size: int, shape: tuple[int, ...]) -> Any:
    """An index array that broadcasts to a shape: axes left out or of size 1, negative positions too."""
    mine = tuple(draw(st.sampled_from([1, n])) for n in shape[draw(st.integers(0, len(shape))) :])
    count = int(np.prod(mine))
    if size == 0 and count:
        return np.zeros(0, np.int64)
    positions = draw(st.lists(st.integers(-size, size - 1), min_size=count, max_size=count)) if count else []
    return np.array(positions, np.int64).reshape(mine)


@st.composite
def cases(draw: Any, *, advanced: bool) -> tuple[tuple[int, ...], Any]:
    """A shape and an index for it; arrays in it may not broadcast against each other, which NumPy refuses."""
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=4)))
    broadcast = tuple(draw(st.lists(st.integers(0, 3), max_size=2)))
    front = draw(st.integers(0, len(shape)))
    back = draw(st.integers(front, len(shape)))
    index = draw(index_items(shape[:front], broadcast, advanced))
    if back > front or draw(st.booleans()):
        index.append(Ellipsis)
    if back == front or index[-1:] == [Ellipsis]:
        index += draw(index_items(shape[back:], broadcast, advanced))
    for extra in draw(st.lists(st.sampled_from([None, None] + ([True, False] if advanced else [])), max_size=3)):
        index.insert(draw(st.integers(0, len(index))), extra)
    return shape, tuple(index) if len(index) != 1 or draw(st.booleans()) else index[0]


def accepted(*, advanced: bool) -> Any:
    """A shape and an index for it that NumPy accepts."""
    return cases(advanced=advanced).filter(lambda case: is_accepted(*case))


def is_accepted(shape: tuple[int, ...], index: Any) -> bool:
    """Whether NumPy can take an index."""
    try:
        np.zeros(shape)[index]
    except IndexError:
        return False
    return True


@st.composite
def index_items(draw: Any, shape: tuple[int, ...], broadcast: tuple[int, ...], advanced: bool) -> list[Any]:
    """Items of an index that take up all axes of a shape."""
    items: list[Any] = []
    axis = 0
    while axis < len(shape):
        size = shape[axis]
        kinds = (["slice", "int"] if size else ["slice"]) + (["array", "array", "mask"] if advanced else [])
        kind = draw(st.sampled_from(kinds))
        if kind == "slice":
            items.append(draw(slices(size)))
        elif kind == "int":
            items.append(draw(st.integers(-size, size - 1)))
        elif kind == "array":
            items.append(draw(index_arrays(size, broadcast)))
        else:
            rank = draw(st.integers(1, min(2, len(shape) - axis)))
            mask = np.zeros(shape[axis : axis + rank], bool)
            for place in draw(st.lists(st.integers(0, mask.size - 1), max_size=3)) if mask.size else []:
                mask.flat[place] = True
            items.append(mask)
            axis += rank - 1
        axis += 1
    return items


def as_tensors(index: Any) -> Any:
    """Return an index with tensors in place of arrays."""
    items = index if isinstance(index, tuple) else (index,)
    return tuple(us.tensor(item) if isinstance(item, np.ndarray) else item for item in items)


def numbers(shape: tuple[int, ...], seed: int = 0) -> Any:
    """Whole numbers as floats, so that sums are exact."""
    return np.random.default_rng([seed, *shape]).integers(-9, 10, shape).astype(np.float64)


def check_adjoint(out: Any, x: Any) -> None:
    """Check <A x, y> == <x, A' y> without rounding: everything is a whole number."""
    t, ct = numbers(x.shape, 1), numbers(out.shape, 2)
    (pushed,) = pushforward([out], [x], [us.constant(t)])
    (pulled,) = pullback([out], [us.constant(ct)], [x])
    pushed_value = np.zeros(out.shape) if pushed is None else pushed.eval()
    pulled_value = np.zeros(x.shape) if pulled is None else pulled.eval()
    assert np.sum(pushed_value * ct) == np.sum(t * pulled_value)
