"""Sums of local terms as matrix product operators, in the couplings as they are: tensors to differentiate in.

The bond between two sites has to remember, of every term, what has been placed on its left. Terms that agree on the
left share a memory, and so do terms that agree on what is still to come. Which memories are needed is a question about
a bipartite graph (left parts, right parts, a line for each term): the fewest that touch every line, a minimum vertex
cover. For the nearest-neighbour models that gives the well-known small tensors (bond 5 for Heisenberg), for pairs at
all distances half the length of the chain.

J. Ren, W. Li, T. Jiang and Z. Shuai, A general automatic method for optimal construction of matrix product operators
using bipartite graph theory, J. Chem. Phys. 153, 084118 (2020). No number of a coupling is looked at, so structure is
all that is used and derivatives are exact.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

import unspool as us
from unspool.errors import ArgumentError, ShapeError
from unspool.networks import _checks
from unspool.networks._train import position
from unspool.networks.operators import MPO

__all__ = ["mpo_from_bonds", "mpo_from_terms"]

Array = np.ndarray[Any, Any]
# What is still to come of a term: sites, with the numbers of their operators.
Rest = tuple[tuple[int, int], ...]
# The number of the identity, of whatever site.
IDENTITY = -1
# Stands for the rests of all terms that have not begun.
LATER: Rest = ((-1, IDENTITY),)


class _Open(NamedTuple):
    """A term on its way through the chain: the memory of its left part, the rest, the factor still to be placed."""

    memory: int
    rest: Rest
    factor: Any


class _Block(NamedTuple):
    """An entry of a tensor: from one memory to the next, with an operator and a factor."""

    left: int
    right: int
    operator: int
    factor: Any


def mpo_from_terms(terms: Iterable[tuple[Any, Mapping[int, Any]]], physical: Sequence[int]) -> MPO:
    """Sum local terms into one operator.

    Parameters
    ----------
    terms : iterable of (coefficient, {site: operator})
        A number or scalar tensor, and matrices for the sites where the term is not the identity: one, two or more of
        them, at any distance. Matrices may be tensors as well.
    physical : sequence of int
        The size of each site's space.

    Returns
    -------
    MPO
        With the smallest bonds that serve for any values of the coefficients; linear in each, and differentiable.

    Examples
    --------
    >>> import numpy as np
    >>> import unspool as us
    >>> from unspool.networks.terms import mpo_from_terms
    >>> Z, X = np.diag([1.0, -1.0]), np.array([[0.0, 1.0], [1.0, 0.0]])
    >>> J = us.tensor(2.0)
    >>> H = mpo_from_terms([(J, {0: Z, 1: Z}), (J, {1: Z, 2: Z}), (0.5, {0: X})], [2, 2, 2])
    >>> H.ranks
    (3, 2)
    >>> us.trace(H.dense() @ H.dense()).grad(J).item()      # tr H² = 8·(2·J² + 0.5²)
    64.0
    """
    sizes = [_checks.count(size, "physical size") for size in physical]
    operators = _Operators(sizes)
    pairs = list(terms)
    if not pairs or not sizes:
        raise ArgumentError(f"an MPO needs terms and sites, got {len(pairs)} terms and {len(sizes)} sites")
    waiting: dict[Rest, Any] = {}
    for factor, (_, matrices) in zip(_factors([coefficient for coefficient, _ in pairs]), pairs, strict=True):
        _add(waiting, operators.rest(matrices), factor)
    pending, tensors, memories = [_Open(0, LATER, 1.0)], [], 1
    for site in range(len(sizes)):
        pending, waiting = _start(pending, waiting, site)
        blocks, pending, after = _step(pending, site, last=site == len(sizes) - 1)
        tensors.append(_tensor(blocks, operators, (memories, sizes[site], after)))
        memories = after
    return MPO(tensors)


class _Operators:
    """The different matrices of all terms, numbered."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes
        self.matrices: list[Any] = []
        self.numbers: dict[Hashable, int] = {}

    def rest(self, matrices: Mapping[int, Any]) -> Rest:
        """Return a term as sites and numbers, in the order of the sites; identities are left out."""
        placed = {position(site, len(self.sizes), "the site of an operator"): one for site, one in matrices.items()}
        if len(placed) < len(matrices):
            raise ArgumentError(f"a term has two operators for the same site: {sorted(matrices)}")
        numbers = ((site, self._number(placed[site], site)) for site in sorted(placed))
        return tuple((site, number) for site, number in numbers if number >= 0)

    def _number(self, matrix: Any, site: int) -> int:
        # Tensors are told apart by identity; the list of matrices keeps them alive.
        key: Hashable = id(matrix)
        if not isinstance(matrix, us.Tensor):
            matrix = np.asarray(matrix)
            key = (matrix.shape, matrix.dtype.str, matrix.tobytes())
        size = self.sizes[site]
        if matrix.shape != (size, size):
            raise ShapeError(f"the operator at site {site} must have shape {(size, size)}, got {matrix.shape}")
        if key not in self.numbers:
            _checks.finite_tensor(matrix, f"the operator at site {site}")
            identity = not isinstance(matrix, us.Tensor) and np.array_equal(matrix, np.eye(size))
            self.numbers[key] = IDENTITY if identity else len(self.matrices)
            if not identity:
                self.matrices.append(matrix)
        return self.numbers[key]


