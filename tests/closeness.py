"""How close two results have to be that may differ by rounding: one measure for all tests."""

from __future__ import annotations

from typing import Any

import numpy as np


def close(found: Any, expected: Any, tolerance: float = 1e-12) -> None:
    """Assert that arrays agree element by element: relatively, and near zero ten times as well absolutely."""
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=tolerance, atol=tolerance / 10)
