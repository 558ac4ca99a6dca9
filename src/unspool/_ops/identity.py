"""Ops that change no value, only what derivatives see: ``alias`` and ``stop_gradient``.

An *alias* is the same value under an identity of its own: no two are ever shared. A transform calls its function on
aliases of its arguments, so that ``f(x, x)`` has two partial derivatives and a tensor that a function closes over stays
a constant for this transform, however transforms are nested. What it returns has the arguments in their places
(`unspool._autodiff.sweeps.substitution`). ``stop_gradient`` is the same value with its history hidden.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _graph
from unspool._dtypes import INEXACT
from unspool._graph import NO_PARAMS, Node
from unspool._ops import batching
from unspool._ops.layout import broadcast_to
from unspool._ops.leaf import constant
from unspool._ops.op import Op, register

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def _infer_same(x: Node) -> tuple[Any, Any]:
    return x.shape, x.dtype


def _kernel_same(x: Any) -> Any:
    return x


def _canonical_stop(x: Tensor) -> Tensor | None:
    return x if x.op is STOP_GRADIENT else None


ALIAS = register(
    Op(
        "alias",
        infer=_infer_same,
        kernel=_kernel_same,
        vjp=(lambda ct, out, x: ct,),
        jvp=(lambda t, out, x: t,),
        cheap=True,
        renames=True,
        batch=lambda op, members, x: x,
    )
)

STOP_GRADIENT = register(
    Op(
        "stop_gradient",
        infer=_infer_same,
        kernel=_kernel_same,
        vjp=(None,),
        jvp=(None,),
        canonical=_canonical_stop,
        cheap=True,
        renames=True,
        batch=batching.elementwise,
    )
)


def alias(x: Tensor) -> Tensor:
    """Return the tensor under an identity of its own: a stand-in, which stays inside of a transform or rule."""
    return _graph.intern(ALIAS, (x,), NO_PARAMS, x.shape, x.dtype, None)


def stop_gradient(x: Tensor) -> Tensor:
    """Return a tensor with its history hidden from derivatives; integers and bools have none."""
    return _graph.apply(STOP_GRADIENT, x) if x.dtype in INEXACT else x


def zeros_like(node: Node) -> Tensor:
    """Return zeros of a node's shape, symbolic or not, and dtype."""
    return zeros(node.shape, node.dtype)


def zeros(shape: Any, dtype: Any) -> Tensor:
    """Return zeros of a shape that may hold symbolic sizes."""
    return broadcast_to(constant(np.zeros((), dtype)), shape)
