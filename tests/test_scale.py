"""Very many nodes, a million of them in the nightly run: nothing recurses, nothing is left behind.

Each test runs in a process of its own, with the garbage collector disabled, so that only reference counting frees.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest


def run(program: str, **given: int) -> str:
    """Run a program in a process of its own, with some names given, and return what it printed."""
    source = "".join(f"{name} = {value}\n" for name, value in given.items()) + textwrap.dedent(program)
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("count", [100_000, pytest.param(1_000_000, marks=pytest.mark.nightly)])
def test_a_long_chain_of_nodes_lives_and_dies_without_recursion(count: int) -> None:
    out = run(
        """
        import gc
        gc.disable()
        import unspool as us
        from unspool._graph import live_node_count

        from unspool._engine.default import default_engine

        default_engine().smallest_loop = 1 << 62  # a loop that nobody read would fold
        x, a = us.tensor(1.5), us.tensor(1.0 + 2.0**-20)
        float((x * a).grad(x).grad(a))  # what first use caches is not a leak
        before = live_node_count()
        y = x
        for _ in range(count):
            y = y * a
        assert us.graph_size(y) == count + 2
        growth = (1 + 2.0**-20) ** count
        assert abs(float(y) / (1.5 * growth) - 1) < 1e-9

        # d/dx is a**K; differentiated again with respect to a it is K·a**(K-1).
        first = y.grad(x)
        assert abs(float(first) / growth - 1) < 1e-9
        second = first.grad(a)
        assert abs(float(second) / (count * growth / (1 + 2.0**-20)) - 1) < 1e-9
        text = str(us.summary(y, first, second))
        assert "multiply" in text
        repr(y), repr(second)

        assert live_node_count() - before > 3 * count
        del y, first, second
        assert live_node_count() == before, live_node_count() - before
        assert gc.collect() < 1000
        print("done")
        """,
        count=count,
    )
    assert out.strip() == "done"


def test_dropping_the_last_handle_frees_every_node_and_value() -> None:
    out = run(
        """
        import gc, tracemalloc
        gc.disable()
        import numpy as np
        import unspool as us
        from unspool._graph import live_node_count

        def loop(steps):
            a = us.tensor(np.eye(8) * 0.5)
            x = us.tensor(np.ones(8))
            for _ in range(steps):
                y = a @ x
                x = us.sin(y) + x / us.linalg.norm(y)
                float(x[0])
            loss = us.sum(x * x)
            us.eval(loss, loss.grad([a, x]))
            float(us.sum(loss.grad(a)).grad(a)[0, 0])

        tracemalloc.start()
        loop(200)  # caches of plans and dtypes fill up once, and the intern table takes its size
        loop(200)
        nodes, grown = live_node_count(), []
        for _ in range(4):
            bytes_before = tracemalloc.get_traced_memory()[0]
            loop(200)
            assert live_node_count() == nodes
            grown.append(tracemalloc.get_traced_memory()[0] - bytes_before)
        # Lists of the interpreter for tuples and floats to be used again grow now and then; a leak grows every time.
        assert min(grown) < 2048, grown
        print("done")
        """
    )
    assert out.strip() == "done"


@pytest.mark.parametrize("fan", [1, 3])
def test_a_wide_and_deep_graph_evaluates_in_order(fan: int) -> None:
    import unspool as us

    x = us.tensor(1.0)
    layer = [x] * fan
    for _ in range(2000):
        layer = [us.sin(layer[i] + layer[i - 1]) for i in range(fan)]
    assert us.graph_size(*layer) <= 2000 * 2 * fan + 1
    assert abs(float(layer[0])) <= 1.0
