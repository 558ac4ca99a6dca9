"""Run as a module with a folder, this loads what was saved there, and writes down what it finds of derivatives."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import unspool as us
from tests.saving.programs import derivatives

if __name__ == "__main__":
    for path in sorted(Path(sys.argv[1]).glob("*.us")):
        np.save(path.with_suffix(".npy"), derivatives(*us.load(path)))
