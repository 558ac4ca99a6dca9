"""Truncations and decompositions in a graph: what a cut loses of the derivative, and how near spectra are to a gauge.

A cut at a rank replaces a matrix A by the nearest one of that rank. Along a direction A moves by dA, and the cut moves
by what is left of dA: the rest is lost, and may be more than what is lost of A itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unspool._audit.loops import Steps
from unspool._audit.report import Gap, Truncation
from unspool._autodiff.loops.iterate import Unrolled
from unspool._autodiff.sweeps.forward import pushforward
from unspool._autodiff.sweeps.walk import active_nodes
from unspool._engine.default import default_engine
from unspool._fragments.call import Call, unfold
from unspool._graph import Node, ancestors, source_of
from unspool._ops.contraction import matmul
from unspool._ops.indexing.selection import SLICE
from unspool._ops.linalg.eigh import EIGH_OP
from unspool._ops.linalg.matrices import adjoint
from unspool._ops.linalg.spaces import SPACE
from unspool._ops.linalg.svd import SVD_OP
from unspool._ops.op import PART, parts
from unspool.errors import GaugeError

if TYPE_CHECKING:
    from unspool._tensor import Tensor

_DECOMPOSITIONS = (EIGH_OP, SPACE, SVD_OP)

# Of a program with many decompositions the last so many are looked at.
_MOST = 256


class _Cut(NamedTuple):
    """A truncation: the matrix, what was made of it, and the values."""

    source: str
    matrix: Tensor
    low: Tensor
    rank: int
    full: int


def look_at_spectra(
    loss: Tensor, loops: Sequence[Any], variables: Sequence[Tensor], direction: Sequence[Tensor]
) -> tuple[list[Truncation], list[Gap]]:
    """Return the truncations and the gaps of decompositions between variables and a loss.

    Of a loop that `unspool.iterate` made, those of its last step.
    """
    every = list(_opened(active_nodes([loss], variables)))
    for loop in loops:
        if isinstance(loop, Steps) and _has_decompositions(loop.step.fragment):
            every += _last_step(loop)
    nodes = [node for node in every if node.op in _DECOMPOSITIONS][-_MOST:]
    parted = [(part, node) for node in every if (part := _sliced(node)) is not None]
    slices = {(part.inputs[0].id, part.attributes["index"]): node for part, node in parted}
    cuts = [cut for node in nodes if (cut := _cut_of(node, slices)) is not None]
    return _truncations(cuts, variables, direction), [gap for node in nodes if (gap := _gap_of(node)) is not None]


def _has_decompositions(fragment: Any) -> bool:
    return any(instruction.op in _DECOMPOSITIONS for instruction in fragment.body)


def _opened(nodes: Sequence[Node]) -> Iterator[Node]:
    """Return nodes, and for calls with decompositions those inside of them."""
    for node in nodes:
        if type(node) is not Call:
            yield node
        elif _has_decompositions(node.plan.fragment):
            yield from unfold(node)[len(node.inputs) :]


def _last_step(loop: Steps) -> list[Node]:
    """Return the nodes of the last step of a loop, as graph."""
    if loop.is_implicit:
        return []
    if loop.steps > 1:
        before = Unrolled().place(loop.step, loop.constants, loop.initial, loop.steps - 1)[: loop.step.carries]
    else:
        before = loop.initial
    outputs = loop.step.apply(loop.constants, before)
    borders = {node.id for node in (*loop.constants, *before)}
    return [node for node in ancestors(outputs, until=borders) if node.id not in borders]


def _sliced(node: Node) -> Node | None:
    """Return the part of a singular value decomposition that a node is a slice of."""
    if node.op is SLICE and node.inputs[0].op is PART and node.inputs[0].inputs[0].op is SVD_OP:
        return node.inputs[0]
    return None


# --- truncations -----------------------------------------------------------------------------------------------------


def _cut_of(node: Any, slices: Mapping[tuple[int, int], Any]) -> _Cut | None:
    """Return the truncation that a decomposition is, if it is one; ``slices`` are those of the factors."""
    matrix = node.inputs[0]
    factors: tuple[Tensor, Tensor] | None = None
    if node.op is SPACE:
        factors = parts(node)  # type: ignore[assignment]
        full = node.inputs[2].shape[-1]
    elif node.op is SVD_OP:
        full = parts(node)[1].shape[-1]
        u, vh = slices.get((node.id, 0)), slices.get((node.id, 2))
        if u is not None:
            factors = u, matmul(adjoint(u), matrix)
        elif vh is not None:
            factors = matmul(matrix, adjoint(vh)), vh
    if factors is None or not factors[0].shape[-1] < full:
        return None
    return _Cut(source_of(node), matrix, matmul(*factors), factors[0].shape[-1], full)  # type: ignore[arg-type]


def _truncations(cuts: Sequence[_Cut], variables: Sequence[Tensor], direction: Sequence[Tensor]) -> list[Truncation]:
    if not cuts:
        return []
    engine = default_engine()
    pairs = [tensor for cut in cuts for tensor in (cut.matrix, cut.low)]
    values = engine.evaluate(pairs)
    try:
        tangents: list[Any] = list(pushforward(pairs, variables, direction))
        found = iter(engine.evaluate([t for t in tangents if t is not None]))
        moves = [None if t is None else next(found) for t in tangents]
    except GaugeError:
        moves = [None] * len(pairs)  # single vectors have no tangent here, though a loss may have a gradient
    return [
        Truncation(
            cut.source,
            cut.rank,
            cut.full,
            _lost(values[2 * i], values[2 * i + 1]) or 0.0,
            _lost(moves[2 * i], moves[2 * i + 1]),
        )
        for i, cut in enumerate(cuts)
    ]


def _lost(whole: Any, kept: Any) -> float | None:
    """Return how much of an array another one lacks, relative to it."""
    if whole is None or kept is None:
        return None
    size = float(np.linalg.norm(whole))
    return float(np.linalg.norm(whole - kept)) / size if size > 0 else 0.0


# --- gaps ------------------------------------------------------------------------------------------------------------


def _gap_of(node: Any) -> Gap | None:
    """Return the least gap that the derivative of a decomposition divides by; ``None`` if it divides by none."""
    if node.op is SPACE:
        values = np.asarray(default_engine().evaluate([node.inputs[2]])[0])
        rank: int = node.attributes["rank"]
        if not 0 < rank < values.shape[-1]:
            return None
        gaps = values[..., rank - 1] - values[..., rank]
    else:
        index = 1 if node.op is SVD_OP else 0
        values = np.asarray(default_engine().evaluate([parts(node)[index]])[0])
        if values.shape[-1] < 2:
            return None
        gaps = np.min(np.abs(np.diff(values)), axis=-1)
    largest = np.max(np.abs(values), axis=-1)
    relative = np.divide(gaps, largest, out=np.zeros_like(np.asarray(gaps, float)), where=largest > 0)
    return Gap(node.op.name, source_of(node), float(np.min(relative)), float(node.attributes["degeneracy"]))
