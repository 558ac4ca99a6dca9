"""Every op of the registry under `us.vmap`: a batch is the stack of what its members are alone.

The members of a sample are its own arguments, scaled a bit for all but the first.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import numpy as np
import pytest

import unspool as us
from tests.samples import Sample, all_samples
from unspool._graph import ancestors
from unspool._ops.batching import one_by_one, rule_of
from unspool._ops.leaf import LEAF_OPS
from unspool._ops.op import PART, REGISTRY, Op, load_all

load_all()
# Functions whose result has a shape that depends on values look at them; under `us.vmap` that is an error.
LOOK_AT_VALUES = ("digitize", "polydiv", "setdiff1d", "setxor1d", "union1d", "unique")


def looks_at_values(sample: Sample) -> bool:
    return sample.label.startswith(LOOK_AT_VALUES)


SAMPLES = [sample for sample in all_samples() if not looks_at_values(sample)]
BUILT_IN = [op for name, op in REGISTRY.items() if not name.startswith("user:")]
EVERY = pytest.mark.parametrize("sample", SAMPLES, ids=str)
MEMBERS = 3
CLOSE = {"rtol": 1e-9, "atol": 1e-9}


def is_inexact(array: Any) -> bool:
    return np.asarray(array).dtype.kind in "fc"


def members_of(sample: Sample) -> list[list[Any]]:
    """Return the arguments of each member: scaled alike, so that what makes a sample work still does."""
    factors = [1 + 0.01 * i for i in range(MEMBERS)]
    return [[np.asarray(a) * f if is_inexact(a) else np.asarray(a) for a in sample.args] for f in factors]


def stacked(members: list[list[Any]]) -> list[us.Tensor]:
    return [us.tensor(np.stack(column)) for column in zip(*members, strict=True)]


def alone(sample: Sample, args: list[Any]) -> Any:
    return sample.function(*map(us.tensor, args)).eval()


def loss_of(sample: Sample, *args: Any) -> us.Tensor:
    out = sample.function(*args)
    weights = np.cos(np.arange(np.prod(out.shape, dtype=int))).reshape(out.shape)
    return us.sum(us.real(out * weights))


@pytest.mark.parametrize("op", [op for op in BUILT_IN if op not in LEAF_OPS | {PART}], ids=lambda op: op.name)
def test_every_op_that_reads_anything_has_a_batching_rule(op: Op) -> None:
    graphs = [sample.function(*map(us.tensor, sample.args)) for sample in SAMPLES if sample.op == op.name]
    reads = any(node.inputs for out in graphs for node in ancestors([out]) if node.op is op)
    assert rule_of(op) is not None or not reads


def test_every_op_that_is_not_registered_has_a_batching_rule_too() -> None:
    names = [module.name for module in walk_packages(us.__path__, "unspool.") if not module.name.endswith("__main__")]
    found = {x for name in names for x in vars(import_module(name)).values() if isinstance(x, Op)}
    found -= set(REGISTRY.values())
    assert len(found) > 10
    # Calls are batched by their fragments, and sums of products are in programs that were batched before.
    assert {op.name for op in found if rule_of(op) is None} == {"call", "add_product"}


def test_no_rule_goes_through_the_members_but_that_of_functions_with_rules_of_their_own_which_pass_arrays_on() -> None:
    alone = [op for op in BUILT_IN if rule_of(op) is one_by_one]
    assert {op.name for op in alone} == {"custom_jvp", "custom_vjp"}
    assert all(op.passes for op in alone)


@pytest.mark.parametrize("sample", [s for s in all_samples() if looks_at_values(s)], ids=str)
def test_functions_that_look_at_values_say_so(sample: Sample) -> None:
    with pytest.raises(us.errors.UnboundPlaceholderError, match="under us.vmap, is traced without values"):
        us.vmap(sample.function, axis_size=MEMBERS)(*stacked(members_of(sample)))


@EVERY
def test_a_batch_is_the_stack_of_what_its_members_are_alone(sample: Sample) -> None:
    members = members_of(sample)
    found = us.vmap(sample.function, axis_size=MEMBERS)(*stacked(members))
    expected = np.stack([alone(sample, args) for args in members])
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found.eval(), expected, **CLOSE)


@pytest.mark.parametrize("sample", [s for s in SAMPLES if len(s.args) > 1], ids=str)
def test_members_may_differ_in_one_argument_and_share_the_others(sample: Sample) -> None:
    members, xs = members_of(sample), stacked(members_of(sample))
    for place in range(len(xs)):
        mixed = [[own[i] if i == place else members[0][i] for i in range(len(xs))] for own in members]
        axes = tuple([0 if i == place else None for i in range(len(xs))])
        given = [x if i == place else us.tensor(members[0][i]) for i, x in enumerate(xs)]
        expected = np.stack([alone(sample, args) for args in mixed])
        np.testing.assert_allclose(us.vmap(sample.function, in_axes=axes)(*given).eval(), expected, **CLOSE)


@pytest.mark.parametrize("sample", [s for s in SAMPLES if s.order and any(map(is_inexact, s.args))], ids=str)
def test_both_modes_of_derivatives_of_a_batch_are_those_of_its_members(sample: Sample) -> None:
    members, xs = members_of(sample), stacked(members_of(sample))
    moving = tuple([i for i, a in enumerate(sample.args) if is_inexact(a)])

    def loss(*args: Any) -> us.Tensor:
        return loss_of(sample, *args)

    gradient = us.grad(loss, argnums=moving)
    gradients = [gradient(*map(us.tensor, args)) for args in members]
    of_batch = us.grad(lambda *xs: us.sum(us.vmap(loss)(*xs)), argnums=moving)(*xs)
    batch_of = us.vmap(gradient)(*xs)
    waves = [np.sin(np.arange(x.size)).reshape(x.shape) for x in xs]
    tangents = [w.astype(x.dtype) if is_inexact(x.eval()) else None for w, x in zip(waves, xs, strict=True)]
    _, pushed = us.jvp(us.vmap(loss), tuple(xs), tuple(tangents))
    slopes = np.zeros(MEMBERS)
    for k, place in enumerate(moving):
        expected = np.stack([g[k].eval() for g in gradients])
        np.testing.assert_allclose(of_batch[k].eval(), expected, **CLOSE)
        np.testing.assert_allclose(batch_of[k].eval(), expected, **CLOSE)
        # With respect to a complex z = x + iy a gradient is dL/dx + i dL/dy.
        slopes = slopes + np.real(np.conj(expected) * tangents[place]).reshape(MEMBERS, -1).sum(axis=1)
    np.testing.assert_allclose(pushed.eval(), slopes, rtol=1e-7, atol=1e-7)
