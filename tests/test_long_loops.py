"""A loop of a hundred thousand steps: looked at in every step, differentiated, and freed, in bounded memory.

Each test runs in a process of its own with the garbage collector disabled, so that only reference counting frees.
"""

from __future__ import annotations

from tests.test_scale import run


def test_a_hundred_thousand_steps_are_evaluated_differentiated_and_freed() -> None:
    # A step that is folded is a call, a state and its value. With what the gradient adds for it, that is 2.5 kB a step;
    # unfolded, the nodes of the loop and of its gradient would be more than 8 kB.
    out = run(
        """
        import gc
        gc.disable()
        import resource, tracemalloc
        import numpy as np
        import unspool as us
        from unspool._graph import live_node_count

        start = np.array([0.5, -1.25, 2.0])

        def loop(steps):
            a, x = us.tensor(0.7), us.tensor(start)
            y = x
            for _ in range(steps):
                y = us.sin(y) * a + 0.5 * us.cos(y * y)
                float(y[0])
            return a, x, us.sum(y)

        def whole(steps):
            a, x, loss = loop(steps)
            by_a, by_x = us.eval(loss.grad([a, x]))
            return float(loss), by_a, by_x

        for _ in range(3):
            whole(100)  # caches fill up once
        nodes = live_node_count()
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

        value, by_a, by_x = whole(100_000)
        peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - rss) * 1024
        assert peak < 100_000 * 2500, peak
        assert live_node_count() == nodes, live_node_count() - nodes

        # The same loop in NumPy, with forward-mode derivatives beside it.
        y, slope_a, slope_x = start, np.zeros(3), np.ones(3)
        for _ in range(100_000):
            inner = np.cos(y) * 0.7 - np.sin(y * y) * y
            slope_a, slope_x = slope_a * inner + np.sin(y), slope_x * inner
            y = np.sin(y) * 0.7 + 0.5 * np.cos(y * y)
        np.testing.assert_allclose(value, np.sum(y), rtol=1e-12)
        np.testing.assert_allclose(by_a, np.sum(slope_a), rtol=1e-9)
        np.testing.assert_allclose(by_x, slope_x, rtol=1e-9, atol=1e-300)

        # What the process keeps does not grow with another run.
        tracemalloc.start()
        for _ in range(6):
            whole(2000)  # the intern table, large from before, takes its size again
        kept = tracemalloc.get_traced_memory()[0]
        whole(2000)
        assert tracemalloc.get_traced_memory()[0] - kept < 8192, tracemalloc.get_traced_memory()[0] - kept
        found = gc.collect()
        assert found < 1000, found
        print("done")
        """
    )
    assert out.strip() == "done"


def test_memory_of_a_long_loop_that_keeps_only_its_state_does_not_grow() -> None:
    out = run(
        """
        import gc
        gc.disable()
        import tracemalloc
        import numpy as np
        import unspool as us
        from unspool._graph import live_node_count

        def loop(x, steps):
            for _ in range(steps):
                x = us.stop_gradient(us.sin(x) * 0.7 + 0.5 * us.cos(x))
                x = us.tensor(x.eval())  # starts anew from the value: nothing of the past is needed
            return x

        x = loop(us.tensor(np.ones(3)), 100)
        nodes = live_node_count()
        tracemalloc.start()
        x = loop(x, 1000)
        before = tracemalloc.get_traced_memory()[0]
        x = loop(x, 20_000)
        grown = tracemalloc.get_traced_memory()[0] - before
        assert grown < 20_000, grown
        assert live_node_count() <= nodes + 10
        print("done")
        """
    )
    assert out.strip() == "done"


def test_a_long_loop_with_a_matrix_gathers_its_gradient() -> None:
    out = run(
        """
        import gc
        gc.disable()
        import numpy as np
        import unspool as us
        from unspool._graph import live_node_count

        rng = np.random.default_rng(0)
        matrix = np.linalg.qr(rng.normal(size=(4, 4)))[0] * 0.999

        def whole(steps):
            a, x = us.tensor(matrix), us.tensor(np.ones(4))
            y = x
            for _ in range(steps):
                y = a @ y + 0.01 * x
                float(y[0])
            loss = us.sum(y)
            return us.eval(loss, loss.grad(a))

        for _ in range(3):
            whole(100)
        nodes = live_node_count()
        value, gradient = whole(10_000)
        assert live_node_count() == nodes

        # The adjoint recursion, by hand.
        states = [np.ones(4)]
        for _ in range(10_000):
            states.append(matrix @ states[-1] + 0.01)
        ct, expected = np.ones(4), np.zeros((4, 4))
        for state in reversed(states[:-1]):
            expected += np.outer(ct, state)
            ct = matrix.T @ ct
        np.testing.assert_allclose(value, states[-1].sum(), rtol=1e-10)
        np.testing.assert_allclose(gradient, expected, rtol=1e-9, atol=1e-10)
        assert gc.collect() < 1000
        print("done")
        """
    )
    assert out.strip() == "done"
