"""Where a run was made: versions, the BLAS and its kernel, settings, and digests of what went in."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from unspool._engine.backends import native
from unspool._engine.default import default_engine
from unspool._graph import Node
from unspool._ops.leaf import CONSTANT
from unspool._ops.linalg.gauge import tolerances_for
from unspool._report.places import Lines

_PACKAGES = ("unspool", "numpy", "scipy", "opt_einsum", "optree", "safetensors")

# What is set for the process and changes how it computes.
_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "OPENBLAS_CORETYPE",
    "NPY_DISABLE_CPU_FEATURES",
    "UNSPOOL_NATIVE",
)

# More bytes than this are not read again for a digest.
_MOST_BYTES = 1 << 30

# Inputs that are listed, the largest first; constants smaller than this are part of the program.
_MOST_INPUTS, _SMALL = 60, 256


def versions() -> dict[str, str]:
    """Return versions of what computes."""
    found = {"Python": f"{platform.python_version()} ({platform.python_implementation()})"}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    found["system"] = f"{platform.system()} {platform.machine()}"
    return found


def settings() -> dict[str, Any]:
    """Return what was set: budget, backend, tolerances, variables of the process."""
    ledger = default_engine().ledger
    tolerances = tolerances_for(np.dtype(np.float64))
    return {
        "memory budget": ledger.limit,
        "memory budget was given": ledger.is_strict,
        "backend": "native" if native.WHY_NOT is None else f"NumPy, not native: {native.WHY_NOT}",
        "tolerance: equal singular values": tolerances.degeneracy,
        "tolerance: gauge": tolerances.gauge,
        "tolerance: rank": tolerances.rank,
        "environment": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
    }


def blas() -> dict[str, str]:
    """Return the BLAS that NumPy was built with, and the kernel that it has chosen for this processor."""
    built = (np.show_config(mode="dicts") or {}).get("Build Dependencies", {}).get("blas", {})
    found = {key: str(built[key]) for key in ("name", "version", "openblas configuration") if built.get(key)}
    kernel = _openblas_kernel()
    return found | ({} if kernel is None else {"kernel": kernel})


def _openblas_kernel() -> str | None:
    """Ask the OpenBLAS that this process has loaded for the name of its kernel; there are several spellings."""
    for path in _loaded_libraries("openblas"):
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        for prefix in ("scipy_", ""):
            for suffix in ("64_", ""):
                function = getattr(library, f"{prefix}openblas_get_corename{suffix}", None)
                if function is not None:
                    function.restype = ctypes.c_char_p
                    return str((function() or b"").decode(errors="replace")) or None
    return None


def _loaded_libraries(part: str) -> list[str]:
    """Return the files of libraries that this process has loaded, as far as the system tells."""
    if not sys.platform.startswith("linux"):
        return []
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            paths = {line.split(maxsplit=5)[5].strip() for line in maps if line.count("/")}
    except (OSError, IndexError):
        return []
    return sorted(path for path in paths if part in os.path.basename(path).lower())


def inputs(leaves: Iterable[Node], lines: Lines) -> list[dict[str, Any]]:
    """Return what went into a run, with digests; equal ones are listed once, and small constants not at all."""
    data = [leaf for leaf in leaves if leaf.op is not CONSTANT or leaf.value.nbytes >= _SMALL]
    found: dict[Any, dict[str, Any]] = {}
    left = _MOST_BYTES
    for leaf in sorted(data, key=lambda leaf: (not getattr(leaf, "_name", ""), -leaf.value.nbytes)):
        array = np.ascontiguousarray(leaf.value)
        left -= array.nbytes
        row: dict[str, Any] = {
            "name": getattr(leaf, "_name", "") or "",
            "kind": leaf.op.name,
            "line": lines.name((leaf.code, leaf.lasti)),
            "shape": list(array.shape),
            "dtype": str(array.dtype),
            "bytes": array.nbytes,
            "sha256": hashlib.sha256(array.tobytes()).hexdigest() if left >= 0 else None,
        }
        known = found.setdefault((row["name"], row["sha256"], *row["shape"], row["dtype"]), row | {"count": 0})
        known["count"] += 1
        if len(found) == _MOST_INPUTS:
            break
    return list(found.values())
