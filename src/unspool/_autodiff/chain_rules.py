"""What all kinds of chains have in common: the op, and that it is differentiated by expanding it into calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from unspool._autodiff.late import late
from unspool._engine.default import default_engine
from unspool._ops.batching import rule_above
from unspool._ops.identity import alias
from unspool._ops.layout import concat, reshape
from unspool._ops.op import STRUCTURE, JointRule, Op

if TYPE_CHECKING:
    from unspool._tensor import Tensor


def chain_op(name: str, kernel: Callable[..., tuple[Any, ...]], batch: str) -> Op:
    """Return the op of a kind of chains. Its parameter, ``chain``, knows its outputs and the calls it stands for.

    It is not registered, like calls: it is a way to write derivatives, not something to apply by name.
    """
    return Op(
        name,
        infer=lambda *inputs, chain: chain.avals(),
        kernel=kernel,
        vjp=JointRule(_pull, lambda params: params["chain"].passes()),
        jvp=_push,  # type: ignore[arg-type]
        params={"chain": STRUCTURE},
        needs=("inputs",),
        multi=True,
        stepwise=True,
        batch=rule_above(batch),
    )


def stacked_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """Return tensors of one shape along a new first axis."""
    shape = tensors[0].shape
    return reshape(
        concat([reshape(t, (1, *shape)) if not shape else t for t in tensors], axis=0), (len(tensors), *shape)
    )


def _pull(needed: Sequence[bool], ct: Any, out: Any, *inputs: Tensor, chain: Any) -> list[Any]:
    # Under identities of their own: a tensor can stand at several inputs, and what a step read depends on others.
    own = [alias(i) if need else i for i, need in zip(inputs, needed, strict=True)]
    outputs = chain.expand(own)
    default_engine().levels.mark()
    reached = [(o, c) for o, c in zip(outputs, ct, strict=True) if c is not None]
    variables = [i for i, need in zip(own, needed, strict=True) if need]
    pulled = late.pullback([o for o, _ in reached], [c for _, c in reached], variables)
    found = iter(late.substitute(pulled, own, inputs))
    return [next(found) if need else None for need in needed]


def _push(tangents: Sequence[Any], out: Any, *inputs: Tensor, chain: Any) -> tuple[Any, ...]:
    own = [i if t is None else alias(i) for i, t in zip(inputs, tangents, strict=True)]
    moving = [(i, t) for i, t in zip(own, tangents, strict=True) if t is not None]
    pushed = late.pushforward(chain.expand(own), [i for i, _ in moving], [t for _, t in moving])
    return tuple(late.substitute(pushed, own, inputs))
