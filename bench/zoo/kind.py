"""What a kind of loop is, and how one runs.

A kind is written as a function that returns three others: ``setup`` makes the data, ``ours`` and ``theirs`` run the
loop on tensors of unspool and of PyTorch and return the loss. Both are written as users of the library would.

``ours`` looks at numbers through ``read``, which is `float`, and shows the tensors of each step to ``watch``, which
does nothing. A test gives others: a ``read`` that returns numbers noted before runs a loop without looking at it, and
holds fixed what a derivative takes for constant; a ``watch`` may hold tensors, or look at them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import unspool as us

Data = dict[str, Any]
Read = Callable[[us.Tensor], float]
Watch = Callable[..., None]
Forms = tuple[Callable[..., Data], Callable[..., us.Tensor], Callable[..., Any]]

# A loop that is all right never gets there: what it compares with, to look at a value as a stopping test would.
FAR = 1e9


def nobody(*_: Any) -> None:
    """Watch nothing."""


@dataclass(frozen=True)
class Kind:
    """A kind of loop.

    Attributes
    ----------
    name, about : str
        What it is called, and what is particular about it.
    setup : callable
        Takes the number of steps and sizes, and returns the data: arrays, which the forms get as tensors, and others.
    ours, theirs : callable
        Take steps and data by name and return the loss. ``theirs`` has the module of PyTorch before them.
    wrt : tuple of str
        The data that the loss is differentiated in. None: ``ours`` and ``theirs`` return loss and variables.
    raw : tuple of str
        Arrays that the forms get as they are.
    large : dict or None
        Sizes for arrays of 64×64.
    most : int
        The most steps, where one takes long.
    """

    name: str
    about: str
    setup: Callable[..., Data]
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    wrt: tuple[str, ...]
    raw: tuple[str, ...] = ()
    large: dict[str, Any] | None = None
    most: int = 1_000_000
    sizes: dict[str, Any] = field(default_factory=dict)

    def in_unspool(
        self, steps: int, data: Data, read: Read = float, watch: Watch = nobody
    ) -> tuple[us.Tensor, list[us.Tensor]]:
        """Run the loop and return the loss and what it is differentiated in; nothing more is computed yet."""
        given = {name: us.tensor(value) if self._is_tensor(name, value) else value for name, value in data.items()}
        found = self.ours(steps, read=read, watch=watch, **given)
        return found if not self.wrt else (found, [given[name] for name in self.wrt])

    def in_torch(self, steps: int, data: Data) -> tuple[Any, list[Any]]:
        """Return what `in_unspool` does, in PyTorch."""
        import torch

        given = {
            name: torch.tensor(value, requires_grad=name in self.wrt) if self._is_tensor(name, value) else value
            for name, value in data.items()
        }
        found = self.theirs(torch, steps, **given)
        return found if not self.wrt else (found, [given[name] for name in self.wrt])

    def _is_tensor(self, name: str, value: Any) -> bool:
        return isinstance(value, np.ndarray) and name not in self.raw


def kind(*wrt: str, **options: Any) -> Callable[[Callable[[], Forms]], Kind]:
    """Make a kind of a function that returns its setup and its two forms, with its name and what it says of itself."""

    def make(forms: Callable[[], Forms]) -> Kind:
        return Kind(forms.__name__, (forms.__doc__ or "").strip(), *forms(), wrt=wrt, **options)

    return make


def answer(kind: Kind, steps: int, data: Data, read: Read = float, watch: Watch = nobody) -> list[np.ndarray]:
    """Return the value of the loss and its gradients."""
    loss, variables = kind.in_unspool(steps, data, read, watch)
    return [np.asarray(value) for value in us.eval([loss, *loss.grad(variables)])]


def answer_of_torch(kind: Kind, steps: int, data: Data) -> list[np.ndarray]:
    """Return what `answer` does, by PyTorch."""
    import torch

    loss, variables = kind.in_torch(steps, data)
    gradients = torch.autograd.grad(loss, variables)
    return [loss.detach().numpy(), *(gradient.resolve_conj().numpy() for gradient in gradients)]


# --- data -------------------------------------------------------------------------------------------------------------


def normal(seed: int, *shape: int) -> np.ndarray:
    """Return normal numbers, the same in every process."""
    return np.random.default_rng(seed).normal(size=shape)


def contraction(seed: int, n: int, size: float) -> np.ndarray:
    """Return a random matrix whose norm does not depend on how large it is."""
    return size * normal(seed, n, n) / math.sqrt(n)


def symmetric(seed: int, n: int) -> np.ndarray:
    """Return a random symmetric matrix, with eigenvalues between about -2 and 2."""
    matrix = contraction(seed, n, 1.0)
    return (matrix + matrix.T) / math.sqrt(2.0)


def zeros_like(xp: Any, tensors: Sequence[Any]) -> list[Any]:
    """Return zeros in the shapes of tensors."""
    return [xp.zeros(tuple(each.shape)) for each in tensors]
