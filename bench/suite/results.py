"""What a run came to, and the file that it is kept in.

Pages and pictures are made from the file alone, so all that they show is in it: rows, bars, how to draw a workload,
versions, machine, and what the run was asked for.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import harness
from bench.suite.bars import Verdict
from bench.suite.report import at_the_end, by_case
from bench.suite.workload import PACKAGES, Options, Plot, Row, Special, Workload


@dataclass(frozen=True)
class Measured:
    """A workload as it was measured: what it is, its rows, how to draw them, and how long all of it took."""

    key: str
    title: str
    rows: list[Row]
    parameters: dict[str, Any] = field(default_factory=dict)
    plot: Plot = "bars"
    axis: str = ""
    seconds: float = 0.0
    glance: list[str] = field(default_factory=list)

    def cases(self) -> dict[str, list[Row]]:
        """Return the rows that stand for the workload among others, by case: of a curve the end."""
        found = by_case(at_the_end(self.rows))
        return {case: rows for case, rows in found.items() if not self.glance or case in self.glance}

    def short(self, case: str = "") -> str:
        """Return key and title up to the first comma or colon, and a case of it."""
        title = self.title.split(",")[0].split(":")[0]
        return f"{self.key} {title}" + (f" · {case}" if case else "")

    @property
    def heading(self) -> str:
        """Key, title and, where there is one size, its parameters."""
        parameters = ", ".join(f"{name} = {value}" for name, value in self.parameters.items())
        return f"{self.key} {self.title}" + (f" · {parameters}" if parameters else "")


def measured(workload: Workload | Special, rows: list[Row], options: Options, seconds: float = 0.0) -> Measured:
    """Return what was measured of a workload, with what is needed to show it."""
    if isinstance(workload, Special):
        shown = list(workload.glance)
        return Measured(workload.key, workload.title, rows, {}, workload.plot, workload.axis, seconds, shown)
    return Measured(workload.key, workload.title, rows, workload.sizes[options.size], seconds=seconds)


@dataclass
class Results:
    """A run: its options, the workloads that were measured by key, the bars, and what went wrong."""

    options: Options
    workloads: dict[str, Measured] = field(default_factory=dict)
    bars: list[Verdict] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)
    load: list[float] = field(default_factory=list)
    seconds: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    day: str = ""

    @property
    def rows(self) -> dict[str, list[Row]]:
        """The rows that stand for the workloads, by key."""
        return {key: [row for rows in one.cases().values() for row in rows] for key, one in self.workloads.items()}

    @property
    def everything(self) -> list[Row]:
        """The rows of all workloads."""
        return [row for workload in self.workloads.values() for row in workload.rows]

    @property
    def missed(self) -> bool:
        """Whether the run is to end with an error."""
        return bool(self.errors) or any(verdict.state == "missed" for verdict in self.bars)


def begun(options: Options) -> Results:
    """Return the results of a run that begins now, here."""
    return Results(options, load=[load()], versions=versions(), machine=machine(), day=time.strftime("%Y-%m-%d"))


# --- the file ---------------------------------------------------------------------------------------------------------


def write(results: Results, path: Path) -> None:
    """Write a run to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(dataclasses.asdict(results), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read(path: Path) -> Results:
    """Return the run that was written to a file."""
    found = json.loads(path.read_text(encoding="utf-8"))
    found["options"] = Options(**found["options"])
    found["bars"] = [Verdict(**verdict) for verdict in found["bars"]]
    for key, workload in found["workloads"].items():
        workload["rows"] = [Row(**row) for row in workload["rows"]]
        found["workloads"][key] = Measured(**workload)
    return Results(**found)


# --- where it ran -----------------------------------------------------------------------------------------------------


def load() -> float:
    """Return how many processes want a core, where the system tells."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else 0.0


def machine() -> dict[str, Any]:
    """Return what the numbers depend on: processor, cores, memory and system."""
    found: dict[str, Any] = {"system": platform.platform(), "processor": platform.processor() or platform.machine()}
    cpus, memory = Path("/proc/cpuinfo"), Path("/proc/meminfo")
    if cpus.exists():
        names = [line.partition(":")[2].strip() for line in cpus.read_text().splitlines() if "model name" in line]
        found["processor"] = names[0] if names else found["processor"]
    found["cores"] = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if memory.exists():
        found["memory"] = 1024 * int(memory.read_text().split()[1])
    return found


def versions() -> dict[str, str]:
    """Return the versions that belong to the numbers; ours as it is imported, which may be a working tree."""
    import unspool

    packages = dict.fromkeys([name for names in PACKAGES.values() for name in names] + ["jaxlib"])
    return harness.versions(packages) | {"unspool": unspool.__version__}
