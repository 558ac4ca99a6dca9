"""cloudpickle and joblib: functions of the main program and closures travel by value."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest

import unspool as us
from tests.interop import travellers

MAIN_PROGRAM = """
import pickle, subprocess, sys, cloudpickle, unspool as us

@us.fragment
def square(x):
    return x * x

data = cloudpickle.dumps((square, us.tensor(3.0)))
reader = "import pickle, sys; f, x = pickle.load(sys.stdin.buffer); print(f(x))"
print(subprocess.run([sys.executable, "-c", reader], input=data, capture_output=True, check=True).stdout.decode())
"""


def test_a_traced_function_of_the_main_program_arrives_by_value() -> None:
    pytest.importorskip("cloudpickle")
    done = subprocess.run([sys.executable, "-c", MAIN_PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["9.0"]


def test_a_closure_arrives_with_the_tensors_it_holds() -> None:
    cloudpickle = pytest.importorskip("cloudpickle")
    weights = us.tensor([1.0, 2.0])
    arrived = pickle.loads(cloudpickle.dumps(us.fragment(lambda x: us.sum(weights * x))))
    assert float(arrived(us.tensor([3.0, 4.0]))) == 11.0


def test_joblib_runs_functions_of_tensors_in_parallel() -> None:
    joblib = pytest.importorskip("joblib")
    tensors = [us.tensor([1.0, k]) for k in range(3)]
    found = joblib.Parallel(n_jobs=2)(joblib.delayed(travellers.gradient)(x) for x in tensors)
    assert [x.tolist() for x in found] == [[2.0, 2.0 * k] for k in range(3)]


def test_joblib_remembers_and_stores_tensors(tmp_path: object) -> None:
    joblib = pytest.importorskip("joblib")
    x = us.tensor(np.arange(4.0))
    joblib.dump({"x": x}, f"{tmp_path}/x.joblib")
    assert np.array_equal(joblib.load(f"{tmp_path}/x.joblib")["x"].eval(), x.eval())
    assert joblib.hash(x) == joblib.hash(us.tensor(np.arange(4.0)))
