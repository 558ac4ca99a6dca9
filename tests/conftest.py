"""Settings that every test shares."""

from __future__ import annotations

from hypothesis import settings

# The same examples on every run and every machine: a failure is a change in the code, never luck.
settings.register_profile("repeatable", derandomize=True, database=None, deadline=None, print_blob=True)
settings.load_profile("repeatable")
