"""How random numbers are written in native programs: NumPy's distributions on a generator that is a key and no more.

Before the first draw of a kind the numbers are compared with NumPy's: a NumPy that draws in another way than the one we
were built with has its own numbers, from its own kernels.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from unspool._engine.backends.native_layout import Unsupported, Value
from unspool._engine.backends.native_program import DRAW, Builder, loop_of
from unspool._engine.backends.native_rules import Rule, Writing, or_call
from unspool._native import Program

_INT64, _DOUBLE, _SINGLE = np.dtype(np.int64), np.dtype(np.float64), np.dtype(np.float32)

# What is compared: enough for the rare branches of the distributions.
_COMPARED = 2000


def _normal(to: Writing, keys: Value) -> Value:
    if to.dtype.char in "fd":
        return _drawn(to, "nN"["df".index(to.dtype.char)], keys)
    if to.dtype.char != "D":
        raise Unsupported("its parts are scaled in double precision")
    result = _drawn(to, "n", keys)
    parts = result._replace(shape=(2 * result.size,), strides=(8,), dtype=_DOUBLE)
    scale = to.builder.constant(np.array(np.sqrt(0.5)))
    to.builder.loop(loop_of(np.multiply, *[_DOUBLE] * 3), [parts, scale, parts])
    return result


def _uniform(to: Writing, keys: Value) -> Value:
    if to.dtype.char not in "fd":
        raise Unsupported("there are none of this dtype")
    return _drawn(to, "uU"["df".index(to.dtype.char)], keys)


def _integers(to: Writing, keys: Value) -> Value:
    low, high = to.step.params["low"], to.step.params["high"]
    if to.dtype != _INT64 or not -(2**62) < low < high < 2**62:
        raise Unsupported("other integers are drawn in another way")
    return _drawn(to, "i", keys, low, high - 1 - low)


def _permutation(to: Writing, keys: Value) -> Value:
    return _drawn(to, "p", keys)


def _drawn(to: Writing, kind: str, keys: Value, low: int = 0, range_: int = 0) -> Value:
    if keys.dtype != _INT64 or keys.order != "C" or 0 in to.shape or not _is_numpys(kind):
        raise Unsupported("there is nothing to draw, or NumPy draws otherwise")
    result = to.new()
    _draw(to.builder, kind, keys, result, low, range_)
    return result


def _draw(builder: Builder, kind: str, keys: Value, result: Value, low: int, range_: int) -> None:
    """Append a draw with each key of a stack, one after the other."""
    count, width = keys.size // 2, result.dtype.itemsize
    per_key = result.size // count
    if result.dtype.kind == "c":
        per_key, width = 2 * per_key, width // 2
    builder.emit(DRAW, (keys.slot, result.slot), count=count, numbers=(ord(kind), per_key, width, low, range_))


# --- whether NumPy does the same --------------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def _is_numpys(kind: str) -> bool:
    """Whether draws of a kind are those of the NumPy that is there."""
    keys = np.array([[1, 2], [-3, 2**62]])
    builder = Builder((0,))
    given = builder.input(0, keys.shape, _INT64)
    dtype = {"n": _DOUBLE, "u": _DOUBLE, "N": _SINGLE, "U": _SINGLE}.get(kind, _INT64)
    result = builder.new(0, (2, _COMPARED), dtype)
    _draw(builder, kind, given, result, -7, 1000)
    (found,) = Program(builder.slots, builder.instructions, (given.slot,), (result.slot,), builder.frame, None)(keys)
    for lower, upper, ours in zip(*keys.T.tolist(), found, strict=True):
        generator = np.random.Generator(np.random.Philox(key=((upper % 2**64) << 64) + lower % 2**64))
        if ours.tobytes() != _by_numpy(generator, kind, dtype).tobytes():
            return False
    return True


def _by_numpy(generator: np.random.Generator, kind: str, dtype: Any) -> Any:
    if kind in "nN":
        return generator.standard_normal(_COMPARED, dtype)
    if kind in "uU":
        return generator.random(_COMPARED, dtype)
    return generator.integers(-7, 994, _COMPARED) if kind == "i" else generator.permutation(_COMPARED)


# By name, so that ops which no program uses need not be loaded.
RULES: dict[str, Rule] = {
    "random_integers": or_call(_integers),
    "random_normal": or_call(_normal),
    "random_permutation": or_call(_permutation),
    "random_uniform": or_call(_uniform),
}
