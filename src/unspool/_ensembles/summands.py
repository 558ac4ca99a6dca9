"""What is computed of one slice: a contraction, and derivatives of it to any order.

A summand is a function of tensors that builds graph, as data: it travels to other processes, and equal ones are equal.
The derivative of a sum is the sum of the derivatives, so a derivative of a summand is a summand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from unspool._autodiff.sweeps.forward import pushforward
from unspool._autodiff.sweeps.reverse import pullback
from unspool._ops.contraction import einsum
from unspool._ops.identity import zeros

if TYPE_CHECKING:
    from unspool._tensor import Tensor

# For each axis of an array, the label along which it is cut, or None.
Cuts: TypeAlias = tuple[int | None, ...]


@dataclass(frozen=True)
class Contraction:
    """A contraction of tensors, whose axes along labels that are cut have size 1.

    Attributes
    ----------
    labels : tuple of tuple of int
        The labels of each operand, and those of the result.
    path : tuple
        In which order.
    inputs, outputs : tuple of Cuts
        How arrays are cut.
    """

    labels: tuple[tuple[int, ...], ...]
    path: tuple[tuple[int, ...], ...]
    inputs: tuple[Cuts, ...]
    outputs: tuple[Cuts, ...]

    def __call__(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Place it on tensors."""
        pairs: list[Any] = [x for pair in zip(tensors, self.labels, strict=False) for x in pair]
        return [einsum(*pairs, self.labels[-1], optimize=self.path)]


@dataclass(frozen=True)
class Pulled:
    """The cotangents of some inputs of a summand: a function of its inputs and of the cotangents that arrive.

    Attributes
    ----------
    of : Summand
    needed : tuple of bool
        For which inputs.
    arriving : tuple of bool
        For which outputs a cotangent arrives.
    """

    of: Summand
    needed: tuple[bool, ...]
    arriving: tuple[bool, ...]

    @property
    def inputs(self) -> tuple[Cuts, ...]:
        """How arrays that it takes are cut."""
        return (*self.of.inputs, *_chosen(self.of.outputs, self.arriving))

    @property
    def outputs(self) -> tuple[Cuts, ...]:
        """How arrays that it gives are cut."""
        return tuple(_chosen(self.of.inputs, self.needed))

    def __call__(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Place it on tensors."""
        primals = list(tensors[: len(self.of.inputs)])
        cotangents = tensors[len(primals) :]
        outputs = _chosen(self.of(primals), self.arriving)
        variables = _chosen(primals, self.needed)
        return _or_zeros(pullback(outputs, list(cotangents), variables), variables)


@dataclass(frozen=True)
class Pushed:
    """The tangents of the outputs of a summand: a function of its inputs and of the tangents of some of them.

    Attributes
    ----------
    of : Summand
    moving : tuple of bool
        Which inputs have tangents.
    """

    of: Summand
    moving: tuple[bool, ...]

    @property
    def inputs(self) -> tuple[Cuts, ...]:
        """How arrays that it takes are cut."""
        return (*self.of.inputs, *_chosen(self.of.inputs, self.moving))

    @property
    def outputs(self) -> tuple[Cuts, ...]:
        """How arrays that it gives are cut."""
        return self.of.outputs

    def __call__(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Place it on tensors."""
        primals = list(tensors[: len(self.of.inputs)])
        outputs = self.of(primals)
        return _or_zeros(pushforward(outputs, _chosen(primals, self.moving), list(tensors[len(primals) :])), outputs)


Summand: TypeAlias = Contraction | Pulled | Pushed


def _chosen(things: Sequence[Any], flags: Sequence[bool]) -> list[Any]:
    return [thing for thing, flag in zip(things, flags, strict=True) if flag]


def _or_zeros(found: Sequence[Tensor | None], like: Sequence[Tensor]) -> list[Tensor]:
    return [zeros(y.shape, y.dtype) if x is None else x for x, y in zip(found, like, strict=True)]
