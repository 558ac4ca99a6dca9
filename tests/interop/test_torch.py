"""Between PyTorch and us: values and derivatives are those of the same function written in one library."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unspool as us
from unspool.errors import LeftGraphError

torch = pytest.importorskip("torch")

rng = np.random.default_rng(0)
X, W = rng.normal(size=4), rng.normal(size=(4, 4))


def ours(x: Any, w: Any, steps: int = 3, *, scale: float = 1.0) -> Any:
    for _ in range(steps):
        x = us.tanh(w @ x) * scale
        if float(us.sum(x)) > 1e6:
            break
    return {"state": x, "norm": us.sum(x * x)}


def theirs(x: Any, w: Any, steps: int = 3, *, scale: float = 1.0) -> Any:
    for _ in range(steps):
        x = torch.tanh(w @ x) * scale
    return {"state": x, "norm": torch.sum(x * x)}


def leaves() -> list[Any]:
    return [torch.tensor(x, requires_grad=True) for x in (X, W)]


# --- ours as theirs --------------------------------------------------------------------------------------------------


def test_a_loop_of_ours_is_differentiated_by_pytorch_twice() -> None:
    def found(f: Any) -> list[Any]:
        x, w = leaves()
        result = f(x, w, 4, scale=1.1)
        loss = result["norm"] + torch.sum(result["state"]) ** 3
        first = torch.autograd.grad(loss, [x, w], create_graph=True)
        second = torch.autograd.grad(torch.sum(first[0] ** 2) + torch.sum(first[1]), [x, w])
        return [loss, *first, *second]

    for a, b in zip(found(us.interop.torch.wrap(ours)), found(theirs), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_pytorch_checks_the_gradients_of_real_and_complex_functions() -> None:
    wrapped = us.interop.torch.wrap(lambda z: us.exp(z) * z[0])
    z = torch.tensor(rng.normal(size=3) + 1j * rng.normal(size=3), requires_grad=True)
    assert torch.autograd.gradcheck(wrapped, (z,)) and torch.autograd.gradgradcheck(wrapped, (z,))


def test_an_optimiser_of_pytorch_trains_through_a_loop_of_ours() -> None:
    def losses(step: Any) -> list[float]:
        w = torch.tensor(0.5 * W, requires_grad=True)
        optimiser = torch.optim.SGD([w], lr=0.2)
        found = []
        for _ in range(20):
            optimiser.zero_grad()
            loss = torch.sum((step(torch.tensor(X), w)["state"] - 0.3) ** 2)
            loss.backward()
            optimiser.step()
            found.append(loss.item())
        return found

    found = losses(us.interop.torch.wrap(ours))
    np.testing.assert_allclose(found, losses(theirs), rtol=1e-8)
    assert found[-1] < found[0]


def test_whole_numbers_and_what_nothing_depends_on_have_no_gradient() -> None:
    x, y = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor(3.0, requires_grad=True)
    picked, position = us.interop.torch.wrap(lambda x, i, y: (x[i] * 2.0, us.argmax(x)))(x, torch.tensor(1), y)
    assert not position.requires_grad and position.item() == 1
    picked.backward()
    assert x.grad.tolist() == [0.0, 2.0] and y.grad.item() == 0.0


def test_a_value_that_leaves_the_graph_is_refused() -> None:
    wrapped = us.interop.torch.wrap(lambda x: x * np.sum([x, x]))
    with pytest.raises(LeftGraphError):
        wrapped(torch.tensor(1.0, requires_grad=True))


# --- theirs as ours --------------------------------------------------------------------------------------------------


def test_a_function_of_pytorch_is_differentiated_by_us_twice() -> None:
    lifted = us.interop.torch.lift(theirs)

    def loss(x: Any, w: Any) -> Any:
        result = lifted(x, w, 2, scale=1.1)
        return us.sum(result["state"] ** 3) * result["norm"]

    assert us.check_grad(loss, X, W, order=2).ok


def test_a_complex_function_of_pytorch() -> None:
    lifted = us.interop.torch.lift(lambda z: torch.exp(z) * z[0])
    assert us.check_grad(lambda z: us.real(us.sum(lifted(z))), rng.normal(size=3) + 1j * rng.normal(size=3)).ok


def test_a_module_stands_in_a_loop_of_ours_and_the_loop_folds() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()).double()
    step = us.interop.torch.lift(model)
    x = start = us.tensor(X)
    for _ in range(50):
        x = 0.5 * x + step(x)
        float(us.sum(x))
    y = begin = torch.tensor(X, requires_grad=True)
    for _ in range(50):
        y = 0.5 * y + model(y)
    torch.sum(y).backward()
    np.testing.assert_allclose(us.sum(x).grad(start).eval(), begin.grad.numpy(), rtol=1e-9)


def test_a_recipe_runs_nothing_until_it_is_asked() -> None:
    ran = []

    def f(x: Any) -> Any:
        if type(x) is torch.Tensor:
            ran.append(x)
        return 2.0 * x

    y = us.interop.torch.lift(f)(us.tensor([1.0]))
    assert not ran and y.shape == (1,)
    assert y.tolist() == [2.0] and len(ran) == 1


# --- arrays ----------------------------------------------------------------------------------------------------------


def test_arrays_go_both_ways_without_a_copy() -> None:
    x, y = us.tensor(X), torch.tensor(X)
    assert torch.from_dlpack(x).data_ptr() == x.eval().__array_interface__["data"][0]
    assert us.from_dlpack(y).eval().__array_interface__["data"][0] == y.data_ptr()
