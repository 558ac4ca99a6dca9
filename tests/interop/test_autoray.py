"""autoray, opt_einsum and cotengra on tensors: found by the name of our module, with what they ask for beyond it."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import unspool as us

ar = pytest.importorskip("autoray")

rng = np.random.default_rng(0)


def test_a_function_is_found_by_name_before_unspool_is_imported() -> None:
    program = (
        "import sys, autoray as ar; assert 'unspool' not in sys.modules; "
        "x = ar.do('random.normal', size=(2, 3), like='unspool'); print(type(x).__name__, x.shape)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "Tensor (2, 3)"


def test_a_tensor_is_ours() -> None:
    assert ar.infer_backend(us.tensor(1.0)) == "unspool"
    assert ar.infer_backend_multi(1.0, np.ones(2), us.tensor(1.0)) == "unspool"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("array", ([1.0, 2.0],)),
        ("copy", (np.ones(2),)),
        ("complex", (np.ones(2), 2.0 * np.ones(2))),
        ("indices", ((2, 3),)),
        ("linalg.expm", (np.diag([1.0, 2.0]),)),
        ("scipy.linalg.expm", (np.diag([1.0, 2.0]),)),
    ],
)
def test_what_unspool_names_otherwise_is_there(name: str, arguments: tuple[object, ...]) -> None:
    given = [us.tensor(x) if isinstance(x, np.ndarray) else x for x in arguments]
    found = ar.do(name, *given, like="unspool")
    assert isinstance(found, us.Tensor)
    np.testing.assert_allclose(found.eval(), ar.do(name, *arguments, like="numpy"), rtol=1e-14)


def test_singular_vectors_are_thin_by_default() -> None:
    u, s, vh = ar.do("linalg.svd", us.tensor(rng.normal(size=(5, 3))))
    assert (u.shape, s.shape, vh.shape) == ((5, 3), (3,), (3, 3))


def test_a_generator_repeats_itself_and_numpys_shared_state_rules_the_rest() -> None:
    first, second = (ar.do("random.default_rng", 7, like="unspool").normal(size=4) for _ in range(2))
    assert np.array_equal(first.eval(), second.eval())
    assert np.array_equal(first.eval(), np.random.default_rng(7).normal(size=4))
    ar.do("random.seed", 3, like="unspool")
    drawn = ar.do("random.uniform", size=4, like="unspool")
    assert np.array_equal(drawn.eval(), np.random.RandomState(3).uniform(size=4))
    assert ar.do("random.exponential", size=(2, 3), like="unspool").shape == (2, 3)


def test_a_value_that_is_asked_for_by_name_may_leave_a_derivative() -> None:
    assert float(us.grad(lambda x: x * ar.to_numpy(x))(3.0)) == 3.0


def test_a_traced_function_runs_on_tensors() -> None:
    x, y = rng.normal(size=(3, 4)), rng.normal(size=(4, 2))
    total = ar.autojit(lambda x, y: ar.do("sum", x @ y))(us.tensor(x), us.tensor(y))
    np.testing.assert_allclose(float(total), np.sum(x @ y))


@pytest.mark.parametrize("package", ["opt_einsum", "cotengra"])
def test_contractions_of_tensors_have_derivatives(package: str) -> None:
    contract = getattr(pytest.importorskip(package), {"opt_einsum": "contract", "cotengra": "einsum"}[package])
    a, b, c = (rng.normal(size=shape) for shape in ((3, 4), (4, 5), (5, 3)))
    x = us.tensor(a)
    traced = contract("ab,bc,ca->", x, us.tensor(b), us.tensor(c))
    np.testing.assert_allclose(float(traced), np.trace(a @ b @ c))
    np.testing.assert_allclose(traced.grad(x).eval(), (b @ c).T, rtol=1e-13)


def test_a_sliced_contraction_tree_has_derivatives() -> None:
    ctg = pytest.importorskip("cotengra")
    a, b, c = (rng.normal(size=shape) for shape in ((3, 4), (4, 5), (5, 3)))
    shapes = [x.shape for x in (a, b, c)]
    tree = ctg.array_contract_tree([("a", "b"), ("b", "c"), ("c", "d")], ("a", "d"), shapes=shapes)
    sliced = tree.slice(target_slices=4)
    x = us.tensor(b)
    found = sliced.contract([us.tensor(a), x, us.tensor(c)])
    np.testing.assert_allclose(found.eval(), a @ b @ c, rtol=1e-13)
    np.testing.assert_allclose(us.sum(found).grad(x).eval(), np.outer(a.sum(0), c.sum(1)), rtol=1e-12)
