"""Batches: one graph that computes what a function makes of each of many members (`unspool.vmap`).

Ops in layers below have rules that are made here.
"""

from unspool._batching.fixed_points import batch_fixed_point
from unspool._batching.loops import batch_chain, batch_checkpointed, batch_loop, batch_outer_sum, batch_reversed
from unspool._batching.mapped import mapped
from unspool._ops.batching import later

later.provide(
    chain=batch_chain,
    checkpointed=batch_checkpointed,
    fixed_point=batch_fixed_point,
    loop=batch_loop,
    one_by_one=mapped,
    outer_sum=batch_outer_sum,
    reversed_loop=batch_reversed,
)
