"""Segments by hand: the rules of the configuration, and what is refused."""

from __future__ import annotations

import dataclasses

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from unspool.checkpoint import CheckpointConfig, CheckpointSegment, plan_recomputation
from unspool.checkpoint.segments import segment_of
from unspool.errors import ArgumentError

ANY_SEGMENTS = st.lists(st.builds(CheckpointSegment, st.integers(-3, 25), st.integers(-3, 25)), max_size=6)


def config(*ranges: tuple[int, int]) -> CheckpointConfig:
    return CheckpointConfig(tuple(CheckpointSegment(*ends) for ends in ranges))


def ranges(checkpoint: CheckpointConfig) -> list[tuple[int, int]]:
    return [(segment.start_node, segment.end_node) for segment in checkpoint.segments]


# --- the tests of the crate that has this interface, in our words -----------------------------------------------------


def test_ten_nodes_in_two_segments_are_two_fives():
    assert ranges(CheckpointConfig.uniform(10, 2)) == [(0, 4), (5, 9)]


def test_a_node_is_checkpointed_if_it_lies_in_a_segment_ends_included():
    checkpoint = config((2, 4), (7, 9))
    assert [i for i in range(11) if checkpoint.should_checkpoint(i)] == [2, 3, 4, 7, 8, 9]


def test_the_plan_has_an_entry_for_each_node():
    assert plan_recomputation(5, config((1, 3))) == [False, True, True, True, False]


def test_the_default_checkpoints_nothing():
    checkpoint = CheckpointConfig()
    assert not checkpoint.should_checkpoint(0)
    assert not checkpoint.should_checkpoint(100)
    assert plan_recomputation(5, checkpoint) == [False] * 5


def test_one_segment_takes_every_node():
    checkpoint = CheckpointConfig.uniform(8, 1)
    assert ranges(checkpoint) == [(0, 7)]
    assert all(checkpoint.should_checkpoint(i) for i in range(8))
    assert plan_recomputation(8, checkpoint) == [True] * 8


# --- uniform ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("nodes", "segments"), [(0, 0), (0, 3), (5, 0), (3, 4), (1, 100)])
@pytest.mark.parametrize("balanced", [False, True])
def test_no_nodes_no_segments_or_more_segments_than_nodes_give_an_empty_configuration(nodes, segments, balanced):
    assert CheckpointConfig.uniform(nodes, segments, balanced=balanced) == CheckpointConfig()


@pytest.mark.parametrize(
    ("nodes", "segments", "expected"),
    [
        (10, 3, [(0, 2), (3, 5), (6, 9)]),
        (11, 3, [(0, 2), (3, 5), (6, 10)]),
        (7, 4, [(0, 0), (1, 1), (2, 2), (3, 6)]),
        (3, 3, [(0, 0), (1, 1), (2, 2)]),
    ],
)
def test_the_last_segment_takes_the_remainder(nodes, segments, expected):
    assert ranges(CheckpointConfig.uniform(nodes, segments)) == expected


@given(st.integers(1, 200), st.data(), st.booleans())
def test_uniform_segments_cover_every_node_once_and_are_valid(nodes, data, balanced):
    segments = data.draw(st.integers(1, nodes))
    checkpoint = CheckpointConfig.uniform(nodes, segments, balanced=balanced)
    checkpoint.validate(nodes)
    covered = [i for start, end in ranges(checkpoint) for i in range(start, end + 1)]
    assert covered == list(range(nodes))
    assert len(checkpoint.segments) == segments
    if balanced:
        sizes = {end - start + 1 for start, end in ranges(checkpoint)}
        assert max(sizes) - min(sizes) <= 1


def test_numpy_integers_are_integers():
    assert CheckpointConfig.uniform(np.int64(10), np.int32(2)) == CheckpointConfig.uniform(10, 2)
    assert CheckpointSegment(np.int64(1), np.uint8(3)) == CheckpointSegment(1, 3)
    assert type(CheckpointSegment(np.int64(1), 3).start_node) is int


# --- plans and merged segments ----------------------------------------------------------------------------------------


@given(st.integers(0, 20), ANY_SEGMENTS)
def test_the_plan_says_of_each_node_what_the_configuration_says(nodes, segments):
    checkpoint = CheckpointConfig(segments)
    assert plan_recomputation(nodes, checkpoint) == [checkpoint.should_checkpoint(i) for i in range(nodes)]


