"""Tables with an entry for each line of the user's program."""

from __future__ import annotations

import unspool as us
from unspool._engine.folding.by_line import ByLine


def recorded_by(source: str) -> us.Tensor:
    """Return a tensor that was recorded by a program of one line, whose code dies with it."""
    variables = {"us": us, "x": us.tensor([1.0, 2.0, 3.0])}
    exec(compile(source, "a program", "exec"), variables)
    tensor: us.Tensor = variables["made"]
    return tensor


def test_an_entry_is_found_by_every_node_of_its_line() -> None:
    table: ByLine[int] = ByLine()
    nodes = [us.ones(3) + k for k in range(3)]
    table.put(nodes[0], 7)
    assert [table.get(node) for node in nodes] == [7, 7, 7]
    assert table.get(us.ones(3) + 3) is None
    table.put(nodes[1], 8)
    assert (table.get(nodes[2]), len(table)) == (8, 1)
    table.clear()
    assert table.get(nodes[0]) is None


def test_what_is_known_of_a_function_that_died_is_said_of_no_other() -> None:
    table: ByLine[int] = ByLine()
    for k in range(200):
        tensor = recorded_by("made = us.exp(x)")
        assert table.get(tensor) is None, f"program {k} was taken for an earlier one"
        table.put(tensor, k)
        del tensor


def test_the_oldest_lines_leave_first() -> None:
    table: ByLine[int] = ByLine()
    first = recorded_by("made = us.exp(x)")
    table.put(first, 0)
    others = [recorded_by("made = us.sin(x)") for _ in range(1 << 12)]
    for tensor in others:
        table.put(tensor, 1)
    assert (table.get(first), table.get(others[0]), len(table)) == (None, 1, 1 << 12)
