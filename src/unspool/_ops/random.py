"""Random numbers as nodes: a draw is a recipe whose one input is the key it is drawn with, two integers.

The generator is counter-based (Philox [1]_): the key alone determines the stream. So a draw has no state to keep, gives
the same numbers at every evaluation and in every thread, and can be dropped and drawn again. Draws with different keys
are different nodes; the same draw with the same key is the same node. The steps of a loop that draw with keys of their
own are one program.

References
----------
.. [1] J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011,
   doi:10.1145/2063384.2063405
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from unspool import _graph
from unspool._dims import Shape, Size
from unspool._dtypes import COMPLEX, INT64, DType, real_dtype
from unspool._ops import batching
from unspool._ops.leaf import constant
from unspool._ops.op import SIZE, STRUCTURE, Op, register
from unspool.errors import MutationError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

_BITS = 128
_HALF = _BITS // 2


# --- keys ------------------------------------------------------------------------------------------------------------


class Key:
    """What a draw depends on: 128 bits, immutable. Made by `unspool.random.key`, `split` and `fold_in`.

    Examples
    --------
    >>> import unspool as us
    >>> us.random.key(0) == us.random.key(0)
    True
    """

    __slots__ = ("bits",)

    bits: int

    def __init__(self, bits: int) -> None:
        object.__setattr__(self, "bits", bits % 2**_BITS)

    def derive(self, purpose: str, data: int) -> Key:
        """Return the key that belongs to a number under this key; unrelated to those of other numbers or purposes."""
        return Key(_digest(f"{purpose} {self.bits} {data}"))

    @classmethod
    def from_seed(cls, seed: int) -> Key:
        """Return the key that belongs to a seed."""
        return cls(_digest(f"seed {seed}"))

    def as_input(self) -> Tensor:
        """Return the constant that stands for the key in a recipe: its lower and its upper half."""
        halves = np.array([self.bits % 2**_HALF, self.bits >> _HALF], np.uint64)
        return constant(halves.view(INT64))

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise MutationError("a key cannot be changed; us.random.split(key) makes new ones")

    def __delattr__(self, name: str) -> NoReturn:
        raise MutationError("a key cannot be changed; us.random.split(key) makes new ones")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.bits == other.bits

    def __hash__(self) -> int:
        return hash(self.bits)

    def __reduce__(self) -> tuple[type[Key], tuple[int]]:
        return Key, (self.bits,)

    def __repr__(self) -> str:
        return f"Key(0x{self.bits:032x})"


def _digest(text: str) -> int:
    # A cryptographic hash, because keys that are derived from related numbers must not be related.
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=_BITS // 8).digest(), "big")


# --- draws -----------------------------------------------------------------------------------------------------------


def _generator(key: Any) -> np.random.Generator:
    """Return a fresh NumPy generator at the beginning of the stream of a key, given its halves."""
    lower, upper = (int(half) % 2**_HALF for half in key)
    return np.random.Generator(np.random.Philox(key=(upper << _HALF) + lower))


def _of_keys(kernel: Any) -> Any:
    """Return the kernel that draws with each key of a stack; every key is at the beginning of its own stream.

    What else it is given has the axes of the stack first.
    """

    def draw(keys: Any, *given: Any, **params: Any) -> Any:
        if keys.ndim == 1:
            return kernel(_generator(keys), *given, **params)
        stack = list(np.ndindex(keys.shape[:-1]))
        drawn = [kernel(_generator(keys[i]), *[x[i] for x in given], **params) for i in stack]
        return np.stack(drawn).reshape(*keys.shape[:-1], *drawn[0].shape) if drawn else _nothing(keys, **params)

    return draw


def _nothing(keys: Any, *, shape: tuple[int, ...] = (), size: int = 0, dtype: DType = INT64, **params: Any) -> Any:
    return np.zeros((*keys.shape[:-1], *(shape or (size,))), dtype)


def _normal(generator: np.random.Generator, *, shape: tuple[int, ...], dtype: DType) -> Any:
    if dtype not in COMPLEX:
        return generator.standard_normal(shape, dtype)
    parts = generator.standard_normal((*shape, 2), real_dtype(dtype))
    # Real and imaginary part have variance 1/2 each, so that the modulus squared has mean 1.
    parts *= np.sqrt(0.5)
    return parts.view(dtype)[..., 0]


def _integers(generator: np.random.Generator, *, shape: tuple[int, ...], low: int, high: int, dtype: DType) -> Any:
    return generator.integers(low, high, shape, dtype)


NORMAL = register(
    Op(
        "random_normal",
        infer=lambda key, *, shape, dtype: ((*key.shape[:-1], *shape), dtype),
        kernel=_of_keys(_normal),
        params={"shape": SIZE, "dtype": STRUCTURE},
        draws=True,
        batch=batching.leading,
    )
)
UNIFORM = register(
    Op(
        "random_uniform",
        infer=lambda key, *, shape, dtype: ((*key.shape[:-1], *shape), dtype),
        kernel=_of_keys(lambda generator, *, shape, dtype: generator.random(shape, dtype)),
        params={"shape": SIZE, "dtype": STRUCTURE},
        draws=True,
        batch=batching.leading,
    )
)
INTEGERS = register(
    Op(
        "random_integers",
        infer=lambda key, *, shape, low, high, dtype: ((*key.shape[:-1], *shape), dtype),
        kernel=_of_keys(_integers),
        params={"shape": SIZE, "low": STRUCTURE, "high": STRUCTURE, "dtype": STRUCTURE},
        draws=True,
        batch=batching.leading,
    )
)
PERMUTATION = register(
    Op(
        "random_permutation",
        infer=lambda key, *, size: ((*key.shape[:-1], size), INT64),
        kernel=_of_keys(lambda generator, *, size: generator.permutation(size)),
        params={"size": SIZE},
        draws=True,
        batch=batching.leading,
    )
)
POISSON = register(
    Op(
        "random_poisson",
        infer=lambda key, mean, *, shape: ((*key.shape[:-1], *shape), INT64),
        kernel=_of_keys(lambda generator, mean, *, shape: np.asarray(generator.poisson(mean, shape), INT64)),
        batch=batching.leading,
        params={"shape": SIZE},
        draws=True,
    )
)
BINOMIAL = register(
    Op(
        "random_binomial",
        infer=lambda key, trials, chance, *, shape: ((*key.shape[:-1], *shape), INT64),
        kernel=_of_keys(
            lambda generator, trials, chance, *, shape: np.asarray(generator.binomial(trials, chance, shape), INT64)
        ),
        batch=batching.leading,
        params={"shape": SIZE},
        draws=True,
    )
)


def draw_normal(key: Key, shape: Shape, dtype: DType) -> Tensor:
    """Return the node for standard normal numbers."""
    return _graph.apply(NORMAL, key.as_input(), shape=shape, dtype=dtype)


def draw_uniform(key: Key, shape: Shape, dtype: DType) -> Tensor:
    """Return the node for numbers spread evenly over [0, 1)."""
    return _graph.apply(UNIFORM, key.as_input(), shape=shape, dtype=dtype)


def draw_integers(key: Key, shape: Shape, low: int, high: int, dtype: DType) -> Tensor:
    """Return the node for integers spread evenly over [low, high)."""
    return _graph.apply(INTEGERS, key.as_input(), shape=shape, low=low, high=high, dtype=dtype)


def draw_permutation(key: Key, size: Size) -> Tensor:
    """Return the node for the numbers from 0 to size - 1 in random order."""
    return _graph.apply(PERMUTATION, key.as_input(), size=size)


def draw_poisson(key: Key, mean: Tensor, shape: Shape) -> Tensor:
    """Return the node for counts with a Poisson distribution; the mean has the shape of the draw."""
    return _graph.apply(POISSON, key.as_input(), mean, shape=shape)


def draw_binomial(key: Key, trials: Tensor, chance: Tensor, shape: Shape) -> Tensor:
    """Return the node for numbers of successes; both parameters have the shape of the draw."""
    return _graph.apply(BINOMIAL, key.as_input(), trials, chance, shape=shape)
