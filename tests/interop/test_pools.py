"""Pools of other packages: loky, MPI, Ray, and Dask with several processes, of which one is killed in the middle."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.ensembles import loops
from tests.ensembles.networks import lattice

MATRICES = {"a": np.random.default_rng(5).normal(size=(12, 8, 8)) / 4}


def check_same(one: Any, other: Any) -> None:
    assert np.array_equal(one.values, other.values)
    assert np.array_equal(one.gradients["a"], other.gradients["a"])


def test_loky_takes_functions_of_the_main_program() -> None:
    loky = pytest.importorskip("loky")

    def f(p: Any) -> Any:
        return loops.power(p)

    with loky.ProcessPoolExecutor(2) as pool:
        check_same(us.ensemble(f, MATRICES, pool, batch=3), us.ensemble(f, MATRICES, batch=3))


@pytest.fixture(scope="module")
def ray_executor() -> Iterator[Any]:
    ray = pytest.importorskip("ray")

    class RayExecutor:  # as docs/many.md has it
        def submit(self, function: Any, *arguments: Any) -> Any:
            return ray.remote(function).remote(*arguments)

    # Workers import the tests' functions; how much they may write to the screen is not what is tested.
    environment = {"env_vars": {"PYTHONPATH": os.pathsep.join(sys.path)}}
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env=environment)
    yield RayExecutor()
    ray.shutdown()


def test_ray_computes_the_same_bits(ray_executor: Any) -> None:
    found = us.ensemble(loops.power, MATRICES, ray_executor, "10MB", batch=2)
    check_same(found, us.ensemble(loops.power, MATRICES, batch=2))


def test_a_worker_of_ray_that_is_killed_loses_nothing(ray_executor: Any, tmp_path: Path) -> None:
    given = np.linspace(0.0, 1.0, 12)
    found = us.ensemble(Noted(tmp_path, given[5]), given, ray_executor, batch=1)
    assert found.ok.all()
    np.testing.assert_allclose(found.values, np.sin(given), atol=1e-15)
    assert sorted(len(list(path.iterdir())) for path in tmp_path.iterdir()) == [1] * 11 + [2]


def test_a_member_that_kills_every_worker_of_ray_fails_alone(ray_executor: Any) -> None:
    check_one_fails_alone(ray_executor, "WorkerCrashedError")


def check_one_fails_alone(pool: Any, error: str) -> None:
    """Check that the member which kills its worker is reported, with what the pool says of it, and the others kept."""
    given = np.linspace(0.0, 1.0, 8)
    found = us.ensemble(deadly, given, pool, batch=1)
    assert list(np.flatnonzero(~found.ok)) == [4]
    assert error in found.failures[0].kind
    np.testing.assert_allclose(found.values[found.ok], np.delete(given, 4) ** 2)


ON_MPI = """
import numpy as np
import unspool as us
from mpi4py.futures import MPIPoolExecutor
from tests.ensembles import loops

if __name__ == "__main__":
    given = {"a": np.random.default_rng(5).normal(size=(12, 8, 8)) / 4}
    with MPIPoolExecutor() as pool:
        found = us.ensemble(loops.power, given, pool, "10MB", batch=2)
    np.savez("found.npz", values=found.values, a=found.gradients["a"], workers=len(found.report().workers))
"""


def test_processes_of_mpi_compute_the_same_bits(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    # That of the packages beside this interpreter, if there is one, belongs to the library that mpi4py finds there.
    launcher = shutil.which("mpiexec", path=os.path.dirname(sys.executable)) or shutil.which("mpiexec")
    if launcher is None:
        pytest.skip("there is no mpiexec")
    (tmp_path / "on_mpi.py").write_text(ON_MPI)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        # Open MPI starts as root, and more processes than there are cores, only if told that this is meant.
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }
    call = [launcher, "-n", "3", sys.executable, "-m", "mpi4py.futures", "on_mpi.py"]
    subprocess.run(call, cwd=tmp_path, env=environment, check=True, capture_output=True, timeout=300)
    found = np.load(tmp_path / "found.npz")
    here = us.ensemble(loops.power, MATRICES, batch=2)
    assert np.array_equal(found["values"], here.values)
    assert np.array_equal(found["a"], here.gradients["a"])
    assert found["workers"] == 2


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=3, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs="CRITICAL"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def test_dask_computes_the_same_bits(client: Any) -> None:
    found = us.ensemble(loops.power, MATRICES, client, "10MB", batch=2)
    check_same(found, us.ensemble(loops.power, MATRICES, batch=2))
    assert len(found.report().workers) > 1


def test_dask_adds_up_slices(client: Any) -> None:
    pytest.importorskip("cotengra")
    expression, arrays = lattice(3, 4)
    tensors = [us.tensor(x) for x in arrays]

    def gradient(pool: Any) -> Any:
        return us.eval(us.sliced(expression, *tensors, slices=8, pool=pool).grad(tensors))

    assert all(np.array_equal(x, y) for x, y in zip(gradient(client), gradient(None), strict=True))


class Noted:
    """A slow function that leaves a file for each call; the first call with some parameter kills its process."""

    def __init__(self, folder: Path, killed_at: float | None = None) -> None:
        self._folder, self._killed_at = folder, killed_at

    def __call__(self, x: us.Tensor) -> us.Tensor:
        value = x.item()
        calls = self._folder / f"{value:.6f}"
        calls.mkdir(exist_ok=True)
        made = len(list(calls.iterdir()))
        (calls / f"{made} by {os.getpid()}").touch()
        if value == self._killed_at and not made:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.05)
        return us.sin(x)


def test_nothing_is_lost_and_nothing_computed_twice_when_a_worker_is_killed(client: Any, tmp_path: Path) -> None:
    given = np.linspace(0.0, 1.0, 30)
    notes, results = tmp_path / "notes", tmp_path / "results"
    notes.mkdir()
    found = us.ensemble(Noted(notes, given[12]), given, client, batch=1, folder=results)
    assert found.ok.all()
    np.testing.assert_allclose(found.values, np.sin(given), atol=1e-15)
    calls = {float(path.name): [call.name.split()[-1] for call in path.iterdir()] for path in notes.iterdir()}
    assert len(calls) == 30
    (killer,) = [call.name.split()[-1] for call in (notes / f"{given[12]:.6f}").iterdir() if call.name.startswith("0 ")]
    again = [processes for processes in calls.values() if len(processes) > 1]
    assert again and all(killer in processes and len(processes) == 2 for processes in again)
    # What is in the folder is not computed by anybody.
    us.ensemble(Noted(notes, given[12]), given, client, batch=1, folder=results)
    assert sum(len(list(path.iterdir())) for path in notes.iterdir()) == sum(map(len, calls.values()))


def test_a_member_that_kills_every_worker_fails_alone(client: Any) -> None:
    check_one_fails_alone(client, "KilledWorker")


def deadly(x: us.Tensor) -> us.Tensor:
    if abs(x.item() - 4 / 7) < 1e-9:
        os.kill(os.getpid(), signal.SIGKILL)
    return x * x