def _factors(coefficients: list[Any]) -> list[Any]:
    """Return the coefficients of terms, after a look at all of them together."""
    for number, coefficient in enumerate(coefficients):
        if np.ndim(coefficient) != 0:
            raise ShapeError(f"the coefficient of term {number} must be a scalar, got shape {np.shape(coefficient)}")
    for number, value in enumerate(us.eval(coefficients)):
        if not np.isfinite(value):
            raise ArgumentError(f"the coefficient of term {number} must be finite, but is {value}")
    return coefficients


def _add(factors: dict[Any, Any], key: Any, factor: Any) -> None:
    factors[key] = factors[key] + factor if key in factors else factor


def _start(pending: list[_Open], waiting: dict[Rest, Any], site: int) -> tuple[list[_Open], dict[Rest, Any]]:
    """Put the terms that begin here in the place of the line that stands for all that have not begun.

    While more terms wait than there are lines, one of them at least goes on like no other. The memory "nothing yet" is
    then needed anyhow, and one line for all of them is enough, which spares a long chain most of the work.
    """
    if not waiting:
        return pending, waiting
    nothing_yet = next(line.memory for line in pending if line.rest is LATER)
    begun = [line for line in pending if line.rest is not LATER]
    here = {rest: factor for rest, factor in waiting.items() if not rest or rest[0][0] == site}
    later = {rest: factor for rest, factor in waiting.items() if rest not in here}
    if len(later) <= len(begun) + len(here):
        here, later = waiting, {}
    begun += [_Open(nothing_yet, rest, factor) for rest, factor in here.items()]
    return begun + ([_Open(nothing_yet, LATER, 1.0)] if later else []), later


def _step(pending: list[_Open], site: int, *, last: bool) -> tuple[list[_Block], list[_Open], int]:
    """Place one site: return the entries of its tensor, what is open after it, and the number of memories there."""
    rows: dict[tuple[int, int], int] = {}
    columns: dict[Rest, int] = {}
    lines: dict[tuple[int, int], Any] = {}
    for memory, rest, factor in pending:
        number = IDENTITY
        if rest and rest[0][0] == site:
            number, rest = rest[0][1], rest[1:]
        line = rows.setdefault((memory, number), len(rows)), columns.setdefault(rest, len(columns))
        _add(lines, line, factor)
    covered_rows = set() if last else _covered_rows(lines, len(rows), len(columns))
    left_parts, rests = list(rows), list(columns)
    blocks: list[_Block] = []
    after: list[_Open] = []
    memories: dict[tuple[str, int], int] = {}
    for (row, column), factor in lines.items():
        memory, number = left_parts[row]
        if row in covered_rows:
            # Terms with this left part: remember it, and leave their factors to the right.
            key = ("row", row)
            if key not in memories:
                blocks.append(_Block(memory, len(memories), number, 1.0))
            after.append(_Open(memories.setdefault(key, len(memories)), rests[column], factor))
        else:
            # Terms that go on alike: place their factors here, and remember what is to come.
            key = ("column", column)
            if key not in memories:
                after.append(_Open(len(memories), rests[column], 1.0))
            blocks.append(_Block(memory, memories.setdefault(key, len(memories)), number, factor))
    return blocks, after, len(memories)


def _covered_rows(lines: Mapping[tuple[int, int], Any], rows: int, columns: int) -> set[int]:
    """Return the rows of a minimum vertex cover; its columns are those that the other rows touch (Kőnig's theorem)."""
    starts, ends = np.array(list(lines)).T
    graph = csr_array((np.ones(len(lines)), (starts, ends)), shape=(rows, columns))
    partner = maximum_bipartite_matching(graph, perm_type="column")
    owner = {int(column): row for row, column in enumerate(partner) if column >= 0}
    reached = {row for row in range(rows) if partner[row] < 0}
    stack = list(reached)
    while stack:
        row = stack.pop()
        for column in graph.indices[graph.indptr[row] : graph.indptr[row + 1]]:
            other = owner[int(column)]
            if other not in reached:
                reached.add(other)
                stack.append(other)
    return set(range(rows)) - reached