@given(st.lists(st.tuples(st.integers(0, 19), st.integers(0, 19)).map(sorted), max_size=6))
def test_merged_segments_are_the_classes_of_nodes_that_segments_connect(pairs):
    checkpoint = config(*(tuple(pair) for pair in pairs))
    found = segment_of(checkpoint, 20)
    assert [number is not None for number in found] == plan_recomputation(20, checkpoint)
    # Two neighbours belong together exactly if one segment has both.
    for i in range(19):
        together = any(start <= i and i + 1 <= end for start, end in pairs)
        assert (found[i] is not None and found[i] == found[i + 1]) == together
    present = [number for number in found if number is not None]
    assert present == sorted(present)
    assert set(present) == set(range(len(set(present))))


def test_segments_that_only_touch_stay_apart():
    assert segment_of(CheckpointConfig.uniform(6, 3), 6) == [0, 0, 1, 1, 2, 2]


def test_segments_inside_and_across_others_are_one():
    assert segment_of(config((4, 9), (0, 1), (5, 6), (9, 10)), 12) == [0, 0, None, None, *[1] * 7, None]


def test_without_segments_no_node_has_one():
    assert segment_of(CheckpointConfig(), 3) == [None] * 3


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ends", "message"),
    [
        ((5, 3), r"segments\[1\], nodes 5 to 3, ends before it begins"),
        ((-2, 3), r"segments\[1\], nodes -2 to 3, begins below 0"),
        ((-5, -6), r"segments\[1\], nodes -5 to -6, begins below 0"),
        ((4, 10), r"segments\[1\], nodes 4 to 10, goes beyond the last of 10 nodes, which is node 9"),
        ((10, 10), r"segments\[1\], nodes 10 to 10, goes beyond the last of 10 nodes, which is node 9"),
    ],
)
def test_validate_names_the_segment_and_what_is_wrong_with_it(ends, message):
    checkpoint = config((0, 9), ends)
    with pytest.raises(ArgumentError, match=message):
        checkpoint.validate(10)
    with pytest.raises(ArgumentError, match=message):
        segment_of(checkpoint, 10)


def test_validate_accepts_overlaps_any_order_and_the_very_ends():
    config((5, 9), (0, 6), (9, 9), (0, 0)).validate(10)
    CheckpointConfig().validate(0)


def test_validate_without_a_number_of_nodes_does_not_compare_with_it():
    config((4, 10**9)).validate()
    with pytest.raises(ArgumentError, match="ends before it begins"):
        config((4, 2)).validate()
    with pytest.raises(ArgumentError, match="beyond the last of 0 nodes"):
        config((0, 0)).validate(0)


@pytest.mark.parametrize(
    "call",
    [
        lambda: CheckpointSegment(1.5, 3),
        lambda: CheckpointSegment(1, "3"),
        lambda: CheckpointSegment(None, 3),
        lambda: CheckpointConfig(3),
        lambda: CheckpointConfig([(1, 3)]),
        lambda: CheckpointConfig(CheckpointConfig()),
        lambda: CheckpointConfig.uniform(-1, 2),
        lambda: CheckpointConfig.uniform(10, -2),
        lambda: CheckpointConfig.uniform(10, 2.0),
        lambda: CheckpointConfig().should_checkpoint("loss"),
        lambda: CheckpointConfig().validate(-1),
        lambda: plan_recomputation(-1, CheckpointConfig()),
        lambda: plan_recomputation(CheckpointConfig(), 5),
        lambda: plan_recomputation(5, [CheckpointSegment(1, 3)]),
        lambda: segment_of(None, 5),
    ],
)
def test_arguments_of_the_wrong_kind_are_refused(call):
    with pytest.raises(ArgumentError, match="is an integer|is at least 0|has to|expected"):
        call()


def test_configurations_are_values():
    checkpoint = config((1, 3))
    assert checkpoint == CheckpointConfig([CheckpointSegment(1, 3)])
    assert len({checkpoint, config((1, 3)), config((1, 4))}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        checkpoint.segments = ()
    with pytest.raises(dataclasses.FrozenInstanceError):
        checkpoint.segments[0].start_node = 0
