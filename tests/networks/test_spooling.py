"""Loops with ``spool=``: one that was stopped and goes on ends with the bits of one that was not."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unspool as us
import unspool.networks as nw
from unspool.errors import ArgumentError
from unspool.networks.chain import product_state, random_mps
from unspool.networks.lattice import ising_site, product_environment, site_expectation
from unspool.networks.models import heisenberg, ising_bonds

Options = dict[str, Any]


class StoppedError(Exception):
    """What ends a loop in its middle."""


def ramp(*shape: int) -> Any:
    return us.tensor(1.0 / (1.0 + np.indices(shape).sum(axis=0)))


def symmetric() -> Any:
    values = np.random.default_rng(0).random((5, 5))
    return us.tensor(values + values.T)


def dmrg(options: Options) -> tuple[Any, Any]:
    J = us.tensor(np.linspace(1.0, 1.5, 5))
    return nw.dmrg(heisenberg(J), random_mps(6, 2, 4), rank=6, max_steps=5, tol=0.0, **options).energy, J


def tebd(options: Options) -> tuple[Any, Any]:
    h = us.tensor(1.5)
    bonds, start = ising_bonds(us.ones(3), us.stack([h] * 4)), product_state([[1.0, 1.0]] * 4)
    return nw.tebd(bonds, start, steps=12, **options).energy, h


def trg(options: Options) -> tuple[Any, Any]:
    beta = us.tensor(0.42)
    return nw.trg(beta, rank=6, steps=10, **options).log_partition, beta


def hotrg(options: Options) -> tuple[Any, Any]:
    beta = us.tensor(0.4)
    return nw.hotrg(beta, rank=4, steps=8, **options).log_partition, beta


def ctmrg(options: Options) -> tuple[Any, Any]:
    beta = us.tensor(0.6)
    site = ising_site(beta)
    found = nw.ctmrg(site.bulk, rank=4, start=product_environment(site.up), **options)
    return site_expectation(site.bulk, site.spin, found.state), beta


def cp_als(options: Options) -> tuple[Any, Any]:
    X = ramp(5, 5, 5)
    return nw.cp_als(X, rank=3, max_steps=12, tol=0.0, ridge=1e-6, **options).residual, X


def hooi(options: Options) -> tuple[Any, Any]:
    X = ramp(5, 5, 5)
    return nw.hooi(X, rank=2, max_steps=12, tol=0.0, **options).residual, X


def tt_als(options: Options) -> tuple[Any, Any]:
    X = ramp(4, 4, 4, 4)
    return nw.tt_als(X, rank=2, max_steps=10, tol=0.0, **options).residual, X


def sinkhorn(options: Options) -> tuple[Any, Any]:
    cost = us.tensor(np.random.default_rng(0).random((5, 6)))
    masses = np.full(5, 0.2), np.full(6, 1 / 6)
    return nw.sinkhorn(cost, *masses, regularisation=0.05, max_steps=20, tol=0.0, **options).cost, cost


def power_iteration(options: Options) -> tuple[Any, Any]:
    A = symmetric()
    return nw.power_iteration(A, max_steps=20, tol=0.0, **options).value, A


def subspace_iteration(options: Options) -> tuple[Any, Any]:
    A = symmetric()
    return us.sum(nw.subspace_iteration(A, 2, max_steps=12, tol=0.0, **options).values), A


def newton_schulz_polar(options: Options) -> tuple[Any, Any]:
    A = us.tensor(np.random.default_rng(0).random((5, 4)))
    return us.sum(nw.newton_schulz_polar(A, **options).state ** 3), A


LOOPS = [
    dmrg,
    tebd,
    trg,
    hotrg,
    ctmrg,
    cp_als,
    hooi,
    tt_als,
    sinkhorn,
    power_iteration,
    subspace_iteration,
    newton_schulz_polar,
]


def bits(found: tuple[Any, Any]) -> bytes:
    loss, variable = found
    return b"".join(np.ascontiguousarray(value).tobytes() for value in us.eval([loss, loss.grad(variable)]))


def stop_after(steps: int) -> Callable[..., None]:
    def on_step(step: int, *_: Any) -> None:
        if step == steps:
            raise StoppedError

    return on_step


@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_that_was_stopped_ends_with_the_same_bits(
    tmp_path: Path, loop: Callable[[Options], tuple[Any, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)

    def never(step: int, *_: Any) -> None:
        pass  # a look at every step is part of some loops

    expected = bits(loop({"spool": us.spool(tmp_path / "whole"), "on_step": never}))
    for steps in (2, 4):
        with pytest.raises(StoppedError):
            loop({"spool": us.spool(tmp_path / "run", every=0), "on_step": stop_after(steps)})
    found = loop({"spool": us.spool(tmp_path / "run", every=0), "on_step": never})
    assert bits(found) == expected


def test_what_is_no_folder_is_refused() -> None:
    with pytest.raises(ArgumentError, match="spool"):
        nw.trg(us.tensor(0.4), rank=4, spool=3)  # type: ignore[arg-type]
