"""Settings that every test shares, and the choice of a share of the tests."""

from __future__ import annotations

import gc
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import settings

# The same examples on every run and every machine: a failure is a change in the code, never luck.
settings.register_profile("repeatable", derandomize=True, database=None, deadline=None, print_blob=True)
settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--share", type=int, default=1, metavar="N", help="run one test in N, chosen by its name")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    share = config.getoption("--share")
    left_out = [item for item in items if not is_in_share(item.nodeid, share)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if is_in_share(item.nodeid, share)]


def pytest_collection_finish() -> None:
    set_apart()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    stash = item.session.stash
    if stash.get(LAST_FILE, None) != item.path:
        stash[LAST_FILE] = item.path
        set_apart()


LAST_FILE = pytest.StashKey[Path]()


def set_apart() -> None:
    """Keep what is there out of the way of the garbage collector.

    Tens of thousands of tests are there to the end, and so are programs that earlier modules compiled: each look for
    garbage in a test would go through all of them.
    """
    gc.collect()
    gc.freeze()


def is_in_share(name: str, share: int) -> bool:
    """Whether a test is one of the share, on every machine and in every process."""
    return crc32(name.encode()) % share == 0
