"""One call of a function with a custom rule: which inputs of its node are what, and how they nest.

The inputs are, in this order, the outputs that the function computed, the residuals, the tensor arguments, and the
tensors that the function closed over. Everything that is no tensor is remembered here, so that the node itself stays a
plain node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unspool import _trees as trees
from unspool._autodiff.arguments import leaf_tensor
from unspool._autodiff.sweeps.substitution import substitute
from unspool._autodiff.sweeps.walk import is_differentiable
from unspool._dtypes import INEXACT
from unspool._graph import Node, next_id
from unspool._ops.identity import STOP_GRADIENT, alias, zeros_like
from unspool._ops.leaf import CONSTANT, as_tensor
from unspool.errors import ContributionShapeError, MissingRuleError, StructureError

if TYPE_CHECKING:
    from unspool._tensor import Tensor


class _Template:
    """A nesting in which some leaves are tensors, to be filled in, and the others are what they are."""

    def __init__(self, tree: Any) -> None:
        leaves, self.structure = trees.flatten(tree)
        self.tensors: list[Any] = [leaf for leaf in leaves if isinstance(leaf, Node)]
        self.places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Node)]
        self._others = [None if isinstance(leaf, Node) else leaf for leaf in leaves]

    def __len__(self) -> int:
        return len(self.places)

    def fill(self, values: Sequence[Any], others: Sequence[Any] | None = None) -> Any:
        """Return the nesting with values in place of the tensors."""
        filled = list(self._others if others is None else others)
        for place, value in zip(self.places, values, strict=True):
            filled[place] = value
        return trees.unflatten(self.structure, filled)

    def still(self) -> list[Any]:
        """Return a tangent for every leaf that is no tensor: zero if it is a number with one, else ``None``."""
        return [_zero_of(leaf) for leaf in self._others]

    def key(self) -> tuple[Any, ...]:
        """Return what makes two nestings the same, tensors aside."""
        return (self.structure, tuple(self.places), tuple(_identity(leaf) for leaf in self._others))

    def drop_tensors(self) -> None:
        """Forget the tensors: the node has them as inputs, and a parameter must not keep them alive."""
        self.tensors = []


class CustomCall:
    """The static part of a call: a parameter of its node, equal for calls that differ in their tensors only."""

    def __init__(self, function: Any, args: tuple[Any, ...]) -> None:
        beyond = [n for n in function.nondiff_argnums if n >= len(args)]
        if beyond:
            raise StructureError(
                f"nondiff_argnums {beyond} of {function.name}, which was called with {len(args)} arguments"
            )
        self.function = function
        self.nondiff = tuple(args[n] for n in function.nondiff_argnums)
        self._positions = [n for n in range(len(args)) if n not in function.nondiff_argnums]
        self._args = _Template(tuple(args[n] for n in self._positions))
        # What the function closes over is older than its stand-ins, which is how it is found.
        self._begin = next_id()
        self._stand_ins = [alias(x) for x in self._args.tensors]
        self._count = len(args)

    def inner_args(self) -> list[Any]:
        """Return the arguments that the function is called with: tensors under identities of their own."""
        inner = self._args.fill(self._stand_ins)
        args: list[Any] = [None] * self._count
        for n, value in zip((*self.function.nondiff_argnums, *self._positions), (*self.nondiff, *inner), strict=True):
            args[n] = value
        return args

    def close(self, output: Any, residuals: Any) -> list[Any]:
        """Take note of what the function returned, and return the inputs of the node."""
        leaves, self._out_structure = trees.flatten(output)
        outs = [as_tensor(leaf) for leaf in leaves]
        self._residuals = _Template(residuals)
        made = [*outs, *self._residuals.tensors]
        closed = _closed_over(made, self._begin, self._stand_ins)
        inputs = [*substitute(made, self._stand_ins, self._args.tensors), *self._args.tensors, *closed]
        self.n_out = len(outs)
        self._first_arg = len(outs) + len(self._residuals)
        self._first_closed = self._first_arg + len(self._args)
        self.passes = [i >= self._first_arg and is_differentiable(x) for i, x in enumerate(inputs)]
        self._key = self._make_key()
        self._args.drop_tensors()
        self._residuals.drop_tensors()
        self._stand_ins = []
        return inputs

    # -- identity --

    def _make_key(self) -> tuple[Any, ...]:
        nondiff = tuple(_identity(value) for value in self.nondiff)
        counts = (self.n_out, self._first_closed, tuple(self.passes))
        return (id(self.function), nondiff, self._args.key(), self._out_structure, self._residuals.key(), counts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CustomCall) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"<call of {self.function.name}>"

    # -- nesting --

    def nest_outputs(self, values: Sequence[Any]) -> Any:
        """Return one value per output, nested like the output."""
        return trees.unflatten(self._out_structure, values)

    def nest_residuals(self, inputs: Sequence[Any]) -> Any:
        """Return the residuals from the inputs of the node."""
        return self._residuals.fill(inputs[self.n_out : self._first_arg])

    def nest_arguments(self, inputs: Sequence[Any]) -> Any:
        """Return the arguments from the inputs of the node, as a tuple."""
        return self._args.fill(inputs[self._first_arg : self._first_closed])

    def nest_tangents(self, inputs: Sequence[Any], tangents: Sequence[Any]) -> Any:
        """Return the tangents of the arguments, with zeros for those that do not move."""
        span = slice(self._first_arg, self._first_closed)
        moving = [
            zeros_like(x) if t is None and x.dtype in INEXACT else t
            for x, t in zip(inputs[span], tangents[span], strict=True)
        ]
        return self._args.fill(moving, self._args.still())

    def on_arguments(self, values: Sequence[Any]) -> list[Any]:
        """Return one value per input of the node: those given for the arguments, ``None`` for the rest."""
        return [*[None] * self._first_arg, *values, *[None] * (len(self.passes) - self._first_closed)]

    # -- what rules return --

    # Shapes are those of the node that a rule is called for: one call, traced with symbolic sizes, serves many.

    def check_cotangents(self, returned: Any, inputs: Sequence[Node]) -> list[Tensor | None]:
        """Return the cotangent of each tensor argument from what ``bwd`` returned, given the inputs of the node."""
        name, count = self.function.name, len(self._positions)
        if not isinstance(returned, (tuple, list)) or len(returned) != count:
            what = f"{len(returned)}" if isinstance(returned, (tuple, list)) else type(returned).__name__
            raise StructureError(
                f"the bwd rule of {name} must return a tuple of {count}, one cotangent per argument, got {what}"
            )
        entries: list[Any] = []
        for child, entry in zip(self._args.structure.children(), returned, strict=True):
            if entry is None:
                entries += [None] * child.num_leaves
            else:
                entries += trees.flatten_like(child, entry, f"what the bwd rule of {name} returns for an argument")
        chosen = [entries[place] for place in self._args.places]
        return [
            _checked(entry, x.shape, f"the cotangent that the bwd rule of {name} gave", "argument")
            for entry, x in zip(chosen, inputs[self._first_arg : self._first_closed], strict=True)
        ]

    def check_tangents(self, returned: Any, inputs: Sequence[Node]) -> list[Tensor | None]:
        """Return the tangent of each output from what the jvp rule returned, given the inputs of the node."""
        name = self.function.name
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise StructureError(f"the jvp rule of {name} must return (output, tangent_out), got {returned!r}")
        entries = trees.flatten_like(self._out_structure, returned[1], f"the tangent_out of {name}")
        return [
            _checked(entry, x.shape, f"the tangent that the jvp rule of {name} gave", "output")
            for entry, x in zip(entries, inputs[: self.n_out], strict=True)
        ]

    def refuse_closed_over(self, wanted: Sequence[bool]) -> None:
        """Raise if a derivative is wanted with respect to something that the rule does not see."""
        if any(wanted[self._first_closed :]):
            raise MissingRuleError(
                f"{self.function.name} has a custom rule and closes over a tensor that is differentiated; the rule "
                "cannot account for it: pass the tensor as an argument, or stop_gradient it"
            )


def _checked(entry: Any, shape: Any, what: str, whose: str) -> Tensor | None:
    if entry is None:
        return None
    made = leaf_tensor(entry, what)
    if made.shape != shape:
        raise ContributionShapeError(f"{what} has shape {made.shape}, for an {whose} of shape {shape}")
    return made


def _closed_over(made: Sequence[Node], begin: int, stand_ins: Sequence[Node]) -> list[Node]:
    """Return the tensors from before a call began that the given ones depend on differentiably; each once."""
    seen = {node.id for node in stand_ins}
    found: dict[int, Node] = {}
    stack = list(made)
    while stack:
        node = stack.pop()
        if node.id in seen or node.op is STOP_GRADIENT or not is_differentiable(node):
            continue
        seen.add(node.id)
        if node.id >= begin:
            stack.extend(node.inputs)
        elif node.op is not CONSTANT:
            found[node.id] = node
    return list(found.values())


def _identity(value: Any) -> Any:
    """Return what stands for a value in a key: itself with its type if it can be hashed, else its identity."""
    try:
        hash(value)
    except TypeError:
        return (type(value), "at", id(value))
    return (type(value), value)


def _zero_of(leaf: Any) -> Any:
    if isinstance(leaf, (float, complex)):
        return type(leaf)(0)
    if isinstance(leaf, (np.ndarray, np.generic)) and leaf.dtype in INEXACT:
        return np.zeros_like(leaf)
    return None
