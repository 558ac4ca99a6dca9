"""Checkpointing by hand: which ranges of nodes evict their values and recompute them in the backward pass.

A segment is a range of node ids. A configuration is some segments, in any order; where they overlap, their union
counts. This module only does arithmetic with ids. `unspool.Tape` and the gradients of tensors act on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from unspool.checkpoint._counting import at_least, integer
from unspool.errors import ArgumentError


@dataclass(frozen=True, slots=True)
class CheckpointSegment:
    """A range of nodes, both ends included, whose values are recomputed for the backward pass.

    Parameters
    ----------
    start_node, end_node : int
        Ids of the first and of the last node. `CheckpointConfig.validate` says whether they make sense.

    Examples
    --------
    >>> from unspool.checkpoint import CheckpointSegment
    >>> CheckpointSegment(2, 4)
    CheckpointSegment(start_node=2, end_node=4)
    """

    start_node: int
    end_node: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "start_node", integer(self.start_node, "start_node"))
        object.__setattr__(self, "end_node", integer(self.end_node, "end_node"))


@dataclass(frozen=True, slots=True)
class CheckpointConfig:
    """The segments to checkpoint. They may overlap and need not be sorted; without any, every value is kept.

    Parameters
    ----------
    segments : iterable of CheckpointSegment

    Examples
    --------
    >>> from unspool.checkpoint import CheckpointConfig, CheckpointSegment
    >>> config = CheckpointConfig([CheckpointSegment(2, 4), CheckpointSegment(7, 9)])
    >>> config.should_checkpoint(4), config.should_checkpoint(5)
    (True, False)
    """

    segments: tuple[CheckpointSegment, ...] = ()

    def __post_init__(self) -> None:
        given: Any = self.segments
        if not isinstance(given, Iterable):
            raise ArgumentError(f"segments has to be an iterable of CheckpointSegment, got {given!r}")
        segments = tuple(given)
        for segment in segments:
            if not isinstance(segment, CheckpointSegment):
                raise ArgumentError(f"segments has to hold CheckpointSegment only, got {segment!r}")
        object.__setattr__(self, "segments", segments)

    @classmethod
    def uniform(cls, num_nodes: int, num_segments: int, *, balanced: bool = False) -> CheckpointConfig:
        """Split the nodes 0…num_nodes-1 into segments of equal size.

        Without nodes, without segments, or with more segments than nodes, the configuration is empty.

        Parameters
        ----------
        num_nodes, num_segments : int
        balanced : bool
            What to do with a remainder. By default each segment has ``num_nodes // num_segments`` nodes and the last
            one takes the rest. With ``True`` sizes differ by at most one.

        Examples
        --------
        >>> from unspool.checkpoint import CheckpointConfig
        >>> [(s.start_node, s.end_node) for s in CheckpointConfig.uniform(11, 3).segments]
        [(0, 2), (3, 5), (6, 10)]
        >>> [(s.start_node, s.end_node) for s in CheckpointConfig.uniform(11, 3, balanced=True).segments]
        [(0, 2), (3, 6), (7, 10)]
        """
        nodes, count = at_least(num_nodes, 0, "num_nodes"), at_least(num_segments, 0, "num_segments")
        if not 0 < count <= nodes:
            return cls()
        if balanced:
            starts = [i * nodes // count for i in range(count)]
        else:
            starts = [i * (nodes // count) for i in range(count)]
        ends = [start - 1 for start in starts[1:]] + [nodes - 1]
        return cls(tuple(map(CheckpointSegment, starts, ends)))

    def should_checkpoint(self, node_id: int) -> bool:
        """Whether a node lies in a segment.

        Examples
        --------
        >>> from unspool.checkpoint import CheckpointConfig
        >>> CheckpointConfig.uniform(8, 2).should_checkpoint(7), CheckpointConfig().should_checkpoint(7)
        (True, False)
        """
        node = integer(node_id, "node_id")
        return any(segment.start_node <= node <= segment.end_node for segment in self.segments)

    def validate(self, num_nodes: int | None = None) -> None:
        """Raise `ArgumentError` for a segment that is reversed, begins below 0, or ends beyond the last node.

        Parameters
        ----------
        num_nodes : int, optional
            How many nodes there are. If it is not given, ends are not compared with it.

        Examples
        --------
        >>> from unspool.checkpoint import CheckpointConfig, CheckpointSegment
        >>> CheckpointConfig([CheckpointSegment(0, 10)]).validate(10)
        Traceback (most recent call last):
            ...
        unspool.errors.ArgumentError: segments[0], nodes 0 to 10, goes beyond the last of 10 nodes, which is node 9
        """
        nodes = None if num_nodes is None else at_least(num_nodes, 0, "num_nodes")
        for position, segment in enumerate(self.segments):
            what = f"segments[{position}], nodes {segment.start_node} to {segment.end_node},"
            if segment.start_node < 0:
                raise ArgumentError(f"{what} begins below 0, where the ids of nodes begin")
            if segment.end_node < segment.start_node:
                raise ArgumentError(f"{what} ends before it begins")
            if nodes is not None and segment.end_node >= nodes:
                last = f", which is node {nodes - 1}" if nodes else ""
                raise ArgumentError(f"{what} goes beyond the last of {nodes} nodes{last}")


def plan_recomputation(num_nodes: int, config: CheckpointConfig) -> list[bool]:
    """Return for each node whether it lies in a segment, so that its value may be evicted and recomputed.

    Nothing is validated: of a segment that goes beyond the nodes the part inside counts, and a reversed one is empty.
    What is really dropped is less, because values that are still needed stay; see `unspool.Tape`.

    Parameters
    ----------
    num_nodes : int
    config : CheckpointConfig

    Examples
    --------
    >>> from unspool.checkpoint import CheckpointConfig, CheckpointSegment, plan_recomputation
    >>> plan_recomputation(5, CheckpointConfig([CheckpointSegment(1, 3)]))
    [False, True, True, True, False]
    """
    nodes = at_least(num_nodes, 0, "num_nodes")
    plan = [False] * nodes
    for segment in as_config(config).segments:
        for node in range(max(segment.start_node, 0), min(segment.end_node + 1, nodes)):
            plan[node] = True
    return plan


def segment_of(config: CheckpointConfig, num_nodes: int) -> list[int | None]:
    """Return for each node the number of the segment it lies in, or ``None``.

    Segments that share a node are one. Segments that only touch, as those of `CheckpointConfig.uniform` do, stay apart.
    They are numbered from 0 in rising order of nodes. A configuration that is not valid raises.

    Examples
    --------
    >>> from unspool.checkpoint import CheckpointConfig, CheckpointSegment
    >>> from unspool.checkpoint.segments import segment_of
    >>> segment_of(CheckpointConfig([CheckpointSegment(5, 6), CheckpointSegment(1, 2), CheckpointSegment(2, 4)]), 8)
    [None, 0, 0, 0, 0, 1, 1, None]
    """
    nodes = at_least(num_nodes, 0, "num_nodes")
    as_config(config).validate(nodes)
    numbers: list[int | None] = [None] * nodes
    number, last = -1, -1
    for start, end in sorted((segment.start_node, segment.end_node) for segment in config.segments):
        if start > last:
            number += 1
        else:
            start = last + 1
        for node in range(start, end + 1):
            numbers[node] = number
        last = max(last, end)
    return numbers


def as_config(config: Any) -> CheckpointConfig:
    """Return a configuration, or raise if it is something else."""
    if not isinstance(config, CheckpointConfig):
        raise ArgumentError(f"expected a CheckpointConfig, got {config!r}")
    return config
