"""What a report is asked for: the loss, what it is differentiated by, and what is said of its steps; checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from unspool import _trees as trees
from unspool._dtypes import COMPLEX, INEXACT
from unspool._fragments.call import Projection, was_evaluated
from unspool._graph import Node, describe, source_of
from unspool._ops.leaf import TENSOR
from unspool._report.units import Program
from unspool.errors import (
    ArgumentError,
    ComplexLossError,
    DTypeError,
    NonScalarLossError,
    NotEvaluatedError,
    StructureError,
)

if TYPE_CHECKING:
    from unspool._tensor import Tensor


@dataclass
class Asked:
    """What a report was asked to tell; see `unspool.report`. States and values are by the numbers of steps."""

    wrt: Any = None
    states: Mapping[int, Any] | None = None
    values: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    memory: Any = None
    title: str = ""


def check_loss(loss: Any) -> None:
    """Raise if there can be no report of something."""
    if not isinstance(loss, Node):
        raise StructureError(f"a report is of a tensor, got {loss!r} of type {type(loss).__name__}")
    if loss.dtype not in INEXACT:
        raise DTypeError(
            f"a report is of a floating-point tensor, and {describe(loss)}, made at {source_of(loss)}, is none"
        )
    if loss.shape != ():
        raise NonScalarLossError(f"a report is of a scalar, and {describe(loss)}, made at {source_of(loss)}, is none")
    if loss.dtype in COMPLEX:
        raise ComplexLossError(f"{describe(loss)}, made at {source_of(loss)}, is complex: take .real")
    if loss.value is None and not was_evaluated(loss) and type(loss) is not Projection:
        raise NotEvaluatedError(
            f"{describe(loss)}, made at {source_of(loss)}, was not evaluated, and a report tells of a run: ask for its "
            "value first, as by float(loss)"
        )


def variables_of(loss: Tensor, wrt: Any) -> tuple[list[Tensor], list[str]]:
    """Return what a loss is differentiated with respect to: what was given, or all data that it is made from."""
    if wrt is None:
        found: list[Any] = [n for n in Program([loss]).leaves if n.op is TENSOR and n.dtype in INEXACT]
        return found, [getattr(node, "_name", "") or f"tensor {i}" for i, node in enumerate(found)]
    variables, structure = trees.flatten(wrt)
    names = trees.names(structure, "wrt")
    for variable, name in zip(variables, names, strict=True):
        if not isinstance(variable, Node):
            raise StructureError(f"{name} must be a tensor of the graph, got {type(variable).__name__}")
    return variables, [getattr(v, "_name", "") or name for v, name in zip(variables, names, strict=True)]


def tensors_in(state: Any) -> list[Any]:
    leaves = [leaf for leaf in trees.flatten(state)[0] if isinstance(leaf, Node)]
    if not leaves:
        raise ArgumentError("states are tensors, nested in any way, one nesting for each step; one of them has none")
    return [leaf for leaf in leaves if leaf.dtype in INEXACT]
