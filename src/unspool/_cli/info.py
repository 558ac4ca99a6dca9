"""``unspool info``: what a report of a problem should begin with."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

import numpy as np

import unspool as us
from unspool._cli.tables import make_console
from unspool._engine.backends import native
from unspool._engine.memory.process_limits import available_bytes
from unspool._engine.memory.sizes import format_bytes, parse_bytes

__all__ = ["show_info"]

_PACKAGES = ("numpy", "scipy", "opt_einsum", "optree", "safetensors", "rich", "matplotlib")

# BLAS libraries read the number of their threads from here, when they are loaded.
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")


def show_info() -> int:
    """Print versions, BLAS, the backend, threads and memory."""
    console = make_console()
    known = list(facts())
    width = max(len(name) for name, _ in known)
    for name, value in known:
        console.print(f"{name:<{width}}  {value}", soft_wrap=True, markup=False)
    return 0


def facts() -> Iterator[tuple[str, str]]:
    """Yield what there is to know, by name.

    Examples
    --------
    >>> import unspool as us
    >>> dict(facts())["unspool"] == us.__version__
    True
    """
    yield "unspool", us.__version__
    yield "Python", f"{platform.python_version()} ({platform.python_implementation()}) on {platform.platform()}"
    for package in _PACKAGES:
        yield package, _version(package)
    yield "BLAS", _blas()
    yield "backend", "native" if native.WHY_NOT is None else f"NumPy, not native: {native.WHY_NOT}"
    yield "processors", str(_processors())
    set_here = [f"{name}={os.environ[name]}" for name in _THREAD_VARIABLES if name in os.environ]
    yield "BLAS threads", ", ".join(set_here) or "as the library chooses: one for each processor"
    yield "memory available", format_bytes(available_bytes())
    yield "default budget", f"{format_bytes(parse_bytes(None))}, exceeded rather than refused"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _blas() -> str:
    """Return the BLAS that NumPy was built with."""
    configuration = np.show_config(mode="dicts")
    built = (configuration or {}).get("Build Dependencies", {}).get("blas", {})
    named = " ".join(str(built[key]) for key in ("name", "version") if built.get(key))
    details = " ".join(str(built.get("openblas configuration", "unknown")).split())
    return f"{named} ({details})" if named and details != "unknown" else named or "unknown"


def _processors() -> int:
    """Return the processors that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1
