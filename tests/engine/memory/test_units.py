"""Units by number: in which order they can run, and what they hold, beside what follows from the definitions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from unspool._core import UnitTable
from unspool._engine.memory.units import Order

BRANCH = 16
_NONE, _VIEW, _LARGE, _STEPWISE = -1, 1, 2, 4


class Graph(NamedTuple):
    """Random units: what each reads and makes, the workspace of each, and the buffers of each node with their sizes."""

    table: UnitTable
    reads: list[list[int]]
    makes: list[list[int]]
    workspaces: list[int]
    buffers: list[list[int]]
    sizes: list[int]


def random_graph(seed: int, count: int = 40, flags: int = _LARGE) -> Graph:
    rng = np.random.default_rng(seed)
    table = UnitTable(BRANCH)
    sizes: list[int] = []
    buffers: list[list[int]] = []
    reads: list[list[int]] = []
    makes: list[list[int]] = []
    workspaces: list[int] = []

    def node(unit: int, has_inputs: bool) -> int:
        if not sizes or rng.random() < 0.8:
            sizes.append(int(rng.integers(1, 100)))
            assert table.buffer(sizes[-1]) == len(sizes) - 1
            taken = [len(sizes) - 1]
        else:
            taken = [int(rng.integers(0, len(sizes)))]  # it is a view of what another one made
        buffers.append(taken)
        return table.node(1000 + len(buffers), unit, has_inputs, taken)

    leaf = node(table.unit(), False)
    for i in range(count):
        unit = table.unit()
        assert unit == i + 1
        known = [leaf, *[made for each in makes for made in each]]
        read = [known[int(k)] for k in rng.integers(max(0, len(known) - 12), len(known), int(rng.integers(1, 4)))]
        made = [node(unit, True) for _ in range(int(rng.integers(1, 3)))]
        workspace = int(rng.integers(0, 200))
        table.describe(unit, 10 * i, read, made, 0, len(read), workspace, 0, _NONE, _NONE, flags)
        reads.append(read)
        makes.append(made)
        workspaces.append(workspace)
    return Graph(table, reads, makes, workspaces, buffers, sizes)


def in_use(graph: Graph, nodes: set[int]) -> int:
    """Return the bytes of nodes, each buffer once."""
    return sum(graph.sizes[buffer] for buffer in {buffer for node in nodes for buffer in graph.buffers[node]})


def held_around(graph: Graph, order: list[int], wanted: set[int]) -> list[tuple[set[int], set[int], set[int]]]:
    """Return for each unit of an order what is held before, what it makes that is needed, and what is held after."""
    found = []
    held: set[int] = set()
    for at, unit in enumerate(order):
        later = {node for other in order[at + 1 :] for node in graph.reads[other - 1]} | wanted
        fresh = {node for node in graph.makes[unit - 1] if node in later}
        after = (held | fresh) & later
        found.append((held, fresh, after))
        held = after
    return found


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("flags", [_LARGE, 0])
@pytest.mark.parametrize("seed", range(8))
def test_every_order_has_all_units_after_what_they_read(seed: int, flags: int, order: Order) -> None:
    graph = random_graph(seed, flags=flags)
    given = [int(i) + 1 for i in np.random.default_rng(seed).permutation(len(graph.reads))]
    found = graph.table.arrange(given, order)
    assert sorted(found) == sorted(given)
    maker = {node: unit + 1 for unit, made in enumerate(graph.makes) for node in made}
    place = {unit: at for at, unit in enumerate(found)}
    for unit in found:
        assert all(place[maker[node]] < place[unit] for node in graph.reads[unit - 1] if node in maker)
    assert graph.table.arrange(given, order) == found


@pytest.mark.parametrize("seed", range(8))
def test_widths_are_what_is_held_while_units_run(seed: int) -> None:
    graph = random_graph(seed)
    order = graph.table.arrange(range(1, len(graph.reads) + 1), Order.AS_RECORDED)
    wanted = {graph.makes[-1][0], graph.makes[5][0]}
    rows = held_around(graph, order, wanted)
    busiest = max(
        max(in_use(graph, before) + graph.workspaces[unit - 1], in_use(graph, before | fresh))
        for unit, (before, fresh, _) in zip(order, rows, strict=True)
    )
    assert graph.table.widths(order, sorted(wanted)) == (0, busiest)


@pytest.mark.parametrize("seed", range(8))
def test_a_frame_waits_where_a_unit_reads_what_is_not_made_in_it(seed: int) -> None:
    graph = random_graph(seed)
    upper = list(range(21, len(graph.reads) + 1))
    inside = {node for unit in upper for node in graph.makes[unit - 1]}
    waiting = max(
        in_use(graph, before)
        for unit, (before, _, _) in zip(upper, held_around(graph, upper, set()), strict=True)
        if any(node not in inside for node in graph.reads[unit - 1])
    )
    assert graph.table.widths(upper, [])[0] == waiting


@pytest.mark.parametrize("seed", range(8))
def test_what_units_take_that_run_for_others(seed: int) -> None:
    graph = random_graph(seed)
    lower, upper = list(range(1, 21)), range(21, len(graph.reads) + 1)
    uses: dict[int, int] = {}
    for unit in upper:
        for node in graph.reads[unit - 1]:
            uses[1001 + node] = uses.get(1001 + node, 0) + 1
    running, whole, widths, tapes = graph.table.need(lower, uses)
    rows = held_around(graph, lower, set())
    read = [{node for node in graph.makes[unit - 1] if 1001 + node in uses} for unit in lower]
    assert widths == [in_use(graph, after) for _, _, after in rows]
    assert tapes == [sum(graph.sizes[b] for node in each for b in graph.buffers[node]) for each in read]
    kept: set[int] = set()
    expected_running = expected_whole = 0
    for unit, (before, fresh, _), taped in zip(lower, rows, read, strict=True):
        space = graph.workspaces[unit - 1]
        expected_running = max(expected_running, in_use(graph, before) + space, in_use(graph, before | fresh | taped))
        expected_whole = max(expected_whole, in_use(graph, before | kept) + space)
        kept |= taped
        expected_whole = max(expected_whole, in_use(graph, before | fresh | kept))
    assert (running, whole) == (expected_running, expected_whole)


def chain_of(count: int, size: int) -> tuple[UnitTable, list[int], list[int]]:
    """Return units that read each other in turn, each beside a term that reads it; first the row, then the terms."""
    table = UnitTable(BRANCH)
    row: list[int] = []
    terms: list[int] = []
    nodes: list[int] = []
    key = 0

    def add(reads: list[int], nbytes: int, flags: int) -> int:
        nonlocal key
        key += 2
        unit = table.unit()
        made = table.node(key, unit, True, [table.buffer(nbytes)])
        table.describe(unit, key, reads, [made], 0, len(reads), nbytes, 0, _NONE, _NONE, flags)
        nodes.append(made)
        return unit

    for i in range(count):
        row.append(add(nodes[-1:] if i else [], size, _LARGE))
    states = list(nodes)
    for state in states:
        terms.append(add([state, *nodes[-1:]] if terms else [state], 1, 0))
    return table, row, terms


def test_what_frees_memory_runs_before_the_loop_goes_on() -> None:
    """A sum over all states of a loop: each term can be added as soon as its state is there."""
    table, row, terms = chain_of(40, 1000)
    order = table.arrange([*row, *terms], Order.FREEING)
    assert table.widths(order, [])[1] < 4 * 1000
    assert table.widths([*row, *terms], [])[1] >= 40 * 1000


def test_a_unit_may_write_onto_its_operand_and_take_an_output_out_of_its_chain() -> None:
    table = UnitTable(BRANCH)
    chain, first, onto = table.unit(), table.unit(), table.unit()
    stacks = [table.buffer(100), table.buffer(10)]
    bundle = table.node(2, chain, True, stacks)
    part = table.node(4, first, True, [stacks[0]])
    result = table.node(6, onto, True, [table.buffer(100)])
    table.describe(chain, 2, [], [bundle], 0, 0, 0, 110, _NONE, _NONE, _LARGE | _STEPWISE)
    table.describe(first, 4, [bundle], [part], 0, 1, 0, 0, _NONE, stacks[0], _VIEW)
    table.describe(onto, 6, [part, bundle], [result], 0, 2, 100, 0, part, _NONE, 0)
    assert table.widths([chain, first, onto], [result]) == (0, 110)
    table.describe(onto, 6, [part, bundle], [result], 0, 2, 100, 0, _NONE, _NONE, 0)
    assert table.widths([chain, first, onto], [result]) == (0, 210)


def test_what_is_no_unit_is_refused() -> None:
    graph = random_graph(0)
    table: Any = graph.table
    for units in ([1000], [-1], [1, 1]):
        for ask in (lambda u: table.arrange(u, 0), lambda u: table.widths(u, []), lambda u: table.need(u, {})):
            with pytest.raises(ValueError, match="no unit"):
                ask(units)
    with pytest.raises(ValueError, match="nothing with this number"):
        table.widths([1], [10_000])
    with pytest.raises(ValueError, match="no description"):
        table.describe(1, 0, [], [], 2, 0, 0, 0, _NONE, _NONE, 0)
    with pytest.raises(ValueError, match="no unit"):
        table.node(1, 1000, True, [])
    with pytest.raises(TypeError):
        table.need([1], [])
    with pytest.raises(TypeError):
        UnitTable(branch=1)  # type: ignore[call-arg]
    assert len(table.arrange([1, 2, 3], 0)) == 3  # what was refused has left nothing behind


def test_units_that_read_each_other_are_refused() -> None:
    table = UnitTable(BRANCH)
    one, other = table.unit(), table.unit()
    nodes = [table.node(2, one, True, []), table.node(4, other, True, [])]
    table.describe(one, 2, [nodes[1]], [nodes[0]], 0, 1, 0, 0, _NONE, _NONE, _LARGE)
    table.describe(other, 4, [nodes[0]], [nodes[1]], 0, 1, 0, 0, _NONE, _NONE, _LARGE)
    for order in Order:
        with pytest.raises(ValueError, match="read each other"):
            table.arrange([one, other], order)
    assert table.arrange([one], Order.FREEING) == [one]
