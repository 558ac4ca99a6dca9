"""What `unspool.sliced` says where cotengra is absent."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import unspool as us
from unspool.errors import ArgumentError


def test_the_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cotengra", None)
    with pytest.raises(ArgumentError, match=r"cotengra, which is not installed: pip install 'unspool\[slices\]'"):
        us.sliced("ij,jk->ik", np.ones((2, 2)), np.ones((2, 2)))
