"""Values travel: pickle, copies, files and other processes."""

from __future__ import annotations

import copy
import io
import multiprocessing
import pickle
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.interop import travellers
from unspool.errors import NoValueError


def round_trip(x: Any, protocol: int = pickle.HIGHEST_PROTOCOL) -> Any:
    return pickle.loads(pickle.dumps(x, protocol))


# --- tensors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("dtype", ["bool", "int32", "float32", "float64", "complex128"])
def test_a_leaf_arrives_with_its_value_dtype_and_name(dtype: str, protocol: int) -> None:
    x = us.tensor(np.array([[1, 0], [0, 1]], dtype), name="weights")
    y = round_trip(x, protocol)
    assert isinstance(y, us.Tensor) and y is not x
    assert (y.dtype, y.name) == (x.dtype, "weights")
    assert np.array_equal(y.eval(), x.eval())


def test_what_arrives_is_a_variable() -> None:
    x = round_trip(us.tensor([1.0, 2.0]))
    assert us.sum(x * x).grad(x).tolist() == [2.0, 4.0]


def test_a_constant_arrives_as_the_same_constant() -> None:
    one = us.constant(1.0)
    assert round_trip(one) is one


def test_an_evaluated_tensor_arrives_without_its_history() -> None:
    x = us.tensor([1.0, 2.0])
    y = us.exp(x)
    y.eval()
    z = round_trip(y)
    assert np.array_equal(z.eval(), y.eval()) and z.inputs == ()


def test_a_state_of_a_loop_whose_value_is_held_no_longer_arrives() -> None:
    with us.memory("64 kB"):
        x = us.tensor(np.linspace(0.0, 1.0, 1000))
        states = [x]
        for _ in range(40):
            states.append(us.sin(states[-1]) + x)
            float(us.sum(states[-1]))
        assert any(state.value is None for state in states)
        arrived = round_trip(states)
        for state, copied in zip(states, arrived, strict=True):
            assert np.array_equal(state.eval(), copied.eval())


def test_one_tensor_in_two_places_arrives_as_one() -> None:
    x = us.tensor([1.0])
    first, second = round_trip((x, {"again": x}))
    assert first is second["again"]


def test_a_recipe_without_a_value_is_refused_with_what_to_do() -> None:
    with pytest.raises(NoValueError, match=r"add of shape \(1,\).*test_travelling\.py.*t\.eval\(\) first"):
        pickle.dumps(us.tensor([1.0]) + 1.0)
    with pytest.raises(NoValueError, match="placeholder.*has no value"):
        pickle.dumps(us.placeholder((2,)))


def test_copies_of_what_never_changes_are_itself() -> None:
    x = us.tensor([1.0]) + 1.0
    assert copy.copy(x) is x and copy.deepcopy([x])[0] is x


def test_files_of_numpy_take_tensors() -> None:
    x = us.tensor([1.0, 2.0])
    file = io.BytesIO()
    np.save(file, us.exp(x))
    file.seek(0)
    assert np.array_equal(np.load(file), np.exp([1.0, 2.0]))
    file = io.BytesIO()
    np.savez(file, x=x, y=2.0 * x)
    file.seek(0)
    with np.load(file) as loaded:
        assert np.array_equal(loaded["y"], [2.0, 4.0])


def test_a_file_inside_of_a_derivative_takes_the_value() -> None:
    file = io.BytesIO()

    def f(x: us.Tensor) -> us.Tensor:
        np.save(file, x)
        return x * x

    assert float(us.grad(f)(3.0)) == 6.0
    file.seek(0)
    assert np.load(file) == 3.0


def test_results_of_networks_arrive() -> None:
    found = us.networks.dmrg(us.networks.heisenberg(us.ones(3)), us.networks.random_mps(4, 2, 2), rank=4)
    for tensor in found.state.tensors:
        tensor.eval()
    arrived = round_trip(found)
    assert float(arrived.energy) == float(found.energy) and arrived.steps == found.steps
    assert float(us.networks.overlap(arrived.state, arrived.state)) == pytest.approx(1.0)


# --- traced functions ------------------------------------------------------------------------------------------------


def test_a_decorated_function_arrives_as_itself() -> None:
    assert round_trip(travellers.square) is travellers.square


def test_a_traced_function_arrives_with_its_function_and_is_traced_again() -> None:
    travellers.cube_traced(us.tensor(2.0))
    arrived = round_trip(travellers.cube_traced)
    assert arrived is not travellers.cube_traced and arrived.traces == 0
    assert float(arrived(us.tensor(2.0))) == 8.0


def test_a_method_that_is_traced_arrives_with_its_instance() -> None:
    arrived = round_trip(travellers.Model(3.0).predict)
    assert float(arrived(us.tensor(2.0))) == 6.0


def test_a_function_that_cannot_be_pickled_is_refused_by_pickle() -> None:
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(us.fragment(lambda x: x + 1.0))


# --- other processes -------------------------------------------------------------------------------------------------


def test_another_process_takes_tensors_and_returns_them() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        (found,) = pool.map(travellers.gradient, [us.tensor([1.0, 3.0])])
        assert found.tolist() == [2.0, 6.0]
        with pytest.raises(multiprocessing.pool.MaybeEncodingError, match="was not evaluated"):
            pool.map(travellers.unevaluated, [us.tensor(1.0)])


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128", "int64", "bool"])
@pytest.mark.parametrize("make", [us.tensor, us.constant, lambda x: us.tensor(x, copy=False), lambda x: us.ones(2) * x])
def test_arrays_from_a_pickle_have_the_data_type_that_others_have(dtype: str, make: Any) -> None:
    """NumPy makes another object of it, which is equal and costs time wherever data types are compared."""
    arrived = pickle.loads(pickle.dumps(np.ones(2, dtype)))
    made = make(arrived)
    assert made.dtype is np.dtype(made.dtype.type)
    assert made.eval().dtype is np.dtype(made.dtype.type)
