"""Memory against recomputation: what to keep of a loop, what to run again, and when."""

from __future__ import annotations

from unspool.checkpoint.segments import CheckpointConfig, CheckpointSegment, plan_recomputation

__all__ = ["CheckpointConfig", "CheckpointSegment", "plan_recomputation"]
