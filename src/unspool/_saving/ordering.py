"""Which nodes of a file are made, and in which order: on records alone."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from unspool._saving.reader import GraphReader
from unspool._saving.records import NodeRecord
from unspool.errors import SaveFileError


def reachable(reader: GraphReader, roots: Sequence[int]) -> list[int]:
    """Return the numbers of all nodes that some are made from, and these.

    What computed a node read more than that, if it computed something beside that has died since.
    """
    read: dict[int, tuple[int, ...]] = {}
    for piece in reader.pieces:
        for number in piece.outputs:
            if number is not None and isinstance(reader.nodes[number], NodeRecord):
                read[number] = piece.inputs
    seen = bytearray(len(reader.nodes))
    found: list[int] = []
    stack = list(roots)
    while stack:
        number = stack.pop()
        if not seen[number]:
            seen[number] = 1
            found.append(number)
            stack += [i for i in (*reader.nodes[number].inputs, *read.get(number, ())) if not seen[i]]
    return found


def in_order(reader: GraphReader, numbers: list[int]) -> list[int]:
    """Return numbers of nodes in the order of ids, but each after what it is made from."""
    nodes = reader.nodes
    numbers.sort(key=lambda number: (nodes[number].id, number))
    place = {number: i for i, number in enumerate(numbers)}
    if all(place[i] < place[number] for number in numbers for i in nodes[number].inputs):
        return numbers
    left = {}
    consumers: dict[int, list[int]] = {}
    for number in numbers:
        sources = set(nodes[number].inputs)
        left[number] = len(sources)
        for source in sources:
            consumers.setdefault(source, []).append(number)
    ready = [place[number] for number, count in left.items() if not count]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        number = numbers[heapq.heappop(ready)]
        order.append(number)
        for consumer in consumers.get(number, ()):
            left[consumer] -= 1
            if not left[consumer]:
                heapq.heappush(ready, place[consumer])
    if len(order) < len(numbers):
        raise SaveFileError("the file has nodes that are made from themselves")
    return order
