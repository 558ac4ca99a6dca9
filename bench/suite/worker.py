"""A process that runs one form of a workload and measures it on request.

A request is a line of JSON on standard input and so is the answer on standard output. ``ready`` waits for the data;
``first`` makes the form, calls it and saves what it computed; ``time`` calls it again; ``memory`` and ``live`` measure
a call that is not timed. Anything a library prints goes to standard error.

    python bench/suite/worker.py bench.suite.b1_power:WORKLOAD "PyTorch" '{"n": 128}' 1

The last argument is the number of threads, and of cores. The cores are set here, before NumPy is imported; the
variables that BLAS reads are set by the process that starts this one.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import sys
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def pin(threads: int) -> None:
    """Keep this process to so many cores, where the system allows; all workers take turns on the same ones."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-threads:])


def find(where: str) -> Any:
    """Return what ``module:attribute`` names."""
    module, _, attribute = where.partition(":")
    return getattr(importlib.import_module(module), attribute)


# --- measuring --------------------------------------------------------------------------------------------------------


class Clock:
    """Reads the time since it was made: by the wall, and while this process had a core."""

    def __init__(self) -> None:
        self._wall, self._processor = time.perf_counter(), time.process_time()

    def read(self, repeats: int = 1) -> dict[str, float]:
        """Return both, in seconds for each repeat."""
        wall, processor = time.perf_counter() - self._wall, time.process_time() - self._processor
        return {"wall": wall / repeats, "processor": processor / repeats}


class Measurer:
    """A form of a workload with its data, and what can be asked about it."""

    def __init__(self, workload: Any, form: str, parameters: dict[str, Any]) -> None:
        (self._form,) = (candidate for candidate in workload.forms if candidate.name == form)
        self._problem = workload.problem(**parameters)
        self._run: Callable[[], Any] = lambda: None
        self._rest = 0

    def ready(self) -> dict[str, Any]:
        """Answer: the data is there."""
        return {}

    def first(self, save: str) -> dict[str, Any]:
        """Make the form and call it for the first time; save value, gradient and steps to a file."""
        import numpy as np

        begin = time.perf_counter()
        self._run = self._form.make(self._problem)
        made = time.perf_counter()
        before = _settled()
        clock = Clock()
        found = self._run()
        taken = clock.read()
        growth = _peak(before)
        np.savez(save, value=found.value, gradient=found.gradient, steps=found.steps)
        del found
        self._rest = _settled()
        return {**taken, "import": made - begin, "growth": growth}

    def time(self, repeats: int) -> dict[str, Any]:
        """Call it so often and return the seconds of a call, with all that it made freed."""
        gc.collect()
        clock = Clock()
        for _ in range(repeats):
            self._run()
        return clock.read(repeats)

    def memory(self) -> dict[str, Any]:
        """Return the bytes by which a call raises the resident memory, at most.

        That is above what the process has at rest, after its first call or now, whichever is less: a library may hold
        on to the memory of a call until the next one, and has it then without growing.
        """
        rest = min(_settled(), self._rest)
        self._run()
        return {"bytes": _peak(rest)}

    def live(self) -> dict[str, Any]:
        """Return the most bytes that were alive at once in a call, if the library tells."""
        gc.collect()
        if self._form.library in ("jax", "equinox"):
            tell = getattr(self._run, "live", None)
            return {"bytes": None if tell is None else tell()}
        return {"bytes": (_live_torch if self._form.library == "torch" else _live_numpy)(self._run)}


def _settled() -> int:
    """Give back what is free, and return the resident bytes from which the peak starts again."""
    from bench import harness

    gc.collect()
    if sys.platform == "linux":
        with suppress(AttributeError):  # another C library than glibc
            ctypes.CDLL(None).malloc_trim(0)
    return harness.resident_bytes()


def _peak(before: int) -> int:
    from bench import harness

    return max(0, harness.peak_bytes() - before)


def _live_numpy(run: Callable[[], Any]) -> int:
    """Python objects and NumPy arrays, both of which report to tracemalloc."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        run()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return peak - before


def _live_torch(run: Callable[[], Any]) -> int:
    """Tensors, whose allocator reports to the profiler. Python objects are not in it."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    events, todo = [], list(profiler.profiler.kineto_results.experimental_event_tree())
    while todo:
        event = todo.pop()
        todo.extend(event.children)
        if event.tag.name == "Allocation":
            events.append((event.start_time_ns, event.extra_fields.alloc_size))
    alive = most = 0
    for _, size in sorted(events, key=lambda event: event[0]):
        alive += size
        most = max(most, alive)
    return most


# --- requests ---------------------------------------------------------------------------------------------------------


def serve(measurer: Measurer) -> None:
    """Answer requests until standard input ends. An exception is an answer, too."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(measurer, request.pop("do"))(**request)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        print(json.dumps(answer), file=answers, flush=True)


def main() -> None:
    """Be the worker that the command line asks for."""
    where, form, parameters, threads = sys.argv[1:]
    pin(int(threads))
    sys.path[0] = str(ROOT)
    serve(Measurer(find(where), form, json.loads(parameters)))


if __name__ == "__main__":
    main()
