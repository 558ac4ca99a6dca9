"""Places for the nodes of a small graph that flows downwards: layers by depth, few crossings, no overlaps.

A node stands one layer below the lowest that it reads. What nobody fills stands just above its first reader, so that
lines are short. Within a layer nodes are ordered by where their neighbours stand, a few times over.
"""

from __future__ import annotations

from collections.abc import Sequence

# Rounds of ordering, down and up, and nodes that stand beside each other.
_ROUNDS, _WIDEST = 6, 6

Edge = Sequence[int]


def layers_of(count: int, edges: Sequence[Edge]) -> list[int]:
    """Return the layer of each of so many nodes.

    Examples
    --------
    >>> layers_of(4, [(0, 2), (1, 3), (2, 3)])
    [0, 1, 1, 2]
    """
    sources, readers = _neighbours(count, edges)
    waiting = [len(s) for s in sources]
    ready = [i for i, left in enumerate(waiting) if not left]
    layers = [0] * count
    for node in ready:  # it grows
        for reader in readers[node]:
            layers[reader] = max(layers[reader], layers[node] + 1)
            waiting[reader] -= 1
            if not waiting[reader]:
                ready.append(reader)
    for node in range(count):
        if not sources[node] and readers[node]:
            layers[node] = max(0, min(layers[reader] for reader in readers[node]) - 1)
    return layers


def order_of(count: int, edges: Sequence[Edge], layers: Sequence[int]) -> list[list[int]]:
    """Return the nodes of each layer, from left to right; a wide layer becomes several."""
    sources, readers = _neighbours(count, edges)
    rows: list[list[int]] = [[] for _ in range(max(layers, default=-1) + 1)]
    for node in range(count):
        rows[layers[node]].append(node)
    place = _places(rows)
    for turn in range(_ROUNDS):
        neighbours = sources if turn % 2 == 0 else readers
        for row in rows if turn % 2 == 0 else rows[::-1]:
            row.sort(key=lambda node: (_mean([place[n] for n in neighbours[node]], place[node]), node))
            place.update(_places([row]))
    return [row[i : i + _WIDEST] for row in rows for i in range(0, len(row), _WIDEST)]


def _neighbours(count: int, edges: Sequence[Edge]) -> tuple[list[list[int]], list[list[int]]]:
    sources: list[list[int]] = [[] for _ in range(count)]
    readers: list[list[int]] = [[] for _ in range(count)]
    for source, reader in edges:
        sources[reader].append(source)
        readers[source].append(reader)
    return sources, readers


def _places(rows: Sequence[Sequence[int]]) -> dict[int, float]:
    return {node: i - (len(row) - 1) / 2 for row in rows for i, node in enumerate(row)}


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