def _tensor(blocks: list[_Block], operators: _Operators, shape: tuple[int, int, int]) -> us.Tensor:
    """Put the entries of one tensor into place: numbers into a constant, tensors with a pattern of zeros and ones."""
    left, size, right = shape
    numbers = np.zeros((left, size, size, right))
    places, entries = [], []
    for block in blocks:
        matrix = np.eye(size) if block.operator == IDENTITY else operators.matrices[block.operator]
        factor = block.factor
        if isinstance(matrix, us.Tensor) or isinstance(factor, us.Tensor):
            places.append((block.left, block.right))
            entries.append(factor * us.asarray(matrix))
        else:
            term = factor * matrix
            numbers = numbers.astype(np.result_type(numbers, term), copy=False)
            numbers[block.left, :, :, block.right] += term
    if not entries:
        return us.constant(numbers)
    pattern = np.zeros((len(places), left, right))
    for entry, (row, column) in enumerate(places):
        pattern[entry, row, column] = 1.0
    return us.constant(numbers) + us.einsum("klr,koi->loir", us.constant(pattern), us.stack(entries))


def mpo_from_bonds(bonds: Sequence[Any]) -> MPO:
    """Sum operators of neighbouring pairs into one operator.

    Parameters
    ----------
    bonds : sequence of array_like
        For each pair of neighbours a tensor with the axes (out, out, in, in).

    Returns
    -------
    MPO
        With bonds of size p² + 2 for a space of size p on the left: an operator of two sites is a sum over the p² unit
        matrices of the first. No decomposition is involved, so this is linear in every entry.

    Examples
    --------
    >>> import numpy as np
    >>> import unspool as us
    >>> from unspool.networks.models import heisenberg, heisenberg_bonds
    >>> from unspool.networks.terms import mpo_from_bonds
    >>> same = mpo_from_bonds(heisenberg_bonds(np.ones(3)))
    >>> same.ranks
    (5, 6, 5)
    >>> bool(us.allclose(same.dense(), heisenberg(np.ones(3)).dense()))
    True
    """
    gates = [_checks.finite_tensor(bond, f"bond {number}", ndim=4) for number, bond in enumerate(bonds)]
    sizes = _sizes(gates)
    tensors = []
    for site, size in enumerate(sizes):
        before, after = (sizes[site - 1] ** 2 if site else 0), (size**2 if site < len(gates) else 0)
        # Memories: nothing placed yet, one for each unit matrix placed on the site before, all done.
        fixed = np.zeros((before + 2, size, size, after + 2))
        fixed[0, :, :, 0] = fixed[-1, :, :, -1] = np.eye(size)
        if after:
            fixed[0, :, :, 1:-1] = np.eye(after).reshape(size, size, after)
        tensor = us.constant(fixed)
        if before:
            endings = us.einsum("abcd->acbd", gates[site - 1]).reshape(before, size, size, 1)
            tensor = tensor + us.pad(endings, ((1, 1), (0, 0), (0, 0), (after + 1, 0)))
        tensors.append(tensor[_needed(site, len(sizes)), :, :, _needed(site + 1, len(sizes))])
    return MPO(tensors)


def _sizes(gates: list[us.Tensor]) -> list[int]:
    """Return the sizes of the spaces that operators of neighbouring pairs act on."""
    if not gates:
        raise ArgumentError("an MPO needs an operator for at least one pair of neighbours")
    for number, gate in enumerate(gates):
        if gate.shape[:2] != gate.shape[2:]:
            raise ShapeError(f"bond {number} must have the axes (out, out, in, in), got shape {gate.shape}")
        if number and gate.shape[0] != gates[number - 1].shape[1]:
            raise ShapeError(
                f"bonds {number - 1} and {number} share a site, which has size {gates[number - 1].shape[1]} in one "
                f"and {gate.shape[0]} in the other"
            )
    return [cast(int, gate.shape[0]) for gate in gates] + [cast(int, gates[-1].shape[1])]


def _needed(bond: int, sites: int) -> slice:
    """Return which memories a bond needs: at the start nothing is done, at the end nothing is left to be placed."""
    first = 1 if bond == sites - 1 else 0
    if bond == sites:
        return slice(-1, None)
    return slice(0, 1) if bond == 0 else slice(first, -1 if bond == 1 else None)
