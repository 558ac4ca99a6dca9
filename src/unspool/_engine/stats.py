"""`unspool.engine_stats` and `unspool.clear_caches`: what the engine did and holds, and how to make it forget."""

from __future__ import annotations

from dataclasses import dataclass, fields

from unspool._engine.default import default_engine
from unspool._engine.table import render_table
from unspool._html import printed_as_html


@dataclass(frozen=True)
class EngineStats:
    """What the default engine did since the start, or since `clear_caches`; prints as a table.

    Attributes
    ----------
    evaluations : int
        Times that a value had to be computed.
    fragments : int
        Fragments made: structures of loops or met a second time, functions that were traced, and their derivatives.
    calls : int
        Calls placed: pieces that were folded, calls of traced functions, and adjoint calls.
    chains : int
        Runs of adjoint calls that were placed as one node.
    plan_hits, plan_misses : int
        How often a plan was found, and how often it had to be made.
    kernel_calls : int
        Kernels run, those of calls included.
    derivatives : int
        Adjoint and tangent fragments derived.
    slabs_dropped : int
        Calls whose residuals were dropped because they exceeded the limit.
    plans, sites : int
        What the caches hold now: plans, and pieces that are recognised by the line that asks for them.
    bytes_kept : int
        Bytes of residuals that calls keep for derivatives now.
    bytes_pooled : int
        Bytes of arrays that are kept to be used again by later runs.
    """

    evaluations: int
    fragments: int
    calls: int
    chains: int
    plan_hits: int
    plan_misses: int
    kernel_calls: int
    derivatives: int
    slabs_dropped: int
    plans: int
    sites: int
    bytes_kept: int
    bytes_pooled: int

    _repr_html_ = printed_as_html

    def __str__(self) -> str:
        return render_table((f.name.replace("_", " "), f"{getattr(self, f.name):,}") for f in fields(self))


def engine_stats() -> EngineStats:
    """Return what the engine did and holds, in numbers.

    A loop that reads a value every iteration is in its steady state from the third iteration on: each iteration finds
    its plan, and nothing new is made.

    Examples
    --------
    >>> import unspool as us
    >>> def loop(steps):
    ...     x = us.tensor([1.0, 2.0])
    ...     for _ in range(steps):
    ...         x = us.cos(x) + 0.5 * x
    ...         float(x[0])
    >>> loop(10), loop(10)
    (None, None)
    >>> before = us.engine_stats()
    >>> loop(100)
    >>> after = us.engine_stats()
    >>> after.plan_hits - before.plan_hits, after.plan_misses - before.plan_misses
    (100, 0)
    """
    engine = default_engine()
    done = engine.statistics
    return EngineStats(
        evaluations=done.evaluations,
        fragments=done.fragments,
        calls=done.calls,
        chains=done.chains,
        plan_hits=done.plan_hits,
        plan_misses=done.plan_misses,
        kernel_calls=done.kernel_calls,
        derivatives=done.derivatives,
        slabs_dropped=done.slabs_dropped,
        plans=len(engine.plans),
        sites=len(engine.sites),
        bytes_kept=engine.kept_bytes(),
        bytes_pooled=engine.pooled_bytes(),
    )


def clear_caches() -> None:
    """Forget plans, recognised pieces and compiled code, give kept buffers back, and set the statistics to zero.

    Nothing that a tensor means changes: values stay, and what is needed is made again.

    Examples
    --------
    >>> import unspool as us
    >>> us.clear_caches()
    >>> us.engine_stats().plans
    0
    """
    engine = default_engine()
    engine.clear()
    engine.statistics.reset()
