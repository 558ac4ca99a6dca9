"""Budgets: what is held, what is evicted, and how it is recomputed."""
