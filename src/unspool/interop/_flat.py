"""Nested arguments as a list of arrays, and back: what the bridges to PyTorch and JAX share.

A bridge passes lists of arrays. `Flat` is a function with the arguments of one call: called with other arrays in the
place of those it was given, it returns the list of arrays that the function returns.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, cast

import numpy as np
import optree

import unspool as us
from unspool._tensor import Tensor


class Flat:
    """A function of the arrays in a call's arguments, everything else being as in the call.

    Attributes
    ----------
    given : list
        The arrays of the call.
    count : int
        How many they are.
    key : tuple
        What calls have in common that differ in their arrays only.
    """

    def __init__(self, f: Callable[..., Any], arguments: Any, kind: type | tuple[type, ...]) -> None:
        leaves, self._structure = optree.tree_flatten(arguments, none_is_leaf=True)
        self._function = f
        self._places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, kind)]
        self._others = [None if isinstance(leaf, kind) else leaf for leaf in leaves]
        self.given = [leaves[i] for i in self._places]
        self.count = len(self._places)
        self.key = (self._structure, tuple(self._places), tuple(self._others))
        self.name: str = getattr(f, "__name__", type(f).__name__)
        self._returned: Any = None

    def __call__(self, *arrays: Any) -> list[Any]:
        leaves = list(self._others)
        for place, array in zip(self._places, arrays, strict=True):
            leaves[place] = array
        args, kwargs = cast(Any, optree.tree_unflatten(self._structure, leaves))
        found, self._returned = optree.tree_flatten(self._function(*args, **kwargs))
        return found

    def nest(self, arrays: Any) -> Any:
        """Return arrays in the structure of what the function returned."""
        return optree.tree_unflatten(self._returned, list(arrays))

    def pullback(self) -> Callable[..., list[Tensor]]:
        """Return, for a function of our tensors, its pullback: a function of its arguments and of cotangents."""

        def pull(*given: Tensor) -> list[Tensor]:
            _, back = us.vjp(self, *given[: self.count], unconnected="zeros")
            cotangents = [ct if ct.dtype.kind in "fc" else None for ct in given[self.count :]]
            return [ct for ct in back(cotangents) if ct is not None]

        return pull


def lifted(
    library: str,
    f: Callable[..., Any],
    run: Callable[..., Any],
    describe: Callable[..., Any],
    pull: Callable[[Any, int], Callable[..., Any]],
) -> Callable[..., Any]:
    """Make a function of our tensors of one of another library's arrays; the last three are as in `_lifted_op`."""
    known: dict[Any, tuple[Flat, Callable[..., Any]]] = {}

    @wraps(f)
    def function(*args: Any, **kwargs: Any) -> Any:
        flat = Flat(f, (args, kwargs), (Tensor, np.ndarray))
        given, flat.given = flat.given, []  # what is remembered must not hold the arrays of the first call
        if flat.key not in known:
            known[flat.key] = flat, _lifted_op(f"{library}.{flat.name}", flat, run, describe, pull)
        first, op = known[flat.key]
        return first.nest(op(*given))

    return function


def _lifted_op(
    name: str,
    f: Callable[..., Any],
    run: Callable[..., Any],
    describe: Callable[..., Any],
    pull: Callable[[Any, int], Callable[..., Any]],
) -> Callable[..., Any]:
    """Make an operation of ours of a function of arrays of another library.

    Parameters
    ----------
    name : str
        How the operation is called in messages.
    f : callable
        Takes arrays of the other library and returns a list of them.
    run : callable
        ``run(f, *arrays)`` returns the values of ``f`` for NumPy arrays.
    describe : callable
        ``describe(f, *types)`` returns shapes and dtypes of what ``f`` returns.
    pull : callable
        ``pull(f, count)`` is the pullback of ``f``, a function of its ``count`` inputs and of cotangents for its
        outputs, that returns a cotangent for each input that has one.
    """

    @lru_cache(maxsize=1)
    def backward(count: int) -> Callable[..., Any]:
        def like_inputs(_: Any, *types: Any) -> list[tuple[Any, Any]]:
            return [(t.shape, t.dtype) for t in types[:count] if t.dtype.kind in "fc"]

        return _lifted_op(f"{name}.pullback", pull(f, count), run, like_inputs, pull)

    def vjp(i: int, cts: Any, outs: Any, *inputs: Tensor) -> Any:
        if inputs[i].dtype.kind not in "fc":
            return None
        known = [us.zeros(out.shape, out.dtype) if ct is None else ct for ct, out in zip(cts, outs, strict=True)]
        # One node for all inputs: the same operation on the same inputs is the same node.
        found = backward(len(inputs))(*inputs, *known)
        return found[sum(x.dtype.kind in "fc" for x in inputs[:i])]

    @lru_cache(maxsize=256)
    def described(*types: Any) -> Any:
        # While a function is traced, the code that runs is watched; the other library's is none of ours.
        watching = sys.getprofile()
        sys.setprofile(None)
        try:
            return describe(f, *types)
        finally:
            sys.setprofile(watching)

    return us.op(
        name,
        kernel=lambda *arrays: run(f, *arrays),
        infer=lambda *types: described(*types),  # noqa: PLW0108 (a function has a signature to look at)
        vjp=vjp,
        needs=("inputs",),
        multi=True,
        replace=True,
    )
